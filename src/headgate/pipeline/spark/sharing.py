"""The policy index as every worker's: sent whole once, and then what changed.

Guarantees: what a worker decides with is the index that the driver shared for the micro-batch, whichever it had before
and whenever it began. A change is a broadcast of its own, next to the whole index that it builds on; a worker that has
what came before applies only what is new. When changes are many, one takes the place of all; when they are no longer
small beside the index, the index is sent again. What is not needed any more is removed, also from the driver's disk.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.pipeline.index.delta import IndexMark, Whole, applied, difference
from headgate.pipeline.index.index import PolicyIndex

MOST_CHANGES: Final = 20
"""Changes sent one by one, before one takes the place of all."""

SMALL: Final = 8
"""A change is small if the whole index has so many times its bytes."""


@dataclass(frozen=True, slots=True)
class SharedIndex:
    """An index as a task is given it: the broadcasts of a whole one, and of the changes to it, in order."""

    whole: Any
    changes: tuple[Any, ...] = ()

    @property
    def value(self) -> PolicyIndex:
        """The index, in a worker."""
        held = _held[0] if _held else None
        # Of one broadcast a worker has one object.
        if held is None or held.shared.whole is not self.whole or not _begins(self.changes, held.shared.changes):
            held = _Held(SharedIndex(self.whole), self.whole.value)
        index = held.index
        for change in self.changes[len(held.shared.changes) :]:
            index = applied(index, pickle.loads(change.value))  # noqa: S301 - out of `IndexSharing`
        if index is not held.index or not _held:
            _held[:] = [_Held(self, index)]
        return index


@dataclass(frozen=True, slots=True)
class _Held:
    shared: SharedIndex
    index: PolicyIndex


_held: list[_Held] = []
"""The index that this worker decided with last."""


def _begins(all: tuple[Any, ...], some: tuple[Any, ...]) -> bool:
    return len(some) <= len(all) and all[: len(some)] == some


class IndexSharing:
    """Shares the indexes of one builder with the workers of a session, one after the other."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._first: IndexMark | None = None
        self._last: IndexMark | None = None
        self._shared: SharedIndex | None = None
        self._size = 0
        self.shipped = 0
        """The bytes of the last index, or change, that was sent to each executor."""

    def share(self, index: PolicyIndex) -> SharedIndex:
        """An index for the tasks to come; those that were given an earlier one are over."""
        if self._shared is not None and self._last is not None and self._last.index is index:
            return self._shared
        changes = () if self._shared is None else self._shared.changes
        together = len(changes) >= MOST_CHANGES
        before = self._first if together else self._last
        change = Whole(index) if before is None else difference(before, index)
        blob = b"" if isinstance(change, Whole) else pickle.dumps(change, protocol=5)
        if self._shared is None or isinstance(change, Whole) or len(blob) * SMALL > self._size:
            self._send(index)
        else:
            sent = self._session.sparkContext.broadcast(blob)
            self.shipped = len(blob)
            self._drop(changes if together else ())
            self._shared = SharedIndex(self._shared.whole, (sent,) if together else (*changes, sent))
        self._last = IndexMark.of(index)
        assert self._shared is not None
        return self._shared

    def _send(self, index: PolicyIndex) -> None:
        old = self._shared
        sent = self._session.sparkContext.broadcast(index)
        self._size = self.shipped = Path(sent._path).stat().st_size
        self._first, self._shared = IndexMark.of(index), SharedIndex(sent)
        if old is not None:
            self._drop((old.whole, *old.changes))

    def _drop(self, broadcasts: tuple[Any, ...]) -> None:
        for one in broadcasts:
            one.destroy()
