"""The rare rest of a clause, evaluated over columns.

Guarantees: `holds` agrees with `decide.truth` on every row it is asked about. It works on whole columns or on their
distinct values; only generic predicates run event by event.
The mask of a clause has already made sure that every term is non-null, so what is left is two-valued; a predicate
alone may also answer unknown, which never holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide.normal import Bounds
from headgate.decide.truth import PredicateFunction, World, call, clock_part, has_token, related, truth
from headgate.model.changes import Row
from headgate.model.conditions import (
    Attribute,
    ClockPart,
    Compare,
    Constant,
    InGroup,
    Meta,
    Operand,
    Predicate,
    Related,
    Subject,
    TextMatch,
    foreign,
    plain,
)
from headgate.model.events import Event
from headgate.model.state import State
from headgate.model.values import INT_MAX, INT_MIN, Kind, Value, moment
from headgate.pipeline.index.shapes import Rest, RestLiteral, TermBounds, Where, Whole
from headgate.pipeline.log.codec import (
    PUBLISHER,
    RATE,
    TIME,
    AttributeSlot,
    EventBatch,
    Flags,
    Ints,
    Slot,
    Words,
    restored,
)
from headgate.pipeline.truth import compare_columns, compare_number, compare_texts, flags, number


@dataclass
class RestFacts:
    """What the rest may look at besides the events: groups and relations of one version, and the predicates."""

    groups: Mapping[str, frozenset[str]]
    relations: Mapping[str, frozenset[Row]]
    predicates: Mapping[str, PredicateFunction] = field(default_factory=dict)


@dataclass
class RowsAsked:
    """Rows of a batch to evaluate, with what is visible of each when a filter asks (None: the full event)."""

    batch: EventBatch
    rows: Ints
    facts: RestFacts
    layouts: list[Mapping[str, AttributeSlot]]
    type_names: list[str]
    visible: Words | None = None


def holds(rest: Rest, asked: RowsAsked) -> Flags:
    """Which of the rows meet this part of a clause?"""
    match rest:
        case TermBounds(term, bounds, where):
            return _bounds(term, bounds, dict(where), asked)
        case RestLiteral(literal, where):
            return _literal(literal.atom, literal.want, where, asked)
        case Whole():
            return _whole(rest, asked)
        case _:
            assert_never(rest)


def _bounds(term: Operand, bounds: Bounds, where: Mapping[str, AttributeSlot], asked: RowsAsked) -> Flags:
    column = _column(term, where, asked)
    if isinstance(column, pa.Array):
        return _text_bounds(column, bounds)
    ok = np.ones(len(column), np.bool_)
    only, without, span = bounds.only, bounds.without, bounds.span
    if only is not None:
        wanted = [n for n in map(number, only) if column.dtype != np.int64 or INT_MIN <= n <= INT_MAX]
        ok &= np.isin(column, np.array(wanted, column.dtype))
    for value in without:
        ok &= ~compare_number("=", column, number(value))
    if span.low is not None:
        ok &= compare_number(">" if span.low_open else ">=", column, number(span.low))
    if span.high is not None:
        ok &= compare_number("<" if span.high_open else "<=", column, number(span.high))
    return ok


def _text_bounds(column: pa.Array, bounds: Bounds) -> Flags:
    ok = np.ones(len(column), np.bool_)
    only, without, span = bounds.only, bounds.without, bounds.span
    if only is not None:
        ok &= flags(pc.is_in(column, value_set=pa.array(list(only), column.type)))
    if without:
        ok &= ~flags(pc.is_in(column, value_set=pa.array(list(without), column.type)))
    if span.low is not None:
        ok &= compare_texts(">" if span.low_open else ">=", column, span.low)
    if span.high is not None:
        ok &= compare_texts("<" if span.high_open else "<=", column, span.high)
    return ok


def _literal(atom: Any, want: bool, where: Where, asked: RowsAsked) -> Flags:
    places = dict(where)
    match atom:
        case Predicate(name, args):
            return _predicate(name, args, want, places, asked)
        case Compare(op, left, right):
            a, b = _column(left, places, asked), _column(right, places, asked)
            truths = compare_texts(op, a, b) if isinstance(a, pa.Array) else compare_columns(op, a, b)
        case TextMatch(op, left, right):
            truths = _text_match(op, left, right, places, asked)
        case InGroup(operand, group):
            members = pa.array(sorted(asked.facts.groups.get(group, ())), pa.string())
            truths = flags(pc.is_in(_column(operand, places, asked), value_set=members))
        case Related(relation, args):
            rows = asked.facts.relations.get(relation, frozenset())
            truths = _distinct(args, places, asked, lambda *values: related(rows, values) is True)
        case _:
            raise TypeError(f"not of the rest: {atom}")
    return truths if want else ~truths


def _text_match(op: str, left: Operand, right: Operand, places: Mapping[str, AttributeSlot], asked: RowsAsked) -> Flags:
    if isinstance(right, Constant) and op != "has token":
        column = _column(left, places, asked)
        if op == "starts with":
            return flags(pc.starts_with(column, str(right.value)))
        return flags(pc.match_substring(column, str(right.value)))
    tests: Mapping[str, Callable[[str, str], bool]] = {
        "starts with": str.startswith,
        "contains": str.__contains__,
        "has token": has_token,
    }
    return _distinct((left, right), places, asked, tests[op])


def _distinct(
    args: tuple[Operand, ...], places: Mapping[str, AttributeSlot], asked: RowsAsked, test: Callable[..., bool]
) -> Flags:
    """A test once for each distinct combination of values."""
    memo: dict[tuple[Any, ...], bool] = {}
    columns = [_values(arg, places, asked) for arg in args]
    results = np.zeros(len(asked.rows), np.bool_)
    for at, values in enumerate(zip(*columns, strict=True)):
        key = tuple((type(v), v) for v in values)
        if key not in memo:
            memo[key] = test(*values)
        results[at] = memo[key]
    return results


def _predicate(
    name: str, args: tuple[Operand, ...], want: bool, places: Mapping[str, AttributeSlot], asked: RowsAsked
) -> Flags:
    function = asked.facts.predicates.get(name)
    return np.fromiter(
        (call(function, event, tuple(_value(arg, places, event) for arg in args)) is want for event in _events(asked)),
        np.bool_,
        len(asked.rows),
    )


def _whole(rest: Whole, asked: RowsAsked) -> Flags:
    """A condition that is too large for rows, event by event."""
    facts = asked.facts
    state = State(groups=facts.groups, relations=facts.relations)
    kinds = {name: place.kind for name, place in rest.where}
    world = World(state, {}, facts.predicates, kinds)
    found = (truth(rest.condition, event, world) is rest.want for event in _events(asked))
    return np.fromiter(found, np.bool_, len(asked.rows))


def _events(asked: RowsAsked) -> Iterator[Event]:
    """The rows as events, with what is visible of each."""
    taken = asked.batch.table.take(pa.array(asked.rows)).to_pylist()
    for at, (row, held) in enumerate(zip(asked.rows.tolist(), taken, strict=True)):
        number = int(asked.batch.type[row])
        values: dict[str, Value] = {}
        for attribute, place in asked.layouts[number].items():
            value = restored(held.get(place.slot.column), place.kind)
            if asked.visible is not None and not (int(asked.visible[at, place.bit >> 6]) >> (place.bit & 63)) & 1:
                value = None
            values[attribute] = value
        time = moment(int(asked.batch.time[row]))
        yield Event("", held["publisher"], asked.type_names[number], values, time, rate=held.get("rate"))


def _value(operand: Operand, places: Mapping[str, AttributeSlot], event: Event) -> Value:
    match operand:
        case Attribute(name):
            return event.values.get(name) if name in places else None  # not of the named type: null (D3)
        case Meta("time"):
            return event.time
        case Meta("rate"):
            return event.rate
        case Meta("origin"):
            raise TypeError("the origin is bound before lowering")
        case Meta():
            return event.publisher
        case Constant(value):
            return plain(value)
        case ClockPart(part, of, zone):
            at = _value(of, places, event)
            return clock_part(part, at, zone) if isinstance(at, datetime) else None
        case Subject():
            raise TypeError("subject attributes are bound before lowering")
        case _:
            raise foreign(operand)


def _column(operand: Operand, places: Mapping[str, AttributeSlot], asked: RowsAsked) -> Any:
    """An operand over the rows: numpy for numbers, Arrow for text."""
    match operand:
        case Attribute(name):
            return _slot_column(places[name].slot, asked)
        case Meta("time"):
            return _slot_column(TIME, asked)
        case Meta("rate"):
            return _slot_column(RATE, asked)
        case Meta("origin"):
            raise TypeError("the origin is bound before lowering")
        case Meta():
            return _slot_column(PUBLISHER, asked)
        case Constant(value):
            return _constant(plain(value), len(asked.rows))
        case ClockPart(part, of, zone):
            times, inverse = np.unique(_column(of, places, asked), return_inverse=True)
            parts = [clock_part(part, moment(t), zone) for t in times.tolist()]
            return np.array(parts, np.int64)[inverse]
        case Subject():
            raise TypeError("subject attributes are bound before lowering")
        case _:
            raise foreign(operand)


def _slot_column(slot: Slot, asked: RowsAsked) -> Any:
    if slot.store in "sy":
        return asked.batch.texts(slot).take(pa.array(asked.rows))
    return asked.batch.numbers(slot)[asked.rows]


def _constant(value: Value, size: int) -> Any:
    if isinstance(value, (str, bytes)):
        return pa.array([value] * size, pa.string() if isinstance(value, str) else pa.binary())
    return np.full(size, number(value))


def _values(operand: Operand, places: Mapping[str, AttributeSlot], asked: RowsAsked) -> list[Any]:
    """An operand over the rows as Python values."""
    column = _column(operand, places, asked)
    if isinstance(operand, Constant):
        return [operand.value] * len(asked.rows)
    kind = _kind(operand, places)
    return [restored(held, kind) for held in (column.to_pylist() if isinstance(column, pa.Array) else column.tolist())]


def _kind(operand: Operand, places: Mapping[str, AttributeSlot]) -> Kind:
    match operand:
        case Attribute(name):
            return places[name].kind
        case Meta("time"):
            return Kind.TIMESTAMP
        case Meta("publisher" | "origin"):
            return Kind.STRING
        case _:
            return Kind.INT
