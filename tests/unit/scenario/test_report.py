import json
from datetime import UTC, datetime
from pathlib import Path

from headgate.model.changes import Batch
from headgate.scenario.engines.play import Got, ScenarioOutcome
from headgate.scenario.format.story import Scenario
from headgate.scenario.run import EngineResult, as_json, disagreements

SCENARIO = Scenario(Path("f.yaml"), "a title", Batch("a"))


def outcome(*got: Got, **others: dict[str, object]) -> ScenarioOutcome:
    return ScenarioOutcome({"s": list(got)}, **others)


def test_json_has_the_keys_of_the_format() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    result = EngineResult(
        SCENARIO,
        "spark",
        outcome(Got("e1", "main", 1, {"t": at, "y": b"\x00\xff", "s": "é", "n": None})),
        ["a difference"],
    )
    assert json.loads(as_json(result)) == {
        "title": "a title",
        "engine": "spark",
        "passed": False,
        "deliveries": {"s": [{"e1": {"t": "2026-01-01T00:00:00Z", "y": "00ff", "s": "é", "n": None}}]},
        "rejected": {},
        "versions": {},
        "signals": {},
        "differences": ["a difference"],
    }
    assert "\n" not in as_json(result)


def test_engines_agree_on_the_same() -> None:
    a = outcome(Got("e1", "main", 1, {"x": 1, "y": None}), versions={"e1": 2})
    b = outcome(Got("e1", "main", 1, {"y": None, "x": 1}), versions={"e1": 2})
    assert disagreements(a, b) == []


def test_engines_disagree_on_the_slightest_difference() -> None:
    one = Got("e1", "main", 1, {"x": 1})
    assert disagreements(outcome(one), outcome()) != []
    assert disagreements(outcome(one), outcome(one, one)) != []
    assert disagreements(outcome(one), outcome(Got("e1", "main", 1, {"x": 1.0}))) != []
    assert disagreements(outcome(one), outcome(Got("e1", "main", 2, {"x": 1}))) != []
    assert disagreements(outcome(versions={"e": 1}), outcome(versions={"e": 2})) != []
    assert disagreements(outcome(rejected={"e": "a"}), outcome(rejected={"e": "b"})) != []
