"""Plays a story on the real pipeline: a domain in a directory, its streaming query, and a reader of its deliveries.

Guarantees: nothing is acted. Statements are verified, events go through the gateway into the log, Spark decides them,
and what the table shows is read back from the delivery store. What a story says is refused has been tried and refused.
The gateway, the pipeline and the table each open the domain for themselves, as separate processes would.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from headgate.cli.shared.interrupt import Stopped
from headgate.cli.stories.board import Board
from headgate.cli.stories.desk import Desk
from headgate.cli.stories.script import Deed, Story, StoryAttempt, StoryScene, Waiting
from headgate.commands.delivery.local import read_deliveries
from headgate.commands.publishing.local import LocalPublisher
from headgate.model.changes import Batch, Change
from headgate.model.errors import EngineFailed, HeadgateError
from headgate.model.events import Draft, Event
from headgate.node.domain import Domain, utc_now
from headgate.pipeline.spark.failures import describe
from headgate.pipeline.spark.jobs import Pipeline

COLD = "The first event is stored, with its place and version. Spark is warming up to decide it."

TICK = 0.1
"""Seconds between two looks at what has been delivered."""

Show: TypeAlias = Callable[[Board, str], None]
"""Shows the table, with a sentence about what is going on."""


def _show_nothing(board: Board, say: str) -> None:
    """For when nobody watches."""


class NotAsTold(HeadgateError):
    """Something happened that the story says is refused, or is refused otherwise."""

    code = "not-as-told"


class Stage:
    """One performance of a story."""

    def __init__(self, story: Story, directory: Path, stop: threading.Event) -> None:
        self.story = story
        self._stop = stop
        self.board = Board(story)
        self._show: Show = _show_nothing
        self._pace = 0.0
        self._ahead = timedelta()
        self._files = ExitStack()
        place = directory / story.place
        self.gateway = self._files.enter_context(Domain.create(place, self.now))
        self._publisher = LocalPublisher(self.gateway, advertise=False)  # the versions are those that the story tells
        self._commit(story.policy, "the policy")
        for deed in story.deeds:
            self._do(deed)
        self._commit(story.subscriptions, "the readers subscribe")
        self._seen = self._files.enter_context(Domain.open(place))
        self._node = self._files.enter_context(Domain.open(place))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def play(self, session: Any, show: Show = _show_nothing, pace: float = 0.0) -> None:
        """Publish, change and publish on, while the streaming query runs; `pace` is the seconds between events."""
        self._show, self._pace = show, pace
        cold = True  # the first decision of a cold Spark takes some seconds
        with self._running(session) as query:
            for scene in self.story.scenes:
                event: Event | None = None
                for event in self.perform(scene):
                    if cold:
                        self._wait(query, COLD, event)
                        cold = False
                    self._wait(query, scene.say)
                self._wait(query, scene.say, event)

    def perform(self, scene: StoryScene) -> Iterator[Event]:
        """Make the changes of a scene, try what is refused, and publish, event by event."""
        before = self.gateway.ledger.version
        if scene.change:
            self._commit(scene.change, scene.note)
        if scene.deed is not None:
            self._do(scene.deed)
        if self.gateway.ledger.version > before:
            for point in self.gateway.ledger.starting_points(version=self.gateway.ledger.version):
                self.board.start(point, scene.note)
        for one in scene.tried:
            self.board.refuse(one.say, self._refusal(one))
        for draft in scene.events:
            event = self._publisher.publish(draft, now=self.now())
            self.board.publish(event)
            yield event

    def now(self) -> datetime:
        """The clock of the story: this machine's, and ahead of it once the story has let time pass."""
        return utc_now() + self._ahead

    def pipeline(self, session: Any) -> Pipeline:
        """The pipeline of the domain, for looking into it afterwards."""
        return self._node.pipeline(session)

    def event(self, id: str) -> Event:
        """An event of the story."""
        return next(row for row in self.board.rows if isinstance(row, Event) and row.id == id)

    @contextmanager
    def _running(self, session: Any) -> Iterator[Any]:
        query = self.pipeline(session).start()
        try:
            yield query
        finally:
            query.stop()

    @cached_property
    def _desk(self) -> Desk:
        return self._files.enter_context(Desk(self.gateway, self.now))

    def _commit(self, changes: tuple[Change, ...], note: str) -> None:
        self.gateway.commit(Batch(self.gateway.ledger.administrator, changes, note))

    def _do(self, deed: Deed) -> None:
        if isinstance(deed, Waiting):
            self._ahead += deed.time
        self._desk.do(deed)

    def _refusal(self, one: StoryAttempt) -> HeadgateError:
        """Try what the story says is refused."""
        try:
            if isinstance(one.what, Draft):
                self._publisher.publish(one.what, now=self.now())
            else:
                self._desk.do(one.what)
        except HeadgateError as error:
            if error.code == one.code:
                return error
            raise
        raise NotAsTold(f"`{one.say}` was not refused with `{one.code}`")

    def _wait(self, query: Any, say: str, event: Event | None = None) -> None:
        """Show what arrives: for a moment, or until an event is decided."""
        until = time.monotonic() + self._pace
        while True:
            reached = self._seen.store.reached().streams
            self.board.decide(reached, read_deliveries(self._seen))
            self._show(self.board, say)
            if self.board.decided(event) if event is not None else time.monotonic() >= until:
                return
            if not query.isActive:
                found = describe(query.exception() or RuntimeError("it gives no reason"))
                raise EngineFailed(f"the streaming query stopped: {found.cause}", trace=found.trace)
            if self._stop.wait(TICK):
                raise Stopped
