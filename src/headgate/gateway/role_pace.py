"""How often a principal may ask for roles: each request may make a version, and versions are everyone's.

Guarantees: in any PACE_SECONDS a principal is served at most so many requests at one gateway. Only those who asked of
late are remembered.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import datetime, timedelta
from typing import Final

from headgate.model.errors import TooBusy
from headgate.model.values import brief

PACE_SECONDS: Final = 60.0
"""The time over which requests are counted."""


class Paces:
    """How often each principal has asked of late. May be used from any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._asked: dict[str, deque[datetime]] = {}

    def count(self, principal: str, now: datetime) -> None:
        """Count a request, or refuse it for now."""
        with self._lock:
            self._forget(now)
            asked = self._asked.pop(principal, deque())
            self._asked[principal] = asked  # whoever asked last stands last
            while asked and not _is_of_late(asked[0], now):
                asked.popleft()
            if len(asked) >= self._most:
                raise TooBusy(
                    f"`{brief(principal)}` asked for roles {len(asked)} times in the last {PACE_SECONDS:g} seconds",
                    remedy="ask again in a minute; `roles.requests` is how often one may",
                )
            asked.append(now)

    def _forget(self, now: datetime) -> None:
        """What is long ago no longer counts; nor does what a clock that was set back says is to come."""
        while self._asked:
            principal, times = next(iter(self._asked.items()))
            if times and _is_of_late(times[-1], now):
                return
            del self._asked[principal]


def _is_of_late(at: datetime, now: datetime) -> bool:
    return timedelta(0) <= now - at < timedelta(seconds=PACE_SECONDS)
