"""The examples of OASIS as scenarios: whatever arrives when, as long as promises are kept, the signals are the same.

What depends on arrival by design is named in a comment of its file, and left out here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from headgate.decide.composite import Signal
from headgate.scenario.engines.play import DecideStage, ScenarioOutcome, play, run_decide
from headgate.scenario.format import story
from headgate.scenario.format.file import load
from headgate.scenario.run import judge

FOLDER = Path(__file__).parents[3] / "scenarios"
FILES = [file for file in sorted(FOLDER.glob("*.yaml")) if file.stem.startswith(("oasis-", "pattern-"))]
STREAMS = ("main", "second", "third")
SHUFFLES = 4


def by_arrival(file: Path) -> set[str]:
    """The detections that depend on arrival by design, as the file says."""
    found = re.search(r"^# Depends on arrival by design: (.+)\.$", file.read_text("utf-8"), re.MULTILINE)
    return set(found[1].split(", ")) if found else set()


def is_only_arrivals(scenario: story.Scenario) -> bool:
    """Does nothing happen but that detections begin and events arrive?"""
    kinds = (story.DetectStep, story.PublishStep, story.HeartbeatStep)
    return all(isinstance(step, kinds) for step in scenario.steps)


SHUFFLED = [file for file in FILES if is_only_arrivals(load(file))]


def shuffled(scenario: story.Scenario, chance: random.Random) -> story.Scenario:
    """The same events in any order on any stream, with promises in between that are kept; all of them at the end."""
    detections = [step for step in scenario.steps if isinstance(step, story.DetectStep)]
    beats = [step for step in scenario.steps if isinstance(step, story.HeartbeatStep)]
    last = max(beats, key=lambda beat: beat.horizon)
    events = [
        replace(step, stream=chance.choice(STREAMS)) for step in scenario.steps if isinstance(step, story.PublishStep)
    ]
    chance.shuffle(events)
    steps: list[story.Step] = [*detections]
    for at, event in enumerate(events):
        steps.append(event)
        if chance.random() < 0.5:
            stream = chance.choice(STREAMS)
            coming = [one.occurred for one in events[at + 1 :] if one.stream == stream]
            steps.append(replace(last, stream=stream, horizon=min([last.horizon, *coming])))
    steps += [replace(last, stream=stream) for stream in chance.sample(STREAMS, len(STREAMS))]
    return replace(scenario, steps=tuple(steps))


def by_machine(scenario: story.Scenario) -> dict[str, list[Signal]]:
    """What the machine signals."""
    stage = DecideStage(scenario)
    outcome = play(scenario, stage)
    received = stage.deliveries()
    views = {id: {one.event: one.view for one in got} for id, got in received.items()}
    return outcome.detections.signals(views, by_reference=False)


def signalled(outcome: ScenarioOutcome, without: set[str]) -> dict[str, list[Signal]]:
    return {id: found for id, found in outcome.signals.items() if id not in without}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_example_is_as_the_file_says(file: Path) -> None:
    scenario = load(file)
    outcome = run_decide(scenario)
    assert judge(scenario, outcome) == []
    assert by_machine(scenario) == outcome.signals


@pytest.mark.parametrize("file", SHUFFLED, ids=lambda file: file.stem)
def test_any_arrival_that_keeps_its_promises_gives_the_same(file: Path) -> None:
    scenario, without = load(file), by_arrival(file)
    expected = signalled(run_decide(scenario), without)
    for seed in range(SHUFFLES):
        other = shuffled(scenario, random.Random(seed))
        outcome = run_decide(other)
        assert outcome.rejected == {}, seed
        assert signalled(outcome, without) == expected, seed
        assert by_machine(other) == outcome.signals, seed


def told(scenario: story.Scenario) -> list[tuple[str, str, object, datetime]]:
    """The events of a file, whatever the order and the stream."""
    events = [step for step in scenario.steps if isinstance(step, story.PublishStep)]
    return sorted(((e.draft.id, e.draft.type, e.draft.values, e.occurred) for e in events), key=lambda event: event[0])


def detected(steps: Iterable[story.Step]) -> list[tuple[str, str, object]]:
    return [(s.id, s.expression, s.bound) for s in steps if isinstance(s, story.DetectStep)]


@pytest.mark.parametrize("file", [f for f in FILES if f.stem.endswith("-late")], ids=lambda file: file.stem)
def test_a_late_example_tells_the_same_as_the_one_in_order(file: Path) -> None:
    late, ordered = load(file), load(file.with_stem(file.stem.removesuffix("-late")))
    times = [step.occurred for step in ordered.steps if isinstance(step, story.PublishStep)]
    assert times == sorted(times)
    assert told(late) == told(ordered)
    assert detected(late.steps) == detected(ordered.steps)
    without = by_arrival(file)
    assert signalled(run_decide(late), without) == signalled(run_decide(ordered), without)


def test_the_examples_of_the_thesis_are_there() -> None:
    assert len([file for file in FILES if file.stem.startswith("oasis-")]) >= 16
