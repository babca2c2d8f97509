"""Clauses as rows: equalities, bounds, bitmasks, and the rare rest.

Guarantees: the rows of a clause hold on exactly the events on which the clause holds. What a slot can hold is compared
there, exactly (an int bound on a float slot becomes the nearest double on the right side); everything else goes to
the rest, which `rest` evaluates. A clause that no event can meet has no rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from headgate.decide.normal import EVERYTHING, Bounds, Clause, Literal, Span, Term, clauses
from headgate.model.conditions import Attribute, ClockPart, Condition, Meta, operands
from headgate.model.errors import BadExpression
from headgate.model.values import INT_MAX, INT_MIN, Kind, Value, micros
from headgate.pipeline.index.layout import PUBLISHER, RATE, TIME, AttributeSlot, Slot, mask_of

MAX_EXPANSION = 16
"""A clause with `in {...}` becomes at most this many rows; larger sets are looked up in the rest."""

Held: TypeAlias = int | float | str | bytes
Where: TypeAlias = tuple[tuple[str, AttributeSlot], ...]

_FLOAT_MAX = math.inf
_STAMPED: Mapping[Meta, tuple[Slot, Kind]] = {
    Meta("time"): (TIME, Kind.TIMESTAMP),
    Meta("publisher"): (PUBLISHER, Kind.STRING),
    Meta("rate"): (RATE, Kind.INT),
}


@dataclass(frozen=True, slots=True)
class TermBounds:
    """Bounds that no slot comparison expresses: text ranges, exclusions, large sets, parts of the clock."""

    term: Term
    bounds: Bounds
    where: Where


@dataclass(frozen=True, slots=True)
class RestLiteral:
    """A literal of the rest, with the places of the attributes it names."""

    literal: Literal
    where: Where


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole condition that must be true, or false: one whose normal form is too large, as a chain may add up to.

    Python takes some conditions for equal that are not; `exact` tells them apart.
    """

    condition: Condition
    want: bool
    where: Where
    exact: str


Rest: TypeAlias = TermBounds | RestLiteral | Whole


@dataclass(frozen=True, slots=True)
class ClauseRow:
    """One row: all of these must hold."""

    equal: tuple[tuple[Slot, Held], ...]
    ranges: tuple[tuple[Slot, int | float, int | float], ...]
    need: tuple[int, ...]
    null: tuple[int, ...]
    rest: tuple[Rest, ...]


def rows_of(condition: Condition, want: bool, layout: Mapping[str, AttributeSlot], words: int) -> list[ClauseRow]:
    """The rows that hold where a condition's truth is `want`, over a type with this layout."""
    try:
        normal = clauses(condition, {name: place.kind for name, place in layout.items()}, want=want)
    except BadExpression:
        none = (0,) * words
        return [ClauseRow((), (), none, none, (Whole(condition, want, tuple(layout.items()), repr(condition)),))]
    return [row for clause in normal for row in lower(clause, layout, words)]


def lower(clause: Clause, layout: Mapping[str, AttributeSlot], words: int) -> list[ClauseRow]:
    """The rows of a clause over a type with this layout."""
    need: list[int] = []
    null: list[int] = []
    choices: list[tuple[Slot, list[Held]]] = []
    ranges: list[tuple[Slot, int | float, int | float]] = []
    rest: list[Rest] = []
    for term, asked in clause.bounds.items():
        bounds = _rated(asked) if term == Meta("rate") else asked
        if isinstance(term, Attribute):
            (null if bounds.null else need).append(layout[term.name].bit)
            if bounds.null:
                continue
        if isinstance(term, ClockPart):
            rest.append(TermBounds(term, bounds, _places(term, layout)))
            continue
        slot, kind = _slot(term, layout)
        if bounds.only is not None:
            held = [h for h in (_held(v, kind) for v in sorted(bounds.only, key=repr)) if h is not None]
            if not held:
                return []
            choices.append((slot, held))
            continue
        if bounds.without:
            rest.append(TermBounds(term, Bounds(without=bounds.without), _places(term, layout)))
        if bounds.span == EVERYTHING:
            continue
        if slot.store in "sy":
            rest.append(TermBounds(term, Bounds(span=bounds.span), _places(term, layout)))
            continue
        low, high = _ends(bounds.span, kind)
        if low > high:
            return []
        ranges.append((slot, low, high))
    for literal in clause.rest:
        names = [o.of if isinstance(o, ClockPart) else o for o in operands(literal.atom)]
        where = tuple((o.name, layout[o.name]) for o in names if isinstance(o, Attribute) and o.name in layout)
        rest.append(RestLiteral(literal, where))
    return _rows(choices, ranges, need, null, rest, layout, words)


