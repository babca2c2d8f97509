"""How connections come in, and how little a stranger can hold open.

Guarantees: never more connections than `limits.connections`, handshakes under way included, and of one address never
more strangers than `limits.unauthenticated_per_address`; what is past either is closed before anything is spent on it.
Strangers who say nothing do not keep others of their address out: the one that came first of those that have kept us
waiting for QUIET_SECONDS makes room. A connection that does not finish its TLS handshake in HANDSHAKE_SECONDS or the
head of a request in HEAD_SECONDS, sends a head of more than MAX_HEAD_BYTES, in however many reads, or a body slower
than BODY_RATE, is closed. What is written to it goes through `send_queue`. No answer is kept by a cache, read as
another type than it has, shown in a frame, or the reason for which anything else is loaded; over TLS browsers are told
to come back with TLS only. What an answer says itself goes first.
Leaves out: what is done for those who are known, which is the application's to bound.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from headgate.gateway.http.send_queue import LEAVE_SECONDS, WRITE_SECONDS, Outgoing, limit_unsent
from headgate.node.logs import Application, Receive, Scope, Send
from headgate.protocol import messages as wire
from headgate.protocol.problems import told

HEAD_SECONDS: Final = 10.0
"""How long a client may take over the head of a request, from the moment it connects or begins one."""

HANDSHAKE_SECONDS: Final = 10.0  # how long a TLS handshake may take
MAX_HEAD_BYTES: Final = 65_536  # bytes of the head of a request
MAX_HELLO_BYTES: Final = 16_384  # bytes of the first message of a TLS handshake; TLS has no longer ones
BODY_SECONDS: Final = 30.0  # how long a body may take before its speed is looked at
BODY_RATE: Final = 1_024  # bytes a second below which a body is given up

QUIET_SECONDS: Final = 1.0
"""How long a stranger may keep us waiting for a request when its address has as many connections as it may have."""

BACKLOG: Final = 2_048  # connections that the kernel keeps waiting
ACCEPT_PAUSE: Final = 0.1  # seconds to wait when the machine cannot take another connection
_LINE_BYTES: Final = 4  # of a line of the head: its colon, a space and its end
_RECORD_HEAD: Final = 5
_HANDSHAKE: Final = 22  # what a TLS record begins with, and the first byte of one that is part of a handshake


HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
OVER_TLS: Final = ((b"strict-transport-security", b"max-age=31536000"),)


def _refusal(line: bytes, refused: wire.Problem) -> bytes:
    """A whole answer, for what comes before a request can be told from noise."""
    body = wire.encode(refused)
    head = (
        b"HTTP/1.1 " + line,
        b"content-type: " + wire.PROBLEM.encode(),
        b"content-length: " + str(len(body)).encode(),
        b"connection: close",
        *(name + b": " + value for name, value in HEADERS),
    )
    return b"\r\n".join((*head, b"", body))


_TOO_LARGE: Final = _refusal(
    b"431 Request Header Fields Too Large",
    told(431, "head-too-large", f"the head of the request is larger than {MAX_HEAD_BYTES} bytes", "send less in it"),
)
_NOT_HTTP: Final = _refusal(b"400 Bad Request", told(400, "bad-request", "this is not an HTTP request"))


Strangers = dict[str, dict["Visit", None]]
"""The connections of strangers, by address, in the order in which they came."""


class Visit:
    """A connection of a stranger, counted until its client is known or gone."""

    __slots__ = ("_address", "_strangers", "end", "quiet_since")

    def __init__(self, address: str, strangers: Strangers, now: float) -> None:
        self._address = address
        self._strangers: Strangers | None = strangers
        self.quiet_since: float | None = now
        """Since when it is waited for a request, if it is."""
        self.end: Callable[[], object] = lambda: None
        """Closes it, whatever it is doing."""
        strangers.setdefault(address, {})[self] = None

    def known(self) -> None:
        """It counts no longer; once is as good as twice."""
        strangers, self._strangers = self._strangers, None
        if strangers is not None:
            del strangers[self._address][self]
            if not strangers[self._address]:
                del strangers[self._address]

    def is_quiet(self, now: float) -> bool:
        """Has it kept us waiting?"""
        return self.quiet_since is not None and now - self.quiet_since >= QUIET_SECONDS


class _HeadTooLarge(Exception):
    """Stops the parser."""


class LimitedConnection(HttpToolsProtocol):
    """One HTTP connection, with a limit on how long and how large a request may be on its way."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        visit: Visit | None = None,
        patience: float = WRITE_SECONDS,
    ) -> None:
        self._visit = visit
        self._patience = patience
        self._outgoing: Outgoing | None = None
        # Every request and every WebSocket of this connection can say that its client is known (`logs.Access`), and
        # that it is over (`outgoing.abort_of`).
        state = {**app_state, "abort": self.abort, **({} if visit is None else {"known": visit.known})}
        super().__init__(config, server_state, state, _loop)
        self._timer: asyncio.TimerHandle | None = None
        self._received = 0
        self._head = 0
        self._reading_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        self._outgoing = Outgoing(transport, self.loop, self._patience)
        super().connection_made(cast("asyncio.Transport", self._outgoing))
        if self._visit is not None:
            self._visit.end = self.abort
        self._await_head()

    def abort(self) -> None:
        """End the connection at once, whatever waits to be sent."""
        if self._outgoing is not None:
            self._outgoing.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._stop_waiting()
        if self._visit is not None:
            self._visit.known()
        super().connection_lost(exc)
        if self._outgoing is not None:
            self._outgoing.lost()

    def data_received(self, data: bytes) -> None:
        """Take in bytes, and close if a head grows too large."""
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        self._received += len(data)
        super().data_received(data)
        if self._reading_head and self._timer is not None and self._received > MAX_HEAD_BYTES:
            self._stop_waiting()
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what is not HTTP, or has too large a head, as everything is refused."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.abort()  # what is being answered cannot be answered otherwise
            return
        self.transport.write(_TOO_LARGE if self._head > MAX_HEAD_BYTES else _NOT_HTTP)
        self.transport.close()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._head = 0
        if not self._reading_head:
            self._await_head()

    def on_url(self, url: bytes) -> None:
        """A part of the path."""
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head, or after the body."""
        self._grow(len(name) + len(value) + _LINE_BYTES)
        super().on_header(name, value)

    def _grow(self, more: int) -> None:
        """Count the head of a request as it is read, however much of it came at once."""
        self._head += more
        if self._head > MAX_HEAD_BYTES:
            self._stop_waiting()
            raise _HeadTooLarge

    def on_headers_complete(self) -> None:
        """The head is there; the body may take longer."""
        self._stop_waiting()
        self._reading_head = False
        self._received = 0
        self._timer = self.loop.call_later(BODY_SECONDS, self._slow_body, BODY_SECONDS)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is there."""
        self._stop_waiting()
        self._note_quiet(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """It is answered, and the next one may come."""
        self._note_quiet(self.loop.time())
        super().on_response_complete()

    def _note_quiet(self, since: float | None) -> None:
        if self._visit is not None:
            self._visit.quiet_since = since

    def handle_websocket_upgrade(self) -> None:
        """From here on it is a WebSocket, whose own protocol has its own limits."""
        self._stop_waiting()
        self._note_quiet(None)
        super().handle_websocket_upgrade()

    def _await_head(self) -> None:
        self._stop_waiting()
        self._reading_head = True
        self._received = 0
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _slow_body(self, seconds: float) -> None:
        if self._received < seconds * BODY_RATE:
            self._give_up()
        else:
            self._timer = self.loop.call_later(BODY_SECONDS, self._slow_body, seconds + BODY_SECONDS)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        self.transport.abort()


@dataclass(slots=True)
class Door:
    """Accepts the connections of one listening socket, as `asyncio.Server` would, within limits."""

    listener: socket.socket
    connect: Callable[[Visit], asyncio.Protocol]
    connected: Callable[[], int]
    tls: ssl.SSLContext | None
    most: int
    most_strangers: int
    patience: float = WRITE_SECONDS
    turned: Counter[str] = field(default_factory=Counter)
    """How many connections were closed at the door: `full`, `strangers`, `silent`, `failed`."""
    _strangers: Strangers = field(default_factory=dict)
    _shaking: set[asyncio.Task[None]] = field(default_factory=set)
    _accepting: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to accept."""
        self.listener.setblocking(False)
        self.listener.listen(BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Accept no more."""
        if self._accepting is not None:
            self._accepting.cancel()
        for task in self._shaking:
            task.cancel()
        self.listener.close()

    async def wait_closed(self) -> None:
        """Wait until nothing is on its way in."""
        tasks = [*self._shaking, *([self._accepting] if self._accepting is not None else [])]
        if tasks:
            await asyncio.wait(tasks)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:  # until it is cancelled
            try:
                came, address = await loop.sock_accept(self.listener)
            except OSError:  # no more files, or the client is gone already
                if self.listener.fileno() < 0:
                    return
                self.turned["failed"] += 1
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            host = address[0] if isinstance(address, tuple) else ""
            if self.connected() + len(self._shaking) >= self.most:
                self.turned["full"] += 1
                came.close()
            elif not self._has_room(host, loop.time()):
                self.turned["strangers"] += 1
                came.close()
            else:
                visit = Visit(host, self._strangers, loop.time())
                task = loop.create_task(self._shake(came, visit))
                visit.end = task.cancel
                self._shaking.add(task)
                task.add_done_callback(self._shaking.discard)

    def _has_room(self, host: str, now: float) -> bool:
        """May another stranger come from there? If there are many, the first who says nothing has to go."""
        there = self._strangers.get(host, {})
        if len(there) < self.most_strangers:
            return True
        quiet = next((one for one in there if one.is_quiet(now)), None)
        if quiet is None:
            return False
        self.turned["silent"] += 1
        quiet.known()
        quiet.end()
        return True

    async def _shake(self, came: socket.socket, visit: Visit) -> None:
        """Hand a connection over to its protocol, after the TLS handshake if there is to be one."""
        loop = asyncio.get_running_loop()
        shake, leave = (None, None) if self.tls is None else (HANDSHAKE_SECONDS, LEAVE_SECONDS)
        try:
            came.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            limit_unsent(came, self.patience)
            if self.tls is not None:
                await _greeted(came)
            await loop.connect_accepted_socket(
                lambda: self.connect(visit),
                came,
                ssl=self.tls,
                ssl_handshake_timeout=shake,
                ssl_shutdown_timeout=leave,
            )
        except (OSError, asyncio.CancelledError, EOFError):  # ssl.SSLError is an OSError
            self.turned["failed"] += 1
            visit.known()
            with suppress(OSError):
                came.close()


async def _greeted(came: socket.socket) -> None:
    """Wait until the first message of a TLS handshake is there, whole.

    The kernel keeps what has come of it, so one who says nothing, or only half of it, costs a socket and no more.
    """
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        await _holds(came, _RECORD_HEAD)
        head = came.recv(_RECORD_HEAD, socket.MSG_PEEK)
        length = int.from_bytes(head[-2:])
        if len(head) < _RECORD_HEAD or head[0] != _HANDSHAKE or not 0 < length <= MAX_HELLO_BYTES:
            raise ConnectionAbortedError("not the beginning of a TLS handshake")
        await _holds(came, _RECORD_HEAD + length)
    came.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _holds(came: socket.socket, count: int) -> None:
    """Wait until a socket holds so many bytes, or is at its end."""
    came.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(came, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(came)


# -- what every answer says ------------------------------------------------------------------------------------

_DENIAL: Final = "websocket.http.response"
_STARTS: Final = ("http.response.start", "websocket.http.response.start", "websocket.accept")


class Hardened:
    """An application whose answers carry these headers."""

    def __init__(self, app: Application, *, tls: bool) -> None:
        self._app = app
        self._headers = (*HEADERS, *(OVER_TLS if tls else ()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        begun = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if message["type"] == "websocket.close" and not begun and _DENIAL in scope.get("extensions", {}):
                # The server would answer by itself, and say nothing of this.
                await sending({"type": "websocket.http.response.start", "status": 403, "headers": []})
                message = {"type": "websocket.http.response.body", "body": b""}
            if message["type"] in _STARTS:
                begun = True
                said = list(message.get("headers", ()))
                known = {bytes(name).lower() for name, _ in said}
                message["headers"] = [*said, *(one for one in self._headers if one[0] not in known)]
            await send(message)

        await self._app(scope, receive, sending)
