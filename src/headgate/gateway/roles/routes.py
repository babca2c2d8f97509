"""What can be asked of the role services of a domain, and what is told.

Guarantees: whoever asks has a session, and asks for itself; only the keys are told to anyone. Of others' credentials a
principal learns nothing, and of policy the types of roles: statements are for those who govern or audit everything.
Why something is refused is told apart: fraud, misuse, revocation, or credentials that are not enough.
Leaves out: carrying it out (`service`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from headgate.commands.role_certificates import SignedCertificate
from headgate.commands.role_graph import Graph, GraphNode, graph
from headgate.commands.roles import HeldMemberships, check_place
from headgate.commands.sessions import Caller
from headgate.decide.ask import is_told_everything
from headgate.decide.constraints import RoleFunction
from headgate.gateway.http.handlers import asker_of, gateway_of, utc_of
from headgate.gateway.http.operations import Operation, Parameter, answer, nothing
from headgate.gateway.runtime import Gateway
from headgate.lang.render import render_role, render_rolefile
from headgate.model.conditions import Argument, Constant, RoleRef
from headgate.model.errors import BadRequest, NotFound, RoleDenied
from headgate.model.rolefiles import ArgumentType, ObjectType, Rolefile
from headgate.model.roles import Election, Membership, Service, reference_text
from headgate.model.state import State
from headgate.model.values import brief
from headgate.node.logs import CALLER, Log
from headgate.protocol import role_messages as rw
from headgate.roles.requests.revocation import pending_in
from headgate.roles.rolefiles.types import conform_argument, conform_arguments, describe

log = Log("roles")
MAX_TYPES_KEPT: Final = 256
"""Rolefiles whose types are remembered."""
_STATES: Final[Mapping[bool | None, Any]] = {True: "true", False: "false", None: "unknown"}


def _place(request: Request, instance: str) -> Service:
    return check_place((str(request.path_params["service"]), instance))


def refused(gateway: Gateway, request: Request, denied: RoleDenied) -> None:
    """Count and log a refusal by its class; who asked is told to the node's own log alone."""
    gateway.metrics.role_denied(denied.failure)
    caller = request.scope.get(CALLER)
    who = caller.principal if isinstance(caller, Caller) else ""
    route = getattr(request.scope.get("route"), "path", "")
    say = log.warning if denied.failure in ("fraud", "misuse") else log.info
    say("role-denied", kind=denied.failure, reason=denied.details.get("reason", ""), holder=who, route=route)


# -- what one has ---------------------------------------------------------------------------------------------


