"""`headgate role check`: findings with their places, on files, directories, scenarios and over a domain. No Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.node.domain import Domain

ROOT = Path(__file__).resolve().parents[4]
POLICY = """\
headgate: 1
types: {badge.Seen: {owner: o, attributes: {user: string, room: string}}}
principals: {o: {}, ann: {}}
groups: {staff: [ann]}
relations: {Supervisor: [[ann, o]]}
connect: open
roles:
  Conf: |
    Chair <- Login.LoggedOn('ann', h)
    Member(u) <- Login.LoggedOn(u, h)* <|* Chair : (u in staff)*
"""
FIGURE_3_2 = """\
Author(u) <- Login.LoggedOn(u, h)

Author('nobody') <- Login.LoggedOn(u, h)
"""


def check(*args: object) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["role", "check", *map(str, args)])


def findings(*args: object) -> list[tuple[str, int, str, str]]:
    done = check(*args, "--json")
    return [(Path(one["file"]).name, one["line"], one["severity"], one["code"]) for one in json.loads(done.stdout)]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    made = tmp_path / "policy"
    made.mkdir()
    (made / "base.yaml").write_text(POLICY)
    return made


def test_a_good_policy_has_nothing_found(policy: Path) -> None:
    done = check(policy, "--strict")
    assert (done.exit_code, done.output) == (0, "nothing found\n")


def test_which_of_two_statements_wins_is_a_warning_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "Doc.roles"
    file.write_text(FIGURE_3_2)
    assert findings(file) == [("Doc.roles", 3, "warning", "ambiguous")]
    done = check(file)
    assert done.exit_code == 0
    assert str(file) in done.output
    assert "by line 1, because it stands first" in " ".join(done.output.split())
    assert "0 errors, 1 warning" in done.output
    assert check(file, "--strict").exit_code == 1


def test_a_text_that_cannot_be_read_is_an_error_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "A.roles").write_text("Chair <- Login.LoggedOn(u, h)\nMember <- <-\n")
    (tmp_path / "B.roles").write_text(FIGURE_3_2)
    done = check(tmp_path / "A.roles", tmp_path / "B.roles")
    assert done.exit_code == 1
    assert findings(tmp_path / "A.roles", tmp_path / "B.roles") == [
        ("A.roles", 2, "error", "bad-expression"),
        ("B.roles", 3, "warning", "ambiguous"),
    ]
    assert "column 11" in done.output


def test_names_are_known_from_a_policy_and_from_a_domain(policy: Path, tmp_path: Path) -> None:
    file = tmp_path / "Door.roles"
    file.write_text("Open(u) <- Conf.Member(u)* : (u in students)*\n")
    assert findings(file) == []  # nothing is known of groups
    assert findings(file, "--policy", policy) == [("Door.roles", 1, "error", "unknown-group")]
    Domain.create(tmp_path / "domain").close()
    assert findings(file, "--domain", tmp_path / "domain") == [("Door.roles", 1, "error", "unknown-group")]
    assert check(file, "--policy", policy, "--domain", tmp_path / "domain").exit_code == 2


def test_other_rolefiles_are_known(policy: Path, tmp_path: Path) -> None:
    file = tmp_path / "Door.roles"
    file.write_text("Open(u) <- Conf.Membre(u)*\n")
    assert findings(file, "--policy", policy) == [("Door.roles", 1, "warning", "undefined-role")]


def test_a_relation_among_credentials_is_a_condition(policy: Path, tmp_path: Path) -> None:
    file = tmp_path / "Door.roles"
    file.write_text("Open(u) <- Conf.Member(u)* & Supervisor(u, s)*\n")
    assert findings(file, "--policy", policy) == []
    assert findings(file) == [("Door.roles", 1, "warning", "undefined-role")]


def test_a_directory_is_checked_whole_and_in_its_own_lines(policy: Path) -> None:
    (policy / "Door.roles").write_text("Open(u) <- Conf.Member(u)* : (u in nobody)*\n")
    (policy / "badges.erdl").write_text(
        "Seen(u, r) <= Login.LoggedOn(u, h)\n-Seen(u, r) <= Login.LoggedOn(s, h) : s in staff\n"
        "Seen(u, r) <= Login.LoggedOn(s, h) : Supervisor(s, u)\n"
    )
    base = policy / "base.yaml"
    base.write_text(base.read_text() + "    Member(u) <- Login.LoggedOn(u, h)* <|* Chair : (u in staff)*\n")
    # The policy is refused as a whole, so that what its groups are is not known: what is wrong is told all the same.
    found = findings(policy)
    assert ("base.yaml", 11, "warning", "shadowed") in found
    assert ("badges.erdl", 2, "warning", "not-shown") in found
    assert any(file.startswith("Door.roles") and severity == "error" for file, _, severity, _ in found)
    assert check(policy).exit_code == 1


def test_scenarios_are_checked(tmp_path: Path) -> None:
    file = ROOT / "scenarios" / "open-meeting-without-the-star.yaml"
    assert findings(file) == [
        (file.name, 13, "warning", "not-followed"),
        (file.name, 14, "warning", "idle-election"),
        (file.name, 14, "warning", "not-followed"),
    ]
    bad = tmp_path / "bad.yaml"
    bad.write_text("headgate: 1\nroles: {Conf: 'Chair <- <-'}\n")
    assert [one[2] for one in findings(bad)] == ["error"]


@pytest.mark.parametrize(
    ("name", "content", "status"),
    [
        ("x.roles", b"\xff\xfe", 1),
        ("x.erdl", b"Seen(", 1),
        ("x.txt", b"", 2),
        ("x.yaml", b"- [", 1),
        ("x.roles", None, 1),
        ("missing.txt", None, 2),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, name: str, content: bytes | None, status: int) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    done = check(file)
    assert done.exit_code == status, done.output
    assert "Traceback" not in done.output


def test_what_others_wrote_reaches_the_terminal_as_plain_text(tmp_path: Path) -> None:
    file = tmp_path / "x.roles"
    file.write_text("Chair <- Login.LoggedOn('\x1b[31m', h) : u in\n")
    assert "\x1b" not in check(file).output


@pytest.mark.parametrize("kind", ["directory", "scenario", "--policy"])
def test_functions_of_a_service_are_known_by_name_and_not_run(policy: Path, tmp_path: Path, kind: str) -> None:
    trace = tmp_path / "trace"
    (policy / "mine.py").write_text(
        f"open({str(trace)!r}, 'w').close()\n\n\ndef may(u):\n    return True\n\n\ndef userid(text):\n    return text\n"
    )
    rolefile = "  Log: |\n    def On(u)  u : userid\n    On('ann') <- Login.LoggedOn(u, h)* : may(u)*\n"
    functions = "predicates: {may: 'mine:may', userid: 'mine:userid'}\n"
    (policy / "base.yaml").write_text(POLICY + rolefile + functions)
    asked = {
        "directory": (policy,),
        "scenario": (policy / "base.yaml",),
        "--policy": (tmp_path / "Other.roles", "--policy", policy),
    }[kind]
    (tmp_path / "Other.roles").write_text("Guest(u) <- Log.On(u)*\n")
    done = check(*asked)
    assert done.exit_code == 0, done.output
    assert "not run, and so unknown: `may`, `userid`" in done.output
    assert not trace.exists()
    check(*asked, "--run-python")
    assert trace.exists()
