"""Is the database a ledger that this Headgate reads, and is it whole?

Guarantees: `recognise` refuses a ledger that is too new before anything else is read from it. `upgrade` brings one
of the format before to this one, whole or not at all. `verify` finds damage that the database knows of, versions that
are missing, intervals that overlap or lie outside the versions, rows that cannot be read, a credential graph that does
not hold together and starting points that go back.
Leaves out: a row altered into another valid row.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Table, and_, func, inspect, or_, select, text, update
from sqlalchemy.schema import CreateColumn

from headgate import __version__
from headgate.ledger import queries, schema
from headgate.ledger.collection import KEYS, METADATA
from headgate.ledger.load import load
from headgate.ledger.policy_rows import RULES
from headgate.ledger.storage import RESTORE, damage
from headgate.model.errors import Damaged, HeadgateError, TooNew, TooOld
from headgate.model.state import State
from headgate.roles.records.book import Book


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a ledger says of itself."""

    administrator: str
    format: int
    id: str
    """A name that no other ledger has; one in a file needs none."""


def recognise(connection: Connection, place: str) -> Recognised:
    """Refuse what is not a ledger, or one too new or too old; otherwise what it says of itself."""
    if not inspect(connection).has_table(schema.meta.name):
        raise Damaged(f"`{place}` is not a ledger", remedy="create one, or give the path of another")
    found = connection.execute(select(schema.meta.c.name, schema.meta.c.value))
    facts = {row.name: str(row.value) for row in found}
    try:
        written, administrator = int(facts["format"]), facts["administrator"]
    except (KeyError, ValueError):
        raise Damaged(f"`{place}` does not say what it is", remedy=RESTORE) from None
    if written > schema.FORMAT:
        raise TooNew(
            f"the ledger `{place}` has format {written}, written by Headgate {facts.get('headgate', '?')};"
            f" this is Headgate {__version__}, which reads formats up to {schema.FORMAT}",
            remedy="use a newer Headgate",
        )
    if written < schema.UPGRADED:
        raise TooOld(
            f"the ledger `{place}` has format {written}; this Headgate reads formats from {schema.UPGRADED}",
            remedy="make the domain anew: no release wrote this format",
        )
    return Recognised(administrator, written, facts.get("id", ""))


def upgrade(connection: Connection, place: str) -> None:
    """Bring a ledger of an earlier format to this one; the caller's transaction keeps it whole or not at all."""
    written = recognise(connection, place).format
    if written == schema.FORMAT:
        return  # someone else was first
    missing = schema.tables_of(written).difference(inspect(connection).get_table_names())
    if missing:
        raise Damaged(f"the ledger `{place}` lacks the table `{min(missing)}`", remedy=RESTORE)
    for table, name in (one for since, new in schema.NEW_COLUMNS.items() if since > written for one in new):
        column = CreateColumn(table.c[name]).compile(dialect=connection.dialect)
        connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {column}"))
    METADATA.create_all(connection)
    facts = schema.meta.c
    for fact, value in (("format", str(schema.FORMAT)), ("headgate", __version__)):
        connection.execute(update(schema.meta).where(facts.name == fact).values(value=value))


def glance(connection: Connection, place: str) -> None:
    """The quick check at every opening: pages, tables and the run of versions."""
    _pages(connection, place, thorough=False)
    _versions(connection, place)


def _versions(connection: Connection, place: str) -> None:
    missing = METADATA.tables.keys() - set(inspect(connection).get_table_names())
    if missing:
        raise Damaged(f"the ledger `{place}` lacks the table `{min(missing)}`", remedy=RESTORE)
    table = schema.versions
    low, high, count = connection.execute(
        select(func.min(table.c.version), func.max(table.c.version), func.count())
    ).one()
    if count and (low != 1 or high != count):
        raise Damaged(
            f"the ledger `{place}` holds {count} versions from {low} to {high}: some are missing", remedy=RESTORE
        )


def verify(connection: Connection, place: str, administrator: str) -> None:
    """The whole check."""
    _pages(connection, place, thorough=True)
    _versions(connection, place)
    latest = queries.latest(connection)
    for table in KEYS:
        _intervals(connection, place, table, latest)
    _ranks(connection, place)
    for row in connection.execute(select(RULES.table)).mappings():
        RULES.fact_of(row)
    queries.all_subscriptions(connection, latest)
    queries.versions(connection)
    _graph(load(connection, latest, administrator), place)
    _starting_points(connection, place, latest)


def _graph(state: State, place: str) -> None:
    """Do the records follow from one another, and has every membership and election its own?"""
    try:
        Book(state)
    except Damaged:
        raise
    except HeadgateError as error:
        raise Damaged(f"the roles of the ledger `{place}` do not hold together: {error}", remedy=RESTORE) from error


def _pages(connection: Connection, place: str, *, thorough: bool) -> None:
    found = damage(connection, thorough=thorough)
    if found is not None:
        raise Damaged(f"the ledger `{place}` is damaged: {found}", remedy=RESTORE)


def _intervals(connection: Connection, place: str, table: Table, latest: int) -> None:
    starts, ends = table.c.from_version, table.c.to_version
    wrong = or_(starts < 1, starts > latest, ends <= starts, ends > latest)
    if connection.execute(select(table.c.row).where(wrong).limit(1)).first() is not None:
        raise Damaged(f"the ledger `{place}` has {table.name} in force at versions that do not exist")
    key = [table.c[name] for name in KEYS[table]]
    following = func.lead(starts).over(partition_by=key, order_by=starts).label("following")
    runs = select(starts, ends, following).subquery()
    late = or_(runs.c.to_version.is_(None), runs.c.to_version > runs.c.following)
    overlap = and_(runs.c.following.is_not(None), late)
    if connection.execute(select(runs.c.from_version).where(overlap).limit(1)).first() is not None:
        raise Damaged(f"the ledger `{place}` has {table.name} in force twice at one version")


def _ranks(connection: Connection, place: str) -> None:
    table = RULES.table
    shared = select(table.c.rank).where(table.c.to_version.is_(None)).group_by(table.c.rank).having(func.count() > 1)
    if connection.execute(shared.limit(1)).first() is not None:
        raise Damaged(f"the ledger `{place}` has two rules in one place of the order")


def _starting_points(connection: Connection, place: str, latest: int) -> None:
    before: dict[str, int] = {}
    for point in queries.starting_points(connection):
        if point.version > latest or point.seq < before.get(point.stream, 0):
            raise Damaged(
                f"the ledger `{place}` starts version {point.version} on `{point.stream}` at {point.seq},"
                " which cannot be"
            )
        before[point.stream] = point.seq
