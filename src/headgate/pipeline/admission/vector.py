"""Is a condition true, for many events at once? `decide.truth` over columns.

Guarantees: `truth` gives for every row that is asked about what `decide.truth` gives for the event of that row, by
Kleene's tables (D1). It works on whole columns; only generic predicates run event by event, and in a conjunction or
disjunction only for the rows that the rest has not settled.
Leaves out: subject attributes and comparisons of values of different kinds, which `prepared` takes out beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide import truth as reference
from headgate.decide.bind import bind
from headgate.decide.truth import clock_part, has_token
from headgate.model.changes import Row
from headgate.model.conditions import (
    MIRRORED,
    AllOf,
    AnyOf,
    Apply,
    Attribute,
    ClockPart,
    Combine,
    Compare,
    CompareOp,
    Condition,
    Constant,
    Count,
    InGroup,
    InRange,
    InSet,
    IsNull,
    Meta,
    Not,
    Operand,
    Predicate,
    Related,
    Starred,
    Subject,
    TextMatch,
    Variable,
    atoms,
    declared_kind,
    foreign,
    plain,
)
from headgate.model.values import INT_MAX, INT_MIN, Kind, Value, compare, moment
from headgate.pipeline.admission.compare import compare_columns, compare_number, compare_texts, flags, number
from headgate.pipeline.admission.frame import Column, Frame, Numbers, Same, Texts, family
from headgate.pipeline.index.layout import restored
from headgate.pipeline.log.codec import Flags, Ints

DOUBLE_MAX: Final = sys.float_info.max
_TEXT_TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "starts with": str.startswith,
    "contains": str.__contains__,
    "has token": has_token,
}


class Truth(NamedTuple):
    """The rows where a condition is true, and those where it is false; where it is neither, it is unknown."""

    true: Flags
    false: Flags


def prepared(condition: Condition, subject: Mapping[str, Value], kinds: Mapping[str, Kind]) -> Condition:
    """A condition as `truth` takes it: bound to one subject and type, with what needs a predicate asked last."""
    return _predicates_last(bind(condition, subject, kinds))


def truth(condition: Condition, frame: Frame, need: Flags) -> Truth:
    """The truth of a prepared condition on the rows that are needed; anything on the others."""
    match condition:
        case AllOf(args):
            true, false = _constant(True, len(need))
            for arg in args:
                part = truth(arg, frame, need & ~false)
                true, false = true & part.true, false | part.false
            return Truth(true, false)
        case AnyOf(args):
            true, false = _constant(False, len(need))
            for arg in args:
                part = truth(arg, frame, need & ~true)
                true, false = true | part.true, false & part.false
            return Truth(true, false)
        case Starred(arg):
            return truth(arg, frame, need)
        case Not(arg):
            inner = truth(arg, frame, need)
            return Truth(inner.false, inner.true)
        case Compare(op, left, right):
            return _compare(op, _column(left, frame), _column(right, frame), len(need))
        case InRange(operand, low, high):
            ends = Compare(">=", operand, low), Compare("<=", operand, high)
            return truth(AllOf(ends), frame, need)
        case InSet(operand, values):
            return _in_set(_column(operand, frame), values, len(need))
        case TextMatch(op, left, right):
            return _text_match(op, _column(left, frame), _column(right, frame), len(need))
        case IsNull(operand):
            column = _column(operand, frame)
            if isinstance(column, Same):
                return _constant(column.value is None, len(need))
            return Truth(~column.there, column.there)
        case InGroup(operand, group):
            return _in_group(_column(operand, frame), frame.facts.members(group), len(need))
        case Related(relation, args):
            return _related(frame.facts.rows(relation), args, frame, need)
        case Predicate():
            return _predicate(condition, frame, need)
        case _:
            assert_never(condition)


def _predicates_last(condition: Condition) -> Condition:
    match condition:
        case AllOf(args):
            return AllOf(tuple(sorted(map(_predicates_last, args), key=asks_predicate)))
        case AnyOf(args):
            return AnyOf(tuple(sorted(map(_predicates_last, args), key=asks_predicate)))
        case Not(arg):
            return Not(_predicates_last(arg))
        case atom:
            return atom


def asks_predicate(condition: Condition) -> bool:
    """Is some part of a condition put to the events one by one?"""
    return any(isinstance(atom, Predicate) for atom in atoms(condition))


def _column(operand: Operand, frame: Frame) -> Column:
    match operand:
        case Attribute(name):
            return frame.column(name)
        case Meta("time"):
            return Same(frame.sent.time)
        case Meta("rate"):
            return frame.sent.rate
        case Meta("origin"):
            return frame.sent.origin
        case Meta():
            return Same(frame.sent.publisher)
        case Constant(value):
            return Same(plain(value))
        case ClockPart(part, of, zone):
            return _clock_parts(part, _column(of, frame), zone)
        case Subject():
            raise TypeError("subject attributes are bound beforehand")
        case Variable() | Apply() | Count() | Combine():
            raise foreign(operand)
        case _:
            assert_never(operand)


def _clock_parts(part: str, column: Column, zone: str) -> Column:
    match column:
        case Same(datetime() as at):
            return Same(clock_part(part, at, zone))
        case Numbers(values, there):
            times, inverse = np.unique(values, return_inverse=True)
            parts = np.array([clock_part(part, moment(t), zone) for t in times.tolist()], np.int64)
            return Numbers(parts[inverse], there)
        case _:
            return Same(None)


def _compare(op: CompareOp, a: Column, b: Column, size: int) -> Truth:
    match a, b:
        case Same(x), Same(y):
            return _constant(compare(op, x, y), size)
        case Same(), _:
            return _compare(MIRRORED[op], b, a, size)
        case _, Same(None):
            return _constant(None, size)
        case Numbers(values, there), Same(y):
            return _where(compare_number(op, values, number(y)), there)
        case Texts(array, there), Same(str() | bytes() as y):
            return _where(compare_texts(op, array, y), there)
        case Numbers(values, there), Numbers(others, also):
            return _where(compare_columns(op, values, others), there & also)
        case Texts(array, there), Texts(other, also):
            return _where(compare_texts(op, array, other), there & also)
        case _:
            raise TypeError("kinds that do not compare are taken out beforehand")


def _in_set(column: Column, values: tuple[Value, ...], size: int) -> Truth:
    match column:
        case Same(x):
            answers = [compare("=", x, one) for one in values]
            return _constant(True if True in answers else None if None in answers else False, size)
        case Numbers(held, there):
            return _where(np.isin(held, _holdable(values, held.dtype)), there)
        case Texts(array, there):
            return _where(flags(pc.is_in(array, value_set=pa.array(values, array.type))), there)
        case _:
            assert_never(column)


def _holdable(values: tuple[Value, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The numbers that a column of this type can equal, as it holds them."""
    numbers: list[int | float] = []
    for value in map(number, values):
        if dtype == np.int64:
            if value == int(value) and INT_MIN <= value <= INT_MAX:
                numbers.append(int(value))
        elif -DOUBLE_MAX <= value <= DOUBLE_MAX and float(value) == value:
            numbers.append(float(value))
    return np.array(numbers, dtype)


