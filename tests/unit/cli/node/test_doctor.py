"""`headgate doctor` over a good domain, and over each way in which one can be bad."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.cli.node.doctor import Check, Outcome, examine
from headgate.cli.node.init import make_domain
from headgate.commands.publishing.local import LocalPublisher
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.config import Files
from headgate.node.domain import Domain, utc_now
from headgate.node.health import Chores, write_chores
from headgate.node.process_status import PID, ProcessStatus, write_processes
from headgate.node.processes import Lock
from headgate.pipeline.paths import Paths


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return make_domain(tmp_path / "shop", None, (), utc_now()).files


def checked(files: Files, now: datetime | None = None) -> dict[str, Check]:
    return {one.name: one for one in examine(files.directory, now or utc_now())}


def bad(files: Files, now: datetime | None = None) -> dict[str, Outcome]:
    """What is neither well nor left out."""
    fine = {"ok", "skip"}
    return {name: one.finding for name, one in checked(files, now).items() if one.finding not in fine}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port of the settings may be in use on this machine, the disk slow, and memory short."""
    monkeypatch.setenv("HEADGATE_GATEWAY_PORT", "28743")
    monkeypatch.setenv("HEADGATE_PIPELINE_MEMORY", "1m")
    monkeypatch.setenv("HEADGATE_LIMITS_CONNECTIONS", "10")
    monkeypatch.setattr("headgate.cli.node.doctor.SLOW_SYNC", 60.0)


def test_a_new_domain_only_lacks_its_policy(files: Files) -> None:
    assert bad(files) == {"policy": "warn"}
    done = CliRunner().invoke(app, ["doctor", str(files.directory)])
    assert done.exit_code == 0, done.output
    assert "1 to look at" in done.output
    assert list(files.data.glob(".doctor*")) == [], "nothing is left behind"


def test_with_its_policy_applied_all_is_well(files: Files) -> None:
    done = CliRunner().invoke(app, ["policy", "apply", str(files.policy), "--yes"])
    assert done.exit_code == 0, done.output
    assert set(bad(files)) <= {"keys of principals"}


def test_as_json(files: Files) -> None:
    done = CliRunner().invoke(app, ["doctor", str(files.directory), "--json"])
    found = {one["name"]: one for one in json.loads(done.output)}
    assert found["java"]["finding"] == "ok"
    assert found["policy"]["finding"] == "warn"
    assert set(found["policy"]) == {"name", "finding", "found", "remedy"}


