"""The pipeline as the world a scenario is played in.

Guarantees: a domain in a temporary directory: the ledger, the log, the streaming query and its checkpoint. A crash
strikes the query at a point chosen by chance, in whatever it has left to do when that is asked for, or else in what it
does next; each strikes once.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from headgate.commands.delivery.local import read_deliveries
from headgate.commands.publishing.local import LocalPublisher
from headgate.ledger import Ledger
from headgate.model.changes import Batch
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft, Event
from headgate.model.state import State
from headgate.model.values import EPOCH
from headgate.node.domain import Domain
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.paths import POINTS, Paths
from headgate.scenario.engines.play import Got, ScenarioOutcome, play
from headgate.scenario.format.story import ADMINISTRATOR, Scenario


class DomainWorld:
    """A new domain in a directory, in which steps are taken."""

    def __init__(self, directory: Path, now: datetime = EPOCH) -> None:
        paths = Paths(directory)
        self.now = now
        ledger = Ledger.create(paths.ledger, administrator=ADMINISTRATOR, clock=lambda: self.now)
        log, store = EventLog.create(paths.log), DeliveryStore.create(paths.deliveries)
        self.domain = Domain(directory, ledger, log, store)
        self.publisher = LocalPublisher(self.domain, advertise=False)  # `versions:` are those of the file's own steps
        self.events: list[Event] = []

    def state(self) -> State:
        """The newest state."""
        return self.domain.ledger.state()

    def tell(self, at: datetime) -> None:
        """The clock has come to a time."""
        self.now = at

    def why(self, id: str) -> str:
        """Why a membership ended."""
        return next((reason for _, reason in reversed(self.domain.ledger.endings(id))), "")

    def commit(self, batch: Batch) -> None:
        """The next version."""
        self.domain.commit(batch)

    def publish(self, draft: Draft, stream: str, at: datetime) -> Event:
        """Admit an event at the newest version, and place it."""
        event = self.publisher.publish(draft, stream=stream, now=at)
        self.events.append(event)
        return event


class SparkWorld(DomainWorld):
    """A domain in a directory, and its streaming query on a Spark session."""

    def __init__(self, scenario: Scenario, session: Any, directory: Path, choice: random.Random) -> None:
        super().__init__(directory)
        self.pipeline = CrashingPipeline(self.domain, session, choice)
        for name, target in scenario.predicates.items():
            self.domain.register_predicate(name, target, scenario.file.parent)

    def crash(self) -> None:
        """Let the query fail, and start again."""
        self.pipeline.crash()

    def deliveries(self) -> dict[str, list[Got]]:
        """Every delivery, subscription by subscription in the order they began."""
        self.pipeline.finish()
        every = [s for s, _ in self.domain.ledger.all_subscriptions(self.domain.ledger.version)]
        positions = {event.id: n for n, event in enumerate(self.events)}
        received: list[list[Got]] = [[] for _ in every]
        for _, d in read_deliveries(self.domain):
            received[d.subscription].append(Got(d.event, d.stream, d.seq, d.view))
        deliveries: dict[str, list[Got]] = {s.id: [] for s in every}
        for subscription, got in zip(every, received, strict=True):
            deliveries[subscription.id] += sorted(got, key=lambda one: positions[one.event])
        return deliveries


def run_spark(scenario: Scenario, session: Any, seed: int) -> ScenarioOutcome:
    """A scenario on the pipeline; the seed and the file's name choose where crashes strike."""
    with story_directory() as directory:
        world = SparkWorld(scenario, session, directory, choice_of(scenario, seed))
        with world.domain:
            return play(scenario, world)


def choice_of(scenario: Scenario, seed: int) -> random.Random:
    """What chooses where crashes strike."""
    return random.Random(f"{seed}:{scenario.file.name}")  # noqa: S311


@contextmanager
def story_directory() -> Iterator[Path]:
    """A directory for the domain of a story, which is gone with it."""
    with tempfile.TemporaryDirectory(prefix="headgate-", ignore_cleanup_errors=True) as name:
        yield Path(name)


_STRUCK: Final = "struck at `"
"""How the fault that was asked for shows in what Spark reports."""


class CrashingPipeline:
    """The streaming query of a domain on a Spark session."""

    def __init__(self, domain: Domain, session: Any, choice: random.Random) -> None:
        self._fault = domain.paths.fault
        self._pipeline = domain.pipeline(session)
        self._choice = choice
        self.struck = 0
        """How many faults have struck."""

    def crash(self) -> None:
        """Run the query until the fault strikes it. Where there was nothing to do, the fault waits for its next run."""
        self._fault.write_text(self._choice.choice(POINTS))
        self._run()

    def finish(self) -> None:
        """Decide everything there is; a fault that never found anything to strike is forgotten."""
        while not self._run():
            pass  # each fault strikes once
        self._fault.unlink(missing_ok=True)

    def _run(self) -> bool:
        """Run the query from its checkpoint to the end of the log; false if the fault struck on the way."""
        try:
            self._pipeline.catch_up()
        except HeadgateError:
            raise
        except Exception as error:
            if _STRUCK not in str(error) or self._fault.exists():
                raise
            self.struck += 1
            return False
        return True
