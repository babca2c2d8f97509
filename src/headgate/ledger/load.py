"""The state at a version, out of the rows in force there, and brought forward from one version to a later.

Guarantees: equal to what `roles.requests.transition` made when the version was committed, rules, types, memberships and
elections in the same order. Bringing a state forward costs what changed, or the collections that changed where those
are read anew. A row that does not fit the others (a member of no group, a type without its parent) is `damaged`, not
left out. A batch that was made for a version may be committed at a later one (docs/decisions/0041) only if no version
in between changed the policy as its authors wrote it: what subscribers, publishers, holders of roles and those who show
statements do never stands in its way.
Leaves out: the graph of credential records in memory (`roles.records.book`), which is made from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, bindparam, literal, or_, select, union, union_all

from headgate.analysis.plan import same_rules
from headgate.ledger import queries, schema
from headgate.ledger.policy_rows import SUBSCRIPTIONS
from headgate.model.errors import VersionConflict
from headgate.model.state import State

_FAMILIES: Final = [
    list(family) for _, family in groupby(schema.COLLECTIONS, lambda one: one.family or (one.table.name, one.kind))
]


def load(connection: Connection, version: int, administrator: str, *, subscriptions: bool = True) -> State:
    """The whole state at a version; without subscriptions, all the rest of it."""
    state = State(version=version, administrator=administrator)
    for table, collections in groupby(schema.COLLECTIONS, lambda one: one.table):
        if subscriptions or table is not SUBSCRIPTIONS.table:
            rows = _rows(connection, table, schema.in_force(table, version))
            for collection in collections:
                state = collection.read(state, collection.own(rows))
    return state


def advance(connection: Connection, state: State, version: int) -> State:
    """A state brought forward to a later version; what did not change since is not read again."""
    since = state.version
    names = set(connection.scalars(_TOUCHED, {"after": since + 1, "through": version}))
    for family in _FAMILIES:
        if not any(one.table.name in names for one in family):
            continue
        for collection in family:
            table = collection.table
            if collection.follow is None:
                state = collection.read(
                    state, collection.own(_rows(connection, table, schema.in_force(table, version)))
                )
                continue
            over = table.c.to_version.between(since + 1, version) & (table.c.from_version <= since)
            begun = table.c.from_version.between(since + 1, version) & schema.in_force(table, version)
            ended = collection.own(_rows(connection, table, over))
            state = collection.follow(state, ended, collection.own(_rows(connection, table, begun)))
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


def _rows(connection: Connection, table: Table, which: ColumnElement[bool]) -> list[RowMapping]:
    order = (table.c.rank, table.c.row) if table in schema.RANKED else (table.c.row,)
    return list(connection.execute(select(table).where(which).order_by(*order)).mappings())


def _within(column: ColumnElement[int]) -> ColumnElement[bool]:
    return column.between(bindparam("after"), bindparam("through"))


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


def passed_over(connection: Connection, after: int, through: int) -> Rebased:
    """What the versions in `(after, through]` changed, in words."""
    kinds = {one.table: one.comes_by for one in schema.COLLECTIONS}
    changed = (kind for table, kind in kinds.items() if touched(connection, [table], after, through))
    return Rebased(max(0, through - after), tuple(dict.fromkeys(changed)))


def check_same_policy(connection: Connection, expect: int, now: State, at: Callable[[int], State]) -> None:
    """Refuse if policy is another than at the expected version; `at` tells the state at a version."""
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
