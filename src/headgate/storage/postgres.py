"""A PostgreSQL database, with errors that name it and say what to do.

Guarantees: a write transaction excludes other writers of the same schema from its beginning, and sees all that they
have written. Whether it was kept is known even if the connection was lost while it ended: the server is asked once it
answers again. Whoever reads does not notice a server that was started anew in between. A password is never part of an
address: the driver takes it from `PGPASSWORD`, `PGPASSFILE` or a service file, as all programs of PostgreSQL do.
Leaves out: the ledger's statements, which are its own (`ledger.storage`); what is here serves plain SQL, without
loading the library that the ledger uses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from headgate.model.errors import BadConfig, BadEnvironment, HeadgateError, StorageBusy, StorageFull, TooOld
from headgate.model.values import brief

if TYPE_CHECKING:
    import psycopg

SCHEME: Final = "postgresql"
OLDEST_SERVER: Final = 13
"""The first that tells what became of a transaction whose end nobody heard of."""
LEDGER_SCHEMA: Final = "headgate_ledger"
AWAY_SECONDS: Final = 10.0
"""How long to wait for a server that went away while a transaction ended."""
CONNECT_SECONDS: Final = 10

_CONFLICTS: Final = frozenset({"40001", "40P01", "55P03", "23505"})
_FULL: Final = frozenset({"53100"})
_AWAY: Final = ("08", "57P")
"""What errors of a lost connection, and of a server that stops or starts, begin with."""
_REMEDIES: Final = {
    "28": ("password", "check the name, and the password in `PGPASSWORD` or `PGPASSFILE`"),
    "3D": ("does not exist", "check the address, or make it first: `createdb NAME`"),
    "42501": ("permission denied", "let this user create schemas there, for example as the owner of the database"),
}
"""By how their codes begin, or by a word where there was no connection to have a code, what to do about errors."""
_HIDDEN: Final = frozenset({"password", "sslpassword", "passfile"})


def checked_address(text: str) -> str:
    """The address of a database, if it is one that Headgate can use."""
    parts = urlsplit(text)
    options = {name for name, _ in parse_qsl(parts.query)}
    if parts.scheme not in (SCHEME, "postgres") or not parts.path.strip("/"):
        raise BadConfig(
            f"`{brief(shown(text))}` is not the address of a PostgreSQL database",
            remedy="write `postgresql://user@host:5432/name`",
        )
    if parts.password is not None or options & _HIDDEN:
        raise BadConfig(
            f"`{brief(shown(text))}` has a password in it",
            remedy="leave it out, and set `PGPASSWORD`, or `PGPASSFILE` to a file that only its owner can read",
        )
    return urlunsplit(parts._replace(scheme=SCHEME))


def shown(address: str) -> str:
    """An address without what nobody should read."""
    parts = urlsplit(address)
    user = f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{user}{parts.netloc.rpartition('@')[2]}{parts.path}"


def translated(error: BaseException, place: str) -> HeadgateError:
    """An error of the driver as one of Headgate's; `sqlstate` says which it is."""
    state: str | None = getattr(error, "sqlstate", None)
    words = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if state in _CONFLICTS:
        return StorageBusy(f"another process was writing to `{place}`; nothing was kept", remedy="try again")
    if state in _FULL:
        return StorageFull(f"no room to write to `{place}`; nothing was kept", remedy="make room")
    for begin, (said, remedy) in _REMEDIES.items():
        if state.startswith(begin) if state is not None else said in words:
            return BadEnvironment(f"`{place}` cannot be used: {words}", remedy=remedy)
    if is_away(error):
        return StorageBusy(
            f"`{place}` does not answer ({words}); nothing was kept", remedy="start PostgreSQL there, then try again"
        )
    return BadEnvironment(f"`{place}` cannot be used: {words}")


def is_away(error: BaseException) -> bool:
    """Was the connection lost, or never made, because the server is not there now?"""
    import psycopg

    state: str | None = getattr(error, "sqlstate", None)
    if state is not None:
        return state.startswith(_AWAY)
    said = any(word in str(error) for word, _ in _REMEDIES.values())
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not said


