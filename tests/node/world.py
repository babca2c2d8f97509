"""What the tests of a node share: its policy, and what `decide` says that every reader must get.

Guarantees: what is expected comes from the log and the ledger by `decide` alone, one event and one subscription at a
time; nothing that the pipeline or a gateway made takes part in it.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx

from harness.node import Node
from headgate.client import Delivery, aio
from headgate.commands.subscriptions import ledger_id
from headgate.decide.deliver import decide
from headgate.model.events import Event
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.values import conform
from headgate.trust.keys import PrivateKey

WAIT: Final = 120.0
"""Seconds that anything may take on a busy machine."""

CARD: Final = "card-7f3a91c5-never-log-me"
INFORMANT: Final = "informant-b20c44de-never-log-me"
DRIVER: Final = "driver-5e1d77aa-never-log-me"
SECRETS: Final = (CARD, INFORMANT, DRIVER)
"""Values that are published and must be in no log."""

REGIONS: Final = ("north", "south", "embargo")
TOKEN: Final = re.compile(rb"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}")
"""What a session token looks like."""

ENEMIES: Final = 12
"""Principals that lose their rights again and again."""

_PRINCIPALS: Final = {
    "administrator": {},
    "shop": {},
    "till": {},
    "ann": {},
    "press": {},
    "desk": {},
    "wire": {},
    "transit": {},
    "depot": {},
    "bea": {"clearance": 500, "home": "north"},
    "cai": {"clearance": 200, "home": "south"},
    "dev": {"clearance": 10_000},
    "slow": {},
    "web": {},
    "ward": {},
    "nurse": {},
    "watch": {},
    **{f"enemy{n}": {"cleared": True} for n in range(ENEMIES)},
}


def policy(key: Callable[[str], str]) -> str:
    """Two organisations with types of their own, a shop, and a ward where rights come and go."""
    lines = ["headgate: 1", "title: a shop, a newspaper, a bus company and a ward", "connect: closed", "principals:"]
    for name, attributes in _PRINCIPALS.items():
        own = f", attributes: {{{', '.join(f'{a}: {_yaml(v)}' for a, v in attributes.items())}}}" if attributes else ""
        lines.append(f"  {name}: {{key: {key(name)}{own}}}")
    people = ", ".join(name for name in _PRINCIPALS if name != "administrator")
    patients = ", ".join(f"enemy{n}" for n in range(ENEMIES))
    return "\n".join(lines) + _REST.replace("PEOPLE", people).replace("PATIENTS", patients)


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_REST: Final = """
types:
  shop.Sale: {owner: shop, attributes: {item: string, amount: float, card: string}}
  shop.LargeSale: {owner: shop, times: publisher, attributes: {item: string, amount: float}}
  shop.Price: {owner: shop, key: [item], attributes: {item: string, price: float}}
  press.Story:
    owner: press
    attributes: {title: string, region: string, urgent: bool, words: int, filed: timestamp, informant: string}
  press.Bulletin: {owner: press, extends: press.Story, attributes: {level: int, digest: bytes}}
  transit.Arrival:
    owner: transit
    key: [stop, line]
    attributes: {stop: string, line: string, due: int, driver: string}
  transit.Closure: {owner: transit, attributes: {stop: string, why: string}}
  ward.Note: {owner: ward, attributes: {n: int, text: string}}

groups:
  people: [PEOPLE]
  analysts: [ann]
  readers: [bea, cai, slow, web]
  editors: [dev]
  staff: [readers, editors]
  riders: [bea, cai, web, slow]
  trusted: [PATIENTS]

relations:
  Covers: [[bea, north], [cai, south], [cai, north], [dev, embargo]]
  Sold: []

open: [Covers]

