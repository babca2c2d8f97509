"""Clients that do not read, over real sockets: nothing outlives its session, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import uvloop

from headgate.gateway.delivery.push import PushSocket
from headgate.gateway.http import send_queue as outgoing
from headgate.gateway.http.send_queue import Outgoing, ServerSocket, header
from strategies.serving import PATIENCE, Served, eventually, serving

_ESTABLISHED = 1


@pytest.fixture(scope="module", autouse=True)
def brief() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outgoing, "LEAVE_SECONDS", 0.3)
        yield


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node") / "shop", limits__write_timeout="1h") as made:
        yield made


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node") / "shop", limits__write_timeout="1s") as made:
        yield made


def fill(shop: Served, id: str) -> None:
    """Twelve megabytes for a subscription."""
    shop.subscribe("anna", id)
    for _ in range(4):
        shop.publish(*range(30), item="x" * 100_000)
    shop.decide()


def dialled(shop: Served) -> socket.socket:
    """A connection that takes little, and reads nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    made.settimeout(PATIENCE)
    made.connect(("127.0.0.1", shop.port))
    return made


def asked(shop: Served, path: str, token: str, accept: str = "text/event-stream") -> socket.socket:
    made = dialled(shop)
    head = (f"GET {path} HTTP/1.1", "host: x", f"authorization: Bearer {token}", f"accept: {accept}", "", "")
    made.sendall("\r\n".join(head).encode())
    return made


def opened(shop: Served, id: str, token: str) -> socket.socket:
    """A WebSocket that has opened a subscription."""
    made = dialled(shop)
    head = ("GET /v1/socket HTTP/1.1", "host: x", f"authorization: Bearer {token}", "connection: Upgrade")
    more = ("upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: eHh4eHh4eHh4eHh4eHh4eA==", "", "")
    made.sendall("\r\n".join((*head, *more)).encode())
    assert made.recv(4096).startswith(b"HTTP/1.1 101 ")
    frame = json.dumps({"op": "open", "subscription": id, "credit": 1_000}).encode()
    made.sendall(masked(0x81, frame))
    return made


def reading(shop: Served, way: str, id: str, token: str) -> socket.socket:
    """A client that is sent a subscription's deliveries in one way."""
    path = f"/v1/subscriptions/{id}/events"
    if way == "socket":
        return opened(shop, id, token)
    if way == "poll":
        return asked(shop, f"{path}?limit=10000&wait=20", token, "application/json")
    return asked(shop, path, token)


def masked(kind: int, payload: bytes) -> bytes:
    """A frame of a client."""
    begin = bytearray(header(len(payload)))
    begin[0] = kind
    begin[1] |= 0x80
    return bytes(begin) + b"\0\0\0\0" + payload


def is_open(one: socket.socket) -> bool:
    """Does the kernel still know a whole connection?"""
    return bool(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED)


def is_stuck(shop: Served, one: socket.socket) -> bool:
    """Is the client's buffer full, and somebody written to?"""
    waiting = struct.unpack("I", _ioctl(one))[0]
    return waiting > 10_000 and bool(shop.gateway.readers._connections)


def _ioctl(one: socket.socket) -> bytes:
    return fcntl.ioctl(one.fileno(), termios.FIONREAD, b"\0" * 4)


def rest(one: socket.socket) -> int:
    """How many bytes come before the end."""
    size = 0
    try:
        while data := one.recv(1 << 20):
            size += len(data)
    except ConnectionResetError:
        pass
    return size


@pytest.mark.parametrize("way", ["events", "poll", "socket"])
def test_a_client_that_does_not_read_ends_with_its_session(shop: Served, way: str) -> None:
    fill(shop, f"unread-{way}")
    token = shop.token("anna")
    client = reading(shop, way, f"unread-{way}", token)
    eventually(lambda: is_stuck(shop, client))
    assert is_open(client)
    gone = shop.http.delete("/v1/sessions/current", headers={"authorization": f"Bearer {token}"})
    assert gone.status_code == 204
    eventually(lambda: not is_open(client))
    eventually(lambda: not shop.gateway.readers._connections)
    eventually(lambda: not shop.gateway.readers.tail.listeners())
    assert rest(client) < 1_000_000, "little was kept for it"
    client.close()


@pytest.mark.parametrize("way", ["events", "poll", "socket"])
def test_a_client_that_does_not_read_is_given_up_though_its_session_goes_on(strict: Served, way: str) -> None:
    fill(strict, f"stuck-{way}")
    token = strict.token("anna")
    client = reading(strict, way, f"stuck-{way}", token)
    eventually(lambda: not is_open(client))
    eventually(lambda: not strict.gateway.readers._connections)
    client.close()


def test_a_plain_answer_that_is_not_read_is_given_up(strict: Served) -> None:
    """Whatever is answered: here the description of the protocol, asked for again and again."""
    client = dialled(strict)
    client.settimeout(0.2)
    ask = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n"
    try:
        for _ in range(500):
            client.sendall(ask)
    except (TimeoutError, OSError):
        pass  # it takes no more
    eventually(lambda: not is_open(client))
    client.close()


