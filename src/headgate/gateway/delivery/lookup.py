"""Looking up and registering at once (OASIS: DBRegister), and keeping events for a subscription made later.

Guarantees: the entries of a look-up are the newest delivery for each key up to the starting points of its version, and
its subscription then gives every change after them: nothing between is lost and nothing comes twice. Deliveries whose
key the principal may not see are all kept. A look-up that is too large leaves nothing behind.
A reservation keeps the log from its making on until it expires; what it names may be narrowed and widened meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headgate.commands.commit import submit
from headgate.commands.delivery.archive import MAX_SLICE_BYTES, Ask
from headgate.commands.delivery.delivery_batch import OutgoingDelivery
from headgate.commands.sessions import Caller
from headgate.commands.subscriptions import ledger_id
from headgate.decide.apply import apply
from headgate.gateway.http.handlers import gateway_of, make_subscription
from headgate.gateway.http.operations import Operation, answer, nothing
from headgate.gateway.http.origin import origin_of
from headgate.gateway.runtime import Gateway
from headgate.model.changes import Batch, Subscribe, Unsubscribe
from headgate.model.errors import BadDefinition, BadRequest, LookupTooLarge, NotFound, TooBusy
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.values import brief
from headgate.node.cursors import Reservation
from headgate.pipeline.log.event_log import EventLog
from headgate.protocol import messages as wire

MAX_LOOKUP_ENTRIES: Final = 10_000
"""Entries of one look-up."""

MAX_LOOKUP_SECONDS: Final = 60.0
"""How long a look-up waits for the pipeline to bring its history."""

MAX_READ: Final = 5_000
"""Deliveries read at a time."""

Entries = dict[object, tuple[tuple[str, str, int], OutgoingDelivery]]
"""The newest delivery of each key, with what makes it the newest."""


class _Entry(msgspec.Struct):
    """What a look-up needs to know of a delivery."""

    time: str
    data: dict[str, Any]


_ENTRIES: Final = msgspec.json.Decoder(_Entry)

# -- looking up -------------------------------------------------------------------------------------------------


async def look_up(request: Request, caller: Caller, body: wire.LookupRequest) -> Response:
    """The current entries of a keyed type, with a subscription to what changes."""
    gateway, id = gateway_of(request), str(request.path_params["id"])
    key = _key(gateway.follower.state, body.type)
    wanted = wire.SubscriptionRequest(body.type, body.where, "start")
    origin = origin_of(request, gateway.config.gateway.proxies)
    subscription, new = await make_subscription(gateway, caller, id, wanted, origin)
    try:
        starts = await _history(gateway, subscription)
        reached = gateway.readers.tail.reached.streams
        through = {s: min(last, starts[s] - 1) if new and s in starts else last for s, last in reached.items()}
        entries = await _entries(gateway, subscription, key, through)
        await gateway.readers.set_places(subscription, {stream: start - 1 for stream, start in starts.items()})
    except BaseException:
        if new:
            undone = Batch(caller.principal, (Unsubscribe(subscription.id),))
            await asyncio.shield(gateway.run_blocking(submit, gateway.domain, gateway.follower, undone))
        raise
    gone = {**gateway.trimmed()}
    for stream, last in (await gateway.run_blocking(gateway.readers.archive.trimmed)).items():
        gone[stream] = max(last, gone.get(stream, 0))
    told = [msgspec.Raw(one.event) for _, one in sorted(entries.values(), key=lambda entry: entry[0])]
    return answer(wire.LookupAnswer(id, told, not any(gone.values())), 201 if new else 200)


def _key(state: State, type_name: str) -> tuple[str, ...]:
    """The key of a type, or of the nearest of its ancestors that has one."""
    state.types[type_name]
    for name in state.types.lineage(type_name):
        if state.types.every[name].key:
            return state.types.every[name].key
    raise BadDefinition(f"the type `{type_name}` has no key", remedy="subscribe to it instead")


async def _history(gateway: Gateway, subscription: Subscription) -> dict[str, int]:
    """Wait until the pipeline has decided everything before a subscription; returns its starting points."""
    starts: dict[str, int] = await gateway.run_blocking(gateway.follower.starts, subscription.first)
    waiting = _Waiting()
    tail = gateway.readers.tail
    tail.watch(waiting, True)
    try:
        async with asyncio.timeout(MAX_LOOKUP_SECONDS):
            while True:
                reached = tail.reached
                if reached.version >= subscription.first and all(
                    reached.streams.get(stream, 0) >= start - 1 for stream, start in starts.items()
                ):
                    return starts
                await waiting.news.wait()
                waiting.news.clear()
    except TimeoutError:
        raise TooBusy("the history is not decided yet", remedy="ask again later") from None
    finally:
        tail.watch(waiting, False)


class _Waiting:
    """Waits for the tail to move."""

    def __init__(self) -> None:
        self.news = asyncio.Event()

    def wake(self, kept: object) -> None:  # noqa: ARG002
        """It has."""
        self.news.set()

    def fall_back(self, at: object) -> None:
        """It has nothing to lose."""


async def _entries(
    gateway: Gateway, subscription: Subscription, key: tuple[str, ...], through: Mapping[str, int]
) -> Entries:
    """The newest delivery of each key, read in bounded slices."""
    entries: Entries = {}
    number = gateway.follower.number(subscription.id)
    not_before = gateway.follower.state.withdrawals.get(subscription.principal, 0)
    trimmed: Mapping[str, int] = await gateway.run_blocking(gateway.readers.archive.trimmed)
    for stream, last in sorted(through.items()):
        ask = Ask(number, stream, trimmed.get(stream, 0), last, not_before)
        while ask.after < last:
            part = await gateway.run_blocking(gateway.readers.archive.read, ask, MAX_READ, MAX_SLICE_BYTES)
            _take_in(entries, part.found, key, last)
            if part.resume is not None:
                ask = replace(ask, resume=part.resume)
            else:
                ask = replace(ask, after=part.at, resume=None)
    return entries


def _take_in(entries: Entries, deliveries: list[OutgoingDelivery], key: tuple[str, ...], last: int) -> None:
    for delivery in deliveries:
        if delivery.seq > last:
            continue
        entry = _ENTRIES.decode(delivery.event)
        values = tuple(entry.data.get(name) for name in key)
        hidden = any(value is None for value in values)
        at: object = (delivery.stream, delivery.seq) if hidden else tuple((type(value), value) for value in values)
        rank = entry.time, delivery.stream, delivery.seq
        if at not in entries or entries[at][0] < rank:
            entries[at] = rank, delivery
        if len(entries) > MAX_LOOKUP_ENTRIES:
            raise LookupTooLarge(
                f"there are more than MAX_LOOKUP_ENTRIES ({MAX_LOOKUP_ENTRIES}) entries",
                remedy="narrow `where`, or subscribe from the start",
            )


# -- reservations -----------------------------------------------------------------------------------------------


async def reserve(request: Request, caller: Caller, body: wire.ReservationRequest) -> Response:
    """Keep what is published from now on for a subscription made later."""
    gateway, id = gateway_of(request), str(request.path_params["id"])
    longest = gateway.config.subscribe.max_reservation
    if body.seconds > longest:
        raise BadRequest(f"`seconds` cannot be `{body.seconds:g}`", remedy=f"at most {longest:g}")
    name = ledger_id(caller.principal, id)
    where = await gateway.reader.condition(caller.principal, body.where)
    state, now = gateway.follower.state, gateway.clock()
    new = Subscription(f"{name}?", caller.principal, body.type, where)
    # Would a subscription like it be accepted?
    await gateway.run_blocking(apply, state, Batch(caller.principal, (Subscribe(new),)))
    cursors = gateway.cursors
    old = {one.id: one for one in await gateway.run_blocking(cursors.reservations, caller.principal, now)}.get(id)
    if old is not None and _kin(state, old.type, body.type):
        streams, since = old.streams, old.since
    else:
        streams = await gateway.run_blocking(_ends, gateway)
        since = gateway.clock()  # after the look at the log, so that all events of later times are kept
    until = now + timedelta(seconds=body.seconds)
    made = Reservation(caller.principal, id, body.type, body.where, streams, since, until)
    await gateway.run_blocking(cursors.reserve, made, now)
    return answer(_reservation(made), 201 if old is None else 200)


def _kin(state: State, old: str, new: str) -> bool:
    """Is one of these types the other, or a subtype of it?"""
    return old in state.types and (state.types.is_a(old, new) or state.types.is_a(new, old))


def _ends(gateway: Gateway) -> dict[str, int]:
    """The last event of each stream."""
    log = EventLog.open(gateway.domain.paths.log, read_only=True)
    try:
        return {stream: tail.last for stream, tail in log.tails().items()}
    finally:
        log.close()


async def reservation(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """One of one's own reservations."""
    gateway, id = gateway_of(request), str(request.path_params["id"])
    found = await gateway.run_blocking(gateway.cursors.reservation, caller.principal, id, gateway.clock())
    return answer(_reservation(found))


