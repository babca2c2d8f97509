"""Roles: nothing forged, borrowed, used twice, outlived or flooded gives anyone one, or takes one from its holder."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import httpx
import pytest

from harness.alone import Alone, rule, wait
from harness.attack import fresh, person, refused, version
from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import AddMember, DeclareGroup, RemoveMember, SetRolefile
from headgate.model.state import ADMINISTRATOR
from headgate.node.config import RoleSettings
from strategies.presenting import now

CONF = """
def Member(u) u : String
Chair(u) <- Login.LoggedOn(u, h)* : (u in {group})*
Member(u) <- Login.LoggedOn(u, h)* <|* Chair(c)*
Speaker(u) <- Login.LoggedOn(u, h)* <| Chair(c)
Free(u) <- Login.LoggedOn(u, h)* <| Login.Judge <| Login.Judge
Clerk(u) <- Login.LoggedOn(u, h)* |>* Login.Judge |>* Login.Judge
Sees(u, w) <- Login.LoggedOn(u, h)* & Login.Ward(w) |>* Login.Head(w)
Tied(u, w) <- Login.LoggedOn(u, h)* <|* Login.Head(w)
"""


class Office:
    """A service of a test's own, at both gateways of a domain."""

    def __init__(self, made: Alone, stack: ExitStack, service: str | None = None) -> None:
        self.made = made
        self._stack = stack
        self.service, self.group = service or fresh("Conf").replace("-", ""), fresh("chairs")
        text = CONF.replace("{group}", f"{self.group!r}" if "-" in self.group else self.group)
        made.commit(DeclareGroup(self.group), SetRolefile(self.service, parse_rolefile(text)))
        self._http: dict[tuple[str, int], httpx.Client] = {}

    def at(self, who: str, gateway: int = 0) -> httpx.Client:
        if (who, gateway) not in self._http:
            token = self.made.token(who, gateway)
            self._http[who, gateway] = self._stack.enter_context(self.made.http(token, gateway))
        return self._http[who, gateway]

    def post(self, who: str, path: str, gateway: int = 0, **body: Any) -> httpx.Response:
        shown = {"with": body.pop("shown")} if "shown" in body else {}
        path = path.replace("@", self.service)
        return self.at(who, gateway).post(f"/v1/roles{path}", json={**body, **shown})

    def done(self, who: str, path: str, gateway: int = 0, **body: Any) -> dict[str, Any]:
        found = self.post(who, path, gateway, **body)
        assert found.status_code in (200, 201), found.text
        told: dict[str, Any] = found.json()
        return told

    def denied(self, who: str, path: str, gateway: int = 0, **body: Any) -> str:
        told = refused(self.post(who, path, gateway, **body), "role-denied")
        return str(told["failure"])

    def grant(self, who: str, role: str, *args: str) -> dict[str, Any]:
        return self.done(ADMINISTRATOR, "/Login/grant", role=role, args=list(args), to=who)

    def someone(self, stem: str, *roles: tuple[str, ...]) -> str:
        """Someone new who is logged on, and holds more."""
        name = person(self.made, stem)
        for one in (("LoggedOn", name, "ely"), *roles):
            self.grant(name, *one)
        return name

    def chair(self) -> str:
        name = self.someone("chair")
        self.made.commit(AddMember(self.group, name))
        self.done(name, "/@/enter", role="Chair")
        return name

    def holds(self, who: str, role: str) -> bool:
        held = [self.at(who, n).get("/v1/roles").json()["held"] for n in (0, 1)]
        found = [any((one["service"], one["role"]) == (self.service, role) for one in some) for some in held]
        assert found[0] == found[1]
        return found[0]


@pytest.fixture
def office(north: Alone) -> Iterator[Office]:
    with ExitStack() as stack:
        yield Office(north, stack)


def test_a_certificate_of_the_other_domains_service_is_none_here(office: Office, south: Alone) -> None:
    """The same service, role, arguments and key, and it is genuine: there."""
    name = office.someone("both")
    with ExitStack() as stack:
        there = Office(south, stack, office.service)
        south.key(name)
        (south.files.keys / f"{name}.pem").write_bytes((office.made.files.keys / f"{name}.pem").read_bytes())
        south.commit(*south.people(name), rule(f"{name}-connects", name, "connect"), AddMember(there.group, name))
        there.grant(name, "LoggedOn", name, "ely")
        foreign = there.done(name, "/@/enter", role="Chair")
        for gateway in (0, 1):
            for shown in (foreign["certificate"], foreign["memberships"][0]["id"]):
                failure = office.denied(name, "/@/enter", gateway, role="Chair", shown=["*", shown])
                assert failure in {"fraud", "misuse", "revocation"}
            assert office.denied(name, "/@/renew", gateway, certificate=foreign["certificate"]) in {"fraud", "misuse"}
            refused(
                office.post(name, "/present", gateway, certificate=foreign["certificate"]), "role-denied", "not-found"
            )
        assert not office.holds(name, "Chair")


