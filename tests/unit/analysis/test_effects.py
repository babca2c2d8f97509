"""What is said to be gained, lost or idle is so on every event; what is not said has not changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headgate.analysis.advice import Advice, Concern, advise
from headgate.analysis.effects import Affected, Gain, Turn, effects
from headgate.analysis.profiles import Profiles
from headgate.decide.apply import apply
from headgate.lang import parse_condition, render_condition
from headgate.model.changes import (
    AddMember,
    AddRule,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    RegisterPredicate,
    RemoveMember,
    RemovePrincipal,
    RemoveRule,
    RetireType,
    SetAttribute,
    SetConnect,
    SetKey,
)
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SALE = EventType("a.Sale", "shop", {"item": Kind.STRING, "price": Kind.INT, "card": Kind.STRING})
BASE: tuple[Change, ...] = (
    *(DeclarePrincipal(name) for name in ("shop", "till", "ann", "bob")),
    DeclareGroup("staff"),
    AddMember("staff", "ann"),
    AddMember("staff", "bob"),
    DeclareType(SALE),
)


def may(id: str, who: str, action: Action = Action.SUBSCRIBE, where: str = "true", **more: object) -> AddRule:
    return AddRule(Rule(id, who, frozenset({action}), "a.Sale", parse_condition(where), **more))


def no(id: str, who: str, action: Action = Action.SUBSCRIBE, where: str = "true", **more: object) -> AddRule:
    return may(id, who, action, where, effect=Effect.FORBID, **more)


def turned(before: tuple[Change, ...], *after: Change) -> list[Affected]:
    now = apply(State(), Batch(ADMINISTRATOR, (*BASE, *before)))
    return effects(now, apply(now, Batch(ADMINISTRATOR, after)), render_condition)


def one(found: list[Affected]) -> Gain:
    ((gain,),) = (affected.gains for affected in found)
    return gain


# -- cases --------------------------------------------------------------------------------------------------------


def test_members_of_a_group_gain_together() -> None:
    (found,) = turned((), may("r", "staff", attributes=("item",)))
    assert found == Affected(("ann", "bob"), (Gain(Turn.GAINS, Action.SUBSCRIBE, "a.Sale", ("item",), None, "true"),))


def test_what_is_lost_has_its_old_condition() -> None:
    assert one(turned((may("r", "ann", where="price > 3"),), RemoveRule("r"))) == Gain(
        Turn.LOSES, Action.SUBSCRIBE, "a.Sale", ("item", "price", "card"), "price > 3", None
    )


def test_another_condition_is_told_with_both() -> None:
    gain = one(turned((may("r", "ann", where="price > 3"),), may("r", "ann", where="price > 4")))
    assert (gain.turn, gain.before, gain.after) == (Turn.OTHERWISE, "price > 3", "price > 4")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("price > 3", "price >= 4"),
        ("price > 3 or item = 'a'", "item = 'a' or not price <= 3"),
        ("price > 3 and price < 3 or item = 'a'", "item = 'a'"),
    ],
)
def test_a_condition_that_is_written_otherwise_is_no_change(old: str, new: str) -> None:
    assert turned((may("r", "ann", where=old),), may("r", "ann", where=new)) == []


def test_a_rule_that_never_holds_gives_nothing() -> None:
    assert turned((), may("r", "ann", where="price > 3 and price < 2")) == []
    assert turned((SetAttribute("ann", "nation", "FR"),), may("r", "ann", where="$nation = 'UK'")) == []


def test_a_subject_attribute_gives_and_takes() -> None:
    rule = may("r", "staff", where="$nation = 'UK'")
    (found,) = turned((rule,), SetAttribute("ann", "nation", "UK"))
    assert (found.who, found.gains[0].turn) == (("ann",), Turn.GAINS)
    gain = one(
        turned(
            (may("r", "ann", where="item = $nation"), SetAttribute("ann", "nation", "a")),
            SetAttribute("ann", "nation", "b"),
        )
    )
    assert (gain.turn, gain.before, gain.after) == (Turn.OTHERWISE, "item = 'a'", "item = 'b'")


def test_the_members_of_a_group_in_a_condition_count() -> None:
    rule = may("r", "till", where="item in group staff")
    gain = one(turned((rule,), RemoveMember("staff", "bob")))
    assert gain.turn is Turn.OTHERWISE


def test_an_event_without_attributes_is_something_to_see() -> None:
    gain = one(turned((), may("r", "ann", attributes=())))
    assert (gain.turn, gain.attributes) == (Turn.GAINS, ())


def test_a_forbid_of_one_attribute_takes_that_one() -> None:
    gain = one(turned((may("r", "ann"),), AddRule(no("f", "ann", attributes=("card",)).rule, first=True)))
    assert (gain.turn, gain.attributes) == (Turn.LOSES, ("card",))


def test_publishing_is_gained_lost_and_changed() -> None:
    gain = one(turned((), may("r", "till", Action.PUBLISH, attributes=("item",), forced={"item": "x"})))
    assert (gain.turn, gain.attributes, gain.after) == (Turn.GAINS, ("item",), "`item = 'x'`")
    assert one(turned((may("r", "till", Action.PUBLISH),), RemoveRule("r"))).turn is Turn.LOSES
    gain = one(turned((may("r", "till", Action.PUBLISH),), may("r", "till", Action.PUBLISH, where="price > 1")))
    assert (gain.turn, gain.before, gain.after) == (Turn.OTHERWISE, "everything", "everything where price > 1")
    first = AddRule(no("f", "till", Action.PUBLISH).rule, first=True)
    assert one(turned((may("r", "till", Action.PUBLISH),), first)).turn is Turn.LOSES


def test_other_rights_are_told_too() -> None:
    assert one(turned((), may("r", "ann", Action.AUDIT))) == Gain(Turn.GAINS, Action.AUDIT, "a.Sale")
    assert one(turned((), may("r", "ann", Action.GOVERN))) == Gain(Turn.GAINS, Action.GOVERN, "a.Sale")
    assert one(turned((), may("r", "ann", Action.INSTALL))) == Gain(Turn.GAINS, Action.INSTALL, "a.Sale")
    assert turned((), SetConnect(True)) == [
        Affected(("shop", "till", "ann", "bob"), (Gain(Turn.GAINS, Action.CONNECT),))
    ]


def test_who_comes_and_goes_gains_and_loses_everything() -> None:
    rules = may("r", "staff"), SetConnect(True)
    (found,) = turned(rules, RemovePrincipal("bob"))
    assert found.who == ("bob",)
    assert {(g.turn, g.action) for g in found.gains} == {(Turn.LOSES, Action.CONNECT), (Turn.LOSES, Action.SUBSCRIBE)}
    (found,) = turned(rules, DeclarePrincipal("new"), AddMember("staff", "new"))
    assert {(g.turn, g.action) for g in found.gains} == {(Turn.GAINS, Action.CONNECT), (Turn.GAINS, Action.SUBSCRIBE)}


def test_a_type_that_ends_or_grows_changes_what_is_seen() -> None:
    found = turned((may("r", "ann"),), RetireType("a.Sale"))
    assert {(a.who, g.turn, g.action) for a in found for g in a.gains} == {
        (("shop",), Turn.LOSES, Action.GOVERN),
        (("ann",), Turn.LOSES, Action.SUBSCRIBE),
    }
    grown = DeclareType(replace(SALE, attributes={**SALE.attributes, "tip": Kind.INT}))
    gain = one(turned((may("r", "ann"),), grown))
    assert (gain.turn, gain.attributes) == (Turn.GAINS, ("tip",))


def test_many_principals_are_one_profile() -> None:
    many = tuple(f"c{n}" for n in range(500))
    people = (*(DeclarePrincipal(name, {"seat": name}) for name in many), *(AddMember("staff", name) for name in many))
    state = apply(State(), Batch(ADMINISTRATOR, (*BASE, *people, may("r", "staff"), may("s", "c3"))))
    sizes = sorted(len(names) for names in Profiles(state).members.values())
    assert sizes == [1, 1, 1, 501]  # the owner, the till, `c3`, and all others: no condition asks for a seat


# -- advice -------------------------------------------------------------------------------------------------------


def advice(*changes: Change) -> list[Advice]:
    keyed = [SetKey(p, f"did:key:z6Mk{'a' * 43}{n}") for n, p in enumerate(("shop", "till", "ann", "bob"), 1)]
    return advise(apply(State(), Batch(ADMINISTRATOR, (*BASE, *keyed, SetConnect(True), *changes))))


@pytest.mark.parametrize(
    "changes",
    [
        (no("f", "ann"),),
        (may("r", "ann"), no("f", "ann")),
        (no("f", "ann", where="price > 5"), may("r", "ann", where="price < 3")),
        (no("f", "ann", attributes=("card",)), may("r", "ann", attributes=("item",))),
        (no("g", "ann"), no("f", "ann", where="price > 5"), may("r", "bob")),
        (may("r", "till", Action.PUBLISH), no("f", "till", Action.PUBLISH)),
        (no("f", "till", Action.PUBLISH, where="price > 5"), may("r", "till", Action.PUBLISH, where="price < 3")),
    ],
)
def test_a_forbid_that_takes_nothing_away_is_named(changes: tuple[Change, ...]) -> None:
    assert Advice(Concern.IDLE_FORBID, ("f",)) in advice(*changes)


@pytest.mark.parametrize(
    "changes",
    [
        (no("f", "ann"), may("r", "ann")),
        (no("f", "ann"), may("r", "staff", where="price > 3")),
        (no("f", "staff"), may("r", "bob")),
        # Where the price is null the forbid is unknown, and so it forbids.
        (no("f", "ann", where="price > 5"), may("r", "ann", where="item = 'a'")),
        (no("f", "ann", where="price > 5"), may("r", "ann", where="price < 3 or price is null")),
        (no("f", "ann", where="predicate p()"), may("r", "ann")),
        (no("f", "ann", attributes=("card",)), may("r", "ann")),
        (no("f", "till", Action.PUBLISH, where="price > 5"), may("r", "till", Action.PUBLISH, attributes=("item",))),
        (no("f", "ann", Action.CONNECT),),
    ],
)
def test_a_forbid_that_takes_something_away_is_not(changes: tuple[Change, ...]) -> None:
    found = advice(RegisterPredicate("p", "m:p", "0"), *changes)
    assert [one for one in found if one.concern is Concern.IDLE_FORBID] == []


def test_a_grant_that_gives_nothing_is_named() -> None:
    idle = Advice(Concern.IDLE_GRANT, ("r",))
    assert idle in advice(no("f", "ann"), may("r", "ann"))
    assert idle in advice(may("all", "staff"), may("r", "ann", where="price > 3"))
    assert idle in advice(no("f", "ann", where="price is null or price > 3"), may("r", "ann", where="price > 5"))
    assert idle in advice(may("r", "ann", where="price > 5 and price < 3"))
    assert idle not in advice(no("f", "ann", where="price > 3"), may("r", "ann"))
    assert idle not in advice(may("all", "ann", attributes=("item",)), may("r", "ann"))
    assert idle not in advice(no("f", "ann"), may("r", "staff"))  # `bob` has it


def test_rules_for_nobody_and_principals_that_cannot_connect_are_named() -> None:
    assert advice(DeclareGroup("none"), DeclareGroup("outer"), AddMember("outer", "none"), may("r", "outer")) == [
        Advice(Concern.EMPTY_GROUP, ("r",), "outer")
    ]
    assert advice(SetKey("ann", None)) == [Advice(Concern.NO_KEY, ("ann",))]
    assert advice(no("c", "ann", Action.CONNECT)) == [Advice(Concern.NOT_LET_IN, ("ann",))]


def test_entries_of_chains_that_are_too_large_to_look_at_are_told_as_they_are_written() -> None:
    texts = [f"item contains '{m}.{n}'" for m in range(3) for n in range(20)]
    large = " and ".join(f"({' or '.join(texts[20 * m : 20 * m + 20])})" for m in range(3))
    bare = apply(State(), Batch(ADMINISTRATOR, BASE))

    def chained(where: str, action: Action = Action.SUBSCRIBE) -> State:
        entry = Rule("c", "ann", frozenset({action}), "a.Sale", parse_condition(where), None, source=Source.CHAIN)
        return replace(bare, rules=(replace(entry, author="shop"),))

    now, wider = chained(large), chained(f"{large} or price > 3")
    assert effects(now, now, render_condition) == []
    gain = one(effects(bare, now, render_condition))
    assert (gain.turn, gain.before, gain.after) == (Turn.GAINS, None, render_condition(parse_condition(large)))
    assert one(effects(now, wider, render_condition)).turn is Turn.OTHERWISE
    sends = one(effects(bare, chained(large, Action.PUBLISH), render_condition))
    assert (sends.turn, sends.action) == (Turn.GAINS, Action.PUBLISH)
