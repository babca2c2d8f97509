"""Values: what comes in, and how it compares (D2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from headgate.model.errors import TypeMismatch
from headgate.model.limits import MAX_TEXT_BYTES
from headgate.model.values import Kind, compare, conform, micros, moment, plain, same

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (Kind.BOOL, True, True),
        (Kind.INT, 2**63 - 1, 2**63 - 1),
        (Kind.FLOAT, 3, 3.0),
        (Kind.FLOAT, 5e-324, 5e-324),
        (Kind.STRING, "\U0001f600\x00", "\U0001f600\x00"),
        (Kind.TIMESTAMP, "2026-01-01T13:00:00+01:00", NOON),
        (Kind.TIMESTAMP, NOON.astimezone(timezone(timedelta(hours=9))), NOON),
        (Kind.TIMESTAMP, 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (Kind.BYTES, "00ff", b"\x00\xff"),
        (Kind.BYTES, b"", b""),
        *((kind, None, None) for kind in Kind),
    ],
)
def test_what_conforms(kind: Kind, raw: object, value: object) -> None:
    assert conform(kind, raw) == value
    assert type(conform(kind, raw)) is type(value)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (Kind.BOOL, 1),
        (Kind.INT, True),
        (Kind.INT, 1.0),
        (Kind.INT, 2**63),
        (Kind.INT, -(2**63) - 1),
        (Kind.FLOAT, float("nan")),
        (Kind.FLOAT, float("inf")),
        (Kind.FLOAT, 10**400),
        (Kind.FLOAT, True),
        (Kind.FLOAT, "1"),
        (Kind.STRING, 1),
        (Kind.STRING, b"x"),
        (Kind.STRING, "\ud800"),
        (Kind.STRING, "x" * (MAX_TEXT_BYTES + 1)),
        (Kind.TIMESTAMP, "2026-01-01T12:00:00"),
        (Kind.TIMESTAMP, datetime(2026, 1, 1)),  # noqa: DTZ001
        (Kind.TIMESTAMP, "yesterday"),
        (Kind.TIMESTAMP, 10**15),
        (Kind.TIMESTAMP, float("nan")),
        (Kind.TIMESTAMP, True),
        (Kind.BYTES, "0g"),
        (Kind.BYTES, 7),
        (Kind.INT, [1]),
        (Kind.STRING, {"a": 1}),
    ],
)
def test_what_does_not_conform_is_a_mismatch(kind: Kind, raw: object) -> None:
    with pytest.raises(TypeMismatch):
        conform(kind, raw)


def test_numbers_compare_exactly() -> None:
    assert compare("=", 2**53, float(2**53)) is True
    assert compare("=", 2**53 + 1, float(2**53)) is False
    assert compare(">", 2**53 + 1, float(2**53)) is True
    assert compare("=", 0.0, -0.0) is True


def test_text_compares_by_code_point() -> None:
    assert compare("<", "\uffff", "\U00010000") is True
    assert compare("<", "Z", "a") is True


@pytest.mark.parametrize(("a", "b"), [(None, 1), (1, None), (None, None), (1, "1"), (True, 1), (b"a", "a"), (NOON, 0)])
def test_null_and_other_kinds_are_unknown(a: object, b: object) -> None:
    assert compare("=", a, b) is None
    assert compare("!=", a, b) is None


def test_microseconds_round_trip_at_the_ends_of_time() -> None:
    for at in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), NOON):
        assert moment(micros(at)) == at


def test_the_same_value() -> None:
    assert same(None, None)
    assert same(1, 1.0)
    assert not same(1, True)
    assert not same(None, 0)
    assert plain(NOON) == "2026-01-01T12:00:00Z"
    assert plain(b"\x00\xff") == "00ff"
