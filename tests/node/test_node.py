"""A node as its users have it: two gateways and a pipeline as processes, clients of every kind, a policy that changes.

What readers must get is told by `decide` alone, put to every event of the log at the version stamped on it.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest

from harness.node import Node
from headgate.client import Delivery, SubscriptionEnded, aio
from headgate.client.subscription import Subscription
from headgate.model.errors import GovernDenied, PublishDenied, VersionConflict
from node.world import DRIVER, INFORMANT, REGIONS, WAIT, Got, Record, aio_client, clients, fetch, got, settled, token

pytestmark = pytest.mark.spark


def story(dice: random.Random) -> dict[str, Any]:
    """The attributes of a story."""
    return {
        "title": dice.choice(("Storm", "Election", "Result")),
        "region": dice.choice(REGIONS),
        "urgent": dice.choice((True, False, None)),
        "words": dice.choice((None, 50, 150, 300, 800, 1500)),
        "filed": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=dice.randrange(10**12)),
        "informant": INFORMANT,
    }


# -- what everyone gets -----------------------------------------------------------------------------------------


@dataclass
class Reader:
    """Somebody who reads a subscription, and what came."""

    principal: str
    id: str
    deliveries: list[Delivery] = field(default_factory=list)
    ended: bool = False

    @property
    def got(self) -> list[Got]:
        """What came, in order."""
        return [got(one) for one in self.deliveries]

    async def read(self, subscription: Subscription) -> None:
        """Read on and on, acknowledging nothing."""
        try:
            while True:
                self.deliveries += await subscription.take(100)
        except SubscriptionEnded:
            self.ended = True

    async def read_slowly(self, node: Node) -> None:
        """Read a few at a time, and connect to the other gateway again and again."""
        known: set[str] = set()
        turn = 0
        while True:
            turn += 1
            async with (
                aio_client(node, self.principal, [turn % 2]) as client,
                await client.resume(self.id, ack="manual", window=2) as subscription,
            ):
                new = 0
                while new < 40:
                    for one in await subscription.take(1):
                        if one.position not in known:
                            known.add(one.position)
                            self.deliveries.append(one)
                            new += 1

    def read_on_thread(self, node: Node, gateway: int, stop: threading.Event) -> None:
        """Read with the client that has no event loop."""
        with node.client(self.principal, [gateway]) as client, client.resume(self.id, ack="manual") as subscription:
            while not stop.is_set():
                if (one := subscription.next(timeout=0.2)) is not None:
                    self.deliveries.append(one)


@dataclass
class Readers:
    """Everyone who reads, until told to stop."""

    node: Node
    every: list[Reader] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    threads: list[asyncio.Task[None]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    async def subscribe(self, client: aio.Client, id: str, type: str, **more: Any) -> Reader:
        """Subscribe, and read there."""
        reader = self._new(client.principal, id)
        subscription = await client.subscribe(id, type, ack="manual", **more)
        self.tasks.append(asyncio.create_task(reader.read(subscription)))
        return reader

    def again(self, first: Reader) -> tuple[Reader, Reader]:
        """Read the same in two more places: on a thread, and slowly here and there."""
        plain, slow = self._new(first.principal, first.id), self._new(first.principal, first.id)
        on_thread = asyncio.to_thread(plain.read_on_thread, self.node, 1, self.stop)
        self.threads.append(asyncio.create_task(on_thread))
        self.tasks.append(asyncio.create_task(slow.read_slowly(self.node)))
        return plain, slow

    def _new(self, principal: str, id: str) -> Reader:
        self.every.append(Reader(principal, id))
        return self.every[-1]

    async def finish(self, record: Record) -> None:
        """Wait until everyone has as much as there is."""
        due = {(one.principal, one.id): len(record.expected(one.principal, one.id)) for one in self.every}
        async with asyncio.timeout(WAIT):
            while any(len(one.deliveries) < due[one.principal, one.id] for one in self.every):
                for task in (*self.tasks, *self.threads):
                    if task.done():
                        task.result()  # what it died of
                await asyncio.sleep(0.05)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop reading, also when something went wrong: a thread cannot be cancelled."""
        self.stop.set()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, *self.threads, return_exceptions=True)


async def publish_stories(client: aio.Client, dice: random.Random, count: int) -> int:
    """Publish stories one by one; returns how many were refused."""
    refused = 0
    for _ in range(count):
        data = story(dice)
        try:
            await client.publish("press.Story", data)
            assert client.principal != "wire" or (data["region"] != "embargo" and (data["words"] or 0) < 2000)
        except PublishDenied:
            refused += 1
        await asyncio.sleep(dice.random() * 0.01)
    return refused


