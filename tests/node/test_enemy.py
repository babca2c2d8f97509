"""The new enemy: who has lost a right gets nothing that was published after that was acknowledged.

Rights are revoked through one gateway while events are published through both, a thousand times, with random small
delays. Every event is one of three things to each principal. It was answered before the revocation was sent: then it
must have come. It was sent after the revocation was acknowledged: then it must not have. Or it was under way meanwhile:
then the version that it was stamped with decides, by `decide`.

That it can fail was tried out: with a log that takes appends of older versions (`EventLog._append`) and a writer that
looks at the ledger only every tenth of a second (`Writer._newest`), sixty rounds are enough for it to report an event
that was published after the right was taken.

`HEADGATE_EXAMPLES` sets the number of rounds, `HEADGATE_SEED` the seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from harness.node import Node
from headgate.client import aio
from headgate.client.subscription import Subscription
from headgate.model.events import Event
from node.world import ENEMIES, WAIT, Got, Record, aio_client, got, settled

ROUNDS: Final = int(os.environ.get("HEADGATE_EXAMPLES", "1000"))
SEED: Final = int(os.environ.get("HEADGATE_SEED", secrets.randbelow(2**32)))
DELAY: Final = 0.03
"""Seconds of the longest random pause."""
TYPE: Final = "ward.Note"
NEVER: Final = 2**62
DECIDED: Final = 200
"""Versions whose events are put to `decide`; reading a version takes its time."""


@dataclass
class Held:
    """How long a principal had its right: from when it was given, to when it was taken, by the test's own clock."""

    sent: int = 0
    given: int = 0
    first: int = 0
    """The version that gave it."""
    taking: int = NEVER
    taken: int = NEVER
    end: int = NEVER
    """The version that took it."""


@dataclass
class Story:
    """Everything that was done, in the order in which it was begun and answered."""

    dice: random.Random
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    clock: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    events: dict[str, tuple[int, int]] = field(default_factory=dict)
    """When each event was sent, and when it was answered."""
    held: dict[str, list[Held]] = field(default_factory=dict)

    def granted(self, who: str, event: Event) -> bool:
        """Had the principal its right at the version of an event?"""
        return event.id in self.events and any(one.first <= event.version < one.end for one in self.held[who])

    async def pause(self) -> None:
        """Wait a random moment, sometimes not at all."""
        await asyncio.sleep(self.dice.choice((0.0, 0.5, 1.0)) * self.dice.random() * DELAY)

    async def publish(self, nurse: aio.Client) -> None:
        """Publish one event."""
        id = f"{self.run}-{len(self.events)}"
        self.events[id] = (0, 0)
        sent = next(self.clock)
        result = await nurse.publish(TYPE, {"n": sent, "text": id}, id=id)
        assert result.status == "accepted"
        self.events[id] = (sent, next(self.clock))

    async def publish_after_pause(self, nurse: aio.Client) -> None:
        """Publish one event in a moment."""
        await self.pause()
        await self.publish(nurse)

    async def change(self, admin: aio.Client, loser: str, loses: Any, winner: str, gets: Any) -> None:
        """Take a right from one principal and give another its right back, at one version."""
        sent = next(self.clock)
        version = await admin.change([loses, gets])
        answered = next(self.clock)
        last = self.held[loser][-1]
        last.taking, last.taken, last.end = sent, answered, version
        self.held[winner].append(Held(sent, answered, version))


def ways(who: str) -> list[tuple[Any, Any]]:
    """Ways to take the right from a principal, each with the way to give it back."""
    group = {"group": "trusted", "member": who}
    attribute = {"op": "set-attribute", "principal": who, "name": "cleared"}
    rule = {"id": f"{who}-out", "who": who, "may": "subscribe", "type": TYPE, "effect": "forbid", "first": True}
    return [
        ({"op": "remove-member", **group}, {"op": "add-member", **group}),
        ({**attribute, "value": False}, {**attribute, "value": True}),
        ({"op": "add-rule", "rule": rule}, {"op": "remove-rule", "id": rule["id"]}),
    ]


async def rounds(
    story: Story, count: int, pair: list[str], admins: list[aio.Client], nurses: list[aio.Client], back: Any
) -> Any:
    """Take the right from one of two principals and give it back to the other, again and again."""
    dice = story.dice
    for _ in range(count):
        loser, winner = pair
        takes, gives = dice.choice(ways(loser))
        await asyncio.gather(
            story.change(dice.choice(admins), loser, takes, winner, back), *map(story.publish_after_pause, nurses)
        )
        await asyncio.gather(*map(story.publish, nurses))  # at once: the revocation has been acknowledged
        await story.pause()
        pair, back = [winner, loser], gives
    return pair, back


