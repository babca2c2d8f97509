"""A domain moves to a database and back: every version says what it said, and nothing half-way is ever gone by."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.node import free_ports
from harness.postgres import PostgresServer
from headgate.cli.main import app
from headgate.cli.node.init import make_domain
from headgate.commands import moving
from headgate.commands.moving import move
from headgate.ledger import Ledger
from headgate.model.changes import (
    AddMember,
    AddRule,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    RemoveRule,
    Subscribe,
)
from headgate.model.errors import AlreadyRunning, BadConfig, BadDefinition, StorageBusy, StorageFull
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.config import Config, Files, set_in_file
from headgate.node.cursors import Ack, Cursors
from headgate.node.domain import Domain
from headgate.node.process_status import PID
from headgate.node.processes import Lock
from headgate.node.statement_register import StatementRegister
from headgate.node.topology import prepare
from headgate.pipeline.paths import Paths

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = make_domain(tmp_path / "shop", None, (), NOW).files
    with Domain.open(made.data) as domain:
        told: list[tuple[Change, ...]] = [
            (DeclarePrincipal("ann"), DeclareGroup("staff"), DeclareType(EventType("a.T", "ann", {"i": Kind.INT}))),
            (AddRule(Rule("r", "ann", frozenset({Action.SUBSCRIBE}), "a.T")), AddMember("staff", "ann")),
            (Subscribe(Subscription("s", "ann", "a.T")),),
            (RemoveRule("r"),),
        ]
        for changes in told:
            domain.commit(Batch(domain.ledger.administrator, changes, "a note"))
        with closing(Cursors(domain.paths.shared(Cursors.FILE))) as cursors:
            cursors.ack_many([Ack("s", 4, {"main": 7})], NOW)
            cursors.end_session("x", NOW)
        with closing(StatementRegister(domain.paths.shared(StatementRegister.FILE))) as register:
            register.revoke("one", NOW)
    return made


def content(files: Files) -> dict[str, Any]:
    """What is said of every version, and of shared state."""
    paths = Paths(files.data)
    with Domain.open(files.data) as domain, closing(Cursors(paths.shared(Cursors.FILE))) as cursors:
        ledger = domain.ledger
        cursors.look()
        with closing(StatementRegister(paths.shared(StatementRegister.FILE))) as register:
            return {
                "versions": ledger.versions(),
                "states": [ledger.state(version) for version in range(ledger.version + 1)],
                "acked": cursors.acked("s", 4),
                "ended": cursors.ended("x"),
                "revoked": register.revocations(),
            }


def test_there_and_back_again_nothing_has_changed(files: Files, postgres: PostgresServer) -> None:
    before, address = content(files), postgres.database()
    moved = move(files, address)
    assert (moved.version, Paths(files.data).database) == (5, address)
    assert Config.load(files.directory).storage.database == address
    assert content(files) == before
    with Domain.open(files.data) as domain:  # and it goes on from there, under new numbers
        domain.commit(Batch(domain.ledger.administrator, (DeclarePrincipal("bob"),)))
        with closing(Cursors(domain.paths.shared(Cursors.FILE))) as cursors:
            cursors.end_session("y", NOW)
            assert cursors.ended("y")
    after = content(files)
    stale = (files.data / "ledger.db").read_bytes()
    back = move(files, None)
    assert content(files) == after
    assert Config.load(files.directory).storage.database == ""
    assert back.aside is not None  # the old ledger is nowhere gone by, and nowhere lost
    assert (back.aside / "ledger.db").read_bytes() == stale


class Killed(BaseException):
    """In place of `kill -9`: nothing is put right."""


class Steps:
    """Counts what is called, and ends everything at one of these calls."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.calls = 0

    def counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **how: Any) -> Any:
            self.calls += 1
            if self.calls == self.last:
                raise Killed
            return real(*given, **how)

        return act


PARTS: dict[Any, tuple[str, ...]] = {
    moving: ("copy_ledger", "copy", "set_in_file", "sync_directory"),
    Ledger: ("create", "discard"),
    Paths: ("keep_in",),
    Path: ("rename", "mkdir", "write_text", "unlink"),
}


