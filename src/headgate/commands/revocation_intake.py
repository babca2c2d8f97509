"""Which revocation lists are taken up, and how often: those of issuers that something here rests on.

Guarantees: whoever issued nothing that counts here is not listened to, whatever it once was. A list makes a version
only if it is news, or if a certificate would soon be unknown for want of a sign of life; one that is older than a known
one is refused for ever. An issuer that nobody here chose makes at most LISTS_PER_ISSUER versions in LIST_SECONDS, and
all such issuers together at most LISTS_OF_ALL with lists that take nothing away: those that do wait for no one else.
Leaves out: signatures (`trust.revocations`) and what falls (`authority.statement_state`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from headgate.authority.statement_state import StatementState
from headgate.model.authority import Certificate, Identity, RevocationList
from headgate.model.errors import StaleList, TooBusy
from headgate.model.state import State
from headgate.model.values import brief

LIST_SECONDS: Final = 60.0
LISTS_PER_ISSUER: Final = 10
"""Versions in LIST_SECONDS that the lists of one issuer make which the domain did not choose."""

LISTS_OF_ALL: Final = 100
"""Versions in LIST_SECONDS that lists of such issuers make without taking anything away."""


def is_chosen(state: State, issuer: str, followed: Collection[str]) -> bool:
    """Is it one that the domain itself has chosen: its coordinator, a provider, or one that is followed?"""
    root = state.coordinator or state.keys.get(state.administrator)
    return _is_one_of(state, issuer, {*followed, *state.providers, *(() if root is None else (root,))})


def rests_on(state: State, issuer: str, followed: Collection[str], shown: Iterable[Certificate] = ()) -> bool:
    """Does anything that stands, or is shown, rest on this issuer? Types rest on their owners."""
    if is_chosen(state, issuer, followed):
        return True
    keys = {one.issuer for one in state.certificates.values()} | {one.issuer for one in shown}
    keys |= {one.identity.issuer for one in state.identities.values()}
    keys |= {state.key_of(one.owner) for one in state.types.values()}
    return _is_one_of(state, issuer, keys)


def _is_one_of(state: State, issuer: str, keys: Collection[str]) -> bool:
    """Is it one of these keys, or another key of the same principal?"""
    if issuer in keys or not state.successions:
        return issuer in keys
    stands = StatementState(state)
    return stands.newest(issuer) in {stands.newest(key) for key in keys}


def is_news(state: State, revocations: RevocationList, now: datetime, shown: Iterable[Certificate] = ()) -> bool:
    """Does a list say more than the one that is known, or is it a sign of life that something needs?"""
    known = state.lists.get(revocations.issuer)
    if known is None:
        return True
    if revocations.number < known.number or (
        revocations.number == known.number and revocations.revoked != known.revoked
    ):
        raise StaleList(
            f"list {revocations.number} of `{revocations.issuer}` is not newer than "
            f"list {known.number}, which is known",
            remedy="send the newest list",
        )
    return revocations.number > known.number or (
        revocations.issued > known.issued and _runs_out(state, known, now, shown)
    )


def takes_away(state: State, revocations: RevocationList) -> bool:
    """Is anything that stands on the list?"""
    same = StatementState(state).same
    every: list[Certificate | Identity] = [*state.certificates.values()]
    every += [one.identity for one in state.identities.values()]
    return any(one.id in revocations.revoked and same(one.issuer, revocations.issuer) for one in every)


def _runs_out(state: State, known: RevocationList, now: datetime, shown: Iterable[Certificate]) -> bool:
    """Is a certificate more than half way to being unknown, for want of a sign of life of its issuer?"""
    same = StatementState(state).same
    return any(
        one.freshness is not None
        and same(one.issuer, known.issuer)
        and known.issued + timedelta(seconds=one.freshness / 2) <= now
        for one in (*state.certificates.values(), *shown)
    )


class IntakePace:
    """How many versions lists have made of late. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_issuer: dict[str, deque[datetime]] = {}
        self._idle: deque[datetime] = deque()
        """Those that took nothing away."""

    def check(self, issuer: str, now: datetime, *, bites: bool) -> None:
        """Refuse another version for now."""
        with self._lock:
            self._forget(now)
            made = len(self._by_issuer.get(issuer, ()))
            if made >= LISTS_PER_ISSUER:
                raise TooBusy(
                    f"`{brief(issuer)}` had {made} lists taken up in the last {LIST_SECONDS:g} seconds",
                    remedy="send its newest list a minute from now",
                )
            if not bites and len(self._idle) >= LISTS_OF_ALL:
                raise TooBusy("too many lists that take nothing away", remedy="send it again a minute from now")

    def count(self, issuer: str, now: datetime, *, bites: bool) -> None:
        """A list has made a version."""
        with self._lock:
            self._by_issuer.setdefault(issuer, deque()).append(now)
            if not bites:
                self._idle.append(now)

    def _forget(self, now: datetime) -> None:
        """What is long ago no longer counts; nor does what a clock that was set back says is to come."""
        end = timedelta(seconds=LIST_SECONDS)
        for times in (self._idle, *self._by_issuer.values()):
            while times and not timedelta(0) <= now - times[0] < end:
                times.popleft()
        self._by_issuer = {issuer: times for issuer, times in self._by_issuer.items() if times}