policy:
  - {id: connects, who: people, may: connect}

  - {id: till-sells, who: till, may: publish, type: shop.Sale}
  - {id: till-prices, who: till, may: publish, type: shop.Price}
  - {id: analysts-read, who: analysts, may: subscribe, type: shop.Sale, where: "amount < 1000",
     attributes: [item, amount]}
  - {id: watch-reads, who: watch, may: subscribe, type: shop.Sale, attributes: [item, amount]}
  - {id: watch-derives, who: watch, may: publish, type: shop.LargeSale}
  - {id: analysts-large, who: analysts, may: subscribe, type: shop.LargeSale}
  - {id: analysts-prices, who: analysts, may: subscribe, type: shop.Price}

  - {id: press-installs, who: press, may: [install, extend], type: press.*}
  # The desk publishes what it likes, the wire service only for its own region, and always unhurried.
  - {id: desk-publishes, who: desk, may: publish, type: press.*}
  - {id: wire-embargo, who: wire, may: publish, type: press.Story, where: "region = 'embargo'", effect: forbid}
  - {id: wire-publishes, who: wire, may: publish, type: press.Story, where: "words < 2000",
     attributes: {title: any, region: any, words: any, informant: any, urgent: false}}
  # Only editors see informants; readers see nothing under embargo, and no more words than they are cleared for.
  - {id: editors-read, who: editors, may: subscribe, type: press.*}
  - {id: no-informants, who: staff, may: subscribe, type: press.Story, effect: forbid, attributes: [informant]}
  - {id: readers-embargo, who: readers, may: subscribe, type: press.Story, effect: forbid, where: "region = 'embargo'"}
  - {id: readers-read, who: readers, may: subscribe, type: press.Story, disclose: true, where: "words <= $clearance"}
  - {id: readers-urgent, who: readers, may: subscribe, type: press.Story, where: "urgent", attributes: [title, urgent]}

  - {id: depot-publishes, who: depot, may: publish, type: transit.*}
  - {id: depot-quench, who: depot, may: quench, type: transit.Closure}
  - {id: riders-read, who: riders, may: subscribe, type: transit.Arrival, attributes: [stop, line, due]}
  - {id: riders-closures, who: riders, may: subscribe, type: transit.Closure}

  - {id: nurse-publishes, who: nurse, may: publish, type: ward.Note}
  - {id: trusted-read, who: trusted, may: subscribe, type: ward.Note, where: "$cleared = true"}