def test_what_is_written_to_a_connection_that_is_gone_goes_nowhere() -> None:
    """Of requests sent at once only the last is told that its client has left; uvloop refuses what others write."""

    class Told(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            loop = asyncio.get_running_loop()
            self.outgoing, self.over = Outgoing(cast(asyncio.Transport, transport), loop, 1.0), asyncio.Event()

        def connection_lost(self, exc: Exception | None) -> None:
            self.outgoing.lost()
            self.over.set()

    async def write_on() -> list[bytes]:
        ours, theirs = socket.socketpair()
        _, told = await asyncio.get_running_loop().create_connection(Told, sock=ours)
        told.outgoing.write(b"before")
        told.outgoing.abort()
        told.outgoing.write(b"at once")
        await told.over.wait()
        await asyncio.sleep(0)  # the transport closes behind it
        told.outgoing.write(b"later")
        told.outgoing.close()
        told.outgoing.abort()
        theirs.settimeout(PATIENCE)
        received = [await asyncio.to_thread(theirs.recv, 100) for _ in range(2)]
        theirs.close()
        return received

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(write_on()) == [b"before", b""]


def test_a_server_stops_while_a_client_is_leaving(shop: Served) -> None:
    """Its answer to the client's leaving is under way: nothing more can be said, and the server goes on stopping."""
    client = shop.socket("anna")

    async def leave() -> list[bool]:
        (held,) = [one for one in shop.server.server_state.connections if isinstance(one, ServerSocket)]
        held.data_received(masked(0x88, struct.pack("!H", 1000)))
        held.shutdown()
        return [held.transport.is_closing(), held.close_sent]

    assert asyncio.run_coroutine_threadsafe(leave(), shop.loop).result(PATIENCE) == [True, False]
    client.close()


def test_who_follows_revocations_and_does_not_read_is_given_up(tmp_path: Path) -> None:
    with serving(tmp_path / "shop", limits__write_timeout="1s", authority__heartbeat="1s") as shop:
        text = "x" * 8_000_000
        shop.gateway.service.signed_list = lambda: (1, text)  # type: ignore[method-assign]
        client = asked(shop, "/v1/revocations/stream", "none")
        eventually(lambda: shop.gateway.bulletin.watchers.total() == 1)
        eventually(lambda: shop.gateway.bulletin.watchers.total() == 0)
        eventually(lambda: not is_open(client))
        client.close()


def test_pings_are_not_answered_to_who_does_not_read(shop: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    answer = PushSocket._malformed

    async def malformed(socket: PushSocket, detail: str) -> None:
        heard.append(detail)
        await answer(socket, detail)

    monkeypatch.setattr(PushSocket, "_malformed", malformed)
    fill(shop, "pinged")
    client = opened(shop, "pinged", shop.token("anna"))
    eventually(lambda: is_stuck(shop, client))
    (protocol,) = [one for one in shop.server.server_state.connections if isinstance(one, ServerSocket)]
    eventually(lambda: not protocol.writable.is_set())
    kept = protocol.transport.get_write_buffer_size()
    for _ in range(2_000):
        client.sendall(masked(0x89, os.urandom(100)))
    client.sendall(masked(0x81, b"no frame"))
    eventually(lambda: len(heard) == 1)
    assert protocol.transport.get_write_buffer_size() <= kept
    client.close()
    eventually(lambda: not shop.gateway.readers._connections)


class Pipe:
    """A transport whose reader takes what the test says."""

    def __init__(self) -> None:
        self.waiting = 0
        self.aborted = self.closed = False

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def write(self, data: bytes) -> None:
        self.waiting += len(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def get_extra_info(self, name: str) -> None:
        return None

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class Clock:
    """An event loop that has timers and nothing else."""

    def __init__(self) -> None:
        self.timers: list[asyncio.TimerHandle] = []

    def call_later(self, delay: float, what: object, *more: object) -> asyncio.TimerHandle:
        made = asyncio.TimerHandle(delay, what, more, self, None)  # type: ignore[arg-type]
        self.timers.append(made)
        return made

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def get_debug(self) -> bool:
        return False

    def pass_(self) -> None:
        due, self.timers = self.timers, []
        for one in due:
            if not one.cancelled():
                one._run()


def test_a_slow_reader_is_left_alone_and_one_that_stops_is_not() -> None:
    pipe, clock = Pipe(), Clock()
    out = Outgoing(pipe, clock, 30.0)  # type: ignore[arg-type]
    out.write(b"x" * 1_000_000)
    for _ in range(20):
        pipe.waiting -= 10
        out.write(b"y" * 10)  # so that as much waits as before
        clock.pass_()
        assert not pipe.aborted
    pipe.waiting = 0
    clock.pass_()
    assert clock.timers == [], "nothing waits, and nobody looks"
    out.write(b"z")
    clock.pass_()
    assert pipe.aborted


def test_what_is_closed_and_not_read_is_aborted() -> None:
    pipe, clock = Pipe(), Clock()
    out = Outgoing(pipe, clock, 30.0)  # type: ignore[arg-type]
    out.close()
    assert pipe.closed
    assert not pipe.aborted
    clock.pass_()
    assert pipe.aborted
