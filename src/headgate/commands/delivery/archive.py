"""Reading what was delivered to one subscription out of the store, in bounded slices.

Guarantees: a slice decodes at most `MAX_BLOBS` blobs and looks at no more than the store allows in one call, whoever's
deliveries lie between. Where retention has taken what was asked for, the slice says so instead of passing it over.
May be used from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Final

from headgate.commands.delivery.delivery_batch import KnownLedger, OutgoingDelivery, portion_of
from headgate.pipeline.deliveries import DeliveryStore
from headgate.trust.positions import Positions

MAX_BLOBS: Final = 8
"""Blobs that one slice decodes."""

MAX_SLICE_BYTES: Final = 256 * 2**10
"""Bytes of events handed out at a time; the last one may go past it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A slice of the store: what one subscription has in `(after, through]` of a stream."""

    number: int
    stream: str
    after: int
    through: int
    not_before: int = 0
    resume: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """What was found, the place now reached, and where to look on if the search is not over."""

    found: list[OutgoingDelivery] = field(default_factory=list)
    at: int = 0
    resume: tuple[int, int] | None = None
    gap: bool = False


class Archive:
    """Reads the delivery store for feeds that are behind. May be used from any thread."""

    def __init__(self, path: Path, known: KnownLedger, positions: Positions) -> None:
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
        portion = portion_of(page.blobs, self._known, self._positions, ask.number)
        deliveries, whole = portion.read(
            ask.number, {ask.stream: ask.after}, not_before=ask.not_before, limit=limit, room=room
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
