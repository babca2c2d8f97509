"""The delivery store: a batch that runs again replaces itself, and progress goes with it."""

from __future__ import annotations

import socket
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from headgate.model.errors import Damaged, Fenced, StorageFull, StreamHeld, TooOld
from headgate.pipeline import deliveries as store_module
from headgate.pipeline.deliveries import (
    BatchStats,
    BlobPage,
    BlobTail,
    DeliveryBlob,
    DeliveryStore,
    Reached,
    Remark,
    WriterLease,
    pack,
)


@pytest.fixture
def store(tmp_path: Path) -> DeliveryStore:
    return DeliveryStore.create(tmp_path / "deliveries.db")


def blob(stream: str, first: int, last: int, content: bytes | None, part: int = 0) -> DeliveryBlob:
    return DeliveryBlob(stream, first, last, 1, part, 1 if content else 0, content)


def test_a_batch_that_runs_again_replaces_itself(store: DeliveryStore) -> None:
    for _ in range(2):
        store.write(0, 1, [blob("main", 1, 3, b"a"), blob("main", 4, 4, None)])
    store.write(1, 2, [blob("main", 5, 6, b"b"), blob("main", 1, 3, b"history", part=2)])
    found = [(b.first, b.part, b.blob) for b in store.blobs()]
    assert found == [(1, 0, b"a"), (1, 2, b"history"), (5, 0, b"b")]
    assert store.count() == 3
    assert store.reached() == Reached(2, {"main": 6})
    assert store.reached(before=1) == Reached(1, {"main": 4})


def test_other_boundaries_write_the_same_rows(store: DeliveryStore) -> None:
    store.write(0, 1, [blob("main", 1, 1, b"a"), blob("main", 2, 2, b"b")])
    store.write(0, 1, [blob("main", 1, 1, b"a")])  # a lost checkpoint begins at batch 0 again
    store.write(1, 1, [blob("main", 2, 2, b"b")])
    assert [b.blob for b in store.blobs()] == [b"a", b"b"]
    assert store.reached() == Reached(1, {"main": 2})


def test_a_failure_before_commit_keeps_nothing(store: DeliveryStore) -> None:
    def strike() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.write(0, 1, [blob("main", 1, 1, b"a")], strike)
    assert list(store.blobs()) == []
    assert store.reached() == Reached()


SECOND = 1_000_000


def written(store: DeliveryStore) -> list[bytes | None]:
    return [b.blob for b in store.blobs()]


def stats(at: int) -> BatchStats:
    return BatchStats(0, at, 1, 1, 1, 1)


def test_who_lost_the_lease_writes_nothing(store: DeliveryStore) -> None:
    old = store.take("a:1:1:pipeline", 0, 10 * SECOND)
    store.write(0, 1, [blob("main", 1, 1, b"a")], token=old)
    with pytest.raises(StreamHeld) as held:
        store.take("b:1:1:pipeline", 9 * SECOND, 10 * SECOND)
    assert (held.value.holder, held.value.expires) == ("a:1:1:pipeline", 10 * SECOND)

    new = store.take("b:1:1:pipeline", 10 * SECOND, 10 * SECOND)
    for refused in (
        lambda: store.write(1, 2, [blob("main", 2, 2, b"late")], token=old),
        lambda: store.renew(old, 11 * SECOND, 10 * SECOND),
        lambda: store.fence(old, "a:1:1:pipeline", 99 * SECOND),
    ):
        with pytest.raises(Fenced):
            refused()
    store.release(old)  # what is not held is not given up
    assert written(store) == [b"a"]
    assert store.reached() == Reached(1, {"main": 1})
    store.write(1, 2, [blob("main", 2, 2, b"b")], token=new)
    assert written(store) == [b"a", b"b"]
    assert store.lease() == WriterLease(new, "b:1:1:pipeline", 20 * SECOND)


