"""Frames that leave together: whole, in order, and never more than the reader keeps up with."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from headgate.gateway.http.send_queue import MAX_HELD_BYTES, ServerSocket

WAIT = 30.0
Send = Callable[[dict[str, Any]], Awaitable[None]]
SIZES = (0, 1, 125, 126, 127, 65_535, 65_536, MAX_HELD_BYTES, MAX_HELD_BYTES + 1, 300_000)


@contextmanager
def serving(talk: Callable[[Send, Any], Awaitable[None]]) -> Iterator[tuple[str, uvicorn.Server]]:
    """A server whose WebSockets accept, and then say what `talk` does."""

    async def app(scope: Any, receive: Any, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await talk(send, receive)

    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        port=0,
        ws=ServerSocket,
        ws_per_message_deflate=False,
        lifespan="off",
        log_level="critical",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        end = time.monotonic() + WAIT
        while not server.started:
            assert time.monotonic() < end
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"ws://127.0.0.1:{port}", server
    finally:
        server.should_exit = True
        thread.join(WAIT)


def text(number: int, size: int) -> str:
    return (f"{number:06}" + "é" * size)[:size]


def test_frames_of_every_size_come_whole_and_in_order() -> None:
    said = [text(number, size) for number, size in enumerate(SIZES * 20)]

    async def talk(send: Send, receive: Any) -> None:
        for one in said:
            await send({"type": "websocket.send", "text": one})
        await receive()

    with serving(talk) as (url, _), connect(url, proxy=None, max_size=None) as socket:
        assert [socket.recv(WAIT) for _ in said] == said


def test_what_was_said_before_the_end_comes_before_it() -> None:
    async def talk(send: Send, receive: Any) -> None:
        for number in range(100):
            await send({"type": "websocket.send", "text": str(number)})
        await send({"type": "websocket.close", "code": 4401, "reason": "not-authenticated"})

    with serving(talk) as (url, _), connect(url, proxy=None) as socket:
        assert [socket.recv(WAIT) for _ in range(100)] == [str(number) for number in range(100)]
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(WAIT)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


def test_what_was_said_before_the_server_stops_comes_before_its_close() -> None:
    stopping: list[uvicorn.Server] = []

    async def talk(send: Send, receive: Any) -> None:
        await send({"type": "websocket.send", "text": "last words"})
        stopping[0].should_exit = True
        await receive()

    with serving(talk) as (url, server):
        stopping.append(server)
        with connect(url, proxy=None) as socket:
            assert socket.recv(WAIT) == "last words"
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(WAIT)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012


def test_a_reader_that_does_not_read_holds_the_sender_back() -> None:
    sent = 0
    many = 1_000

    async def talk(send: Send, receive: Any) -> None:
        nonlocal sent
        for number in range(many):
            await send({"type": "websocket.send", "text": text(number, 256 * 2**10)})
            sent += 1
        await receive()

    with serving(talk) as (url, _), connect(url, proxy=None, max_size=None, max_queue=1) as socket:
        before, end = -1, time.monotonic() + WAIT
        while before != sent:
            assert time.monotonic() < end
            before = sent
            time.sleep(0.5)
        assert sent < many // 2
        assert [socket.recv(WAIT)[:6] for _ in range(many)] == [f"{number:06}" for number in range(many)]
    assert sent == many


def test_nobody_is_told_anything_after_it_is_gone() -> None:
    told: list[BaseException] = []
    over = threading.Event()

    async def talk(send: Send, receive: Any) -> None:
        while (await receive())["type"] != "websocket.disconnect":
            pass
        try:
            for _ in range(10):
                await send({"type": "websocket.send", "text": "anyone?"})
                await asyncio.sleep(0)
        except OSError as error:
            told.append(error)
        over.set()

    with serving(talk) as (url, _):
        with connect(url, proxy=None):
            pass
        assert over.wait(WAIT)
    assert told
