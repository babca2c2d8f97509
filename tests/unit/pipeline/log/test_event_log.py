"""The event log: durable, fenced, stamped, and honest about damage."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headgate.model.errors import (
    BadDefinition,
    Damaged,
    Fenced,
    NotFound,
    StaleVersion,
    StorageFull,
    StreamHeld,
    TooNew,
    TooOld,
)
from headgate.pipeline.log import event_log as log_module
from headgate.pipeline.log.appends import Append, Keys, Repeat, Repeats
from headgate.pipeline.log.event_log import MAX_GROUP, EventLog, Size
from strategies.stored import append, lease


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog.create(tmp_path / "log.db")


def test_appends_are_numbered_without_gaps_in_each_stream(log: EventLog) -> None:
    north, south = log.take("north", 1), log.take("south", 1)
    assert append(log, "north", north, 1, 0, 3, b"abc") == 1
    assert append(log, "south", south, 1, 0, 1, b"x") == 1
    assert append(log, "north", north, 1, 0, 2, b"de") == 4
    assert {s: t.last for s, t in log.tails().items()} == {"north": 5, "south": 1}
    assert [(b.first, b.last, b.blob) for b in log.batches("north", 0, 5)] == [(1, 3, b"abc"), (4, 5, b"de")]


def test_a_new_writer_fences_the_old_one(log: EventLog) -> None:
    old = log.take("main", 1)
    new = log.take("main", 1)
    with pytest.raises(Fenced):
        append(log, "main", old, 1, 0, 1, b"late")
    assert append(log, "main", new, 1, 0, 1, b"ok") == 1


def test_a_version_has_one_starting_point_in_every_stream(log: EventLog) -> None:
    token = log.take("main", 1)
    append(log, "main", token, 1, 0, 3, b"abc")
    log.take("other", 1)
    assert log.start(2) == {"main": 4, "other": 1}
    assert log.start(2) == {"main": 4, "other": 1}
    with pytest.raises(StaleVersion):
        append(log, "main", token, 1, 0, 1, b"decided too early")
    append(log, "main", token, 2, 0, 1, b"d")
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
    append(log, "main", token, 5, 0, 2, b"ab")
    log.start(7)
    assert log.start(6) == {"main": 3}  # 7 applies from there already
    assert log.tails()["main"].version == 7


def test_a_reader_stops_before_versions_the_ledger_lacks(log: EventLog) -> None:
    token = log.take("main", 1)
    append(log, "main", token, 1, 0, 2, b"ab")
    log.start(2)
    append(log, "main", token, 2, 0, 2, b"cd")
    assert log.ends("main", 0, 100, newest=1) == 2
    assert log.ends("main", 0, 100, newest=2) == 4
    assert log.ends("main", 0, 1, newest=2) == 2  # appends are taken whole, one at least
    assert log.oldest_version({"main": 2}, 9) == 2
    assert log.oldest_version({"main": 4}, 9) == 9


def test_an_altered_blob_is_named(log: EventLog) -> None:
    token = log.take("main", 1)
    append(log, "main", token, 1, 0, 2, b"ab")
    with sqlite3.connect(log.path) as db:
        db.execute("UPDATE batches SET blob = x'00'")
    with pytest.raises(Damaged, match="events 1 to 2 of stream `main`"):
        list(log.batches("main", 0, 2))


@pytest.mark.parametrize(("removed", "lacks"), [(1, "1 to 2"), (3, "3 to 4"), (5, "5 to 6")])
def test_missing_events_are_named(log: EventLog, removed: int, lacks: str) -> None:
    token = log.take("main", 1)
    for blob in (b"ab", b"cd", b"ef"):
        append(log, "main", token, 1, 0, 2, blob)
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
        append(log, "main", token, 1, 0, 1, bytes(range(256)) * 40)
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


def test_a_log_of_an_older_format_is_refused(log: EventLog) -> None:
    log.close()
    with sqlite3.connect(log.path) as db:
        db.execute("PRAGMA user_version = 1")
    for again in (EventLog.open, EventLog.create):
        with pytest.raises(TooOld, match=r"format 1; this Headgate reads format 3") as found:
            again(log.path)
        assert found.value.code == "too-old"


def test_a_full_disk_refuses_keeps_and_resumes(log: EventLog) -> None:
    token = log.take("main", 1)
    append(log, "main", token, 1, 0, 1, b"kept")
    pages = log._db.execute("PRAGMA page_count").fetchone()[0]
    log._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StorageFull, match="nothing of the request was kept"):
        append(log, "main", token, 1, 0, 1, b"x" * 100_000)
    assert [b.blob for b in log.batches("main", 0, 1)] == [b"kept"]
    log._db.execute("PRAGMA max_page_count = 1000000")
    assert append(log, "main", token, 1, 0, 1, b"x" * 100_000) == 2


# -- leases ---------------------------------------------------------------------------------------------------


def test_a_lease_keeps_others_away_until_it_lapses(log: EventLog) -> None:
    log.take("main", 1, holder="one", now=100, ttl=50)
    for now in (100, 149):
        with pytest.raises(StreamHeld, match=r"`one` holds the stream `main` until 1970-01-01T00:00:00.000150") as held:
            log.take("main", 1, holder="two", now=now, ttl=50)
        assert (held.value.code, held.value.holder, held.value.expires) == ("stream-held", "one", 150)
    with pytest.raises(StreamHeld):
        log.take("main", 1)  # nor does a tool without a lease take it from a living gateway
    assert lease(log, "main")[0] == "one"
    token = log.take("main", 1, holder="two", now=150, ttl=50)
    assert lease(log, "main") == ("two", 200)
    assert append(log, "main", token, 1, 0, 1, b"x") == 1


def test_the_same_holder_a_dead_one_and_one_without_a_lease_give_way(log: EventLog) -> None:
    tokens = [log.take("main", 1, holder="one", now=0, ttl=100), log.take("main", 1, holder="one", now=1, ttl=100)]
    asked: list[str] = []

    def dead(holder: str) -> bool:
        asked.append(holder)
        return holder == "one"

    tokens.append(log.take("main", 1, holder="two", now=2, ttl=0, dead=dead))
    tokens.append(log.take("main", 1, holder="three", now=2, ttl=100, dead=dead))
    assert asked == ["one"]
    assert tokens == [1, 2, 3, 4]
    for old in tokens[:-1]:
        with pytest.raises(Fenced):
            append(log, "main", old, 1, 0, 1, b"x")


def test_a_lease_is_renewed_until_it_is_lost_and_a_lapsed_one_still_appends(log: EventLog) -> None:
    one = log.take("main", 1, holder="one", now=0, ttl=10)
    log.renew("main", one, 5, 10)
    with pytest.raises(StreamHeld):
        log.take("main", 1, holder="two", now=12, ttl=10)
    assert append(log, "main", one, 1, 99, 1, b"lapsed, and nobody took it") == 1
    log.renew("main", one, 99, 1)
    two = log.take("main", 1, holder="two", now=100, ttl=10)
    for act in (lambda: log.renew("main", one, 101, 10), lambda: append(log, "main", one, 1, 0, 1, b"x")):
        with pytest.raises(Fenced):
            act()
    assert log.release("main", one) is False
    assert log.release("main", two) is True
    with pytest.raises(Fenced):
        append(log, "main", two, 1, 0, 1, b"given up")
    log.take("main", 1, holder="three", now=101, ttl=10)
    with pytest.raises(NotFound):
        log.renew("none", 1, 0, 1)


# -- repeats --------------------------------------------------------------------------------------------------


def keys(*values: int) -> Keys:
    return np.array(values, np.uint64)


def send(log: EventLog, token: int, mine: Keys, time: int = 0, window: int = 100, **more: object) -> int:
    return append(log, "main", token, 1, time, len(mine), b"x" * len(mine), keys=mine, window=window, **more)


def test_what_was_appended_lately_is_held_back(log: EventLog) -> None:
    token = log.take("main", 1)
    assert send(log, token, keys(1, 2, 3)) == 1
    assert send(log, token, keys(4, 5), time=10) == 4
    with pytest.raises(Repeats) as found:
        send(log, token, keys(9, 5, 2), time=20)
    assert found.value.code == "repeats"
    assert found.value.candidates == [Repeat(1, "main", 4, 5), Repeat(2, "main", 1, 3)]
    assert log.tails()["main"].last == 5
    assert log.append_holding("main", 5).blob == b"xx"  # what to compare with


def test_a_false_alarm_is_accepted_and_nothing_else_with_it(log: EventLog) -> None:
    token = log.take("main", 1)
    send(log, token, keys(1))
    accept = frozenset({Repeat(0, "main", 1, 1)})
    assert send(log, token, keys(1, 7), accept=accept) == 2
    with pytest.raises(Repeats) as found:  # what came meanwhile was not compared
        send(log, token, keys(1), accept=accept)
    assert found.value.candidates == [Repeat(0, "main", 2, 3)]
    with pytest.raises(Repeats):
        send(log, token, keys(8, 1), accept=accept)


def test_the_window_ends_exactly(log: EventLog) -> None:
    token = log.take("main", 1)
    send(log, token, keys(1), time=1000)
    with pytest.raises(Repeats):
        send(log, token, keys(1), time=1100, window=100)
    assert send(log, token, keys(1), time=1101, window=100) == 2
    with pytest.raises(Repeats) as found:  # a longer window looks further back than any before it
        send(log, token, keys(1), time=1101, window=101)
    assert [one.first for one in found.value.candidates] == [1, 2]


def test_other_processes_and_a_restart_know_the_keys(log: EventLog) -> None:
    token = log.take("main", 1)
    send(log, token, keys(1))
    other = EventLog.open(log.path)
    there = other.take("other", 1)
    with pytest.raises(Repeats) as found:
        append(other, "other", there, 1, 0, 1, b"x", keys=keys(1), window=100)
    assert found.value.candidates == [Repeat(0, "main", 1, 1)]
    assert append(other, "other", there, 1, 0, 1, b"x", keys=keys(2), window=100) == 1
    with pytest.raises(Repeats) as found:
        send(log, token, keys(3, 2))
    assert found.value.candidates == [Repeat(1, "other", 1, 1)]
    other.close()


def test_an_append_that_was_not_kept_is_not_remembered(log: EventLog) -> None:
    token = log.take("main", 1)
    send(log, token, keys(1))
    pages = log._db.execute("PRAGMA page_count").fetchone()[0]
    log._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StorageFull):
        append(log, "main", token, 1, 0, 1, b"x" * 100_000, keys=keys(2), window=100)
    log._db.execute("PRAGMA max_page_count = 1000000")
    assert send(log, token, keys(2)) == 2
    with pytest.raises(Repeats):
        send(log, token, keys(1))


def test_old_appends_among_the_new_do_not_end_the_window(log: EventLog) -> None:
    token = log.take("main", 1)
    send(log, token, keys(1), time=1000)
    send(log, token, keys(2), time=3)  # a clock that is behind
    append(log, "main", token, 1, 1000, 1, b"without keys")
    again = EventLog.open(log.path)
    with pytest.raises(Repeats) as found:
        send(again, token, keys(2, 1), time=1050)
    assert found.value.candidates == [Repeat(1, "main", 1, 1)]
    again.close()


def test_damaged_keys_are_named(log: EventLog) -> None:
    token = log.take("main", 1)
    send(log, token, keys(1, 2))
    log._db.execute("UPDATE batches SET keys = x'00'")
    again = EventLog.open(log.path)
    with pytest.raises(Damaged, match="keys of events 1 to 2"):
        send(again, token, keys(3))
    again.close()


def test_a_group_is_answered_one_by_one(log: EventLog) -> None:
    token = log.take("main", 1)
    one = Append(1, 0, 2, b"ab", keys(1, 2), window=100)
    answers = log.append_many(
        "main",
        token,
        [
            one,
            replace(one, version=2, keys=keys(3, 4)),
            replace(one, keys=keys(5, 1)),
            replace(one, keys=keys(5)),
            replace(one, count=0, keys=None),
            replace(one, keys=keys(5, 6)),
        ],
    )
    assert [a if isinstance(a, int) else type(a) for a in answers] == [
        1,
        StaleVersion,
        Repeats,
        BadDefinition,
        BadDefinition,
        3,
    ]
    assert isinstance(answers[2], Repeats)
    assert answers[2].candidates == [Repeat(1, "main", 1, 2)]  # a repeat within the group
    assert [(b.first, b.last) for b in log.batches("main", 0, 4)] == [(1, 2), (3, 4)]
    assert log.append_many("main", token, []) == []
    with pytest.raises(BadDefinition, match="at most 1024"):
        log.append_many("main", token, [one] * (MAX_GROUP + 1))
    log.take("main", 1)
    with pytest.raises(Fenced):
        log.append_many("main", token, [one])


# -- trimming -------------------------------------------------------------------------------------------------


def test_trimming_takes_whole_appends_and_what_is_left_is_sound(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "TRIM_APPENDS", 2)
    token = log.take("main", 1)
    for n in range(6):
        append(log, "main", token, 1, n, 10, b"x" * n)
    assert (log.size("main"), log.chunks("main", 1)[0].time) == (Size(60, 15), 0)
    assert log.trim("main", 39) == 30
    assert log.trim("main", 39) == 0
    assert (log.size("main"), log.chunks("main", 1)[0].time) == (Size(30, 12), 3)
    assert log.trimmed() == {"main": 30}
    assert [b.first for b in log.batches("main", 0, 60)] == [31, 41, 51]
    assert [b.first for b in log.batches("main", 40, 60)] == [41, 51]
    assert list(log.batches("main", 0, 20)) == []
    assert log.ends("main", 0, 15, 1) == 40
    assert log.ends("main", 0, 25, 1) == 50
    assert log.oldest_version({}, 9) == 1
    with pytest.raises(NotFound):
        log.append_holding("main", 30)
    log._db.execute("DELETE FROM batches WHERE first = 41")
    with pytest.raises(Damaged, match="lacks events 41 to 50"):
        list(log.batches("main", 0, 60))
    with pytest.raises(Damaged, match="lacks events 41 to 50"):
        log.trim("main", 60)


def test_an_empty_stream_goes_on_where_it_was_trimmed(log: EventLog) -> None:
    token = log.take("main", 1)
    send(log, token, keys(1, 2))
    assert log.trim("main", 2**40) == 2
    assert (log.size("main"), log.chunks("main", 1)) == (Size(0, 0), [])
    assert list(log.batches("main", 0, 2)) == []
    assert log.ends("main", 0, 100, 1) == 2
    assert send(log, token, keys(2)) == 3  # what was trimmed cannot be compared with
    assert [b.first for b in log.batches("main", 0, 3)] == [3]
    with pytest.raises(Repeats):  # numbers of appends are not used again
        send(EventLog.open(log.path), token, keys(2))
    with pytest.raises(NotFound):
        log.trim("none", 1)


def test_room_is_used_again_and_given_back_when_most_is_empty(log: EventLog) -> None:
    def pages() -> int:
        return int(log._db.execute("PRAGMA page_count").fetchone()[0])

    token = log.take("main", 1)
    for _ in range(50):
        append(log, "main", token, 1, 0, 1, b"x" * 40_000)
    full = pages()
    log.trim("main", 20)
    assert pages() == full
    for _ in range(15):
        append(log, "main", token, 1, 0, 1, b"x" * 40_000)
    assert pages() == full
    log.trim("main", 65)
    assert pages() < full * 2 // 3
    assert log._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# -- readers and threads --------------------------------------------------------------------------------------


def test_a_reader_sees_changes_and_makes_none(log: EventLog) -> None:
    token = log.take("main", 1)
    reader = EventLog.open(log.path, read_only=True)
    before = reader.changed()
    assert reader.changed() == before
    append(log, "main", token, 1, 0, 1, b"x")
    assert reader.changed() != before
    assert [b.blob for b in reader.batches("main", 0, 1)] == [b"x"]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.take("main", 1)
    reader.close()


def test_threads_that_write_take_turns(log: EventLog) -> None:
    tokens = {name: log.take(name, 1) for name in "abcd"}
    done: list[str] = []

    def write(name: str) -> None:
        for n in range(25):
            mine = np.arange(n * 10, n * 10 + 10, dtype=np.uint64) + np.uint64(1000 * ord(name))
            append(log, name, tokens[name], 1, n, 10, b"x", keys=mine, window=1000)
        done.append(name)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list("abcd")
    assert {tail.last for tail in log.tails().values()} == {250}