def test_a_lease_is_renewed_given_up_and_taken_from_the_dead(store: DeliveryStore) -> None:
    first = store.take("a:1:1:pipeline", 0, SECOND)
    store.renew(first, 5 * SECOND, SECOND)  # it had lapsed, and nobody had taken it
    assert store.lease().expires == 6 * SECOND
    second = store.take("b:1:1:pipeline", 5 * SECOND, SECOND, dead=lambda holder: holder.startswith("a:"))
    store.release(second)
    third = store.take("c:1:1:pipeline", 5 * SECOND, SECOND, floor=100)
    assert first < second < third == 101


def test_without_the_lease_one_writes_only_while_nobody_holds_it(store: DeliveryStore) -> None:
    store.write(0, 1, [blob("main", 1, 1, b"a")], stats=stats(0))
    token = store.take("elsewhere:1:1:pipeline", 0, SECOND)
    with pytest.raises(Fenced):
        store.write(0, 1, [blob("main", 1, 1, b"b")], stats=stats(SECOND - 1))
    store.write(0, 1, [blob("main", 1, 1, b"b")], stats=stats(SECOND))
    store.renew(token, SECOND, SECOND)
    store.release(token)
    store.write(0, 1, [blob("main", 1, 1, b"c")], stats=stats(SECOND))
    store.take(f"{socket.gethostname()}:1:999999999:pipeline", 0, 99 * SECOND)  # of a process that is gone
    store.write(0, 1, [blob("main", 1, 1, b"d")], stats=stats(SECOND))
    assert written(store) == [b"d"]


def test_the_first_remark_of_a_kind_is_kept_with_its_batch(store: DeliveryStore) -> None:
    early, late = Remark(3, "limit-reached", 5, 0, "too many"), Remark(3, "limit-reached", 9, 0, "still too many")
    for _ in range(2):
        store.write(4, 1, [], remarks=[early, late])
    store.write(5, 1, [], remarks=[late, Remark(4, "statement-failed", 9, 2, "null")])
    assert store.remarks() == [early, Remark(4, "statement-failed", 9, 2, "null")]
    assert store.remarks(before=5) == [early]
    assert store.remarks(before=4) == []
    store.write(0, 1, [])  # a lost checkpoint: they are met again
    assert store.remarks() == []


def test_a_store_from_before_remarks_opens(store: DeliveryStore) -> None:
    store.write(0, 1, [blob("main", 1, 1, b"a")])
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute("DROP TABLE remarks")
        db.execute("DROP TABLE held")
        db.execute("DROP TABLE counts")
        db.execute("DROP TABLE lease")
        db.execute("PRAGMA user_version = 2")
    again = DeliveryStore.open(store.path, read_only=True)
    assert (again.count(), again.remarks(), again.lease().token) == (1, [], 0)


def test_what_is_held_is_that_of_the_newest_batch(store: DeliveryStore) -> None:
    store.write(0, 1, [blob("main", 1, 1, b"a")], held={3: 5, 4: 6})
    assert store.reached().held == {3: 5, 4: 6}
    store.write(1, 1, [blob("main", 2, 2, b"b")], held={4: 7})
    assert store.reached() == Reached(1, {"main": 2}, {4: 7})


def test_a_batch_that_runs_again_counts_from_where_it_began(store: DeliveryStore) -> None:
    store.write(0, 1, [], counts={1: (5, 10)})
    for _ in range(2):
        assert store.counts(before=1) == {1: (5, 10)}
        store.write(1, 1, [], counts={1: (5, 15), 2: (5, 1)})
    assert store.counts(before=2) == {1: (5, 15), 2: (5, 1)}
    store.write(2, 1, [], counts={1: (6, 3)})
    assert store.counts(before=2) == {1: (5, 15), 2: (5, 1)}
    assert store.counts(before=3) == {1: (6, 3), 2: (5, 1)}
    assert store.counts(before=0) == {}
    store.write(0, 1, [], counts={2: (5, 1)})  # a lost checkpoint
    assert store.counts(before=1) == {2: (5, 1)}


