"""The load generators: publishers and readers in processes of their own, as lean as Python allows.

The reader speaks just enough of WebSocket for one purpose: it counts deliveries by their positions, without parsing the
events, and acknowledges the last one of each subscription every `ACK_SECONDS`.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import uvloop

from benchmarks.node import Node, as_arrow, local, publish, reader, table
from headgate.gateway.http.operations import PROTOCOL
from headgate.protocol import messages as wire

PUBLISHES_A_SECOND = 20
"""Requests; each holds the events of so long."""
PUBLISHERS = 4
"""Connections of publishers, in turn."""
CREDIT = 1_000_000
ACK_SECONDS = 5.0
LOOK_SECONDS = 0.01
READY_SECONDS = 300.0
OPENING = 25
"""Connections that are made at a time."""

_POSITION = b'"hgposition":"'
_EVENTS = b'{"op":"events","subscription":"'
_CHARS = 22


@dataclass(frozen=True)
class Plan:
    """What the generators need to know. `readers` are tokens, each with a number of subscriptions."""

    directory: Path
    port: int
    gateways: int
    token: str
    readers: list[tuple[str, int]]
    rate: int
    seconds: float
    first: int
    values: int

    @property
    def node(self) -> Node:
        return Node(self.directory, self.gateways, self.port)


# -- publishing ---------------------------------------------------------------------------------------------------


def publisher(plan: Plan, go: Any, ready: Any, published: Any) -> None:
    """Publish at a steady rate, with requests prepared beforehand; counts what was accepted."""
    rng = np.random.default_rng(plan.first + 1)
    size = plan.rate // PUBLISHES_A_SECOND
    count = int(plan.seconds * PUBLISHES_A_SECOND)
    bodies = [as_arrow(table(plan.first + n * size, size, plan.values, rng)) for n in range(count)]
    connections = [plan.node.http(number % plan.gateways) for number in range(PUBLISHERS)]
    ready.put("publisher")
    go.wait(READY_SECONDS)
    begin = time.monotonic()

    def work(number: int) -> None:
        for turn in range(number, count, PUBLISHERS):
            due = begin + turn / PUBLISHES_A_SECOND
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            if time.monotonic() > begin + plan.seconds:
                return  # it does not keep pace; the count tells
            told = publish(connections[number], plan.token, bodies[turn], wire.ARROW)
            with published.get_lock():
                published.value += told["accepted"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(PUBLISHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- reading ------------------------------------------------------------------------------------------------------


class Reader(asyncio.Protocol):
    """One WebSocket, and how much came over it."""

    def __init__(self, token: str, subscriptions: int) -> None:
        self._token = token
        self._subscriptions = subscriptions
        self._buffer = bytearray()
        self._upgraded = False
        self._last: dict[bytes, bytes] = {}
        self._opened = 0
        self.received = 0
        self.acking = 0
        self.acked = 0
        self.why = "no reason was given"
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        transport.write(
            "GET /v1/socket HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
            f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\nsec-websocket-protocol: {PROTOCOL}\r\n"
            f"authorization: Bearer {self._token}\r\n\r\n".encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(exc or ConnectionError("the gateway closed the connection"))
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._upgraded and not self._upgrade():
            return
        at = 0
        held = self._buffer
        while len(held) >= at + 2:
            size, begin = held[at + 1], at + 2
            if size == 126:
                size, begin = int.from_bytes(held[at + 2 : at + 4]), at + 4
            elif size == 127:
                size, begin = int.from_bytes(held[at + 2 : at + 10]), at + 10
            if len(held) < begin + size:
                break
            self._frame(held[at] & 15, bytes(held[begin : begin + size]))
            at = begin + size
        del held[:at]

    def _upgrade(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        if not self._buffer.startswith(b"HTTP/1.1 101"):
            self._transport.abort()
            self.ready.set_exception(ConnectionError(bytes(self._buffer[:500]).decode("latin-1")))
            return False
        del self._buffer[: end + 4]
        self._upgraded = True
        for number in range(self._subscriptions):
            self.say({"op": "open", "subscription": local(number), "credit": CREDIT})
        return True

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == 8:
            self.why = payload[2:].decode()
        elif kind == 9:
            self._send(10, payload)
        elif kind == 1:
            if payload.startswith(_EVENTS):
                self.received += payload.count(_POSITION)
                at = payload.rindex(_POSITION) + len(_POSITION)
                name = payload[len(_EVENTS) : payload.index(b'"', len(_EVENTS))]
                self._last[name] = payload[at : at + _CHARS]
            elif payload.startswith(b'{"op":"opened"'):
                self._opened += 1
                if self._opened == self._subscriptions and not self.ready.done():
                    self.ready.set_result(None)
            elif payload.startswith(b'{"op":"acked"'):
                self.acked += 1
            elif not self.ready.done():
                self.ready.set_exception(RuntimeError(payload.decode()))

    def acknowledge(self) -> None:
        """Acknowledge the last delivery of each subscription."""
        last, self._last = self._last, {}
        self.acking += len(last)
        for name, position in last.items():
            self._send(1, b'{"op":"ack","subscription":"%s","positions":["%s"]}' % (name, position))

    def say(self, frame: dict[str, Any]) -> None:
        self._send(1, msgspec.json.encode(frame))

    def _send(self, kind: int, payload: bytes) -> None:
        """A frame masked with zeros, which leave it as it is."""
        size = len(payload)
        head = bytes((128 | kind, 128 | size)) if size < 126 else bytes((128 | kind, 128 | 126)) + size.to_bytes(2)
        self._transport.write(head + bytes(4) + payload)

    def close(self) -> None:
        self._send(8, (1000).to_bytes(2))


async def opened(plan: Plan, context: Any, number: int, token: str, subscriptions: int) -> Reader:
    """A reader whose subscriptions are open."""
    made = partial(Reader, token, subscriptions)
    port = plan.port + number % plan.gateways
    _, found = await asyncio.get_running_loop().create_connection(made, "127.0.0.1", port, ssl=context)
    await asyncio.wait_for(found.ready, READY_SECONDS)
    return found


def readers(plan: Plan, over: Any, ready: Any, received: Any) -> None:
    """Hold every connection open and count what comes, until it is over."""
    uvloop.run(_read(plan, over, ready, received))


async def _read(plan: Plan, over: Any, ready: Any, received: Any) -> None:
    gate, context = asyncio.Semaphore(OPENING), plan.node.tls()

    async def one(number: int, token: str, subscriptions: int) -> Reader:
        async with gate:
            return await opened(plan, context, number, token, subscriptions)

    made = await asyncio.gather(*(one(n, token, count) for n, (token, count) in enumerate(plan.readers)))
    ready.put("readers")
    begin, turn, share = time.monotonic(), 0, 20
    while not over.is_set():
        await asyncio.sleep(ACK_SECONDS / share)
        received.value = sum(one.received for one in made)
        for one in made[turn % share :: share]:  # a part of them at a time, so that they do not come all at once
            one.acknowledge()
        turn += 1
        if gone := [one.why for one in made if one.closed.done()]:
            raise RuntimeError(f"{len(gone)} connections were closed after {time.monotonic() - begin:.0f} s: {gone[0]}")
    for one in made:
        one.acknowledge()  # so that nothing of it comes again in a later load
    await _until(lambda: all(one.acked == one.acking for one in made), "acknowledgements")


# -- catching up --------------------------------------------------------------------------------------------------


def catch_up(node: Node, waiting: Mapping[int, int], gateways: int) -> list[float]:
    """Connect as principals who were away, for each of whom so many deliveries wait; raises unless they get just those.

    Returns how many deliveries a second they read and acknowledged, part by part.
    """
    readers = [(node.token(reader(number)), 1) for number in waiting]
    plan = Plan(node.directory, node.port, gateways, "", readers, 0, 0, 0, 0)
    return uvloop.run(_catch_up(plan, list(waiting.values())))


async def _catch_up(plan: Plan, waiting: list[int]) -> list[float]:
    context = plan.node.tls()
    rates = []
    share = max(1, len(plan.readers) // 4)
    for part in range(0, len(plan.readers), share):
        begin = time.monotonic()
        mine, wanted = plan.readers[part : part + share], waiting[part : part + share]
        made = await asyncio.gather(*(opened(plan, context, n, *one) for n, one in enumerate(mine)))
        await _until(lambda made=made, wanted=wanted: [one.received for one in made] == wanted, "all deliveries")
        for one in made:
            one.acknowledge()
        await _until(lambda made=made: all(one.acked == one.acking for one in made), "acknowledgements")
        rates.append(sum(wanted) / (time.monotonic() - begin))
        for one in made:
            one.close()
            await asyncio.wait_for(one.closed, READY_SECONDS)
    return rates


async def _until(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + READY_SECONDS
    while not done():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {READY_SECONDS:.0f} s for {what}")
        await asyncio.sleep(LOOK_SECONDS)
