"""The asynchronous client: everything a principal can do at a domain.

Guarantees: `connect` returns only after the broker has proven itself and a session was opened. Every method may be
repeated by the client itself without harm, except `change`, which is sent again only if it never arrived. A refusal is
raised as the class with its code.
Leaves out: running without an event loop (`sync`).

    async with connect("https://localhost:8443", Path("keys/ann.pem"), certificate=Path("tls/tls.crt")) as client:
        async for delivery in await client.subscribe("sales", "shop.Sale"):
            print(delivery.data)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from uuid import uuid4

import msgspec

from headgate.client.channel import Channel, DeliveredEvent
from headgate.client.errors import Unreachable
from headgate.client.gateways import ExpectedGateway, Patience, Ring, Timing, Trouble
from headgate.client.publishing import (
    BATCH,
    Bulk,
    Item,
    Publisher,
    Result,
    chunks,
    encode,
    encode_item,
    send_many,
    send_one,
    send_table,
)
from headgate.client.roles import Roles
from headgate.client.session import ClientSession, Issued, Issuer, What, as_guest, check_kinds, listed, obtained
from headgate.client.subscription import WINDOW, Ack, Delivery, Detection, Subscription, Watch, delivery
from headgate.client.wallet import SHORTEST, Renewal, Wallet, texts_in
from headgate.model.errors import BadDefinition, NotFound, TypeMismatch
from headgate.model.limits import MAX_CERTIFICATE_FILE_BYTES
from headgate.model.types import SIGNAL
from headgate.model.values import Kind, brief, plain
from headgate.node.config import place_of
from headgate.protocol import messages as wire
from headgate.trust.keys import PrivateKey, PublicKey
from headgate.trust.typedefs import TYPE_DEFINITION

if TYPE_CHECKING:
    import pyarrow as pa

Start: TypeAlias = "str | int | datetime"
"""`"now"`, `"start"`, a version, a time with a zone, or `"reserved:"` and the id of a reservation."""
RESERVED: Final = "reserved:"
"""What stands before the id of a reservation at which something begins."""

Presented: TypeAlias = "str | Path | Issued | Issuer"
"""A statement, a file of them, or a client of another domain: what that domain issues to it."""

REQUESTS: Final = Patience(seconds=30.0)  # how long a request is tried
SOCKETS: Final = Patience(seconds=300.0, most=5.0)  # how long a broken WebSocket is tried before its readers are told


class Client:
    """A principal connected to a domain."""

    def __init__(self, session: ClientSession, sockets: Patience = SOCKETS) -> None:
        self._session = session
        self._channel = Channel(session, sockets)
        self.roles = Roles(session)
        self._renewal = Renewal(session.wallet.wait, self._refresh, session.timing, SHORTEST)

    # -- connecting -------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Prove the key and open the session; then show what the domain itself issues, if that was asked for."""
        try:
            await self._session.open()
            await self._refresh()
        except BaseException as error:
            await self._session.ring.close()
            if isinstance(error, Trouble):
                raise Unreachable("statements could not be fetched", [str(error)]) from None
            raise
        if self._session.wallet.sources:
            self._renewal.wake()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, *, end_session: bool = True) -> None:
        """End everything that was opened, and the session, unless its token is still needed elsewhere."""
        await self.roles.stop()
        await self._renewal.stop()
        await self._channel.close()
        await self._session.close(end=end_session)

    @property
    def principal(self) -> str:
        """The principal's name in the domain."""
        return self._session.principal

    @property
    def broker(self) -> str:
        """The broker that has proven itself."""
        return self._session.ring.broker or ""

    @property
    def urls(self) -> list[str]:
        """The addresses of the gateways."""
        return [one.address.http for one in self._session.ring.gateways]

    async def about(self) -> wire.AboutAnswer:
        """What the domain and the gateway are called."""
        return await self._session.ask(wire.AboutAnswer, "GET", "/v1")

    async def token(self) -> str:
        """The session's token, for use with other programs; whoever has it acts as this principal."""
        await self._session.open()
        return await self._session.token(self._session.ring.current)

    async def whoami(self) -> wire.WhoAnswer:
        """Who this is, by the gateway's word."""
        return await self._session.ask(wire.WhoAnswer, "GET", "/v1/sessions/current")

    # -- statements -------------------------------------------------------------------------------------------

    async def present(self, statements: Sequence[str | Path]) -> wire.StatementsAnswer:
        """Show certificates and other statements, now and whenever a session is opened again."""
        texts = _texts(statements)
        told = await self._show(texts)
        self._session.wallet.add(texts)
        return told

    async def _show(self, texts: Sequence[str]) -> wire.StatementsAnswer:
        body = {"statements": list(texts)}
        return await self._session.ask(wire.StatementsAnswer, "POST", "/v1/statements", body=body)

    async def _refresh(self, again: bool = False) -> None:
        await self._session.wallet.refresh(self._session.ring.current, self._show_all, again)

    async def _show_all(self) -> None:
        await self._show(self._session.wallet.shown(self._session.expected.clock()))

    async def obtain(self, *what: What) -> list[str]:
        """Statements that the domain's service issues to this principal: `"certificates"` or `"identity"`.

        Certificates come with the chain from the domain to its service, so that they can be shown elsewhere.
        """
        return await obtained(self._session, what or ("certificates",))

    async def issued(self) -> list[wire.IssuedAnswer]:
        """Statements of the domain's service that have not ended: one's own, or all for the administrator."""
        return (await self._session.ask(wire.IssuedListAnswer, "GET", "/v1/certificates")).issued

    async def revoke(self, id: str) -> int:
        """Take back a statement of the domain's service, or give one's own up; the number of the list it is on."""
        return (await self._session.ask(wire.RevokedAnswer, "POST", "/v1/certificates", id, "revoke")).number

    async def bring_list(self, list: str) -> wire.HeardAnswer:
        """Bring the revocation list of any issuer that something at the domain rests on; it is signed by its issuer."""
        return await self._session.ask(wire.HeardAnswer, "POST", "/v1/revocations", body={"list": list})

    @property
    def trouble(self) -> BaseException | None:
        """Why statements could not be renewed the last time; None if they could."""
        return self._renewal.trouble

    # -- types ------------------------------------------------------------------------------------------------

    async def types(self) -> list[wire.TypeAnswer]:
        """Every event type."""
        return (await self._session.ask(wire.TypesAnswer, "GET", "/v1/types")).types

    async def type(self, name: str) -> wire.TypeAnswer:
        """One event type."""
        return await self._session.ask(wire.TypeAnswer, "GET", "/v1/types", name)

    async def declare_type(
        self,
        name: str,
        attributes: Mapping[str, Kind | str],
        *,
        extends: str | None = None,
        key: Sequence[str] = (),
        owner: str | None = None,
        times: str | None = None,
        lateness: float | None = None,
        ahead: float | None = None,
        clock_error: float | None = None,
        derived: str | None = None,
        declassified_for: Sequence[str] = (),
    ) -> wire.TypeAnswer:
        """Declare an event type, or a new version of it with more attributes.

        With `times="publisher"` its events come with the time at which they occurred; `lateness`, `ahead` and
        `clock_error` are seconds. Detections alone make its events where it is `derived`, `"contributors"` for those
        who could read what they rest on, `"declassified"` of types that are `declassified_for` it.
        """
        kinds = {a: kind.value if isinstance(kind, Kind) else kind for a, kind in attributes.items()}
        body: dict[str, Any] = {"attributes": kinds, "extends": extends, "key": list(key), "owner": owner}
        body |= {"times": times, "lateness": lateness, "ahead": ahead, "clock_error": clock_error}
        body |= {"derived": derived, "declassified_for": list(declassified_for)}
        return await self._session.ask(wire.TypeAnswer, "PUT", "/v1/types", name, body=body)

    async def declare_signed_type(self, statement: str) -> wire.TypeAnswer:
        """Declare an event type by the definition that its owner signed."""
        name = TYPE_DEFINITION.read(statement).value.name
        return await self._session.ask(wire.TypeAnswer, "PUT", "/v1/types", name, body={"statement": statement})

    async def retire_type(self, name: str) -> None:
        """Remove an event type, with the rules, subscriptions and advertisements that name it."""
        await self._session.request("DELETE", "/v1/types", name)

    async def declassify(self, name: str, derived: str) -> wire.TypeAnswer:
        """Let events of a derived type be made of a type that one governs, whoever may read those."""
        return await self._session.ask(wire.TypeAnswer, "PUT", "/v1/types", name, "declassified", derived)

    async def reclassify(self, name: str, derived: str) -> None:
        """Take that back, for events that are still to come."""
        await self._session.request("DELETE", "/v1/types", name, "declassified", derived)

    # -- publishing -------------------------------------------------------------------------------------------

    @property
    def _source(self) -> str:
        return self._session.key.public.did

    async def publish(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        id: str | None = None,
        source: str | None = None,
        requires: str | None = None,
        time: datetime | str | None = None,
    ) -> Result:
        """Publish an event, once, however often it has to be sent. A refusal is raised.

        `requires` is a rule over the attributes of receivers, such as `"$clearance = 'secret'"`. `time` is when it
        occurred, for types that take that from publishers; others go by the gateway's clock.
        """
        return await send_one(self._session, encode(type, data, id, source or self._source, requires, time))

    async def heartbeat(
        self,
        until: datetime,
        types: Sequence[str] | None = None,
        *,
        publisher: str | None = None,
        stream: str | None = None,
    ) -> wire.HeartbeatAnswer:
        """Promise that none of one's later events occurred before a time: of these types, or of all one states it of.

        The administrator may promise for another `publisher`, or for a whole `stream`.
        """
        if until.tzinfo is None:
            raise TypeMismatch(f"the time `{until}` has no zone", remedy="give it one")
        body = {"until": until, "types": listed(types), "for": publisher, "stream": stream}
        return await self._session.ask(wire.HeartbeatAnswer, "POST", "/v1/heartbeats", body=body)

    async def publish_many(self, events: Iterable[Item], *, size: int = BATCH) -> list[Result]:
        """Publish events and tell what became of each, in order. For more than fit in memory use `batch`."""
        results: list[Result] = []
        for chunk in chunks((encode_item(one, self._source) for one in events), size):
            results += await send_many(self._session, chunk)
        return results

    async def publish_arrow(
        self, type: str, table: pa.Table, *, source: str | None = None, requires: str | None = None
    ) -> Bulk:
        """Publish the rows of a table: attributes as columns, and perhaps `id`, `source` and `requires`."""
        return await send_table(self._session, type, table, source or self._source, requires)

    def batch(
        self, size: int = BATCH, linger: float = 0.05, *, on_refused: Callable[[Result], None] | None = None
    ) -> Publisher:
        """A context in which events are gathered and published in batches, in order."""
        return Publisher(self._session, self._source, size, linger, on_refused)

    async def advertise(self, type: str) -> wire.AdvertisementAnswer:
        """Say that one will publish a type."""
        return await self._session.ask(wire.AdvertisementAnswer, "PUT", "/v1/advertisements", type)

    async def unadvertise(self, type: str) -> None:
        """Take that back."""
        await self._session.request("DELETE", "/v1/advertisements", type)

    async def advertisements(self) -> list[wire.AdvertisementAnswer]:
        """What one has said that one will publish."""
        return (await self._session.ask(wire.AdvertisementsAnswer, "GET", "/v1/advertisements")).advertisements

    async def restriction_publish(self, type: str) -> dict[str, Any]:
        """What publishing a type comes to under one's rights."""
        return await self._facts("/v1/advertisements", type, "restriction")

    def watch(self, types: Sequence[str]) -> Watch:
        """Hear for these advertised types whether anybody may and wants to receive them, now and when it changes."""
        return Watch(self._channel, types)

    # -- subscribing ------------------------------------------------------------------------------------------

    async def subscribe(
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
        chosen = f"t-{uuid4().hex}" if id is None else id
        path = "/v1/subscriptions", chosen
        body = {"type": type, "from": _since(from_), "temporary": temporary, "where": where}
        body |= {"requires": requires, "with": listed(counting)}
        make = partial(self._session.ask, wire.SubscriptionAnswer, "PUT", *path, body=body)
        await make()
        ends: dict[str, Any] = (
            {"remake": make, "remove": partial(self._session.request, "DELETE", *path)} if temporary else {}
        )
        return Subscription(self._channel, chosen, type, ack=ack, window=window, **ends)

    async def resume(self, id: str, *, ack: Ack = "auto", window: int = WINDOW) -> Subscription:
        """Read on in a subscription that is there."""
        found = await self._session.ask(wire.SubscriptionAnswer, "GET", "/v1/subscriptions", id)
        kind = Subscription if found.detects is None else Detection
        return kind(self._channel, id, found.type, ack=ack, window=window)

    async def detect(
        self,
        expression: str,
        *,
        bind: Mapping[str, Any] | None = None,
        id: str | None = None,
        from_: Start = "now",
        temporary: bool = False,
        requires: str | None = None,
        counting: Sequence[str] | None = None,
        publishes: str | None = None,
        ack: Ack = "auto",
        window: int = WINDOW,
    ) -> Detection:
        """Detect a composite event, such as `"$Alarm(r); Seen(b, r) - AllClear(r)"`, and read its signals.

        `bind` gives variables values from the start. The rest is as in `subscribe`: it begins now, or looks at earlier
        events too, and the same again reads on after what was acknowledged. With `publishes` each signal is also
        published, as an event of that type whose attributes are the variables of the same names.
        What is wrong with an expression is raised as `BadExpression`, whose `place` is its line and column.
        """
        chosen = f"t-{uuid4().hex}" if id is None else id
        path = "/v1/detections", chosen
        body = {"expression": expression, "bind": _bound(bind or {}), "from": _since(from_), "temporary": temporary}
        body |= {"requires": requires, "with": listed(counting), "publishes": publishes}
        make = partial(self._session.ask, wire.DetectionAnswer, "PUT", *path, body=body)
        await make()
        ends: dict[str, Any] = (
            {"remake": make, "remove": partial(self._session.request, "DELETE", *path)} if temporary else {}
        )
        return Detection(self._channel, chosen, SIGNAL, ack=ack, window=window, **ends)

    async def make_detection(
        self,
        expression: str,
        *,
        id: str,
        bind: Mapping[str, Any] | None = None,
        from_: Start = "now",
        publishes: str | None = None,
        adds: str | None = None,
        for_: str | None = None,
    ) -> wire.DetectionAnswer:
        """Make a detection that is there for what comes of its signals, and read none of them.

        `adds` names the relation that each signal adds a row to, as `"failed(user)"`. The administrator makes those,
        `for_` the principal whose views count.
        """
        body = {"expression": expression, "bind": _bound(bind or {}), "from": _since(from_), "publishes": publishes}
        body |= {"adds": adds, "for": for_}
        return await self._session.ask(wire.DetectionAnswer, "PUT", "/v1/detections", id, body=body)

    async def detections(self) -> list[wire.DetectionAnswer]:
        """One's own detections; `unsubscribe` ends one."""
        return (await self._session.ask(wire.DetectionsAnswer, "GET", "/v1/detections")).detections

    async def detection_state(self, id: str) -> dict[str, Any]:
        """Where a detection stands: what its evaluations wait for, and which sources hold them back."""
        return await self._facts("/v1/detections", id, "state")

    async def why_signalled(self, id: str, position: str) -> dict[str, Any]:
        """The events that a signal of a detection rests on, as far as one may know of them."""
        return await self._facts("/v1/detections", id, "signals", position)

    async def subscriptions(self) -> list[wire.SubscriptionAnswer]:
        """One's own subscriptions."""
        return (await self._session.ask(wire.SubscriptionsAnswer, "GET", "/v1/subscriptions")).subscriptions

    async def unsubscribe(self, id: str) -> None:
        """End a subscription."""
        await self._session.request("DELETE", "/v1/subscriptions", id)

    async def restriction(self, id: str) -> dict[str, Any]:
        """What a subscription loses to one's rights."""
        return await self._facts("/v1/subscriptions", id, "restriction")

    async def restriction_subscribe(self, type: str) -> dict[str, Any]:
        """What a subscription to a type would come to under one's rights."""
        return await self._facts("/v1/types", type, "restriction")

    async def lookup(
        self, id: str, type: str, where: str | None = None, *, ack: Ack = "auto", window: int = WINDOW
    ) -> tuple[list[Delivery], Subscription]:
        """The current entries of a type with a key, and a subscription to every change from there on."""
        body = {"type": type, "where": where}
        told = await self._session.ask(wire.LookupAnswer, "PUT", "/v1/lookups", id, body=body)
        entries = [msgspec.json.decode(raw, type=DeliveredEvent) for raw in told.entries]
        found = [delivery(one, 0, lambda _: None) for one in entries]
        return found, Subscription(self._channel, id, type, ack=ack, window=window)

    async def reserve(
        self, id: str, type: str | None, seconds: float, where: str | None = None, *, expression: str | None = None
    ) -> wire.ReservationAnswer:
        """Keep what is published from now on for a subscription to a type, or a detection, that is made later.

        That begins `from_="reserved:id"`. The same id again narrows it: what no longer fits need not be kept.
        """
        body = {"type": type, "seconds": seconds, "where": where, "expression": expression}
        return await self._session.ask(wire.ReservationAnswer, "PUT", "/v1/reservations", id, body=body)

    async def release(self, id: str) -> None:
        """End a reservation."""
        await self._session.request("DELETE", "/v1/reservations", id)

    # -- policy -----------------------------------------------------------------------------------------------

    async def change(self, changes: Sequence[Mapping[str, Any]], *, expect: int | None = None, note: str = "") -> int:
        """Commit changes of the policy together; the version that they made, in force in every stream."""
        body = {"changes": list(changes), "note": note, "expect": expect}
        return (await self._session.ask(wire.BatchAnswer, "POST", "/v1/batches", body=body, repeat=False)).version

    async def versions(self, after: int | None = None) -> list[wire.VersionAnswer]:
        """Versions, oldest first: those after one, or the newest."""
        params = None if after is None else {"after": str(after)}
        return (await self._session.ask(wire.VersionsAnswer, "GET", "/v1/versions", params=params)).versions

    async def _facts(self, *path: str) -> dict[str, Any]:
        return await self._session.ask(dict[str, Any], "GET", *path)


def _bound(bind: Mapping[str, Any]) -> dict[str, object]:
    """Values for variables, as JSON has them."""
    return {name: plain(value) for name, value in bind.items()}


def _since(from_: Start) -> object:
    match from_:
        case "now" | "start":
            return from_
        case bool():
            pass
        case int():
            return {"version": from_}
        case datetime() if from_.tzinfo is not None:
            return {"time": from_}
        case str() if from_.startswith(RESERVED):
            return {"reserved": from_.removeprefix(RESERVED)}
    raise BadDefinition(
        f"`{brief(from_)}` is no place to begin",
        remedy='"now", "start", a version, a time with a zone, or "reserved:" and the id of a reservation',
    )


class Connect:
    """How clients are made: from addresses and a key, or from a domain's directory on this machine."""

    def __call__(
        self,
        url: str | Sequence[str],
        key: Path | PrivateKey,
        *,
        broker: str | None = None,
        certificate: Path | None = None,
        present: Sequence[Presented] = (),
        obtain: Sequence[What] = (),
        guest_of: Issuer | None = None,
        coordinator: str | None = None,
        provider: str | None = None,
        expect: str | None = None,
        headers: Mapping[str, str] | None = None,
        timing: Timing | None = None,
        requests: Patience = REQUESTS,
        sockets: Patience = SOCKETS,
    ) -> Client:
        """A client of the gateways at one or several addresses; await it, or enter it.

        With a `certificate` only that one is trusted, without one what this machine trusts. With a `broker`, its
        `did:key:...`, only that one is; without one the first that proves itself. With a `coordinator`, a broker must
        show that it is of the network that this domain coordinates; with a `provider`, an identity provider of yours,
        that it is attested by it, and with `expect` that this rule is true of what is attested.

        `present` is shown to the gateways: statements, files of them, or a client of another domain, for what that
        domain issues to it. `obtain` names what the domain itself is to issue ("certificates", "identity"), and
        `guest_of` a client of the domain that one is at home in. What is issued is renewed before it ends.

        `headers` go with every request and WebSocket, for a proxy on the way that asks for some.
        """
        if broker is not None:
            PublicKey.from_did(broker)
        private = key if isinstance(key, PrivateKey) else PrivateKey.load(key)
        pinned = None if certificate is None else _pem(certificate)
        clocks = timing or Timing()
        wallet = Wallet(_texts([one for one in present if isinstance(one, str | Path)]), clocks)
        expected = ExpectedGateway.of(coordinator, provider, expect)
        session = ClientSession(Ring(url, pinned, broker, headers), private, requests, clocks, wallet, expected)
        for one in present:
            if not isinstance(one, str | Path):
                source = one if isinstance(one, Issued) else Issued(one)
                wallet.add_source(source.fetch, early=True)
        if guest_of is not None:
            wallet.add_source(partial(as_guest, session, guest_of), early=True)
        if obtain:
            check_kinds(obtain := tuple(obtain))
            wallet.add_source(lambda _: obtained(session, obtain), early=False)
        return Client(session, sockets)

    def from_directory(self, directory: Path | str, principal: str, **settings: Any) -> Client:
        """A client of the domain in a directory of this machine, as one of the principals whose keys are there."""
        place = place_of(Path(directory), os.environ)
        return self(place.urls, place.key(principal), broker=place.broker, certificate=place.certificate, **settings)


def _texts(given: Sequence[str | Path]) -> list[str]:
    return [text for one in given for text in (texts_in(one) if isinstance(one, Path) else [one])]


def _pem(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_CERTIFICATE_FILE_BYTES + 1)
    except OSError as error:
        raise NotFound(f"the certificate `{path}` cannot be read ({error.strerror})") from None


connect: Final = Connect()
