"""Demonstrations without Spark: a real domain and real statements, and `decide` in the place of the pipeline."""

from __future__ import annotations

import threading
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from rich.console import Console
from tests.strategies.deciding import Detector

from headgate.cli.shared.common import out
from headgate.cli.stories.demo import answer, show_exhibits
from headgate.cli.stories.stage import Refusal, Stage
from headgate.decide.composite import Signal
from headgate.decide.deliver import decide
from headgate.model.events import Event
from headgate.model.state import State
from headgate.pipeline.deliveries import Delivered
from headgate.scenario.format.story import HeartbeatStep, PublishStep


def _settle(stage: Stage, detector: Detector) -> None:
    """Let the machine that Spark runs make of the log what it can, without Spark, and publish what comes of it."""
    detections = stage.world.detections
    while detections is not None and not detections.is_settled():
        detector.step()
        stage.derive()


class Rehearsal:
    """A story played to its end in a directory, and what `decide` delivers of it."""

    def __init__(self, name: str, directory: Path) -> None:
        with Stage(name, directory, threading.Event()) as stage:
            detector = Detector(stage.world.domain)
            with redirect_stdout(StringIO()) as exhibits:
                show_exhibits(stage)
                for number in stage.scenes:
                    if not isinstance(stage.scenario.steps[number], PublishStep | HeartbeatStep):
                        _settle(stage, detector)  # what is signalled by now is published at the version of now
                    stage.take(number)
                _settle(stage, detector)
                show_exhibits(stage)
                out.print(answer(stage))
            self.certain = detector.certain()
            self.said = exhibits.getvalue()
            self.stage = stage
            self.events: list[Event] = stage.world.events
            self.board = stage.board
            ledger = stage.world.domain.ledger
            self._every = [one for one, _ in ledger.all_subscriptions(ledger.version)]
            self.subscriptions = [one for one in self._every if one.detection is None]
            self.states: list[State] = [ledger.state(version) for version in range(ledger.version + 1)]
        self.refusals = [row for row in self.board.rows if isinstance(row, Refusal)]

    def every(self) -> list[tuple[str, Delivered]]:
        """What each subscription gets of each event."""
        found = []
        for event in self.events:
            for number, one in enumerate(self._every):
                if (delivery := decide(event, one, self.states.__getitem__, {})) is not None:
                    place = (event.stream, event.seq, event.version)
                    view = delivery.view
                    made = Delivered(*place, number, event.id, event.type, event.publisher, event.time, view)
                    found.append((one.id, made))
        return found

    def deliver(self) -> dict[tuple[str, str], Delivered]:
        """What each subscription of the story gets of each event, as the board shows it from now on."""
        every = self.every()
        signals = {id: [Signal(one.time, one.environment) for one in some] for id, some in self.certain.items()}
        self.stage.look({event.stream: event.seq for event in self.events}, every, signals)
        return {(name, one.event): one for name, one in every}

    def received(self) -> dict[str, list[str]]:
        """The events that each reader gets, in order."""
        every = self.deliver()
        return {one.id: [event for name, event in every if name == one.id] for one in self.subscriptions}

    def shown(self, width: int = 80) -> list[str]:
        """The lines of the table."""
        console = Console(file=StringIO(), width=width, color_system=None)
        console.print(self.board.render(width))
        return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
