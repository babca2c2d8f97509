"""Shards kept together: many small ones are one value where they are kept, a large one is a value by itself.

Guarantees: what was put under a key is there under it, and nothing else, once `write` has written it. A segment that
holds several shards has at most `SEGMENT_BYTES`, so that what is written for one shard is bounded, however many there
are. Which shards a segment holds is kept beside them.
Leaves out: where segments are kept (`SegmentStore`).
"""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Final, Protocol

from headgate.pipeline.detect.bucket import ShardKey

SEGMENT_BYTES: Final = 16_384
"""What several shards in one segment come to, at most."""

_INDEX: Final = 0
"""The segment that says which shards the others hold."""


class SegmentStore(Protocol):
    """Keeps segments as bytes."""

    def get(self, segment: int) -> bytes | None:
        """What was put under a number."""

    def put(self, segment: int, saved: bytes) -> None:
        """Keep it."""

    def remove(self, segment: int) -> None:
        """Keep nothing."""


class Segments:
    """The shards of a bucket; what is read is read once, and what has changed is written by `write`."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._held: dict[int, dict[ShardKey, bytes]] = {}
        self._changed: set[int] = set()
        self._segments: dict[ShardKey, int] = {}
        self._last = _INDEX
        saved = store.get(_INDEX)
        if saved is not None:
            self._segments, self._last = pickle.loads(saved)  # noqa: S301 - out of Spark's own state
        self._counts = Counter(self._segments.values())
        self._filling = self._last
        """The segment that takes what is new."""

    def move(self, store: SegmentStore) -> None:
        """From here on segments are kept there, and are there as they were written before."""
        self._store = store

    def forget(self) -> None:
        """Let go of what was read, all of which is written."""
        self._held.clear()

    def get(self, key: ShardKey) -> bytes | None:
        """What was put under a key."""
        segment = self._segments.get(key)
        return None if segment is None else self._read(segment)[key]

    def put(self, key: ShardKey, saved: bytes) -> None:
        """Keep it, with others if there is room."""
        segment = self._segments.get(key)
        if segment is None:
            self._add(key, saved)
        elif self._counts[segment] == 1:
            self._held[segment] = {key: saved}
            self._changed.add(segment)
        else:
            held = self._read(segment)
            held[key] = saved
            self._changed.add(segment)
            if _size(held) > SEGMENT_BYTES:
                self.remove(key)
                self._add(key, saved)

    def remove(self, key: ShardKey) -> None:
        """Keep nothing."""
        segment = self._segments.pop(key, None)
        if segment is not None:
            del self._read(segment)[key]
            self._counts[segment] -= 1
            self._changed |= {segment, _INDEX}

    def write(self) -> None:
        """Have it all kept."""
        for segment in sorted(self._changed - {_INDEX}):
            held = self._held[segment]
            if held:
                self._store.put(segment, pickle.dumps(held, protocol=5))
            else:
                self._store.remove(segment)
            if len(held) <= 1:  # to write it again takes nothing of what is there
                del self._held[segment]
        if _INDEX in self._changed:
            self._store.put(_INDEX, pickle.dumps((self._segments, self._last), protocol=5))
        self._changed.clear()

    def _add(self, key: ShardKey, saved: bytes) -> None:
        held = self._read(self._filling) if self._counts[self._filling] else {}
        if self._filling == _INDEX or (held and _size(held) + len(saved) > SEGMENT_BYTES):
            self._last += 1
            self._filling = self._last
            held = {}
        held[key] = saved
        self._held[self._filling] = held
        self._segments[key] = self._filling
        self._counts[self._filling] += 1
        self._changed |= {self._filling, _INDEX}

    def _read(self, segment: int) -> dict[ShardKey, bytes]:
        held = self._held.get(segment)
        if held is None:
            saved = self._store.get(segment)
            assert saved is not None, segment
            held = self._held[segment] = pickle.loads(saved)  # noqa: S301 - likewise
        return held


def _size(held: dict[ShardKey, bytes]) -> int:
    return sum(map(len, held.values()))
