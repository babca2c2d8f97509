"""A node as its users have it: two gateways and a pipeline as processes, clients of every kind, a policy that changes.

What readers must get is told by `decide` alone, put to every event of the log at the version stamped on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
import ssl
import subprocess
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import httpx
import pyarrow as pa
import pytest
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from harness.node import Node, run
from headgate.client import Delivery, SubscriptionEnded, aio
from headgate.client.subscription import Subscription
from headgate.gateway import wire
from headgate.model.errors import (
    GovernDenied,
    PublishDenied,
    VersionConflict,
)
from node.world import DRIVER, SOURCE, WAIT, Got, Record, aio_client, curl, got, settled

pytestmark = pytest.mark.spark

REGIONS: Final = ("north", "south", "embargo")
TOKENS: Final[list[str]] = []
"""Every token that was handed out here; none may be in a log."""


@contextlib.asynccontextmanager
async def clients(node: Node, *who: tuple[str, int]) -> AsyncIterator[list[aio.Client]]:
    """Clients of principals, each at one gateway."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(aio_client(node, name, [gateway])) for name, gateway in who]


def token(node: Node, who: str) -> str:
    """A session token, as `headgate token` prints it."""
    TOKENS.append(run("token", "--as", who, "--domain", node.directory).stdout.strip())
    return TOKENS[-1]


def ask(node: Node, gateway: int, token: str, method: str, path: str, **more: Any) -> httpx.Response:
    """A plain request."""
    context = ssl.create_default_context(cafile=str(node.files.tls_certificate))
    with httpx.Client(base_url=node.urls[gateway], verify=context, timeout=WAIT) as client:
        return client.request(method, path, headers={"authorization": f"Bearer {token}"}, **more)


def fetch(node: Node, gateway: int, token: str, id: str, count: int) -> list[dict[str, Any]]:
    """Everything that a subscription has and that is not acknowledged, asked for once more when it is there."""
    found: list[dict[str, Any]] = []
    node.wait(lambda: len(_poll(node, gateway, token, id, found)) >= count, f"{count} deliveries of {id}", WAIT)
    return _poll(node, gateway, token, id, found)


