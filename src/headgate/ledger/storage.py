"""The database under the ledger: engine, transactions, errors.

Guarantees: a write transaction excludes other writers from its beginning and is durable when it ends; a read
transaction sees one moment. Every error of the database leaves as a `HeadgateError` that names the file.
All that is particular to SQLite is here: `_prepare_sqlite`, `damage` and the error codes.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, MetaData, create_engine, event, make_url
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateSchema, CreateTable, DDLElement
from sqlalchemy.util import LRUCache

from headgate.model.errors import (
    BadDefinition,
    BadEnvironment,
    Damaged,
    HeadgateError,
    NotFound,
    StorageBusy,
    StorageFull,
)
from headgate.storage.postgres import LEDGER_SCHEMA, CommitWitness, checked_address, connected, shown, translated

PATIENCE: Final = 10.0
"""Seconds to wait for another writer."""

RESTORE: Final = "restore it from a copy"
_WRITES: Final = "headgate_writes"

_NO_ROOM: Final = frozenset({778, 4874})
"""SQLITE_IOERR_WRITE: past a quota or a limit on files; SQLITE_IOERR_SHMSIZE: no room beside the write-ahead log."""
_DRIVER: Final = "postgresql+psycopg://"
SILENCE_SECONDS: Final = 60.0
"""For how long a PostgreSQL server may say nothing to a statement, which may go through all there is."""


class AlikeSQLite(SQLiteDialect_pysqlite):
    """SQLite, whichever file: a statement that was compiled for one ledger serves all others of the process."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


_ALIKE: Final = "sqlite+alike"
registry.register(_ALIKE.replace("+", "."), __name__, AlikeSQLite.__name__)
_COMPILED: Final = LRUCache[Any, Any](1_000)


class Storage:
    """One database, opened lazily, used by many threads."""

    def __init__(self, where: str | Path, *, patience: float = PATIENCE) -> None:
        self.patience = patience
        self.file: Path | None = None
        self._closed = False
        self._writer: CommitWitness | None = None
        self.engine: Engine
        if url := _sqlite(where):
            if url.database not in (None, "", ":memory:"):
                self.file = Path(url.database or "")
            self.place = str(self.file) if self.file else str(url)
            shared = {"compiled_cache": _COMPILED}
            self.engine = create_engine(url.set(drivername=_ALIKE), execution_options=shared)
            _prepare_sqlite(self.engine, patience)
        else:
            address = checked_address(str(where))
            self.place = shown(address)
            self._writer = CommitWitness(address, LEDGER_SCHEMA, self.place)
            connect = partial(connected, address, LEDGER_SCHEMA, silence=SILENCE_SECONDS)
            # As many connections as there are threads: what is limited is those.
            self.engine = create_engine(_DRIVER, creator=connect, pool_pre_ping=True, max_overflow=-1)
        self.is_sqlite = self._writer is None

    def close(self) -> None:
        """Let go of the file."""
        self._closed = True
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees the ledger at one moment."""
        options = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with self._transaction(options) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that no other writer overlaps; kept whole or not at all."""
        options: dict[str, Any] = {_WRITES: True}
        if not self.is_sqlite:
            options["isolation_level"] = "READ COMMITTED"  # after the lock each statement sees all that is written
        with self._transaction(options) as connection:
            yield connection

    @contextmanager
    def _transaction(self, options: dict[str, Any]) -> Iterator[Connection]:
        """A transaction in which errors of the database become ours."""
        if self._closed:
            raise RuntimeError(f"the ledger `{self.place}` is closed")
        try:
            with self.engine.connect().execution_options(**options) as connection, self._begun(connection):
                yield connection
        except DBAPIError as error:
            raise self._translated(error.orig or error) from error
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except UnicodeEncodeError as error:
            raise BadDefinition(f"a name that is not valid Unicode: {error.reason}") from error
        except Damaged as error:
            raise (error if self.place in error.message else error.at(self.place)) from error.__cause__

    @contextmanager
    def _begun(self, connection: Connection) -> Iterator[None]:
        """A transaction of which it is known whether it was kept, also if the server went away as it ended."""
        writer = self._writer if connection.get_execution_options().get(_WRITES, False) else None
        with connection.begin() as begun:
            if writer is None:
                yield
                return
            writer.begin(connection.exec_driver_sql)
            yield
            writer.mark(connection.exec_driver_sql)
            try:
                begun.commit()
            except DBAPIError as error:
                if not (error.connection_invalidated and writer.was_kept()):
                    raise

    def _translated(self, error: BaseException) -> HeadgateError:
        if not self.is_sqlite:
            return translated(error, self.place)
        code: int | None = getattr(error, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        place = self.place
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StorageBusy(
                f"another process was writing to `{place}`; nothing was kept",
                remedy=f"try again, or end a writer that holds it for more than {self.patience:g} s",
            )
        if primary == sqlite3.SQLITE_FULL or code in _NO_ROOM:
            return StorageFull(f"no room to write to `{place}`; nothing was kept", remedy="make room")
        if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT):
            return Damaged(f"the ledger `{place}` is damaged: {error}", remedy=RESTORE)
        if primary == sqlite3.SQLITE_CANTOPEN:
            return NotFound(f"the ledger `{place}` cannot be opened", remedy="check its folder")
        if primary is not None and "no such " in str(error):
            return Damaged(f"the ledger `{place}` lacks a part: {error}", remedy=RESTORE)
        return BadEnvironment(f"the ledger `{place}` cannot be used: {error}")


def _sqlite(where: str | Path) -> URL | None:
    """The address of a file; of another database it is none."""
    if isinstance(where, Path) or "://" not in where:
        return URL.create("sqlite", database=str(where))
    return make_url(where) if where.startswith("sqlite") else None


def create_tables(connection: Connection, tables: MetaData) -> None:
    """Make tables and their indexes; on SQLite, where there are none, by words that are found once a process."""
    if not isinstance(connection.dialect, AlikeSQLite):
        connection.execute(CreateSchema(LEDGER_SCHEMA, if_not_exists=True))
        tables.create_all(connection)
        return
    for statement in _definitions(connection.dialect, tables):
        connection.exec_driver_sql(statement)


@cache
def _definitions(dialect: AlikeSQLite, tables: MetaData) -> tuple[str, ...]:
    every = tables.sorted_tables
    made: list[DDLElement] = [CreateTable(table) for table in every]
    made += [CreateIndex(one) for table in every for one in sorted(table.indexes, key=lambda index: str(index.name))]
    return tuple(str(one.compile(dialect=dialect)) for one in made)


def damage(connection: Connection, *, thorough: bool) -> str | None:
    """The first damage that the database finds in its own pages, if it can look."""
    if connection.dialect.name != "sqlite":
        return None
    found = connection.exec_driver_sql(f"PRAGMA {'integrity_check' if thorough else 'quick_check'}(1)").scalar()
    return None if found == "ok" else str(found)


def _write_ahead(cursor: Any, patience: float) -> None:
    """Switch to a write-ahead log. SQLite does not wait here for others who switch, whatever the timeout."""
    end = time.monotonic() + patience
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _prepare_sqlite(engine: Engine, patience: float) -> None:
    def connect(connection: Any, _record: object) -> None:
        # The driver must begin no transactions of its own: they would be deferred, and two deferred writers
        # that both have read cannot both go on.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={int(patience * 1000)}")
        _write_ahead(cursor, patience)
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", connect)
    event.listen(engine, "begin", begin)
