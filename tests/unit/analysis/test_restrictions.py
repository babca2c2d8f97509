"""Restriction queries: what a subscription comes to, proofs that it is nothing, and who is told (Hermes 8, D14)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.analysis.restrictions import (
    PublishRestriction,
    Reason,
    Restriction,
    TypeReach,
    restrict,
    restrict_publish,
)
from headgate.decide.apply import apply
from headgate.decide.composite_check import resolve
from headgate.decide.deliver import Books, decide
from headgate.decide.truth import World, truth
from headgate.decide.views import view
from headgate.lang import parse_composite, parse_condition, render_condition
from headgate.model.changes import (
    AddRule,
    Batch,
    Change,
    DeclarePrincipal,
    DeclareType,
    RegisterPredicate,
    Subscribe,
)
from headgate.model.errors import GovernDenied, NotFound, UnknownName, UnknownType
from headgate.model.events import Event
from headgate.model.rights import Action, Detection, Effect, Rule, Source, Subscription
from headgate.model.state import State
from headgate.model.types import SIGNAL, EventType
from headgate.model.values import Kind
from strategies.running import examples

ADMIN = State().administrator
SEES, SENDS = frozenset({Action.SUBSCRIBE}), frozenset({Action.PUBLISH})
NEWS, GOAL, OWN = "sports.News", "sports.Goal", "club.OwnGoal"


def rule(id: str, where: str = "true", attributes: str | None = None, **rest: object) -> Rule:
    """A subscribe entry of fan's on News, unless the rest says otherwise."""
    listed = None if attributes is None else tuple(attributes.split())
    said: dict[str, object] = {"who": "fan", "actions": SEES, "type": NEWS, **rest}
    return Rule(id, where=parse_condition(where), attributes=listed, **said)  # type: ignore[arg-type]


def forbid(id: str, where: str = "true", attributes: str | None = None, **rest: object) -> Rule:
    return rule(id, where, attributes, effect=Effect.FORBID, **rest)


def books(*rules: Rule, subscription: Subscription | None = None) -> Books:
    changes: list[Change] = [
        *(DeclarePrincipal(n, {"level": 3} if n == "fan" else {}) for n in ("agency", "club", "fan", "eve", "aud")),
        DeclareType(EventType(NEWS, "agency", {"headline": Kind.STRING, "minute": Kind.INT})),
        DeclareType(EventType(GOAL, "club", {"scorer": Kind.STRING}, parent=NEWS)),
        DeclareType(EventType(OWN, "club", {"scorer": Kind.STRING}, parent=NEWS)),
        RegisterPredicate("nice", "m:f", "0"),
        AddRule(rule("audits", who="aud", actions=frozenset({Action.AUDIT}))),
        *(AddRule(r) for r in rules),
    ]
    if subscription is not None:
        changes.append(Subscribe(subscription))
    states = [State(), apply(State(), Batch(ADMIN, tuple(changes)))]
    return Books(states[1], states.__getitem__, lambda _: {})


def ask(*rules: Rule, where: str = "true", type: str = NEWS, asker: str = ADMIN) -> Restriction:
    wanted = Subscription("s", "fan", type, parse_condition(where))
    known = books(*rules, subscription=wanted)
    return restrict(asker, "s", known.now.subscriptions["s"], 1, known)


def reach(answer: Restriction, name: str = NEWS) -> TypeReach:
    return next(one for one in answer.types if one.name == name)


