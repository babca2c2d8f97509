"""What can be asked of the role services of a domain, and what is told.

Guarantees: whoever asks has a session, and asks for itself; only the keys are told to anyone. Of others' credentials a
principal learns nothing, and of policy the types of roles: statements are for those who govern or audit everything.
Why something is refused is told apart: fraud, misuse, revocation, or credentials that are not enough.
Leaves out: carrying it out (`service`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final

from starlette.requests import Request

from headgate.commands.peer_roles import ClaimedRecord
from headgate.commands.role_certificates import SignedCertificate
from headgate.commands.role_graph import graph
from headgate.commands.roles import HeldMemberships, check_place
from headgate.commands.sessions import Caller
from headgate.decide.constraints import RoleFunction
from headgate.decide.deliver import is_told_everything
from headgate.gateway.http.handlers import utc_of
from headgate.gateway.http.operations import Call, Operation, Parameter
from headgate.gateway.runtime import Gateway
from headgate.lang.render import render_role, render_rolefile
from headgate.model.changes import ReinstateRole, RevokeRole
from headgate.model.errors import BadDefinition, BadRequest, NotFound, RoleDenied
from headgate.model.expressions import Argument, Constant, RoleRef
from headgate.model.limits import MAX_NAME_CHARS, MAX_READ_BYTES
from headgate.model.rolefiles import ArgumentType, ObjectType, Rolefile
from headgate.model.roles import Election, Membership, Reference, Service, reference_text
from headgate.model.state import State
from headgate.model.values import brief
from headgate.node.logs import CALLER, Log
from headgate.node.peers import PeerStatus
from headgate.protocol import role_messages as rw
from headgate.roles.certificates.remote_records import Snapshot, record_of, word_of
from headgate.roles.requests.revocation import pending_in
from headgate.roles.rolefiles.types import conform_argument, conform_arguments, describe

log = Log("roles")
MAX_TYPES_KEPT: Final = 256  # rolefiles whose types are remembered
_CHANGING: Final = (404, 409, 422, 507)


def _place(call: Call, instance: str) -> Service:
    return check_place((call.named("service"), instance))


def refused(gateway: Gateway, request: Request, denied: RoleDenied) -> None:
    """Count and log a refusal by its class; who asked is told to the node's own log alone."""
    gateway.metrics.role_denied(denied.failure)
    caller = request.scope.get(CALLER)
    who = caller.principal if isinstance(caller, Caller) else ""
    route = getattr(request.scope.get("route"), "path", "")
    say = log.warning if denied.failure in ("fraud", "misuse") else log.info
    say("role-denied", kind=denied.failure, reason=denied.details.get("reason", ""), holder=who, route=route)


# -- what one has ---------------------------------------------------------------------------------------------


@Operation("GET", "/v1/roles")
async def roles(call: Call) -> rw.RolesAnswer:
    """What one holds, and where there are roles."""
    call.gateway.roles.pace(call.asker)
    state = call.gateway.follower.state
    book, who = state.roles, call.principal
    full = is_told_everything(state, who)
    held = [membership_told(book.memberships[id], policy=full) for id in book.held.get(who, ())]
    elections = [
        _election(one, one.elector != who)
        for one in book.elections.values()
        if who == one.elector or who in one.revokers
    ]
    return rw.RolesAnswer(held, elections, await call.run(_services, state), await call.run(_revoked, state, who))


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


@Operation("POST", "/v1/roles/{service}/enter", status=201, errors=_CHANGING)
async def enter_role(call: Call, body: rw.EnterRequest) -> rw.CertificateAnswer:
    """Enter roles."""
    if (body.role is None) == (body.roles is None) or (body.roles is not None and body.args is not None):
        raise BadRequest("a `role` with `args`, or `roles`, is asked for", remedy="name one of the two")
    wanted = body.roles or [rw.WantedBody(body.role or "", body.args)]
    wishes = [(one.role, rw.open_arguments_of(one.args)) for one in wanted]
    asker, service = call.asker, _place(call, body.instance)
    try:
        held = await call.run(call.gateway.roles.enter, asker, service, wishes, body.with_, body.request)
    except RoleDenied as denied:
        await call.gateway.announcer.audit_refusal(asker, service, wishes, denied.failure)
        raise
    return _held(held)


