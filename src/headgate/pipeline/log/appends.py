"""One append as a writer hands it to the log, and what a writer knows of the appends before it.

Guarantees: an append whose keys were all new is let through. One that holds a key of an append in its window, by
whatever process, is a `Repeats` with every place to compare, and only those that the writer compared and accepts are
passed over. After a restart the window is read back from the log. Of rates see `Counts`.
Leaves out: repeats of what was trimmed.
"""

from __future__ import annotations

import mmap
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.decide.rates import KEPT_MICROS, Rates
from headgate.model.errors import BadDefinition, Damaged, HeadgateError
from headgate.model.values import micros, moment
from headgate.pipeline.log.codec import LogBatch, from_blob
from headgate.pipeline.log.promises import Occurrences

Keys: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int64]
Texts: TypeAlias = Sequence[str] | npt.NDArray[np.object_]

MAX_RECENT_KEYS = 1 << 23
"""How many keys are remembered: about 200 MB when full."""

KEYS_A_MARK = 1_024
"""How many keys are forgotten together."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SEED = "headgate-keys-01"
"""The key of the hash. Changing it makes every stored key useless."""


def hash_keys(publishers: str | Sequence[str], sources: str | Sequence[str], ids: Texts) -> Keys:
    """One key an event, of who published it, the source and the id. A plain string stands for all events."""
    hashes = _hashes(ids)
    for column in (publishers, sources):
        hashes = _mixed(hashes * _ODD + _spread(column))
    return hashes


def repeats_within(keys: Keys, identities: Iterable[object]) -> dict[int, int]:
    """Events that occur earlier in the same request: `{place: place of the first}`."""
    firsts: dict[int, int] = {}
    ordered = np.sort(keys)
    if (ordered[1:] == ordered[:-1]).any():
        first: dict[object, int] = {}
        for at, identity in enumerate(identities):
            if first.setdefault(identity, at) != at:
                firsts[at] = first[identity]
    return firsts


def _spread(column: str | Sequence[str]) -> Any:
    """The hashes of a column that has few different texts."""
    different = [column] if isinstance(column, str) else list(dict.fromkeys(column))
    hashes = _hashes(different)
    if len(different) == 1:
        return hashes[0]
    number = {text: at for at, text in enumerate(different)}
    return hashes[np.fromiter(map(number.__getitem__, column), np.int64, len(column))]


def _hashes(texts: Texts) -> Keys:
    from pandas.util import hash_array  # here: readers of the log start faster without it

    if isinstance(texts, np.ndarray):
        column = texts
    else:
        column = np.empty(len(texts), object)
        column[:] = texts
    found: Keys = hash_array(column, hash_key=_SEED, categorize=False)
    return found


def _mixed(keys: Keys) -> Keys:
    """Every bit of a key spread over all of it."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def _zeros(count: int, kind: type[Any]) -> Any:
    """An array whose memory is taken page by page as it is written to: NumPy would ask for pages of two megabytes."""
    size = count * np.dtype(kind).itemsize
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), kind)