@pytest.mark.parametrize(
    ("rules", "where", "reason"),
    [
        ([], "true", Reason.NO_GRANT),
        ([rule("g")], "true", None),
        ([forbid("f"), rule("g")], "true", Reason.FORBIDDEN),
        ([rule("g"), forbid("f")], "true", None),
        ([forbid("f", attributes="headline"), rule("g")], "true", None),
        ([forbid("f", "minute > 45"), rule("g", "minute > 60")], "true", Reason.FORBIDDEN),
        ([forbid("f", "minute > 45"), rule("g", "minute > 30")], "true", None),
        ([forbid("f", "$rank = 1"), rule("g")], "true", Reason.FORBIDDEN),
        ([rule("g", "minute > 5 and minute < 5")], "true", Reason.NEVER_TRUE),
        ([rule("g", "$level > 5")], "true", Reason.NEVER_TRUE),
        ([rule("g", "$level = 3")], "true", None),
        ([rule("g", "$absent = 3")], "true", Reason.NEVER_TRUE),
        ([rule("g")], "minute = 1 and minute = 2", Reason.FILTER),
        ([rule("g", attributes="minute")], "headline = 'x'", Reason.HIDDEN),
        ([rule("g", attributes="minute")], "headline is null", None),
        ([rule("g", attributes="minute")], "not (headline = 'x')", Reason.HIDDEN),
        ([rule("g", attributes="minute")], "headline = 'x' or minute = 1", None),
        ([rule("g", "minute < 45")], "minute > 60", Reason.CONTRADICTS),
        ([rule("g", "minute < 45"), rule("h", "minute > 80")], "minute > 60", None),
        ([rule("g", "minute < 45"), rule("h", "minute > 80", "headline")], "minute > 60", Reason.CONTRADICTS),
        ([rule("g", "minute is null", "headline")], "minute is null", None),
        ([rule("g", "minute = 9", "headline")], "minute is null", None),
        ([rule("g", "headline = 'a'", "minute"), rule("h", "headline = 'b'", "headline")],
         "minute = 1 and headline is not null", Reason.CONTRADICTS),
        ([rule("g", "predicate nice()")], "true", None),
        ([rule("g", "not predicate nice()")], "predicate nice()", None),
        ([forbid("f", "predicate nice()"), rule("g", "predicate nice()")], "true", Reason.FORBIDDEN),
    ],
)  # fmt: skip
def test_nothing_is_said_to_be_impossible_without_a_proof(rules: list[Rule], where: str, reason: Reason | None) -> None:
    answer = ask(*rules, where=where)
    assert reach(answer).reason is reason
    assert answer.satisfiable is (reason is None)


def test_the_effective_condition_keeps_the_order_of_the_entries() -> None:
    answer = ask(
        rule("a", "minute = 1"),
        forbid("no-attr", "minute = 7", "headline"),
        forbid("f", "headline = 'x'"),
        rule("b", "minute = 2"),
        rule("c", "minute = 3"),
    )
    condition = reach(answer).condition
    assert condition is not None
    assert render_condition(condition) == "minute = 1 or not headline = 'x' and (minute = 2 or minute = 3)"
    assert [e.rule for e in reach(answer).entries] == ["a", "no-attr", "f", "b", "c"]


def test_each_subtype_has_its_attributes_at_most() -> None:
    answer = ask(
        rule("g", attributes="headline"),
        rule("h", type=GOAL, attributes="scorer"),
        forbid("f", type=GOAL, attributes="headline"),
        where="headline is not null",
    )
    assert [(one.name, one.attributes, one.hidden) for one in answer.types] == [
        (NEWS, ("headline",), ("minute",)),
        (GOAL, ("headline", "scorer"), ("minute",)),
        (OWN, ("headline",), ("minute", "scorer")),
    ]
    assert answer.never == ()


def test_attributes_that_templates_ask_for_and_never_see_are_named() -> None:
    known = books(rule("g", attributes="minute"), rule("o", type=OWN, attributes="scorer"))
    text = "$News(h, m); Goal(*, *, s) - OwnGoal(*, 3, s)"
    detection = Detection(text, resolve(parse_composite(text), known.now).composite)
    answer = restrict("fan", "d", Subscription("d", "fan", SIGNAL, detection=detection), 1, known)
    assert answer.detects == text
    assert answer.never == (f"headline of {NEWS}", f"scorer of {GOAL}")


def test_attributes_that_the_filter_can_never_see_are_named() -> None:
    answer = ask(rule("g", attributes="minute"), where="headline = 'x' or minute > 3")
    assert answer.never == ("headline",)
    assert answer.satisfiable
    assert ask(where="headline = 'x' or minute > 3").never == ("headline", "minute")


def test_a_pattern_means_null_where_the_named_type_lacks_an_attribute() -> None:
    pattern = rule("g", "scorer is null", type="sports.*")
    scorer = rule("h", type=OWN, attributes="scorer")
    assert reach(ask(pattern, where="scorer = 'Kane'", type=GOAL), GOAL).reason is Reason.CONTRADICTS
    # It takes in OwnGoal as News, which has no scorer, so there it always holds.
    assert reach(ask(pattern, where="scorer = 'Kane'", type=OWN), OWN).reason is Reason.HIDDEN
    assert reach(ask(pattern, scorer, where="scorer = 'Kane'", type=OWN), OWN).reason is None