def _rows(
    choices: list[tuple[Slot, list[Held]]],
    ranges: list[tuple[Slot, int | float, int | float]],
    need: list[int],
    null: list[int],
    rest: list[Rest],
    layout: Mapping[str, AttributeSlot],
    words: int,
) -> list[ClauseRow]:
    """One row for each combination of the small sets; large sets stay in the rest."""
    few: list[tuple[Slot, list[Held]]] = []
    rows = 1
    for slot, held in sorted(choices, key=lambda choice: len(choice[1])):
        if rows * len(held) <= MAX_EXPANSION:
            few.append((slot, held))
            rows *= len(held)
        else:
            rest.append(_large_set(slot, held, layout))
    few.sort()
    masks = tuple(mask_of(need, words)), tuple(mask_of(null, words))
    return [
        ClauseRow(
            tuple(zip((slot for slot, _ in few), values, strict=True)), tuple(sorted(ranges)), *masks, tuple(rest)
        )
        for values in itertools.product(*(held for _, held in few))
    ]


def _rated(bounds: Bounds) -> Bounds:
    """Bounds on `@rate` where null is 0: whatever is compared with it is 1 or more."""
    if bounds.null:
        return Bounds(only=frozenset({0}))
    if bounds.only is not None:
        return Bounds(only=frozenset(v for v in bounds.only if isinstance(v, int) and v >= 1))
    return Bounds(span=bounds.span.meet(Span(low=1)), without=bounds.without)


def _large_set(slot: Slot, held: list[Held], layout: Mapping[str, AttributeSlot]) -> TermBounds:
    for meta, stamped in _STAMPED.items():
        if slot == stamped[0]:
            return TermBounds(meta, Bounds(only=frozenset(held)), ())
    name, place = next((n, p) for n, p in layout.items() if p.slot == slot)
    return TermBounds(Attribute(name), Bounds(only=frozenset(held)), ((name, place),))


def _places(term: Term, layout: Mapping[str, AttributeSlot]) -> Where:
    of = term.of if isinstance(term, ClockPart) else term
    return ((of.name, layout[of.name]),) if isinstance(of, Attribute) else ()


def _slot(term: Attribute | Meta, layout: Mapping[str, AttributeSlot]) -> tuple[Slot, Kind]:
    if isinstance(term, Attribute):
        return layout[term.name].slot, layout[term.name].kind
    return _STAMPED[term]


def _held(value: Value, kind: Kind) -> Held | None:
    """A value to be equal to, as the slot holds it; None if the slot can never hold it."""
    match kind:
        case Kind.TIMESTAMP:
            return micros(value) if isinstance(value, datetime) else None
        case Kind.BOOL:
            return int(value) if isinstance(value, bool) else None
        case Kind.INT:
            return value if isinstance(value, int) and INT_MIN <= value <= INT_MAX else None
        case Kind.FLOAT:
            assert isinstance(value, (int, float))
            near = _float(value)
            return near + 0.0 if near == value else None  # + 0.0 makes -0.0 the same as 0.0
        case _:
            return value if isinstance(value, (str, bytes)) else None


def _ends(span: Span, kind: Kind) -> tuple[int | float, int | float]:
    """A span as closed ends of the slot's own numbers."""
    if kind is Kind.FLOAT:
        return _float_end(span.low, span.low_open, up=True), _float_end(span.high, span.high_open, up=False)
    low = INT_MIN if span.low is None else _whole(span.low) + span.low_open
    high = INT_MAX if span.high is None else _whole(span.high) - span.high_open
    if low > INT_MAX or high < INT_MIN:
        return 1, 0
    return max(low, INT_MIN), min(high, INT_MAX)


def _whole(value: Value) -> int:
    if isinstance(value, datetime):
        return micros(value)
    assert isinstance(value, int)
    return int(value)


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _float_end(value: Value, is_open: bool, *, up: bool) -> float:
    """The outermost double inside an end."""
    if value is None:
        return -math.inf if up else math.inf
    assert isinstance(value, (int, float))
    near, away = _float(value), math.inf if up else -math.inf
    outside = near < value if up else near > value
    return math.nextafter(near, away) if outside or (is_open and near == value) else near
