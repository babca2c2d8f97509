"""Reading a subscription: an asynchronous iterator that survives disconnections.

Guarantees: deliveries come in the order of each stream, and none comes twice out of one `Subscription`, whatever
happens to the connections. With `ack="auto"` a delivery is acknowledged when the next one is asked for; with `"manual"`
when its `ack()` is called. What retention took before it was read is raised as `Gap`, in its place; then it goes on.
Leaves out: what happened to a delivery that was taken but not acknowledged when the program ended; it comes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

from headgate.client.channel import Channel, ReceivedFrame
from headgate.client.errors import ClientClosed, SubscriptionEnded, refusal
from headgate.client.inbox import MAX_UNACKNOWLEDGED, WINDOW, Delivery, Inbox
from headgate.model.errors import BadDefinition, HeadgateError, NotFound
from headgate.model.values import brief

Ack: TypeAlias = Literal["auto", "manual"]

SETTLE_SECONDS: Final = 5.0
"""How long closing waits for acknowledgements to be confirmed."""


class Subscription:
    """A subscription that is being read."""

    def __init__(
        self,
        channel: Channel,
        id: str,
        type: str,
        *,
        ack: Ack = "auto",
        window: int = WINDOW,
        most: int = MAX_UNACKNOWLEDGED,
        remake: Callable[[], Awaitable[object]] | None = None,
        remove: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        if ack not in ("auto", "manual"):
            raise BadDefinition(f"`{brief(ack)}` is no way to acknowledge", remedy='write "auto" or "manual"')
        self.id = id
        self.type = type
        self._channel = channel
        self._ack = ack
        self._inbox = Inbox(id, window, most)
        self._inbox.acknowledge = self._acknowledge
        self._remake = remake  # makes a temporary subscription again
        self._remove = remove  # ends a temporary subscription
        self._news = asyncio.Event()
        self._error: HeadgateError | None = None
        self._opened = False  # on this connection
        self._mending: asyncio.Task[None] | None = None
        self._closed = False
        channel.attach(id, self)

    # -- reading ----------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        found = await self.next()
        assert found is not None, "without a timeout there is no end to waiting"
        return found

    async def next(self, timeout: float | None = None) -> Delivery | None:
        """The next delivery; None if none comes within so many seconds."""
        found = await self.take(1, timeout)
        return found[0] if found else None

    async def take(self, limit: int, timeout: float | None = None) -> list[Delivery]:
        """Deliveries that are there, at most `limit`; waits for the first, and returns none after `timeout` seconds."""
        if self._ack == "auto":
            self._acknowledge(self._inbox.last_taken)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    self._news.clear()
                    if found := self._inbox.take(limit):
                        self._channel.wake()
                        return found
                    if self._closed:
                        raise StopAsyncIteration
                    if self._error is not None:
                        raise self._error
                    await self._news.wait()
        return []

    def _acknowledge(self, number: int) -> None:
        self._inbox.acknowledge_through(number)
        self._channel.wake()

    def acknowledge_through(self, number: int) -> None:
        """Everything up to the delivery of this number has been dealt with."""
        self._acknowledge(number)

    async def ack(self) -> None:
        """Acknowledge everything that was taken, and wait until the gateway has made it durable."""
        self._acknowledge(self._inbox.last_taken)
        await self.settled()

    async def settled(self) -> None:
        """Wait until everything is confirmed that was acknowledged."""
        while not self._inbox.settled:
            if self._error is not None:
                raise self._error
            self._news.clear()
            await self._news.wait()

    async def close(self) -> None:
        """Stop reading. What was acknowledged is confirmed first; a temporary subscription ends."""
        if self._closed:
            return
        with suppress(TimeoutError, HeadgateError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self.settled()
        self._closed = True
        if self._mending is not None:
            self._mending.cancel()
        self._news.set()
        self._channel.detach(self.id, {"op": "close", "subscription": self.id} if self._opened else None)
        if self._remove is not None and not isinstance(self._error, ClientClosed):
            with suppress(HeadgateError):  # without a reader it ends by itself
                await self._remove()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- what the channel calls -------------------------------------------------------------------------------

    def begin(self) -> None:
        """There is a new connection."""
        self._opened = False
        if self._mending is None:
            self._inbox.begin()

    def frames(self) -> list[dict[str, Any]]:
        """What is to be said now."""
        return [] if self._mending is not None else self._inbox.frames()

    def hear(self, frame: ReceivedFrame) -> None:
        """A frame for this subscription came."""
        match frame.op:
            case "opened":
                self._opened = True
            case "events" if self._opened:  # before that they are for an earlier reader of the same name
                self._inbox.receive(frame.events)
            case "acked":
                self._inbox.confirm()
            case "gap":
                self._inbox.gap(frame.detail or "")
            case "closed" if frame.subscription:
                self._end(frame)
            case "problem" if frame.subscription:
                self._problem(frame)
            case _:
                return
        self._channel.wake()  # a confirmation lets the next acknowledgement go
        self._news.set()

    def fail(self, error: HeadgateError) -> None:
        """There will be no more."""
        self._error = error
        self._news.set()

    def _end(self, frame: ReceivedFrame) -> None:
        self._channel.detach(self.id)
        reason = frame.code or "ended"
        self._error = SubscriptionEnded(
            frame.detail or f"the subscription `{brief(self.id)}` ended ({brief(reason)})",
            reason=reason,
            remedy="subscribe again if that was not meant",
        )

    def _problem(self, frame: ReceivedFrame) -> None:
        error = refusal({"code": frame.code, "detail": frame.detail, "remedy": frame.remedy, "place": frame.place})
        if error.code != NotFound.code:
            self._channel.detach(self.id)
            self._error = error
        elif self._opened:
            self._inbox.confirm()  # it ended, so nothing is left to acknowledge; `closed` comes after its last delivery
        elif self._remake is None:
            self._end(frame)
        elif self._mending is None:
            self._mending = asyncio.create_task(self._mend())

    async def _mend(self) -> None:
        """Make a temporary subscription again that ended while there was no connection."""
        assert self._remake is not None
        try:
            await self._remake()
        except HeadgateError as error:
            self._channel.detach(self.id)
            self.fail(error)
            return
        self._mending = None
        self._inbox.forget()
        self._inbox.begin()
        self._inbox.gap("the temporary subscription ended while there was no connection, and was made again")
        self._channel.wake()
        self._news.set()


class Watch:
    """Whether anybody may and wants to receive what one advertises: an iterator over what changes."""

    def __init__(self, channel: Channel, types: Sequence[str]) -> None:
        self._channel = channel
        self.types = tuple(dict.fromkeys(types))
        self._told: dict[str, bool] = {}
        self._changed: dict[str, bool] = {}  # the newest of each type, so that it never grows
        self._news = asyncio.Event()
        self._asked = False
        self._error: HeadgateError | None = None
        self._key = f"watch {id(self)}"
        channel.attach(self._key, self)

    def __aiter__(self) -> AsyncIterator[tuple[str, bool]]:
        return self

    async def __anext__(self) -> tuple[str, bool]:
        while not self._changed:
            if self._error is not None:
                raise self._error
            self._news.clear()
            await self._news.wait()
        name = next(iter(self._changed))
        return name, self._changed.pop(name)

    async def close(self) -> None:
        """Stop watching."""
        self._channel.detach(self._key)
        self.fail(ClientClosed("the watch is closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def begin(self) -> None:
        """There is a new connection."""
        self._asked = False

    def frames(self) -> list[dict[str, Any]]:
        """What is to be said now: a gateway knows of one watch for a connection, so it is that of all together."""
        if self._asked:
            return []
        self._asked = True
        return [{"op": "watch", "types": self._channel.watched()}]

    def hear(self, frame: ReceivedFrame) -> None:
        """A frame for no subscription came."""
        if frame.op == "quench" and frame.type in self.types and frame.wanted is not None:
            if self._told.get(frame.type) is not frame.wanted:
                self._changed.pop(frame.type, None)
                self._told[frame.type] = self._changed[frame.type] = frame.wanted
        elif frame.op == "problem" and frame.subscription is None:
            self._channel.detach(self._key)
            self._error = refusal({"code": frame.code, "detail": frame.detail, "remedy": frame.remedy})
        self._news.set()

    def fail(self, error: HeadgateError) -> None:
        """There will be no more."""
        self._error = error
        self._news.set()
