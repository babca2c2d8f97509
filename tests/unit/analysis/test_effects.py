"""What is said to be gained, lost or idle is so on every event; what is not said has not changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.analysis.advice import Advice, Concern, advise
from headgate.analysis.effects import Affected, Gain, Turn, effects
from headgate.analysis.profiles import Profiles
from headgate.decide.apply import apply
from headgate.decide.publish import admit
from headgate.decide.views import entries, governs, holds, may_connect, view
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
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft, Event
from headgate.model.expressions import subjects
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.solver import check_policy_rule
from strategies.memory import MemoryLedger, exact, play
from strategies.running import examples
from strategies.worlds import Publish, worlds

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


# -- on every event -----------------------------------------------------------------------------------------------


def sights(state: State, who: str, event: Event, ledger: MemoryLedger) -> tuple[bool, frozenset[str]]:
    """Is there a view, and what does it show?"""
    if who not in state.principals or event.type not in state.types:
        return False, frozenset()
    found = view(state, who, event, ledger.predicates, event.origin)
    return found is not None, frozenset() if found is None else found.attributes & event.values.keys()


def answer(state: State, draft: Draft, ledger: MemoryLedger) -> object:
    if draft.publisher not in state.principals:
        return None
    state = replace(state, private=frozenset())  # what a requirement may name is no right; the changes tell of it
    try:
        event = admit(
            state,
            draft,
            now=NOON,
            predicates=ledger.predicates,
            rate=ord(draft.id[-1]) % 4 or None,
            policy_rule=check_policy_rule,
        )
    except HeadgateError:
        return None
    return exact(event.values)


@examples(70)
@given(worlds(steps=6) | worlds(steps=6, roles=True), st.data())
def test_what_is_not_said_has_not_changed_and_what_is_said_is_so(story, data) -> None:
    played = play(story)
    ledger = played.ledger
    now, then = ledger.states[data.draw(st.integers(0, ledger.version))], ledger.now
    said: dict[tuple[str, Action, str | None], list[Gain]] = {}
    for affected in effects(now, then, render_condition):
        for gain in affected.gains:
            for who in affected.who:
                said.setdefault((who, gain.action, gain.type), []).append(gain)
    for who in dict.fromkeys([*now.principals, *then.principals]):
        for event in played.log.events:
            before, after = sights(now, who, event, ledger), sights(then, who, event, ledger)
            gains = said.get((who, Action.SUBSCRIBE, event.type), [])
            if not gains:
                assert before == after
            lost = {a for g in gains if g.turn is Turn.LOSES for a in g.attributes}
            gained = {a for g in gains if g.turn is Turn.GAINS for a in g.attributes}
            other = {a for g in gains if g.turn is Turn.OTHERWISE for a in g.attributes}
            assert not after[1] & lost
            assert not before[1] & gained
            assert before[1] ^ after[1] <= lost | gained | other
        for name in dict.fromkeys([*now.types, *then.types]):
            for action in (Action.GOVERN, Action.AUDIT):
                turns = [g.turn for g in said.get((who, action, name), [])]
                had, has = (_held(state, who, action, name) for state in (now, then))
                assert turns == ([] if had == has else [Turn.GAINS if has else Turn.LOSES])
        turns = [g.turn for g in said.get((who, Action.CONNECT, None), [])]
        had, has = may_connect(now, who), may_connect(then, who)
        assert turns == ([] if had == has else [Turn.GAINS if has else Turn.LOSES])
    for draft in (d for step in story.steps if isinstance(step, Publish) for d in step.drafts):
        if (
            draft.type in now.types
            and draft.type in then.types
            and now.types.attributes(draft.type) == then.types.attributes(draft.type)
        ):
            gains = said.get((draft.publisher, Action.PUBLISH, draft.type), [])
            before, after = answer(now, draft, ledger), answer(then, draft, ledger)
            if not gains:
                assert before == after
            for gain in gains:
                assert gain.turn is not Turn.LOSES or after is None
                assert gain.turn is not Turn.GAINS or before is None


def _held(state: State, who: str, action: Action, name: str) -> bool:
    if who not in state.principals or name not in state.types:
        return False
    return governs(state, who, name) if action is Action.GOVERN else holds(state, who, action, name)


@examples(70)
@given(worlds(steps=4) | worlds(steps=4, roles=True))
def test_a_rule_that_is_said_to_be_idle_could_as_well_not_be_there(story) -> None:
    played = play(story)
    state, ledger = played.ledger.now, played.ledger
    idle = [one for one in advise(state) if one.concern in (Concern.IDLE_FORBID, Concern.IDLE_GRANT)]
    drafts = [d for step in story.steps if isinstance(step, Publish) for d in step.drafts]
    for rule in idle:
        without = replace(state, rules=tuple(r for r in state.rules if r.id not in rule.names))
        for who in state.principals:
            for event in played.log.events:
                assert sights(state, who, event, ledger) == sights(without, who, event, ledger)
        for draft in drafts:
            assert answer(state, draft, ledger) == answer(without, draft, ledger)


@examples(50)
@given(worlds(steps=4) | worlds(steps=4, roles=True))
def test_principals_of_one_profile_have_the_same_entries(story) -> None:
    state = play(story).ledger.now
    profiles = Profiles(state)
    assert sorted(name for names in profiles.members.values() for name in names) == sorted(state.principals)
    for profile, names in profiles.members.items():
        for action in (Action.SUBSCRIBE, Action.PUBLISH, Action.GOVERN):
            mine = [_as_it_counts(rule) for rule in profiles.rules(profile, action)]
            for name in names:
                assert set(mine) == {_as_it_counts(rule) for rule in entries(state, name, action)}
                assert [id for id, _ in mine] == sorted((id for id, _ in mine), key=_places(state))


def _as_it_counts(rule: Rule) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    """A rule, with the arguments of a role that its condition looks at."""
    asked = subjects(rule.where)
    return rule.id, tuple(sorted((n, type(v).__name__, repr(v)) for n, v in rule.given.items() if n in asked))


def _places(state: State):
    places = {rule.id: place for place, rule in enumerate(state.rules)}
    return places.__getitem__


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
