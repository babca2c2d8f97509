"""The pipeline process for real: killed, struck by a fault, stopped; nothing lost, doubled or left behind."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.cli.node.init import make_domain
from headgate.commands.delivery.local import read_deliveries
from headgate.commands.publishing.local import LocalPublisher
from headgate.lang.composite import parse_composite
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType, Subscribe
from headgate.model.events import Draft
from headgate.model.rights import Action, Detection, Rule, Subscription
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import SIGNAL, EventType
from headgate.model.values import Kind
from headgate.node.config import Files
from headgate.node.domain import Domain, utc_now
from headgate.node.health import HealthWatch
from headgate.node.processes import kill_session, of_session
from headgate.node.supervisor import READY_SECONDS

pytestmark = pytest.mark.spark

SECRET = "the-secret-of-the-test"
Process = subprocess.Popen[bytes]


def run(directory: Path, module: str = "headgate.node.pipeline_process", *before: str) -> Process:
    """The process in a session of its own, as the supervisor starts it."""
    log = (directory / "pipeline.log").open("ab")
    settings = "log.level=debug", "pipeline.lease=2s"
    return subprocess.Popen(
        [sys.executable, "-m", module, *before, str(directory), *(word for one in settings for word in ("--set", one))],
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    )


def said(process: Process, seconds: float = READY_SECONDS) -> dict[str, object]:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    assert ready, "it said nothing"
    line = process.stdout.readline()
    assert line, f"it ended with status {process.wait(10)}"
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def until(what: Callable[[], bool], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.1)


@pytest.fixture
def running() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        kill_session(process.pid)
        process.wait(30)


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[Domain]:
    made = make_domain(tmp_path / "shop", None, (), utc_now())
    with Domain.open(made.files.data) as domain:
        sees, publishes = frozenset({Action.SUBSCRIBE}), frozenset({Action.PUBLISH})
        domain.commit(
            Batch(
                ADMINISTRATOR,
                (
                    DeclarePrincipal("till"),
                    DeclarePrincipal("ann"),
                    DeclareType(EventType("shop.Sale", ADMINISTRATOR, {"item": Kind.STRING, "amount": Kind.INT})),
                    AddRule(Rule("sells", "till", publishes, "shop.Sale")),
                    AddRule(Rule("reads", "ann", sees, "shop.Sale")),
                ),
            )
        )
        domain.commit(Batch("ann", (Subscribe(Subscription("ann:all", "ann", "shop.Sale")),)))
        yield domain


def sell(domain: Domain, first: int, count: int) -> list[str]:
    drafts = [Draft(f"e{n}", "till", "shop.Sale", {"item": SECRET, "amount": n}) for n in range(first, first + count)]
    assert all(one.refusal is None for one in LocalPublisher(domain).publish_all(drafts))
    return [draft.id for draft in drafts]


def delivered(domain: Domain) -> list[str]:
    return [one.event for _, one in read_deliveries(domain)]


def test_killed_struck_and_stopped_it_goes_on_where_it_was(domain: Domain, running: list[Process]) -> None:
    directory = domain.paths.directory.parent

    # It decides what is published.
    first = run(directory)
    running.append(first)
    assert said(first)["event"] == "ready"
    sent = sell(domain, 0, 50)
    until(lambda: delivered(domain) == sent)
    inside = of_session(first.pid)
    assert len(inside) > 2, "the driver, its JVM and workers"

    # A second one waits, without Spark, as `headgate pipeline` would be started beside it.
    second = run(directory, "headgate.cli.main", "pipeline")
    running.append(second)
    assert f":{first.pid}:" in str(said(second)["waiting_for"])
    assert of_session(second.pid) == [second.pid]

    # A fault inside a micro-batch is got over without a new process.
    domain.paths.fault.write_text("write")
    sent += sell(domain, 50, 50)
    until(lambda: delivered(domain) == sent)
    assert not domain.paths.fault.exists()
    assert first.poll() is None

    # Killed in the middle of work, the driver takes its JVM and workers with it.
    sent += sell(domain, 100, 500)
    first.send_signal(signal.SIGKILL)
    assert first.wait(10) == -signal.SIGKILL
    until(lambda: of_session(first.pid) == [])

    # The other takes over, and goes on: nothing lost, nothing doubled.
    sent += sell(domain, 600, 50)
    until(lambda: len(delivered(domain)) >= len(sent))
    assert delivered(domain) == sent

    # That one is stopped as it is about to write a micro-batch, past its lease, while a third takes over.
    token = domain.store.lease().token
    third = run(directory)
    running.append(third)
    assert f":{second.pid}:" in str(said(third)["waiting_for"])
    second.send_signal(signal.SIGSTOP)  # its JVM goes on, and decides
    sent += sell(domain, 650, 50)
    until(lambda: len(delivered(domain)) >= len(sent))
    assert domain.store.lease().token > token
    before = list(domain.store.blobs()), domain.store.reached(), domain.store.lease().token

    # When it wakes up, it writes nothing, and says why it ends.
    second.send_signal(signal.SIGCONT)
    assert second.wait(60) == 1
    until(lambda: of_session(second.pid) == [])
    assert (list(domain.store.blobs()), domain.store.reached(), domain.store.lease().token) == before
    assert "lease-lost" in (directory / "pipeline.log").read_text()
    sent += sell(domain, 900, 50)
    until(lambda: len(delivered(domain)) >= len(sent))
    assert delivered(domain) == sent
    watch = HealthWatch.open(Files(directory).data)
    facts = watch.look(utc_now())
    watch.close()
    assert facts.lag == {"main": 0}
    assert facts.decided_version == facts.ledger_version == domain.ledger.version

    # Detections that cannot run are tried again, and said to be; deliveries go on meanwhile.
    domain.paths.detections.write_text("no directory")
    composite = parse_composite("shop.Sale(item, *)")
    detection = Detection("shop.Sale(item, *)", composite, {}, utc_now())
    domain.commit(Batch("ann", (Subscribe(Subscription("ann:seen", "ann", SIGNAL, detection=detection)),)))
    told = said(third)
    assert (told["event"], told["what"]) == ("degraded", "detections")
    sent += sell(domain, 700, 50)
    until(lambda: delivered(domain) == sent)
    domain.paths.detections.unlink()
    while told["event"] == "degraded":
        told = said(third)
    assert (told["event"], told["what"]) == ("recovered", "detections")
    assert third.poll() is None
    until(lambda: domain.signals.reached().streams.get("main") == len(sent))

    # Asked to stop, it does, with nothing left behind.
    third.terminate()
    assert third.wait(30) == 0
    until(lambda: of_session(third.pid) == [])

    # Damaged data is final, and said.
    sell(domain, 1_000, 1)
    domain.log._db.execute("UPDATE batches SET blob = zeroblob(10) WHERE first = (SELECT max(first) FROM batches)")
    fourth = run(directory)
    running.append(fourth)
    assert said(fourth)["event"] == "ready"
    told = said(fourth)
    assert told["code"] == "damaged"
    assert str(domain.paths.log) in str(told["message"])
    assert fourth.wait(30) == 3

    written = (directory / "pipeline.log").read_text()
    assert "query-failed" in written
    assert SECRET not in written
