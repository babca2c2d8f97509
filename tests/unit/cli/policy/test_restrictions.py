"""`headgate restrictions`: for subscriptions and for publishers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result

Run = Callable[..., Result]
PLATE = "uk.gov.pito.Numberplate"


def lines(result: Result) -> list[str]:
    return [" ".join(line.split()) for line in result.output.splitlines()]


def test_what_was_asked_beside_what_it_comes_to(headgate: Run) -> None:
    result = headgate("restrictions", "track", "--version", "2")
    assert result.exit_code == 0
    said = lines(result)
    assert f"asked for: {PLATE} where location is not null" in said
    assert "can be satisfied: yes" in said
    assert "order grant all numberplate = 'AE05 XYZ'" in said


@pytest.mark.parametrize(
    ("id", "version", "verdict"),
    [
        ("bill", "3", "yes"),
        ("peek", "3", "no: the filter needs an attribute that is never visible"),
        ("track", "3", "no: no grant reaches it"),
    ],
)
def test_whether_it_can_be_satisfied(headgate: Run, id: str, version: str, verdict: str) -> None:
    said = lines(headgate("restrictions", id, "--version", version))
    assert f"can be satisfied: {verdict}" in said


def test_a_principal_is_told_no_undisclosed_condition(headgate: Run) -> None:
    result = headgate("restrictions", "track", "--version", "2", "--as", "smith")
    assert "can be satisfied: yes, unless conditions that are not disclosed decide otherwise" in lines(result)
    assert "AE05" not in result.output


def test_json(headgate: Run) -> None:
    found = json.loads(headgate("restrictions", "peek", "--json").output)
    assert (found["satisfiable"], found["never"]) == (False, ["location"])
    assert found["types"][0]["reason"] == "hidden"


def test_what_becomes_of_published_events(headgate: Run) -> None:
    said = lines(headgate("restrictions", "--publish", "cctv", PLATE))
    assert "can be published: yes, as the first of these grants that is true allows" in said
    assert "cameras grant numberplate, timestamp location = Victoria true" in said
    own = headgate("restrictions", "--publish", "cctv", PLATE, "--as", "cctv")
    assert "Victoria" not in own.output
    assert "can be published: no: no grant reaches it" in lines(headgate("restrictions", "--publish", "smith", PLATE))


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["nothing"], "not-found"),
        (["track", "--version", "1"], "not-found"),
        (["track", "--version", "9"], "not-found"),
        (["track", "--as", "outsider"], "govern-denied"),
        (["nothing", "--as", "outsider"], "govern-denied"),
        (["--publish", "cctv", "no.Such"], "unknown-type"),
        (["--publish", "nobody", PLATE], "unknown-name"),
        (["--publish", "cctv", PLATE, "--as", "smith"], "govern-denied"),
    ],
)
def test_refusals(headgate: Run, args: list[str], code: str) -> None:
    result = headgate("restrictions", *args)
    assert result.exit_code == 2
    assert f"error [{code}]" in result.output


@pytest.mark.parametrize("args", [[], ["track", "--publish", "cctv", PLATE]])
def test_one_question_at_a_time(headgate: Run, args: list[str]) -> None:
    assert headgate("restrictions", *args).exit_code == 2
