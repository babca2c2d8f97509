"""Columns of relations that are compared with times are read as these."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headgate.decide.constraints import Scene, solutions, truth, value
from headgate.decide.reading import columns_read, rows_read, spellings
from headgate.decide.truth import combined
from headgate.lang.literals import Reading
from headgate.lang.rolefile import parse_constraint, parse_expression
from headgate.model.expressions import Argument
from headgate.model.state import State

NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)
TEN = datetime(2026, 1, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Shift(u, a, b) and timeofday(@time) in a..b", {("Shift", 1): "timeofday", ("Shift", 2): "timeofday"}),
        ("@time < Until(u)", {("Until", 1): "timestamp"}),
        ("weekday(@time) = Day(u) + 1", {("Day", 1): "weekday"}),
        (
            "Shift(u, a, b) and timeofday(@time) in a + 600..b - 600",
            {("Shift", 1): "timeofday", ("Shift", 2): "timeofday"},
        ),
        ("Began(u, x) and @time - x < 3600", {("Began", 1): "timestamp"}),
        ("timeofday(@time) - Opens(u) > 60", {("Opens", 1): "timeofday"}),
        ("Stay(u, n) and @time - n > t", {}),
        ("x = @time + 3600 and Until(u, x)", {("Until", 1): "timestamp"}),
        ("@time - t < Patience(u)", {}),
        ("R(x) and x < y and S(y) and y = weekday(@time)", {("R", 0): "weekday", ("S", 0): "weekday"}),
        ("timeofday(Began(u)) < 3600", {("Began", 1): "timestamp"}),
        ("R(x) and x = 'a'", {}),
    ],
)
def test_columns_beside_the_clock_are_times(text: str, read: dict[tuple[str, int], Reading]) -> None:
    assert columns_read([(parse_constraint(text), {})]) == read


def test_what_an_event_has_may_be_a_time() -> None:
    assert columns_read([(parse_constraint("t < Until(u)"), {"t": "timestamp"})]) == {("Until", 1): "timestamp"}


def test_rows_are_read_and_what_says_no_time_stays() -> None:
    rows = frozenset({("amy", "08:00"), ("bob", 60), ("cat", "8am")})
    assert rows_read("Shift", rows, {("Shift", 1): "timeofday"}) == {("amy", 28800), ("bob", 60), ("cat", "8am")}
    assert rows_read("Other", rows, {("Shift", 1): "timeofday"}) is rows


def test_a_stored_text_is_found_by_all_that_it_may_be_read_as() -> None:
    assert spellings("09:00") == ["09:00", 32400]
    assert spellings("Mon") == ["Mon", 1]
    assert spellings("2026-01-01T09:00:00Z") == ["2026-01-01T09:00:00Z", NINE]
    assert spellings(3) == [3, datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)]
    assert spellings(True) == [True]
    assert spellings("8am") == ["8am"]


def test_a_row_in_a_constraint() -> None:
    state = State(relations={"Shift": frozenset({("amy", "08:00"), ("bob", "09:30"), ("cat", "soon")})})
    said = parse_constraint("Shift(u, a) and timeofday(@time) >= a")
    scene = Scene(state, now=NINE, readings=columns_read([(said, {})]))
    assert [dict(one) for one in solutions(said, {}, scene)] == [{"u": "amy", "a": 28800}]
    assert truth(parse_constraint("timeofday(@time) < 36000"), {}, scene) is True


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("@time + 3600", TEN),
        ("3600 + @time", TEN),
        ("t - 3600", NINE),
        ("t - @time", 3600),
        ("@time - t", -3600),
        ("3600 - t", None),
        ("t + t", None),
        ("t + true", None),
        ("@time + 9223372036854775807", None),
    ],
)
def test_sums_of_moments(text: str, meaning: Argument) -> None:
    assert value(parse_expression(text), {"t": TEN}, Scene(State(), now=NINE)) == meaning


def test_seconds_between_moments_are_whole_ones() -> None:
    assert combined("-", TEN.replace(microsecond=999_999), NINE) == 3600
    assert combined("-", NINE, TEN.replace(microsecond=1)) == -3601
