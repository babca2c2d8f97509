"""Plays a story on the real pipeline: a domain in a directory, its streaming query, and a reader of its deliveries.

Guarantees: nothing is acted. Events go through the gateway into the log, Spark decides them, and what the table shows
is read back from the delivery store. The gateway, the pipeline and the table each open the domain for themselves, as
separate processes would.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from headgate.cli.interrupt import Stopped
from headgate.cli.stories.board import Board
from headgate.cli.stories.script import Scene, Story
from headgate.gateway import Domain
from headgate.model.changes import Batch
from headgate.model.errors import HeadgateError
from headgate.model.events import Event
from headgate.pipeline.jobs import Pipeline

COLD = "The first event is stored, with its place and version. Spark is warming up to decide it."

TICK = 0.1
"""Seconds between two looks at what has been delivered."""

Show: TypeAlias = Callable[[Board, str], None]
"""Shows the table, with a sentence about what is going on."""


def _show_nothing(board: Board, say: str) -> None:
    """For when nobody watches."""


class PipelineStopped(HeadgateError):
    """The streaming query ended by itself."""

    code = "pipeline-stopped"


class Stage:
    """One performance of a story."""

    def __init__(self, story: Story, directory: Path, stop: threading.Event) -> None:
        self.story = story
        self._stop = stop
        self.board = Board(story)
        self._show: Show = _show_nothing
        self._pace = 0.0
        self._files = ExitStack()
        self.gateway = self._files.enter_context(Domain.create(directory))
        author = self.gateway.ledger.administrator
        self.gateway.commit(Batch(author, story.policy, "the policy"))
        self.gateway.commit(Batch(author, story.subscriptions, "the readers subscribe"))
        self._seen = self._files.enter_context(Domain.open(directory))
        self._node = self._files.enter_context(Domain.open(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def play(self, session: Any, show: Show = _show_nothing, pace: float = 0.0) -> None:
        """Publish, change and publish on, while the streaming query runs; `pace` is the seconds between events."""
        self._show, self._pace = show, pace
        with self._running(session) as query:
            for number, scene in enumerate(self.story.scenes):
                self._scene(scene, query, cold=number == 0)

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

    def _scene(self, scene: Scene, query: Any, *, cold: bool) -> None:
        if scene.change:
            version = self.gateway.commit(Batch(self.gateway.ledger.administrator, scene.change, scene.note))
            for point in self.gateway.ledger.starting_points(version=version):
                self.board.start(point, scene.note)
        event: Event | None = None
        for draft in scene.events:
            event = self.gateway.publish(draft)
            self.board.publish(event)
            if cold:  # the first decision of a cold Spark takes some seconds
                self._wait(query, COLD, event)
                cold = False
            self._wait(query, scene.say)
        self._wait(query, scene.say, event)

    def _wait(self, query: Any, say: str, event: Event | None = None) -> None:
        """Show what arrives: for a moment, or until an event is decided."""
        until = time.monotonic() + self._pace
        while True:
            reached = self._seen.store.reached().streams
            self.board.decide(reached, self._seen.deliveries())
            self._show(self.board, say)
            if self.board.decided(event) if event is not None else time.monotonic() >= until:
                return
            if not query.isActive:
                raise PipelineStopped(f"the streaming query stopped: `{query.exception()}`")
            if self._stop.wait(TICK):
                raise Stopped
