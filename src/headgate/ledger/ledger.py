"""The ledger: batches of changes make versions, and every version can be read for ever.

Guarantees: a commit is one durable transaction that makes exactly one version, the next, or fails and leaves
the ledger as it was. Processes and threads may commit at once; each batch is applied to the version just
before its own. What is in force at a version never changes afterwards: rows are only added, or closed by a
later version. What falls with a credential falls in the same version (D13), and is as it was after a restart.
Leaves out: what a batch may do (`roles.requests.transition`), and how streams come to their starting points (D7). A
`Ledger` may be shared by threads, but not carried over a fork.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, Table, bindparam, func, insert, inspect, select, update

from headgate import __version__
from headgate.decide.constraints import RoleFunction
from headgate.ledger import checks, queries, schema
from headgate.ledger.codec import Columns, dump
from headgate.ledger.collection import KEYS, METADATA
from headgate.ledger.load import (
    Delta,
    Ranks,
    advance,
    check_same_policy,
    delta,
    load,
    passed_over,
    policy_versions,
)
from headgate.ledger.policy_rows import RULES
from headgate.ledger.queries import StartingPoint
from headgate.ledger.storage import PATIENCE, RESTORE, Storage, create_tables
from headgate.model.changes import Batch, Settle
from headgate.model.errors import BadDefinition, Damaged, NotFound, StorageBusy, VersionConflict
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import check_name
from headgate.model.values import micros
from headgate.roles.records.book import Book
from headgate.roles.requests.transition import Outcome, transition

P = ParamSpec("P")
T = TypeVar("T")

_OCCUPIED: Final = "name an empty database; if no domain goes by this one any more, `dropdb` and `createdb` empty it"
MAX_KNOWN_POLICIES: Final = 4
"""States without subscriptions that are kept: an index is made of the same few again and again."""
CLOSED_AT_ONCE: Final = 10_000
"""Facts that one statement ends; databases bound the values of a statement."""


def now() -> datetime:
    """The clock of the machine."""
    return datetime.now(UTC)


def no_functions(_: State) -> Mapping[str, RoleFunction]:
    """No functions for the constraints of rolefiles besides those that all have."""
    return {}


def _asking(
    query: Callable[Concatenate[Connection, P], T], *, existing: int = 0
) -> Callable[Concatenate[Ledger, P], T]:
    """A query as a method, which sees one moment; so many of its last arguments are versions that there must be."""

    @wraps(query)
    def ask(ledger: Ledger, /, *args: P.args, **given: P.kwargs) -> T:
        with ledger._storage.reading() as connection:
            for version in args[len(args) - existing :]:
                ledger._existing(version, queries.latest(connection))  # type: ignore[arg-type]
            return query(connection, *args, **given)

    return ask


class Ledger:
    """A ledger in a SQLite file, or in another database by its URL. Make one with `create` or `open`."""

    def __init__(self, storage: Storage, administrator: str, clock: Callable[[], datetime], id: str) -> None:
        self._storage = storage
        self._clock = clock
        self._committing = threading.Lock()
        self._head = State(administrator=administrator)
        self._policies: dict[int, State] = {}
        """The states that were last asked for without subscriptions, in that order."""
        self._book: Book | None = None  # of the head state, while no commit is under way
        self.functions: Callable[[State], Mapping[str, RoleFunction]] = no_functions
        self.administrator = administrator
        self.id = id
        self.place = storage.place

    @classmethod
    def create(
        cls,
        where: str | Path,
        *,
        administrator: str = ADMINISTRATOR,
        clock: Callable[[], datetime] = now,
        patience: float = PATIENCE,
        id: str | None = None,
    ) -> Self:
        """Make an empty ledger, at version 0; refused if there is one already.

        In a database it has an `id` that no other has; in a file it needs none.
        """
        check_name("principal", administrator)
        storage = Storage(where, patience=patience)
        with _closing_on_failure(storage):
            if storage.file is not None and not storage.file.parent.is_dir():
                raise NotFound(f"no folder `{storage.file.parent}`", remedy="make it first")
            with storage.writing() as connection:
                present = inspect(connection).get_table_names()
                if schema.meta.name in present:
                    remedy = "open it instead" if storage.is_sqlite else _OCCUPIED
                    raise BadDefinition(f"the ledger `{storage.place}` already exists", remedy=remedy)
                if present and storage.is_sqlite:
                    raise BadDefinition(f"`{storage.place}` holds another database", remedy="choose another path")
                create_tables(connection, METADATA)
                facts = {"format": str(schema.FORMAT), "administrator": administrator, "headgate": __version__}
                if not storage.is_sqlite:
                    facts["id"] = id or secrets.token_hex(16)
                rows = [{"name": name, "value": value} for name, value in facts.items()]
                connection.execute(insert(schema.meta), rows)
        return cls(storage, administrator, clock, facts.get("id", ""))

    @classmethod
    def open(cls, where: str | Path, *, clock: Callable[[], datetime] = now, patience: float = PATIENCE) -> Self:
        """Open a ledger that exists, after a quick check; one of the format before is brought to this one."""
        storage = Storage(where, patience=patience)
        with _closing_on_failure(storage):
            if storage.file is not None and not storage.file.is_file():
                raise NotFound(f"no ledger `{storage.place}`", remedy="create it, or check the path")
            with storage.reading() as connection:
                recognised = checks.recognise(connection, storage.place)
            if recognised.format < schema.FORMAT:
                with storage.writing() as connection:
                    _lock(connection)
                    checks.upgrade(connection, storage.place)
            with storage.reading() as connection:
                checks.glance(connection, storage.place)
        return cls(storage, recognised.administrator, clock, recognised.id)

    @classmethod
    def discard(cls, where: str, id: str) -> None:
        """Make away with the ledger in a database if it has this id."""
        with closing(Storage(where)) as storage:
            with storage.reading() as connection:
                there = inspect(connection).has_table(schema.meta.name)
                if not there or checks.recognise(connection, storage.place).id != id:
                    return
            with storage.writing() as connection:
                METADATA.drop_all(connection)

    def close(self) -> None:
        """Let go of the file."""
        self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- versions -------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The latest committed version, by whichever process."""
        with self._storage.reading() as connection:
            return queries.latest(connection)

    def commit(
        self,
        batch: Batch,
        *,
        expect: int | None = None,
        rebase: Callable[[State], Batch] | None = None,
        check: Callable[[State], None] | None = None,
    ) -> int:
        """Apply a batch and return the version it made; `expect` refuses it if the ledger has moved on.

        With `rebase` it is refused only if the policy has changed since: else that gives the batch for the newest
        state, while nobody else can commit. So does `check` look at that state, and refuse.
        """
        with self._turn():
            with self._storage.writing() as connection:
                _lock(connection)
                current = queries.latest(connection)
                moved = expect is not None and expect != current
                if moved and rebase is None:
                    raise VersionConflict(
                        f"the ledger is at version {current}, not {expect} as expected",
                        remedy="look at what changed and submit the batch again",
                    )
                before = self._at(connection, current)
                if moved and expect is not None and rebase is not None:
                    check_same_policy(connection, expect, before, self.administrator)
                    batch = rebase(before)
                if check is not None:
                    check(before)
                now = self._clock()
                outcome = self._passed(before, batch, now)
                after = outcome.after
                made = delta(before, after, outcome.batch, partial(_ranks, connection))
                _write(connection, after.version, made)
                connection.execute(
                    insert(schema.versions).values(
                        version=after.version, author=batch.author, recorded_at=micros(now), note=dump(batch.note)
                    )
                )
            self._head, self._book = after, outcome.book
        return after.version

    passed_over = _asking(passed_over, existing=1)

    def state(self, version: int | None = None, *, subscriptions: bool = True) -> State:
        """What was in force at a version, by default the latest; without subscriptions it is cheaper."""
        with self._storage.reading() as connection:
            latest = queries.latest(connection)
            wanted = latest if version is None else self._existing(version, latest)
            if wanted == latest and subscriptions:
                head = self._at(connection, latest)
                if head.version > self._head.version:
                    self._head = head
                return head
            if subscriptions:
                return load(connection, wanted, self.administrator)
            return self._policy_at(connection, wanted, latest)

    versions = _asking(queries.versions)
    type_since = _asking(queries.type_since)
    subscriptions = _asking(queries.subscription_changes, existing=1)
    detections = _asking(queries.detection_changes, existing=1)
    all_subscriptions = _asking(queries.all_subscriptions, existing=1)
    policy_versions = _asking(policy_versions, existing=1)
    difference = _asking(queries.difference, existing=2)
    history = _asking(queries.history)
    record_state = _asking(queries.record_state)
    endings = _asking(queries.endings)
    role_turns = _asking(queries.role_turns)

    # -- starting points ------------------------------------------------------------------------------------

    newest_starting_points = _asking(queries.newest_starting_points)
    starting_points = _asking(queries.starting_points)

    def record_starting_point(self, stream: str, version: int, seq: int) -> None:
        """Record the first `seq` of a stream to which a version applies (D7); once is as good as twice."""
        self.record_starting_points([(stream, version, seq)])

    def record_starting_points(self, points: Sequence[tuple[str, int, int]]) -> None:
        """Record several starting points (stream, version, seq) at once, in order."""
        with self._turn(), self._storage.writing() as connection:
            _lock(connection)
            latest = queries.latest(connection)
            for stream, version, seq in points:
                self._existing(version, latest)
                queries.record_starting_point(connection, StartingPoint(stream, version, seq))

    # -- health ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Look at every page and row; `damaged` if anything is not as it was written."""
        with self._storage.reading() as connection:
            checks.recognise(connection, self.place)
            checks.verify(connection, self.place, self.administrator)

    # -- inside ---------------------------------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Threads queue here rather than in the database, which does not serve waiters in turn."""
        if not self._committing.acquire(timeout=self._storage.patience):
            busy = f"another thread was writing to `{self.place}`; nothing was kept"
            raise StorageBusy(busy, remedy="try again")
        try:
            yield
        finally:
            self._committing.release()

    def _existing(self, version: int, latest: int) -> int:
        if not 0 <= version <= latest:
            raise NotFound(f"no version {version} in `{self.place}`", remedy=f"there are 0 to {latest}")
        return version

    def _passed(self, before: State, batch: Batch, now: datetime) -> Outcome:
        """What a batch makes of a state. The book is kept again once all is written, or if nothing was done to it."""
        if any(isinstance(change, Settle) for change in batch.changes):
            raise BadDefinition("what becomes of roles is worked out here", remedy="leave `Settle` out of the batch")
        book, self._book = self._book, None
        if book is not None and book.version != before.version:
            book = None  # another process moved on
        try:
            return transition(before, batch, book=book, functions=self.functions, now=now)
        except BaseException:
            if book is not None and book.version == before.version:
                self._book = book
            raise

    def _at(self, connection: Connection, latest: int) -> State:
        """The head state, brought forward if another process moved on."""
        head = self._head
        if head.version == latest:
            return head
        if head.version == 0 or head.version > latest:
            return load(connection, latest, self.administrator)
        return advance(connection, head, latest)

    def _policy_at(self, connection: Connection, version: int, latest: int) -> State:
        """The state without subscriptions, brought forward from the newest before it that is still known."""
        known = {one: state for one, state in self._policies.items() if one <= latest}
        before = max((one for one in known if one <= version), default=None)
        if before is None:
            found = load(connection, version, self.administrator, subscriptions=False)
        elif before < version:
            found = advance(connection, known[before], version, subscriptions=False)
        else:
            found = known.pop(version)
        # Whoever goes through old versions one by one needs the last, and not those that are newer.
        self._policies = dict([*known.items(), (version, found)][-MAX_KNOWN_POLICIES:])
        return found


