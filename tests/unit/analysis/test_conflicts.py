"""Proofs without events: sound, and exact where the normal form is."""

from __future__ import annotations

import pytest

from headgate.analysis.entry_conditions import in_order, may_hold, opaque, over_event, without_others
from headgate.decide.normal import clauses
from headgate.lang import parse_condition, render_condition
from headgate.model.expressions import FALSE, TRUE, Condition, all_of, any_of
from headgate.model.limits import MAX_CHAIN_RIGHTS
from headgate.model.rights import Effect
from headgate.model.values import Kind

KINDS = {"a": Kind.INT, "b": Kind.STRING, "t": Kind.TIMESTAMP}
P = parse_condition


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        ([], "false"),
        (["+ a = 1"], "a = 1"),
        (["+ true", "- a = 1"], "true"),
        (["- true", "+ a = 1"], "false"),
        (["- a = 1"], "false"),
        (["- false", "+ a = 1"], "a = 1"),
        (["+ a = 1", "- a = 2", "+ true"], "a = 1 or not a = 2"),
        (["- a = 1", "+ a = 2", "+ true"], "not a = 1"),
    ],
)
def test_entries_in_order_as_one_condition(listed: list[str], shown: str) -> None:
    entries = [(Effect.GRANT if text[0] == "+" else Effect.FORBID, P(text[2:])) for text in listed]
    found = in_order(entries)
    assert found is not None
    assert render_condition(found) == shown


def test_too_many_forbids_are_not_combined() -> None:
    entries: list[tuple[Effect, Condition]] = [(Effect.FORBID, P(f"a = {n}")) for n in range(5000)]
    found = in_order([*entries, (Effect.GRANT, TRUE)])
    assert found is None
    assert may_hold(found, KINDS)


def test_what_is_too_large_may_hold() -> None:
    impossible = P("a = 1 and a = 2")
    large = [any_of(*(P(f"b contains '{m}.{n}'") for n in range(20))) for m in range(3)]
    assert may_hold(all_of(*large, impossible), KINDS)
    assert not may_hold(impossible, KINDS)
    assert not may_hold(FALSE, KINDS)
    assert may_hold(opaque("r"), KINDS)


def test_as_many_entries_as_chains_may_give_are_looked_at_together() -> None:
    entries: list[tuple[Effect, Condition]] = [
        (Effect.GRANT, P(f"a = {n} and b contains '{n}'")) for n in range(MAX_CHAIN_RIGHTS)
    ]
    found = in_order(entries)
    assert found is not None
    assert may_hold(found, KINDS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x = 1 and a = 1", "null = 1 and a = 1"),
        ("not (x is null) or x in {1}", "null is not null or null in {1}"),
        ("x in a..9", "null in a..9"),
        ("x starts with b or x in group g or R(x, b)", "null starts with b or null in group g or R(null, b)"),
        ("weekday(x) = 1", "null = 1"),
        ("predicate p(x, a)", "predicate p(null, a)"),
    ],
)
def test_attributes_of_other_types_are_null(text: str, shown: str) -> None:
    assert render_condition(without_others(P(text), KINDS)) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a is null", "true"),
        ("a is not null", "a is not null"),
        ("a in 2..5", "a is not null and a >= 2 and a <= 5"),
        ("b = 'x' and predicate p()", "b is not null and b in {'x'}"),
        ("b != 'x'", "b is not null and not b in {'x'}"),
        ("not (b contains 'x')", "b is not null and not b contains 'x'"),
    ],
)
def test_what_a_clause_over_a_view_says_of_the_event(text: str, shown: str) -> None:
    (clause,) = clauses(P(text), KINDS)
    assert render_condition(over_event(clause)) == shown
