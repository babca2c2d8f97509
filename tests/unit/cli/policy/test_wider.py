"""`headgate wider` and `headgate policy check`: answers, examples and exit statuses. No Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.node.config import Files
from headgate.node.domain import Domain

ENVIRONMENT = {"COLUMNS": "200", "NO_COLOR": "1", "HEADGATE_DOMAIN": None}


def run(*args: str) -> Result:
    return CliRunner(env=ENVIRONMENT).invoke(app, list(args))


def words(result: Result) -> str:
    return " ".join(result.output.split())


# -- wider --------------------------------------------------------------------------------------------------------

SECRET = "$clearance = 'secret'"


@pytest.mark.parametrize("method", ["auto", "vector", "exact"])
def test_wider(method: str) -> None:
    result = run("wider", SECRET, f"{SECRET} and $nation = 'NO'", "--method", method)
    assert result.exit_code == 0
    assert result.output == "wider\n"


@pytest.mark.parametrize("method", ["auto", "vector", "exact"])
def test_not_wider_shows_for_whom(method: str) -> None:
    result = run("wider", f"{SECRET} and $nation = 'NO'", SECRET, "--method", method)
    assert result.exit_code == 1
    said = words(result)
    assert said.startswith("not wider for a subject with $clearance = 'secret'")
    assert said.endswith("the second rule is true and the first is unknown")


def test_the_boundary_of_a_range() -> None:
    result = run("wider", "$x > 5", "$x = 5..9", "--method", "vector")
    assert result.exit_code == 1
    assert "$x = 5 the second rule is true and the first is false" in words(result)


def test_nothing_at_all_is_a_counterexample() -> None:
    result = run("wider", SECRET, "true")
    assert result.exit_code == 1
    assert "for a subject without attributes" in result.output


def test_a_vector_that_nobody_fits_has_no_counterexample() -> None:
    result = run("wider", "$x = 7", "$x in 5..4", "--method", "vector")
    assert result.exit_code == 1
    assert "the second rule can never be true" in result.output
    assert run("wider", "$x = 7", "$x in 5..4").output == "wider\n"


def test_as_json() -> None:
    found = json.loads(run("wider", "$x > 5", "$x >= 5", "--json").output)
    assert found == {"verdict": "not wider", "counterexample": {"x": 5}, "method": "exact"}


def test_what_takes_too_long_counts_as_no() -> None:
    result = run("wider", "not $x = 1", "$x > 1", "--seconds", "0")
    assert result.exit_code == 1
    assert "cannot tell" in result.output


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (("$x =", "$x = 1"), "first rule, line 1, column 5"),
        (("$x = 1", "$x = 'a"), "second rule, line 1"),
        (("price > 1", "$x = 1"), "[bad-expression]"),
        (("$x = 1", "$x in group staff"), "[bad-expression]"),
        (("$x = 1", "not $x = 1", "--method", "vector"), "the second rule is not a vector"),
        (("$x = 1", "$x = 1", "--method", "guess"), "guess"),
        (("$x = 1",), "Missing argument"),
    ],
)
def test_bad_input_is_refused(rules: tuple[str, ...], said: str) -> None:
    result = run("wider", *rules)
    assert result.exit_code == 2
    assert said in words(result)


def test_help_has_examples() -> None:
    result = run("wider", "--help")
    assert result.exit_code == 0
    assert "headgate wider '$age > 17' '$age = 17..65' --method vector" in words(result).replace(" │ │ ", " ")


def test_the_solver_is_loaded_only_when_it_is_needed() -> None:
    code = (
        "import sys\n"
        "from headgate.cli.main import COMMANDS, GROUPS\n"
        "for one in (COMMANDS | GROUPS).values(): one.load()\n"
        "sys.exit('z3' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- policy check -------------------------------------------------------------------------------------------------

FILE = """\
types:
  shop.Sale: {owner: shop, attributes: {item: string, price: float, card: string}}
  shop.Gift: {owner: shop, extends: shop.Sale, attributes: {to: string}}
