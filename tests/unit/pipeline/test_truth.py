"""Conditions over columns have the truth that `decide` gives them row by row: true, false and unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.normal import bind
from headgate.decide.truth import World
from headgate.decide.truth import truth as reference
from headgate.model.events import Event
from headgate.model.expressions import (
    Attribute,
    ClockPart,
    Compare,
    Condition,
    Constant,
    InSet,
    Predicate,
    Related,
    Subject,
    TextMatch,
    all_of,
    any_of,
)
from headgate.model.state import State
from headgate.model.types import Catalog, EventType
from headgate.model.values import Kind, Value, compare, micros
from headgate.pipeline.index.build import types_of
from headgate.pipeline.index.index import Rest
from headgate.pipeline.log.codec import ARROW, STORE, LogBatch, event_batch, mask_of, stored
from headgate.pipeline.match import BatchRows, holds
from headgate.pipeline.truth import (
    ColumnRows,
    ConditionFacts,
    compare_columns,
    compare_number,
    prepared,
    truth,
)
from strategies.conditions import conditions, values
from strategies.predicates import ARITIES, FUNCTIONS
from strategies.running import examples
from strategies.stored import encode

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
KINDS: Mapping[str, Kind] = {
    "b": Kind.BOOL,
    "i": Kind.INT,
    "j": Kind.INT,
    "f": Kind.FLOAT,
    "g": Kind.FLOAT,
    "s": Kind.STRING,
    "r": Kind.STRING,
    "t": Kind.TIMESTAMP,
    "y": Kind.BYTES,
}
STATE = State(
    groups={"staff": frozenset({"anna", "crew"}), "crew": frozenset({"a", "cam"}), "none": frozenset()},
    relations={
        "R1": frozenset({("a",), (2,), (True,), (0.5,), (None,)}),
        "R2": frozenset({("a", 1), ("b", 2.0), (1, "a"), (True, b"\x00"), (2**53 + 1, 0.0)}),
    },
)
CONDITIONS = conditions(
    {**KINDS, "missing": Kind.INT, "gone": Kind.STRING},
    groups=("staff", "none"),
    relations={"R1": 1, "R2": 2},
    subjects=("u", "v"),
    predicates={**ARITIES, "unheard": 1},
)
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values(kind) for name, kind in KINDS.items()}), min_size=1, max_size=6
)
SUBJECT = st.dictionaries(st.sampled_from(("u", "v")), st.one_of([values(kind) for kind in Kind]))


def sent(rows: list[dict[str, Value]], kinds: Mapping[str, Kind] = KINDS) -> ColumnRows:
    """Rows as columns; an attribute that is null everywhere has none."""
    arrays = {}
    for name, kind in kinds.items():
        held = [stored(row[name], kind) for row in rows]
        if any(one is not None for one in held):
            arrays[name] = pa.array(held, ARROW[STORE[kind]])
    facts = ConditionFacts(World(STATE, {}, FUNCTIONS))
    return ColumnRows(kinds, arrays, facts, "t.T", "cam", NOW)


def same(
    condition: Condition,
    rows: list[dict[str, Value]],
    subject: Mapping[str, Value] | None = None,
    fixed: Mapping[str, Value] | None = None,
    kinds: Mapping[str, Kind] = KINDS,
) -> list[bool | None]:
    """The truth over columns, which must be that of `decide` row by row."""
    world = World(STATE, subject or {}, FUNCTIONS)
    frame = replace(sent(rows, kinds), fixed=fixed or {})
    found = truth(prepared(condition, subject or {}, kinds), frame, np.ones(len(rows), np.bool_))
    assert not (found.true & found.false).any()
    answers = [True if t else False if f else None for t, f in zip(found.true, found.false, strict=True)]
    events = [Event("e", "cam", "t.T", {**row, **(fixed or {})}, NOW) for row in rows]
    assert answers == [reference(condition, event, world) for event in events]
    return answers


@examples(240, soak=600)
@given(CONDITIONS, ROWS, SUBJECT, st.data())
def test_truth_agrees_with_decide(
    condition: Condition, rows: list[dict[str, Value]], subject: dict[str, Value], data: st.DataObject
) -> None:
    same(condition, rows, subject)
    names = data.draw(st.lists(st.sampled_from(list(KINDS)), max_size=3, unique=True))
    same(condition, rows, subject, {name: data.draw(st.none() | values(KINDS[name])) for name in names})


@examples(120, soak=300)
@given(CONDITIONS, ROWS, SUBJECT, st.data())
def test_truth_over_rows_of_a_batch_agrees_with_decide(
    condition: Condition, rows: list[dict[str, Value]], subject: dict[str, Value], data: st.DataObject
) -> None:
    """As a filter sees them, some attributes may be hidden; and some rows may not be asked about."""
    types = types_of(Catalog().declare(EventType("t.T", "o", KINDS)), 1)
    (layout,) = types.layouts
    rates = data.draw(st.lists(st.none() | st.integers(1, 3), min_size=len(rows), max_size=len(rows)))
    events = [Event("e", "cam", "t.T", row, NOW, rate=rate) for row, rate in zip(rows, rates, strict=True)]
    append = LogBatch("m", 1, len(rows), 1, micros(NOW), encode(events, {"t.T": layout}))
    batch = event_batch([append], types.numbers, {"t.T": layout}, 1)
    asked = np.array(data.draw(st.lists(st.sampled_from(range(len(rows))), max_size=8)), np.int64)
    hidden = [data.draw(st.none() | st.sets(st.sampled_from(list(KINDS))))] * len(asked)
    shown = [[name for name in KINDS if name not in (some or ())] for some in hidden]
    visible = np.array([mask_of([layout[n].bit for n in some], 1) for some in shown], np.uint64).reshape(len(asked), 1)
    facts = ConditionFacts(World(STATE, {}, FUNCTIONS))
    bound = bind(condition, subject, KINDS, Constant(None))
    seen = [
        replace(events[at], values={**events[at].values, **dict.fromkeys(some or ())})
        for at, some in zip(asked.tolist(), hidden, strict=True)
    ]
    world = World(STATE, subject, FUNCTIONS, KINDS)
    for want in (True, False):
        part = Rest.of(bound, want, layout)
        frame = BatchRows(
            batch, asked, facts, types, dict(part.where), visible if data.draw(st.booleans()) or any(hidden) else None
        )
        assert holds(part, frame).tolist() == [reference(condition, event, world) is want for event in seen]


NUMBERS = st.one_of(
    values(Kind.INT),
    values(Kind.FLOAT),
    st.sampled_from((2**63, 2**64 + 1, -(2**70), 2**53 + 1, 10**400, -(10**400), 9.3e18, -9.3e18, 0.5, -0.5)),
)


@examples(200, soak=500)
@given(
    st.sampled_from(("=", "!=", "<", "<=", ">", ">=")),
    st.lists(st.tuples(values(Kind.INT), values(Kind.FLOAT)), min_size=1, max_size=5),
    NUMBERS,
)
def test_numbers_compare_exactly(op: str, rows: list[tuple[Any, Any]], other: Any) -> None:
    ints, floats = np.array([a for a, _ in rows], np.int64), np.array([b for _, b in rows], np.float64)
    assert compare_number(op, ints, other).tolist() == [compare(op, a, other) for a, _ in rows]
    assert compare_number(op, floats, other).tolist() == [compare(op, b, other) for _, b in rows]
    assert compare_columns(op, ints, floats).tolist() == [compare(op, a, b) for a, b in rows]
    assert compare_columns(op, floats, ints).tolist() == [compare(op, b, a) for a, b in rows]


def row(**more: Value) -> dict[str, Value]:
    return {**dict.fromkeys(KINDS), **more}


INT, F, S, T = (Attribute(name) for name in "ifst")


@pytest.mark.parametrize(
    ("condition", "rows", "expected"),
    [
        (Compare(">", INT, Constant(2.5)), [row(i=2), row(i=3), row()], [False, True, None]),
        (Compare("<", INT, Constant(2**70)), [row(i=2**63 - 1), row()], [True, None]),
        (Compare("=", F, Constant(2**53 + 1)), [row(f=2.0**53)], [False]),
        (Compare("<", F, INT), [row(f=2.0**53, i=2**53 + 1), row(f=1.0)], [True, None]),
        (InSet(INT, (1.0, 2.5, 10**400)), [row(i=1), row(i=2), row()], [True, False, None]),
        (InSet(F, (1, 2**53 + 1, 10**400)), [row(f=1.0), row(f=2.0**53)], [True, False]),
        (Compare("<", S, Constant("\U0001f600")), [row(s="\uffff"), row(s="\U0001f601")], [True, False]),
        (TextMatch("has token", S, Constant("a")), [row(s="b a"), row(s="b\u00a0a"), row()], [True, False, None]),
        (TextMatch("has token", S, Constant("")), [row(s="b  a")], [False]),
        (TextMatch("contains", Constant("abc"), S), [row(s="b"), row(s="x"), row()], [True, False, None]),
        (Related("R2", (S, F)), [row(s="a", f=1.0), row(s="a", f=2.0), row(s="a")], [True, False, None]),
        (Related("R1", (Attribute("b"),)), [row(b=True), row(b=False), row()], [True, False, None]),
        (Compare("=", ClockPart("timeofday", T, "Europe/London"), Constant(9000)), [row(t=NOW), row()], [True, None]),
        (Compare("=", ClockPart("weekday", INT, "UTC"), Constant(1)), [row(i=1)], [None]),
        (Compare("=", INT, Subject("u")), [row(i=1)], [None]),
        (Compare("=", Attribute("missing"), Constant(1)), [row(i=1)], [None]),
        (all_of(Predicate("unheard"), Compare("=", INT, Constant(1))), [row(i=1), row(i=2)], [None, False]),
        (any_of(Predicate("unheard"), Compare("=", INT, Constant(1))), [row(i=1), row(i=2)], [True, None]),
    ],
)
def test_by_hand(condition: Condition, rows: list[dict[str, Value]], expected: list[bool | None]) -> None:
    assert same(condition, rows) == expected


def test_subjects_are_bound_first() -> None:
    with pytest.raises(TypeError, match="bound"):
        truth(Compare("=", INT, Subject("u")), sent([row(i=1)]), np.ones(1, np.bool_))


def test_a_type_without_attributes() -> None:
    assert same(Predicate("sees"), [{}, {}], kinds={}) == [True, True]