@Operation("DELETE", "/v1/roles/memberships/{id}", errors=_CHANGING)
async def leave_role(call: Call) -> None:
    """Give up a membership of one's own."""
    await call.run(call.gateway.roles.leave, call.asker, call.named("id"))


@Operation("POST", "/v1/roles/{service}/grant", status=201, errors=_CHANGING)
async def grant_role(call: Call, body: rw.GrantRequest) -> rw.CertificateAnswer:
    """Give a role, or appoint."""
    asked = call.asker, _place(call, body.instance), _instance_of(body.role, body.args), body.to
    how = {"appointment": body.appointment, "until": utc_of(body.until), "request": body.request}
    return _held(await call.run(call.gateway.roles.grant, *asked, **how), holder=True)


@Operation("POST", "/v1/roles/{service}/renew", status=201, errors=_CHANGING)
async def renew_role(call: Call, body: rw.RenewRequest) -> rw.CertificateAnswer:
    """A fresh certificate."""
    return _held(await call.run(call.gateway.roles.renew, call.asker, call.named("service"), **_one_of(body)))


def _one_of(body: rw.RevocationRequest) -> dict[str, str]:
    if (body.certificate is None) == (body.id is None):
        raise BadRequest("a `certificate` or an `id` is wanted", remedy="send one of the two")
    return {"id": body.id} if body.id is not None else {"certificate": body.certificate or ""}


# -- electing and revoking ------------------------------------------------------------------------------------


@Operation("POST", "/v1/roles/{service}/elect", status=201, errors=_CHANGING)
async def elect_role(call: Call, body: rw.ElectRequest) -> rw.ElectedAnswer:
    """Elect to a role."""
    if bool(body.to) == body.anyone:
        raise BadRequest("an election is of those who hold the roles `to`, or of `anyone`", remedy="say one of the two")
    asker, service, wish = call.asker, _place(call, body.instance), (body.role, rw.open_arguments_of(body.args))
    how = {"until": utc_of(body.until), "revoke_on_exit": body.revoke_on_exit, "request": body.request}
    required = await call.gateway.reader.roles(call.principal, body.to, "required role")
    elected = await call.run(call.gateway.roles.elect, asker, service, wish, body.with_, required, **how)
    text, _ = _signed(elected.revocation)
    return rw.ElectedAnswer(_election(elected.election), elected.version, *_signed(elected.delegation), text)


@Operation("POST", "/v1/roles/revocations", errors=_CHANGING)
async def revoke_election(call: Call, body: rw.RevocationRequest) -> rw.ChangedAnswer:
    """Take an election back.

    The administrator ends any credential.
    """
    return rw.ChangedAnswer(await call.run(call.gateway.roles.revoke, call.asker, **_one_of(body)))


@Operation("POST", "/v1/roles/elections/{id}/pass", errors=_CHANGING)
async def pass_revocation(call: Call, body: rw.PassRequest) -> rw.PassedAnswer:
    """Let another take an election back."""
    id = call.named("id")
    version, revocation = await call.run(call.gateway.roles.pass_on, call.asker, id, body.to)
    return rw.PassedAnswer(id, version, *_signed(revocation))


@Operation("POST", "/v1/roles/{service}/revoke", errors=_CHANGING)
async def revoke_role(call: Call, body: rw.RevokeRoleRequest) -> rw.ChangedAnswer:
    """Revoke a role instance by role."""
    return await _by_role(call, body, RevokeRole)


@Operation("POST", "/v1/roles/{service}/reinstate", errors=_CHANGING)
async def reinstate_role(call: Call, body: rw.RevokeRoleRequest) -> rw.ChangedAnswer:
    """Let it be entered again."""
    return await _by_role(call, body, ReinstateRole)


