"""The ledger as one gateway knows it, brought up to date when another process commits.

Guarantees: `state` only goes forward. Before a version shows here every stream has recorded its starting point (D7):
where whoever committed it died in between, this completes it. Subscriptions have the numbers that the pipeline gives
them. May be used from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.node.domain import Domain
from headgate.pipeline.log.codec import AttributeSlot, layouts
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.spark.ledger_tail import open_tail

T = TypeVar("T")


class Follower:
    """Follows the ledger of a domain."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._tail = open_tail(str(domain.paths.ledger))
        self._log = EventLog.open(domain.paths.log, read_only=True)
        self._lock = threading.Lock()
        self._state = State(administrator=domain.ledger.administrator)
        self._numbers: dict[str, int] = {}
        self._opened = 0
        self._streams: dict[str, int] = {}
        self._places: tuple[Catalog, Mapping[str, Mapping[str, AttributeSlot]]] = (Catalog(), {})
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.refresh()

    def close(self) -> None:
        """Let go of the files."""
        self._tail.close()
        self._log.close()

    @property
    def state(self) -> State:
        """The newest state known here."""
        return self._state

    def behind(self) -> bool:
        """Is there a newer version? Cheap enough to ask often."""
        return self._tail.version != self._state.version

    def trimmed(self) -> dict[str, int]:
        """How far retention has taken each stream of the log."""
        with self._lock:
            return self._log.trimmed()

    def refresh(self) -> bool:
        """Look for a newer version; true if there was one."""
        with self._lock:
            if self._tail.version == self._state.version:
                return False
            state = self._domain.ledger.state()
            self._domain.acknowledge(state.version)
            changes = self._domain.ledger.subscriptions(self._state.version, state.version)
            numbers = dict(self._numbers)
            begun: dict[tuple[str, int], int] = {}
            for new in changes.opened:
                begun[new.id, new.first] = self._opened
                self._opened += 1
            for id, first, _ in changes.closed:
                if begun.pop((id, first), None) is None:
                    numbers.pop(id, None)
            numbers.update({id: number for (id, _), number in begun.items()})
            self._numbers, self._state = numbers, state
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            loop.call_soon_threadsafe(_wake, future)
        return True

    async def wait_for_change(self, timeout: float | None, after: int | None = None) -> bool:
        """Wait until there is a newer version than `after`, or than now; false after the time is up."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        entry = (loop, future)
        with self._lock:
            if after is not None and self._state.version > after:
                return True
            self._waiting.append(entry)
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return False
        finally:
            with self._lock:
                if entry in self._waiting:
                    self._waiting.remove(entry)
        return True

    # -- subscriptions and streams ----------------------------------------------------------------------------

    def subscription(self, id: str) -> Subscription | None:
        """The subscription in force by this name."""
        return self._state.subscriptions.get(id)

    def number(self, id: str) -> int:
        """The number of the subscription in force by this name, in order of opening."""
        return self._numbers[id]

    @property
    def places(self) -> Mapping[str, Mapping[str, AttributeSlot]]:
        """Where the attributes of every type sit."""
        types = self._state.types
        if self._places[0] is not types:
            self._places = types, layouts(types)
        return self._places[1]

    def starts(self, version: int) -> dict[str, int]:
        """The first event of each stream that a version, or a later one, applies to."""
        with self._lock:
            return self._log.starts_at(version)

    def stream_number(self, stream: str) -> int:
        """The number that positions have for a stream; it never changes."""
        return self._stream(lambda known: known.get(stream))

    def stream_name(self, number: int) -> str | None:
        """The stream of a number, if there is one."""
        try:
            return self._stream(lambda known: next((s for s, n in known.items() if n == number), None))
        except KeyError:
            return None

    def _stream(self, find: Callable[[Mapping[str, int]], T | None]) -> T:
        streams = find(self._streams)
        if streams is None:
            with self._lock:
                self._streams = self._log.numbers()
            streams = find(self._streams)
        if streams is None:
            raise KeyError("no such stream")
        return streams


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
