"""`headgate detect check`: a composite event is drawn, warned of, or refused, each with its place."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from typer.testing import CliRunner

from headgate.cli.main import app

SCENARIO = Path(__file__).parents[4] / "scenarios" / "oasis-enters-and-leaves.yaml"


def check(tmp_path: Path, text: str, *options: str) -> tuple[int, str, str]:
    file = tmp_path / "a.detect"
    file.write_text(text, "utf-8")
    arguments = ["detect", "check", str(file), "--scenario", str(SCENARIO), *options]
    done = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


def test_a_warning_has_its_place(tmp_path: Path) -> None:
    code, out, err = check(tmp_path, "$Seen(b, r);\nSeen(b, r) - Seen(b, r1)")
    assert code == 0
    assert "accepted" in out
    assert "line 2, column 14: it can never signal" in err


def test_what_is_right_is_drawn_without_a_warning(tmp_path: Path) -> None:
    picture = tmp_path / "machine.svg"
    code, out, err = check(tmp_path, "$Seen(b, r1); Seen(b, r) - Seen(b, r1)", "--svg", str(picture))
    assert (code, err) == (0, "")
    assert "every match; waits for nothing" in out
    assert ET.parse(picture).getroot().tag.endswith("svg")


def test_programs_get_the_same(tmp_path: Path) -> None:
    _, out, _ = check(tmp_path, "Seen(b, *) {b > 2, b < 2}", "--json")
    answer = json.loads(out)
    assert answer["variables"] == {"b": "int"}
    assert answer["warnings"] == ["line 1, column 13: it can never signal: what its tests ask for contradicts itself"]


def test_a_refusal_has_its_place(tmp_path: Path) -> None:
    code, _, err = check(tmp_path, "$Seen(b)")
    assert code == 2
    assert "line 1, column 2" in err
    assert "takes 2 parameters" in err
