"""One event at a time over one connection, durably: through a gateway and through NATS JetStream.

The NATS server syncs every message before it acknowledges it (`sync_interval: always`), as the gateway does. Both are
spoken to by a Python client, on this machine, and write to the same disk, in turn. The gateway speaks TLS and checks
the session, the type and the rights of the publisher; the NATS server is left plain and open.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import nats
import numpy as np
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as dial

from benchmarks.measure import console, report, report_ratio, seconds
from benchmarks.node import PUBLISHER, Node, as_cloudevents, free_ports, made, policy, publish, table
from benchmarks.workload import World
from headgate.gateway.http.operations import PROTOCOL
from headgate.protocol import messages as wire
from headgate.trust.keys import PrivateKey

EVENTS = 300
"""Events of one round."""
ROUNDS = 5
WARM_UP = 1
START_SECONDS = 30.0
SUBJECT = "bench.events"


class JetStream:
    """A NATS server with one stream, and a client of it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open())

    async def _open(self) -> None:
        self._client = await nats.connect(f"nats://127.0.0.1:{self._port}")
        self._stream = self._client.jetstream()
        await self._stream.add_stream(name="bench", subjects=[SUBJECT])

    def send(self, bodies: list[bytes]) -> None:
        """Publish one after the other, each once the one before is acknowledged."""
        self._loop.run_until_complete(self._send(bodies))

    async def _send(self, bodies: list[bytes]) -> None:
        for body in bodies:
            await self._stream.publish(SUBJECT, body)

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


@contextmanager
def server(directory: Path) -> Iterator[JetStream]:
    """A NATS server that syncs every message, while the block runs."""
    port = free_ports(1)
    settings = directory / "nats.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{directory / "nats"}", sync_interval: always }}\n'
    )
    with (directory / "nats.log").open("ab") as log:
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / "nats-server"), "-c", str(settings)], stdout=log, stderr=log
        )
    try:
        _await(process, directory / "nats.log")
        client = JetStream(port)
        yield client
        client.close()
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def _await(process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while b"Server is ready" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the NATS server did not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)


def single() -> None:
    """Events one by one: HTTP, WebSocket and NATS, in turn."""
    console.print("[bold]single publish[/]: one event at a time over one connection, beside NATS JetStream")
    world, key = World(0), PrivateKey.generate()
    with (
        tempfile.TemporaryDirectory() as name,
        server(Path(name)) as stream,
        made(Path(name) / "node", policy(world, 0, key), 1, key) as node,
        ExitStack() as opened,
    ):
        node.start_gateways()
        token, http, socket = node.token(PUBLISHER), node.http(), opened.enter_context(_socket(node))
        rates: dict[str, list[float]] = {}
        for turn in range(WARM_UP + ROUNDS):
            one, two, three = (_events(3 * turn + part) for part in range(3))
            works = {
                "HTTP": lambda one=one: [publish(http, token, body, wire.EVENT_JSON) for body in one],
                "WebSocket": lambda two=two: _send(socket, two),
                "NATS": lambda three=three: stream.send(three),
            }
            for what, work in works.items():
                rate = EVENTS / seconds(work)
                if turn >= WARM_UP:
                    rates.setdefault(what, []).append(rate)
    for what in ("HTTP", "WebSocket", "NATS"):
        middle = sorted(rates[what])[ROUNDS // 2]
        report(
            f"durable single publish, {what}, events/s",
            middle,
            None,
            "higher",
            (max(rates[what]) - min(rates[what])) / 2,
        )
    report_ratio("single publish, HTTP, over NATS JetStream", rates["HTTP"], rates["NATS"], None, "higher")
    report_ratio("single publish, WebSocket, over NATS JetStream", rates["WebSocket"], rates["NATS"], None, "higher")


def _events(part: int) -> list[bytes]:
    """Events that were never sent before."""
    found = as_cloudevents(table(part * EVENTS, EVENTS, 1, np.random.default_rng(part)))
    return [json.dumps(one).encode() for one in found]


def _socket(node: Node) -> ClientConnection:
    return dial(
        f"wss://127.0.0.1:{node.port}/v1/socket",
        ssl=node.tls(),
        additional_headers={"authorization": f"Bearer {node.token(PUBLISHER)}"},
        subprotocols=[PROTOCOL],  # type: ignore[list-item]
        proxy=None,
        compression=None,
    )


def _send(socket: ClientConnection, bodies: list[bytes]) -> None:
    for number, body in enumerate(bodies):
        socket.send(b'{"op":"publish","ref":%d,"events":[%s]}' % (number, body), text=True)
        told = json.loads(socket.recv())
        if told.get("op") != "published" or told["results"][0]["status"] != "accepted":
            raise RuntimeError(f"publishing was refused: {told}")