async def _by_role(call: Call, body: rw.RevokeRoleRequest, kind: type[RevokeRole | ReinstateRole]) -> rw.ChangedAnswer:
    wish = body.role, rw.arguments_of(body.args)  # what is null may be anything
    place, by_role = _place(call, body.instance), call.gateway.roles.by_role
    return rw.ChangedAnswer(await call.run(by_role, kind, call.asker, place, wish, body.with_))


def _instance_of(role: str, args: list[rw.ArgumentBody]) -> tuple[str, tuple[Argument, ...]]:
    """A role with all its arguments."""
    arguments = rw.arguments_of(args)
    if any(one is None for one in arguments):
        raise BadRequest("every argument is wanted here", remedy="leave none open")
    return role, arguments


# -- looking --------------------------------------------------------------------------------------------------


@Operation("GET", "/v1/roles/{service}/rolefile", errors=(404, 422))
async def rolefile(call: Call) -> rw.RolefileAnswer:
    """The types of a service's roles.

    Its statements are for those who are told everything.
    """
    call.gateway.roles.pace(call.asker)
    state = call.gateway.follower.state
    service, declared = _existing(state, call)
    types = await call.run(_types, declared)
    text = render_rolefile(declared) if is_told_everything(state, call.principal) else None
    return rw.RolefileAnswer(service, types, text)


@Operation("POST", "/v1/roles/{service}/parse", errors=(404, 422))
async def parse_role(call: Call, body: rw.ParseRequest) -> rw.ParsedAnswer:
    """What a text means to a service."""
    gateway = call.gateway
    gateway.roles.pace(call.asker)
    service, rolefile = _existing(gateway.follower.state, call)
    functions = gateway.domain.functions(gateway.follower.state)
    if body.type is not None:
        said = await gateway.reader.rolefile(call.principal, f"def T(a) a : {body.type}")
        return await call.run(_literal, _type(body.type, said, service), body.text, functions)
    (ref,) = await gateway.reader.roles(call.principal, [body.text], "role")
    return await call.run(_parsed, service, rolefile, ref, body, functions)


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


def _existing(state: State, call: Call) -> tuple[str, Rolefile]:
    service = call.named("service")
    rolefile = state.roles.rolefiles.get(service)
    if rolefile is None:
        raise NotFound(f"no service `{brief(service)}` has a rolefile here")
    return service, rolefile


_ROOT: Final = Parameter("root", "One credential, and what would fall with it", {"type": "string", "maxLength": 200})
_FORMAT: Final = Parameter("format", "How it is told", {"type": "string", "enum": ["json"]})


@Operation("GET", "/v1/roles/graph", errors=(404, 422), parameters=(_ROOT, _FORMAT))
async def role_graph(call: Call) -> rw.GraphAnswer:
    """The credential graph around one's own credentials."""
    gateway, query = call.gateway, call.request.query_params
    state, root = gateway.follower.state, query.get("root")
    if query.get("format", "json") != "json":
        raise BadRequest("the graph is told as `json`", remedy="leave `format` out")
    gateway.roles.pace(call.asker)
    drawing: rw.GraphAnswer = await call.run(graph, state, call.principal, root, gateway.domain.functions(state))
    return drawing


@Operation("GET", "/v1/roles/keys", errors=(507,), session=False)
async def role_keys(call: Call) -> rw.RoleKeysAnswer:
    """The keys that sign certificates about roles."""
    certificates = call.gateway.roles.certificates
    return rw.RoleKeysAnswer(certificates.own, await call.run(certificates.document, call.gateway.clock()))


_SERVICE: Final = Parameter(
    "service", "The service whose records are meant", {"type": "string", "maxLength": MAX_NAME_CHARS}, required=True
)


