"""Is this broker one of the network? What a client asks of a gateway, as the gateway asks it of the client.

Guarantees: a broker is let pass only if the coordinating domain is its own key, or a chain of the statements it shows
leads from there to it and gives `connect` to be delegated on, by the very rules by which a gateway judges its clients.
What a member has to connect with, and may not delegate on, makes no gateway of it. A list that is shown with them
counts: what it revokes counts no more, and it is the sign of life of its issuer.
Leaves out: that the broker holds its key, which the handshake proves.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from headgate.decide.apply import apply
from headgate.decide.views import may_connect
from headgate.model.changes import Batch, Change, Present, Revoke, Succeed
from headgate.model.errors import BrokerNotTrusted, HeadgateError
from headgate.model.state import State
from headgate.model.values import brief
from headgate.trust.bags import Bag, open_bag
from headgate.trust.statements import Verifier


def check_broker(
    texts: Sequence[str],
    *,
    broker: str,
    coordinator: str,
    now: datetime,
    audience: str | None = None,
    verifier: Verifier | None = None,
) -> Bag:
    """What a broker shows, if it leads from the coordinating domain to the broker; refused as not trusted if not."""
    # 1. Every statement is what it says it is.
    try:
        bag = open_bag(texts, audience=audience, now=now, verifier=verifier)
    except HeadgateError as error:
        raise _untrusted(broker, str(error)) from None
    # 2. The coordinating domain itself needs nobody's word.
    if broker == coordinator:
        return bag
    # 3. Otherwise a chain, every link of which may be delegated on, gives it `connect`, as a principal of the network
    #    whose owner is the coordinating domain.
    leading = tuple(one for one in bag.certificates if one.delegate)
    state = State(coordinator=coordinator, principals={broker: {}})  # one without a key goes by its name
    changes: list[Change] = [
        *(Succeed(one, now) for one in bag.successions),
        *(Revoke(one, now) for one in bag.lists),
        Present(broker, leading, now),
    ]
    try:
        judged = apply(state, Batch(state.administrator, tuple(changes)))
    except HeadgateError as error:
        others = "" if len(leading) == len(bag.certificates) else ", and the rest may not be delegated on"
        raise _untrusted(broker, f"{error.message}{others}") from None
    if not may_connect(judged, broker):
        raise _untrusted(broker, "nothing that it shows gives it `connect` to be delegated on")
    return bag


def _untrusted(broker: str, why: str) -> BrokerNotTrusted:
    return BrokerNotTrusted(
        f"the broker `{brief(broker)}` is not known to be of the network: {why}",
        remedy="connect to another gateway, or ask its operator for the chain from the coordinating domain",
    )
