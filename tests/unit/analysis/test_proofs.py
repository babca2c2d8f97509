"""The check of a policy agrees with trying every event on every principal, whatever attributes it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headgate.analysis.proofs import Fault, RuleFinding, can_see, check_policy, with_attributes
from headgate.decide.publish import admit
from headgate.decide.views import view
from headgate.lang import parse_condition
from headgate.model.errors import PublishDenied, UnknownName
from headgate.model.events import Draft, Event
from headgate.model.expressions import TRUE, Attribute, Condition, Meta, Predicate, Subject
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import State
from headgate.model.types import Catalog, EventType
from headgate.model.values import Kind, Value
from strategies.rules import rules
from strategies.running import examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SALE, GIFT = "shop.Sale", "shop.Gift"
SUBSCRIBE, PUBLISH = frozenset({Action.SUBSCRIBE}), frozenset({Action.PUBLISH})


@cache
def types() -> Catalog:
    sale = EventType(SALE, "shop", {"paid": Kind.BOOL, "card": Kind.BOOL})
    return Catalog().declare(sale).declare(EventType(GIFT, "shop", {"secret": Kind.BOOL}, parent=SALE))


def policy(*given: Rule) -> State:
    return State(
        types=types(),
        rules=given,
        principals={"ann": {"vip": True}, "bob": {"vip": False}, "cid": {}},
        groups={"staff": frozenset({"ann", "bob"}), "nobody": frozenset()},
    )


def rule(id: str, who: str, where: str = "true", *, forbid: bool = False, type: str = SALE, **more: object) -> Rule:
    effect = Effect.FORBID if forbid else Effect.GRANT
    settings = {"actions": SUBSCRIBE, "author": "administrator", **more}
    return Rule(id, who, type=type, where=parse_condition(where), effect=effect, **settings)  # type: ignore[arg-type]


# -- against every event ------------------------------------------------------------------------------------------

TERMS = st.sampled_from([Attribute("paid"), Attribute("card"), Attribute("secret"), Subject("vip")])
CONDITIONS: st.SearchStrategy[Condition] = st.one_of(
    st.just(TRUE),
    rules(TERMS, st.booleans(), leaves=3),
    st.sampled_from(["ann", "bob"]).map(lambda name: parse_condition(f"@publisher = '{name}'")),
    st.just(parse_condition("@publisher in group staff")),
)


@st.composite
def entries(draw: st.DrawFn) -> Rule:
    actions = draw(st.sampled_from([SUBSCRIBE, SUBSCRIBE, PUBLISH]))
    effect = draw(st.sampled_from(Effect))
    listed = st.lists(st.sampled_from(["paid", "card", "secret"]), unique=True, min_size=1).map(tuple)
    attributes = None if actions is PUBLISH and effect is Effect.FORBID else draw(st.one_of(st.none(), listed))
    forced = {}
    if attributes and effect is Effect.GRANT and draw(st.booleans()):
        forced = {attributes[0]: draw(st.booleans())}
    return Rule(
        "r",
        draw(st.sampled_from(["ann", "staff", "cid", "nobody"])),
        actions,
        draw(st.sampled_from([SALE, GIFT, "shop.*", "other.*"])),
        draw(CONDITIONS),
        attributes,
        forced,
        effect,
        author="administrator",
    )


@st.composite
def policies(draw: st.DrawFn) -> State:
    listed = draw(st.lists(entries(), max_size=5))
    chains = draw(st.lists(entries().filter(lambda one: one.effect is Effect.GRANT), max_size=1))
    given = [replace(one, id=f"r{n}") for n, one in enumerate(listed)]
    return policy(*given, *(replace(one, id="c", author="shop", source=Source.CHAIN) for one in chains))


def events() -> Iterator[Event]:
    for name in types():
        attributes = types().attributes(name)
        for row in product((None, False, True), repeat=len(attributes)):
            for by in ("ann", "bob", "cid"):
                yield Event("", by, name, dict(zip(attributes, row, strict=True)), NOW)


VIPS: list[Value] = [None, False, True, "x"]
"""What the one attribute of subjects may be: absent, what conditions name, or of any other kind."""


def worlds(state: State) -> Iterator[State]:
    """The policy with each value of the attribute, and with the chains that stand and without them."""
    own = tuple(one for one in state.rules if one.source is Source.RULE)
    for rules_in_force in (own,) if own == state.rules else (own, state.rules):
        for vip in VIPS:
            has = {} if vip is None else {"vip": vip}
            yield replace(state, rules=rules_in_force, principals=dict.fromkeys(state.principals, has))


def decisions(state: State) -> Iterator[object]:
    for event in events():
        for who in state.principals:
            seen = view(state, who, event, {})
            yield None if seen is None else seen.attributes
        draft = Draft("", event.publisher, event.type, {n: v for n, v in event.values.items() if v is not None})
        try:
            yield admit(state, draft, now=NOW, predicates={}).values
        except PublishDenied:
            yield None


def all_decisions(state: State) -> list[list[object]]:
    return [list(decisions(one)) for one in worlds(state)]


def without(state: State, ids: set[str]) -> State:
    return replace(state, rules=tuple(one for one in state.rules if one.id not in ids))


@given(policies())
@examples(20, soak=40)
def test_what_is_reported_can_go_and_nothing_else_can(state: State) -> None:
    checked = check_policy(state, limit=20)
    assert checked.undecided == ()
    before = all_decisions(state)
    rest = without(state, {one.rule for one in checked.findings})
    assert all_decisions(rest) == before
    for one in rest.rules:
        if one.source is Source.RULE:
            less = zip(worlds(without(rest, {one.id})), before, strict=True)
            assert any(list(decisions(world)) != was for world, was in less), one


@given(
    policies(), st.sampled_from([(SALE, "card"), (GIFT, "card"), (GIFT, "secret")]), st.sampled_from([(), ("staff",)])
)
@examples(60)
def test_who_can_see_is_what_every_event_says(state: State, what: tuple[str, str], outside: tuple[str, ...]) -> None:
    answer = can_see(state, *what, outside, limit=20)
    who = [name for name in state.principals if not outside or name == "cid"]
    seen = any(
        (found := view(with_attributes(state, name, {"vip": vip}), name, event, {})) is not None
        and what[1] in found.attributes
        for event in events()
        if types().is_a(event.type, what[0]) and event.values[what[1]] is not None
        for name in who
        for vip in VIPS
    )
    assert answer.verdict == ("yes" if seen else "no")
    if seen:
        assert answer.event is not None
        assert answer.principal in who
        world = with_attributes(state, answer.principal or "", answer.attributes)
        shown = view(world, answer.principal or "", answer.event, {})
        assert shown is not None
        assert shown.decided_by[what[1]] == answer.rule
        assert answer.event.values[what[1]] is not None


# -- what is said -------------------------------------------------------------------------------------------------


def findings(*given: Rule) -> list[RuleFinding]:
    return list(check_policy(policy(*given)).findings)


def test_a_condition_that_never_holds() -> None:
    assert findings(rule("a", "ann", "paid and not paid")) == [RuleFinding("a", Fault.NEVER_TRUE)]
    assert findings(rule("a", "ann", "$vip = 1 and $vip = 2")) == [RuleFinding("a", Fault.NEVER_TRUE)]
    assert findings(rule("a", "ann", "@publisher = 'zoe'")) == [RuleFinding("a", Fault.NEVER_TRUE)]


def test_rules_that_speak_of_nobody_and_nothing() -> None:
    assert findings(rule("a", "nobody")) == [RuleFinding("a", Fault.NOBODY)]
    assert findings(rule("a", "ann", type="other.*")) == [RuleFinding("a", Fault.NO_TYPE)]


def test_what_earlier_rules_decide() -> None:
    forbids = rule("no", "staff", forbid=True)
    assert findings(forbids, rule("yes", "ann")) == [
        RuleFinding("no", Fault.REDUNDANT),  # without the grant that it shadows, it takes nothing away
        RuleFinding("yes", Fault.SHADOWED, ("no",)),
    ]
    assert findings(rule("all", "staff"), rule("some", "ann", "paid", attributes=("card",))) == [
        RuleFinding("some", Fault.SHADOWED, ("all",))
    ]
    halves = rule("one", "ann", "paid"), rule("two", "ann", "not paid or paid is null"), rule("three", "ann")
    assert RuleFinding("three", Fault.SHADOWED, ("one", "two")) in findings(*halves)


def test_what_later_rules_say_again() -> None:
    assert findings(rule("some", "ann", "paid", attributes=("card",)), rule("all", "staff")) == [
        RuleFinding("some", Fault.REDUNDANT, ("all",))
    ]
    # For ann it is needed: between the two something is taken away.
    assert findings(rule("some", "ann", "paid"), rule("no", "ann", "card", forbid=True), rule("all", "staff")) == []


def test_attributes_that_nobody_has_yet_may_come() -> None:
    """An identity statement brings them."""
    assert findings(rule("a", "ann", "$vip = false")) == []
    assert findings(rule("a", "cid", "$clearance = 'secret'")) == []
    assert findings(rule("no", "ann", "not $vip = true", forbid=True), rule("all", "ann")) == []
    # whatever it is, one of the two decides
    either = rule("one", "ann", "$vip is null"), rule("two", "ann", "$vip is not null")
    assert RuleFinding("three", Fault.SHADOWED, ("one", "two")) in findings(*either, rule("three", "ann"))


def test_an_example_says_with_which_attributes() -> None:
    state = policy(rule("a", "staff", "$clearance = card and $vip is null"))
    answer = can_see(state, SALE, "card")
    assert (answer.verdict, answer.principal) == ("yes", "ann")
    assert answer.event is not None
    assert answer.attributes == {"clearance": answer.event.values["card"]}  # and `vip`, which it has, must go
    assert can_see(state, SALE, "card", ("staff",)).verdict == "no"


def test_the_example_is_someone_who_sees_it_already_if_there_is_one() -> None:
    answer = can_see(policy(rule("a", "staff", "$vip = false")), SALE, "card")
    assert (answer.principal, answer.attributes) == ("bob", {"vip": False})
    # what need not change stays as it is
    answer = can_see(policy(rule("a", "ann", "$vip is not null and $rank = 1")), SALE, "card")
    assert answer.attributes == {"vip": True, "rank": 1}


def test_a_chain_is_no_reason_to_drop_a_rule_and_is_not_dropped() -> None:
    chain = replace(rule("c", "ann"), author="shop", source=Source.CHAIN)
    assert findings(rule("a", "ann"), chain) == []
    assert findings(rule("no", "ann", "paid", forbid=True), chain) == []
    assert findings(rule("no", "ann", "paid", forbid=True)) == [RuleFinding("no", Fault.REDUNDANT)]


def test_rules_of_other_actions_are_left_alone() -> None:
    assert findings(rule("a", "nobody", actions=frozenset({Action.AUDIT}))) == []


def test_a_predicate_may_answer_anything() -> None:
    asked = replace(rule("a", "ann"), where=Predicate("odd", (Meta("time"),)))
    assert findings(asked) == []
    state = policy(asked)
    assert can_see(state, SALE, "card").verdict == "cannot tell"
    known = {"odd": lambda event, size, at: True}
    assert can_see(state, SALE, "card", predicates=known).verdict == "yes"
    assert can_see(state, SALE, "card", ("staff",), predicates=known).verdict == "no"


def test_many_entries_are_undecided_rather_than_wrong() -> None:
    many = [rule(f"r{n}", "ann", "paid") for n in range(120)]
    checked = check_policy(policy(*many))
    assert checked.findings == ()
    assert len(checked.undecided) == 120
    assert can_see(policy(*many), SALE, "card").verdict == "cannot tell"
    assert len(check_policy(policy(*many[:90])).findings) == 89


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="no attribute `price`"):
        can_see(policy(), SALE, "price")
    with pytest.raises(UnknownName, match="no group `crew`"):
        can_see(policy(), SALE, "card", ("crew",))
