"""Maps of which a changed copy costs what is changed.

Guarantees: `branch` gives a map that is equal to another, in the same order, and may be changed while that one stays as
it is; the two share all but the changes. The order is a dict's: what is set again keeps its place, and what was removed
and comes back is last. `changed` finds where two maps differ by looking at their changes alone, if one was branched
from the other. Pickled, a map is a plain dict.
Leaves out: maps that somebody changes after they were branched from. Values are compared by identity.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from math import isqrt
from typing import Any, Final, Generic, TypeAlias, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Layers: TypeAlias = tuple[dict[K, V], dict[K, V], dict[K, None]]
"""What is shared with other maps, what stands above it, and what of it is hidden: no more, or no more in its place."""

ROOM: Final = 64
"""Changes above what is shared that are never too many to be copied."""
_NOTHING: Final = object()


class Layered(MutableMapping[K, V]):
    """A map over one that it shares with others. Make one with `branch`."""

    __slots__ = ("_layers",)

    def __init__(self, layers: Layers[K, V]) -> None:
        self._layers = layers  # one attribute, so that whoever reads in another thread sees all of it or nothing

    def __getitem__(self, key: K) -> V:
        shared, above, hidden = self._layers
        if key in above:
            return above[key]
        if key in hidden:
            raise KeyError(key)
        return shared[key]

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T, /) -> V | T: ...
    def get(self, key: K, default: object = None, /) -> object:
        """The value of a key, or the default."""
        shared, above, hidden = self._layers
        if key in above:
            return above[key]
        return default if key in hidden else shared.get(key, default)

    def __contains__(self, key: object) -> bool:
        shared, above, hidden = self._layers
        return key in above or (key in shared and key not in hidden)

    def __setitem__(self, key: K, value: V) -> None:
        self._layers[1][key] = value

    def __delitem__(self, key: K) -> None:
        shared, above, hidden = self._layers
        if key not in self:
            raise KeyError(key)
        above.pop(key, None)
        if key in shared:
            hidden[key] = None

    def __iter__(self) -> Iterator[K]:
        shared, above, hidden = self._layers
        if hidden:
            yield from (key for key in shared if key not in hidden)
        else:
            yield from shared
        yield from (key for key in above if key not in shared or key in hidden)

    def __len__(self) -> int:
        shared, above, hidden = self._layers
        return len(shared) - len(hidden) + sum(1 for key in above if key not in shared or key in hidden)

    def items(self) -> ItemsView[K, V]:
        """The keys with their values."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """The values, in the order of their keys."""
        return _Values(self)

    def pairs(self) -> Iterator[tuple[K, V]]:
        """The keys with their values, once."""
        shared, above, hidden = self._layers
        if not above and not hidden:
            yield from shared.items()
            return
        for key, value in shared.items():
            if key not in hidden:
                yield key, above.get(key, value)
        for key, value in above.items():
            if key not in shared or key in hidden:
                yield key, value

    def __repr__(self) -> str:
        return repr(dict(self.pairs()))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (list(self.pairs()),)


class _Items(ItemsView[K, V], Generic[K, V]):
    _mapping: Layered[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping.pairs()


class _Values(ValuesView[V], Generic[V]):
    _mapping: Layered[Any, V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.pairs())


def branch(source: Mapping[K, V]) -> Layered[K, V]:
    """A map that is equal and may be changed, while the source stays as it is and is not changed by anyone."""
    shared, above, hidden = _layers(source)
    if (changes := len(above) + len(hidden)) > ROOM and changes > ROOM + isqrt(len(shared)):
        assert isinstance(source, Layered), "a dict has no changes"
        # Written out now, so that the source and what comes of it share it, and `changed` stays cheap.
        shared, above, hidden = source._layers = (dict(source.pairs()), {}, {})
    return Layered((shared, {**above}, {**hidden}))


def changed(before: Mapping[K, V], after: Mapping[K, V]) -> list[K]:
    """The keys that no longer stand for the same object: those that went, then the others, new ones as they came."""
    if before is after:
        return []
    (shared, above, hidden), (other, new, gone) = _layers(before), _layers(after)
    had, has = ([*above, *hidden, *gone], new) if shared is other else (list(before), after)
    # A key that went with an earlier version and is back has come like any other: its place among them counts.
    keys = dict.fromkeys([*(key for key in had if key not in has), *has])
    return [key for key in keys if before.get(key, _NOTHING) is not after.get(key, _NOTHING)]


def drop(map: MutableMapping[K, V], which: Callable[[V], bool]) -> None:
    """Remove every value of which something is true."""
    for key in [key for key, value in map.items() if which(value)]:
        del map[key]


def _layers(map: Mapping[K, V]) -> Layers[K, V]:
    if isinstance(map, Layered):
        return map._layers
    return (map if isinstance(map, dict) else dict(map)), {}, {}
