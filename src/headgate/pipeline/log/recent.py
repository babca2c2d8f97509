"""Which events were appended lately: 64-bit keys in memory, so that an event sent twice is stored once.

Guarantees: a key that was added and not forgotten is always found. Whatever is found is a candidate only: two events
may share a key, so the caller compares who they are. Room for `limit` keys is all that is ever used; past it the
oldest go first. A key is the same in every process and on every machine.
Leaves out: times to the second. Keys are forgotten some thousand at a time, none before its time.

The keys sit in a ring, in the order they came. Each slot of a table names the newest key that falls into it, and each
key the one before it in the same slot, so a search meets ever older keys and may stop at the first forgotten one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

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


class RecentKeys:
    """The keys of a window of appends. `salt` decides which keys share a slot, so that nobody can choose it."""

    def __init__(self, limit: int = MAX_RECENT_KEYS, *, salt: int = 0) -> None:
        bits = max(limit - 1, 1).bit_length()
        self.limit = limit
        self._salt = np.uint64((salt | 1) * int(_ODD) % (1 << 64))
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        # Memory is taken as it is first written to. A slot or link of 0 means none; others are a place plus 1.
        self._heads = np.zeros(1 << bits, np.int32)
        self._links = np.empty(1 << bits, np.int32)
        self._keys = np.empty(1 << bits, np.uint64)
        self._appends = np.empty(1 << bits, np.int64)
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
