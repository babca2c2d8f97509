"""A domain with one gateway, shared by the tests that only ask it things it must refuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.alone import Alone, alone, rule
from headgate.model.changes import AddMember, Change, DeclareGroup, DeclareRelation, DeclareType
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind

SALE = "shop.Sale"
DEEP = "shop.deep.Sale"
ATTRIBUTES = {"item": Kind.STRING, "amount": Kind.FLOAT, "count": Kind.INT, "raw": Kind.BYTES, "at": Kind.TIMESTAMP}


def policy(made: Alone) -> list[Change]:
    """Anna and bob both subscribe and publish; carl may do nothing, and dora governs a type of her own."""
    people = ("anna", "bob", "carl", "dora")
    return [
        *made.people(*people),
        DeclareGroup("secret-staff"),
        DeclareGroup("open-staff", True),
        AddMember("secret-staff", "bob"),
        DeclareRelation("SecretTies"),
        DeclareType(EventType(SALE, ADMINISTRATOR, ATTRIBUTES, None, ("item",))),
        DeclareType(EventType("dora.Own", "dora", {"x": Kind.INT})),
        *(rule(f"{who}-connects", who, "connect") for who in people if who != "carl"),
        *(rule(f"{who}-sees", who, "subscribe", SALE) for who in ("anna", "bob")),
        *(rule(f"{who}-sends", who, "publish", SALE) for who in ("anna", "bob")),
        rule("bob-alone", "bob", "publish", SALE, "item = 'only bob knows'"),
        rule("anna-installs", "anna", "install", "anna.*"),
    ]


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with alone(tmp_path_factory.mktemp("input") / "domain", policy) as made:
        paces = {
            "limits__versions_per_minute": "100000",
            "limits__refused_per_minute": "10GB",
        }  # a fast machine asks more
        made.start(subscribe__wait="500ms", roles__requests="100000", **paces)
        with made.deciding():
            yield made


@pytest.fixture(scope="session")
def anna(shop: Alone) -> str:
    return shop.token("anna")


@pytest.fixture(autouse=True)
def no_fault_is_logged(shop: Alone) -> Iterator[None]:
    """Whatever a client sends, it is never a fault of the node."""
    before = len(shop.gateway.faults())
    yield
    assert shop.gateway.faults()[before:] == []
