"""Quorums and patterns: who elects and who revokes together, and what is revoked at once."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.model.changes import DeclarePrincipal, GrantRole, PassRevocation
from headgate.model.errors import RoleDenied
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
