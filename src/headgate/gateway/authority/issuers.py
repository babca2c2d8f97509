"""Revocations between domains: ours are pushed to whoever follows us, and those of other issuers are followed.

Guarantees: one process of the domain follows, whichever holds the lock; if it ends another takes over. Every list is
verified to be of the issuer that is followed, or of the key that it goes on under. A connection that fails is made
again, after a pause that grows to LONGEST_PAUSE; meanwhile the list is asked for plainly. What is heard is durable, so
that every gateway knows how long each issuer has been silent.
Whoever follows us is told of a new list at once, whichever gateway made it, and hears at least every
`authority.heartbeat` that nothing has changed. A slow follower misses nothing but what a newer list takes in: nothing
is queued for it, and one that does not read goes (`gateway.http.send_queue`). There are no more followers than
`authority.watchers`, and of one address than MAX_PER_ADDRESS.
Leaves out: what silence means, which the issuer's certificates say themselves (`trust.statement_state`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import msgspec

from headgate.authority.statement_state import StatementState
from headgate.gateway.http.send_queue import Streamed, first_of, side_by_side
from headgate.model.authority import RevocationList
from headgate.model.errors import BadStatement, StaleList, TooBusy, TooMany
from headgate.model.limits import MAX_CERTIFICATE_FILE_BYTES, MAX_LIST_BYTES
from headgate.node.config import IssuerSettings
from headgate.node.logs import Log, fault
from headgate.node.processes import Lock
from headgate.protocol import messages as wire
from headgate.trust.certificates import REVOCATIONS
from headgate.trust.tls import client_context

if TYPE_CHECKING:
    from headgate.gateway.runtime import Gateway

LOCK: Final = "issuers.lock"
LEAD_SECONDS: Final = 2.0  # how often a gateway looks whether it is to follow

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds before a connection is made again: twice as long every time, until something is heard."""

CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 120.0  # how long a stream may say nothing before it is given up

_STREAM: Final = "/v1/revocations/stream"
_LIST: Final = "/v1/revocations"
log = Log("issuers")


class Issuers:
    """Follows the issuers of the settings, while this process is the one to do so."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._authority, self._follower, self._register = gateway.authority, gateway.follower, gateway.register
        self._lock = Lock(gateway.files.data / LOCK, "the follower of issuers")

    async def run(self) -> None:
        """Follow, or wait for whoever does to end."""
        async with self._lock.when_free(LEAD_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._own())
            for one in self._gateway.config.issuers:
                tasks.create_task(self._follow(one))

    async def _own(self) -> None:
        """The domain's own sign of life, for those of its certificates that are used at home."""
        while True:
            try:
                await self._gateway.run_blocking(self._hear_own)
            except Exception as error:  # noqa: BLE001 - the next time may work
                log.warning("not-heard", **fault(error, issuer="own"))
            await asyncio.sleep(self._gateway.config.authority.heartbeat / 2)

    def _hear_own(self) -> None:
        """What was revoked here and did not come into force, as whoever took it back died, comes into force now."""
        if self._authority.own in self._follower.state.lists or self._register.number() > 0:
            self._authority.hear(self._authority.own_list(self._gateway.clock()), followed=True)

    async def _follow(self, issuer: IssuerSettings) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                async with _client(issuer, self._gateway.files.directory) as client:
                    try:
                        async for text in _streamed(client):
                            await self.hear(issuer, text)
                            pause = FIRST_PAUSE
                    except (httpx.HTTPError, BadStatement) as error:
                        log.info("stream-ended", **fault(error, issuer=issuer.name))
                    await self.hear(issuer, await _asked(client))
                    pause = FIRST_PAUSE
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                log.warning("not-heard", **fault(error, issuer=issuer.name))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - so that not all come at once
            pause = min(LONGEST_PAUSE, pause * 2)

    async def hear(self, issuer: IssuerSettings, text: str) -> None:
        """Take up what an issuer says."""
        news = await self._gateway.run_blocking(self._take, issuer, text)
        if news:
            self._gateway.metrics.list_heard()
            log.info("list-heard", issuer=issuer.name)

    def _take(self, issuer: IssuerSettings, text: str) -> bool:
        revocations = REVOCATIONS.verify(text, now=self._gateway.clock())
        if not StatementState(self._follower.state).same(revocations.issuer, issuer.key):
            raise BadStatement(f"the list is of `{revocations.issuer}`, not of `{issuer.name}`", reason="wrong-issuer")
        last = self._register.heard(revocations.issuer)
        if last is not None and revocations.number < last.list.number:
            raise StaleList(f"list {revocations.number} of `{revocations.issuer}` is older than one that was heard")
        self._register.hear(revocations, text, self._gateway.clock())
        return self._authority.hear(revocations, followed=True)

    def silences(self, now: datetime) -> dict[str, float | None]:
        """For how many seconds each issuer that is followed has not been heard; None if it never was."""
        issuers, same = self._gateway.config.issuers, StatementState(self._follower.state).same
        heard = self._register.heard_at() if issuers else {}
        seconds: dict[str, float | None] = {}
        for one in issuers:
            last = max((at for key, at in heard.items() if same(key, one.key)), default=None)
            seconds[one.name] = None if last is None else max(0.0, (now - last).total_seconds())
        return seconds


