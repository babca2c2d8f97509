"""How many random examples to run, and from which seed.

`make test` runs few where a property takes long, and `make soak` many: `HEADGATE_TIMES` is how many times as many as a
property says that it is worth. `HEADGATE_EXAMPLES` sets that number for all, and `HEADGATE_SEED` the seed.
Under `CI` without a seed the examples are always the same ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings


def examples(count: int, *, soak: int | None = None) -> Callable[[Any], Any]:
    """Run a property on so many examples; `make soak` multiplies `soak`, which is as many unless it is given."""
    chosen = os.environ.get("HEADGATE_SEED")
    if (times := os.environ.get("HEADGATE_TIMES")) is not None:
        count = int(os.environ.get("HEADGATE_EXAMPLES", soak or count)) * int(times)
    else:
        count = int(os.environ.get("HEADGATE_EXAMPLES", count))
    configured = settings(
        max_examples=count,
        deadline=None,
        derandomize=chosen is None and "CI" in os.environ,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )

    def decorate(test: Any) -> Any:
        return pytest.mark.soak(configured(test if chosen is None else seed(int(chosen))(test)))

    return decorate
