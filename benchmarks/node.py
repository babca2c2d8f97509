"""A real node to measure: a domain made for the purpose, with its gateways, and where asked for its pipeline, as
processes over TLS.

Guarantees: what is started is stopped, by its own process id. Waiting is bounded.
Leaves out: handshakes. Sessions are issued under the broker's key beforehand, as a gateway would, so that a thousand
connections do not begin with a thousand signatures.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.workload import ATTRIBUTES, PRICES, World, type_name
from headgate.cli.node.init import make_domain
from headgate.commands.subscriptions import ledger_id
from headgate.model.changes import (
    AddMember,
    AddRule,
    Advertise,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    SetConnect,
    SetKey,
    Subscribe,
)
from headgate.model.rights import Subscription
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.node.config import Files
from headgate.node.domain import Domain
from headgate.trust.keys import PrivateKey
from headgate.trust.tls import client_context
from headgate.trust.tokens import issue

NAME = "bench"
TYPE = type_name(0)
PUBLISHER = "owner"
SOURCE = "urn:bench"
READY_SECONDS = 300.0
"""How long a node may take to start on a busy machine."""
STOP_SECONDS = 60.0
SESSION_SECONDS = 7_200


# -- the world ----------------------------------------------------------------------------------------------------


def policy(world: World, principals: int, key: PrivateKey) -> Iterator[Change]:
    """The world of `workload` as changes to a ledger, with so many principals, each in one role."""
    yield SetConnect(True)
    yield DeclarePrincipal(PUBLISHER)
    yield SetKey(PUBLISHER, key.public.did)
    yield DeclareType(EventType(TYPE, PUBLISHER, ATTRIBUTES))
    for role in range(world.roles):
        yield DeclareGroup(f"role{role}")
    for rule in world.state(world.version).rules:
        yield AddRule(rule)
    for number in range(principals):
        yield DeclarePrincipal(reader(number))
        yield AddMember(f"role{number % world.roles}", reader(number))
    yield Advertise(PUBLISHER, TYPE)


def subscribing(world: World, principals: int) -> Iterator[Change]:
    """The subscriptions of the world, dealt out to the principals in turn."""
    for number, one in enumerate(world.subscriptions(0, world.version).opened):
        owner = reader(number % principals)
        id = ledger_id(owner, local(number // principals))
        yield Subscribe(Subscription(id, owner, TYPE, one.where))


def reader(number: int) -> str:
    return f"p{number}"


def local(number: int) -> str:
    """What a principal calls its subscription."""
    return f"s{number}"


def table(first: int, count: int, values: int, rng: np.random.Generator) -> pa.Table:
    """Events as a publisher has them; ids are numbers from `first` on."""
    number = np.arange(first, first + count)
    issues = pa.array([f"issue{v}" for v in range(values)])
    return pa.table(
        {
            "id": pa.array(number).cast(pa.string()),
            "source": pa.repeat(SOURCE, count),
            "issue": issues.take(pa.array(rng.integers(0, values, count))),
            "price": rng.integers(0, PRICES, count),
            "volume": rng.integers(0, 1_000_000, count),
            "venue": pa.repeat("XLON", count),
            "at": pa.array(number * 1000, pa.timestamp("us", "UTC")),
            "bid": rng.random(count),
            "ask": rng.random(count),
            "open": pa.array(rng.integers(0, 2, count) == 1),
            "currency": pa.repeat("GBP", count),
            "note": pa.nulls(count, pa.string()),
            "count": rng.integers(4, 100, count),
            "weight": rng.random(count),
        }
    )


def as_arrow(events: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema) as writer:
        writer.write_table(events)
    return bytes(sink.getvalue().to_pybytes())


def as_cloudevents(events: pa.Table) -> list[dict[str, Any]]:
    """A table as CloudEvents."""
    found = []
    for row in events.to_pylist():
        data = {name: row[name] for name in ATTRIBUTES}
        data["at"] = data["at"].isoformat()
        found.append({"specversion": "1.0", "id": row["id"], "source": row["source"], "type": TYPE, "data": data})
    return found


# -- the processes ------------------------------------------------------------------------------------------------


def free_ports(count: int) -> int:
    """The first of some neighbouring ports that nobody uses."""
    for first in range(20_000 + os.getpid() % 10_000, 60_000, count):
        held: list[socket.socket] = []
        try:
            for port in range(first, first + count):
                held.append(socket.socket())
                held[-1].bind(("127.0.0.1", port))
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
        return first
    raise RuntimeError("no ports are free")


@dataclass
class Node:
    """A domain, and the processes that serve it."""

    directory: Path
    gateways: int = 1
    port: int = 0
    keys: dict[str, PrivateKey] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def files(self) -> Files:
        return Files(self.directory)

    def key(self, name: str) -> PrivateKey:
        if name not in self.keys:
            self.keys[name] = PrivateKey.generate()
        return self.keys[name]

    def make(self, changes: Iterable[Change]) -> None:
        """Make the domain, with one batch of changes."""
        make_domain(self.directory, NAME, (), datetime.now(UTC))
        self.commit(changes)
        self.port = free_ports(self.gateways)

    def commit(self, changes: Iterable[Change]) -> int:
        with Domain.open(self.files.data) as domain:
            return domain.commit(Batch(ADMINISTRATOR, tuple(changes)))

    def token(self, name: str) -> str:
        """A session, as a gateway would issue it."""
        broker = PrivateKey.load(self.files.broker_key)
        now = datetime.now(UTC)
        return issue(broker, principal=self.key(name).public, audience=NAME, now=now, seconds=SESSION_SECONDS)

    def start_gateways(self) -> None:
        """Start the gateways alone, without a pipeline."""
        for number in range(self.gateways):
            arguments = [str(self.directory), "--name", f"gateway-{number + 1}", "--port", str(self.port + number)]
            self._start([sys.executable, "-m", "headgate.gateway.serve", *arguments, "--parent", str(os.getpid())])
        for process in self.processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if b'"ready"' not in line:
                raise RuntimeError(f"a gateway did not start: {line!r}\n{self.said()}")

    def start(self, **settings: str) -> None:
        """Start everything, as `headgate up` does."""
        arguments = ["up", str(self.directory), "--gateways", str(self.gateways), "--port", str(self.port)]
        for key, value in settings.items():
            arguments += ["--set", f"{key.replace('__', '.')}={value}"]
        self._start([str(Path(sys.executable).parent / "headgate"), *arguments])
        (process,) = self.processes
        end = time.monotonic() + READY_SECONDS
        while b"pipeline ready" not in (self.directory / "bench.log").read_bytes() or not self._answers():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the node did not start\n{self.said()}")
            time.sleep(0.1)

    def _start(self, command: Sequence[str]) -> None:
        alone = "serve" in " ".join(command[:3])
        with (self.directory / "bench.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(command, stdout=subprocess.PIPE if alone else log, stderr=log, start_new_session=True)
            )

    def _answers(self) -> bool:
        try:
            for number in range(self.gateways):
                http = self.http(number)
                http.request("GET", "/v1")
                http.getresponse().read()
                http.close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        while self.processes:
            process = self.processes.pop()
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def said(self) -> str:
        return (self.directory / "bench.log").read_text(errors="replace")[-4000:]

    def tls(self) -> ssl.SSLContext:
        """The domain's certificate, pinned."""
        return client_context(self.files.tls_certificate.read_bytes())

    def http(self, gateway: int = 0) -> HTTPSConnection:
        return HTTPSConnection("127.0.0.1", self.port + gateway, context=self.tls(), timeout=READY_SECONDS)


@contextmanager
def made(directory: Path, changes: Iterable[Change], gateways: int, key: PrivateKey) -> Iterator[Node]:
    """A node that is stopped in the end; the caller starts what it needs of it."""
    node = Node(directory, gateways, keys={PUBLISHER: key})
    node.make(changes)
    try:
        yield node
    finally:
        node.stop()


def publish(http: HTTPSConnection, token: str, body: bytes, content_type: str) -> dict[str, Any]:
    """Publish over a connection that stays open; returns the answer."""
    headers = {"authorization": f"Bearer {token}", "content-type": content_type}
    http.request("POST", f"/v1/events?type={TYPE}", body, headers)
    answer = http.getresponse()
    told: dict[str, Any] = json.loads(answer.read())
    if answer.status != 200:
        raise RuntimeError(f"publishing was refused: {told}")
    return told