def test_certificates_and_elections_of_others_are_of_no_use_at_either_gateway(office: Office) -> None:
    chair, thief = office.chair(), office.someone("thief")
    held = office.done(chair, "/@/enter", role="Chair")
    mine = office.done(chair, "/@/elect", role="Member", to=[f"Login.LoggedOn('{chair}', _)"])
    for gateway in (0, 1):
        assert office.denied(thief, "/@/enter", gateway, role="Chair", shown=["*", held["certificate"]]) == "fraud"
        assert office.denied(thief, "/@/renew", gateway, certificate=held["certificate"]) == "fraud"
        told = office.denied(thief, "/@/enter", gateway, role="Member", shown=["*", mine["delegation"]])
        assert told == "credentials"
        told = office.denied(thief, "/@/enter", gateway, role="Member", shown=["*", mine["revocation"]])
        assert told in {"fraud", "misuse"}
        assert office.denied(thief, "/revocations", gateway, certificate=mine["revocation"]) == "fraud"
        refused(office.post(thief, "/revocations", gateway, id=mine["election"]["id"]), "not-found")
    assert office.done(chair, "/@/enter", 1, role="Member", shown=["*", mine["delegation"]])
    assert not office.holds(thief, "Member")
    assert office.holds(chair, "Chair")


def test_an_election_ends_with_its_electors_office(office: Office) -> None:
    """Elected before the chair left its group, accepted after; and a membership that the elector's office carries."""
    chair, early, late = office.chair(), office.someone("early"), office.someone("late")
    first, second = (office.done(chair, "/@/elect", role="Member", anyone=True) for _ in range(2))
    office.done(early, "/@/enter", 1, role="Member", shown=["*", first["delegation"]])
    office.made.commit(RemoveMember(office.group, chair))
    wait(lambda: not office.holds(chair, "Chair"), "the end of the office")
    assert not office.holds(early, "Member")
    for gateway in (0, 1):
        for one in (first, second):
            shown = ["*", one["delegation"]]
            failure = office.denied(late, "/@/enter", gateway, role="Member", shown=shown)
            assert failure in {"revocation", "credentials"}
        assert office.denied(chair, "/@/elect", gateway, role="Member", anyone=True) == "credentials"
    office.made.commit(AddMember(office.group, chair))
    assert not office.holds(early, "Member")


def test_a_delegation_is_over_after_its_end_and_after_it_was_taken_back(office: Office) -> None:
    chair, one, two = office.chair(), office.someone("one"), office.someone("two")
    end = now() + timedelta(seconds=10)  # the request itself may take a few on a busy machine
    brief = office.done(chair, "/@/elect", role="Speaker", anyone=True, until=end.isoformat())
    taken = office.done(chair, "/@/elect", role="Speaker", anyone=True)
    office.done(one, "/@/enter", role="Speaker", shown=["*", taken["delegation"]])
    office.done(chair, "/revocations", 1, certificate=taken["revocation"])
    wait(lambda: now() > end, "the end of the election")
    for gateway in (0, 1):
        for shown in (brief["delegation"], taken["delegation"], brief["election"]["id"], taken["election"]["id"]):
            failure = office.denied(two, "/@/enter", gateway, role="Speaker", shown=["*", shown])
            assert failure in {"revocation", "misuse", "credentials", "fraud"}
        refused(
            office.post(chair, "/revocations", gateway, certificate=taken["revocation"]), "not-found", "role-denied"
        )
    assert not office.holds(two, "Speaker")


