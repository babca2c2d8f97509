"""A domain in a directory, with real gateways on loopback, in an event loop on a thread of this process.

Guarantees: a gateway is started when its stream is first written to, and everything is stopped in `close`. Clients hold
their keys and prove them; each sends where the story says that it is, which the gateways believe as they believe a
proxy. The clock is the story's; `at` gives the time of one event alone.
Leaves out: TLS, which loopback does without, and the pipeline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from headgate.client import aio
from headgate.client.sync import LoopThread
from headgate.gateway.http.app import create_app
from headgate.gateway.publishing.deriving import Deriving
from headgate.gateway.runtime import Gateway
from headgate.gateway.serve import Server, server
from headgate.model.errors import HeadgateError
from headgate.model.rights import Subscription
from headgate.model.values import EPOCH
from headgate.node.config import Config, Files, example
from headgate.node.domain import Domain
from headgate.node.logs import ROOT, AccessLog, Application
from headgate.node.processes import listen
from headgate.trust import positions
from headgate.trust.keys import PrivateKey

T = TypeVar("T")

HOST: Final = "127.0.0.1"
PATIENCE: Final = 120.0
"""Seconds within which everything that was decided must come."""
LOOK_SECONDS: Final = 0.01
"""How often it is looked whether a gateway has done what it does by itself."""
MAIN: Final = "main"
"""The stream of the gateway that everything but events of other streams is asked of."""
NOWHERE: Final = "unknown"
"""Where a client is of whom the story says nothing: no address, so that `@origin` is null."""
_SETTINGS: Final[dict[str, str | int | bool]] = {
    "domain.name": "story",
    "gateway.host": HOST,
    "gateway.tls": False,
    "gateway.session": "1d",
    "gateway.proxies": f"{HOST}/32",
    "limits.versions_per_minute": 1_000_000,
    "limits.refused_per_minute": "10GB",
    "roles.requests": 1_000_000,
    "times.promise": "heartbeats",
}
"""The clock of a story may stand, so that all of it is one minute."""


@dataclass(slots=True)
class StoryClock:
    """The clock of a node in a story."""

    now: datetime = EPOCH
    at: datetime | None = None
    """The time of the event that is being published, where the story gives it one."""

    def read(self) -> datetime:
        """What the clock says."""
        return self.now

    def stamp(self) -> datetime:
        """The time that an event is given."""
        return self.now if self.at is None else self.at


class ServedNode:
    """The domain, its gateways, and the clients of its principals."""

    def __init__(self, directory: Path, administrator: str, main: str = MAIN, database: str | None = None) -> None:
        self._main = main
        self.clock = StoryClock()
        self.files = Files(directory)
        for private in (self.files.keys, self.files.data):
            private.mkdir(mode=0o700)
        self.files.config.write_text(example(_SETTINGS))
        self._config = Config.load(directory)
        broker = PrivateKey.generate()
        broker.save(self.files.broker_key)
        positions.make_key(self.files.position_key)
        self._broker = broker.public.did
        self.domain = Domain.create(self.files.data, self.clock.read, administrator=administrator, database=database)
        logging.getLogger(ROOT).addHandler(logging.NullHandler())
        self._loop = LoopThread()
        self._gateways: dict[str, tuple[Server, int]] = {}
        self._deriving: list[Deriving] = []
        self.refused: dict[str, HeadgateError] = {}
        """What was refused of what detections publish and add, by the id that it would have."""
        self._clients: dict[tuple[PrivateKey, str, str, int], aio.Client] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something in the event loop."""
        return self._loop.run(work)

    # -- gateways -----------------------------------------------------------------------------------------------

    def url(self, stream: str | None = None) -> str:
        """Where the gateway of a stream is, or the main one; it is started if it is not running."""
        stream = stream or self._main
        if stream not in self._gateways:
            self._gateways[stream] = self.run(self._start(stream))
        return f"http://{HOST}:{self._gateways[stream][1]}"

    async def _start(self, stream: str) -> tuple[Server, int]:
        listener = listen(HOST, 0)
        port = int(listener.getsockname()[1])
        gateway = Gateway.open(self._config, self.files, stream, port, self.clock.read, self.clock.stamp)
        gateway.deriving.refused = self._refused
        self._deriving.append(gateway.deriving)
        app = AccessLog(cast("Application", create_app(gateway)), gateway.metrics.request)
        running = server(app, self._config, None, gateway.metrics, gateway.closing.set)
        running.config.load()
        running.lifespan = running.config.lifespan_class(running.config)
        try:
            await running.startup([listener])
        except SystemExit:  # the end of a process, and there is none here
            raise app.failed or RuntimeError(f"the gateway `{stream}` did not start") from None
        return running, port

    async def derived(self) -> None:
        """Wait until whichever gateway derives has dealt with all that was signalled, and promised what follows."""
        before = self._rounds()
        async with asyncio.timeout(PATIENCE):
            while self._rounds() < before + 3:  # one may be under way, and what the next sees the one after promises
                await asyncio.sleep(LOOK_SECONDS)

    def _rounds(self) -> int:
        return sum(deriving.rounds for deriving in self._deriving)

    def _refused(self, _one: Subscription, id: str, why: HeadgateError) -> None:
        self.refused[id] = why

    # -- clients ------------------------------------------------------------------------------------------------

    def client(
        self, key: PrivateKey, origin: str | None = None, stream: str | None = None, number: int = 0
    ) -> aio.Client:
        """A client with a session, or why there can be none; the same for the same key, place, gateway and number."""
        known = key, origin or NOWHERE, stream or self._main, number
        if known not in self._clients:
            self._clients[known] = self.run(_opened(self._dial(key, origin, stream)))
        return self._clients[known]

    @contextmanager
    def showing(self, key: PrivateKey, statements: Sequence[str]) -> Iterator[aio.Client]:
        """A client that shows statements as it opens its session."""
        made = self.run(_opened(self._dial(key, None, None, statements)))
        try:
            yield made
        finally:
            self.run(made.close())

    def _dial(
        self, key: PrivateKey, origin: str | None, stream: str | None, statements: Sequence[str] = ()
    ) -> aio.Client:
        return aio.connect(
            self.url(stream),
            key,
            broker=self._broker,
            present=statements,
            headers={"x-forwarded-for": origin or NOWHERE},
        )

    def close(self) -> None:
        """Stop everything."""
        for client in self._clients.values():
            self.run(client.close(end_session=False))
        for running, _ in self._gateways.values():
            self.run(running.shutdown())
        self._loop.close()
        self.domain.close()


async def _opened(client: aio.Client) -> aio.Client:
    return await client.open()
