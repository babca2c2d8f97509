import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app

GOOD = """\
headgate: 1
title: all is well
types: {a.T: {owner: o, attributes: {i: int}}}
principals: {o: {}}
policy: [{who: o, may: [publish, subscribe], type: a.T}]
steps:
  - subscribe: {id: s, as: o, type: a.T}
  - publish: {id: e, as: o, type: a.T, event: {i: 1}}
expect: {deliveries: {s: [e]}}
"""
BAD = GOOD.replace("all is well", "all is [bold]not[/bold] well").replace("s: [e]", "s: []")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "deep" / "bad.yml").write_text(BAD)
    (tmp_path / "notes.txt").write_text("not a scenario, and not asked for")
    return tmp_path


def run(*args: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["test", "--engine", "decide", *map(str, args)])
    return result.exit_code, result.output


def test_one_line_for_each_scenario_and_a_summary(folder: Path) -> None:
    code, said = run(folder / "good.yaml", folder / "good.yaml")
    assert code == 0
    assert said.count("pass  all is well  decide ") == 2
    assert "2 passed in " in said


def test_a_folder_is_searched_and_differences_are_told(folder: Path) -> None:
    code, said = run(folder)
    assert code == 1
    assert "FAIL  all is [bold]not[/bold] well" in said
    assert "bad.yml" in said
    assert "decide: subscription `s`: event `e` was delivered and not expected: {i: `1`}" in said
    assert "1 passed, 1 failed in " in said


def test_what_is_no_scenario_does_not_keep_others_from_running(folder: Path) -> None:
    (folder / "broken.yaml").write_text("headgate: 1\nstep: []\n")
    (folder / "empty").mkdir()
    code, said = run(folder, folder / "missing.yaml", folder / "empty", folder / "notes.txt")
    assert code == 2
    assert "broken.yaml:2: key `step`: unknown key `step`" in said
    assert "missing.yaml: cannot read it: No such file or directory" in said
    assert "there is no `.yaml` file in it" in said
    assert "1 passed, 1 failed, 4 not a scenario in " in said


def test_json_is_one_object_a_line(folder: Path) -> None:
    code, said = run(folder, "--json")
    assert code == 1
    lines = [json.loads(line) for line in said.splitlines()]
    assert [(one["title"], one["passed"]) for one in lines] == [
        ("all is [bold]not[/bold] well", False),
        ("all is well", True),
    ]
    keys = ["title", "engine", "passed", "deliveries", "rejected", "versions", "signals", "differences"]
    assert list(lines[0]) == keys
    assert lines[1]["deliveries"] == {"s": [{"e": {"i": 1}}]}


def test_the_seed_is_shown_when_a_scenario_with_a_crash_fails(folder: Path) -> None:
    (folder / "crash.yaml").write_text(BAD.replace("  - publish", "  - crash: pipeline\n  - publish"))
    assert "--seed 77" in run(folder / "crash.yaml", "--seed", "77")[1]
    assert "--seed" not in run(folder / "good.yaml", "--seed", "77")[1]


def test_the_reference_alone_starts_no_jvm(folder: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "def refuse(*a, **k): raise AssertionError('a process was started')\n"
        "subprocess.Popen.__init__ = refuse\n"
        "from headgate.cli.main import app\n"
        f"app(['test', '--engine', 'decide', {str(folder / 'good.yaml')!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
