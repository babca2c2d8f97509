"""Events of one type by one publisher as columns, checked against the type; one by one, or as an Arrow IPC stream.

Guarantees: a row that is not refused holds exactly the values that `decide.publish.type_check` gives for its event, in
the form that the log stores; a row that is refused has the error that `type_check` raises, and null where it is wrong.
Kind by kind a whole column is checked and converted at once; only what does not pass that is looked at value by value.
Leaves out: rights (`admission`).

In a stream columns are named for what they hold: `id` (string, one for every event), `source`, `type` and `requires`
(string, optional; the last is what an event asks of receivers), and the attributes of the type. `data.price` is the
attribute `price` too; so an attribute called `id`, `source`, `type` or `requires` is sent as `data.id`, and one called
`data.x` as `data.data.x`. An attribute without a column is null. Where the type takes times from publishers, `time`
(timestamp, optional) is when an event occurred, and an attribute called that is sent as `data.time`.

| kind | Arrow types |
|---|---|
| bool | bool |
| int | int8 to int64, uint8 to uint64 |
| float | float16 to float64, and the integers |
| string | string, large_string, and dictionaries of them |
| timestamp | timestamp with a zone, of any unit; below the microsecond it is cut off |
| bytes | binary, large_binary, fixed_size_binary, and dictionaries of the first two |

A column of nulls fits every kind. `read` gives back only a stream that is sound, whole and within the limits, and never
unpacks one that could grow: compressed streams are refused. `from_arrow` refuses the request for a column that the type
lacks or that has the wrong Arrow type; what is wrong with one event refuses that event alone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide.publish import stated_time, type_check
from headgate.model.errors import HeadgateError, TypeMismatch
from headgate.model.events import Draft, dump_contributors
from headgate.model.limits import MAX_ATTRIBUTES, MAX_BULK_BYTES, MAX_BULK_EVENTS, MAX_TEXT_BYTES
from headgate.model.types import BY_GATEWAY, Times
from headgate.model.values import INT_MAX, INT_MIN, Kind, brief, conform, micros
from headgate.pipeline.index.requirements import Required, required, required_texts
from headgate.pipeline.log.codec import ARROW, STORE, Flags, Ints, stored, whole
from headgate.pipeline.log.promises import MICROS_MIN
from headgate.pipeline.truth import flags

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
    stated: pa.Array | None = None
    """When events occurred, in microseconds, where their publisher states it and their type takes that."""
    contributors: pa.Array | None = None
    """What events rest on, as JSON, where a detection publishes them."""
    readers: pa.Array | None = None
    """Who could read that, as JSON, where it is known."""
    made_of: pa.Array | None = None
    """The types that the detection looks at, as JSON."""

    def __len__(self) -> int:
        return len(self.ids)


def grouped(drafts: Sequence[Draft]) -> dict[tuple[str, str], Ints]:
    """The rows of a batch by publisher and type, each in order."""
    rows: dict[tuple[str, str], list[int]] = {}
    for at, draft in enumerate(drafts):
        rows.setdefault((draft.publisher, draft.type), []).append(at)
    return {key: np.array(mine, np.int64) for key, mine in rows.items()}


def from_drafts(drafts: Sequence[Draft], attributes: Mapping[str, Kind], times: Times = BY_GATEWAY) -> Columns:
    """Drafts of one type by one publisher, at least one, as columns; `times` is what the type says of them."""
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
    stated = _stated_times([draft.time for draft in drafts], refusals) if times.stated else None
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
        stated,
        _contributors(drafts),
        _names([draft.readers for draft in drafts]),
        _names([draft.made_of for draft in drafts]),
    )


def _contributors(drafts: Sequence[Draft]) -> pa.Array | None:
    """What drafts rest on, as far as detections publish them."""
    if all(draft.contributors is None for draft in drafts):
        return None
    return pa.array(
        [None if draft.contributors is None else dump_contributors(draft.contributors) for draft in drafts], pa.string()
    )


def _names(stamped: Sequence[tuple[str, ...] | None]) -> pa.Array | None:
    """What drafts of detections are stamped with: who could read what they rest on, or which types these are of."""
    if all(names is None for names in stamped):
        return None
    return pa.array([None if names is None else json.dumps(names) for names in stamped], pa.string())


def _stated_times(raw: list[object], refusals: dict[int, HeadgateError]) -> pa.Array | None:
    """When drafts occurred, as far as they say so."""
    if all(one is None for one in raw):
        return None
    array = _converted(Kind.TIMESTAMP, raw)
    if array is None:
        array, wrong = _one_by_one(Kind.TIMESTAMP, raw)
        for row in wrong:
            try:
                stated_time(raw[row])
            except TypeMismatch as error:
                refusals.setdefault(row, error)
    return array


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


_AT_ONCE: Final[Mapping[Kind, tuple[pa.DataType, frozenset[type]]]] = {
    Kind.INT: (pa.int64(), frozenset({int, _NONE})),
    Kind.BOOL: (pa.bool_(), frozenset({bool, _NONE})),
    Kind.FLOAT: (pa.float64(), frozenset({float, int, _NONE})),
    Kind.STRING: (pa.string(), frozenset({str, _NONE})),
    Kind.BYTES: (pa.binary(), frozenset({bytes, _NONE})),
    Kind.TIMESTAMP: (pa.string(), frozenset({str, _NONE})),
}


def _converted(kind: Kind, raw: list[Any]) -> pa.Array | None:
    """A column in its stored form at once; None if some value needs a closer look."""
    arrow, types = _AT_ONCE[kind]
    if not types.issuperset(map(type, raw)):
        return None
    try:
        array = pa.array(raw, arrow)
        match kind:
            case Kind.BOOL:
                return array.cast(pa.int64())
            case Kind.FLOAT:
                return array if all_finite(array) else None
            case Kind.STRING | Kind.BYTES:
                return array if too_long(array) is None else None
            case Kind.TIMESTAMP:
                return _times(array)
            case _:
                return array
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError):
        return None


def _times(texts: pa.Array) -> pa.Array | None:
    """Times written in the common way."""
    if pc.all(pc.match_substring_regex(texts, _ISO)).as_py() is False:
        return None
    array = texts.cast(pa.timestamp("us", "UTC")).view(pa.int64())
    return array if outside(array, MICROS_MIN, MICROS_MAX) is None else None


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


_MAX_MESSAGES: Final = 10_000
"""Schema, dictionary and record messages of one stream."""
_MAX_METADATA_BYTES: Final = 1_000_000
"""Bytes of the header of one message."""
_PREFIX: Final = "data."
_ENVELOPE: Final = frozenset({"id", "source", "type", "requires"})
_TIME: Final = "time"
_MICROS: Final[Mapping[str, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1}
_UNITS: Final[Mapping[str, str]] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}


# -- bytes to table -----------------------------------------------------------------------------------------------


def read(body: bytes) -> pa.Table:
    """The table in an Arrow IPC stream from outside."""
    # 1. size   2. every message: version, no compression   3. rows   4. every array as its type says   5. size again
    if len(body) > MAX_BULK_BYTES:
        raise _past("bytes", len(body), "MAX_BULK_BYTES", MAX_BULK_BYTES)
    try:
        _check_messages(body)
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            _check_words(reader.schema)
            table = _bounded(reader)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise TypeMismatch(
            f"the body is not a sound Arrow IPC stream: `{brief(str(error))}`",
            remedy="write it as a stream, not a file",
        ) from None
    if table.nbytes > MAX_BULK_BYTES:
        raise _past("bytes", table.nbytes, "MAX_BULK_BYTES", MAX_BULK_BYTES)
    return table


def _check_words(schema: pa.Schema) -> None:
    """Names and zones are bytes to Arrow, and must be text: to ask for them raises if they are not."""
    for column in schema:
        _ = column.name, str(column.type), getattr(column.type, "tz", None)


def _bounded(reader: pa.RecordBatchReader) -> pa.Table:
    if len(reader.schema) > MAX_ATTRIBUTES + len(_ENVELOPE):
        raise _past("columns", len(reader.schema), "MAX_ATTRIBUTES", MAX_ATTRIBUTES)
    batches, rows = [], 0
    for batch in reader:
        rows += batch.num_rows
        if rows > MAX_BULK_EVENTS:
            raise _past("events", rows, "MAX_BULK_EVENTS", MAX_BULK_EVENTS)
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _past(what: str, count: int, limit: str, most: int) -> TypeMismatch:
    return TypeMismatch(f"{count} {what} are past {limit} ({most})", remedy="send fewer events at a time")


def _check_messages(body: bytes) -> None:
    for count, message in enumerate(pa.ipc.MessageReader.open_stream(pa.py_buffer(body))):
        if count >= _MAX_MESSAGES or message.metadata.size > _MAX_METADATA_BYTES:
            raise TypeMismatch("the Arrow IPC stream is cut too fine", remedy="put more events in a record batch")
        if message.metadata_version != pa.ipc.MetadataVersion.V5:
            raise TypeMismatch("the Arrow IPC stream is of an old format", remedy="write metadata version 5")
        if message.type != "schema" and _is_compressed(message):
            raise TypeMismatch("the Arrow IPC stream is compressed", remedy="write it without compression")


def _is_compressed(message: pa.ipc.Message) -> bool:
    """Does the header name a compression? Arrow reads it only while it unpacks, which is too late to refuse."""
    header = memoryview(message.metadata)
    root = struct.unpack_from("<I", header, 0)[0]
    batch = _table(header, root, 2)
    if message.type == "dictionary":
        batch = _table(header, batch, 1)
    return _field(header, batch, 3) is not None


def _field(header: memoryview, table: int, number: int) -> int | None:
    """Where a field of a FlatBuffers table is, if it is set. Arrow has verified the offsets."""
    vtable = table - struct.unpack_from("<i", header, table)[0]
    size = struct.unpack_from("<H", header, vtable)[0]
    entry = 4 + 2 * number
    offset = struct.unpack_from("<H", header, vtable + entry)[0] if entry < size else 0
    return table + offset if offset else None


def _table(header: memoryview, table: int, number: int) -> int:
    at = _field(header, table, number)
    if at is None:
        raise ValueError("a message has no content")
    return at + int(struct.unpack_from("<I", header, at)[0])


# -- table to columns ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TablePart:
    """The events of one type in a table, and their rows in it."""

    type: str
    table: pa.Table
    rows: Ints


def by_type(table: pa.Table, default: str | None = None) -> list[TablePart]:
    """A table cut by its `type` column. Without one, or where it is null, events are of the default type.

    Where several types share a table, a column in which a type has nothing but nulls is not of that type.
    """
    every = np.arange(table.num_rows, dtype=np.int64)
    types = _text(table, "type")
    table = table.drop_columns(["type"]) if types is not None else table
    names = [default] if types is None else [default if n is None else n for n in pc.unique(types).to_pylist()]
    if None in names:
        raise TypeMismatch("an event has no type", remedy="send a `type` column, or name the type in the request")
    if len(set(names)) == 1:
        return [TablePart(str(names[0]), table, every)]
    parts = []
    filled = pc.fill_null(types, default) if default is not None else types
    for name in dict.fromkeys(names):
        rows = np.flatnonzero(flags(pc.equal(filled, name)))
        mine = table.take(pa.array(rows))
        used = [n for n in mine.column_names if n in _ENVELOPE or mine.column(n).null_count < len(rows)]
        parts.append(TablePart(str(name), mine.select(used), rows))
    return parts


def requirement_texts(table: pa.Table) -> list[str]:
    """The different requirements of a sound table, as they were sent."""
    column = _text(table, "requires")
    return [] if column is None else [one for one in pc.unique(column).to_pylist() if one is not None]


def requirements_in(table: pa.Table) -> Required | None:
    """What the events of a sound table ask of receivers; what is no requirement is left out."""
    column = _text(table, "requires")
    return None if column is None else required_texts(column, {})


def from_arrow(
    table: pa.Table,
    type_name: str,
    publisher: str,
    attributes: Mapping[str, Kind],
    origin: str | None = None,
    times: Times = BY_GATEWAY,
) -> Columns:
    """A sound table with events of one type by one publisher, who sent it from `origin`, as columns."""
    refusals: dict[int, HeadgateError] = {}
    untimely: dict[int, HeadgateError] = {}
    table, stated = _without_times(table, untimely) if times.stated else (table, None)
    named = _named(table, type_name, attributes)
    ids, sources, types, requires = (_text(table, what) for what in ("id", "source", "type", "requires"))
    if ids is None:
        raise TypeMismatch("the column `id` is missing", remedy="give every event an id")
    arrays: dict[str, pa.Array] = {}
    sent_types = table.schema.types
    for name, kind in attributes.items():
        if name not in named or pa.types.is_null(sent_types[named[name]]):
            continue
        sent = whole(table.column(named[name]))
        arrays[name], wrong = _stored(name, kind, sent)
        if wrong is not None:
            for row in np.flatnonzero(wrong).tolist():
                refusals.setdefault(row, _refusal(Draft("", publisher, type_name, {}), name, kind, sent[row]))
            arrays[name] = pc.if_else(pa.array(wrong), pa.scalar(None, arrays[name].type), arrays[name])
    refusals = untimely | refusals
    ids = _filled(ids, "id", refusals)
    if sources is None:
        sources = pa.repeat("", len(ids))
    elif sources.null_count:
        sources = pc.fill_null(sources, "")
    sources = _filled(sources, "source", refusals)
    if types is not None:
        for row in np.flatnonzero(flags(pc.not_equal(types, type_name))).tolist():
            refusals[row] = TypeMismatch(f"the event is of type `{brief(types[row].as_py())}`, not `{type_name}`")
    required = None if requires is None else required_texts(requires, refusals)
    return Columns(type_name, publisher, attributes, ids, sources, arrays, refusals, required, origin, stated)


def _without_times(table: pa.Table, refusals: dict[int, HeadgateError]) -> tuple[pa.Table, pa.Array | None]:
    """A table without the column that says when its events occurred, and that column."""
    count = table.column_names.count(_TIME)
    if count == 0:
        return table, None
    if count > 1:
        raise TypeMismatch(f"two columns are called `{_TIME}`")
    sent = whole(table.column(_TIME))
    table = table.drop_columns([_TIME])
    if pa.types.is_null(sent.type) or sent.null_count == len(sent):
        return table, None
    if not pa.types.is_timestamp(sent.type):
        raise TypeMismatch(
            f"the column `{_TIME}` is of the Arrow type `{brief(str(sent.type))}`",
            remedy="send `timestamp[us, tz=UTC]`",
        )
    if sent.type.tz is None:
        raise TypeMismatch(f"the column `{_TIME}` has no zone", remedy="send `timestamp[us, tz=UTC]`")
    stated, wrong = _micros(_TIME, sent)
    if wrong is not None:
        for row in np.flatnonzero(wrong).tolist():
            shown = f"`{sent[row].value}` {_UNITS[sent.type.unit]} since 1970"
            refusals[row] = TypeMismatch(f"the time of the event: {shown} is outside the years 1 to 9999")
        stated = pc.if_else(pa.array(wrong), pa.scalar(None, pa.int64()), stated)
    return table, stated


def _named(table: pa.Table, type_name: str, attributes: Mapping[str, Kind]) -> dict[str, int]:
    """Which column holds which attribute."""
    positions: dict[str, int] = {}
    for at, column in enumerate(table.column_names):
        if column in _ENVELOPE:
            continue
        name = column.removeprefix(_PREFIX)
        if name not in attributes:
            type_check(Draft("", "", type_name, {name: None}), attributes)
        if name in positions:
            raise TypeMismatch(f"two columns hold the attribute `{name}`")
        positions[name] = at
    return positions


def _text(table: pa.Table, name: str) -> pa.Array | None:
    """A column of the envelope."""
    count = table.column_names.count(name)
    if count == 0:
        return None
    if count > 1:
        raise TypeMismatch(f"two columns are called `{name}`")
    column = whole(table.column(name))
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    text = _dense(column)
    if not (pa.types.is_string(text.type) or pa.types.is_large_string(text.type)):
        raise TypeMismatch(f"the column `{name}` is of the Arrow type `{text.type}`", remedy="send strings")
    return _as(text, pa.string())


def _filled(array: pa.Array, what: str, refusals: dict[int, HeadgateError]) -> pa.Array:
    """An id or source for every row; a row without one, or with one that is too long, is refused."""
    long = too_long(array)
    if long is None and not array.null_count:
        return array
    for row in np.flatnonzero(flags(pc.is_null(array))).tolist():
        refusals.setdefault(row, TypeMismatch(f"the event has no {what}"))
    if long is not None:
        for row in np.flatnonzero(long).tolist():
            refusals.setdefault(row, TypeMismatch(f"the {what} of the event is past MAX_TEXT_BYTES"))
        array = pc.if_else(pa.array(long), "", array)
    return pc.fill_null(array, "")


def _dense(array: pa.Array) -> pa.Array:
    """A dictionary of texts written out, if that stays within the limits; anything else as it is."""
    if not pa.types.is_dictionary(array.type) or not _is_text(array.type.value_type):
        return array
    size = pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0
    if size > MAX_BULK_BYTES:
        raise _past("bytes", size, "MAX_BULK_BYTES", MAX_BULK_BYTES)
    return array.dictionary_decode()


def _as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column as another type; an integer that a double cannot hold becomes the nearest."""
    return array if array.type == type_ else array.cast(type_, safe=False)


