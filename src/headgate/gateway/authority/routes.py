"""What can be asked of the domain's access control service, and what it is told.

Guarantees: only members ask for statements, each for itself; whoever may be told of revocations is anyone, and whoever
brings a list is anyone: it is signed. Of others' statements a principal learns nothing.
"""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from headgate.commands.issuing import RecordedStatement
from headgate.gateway.http.operations import Call, Operation, Parameter
from headgate.gateway.runtime import Gateway
from headgate.model.authority import RevocationList
from headgate.model.errors import TooBusy
from headgate.model.limits import MAX_LIST_BYTES
from headgate.node.statement_register import IssuedStatement
from headgate.protocol import messages as wire
from headgate.trust.certificates import REVOCATIONS, said_issuer
from headgate.trust.identities import IDENTITY
from headgate.trust.keys import PublicKey
from headgate.trust.statements import said_kind

MAX_LISTED: Final = 1_000  # statements listed in one answer


# -- showing and issuing --------------------------------------------------------------------------------------


@Operation("POST", "/v1/statements", errors=(404, 409, 422, 507))
async def show(call: Call, body: wire.StatementsRequest) -> wire.StatementsAnswer:
    """Show signed statements."""
    gateway = call.gateway
    gateway.paces.check_version(call.principal)
    bag = await gateway.open_presented(call.principal, body.statements)
    async with gateway.presenting:
        state = await call.run(gateway.authority.take_up, call.caller.did, bag)
    held = [state.certificates[key].id for key in state.bags.get(call.principal, ())]
    attested = [one.identity.id for one in state.identities.values() if one.principal == call.principal]
    return wire.StatementsAnswer(state.version, held, attested)


@Operation("POST", "/v1/certificates", status=201, errors=(404, 422, 507))
async def certify(call: Call, body: wire.CertificateRequest) -> wire.CertificatesAnswer:
    """Ask for certificates."""
    gateway, asker = call.gateway, (call.principal, call.caller.did)
    wanted = body.rule, body.seconds, body.audience
    made = await call.run(gateway.service.certificates, gateway.follower.state, *asker, *wanted)
    # Who the gateway is does not lead on.
    leading = [text for text in gateway.own_statements.shown if said_kind(text) != IDENTITY.typ]
    return wire.CertificatesAnswer([_issued(one.record, one.text) for one in made], leading)


@Operation("POST", "/v1/identity", status=201, errors=(409, 422, 507))
async def identity(call: Call, body: wire.IdentityRequest) -> wire.IssuedAnswer:
    """Ask for an identity statement."""
    gateway, asker = call.gateway, (call.principal, call.caller.did)
    made = await call.run(gateway.service.identity, gateway.follower.state, *asker, body.audience)
    return _issued(made.record, made.text)


@Operation("POST", "/v1/identity/guest", status=201, errors=(401, 403, 409, 422, 507), session=False)
async def guest(call: Call, body: wire.GuestRequest) -> wire.IssuedAnswer:
    """Ask for a statement as a guest."""
    async with call.gateway.presenting:
        made = await call.run(_guest, call.gateway, body)
    return _issued(made.record, made.text)


def _guest(gateway: Gateway, body: wire.GuestRequest) -> RecordedStatement:
    state, service = gateway.follower.state, gateway.service

    def known(key: PublicKey) -> bool:  # what is not good is refused before it takes any room
        service.home(state, key.did, body.statement)
        return True

    key = gateway.sessions.challenger.answer(body.nonce, body.client_nonce, body.principal, body.signature, known)
    return service.guest(state, key.did, body.statement)


_AFTER: Final = Parameter("after", "Only those with a later id", {"type": "string", "maxLength": 100})


@Operation("GET", "/v1/certificates", errors=(507,), parameters=(_AFTER,))
async def issued(call: Call) -> wire.IssuedListAnswer:
    """Statements that have not ended.

    They are one's own, or all for the administrator.
    """
    register = call.gateway.register
    is_told_all = call.principal == call.gateway.follower.state.administrator
    after = call.request.query_params.get("after", "")[:100]
    statements = await call.run(register.issued, None if is_told_all else call.principal, after, MAX_LISTED)
    _, revoked = await call.run(register.revocations)
    return wire.IssuedListAnswer([_issued(one, None, is_told_all, one.id in revoked) for one in statements])


def _issued(one: IssuedStatement, text: str | None, told: bool = False, revoked: bool = False) -> wire.IssuedAnswer:
    rule, whose = one.rule or None, one.principal if told else None
    return wire.IssuedAnswer(one.id, one.kind, one.until, rule, text, whose, revoked)


# -- revocations ------------------------------------------------------------------------------------------------


@Operation("POST", "/v1/certificates/{id}/revoke", errors=(404, 409, 507))
async def revoke(call: Call) -> wire.RevokedAnswer:
    """Take a statement back, or give one's own up."""
    gateway, id = call.gateway, call.named("id")
    gateway.paces.version(call.principal)
    number = await call.run(gateway.service.revoke, gateway.follower.state, call.principal, id)
    return wire.RevokedAnswer(id, number, gateway.follower.state.version)


@Operation("GET", "/v1/revocations", session=False)
async def revocations(call: Call) -> wire.ListAnswer:
    """What the domain has revoked."""
    number, text = await call.run(call.gateway.service.signed_list)
    return wire.ListAnswer(call.gateway.authority.own, number, text)


@Operation(
    "GET",
    "/v1/revocations/stream",
    answers={200: {"type": "string"}},
    errors=(406,),
    session=False,
    media=wire.EVENT_STREAM,
)
async def follow(call: Call) -> Response:
    """What the domain has revoked, and every change of it."""
    if wire.EVENT_STREAM not in call.request.headers.get("accept", ""):
        raise HTTPException(406)
    return call.gateway.bulletin.follow(call.origin or "")


@Operation("POST", "/v1/revocations", errors=(403, 404, 409, 422, 507), session=False, limit=MAX_LIST_BYTES + 1_000)
async def hear(call: Call, body: wire.ListRequest) -> wire.HeardAnswer:
    """Bring a revocation list of any issuer."""
    gateway = call.gateway
    if gateway.brought.locked():
        raise TooBusy("other lists are being looked at", remedy="send it again in a moment")
    async with gateway.brought:
        heard, news = await call.run(_heard, gateway, body.list)
    if news:
        gateway.metrics.list_heard()
    return wire.HeardAnswer(heard.issuer, heard.number, news)


def _heard(gateway: Gateway, text: str) -> tuple[RevocationList, bool]:
    gateway.authority.check_heard(said_issuer(text))  # a large list is read only if it might count
    found = REVOCATIONS.verify(text, now=gateway.clock())
    return found, gateway.authority.hear(found, followed=False)


@Operation("GET", "/v1/status/{id}", errors=(404,), session=False)
async def status(call: Call) -> wire.StatusAnswer:
    """What has become of a statement."""
    gateway, id = call.gateway, call.named("id")
    found = await call.run(gateway.service.status, id)
    return wire.StatusAnswer(id, found, await call.run(gateway.register.number), gateway.clock())
