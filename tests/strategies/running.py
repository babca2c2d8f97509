"""How many random examples to run, and from which seed.

`HEADGATE_EXAMPLES` sets the number, `HEADGATE_TIMES` multiplies it (`make soak` does); `HEADGATE_SEED` sets the seed.
Under `CI` without a seed the examples are always the same ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings


def examples(default: int) -> Callable[[Any], Any]:
    """Run a property on so many examples."""
    chosen = os.environ.get("HEADGATE_SEED")
    count = int(os.environ.get("HEADGATE_EXAMPLES", default)) * int(os.environ.get("HEADGATE_TIMES", "1"))
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
