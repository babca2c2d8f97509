"""What a worker knows of detections: the same plans however they are asked for, and whatever fails meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.decide.blocks import Moment
from headgate.ledger import Ledger
from headgate.model.changes import Subscribe, Unsubscribe
from headgate.model.errors import StorageBusy
from headgate.model.rights import Detection, Subscription
from headgate.model.types import SIGNAL
from headgate.model.values import EPOCH
from headgate.pipeline.match import DecisionWindow
from headgate.pipeline.spark.detection_workers import KnownDetections
from strategies.composites import event, resolved, seconds
from strategies.detecting import Story


def begun(path: Path) -> Story:
    story = Story(path / "domain")
    story.arrive(Moment((event("A", 1, 7, stream="s1"),), {}, seconds(1)), seconds(0) - EPOCH)
    return story


def detect(story: Story, id: str) -> int:
    made = Subscription(id, "ann", SIGNAL, detection=Detection("...", resolved("$A(x); B(x)"), {}, EPOCH))
    return story.commit(Subscribe(made))


def look(story: Story, known: KnownDetections, through: int) -> None:
    known.matched(list(story.domain.log.appends_by_number(0, 1, 2**62)), DecisionWindow(0, through))


def firsts(known: KnownDetections, versions: list[int]) -> bool:
    """Has each detection, by number, the plan of the one that its version made?"""
    return [known.plan_of(number).first for number in range(len(versions))] == versions


def test_a_plan_is_of_the_ledger_however_it_becomes_known(tmp_path: Path) -> None:
    story = begun(tmp_path)
    known = KnownDetections(story.domain.paths)
    versions = [detect(story, "d0"), detect(story, "d1")]
    look(story, known, versions[0])
    assert known.plan_of(1).first == versions[1]  # the index does not have it yet
    versions += [detect(story, "d2"), detect(story, "d3")]
    look(story, known, versions[2])
    versions.append(detect(story, "d4"))
    story.commit(Unsubscribe("d3"))
    look(story, known, versions[0])  # a micro-batch that is run again
    assert firsts(known, versions)
    look(story, known, story.domain.ledger.version)
    assert firsts(known, versions)
    assert firsts(KnownDetections(story.domain.paths), versions)


def test_detections_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = begun(tmp_path)
    versions = [detect(story, f"d{number}") for number in range(4)]
    asked: list[tuple[int, int]] = []
    read = Ledger.detections

    def reading(ledger: Ledger, after: int, through: int) -> Any:
        asked.append((after, through))
        return read(ledger, after, through)

    monkeypatch.setattr(Ledger, "detections", reading)
    known = KnownDetections(story.domain.paths)
    look(story, known, versions[-1])
    assert firsts(known, versions)
    assert asked == []  # the index was made of them
    versions.append(detect(story, "late"))
    assert firsts(known, versions)
    assert asked == [(versions[3], versions[4])]


def test_a_plan_that_could_not_be_made_is_made_when_it_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = begun(tmp_path)
    versions = [detect(story, "d0"), detect(story, "d1")]
    known = KnownDetections(story.domain.paths)
    look(story, known, versions[0])

    def busy(*_: object) -> None:
        raise StorageBusy("the ledger is busy")

    for number in (0, 1):
        with monkeypatch.context() as patched:
            patched.setattr(KnownDetections, "state", busy)
            with pytest.raises(StorageBusy):
                known.plan_of(number)
    assert firsts(known, versions)
