"""WebSockets whose frames leave together.

Guarantees: the frames that are sent in one turn of the event loop leave in one write, in the order in which they were
sent, so that a reader of many subscriptions costs one encryption and one system call, not one a frame. At most
`MAX_HELD_BYTES` and one frame are held until the turn ends; a reader that does not keep up holds its sender back, as
ever, and gets no answers to its pings meanwhile. Nothing is written after a frame that closes the connection, and a
client that does not answer it within LEAVE_SECONDS is not waited for.
Leaves out: everything else of WebSocket, which is the server's.
"""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from headgate.gateway.http.send_queue import LEAVE_SECONDS, Outgoing

MAX_HELD_BYTES: Final = 64 * 2**10
"""Bytes of frames that wait for the end of the turn."""

_TEXT: Final = 0x81
"""A whole message of text."""
_LONG: Final = 126
_LONGEST: Final = 127
"""What stands for a length of two bytes, and of eight."""


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
        """Say what is left to say, and close."""
        self._write()
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
