"""`headgate explain`: the table, the words, JSON, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from headgate.commands.publishing.local import LocalPublisher
from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Batch, Subscribe
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule, Subscription
from headgate.node.domain import Domain

Run = Callable[..., Result]
PLATE = "uk.gov.pito.Numberplate"


def lines(result: Result) -> list[str]:
    """What was printed, without the space that tables pad with."""
    return [" ".join(line.split()) for line in result.output.splitlines()]


def test_attributes_entries_and_what_was_missing(headgate: Run) -> None:
    result = headgate("explain", "billing", "e1")
    assert result.exit_code == 0
    said = lines(result)
    assert "location hidden forbidden by `no-places`" in said
    assert "numberplate AE05 XYZ granted by `bills`" in said
    assert "timestamp null granted by `bills`; it is null in the event" in said
    assert "no-places forbid to billing true true: hides `location`" in said
    assert said[-1] == (
        f"a subscribe grant to billing on `{PLATE}` covering `location`, placed before the forbid `no-places`"
    )


def test_the_part_of_a_condition_that_was_false(headgate: Run) -> None:
    result = headgate("explain", "smith", "e2")
    text = " ".join(lines(result))
    assert "no view: no grant of smith holds for this event" in text
    assert "`order` covers it, but its condition is not true" in text
    assert "(numberplate is 'B1 GUY')" in text.replace("GUY') ", "GUY')")
    assert text.endswith("; or the condition of `order` true")


def test_a_place_names_an_event_too(headgate: Run) -> None:
    result = headgate("explain", "smith", "main:3", "--subscription", "track")
    assert result.exit_code == 0
    assert "event e3" in result.output
    assert "subscription track: not delivered, because there is no view" in lines(result)


def test_a_filter_over_a_hidden_attribute(headgate: Run) -> None:
    said = lines(headgate("explain", "billing", "e1", "--subscription", "peek"))
    assert "subscription peek: not delivered, because the filter is unknown over the view" in said
    assert "`location = 'Victoria'` is unknown (location is hidden)" in said


def test_json_has_the_facts(headgate: Run) -> None:
    found = json.loads(headgate("explain", "smith", "e1", "--json").output)
    assert (found["principal"], found["place"], found["version"], found["full"]) == ("smith", ["main", 1], 2, True)
    assert [(a["name"], a["visible"], a["value"]) for a in found["attributes"]] == [
        ("location", True, "Victoria"),
        ("numberplate", True, "AE05 XYZ"),
        ("timestamp", True, None),
    ]
    (tried,) = found["views"][0]["tried"]
    assert tried["condition"] == "numberplate = 'AE05 XYZ'"
    assert tried["parts"] == [
        {"condition": "numberplate = 'AE05 XYZ'", "truth": True, "saw": {"numberplate": "AE05 XYZ"}}
    ]


def test_a_principal_asking_about_itself(headgate: Run) -> None:
    result = headgate("explain", "smith", "e1", "--as", "smith")
    assert result.exit_code == 0
    assert "numberplate AE05 XYZ granted by `order`" in lines(result)
    assert "(not disclosed)" in result.output
    assert "main:1" not in result.output
    assert "detectives" not in result.output


def test_what_is_hidden_answers_as_what_is_not_there(headgate: Run) -> None:
    answers = {
        headgate("explain", "smith", event, "--as", "smith").output.replace(event, "EVENT")
        for event in ("e2", "e3", "e9", "main:1", "main:2", "main:99", "nowhere:1")
    }
    assert answers == {"error [not-found] no event `EVENT` that `smith` may know of\n  try check its id\n"}


@pytest.mark.parametrize("asker", ["pito", "auditor"])
def test_owner_and_auditor_are_told_everything(headgate: Run, asker: str) -> None:
    assert headgate("explain", "smith", "e2", "--as", asker).output == headgate("explain", "smith", "e2").output


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["smith", "e1", "--as", "outsider"], "govern-denied"),
        (["smith", "e9", "--as", "outsider"], "govern-denied"),
        (["smith", "e9"], "not-found"),
        (["nobody", "e1"], "unknown-name"),
        (["smith", "e1", "--as", "nobody"], "unknown-name"),
        (["smith", "e1", "--version", "9"], "not-found"),
        (["smith", "e1", "--version", "0"], "unknown-type"),
        (["smith", "e1", "--subscription", "bill"], "not-found"),
        (["smith", "e1", "--stream", "other"], "not-found"),
        (["billing", "e1", "--as", "billing", "--version", "3"], "govern-denied"),
    ],
)
def test_refusals(headgate: Run, args: list[str], code: str) -> None:
    result = headgate("explain", *args)
    assert result.exit_code == 2
    assert f"error [{code}]" in result.output


def test_a_folder_that_is_no_domain(headgate: Run, tmp_path: Path) -> None:
    result = headgate("explain", "smith", "e1", domain=tmp_path)
    assert result.exit_code == 2
    assert "is not a domain" in result.output


def test_of_several_events_with_one_id_the_newest_is_explained(headgate: Run, fresh: Domain) -> None:
    LocalPublisher(fresh, advertise=False).publish(Draft("e1", "cctv", PLATE, {"numberplate": "NEW 1"}))
    result = headgate("explain", "billing", "e1", domain=fresh.paths.directory)
    assert "NEW 1" in result.output
    assert "2 events are called `e1`" in result.output
    own = headgate("explain", "smith", "e1", "--as", "smith", domain=fresh.paths.directory)
    assert "AE05 XYZ" in own.output
    assert "events are called" not in own.output


def test_history_names_the_version_that_hid_an_attribute(headgate: Run, fresh: Domain) -> None:
    less = Rule(
        "less", "smith", frozenset({Action.SUBSCRIBE}), PLATE, parse_condition("true"), attributes=("numberplate",)
    )
    fresh.commit(Batch("pito", (AddRule(less),)))
    fresh.commit(Batch("smith", (Subscribe(Subscription("past", "smith", PLATE, history=True)),)))
    said = lines(headgate("explain", "smith", "e1", "--subscription", "past", domain=fresh.paths.directory))
    assert "location hidden no entry shows it at version 5" in said
    assert "numberplate AE05 XYZ granted by `order` at version 2" in said
    assert "subscription past: delivered, the filter is true over the view" in said


def test_a_requirement_that_stops_an_event(headgate: Run, fresh: Domain) -> None:
    asks = parse_condition("$nation = 'NO'")
    wanted = Subscription("bills2", "billing", PLATE, requires=parse_condition("$rank > 1"))
    fresh.commit(Batch("billing", (Subscribe(wanted),)))
    LocalPublisher(fresh, advertise=False).publish(
        Draft("e9", "cctv", PLATE, {"numberplate": "AE05 XYZ"}, requires=asks)
    )
    asked = ("explain", "billing", "e9", "--subscription", "bills2")
    said = lines(headgate(*asked, domain=fresh.paths.directory))
    assert "stopped: billing does not meet the requirement of the event: $nation = 'NO'" in said
    assert "subscription bills2: not delivered, because a requirement is not met" in said
    assert "stopped: cctv does not meet the requirement of the subscription: $rank > 1" in said
    own = headgate(*asked, "--as", "billing", domain=fresh.paths.directory)
    assert own.exit_code == 2
    assert "no event `e9`" in own.output
    facts = json.loads(headgate(*asked, "--json", domain=fresh.paths.directory).output)
    assert facts["unmet"][0]["condition"] == "$nation = 'NO'"
