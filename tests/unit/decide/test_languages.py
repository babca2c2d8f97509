"""Conditions are a part of the one expression tree: what only rolefiles have is refused in them, however it comes."""

import pytest

from headgate.decide.check import Scope, check
from headgate.model.errors import BadExpression
from headgate.model.expressions import (
    Apply,
    Attribute,
    Combine,
    Compare,
    Condition,
    Constant,
    Count,
    InSet,
    Meta,
    Related,
    RoleRef,
    Starred,
    Variable,
)
from headgate.model.state import State
from headgate.model.values import Kind

SCOPE = Scope(State("admin"), {"n": Kind.INT}, "`t`")
N = Attribute("n")


@pytest.mark.parametrize(
    "condition",
    [
        Compare("=", N, Variable("x")),
        Compare("=", N, Apply("f", (N,))),
        Compare("=", N, Count(RoleRef("Member"))),
        Compare("=", N, Combine("+", N, Constant(1))),
        Compare("=", N, Meta("instance")),
        Compare("=", N, Meta("client")),
        Starred(Compare("=", N, Constant(1))),
        Related("finalised"),
    ],
)
def test_a_condition_has_nothing_that_only_rolefiles_have(condition: Condition) -> None:
    with pytest.raises(BadExpression) as refused:
        check(condition, SCOPE)
    assert refused.value.remedy


def test_a_choice_of_nothing_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        InSet(N, ())
