"""Events as Arrow: where attributes sit, what one append stores, what a batch of appends looks like to the matcher.

Guarantees: values keep their bits. A slot is an attribute's store and bit, and bits come from the catalog, which never
changes one; so an inherited attribute has the same slot and bit in the parent and in every subtype, and what was stored
stays readable when types gain attributes or retire. Booleans, integers and timestamps (microseconds) share the integer
slots. An `EventBatch` is columns only, ready for vectorised work.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model.events import Event, load_contributors
from headgate.model.types import Catalog
from headgate.model.values import Kind, Value, micros, moment
from headgate.pipeline.index.requirements import NONE, requirement_of

T = TypeVar("T")
Store: TypeAlias = Literal["i", "f", "s", "y"]
Words: TypeAlias = npt.NDArray[np.uint64]
"""Bitmasks over attributes: one row an item, 64 attributes a word."""

STORE: Final[Mapping[Kind, Store]] = {
    Kind.BOOL: "i",
    Kind.INT: "i",
    Kind.TIMESTAMP: "i",
    Kind.FLOAT: "f",
    Kind.STRING: "s",
    Kind.BYTES: "y",
}
ARROW: Final = {"i": pa.int64(), "f": pa.float64(), "s": pa.string(), "y": pa.binary()}


class Numbered(list[T]):
    """Things in the order they came, each once: those with the same key have the same number."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, thing: T) -> int:
        """The number of a thing, which is new if its key is."""
        number = self._numbers.setdefault(key, len(self))
        if number == len(self):
            self.append(thing)
        return number


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One typed column of the log. Below 0 they hold what the gateway stamped: the time, the publisher, the rate."""

    store: Store
    number: int

    @property
    def column(self) -> str:
        """Its name in an Arrow table."""
        return f"{self.store}{self.number}"


TIME: Final = Slot("i", -1)
PUBLISHER: Final = Slot("s", -1)
RATE: Final = Slot("i", -2)
"""`@rate`, which is 1 or more; 0 stands for null."""


@dataclass(frozen=True, slots=True)
class AttributeSlot:
    """Where one attribute sits: its slot, its bit and its kind, and the version that brought it (0: with its type)."""

    slot: Slot
    bit: int
    kind: Kind
    since: int = 0


def places(catalog: Catalog, type_name: str) -> dict[str, AttributeSlot]:
    """The places of a type's attributes."""
    bits, since = catalog.bits(type_name), catalog.since(type_name)
    return {
        name: AttributeSlot(Slot(STORE[kind], bits[name]), bits[name], kind, since.get(name, 0))
        for name, kind in catalog.ever_attributes(type_name).items()
    }


def layouts(catalog: Catalog) -> dict[str, dict[str, AttributeSlot]]:
    """The places of every type in a catalog, retired ones included: their events are still in the log."""
    return {name: places(catalog, name) for name in catalog.every}


