"""The log as a Spark source: offsets, waiting for the ledger, and history. No JVM is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headgate.ledger import Ledger
from headgate.model.changes import Batch, DeclarePrincipal, DeclareType, Subscribe
from headgate.model.errors import Damaged
from headgate.model.rights import Subscription
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.spark import source
from headgate.pipeline.spark.source import LogStream, Piece, pieces
from strategies.stored import append

ALL = ReadAllAvailable()
START = {"version": 0, "streams": {}}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger.create(tmp_path / "ledger.db")
    some = EventType("a.T", "p", {"x": Kind.INT})
    ledger.commit(Batch(ADMINISTRATOR, (DeclarePrincipal("p"), DeclareType(some))))
    return ledger


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog.create(tmp_path / "log.db")


@pytest.fixture
def stream(tmp_path: Path, ledger: Ledger, log: EventLog) -> LogStream:
    return LogStream({"log": str(tmp_path / "log.db"), "directory": str(tmp_path)})


def rows(stream: LogStream, start: Any, end: Any) -> list[tuple[Any, ...]]:
    found = []
    for piece in stream.partitions(start, end):
        for batch in stream.read(piece):
            found += [(r["stream"], r["first"], r["backfill"], r["through"]) for r in batch.to_pylist()]
    return found


def test_no_event_is_offered_before_the_ledger_holds_its_version(
    ledger: Ledger, log: EventLog, stream: LogStream
) -> None:
    token = log.take("main", 1)
    append(log, "main", token, 1, 0, 2, b"ab")
    log.start(2)  # the log has heard of a version that this ledger does not hold yet
    append(log, "main", token, 2, 0, 2, b"cd")
    waiting = stream.latestOffset(START, ALL)
    assert waiting == {"version": 1, "streams": {"main": 2}}
    assert stream.latestOffset(waiting, ALL) == waiting
    ledger.commit(Batch(ADMINISTRATOR))
    assert stream.latestOffset(waiting, ALL) == {"version": 2, "streams": {"main": 4}}


def test_a_batch_is_bounded_and_takes_appends_whole(log: EventLog, stream: LogStream) -> None:
    token = log.take("main", 1)
    for _ in range(5):
        append(log, "main", token, 1, 0, 10, b"x")
    assert stream.latestOffset(START, ReadMaxRows(25))["streams"] == {"main": 20}
    assert stream.latestOffset(START, ReadMaxRows(1))["streams"] == {"main": 10}
    assert stream.latestOffset(START, ALL)["streams"] == {"main": 50}


def test_available_now_stops_where_it_began(ledger: Ledger, log: EventLog, stream: LogStream) -> None:
    token = log.take("main", 1)
    append(log, "main", token, 1, 0, 1, b"a")
    stream.prepareForTriggerAvailableNow()
    append(log, "main", token, 1, 0, 1, b"b")
    ledger.commit(Batch(ADMINISTRATOR))
    end = stream.latestOffset(START, ALL)
    assert end == {"version": 1, "streams": {"main": 1}}
    assert stream.latestOffset(end, ALL) == end


def test_history_reads_the_earlier_events_again_in_the_same_batch(
    ledger: Ledger, log: EventLog, stream: LogStream
) -> None:
    token = log.take("main", 1)
    append(log, "main", token, 1, 0, 1, b"a")
    first = stream.latestOffset(START, ALL)
    assert rows(stream, START, first) == [("", 0, False, 1), ("main", 1, False, 1)]
    ledger.commit(Batch("p", (Subscribe(Subscription("plain", "p", "a.T")),)))
    second = stream.latestOffset(first, ALL)
    assert rows(stream, first, second) == [("", 0, False, 2)]  # nothing to read, and the version is passed on
    ledger.commit(Batch("p", (Subscribe(Subscription("past", "p", "a.T", history=True)),)))
    log.start(3)
    append(log, "main", token, 3, 0, 1, b"b")
    third = stream.latestOffset(second, ALL)
    assert sorted(rows(stream, second, third)) == [("", 0, False, 3), ("main", 1, True, 3), ("main", 2, False, 3)]


def test_damage_is_named_when_it_is_read(log: EventLog, stream: LogStream) -> None:
    token = log.take("main", 1)
    append(log, "main", token, 1, 0, 1, b"a")
    end = stream.latestOffset(START, ALL)
    log._db.execute("UPDATE batches SET blob = x'00'")
    with pytest.raises(Damaged, match="events 1 to 1 of stream `main`"):
        rows(stream, START, end)


def test_the_work_is_cut_into_about_equal_pieces(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "EVENTS_A_PARTITION", 10)
    for name in ("north", "south"):
        token = log.take(name, 1)
        for _ in range(10):
            append(log, name, token, 1, 0, 5, b"x")
    cut = pieces(log, {}, {"north": 50, "south": 50}, 2)
    assert [sum(last - after for _, after, last in one) for one in cut] == [50, 50]
    covered = sorted(r for one in cut for r in one)
    assert covered == [("north", 0, 50), ("south", 0, 50)]
    assert pieces(log, {"north": 50, "south": 45}, {"north": 50, "south": 50}, 2) == [[("south", 45, 50)]]
    assert pieces(log, {"north": 50}, {"north": 50}, 2) == []
    assert Piece([], 0, 1).ranges == []


def test_reading_begins_where_the_log_was_trimmed(
    ledger: Ledger, log: EventLog, stream: LogStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = log.take("main", 1)
    for _ in range(5):
        append(log, "main", token, 1, 0, 10, b"x")
    log.trim("main", 25)
    assert stream.latestOffset(START, ReadMaxRows(15))["streams"] == {"main": 30}
    end = stream.latestOffset(START, ALL)
    assert [first for _, first, _, _ in rows(stream, START, end)] == [0, 21, 31, 41]
    ledger.commit(Batch("p", (Subscribe(Subscription("past", "p", "a.T", history=True)),)))
    again = rows(stream, end, stream.latestOffset(end, ALL))
    assert sorted(again) == [("", 0, True, 2), *(("main", first, True, 2) for first in (21, 31, 41))]
    monkeypatch.setattr(source, "EVENTS_A_PARTITION", 10)
    assert pieces(log, {}, {"main": 50}, 2) == [[("main", 20, 30), ("main", 30, 40)], [("main", 40, 50)]]
    assert pieces(log, {}, {"main": 20}, 2) == []
    log.trim("main", 50)
    assert stream.latestOffset(START, ALL)["streams"] == {"main": 50}
    assert rows(stream, START, {"version": 1, "streams": {"main": 50}}) == [("", 0, False, 1)]