def test_altered_deliveries_are_named(store: DeliveryStore) -> None:
    store.write(0, 1, [blob("main", 1, 3, b"a")])
    with sqlite3.connect(store.path) as db:
        db.execute("UPDATE deliveries SET blob = x'00'")
    with pytest.raises(Damaged, match="events 1 to 3 of stream `main`"):
        list(store.blobs())


def test_a_full_disk_refuses_and_resumes(store: DeliveryStore) -> None:
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StorageFull):
        store.write(0, 1, [blob("main", 1, 1, b"x" * 100_000)])
    assert store.reached() == Reached()
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.write(0, 1, [blob("main", 1, 1, b"x" * 100_000)])
    assert store.count() == 1


def held(stream: str, first: int, last: int, numbers: list[int], part: int = 0) -> DeliveryBlob:
    content = f"{stream}{first}.{part}".encode()
    return DeliveryBlob(
        stream, first, last, 1, part, len(numbers), content, pack(np.unique(np.array(numbers, np.int32)))
    )


def found(store: DeliveryStore, number: int, after: int, through: int, limit: int = 100) -> list[tuple[int, int]]:
    """All slices put together."""
    every: list[tuple[int, int]] = []
    resume = None
    for _ in range(1000):
        piece = store.for_subscription(number, "main", after, through, limit, resume=resume)
        assert len(piece.blobs) <= limit
        every += [(b.first, b.part) for b in piece.blobs]
        resume = piece.resume
        if resume is None:
            return every
    raise AssertionError("it never ends")


def test_a_subscription_gets_its_blobs_in_order_and_no_others(store: DeliveryStore) -> None:
    store.write(
        0, 1, [held("main", 1, 3, [1, 2]), held("main", 4, 6, [2]), held("main", 7, 9, [1]), held("other", 1, 9, [1])]
    )
    store.write(1, 2, [held("main", 1, 3, [5], part=2), held("main", 4, 6, [1, 5], part=2), held("main", 10, 12, [5])])
    for limit in (1, 2, 100):
        assert found(store, 1, 0, 12, limit) == [(1, 0), (4, 2), (7, 0)]
        assert found(store, 5, 0, 12, limit) == [(1, 2), (4, 2), (10, 0)]
        assert found(store, 1, 2, 12, limit) == [(1, 0), (4, 2), (7, 0)]  # event 3 comes after 2
        assert found(store, 1, 3, 6, limit) == [(4, 2)]
        assert found(store, 9, 0, 12, limit) == []
    (blob, *_) = store.for_subscription(5, "main", 3, 12, 1).blobs
    assert (blob.first, blob.last, blob.part, blob.blob) == (4, 6, 2, b"main4.2")