@contextmanager
def _closing_on_failure(storage: Storage) -> Iterator[None]:
    with ExitStack() as undo:
        undo.callback(storage.close)
        yield
        undo.pop_all()


def _lock(connection: Connection) -> None:
    """Where writers are not excluded by beginning, they are by the row that says what this database is."""
    connection.execute(select(schema.meta.c.value).where(schema.meta.c.name == "format").with_for_update())


def _ranks(connection: Connection) -> Ranks:
    rank = RULES.table.c.rank
    low, high = connection.execute(
        select(func.min(rank), func.max(rank)).where(RULES.table.c.to_version.is_(None))
    ).one()
    return Ranks() if low is None else Ranks(low, high)


def _write(connection: Connection, version: int, made: Delta) -> None:
    for table, rows in made.ends.items():
        if _closed(connection, table, version, rows) != len(rows):
            raise Damaged(f"the ledger lacks {table.name} that were in force", remedy=RESTORE)
    for table, rows in made.begins.items():
        places = _places(connection, table, version) if table in schema.RANKED and table in made.ends else {}
        new = [{**row, "from_version": version} for row in rows]
        for row in new if places else ():
            row["rank"] = places.get(row["id"], row["rank"])
        connection.execute(insert(table), new)


def _closed(connection: Connection, table: Table, version: int, rows: list[Columns]) -> int:
    """End facts by their keys; how many there were, as far as the database tells."""
    named = KEYS[table]
    closing = update(table).where(table.c.to_version.is_(None)).values(to_version=version)
    if len(named) == 1:
        # Many by one statement: a cascade may end a hundred thousand.
        [name] = named
        parts = (rows[at : at + CLOSED_AT_ONCE] for at in range(0, len(rows), CLOSED_AT_ONCE))
        every = (closing.where(table.c[name].in_([row[name] for row in part])) for part in parts)
        return sum(connection.execute(one).rowcount for one in every)
    which = [table.c[name] == bindparam(f"key_{name}") for name in named]
    closed = connection.execute(closing.where(*which), [{f"key_{name}": row[name] for name in named} for row in rows])
    return closed.rowcount if connection.dialect.supports_sane_multi_rowcount else len(rows)


def _places(connection: Connection, table: Table, version: int) -> dict[str, int]:
    """The ranks of what this version ended: what only changes keeps its own."""
    ended = select(table.c.id, table.c.rank).where(table.c.to_version == version)
    return {row.id: row.rank for row in connection.execute(ended)}
