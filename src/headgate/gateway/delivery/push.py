"""Pushing over a WebSocket: many subscriptions on one connection, each as far ahead as its reader allows.

Guarantees: a reader gets no more than it gave credit for, and without credit nothing is read for it. What waits to be
sent is bounded: one frame, one slice of the store, and `MAX_OUTBOX` short answers. A subscription that is behind does
not hold up the others. A frame that is refused is answered by a problem; one that is malformed too, and after
`MAX_BAD_FRAMES` the connection ends. It ends also with its session, whether its client reads or not
(`gateway.http.send_queue`).
Leaves out: keeping the connection alive, which the server does with pings.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, assert_never

import msgspec
from msgspec import Meta
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from headgate.commands.delivery.delivery_follower import OutgoingDelivery
from headgate.commands.delivery.delivery_reader import Closed, DeliveryGap, Feed, Step
from headgate.gateway.delivery.readers import ReaderConnection
from headgate.gateway.http.handlers import check_place, nothing_kept, own_subscription
from headgate.gateway.http.operations import LARGE, PROTOCOL, authenticated, origin_of
from headgate.gateway.http.send_queue import abort_of, ending_with
from headgate.gateway.runtime import Gateway
from headgate.model.errors import AlreadyExists, BadRequest, HeadgateError, NotFound, TooBusy
from headgate.node.logs import Log, fault
from headgate.pipeline.tracing import span
from headgate.protocol import messages as wire
from headgate.protocol.problems import problem

MAX_EVENTS: Final = 1_000  # deliveries in one frame
MAX_FRAME_BYTES: Final = 256 * 2**10  # bytes of events in one frame; the last one may go past it
MAX_OUTBOX: Final = 100  # answers that wait to be sent before no more frames are read
MAX_AT_WORK: Final = 32  # acknowledgements and publications of one connection that are carried out at a time

MAX_BAD_FRAMES: Final = 10
CODES: Final = {"not-authenticated": 4401, "connect-denied": 4403, "bad-request": 4400}
"""How the connection is closed for an error; for any other, 1013: try again later."""

log = Log("push")


# -- frames ---------------------------------------------------------------------------------------------------

MAX_CREDIT: Final = 1_000_000  # deliveries that may be sent ahead to one reader
MAX_WATCHED: Final = 1_000  # types that one WebSocket watches

Credit: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_CREDIT)]
Ref: TypeAlias = Annotated[str, Meta(max_length=200)] | Annotated[int, Meta(ge=-(2**53), le=2**53)]


class Open(wire.Request, tag_field="op", tag="open"):
    """Push a subscription."""

    subscription: wire.Name
    credit: Credit | None = None


class More(wire.Request, tag_field="op", tag="credit"):
    """Push so many more."""

    subscription: wire.Name
    credit: Credit


class Acknowledge(wire.Request, tag_field="op", tag="ack"):
    """Everything up to these positions has been dealt with."""

    subscription: wire.Name
    positions: Annotated[list[wire.Position], Meta(min_length=1, max_length=wire.MAX_POSITIONS)]


class Close(wire.Request, tag_field="op", tag="close"):
    """Stop pushing a subscription."""

    subscription: wire.Name


class Publish(wire.Request, tag_field="op", tag="publish"):
    """Publish some events."""

    events: msgspec.Raw
    ref: Ref | None = None


class WatchTypes(wire.Request, tag_field="op", tag="watch"):
    """Tell which of these types are wanted."""

    types: Annotated[list[wire.Name], Meta(max_length=MAX_WATCHED)]


class HeartbeatFrame(wire.HeartbeatRequest, tag_field="op", tag="heartbeat"):
    """Promise that no more events from before a time will come."""

    ref: Ref | None = None


Frame: TypeAlias = Open | More | Acknowledge | Close | Publish | HeartbeatFrame | WatchTypes
_DECODER: Final = msgspec.json.Decoder(Frame)


def said(op: str, **members: Any) -> bytes:
    """A frame of the gateway. Members that are None are left out."""
    return msgspec.json.encode({"op": op, **{name: value for name, value in members.items() if value is not None}})


def refused(error: HeadgateError, **about: Any) -> bytes:
    """A refusal as a frame."""
    told = msgspec.to_builtins(problem(error))
    return said("problem", **told, **about)


def events(subscription: bytes, deliveries: Sequence[OutgoingDelivery]) -> str:
    """Deliveries as a frame. The subscription's name comes as JSON."""
    body = b",".join([one.event for one in deliveries])
    return b"".join((b'{"op":"events","subscription":', subscription, b',"events":[', body, b"]}")).decode()


