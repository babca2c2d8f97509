"""What can be asked of the domain's access control service, and what it is told.

Guarantees: only members ask for statements, each for itself; whoever may be told of revocations is anyone, and whoever
brings a list is anyone: it is signed. Of others' statements a principal learns nothing.
"""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from headgate.commands.issuing import RecordedStatement
from headgate.gateway.http.handlers import gateway_of
from headgate.gateway.http.operations import Operation, Parameter, answer
from headgate.gateway.http.origin import origin_of
from headgate.gateway.http.sessions import Caller
from headgate.gateway.runtime import Gateway
from headgate.model.authority import RevocationList
from headgate.model.errors import TooBusy
from headgate.model.limits import MAX_LIST_BYTES
from headgate.model.state import State
from headgate.node.statement_register import IssuedStatement
from headgate.protocol import messages as wire
from headgate.trust.certificates import said_issuer, verify_revocations
from headgate.trust.identities import IDENTITY
from headgate.trust.keys import PublicKey
from headgate.trust.presented import said_kind

MAX_LISTED: Final = 1_000
"""Statements listed in one answer."""


# -- showing ----------------------------------------------------------------------------------------------------


async def show(request: Request, caller: Caller, body: wire.StatementsRequest) -> Response:
    """Take up what a principal shows during its session."""
    gateway = gateway_of(request)
    gateway.paces.check_version(caller.principal)
    bag = await gateway.open_presented(caller.principal, body.statements)
    async with gateway.presenting:
        state: State = await gateway.run_blocking(gateway.authority.take_up, caller.did, bag)
    held = [state.certificates[key].id for key in state.bags.get(caller.principal, ())]
    attested = [one.identity.id for one in state.identities.values() if one.principal == caller.principal]
    return answer(wire.StatementsAnswer(state.version, held, attested))


# -- certificates -----------------------------------------------------------------------------------------------


async def certify(request: Request, caller: Caller, body: wire.CertificateRequest) -> Response:
    """Issue certificates to a member, by the domain's own policy."""
    gateway = gateway_of(request)
    made: list[RecordedStatement] = await gateway.run_blocking(
        gateway.service.certificates,
        gateway.follower.state,
        caller.principal,
        caller.did,
        body.rule,
        body.seconds,
        body.audience,
    )
    leading = [text for text in gateway.shown if said_kind(text) != IDENTITY.typ]  # who the gateway is does not lead on
    return answer(wire.CertificatesAnswer([_issued(one.record, one.text) for one in made], leading), 201)


