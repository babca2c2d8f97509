"""What is asked of the ledger: versions, starting points, what changed, and all that ever touched a principal.

Guarantees: the answer about versions up to `through` never changes, whatever is committed later. Starting points never
go back: on each stream a later version starts where an earlier one does or after it (D7). `difference` compares what is
in force, so what came and went in between does not show. `history` follows a principal through nested groups, as they
were at each version: its attributes, its groups, the roles it holds and why they ended, whom it elects, the rules that
name it, them or its roles, its subscriptions.
Leaves out: what the conditions of those rules look at besides (types, relations, groups it is not in), event policy,
which is for everyone, and credential records (`role_rows`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, func, insert, select

from headgate.decide.rolebook import fit
from headgate.ledger import schema
from headgate.ledger.codec import ROLE, Stored, decoding
from headgate.ledger.collection import BEGUN, Difference
from headgate.ledger.policy_rows import (
    ADMITTED,
    ATTRIBUTES,
    MEMBERS,
    POLICY_RULES,
    PRINCIPALS,
    RULES,
    SUBSCRIPTIONS,
    TYPES,
)
from headgate.ledger.role_rows import ELECTIONS, MEMBERSHIPS, RECORDS, ROLEFILES
from headgate.model.errors import BadDefinition, NotFound, StaleVersion, VersionConflict
from headgate.model.rights import Subscription
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Reference
from headgate.model.types import check_name
from headgate.model.values import INT_MAX, brief, moment
from headgate.roles.requests.audit import RoleTurn, is_audited


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """Who made a version, when, and why."""

    version: int
    author: str
    time: datetime
    note: str


@dataclass(frozen=True, slots=True)
class HistoryEntry(VersionInfo):
    """One version that touched a principal."""

    words: tuple[str, ...]


def latest(connection: Connection) -> int:
    """The latest version."""
    return connection.scalar(select(func.max(schema.versions.c.version))) or 0


def difference(connection: Connection, a: int, b: int) -> list[Difference]:
    """What is in force at `b` and not at `a`, and the other way round, by kind and in order of name."""
    differences: list[Difference] = []
    for table in schema.WORDS:
        old = _rows(connection, table, schema.in_force(table, a) & schema.not_in_force(table, b), through=b)
        new = _rows(connection, table, schema.in_force(table, b) & schema.not_in_force(table, a))
        differences += sorted(schema.differences(table, old, new), key=lambda one: one.name)
    return differences


def history(connection: Connection, principal: str) -> list[HistoryEntry]:
    """Every version that touched the principal, oldest first, with what it did in words."""
    groups = _Groups(connection, principal)
    held = _Held(connection, principal)
    mine: dict[Table, ColumnElement[bool]] = {
        PRINCIPALS.table: PRINCIPALS.table.c.name == principal,
        ATTRIBUTES.table: ATTRIBUTES.table.c.principal == principal,
        MEMBERS.table: MEMBERS.table.c.member.in_(groups.names),
        MEMBERSHIPS.table: MEMBERSHIPS.table.c.holder == principal,
        ELECTIONS.table: ELECTIONS.table.c.elector == principal,
        RULES.table: RULES.table.c.who.in_(groups.names) | RULES.table.c.role.is_not(None),
        ADMITTED.table: ADMITTED.table.c.who == principal,
        POLICY_RULES.table: POLICY_RULES.table.c.principal == principal,
        SUBSCRIPTIONS.table: SUBSCRIPTIONS.table.c.principal == principal,
    }
    # Rows of these tables touch the principal only while it is, or is in, whom they name.
    touches: dict[Table, Callable[[RowMapping, int], bool]] = {
        MEMBERS.table: lambda row, version: groups.holds(str(row["member"]), version),
        RULES.table: lambda row, version: (
            groups.holds(str(row["who"]), version) if row["role"] is None else held.fits(row, version)
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
            found = schema.differences(table, ended.get(version, []), begun.get(version, []))
            words.setdefault(version, []).extend(one.words for one in found)
    if not words and not _known(connection, principal):
        raise NotFound(f"the ledger never knew a principal `{brief(principal)}`")
    return [
        HistoryEntry(info.version, info.author, info.time, info.note, tuple(words[info.version]))
        for info in versions(connection)
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


def _known(connection: Connection, principal: str) -> bool:
    fact = schema.meta.c.name == "administrator"
    return principal == connection.scalar(select(schema.meta.c.value).where(fact))


class _Held:
    """Which roles a principal held when."""

    def __init__(self, connection: Connection, principal: str) -> None:
        rows = _rows(connection, MEMBERSHIPS.table, MEMBERSHIPS.table.c.holder == principal)
        self._every = [(MEMBERSHIPS.fact_of(row), row) for row in rows]

    def fits(self, rule: Stored, version: int) -> bool:
        """Did the principal hold the role of a rule at a version?"""
        role = ROLE.load(rule["role"])
        return any(
            one.state is True and _is_in_force(row, version) and fit(role, one, {}) is not None
            for one, row in self._every
        )


class _Groups:
    """When a principal was in which groups, directly or through others."""

    def __init__(self, connection: Connection, principal: str) -> None:
        self._principal = principal
        self._rows: list[RowMapping] = []
        self._at: dict[int, set[str]] = {}
        self.names = {principal}
        """The principal and every group it ever was in."""
        frontier = self.names
        while frontier:
            found = _rows(connection, MEMBERS.table, MEMBERS.table.c.member.in_(sorted(frontier)))
            frontier = {str(row["group"]) for row in found} - self.names
            self.names |= frontier
            self._rows += found

    def holds(self, whom: str, version: int) -> bool:
        """Was the principal in the group at the version? It always was itself."""
        if version not in self._at:
            then = [row for row in self._rows if _is_in_force(row, version)]
            inside, grew = {self._principal}, True
            while grew:
                groups = {row["group"] for row in then if row["member"] in inside}
                grew = not groups <= inside
                inside |= groups
            self._at[version] = inside
        return whom in self._at[version]


def _is_in_force(row: Stored, version: int) -> bool:
    return row["from_version"] <= version and (row["to_version"] is None or version < row["to_version"])


@dataclass(frozen=True, slots=True)
class SubscriptionChanges:
    """The subscriptions that began, and those that ended as (id, first, the version that closed it)."""

    opened: list[Subscription]
    closed: list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """The first `seq` of a stream to which a version applies."""

    stream: str
    version: int
    seq: int


def subscription_changes(connection: Connection, after: int, through: int) -> SubscriptionChanges:
    """What began and ended in `(after, through]`; what did both is in both lists."""
    table = SUBSCRIPTIONS.table
    begun = table.c.from_version.between(after + 1, through)
    ended = table.c.to_version.between(after + 1, through)
    opened = connection.execute(select(table).where(begun).order_by(table.c.from_version, table.c.row))
    closed = connection.execute(
        select(table.c.id, table.c.from_version, table.c.to_version)
        .where(ended)
        .order_by(table.c.to_version, table.c.row)
    )
    return SubscriptionChanges(
        [SUBSCRIPTIONS.fact_of(row) for row in opened.mappings()],
        [(name, first, closed_at) for name, first, closed_at in closed],
    )


@dataclass(frozen=True, slots=True)
class DetectionChanges:
    """The detections that began, and those that ended with the version that closed them; by their numbers."""

    opened: list[tuple[int, Subscription]]
    closed: list[tuple[int, int]]


def detection_changes(connection: Connection, after: int, through: int) -> DetectionChanges:
    """The detections that began and ended in `(after, through]`, with their numbers among all subscriptions."""
    if after >= through:  # to number all subscriptions takes a while
        return DetectionChanges([], [])
    table = SUBSCRIPTIONS.table
    order = table.c.from_version, table.c.row
    numbered = select(table, (func.row_number().over(order_by=order) - 1).label("place")).subquery()
    mine = select(numbered).where(numbered.c.detection.is_not(None)).order_by(numbered.c.place)
    opened = connection.execute(mine.where(numbered.c.from_version.between(after + 1, through)))
    closed = connection.execute(mine.where(numbered.c.to_version.between(after + 1, through)))
    return DetectionChanges(
        [(row["place"], SUBSCRIPTIONS.fact_of(row)) for row in opened.mappings()],
        [(row["place"], row["to_version"]) for row in closed.mappings()],
    )


def all_subscriptions(connection: Connection, through: int) -> list[tuple[Subscription, int | None]]:
    """Every subscription that began by `through`, with the version that closed it if it had ended by then."""
    table = SUBSCRIPTIONS.table
    rows = connection.execute(
        select(table).where(table.c.from_version <= through).order_by(table.c.from_version, table.c.row)
    )
    return [
        (SUBSCRIPTIONS.fact_of(row), None if (row["to_version"] or through + 1) > through else row["to_version"])
        for row in rows.mappings()
    ]


def versions(connection: Connection, after: int = 0, through: int | None = None) -> list[VersionInfo]:
    """Who made the versions in `(after, through]`, or all after one, when and why; oldest first."""
    table = schema.versions
    wanted = table.c.version.between(after + 1, INT_MAX if through is None else through)
    rows = connection.execute(select(table).where(wanted).order_by(table.c.version))
    infos = []
    for row in rows.mappings():
        with decoding("version", row["version"]):
            time, note = moment(row["recorded_at"]), json.loads(row["note"])
            infos.append(VersionInfo(row["version"], row["author"], time, note))
    return infos


def type_since(connection: Connection, name: str) -> datetime | None:
    """When a type became what it is, or was retired; None if there never was one of that name."""
    types, made = TYPES.table, schema.versions
    recorded = connection.execute(
        select(made.c.recorded_at)
        .join(types, types.c.from_version == made.c.version)
        .where(types.c.name == name, types.c.to_version.is_(None))
    ).scalar()
    return None if recorded is None else moment(recorded)


def record_state(connection: Connection, ref: Reference) -> bool | None:
    """What is believed of a credential record at the latest version; one that is no more is false."""
    table = RECORDS.table
    which = (table.c.ref == ref) & table.c.to_version.is_(None)
    found = connection.execute(select(table.c.state).where(which)).one_or_none()
    return False if found is None else found.state


def endings(connection: Connection, id: str) -> list[tuple[int, str]]:
    """The versions that ended memberships or elections of an id, with the reasons."""
    table = schema.endings
    rows = connection.execute(
        select(table.c.from_version, table.c.reason).where(table.c.id == id).order_by(table.c.from_version)
    )
    with decoding("ending", id):
        return [(version, json.loads(reason)) for version, reason in rows]


def role_turns(connection: Connection, since: int, version: int) -> list[RoleTurn]:
    """What versions after `since`, up to one, made of memberships of roles that were audited then, in order."""
    table, over = MEMBERSHIPS.table, schema.endings
    began = select(table).where(
        table.c.from_version.between(since + 1, version), table.c.rank >= table.c.from_version * BEGUN
    )
    changes = [(row["from_version"], 1, row["row"], row, "") for row in connection.execute(began).mappings()]
    ended = (
        select(table, over.c.reason.label("why"))
        .join(over, (over.c.id == table.c.id) & (over.c.from_version == table.c.to_version))
        .where(table.c.to_version.between(since + 1, version))
    )
    for row in connection.execute(ended).mappings():
        with decoding("ending", row["id"]):
            changes.append((row["to_version"], 0, row["row"], row, json.loads(row["why"])))
    turns: list[RoleTurn] = []
    for at, is_begun, _, row, reason in sorted(changes, key=lambda one: one[:3]):
        membership = MEMBERSHIPS.fact_of(row)
        if is_audited(_rolefile_at(connection, membership.service, at if is_begun else at - 1), membership.role):
            note = connection.scalar(select(schema.versions.c.note).where(schema.versions.c.version == at))
            with decoding("version", at):
                said = json.loads(note or '""')
            turns.append(RoleTurn("entered" if is_begun else "ended", membership, at, reason, said))
    return turns


def _rolefile_at(connection: Connection, service: str, version: int) -> Rolefile | None:
    table = ROLEFILES.table
    wanted = select(table).where(table.c.service == service, schema.in_force(table, version))
    row = connection.execute(wanted).mappings().first()
    return None if row is None else ROLEFILES.fact_of(row)


def starting_points(
    connection: Connection, version: int | None = None, stream: str | None = None
) -> list[StartingPoint]:
    """The recorded starting points of a version, of a stream, or all."""
    table = schema.starting_points
    wanted = select(table.c.stream, table.c.version, table.c.seq).order_by(table.c.stream, table.c.version)
    if version is not None:
        wanted = wanted.where(table.c.version == version)
    if stream is not None:
        wanted = wanted.where(table.c.stream == stream)
    return [StartingPoint(*row) for row in connection.execute(wanted)]


def newest_starting_points(connection: Connection) -> dict[str, int]:
    """The newest version that has a starting point, of each stream."""
    table = schema.starting_points
    found = connection.execute(select(table.c.stream, func.max(table.c.version)).group_by(table.c.stream))
    return {row[0]: row[1] for row in found}


def record_starting_point(connection: Connection, new: StartingPoint) -> None:
    """Record where a version starts, once; a point that contradicts a recorded one is refused."""
    check_name("stream", new.stream)
    if not 0 <= new.seq <= INT_MAX:
        raise BadDefinition(f"`{new.seq}` is not a place in a stream")
    table = schema.starting_points
    newest = connection.execute(
        select(table.c.version, table.c.seq)
        .where(table.c.stream == new.stream)
        .order_by(table.c.version.desc())
        .limit(1)
    ).one_or_none()
    recorded = connection.scalar(
        select(table.c.seq).where(table.c.stream == new.stream, table.c.version == new.version)
    )
    what = f"version {new.version} on the stream `{new.stream}`"
    if recorded is not None:
        if recorded != new.seq:
            raise VersionConflict(f"{what} is recorded to start at {recorded}, not at {new.seq}")
        return
    if newest is not None:
        # An older version that came after a newer one would claim events that the append stamped without it.
        if newest.version > new.version:
            raise StaleVersion(f"{what} cannot start: version {newest.version} started there already")
        if newest.seq > new.seq:
            raise StaleVersion(
                f"{what} cannot start at {new.seq}: version {newest.version} started at {newest.seq}",
                remedy=f"start it at {newest.seq} or later",
            )
    connection.execute(insert(table).values(stream=new.stream, version=new.version, seq=new.seq))
