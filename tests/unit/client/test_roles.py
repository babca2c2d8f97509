"""The client's roles: every operation against a real gateway, and certificates kept fresh on a clock that is turned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from headgate.client import Client, Timing, aio, connect
from headgate.client.errors import refusal
from headgate.client.roles import ALL, Roles
from headgate.client.wallet import RENEW_AT, RoleHeld, Wallet
from headgate.model.errors import BadRequest, GovernDenied, HeadgateError, NotFound, RoleDenied, StorageBusy
from headgate.model.limits import MAX_HELD
from headgate.model.state import ADMINISTRATOR
from headgate.protocol import role_messages as rw
from strategies.role_serving import Office, office
from strategies.serving import SALE

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with office(tmp_path_factory.mktemp("conf") / "domain") as made:
        yield made


def joined(conf: Office, who: str) -> Client:
    return connect(f"http://127.0.0.1:{conf.served.port}", conf.served.keys[who])


def failure(denied: pytest.ExceptionInfo[RoleDenied]) -> tuple[str, str | None]:
    return denied.value.failure, denied.value.details.get("reason")


# -- operations -------------------------------------------------------------------------------------------------


def test_a_meeting_from_beginning_to_end(conf: Office) -> None:
    with (
        joined(conf, ADMINISTRATOR) as root,
        joined(conf, "anna") as anna,
        joined(conf, "bob") as bob,
        joined(conf, "carl") as carl,
    ):
        logged = {
            one.principal: root.roles.grant("Login", "LoggedOn", one.principal, [one.principal, "ely"])
            for one in (anna, bob, carl)
        }
        assert anna.roles.certificates == []
        both = anna.roles.enter("Conf", {"Chair": ["anna"], "Note": [{"r", "w"}]})
        assert [one.args for one in both.memberships] == [["anna"], [frozenset("rw")]]
        assert anna.roles.certificates == [both.certificate]
        bob.roles.enter("Conf", ["Chair"], using=[ALL])

        told = anna.roles.elect("Conf", "Member", [None], to=["Login.LoggedOn('carl', _)"])
        assert told.election.args == [None]
        assert told.delegation is not None
        held = carl.roles.accept("Conf", "Member", told.delegation)
        assert [one.role for one in carl.roles.held()] == ["LoggedOn", "Member"]
        passed = anna.roles.pass_revocation(told.election.id, "bob")
        assert [one.id for one in bob.roles.overview().elections] == [told.election.id]
        bob.roles.revoke(certificate=passed.revocation)
        with pytest.raises(RoleDenied) as denied:
            carl.roles.renew("Conf", certificate=held.certificate)
        assert failure(denied) == ("revocation", "revoked")

        carl.roles.enter("Conf", "Guest", args=["carl"])
        anna.roles.revoke_role("Conf", "Guest", ["carl"])
        with pytest.raises(RoleDenied):
            carl.roles.enter("Conf", "Guest")
        anna.roles.reinstate("Conf", "Guest", ["carl"])
        guest = carl.roles.enter("Conf", "Guest")
        assert guest.certificate in carl.roles.certificates
        assert [one.id for one in carl.roles.graph(logged["carl"].memberships[0].id).falls] == [guest.memberships[0].id]
        carl.roles.exit(guest.memberships[0].id)
        assert guest.certificate not in carl.roles.certificates

        assert carl.roles.rolefile("Conf").statements is None
        assert carl.roles.parse("Conf", "Note({rw})").args == [frozenset("rw")]
        with carl.subscribe("counted", SALE, counting=[logged["carl"].memberships[0].id]):
            (one,) = carl.subscriptions()
            assert one.with_ == [logged["carl"].memberships[0].id]
        for each in (anna, bob, carl):
            each.roles.exit(logged[each.principal].memberships[0].id)
            assert {one.role for one in each.roles.held()} <= {"Note"}  # its statement marks nothing with a star


def test_refusals_come_as_what_they_are(conf: Office) -> None:
    with joined(conf, "anna") as anna, joined(conf, ADMINISTRATOR) as root:
        with pytest.raises(GovernDenied):
            anna.roles.grant("Login", "LoggedOn", "anna", ["anna", "ely"])
        with pytest.raises(BadRequest):
            anna.roles.elect("Conf", "Member")
        with pytest.raises(NotFound):
            anna.roles.exit("nothing")
        with pytest.raises(NotFound):
            anna.roles.graph("nothing")
        with pytest.raises(RoleDenied) as denied:
            anna.roles.enter("Conf", "Chair")
        assert failure(denied) == ("credentials", None)
        theirs = root.roles.grant("Login", "LoggedOn", "bob", ["bob", "ely"])
        assert theirs.certificate is not None
        with pytest.raises(RoleDenied) as denied:
            anna.roles.enter("Conf", "Chair", using=[theirs.certificate])
        assert failure(denied) == ("fraud", "stolen")
        assert denied.value.place == "credential 1"
        with pytest.raises(RoleDenied) as denied:
            anna.subscribe("counted", SALE, counting=[theirs.memberships[0].id])
        assert failure(denied) == ("fraud", None)
        root.roles.revoke(id=theirs.memberships[0].id)


def test_a_class_of_failure_that_is_not_known_is_misuse() -> None:
    made = refusal({"code": "role-denied", "detail": "no", "failure": "laziness"})
    assert isinstance(made, RoleDenied)
    assert (made.failure, made.details) == ("misuse", {})


def test_the_asynchronous_client_does_the_same(conf: Office) -> None:
    url = f"http://127.0.0.1:{conf.served.port}"
    until = datetime.now(UTC) + timedelta(days=1)

    async def story() -> list[str]:
        async with (
            aio.connect(url, conf.served.keys[ADMINISTRATOR]) as root,
            aio.connect(url, conf.served.keys["dora"]) as dora,
        ):
            given = await root.roles.grant("Login", "LoggedOn", "dora", ["dora", "ely"], appointment=True, until=until)
            await dora.roles.enter("Conf", "Guest", using=[given.certificate or ""])
            held = [one.role for one in await dora.roles.held()]
            await dora.roles.exit(given.memberships[0].id)
            return held

    assert asyncio.run(story()) == ["LoggedOn", "Guest"]


# -- keeping certificates fresh -----------------------------------------------------------------------------------


class Clock:
    """Time that passes only while someone sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)

    @property
    def timing(self) -> Timing:
        return Timing(lambda: self.seconds, self.sleep, lambda: 0.5)


