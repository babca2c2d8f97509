"""Shards in segments are there as they were put, whenever the bucket is begun anew, and segments stay small."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from headgate.pipeline.detect import segments
from headgate.pipeline.detect.bucket import ShardKey
from headgate.pipeline.detect.segments import SEGMENT_BYTES, Segments
from strategies.running import examples

_keys = st.tuples(st.integers(0, 12), st.integers(0, 1))
_sizes = st.sampled_from([1, SEGMENT_BYTES // 5, SEGMENT_BYTES // 2, SEGMENT_BYTES, 3 * SEGMENT_BYTES])
_steps = st.lists(
    st.tuples(st.just("put"), _keys, _sizes)
    | st.tuples(st.sampled_from(["get", "remove"]), _keys, st.none())
    | st.tuples(st.sampled_from(["write", "move", "forget", "again"]), st.none(), st.none()),
    max_size=60,
)


class Kept(dict[int, bytes]):
    """Segments in memory."""

    def put(self, segment: int, saved: bytes) -> None:
        self[segment] = saved

    def remove(self, segment: int) -> None:
        self.pop(segment, None)


@examples(200, soak=2000)
@given(_steps)
def test_shards_are_there_as_they_were_put(steps: list[tuple[str, ShardKey, int]]) -> None:
    kept = Kept()
    held, expected = Segments(kept), dict[ShardKey, bytes]()
    for number, (do, key, size) in enumerate([*steps, ("again", (0, 0), 0)]):
        match do:
            case "put":
                expected[key] = number.to_bytes(2) * (size // 2 + 1)
                held.put(key, expected[key])
            case "remove":
                expected.pop(key, None)
                held.remove(key)
            case "get":
                assert held.get(key) == expected.get(key)
            case _:
                held.write()
                if do == "move":
                    kept = Kept(kept)
                    held.move(kept)
                elif do == "forget":
                    held.forget()
                elif do == "again":
                    held = Segments(kept)
                written = [pickle.loads(saved) for segment, saved in kept.items() if segment != segments._INDEX]
                assert {key: saved for one in written for key, saved in one.items()} == expected
                assert sum(map(len, written)) == len(expected)
                for one in written:
                    assert len(one) == 1 or sum(map(len, one.values())) <= SEGMENT_BYTES
    assert {key: held.get(key) for key in expected} == expected


def test_what_changes_little_is_written_little() -> None:
    kept = Kept()
    held = Segments(kept)
    for number in range(1_000):
        held.put((number, 0), bytes(700))
    held.write()
    assert len(kept) < 1_000 * 700 / SEGMENT_BYTES * 1.2
    before = dict(kept)
    again = Segments(kept)
    again.put((500, 0), b"x" * 700)
    again.write()
    assert sum(1 for segment in kept if kept[segment] != before[segment]) == 1
