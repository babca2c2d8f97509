"""What follows from a change: through however many steps, with a reason, at the cost of what changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from sys import setprofile
from types import FrameType
from typing import Any

import pytest

from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import (
    AddMember,
    AddRow,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    EndCredential,
    EnterRole,
    GrantRole,
    RegisterPredicate,
    RemoveMember,
    RemovePrincipal,
    RemoveRow,
    SetRolefile,
    Settle,
    Tick,
)
from headgate.model.errors import RoleDenied
from headgate.model.limits import MAX_HELD
from headgate.model.roles import Link, Membership, Op, Record, RoleFacts, reference
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.records.book import Book
from headgate.roles.records.facts import fact_of
from headgate.roles.requests.transition import transition
from strategies.rolestories import NOW, Story, later


def people(*more: Any) -> Story:
    return Story(*map(DeclarePrincipal, ("ann", "bob", "cat")), DeclareGroup("staff"), DeclareRelation("Row"), *more)


@contextmanager
def counting() -> Iterator[list[int]]:
    """How many functions of this project are called."""
    calls = [0]
    fact_of.cache_clear()

    def seen(frame: FrameType, event: str, _: object) -> None:
        calls[0] += event == "call" and "headgate" in frame.f_code.co_filename

    setprofile(seen)
    try:
        yield calls
    finally:
        setprofile(None)


# -- reasons ------------------------------------------------------------------------------------------------------


def test_a_reason_names_the_first_of_what_was_rested_on() -> None:
    story = (
        people().rolefile("A(u) <- L.On(u)*", "B(u) <- A(u)*", "C(u) <- B(u)* & A(u)*").grant("o", "ann", "On", "ann")
    )
    story.enter("a", "ann", "A").enter("b", "ann", "B", using=("a",)).enter("c", "ann", "C", using=("a", "b"))
    story.end("o", "ann")
    assert story.reasons == {
        "o": "its holder left",
        "a": "it rested on `o`: its holder left",
        "b": "it rested on `a`",
        "c": "it rested on `b`",
    }


def test_principals_that_go_take_along_what_they_hold_and_whom_they_elected() -> None:
    story = people().rolefile("Chair <- L.On('ann')", "In(u) <- L.On(u) <|* Chair")
    story.grant("a", "ann", "On", "ann").grant("b", "bob", "On", "bob").enter("c", "ann", "Chair").elect(
        "e", "ann", "In"
    )
    story.enter("i", "bob", "In", using=("b", "e")).do(RemovePrincipal("ann"))
    assert story.state.roles.memberships.keys() == {"b"}
    assert not story.state.roles.elections
    assert story.reasons["c"] == "its holder is no more"
    assert story.reasons["e"] == "its elector is no more"
    assert story.reasons["i"] == "it rested on `e`"


# -- what is looked at again --------------------------------------------------------------------------------------


def test_groups_inside_groups() -> None:
    story = people(DeclareGroup("inner"), AddMember("staff", "inner"), AddMember("inner", "ann"))
    story.rolefile("A(u) <- L.On(u) : (u in staff)*").grant("o", "ann", "On", "ann").enter("a", "ann", "A")
    assert "a" in story.do(AddMember("staff", "ann"), RemoveMember("inner", "ann"))
    assert "a" not in story.do(AddMember("inner", "ann"), RemoveMember("staff", "ann"), RemoveMember("staff", "inner"))


def test_a_name_that_comes_to_mean_a_relation() -> None:
    story = Story(*map(DeclarePrincipal, ("ann",)), functions={"ready": _ready})
    story.rolefile("A(u) <- L.On(u) : ready(u)*").grant("o", "ann", "On", "ann").enter("a", "ann", "A")
    kept = transition(story.state, Batch(ADMINISTRATOR, (DeclareRelation("ready"),)), book=story.book).after
    rebuilt = transition(story.state, Batch(ADMINISTRATOR, (DeclareRelation("ready"),))).after
    assert kept == rebuilt
    assert "a" not in kept.roles.memberships


def _ready(_known: object, _who: object) -> bool:
    return True


_ready.monitored = True  # type: ignore[attr-defined]


def test_a_function_that_is_registered_anew_is_asked_again() -> None:
    answers = {"ready": _ready}
    story = Story(DeclarePrincipal("ann"), functions=answers)
    story.rolefile("A(u) <- L.On(u) : ready(u)*").grant("o", "ann", "On", "ann").enter("a", "ann", "A")

    def no_longer(_known: object, _who: object) -> bool:
        return False

    no_longer.monitored = True  # type: ignore[attr-defined]
    answers["ready"] = no_longer
    story.do(RegisterPredicate("ready", "0" * 64, "def ready(event): ..."))
    assert "a" not in story


def test_facts_that_look_at_the_clock_and_at_rows() -> None:
    story = people(AddRow("Row", ("ann", 18))).rolefile(
        "A(u) <- L.On(u) : (timeofday(@time) < '18:00' and Row(u, 18))*"
    )
    story.grant("o", "ann", "On", "ann").enter("a", "ann", "A")
    story.do(AddRow("Row", ("bob", 18)))
    assert "a" in story
    assert "a" not in story.do(Tick(later(9 * 3600)))


def test_one_fact_that_turns_leaves_those_of_others_alone() -> None:
    story = people(AddRow("Row", ("ann", "x")), AddRow("Row", ("bob", "x")))
    story.rolefile("A(u) <- L.On(u) : (Row(u, _))* and (count(A(u)) < 9)*")
    story.grant("o", "ann", "On", "ann").grant("p", "bob", "On", "bob").enter("a", "ann", "A").enter("b", "bob", "A")
    story.do(AddRow("Row", ("ann", "y")), RemoveRow("Row", ("ann", "x")))
    assert "a" in story
    story.do(RemoveRow("Row", ("ann", "y")))
    assert [id for id in ("a", "b") if id in story] == ["b"]


def test_one_and_true_are_two_rows() -> None:
    story = people(AddRow("Row", ("ann", 1))).rolefile(
        "A(u) <- L.On(u) : Row(u, 1)*", "B(u) <- L.On(u) : Row(u, true)*"
    )
    story.grant("o", "ann", "On", "ann").enter("a", "ann", "A")
    with pytest.raises(RoleDenied):
        story.enter("b", "ann", "B")
    assert "a" not in story.do(AddRow("Row", ("ann", 2)), RemoveRow("Row", ("ann", 1)))


def test_what_never_comes_to_rest_is_unknown() -> None:
    """Held by one it is unknown, so held by none; held by none it is true."""
    story = people(AddRow("Row", (0, 1))).rolefile("A(u) <- L.On(u) : (Row(count(A(_))) = 1)*")
    story.grant("o", "ann", "On", "ann").enter("a", "ann", "A")
    assert story.state_of("a") is None
    assert story.do(AddRow("Row", (1, 1))).state_of("a") is True


def test_unknown_heals_and_false_does_not() -> None:
    story = people(AddRow("Row", ("ann", 1))).rolefile("A(u) <- L.On(u) : (Row(u) = 1)*", "B(u) <- A(u)*")
    story.grant("o", "ann", "On", "ann").enter("a", "ann", "A").enter("b", "ann", "B", using=("a",))
    story.do(RemoveRow("Row", ("ann", 1)))
    assert (story.state_of("a"), story.state_of("b")) == (None, None)
    assert not list(story.state.roles.held_by("ann"))[1:]
    assert "b" in story.do(AddRow("Row", ("ann", 1)))
    story.do(RemoveRow("Row", ("ann", 1)), AddRow("Row", ("ann", 2)))
    assert (story.state_of("a"), story.state_of("b")) == (False, False)
    assert (story.state_of("a"), story.state_of("b")) == (False, False)


def test_what_falls_by_what_has_just_begun_falls_in_the_same_version() -> None:
    story = people().rolefile("A(u) <- L.On(u) : (not B(_))*", "B(u) <- L.On(u)")
    story.grant("o", "ann", "On", "ann").grant("p", "bob", "On", "bob").enter("a", "ann", "A")
    version = story.state.version
    story.enter("b", "bob", "B")
    assert story.state.version == version + 1
    assert [id for id in ("a", "b") if id in story] == ["b"]


# -- cost ---------------------------------------------------------------------------------------------------------


def planted(size: int) -> State:
    """One membership on which so many others rest, as a ledger would hold them."""
    first = Batch(ADMINISTRATOR, (DeclarePrincipal("root"), *(DeclarePrincipal(f"p{n}") for n in range(10))))
    root = reference(0, 2)
    records = [Record(root, direct=True)]
    records += [Record(reference(n + 1, 2), Op.AND, (Link(root),), direct=True, latched=True) for n in range(size)]
    held = [Membership("root", "S", "Root", (), "root", root)]
    held += [Membership(f"m{n}", "S", "Leaf", (n,), f"p{n % 10}", records[n + 1].ref) for n in range(size)]
    rules = SetRolefile("S", parse_rolefile("Leaf(n) <- Root*\nLast(n) <- Root* : (count(Leaf(_)) > 0)*"))
    state = transition(State(), Batch(ADMINISTRATOR, (*first.changes, rules))).after
    return transition(
        replace(state, version=1), Batch(ADMINISTRATOR, (Settle(RoleFacts(tuple(held), (), tuple(records))),))
    ).after


def test_a_hundred_thousand_fall_with_one_in_one_version() -> None:
    state = planted(100_000)
    made = transition(state, Batch(ADMINISTRATOR, (EndCredential("root"),)), book=Book(state))
    assert not made.after.roles.memberships
    assert not made.after.roles.records
    assert made.after.version == state.version + 1
    (facts,) = [change.facts for change in made.batch.changes if isinstance(change, Settle)]
    assert len(facts.ended) == 100_001
    assert facts.ended[-1].reason == "it rested on `root`: it was revoked"


def ended(size: int) -> int:
    state = planted(size)
    book = Book(state)
    with counting() as calls:
        transition(state, Batch(ADMINISTRATOR, (EndCredential("root"),)), book=book)
    return calls[0]


def entered(size: int) -> int:
    names = [f"p{n}" for n in range(size)]
    story = Story(*map(DeclarePrincipal, names), DeclareGroup("staff"), DeclareRelation("Row"))
    story.state = replace(
        story.state, groups={"staff": frozenset(names)}, relations={"Row": frozenset((name, "x") for name in names)}
    )
    story.rolefile("A(u) <- L.On(u)* : (Row(u, 'x'))* and (u in staff)* and (count(A(u)) < 2)*")
    story.do(*(GrantRole(f"o{name}", "L", "On", (name,), name) for name in names))
    requests = [EnterRole(f"a{name}", "S", "A", None, name, None, NOW) for name in names]
    with counting() as calls:
        story.do(*requests)
        story.do(RemoveRow("Row", ("p3", "x")))
        story.do(RemoveMember("staff", "p4"))
    assert sum(id.startswith("a") for id in story.state.roles.memberships) == size - 2
    return calls[0]


def granted(size: int) -> int:
    story = people()
    with counting() as calls:
        story.do(*(GrantRole(f"o{n}", "L", "On", (n,), "ann") for n in range(size)))
    return calls[0]


@pytest.mark.parametrize(("work", "size"), [(ended, 500), (entered, 40), (granted, 300)])
def test_four_times_as_much_is_about_four_times_the_work(work: Any, size: int) -> None:
    work(5)  # what is made once and kept is not counted
    assert work(4 * size) < 4.5 * work(size)


def test_what_a_change_does_not_touch_costs_nothing() -> None:
    """One more row, whoever else has facts about the relation."""

    def added(size: int) -> int:
        names = [f"p{n}" for n in range(size)]
        story = Story(*map(DeclarePrincipal, names), DeclareRelation("Row"), *(AddRow("Row", (n, "x")) for n in names))
        story.rolefile("A(u) <- L.On(u) : (Row(u, 'x'))*")
        story.do(*(GrantRole(f"o{name}", "L", "On", (name,), name) for name in names))
        story.do(*(EnterRole(f"a{name}", "S", "A", None, name, None, NOW) for name in names))
        with counting() as calls:
            story.do(AddRow("Row", ("p0", "y")))
        return calls[0]

    assert added(80) < 2 * added(20)


def test_so_many_roles_and_no_more() -> None:
    story = people().do(*(GrantRole(f"o{n}", "L", "On", (n,), "ann") for n in range(MAX_HELD)))
    with pytest.raises(RoleDenied, match="MAX_HELD"):
        story.grant("more", "ann", "On", "more")
    assert "other" in story.grant("other", "bob", "On", "more")
    assert "more" in story.end("o7").grant("more", "ann", "On", "more")
