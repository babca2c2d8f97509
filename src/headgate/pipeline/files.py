"""Opening the embedded SQLite files, with errors that name the file and say what to do.

Guarantees: WAL and full synchronous writes, so that what was acknowledged survives `kill -9` and power loss; a full
disk, a busy file, a damaged file and a file of a newer Headgate each have their own error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.model.errors import Damaged, NotFound, StorageBusy, StorageFull, TooNew

BUSY_SECONDS = 30.0


def connect(path: Path, schema: str, format: int, *, create: bool = False) -> sqlite3.Connection:
    """Open a file, making its tables if `create`."""
    if not create and not path.exists():
        raise NotFound(f"there is no file `{path}`")
    with failures(path):
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found > format:
            raise TooNew(f"`{path}` was written by a newer Headgate (format {found}, this one reads {format})")
        if found == 0 and create:
            connection.executescript(f"BEGIN IMMEDIATE; {schema} PRAGMA user_version={format}; COMMIT;")
        elif found == 0:
            raise Damaged(f"`{path}` holds no Headgate data", remedy="restore it from a copy")
    return connection


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into Headgate's."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "full" in text or "disk I/O" in text:
            raise StorageFull(
                f"no room to write `{path}` ({text}); nothing of the request was kept",
                remedy="make room and send it again",
            ) from error
        if "locked" in text or "busy" in text:
            raise StorageBusy(f"`{path}` is held by another process", remedy="try again") from error
        if "malformed" in text or "not a database" in text or "corrupt" in text:
            raise Damaged(f"`{path}` is damaged ({text})", remedy="restore it from a copy") from error
        raise


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """One write transaction: all of it, or nothing."""
    with failures(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
