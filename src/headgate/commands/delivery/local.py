"""Everything that was delivered in a domain that this process holds itself, read as its readers would read it.

Guarantees: each subscription there ever was is read by a `Feed` from its first delivery on, as a reader would be that
never acknowledged anything: what retention has removed is missing, and what was withdrawn is passed over. Values are as
the JSON of the delivery says them, with the kinds of the event's type.
Signals are as the store has them.
Leaves out: what the store holds beyond that. Whoever verifies the store reads the store (`pipeline.spark.verify`).
"""

from __future__ import annotations

import secrets
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from headgate.commands.delivery.delivery_follower import DeliveryFollower, OutgoingDelivery
from headgate.commands.delivery.delivery_reader import Archive, Closed, Feed
from headgate.model.rights import Subscription
from headgate.model.values import Kind, conform
from headgate.node.domain import Domain, Follower
from headgate.pipeline import SIGNALS
from headgate.pipeline.deliveries import Delivered
from headgate.pipeline.detect.signals import StoredSignal, stored_signals
from headgate.trust.positions import KEY_BYTES, Positions

T = TypeVar("T")

_SLICE: Final = 1_000  # deliveries read at a time


def read_deliveries(domain: Domain) -> list[tuple[str, Delivered]]:
    """Everything delivered, with the id of the subscription, in order of stream and sequence number."""
    deliveries: list[tuple[str, Delivered]] = []
    with ExitStack() as files:
        known = Follower(domain)
        files.callback(known.close)
        positions = Positions(secrets.token_bytes(KEY_BYTES))  # nobody asks to go on from one
        tail = DeliveryFollower(domain.paths.deliveries, known, positions)
        tail.open()
        files.callback(tail.stop)
        archive = Archive(domain.paths.deliveries, known, positions)
        files.callback(archive.close)
        for number, (subscription, _) in enumerate(domain.ledger.all_subscriptions(domain.ledger.version)):
            if subscription.detection is not None:
                continue
            feed = Feed(subscription, number, {}, tail=tail, archive=archive, known=known, run=_in_place)
            deliveries += [(subscription.id, _decoded(outgoing, number, known)) for outgoing in _all_of(feed)]
            feed.close()
    return sorted(deliveries, key=lambda item: (item[1].stream, item[1].seq))


def read_signals(domain: Domain) -> list[tuple[Subscription, StoredSignal]]:
    """Everything signalled, with the detection, in the order in which it became certain."""
    every = [one for one, _ in domain.ledger.all_subscriptions(domain.ledger.version)]
    blobs = (one.blob for one in domain.signals.blobs(SIGNALS) if one.blob is not None)
    return [(every[signal.row.subscription], signal) for blob in blobs for signal in stored_signals(blob)]


def _all_of(feed: Feed) -> Iterator[OutgoingDelivery]:
    """What a feed has until it would have to wait."""
    while (step := feed.take(_SLICE)) != []:
        if step is None:
            step = _result(feed.load(_SLICE))
        if isinstance(step, Closed):
            return
        if isinstance(step, list):
            yield from step


async def _in_place(work: Any, *args: Any) -> Any:
    """Work on files, without another thread."""
    return work(*args)


def _result(work: Coroutine[Any, Any, T]) -> T:
    """The result of asynchronous work that waits for nothing, inside an event loop or outside."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits for something")


def _decoded(outgoing: OutgoingDelivery, number: int, known: Follower) -> Delivered:
    """A delivery as Python has it."""
    event = msgspec.json.decode(outgoing.event)
    slots = known.places[event["type"]]
    time = conform(Kind.TIMESTAMP, event.get("hgtime", event["time"]))
    assert isinstance(time, datetime)
    return Delivered(
        stream=outgoing.stream,
        seq=outgoing.seq,
        version=outgoing.version,
        subscription=number,
        event=event["id"],
        type=event["type"],
        publisher=event["hgpublisher"],
        time=time,
        view={name: conform(slots[name].kind, value) for name, value in event["data"].items()},
        source=event["source"],
    )
