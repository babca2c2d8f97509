"""What attacks share: how a refusal looks, who attacks, and the honest neighbour who must not notice.

Guarantees: a neighbour's `served` passes only if every event that it has ever published came to its reader exactly
once and in order, whatever was done in between.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from click.testing import Result
from typer.testing import CliRunner

from harness.alone import Alone, rule, wait
from headgate.cli.main import app
from headgate.model.changes import Change
from headgate.protocol import messages as wire
from headgate.trust.keys import PrivateKey

SALE = "shop.Sale"
ONE = {"content-type": wire.EVENT_JSON}
MANY = {"content-type": wire.BATCH_JSON}
_SERVE = """
from headgate.gateway.serve import main
raise SystemExit(main())
"""
_IMPATIENT = """
import headgate.gateway.http.connection_limits as doors
doors.HEAD_SECONDS = doors.HANDSHAKE_SECONDS = doors.BODY_SECONDS = 2.0
"""
_HASTY = """
import headgate.storage.files as files
from headgate.ledger import Ledger
files.BUSY_SECONDS = Ledger.open.__func__.__kwdefaults__["patience"] = 0.5
"""
IMPATIENT = ("-c", _IMPATIENT + _SERVE)
"""The program of a gateway that does not wait long for slow clients."""
HASTY = ("-c", _HASTY + _SERVE)
"""The program of a gateway that waits for a locked file only a moment."""
_numbers = itertools.count(1)


def fresh(stem: str) -> str:
    """A name that nothing has yet."""
    return f"{stem}-{next(_numbers)}"


def person(made: Alone, stem: str, *rules: tuple[str, ...], changes: tuple[Change, ...] = ()) -> str:
    """Someone new who may connect, and has rights: what it may do, on which type, under which condition."""
    name = fresh(stem)
    given = [rule(f"{name}-{n}", name, *one) for n, one in enumerate(rules)]
    made.commit(*made.people(name), rule(f"{name}-connects", name, "connect"), *given, *changes)
    return name


def enter(made: Alone, key: PrivateKey, *present: str, gateway: int = 0) -> httpx.Response:
    """What a key is told that asks for a session, with what it shows."""
    with made.http(gateway=gateway) as http:
        body = made.answered(http, key)
        body.present = list(present)
        return http.post("/v1/sessions", content=wire.encode(body))


def refused(answer: httpx.Response, *codes: str) -> dict[str, Any]:
    """The problem document of a refusal with one of these codes."""
    assert 400 <= answer.status_code < 600, (answer.status_code, answer.text[:500])
    assert answer.headers["content-type"] == wire.PROBLEM
    told: dict[str, Any] = answer.json()
    assert told["code"] in codes, told
    assert told["status"] == answer.status_code
    return told


def event(id: str | None = None, type: str = SALE, data: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    found = {"item": "lamp"} if data is None else data
    return {"specversion": "1.0", "id": id or fresh("e"), "source": "s", "type": type, "data": found, **more}


def publish(http: httpx.Client, one: dict[str, Any], **headers: str) -> httpx.Response:
    """Publish one event."""
    return http.post("/v1/events", content=json.dumps(one), headers={**ONE, **headers})


def publish_all(http: httpx.Client, events: list[dict[str, Any]]) -> list[str]:
    """Publish a batch; what became of each event: `accepted`, `duplicate` or the code of its refusal."""
    told = http.post("/v1/events", content=json.dumps(events), headers=MANY)
    assert told.status_code == 200, told.text
    return [one.get("code", one["status"]) for one in told.json()["results"]]


def version(http: httpx.Client) -> int:
    """The newest version of the ledger."""
    found, newest = 0, -1
    while newest != found:
        newest = found
        told = http.get("/v1/versions", params={"after": found}).json()["versions"]
        found = int(told[-1]["version"]) if told else found
    return found


def read(http: httpx.Client, id: str, count: int) -> list[dict[str, Any]]:
    """The deliveries of a subscription, once there are so many."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        answer = http.get(f"/v1/subscriptions/{id}/events", params={"wait": 1, "limit": 1_000})
        assert answer.status_code == 200, answer.text
        found[:] = answer.json()["events"]
        return len(found) >= count

    wait(there, f"{count} deliveries of `{id}`")
    return found


