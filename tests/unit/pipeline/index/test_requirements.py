"""Requirements in columns: their texts, distinct attribute sets, and a matrix of truths that is filled when asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from headgate.decide.check import check_requirement, match
from headgate.lang import parse_condition
from headgate.model.changes import SetAttribute
from headgate.model.errors import BadExpression, HeadgateError
from headgate.model.expressions import AllOf, Compare, Condition, Constant, InSet, Subject, all_of
from headgate.model.values import Kind, Value, micros
from headgate.pipeline import agreement
from headgate.pipeline.agreement import Sets, Truths
from headgate.pipeline.index import requirements as module
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.index.requirements import required, required_texts, requirement_of, text_of
from headgate.pipeline.log.codec import LogBatch, decode, event_batch, from_blob, layouts
from headgate.pipeline.match import DecisionWindow, Matcher
from headgate.pipeline.spark.decider import decide_appends
from headgate.pipeline.truth import Frame, Truth, truth
from strategies.conditions import conditions, values
from strategies.running import examples
from strategies.small import NOON, chase, grant, seen, wish, world
from strategies.stored import encode

ONE, TWO = parse_condition("$n = 1"), parse_condition("$n = 2")
SUBJECTS = ("a", "b")
ATTRIBUTES = st.dictionaries(st.sampled_from(SUBJECTS), st.sampled_from(tuple(Kind)).flatmap(values), max_size=2)
RULES = conditions({}, depth=2, subjects=SUBJECTS, meta=False)


def numbers(*found: int) -> np.ndarray:
    return np.array(found, np.int64)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many attribute sets the evaluator is asked, each time that it is."""
    asked: list[int] = []

    def counting(condition: Condition, frame: Frame, need: np.ndarray) -> Truth:
        asked.append(len(need))
        return truth(condition, frame, need)

    monkeypatch.setattr(agreement, "truth", counting)
    return asked


# -- text ---------------------------------------------------------------------------------------------------------


@examples(150)
@given(RULES)
def test_a_requirement_reads_back_as_it_was(rule: Condition) -> None:
    assert repr(requirement_of(text_of(rule))) == repr(rule)


def test_what_would_read_back_otherwise_is_refused() -> None:
    nested = AllOf((AllOf((ONE, TWO)), ONE))
    with pytest.raises(BadExpression):
        text_of(nested)
    refusals: dict[int, HeadgateError] = {}
    found = required([ONE, nested, None], refusals)
    assert found is not None
    assert found.codes.tolist() == [0, -1, -1]
    assert list(refusals) == [1]


@examples(150)
@given(RULES, st.frozensets(st.sampled_from(SUBJECTS)))
def test_a_requirement_is_looked_through_once_and_judged_as_by_the_specification(
    rule: Condition, private: frozenset[str]
) -> None:
    def judged(check: Callable[[Condition, frozenset[str]], None]) -> str | None:
        try:
            check(rule, private)
        except HeadgateError as error:
            return str(error)
        return None

    expected = judged(check_requirement)
    assert [judged(module.check), judged(module.check)] == [expected, expected]


def test_equal_requirements_that_mean_something_else_are_two() -> None:
    rules = [InSet(Subject("n"), (1,)), InSet(Subject("n"), (True,)), InSet(Subject("n"), (1,)), None]
    assert rules[0] == rules[1]
    found = required(rules)
    assert found is not None
    assert found.codes.tolist() == [0, 1, 0, -1]
    assert found.column(numbers(3, 1, 0)).to_pylist() == [None, found.texts[1], found.texts[0]]
    assert required([None, None]) is None


