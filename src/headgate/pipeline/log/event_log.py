"""The embedded event log: streams of appended batches, with the starting point of every version.

Guarantees (D7): an append is durable before it returns, numbered without gaps, written only by the holder of the
stream's newest fencing token, and stamped with the newest version recorded for its stream, which must be the one the
writer decided at. Starting points never go back. While a lease runs, no other holder takes the stream. Events whose
keys were appended lately, by whatever process, are held back for the writer to compare. Events that were decided by how
many there were before are appended only if there are no more by then (`appends.Counts`). No event is appended that
occurred before a time that was promised (`promises`), and the stream's own promise is part of the append. What was
trimmed is known and passed over by readers; any other gap, and a blob that is not what was written, is `damaged`, never
skipped.
Leaves out: what a lease protects. It keeps writers from fighting; the fencing token is what makes an append safe, so a
lease that lapsed and was not taken may still append. Readers beside a writer open their own, with `read_only`.
"""

from __future__ import annotations

import os
import secrets
import socket
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from headgate.decide.rates import Rates
from headgate.model.errors import BadDefinition, Damaged, Fenced, NotFound, StaleVersion, StreamHeld
from headgate.model.types import Times
from headgate.model.values import moment
from headgate.pipeline import PROMISES, SIGNALS
from headgate.pipeline.log import promises
from headgate.pipeline.log.appends import Append, Counts, Repeats, Window
from headgate.pipeline.log.codec import LogBatch
from headgate.pipeline.log.promises import OF_STREAM, Early, Promise, Promised, PromiseTable
from headgate.storage.files import StreamFile, failures, transaction

FORMAT = 3
_SCHEMA = f"""
CREATE TABLE streams (stream TEXT PRIMARY KEY, token INTEGER NOT NULL, last INTEGER NOT NULL, version INTEGER NOT NULL,
    holder TEXT NOT NULL, expires INTEGER NOT NULL, trimmed INTEGER NOT NULL, bytes INTEGER NOT NULL,
    promised INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE numbers (number INTEGER PRIMARY KEY, stream TEXT NOT NULL UNIQUE);
CREATE TABLE batches (number INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, version INTEGER NOT NULL, time INTEGER NOT NULL, horizon INTEGER NOT NULL,
    crc INTEGER NOT NULL, keys BLOB, blob BLOB NOT NULL, UNIQUE (stream, first));
CREATE TABLE starts (stream TEXT NOT NULL, version INTEGER NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (stream, version)) WITHOUT ROWID;
{promises.SCHEMA}
"""
_PROMISED = """
ALTER TABLE streams ADD COLUMN promised INTEGER NOT NULL DEFAULT 0;
UPDATE streams SET promised = coalesce((SELECT max(horizon) FROM batches WHERE batches.stream = streams.stream), 0);
"""
_UPGRADES = {2: _PROMISED + promises.SCHEMA}
"""What makes a log of an older format one of the next."""
_COLUMNS = "b.first, b.last, b.version, b.time, b.crc, b.blob, b.number, b.horizon"
BYTES = "length(blob) + coalesce(length(keys), 0)"
"""What an append counts for. SQLite knows the lengths without reading the content."""


@dataclass(frozen=True, slots=True)
class StreamTail:
    """The end of a stream: its last event, the newest version recorded for it, and how far it was trimmed."""

    last: int
    version: int
    trimmed: int = 0


