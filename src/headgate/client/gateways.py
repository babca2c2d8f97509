"""The gateways that a client may use, one request to one of them, and how long they are tried.

Guarantees: nothing but a request for a challenge is sent over a connection whose certificate the broker has not proven
to be its own: each later TLS handshake must show a certificate for which the broker's proof was verified, or it ends
there. Redirects are not followed, the environment's proxies are not used, and answers are bounded in size. Plaintext is
used to this machine only.
With a coordinator named, a broker passes only if the statements it shows lead from there to its key and may be
delegated on, which a member's may not (`trust.vouching`); with a rule named, only if a provider that the client
believes attests attributes of the broker for which the rule is true (Guard IV.B). Unknown is not true. Every refusal is
`BrokerNotTrusted`, before anything is said to the broker.
Pauses between tries grow exponentially up to a bound, each with a random part, and their time is bounded.
Leaves out: what is repeated (`session`), what requests mean (`aio`), and revocation of what a broker shows, except by
the lists that it shows itself: an issuer that wants more gives its certificates a `freshness`, and then a broker
without a recent list of that issuer is not believed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from headgate.client.errors import refusal, unexpected
from headgate.decide.check import check_requirement, match
from headgate.lang import parse_condition, render_condition
from headgate.model.authority import Identity
from headgate.model.errors import BadDefinition, BadStatement, BrokerNotTrusted, HeadgateError
from headgate.model.expressions import Condition
from headgate.model.limits import CHALLENGE_SECONDS
from headgate.model.values import brief
from headgate.protocol import messages as wire
from headgate.trust.handshake import Challenge, new_nonce, plaintext_binding, prove
from headgate.trust.identities import CROSSING, IDENTITY, verify_server
from headgate.trust.keys import PrivateKey, PublicKey
from headgate.trust.presented import MAX_SHOWN, check_broker, open_presented
from headgate.trust.statements import Verifier, said_kind
from headgate.trust.tls import client_context, fingerprint

A = TypeVar("A")

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0  # how long a gateway may take to answer, besides what it was asked to wait
MAX_ANSWER_BYTES: Final = 64 * 2**20  # bytes of one answer
MAX_GATEWAYS: Final = 100  # addresses that one client is given
_MAX_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True)
class Patience:
    """For how many seconds something is tried again, and the first and longest pause between two tries."""

    seconds: float = 30.0
    first: float = 0.05
    most: float = 2.0


@dataclass(frozen=True, slots=True)
class Timing:
    """The clock, the sleep and the dice of a client."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    dice: Callable[[], float] = random.random


class Tries:
    """One run of tries."""

    def __init__(self, patience: Patience, timing: Timing) -> None:
        self._patience = patience
        self._timing = timing
        self._until = timing.clock() + patience.seconds
        self._count = 0

    async def again(self, at_least: float = 0.0) -> bool:
        """Pause, longer than the last time; false, at once, where the time would be up."""
        longest = min(self._patience.most, self._patience.first * 2 ** min(self._count, _MAX_DOUBLINGS))
        # Half of it is random, so that many clients of one gateway do not come back together.
        pause = max(at_least, longest * (0.5 + self._timing.dice() / 2))
        self._count += 1
        if self._timing.clock() + pause >= self._until:
            return False
        await self._timing.sleep(pause)
        return True


@dataclass(frozen=True, slots=True)
class ExpectedGateway:
    """What a client asks of a gateway besides its key: the network it is of, and what is attested of it."""

    coordinator: str | None = None
    provider: str | None = None
    rule: Condition | None = None
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), compare=False)
    verifier: Verifier = field(default_factory=Verifier, compare=False)

    @classmethod
    def of(cls, coordinator: str | None, provider: str | None, expect: str | None) -> Self:
        """As a caller says it."""
        for did in (coordinator, provider):
            if did is not None:
                PublicKey.from_did(did)
        rule = None if expect is None else parse_condition(expect)
        if rule is not None:
            check_requirement(rule)
        if rule is not None and provider is None:
            raise BadDefinition(
                "nobody is named who attests what is expected", remedy="give the key of your identity provider"
            )
        return cls(coordinator, provider, rule)

    def check(self, broker: str, statements: Sequence[str]) -> None:
        """Refuse a broker that is not what is expected. The time is ours: a broker's word on it proves nothing."""
        if self.coordinator is None and self.provider is None:
            return
        if len(statements) > MAX_SHOWN:
            raise BrokerNotTrusted(f"the broker `{brief(broker)}` shows more statements than MAX_SHOWN ({MAX_SHOWN})")
        now = self.clock()
        shown = list(_for_us(statements, now, self.verifier))
        if self.coordinator is not None:
            check_broker(shown, broker=broker, coordinator=self.coordinator, now=now, verifier=self.verifier)
        if self.provider is not None:
            self._check_identity(broker, shown, now, self.provider)

    def _check_identity(self, broker: str, shown: Sequence[str], now: datetime, anchor: str) -> None:
        why = "it shows no identity statement"
        for text, crossing in _pairs(shown):
            try:
                identity = verify_server(text, crossing, anchor=anchor, audience=None, now=now, verifier=self.verifier)
            except HeadgateError as error:
                why = error.message
                continue
            if identity.subject != broker:
                why = f"it shows a statement about `{brief(identity.subject)}`"
            elif self._is_met(identity):
                return
            else:
                assert self.rule is not None
                why = f"what is attested of it does not meet `{brief(render_condition(self.rule))}`"
        raise BrokerNotTrusted(
            f"the broker `{brief(broker)}` is not who was expected: {why}",
            remedy="connect to another gateway, or ask its operator for a statement of a provider that you believe",
        )

    def _is_met(self, found: Identity) -> bool:
        return self.rule is None or match(self.rule, found.attributes) is True


