"""A PostgreSQL database, with errors that name it and say what to do.

Guarantees: a write transaction excludes other writers of the same schema from its beginning, and sees all that they
have written. Whether it was kept is known even if the connection was lost while it ended: the server is asked once it
answers again. Whoever reads does not notice a server that was started anew in between. Nobody waits for ever: not for
a server that hangs, and not for a writer that does, whose transaction the server gives up. A password is never part of
an address: the driver takes it from `PGPASSWORD`, `PGPASSFILE` or a service file, as all programs of PostgreSQL do.
Leaves out: the ledger's statements, which are its own (`ledger.storage`); what is here serves plain SQL, without
loading the library that the ledger uses.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from headgate.model.errors import (
    BadConfig,
    BadDefinition,
    BadEnvironment,
    HeadgateError,
    StorageBusy,
    StorageFull,
    TooOld,
)
from headgate.model.values import brief

if TYPE_CHECKING:
    import psycopg

Run: TypeAlias = Callable[[str, tuple[Any, ...]], Any]
"""How a statement of the driver's is carried out, with its values."""

SCHEME: Final = "postgresql"
OLDEST_SERVER: Final = 13
"""The oldest that is supported."""
LEDGER_SCHEMA: Final = "headgate_ledger"
AWAY_SECONDS: Final = 10.0
"""How long to wait for a server that went away while a transaction ended."""
CONNECT_SECONDS: Final = 10
ANSWER_SECONDS: Final = 15.0
"""For how long a server may say nothing to a short statement."""
LOCK_SECONDS: Final = 10.0
"""How long to wait for another writer."""
IDLE_SECONDS: Final = 120.0
"""How long a writer may do nothing in its transaction, as one that was stopped does, before the server ends it."""

_CONFLICTS: Final = frozenset({"40001", "40P01", "55P03", "23505"})
_FULL: Final = frozenset({"53100"})
_LATE: Final = frozenset({"25P03", "25P04", "57014"})
_AWAY: Final = ("08", "57P")
"""What errors of a lost connection, and of a server that stops or starts, begin with."""
_CROWDED: Final = "too many|connection slots"
_REMEDIES: Final = (
    (
        "28",
        "password|authentication|pg_hba|role .* does not exist",
        "check the name, and the password in `PGPASSWORD` or `PGPASSFILE`",
    ),
    ("3D", "database .* does not exist", "check the address, or make it first: `createdb NAME`"),
    ("42501", "permission denied for", "let this user create schemas there, for example as the owner of the database"),
    ("-", "SSL|certificate", "check `sslmode` and `sslrootcert` of the address"),
)
"""By how their codes begin, or by words where there was no connection to have a code, what to do about errors."""
_ADDRESS: Final = "write `postgresql://user@host:5432/name`"
_HIDDEN: Final = frozenset({"password", "sslpassword", "passfile"})

_WRITERS: Final = (
    "CREATE TABLE IF NOT EXISTS headgate_writers "
    "(writer TEXT PRIMARY KEY, wrote TEXT NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now())"
)
_MARK: Final = (
    "INSERT INTO headgate_writers VALUES (%s, %s) "
    "ON CONFLICT (writer) DO UPDATE SET wrote = excluded.wrote, at = excluded.at"
)


