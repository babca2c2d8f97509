"""The writer of a gateway is killed with SIGKILL under load, and its publishers send again, to it or to another.

Nothing that was acknowledged is lost, and however often an event is sent it is in the log once. The processes are real,
and so are the kills; Spark takes no part.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from faults.run_gateway_writer import SIZE
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType, RemoveRule
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain

pytestmark = pytest.mark.soak

SEEDS = int(os.environ.get("HEADGATE_SEEDS", "3"))
KILLS_A_DOMAIN = 6
EVENTS = 4_000
SECONDS = 120
PUBLISH = AddRule(Rule("publish", "camera", frozenset({Action.PUBLISH}), "road.Sighting"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Domain.create(tmp_path / "domain") as domain:
        declared = DeclareType(EventType("road.Sighting", ADMINISTRATOR, {"n": Kind.INT}))
        domain.commit(Batch(ADMINISTRATOR, (DeclarePrincipal("camera"), declared, PUBLISH)))
    return tmp_path / "domain"


class Writing:
    """A process that writes one stream, and what it was heard to acknowledge."""

    def __init__(self, directory: Path, stream: str, begin: int, end: int = EVENTS) -> None:
        script = Path(__file__).with_name("run_gateway_writer.py")
        command = [sys.executable, str(script), str(directory), stream, str(begin), str(end)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.stored: set[int] = set()
        self.duplicates = 0
        self.refused: set[int] = set()
        assert self.hear() == "ready"

    def hear(self) -> str:
        """The next line that it says, noted."""
        assert self._process.stdout is not None
        return self._note(self._process.stdout.readline().strip())

    def _note(self, line: str) -> str:
        if line.startswith("answer"):
            first, _accepted, duplicates, *refused = map(int, line.split()[1:])
            self.refused |= set(refused)
            self.stored |= set(range(first, min(first + SIZE, EVENTS))) - set(refused)
            self.duplicates += duplicates
        return line

    def kill(self) -> None:
        """Kill it; what it said before counts, but for a line that it did not finish."""
        self._process.kill()
        assert self._process.stdout is not None
        for line in self._process.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                self._note(line.strip())
        self._process.wait(SECONDS)

    def finish(self) -> None:
        """Let it come to its end."""
        assert self._process.stdout is not None
        try:
            while self.hear() not in ("done", ""):
                pass
            assert self._process.wait(SECONDS) == 0
        finally:
            self._process.kill()
            self._process.stdout.close()


def stored(directory: Path) -> Counter[int]:
    """How often each event is in the log."""
    with Domain.open(directory) as domain:
        events = domain.events()
        for stream in domain.log.tails():
            seqs = [event.seq for event in events if event.stream == stream]
            assert seqs == list(range(1, len(seqs) + 1))
    return Counter(int(str(event.values["n"])) for event in events)


@pytest.mark.parametrize("first_seed", range(0, SEEDS, KILLS_A_DOMAIN))
def test_killed_writers_lose_nothing_and_store_nothing_twice(directory: Path, first_seed: int) -> None:
    acknowledged: set[int] = set()
    duplicates = 0
    for seed in range(first_seed, min(first_seed + KILLS_A_DOMAIN, SEEDS)):
        dice = random.Random(seed)
        # Everything from the first event without an answer on is sent again, now to this gateway, now to that one.
        begin = next((n for n in range(EVENTS) if n not in acknowledged), EVENTS)
        running = [Writing(directory, stream, begin) for stream in dice.sample(("gateway-1", "gateway-2"), 2)]
        for _ in range(dice.randint(1, 60)):
            dice.choice(running).hear()
        for one in running:
            one.kill()
            assert not one.refused
            acknowledged |= one.stored
            duplicates += one.duplicates
        found = stored(directory)
        assert acknowledged <= found.keys(), f"seed {seed}: acknowledged and lost"
        assert not [n for n, times in found.items() if times > 1], f"seed {seed}: stored twice"
    last = Writing(directory, "gateway-1", 0)
    last.finish()
    assert duplicates + last.duplicates > 0
    assert stored(directory) == Counter(range(EVENTS))


def test_an_event_that_was_stored_is_a_duplicate_even_after_the_right_to_publish_is_gone(directory: Path) -> None:
    first = Writing(directory, "gateway-1", 0)
    while len(first.stored) < 50:
        first.hear()
    first.kill()
    there = set(stored(directory))
    with Domain.open(directory) as domain:
        domain.commit(Batch(ADMINISTRATOR, (RemoveRule("publish"),)))
    # Some of these were stored and never answered; told that they were refused, their publisher would be misled.
    second = Writing(directory, "gateway-2", 0)
    second.finish()
    assert second.stored == there
    assert second.refused == set(range(EVENTS)) - there
    assert set(stored(directory)) == there
