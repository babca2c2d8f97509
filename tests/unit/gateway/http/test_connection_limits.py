"""Half-open, slow, oversized and too many connections, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from headgate.gateway.http import connection_limits as doors
from headgate.gateway.http.connection_limits import HEADERS
from headgate.gateway.serve import Server, listen, server
from headgate.node.config import Config, LimitSettings
from headgate.node.health import Metrics
from headgate.node.logs import CALLER, AccessLog, Log
from headgate.trust.tls import client_context, make_certificate, server_context

Test = Callable[[int, Server], Awaitable[None]]
HELLO = b"GET /hello HTTP/1.1\r\nhost: x\r\n\r\n"


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def login(request: Request) -> PlainTextResponse:
    request.scope[CALLER] = "someone"
    return PlainTextResponse("welcome")


async def body(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


async def echo(socket: WebSocket) -> None:
    socket.scope[CALLER] = "someone"
    await socket.accept()
    await socket.send_text(await socket.receive_text())
    await socket.close()


def application() -> Starlette:
    return Starlette(
        routes=[
            Route("/hello", hello),
            Route("/login", login),
            Route("/body", body, methods=["POST"]),
            WebSocketRoute("/echo", echo),
        ]
    )


def serving(test: Test, limits: LimitSettings | None = None, tls: ssl.SSLContext | None = None) -> None:
    """Run a test beside a real server."""

    async def run() -> None:
        metrics = Metrics()
        app = AccessLog(application(), metrics.request, Log("test"))
        running = server(app, Config(limits=limits or LimitSettings()), tls, metrics)
        listener = listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        task = asyncio.create_task(running._serve([listener]))
        while not running.started:
            await asyncio.sleep(0.01)
        try:
            await asyncio.wait_for(test(port, running), 60)
        finally:
            running.should_exit = True
            await task

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def ask(port: int, data: bytes = HELLO) -> bytes:
    """What comes back for some bytes, until the server closes or a whole small answer is there."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(65536), 20)
    finally:
        writer.close()


async def closed(reader: asyncio.StreamReader) -> bool:
    """Does the server end this connection without a word?"""
    try:
        return await asyncio.wait_for(reader.read(), 20) == b""
    except ConnectionResetError:
        return True


async def until(what: Callable[[], bool]) -> None:
    """Wait for something that takes as long as the machine is busy; whoever runs the test bounds it."""
    while not what():
        await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(doors, "HANDSHAKE_SECONDS", 0.5)
    monkeypatch.setattr(doors, "BODY_SECONDS", 0.5)