def test_a_delegation_shown_twice_makes_one_member_with_one_role(office: Office) -> None:
    """At both gateways at once, and as a request that is sent again."""
    chair, one = office.chair(), office.someone("one")
    told = office.done(chair, "/@/elect", role="Member", to=[f"Login.LoggedOn('{one}', _)"])
    body = {"role": "Member", "shown": ["*", told["delegation"]], "request": fresh("request-that-is-sent-again-")}
    clients = [office.at(one, n) for n in (0, 1)]
    before = version(clients[0])
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(office.post, one, "/@/enter", n % 2, **body) for n in range(8)]
        found = [each.result() for each in answers]
    assert {each.status_code for each in found} <= {201, 409, 503}, [each.text for each in found]
    ids = {each.json()["memberships"][0]["id"] for each in found if each.status_code == 201}
    assert len(ids) == 1
    assert version(clients[1]) == before + 1
    office.done(chair, "/revocations", certificate=told["revocation"])
    assert not office.holds(one, "Member")


def test_one_judge_is_one_judge_however_often_and_wherever_it_votes(office: Office) -> None:
    judge, other, dan = (
        office.someone("judge", ("Judge",)),
        office.someone("other", ("Judge",)),
        office.someone("dan"),
    )
    votes = [office.done(judge, "/@/elect", n % 2, role="Free", args=[dan], anyone=True) for n in range(4)]
    shown = ["*", *(one["delegation"] for one in votes)]
    for gateway in (0, 1):
        assert office.denied(dan, "/@/enter", gateway, role="Free", shown=shown) == "credentials"
    office.grant(judge, "Judge")  # a judge twice over
    votes.append(office.done(judge, "/@/elect", role="Free", args=[dan], anyone=True))
    shown.append(votes[-1]["delegation"])
    assert office.denied(dan, "/@/enter", role="Free", shown=shown) == "credentials"
    second = office.done(other, "/@/elect", 1, role="Free", args=[dan], anyone=True)
    office.done(dan, "/@/enter", role="Free", shown=[*shown, second["delegation"]])
    assert office.holds(dan, "Free")


def test_one_judge_revokes_nobody_alone_however_often(office: Office) -> None:
    judge, other, dan = (
        office.someone("judge", ("Judge",)),
        office.someone("other", ("Judge",)),
        office.someone("dan"),
    )
    office.done(dan, "/@/enter", role="Clerk")
    for n in range(4):
        office.done(judge, "/@/revoke", n % 2, role="Clerk", args=[dan])
        office.done(judge, "/@/revoke", n % 2, role="Clerk", args=[None])
    assert office.holds(dan, "Clerk")
    office.done(other, "/@/revoke", 1, role="Clerk", args=[dan])
    assert not office.holds(dan, "Clerk")
    assert office.denied(dan, "/@/enter", role="Clerk") == "revocation"


def test_a_pattern_revokes_only_what_its_revoker_may(office: Office) -> None:
    north_ward, south_ward = fresh("ward"), fresh("ward")
    head = office.someone("head", ("Head", north_ward))
    dan = office.someone("dan", ("Ward", north_ward), ("Ward", south_ward))
    nobody = office.someone("nobody")
    for ward in (north_ward, south_ward):
        office.done(dan, "/@/enter", role="Sees", args=[dan, ward])
    for args in ([dan, None], [None, None], [], [dan, south_ward]):
        assert office.denied(nobody, "/@/revoke", 1, role="Sees", args=args) == "credentials"
    assert office.denied(head, "/@/revoke", role="Sees", args=[dan, south_ward]) == "credentials"
    office.done(head, "/@/revoke", 1, role="Sees", args=[None, None])
    held = office.at(dan, 0).get("/v1/roles").json()["held"]
    assert [one["args"][1] for one in held if one["role"] == "Sees"] == [south_ward]


def test_the_right_to_take_back_goes_to_nobody_with_other_arguments(office: Office) -> None:
    mine, theirs = fresh("ward"), fresh("ward")
    head, same, other = (
        office.someone("head", ("Head", mine)),
        office.someone("same", ("Head", mine)),
        office.someone("other", ("Head", theirs)),
    )
    dan = office.someone("dan")
    told = office.done(head, "/@/elect", role="Tied", args=[dan, mine], anyone=True)
    id = told["election"]["id"]
    office.done(dan, "/@/enter", role="Tied", args=[dan, mine], shown=["*", told["delegation"]])
    assert office.denied(head, f"/elections/{id}/pass", to=other) == "misuse"
    assert office.denied(head, f"/elections/{id}/pass", 1, to=dan) == "misuse"
    refused(office.post(other, f"/elections/{id}/pass", to=other), "not-found")
    for gateway in (0, 1):
        refused(office.post(other, "/revocations", gateway, id=id), "not-found")
    assert office.holds(dan, "Tied")
    office.done(head, f"/elections/{id}/pass", to=same)
    office.done(same, "/revocations", 1, id=id)
    assert not office.holds(dan, "Tied")


