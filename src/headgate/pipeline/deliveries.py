"""Deliveries as Arrow blobs, which say who receives them, and the SQLite file they are kept in.

Guarantees: the masked payload is written once per (event, view), and nothing of a hidden value is in it, not even
under a null. A blob depends only on the append it came from, the ledger and the history it belongs to, and is keyed by
that append, so a batch that runs again replaces itself, whatever its boundaries. The output of a micro-batch is one
transaction, and how far it reached is recorded with it. The deliveries of one subscription are found without reading
those of others, in slices of bounded work. One process writes, by a lease with a fencing token that is checked in the
transaction of the micro-batch, so that one that lost it, and wakes up later, writes nothing.
Leaves out: cursors. How far a reader has come is its own business; beside the pipeline it opens a store of its own.
"""

from __future__ import annotations

import sqlite3
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.model.errors import Damaged, Fenced, StreamHeld
from headgate.model.values import Value, moment
from headgate.pipeline.index.index import Types
from headgate.pipeline.log.codec import EventBatch, LogBatch, Words, to_blob
from headgate.pipeline.log.event_log import Chunk, Size, is_dead
from headgate.pipeline.match import Matches
from headgate.storage.files import StreamFile, failures, transaction


@dataclass(frozen=True, slots=True)
class Delivered:
    """One event as one subscription received it. `subscription` is its number in order of opening."""

    stream: str
    seq: int
    version: int
    subscription: int
    event: str
    type: str
    publisher: str
    time: datetime
    view: Mapping[str, Value]
    source: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryBlob:
    """What the pipeline writes for one append: deliveries to live subscriptions (`part` 0) or to history.

    `members` says which subscriptions are in it (`pack`).
    """

    stream: str
    first: int
    last: int
    version: int
    part: int
    count: int
    blob: bytes | None
    members: bytes = b""


def blobs(batches: Sequence[LogBatch], events: EventBatch, matches: Matches, types: Types) -> Iterator[DeliveryBlob]:
    """The deliveries of many appends, each apart."""
    ends = np.cumsum([b.last - b.first + 1 for b in batches])
    append = np.searchsorted(ends, matches.events, "right")
    for part in np.unique(np.append(matches.parts, 0)).tolist():
        mine = np.flatnonzero(matches.parts == part)
        rows, starts, subscriptions = _grouped(matches, mine)
        visible = matches.visible[mine[starts[:-1]]]
        first_row = np.searchsorted(append[mine[starts[:-1]]] if len(rows) else rows, np.arange(len(batches) + 1))
        for number, batch in enumerate(batches):
            begin, end = int(first_row[number]), int(first_row[number + 1])
            if begin == end:
                if part == 0:
                    yield DeliveryBlob(*_key(batch), 0, 0, None)
                continue
            offset = int(ends[number]) - (batch.last - batch.first + 1)
            seq = rows[begin:end] - offset + batch.first
            receivers = subscriptions[starts[begin] : starts[end]]
            lists = pa.ListArray.from_arrays(
                pa.array((starts[begin : end + 1] - starts[begin]).astype(np.int32)),
                pa.array(receivers),
            )
            piece = _payload(events, rows[begin:end], visible[begin:end], types)
            piece = piece.append_column("seq", pa.array(seq)).append_column("subscriptions", lists)
            blob, members = to_blob(piece), pack(np.unique(receivers))
            yield DeliveryBlob(*_key(batch), part, len(receivers), blob, members)


def _key(batch: LogBatch) -> tuple[str, int, int, int]:
    return batch.stream, batch.first, batch.last, batch.version


