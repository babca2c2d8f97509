"""Every scenario of the project on all engines, in one go, and where crashes strike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harness.postgres import PostgresServer
from headgate.cli.stories import STORIES, file_of
from headgate.model.events import Draft
from headgate.model.values import EPOCH
from headgate.pipeline.paths import POINTS
from headgate.scenario.engines.play import play
from headgate.scenario.engines.spark_engine import CrashingPipeline, SparkStage
from headgate.scenario.format.file import load
from headgate.scenario.run import ENGINES, NODE, EngineResult, judge, run_all

pytestmark = pytest.mark.spark

FOLDER = Path(__file__).parents[2] / "scenarios"
STORY_FILES = [file_of(story) for story in STORIES]
FILES = [*sorted(FOLDER.glob("*.yaml")), *STORY_FILES]
SEED = int(os.environ.get("HEADGATE_SEED", "1"))

STORY = """\
headgate: 1
types: {a.T: {owner: o, attributes: {i: int}}}
principals: {o: {}}
policy: [{who: o, may: [publish, subscribe], type: a.T}]
steps:
  - subscribe: {id: s, as: o, type: a.T}
  - publish: {id: e1, as: o, type: a.T, event: {i: 1}}
  - crash: pipeline
  - publish: {id: e2, as: o, type: a.T, event: {i: 2}}
expect: {deliveries: {s: [e1, e2]}}
"""


@pytest.fixture(scope="module")
def results(spark: Any, postgres: PostgresServer) -> dict[str, list[EngineResult]]:
    """Nodes keep every other story's ledger and shared state in PostgreSQL; `make soak` tells the others so, too."""
    found: dict[str, list[EngineResult]] = {}
    for files, database in ((FILES[::2], None), (FILES[1::2], postgres.database)):
        told = run_all([load(file) for file in files], ENGINES, session=spark, seed=SEED, database=database)
        found |= {str(one[0].scenario.file): one for one in told}
    return found


@pytest.mark.parametrize("file", [str(file) for file in FILES], ids=lambda file: "/".join(Path(file).parts[-2:]))
def test_scenario(results: dict[str, list[EngineResult]], file: str) -> None:
    told = [(result.engine, result.differences, result.error) for result in results[file]]
    assert told == [(engine, [], None) for engine in ENGINES], f"seed {SEED}"


@pytest.mark.soak
def test_nodes_with_a_database_tell_the_same(spark: Any, postgres: PostgresServer) -> None:
    loaded = [load(file) for file in (FILES[::2] if "HEADGATE_TIMES" in os.environ else FILES[:2])]
    told = run_all(loaded, [NODE], session=spark, seed=SEED, database=postgres.database)
    assert [one for (one,) in told if one.differences or not one.finished] == []


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 18


class Always:
    """A choice that is always the same."""

    def __init__(self, point: str) -> None:
        self.point = point

    def choice(self, points: tuple[str, ...]) -> str:
        assert self.point in points
        return self.point


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_strikes_wherever_it_is_asked_to(spark: Any, tmp_path: Path, point: str) -> None:
    (tmp_path / "f.yaml").write_text(STORY)
    scenario = load(tmp_path / "f.yaml")
    world = SparkStage(scenario, tmp_path, lambda domain: CrashingPipeline(domain, spark, Always(point)))
    outcome = play(scenario, world)
    assert world.pipeline.struck == 1
    assert judge(scenario, outcome) == []
    world.close()


def test_a_crash_strikes_detections_too(spark: Any, tmp_path: Path) -> None:
    text = STORY.replace("- crash", '- detect: {id: d, as: o, expression: "$T(i)"}\n  - crash')
    text = text.replace("event: {i: 1}}", "event: {i: 1}, time: 1}").replace(
        "event: {i: 2}}", "event: {i: 2}, time: 2}"
    )
    text = text.replace("[e1, e2]}", "[e1, e2]}, signals: {d: [{at: 1, i: 1}, {at: 2, i: 2}]}")
    (tmp_path / "f.yaml").write_text(text)
    scenario = load(tmp_path / "f.yaml")
    world = SparkStage(scenario, tmp_path, lambda domain: CrashingPipeline(domain, spark, Always("detect-write")))
    outcome = play(scenario, world)
    assert world.pipeline.struck == 1
    assert judge(scenario, outcome) == []
    world.close()


def test_a_crash_with_nothing_to_strike_strikes_what_comes_next(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(STORY.replace("  - crash: pipeline\n", ""))
    scenario = load(tmp_path / "f.yaml")
    world = SparkStage(scenario, tmp_path, lambda domain: CrashingPipeline(domain, spark, Always("write")))
    play(scenario, world)
    world.crash()
    assert (world.pipeline.struck, world.domain.paths.fault.exists()) == (0, True)
    world.send(Draft("e3", "o", "a.T", {"i": 3}), "main", EPOCH)
    assert [got.event for got in world.deliveries()["s"]] == ["e1", "e2", "e3"]
    assert (world.pipeline.struck, world.domain.paths.fault.exists()) == (1, False)
    world.close()
