"""What the processes of a node share: one interface, over a SQLite file or a schema of a PostgreSQL database.

Guarantees: a write is durable when it returns, all of it or nothing, and no other overlaps it, by whichever process; a
read sees one moment. `stamp` differs whenever anyone has written. What is there was made by this format of these
tables, else it is refused. May be used from any thread.
A kind of state names itself, the number of its format, and its tables in words that both understand: `TEXT`, `INTEGER`
(64 bits) and `BLOB` columns, `?` for values, `ON CONFLICT (...) DO`; text goes by code point.

    class Notes(SharedState):
        FILE, FORMAT = "notes.db", 1
        SCHEMA = "CREATE TABLE notes (id TEXT PRIMARY KEY, words TEXT NOT NULL) WITHOUT ROWID"
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from headgate.model.errors import Damaged, TooNew, TooOld
from headgate.storage import files, postgres

Where: TypeAlias = Path | str
"""A file, or the address of a database."""

_WORDS: Final = {
    r"\bTEXT\b": 'TEXT COLLATE "C"',
    r"\bINTEGER PRIMARY KEY AUTOINCREMENT\b": "BIGSERIAL PRIMARY KEY",
    r"\bINTEGER\b": "BIGINT",
    r"\bBLOB\b": "BYTEA",
    r"\bWITHOUT ROWID\b": "",
}
"""What is called otherwise in PostgreSQL."""


class Tables(Protocol):
    """Where statements go in a transaction."""

    def execute(self, query: str, values: Any = (), /) -> Any:
        """One statement; its rows are fetched from what comes back."""

    def executemany(self, query: str, rows: Any, /) -> Any:
        """One statement with each of several rows of values."""


class Database(Tables, Protocol):
    """A connection, with transactions and errors that say what to do."""

    place: str

    def close(self) -> None:
        """Let go of it."""

    def failures(self) -> AbstractContextManager[None]:
        """Turn the errors of the database into Headgate's."""

    def transaction(self) -> AbstractContextManager[Tables]:
        """One write transaction that no other overlaps."""

    def stamp(self) -> object:
        """What differs whenever anyone has written."""


class SharedState:
    """The memory that the processes of a node have in common, of one kind."""

    FILE: ClassVar[str]
    FORMAT: ClassVar[int]
    SCHEMA: ClassVar[str]

    def __init__(self, where: Where) -> None:
        self.is_local = isinstance(where, Path)
        """Is it a file, which answers at once?"""
        self._db: Database = _opened(where, type(self))
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let go of the file or connection."""
        with self._lock:
            self._db.close()

    def stamp(self) -> object:
        """Something that is another whenever anyone has written; asking a file costs next to nothing."""
        with self._lock, self._db.failures():
            return self._db.stamp()

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock, self._db.failures():
            return list(self._db.execute(query, values).fetchall())

    @contextmanager
    def _writing(self) -> Iterator[Tables]:
        """One durable write, all of it or nothing."""
        with self._lock, self._db.transaction() as db:
            yield db


def copy(kind: type[SharedState], source: Where, target: Where) -> int:
    """Copy a kind of state to another place, in place of what is there; how many rows there are."""
    if isinstance(source, Path) and not source.exists():
        _opened(source, kind).close()  # as whoever used it first would
    copied = 0
    with closing(_opened(source, kind)) as old, closing(_opened(target, kind)) as new, new.transaction() as db:
        for table in re.findall(r"CREATE TABLE (\w+)", kind.SCHEMA):
            rows = old.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our own names
            db.execute(f"DELETE FROM {table}")  # noqa: S608
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
                new.count_on(table, db)
            copied += len(rows)
    return copied


def reader(where: Where, schema: str) -> Database:
    """A connection of its own that only reads what is there."""
    if isinstance(where, Path):
        return _File(files.connect_reader(where), where)
    return _Schema(where, schema, read_only=True)


def _opened(where: Where, kind: type[SharedState]) -> _File | _Schema:
    if isinstance(where, Path):
        return _File(files.connect(where, kind.SCHEMA, kind.FORMAT, create=True), where)
    made = _Schema(where, schema_of(kind.FILE))
    made.prepare(kind.SCHEMA, kind.FORMAT)
    return made


def schema_of(file: str) -> str:
    """What the schema of a kind of state is called in a database, by the name of its file."""
    return f"headgate_{Path(file).stem}"


class _File:
    """A SQLite file."""

    def __init__(self, connection: files.LockedConnection, path: Path) -> None:
        self.place = str(path)
        self._path = path
        self._connection = connection
        self.execute = connection.execute
        self.executemany = connection.executemany

    def close(self) -> None:
        self._connection.close()

    def failures(self) -> AbstractContextManager[None]:
        return files.failures(self._path)

    def transaction(self) -> AbstractContextManager[Tables]:
        return files.transaction(self._connection, self._path)

    def stamp(self) -> object:
        return files.changes(self._connection, self._path), self._connection.total_changes

    def count_on(self, table: str, db: Tables) -> None:
        """SQLite goes on from the highest number by itself."""


class _Schema(postgres.Connection):
    """A schema of a PostgreSQL database, with a row that every write changes."""

    def prepare(self, tables: str, format: int) -> None:
        """Make the tables where there are none; refuse those of another format."""
        with super().transaction() as db:
            db.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
            db.execute("CREATE TABLE IF NOT EXISTS headgate (format BIGINT NOT NULL, writes BIGINT NOT NULL)")
            row = db.execute("SELECT format FROM headgate").fetchone()
            if row is None:
                for statement in filter(str.strip, tables.split(";")):
                    db.execute(_in_postgres(statement))
                db.execute("INSERT INTO headgate VALUES (?, 0)", (format,))
                return
        if row[0] > format:
            raise TooNew(f"`{self.place}` was written by a newer Headgate (format {row[0]}, this one reads {format})")
        if row[0] < format:
            raise TooOld(f"`{self.place}` has format {row[0]}; this Headgate reads format {format}")

    @contextmanager
    def transaction(self) -> Iterator[Tables]:  # type: ignore[override]
        with super().transaction() as db:
            yield db
            db.execute("UPDATE headgate SET writes = writes + 1")

    def stamp(self) -> object:
        row = self.execute("SELECT writes FROM headgate").fetchone()
        if row is None:
            raise Damaged(f"`{self.place}` holds no Headgate data", remedy="restore it from a copy")
        return row[0]

    def count_on(self, table: str, db: Tables) -> None:
        """Have rows that are numbered here go on from the highest number."""
        numbered = "SELECT column_name FROM information_schema.columns WHERE table_schema = ? AND table_name = ? "
        numbered += "AND column_default LIKE 'nextval%'"
        for (column,) in db.execute(numbered, (self._schema, table)).fetchall():
            newest = f"(SELECT max({column}) FROM {table})"  # noqa: S608 - our own names
            db.execute(f"SELECT setval(pg_get_serial_sequence(?, ?), {newest})", (table, column))


def _in_postgres(statement: str) -> str:
    for word, other in _WORDS.items():
        statement = re.sub(word, other, statement)
    return statement
