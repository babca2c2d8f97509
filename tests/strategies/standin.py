"""A small gateway that speaks the protocol for real, over TLS on loopback, with everything else in memory.

The handshake, tokens and positions are the real ones. There are no rules: whoever has a key may do everything. It can
be told to fail: to drop sockets, lose answers, refuse sessions. Two of them can serve one `World`, as gateways do.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from headgate.cli.node.init import make_domain
from headgate.client import Patience
from headgate.gateway.http.send_queue import ServerSocket
from headgate.model.errors import HeadgateError, NotAuthenticated
from headgate.node.config import Files
from headgate.trust import tokens
from headgate.trust.handshake import Challenger
from headgate.trust.keys import PrivateKey
from headgate.trust.positions import Positions
from headgate.trust.tls import certificate_of, fingerprint

AUDIENCE = "example"
SALE = "shop.Sale"
ATTRIBUTES = {"item": "string", "amount": "float", "card": "string"}
PATIENCE = 60.0
"""Seconds that stopping may take on a busy machine."""
QUICK = Patience(seconds=5.0, first=0.01, most=0.05)
HASTY = Patience(seconds=0.3, first=0.01, most=0.05)
"""Gives up while one watches."""


def make_directory(directory: Path) -> Path:
    """A domain's directory, as `headgate init` makes it."""
    make_domain(directory, AUDIENCE, [], datetime.now(UTC))
    return directory


@contextmanager
def stage(directory: Path) -> Iterator[Callable[..., StandIn]]:
    """Start gateways of a domain; all that run are written down for `from_directory`."""
    world = World(Files(directory))
    world.types[SALE] = {"name": SALE, "owner": "administrator", "attributes": ATTRIBUTES, "own": list(ATTRIBUTES)}
    running: list[StandIn] = []
    node = directory / "data" / "node.json"

    def begin(**settings: Any) -> StandIn:
        running.append(StandIn(world, **settings))
        node.write_text(json.dumps({"urls": [one.url for one in running]}))
        return running[-1]

    try:
        yield begin
    finally:
        for one in running:
            one.stop()
        node.unlink(missing_ok=True)


@dataclass
class Subscription:
    number: int
    type: str
    temporary: bool
    cursor: int
    body: dict[str, Any]


@dataclass
class World:
    """What the gateways of a domain share, and what is to go wrong."""

    files: Files
    events: list[dict[str, Any]] = field(default_factory=list)
    seen: set[tuple[str, str, str]] = field(default_factory=set)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    numbers: int = 0
    acks: list[int] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    changes: list[Any] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    credits: list[int] = field(default_factory=list)
    wanted: dict[str, bool] = field(default_factory=dict)
    types: dict[str, dict[str, Any]] = field(default_factory=dict)
    session_seconds: float = 900
    # What is to go wrong.
    statuses: list[int] = field(default_factory=list)  # answers to the next requests of all sorts
    lose_answers: int = 0  # so many publish requests are carried out but not answered
    drop_after: list[int] = field(default_factory=list)  # each socket closes after so many deliveries
    close_codes: list[int] = field(default_factory=list)  # and with this code
    refuse_sockets: list[int] = field(default_factory=list)  # statuses for the next WebSockets
    busy_frames: dict[str, int] = field(default_factory=dict)  # so many of these frames are refused for now
    gap_at: int | None = None
    too_large: int = 10_000
    forget_dropped: bool = False  # subscriptions of a dropped socket end with it

    def store(self, publisher: str, event: dict[str, Any]) -> dict[str, Any]:
        if event["type"] not in self.types:
            return {
                "id": event["id"],
                "status": "refused",
                "code": "unknown-type",
                "detail": f"no event type `{event['type']}`",
            }
        if (event.get("data") or {}).get("item") == "forbidden":
            return {
                "id": event["id"],
                "status": "refused",
                "code": "publish-denied",
                "detail": "no entry admits it",
                "remedy": "ask",
            }
        key = publisher, event.get("source", ""), event["id"]
        if key in self.seen:
            return {"id": event["id"], "status": "duplicate"}
        self.seen.add(key)
        self.events.append({**event, "hgpublisher": publisher, "time": "2026-01-01T12:00:00Z"})
        return {"id": event["id"], "status": "accepted"}


