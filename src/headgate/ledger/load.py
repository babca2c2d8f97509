"""States out of rows, and rows out of states.

Guarantees: a state is equal to what `roles.requests.transition` made when its version was committed, rules, types,
memberships and elections in the same order. Bringing one forward costs what changed, or the collections that changed
where those are read anew. A row that does not fit the others (a member of no group, a type without its parent) is
`damaged`, not left out. What ends and begins with a version (`delta`) is pure, and costs what differs: what a batch
leaves alone is the same object in both states, and maps know where they differ (`model.layered`). Facts are compared as
they are stored, so a change of kind alone (`1` to `True`) is a change. A batch that was made for a version may be
committed at a later one (docs/decisions/0041) only if no version in between changed the policy as its authors wrote it:
what subscribers, publishers, holders of roles and those who show statements do never stands in its way.
Leaves out: the graph of credential records in memory (`roles.records.book`), which is made from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import is_
from typing import Any, Final, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Table,
    bindparam,
    literal,
    or_,
    select,
    union,
    union_all,
)

from headgate.analysis.plan import same_rules
from headgate.ledger import queries, schema
from headgate.ledger.codec import Columns, dump
from headgate.ledger.collection import Collection, Difference, key_of, rank
from headgate.ledger.policy_rows import RULES, SUBSCRIPTIONS, written
from headgate.model.changes import Batch, Settle
from headgate.model.errors import VersionConflict
from headgate.model.layered import changed
from headgate.model.rights import Source
from headgate.model.state import State

_FAMILIES: Final = [
    list(family) for _, family in groupby(schema.COLLECTIONS, lambda one: one.family or (one.table.name, one.kind))
]


def load(connection: Connection, version: int, administrator: str, *, subscriptions: bool = True) -> State:
    """The whole state at a version; without subscriptions, all the rest of it."""
    state = State(version=version, administrator=administrator)
    for table, collections in groupby(schema.COLLECTIONS, lambda one: one.table):
        if subscriptions or table is not SUBSCRIPTIONS.table:
            rows = _rows(connection, _STATEMENTS[table].in_force, version=version)
            for collection in collections:
                state = collection.read(state, collection.own(rows))
    return state


def advance(connection: Connection, state: State, version: int, *, subscriptions: bool = True) -> State:
    """A state brought forward to a later version; what did not change since is not read again."""
    since = state.version
    names = set(connection.scalars(_TOUCHED, {"after": since + 1, "through": version}))
    if not subscriptions:
        names.discard(SUBSCRIPTIONS.table.name)
    for family in _FAMILIES:
        if not any(one.table.name in names for one in family):
            continue
        for collection in family:
            statements = _STATEMENTS[collection.table]
            if collection.follow is None:
                rows = _rows(connection, statements.in_force, version=version)
                state = collection.read(state, collection.own(rows))
                continue
            ended = _rows(connection, statements.ended, after=since + 1, through=version)
            begun = _rows(connection, statements.begun, after=since + 1, through=version, version=version)
            state = collection.follow(state, collection.own(ended), collection.own(begun))
    return replace(state, version=version)


def policy_versions(connection: Connection, after: int, through: int) -> list[int]:
    """The versions in `(after, through]` at which anything changed that decisions look at but subscriptions."""
    return touched(connection, schema.tables(lambda one: one.decides), after, through)


def touched(connection: Connection, tables: Iterable[Table], after: int, through: int) -> list[int]:
    """The versions in `(after, through]` at which any of these tables changed."""
    selects = [
        select(column.label("version")).where(column.between(after + 1, through)).distinct()
        for table in tables
        for column in (table.c.from_version, table.c.to_version)
    ]
    return sorted(connection.scalars(union(*selects)))


def _rows(connection: Connection, statement: Select[Any], **versions: int) -> list[RowMapping]:
    return list(connection.execute(statement, versions).mappings())


def _within(column: ColumnElement[int]) -> ColumnElement[bool]:
    return column.between(bindparam("after"), bindparam("through"))


@dataclass(frozen=True, slots=True)
class _Statements:
    """What is asked of a table, made once: making a statement takes longer than asking it of a small table."""

    in_force: Select[Any]
    ended: Select[Any]
    """The rows in force before `after` that are over by `through`."""
    begun: Select[Any]
    """The rows that began since, and are in force at `version`."""


def _statements(table: Table) -> _Statements:
    order = (table.c.rank, table.c.row) if table in schema.RANKED else (table.c.row,)
    in_force = schema.in_force(table, bindparam("version", type_=BigInteger))
    over = _within(table.c.to_version) & (table.c.from_version < bindparam("after"))
    every = select(table).order_by(*order)
    return _Statements(every.where(in_force), every.where(over), every.where(_within(table.c.from_version) & in_force))


_STATEMENTS: Final = {table: _statements(table) for table in schema.tables()}


_TOUCHED: Final = union_all(
    *(
        select(literal(table.name).label("name")).where(
            select(table.c.row).where(or_(_within(table.c.from_version), _within(table.c.to_version))).exists()
        )
        for table in schema.tables()
    )
)
"""The names of the tables that changed between two versions, both included."""


@dataclass(frozen=True, slots=True)
class Rebased:
    """What a batch was committed over: how many versions, and what they changed."""

    versions: int
    kinds: tuple[str, ...]


def passed_over(connection: Connection, expect: int, made: int) -> Rebased | None:
    """What a batch that expected a version and made another was committed over, if anything."""
    if made - 1 <= expect:
        return None
    kinds = {one.table: one.comes_by for one in schema.COLLECTIONS}
    changed = (kind for table, kind in kinds.items() if touched(connection, [table], expect, made - 1))
    return Rebased(made - 1 - expect, tuple(dict.fromkeys(changed)))


def check_same_policy(connection: Connection, expect: int, now: State, administrator: str) -> None:
    """Refuse if policy is another than at the expected version."""

    def at(version: int) -> State:
        return load(connection, version, administrator, subscriptions=False)

    if expect > now.version:
        raise _conflict(f"the ledger is at version {now.version}, not {expect} as expected")
    if not touched(connection, schema.tables(lambda one: one.authored), expect, now.version):
        return
    before = at(expect)
    if same_rules(before, now):
        return
    same, other = expect, now.version
    while other - same > 1:  # one after `same` changed it, and `other` has it changed
        middle = (same + other) // 2
        same, other = (middle, other) if same_rules(before, at(middle)) else (same, middle)
    (found,) = queries.versions(connection, other - 1, other)
    error = _conflict(f"version {other} changed the policy since version {expect}")
    error.version, error.author = other, found.author
    raise error


def _conflict(message: str) -> VersionConflict:
    return VersionConflict(message, remedy="look at what changed and submit the batch again")


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """The lowest and highest rank among the rules in force; of none, 0 and -1."""

    low: int = 0
    high: int = -1


@dataclass(frozen=True, slots=True)
class Delta:
    """The rows that end and that begin with a version, by table."""

    ends: dict[Table, list[Columns]] = field(default_factory=dict)
    begins: dict[Table, list[Columns]] = field(default_factory=dict)

    def end(self, table: Table, row: Columns) -> None:
        """A fact ends."""
        self.ends.setdefault(table, []).append(row)

    def begin(self, table: Table, row: Columns) -> None:
        """A fact begins."""
        self.begins.setdefault(table, []).append(row)


def delta(before: State, after: State, batch: Batch, ranks: Callable[[], Ranks]) -> Delta:
    """The rows that end and begin when `batch` makes `after` out of `before`; `ranks` are those of the rules before."""
    made = Delta()
    for collection in schema.COLLECTIONS:
        if collection is RULES:
            _rules(made, before, after, ranks)
        elif collection.family != "rules" or before.rules is not after.rules:
            _compare(made, collection, before, after)
    for table in schema.RANKED:
        for position, row in enumerate(made.begins.get(table, ())):
            row["rank"] = rank(after.version, position)
    for change in batch.changes:
        if isinstance(change, Settle):
            for ending in change.facts.ended:
                made.begin(schema.endings, {"id": ending.id, "reason": dump(ending.reason)})
    return made


def _compare(made: Delta, collection: Collection, before: State, after: State) -> None:
    """Take up what ends and begins of a collection."""
    old, new = collection.part(before), collection.part(after)
    names = dict.fromkeys([*changed(old, new), *_differing(collection.beside(before), collection.beside(after))])
    for name in names:
        gone, come = _exchanged(collection, old.get(name), new.get(name))
        was = _by_key(collection, [collection.row_of(before, name, value) for value in gone])
        now = _by_key(collection, [collection.row_of(after, name, value) for value in come])
        if isinstance(old.get(name, new.get(name)), frozenset):  # whose order is nobody's
            was, now = dict(sorted(was.items())), dict(sorted(now.items()))
        for key, row in was.items():
            if collection.ordered or now.get(key) != row:
                made.end(collection.table, row)
        for key, row in now.items():
            if collection.ordered or was.get(key) != row:
                if row.get("from_version", after.version) != after.version:
                    raise AssertionError(f"a new row of {collection.table.name} says {row} in version {after.version}")
                made.begin(collection.table, row)


def _by_key(one: Collection, rows: list[Columns]) -> dict[tuple[Any, ...], Columns]:
    return {key_of(one.table, row): row for row in rows}


def _differing(old: Mapping[str, Any] | frozenset[str], new: Mapping[str, Any] | frozenset[str]) -> Iterable[str]:
    """The names that mean something else."""
    if isinstance(old, frozenset) or isinstance(new, frozenset):
        return () if old is new else sorted(frozenset(old) ^ frozenset(new))
    return changed(old, new)


def _exchanged(collection: Collection, old: Any, new: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """What of that which stands under a name ends, and what begins; what stays the same object does neither."""
    if not collection.many:
        return () if old is None else (old,), () if new is None else (new,)
    was, now = _each(old), _each(new)
    if collection.ordered:
        stays = _in_place([_id(value) for value in was], [_id(value) for value in now])
        return [x for x in was if _id(x) not in stays], [x for x in now if _id(x) not in stays]
    # By identity: sets take (1,) and (True,) for one row.
    before, after = set(map(id, was)), set(map(id, now))
    return [x for x in was if id(x) not in after], [x for x in now if id(x) not in before]


def _each(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return list(value.items()) if isinstance(value, Mapping) else list(value)


def _id(value: Any) -> Any:
    """What an ordered fact is known by: an entry by its id, a certificate by its key."""
    return value if isinstance(value, str) else value.id


def _in_place(old: Sequence[T], new: Sequence[T]) -> set[T]:
    """What may keep its row where rows have an order: the first of the new, as long as they come as they came before.

    What left and came back in one batch is new, and comes last.
    """
    positions = {one: at for at, one in enumerate(old)}
    kept: set[T] = set()
    last = -1
    for one in new:
        if positions.get(one, -1) <= last:
            break
        last = positions[one]
        kept.add(one)
    return kept


def _rules(made: Delta, before: State, after: State, ranks_before: Callable[[], Ranks]) -> None:
    """Rules have ranks, by which they come before or after all that stay (D5)."""
    if before.rules is after.rules:
        return
    was, now = written(before, Source.RULE), written(after, Source.RULE)
    if len(was) == len(now) and all(map(is_, was, now)):
        return
    old = {rule.id: rule for rule in was}
    kept = [rule.id for rule in now if rule is old.get(rule.id)]
    ids = [rule.id for rule in now]
    start = ids.index(kept[0]) if kept else 0
    # Those that stay, stay in order. If ever not, all get new ranks.
    stay = set(kept)
    if ids[start : start + len(kept)] != kept or [rule for rule in old if rule in stay] != kept:
        kept, start, stay = [], 0, set()
    ranks = ranks_before()
    for position, rule in enumerate(was):
        if rule.id not in stay:
            made.end(RULES.table, {**RULES.form.dump(rule), "rank": ranks.low + position})
    for position, rule in enumerate(now):
        if rule.id not in stay:
            above, below = ranks.low - start, ranks.high + 1 - start - len(kept)
            place = (above if position < start else below) + position
            made.begin(RULES.table, {**RULES.form.dump(rule), "rank": place})


def preview(before: State, after: State, batch: Batch) -> list[Difference]:
    """What is in force after the batch and not before, and the other way round, by kind and in order of name."""
    made = delta(before, after, batch, lambda: Ranks(0, len(written(before, Source.RULE)) - 1))
    reasons = {row["id"]: row["reason"] for row in made.begins.get(schema.endings, ())}
    differences: list[Difference] = []
    for table in schema.WORDS:
        # Within a batch, what began again has kept its place.
        same_rank = {"rank": 0} if table in schema.RANKED else {}
        old = ({**row, **same_rank, "reason": reasons.get(row.get("id"))} for row in made.ends.get(table, ()))
        new = ({**row, **same_rank, "from_version": after.version} for row in made.begins.get(table, ()))
        differences += sorted(schema.differences(table, old, new), key=lambda one: one.name)
    return differences