def _is_text(type_: pa.DataType) -> bool:
    is_ = pa.types
    return any(t(type_) for t in (is_.is_string, is_.is_large_string, is_.is_binary, is_.is_large_binary))


# -- one column ---------------------------------------------------------------------------------------------------


def _stored(name: str, kind: Kind, sent: pa.Array) -> tuple[pa.Array, Flags | None]:
    """A column in its stored form, and the rows with a value that does not conform."""
    is_, type_ = pa.types, sent.type
    match kind:
        case Kind.BOOL if is_.is_boolean(type_):
            return sent.cast(pa.int64()), None
        case Kind.INT if is_.is_integer(type_):
            wrong = outside(sent, INT_MIN, INT_MAX) if is_.is_uint64(type_) else None
            return _as(sent, pa.int64()), wrong
        case Kind.FLOAT if is_.is_integer(type_):
            return _as(sent, pa.float64()), None
        case Kind.FLOAT if is_.is_floating(type_):
            array = _as(sent, pa.float64())
            return array, None if all_finite(array) else flags(pc.invert(pc.is_finite(array)))
        case Kind.TIMESTAMP if is_.is_timestamp(type_):
            return _micros(name, sent)
        case Kind.STRING | Kind.BYTES:
            text = _dense(sent)
            if kind is Kind.STRING and (is_.is_string(text.type) or is_.is_large_string(text.type)):
                return _as(text, pa.string()), too_long(text)
            if kind is Kind.BYTES and (is_.is_binary(text.type) or is_.is_large_binary(text.type)):
                return _as(text, pa.binary()), too_long(text)
            if kind is Kind.BYTES and is_.is_fixed_size_binary(text.type):
                return text.cast(pa.binary()), too_long(text.cast(pa.binary()))
    raise TypeMismatch(f"attribute `{name}`: the Arrow type `{brief(str(type_))}` is not of kind {kind.value}")


