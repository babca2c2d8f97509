"""The end of the delivery store, followed by one thread of a gateway for all its readers.

Guarantees: new deliveries are read and decoded once, whoever waits for them, and exactly the feeds that have something
are woken. What is kept in memory is bounded by `MAX_TAIL_BYTES`; whoever is further behind reads the store. A portion
holds everything that the pipeline decided for live subscriptions between two places of every stream, so that a feed
which has read up to the first place and then the portion has no gap.
Leaves out: history, which comes to earlier places of the store (`delivery_reader`).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from headgate.commands.delivery.delivery_batch import KnownLedger, Portion, portion_of
from headgate.model.errors import HeadgateError
from headgate.node.logs import Log, fault
from headgate.pipeline.deliveries import DeliveryBlob, DeliveryStore
from headgate.trust.positions import Positions

MAX_TAIL_BYTES: Final = 64 * 2**20  # decoded deliveries kept for readers who are a little behind
MAX_PORTIONS: Final = 2_000  # portions kept, however small
MAX_FETCH_BYTES: Final = 8 * 2**20  # deliveries fetched at a time

POLL_SECONDS: Final = 0.015
RETRY_SECONDS: Final = 1.0  # how long the thread rests after the store could not be read

log = Log("tail")


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

    def __init__(self, path: Path, known: KnownLedger, positions: Positions, max_bytes: int = MAX_TAIL_BYTES) -> None:
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
