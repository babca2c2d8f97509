"""What changed between two versions, and all that ever touched a principal.

Guarantees: `difference` compares what is in force, so what came and went in between does not show. `history`
follows a principal through nested groups, as they were at each version: its attributes, its groups, the
roles it holds and why they ended, whom it elects, the rules that name it, them or its roles, its subscriptions.
Leaves out: what the conditions of those rules look at besides (types, relations, groups it is not in), event policy,
which is for everyone, and credential records (`words`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, select

from headgate.decide.rolebook import fit
from headgate.ledger import schema
from headgate.ledger.codec import ROLE, Stored
from headgate.ledger.collection import KEYS, Difference
from headgate.ledger.policy_rows import ADMITTED, ATTRIBUTES, MEMBERS, POLICY_RULES, PRINCIPALS, RULES, SUBSCRIPTIONS
from headgate.ledger.queries import versions
from headgate.ledger.role_rows import ELECTIONS, MEMBERSHIPS
from headgate.model.errors import NotFound
from headgate.model.values import brief

Interval: TypeAlias = tuple[int, int]
EVER: Final[Interval] = (0, 2**63)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One version that touched a principal."""

    version: int
    author: str
    time: datetime
    note: str
    words: tuple[str, ...]


def difference(connection: Connection, a: int, b: int) -> list[Difference]:
    """What is in force at `b` and not at `a`, and the other way round, by kind and in order of name."""
    differences: list[Difference] = []
    for table in schema.WORDS:
        old = _rows(connection, table, schema.in_force(table, a) & schema.not_in_force(table, b), through=b)
        new = _rows(connection, table, schema.in_force(table, b) & schema.not_in_force(table, a))
        differences += sorted(_differences(table, old, new), key=lambda one: one.name)
    return differences


def history(connection: Connection, principal: str, through: int) -> list[HistoryEntry]:
    """Every version that touched the principal, oldest first, with what it did in words."""
    membership = _Membership(connection, principal)
    held = _Held(connection, principal)
    mine: dict[Table, ColumnElement[bool]] = {
        PRINCIPALS.table: PRINCIPALS.table.c.name == principal,
        ATTRIBUTES.table: ATTRIBUTES.table.c.principal == principal,
        MEMBERS.table: MEMBERS.table.c.member.in_(membership.names),
        MEMBERSHIPS.table: MEMBERSHIPS.table.c.holder == principal,
        ELECTIONS.table: ELECTIONS.table.c.elector == principal,
        RULES.table: RULES.table.c.who.in_(membership.names) | RULES.table.c.role.is_not(None),
        ADMITTED.table: ADMITTED.table.c.who == principal,
        POLICY_RULES.table: POLICY_RULES.table.c.principal == principal,
        SUBSCRIPTIONS.table: SUBSCRIPTIONS.table.c.principal == principal,
    }
    # Rows of these tables touch the principal only while it is, or is in, whom they name.
    touches: dict[Table, Callable[[RowMapping, int], bool]] = {
        MEMBERS.table: lambda row, version: membership.holds(str(row["member"]), version),
        RULES.table: lambda row, version: (
            membership.holds(str(row["who"]), version) if row["role"] is None else held.fits(row, version)
        ),
    }
    words: dict[int, list[str]] = {}
    for table, which in mine.items():
        ended: dict[int, list[RowMapping]] = {}
        begun: dict[int, list[RowMapping]] = {}
        for row in _rows(connection, table, which):
            starts, ends = row["from_version"], row["to_version"]
            if table not in touches or touches[table](row, starts):
                begun.setdefault(starts, []).append(row)
            if ends is not None and (table not in touches or touches[table](row, ends - 1)):
                ended.setdefault(ends, []).append(row)
        for version in sorted(ended.keys() | begun.keys()):
            found = _differences(table, ended.get(version, []), begun.get(version, []))
            words.setdefault(version, []).extend(one.words for one in found)
    if not words and not _known(connection, principal):
        raise NotFound(f"the ledger never knew a principal `{brief(principal)}`")
    return [
        HistoryEntry(info.version, info.author, info.time, info.note, tuple(words[info.version]))
        for info in versions(connection, 0, through)
        if words.get(info.version)
    ]


