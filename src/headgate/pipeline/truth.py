"""Is a condition true, for many events at once? The one vectorised evaluator: `decide.truth` over columns.

Guarantees: `truth` gives for every row that is asked about what `decide.truth` gives for the event of that row, by
Kleene's tables (D1). It works on whole columns; only generic predicates run event by event, and in a conjunction or
disjunction only for the rows that the rest has not settled. Columns are compared as `model.values.compare` compares
values: integers and doubles exactly, text by code point. Where the columns come from, a `Frame` says: rows given as
columns (`ColumnRows`: events that are sent, attributes of principals), rows of a batch (`match.BatchRows`).
Leaves out: subject attributes and comparisons of values of different kinds, which `prepared` takes out beforehand.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide import truth as reference
from headgate.decide.normal import bind
from headgate.decide.truth import World, clock_part, has_token
from headgate.model import expressions as tree
from headgate.model.changes import Row
from headgate.model.events import Event
from headgate.model.expressions import Condition, Operand
from headgate.model.state import State
from headgate.model.values import EPOCH, INT_MAX, INT_MIN, Kind, Value, compare, kind_of, micros, moment
from headgate.pipeline.log.codec import Flags, Ints, restored

DOUBLE_MAX: Final = sys.float_info.max
_EXACT: Final = 2**53
"""Up to here every integer is a double."""
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
_TEXT_TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "starts with": str.startswith,
    "contains": str.__contains__,
    "has token": has_token,
}


# -- columns ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Same:
    """An operand with one value on every row."""

    value: Value


@dataclass(frozen=True, slots=True)
class Numbers:
    """An operand as booleans, integers, timestamps or doubles in their stored form, and which rows have one.

    What is under a null may be anything.
    """

    values: npt.NDArray[Any]
    there: Flags


@dataclass(frozen=True, slots=True)
class Texts:
    """An operand as strings or bytes, null where it has none, and which rows have one."""

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
            self._rows[relation] = frozenset(tuple(map(_family, row)) for row in known)
        return self._rows[relation]


class Frame(Protocol):
    """Events as a condition sees them: a column for each leaf, and the events themselves for generic predicates."""

    @property
    def facts(self) -> ConditionFacts:
        """Groups, relations and predicates."""

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The attributes that are not null whatever the event says (D3)."""

    def column(self, leaf: tree.Attribute | tree.Meta) -> Column:
        """An attribute, or what a gateway stamped."""

    def events(self, rows: Ints) -> list[Event]:
        """Some of the events one by one, with every attribute of their type."""


@dataclass(slots=True)
class ColumnRows:
    """Rows given as columns in the stored form. An attribute without a column is null.

    Events that are sent are all of one type and publisher; `rate` and `origin` are what `@rate` and `@origin` are for
    each of them. For one entry some attributes may be `fixed` to one value, or to null, on every row.
    """

    kinds: Mapping[str, Kind]
    arrays: Mapping[str, pa.Array]
    facts: ConditionFacts = field(default_factory=lambda: ConditionFacts(World(State())))
    type: str = ""
    publisher: str = ""
    time: datetime = EPOCH
    rate: Same | Numbers = Same(None)
    origin: Same | Texts = Same(None)
    fixed: Mapping[str, Value] = field(default_factory=dict)
    _made: dict[str, Numbers | Texts] = field(default_factory=dict)

    def rows(self, begin: int, count: int) -> ColumnRows:
        """Some rows one after another, at most so many; the rate is to be said anew."""
        origin = self.origin
        if isinstance(origin, Texts):
            origin = Texts(origin.array.slice(begin, count), origin.there[begin : begin + count])
        arrays = {name: array.slice(begin, count) for name, array in self.arrays.items()}
        return replace(self, arrays=arrays, rate=Same(None), origin=origin, _made={})

    def column(self, leaf: tree.Attribute | tree.Meta) -> Column:
        """An attribute as the entry sees it, or what is stamped."""
        match leaf:
            case tree.Attribute(name):
                return Same(self.fixed[name]) if name in self.fixed else self._column(name)
            case tree.Meta("time"):
                return Same(self.time)
            case tree.Meta("rate"):
                return self.rate
            case tree.Meta("origin"):
                return self.origin
            case _:
                return Same(self.publisher)

    def _column(self, name: str) -> Column:
        """An attribute as it was given, made once, for all entries."""
        if name not in self.arrays:
            return Same(None)
        if name not in self._made:
            array = self.arrays[name]
            there = valid(array)
            if self.kinds[name] in (Kind.STRING, Kind.BYTES):
                self._made[name] = Texts(array, there)
            else:
                filled = pc.fill_null(array, 0) if array.null_count else array
                self._made[name] = Numbers(filled.to_numpy(), there)
        return self._made[name]

    def events(self, rows: Ints) -> list[Event]:
        """Some of the events one by one, with every attribute of their type, and what was stamped on them."""
        columns = [
            [self.fixed.get(name)] * len(rows)
            if name in self.fixed or name not in self.arrays
            else [restored(held, kind) for held in self.arrays[name].take(pa.array(rows)).to_pylist()]
            for name, kind in self.kinds.items()
        ]
        rowwise = zip(*columns, strict=True) if columns else ((),) * len(rows)
        made = (dict(zip(self.kinds, values, strict=True)) for values in rowwise)
        stamps = _listed(self.rate, None, rows), _listed(self.origin, None, rows)
        return [
            Event("", self.publisher, self.type, values, self.time, rate=rate, origin=origin)
            for values, rate, origin in zip(made, *stamps, strict=True)
        ]