def test_what_is_no_domain_fails_and_says_what_to_do(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", str(tmp_path), "--json"])
    assert done.exit_code == 1
    found = {one["name"]: one for one in json.loads(done.output)}
    assert found["settings"]["finding"] == "fail"
    assert "headgate init" in found["settings"]["remedy"]
    assert found["ledger"]["finding"] == "fail"
    assert found["python"]["finding"] == "ok", "the other checks are made all the same"


def damage(path: Path) -> None:
    path.write_bytes(b"no database, though it is quite long enough for one" * 100)


def remove(path: Path) -> None:
    path.unlink()


def expose(path: Path) -> None:
    path.chmod(0o644)


@pytest.mark.parametrize(
    ("which", "what", "name"),
    [
        (lambda f: f.broker_key, remove, "broker's key"),
        (lambda f: f.broker_key, expose, "broker's key"),
        (lambda f: f.position_key, remove, "position key"),
        (lambda f: f.position_key, expose, "position key"),
        (lambda f: f.metrics_token, expose, "metrics token"),
        (lambda f: f.admin_key, expose, "administrator's key"),
        (lambda f: f.tls_certificate, remove, "certificate"),
        (lambda f: f.tls_certificate, damage, "certificate"),
        (lambda f: f.tls_key, expose, "certificate"),
        (lambda f: f.config, damage, "settings"),
        (lambda f: Paths(f.data).ledger, damage, "ledger"),
        (lambda f: Paths(f.data).log, damage, "log and deliveries"),
        (lambda f: Paths(f.data).log, remove, "log and deliveries"),
        (lambda f: Paths(f.data).deliveries, damage, "log and deliveries"),
        (lambda f: next(f.policy.iterdir()), damage, "policy"),
    ],
)
def test_each_fault_is_found(
    files: Files, which: Callable[[Files], Path], what: Callable[[Path], None], name: str
) -> None:
    what(which(files))
    assert bad(files)[name] == "fail"
    assert CliRunner().invoke(app, ["doctor", str(files.directory)]).exit_code == 1


def test_the_administrators_key_need_not_be_there(files: Files) -> None:
    files.admin_key.unlink()
    assert checked(files)["administrator's key"].finding == "skip"


def test_a_certificate_that_expires_soon_or_has(files: Files) -> None:
    now = utc_now()
    assert bad(files, now + timedelta(days=800))["certificate"] == "warn"
    assert bad(files, now + timedelta(days=900))["certificate"] == "fail"


def test_a_clock_that_went_back(files: Files) -> None:
    assert bad(files, utc_now() - timedelta(days=1))["clock"] == "warn"


def test_files_of_another_format(files: Files) -> None:
    with sqlite3.connect(Paths(files.data).log) as db:
        db.execute("PRAGMA user_version=99")
    assert "newer Headgate" in checked(files)["log and deliveries"].found


def test_events_that_wait_and_principals_without_keys(files: Files) -> None:
    with Domain.open(files.data) as domain:
        domain.commit(
            Batch(
                ADMINISTRATOR,
                (
                    DeclarePrincipal("till"),
                    DeclareType(EventType("Sale", ADMINISTRATOR, {"amount": Kind.INT})),
                    AddRule(Rule("r", "till", frozenset({Action.PUBLISH}), "Sale")),
                ),
            )
        )
        LocalPublisher(domain, advertise=False).publish(
            Draft("e1", "till", "Sale", {"amount": 1}), now=utc_now() - timedelta(minutes=5)
        )
    found = checked(files)
    assert found["pipeline"].finding == "warn"
    assert "1 events wait" in found["pipeline"].found
    assert found["keys of principals"].finding == "warn"
    assert "`till`" in found["keys of principals"].found


def test_processes_that_are_away_or_in_trouble(files: Files) -> None:
    assert not [name for name in checked(files) if name.startswith("process ")], "no node is up"
    word = {
        "pipeline": ProcessStatus(restarts=4, reason="damaged", detail="`log.db` is damaged; restore it", pause=8.0),
        "gateway-1": ProcessStatus(True, restarts=1, reason="x", detail="it was ended by SIGKILL", pause=0.2),
        "gateway-2": ProcessStatus(reason="it was ended by SIGKILL", detail="it was ended by SIGKILL", pause=0.2),
        "gateway-3": ProcessStatus(True, failing={"detections": "too-old"}),
        "follower": ProcessStatus(),
    }
    with Lock(files.data / PID, "the node"):
        write_processes(files.data, word)
        found = {name.partition(" ")[2]: one for name, one in checked(files).items() if name.startswith("process ")}
    assert [(name, one.finding) for name, one in found.items()] == [
        ("pipeline", "warn"), ("gateway-1", "ok"), ("gateway-2", "warn"), ("gateway-3", "warn"), ("follower", "ok"),
    ]  # fmt: skip
    away = found["pipeline"]
    assert away.found == (
        "away, tried again after 8 s; started again 4 times, the last because `log.db` is damaged; restore it"
    )
    assert "logs/pipeline.log" in away.remedy
    assert found["gateway-1"].found == "running; started again 1 time, the last because it was ended by SIGKILL"
    assert found["gateway-2"].found == "away: it was ended by SIGKILL"
    assert "lack of memory" in found["gateway-2"].remedy
    assert found["gateway-3"].found == "detections fail: too-old"


def test_what_retention_took_from_a_reader(files: Files) -> None:
    write_chores(files.data, Chores(lost_events=12))
    assert "12 events" in checked(files)["retention"].found
    assert checked(files)["retention"].finding == "warn"


def test_a_disk_that_is_slow_or_short(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.cli.node.doctor.SLOW_SYNC", 0.0)
    monkeypatch.setattr("headgate.cli.node.doctor.LOW_BYTES", 1 << 60)
    found = bad(files)
    assert found["durable write"] == "warn"
    assert found["disk"] == "warn"


def test_a_machine_that_allows_too_little(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_PIPELINE_MEMORY", "900000g")
    monkeypatch.setenv("HEADGATE_LIMITS_CONNECTIONS", "1000000")
    monkeypatch.setenv("JAVA_HOME", str(files.directory))
    found = bad(files)
    assert found["memory"] == "warn"
    assert found["open files"] == "warn"
    assert found["java"] == "fail"