class StandIn:
    """One gateway on loopback."""

    def __init__(self, world: World, *, broker: PrivateKey | None = None, tls: Path | None = None) -> None:
        files = world.files
        self.world = world
        self.certificate = (tls or files.tls) / "tls.crt"
        self.broker = broker or PrivateKey.load(files.broker_key)
        self.sockets = 0
        self._positions = Positions.load(files.position_key)
        self._challenger = Challenger(
            self.broker,
            fingerprint(certificate_of(self.certificate)),
            secrets.token_bytes(32),
            lambda: datetime.now(UTC),
        )
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            self._app(),
            log_level="critical",
            lifespan="off",
            ssl_certfile=self.certificate,
            ssl_keyfile=(tls or files.tls) / "tls.key",
            timeout_graceful_shutdown=1,
            ws=ServerSocket,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listening],), daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.005)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._listening.close()

    def _app(self) -> Starlette:
        def route(path: str, endpoint: Any, *methods: str) -> Route:
            async def run(request: Request) -> Response:
                self.world.requests.append(f"{request.method} {request.url.path}")
                try:
                    if self.world.statuses and "challenges" not in path and path != "/v1/sessions":
                        status = self.world.statuses.pop(0)
                        code = {503: "too-busy", 401: "not-authenticated"}.get(status, "internal-error")
                        return _problem(status, code, "not now")
                    found = await endpoint(request)
                except HeadgateError as error:
                    return _problem(401, error.code, error.message)
                return found if isinstance(found, Response) else JSONResponse(found)

            return Route(path, run, methods=list(methods))

        return Starlette(
            routes=[
                route("/v1", self._about, "GET"),
                route("/v1/challenges", self._challenge, "POST"),
                route("/v1/sessions", self._session, "POST"),
                route("/v1/sessions/current", self._current, "GET", "DELETE"),
                route("/v1/types", self._types, "GET"),
                route("/v1/types/{name}", self._type, "GET", "PUT", "DELETE"),
                route("/v1/types/{name}/restriction", self._sees, "GET"),
                route("/v1/advertisements", self._advertisements, "GET"),
                route("/v1/advertisements/{name}", self._advertise, "PUT", "DELETE"),
                route("/v1/advertisements/{name}/restriction", self._sends, "GET"),
                route("/v1/events", self._publish, "POST"),
                route("/v1/subscriptions", self._subscriptions, "GET"),
                route("/v1/subscriptions/{id}", self._subscription, "GET", "PUT", "DELETE"),
                route("/v1/subscriptions/{id}/restriction", self._restriction, "GET"),
                route("/v1/lookups/{id}", self._lookup, "PUT"),
                route("/v1/reservations/{id}", self._reservation, "PUT", "DELETE"),
                route("/v1/batches", self._batch, "POST"),
                route("/v1/versions", self._versions, "GET"),
                WebSocketRoute("/v1/socket", self._socket),
            ]
        )

    # -- connecting -------------------------------------------------------------------------------------------

    async def _about(self, request: Request) -> Any:
        return {"domain": AUDIENCE, "broker": self.broker.public.did, "protocol": "headgate.v1", "gateway": "g"}

    async def _challenge(self, request: Request) -> Response:
        made = self._challenger.challenge((await request.json())["nonce"])
        return JSONResponse(
            {"nonce": made.nonce, "broker": made.broker, "proof": made.proof, "expires": made.expires.isoformat()}, 201
        )

    async def _session(self, request: Request) -> Response:
        body = await request.json()
        key = self._challenger.answer(body["nonce"], body["client_nonce"], body["principal"], body["signature"])
        now = datetime.now(UTC)
        seconds = self.world.session_seconds
        token = tokens.issue(self.broker, principal=key, audience=AUDIENCE, now=now, seconds=seconds)
        session = tokens.verify(token, broker=self.broker.public, audience=AUDIENCE, now=now)
        answer = {"token": token, "principal": "someone", "expires": session.expires.isoformat()}
        return JSONResponse(answer, 201)

    def _who(self, headers: Any) -> tokens.Session:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        session = tokens.verify(token, broker=self.broker.public, audience=AUDIENCE, now=datetime.now(UTC))
        if session.id in self.world.ended:
            raise NotAuthenticated("the session is over")
        return session

    async def _current(self, request: Request) -> Any:
        session = self._who(request.headers)
        if request.method == "DELETE":
            self.world.ended.add(session.id)
            return Response(status_code=204)
        return {"principal": "someone", "did": session.principal_did, "expires": session.expires.isoformat()}

    # -- types and policy -------------------------------------------------------------------------------------

    async def _types(self, request: Request) -> Any:
        self._who(request.headers)
        return {"types": list(self.world.types.values())}

    async def _type(self, request: Request) -> Any:
        self._who(request.headers)
        name = request.path_params["name"]
        if request.method == "PUT":
            body = await request.json()
            self.world.types[name] = {
                "name": name,
                "owner": body.get("owner") or "someone",
                "attributes": body["attributes"],
                "own": list(body["attributes"]),
                "key": body["key"],
            }
        if name not in self.world.types:
            return _problem(404, "unknown-type", f"no event type `{name}`")
        if request.method == "DELETE":
            del self.world.types[name]
            return Response(status_code=204)
        return self.world.types[name]

    async def _sees(self, request: Request) -> Any:
        self._who(request.headers)
        name = request.path_params["name"]
        every = list(self.world.types[name]["attributes"])
        reach = {"name": name, "told": True, "reason": None, "attributes": every[:-1], "hidden": every[-1:]}
        return {"type": name, "satisfiable": True, "types": [{**reach, "condition": "amount < 1000", "entries": []}]}

    async def _sends(self, request: Request) -> Any:
        self._who(request.headers)
        return {"type": request.path_params["name"], "reason": None, "entries": []}

    async def _advertisements(self, request: Request) -> Any:
        self._who(request.headers)
        return {"advertisements": [{"type": name, "wanted": yes} for name, yes in self.world.wanted.items()]}

    async def _advertise(self, request: Request) -> Any:
        self._who(request.headers)
        name = request.path_params["name"]
        if request.method == "DELETE":
            self.world.wanted.pop(name, None)
            return Response(status_code=204)
        self.world.wanted.setdefault(name, True)
        return {"type": name, "wanted": self.world.wanted[name]}

    async def _batch(self, request: Request) -> Any:
        self._who(request.headers)
        self.world.changes.append(await request.json())
        if self.world.lose_answers:
            self.world.lose_answers -= 1
            return _lost()
        return {"version": len(self.world.changes)}

    async def _versions(self, request: Request) -> Any:
        self._who(request.headers)
        return {"versions": [{"version": n + 1, "time": "2026-01-01T12:00:00Z"} for n in range(3)]}

    # -- publishing -------------------------------------------------------------------------------------------

    async def _publish(self, request: Request) -> Any:
        who = self._who(request.headers).principal_did
        body = await request.body()
        match request.headers["content-type"]:
            case "application/cloudevents+json":
                told = self.world.store(who, json.loads(body))
                if told["status"] == "refused":
                    return _problem(403, told["code"], told["detail"])
                answer: Any = told
            case "application/cloudevents-batch+json":
                events = json.loads(body)
                if len(events) > self.world.too_large:
                    return _problem(413, "too-large", "too many")
                answer = {"results": [self.world.store(who, one) for one in events]}
            case _:
                table = pa.ipc.open_stream(body).read_all()
                if table.num_rows > self.world.too_large:
                    return _problem(413, "too-large", "too many")
                answer = self._bulk(who, request.query_params["type"], table)
        if self.world.lose_answers:
            self.world.lose_answers -= 1
            return _lost()
        return answer

    def _bulk(self, who: str, type_name: str, table: pa.Table) -> dict[str, Any]:
        results = []
        for row in table.to_pylist():
            data = {n.removeprefix("data."): _plain(v) for n, v in row.items() if n not in ("id", "source")}
            event = {"specversion": "1.0", "id": row["id"], "source": row["source"], "type": type_name, "data": data}
            results.append(self.world.store(who, event))
        listed = [{"row": at, **one} for at, one in enumerate(results) if one["status"] != "accepted"]
        count = {s: sum(1 for one in results if one["status"] == s) for s in ("accepted", "duplicate", "refused")}
        return {
            "accepted": count["accepted"],
            "duplicates": count["duplicate"],
            "refused": count["refused"],
            "results": listed,
        }

    # -- subscribing ------------------------------------------------------------------------------------------

    async def _subscriptions(self, request: Request) -> Any:
        self._who(request.headers)
        return {"subscriptions": [self._shown(id) for id in self.world.subscriptions]}

    def _shown(self, id: str) -> dict[str, Any]:
        found = self.world.subscriptions[id]
        return {"id": id, "type": found.type, "version": found.number, "temporary": found.temporary}

    async def _subscription(self, request: Request) -> Any:
        self._who(request.headers)
        id = request.path_params["id"]
        if request.method == "PUT" and id not in self.world.subscriptions:
            body = await request.json()
            self._make(id, body, 0 if body.get("from", "now") != "now" else len(self.world.events))
        if id not in self.world.subscriptions:
            return _problem(404, "not-found", f"no subscription `{id}`")
        if request.method == "DELETE":
            del self.world.subscriptions[id]
            return Response(status_code=204)
        return self._shown(id)

    def _make(self, id: str, body: dict[str, Any], cursor: int) -> None:
        self.world.numbers += 1
        temporary = bool(body.get("temporary"))
        self.world.subscriptions[id] = Subscription(self.world.numbers, body["type"], temporary, cursor, body)

    async def _restriction(self, request: Request) -> Any:
        self._who(request.headers)
        return {"subscription": request.path_params["id"], "satisfiable": True, "types": []}

    async def _lookup(self, request: Request) -> Any:
        self._who(request.headers)
        id, body = request.path_params["id"], await request.json()
        self._make(id, body, len(self.world.events))
        last = {e["data"]["item"]: e for e in self.world.events if e["type"] == body["type"]}
        return {"id": id, "entries": list(last.values()), "complete": True}

    async def _reservation(self, request: Request) -> Any:
        self._who(request.headers)
        if request.method == "DELETE":
            return Response(status_code=204)
        body = await request.json()
        times = {"expires": "2026-01-01T13:00:00Z", "since": "2026-01-01T12:00:00Z"}
        return {"id": request.path_params["id"], "whole": True, **times, **body}

    # -- the socket -------------------------------------------------------------------------------------------

    async def _socket(self, socket: WebSocket) -> None:
        try:
            self._who(socket.headers)
        except HeadgateError:
            await socket.send_denial_response(_problem(401, "not-authenticated", "no"))
            return
        if self.world.refuse_sockets:
            status = self.world.refuse_sockets.pop(0)
            code = {503: "too-busy", 401: "not-authenticated"}.get(status, "connect-denied")
            await socket.send_denial_response(_problem(status, code, "not now"))
            return
        await socket.accept("headgate.v1")
        self.sockets += 1
        left = self.world.drop_after.pop(0) if self.world.drop_after else None
        await _Conversation(self, socket, left).run()

    def delivery(self, found: Subscription, seq: int) -> dict[str, Any]:
        position = self._positions.seal(np.int64(found.number), np.int64(1), np.array([seq], np.int64))[0]
        return {**self.world.events[seq], "hgposition": position}

    def place(self, found: Subscription, position: str) -> int:
        return self._positions.open(position, found.number)[1]