async def issued(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """Statements that have not ended: one's own, or all for the administrator."""
    gateway = gateway_of(request)
    all_of_them = caller.principal == gateway.follower.state.administrator
    after = request.query_params.get("after", "")[:100]
    statements = await gateway.run_blocking(
        gateway.register.issued, None if all_of_them else caller.principal, after, MAX_LISTED
    )
    _, revoked = await gateway.run_blocking(gateway.register.revocations)
    return answer(
        wire.IssuedListAnswer([_issued(one, None, all_of_them, one.id in revoked) for one in statements]),
    )


def _issued(one: IssuedStatement, text: str | None, told: bool = False, revoked: bool = False) -> wire.IssuedAnswer:
    rule, whose = one.rule or None, one.principal if told else None
    return wire.IssuedAnswer(one.id, one.kind, one.until, rule, text, whose, revoked)


async def revoke(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """Take a statement back, or give one up."""
    gateway, id = gateway_of(request), str(request.path_params["id"])
    gateway.paces.version(caller.principal)
    number = await gateway.run_blocking(gateway.service.revoke, gateway.follower.state, caller.principal, id)
    return answer(wire.RevokedAnswer(id, number, gateway.follower.state.version))


# -- revocations ------------------------------------------------------------------------------------------------


async def revocations(request: Request, body: None) -> Response:  # noqa: ARG001
    """The domain's own list."""
    gateway = gateway_of(request)
    number, text = await gateway.run_blocking(gateway.service.signed_list)
    return answer(wire.ListAnswer(gateway.authority.own, number, text))


async def stream(request: Request, body: None) -> Response:  # noqa: ARG001
    """The domain's own list, and every change of it."""
    gateway = gateway_of(request)
    if wire.EVENT_STREAM not in request.headers.get("accept", ""):
        raise HTTPException(406)
    return gateway.bulletin.follow(origin_of(request, gateway.config.gateway.proxies) or "")


async def hear(request: Request, body: wire.ListRequest) -> Response:
    """Take up a list that somebody brings."""
    gateway = gateway_of(request)
    if gateway.brought.locked():
        raise TooBusy("other lists are being looked at", remedy="send it again in a moment")
    async with gateway.brought:
        heard, news = await gateway.run_blocking(_heard, gateway, body.list)
    if news:
        gateway.metrics.list_heard()
    return answer(wire.HeardAnswer(heard.issuer, heard.number, news))


def _heard(gateway: Gateway, text: str) -> tuple[RevocationList, bool]:
    gateway.authority.check_heard(said_issuer(text))  # a large list is read only if it might count
    found = verify_revocations(text, now=gateway.clock())
    return found, gateway.authority.hear(found, followed=False)


async def status(request: Request, body: None) -> Response:  # noqa: ARG001
    """What has become of a statement of this service."""
    gateway, id = gateway_of(request), str(request.path_params["id"])
    found = await gateway.run_blocking(gateway.service.status, id)
    number = await gateway.run_blocking(gateway.register.number)
    return answer(wire.StatusAnswer(id, found, number, gateway.clock()))


# -- identities -------------------------------------------------------------------------------------------------


async def identify(request: Request, caller: Caller, body: wire.IdentityRequest) -> Response:
    """What the domain says of a member."""
    gateway = gateway_of(request)
    made: RecordedStatement = await gateway.run_blocking(
        gateway.service.identity, gateway.follower.state, caller.principal, caller.did, body.audience
    )
    return answer(_issued(made.record, made.text), 201)


async def guest(request: Request, body: wire.GuestRequest) -> Response:
    """A statement about a member of another community, who has proven its key."""
    gateway = gateway_of(request)
    async with gateway.presenting:
        made: RecordedStatement = await gateway.run_blocking(_guest, gateway, body)
    return answer(_issued(made.record, made.text), 201)


def _guest(gateway: Gateway, body: wire.GuestRequest) -> RecordedStatement:
    state, service = gateway.follower.state, gateway.service

    def known(key: PublicKey) -> bool:  # what is not good is refused before it takes any room
        service.home(state, key.did, body.statement)
        return True

    key = gateway.sessions.challenger.answer(body.nonce, body.client_nonce, body.principal, body.signature, known)
    return service.guest(state, key.did, body.statement)


_AFTER: Final = Parameter("after", "Only those with a later id", {"type": "string", "maxLength": 100})
OPERATIONS: Final = (
    Operation("POST", "/v1/statements", "show", "Show signed statements", show,
              wire.StatementsRequest, {200: wire.StatementsAnswer}, (404, 409, 415, 422, 507)),
    Operation("POST", "/v1/certificates", "certify", "Ask for certificates", certify,
              wire.CertificateRequest, {201: wire.CertificatesAnswer}, (404, 415, 422, 507)),
    Operation("GET", "/v1/certificates", "issued", "Statements that have not ended", issued,
              answers={200: wire.IssuedListAnswer}, errors=(507,), parameters=(_AFTER,)),
    Operation("POST", "/v1/certificates/{id}/revoke", "revoke", "Take a statement back, or give one's own up", revoke,
              answers={200: wire.RevokedAnswer}, errors=(404, 409, 507)),
    Operation("GET", "/v1/revocations", "revocations", "What the domain has revoked", revocations,
              answers={200: wire.ListAnswer}, session=False),
    Operation("POST", "/v1/revocations", "hear", "Bring a revocation list of any issuer", hear,
              wire.ListRequest, {200: wire.HeardAnswer}, (403, 404, 409, 415, 422, 507), session=False,
              limit=MAX_LIST_BYTES + 1_000),
    Operation("GET", "/v1/revocations/stream", "follow", "What the domain has revoked, and every change of it", stream,
              answers={200: {"type": "string"}}, errors=(406,), session=False, media=wire.EVENT_STREAM),
    Operation("GET", "/v1/status/{id}", "status", "What has become of a statement", status,
              answers={200: wire.StatusAnswer}, errors=(404,), session=False),
    Operation("POST", "/v1/identity", "identity", "Ask for an identity statement", identify,
              wire.IdentityRequest, {201: wire.IssuedAnswer}, (409, 415, 422, 507)),
    Operation("POST", "/v1/identity/guest", "guest", "Ask for a statement as a guest", guest,
              wire.GuestRequest, {201: wire.IssuedAnswer}, (401, 403, 409, 415, 422, 507), session=False),
)  # fmt: skip
