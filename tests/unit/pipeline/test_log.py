"""The event log: durable, fenced, stamped, and honest about damage."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from headgate.model.errors import Damaged, Fenced, NotFound, StaleVersion, StorageFull, TooNew
from headgate.pipeline.log import EventLog


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog.create(tmp_path / "log.db")


def test_appends_are_numbered_without_gaps_in_each_stream(log: EventLog) -> None:
    north, south = log.take("north", 1), log.take("south", 1)
    assert log.append("north", north, 1, 0, 3, b"abc") == 1
    assert log.append("south", south, 1, 0, 1, b"x") == 1
    assert log.append("north", north, 1, 0, 2, b"de") == 4
    assert {s: t.last for s, t in log.tails().items()} == {"north": 5, "south": 1}
    assert [(b.first, b.last, b.blob) for b in log.batches("north", 0, 5)] == [(1, 3, b"abc"), (4, 5, b"de")]


def test_a_new_writer_fences_the_old_one(log: EventLog) -> None:
    old = log.take("main", 1)
    new = log.take("main", 1)
    with pytest.raises(Fenced):
        log.append("main", old, 1, 0, 1, b"late")
    assert log.append("main", new, 1, 0, 1, b"ok") == 1


def test_a_version_has_one_starting_point_in_every_stream(log: EventLog) -> None:
    token = log.take("main", 1)
    log.append("main", token, 1, 0, 3, b"abc")
    log.take("other", 1)
    assert log.start(2) == {"main": 4, "other": 1}
    assert log.start(2) == {"main": 4, "other": 1}
    with pytest.raises(StaleVersion):
        log.append("main", token, 1, 0, 1, b"decided too early")
    log.append("main", token, 2, 0, 1, b"d")
    assert log.start(3)["main"] == 5
    assert log.starts() == [
        ("main", 1, 1),
        ("main", 2, 4),
        ("main", 3, 5),
        ("other", 1, 1),
        ("other", 2, 1),
        ("other", 3, 1),
    ]


def test_starting_points_never_go_back(log: EventLog) -> None:
    token = log.take("main", 5)
    log.append("main", token, 5, 0, 2, b"ab")
    log.start(7)
    assert log.start(6) == {"main": 3}  # 7 applies from there already
    assert log.tails()["main"].version == 7


def test_a_reader_stops_before_versions_the_ledger_lacks(log: EventLog) -> None:
    token = log.take("main", 1)
    log.append("main", token, 1, 0, 2, b"ab")
    log.start(2)
    log.append("main", token, 2, 0, 2, b"cd")
    assert log.ends("main", 0, 100, newest=1) == 2
    assert log.ends("main", 0, 100, newest=2) == 4
    assert log.ends("main", 0, 1, newest=2) == 2  # appends are taken whole, one at least
    assert log.oldest_version({"main": 2}, 9) == 2
    assert log.oldest_version({"main": 4}, 9) == 9


def test_an_altered_blob_is_named(log: EventLog) -> None:
    token = log.take("main", 1)
    log.append("main", token, 1, 0, 2, b"ab")
    with sqlite3.connect(log.path) as db:
        db.execute("UPDATE batches SET blob = x'00'")
    with pytest.raises(Damaged, match="events 1 to 2 of stream `main`"):
        list(log.batches("main", 0, 2))


@pytest.mark.parametrize(("removed", "lacks"), [(1, "1 to 2"), (3, "3 to 4"), (5, "5 to 6")])
def test_missing_events_are_named(log: EventLog, removed: int, lacks: str) -> None:
    token = log.take("main", 1)
    for blob in (b"ab", b"cd", b"ef"):
        log.append("main", token, 1, 0, 2, blob)
    with sqlite3.connect(log.path) as db:
        db.execute("DELETE FROM batches WHERE first = ?", (removed,))
    with pytest.raises(Damaged, match=f"lacks events {lacks}"):
        list(log.batches("main", 0, 6))


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with pytest.raises(NotFound):
        EventLog.open(path)
    path.write_bytes(b"this is not a database, whatever its name says" * 100)
    with pytest.raises(Damaged, match=r"log\.db"):
        EventLog.open(path)


def test_a_torn_file_is_damaged_not_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = EventLog.create(path)
    token = log.take("main", 1)
    for _ in range(50):
        log.append("main", token, 1, 0, 1, bytes(range(256)) * 40)
    log.close()
    content = bytearray(path.read_bytes())
    for at in range(8192, len(content), 4096):
        content[at : at + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(Damaged):
        list(EventLog.open(path).batches("main", 0, 50))


def test_a_log_of_a_newer_headgate_is_refused(log: EventLog) -> None:
    log.close()
    with sqlite3.connect(log.path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(TooNew, match="format 99"):
        EventLog.open(log.path)


def test_a_full_disk_refuses_keeps_and_resumes(log: EventLog) -> None:
    token = log.take("main", 1)
    log.append("main", token, 1, 0, 1, b"kept")
    pages = log._db.execute("PRAGMA page_count").fetchone()[0]
    log._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StorageFull, match="nothing of the request was kept"):
        log.append("main", token, 1, 0, 1, b"x" * 100_000)
    assert [b.blob for b in log.batches("main", 0, 1)] == [b"kept"]
    log._db.execute("PRAGMA max_page_count = 1000000")
    assert log.append("main", token, 1, 0, 1, b"x" * 100_000) == 2
