"""The delivery store: a batch that runs again replaces itself, and progress goes with it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from headgate.model.errors import Damaged, StorageFull
from headgate.pipeline.deliveries import DeliveryBlob
from headgate.pipeline.store import DeliveryStore, Reached


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
