"""Detections in stories: what is refused, and when a signal is the one that was expected."""

from pathlib import Path

import pytest

from headgate.scenario.engines.play import run_decide
from headgate.scenario.format.file import load
from headgate.scenario.run import judge

STORY = """
headgate: 1
title: detections
types: {a.T: {owner: o, attributes: {x: int}}}
principals: {o: {}}
policy: [{who: o, may: [publish, subscribe], type: a.T}]
steps:
  - detect: {id: d, as: o, expression: '$T(x)'}
STEPS
  - publish: {id: e, as: o, type: a.T, event: {x: 1}, time: 3}
expect:
"""


def differences(tmp_path: Path, steps: str, expect: str) -> list[str]:
    file = tmp_path / "story.yaml"
    file.write_text(STORY.replace("STEPS\n", steps) + expect, "utf-8")
    scenario = load(file)
    return judge(scenario, run_decide(scenario))


def test_a_detection_that_is_there_is_not_begun_again(tmp_path: Path) -> None:
    again = "  - assert: {denied: {step: {detect: {id: d, as: o, expression: '$T(x)'}}, reason: bad-definition}}\n"
    assert differences(tmp_path, again, "  signals: {d: [{at: e, x: 1}]}\n") == []


def test_one_that_has_ended_is_begun_again(tmp_path: Path) -> None:
    again = "  - unsubscribe: d\n  - detect: {id: d, as: o, expression: '$T(x)'}\n"
    assert differences(tmp_path, again, "  signals: {d: [{at: 3, x: 1}]}\n  versions: {e: 4}\n") == []


@pytest.mark.parametrize("signals", ["[{at: 3, x: true}]", "[{at: 4, x: 1}]", "[{at: 3}]", "[]"])
def test_another_signal_is_a_difference(tmp_path: Path, signals: str) -> None:
    assert differences(tmp_path, "", f"  signals: {{d: {signals}}}\n") != []
