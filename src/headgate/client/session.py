"""A session with a domain, kept alive, requests within it, and the short statements that are fetched by it.

Guarantees: the token goes only to gateways whose broker has proven itself; it is renewed before it expires, by the
gateways' clock, and once more if a gateway no longer takes it. A request that may be repeated is sent again, to the
next gateway if need be, until it is answered or the time is up and every gateway was asked; one that may not be only
if it never arrived. Certificates come with the chain that leads to their issuer. A guest proves its key to the host
each time, and the host's broker has proven itself before it is told anything.
Leaves out: what requests mean (`aio`), and the WebSocket (`channel`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import httpx

from headgate.client.errors import ClientClosed, Unreachable
from headgate.client.gateways import (
    ANYONE,
    Answered,
    ExpectedGateway,
    GatewayLink,
    Patience,
    Reply,
    Ring,
    Timing,
    Tries,
    Trouble,
)
from headgate.client.wallet import Wallet
from headgate.model.errors import BadDefinition, ConnectDenied, HeadgateError, NotFound, TypeMismatch
from headgate.model.values import brief
from headgate.protocol import messages as wire
from headgate.trust.keys import PrivateKey

A = TypeVar("A")

RENEW_AT: Final = 0.8  # the part of a session's life after which it is renewed
MAX_RETRY_AFTER: Final = 10.0  # the longest pause, in seconds, that a gateway may ask for
_NOT_NOW: Final = frozenset({502, 503, 504})
_UNKNOWN_OUTCOME: Final = frozenset({502, 504})


class ClientSession:
    """One principal's session, over all gateways of a domain."""

    def __init__(
        self,
        ring: Ring,
        key: PrivateKey,
        patience: Patience,
        timing: Timing,
        wallet: Wallet | None = None,
        expected: ExpectedGateway = ANYONE,
    ) -> None:
        self.ring = ring
        self.key = key
        self.wallet = Wallet((), timing) if wallet is None else wallet
        self.expected = expected
        self.patience = patience
        self.timing = timing
        self.principal = ""
        self._token = ""
        self._renew = -math.inf
        self._lock = asyncio.Lock()
        self._closed = False

    # -- the token ---------------------------------------------------------------------------------------------

    async def token(self, gateway: GatewayLink) -> str:
        """A token that may be shown to this gateway: it is fresh, and the gateway's broker has proven itself."""
        if self._closed:
            raise ClientClosed("the client is closed", remedy="connect again")
        async with self._lock:
            if not self._token or self.timing.clock() >= self._renew:
                await self._handshake(gateway)
            elif not gateway.is_proven:
                await self.challenge(gateway)
            return self._token

    async def challenge(self, gateway: GatewayLink) -> Answered:
        """Let a gateway's broker prove itself, and answer its challenge."""
        return await gateway.challenge(self.key, self.ring.broker, self.expected)

    async def _handshake(self, gateway: GatewayLink) -> None:
        await self.wallet.fetch(gateway, early=True)
        began = self.timing.clock()
        answered = await self.challenge(gateway)
        body = wire.SessionRequest(
            self.key.public.did,
            answered.client_nonce,
            answered.nonce,
            answered.signature,
            self.wallet.shown(answered.now),
        )
        reply = await gateway.post("/v1/sessions", body)
        if reply.status in _NOT_NOW:
            raise Trouble(reply.where, reply.problem().message, sent=True)
        if not reply.is_good:
            raise reply.problem()
        session = reply.read(wire.SessionAnswer)
        # Without an expected broker the first that proves itself is the one, for all gateways from now on.
        self.ring.broker = answered.broker
        self.principal = session.principal
        self._token = session.token
        # The challenge says what time it is there, so a wrong clock here does no harm.
        life = session.expires - answered.now
        self._renew = began + RENEW_AT * life.total_seconds()

    def refuse(self, token: str) -> None:
        """A gateway no longer takes this token."""
        if token == self._token:
            self._token = ""

    def expire(self) -> None:
        """The session ended; the next request begins another."""
        self._token = ""

    # -- requests ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Make sure that there is a session."""
        await self.request("GET", "/v1/sessions/current")

    async def ask(self, kind: type[A], method: str, *path: str, **request: Any) -> A:
        """A request and its answer as a type."""
        return (await self.request(method, *path, **request)).read(kind)

    async def request(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        content_type: str = wire.JSON,
        params: Mapping[str, str] | None = None,
        repeat: bool = True,
        wait: float = 0.0,
    ) -> Reply:
        """A request and its answer. All of the path but its first part is quoted; what is None is not sent."""
        try:
            url = "/".join((path[0], *(quote(part, safe="") for part in path[1:])))
            if body is not None:
                content = wire.encode({name: value for name, value in body.items() if value is not None})
        except UnicodeEncodeError:
            raise TypeMismatch(
                "a text has half a character in it", remedy="send Unicode without lone surrogates"
            ) from None
        tries = Tries(self.patience, self.timing)
        tried: list[str] = []
        renewed = False
        while True:
            gateway = self.ring.current
            pause = 0.0
            last: HeadgateError | None = None
            try:
                token = await self.token(gateway)
                headers = {"authorization": f"Bearer {token}"}
                if content is not None:
                    headers["content-type"] = content_type
                reply = await gateway.send(method, url, content=content, headers=headers, params=params, wait=wait)
            except Trouble as trouble:
                tried.append(str(trouble))
                if trouble.sent and not repeat:
                    raise Unreachable(
                        "the request was perhaps carried out, and got no answer",
                        tried,
                        remedy="look whether it was before sending it again",
                    ) from None
            else:
                if reply.is_good:
                    return reply
                last = reply.problem()
                if not renewed and self.may_come_back(reply.status, last):
                    renewed = True
                    self.refuse(token)
                    continue
                if reply.status not in _NOT_NOW or (reply.status in _UNKNOWN_OUTCOME and not repeat):
                    raise last
                tried.append(f"{reply.where}: {last.message}")
                pause = _retry_after(reply)
            self.ring.leave(gateway)
            # One that hangs must not use up the time of those that were not asked at all.
            if not await tries.again(pause) and len(tried) >= len(self.ring.gateways):
                raise last or Unreachable("no gateway answered", tried)

    def may_come_back(self, status: int, why: HeadgateError) -> bool:
        """Could another session do better? One that ended, or whose right to connect rested on what has ended."""
        if status == httpx.codes.UNAUTHORIZED:
            return True
        if isinstance(why, ConnectDenied) and self.wallet:
            self.wallet.spoil()
            return True
        return False

    async def close(self, *, end: bool = True) -> None:
        """End the session, or leave it to lapse, and let go of the connections."""
        if self._closed:
            return
        if end and self._token and self.ring.current.is_proven:
            with suppress(Trouble, HeadgateError):  # it ends by itself a little later
                await self.ring.current.send(
                    "DELETE", "/v1/sessions/current", headers={"authorization": f"Bearer {self._token}"}
                )
        self._closed = True
        self._token = ""
        await self.ring.close()


