"""How far the ledger has come, for the data source, which asks before every micro-batch.

Guarantees: the same answers as `Ledger`, read from its file with SQLite alone: loading the database library would take
the Python process that Spark starts for a source longer than everything else it does.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from headgate.model.errors import NotFound
from headgate.pipeline.log.sqlite_files import BUSY_SECONDS, failures


class LedgerTail:
    """The end of the ledger in a file."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise NotFound(f"no ledger `{path}`", remedy="create it, or check the path")
        self.path = path
        with failures(path):
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA query_only = ON")

    @property
    def version(self) -> int:
        """The latest committed version."""
        with failures(self.path):
            return int(self._db.execute("SELECT coalesce(max(version), 0) FROM versions").fetchone()[0])

    def asks_history(self, after: int, through: int, *, detections: bool = False) -> bool:
        """Did a subscription to events, or a detection, that asks for history begin in `(after, through]`?"""
        with failures(self.path):
            row = self._db.execute(
                "SELECT EXISTS (SELECT 1 FROM subscriptions WHERE from_version > ? AND from_version <= ? AND history "
                "AND (detection IS NOT NULL) = ?)",
                (after, through, detections),
            )
            return bool(row.fetchone()[0])

    def has_detection(self, after: int, through: int) -> bool:
        """Did a detection begin in `(after, through]`?"""
        asked = "SELECT EXISTS (SELECT 1 FROM subscriptions WHERE from_version > ? AND from_version <= ? "
        with failures(self.path):
            return bool(self._db.execute(f"{asked} AND detection IS NOT NULL)", (after, through)).fetchone()[0])

    def first_detection(self) -> int | None:
        """The version that made the first detection there ever was."""
        with failures(self.path):
            row = self._db.execute("SELECT min(from_version) FROM subscriptions WHERE detection IS NOT NULL").fetchone()
            return None if row[0] is None else int(row[0])

    def detections(self) -> int:
        """How many detections are in force."""
        asked = "SELECT count(*) FROM subscriptions WHERE to_version IS NULL AND detection IS NOT NULL"
        with failures(self.path):
            return int(self._db.execute(asked).fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
