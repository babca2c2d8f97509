"""The end of the delivery store, followed by one thread of a gateway for all its readers.

Guarantees: new deliveries are read and decoded once, whoever waits for them, and exactly the feeds that have something
are woken. What is kept in memory is bounded by `MAX_TAIL_BYTES`; whoever is further behind reads the store. A portion
holds everything that the pipeline decided for live subscriptions between two places of every stream, so that a feed
which has read up to the first place and then the portion has no gap. What is the same for all readers of a view is
encoded once (`encoding`), and only if somebody reads it; a reader adds its position. The store of signals is followed
in the same way.
Leaves out: history, which comes to earlier places of the store (`delivery_reader`).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.commands.delivery.encoding import Encode, Ints, event_fragments, signal_fragments, whole
from headgate.model.errors import HeadgateError
from headgate.node.domain import Follower
from headgate.node.logs import Log, fault
from headgate.pipeline import SIGNALS
from headgate.pipeline.deliveries import DeliveryBlob, DeliveryStore
from headgate.pipeline.log.codec import from_blob
from headgate.trust.positions import Positions

MAX_TAIL_BYTES: Final = 64 * 2**20  # decoded deliveries kept for readers who are a little behind
MAX_PORTIONS: Final = 2_000  # portions kept, however small
MAX_FETCH_BYTES: Final = 8 * 2**20  # deliveries fetched at a time

POLL_SECONDS: Final = 0.015
RETRY_SECONDS: Final = 1.0  # how long the thread rests after the store could not be read

log = Log("tail")


# -- portions -----------------------------------------------------------------------------------------------------

DELIVERY_BYTES: Final = 200  # what a delivery counts for beside its view: its entries in the index and its position

_OPEN, _SHUT = b',"hgposition":"', b'"}'


def portion_of(
    blobs: Sequence[DeliveryBlob], known: Follower, positions: Positions, only: int | None = None
) -> Portion:
    """Blobs as a portion, with the newest of their types known; of one subscription if `only` says so."""
    if max((b.version for b in blobs), default=0) > known.state.version:
        known.refresh()
    numbers = {b.stream: known.stream_number(b.stream) for b in blobs}
    encode: Encode = partial(event_fragments, known.places)
    if SIGNALS in numbers:
        encode = partial(signal_fragments, known, positions)
    return Portion(blobs, encode, numbers, positions, only)


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
        encode: Encode,
        numbers: Mapping[str, int],
        positions: Positions,
        only: int | None = None,
    ) -> None:
        self._encode = encode
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
            lists = whole(self._table.column("subscriptions"))
            owners = lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
            rows = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy(zero_copy_only=False))
            if only is not None:
                mine = owners == only
                owners, rows = owners[mine], rows[mine]
            seqs = whole(self._table.column("seq")).to_numpy(zero_copy_only=False)[rows]
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
            made = self._encode(self._table.take(pa.array(missing)), self.versions[missing])
            for row, fragment in zip(missing.tolist(), made, strict=True):
                self._fragments[row] = fragment
        streams = self._stream_numbers[self._streams[at]]
        for index, text in zip(
            at.tolist(), self._positions.seal(self._owners[at], streams, self._seqs[at]), strict=True
        ):
            self._texts[index] = text

    def read(
        self,
        number: int,
        after: Mapping[str, int],
        *,
        not_before: int = 0,
        limit: int,
        room: int,
        more: bytes = b"",
    ) -> tuple[list[OutgoingDelivery], bool]:
        """What a subscription has here past some places, at most so many and about so many bytes; is that all?

        Events of versions before `not_before` are passed over. `more` members of JSON are added to each.
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
            event = b"".join((fragment, more, _OPEN, text.encode(), _SHUT))
            room -= len(event)
            deliveries.append(OutgoingDelivery(event, text, self.names[stream], seq, self._row_versions[row]))
        return deliveries, True


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

    It is not `whole` if some were gone before they could be. Signals have a stream of their own; how far the `log` was
    looked at for them is said beside it.
    """

    version: int = 0
    streams: Mapping[str, int] = field(default_factory=dict)
    whole: bool = True
    looked_at: Mapping[str, int] | None = None

    @property
    def log(self) -> Mapping[str, int]:
        """The last event of each stream of the log that was decided."""
        return self.streams if self.looked_at is None else self.looked_at


class DeliveryFollower:
    """Follows the deliveries of a domain, or the one `stream` that a store is for. It begins at the present."""

    def __init__(
        self,
        path: Path,
        known: Follower,
        positions: Positions,
        max_bytes: int = MAX_TAIL_BYTES,
        *,
        stream: str | None = None,
    ) -> None:
        self._path = path
        self._stream = stream
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
        self._fetched = self.reached = self._followed(now.version, now.streams, now.streams)

    def _followed(self, version: int, streams: Mapping[str, int], log: Mapping[str, int]) -> FollowedTo:
        """How far that is; of one stream, if no other is read."""
        if self._stream is None:
            return FollowedTo(version, streams)
        return FollowedTo(version, {self._stream: streams.get(self._stream, 0)}, looked_at=log)

    def stop(self) -> None:
        """Stop following."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._store is not None:
            self._store.close()

    def _follow(self, hand_over: Callable[[FollowedTo, Portion | None], None]) -> None:
        while not self._stopping.is_set():
            time.sleep(POLL_SECONDS)  # half the work of waiting for an event that comes once
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
            before = self._store.reached()  # and then the deliveries, so that they are at least as far
            new = self._store.after(self._fetched.streams, MAX_FETCH_BYTES)
            streams = {s: max(last, self._fetched.streams.get(s, 0)) for s, last in new.positions.items()}
            if new.more:
                reached = self._followed(self._fetched.version, streams, self._fetched.log)
            else:
                reached = self._followed(max(before.version, self._fetched.version), streams, before.streams)
            portion = self._decode(new.blobs) if new.blobs else None
            if any(last > self._fetched.streams.get(s, 0) for s, last in self._store.trimmed().items()):
                portion = None  # retention was here first
                reached = replace(reached, whole=False)
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
