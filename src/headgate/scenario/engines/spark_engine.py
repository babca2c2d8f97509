"""The pipeline as the stage a scenario is played on.

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
from headgate.model.changes import Batch
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft, Event
from headgate.model.state import State
from headgate.model.values import EPOCH
from headgate.node.domain import Domain
from headgate.pipeline.paths import POINTS
from headgate.scenario.engines.play import Got, LocalStage, ScenarioOutcome, play
from headgate.scenario.format.story import ADMINISTRATOR, Scenario


class DomainStage(LocalStage):
    """A domain in a directory, which applies batches and takes in events."""

    def __init__(self, scenario: Scenario, directory: Path, now: datetime = EPOCH) -> None:
        super().__init__(scenario, now)
        self.domain = Domain.create(directory, lambda: self.now, administrator=ADMINISTRATOR)
        self.publisher = LocalPublisher(self.domain, advertise=False)  # `versions:` are those of the file's own steps
        self.events: list[Event] = []

    def state(self) -> State:
        """The newest state."""
        return self.domain.ledger.state()

    def why(self, id: str) -> str:
        """Why a membership ended."""
        return next((reason for _, reason in reversed(self.domain.ledger.endings(id))), "")

    def apply(self, batch: Batch) -> None:
        """The next version."""
        self.domain.commit(batch)

    def send(self, draft: Draft, stream: str, at: datetime) -> Event:
        """Admit an event at the newest version, and place it."""
        self.events.append(self.publisher.publish(draft, stream=stream, now=at))
        return self.events[-1]


class SparkStage(DomainStage):
    """A domain in a directory, and its streaming query on a Spark session."""

    def __init__(self, scenario: Scenario, session: Any, directory: Path, choice: random.Random) -> None:
        super().__init__(scenario, directory)
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
        stage = SparkStage(scenario, session, directory, choice_of(scenario, seed))
        try:
            return play(scenario, stage)
        finally:
            stage.domain.close()


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
