"""Values and their kinds (design rule D2).

Guarantees: a value is `bool`, `int` (64-bit), finite `float`, `str` of valid Unicode, UTC `datetime` with
microseconds, `bytes`, or `None` for null. `conform` is the only way in from untrusted data. `compare` is
three-valued: null, or values of different families, compare as unknown (`None`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final, TypeAlias

from headgate.model.errors import TypeMismatch
from headgate.model.limits import MAX_TEXT_BYTES

Value: TypeAlias = bool | int | float | str | datetime | bytes | None

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Kind(Enum):
    """The declared kind of an attribute."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"
    TIMESTAMP = "timestamp"
    BYTES = "bytes"


NUMERIC: Final = frozenset({Kind.INT, Kind.FLOAT})

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def kind_of(value: Value) -> Kind | None:
    """The kind of a value; `None` for null."""
    match value:
        case None:
            return None
        case bool():
            return Kind.BOOL
        case int():
            return Kind.INT
        case float():
            return Kind.FLOAT
        case str():
            return Kind.STRING
        case datetime():
            return Kind.TIMESTAMP
        case bytes():
            return Kind.BYTES


def comparable(a: Kind, b: Kind) -> bool:
    """May values of these kinds be compared? Same kind, or both numbers."""
    return a is b or (a in NUMERIC and b in NUMERIC)


def compare(op: str, a: Value, b: Value) -> bool | None:
    """`a op b`, three-valued. int and float compare exactly as numbers; strings by code point."""
    left, right = kind_of(a), kind_of(b)
    if left is None or right is None or not comparable(left, right):
        return None
    return _OPERATORS[op](a, b)


def micros(moment: datetime) -> int:
    """Microseconds since 1970-01-01T00:00:00Z, exactly."""
    return (moment - EPOCH) // _MICROSECOND


def moment(microseconds: int) -> datetime:
    """The inverse of `micros`."""
    return EPOCH + timedelta(microseconds=microseconds)


def parse_timestamp(text: str) -> datetime:
    """An ISO 8601 time with a zone, as UTC."""
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        raise TypeMismatch(f"`{text}` is not an ISO 8601 time", remedy="write it like `2026-01-01T09:00:00Z`") from None
    if timestamp.tzinfo is None:
        raise TypeMismatch(f"the time `{text}` has no zone", remedy="add `Z` or an offset such as `+01:00`")
    try:
        return timestamp.astimezone(UTC)
    except OverflowError:
        raise TypeMismatch(f"the time `{text}` is outside the years 1 to 9999 in UTC") from None


def render_timestamp(value: datetime) -> str:
    """ISO 8601 in UTC with `Z`, without needless zeros."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def conform(kind: Kind, raw: object) -> Value:
    """Turn untrusted data into a value of `kind`, or refuse it with `type-mismatch`.

    Timestamps may come as aware datetimes, ISO 8601 text with a zone or seconds since 1970; bytes as bytes or
    hexadecimal text.
    """
    if raw is None:
        return None
    match kind:
        case Kind.BOOL if isinstance(raw, bool):
            return raw
        case Kind.INT if isinstance(raw, int) and not isinstance(raw, bool):
            return _in_range(raw)
        case Kind.FLOAT if isinstance(raw, (int, float)) and not isinstance(raw, bool):
            return _finite(raw)
        case Kind.STRING if isinstance(raw, str):
            return _text(raw)
        case Kind.TIMESTAMP:
            return _timestamp(raw)
        case Kind.BYTES:
            return _binary(raw)
        case _:
            raise TypeMismatch(f"`{brief(raw)}` is not of kind {kind.value}")


def brief(raw: object) -> str:
    """Untrusted data, short enough and safe to show in a message."""
    text = raw if isinstance(raw, str) else repr(raw)
    text = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\n", "\\n")
    return text if len(text) <= 60 else text[:57] + "..."


def _in_range(raw: int) -> int:
    if not INT_MIN <= raw <= INT_MAX:
        raise TypeMismatch(f"the integer `{brief(raw)}` does not fit in 64 bits")
    return int(raw)


def _finite(raw: int | float) -> float:
    try:
        value = float(raw)
    except OverflowError:
        raise TypeMismatch(f"the number `{brief(raw)}` is outside the range of a double") from None
    if not math.isfinite(value):
        raise TypeMismatch(f"`{raw}` is not a finite number", remedy="leave the attribute out to send null")
    return value


def _text(raw: str) -> str:
    try:
        size = len(raw.encode("utf-8"))
    except UnicodeEncodeError:
        raise TypeMismatch(f"`{brief(raw)}` is not valid UTF-8 (a lone surrogate)") from None
    if size > MAX_TEXT_BYTES:
        raise TypeMismatch(f"a string of {size} bytes is past MAX_TEXT_BYTES ({MAX_TEXT_BYTES})")
    return raw


def _timestamp(raw: object) -> datetime:
    if isinstance(raw, datetime):
        if raw.tzinfo is None:
            raise TypeMismatch(f"the time `{raw.isoformat()}` has no zone", remedy="give it one")
        return raw.astimezone(UTC)
    if isinstance(raw, str):
        return parse_timestamp(raw)
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        seconds = _finite(raw) if isinstance(raw, float) else raw
        try:
            return EPOCH + timedelta(seconds=seconds)
        except OverflowError:
            raise TypeMismatch(f"`{brief(raw)}` seconds is outside the years 1 to 9999") from None
    raise TypeMismatch(f"`{brief(raw)}` is not of kind timestamp")


def _binary(raw: object) -> bytes:
    if isinstance(raw, str):
        try:
            raw = bytes.fromhex(raw)
        except ValueError:
            raise TypeMismatch(f"`{brief(raw)}` is not hexadecimal", remedy="write bytes like `00ff`") from None
    if not isinstance(raw, bytes):
        raise TypeMismatch(f"`{brief(raw)}` is not of kind bytes")
    if len(raw) > MAX_TEXT_BYTES:
        raise TypeMismatch(f"{len(raw)} bytes are past MAX_TEXT_BYTES ({MAX_TEXT_BYTES})")
    return raw


def same(a: Value, b: Value) -> bool:
    """Are these the same value? As `=` compares them, with null the same as null."""
    return a is b is None or compare("=", a, b) is True


def plain(value: Value) -> object:
    """A value as JSON can carry it: timestamps as ISO 8601 text, bytes as hexadecimal."""
    match value:
        case datetime():
            return render_timestamp(value)
        case bytes():
            return value.hex()
        case _:
            return value
