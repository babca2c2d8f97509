"""What is warned of: nothing that is called never signalling ever signals; each warning has its place."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import composites
from tests.strategies.composites import SILLY, STATE, event, seconds

from headgate.decide.blocks import detect
from headgate.decide.composite import Complete, signals
from headgate.decide.composite_check import Resolved, resolve
from headgate.lang.composite import parse_composite
from headgate.model import composite as model
from headgate.model.composite import Composite
from headgate.model.values import EPOCH, Value
from strategies.running import examples

NEVER: dict[str, tuple[str, str, str]] = {
    "a test and its contrary": ("A(x) {x > 2, x < 2}", "column 7", "contradicts"),
    "no integer between": ("A(x) {x > 1, x < 2}", "column 7", "contradicts"),
    "an empty range": ("A(x) {x in 3..2}", "column 7", "contradicts"),
    "tests of two templates": ("A(x) {x = 1}; B(x) {x = 2}", "column 21", "contradicts"),
    "both sides of | say so": ("(A(x) {x = 1} | B(x) {x = 1}); A(x) {x > 1}", "column 38", "contradicts"),
    "what was assigned": ("A(x) {n <- 3}; B(y) {y > n, n < 2}", "column 22", "contradicts"),
    "the time of one event": ("A(x) {@ < 3, @ > 4}", "column 7", "contradicts"),
    "a timer at the start": ("AbsTime(0)", "column 1", "never after its start"),
    "a timer of the same moment": ("A(x) {t <- @}; AbsTime(t)", "column 16", "never after its start"),
    "timers that go back": ("AbsTime(9); AbsTime(3)", "column 13", "never after its start"),
    "earlier than what came before": ("A(x) {t <- @}; B(y) {@ < t}", "column 22", "order of times"),
    "as early as what came before": ("A(x) {t <- @}; B(y) {@ = t}", "column 22", "order of times"),
    "before a timer that has fired": ("AbsTime(9); A(x) {@ <= 9}", "column 19", "order of times"),
    "later than it is": ("A(x) {t <- @ + 5}; AbsTime(t); B(y) {@ < t}", "column 38", "order of times"),
    "without itself": ("A(x) - A(x)", "column 8", "a tie kills"),
    "without any of it": ("$A(x) {x > 3} - A(*)", "column 17", "a tie kills"),
    "a free name on the right": ("C(x, y) - C(x, z)", "column 11", "a tie kills"),
    "two free names for one": ("C(x, x) - C(y, z)", "column 11", "a tie kills"),
    "a sequence without its first": ("(A(x); B(x)) - A(*)", "column 16", "a tie kills"),
    "a sequence without its last": ("(null; B(x)) - B(*)", "column 16", "a tie kills"),
    "one of two that kill": ("A(x) - (B(x) | $A(*))", "column 9", "a tie kills"),
    "what comes after": ("(A(x) - A(x)); B(x)", "column 9", "a tie kills"),
    "all that is repeated": ("$(A(x) - A(x))", "column 10", "a tie kills"),
    "a count without an end": ("count ($A(x))", "column 1", "has none"),
    "a count that null ends": ("sum x ($A(x) - null)", "column 1", "has none"),
    "a block that accepts nothing": ("{ int n = 0; expr: A(x) event: n = n + 1; }", "column 1", "accept"),
    "an end that does not come": ("{ expr: $A(x) event: kill hd.tl end: accept hd; }", "column 1", "accept"),
    "a block of nothing": ("{ expr: AbsTime(0) event: accept hd; }", "column 9", "never after its start"),
}
SOMETIMES = (
    "A(x)", "A(x) {x > 1, x < 3}", "null - A(x)", "null - null", "Row(x, y) - Row(*, *)", "A(x) - A(2)",
    "A(*) - A(x)", "C(z, z); (C(x, y) - C(x, z))", "A(x); (C(y, z) - C(x, z))", "(A(x) | B(x) {x = 2}); A(x) {x = 1}",
    "A(x) {t <- @}; Row(x, y) {@ <= t}", "AbsTime(3); AbsTime(9)", "A(x) {t <- @ + 2}; B(y) {@ < t}",
    "count ($A(x) - B(x))", "first ($A(x))", "A(x) - AbsTime(0)", "A(x) - (A(x) - A(x))",
    "$null; A(x)", "(Row(x, y); A(x)) - Row(*, *)", "A(x) {x > 1.5}; B(x) {x < 2.5}",
)  # fmt: skip


def checked(text: str, bound: dict[str, Value] | None = None) -> Resolved:
    return resolve(parse_composite(text), STATE, bound)


@pytest.mark.parametrize("name", NEVER)
def test_what_can_never_signal_is_warned_of_with_its_place(name: str) -> None:
    text, place, words = NEVER[name]
    found = checked(text)
    assert found.never
    assert [one for one in found.warnings if f"{place}: " in one and words in one], found.warnings


@pytest.mark.parametrize("text", SOMETIMES)
def test_what_may_signal_is_not(text: str) -> None:
    assert not checked(text).never


def test_what_is_given_beforehand_counts() -> None:
    assert checked("A(x) {x > 1}", {"x": 1}).never
    assert not checked("C(x, y) - C(x, z)", {"z": 1}).never


def test_a_timer_before_the_start_that_is_given() -> None:
    c = parse_composite("AbsTime(5); A(x)")
    assert [resolve(c, STATE, None, seconds(at)).never for at in (4, 5, 6)] == [False, True, True]


@pytest.mark.parametrize("text", ["$A(x); $B(y)", "{ int n = 0; expr: $A(x) event: n = n + 1; end: accept hd; }"])
def test_what_may_grow_without_bound_is_warned_of(text: str) -> None:
    assert any("grow without bound" in one for one in checked(text).warnings)


@pytest.mark.parametrize("text", ["A(x) - null", "null - A(x)", "$A(x) - (null | null)"])
def test_a_minus_that_changes_nothing_is_warned_of(text: str) -> None:
    found = checked(text)
    assert not found.never
    assert any("changes nothing" in one for one in found.warnings)


def test_the_first_row_on_the_right_of_a_minus_may_hide_those_that_kill() -> None:
    rows = [event("Row", 1, 1, 7, seq=1), event("A", 2, 1), event("Row", 3, 2, 8, seq=2), event("A", 4, 1)]
    for text, times in (("A(*); ($A(x) - Row(*, *))", [4]), ("A(*); ($A(x) - $Row(*, *))", [])):
        found = checked(text)
        assert any("write `$`" in one for one in found.warnings) is bool(times)
        assert [s.time for s in signals(found.composite, EPOCH, (), Complete(rows))] == [seconds(t) for t in times]


def test_nothing_is_said_of_the_examples_of_the_thesis() -> None:
    for text in (
        "$Seen(b, r1); Seen(b, r) - Seen(b, r1)",
        "$Seen(a, r); $Seen(b, r) - Seen(a, r1)",
        "$Open(x); count ($Deposit(x, a) - Close(x))",
    ):
        assert checked(text).warnings == ()


ARRIVALS = composites.arrivals()
"""Drawn only for what is said to never signal, which few are."""


@examples(600)
@given(composites.accepted(blocks=False, sides=SILLY), st.data())
def test_what_can_never_signal_has_no_meaning(c: Composite, data: st.DataObject) -> None:
    if resolve(c, STATE).never:
        _, moments = data.draw(ARRIVALS)
        known = Complete(one for moment in moments for one in moment.occurrences)
        assert signals(c, EPOCH, (), known) == frozenset()


@examples(300)
@given(composites.accepted(blocks=True, sides=SILLY), st.data())
def test_what_can_never_signal_never_does(c: Composite, data: st.DataObject) -> None:
    if resolve(c, STATE).never:
        streams, moments = data.draw(ARRIVALS)
        assert detect(c, EPOCH, (), moments, streams)[-1] == frozenset()


def likely(c: Composite, chance: random.Random) -> Composite:
    """The same with probabilities, where clocks may be wrong; below `$` they stay out."""
    match c:
        case model.Sequence(left, right) | model.Without(left, right):
            asked = chance.choice([None, 0.1, 0.9])
            return replace(c, left=likely(left, chance), right=likely(right, chance), probability=asked)
        case model.Either(left, right):
            return model.Either(likely(left, chance), likely(right, chance))
        case _:
            return c


@examples(200)
@given(composites.accepted(blocks=False, sides=SILLY), st.randoms(use_true_random=False), st.data())
def test_nor_does_it_where_clocks_are_wrong(c: Composite, chance: random.Random, data: st.DataObject) -> None:
    c = likely(c, chance)
    if resolve(c, STATE).never:
        known, moments = data.draw(ARRIVALS)
        streams = {name: replace(facts, error=2.0) for name, facts in known.items()}
        assert detect(c, EPOCH, (), moments, streams)[-1] == frozenset()


def test_a_row_that_is_there_is_not_killed_by_a_tie() -> None:
    c = checked("A(*); (Row(x, y) - Row(*, *))").composite
    known = Complete([event("Row", 1, 1, 7), event("A", 2, 1)])
    assert len(signals(c, EPOCH, (), known)) == 1
