"""A domain that was copied as the guide says is whole again where it is put back, and goes on from there."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from harness.postgres import PostgresServer, programs
from headgate.cli.node.init import make_domain
from headgate.commands.publishing.local import LocalPublisher
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.config import Files
from headgate.node.cursors import Ack, Cursors
from headgate.node.domain import Domain

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def publish(domain: Domain, id: str) -> None:
    LocalPublisher(domain).publish(Draft(id, "ann", "a.T", {"i": 1}))


def content(domain: Domain) -> tuple[object, ...]:
    with closing(Cursors(domain.paths.shared(Cursors.FILE))) as cursors:
        return domain.ledger.state(), domain.ledger.versions(), domain.events(), cursors.acked("s", 1)


@pytest.mark.parametrize("with_database", [False, True])
def test_what_was_copied_goes_on_where_it_is_put_back(
    tmp_path: Path, postgres: PostgresServer, with_database: bool
) -> None:
    address = postgres.database() if with_database else None
    files = make_domain(tmp_path / "shop", None, (), NOW, address).files
    with Domain.open(files.data) as domain:
        changes = (
            DeclarePrincipal("ann"),
            DeclareType(EventType("a.T", "ann", {"i": Kind.INT})),
            AddRule(Rule("r", "ann", frozenset({Action.PUBLISH}), "a.T")),
        )
        domain.commit(Batch(domain.ledger.administrator, changes))
        publish(domain, "one")
        with closing(Cursors(domain.paths.shared(Cursors.FILE))) as cursors:
            cursors.ack_many([Ack("s", 1, {"main": 1})], NOW)
        before = content(domain)
    shutil.copytree(files.directory, tmp_path / "backup", symlinks=True)
    dump = tmp_path / "backup.dump"
    if address is not None:
        subprocess.run([programs() / "pg_dump", "-Fc", "-f", dump, address], check=True)
    with Domain.open(files.data) as domain:
        publish(domain, "lost")
        domain.commit(Batch(domain.ledger.administrator, (DeclarePrincipal("lost"),)))

    shutil.rmtree(files.directory)
    shutil.copytree(tmp_path / "backup", files.directory, symlinks=True)
    if address is not None:
        name = address.rpartition("/")[2]
        with psycopg.connect(postgres.address("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        subprocess.run([programs() / "pg_restore", "-d", address, dump], check=True)
    with Domain.open(Files(tmp_path / "shop").data) as domain:
        domain.ledger.check()
        assert content(domain) == before
        publish(domain, "two")
        assert [event.id for event in domain.events()] == ["one", "two"]
