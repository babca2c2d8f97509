"""Authority across organisations at a real node: strangers with chains, a signed type, and a revocation."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import httpx
import pytest

from harness.node import Node
from headgate.lang import parse_condition
from headgate.model.authority import TypeAuthority
from headgate.model.rights import Action
from headgate.model.values import Kind
from headgate.trust.certificates import REVOCATIONS
from headgate.trust.handshake import Challenge, new_nonce, prove
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import check_broker
from headgate.trust.tls import certificate_of, client_context, fingerprint
from headgate.trust.typedefs import issue_type
from strategies.presenting import certificate, network, now, revocations, types

pytestmark = pytest.mark.spark
PLATE = "uk.gov.pito.Numberplate"
ATTRIBUTES = {"numberplate": Kind.STRING, "location": Kind.STRING, "speed": Kind.INT}
WAIT = 60.0


class Party:
    """Somebody with a key, at one gateway of a node, over TLS."""

    def __init__(self, node: Node, gateway: int, key: PrivateKey | None = None) -> None:
        self.key = key or PrivateKey.generate()
        self._binding = fingerprint(certificate_of(node.files.tls_certificate))
        self._root = PrivateKey.load(node.files.admin_key).public.did
        self.http = httpx.Client(
            base_url=node.urls[gateway],
            verify=client_context(node.files.tls_certificate.read_bytes()),
            timeout=WAIT,
            trust_env=False,
        )

    def connect(self, *present: str) -> None:
        mine = new_nonce()
        told = self.http.post("/v1/challenges", json={"nonce": mine}).json()
        check_broker(told["statements"], broker=told["broker"], coordinator=self._root, now=now())
        challenge = Challenge(told["nonce"], told["broker"], told["proof"], datetime.fromisoformat(told["expires"]))
        body = {
            "principal": self.key.public.did,
            "client_nonce": mine,
            "nonce": told["nonce"],
            "signature": prove(self.key, challenge, mine, self._binding),
            "present": list(present),
        }
        made = self.http.post("/v1/sessions", json=body)
        assert made.status_code == 201, made.text
        self.http.headers["authorization"] = f"Bearer {made.json()['token']}"

    def publish(self, id: str, **data: Any) -> httpx.Response:
        event = {"specversion": "1.0", "id": id, "source": "camera", "type": PLATE, "data": data}
        return self.http.post("/v1/events", json=event, headers={"content-type": "application/cloudevents+json"})

    def fetch(self, count: int) -> list[dict[str, Any]]:
        """So many deliveries of the subscription, acknowledged."""
        found: list[dict[str, Any]] = []
        end = time.monotonic() + WAIT
        while len(found) < count:
            assert time.monotonic() < end, f"{len(found)} of {count} came"
            came = self.http.get("/v1/subscriptions/watch/events", params={"wait": 5}).json()["events"]
            if came:
                self.http.post("/v1/subscriptions/watch/ack", json={"positions": [came[-1]["hgposition"]]})
            found += came
        return found


def test_a_chain_from_the_owner_of_a_signed_type_gives_and_its_revocation_takes_everywhere(node: Node) -> None:
    root = PrivateKey.load(node.files.admin_key)
    pito, met = PrivateKey.generate(), PrivateKey.generate()
    admin = Party(node, 0, root)
    admin.connect()
    install = certificate(root, pito, network("connect", "install"))
    text = issue_type(pito, name=PLATE, attributes=ATTRIBUTES, now=now(), credentials=[install])
    declared = admin.http.put(f"/v1/types/{PLATE}", json={"statement": text})
    assert declared.status_code == 201, declared.text

    joined = certificate(root, met, network("connect"), delegate=True)
    blanket = certificate(pito, met, types("uk.gov.pito.*", "publish", "subscribe"), delegate=True, id="blanket")
    camera, smith = Party(node, 0), Party(node, 1)
    victoria = TypeAuthority(
        frozenset({Action.PUBLISH}), PLATE, None, ("numberplate", "location"), {"location": "Victoria"}
    )
    warrant = TypeAuthority(
        frozenset({Action.SUBSCRIBE}),
        PLATE,
        None,
        ("numberplate",),
        where=parse_condition("numberplate = 'AE05 XYZ'"),
    )
    camera.connect(joined, blanket, certificate(met, camera.key, network(), victoria))
    smith.connect(joined, blanket, certificate(met, smith.key, network(), warrant))
    made = smith.http.put("/v1/subscriptions/watch", json={"type": PLATE})
    assert made.status_code == 201, made.text

    for number, plate in enumerate(("AE05 XYZ", "KX11 AAA", "AE05 XYZ")):
        sent = camera.publish(f"before-{number}", numberplate=plate, location="Oxford", speed=90)
        assert sent.status_code == 200, sent.text
    came = smith.fetch(2)
    assert [one["id"] for one in came] == ["before-0", "before-2"]
    assert came[0]["data"] == {"numberplate": "AE05 XYZ", "location": None, "speed": None}
    with node.domain() as domain:
        stored = {event.id: event for event in domain.events() if event.type == PLATE}
    assert stored["before-0"].values == {"numberplate": "AE05 XYZ", "location": "Victoria", "speed": None}

    # The owner takes the domain's right back: at once, at both gateways, for everyone who has it from there.
    brought = admin.http.post("/v1/revocations", json={"list": revocations(pito, 1, "blanket")})
    assert brought.json()["news"] is True
    elsewhere = Party(node, 1, camera.key)
    elsewhere.connect()
    for party in (camera, elsewhere):
        refused = party.publish("after", numberplate="AE05 XYZ")
        assert refused.json()["code"] == "publish-denied", refused.text
    with node.domain() as domain:
        whose = (camera.key.public.did, smith.key.public.did)
        rules = [one for one in domain.ledger.state().rules if one.who in whose and one.author != met.public.did]
    assert {action for rule in rules for action in rule.actions} == {Action.CONNECT}


def test_the_number_of_the_list_survives_every_gateway(node: Node) -> None:
    admin = Party(node, 1, PrivateKey.load(node.files.admin_key))
    admin.connect()
    broker = PrivateKey.load(node.files.broker_key).public.did
    number = admin.http.post("/v1/certificates/never-issued/revoke").json()["number"]
    assert number >= 1
    before = node.kill("gateway-1")
    assert before is not None
    node.wait(lambda: node.pids().get("gateway-1", before) != before and node.answers(0), "gateway 1 again")
    told = Party(node, 0).http.get("/v1/revocations").json()
    found = REVOCATIONS.verify(told["list"], issuer=broker, now=now())
    assert found.number == number
    assert "never-issued" in found.revoked
    assert Party(node, 0).http.get("/v1/status/never-issued").json()["status"] == "revoked"
