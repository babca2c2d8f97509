"""The domain that follows others, as its follower sees it: its ledger, and what it remembers of peers.

Guarantees: whatever is committed follows from the newest state, and is made again if that has changed meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from headgate.model.changes import Batch, Change
from headgate.model.errors import VersionConflict
from headgate.model.state import State
from headgate.node.domain import Domain, utc_now
from headgate.node.ledger_follower import Follower
from headgate.node.peers import Peers

T = TypeVar("T")
_TRIES: Final = 20
"""How often a batch is made anew while others keep changing the ledger."""


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
            for _ in range(_TRIES):
                state = self.state()
                changes = make(state, self.clock())
                if not changes:
                    return state
                try:
                    self.domain.commit(Batch(state.administrator, tuple(changes), note), expect=state.version)
                except VersionConflict:
                    continue
                return self.state()
        raise VersionConflict("the ledger keeps changing", remedy="try again")

    def close(self) -> None:
        """Let go of the files."""
        self.peers.close()
        self.ledger.close()
        self.domain.close()
