"""`headgate erdl`: figure 7.1 for one's own policy, and the checker of event policy. No Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.node.config import Files
from headgate.node.domain import Domain

ROOT = Path(__file__).resolve().parents[4]
FIGURE = ROOT / "scenarios" / "badges-figure-7-1.yaml"
POLICY = """\
headgate: 1
types: {badge.Seen: {owner: o, attributes: {user: string, room: string}}}
principals: {o: {}}
groups: {staff: [o]}
connect: open
events: |
  Seen(u, r) <= Login.LoggedOn(s, h) : u in staff
"""


def run(*args: object) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["erdl", *map(str, args)])


def test_the_stages_of_the_figure() -> None:
    done = run("explain", FIGURE)
    assert done.exit_code == 0, done.output
    for line in (
        "or (u in staff and p in student and not (u = 'rmn' and p in student))",
        "C4 <= (not p in student and p in staff)",
        "E2 <= (u in student)",
        "(C0 and p = u)",
        "or (C2 and not E0 and E1 and not E2)",
    ):
        assert line in done.output
    (facts,) = json.loads(run("explain", FIGURE, "--json").stdout)
    assert facts["type"] == "badge.Seen"
    assert (len(facts["entries"]), len(facts["clients"]), len(facts["events"]), len(facts["clauses"])) == (7, 5, 3, 8)


def test_a_file_of_entries_alone_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "badges.erdl"
    file.write_text(
        "Seen(u, 'T14') <= Login.LoggedOn(s, h) : u in staff and Supervisor(u, s)\n-Other(x) <= Login.LoggedOn(s, h)\n"
    )
    done = run("explain", file)
    assert done.exit_code == 0, done.output
    assert "E0 <=" in done.output
    assert "Supervisor(u, s)" in done.output
    only = run("explain", file, "--type", "Other")
    assert only.output.startswith("Other\n")
    assert "Supervisor" not in only.output
    assert run("explain", file, "--type", "None").exit_code == 2


def test_policies_and_domains_are_explained(tmp_path: Path) -> None:
    Domain.create(tmp_path / "data").close()
    Files(tmp_path).config.touch()
    policy = Files(tmp_path).policy
    policy.mkdir()
    (policy / "base.yaml").write_text(POLICY)
    assert "u in staff" in run("explain", "--policy", policy).output
    assert run("explain", "--domain", tmp_path).output == "there is no event policy\n"
    applied = CliRunner(env={"HEADGATE_DOMAIN": None}).invoke(app, ["policy", "apply", str(policy), "--yes"])
    assert applied.exit_code == 0, applied.output
    assert "u in staff" in run("explain", "--domain", tmp_path).output
    # Other entries over the same types and groups; what they name must be there.
    other = tmp_path / "other.erdl"
    other.write_text("Seen(u, r) <= Login.LoggedOn(u, h)\n")
    assert "(C0 and x = u)" in run("explain", other, "--policy", policy).output
    other.write_text("Seen(u, r) <= Login.LoggedOn(u, h) : u in nobody\n")
    refused = run("explain", other, "--policy", policy)
    assert refused.exit_code == 2
    assert "nobody" in refused.output


def test_entries_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "badges.erdl"
    file.write_text("-Seen(u, r) <= Login.LoggedOn(s, h) : s in students\nSeen(u, r) <= Login.LoggedOn(s, h)\n")
    done = run("check", file)
    assert done.exit_code == 0, done.output
    assert "not-shown" in done.output
    assert run("check", file, "--strict").exit_code == 1
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "base.yaml").write_text(POLICY)
    found = json.loads(run("check", file, "--policy", policy, "--json").stdout)
    assert [(one["line"], one["code"]) for one in found] == [(1, "unknown-group"), (1, "not-shown")]
    roles = tmp_path / "Conf.roles"
    roles.write_text("Chair <- Login.LoggedOn(u, h)\nChair <- Login.LoggedOn(u, h)\n")
    assert run("check", roles).output == "nothing found\n"  # `role check` is for those


@pytest.mark.parametrize("args", [(), ("nothing.erdl",), ("nothing.txt",), ("nothing.yaml",)])
def test_nothing_to_explain_is_refused(args: tuple[str, ...]) -> None:
    done = run("explain", *args)
    assert done.exit_code == 2
    assert "Traceback" not in done.output
