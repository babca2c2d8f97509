"""The tables and queries can be said to PostgreSQL too; nothing here needs its driver."""

from sqlalchemy import select
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from headgate.ledger import schema
from headgate.ledger.collection import METADATA
from headgate.ledger.policy_rows import RULES

POSTGRESQL = postgresql.dialect()  # type: ignore[no-untyped-call]


def test_every_table_and_index_has_a_form_for_postgresql() -> None:
    for table in METADATA.sorted_tables:
        assert str(CreateTable(table).compile(dialect=POSTGRESQL))
        for index in table.indexes:
            text = str(CreateIndex(index).compile(dialect=POSTGRESQL))
            assert ("WHERE to_version IS NULL" in text) == (index.name or "").endswith("_in_force")


def test_rows_are_numbered_by_the_database() -> None:
    text = str(CreateTable(RULES.table).compile(dialect=POSTGRESQL))
    assert "BIGSERIAL" in text or "GENERATED" in text


def test_a_writer_locks_a_row_where_beginning_does_not() -> None:
    locking = select(schema.meta.c.value).with_for_update()
    assert str(locking.compile(dialect=POSTGRESQL)).endswith("FOR UPDATE")