def words_for(bits: int) -> int:
    """How many 64-bit words hold so many bits; at least one."""
    return max(1, -(-bits // 64))


def mask_of(bits: list[int], words: int) -> list[int]:
    """A bitmask with these bits set, as words."""
    mask = [0] * words
    for bit in bits:
        mask[bit >> 6] |= 1 << (bit & 63)
    return mask


def stored(value: Value, kind: Kind) -> int | float | str | bytes | None:
    """A value as its slot holds it."""
    match kind:
        case Kind.TIMESTAMP:
            return micros(value) if isinstance(value, datetime) else None
        case Kind.BOOL:
            return None if value is None else int(bool(value))
        case _:
            assert not isinstance(value, datetime)
            return value


def restored(held: int | float | str | bytes | None, kind: Kind) -> Value:
    """The inverse of `stored`."""
    if held is None:
        return None
    if kind is Kind.TIMESTAMP:
        assert isinstance(held, int)
        return moment(held)
    return bool(held) if kind is Kind.BOOL else held


Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
# An append is small: handing its columns to other threads costs more than it saves.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_HERE = pa.ipc.IpcReadOptions(use_threads=False)
_PACKED = ("requires", "origin", "readers", "made_of")


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One append as the log holds it: `last - first + 1` events of one stream, one version and one time."""

    stream: str
    first: int
    last: int
    version: int
    time: int
    blob: bytes
    number: int = 0
    """Its place among the appends of all streams, in the order in which they came; 0 where that is not known."""
    horizon: int = 0
    """Before which time its stream promises no more events, by this append; 0 for none."""


def to_blob(table: pa.Table) -> bytes:
    """An Arrow table as one IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_blob(blob: bytes) -> pa.Table:
    """The inverse of `to_blob`."""
    with pa.ipc.open_stream(pa.py_buffer(blob), options=_HERE) as reader:
        return reader.read_all()


_SPARK = {"string": pa.string(), "bigint": pa.int64(), "binary": pa.binary(), "boolean": pa.bool_()}


def records(schema: str, rows: Sequence[Any], **same: Any) -> pa.RecordBatch:
    """Objects as rows of a schema that Spark knows: their fields by name, and what is the same for all."""
    fields = [(name, _SPARK[kind]) for name, kind in map(str.split, schema.split(","))]
    arrays = [pa.array([same[n] if n in same else getattr(row, n) for row in rows], kind) for n, kind in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def packed(table: pa.Table) -> pa.Table:
    """Events as the log holds them: what is asked of receivers, and where they came from, each text once."""
    for name in _PACKED:
        if name in table.column_names:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, table.column(name).combine_chunks().dictionary_encode())
    return table


def decode(batch: LogBatch, layouts: Mapping[str, Mapping[str, AttributeSlot]]) -> list[Event]:
    """The events of one append, as they were."""
    events = []
    for at, row in enumerate(from_blob(batch.blob).to_pylist()):
        events.append(
            Event(
                row["id"],
                row["publisher"],
                row["type"],
                values_of(row, layouts[row["type"]], batch.version),
                moment(batch.time),
                batch.stream,
                batch.first + at,
                batch.version,
                row["source"],
                None if row.get("requires") is None else requirement_of(row["requires"]),
                row.get("rate"),
                row.get("origin"),
                None if row.get("occurred") is None else moment(row["occurred"]),
                None if row.get("contributors") is None else load_contributors(row["contributors"]),
                None if row.get("readers") is None else tuple(json.loads(row["readers"])),
                None if row.get("made_of") is None else tuple(json.loads(row["made_of"])),
            )
        )
    return events


def values_of(row: Mapping[str, Any], layout: Mapping[str, AttributeSlot], version: int) -> dict[str, Value]:
    """The attributes of one event from its slots: those that its type had at its version."""
    return {
        name: restored(row.get(place.slot.column), place.kind)
        for name, place in layout.items()
        if place.since <= version
    }


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.unify_dictionaries().chunks) if column.num_chunks else pa.nulls(0, column.type)


@dataclass
class EventBatch:
    """Many events as columns. Integer and float slots have 0 where they are null; `nulls` has one bit an attribute."""

    table: pa.Table
    type: npt.NDArray[np.int32]
    version: Ints
    time: Ints
    nulls: Words
    _numbers: dict[Slot, npt.NDArray[Any]] = field(default_factory=dict)
    _texts: dict[Slot, pa.Array] = field(default_factory=dict)
    _codes: dict[Slot, list[tuple[Mapping[str | bytes, int], int, Ints]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.type)

    def stated(self) -> pa.Array | None:
        """When events occurred, as their publishers stated it, where any did."""
        return whole(self.table.column("occurred")) if "occurred" in self.table.column_names else None

    def numbers(self, slot: Slot) -> npt.NDArray[Any]:
        """An integer or float slot."""
        if slot == TIME:
            return self.time
        if slot not in self._numbers:
            name = "rate" if slot == RATE else slot.column
            if name in self.table.column_names:
                self._numbers[slot] = pc.fill_null(self.table.column(name), 0).to_numpy()
            else:
                self._numbers[slot] = np.zeros(len(self), np.int64 if slot.store == "i" else np.float64)
        return self._numbers[slot]

    def texts(self, slot: Slot) -> pa.Array:
        """A string or bytes slot."""
        if slot not in self._texts:
            name = "publisher" if slot == PUBLISHER else slot.column
            if name in self.table.column_names:
                self._texts[slot] = whole(self.table.column(name))
            else:
                self._texts[slot] = pa.nulls(len(self), ARROW[slot.store])
        return self._texts[slot]

    def requirements(self) -> tuple[list[str], Ints] | None:
        """The distinct requirements of the events, and for each event the number of its own; None without any."""
        return self._distinct("requires")

    def readers(self) -> tuple[list[str], Ints] | None:
        """Likewise who events are for, as JSON, where they are for those who could read what they rest on (D16)."""
        return self._distinct("readers")

    def _distinct(self, name: str) -> tuple[list[str], Ints] | None:
        if name not in self.table.column_names:
            return None
        column = whole(self.table.column(name))
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        codes: Ints = pc.fill_null(encoded.indices, NONE).to_numpy().astype(np.int64)
        return encoded.dictionary.to_pylist(), codes

    def codes(self, slot: Slot, known: Mapping[str | bytes, int]) -> Ints:
        """A string or bytes slot as numbers of known texts; -1 for null and for texts nobody asks for."""
        made = self._codes.setdefault(slot, [])
        for mine, size, codes in made:  # filters and rights number their texts apart
            if mine is known and size == len(known):
                return codes
        encoded = self.texts(slot).dictionary_encode()
        table = np.fromiter((known.get(t, -1) for t in encoded.dictionary.to_pylist()), np.int64)
        table = np.append(table, -1)  # null comes as the last entry
        indices = pc.fill_null(encoded.indices, len(table) - 1).to_numpy()
        made.append((known, len(known), table[indices]))
        return made[-1][2]


def event_batch(
    batches: Sequence[LogBatch],
    types: Mapping[str, int],
    layouts: Mapping[str, Mapping[str, AttributeSlot]],
    words: int,
) -> EventBatch:
    """Appends put together as columns. `types` numbers the event types."""
    tables = [from_blob(b.blob) for b in batches]
    sizes = np.array([t.num_rows for t in tables], np.int64)
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    encoded = whole(table.column("type")).dictionary_encode()
    names = encoded.dictionary.to_pylist()
    local = encoded.indices.to_numpy()
    numbers = np.array([types[name] for name in names], np.int32)
    version = np.repeat(np.array([b.version for b in batches], np.int64), sizes)
    time = np.repeat(np.array([b.time for b in batches], np.int64), sizes)
    nulls = np.zeros((table.num_rows, words), np.uint64)
    _mark_nulls(nulls, table, local, [layouts[name] for name in names])
    return EventBatch(table, numbers[local], version, time, nulls)


def _mark_nulls(
    nulls: Words, table: pa.Table, local: npt.NDArray[Any], layouts: list[Mapping[str, AttributeSlot]]
) -> None:
    """Set the bit of every attribute that is null. Types with the same places are done together."""
    shapes: dict[tuple[AttributeSlot, ...], list[int]] = {}
    for number, layout in enumerate(layouts):
        shapes.setdefault(tuple(layout.values()), []).append(number)
    missing: dict[Slot, Flags] = {}
    for shape, numbers in shapes.items():
        rows: Any = slice(None) if len(shapes) == 1 else np.flatnonzero(np.isin(local, numbers))
        for slot in shape:
            if slot.slot not in missing:
                missing[slot.slot] = _is_null(table, slot.slot)
            bit = np.uint64(1 << (slot.bit & 63))
            nulls[rows, slot.bit >> 6] |= np.where(missing[slot.slot][rows], bit, np.uint64(0))


def _is_null(table: pa.Table, slot: Slot) -> Flags:
    if slot.column not in table.column_names:
        return np.ones(table.num_rows, np.bool_)
    flags: Flags = pc.is_null(table.column(slot.column)).to_numpy()
    return flags
