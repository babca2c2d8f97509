"""Roles of other domains, shown by clients of this one (`commands.peer_roles`), over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headgate.commands.sessions import Caller
from headgate.gateway.http.handlers import asker_of, gateway_of
from headgate.gateway.http.operations import Operation, answer
from headgate.gateway.roles.routes import membership_told
from headgate.node.peers import PeerStatus
from headgate.protocol import peer_messages as pw


async def present(request: Request, caller: Caller, body: pw.PresentRequest) -> Response:
    """Let roles of another domain count here."""
    gateway, asker = gateway_of(request), asker_of(request, caller)
    version, held = await gateway.peer_roles.present(asker, body.certificate, gateway.new_name())
    return answer(pw.PresentedAnswer(version, [membership_told(one) for one in held]), 201)


async def peers(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """How one stands with other domains' services, for those who govern or audit everything."""
    statuses = await gateway_of(request).peer_roles.statuses(caller.principal)
    return answer(pw.PeersAnswer([_peer(one) for one in statuses]))


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