@pytest.mark.parametrize("to_database", [True, False])
def test_whoever_is_killed_at_it_may_ask_again(
    files: Files, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, to_database: bool
) -> None:
    """Before every step of it: the domain says what it said, and the next move is whole."""
    address = postgres.database()
    if not to_database:
        move(files, address)
    before, target = content(files), address if to_database else None
    struck = 0
    for last in range(1, 200):
        steps = Steps(last)
        with monkeypatch.context() as patch, suppress(Killed):
            for owner, names in PARTS.items():
                for name in names:
                    patch.setattr(owner, name, steps.counted(getattr(owner, name)))
            move(files, target)
        assert content(files) == before
        if steps.calls < last:
            break
        struck = last
    assert struck > 8
    assert (Paths(files.data).database, Config.load(files.directory).storage.database) == (target, target or "")
    assert not (files.data / "moving").exists()


def test_nobody_has_the_domain_open_meanwhile(
    files: Files, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = postgres.database()
    with Domain.open(files.data), pytest.raises(AlreadyRunning, match=r"has `.*` open"):
        move(files, address)

    def looks(*_: object) -> int:
        with pytest.raises(StorageBusy, match="is being moved"):
            Domain.open(files.data)
        return 0

    monkeypatch.setattr(moving, "copy", looks)
    move(files, address)


def test_a_move_whose_last_step_is_missing_is_finished(files: Files, postgres: PostgresServer) -> None:
    address = postgres.database()
    move(files, address)
    set_in_file(files, "storage.database", "")
    assert move(files, address).rows == 0
    assert Config.load(files.directory).storage.database == address


def test_what_the_old_place_never_had_is_not_left_from_another_time(files: Files, postgres: PostgresServer) -> None:
    address = postgres.database()
    with closing(Cursors(address)) as cursors:
        cursors.ack_many([Ack("old", 1, {"main": 1})], NOW)
    for one in files.data.glob("cursors.db*"):
        one.unlink()
    move(files, address)
    with closing(Cursors(address)) as cursors:
        assert cursors.acked("old", 1) == {}


def test_what_fails_half_way_is_never_gone_by(
    files: Files, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, settings = content(files), files.config.read_text()

    def full(*_: object) -> int:
        raise StorageFull("no room")

    monkeypatch.setattr(moving, "copy", full)
    with pytest.raises(StorageFull):
        move(files, postgres.database())
    assert content(files) == before
    assert (Paths(files.data).database, files.config.read_text()) == (None, settings)


def test_only_an_empty_place_is_moved_to_and_nobody_runs_meanwhile(files: Files, postgres: PostgresServer) -> None:
    address = postgres.database()
    with Lock(files.data / PID, "the node"), pytest.raises(AlreadyRunning):
        move(files, address)
    Ledger.create(address).close()
    with pytest.raises(BadDefinition, match="already exists"):
        move(files, address)
    with pytest.raises(BadDefinition, match="already"):
        move(files, None)


def test_the_ledger_of_another_domain_is_refused(files: Files, postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.database()
    move(files, address)
    other = make_domain(tmp_path / "other", None, (), NOW, postgres.database()).files
    mine, theirs = files.data / "database", other.data / "database"
    theirs.write_text(f"{address}\n{theirs.read_text().splitlines()[1]}\n")
    with pytest.raises(BadConfig, match="another domain"):
        Domain.open(other.data)
    mine.write_text("nonsense\n")
    with pytest.raises(BadConfig, match="is not the address"):
        Domain.open(files.data)


def test_settings_that_say_another_place_are_refused(files: Files, postgres: PostgresServer) -> None:
    move(files, postgres.database())
    with pytest.raises(BadConfig, match=r"storage\.database"):
        prepare(files.directory, {}, {"storage.database": ""})
    assert prepare(files.directory, {}, {}).files.directory == files.directory


def test_the_commands_make_move_and_check_a_domain(tmp_path: Path, postgres: PostgresServer) -> None:
    place, address = tmp_path / "shop", postgres.database()
    run = CliRunner()

    def said(*words: str, status: int = 0) -> str:
        done = run.invoke(app, list(words))
        assert done.exit_code == status, done.output
        return " ".join(done.output.split())

    said("init", str(place), "--database", address)
    assert not (place / "data" / "ledger.db").exists()
    said("policy", "apply", str(place / "policy"), "--domain", str(place), "--yes")
    assert "version 2" in said("migrate", str(place), "--files")
    assert "version 2" in said("migrate", str(place), "--database", postgres.database())
    assert "where to is not said" in said("migrate", str(place), status=2)
    assert "has a password" in said("init", str(tmp_path / "x"), "--database", "postgresql://a:b@h/n", status=2)
    assert not (tmp_path / "x").exists()
    set_in_file(Files(place), "gateway.port", free_ports(1))
    assert "every row as it was written" in said("doctor", str(place))
