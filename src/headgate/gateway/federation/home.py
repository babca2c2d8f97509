"""The domain that follows others, as its follower sees it: its ledger, and what it remembers of peers.

Guarantees: whatever is committed follows from the newest state, and is made again if that has changed meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from headgate.commands.commit import commit
from headgate.model.changes import Change
from headgate.model.state import State
from headgate.node.domain import Domain, Follower, utc_now
from headgate.node.peers import Peers

T = TypeVar("T")


@dataclass(slots=True)
class Home:
    """The domain that follows. May be used from any thread."""

    name: str
    domain: Domain
    ledger: Follower
    peers: Peers
    clock: Callable[[], datetime] = utc_now
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Do work on files in another thread."""
        return await asyncio.to_thread(work, *args)

    def state(self) -> State:
        """The newest state."""
        self.ledger.refresh()
        return self.ledger.state

    def commit(self, make: Callable[[State, datetime], Sequence[Change]], note: str) -> State:
        """Commit what follows from the newest state, in the domain's own name; nothing makes no version."""
        with self._lock:
            return commit(self.domain, self.ledger, lambda state: make(state, self.clock()), note).state

    def close(self) -> None:
        """Let go of the files."""
        self.peers.close()
        self.ledger.close()
        self.domain.close()
