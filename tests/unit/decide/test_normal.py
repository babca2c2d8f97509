"""Normal form and its rows keep the truth of a condition on every input, nulls included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from headgate.decide.normal import Bounds, Clause, Span, bind, clauses
from headgate.decide.truth import World, truth, value
from headgate.model.errors import BadExpression
from headgate.model.events import Event
from headgate.model.expressions import (
    TRUE,
    AllOf,
    AnyOf,
    Attribute,
    Compare,
    Condition,
    Constant,
    InRange,
    InSet,
    IsNull,
    Not,
    Predicate,
    Related,
    Subject,
    all_of,
    any_of,
)
from headgate.model.limits import MAX_CLAUSES
from headgate.model.state import State
from headgate.model.types import Catalog, EventType
from headgate.model.values import Kind, Value, compare, micros
from headgate.pipeline.index.build import types_of
from headgate.pipeline.index.index import ShapeTable, lower
from headgate.pipeline.log.codec import LogBatch, event_batch, places
from headgate.pipeline.match import BatchRows, holds
from headgate.pipeline.truth import ConditionFacts
from strategies.conditions import conditions, values
from strategies.predicates import ARITIES, FUNCTIONS
from strategies.running import examples
from strategies.stored import encode
from strategies.worlds import pooled

KINDS: Mapping[str, Kind] = {
    "i": Kind.INT,
    "j": Kind.INT,
    "f": Kind.FLOAT,
    "s": Kind.STRING,
    "r": Kind.STRING,
    "t": Kind.TIMESTAMP,
    "b": Kind.BOOL,
    "y": Kind.BYTES,
}
STATE = State(
    groups={"g": frozenset({"a", "h"}), "h": frozenset({"anna"})},
    relations={"R": frozenset({("a", 1), ("b", True), ("anna", 0.5)}), "S": frozenset({("a",)})},
)
CONDITIONS = conditions(
    KINDS, groups=("g", "h"), relations={"R": 2, "S": 1}, subjects=("u", "v"), predicates=dict(ARITIES), depth=2
)
SUBJECT = st.fixed_dictionaries({}, optional={name: st.sampled_from(list(Kind)).flatmap(values) for name in ("u", "v")})
EVENTS = st.builds(
    Event,
    st.just("e"),
    st.sampled_from(("a", "anna", "carol")),
    st.just("t"),
    st.fixed_dictionaries({name: st.one_of(st.none(), *[pooled(kind)] * 4) for name, kind in KINDS.items()}),
    values(Kind.TIMESTAMP),
)


def clause_holds(clause: Clause, event: Event, world: World) -> bool:
    """The meaning of a clause, spelled out: each bound, then each literal."""
    for term, bounds in clause.bounds.items():
        it = value(term, event, world)
        if bounds.null:
            if it is not None:
                return False
            continue
        if it is None or it not in bounds.span:
            return False
        if bounds.only is not None and not any(compare("=", it, v) for v in bounds.only):
            return False
        if any(compare("=", it, v) for v in bounds.without):
            return False
    return all(truth(literal.atom, event, world) is literal.want for literal in clause.rest)


OTHER_KINDS: Mapping[str, Kind] = dict(zip(KINDS, (*list(KINDS.values())[3:], *list(KINDS.values())[:3]), strict=True))


@examples(300)
@given(
    CONDITIONS,
    SUBJECT,
    st.fixed_dictionaries({name: st.one_of(st.none(), *[pooled(kind)] * 4) for name, kind in OTHER_KINDS.items()}),
    EVENTS,
)
def test_a_type_with_other_kinds_makes_comparisons_unknown(
    condition: Condition, subject: Mapping[str, Value], others: Mapping[str, Value], event: Event
) -> None:
    world = World(STATE, subject, FUNCTIONS)
    bound = bind(condition, subject, OTHER_KINDS)
    other = replace(event, values=others)
    found = truth(condition, other, world)
    for want in (True, False):
        some = normalised(bound, OTHER_KINDS, want)
        assert any(clause_holds(c, other, world) for c in some) is (found is want)
        for clause in some:
            lower(clause, places(Catalog().declare(EventType("T", "o", OTHER_KINDS)), "T"), 1)


def normalised(condition: Condition, kinds: Mapping[str, Kind], want: bool) -> tuple[Clause, ...]:
    try:
        return clauses(condition, kinds, want=want)
    except BadExpression:
        assume(False)
        raise


@examples(400)
@given(CONDITIONS, SUBJECT, st.lists(EVENTS, min_size=1, max_size=4))
def test_clauses_hold_exactly_where_the_truth_is_wanted(
    condition: Condition, subject: Mapping[str, Value], events: list[Event]
) -> None:
    world = World(STATE, subject, FUNCTIONS)
    bound = bind(condition, subject, KINDS)
    yes, no = normalised(bound, KINDS, True), normalised(bound, KINDS, False)
    for event in events:
        expected = truth(condition, event, world)
        assert truth(bound, event, replace(world, subject={})) is expected
        assert any(clause_holds(c, event, world) for c in yes) is (expected is True)
        assert any(clause_holds(c, event, world) for c in no) is (expected is False)


@examples(120, soak=300)
@given(CONDITIONS, SUBJECT, st.lists(EVENTS, min_size=1, max_size=6), st.booleans())
def test_rows_hold_exactly_where_the_truth_is_wanted(
    condition: Condition, subject: Mapping[str, Value], events: list[Event], want: bool
) -> None:
    world = World(STATE, subject, FUNCTIONS)
    found = normalised(bind(condition, subject, KINDS), KINDS, want)
    assert rows_hold(found, events) == [truth(condition, e, world) is want for e in events]


def rows_hold(found: tuple[Clause, ...], events: list[Event]) -> list[bool]:
    """Which events meet the lowered rows of some clauses?"""
    types = types_of(Catalog().declare(EventType("t", "o", KINDS)), 1)
    layout = types.layouts[0]
    layouts = {"t": layout}
    appends = [LogBatch("m", n, n, 1, micros(e.time), encode([e], layouts)) for n, e in enumerate(events, 1)]
    batch = event_batch(appends, {"t": 0}, layouts, 1)
    table = ShapeTable()
    for clause in found:
        for row in lower(clause, layout, 1):
            table.add(row, 0, 0)
    met = np.zeros(len(events), np.bool_)
    every = np.arange(len(events))
    facts = ConditionFacts(World(STATE, predicates=FUNCTIONS))
    for shape in table.take():
        for number in range(len(shape)):
            row = np.full(len(events), number, np.int32)
            ok = shape.verify(batch, every, row, table.known)
            ok &= ((shape.null[row] & ~batch.nulls) == 0).all(axis=1)
            rest = shape.rest[number]
            for part in table.rests[rest] if rest >= 0 else ():
                at = np.flatnonzero(ok)
                ok[at] = holds(part, BatchRows(batch, at, facts, types, dict(part.where)))
            met |= ok
    return met.tolist()


N, F, S = Attribute("i"), Attribute("f"), Attribute("s")


def only(condition: Condition, want: bool = True) -> Clause:
    (clause,) = clauses(condition, KINDS, want=want)
    return clause


def test_bounds_on_one_term_are_merged() -> None:
    clause = only(all_of(Compare(">", N, Constant(1)), Compare("<=", N, Constant(9)), Compare("!=", N, Constant(5))))
    assert clause.bounds == {N: Bounds(span=Span(2, 9), without=frozenset({5}))}


def test_integers_are_closed_even_between_floats() -> None:
    assert only(all_of(Compare(">", N, Constant(1.5)), Compare("<", N, Constant(3.5)))).bounds[N].span == Span(2, 3)
    assert clauses(all_of(Compare(">", N, Constant(1)), Compare("<", N, Constant(2))), KINDS) == ()
    assert clauses(Compare("=", N, Constant(1.5)), KINDS) == ()
    assert only(InRange(N, Constant(2), Constant(2.5))).bounds[N].only == frozenset({2})


def test_contradictions_leave_no_clause() -> None:
    assert clauses(all_of(IsNull(N), Compare("=", N, Constant(1))), KINDS) == ()
    assert clauses(all_of(InSet(S, ("a", "b")), InSet(S, ("c",))), KINDS) == ()
    literal = Related("R", (S, N))
    assert clauses(all_of(literal, Not(literal)), KINDS) == ()


def test_neither_side_holds_of_an_unknown() -> None:
    condition = Compare("=", N, Constant(None))
    assert clauses(condition, KINDS) == ()
    assert clauses(condition, KINDS, want=False) == ()


def test_an_attribute_that_the_type_lacks_is_null() -> None:
    lacking = Attribute("zz")
    assert clauses(Compare("=", lacking, Constant(1)), KINDS) == ()
    assert clauses(IsNull(lacking), KINDS) == clauses(TRUE, KINDS)
    assert clauses(Not(IsNull(lacking)), KINDS) == ()


@pytest.mark.parametrize(
    "make", [lambda v: Predicate("kinds", (Constant(v), Constant("a"))), lambda v: Related("R", (S, Constant(v)))]
)
def test_constants_that_python_takes_for_equal_stay_apart(make) -> None:
    assert len(clauses(any_of(make(1), make(True), make(1.0)), KINDS)) == 3
    assert len(clauses(all_of(make(1), Not(make(True))), KINDS)) == 1


def test_too_many_clauses_are_refused() -> None:
    def pair(name: str, n: int) -> Condition:
        return AnyOf((Compare("=", Attribute(name), Constant(n)), IsNull(Attribute(name))))

    kinds = {f"a{n}": Kind.INT for n in range(9)}
    wide = AllOf(tuple(pair(name, 1) for name in kinds))
    with pytest.raises(BadExpression, match=f"MAX_CLAUSES.*{MAX_CLAUSES}"):
        clauses(wide, kinds)
    assert len(clauses(AllOf(wide.args[:8]), kinds)) == MAX_CLAUSES


def test_a_subject_is_bound_first() -> None:
    condition = Compare("=", N, Subject("u"))
    with pytest.raises(ValueError, match="bound before"):
        clauses(condition, KINDS)
    assert clauses(bind(condition, {"u": "text"}, KINDS), KINDS) == ()
    assert only(bind(condition, {"u": 1.0}, KINDS)).bounds == {N: Bounds(only=frozenset({1}))}


@pytest.mark.parametrize(
    ("op", "number", "held", "expected"),
    [
        ("<", 2**53 + 1, float(2**53), True),
        ("<=", 2**53 + 1, float(2**53), True),
        (">", 2**53 + 1, float(2**53), False),
        (">=", 2**53 + 1, float(2**53 + 2), True),
        ("=", 2**53 + 1, float(2**53), False),
        ("<", 2**2000, 1.7e308, True),
        (">", -(2**2000), -1.7e308, True),
        (">=", 2**2000, 1.7e308, False),
        ("=", 0, -0.0, True),
        (">", 0.0, 5e-324, True),
        ("!=", 2**53 + 1, float(2**53), True),
    ],
)
def test_integers_beside_a_float_slot_are_exact(op: str, number: int | float, held: float, expected: bool) -> None:
    blank = dict.fromkeys(KINDS)
    event = Event("e", "a", "t", {**blank, "f": held}, datetime(2026, 1, 1, tzinfo=UTC))
    condition = Compare(op, F, Constant(number))  # type: ignore[arg-type]
    assert truth(condition, event, World(STATE)) is expected
    assert rows_hold(clauses(condition, KINDS), [event]) == [expected]
