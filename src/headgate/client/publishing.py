"""Publishing: one event, many, an Arrow table, or a stream of them gathered into batches.

Guarantees: every event has an id before it is first sent, and is sent again with the same one until it is answered; the
gateway stores it once. Events are stored in the order in which they were given. A request that is too large for the
gateway is sent in halves. Values that JSON would garble are refused here: NaN and infinities, times without a zone.
Leaves out: checking against the type and the publisher's rights, which is the gateway's part.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

import msgspec

from headgate.client.errors import ClientClosed, EventsRefused, refusal, unexpected
from headgate.client.session import ClientSession
from headgate.model.errors import BadDefinition, HeadgateError, TooLarge, TypeMismatch
from headgate.model.values import brief, render_timestamp
from headgate.protocol import messages as wire

if TYPE_CHECKING:
    import pyarrow as pa

BATCH: Final = 1_000  # events of one request, where nothing else is asked for
MAX_BATCH: Final = 10_000
MAX_BATCH_BYTES: Final = 4 * 2**20  # bytes of one request, unless a single event is larger
MAX_KEPT_REFUSALS: Final = 1_000  # refusals that a batch keeps; it counts them all
WAITING_BATCHES: Final = 4  # how many batches of events may wait to be sent before `add` waits too
_STEP: Final = 0.005  # seconds between two looks at whether a batch is full

Item: TypeAlias = "tuple[str, Mapping[str, Any]] | Mapping[str, Any]"
"""A type with its data, or a mapping with `type`, `data` and perhaps `id`, `source`, `requires` and `time`."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one event. `refusal` is there where it was refused."""

    id: str
    status: Literal["accepted", "duplicate", "refused"]
    refusal: HeadgateError | None = None

    @property
    def stored(self) -> bool:
        """Is the event in the log, by this request or an earlier one?"""
        return self.refusal is None


@dataclass(frozen=True, slots=True)
class Bulk:
    """What became of a table: counts, and every row that was refused."""

    accepted: int = 0
    duplicates: int = 0
    refusals: Mapping[int, HeadgateError] | None = None

    @property
    def refused(self) -> Mapping[int, HeadgateError]:
        """The refused rows."""
        return self.refusals or {}

    def followed_by(self, rest: Bulk, at: int) -> Bulk:
        """With the rows that come after these, the first of them at a row."""
        moved = {row + at: error for row, error in rest.refused.items()}
        return Bulk(self.accepted + rest.accepted, self.duplicates + rest.duplicates, {**self.refused, **moved})


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """An event on its way."""

    id: str
    body: bytes


def encode(
    type: str,
    data: Mapping[str, Any],
    id: str | None,
    source: str,
    requires: str | None = None,
    time: datetime | str | None = None,
) -> EncodedEvent:
    """An event as it is sent, with an id if it has none."""
    chosen = str(uuid.uuid4()) if id is None else id
    if not isinstance(data, Mapping):
        raise TypeMismatch(f"`{brief(data)}` is no mapping of attributes to values", remedy="give each value its name")
    event: dict[str, object] = {
        "specversion": "1.0",
        "id": chosen,
        "source": source,
        "type": type,
        "datacontenttype": wire.JSON,
        "data": {name: _value(name, value) for name, value in data.items()},
    }
    if requires is not None:
        event["requires"] = requires
    if time is not None:
        event["time"] = time if isinstance(time, str) else _value("time", time)
    try:
        return EncodedEvent(chosen, msgspec.json.encode(event))
    except UnicodeEncodeError:
        raise TypeMismatch("a text has half a character in it", remedy="send Unicode without lone surrogates") from None


def encode_item(item: Item, source: str) -> EncodedEvent:
    """An event of `publish_many`."""
    if isinstance(item, Mapping):
        unknown = item.keys() - {"type", "data", "id", "source", "requires", "time"}
        if unknown or "type" not in item or "data" not in item:
            remedy = "give `type`, `data`, `id`, `source`, `requires`, `time`"
            raise BadDefinition(f"`{brief(dict(item))}` is not an event", remedy=remedy)
        given = item.get("source") or source
        return encode(item["type"], item["data"], item.get("id"), given, item.get("requires"), item.get("time"))
    type, data = item
    return encode(type, data, None, source)


