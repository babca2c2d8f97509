"""Reading a subscription: an asynchronous iterator that survives disconnections.

Guarantees: deliveries come in the order of each stream, and none comes twice out of one `Subscription`, whatever
happens to the connections: every position that came in is remembered until its acknowledgement is confirmed, and what
was not taken yet when a connection broke is forgotten and comes again. No more than the window waits to be taken. With
`ack="auto"` a delivery is acknowledged when the next one is asked for, with `"manual"` when its `ack()` is called, and
all that were taken before it with it; what a gateway did not confirm is said again on the next connection. What
retention took before it was read is raised as `Gap`, in its place; then it goes on.
Leaves out: the socket (`channel`), and what happened to a delivery that was taken but not acknowledged when the program
ended; it comes again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias, cast

from headgate.client.channel import Channel, ChannelReader, DeliveredEvent, ReceivedFrame
from headgate.client.errors import ClientClosed, Gap, SubscriptionEnded, Unacknowledged, refusal, unexpected
from headgate.model.errors import BadDefinition, HeadgateError, NotFound
from headgate.model.types import SIGNAL
from headgate.model.values import brief
from headgate.protocol.messages import MAX_POSITIONS

Ack: TypeAlias = Literal["auto", "manual"]

SETTLE_SECONDS: Final = 5.0  # how long closing waits for acknowledgements to be confirmed


WINDOW: Final = 1_000  # deliveries that may come ahead of the reader
MAX_WINDOW: Final = 10_000
MAX_UNACKNOWLEDGED: Final = 100_000
"""Deliveries that may be taken without acknowledging any; each is remembered, so that it is not taken twice."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event as its receiver may see it. What it may not see, or was not said, is None in `data`.

    `time` is when it occurred, `accepted` when a gateway accepted it; mostly these are the same.
    """

    id: str
    type: str
    source: str
    publisher: str
    time: datetime | None
    data: Mapping[str, Any]
    position: str
    number: int = field(repr=False, compare=False)
    _acknowledge: Callable[[int], None] = field(repr=False, compare=False)
    accepted: datetime | None = field(default=None, compare=False)

    def ack(self) -> None:
        """This delivery, and all that were taken before it, need not come again. It is said soon, not at once."""
        self._acknowledge(self.number)


@dataclass(frozen=True, slots=True)
class Signal(Delivery):
    """An occurrence of a composite event: its `time`, the `bindings` of its variables, and its `position`.

    `contributors` are positions of the first of the events that it rests on; an explanation tells of them all.
    """

    contributors: tuple[str, ...] = ()

    @property
    def bindings(self) -> Mapping[str, Any]:
        """What the variables of the composite event are in it. Times and bytes are text."""
        return self.data


def delivery(event: DeliveredEvent, number: int, acknowledge: Callable[[int], None]) -> Delivery:
    """A delivery from the wire."""
    kind = partial(Signal, contributors=tuple(event.hgcontributors.split())) if event.type == SIGNAL else Delivery
    return kind(
        event.id,
        event.type,
        event.source,
        event.hgpublisher,
        event.time,
        event.data or {},
        event.hgposition,
        number,
        acknowledge,
        event.time if event.hgtime is None else event.hgtime,
    )


class Inbox:
    """The state of one reader."""

    def __init__(self, id: str, window: int = WINDOW, most: int = MAX_UNACKNOWLEDGED) -> None:
        if not 1 <= window <= MAX_WINDOW:
            raise BadDefinition(f"the window cannot be `{window}`", remedy=f"1 to {MAX_WINDOW}")
        self.id = id
        self.acknowledge: Callable[[int], None] = self.acknowledge_through
        self._window = window
        self._most = most
        self._number = 0
        self._waiting: deque[Delivery | HeadgateError] = deque()
        self._known: set[str] = set()  # positions that are not taken again
        self._earlier: set[str] = set()  # those of them that came over an earlier connection
        self._done: set[str] = set()  # those that need not be known on the next connection
        self._taken: deque[tuple[int, str]] = deque()  # taken, and not acknowledged here
        self._to_say: deque[str] = deque()  # acknowledged here, and not said
        self._said: list[str] = []  # said, and not confirmed
        self._opened = False
        self._credit = 0  # how many more the gateway may send
        self._owed = 0  # how many more it may be told that it may send

    # -- from the gateway -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """There is a new connection, on which nothing has been said."""
        for one in self._waiting:
            if isinstance(one, Delivery):
                self._known.discard(one.position)
        self._waiting = deque(one for one in self._waiting if not isinstance(one, Delivery))
        self._known -= self._done
        self._earlier = set(self._known)
        self._done = set()
        self._to_say.extendleft(reversed(self._said))
        self._said = []
        self._opened = False
        self._credit = self._owed = 0

    def receive(self, events: list[DeliveredEvent]) -> None:
        """Deliveries came."""
        if len(events) > self._credit:
            raise unexpected(self.id, f"{len(events)} deliveries where {self._credit} were allowed")
        self._credit -= len(events)
        for event in events:
            if event.hgposition in self._known:
                self._owed += 1
                continue
            self._known.add(event.hgposition)
            self._number += 1
            self._waiting.append(delivery(event, self._number, self._pass_on))

    def _pass_on(self, number: int) -> None:
        self.acknowledge(number)

    def gap(self, detail: str) -> None:
        """Something was lost here."""
        lost = Gap(detail or "some deliveries were lost before they were read", remedy="read on, or start anew")
        self._waiting.append(lost)

    def confirm(self) -> None:
        """What was said to be acknowledged is durably so, and comes on no later connection.

        On this one it may, if it came over an earlier one: the gateway began to send before it heard of it.
        """
        said = set(self._said)
        self._known -= said - self._earlier
        self._done |= said & self._earlier
        self._said = []

    def forget(self) -> None:
        """The subscription was made anew: positions of the old one mean nothing."""
        self._known.clear()
        self._earlier.clear()
        self._done.clear()
        self._taken.clear()
        self._to_say.clear()
        self._said = []
        self._waiting = deque(one for one in self._waiting if not isinstance(one, Delivery))

    # -- to the gateway ---------------------------------------------------------------------------------------

    def frames(self) -> list[dict[str, Any]]:
        """What is to be said now."""
        frames: list[dict[str, Any]] = []
        if not self._opened:
            self._opened = True
            self._credit = self._window
            frames.append({"op": "open", "subscription": self.id, "credit": self._window})
        # A gateway that does not confirm is asked for nothing more, so that what is remembered stays bounded.
        unconfirmed = len(self._to_say) + len(self._said)
        if self._opened and self._owed >= max(1, self._window // 2) and unconfirmed < self._most:
            frames.append({"op": "credit", "subscription": self.id, "credit": self._owed})
            self._credit += self._owed
            self._owed = 0
        # One acknowledgement at a time, so that a confirmation says which.
        if self._to_say and not self._said:
            self._said = [self._to_say.popleft() for _ in range(min(len(self._to_say), MAX_POSITIONS))]
            frames.append({"op": "ack", "subscription": self.id, "positions": self._said})
        return frames

    @property
    def settled(self) -> bool:
        """Is everything confirmed that was acknowledged?"""
        return not self._to_say and not self._said

    # -- to and from the reader -------------------------------------------------------------------------------

    def take(self, limit: int) -> list[Delivery]:
        """Up to so many of the deliveries that wait. What was lost among them is raised in its place, once."""
        taken: list[Delivery] = []
        while self._waiting and len(taken) < limit:
            delivery = self._waiting[0]
            if isinstance(delivery, HeadgateError):
                if taken:
                    break
                self._waiting.popleft()
                raise delivery
            if len(self._taken) >= self._most:
                if taken:
                    break
                raise Unacknowledged(
                    f"`{len(self._taken)}` deliveries were taken and none acknowledged",
                    remedy="call `ack()` on the last one that was dealt with",
                )
            self._waiting.popleft()
            self._taken.append((delivery.number, delivery.position))
            self._owed += 1
            taken.append(delivery)
        return taken

    def acknowledge_through(self, number: int) -> None:
        """Everything that was taken up to this one has been dealt with."""
        while self._taken and self._taken[0][0] <= number:
            self._to_say.append(self._taken.popleft()[1])

    @property
    def last_taken(self) -> int:
        """The number of the last delivery that was taken and not acknowledged; 0 if there is none."""
        return self._taken[-1][0] if self._taken else 0


class Subscription(ChannelReader):
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
        super().__init__(channel)
        self.id = id
        self.type = type
        self._ack = ack
        self._inbox = Inbox(id, window, most)
        self._inbox.acknowledge = self.acknowledge_through
        self._remake = remake  # makes a temporary subscription again
        self._remove = remove  # ends a temporary subscription
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
            self.acknowledge_through(self._inbox.last_taken)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    if taken := self._inbox.take(limit):
                        self._channel.wake()
                        return taken
                    if self._closed:
                        raise StopAsyncIteration
                    await self._next_news()
        return []

    def acknowledge_through(self, number: int) -> None:
        """Everything up to the delivery of this number has been dealt with."""
        self._inbox.acknowledge_through(number)
        self._channel.wake()

    async def ack(self) -> None:
        """Acknowledge everything that was taken, and wait until the gateway has made it durable."""
        self.acknowledge_through(self._inbox.last_taken)
        await self.settled()

    async def settled(self) -> None:
        """Wait until everything is confirmed that was acknowledged."""
        while not self._inbox.settled:
            await self._next_news()

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
        if frame.status == HTTPStatus.SERVICE_UNAVAILABLE:
            self._channel.give_up(error)
        elif error.code != NotFound.code:
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


class Detection(Subscription):
    """A detection that is being read: what comes are signals, by the moment at which they became certain."""

    def __aiter__(self) -> AsyncIterator[Signal]:
        return self

    async def __anext__(self) -> Signal:
        return cast(Signal, await super().__anext__())

    async def next(self, timeout: float | None = None) -> Signal | None:
        """The next signal; None if none comes within so many seconds."""
        return cast("Signal | None", await super().next(timeout))


class Watch(ChannelReader):
    """Whether anybody may and wants to receive what one advertises: an iterator over what changes."""

    def __init__(self, channel: Channel, types: Sequence[str]) -> None:
        super().__init__(channel)
        self.types = tuple(dict.fromkeys(types))
        self._told: dict[str, bool] = {}
        self._changed: dict[str, bool] = {}  # the newest of each type, so that it never grows
        self._asked = False
        self._key = f"watch {id(self)}"
        channel.attach(self._key, self)

    def __aiter__(self) -> AsyncIterator[tuple[str, bool]]:
        return self

    async def __anext__(self) -> tuple[str, bool]:
        while not self._changed:
            await self._next_news()
        name = next(iter(self._changed))
        return name, self._changed.pop(name)

    async def close(self) -> None:
        """Stop watching."""
        self._channel.detach(self._key)
        self.fail(ClientClosed("the watch is closed"))

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
