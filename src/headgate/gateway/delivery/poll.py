"""Reading a subscription with plain requests: long-poll, server-sent events, acknowledging, and looking up.

Guarantees: a request gives what comes after the acknowledged places, or after positions that it names; asking again
without acknowledging gives the same again. An answer, and a stream of server-sent events, ends with its session,
whether its client reads or not (`gateway.http.send_queue`). Nothing is read for a client that has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from typing import Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from headgate.commands.commit import submit
from headgate.commands.delivery.delivery_follower import OutgoingDelivery
from headgate.commands.delivery.delivery_reader import MAX_SLICE_BYTES, Closed, DeliveryGap, Feed, Step
from headgate.commands.delivery.lookup import Lookup, key_of
from headgate.commands.delivery.reservations import Reservations
from headgate.commands.subscriptions import ledger_id
from headgate.gateway.delivery.readers import ReaderConnection
from headgate.gateway.http.handlers import check_place, make_subscription, own_subscription
from headgate.gateway.http.operations import Call, Operation, Parameter
from headgate.gateway.http.send_queue import Streamed, first_of, side_by_side
from headgate.gateway.runtime import Gateway
from headgate.model.changes import Batch, Unsubscribe
from headgate.model.errors import BadRequest, NotFound
from headgate.model.rights import Detection, Subscription
from headgate.model.types import SIGNAL
from headgate.model.values import brief
from headgate.node.cursors import Reservation
from headgate.protocol import messages as wire

MAX_POLL: Final = 10_000  # deliveries in one answer
MAX_POLL_BYTES: Final = 4 * 2**20  # bytes of events in one answer; the last one may go past it

MAX_AFTER: Final = 1_000
"""Positions that a request names to read on after: one a stream is enough, and more do not fit its head."""

MAX_STREAMED: Final = 500  # deliveries of a stream of events written at a time
ALIVE_SECONDS: Final = 15.0  # how often a stream of events says that it is alive

T = TypeVar("T")


_PARAMETERS: Final = (
    Parameter("wait", "Seconds to wait for the first delivery", {"type": "number", "minimum": 0, "maximum": 86_400}),
    Parameter("limit", "The most deliveries", {"type": "integer", "minimum": 1, "maximum": MAX_POLL}),
    Parameter(
        "after",
        "Positions to read on after",
        {"type": "array", "items": {"type": "string"}, "maxItems": MAX_AFTER},
    ),
    Parameter("Last-Event-ID", "A position to read on after", place="header"),
)


@Operation(
    "GET",
    "/v1/subscriptions/{id}/events",
    answers={200: wire.EventsAnswer},
    errors=(404, 422, 507),
    streams=wire.EVENT_STREAM,
    parameters=_PARAMETERS,
)
async def events(call: Call) -> Response:
    """Deliveries: long-poll, or server-sent events with `Accept: text/event-stream`."""
    gateway, request = call.gateway, call.request
    subscription = await own_subscription(gateway, call.caller, call.named("id"))
    check_place(gateway, subscription, request)
    after = request.query_params.getlist("after")
    if len(after) > MAX_AFTER:
        raise BadRequest(f"more than {MAX_AFTER} positions in `after`", remedy="name the last of each stream")
    reader = gateway.readers.enter(call.caller)
    try:
        if wire.EVENT_STREAM in request.headers.get("accept", ""):
            last = request.headers.get("last-event-id")
            feed = await gateway.readers.open(subscription, [*after, *([last] if last else [])])
            return _stream(gateway, reader, feed)
        limit = int(_number(request, "limit", gateway.config.subscribe.credit, 1, MAX_POLL))
        wait = min(_number(request, "wait", 0.0, 0.0, 86_400.0), gateway.config.subscribe.wait)
        feed = await gateway.readers.open(subscription, after)
        try:
            given, gap, closed = await _until_gone(request, reader, _gather(gateway, feed, limit, wait))
        finally:
            gateway.readers.close(feed, gone=False)
        gateway.metrics.delivered.add(len(given))
        said = _answer(given, gap, closed)
        left = partial(gateway.readers.leave, reader)
        return Streamed(_once(said), reader.over, media=wire.JSON, size=len(said), left=left)
    except BaseException:
        gateway.readers.leave(reader)
        raise


async def _once(said: bytes) -> AsyncIterator[bytes]:
    yield said


def _answer(given: list[OutgoingDelivery], gap: DeliveryGap | None, closed: Closed | None) -> bytes:
    """A `wire.EventsAnswer`, of events that are JSON already."""
    rest = (
        wire.encode({"gap": gap.detail} if gap else {})[1:-1],
        wire.encode({"closed": closed.code} if closed else {})[1:-1],
    )
    said = b"".join(b"," + one for one in rest if one)
    return b'{"events":[' + b",".join([one.event for one in given]) + b"]" + said + b"}"


async def _gather(
    gateway: Gateway, feed: Feed, limit: int, wait: float
) -> tuple[list[OutgoingDelivery], DeliveryGap | None, Closed | None]:
    """As much as there is, up to the limit, waiting for the first of it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    given: list[OutgoingDelivery] = []
    gap: DeliveryGap | None = None
    room = MAX_POLL_BYTES
    while len(given) < limit and room > 0:
        left = 0.0 if given or gap else max(0.0, deadline - loop.time())
        step = await feed.next(limit - len(given), left, room=min(room, MAX_SLICE_BYTES))
        match step:
            case DeliveryGap():
                gap = step
                await gateway.readers.set_places(feed.subscription, step.places)
            case Closed():
                return given, gap, step
            case [] if feed.searching and not (given or gap):
                continue  # the next request would begin anew, and come no further
            case []:
                break
            case _:
                given += step
                room -= sum(len(one.event) for one in step)
    return given, gap, None


