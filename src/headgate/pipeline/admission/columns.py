"""Events of one type by one publisher as columns, checked against the type.

Guarantees: a row that is not refused holds exactly the values that `decide.publish.type_check` gives for its event, in
the form that the log stores; a row that is refused has the error that `type_check` raises, and null where it is wrong.
Kind by kind a whole column is checked and converted at once; only what does not pass that is looked at value by value.
Leaves out: rights (`admission`), and events that come as Arrow (`bulk`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide.publish import type_check
from headgate.model.errors import HeadgateError, TypeMismatch
from headgate.model.events import Draft
from headgate.model.limits import MAX_TEXT_BYTES
from headgate.model.values import Kind, conform, micros
from headgate.pipeline.admission.compare import flags
from headgate.pipeline.index.layout import ARROW, STORE, stored
from headgate.pipeline.index.requirements import Required, required
from headgate.pipeline.log.codec import Flags, Ints

MICROS_MIN: Final = micros(datetime.min.replace(tzinfo=UTC))
MICROS_MAX: Final = micros(datetime.max.replace(tzinfo=UTC))
_NONE: Final = type(None)
_ISO: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}|\.\d{6})?(Z|[+-]\d\d:\d\d)$"
"""The common spelling of a time; any other is parsed one by one."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Events of one type by one publisher. An attribute without an array is null in every row.

    `origin` is where they came from: one for all, or one an event.
    """

    type: str
    publisher: str
    attributes: Mapping[str, Kind]
    ids: pa.Array
    sources: pa.Array
    arrays: Mapping[str, pa.Array]
    refusals: Mapping[int, HeadgateError] = field(default_factory=dict)
    required: Required | None = None
    origin: str | pa.Array | None = None

    def __len__(self) -> int:
        return len(self.ids)


def grouped(drafts: Sequence[Draft]) -> dict[tuple[str, str], Ints]:
    """The rows of a batch by publisher and type, each in order."""
    rows: dict[tuple[str, str], list[int]] = {}
    for at, draft in enumerate(drafts):
        rows.setdefault((draft.publisher, draft.type), []).append(at)
    return {key: np.array(mine, np.int64) for key, mine in rows.items()}


def from_drafts(drafts: Sequence[Draft], attributes: Mapping[str, Kind]) -> Columns:
    """Drafts of one type by one publisher, at least one, as columns."""
    refusals: dict[int, HeadgateError] = {}
    values = _mappings(drafts, attributes, refusals)
    arrays: dict[str, pa.Array] = {}
    present: set[str] = set().union(*values)
    for name, kind in attributes.items():
        if name not in present:
            continue
        raw = [one.get(name) for one in values]
        array = _converted(kind, raw)
        if array is None:
            array, wrong = _one_by_one(kind, raw)
            for row in wrong:
                _refuse(row, drafts[row], attributes, refusals)
        arrays[name] = array
    ids = _labels("id", [draft.id for draft in drafts], refusals)
    sources = _labels("source", [draft.source for draft in drafts], refusals)
    return Columns(
        drafts[0].type,
        drafts[0].publisher,
        attributes,
        ids,
        sources,
        arrays,
        refusals,
        required([draft.requires for draft in drafts], refusals),
        _origin([draft.origin for draft in drafts]),
    )


def _origin(origins: list[str | None]) -> str | pa.Array | None:
    """Where some drafts came from: mostly from one place."""
    return origins[0] if len(set(origins)) == 1 else pa.array(origins, pa.string())


def _mappings(
    drafts: Sequence[Draft], attributes: Mapping[str, Kind], refusals: dict[int, HeadgateError]
) -> list[Mapping[str, object]]:
    """The values of each draft; nothing for one that is no mapping or names what its type lacks."""
    values: list[Mapping[str, object]] = [draft.values for draft in drafts]
    if set(map(type, values)) == {dict} and set().union(*values) <= attributes.keys():
        return values
    for row, draft in enumerate(drafts):
        if not isinstance(draft.values, Mapping) or any(name not in attributes for name in draft.values):
            _refuse(row, draft, attributes, refusals)
            values[row] = {}
    return values


def _refuse(row: int, draft: Draft, attributes: Mapping[str, Kind], refusals: dict[int, HeadgateError]) -> None:
    """Keep what `type_check` says of a draft that is wrong."""
    if row in refusals:
        return
    try:
        type_check(draft, attributes)
    except TypeMismatch as error:
        refusals[row] = error
    else:
        raise AssertionError(f"row {row} conforms")


def _labels(what: str, raw: list[str], refusals: dict[int, HeadgateError]) -> pa.Array:
    """Ids or sources, which must be text that can be stored."""
    array = _converted(Kind.STRING, raw)
    if array is not None and array.null_count == 0:
        return array
    kept: list[str] = []
    for row, label in enumerate(raw):
        try:
            kept.append(str(conform(Kind.STRING, "" if label is None else label)))
        except TypeMismatch as error:
            kept.append("")
            refusals.setdefault(row, TypeMismatch(f"the {what} of the event: {error.message}"))
        else:
            if label is None:
                refusals.setdefault(row, TypeMismatch(f"the event has no {what}"))
    return pa.array(kept, pa.string())


def _one_by_one(kind: Kind, raw: list[object]) -> tuple[pa.Array, list[int]]:
    """A column value by value, and the rows that do not conform."""
    kept: list[Any] = []
    wrong = []
    for row, one in enumerate(raw):
        try:
            kept.append(stored(conform(kind, one), kind))
        except TypeMismatch:
            kept.append(None)
            wrong.append(row)
    return pa.array(kept, ARROW[STORE[kind]]), wrong


def _converted(kind: Kind, raw: list[Any]) -> pa.Array | None:
    """A column in its stored form at once; None if some value needs a closer look."""
    made, types = _AT_ONCE[kind]
    if not types.issuperset(map(type, raw)):
        return None
    try:
        return made(raw)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError):
        return None


def _ints(raw: list[Any]) -> pa.Array:
    return pa.array(raw, pa.int64())


def _bools(raw: list[Any]) -> pa.Array:
    return pa.array(raw, pa.bool_()).cast(pa.int64())


def _floats(raw: list[Any]) -> pa.Array | None:
    array = pa.array(raw, pa.float64())
    return array if all_finite(array) else None


def _strings(raw: list[Any]) -> pa.Array | None:
    array = pa.array(raw, pa.string())
    return None if too_long(array) is not None else array


def _binaries(raw: list[Any]) -> pa.Array | None:
    array = pa.array(raw, pa.binary())
    return None if too_long(array) is not None else array


def _times(raw: list[Any]) -> pa.Array | None:
    """Times written in the common way."""
    texts = pa.array(raw, pa.string())
    if pc.all(pc.match_substring_regex(texts, _ISO)).as_py() is False:
        return None
    array = texts.cast(pa.timestamp("us", "UTC")).view(pa.int64())
    return array if outside(array, MICROS_MIN, MICROS_MAX) is None else None


_AT_ONCE: Final[Mapping[Kind, tuple[Callable[[list[Any]], pa.Array | None], frozenset[type]]]] = {
    Kind.INT: (_ints, frozenset({int, _NONE})),
    Kind.BOOL: (_bools, frozenset({bool, _NONE})),
    Kind.FLOAT: (_floats, frozenset({float, int, _NONE})),
    Kind.STRING: (_strings, frozenset({str, _NONE})),
    Kind.BYTES: (_binaries, frozenset({bytes, _NONE})),
    Kind.TIMESTAMP: (_times, frozenset({str, _NONE})),
}


def all_finite(array: pa.Array) -> bool:
    """Has a column of doubles neither NaN nor infinities?"""
    if array.null_count == 0:
        return bool(np.isfinite(array.to_numpy()).all())
    return pc.all(pc.is_finite(array)).as_py() is not False  # what is under a null does not count


def too_long(array: pa.Array) -> Flags | None:
    """The rows of a column of strings or bytes that are past `MAX_TEXT_BYTES`; None if there are none."""
    if array.nbytes <= MAX_TEXT_BYTES:
        return None
    found = flags(pc.greater(pc.binary_length(array), MAX_TEXT_BYTES))
    return found if found.any() else None


def outside(array: pa.Array, low: int, high: int) -> Flags | None:
    """The rows of a column of integers that are not in a range around zero; None if there are none."""
    held = (pc.fill_null(array, 0) if array.null_count else array).to_numpy()
    if len(held) == 0 or (held.min() >= low and held.max() <= high):
        return None
    found: Flags = (held < low) | (held > high)
    return found
