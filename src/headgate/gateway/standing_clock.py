"""When the clock takes something away: certificates, identity statements and keys that end, issuers that fell silent.

Guarantees: `due` is true from the very moment on at which something that the ledger holds has ended, and until a
version without it is there; nothing is decided at or after that moment by a version from before it. Any gateway may
make that version (`settle`): whoever comes first does, and the others find nothing left to do. A ledger without signed
statements costs nothing.
Leaves out: what falls (`decide.standing`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from headgate.decide.apply import apply
from headgate.decide.standing import next_moment
from headgate.model.changes import Batch, Tick
from headgate.model.errors import VersionConflict
from headgate.model.state import State

_TRIES: Final = 20
"""How often the clock is put to the ledger while others keep changing it."""


class Ledger(Protocol):
    """The newest state, and how to change it."""

    def commit(self, batch: Batch, *, expect: int | None = None) -> int:
        """Apply a batch, if the ledger is at the expected version."""


class Known(Protocol):
    """The ledger as it is known here."""

    @property
    def state(self) -> State:
        """The newest state known."""

    def refresh(self) -> bool:
        """Look for a newer one."""


class StandingClock:
    """The next moment of the newest state. May be used from any thread."""

    def __init__(self, domain: Ledger, follower: Known, clock: Callable[[], datetime]) -> None:
        self._domain = domain
        self._follower = follower
        self._clock = clock
        self._lock = threading.Lock()
        self._settled: datetime | None = None
        """Everything that ended by then has fallen; None as long as nobody has looked."""
        self._ahead: tuple[State | None, datetime | None] = (None, None)

    def due(self, state: State, now: datetime) -> bool:
        """Has something of this state ended by now?"""
        if not _has_statements(state):
            return False
        if self._settled is None:
            return True
        at = self.next(state)
        return at is not None and at <= now

    def next(self, state: State) -> datetime | None:
        """The next moment at which something may end, once all before it has fallen."""
        if not _has_statements(state):
            return None
        if self._ahead[0] is not state:
            self._ahead = state, next_moment(state, self._settled or datetime.min.replace(tzinfo=self._clock().tzinfo))
        return self._ahead[1]

    def settle(self) -> bool:
        """Let everything fall that has ended by now; true if that made a version."""
        with self._lock:
            for _ in range(_TRIES):
                self._follower.refresh()
                state, now = self._follower.state, self._clock()
                if not self.due(state, now):
                    return False
                batch = Batch(state.administrator, (Tick(now),), "by the clock")
                if alike(state, apply(state, batch)):
                    self._looked(now)
                    return False
                try:
                    self._domain.commit(batch, expect=state.version)
                except VersionConflict:
                    continue
                self._looked(now)
                self._follower.refresh()
                return True
        raise VersionConflict("the ledger keeps changing under the clock", remedy="try again")

    def _looked(self, now: datetime) -> None:
        self._settled = now
        self._ahead = None, None


def _has_statements(state: State) -> bool:
    return bool(state.certificates or state.identities or state.successions)


def alike(a: State, b: State) -> bool:
    """Do two states hold the same, as far as signed statements go?"""
    return (
        a.rules == b.rules
        and a.certificates == b.certificates
        and a.bags == b.bags
        and a.lists == b.lists
        and a.identities == b.identities
        and a.successions == b.successions
        and a.providers == b.providers
        and a.principals == b.principals
        and a.keys == b.keys
        and a.policy_rules == b.policy_rules
    )
