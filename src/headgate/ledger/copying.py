"""A ledger, row by row, into an empty one of another database.

Guarantees: all rows or none, in one transaction; afterwards every table holds the same rows in the same order, and the
order of what comes later goes on from there. What says which ledger it is stays the new one's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, Table, func, insert, select, text

from headgate.ledger import schema
from headgate.ledger.collection import METADATA
from headgate.ledger.ledger import Ledger
from headgate.model.errors import BadDefinition, Damaged

ROWS_AT_ONCE: Final = 5_000


def copy(source: Ledger, target: Ledger) -> int:
    """Copy everything but what says which ledger it is; how many rows there are."""
    if target.version:
        raise BadDefinition(f"the ledger `{target.place}` is not empty", remedy="name a new database")
    tables = [table for table in METADATA.sorted_tables if table is not schema.meta]
    copied = 0
    with source._storage.reading() as old, target._storage.writing() as new:
        for table in tables:
            rows = _rows(old, table)
            while some := list(islice(rows, ROWS_AT_ONCE)):
                new.execute(insert(table), some)
                copied += len(some)
            _continue(new, table)
        for table in tables:
            if any(one != other for one, other in zip(_rows(old, table), _rows(new, table), strict=True)):
                raise Damaged(f"`{target.place}`: the table `{table.name}` is not what was copied")
    return copied


def _rows(connection: Connection, table: Table) -> Iterator[Mapping[str, Any]]:
    ordered = select(table).order_by(*table.primary_key.columns)
    found = connection.execute(ordered, execution_options={"yield_per": ROWS_AT_ONCE})  # this statement alone
    return (dict(row) for row in found.mappings())


def _continue(connection: Connection, table: Table) -> None:
    """Rows that a database numbers itself get the numbers after those that were copied."""
    if connection.dialect.name == "sqlite" or "row" not in table.c:
        return
    newest = connection.execute(select(func.max(table.c.row))).scalar()
    if newest is not None:
        sequence = text("SELECT setval(pg_get_serial_sequence(:name, 'row'), :newest)")
        connection.execute(sequence, {"name": table.name, "newest": newest})