def _micros(name: str, sent: pa.Array) -> tuple[pa.Array, Flags | None]:
    """Times as microseconds since 1970, and the rows that are outside the years 1 to 9999."""
    if sent.type.tz is None:
        raise TypeMismatch(f"attribute `{name}`: the times have no zone", remedy="send `timestamp[us, tz=UTC]`")
    counts = sent.view(pa.int64())
    if sent.type.unit == "ns":  # never outside; below the microsecond it is cut off, as in text
        cut = counts.fill_null(0).to_numpy() // 1_000
        return pa.array(cut, mask=flags(counts.is_null())), None
    factor = _MICROS[sent.type.unit]
    wrong = outside(counts, -(-MICROS_MIN // factor), MICROS_MAX // factor)
    return (counts if factor == 1 else pc.multiply(counts, factor)), wrong


def _refusal(draft: Draft, name: str, kind: Kind, sent: pa.Scalar) -> HeadgateError:
    """What is wrong with one value."""
    if kind is Kind.TIMESTAMP:
        shown = f"`{sent.value}` {_UNITS[sent.type.unit]} since 1970"
        return TypeMismatch(f"attribute `{name}`: {shown} is outside the years 1 to 9999")
    raw: Any = sent.as_py()
    try:
        type_check(Draft(draft.id, draft.publisher, draft.type, {name: raw}), {name: kind})
    except TypeMismatch as error:
        return error
    raise AssertionError(f"{raw!r} conforms")
