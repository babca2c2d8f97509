"""How much detections may signal: the same stops at the same record, wherever micro-batches are cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.composites import event, resolved, seconds

from headgate.decide.blocks import Moment, SourceFacts
from headgate.model.errors import LimitReached
from headgate.model.values import EPOCH
from headgate.pipeline.detect import machine, signal_limits
from headgate.pipeline.detect.machine import Horizons, Machine
from headgate.pipeline.detect.signal_limits import HISTORY, SignalCounts, hour_of
from headgate.pipeline.spark.detecting import told

OWNERS = {1: "ann", 2: "ann", 3: "bob"}
MOST, MOST_OF_PRINCIPAL = 6, 9


@pytest.fixture(autouse=True)
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_limits, "MAX_SIGNALS", MOST)
    monkeypatch.setattr(signal_limits, "MAX_PRINCIPAL_SIGNALS", MOST_OF_PRINCIPAL)


def row(number: int, record: int, at: int, hour: int = 0, code: str = "") -> dict[str, Any]:
    return {
        "number": record, "promise": 0, "subscription": number, "time": at, "data": str(at), "contributors": "[]",
        "hour": hour, "code": code, "report": "",
    }  # fmt: skip


def outcome(batches: list[list[dict[str, Any]]]) -> tuple[list[tuple[int, int, str]], list[tuple[int, ...]]]:
    """What is told of batches one after another; who stopped is run no more."""
    before: dict[int, tuple[int, int]] = {}
    stops, given = [], []
    for batch in batches:
        gone = {number for number, _, _ in stops}
        counts = SignalCounts(before, OWNERS.__getitem__)
        remarks, signals = told([one for one in batch if one["subscription"] not in gone], counts)
        before = counts.counted
        stops += [(one.subscription, one.number, one.text) for one in remarks]
        given += [(one["number"], one["subscription"], one["time"]) for one in signals if not one["code"]]
    return stops, given


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from([1, 2, 3]), st.integers(0, 99)), unique=True, max_size=60),
    st.sets(st.integers(1, 12)),
)
def test_the_same_stops_at_the_same_record_however_the_log_is_cut(
    drawn: list[tuple[int, int, int]], cuts: set[int]
) -> None:
    rows = [row(number, record, at, hour=record // 5) for record, number, at in drawn]
    batches: list[list[dict[str, Any]]] = [[]]
    for record in range(1, 13):
        if record in cuts:
            batches.append([])
        batches[-1] += [one for one in rows if one["number"] == record]
    stops, given = outcome([rows])
    assert (stops, sorted(given)) == (outcome(batches)[0], sorted(outcome(batches)[1]))
    for number in OWNERS:
        for hour in range(3):
            assert sum(1 for record, one, _ in given if one == number and record // 5 == hour) <= MOST
    for hour in range(3):
        assert sum(1 for record, one, _ in given if one in (1, 2) and record // 5 == hour) <= MOST_OF_PRINCIPAL
    lost = {(one["number"], one["subscription"]) for one in rows} - {(record, one) for record, one, _ in given}
    stopped = {number: record for number, record, _ in stops}
    assert all(record >= stopped[number] for record, number in lost), "lost without a word"


def test_one_who_passes_a_limit_says_so_last_and_others_go_on() -> None:
    rows = [row(1, record, record) for record in range(1, 9)] + [row(3, record, record) for record in range(1, 5)]
    remarks, signals = told(rows, SignalCounts({}, OWNERS.__getitem__))
    assert [(one.subscription, one.code, one.number) for one in remarks] == [(1, LimitReached.code, 7)]
    assert "MAX_SIGNALS" in remarks[0].text
    assert [one["code"] for one in signals if one["subscription"] == 1] == [""] * 6 + [LimitReached.code]
    assert sum(1 for one in signals if one["subscription"] == 3) == 4


def test_a_principal_is_limited_too_and_not_for_what_history_shows() -> None:
    rows = [row(number, record, record) for record in range(1, 6) for number in (1, 2)]
    remarks, _ = told(rows, SignalCounts({}, OWNERS.__getitem__))
    assert [(one.subscription, one.number, "MAX_PRINCIPAL_SIGNALS" in one.text) for one in remarks] == [(2, 5, True)]
    rows = [row(number, record, record, hour=HISTORY) for record in range(1, 6) for number in (1, 2)]
    assert told(rows, SignalCounts({}, OWNERS.__getitem__))[0] == []


def test_one_record_cannot_make_more_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_SIGNALS", 50)
    running = Machine(resolved("$A(x); $A(y)"), EPOCH, (), Horizons({"main": SourceFacts()}))
    with pytest.raises(LimitReached, match="MAX_SIGNALS"):
        running.arrive(Moment(tuple(event("A", n, n) for n in range(1, 30)), {}, seconds(1)))


def test_hours_are_of_the_clock() -> None:
    assert [hour_of(at * 1_000_000) for at in (0, 3_599, 3_600)] == [0, 0, 1]
