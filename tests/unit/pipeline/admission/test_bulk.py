"""Bulk publish: what an Arrow stream may hold, and what is refused of it."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.publish import type_check
from headgate.model.errors import TypeMismatch
from headgate.model.events import Draft
from headgate.model.limits import MAX_ATTRIBUTES, MAX_TEXT_BYTES
from headgate.model.values import Kind, micros
from headgate.pipeline.admission import columns as bulk
from headgate.pipeline.admission.columns import Columns, by_type, from_arrow, read
from strategies.running import examples

KINDS = {
    "flag": Kind.BOOL,
    "count": Kind.INT,
    "price": Kind.FLOAT,
    "name": Kind.STRING,
    "at": Kind.TIMESTAMP,
    "raw": Kind.BYTES,
}
NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)


def stream(table: pa.Table, batches: int = 1, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=max(1, -(-table.num_rows // batches)))
    return bytes(sink.getvalue())


def columns(kinds: dict[str, Kind] | None = None, **arrays: Any) -> Columns:
    """One request through the whole way in."""
    size = len(next(iter(arrays.values())))
    table = pa.table({"id": [f"e{n}" for n in range(size)], **arrays} if "id" not in arrays else arrays)
    return from_arrow(read(stream(table)), "t.T", "cam", KINDS if kinds is None else kinds)


def held(found: Columns, name: str) -> list[Any]:
    return list(found.arrays[name].to_pylist())


# -- what fits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "type_", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
)
def test_integers_of_any_width_are_ints_and_floats(type_: pa.DataType) -> None:
    found = columns(count=pa.array([1, None, 100], type_), price=pa.array([1, None, 100], type_))
    assert held(found, "count") == [1, None, 100]
    assert held(found, "price") == [1.0, None, 100.0]
    assert (found.arrays["count"].type, found.arrays["price"].type) == (pa.int64(), pa.float64())
    assert not found.refusals


@pytest.mark.parametrize("type_", [pa.float16(), pa.float32(), pa.float64()])
def test_floats_of_any_width(type_: pa.DataType) -> None:
    assert held(columns(price=pa.array([0.5, None, -0.0], type_)), "price") == [0.5, None, -0.0]


def test_a_large_integer_becomes_the_nearest_double() -> None:
    assert held(columns(price=pa.array([2**53 + 1, 2**63 - 1])), "price") == [float(2**53 + 1), float(2**63 - 1)]


@pytest.mark.parametrize(
    "type_",
    [
        pa.string(),
        pa.large_string(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
)
def test_text(type_: pa.DataType) -> None:
    found = columns(name=pa.array(["a", None, "é"], pa.string()).cast(type_), id=pa.array(["x", "y", "z"]).cast(type_))
    assert held(found, "name") == ["a", None, "é"]
    assert found.ids.to_pylist() == ["x", "y", "z"]
    assert found.arrays["name"].type == found.ids.type == pa.string()


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary(2), pa.dictionary(pa.int8(), pa.binary())])
def test_bytes(type_: pa.DataType) -> None:
    source = pa.array([b"ab", None, b"\x00\xff"], pa.binary())
    sent = source.dictionary_encode() if pa.types.is_dictionary(type_) else source.cast(type_)
    assert held(columns(raw=sent), "raw") == [b"ab", None, b"\x00\xff"]


def test_booleans_and_nothing() -> None:
    found = columns(flag=pa.array([True, None, False]), count=pa.nulls(3))
    assert held(found, "flag") == [1, None, 0]
    assert set(found.arrays) == {"flag"}
    assert found.sources.to_pylist() == ["", "", ""]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/London", "+05:45"])
def test_times_of_any_unit_and_zone(unit: str, zone: str) -> None:
    early = datetime(1960, 1, 1, tzinfo=UTC)
    found = columns(at=pa.array([NINE, None, early], pa.timestamp(unit, zone)))
    assert held(found, "at") == [micros(NINE), None, micros(early)]


def test_nanoseconds_are_cut_as_in_text() -> None:
    found = columns(at=pa.array([1_999, -1, None, -1_001], pa.timestamp("ns", "UTC")))
    assert held(found, "at") == [1, -1, None, -2]
    text = type_check(Draft("", "", "t.T", {"at": "1969-12-31T23:59:59.999999999Z"}), {"at": Kind.TIMESTAMP})
    assert micros(text["at"]) == -1  # type: ignore[arg-type]


def test_several_record_batches_are_one_request() -> None:
    table = pa.table({"id": list("abcde"), "name": pa.array(["x", "y", "x", None, "z"]).dictionary_encode()})
    found = from_arrow(read(stream(table, batches=3)), "t.T", "cam", KINDS)
    assert (found.ids.to_pylist(), held(found, "name")) == (list("abcde"), ["x", "y", "x", None, "z"])
    empty = from_arrow(read(stream(table.slice(0, 0))), "t.T", "cam", KINDS)
    assert len(empty) == 0


def test_an_attribute_may_carry_a_prefix() -> None:
    kinds = {"id": Kind.INT, "type": Kind.INT, "x": Kind.INT, "data.x": Kind.INT}
    table = pa.table({"id": ["a"], "data.id": [1], "data.type": [2], "x": [3], "data.data.x": [4]})
    found = from_arrow(table, "t.T", "cam", kinds)
    assert {name: held(found, name) for name in kinds} == {"id": [1], "type": [2], "x": [3], "data.x": [4]}


# -- what refuses one event ---------------------------------------------------------------------------------------


def refusal(found: Columns, row: int) -> str:
    error = found.refusals[row]
    assert error.code == "type-mismatch"
    return error.message


@pytest.mark.parametrize(
    ("name", "array", "bad", "raw"),
    [
        ("price", pa.array([0.5, math.nan, None]), 1, math.nan),
        ("price", pa.array([math.inf, 1.0, None]), 0, math.inf),
        ("count", pa.array([1, None, 2**63], pa.uint64()), 2, 2**63),
        ("name", pa.array(["a", "é" * MAX_TEXT_BYTES, None]), 1, "é" * MAX_TEXT_BYTES),
        ("raw", pa.array([b"a", b"b" * (MAX_TEXT_BYTES + 1), None]), 1, b"b" * (MAX_TEXT_BYTES + 1)),
    ],
)
def test_a_wrong_value_refuses_its_event_alone(name: str, array: pa.Array, bad: int, raw: object) -> None:
    found = columns(**{name: array})
    with pytest.raises(TypeMismatch) as error:
        type_check(Draft("", "cam", "t.T", {name: raw}), KINDS)
    assert list(found.refusals) == [bad]
    assert refusal(found, bad) == error.value.message
    assert held(found, name)[bad] is None


def test_what_is_under_a_null_is_nobodys_business() -> None:
    values = pa.py_buffer(struct.pack("<3d", 1.0, math.nan, 2.0))
    array = pa.Array.from_buffers(pa.float64(), 3, [pa.py_buffer(b"\x05"), values])
    assert held(columns(price=array), "price") == [1.0, None, 2.0]
    assert not columns(price=array).refusals


@pytest.mark.parametrize(("unit", "word"), [("s", "seconds"), ("ms", "milliseconds"), ("us", "microseconds")])
def test_times_outside_the_calendar(unit: str, word: str) -> None:
    found = columns(at=pa.array([0, 2**62, -(2**62)], pa.timestamp(unit, "UTC")))
    assert sorted(found.refusals) == [1, 2]
    assert refusal(found, 1) == f"attribute `at`: `{2**62}` {word} since 1970 is outside the years 1 to 9999"
    assert held(found, "at") == [0, None, None]


def test_the_first_wrong_attribute_is_told() -> None:
    found = columns(price=pa.array([math.nan]), at=pa.array([2**62], pa.timestamp("us", "UTC")))
    assert refusal(found, 0).startswith("attribute `price`")


def test_every_event_has_an_id_and_its_type() -> None:
    found = columns(
        id=pa.array(["a", None, "b"]), type=pa.array(["t.T", None, "t.U"]), source=pa.array([None, "s", "t"])
    )
    assert refusal(found, 1) == "the event has no id"
    assert refusal(found, 2) == "the event is of type `t.U`, not `t.T`"
    assert found.sources.to_pylist() == ["", "s", "t"]
    long = columns(id=pa.array(["a", "i" * (MAX_TEXT_BYTES + 1)]))
    assert "MAX_TEXT_BYTES" in refusal(long, 1)


# -- what refuses the request -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"zz": pa.array([1])}, "`t.T` has no attribute `zz`"),
        ({"data.zz": pa.array([1])}, "`t.T` has no attribute `zz`"),
        ({"count": pa.array([1]), "data.count": pa.array([1])}, "two columns hold the attribute `count`"),
        ({"count": pa.array([1.0])}, "attribute `count`: the Arrow type `double` is not of kind int"),
        ({"count": pa.array([True])}, "attribute `count`"),
        ({"flag": pa.array([1])}, "attribute `flag`"),
        ({"price": pa.array(["1"])}, "attribute `price`"),
        ({"name": pa.array([b"a"])}, "attribute `name`"),
        ({"name": pa.array([1]).dictionary_encode()}, "attribute `name`"),
        ({"raw": pa.array(["00"])}, "attribute `raw`"),
        ({"at": pa.array([1])}, "attribute `at`"),
        ({"at": pa.array([1], pa.date32())}, "attribute `at`"),
        ({"at": pa.array([1], pa.timestamp("us"))}, "attribute `at`: the times have no zone"),
        ({"name": pa.array([["a"]])}, "attribute `name`"),
        ({"id": pa.array([1])}, "the column `id`"),
    ],
)
def test_a_wrong_column_refuses_the_request(arrays: dict[str, pa.Array], message: str) -> None:
    with pytest.raises(TypeMismatch) as error:
        columns(**arrays)
    assert message in error.value.message


def test_the_id_is_needed_and_names_are_used_once() -> None:
    with pytest.raises(TypeMismatch, match="`id` is missing"):
        from_arrow(pa.table({"count": [1]}), "t.T", "cam", KINDS)
    with pytest.raises(TypeMismatch, match="two columns are called `id`"):
        from_arrow(pa.table([pa.array(["a"]), pa.array(["b"])], names=["id", "id"]), "t.T", "cam", KINDS)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_streams_are_refused_before_they_are_unpacked(codec: str) -> None:
    table = pa.table({"id": ["a"] * 100_000, "count": [0] * 100_000})
    with pytest.raises(TypeMismatch, match="compressed"):
        read(stream(table, compression=codec))
    words = pa.table({"name": pa.array(["a" * 100_000] * 3).dictionary_encode()})
    with pytest.raises(TypeMismatch, match="compressed"):
        read(stream(words, compression=codec))
    with pytest.raises(TypeMismatch, match="old format"):
        read(stream(table, metadata_version=pa.ipc.MetadataVersion.V4))


def test_limits_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"id": ["a", "b", "c"], "empty": pa.nulls(3)})
    monkeypatch.setattr(bulk, "MAX_BULK_EVENTS", 2)
    with pytest.raises(TypeMismatch, match=r"3 events are past MAX_BULK_EVENTS \(2\)"):
        read(stream(table))
    monkeypatch.setattr(bulk, "MAX_BULK_BYTES", 100)
    with pytest.raises(TypeMismatch, match=r"past MAX_BULK_BYTES \(100\)"):
        read(stream(table))
    monkeypatch.setattr(bulk, "MAX_BULK_BYTES", 64_000_000)
    monkeypatch.setattr(bulk, "_MAX_MESSAGES", 2)
    with pytest.raises(TypeMismatch, match="cut too fine"):
        read(stream(table, batches=3))
    wide = pa.table({f"c{n}": [1] for n in range(MAX_ATTRIBUTES + 5)})
    with pytest.raises(TypeMismatch, match="MAX_ATTRIBUTES"):
        read(stream(wide))


def test_a_dictionary_that_would_grow_past_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * 10_000]))
    monkeypatch.setattr(bulk, "MAX_BULK_BYTES", 1_000_000)
    with pytest.raises(TypeMismatch, match=r"10000000 bytes are past MAX_BULK_BYTES"):
        columns(name=words)


def broken_text() -> pa.Table:
    good = pa.array(["aaaa", "bbbb"])
    return pa.table({"id": pa.Array.from_buffers(pa.string(), 2, [None, good.buffers()[1], pa.py_buffer(b"\xff" * 8)])})


def broken_offsets() -> pa.Table:
    offsets = pa.py_buffer(struct.pack("<3i", 0, 1_000_000, 8))
    return pa.table({"id": pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a" * 8)])})


def broken_indices() -> pa.Table:
    lost = pa.DictionaryArray.from_arrays(pa.array([0, 9], pa.int8()), pa.array(["a"]), safe=False)
    return pa.table({"id": ["a", "b"], "name": lost})


@pytest.mark.parametrize("body", [b"", b"x", b"ARROW1\x00\x00" * 9, b"\xff" * 64, b"\x00" * 64])
def test_what_is_no_stream_is_refused(body: bytes) -> None:
    with pytest.raises(TypeMismatch, match="not a sound Arrow IPC stream"):
        read(body)


@pytest.mark.parametrize("table", [broken_text(), broken_offsets(), broken_indices()], ids=["utf8", "offsets", "index"])
def test_arrays_that_are_not_what_they_say_are_refused(table: pa.Table) -> None:
    with pytest.raises(TypeMismatch, match="not a sound Arrow IPC stream"):
        read(stream(table))


SOUND = stream(
    pa.table(
        {
            "id": ["a", "b", "c"],
            "name": pa.array(["x", None, "y"]).dictionary_encode(),
            "count": [1, None, 3],
            "at": pa.array([NINE] * 3, pa.timestamp("us", "UTC")),
        }
    ),
    batches=2,
)


@examples(400)
@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=4), st.data())
def test_a_damaged_stream_is_refused_or_sound(changes: list[tuple[int, int]], data: st.DataObject) -> None:
    body = bytearray(SOUND)
    for at, byte in changes:
        body[at] = byte
    cut = data.draw(st.one_of(st.just(len(body)), st.integers(0, len(body))))
    try:
        found = from_arrow(read(bytes(body[:cut])), "t.T", "cam", KINDS)
    except TypeMismatch:
        return
    found.ids.validate(full=True)
    for array in found.arrays.values():
        array.validate(full=True)
        assert len(array) == len(found.ids)


# -- several types in one table -----------------------------------------------------------------------------------


def test_a_table_is_cut_by_type() -> None:
    table = pa.table(
        {
            "id": list("abcd"),
            "type": ["t.T", "t.U", None, "t.T"],
            "count": [1, None, 3, None],
            "unit": pa.array([None, "u", None, None], pa.string()),
        }
    )
    first, second = by_type(table, "t.T")
    assert (first.type, first.rows.tolist(), first.table.column_names) == ("t.T", [0, 2, 3], ["id", "count"])
    assert (second.type, second.rows.tolist(), second.table.column_names) == ("t.U", [1], ["id", "unit"])
    with pytest.raises(TypeMismatch, match="no type"):
        by_type(table)


def test_one_type_needs_no_column() -> None:
    table = pa.table({"id": list("ab"), "zz": pa.nulls(2)})
    (part,) = by_type(table, "t.T")
    assert (part.type, part.rows.tolist(), part.table.column_names) == ("t.T", [0, 1], ["id", "zz"])
    with pytest.raises(TypeMismatch, match="no type"):
        by_type(table)
    (named,) = by_type(table.append_column("type", pa.array(["t.U", "t.U"])), "t.T")
    assert named.type == "t.U"


def test_what_events_require_is_a_column_of_the_envelope() -> None:
    table = pa.table(
        {"id": ["a", "b", "c", "d"], "requires": ["$n = 1", None, "n n", "$n = 1"], "data.requires": [1, 2, 3, 4]}
    )
    found = from_arrow(read(stream(table)), "t.T", "cam", {"requires": Kind.INT}, origin="10.0.0.1")
    assert found.origin == "10.0.0.1"
    assert found.arrays["requires"].to_pylist() == [1, 2, 3, 4]
    assert found.required is not None
    assert found.required.texts == ("$n = 1",)
    assert found.required.codes.tolist() == [0, -1, -1, 0]
    assert [(row, error.code) for row, error in found.refusals.items()] == [(2, "bad-expression")]
    with pytest.raises(TypeMismatch, match="`requires` is of the Arrow type"):
        from_arrow(pa.table({"id": ["a"], "requires": [1]}), "t.T", "cam", {})
