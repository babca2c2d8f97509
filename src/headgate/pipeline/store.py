"""Where deliveries are kept: a SQLite file of Arrow blobs.

Guarantees: the output of a micro-batch is one transaction. A blob is keyed by the append it came from, so a batch that
runs again replaces itself, whatever its boundaries. How far each batch reached is recorded with it.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headgate.model.errors import Damaged
from headgate.pipeline.deliveries import DeliveryBlob
from headgate.pipeline.files import connect, failures, transaction

FORMAT = 1
_SCHEMA = """
CREATE TABLE deliveries (stream TEXT NOT NULL, first INTEGER NOT NULL, part INTEGER NOT NULL, last INTEGER NOT NULL,
    version INTEGER NOT NULL, count INTEGER NOT NULL, crc INTEGER NOT NULL, blob BLOB NOT NULL,
    PRIMARY KEY (stream, first, part));
CREATE TABLE progress (batch INTEGER NOT NULL, stream TEXT NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (batch, stream))
    WITHOUT ROWID;
"""
_VERSION = ""
"""The stream name under which progress holds the ledger version a batch was decided through."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the pipeline has decided: through which version, and which event of each stream."""

    version: int = 0
    streams: dict[str, int] = field(default_factory=dict)


class DeliveryStore:
    """The deliveries of one domain."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._db = connection

    @classmethod
    def create(cls, path: Path) -> DeliveryStore:
        """Make an empty store, or open one that is there."""
        return cls(path, connect(path, _SCHEMA, FORMAT, create=True))

    @classmethod
    def open(cls, path: Path) -> DeliveryStore:
        """Open a store that must be there."""
        return cls(path, connect(path, _SCHEMA, FORMAT))

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def write(
        self, batch: int, through: int, blobs: Iterable[DeliveryBlob], before_commit: Callable[[], None] | None = None
    ) -> None:
        """Keep the output of a micro-batch, replacing what an earlier run of it wrote."""
        with transaction(self._db, self.path) as db:
            reached = self.reached(before=batch)
            streams = dict(reached.streams)
            for b in blobs:
                streams[b.stream] = max(streams.get(b.stream, 0), b.last)
                if b.blob is not None:
                    db.execute(
                        "INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        (b.stream, b.first, b.part, b.last, b.version, b.count, zlib.crc32(b.blob), b.blob),
                    )
            db.execute("DELETE FROM progress WHERE batch >= ? OR batch < ?", (batch, batch - 1))
            rows = [(batch, stream, last) for stream, last in streams.items()]
            rows.append((batch, _VERSION, max(through, reached.version)))
            db.executemany("INSERT INTO progress VALUES (?, ?, ?)", rows)
            if before_commit is not None:
                before_commit()

    def reached(self, before: int | None = None) -> Reached:
        """How far the newest batch reached, or the newest one before a batch."""
        with failures(self.path):
            limit = 2**62 if before is None else before
            rows = dict(
                self._db.execute(
                    "SELECT stream, last FROM progress WHERE batch = (SELECT max(batch) FROM progress WHERE batch < ?)",
                    (limit,),
                )
            )
        return Reached(rows.pop(_VERSION, 0), rows)

    def blobs(self, stream: str | None = None) -> Iterator[DeliveryBlob]:
        """What was delivered, in order, checked as it is read."""
        with failures(self.path):
            rows = self._db.execute(
                "SELECT stream, first, part, last, version, count, crc, blob FROM deliveries "
                "WHERE ? IS NULL OR stream = ? ORDER BY stream, first, part",
                (stream, stream),
            )
            for name, first, part, last, version, count, crc, blob in rows:
                if zlib.crc32(blob) != crc:
                    raise Damaged(
                        f"`{self.path}`: the deliveries of events {first} to {last} of stream `{name}` are not what "
                        "was written",
                        remedy="delete the store and replay it from the log",
                    )
                yield DeliveryBlob(name, first, last, version, part, count, blob)

    def count(self) -> int:
        """How many deliveries there are."""
        with failures(self.path):
            return int(self._db.execute("SELECT coalesce(sum(count), 0) FROM deliveries").fetchone()[0])
