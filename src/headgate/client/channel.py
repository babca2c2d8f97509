"""One WebSocket for all subscriptions of a client, made again whenever it breaks.

Guarantees: after any disconnection the readers are opened again, at another gateway if need be, and resume where they
have acknowledged; so they are when a gateway says that it cannot serve one now. What is waiting to be sent is not
queued but asked of the readers when the socket has room, so memory stays bounded. What cannot be mended (the right to
connect is lost, no gateway answers in time) reaches every reader.
Leaves out: what the frames of a subscription mean to its reader (`inbox`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, Self

import msgspec
from msgspec import Struct
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from headgate.client.errors import ClientClosed, Refused, Unreachable, refusal, unexpected
from headgate.client.gateways import ANSWER_SECONDS, CONNECT_SECONDS, GatewayLink, Patience, Tries, Trouble, decoded
from headgate.client.session import ClientSession
from headgate.model.errors import ConnectDenied, HeadgateError

SUBPROTOCOL: Final = "headgate.v1"
MAX_FRAME_BYTES: Final = 64 * 2**20  # bytes of one frame from a gateway
MAX_WAITING_FRAMES: Final = 16  # frames that the socket reads ahead
LINGER: Final = 0.01  # seconds for which acknowledgements are gathered before they are sent


class _Codes(IntEnum):
    """Why a gateway closes a socket."""

    MALFORMED = 4400
    SESSION_ENDED = 4401
    MAY_NOT_CONNECT = 4403


class DeliveredEvent(Struct, omit_defaults=True):
    """A delivery on the wire: a CloudEvent, with who published it and its position."""

    id: str
    source: str
    type: str
    hgpublisher: str = ""
    hgposition: str = ""
    specversion: str = "1.0"
    time: datetime | None = None
    datacontenttype: str | None = None
    data: dict[str, Any] | None = None
    hgcontributors: str = ""
    hgtime: datetime | None = None


class ReceivedFrame(Struct):
    """Anything that a gateway says; `op` tells which of the rest is there."""

    op: str
    subscription: str | None = None
    events: list[DeliveredEvent] = []
    type: str | None = None
    wanted: bool | None = None
    code: str | None = None
    detail: str | None = None
    remedy: str | None = None
    place: str | None = None
    status: int | None = None


class ChannelReader(ABC):
    """Whoever hears of a subscription, or of what is wanted; leaving its context closes it."""

    types: tuple[str, ...] = ()  # that it watches

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._news = asyncio.Event()
        self._error: HeadgateError | None = None

    @abstractmethod
    def begin(self) -> None:
        """There is a new connection."""

    @abstractmethod
    def hear(self, frame: ReceivedFrame) -> None:
        """A frame for this reader came."""

    @abstractmethod
    def frames(self) -> list[dict[str, Any]]:
        """What is to be said now."""

    def fail(self, error: HeadgateError) -> None:
        """There will be no more."""
        self._error = error
        self._news.set()

    async def _next_news(self) -> None:
        """Wait until something comes; there is no more after an error."""
        if self._error is not None:
            raise self._error
        self._news.clear()
        await self._news.wait()

    @abstractmethod
    async def close(self) -> None:
        """Stop reading."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Dial(dial):
    """Connecting without following redirects, which could lead the token elsewhere."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Take a redirect for the failure that it is."""
        return exc


