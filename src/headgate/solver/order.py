"""The possible values of each family in order: what comes next, what lies between, and when clocks show something.

Guarantees: values of one family compare with each other and with no others (D2). `between` gives values strictly inside
a gap: all of them if they are fewer than asked for, and otherwise so many that any order of as many attributes, whole
numbers among them or not, can be acted out with them. `moment_showing` is right where it finds a moment; that it finds
none proves nothing.
Leaves out: the greatest length of texts and bytes, so that every text has a next one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, time, timedelta
from enum import Enum
from itertools import pairwise
from typing import Final, TypeVar
from zoneinfo import ZoneInfo

from headgate.decide.truth import clock_part
from headgate.model.expressions import ClockPart
from headgate.model.values import INT_MAX, INT_MIN, Kind, Value, kind_of, micros, moment

MOST: Final = sys.float_info.max
"""The greatest number there is; its negative is the least."""

_FIRST: Final = micros(datetime.min.replace(tzinfo=UTC))
_LAST: Final = micros(datetime.max.replace(tzinfo=UTC))
_BASE: Final = micros(datetime(2026, 1, 1, tzinfo=UTC))
_DAY: Final = timedelta(days=1) // timedelta(microseconds=1)
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_EXACT: Final = 2**53
"""Up to here every whole number is a double."""


class Family(Enum):
    """Values that compare with each other."""

    BOOL = "bool"
    NUMBER = "number"
    STRING = "string"
    TIME = "time"
    BYTES = "bytes"


FAMILIES: Final = {
    Kind.BOOL: Family.BOOL,
    Kind.INT: Family.NUMBER,
    Kind.FLOAT: Family.NUMBER,
    Kind.STRING: Family.STRING,
    Kind.TIMESTAMP: Family.TIME,
    Kind.BYTES: Family.BYTES,
}


def family(value: Value) -> Family | None:
    """The family of a value; None for null."""
    kind = kind_of(value)
    return None if kind is None else FAMILIES[kind]


def fits(value: Value, kind: Kind) -> bool:
    """Can an attribute of this kind have a value equal to this one?"""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return kind_of(value) is kind
    if kind is Kind.INT:
        return value == int(value) and INT_MIN <= value <= INT_MAX
    return kind is Kind.FLOAT and float(value) == value


def as_kind(value: Value, kind: Kind | None) -> Value:
    """A value that fits a kind, as an attribute of that kind has it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return int(value) if kind is Kind.INT else float(value) if kind is Kind.FLOAT else value


def after(value: Value) -> Value:
    """The next value of the family; None after the last."""
    match value:
        case bool():
            return None if value else True
        case int() | float():
            return None if value >= MOST else min(_next_whole(value), _next_double(value))
        case str():
            return value + "\0"
        case bytes():
            return value + b"\0"
        case datetime():
            return None if micros(value) >= _LAST else moment(micros(value) + 1)
        case None:
            return None


def before(value: Value) -> Value:
    """The value just before; None where there is none: before the first, and before most texts."""
    match value:
        case bool():
            return False if value else None
        case int() | float():
            successor = after(-value)
            if not isinstance(successor, (int, float)):
                return None
            return -successor if successor != INT_MIN else -float(successor)
        case str() | bytes():
            return value[:-1] if value and value[-1] in ("\0", 0) else None
        case datetime():
            return None if micros(value) <= _FIRST else moment(micros(value) - 1)
        case None:
            return None


LEAST: Final[dict[Family, Value]] = {
    Family.BOOL: False,
    Family.NUMBER: -MOST,
    Family.STRING: "",
    Family.TIME: moment(_FIRST),
    Family.BYTES: b"",
}
"""The first value of each family."""

GREATEST: Final[dict[Family, Value]] = {Family.BOOL: True, Family.NUMBER: MOST, Family.TIME: moment(_LAST)}
"""The last value of each family; texts and bytes have none."""


def candidates(of: Family, constants: Iterable[Value], count: int) -> list[Value]:
    """The constants, and between them values enough for `count` attributes to stand in any order, sorted."""
    named = _distinct(of, [False, True] if of is Family.BOOL else constants)
    ends: list[Value] = [None, *named, None]
    values: list[Value] = []
    for low, high in pairwise(ends):
        values += [low] if low is not None else []
        values += between(of, low, high, count)
    return values


def between(of: Family, low: Value, high: Value, count: int) -> list[Value]:
    """Values of a family strictly between two others, sorted; an end of None is open."""
    match of:
        case Family.BOOL:
            return []  # both are constants
        case Family.NUMBER:
            return list(_numbers(_number(low), _number(high), count))
        case Family.TIME:
            return list(_times(low, high, count))
        case Family.STRING:
            return list(_texts(_typed(str, low), _typed(str, high), count))
        case Family.BYTES:
            return list(_chain(_typed(bytes, low), _typed(bytes, high), b"", b"\0", count))


def _distinct(of: Family, values: Iterable[Value]) -> list[Value]:
    """Values of a family, sorted and without those that are equal to another."""
    return sorted({one: None for one in values if family(one) is of})  # type: ignore[type-var]


_T = TypeVar("_T")


def _typed(kind: type[_T], value: Value) -> _T | None:
    assert value is None or isinstance(value, kind)
    return value


def _number(value: Value) -> int | float | None:
    assert value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
    return value


# Numbers: 64-bit integers and doubles, as one line. Most whole numbers are both, and those can stand for any.


def _next_whole(value: int | float) -> int | float:
    found = max(math.floor(value) + 1, INT_MIN)
    return found if found <= INT_MAX else math.inf


