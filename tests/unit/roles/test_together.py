"""All that a version changes is taken together: what held before and holds after does not end (docs/decisions/0029)."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import (
    AddMember,
    AddRow,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    EndCredential,
    GrantRole,
    HearPeer,
    MirrorRole,
    ReinstateRole,
    RemoveGroup,
    RemoveMember,
    RemoveRow,
    RevokeRole,
    SetPeer,
    SetRolefile,
    Settle,
    Tick,
)
from headgate.model.errors import HeadgateError
from headgate.model.roles import Peer, RoleFacts
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.records.book import strata
from headgate.roles.requests.transition import transition
from strategies.roles import Walk, walks
from strategies.rolestories import NOW, Story, later
from strategies.running import examples, many

TESTS = Path(__file__).parents[2]


def people(*lines: str, **members: list[str]) -> Story:
    """Ann, bob and cat, each logged on, with groups and a rolefile."""
    names = ("ann", "bob", "cat")
    groups = [DeclareGroup(name) for name in ("a", "b", "c")]
    inside = [AddMember(group, who) for group, all_ in members.items() for who in all_]
    story = Story(*map(DeclarePrincipal, names), *groups, *inside, DeclareRelation("Row"))
    if lines:
        story.rolefile(*lines)
    for name in names:
        story.grant(f"on-{name}", name, "On", name)
    return story


def moved(who: str, old: str, new: str) -> list[Any]:
    return [RemoveMember(old, who), AddMember(new, who)]


# -- what is changed together --------------------------------------------------------------------------------------


def test_whoever_is_moved_from_one_group_to_another_keeps_the_role() -> None:
    for a, b in permutations("abc", 2):
        story = people("A(u) <- L.On(u) : (u in a or u in b or u in c)*", **{a: ["ann", "bob"]})
        story.enter("x", "ann", "A").enter("y", "bob", "A").do(*moved("ann", a, b), RemoveMember(a, "bob"))
        assert ("x" in story, "y" in story) == (True, False)


def test_two_shifts_that_meet() -> None:
    story = people(
        "A(u) <- L.On(u) : (timeofday(@time) in '06:00'..'11:59:59' or timeofday(@time) in '12:00'..'18:00')*"
    ).enter("x", "ann", "A")
    assert "x" in story.do(Tick(later(3 * 3600)))
    assert "x" in story.do(Tick(later(9 * 3600)))
    assert "x" not in story.do(Tick(later(9 * 3600 + 1)))


def test_rows_that_are_swapped() -> None:
    story = people("A(u) <- L.On(u) : (Row(u, 'x') or Row(u, 'y'))* and (Row(_, 'x'))*").do(
        AddRow("Row", ("ann", "x")), AddRow("Row", ("bob", "y"))
    )
    story.enter("x", "ann", "A").enter("y", "bob", "A")
    swapped = [(AddRow, "ann", "y"), (AddRow, "bob", "x"), (RemoveRow, "ann", "x"), (RemoveRow, "bob", "y")]
    story.do(*(make("Row", (who, what)) for make, who, what in swapped))
    assert "x" in story
    assert "y" in story


def test_groups_the_clock_and_what_a_peer_says_are_one() -> None:
    before = people("A(u) <- L.On(u) : (u in a or timeofday(@time) >= '10:00' or count(W.N(_)) > 0)*", a=["ann"])
    before.do(SetPeer(Peer("W", "did:key:za", "W", 20)))
    before.do(MirrorRole("n", "W", "N", ("bob",), "bob", 7, True, NOW)).enter("x", "ann", "A")
    lost = [RemoveMember("a", "ann"), HearPeer("W", 1, {7: False}, later(3600)), Tick(later(3600))]
    for changes in permutations(lost):
        assert transition(before.state, Batch(ADMINISTRATOR, changes), now=NOW).after.roles.memberships["x"].state


def test_who_is_heard_in_a_version_is_not_silent_in_it() -> None:
    story = people().do(
        SetPeer(
            Peer("W", "did:key:za", "W", 20),
        )
    )
    story.do(HearPeer("W", 1, {}, NOW)).do(MirrorRole("n", "W", "N", ("bob",), "bob", 7, True, NOW))
    for changes in permutations([Tick(later(30)), HearPeer("W", 2, {}, later(25))]):
        after = transition(story.state, Batch(ADMINISTRATOR, changes), now=NOW).after
        assert after.roles.memberships["n"].state is True
    assert story.do(Tick(later(30))).state_of("n") is None


def test_one_credential_ends_as_another_begins() -> None:
    story = people("A(u) <- L.On(u) : (count(L.On('cat')) > 0)*").enter("x", "ann", "A")
    assert "x" in story.do(EndCredential("on-cat"), GrantRole("again", "L", "On", ("cat",), "cat"))
    assert "x" not in story.do(EndCredential("again"))


def test_what_is_revoked_and_reinstated_in_one_version_stays() -> None:
    story = people("Chair <- L.On('bob')", "A(u) <- L.On(u) |>* Chair").enter("c", "bob", "Chair")
    story.enter("x", "ann", "A")
    revoked = RevokeRole("S", "A", ("ann",), "bob", None, NOW)
    assert "x" not in Story.do(replace_story(story), revoked)
    assert "x" in story.do(revoked, ReinstateRole("S", "A", ("ann",), "bob", None, NOW))


def replace_story(story: Story) -> Story:
    """The same story, to go on otherwise."""
    other = Story()
    other.state, other.book = story.state, None
    return other


def test_a_group_that_is_called_otherwise_with_the_rolefiles_that_name_it() -> None:
    """As `policy apply` does, whatever order the services come in."""
    for first, second in permutations(
        [("S", "A(u) <- L.On(u) & T.B(u) : (u in {})*"), ("T", "B(u) <- L.On(u) : (u in {})*")]
    ):
        story = people(a=["ann"])
        for service, text in sorted([first, second], reverse=True):
            story.rolefile(text.format("a"), service=service)
        story.enter("y", "ann", "B", service="T").enter("x", "ann", "A")
        files = [SetRolefile(service, parse_rolefile(text.format("new"))) for service, text in (first, second)]
        story.do(RemoveGroup("a"), DeclareGroup("new"), AddMember("new", "ann"), *files)
        assert "x" in story
        assert "y" in story
        assert "x" not in story.do(RemoveMember("new", "ann"))


# -- what follows from what follows --------------------------------------------------------------------------------


def test_a_cascade_that_ends_one_support_as_it_begins_another() -> None:
    """Whoever is not in the group acts only while there is no chair; as ann leaves the group, the chair goes."""
    story = people(
        "Chair(u) <- L.On(u) : ('ann' in a)*",
        "Acting(u) <- L.On(u) : ('ann' in a or not Chair(_))*",
        "Counting(u) <- L.On(u) : ('ann' in a or count(Chair(_)) = 0)*",
        "After(u) <- Acting(u)* : (Acting(_))*",
        "Late(u) <- L.On(u) : (count(After(_)) > 0 and count(Counting(_)) > 0)*",
        a=["ann"],
    )
    for role in ("Chair", "Acting", "Counting", "After", "Late"):
        story.enter(role.lower(), "bob", role)
    story.do(RemoveMember("a", "ann"))
    assert [id for id in ("chair", "acting", "counting", "after", "late") if id not in story] == ["chair"]
    assert story.reasons == {"chair": "`'ann' in a` no longer holds"}


def test_a_cascade_through_roles_in_between() -> None:
    story = people(
        "Chair(u) <- L.On(u) : ('ann' in a)*",
        "Between(u) <- L.On(u) : ('ann' in a or not Chair(_))*",
        "End(u) <- Between(u)*",
        a=["ann"],
    )
    story.enter("chair", "bob", "Chair").enter("end", "cat", "End").do(RemoveMember("a", "ann"))
    assert "chair" not in story
    assert "end" in story


def test_those_who_hold_each_other_up_are_not_brought_down_by_what_came_in_between() -> None:
    story = people(
        "Chair(u) <- L.On(u) : ('ann' in a)*",
        "P(u) <- L.On(u) : ('ann' in a or not Chair(_))* and (count(P(_)) > 0 or @time = @time)*",
        "Q(u) <- L.On(u) : (P(_))*",
        "P(u) <- Q(u) : (Q(_))* and ('ann' in a or not Chair(_))*",
        a=["ann"],
    )
    story.enter("chair", "bob", "Chair").enter("p", "cat", "P").enter("q", "ann", "Q").enter("p2", "ann", "P", "ann")
    story.do(RemoveMember("a", "ann"))
    assert [id for id in ("chair", "p", "q", "p2") if id not in story] == ["chair"]


def test_a_place_that_becomes_free_in_the_same_version() -> None:
    """Of two on duty who must be on the rota unless one is alone, one loses the rota and the other goes home."""
    story = people("Duty(u) <- L.On(u)* : (u in a or count(Duty(_)) < 2)*", a=["ann", "bob"])
    story.enter("x", "ann", "Duty").enter("y", "bob", "Duty")
    story.do(RemoveMember("a", "ann"), EndCredential("on-bob"))
    assert "x" in story
    assert story.reasons["y"] == "it rested on `on-bob`: it was revoked"


def test_a_circle_that_has_no_way_out_ends() -> None:
    """Each could stay if the other went, and nothing says which."""
    story = people(
        "A(u) <- L.On(u) : (u in a or not B(_))*", "B(u) <- L.On(u) : (u in a or not A(_))*", a=["ann", "bob"]
    )
    story.enter("x", "ann", "A").enter("y", "bob", "B").do(RemoveMember("a", "ann"), RemoveMember("a", "bob"))
    assert story.reasons == {
        "x": "`B(_)` holds now",
        "y": "`A(_)` holds now",
    } or not story.state.roles.memberships.keys() & {"x", "y"}
    assert not story.state.roles.memberships.keys() & {"x", "y"}


def test_a_limit_that_is_lowered_below_what_there_is() -> None:
    story = people("Seat(u) <- L.On(u) : (count(Seat(_)) <= Row('seats'))*").do(AddRow("Row", ("seats", 3)))
    for who in ("ann", "bob", "cat"):
        story.enter(f"seat-{who}", who, "Seat")
    story.do(RemoveRow("Row", ("seats", 3)), AddRow("Row", ("seats", 2)))
    assert set(story.reasons.values()) == {"`count(S[''].Seat(_)) <= Row('seats')` no longer holds"}
    assert sorted(story.reasons) == ["seat-ann", "seat-bob", "seat-cat"]


def test_the_clock_is_looked_at_with_all_else() -> None:
    """At noon one shift follows another, and nothing ends by it; whoever then leaves the group has no shift left."""
    story = people("A(u) <- L.On(u) : (timeofday(@time) < '12:00' or u in a)*", a=["ann"]).enter("x", "ann", "A")
    story.do(RemoveMember("a", "ann"), now=later(4 * 3600))
    assert "x" not in story


def test_roles_are_settled_after_those_that_they_look_at() -> None:
    files = {
        "S": parse_rolefile("A(u) <- T.X(u) : not B(_)\nB(u) <- C(u)\nC(u) <- B(u)\nD(u) <- : count(T.X(_)) > 0\n"),
        "T": parse_rolefile("X(u) <- L.On(u)\n"),
    }
    order = strata(files)
    assert order["S", "B"] == order["S", "C"] < order["S", "A"] > order["T", "X"] < order["S", "D"]
    assert strata(dict(reversed(files.items()))) == order
    chain = "".join(f"A{n}(u) <- A{n + 1}(u)\n" for n in range(1_500)) + "A1500(u) <-\n"
    assert strata({"S": parse_rolefile(chain)})["S", "A0"] == 1_500


# -- no order but that of the data ---------------------------------------------------------------------------------


def settled(state: State, changes: Any) -> tuple[RoleFacts, State] | str:
    try:
        made = transition(state, Batch(ADMINISTRATOR, tuple(changes)), now=NOW)
    except HeadgateError as refusal:
        return refusal.code
    return next(one.facts for one in made.batch.changes if isinstance(one, Settle)), made.after


@given(walks(), st.data())
@examples(25)
def test_facts_come_in_any_order(walk: Walk, data: st.DataObject) -> None:
    for step in walk.steps(10, 14):
        state = step.outcome.after
    whos = ("ann", "bob", "cat")
    told: list[Any] = [
        (RemoveMember if who in state.groups.get(group, ()) else AddMember)(group, who)
        for group in ("staff", "night")
        for who in whos
        if group in state.groups and who in state.principals
    ]
    rows = state.relations.get("Above")
    if rows is not None:
        told += [(RemoveRow if (who, "cat") in rows else AddRow)("Above", (who, "cat")) for who in whos]
    told.append(Tick(later(data.draw(st.integers(0, 40)))))
    some = data.draw(st.lists(st.sampled_from(told), unique_by=id, min_size=1))
    first = settled(state, some)
    assert settled(state, data.draw(st.permutations(some))) == first
    shuffled = {name: frozenset(sorted(members, reverse=True)) for name, members in state.groups.items()}
    assert settled(replace(state, groups=shuffled), some) == first


PLAY = """
from datetime import timedelta
from random import Random
from headgate.model.changes import Settle
from strategies.roles import Walk
for seed in range(20):
    for step in Walk(Random(seed)).steps(12, 16):
        for change in step.outcome.batch.changes:
            if isinstance(change, Settle):
                print(seed, step.outcome.after.version, change.facts)
        print(list(step.outcome.after.roles.held), list(step.outcome.after.roles.memberships))
for seed in range(15):
    from strategies.roles import churn
    print(churn(Random(seed)))
"""


@pytest.mark.soak
def test_histories_are_the_same_whatever_the_seed_of_hashes() -> None:
    """Ids, endings, reasons, records and their order, in fresh processes."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    told = set()
    for seed in range(many(2, soak=4)):
        made = subprocess.run(
            [sys.executable, "-c", PLAY],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        told.add(made.stdout)
    assert len(told) == 1
    assert "no longer holds" in told.pop()


def test_nothing_turns_when_nothing_is_changed() -> None:
    story = people("A(u) <- L.On(u) : (u in a or u in b)*", a=["ann"]).enter("x", "ann", "A")
    before = story.state.roles
    assert story.do(Tick(NOW)).state.roles == before
