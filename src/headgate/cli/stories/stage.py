"""Plays a story on the real pipeline: a domain in a directory, its streaming query, and a reader of its deliveries.

Guarantees: nothing is acted. Steps are taken by the code that takes those of every scenario; statements are signed and
verified; events go through the gateway into the log, Spark decides them, and what the table shows is read back from
the delivery store. What a story says is refused has been tried and refused; a story that goes otherwise is stopped.
The gateway, the pipeline and the table each open the domain for themselves, as separate processes would.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from headgate.cli.shared.interrupt import Stopped
from headgate.cli.stories import file_of
from headgate.cli.stories.board import Board
from headgate.cli.stories.desk import Desk
from headgate.cli.stories.signing import Organisations
from headgate.commands.delivery.local import read_deliveries
from headgate.model.changes import Batch, DeclareType, Revoke
from headgate.model.errors import EngineFailed, HeadgateError
from headgate.model.events import Event
from headgate.model.values import EPOCH
from headgate.node.domain import Domain
from headgate.pipeline.spark.jobs import Pipeline
from headgate.pipeline.spark.session import describe
from headgate.scenario.engines.play import Got, ScenarioOutcome, take_step
from headgate.scenario.engines.spark_engine import DomainStage
from headgate.scenario.format.file import load
from headgate.scenario.format.story import (
    AdvanceStep,
    ConnectStep,
    DeniedStep,
    Exhibit,
    Scenario,
    Step,
    StoryLine,
)

COLD: Final = "The first event is stored, with its place and version. Spark is warming up to decide it."

TICK: Final = 0.1
"""Seconds between two looks at what has been delivered."""

Show: TypeAlias = Callable[[Board, str], None]
"""Shows the table, with a sentence about what is going on."""


def _show_nothing(board: Board, say: str) -> None:
    """For when nobody watches."""


class NotAsTold(HeadgateError):
    """Something happened that the story says is refused, or is refused otherwise."""

    code = "not-as-told"


class StoryWorld(DomainStage):
    """A domain that is kept: the world of a story, in which statements are signed if its scenario has signers."""

    def __init__(self, directory: Path, scenario: Scenario, signers: Organisations | None, files: ExitStack) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        first = scenario.steps[0]
        super().__init__(scenario, directory, first.to if isinstance(first, AdvanceStep) else EPOCH)
        files.enter_context(self.domain)
        self.note = ""
        self._signers = signers
        self.desk = Desk(self.domain, lambda: self.now, files)

    def apply(self, batch: Batch) -> None:
        """The next version; what is signed in this world comes with its signature."""
        match batch.changes:
            case (DeclareType(type),) if self._signers is not None:
                self.desk.declare(type.name, self._signers.define(type, self._scenario, self.now))
            case (Revoke(revocations),) if self._signers is not None:
                self.desk.revoke(self._signers.revoke(revocations))
            case _:
                super().apply(replace(batch, note=batch.note or self.note))

    def deliveries(self) -> dict[str, list[Got]]:
        """They are read from the store as they come."""
        raise NotImplementedError


class Stage:
    """One performance of a story. What comes before its first `say` has happened when the stage is there."""

    def __init__(self, name: str, directory: Path, stop: threading.Event) -> None:
        self.name = name
        self._stop = stop
        self._files = ExitStack()
        scenario = load(file_of(name))
        assert scenario.narration is not None, "every story has a narrator"
        self.narration = scenario.narration
        self.signers = Organisations(directory, self.narration, scenario) if self.narration.organisations else None
        if self.signers is not None:
            scenario = load(scenario.file, keys_of=self.signers.dids)
        self.scenario = scenario
        self.place = directory / self.narration.domain
        self.world = StoryWorld(self.place, scenario, self.signers, self._files)
        if self.signers is not None:
            self.signers.sign(scenario, self.world.now)
        self.board = Board(self.narration, scenario)
        self.exhibits: list[tuple[Exhibit, int]] = []
        """What is to be shown, each with the version it is of."""
        self._outcome = ScenarioOutcome()
        self.world.begin(scenario.policy)
        self._begins = next((n for n, line in enumerate(scenario.lines) if line.say), 0)
        for number in range(self._begins):
            self.take(number)
        self._seen = self._files.enter_context(Domain.open(self.place))
        self._node = self._files.enter_context(Domain.open(self.place))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    @property
    def scenes(self) -> range:
        """The numbers of the steps that are to be watched."""
        return range(self._begins, len(self.scenario.steps))

    def play(self, session: Any, show: Show = _show_nothing, pace: float = 0.0) -> None:
        """Take the steps while the streaming query runs; `pace` is the seconds between events."""
        say, last, cold = "", None, True  # the first decision of a cold Spark takes some seconds
        with self._running(session) as query:
            watch = _Watch(self, query, show, pace)
            for number in self.scenes:
                if self.scenario.lines[number].say:
                    if last is not None:
                        watch.until_decided(last, say)
                    say = self.scenario.lines[number].say
                event = self.take(number)
                if event is None:
                    continue
                last = event
                if cold:
                    watch.until_decided(event, COLD)
                    cold = False
                watch.a_moment(say)
            if last is not None:
                watch.until_decided(last, say)

    def take(self, number: int) -> Event | None:
        """Take one step, and put it on the board: the event, if it publishes one."""
        step, line = self.scenario.steps[number], self.scenario.lines[number]
        before, published = self.world.domain.ledger.version, len(self.world.events)
        self.world.note = line.note
        refusal = self._taken(step)
        version = self.world.domain.ledger.version
        self.exhibits += [(exhibit, version) for exhibit in line.show]
        if number not in self.scenes:
            return None
        if line.note and refusal is not None:
            self.board.refuse(line.note, refusal)
        elif line.note and version > before:
            for point in self.world.domain.ledger.starting_points(version=version):
                self.board.start(point, line.note)
        for event in self.world.events[published:]:
            self.board.publish(event)
        return self.world.events[-1] if len(self.world.events) > published else None

    def _taken(self, step: Step) -> HeadgateError | None:
        """Take a step; the refusal, if it was to be refused and was."""
        inner = step.step if isinstance(step, DeniedStep) else step
        if self.signers is None or not isinstance(inner, ConnectStep):
            refusal = take_step(step, self.world, self.scenario, self._outcome)
            if self._outcome.complaints:
                raise NotAsTold(self._outcome.complaints[0])
            return refusal
        try:
            self.world.desk.show(self.signers.dids[inner.principal], [self.signers.texts[id] for id in inner.shown])
        except HeadgateError as error:
            if isinstance(step, DeniedStep) and error.code == step.reason:
                return error
            raise
        if isinstance(step, DeniedStep):
            raise NotAsTold(f"{step.place}: it was not refused with `{step.reason}`")
        return None

    def called(self, text: str) -> str:
        """A text with the names that keys have in the story."""
        for key, name in (self.signers.names if self.signers is not None else {}).items():
            text = text.replace(key, name)
        return text

    def pipeline(self, session: Any) -> Pipeline:
        """The pipeline of the domain, for looking into it afterwards."""
        return self._node.pipeline(session)

    def event(self, id: str) -> Event:
        """An event of the story."""
        return next(event for event in self.world.events if event.id == id)

    def lines(self) -> Iterator[StoryLine]:
        """What the narrator says of the steps that are watched."""
        return (self.scenario.lines[number] for number in self.scenes)

    def look(self) -> None:
        """Put what the pipeline has decided and delivered by now on the board."""
        reached = self._seen.store.reached().streams
        self.board.decide(reached, read_deliveries(self._seen))

    @contextmanager
    def _running(self, session: Any) -> Iterator[Any]:
        query = self.pipeline(session).start()
        try:
            yield query
        finally:
            query.stop()

    def wait(self, seconds: float) -> None:
        """Let some time pass, unless everything is to stop."""
        if self._stop.wait(seconds):
            raise Stopped


class _Watch:
    """Shows what arrives while the query runs."""

    def __init__(self, stage: Stage, query: Any, show: Show, pace: float) -> None:
        self._stage, self._query, self._show, self._pace = stage, query, show, pace

    def until_decided(self, event: Event, say: str) -> None:
        """Until an event is decided."""
        self._until(lambda: self._stage.board.decided(event), say)

    def a_moment(self, say: str) -> None:
        """As long as the eye needs."""
        until = time.monotonic() + self._pace
        self._until(lambda: time.monotonic() >= until, say)

    def _until(self, done: Callable[[], bool], say: str) -> None:
        while True:
            self._stage.look()
            self._show(self._stage.board, say)
            if done():
                return
            if not self._query.isActive:
                failure = describe(self._query.exception() or RuntimeError("it gives no reason"))
                raise EngineFailed(f"the streaming query stopped: {failure.cause}", trace=failure.trace)
            self._stage.wait(TICK)
