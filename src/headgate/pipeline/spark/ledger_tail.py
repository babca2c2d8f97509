"""How far the ledger has come, for the data source, which asks before every micro-batch.

Guarantees: the same answers as `Ledger`, by plain SQL from its file or database: loading the database library would
take the Python process that Spark starts for a source longer than everything else it does.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from headgate.model.errors import NotFound
from headgate.storage.postgres import LEDGER_SCHEMA
from headgate.storage.shared import Where, reader


class LedgerTail:
    """The end of the ledger. May be used from any thread."""

    def __init__(self, where: Where) -> None:
        if isinstance(where, Path) and not where.is_file():
            raise NotFound(f"no ledger `{where}`", remedy="create it, or check the path")
        self._lock = threading.Lock()
        self._db = reader(where, LEDGER_SCHEMA)

    @property
    def version(self) -> int:
        """The latest committed version."""
        return int(self._one("SELECT coalesce(max(version), 0) FROM versions"))

    def asks_history(self, after: int, through: int, *, detections: bool = False) -> bool:
        """Did a subscription to events, or a detection, that asks for history begin in `(after, through]`?"""
        asked = (
            "SELECT EXISTS (SELECT 1 FROM subscriptions WHERE from_version > ? AND from_version <= ? AND history "
            "AND (detection IS NOT NULL) = ?)"
        )
        return bool(self._one(asked, after, through, detections))

    def has_detection(self, after: int, through: int) -> bool:
        """Did a detection begin in `(after, through]`?"""
        asked = (
            "SELECT EXISTS (SELECT 1 FROM subscriptions WHERE from_version > ? AND from_version <= ? "
            "AND detection IS NOT NULL)"
        )
        return bool(self._one(asked, after, through))

    def first_detection(self) -> int | None:
        """The version that made the first detection there ever was."""
        found = self._one("SELECT min(from_version) FROM subscriptions WHERE detection IS NOT NULL")
        return None if found is None else int(found)

    def detections(self) -> int:
        """How many detections are in force."""
        return int(self._one("SELECT count(*) FROM subscriptions WHERE to_version IS NULL AND detection IS NOT NULL"))

    def _one(self, asked: str, *arguments: int) -> Any:
        # One at a time: whoever asks while another's answer is not read to its end is told what was true when that
        # other one began, even if it asks for what it has written since.
        with self._lock, self._db.failures():
            return self._db.execute(asked, arguments).fetchone()[0]

    def close(self) -> None:
        """Let go of the file or connection."""
        self._db.close()
