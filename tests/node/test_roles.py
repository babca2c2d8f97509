"""Roles at a real node with Spark: a tracker's role gives deliveries, and its court order takes them away again."""

from __future__ import annotations

import pytest

from harness.node import Node
from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_role, parse_rolefile
from headgate.model.changes import AddRule, Batch, DeclareType, SetRolefile
from headgate.model.errors import RoleDenied
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from node.world import fetch, got, settled, token

pytestmark = pytest.mark.spark
PLATE = "met.Plate"
WANTED, OTHER = "AE05 XYZ", "KX11 AAA"
MET = "npTracker(d, np) <- Personnel.Detective(d)* & Court.Order(d, np)*"


def prepare(node: Node) -> None:
    """Cameras publish plates; a tracker sees the one that its court order names."""
    may = frozenset({Action.SUBSCRIBE})
    by_role = Rule("trackers", "", may, PLATE, parse_condition("plate = $np"), role=parse_role("Met.npTracker(d, np)"))
    changes = (
        DeclareType(EventType(PLATE, ADMINISTRATOR, {"plate": Kind.STRING, "place": Kind.STRING})),
        AddRule(Rule("cameras", "desk", frozenset({Action.PUBLISH}), PLATE)),
        AddRule(by_role),
        SetRolefile("Met", parse_rolefile(MET)),
    )
    with node.domain() as domain:
        domain.commit(Batch(ADMINISTRATOR, changes))


def sighted(node: Node, when: str) -> None:
    """Both plates are seen once more, at a gateway that is up."""
    with node.client("desk") as camera:
        for plate in (WANTED, OTHER):
            assert camera.publish(PLATE, {"plate": plate, "place": when}).status == "accepted"


def killed(node: Node, name: str, number: int) -> None:
    """Kill a gateway, and wait until the node has started it again."""
    before = node.kill(name)
    assert before is not None
    node.wait(lambda: node.pids().get(name, before) != before and node.answers(number), f"{name} again")


def test_a_court_order_gives_and_its_revocation_takes_whatever_is_killed_in_between(node: Node) -> None:
    prepare(node)
    with node.client(ADMINISTRATOR) as root:
        root.roles.grant("Personnel", "Detective", "bea", ["bea"])
        order = root.roles.grant("Court", "Order", "bea", ["bea", WANTED], appointment=True).memberships[0]
    bea = node.client("bea")
    try:
        bea.subscribe("plates", PLATE).close()
        sighted(node, "before")
        tracker = bea.roles.enter("Met", "npTracker")
        assert tracker.memberships[0].args == ["bea", WANTED]
        sighted(node, "tracked")
        killed(node, "gateway-1", 0)
        sighted(node, "after a crash")
        assert [one.id for one in bea.roles.held()][-1] == tracker.memberships[0].id

        falls = bea.roles.graph(order.id).falls
        assert [one.id for one in falls] == [tracker.memberships[0].id]
        with node.client(ADMINISTRATOR) as root:
            root.roles.revoke(id=order.id)
        sighted(node, "revoked")
        killed(node, "gateway-1", 0)
        killed(node, "gateway-2", 1)
        sighted(node, "after more crashes")
        assert [one.role for one in bea.roles.held()] == ["Detective"]
        for given in ({"certificate": tracker.certificate}, {"id": tracker.memberships[0].id}):
            with pytest.raises(RoleDenied) as denied:
                bea.roles.renew("Met", **given)
            assert denied.value.failure == "revocation"
        with pytest.raises(RoleDenied) as denied:
            bea.roles.enter("Met", "npTracker")
        assert denied.value.failure == "credentials"
    finally:
        bea.close()

    record = settled(node)
    came = [got(one) for one in fetch(node, 0, token(node, "bea"), "plates", 2)]
    seen = {(one.view["plate"], one.view["place"]) for one in came}
    assert seen == {(WANTED, "tracked"), (WANTED, "after a crash")}
    assert record.check("bea", "plates", came) == 2
