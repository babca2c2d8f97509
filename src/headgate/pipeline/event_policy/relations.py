"""Is a tuple in a relation? For many tuples at once, each given in parts.

Guarantees: `found` is true exactly for parts that together are in a row of the relation, values compared as `alike`
does. Work for a tuple does not grow with the relation: a look-up a part, in a table where one fits, else by search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headgate.model.changes import Row
from headgate.model.conditions import Argument
from headgate.pipeline.event_policy.terms import same_key
from headgate.pipeline.log.codec import Flags, Ints

MAX_TABLE: Final = 1 << 20
"""Cells of one table of a relation; past it, keys are searched for."""
NONE, NULL = -1, -2
"""The numbers of what no row has, and of a part in which something is null."""

Codes = npt.NDArray[np.int32]


class Relation:
    """The rows of a relation that have some given values, cut into parts of some columns each."""

    def __init__(self, rows: Iterable[Row], given: Mapping[int, Argument], parts: Sequence[Sequence[int]]) -> None:
        self._parts = parts
        self.unknown = any(value is None for value in given.values())
        wanted = {at: same_key(value) for at, value in given.items()}
        fitting = [row for row in rows if all(same_key(row[at]) == key for at, key in wanted.items())]
        self._numbers: list[dict[Any, int]] = [{} for _ in parts]
        coded: list[list[int]] = []
        for numbers, places in zip(self._numbers, parts, strict=True):
            keys = [tuple(same_key(row[at]) for at in places) for row in fitting]
            coded.append([numbers.setdefault(key, len(numbers)) for key in keys])
        self._texts: list[dict[str, int]] = [
            {key[0][1]: number for key, number in numbers.items() if len(key) == 1 and type(key[0][1]) is str}
            for numbers in self._numbers
        ]
        self._levels: list[tuple[int, bool, npt.NDArray[Any]]] = []
        at = np.array(coded[0], np.int64)
        for more, numbers in zip(coded[1:], self._numbers[1:], strict=True):
            at = self._level(at, np.array(more, np.int64), max(1, len(numbers)))

    def _level(self, at: Ints, more: Ints, wide: int) -> Ints:
        """One more part: what the parts so far and it are together, numbered."""
        numbers: Ints
        keys, numbers = np.unique(at * wide + more, return_inverse=True)
        cells = (int(at.max(initial=0)) + 1) * wide
        if cells <= MAX_TABLE:
            table = np.full(cells, NONE, np.int32)
            table[keys] = np.arange(len(keys))
            self._levels.append((wide, True, table))
        else:
            self._levels.append((wide, False, keys))
        return numbers

    def code(self, part: int, values: Sequence[Argument]) -> int:
        """The number of the values of a part."""
        if any(value is None for value in values):
            return NULL
        return self._numbers[part].get(tuple(map(same_key, values)), NONE)

    def codes(self, part: int, values: Sequence[Argument]) -> list[int]:
        """The numbers of many values of a part that is one column."""
        texts = self._texts[part]
        return [texts.get(one, NONE) if type(one) is str else self.code(part, (one,)) for one in values]

    def found(self, codes: Sequence[Codes]) -> Flags:
        """Which of the tuples are in the relation?"""
        at = codes[0].astype(np.int64)
        for (wide, is_table, held), more in zip(self._levels, codes[1:], strict=True):
            there = np.flatnonzero((at >= 0) & (more >= 0))
            keys = at[there] * wide + more[there]
            at = np.full(len(at), NONE, np.int64)
            if is_table:
                at[there] = held[keys]
            elif len(held):
                place = np.minimum(np.searchsorted(held, keys), len(held) - 1)
                at[there] = np.where(held[place] == keys, place, NONE)
        is_in: Flags = at >= 0
        return is_in