async def _until_gone(request: Request, reader: ReaderConnection, work: Awaitable[T]) -> T:
    """Wait for work, but no longer than the client, its session and the gateway last."""
    async with side_by_side(work, _gone(request), reader.over.wait()) as tasks:
        await first_of(tasks)
        working: asyncio.Future[T] = tasks[0]
        if working.done():
            return working.result()
        raise reader.why or ClientDisconnect()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _stream(gateway: Gateway, reader: ReaderConnection, feed: Feed) -> Streamed:
    """Deliveries as server-sent events, until the client, its session or the subscription ends."""

    def left() -> None:
        gateway.readers.close(feed)
        gateway.readers.leave(reader)

    return Streamed(_written(gateway, feed, reader.over), reader.over, media=wire.EVENT_STREAM, left=left)


async def _written(gateway: Gateway, feed: Feed, ended: asyncio.Event) -> AsyncIterator[bytes]:
    yield b": open\n\n"
    step: Step = []
    while not isinstance(step, Closed):
        async with side_by_side(feed.next(MAX_STREAMED, ALIVE_SECONDS), ended.wait()) as (found, over):
            await first_of((found, over))
            if over.done():
                return
            step = found.result()
        yield await _lines(gateway, feed, step)


async def _lines(gateway: Gateway, feed: Feed, step: Step) -> bytes:
    match step:
        case DeliveryGap(places, detail):
            await gateway.readers.set_places(feed.subscription, places)
            return b"event: gap\ndata: " + wire.encode({"detail": detail}) + b"\n\n"
        case Closed(code):
            return b"event: closed\ndata: " + wire.encode({"code": code}) + b"\n\n"
        case []:
            return b": alive\n\n"
        case _:
            gateway.metrics.delivered.add(len(step))
            return b"".join(b"".join((b"id: ", one.position.encode(), b"\ndata: ", one.event, b"\n\n")) for one in step)


@Operation("POST", "/v1/subscriptions/{id}/ack", errors=(404, 422, 507))
async def ack(call: Call, body: wire.AckRequest) -> wire.AckAnswer:
    """Acknowledge deliveries."""
    subscription = await own_subscription(call.gateway, call.caller, call.named("id"))
    return wire.AckAnswer(await call.gateway.readers.ack(subscription, body.positions))


