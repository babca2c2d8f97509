"""Is a condition true, for many events at once? `decide.truth` over columns.

Guarantees: `truth` gives for every row that is asked about what `decide.truth` gives for the event of that row, by
Kleene's tables (D1). It works on whole columns; only generic predicates run event by event, and in a conjunction or
disjunction only for the rows that the rest has not settled. Columns are compared as `model.values.compare` compares
values: integers and doubles exactly, text by code point.
Leaves out: subject attributes and comparisons of values of different kinds, which `prepared` takes out beforehand.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide import truth as reference
from headgate.decide.bind import bind
from headgate.decide.truth import World, clock_part, has_token
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
from headgate.model.events import Event
from headgate.model.values import INT_MAX, INT_MIN, Kind, Value, compare, kind_of, micros, moment
from headgate.pipeline.log.codec import Flags, Ints, restored

_NUMPY: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_ARROW: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_EXACT: Final = 2**53
"""Up to here every integer is a double."""


def number(value: Value) -> Any:
    """A boolean, number or timestamp as an integer or float column holds it."""
    if isinstance(value, datetime):
        return micros(value)
    return int(value) if isinstance(value, bool) else value


def compare_number(op: str, column: npt.NDArray[Any], value: Any) -> Flags:
    """A column beside one number, compared exactly."""
    if column.dtype == np.int64:
        return _compare_ints(op, column, value)
    if isinstance(value, float) or -_EXACT <= value <= _EXACT:
        return np.asarray(_NUMPY[op](column, float(value)))
    return _exact(op, column.tolist(), [value] * len(column))


def _compare_ints(op: str, column: npt.NDArray[Any], value: int | float) -> Flags:
    if isinstance(value, float):
        if not value.is_integer() and op in ("=", "!="):
            return np.full(len(column), op == "!=")
        # Between two integers, `<` and `>=` ask about the upper one, `<=` and `>` about the lower one.
        value = math.ceil(value) if op in ("<", ">=") else math.floor(value)
    if INT_MIN <= value <= INT_MAX:
        return np.asarray(_NUMPY[op](column, np.int64(value)))
    return np.full(len(column), compare(op, 0, value) is True)  # every integer of 64 bits is on the same side of it


def compare_columns(op: str, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Flags:
    """Two columns of numbers, compared exactly even between int and float."""
    if a.dtype == b.dtype:
        return np.asarray(_NUMPY[op](a, b))
    result: Flags = np.asarray(_NUMPY[op](a.astype(np.float64), b.astype(np.float64)))
    ints = a if a.dtype == np.int64 else b
    large = np.flatnonzero((ints > _EXACT) | (ints < -_EXACT))
    if len(large):
        result[large] = _exact(op, a[large].tolist(), b[large].tolist())
    return result


def compare_texts(op: str, a: pa.Array, b: pa.Array | str | bytes) -> Flags:
    """A column of strings or bytes beside another or one value; false where there is a null."""
    return flags(_ARROW[op](a, pa.scalar(b, a.type) if isinstance(b, (str, bytes)) else b))


def flags(array: pa.Array) -> Flags:
    """An Arrow column of truth values, null as false."""
    filled = pc.fill_null(array, False) if array.null_count else array
    found: Flags = filled.to_numpy(zero_copy_only=False)
    return found


def _exact(op: str, a: list[Any], b: list[Any]) -> Flags:
    return np.fromiter((compare(op, x, y) is True for x, y in zip(a, b, strict=True)), np.bool_, len(a))


@dataclass(frozen=True, slots=True)
class Same:
    """An operand with one value on every row."""

    value: Value


@dataclass(frozen=True, slots=True)
class Numbers:
    """An operand as booleans, integers, timestamps or doubles in their stored form, and which rows have one."""

    values: npt.NDArray[Any]
    there: Flags


@dataclass(frozen=True, slots=True)
class Texts:
    """An operand as strings or bytes, and which rows have one."""

    array: pa.Array
    there: Flags


Column: TypeAlias = Same | Numbers | Texts


@dataclass(slots=True)
class ConditionFacts:
    """What conditions may look at besides the events, indexed once for all of them."""

    world: World
    _members: dict[str, frozenset[str]] = field(default_factory=dict)
    _rows: dict[str, frozenset[Row]] = field(default_factory=dict)

    def members(self, group: str) -> frozenset[str]:
        """Who is in a group."""
        if group not in self._members:
            self._members[group] = self.world.state.members_of(group)
        return self._members[group]

    def rows(self, relation: str) -> frozenset[Row]:
        """The rows of a relation, so that two are equal if their values are the same."""
        if relation not in self._rows:
            known = self.world.state.relations.get(relation, frozenset())
            self._rows[relation] = frozenset(tuple(map(family, row)) for row in known)
        return self._rows[relation]


@dataclass(slots=True)
class Sent:
    """Events of one type and publisher as columns in the stored form. An attribute without a column is null.

    `rate` and `origin` are what `@rate` and `@origin` are for each of them.
    """

    type: str
    publisher: str
    time: datetime
    size: int
    kinds: Mapping[str, Kind]
    arrays: Mapping[str, pa.Array]
    rate: Same = Same(None)
    origin: Same | Texts = Same(None)
    _made: dict[str, Numbers | Texts] = field(default_factory=dict)

    def column(self, name: str) -> Column:
        """An attribute as conditions use it, made once."""
        if name not in self.arrays:
            return Same(None)
        if name not in self._made:
            array = self.arrays[name]
            if array.null_count:
                there = pc.is_valid(array).to_numpy(zero_copy_only=False)
            else:
                there = np.ones(self.size, np.bool_)
            if self.kinds[name] in (Kind.STRING, Kind.BYTES):
                self._made[name] = Texts(array, there)
            else:
                filled = pc.fill_null(array, 0) if array.null_count else array
                self._made[name] = Numbers(filled.to_numpy(), there)
        return self._made[name]


@dataclass(frozen=True, slots=True)
class Frame:
    """Events as one entry sees them: some attributes may be `fixed` to one value, or to null, on every row."""

    sent: Sent
    facts: ConditionFacts
    fixed: Mapping[str, Value] = field(default_factory=dict)

    def column(self, name: str) -> Column:
        """An attribute as the entry sees it."""
        return Same(self.fixed[name]) if name in self.fixed else self.sent.column(name)

    def events(self, rows: Ints) -> list[Event]:
        """Some of the events one by one, with every attribute of their type, and what was stamped on them."""
        sent, asked, columns = self.sent, pa.array(rows), []
        for name, kind in sent.kinds.items():
            if name in self.fixed or name not in sent.arrays:
                columns.append([self.fixed.get(name)] * len(rows))
            else:
                columns.append([restored(held, kind) for held in sent.arrays[name].take(asked).to_pylist()])
        rowwise = zip(*columns, strict=True) if columns else ((),) * len(rows)
        rate, origins = sent.rate.value, self._origins(asked)
        assert rate is None or isinstance(rate, int)
        return [
            Event(
                "",
                sent.publisher,
                sent.type,
                dict(zip(sent.kinds, values, strict=True)),
                sent.time,
                rate=rate,
                origin=origin,
            )
            for values, origin in zip(rowwise, origins, strict=True)
        ]

    def _origins(self, asked: pa.Array) -> list[Any]:
        origin = self.sent.origin
        return [origin.value] * len(asked) if isinstance(origin, Same) else list(origin.array.take(asked).to_pylist())


def family(value: Value) -> Any:
    """A value with what it may be the same as: numbers with numbers, all else with its own kind."""
    kind = kind_of(value)
    return (Kind.FLOAT if kind is Kind.INT else kind), value


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
