"""Where short statements come from: a domain's own service, one's home domain, and the host of a guest.

Guarantees: what is fetched is all it takes: certificates come with the chain that leads to their issuer. A guest proves
its key to the host each time, and the host's broker has proven itself before it is told anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

import httpx
import msgspec

from headgate.client.errors import unexpected
from headgate.client.gateways import GatewayLink
from headgate.client.session import ClientSession, problem_of
from headgate.model.errors import BadDefinition, NotFound
from headgate.model.values import brief
from headgate.protocol import messages as wire

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


async def as_guest(session: ClientSession, gateway: GatewayLink, home: Issuer) -> list[str]:
    """A host's statement about a member of the home domain, who proves its key to the host."""
    (statement,) = await home.obtain("identity")
    answered = await session.challenge(gateway)
    did = session.key.public.did
    body = wire.GuestRequest(statement, did, answered.client_nonce, answered.nonce, answered.signature)
    reply = await gateway.send(
        "POST", "/v1/identity/guest", content=wire.encode(body), headers={"content-type": wire.JSON}
    )
    if reply.status >= httpx.codes.MULTIPLE_CHOICES:
        raise problem_of(reply, gateway)
    try:
        return [_text(msgspec.json.decode(reply.content, type=wire.IssuedAnswer))]
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise unexpected(gateway.address.http, error) from None


def _text(told: wire.IssuedAnswer) -> str:
    if told.statement is None:
        raise NotFound(f"the service did not hand out the statement `{brief(told.id)}`")
    return told.statement
