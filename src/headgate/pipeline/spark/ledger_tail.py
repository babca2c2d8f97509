"""How far the ledger has come, for the data source, which asks before every micro-batch.

Guarantees: the same answers as `Ledger`. Every start of a streaming query starts a Python process for its source; for
the embedded ledger this reads the file with SQLite alone, as loading the database library takes that process longer
than everything else it does.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from headgate.model.errors import NotFound
from headgate.pipeline.log.sqlite_files import BUSY_SECONDS, failures

if TYPE_CHECKING:
    from headgate.ledger import Ledger


class FileTail:
    """The end of a ledger in a SQLite file."""

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

    def asks_history(self, after: int, through: int) -> bool:
        """Did a subscription that asks for history begin in `(after, through]`?"""
        with failures(self.path):
            row = self._db.execute(
                "SELECT EXISTS (SELECT 1 FROM subscriptions WHERE from_version > ? AND from_version <= ? AND history)",
                (after, through),
            )
            return bool(row.fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


class ServerTail:
    """The end of a ledger in another database."""

    def __init__(self, url: str) -> None:
        from headgate.ledger import Ledger

        self._ledger: Ledger = Ledger.open(url)

    @property
    def version(self) -> int:
        """The latest committed version."""
        return self._ledger.version

    def asks_history(self, after: int, through: int) -> bool:
        """Did a subscription that asks for history begin in `(after, through]`?"""
        return any(s.history for s in self._ledger.subscriptions(after, through).opened)

    def close(self) -> None:
        """Let go of the connection."""
        self._ledger.close()


LedgerTail: TypeAlias = FileTail | ServerTail


def open_tail(where: str) -> LedgerTail:
    """The end of the ledger at a path or URL."""
    return ServerTail(where) if "://" in where else FileTail(Path(where))
