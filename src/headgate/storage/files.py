"""Opening the embedded SQLite files, with errors that name the file and say what to do.

Guarantees: WAL and full synchronous writes, so that what was acknowledged survives `kill -9` and power loss; a full
disk, a busy file, a damaged file and a file of a newer or too old Headgate each have their own error; a file of an
older format that can be brought up to date is, whoever opens it first. Room that trimming
frees is used again, and given back to the disk only when most of the file is empty.
Threads that write through one connection take turns.
Leaves out: reading beside a writer. On its connection one sees what is not committed yet, so readers open their own.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from headgate.model.errors import Damaged, NotFound, StorageBusy, StorageFull, TooNew, TooOld

BUSY_SECONDS = 30.0

SHRINK_PAGES = 2_000
"""How many empty pages are given back to the disk at a time."""


class LockedConnection(sqlite3.Connection):
    """A connection with a lock for its write transactions, and for whatever must see what others have just written.

    Statements of one connection that overlap all see what the first of them saw.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lock = threading.RLock()


def connect(
    path: Path,
    schema: str,
    format: int,
    *,
    create: bool = False,
    read_only: bool = False,
    upgrades: Mapping[int, str] | None = None,
) -> LockedConnection:
    """Open a file, making its tables if `create`. `upgrades` says for older formats what makes the next of them."""
    if not create and not path.exists():
        raise NotFound(f"there is no file `{path}`")
    with failures(path):
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=LockedConnection
        )
        try:
            if read_only:
                connection.execute("PRAGMA query_only=ON")
            else:
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # takes hold in a new file only
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
            _prepare(connection, path, schema, format, create=create, upgrades=upgrades or {})
        except BaseException:
            connection.close()
            raise
    return connection


def connect_reader(path: Path) -> LockedConnection:
    """Open a file that is there to read it, whatever its tables."""
    with failures(path):
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=LockedConnection
        )
        connection.execute("PRAGMA query_only=ON")
    return connection


def _prepare(
    connection: LockedConnection, path: Path, schema: str, format: int, *, create: bool, upgrades: Mapping[int, str]
) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0 and create:
        with transaction(connection, path):
            # Asked again with the file held: another process may have been first.
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in schema.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={format}")
                version = format
    if version < format and version in upgrades:
        version = _upgrade(connection, path, format, upgrades)
    if version > format:
        raise TooNew(f"`{path}` was written by a newer Headgate (format {version}, this one reads {format})")
    if version == 0:
        raise Damaged(f"`{path}` holds no Headgate data", remedy="restore it from a copy")
    if version < format:
        raise TooOld(
            f"`{path}` has format {version}; this Headgate reads format {format}",
            remedy="make the domain anew: no release wrote this format",
        )


def _upgrade(connection: LockedConnection, path: Path, format: int, upgrades: Mapping[int, str]) -> int:
    """Make an older file one of this format, whoever opens it first; all of it, or nothing."""
    (reads_only,) = connection.execute("PRAGMA query_only").fetchone()
    connection.execute("PRAGMA query_only=OFF")
    with transaction(connection, path):
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        while version < format and version in upgrades:
            for statement in upgrades[version].split(";"):
                connection.execute(statement)
            version += 1
        connection.execute(f"PRAGMA user_version={version}")
    connection.execute(f"PRAGMA query_only={reads_only}")
    return version


def changes(connection: sqlite3.Connection, path: Path) -> int:
    """A number that changes whenever another connection has committed; asking costs next to nothing."""
    with failures(path):
        return int(connection.execute("PRAGMA data_version").fetchone()[0])


def shrink(connection: LockedConnection, path: Path) -> None:
    """Give some room back to the disk if more than half of the file is empty. The rest is for what comes next."""
    with failures(path), connection.lock:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        empty = connection.execute("PRAGMA freelist_count").fetchone()[0]
        if empty > pages // 2:
            # As a script, because `execute` would end it after the first page.
            connection.executescript(f"PRAGMA incremental_vacuum({min(empty - pages // 2, SHRINK_PAGES)})")


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
        if "unable to open" in text:
            raise StorageBusy(
                f"`{path}` cannot be opened", remedy="check its folder, and how many files may be open; then try again"
            ) from error
        if "malformed" in text or "not a database" in text or "corrupt" in text:
            raise Damaged(f"`{path}` is damaged ({text})", remedy="restore it from a copy") from error
        raise


@contextmanager
def transaction(connection: LockedConnection, path: Path) -> Iterator[LockedConnection]:
    """One write transaction: all of it, or nothing."""
    with failures(path), connection.lock:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


class StreamFile:
    """A file with something of each stream, which one process writes; readers beside it open their own."""

    FORMAT: ClassVar[int]
    SCHEMA: ClassVar[str]
    UPGRADES: ClassVar[Mapping[int, str]] = {}
    """What makes a file of an older format one of the next, by the older one's number."""

    def __init__(self, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        self.path = path
        self._db = connect(path, self.SCHEMA, self.FORMAT, create=create, read_only=read_only, upgrades=self.UPGRADES)

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make an empty file, or open one that is there."""
        return cls(path, create=True)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """Open a file that must be there."""
        return cls(path, read_only=read_only)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def changed(self) -> int:
        """A number that changes whenever another connection has committed."""
        with self._db.lock:
            return changes(self._db, self.path)

    def _rows(self, query: str, *values: object) -> list[Any]:
        with failures(self.path), self._db.lock:
            return self._db.execute(query, values).fetchall()

    def _row(self, query: str, *values: object) -> Any:
        with failures(self.path), self._db.lock:
            return self._db.execute(query, values).fetchone()

    def trim(self, stream: str, through: int) -> int:
        """Delete the whole appends that end at or before an event; how many events, or deliveries, went."""
        gone, more = 0, True
        while more:
            with transaction(self._db, self.path) as db:
                count, more = self._trim(db, stream, through)
            gone += count
        if gone:
            shrink(self._db, self.path)
        return gone

    def _trim(self, db: sqlite3.Connection, stream: str, through: int) -> tuple[int, bool]:
        """Delete some of the oldest, and record it: how many went, and whether more may have to."""
        raise NotImplementedError
