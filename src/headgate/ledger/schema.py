"""The tables of the ledger: those that the collections describe, and the few others.

Guarantees: whatever a state holds, but for its version, is in a collection.
Leaves out: how rows are written (`delta`) and read (`load`, `queries`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from sqlalchemy import BigInteger, BindParameter, Column, ColumnElement, Index, String, Table, Text, and_, or_

from headgate.ledger.codec import Stored, decoding
from headgate.ledger.collection import KEYS, METADATA, Collection, Difference, OfFact, Words, key_of
from headgate.ledger.policy_rows import ADMITTED, POLICY, RULES, SUBSCRIPTIONS
from headgate.ledger.role_rows import ROLES
from headgate.ledger.statement_rows import STATEMENTS

FORMAT: Final = 6
"""The format that this Headgate writes, and the newest that it reads."""

UPGRADED: Final = 3
"""The oldest format that is brought to this one when a ledger is opened."""

COLLECTIONS: Final[tuple[Collection, ...]] = (*POLICY, *STATEMENTS, *ROLES)
"""Every collection. Families stand together, in the order in which they are read."""

RANKED: Final = frozenset(one.table for one in COLLECTIONS if one.ranked)
"""The tables whose facts keep their place in the order when they change."""

WORDS: Final[dict[Table, Words]] = {one.table: one.words for one in COLLECTIONS if one.words is not None}
"""The tables whose facts have words, in the order in which differences are told."""

meta: Final = Table("meta", METADATA, Column("name", String, primary_key=True), Column("value", Text, nullable=False))
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
# Why memberships and elections ended, at the version that ended them.
endings: Final = Table(
    "endings",
    METADATA,
    Column("id", String, primary_key=True),
    Column("from_version", BigInteger, primary_key=True, autoincrement=False),
    Column("reason", Text, nullable=False),
)

NEW_TABLES: Final[dict[int, tuple[Table, ...]]] = {4: (*(one.table for one in ROLES), endings), 5: (), 6: ()}
"""The tables that each format brought."""

NEW_COLUMNS: Final[dict[int, tuple[tuple[Table, str], ...]]] = {
    4: ((RULES.table, "role"), (ADMITTED.table, "role"), (SUBSCRIPTIONS.table, "counted")),
    5: ((RULES.table, "attested"), (ADMITTED.table, "attested")),
    6: ((SUBSCRIPTIONS.table, "detection"),),
}
"""The columns that each format brought to tables from before it; they may be null, or have a default."""


def tables_of(format: int) -> frozenset[str]:
    """The names of the tables that a ledger of a format has."""
    later = {table.name for since, tables in NEW_TABLES.items() if since > format for table in tables}
    return frozenset(METADATA.tables) - later


def tables(which: Callable[[Collection], bool] = lambda _: True) -> list[Table]:
    """The tables of those collections of which something is true, in order."""
    return list(dict.fromkeys(one.table for one in COLLECTIONS if which(one)))


def in_force(table: Table, version: int | BindParameter[int]) -> ColumnElement[bool]:
    """The rows in force at a version."""
    ends = table.c.to_version
    return and_(table.c.from_version <= version, or_(ends.is_(None), ends > version))


def not_in_force(table: Table, version: int) -> ColumnElement[bool]:
    """The rows not in force at a version."""
    return or_(table.c.from_version > version, table.c.to_version <= version)


def differences(table: Table, old: Iterable[Stored], new: Iterable[Stored]) -> Iterator[Difference]:
    """What became of each fact, in words, given the rows that are no longer in force and those that are now."""
    pairs: dict[tuple[Any, ...], list[Stored | None]] = {}
    for side, rows in enumerate((old, new)):
        for row in rows:
            pairs.setdefault(key_of(table, row), [None, None])[side] = row
    for before, after in pairs.values():
        if (difference := _compare(table, before, after)) is not None:
            yield difference


def _compare(table: Table, before: Stored | None, after: Stored | None) -> Difference | None:
    """What became of one fact, in words; nothing, if it came back as it was."""
    row = after if after is not None else before
    if row is None:
        return None
    words = WORDS[table]
    with decoding(words.kind, row[KEYS[table][0]]):
        text = words.text or f"{{{KEYS[table][-1]}}}"
        old = None if before is None else _of_fact(text, table, before)
        new = None if after is None else _of_fact(text, table, after)
        name = _of_fact(words.name or ": ".join(f"{{{key}}}" for key in KEYS[table]), table, row, new or old or "")
        if before is None or old is None:
            sentence: str | None = _filled(words.added, row, new or "")
        elif after is None or new is None:
            sentence = _filled(words.removed, row, old)
        elif old == new:
            sentence = words.again(before, after, new)
        else:
            sentence = words.changed(before, after, old, new) or f"{words.kind} `{name}` changed: {old}; now: {new}"
        return None if sentence is None else Difference(words.kind, name, old, new, sentence)


def _of_fact(words: OfFact, table: Table, row: Stored, said: str = "") -> str:
    if isinstance(words, str):
        return _filled(words, row, said)
    (collection,) = (one for one in COLLECTIONS if one.table is table and one.own([row]))
    return words(collection.form.load(row))


def _filled(words: Any, row: Stored, said: str) -> str:
    text: str = words.format_map({**row, "said": said}) if isinstance(words, str) else words(row, said)
    return text
