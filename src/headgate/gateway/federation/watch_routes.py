"""What other domains may ask about our roles: is a certificate good, and what are the states of records (OASIS 4.9).

Guarantees: whoever asks has a session, and could see every event that it would be told by (`notices`): else it is told
nothing, whatever becomes of the certificate or the record. What fails is told apart by class. A record is told of to
whoever was shown a certificate of it before, and knows what it is the record of; to others it is false, as if there
were none. What is told is what was announced under a number.
Leaves out: telling of changes (`announcing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headgate.gateway.authority.authority import holder
from headgate.gateway.federation.notices import check_may_follow, declare
from headgate.gateway.http.handlers import gateway_of
from headgate.gateway.http.operations import Operation, Parameter, answer, nothing
from headgate.gateway.http.origin import origin_of
from headgate.gateway.http.sessions import Caller
from headgate.gateway.roles.certificates import Asker, records_of
from headgate.gateway.roles.service import key_of
from headgate.gateway.runtime import Gateway
from headgate.model.changes import Batch, WatchRecords
from headgate.model.conditions import Argument
from headgate.model.errors import BadDefinition, BadRequest, RoleDenied
from headgate.model.limits import MAX_NAME_CHARS, MAX_READ_BYTES
from headgate.model.role_statements import fits
from headgate.model.roles import Membership, Reference, reference_text
from headgate.model.state import State
from headgate.protocol import peer_messages as pw
from headgate.protocol import role_messages as rw
from headgate.roles.certificates.remote_records import Snapshot, record_of, word_of


def _asker(request: Request, caller: Caller) -> Asker:
    gateway = gateway_of(request)
    return Asker(caller.principal, caller.did, origin_of(request, gateway.config.gateway.proxies))


# -- certificates ---------------------------------------------------------------------------------------------


async def validate(request: Request, caller: Caller, body: pw.ValidateRequest) -> Response:
    """Is a certificate of ours good? If so, its records are followed from now on."""
    gateway, asker = gateway_of(request), _asker(request, caller)
    gateway.roles.pace_following(asker)
    return answer(await gateway.run_blocking(_validated, gateway, asker, body))


def _validated(gateway: Gateway, asker: Asker, body: pw.ValidateRequest) -> pw.ValidatedAnswer:
    state, now = gateway.follower.state, gateway.clock()
    if claimed := gateway.roles.certificates.service_of(body.certificate):  # what claims none is refused by its form
        _check_may_follow(gateway, asker, claimed)
    whose = holder(state, body.subject)
    shown = Asker(whose or "", body.subject)
    held = gateway.roles.certificates.memberships(body.certificate, shown, None, state, now)
    if len({one.place for one in held}) != 1:
        raise RoleDenied("the certificate is of several places", failure="misuse", details={"reason": "wrong-place"})
    service, instance = held[0].place
    told = _followed(gateway, asker, service, {one.record: True for one in held})
    return pw.ValidatedAnswer(
        service,
        instance,
        [pw.ConfirmedRole(one.role, rw.arguments_told(one.args), reference_text(one.record)) for one in held],
        told.epoch,
        told.number,
        told.at,
        gateway.config.roles.heartbeat,
        _words(told),
    )


def _followed(gateway: Gateway, asker: Asker, service: str, states: Mapping[Reference, bool | None]) -> Snapshot:
    """Note durably that one follows records, in the ledger first; what is announced of them."""
    _check_may_follow(gateway, asker, service)
    state, now, pair = gateway.follower.state, gateway.clock(), (asker.principal, service)
    known = {one.record for one in state.roles.watches if one.watcher == asker.principal}
    fresh = tuple(ref for ref, truth in states.items() if truth is not False and ref not in known)
    declare(gateway.domain, gateway.follower)
    if fresh:
        note = f"{asker.principal} follows records of {service}"
        gateway.domain.commit(Batch(state.administrator, (WatchRecords(asker.principal, fresh),), note))
        gateway.follower.refresh()
    now_known = records_of(gateway.follower.state)
    current = {ref: False if truth is False else now_known(ref) for ref, truth in states.items()}
    told = gateway.watchers.watch(pair, current, now)
    # What was announced of a record is of no use to whoever takes it for another.
    return replace(told, states={ref: False if states[ref] is False else truth for ref, truth in told.states.items()})


def _check_may_follow(gateway: Gateway, asker: Asker, service: str) -> None:
    state = gateway.follower.state
    pair = asker.principal, service
    check_may_follow(state, pair, gateway.domain.predicates(state), gateway.clock(), asker.origin)


# -- states ---------------------------------------------------------------------------------------------------


async def records(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """The states of all records of a service that one follows."""
    gateway, asker = gateway_of(request), _asker(request, caller)
    service = request.query_params.get("service", "")
    if not 1 <= len(service) <= MAX_NAME_CHARS:
        raise BadRequest("no service is named", remedy="send `service` in the query")
    gateway.roles.pace_following(asker)
    return answer(await gateway.run_blocking(_read, gateway, asker, service))


def _read(gateway: Gateway, asker: Asker, service: str) -> pw.RecordsAnswer:
    _check_may_follow(gateway, asker, service)
    declare(gateway.domain, gateway.follower)  # so that it can subscribe
    return _told(gateway, service, gateway.watchers.read((asker.principal, service), gateway.clock()))


async def rejoin(request: Request, caller: Caller, body: pw.RecordsRequest) -> Response:
    """Go on to follow records that one knows from before."""
    gateway, asker = gateway_of(request), _asker(request, caller)
    gateway.roles.pace_following(asker)
    return answer(await gateway.run_blocking(_rejoined, gateway, asker, body))


def _rejoined(gateway: Gateway, asker: Asker, body: pw.RecordsRequest) -> pw.RecordsAnswer:
    _check_may_follow(gateway, asker, body.service)
    asked = [(_record(one.record, at), _arguments(one, at), one) for at, one in enumerate(body.records)]
    state = gateway.follower.state
    pair = asker.principal, body.service
    shown = gateway.watchers.has_followed(pair, {ref for ref, _, _ in asked})
    shown |= {one.record for one in state.roles.watches if one.watcher == asker.principal}
    by_record: dict[Reference, list[Membership]] = {}
    for one in state.roles.memberships.values():
        if one.service == body.service and one.record in shown:
            by_record.setdefault(one.record, []).append(one)
    known = records_of(state)
    states: dict[Reference, bool | None] = {}
    for ref, args, said in asked:
        fitting = any(_is_that(one, args, said, state) for one in by_record.get(ref, ()))
        states[ref] = known(ref) if fitting and states.get(ref, True) is not False else False
    return _told(gateway, body.service, _followed(gateway, asker, body.service, states))


def _arguments(asked: pw.RecordBody, at: int) -> tuple[Argument, ...]:
    """All arguments of a role: whoever leaves one open is guessing."""
    if any(one is None for one in asked.args):
        raise BadRequest("every argument is wanted here", place=f"record {at + 1}", remedy="leave none open")
    return rw.arguments_of(asked.args)


def _is_that(one: Membership, args: tuple[Argument, ...], asked: pw.RecordBody, state: State) -> bool:
    """Is it the membership that a record was said to be of? After a restore a reference may mean another."""
    return (
        (one.role, one.instance) == (asked.role, asked.instance)
        and fits(one.args, args)
        and key_of(state, one.holder) == asked.subject
    )


async def unwatch(request: Request, caller: Caller, body: pw.UnwatchRequest) -> Response:
    """Follow some records no longer."""
    gateway, asker = gateway_of(request), _asker(request, caller)
    gateway.roles.pace_following(asker)
    await gateway.run_blocking(_unwatched, gateway, asker, body)
    return nothing()


def _unwatched(gateway: Gateway, asker: Asker, body: pw.UnwatchRequest) -> None:
    refs = [_record(one, at) for at, one in enumerate(body.records)]
    gateway.watchers.unwatch((asker.principal, body.service), refs)
    state = gateway.follower.state
    mine = {one.record for one in state.roles.watches if one.watcher == asker.principal}
    gone = tuple(ref for ref in dict.fromkeys(refs) if ref in mine)
    if gone:
        note = f"{asker.principal} follows records of {body.service} no longer"
        gateway.domain.commit(Batch(state.administrator, (WatchRecords(asker.principal, gone, watching=False),), note))


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