def _value(name: str, value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            raise TypeMismatch(f"attribute `{brief(name)}`: `{value}` is not a finite number", remedy="leave it out")
        case datetime() if value.tzinfo is None:
            raise TypeMismatch(f"attribute `{brief(name)}`: the time has no zone", remedy="give it one")
        case datetime():
            return render_timestamp(value)
        case bytes():
            return value.hex()
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise TypeMismatch(f"attribute `{brief(name)}`: `{brief(value)}` is no value of an event")


# -- requests -------------------------------------------------------------------------------------------------


async def send_one(session: ClientSession, event: EncodedEvent) -> Result:
    """Publish one event; a refusal is raised."""
    told = await session.ask(wire.EventResult, "POST", "/v1/events", content=event.body, content_type=wire.EVENT_JSON)
    return Result(told.id, told.status)


async def send_many(session: ClientSession, events: Sequence[EncodedEvent]) -> list[Result]:
    """Publish a batch, in halves if it is too large."""
    body = b"[" + b",".join(one.body for one in events) + b"]"
    try:
        reply = await session.ask(wire.PublishAnswer, "POST", "/v1/events", content=body, content_type=wire.BATCH_JSON)
    except TooLarge:
        if len(events) == 1:
            raise
        half = len(events) // 2
        return await send_many(session, events[:half]) + await send_many(session, events[half:])
    if len(reply.results) != len(events):
        raise unexpected("the gateway", f"{len(reply.results)} results for {len(events)} events")
    return [_result(one) for one in reply.results]


def _result(told: wire.EventResult | wire.RowResult) -> Result:
    error = refusal({"code": told.code, "detail": told.detail, "remedy": told.remedy})
    return Result(told.id, told.status, error if told.status == "refused" else None)


def chunks(events: Iterable[EncodedEvent], size: int = BATCH) -> Iterator[list[EncodedEvent]]:
    """Events in requests of a good size."""
    chunk: list[EncodedEvent] = []
    weight = 0
    for event in events:
        if chunk and (len(chunk) >= size or weight + len(event.body) > MAX_BATCH_BYTES):
            yield chunk
            chunk, weight = [], 0
        chunk.append(event)
        weight += len(event.body)
    if chunk:
        yield chunk


async def send_table(
    session: ClientSession, type: str, table: pa.Table, source: str, requires: str | None = None
) -> Bulk:
    """Publish the rows of a table. Without a column `id` each row gets one."""
    import pyarrow as pa

    if "id" not in table.column_names:
        run = uuid.uuid4()
        ids = pa.array([f"{run}:{row}" for row in range(table.num_rows)], pa.string())
        table = table.append_column("id", ids)
    if "source" not in table.column_names:
        table = table.append_column("source", pa.repeat(source, table.num_rows))
    if requires is not None:
        if "requires" in table.column_names:
            raise BadDefinition("the table has a column `requires` already", remedy="name an attribute `data.requires`")
        table = table.append_column("requires", pa.repeat(requires, table.num_rows))
    total, at = Bulk(), 0
    for piece in _pieces(table):
        total = total.followed_by(await _send_piece(session, type, piece), at)
        at += piece.num_rows
    return total


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    rows = min(MAX_BATCH, max(1, table.num_rows * MAX_BATCH_BYTES // max(table.nbytes, 1)))
    for at in range(0, table.num_rows, rows):
        yield table.slice(at, rows)


async def _send_piece(session: ClientSession, type: str, table: pa.Table) -> Bulk:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    try:
        reply = await session.ask(
            wire.BulkAnswer, "POST", "/v1/events", content=body, content_type=wire.ARROW, params={"type": type}
        )
    except TooLarge:
        if table.num_rows <= 1:
            raise
        half = table.num_rows // 2
        first = await _send_piece(session, type, table.slice(0, half))
        return first.followed_by(await _send_piece(session, type, table.slice(half)), half)
    found = {one.row: _result(one).refusal for one in reply.results if one.status == "refused"}
    return Bulk(reply.accepted, reply.duplicates, {row: error for row, error in found.items() if error is not None})


# -- gathering ------------------------------------------------------------------------------------------------


class Publisher:
    """Gathers events and publishes them in batches, in order, while more are added.

    `accepted`, `duplicates` and `refused` count; `refusals` keeps the first. Leaving the context sends the rest and
    raises `EventsRefused` if any was refused and no `on_refused` was given to hear of them.
    """

    def __init__(
        self,
        session: ClientSession,
        source: str,
        size: int = BATCH,
        linger: float = 0.05,
        on_refused: Callable[[Result], None] | None = None,
    ) -> None:
        if not 1 <= size <= MAX_BATCH:
            raise BadDefinition(f"a batch cannot have `{size}` events", remedy=f"1 to {MAX_BATCH}")
        self.accepted = 0
        self.duplicates = 0
        self.refused = 0
        self.refusals: list[HeadgateError] = []
        self._session = session
        self._source = source
        self._size = size
        self._linger = linger
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[EncodedEvent] = deque()
        self._sending = 0
        self._woken = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._error: HeadgateError | None = None
        self._hurry = False
        self._task = asyncio.create_task(self._work())

    # -- adding -----------------------------------------------------------------------------------------------

    async def add(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        id: str | None = None,
        source: str | None = None,
        requires: str | None = None,
        time: datetime | str | None = None,
    ) -> str:
        """Publish an event soon; waits only while too many wait already. Returns its id."""
        event = self.put(type, data, id, source, requires, time)
        await self.room()
        return event

    def put(
        self,
        type: str,
        data: Mapping[str, Any],
        id: str | None,
        source: str | None,
        requires: str | None = None,
        time: datetime | str | None = None,
    ) -> str:
        """The same without waiting, from any thread."""
        self._check()
        event = encode(type, data, id, source or self._source, requires, time)
        self._waiting.append(event)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._news.set)
        return event.id

    @property
    def is_full(self) -> bool:
        """Do too many events wait?"""
        return len(self._waiting) >= WAITING_BATCHES * self._size

    async def room(self) -> None:
        """Wait until there is room for more."""
        while self.is_full:
            self._check()
            self._room.clear()
            await self._room.wait()

    async def flush(self) -> None:
        """Wait until everything that was added has been answered."""
        while self._waiting or self._sending:
            self._check()
            self._hurry = True
            self._news.set()
            self._room.clear()
            await self._room.wait()
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # -- sending ----------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            async for batch in self._batches():
                for chunk in chunks(batch, self._size):
                    for one in await send_many(self._session, chunk):
                        self._count(one)
                self._sending = 0
                self._room.set()
        except HeadgateError as error:
            self._error = error
            raise
        except BaseException:
            self._error = ClientClosed("the batch is closed", remedy="open another")
            raise
        finally:
            self._room.set()

    async def _batches(self) -> AsyncIterator[list[EncodedEvent]]:
        while True:
            if not self._waiting:
                self._hurry = False
                self._news.clear()
                self._woken = False
                if not self._waiting:  # one may have come in between, from another thread
                    await self._news.wait()
            await self._gather()
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._size))]
            self._sending = len(batch)
            self._room.set()
            if batch:
                yield batch

    async def _gather(self) -> None:
        """Wait a little for a full batch."""
        until = self._loop.time() + self._linger
        while len(self._waiting) < self._size and not self._hurry and self._loop.time() < until:
            await asyncio.sleep(min(_STEP, self._linger))

    def _count(self, result: Result) -> None:
        if result.refusal is None:
            self.accepted += result.status == "accepted"
            self.duplicates += result.status == "duplicate"
            return
        self.refused += 1
        if len(self.refusals) < MAX_KEPT_REFUSALS:
            self.refusals.append(result.refusal)
        if self._on_refused is not None:
            self._on_refused(result)

    # -- the end ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send the rest; raise if any was refused and nobody was told."""
        try:
            await self.flush()
        finally:
            await self.stop()
        if self.refused and self._on_refused is None:
            raise EventsRefused(self.refused, self.refusals)

    async def stop(self) -> None:
        """Send nothing more."""
        self._task.cancel()
        with suppress(asyncio.CancelledError, HeadgateError):
            await self._task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        # After an error in between, what was added before it is still sent, but nothing is raised over it.
        if error is None:
            await self.close()
            return
        with suppress(HeadgateError):
            await self.flush()
        await self.stop()
