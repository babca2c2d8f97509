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

from headgate.commands.commit import submit
from headgate.commands.delivery.delivery_batch import OutgoingDelivery
from headgate.commands.delivery.delivery_reader import MAX_SLICE_BYTES, Ask
from headgate.commands.subscriptions import ledger_id
from headgate.decide.apply import apply
from headgate.gateway.http.handlers import make_subscription
from headgate.gateway.http.operations import Call, Operation
from headgate.gateway.runtime import Gateway
from headgate.model.changes import Batch, Subscribe, Unsubscribe
from headgate.model.errors import BadDefinition, BadRequest, LookupTooLarge, NotFound, TooBusy
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.values import brief
from headgate.node.cursors import Reservation
from headgate.pipeline.log.event_log import EventLog
from headgate.protocol import messages as wire

MAX_LOOKUP_ENTRIES: Final = 10_000  # entries of one look-up
MAX_LOOKUP_SECONDS: Final = 60.0  # how long a look-up waits for the pipeline to bring its history
MAX_READ: Final = 5_000  # deliveries read at a time

Entries = dict[object, tuple[tuple[str, str, int], OutgoingDelivery]]
"""The newest delivery of each key, with what makes it the newest."""


class _Entry(msgspec.Struct):
    """What a look-up needs to know of a delivery."""

    time: str
    data: dict[str, Any]


_ENTRIES: Final = msgspec.json.Decoder(_Entry)

# -- looking up -------------------------------------------------------------------------------------------------


@Operation("PUT", "/v1/lookups/{id}", errors=(404, 409, 422, 507))
async def look_up(call: Call, body: wire.LookupRequest) -> tuple[wire.LookupAnswer, bool]:
    """Look up and register at once."""
    gateway, id = call.gateway, call.named("id")
    key = _key(gateway.follower.state, body.type)
    subscription, new = await make_subscription(call, id, wire.SubscriptionRequest(body.type, body.where, "start"))
    try:
        starts = await _history(gateway, subscription)
        reached = gateway.readers.tail.reached.streams
        through = {s: min(last, starts[s] - 1) if new and s in starts else last for s, last in reached.items()}
        entries = await _entries(gateway, subscription, key, through)
        await gateway.readers.set_places(subscription, {stream: start - 1 for stream, start in starts.items()})
    except BaseException:
        if new:
            undone = Batch(call.principal, (Unsubscribe(subscription.id),))
            await asyncio.shield(call.run(submit, gateway.domain, gateway.follower, undone))
        raise
    trimmed = *gateway.follower.trimmed().values(), *(await call.run(gateway.readers.archive.trimmed)).values()
    told = [msgspec.Raw(one.event) for _, one in sorted(entries.values(), key=lambda entry: entry[0])]
    return wire.LookupAnswer(id, told, not any(trimmed)), new


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


@Operation("PUT", "/v1/reservations/{id}", errors=(404, 422, 507))
async def reserve(call: Call, body: wire.ReservationRequest) -> tuple[wire.ReservationAnswer, bool]:
    """Keep what is published from now on."""
    gateway, principal, id = call.gateway, call.principal, call.named("id")
    longest = gateway.config.subscribe.max_reservation
    if body.seconds > longest:
        raise BadRequest(f"`seconds` cannot be `{body.seconds:g}`", remedy=f"at most {longest:g}")
    name = ledger_id(principal, id)
    where = await gateway.reader.condition(principal, body.where)
    state, now = gateway.follower.state, gateway.clock()
    # Would a subscription like it be accepted?
    new = Subscription(f"{name}?", principal, body.type, where)
    await call.run(apply, state, Batch(principal, (Subscribe(new),)))
    old = {one.id: one for one in await call.run(gateway.cursors.reservations, principal, now)}.get(id)
    if old is not None and _kin(state, old.type, body.type):
        streams, since = old.streams, old.since
    else:
        streams = await call.run(_ends, gateway)
        since = gateway.clock()  # after the look at the log, so that all events of later times are kept
    until = now + timedelta(seconds=body.seconds)
    made = Reservation(principal, id, body.type, body.where, streams, since, until)
    await call.run(gateway.cursors.reserve, made, now)
    return _reservation(made), old is None


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


@Operation("GET", "/v1/reservations")
async def reservations(call: Call) -> wire.ReservationsAnswer:
    """One's reservations."""
    mine = await call.run(call.gateway.cursors.reservations, call.principal, call.gateway.clock())
    return wire.ReservationsAnswer([_reservation(one) for one in mine])


@Operation("GET", "/v1/reservations/{id}", errors=(404,))
async def reservation(call: Call) -> wire.ReservationAnswer:
    """One reservation."""
    asked = call.principal, call.named("id"), call.gateway.clock()
    return _reservation(await call.run(call.gateway.cursors.reservation, *asked))


@Operation("DELETE", "/v1/reservations/{id}", errors=(404, 507))
async def release(call: Call) -> None:
    """End a reservation."""
    id = call.named("id")
    if not await call.run(call.gateway.cursors.release, call.principal, id):
        raise NotFound(f"no reservation `{brief(id)}`")


def _reservation(one: Reservation) -> wire.ReservationAnswer:
    return wire.ReservationAnswer(one.id, one.type, one.expires, one.since, one.where)