def _rows(
    connection: Connection, table: Table, which: ColumnElement[bool], through: int | None = None
) -> list[RowMapping]:
    """Rows in order; of memberships and elections, with why they ended: with the row, or afterwards by `through`."""
    wanted = select(table)
    if table in schema.RANKED:
        ending = schema.endings
        # Whatever only changed has no ending, so the first one from there on is that of the row.
        latest = table.c.to_version if through is None else through
        during = (ending.c.id == table.c.id) & ending.c.from_version.between(table.c.to_version, latest)
        why = select(ending.c.reason).where(during).order_by(ending.c.from_version).limit(1)
        wanted = select(table, why.scalar_subquery().label("reason"))
    return list(connection.execute(wanted.where(which).order_by(table.c.row)).mappings())


def _differences(table: Table, old: Iterable[Stored], new: Iterable[Stored]) -> Iterator[Difference]:
    key = KEYS[table]
    pairs: dict[tuple[str, ...], list[Stored | None]] = {}
    for side, rows in enumerate((old, new)):
        for row in rows:
            pairs.setdefault(tuple(row[name] for name in key), [None, None])[side] = row
    for before, after in pairs.values():
        if (found := schema.compare(table, before, after)) is not None:
            yield found


def _known(connection: Connection, principal: str) -> bool:
    fact = schema.meta.c.name == "administrator"
    return principal == connection.scalar(select(schema.meta.c.value).where(fact))


class _Held:
    """Which roles a principal held when."""

    def __init__(self, connection: Connection, principal: str) -> None:
        rows = _rows(connection, MEMBERSHIPS.table, MEMBERSHIPS.table.c.holder == principal)
        self._every = [(MEMBERSHIPS.fact_of(row), row["from_version"], row["to_version"]) for row in rows]

    def fits(self, rule: Stored, version: int) -> bool:
        """Did the principal hold the role of a rule at a version?"""
        role = ROLE.load(rule["role"])
        return any(
            starts <= version
            and (ends is None or version < ends)
            and one.state is True
            and fit(role, one, {}) is not None
            for one, starts, ends in self._every
        )


class _Membership:
    """When a principal was in which groups, directly or through others."""

    def __init__(self, connection: Connection, principal: str) -> None:
        self._within: dict[str, list[Interval]] = {principal: [EVER]}
        edges: list[tuple[str, str, Interval]] = []
        frontier = {principal}
        seen: set[str] = set()
        while frontier:
            seen |= frontier
            rows = _rows(connection, MEMBERS.table, MEMBERS.table.c.member.in_(sorted(frontier)))
            for row in rows:
                ends = EVER[1] if row["to_version"] is None else row["to_version"]
                edges.append((row["group"], row["member"], (row["from_version"], ends)))
            frontier = {str(row["group"]) for row in rows} - seen
        # Groups have no cycle at any version but may have one over time, so repeat until nothing grows.
        grew = True
        while grew:
            grew = False
            for group, member, interval in edges:
                had = self._within.get(group, [])
                now = _merged([*had, *_common(self._within.get(member, []), interval)])
                if now != had:
                    self._within[group] = now
                    grew = True

    @property
    def names(self) -> list[str]:
        """The principal and every group it ever was in."""
        return sorted(self._within)

    def holds(self, whom: str, version: int) -> bool:
        """Was the principal in the group at the version? It always was itself."""
        return any(starts <= version < ends for starts, ends in self._within.get(whom, ()))


def _common(intervals: Iterable[Interval], other: Interval) -> Iterator[Interval]:
    for starts, ends in intervals:
        if (first := max(starts, other[0])) < (last := min(ends, other[1])):
            yield first, last


def _merged(intervals: list[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for starts, ends in sorted(intervals):
        if merged and starts <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(ends, merged[-1][1]))
        else:
            merged.append((starts, ends))
    return merged
