"""A real gateway on loopback, with the pipeline run in process by the test, step by step.

Guarantees: everything between the client's bytes and the files is what a node runs, but for TLS and the handshake:
tokens are made out with the broker's key.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import uvloop
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as dial
from websockets.typing import Subprotocol

from headgate.cli.node.init import make_domain
from headgate.commands.publishing.local import LocalPublisher
from headgate.commands.subscriptions import ledger_id
from headgate.decide.composite import environment
from headgate.gateway.http.app import create_app
from headgate.gateway.runtime import Gateway
from headgate.gateway.serve import Server
from headgate.gateway.serve import server as make_server
from headgate.model.changes import Batch, Change, DeclarePrincipal, DeclareType, SetConnect, SetKey
from headgate.model.errors import BelowHorizon
from headgate.model.events import Draft
from headgate.model.rights import Action
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind, Value, moment
from headgate.node.config import Config, Files
from headgate.node.domain import Domain
from headgate.node.logs import AccessLog, Application
from headgate.node.processes import listen
from headgate.pipeline.detect.signals import Contributors, SignalRow
from headgate.trust.keys import PrivateKey
from headgate.trust.tokens import issue
from strategies.deciding import Decider, write_signals
from strategies.small import grant

SALE, PRICE = "shop.Sale", "shop.Price"
PATIENCE = 60.0
"""Seconds that anything may take on a busy machine."""

IDS = itertools.count(time.time_ns())
"""Ids that no event had before."""

PEOPLE = ("anna", "bob", "till")


Running = tuple[Gateway, asyncio.AbstractEventLoop, Server]


class Served:
    """A running gateway, and both ends of it."""

    def __init__(
        self,
        gateway: Gateway,
        loop: asyncio.AbstractEventLoop,
        domain: Domain,
        port: int,
        keys: Mapping[str, PrivateKey],
        server: Server,
    ) -> None:
        self.gateway = gateway
        self.server = server
        self.loop = loop
        self.domain = domain
        self.decider = Decider(domain)
        self.publisher = LocalPublisher(domain, advertise=False)
        self.port = port
        self.keys = keys
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)

    def token(self, who: str, seconds: float = 600) -> str:
        return issue(
            self.gateway.broker,
            principal=self.keys[who].public,
            audience=self.gateway.config.domain.name,
            now=datetime.now(UTC),
            seconds=seconds,
        )

    def ask(self, who: str, method: str, path: str, body: object = None, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.token(who)}", **more.pop("headers", {})}
        return self.http.request(method, path, json=body, headers=headers, **more)

    def metrics(self) -> str:
        """The figures of the gateway, read with the node's token for them."""
        token = self.gateway.files.metrics_token.read_text().strip()
        return self.http.get("/metrics", headers={"authorization": f"Bearer {token}"}).raise_for_status().text

    def subscribe(self, who: str, id: str, type: str = SALE, **more: Any) -> dict[str, Any]:
        found = self.ask(who, "PUT", f"/v1/subscriptions/{id}", {"type": type, **more})
        assert found.status_code == 201, found.text
        made: dict[str, Any] = found.json()
        return made

    def socket(self, who: str, token: str | None = None) -> Socket:
        headers = {"Authorization": f"Bearer {token or self.token(who)}"}
        url = f"ws://127.0.0.1:{self.port}/v1/socket"
        return Socket(dial(url, additional_headers=headers, subprotocols=[Subprotocol("headgate.v1")], legacy=True))

    def commit(self, *changes: Change, author: str = ADMINISTRATOR) -> int:
        return self.domain.commit(Batch(author, changes))

    def publish(self, *amounts: float, type: str = SALE, item: str = "tea") -> None:
        drafts = [Draft(f"{next(IDS)}", "till", type, {"item": item, "amount": a}, "t") for a in amounts]
        answers = self.publisher.publish_all(drafts)
        while any(isinstance(answer.refusal, BelowHorizon) for answer in answers):
            # While there are detections, the gateway promises its clock for this stream too, between stamp and append.
            answers = self.publisher.publish_all(drafts)
        for answer in answers:
            assert answer.refusal is None, answer
            assert not answer.duplicate, answer

    def shut(self) -> None:
        """Tell the gateway that it is about to stop."""
        self.loop.call_soon_threadsafe(self.gateway.closing.set)

    def decide(self) -> None:
        self.decider.step()

    def detect(self, who: str, id: str, expression: str, **more: Any) -> dict[str, Any]:
        found = self.ask(who, "PUT", f"/v1/detections/{id}", {"expression": expression, **more})
        assert found.status_code == 201, found.text
        made: dict[str, Any] = found.json()
        return made

    def signal(self, who: str, id: str, *signals: tuple[float, dict[str, Value]], on: Contributors = ()) -> None:
        """Write signals of a detection, as the detection query does; times are in seconds."""
        name = ledger_id(who, id)
        numbers = [one.id for one, _ in self.domain.ledger.all_subscriptions(self.domain.ledger.version)]
        number = len(numbers) - 1 - numbers[::-1].index(name)
        rows = [SignalRow(number, moment(round(at * 1e6)), environment(bound), on) for at, bound in signals]
        write_signals(self.domain, rows)

    def look(self) -> None:
        """The detection query comes to the end of the log, and has nothing to say."""
        write_signals(self.domain)


