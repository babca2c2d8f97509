"""`headgate acl`: lists as rules, rules as lists, and what a list gives. No Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.model.state import ADMINISTRATOR
from headgate.node.config import Files
from headgate.node.domain import Domain
from headgate.scenario.format.policy import read_policy

BASE = """\
types: {college.Notice: {owner: o, attributes: {text: string}}, college.Post: {owner: o, extends: college.Notice}}
principals: {o: {}, bob: {}, eve: {}}
groups: {student: [bob], everyone: [bob, eve]}
connect: open
"""


def run(*args: str, answer: str | None = None) -> Result:
    environment = {"COLUMNS": "200", "NO_COLOR": "1", "HEADGATE_DOMAIN": None}
    return CliRunner(env=environment).invoke(app, ["acl", *args], input=answer)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    Domain.create(tmp_path / "data").close()
    Files(tmp_path).config.touch()
    Files(tmp_path).policy.mkdir()
    (Files(tmp_path).policy / "base.yaml").write_text(BASE)
    return Files(tmp_path).policy


def applied(policy: Path) -> None:
    done = CliRunner(env={"HEADGATE_DOMAIN": None}).invoke(app, ["policy", "apply", str(policy), "--yes"])
    assert done.exit_code == 0, done.output


def test_a_list_becomes_rules_and_the_rules_the_list(policy: Path) -> None:
    text = "# who may see notices\n+bob=rw -student=w +everyone=rw\n"
    made = run("import", "-", "--type", "college.Notice", answer=text)
    assert made.exit_code == 0, made.output
    (policy / "acl.yaml").write_text(made.output)
    rules = read_policy(policy, ADMINISTRATOR).state.rules
    assert [(rule.id, rule.who, rule.effect.value) for rule in rules] == [
        ("acl-1", "bob", "grant"),
        ("acl-2", "student", "forbid"),
        ("acl-3", "everyone", "grant"),
    ]
    applied(policy)
    found = run("export", "--type", "college.Notice", "--domain", str(policy.parent))
    assert (found.exit_code, found.output) == (0, "+bob=rw -student=w +everyone=rw\n")
    parent = run("export", "--type", "college.Post", "--domain", str(policy.parent))
    assert parent.exit_code == 2
    assert "is on `college.Notice`, the parent of `college.Post`" in " ".join(parent.output.split())


def test_unix_lists_are_put_in_order(tmp_path: Path) -> None:
    (tmp_path / "file.acl").write_text("bob=r-- student=rw- other=r--")
    asked = ("import", str(tmp_path / "file.acl"), "--type", "college.Notice", "--unix", "--group", "student")
    refused = run(*asked)
    assert refused.exit_code == 2
    assert "`*` is neither" in refused.output
    made = run(*asked, "--anyone", "everyone", "--prefix", "file")
    assert made.exit_code == 0, made.output
    assert made.output.splitlines()[2:4] == [
        '  - {id: "file-1", who: "bob", may: [subscribe], type: "college.Notice"}',
        '  - {id: "file-2", who: "bob", may: [publish, subscribe], type: "college.Notice", effect: forbid}',
    ]


def test_rights_are_the_actions_that_one_says(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("bob=rx")
    asked = ("import", str(tmp_path / "a"), "--type", "a.T")
    assert "the right `x` of `bob` is no action" in " ".join(run(*asked).output.split())
    assert "may: [audit, subscribe]" in run(*asked, "--letters", "r=subscribe,x=audit").output
    assert run(*asked, "--letters", "r=fly").exit_code == 2
    assert run("import", str(tmp_path / "none"), "--type", "a.T").exit_code == 2
    assert run("import", str(tmp_path / "a"), "--type", "not a type").exit_code == 2


def test_what_a_list_gives_is_shown_entry_by_entry(policy: Path) -> None:
    shown = run("show", "+bob=rw -student=w +student=r", "--user", "kim", "--group", "student")
    assert shown.exit_code == 0
    assert shown.output.splitlines() == ["kim has r", "  -student=w: bars w", "  +student=r: gives r"]
    applied(policy)
    there = run("show", "student=r other=w", "--unix", "--user", "bob", "--domain", str(policy.parent), "--json")
    assert json.loads(there.output)["rights"] == "r"
    assert run("show", "bob=rw;", "--user", "bob").exit_code == 2
    assert run("show", "eve=r", "--user", "bob").output == "bob has no rights\n"


def test_what_no_list_can_say_is_refused(policy: Path) -> None:
    (policy / "more.yaml").write_text(
        "policy: [{id: some, who: bob, may: subscribe, type: college.Notice, where: \"text = 'x'\"}]\n"
    )
    applied(policy)
    found = run("export", "--type", "college.Notice", "--domain", str(policy.parent))
    assert found.exit_code == 2
    assert "the rule `some` has a condition" in found.output
    assert run("export", "--type", "college.None", "--domain", str(policy.parent)).exit_code == 2