class _Conversation:
    """One socket: deliveries as credit allows, acknowledgements, and the end."""

    def __init__(self, gateway: StandIn, socket: WebSocket, left: int | None) -> None:
        self.gateway = gateway
        self.world = gateway.world
        self.socket = socket
        self.left = left
        self.credit: dict[str, int] = {}
        self.at: dict[str, int] = {}
        self.told: dict[str, bool] = {}
        self.watched: list[str] = []

    async def run(self) -> None:
        pushing = asyncio.create_task(self._push())
        try:
            while True:
                await self._heard(msgspec.json.decode(await self.socket.receive_text()))
        except (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            pushing.cancel()

    async def _heard(self, frame: dict[str, Any]) -> None:
        id = frame.get("subscription", "")
        found = self.world.subscriptions.get(id)
        if frame["op"] == "watch":
            self.watched, self.told = frame["types"], {}
            return
        if found is None:
            await self._say({"op": "problem", "code": "not-found", "detail": f"no subscription `{id}`", "status": 404,
                             "subscription": id})  # fmt: skip
            return
        if self.world.busy_frames.get(frame["op"], 0):
            self.world.busy_frames[frame["op"]] -= 1
            await self._say({"op": "problem", "code": "storage-busy", "detail": "not now", "status": 503,
                             "subscription": id})  # fmt: skip
            return
        match frame["op"]:
            case "open" if id in self.credit:
                await self._say({"op": "problem", "code": "already-exists", "detail": "open", "subscription": id})
            case "open":
                self.credit[id] = frame["credit"]
                self.at[id] = found.cursor
                await self._say({"op": "opened", "subscription": id})
            case "credit":
                self.world.credits.append(frame["credit"])
                self.credit[id] += frame["credit"]
            case "ack":
                places = [self.gateway.place(found, one) for one in frame["positions"]]
                found.cursor = max(found.cursor, *(place + 1 for place in places))
                self.world.acks.append(found.cursor)
                await self._say({"op": "acked", "subscription": id, "count": len(places)})
            case "close":
                self.credit.pop(id, None)

    async def _push(self) -> None:
        while True:
            for name in self.watched:
                if self.told.get(name) != self.world.wanted[name]:
                    self.told[name] = self.world.wanted[name]
                    await self._say({"op": "quench", "type": name, "wanted": self.told[name]})
            for id in list(self.credit):
                if id not in self.world.subscriptions:
                    self.credit.pop(id)
                    await self._say({"op": "closed", "subscription": id, "code": "not-found"})
                    continue
                if not await self._deliver(id, self.world.subscriptions[id]):
                    return
            await asyncio.sleep(0.005)

    async def _deliver(self, id: str, found: Subscription) -> bool:
        if self.world.gap_at is not None and self.at[id] >= self.world.gap_at:
            self.world.gap_at = None
            await self._say({"op": "gap", "subscription": id, "detail": "retention took some"})
        batch = []
        while self.credit[id] > 0 and self.at[id] < len(self.world.events) and self.left != 0 and len(batch) < 50:
            if self.world.gap_at is not None and self.at[id] >= self.world.gap_at:
                break
            if self.world.events[self.at[id]]["type"] == found.type:
                batch.append(self.gateway.delivery(found, self.at[id]))
                self.credit[id] -= 1
                self.left = None if self.left is None else self.left - 1
            self.at[id] += 1
        if batch:
            await self._say({"op": "events", "subscription": id, "events": batch})
        if self.left == 0:
            code = self.world.close_codes.pop(0) if self.world.close_codes else 1012
            if self.world.forget_dropped:
                self.world.forget_dropped = False
                del self.world.subscriptions[id]
            await self.socket.close(code)
            return False
        return True

    async def _say(self, frame: dict[str, Any]) -> None:
        await self.socket.send_text(msgspec.json.encode(frame).decode())


def _problem(status: int, code: str, detail: str) -> Response:
    body = {"type": f"urn:headgate:problem:{code}", "title": "no", "status": status, "detail": detail, "code": code}
    return JSONResponse(body, status, media_type="application/problem+json")


def _lost() -> Response:
    """An answer that breaks off."""

    async def some() -> Any:
        yield b"{"

    return StreamingResponse(some(), headers={"content-length": "1000"})


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else value