class Socket:
    """A WebSocket with its frames as dictionaries."""

    def __init__(self, connection: ClientConnection) -> None:
        self.ws = connection

    def say(self, op: str, **members: Any) -> None:
        self.ws.send(json.dumps({"op": op, **members}))

    def hear(self, op: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ws.recv(PATIENCE))
        assert found["op"] == op, found
        return found

    def amounts(self, count: int) -> list[float]:
        """The next so many deliveries, in however many frames."""
        found: list[Any] = []
        while len(found) < count:
            found += self.hear("events")["events"]
        self.last = [one["hgposition"] for one in found]
        return [one["data"]["amount"] for one in found]

    def open(self, id: str, credit: int = 100) -> None:
        self.say("open", subscription=id, credit=credit)
        self.hear("opened")

    def quiet(self) -> bool:
        """Does nothing come, after everything that was to come had time to?"""
        try:
            self.ws.recv(0.3)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self.ws.close()


def eventually(what: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


@contextmanager
def serving(directory: Path, tables: str = "", **settings: str) -> Iterator[Served]:
    """Serve a small shop, with more tables in its settings."""
    make_domain(directory, "shop", [], datetime.now(UTC))
    files = Files(directory)
    with files.config.open("a") as file:
        file.write(tables)
    keys = {name: PrivateKey.generate() for name in PEOPLE}
    with Domain.open(files.data) as domain:
        _set_up(domain, keys)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        override = {"gateway.tls": "false", **{name.replace("__", "."): value for name, value in settings.items()}}
        with _running(Config.load(directory, {}, override), files, port) as (gateway, loop, server):
            served = Served(gateway, loop, domain, port, keys, server)
            try:
                yield served
            finally:
                served.http.close()
                served.decider.close()


def _set_up(domain: Domain, keys: Mapping[str, PrivateKey]) -> None:
    attributes = {"item": Kind.STRING, "amount": Kind.FLOAT}
    domain.commit(
        Batch(
            ADMINISTRATOR,
            (
                *(DeclarePrincipal(name) for name in PEOPLE),
                *(SetKey(name, key.public.did) for name, key in keys.items()),
                SetConnect(True),
                DeclareType(EventType(SALE, ADMINISTRATOR, attributes)),
                DeclareType(EventType(PRICE, ADMINISTRATOR, attributes, key=("item",))),
                *(grant(f"g-{who}", who, "*") for who in ("anna", "bob")),
                grant("pub", "till", "*", may=(Action.PUBLISH, Action.QUENCH)),
            ),
        )
    )


@contextmanager
def _running(config: Config, files: Files, port: int) -> Iterator[Running]:
    started = threading.Event()
    held: list[Running] = []

    def run() -> None:
        async def main() -> None:
            gateway = Gateway.open(config, files, "gateway-1", port)
            gateway.readers._grace = 0.1
            app = AccessLog(cast("Application", create_app(gateway)), gateway.metrics.request)
            server = make_server(app, config, None, gateway.metrics, gateway.closing.set)
            held.append((gateway, asyncio.get_running_loop(), server))
            serving = asyncio.create_task(server._serve([listen("127.0.0.1", port)]))
            while not server.started and not serving.done():
                await asyncio.sleep(0.01)
            started.set()
            await serving

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(PATIENCE)
    gateway, loop, server = held[0]
    try:
        yield gateway, loop, server
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