# -- who is told what -------------------------------------------------------------------------------------------


def test_a_principal_learns_no_undisclosed_condition_nor_what_follows_from_it() -> None:
    rules = (forbid("f", "minute > 45"), rule("g", "minute > 60"), rule("h", "headline = 'x'", disclose=True))
    answer = ask(*rules, where="minute < 3 and headline = 'y'", asker="fan")
    assert not answer.full
    assert answer.satisfiable
    assert reach(answer).condition is None
    told = [(e.rule, None if e.condition is None else render_condition(e.condition)) for e in reach(answer).entries]
    assert told == [("f", None), ("g", None), ("h", "headline = 'x'")]
    assert reach(ask(*rules, where="minute < 3 and headline = 'y'")).reason is Reason.CONTRADICTS


def test_a_principal_learns_types_and_attributes() -> None:
    answer = ask(rule("g", "minute > 5", "minute"), where="headline = 'x'", asker="fan")
    assert reach(answer).attributes == ("minute",)
    assert (answer.satisfiable, answer.never) == (False, ("headline",))


def test_an_auditor_of_one_type_is_told_nothing_of_its_subtypes() -> None:
    answer = ask(asker="aud")
    assert [(one.name, one.told) for one in answer.types] == [(NEWS, True), (GOAL, False), (OWN, False)]
    assert answer.satisfiable is None
    assert ask(rule("g", "minute = 1"), asker="agency").satisfiable


def test_others_are_refused_whether_or_not_the_subscription_exists() -> None:
    known = books(subscription=Subscription("s", "fan", NEWS))
    with pytest.raises(GovernDenied) as there:
        restrict("eve", "s", known.now.subscriptions["s"], 1, known)
    with pytest.raises(GovernDenied) as nowhere:
        restrict("eve", "s", None, 1, known)
    assert str(there.value) == str(nowhere.value)
    with pytest.raises(NotFound):
        restrict(ADMIN, "s", None, 1, known)
    with pytest.raises(UnknownName):
        restrict("nobody", "s", None, 1, known)


# -- publishing -------------------------------------------------------------------------------------------------


def publishing(*rules: Rule, asker: str = ADMIN) -> PublishRestriction:
    return restrict_publish(asker, "fan", NEWS, 1, books(*rules))


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ([], Reason.NO_GRANT),
        ([rule("g", actions=SENDS)], None),
        ([forbid("f", actions=SENDS), rule("g", actions=SENDS)], Reason.FORBIDDEN),
        ([rule("g", actions=SENDS), forbid("f", actions=SENDS)], None),
        ([forbid("f", "minute > 45", actions=SENDS), rule("g", actions=SENDS)], None),
        ([forbid("f", "$rank > 45", actions=SENDS), rule("g", actions=SENDS)], Reason.FORBIDDEN),
        ([rule("g", "minute = 1", "headline", actions=SENDS)], Reason.NEVER_TRUE),
        ([rule("g", "minute = 1", "minute", forced={"minute": 2}, actions=SENDS)], Reason.NEVER_TRUE),
        ([rule("g", "minute = 2", "minute", forced={"minute": 2}, actions=SENDS)], None),
        ([rule("g", type="sports.*", actions=SENDS)], None),
        ([rule("g", type=GOAL, actions=SENDS)], Reason.NO_GRANT),
    ],
)
def test_whether_anything_can_be_published(rules: list[Rule], reason: Reason | None) -> None:
    assert publishing(*rules).reason is reason


def test_what_a_grant_keeps_forces_and_nulls() -> None:
    known = rule("g", "minute < 90", "minute", forced={"minute": 45}, actions=SENDS)
    (entry,) = publishing(known).entries
    assert (entry.keeps, dict(entry.forces), entry.nulls) == ((), {"minute": 45}, ("headline",))
    (own,) = publishing(known, asker="fan").entries
    assert (own.told, own.condition, dict(own.forces)) == (False, None, {"minute": None})