def test_texts_from_outside_are_parsed_once_and_refuse_only_their_events(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: dict[int, HeadgateError] = {}
    found = required_texts(pa.array(["$n=1", None, "$n = 1", "n n", "$n = 2", "n n"]), refusals)
    assert found is not None
    assert found.codes.tolist() == [0, -1, 0, -1, 1, -1]
    assert {row: error.code for row, error in refusals.items()} == {3: "bad-expression", 5: "bad-expression"}
    assert required_texts(pa.nulls(2, pa.string()), refusals) is None
    monkeypatch.setattr(module, "MAX_REQUIREMENTS", 1)
    with pytest.raises(BadExpression, match="MAX_REQUIREMENTS"):
        required_texts(pa.array(["$n = 1", "$n = 2"]), {})


# -- the log ------------------------------------------------------------------------------------------------------


def test_the_log_holds_each_text_once_and_gives_back_what_was_stamped() -> None:
    known = world()
    events = [
        replace(seen(speed=1), requires=ONE, rate=4, origin="10.0.0.1"),
        seen(speed=2),
        replace(seen(speed=3), requires=ONE, origin="10.0.0.1"),
        replace(chase(unit="u"), requires=TWO, rate=2**40),
    ]
    places = layouts(known.now.types)
    blob = encode(events, places)
    table = from_blob(blob)
    assert table.column("requires").combine_chunks().dictionary.to_pylist() == ["$n = 1", "$n = 2"]
    found = decode(LogBatch("main", 1, 4, 2, micros(NOON), blob), places)
    assert [(e.requires, e.rate, e.origin) for e in found] == [(e.requires, e.rate, e.origin) for e in events]
    plain = from_blob(encode([seen(), seen()], places))
    assert {"requires", "rate", "origin"}.isdisjoint(plain.column_names)


def test_appends_with_and_without_requirements_go_together() -> None:
    known = world()
    places = layouts(known.now.types)
    appends = [[seen()], [replace(seen(), requires=TWO)], [replace(seen(), requires=ONE), seen(), seen()]]
    batches = [LogBatch("main", n, n, 2, 0, encode(events, places)) for n, events in enumerate(appends)]
    types = {name: n for n, name in enumerate(known.now.types)}
    batch = event_batch(batches, types, places, 1)
    found = batch.requirements()
    assert found is not None
    texts, codes = found
    assert [None if code < 0 else texts[code] for code in codes.tolist()] == [None, "$n = 2", "$n = 1", None, None]
    assert event_batch(batches[:1], types, places, 1).requirements() is None


# -- truths -------------------------------------------------------------------------------------------------------


@examples(200)
@given(st.lists(RULES, min_size=1, max_size=4), st.lists(ATTRIBUTES, min_size=1, max_size=5), st.booleans())
def test_the_matrix_says_what_one_by_one_says(
    rules: list[Condition], held: list[dict[str, Value]], small: bool
) -> None:
    sets = Sets()
    chosen = [sets.number_of(one) for one in held]
    truths = Truths(sets)
    mine = [truths.number(rule) for rule in rules]
    pairs = [(r, s) for r in range(len(rules)) for s in range(len(held))]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(agreement, "MAX_CELLS", 0 if small else 1 << 20)
        for _ in range(2):
            found = truths.hold(numbers(*(mine[r] for r, _ in pairs)), numbers(*(chosen[s] for _, s in pairs)))
            assert found.tolist() == [match(rules[r], held[s]) is True for r, s in pairs]
            truths.forget(len(rules))


def test_attribute_sets_of_equal_looks_are_told_apart() -> None:
    sets = Sets()
    found = [sets.number_of(one) for one in ({}, {"n": 1}, {"n": True}, {"n": 1.0}, {"n": 1}, {"m": 1})]
    assert found == [0, 1, 2, 3, 1, 4]


def test_a_rule_is_worked_out_once_for_all_sets_whose_attributes_have_the_same_kinds(counted: list[int]) -> None:
    rule = parse_condition("$n = 1")
    truths = Truths([{"n": n % 3, "name": str(n)} for n in range(300)] + [{"n": "1"}, {}])
    every = np.arange(302, dtype=np.int64)
    for _ in range(2):
        assert truths.hold(np.full(302, truths.number(rule)), every).sum() == 100
    assert counted == [300, 1, 1]


def test_rules_of_batches_are_let_go_and_those_of_the_index_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    truths = Truths([{"n": 1}, {"n": 2}])
    own = truths.number(ONE)
    assert truths.hold(numbers(own, own), numbers(0, 1)).tolist() == [True, False]
    for n in range(5):
        truths.number(Compare("=", Subject("n"), Constant(n + 10)))
    monkeypatch.setattr(agreement, "MAX_CELLS", 4)
    truths.forget(1)
    assert truths.size == 1
    assert truths.number(TWO) == 1
    assert truths.hold(numbers(own, 1, 1), numbers(1, 1, 0)).tolist() == [False, True, False]


# -- the matcher --------------------------------------------------------------------------------------------------


def test_requirements_are_put_to_attribute_sets_and_never_to_pairs(counted: list[int]) -> None:
    people = ("anna", "bob", "owner", "police")
    known = world(
        *(SetAttribute(who, "rank_here", n % 2) for n, who in enumerate(people)),
        *(change for who in people for change in (grant(f"r{who}", who), wish(f"s{who}", who), wish(f"t{who}", who))),
    )
    rules = [all_of(parse_condition("$rank_here = 1"), parse_condition(f"$x{n} is null")) for n in range(2)]
    events = [replace(seen(speed=n), requires=rules[n % 2]) for n in range(50)]
    batch = LogBatch("main", 1, 50, known.version, micros(NOON), encode(events, layouts(known.now.types)))
    matcher = Matcher(IndexBuilder(known).index(0, known.version), {})
    (found,) = decide_appends(matcher, [batch], DecisionWindow(0, known.version))
    assert found.count == 50 * 2 * 2
    assert counted == 2 * [1, 2]  # each of two rules: nobody's, and those of two ranks
