"""Wider-Than over vectors: the table of Guard VI with its two boundary cases put right."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headgate.lang import parse_condition
from headgate.model.errors import BadExpression
from headgate.model.expressions import Compare, Condition, Constant, InRange, Subject, all_of
from headgate.model.values import Value
from headgate.solver import match, wider
from headgate.solver.vector import example, vector
from headgate.solver.vector import wider as vector_wider
from strategies.rules import CONSTANTS
from strategies.running import examples


def says(rule: str, other: str) -> bool:
    wide, narrow = vector(parse_condition(rule)), vector(parse_condition(other))
    assert wide is not None
    assert narrow is not None
    return vector_wider(wide, narrow)


TABLE = [
    ("$x = 5", "$x = 5", True),
    ("$x = 5", "$x = 6", False),
    ("$x > 5", "$x > 5", True),
    ("$x > 5", "$x > 6", True),
    ("$x > 5", "$x > 4", False),
    ("$x > 5", "$x = 6", True),
    ("$x > 5", "$x = 5", False),
    ("$x < 5", "$x < 5", True),
    ("$x < 5", "$x < 4", True),
    ("$x < 5", "$x < 6", False),
    ("$x < 5", "$x = 4", True),
    ("$x < 5", "$x = 5", False),
    ("$x = 4..10", "$x = 4..10", True),
    ("$x = 4..10", "$x = 5..9", True),
    ("$x = 4..10", "$x = 3..9", False),
    ("$x = 4..10", "$x = 5..11", False),
    ("$x = 4..10", "$x = 4", True),
    ("$x = 4..10", "$x = 10", True),
    ("$x = 4..10", "$x = 11", False),
    ("$x > 5", "$x = 6..9", True),
    ("$x < 5", "$x = 1..4", True),
    # Where a range begins or ends at the bound itself, it has a value that the rule does not.
    ("$x > 5", "$x = 5..9", False),
    ("$x < 5", "$x = 1..5", False),
    # Combinations that the table does not have.
    ("$x = 5", "$x > 5", False),
    ("$x = 5", "$x < 5", False),
    ("$x = 4..10", "$x > 5", False),
    ("$x = 4..10", "$x < 5", False),
    ("$x > 5", "$x < 5", False),
    ("$x < 5", "$x > 5", False),
    # More than the table has.
    ("$x >= 5", "$x = 5..9", True),
    ("$x >= 5", "$x > 5", True),
    ("$x > 5", "$x >= 5", False),
    ("$x <= 5", "$x < 5", True),
    ("$x < 5", "$x <= 5", False),
    ("5 < $x", "6 < $x", True),
    ("$x < 'b'", "$x = 'a'", True),
    ("$x < 'b'", "$x < 'a'", True),
    ("$x <= 'a'", "$x < 'b'", False),
    ("$x = 1.0", "$x = 1", True),
    ("$x = true", "$x = 1", False),
    ("$x > 5", "$x > 'a'", False),
    ("$x > timestamp '2026-01-01T00:00:00Z'", "$x = timestamp '2026-01-02T00:00:00Z'", True),
]


@pytest.mark.parametrize(("rule", "other", "expected"), TABLE)
def test_the_table(rule: str, other: str, expected: bool) -> None:
    assert says(rule, other) is expected


def test_vectors_are_compared_element_by_element() -> None:
    wide = "$a = 1 and $b > 3 and $d = 4..10"
    assert says(wide, "$a = 1 and $b > 5 and $c = 'opx' and $d = 6..10")
    assert not says(wide, "$a = 1 and $b > 5 and $c = 'opx'")  # nothing is asked of $d
    assert says("true", wide)
    assert says("true", "true")
    assert not says(wide, "true")


@pytest.mark.parametrize(
    "rule",
    [
        "$x = 1 or $y = 2",
        "not $x = 1",
        "$x > 1 and $x < 3",
        "$x != 1",
        "$x in {1, 2}",
        "$x starts with 'a'",
        "$x is null",
        "$x = $y",
        "$x in 1..'a'",
        "1 = 1",
        "false",
    ],
)
def test_other_rules_are_no_vectors(rule: str) -> None:
    assert vector(parse_condition(rule)) is None
    with pytest.raises(BadExpression, match="not a vector"):
        wider(parse_condition("true"), parse_condition(rule), method="vector")


SUBJECTS = [Subject(name) for name in "xyz"]
VALUES = st.one_of(
    st.sampled_from(CONSTANTS),
    st.sampled_from([-math.inf, math.inf]).map(lambda to: math.nextafter(5.0, to)),
    st.sampled_from([1.7976931348623157e308, -1.7976931348623157e308, datetime.min.replace(tzinfo=UTC)]),
)


@st.composite
def vectors(draw: st.DrawFn) -> Condition:
    """A rule with at most one atom for each attribute, all written the same way."""
    chosen = draw(st.lists(st.sampled_from(SUBJECTS), unique=True, max_size=3))
    return all_of(*(draw(element(subject)) for subject in chosen))


@st.composite
def element(draw: st.DrawFn, subject: Subject) -> Condition:
    value = draw(VALUES)
    if draw(st.booleans()):
        other = draw(VALUES.filter(lambda one: family(one) == family(value)))
        return InRange(subject, Constant(value), Constant(other))
    op = draw(st.sampled_from(["=", "<", ">", "<=", ">="]))
    return Compare(op, subject, Constant(value))


def family(value: Value) -> type:
    return float if type(value) is int else type(value)


@given(vectors(), vectors())
@examples(60, soak=150)
def test_what_vectors_say_is_so_and_only_empty_ranges_escape_them(rule: Condition, other: Condition) -> None:
    wide, narrow = vector(rule), vector(other)
    assert wide is not None
    assert narrow is not None
    exact = wider(rule, other, method="exact", limit=20)
    assert exact.verdict != "cannot tell"
    if vector_wider(wide, narrow):
        assert exact.holds
    elif exact.holds:
        never = wider(Compare("=", Constant(1), Constant(2)), other, method="exact", limit=20)
        assert never.holds, "the narrower rule can be true"
    else:
        found = example(wide, narrow)
        assert found is not None
        assert match(other, found) is True
        assert match(rule, found) is not True


def test_answers_say_how_they_were_found() -> None:
    rule, other = parse_condition("$x > 1"), parse_condition("$x > 2")
    assert wider(rule, other).method == "vector"
    assert wider(rule, rule).method == "same"
    assert wider(other, rule).method == "exact"
    assert wider(other, rule) is wider(other, rule), "it is remembered"
    answer = wider(other, rule, method="vector")
    assert answer.verdict == "not wider"
    assert answer.counterexample == {"x": 2}


@pytest.mark.parametrize("rule", ["price > 1", "@time = $x", "$x in group staff", "Boss($x, 1)", "predicate odd($x)"])
def test_rules_look_at_subjects_alone(rule: str) -> None:
    for method in ("auto", "vector", "exact"):
        with pytest.raises(BadExpression):
            wider(parse_condition("true"), parse_condition(rule), method=method)  # type: ignore[arg-type]
        with pytest.raises(BadExpression):
            wider(parse_condition(rule), parse_condition("true"), method=method)  # type: ignore[arg-type]
