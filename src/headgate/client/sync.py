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
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

from headgate.client import aio
from headgate.client import publishing as pub
from headgate.client import roles as inner
from headgate.client import subscription as sub
from headgate.client.aio import Presented, Start
from headgate.client.errors import ClientClosed
from headgate.client.publishing import BATCH, Result
from headgate.client.session import Issuer, What
from headgate.client.subscription import WINDOW, Ack, Delivery
from headgate.node.config import place_of
from headgate.trust.keys import PrivateKey

T = TypeVar("T")

FETCH: Final = 100
"""Deliveries that are carried between the threads at once."""
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

    def call(self, work: Callable[[], T]) -> T:
        """Do something that takes no time, on the loop."""

        async def now() -> T:
            return work()

        return self.run(now())

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


P = ParamSpec("P")


class Run(Protocol):
    """Does work on a loop elsewhere, and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of the work."""


def waited(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A method of what is `_inner`, run by `_run` and waited for: the same arguments, words and answer."""

    @functools.wraps(method)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = self._run(method(self._inner, *args, **kwargs))
        return found

    return run


class Roles:
    """What a connected principal does with roles."""

    def __init__(self, run: Run, roles: inner.Roles) -> None:
        self._run = run
        self._inner = roles

    @property
    def trouble(self) -> BaseException | None:
        """Why a certificate could not be renewed the last time; None if they could."""
        return self._inner.trouble

    @property
    def certificates(self) -> list[str]:
        """The certificates of what one has entered, the newest of each."""
        return self._inner.certificates

    overview = waited(inner.Roles.overview)
    held = waited(inner.Roles.held)
    rolefile = waited(inner.Roles.rolefile)
    parse = waited(inner.Roles.parse)
    graph = waited(inner.Roles.graph)
    enter = waited(inner.Roles.enter)
    accept = waited(inner.Roles.accept)
    exit = waited(inner.Roles.exit)
    grant = waited(inner.Roles.grant)
    renew = waited(inner.Roles.renew)
    present = waited(inner.Roles.present)
    elect = waited(inner.Roles.elect)
    revoke = waited(inner.Roles.revoke)
    pass_revocation = waited(inner.Roles.pass_revocation)
    revoke_role = waited(inner.Roles.revoke_role)
    reinstate = waited(inner.Roles.reinstate)


class Subscription:
    """A subscription that is being read: iterate over it."""

    def __init__(self, runner: LoopThread, inner: sub.Subscription, ack: Ack) -> None:
        self.id = inner.id
        self.type = inner.type
        self._runner = runner
        self._inner = inner
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _take(inner: sub.Subscription, timeout: float | None) -> list[Delivery]:
    try:
        return await inner.take(FETCH, timeout)
    except StopAsyncIteration:
        return []


class Publisher:
    """Gathers events and publishes them in batches, in order, while more are added."""

    def __init__(self, runner: LoopThread, inner: pub.Publisher) -> None:
        self._runner = runner
        self._inner = inner

    def add(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        id: str | None = None,
        source: str | None = None,
        requires: str | None = None,
    ) -> str:
        """Publish an event soon; waits only while too many wait already. Returns its id."""
        event = self._inner.put(type, data, id, source, requires)
        if self._inner.is_full:
            self._runner.run(self._inner.room())
        return event

    def flush(self) -> None:
        """Wait until everything that was added has been answered."""
        self._runner.run(self._inner.flush())

    @property
    def accepted(self) -> int:
        """How many were accepted."""
        return self._inner.accepted

    @property
    def duplicates(self) -> int:
        """How many had been stored before."""
        return self._inner.duplicates

    @property
    def refused(self) -> int:
        """How many were refused; `refusals` keeps the first."""
        return self._inner.refused

    @property
    def refusals(self) -> Sequence[Exception]:
        """The first refusals."""
        return self._inner.refusals

    def close(self) -> None:
        """Send the rest; raise if any was refused and nobody was told."""
        self._runner.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._inner.__aexit__(kind, error, trace))


class Watch:
    """Whether anybody may and wants to receive what one advertises: iterate over what changes."""

    def __init__(self, runner: LoopThread, inner: sub.Watch) -> None:
        self._runner = runner
        self._inner = inner

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        return self

    def __next__(self) -> tuple[str, bool]:
        return self._runner.run(self._inner.__anext__())

    def close(self) -> None:
        """Stop watching."""
        self._runner.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Client:
    """A principal connected to a domain."""

    def __init__(self, make: Callable[[], aio.Client]) -> None:
        self._runner = LoopThread()
        try:
            self._inner = self._runner.run(_open(make))
        except BaseException:
            self._runner.close()
            raise
        self._run = self._runner.run
        self.roles = Roles(self._runner.run, self._inner.roles)

    def close(self, *, end_session: bool = True) -> None:
        """End everything that was opened, and the session, unless its token is still needed elsewhere."""
        if not self._runner.closed:
            try:
                self._run(self._inner.close(end_session=end_session))
            finally:
                self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def principal(self) -> str:
        """The principal's name in the domain."""
        return self._inner.principal

    @property
    def broker(self) -> str:
        """The broker that has proven itself."""
        return self._inner.broker

    @property
    def urls(self) -> list[str]:
        """The addresses of the gateways."""
        return self._inner.urls

    about = waited(aio.Client.about)
    token = waited(aio.Client.token)
    whoami = waited(aio.Client.whoami)
    present = waited(aio.Client.present)
    obtain = waited(aio.Client.obtain)
    issued = waited(aio.Client.issued)
    revoke = waited(aio.Client.revoke)
    bring_list = waited(aio.Client.bring_list)

    @property
    def trouble(self) -> BaseException | None:
        """Why statements could not be renewed the last time; None if they could."""
        return self._inner.trouble

    @property
    def issuer(self) -> Issuer:
        """This client, as one that other clients show statements of; it stays on its own thread."""
        return _Elsewhere(self._runner, self._inner)

    types = waited(aio.Client.types)
    type = waited(aio.Client.type)
    declare_type = waited(aio.Client.declare_type)
    declare_signed_type = waited(aio.Client.declare_signed_type)
    retire_type = waited(aio.Client.retire_type)
    publish = waited(aio.Client.publish)
    publish_many = waited(aio.Client.publish_many)
    publish_arrow = waited(aio.Client.publish_arrow)

    def batch(
        self, size: int = BATCH, linger: float = 0.05, *, on_refused: Callable[[Result], None] | None = None
    ) -> Publisher:
        """A context in which events are gathered and published in batches. `on_refused` is called on another thread."""
        return Publisher(
            self._runner, self._runner.call(lambda: self._inner.batch(size, linger, on_refused=on_refused))
        )

    advertise = waited(aio.Client.advertise)
    unadvertise = waited(aio.Client.unadvertise)
    advertisements = waited(aio.Client.advertisements)
    restriction_publish = waited(aio.Client.restriction_publish)

    def watch(self, types: Sequence[str]) -> Watch:
        """Hear for these advertised types whether anybody may and wants to receive them, now and when it changes."""
        return Watch(self._runner, self._runner.call(lambda: self._inner.watch(types)))

    def subscribe(
        self,
        id: str | None,
        type: str,
        where: str | None = None,
        from_: Start = "now",
        temporary: bool = False,
        *,
        requires: str | None = None,
        counting: Sequence[str] | None = None,
        ack: Ack = "auto",
        window: int = WINDOW,
    ) -> Subscription:
        """Subscribe and read. The same again reads on after what was acknowledged; without an id one is made up.

        `requires` is a rule over the attributes of publishers, such as `"$nation = 'NO'"`. `counting` are the ids of
        the memberships that count for event policy; without it, all that one holds.
        """
        made = self._inner.subscribe(
            id, type, where, from_, temporary, requires=requires, counting=counting, ack=_inner(ack), window=window
        )
        return Subscription(self._runner, self._run(made), ack)

    def resume(self, id: str, *, ack: Ack = "auto", window: int = WINDOW) -> Subscription:
        """Read on in a subscription that is there."""
        return Subscription(self._runner, self._run(self._inner.resume(id, ack=_inner(ack), window=window)), ack)

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


def _inner(ack: Ack) -> Ack:
    """What is carried between the threads ahead of its turn must not count as dealt with, so the loop never does it."""
    return "manual" if ack == "auto" else ack


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
        shown = [one.issuer if isinstance(one, Client) else one for one in present]
        home = guest_of.issuer if isinstance(guest_of, Client) else guest_of
        return Client(
            lambda: aio.connect(
                url, key, broker=broker, certificate=certificate, present=shown, guest_of=home, **settings
            )
        )

    def from_directory(self, directory: Path | str, principal: str, **settings: Any) -> Client:
        """Connect to the domain in a directory of this machine, as one of the principals whose keys are there."""
        place = place_of(Path(directory), os.environ)
        return self(place.urls, place.key(principal), broker=place.broker, certificate=place.certificate, **settings)


connect: Final = Connect()
