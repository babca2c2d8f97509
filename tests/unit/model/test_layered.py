"""A map that was branched is a dict to whoever looks, and the one it came from stays as it was."""

import pickle
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headgate.model import layered
from headgate.model.layered import Layered, branch, changed, drop

KEY = st.integers(0, 12)
STEP = st.one_of(
    st.tuples(st.just("set"), KEY),
    st.tuples(st.just("delete"), KEY),
    st.tuples(st.just("branch"), KEY),
    st.tuples(st.just("drop"), KEY),
)


def same(map: Mapping[int, object], model: dict[int, object]) -> None:
    assert list(map.items()) == list(model.items())
    assert list(map) == list(model)
    assert list(map.values()) == list(model.values())
    assert len(map) == len(model)
    assert map == model
    assert repr(map) == repr(model)
    for key in range(13):
        assert (key in map) == (key in model)
        assert map.get(key, "none") == model.get(key, "none")


@given(st.dictionaries(KEY, st.text(max_size=1)), st.lists(STEP, max_size=40), st.sampled_from([0, 2, 64]))
def test_a_branch_is_a_dict(start: dict[int, object], steps: list[tuple[str, int]], room: int) -> None:
    whole, layered.ROOM = layered.ROOM, room  # type: ignore[misc]
    try:
        _told(start, steps)
    finally:
        layered.ROOM = whole  # type: ignore[misc]


def _told(start: dict[int, object], steps: list[tuple[str, int]]) -> None:
    map, model = branch(start), dict(start)
    kept: list[tuple[Mapping[int, object], dict[int, object]]] = [(start, dict(start))]
    for number, (step, key) in enumerate(steps):
        match step:
            case "set":
                map[key] = model[key] = f"value {number}"
            case "delete":
                assert map.pop(key, None) == model.pop(key, None)
            case "drop":
                drop(map, lambda value: str(value).endswith("3"))
                model = {name: value for name, value in model.items() if not str(value).endswith("3")}
            case "branch":
                kept.append((map, dict(model)))
                map = branch(map)
        same(map, model)
    for (before, old), (after, new) in zip(kept, [*kept[1:], (map, model)], strict=True):
        same(before, old)
        assert set(changed(before, after)) == {
            name for name in {**old, **new} if old.get(name, start) is not new.get(name, start)
        }


def test_what_came_is_told_in_the_order_in_which_it_came() -> None:
    before = branch({"a": 1, "b": 2})
    before["c"] = 3
    after = branch(before)
    for name in ("z", "b", "y", "x"):
        after[name] = 300
    del after["c"]
    assert changed(before, after) == ["c", "z", "b", "y", "x"]
    assert changed(before, branch(before)) == []
    assert changed(dict(before), after) == ["b", "c", "z", "y", "x"]


def test_changes_are_written_out_when_they_are_many_and_not_before() -> None:
    map: Layered[int, int] = branch({})
    shared = []
    for number in range(1_000):
        map = branch(map)
        map[number] = number
        shared.append(map._layers[0])
    assert list(map) == list(range(1_000))
    assert 5 < len({id(one) for one in shared}) < 20
    after = branch(map)
    assert map._layers[0] is after._layers[0]


def test_a_pickled_map_is_a_dict() -> None:
    map = branch({"a": 1})
    map["b"] = 2
    again = pickle.loads(pickle.dumps(map))
    assert type(again) is dict
    assert again == map == {"a": 1, "b": 2}
