"""Programs that know the protocol and nothing else: `curl`, and a browser's WebSocket."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from harness.node import Node, run
from headgate.protocol import messages as wire
from node.world import DRIVER, TOKEN, WAIT, ask, curl, got, settled, token

pytestmark = pytest.mark.spark


def event(type: str, data: Any, id: str | None = None) -> dict[str, Any]:
    """A CloudEvent as any program writes it."""
    return {"specversion": "1.0", "id": id or str(uuid.uuid4()), "source": "/tests", "type": type, "data": data}


def test_curl(node: Node) -> None:
    desk, dev = run("token", "--as", "desk", "--domain", node.directory).stdout.strip(), token(node, "dev")
    assert TOKEN.fullmatch(desk.encode())

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
