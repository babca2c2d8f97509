"""Times, days of the week, zones and reserved words as people write them.

Guarantees: beside `timeofday(...)` the text `'09:00'` or `'09:00:30'` is that many seconds since midnight (`'24:00'` is
the end of the day), and beside `weekday(...)` the text `'Monday'` or `'Mon'`, in any case, is its number from 1.
`clock_text` writes them back the same way. Beside a moment (`@time`, `@time + 3600`), text in ISO 8601 with a
zone is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from headgate.model.errors import BadExpression, TypeMismatch
from headgate.model.expressions import Argument, Clock, ClockPart, Combine, Constant, Meta, Operand
from headgate.model.values import Value, brief, parse_timestamp

RESERVED: Final = frozenset({"and", "or", "not", "in", "is", "true", "false", "null"})
"""Words that never name anything unless they are written in backquotes."""

Reading: TypeAlias = Literal["timestamp", "timeofday", "weekday"]
"""What text may be read as where a time is expected."""

_ZONE: Final = re.compile(r"[A-Za-z0-9_+\-]+(?:/[A-Za-z0-9_+\-]+)*")
_MACHINE_ZONES: Final = frozenset({"localtime", "posixrules"})
"""Zones that mean another thing on each machine, which would break replay."""
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TIME: Final = re.compile(r"(\d\d):(\d\d)(?::(\d\d))?")
_DAY_SECONDS: Final = 86_400


def _clock_number(part: Clock, value: str) -> int:
    """The number that a text means beside a part of the clock."""
    if part == "weekday":
        for number, day in enumerate(_DAYS, start=1):
            if value.lower() in (day.lower(), day[:3].lower()):
                return number
        raise BadExpression(f"`{brief(value)}` is not a day of the week", remedy="write `'Monday'` or `'Mon'`")
    found = _TIME.fullmatch(value)
    hours, minutes, seconds = (int(n or 0) for n in found.groups()) if found else (24, 0, 1)
    total = hours * 3600 + minutes * 60 + seconds
    if total > _DAY_SECONDS or minutes > 59 or seconds > 59:
        raise BadExpression(f"`{brief(value)}` is not a time of day", remedy="write it like `'09:00'` or `'17:30:15'`")
    return total


def clock_text(part: Clock, value: Argument) -> str | None:
    """The text that means this number beside a part of the clock, if there is one."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if part == "weekday":
        return _DAYS[value - 1] if 1 <= value <= len(_DAYS) else None
    if not 0 <= value <= _DAY_SECONDS:
        return None
    text = f"{value // 3600:02}:{value // 60 % 60:02}"
    return text if value % 60 == 0 else f"{text}:{value % 60:02}"


def read_text(reading: Reading, text: str) -> Value:
    """The moment, or the number of a part of the clock, that a text says."""
    if reading != "timestamp":
        return _clock_number(reading, text)
    try:
        return parse_timestamp(text)
    except TypeMismatch as error:
        raise BadExpression(error.message, remedy=error.remedy) from None


def _none(_: Operand) -> None:
    return None


def reading_beside(e: Operand, leaf: Callable[[Operand], Reading | None] = _none) -> Reading | None:
    """What text means beside an expression of a rolefile or event policy: a moment, a time of day or a day.

    What a variable, a constant or a call is, `leaf` tells.
    """
    match e:
        case Meta("time"):
            return "timestamp"
        case ClockPart(part):
            return part
        case Combine("+" | "-" as op, left, right):
            first, second = reading_beside(left, leaf), reading_beside(right, leaf)
            if op == "-" and first == "timestamp" and not is_seconds(right):
                return None  # a moment, or the seconds between two
            return first or second
        case _:
            return leaf(e)


def is_seconds(e: Operand) -> bool:
    """Is it a whole number, which beside a moment is seconds?"""
    return isinstance(e, Constant) and isinstance(e.value, int)


def is_zone(zone: str) -> bool:
    """Is there such a time zone, the same on every machine?"""
    if _ZONE.fullmatch(zone) and zone not in _MACHINE_ZONES:
        with suppress(KeyError, ValueError, OSError):
            return ZoneInfo(zone).key == zone
    return False
