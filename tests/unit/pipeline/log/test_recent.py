"""Recent keys: none is missed, none is kept too long, and the same everywhere."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.pipeline.log.appends import KEYS_A_MARK, RecentKeys, hash_keys, repeats_within

SOME = st.lists(st.integers(0, 40), max_size=30)


def keys(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**63 - 1), st.lists(st.tuples(SOME, SOME), max_size=15))
def test_exactly_the_newest_keys_are_found(limit: int, salt: int, steps: list[tuple[list[int], list[int]]]) -> None:
    recent = RecentKeys(limit, salt=salt)
    held: list[tuple[int, int]] = []
    for number, (asked, added) in enumerate(steps):
        places, appends = recent.find(keys(*asked))
        expected = sorted((at, append) for at, key in enumerate(asked) for k, append in held if k == key)
        assert list(zip(places.tolist(), appends.tolist(), strict=True)) == expected
        recent.add(keys(*added), number, number)
        held = [*held, *((key, number) for key in added)][-limit:]
        assert len(recent) == len(held)


def test_old_keys_are_forgotten_and_none_before_its_time() -> None:
    recent = RecentKeys(1 << 14)
    batch = np.arange(KEYS_A_MARK, dtype=np.uint64)
    for time in range(10):
        recent.add(batch + np.uint64(10_000 * time), time, time)
    recent.forget(before=4)
    assert [len(recent.find(batch + np.uint64(10_000 * time))[0]) for time in range(10)] == [0] * 4 + [1024] * 6
    recent.forget(before=100)
    assert len(recent) == 0


def test_keys_of_the_past_are_not_found_after_the_ring_came_round() -> None:
    recent = RecentKeys(8)
    rng = np.random.default_rng(5)
    for number in range(2_000):
        mine = rng.integers(0, 2**64, 3, dtype=np.uint64)
        assert len(recent.find(mine)[0]) == 0
        recent.add(mine, number, number)
        assert recent.find(mine)[1].tolist() == [number] * 3


def test_a_key_is_of_publisher_source_and_id_each_in_its_place() -> None:
    events = [(p, s, i) for p in ("a", "b", "") for s in ("a", "b", "") for i in ("a", "b", "é", "")]
    found = hash_keys(*(list(column) for column in zip(*events, strict=True)))
    assert len(set(found.tolist())) == len(events)
    assert found.tolist() == [int(hash_keys(p, s, [i])[0]) for p, s, i in events]


def test_a_key_is_the_same_in_another_process() -> None:
    code = (
        "from headgate.pipeline.log.appends import hash_keys as h; print(h('camera', '/north', ['e1', 'e2']).tolist())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    ).stdout
    assert said.strip() == str(hash_keys("camera", "/north", ["e1", "e2"]).tolist())
    assert hash_keys("camera", "/north", ["e1"]).tolist() == [PINNED]  # logs hold such keys: it must not change


PINNED = 16932856768519867654


@pytest.mark.parametrize(
    ("hashes", "names", "found"),
    [
        ([1, 2, 3], "abc", {}),
        ([1, 1, 3], "aac", {1: 0}),
        ([1, 1, 1], "aba", {2: 0}),  # `b` only shares the key
        ([1, 2, 1, 1], "abaa", {2: 0, 3: 0}),
    ],
)
def test_repeats_inside_one_request(hashes: list[int], names: str, found: dict[int, int]) -> None:
    assert repeats_within(keys(*hashes), list(names)) == found