"""


# -- what must come -------------------------------------------------------------------------------------------------

Key = tuple[str, str, str]
"""What makes an event the same: publisher, source and id."""


@dataclass(frozen=True, slots=True)
class Got:
    """A delivery as a reader has it, however it came."""

    key: Key
    type: str
    view: Mapping[str, Any]


def got(one: Delivery | Mapping[str, Any]) -> Got:
    """A delivery of the client, or a CloudEvent."""
    if isinstance(one, Delivery):
        return Got((one.publisher, one.source, one.id), one.type, dict(one.data))
    return Got((one["hgpublisher"], one["source"], one["id"]), one["type"], dict(one["data"]))


class Record:
    """The log and the ledger of a node at a moment, and what they come to."""

    def __init__(self, node: Node) -> None:
        self._node = node
        with node.domain() as domain:
            self.events = domain.events()
            self.subscriptions = [one for one, _ in domain.ledger.all_subscriptions(domain.ledger.version)]
            self.types = domain.ledger.state().types
        self.places = {_key(event): (event.stream, event.seq) for event in self.events}
        assert len(self.places) == len(self.events), "an event is stored twice"

    def subscription(self, principal: str, id: str) -> Subscription:
        """The last one by this name."""
        return [one for one in self.subscriptions if one.id == ledger_id(principal, id)][-1]

    def expected(self, principal: str, id: str, since: int = 0) -> list[Got]:
        """What a subscription gets of everything that was published at a version or later, stream by stream."""
        subscription = self.subscription(principal, id)
        events = [event for event in self.events if event.version >= since]
        return [found for found in self.decisions(events, subscription) if found is not None]

    def decisions(self, events: Iterable[Event], subscription: Subscription) -> Iterator[Got | None]:
        """What a subscription gets of each event, if anything."""
        with self._node.domain() as domain:

            def state(version: int) -> State:
                key = self._node.directory, version
                if key not in _STATES:
                    _STATES[key] = domain.ledger.state(version)
                return _STATES[key]

            for event in events:
                delivery = decide(event, subscription, state, {})
                yield None if delivery is None else Got(_key(event), event.type, delivery.view)

    def by_stream(self, deliveries: Iterable[Got]) -> dict[str, list[Got]]:
        """Deliveries in the order in which they came, for each stream, with values of the declared kinds."""
        found: dict[str, list[Got]] = {}
        for one in deliveries:
            kinds = self.types.attributes(one.type)
            view = {name: conform(kinds[name], value) for name, value in one.view.items()}
            found.setdefault(self.places[one.key][0], []).append(replace(one, view=view))
        return found

    def check(self, principal: str, id: str, deliveries: Sequence[Got], since: int = 0) -> int:
        """A reader must have exactly what `decide` says, in the order of each stream; returns how much that is."""
        expected = self.by_stream(self.expected(principal, id, since))
        found = self.by_stream(deliveries)
        for stream in sorted(expected.keys() | found.keys()):
            should, has = expected.get(stream, []), found.get(stream, [])
            assert [one.key for one in has] == [one.key for one in should], f"{principal}/{id} in {stream}"
            assert has == should, f"{principal}/{id} in {stream}"
        return sum(map(len, expected.values()))


_STATES: Final[dict[tuple[Path, int], State]] = {}
"""A version never changes, so each is read once."""


def _key(event: Event) -> Key:
    return event.publisher, event.source or event.publisher, event.id


def settled(node: Node) -> Record:
    """Wait until the pipeline has decided everything that is in the log, and look at it."""
    with node.domain() as domain:

        def decided() -> bool:
            version, tails = domain.ledger.version, domain.log.tails()
            reached = domain.store.reached()
            return reached.version >= version and all(reached.streams.get(s, 0) >= t.last for s, t in tails.items())

        node.wait(decided, "everything to be decided", WAIT)
    return Record(node)


def curl(node: Node, *arguments: str, seconds: float = WAIT) -> subprocess.CompletedProcess[str]:
    """Run `curl` with the domain's certificate."""
    return subprocess.run(
        ["curl", "--silent", "--show-error", "--cacert", str(node.files.tls_certificate), *arguments],
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


def aio_client(node: Node, principal: str, gateways: Sequence[int]) -> aio.Client:
    """An asynchronous client of a principal at some gateways; enter it."""
    return aio.connect(
        [node.urls[n] for n in gateways],
        node.files.keys / f"{principal}.pem",
        broker=PrivateKey.load(node.files.broker_key).public.did,
        certificate=node.files.tls_certificate,
    )


@contextlib.asynccontextmanager
async def clients(node: Node, *who: tuple[str, int]) -> AsyncIterator[list[aio.Client]]:
    """Clients of principals, each at one gateway."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(aio_client(node, name, [gateway])) for name, gateway in who]


def token(node: Node, who: str) -> str:
    """A session of a principal, for plain requests."""
    client = node.client(who)
    try:
        return client.token()
    finally:
        client.close(end_session=False)


def ask(node: Node, gateway: int, token: str, method: str, path: str, **more: Any) -> httpx.Response:
    """A plain request."""
    context = ssl.create_default_context(cafile=str(node.files.tls_certificate))
    with httpx.Client(base_url=node.urls[gateway], verify=context, timeout=WAIT) as client:
        return client.request(method, path, headers={"authorization": f"Bearer {token}"}, **more)


def fetch(node: Node, gateway: int, token: str, id: str, count: int) -> list[dict[str, Any]]:
    """So many deliveries that are not acknowledged, by polls that do not wait, and whatever comes after them."""
    found: list[dict[str, Any]] = []

    def more() -> bool:
        asked = {"limit": 10_000, "after": [one["hgposition"] for one in found]}
        answer = ask(node, gateway, token, "GET", f"/v1/subscriptions/{id}/events", params=asked)
        assert answer.status_code == 200, answer.text
        found.extend(answer.json()["events"])
        return len(found) >= count

    node.wait(more, f"{count} deliveries of {id}", WAIT)
    more()
    return found