def checked_address(text: str) -> str:
    """The address of a database, if it is one that Headgate can use."""
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise BadConfig(f"`{brief(text)}` is not an address: {error}", remedy=_ADDRESS) from None
    options = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if parts.scheme not in (SCHEME, "postgres") or not parts.path.strip("/"):
        raise BadConfig(
            f"`{brief(shown(text))}` is not the address of a PostgreSQL database",
            remedy=_ADDRESS,
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
    if "NUL (0x00)" in words and state is None:
        return BadDefinition("a text has the character NUL in it", remedy="leave it out: PostgreSQL cannot keep it")
    if state in _CONFLICTS:
        return StorageBusy(f"another process was writing to `{place}`; nothing was kept", remedy="try again")
    if state in _FULL:
        return StorageFull(f"no room to write to `{place}`; nothing was kept", remedy="make room")
    if state in _LATE:
        return StorageBusy(f"`{place}` took too long ({words}); nothing was kept", remedy="try again")
    if state == "53300" or (state is None and re.search(_CROWDED, words)):
        remedy = "raise `max_connections` of PostgreSQL, or let fewer programs use it; then try again"
        return StorageBusy(f"`{place}` takes no more connections; nothing was kept", remedy=remedy)
    for begin, said, remedy in _REMEDIES:
        if state.startswith(begin) if state is not None else re.search(said, words):
            return BadEnvironment(f"`{place}` cannot be used: {words}", remedy=remedy)
    if is_away(error):
        return StorageBusy(
            f"`{place}` does not answer ({words}); nothing was kept",
            remedy="start PostgreSQL there, or check the address; then try again",
        )
    return BadEnvironment(f"`{place}` cannot be used: {words}")


def is_away(error: BaseException) -> bool:
    """Was the connection lost, or never made, because the server is not there now?"""
    import psycopg

    state: str | None = getattr(error, "sqlstate", None)
    if state is not None:
        return state.startswith(_AWAY)
    said = any(re.search(words, str(error)) for _, words, _ in _REMEDIES)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not said


def check_server(version: int, encoding: str | None, place: str) -> None:
    """Refuse a server that is too old, or a database that cannot keep all text; `version` is such as 150018."""
    if version < 10_000 * OLDEST_SERVER:
        raise TooOld(f"`{place}` is PostgreSQL {version // 10_000}", remedy=f"use {OLDEST_SERVER} or a newer one")
    if encoding != "UTF8":
        remedy = "make one that can keep all text: `createdb -E UTF8 -T template0 NAME`"
        raise BadEnvironment(f"`{place}` keeps text as {encoding}", remedy=remedy)


class CommitWitness:
    """Who writes to a schema, in transactions of its own: others wait, and it is known whether the last was kept.

    A transaction leaves a word that no other has. The server's own numbers of transactions would not do: after a crash
    it gives those that were not kept to others.
    """

    def __init__(self, address: str, schema: str, place: str) -> None:
        self._address, self._schema, self._place = address, schema, place
        self._name = secrets.token_hex(8)
        self._wrote = ""

    def begin(self, run: Run) -> None:
        """Wait until nobody else writes."""
        run("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._schema,))

    def mark(self, run: Run) -> None:
        """Leave word; the last thing of a transaction."""
        if not self._wrote:
            run(_WRITERS, ())
            run("DELETE FROM headgate_writers WHERE at < now() - interval '1 day'", ())
        wrote = secrets.token_hex(8)
        run(_MARK, (self._name, wrote))
        self._wrote = wrote

    def was_kept(self, patience: float = AWAY_SECONDS) -> bool:
        """What became of the last transaction, whose end was not heard of, as soon as the server tells."""
        import psycopg

        end = time.monotonic() + patience
        while True:
            try:
                with closing(connected(self._address, self._schema)) as made, made.transaction():
                    self.begin(made.execute)  # it may not be over yet
                    found = made.execute("SELECT wrote FROM headgate_writers WHERE writer = %s", (self._name,))
                    return found.fetchone() == (self._wrote,)
            except psycopg.errors.UndefinedTable:
                return False
            except psycopg.Error as error:
                if not is_away(error) and not isinstance(error, psycopg.errors.LockNotAvailable):
                    raise translated(error, self._place) from error
            if time.monotonic() > end:
                raise StorageBusy(
                    f"`{self._place}` went away while it was written to: whether that was kept is not known",
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
        self._writer = CommitWitness(address, schema, self.place)
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
            if isinstance(error, psycopg.errors.ConnectionTimeout):  # it hangs, and would again
                raise
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
                self._writer.begin(made.execute)
                yield self
                self._writer.mark(made.execute)
                self._commit(made)
            except BaseException:
                with suppress(Exception):
                    made.rollback()
                raise
            finally:
                if not made.closed:
                    made.autocommit = True

    def _commit(self, made: psycopg.Connection[Any]) -> None:
        import psycopg

        try:
            made.commit()
        except psycopg.Error as error:
            if not (made.closed or is_away(error)) or not self._writer.was_kept():
                raise

    def _there(self) -> psycopg.Connection[Any]:
        if self._made is None or self._made.closed:
            self._made = connected(self.address, self._schema)
            self._made.read_only = self._read_only
        return self._made


def connected(address: str, schema: str, *, silence: float | None = None) -> psycopg.Connection[Any]:
    """A new connection to a schema; it is given up when the server says nothing for so long."""
    named = {"fallback_application_name": "headgate", "connect_timeout": CONNECT_SECONDS}
    made: Any = _driver().connect(address, autocommit=True, **named)
    made.silence = ANSWER_SECONDS if silence is None else silence
    try:
        check_server(made.info.server_version, made.info.parameter_status("server_encoding"), shown(address))
        limits = (schema, f"{LOCK_SECONDS:.0f}s", f"{IDLE_SECONDS:.0f}s")
        made.execute(
            "SELECT set_config('search_path', %s, false), set_config('lock_timeout', %s, false), "
            "set_config('idle_in_transaction_session_timeout', %s, false)",
            limits,
        )
    except BaseException:
        made.close()
        raise
    return cast("psycopg.Connection[Any]", made)


@cache
def _driver() -> Any:
    """The driver's connection, but one that waits for no server that hangs."""
    try:
        import psycopg
    except ImportError:
        raise BadEnvironment(
            "the driver of PostgreSQL is missing", remedy="install it: `pip install 'headgate[cluster]'`"
        ) from None

    class Bounded(psycopg.Connection[Any]):
        silence = ANSWER_SECONDS

        def wait(self, gen: Any, *args: Any, **how: Any) -> Any:
            try:
                return super().wait(self._heard(gen), *args, **how)
            except psycopg.errors.ConnectionTimeout:
                self.close()
                raise

        def _heard(self, gen: Any) -> Any:
            """The same steps, until for too long none of them hears anything."""
            try:
                step, last = next(gen), time.monotonic()
                while True:
                    heard = yield step
                    if heard:
                        last = time.monotonic()
                    elif time.monotonic() - last > self.silence:
                        raise psycopg.errors.ConnectionTimeout(f"no answer for {self.silence:g} s")
                    step = gen.send(heard)
            except StopIteration as end:
                return end.value

    return Bounded
