"""Is this the gateway one wants to talk to? The client's side of a connection that both sides check.

Guarantees: with a coordinator named, a broker passes only if the statements it shows lead from there to its key and may
be delegated on, which a member's may not (`trust.vouching`); with a rule named, only if a provider that the client
believes attests attributes of the broker for which the rule is true (Guard IV.B). Unknown is not true. Every refusal is
`BrokerNotTrusted`, before anything is said to the broker.
Leaves out: that the broker holds its key and serves the connection, which the handshake proves; and revocation of what
it shows, except by the lists that it shows itself: an issuer that wants more gives its certificates a `freshness`, and
then a broker without a recent list of that issuer is not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Self

from headgate.decide.requirements import check_requirement, match
from headgate.lang import parse_condition, render_condition
from headgate.model.authority import Identity
from headgate.model.conditions import Condition
from headgate.model.errors import BadDefinition, BadStatement, BrokerNotTrusted, HeadgateError
from headgate.model.values import brief
from headgate.trust.identities import CROSSING, IDENTITY, verify_server
from headgate.trust.keys import PublicKey
from headgate.trust.presented import MAX_SHOWN, check_broker, open_presented, said_kind
from headgate.trust.statements import Verifier


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


ANYONE = ExpectedGateway()
"""Any broker that holds its key, as far as statements go."""


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
