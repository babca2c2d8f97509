"""One append as a writer hands it to the log, and the window in which the log knows it again.

Guarantees: an append whose keys were all new is let through. One that holds a key of an append in its window, by
whatever process, is a `Repeats` with every place to compare, and only those that the writer compared and accepts are
passed over. After a restart the window is read back from the log.
Leaves out: repeats inside one append (`recent.repeats_within`), and repeats of what was trimmed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from headgate.model.errors import BadDefinition, Damaged, HeadgateError
from headgate.pipeline.log.recent import MAX_RECENT_KEYS, Keys, RecentKeys

OLD_IN_A_ROW = 1_000
"""After so many appends older than the window, one after another, the search for the window's beginning ends."""


Counted: TypeAlias = tuple[str, str, int]
"""A publisher, a type, and how many events."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """An event of an append, by its place in it, and an earlier append that may hold the same event."""

    index: int
    stream: str
    first: int
    last: int


class Repeats(HeadgateError):
    """Events that may have been appended before; nothing of the append was kept."""

    code = "repeats"

    def __init__(self, candidates: list[Repeat]) -> None:
        super().__init__(
            f"`{len(candidates)}` events may have been appended before",
            remedy="compare them with the appends named, and send again what is new",
        )
        self.candidates = candidates


@dataclass(frozen=True, slots=True)
class Append:
    """Events decided at one version. With `keys`, one an event, those appended in `window` microseconds are held back.

    `accept` holds the candidates that the writer has compared and found to be other events. `counts` says how many
    there are of each publisher and type, if they were decided by how many there were before (`counts.Counts`).
    """

    version: int
    time: int
    count: int
    blob: bytes
    keys: Keys | None = None
    window: int = 0
    accept: frozenset[Repeat] = frozenset()
    counts: tuple[Counted, ...] | None = None

    def refusal(self) -> BadDefinition | None:
        """What is wrong with it, if anything."""
        if self.count < 1:
            return BadDefinition(f"an append of `{self.count}` events", remedy="append at least one")
        if self.keys is not None and len(self.keys) != self.count:
            return BadDefinition(f"`{len(self.keys)}` keys for {self.count} events", remedy="give one key an event")
        return None

    def packed_keys(self) -> bytes | None:
        """The keys as the log stores them."""
        return None if self.keys is None else self.keys.astype("<u8", copy=False).tobytes()


class Window:
    """The recent keys of a log file, as one of its writers knows them."""

    def __init__(self, path: Path, limit: int = MAX_RECENT_KEYS, *, salt: int = 0) -> None:
        self.path = path
        self.limit = limit
        self._salt = salt
        self._keys: RecentKeys | None = None
        self._reach = 0  # microseconds that the keys in memory go back
        self._seen = 0  # the number of the newest append taken in
        self._unsettled = False

    def settle(self, *, kept: bool) -> None:
        """The appends added since the last time were kept, or not; then the log is read again when it is needed."""
        if self._unsettled and not kept:
            self._keys = None
        self._unsettled = False

    def catch_up(self, db: sqlite3.Connection, appends: Sequence[Append]) -> None:
        """Take in what was appended since the last look, by anyone, as far as these appends ask for it."""
        asking = [one for one in appends if one.keys is not None]
        if not asking:
            return
        reach, now = max(one.window for one in asking), max(one.time for one in asking)
        if self._keys is None or reach > self._reach:
            self._load(db, now, reach)
        assert self._keys is not None
        rows = db.execute(
            "SELECT number, time, first, last, keys FROM batches WHERE number > ? ORDER BY number", (self._seen,)
        )
        for number, time, first, last, packed in rows:
            self._seen = number
            if packed is not None:
                self._keys.add(self._unpacked(first, last, packed), number, time)
        self._keys.forget(now - self._reach)

    def repeats(self, db: sqlite3.Connection, append: Append) -> Repeats | None:
        """The earlier appends that may hold events of this one."""
        if append.keys is None or self._keys is None:
            return None
        places, numbers = self._keys.find(append.keys)
        if len(places) == 0:
            return None
        held = {}
        for number in set(numbers.tolist()):
            row = db.execute(
                "SELECT stream, first, last FROM batches WHERE number = ? AND time >= ?",
                (number, append.time - append.window),
            ).fetchone()
            if row is not None:  # it is in the window, and was not trimmed
                held[number] = row
        pairs = dict.fromkeys(zip(places.tolist(), numbers.tolist(), strict=True))
        found = [Repeat(at, *held[number]) for at, number in pairs if number in held]
        found = [one for one in found if one not in append.accept]
        return Repeats(found) if found else None

    def add(self, append: Append, number: int) -> None:
        """Remember an append that was just written."""
        if append.keys is not None and self._keys is not None:
            self._keys.add(append.keys, number, append.time)
            self._seen = number
            self._unsettled = True

    def _load(self, db: sqlite3.Connection, now: int, reach: int) -> None:
        """Read the window back, from the newest append."""
        self._keys, self._reach = RecentKeys(self.limit, salt=self._salt), reach
        loaded: list[tuple[Keys, int, int]] = []
        room, old, newest = self.limit, 0, 0
        rows = db.execute("SELECT number, time, first, last, keys FROM batches ORDER BY number DESC")
        for number, time, first, last, packed in rows:
            newest = newest or number
            old = old + 1 if time < now - reach else 0
            if old > OLD_IN_A_ROW or room <= 0:
                break
            if packed is not None and old == 0:
                loaded.append((self._unpacked(first, last, packed), number, time))
                room -= last - first + 1
        rows.close()
        for keys, number, time in reversed(loaded):
            self._keys.add(keys, number, time)
        self._seen = newest

    def _unpacked(self, first: int, last: int, packed: bytes) -> Keys:
        if len(packed) != 8 * (last - first + 1):
            raise Damaged(f"`{self.path}`: the keys of events {first} to {last} are not what was written")
        return np.frombuffer(packed, "<u8").astype(np.uint64, copy=False)
