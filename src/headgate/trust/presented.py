"""Presented statements: sorted by kind, every signature verified; and what makes a broker one of the network.

Guarantees: `open_presented` is the only way from texts to `PresentedStatements` (Capabilities III.B). One bad statement
refuses the whole, with its place and its reason. Nothing is issued in the future, by more than clocks may differ.
Certificates may be over or yet to begin, which chains decide on; identity statements are good now.
A broker is let pass only if the coordinating domain is its own key, or a chain of the statements it shows leads from
there to it and gives `connect` to be delegated on, by the very rules by which a gateway judges its clients. What a
member has to connect with, and may not delegate on, makes no gateway of it. A list that is shown with them counts: what
it revokes counts no more, and it is the sign of life of its issuer.
Leaves out: whether anything follows from it (`authority`), signed types, which are not shown but declared, and that a
broker holds its key, which the handshake proves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from headgate.decide.apply import apply
from headgate.decide.views import may_connect
from headgate.model.authority import Certificate, Identity, RevocationList, Succession
from headgate.model.changes import Batch, Change, Present, Revoke, Succeed
from headgate.model.errors import BadStatement, BrokerNotTrusted, HeadgateError, TooLarge
from headgate.model.state import State
from headgate.model.values import brief
from headgate.trust.certificates import CERTIFICATE, REVOCATIONS, SUCCESSION
from headgate.trust.identities import CROSSING, IDENTITY, Crossing
from headgate.trust.statements import Verifier, check, read_through, said_kind

MAX_SHOWN: Final = 128
"""Statements that are presented together."""

MAX_SHOWN_CHARS: Final = 900_000
"""Characters of all of them."""

Statement: TypeAlias = Certificate | Identity | Succession | RevocationList | Crossing


@dataclass(frozen=True, slots=True)
class PresentedStatements:
    """Verified statements."""

    certificates: tuple[Certificate, ...] = ()
    identities: tuple[Identity, ...] = ()
    successions: tuple[Succession, ...] = ()
    lists: tuple[RevocationList, ...] = ()
    crossings: tuple[Crossing, ...] = ()


def open_presented(
    texts: Sequence[str], *, audience: str | None, now: datetime, verifier: Verifier | None = None
) -> PresentedStatements:
    """The statements, in order, each kind on its own; the same one twice counts once."""
    # 1. Sizes.
    if len(texts) > MAX_SHOWN:
        raise TooLarge(f"`{len(texts)}` statements are more than MAX_SHOWN ({MAX_SHOWN})", remedy="show fewer")
    if sum(map(len, texts)) > MAX_SHOWN_CHARS:
        raise TooLarge(f"the statements are longer than MAX_SHOWN_CHARS ({MAX_SHOWN_CHARS})", remedy="show fewer")
    # 2. Each by the function of its kind.
    every: list[Statement] = []
    for text in dict.fromkeys(texts):
        try:
            every.append(_opened(text, audience, now, verifier))
        except HeadgateError as error:
            raise error.at(f"statement {texts.index(text) + 1}") from None
    return PresentedStatements(
        tuple(one for one in every if isinstance(one, Certificate)),
        tuple(one for one in every if isinstance(one, Identity)),
        tuple(one for one in every if isinstance(one, Succession)),
        tuple(one for one in every if isinstance(one, RevocationList)),
        tuple(one for one in every if isinstance(one, Crossing)),
    )


def _opened(text: str, audience: str | None, now: datetime, verifier: Verifier | None) -> Statement:
    kind = said_kind(text)
    if kind == CERTIFICATE.typ:
        return CERTIFICATE.verify(text, audience=audience, shown=now, verifier=verifier)
    if kind == SUCCESSION.typ:
        return SUCCESSION.verify(text, now=now, verifier=verifier)
    if kind == REVOCATIONS.typ:
        return REVOCATIONS.verify(text, now=now)
    if kind == IDENTITY.typ:
        try:
            crossing = read_through(verifier, text, CROSSING.read)
        except BadStatement:
            return IDENTITY.verify(text, audience=audience, now=now, verifier=verifier)
        return check(crossing, audience=audience, now=now)
    raise BadStatement(
        f"a statement `{brief(kind)}` is not shown",
        reason="wrong-type",
        remedy="show certificates, identity statements, successions and revocation lists",
    )


def check_broker(
    texts: Sequence[str],
    *,
    broker: str,
    coordinator: str,
    now: datetime,
    audience: str | None = None,
    verifier: Verifier | None = None,
) -> PresentedStatements:
    """What a broker shows, if it leads from the coordinating domain to the broker; refused as not trusted if not."""
    # 1. Every statement is what it says it is.
    try:
        presented = open_presented(texts, audience=audience, now=now, verifier=verifier)
    except HeadgateError as error:
        raise _untrusted(broker, str(error)) from None
    # 2. The coordinating domain itself needs nobody's word.
    if broker == coordinator:
        return presented
    # 3. Otherwise a chain, every link of which may be delegated on, gives it `connect`, as a principal of the network
    #    whose owner is the coordinating domain.
    leading = tuple(one for one in presented.certificates if one.delegate)
    state = State(coordinator=coordinator, principals={broker: {}})  # one without a key goes by its name
    changes: list[Change] = [
        *(Succeed(one, now) for one in presented.successions),
        *(Revoke(one, now) for one in presented.lists),
        Present(broker, leading, now),
    ]
    try:
        judged = apply(state, Batch(state.administrator, tuple(changes)))
    except HeadgateError as error:
        others = "" if len(leading) == len(presented.certificates) else ", and the rest may not be delegated on"
        raise _untrusted(broker, f"{error.message}{others}") from None
    if not may_connect(judged, broker):
        raise _untrusted(broker, "nothing that it shows gives it `connect` to be delegated on")
    return presented


def _untrusted(broker: str, why: str) -> BrokerNotTrusted:
    return BrokerNotTrusted(
        f"the broker `{brief(broker)}` is not known to be of the network: {why}",
        remedy="connect to another gateway, or ask its operator for the chain from the coordinating domain",
    )
