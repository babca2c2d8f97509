"""The documentation is tested as code: its policies pass, its expressions mean what it says, its commands exist."""

import importlib
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from headgate.cli import main
from headgate.cli.main import app
from headgate.decide.check import Scope, check
from headgate.decide.truth import Seen, World, truth
from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_constraint, parse_event_policy, parse_expression, parse_rolefile
from headgate.model import limits
from headgate.model.changes import RegisterPredicate
from headgate.model.errors import BadExpression, HeadgateError
from headgate.model.events import Event
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import Kind, conform
from headgate.roles.rolefiles.checking import check_event_policy, check_rolefile
from strategies.rehearsing import Rehearsal

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])
GROUPS = tuple(main.GROUPS)
"""Commands that have commands of their own."""
COMMANDS = (*main.COMMANDS, *GROUPS)


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", read(name), re.MULTILINE | re.DOTALL)


def run(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, list(args))


# -- policies -------------------------------------------------------------------------------------------------


def test_the_first_policy_passes_and_a_change_of_it_is_noticed(tmp_path: Path) -> None:
    (text,) = blocks("README.md", "yaml")
    assert len(text.splitlines()) <= 20
    file = tmp_path / "first.yaml"
    file.write_text(text)
    assert run("test", str(file), "--engine", "decide").exit_code == 0
    changed = text.replace("attributes: [plate]", "attributes: [plate, place]")
    assert changed != text
    file.write_text(changed)
    done = run("test", str(file), "--engine", "decide")
    assert done.exit_code == 1
    assert "place" in done.output