@Operation("POST", "/v1/roles/validate", errors=(409, 422, 507))
async def validate_role(call: Call, body: rw.ValidateRequest) -> rw.ValidatedAnswer:
    """Is a certificate good? Its records are then followed."""
    watching = call.gateway.record_watching
    held, snapshot = await call.run(watching.validate, call.asker, body.certificate, body.subject)
    service, instance = held[0].place
    roles = [rw.ConfirmedRole(one.role, rw.arguments_told(one.args), reference_text(one.record)) for one in held]
    return rw.ValidatedAnswer(service, *_told(call, snapshot), instance, roles)


@Operation("GET", "/v1/roles/records", errors=(422, 507), parameters=(_SERVICE,))
async def role_records(call: Call) -> rw.RecordsAnswer:
    """The states of records that one follows."""
    service = call.request.query_params.get("service", "")
    if not 1 <= len(service) <= MAX_NAME_CHARS:
        raise BadRequest("no service is named", remedy="send `service` in the query")
    snapshot = await call.run(call.gateway.record_watching.read, call.asker, service)
    return rw.RecordsAnswer(service, *_told(call, snapshot))


@Operation("POST", "/v1/roles/records", errors=(409, 422, 507), limit=MAX_READ_BYTES)
async def follow_records(call: Call, body: rw.RecordsRequest) -> rw.RecordsAnswer:
    """Go on to follow records."""
    claims = [_claim(one, at) for at, one in enumerate(body.records)]
    snapshot = await call.run(call.gateway.record_watching.rejoin, call.asker, body.service, claims)
    return rw.RecordsAnswer(body.service, *_told(call, snapshot))


@Operation("POST", "/v1/roles/unwatch", errors=(409, 422, 507))
async def unfollow_records(call: Call, body: rw.UnwatchRequest) -> None:
    """Follow records no longer."""
    records = [_record(one, at) for at, one in enumerate(body.records)]
    await call.run(call.gateway.record_watching.unwatch, call.asker, body.service, records)


def _claim(body: rw.RecordBody, at: int) -> ClaimedRecord:
    """A record with all arguments of its role: whoever leaves one open is guessing."""
    record = _record(body.record, at)
    if any(one is None for one in body.args):
        raise BadRequest("every argument is wanted here", place=f"record {at + 1}", remedy="leave none open")
    return ClaimedRecord(record, body.role, body.instance, rw.arguments_of(body.args), body.subject)


def _record(text: str, at: int) -> Reference:
    try:
        return record_of(text)
    except BadDefinition as error:
        raise BadRequest(error.message, place=f"record {at + 1}", remedy=error.remedy) from None


def _told(call: Call, read: Snapshot) -> tuple[str, int, datetime, float, dict[str, rw.StateWord]]:
    """States, and how far they are true."""
    states = {reference_text(ref): word_of(state) for ref, state in read.states.items()}
    return read.epoch, read.number, read.at, call.gateway.config.roles.heartbeat, states


# -- roles of others ------------------------------------------------------------------------------------------


@Operation("POST", "/v1/roles/present", status=201, errors=(409, 422, 507))
async def present_role(call: Call, body: rw.PresentRequest) -> rw.PresentedAnswer:
    """Let roles of another domain count here."""
    name = secrets.token_hex(8)
    version, held = await call.gateway.peer_roles.present(call.asker, body.certificate, name)
    return rw.PresentedAnswer(version, [membership_told(one) for one in held])


@Operation("GET", "/v1/roles/peers")
async def role_peers(call: Call) -> rw.PeersAnswer:
    """How one stands with services of other domains."""
    return rw.PeersAnswer([_peer(one) for one in await call.gateway.peer_roles.statuses(call.principal)])


def _peer(status: PeerStatus) -> rw.PeerAnswer:
    counts = status.counts
    return rw.PeerAnswer(
        *(status.name, status.service, status.key, status.bound, status.records, status.unknown),
        *(counts.duplicated, counts.lost, counts.late, status.seconds, status.trouble),
    )