# -- connections ----------------------------------------------------------------------------------------------


async def socket(websocket: WebSocket) -> None:
    """Serve one WebSocket."""
    gateway: Gateway = websocket.app.state.gateway
    try:
        caller = await authenticated(websocket)
        connection = gateway.readers.enter(caller)
    except HeadgateError as error:
        gateway.metrics.denied(error.code)
        await _deny(websocket, error)
        return
    try:
        served = PushSocket(websocket, gateway, connection)
        await ending_with(connection.over, served.run(), abort_of(websocket.scope))
    finally:
        gateway.readers.leave(connection)


async def _deny(websocket: WebSocket, error: HeadgateError) -> None:
    """Refuse a connection before it is made."""
    told = problem(error)
    if "websocket.http.response" in websocket.scope.get("extensions", {}):
        await websocket.send_denial_response(Response(wire.encode(told), told.status, media_type=wire.PROBLEM))
    else:
        await websocket.close(CODES.get(error.code, 1013))


@dataclass(eq=False, slots=True)
class PushedSubscription:
    """A subscription that is being pushed."""

    id: str
    name: bytes
    feed: Feed
    credit: int
    queued: bool = False
    loading: bool = False
    dropped: bool = False


class PushSocket:
    """One WebSocket of a principal."""

    def __init__(self, websocket: WebSocket, gateway: Gateway, connection: ReaderConnection) -> None:
        self._ws = websocket
        self._gateway = gateway
        self._connection = connection
        self._caller = connection.caller
        self._opened: dict[str, PushedSubscription] = {}
        self._ready: deque[PushedSubscription] = deque()
        self._behind: deque[PushedSubscription] = deque()
        self._loaded: tuple[PushedSubscription, Step | HeadgateError] | None = None
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue(MAX_OUTBOX)
        self._signal, self._load = asyncio.Event(), asyncio.Event()
        connection.on_end = self._signal.set
        self._at_work: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._bad = 0

    async def run(self) -> None:
        """Serve until either side ends it."""
        chosen = PROTOCOL if PROTOCOL in self._ws.scope.get("subprotocols", ()) else None
        await self._ws.accept(chosen)
        self._gateway.metrics.sockets.inc()
        parts = [asyncio.create_task(part) for part in (self._receive(), self._send(), self._catch_up())]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                error = part.exception()
                if error is not None and not isinstance(error, WebSocketDisconnect):
                    log.error("socket-failed", **fault(error))
                    with suppress(Exception):
                        await self._ws.close(1011)
        finally:
            self._gateway.metrics.sockets.dec()
            every = [*parts, *self._at_work, *([self._watching] if self._watching else [])]
            for task in every:
                task.cancel()
            await asyncio.gather(*every, return_exceptions=True)
            for one in tuple(self._opened.values()):
                self._drop(one)

    # -- what the client says ---------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            message = await self._ws.receive()
            if message["type"] != "websocket.receive":
                return
            data = message.get("text") or message.get("bytes") or b""
            try:
                self._gateway.sessions.check(self._caller)
                await self._carry_out(self._decoded(data))
            except (msgspec.DecodeError, BadRequest, UnicodeDecodeError, RecursionError) as error:
                await self._malformed(str(error))
            except HeadgateError as error:
                if error.code in CODES:
                    self._connection.end(error)
                else:
                    await self._say(refused(error))

    def _decoded(self, data: str | bytes) -> Frame:
        limit = self._gateway.config.publish.max_body
        if len(data) > limit:
            raise BadRequest(f"the frame is longer than {limit}", remedy="send less at a time")
        frame: Frame = _DECODER.decode(data)
        return frame

    async def _malformed(self, detail: str) -> None:
        self._bad += 1
        error = BadRequest(f"the frame is not as it should be: {detail[:200]}")
        await self._say(refused(error))
        if self._bad >= MAX_BAD_FRAMES:
            self._connection.end(error)

    async def _carry_out(self, frame: Frame) -> None:
        match frame:
            case Open(id, credit):
                opening = self._open(id, credit or self._gateway.config.subscribe.credit)
                await self._answered(opening, subscription=id)
            case More(id, credit):
                await self._answered(self._credit(id, credit), subscription=id)
            case Close(id):
                await self._answered(self._close(id), subscription=id)
            case Acknowledge(id, positions):
                await self._start(self._answered(self._ack(id, positions), subscription=id))
            case Publish(raw, ref):
                await self._start(self._answered(self._publish(raw, ref), ref=ref))
            case HeartbeatFrame(ref=ref):
                await self._start(self._answered(self._heartbeat(frame), ref=ref))
            case WatchTypes(types):
                if self._watching is not None:
                    self._watching.cancel()
                self._watching = asyncio.create_task(self._watch(types))
            case _:
                assert_never(frame)

    async def _answered(self, work: Coroutine[Any, Any, None], **about: Any) -> None:
        """Do something, and say so if it is refused."""
        try:
            await work
        except HeadgateError as error:
            await self._say(refused(error, **about))

    async def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest; wait if there is too much of that."""
        while len(self._at_work) >= MAX_AT_WORK:
            await asyncio.wait(self._at_work, return_when=asyncio.FIRST_COMPLETED)
        self._spawn(work)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._at_work.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        """Something is done; if it failed without an answer, the connection ends, so that nobody waits for one."""
        self._at_work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("socket-failed", **fault(error))
            self._connection.end(TooBusy("the gateway could not carry out a request"))

    async def _open(self, id: str, credit: int) -> None:
        if id in self._opened:
            raise AlreadyExists(f"`{id}` is open on this connection already")
        await self._gateway.catch_up()
        found = await own_subscription(self._gateway, self._caller, id)
        check_place(self._gateway, found, self._ws)
        feed = await self._gateway.readers.open(found)
        opened = PushedSubscription(id, msgspec.json.encode(id), feed, credit)
        self._opened[id] = opened
        feed.on_ready = lambda: self._mark(opened)
        await self._say(said("opened", subscription=id))
        self._mark(opened)

    async def _credit(self, id: str, more: int) -> None:
        opened = self._find(id)
        opened.credit = min(opened.credit + more, MAX_CREDIT)
        self._mark(opened)

    async def _close(self, id: str) -> None:
        self._drop(self._find(id))

    async def _ack(self, id: str, positions: list[str]) -> None:
        found = await own_subscription(self._gateway, self._caller, id)
        count = await self._gateway.readers.ack(found, positions)
        await self._say(said("acked", subscription=id, count=count))

    async def _publish(self, raw: msgspec.Raw, ref: str | int | None) -> None:
        size, paces, principal = len(bytes(raw)), self._gateway.paces, self._caller.principal
        if size > LARGE:
            await paces.wait_for_room(principal)
        try:
            results = await self._published(raw)
        except HeadgateError as error:
            if problem(error).status < 500:  # what the gateway could not do is not held against who asked
                paces.count_refused(principal, size)
            raise
        if nothing_kept(wire.PublishAnswer(results)):
            paces.count_refused(principal, size)
        await self._say(said("published", ref=ref, results=results))

    async def _published(self, raw: msgspec.Raw) -> list[wire.EventResult]:
        try:
            events = msgspec.json.decode(raw, type=list[wire.CloudEvent])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the events are not as they should be: {error}") from None
        await self._gateway.catch_up()
        self._gateway.sessions.check(self._caller)
        origin = origin_of(self._ws, self._gateway.config.gateway.proxies)
        return await self._gateway.publisher.publish_cloudevents(self._caller, events, origin)

    async def _heartbeat(self, frame: HeartbeatFrame) -> None:
        await self._gateway.catch_up()
        self._gateway.sessions.check(self._caller)
        told = await self._gateway.publisher.heartbeat(self._caller, frame)
        await self._say(said("promised", ref=frame.ref, moved=told.moved, horizons=told.horizons))

    async def _watch(self, types: list[str]) -> None:
        async for name, wanted in self._gateway.quench.watch(self._caller.principal, types):
            await self._say(said("quench", type=name, wanted=wanted))

    def _find(self, id: str) -> PushedSubscription:
        if id not in self._opened:
            raise NotFound(f"`{id}` is not open on this connection", remedy="open it first")
        return self._opened[id]

    def _drop(self, opened: PushedSubscription) -> None:
        opened.dropped = True
        self._opened.pop(opened.id, None)
        self._gateway.readers.close(opened.feed)

    # -- what the gateway says --------------------------------------------------------------------------------

    async def _say(self, frame: bytes) -> None:
        """Send an answer, in its turn."""
        await self._outbox.put(frame)
        self._signal.set()

    def _mark(self, opened: PushedSubscription) -> None:
        """There may be something to push."""
        if not (opened.queued or opened.loading or opened.dropped) and opened.credit > 0:
            opened.queued = True
            self._ready.append(opened)
            self._signal.set()

    async def _send(self) -> None:
        """Everything that is sent is sent here."""
        over = self._connection.over
        while not over.is_set():
            await self._signal.wait()
            self._signal.clear()
            while not over.is_set() and (self._loaded or self._ready or not self._outbox.empty()):
                await self._send_next()
        why = self._connection.why
        assert why is not None
        await self._ws.close(CODES.get(why.code, 1013), why.code)

    async def _send_next(self) -> None:
        """The answers that wait, then what one subscription has."""
        while not self._outbox.empty():
            await self._ws.send_text(self._outbox.get_nowait().decode())
        if self._loaded is not None:
            (opened, step), self._loaded = self._loaded, None
            opened.loading = False
            self._load.set()
            await self._push(opened, step)
        if self._ready:
            opened = self._ready.popleft()
            opened.queued = False
            await self._serve(opened)

    async def _serve(self, opened: PushedSubscription) -> None:
        if opened.dropped or opened.credit <= 0:
            return
        step = opened.feed.take(min(opened.credit, MAX_EVENTS), MAX_FRAME_BYTES)
        if step is None:
            opened.loading = True
            self._behind.append(opened)
            self._load.set()
        else:
            await self._push(opened, step)

    async def _push(self, opened: PushedSubscription, step: Step | HeadgateError) -> None:
        """Send what a feed gave."""
        if opened.dropped:
            return
        match step:
            case DeliveryGap(places, detail):
                await self._ws.send_text(said("gap", subscription=opened.id, detail=detail).decode())
                self._spawn(self._pass_over(opened, places))
            case Closed(code):
                self._drop(opened)
                await self._ws.send_text(said("closed", subscription=opened.id, code=code).decode())
            case HeadgateError():
                self._drop(opened)
                told = problem(step)
                frame = said("closed", subscription=opened.id, code=told.code, detail=told.detail)
                await self._ws.send_text(frame.decode())
            case []:
                return
            case _:
                opened.credit -= len(step)
                with span("push", deliveries=len(step)):
                    await self._ws.send_text(events(opened.name, step))
                self._gateway.metrics.delivered.add(len(step))
                if opened.feed.current and not opened.feed.ending:
                    return
        self._mark(opened)

    async def _pass_over(self, opened: PushedSubscription, places: Any) -> None:
        """The reader was told of a gap; it is not told again."""
        with suppress(HeadgateError):
            await self._gateway.readers.set_places(opened.feed.subscription, places)

    async def _catch_up(self) -> None:
        """Read the store for subscriptions that are behind, one slice at a time, in turn."""
        while True:
            while not self._behind or self._loaded is not None:
                self._load.clear()
                await self._load.wait()
            opened = self._behind.popleft()
            if opened.dropped:
                continue
            step: Step | HeadgateError
            try:
                step = await opened.feed.load(min(opened.credit, MAX_EVENTS), MAX_FRAME_BYTES)
            except HeadgateError as error:
                step = error
            if step == []:
                opened.loading = False
                self._mark(opened)
            else:
                self._loaded = opened, step
                self._signal.set()
