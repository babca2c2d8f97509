"""Two whole nodes, Spark and all: what one revokes is told by its own events, and ends what the other delivers."""

from __future__ import annotations

import shutil
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


@pytest.fixture(scope="module")
def here(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A domain that follows the roles of the one that all tests share: whoever is logged on there may read here."""
    made = Node(tmp_path_factory.mktemp("across") / "here", 1, {"pipeline.cores": "1"})
    make_domain(made.directory, made.directory.name, (), datetime.now(UTC))
    made.port = free_ports(1)
    shutil.copy(node.files.keys / "ann.pem", made.files.keys)
    made.files.peers.mkdir()
    shutil.copy(node.files.tls_certificate, made.files.peers / "Login.crt")
    may, people = lambda action: frozenset({action}), ("ann", "bob", "till")
    with node.domain() as domain:
        follows = AddRule(Rule("cl-connects", "cl", may(Action.CONNECT), "*"))
        known = (
            DeclarePrincipal("cl"),
            SetKey("cl", own(made)),
            follows,
            *allowing(domain.ledger.state(), "cl", "Login"),
        )
        domain.commit(Batch(ADMINISTRATOR, known))
        domain.commit(Batch(ADMINISTRATOR, (GrantRole("on", "Login", "LoggedOn", ("ann",), "ann"),)))
    logged_on = parse_role("Login.LoggedOn(u)")
    with made.domain() as domain:
        changes = (
            *(DeclarePrincipal(name) for name in people),
            *(SetKey(name, made.key(name)) for name in people),
            SetConnect(True),
            DeclareType(EventType(SALE, "till", {"item": Kind.STRING})),
            AddRule(Rule("sells", "till", may(Action.PUBLISH), SALE)),
            AddRule(Rule("reads", "bob", may(Action.SUBSCRIBE), SALE)),
            SetPeer(Peer("Login", own(node), "Login", 30, node.urls[0])),
            AddRule(Rule("logged on", "", may(Action.SUBSCRIBE), SALE, role=logged_on)),
        )
        domain.commit(Batch(ADMINISTRATOR, changes))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def own(node: Node) -> str:
    return PrivateKey.load(node.files.broker_key).public.did


def test_a_revocation_at_one_node_ends_deliveries_at_the_other(here: Node, node: Node) -> None:
    renewed = ask(node, 0, token(node, "ann"), "POST", "/v1/roles/Login/renew", json={"id": "on"})
    certificate = renewed.json()["certificate"]
    with here.client("ann") as ann, here.client("bob") as bob, here.client("till") as till:
        (held,) = ann.roles.present(certificate).memberships
        assert (held.service, held.role, held.args, held.state) == ("Login", "LoggedOn", ["ann"], "true")
        hers, his = ann.subscribe("sales", SALE), bob.subscribe("sales", SALE)
        till.publish(SALE, {"item": "lamp"})
        first = hers.next(WAIT)
        assert first is not None
        assert first.data["item"] == "lamp"
        with node.domain() as domain:
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