def test_nobody_gives_itself_a_role(office: Office) -> None:
    """By granting, electing, reinstating, with others' memberships, as another instance, or by an argument."""
    chair, eve = office.chair(), office.someone("eve")
    theirs = office.at(chair).get("/v1/roles").json()["held"]
    with_theirs = [one["id"] for one in theirs]
    before = version(office.at(eve))
    refused(
        office.post(eve, "/Login/grant", role="LoggedOn", args=[chair, "ely"], to=eve), "govern-denied", "role-denied"
    )
    refused(office.post(eve, "/@/grant", role="Chair", args=[eve], to=eve), "govern-denied", "role-denied")
    for path, body in (
        ("/@/elect", {"role": "Member", "anyone": True}),
        ("/@/elect", {"role": "Member", "anyone": True, "shown": with_theirs}),
        ("/@/enter", {"role": "Chair"}),
        ("/@/enter", {"role": "Chair", "args": [chair]}),
        ("/@/enter", {"role": "Chair", "shown": with_theirs}),
        ("/@/enter", {"role": "Chair", "instance": "mine"}),
        ("/@/revoke", {"role": "Chair", "args": [chair]}),
        ("/@/reinstate", {"role": "Clerk", "args": [eve]}),
    ):
        refused(office.post(eve, path, 1, **body), "role-denied", "not-found", "bad-definition", "unknown-name")
    for one in with_theirs:
        refused(office.at(eve).delete(f"/v1/roles/memberships/{one}"), "not-found")
    assert version(office.at(eve)) == before
    assert office.holds(chair, "Chair")


def test_a_role_and_the_fact_that_it_rests_on_end_together_at_both_gateways(office: Office) -> None:
    """One enters at one gateway again and again while the other's ledger takes and gives the group."""
    name = office.someone("racer")
    with ThreadPoolExecutor(2) as pool:
        for n in range(6):
            office.made.commit(AddMember(office.group, name))
            entering = [pool.submit(office.post, name, "/@/enter", gateway, role="Chair") for gateway in (0, 1)]
            office.made.commit(RemoveMember(office.group, name))
            answers = [one.result() for one in entering]
            assert {one.status_code for one in answers} <= {201, 403, 409, 503}, [one.text for one in answers]
            assert not office.holds(name, "Chair"), n
    assert office.denied(name, "/@/enter", role="Chair") == "credentials"


def test_a_flood_of_requests_for_roles_is_paced_and_others_are_not(office: Office) -> None:
    name, other = office.someone("flood"), office.someone("other")
    http = office.at(name)
    codes: list[str] = []
    most = RoleSettings().requests
    while "too-busy" not in codes:
        assert len(codes) < 10 * most  # on a slow machine much of what was spent comes back meanwhile
        codes.append(http.post(f"/v1/roles/{office.service}/enter", json={"role": "Chair"}).json()["code"])
    assert set(codes) == {"role-denied", "too-busy"}
    assert office.denied(other, "/@/enter", role="Chair") == "credentials"
    office.made.commit(AddMember(office.group, other))
    office.done(other, "/@/enter", role="Chair")


def test_no_stranger_follows_records_or_asks_about_others_certificates(office: Office) -> None:
    chair, eve = office.chair(), office.someone("eve")
    held = office.done(chair, "/@/enter", role="Chair")
    record = held["memberships"][0]["record"]
    subject = office.made.key(chair).public.did
    body = {"record": record, "role": "Chair", "args": [chair], "subject": subject}
    for gateway in (0, 1):
        for path, asked in (
            ("/validate", {"certificate": held["certificate"], "subject": subject}),
            ("/records", {"service": office.service, "records": [body]}),
        ):
            refused(office.post(eve, path, gateway, **asked), "subscribe-denied")
        # To follow no longer what one does not follow is nothing.
        assert office.post(eve, "/unwatch", gateway, service=office.service, records=[record]).status_code == 204
        told = office.at(eve, gateway).get("/v1/roles/records", params={"service": office.service})
        refused(told, "subscribe-denied")
        refused(office.at(eve, gateway).get("/v1/roles/peers"), "govern-denied")
        graph = office.at(eve, gateway).get("/v1/roles/graph").text
        assert chair not in graph
        assert held["memberships"][0]["id"] not in graph
