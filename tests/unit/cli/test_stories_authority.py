"""The stories of authority across organisations: who received what, what fell when, and what was refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.authority.statement_state import admitted
from headgate.cli.main import app
from headgate.cli.stories import file_of
from headgate.cli.stories import stage as stages
from headgate.cli.stories.stage import NotAsTold, Stage
from headgate.model.errors import BadStatement
from headgate.model.rights import Source
from strategies.rehearsing import Rehearsal


def run(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, list(args))


def tries(rehearsal: Rehearsal, directory: Path) -> list[list[str]]:
    """The commands for afterwards, without `headgate`."""
    return [command.format(dir=directory).split()[1:] for command, _ in rehearsal.stage.narration.tries]


# -- the police network ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def police(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rehearsal]:
    directory = tmp_path_factory.mktemp("police")
    return directory, Rehearsal("police", directory)


def test_each_reads_what_its_chain_gives_until_a_link_is_revoked(police: tuple[Path, Rehearsal]) -> None:
    _, rehearsal = police
    assert rehearsal.received() == {
        "smith": ["e1", "e3"],
        "billing": ["e1", "e2", "e3", "e4", "e5"],
        "statistician": ["e1", "e2", "e3", "e4", "e5"],
        "broker": ["e1", "e2", "e3", "e4", "e5", "e6", "e7"],
    }
    views = {name: dict(d.view) for name, d in rehearsal.deliver().items()}
    assert views["smith", "e3"]["location"] == "Victoria", "whatever the camera says, the Met's certificate forces it"
    assert all(view["location"] is None and view["numberplate"] for (who, _), view in views.items() if who == "billing")
    assert all(view["numberplate"] is None for (who, _), view in views.items() if who == "statistician")
    assert {view["location"] for (who, _), view in views.items() if who == "statistician"} == {"Victoria"}


def test_one_list_takes_the_warrant_and_another_both_readers_of_the_ccs(police: tuple[Path, Rehearsal]) -> None:
    _, rehearsal = police
    chains = [{r.id: r.who for r in state.rules if r.source is Source.CHAIN} for state in rehearsal.states]
    by = {one.id: one.principal for one in rehearsal.subscriptions}
    begun, warrant, service = (rehearsal.events[n].version for n in (0, 3, 5))
    assert (warrant, service) == (begun + 1, begun + 2)
    lost = [chains[begun][id] for id in chains[begun].keys() - chains[warrant].keys()]
    assert lost == [by["smith"]]
    lost = [chains[warrant][id] for id in chains[warrant].keys() - chains[service].keys()]
    assert set(lost) == {by["billing"], by["statistician"]}
    assert not set(lost) & set(chains[service].values()), "nothing is left to either, not even to connect"
    assert set(admitted(rehearsal.states[-1], rehearsal.events[-1].time)) == set(chains[-1])


def test_the_domain_was_told_keys_and_has_no_rule_but_by_chains_from_pito(police: tuple[Path, Rehearsal]) -> None:
    _, rehearsal = police
    first = rehearsal.states[1]
    assert not first.rules
    assert not first.types
    assert not first.certificates
    assert not any(first.principals.values()), "nothing is known of anyone"
    assert {name: rehearsal.stage.called(key) for name, key in first.keys.items()} == {n: n for n in first.principals}
    assert rehearsal.stage.called(str(first.coordinator)) == "pito"
    assert all(rule.source is Source.CHAIN for state in rehearsal.states for rule in state.rules)
    owner = rehearsal.states[-1].types["uk.gov.pito.Numberplate"].owner
    assert owner == "pito"


def test_no_organisation_holds_the_keys_of_another(police: tuple[Path, Rehearsal]) -> None:
    directory, _ = police
    keys = {path.name: sorted(key.stem for key in path.glob("keys/*.key")) for path in directory.iterdir()}
    assert keys == {
        "pito": ["pito"],
        "met": ["broker", "camera-victoria", "met", "smith"],
        "ccs": ["billing", "ccs", "statistician"],
    }
    assert [path.parent.name for path in directory.glob("*/ledger.db")] == ["met"]


def test_old_altered_and_foreign_warrants_are_refused_with_the_reason(police: tuple[Path, Rehearsal]) -> None:
    _, rehearsal = police
    assert [one.error.code for one in rehearsal.refusals] == [
        "publish-denied",
        "revoked",
        "bad-statement",
        "chain-invalid",
    ]
    forged = rehearsal.refusals[2].error
    assert isinstance(forged, BadStatement)
    assert forged.reason == "bad-signature"
    versions = {event.version for event in rehearsal.events}
    assert max(versions) == rehearsal.states[-1].version, "a refusal makes no version"


def test_the_chain_is_drawn_with_what_is_cut(police: tuple[Path, Rehearsal]) -> None:
    _, rehearsal = police
    assert "    -> smith\n" in rehearsal.said
    assert "where numberplate = 'AE05 XYZ'" in rehearsal.said
    assert "cut publish: ccs may not" in rehearsal.said
    assert "did:key:z6Mk" in rehearsal.said
    assert "the broker that he connects to" in rehearsal.said


def test_the_files_that_are_left_verify_by_themselves(police: tuple[Path, Rehearsal]) -> None:
    directory, rehearsal = police
    camera, warrant, definition = tries(rehearsal, directory)
    done = run(*camera)
    assert done.exit_code == 0, done.output
    assert "location = 'Victoria'" in done.output
    done = run(*definition)
    assert done.exit_code == 0, done.output
    done = run(*warrant)  # the list that takes it back lies beside it
    assert done.exit_code == 1
    assert "revoked" in done.output


# -- the coalition --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def coalition(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rehearsal]:
    directory = tmp_path_factory.mktemp("coalition")
    return directory, Rehearsal("coalition", directory)


def test_both_sides_must_meet_what_the_other_requires(coalition: tuple[Path, Rehearsal]) -> None:
    _, rehearsal = coalition
    assert rehearsal.received() == {
        "giulia": ["r1", "r2", "r3", "r5", "r6", "r8"],
        "ola": ["r1", "r4", "r5", "r8"],
        "kari": ["r3", "r4", "r7", "r8"],
    }


def test_a_guest_has_what_the_mapping_gives_and_loses_it_when_the_statement_ends(
    coalition: tuple[Path, Rehearsal],
) -> None:
    _, rehearsal = coalition
    before, after = rehearsal.states[-2], rehearsal.states[-1]
    assert before.principals["ola"] == {"nation": "NO", "clearance": "secret"}
    assert before.principals["kari"] == {"nation": "NO"}
    assert after.principals == {**before.principals, "ola": {}}
    assert [event.id for event in rehearsal.events if event.version == after.version] == ["r6", "r7", "r8"]
    assert "ola" in {one.principal for one in after.subscriptions.values()}


def test_statements_from_home_and_improved_ones_are_refused(coalition: tuple[Path, Rehearsal]) -> None:
    _, rehearsal = coalition
    home, improved = (one.error for one in rehearsal.refusals)
    assert home.code == "chain-invalid"
    assert "guest statement" in str(home.remedy)
    assert isinstance(improved, BadStatement)
    assert improved.reason == "bad-signature"


def test_the_mapping_is_shown_attribute_by_attribute(coalition: tuple[Path, Rehearsal]) -> None:
    directory, rehearsal = coalition
    rows = [" ".join(line.split()) for line in rehearsal.said.splitlines()]
    assert "ola nation = NO nation = NO kept as it is" in rows
    assert "ola gradering = HEMMELIG clearance = secret renamed" in rows
    assert "ola rank = major - dropped: not in the mapping" in rows
    assert "kari gradering = FORTROLIG - dropped: value not mapped" in rows
    assert "Ola the gateway: nation = IT Norway vouches for Italy's provider" in rows
    assert (directory / "norway" / "statements" / "italy-is-a-provider.jwt").exists(), "it was checked, not only said"


def test_both_statements_can_be_looked_at_afterwards(coalition: tuple[Path, Rehearsal]) -> None:
    directory, rehearsal = coalition
    (show,) = tries(rehearsal, directory)
    done = run(*show)
    assert done.exit_code == 0, done.output
    assert "gradering = HEMMELIG" in done.output
    assert "guest of" in done.output


# -- Bell-LaPadula --------------------------------------------------------------------------------------------


def test_nobody_reads_up_and_nobody_writes_down(tmp_path: Path) -> None:
    rehearsal = Rehearsal("bell-lapadula", tmp_path)
    assert rehearsal.received() == {
        "major": ["n1", "n3", "n4", "n5", "n6"],
        "clerk": ["n2", "n5", "n6"],
        "visitor": [],
        "plans": ["n5"],
    }
    assert [one.error.code for one in rehearsal.refusals] == ["policy-rule"] * 4
    kept_out = [str(one.error.remedy).split("a receiver with ")[1] for one in rehearsal.refusals]
    assert kept_out[0] == kept_out[3] == "`$clearance = restricted`"
    assert kept_out[1] == "no attributes"
    assert "`$unit = press`" in kept_out[2]


# -- the stage ------------------------------------------------------------------------------------------------


def test_the_answer_names_the_requirement_that_was_not_met(coalition: tuple[Path, Rehearsal]) -> None:
    _, rehearsal = coalition
    said = " ".join(rehearsal.said.split())
    assert "the event asks for receivers with $clearance = 'secret', which is unknown of `ola`." in said


def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str) -> Stage:
    """The stage of a story in which something else is written."""
    text = file_of(name).read_text("utf-8")
    assert text.count(old) == 1
    (tmp_path / "other.yaml").write_text(text.replace(old, new))
    monkeypatch.setattr(stages, "file_of", lambda _: tmp_path / "other.yaml")
    return Stage(name, tmp_path / "played", threading.Event())


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("coalition", "present: [ola]}}, reason: chain-invalid", "present: [ola-guest]}}, reason: chain-invalid"),
        ("meeting", "assert: {lacks: [bob, Meeting.Member], holds", "assert: {lacks: [ann, Meeting.Member], holds"),
        (
            "bell-lapadula",
            "{as: major, type: hq.Note, event: {author: major, text: plan}}}, reason: policy-rule",
            "{as: hq, type: hq.Note, event: {text: plan}}}, reason: policy-rule",
        ),
    ],
)
def test_a_story_that_goes_otherwise_than_it_says_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str
) -> None:
    with other(tmp_path, monkeypatch, name, old, new) as stage, pytest.raises(NotAsTold):
        list(map(stage.take, stage.scenes))