async def collect(subscription: Subscription, into: list[Got]) -> None:
    """Keep what comes."""
    while True:
        into += [got(one) for one in await subscription.take(1_000)]


async def play(node: Node, story: Story) -> tuple[Record, dict[str, list[Got]]]:
    """The whole story; returns the log, and what each principal received."""
    names = [f"enemy{n}" for n in range(ENEMIES)]
    received: dict[str, list[Got]] = {name: [] for name in names}
    async with contextlib.AsyncExitStack() as stack:

        async def client(who: str, gateway: int) -> aio.Client:
            return await stack.enter_async_context(aio_client(node, who, [gateway]))

        admins = [await client("administrator", n) for n in range(2)]
        nurses = [await client("nurse", n) for n in range(2)]
        readers = [await client(name, n % 2) for n, name in enumerate(names)]
        reading = []
        for name, reader in zip(names, readers, strict=True):
            subscription = await reader.subscribe("notes", TYPE)
            reading.append(asyncio.create_task(collect(subscription, received[name])))
        pairs = list(zip(names[::2], names[1::2], strict=True))
        firsts = [(loser, *ways(loser)[0]) for _, loser in pairs]
        sent = next(story.clock)
        version = await admins[0].change([takes for _, takes, _ in firsts])
        answered = next(story.clock)
        for winner, loser in pairs:
            story.held[winner] = [Held(sent, answered, version)]
            story.held[loser] = []
        each = [ROUNDS // len(pairs) + (n < ROUNDS % len(pairs)) for n in range(len(pairs))]
        left = await asyncio.gather(
            *(
                rounds(story, count, list(pair), admins, nurses, back)
                for count, pair, (_, _, back) in zip(each, pairs, firsts, strict=True)
            )
        )
        record = await asyncio.to_thread(settled, node)
        due = {name: sum(story.granted(name, event) for event in record.events) for name in names}
        async with asyncio.timeout(WAIT):
            while any(len(received[name]) < due[name] for name in names):
                await asyncio.sleep(0.05)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        await admins[0].change([back for _, back in left])  # everything as it was
        for reader in readers:
            await reader.unsubscribe("notes")
    return record, received


def check(story: Story, record: Record, who: str, received: list[Got], versions: set[int]) -> Counter[str]:
    """Was the principal given what it must have, and nothing that it must not? Counts how the events stood to it."""
    came = {one.key[2] for one in received}
    held = story.held[who]
    kinds: Counter[str] = Counter()
    between = []
    for event in record.events:
        if event.id not in story.events:
            continue
        sent, answered = story.events[event.id]
        if any(one.given < sent and answered < one.taking for one in held):
            kinds["before"] += 1
            assert event.id in came, f"{who} did not get {event.id}, published while it had the right"
        elif not any(sent < one.taken and one.sent < answered for one in held):
            kinds["after"] += 1
            assert event.id not in came, f"{who} got {event.id}, published after its right was taken"
        else:
            kinds["between"] += 1
            between.append(event)
            assert (event.id in came) is story.granted(who, event), f"{who} and {event.id} of version {event.version}"
    asked = [event for event in between if event.version in versions]
    decisions = record.decisions(asked, record.subscription(who, "notes"))
    for event, decision in zip(asked, decisions, strict=True):
        assert (event.id in came) is (decision is not None), f"{who} and {event.id} of version {event.version}"
    places = [record.places[one.key] for one in received]
    for stream in {stream for stream, _ in places}:
        seqs = [seq for where, seq in places if where == stream]
        assert seqs == sorted(set(seqs)), f"{who} in {stream}"
    kinds["decided"] = len(asked)
    return kinds


@pytest.mark.spark
def test_no_event_after_a_revocation_reaches_who_lost_the_right(node: Node) -> None:
    print(f"HEADGATE_SEED={SEED} HEADGATE_EXAMPLES={ROUNDS}")  # shown when it fails
    story = Story(random.Random(SEED))
    record, received = asyncio.run(play(node, story))
    stamped = sorted({event.version for event in record.events if event.id in story.events})
    versions = set(story.dice.sample(stamped, min(DECIDED, len(stamped))))
    kinds: Counter[str] = Counter()
    for who, deliveries in received.items():
        kinds += check(story, record, who, deliveries, versions)
    assert sum(one.taken < NEVER for held in story.held.values() for one in held) == ROUNDS
    assert all(kinds[kind] for kind in ("before", "after", "between", "decided")), f"that never happened: {kinds}"
