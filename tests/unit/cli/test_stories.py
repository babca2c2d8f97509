"""The demonstrations without Spark: their policies hold together, and the table shows what was delivered."""

from io import StringIO

import pytest
from rich.console import Console

from headgate.cli.stories import STORIES
from headgate.cli.stories.board import HIDDEN, NOTHING, WAITING, Board
from headgate.cli.stories.script import Story
from headgate.decide.apply import apply
from headgate.decide.deliver import decide
from headgate.decide.publish import admit
from headgate.ledger import StartingPoint
from headgate.model.changes import Batch
from headgate.model.events import Event
from headgate.model.state import State
from headgate.model.values import EPOCH
from headgate.pipeline.deliveries import Delivered


class Rehearsal:
    """A story played on `decide` alone."""

    def __init__(self, story: Story) -> None:
        self.states = [State()]
        self.board = Board(story)
        self.events: list[Event] = []
        self._commit(story.policy)
        self._commit(story.subscriptions)
        for scene in story.scenes:
            if scene.change:
                self._commit(scene.change)
                self.board.start(StartingPoint("main", self.states[-1].version, len(self.events) + 1), scene.note)
            for draft in scene.events:
                event = admit(self.states[-1], draft, now=EPOCH, predicates={})
                placed = Event(
                    event.id,
                    event.publisher,
                    event.type,
                    event.values,
                    EPOCH,
                    "main",
                    len(self.events) + 1,
                    event.version,
                )
                self.events.append(placed)
                self.board.publish(placed)

    def _commit(self, changes: tuple) -> None:  # type: ignore[type-arg]
        self.states.append(apply(self.states[-1], Batch("administrator", changes)))

    def deliver(self) -> dict[tuple[str, str], Delivered]:
        found = {}
        for event in self.events:
            for number, (name, one) in enumerate(self.states[2].subscriptions.items()):
                if (delivery := decide(event, one, self.states.__getitem__, {})) is not None:
                    place = (event.stream, event.seq, event.version)
                    found[name, event.id] = Delivered(
                        *place, number, event.id, event.type, event.publisher, event.time, delivery.view
                    )
        self.board.decide({"main": len(self.events)}, ((name, d) for (name, _), d in found.items()))
        return found

    def shown(self, width: int = 80) -> list[str]:
        console = Console(file=StringIO(), width=width, color_system=None)
        console.print(self.board.render(width))
        return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_story_plays_and_every_line_fits(story: Story) -> None:
    rehearsal = Rehearsal(story)
    waiting = rehearsal.shown()
    deliveries = rehearsal.deliver()
    lines = rehearsal.shown()
    assert len(waiting) == len(lines) == 2 + len(rehearsal.events) + sum(bool(s.change) for s in story.scenes)
    assert all(len(line) <= 80 for line in lines)
    assert {r.subscription for r in story.readers} | {a.subscription for a in story.asides} == set(
        rehearsal.states[2].subscriptions
    )
    asked = story.question
    of = next(e for e in rehearsal.events if e.id == asked.event)
    assert of.values[asked.attribute] is not None
    seen = [d.view for (_, event), d in deliveries.items() if event == asked.event]
    mine = [d.view for (name, e), d in deliveries.items() if (name, e) == (asked.principal, asked.event)]
    assert seen, "somebody sees the event"
    assert all(view[asked.attribute] is None for view in mine)


def test_the_table_of_the_number_plates() -> None:
    rehearsal = Rehearsal(STORIES["numberplate"])
    assert rehearsal.shown()[1].split()[-3:] == [WAITING] * 3
    deliveries = rehearsal.deliver()
    assert {e for name, e in deliveries if name == "smith"} == {"e1", "e3", "e5"}
    assert not any(name == "peek" for name, _ in deliveries)
    lines = rehearsal.shown()
    assert lines[3].startswith("3  AE05 XYZ 09:05 Strand AE05")
    assert lines[3].endswith(f"AE05 XYZ 09:05 Strand AE05 XYZ 09:05 {HIDDEN} {HIDDEN} 09:05 Strand")
    assert lines[7].startswith("== stream main, seq 7: version 3 starts, the court order is withdrawn =")
    assert lines[8].split()[5] == NOTHING


def test_a_narrow_screen_loses_nothing() -> None:
    rehearsal = Rehearsal(STORIES["numberplate"])
    rehearsal.deliver()
    lines = rehearsal.shown(width=60)
    assert all(len(line) <= 60 for line in lines)
    wide, narrow = ("".join("".join(rehearsal.shown(width)).split()).replace("=", "") for width in (80, 60))
    assert sorted(wide) == sorted(narrow)
