"""The examples of OASIS and the patterns of the page: the any arrival that keeps its promises gives the same signals.

What depends on arrival by design is named in a comment of its file, and left out here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from headgate.decide.apply import apply as next_state
from headgate.decide.composite import Signal
from headgate.decide.composite_check import resolve
from headgate.lang.composite import parse_composite
from headgate.model.state import State
from headgate.model.values import Value
from headgate.scenario.engines.play import DecideStage, ScenarioOutcome, play, run_decide
from headgate.scenario.format import story
from headgate.scenario.format.file import load
from headgate.scenario.run import judge

ROOT = Path(__file__).parents[3]
FILES = {file.stem: file.read_text("utf-8") for file in sorted((ROOT / "scenarios").glob("oasis-*.yaml"))}
PAGE = (ROOT / "docs" / "patterns.md").read_text("utf-8")
PATTERNS = {part.partition("\n")[0]: part for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]}
EXAMPLES = FILES | {
    title: re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0] for title, text in PATTERNS.items()
}
STREAMS = ("main", "second", "third")
SHUFFLES = 4


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], story.Scenario]:
    """An example, as it is loaded from a file."""

    def loaded(name: str) -> story.Scenario:
        file = tmp_path / "example.yaml"
        file.write_text(EXAMPLES[name], "utf-8")
        return load(file)

    return loaded


def by_arrival(name: str) -> set[str]:
    """The detections that depend on arrival by design, as the file says."""
    found = re.search(r"^# Depends on arrival by design: (.+)\.$", EXAMPLES[name], re.MULTILINE)
    return set(found[1].split(", ")) if found else set()


def is_only_arrivals(scenario: story.Scenario) -> bool:
    """Does nothing happen but that detections begin and events arrive?"""
    kinds = (story.DetectStep, story.PublishStep, story.HeartbeatStep)
    return all(isinstance(step, kinds) for step in scenario.steps)


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
    play(scenario, stage)
    return stage.signals_by_machine()


def signalled(outcome: ScenarioOutcome, without: set[str]) -> dict[str, list[Signal]]:
    return {id: found for id, found in outcome.signals.items() if id not in without}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_is_as_it_says(name: str, read: Callable[[str], story.Scenario]) -> None:
    scenario = read(name)
    outcome = run_decide(scenario)
    assert judge(scenario, outcome) == []
    assert by_machine(scenario) == outcome.signals


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "oasis-late-sensor"])
def test_any_arrival_that_keeps_its_promises_gives_the_same(name: str, read: Callable[[str], story.Scenario]) -> None:
    scenario, without = read(name), by_arrival(name)
    assert is_only_arrivals(scenario)
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


def detected(steps: Iterable[story.Step]) -> list[tuple[str, str, Mapping[str, Value]]]:
    return [(s.id, s.expression, s.bound) for s in steps if isinstance(s, story.DetectStep)]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("-late")])
def test_a_late_example_tells_the_same_as_the_one_in_order(name: str, read: Callable[[str], story.Scenario]) -> None:
    late, ordered = read(name), read(name.removesuffix("-late"))
    times = [step.occurred for step in ordered.steps if isinstance(step, story.PublishStep)]
    assert times == sorted(times)
    assert told(late) == told(ordered)
    assert detected(late.steps) == detected(ordered.steps)
    without = by_arrival(name)
    assert signalled(run_decide(late), without) == signalled(run_decide(ordered), without)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_of_the_page_is_the_one_that_is_run_and_nothing_is_wrong_with_it(
    name: str, read: Callable[[str], story.Scenario]
) -> None:
    (shown,) = re.findall(r"^```\n(.*?)^```$", PATTERNS[name], re.MULTILINE | re.DOTALL)
    scenario = read(name)
    state = next_state(State(administrator=story.ADMINISTRATOR), scenario.policy)
    for _, expression, bound in detected(scenario.steps):
        assert parse_composite(expression) == parse_composite(shown)
        assert resolve(parse_composite(expression), state, bound).warnings == ()


def test_the_examples_of_the_thesis_and_ten_patterns_are_there() -> None:
    assert len(FILES) >= 17
    assert len(PATTERNS) == 10