def _grouped(
    matches: Matches, mine: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Matches grouped by event and view: the event rows, where each group starts, and the subscriptions."""
    if len(mine) == 0:
        return mine, np.zeros(1, np.int64), matches.subscriptions[:0]
    visible, events = matches.visible[mine], matches.events[mine]
    order = np.lexsort((*visible.T, events))
    mine[:] = mine[order]
    visible, events = visible[order], events[order]
    new = np.ones(len(events), np.bool_)
    new[1:] = (events[1:] != events[:-1]) | (visible[1:] != visible[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    return events[first], np.append(first, len(events)), matches.subscriptions[mine]


def _payload(events: EventBatch, rows: npt.NDArray[np.int64], visible: Words, types: Types) -> pa.Table:
    """The events with everything that is not visible made null. A slot with nothing to show has no column."""
    take = pa.array(rows)
    kinds = events.type[rows]
    arrays = {name: events.table.column(name).take(take) for name in ("id", "type", "publisher", "source")}
    arrays["time"] = pa.array(events.time[rows])
    stated = events.stated()
    if stated is not None and (shown := stated.take(take)).null_count < len(rows):
        arrays["occurred"] = shown
    for number in np.flatnonzero((types.bits[np.unique(kinds)] >= 0).any(axis=0)).tolist():
        slot, bit = types.slots[number], types.bits[kinds, number]
        there = bit >= 0
        safe = np.where(there, bit, 0)
        word = visible[np.arange(len(rows)), safe >> 6]
        shown = there & ((word >> (safe & 63).astype(np.uint64)) & np.uint64(1)).astype(np.bool_)
        if shown.any():
            # A null index leaves zeros behind it; a mask over the column would leave the hidden value.
            arrays[slot.column] = events.table.column(slot.column).take(pa.array(rows, mask=~shown))
    return pa.table(arrays)


_LIST, _BITS = 1, 2
_HEAD = 5
"""A tag and a checksum of the rest."""


def pack(numbers: npt.NDArray[np.int32]) -> bytes:
    """Subscription numbers, sorted and each once (`np.unique`), as bytes."""
    if len(numbers) == 0:
        return _sealed(_LIST, b"")
    base = int(numbers[0]) & ~7
    if (int(numbers[-1]) - base) // 8 + 1 + 4 >= 4 * len(numbers):
        return _sealed(_LIST, numbers.astype("<i4").tobytes())
    flags = np.zeros(int(numbers[-1]) - base + 1, np.uint8)
    flags[numbers - base] = 1
    return _sealed(_BITS, base.to_bytes(4, "little") + np.packbits(flags, bitorder="little").tobytes())


def contains(packed: bytes, number: int) -> bool:
    """Is this subscription among them?"""
    body = _body(packed)
    if packed[0] == _LIST:
        numbers = body.cast("i")
        at = bisect_left(numbers, number)
        return at < len(numbers) and numbers[at] == number
    place = number - int.from_bytes(body[:4], "little")
    return 0 <= place < 8 * (len(body) - 4) and bool(body[4 + (place >> 3)] >> (place & 7) & 1)


def _sealed(tag: int, body: bytes) -> bytes:
    return bytes([tag]) + zlib.crc32(body).to_bytes(4, "little") + body


def _body(packed: bytes) -> memoryview:
    body = memoryview(packed)[_HEAD:]
    whole = len(packed) >= _HEAD and packed[0] in (_LIST, _BITS)
    if not whole or zlib.crc32(body) != int.from_bytes(packed[1:_HEAD], "little"):
        raise ValueError("not a packed list of subscriptions")
    return body


FORMAT = 6
_REMARKS = """
CREATE TABLE remarks (subscription INTEGER NOT NULL, code TEXT NOT NULL, batch INTEGER NOT NULL,
    number INTEGER NOT NULL, promise INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (subscription, code))
    WITHOUT ROWID
"""
_HELD = """
CREATE TABLE held (batch INTEGER NOT NULL, subscription INTEGER NOT NULL, time INTEGER NOT NULL,
    PRIMARY KEY (batch, subscription)) WITHOUT ROWID
"""
_COUNTS = """
CREATE TABLE counts (subscription INTEGER PRIMARY KEY, batch INTEGER NOT NULL, hour INTEGER NOT NULL,
    count INTEGER NOT NULL, hour_before INTEGER NOT NULL, count_before INTEGER NOT NULL)
"""
_LEASE = """
CREATE TABLE lease (token INTEGER NOT NULL, holder TEXT NOT NULL, expires INTEGER NOT NULL);
INSERT INTO lease VALUES (0, '', 0)
"""
_SCHEMA = f"""
CREATE TABLE deliveries (stream TEXT NOT NULL, first INTEGER NOT NULL, part INTEGER NOT NULL, last INTEGER NOT NULL,
    version INTEGER NOT NULL, count INTEGER NOT NULL, written INTEGER NOT NULL, crc INTEGER NOT NULL,
    members BLOB NOT NULL, blob BLOB NOT NULL, PRIMARY KEY (stream, first, part));
CREATE TABLE streams (stream TEXT PRIMARY KEY, trimmed INTEGER NOT NULL, count INTEGER NOT NULL,
    bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE progress (batch INTEGER NOT NULL, stream TEXT NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (batch, stream))
    WITHOUT ROWID;
CREATE TABLE batch_stats (batch INTEGER PRIMARY KEY, at INTEGER NOT NULL, events INTEGER NOT NULL,
    deliveries INTEGER NOT NULL, milliseconds INTEGER NOT NULL, version INTEGER NOT NULL);
{_REMARKS};
{_HELD};
{_COUNTS};
{_LEASE}
"""
_VERSION = ""
"""The stream name under which progress holds the ledger version a batch was decided through."""

_COLUMNS = "stream, first, part, last, version, count, crc, members, blob"
_BYTES = "length(blob) + length(members)"

MAX_SCAN = 1_000
"""Blobs looked at in one call for a subscription."""

MAX_STATS = 1_000
"""Micro-batches whose figures are kept."""

TRIM_BLOBS = 500
"""Blobs deleted in one transaction, so that the pipeline waits for no more."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the pipeline has decided: through which version, and which event of each stream.

    Of detections for which that is asked, `held` has the earliest time that they hold back.
    """

    version: int = 0
    streams: dict[str, int] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchStats:
    """The figures of one micro-batch. `at` is when it was written, in microseconds."""

    batch: int
    at: int
    events: int
    deliveries: int
    milliseconds: int
    version: int


@dataclass(frozen=True, slots=True)
class Remark:
    """What is to be said of a subscription besides what it gets, and the record of the log at which it came up."""

    subscription: int
    code: str
    number: int
    promise: int
    text: str


@dataclass(frozen=True, slots=True)
class BlobPage:
    """Blobs that hold a subscription, and where to look on; `resume` is None once there is no more."""

    blobs: tuple[DeliveryBlob, ...]
    resume: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class BlobTail:
    """Blobs past some positions, and the positions they reach. `more` if there is more to fetch at once."""

    blobs: tuple[DeliveryBlob, ...]
    positions: dict[str, int]
    more: bool = False


@dataclass(frozen=True, slots=True)
class WriterLease:
    """Who writes a store, until when (microseconds), and the token that its writes bear."""

    token: int
    holder: str
    expires: int


class DeliveryStore(StreamFile):
    """The deliveries of one domain."""

    FORMAT = FORMAT
    SCHEMA = _SCHEMA
    UPGRADES: ClassVar[Mapping[int, str]] = {2: _REMARKS, 3: _HELD, 4: _COUNTS, 5: _LEASE}

    # -- writing ----------------------------------------------------------------------------------------------

    def write(
        self,
        batch: int,
        through: int,
        blobs: Iterable[DeliveryBlob],
        before_commit: Callable[[], None] | None = None,
        *,
        stats: BatchStats | None = None,
        remarks: Iterable[Remark] = (),
        held: Mapping[int, int] | None = None,
        counts: Mapping[int, tuple[int, int]] | None = None,
        token: int | None = None,
    ) -> None:
        """Keep the output of a micro-batch, replacing what an earlier run of it wrote.

        Only whoever holds the lease may, by its `token`; without one, only while nobody holds it. Of each subscription
        the first remark of a code is kept. `counts` are new ones in the hours of the log's clock.
        """
        before = self.counts(before=batch)
        with transaction(self._db, self.path) as db:
            self._check(db, token, stats.at if stats else 0)
            reached = self.reached(before=batch)
            streams = dict(reached.streams)
            for b in blobs:
                streams[b.stream] = max(streams.get(b.stream, 0), b.last)
                if b.blob is not None:
                    self._keep(db, b, b.blob, stats.at if stats else 0)
            db.execute("DELETE FROM progress WHERE batch >= ? OR batch < ?", (batch, batch - 1))
            rows = [(batch, stream, last) for stream, last in streams.items()]
            rows.append((batch, _VERSION, max(through, reached.version)))
            db.executemany("INSERT INTO progress VALUES (?, ?, ?)", rows)
            db.execute("DELETE FROM held")
            db.executemany("INSERT INTO held VALUES (?, ?, ?)", [(batch, *one) for one in (held or {}).items()])
            self._note(db, batch, stats)
            if batch == 0:  # all is worked out again
                db.execute("DELETE FROM counts")
            changed = [(number, batch, *now, *before.get(number, (0, 0))) for number, now in (counts or {}).items()]
            db.executemany("INSERT OR REPLACE INTO counts VALUES (?, ?, ?, ?, ?, ?)", changed)
            db.execute("DELETE FROM remarks WHERE batch >= ?", (batch,))
            said = [(one.subscription, one.code, batch, one.number, one.promise, one.text) for one in remarks]
            db.executemany("INSERT OR IGNORE INTO remarks VALUES (?, ?, ?, ?, ?, ?)", said)
            if before_commit is not None:
                before_commit()

    # -- the lease --------------------------------------------------------------------------------------------

    def lease(self) -> WriterLease:
        """Who holds the lease, if anybody does."""
        return WriterLease(*self._row("SELECT token, holder, expires FROM lease"))

    def take(
        self, holder: str, now: int, ttl: int, *, floor: int = 0, dead: Callable[[str], bool] = lambda _holder: False
    ) -> int:
        """Become the one that writes, and get a fencing token past `floor`; older ones stop working.

        The lease lasts `ttl` microseconds, in which nobody else may take it unless its holder is `dead`.
        """
        with transaction(self._db, self.path) as db:
            held = self.lease()
            if now < held.expires and held.holder != holder and not dead(held.holder):
                raise StreamHeld(
                    f"`{held.holder}` writes `{self.path.name}` until {moment(held.expires).isoformat()}",
                    holder=held.holder,
                    expires=held.expires,
                    remedy="wait until its lease lapses",
                )
            token = max(held.token, floor) + 1
            db.execute("UPDATE lease SET token = ?, holder = ?, expires = ?", (token, holder, now + ttl))
        return token

    def renew(self, token: int, now: int, ttl: int) -> None:
        """Hold the lease for another `ttl` microseconds. One that lapsed and that nobody took is held again."""
        with transaction(self._db, self.path) as db:
            self._check(db, token, now)
            db.execute("UPDATE lease SET expires = ?", (now + ttl,))

    def release(self, token: int) -> None:
        """Give the lease up, if it is still held, so that anyone may take it at once."""
        with transaction(self._db, self.path) as db:
            db.execute("UPDATE lease SET holder = '', expires = 0 WHERE token = ?", (token,))

    def fence(self, token: int, holder: str, expires: int) -> None:
        """Take over the lease of another store, unless a newer one was taken over already."""
        with transaction(self._db, self.path) as db:
            if self.lease().token > token:
                raise self._fenced()
            db.execute("UPDATE lease SET token = ?, holder = ?, expires = ?", (token, holder, expires))

    def _check(self, db: sqlite3.Connection, token: int | None, now: int) -> None:
        held = WriterLease(*db.execute("SELECT token, holder, expires FROM lease").fetchone())
        beside = token is None and held.holder != "" and now < held.expires and not is_dead(held.holder)
        if beside or (token is not None and token != held.token):
            raise self._fenced()

    def _fenced(self) -> Fenced:
        return Fenced(f"another pipeline writes `{self.path.name}`", remedy="leave it to that one, or stop it first")

    # -- keeping ----------------------------------------------------------------------------------------------

    def _keep(self, db: sqlite3.Connection, b: DeliveryBlob, blob: bytes, at: int) -> None:
        key = b.stream, b.first, b.part
        where = "stream = ? AND first = ? AND part = ?"
        was = db.execute(f"SELECT count, {_BYTES} FROM deliveries WHERE {where}", key).fetchone() or (0, 0)  # noqa: S608
        db.execute(
            "INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*key, b.last, b.version, b.count, at, zlib.crc32(blob), b.members, blob),
        )
        self._grow(db, b.stream, 0, b.count - was[0], len(blob) + len(b.members) - was[1])

    def _grow(self, db: sqlite3.Connection, stream: str, trimmed: int, count: int, size: int) -> None:
        """Keep account of what a stream holds."""
        db.execute(
            "INSERT INTO streams VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "trimmed = max(trimmed, excluded.trimmed), count = count + excluded.count, bytes = bytes + excluded.bytes",
            (stream, trimmed, count, size),
        )

    def _note(self, db: sqlite3.Connection, batch: int, stats: BatchStats | None) -> None:
        # A lost checkpoint begins at batch 0 again, so later ones may be there from before.
        db.execute("DELETE FROM batch_stats WHERE batch >= ? OR batch <= ?", (batch, batch - MAX_STATS))
        if stats is not None:
            row = batch, stats.at, stats.events, stats.deliveries, stats.milliseconds, stats.version
            db.execute("INSERT INTO batch_stats VALUES (?, ?, ?, ?, ?, ?)", row)

    def _trim(self, db: sqlite3.Connection, stream: str, through: int) -> tuple[int, bool]:
        through = min(through, self.reached().streams.get(stream, 0))  # what is not decided yet cannot be gone
        if through <= 0:
            return 0, False
        rows = db.execute(
            f"SELECT rowid, last, count, {_BYTES} FROM deliveries WHERE stream = ? AND first <= ? AND last <= ? "  # noqa: S608
            "ORDER BY first, part LIMIT ?",
            (stream, through, through, TRIM_BLOBS),
        ).fetchall()
        db.executemany("DELETE FROM deliveries WHERE rowid = ?", [row[:1] for row in rows])
        more = len(rows) == TRIM_BLOBS
        count, size = sum(row[2] for row in rows), sum(row[3] for row in rows)
        self._grow(db, stream, rows[-1][1] if more else through, -count, -size)
        return count, more

    # -- how far ----------------------------------------------------------------------------------------------

    def reached(self, before: int | None = None) -> Reached:
        """How far the newest batch reached, or the newest one before a batch."""
        query = (  # one statement, so that all of it is of one batch
            "WITH newest AS (SELECT max(batch) AS batch FROM progress WHERE batch < ?) "
            "SELECT 0, stream, last FROM progress JOIN newest USING (batch) "
            "UNION ALL SELECT 1, subscription, time FROM held JOIN newest USING (batch)"
        )
        streams: dict[str, int] = {}
        held: dict[int, int] = {}
        for is_held, name, value in self._rows(query, 2**62 if before is None else before):
            (held if is_held else streams)[name] = value
        return Reached(streams.pop(_VERSION, 0), streams, held)

    def remarks(self, before: int | None = None) -> list[Remark]:
        """What was said of subscriptions, or only before a batch."""
        query = "SELECT subscription, code, number, promise, text FROM remarks WHERE batch < ? ORDER BY 1, 2"
        return [Remark(*row) for row in self._rows(query, 2**62 if before is None else before)]

    def counts(self, before: int) -> dict[int, tuple[int, int]]:
        """What subscriptions had got before a batch, in the newest hour of each in which they got anything."""
        query = (
            "SELECT subscription, iif(batch < ?1, hour, hour_before), iif(batch < ?1, count, count_before) FROM counts "
            "WHERE ?1 > 0"
        )
        return {number: (hour, count) for number, hour, count in self._rows(query, before) if count}

    def trimmed(self) -> dict[str, int]:
        """The event of each stream through which deliveries were deleted."""
        return dict(self._rows("SELECT stream, trimmed FROM streams ORDER BY stream"))

    def size(self, stream: str) -> Size:
        """How many deliveries and bytes a stream has."""
        return Size(*self._row("SELECT count, bytes FROM streams WHERE stream = ?", stream) or (0, 0))

    def chunks(self, stream: str, limit: int) -> list[Chunk]:
        """The oldest deliveries of a stream, append by append, at most so many."""
        query = (
            f"SELECT max(last), max(written), sum({_BYTES}) FROM deliveries WHERE stream = ? "  # noqa: S608
            "GROUP BY first ORDER BY first LIMIT ?"
        )
        return [Chunk(*row) for row in self._rows(query, stream, limit)]

    def stats(self, last: int = MAX_STATS) -> list[BatchStats]:
        """The figures of the newest micro-batches, the newest at the end."""
        rows = self._rows("SELECT * FROM batch_stats ORDER BY batch DESC LIMIT ?", last)
        return [BatchStats(*row) for row in reversed(rows)]

    def count(self) -> int:
        """How many deliveries there are."""
        return int(self._row("SELECT coalesce(sum(count), 0) FROM deliveries")[0])

    # -- what was delivered -----------------------------------------------------------------------------------

    def blobs(self, stream: str | None = None) -> Iterator[DeliveryBlob]:
        """What was delivered, in order, checked as it is read."""
        with failures(self.path):
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM deliveries WHERE ? IS NULL OR stream = ? ORDER BY stream, first, part",  # noqa: S608
                (stream, stream),
            )
            for row in rows:
                yield self._checked(row)

    def for_subscription(
        self,
        number: int,
        stream: str,
        after: int,
        through: int,
        limit: int,
        *,
        resume: tuple[int, int] | None = None,
    ) -> BlobPage:
        """At most `limit` blobs with `last > after` and `first <= through` that hold a subscription, in order.

        A call looks at `MAX_SCAN` blobs at most, and reads only those it gives back. Call again with `resume` until
        that is None; `after` and `through` stay the same.
        """
        with failures(self.path):
            rows = self._db.execute(
                "SELECT rowid, first, part, last, members FROM deliveries "
                "WHERE stream = ? AND (first, part) > (?, ?) AND first <= ? ORDER BY first, part LIMIT ?",
                (stream, *(resume or self._before(stream, after)), through, MAX_SCAN),
            )
            blobs: list[DeliveryBlob] = []
            for scanned, (rowid, first, part, last, members) in enumerate(rows, 1):
                if last > after and self._holds(members, number, stream, first, last):
                    blobs.append(self._read(rowid))
                if len(blobs) == limit or scanned == MAX_SCAN:
                    return BlobPage(tuple(blobs), (first, part))
            return BlobPage(tuple(blobs), None)

    def _before(self, stream: str, after: int) -> tuple[int, int]:
        """The place just before the append that holds, or follows, an event."""
        (first,) = self._row("SELECT max(first) FROM deliveries WHERE stream = ? AND first <= ?", stream, after)
        return (after if first is None else first), -1

    def _holds(self, members: bytes, number: int, stream: str, first: int, last: int) -> bool:
        try:
            return contains(members, number)
        except ValueError as error:
            raise self._damage(stream, first, last) from error

    def _read(self, rowid: int) -> DeliveryBlob:
        row = self._db.execute(f"SELECT {_COLUMNS} FROM deliveries WHERE rowid = ?", (rowid,)).fetchone()  # noqa: S608
        return self._checked(row)

    def after(self, positions: Mapping[str, int], limit_bytes: int) -> BlobTail:
        """New deliveries to live subscriptions past these positions, as far as the newest batch reached.

        Every stream gets its share of about `limit_bytes`, and one blob at least.
        """
        reached = self.reached().streams
        blobs: list[DeliveryBlob] = []
        come: dict[str, int] = dict(positions)
        more = False
        for stream, end in sorted(reached.items()):
            held, come[stream] = self._past(stream, positions.get(stream, 0), end, limit_bytes // len(reached))
            more = more or come[stream] < end
            blobs += held
        return BlobTail(tuple(blobs), come, more)

    def _past(self, stream: str, after: int, through: int, room: int) -> tuple[list[DeliveryBlob], int]:
        """The part 0 of a stream in `(after, through]` up to about `room` bytes, and how far that is."""
        blobs: list[DeliveryBlob] = []
        with failures(self.path):
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM deliveries WHERE stream = ? AND first >= ? AND first <= ? AND part = 0 "  # noqa: S608
                "AND last > ? ORDER BY first",
                (stream, self._before(stream, after)[0], through, after),
            )
            for row in rows:
                if blobs and (room <= 0 or len(blobs) >= MAX_SCAN):
                    rows.close()
                    return blobs, blobs[-1].last
                blobs.append(self._checked(row))
                room -= len(row[-1])
        return blobs, max(after, through)

    def _checked(self, row: tuple[Any, ...]) -> DeliveryBlob:
        stream, first, part, last, version, count, crc, members, blob = row
        if zlib.crc32(blob) != crc:
            raise self._damage(stream, first, last)
        return DeliveryBlob(stream, first, last, version, part, count, blob, members)

    def _damage(self, stream: str, first: int, last: int) -> Damaged:
        return Damaged(
            f"`{self.path}`: the deliveries of events {first} to {last} of stream `{stream}` are not what was written",
            remedy="delete the store and replay it from the log",
        )
