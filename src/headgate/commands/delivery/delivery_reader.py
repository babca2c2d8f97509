"""What one reader of a subscription gets: its deliveries in order, from the store or from memory.

Guarantees (D12): in each stream, everything that the pipeline decided for the subscription past the reader's place, in
order, with no gap and no duplicate; where retention took something first, a `DeliveryGap` says so once. Nothing is read
before the pipeline has passed the version that made the subscription, as its history may not be whole until then. What
was withdrawn from the principal is passed over. After the subscription has ended, what was decided before still comes,
then `Closed` (D13). Signals of a detection are read in the same way, out of a store of their own: from what was
acknowledged on, or from the first that is there. A feed that is behind holds nothing but its places, and reads the
store in bounded slices on another thread: a slice decodes at most MAX_BLOBS blobs and looks at no more than the store
allows in a call, whoever's deliveries lie between; where retention has taken what was asked for, it says so instead of
passing it over.
Leaves out: acknowledging (`cursors`), and sending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from pathlib import Path
from queue import Empty, LifoQueue
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from headgate.commands.delivery import delivery_follower as following
from headgate.commands.subscriptions import local_id
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.node.domain import Follower
from headgate.pipeline.deliveries import DeliveryStore
from headgate.trust.positions import Positions

ENDED: Final = "subscription-ended"
Run: TypeAlias = Callable[..., Awaitable[Any]]
"""Does work on files in another thread."""

MAX_BLOBS: Final = 8  # blobs that one slice decodes
MAX_SLICE_BYTES: Final = 256 * 2**10  # bytes of events handed out at a time; the last one may go past it


# -- the store --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """A slice of the store: what one subscription has in `(after, through]` of a stream."""

    number: int
    stream: str
    after: int
    through: int
    not_before: int = 0
    resume: tuple[int, int] | None = None
    more: bytes = b""


@dataclass(frozen=True, slots=True)
class Slice:
    """What was found, the place now reached, and where to look on if the search is not over."""

    found: list[following.OutgoingDelivery] = field(default_factory=list)
    at: int = 0
    resume: tuple[int, int] | None = None
    gap: bool = False


class Archive:
    """Reads the delivery store for feeds that are behind. May be used from any thread."""

    def __init__(self, path: Path, known: Follower, positions: Positions) -> None:
        self._path = path
        self._known = known
        self._positions = positions
        self._idle: LifoQueue[DeliveryStore] = LifoQueue()

    def close(self) -> None:
        """Let go of the file."""
        while True:
            try:
                self._idle.get_nowait().close()
            except Empty:
                return

    def read(self, ask: Ask, limit: int, room: int) -> Slice:
        """One slice, of bounded work."""
        store = self._borrow()
        try:
            page = store.for_subscription(ask.number, ask.stream, ask.after, ask.through, MAX_BLOBS, resume=ask.resume)
            # Asked last: what was there when it was looked for may be gone by now, never the other way round.
            trimmed = store.trimmed().get(ask.stream, 0)
        finally:
            self._idle.put(store)
        looked = max(ask.after, ask.resume[0] - 1) if ask.resume is not None else ask.after
        if trimmed > looked:
            return Slice(at=trimmed, gap=True)
        portion = following.portion_of(page.blobs, self._known, self._positions, ask.number)
        deliveries, whole = portion.read(
            ask.number, {ask.stream: ask.after}, not_before=ask.not_before, limit=limit, room=room, more=ask.more
        )
        if not whole:
            return Slice(deliveries, deliveries[-1].seq)
        if page.resume is None:
            return Slice(deliveries, ask.through)
        return Slice(deliveries, deliveries[-1].seq if deliveries else ask.after, page.resume)

    def trimmed(self) -> dict[str, int]:
        """The event of each stream through which deliveries are gone."""
        store = self._borrow()
        try:
            return store.trimmed()
        finally:
            self._idle.put(store)

    def _borrow(self) -> DeliveryStore:
        """A connection for this thread; there are never more than threads."""
        try:
            return self._idle.get_nowait()
        except Empty:
            return DeliveryStore.open(self._path, read_only=True)


# -- a reader ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeliveryGap:
    """Retention took what the reader had not acknowledged. Reading goes on after these places."""

    places: Mapping[str, int]
    detail: str = "retention has removed deliveries that were not acknowledged in time"


@dataclass(frozen=True, slots=True)
class Closed:
    """The subscription has ended, and all of it has been read."""

    code: str = ENDED


Step: TypeAlias = list[following.OutgoingDelivery] | DeliveryGap | Closed


@dataclass(eq=False)
class Feed:
    """One reader's place in a subscription: after what was acknowledged, or later places that the reader names."""

    subscription: Subscription
    number: int
    acked: InitVar[Mapping[str, int]]
    _: KW_ONLY
    tail: following.DeliveryFollower
    archive: Archive
    known: Follower
    run: Run
    after: InitVar[Mapping[str, int]] = MappingProxyType({})

    def __post_init__(self, acked: Mapping[str, int], after: Mapping[str, int]) -> None:
        self.on_ready: Callable[[], None] | None = None
        self._news = asyncio.Event()
        self._at: Mapping[str, int] = {s: max(acked.get(s, 0), after.get(s, 0)) for s in {*acked, *after}}
        self._ahead: dict[str, int] = {}
        self._current = False  # nothing that was reached is unread; `_at` then means nothing
        self._from = 0
        self._starts: dict[str, int] = {}
        self._search: Ask | None = None
        self._settled: following.FollowedTo | None = None
        self._given: dict[str, int] = {}
        self._acked: dict[str, int] = dict(acked)
        self._skips = self._at != self._acked
        self._state: State | None = None
        self._not_before = 0
        self._ends_at: int | None = None
        self._ends: Mapping[str, int] | None = None
        # Signals come to no earlier place of their stream, history or not, and all of a number are of one detection.
        self._detects = self.subscription.detection is not None
        self._reads_back = self.subscription.history and not self._detects
        self._more = _source(self.subscription) if self._detects else b""
        self.tail.listen(self.number, self)

    def close(self) -> None:
        """Wait for nothing any more."""
        self.tail.forget(self.number, self)

    def wake(self, kept: following.KeptBatch | None) -> None:
        """There may be something new."""
        if kept is not None and self._current:
            self._from = kept.serial
            self.fall_back(kept.before)
        self._news.set()
        if self.on_ready is not None:
            self.on_ready()

    def fall_back(self, at: Mapping[str, int]) -> None:
        """What comes after these places is still to be read."""
        if self._current:
            self._current = False
            self._at = at
            if self._ahead:
                self._at = {s: max(self._ahead.get(s, 0), at.get(s, 0)) for s in {*self._ahead, *at}}

    def notice(self, state: State) -> None:
        """Wake up if the subscription has ended."""
        now = state.subscriptions.get(self.subscription.id)
        if now is None or now.first != self.subscription.first:
            self.wake(None)

    @property
    def current(self) -> bool:
        """Has everything been read that there is?"""
        return self._current

    @property
    def searching(self) -> bool:
        """Is there something in the store that has not been looked at?"""
        if self._current or self.tail.reached.version < self.subscription.first:
            return False
        return self._search is not None or bool(self._behind())

    @property
    def ending(self) -> bool:
        """Has the subscription ended, so that `Closed` is still to come?"""
        return self._ends_at is not None

    # -- reading ----------------------------------------------------------------------------------------------

    async def next(self, limit: int, timeout: float | None = None, room: int = MAX_SLICE_BYTES) -> Step:
        """The next deliveries, as soon as there are any; none after the time is up."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            self._news.clear()
            step = self.take(limit, room)
            if step is None:
                step = await self.load(limit, room)
                if step == [] and (deadline is None or loop.time() < deadline):
                    continue
            if step != []:
                return step
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return []
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                return []

    def take(self, limit: int, room: int = MAX_SLICE_BYTES) -> Step | None:
        """What is at hand: deliveries in memory, or none for now; None if `load` must look for them."""
        self._look_at_ledger()
        reached = self.tail.reached
        if reached.version < self.subscription.first:
            self.tail.watch(self, True)
            return []
        if self._current:
            return self._finish()
        if any(stream not in self._at for stream in reached.streams):
            return None  # a stream that is new to this feed
        if not self._past_history():
            self.tail.watch(self, True)
            return None if self._behind() or self._settled is not reached else []
        if not self.tail.covers(self._at):
            return None
        self.tail.watch(self, False)
        return self._from_memory(limit, room)

    def _from_memory(self, limit: int, room: int) -> Step | None:
        deliveries: list[following.OutgoingDelivery] = []
        at = dict(self._at)
        for kept in self.tail.since(self._from):
            more, whole = kept.portion.read(
                self.number,
                at,
                not_before=self._not_before,
                limit=limit - len(deliveries),
                room=room,
                more=self._more,
            )
            for one in more:
                at[one.stream] = self._given[one.stream] = one.seq
                room -= len(one.event)
            deliveries += more
            if not whole:
                self._from, self._at = kept.serial, at
                return deliveries
        reached = self.tail.reached.streams
        self._ahead = {stream: seq for stream, seq in at.items() if seq > reached.get(stream, 0)}
        self._current = True
        return deliveries or self._finish()

    async def load(self, limit: int, room: int = MAX_SLICE_BYTES) -> Step:
        """Look for deliveries in the store: one slice, which may hold none though there are more."""
        reached = self.tail.reached
        if self._ends_at is not None and self._ends is None:
            self._ends = await self.run(self.known.starts, self._ends_at)
        if self._current:
            return []
        await self._settle(reached.streams)
        self._settled = reached
        ask = self._search
        if ask is None:
            stream = next(iter(self._behind()), None)
            if stream is None:
                return []
            through = reached.streams[stream]
            ask = Ask(self.number, stream, self._at[stream], through, self._not_before, more=self._more)
        part: Slice = await self.run(self.archive.read, ask, limit, room)
        self._at = {**self._at, ask.stream: max(part.at, self._at[ask.stream])}
        self._search = None
        if part.gap:
            return DeliveryGap({ask.stream: part.at})
        if part.resume is not None:
            self._search = replace(ask, not_before=self._not_before, resume=part.resume)
        for one in part.found:
            self._given[one.stream] = one.seq
        return part.found

    # -- places -----------------------------------------------------------------------------------------------

    def acknowledged(self, places: Mapping[str, int]) -> None:
        """The reader has dealt with everything up to these places."""
        for stream, seq in places.items():
            self._acked[stream] = max(seq, self._acked.get(stream, 0))

    def done_with(self) -> dict[str, int]:
        """How far nothing is left to acknowledge: the streams in which all was read and all that came was dealt with.

        Retention would wait for ever for one who gets little, if only deliveries moved its places.
        """
        if not self._current or self._skips:
            return {}
        return {
            stream: last
            for stream, last in self.tail.reached.streams.items()
            if last > self._acked.get(stream, 0) >= self._given.get(stream, 0)
        }

    async def _settle(self, streams: Mapping[str, int]) -> None:
        """Find the place to begin at in streams that are new to this feed, and where its history ends."""
        missing = [stream for stream in streams if stream not in self._at]
        if not missing and not (self._reads_back and self._lacks_starts()):
            return
        self._starts = dict(await self.run(self.known.starts, self.subscription.first))
        from_start = self._reads_back or self._detects
        trimmed: Mapping[str, int] = await self.run(self.archive.trimmed) if from_start else {}
        begin: dict[str, int] = {}
        for stream in missing:
            if self._detects:
                begin[stream] = trimmed.get(stream, 0)
            elif not self._reads_back:
                # Without a starting point no event there is of its versions, as far as was reached.
                begin[stream] = self._starts.get(stream, streams[stream] + 1) - 1
            else:
                # Of history it gets what is still there.
                begin[stream] = min(trimmed.get(stream, 0), self._starts.get(stream, 2**62) - 1)
        self._at = {**self._at, **begin}

    def _behind(self) -> list[str]:
        """The streams that were decided further than was read here."""
        return [stream for stream, last in self.tail.reached.streams.items() if self._at.get(stream, 0) < last]

    def _lacks_starts(self) -> bool:
        return any(stream not in self._starts for stream in self.tail.reached.streams)

    def _past_history(self) -> bool:
        """Is all that is left after the starting points? What memory holds is only that."""
        return not self._reads_back or all(
            stream in self._starts and self._at.get(stream, 0) >= self._starts[stream] - 1
            for stream in self.tail.reached.streams
        )

    # -- the ledger -------------------------------------------------------------------------------------------

    def _look_at_ledger(self) -> None:
        """Has the subscription ended, or has something been withdrawn?"""
        state = self.known.state
        if state is self._state:
            return
        self._state = state
        self._not_before = state.withdrawals.get(self.subscription.principal, 0)
        now = state.subscriptions.get(self.subscription.id)
        if self._ends_at is None and (now is None or now.first != self.subscription.first):
            self._ends_at = state.version

    def _finish(self) -> Step | None:
        """Closed, once nothing can come any more."""
        if self._ends_at is None:
            return []
        if self._ends is None:
            return None
        self.tail.watch(self, True)
        reached = self.tail.reached
        done = reached.version >= self._ends_at and all(
            reached.log.get(stream, 0) >= start - 1 for stream, start in self._ends.items()
        )
        return Closed() if done else []


def _source(detection: Subscription) -> bytes:
    """What its signals say that they come from: the name that its principal has for it."""
    return b',"source":' + msgspec.json.encode(local_id(detection.principal, detection.id) or detection.id)