class Channel:
    """The socket, its readers, and the task that keeps it open while there are any."""

    def __init__(self, session: ClientSession, patience: Patience) -> None:
        self._session = session
        self._patience = patience
        self._readers: dict[str, ChannelReader] = {}
        self._parting: list[dict[str, Any]] = []  # what detached readers leave to be said
        self._ready = asyncio.Event()  # a reader has something to say
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._refused: HeadgateError | None = None  # why this connection is of no use now

    def attach(self, key: str, reader: ChannelReader) -> None:
        """Open a reader, now and on every later connection."""
        if self._closed:
            raise ClientClosed("the client is closed", remedy="connect again")
        if key in self._readers:
            raise Refused(f"`{key}` is being read already by this client", code="already-read", remedy="close it first")
        self._readers[key] = reader
        reader.begin()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep())
            self._task.add_done_callback(self._ended)
        self.wake()

    def watched(self) -> list[str]:
        """Every type that a reader watches."""
        return list(dict.fromkeys(name for reader in self._readers.values() for name in reader.types))

    def detach(self, key: str, parting: dict[str, Any] | None = None) -> None:
        """Forget a reader; on this connection its last words are still said."""
        if self._readers.pop(key, None) is not None and parting is not None:
            self._parting.append(parting)
            self.wake()
        if not self._readers and self._task is not None:
            self._task.cancel()
            self._task = None

    def give_up(self, why: HeadgateError) -> None:
        """The gateway cannot do now what a reader asks: it is asked again over another connection, after a pause."""
        self._refused = why

    def wake(self) -> None:
        """A reader has something to say."""
        self._ready.set()

    async def close(self) -> None:
        """Close the socket; readers are told that it is over."""
        self._closed = True
        self._fail(ClientClosed("the client is closed", remedy="connect again"))
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _fail(self, error: HeadgateError) -> None:
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.fail(error)

    # -- keeping it open --------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Connect, and connect again, until there is no reader or no hope."""
        tries, was_refused = self._tries(), False
        try:
            while self._readers:
                socket, gateway = await self._connect(tries)
                try:
                    heard = await self._serve(socket)
                finally:
                    await _hang_up(socket)
                self._judge(socket, gateway)
                refused = self._refused
                # Before something was confirmed, whoever refuses has only said the same again.
                if "acked" in heard or (heard and not (refused and was_refused)):
                    tries = self._tries()
                was_refused = refused is not None
                if (refused or not heard) and not await tries.again():
                    raise refused or Unreachable(
                        "no gateway keeps a WebSocket open", [f"{gateway.address.http}: {_end(socket)}"]
                    )
        except HeadgateError as error:
            self._fail(error)

    def _tries(self) -> Tries:
        return Tries(self._patience, self._session.timing)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """What nobody foresaw must not leave readers waiting."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(Unreachable("the WebSocket failed", [repr(error)]))

    async def _connect(self, tries: Tries) -> tuple[ClientConnection, GatewayLink]:
        tried: list[str] = []
        renewed = False
        while True:
            gateway = self._session.ring.current
            last: HeadgateError | None = None
            try:
                token = await self._session.token(gateway)
                return await _open(gateway, token), gateway
            except Trouble as trouble:
                tried.append(str(trouble))
            except InvalidStatus as refused:
                last = _refusal(gateway, refused)
                tried.append(f"{gateway.address.http}: {last.message}")
                status = refused.response.status_code
                if not renewed and self._session.may_come_back(status, last):
                    renewed = True
                    self._session.refuse(token)
                    continue
                if status < 500:
                    raise last from None
            except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed, EOFError) as error:
                tried.append(f"{gateway.address.http}: {str(error) or type(error).__name__}")
            self._session.ring.leave(gateway)
            if not await tries.again():
                raise last or Unreachable("no gateway takes a WebSocket", tried)

    async def _serve(self, socket: ClientConnection) -> set[str]:
        """Say what readers have to say and tell them what comes, until the socket closes; the kinds of what came."""
        self._parting, self._refused = [], None
        for reader in self._readers.values():
            reader.begin()
        self._ready.set()
        speaking = asyncio.create_task(self._speak(socket))
        heard: set[str] = set()
        try:
            while self._refused is None:
                heard.add(self._hear(await socket.recv()))
                await asyncio.sleep(0)  # frames that are there already must not keep readers from their turn
        except ConnectionClosed:
            pass
        finally:
            speaking.cancel()
            with suppress(asyncio.CancelledError, ConnectionClosed):
                await speaking
        return heard - {"problem"}

    async def _speak(self, socket: ClientConnection) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            parting, self._parting = self._parting, []
            for frame in parting:
                await socket.send(msgspec.json.encode(frame).decode())
            for reader in list(self._readers.values()):
                for frame in reader.frames():
                    await socket.send(msgspec.json.encode(frame).decode())
            await asyncio.sleep(LINGER)

    def _hear(self, message: str | bytes) -> str:
        frame = decoded(ReceivedFrame, message, "the gateway")
        if frame.subscription is not None:
            heard = [self._readers[frame.subscription]] if frame.subscription in self._readers else []
        else:
            heard = list(self._readers.values())
        for reader in heard:
            reader.hear(frame)
        return frame.op

    def _judge(self, socket: ClientConnection, gateway: GatewayLink) -> None:
        """What follows from how the socket ended."""
        match socket.close_code:
            case _Codes.SESSION_ENDED:
                self._session.expire()
            case _Codes.MAY_NOT_CONNECT if self._session.wallet:
                self._session.wallet.spoil()  # it may have rested on what has ended, and is there again
                self._session.expire()
            case _Codes.MAY_NOT_CONNECT:
                raise ConnectDenied("the right to connect was taken away", remedy="ask the domain's administrator")
            case _Codes.MALFORMED:
                raise unexpected(gateway.address.http, socket.close_reason or "it does not understand this client")
            case _:
                self._session.ring.leave(gateway)


async def _open(gateway: GatewayLink, token: str) -> ClientConnection:
    if not gateway.is_proven:
        raise Trouble(gateway.address.http, "the broker has not proven itself here", sent=False)
    return await _Dial(
        gateway.address.socket,
        ssl=gateway.context,
        proxy=None,
        subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
        additional_headers={**gateway.headers, "Authorization": f"Bearer {token}"},
        compression=None,
        max_size=MAX_FRAME_BYTES,
        max_queue=MAX_WAITING_FRAMES,
        open_timeout=CONNECT_SECONDS + ANSWER_SECONDS,
        user_agent_header="headgate-client",
    )


def _end(socket: ClientConnection) -> str:
    return f"it closed with {socket.close_code} {socket.close_reason or ''}".rstrip()


async def _hang_up(socket: ClientConnection) -> None:
    with suppress(ConnectionClosed, OSError, TimeoutError):
        await asyncio.wait_for(socket.close(), CONNECT_SECONDS)


def _refusal(gateway: GatewayLink, refused: InvalidStatus) -> HeadgateError:
    status = refused.response.status_code
    try:
        problem = msgspec.json.decode(refused.response.body or b"", type=dict[str, Any])
    except msgspec.DecodeError:
        if status == 401:
            return refusal({"code": "not-authenticated", "detail": "the gateway does not take this session"})
        if status == 403:
            return refusal({"code": "connect-denied", "detail": "the gateway does not let this principal in"})
        return unexpected(gateway.address.socket, f"status {status}")
    return refusal(problem, status=status)
