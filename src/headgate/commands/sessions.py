"""Who is asking? Sessions of principals that have proven their key.

Guarantees: every request is checked against the newest state known to the gateway: a session ends when it expires, when
it is ended, and when its principal loses its key or the right to connect, and does not come back. What is refused does
not tell why, except that a principal which has proven itself is told that it may not connect.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Final

from headgate.commands.statements import Authority, lets_in
from headgate.model.errors import ConnectDenied, HeadgateError, NotAuthenticated
from headgate.model.state import State
from headgate.node.cursors import Cursors
from headgate.node.domain import Follower
from headgate.trust.handshake import Challenger
from headgate.trust.keys import PrivateKey, PublicKey
from headgate.trust.presented import PresentedStatements
from headgate.trust.tokens import issue, verify

MAX_REMEMBERED: Final = 20_000
"""Verified tokens remembered by one gateway, and sessions that lapsed there."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal with a session."""

    principal: str
    did: str
    session: str
    expires: datetime


@dataclass(eq=False, repr=False)
class Sessions:
    """The sessions of a domain, as one gateway checks them."""

    follower: Follower
    broker: PrivateKey
    challenger: Challenger
    ended: Cursors
    _: KW_ONLY
    audience: str
    seconds: float
    clock: Callable[[], datetime]
    later: Callable[[Callable[[], None]], object]

    def __post_init__(self) -> None:
        self._verified: OrderedDict[str, Caller] = OrderedDict()
        self._lapsed: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._by_key: tuple[State | None, dict[str, str]] = (None, {})
        self._may: tuple[State | None, dict[str, bool]] = (None, {})

    def open(
        self,
        nonce: str,
        client_nonce: str,
        did: str,
        signature: str,
        authority: Authority | None = None,
        present: Sequence[str] = (),
    ) -> tuple[str, Caller]:
        """A session for whoever answers a challenge with the key of a principal that may connect.

        What is presented with the answer is opened and judged once the key is proven, and taken up by the authority
        when the answer counts.
        """
        shown: PresentedStatements | None = None

        # A key that no principal has is refused like a bad proof, and fills no memory.
        def known(key: PublicKey) -> bool:
            nonlocal shown
            if authority is None:
                return self._principal(key.did) is not None
            shown = authority.opened(present, key.did)
            authority.judge(key.did, shown)
            return True

        key = self.challenger.answer(nonce, client_nonce, did, signature, known)
        if authority is not None and shown is not None:
            authority.take_up(key.did, shown)
        principal = self._principal(key.did)
        if principal is None:  # removed in this very moment
            raise ConnectDenied("nobody has this key any more")
        if not self._may_connect(principal):
            raise ConnectDenied(f"`{principal}` may not connect", remedy="ask the administrator of the domain")
        now = self.clock()
        token = issue(self.broker, principal=key, audience=self.audience, now=now, seconds=self.seconds)
        return token, self.caller(token)

    def caller(self, token: str) -> Caller:
        """Whose session a token is, checked anew."""
        caller = self._verified.get(token)
        if caller is None:
            session = verify(token, broker=self.broker.public, audience=self.audience, now=self.clock())
            principal = self._principal(session.principal_did)
            if principal is None:
                raise _over()
            caller = Caller(principal, session.principal_did, session.id, session.expires)
            with self._lock:
                self._verified[token] = caller
                while len(self._verified) > MAX_REMEMBERED:
                    self._verified.popitem(last=False)
        self.check(caller)
        return caller

    def has_seen(self, token: str) -> bool:
        """Was this token good here before?"""
        return token in self._verified

    def check(self, caller: Caller) -> None:
        """Refuse a caller whose session is over."""
        if self.clock() >= caller.expires:
            raise _over()
        if self._principal(caller.did) != caller.principal:
            self._lapse(caller)
            raise _over()
        # Before it is asked whether the session has ended, so that all connections of one session are told the same.
        if not self._may_connect(caller.principal):
            self._lapse(caller)
            raise ConnectDenied(f"`{caller.principal}` may no longer connect")
        if caller.session in self._lapsed or self.ended.ended(caller.session):
            raise _over()

    def known(self) -> int:
        """How many sessions that are not over this gateway has seen."""
        now = self.clock()
        with self._lock:
            return sum(1 for caller in self._verified.values() if caller.expires > now)

    def end(self, caller: Caller) -> None:
        """The session is over, at every gateway."""
        self.ended.end_session(caller.session, caller.expires)

    def _lapse(self, caller: Caller) -> None:
        """The session does not come back: here from now on, elsewhere as soon as it is written."""
        with self._lock:
            if caller.session in self._lapsed:
                return
            self._lapsed[caller.session] = None
            while len(self._lapsed) > MAX_REMEMBERED:
                self._lapsed.popitem(last=False)

        def write() -> None:
            with suppress(HeadgateError):  # whatever becomes of it, the ledger refuses the principal at every gateway
                self.end(caller)

        self.later(write)  # whoever is refused waits for no file

    def _principal(self, did: str) -> str | None:
        """The principal with this key; one that is named by its key needs no other entry, but may have another key."""
        state = self.follower.state
        if self._by_key[0] is not state:
            self._by_key = state, {key: name for name, key in state.keys.items()}
        return self._by_key[1].get(did) or (did if did in state.principals and did not in state.keys else None)

    def _may_connect(self, principal: str) -> bool:
        state = self.follower.state
        if self._may[0] is not state:
            self._may = state, {}
        known = self._may[1]
        if principal not in known:
            known[principal] = lets_in(state, principal)
        return known[principal]


def _over() -> NotAuthenticated:
    return NotAuthenticated("the session is over", remedy="prove who you are again")
