"""The tables of the ledger.

Guarantees: every table of facts has `[from_version, to_version)`, where a null `to_version` is still in
force, and at most one row in force for each key. Names stand as they are (`check_name` made them printable);
all other text is JSON in ASCII, so that any string a value or condition holds can be stored in any database.
Leaves out: how rows are written (`delta`) and read (`load`, `queries`).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    or_,
)

FORMAT: Final = 5
"""The format that this Headgate writes, and the newest that it reads."""

UPGRADED: Final = 3
"""The oldest format that is brought to this one when a ledger is opened."""

METADATA: Final = MetaData()

meta: Final = Table(
    "meta",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)

versions: Final = Table(
    "versions",
    METADATA,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("author", String, nullable=False),
    Column("recorded_at", BigInteger, nullable=False),
    Column("note", Text, nullable=False),
)

starting_points: Final = Table(
    "starting_points",
    METADATA,
    Column("stream", String, primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Index("starting_points_by_version", "version"),
)

KEYS: Final[dict[Table, tuple[str, ...]]] = {}
"""The tables of facts, each with the columns that name a fact."""


def _facts(
    table: str, key: tuple[str, ...], *columns: Column[object] | Index, numbers: frozenset[str] = frozenset()
) -> Table:
    names = [Column(name, BigInteger if name in numbers else String, nullable=False) for name in key]
    made = Table(
        table,
        METADATA,
        # The order of rows is the order in which they were written.
        Column("row", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        *names,
        *columns,
        Column("from_version", BigInteger, nullable=False),
        Column("to_version", BigInteger),
        UniqueConstraint(*key, "from_version"),
        Index(f"{table}_by_from", "from_version"),
        Index(f"{table}_by_to", "to_version"),
    )
    in_force_now = made.c.to_version.is_(None)
    Index(
        f"{table}_in_force",
        *(made.c[name] for name in key),
        unique=True,
        sqlite_where=in_force_now,
        postgresql_where=in_force_now,
    )
    KEYS[made] = key
    return made


types: Final = _facts(
    "types",
    ("name",),
    Column("position", Integer, nullable=False),
    Column("definition", Text, nullable=False),
)
principals: Final = _facts("principals", ("name",))
subject_attributes: Final = _facts("subject_attributes", ("principal", "name"), Column("value", Text, nullable=False))
groups: Final = _facts("groups", ("name",), Column("open", Boolean, nullable=False))
members: Final = _facts("members", ("group", "member"), Index("members_by_member", "member"))
relations: Final = _facts("relations", ("name",), Column("open", Boolean, nullable=False))
# The key is a digest because a row may be longer than a database lets an index entry be.
relation_rows: Final = _facts("relation_rows", ("relation", "digest"), Column("values", Text, nullable=False))


def _entries(table: str) -> Table:
    """Ordered entries (D5)."""
    return _facts(
        table,
        ("id",),
        Column("rank", BigInteger, nullable=False),
        Column("who", String, nullable=False),
        Column("actions", Text, nullable=False),
        Column("type", String, nullable=False),
        Column("where", Text, nullable=False),
        Column("attributes", Text),
        Column("forced", Text, nullable=False),
        Column("effect", String, nullable=False),
        Column("disclose", Boolean, nullable=False),
        Column("author", String, nullable=False),
        # In place of `who`, which is then empty: whoever holds the role.
        Column("role", Text),
        # Only publishers with an identity statement in force; null is no.
        Column("attested", Boolean),
        Index(f"{table}_by_who", "who"),
    )


rules: Final = _entries("rules")
# What chains of certificates give: after all rules, in the order of their rows.
admitted: Final = _entries("admitted")
policy_rules: Final = _facts(
    "policy_rules",
    ("principal",),
    Column("where", Text, nullable=False),
    Column("attested", Boolean, nullable=False),
)
subscriptions: Final = _facts(
    "subscriptions",
    ("id",),
    Column("principal", String, nullable=False),
    Column("type", String, nullable=False),
    Column("where", Text, nullable=False),
    Column("history", Boolean, nullable=False),
    Column("since_version", BigInteger, nullable=False),
    Column("since_time", BigInteger),
    Column("requires", Text),
    Column("origin", String),
    Column("counted", Text),
    Index("subscriptions_by_principal", "principal"),
)
predicates: Final = _facts(
    "predicates",
    ("name",),
    Column("target", String, nullable=False),
    Column("digest", String, nullable=False),
)
keys: Final = _facts("keys", ("principal",), Column("key", String, nullable=False))
settings: Final = _facts("settings", ("name",), Column("value", Text, nullable=False))
advertisements: Final = _facts("advertisements", ("principal", "type"))
withdrawals: Final = _facts("withdrawals", ("principal",))
# Certificates, revocation lists, successions, identity providers and statements, issuing rules: by kind and id.
statements: Final = _facts("statements", ("kind", "id"), Column("content", Text, nullable=False))
# Who has presented which certificates, in the order of the rows.
bags: Final = _facts("bags", ("principal", "certificate"))


PRIVATE: Final = "$"
"""How the name of a setting begins that says of an attribute of subjects that it is private."""


# -- roles ------------------------------------------------------------------------------------------------------

# `rank` is the order of beginning: whatever changes of a membership or election, it keeps its place.
memberships: Final = _facts(
    "memberships",
    ("id",),
    Column("rank", BigInteger, nullable=False),
    Column("holder", String, nullable=False),
    Column("service", String, nullable=False),
    Column("instance", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("args", Text, nullable=False),
    Column("record", BigInteger, nullable=False),
    Column("state", Boolean),
    Column("statement", Text, nullable=False),
    Column("supports", Text, nullable=False),
    Column("appointment", Boolean, nullable=False),
    Column("until", BigInteger),
    Column("foreign", Boolean, nullable=False),
    Index("memberships_by_holder", "holder"),
)
elections: Final = _facts(
    "elections",
    ("id",),
    Column("rank", BigInteger, nullable=False),
    Column("elector", String, nullable=False),
    Column("content", Text, nullable=False),
    Index("elections_by_elector", "elector"),
)
# Parents are references, negative where the link is negated. `flags`: see `role_rows`.
records: Final = _facts(
    "records",
    ("ref",),
    Column("op", String, nullable=False),
    Column("parents", Text, nullable=False),
    Column("state", Boolean),
    Column("fact", Text, nullable=False),
    Column("flags", Integer, nullable=False),
    numbers=frozenset({"ref"}),
)
bans: Final = _facts("bans", ("digest",), Column("content", Text, nullable=False))
peers: Final = _facts("peers", ("name",), Column("content", Text, nullable=False))
watches: Final = _facts("watches", ("watcher", "record"), numbers=frozenset({"record"}))
rolefiles: Final = _facts("rolefiles", ("service",), Column("text", Text, nullable=False))
# One row at most, under the name `events`.
event_policy: Final = _facts("event_policy", ("name",), Column("text", Text, nullable=False))
representatives: Final = _facts("representatives", ("type",), Column("parameters", Text, nullable=False))
# Why memberships and elections ended, at the version that ended them.
endings: Final = Table(
    "endings",
    METADATA,
    Column("id", String, primary_key=True),
    Column("from_version", BigInteger, primary_key=True, autoincrement=False),
    Column("reason", Text, nullable=False),
)

ROLES: Final = (memberships, elections, records, bans, peers, watches, rolefiles, event_policy, representatives)
"""The tables of the role book, which came with format 4."""

NEW_TABLES: Final[dict[int, tuple[Table, ...]]] = {4: (*ROLES, endings), 5: ()}
"""The tables that each format brought."""

NEW_COLUMNS: Final[dict[int, tuple[tuple[Table, str], ...]]] = {
    4: ((rules, "role"), (admitted, "role"), (subscriptions, "counted")),
    5: ((rules, "attested"), (admitted, "attested")),
}
"""The columns that each format brought to tables from before it; they may be null, or have a default."""


def tables_of(format: int) -> frozenset[str]:
    """The names of the tables that a ledger of a format has."""
    later = {table.name for since, tables in NEW_TABLES.items() if since > format for table in tables}
    return frozenset(METADATA.tables) - later


def in_force(table: Table, version: int) -> ColumnElement[bool]:
    """The rows in force at a version."""
    ends = table.c.to_version
    return and_(table.c.from_version <= version, or_(ends.is_(None), ends > version))


def not_in_force(table: Table, version: int) -> ColumnElement[bool]:
    """The rows not in force at a version."""
    return or_(table.c.from_version > version, table.c.to_version <= version)
