"""When the clock takes something away: statements, keys and roles that end, issuers and services that fell silent.

Guarantees: `due` is true from the very moment on at which something that the ledger holds has ended, and until a
version without it is there, also where another gateway, whose clock is behind, brought it in since; nothing is decided
at or after that moment by a version from before it. Any gateway may make that version (`settle`): whoever comes first
does, and the others find nothing left to do. Of statements the clock only takes away, so that two clocks that differ do
not undo each other's versions; what roles rest on is looked at when it may turn by one's own clock, and once at the
start. A service of another domain that was heard since the ledger was last told so stays. A ledger without signed
statements and roles costs nothing.
Leaves out: what falls (`authority.statement_state`, `roles.requests.transition`), and when roles may turn
(`roles.records.clock`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from headgate.authority.statement_state import next_moment
from headgate.commands.commit import KnownState, commit
from headgate.commands.statements import STATEMENT_PARTS
from headgate.model.changes import Batch, Change, HearPeer, Tick
from headgate.model.rights import Rule, Source
from headgate.model.roles import RoleBook
from headgate.model.state import State
from headgate.node.domain import Domain
from headgate.roles.certificates.remote_records import Identity, identity, lapses
from headgate.roles.records import clock as role_clock
from headgate.roles.requests.transition import next_state

_AT_ONCE: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(eq=False, repr=False)
class StandingClock:
    """The next moment of the newest state. May be used from any thread."""

    domain: Domain
    follower: KnownState
    clock: Callable[[], datetime]
    heard: Callable[[], Mapping[Identity, datetime]] = dict
    """When services of other domains were last heard, which the ledger is told only when it matters."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._looked: tuple[State, datetime] | None = None
        """A state, and when it was found that nothing of it is left to fall."""
        self._ahead: tuple[State | None, datetime | None] = (None, None)
        self._roles_looked: datetime | None = None
        """When it was last found that the clock has turned nothing more that roles rest on."""
        self._roles_ahead: tuple[tuple[object, ...], datetime | None] = ((), None)

    def due(self, state: State, now: datetime) -> bool:
        """Has something of this state ended by now?"""
        at = self.next(state)
        return at is not None and at <= now

    def overdue(self, state: State) -> bool:
        """Has something of this state ended by the clock?"""
        return self.due(state, self.clock())

    def next(self, state: State) -> datetime | None:
        """The next moment at which something may fall, or one that has passed with nobody to look at this state."""
        if not _has_statements(state) and not _has_roles(state):
            return None
        if self._ahead[0] is not state:
            moments: list[datetime | None] = [*_ends(state)]  # what is over and still there is due, whenever that was
            if _has_statements(state):
                moments.append(next_moment(state, self._since(state)))
            if _has_roles(state):
                moments.append(self._next_of_roles(state))
            self._ahead = state, min((at for at in moments if at is not None), default=None)
        return self._ahead[1]

    def _next_of_roles(self, state: State) -> datetime | None:
        """The next moment at which the clock may change what roles rest on; worked out once for each role book."""
        looked, book = self._roles_looked, state.roles
        if looked is None:
            return _AT_ONCE  # nobody knows what has turned since the last gateway went
        parts = (looked, book.records, book.memberships, book.elections, book.peers, state.relations)
        if not _same(self._roles_ahead[0], parts):
            found = [*_role_ends(state), *(at for _, at in lapses(state)), role_clock.next_moment(state, looked)]
            self._roles_ahead = parts, min((at for at in found if at is not None), default=None)
        return self._roles_ahead[1]

    def _since(self, state: State) -> datetime:
        """When it was last found that nothing of this state is left to fall.

        An issuer that fell silent and a key that ended stay in the state, so it takes a look to know that nothing rests
        on them any more.
        """
        looked = self._looked
        if looked is not None and (looked[0] is state or _rests_on(looked[0]) == _rests_on(state)):
            return looked[1]
        return datetime.min.replace(tzinfo=self.clock().tzinfo)

    def settle(self) -> bool:
        """Let everything fall that has ended by now; true if that made a version."""
        moment = self.clock()

        def make(state: State) -> Sequence[Change]:
            nonlocal moment
            moment = now = self.clock()
            if not self.due(state, now):
                return ()
            signs = self._signs(state, now)
            changes: tuple[Change, ...] = (*signs, Tick(now))
            if signs or _is_over(state, now) or _takes(state, self._after(state, Batch(state.administrator, changes))):
                return changes
            self._looked, self._roles_looked, self._ahead = (state, now), now, (None, None)
            return ()

        with self._lock:
            made = commit(self.domain, self.follower, make, "by the clock")
            if made.version is None:
                return False
            self._roles_looked, self._ahead = moment, (None, None)
            if made.state.version == made.version:
                self._looked = made.state, moment
            return True

    def _signs(self, state: State, now: datetime) -> list[HearPeer]:
        """Signs of life of services whose silence would no longer be borne by what the ledger knows."""
        due = [peer for peer, at in lapses(state) if at <= now]
        heard = self.heard() if due else {}
        last = {peer.name: min(heard[identity(peer)], now) for peer in due if identity(peer) in heard}
        return [
            HearPeer(peer.name, peer.number, {}, last[peer.name])
            for peer in due
            if peer.name in last and (peer.heard is None or peer.heard < last[peer.name])
        ]

    def _after(self, state: State, batch: Batch) -> State:
        return next_state(state, batch, self.domain.functions(state) if _has_roles(state) else None)


def _has_statements(state: State) -> bool:
    return bool(state.certificates or state.identities or state.successions)


def _has_roles(state: State) -> bool:
    book = state.roles
    return bool(book.memberships or book.elections or book.records or book.peers)


def _same(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return len(a) == len(b) and all(one is other for one, other in zip(a, b, strict=True))


def _role_ends(state: State) -> Iterator[datetime]:
    """When the memberships and elections of a state end: then they leave it."""
    return (one.until for one in state.roles.credentials() if one.until is not None)


def _is_over(state: State, now: datetime) -> bool:
    """Is a membership or an election certain to fall? Then there is no need to try."""
    return any(until <= now for until in _role_ends(state))


def _ends(state: State) -> Iterator[datetime]:
    """When the certificates and identity statements of a state end: then they leave it."""
    said = [one.validity.until for one in state.certificates.values()]
    said += [one.identity.validity.until for one in state.identities.values()]
    return (until for until in said if until is not None)


def _rests_on(state: State) -> tuple[object, ...]:
    """All that decides what the clock takes away."""
    return (*(getattr(state, name) for name in STATEMENT_PARTS), state.coordinator, state.network, _chained(state))


def _chained(state: State) -> list[Rule]:
    return [rule for rule in state.rules if rule.source is Source.CHAIN]


def _takes(before: State, after: State) -> bool:
    """Is anything gone? A statement that would come back is not the clock's to give: ours may be behind."""
    return not (
        before.certificates.keys() <= after.certificates.keys()
        and before.identities.keys() <= after.identities.keys()
        and {rule.id for rule in _chained(before)} <= {rule.id for rule in _chained(after)}
        and _is_as_it_was(before.roles, after.roles)
    )


def _is_as_it_was(before: RoleBook, after: RoleBook) -> bool:
    """Has nothing of roles turned? A record that turns now decides what falls with another one later."""
    return (
        before.records is after.records or before.records == after.records
    ) and before.memberships.keys() <= after.memberships.keys()