def _number(request: Request, name: str, otherwise: float, least: float, most: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return min(max(otherwise, least), most)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise BadRequest(f"`{name}` cannot be `{brief(text)}`", remedy=f"it goes from {least:g} to {most:g}")
    return value


# -- looking up, and reservations -----------------------------------------------------------------------------


@Operation("PUT", "/v1/lookups/{id}", errors=(404, 409, 422, 507))
async def look_up(call: Call, body: wire.LookupRequest) -> tuple[wire.LookupAnswer, bool]:
    """Look up and register at once.

    A look-up that is refused leaves nothing behind.
    """
    gateway, readers, id = call.gateway, call.gateway.readers, call.named("id")
    lookup = Lookup(gateway.follower, readers.tail, readers.archive, call.run)
    key = key_of(gateway.follower.state, body.type)
    subscription, is_new = await make_subscription(call, id, wire.SubscriptionRequest(body.type, body.where, "start"))
    try:
        entries, starts = await lookup.entries(subscription, key, is_new=is_new)
        await readers.set_places(subscription, {stream: start - 1 for stream, start in starts.items()})
    except BaseException:
        if is_new:
            undone = Batch(call.principal, (Unsubscribe(subscription.id),))
            await asyncio.shield(call.run(submit, gateway.domain, gateway.follower, undone))
        raise
    told = [msgspec.Raw(one.event) for one in entries]
    return wire.LookupAnswer(id, told, await lookup.is_complete()), is_new


@Operation("PUT", "/v1/reservations/{id}", errors=(404, 422, 507))
async def reserve(call: Call, body: wire.ReservationRequest) -> tuple[wire.ReservationAnswer, bool]:
    """Keep what is published from now on."""
    gateway, principal, id = call.gateway, call.principal, call.named("id")
    longest = gateway.config.subscribe.max_reservation
    if body.seconds > longest:
        raise BadRequest(f"`seconds` cannot be `{body.seconds:g}`", remedy=f"at most {longest:g}")
    if (body.type is None) == (body.expression is None) or (body.type is None and body.where is not None):
        raise BadRequest("a reservation is for a `type`, with `where` if need be, or for an `expression`")
    name = f"{ledger_id(principal, id)}?"  # which no subscription has
    if body.type is not None:
        text = body.where
        wanted = Subscription(name, principal, body.type, await gateway.reader.condition(principal, body.where))
    else:
        text = body.expression or ""
        detection = Detection(text, await gateway.reader.composite(principal, text))
        wanted = Subscription(name, principal, SIGNAL, detection=detection)
    kept = _reserving(call)
    made, is_new = await call.run(kept.reserve, id, wanted, text, body.seconds)
    return await call.run(_reservation, kept, made), is_new


@Operation("GET", "/v1/reservations")
async def reservations(call: Call) -> wire.ReservationsAnswer:
    """One's reservations."""
    mine = await call.run(call.gateway.cursors.reservations, call.principal, call.gateway.clock())
    kept = _reserving(call)
    return wire.ReservationsAnswer([await call.run(_reservation, kept, one) for one in mine])


@Operation("GET", "/v1/reservations/{id}", errors=(404,))
async def reservation(call: Call) -> wire.ReservationAnswer:
    """One reservation."""
    asked = call.principal, call.named("id"), call.gateway.clock()
    return await call.run(_reservation, _reserving(call), await call.run(call.gateway.cursors.reservation, *asked))


@Operation("DELETE", "/v1/reservations/{id}", errors=(404, 507))
async def release(call: Call) -> None:
    """End a reservation."""
    id = call.named("id")
    if not await call.run(call.gateway.cursors.release, call.principal, id):
        raise NotFound(f"no reservation `{brief(id)}`")


def _reserving(call: Call) -> Reservations:
    return Reservations(call.gateway.ledger, call.gateway.cursors, call.gateway.clock)


def _reservation(kept: Reservations, one: Reservation) -> wire.ReservationAnswer:
    whole = kept.is_whole(one)
    if one.type == SIGNAL:
        return wire.ReservationAnswer(one.id, one.expires, one.since, whole, expression=one.where)
    return wire.ReservationAnswer(one.id, one.expires, one.since, whole, one.type, one.where)
