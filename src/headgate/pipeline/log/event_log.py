"""The embedded event log: streams of appended batches, with the starting point of every version.

Guarantees (D7): an append is durable before it returns, numbered without gaps, written only by the holder of the
stream's newest fencing token, and stamped with the newest version recorded for its stream, which must be the one the
writer decided at. Starting points never go back. While a lease runs, no other holder takes the stream. Events whose
keys were appended lately, by whatever process, are held back for the writer to compare. Events that were decided by how
many there were before are appended only if there are no more by then (`counts`).
Leaves out: what a lease protects. It keeps writers from fighting; the fencing token is what makes an append safe, so a
lease that lapsed and was not taken may still append.
"""

from __future__ import annotations

import secrets
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from headgate.decide.rates import Rates
from headgate.model.errors import BadDefinition, Damaged, Fenced, NotFound, StaleVersion, StreamHeld
from headgate.model.values import moment
from headgate.pipeline.log.appends import Append, Counted, Repeat, Repeats, Window
from headgate.pipeline.log.counts import Counts
from headgate.pipeline.log.holders import never
from headgate.pipeline.log.log_file import BYTES, Lease, LogFile, Size, StreamTail
from headgate.pipeline.log.recent import Keys
from headgate.pipeline.log.sqlite_files import LockedConnection, failures, shrink, transaction

__all__ = ["Append", "EventLog", "Lease", "Repeat", "Repeats", "Size", "StreamTail"]

Answer: TypeAlias = int | StaleVersion | Repeats | BadDefinition
"""The first sequence number of an append, or why it was refused."""

MAX_GROUP = 1_024
"""Appends written in one transaction."""

TRIM_APPENDS = 200
"""Appends deleted in one transaction, so that writers wait for no more."""


class EventLog(LogFile):
    """The log file of one domain."""

    def __init__(self, path: Path, connection: LockedConnection) -> None:
        super().__init__(path, connection)
        self._window = Window(path, salt=secrets.randbits(63))
        self._counts = Counts(self._checked)

    # -- leases -----------------------------------------------------------------------------------------------

    def take(
        self,
        stream: str,
        version: int,
        *,
        holder: str = "",
        now: int = 0,
        ttl: int = 0,
        dead: Callable[[str], bool] = never,
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

    def append(
        self,
        stream: str,
        token: int,
        version: int,
        time: int,
        count: int,
        blob: bytes,
        *,
        keys: Keys | None = None,
        window: int = 0,
        accept: frozenset[Repeat] = frozenset(),
        counts: tuple[Counted, ...] | None = None,
    ) -> int:
        """Store `count` events decided at `version`; returns the first sequence number."""
        (answer,) = self.append_many(stream, token, [Append(version, time, count, blob, keys, window, accept, counts)])
        if not isinstance(answer, int):
            raise answer
        return answer

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
                (
                    stream,
                    first,
                    last,
                    append.version,
                    append.time,
                    append.time,
                    zlib.crc32(append.blob),
                    keys,
                    append.blob,
                ),
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

    def trim(self, stream: str, through: int) -> int:
        """Delete the whole appends that end at or before an event; returns how many events went."""
        gone = 0
        while True:
            with transaction(self._db, self.path) as db:
                count = self._trim(db, stream, through)
            if count == 0:
                break
            gone += count
        if gone:
            shrink(self._db, self.path)
        return gone

    def _trim(self, db: sqlite3.Connection, stream: str, through: int) -> int:
        """Delete some of the oldest appends, and record it; returns how many events went."""
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
        return int(end - begin)
