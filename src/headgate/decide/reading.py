"""Times in the rows of relations, read as what they are compared with (decision 0033).

Guarantees: a column that constraints compare with a moment, a time of day or a day of the week is read as that: text
such as `'2026-01-01T09:00:00Z'`, `'08:00'` or `'Mon'` is the timestamp or the number it stands for, and everything
behind sees only these. A whole number beside a moment is seconds since 1970. What says no time stays as it is. A column
is read in one way by all that is read together: the statements of a rolefile, or the entries of the event policy.
Leaves out: conditions of rules, which see rows as they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from headgate.lang.literals import Reading, is_seconds, read_text, reading_beside
from headgate.model import expressions as tree
from headgate.model.changes import Row
from headgate.model.errors import HeadgateError
from headgate.model.expressions import Atom, Condition, Constant, Operand, Variable, atoms
from headgate.model.values import Kind, Value, conform

Readings: TypeAlias = Mapping[tuple[str, int], Reading]
"""How columns of relations are read, by relation and place; all others as they are."""

AS_STORED: Final[Readings] = {}
READINGS: Final[tuple[Reading, ...]] = ("timestamp", "timeofday", "weekday")
MAX_KEPT: Final = 256
"""Things of which what was made is kept."""

K = TypeVar("K")
T = TypeVar("T")
P = ParamSpec("P")


def kept_by_identity(make: Callable[Concatenate[K, P], T]) -> Callable[Concatenate[K, P], T]:
    """A function that keeps what it makes, for those looked at last.

    By identity of its first argument: sets that Python takes for equal may differ in that `1` is not `true`.
    """
    known: dict[tuple[object, ...], tuple[K, T]] = {}

    @wraps(make)
    def kept(of: K, /, *args: P.args, **kwargs: P.kwargs) -> T:
        cached = known.get((id(of), *args))
        if cached is None or cached[0] is not of:
            if len(known) >= MAX_KEPT:
                known.clear()
            cached = known[id(of), *args] = of, make(of, *args, **kwargs)
        return cached[1]

    return kept


def read(reading: Reading, value: Value) -> Value:
    """A value read as a time, of which whole numbers are seconds since 1970; what says none stays as it is."""
    try:
        if isinstance(value, str):
            return read_text(reading, value)
        if reading == "timestamp" and isinstance(value, int) and not isinstance(value, bool):
            return conform(Kind.TIMESTAMP, value)
    except HeadgateError:
        pass
    return value


def spellings(value: Value) -> list[Value]:
    """A stored value, and all that it may be read as."""
    return [value, *(found for one in READINGS if (found := read(one, value)) is not value)]


def rows_read(name: str, rows: frozenset[Row], readings: Readings) -> frozenset[Row]:
    """The rows of a relation as they are read; kept for those looked at last, by identity."""
    columns = tuple((place, one) for (relation, place), one in readings.items() if relation == name)
    return _rows_read(rows, columns) if columns else rows


@kept_by_identity
def _rows_read(rows: frozenset[Row], columns: tuple[tuple[int, Reading], ...]) -> frozenset[Row]:
    how = dict(columns)
    return frozenset(tuple(read(how[n], one) if n in how else one for n, one in enumerate(row)) for row in rows)


# -- which columns are compared with times ---------------------------------------------------------------------


def columns_read(constraints: Iterable[tuple[Condition, Mapping[str, Reading]]]) -> Readings:
    """How constraints read the columns of what they name, given what some of their variables are."""
    parts = [(list(atoms(one)), dict(known)) for one, known in constraints]
    readings: dict[tuple[str, int], Reading] = {}
    before = -1
    while before != (before := len(readings) + sum(len(known) for _, known in parts)):
        for leaves, known in parts:
            for leaf in leaves:
                _look(leaf, known, readings)
    return readings


def _look(leaf: Atom, known: dict[str, Reading], readings: dict[tuple[str, int], Reading]) -> None:
    """What one atom tells of variables and columns."""
    if isinstance(leaf, tree.Related):
        _columns(leaf.name, leaf.args, known, readings)
    sides = list(dict.fromkeys(side for one in tree.comparisons(leaf) for side in (one.left, one.right)))
    for side in sides:
        _within(side, known, readings)
    if any(is_seconds(side) for side in sides):
        for side in sides:
            _between_times(side, known, readings)
    is_read = next((one for side in sides if (one := reading_of(side, known, readings)) is not None), None)
    if is_read is None:
        return
    for side in sides:
        _is_time(side, is_read, known, readings)


def _is_time(e: Operand, is_read: Reading, known: dict[str, Reading], readings: dict[tuple[str, int], Reading]) -> None:
    """What an expression tells that is a time."""
    match e:
        case Variable(name) if name != "_":
            known.setdefault(name, is_read)
        case tree.Apply(function, args):
            readings.setdefault((function, len(args)), is_read)
        case tree.Combine("+" | "-", of, by) if is_seconds(by):
            _is_time(of, is_read, known, readings)
        case tree.Combine("+", by, of) if is_seconds(by):
            _is_time(of, is_read, known, readings)


def _between_times(e: Operand, known: dict[str, Reading], readings: dict[tuple[str, int], Reading]) -> None:
    """What a difference tells that is compared with seconds: one side is what the other is."""
    match e:
        case tree.Combine("-", left, right):
            for one, other in ((left, right), (right, left)):
                if not is_seconds(other) and (is_read := reading_of(one, known, readings)) is not None:
                    _is_time(other, is_read, known, readings)


def _within(e: Operand, known: dict[str, Reading], readings: dict[tuple[str, int], Reading]) -> None:
    match e:
        case tree.Apply(function, args):
            _columns(function, args, known, readings)
        case tree.Combine(_, left, right):
            _within(left, known, readings)
            _within(right, known, readings)
        case tree.ClockPart(_, of):
            _within(of, known, readings)
            _is_time(of, "timestamp", known, readings)


def _columns(
    name: str, args: tuple[Operand, ...], known: dict[str, Reading], readings: dict[tuple[str, int], Reading]
) -> None:
    for column, arg in enumerate(args):
        _within(arg, known, readings)
        is_read = reading_of(arg, known, readings)
        if is_read is not None:
            readings.setdefault((name, column), is_read)
        elif isinstance(arg, Variable) and arg.name != "_" and (name, column) in readings:
            known.setdefault(arg.name, readings[name, column])


def reading_of(e: Operand, known: Mapping[str, Reading], readings: Readings = AS_STORED) -> Reading | None:
    """What an expression is, if it is a time."""

    def leaf(e: Operand) -> Reading | None:
        match e:
            case Constant(datetime()):
                return "timestamp"
            case Variable(name):
                return known.get(name)
            case tree.Apply(function, args):
                return readings.get((function, len(args)))
            case _:
                return None

    return reading_beside(e, leaf)
