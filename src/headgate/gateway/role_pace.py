"""How much a principal may ask of the role services: each request may make a version, and versions are everyone's.

Guarantees: in any PACE_SECONDS a principal spends at most so much at one gateway, and past that no more than what was
begun before it was spent. A request costs one for each role it names, and one more for every STEPS_PACED steps of
search that it led to. Only those who asked of late are remembered.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from headgate.model.errors import TooBusy
from headgate.model.values import brief

PACE_SECONDS: Final = 60.0
"""The time over which requests are counted."""

STEPS_PACED: Final = 1_000
"""Steps of search that cost as much as a request."""


def cost_of(steps: int) -> int:
    """What a search costs beside the request that led to it."""
    return max(0, steps) // STEPS_PACED


@dataclass(slots=True)
class _Spent:
    """What one has spent of late, and when."""

    times: deque[tuple[datetime, int]] = field(default_factory=deque)
    sum: int = 0

    def add(self, now: datetime, cost: int) -> None:
        self.times.append((now, cost))
        self.sum += cost

    def forget(self, now: datetime) -> None:
        """What is long ago no longer counts; nor does what a clock that was set back says is to come."""
        while self.times and not _is_of_late(self.times[0][0], now):
            self.sum -= self.times.popleft()[1]


class Paces:
    """What each principal has spent of late. May be used from any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._asked: dict[str, _Spent] = {}

    def count(self, principal: str, now: datetime, cost: int = 1) -> None:
        """Count a request, or refuse it for now; one that costs more than all is served to who has spent nothing."""
        with self._lock:
            spent = self._of(principal, now)
            if spent.sum + min(cost, self._most) > self._most:
                raise _too_busy(principal)
            spent.add(now, cost)

    def charge(self, principal: str, now: datetime, cost: int) -> None:
        """Count what a request turned out to cost; refuse it if others of the same principal have spent it all."""
        if cost <= 0:
            return
        with self._lock:
            spent = self._of(principal, now)
            over = spent.sum > self._most
            spent.add(now, cost)
            if over:
                raise _too_busy(principal)

    def _of(self, principal: str, now: datetime) -> _Spent:
        """What a principal has spent; whoever asked last stands last."""
        self._forget(now)
        spent = self._asked[principal] = self._asked.pop(principal, _Spent())
        spent.forget(now)
        return spent

    def _forget(self, now: datetime) -> None:
        while self._asked:
            principal, spent = next(iter(self._asked.items()))
            if spent.times and _is_of_late(spent.times[-1][0], now):
                return
            del self._asked[principal]


def _too_busy(principal: str) -> TooBusy:
    return TooBusy(
        f"`{brief(principal)}` has asked for as many roles as it may in {PACE_SECONDS:g} seconds",
        remedy="ask again in a minute, and name the arguments you want; `roles.requests` is how much one may ask",
    )


def _is_of_late(at: datetime, now: datetime) -> bool:
    return timedelta(0) <= now - at < timedelta(seconds=PACE_SECONDS)