def test_the_policies_of_the_guide_pass(tmp_path: Path) -> None:
    for number, text in enumerate(blocks("docs/guide.md", "yaml")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        done = run("test", str(file), "--engine", "decide")
        assert done.exit_code == 0, done.output


def test_the_chains_of_the_readme_are_judged_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Rehearsal("police", tmp_path / "net")
    said = [line.split()[1:] for line in read("README.md").splitlines() if line.startswith("headgate cert verify ")]
    holds, revoked = (run(*words) for words in said)
    assert holds.exit_code == 0, holds.output
    assert "-> " in holds.output
    assert (revoked.exit_code, "[revoked]" in revoked.output) == (1, True)


# -- the language ---------------------------------------------------------------------------------------------

LANGUAGE = "docs/language.md"


def declared() -> dict[str, Kind]:
    """The attributes of the page's event type, from its first table."""
    table = read(LANGUAGE).split("## Operands")[0]
    return {name: Kind(kind) for name, kind in re.findall(r"`(\w+)` \| (\w+)", table)}


def state() -> State:
    return State(
        types=Catalog(),
        principals={"acme": {}, "till": {}},
        groups={"trusted": frozenset({"acme"})},
        relations={"Sells": frozenset({("acme", "bicycle")})},
        predicates={"cheap": RegisterPredicate("cheap", "shop:cheap", "")},
    )


def cheap(event: Seen, _: int, limit: float) -> bool:
    return event["price"] < limit  # type: ignore[operator]  # null raises, which is unknown


def examples() -> list[tuple[str, str, str]]:
    return re.findall(r"^\| `(.+?)` \| `(\{.*?\})` \| (true|false|unknown) \|$", read(LANGUAGE), re.MULTILINE)


def test_the_page_declares_a_type_of_every_kind() -> None:
    assert set(declared().values()) == set(Kind)


@pytest.mark.parametrize(("expression", "event", "says"), examples())
def test_an_example_has_the_truth_it_is_said_to_have(expression: str, event: str, says: str) -> None:
    kinds = declared()
    condition = parse_condition(expression)
    check(condition, Scope(state(), kinds, "the page"))
    given = yaml.safe_load(event)
    assert given.keys() <= kinds.keys()
    values = {name: conform(kind, given.get(name)) for name, kind in kinds.items()}
    at = datetime(2026, 1, 5, 9, tzinfo=UTC)
    found = truth(condition, Event("e", "till", "shop.Order", values, at), World(state(), {}, {"cheap": cheap}))
    assert found is {"true": True, "false": False, "unknown": None}[says]


OPERATORS = (
    *("= ", "!= ", "< ", "> ", "in {", "..", "starts with", "contains", "has token", "is null", "is not null"),
    *("in group", "Sells(", "predicate ", "timeofday(", "weekday(", "@publisher", "not ", " and ", " or "),
    *("timestamp '", "bytes '", "true", "false"),
)


@pytest.mark.parametrize("operator", OPERATORS)
def test_there_is_an_example_of_every_operator(operator: str) -> None:
    assert any(operator in expression for expression, _, _ in examples())


@pytest.mark.parametrize("line", [line for block in blocks(LANGUAGE, "headgate") for line in block.splitlines()])
def test_an_expression_that_is_shown_parses(line: str) -> None:
    parse_condition(line)


@pytest.mark.parametrize("text", blocks(LANGUAGE, "roles"))
def test_a_rolefile_that_is_shown_is_without_errors(text: str) -> None:
    found = check_rolefile(parse_rolefile(text), service="Conf")
    assert [one for one in found if one.severity == "error"] == []


@pytest.mark.parametrize("text", blocks(LANGUAGE, "erdl"))
def test_event_policy_that_is_shown_is_without_errors(text: str) -> None:
    found = check_event_policy(parse_event_policy(text), types={"badge.Seen": ("user", "room")})
    assert [one for one in found if one.severity == "error"] == []


def cells_of(section: str) -> list[str]:
    """What stands in code in the first cells of a section's tables."""
    text = read(LANGUAGE).split(f"## {section}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| ", text, re.MULTILINE)
    return [one.replace("\\|", "|") for row in rows for one in re.findall(r"`(.+?)`", row)]


PARTS = cells_of("The role definition language")


@pytest.mark.parametrize("part", [one for one in PARTS if re.match(r"(<\||\|>|: |[A-Z]\w*\.|[A-Z]\w*\[)", one)])
def test_a_part_of_a_statement_that_is_shown_parses(part: str) -> None:
    parse_rolefile(f"Member(u) <- {part}")


@pytest.mark.parametrize("atom", [one for one in PARTS if re.match(r"[(\w]+ (in|starts)|[a-z]+\(", one)])
def test_an_atom_that_is_shown_parses(atom: str) -> None:
    parse_expression(atom) if re.fullmatch(r"\w+\([^()]*\)", atom) else parse_constraint(atom)


def test_parts_and_atoms_are_shown() -> None:
    assert len(PARTS) > 20


def test_the_limits_are_those_of_the_code() -> None:
    found = dict(re.findall(r"^\| `(MAX_\w+)`.*? \| (\d+) \|$", read(LANGUAGE), re.MULTILINE))
    assert found
    assert {name: int(value) for name, value in found.items()} == {name: getattr(limits, name) for name in found}


def test_the_error_is_the_one_that_is_shown() -> None:
    (shown,) = re.findall(r"^line 1, .*$", read(LANGUAGE), re.MULTILINE)
    with pytest.raises(BadExpression) as refused:
        parse_condition("price == 3")
    assert str(refused.value) == shown


# -- commands, targets, codes, links --------------------------------------------------------------------------


def command_lines() -> set[str]:
    """Every `headgate ...` in a block of commands or in backquotes, without its comment."""
    found: set[str] = set()
    for document in DOCS:
        text = document.read_text("utf-8")
        shell = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        found.update(line.split("#")[0].strip() for block in shell for line in block.splitlines())
        found.update(re.findall(r"`(headgate [a-z][^`]*)`", text))
    return {line for line in found if line.startswith("headgate ")}


@cache
def helped(*command: str) -> Any:
    """What is said of a command, which many lines name."""
    return run(*command, "--help")


def test_every_command_has_help_and_is_named() -> None:
    for command in COMMANDS:
        done = helped(command)
        assert done.exit_code == 0, done.output
    assert {line.split()[1] for line in command_lines()} == set(COMMANDS)


@pytest.mark.parametrize("line", sorted(command_lines()))
def test_a_command_that_is_named_exists_with_its_options(line: str) -> None:
    _, command, *rest = line.split()
    assert command in COMMANDS
    inner = rest[:1] if command in GROUPS else []
    known = helped(command, *inner).output
    assert [option for option in rest if option.startswith("--") and option not in known] == []


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    named = {name for d in DOCS for name in re.findall(r"(?:^|`)make ([a-z]+)", d.read_text("utf-8"), re.MULTILINE)}
    assert {"demo", "test"} <= named <= targets


def codes(root: type[HeadgateError]) -> set[str]:
    return {root.code}.union(*(codes(one) for one in root.__subclasses__()))


def test_every_code_that_the_guide_explains_exists() -> None:
    table = read("docs/guide.md").split("## When something is refused")[1]
    named = {code for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for code in re.findall(r"`(.+?)`", row)}
    assert named
    for module in ("headgate.client.echo", "headgate.client.errors"):
        importlib.import_module(module)  # a code is known once its class is
    assert named <= codes(HeadgateError)


@pytest.mark.parametrize("document", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text("utf-8"))
    missing = [t for t in targets if "://" not in t and not (document.parent / t).exists()]
    assert missing == []


def test_the_design_has_every_rule_and_the_index_every_decision() -> None:
    assert re.findall(r"^- \*\*(D\d+)\.\*\*", read("docs/design.md"), re.MULTILINE) == [f"D{n}" for n in range(1, 18)]
    listed = re.findall(r"\]\((\d{4}-.*?\.md)\)", read("docs/decisions/README.md"))
    assert listed == sorted(path.name for path in (ROOT / "docs/decisions").glob("0*.md"))
