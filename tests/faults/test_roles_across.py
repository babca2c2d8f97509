"""Two domains, one of which goes by the other's roles, killed, stopped, cut off and restarted around a revocation.

Everything but Spark is real: gateways over TLS, the follower, the files; a process decides what is published as the
pipeline does. Whatever happens in between, no right outlives the silence that is borne, none that still holds is lost
for ever, and what was revoked never comes back. Times are those that the gateway stamped on what it accepted.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from harness.alone import wait
from headgate.model.errors import StorageBusy
from headgate.node.domain import Domain
from strategies.across import BOUND, Across, across, publish

pytestmark = pytest.mark.soak

SEEDS = int(os.environ.get("HEADGATE_SEEDS", "3"))
LONGEST = 3.2
"""Seconds for which something is broken: a little less or more than the silence that is borne."""
PARTS = ("there", "decider", "follower", "here")
PAUSE = 0.03
HEAL_SECONDS = 60.0


@dataclass
class Story:
    """Both domains with everyone who came, and what must hold of each."""

    world: Across
    kept: list[str] = field(default_factory=list)
    revoked: dict[str, datetime] = field(default_factory=dict)
    silences: list[tuple[datetime, datetime]] = field(default_factory=list)

    def whole(self) -> None:
        """Everything runs."""
        self.world.cable.mend()
        missing = [name for name in PARTS if name not in self.world.parts]
        self.world.start(*missing)

    def accepted(self) -> dict[str, list[datetime]]:
        """When something of each was accepted here."""
        found: dict[str, list[datetime]] = {}
        with Domain.open(self.world.here.files.data) as domain:
            for event in domain.events():
                found.setdefault(event.publisher, []).append(event.time)
        return found

    def check(self) -> None:
        """No right has outlived what is borne, as the gateway's own stamps say."""
        borne = timedelta(seconds=BOUND)
        for name, times in self.accepted().items():
            if name in self.revoked:
                last = max(times)
                assert last < self.revoked[name] + borne, f"{name}: {last} after {self.revoked[name]}"
            for begin, end in self.silences:
                late = [one for one in times if begin + borne <= one <= end]
                assert not late, f"{name}: {late} in a silence from {begin} to {end}"


class Trying(threading.Thread):
    """Publishes for some people over and over, whether or not there is anyone to hear it."""

    def __init__(self, world: Across, tokens: dict[str, str]) -> None:
        super().__init__()
        self._world = world
        self._tokens = tokens
        self._over = threading.Event()
        self.last: dict[str, bool] = {}
        self.failed: BaseException | None = None

    def run(self) -> None:
        number = 0
        while not self._over.wait(PAUSE):
            for name, token in self._tokens.items():
                number += 1
                try:
                    with self._world.here.http(token) as http:
                        self.last[name] = publish(self._world.here, http, f"{name} {time.monotonic_ns()}")
                except (httpx.HTTPError, IndexError):
                    self.last.pop(name, None)  # it is being restarted
                except AssertionError as error:
                    if "too-busy" not in str(error) and "storage-busy" not in str(error):
                        self.failed = error
                        return

    def __enter__(self) -> Trying:
        self.start()
        return self

    def __exit__(self, *failed: object) -> None:
        self._over.set()
        self.join()


def now() -> datetime:
    return datetime.now(UTC)


class Fault:
    """Something that is broken for a while; nothing new reaches `here` meanwhile."""

    def __init__(self, story: Story, what: str, how: str) -> None:
        self._story = story
        self._what = what
        self._how = how
        self._begun: datetime | None = None

    def begin(self) -> None:
        world = self._story.world
        if self._how == "cut":
            world.cable.cut()
        elif self._how == "kill":
            world.kill(self._what)
        else:
            world.signal(self._what, signal.SIGSTOP)
            time.sleep(0.05)
        self._begun = now()

    def end(self) -> None:
        assert self._begun is not None
        self._story.silences.append((self._begun, now()))
        world = self._story.world
        if self._how == "cut":
            world.cable.mend()
        elif self._how == "kill":
            world.start(self._what)
        else:
            world.signal(self._what, signal.SIGCONT)


def faults(story: Story, dice: random.Random) -> list[Fault]:
    """One or two things that break."""
    every = [("cable", "cut"), *((part, how) for part in PARTS for how in ("kill", "stop"))]
    chosen = dice.sample(every, dice.choice((1, 1, 2)))
    found = {what: Fault(story, what, how) for what, how in chosen}
    return list(found.values())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with across(tmp_path_factory.mktemp("across")) as world:
        yield Story(world)


def patiently(work: Callable[[], datetime]) -> datetime:
    """A stopped process may hold a file."""
    for _ in range(5):
        try:
            return work()
        except StorageBusy:
            time.sleep(0.5)
    return work()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_revocation_reaches_the_other_domain_in_time_whatever_breaks(story: Story, seed: int) -> None:
    dice, world = random.Random(seed), story.world
    story.whole()
    keeps, loses = f"keeps {seed}", f"loses {seed}"
    world.welcome(keeps, loses)
    world.bring(keeps)
    membership = world.bring(loses)
    tokens = {name: world.here.token(name) for name in (keeps, loses)}
    earlier = dice.sample(sorted(story.revoked), min(1, len(story.revoked)))
    tokens |= {name: world.here.token(name) for name in earlier}
    broken = faults(story, dice)
    moment, lasts = dice.choice(("before", "during", "at the end", "after")), dice.uniform(0.2, LONGEST)
    with Trying(world, tokens) as trying:
        wait(lambda: trying.last.get(keeps) is True and trying.last.get(loses) is True, "both to publish")
        if moment == "before":
            story.revoked[loses] = world.revoke(membership)
            time.sleep(dice.uniform(0.0, 0.2))
        for one in broken:
            one.begin()
        if moment == "during":
            time.sleep(dice.uniform(0.0, lasts))
            story.revoked[loses] = patiently(lambda: world.revoke(membership))
        time.sleep(lasts)
        if moment == "at the end":
            story.revoked[loses] = patiently(lambda: world.revoke(membership))
        for one in dice.sample(broken, len(broken)):
            one.end()
        if moment == "after":
            story.revoked[loses] = patiently(lambda: world.revoke(membership))
        wait(lambda: world.holds(loses) is False, "the revocation", HEAL_SECONDS)
        trying.last.clear()  # what was tried before says nothing
        wait(lambda: trying.last.get(keeps) is True, f"{keeps} to publish again", HEAL_SECONDS)
        wait(lambda: loses in trying.last, f"{loses} to try", HEAL_SECONDS)
        assert trying.failed is None, trying.failed
        assert not any(trying.last.get(name) for name in (loses, *earlier))
    story.kept.append(keeps)
    story.check()
    assert all(world.holds(name) is not False for name in story.kept), "what still holds is lost"
    assert not any(world.holds(name) for name in story.revoked), "what was revoked is back"


def test_what_held_on_one_side_holds_again_after_everything_was_killed(story: Story) -> None:
    world = story.world
    story.whole()
    world.welcome("lasts")
    world.bring("lasts")
    for name in PARTS:
        world.kill(name)
    time.sleep(BOUND)
    story.whole()
    wait(lambda: world.holds("lasts") is True, "it to hold again", HEAL_SECONDS)