ANYONE = ExpectedGateway()  # any broker that holds its key, as far as statements go


def _for_us(statements: Sequence[str], now: datetime, verifier: Verifier) -> Iterator[str]:
    """What is addressed to everyone; one that is for others says nothing to us, and one that is bad is refused."""
    for text in statements:
        try:
            open_presented([text], audience=None, now=now, verifier=verifier)
        except BadStatement as error:
            if error.reason == "wrong-audience":
                continue
        except HeadgateError:
            pass  # refused with its reason where it is judged
        yield text


def _pairs(shown: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Every identity statement, by itself and with each word of a provider on another."""
    statements: list[str] = []
    crossings: list[str | None] = [None]
    for text in shown:
        try:
            if said_kind(text) != IDENTITY.typ:
                continue
        except BadStatement:
            continue  # whatever it is, it attests nothing
        try:
            CROSSING.read(text)
        except BadStatement:
            statements.append(text)
        else:
            crossings.append(text)
    yield from ((text, crossing) for text in statements for crossing in crossings)


class Trouble(Exception):
    """A request that got no answer. It was perhaps carried out, unless it was not `sent`."""

    def __init__(self, where: str, what: str, *, sent: bool) -> None:
        super().__init__(f"{where}: {what}")
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Address:
    """Where a gateway is."""

    host: str
    port: int
    tls: bool

    @classmethod
    def parse(cls, text: str) -> Address:
        """An address such as `https://gate.example.org:8443`."""
        remedy = "write it like `https://gate.example.org:8443`"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        extra = parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username or parts.password
        if parts.scheme not in {"https", "http"} or not host or extra:
            raise BadDefinition(f"`{brief(text)}` is not a gateway's address", remedy=remedy)
        address = cls(host, port or (443 if parts.scheme == "https" else 80), parts.scheme == "https")
        if not address.tls and not address._is_here():
            raise BadDefinition(
                f"`{brief(text)}` is not on this machine, and plaintext goes no further", remedy="use `https://`"
            )
        return address

    def _is_here(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def authority(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def http(self) -> str:
        """For requests."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"

    @property
    def socket(self) -> str:
        """For the WebSocket."""
        return f"{'wss' if self.tls else 'ws'}://{self.authority}/v1/socket"


def addresses(urls: str | Sequence[str]) -> list[Address]:
    """The addresses that a client was given."""
    parsed = list(dict.fromkeys(Address.parse(url) for url in ([urls] if isinstance(urls, str) else urls)))
    if not 1 <= len(parsed) <= MAX_GATEWAYS:
        raise BadDefinition(f"a client has 1 to {MAX_GATEWAYS} gateways, not `{len(parsed)}`")
    return parsed


def decoded(kind: type[A], content: bytes | str, where: str) -> A:
    """What a gateway sent, as a type."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise unexpected(where, error) from None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a gateway answered."""

    where: str
    status: int
    content: bytes
    headers: Mapping[str, str]
    binding: str

    @property
    def is_good(self) -> bool:
        """Was the request carried out?"""
        return self.status < httpx.codes.MULTIPLE_CHOICES

    def read(self, kind: type[A]) -> A:
        """What it says."""
        return decoded(kind, self.content, self.where)

    def problem(self) -> HeadgateError:
        """The refusal that it tells of."""
        try:
            return refusal(msgspec.json.decode(self.content, type=dict[str, Any]), status=self.status)
        except msgspec.DecodeError:
            return unexpected(self.where, f"status {self.status}")


@dataclass(frozen=True, slots=True)
class Answered:
    """A challenge with our answer to it, from a broker that has proven itself."""

    client_nonce: str
    nonce: str
    signature: str
    expires: datetime
    broker: str

    @property
    def now(self) -> datetime:
        """What time it is there."""
        return self.expires - timedelta(seconds=CHALLENGE_SECONDS)


class GatewayLink:
    """One gateway: its challenge connection, and the one for all else, which the broker must have proven."""

    def __init__(self, address: Address, pinned: bytes | None, headers: Mapping[str, str] | None = None) -> None:
        self.address = address
        self.headers = dict(headers or {})
        self.proven: set[str] = set()
        self.context: ssl.SSLContext | None = None
        self._stranger = False
        plain: ssl.SSLContext | bool = False
        if address.tls:
            plain = client_context(pinned)
            self.context = client_context(pinned)
            self.context.sslobject_class = self._only_proven()
        self._first = _http(address, plain, self.headers)
        self._rest = _http(address, self.context or False, self.headers)

    def _only_proven(self) -> type[ssl.SSLObject]:
        """TLS that ends in the handshake if the certificate is not a proven one, before anything is sent."""
        gateway = self

        class Proven(ssl.SSLObject):
            def do_handshake(self) -> None:
                super().do_handshake()
                if fingerprint(self.getpeercert(True) or b"") not in gateway.proven:
                    gateway._stranger = True
                    raise ssl.SSLCertVerificationError("the broker has not proven this certificate")

        return Proven

    @property
    def is_proven(self) -> bool:
        """Has the broker proven that it serves here? Not while a new certificate has turned up."""
        return bool(self.proven) and not self._stranger

    async def challenge(self, key: PrivateKey, broker: str | None, expected: ExpectedGateway = ANYONE) -> Answered:
        """Let the broker prove itself, and answer its challenge. What is answered may be left unsent."""
        mine = new_nonce()
        reply = await self._send(self._first, "POST", "/v1/challenges", **_json(wire.ChallengeRequest(mine)))
        if reply.status not in (httpx.codes.CREATED, httpx.codes.OK):
            raise Trouble(self.address.http, f"no challenge, but status {reply.status}", sent=False)
        answer = reply.read(wire.ChallengeAnswer)
        challenge = Challenge(answer.nonce, answer.broker, answer.proof, answer.expires)
        signature = prove(key, challenge, mine, reply.binding, broker)
        expected.check(answer.broker, answer.statements)
        self.proven = {reply.binding}
        self._stranger = False
        return Answered(mine, answer.nonce, signature, answer.expires, answer.broker)

    async def send(self, method: str, path: str, *, wait: float = 0.0, **request: Any) -> Reply:
        """One request, over a connection that the broker has proven to be its own."""
        if not self.is_proven:
            raise Trouble(self.address.http, "the broker has not proven itself here", sent=False)
        return await self._send(self._rest, method, path, wait=wait, **request)

    async def post(self, path: str, body: object) -> Reply:
        """One request without a session."""
        return await self.send("POST", path, **_json(body))

    async def _send(
        self, client: httpx.AsyncClient, method: str, path: str, *, wait: float = 0.0, **request: Any
    ) -> Reply:
        timeout = httpx.Timeout(ANSWER_SECONDS + wait, connect=CONNECT_SECONDS)
        where = self.address.http
        try:
            async with client.stream(method, path, timeout=timeout, **request) as response:
                content = bytearray()
                async for piece in response.aiter_bytes():
                    content += piece
                    if len(content) > MAX_ANSWER_BYTES:
                        raise unexpected(where, f"more than MAX_ANSWER_BYTES ({MAX_ANSWER_BYTES})")
                return Reply(where, response.status_code, bytes(content), response.headers, self._binding(response))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Trouble(where, _words(error), sent=False) from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise Trouble(where, _words(error), sent=True) from None

    def _binding(self, response: httpx.Response) -> str:
        """What the two ends are connected by, as it is seen here."""
        if not self.address.tls:
            return plaintext_binding(self.address.host, self.address.port)
        seen = response.extensions["network_stream"].get_extra_info("ssl_object")
        return fingerprint(seen.getpeercert(True))

    async def close(self) -> None:
        """Let go of the connections."""
        await self._first.aclose()
        await self._rest.aclose()


def _http(address: Address, verify: ssl.SSLContext | bool, headers: Mapping[str, str]) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=address.http,
        verify=verify,
        trust_env=False,
        follow_redirects=False,
        headers={**headers, "accept": wire.JSON, "accept-encoding": "identity", "user-agent": "headgate-client"},
    )


def _json(body: object) -> dict[str, Any]:
    return {"content": wire.encode(body), "headers": {"content-type": wire.JSON}}


def _words(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return brief(text.splitlines()[0])


class Ring:
    """All gateways of a client; the current one is used until it fails."""

    def __init__(
        self,
        urls: str | Sequence[str],
        pinned: bytes | None,
        broker: str | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.gateways = [GatewayLink(address, pinned, headers) for address in addresses(urls)]
        self.broker = broker
        self._at = 0

    @property
    def current(self) -> GatewayLink:
        """The gateway in use."""
        return self.gateways[self._at]

    def leave(self, failed: GatewayLink) -> None:
        """Go on to the next gateway, unless someone else has done so already."""
        if self.current is failed:
            self._at = (self._at + 1) % len(self.gateways)

    async def close(self) -> None:
        """Let go of everything."""
        for gateway in self.gateways:
            await gateway.close()