def ask(issuer: IssuerSettings, directory: Path, now: datetime) -> RevocationList:
    """An issuer's list, asked for once and verified: what `headgate doctor` looks at."""

    async def answered() -> str:
        async with _client(issuer, directory, CONNECT_SECONDS) as client:
            return await _asked(client)

    return REVOCATIONS.verify(asyncio.run(answered()), issuer=issuer.key, now=now)


# -- reading --------------------------------------------------------------------------------------------------


def _client(issuer: IssuerSettings, directory: Path, read_seconds: float = READ_SECONDS) -> httpx.AsyncClient:
    pinned = None
    if issuer.ca is not None:
        with (directory / issuer.ca).open("rb") as file:
            pinned = file.read(MAX_CERTIFICATE_FILE_BYTES + 1)
    return httpx.AsyncClient(
        base_url=issuer.url,
        verify=client_context(pinned) if issuer.url.startswith("https") else False,
        timeout=httpx.Timeout(CONNECT_SECONDS, read=read_seconds),
        trust_env=False,
        follow_redirects=False,
    )


async def _streamed(client: httpx.AsyncClient) -> Any:
    """The lists of a stream of server-sent events, one after another."""
    async with client.stream("GET", _STREAM, headers={"accept": wire.EVENT_STREAM}) as answered:
        answered.raise_for_status()
        pending, data = b"", b""
        async for piece in answered.aiter_raw():
            pending += piece
            *lines, pending = pending.split(b"\n")
            for line in lines:
                if line.startswith(b"data: "):
                    data = line[len(b"data: ") :].rstrip(b"\r")
                elif not line.rstrip(b"\r") and data:
                    yield data.decode("ascii", "replace")
                    data = b""
            if len(pending) > MAX_LIST_BYTES + 1_000:
                raise BadStatement("the stream has a line longer than MAX_LIST_BYTES", reason="too-large")


async def _asked(client: httpx.AsyncClient) -> str:
    """The list, asked for once."""
    async with client.stream("GET", _LIST) as answered:
        answered.raise_for_status()
        body = b""
        async for piece in answered.aiter_raw():
            body += piece
            if len(body) > MAX_LIST_BYTES + 1_000:
                raise BadStatement("the list is longer than MAX_LIST_BYTES", reason="too-large")
    try:
        return msgspec.json.decode(body, type=wire.ListAnswer).list
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadStatement("what was answered is no revocation list", reason="malformed") from error


LOOK_SECONDS: Final = 0.1  # how often it is looked whether another gateway has made a new list
MAX_PER_ADDRESS: Final = 16  # followers from one address

bulletin_log = Log("bulletin")


class Bulletin:
    """The list of a domain, for those who follow it at one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._number, self._news = -1, asyncio.Event()
        self.watchers: Counter[str] = Counter()

    async def watch(self) -> None:
        """Look for new lists, as long as anybody follows."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self.watchers:
                continue
            try:
                number = await self._gateway.run_blocking(self._gateway.service.number)
            except Exception as error:  # noqa: BLE001 - the next look may work
                bulletin_log.warning("list-not-read", **fault(error))
                continue
            if number != self._number:
                self._number, self._news = number, _woken(self._news)

    def follow(self, address: str) -> Streamed:
        """The list as server-sent events, until the client or the gateway goes."""
        if self._gateway.closing.is_set():
            raise TooBusy("the gateway is shutting down", remedy="follow at another one")
        if self.watchers.total() >= self._gateway.config.authority.watchers:
            raise TooBusy("as many follow here as may", remedy="ask for the list now and then, or try another gateway")
        if self.watchers[address] >= MAX_PER_ADDRESS:
            raise TooMany(f"{MAX_PER_ADDRESS} follow from your address already", remedy="follow once, and pass it on")
        self.watchers[address] += 1
        return Streamed(
            self._lines(), self._gateway.closing, media=wire.EVENT_STREAM, left=lambda: self._leave(address)
        )

    def _leave(self, address: str) -> None:
        """One has gone."""
        self.watchers[address] -= 1
        if self.watchers[address] <= 0:
            del self.watchers[address]

    async def _lines(self) -> AsyncIterator[bytes]:
        """Each list as an event: at once, when it changes, and when it is time for a sign of life."""
        yield b": open\n\n"
        closing, heartbeat = self._gateway.closing, self._gateway.config.authority.heartbeat
        while not closing.is_set():
            news = self._news
            number, text = await self._gateway.run_blocking(self._gateway.service.signed_list)
            yield f"event: list\nid: {number}\ndata: {text}\n\n".encode()
            async with side_by_side(closing.wait(), news.wait()) as waiting:
                await first_of(waiting, heartbeat)


def _woken(news: asyncio.Event) -> asyncio.Event:
    news.set()
    return asyncio.Event()
