"""Roles across domains over HTTP: what others ask of ours, and what clients show of theirs (`commands.peer_roles`)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from headgate.commands.peer_roles import ClaimedRecord
from headgate.gateway.http.operations import Call, Parameter, operation
from headgate.gateway.roles.routes import membership_told
from headgate.model.errors import BadDefinition, BadRequest
from headgate.model.limits import MAX_NAME_CHARS, MAX_READ_BYTES
from headgate.model.roles import Reference, reference_text
from headgate.node.peers import PeerStatus
from headgate.protocol import peer_messages as pw
from headgate.protocol import role_messages as rw
from headgate.roles.certificates.remote_records import Snapshot, record_of, word_of

_SERVICE: Final = Parameter(
    "service", "The service whose records are meant", {"type": "string", "maxLength": MAX_NAME_CHARS}, required=True
)


@operation("POST", "/v1/roles/validate", errors=(409, 422, 507))
async def validate_role(call: Call, body: pw.ValidateRequest) -> pw.ValidatedAnswer:
    """Is a certificate good? Its records are then followed."""
    watching = call.gateway.record_watching
    held, snapshot = await call.run(watching.validate, call.asker, body.certificate, body.subject)
    service, instance = held[0].place
    roles = [pw.ConfirmedRole(one.role, rw.arguments_told(one.args), reference_text(one.record)) for one in held]
    return pw.ValidatedAnswer(service, instance, roles, *_told(call, snapshot))


@operation("GET", "/v1/roles/records", errors=(422, 507), parameters=(_SERVICE,))
async def role_records(call: Call) -> pw.RecordsAnswer:
    """The states of records that one follows."""
    service = call.request.query_params.get("service", "")
    if not 1 <= len(service) <= MAX_NAME_CHARS:
        raise BadRequest("no service is named", remedy="send `service` in the query")
    snapshot = await call.run(call.gateway.record_watching.read, call.asker, service)
    return pw.RecordsAnswer(service, *_told(call, snapshot))


@operation("POST", "/v1/roles/records", errors=(409, 422, 507), limit=MAX_READ_BYTES)
async def follow_records(call: Call, body: pw.RecordsRequest) -> pw.RecordsAnswer:
    """Go on to follow records."""
    claims = [_claim(one, at) for at, one in enumerate(body.records)]
    snapshot = await call.run(call.gateway.record_watching.rejoin, call.asker, body.service, claims)
    return pw.RecordsAnswer(body.service, *_told(call, snapshot))


@operation("POST", "/v1/roles/unwatch", errors=(409, 422, 507))
async def unfollow_records(call: Call, body: pw.UnwatchRequest) -> None:
    """Follow records no longer."""
    records = [_record(one, at) for at, one in enumerate(body.records)]
    await call.run(call.gateway.record_watching.unwatch, call.asker, body.service, records)


def _claim(body: pw.RecordBody, at: int) -> ClaimedRecord:
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


def _told(call: Call, read: Snapshot) -> tuple[str, int, datetime, float, dict[str, pw.StateWord]]:
    """States, and how far they are true."""
    states = {reference_text(ref): word_of(state) for ref, state in read.states.items()}
    return read.epoch, read.number, read.at, call.gateway.config.roles.heartbeat, states


# -- roles of others ------------------------------------------------------------------------------------------


@operation("POST", "/v1/roles/present", status=201, errors=(409, 422, 507))
async def present_role(call: Call, body: pw.PresentRequest) -> pw.PresentedAnswer:
    """Let roles of another domain count here."""
    name = call.gateway.new_name()
    version, held = await call.gateway.peer_roles.present(call.asker, body.certificate, name)
    return pw.PresentedAnswer(version, [membership_told(one) for one in held])


@operation("GET", "/v1/roles/peers")
async def role_peers(call: Call) -> pw.PeersAnswer:
    """How one stands with services of other domains."""
    return pw.PeersAnswer([_peer(one) for one in await call.gateway.peer_roles.statuses(call.principal)])


def _peer(status: PeerStatus) -> pw.PeerAnswer:
    counts = status.counts
    return pw.PeerAnswer(
        *(status.name, status.service, status.key, status.bound, status.records, status.unknown),
        *(counts.duplicated, counts.lost, counts.late, status.seconds, status.trouble),
    )