async def reservations(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """One's own reservations."""
    gateway = gateway_of(request)
    found = await gateway.run_blocking(gateway.cursors.reservations, caller.principal, gateway.clock())
    return answer(wire.ReservationsAnswer([_reservation(one) for one in found]))


async def release(request: Request, caller: Caller, body: None) -> Response:  # noqa: ARG001
    """End a reservation."""
    gateway, id = gateway_of(request), str(request.path_params["id"])
    if not await gateway.run_blocking(gateway.cursors.release, caller.principal, id):
        raise NotFound(f"no reservation `{brief(id)}`")
    return nothing()


def _reservation(one: Reservation) -> wire.ReservationAnswer:
    return wire.ReservationAnswer(one.id, one.type, one.expires, one.since, one.where)


OPERATIONS: Final = (
    Operation("PUT", "/v1/lookups/{id}", "look-up", "Look up and register at once", look_up, wire.LookupRequest,
              {200: wire.LookupAnswer, 201: wire.LookupAnswer}, (404, 409, 415, 422, 507)),
    Operation("GET", "/v1/reservations", "reservations", "One's reservations", reservations,
              answers={200: wire.ReservationsAnswer}),
    Operation("GET", "/v1/reservations/{id}", "reservation", "One reservation", reservation,
              answers={200: wire.ReservationAnswer}, errors=(404,)),
    Operation("PUT", "/v1/reservations/{id}", "reserve", "Keep what is published from now on", reserve,
              wire.ReservationRequest, {200: wire.ReservationAnswer, 201: wire.ReservationAnswer},
              (404, 415, 422, 507)),
    Operation("DELETE", "/v1/reservations/{id}", "release", "End a reservation", release,
              answers={204: None}, errors=(404, 507)),
)  # fmt: skip
