"""The demonstrations on the real pipeline: the number plates from the command line, with what they leave behind, and
the stories of authority on one session; the guide's program as printed."""

import re
import shlex
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.strategies.rehearsing import Rehearsal
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.cli.stories.stage import Board, Stage
from headgate.commands.delivery.local import read_deliveries
from headgate.node.domain import Domain
from headgate.pipeline.spark.verify import verify

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demonstration, run once as a process without a terminal."""
    place = tmp_path_factory.mktemp("demo") / "plates"
    done = subprocess.run(
        [str(Path(sys.executable).with_name("headgate")), "demo", "numberplate", "--keep", str(place)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", "nothing of Java or Spark reaches the screen"
    return place, done.stdout


def test_the_story_is_told_once_in_plain_text(played: tuple[Path, str]) -> None:
    _, said = played
    assert "\x1b" not in said
    assert "\r" not in said
    lines = [line.rstrip() for line in said.splitlines()]
    (third,) = [line for line in lines if line.startswith("3  ")]
    assert third == "3  AE05 XYZ 09:05 Strand AE05 XYZ 09:05 Strand AE05 XYZ 09:05 ▒▒ ▒▒ 09:05 Strand"
    (start,) = [number for number, line in enumerate(lines) if "seq 7: version 3 starts" in line]
    assert lines[start + 1].startswith("7  AE05 XYZ 09:15 Soho   -  ")
    assert re.search(r"location +hidden +no rule shows it to `billing`", said)
    assert "and received 0 reports" in " ".join(said.split())
    assert "10 events and 23 deliveries decided again from the log, with no difference." in " ".join(said.split())


def test_the_domain_holds_the_story(played: tuple[Path, str]) -> None:
    place, _ = played
    with Domain.open(place) as domain:
        assert [(p.version, p.seq) for p in domain.ledger.starting_points(stream="main")] == [(2, 1), (3, 7)]
        received = {(name, d.event): dict(d.view) for name, d in read_deliveries(domain)}
    assert [event for name, event in received if name == "smith"] == ["e1", "e3", "e5"]
    assert all(view["location"] is None for (name, _), view in received.items() if name == "billing")
    assert all(view["numberplate"] is None for (name, _), view in received.items() if name == "statistician")


def test_what_it_says_to_try_next_works(played: tuple[Path, str]) -> None:
    _, said = played
    tries = [shlex.split(line) for line in said.splitlines() if line.startswith("  headgate ")]
    assert [words[1] for words in tries] == ["versions", "explain", "restrictions", "verify"]
    for _, *args in tries[:-1]:  # `verify` has tests of its own, and a story verifies itself
        done = CliRunner().invoke(app, args)
        assert done.exit_code == 0, done.output


def test_a_directory_that_is_in_use_is_refused_before_anything_starts(played: tuple[Path, str]) -> None:
    place, _ = played
    done = CliRunner().invoke(app, ["demo", "--keep", str(place)])
    assert done.exit_code == 2


def drawn(board: Board) -> str:
    """The map of a story as it is printed."""
    assert board.map is not None
    console = Console(file=StringIO(), width=80, color_system=None)
    console.print(board.map.render(80, board.received))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_map_of_the_badges_is_that_of_the_reference(spark: Any, tmp_path: Path) -> None:
    with Stage("badge", tmp_path / "spark", threading.Event()) as stage:
        stage.play(spark)
        assert verify(stage.pipeline(spark)).sound
    rehearsal = Rehearsal("badge", tmp_path / "decide")
    rehearsal.deliver()
    assert drawn(stage.board) == drawn(rehearsal.board)
    assert "badge 2 moved from ORL to Eng" in drawn(stage.board)


RECEIVED = {
    "police": {
        "smith": "e1 e3",
        "billing": "e1 e2 e3 e4 e5",
        "statistician": "e1 e2 e3 e4 e5",
        "broker": "e1 e2 e3 e4 e5 e6 e7",
    },
    "coalition": {"giulia": "r1 r2 r3 r5 r6 r8", "ola": "r1 r4 r5 r8", "kari": "r3 r4 r7 r8"},
    "bell-lapadula": {"major": "n1 n3 n4 n5 n6", "clerk": "n2 n5 n6", "plans": "n5"},
}


@pytest.mark.parametrize("name", RECEIVED)
def test_a_story_of_authority_is_delivered_by_spark_as_it_is_told(spark: Any, tmp_path: Path, name: str) -> None:
    with Stage(name, tmp_path, threading.Event()) as stage:
        stage.play(spark)
        report = verify(stage.pipeline(spark))
    assert report.sound
    assert not report.undecided
    received: dict[str, str] = {}
    with Domain.open(stage.place) as domain:
        deliveries = read_deliveries(domain)
    for reader, delivery in deliveries:
        received[reader] = f"{received.get(reader, '')} {delivery.event}".strip()
    assert received == RECEIVED[name]
    if name == "police":
        views = {reader: dict(delivery.view) for reader, delivery in deliveries if delivery.event == "e3"}
        assert (views["smith"]["numberplate"], views["smith"]["location"]) == ("AE05 XYZ", "Victoria")
        assert (views["billing"]["numberplate"], views["billing"]["location"]) == ("AE05 XYZ", None)
        assert (views["statistician"]["numberplate"], views["statistician"]["location"]) == (None, "Victoria")


def test_the_program_of_the_guide_prints_what_the_guide_says(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = (ROOT / "docs" / "guide.md").read_text("utf-8")
    programs = re.findall(r"^```python\n(.*?)^```\n\n(?:It prints `(.*?)`)?", guide, re.MULTILINE | re.DOTALL)
    ((program, printed),) = [one for one in programs if one[1]]
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "guide.md", "exec"), {})
    assert capsys.readouterr().out == printed + "\n"