class RecentKeys:
    """The keys of a window of appends. `salt` decides which keys share a slot, so that nobody can choose it.

    A key that was added and not forgotten is always found. Whatever is found is a candidate only: two events may share
    a key, so the caller compares who they are. Past `limit` keys the oldest go first, some thousand at a time.
    The keys sit in a ring, in the order they came. Each slot of a table names the newest key that falls into it, and
    each key the one before it in the same slot, so a search meets ever older keys and may stop at the first forgotten
    one.
    """

    def __init__(self, limit: int = MAX_RECENT_KEYS, *, salt: int = 0) -> None:
        bits = max(limit - 1, 1).bit_length()
        self.limit = limit
        self._salt = np.uint64((salt | 1) * int(_ODD) % (1 << 64))
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        # A slot or link of 0 means none; others are a place plus 1.
        self._heads = _zeros(1 << bits, np.int32)
        self._links = _zeros(1 << bits, np.int32)
        self._keys = _zeros(1 << bits, np.uint64)
        self._appends = _zeros(1 << bits, np.int64)
        self._next = 0
        self._live = 0
        self._marks: deque[list[int]] = deque()  # newest time and number of keys, oldest first

    def __len__(self) -> int:
        return self._live

    def find(self, keys: Keys) -> tuple[Ints, Ints]:
        """Every place in `keys` that may be a repeat, with the append it may repeat, in order of both."""
        node = self._heads[self._slots(keys)]
        at = np.flatnonzero(node)
        node, older_than = node[at], np.full(len(at), -1, np.int32)
        places: list[Ints] = []
        appends: list[Ints] = []
        while len(at):
            # An age that does not grow means that the place has been written over since: the end, too.
            age = (self._next - node) & self._mask
            keep = np.flatnonzero((node > 0) & (age > older_than) & (age < self._live))
            at, node, older_than = at[keep], node[keep] - 1, age[keep]
            same = np.flatnonzero(self._keys[node] == keys[at])
            if len(same):
                places.append(at[same])
                appends.append(self._appends[node[same]])
            node = self._links[node]
        if not places:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        found, numbers = np.concatenate(places), np.concatenate(appends)
        order = np.lexsort((numbers, found))
        return found[order], numbers[order]

    def add(self, keys: Keys, append: int, time: int) -> None:
        """Remember the keys of an append, a bounded number at a time."""
        keys = keys[max(len(keys) - self.limit, 0) :]
        room = self._mask + 1 - self._next  # up to where the ring begins again
        for part in (keys[:room], keys[room:]):
            if len(part):
                self._add(part, append)
                self._mark(time, len(part))
        while self._live > self.limit:
            self._drop(min(self._live - self.limit, self._marks[0][1]))

    def _add(self, keys: Keys, append: int) -> None:
        begin, end = self._next, self._next + len(keys)
        nodes = np.arange(begin + 1, end + 1, dtype=np.int32)
        slots = self._slots(keys)
        before = self._heads[slots]
        self._heads[slots] = nodes  # of several in one slot the last, which is the newest, stays
        if (self._heads[slots] != nodes).any():
            order = np.argsort(slots, kind="stable")
            shared = np.flatnonzero(slots[order[1:]] == slots[order[:-1]])
            before[order[shared + 1]] = nodes[order[shared]]
        self._links[begin:end] = before
        self._keys[begin:end] = keys
        self._appends[begin:end] = append
        self._next = end & self._mask
        self._live += len(keys)

    def forget(self, before: int) -> None:
        """Let go of the appends older than a time."""
        while self._marks and self._marks[0][0] < before:
            self._drop(self._marks[0][1])

    def _mark(self, time: int, count: int) -> None:
        if self._marks and self._marks[-1][1] + count <= KEYS_A_MARK:
            newest, held = self._marks[-1]
            self._marks[-1] = [max(newest, time), held + count]
        elif count:
            self._marks.append([time, count])

    def _drop(self, count: int) -> None:
        """Forget so many of the oldest keys, of one mark."""
        self._live -= count
        self._marks[0][1] -= count
        if self._marks[0][1] == 0:
            self._marks.popleft()

    def _slots(self, keys: Keys) -> Ints:
        slots: Ints = ((keys * self._salt) >> self._shift).view(np.int64)
        return slots


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
    there are of each publisher and type, if they were decided by how many there were before (`Counts`). If it
    `promises`, its time is what the stream promises; `occurred` says when events occurred of which something may have
    been promised, all of one `publisher` (`promises`).
    """

    version: int
    time: int
    count: int
    blob: bytes
    keys: Keys | None = None
    window: int = 0
    accept: frozenset[Repeat] = frozenset()
    counts: tuple[Counted, ...] | None = None
    promises: bool = False
    publisher: str = ""
    occurred: tuple[Occurrences, ...] = ()

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


class Counts:
    """How often publishers have published of late in all streams of a log, as one of its writers knows it.

    What `begin` tells is the count of all that the log held at that moment, by whatever process it was appended. An
    append that was decided by it is held back if another process has appended events of the same publisher and type
    since (`news`), and so every event that is stored was decided by the count of all that were stored before it.
    Therefore no RATE_SECONDS, by the times that gateways stamp, hold more accepted events of a publisher and type than
    a limit on `@rate` allows: the one of them that was stored last counted all the others, however their times are
    ordered. That holds as long as clocks are less than MAX_SKEW_SECONDS apart. After a restart the log is read back,
    but for what retention has removed of the last two minutes.
    """

    def __init__(self, check: Callable[[str, Sequence[Any]], LogBatch]) -> None:
        self._check = check
        self._rates = Rates()
        self._seen = 0  # the number of the newest append that is counted
        self._news: set[tuple[str, str]] = set()

    def begin(self, db: sqlite3.Connection, now: datetime) -> Rates:
        """Everything up to now; what is appended from here on by others is news."""
        self.catch_up(db, micros(now))
        self._news.clear()
        return self._rates

    def rate(self, db: sqlite3.Connection, publisher: str, type_name: str, now: datetime) -> int:
        """How many events a publisher has had accepted of late, as far as the log knows now."""
        self.catch_up(db, micros(now))
        return self._rates.lately(publisher, type_name, now)

    def catch_up(self, db: sqlite3.Connection, now: int) -> None:
        """Count what was appended since the last look, as far as it is of late."""
        counted: list[tuple[int, tuple[Counted, ...]]] = []
        newest, old = self._seen, 0
        rows = db.execute(
            "SELECT number, stream, first, last, version, time, crc, blob, number, horizon FROM batches "
            "WHERE number > ? ORDER BY number DESC",
            (self._seen,),
        )
        for number, stream, *row in rows:
            newest = max(newest, number)
            old = old + 1 if row[3] <= now - KEPT_MICROS else 0
            if old > OLD_IN_A_ROW:
                break
            counted.append((row[3], counts_of(self._check(stream, row).blob)))
        rows.close()
        for time, counts in reversed(counted):
            self._add(time, counts)
            self._news.update((publisher, name) for publisher, name, _ in counts)
        self._seen = newest

    def has_news_for(self, append: Append) -> bool:
        """Has anybody else appended what the events of this append would have had to count?"""
        return any((publisher, name) in self._news for publisher, name, _ in append.counts or ())

    def took(self, appended: Iterable[tuple[int, Append]]) -> None:
        """Appends of our own are kept, under these numbers, the first after all that is counted."""
        for number, one in appended:
            self._add(one.time, counts_of(one.blob) if one.counts is None else one.counts)
            self._seen = number

    def _add(self, time: int, counts: Iterable[Counted]) -> None:
        for publisher, name, count in counts:
            self._rates.add(publisher, name, moment(time), count)


def counts_of(blob: bytes) -> tuple[Counted, ...]:
    """How many events of each publisher and type an append holds."""
    table = from_blob(blob).select(["publisher", "type"])
    rows = table.group_by(["publisher", "type"], use_threads=False).aggregate([([], "count_all")]).to_pylist()
    return tuple((row["publisher"], row["type"], row["count_all"]) for row in rows)
