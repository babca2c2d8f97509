"""Pushing the domain's revocation list to whoever follows it: every new one, and the current one now and then.

Guarantees: whoever follows is told of a new list at once, whichever gateway made it, and hears at least every
`authority.heartbeat` that nothing has changed. A slow follower misses nothing but what a newer list takes in: nothing
is queued for it, and one that does not read goes (`gateway.http.send_queue`). There are no more followers than
`authority.watchers`, and of one address than MAX_PER_ADDRESS.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from headgate.commands.issuing import Service
from headgate.gateway.http.send_queue import Streamed
from headgate.model.errors import TooBusy, TooMany
from headgate.node.logs import Log, fault
from headgate.protocol import messages as wire

LOOK_SECONDS: Final = 0.1
"""How often it is looked whether another gateway has made a new list."""

MAX_PER_ADDRESS: Final = 16
"""Followers from one address."""

log = Log("bulletin")


class Bulletin:
    """The list of a domain, for those who follow it at one gateway."""

    def __init__(
        self,
        service: Service,
        run_blocking: Callable[..., Awaitable[Any]],
        closing: asyncio.Event,
        *,
        most: int,
        heartbeat: float,
    ) -> None:
        self.heartbeat = heartbeat
        self._service = service
        self._run = run_blocking
        self._closing = closing
        self._most = most
        self._number = -1
        self._news = asyncio.Event()
        self._watchers: Counter[str] = Counter()

    async def watch(self) -> None:
        """Look for new lists, as long as anybody follows."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._watchers:
                continue
            try:
                number = await self._run(self._service.number)
            except Exception as error:  # noqa: BLE001 - the next look may work
                log.warning("list-not-read", **fault(error))
                continue
            if number != self._number:
                self._number, self._news = number, _woken(self._news)

    def follow(self, address: str) -> Streamed:
        """The list as server-sent events, until the client or the gateway goes."""
        if self._closing.is_set():
            raise TooBusy("the gateway is shutting down", remedy="follow at another one")
        if self._watchers.total() >= self._most:
            raise TooBusy("as many follow here as may", remedy="ask for the list now and then, or try another gateway")
        if self._watchers[address] >= MAX_PER_ADDRESS:
            raise TooMany(f"{MAX_PER_ADDRESS} follow from your address already", remedy="follow once, and pass it on")
        self._watchers[address] += 1
        return Streamed(self._lines(), self._closing, media=wire.EVENT_STREAM, left=lambda: self._leave(address))

    def _leave(self, address: str) -> None:
        """One has gone."""
        self._watchers[address] -= 1
        if self._watchers[address] <= 0:
            del self._watchers[address]

    async def _lines(self) -> AsyncIterator[bytes]:
        """Each list as an event: at once, when it changes, and when it is time for a sign of life."""
        yield b": open\n\n"
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while not closing.done():
                news = self._news
                number, text = await self._run(self._service.signed_list)
                yield f"event: list\nid: {number}\ndata: {text}\n\n".encode()
                waiting = asyncio.ensure_future(news.wait())
                await asyncio.wait({closing, waiting}, timeout=self.heartbeat, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        finally:
            closing.cancel()


def _woken(news: asyncio.Event) -> asyncio.Event:
    news.set()
    return asyncio.Event()
