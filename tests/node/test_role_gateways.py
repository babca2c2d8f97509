"""Roles at real gateways as processes, without Spark: two at one node, killed and started again in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.alone import Alone, Process, alone
from headgate.client import Client, connect
from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import AddMember, AddRule, Change, DeclareGroup, DeclareType, SetConnect, SetRolefile
from headgate.model.errors import NotFound, PublishDenied, RoleDenied
from headgate.model.expressions import RoleRef
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind

SALE = "shop.Sale"
TEA = {"item": "tea"}
WAIT = 30.0
CONF = """
Chair(u) <- Login.LoggedOn(u, h)* : (u in chairs)*
Member(u) <- Login.LoggedOn(u, h)* <|* Chair(c)
Guest(u) <- Login.LoggedOn(u, h)*
"""


def policy(made: Alone) -> list[Change]:
    return [
        DeclareType(EventType(SALE, ADMINISTRATOR, {"item": Kind.STRING})),
        *made.people("ann", "bob", "carl"),
        SetConnect(True),
        DeclareGroup("chairs"),
        AddMember("chairs", "ann"),
        SetRolefile("Conf", parse_rolefile(CONF)),
        AddRule(Rule("members", "", frozenset({Action.PUBLISH}), SALE, role=RoleRef("Member", (), "Conf"))),
    ]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with alone(tmp_path_factory.mktemp("roles") / "domain", policy) as made:
        made.start("g1")
        made.start("g2")
        yield made


def at(shop: Alone, who: str, gateway: int) -> Client:
    key = shop.files.admin_key if who == ADMINISTRATOR else shop.files.keys / f"{who}.pem"
    return connect(shop.gateways[gateway].url, key, certificate=shop.files.tls_certificate)


def log_on(shop: Alone, *who: str) -> dict[str, str]:
    with at(shop, ADMINISTRATOR, 0) as root:
        found = {name: root.roles.grant("Login", "LoggedOn", name, [name, "ely"]) for name in who}
    return {name: one.memberships[0].id for name, one in found.items()}


def killed(shop: Alone, one: Process) -> Process:
    """Kill a gateway the hard way, and start it again."""
    shop.gateways.remove(one)
    one.process.kill()
    one.process.wait()
    return shop.start(one.name)


def eventually(what: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.05)


def test_what_one_gateway_gives_counts_at_the_other_and_what_one_revokes_is_gone_at_the_other(shop: Alone) -> None:
    log_on(shop, "ann", "bob")
    with at(shop, "ann", 0) as ann, at(shop, "bob", 1) as bob:
        chair = ann.roles.enter("Conf", "Chair")
        told = ann.roles.elect("Conf", "Member", to=["Login.LoggedOn('bob', _)"])
        assert told.delegation is not None
        with pytest.raises(PublishDenied):
            bob.publish(SALE, TEA)
        held = bob.roles.accept("Conf", "Member", told.delegation)
        assert bob.publish(SALE, TEA).status == "accepted"
        with at(shop, "bob", 0) as elsewhere:
            assert elsewhere.roles.renew("Conf", certificate=held.certificate).memberships[0].id == (
                held.memberships[0].id
            )
        with at(shop, "ann", 1) as elsewhere:
            elsewhere.roles.revoke(certificate=told.revocation)
        with pytest.raises(PublishDenied):
            bob.publish(SALE, TEA)
        for gateway in (0, 1):
            with at(shop, "bob", gateway) as late:
                with pytest.raises(RoleDenied) as denied:
                    late.roles.accept("Conf", "Member", told.delegation)
                assert (denied.value.failure, denied.value.details) == ("revocation", {"reason": "revoked"})
        assert [one.id for one in ann.roles.held()][-1] == chair.memberships[0].id


def test_a_gateway_that_is_killed_loses_nothing_and_revives_nothing(shop: Alone) -> None:
    logged = log_on(shop, "ann", "carl")
    with at(shop, "ann", 0) as ann, at(shop, "carl", 0) as carl:
        ann.roles.enter("Conf", "Chair")
        kept = ann.roles.elect("Conf", "Member", anyone=True)
        lost = ann.roles.elect("Conf", "Member", anyone=True)
        assert kept.delegation is not None
        assert lost.delegation is not None
        guest = carl.roles.enter("Conf", "Guest")
        ann.roles.revoke(certificate=lost.revocation)
        before = ann.roles.overview()
    for one in list(shop.gateways):
        killed(shop, one)
    with at(shop, "ann", 0) as ann, at(shop, "carl", 1) as carl:
        after = ann.roles.overview()
        assert (after.held, after.elections) == (before.held, before.elections)
        assert carl.roles.renew("Conf", certificate=guest.certificate).memberships[0].id == guest.memberships[0].id
        with pytest.raises(RoleDenied) as denied:
            carl.roles.accept("Conf", "Member", lost.delegation)
        assert denied.value.failure == "revocation"
        carl.roles.accept("Conf", "Member", kept.delegation)
        assert carl.publish(SALE, TEA).status == "accepted"
        carl.roles.exit(logged["carl"])
        assert carl.roles.held() == []
    killed(shop, shop.gateways[0])
    with at(shop, "carl", 0) as carl, at(shop, "carl", 1) as other:
        assert carl.roles.held() == other.roles.held() == []
        with pytest.raises(PublishDenied):
            carl.publish(SALE, TEA)
        with pytest.raises(NotFound):
            carl.roles.exit(logged["carl"])


def test_what_ends_while_every_gateway_is_down_is_over_when_one_comes_back(shop: Alone) -> None:
    until = datetime.now(UTC) + timedelta(seconds=4)
    with at(shop, ADMINISTRATOR, 0) as root:
        root.roles.grant("Login", "LoggedOn", "carl", ["carl", "ely"], until=until)
    with at(shop, "carl", 0) as carl:
        carl.roles.enter("Conf", "Guest")
        assert len(carl.roles.held()) == 2
    for one in list(shop.gateways):
        shop.gateways.remove(one)
        one.process.kill()
        one.process.wait()
    eventually(lambda: datetime.now(UTC) > until)
    shop.start("g1")
    shop.start("g2")
    with at(shop, "carl", 0) as carl:
        assert carl.roles.held() == []


def test_certificates_are_renewed_by_themselves_until_the_membership_is_lost(tmp_path: Path) -> None:
    with alone(tmp_path / "short", policy) as made:
        made.start("g1", roles__certificate="3s")
        with at(made, "carl", 0) as carl:
            logged = log_on(made, "carl")
            first = carl.roles.enter("Conf", "Guest").certificate
            eventually(lambda: carl.roles.certificates not in ([], [first]))
            assert carl.roles.trouble is None
            with at(made, ADMINISTRATOR, 0) as root:
                root.roles.revoke(id=logged["carl"])
            eventually(lambda: carl.roles.certificates == [])
            assert carl.roles.trouble is None
