"""The follower of a node: `python -m headgate.gateway.roles.process DIR`.

Guarantees: one for each domain. It follows every peer of the ledger for as long as it is one, each by itself: one that
cannot be reached keeps nobody waiting. It says `ready` on standard output once it looks at the ledger. If it ends
nothing is believed for longer than it would be: the gateways notice silence themselves.
It is a process of its own, since it is a client of other domains, which gateways are not, and since one that waits for
others must not slow down those who serve.
Leaves out: following (`following`), and watching over this process (`node.processes`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from headgate.client.aio import Client, connect
from headgate.client.gateways import Patience
from headgate.gateway.roles.following import Following, Home
from headgate.model.errors import BadConfig, HeadgateError
from headgate.model.limits import MAX_PEERS
from headgate.model.roles import Peer
from headgate.node.config import Config, Files
from headgate.node.domain import Domain
from headgate.node.domain import Follower as Ledger
from headgate.node.logs import Log, fault, start_logging
from headgate.node.peers import Peers
from headgate.node.processes import Lock, announce, leave_within, run_part
from headgate.trust.keys import PrivateKey

LOCK: Final = "follower.lock"
LOOK_SECONDS: Final = 0.1  # how often it is looked whether there are other peers
STOP_SECONDS: Final = 5.0  # how long stopping may take before the process is ended by force

HASTE: Final = Patience(seconds=5.0, first=0.05, most=1.0)
"""How long one connection is mended before another is made, by which everything is read again."""

log = Log("follower")


class Followers:
    """Follows every peer of the ledger."""

    def __init__(self, home: Home, key: PrivateKey, files: Files) -> None:
        self._home = home
        self._key = key
        self._files = files
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop."""
        try:
            while not stop.is_set():
                try:
                    self._look((await asyncio.to_thread(self._home.state)).roles.peers.values())
                except HeadgateError as error:
                    log.warning("ledger-not-read", **fault(error))
                try:
                    await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
                except TimeoutError:
                    continue
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _look(self, peers: Iterable[Peer]) -> None:
        """Follow those that are peers now; one whose task has ended is no peer any longer, or is another."""
        self._tasks = {name: task for name, task in self._tasks.items() if not task.done()}
        for peer in peers:
            if peer.name not in self._tasks and peer.url and len(self._tasks) < MAX_PEERS:
                following = Following(peer, self._home, self.connect)
                self._tasks[peer.name] = asyncio.create_task(following.run(), name=f"follow {peer.name}")
                log.info("follows", issuer=peer.name)

    def connect(self, peer: Peer) -> Client:
        """A client of a peer's domain, by its key, as this domain's own principal there."""
        pinned = self._files.peers / f"{quote(peer.name, safe=' ')}.crt"
        return connect(
            peer.url.split(),
            self._key,
            broker=peer.key,
            certificate=pinned if pinned.is_file() else None,
            requests=HASTE,
            sockets=HASTE,
        )


def open_home(directory: Path, settings: Config) -> Home:
    """The domain of a directory, as its follower sees it."""
    data = Files(directory).data
    if not data.is_dir():
        raise BadConfig(f"`{directory}` has no `{data.name}`", remedy="`headgate init DIR` makes a domain")
    domain = Domain.open(data)
    return Home(settings.domain.name, domain, Ledger(domain), Peers(data / Peers.FILE))


async def _work(home: Home, key: PrivateKey, files: Files) -> None:
    stop = asyncio.Event()

    def asked() -> None:
        leave_within(STOP_SECONDS)
        stop.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, asked)
    announce("ready", pid=os.getpid())
    await Followers(home, key, files).run(stop)


def work(directory: Path, override: dict[str, str]) -> int:
    """Follow the peers of a domain until told to stop."""
    settings = Config.load(directory, os.environ, override)
    start_logging(settings.log.level, settings.log.format)
    files = Files(directory)
    key = PrivateKey.load(files.broker_key)
    home = open_home(directory, settings)
    try:
        with Lock(files.data / LOCK, "the follower"):
            log.info("starting", pid=os.getpid())
            asyncio.run(_work(home, key, files))
    finally:
        home.close()
    log.info("stopped")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The process."""
    follow = "headgate.gateway.roles.process", "Follow other domains' services."
    return run_part(log, *follow, lambda given: work(given.directory, given.settings), arguments)


if __name__ == "__main__":
    sys.exit(main())
