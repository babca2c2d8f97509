"""The embedded event log: streams of appended batches, with the starting point of every version.

Guarantees (D7): an append is durable before it returns, numbered without gaps, written only by the holder of the
stream's newest fencing token, and stamped with the newest version recorded for its stream, which must be the one the
writer decided at. Starting points never go back. While a lease runs, no other holder takes the stream. Events whose
keys were appended lately, by whatever process, are held back for the writer to compare. Events that were decided by how
many there were before are appended only if there are no more by then (`appends.Counts`). What was trimmed is known and
passed over by readers; any other gap, and a blob that is not what was written, is `damaged`, never skipped.
Leaves out: what a lease protects. It keeps writers from fighting; the fencing token is what makes an append safe, so a
lease that lapsed and was not taken may still append. Readers beside a writer open their own, with `read_only`.
"""

from __future__ import annotations

import os
import secrets
import socket
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from headgate.decide.rates import Rates
from headgate.model.errors import BadDefinition, Damaged, Fenced, NotFound, StaleVersion, StreamHeld
from headgate.model.values import moment
from headgate.pipeline.log.appends import Append, Counts, Repeats, Window
from headgate.pipeline.log.codec import LogBatch
from headgate.pipeline.log.sqlite_files import StreamFile, failures, transaction

FORMAT = 2
_SCHEMA = """
CREATE TABLE streams (stream TEXT PRIMARY KEY, token INTEGER NOT NULL, last INTEGER NOT NULL, version INTEGER NOT NULL,
    holder TEXT NOT NULL, expires INTEGER NOT NULL, trimmed INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE numbers (number INTEGER PRIMARY KEY, stream TEXT NOT NULL UNIQUE);
CREATE TABLE batches (number INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, version INTEGER NOT NULL, time INTEGER NOT NULL, horizon INTEGER NOT NULL,
    crc INTEGER NOT NULL, keys BLOB, blob BLOB NOT NULL, UNIQUE (stream, first));
CREATE TABLE starts (stream TEXT NOT NULL, version INTEGER NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (stream, version)) WITHOUT ROWID
"""
_COLUMNS = "b.first, b.last, b.version, b.time, b.crc, b.blob"
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


Answer: TypeAlias = int | StaleVersion | Repeats | BadDefinition
"""The first sequence number of an append, or why it was refused."""

MAX_GROUP = 1_024
"""Appends written in one transaction."""

TRIM_APPENDS = 200
"""Appends deleted in one transaction, so that writers wait for no more."""


class EventLog(StreamFile):
    """The log file of one domain."""

    FORMAT = FORMAT
    SCHEMA = _SCHEMA

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
        first, last, version, time, crc, blob = row
        if zlib.crc32(blob) != crc:
            raise Damaged(
                f"`{self.path}`: events {first} to {last} of stream `{stream}` are not what was written",
                remedy="restore the log from a copy",
            )
        return LogBatch(stream, first, last, version, time, blob)

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
        with transaction(self._db, self.path) as db:
            db.execute("INSERT OR IGNORE INTO streams VALUES (?, 0, 0, 0, '', 0, 0, 0)", (stream,))
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
        last, size = begin, 0
        for append in appends:
            if append.version != newest:
                stale = StaleVersion(f"`{stream}` is at version {newest}, not {append.version}", remedy="decide again")
                answers.append(stale)
                continue
            if self._counts.has_news_for(append):
                answers.append(StaleVersion("the rate has changed, by what others appended", remedy="decide again"))
                continue
            refusal = append.refusal() or self._window.repeats(db, append)
            if refusal is not None:
                answers.append(refusal)
                continue
            first, last = last + 1, last + append.count
            keys = append.packed_keys()
            done = db.execute(
                "INSERT INTO batches (stream, first, last, version, time, horizon, crc, keys, blob) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (stream, first, last, append.version, *[append.time] * 2, zlib.crc32(append.blob), keys, append.blob),
            )
            assert done.lastrowid is not None
            self._window.add(append, done.lastrowid)
            kept.append((done.lastrowid, append))
            size += len(append.blob) + len(keys or b"")
            answers.append(first)
        if last > begin:
            db.execute("UPDATE streams SET last = ?, bytes = bytes + ? WHERE stream = ?", (last, size, stream))
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
