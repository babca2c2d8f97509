"""Columns compared as `model.values.compare` compares values: integers and doubles exactly, text by code point.

Guarantees: a result for every row, also where a null stands; what is under a null is the caller's to leave out.
Leaves out: which values may be compared at all (`decide.bind`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model.values import INT_MAX, INT_MIN, Value, compare, micros

Flags = npt.NDArray[np.bool_]

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
