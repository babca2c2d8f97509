"""What the subscriptions of a story receive, read by their clients over WebSockets.

Guarantees: a subscription is read from the moment it is made, so that what ends in the story is read to its end; all
that the pipeline has decided for it is awaited, taken once, and acknowledged until the gateway has confirmed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headgate.client.aio import Client
from headgate.client.errors import SubscriptionEnded
from headgate.client.subscription import Delivery, Subscription
from headgate.model.errors import ConnectDenied
from headgate.model.values import Kind, Value, conform

PATIENCE: Final = 120.0
"""Seconds within which everything that was decided must come."""
MOST: Final = 1_000
"""Deliveries that are taken at once."""


@dataclass(slots=True)
class Reader:
    """A subscription that a client reads."""

    id: str
    number: int
    """Which of all subscriptions of the ledger it is."""
    client: Client
    subscription: Subscription
    undone: bool = False
    """Was it made with others of which one was refused?"""

    async def read(self, count: int) -> list[Delivery]:
        """So many deliveries, which are all there are; those that wait for someone who may connect again as well."""
        deliveries: list[Delivery] = []
        async with asyncio.timeout(PATIENCE):
            while len(deliveries) < count:
                try:
                    deliveries += await self.subscription.take(MOST)
                except ConnectDenied:  # it was put out meanwhile; what it has not acknowledged comes again
                    self.subscription = await self.client.resume(self.id)
                    deliveries = []
            with suppress(SubscriptionEnded):  # then nothing is left to acknowledge
                await self.subscription.ack()
            await self.subscription.close()
        return deliveries


def view_of(delivery: Delivery, kinds: Mapping[str, Kind]) -> dict[str, Value]:
    """A delivery's attributes, as the kinds that their type gives them."""
    return {name: None if value is None else conform(kinds[name], value) for name, value in delivery.data.items()}