# -- truth --------------------------------------------------------------------------------------------------------


class Truth(NamedTuple):
    """The rows where a condition is true, and those where it is false; where it is neither, it is unknown."""

    true: Flags
    false: Flags


def prepared(condition: Condition, subject: Mapping[str, Value], kinds: Mapping[str, Kind]) -> Condition:
    """A condition as `truth` takes it: bound to one subject and type, with what needs a predicate asked last."""
    return predicates_last(bind(condition, subject, kinds))


def predicates_last(condition: Condition) -> Condition:
    """A condition with the same truth, in which the parts that need a predicate come after the others."""
    match condition:
        case tree.AllOf(args) | tree.AnyOf(args):
            return replace(condition, args=tuple(sorted(map(predicates_last, args), key=asks_predicate)))
        case tree.Not(arg):
            return tree.Not(predicates_last(arg))
        case atom:
            return atom


def asks_predicate(condition: Condition) -> bool:
    """Is some part of a condition put to the events one by one?"""
    return any(isinstance(atom, tree.Predicate) for atom in tree.atoms(condition))


def truth(condition: Condition, frame: Frame, need: Flags) -> Truth:
    """The truth of a prepared condition on the rows that are needed; anything on the others."""
    return kleene(condition, lambda atom, asked: _atom(atom, frame, asked), need)


def kleene(condition: Condition, atom: Callable[[Any, Flags], Truth], need: Flags) -> Truth:
    """Truth from that of atoms, by Kleene's tables; an atom is asked about the rows that it may still decide."""
    match condition:
        case tree.AllOf(args):
            true, false = constant(True, len(need))
            for arg in args:
                part = kleene(arg, atom, need & ~false)
                true, false = true & part.true, false | part.false
            return Truth(true, false)
        case tree.AnyOf(args):
            true, false = constant(False, len(need))
            for arg in args:
                part = kleene(arg, atom, need & ~true)
                true, false = true | part.true, false & part.false
            return Truth(true, false)
        case tree.Starred(arg):
            return kleene(arg, atom, need)
        case tree.Not(arg):
            inner = kleene(arg, atom, need)
            return Truth(inner.false, inner.true)
        case _:
            return atom(condition, need)


def _atom(atom: tree.Atom, frame: Frame, need: Flags) -> Truth:
    size = len(need)
    match atom:
        case tree.Compare(op, left, right):
            return _compare(op, _column(left, frame), _column(right, frame), size)
        case tree.InRange(operand, low, high):
            ends = tree.Compare(">=", operand, low), tree.Compare("<=", operand, high)
            return truth(tree.AllOf(ends), frame, need)
        case tree.InSet(operand, values):
            return _in_set(_column(operand, frame), values, size)
        case tree.TextMatch(op, left, right):
            return _text_match(op, _column(left, frame), _column(right, frame), size)
        case tree.IsNull(operand):
            there = _there(_column(operand, frame), size)
            return Truth(~there, there)
        case tree.InGroup(operand, group):
            return _in_group(_column(operand, frame), frame.facts.members(group), size)
        case tree.Related(relation, args):
            return _related(frame.facts.rows(relation), args, frame, need)
        case tree.Predicate():
            return _predicate(atom, frame, need)
        case _:
            assert_never(atom)


def _column(operand: Operand, frame: Frame) -> Column:
    match operand:
        case tree.Attribute() | tree.Meta():
            return frame.column(operand)
        case tree.Constant(value):
            return Same(tree.plain(value))
        case tree.ClockPart(part, of, zone):
            return _clock_parts(part, _column(of, frame), zone)
        case tree.Subject():
            raise TypeError("subject attributes are bound beforehand")
        case tree.Variable() | tree.Apply() | tree.Count() | tree.Combine():
            raise tree.foreign(operand)
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


def _compare(op: tree.CompareOp, a: Column, b: Column, size: int) -> Truth:
    match a, b:
        case Same(x), Same(y):
            return constant(compare(op, x, y), size)
        case Same(), _:
            return _compare(tree.MIRRORED[op], b, a, size)
        case _, Same(None):
            return constant(None, size)
        case Numbers(values, there), Same(y):
            return where_known(compare_number(op, values, _number(y)), there)
        case Texts(array, there), Same(str() | bytes() as y):
            return where_known(flags(_ARROW[op](array, pa.scalar(y, array.type))), there)
        case Numbers(values, there), Numbers(others, also):
            return where_known(compare_columns(op, values, others), there & also)
        case Texts(array, there), Texts(other, also):
            return where_known(flags(_ARROW[op](array, other)), there & also)
        case _:
            raise TypeError("kinds that do not compare are taken out beforehand")


