"""Signed types at a real gateway: taken up under their owner's name, given back as they were signed, or refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.model.changes import RetireType
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.values import Kind
from headgate.trust.keys import PrivateKey
from headgate.trust.typedefs import issue_type
from strategies.presenting import Visitor, certificate, network, now, revocations, types
from strategies.serving import SALE, Served, serving

PLATE = {"numberplate": Kind.STRING, "location": Kind.STRING}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("types") / "domain") as served:
        yield served


@pytest.fixture
def root(shop: Served) -> PrivateKey:
    return PrivateKey.load(shop.gateway.files.admin_key)


def state(shop: Served) -> State:
    return shop.domain.ledger.state()


def put(shop: Served, name: str, text: str, **more: object) -> tuple[int, dict[str, object]]:
    found = shop.ask("anna", "PUT", f"/v1/types/{name}", {"statement": text, **more})
    return found.status_code, found.json()


def refused(shop: Served, name: str, text: str) -> tuple[object, object]:
    before = state(shop).version
    status, told = put(shop, name, text)
    assert status in {403, 404, 409, 422}, told
    assert state(shop).version == before
    return told["code"], told.get("reason")


def test_a_type_of_another_owner_is_taken_up_and_given_back_as_it_was_signed(shop: Served, root: PrivateKey) -> None:
    owner = PrivateKey.generate()
    install = certificate(root, owner, network("install"))
    text = issue_type(owner, name="uk.pito.Plate", attributes=PLATE, now=now(), credentials=[install])
    before = state(shop).version
    status, told = put(shop, "uk.pito.Plate", text)
    assert status == 201, told
    assert told["owner"] == owner.public.did
    assert state(shop).version == before + 1
    assert shop.ask("bob", "GET", "/v1/types/uk.pito.Plate").json()["statement"] == text
    assert put(shop, "uk.pito.Plate", text)[0] == 200
    assert state(shop).version == before + 1

    grown = {**PLATE, "speed": Kind.INT}
    newer = issue_type(owner, name="uk.pito.Plate", attributes=grown, now=now(), credentials=[install])
    assert put(shop, "uk.pito.Plate", newer)[0] == 200
    assert shop.ask("bob", "GET", "/v1/types/uk.pito.Plate").json()["statement"] == newer

    # The owner's chain gives rights on it at once.
    camera = Visitor(shop)
    shown = certificate(owner, camera.key, types("uk.pito.*", "publish")), certificate(root, camera.key)
    assert camera.connect(*shown).status_code == 201
    assert camera.publish("uk.pito.Plate", numberplate="AE05 XYZ").status_code == 200
    assert camera.publish(SALE, "2", amount=1.0).status_code == 403


def test_an_heir_of_another_owner_needs_extend_and_brings_its_parents(shop: Served, root: PrivateKey) -> None:
    pito, met = PrivateKey.generate(), PrivateKey.generate()
    install = certificate(root, pito, network("install"))
    parent = issue_type(pito, name="uk.base.Seen", attributes=PLATE, now=now(), credentials=[install])
    extend = certificate(pito, met, types("uk.base.*", "extend"))
    heir = issue_type(
        met, name="met.Stopped", attributes={"officer": Kind.STRING}, now=now(), credentials=[extend], parent=parent
    )
    status, told = put(shop, "met.Stopped", heir)
    assert status == 201, told
    assert told["extends"] == "uk.base.Seen"
    assert list(state(shop).types.attributes("met.Stopped")) == [*PLATE, "officer"]
    assert state(shop).types["uk.base.Seen"].owner == pito.public.did
    without = issue_type(met, name="met.Other", attributes={}, now=now(), parent=parent)
    assert refused(shop, "met.Other", without) == ("bad-statement", "no-credentials")


def test_what_is_not_allowed_altered_or_squatting_is_refused(shop: Served, root: PrivateKey) -> None:
    owner, other = PrivateKey.generate(), PrivateKey.generate()
    install = certificate(root, owner, network("install"), id="the-install")
    good = issue_type(owner, name="a.Type", attributes=PLATE, now=now(), credentials=[install])
    head, payload, signature = good.split(".")
    assert refused(shop, "a.Type", f"{head}.{payload[:-2]}AA.{signature}")[0] == "bad-statement"
    assert refused(shop, "b.Type", good) == ("bad-statement", "wrong-name")
    unrooted = certificate(other, owner, network("install"))
    text = issue_type(owner, name="a.Type", attributes=PLATE, now=now(), credentials=[unrooted])
    assert refused(shop, "a.Type", text) == ("bad-statement", "wrong-root")
    squat = issue_type(
        other, name="a.Type", attributes=PLATE, now=now(), credentials=[install], named_after=owner.public.did
    )
    assert refused(shop, "a.Type", squat) == ("bad-statement", "squatting")
    over = certificate(root, owner, network("install"), seconds=5, ago=10)
    text = issue_type(owner, name="a.Type", attributes=PLATE, now=now(), credentials=[over])
    assert refused(shop, "a.Type", text)[0] == "expired"
    taken = issue_type(owner, name=SALE, attributes=PLATE, now=now(), credentials=[install])
    assert refused(shop, SALE, taken)[0] == "already-exists"
    fresh = certificate(root, owner, network("install"), freshness=60)
    text = issue_type(owner, name="a.Type", attributes=PLATE, now=now(), credentials=[fresh])
    assert refused(shop, "a.Type", text)[0] == "chain-invalid"
    told = shop.http.post("/v1/revocations", json={"list": revocations(root, 1, "the-install")})
    assert told.status_code == 200, told.text
    assert refused(shop, "a.Type", good)[0] == "revoked"
    status, told_ = put(shop, "a.Type", good, owner="anna")
    assert (status, told_["code"]) == (400, "bad-request")
    assert owner.public.did not in state(shop).principals


def test_a_retired_type_does_not_come_back_because_someone_kept_its_definition(shop: Served, root: PrivateKey) -> None:
    owner, other = Visitor(shop), PrivateKey.generate()
    assert owner.connect(certificate(root, owner.key)).status_code == 201
    install = certificate(root, owner.key, network("install"))
    name = "old.Seen"
    text = issue_type(owner.key, name=name, attributes=PLATE, now=now(), credentials=[install])
    assert put(shop, name, text)[0] == 201
    extend = certificate(owner.key, other, types("old.*", "extend"))
    heir = issue_type(other, name="old.Heir", attributes={}, now=now(), credentials=[extend], parent=text)

    grown = issue_type(owner.key, name=name, attributes={**PLATE, "x": Kind.INT}, now=now(), credentials=[install])
    shop.commit(RetireType(name))
    assert refused(shop, name, text) == ("bad-statement", "retired")
    assert refused(shop, "old.Heir", heir) == ("bad-statement", "retired")
    assert refused(shop, name, grown) == ("bad-statement", "retired")
    assert name not in state(shop).types

    # Its owner in person, and the administrator, may show what was signed before.
    assert owner.ask("PUT", f"/v1/types/{name}", {"statement": text}).status_code == 201
    shop.commit(RetireType(name))
    admin = Visitor(shop, root)
    assert admin.connect().status_code == 201
    assert admin.ask("PUT", f"/v1/types/{name}", {"statement": text}).status_code == 201

    # Anyone may show what its owner has signed since.
    shop.commit(RetireType(name))
    time.sleep(2)  # a signature says its time in whole seconds
    since = issue_type(owner.key, name=name, attributes=PLATE, now=now(), credentials=[install])
    assert refused(shop, name, text) == ("bad-statement", "retired")
    assert put(shop, name, since)[0] == 201
    assert put(shop, "old.Heir", heir)[0] == 201


def test_a_declassification_that_was_taken_back_is_not_shown_again(shop: Served, root: PrivateKey) -> None:
    owner, derives = Visitor(shop), PrivateKey.generate()
    assert owner.connect(certificate(root, owner.key)).status_code == 201
    install, also = (certificate(root, key, network("install")) for key in (owner.key, derives))
    name, made = "a.Seen", "b.Convoy"
    signing: dict[str, Any] = {"name": name, "attributes": PLATE, "credentials": [install]}
    plain = issue_type(owner.key, **signing, now=now())
    released = issue_type(owner.key, **signing, now=now(), declassified_for=[(derives.public.did, made)])
    others = issue_type(owner.key, **signing, now=now(), declassified_for=[(owner.key.public.did, made)])
    assert refused(shop, name, released)[0] == "unknown-type"
    convoy = issue_type(derives, name=made, attributes=PLATE, credentials=[also], now=now(), derived="declassified")
    assert put(shop, made, convoy)[1]["derived"] == "declassified"
    assert shop.ask("bob", "GET", f"/v1/types/{made}").json()["statement"] == convoy
    assert refused(shop, name, others)[0] == "unknown-type"  # of that name is another's here
    assert put(shop, name, released)[1]["declassified_for"] == [made]

    # Who kept what was signed before cannot give or take anything back by it; its owner in person can.
    assert refused(shop, name, plain) == ("bad-statement", "classified")
    assert owner.ask("DELETE", f"/v1/types/{name}/declassified/{made}").status_code == 204
    assert refused(shop, name, released) == ("bad-statement", "classified")
    assert not state(shop).types[name].declassified_for
    assert owner.ask("DELETE", f"/v1/types/{name}/declassified/{made}").status_code == 404
    assert shop.ask("bob", "PUT", f"/v1/types/{name}/declassified/{made}").status_code == 403
    assert owner.ask("PUT", f"/v1/types/{name}/declassified/{made}").status_code == 201
    assert owner.ask("PUT", f"/v1/types/{name}/declassified/{made}").status_code == 200
    assert owner.ask("PUT", f"/v1/types/{name}/declassified/not.There").json()["code"] == "unknown-type"


def test_an_owner_that_nobody_let_in_does_not_connect_because_the_domain_is_open(
    shop: Served, root: PrivateKey
) -> None:
    owner = Visitor(shop)
    install = certificate(root, owner.key, network("install"))
    text = issue_type(owner.key, name="by.Stranger", attributes=PLATE, now=now(), credentials=[install])
    assert put(shop, "by.Stranger", text)[0] == 201
    assert state(shop).connect_open
    denied = owner.connect()
    assert (denied.status_code, denied.json()["code"]) == (403, "connect-denied")
    shown = owner.connect(certificate(root, owner.key, types(SALE, "publish")))
    assert (shown.status_code, shown.json()["code"]) == (403, "connect-denied")
    assert owner.connect(certificate(root, owner.key)).status_code == 201


def test_owners_count_among_those_who_came_by_themselves(tmp_path: Path) -> None:
    with serving(tmp_path / "domain", authority__guests="1") as served:
        root, pito, met = PrivateKey.load(served.gateway.files.admin_key), PrivateKey.generate(), PrivateKey.generate()
        install = certificate(root, pito, network("install"))
        parent = issue_type(pito, name="uk.Seen", attributes=PLATE, now=now(), credentials=[install])
        extend = certificate(pito, met, types("uk.*", "extend"))
        heir = issue_type(met, name="met.Seen", attributes={}, now=now(), credentials=[extend], parent=parent)
        before = state(served).version
        status, told = put(served, "met.Seen", heir)
        assert (status, told["code"]) == (429, "too-many")
        assert state(served).version == before, "two owners came with it"
        assert put(served, "uk.Seen", parent)[0] == 201
        assert put(served, "met.Seen", heir)[0] == 429


def test_a_definition_is_not_given_back_once_the_type_is_another(shop: Served, root: PrivateKey) -> None:
    text = issue_type(root, name="own.Type", attributes={"x": Kind.INT}, now=now())
    status, told = put(shop, "own.Type", text)
    assert (status, told["owner"]) == (201, ADMINISTRATOR)
    admin = Visitor(shop, root)
    assert admin.connect().status_code == 201
    body = {"attributes": {"x": "int", "y": "int"}}
    assert admin.ask("PUT", "/v1/types/own.Type", body).status_code == 200
    assert "statement" not in admin.ask("GET", "/v1/types/own.Type").json()
