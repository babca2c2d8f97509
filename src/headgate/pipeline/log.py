"""The embedded event log: streams of appended batches, with the starting point of every version.

Guarantees (D7): an append is durable before it returns, numbered without gaps, written only by the holder of the
stream's newest fencing token, and stamped with the newest version recorded for its stream, which must be the one the
writer decided at. Starting points never go back. A blob that is not what was written is `damaged`, never skipped.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.model.errors import Damaged, Fenced, NotFound, StaleVersion
from headgate.pipeline.codec import LogBatch
from headgate.pipeline.files import connect, failures, transaction

FORMAT = 1
_SCHEMA = """
CREATE TABLE streams (stream TEXT PRIMARY KEY, token INTEGER NOT NULL, last INTEGER NOT NULL, version INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE batches (stream TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, version INTEGER NOT NULL,
    time INTEGER NOT NULL, horizon INTEGER NOT NULL, crc INTEGER NOT NULL, blob BLOB NOT NULL,
    PRIMARY KEY (stream, first));
CREATE TABLE starts (stream TEXT NOT NULL, version INTEGER NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (stream, version)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class StreamTail:
    """The end of a stream: its last event, and the newest version recorded for it."""

    last: int
    version: int


class EventLog:
    """The log file of one domain."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._db = connection

    @classmethod
    def create(cls, path: Path) -> EventLog:
        """Make an empty log, or open one that is there."""
        return cls(path, connect(path, _SCHEMA, FORMAT, create=True))

    @classmethod
    def open(cls, path: Path) -> EventLog:
        """Open a log that must be there."""
        return cls(path, connect(path, _SCHEMA, FORMAT))

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    # -- writing ----------------------------------------------------------------------------------------------

    def take(self, stream: str, version: int) -> int:
        """Become the writer of a stream, from this version on, and get a fencing token; older ones stop working."""
        with transaction(self._db, self.path) as db:
            db.execute("INSERT OR IGNORE INTO streams VALUES (?, 0, 0, 0)", (stream,))
            db.execute("UPDATE streams SET token = token + 1 WHERE stream = ?", (stream,))
            self._start(db, stream, version)
            token: int = db.execute("SELECT token FROM streams WHERE stream = ?", (stream,)).fetchone()[0]
        return token

    def start(self, version: int) -> dict[str, int]:
        """Record the starting point of a version in every stream: `{stream: first seq it applies to}`."""
        with transaction(self._db, self.path) as db:
            streams = [row[0] for row in db.execute("SELECT stream FROM streams")]
            return {stream: self._start(db, stream, version) for stream in streams}

    def append(self, stream: str, token: int, version: int, time: int, count: int, blob: bytes) -> int:
        """Store `count` events decided at `version`; returns the first sequence number."""
        with transaction(self._db, self.path) as db:
            row = db.execute("SELECT token, last, version FROM streams WHERE stream = ?", (stream,)).fetchone()
            if row is None:
                raise NotFound(f"no stream `{stream}`", remedy="take it first")
            if row[0] != token:
                raise Fenced(f"another writer holds the stream `{stream}`", remedy="take it again")
            if row[2] != version:
                raise StaleVersion(f"`{stream}` is at version {row[2]}, not {version}", remedy="decide again")
            first, last = row[1] + 1, row[1] + count
            db.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (stream, first, last, version, time, time, zlib.crc32(blob), blob),
            )
            db.execute("UPDATE streams SET last = ? WHERE stream = ?", (last, stream))
        return int(first)

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

    # -- reading ----------------------------------------------------------------------------------------------

    def tails(self) -> dict[str, StreamTail]:
        """The end of every stream."""
        with failures(self.path):
            rows = self._db.execute("SELECT stream, last, version FROM streams ORDER BY stream")
            return {stream: StreamTail(last, version) for stream, last, version in rows}

    def ends(self, stream: str, after: int, limit: int, newest: int) -> int:
        """How far a reader may go past `after`: whole appends, about `limit` events, none past version `newest`."""
        with failures(self.path):
            rows = self._db.execute(
                "SELECT last, version FROM batches WHERE stream = ? AND first > ? ORDER BY first", (stream, after)
            )
            end = after
            for last, version in rows:
                if version > newest or (end > after and last - after > limit):
                    break
                end = int(last)
            return end

    def oldest_version(self, decided: Mapping[str, int], otherwise: int) -> int:
        """The oldest version of an event after these positions."""
        with failures(self.path):
            found = [
                self._db.execute(
                    "SELECT version FROM batches WHERE stream = ? AND first > ? ORDER BY first LIMIT 1",
                    (stream, decided.get(stream, 0)),
                ).fetchone()
                for stream in self.tails()
            ]
            return min((row[0] for row in found if row is not None), default=otherwise)

    def batches(self, stream: str, after: int, through: int) -> Iterator[LogBatch]:
        """The appends with `after < first` and `last <= through`, checked as they are read."""
        expected = after + 1
        with failures(self.path):
            rows = self._db.execute(
                "SELECT first, last, version, time, crc, blob FROM batches "
                "WHERE stream = ? AND first > ? AND last <= ? ORDER BY first",
                (stream, after, through),
            )
            for first, last, version, time, crc, blob in rows:
                if first != expected:
                    raise Damaged(f"`{self.path}`: stream `{stream}` lacks events {expected} to {first - 1}")
                if zlib.crc32(blob) != crc:
                    raise Damaged(
                        f"`{self.path}`: events {first} to {last} of stream `{stream}` are not what was written",
                        remedy="restore the log from a copy",
                    )
                yield LogBatch(stream, first, last, version, time, blob)
                expected = last + 1
        if expected <= through:
            raise Damaged(f"`{self.path}`: stream `{stream}` lacks events {expected} to {through}")

    def append_before(self, stream: str, seq: int) -> int:
        """The last event of the append before the one that holds an event."""
        with failures(self.path):
            rows = self._db.execute(
                "SELECT first FROM batches WHERE stream = ? AND first <= ? ORDER BY first DESC LIMIT 1", (stream, seq)
            )
            found = rows.fetchone()
            return int(found[0]) - 1 if found else 0

    def starts(self) -> list[tuple[str, int, int]]:
        """Every starting point: stream, version, seq."""
        with failures(self.path):
            return list(self._db.execute("SELECT stream, version, seq FROM starts ORDER BY stream, version"))
