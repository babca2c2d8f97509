"""Trying again: how long, how often, and with which clock.

Guarantees: pauses grow exponentially up to a bound, each with a random part, and the time over all tries is bounded.
Clock, sleep and dice are arguments.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

_MAX_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True)
class Patience:
    """For how many seconds something is tried again, and the first and longest pause between two tries."""

    seconds: float = 30.0
    first: float = 0.05
    most: float = 2.0


@dataclass(frozen=True, slots=True)
class Timing:
    """The clock, the sleep and the dice of a client."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    dice: Callable[[], float] = random.random


class Tries:
    """One run of tries."""

    def __init__(self, patience: Patience, timing: Timing) -> None:
        self._patience = patience
        self._timing = timing
        self._until = timing.clock() + patience.seconds
        self._count = 0

    async def again(self, at_least: float = 0.0) -> bool:
        """Pause, longer than the last time; false, at once, where the time would be up."""
        longest = min(self._patience.most, self._patience.first * 2 ** min(self._count, _MAX_DOUBLINGS))
        # Half of it is random, so that many clients of one gateway do not come back together.
        pause = max(at_least, longest * (0.5 + self._timing.dice() / 2))
        self._count += 1
        if self._timing.clock() + pause >= self._until:
            return False
        await self._timing.sleep(pause)
        return True