def check_server(version: int, place: str) -> None:
    """Refuse a server that is too old; `version` as the driver tells it, such as 150018."""
    if version < 10_000 * OLDEST_SERVER:
        raise TooOld(f"`{place}` is PostgreSQL {version // 10_000}", remedy=f"use {OLDEST_SERVER} or a newer one")


def was_kept(address: str, transaction: str, place: str, patience: float = AWAY_SECONDS) -> bool:
    """What became of a transaction whose end was not heard of, as soon as the server tells."""
    import psycopg

    end = time.monotonic() + patience
    while True:
        try:
            with psycopg.connect(address, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
                row = connection.execute("SELECT pg_xact_status(%s::xid8)", (transaction,)).fetchone()
                if row is not None and row[0] != "in progress":
                    return bool(row[0] == "committed")
        except psycopg.Error as error:
            if not is_away(error):
                raise translated(error, place) from error
        if time.monotonic() > end:
            raise StorageBusy(
                f"`{place}` went away while it was written to: whether that was kept is not known",
                remedy="look at what is there once PostgreSQL runs, before trying again",
            )
        time.sleep(0.05)


@lru_cache(maxsize=1_000)
def _worded(query: str) -> str:
    """A statement with the driver's marks for its values."""
    return query.replace("%", "%%").replace("?", "%s")


class Connection:
    """One connection to a schema of a database, made again when it was lost. Its user sees to threads."""

    def __init__(self, address: str, schema: str, *, read_only: bool = False) -> None:
        self.address = address
        self.place = f"{shown(address)}, {schema}"
        self._schema = schema
        self._read_only = read_only
        self._made: psycopg.Connection[Any] | None = None
        self.lock = threading.RLock()

    def close(self) -> None:
        """Let go of the connection."""
        if self._made is not None:
            self._made.close()

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn the driver's errors into Headgate's."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise translated(error, self.place) from error

    def execute(self, query: str, values: Sequence[object] = ()) -> Any:
        """One statement, whose values are marked by `?`; outside a transaction it is tried once more if need be."""
        import psycopg

        try:
            return self._there().execute(_worded(query), values)
        except psycopg.Error as error:
            if self._made is None or not self._made.autocommit or not is_away(error):
                raise
            self._made.close()
            return self._there().execute(_worded(query), values)

    def executemany(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        """One statement with each of several rows of values."""
        with self._there().cursor() as cursor:
            cursor.executemany(_worded(query), list(rows))

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One write transaction: all of it, or nothing; others of this schema wait."""
        with self.failures(), self.lock:
            self.execute("SELECT 1")  # now is the time to find that the connection is lost
            made = self._there()
            made.autocommit = False
            try:
                made.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._schema,))
                row = made.execute("SELECT pg_current_xact_id()::text").fetchone()
                assert row is not None
                yield self
                self._commit(made, str(row[0]))
            except BaseException:
                with suppress(Exception):
                    made.rollback()
                raise
            finally:
                if not made.closed:
                    made.autocommit = True

    def _commit(self, made: psycopg.Connection[Any], transaction: str) -> None:
        import psycopg

        try:
            made.commit()
        except psycopg.Error as error:
            if not (made.closed or is_away(error)) or not was_kept(self.address, transaction, self.place):
                raise

    def _there(self) -> psycopg.Connection[Any]:
        if self._made is None or self._made.closed:
            self._made = _connected(self.address, self._schema, read_only=self._read_only)
        return self._made


def _connected(address: str, schema: str, *, read_only: bool) -> psycopg.Connection[Any]:
    try:
        import psycopg
    except ImportError:
        raise BadEnvironment(
            "the driver of PostgreSQL is missing", remedy="install it: `pip install 'headgate[cluster]'`"
        ) from None

    made = psycopg.connect(address, autocommit=True, connect_timeout=CONNECT_SECONDS)
    check_server(made.info.server_version, shown(address))
    made.execute("SELECT set_config('search_path', %s, false)", (schema,))
    made.read_only = read_only
    return made
