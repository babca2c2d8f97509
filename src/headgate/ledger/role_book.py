"""The role book at a version, out of the rows in force there, and brought forward from one version to a later.

Guarantees: equal to what `roles.requests.transition` made when the version was committed, and in the same order:
memberships and elections stand as they began, whatever has changed of them since. Bringing a book forward costs what
changed.
Leaves out: the graph in memory (`roles.records.book`), which is made from the book.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, select

from headgate.decide.rolebook import merged
from headgate.ledger import role_rows, schema
from headgate.model.rolefiles import EventPolicy, Representative
from headgate.model.roles import Ending, RecordWatch, RoleBook, RoleFacts

T = TypeVar("T")

RANKED: Final = (schema.memberships, schema.elections)
"""The tables whose facts keep their place in the order when they change."""

_BATCH_BITS: Final = 32
BEGUN: Final = 1 << _BATCH_BITS
"""What the version with which something began is multiplied by in its place in the order."""


def rank(version: int, position: int) -> int:
    """The place in the order of what begins as one of several with a version."""
    return version << _BATCH_BITS | position


def load_book(connection: Connection, version: int) -> RoleBook:
    """The whole book at a version."""

    def every(table: Table, read: Callable[[RowMapping], T]) -> tuple[T, ...]:
        return tuple(map(read, _rows(connection, table, schema.in_force(table, version))))

    facts = RoleFacts(
        memberships=every(schema.memberships, role_rows.membership_of),
        elections=every(schema.elections, role_rows.election_of),
        records=every(schema.records, role_rows.record_of),
        banned=every(schema.bans, role_rows.ban_of),
        peers=every(schema.peers, role_rows.peer_of),
        rolefiles=every(schema.rolefiles, lambda row: (row["service"], role_rows.rolefile_of(row))),
        watched=every(schema.watches, _watch),
    )
    policies = every(schema.event_policy, role_rows.policy_of)
    return replace(
        merged(RoleBook(), facts),
        policy=policies[-1] if policies else EventPolicy(),
        representatives={one.type: one for one in every(schema.representatives, role_rows.representative_of)},
    )


def advance_book(connection: Connection, book: RoleBook, since: int, version: int) -> RoleBook:
    """A book of the version `since`, brought forward; only rows that began or ended in between are read."""
    seen = _Seen(connection, since, version)
    memberships, elections = seen.begun(schema.memberships), seen.begun(schema.elections)
    # What ended and began again as the same has kept its rank; what took over an id has a rank of its own.
    kept = {row["id"] for row in (*memberships, *elections) if row["rank"] < rank(since + 1, 0)}
    gone = dict.fromkeys([*seen.ended(schema.memberships, "id"), *seen.ended(schema.elections, "id")])
    services = seen.fresh(schema.rolefiles, "service", role_rows.rolefile_of)
    peers = seen.fresh(schema.peers, "name", role_rows.peer_of)
    records = seen.fresh(schema.records, "ref", role_rows.record_of)
    facts = RoleFacts(
        memberships=tuple(map(role_rows.membership_of, memberships)),
        elections=tuple(map(role_rows.election_of, elections)),
        records=tuple(records.values()),
        ended=tuple(Ending(id, "") for id in gone if id not in kept),
        dropped=tuple(ref for ref in seen.ended(schema.records, "ref") if ref not in records),
        banned=tuple(map(role_rows.ban_of, seen.begun(schema.bans))),
        lifted=tuple(map(role_rows.ban_of, seen.over(schema.bans))),
        peers=tuple(peers.values()),
        rolefiles=(
            *((name, None) for name in seen.ended(schema.rolefiles, "service") if name not in services),
            *services.items(),
        ),
        watched=tuple(map(_watch, seen.begun(schema.watches))),
        unwatched=tuple(map(_watch, seen.over(schema.watches))),
        peers_gone=tuple(name for name in seen.ended(schema.peers, "name") if name not in peers),
    )
    policies = [role_rows.policy_of(row) for row in seen.begun(schema.event_policy)]
    policy = EventPolicy() if seen.over(schema.event_policy) else book.policy
    return replace(
        book if facts.empty else merged(book, facts),
        policy=policies[-1] if policies else policy,
        representatives=_representatives(book, seen),
    )


class _Seen:
    """What began or ended in `(since, version]`, and is in force at the version or not."""

    def __init__(self, connection: Connection, since: int, version: int) -> None:
        self._connection = connection
        self._since, self._version = since, version

    def begun(self, table: Table) -> list[RowMapping]:
        """The rows that began in between and are in force."""
        began = table.c.from_version.between(self._since + 1, self._version)
        return list(_rows(self._connection, table, began & schema.in_force(table, self._version)))

    def over(self, table: Table) -> list[RowMapping]:
        """The rows that were in force and ended."""
        return list(_rows(self._connection, table, self._ending(table)))

    def ended(self, table: Table, key: str) -> list[Any]:
        """The names of what was in force and ended, whether or not it began again."""
        return list(self._connection.scalars(select(table.c[key]).where(self._ending(table)).order_by(table.c.row)))

    def fresh(self, table: Table, key: str, read: Callable[[RowMapping], T]) -> dict[Any, T]:
        """What began in between and is in force, by name."""
        return {row[key]: read(row) for row in self.begun(table)}

    def _ending(self, table: Table) -> ColumnElement[bool]:
        ended = table.c.to_version.between(self._since + 1, self._version)
        return ended & (table.c.from_version <= self._since)


def _representatives(book: RoleBook, seen: _Seen) -> Mapping[str, Representative]:
    gone = seen.ended(schema.representatives, "type")
    new = seen.fresh(schema.representatives, "type", role_rows.representative_of)
    if not gone and not new:
        return book.representatives
    kept = {name: one for name, one in book.representatives.items() if name not in gone}
    return {**kept, **new}


def _watch(row: RowMapping) -> RecordWatch:
    return RecordWatch(row["watcher"], row["record"])


def _rows(connection: Connection, table: Table, which: ColumnElement[bool]) -> Iterable[RowMapping]:
    order = (table.c.rank, table.c.row) if table in RANKED else (table.c.row,)
    return connection.execute(select(table).where(which).order_by(*order)).mappings()
