"""How many random examples to run, and from which seed; and strategies that are made once.

`make test` runs few where a property takes long, and `make soak` many: `HEADGATE_TIMES` is how many times as many as a
property says that it is worth. `HEADGATE_EXAMPLES` sets that number for all, and `HEADGATE_SEED` the seed.
Under `CI` without a seed the examples are always the same ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.strategies import SearchStrategy, sampled_from

T = TypeVar("T")


def many(count: int, *, soak: int | None = None) -> int:
    """How many random cases to run; `make soak` multiplies `soak`, which is as many unless it is given."""
    times = os.environ.get("HEADGATE_TIMES")
    if times is not None and soak is not None:
        count = soak
    return int(os.environ.get("HEADGATE_EXAMPLES", count)) * int(times or "1")


def examples(count: int, *, soak: int | None = None) -> Callable[[Any], Any]:
    """Run a property on `many` examples."""
    chosen = os.environ.get("HEADGATE_SEED")
    configured = settings(
        max_examples=many(count, soak=soak),
        deadline=None,
        derandomize=chosen is None and "CI" in os.environ,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )

    def decorate(test: Any) -> Any:
        return pytest.mark.soak(configured(test if chosen is None else seed(int(chosen))(test)))

    return decorate


@cache
def among(*choices: T) -> SearchStrategy[T]:
    """One of some values. Made once for the same ones: to make a strategy takes longer than to draw from it."""
    return sampled_from(choices)
