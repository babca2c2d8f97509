"""Indexes that travel: what a worker has when it was sent one index whole and every later one as what changed."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

from headgate.pipeline.index.delta import Change, IndexMark, applied, difference
from headgate.pipeline.index.index import PolicyIndex


class Travelling:
    """A worker's copy of the indexes of one builder."""

    def __init__(self) -> None:
        self._mark: IndexMark | None = None
        self._copy: PolicyIndex | None = None
        self.change: Change = None

    def sent(self, index: PolicyIndex) -> PolicyIndex:
        """The copy of an index, by way of bytes."""
        if self._mark is None or self._copy is None:
            self._copy = pickle.loads(pickle.dumps(index, protocol=5))
        else:
            self.change = difference(self._mark, index)
            self._copy = applied(self._copy, pickle.loads(pickle.dumps(self.change, protocol=5)))
        self._mark = IndexMark.of(index)
        assert self._copy is not None
        return self._copy


def unlike(a: Any, b: Any, where: str = "index") -> str:
    """Where two things differ, in a value or its type; nothing if they are the same."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if set(a) != set(b):
            return f"{where}: keys {set(a) ^ set(b)}"
        return next(filter(None, (unlike(a[key], b[key], f"{where}[{key!r}]") for key in a)), "")
    if type(a) is not type(b):
        return f"{where}: {type(a).__name__} and {type(b).__name__}"
    match a:
        case np.ndarray():
            same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            return "" if same else f"{where}: {a!r} and {b!r}"
        case list() | tuple():
            if len(a) != len(b):
                return f"{where}: {len(a)} and {len(b)} elements"
            return next(
                filter(None, (unlike(x, y, f"{where}[{n}]") for n, (x, y) in enumerate(zip(a, b, strict=True)))), ""
            )
        case _ if dataclasses.is_dataclass(a):
            names = [field.name for field in dataclasses.fields(a)]
            return next(filter(None, (unlike(getattr(a, n), getattr(b, n), f"{where}.{n}") for n in names)), "")
        case _:
            return "" if a == b or repr(a) == repr(b) else f"{where}: {a!r} and {b!r}"
