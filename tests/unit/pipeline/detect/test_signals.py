"""Signals in their store: what is decoded is what was encoded."""

from datetime import UTC

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.composite import Environment, environment
from headgate.model.values import EPOCH, INT_MAX, INT_MIN, Value
from headgate.pipeline import SIGNALS
from headgate.pipeline.deliveries import contains
from headgate.pipeline.detect.signals import SCHEMA, SignalRow, signal_blob, stored_signals
from headgate.pipeline.log.codec import from_blob
from strategies.running import examples

TIMES = st.datetimes(timezones=st.just(UTC), allow_imaginary=False).map(lambda time: time.replace(fold=0))
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.booleans(),
    st.integers(INT_MIN, INT_MAX),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8")),
    TIMES,
    st.binary(),
)
ENVIRONMENTS = st.dictionaries(st.text("abxyz", min_size=1), VALUES, max_size=4).map(environment)
ROWS = st.builds(
    SignalRow,
    st.integers(0, 50),
    TIMES,
    ENVIRONMENTS,
    st.lists(st.tuples(st.text("ms"), st.integers(1, 2**40), st.integers(1, 9)), max_size=3).map(tuple),
)


def exact(env: Environment) -> str:
    return repr(env)


@examples(200)
@given(st.lists(ROWS, min_size=1, max_size=5), st.integers(1, 2**40))
def test_what_is_decoded_is_what_was_encoded(rows: list[SignalRow], first: int) -> None:
    blob = signal_blob(first, 7, rows)
    assert blob.blob is not None
    found = list(stored_signals(blob.blob))
    assert [one.row for one in found] == rows
    assert [exact(one.row.environment) for one in found] == [exact(row.environment) for row in rows]
    assert [one.seq for one in found] == list(range(first, blob.last + 1))
    assert (blob.stream, blob.version, blob.part, blob.count) == (SIGNALS, 7, 0, len(rows))
    assert {n for n in range(51) if contains(blob.members, n)} == {row.subscription for row in rows}
    assert from_blob(blob.blob).schema == SCHEMA


def test_an_id_is_of_what_was_signalled_and_of_nothing_else() -> None:
    one, same, other = (
        SignalRow(3, EPOCH, (("x", 1),), (("main", 4, 1),)),
        SignalRow(8, EPOCH, (("x", 1),)),
        SignalRow(3, EPOCH, (("x", 1.0),)),
    )
    blob = signal_blob(1, 1, [one, same, other])
    assert isinstance(blob.blob, bytes)
    first, second, third = (stored.id for stored in stored_signals(blob.blob))
    assert first == second != third


def test_the_order_at_one_moment_is_by_time_and_then_by_bindings() -> None:
    late = SignalRow(0, EPOCH.replace(year=1971), ())
    rows = [late, SignalRow(1, EPOCH, (("x", 2),)), SignalRow(1, EPOCH, (("x", 1),))]
    assert sorted(rows, key=lambda row: row.order) == [rows[2], rows[1], late]


def test_the_columns_are_what_readers_of_the_store_expect() -> None:
    assert SCHEMA.names == ["seq", "subscriptions", "id", "time", "data", "contributors"]
    assert SCHEMA.field("subscriptions").type == pa.list_(pa.int32())
