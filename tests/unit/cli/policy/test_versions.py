"""`headgate versions`: history, differences, starting points."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from headgate.model.changes import Batch, DeclarePrincipal
from headgate.node.domain import Domain

Run = Callable[..., Result]


def test_the_history_has_authors_times_changes_and_starting_points(headgate: Run) -> None:
    result = headgate("versions")
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    assert "3 pito 2026-01-01 12:00:00 main:3" in text
    assert "withdrawn" in text
    found = json.loads(headgate("versions", "--json").output)
    assert [(v["version"], v["author"], v["note"]) for v in found] == [
        (1, "administrator", "the first policy"),
        (2, "administrator", ""),
        (3, "pito", "the court order is withdrawn"),
    ]
    assert found[2]["starts"] == [{"stream": "main", "version": 3, "seq": 3}]
    assert found[2]["changes"][0].startswith("rule `order` removed: `detectives` may subscribe")
    assert found[0]["time"] == "2026-01-01T12:00:00Z"


def test_since_leaves_out_the_beginning(headgate: Run) -> None:
    found = json.loads(headgate("versions", "--since", "2", "--json").output)
    assert [v["version"] for v in found] == [3]
    assert "no version here; the ledger is at version 3" in headgate("versions", "--since", "3").output


def test_differences_between_two_versions(headgate: Run) -> None:
    result = headgate("versions", "--diff", "1", "3")
    assert "from version 1 to version 3" in result.output
    assert "  subscription `peek` began: `billing` to" in result.output
    assert "nothing differs" in headgate("versions", "--diff", "3", "3").output
    kinds = {d["kind"] for d in json.loads(headgate("versions", "--diff", "3", "1", "--json").output)}
    assert kinds == {"rule", "subscription"}


def test_what_touched_a_principal_through_its_groups(headgate: Run) -> None:
    found = json.loads(headgate("versions", "--principal", "smith", "--json").output)
    assert [v["version"] for v in found] == [1, 2, 3]
    assert found[2]["changes"][0].startswith("rule `order` removed")
    assert [v["version"] for v in json.loads(headgate("versions", "--principal", "billing", "--json").output)] == [1, 2]


def test_starting_points(headgate: Run) -> None:
    assert json.loads(headgate("versions", "--starting-points", "--json").output) == [
        {"stream": "main", "version": 2, "seq": 1},
        {"stream": "main", "version": 3, "seq": 3},
    ]
    assert "main" in headgate("versions", "--starting-points").output


def test_a_long_version_is_cut_short_for_people(headgate: Run, fresh: Domain) -> None:
    fresh.commit(Batch("administrator", tuple(DeclarePrincipal(f"p{n}") for n in range(50))))
    result = headgate("versions", "--since", "3", domain=fresh.paths.directory)
    assert "and 30 more" in result.output
    found = json.loads(headgate("versions", "--since", "3", "--json", domain=fresh.paths.directory).output)
    assert len(found[0]["changes"]) == 50


@pytest.mark.parametrize(
    "args",
    [["--since", "9"], ["--diff", "1", "9"], ["--principal", "nobody"], ["--diff", "1", "2", "--principal", "x"]],
)
def test_refusals(headgate: Run, args: list[str]) -> None:
    assert headgate("versions", *args).exit_code == 2
