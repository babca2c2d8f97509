"""The client for programs without an event loop: the asynchronous one, run on a thread of its own.

Guarantees: the same behaviour as `aio`, method by method; safe to use from several threads, except that one
`Subscription` is read by one thread at a time. Ctrl-C interrupts any call. No call can be made from the client's own
thread.

    with connect("https://localhost:8443", Path("keys/ann.pem"), certificate=Path("tls/tls.crt")) as client:
        for delivery in client.subscribe("sales", "shop.Sale"):
            print(delivery.data)
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, cast

from headgate.client import aio, roles
from headgate.client import publishing as pub
from headgate.client import subscription as sub
from headgate.client.aio import Presented
from headgate.client.errors import ClientClosed
from headgate.client.session import Issuer, What
from headgate.client.subscription import WINDOW, Ack, Delivery, Signal
from headgate.node.config import place_of
from headgate.trust.keys import PrivateKey

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner")
Outer = TypeVar("Outer")

FETCH: Final = 100  # deliveries that are carried between the threads at once
_STOP_SECONDS: Final = 10.0


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="headgate-client", daemon=True)
        self._thread.start()
        self.closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work on the loop and wait for it; what interrupts the waiting ends the work."""
        if self.closed:
            work.close()
            raise ClientClosed("the client is closed", remedy="connect again")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and its thread."""
        if self.closed:
            return
        self.run(_finish())
        self.closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()


async def _finish() -> None:
    """End what is left on the loop."""
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class _Elsewhere:
    """A client on another thread's loop, for one that asks it from its own."""

    def __init__(self, runner: LoopThread, inner: aio.Client) -> None:
        self._runner = runner
        self._inner = inner

    async def obtain(self, *what: What) -> list[str]:
        """Statements that its domain issues to it."""
        if self._runner.closed:
            raise ClientClosed("the client that statements are obtained with is closed", remedy="keep it open")
        work = asyncio.run_coroutine_threadsafe(self._inner.obtain(*what), self._runner.loop)
        return await asyncio.wrap_future(work)


# -- what is derived from the asynchronous client -------------------------------------------------------------