def _next_double(value: int | float) -> float:
    near = float(value)
    return near if near > value else math.nextafter(near, math.inf)


def _numbers(low: int | float | None, high: int | float | None, count: int) -> Iterator[int | float]:
    both = _both(low, high, count)
    if len(both) >= count:
        yield from both
        return
    ends = [-math.inf if low is None else low, *both, math.inf if high is None else high]
    for one, two in pairwise(ends):
        yield from sorted({*_doubles(one, two, count), *_wholes(one, two, count)})
        if two != ends[-1]:
            yield two


def _both(low: int | float | None, high: int | float | None, count: int) -> list[int]:
    """Up to `count` numbers in the gap that are whole and doubles at once, small ones where there is a choice."""
    if (low is None or low < 0) and (high is None or high > count - 1):
        return list(range(count))
    if low is None:
        assert high is not None
        return sorted(-one for one in _climb(-high, math.inf, count))
    return _climb(low, math.inf if high is None else high, count)


def _climb(low: int | float, high: int | float, count: int) -> list[int]:
    integers: list[int] = []
    at = max(low, INT_MIN - 1)
    while len(integers) < count:
        step = math.floor(at) + 1
        if step > INT_MAX:
            break
        if abs(step) > _EXACT:
            near = float(step)
            step = int(near if near >= step else math.nextafter(near, math.inf))
        if step >= high or step > INT_MAX or -step > INT_MAX + 1:
            break
        integers.append(step)
        at = step
    return integers


def _doubles(low: int | float, high: int | float, count: int) -> list[float]:
    """Up to `count` doubles in a gap without whole ones; evenly spread if there is room, otherwise one by one."""
    if math.isfinite(low) and math.isfinite(high) and abs(low) < _EXACT and abs(high) < _EXACT:
        spread = {low + (high - low) * (at + 1) / (count + 1) for at in range(count)}
        inside = sorted(one for one in spread if low < one < high)
        if len(inside) == count:
            return inside
    doubles: list[float] = []
    at = -MOST if low == -math.inf else _next_double(low)
    while at < high and at <= MOST and len(doubles) < count:
        doubles.append(at)
        at = math.nextafter(at, math.inf)
    return doubles


def _wholes(low: int | float, high: int | float, count: int) -> list[int]:
    first = INT_MIN if low == -math.inf else max(math.floor(low) + 1, INT_MIN)
    last = INT_MAX if high == math.inf else min(math.ceil(high) - 1, INT_MAX)
    return list(range(first, min(last, first + count - 1) + 1))


# Times, texts and bytes.


def _times(low: Value, high: Value, count: int) -> Iterator[datetime]:
    assert low is None or isinstance(low, datetime)
    assert high is None or isinstance(high, datetime)
    if low is None and high is not None:
        top = micros(high)
        step = min(_DAY, max(1, (top - _FIRST) // (count + 1)))
        yield from (moment(at) for at in range(top - step * count, top, step) if at >= _FIRST)
        return
    bottom = _BASE if low is None else micros(low)
    top = _LAST + 1 if high is None else micros(high)
    step = min(_DAY, max(1, (top - bottom) // (count + 1)))
    yield from (moment(at) for at in range(bottom + step, min(top, bottom + step * count + 1), step))


def _texts(low: str | None, high: str | None, count: int) -> list[str]:
    """Readable texts if there are enough of them in the gap."""
    stem = low or ""
    readable = [stem + letter for letter in _LETTERS[:count]]
    if len(readable) == count and all((low is None or low < one) and (high is None or one < high) for one in readable):
        return readable
    return list(_chain(low, high, "", "\0", count))


_Line = TypeVar("_Line", str, bytes)


def _chain(low: _Line | None, high: _Line | None, first: _Line, step: _Line, count: int) -> Iterator[_Line]:
    """The values right after `low`, one by one: fewer than `count` only where the gap has no more."""
    at = first if low is None else low + step
    for _ in range(count):
        if high is not None and at >= high:
            return
        yield at
        at += step


_DAYS: Final = 15
"""Days that are looked at, two weeks and one for the difference between zones."""

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_MIDNIGHT: Final = time()


def moment_showing(wanted: Mapping[ClockPart, int], low: datetime | None, high: datetime | None) -> datetime | None:
    """A moment strictly between two others at which each part of the clock is as wanted, if one is found soon."""
    for at in _tried(wanted, low, high):
        inside = (low is None or low < at) and (high is None or at < high)
        if inside and all(clock_part(part.part, at, part.zone) == shown for part, shown in wanted.items()):
            return at
    return None


def _tried(wanted: Mapping[ClockPart, int], low: datetime | None, high: datetime | None) -> Iterator[datetime]:
    first = low or (high - timedelta(days=_DAYS - 1) if high is not None and high.year > 1 else high) or _START
    times = {(part.zone, shown) for part, shown in wanted.items() if part.part == "timeofday"}
    zones = {part.zone for part in wanted} if not times else set()
    for day in range(_DAYS):
        try:
            at = first + timedelta(days=day)
            for zone, seconds in sorted(times | {(zone, 12 * 3600) for zone in zones}):
                local = datetime.combine(at.astimezone(ZoneInfo(zone)).date(), _MIDNIGHT, ZoneInfo(zone))
                yield (local + timedelta(seconds=seconds)).astimezone(UTC)
        except OverflowError:
            return
        if low is not None and high is not None:
            yield low + (high - low) * (day + 1) / (_DAYS + 1)
