"""Which subscriptions are in a blob: exactly those packed, in as little room as either form takes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.pipeline.deliveries import contains, pack


@given(st.one_of(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 2**31 - 1), max_size=20)))
def test_exactly_what_was_packed_is_in_it(numbers: set[int]) -> None:
    packed = pack(np.array(sorted(numbers), np.int32))
    near = {n + d for n in numbers for d in (-9, -8, -1, 0, 1, 8, 9)} | {*range(-1, 310), 2**31 - 1}
    assert {n for n in near if contains(packed, n)} == numbers & near
    assert len(packed) <= 5 + 4 * len(numbers)


def test_many_neighbours_take_a_bit_each_wherever_they_begin() -> None:
    assert len(pack(np.arange(1_000_000, 1_008_000, dtype=np.int32))) == 5 + 4 + 1000


@pytest.mark.parametrize("numbers", [[], [3, 900_000], list(range(100))])
def test_what_was_altered_is_no_silent_no(numbers: list[int]) -> None:
    packed = pack(np.array(numbers, np.int32))
    for at in range(len(packed)):
        altered = bytearray(packed)
        altered[at] ^= 4
        with pytest.raises(ValueError, match="not a packed list"):
            contains(bytes(altered), 3)
    with pytest.raises(ValueError, match="not a packed list"):
        contains(b"", 3)
