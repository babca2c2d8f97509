"""Roles of other domains, shown by clients of this one: confirmed by their issuers, they count here (OASIS 4.9.1).

Guarantees: a certificate counts only if its service is a peer of the ledger, its signature is good, it is about the key
of the session, and its issuer has just said that it stands; why it does not is told apart. Nobody is asked but that
issuer, and by nobody but the follower of this node (`gateway.federation.following`), which has the session there and
takes up what the issuer says in one order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final, get_args

from starlette.requests import Request
from starlette.responses import Response

from headgate.decide.ask import is_told_everything
from headgate.gateway.http.handlers import asker_of, gateway_of
from headgate.gateway.http.operations import Operation, answer
from headgate.gateway.http.sessions import Caller
from headgate.gateway.roles.routes import membership_told
from headgate.gateway.runtime import Gateway
from headgate.model.errors import GovernDenied, HeadgateError, RoleDenied, RoleFailure, TooBusy
from headgate.model.role_statements import ServiceInstance
from headgate.model.roles import Peer, RoleBook
from headgate.model.values import brief
from headgate.node.peers import QUESTION_SECONDS, PeerQuestion, PeerStatus
from headgate.protocol import peer_messages as pw
from headgate.roles.certificates.validation import WantedRole
from headgate.trust import role_statements as statements
from headgate.trust.presented import said_kind
from headgate.trust.statements import said_payload

LOOK_SECONDS: Final = 0.02
"""How often it is looked whether the follower has answered."""


def said(text: str) -> WantedRole:
    """What a certificate says that it is for. Nobody has vouched for it yet."""
    try:
        appointed = said_kind(text) == statements.APPOINTMENT.typ
        claims = json.loads(said_payload(text, statements.APPOINTMENT if appointed else statements.ROLE))
        named = [claims.get(name) for name in ("iss", "service", "instance")]
        place = ServiceInstance(*(one if isinstance(one, str) else "" for one in named))
        return WantedRole(place, str(claims["roles"][0]["role"]), None, appointed)
    except (ValueError, HeadgateError, RecursionError, LookupError, TypeError, AttributeError):
        return WantedRole(ServiceInstance("", ""), "")


def peer_of(book: RoleBook, instance: ServiceInstance) -> Peer:
    """The peer that a certificate says it is from."""
    for peer in book.peers.values():
        if (peer.key, peer.service) == (instance.issuer, instance.service):
            return peer
    raise RoleDenied(
        f"roles of `{brief(instance.service)}` of `{brief(instance.issuer)}` do not count here",
        failure="misuse",
        details={"reason": "no-peer"},
        remedy="show it to its own domain, or ask the administrator to name that service as a peer",
    )


async def present(request: Request, caller: Caller, body: pw.PresentRequest) -> Response:
    """Let roles of another domain count here."""
    gateway = gateway_of(request)
    asker = asker_of(request, caller)
    gateway.roles.pace(asker)
    peer = peer_of(gateway.follower.state.roles, said(body.certificate).place)
    question = PeerQuestion(gateway.new_name(), peer.name, asker.principal, asker.did, body.certificate)
    await gateway.run_blocking(gateway.peers.ask, question, gateway.clock())
    reply = await _answered(gateway, question)
    await gateway.catch_up()
    held = gateway.follower.state.roles.memberships
    memberships = [membership_told(held[id]) for id in reply["memberships"] if id in held]
    if not memberships:
        raise RoleDenied("the issuer revoked it at once", failure="revocation", details={"reason": "revoked"})
    return answer(pw.PresentedAnswer(int(reply["version"]), memberships), 201)


async def _answered(gateway: Gateway, question: PeerQuestion) -> dict[str, Any]:
    try:
        async with asyncio.timeout(QUESTION_SECONDS):
            while True:
                text = await gateway.run_blocking(gateway.peers.answered, question.id)
                if text is not None:
                    return _read(text)
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        await gateway.run_blocking(gateway.peers.withdraw, question.id)
        raise TooBusy(f"`{question.peer}` cannot be asked now", remedy="show it again later") from None


def _read(text: str) -> dict[str, Any]:
    answered: dict[str, Any] = json.loads(text)
    if (problem := answered.get("problem")) is None:
        return answered
    if problem["code"] == RoleDenied.code and problem.get("failure") in get_args(RoleFailure):
        details = {} if problem.get("reason") is None else {"reason": problem["reason"]}
        raise RoleDenied(problem["detail"], failure=problem["failure"], details=details, remedy=problem.get("remedy"))
    raise TooBusy(f"the issuer does not answer: {problem['detail']}", remedy=problem.get("remedy"))


async def peers(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """How one stands with other domains' services, for those who govern or audit everything."""
    gateway = gateway_of(request)
    state = gateway.follower.state
    if not is_told_everything(state, caller.principal):
        raise GovernDenied(f"`{caller.principal}` may not know with which services others stand how")
    found = await gateway.run_blocking(gateway.peers.statuses, state.roles, gateway.clock())
    return answer(pw.PeersAnswer([_peer(one) for one in found]))


def _peer(status: PeerStatus) -> pw.PeerAnswer:
    counts = status.counts
    return pw.PeerAnswer(
        *(status.name, status.service, status.key, status.bound, status.records, status.unknown),
        *(counts.duplicated, counts.lost, counts.late, status.seconds, status.trouble),
    )


OPERATIONS: Final[Sequence[Operation]] = (
    Operation("POST", "/v1/roles/present", "present-role", "Let roles of another domain count here", present,
              pw.PresentRequest, {201: pw.PresentedAnswer}, (409, 415, 422, 507)),
    Operation("GET", "/v1/roles/peers", "role-peers", "How one stands with services of other domains", peers,
              answers={200: pw.PeersAnswer}),
)  # fmt: skip
