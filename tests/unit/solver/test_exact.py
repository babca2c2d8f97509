"""Wider-Than, exact: it agrees with going through attribute sets one by one, and shows for whom a rule is not wider."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headgate.decide.truth import World, truth
from headgate.lang import parse_condition
from headgate.model.events import Event
from headgate.model.expressions import (
    Attribute,
    Compare,
    Condition,
    Constant,
    InSet,
    Predicate,
    Subject,
    TextMatch,
    all_of,
    any_of,
)
from headgate.model.state import State
from headgate.model.values import Kind, Value
from headgate.solver import WiderAnswer, covers, match, wider
from headgate.solver.exact import MOST_ATOMS, find
from headgate.solver.terms import ConditionFrame, Every, Want
from strategies.rules import CONSTANTS, NUMBERS, OTHERS, TEXTS, rules, subjects, world
from strategies.running import examples

NAMES = ("x", "y")
TERMS = st.sampled_from([Subject(name) for name in NAMES])
POOLS = st.sampled_from([NUMBERS, TEXTS, OTHERS, CONSTANTS])


def says(rule: str, other: str) -> WiderAnswer:
    return wider(parse_condition(rule), parse_condition(other), method="exact")


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Condition, Condition, tuple[Value, ...]]:
    pool = draw(POOLS)
    constants = st.sampled_from(pool)
    return draw(rules(TERMS, constants)), draw(rules(TERMS, constants)), pool


@given(pairs())
@examples(60, soak=150)
def test_it_agrees_with_going_through_attribute_sets(pair: tuple[Condition, Condition, tuple[Value, ...]]) -> None:
    rule, other, pool = pair
    answer = wider(rule, other, method="exact", limit=20)
    against = [one for one in subjects(NAMES, world(pool)[:30]) if match(other, one) and not match(rule, one)]
    if answer.verdict == "wider":
        assert against == []
    elif answer.verdict == "not wider":
        assert answer.counterexample is not None
        assert match(other, answer.counterexample) is True
        assert match(rule, answer.counterexample) is not True


BOTH = {"b": Kind.BOOL, "c": Kind.BOOL}


@given(st.data())
@examples(40, soak=100)
def test_over_a_finite_world_it_is_the_same_as_trying_everything(data: st.DataObject) -> None:
    terms = st.sampled_from([Attribute(name) for name in BOTH])
    a, b = (data.draw(rules(terms, st.booleans())) for _ in range(2))
    every = [dict(zip(BOTH, row, strict=True)) for row in product((None, False, True), repeat=2)]
    holds = all(over(a, one) is True for one in every if over(b, one) is True)
    assert covers(a, b, BOTH, limit=20).verdict == ("wider" if holds else "not wider")


TYPED: Mapping[str, tuple[Kind, tuple[Value, ...]]] = {
    "i": (Kind.INT, (0, 1, 2, 2**53 + 1)),
    "f": (Kind.FLOAT, (0.0, 0.5, 1.0, 2.0**53)),
    "s": (Kind.STRING, ("", "a", "ab", "b a")),
}


@given(st.data())
@examples(40, soak=100)
def test_covering_agrees_with_going_through_events(data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from([("i", "f"), ("s",), ("i", "s"), ("f", "s")]))
    kinds = {name: TYPED[name][0] for name in chosen}
    constants = st.sampled_from([value for name in chosen for value in TYPED[name][1]])
    terms = st.sampled_from([Attribute(name) for name in chosen])
    a, b = (data.draw(rules(terms, constants)) for _ in range(2))
    answer = covers(a, b, kinds, limit=20)
    assert answer.verdict != "cannot tell" or len(chosen) > 1
    if answer.counterexample is not None:
        event = {name: answer.counterexample.get(name) for name in chosen}
        assert over(b, event) is True
        assert over(a, event) is not True
        assert all(value is None or type(value) is TYPE[kinds[name]] for name, value in event.items())
    elif answer.holds:
        for row in product(*((None, *TYPED[name][1]) for name in chosen)):
            event = dict(zip(chosen, row, strict=True))
            assert over(b, event) is not True or over(a, event) is True


TYPE = {Kind.INT: int, Kind.FLOAT: float, Kind.STRING: str}


def over(condition: Condition, values: Mapping[str, Value]) -> bool | None:
    return truth(condition, Event("", "", "", values, datetime(2026, 1, 1, tzinfo=UTC)), World(State()))


@pytest.mark.parametrize(
    ("rule", "other"),
    [
        ("true", "$x = 1"),
        ("$x = 1", "false"),
        ("$x = 1", "$x > 1 and $x < 1.0000000000000002"),  # no double, and no integer, between them
        ("$x = 9007199254740993", "$x > 9007199254740992.0 and $x < 9007199254740994.0"),
        ("$x is not null", "$x = 1 or $x = 'a'"),
        ("$x = $x", "$x is not null"),
        ("not $x = 'a'", "$x < 'a'"),
        ("$x = 'a'", "$x >= 'a' and $x < bytes '00'"),
        ("$x in {1, 2, 3}", "$x = 2.0"),
        ("$x <= timestamp '9999-12-31T23:59:59.999999Z'", "$x > timestamp '2026-01-01T00:00:00Z'"),
        ("$x = true or $x = false", "$x >= false"),
        ("$x starts with 'ab'", "$x starts with 'abc'"),
        ("$x contains 'b'", "$x has token 'abc'"),
        ("$x has token 'a'", "$x in {'a', 'b a', 'b a c'}"),
        ("$x >= 'ab'", "$x starts with 'ab'"),
        ("$x starts with 'a'", "$x >= 'a' and $x < 'b'"),
        ("not $x contains 'z'", "'abc' contains $x"),
        ("$x has token ''", "false"),
        ("$x < $z", "$x < $y and $y < $z"),
        ("$x contains $y", "$x starts with $y"),
        ("$x >= $y", "$x starts with $y"),
        ("$x in {'\U0010ffff', 'a'}", "$x = '\U0010ffff'"),
    ],
)
def test_wider(rule: str, other: str) -> None:
    assert says(rule, other) == WiderAnswer("wider")


@pytest.mark.parametrize(
    ("rule", "other", "unless"),
    [
        ("$x = 1", "true", {}),
        ("$x > 5", "$x = 5..9", {"x": 5}),
        ("$x = $x", "true", {}),
        ("not $x = 1", "true", {}),
        ("$x = 1 or $x != 1", "$x is not null", None),  # of another kind it is unknown
        ("$x in {1, 'a'} or not $x in {1, 'a'}", "$x = 2", {"x": 2}),  # 2 is not 1, and is it 'a'? unknown
        ("$x = 1", "$x = true", {"x": True}),
        ("$x < '\U0010ffff'", "$x starts with '\U0010ffff'", {"x": "\U0010ffff"}),
        ("$x starts with '\U0002ffff'", "$x > '\U0002ffff'", None),
        ("$clearance = 'secret' and $nation = 'NO'", "$clearance = 'secret'", {"clearance": "secret"}),
        ("$x starts with $y", "$x contains $y and $y != ''", None),
    ],
)
def test_not_wider(rule: str, other: str, unless: Mapping[str, Value] | None) -> None:
    answer = says(rule, other)
    assert answer.verdict == "not wider"
    assert answer.counterexample is not None
    assert match(parse_condition(other), answer.counterexample) is True
    assert match(parse_condition(rule), answer.counterexample) is not True
    if unless is not None:
        assert answer.counterexample == unless


def test_constants_that_python_takes_for_equal_are_kept_apart() -> None:
    one, true = InSet(Subject("x"), (1,)), InSet(Subject("x"), (True,))
    assert one == true
    assert wider(one, true).verdict == "not wider"
    assert wider(one, one).verdict == "wider"
    assert wider(true, one).counterexample == {"x": 1}


def test_the_same_question_has_the_same_answer() -> None:
    rule, other = parse_condition("$x < $y or $z has token 'a'"), parse_condition("$x <= $y and $z contains 'a'")
    answers = [wider(rule, other, method="exact") for _ in range(3)]
    assert says("$x > 3", "$x > 2").verdict == "not wider"
    answers.append(wider(rule, other, method="exact"))
    assert len({repr(one) for one in answers}) == 1


def test_out_of_time_it_cannot_tell_and_that_is_no() -> None:
    answer = wider(parse_condition("$x = 1"), parse_condition("$x = 1 or $x = 2"), method="exact", limit=0)
    assert answer == WiderAnswer("cannot tell")
    assert not answer.holds


def test_more_than_is_looked_at_is_not_told() -> None:
    long = Compare("=", Subject("x"), Constant(1))
    assert wider(any_of(*[long] * (MOST_ATOMS + 1)), long, method="exact").verdict == "cannot tell"


# -- events -------------------------------------------------------------------------------------------------------


def covering(a: str, b: str, state: State | None = None) -> WiderAnswer:
    kinds = {"price": Kind.FLOAT, "amount": Kind.INT, "who": Kind.STRING, "at": Kind.TIMESTAMP}
    return covers(parse_condition(a), parse_condition(b), kinds, state=state)


def test_filters_over_events() -> None:
    assert covering("price > 1", "price > 2").holds
    assert covering("amount >= 3", "amount > 2").holds  # whole numbers
    assert not covering("price >= 3", "price > 2").holds
    assert covering("price < 1", "price < 2").counterexample == {"price": 1.0}
    assert covering("unheard = 1", "amount = 1").counterexample == {"amount": 1}
    assert covering("true", "amount = 1").method == "same"


def test_what_is_stamped_on_every_event_is_never_null() -> None:
    assert covering("@publisher = 'a' or @publisher != 'a'", "true").holds
    assert not covering("@rate >= 0 or @rate < 0", "true").holds
    assert covering("@time < timestamp '2026-01-01T00:00:00Z'", "true").verdict == "not wider"


def test_groups_and_relations_are_those_of_the_state_or_anything() -> None:
    state = State(
        principals={"ann": {}, "bob": {}},
        groups={"staff": frozenset({"ann"})},
        relations={"Boss": frozenset({("ann", 1)})},
    )
    assert covering("who = 'ann'", "who in group staff", state).holds
    assert covering("who = 'ann'", "Boss(who, 1)", state).holds
    assert covering("who = 'ann' and amount = 1", "Boss(who, amount)", state).holds
    assert not covering("who in group staff", "who = 'ann'").holds
    assert covering("who in group staff", "who in group staff and amount = 1").holds
    assert covering("who in group staff or not who in group staff", "who is not null").holds
    assert covering("@publisher in {'ann', 'bob', 'administrator'}", "true", state).holds


def test_clocks() -> None:
    assert covering("weekday(at) in 1..7", "at is not null").holds
    assert covering("timeofday(at) < '18:00'", "timeofday(at) < '17:00'").holds
    found = covering("weekday(at, 'Europe/London') < 6", "timeofday(at, 'Europe/London') > '18:00'")
    assert found.verdict == "not wider"
    assert covering("timeofday(at) = '10:00'", "at = timestamp '2026-01-01T10:00:00Z'").holds
    assert not covering("timeofday(at) = '10:00'", "at = timestamp '2026-01-01T10:00:01Z'").holds


def test_a_predicate_may_answer_anything() -> None:
    odd = Predicate("odd", (Attribute("amount"),))
    frame = ConditionFrame({"amount": Kind.INT}, predicates={"odd": lambda event, size, amount: amount % 2 == 1})
    here = Compare("=", Attribute("amount"), Constant(3))
    found = find(Every((Want(odd), Want(here))), frame, 5)
    assert found.exists is True
    assert find(Every((Want(odd, truth=False), Want(here))), frame, 5).exists is None
    assert find(Every((Want(odd), Want(odd, met=False))), frame, 5).exists is False


def test_long_text_constants_are_not_enumerated_for_ever() -> None:
    parts = [TextMatch("contains", Subject("x"), Constant(chr(97 + n) * 40)) for n in range(12)]
    answer = wider(parts[0], all_of(*parts), method="exact")
    assert answer.verdict in ("wider", "cannot tell")
