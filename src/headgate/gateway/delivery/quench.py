"""Telling publishers that nobody may and wants to receive what they advertise, and when that changes.

Guarantees: only those with the right `quench` on a type are told, per type and never per filter. The answer is that of
`analysis.quench` at the newest state; what changes is told once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final

from headgate.analysis.restrictions import wanted
from headgate.decide.views import holds
from headgate.model.rights import Action
from headgate.model.state import State
from headgate.node.domain import Follower

EVERY: Final = 1.0
"""Seconds between two looks at a ledger that keeps changing."""


class Quench:
    """Who wants what, as one gateway knows it."""

    def __init__(self, follower: Follower, run_blocking: Callable[..., Awaitable[Any]]) -> None:
        self._follower = follower
        self._run = run_blocking
        self._known: tuple[State | None, dict[str, bool]] = (None, {})

    async def wanted(self, principal: str, type_name: str) -> bool | None:
        """Is the type wanted by anyone? None if the principal may not know, or there is no such type."""
        state = self._follower.state
        if type_name not in state.types or not holds(state, principal, Action.QUENCH, type_name):
            return None
        if self._known[0] is not state:
            self._known = state, {}
        known = self._known[1]
        if type_name not in known:
            known[type_name] = bool(await self._run(wanted, state, type_name))
        return known[type_name]

    async def watch(self, principal: str, types: Iterable[str]) -> AsyncIterator[tuple[str, bool]]:
        """What is wanted now of each type that the principal advertises and may know of, then every change of it."""
        reported: dict[str, bool] = {}
        names = list(dict.fromkeys(types))
        while True:
            version = self._follower.state.version
            for name in names:
                if not any((principal, above) in self._follower.state.advertisements for above in self._line(name)):
                    reported.pop(name, None)
                    continue
                now = await self.wanted(principal, name)
                if now is None:
                    reported.pop(name, None)
                elif reported.get(name) is not now:
                    reported[name] = now
                    yield name, now
            await self._follower.wait_for_change(None, version)
            await asyncio.sleep(EVERY if len(self._follower.state.subscriptions) > 1_000 else 0)

    def _line(self, name: str) -> tuple[str, ...]:
        types = self._follower.state.types
        return types.lineage(name) if name in types else ()
