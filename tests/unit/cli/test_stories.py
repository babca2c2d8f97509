"""The demonstrations without Spark: their policies hold together, and the table shows what was delivered."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import StringIO

import pytest
from rich.console import Console

from headgate.cli.stories import STORIES, file_of
from headgate.cli.stories.stage import HIDDEN, NOTHING, WAITING, looking
from headgate.node.domain import Domain
from headgate.pipeline.deliveries import Delivered
from headgate.scenario.format.file import load
from headgate.scenario.format.story import PublishStep
from headgate.scenario.run import run
from strategies.rehearsing import Rehearsal


@dataclass(frozen=True)
class Played:
    """A story that was played, the table while nothing was delivered, and what was; tests only look at it."""

    rehearsal: Rehearsal
    waiting: list[str]
    deliveries: dict[tuple[str, str], Delivered]


Play = Callable[[str], Played]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Each story is played once."""

    @cache
    def played(name: str) -> Played:
        rehearsal = Rehearsal(name, tmp_path_factory.mktemp(name))
        return Played(rehearsal, rehearsal.shown(), rehearsal.deliver())

    return played


@pytest.mark.parametrize("name", STORIES)
def test_a_story_plays_and_every_line_fits(name: str, play: Play) -> None:
    rehearsal, waiting, deliveries = play(name).rehearsal, play(name).waiting, play(name).deliveries
    narration, scenario = rehearsal.stage.narration, rehearsal.stage.scenario
    lines = rehearsal.shown()
    marked = sum(bool(scenario.lines[number].note) for number in rehearsal.stage.scenes)
    before = sum(isinstance(step, PublishStep) for step in scenario.steps[: rehearsal.stage.scenes.start])
    assert len(waiting) == len(lines) == 2 + len(rehearsal.events) - before + marked
    assert all(len(line) <= 80 for line in lines)
    readers = {reader.subscription for reader in narration.readers} | narration.asides.keys()
    assert readers == {one.id for one in rehearsal.subscriptions}
    asked = narration.question
    of = next(e for e in rehearsal.events if e.id == asked.event)
    assert of.values[asked.attribute] is not None
    by = {one.id: one.principal for one in rehearsal.subscriptions}
    seen = [d.view for (_, event), d in deliveries.items() if event == asked.event]
    mine = [d.view for (reader, e), d in deliveries.items() if (by[reader], e) == (asked.principal, asked.event)]
    assert seen, "somebody sees the event"
    assert all(view[asked.attribute] is None for view in mine)


def in_streams(received: dict[str, list[str]]) -> dict[str, tuple[list[str], list[str]]]:
    """What the steps of a story publish, in order, and what detections do, which is a stream of its own."""
    return {
        id: ([one for one in got if ":" not in one], [one for one in got if ":" in one]) for id, got in received.items()
    }


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_a_test_that_its_signed_performance_agrees_with(name: str, play: Play) -> None:
    (result,) = run(load(file_of(name)), ["decide"])
    assert result.differences == []
    rehearsal = play(name).rehearsal
    played = {id: [got.event for got in every] for id, every in result.outcome.deliveries.items()}
    assert in_streams(rehearsal.received()) == in_streams(played)
    assert {event.id: event.version for event in rehearsal.events} == result.outcome.versions


def test_the_table_of_the_number_plates(play: Play) -> None:
    rehearsal, deliveries = play("numberplate").rehearsal, play("numberplate").deliveries
    assert play("numberplate").waiting[1].split()[-3:] == [WAITING] * 3
    assert {e for name, e in deliveries if name == "smith"} == {"e1", "e3", "e5"}
    assert not any(name == "peek" for name, _ in deliveries)
    lines = rehearsal.shown()
    assert lines[3].startswith("3  AE05 XYZ 09:05 Strand AE05")
    assert lines[3].endswith(f"AE05 XYZ 09:05 Strand AE05 XYZ 09:05 {HIDDEN} {HIDDEN} 09:05 Strand")
    assert lines[7].startswith("== stream main, seq 7: version 3 starts, the court order is withdrawn =")
    assert lines[8].split()[5] == NOTHING


def test_a_narrow_screen_loses_nothing(play: Play) -> None:
    rehearsal = play("numberplate").rehearsal
    lines = rehearsal.shown(width=60)
    assert all(len(line) <= 60 for line in lines)
    wide, narrow = ("".join("".join(rehearsal.shown(width)).split()).replace("=", "") for width in (80, 60))
    assert sorted(wide) == sorted(narrow)


@pytest.mark.parametrize("name", ["numberplate", "meeting", "police"])
def test_what_the_narrator_notes_is_the_note_of_the_version(name: str, play: Play) -> None:
    stage = play(name).rehearsal.stage
    notes = [note for row in stage.board.rows if isinstance(row, tuple) for note in row[1:]]
    with Domain.open(stage.place) as domain:
        kept = {entry.note for entry in domain.ledger.versions()}
    assert notes
    assert kept.issuperset(notes)


def test_the_map_of_the_badges(play: Play) -> None:
    rehearsal = play("badge").rehearsal
    console = Console(file=StringIO(), width=80, color_system=None)
    assert rehearsal.board.map is not None
    console.print(rehearsal.board.map.render(80, rehearsal.board.received))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    seen = {line.split()[0]: line.split()[1:] for line in lines[1:6]}
    assert lines[0].split() == ["CL", "Eng", "ORL"]
    assert " ".join(seen["sensors"]) == "1 lab, rmn T14, sam lab jmb E1, kay E1 ah O2"
    assert " ".join(seen["Sam"]) == "jmb lobby, rmn T14, sam lab . ."
    assert " ".join(seen["Jean"]) == "rmn T14, sam lab jmb E1 ."
    assert " ".join(seen["Kay"]) == "rmn T14, sam lab jmb E1, kay E1 ."
    assert " ".join(seen["Andy"]) == "rmn T14, sam lab jmb E1 ah O2"
    moves = [line for line in lines if "moved from" in line]
    assert moves == [
        "09:00:40  badge 2 moved from CL to ORL",
        "09:00:50  badge 2 moved from ORL to Eng",
        "09:01:00  badge 2 moved from Eng to CL",
        "09:01:20  badge 2 moved from CL to Eng",
    ]


def test_no_move_is_told_before_it_is_certain(play: Play) -> None:
    rehearsal = play("badge").rehearsal
    with Domain.open(rehearsal.stage.place) as domain:
        appended = {one.id: domain.log.append_holding(one.stream, one.seq).number for one in rehearsal.events}
        kept = [one for one, _ in domain.ledger.all_subscriptions(domain.ledger.version) if one.detection is not None]
    assert [one.id for one in kept] == ["home", "moved", "cached", "new-at-eng", "named", "watch"]
    moves = sorted(one.arrival for one in rehearsal.certain["moved"])
    assert len(moves) == 4
    assert moves[0] > (appended["s9"], 0)  # what the company tells last, and then promises


def test_what_comes_between_the_last_look_and_the_end_is_seen() -> None:
    come, seen = ["first"], list[list[str]]()

    def is_over() -> bool:
        come.append("later")  # as by a query that runs beside
        return len(come) > 2

    waited = sum(1 for _ in looking(lambda: seen.append(list(come)), is_over))
    assert waited == 1
    assert seen[-1] == come