def _poll(node: Node, gateway: int, token: str, id: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answer = ask(node, gateway, token, "GET", f"/v1/subscriptions/{id}/events", params={"limit": 10_000, "wait": 0.2})
    assert answer.status_code == 200, answer.text
    found[:] = answer.json()["events"]
    return found


def story(dice: random.Random) -> dict[str, Any]:
    """The attributes of a story."""
    return {
        "title": dice.choice(("Storm", "Election", "Result")),
        "region": dice.choice(REGIONS),
        "urgent": dice.choice((True, False, None)),
        "words": dice.choice((None, 50, 150, 300, 800, 1500)),
        "filed": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=dice.randrange(10**12)),
        "source": SOURCE,
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
    kinds = (await press.type("press.Bulletin")).attributes
    own = {name: kinds[name] for name in ("level", "digest")}
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
        publishing = [
            asyncio.create_task(one)
            for one in (
                publish_stories(desk, dice, 60),
                publish_stories(wire_, dice, 60),
                publish_bulletins(desk, dice, 40),
                publish_arrivals(depot, dice, 200),
            )
        ]
        changing = asyncio.create_task(change_policy(admin, press, desk, dice))
        await asyncio.sleep(0.3)
        await readers.subscribe(dev, "history", "press.Bulletin", from_="start")
        await readers.subscribe(cai, "since-version", "press.Story", from_=version)
        await readers.subscribe(web, "since-time", "press.Story", from_=time, where="region != 'south'")
        await cai.unsubscribe("brief")
        refused = await asyncio.gather(*publishing)
        await changing
        assert refused[0] == 0, "the desk may publish anything"
        assert refused[1] > 0, "the wire service may not publish under embargo"
        record = await asyncio.to_thread(settled, node)
        await readers.finish(record)
        assert brief.ended
    return record, readers.every, same


def test_every_reader_gets_what_decide_says(node: Node) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
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


# -- plain programs ---------------------------------------------------------------------------------------------


def event(type: str, data: Any, id: str | None = None) -> dict[str, Any]:
    """A CloudEvent as any program writes it."""
    return {"specversion": "1.0", "id": id or str(uuid.uuid4()), "source": "/tests", "type": type, "data": data}


def test_curl(node: Node) -> None:
    desk, dev = token(node, "desk"), token(node, "dev")

    def told(who: str | None, gateway: int, path: str, *more: str, body: Any = None) -> tuple[int, str, Any]:
        sent = ["--data-binary", body if isinstance(body, str) else json.dumps(body)] if body is not None else []
        bearer = ["-H", f"Authorization: Bearer {who}"] if who is not None else []
        done = curl(node, *bearer, "-w", "\n%{http_code} %{content_type}", *more, *sent, node.urls[gateway] + path)
        assert done.returncode == 0, done.stderr
        text, _, end = done.stdout.rpartition("\n")
        status, _, kind = end.partition(" ")
        return int(status), kind, json.loads(text)

    as_event, as_batch, as_json = (
        ("-H", f"Content-Type: {kind}") for kind in (wire.EVENT_JSON, wire.BATCH_JSON, wire.JSON)
    )
    url = "/v1/subscriptions/curl"
    wanted = {"type": "press.Story", "where": "title = 'curl'"}
    assert told(dev, 0, url, "-X", "PUT", *as_json, body=wanted)[0] == 201
    assert told(dev, 1, url, "-X", "PUT", *as_json, body=wanted)[0] == 200, "again, at the other gateway: the same"

    one = event("press.Story", {"title": "curl", "words": 1})
    assert told(desk, 0, "/v1/events", *as_event, body=one) == (200, wire.JSON, {"id": one["id"], "status": "accepted"})
    assert told(desk, 1, "/v1/events", *as_event, body=one)[2]["status"] == "duplicate"
    good, wrong = event("press.Story", {"title": "curl"}), event("press.Story", {"title": 7})
    unknown = event("press.Nothing", {})
    status, _, answer = told(desk, 1, "/v1/events", *as_batch, body=[good, wrong, unknown, good])
    assert status == 200
    assert [one["status"] for one in answer["results"]] == ["accepted", "refused", "refused", "duplicate"]
    assert [one.get("code") for one in answer["results"]] == [None, "type-mismatch", "unknown-type", None]

    record = settled(node)
    got_now = told(dev, 0, f"{url}/events?wait=20&limit=1")[2]["events"]
    assert len(got_now) == 1
    after = got_now[0]["hgposition"]
    got_now += told(dev, 1, f"{url}/events?wait=20&after={after}")[2]["events"]
    assert record.check("dev", "curl", [got(one) for one in got_now]) == 2
    again = told(dev, 0, f"{url}/events?wait=20")[2]["events"]
    assert again == got_now, "nothing was acknowledged"

    streamed = stream(node, 1, dev, f"{url}/events", 2)
    assert [one["id"] for one in streamed] == [one["hgposition"] for one in again]
    assert [json.loads(one["data"]) for one in streamed] == again
    rest = stream(node, 0, dev, f"{url}/events", 1, "-H", f"Last-Event-ID: {streamed[0]['id']}")
    assert rest[0]["id"] == streamed[1]["id"]

    positions = {"positions": [one["hgposition"] for one in again]}
    assert told(dev, 1, f"{url}/ack", *as_json, body=positions)[2] == {"acknowledged": 2}
    assert told(dev, 0, f"{url}/events")[2]["events"] == [], "acknowledged at the other gateway"
    assert curl(node, "-X", "DELETE", "-H", f"Authorization: Bearer {dev}", node.urls[0] + url).stdout == ""

    for found, code, status in (
        (told(None, 0, "/v1/types"), "not-authenticated", 401),
        (told("nonsense", 0, "/v1/types"), "not-authenticated", 401),
        (told(dev, 0, "/v1/types/press.Nothing"), "unknown-type", 404),
        (told(dev, 1, "/v1/subscriptions/nothing"), "not-found", 404),
        (told(dev, 0, "/v1/nothing"), "not-found", 404),
        (told(dev, 0, "/v1/events", *as_event, body=one), "publish-denied", 403),
        (told(desk, 0, "/v1/events", *as_event, body="{"), "bad-request", 400),
        (told(desk, 0, "/v1/events", *as_event, body=wrong), "type-mismatch", 422),
        (told(desk, 0, "/v1/events", *as_json, body=one), "unsupported-media-type", 415),
        (told(dev, 1, "/v1/batches", *as_json, body={"changes": [{"op": "withdraw", "principal": "bea"}]}),
         "govern-denied", 403),
        (told(dev, 0, url, "-X", "PUT", *as_json, body={"type": "press.Story", "where": "title ="}),
         "bad-expression", 422),
    ):  # fmt: skip
        assert found[:2] == (status, wire.PROBLEM), (code, found)
        assert found[2]["code"] == code
        assert found[2]["type"] == f"urn:headgate:problem:{code}"
        assert found[2]["status"] == status
        assert found[2]["detail"]


def stream(node: Node, gateway: int, bearer: str, path: str, count: int, *more: str) -> list[dict[str, str]]:
    """The first server-sent events, as `curl -N` shows them."""
    command = ["curl", "--silent", "-N", "--max-time", str(WAIT), "--cacert", str(node.files.tls_certificate), *more]
    command += ["-H", "Accept: text/event-stream", "-H", f"Authorization: Bearer {bearer}", node.urls[gateway] + path]
    found: list[dict[str, str]] = []
    now: dict[str, str] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            name, _, value = line.rstrip("\n").partition(": ")
            if name:
                now[name] = value
            elif now:
                found += [now] if "id" in now else []
                now = {}
            if len(found) == count:
                break
        process.terminate()
    assert len(found) == count
    return found


def test_browser(node: Node) -> None:
    """A WebSocket as a browser makes it: it sets no header but `Origin`, so the token comes as a subprotocol."""
    asyncio.run(_browse(node))


async def _browse(node: Node) -> None:
    context = ssl.create_default_context(cafile=str(node.files.tls_certificate))
    url = node.urls[1].replace("https:", "wss:") + "/v1/socket"
    web, depot = await asyncio.to_thread(token, node, "web"), await asyncio.to_thread(token, node, "depot")

    def socket(bearer: str) -> connect_socket:
        protocols = ["headgate.v1", f"bearer.{bearer}"]
        return connect_socket(url, ssl=context, origin="https://app.example", subprotocols=protocols)

    async def hear(ws: Any, op: str) -> dict[str, Any]:
        async with asyncio.timeout(WAIT):
            while True:
                frame: dict[str, Any] = json.loads(await ws.recv())
                if frame["op"] == op:
                    return frame

    with pytest.raises(InvalidStatus) as refused:
        await socket("nonsense")
    assert refused.value.response.status_code == 401
    async with socket(web) as ws, socket(depot) as publisher:
        assert ws.subprotocol == "headgate.v1", "the token is not said back"
        body = {"type": "transit.Arrival", "where": "line = 'browser'"}
        answer = await asyncio.to_thread(ask, node, 1, web, "PUT", "/v1/subscriptions/page", json=body)
        assert answer.status_code == 201
        await ws.send(json.dumps({"op": "open", "subscription": "page", "credit": 2}))
        assert (await hear(ws, "opened"))["subscription"] == "page"
        events = [event("transit.Arrival", {"line": "browser", "due": n, "driver": DRIVER}) for n in range(5)]
        await publisher.send(json.dumps({"op": "publish", "ref": 7, "events": events}))
        published = await hear(publisher, "published")
        assert published["ref"] == 7
        assert [one["status"] for one in published["results"]] == ["accepted"] * 5
        found = await take(ws, hear, 2)
        await ws.send(json.dumps({"op": "credit", "subscription": "page", "credit": 100}))
        found += await take(ws, hear, 3)
        record = await asyncio.to_thread(settled, node)
        assert record.check("web", "page", [got(one) for one in found]) == 5
        assert {one["data"]["driver"] for one in found} == {None}
        last = [found[-1]["hgposition"]]
        await ws.send(json.dumps({"op": "ack", "subscription": "page", "positions": last}))
        assert (await hear(ws, "acked"))["count"] == 1
        await ws.send(json.dumps({"op": "open", "subscription": "nothing"}))
        problem = await hear(ws, "problem")
        assert (problem["code"], problem["subscription"]) == ("not-found", "nothing")
        await ws.send("{")
        assert (await hear(ws, "problem"))["code"] == "bad-request"
        answer = await asyncio.to_thread(ask, node, 0, web, "DELETE", "/v1/subscriptions/page")
        assert answer.status_code == 204
        assert (await hear(ws, "closed"))["code"] == "subscription-ended"
        # The session ends at the other gateway, and with it the connection at this one.
        assert (await asyncio.to_thread(ask, node, 0, web, "DELETE", "/v1/sessions/current")).status_code == 204
        with pytest.raises(ConnectionClosed):
            await hear(ws, "nothing")
        assert ws.close_code == 4401


async def take(ws: Any, hear: Callable[[Any, str], Any], count: int) -> list[dict[str, Any]]:
    """So many deliveries, and no more than that."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        found += (await hear(ws, "events"))["events"]
    assert len(found) == count
    return found


# -- publishing -------------------------------------------------------------------------------------------------


def test_an_event_sent_to_both_gateways_is_stored_once(node: Node) -> None:
    async def send() -> list[str]:
        who = [(name, gateway) for name in ("desk", "wire") for gateway in range(2)]
        ids = [str(uuid.uuid4()) for _ in range(20)]
        data = {"title": "once", "words": 3, "region": "north"}
        async with clients(node, *who) as (desk, desk2, wire_, wire2):
            for id in ids:
                for one, other in ((desk, desk2), (wire_, wire2)):  # another publisher's ids are its own
                    sent = [c.publish("press.Story", data, id=id, source="/both") for c in (one, other, other)]
                    results = await asyncio.gather(*sent)
                    assert sorted(r.status for r in results) == ["accepted", "duplicate", "duplicate"]
            (again,) = await desk2.publish_many(
                [{"type": "press.Story", "data": data, "id": ids[0], "source": "/both"}]
            )
            assert again.status == "duplicate"
            elsewhere = await desk2.publish("press.Story", data, id=ids[0], source="/another")
            assert elsewhere.status == "accepted"
        return ids

    ids = asyncio.run(send())
    record = settled(node)
    stored = [e.id for e in record.events if e.source == "/both"]
    assert sorted(stored) == sorted(2 * ids)


def test_arrow(node: Node) -> None:
    rows = 500
    run_id = uuid.uuid4()
    table = pa.table(
        {
            "id": [f"{run_id}:{n}" for n in range(rows)],
            "title": ["arrow"] * rows,
            "words": pa.array([None if n % 7 == 0 else n * 10 for n in range(rows)], pa.int64()),
            "region": [REGIONS[n % 3] for n in range(rows)],
            "source": [SOURCE] * rows,
        }
    )
    with node.client("wire", [1]) as wire_, node.client("dev", [0]) as dev, node.client("bea", [1]) as bea:
        for reader in (dev, bea):
            reader.subscribe("arrow", "press.Story", "title = 'arrow'", ack="manual").close()
        told = wire_.publish_arrow("press.Story", table, source="/arrow")
        refused = {n for n in range(rows) if REGIONS[n % 3] == "embargo" or n % 7 == 0 or n * 10 >= 2000}
        assert set(told.refused) == refused
        assert {one.code for one in told.refused.values()} == {"publish-denied"}
        assert (told.accepted, told.duplicates) == (rows - len(refused), 0)
        with node.client("wire", [0]) as elsewhere:
            again = elsewhere.publish_arrow("press.Story", table, source="/arrow")
        assert (again.accepted, again.duplicates, set(again.refused)) == (0, told.accepted, refused)
    record = settled(node)
    for who, gateway in (("dev", 1), ("bea", 0)):
        bearer = token(node, who)
        count = len(record.expected(who, "arrow"))
        assert 0 < count <= told.accepted
        record.check(who, "arrow", [got(one) for one in fetch(node, gateway, bearer, "arrow", count)])
        assert ask(node, gateway, bearer, "DELETE", "/v1/subscriptions/arrow").status_code == 204
