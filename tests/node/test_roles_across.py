"""Two whole nodes, Spark and all: what one revokes is told by its own events, and ends what the other delivers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from harness.node import Node, free_ports
from headgate.cli.node.init import make_domain
from headgate.commands.peer_roles import allowing
from headgate.lang.rolefile import parse_role
from headgate.model.changes import (
    AddRule,
    Batch,
    DeclarePrincipal,
    DeclareType,
    EndCredential,
    GrantRole,
    SetConnect,
    SetKey,
    SetPeer,
)
from headgate.model.errors import RoleDenied
from headgate.model.rights import Action, Rule
from headgate.model.roles import Peer
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.trust.keys import PrivateKey
from node.world import WAIT, ask, token

pytestmark = pytest.mark.spark

SALE = "shop.Sale"


def make(node: Node, *people: str) -> None:
    """A domain with a shop; the till sells, and bob may read."""
    make_domain(node.directory, node.directory.name, (), datetime.now(UTC))
    node.port = free_ports(1)
    with node.domain() as domain:
        domain.commit(
            Batch(
                ADMINISTRATOR,
                (
                    *(DeclarePrincipal(name) for name in people),
                    *(SetKey(name, node.key(name)) for name in people),
                    SetConnect(True),
                    DeclareType(EventType(SALE, "till", {"item": Kind.STRING})),
                    AddRule(Rule("sells", "till", frozenset({Action.PUBLISH}), SALE)),
                    AddRule(Rule("reads", "bob", frozenset({Action.SUBSCRIBE}), SALE)),
                ),
            )
        )


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """The domain that issues, and the one that follows; both start at the same time."""
    directory = tmp_path_factory.mktemp("across")
    there = Node(directory / "there", 1, {"roles.heartbeat": "500ms", "pipeline.cores": "1"})
    here = Node(directory / "here", 1, {"pipeline.cores": "1"})
    try:
        for node, people in ((there, ("ann", "bob", "till", "cl")), (here, ("ann", "bob", "till"))):
            make(node, *people)
            node.start(wait=False)
            node.wait(lambda node=node: node.answers(0), "its gateway")
        prepare(here, there)
        for node in (there, here):
            node.wait_ready()
        yield here, there
    finally:
        for node in (there, here):
            node.stop()


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
                            SALE,
                            role=parse_role("Login.LoggedOn(u)"),
                        )
                    ),
                ),
            )
        )


def test_a_revocation_at_one_node_ends_deliveries_at_the_other(nodes: tuple[Node, Node]) -> None:
    here, there = nodes
    certificate = ask(there, 0, token(there, "ann"), "POST", "/v1/roles/Login/renew", json={"id": "on"}).json()[
        "certificate"
    ]
    with here.client("ann") as ann, here.client("bob") as bob, here.client("till") as till:
        (held,) = ann.roles.present(certificate).memberships
        assert (held.service, held.role, held.args, held.state) == ("Login", "LoggedOn", ["ann"], "true")
        hers, his = ann.subscribe("sales", SALE), bob.subscribe("sales", SALE)
        till.publish(SALE, {"item": "lamp"})
        first = hers.next(WAIT)
        assert first is not None
        assert first.data["item"] == "lamp"
        with there.domain() as domain:
            domain.commit(Batch(ADMINISTRATOR, (EndCredential("on"),)))

        def ended() -> bool:
            with here.domain() as domain:
                return not domain.ledger.state().roles.memberships

        here.wait(ended, "the revocation to be heard", WAIT)
        till.publish(SALE, {"item": "chair"})
        assert [his.next(WAIT).data["item"] for _ in range(2)] == ["lamp", "chair"]  # type: ignore[union-attr]
        assert hers.next(0.5) is None
        with pytest.raises(RoleDenied) as denied:
            ann.roles.present(certificate)
        assert denied.value.failure == "revocation"
    told = ask(here, 0, token(here, "administrator"), "GET", "/v1/roles/peers").json()["peers"]
    assert [(one["name"], one["bound"], one["records"]) for one in told] == [("Login", 30, 0)]
    assert told[0]["seconds"] < 30