def _in_set(column: Column, values: tuple[Value, ...], size: int) -> Truth:
    match column:
        case Same(x):
            return constant(reference.some(compare("=", x, value) for value in values), size)
        case Numbers(held, there):
            return where_known(np.isin(held, _holdable(values, held.dtype)), there)
        case Texts(array, there):
            return where_known(flags(pc.is_in(array, value_set=pa.array(values, array.type))), there)
        case _:
            assert_never(column)


def _holdable(values: tuple[Value, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The numbers that a column of this type can equal, as it holds them."""
    numbers: list[int | float] = []
    for value in map(_number, values):
        if dtype == np.int64:
            if value == int(value) and INT_MIN <= value <= INT_MAX:
                numbers.append(int(value))
        elif -DOUBLE_MAX <= value <= DOUBLE_MAX and float(value) == value:
            numbers.append(float(value))
    return np.array(numbers, dtype)


def _text_match(op: str, text: Column, part: Column, size: int) -> Truth:
    """Where Arrow has no such test, row by row: where both are there and the text contains a part that all share."""
    match text, part:
        case (Same(None), _) | (_, Same(None)):
            return constant(None, size)
        case Same(str() as x), Same(str() as y):
            return constant(_TEXT_TESTS[op](x, y), size)
        case Texts(array, there), Same(str() as y) if op != "has token":
            return where_known(flags((pc.starts_with if op == "starts with" else pc.match_substring)(array, y)), there)
    there = hopeful = _there(text, size) & _there(part, size)
    if isinstance(text, Texts) and isinstance(part, Same):
        hopeful = there & flags(pc.match_substring(text.array, part.value))
    rows = np.flatnonzero(hopeful)
    matches = np.zeros(size, np.bool_)
    matches[rows] = list(map(_TEXT_TESTS[op], _listed(text, None, rows), _listed(part, None, rows)))
    return where_known(matches, there)


def _in_group(column: Column, members: frozenset[str], size: int) -> Truth:
    match column:
        case Same(x):
            return constant(x in members if isinstance(x, str) else None, size)
        case Texts(array, there):
            return where_known(flags(pc.is_in(array, value_set=pa.array(sorted(members), pa.string()))), there)
        case _:
            raise TypeError("only text names a member; the rest is taken out beforehand")


def _related(known: frozenset[Row], args: tuple[Operand, ...], frame: Frame, need: Flags) -> Truth:
    rows = np.flatnonzero(need)
    columns = [_listed(_column(arg, frame), tree.declared_kind(arg, frame.kinds), rows) for arg in args]
    answers = [None if None in row else tuple(map(_family, row)) in known for row in zip(*columns, strict=True)]
    return _answered(rows, answers, len(need))


def _predicate(asked: tree.Predicate, frame: Frame, need: Flags) -> Truth:
    rows, world = np.flatnonzero(need), replace(frame.facts.world, attributes=frame.kinds)
    events = frame.events(rows)
    answers = [reference.truth(asked, event, replace(world, origin=event.origin)) for event in events]
    return _answered(rows, answers, len(need))


def _answered(rows: Ints, answers: list[bool | None], size: int) -> Truth:
    """What was found for some rows one by one."""
    truths = constant(None, size)
    truths.true[rows] = [answer is True for answer in answers]
    truths.false[rows] = [answer is False for answer in answers]
    return truths


def constant(answer: bool | None, size: int) -> Truth:
    """The same on every row."""
    return Truth(np.full(size, answer is True), np.full(size, answer is False))


def where_known(matches: Flags, there: Flags) -> Truth:
    """Unknown where it is not known, else what was found."""
    return Truth(matches & there, ~matches & there)


def _there(column: Column, size: int) -> Flags:
    return np.full(size, column.value is not None) if isinstance(column, Same) else column.there


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


def _family(value: Value) -> Any:
    """A value with what it may be the same as: numbers with numbers, all else with its own kind."""
    kind = kind_of(value)
    return (Kind.FLOAT if kind is Kind.INT else kind), value


# -- comparing ----------------------------------------------------------------------------------------------------


def _number(value: Value) -> Any:
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
    return _exactly(op, column.tolist(), [value] * len(column))


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
        result[large] = _exactly(op, a[large].tolist(), b[large].tolist())
    return result


def _exactly(op: str, a: list[Any], b: list[Any]) -> Flags:
    return np.fromiter((compare(op, x, y) is True for x, y in zip(a, b, strict=True)), np.bool_, len(a))


def flags(array: pa.Array) -> Flags:
    """An Arrow column of truth values, null as false."""
    filled: Flags = (pc.fill_null(array, False) if array.null_count else array).to_numpy(zero_copy_only=False)
    return filled


def valid(array: pa.Array) -> Flags:
    """Which rows of an Arrow column are not null."""
    return flags(pc.is_valid(array)) if array.null_count else np.ones(len(array), np.bool_)