def test_publish_restrictions_of_others_and_of_unknown_types_are_refused() -> None:
    with pytest.raises(GovernDenied):
        publishing(asker="eve")
    with pytest.raises(UnknownType, match=r"`sports\.Nothing`"):
        restrict_publish(ADMIN, "fan", "sports.Nothing", 1, books())
    with pytest.raises(UnknownType, match="version 0 did not know"):
        restrict_publish(ADMIN, "fan", NEWS, 0, books())
    with pytest.raises(UnknownName):
        restrict_publish(ADMIN, "nobody", NEWS, 1, books())


# -- against the decision itself --------------------------------------------------------------------------------


CONDITIONS = (
    "true",
    "minute = 1",
    "minute > 1",
    "minute <= 1",
    "minute is null",
    "headline = 'x'",
    "not (headline = 'x')",
    "headline is not null",
    "minute = 1 or headline = 'y'",
    "$level = 3 and minute != 1",
    "$absent = 1",
    "@publisher = headline",
)


@st.composite
def small_rules(draw: st.DrawFn) -> list[Rule]:
    found = []
    for n in range(draw(st.integers(1, 4))):
        attributes = draw(st.sampled_from((None, "minute", "headline")))
        made = forbid if draw(st.integers(0, 2)) == 0 else rule
        found.append(made(f"r{n}", draw(st.sampled_from(CONDITIONS)), attributes, disclose=draw(st.booleans())))
    return found


@given(small_rules(), st.sampled_from([c for c in CONDITIONS if "$" not in c]), st.sampled_from(CONDITIONS[1:9]))
@examples(150)
def test_a_proof_holds_for_every_event(rules: list[Rule], where: str, other: str) -> None:
    """Every event there could be of a small type, one by one."""
    wanted = Subscription("s", "fan", NEWS, parse_condition(f"({where}) and ({other})"), first=1)
    known = books(*rules, subscription=wanted)
    answers = [reach(restrict(asker, "s", wanted, 1, known)) for asker in (ADMIN, "fan")]
    for minute, headline in itertools.product((None, 0, 1, 2), (None, "x", "y", "agency")):
        values = {"headline": headline, "minute": minute}
        event = Event("e", "agency", NEWS, values, datetime(2026, 1, 1, tzinfo=UTC), version=1)
        seen = view(known.now, "fan", event, {})
        delivered = decide(event, wanted, known.states, {}) is not None
        for answer in answers:
            assert set(answer.attributes) >= (frozenset() if seen is None else seen.attributes)
            assert not (delivered and answer.reason is not None)
            assert seen is None or answer.reason not in (Reason.NO_GRANT, Reason.FORBIDDEN, Reason.NEVER_TRUE)
        if answers[0].condition is not None:
            world = World(known.now, known.now.principals["fan"])
            assert (truth(answers[0].condition, event, world) is True) == (seen is not None)


# -- entries of chains, whose conditions nobody checked against a type --------------------------------------------


def chained(*conditions: str, **rest: object) -> Books:
    """Books in which fan has entries that chains gave it, however large the conditions."""
    known = books(subscription=Subscription("s", "fan", NEWS))
    found = [rule(f"c{n}", where, source=Source.CHAIN, author="agency", **rest) for n, where in enumerate(conditions)]
    now = replace(known.now, rules=(*known.now.rules, *found))
    return Books(now, [State(), now].__getitem__, lambda _: {})


LARGE = " and ".join("(" + " or ".join(f"headline contains '{m}.{n}'" for n in range(20)) + ")" for m in range(3))


@pytest.mark.parametrize("where", [LARGE, f"minute = 'one' or {LARGE}"])
def test_an_entry_of_a_chain_that_is_too_large_to_look_at_is_kept_whole(where: str) -> None:
    known = chained(where)
    found = reach(restrict(ADMIN, "s", known.now.subscriptions["s"], 1, known))
    assert (found.reason, found.attributes, found.hidden) == (None, ("headline", "minute"), ())
    assert found.condition == parse_condition(where)
    known = chained(where, "minute = 1 and minute = 2", actions=SENDS)
    assert restrict_publish(ADMIN, "fan", NEWS, 1, known).reason is None
    known = chained("minute = 1 and minute = 2", actions=SENDS)
    assert restrict_publish(ADMIN, "fan", NEWS, 1, known).reason is Reason.NEVER_TRUE