def test_a_rare_subscription_catches_up_in_slices_without_reading_other_blobs(
    store: DeliveryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MAX_SCAN", 10)
    store.write(0, 1, [held("main", n, n, [7] if n == 95 else [1]) for n in range(1, 101)])
    store._db.execute("UPDATE deliveries SET blob = x'00' WHERE first <> 95")  # reading one of these would fail
    piece = store.for_subscription(7, "main", 0, 100, 5)
    assert piece == BlobPage((), (10, 0))
    assert found(store, 7, 0, 100, 5) == [(95, 0)]
    with pytest.raises(Damaged, match="events 1 to 1 of stream `main`"):
        store.for_subscription(1, "main", 0, 100, 5)


def test_damaged_members_are_named(store: DeliveryStore) -> None:
    store.write(0, 1, [held("main", 1, 3, [1])])
    store._db.execute("UPDATE deliveries SET members = x'0100'")
    with pytest.raises(Damaged, match="events 1 to 3 of stream `main`"):
        store.for_subscription(2, "main", 0, 3, 5)


def test_the_live_tail_goes_as_far_as_the_newest_batch(store: DeliveryStore) -> None:
    assert store.after({}, 100) == BlobTail((), {})
    store.write(
        0, 1, [held("main", 1, 3, [1]), held("main", 1, 3, [2], part=3), blob("main", 4, 8, None), held("b", 1, 1, [1])]
    )
    tail = store.after({}, 1000)
    assert [(b.stream, b.first, b.part) for b in tail.blobs] == [("b", 1, 0), ("main", 1, 0)]
    assert (tail.positions, tail.more) == ({"b": 1, "main": 8}, False)
    assert store.after(tail.positions, 1000) == BlobTail((), tail.positions)
    assert [b.first for b in store.after({"b": 1, "main": 2}, 1000).blobs] == [1]  # event 3 comes after 2
    store.write(1, 1, [held("main", 9, 10, [1]), held("main", 11, 12, [1]), blob("main", 13, 13, None)])
    few = store.after(tail.positions, 1)
    assert ([b.first for b in few.blobs], few.positions, few.more) == ([9], {"b": 1, "main": 10}, True)
    rest = store.after(few.positions, 1)
    assert ([b.first for b in rest.blobs], rest.positions, rest.more) == ([11], {"b": 1, "main": 13}, False)


def test_trimming_forgets_the_oldest_and_keeps_account(store: DeliveryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "TRIM_BLOBS", 2)
    some = [held("main", n, n + 1, [1, 2], part) for n in range(1, 20, 2) for part in (0, 4)]
    store.write(0, 1, [*some, blob("main", 21, 25, None)])
    whole = store.size("main")
    assert whole.count == store.count() == 40
    assert store.trim("main", 9) == 16
    assert store.trimmed() == {"main": 9}
    assert [b.first for b in store.blobs()] == [n for n in range(9, 20, 2) for _ in range(2)]
    left = sum(len(b.blob or b"") + len(b.members) for b in store.blobs())
    assert (store.size("main").count, store.size("main").bytes) == (24, left)
    store.write(0, 1, [*some, blob("main", 21, 25, None)])  # as a run from a lost checkpoint
    assert store.size("main") == whole
    assert store.trim("main", 2**40) == 40
    assert store.trimmed() == {"main": 25}  # what is not decided yet is not gone
    assert (store.size("main").count, store.size("main").bytes) == (0, 0)
    assert store.trim("none", 5) == 0
    assert store.trimmed() == {"main": 25}


def test_figures_of_the_newest_batches_are_kept(store: DeliveryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_STATS", 5)
    every = [BatchStats(n, 100 + n, 3, 2, 40, 1) for n in range(8)]
    for one in every:
        store.write(one.batch, 1, [held("main", one.batch + 1, one.batch + 1, [1])], stats=one)
    assert store.stats() == every[-5:]
    assert store.stats(last=2) == every[-2:]
    assert [chunk.time for chunk in store.chunks("main", 3)] == [100, 101, 102]
    again = BatchStats(4, 1, 1, 1, 1, 1)
    store.write(4, 1, [], stats=again)  # a batch that runs again, after which there is none yet
    assert store.stats() == [every[3], again]

    def strike() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.write(5, 1, [], strike, stats=every[5])
    assert store.stats() == [every[3], again]


def test_a_reader_sees_changes_and_makes_none(store: DeliveryStore) -> None:
    reader = DeliveryStore.open(store.path, read_only=True)
    before = reader.changed()
    store.write(0, 1, [held("main", 1, 3, [1])])
    assert reader.changed() != before
    assert reader.reached() == Reached(1, {"main": 3})
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.trim("main", 3)
    reader.close()


def test_a_store_of_an_older_format_is_refused(store: DeliveryStore) -> None:
    store._db.execute("PRAGMA user_version = 1")
    with pytest.raises(TooOld, match="format 1"):
        DeliveryStore.open(store.path)