def waited(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A method of what is `_inner`, run on its loop and waited for: the same arguments, words and answer."""

    @functools.wraps(method)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = self._run(method(self._inner, *args, **kwargs))
        return answer

    return run


def made(
    method: Callable[Concatenate[Any, P], Inner], wrap: Callable[[LoopThread, Inner], Outer]
) -> Callable[Concatenate[Any, P], Outer]:
    """What a method of `_inner` makes at once on its loop, wrapped for other threads."""

    @functools.wraps(method)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Outer:
        async def make() -> Inner:
            return method(self._inner, *args, **kwargs)

        return wrap(self._runner, self._run(make()))

    return run


def opened(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, sub.Subscription]],
) -> Callable[Concatenate[Any, P], Subscription]:
    """A subscription that a method of `_inner` opens, for another thread to read."""
    open_inner: Any = method

    @functools.wraps(method)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Subscription:
        ack: Any = kwargs.get("ack", "auto")
        inner = self._run(open_inner(self._inner, *args, **{**kwargs, "ack": _inner(ack)}))
        return (Detection if isinstance(inner, sub.Detection) else Subscription)(self._runner, inner, ack)

    return run


def detecting(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, sub.Detection]],
) -> Callable[Concatenate[Any, P], Detection]:
    """A detection that a method of `_inner` opens, for another thread to read."""
    return cast("Callable[Concatenate[Any, P], Detection]", opened(method))


def _inner(ack: Ack) -> Ack:
    """What is carried between the threads ahead of its turn must not count as dealt with, so the loop never does it."""
    return "manual" if ack == "auto" else ack


class InnerAttribute(Generic[T]):
    """An attribute of what is `_inner`, with the words of the property that it is there."""

    def __init__(self, of: object | None = None) -> None:
        if of is not None:
            self.__doc__ = of.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> T:
        value: Any = self if instance is None else getattr(instance._inner, self._name)
        return value  # type: ignore[no-any-return]


class Wrapper(Generic[Inner]):
    """Something of a loop's, for other threads; leaving its context closes it."""

    def __init__(self, runner: LoopThread, inner: Inner) -> None:
        self._runner = runner
        self._run = runner.run
        self._inner = inner

    def close(self) -> None:
        """Let go of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Roles(Wrapper[roles.Roles]):
    """What a connected principal does with roles."""

    trouble = InnerAttribute[BaseException | None](roles.Roles.trouble)
    certificates = InnerAttribute[list[str]](roles.Roles.certificates)
    overview = waited(roles.Roles.overview)
    held = waited(roles.Roles.held)
    rolefile = waited(roles.Roles.rolefile)
    parse = waited(roles.Roles.parse)
    graph = waited(roles.Roles.graph)
    enter = waited(roles.Roles.enter)
    accept = waited(roles.Roles.accept)
    exit = waited(roles.Roles.exit)
    grant = waited(roles.Roles.grant)
    renew = waited(roles.Roles.renew)
    present = waited(roles.Roles.present)
    elect = waited(roles.Roles.elect)
    revoke = waited(roles.Roles.revoke)
    pass_revocation = waited(roles.Roles.pass_revocation)
    revoke_role = waited(roles.Roles.revoke_role)
    reinstate = waited(roles.Roles.reinstate)


class Subscription(Wrapper[sub.Subscription]):
    """A subscription that is being read: iterate over it."""

    def __init__(self, runner: LoopThread, inner: sub.Subscription, ack: Ack) -> None:
        super().__init__(runner, inner)
        self.id = inner.id
        self.type = inner.type
        self._auto = ack == "auto"
        self._here: deque[Delivery] = deque()
        self._last = 0  # the last delivery that was handed out
        self._through = 0  # the last one to acknowledge
        self._told = True
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        delivery = self.next()
        if delivery is None:
            raise StopIteration
        return delivery

    def next(self, timeout: float | None = None) -> Delivery | None:
        """The next delivery; None if none comes within so many seconds, or after `close`."""
        if self._auto and self._last:
            self._acknowledge(self._last)
        if not self._here:
            self._here.extend(self._runner.run(_take(self._inner, timeout)))
        if not self._here:
            return None
        found = replace(self._here.popleft(), _acknowledge=self._acknowledge)
        self._last = found.number
        return found

    def _acknowledge(self, number: int) -> None:
        """Pass it on to the loop, together with others that come before it gets there."""
        with self._lock:
            self._through = max(self._through, number)
            if not self._told:
                return
            self._told = False
        self._runner.loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        with self._lock:
            self._told = True
            through = self._through
        self._inner.acknowledge_through(through)

    def ack(self) -> None:
        """Acknowledge everything that was handed out, and wait until the gateway has made it durable."""
        self._runner.run(self._settle(self._last))

    async def _settle(self, number: int) -> None:
        self._inner.acknowledge_through(max(number, self._through))
        await self._inner.settled()

    def close(self) -> None:
        """Stop reading. What was acknowledged is confirmed first; a temporary subscription ends."""
        self._runner.run(self._close())

    async def _close(self) -> None:
        self._inner.acknowledge_through(self._through)
        await self._inner.close()


class Detection(Subscription):
    """A detection that is being read: iterate over its signals."""

    def __iter__(self) -> Iterator[Signal]:
        return self

    def __next__(self) -> Signal:
        return cast(Signal, super().__next__())

    def next(self, timeout: float | None = None) -> Signal | None:
        """The next signal; None if none comes within so many seconds, or after `close`."""
        return cast("Signal | None", super().next(timeout))


async def _take(inner: sub.Subscription, timeout: float | None) -> list[Delivery]:
    try:
        return await inner.take(FETCH, timeout)
    except StopAsyncIteration:
        return []


class Publisher(Wrapper[pub.Publisher]):
    """Gathers events and publishes them in batches, in order, while more are added.

    What is to hear of refusals (`on_refused`) is called on the client's own thread.
    """

    accepted = InnerAttribute[int]()
    duplicates = InnerAttribute[int]()
    refused = InnerAttribute[int]()
    refusals = InnerAttribute[Sequence[Exception]]()
    flush = waited(pub.Publisher.flush)
    close = waited(pub.Publisher.close)

    def add(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        id: str | None = None,
        source: str | None = None,
        requires: str | None = None,
        time: datetime | str | None = None,
    ) -> str:
        """Publish an event soon; waits only while too many wait already. Returns its id."""
        event = self._inner.put(type, data, id, source, requires, time)
        if self._inner.is_full:
            self._runner.run(self._inner.room())
        return event

    def __exit__(self, *raised: object) -> None:
        self._run(self._inner.__aexit__(*raised))


class Watch(Wrapper[sub.Watch]):
    """Whether anybody may and wants to receive what one advertises: iterate over what changes."""

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        return self

    __next__ = waited(sub.Watch.__anext__)
    close = waited(sub.Watch.close)


class Client(Wrapper[aio.Client]):
    """A principal connected to a domain."""

    def __init__(self, make: Callable[[], aio.Client]) -> None:
        runner = LoopThread()
        try:
            super().__init__(runner, runner.run(_open(make)))
        except BaseException:
            runner.close()
            raise
        self.roles = Roles(runner, self._inner.roles)

    def close(self, *, end_session: bool = True) -> None:
        """End everything that was opened, and the session, unless its token is still needed elsewhere."""
        if not self._runner.closed:
            try:
                self._run(self._inner.close(end_session=end_session))
            finally:
                self._runner.close()

    principal = InnerAttribute[str](aio.Client.principal)
    broker = InnerAttribute[str](aio.Client.broker)
    urls = InnerAttribute[list[str]](aio.Client.urls)
    trouble = InnerAttribute[BaseException | None](aio.Client.trouble)
    about = waited(aio.Client.about)
    token = waited(aio.Client.token)
    whoami = waited(aio.Client.whoami)
    present = waited(aio.Client.present)
    obtain = waited(aio.Client.obtain)
    issued = waited(aio.Client.issued)
    revoke = waited(aio.Client.revoke)
    bring_list = waited(aio.Client.bring_list)

    @property
    def issuer(self) -> Issuer:
        """This client, as one that other clients show statements of; it stays on its own thread."""
        return _Elsewhere(self._runner, self._inner)

    types = waited(aio.Client.types)
    type = waited(aio.Client.type)
    declare_type = waited(aio.Client.declare_type)
    declare_signed_type = waited(aio.Client.declare_signed_type)
    retire_type = waited(aio.Client.retire_type)
    declassify = waited(aio.Client.declassify)
    reclassify = waited(aio.Client.reclassify)
    publish = waited(aio.Client.publish)
    heartbeat = waited(aio.Client.heartbeat)
    publish_many = waited(aio.Client.publish_many)
    publish_arrow = waited(aio.Client.publish_arrow)
    batch = made(aio.Client.batch, Publisher)
    advertise = waited(aio.Client.advertise)
    unadvertise = waited(aio.Client.unadvertise)
    advertisements = waited(aio.Client.advertisements)
    restriction_publish = waited(aio.Client.restriction_publish)
    watch = made(aio.Client.watch, Watch)
    subscribe = opened(aio.Client.subscribe)
    resume = opened(aio.Client.resume)
    detect = detecting(aio.Client.detect)
    make_detection = waited(aio.Client.make_detection)
    detections = waited(aio.Client.detections)
    detection_state = waited(aio.Client.detection_state)
    why_signalled = waited(aio.Client.why_signalled)
    subscriptions = waited(aio.Client.subscriptions)
    unsubscribe = waited(aio.Client.unsubscribe)
    restriction = waited(aio.Client.restriction)
    restriction_subscribe = waited(aio.Client.restriction_subscribe)

    def lookup(
        self, id: str, type: str, where: str | None = None, *, ack: Ack = "auto", window: int = WINDOW
    ) -> tuple[list[Delivery], Subscription]:
        """The current entries of a type with a key, and a subscription to every change from there on."""
        entries, inner = self._run(self._inner.lookup(id, type, where, ack=_inner(ack), window=window))
        return entries, Subscription(self._runner, inner, ack)

    reserve = waited(aio.Client.reserve)
    release = waited(aio.Client.release)
    change = waited(aio.Client.change)
    versions = waited(aio.Client.versions)


async def _open(make: Callable[[], aio.Client]) -> aio.Client:
    return await make().open()


class Connect:
    """How clients are made: from addresses and a key, or from a domain's directory on this machine."""

    def __call__(
        self,
        url: str | Sequence[str],
        key: Path | PrivateKey,
        *,
        broker: str | None = None,
        certificate: Path | None = None,
        present: Sequence[Presented | Client] = (),
        guest_of: Client | Issuer | None = None,
        **settings: Any,
    ) -> Client:
        """Connect to the gateways at one or several addresses.

        With a `certificate` only that one is trusted, without one what this machine trusts. With a `broker`, its
        `did:key:...`, only that one is; without one the first that proves itself. `present`, `guest_of` and the other
        settings are those of `aio.connect`; where that takes a client, so does this.
        """
        settings |= {"broker": broker, "certificate": certificate}
        shown = [one.issuer if isinstance(one, Client) else one for one in present]
        home = guest_of.issuer if isinstance(guest_of, Client) else guest_of
        return Client(lambda: aio.connect(url, key, present=shown, guest_of=home, **settings))

    def from_directory(self, directory: Path | str, principal: str, **settings: Any) -> Client:
        """Connect to the domain in a directory of this machine, as one of the principals whose keys are there."""
        place = place_of(Path(directory), os.environ)
        return self(place.urls, place.key(principal), broker=place.broker, certificate=place.certificate, **settings)


connect: Final = Connect()
