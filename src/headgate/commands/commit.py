"""The ways to a new version: what follows from the newest state, and what someone asked for as it is.

Guarantees: `commit` makes changes from the very version before the one that they make, again if another came between;
`submit` commits a given batch over whatever is newest, unless policy has changed since the version that it expects.
Both return when every stream has the version's starting point (D7). At one gateway a principal spends at most `most` at
once, and from then on `most` in PACE_SECONDS, evenly; past that no more than what was begun before it was spent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Final, Protocol

from headgate.model.changes import Batch, Change
from headgate.model.errors import HeadgateError, TooBusy, VersionConflict
from headgate.model.state import State
from headgate.model.values import brief
from headgate.node.domain import Domain, Follower

TRIES: Final = 20
"""How often changes are made anew while others keep changing the ledger."""


class KnownState(Protocol):
    """The ledger as it is known here."""

    @property
    def state(self) -> State:
        """The newest state known."""

    def refresh(self) -> bool:
        """Look for a newer one."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The version that was made, None if there was nothing to change, and the newest state known then."""

    version: int | None
    state: State


def commit(ledger: Domain, known: KnownState, make: Callable[[State], Sequence[Change]], note: str) -> Committed:
    """Commit what follows from the newest state, in the domain's own name; no changes make no version."""
    for _ in range(TRIES):
        known.refresh()
        state = known.state
        changes = make(state)
        if not changes:
            return Committed(None, state)
        try:
            version = ledger.commit(Batch(state.administrator, tuple(changes), note), expect=state.version)
        except VersionConflict:
            continue
        known.refresh()
        return Committed(version, known.state)
    raise VersionConflict("the ledger keeps changing", remedy="send it again")


def submit(
    domain: Domain,
    follower: Follower,
    batch: Batch,
    *,
    expect: int | None = None,
    check: Callable[[State], None] | None = None,
) -> int:
    """Commit a batch; its version. What `check` refuses it refuses by the newest state, while nobody else commits."""
    version = domain.commit(batch, expect=expect, rebase=lambda _: batch, check=check)
    with suppress(HeadgateError):  # it is committed, whatever becomes of looking at it
        follower.refresh()
    return version


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """A domain's ledger as its principals change it, each at its own pace."""

    domain: Domain
    follower: Follower
    pace: Callable[[str], None] = lambda _: None
    """Counts a version that a principal is about to make, or refuses it for now."""

    @property
    def state(self) -> State:
        """The newest state known."""
        return self.follower.state

    def change(
        self,
        author: str,
        changes: Iterable[Change],
        note: str = "",
        *,
        expect: int | None = None,
        check: Callable[[State], None] | None = None,
    ) -> int:
        """Commit a batch in a principal's name; its version (`submit`)."""
        self.pace(author)
        return submit(self.domain, self.follower, Batch(author, tuple(changes), note), expect=expect, check=check)


# -- how often --------------------------------------------------------------------------------------------------

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


@dataclass(eq=False, repr=False)
class Paces:
    """What each principal has spent of late. May be used from any thread."""

    most: int
    _: KW_ONLY
    what: str = "asked for as many roles"
    setting: str = "roles.requests"

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}

    def count(self, principal: str, now: datetime, cost: int = 1) -> None:
        """Count a request, or refuse it for now; one that costs more than all is served to who has spent nothing."""
        with self._lock:
            account = self._of(principal, now)
            over = account.spent + min(cost, self.most) - self.most
            if over > 0:
                raise self._too_busy(principal, over)
            account.spent += cost

    def charge(self, principal: str, now: datetime, cost: int) -> None:
        """Count what a request turned out to cost; refuse it if others of the same principal have spent it all."""
        if cost <= 0:
            return
        with self._lock:
            account = self._of(principal, now)
            over = account.spent - self.most
            account.spent += cost
            if over > 0:
                raise self._too_busy(principal, over)

    def check(self, principal: str, now: datetime) -> None:
        """Refuse whoever has spent all."""
        with self._lock:
            over = self._of(principal, now).spent - self.most
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
        return max(0.0, account.spent - seconds * self.most / PACE_SECONDS)

    def _forget(self, now: datetime) -> None:
        while self._accounts:
            principal, account = next(iter(self._accounts.items()))
            if self._left(account, now) > 0:
                return
            del self._accounts[principal]

    def _too_busy(self, principal: str, over: float) -> TooBusy:
        seconds = over * PACE_SECONDS / self.most
        return TooBusy(
            f"`{brief(principal)}` has {self.what} as it may in {PACE_SECONDS:g} seconds",
            remedy=f"ask again in {seconds:.1f} s; `{self.setting}` is how much one may ask in a minute",
            retry=seconds,
        )


@dataclass(eq=False, repr=False)
class RequestPaces:
    """What principals may ask of one gateway, each at its own pace.

    The administrator could change everything anyway, and its policy must get through.
    """

    known: KnownState
    _: KW_ONLY
    versions: int
    refused: int
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._versions = Paces(self.versions, what="made as many versions", setting="limits.versions_per_minute")
        self._refused = Paces(self.refused, what="sent as much that was refused", setting="limits.refused_per_minute")

    def version(self, principal: str) -> None:
        """Count a version that a principal is about to make, or refuse it for now (`limits.versions_per_minute`)."""
        if principal != self.known.state.administrator:
            self._versions.count(principal, self.clock())

    def check_version(self, principal: str) -> None:
        """Refuse whoever has made as many versions as it may, or let us search for as long."""
        if principal != self.known.state.administrator:
            self._versions.check(principal, self.clock())

    def spent(self, principal: str, seconds: float) -> None:
        """Count time that was spent on finding out what follows from what a principal shows."""
        if principal != self.known.state.administrator:
            self._versions.add(principal, self.clock(), int(seconds / SECONDS_PACED))

    async def wait_for_room(self, principal: str) -> None:
        """Let who has sent too much that was refused wait before a large request of it is read, or refuse that.

        Waiting costs a connection and nothing else, where a refusal would be followed by another try.
        """
        try:
            self._refused.check(principal, self.clock())
        except TooBusy as busy:
            await asyncio.sleep(min(busy.retry or 0.0, MAX_PAUSE))
            self._refused.check(principal, self.clock())

    def count_refused(self, principal: str, size: int) -> None:
        """A request of so many bytes was read for nothing."""
        self._refused.add(principal, self.clock(), size)