def test_five_hundred_half_open_connections_are_closed_and_others_are_served() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def test(port: int, running: Server) -> None:
        begun = [await asyncio.open_connection("127.0.0.1", port) for _ in range(500)]
        for number, (_, writer) in enumerate(begun):
            if number % 2:
                writer.write(b"GET /hello HTTP/1.1\r\nhost: x\r\nx-slow: ")
        assert b"hello" in await ask(port)
        assert running.door is not None
        assert running.door.turned == {}, "all of them were let in"
        assert all(await asyncio.gather(*(closed(reader) for reader, _ in begun)))
        for _, writer in begun:
            writer.close()
        await until(lambda: running.server_state.connections == set())
        assert b"hello" in await ask(port)

    try:
        serving(test)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_second_request_that_is_only_begun_is_closed_too() -> None:
    async def test(port: int, running: Server) -> None:
        for begun in (b"G", b"\r\n", b"GET /hello HTTP/1.1\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HELLO)
            assert b"hello" in await reader.read(4096)
            writer.write(begun)
            assert await closed(reader), begun
            writer.close()

    serving(test)


def test_an_idle_connection_between_requests_is_left_alone() -> None:
    async def test(port: int, running: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(HELLO)
            assert b"hello" in await reader.read(4096)
            await asyncio.sleep(0.8)  # longer than a head may take
        writer.close()

    serving(test)


def test_a_head_that_grows_too_large_is_refused() -> None:
    async def test(port: int, running: Server) -> None:
        head = b"GET /hello HTTP/1.1\r\n" + b"x-much: " + b"y" * doors.MAX_HEAD_BYTES
        assert (await ask(port, head)).startswith(b"HTTP/1.1 431 ")
        many = b"GET /hello HTTP/1.1\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(10_000))
        assert (await ask(port, many)).startswith(b"HTTP/1.1 431 ")

    serving(test)


def test_a_head_is_bounded_however_it_arrives() -> None:
    """Also whole, in one read, with a request before it, and after a body."""

    async def test(port: int, running: Server) -> None:
        lines = b"".join(b"x-%05d: y\r\n" % n for n in range(6_000))
        for large in (lines, b"x-much: " + b"y" * 70_000 + b"\r\n"):
            whole = b"GET /hello HTTP/1.1\r\nhost: x\r\n" + large + b"\r\n"
            assert (await ask(port, whole)).startswith(b"HTTP/1.1 431 ")
        assert (await ask(port, b"GET /" + b"h" * 70_000 + b" HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 431 ")
        body = b"POST /body HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n"
        assert not (await ask(port, body + lines + b"\r\n")).startswith(b"HTTP/1.1 200 ")
        room = doors.MAX_HEAD_BYTES - 200
        assert (await ask(port, b"GET /hello HTTP/1.1\r\nx-much: " + b"y" * room + b"\r\n\r\n")).endswith(b"hello")

    serving(test)


def test_every_answer_closes_what_is_not_needed() -> None:
    async def test(port: int, running: Server) -> None:
        asked = (
            HELLO,
            b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n",
            b"no HTTP\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
        )
        for one in asked:
            answer = (await ask(port, one)).lower()
            for name, value in HEADERS:
                assert answer.count(name + b": " + value.lower()) == 1, (one, name)
        upgrade = b"GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        answer = await ask(
            port, upgrade + b"sec-websocket-version: 13\r\nsec-websocket-key: eHh4eHh4eHh4eHh4eHh4eA==\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"no-store" in answer
        assert b"strict-transport-security" not in answer

    serving(test)


def test_silent_strangers_shut_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "HEAD_SECONDS", 60.0)
    monkeypatch.setattr(doors, "BODY_SECONDS", 60.0)

    async def test(port: int, running: Server) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        later: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        silent[1][1].write(b"GET /hello HT")
        silent[2][1].write(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nb")
        silent[3][1].write(HELLO)
        assert b"hello" in await silent[3][0].read(4096)
        door = running.door
        assert door is not None
        await until(
            lambda: all(one.is_quiet(asyncio.get_running_loop().time()) for one in door._strangers["127.0.0.1"])
        )
        for reader, _ in silent:  # whatever they are silent about, the first who came has to go
            later.append(await asyncio.open_connection("127.0.0.1", port))
            later[-1][1].write(HELLO)
            assert b"hello" in await later[-1][0].read(4096)
            assert await closed(reader)
        assert door.turned == {"silent": 4}
        for _, writer in [*silent, *later]:
            writer.close()

    monkeypatch.setattr(doors, "QUIET_SECONDS", 0.1)
    serving(test, LimitSettings(unauthenticated_per_address=4))


def test_a_handshake_that_is_not_begun_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "HANDSHAKE_SECONDS", 60.0)
    monkeypatch.setattr(doors, "QUIET_SECONDS", 0.0)
    make_certificate(tmp_path, [], datetime.now(UTC), 5)
    trusting = client_context((tmp_path / "tls.crt").read_bytes())

    async def test(port: int, running: Server) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        door = running.door
        assert door is not None
        await until(lambda: len(door._shaking) == 3)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
        writer.write(HELLO)
        answer = await reader.read(4096)
        assert b"strict-transport-security: max-age" in answer
        assert await closed(silent[0][0])
        for _, one in [*silent, (reader, writer)]:
            one.close()

    limits = LimitSettings(unauthenticated_per_address=3)
    serving(test, limits, server_context(tmp_path / "tls.crt", tmp_path / "tls.key"))


def test_a_large_body_is_not_taken_for_a_head() -> None:
    async def test(port: int, running: Server) -> None:
        size = 3 * doors.MAX_HEAD_BYTES
        answer = await ask(port, b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size + b"b" * size)
        assert answer.endswith(str(size).encode())

    serving(test)


def test_a_body_that_does_not_come_is_given_up_and_a_slow_steady_one_is_not() -> None:
    async def test(port: int, running: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\nonly this")
        assert await closed(reader)
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 40960\r\n\r\n")
        for _ in range(10):
            writer.write(b"b" * 4096)
            await asyncio.sleep(0.15)
        assert (await reader.read(4096)).endswith(b"40960")
        writer.close()

    serving(test)


def test_connections_past_the_limit_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "HEAD_SECONDS", 60.0)

    async def test(port: int, running: Server) -> None:
        begun = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        door = running.door
        assert door is not None
        await until(lambda: door.turned["full"] + len(running.server_state.connections) == 20)
        assert len(running.server_state.connections) == door.turned["full"] == 10
        for _, writer in begun:
            writer.close()

    serving(test, LimitSettings(connections=10))


def test_strangers_of_one_address_are_bounded_and_known_clients_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "HEAD_SECONDS", 60.0)
    monkeypatch.setattr(doors, "QUIET_SECONDS", 60.0)

    async def test(port: int, running: Server) -> None:
        kept = []
        for _ in range(6):  # each becomes known before the next comes
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /login HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"welcome" in await reader.read(4096)
            kept.append(writer)
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await closed(reader)
        door = running.door
        assert door is not None
        assert door.turned["strangers"] == 1
        for _, stranger in strangers:
            stranger.close()
        await until(lambda: door._strangers == {})
        assert b"hello" in await ask(port)
        for one in [*kept, writer]:
            one.close()

    serving(test, LimitSettings(unauthenticated_per_address=3))


def test_web_sockets_work_and_are_forgotten_when_they_end() -> None:
    async def test(port: int, running: Server) -> None:
        for _ in range(5):
            async with connect(f"ws://127.0.0.1:{port}/echo") as client:
                await client.send("over")
                assert await client.recv() == "over"
        door = running.door
        assert door is not None
        await until(lambda: running.server_state.connections == set())
        await until(lambda: door._strangers == {})

    serving(test, LimitSettings(unauthenticated_per_address=2))


def test_a_tls_handshake_that_is_not_finished_is_given_up(tmp_path: Path) -> None:
    make_certificate(tmp_path, [], datetime.now(UTC), 5)
    trusting = client_context((tmp_path / "tls.crt").read_bytes())

    async def test(port: int, running: Server) -> None:
        begun = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        for _, writer in begun:
            writer.write(b"\x16\x03\x01")
        assert all(await asyncio.gather(*(closed(reader) for reader, _ in begun)))
        assert running.door is not None
        assert running.door.turned["failed"] == 50
        assert running.door._strangers == {}
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
        writer.write(HELLO)
        assert b"hello" in await reader.read(4096)
        for _, one in [*begun, (reader, writer)]:
            one.close()

    serving(test, tls=server_context(tmp_path / "tls.crt", tmp_path / "tls.key"))


def test_handshakes_under_way_count_as_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "HANDSHAKE_SECONDS", 60.0)
    make_certificate(tmp_path, [], datetime.now(UTC), 5)

    async def test(port: int, running: Server) -> None:
        begun = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        door = running.door
        assert door is not None
        await until(lambda: door.turned["full"] + len(door._shaking) == 20)
        assert door.turned["full"] == 12
        for _, writer in begun:
            writer.close()

    serving(test, LimitSettings(connections=8), server_context(tmp_path / "tls.crt", tmp_path / "tls.key"))


def test_stopping_ends_what_waits() -> None:
    waiting: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def test(port: int, running: Server) -> None:
        waiting.append(await asyncio.open_connection("127.0.0.1", port))
        waiting[0][1].write(HELLO)
        assert b"hello" in await waiting[0][0].read(4096)
        running.should_exit = True
        assert await closed(waiting[0][0])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        waiting[0][1].close()

    serving(test)
