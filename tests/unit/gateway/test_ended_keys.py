"""At a real gateway: what a key signed counts no more once the key has ended, and a network goes by its name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from headgate.authority.statement_state import StatementState
from headgate.model.authority import AttributeMap, NetworkAuthority, Provider, RevocationList, Succession
from headgate.model.changes import Revoke, SetCoordinator, SetProvider, Succeed
from headgate.model.rights import Action
from headgate.model.state import State
from headgate.model.values import Kind
from headgate.trust.identities import IDENTITY
from headgate.trust.keys import PrivateKey
from headgate.trust.typedefs import issue_type
from strategies.presenting import Visitor, certificate, identity, network, now
from strategies.serving import Served, serving

PLATE = {"numberplate": Kind.STRING}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("ended") / "domain") as served:
        yield served


def state(shop: Served) -> State:
    return shop.domain.ledger.state()


def ends(shop: Served, old: PrivateKey, new: PrivateKey, seconds: float = -1) -> None:
    """A key is followed by another, and counts until a moment from now."""
    until = now() + timedelta(seconds=seconds)
    shop.commit(Succeed(Succession(old.public.did, new.public.did, 0, until), now()))
    assert StatementState(state(shop)).counts(old.public.did, now()) is (seconds > 0)


def put(shop: Served, name: str, text: str) -> httpx.Response:
    return shop.ask("anna", "PUT", f"/v1/types/{name}", {"statement": text})


def told(answer: httpx.Response) -> tuple[str, str | None]:
    found = answer.json()
    return found["code"], found.get("reason")


def test_an_owners_ended_key_signs_no_type(shop: Served) -> None:
    root = PrivateKey.load(shop.gateway.files.admin_key)
    old, new = PrivateKey.generate(), PrivateKey.generate()
    install = certificate(root, old, network("install"))
    before = issue_type(old, name="z.Before", attributes=PLATE, now=now(), credentials=[install])
    assert put(shop, "z.Before", before).status_code == 201
    ends(shop, old, new)
    stolen = issue_type(old, name="z.Stolen", attributes=PLATE, now=now(), credentials=[install])
    assert told(put(shop, "z.Stolen", stolen)) == ("bad-statement", "ended-key")
    assert "z.Stolen" not in state(shop).types
    anew = issue_type(
        new, name="z.Anew", attributes=PLATE, now=now(), credentials=[install], named_after=old.public.did
    )
    assert put(shop, "z.Anew", anew).status_code == 201
    assert state(shop).types["z.Anew"].owner == state(shop).types["z.Before"].owner


def test_a_coordinators_ended_key_installs_nothing(shop: Served) -> None:
    old, new, owner = (PrivateKey.generate() for _ in range(3))
    shop.commit(SetCoordinator(old.public.did))
    try:
        ends(shop, old, new)
        for issuer, status in ((old, 422), (new, 201)):
            install = certificate(issuer, owner, network("install"))
            text = issue_type(owner, name="e.Type", attributes=PLATE, now=now(), credentials=[install])
            found = put(shop, "e.Type", text)
            assert found.status_code == status, found.text
    finally:
        shop.commit(SetCoordinator(None))


def test_guests_come_with_no_word_that_was_taken_back_or_of_a_key_that_ended(shop: Served) -> None:
    old, new, guest = PrivateKey.generate(), PrivateKey.generate(), Visitor(shop)
    shop.commit(SetProvider(Provider(old.public.did, "home", (AttributeMap("rank", "rank"),))))

    def asked(statement: str) -> httpx.Response:
        return shop.http.post("/v1/identity/guest", json={**guest.proof(), "statement": statement})

    first, second = (identity(old, guest.key, rank=n) for n in (1, 2))
    ends(shop, old, new, seconds=600)
    assert asked(first).status_code == 201
    lost = IDENTITY.verify(first, audience=None).id
    shop.commit(Revoke(RevocationList(new.public.did, 1, now(), frozenset({lost})), now()))
    assert told(asked(first))[0] == "revoked", "the provider's new key took it back"
    assert asked(second).status_code == 201
    shop.commit(Succeed(Succession(old.public.did, new.public.did, 1, now()), now()))
    assert told(asked(second))[0] == "chain-invalid"


def test_a_network_goes_by_its_name(shop: Served) -> None:
    root = PrivateKey.load(shop.gateway.files.admin_key)
    admin = Visitor(shop, root)
    assert admin.connect().status_code == 201

    def named(name: str | None) -> None:
        found = admin.ask("POST", "/v1/batches", {"changes": [{"op": "set-network", "name": name}]})
        assert found.status_code in {200, 201}, found.text

    def joins(name: str) -> str:
        owner = PrivateKey.generate()
        install = certificate(root, owner, NetworkAuthority(frozenset({Action.INSTALL}), name))
        text = issue_type(owner, name=f"n.{name.title()}", attributes=PLATE, now=now(), credentials=[install])
        found = put(shop, f"n.{name.title()}", text)
        return "taken up" if found.status_code == 201 else str(told(found)[1])

    named("here")
    assert state(shop).network == "here"
    assert (joins("there"), joins("here")) == ("not-allowed", "taken up")
    there = certificate(root, (stranger := Visitor(shop)).key, NetworkAuthority(frozenset({Action.CONNECT}), "there"))
    assert told(stranger.connect(there))[0] == "chain-invalid"
    named(None)
    assert joins("there") == "taken up"
