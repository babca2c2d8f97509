"""Two whole nodes, Spark and all: what one revokes is told by its own events, and ends what the other delivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from harness.node import Node, running
from headgate.gateway.notices import allowing
from headgate.lang.rolefile import parse_role
from headgate.model.changes import AddRule, Batch, EndCredential, GrantRole, SetKey, SetPeer
from headgate.model.rights import Action, Rule
from headgate.model.roles import Peer
from headgate.model.state import ADMINISTRATOR
from headgate.trust.keys import PrivateKey
from node.world import WAIT, ask, token

pytestmark = pytest.mark.spark

POLICY = """
headgate: 1
title: one of two
connect: closed
principals: {PEOPLE}
types:
  shop.Sale: {owner: till, attributes: {item: string, amount: float}}
policy:
  - {id: connects, who: all, may: connect}
  - {id: sells, who: till, may: publish, type: shop.Sale}
  - {id: reads, who: bob, may: subscribe, type: shop.Sale}
groups:
  all: [MEMBERS]
"""


def policy(*people: str) -> Callable[[Callable[[str], str]], str]:
    def made(key: Callable[[str], str]) -> str:
        who = ", ".join(f"{name}: {{key: {key(name)}}}" for name in ("administrator", *people))
        return POLICY.replace("PEOPLE", who).replace("MEMBERS", ", ".join(people))

    return made


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """The domain that issues, and the one that follows; both start at the same time."""
    directory = tmp_path_factory.mktemp("across")
    with ExitStack() as stack:
        found: dict[str, Node] = {}

        def up(name: str, *people: str, **settings: str) -> None:
            found[name] = stack.enter_context(running(directory / name, policy(*people), 1, **settings))

        up("there", "ann", "bob", "till", "cl", roles__heartbeat="500ms", pipeline__cores="1")
        up("here", "ann", "bob", "till", pipeline__cores="1")
        prepare(found["here"], found["there"])
        yield found["here"], found["there"]


def own(node: Node) -> str:
    return PrivateKey.load(node.files.broker_key).public.did


def prepare(here: Node, there: Node) -> None:
    """Let the one follow the other, and whoever is logged on there read here."""
    shared = (there.files.keys / "ann.pem").read_bytes()
    path = here.files.keys / "ann.pem"
    path.unlink()
    PrivateKey.load(there.files.keys / "ann.pem").save(path)
    assert path.read_bytes() == shared

    with there.domain() as domain:
        state = domain.ledger.state()
        domain.commit(Batch(ADMINISTRATOR, (SetKey("cl", own(here)), *allowing(state, "cl", "Login"))))
        domain.commit(Batch(ADMINISTRATOR, (GrantRole("on", "Login", "LoggedOn", ("ann",), "ann"),)))
    here.files.peers.mkdir()
    (here.files.peers / "Login.crt").write_bytes(there.files.tls_certificate.read_bytes())
    with here.domain() as domain:
        domain.commit(
            Batch(
                ADMINISTRATOR,
                (
                    SetKey("ann", PrivateKey.load(path).public.did),
                    SetPeer(Peer("Login", own(there), "Login", 30, there.urls[0])),
                    AddRule(
                        Rule(
                            "logged on",
                            "",
                            frozenset({Action.SUBSCRIBE}),
                            "shop.Sale",
                            role=parse_role("Login.LoggedOn(u)"),
                        )
                    ),
                ),
            )
        )


def test_a_revocation_at_one_node_ends_deliveries_at_the_other(nodes: tuple[Node, Node]) -> None:
    here, there = nodes
    certificate = ask(there, 0, token(there, "ann"), "POST", "/v1/roles/Login/renew", json={"id": "on"}).json()
    session = token(here, "ann")
    shown: list[Any] = []

    def count() -> bool:
        shown.append(
            ask(here, 0, session, "POST", "/v1/roles/present", json={"certificate": certificate["certificate"]})
        )
        return bool(shown[-1].status_code == 201)

    here.wait(count, "the certificate to be confirmed", WAIT)
    with here.client("ann") as ann, here.client("bob") as bob, here.client("till") as till:
        hers, his = ann.subscribe("sales", "shop.Sale"), bob.subscribe("sales", "shop.Sale")
        till.publish("shop.Sale", {"item": "lamp", "amount": 1.0})
        first = hers.next(WAIT)
        assert first is not None
        assert first.data["item"] == "lamp"
        with there.domain() as domain:
            domain.commit(Batch(ADMINISTRATOR, (EndCredential("on"),)))

        def ended() -> bool:
            with here.domain() as domain:
                return not domain.ledger.state().roles.memberships

        here.wait(ended, "the revocation to be heard", WAIT)
        till.publish("shop.Sale", {"item": "chair", "amount": 2.0})
        assert [his.next(WAIT).data["item"] for _ in range(2)] == ["lamp", "chair"]  # type: ignore[union-attr]
        assert hers.next(0.5) is None
    denied = ask(here, 0, session, "POST", "/v1/roles/present", json={"certificate": certificate["certificate"]})
    assert (denied.status_code, denied.json()["failure"]) == (403, "revocation")
    told = ask(here, 0, token(here, "administrator"), "GET", "/v1/roles/peers").json()["peers"]
    assert [(one["name"], one["bound"], one["records"]) for one in told] == [("Login", 30, 0)]
    assert told[0]["seconds"] < 30
