"""Drawing from strategies that are not made anew for every draw, which costs more than the draw itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


@cache
def whole(low: int, high: int) -> st.SearchStrategy[int]:
    """A whole number within bounds, as `st.integers` draws it."""
    return st.integers(low, high)


def pick(draw: st.DrawFn, options: Sequence[T]) -> T:
    """One of some, as `st.sampled_from` draws it."""
    return options[draw(whole(0, len(options) - 1))]