# -- files --------------------------------------------------------------------------------------------------------


def policy_files(made: Alone, place: Path, *people: str, groups: str = "") -> Path:
    """A policy directory that lets neighbours, and others who publish and read, go on."""
    place.mkdir()
    known = ("hana", "hugo", "dora", *people)
    lines = [f"  {name}: {{key: {made.key(name).public.did}}}" for name in known]
    rules = [f"  - {{id: {name}-connects, who: {name}, may: connect}}" for name in known]
    rules += [f"  - {{id: {name}-sends, who: {name}, may: publish, type: {SALE}}}" for name in ("hana", *people)]
    rules += [f"  - {{id: {name}-reads, who: {name}, may: subscribe, type: {SALE}}}" for name in ("hugo", *people)]
    kinds = "{item: string, amount: float, count: int}"
    text = [
        "types:",
        f"  {SALE}: {{owner: administrator, attributes: {kinds}, key: [item]}}",
        "  dora.Own: {owner: dora, attributes: {x: int, who: string}}",
        "principals:",
        *lines,
        f"groups: {{insiders: [hugo], chairs: [], public: [], {groups}}}",
        "open: [public]",
        "policy:",
        *rules,
    ]
    (place / "shop.yaml").write_text("\n".join(text) + "\n")
    return place


def applied(made: Alone, place: Path, *more: str, command: str = "apply") -> Result:
    """What `headgate policy` says to a directory."""
    sure = ["--yes"] if command == "apply" else []
    arguments = ["policy", command, str(place), "--domain", str(made.directory), *sure, *more]
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, arguments)


@dataclass
class Neighbour:
    """Someone who publishes at each gateway, and someone who reads all of it at another."""

    made: Alone
    publisher: str
    reader: str
    sent: dict[str, list[str]] = field(default_factory=dict)
    """What was published at each gateway."""
    heard: list[str] = field(default_factory=list)
    _http: dict[tuple[str, int], httpx.Client] = field(default_factory=dict)

    def begin(self) -> None:
        """Subscribe."""
        answer = self.at(self.reader, 0).put("/v1/subscriptions/news", json={"type": SALE, "where": "item = 'news'"})
        assert answer.status_code == 201, answer.text

    def at(self, who: str, gateway: int) -> httpx.Client:
        """Its connection to a gateway, which lasts as long as the gateway."""
        port = self.made.gateways[gateway].port
        if (who, port) not in self._http:
            self._http[who, port] = self.made.http(self.made.token(who, gateway), gateway)
        return self._http[who, port]

    def publish(self, gateway: int) -> None:
        """Publish one event."""
        id = fresh("news")
        told = publish(self.at(self.publisher, gateway), event(id, data={"item": "news"}))
        assert (told.status_code, told.json().get("status")) == (200, "accepted"), told.text
        self.sent.setdefault(self.made.gateways[gateway].name, []).append(id)

    def served(self) -> None:
        """Is everything as it should be, at every gateway?"""
        count = len(self.made.gateways)
        for gateway in range(count):
            self.publish(gateway)
        due = sum(map(len, self.sent.values())) - len(self.heard)
        each = [read(self.at(self.reader, gateway), "news", due) for gateway in range(count)]
        for found in each:
            heard = [*self.heard, *(one["id"] for one in found)]
            assert len(heard) == len(set(heard))
            for there in self.sent.values():
                wanted = set(there)
                assert [one for one in heard if one in wanted] == there
        self.heard = heard
        acknowledged = len(heard) // count % count  # now at one of them, now at another
        positions = [one["hgposition"] for one in each[acknowledged]]
        told = self.at(self.reader, acknowledged).post("/v1/subscriptions/news/ack", json={"positions": positions})
        assert told.status_code == 200, told.text

    def close(self) -> None:
        for one in self._http.values():
            one.close()