class Gate:
    """A session whose gateway renews certificates that live so long, or refuses as it is told."""

    def __init__(self, clock: Clock, life: float) -> None:
        self.clock = clock
        self.timing = clock.timing
        self.wallet = Wallet((), self.timing)
        self.life = life
        self.asked: list[tuple[float, dict[str, Any]]] = []
        self.refusals: list[HeadgateError] = []
        self.enough = asyncio.Event()
        self.most = 5

    async def ask(self, kind: type[Any], method: str, *path: str, body: dict[str, Any]) -> rw.CertificateAnswer:
        assert (kind, method) == (rw.CertificateAnswer, "POST")
        self.asked.append((self.clock.seconds, body))
        if len(self.asked) >= self.most:
            self.enough.set()
        if self.refusals and path[-1] == "renew":
            raise self.refusals.pop(0)
        now = START + timedelta(seconds=self.clock.seconds)
        names = [body["id"]] if "id" in body else ["m1", "m2"]
        held = [rw.MembershipAnswer(name, "Conf", "Chair", [], "1.1") for name in names]
        return rw.CertificateAnswer(held, 1, f"text {len(self.asked)}", now, now + timedelta(seconds=self.life))


def run(gate_life: float, most: int, *refusals: HeadgateError) -> tuple[Gate, Roles]:
    """Enter a role, and let time pass until the gateway was asked so often."""

    async def story() -> tuple[Gate, Roles]:
        gate = Gate(Clock(), gate_life)
        gate.most, gate.refusals = most, list(refusals)
        roles = Roles(gate)  # type: ignore[arg-type]
        await roles.enter("Conf", ["Chair"])
        await asyncio.wait_for(gate.enough.wait(), 20)
        await asyncio.sleep(0)
        await roles.stop()
        return gate, roles

    return asyncio.run(story())


def test_certificates_are_renewed_well_before_they_end_each_by_the_last() -> None:
    gate, roles = run(100.0, 5)
    times = [at for at, _ in gate.asked]
    for before, after in pairwise(times):
        assert 0 < after - before <= 100.0 * RENEW_AT
    assert [body["certificate"] for _, body in gate.asked[1:]] == [f"text {n}" for n in range(1, 5)]
    assert roles.trouble is None


def test_what_is_only_not_known_is_asked_again_and_what_was_lost_is_not() -> None:
    unknown = RoleDenied("perhaps", failure="revocation", details={"reason": "unknown"})
    gate, roles = run(100.0, 5, unknown, StorageBusy("later"))
    assert [body["certificate"] for _, body in gate.asked[1:4]] == ["text 1"] * 3
    assert len(roles.certificates) == 1

    lost = RoleDenied("gone", failure="revocation", details={"reason": "revoked"})
    gate, roles = run(100.0, 4, lost, lost, lost)
    assert [min(body.items()) for _, body in gate.asked[1:]] == [
        ("certificate", "text 1"),
        ("id", "m1"),
        ("id", "m2"),
    ]
    assert roles.certificates == []


def test_a_certificate_that_ended_is_replaced_where_its_memberships_have_not() -> None:
    over = RoleDenied("over", failure="revocation", details={"reason": "expired"})
    _, roles = run(100.0, 4, over)
    assert sorted(roles.certificates) == ["text 3", "text 4"]


def test_the_wallet_keeps_one_certificate_of_a_membership_and_no_more_than_may_be_held() -> None:
    wallet = Wallet((), Clock().timing)

    def keep(*ids: str, text: str = "") -> None:
        wallet.keep_role(RoleHeld("Conf", ids, text or ids[0], START), 10.0)

    keep("a")
    keep("b", "c", text="both")
    keep("a", text="newer")
    assert {one.text for one in wallet.roles.values()} == {"newer", "both"}
    wallet.drop_role("a")
    assert [one.text for one in wallet.roles.values()] == ["both"]
    assert wallet.due_roles() == []
    wallet.drop_role("c")
    assert [one.text for one in wallet.due_roles()] == ["both"]
    for number in range(MAX_HELD + 3):
        keep(f"m{number}")
    assert len(wallet.roles) == MAX_HELD
    assert wallet.shown(START) == []
