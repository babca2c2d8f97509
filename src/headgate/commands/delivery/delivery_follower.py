"""The end of the delivery store, followed by one thread of a gateway for all its readers.

Guarantees: new deliveries are read and decoded once, whoever waits for them, and exactly the feeds that have something
are woken. What is kept in memory is bounded by `MAX_TAIL_BYTES`; whoever is further behind reads the store. A portion
holds everything that the pipeline decided for live subscriptions between two places of every stream, so that a feed
which has read up to the first place and then the portion has no gap. Deliveries are CloudEvents in JSON, decoded in
columns; what is the same for all readers of a view is encoded once, and only if somebody reads it; a reader adds its
position. The `data` has every attribute that the type had at the event's version, nulls included.
Leaves out: history, which comes to earlier places of the store (`delivery_reader`).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model.errors import HeadgateError
from headgate.model.values import Kind
from headgate.node.domain import Follower
from headgate.node.logs import Log, fault
from headgate.pipeline.deliveries import DeliveryBlob, DeliveryStore
from headgate.pipeline.log.codec import AttributeSlot, from_blob
from headgate.trust.positions import Positions

MAX_TAIL_BYTES: Final = 64 * 2**20  # decoded deliveries kept for readers who are a little behind
MAX_PORTIONS: Final = 2_000  # portions kept, however small
MAX_FETCH_BYTES: Final = 8 * 2**20  # deliveries fetched at a time

POLL_SECONDS: Final = 0.015
RETRY_SECONDS: Final = 1.0  # how long the thread rests after the store could not be read

log = Log("tail")


# -- portions -----------------------------------------------------------------------------------------------------

Ints = npt.NDArray[np.int64]
Layouts = Mapping[str, Mapping[str, AttributeSlot]]

DELIVERY_BYTES: Final = 200  # what a delivery counts for beside its view: its entries in the index and its position

_OPEN, _SHUT = b',"hgposition":"', b'"}'
_JSON = msgspec.json.Encoder()


def portion_of(
    blobs: Sequence[DeliveryBlob], known: Follower, positions: Positions, only: int | None = None
) -> Portion:
    """Blobs as a portion, with the newest of their types known; of one subscription if `only` says so."""
    if max((b.version for b in blobs), default=0) > known.state.version:
        known.refresh()
    numbers = {b.stream: known.stream_number(b.stream) for b in blobs}
    return Portion(blobs, known.places, numbers, positions, only)


class OutgoingDelivery(NamedTuple):
    """One event as one reader gets it: the CloudEvent with its position, and its place."""

    event: bytes
    position: str
    stream: str
    seq: int
    version: int


class Portion:
    """Some blobs of deliveries, with an index from subscriptions to their events."""

    def __init__(
        self,
        blobs: Sequence[DeliveryBlob],
        layouts: Layouts,
        numbers: Mapping[str, int],
        positions: Positions,
        only: int | None = None,
    ) -> None:
        self._layouts = layouts
        self._positions = positions
        self.names = sorted({b.stream for b in blobs})
        self._stream_numbers = np.array([numbers[name] for name in self.names], np.int64)
        tables = [from_blob(b.blob) for b in blobs if b.blob is not None]
        self._table = pa.concat_tables(tables, promote_options="default").combine_chunks() if tables else None
        sizes = [t.num_rows for t in tables]
        self.versions = np.repeat(np.array([b.version for b in blobs if b.blob is not None], np.int64), sizes)
        places = {name: at for at, name in enumerate(self.names)}
        streams = np.repeat(np.array([places[b.stream] for b in blobs if b.blob is not None], np.int64), sizes)
        self._fragments: list[bytes | None] = [None] * int(sum(sizes))
        self._index(streams, only)
        self.bytes = (self._table.nbytes if self._table is not None else 0) * 2 + len(self) * DELIVERY_BYTES

    def _index(self, streams: Ints, only: int | None) -> None:
        """Order the deliveries, or those of one subscription, by subscription, stream and sequence number."""
        if self._table is None:
            owners, seqs, rows = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        else:
            lists = _whole(self._table.column("subscriptions"))
            owners = lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
            rows = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy(zero_copy_only=False))
            if only is not None:
                mine = owners == only
                owners, rows = owners[mine], rows[mine]
            seqs = _whole(self._table.column("seq")).to_numpy(zero_copy_only=False)[rows]
        order = np.lexsort((seqs, streams[rows], owners))
        self._owners, self._rows, self._seqs = owners[order], rows[order], seqs[order]
        self._streams = streams[self._rows]
        self.numbers, starts = np.unique(self._owners, return_index=True)
        ends = np.append(starts, len(self._owners))[1:]
        self.slices: dict[int, tuple[int, int]] = dict(
            zip(self.numbers.tolist(), zip(starts.tolist(), ends.tolist(), strict=True), strict=True)
        )
        self._texts: list[str | None] = [None] * len(self._owners)
        # Read one by one, lists are several times faster than arrays.
        self.rows, self.seqs, self.streams = self._rows.tolist(), self._seqs.tolist(), self._streams.tolist()
        self._row_versions = self.versions.tolist()

    def __len__(self) -> int:
        return len(self._owners)

    def prepare(self, wanted: Iterable[int]) -> None:
        """Encode and seal everything for some subscriptions, all at once."""
        found = [self.slices[number] for number in wanted if number in self.slices]
        if found:
            self._make(np.concatenate([np.arange(*one) for one in found]))

    def _make(self, at: Ints) -> None:
        rows = np.unique(self._rows[at])
        missing = rows[[self._fragments[row] is None for row in rows.tolist()]]
        if len(missing) and self._table is not None:
            self._encode(missing)
        streams = self._stream_numbers[self._streams[at]]
        for index, text in zip(
            at.tolist(), self._positions.seal(self._owners[at], streams, self._seqs[at]), strict=True
        ):
            self._texts[index] = text

    def read(
        self, number: int, after: Mapping[str, int], *, not_before: int = 0, limit: int, room: int
    ) -> tuple[list[OutgoingDelivery], bool]:
        """What a subscription has here past some places, at most so many and about so many bytes; is that all?

        Events of versions before `not_before` are passed over.
        """
        if number not in self.slices:
            return [], True
        begin, end = self.slices[number]
        floors = [after.get(name, 0) for name in self.names]
        deliveries: list[OutgoingDelivery] = []
        for at in range(begin, end):
            row, seq, stream = self.rows[at], self.seqs[at], self.streams[at]
            if seq <= floors[stream] or self._row_versions[row] < not_before:
                continue
            if len(deliveries) == limit or room <= 0:
                return deliveries, False
            if self._texts[at] is None:
                self._make(np.arange(at, min(end, at + limit)))
            fragment, text = self._fragments[row], self._texts[at]
            assert fragment is not None
            assert text is not None
            event = b"".join((fragment, _OPEN, text.encode(), _SHUT))
            room -= len(event)
            deliveries.append(OutgoingDelivery(event, text, self.names[stream], seq, self._row_versions[row]))
        return deliveries, True

    # -- encoding ---------------------------------------------------------------------------------------------

    def _encode(self, rows: Ints) -> None:
        """Encode some rows, those of one type and one set of attributes together."""
        assert self._table is not None
        table = self._table.take(pa.array(rows))
        types = np.array(table.column("type").to_pylist(), object)
        versions = self.versions[rows]
        heads = [table.column(name).to_pylist() for name in ("id", "source", "type", "publisher")]
        times = _times(_whole(table.column("time")))
        for type_name in dict.fromkeys(types.tolist()):
            mine = np.flatnonzero(types == type_name)
            for which, layout in _by_version(self._layouts[type_name], versions[mine]):
                at = mine[which]
                columns = [_column(table, place, at) for place in layout.values()]
                data: Iterator[tuple[Any, ...]] = zip(*columns, strict=True) if columns else iter([()] * len(at))
                for index, values in zip(at.tolist(), data, strict=True):
                    id, source, _, publisher = (head[index] for head in heads)
                    event = {
                        "specversion": "1.0",
                        "id": id,
                        "source": source or publisher,
                        "type": type_name,
                        "time": times[index],
                        "data": dict(zip(layout, values, strict=True)),
                        "hgpublisher": publisher,
                    }
                    self._fragments[int(rows[index])] = _JSON.encode(event)[:-1]


def _by_version(
    layout: Mapping[str, AttributeSlot], versions: Ints
) -> Iterator[tuple[Ints, Mapping[str, AttributeSlot]]]:
    """The rows that have the same attributes, and these."""
    gained = sorted({place.since for place in layout.values()} - {0})
    era = np.searchsorted(np.array(gained, np.int64), versions, "right")
    for number in np.unique(era).tolist():
        since = gained[number - 1] if number else 0
        yield np.flatnonzero(era == number), {name: p for name, p in layout.items() if p.since <= since}


def _column(table: pa.Table, attribute: AttributeSlot, at: Ints) -> list[Any]:
    """One attribute of some rows, as JSON has it."""
    if attribute.slot.column not in table.column_names:
        return [None] * len(at)
    column = _whole(table.column(attribute.slot.column).take(pa.array(at)))
    match attribute.kind:
        case Kind.TIMESTAMP:
            return [None if text is None else text.replace(".000000Z", "Z") for text in _times(column)]
        case Kind.BOOL:
            return [None if value is None else bool(value) for value in column.to_pylist()]
        case Kind.BYTES:
            return [None if value is None else value.hex() for value in column.to_pylist()]
        case _:
            return list(column.to_pylist())


def _times(column: pa.Array) -> list[str | None]:
    """Microseconds as RFC 3339, all of the same length, so that their order is that of time."""
    filled = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype("datetime64[us]")
    texts = [f"{text}Z" for text in np.datetime_as_string(filled).tolist()]
    if not column.null_count:
        return list(texts)
    return [text if there else None for text, there in zip(texts, column.is_valid().to_pylist(), strict=True)]


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    if isinstance(column, pa.Array):
        return column
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


# -- following ----------------------------------------------------------------------------------------------------


class Listener(Protocol):
    """Somebody who waits for deliveries."""

    def fall_back(self, at: Mapping[str, int]) -> None:
        """What comes after these places may not have passed through memory. Called in the event loop."""

    def wake(self, portion: KeptBatch | None) -> None:
        """There may be something: in this portion, or in general. Called in the event loop."""


@dataclass(slots=True, eq=False)
class KeptBatch:
    """A portion, the places before it, and its own number."""

    serial: int
    before: Mapping[str, int]
    portion: Portion


@dataclass(frozen=True, slots=True)
class FollowedTo:
    """How far deliveries were taken in: decided through which version, and which event of each stream.

    It is not `whole` if some were gone before they could be.
    """

    version: int = 0
    streams: Mapping[str, int] = field(default_factory=dict)
    whole: bool = True


class DeliveryFollower:
    """Follows the deliveries of a domain. It begins at the present."""

    def __init__(self, path: Path, known: Follower, positions: Positions, max_bytes: int = MAX_TAIL_BYTES) -> None:
        self._path = path
        self._known = known
        self._positions = positions
        self._max_bytes = max_bytes
        self._store: DeliveryStore | None = None
        self._seen: int | None = None
        self._fetched = FollowedTo()  # the thread's own; what the event loop knows comes after
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.reached = FollowedTo()
        self._kept: deque[KeptBatch] = deque()
        self._bytes = 0
        self._serial = 0
        self._listeners: dict[int, set[Listener]] = {}
        self._restless: set[Listener] = set()

    # -- the thread -------------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to follow, on a thread of its own."""
        self.open()

        def hand_over(reached: FollowedTo, portion: Portion | None) -> None:
            loop.call_soon_threadsafe(self.take, reached, portion)

        self._thread = threading.Thread(target=self._follow, args=(hand_over,), name="tail", daemon=True)
        self._thread.start()

    def open(self) -> None:
        """Open the store, and begin where it ends now."""
        self._store = DeliveryStore.open(self._path, read_only=True)
        self._seen = self._store.changed()
        now = self._store.reached()
        self._fetched = self.reached = FollowedTo(now.version, now.streams)

    def stop(self) -> None:
        """Stop following."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._store is not None:
            self._store.close()

    def _follow(self, hand_over: Callable[[FollowedTo, Portion | None], None]) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                for reached, portion in self.poll():
                    hand_over(reached, portion)
            except (HeadgateError, sqlite3.Error, ValueError, KeyError) as error:
                log.warning("deliveries-not-read", **fault(error))
                self._seen = None
                self._stopping.wait(RETRY_SECONDS)
            except RuntimeError:  # the event loop is gone
                return

    def poll(self) -> Iterator[tuple[FollowedTo, Portion | None]]:
        """What is new in the store, in bounded portions."""
        assert self._store is not None
        seen = self._store.changed()
        if seen == self._seen:
            return
        more = True
        while more and not self._stopping.is_set():
            version = self._store.reached().version  # before the deliveries, so that they are at least as far
            new = self._store.after(self._fetched.streams, MAX_FETCH_BYTES)
            streams = {s: max(last, self._fetched.streams.get(s, 0)) for s, last in new.positions.items()}
            reached = FollowedTo(
                max(version, self._fetched.version) if not new.more else self._fetched.version, streams
            )
            portion = self._decode(new.blobs) if new.blobs else None
            if any(last > self._fetched.streams.get(s, 0) for s, last in self._store.trimmed().items()):
                portion = None  # retention was here first
                reached = FollowedTo(reached.version, reached.streams, whole=False)
            self._fetched, more = reached, new.more
            yield reached, portion
        self._seen = seen

    def _decode(self, blobs: tuple[DeliveryBlob, ...]) -> Portion:
        portion = portion_of(blobs, self._known, self._positions)
        portion.prepare(tuple(self._listeners))
        return portion

    # -- the event loop ---------------------------------------------------------------------------------------

    def take(self, reached: FollowedTo, portion: Portion | None) -> None:
        """Keep what is new, and wake those it is for."""
        before, self.reached = self.reached.streams, reached
        if not reached.whole:
            self._kept.clear()
            self._bytes = 0
            for listener in self.listeners():
                listener.fall_back(before)
                listener.wake(None)
        if portion is not None and len(portion):
            self._serial += 1
            kept = KeptBatch(self._serial, before, portion)
            self._kept.append(kept)
            self._bytes += portion.bytes
            while len(self._kept) > 1 and (self._bytes > self._max_bytes or len(self._kept) > MAX_PORTIONS):
                self._bytes -= self._kept.popleft().portion.bytes
            for number in self._listeners.keys() & portion.slices.keys():
                for listener in tuple(self._listeners[number]):
                    listener.wake(kept)
        for listener in tuple(self._restless):
            listener.wake(None)

    def listen(self, number: int, listener: Listener) -> None:
        """Wake somebody whenever there is something for a subscription."""
        self._listeners.setdefault(number, set()).add(listener)

    def forget(self, number: int, listener: Listener) -> None:
        """Wake somebody no more."""
        self._restless.discard(listener)
        held = self._listeners.get(number)
        if held is not None:
            held.discard(listener)
            if not held:
                del self._listeners[number]

    def watch(self, listener: Listener, on: bool) -> None:
        """Wake somebody whenever anything moves, or no more."""
        if on:
            self._restless.add(listener)
        else:
            self._restless.discard(listener)

    def listeners(self) -> list[Listener]:
        """Everybody who waits."""
        return [one for held in self._listeners.values() for one in held]

    def covers(self, at: Mapping[str, int]) -> bool:
        """Is everything past these places, as far as was reached, in memory?"""
        base = self._kept[0].before if self._kept else self.reached.streams
        return all(at.get(stream, 0) >= last for stream, last in base.items())

    def since(self, serial: int) -> Iterator[KeptBatch]:
        """The portions in memory from a number on."""
        if self._kept and serial > self._kept[0].serial:
            # Numbers have no gaps, so the place of one in the queue is known.
            for at in range(serial - self._kept[0].serial, len(self._kept)):
                yield self._kept[at]
        else:
            yield from tuple(self._kept)
