"""When the clock takes something away: certificates, identity statements and keys that end, issuers that fell silent.

Guarantees: `due` is true from the very moment on at which something that the ledger holds has ended, and until a
version without it is there, also where another gateway, whose clock is behind, brought it in since; nothing is decided
at or after that moment by a version from before it. Any gateway may make that version (`settle`): whoever comes first
does, and the others find nothing left to do. The clock only takes away, so that two clocks that differ do not undo each
other's versions. A ledger without signed statements costs nothing.
Leaves out: what falls (`decide.standing`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final, Protocol

from headgate.decide.apply import apply
from headgate.decide.standing import next_moment
from headgate.model.changes import Batch, Tick
from headgate.model.errors import VersionConflict
from headgate.model.rights import Rule, Source
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
        self._looked: tuple[State, datetime] | None = None
        """A state, and when it was found that nothing of it is left to fall."""
        self._ahead: tuple[State | None, datetime | None] = (None, None)

    def due(self, state: State, now: datetime) -> bool:
        """Has something of this state ended by now?"""
        at = self.next(state)
        return at is not None and at <= now

    def next(self, state: State) -> datetime | None:
        """The next moment at which something may fall, or one that has passed with nobody to look at this state."""
        if not _has_statements(state):
            return None
        if self._ahead[0] is not state:
            found = [*_ends(state)]  # what is over and still there is due, whenever that was
            if (rest := next_moment(state, self._since(state))) is not None:
                found.append(rest)
            self._ahead = state, min(found, default=None)
        return self._ahead[1]

    def _since(self, state: State) -> datetime:
        """When it was last found that nothing of this state is left to fall.

        An issuer that fell silent and a key that ended stay in the state, so it takes a look to know that nothing rests
        on them any more.
        """
        looked = self._looked
        if looked is not None and (looked[0] is state or _rests_on(looked[0]) == _rests_on(state)):
            return looked[1]
        return datetime.min.replace(tzinfo=self._clock().tzinfo)

    def settle(self) -> bool:
        """Let everything fall that has ended by now; true if that made a version."""
        with self._lock:
            for _ in range(_TRIES):
                self._follower.refresh()
                state, now = self._follower.state, self._clock()
                if not self.due(state, now):
                    return False
                batch = Batch(state.administrator, (Tick(now),), "by the clock")
                if not _takes(state, apply(state, batch)):
                    self._looked, self._ahead = (state, now), (None, None)
                    return False
                try:
                    made = self._domain.commit(batch, expect=state.version)
                except VersionConflict:
                    continue
                self._follower.refresh()
                if self._follower.state.version == made:
                    self._looked, self._ahead = (self._follower.state, now), (None, None)
                return True
        raise VersionConflict("the ledger keeps changing under the clock", remedy="try again")


def _has_statements(state: State) -> bool:
    return bool(state.certificates or state.identities or state.successions)


def _ends(state: State) -> Iterator[datetime]:
    """When the certificates and identity statements of a state end: then they leave it."""
    said = [one.validity.until for one in state.certificates.values()]
    said += [one.identity.validity.until for one in state.identities.values()]
    return (until for until in said if until is not None)


def _rests_on(state: State) -> tuple[object, ...]:
    """All that decides what the clock takes away."""
    return (
        state.certificates,
        state.bags,
        state.lists,
        state.successions,
        state.identities,
        state.providers,
        state.keys,
        state.coordinator,
        state.network,
        _chained(state),
    )


def _chained(state: State) -> list[Rule]:
    return [rule for rule in state.rules if rule.source is Source.CHAIN]


def _takes(before: State, after: State) -> bool:
    """Is anything gone? What would come back is not the clock's to give: ours may be behind."""
    return not (
        before.certificates.keys() <= after.certificates.keys()
        and before.identities.keys() <= after.identities.keys()
        and {rule.id for rule in _chained(before)} <= {rule.id for rule in _chained(after)}
    )


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
        and a.attested_rules == b.attested_rules
    )