async def publish_bulletins(client: aio.Client, dice: random.Random, count: int, **more: Any) -> None:
    """Publish bulletins in batches of ten."""
    for _ in range(count // 10):
        events = [
            ("press.Bulletin", {**story(dice), "level": dice.randrange(5), "digest": dice.randbytes(4), **more})
            for _ in range(10)
        ]
        assert all(one.stored for one in await client.publish_many(events))
        await asyncio.sleep(dice.random() * 0.02)


async def publish_arrivals(client: aio.Client, dice: random.Random, count: int) -> None:
    """Publish arrivals as they gather."""
    async with client.batch(size=25) as batch:
        for _ in range(count):
            where = {"stop": dice.choice("abc"), "line": dice.choice("12")}
            await batch.add("transit.Arrival", {**where, "due": dice.randrange(20), "driver": DRIVER})
            await asyncio.sleep(0)


async def change_policy(admin: aio.Client, press: aio.Client, desk: aio.Client, dice: random.Random) -> None:
    """Change the policy while events are published: the administrator's part, and that of the owner of a type."""

    async def pause() -> None:
        await asyncio.sleep(dice.random() * 0.05)

    await admin.change([{"op": "set-attribute", "principal": "cai", "name": "clearance", "value": 1_000}])
    rule = {"id": "cai-bulletins", "who": "cai", "may": "subscribe", "type": "press.Bulletin"}
    await press.change([{"op": "add-rule", "rule": {**rule, "attributes": ["title", "level"]}}], note="for the desk")
    await pause()
    await admin.change([{"op": "remove-member", "group": "readers", "member": "bea"}])
    with pytest.raises(GovernDenied):
        await press.change([{"op": "add-rule", "rule": {**rule, "id": "mine", "type": "transit.Arrival"}}])
    await pause()
    row = {"relation": "Covers", "row": ["cai", "embargo"]}
    await admin.change([{"op": "add-row", **row}, {"op": "add-member", "group": "readers", "member": "bea"}])
    old = await press.type("press.Bulletin")
    own = {name: old.attributes[name] for name in old.own}
    gained = await press.declare_type("press.Bulletin", {**own, "channel": "string"}, extends="press.Story")
    assert list(gained.attributes)[-1] == "channel"
    await publish_bulletins(desk, dice, 20, channel="radio")
    calm = {"id": "calm", "who": "readers", "may": "subscribe", "type": "press.Story", "where": "urgent"}
    version = await press.change([{"op": "add-rule", "rule": {**calm, "effect": "forbid", "first": True}}])
    with pytest.raises(VersionConflict):
        await admin.change([{"op": "remove-rule", "id": "calm"}], expect=version - 1)
    await pause()
    await desk.advertise("press.Bulletin")
    assert "press.Bulletin" in [one.type for one in await desk.advertisements()]
    await press.change([{"op": "remove-rule", "id": "calm"}, {"op": "remove-rule", "id": "cai-bulletins"}])
    await desk.unadvertise("press.Bulletin")
    await admin.change([{"op": "remove-row", **row}])
    await admin.change([{"op": "set-attribute", "principal": "cai", "name": "clearance", "value": 200}])


async def everything(node: Node, dice: random.Random) -> tuple[Record, list[Reader], list[Reader]]:
    """Publish, change and subscribe all at once; returns the log, all readers, and those of the same subscription."""
    who = [
        ("administrator", 0),
        ("press", 1),
        ("desk", 0),
        ("wire", 1),
        ("depot", 1),
        ("bea", 0),
        ("cai", 1),
        ("dev", 0),
    ]
    async with (
        clients(node, *who, ("web", 1)) as (admin, press, desk, wire_, depot, bea, cai, dev, web),
        Readers(node) as readers,
    ):
        await publish_stories(desk, dice, 10)
        version = (await admin.versions())[-1].version
        time = datetime.now(UTC)
        stories = await readers.subscribe(bea, "stories", "press.Story")
        same = [stories, *readers.again(stories)]
        await readers.subscribe(dev, "all", "press.Story")
        await readers.subscribe(cai, "covered", "press.Story", where="Covers('cai', region) and words > 100")
        await readers.subscribe(bea, "due", "transit.Arrival", where="due < 10 and stop != 'c'")
        brief = await readers.subscribe(cai, "brief", "press.Story", where="title starts with 'S'")
        async with asyncio.TaskGroup() as together:
            free = together.create_task(publish_stories(desk, dice, 60))
            limited = together.create_task(publish_stories(wire_, dice, 60))
            together.create_task(publish_bulletins(desk, dice, 40))
            together.create_task(publish_arrivals(depot, dice, 200))
            together.create_task(change_policy(admin, press, desk, dice))
            await asyncio.sleep(0.3)
            await readers.subscribe(dev, "history", "press.Bulletin", from_="start")
            await readers.subscribe(cai, "since-version", "press.Story", from_=version)
            await readers.subscribe(web, "since-time", "press.Story", from_=time, where="urgent")
            await cai.unsubscribe("brief")
        assert free.result() == 0, "the desk may publish anything"
        assert limited.result() > 0, "the wire service may not publish under embargo"
        record = await asyncio.to_thread(settled, node)
        await readers.finish(record)
        async with asyncio.timeout(WAIT):
            while not brief.ended:  # after all that was decided for it before, its reader is told
                await asyncio.sleep(0.05)
    return record, readers.every, same


def test_every_reader_gets_what_decide_says(node: Node) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")  # shown when it fails
    (file,) = node.files.policy.iterdir()  # a type never loses an attribute, so the files have to say it too
    file.write_text(file.read_text().replace("digest: bytes}", "digest: bytes, channel: string}"))
    record, readers, same = asyncio.run(everything(node, random.Random(seed)))
    for reader in readers:
        count = record.check(reader.principal, reader.id, reader.got)
        assert count > 0 or reader.id == "brief", f"nothing came for {reader.principal}/{reader.id}"
    # The same subscription in three places: the same list, down to the positions.
    places = [{one.position: record.places[got(one).key] for one in reader.deliveries} for reader in same]
    assert [len(one) for one in places] == [len(reader.deliveries) for reader in same]
    assert places[0] == places[1] == places[2]
    # And whoever comes now, to whichever gateway, gets all of it as well.
    tokens = {who: token(node, who) for who in ("bea", "cai", "dev", "web")}
    for reader in {(one.principal, one.id): one for one in readers if not one.ended}.values():
        for gateway in range(2):
            found = fetch(node, gateway, tokens[reader.principal], reader.id, len(reader.deliveries))
            record.check(reader.principal, reader.id, [got(one) for one in found])
    (every,) = [one for one in readers if one.id == "all"]
    assert any(one.data.get("channel") == "radio" for one in every.deliveries), "the new attribute came"
    assert {e.values["urgent"] for e in record.events if e.publisher == "wire"} == {False}, "it was forced"
