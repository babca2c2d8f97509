"""What other domains may ask about our roles over HTTP: whoever asks has a session (`commands.peer_roles`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headgate.commands.peer_roles import ClaimedRecord
from headgate.commands.sessions import Caller
from headgate.gateway.http.handlers import asker_of, gateway_of
from headgate.gateway.http.operations import Operation, Parameter, answer, nothing
from headgate.gateway.runtime import Gateway
from headgate.model.errors import BadDefinition, BadRequest
from headgate.model.limits import MAX_NAME_CHARS, MAX_READ_BYTES
from headgate.model.roles import Reference, reference_text
from headgate.protocol import peer_messages as pw
from headgate.protocol import role_messages as rw
from headgate.roles.certificates.remote_records import Snapshot, record_of, word_of


async def validate(request: Request, caller: Caller, body: pw.ValidateRequest) -> Response:
    """Is a certificate of ours good? If so, its records are followed from now on."""
    gateway = gateway_of(request)
    held, snapshot = await gateway.run_blocking(
        gateway.record_watching.validate, asker_of(request, caller), body.certificate, body.subject
    )
    service, instance = held[0].place
    return answer(
        pw.ValidatedAnswer(
            service,
            instance,
            [pw.ConfirmedRole(one.role, rw.arguments_told(one.args), reference_text(one.record)) for one in held],
            snapshot.epoch,
            snapshot.number,
            snapshot.at,
            gateway.config.roles.heartbeat,
            _words(snapshot),
        )
    )


async def records(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """The states of all records of a service that one follows."""
    gateway, service = gateway_of(request), request.query_params.get("service", "")
    if not 1 <= len(service) <= MAX_NAME_CHARS:
        raise BadRequest("no service is named", remedy="send `service` in the query")
    told = await gateway.run_blocking(gateway.record_watching.read, asker_of(request, caller), service)
    return answer(_told(gateway, service, told))


async def rejoin(request: Request, caller: Caller, body: pw.RecordsRequest) -> Response:
    """Go on to follow records that one knows from before."""
    gateway, asker = gateway_of(request), asker_of(request, caller)
    claims = [_claim(one, at) for at, one in enumerate(body.records)]
    told = await gateway.run_blocking(gateway.record_watching.rejoin, asker, body.service, claims)
    return answer(_told(gateway, body.service, told))


def _claim(body: pw.RecordBody, at: int) -> ClaimedRecord:
    """A record with all arguments of its role: whoever leaves one open is guessing."""
    record = _record(body.record, at)
    if any(one is None for one in body.args):
        raise BadRequest("every argument is wanted here", place=f"record {at + 1}", remedy="leave none open")
    return ClaimedRecord(record, body.role, body.instance, rw.arguments_of(body.args), body.subject)


async def unwatch(request: Request, caller: Caller, body: pw.UnwatchRequest) -> Response:
    """Follow some records no longer."""
    gateway, asker = gateway_of(request), asker_of(request, caller)
    records = [_record(one, at) for at, one in enumerate(body.records)]
    await gateway.run_blocking(gateway.record_watching.unwatch, asker, body.service, records)
    return nothing()


def _record(text: str, at: int) -> Reference:
    try:
        return record_of(text)
    except BadDefinition as error:
        raise BadRequest(error.message, place=f"record {at + 1}", remedy=error.remedy) from None


def _told(gateway: Gateway, service: str, read: Snapshot) -> pw.RecordsAnswer:
    beat = gateway.config.roles.heartbeat
    return pw.RecordsAnswer(service, read.epoch, read.number, read.at, beat, _words(read))


def _words(read: Snapshot) -> dict[str, pw.StateWord]:
    return {reference_text(ref): word_of(state) for ref, state in read.states.items()}


_SERVICE: Final = Parameter(
    "service", "The service whose records are meant", {"type": "string", "maxLength": MAX_NAME_CHARS}, required=True
)
_CHANGING: Final = (409, 415, 422, 507)
OPERATIONS: Final[Sequence[Operation]] = (
    Operation("POST", "/v1/roles/validate", "validate-role", "Is a certificate good? Its records are then followed",
              validate, pw.ValidateRequest, {200: pw.ValidatedAnswer}, _CHANGING),
    Operation("GET", "/v1/roles/records", "role-records", "The states of records that one follows", records,
              answers={200: pw.RecordsAnswer}, errors=(422, 507), parameters=(_SERVICE,)),
    Operation("POST", "/v1/roles/records", "follow-records", "Go on to follow records", rejoin,
              pw.RecordsRequest, {200: pw.RecordsAnswer}, _CHANGING, limit=MAX_READ_BYTES),
    Operation("POST", "/v1/roles/unwatch", "unfollow-records", "Follow records no longer", unwatch,
              pw.UnwatchRequest, {204: None}, _CHANGING),
)  # fmt: skip