def _text_match(op: str, text: Column, part: Column, size: int) -> Truth:
    match text, part:
        case Same(None), _:
            return _constant(None, size)
        case _, Same(None):
            return _constant(None, size)
        case Same(str() as x), Same(str() as y):
            return _constant(_TEXT_TESTS[op](x, y), size)
        case Texts(array, there), Same(str() as y) if op == "starts with":
            return _where(flags(pc.starts_with(array, y)), there)
        case Texts(array, there), Same(str() as y) if op == "contains":
            return _where(flags(pc.match_substring(array, y)), there)
        case _:
            return _text_tests(_TEXT_TESTS[op], text, part, size)


def _text_tests(test: Callable[[str, str], bool], text: Column, part: Column, size: int) -> Truth:
    """A test row by row, where both are there and, if the part is the same for all, the text contains it."""
    there = _there(text, size) & _there(part, size)
    hopeful = there
    if isinstance(text, Texts) and isinstance(part, Same):
        hopeful = there & flags(pc.match_substring(text.array, part.value))
    rows = np.flatnonzero(hopeful)
    found = np.zeros(size, np.bool_)
    found[rows] = [test(x, y) for x, y in zip(_listed(text, None, rows), _listed(part, None, rows), strict=True)]
    return _where(found, there)


def _in_group(column: Column, members: frozenset[str], size: int) -> Truth:
    match column:
        case Same(x):
            return _constant(x in members if isinstance(x, str) else None, size)
        case Texts(array, there):
            return _where(flags(pc.is_in(array, value_set=pa.array(sorted(members), pa.string()))), there)
        case _:
            raise TypeError("only text names a member; the rest is taken out beforehand")


def _related(known: frozenset[Row], args: tuple[Operand, ...], frame: Frame, need: Flags) -> Truth:
    truths = _constant(None, len(need))
    rows = np.flatnonzero(need)
    columns = [_listed(_column(arg, frame), declared_kind(arg, frame.sent.kinds), rows) for arg in args]
    for row, values in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
        if None not in values:
            (truths.true if tuple(map(family, values)) in known else truths.false)[row] = True
    return truths


def _predicate(asked: Predicate, frame: Frame, need: Flags) -> Truth:
    truths = _constant(None, len(need))
    rows = np.flatnonzero(need)
    for row, event in zip(rows.tolist(), frame.events(rows), strict=True):
        answer = reference.truth(asked, event, replace(frame.facts.world, origin=event.origin))
        if answer is not None:
            (truths.true if answer else truths.false)[row] = True
    return truths


def _constant(answer: bool | None, size: int) -> Truth:
    return Truth(np.full(size, answer is True), np.full(size, answer is False))


def _where(found: Flags, there: Flags) -> Truth:
    return Truth(found & there, ~found & there)


def _there(column: Column, size: int) -> Flags:
    return np.ones(size, np.bool_) if isinstance(column, Same) else column.there


def _listed(column: Column, kind: Kind | None, rows: Ints) -> list[Any]:
    """A column as values, row by row."""
    match column:
        case Same(value):
            return [value] * len(rows)
        case Texts(array, _):
            listed: list[Any] = array.take(pa.array(rows)).to_pylist()
            return listed
        case Numbers(values, there):
            pairs = zip(values[rows].tolist(), there[rows].tolist(), strict=True)
            return [restored(held, kind or Kind.INT) if is_there else None for held, is_there in pairs]
        case _:
            assert_never(column)
