"""The Python client of a domain.

Guarantees: the broker has proven itself before anything is said; what is published is stored once, and what is
delivered is handed out once by one `Subscription`, whatever happens to connections and gateways in between. Every
refusal is a `HeadgateError`.
Leaves out: what a principal may do, which the gateways decide.

`connect` is for programs without an event loop, `aio.connect` for those with one.
"""

from headgate.client import aio
from headgate.client.errors import (
    ClientClosed,
    EventsRefused,
    Gap,
    Refused,
    SubscriptionEnded,
    Unacknowledged,
    Unreachable,
)
from headgate.client.gateways import Patience, Timing
from headgate.client.publishing import Bulk, Result
from headgate.client.session import Issued
from headgate.client.subscription import Delivery, Signal
from headgate.client.sync import Client, Detection, Publisher, Subscription, connect

__all__ = [
    "Bulk",
    "Client",
    "ClientClosed",
    "Delivery",
    "Detection",
    "EventsRefused",
    "Gap",
    "Issued",
    "Patience",
    "Publisher",
    "Refused",
    "Result",
    "Signal",
    "Subscription",
    "SubscriptionEnded",
    "Timing",
    "Unacknowledged",
    "Unreachable",
    "aio",
    "connect",
]