async def mine(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """What one holds, what one may take back, and where there are roles."""
    gateway = gateway_of(request)
    gateway.roles.pace(asker_of(request, caller))
    state = gateway.follower.state
    book, who = state.roles, caller.principal
    full = is_told_everything(state, who)
    held = [membership_told(book.memberships[id], policy=full) for id in book.held.get(who, ())]
    elections = [
        _election(one, one.elector != who)
        for one in book.elections.values()
        if who == one.elector or who in one.revokers
    ]
    services = await gateway.run_blocking(_services, state)
    revoked = await gateway.run_blocking(_revoked, state, who)
    return answer(rw.RolesAnswer(held, elections, services, revoked))


def _revoked(state: State, who: str) -> list[rw.RoleRevokedAnswer]:
    """What a principal has revoked by role, in an order that is always the same."""
    book = state.roles
    mine, is_pending = sorted((one for one in book.bans if one.by == who), key=repr), pending_in(book)
    return [
        rw.RoleRevokedAnswer(
            one.service, one.role, rw.arguments_told(one.args), one.instance, one.revoker, is_pending(one)
        )
        for one in mine
    ]


def _services(state: State) -> list[rw.ServiceAnswer]:
    return [rw.ServiceAnswer(name, _types(rolefile)) for name, rolefile in sorted(state.roles.rolefiles.items())]


@lru_cache(maxsize=MAX_TYPES_KEPT)
def _types(rolefile: Rolefile) -> dict[str, list[rw.ArgumentAnswer]]:
    """The arguments of each role, with their types."""
    described = describe(rolefile)
    return {role: [rw.ArgumentAnswer(one["name"], one["type"]) for one in args] for role, args in described.items()}


def membership_told(membership: Membership, *, holder: bool = False, policy: bool = False) -> rw.MembershipAnswer:
    """A membership as it is told; the statement it was entered by is policy."""
    return rw.MembershipAnswer(
        membership.id,
        membership.service,
        membership.role,
        rw.arguments_told(membership.args),
        reference_text(membership.record),
        membership.instance,
        "true" if membership.state is True else "unknown",
        membership.appointment,
        membership.until,
        membership.statement or None if policy else None,
        list(membership.supports),
        membership.holder if holder else None,
    )


def _election(election: Election, elector: bool = False) -> rw.ElectionAnswer:
    return rw.ElectionAnswer(
        election.id,
        election.service,
        election.role,
        rw.arguments_told(election.args),
        reference_text(election.record),
        election.instance,
        [render_role(ref) for ref in election.required],
        election.until,
        election.revoke_on_exit,
        election.elector if elector else None,
    )


def _held(found: HeldMemberships, holder: bool = False) -> rw.CertificateAnswer:
    memberships = [membership_told(one, holder=holder) for one in found.memberships]
    text, until = _signed(found.certificate)
    issued = None if found.certificate is None else found.certificate.issued
    return rw.CertificateAnswer(memberships, found.version, text, issued, until)


def _signed(one: SignedCertificate | None) -> tuple[str | None, datetime | None]:
    return (None, None) if one is None else (one.text, one.until)


# -- entering and leaving -------------------------------------------------------------------------------------


async def enter(request: Request, caller: Caller, body: rw.EnterRequest) -> Response:
    """Enter a role, or several with one certificate."""
    gateway = gateway_of(request)
    if (body.role is None) == (body.roles is None) or (body.roles is not None and body.args is not None):
        raise BadRequest("a `role` with `args`, or `roles`, is asked for", remedy="name one of the two")
    wanted = body.roles or [rw.WantedBody(body.role or "", body.args)]
    wishes = [(one.role, rw.open_arguments_of(one.args)) for one in wanted]
    asker, service = asker_of(request, caller), _place(request, body.instance)
    try:
        held = await gateway.run_blocking(gateway.roles.enter, asker, service, wishes, body.with_, body.request)
    except RoleDenied as denied:
        await gateway.audit_refusal(asker, service, wishes, denied)
        raise
    return answer(_held(held), 201)


async def leave(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """Give up a membership of one's own."""
    gateway = gateway_of(request)
    await gateway.run_blocking(gateway.roles.leave, asker_of(request, caller), str(request.path_params["id"]))
    return nothing()


async def grant(request: Request, caller: Caller, body: rw.GrantRequest) -> Response:
    """Give someone a role, or appoint; for the administrator."""
    gateway = gateway_of(request)
    asker, service, wish = asker_of(request, caller), _place(request, body.instance), _instance_of(body.role, body.args)
    until = None if body.until is None else utc_of(body.until)
    held = await gateway.run_blocking(
        lambda: gateway.roles.grant(
            asker, service, wish, body.to, appointment=body.appointment, until=until, request=body.request
        )
    )
    return answer(_held(held, holder=True), 201)


async def renew(request: Request, caller: Caller, body: rw.RenewRequest) -> Response:
    """A fresh certificate for what one still holds."""
    gateway, asker = gateway_of(request), asker_of(request, caller)
    service, given = str(request.path_params["service"]), _one_of(body)
    return answer(_held(await gateway.run_blocking(lambda: gateway.roles.renew(asker, service, **given))), 201)


def _one_of(body: rw.RenewRequest | rw.RevocationRequest) -> dict[str, str]:
    if (body.certificate is None) == (body.id is None):
        raise BadRequest("a `certificate` or an `id` is wanted", remedy="send one of the two")
    return {"id": body.id} if body.id is not None else {"certificate": body.certificate or ""}


# -- electing and revoking ------------------------------------------------------------------------------------


async def elect(request: Request, caller: Caller, body: rw.ElectRequest) -> Response:
    """Elect whoever holds some roles, or with `anyone` whoever comes."""
    gateway = gateway_of(request)
    if bool(body.to) == body.anyone:
        raise BadRequest("an election is of those who hold the roles `to`, or of `anyone`", remedy="say one of the two")
    asker, service = asker_of(request, caller), _place(request, body.instance)
    wish, until = (body.role, rw.open_arguments_of(body.args)), None if body.until is None else utc_of(body.until)
    required = await gateway.reader.roles(caller.principal, body.to, "required role")
    elected = await gateway.run_blocking(
        lambda: gateway.roles.elect(
            asker,
            service,
            wish,
            body.with_,
            required,
            until=until,
            revoke_on_exit=body.revoke_on_exit,
            request=body.request,
        )
    )
    text, _ = _signed(elected.revocation)
    told = rw.ElectedAnswer(_election(elected.election), elected.version, *_signed(elected.delegation), text)
    return answer(told, 201)


async def take_back(request: Request, caller: Caller, body: rw.RevocationRequest) -> Response:
    """Take an election back; the administrator ends any credential."""
    gateway, asker, given = gateway_of(request), asker_of(request, caller), _one_of(body)
    version = await gateway.run_blocking(lambda: gateway.roles.revoke(asker, **given))
    return answer(rw.ChangedAnswer(version))


async def pass_on(request: Request, caller: Caller, body: rw.PassRequest) -> Response:
    """Let another holder of the elector's role take an election back."""
    gateway, id = gateway_of(request), str(request.path_params["id"])
    found = await gateway.run_blocking(gateway.roles.pass_on, asker_of(request, caller), id, body.to)
    return answer(rw.PassedAnswer(id, found.version, *_signed(found.revocation)))


async def revoke_role(request: Request, caller: Caller, body: rw.RevokeRoleRequest) -> Response:
    """Revoke a role instance by role."""
    return await _by_role(request, caller, body, gateway_of(request).roles.revoke_role)


async def reinstate(request: Request, caller: Caller, body: rw.RevokeRoleRequest) -> Response:
    """Let a role instance be entered again."""
    return await _by_role(request, caller, body, gateway_of(request).roles.reinstate)


async def _by_role(request: Request, caller: Caller, body: rw.RevokeRoleRequest, work: Callable[..., int]) -> Response:
    wish = body.role, rw.arguments_of(body.args)  # what is null may be anything
    asked = asker_of(request, caller), _place(request, body.instance), wish, body.with_
    return answer(rw.ChangedAnswer(await gateway_of(request).run_blocking(work, *asked)))


def _instance_of(role: str, args: list[rw.ArgumentBody]) -> tuple[str, tuple[Argument, ...]]:
    """A role with all its arguments."""
    arguments = rw.arguments_of(args)
    if any(one is None for one in arguments):
        raise BadRequest("every argument is wanted here", remedy="leave none open")
    return role, arguments


# -- looking --------------------------------------------------------------------------------------------------


async def rolefile(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """The types of a service's roles, and its statements for those who may know them."""
    gateway = gateway_of(request)
    gateway.roles.pace(asker_of(request, caller))
    state = gateway.follower.state
    service, found = _existing(state, request)
    types = await gateway.run_blocking(_types, found)
    text = render_rolefile(found) if is_told_everything(state, caller.principal) else None
    return answer(rw.RolefileAnswer(service, types, text))


async def parse(request: Request, caller: Caller, body: rw.ParseRequest) -> Response:
    """What a text means to a service: a role with its arguments, or a literal of a type."""
    gateway = gateway_of(request)
    gateway.roles.pace(asker_of(request, caller))
    service, rolefile = _existing(gateway.follower.state, request)
    functions = gateway.domain.functions(gateway.follower.state)
    if body.type is not None:
        said = await gateway.reader.rolefile(caller.principal, f"def T(a) a : {body.type}")
        type = _type(body.type, said, service)
        return answer(await gateway.run_blocking(_literal, type, body.text, functions))
    (ref,) = await gateway.reader.roles(caller.principal, [body.text], "role")
    return answer(await gateway.run_blocking(_parsed, service, rolefile, ref, body, functions))


def _literal(type: ArgumentType, text: str, functions: Mapping[str, RoleFunction]) -> rw.ParsedAnswer:
    value = conform_argument(type, text, written=True, parsers=functions)
    return rw.ParsedAnswer(None, rw.arguments_told([value]))


def _parsed(
    service: str, rolefile: Rolefile, ref: RoleRef, body: rw.ParseRequest, functions: Mapping[str, RoleFunction]
) -> rw.ParsedAnswer:
    if ref.service not in (None, service):
        raise RoleDenied(f"`{brief(body.text)}` is of another service", failure="misuse", remedy="ask that one")
    if ref.role not in _types(rolefile):
        raise NotFound(f"`{service}` has no role `{brief(ref.role)}`")
    given = tuple(one.value if isinstance(one, Constant) else None for one in ref.args)
    args = conform_arguments(rolefile, ref.role, given, functions) if given else ()
    return rw.ParsedAnswer(ref.role, rw.arguments_told(args))


def _type(text: str, rolefile: Rolefile, service: str) -> ArgumentType:
    """A type as a rolefile writes it; one of no service is this one's own."""
    if (
        rolefile.imports
        or rolefile.statements
        or len(rolefile.declarations) != 1
        or len(rolefile.declarations[0].types) != 1
    ):
        raise BadRequest(f"`{brief(text)}` is no type", remedy="such as `Integer`, `{rw}` or `Login.userid`")
    ((_, found),) = rolefile.declarations[0].types
    return ObjectType(found.name, found.service or service) if isinstance(found, ObjectType) else found


def _existing(state: State, request: Request) -> tuple[str, Rolefile]:
    service = str(request.path_params["service"])
    rolefile = state.roles.rolefiles.get(service)
    if rolefile is None:
        raise NotFound(f"no service `{brief(service)}` has a rolefile here")
    return service, rolefile


async def credentials(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """The graph around one's own credentials, and what would fall with one of them."""
    gateway = gateway_of(request)
    state, root = gateway.follower.state, request.query_params.get("root")
    if request.query_params.get("format", "json") != "json":
        raise BadRequest("the graph is told as `json`", remedy="leave `format` out")
    gateway.roles.pace(asker_of(request, caller))
    functions = gateway.domain.functions(state)
    found = await gateway.run_blocking(graph, state, caller.principal, root, functions)
    return answer(_graph(found, state.version, root))


def _graph(drawing: Graph, version: int, root: str | None) -> rw.GraphAnswer:
    return rw.GraphAnswer(
        version,
        [_node(one) for one in drawing.nodes],
        [rw.EdgeAnswer(one.start, one.to, one.negated) for one in drawing.edges],
        root,
        [rw.FallAnswer(one.id, one.reason) for one in drawing.falls],
        drawing.whole,
    )


def _node(one: GraphNode) -> rw.NodeAnswer:
    record = None if one.record is None else reference_text(one.record)
    return rw.NodeAnswer(one.id, one.kind, _STATES[one.state], one.says, record, one.holder)


async def keys(request: Request, body: None) -> Response:  # noqa: ARG001
    """The signed table of the keys that sign certificates about roles."""
    gateway = gateway_of(request)
    text = await gateway.run_blocking(gateway.roles.certificates.document, gateway.clock())
    return answer(rw.RoleKeysAnswer(gateway.roles.certificates.own, text))


_CHANGING: Final = (404, 409, 415, 422, 507)
_ROOT: Final = Parameter("root", "One credential, and what would fall with it", {"type": "string", "maxLength": 200})
_FORMAT: Final = Parameter("format", "How it is told", {"type": "string", "enum": ["json"]})
OPERATIONS: Final = (
    Operation("GET", "/v1/roles", "roles", "What one holds, and where there are roles", mine,
              answers={200: rw.RolesAnswer}),
    Operation("GET", "/v1/roles/keys", "role-keys", "The keys that sign certificates about roles", keys,
              answers={200: rw.RoleKeysAnswer}, errors=(507,), session=False),
    Operation("GET", "/v1/roles/graph", "role-graph", "The credential graph around one's own credentials", credentials,
              answers={200: rw.GraphAnswer}, errors=(404, 422), parameters=(_ROOT, _FORMAT)),
    Operation("DELETE", "/v1/roles/memberships/{id}", "leave-role", "Give up a membership of one's own", leave,
              answers={204: None}, errors=(404, 409, 422, 507)),
    Operation("POST", "/v1/roles/revocations", "revoke-election", "Take an election back", take_back,
              rw.RevocationRequest, {200: rw.ChangedAnswer}, _CHANGING),
    Operation("POST", "/v1/roles/elections/{id}/pass", "pass-revocation", "Let another take an election back", pass_on,
              rw.PassRequest, {200: rw.PassedAnswer}, _CHANGING),
    Operation("POST", "/v1/roles/{service}/enter", "enter-role", "Enter roles", enter,
              rw.EnterRequest, {201: rw.CertificateAnswer}, _CHANGING),
    Operation("POST", "/v1/roles/{service}/elect", "elect-role", "Elect to a role", elect,
              rw.ElectRequest, {201: rw.ElectedAnswer}, _CHANGING),
    Operation("POST", "/v1/roles/{service}/grant", "grant-role", "Give a role, or appoint", grant,
              rw.GrantRequest, {201: rw.CertificateAnswer}, _CHANGING),
    Operation("POST", "/v1/roles/{service}/renew", "renew-role", "A fresh certificate", renew,
              rw.RenewRequest, {201: rw.CertificateAnswer}, _CHANGING),
    Operation("POST", "/v1/roles/{service}/revoke", "revoke-role", "Revoke a role instance by role", revoke_role,
              rw.RevokeRoleRequest, {200: rw.ChangedAnswer}, _CHANGING),
    Operation("POST", "/v1/roles/{service}/reinstate", "reinstate-role", "Let it be entered again", reinstate,
              rw.RevokeRoleRequest, {200: rw.ChangedAnswer}, _CHANGING),
    Operation("GET", "/v1/roles/{service}/rolefile", "rolefile", "The types of a service's roles", rolefile,
              answers={200: rw.RolefileAnswer}, errors=(404, 422)),
    Operation("POST", "/v1/roles/{service}/parse", "parse-role", "What a text means to a service", parse,
              rw.ParseRequest, {200: rw.ParsedAnswer}, (404, 415, 422)),
)  # fmt: skip
