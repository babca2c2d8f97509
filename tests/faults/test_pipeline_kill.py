"""The streaming query's process is killed with SIGKILL at random moments: nothing lost, nothing delivered twice.

One domain lives through all the kills of a run. While events are published and the policy changes, the process that
runs Spark is killed, with its JVM and its workers, and started again from its checkpoint. In the end the deliveries
must be exactly those of the reference decision.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.commands.delivery.local import read_deliveries
from headgate.commands.publishing.local import LocalPublisher
from headgate.decide.deliver import decide
from headgate.lang import parse_condition
from headgate.model.changes import (
    AddMember,
    AddRule,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    RemoveMember,
    Subscribe,
)
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain
from headgate.pipeline.log.codec import layouts
from strategies.stored import read

pytestmark = [pytest.mark.spark, pytest.mark.soak]

SEEDS = int(os.environ.get("HEADGATE_SEEDS", "2"))
KILLS_A_DOMAIN = 10
START_SECONDS = 120


def run(directory: Path, how: str) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("run_pipeline.py")
    return subprocess.Popen(
        [sys.executable, str(script), str(directory), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    said = process.stdout.readline().strip() if ready else "nothing"
    assert said == word, f"the pipeline said {said!r}, and its status is {process.poll()}"


def descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found = [pid]
    for one in found:
        found.extend(child for child, parent in parents.items() if parent == one)
    return found


def kill(process: subprocess.Popen[str]) -> None:
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(30)


class Traffic:
    """A publisher and an administrator who never stop."""

    def __init__(self, domain: Domain, rng: random.Random) -> None:
        self.domain, self.rng, self.sent, self.asked, self.inside = domain, rng, 0, 0, False
        domain.commit(
            Batch(
                ADMINISTRATOR,
                (
                    *(DeclarePrincipal(p) for p in ("camera", "smith", "billing")),
                    DeclareGroup("warrant"),
                    DeclareType(EventType("road.Sighting", "camera", {"plate": Kind.STRING, "speed": Kind.INT})),
                    AddRule(Rule("publish", "camera", frozenset({Action.PUBLISH}), "road.Sighting")),
                    AddRule(Rule("warrant", "warrant", frozenset({Action.SUBSCRIBE}), "road.Sighting")),
                    AddRule(Rule("bill", "billing", frozenset({Action.SUBSCRIBE}), "road.*", attributes=("plate",))),
                ),
            )
        )
        self.subscribe("smith", "speed > 30", history=False)
        self.subscribe("billing", "plate != 'B'", history=False)

    def subscribe(self, who: str, where: str, *, history: bool) -> None:
        self.asked += 1
        wanted = Subscription(f"s{self.asked}", who, "road.Sighting", parse_condition(where), history)
        self.domain.commit(Batch(who, (Subscribe(wanted),)))

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.06:
            change = RemoveMember("warrant", "smith") if self.inside else AddMember("warrant", "smith")
            self.inside = not self.inside
            self.domain.commit(Batch(ADMINISTRATOR, (change,)))
        elif chance < 0.08:
            self.subscribe(self.rng.choice(("smith", "billing")), "plate = 'A'", history=True)
        else:
            drafts = []
            for _ in range(self.rng.randint(1, 20)):
                self.sent += 1
                values = {"plate": self.rng.choice("ABC"), "speed": self.rng.randint(0, 60)}
                drafts.append(Draft(f"e{self.sent}", "camera", "road.Sighting", values))
            LocalPublisher(self.domain).publish_all(drafts, stream=self.rng.choice(("north", "south")))


def batches_done(domain: Domain, wanted: int) -> Callable[[], bool]:
    """Have so many micro-batches been written since now?"""
    seen = [domain.store.reached()]

    def enough() -> bool:
        if domain.store.reached() != seen[-1]:
            seen.append(domain.store.reached())
        return len(seen) > wanted

    return enough


def go_on(traffic: Traffic, rng: random.Random, until: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        traffic.step()
        time.sleep(rng.uniform(0, 0.05))


def check_no_duplicates(domain: Domain) -> None:
    places = layouts(domain.ledger.state().types)
    seen = Counter((d.subscription, d.stream, d.seq) for blob in domain.store.blobs() for d in read(blob, places))
    assert [key for key, times in seen.items() if times > 1] == []


@pytest.mark.parametrize("first_seed", range(0, SEEDS, KILLS_A_DOMAIN))
def test_killed_at_random_moments_nothing_is_lost_or_repeated(tmp_path: Path, first_seed: int) -> None:
    domain = Domain.create(tmp_path / "domain")
    traffic = Traffic(domain, random.Random(first_seed))
    for seed in range(first_seed, min(first_seed + KILLS_A_DOMAIN, SEEDS)):
        rng = random.Random(seed)
        process = run(domain.paths.directory, "forever")
        try:
            wait_for(process, "ready")
            if seed % 2:  # let some micro-batches finish, so that a later one is hit
                go_on(traffic, rng, until=batches_done(domain, rng.randint(1, 5)), seconds=60)
            go_on(traffic, rng, until=lambda: False, seconds=rng.uniform(0.0, 1.5 if seed % 2 else 6.0))
        finally:
            kill(process)
        check_no_duplicates(domain)
    process = run(domain.paths.directory, "finish")
    try:
        wait_for(process, "done")
    finally:
        kill(process)

    states = {v: domain.ledger.state(v) for v in range(domain.ledger.version + 1)}
    wanted = [s for s, _ in domain.ledger.all_subscriptions(domain.ledger.version)]
    expected = Counter(
        (s.id, e.stream, e.seq, tuple(found.view.items()))
        for e in domain.events()
        for s in wanted
        if (found := decide(e, s, states.__getitem__, {})) is not None
    )
    delivered = Counter((name, d.stream, d.seq, tuple(d.view.items())) for name, d in read_deliveries(domain))
    assert sum(expected.values()) > 0
    assert delivered == expected
