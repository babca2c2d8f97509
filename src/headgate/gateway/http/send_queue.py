"""What waits to be read by clients, and for how long.

Guarantees: a connection whose client takes nothing of what is written to it for `limits.write_timeout` is aborted, and
one that was closed here is aborted after LEAVE_SECONDS if its client has not taken the rest by then. An answer that
ends with a session (`ending_with`) has LEAVE_SECONDS from the session's end; then its connection is aborted, with all
that was kept for it, in the kernel too. Of an answer that is streamed (`Streamed`) no more than a slice is handed over
before what went before it is taken, and the kernel is given no more than MAX_UNSENT_BYTES that the network has no room
for. Frames of a WebSocket that are sent in one turn of the event loop leave in one write, in their order, so that a
reader of many subscriptions costs one encryption and one system call, not one a frame; at most MAX_HELD_BYTES and one
frame are held until the turn ends. A reader that does not keep up holds its sender back, as ever, and gets no answers
to its pings meanwhile. Nothing is written after a frame that closes the connection.
Leaves out: how much is read for a client (`push`, `poll`), and clients that send too slowly (`connection_limits`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from starlette.responses import StreamingResponse
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

WRITE_SECONDS: Final = 60.0
"""How long a client may take nothing of what is written to it, where no setting says otherwise."""

LEAVE_SECONDS: Final = 5.0
"""How long a connection that is over may take to hear of it; what it still sends is thrown away."""

SLICE_BYTES: Final = 64 * 2**10  # bytes of an answer that are handed over at a time
MAX_UNSENT_BYTES: Final = 256 * 2**10  # bytes of a connection that the kernel keeps before they are on their way
_RESET: Final = struct.pack("ii", 1, 0)  # to close at once and throw away what was not sent


class Outgoing:
    """A transport, to a protocol; it watches whether anything of what is written is taken."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        transport.set_write_buffer_limits(SLICE_BYTES)  # TLS would keep more
        self._transport = transport
        self._loop = loop
        self._patience = patience
        self._written = 0
        self._taken = 0
        self._gone = False
        self._watch: asyncio.TimerHandle | None = None
        self._leave: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, and begin to watch if it is not taken at once; once the connection is gone, that goes nowhere."""
        if self._gone:  # of requests sent at once only the last is told, and uvloop refuses what others write
            return
        self._written += len(data)
        self._transport.write(data)
        if self._watch is None and self._transport.get_write_buffer_size():
            self._look()

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write some pieces as one."""
        self.write(b"".join(pieces))

    def close(self) -> None:
        """Close once everything is taken, or after LEAVE_SECONDS."""
        if self._gone:
            return
        self._transport.close()
        if self._leave is None:
            self._leave = self._loop.call_later(LEAVE_SECONDS, self.abort)

    def abort(self) -> None:
        """Close at once, and forget what was not sent; if everything was, the client sees a proper end."""
        if self._gone:
            return
        self.lost()
        if self._transport.get_write_buffer_size():
            opened = self._transport.get_extra_info("socket")
            with suppress(OSError, AttributeError):  # it is closed already
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def lost(self) -> None:
        """The connection is gone: there is nothing left to watch."""
        self._gone = True
        for timer in (self._watch, self._leave):
            if timer is not None:
                timer.cancel()
        self._watch = self._leave = None

    def _look(self) -> None:
        """Look again a little later, as long as something waits; abort if nothing of it was taken since."""
        self._taken = self._written - self._transport.get_write_buffer_size()
        self._watch = self._loop.call_later(self._patience, self._looked)

    def _looked(self) -> None:
        self._watch = None
        waiting = self._transport.get_write_buffer_size()
        if waiting and self._written - waiting <= self._taken:  # less, where TLS adds to what it keeps
            self.abort()
        elif waiting:
            self._look()


def limit_unsent(opened: socket.socket, patience: float) -> None:
    """Let the kernel keep little that is not sent, and give up on who does not confirm it, where it can."""
    with suppress(OSError, AttributeError):  # other systems have neither
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience * 1_000))


# -- answers that end -----------------------------------------------------------------------------------------


def abort_of(scope: Mapping[str, Any]) -> Callable[[], None]:
    """What aborts the connection of a request; nothing where the server has no such thing."""
    found: Callable[[], None] = scope.get("state", {}).get("abort", lambda: None)
    return found


