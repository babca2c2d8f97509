"""Reading the embedded event log: how far streams go, and their appends, checked as they are read.

Guarantees: what was trimmed is known and passed over. Any other gap, and a blob that is not what was written, is
`damaged`, never skipped.
Leaves out: writing (`event_log`). Readers beside a writer open their own, with `read_only`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from headgate.model.errors import Damaged, NotFound
from headgate.pipeline.log.codec import LogBatch
from headgate.pipeline.log.sqlite_files import LockedConnection, changes, connect, failures

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
class Lease:
    """Who writes a stream, and until when, in microseconds, nobody else may take it."""

    holder: str
    expires: int
    token: int


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


class LogFile:
    """The log file of one domain, to read."""

    def __init__(self, path: Path, connection: LockedConnection) -> None:
        self.path = path
        self._db = connection

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make an empty log, or open one that is there."""
        return cls(path, connect(path, _SCHEMA, FORMAT, create=True))

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """Open a log that must be there."""
        return cls(path, connect(path, _SCHEMA, FORMAT, read_only=read_only))

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def changed(self) -> int:
        """A number that changes whenever another connection has committed."""
        return changes(self._db, self.path)

    # -- streams ----------------------------------------------------------------------------------------------

    def tails(self) -> dict[str, StreamTail]:
        """The end of every stream."""
        with failures(self.path):
            rows = self._db.execute("SELECT stream, last, version, trimmed FROM streams ORDER BY stream")
            return {stream: StreamTail(*tail) for stream, *tail in rows}

    def trimmed(self) -> dict[str, int]:
        """The last event that is no longer there, of every stream."""
        return {stream: tail.trimmed for stream, tail in self.tails().items()}

    def leases(self) -> dict[str, Lease]:
        """Who holds each stream. One that was released, or taken without a lease, expires at 0."""
        with failures(self.path):
            rows = self._db.execute("SELECT stream, holder, expires, token FROM streams ORDER BY stream")
            return {stream: Lease(*lease) for stream, *lease in rows}

    def starts(self, newer: Mapping[str, int] | None = None) -> list[tuple[str, int, int]]:
        """Every starting point: stream, version, seq; with `newer`, only those after a stream's version in it."""
        with failures(self.path):
            if newer is None:
                return list(self._db.execute("SELECT stream, version, seq FROM starts ORDER BY stream, version"))
            return [
                row
                for stream in self.tails()
                for row in self._db.execute(
                    "SELECT stream, version, seq FROM starts WHERE stream = ? AND version > ? ORDER BY version",
                    (stream, newer.get(stream, -1)),
                )
            ]

    def starts_at(self, version: int) -> dict[str, int]:
        """The first event of each stream that a version, or a later one, applies to, where that is known."""
        with failures(self.path):
            rows = self._db.execute(
                "SELECT stream, min(seq) FROM starts WHERE version >= ? GROUP BY stream", (version,)
            )
            return dict(rows.fetchall())

    def numbers(self) -> dict[str, int]:
        """The number of each stream, which never changes."""
        with failures(self.path):
            return dict(self._db.execute("SELECT stream, number FROM numbers").fetchall())

    def size(self, stream: str) -> Size:
        """How many events and bytes a stream holds."""
        with failures(self.path):
            row = self._db.execute("SELECT last - trimmed, bytes FROM streams WHERE stream = ?", (stream,)).fetchone()
            return Size(*row) if row is not None else Size(0, 0)

    def oldest(self, stream: str) -> int | None:
        """The time of the oldest append of a stream, in microseconds."""
        found = self.chunks(stream, 1)
        return found[0].time if found else None

    def chunks(self, stream: str, limit: int) -> list[Chunk]:
        """The oldest appends of a stream, at most so many."""
        with failures(self.path):
            rows = self._db.execute(
                f"SELECT last, time, {BYTES} FROM batches WHERE stream = ? ORDER BY first LIMIT ?",  # noqa: S608
                (stream, limit),
            )
            return [Chunk(*row) for row in rows]

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
        with failures(self.path):
            versions = [
                self._db.execute(
                    "SELECT version FROM batches WHERE stream = ? AND first > ? ORDER BY first LIMIT 1",
                    (stream, decided.get(stream, 0)),
                ).fetchone()
                for stream in self.tails()
            ]
            return min((row[0] for row in versions if row is not None), default=otherwise)

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
        with failures(self.path):
            row = self._db.execute(
                f"SELECT {_COLUMNS} FROM batches b WHERE stream = ? AND first <= ? ORDER BY first DESC LIMIT 1",  # noqa: S608
                (stream, seq),
            ).fetchone()
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
        row = self._db.execute("SELECT trimmed FROM streams WHERE stream = ?", (stream,)).fetchone()
        return int(row[0]) if row is not None else 0
