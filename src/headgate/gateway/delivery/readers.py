"""The readers of one gateway: whoever has a connection open, what they read and what they acknowledge.

Guarantees: an acknowledgement is durable when `ack` returns; those that come together are written together. A
connection ends as soon as its session is over or its principal may no longer connect. A temporary subscription ends a
little after its last reader is gone. Every limit on connections is checked before one is let in.
Leaves out: what is said on a connection (`push`, `poll`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.commands.delivery.delivery_follower import DeliveryFollower
from headgate.commands.delivery.delivery_reader import Archive, Feed
from headgate.commands.sessions import Caller
from headgate.model.changes import Batch, Unsubscribe
from headgate.model.errors import BadPosition, HeadgateError, NotFound, TooBusy, TooMany
from headgate.model.rights import Subscription
from headgate.node.cursors import Ack, Temporary
from headgate.node.logs import Log, fault
from headgate.pipeline import SIGNALS

if TYPE_CHECKING:
    from headgate.gateway.runtime import Gateway

CHECK_SECONDS: Final = 1.0  # how often sessions are looked at when the ledger does not change
REST_SECONDS: Final = 0.1  # the least time between two looks while it keeps changing
SEEN_SECONDS: Final = 60.0  # how often it is noted that readers are there
GRACE_SECONDS: Final = 5.0  # how long a temporary subscription waits for its reader to come back
MAX_ACKS: Final = 10_000  # acknowledgements written together
MAX_WAITING_ACKS: Final = 100_000  # acknowledgements that wait to be written

log = Log("readers")


@dataclass(eq=False, slots=True)
class ReaderConnection:
    """Somebody who is connected for as long as their session lasts."""

    caller: Caller
    over: asyncio.Event = field(default_factory=asyncio.Event)
    why: HeadgateError | None = None
    on_end: Callable[[], None] = lambda: None

    def end(self, why: HeadgateError) -> None:
        """It is over; what is being sent may be sent."""
        self.why = self.why or why
        self.over.set()
        self.on_end()


class Acks:
    """Writes acknowledgements, those that wait together in one transaction."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._waiting: list[tuple[Ack, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def put(self, ack: Ack) -> None:
        """Returns once it is durable."""
        if len(self._waiting) >= MAX_WAITING_ACKS:
            raise TooBusy("too many acknowledgements are waiting", remedy="send it again")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((ack, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write(), name="write acknowledgements")
        await done

    async def close(self) -> None:
        """Write what is waiting."""
        if self._task is not None:
            await self._task

    async def _write(self) -> None:
        while self._waiting:
            now, self._waiting = self._waiting[:MAX_ACKS], self._waiting[MAX_ACKS:]
            failed: Exception | None = None
            try:
                await self._gateway.run_blocking(
                    self._gateway.cursors.ack_many, [ack for ack, _ in now], self._gateway.clock()
                )
            except Exception as error:  # noqa: BLE001 - whoever waits is told
                failed = error
            for _, done in now:
                if not done.done():
                    done.set_result(None) if failed is None else done.set_exception(failed)


class Readers:
    """Who reads at this gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        paths, known, positions = gateway.domain.paths, gateway.follower, gateway.positions
        self.tail = DeliveryFollower(paths.deliveries, known, positions)
        self.archive = Archive(paths.deliveries, known, positions)
        self.signals = DeliveryFollower(paths.signals, known, positions, stream=SIGNALS)
        self._signal_archive = Archive(paths.signals, known, positions)
        self._acks = Acks(gateway)
        self._feeds: dict[tuple[str, int], set[Feed]] = {}
        self._temporary: set[tuple[str, int]] = set()
        self._connections: set[ReaderConnection] = set()
        self._per_principal: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to follow deliveries, and to watch over connections."""
        for tail in (self.tail, self.signals):
            await self._gateway.run_blocking(tail.start, asyncio.get_running_loop())
        self._spawn(self._watch())
        self._spawn(self._note_readers())
        self._spawn(self._send_away())

    async def stop(self) -> None:
        """Let go of the files, once everybody has left."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._acks.close()
        for tail in (self.tail, self.signals):
            await self._gateway.run_blocking(tail.stop)
        self.archive.close()
        self._signal_archive.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- connections ------------------------------------------------------------------------------------------

    async def _send_away(self) -> None:
        """End every connection when the gateway closes."""
        await self._gateway.closing.wait()
        for connection in tuple(self._connections):
            connection.end(_closing())

    def enter(self, caller: Caller) -> ReaderConnection:
        """Let a connection in, if there is room for it."""
        limits = self._gateway.config.limits
        if self._gateway.closing.is_set():
            raise _closing()
        if len(self._connections) >= limits.connections:
            raise TooBusy("this gateway has as many connections as it takes", remedy="try another one")
        if self._per_principal[caller.principal] >= limits.connections_per_principal:
            raise TooMany(
                f"you have {limits.connections_per_principal} connections open here", remedy="close one of them"
            )
        connection = ReaderConnection(caller)
        self._connections.add(connection)
        self._per_principal[caller.principal] += 1
        return connection

    def leave(self, connection: ReaderConnection) -> None:
        """A connection is over."""
        if connection in self._connections:
            self._connections.discard(connection)
            self._per_principal[connection.caller.principal] -= 1
            if not self._per_principal[connection.caller.principal]:
                del self._per_principal[connection.caller.principal]

    async def _watch(self) -> None:
        """End connections whose sessions are over, and wake feeds whose subscriptions have ended."""
        follower, seen = self._gateway.follower, -1
        while True:
            version = follower.state.version
            if version != seen:
                for feed in [one for held in self._feeds.values() for one in held]:
                    feed.notice(follower.state)
            try:
                over = await self._gateway.run_blocking(self._over, tuple(self._connections))
            except Exception as error:  # noqa: BLE001 - whatever it is, sessions must still be looked at the next time
                log.warning("sessions-not-checked", **fault(error))
                over = []
            for connection, why in over:
                connection.end(why)
            seen = version
            await asyncio.sleep(REST_SECONDS)
            await follower.wait_for_change(CHECK_SECONDS, version)

    def _over(self, connections: Iterable[ReaderConnection]) -> list[tuple[ReaderConnection, HeadgateError]]:
        ended: list[tuple[ReaderConnection, HeadgateError]] = []
        for connection in connections:
            try:
                self._gateway.sessions.check(connection.caller)
            except HeadgateError as error:
                ended.append((connection, error))
        return ended

    async def _note_readers(self) -> None:
        """Note now and then who is there, and move the places of those who have nothing left to acknowledge."""
        while True:
            await asyncio.sleep(SEEN_SECONDS)
            with suppress(HeadgateError):  # the next time will do
                await self.note()

    async def note(self) -> None:
        """Note who is there now."""
        acks: list[Ack] = []
        for (id, first), feeds in self._feeds.items():
            places: dict[str, int] = {}
            for feed in feeds:
                places.update(feed.done_with())
            acks.append(Ack(id, first, places))
            for feed in feeds:
                feed.acknowledged(places)
        if acks:
            await self._gateway.run_blocking(self._gateway.cursors.ack_many, acks, self._gateway.clock())

    # -- feeds ------------------------------------------------------------------------------------------------

    async def open(self, subscription: Subscription, after: Iterable[str] = ()) -> Feed:
        """A new reader of a subscription, from what was acknowledged, or these positions, on."""
        key = subscription.id, subscription.first
        number = self.number(subscription)
        places = self.places(subscription, number, after)
        detects = subscription.detection is not None
        cursors = self._gateway.cursors
        acked: Mapping[str, int] = await self._gateway.run_blocking(cursors.acked, *key)
        temporary: Temporary | None = await self._gateway.run_blocking(cursors.temporary_one, *key)
        feed = Feed(
            subscription,
            number,
            acked,
            tail=self.signals if detects else self.tail,
            archive=self._signal_archive if detects else self.archive,
            known=self._gateway.follower,
            run=self._gateway.run_blocking,
            after=places,
        )
        self._feeds.setdefault(key, set()).add(feed)
        if temporary is not None:
            self._temporary.add(key)
        self._spawn(self._seen(key))
        return feed

    async def _seen(self, key: tuple[str, int]) -> None:
        """Note that a reader has come; one may read even where nothing can be written."""
        with suppress(HeadgateError):
            await self._acks.put(Ack(*key, {}))

    def close(self, feed: Feed, *, gone: bool = True) -> None:
        """A reader goes away; for good, unless it only comes back later to ask again (`gone`)."""
        feed.close()
        key = feed.subscription.id, feed.subscription.first
        held = self._feeds.get(key, set())
        held.discard(feed)
        if held:
            return
        self._feeds.pop(key, None)
        if key in self._temporary:
            self._temporary.discard(key)
            if gone and not self._gateway.closing.is_set():
                self._spawn(self._end_temporary(feed.subscription))

    async def _end_temporary(self, subscription: Subscription) -> None:
        """End a temporary subscription, unless its reader comes back in time, here or at another gateway."""
        key = subscription.id, subscription.first
        left = self._gateway.clock()
        await asyncio.sleep(GRACE_SECONDS)
        try:
            found = await self._gateway.run_blocking(self._gateway.cursors.temporary_one, *key)
            if key in self._feeds or found is None or found.seen > left:
                return
            batch = Batch(subscription.principal, (Unsubscribe(subscription.id),))
            now = self._gateway.follower.subscription(subscription.id)
            if now is not None and now.first == subscription.first:
                await self._gateway.run_blocking(self._gateway.domain.commit, batch)
                await self._gateway.run_blocking(self._gateway.follower.refresh)
        except HeadgateError as error:  # housekeeping tries again later
            log.warning("temporary-not-ended", **fault(error))

    async def ack(self, subscription: Subscription, positions: Iterable[str]) -> int:
        """Acknowledge everything up to these positions; returns how many there were, once it is durable."""
        given = list(positions)
        places = self.places(subscription, self.number(subscription), given)
        key = subscription.id, subscription.first
        await self._acks.put(Ack(*key, places))
        for feed in self._feeds.get(key, ()):
            feed.acknowledged(places)
        self._gateway.metrics.acked.add(len(given))
        return len(given)

    async def set_places(self, subscription: Subscription, places: Mapping[str, int]) -> None:
        """Move a subscription to these places, if it is not further already."""
        await self._acks.put(Ack(subscription.id, subscription.first, places))

    def number(self, subscription: Subscription) -> int:
        """The number of a subscription that is in force."""
        follower = self._gateway.follower
        try:
            number = follower.number(subscription.id)
        except KeyError:
            raise NotFound("the subscription has ended") from None
        now = follower.subscription(subscription.id)
        if now is None or now.first != subscription.first:
            raise NotFound("the subscription has ended")
        return number

    def places(self, subscription: Subscription, number: int, positions: Iterable[str]) -> dict[str, int]:
        """Where positions of what a subscription was given are: the furthest of each stream."""
        places: dict[str, int] = {}
        for text in positions:
            stream, seq = self._gateway.positions.open(text, number)
            name = self._gateway.follower.stream_name(stream)
            if name is None:
                raise BadPosition("it is a position in no stream of this domain")
            if (name == SIGNALS) is not (subscription.detection is not None):
                raise BadPosition("it is that of a contributing event", remedy="use one that came with a signal")
            places[name] = max(seq, places.get(name, 0))
        return places


def _closing() -> TooBusy:
    return TooBusy("the gateway is shutting down", remedy="connect to another one")
