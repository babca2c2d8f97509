"""Quorums and patterns: who elects and who revokes together, and what is revoked at once."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.model.changes import DeclareGroup, DeclarePrincipal, GrantRole, PassRevocation
from headgate.model.errors import BadDefinition, RoleDenied
from strategies.rolestories import Story

PEOPLE = ("ann", "bob", "cat", "dan")


def told(*lines: str) -> Story:
    """People who are logged on, three of them judges, and a rolefile."""
    story = Story(
        *(DeclarePrincipal(name) for name in PEOPLE),
        *(GrantRole(f"{name}-on", "L", "On", (name,), name) for name in PEOPLE),
        *(GrantRole(f"{name}-judge", "L", "Judge", (name,), name) for name in ("ann", "bob", "cat")),
    )
    return story.rolefile(*lines)


def denied(story: Story, ask: str, *args: Any) -> str:
    with pytest.raises(RoleDenied) as refused:
        getattr(story, ask)(*args)
    return str(refused.value.failure)


# -- electing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("electors", ["<| L.Judge <| L.Judge", "<| L.Judge(x) <| L.Judge(y)", "<| L.Judge <| L.On"])
def test_a_quorum_is_of_different_principals(electors: str) -> None:
    story = told(f"Free(u) <- L.On(u) {electors}")
    story.elect("v1", "ann", "Free", using=("ann-judge",)).elect("v2", "ann", "Free", using=("ann-judge",))
    if "L.On" in electors:
        story.elect("v3", "ann", "Free", using=("ann-on",))
    assert denied(story, "enter", "m", "dan", "Free") == "credentials"
    story.elect("v4", "bob", "Free", using=("bob-on" if "L.On" in electors else "bob-judge",))
    assert "m" in story.enter("m", "dan", "Free")


def test_a_quorum_is_asked_of_another_rolefile_as_well() -> None:
    story = told("Free(u) <- L.On(u) <| L.Judge")
    story.elect("v1", "ann", "Free").elect("v2", "ann", "Free").enter("m", "dan", "Free", using=("dan-on", "v1", "v2"))
    assert "m" not in story.rolefile("Free(u) <- L.On(u) <| L.Judge <| L.Judge")


def test_an_election_to_an_intermediate_role_counts_by_itself() -> None:
    story = told("Candidate(u) <- L.On(u)* <|* L.Judge", "Member(u) <- Candidate(u)*", "Guest(u) <- Member(u)*")
    assert denied(story, "enter", "m", "dan", "Guest") == "credentials"
    story.elect("v", "ann", "Candidate", "dan").enter("m", "dan", "Guest")
    assert story.state.roles.memberships["m"].supports == ("dan-on", "v")
    with pytest.raises(RoleDenied):  # what is named is all that counts
        story.enter("n", "dan", "Guest", using=("dan-on",))
    assert "m" not in story.end("v", "ann")


# -- passing on ---------------------------------------------------------------------------------------------------


def test_a_right_to_revoke_goes_to_who_could_have_made_the_same_election() -> None:
    story = told("Member(c, u) <- L.On(u) <|* L.Chair(c, _)")
    for who, club, term in (("ann", "golf", 1), ("bob", "chess", 1), ("cat", "golf", 2)):
        story.do(GrantRole(f"{who}-chair", "L", "Chair", (club, term), who))
    story.elect("e", "ann", "Member", "golf", "dan").enter("m", "dan", "Member")
    with pytest.raises(RoleDenied, match=r"`bob` does not hold `L\.Chair\('golf', 1\)`"):
        story.do(PassRevocation("e", "ann", "bob"))
    story.do(PassRevocation("e", "ann", "cat"))
    story.end("cat-chair").do(GrantRole("other", "L", "Chair", ("chess", 1), "cat"))
    with pytest.raises(RoleDenied):  # a chair still, but of another club
        story.end("e", "cat")
    story.do(GrantRole("again", "L", "Chair", ("golf", 3), "cat")).end("e", "cat")
    assert "m" not in story


@pytest.mark.parametrize(
    ("statement", "goes"),
    [
        ("Member(u) <- L.On(u) <|* L.Judge", True),
        ("Member(u) <- L.On(u) <|* L.Judge(x)", True),  # a name that asks for nothing
        ("Member(u) <- L.On(u) <|* L.Judge(x) : x != u", False),
        ("Member(u) <- L.On(u) <|* L.Judge('ann')", False),
    ],
)
def test_what_a_clause_asks_of_its_elector_is_asked_of_who_is_given_the_right(statement: str, goes: bool) -> None:
    story = told(statement).elect("e", "ann", "Member", "dan", using=("ann-judge",))
    if goes:
        assert story.do(PassRevocation("e", "ann", "bob")).state.roles.elections["e"].revokers == ("bob",)
    else:
        with pytest.raises(RoleDenied):
            story.do(PassRevocation("e", "ann", "bob"))


# -- revoking -----------------------------------------------------------------------------------------------------

QUORUM = "Member(u) <- L.On(u) |>* L.Judge |>* L.Judge"


def pending(story: Story) -> list[tuple[Any, ...]]:
    return sorted((ban.args, ban.revoker, ban.by) for ban in story.state.roles.bans)


def test_a_role_ends_when_so_many_different_judges_have_revoked_it() -> None:
    story = told(QUORUM).enter("m", "dan", "Member").enter("o", "cat", "Member").revoke("ann", "Member", "dan")
    assert "m" in story.revoke("ann", "Member", "dan")  # twice is once
    assert pending(story) == [(("dan",), "L.Judge", "ann")]
    assert "n" in story.enter("n", "dan", "Member")  # until it is full nobody is barred
    story.revoke("bob", "Member", "dan")
    assert "m" not in story
    assert "n" not in story
    assert "o" in story
    assert story.reasons["m"] == "`S.Member('dan')` was revoked by `L.Judge` and `L.Judge`"
    assert denied(story, "enter", "n", "dan", "Member") == "revocation"


def test_a_pending_revocation_is_taken_back_by_whoever_gave_it() -> None:
    story = told(QUORUM).enter("m", "dan", "Member").revoke("ann", "Member", "dan")
    assert denied(story, "reinstate", "bob", "Member", "dan") == "misuse"
    story.reinstate("ann", "Member", "dan").revoke("bob", "Member", "dan")
    assert "m" in story
    assert "m" not in story.revoke("cat", "Member", "dan")
    assert denied(story, "reinstate", "ann", "Member", "dan") == "misuse"  # two have decided it
    story.reinstate("cat", "Member", "dan")
    assert "n" in story.enter("n", "dan", "Member")
    assert pending(story) == [(("dan",), "L.Judge", "bob")]


def test_what_a_judge_has_left_behind_is_taken_back_by_those_who_judge() -> None:
    story = told(QUORUM).enter("m", "dan", "Member").revoke("ann", "Member", "dan").end("ann-judge")
    assert pending(story.reinstate("bob", "Member", "dan")) == []


def test_what_a_constraint_asks_of_revokers_is_asked_of_them_together() -> None:
    story = told("Member(u) <- L.On(u) |>* L.Sits(x) |>* L.Sits(y) : x != y and u != 'cat'")
    for who, court in (("ann", "north"), ("bob", "north"), ("cat", "south")):
        story.do(GrantRole(f"{who}-sits", "L", "Sits", (court,), who))
    story.enter("m", "dan", "Member")
    assert denied(story, "enter", "n", "cat", "Member") == "credentials"  # the rest is asked on entry
    assert "m" in story.revoke("ann", "Member", "dan").revoke("bob", "Member", "dan")
    assert "m" not in story.revoke("cat", "Member", "dan")


def test_a_quorum_of_several_roles() -> None:
    story = told("Member(u) <- L.On(u) |>* L.Judge |>* L.On(u)").enter("m", "dan", "Member")
    assert "m" in story.revoke("dan", "Member", "dan")
    assert "m" not in story.revoke("ann", "Member", "dan")
    story = told("Member(u) <- L.On(u) |>* L.Judge |>* L.On(u)").enter("m", "ann", "Member")
    assert "m" in story.revoke("ann", "Member", "ann")  # who fits both is one all the same


def test_of_two_statements_each_has_its_own_quorum() -> None:
    story = told(QUORUM, "Member(u) <- L.On(u) |>* L.Chair").grant("c", "cat", "Chair").enter("m", "dan", "Member")
    assert "m" in story.revoke("cat", "Member", "dan", using=("c",))  # it was entered by the first statement
    assert denied(story, "enter", "n", "dan", "Member") == "revocation"
    assert "n" in story.reinstate("cat", "Member", "dan").enter("n", "dan", "Member")


def test_a_quorum_in_another_rolefile() -> None:
    story = told(QUORUM).enter("m", "dan", "Member").revoke("ann", "Member", "dan")
    assert "m" not in story.rolefile("Member(u) <- L.On(u) |>* L.Judge")  # one is enough now
    story = told(QUORUM).enter("m", "dan", "Member").revoke("ann", "Member", "dan")
    story.rolefile("Member(u) <- L.On(u) |>* L.Chair")
    assert "m" in story
    assert pending(story) == []
    story = told(QUORUM).revoke("ann", "Member", "dan").revoke("bob", "Member", "dan")
    story.rolefile("Member(u) <- L.On(u) |>* L.Chair")
    assert denied(story, "enter", "m", "dan", "Member") == "revocation"
    story.grant("c", "cat", "Chair").reinstate("cat", "Member", "dan")
    assert "m" in story.enter("m", "dan", "Member")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("A(u) <- L.On(u) |>* L.J(x) |>* L.J(y) : x in staff", "does more than compare"),
        ("A(u) <- L.On(u) |>* L.J(x) |>* L.J(y) : (x != y)*", "does more than compare"),
        ("A(u) <- L.Two(u, h) |>* L.J(x) |>* L.J(y) : x != h", "nothing gives `h` a value"),
    ],
)
def test_what_revokers_cannot_be_asked(line: str, words: str) -> None:
    with pytest.raises(BadDefinition, match=words):
        told().do(DeclareGroup("staff")).rolefile(line)


# -- patterns -----------------------------------------------------------------------------------------------------

WARDS = "Override(d, w) <- L.On(d) & L.Ward(w) |>* L.Head(w)", "Override(d, w) <- L.On(d) & L.Ward(w) |>* L.Chief"


def hospital(*lines: str) -> Story:
    story = told(*lines)
    for who in ("dan", "cat"):
        for ward in ("north", "south"):
            story.do(GrantRole(f"{who}-{ward}-ward", "L", "Ward", (ward,), who))
            story.enter(f"{who}-{ward}", who, "Override", who, ward)
    return story


def test_whatever_fits_a_pattern_is_revoked_and_barred_until_it_is_reinstated() -> None:
    story = hospital(WARDS[1]).grant("c", "ann", "Chief").revoke("ann", "Override", "dan", None)
    assert [one in story for one in ("dan-north", "dan-south", "cat-north", "cat-south")] == [False, False, True, True]
    assert story.reasons["dan-north"] == "`S.Override('dan', 'north')` was revoked by `L.Chief`"
    assert denied(story, "enter", "x", "dan", "Override", "dan", "north") == "revocation"
    story.reinstate("ann", "Override", "dan", "north")  # another pattern: nothing was revoked by it
    assert denied(story, "enter", "x", "dan", "Override", "dan", "north") == "revocation"
    assert "x" in story.reinstate("ann", "Override", "dan").enter("x", "dan", "Override", "dan", "north")


def test_arguments_that_are_left_out_are_open() -> None:
    story = hospital(WARDS[1]).grant("c", "ann", "Chief").revoke("ann", "Override")
    assert not any(one in story for one in ("dan-north", "dan-south", "cat-north", "cat-south"))
    assert pending(story) == [((None, None), "L.Chief", "ann")]


def test_of_a_pattern_only_that_is_revoked_which_the_revoker_may() -> None:
    story = hospital(WARDS[0]).grant("h", "ann", "Head", "north").revoke("ann", "Override", "dan", None)
    assert "dan-north" not in story
    assert "dan-south" in story
    assert pending(story) == [(("dan", "north"), "L.Head", "ann")]
    assert denied(story, "revoke", "bob", "Override", "dan", None) == "credentials"
    assert denied(story, "revoke", "ann", "Override", "dan", "south") == "credentials"
    assert "x" in story.reinstate("ann", "Override", "dan", None).enter("x", "dan", "Override", "dan", "north")


def test_a_pattern_counts_in_a_quorum_and_through_intermediate_roles() -> None:
    story = told("Candidate(u, v) <- L.On(u) & L.On(v) |>* L.Judge |>* L.Judge", "Member <- Candidate(_, _)*")
    story.enter("m", "dan", "Member").revoke("ann", "Candidate", "dan", "dan")
    assert "m" in story
    assert "m" not in story.revoke("bob", "Candidate", None, "dan")