def listed(given: Sequence[str] | None) -> list[str] | None:
    """Names as they are sent, if any were given."""
    return None if given is None else list(given)


def _retry_after(reply: Reply) -> float:
    try:
        asked = float(reply.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return min(max(asked, 0.0), MAX_RETRY_AFTER) if math.isfinite(asked) else 0.0


What: TypeAlias = Literal["certificates", "identity"]
KINDS: Final = ("certificates", "identity")


class Issuer(Protocol):
    """A client of a domain that issues statements to it."""

    async def obtain(self, *what: What) -> list[str]:
        """Statements that the domain's service issues to this principal, with the chain that leads to it."""


@dataclass(frozen=True, slots=True)
class Issued:
    """What a domain's service issues to one of its clients, to be shown elsewhere and kept fresh."""

    by: Issuer
    what: tuple[What, ...] = ("certificates",)

    def __post_init__(self) -> None:
        check_kinds(self.what)

    async def fetch(self, gateway: GatewayLink) -> Sequence[str]:  # noqa: ARG002 - the issuer has gateways of its own
        """Statements that are good from now on."""
        return await self.by.obtain(*self.what)


def check_kinds(what: Sequence[str]) -> None:
    """Refuse to ask for what no service issues."""
    for one in what:
        if one not in KINDS:
            raise BadDefinition(f"`{brief(one)}` is nothing that is issued", remedy='"certificates" or "identity"')


async def obtained(session: ClientSession, what: Sequence[str]) -> list[str]:
    """What the service of this session's domain issues."""
    check_kinds(what)
    texts: list[str] = []
    if "certificates" in what:
        told = await session.ask(wire.CertificatesAnswer, "POST", "/v1/certificates", body={})
        texts += [*told.statements, *(one.statement for one in told.certificates if one.statement is not None)]
    if "identity" in what:
        texts.append(_text(await session.ask(wire.IssuedAnswer, "POST", "/v1/identity", body={})))
    return texts


async def as_guest(session: ClientSession, home: Issuer, gateway: GatewayLink) -> list[str]:
    """A host's statement about a member of the home domain, who proves its key to the host."""
    (statement,) = await home.obtain("identity")
    answered = await session.challenge(gateway)
    did = session.key.public.did
    body = wire.GuestRequest(statement, did, answered.client_nonce, answered.nonce, answered.signature)
    reply = await gateway.post("/v1/identity/guest", body)
    if not reply.is_good:
        raise reply.problem()
    return [_text(reply.read(wire.IssuedAnswer))]


def _text(told: wire.IssuedAnswer) -> str:
    if told.statement is None:
        raise NotFound(f"the service did not hand out the statement `{brief(told.id)}`")
    return told.statement
