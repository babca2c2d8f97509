"""What conditions come to as text when they are put together: never less than they do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.lang import parse_condition, render_condition
from headgate.lang.render import fit_together, size
from headgate.model.errors import BadExpression
from headgate.model.expressions import AllOf, AnyOf, Attribute, Compare, Condition, Constant, InSet, Not, TextMatch
from headgate.model.limits import MAX_EXPRESSION_CHARS, MAX_EXPRESSION_DEPTH
from headgate.model.values import Kind
from strategies.conditions import conditions

NAMES = {
    "a": Kind.INT,
    "in": Kind.STRING,
    "a longer `name`": Kind.STRING,
    "speed_limit": Kind.FLOAT,
    "t": Kind.TIMESTAMP,
}
MADE = conditions(
    {**NAMES, "b": Kind.BYTES, "ok": Kind.BOOL},
    groups=("staff", "it's us"),
    relations={"R": 2, "timeofday": 1},
    subjects=("clearance", "to be"),
    predicates={"p": 1},
)


@given(st.lists(MADE, min_size=2, max_size=5))
def test_a_size_is_never_less_than_the_text(parts: list[Condition]) -> None:
    long = sum(size(part)[0] for part in parts) + len(" and ") * (len(parts) - 1)
    assert len(render_condition(AllOf(tuple(parts)))) <= long


@given(MADE)
def test_a_size_is_not_much_more(part: Condition) -> None:
    assert size(part)[0] <= 3 * len(render_condition(part)) + 40


@pytest.mark.parametrize("text", ["'", "`", "a", "é"])
def test_quotes_count_as_they_are_written(text: str) -> None:
    for part in (
        Compare("=", Attribute(text), Constant(text)),
        InSet(Attribute("x"), (text, text * 3)),
        TextMatch("contains", Attribute("x"), Constant(text * 5)),
    ):
        assert len(render_condition(part)) <= size(part)[0]


def nested(levels: int) -> Condition:
    """Disjunctions and negations inside one another."""
    made: Condition = Compare("=", Attribute("a"), Constant(1))
    for at in range(levels):
        made = AnyOf((made, Compare("=", Attribute("b"), Constant(at)))) if at % 2 else Not(made)
    return made


@pytest.mark.parametrize("levels", range(0, MAX_EXPRESSION_DEPTH, 3))
def test_what_fits_together_parses(levels: int) -> None:
    parts = nested(levels), Compare("=", Attribute("c"), Constant(1))
    if fit_together(map(size, parts)):
        assert parse_condition(render_condition(AllOf(parts))) == AllOf(parts)
    else:
        assert levels > MAX_EXPRESSION_DEPTH // 2


def test_what_is_too_long_or_too_deep_does_not_fit() -> None:
    half = InSet(Attribute("x"), ("a" * (MAX_EXPRESSION_CHARS // 2),))
    assert fit_together([size(half)])
    assert not fit_together([size(half), size(half)])
    deep = next(nested(levels) for levels in range(MAX_EXPRESSION_DEPTH) if not _parses(nested(levels)))
    assert not fit_together([size(deep)])


def _parses(part: Condition) -> bool:
    try:
        parse_condition(render_condition(AllOf((part, Compare("=", Attribute("c"), Constant(1))))))
    except BadExpression:
        return False
    return True