@asynccontextmanager
async def side_by_side(*work: Awaitable[Any]) -> AsyncIterator[tuple[asyncio.Future[Any], ...]]:
    """Things that go on until one of them is done, or for so long as is waited; at the end all of them are over."""
    tasks = tuple(asyncio.ensure_future(one) for one in work)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def first_of(tasks: Iterable[asyncio.Future[Any]], seconds: float | None = None) -> None:
    """Wait until one of them is done, so long at most."""
    await asyncio.wait(tuple(tasks), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


async def ending_with(over: asyncio.Event, work: Awaitable[None], abort: Callable[[], None]) -> None:
    """Write an answer; once it is over, for LEAVE_SECONDS more, and then its connection is aborted."""
    async with side_by_side(work, over.wait()) as (writing, ended):
        await first_of((writing, ended))
        if not writing.done():
            await first_of((writing,), LEAVE_SECONDS)
        if writing.done():
            writing.result()
        else:
            abort()


class Streamed(StreamingResponse):
    """An answer that is written slice by slice, each when there is room for it, until it is over.

    What goes on for as long as the client likes stops at the end of a slice; what has a `size` is written whole.
    """

    def __init__(
        self,
        content: AsyncIterable[bytes],
        over: asyncio.Event,
        *,
        media: str,
        size: int | None = None,
        left: Callable[[], None] = lambda: None,
    ) -> None:
        headers = {} if size is None else {"content-length": str(size)}
        self._over, self._left = over, left
        self._whole = size is not None
        super().__init__(self._sliced(content), media_type=media, headers=headers)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Write it all, and leave."""
        try:
            await ending_with(self._over, super().__call__(scope, receive, send), abort_of(scope))
        finally:
            self._left()

    async def _sliced(self, content: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        async for piece in content:
            for at in range(0, len(piece), SLICE_BYTES):
                if self._over.is_set() and not self._whole:
                    return
                yield piece[at : at + SLICE_BYTES]


# -- WebSockets ------------------------------------------------------------------------------------------------

MAX_HELD_BYTES: Final = 64 * 2**10  # bytes of frames that wait for the end of the turn
_TEXT: Final = 0x81  # a whole message of text
_LONG: Final = 126
_LONGEST: Final = 127  # what stands for a length of two bytes, and of eight


class ServerSocket(WebSocketsSansIOProtocol):
    """One WebSocket of the server."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.close_timeout = LEAVE_SECONDS
        self._held: list[bytes] = []
        self._held_bytes = 0

    async def send(self, message: Any) -> None:
        """Send a message of the application."""
        text = message.get("text")
        if text is None or not self._is_plain():
            self._write()
            await super().send(message)
            return
        await self.writable.wait()
        if self.disconnected or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        self._hold(text.encode())

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        if isinstance(self.transport, Outgoing):
            self.transport.lost()

    def handle_ping(self) -> None:
        """Answer a ping, unless its client reads too little as it is (RFC 6455, 5.5.3: one may answer the last)."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def shutdown(self) -> None:
        """Say what is left to say, and close; a client that is leaving by itself has been answered."""
        self._write()
        if self.handshake_complete and self.conn.state is not State.OPEN:
            self.transport.close()
            return
        super().shutdown()

    def _is_plain(self) -> bool:
        """Is the connection made and open, with frames that go out as they are?"""
        return self.handshake_complete and not self.close_sent and not self.conn.extensions

    def _hold(self, payload: bytes) -> None:
        if not self._held:
            self.loop.call_soon(self._write)
        head = header(len(payload))
        self._held += (head, payload)
        self._held_bytes += len(head) + len(payload)
        if self._held_bytes > MAX_HELD_BYTES:
            self._write()

    def _write(self) -> None:
        """Write what is held, unless the connection is closing."""
        held, self._held, self._held_bytes = self._held, [], 0
        if held and self.conn.state is State.OPEN and not self.transport.is_closing():
            self.transport.write(b"".join(held))


def header(size: int) -> bytes:
    """What stands before a message of text of so many bytes (RFC 6455, 5.2)."""
    if size < _LONG:
        return bytes((_TEXT, size))
    if size < 2**16:
        return bytes((_TEXT, _LONG)) + size.to_bytes(2)
    return bytes((_TEXT, _LONGEST)) + size.to_bytes(8)