principals: {shop: {}, till: {}, ann: {}, bob: {}, cid: {}}
groups: {analysts: [ann, bob], clerks: []}
connect: open
policy:
  - {id: sells, who: till, may: publish, type: shop.Sale}
  - {id: reads, who: analysts, may: subscribe, type: shop.Sale, where: "price < 100", attributes: [item, price]}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A policy directory that stands in no domain."""
    directory = tmp_path / "rules"
    directory.mkdir()
    (directory / "shop.yaml").write_text(FILE)
    return directory


def more(files: Path, *rules: str) -> None:
    with (files / "shop.yaml").open("a") as file:
        file.writelines(f"  - {rule}\n" for rule in rules)


ABOUT = (
    "about the rules, the event policy and the chains that stand now, whatever attributes and roles principals come "
    "to have; not certificates that nobody has shown, nor whether a rolefile lets anyone enter a role"
)


def test_a_policy_in_which_every_rule_counts(files: Path) -> None:
    result = run("policy", "check", str(files))
    assert result.exit_code == 0, result.output
    assert words(result) == f"nothing found in 2 rules {ABOUT}"


def test_rules_that_never_count_and_rules_that_nobody_would_miss(files: Path) -> None:
    more(
        files,
        "{id: cheap, who: ann, may: subscribe, type: shop.Sale, where: 'price < 50', attributes: [item]}",
        "{id: odd, who: ann, may: subscribe, type: shop.Sale, where: 'price > 5 and price < 4'}",
        "{id: empty, who: clerks, may: subscribe, type: shop.Sale}",
        "{id: none, who: ann, may: subscribe, type: 'other.*'}",
        "{id: idle, who: cid, may: subscribe, type: shop.Sale, effect: forbid}",
        "{id: early, who: bob, may: subscribe, type: shop.Sale, where: 'price > 500', attributes: [card]}",
        "{id: late, who: bob, may: subscribe, type: shop.Sale, where: 'price > 200', attributes: [card]}",
    )
    result = run("policy", "check", str(files))
    assert result.exit_code == 1
    said = words(result)
    assert "`cheap` comes too late: `reads` decides all that it speaks of" in said
    assert "`odd` grants nothing: its condition can never be true" in said
    assert "`empty` speaks to nobody: `clerks` has no members" in said
    assert "`none` speaks of nothing" in said
    assert "`idle` takes nothing away" in said
    assert "`early` adds nothing: `late` grants the same" in said
    for id in ("sells", "reads", "late"):
        assert f"`{id}` " not in said.replace("`reads` decides", "").replace("`late` grants", "")
    found = json.loads(run("policy", "check", str(files), "--json").output)
    assert [one["rule"] for one in found["findings"]] == ["cheap", "odd", "empty", "none", "idle", "early"]
    assert found["findings"][0] == {"rule": "cheap", "fault": "shadowed", "because": ["reads"]}
    assert f"about {found['about']}" == ABOUT


def test_who_can_see_an_attribute(files: Path) -> None:
    nobody = run("policy", "check", str(files), "--can-see", "shop.Sale.card")
    assert (nobody.exit_code, words(nobody)) == (0, f"no: nobody can ever see `card` of `shop.Sale` {ABOUT}")
    outsider = run("policy", "check", str(files), "--can-see", "shop.Sale.price", "--outside", "analysts")
    assert outsider.exit_code == 0
    assert "nobody outside `analysts`" in words(outsider)
    seen = run("policy", "check", str(files), "--can-see", "shop.Sale.price")
    assert seen.exit_code == 1
    said = words(seen)
    assert "yes: `ann` sees `price` of `shop.Sale` by the rule `reads` (where price < 100), for example of" in said
    assert "card null hidden" in said


def test_attributes_may_come_by_identity_statements(files: Path) -> None:
    """Whoever is attested what a rule asks for sees what it gives."""
    more(files, "{id: cleared, who: cid, may: subscribe, type: shop.Sale, where: \"$clearance = 'secret'\"}")
    assert run("policy", "check", str(files)).exit_code == 0
    asked = ("policy", "check", str(files), "--can-see", "shop.Sale.card", "--outside", "analysts")
    seen = run(*asked)
    assert seen.exit_code == 1
    said = words(seen)
    assert "yes: `cid` sees `card` of `shop.Sale` by the rule `cleared`" in said
    assert "once it has clearance = 'secret', for example of" in said
    assert said.endswith(ABOUT)
    answer = json.loads(run(*asked, "--json").output)
    assert (answer["verdict"], answer["attributes"]) == ("yes", {"clearance": "secret"})


def test_a_subtype_can_give_an_attribute_away(files: Path) -> None:
    more(files, "{id: gifts, who: cid, may: subscribe, type: shop.Gift, where: \"to = 'cid'\"}")
    answer = json.loads(run("policy", "check", str(files), "--can-see", "shop.Sale.card", "--json").output)
    assert (answer["verdict"], answer["principal"], answer["rule"]["id"]) == ("yes", "cid", "gifts")
    assert answer["event"]["type"] == "shop.Gift"
    assert answer["event"]["values"]["to"] == "cid"


def test_the_policy_of_a_ledger_at_a_version(files: Path, tmp_path: Path) -> None:
    Domain.create(tmp_path / "data").close()
    Files(tmp_path).config.touch()
    more(files, "{id: odd, who: ann, may: subscribe, type: shop.Sale, where: 'price != price'}")
    assert run("policy", "check", "--domain", str(tmp_path)).exit_code == 0
    assert run("policy", "apply", str(files), "--yes").exit_code == 0
    assert "`odd` grants nothing" in words(run("policy", "check", "--domain", str(tmp_path)))
    assert run("policy", "check", "--domain", str(tmp_path), "--version", "0").exit_code == 0
    assert "`odd` grants nothing" in words(run("policy", "check", str(files), "--domain", str(tmp_path)))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--can-see", "shop.Sale.colour"), "`shop.Sale` has no attribute `colour`"),
        (("--can-see", "nothing"), "no event type and attribute `nothing`"),
        (("--can-see", "shop.Sale.card", "--outside", "crew"), "no group `crew`"),
        (("--outside", "analysts"), "--outside goes with --can-see"),
        (("--version", "1"), "a directory has no --version"),
    ],
)
def test_bad_questions_are_refused(files: Path, args: tuple[str, ...], said: str) -> None:
    result = run("policy", "check", str(files), *args)
    assert result.exit_code == 2
    assert said in words(result)
