"""An engine that fails: told apart from a policy that does, and tried once more on a new JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.scenario.engines.play import ScenarioOutcome, run_decide
from headgate.scenario.format.file import load
from headgate.scenario.format.story import Scenario
from headgate.scenario.run import BOTH, EngineResult, as_json, run_all

STORY = """\
headgate: 1
title: TITLE
types: {a.T: {owner: o, attributes: {i: int}}}
principals: {o: {}}
policy: [{who: o, may: [publish, subscribe], type: a.T}]
steps:
  - subscribe: {id: s, as: o, type: a.T}
  - publish: {id: e, as: o, type: a.T, event: {i: 1}}
expect: {deliveries: {s: [e]}}
"""


class FakeSpark:
    """Decides as the reference does, and fails on the sessions and for the scenarios it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *fails: tuple[str, str]) -> None:
        self.fails = set(fails)
        self.ran: list[tuple[str, str]] = []
        monkeypatch.setattr("headgate.scenario.engines.spark_engine.run_spark", self.run)
        monkeypatch.setattr("headgate.cli.policy.test.start_spark", lambda **_: "first")
        monkeypatch.setattr("headgate.cli.policy.test.renew_spark", lambda **_: "second")

    def run(self, scenario: Scenario, session: Any, seed: int) -> ScenarioOutcome:
        self.ran.append((scenario.title, session))
        if (scenario.title, session) in self.fails:
            raise RuntimeError("the JVM\nis gone")
        return run_decide(scenario)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = []
    for title in "abc":
        made.append(tmp_path / f"{title}.yaml")
        made[-1].write_text(STORY.replace("TITLE", title))
    return made


def told(results: list[list[EngineResult]]) -> list[tuple[str, bool, int]]:
    return [(one[0].scenario.title, one[1].passed, len(one[1].failures)) for one in results]


def test_what_failed_is_tried_once_more_on_a_new_jvm(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    spark = FakeSpark(monkeypatch, ("b", "first"))
    found = list(run_all([load(f) for f in files], BOTH, session="first", renew=lambda: "second"))
    assert told(found) == [("a", True, 0), ("b", True, 1), ("c", True, 0)]
    assert spark.ran[-1] == ("b", "second")
    assert len(spark.ran) == 4, "what passed is not run again"


def test_twice_failed_is_an_error_and_no_difference(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSpark(monkeypatch, ("b", "first"), ("b", "second"))
    found = list(run_all([load(f) for f in files], BOTH, session="first", renew=lambda: "second"))
    assert told(found) == [("a", True, 0), ("b", False, 2), ("c", True, 0)]
    assert not any(result.differences for one in found for result in one)


def test_without_a_new_jvm_the_first_failure_is_told(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSpark(monkeypatch, ("a", "first"))

    def refuse() -> None:
        raise OSError("no Java")

    found = list(run_all([load(f) for f in files], BOTH, session="first", renew=refuse))
    assert told(found) == [("a", False, 1), ("b", True, 0), ("c", True, 0)]


def test_a_difference_of_the_second_try_is_one(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSpark(monkeypatch, ("b", "first"))
    files[1].write_text(files[1].read_text().replace("s: [e]", "s: []"))
    found = list(run_all([load(f) for f in files], BOTH, session="first", renew=lambda: "second"))
    assert [len(result.differences) for result in found[1]] == [1, 1]


def run(*args: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["test", *map(str, args)])
    return result.exit_code, result.output


def named_file(said: str) -> str:
    return Path(said.split("everything it said: ")[1].split(")", maxsplit=1)[0]).read_text()


def test_the_report_has_another_word_status_and_file(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSpark(monkeypatch, ("b", "first"), ("b", "second"), ("c", "first"))
    code, said = run(*files)
    assert code == 3
    assert "pass  a" in said
    assert "ERROR  b" in said
    assert "spark failed twice, the second time on a new JVM: RuntimeError: the JVM (everything it said: " in said
    assert "pass  c" in said
    assert "spark failed at first, and was tried again on a new JVM: RuntimeError: the JVM" in said
    assert "2 passed, 1 error in " in said
    assert "FAIL" not in said
    whole = named_file(said)
    assert str(files[1]) in whole
    assert whole.count("RuntimeError: the JVM\nis gone") == 2


def test_a_policy_that_failed_counts_more_than_an_engine(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSpark(monkeypatch, ("b", "first"), ("b", "second"))
    files[0].write_text(files[0].read_text().replace("s: [e]", "s: []"))
    code, said = run(*files)
    assert code == 1
    assert "1 passed, 1 failed, 1 error in " in said
    files[2].write_text("headgate: 1\nstep: []\n")
    assert run(*files)[0] == 2


def test_a_reference_that_differs_is_a_failure_though_spark_failed(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSpark(monkeypatch, ("a", "first"), ("a", "second"))
    files[0].write_text(files[0].read_text().replace("s: [e]", "s: []"))
    code, said = run(files[0])
    assert (code, "FAIL  a" in said, "spark failed twice" in said) == (1, True, True)


def test_json_carries_it_beside_what_it_always_has(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSpark(monkeypatch, ("b", "first"), ("b", "second"), ("c", "first"))
    code, said = run("--json", *files)
    lines = [json.loads(line) for line in said.splitlines()]
    assert code == 3
    keys = ["title", "engine", "passed", "deliveries", "rejected", "versions", "signals", "differences"]
    assert [list(one)[:8] for one in lines] == [keys] * 6
    spark = {one["title"]: one for one in lines if one["engine"] == "spark"}
    assert "error" not in spark["a"]
    error = spark["b"]["error"]
    assert (spark["b"]["passed"], spark["b"]["differences"]) == (False, [])
    assert (error["finished"], error["tries"], error["cause"]) == (False, 2, "RuntimeError: the JVM")
    assert "is gone" in Path(error["trace"]).read_text()
    assert (spark["c"]["passed"], spark["c"]["error"]["finished"], spark["c"]["error"]["tries"]) == (True, True, 2)


def test_a_line_without_failures_has_no_error(files: list[Path]) -> None:
    (found,) = run_all([load(files[0])], ["decide"])
    assert "error" not in json.loads(as_json(found[0]))