@dataclass(frozen=True, slots=True)
class Size:
    """How many events or deliveries a stream holds, and how many bytes."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """What goes together when a stream is trimmed: its last event, its time in microseconds, and its bytes."""

    last: int
    time: int
    bytes: int


Answer: TypeAlias = int | StaleVersion | Repeats | Early | BadDefinition
"""The first sequence number of an append, or why it was refused."""

MAX_GROUP = 1_024
"""Appends written in one transaction."""

TRIM_APPENDS = 200
"""Appends deleted in one transaction, so that writers wait for no more."""


class EventLog(StreamFile):
    """The log file of one domain."""

    FORMAT = FORMAT
    SCHEMA = _SCHEMA
    UPGRADES = _UPGRADES

    def __init__(self, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        super().__init__(path, create=create, read_only=read_only)
        self._window = Window(path, salt=secrets.randbits(63))
        self._counts = Counts(self._checked)

    # -- streams ----------------------------------------------------------------------------------------------

    def tails(self) -> dict[str, StreamTail]:
        """The end of every stream."""
        rows = self._rows("SELECT stream, last, version, trimmed FROM streams ORDER BY stream")
        return {stream: StreamTail(*tail) for stream, *tail in rows}

    def trimmed(self) -> dict[str, int]:
        """The last event that is no longer there, of every stream."""
        return {stream: tail.trimmed for stream, tail in self.tails().items()}

    def starts(self, newer: Mapping[str, int] | None = None) -> list[tuple[str, int, int]]:
        """Every starting point: stream, version, seq; with `newer`, only those after a stream's version in it."""
        if newer is None:
            return self._rows("SELECT stream, version, seq FROM starts ORDER BY stream, version")
        query = "SELECT stream, version, seq FROM starts WHERE stream = ? AND version > ? ORDER BY version"
        return [row for stream in self.tails() for row in self._rows(query, stream, newer.get(stream, -1))]

    def starts_at(self, version: int) -> dict[str, int]:
        """The first event of each stream that a version, or a later one, applies to, where that is known."""
        return dict(self._rows("SELECT stream, min(seq) FROM starts WHERE version >= ? GROUP BY stream", version))

    def numbers(self) -> dict[str, int]:
        """The number of each stream, which never changes."""
        return dict(self._rows("SELECT stream, number FROM numbers"))

    def size(self, stream: str) -> Size:
        """How many events and bytes a stream holds."""
        return Size(*self._row("SELECT last - trimmed, bytes FROM streams WHERE stream = ?", stream) or (0, 0))

    def chunks(self, stream: str, limit: int) -> list[Chunk]:
        """The oldest appends of a stream, at most so many."""
        query = f"SELECT last, time, {BYTES} FROM batches WHERE stream = ? ORDER BY first LIMIT ?"  # noqa: S608
        return [Chunk(*row) for row in self._rows(query, stream, limit)]

    # -- appends ----------------------------------------------------------------------------------------------

    def ends(self, stream: str, after: int, limit: int, newest: int) -> int:
        """How far a reader may go past `after`: whole appends, about `limit` events, none past version `newest`."""
        with failures(self.path):
            begin = end = max(after, self._trimmed(stream))
            rows = self._db.execute(
                "SELECT last, version FROM batches WHERE stream = ? AND first > ? ORDER BY first", (stream, begin)
            )
            for last, version in rows:
                if version > newest or (end > begin and last - begin > limit):
                    break
                end = int(last)
            return end

    def oldest_version(self, decided: Mapping[str, int], otherwise: int) -> int:
        """The oldest version of an event after these positions."""
        query = "SELECT version FROM batches WHERE stream = ? AND first > ? ORDER BY first LIMIT 1"
        oldest = [self._row(query, stream, decided.get(stream, 0)) for stream in self.tails()]
        return min((row[0] for row in oldest if row is not None), default=otherwise)

    def batches(self, stream: str, after: int, through: int) -> Iterator[LogBatch]:
        """The appends with `after < first` and `last <= through` that were not trimmed, checked as they are read."""
        with failures(self.path):
            # One statement sees one state of the file, so that a trim meanwhile is no gap.
            rows = self._db.execute(
                f"SELECT s.trimmed, {_COLUMNS} FROM streams s LEFT JOIN batches b ON b.stream = s.stream "  # noqa: S608
                "AND b.first > max(?, s.trimmed) AND b.first <= ? AND b.last <= ? "
                "WHERE s.stream = ? ORDER BY b.first",
                (after, through, through, stream),
            )
            expected = after + 1
            for trimmed, *row in rows:
                expected = max(expected, trimmed + 1)
                if row[0] is None:  # nothing but the place it was trimmed to
                    break
                if row[0] != expected:
                    raise Damaged(f"`{self.path}`: stream `{stream}` lacks events {expected} to {row[0] - 1}")
                found = self._checked(stream, row)
                yield found
                expected = found.last + 1
        if expected <= through:
            raise Damaged(f"`{self.path}`: stream `{stream}` lacks events {expected} to {through}")

    def append_holding(self, stream: str, seq: int) -> LogBatch:
        """The append that holds an event."""
        query = f"SELECT {_COLUMNS} FROM batches b WHERE stream = ? AND first <= ? ORDER BY first DESC LIMIT 1"  # noqa: S608
        row = self._row(query, stream, seq)
        if row is None or row[1] < seq:
            raise NotFound(f"no event {seq} in stream `{stream}`")
        return self._checked(stream, row)

    def _checked(self, stream: str, row: Sequence[Any]) -> LogBatch:
        first, last, version, time, crc, blob, number, horizon = row
        if zlib.crc32(blob) != crc:
            raise Damaged(
                f"`{self.path}`: events {first} to {last} of stream `{stream}` are not what was written",
                remedy="restore the log from a copy",
            )
        return LogBatch(stream, first, last, version, time, blob, number, horizon)

    def _trimmed(self, stream: str) -> int:
        row = self._row("SELECT trimmed FROM streams WHERE stream = ?", stream)
        return int(row[0]) if row is not None else 0

    # -- leases -----------------------------------------------------------------------------------------------

    def take(
        self,
        stream: str,
        version: int,
        *,
        holder: str = "",
        now: int = 0,
        ttl: int = 0,
        dead: Callable[[str], bool] = lambda _holder: False,
    ) -> int:
        """Become the writer of a stream, from this version on, and get a fencing token; older ones stop working.

        The lease lasts `ttl` microseconds, in which no other holder may take the stream unless this one is `dead`.
        Without it anyone may take the stream over at once.
        """
        if stream in (SIGNALS, PROMISES):
            raise BadDefinition(f"a stream cannot be called `{stream}`", remedy="choose another name")
        with transaction(self._db, self.path) as db:
            db.execute("INSERT OR IGNORE INTO streams VALUES (?, 0, 0, 0, '', 0, 0, 0, 0)", (stream,))
            db.execute("INSERT OR IGNORE INTO numbers (stream) VALUES (?)", (stream,))
            was, expires = db.execute("SELECT holder, expires FROM streams WHERE stream = ?", (stream,)).fetchone()
            if now < expires and was != holder and not dead(was):
                raise StreamHeld(
                    f"`{was}` holds the stream `{stream}` until {moment(expires).isoformat()}",
                    holder=was,
                    expires=expires,
                    remedy="publish through it, or wait until its lease lapses",
                )
            db.execute(
                "UPDATE streams SET token = token + 1, holder = ?, expires = ? WHERE stream = ?",
                (holder, now + ttl if ttl else 0, stream),
            )
            self._start(db, stream, version)
            token: int = db.execute("SELECT token FROM streams WHERE stream = ?", (stream,)).fetchone()[0]
        return token

    def leases(self) -> dict[str, int]:
        """When the lease of each stream ends, or ended, that its writer has not given up."""
        return dict(self._rows("SELECT stream, expires FROM streams WHERE holder != '' AND expires > 0"))

    def renew(self, stream: str, token: int, now: int, ttl: int) -> None:
        """Hold a stream for another `ttl` microseconds. A lapsed lease that nobody took is held again."""
        with transaction(self._db, self.path) as db:
            self._held(db, stream, token)
            db.execute("UPDATE streams SET expires = ? WHERE stream = ?", (now + ttl, stream))

    def release(self, stream: str, token: int) -> bool:
        """Give a stream up, so that anyone may take it at once; false if it was no longer held."""
        with transaction(self._db, self.path) as db:
            done = db.execute(
                "UPDATE streams SET token = token + 1, holder = '', expires = 0 WHERE stream = ? AND token = ?",
                (stream, token),
            )
            return done.rowcount == 1

    def _held(self, db: sqlite3.Connection, stream: str, token: int) -> tuple[int, int]:
        """The last event and the version of a stream that this token may write."""
        row = db.execute("SELECT token, last, version FROM streams WHERE stream = ?", (stream,)).fetchone()
        if row is None:
            raise NotFound(f"no stream `{stream}`", remedy="take it first")
        if row[0] != token:
            raise Fenced(f"another writer holds the stream `{stream}`", remedy="take it again")
        return row[1], row[2]

    # -- writing ----------------------------------------------------------------------------------------------

    def start(self, version: int) -> dict[str, int]:
        """Record the starting point of a version in every stream: `{stream: first seq it applies to}`."""
        with transaction(self._db, self.path) as db:
            streams = [row[0] for row in db.execute("SELECT stream FROM streams")]
            return {stream: self._start(db, stream, version) for stream in streams}

    def append_many(self, stream: str, token: int, appends: Sequence[Append]) -> list[Answer]:
        """Store several appends in one durable write; each is answered on its own, by its first number or a refusal."""
        if len(appends) > MAX_GROUP:
            raise BadDefinition(f"`{len(appends)}` appends at once; at most {MAX_GROUP}", remedy="send fewer")
        with self._db.lock:
            with failures(self.path):
                self._window.catch_up(self._db, appends)  # the long part, before other processes have to wait
            kept: list[tuple[int, Append]] = []
            try:
                with transaction(self._db, self.path) as db:
                    answers = self._append(db, stream, token, appends, kept)
            except BaseException:
                self._window.settle(kept=False)
                raise
            self._window.settle(kept=True)
            if any(one.counts is not None for one in appends):
                self._counts.took(kept)
            return answers

    def counted(self, now: datetime) -> Rates:
        """How often publishers have published of late, in all streams, for appends that carry their own counts."""
        with self._db.lock, failures(self.path):
            return self._counts.begin(self._db, now)

    def rate(self, publisher: str, type_name: str, now: datetime) -> int:
        """How many events a publisher has had accepted of late, for whoever decides nothing by it."""
        with self._db.lock, failures(self.path):
            return self._counts.rate(self._db, publisher, type_name, now)

    def repeats(self, append: Append) -> Repeats | None:
        """The earlier appends that may hold events of one that is not written."""
        with self._db.lock, failures(self.path):
            self._window.catch_up(self._db, [append])
            return self._window.repeats(self._db, append)

    def _append(
        self,
        db: sqlite3.Connection,
        stream: str,
        token: int,
        appends: Sequence[Append],
        kept: list[tuple[int, Append]],
    ) -> list[Answer]:
        begin, newest = self._held(db, stream, token)
        self._window.catch_up(db, appends)
        if counted := [one.time for one in appends if one.counts is not None]:
            self._counts.catch_up(db, max(counted))
        answers: list[Answer] = []
        table = PromiseTable(db)
        last, size, promised = begin, 0, table.of_stream(stream)
        for append in appends:
            if append.version != newest:
                stale = StaleVersion(f"`{stream}` is at version {newest}, not {append.version}", remedy="decide again")
                answers.append(stale)
                continue
            if self._counts.has_news_for(append):
                answers.append(StaleVersion("the rate has changed, by what others appended", remedy="decide again"))
                continue
            if append.promises and append.time < promised:
                answers.append(StaleVersion("the stream has promised a later time", remedy="decide again"))
                continue
            known = append.refusal() or self._window.repeats(db, append)  # what was sent before is never early
            refusal = known or table.early(stream, append.publisher, append.occurred)
            if refusal is not None:
                answers.append(refusal)
                continue
            table.join(stream, append.publisher, append.occurred, append.time)
            promised = max(promised, horizon := append.time if append.promises else 0)
            first, last = last + 1, last + append.count
            keys = append.packed_keys()
            done = db.execute(
                "INSERT INTO batches (stream, first, last, version, time, horizon, crc, keys, blob) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(stream, first, last, append.version, append.time, horizon),
                    *(zlib.crc32(append.blob), keys, append.blob),
                ),
            )
            assert done.lastrowid is not None
            self._window.add(append, done.lastrowid)
            kept.append((done.lastrowid, append))
            size += len(append.blob) + len(keys or b"")
            answers.append(first)
        if last > begin:
            db.execute(
                "UPDATE streams SET last = ?, bytes = bytes + ?, promised = ? WHERE stream = ?",
                (last, size, promised, stream),
            )
        return answers

    def _start(self, db: sqlite3.Connection, stream: str, version: int) -> int:
        known = db.execute("SELECT seq FROM starts WHERE stream = ? AND version = ?", (stream, version)).fetchone()
        if known:
            return int(known[0])
        last, newest = db.execute("SELECT last, version FROM streams WHERE stream = ?", (stream,)).fetchone()
        if version < newest:  # a later version already applies here, so this one has no place of its own
            later = db.execute("SELECT min(seq) FROM starts WHERE stream = ? AND version > ?", (stream, version))
            return int(later.fetchone()[0])
        db.execute("INSERT INTO starts VALUES (?, ?, ?)", (stream, version, last + 1))
        db.execute("UPDATE streams SET version = ? WHERE stream = ?", (version, stream))
        return int(last) + 1

    # -- promises ---------------------------------------------------------------------------------------------

    def promised(self, stream: str) -> int:
        """What a stream has promised itself."""
        return PromiseTable(self._db).of_stream(stream)

    def horizons(self) -> Promised:
        """What every source has promised by now."""
        with failures(self.path):
            joined = self._db.execute("SELECT stream, type, publisher, horizon FROM horizons").fetchall()
            horizons = Promised(dict(self._db.execute("SELECT stream, promised FROM streams")))
        for stream, type, publisher, horizon in joined:
            horizons.joined.setdefault((stream, type), {})[publisher] = horizon
        return horizons

    def promise_clock(self, stream: str, token: int, now: int, since: int) -> bool:
        """Promise the clock for the stream that this token may write, and for streams that nobody holds.

        Only for those that have promised nothing past `since`; true if there were any.
        """
        if not self._row(
            "SELECT 1 FROM streams WHERE promised <= ? AND (stream = ? OR expires < ?)", since, stream, now
        ):
            return False
        with transaction(self._db, self.path) as db:
            self._held(db, stream, token)
            due = db.execute(
                "SELECT stream FROM streams WHERE promised <= ? AND (stream = ? OR expires < ?)", (since, stream, now)
            ).fetchall()
            for (one,) in due:
                PromiseTable(db).record(one, OF_STREAM, OF_STREAM, now, now)
        return bool(due)

    def promise_stream(self, stream: str, horizon: int, now: int) -> bool:
        """Promise for a stream and all who have joined it; false if that moves nothing."""
        with transaction(self._db, self.path) as db:
            table = PromiseTable(db)
            if db.execute("SELECT 1 FROM streams WHERE stream = ?", (stream,)).fetchone() is None:
                raise NotFound(f"no stream `{stream}`")
            sources = db.execute("SELECT publisher, type FROM horizons WHERE stream = ?", (stream,)).fetchall()
            sources.append((OF_STREAM, OF_STREAM))
            moved = [table.record(stream, publisher, type, horizon, now) for publisher, type in sources]
        return any(moved)

    def pass_time(self, stream: str, now: int) -> None:
        """Have a stream tell the clock, by promising once more what it has promised: nothing more."""
        with transaction(self._db, self.path) as db:
            if db.execute("SELECT 1 FROM streams WHERE stream = ?", (stream,)).fetchone() is None:
                raise NotFound(f"no stream `{stream}`")
            PromiseTable(db).repeat(stream, now)

    def promise_alone(self, stream: str, horizon: int, now: int) -> bool:
        """Promise for a stream, and for nobody who has joined it; false if that moves nothing."""
        if self.promised(stream) >= horizon:
            return False
        with transaction(self._db, self.path) as db:
            return PromiseTable(db).record(stream, OF_STREAM, OF_STREAM, horizon, now)

    def promise(
        self,
        stream: str,
        publisher: str,
        types: Mapping[str, Times],
        horizon: int,
        now: int,
        *,
        everywhere: bool = True,
    ) -> tuple[dict[str, int], bool]:
        """Promise for what a publisher sends of some types, here or wherever it has joined; it joins this stream.

        What it has promised from then on in this stream, by type: that is more where it was more before; and whether
        anything moved.
        """
        moved = False
        with transaction(self._db, self.path) as db:
            table = PromiseTable(db)
            for type, times in types.items():
                if table.of(stream, type, publisher) is None:
                    table.record(stream, publisher, type, table.horizon(stream, type, times), now)
                others = db.execute("SELECT stream FROM horizons WHERE publisher = ? AND type = ?", (publisher, type))
                for (one,) in others.fetchall() if everywhere else ((stream,),):
                    moved |= table.record(one, publisher, type, horizon, now)
            return {type: table.bound(stream, publisher, type, times) for type, times in types.items()}, moved

    def begin_lateness(self, stream: str, token: int, types: Iterable[str], now: int) -> None:
        """From here on a stream's promises for these types go by their lateness."""
        with transaction(self._db, self.path) as db:
            self._held(db, stream, token)
            for type in types:
                PromiseTable(db).begin(stream, type, now)

    def joined_types(self, publisher: str) -> list[str]:
        """The types that a publisher has joined some stream for."""
        query = "SELECT DISTINCT type FROM horizons WHERE publisher = ? ORDER BY type"
        return [type for (type,) in self._rows(query, publisher)]

    # -- all that arrives, in its order -----------------------------------------------------------------------

    def newest(self) -> tuple[int, int]:
        """The numbers of the newest append and of the newest promise; all up to them are there, or were trimmed."""
        row = self._row(
            "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'batches'), "
            "(SELECT seq FROM sqlite_sequence WHERE name = 'promises')"
        )
        return row[0] or 0, row[1] or 0

    def appends_by_number(self, after: int, through: int, limit: int) -> Iterator[LogBatch]:
        """The appends of all streams with `after < number <= through`, in their order; about `limit` events of them."""
        with failures(self.path):
            rows = self._db.execute(
                f"SELECT b.stream, {_COLUMNS} FROM batches b "  # noqa: S608
                "WHERE b.number > ? AND b.number <= ? ORDER BY b.number",
                (after, through),
            )
            events = 0
            for stream, *row in rows:
                found = self._checked(stream, row)
                yield found
                events += found.last - found.first + 1
                if events >= limit:
                    break

    def appends_in_short(self, after: int, through: int) -> Iterator[LogBatch]:
        """The appends of all streams with `after < number <= through`, in their order, without what they bring."""
        with failures(self.path):
            rows = self._db.execute(
                "SELECT stream, first, last, version, time, number, horizon FROM batches "
                "WHERE number > ? AND number <= ? ORDER BY number",
                (after, through),
            )
            for stream, first, last, version, time, number, horizon in rows:
                yield LogBatch(stream, first, last, version, time, b"", number, horizon)

    def number_before(self, version: int) -> int:
        """The number of an append before which all were decided at earlier versions, the greatest there is."""
        row = self._row("SELECT min(number) - 1 FROM batches WHERE version >= ?", version)
        return self.newest()[0] if row[0] is None else int(row[0])

    def newest_by(self, number: int, promise: int) -> tuple[list[LogBatch], list[Promise]]:
        """Through an append and a promise, the newest append of each stream in short, and promise of each source."""
        appends = self._rows(
            "SELECT stream, first, max(last), version, time, number, horizon FROM batches WHERE number <= ? "
            "GROUP BY stream",
            number,
        )
        promises = self._rows(
            "SELECT max(id), after, stream, publisher, type, horizon, clock, version FROM promises WHERE id <= ? "
            "GROUP BY stream, publisher, type",
            promise,
        )
        short = [
            LogBatch(stream, first, last, version, time, b"", at, horizon)
            for stream, first, last, version, time, at, horizon in appends
        ]
        return short, [Promise(*row) for row in promises]

    def promises_by(self, number: int, newest: int) -> int:
        """The newest promise, not past another one, that was made before the append after this one."""
        row = self._row("SELECT max(id) FROM promises WHERE after <= ? AND id <= ?", number, newest)
        return row[0] or 0

    def promises_after(self, after: int, through: int, limit: int) -> list[Promise]:
        """The promises with `after < id <= through`, in their order, at most so many."""
        query = (
            "SELECT id, after, stream, publisher, type, horizon, clock, version FROM promises "
            "WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
        )
        return [Promise(*row) for row in self._rows(query, after, through, limit)]

    def passed_promise(self) -> int:
        """The newest promise before the last append that was trimmed: whoever has read that append has read it too."""
        query = (
            "SELECT coalesce(max(id), 0) FROM promises WHERE after + 1 < coalesce((SELECT min(number) FROM batches), "
            "(SELECT seq + 1 FROM sqlite_sequence WHERE name = 'batches'), 0)"
        )
        return int(self._row(query)[0])

    def trim_promises(self, through: int) -> int:
        """Delete promises up to an id that were made before the oldest append that is there; not the newest of any."""
        with transaction(self._db, self.path) as db:
            oldest = db.execute("SELECT min(number) FROM batches").fetchone()[0] or PromiseTable(db).newest()
            gone = db.execute(
                "DELETE FROM promises WHERE id <= ? AND after < ? AND id NOT IN (SELECT newest FROM horizons) "
                "AND id NOT IN (SELECT max(id) FROM promises WHERE publisher = '' AND type = '' GROUP BY stream)",
                (through, oldest),
            )
            return gone.rowcount

    # -- trimming ---------------------------------------------------------------------------------------------

    def _trim(self, db: sqlite3.Connection, stream: str, through: int) -> tuple[int, bool]:
        row = db.execute("SELECT trimmed FROM streams WHERE stream = ?", (stream,)).fetchone()
        if row is None:
            raise NotFound(f"no stream `{stream}`")
        begin = end = row[0]
        freed = 0
        rows = db.execute(
            f"SELECT first, last, {BYTES} FROM batches "  # noqa: S608
            "WHERE stream = ? AND first <= ? AND last <= ? ORDER BY first LIMIT ?",
            (stream, through, through, TRIM_APPENDS),
        )
        for first, last, size in rows:
            if first != end + 1:  # trimming past it would hide it
                raise Damaged(f"`{self.path}`: stream `{stream}` lacks events {end + 1} to {first - 1}")
            end, freed = last, freed + size
        db.execute("DELETE FROM batches WHERE stream = ? AND first > ? AND first <= ?", (stream, begin, end))
        db.execute("UPDATE streams SET trimmed = ?, bytes = bytes - ? WHERE stream = ?", (end, freed, stream))
        return end - begin, end > begin


_PROC = Path("/proc")
_GONE = ("Z", "X", "x")
"""States of a process that will never run again."""


def holder_of_this_process(name: str) -> str:
    """`host:pid:start:name` of the process that asks."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_started(pid) or 0}:{name}"


def is_dead(holder: str) -> bool:
    """Is this holder known to have ended? Only if it ran on this machine, and its process is gone.

    Of other machines nothing is known. A wrong guess costs a takeover, not an event.
    """
    host, pid, start = (*holder.split(":", 3), "", "", "")[:3]
    if host != socket.gethostname() or not pid.isdecimal() or not start.isdecimal() or int(start) == 0:
        return False
    if _started(os.getpid()) is None:  # no process can be looked up here
        return False
    return _started(int(pid)) != int(start)


def _started(pid: int) -> int | None:
    """When a living process began, in the kernel's ticks."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] in _GONE else int(fields[19])
