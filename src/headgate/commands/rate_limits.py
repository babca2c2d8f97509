"""How much a principal may ask of what is everyone's: versions, searches for roles, and reading what is refused.

Guarantees: at one gateway a principal spends at most `most` at once, and from then on `most` in PACE_SECONDS, evenly;
past that no more than what was begun before it was spent. A refusal says when there is room again. Only those who have
not got everything back are remembered.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headgate.commands.commit import KnownState
from headgate.model.errors import TooBusy
from headgate.model.values import brief

PACE_SECONDS: Final = 60.0
"""The time in which all that may be spent comes back."""

STEPS_PACED: Final = 1_000
"""Steps of search that cost as much as a request of a role."""


SECONDS_PACED: Final = 0.01
"""Seconds of looking for chains that cost as much as a version."""


MAX_PAUSE: Final = 20.0
"""How long a large request waits before it is refused, in seconds."""


def cost_of(steps: int) -> int:
    """What a search costs beside the request that led to it."""
    return max(0, steps) // STEPS_PACED


@dataclass(slots=True)
class _Account:
    """What a principal has spent and not got back, as of a moment."""

    spent: float
    at: datetime


class Paces:
    """What each principal has spent of late. May be used from any thread."""

    def __init__(self, most: int, *, what: str = "asked for as many roles", setting: str = "roles.requests") -> None:
        self._most = most
        self._what = what
        self._setting = setting
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}

    def count(self, principal: str, now: datetime, cost: int = 1) -> None:
        """Count a request, or refuse it for now; one that costs more than all is served to who has spent nothing."""
        with self._lock:
            account = self._of(principal, now)
            over = account.spent + min(cost, self._most) - self._most
            if over > 0:
                raise self._too_busy(principal, over)
            account.spent += cost

    def charge(self, principal: str, now: datetime, cost: int) -> None:
        """Count what a request turned out to cost; refuse it if others of the same principal have spent it all."""
        if cost <= 0:
            return
        with self._lock:
            account = self._of(principal, now)
            over = account.spent - self._most
            account.spent += cost
            if over > 0:
                raise self._too_busy(principal, over)

    def check(self, principal: str, now: datetime) -> None:
        """Refuse whoever has spent all."""
        with self._lock:
            over = self._of(principal, now).spent - self._most
            if over >= 0:
                raise self._too_busy(principal, over)

    def add(self, principal: str, now: datetime, cost: int) -> None:
        """Count what was spent, however much that is."""
        with self._lock:
            self._of(principal, now).spent += cost

    def _of(self, principal: str, now: datetime) -> _Account:
        """What a principal has spent; whoever asked last stands last."""
        self._forget(now)
        account = self._accounts[principal] = self._accounts.pop(principal, _Account(0.0, now))
        account.spent, account.at = self._left(account, now), now
        return account

    def _left(self, account: _Account, now: datetime) -> float:
        """What is not paid back by now; a clock that was set back pays nothing."""
        seconds = max(0.0, (now - account.at).total_seconds())
        return max(0.0, account.spent - seconds * self._most / PACE_SECONDS)

    def _forget(self, now: datetime) -> None:
        while self._accounts:
            principal, account = next(iter(self._accounts.items()))
            if self._left(account, now) > 0:
                return
            del self._accounts[principal]

    def _too_busy(self, principal: str, over: float) -> TooBusy:
        seconds = over * PACE_SECONDS / self._most
        return TooBusy(
            f"`{brief(principal)}` has {self._what} as it may in {PACE_SECONDS:g} seconds",
            remedy=f"ask again in {seconds:.1f} s; `{self._setting}` is how much one may ask in a minute",
            retry=seconds,
        )


class RequestPaces:
    """What principals may ask of one gateway, each at its own pace.

    The administrator could change everything anyway, and its policy must get through.
    """

    def __init__(self, known: KnownState, *, versions: int, refused: int, clock: Callable[[], datetime]) -> None:
        self._known = known
        self._clock = clock
        self._versions = Paces(versions, what="made as many versions", setting="limits.versions_per_minute")
        self._refused = Paces(refused, what="sent as much that was refused", setting="limits.refused_per_minute")

    def version(self, principal: str) -> None:
        """Count a version that a principal is about to make, or refuse it for now (`limits.versions_per_minute`)."""
        if principal != self._known.state.administrator:
            self._versions.count(principal, self._clock())

    def check_version(self, principal: str) -> None:
        """Refuse whoever has made as many versions as it may, or let us search for as long."""
        if principal != self._known.state.administrator:
            self._versions.check(principal, self._clock())

    def spent(self, principal: str, seconds: float) -> None:
        """Count time that was spent on finding out what follows from what a principal shows."""
        if principal != self._known.state.administrator:
            self._versions.add(principal, self._clock(), int(seconds / SECONDS_PACED))

    async def wait_for_room(self, principal: str) -> None:
        """Let who has sent too much that was refused wait before a large request of it is read, or refuse that.

        Waiting costs a connection and nothing else, where a refusal would be followed by another try.
        """
        try:
            self._refused.check(principal, self._clock())
        except TooBusy as busy:
            await asyncio.sleep(min(busy.retry or 0.0, MAX_PAUSE))
            self._refused.check(principal, self._clock())

    def count_refused(self, principal: str, size: int) -> None:
        """A request of so many bytes was read for nothing."""
        self._refused.add(principal, self._clock(), size)
