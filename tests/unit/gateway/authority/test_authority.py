"""Showing statements to a real gateway: strangers come in by a chain, all is taken up or nothing, and can be undone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.client import connect
from headgate.commands import statements as authority
from headgate.commands.statements import LISTS_PER_ISSUER
from headgate.gateway import runtime
from headgate.lang import parse_condition
from headgate.model.authority import AttributeMap, Issuing, Provider, Validity
from headgate.model.changes import (
    AddIssuing,
    AddMember,
    AddRule,
    DeclareGroup,
    RemovePrincipal,
    SetAttribute,
    SetConnect,
    SetPolicyRule,
    SetProvider,
    Tick,
)
from headgate.model.rights import Action, Effect, Rule
from headgate.model.state import ADMINISTRATOR, State
from headgate.trust.certificates import CERTIFICATE, REVOCATIONS, consent_to, issue_succession
from headgate.trust.identities import IDENTITY, issue_identity
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import check_broker
from strategies.presenting import Visitor, certificate, identity, network, now, revocations, types
from strategies.serving import PRICE, SALE, Served, eventually, serving


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory: Path = tmp_path_factory.mktemp("shop") / "domain"
    with serving(directory, authority__heartbeat="1s", authority__issued_per_principal="5") as served:
        served.commit(SetConnect(False), _connects("anna"), _connects("till"), _connects("bob"))
        yield served


def _connects(who: str) -> AddRule:
    return AddRule(Rule(f"{who}-connects", who, frozenset({Action.CONNECT})))


@pytest.fixture
def root(shop: Served) -> PrivateKey:
    """The domain's own key, which coordinates its network and owns its types."""
    return PrivateKey.load(shop.gateway.files.admin_key)


def state(shop: Served) -> State:
    return shop.domain.ledger.state()


def chained(shop: Served, who: str) -> list[Rule]:
    """What chains from the domain's own key give someone."""
    found = [rule for rule in state(shop).rules if rule.who == who and rule.source.value == "chain"]
    return [rule for rule in found if rule.author == ADMINISTRATOR]


def refusal(answer: object) -> tuple[int, str, str | None]:
    found = answer.json()  # type: ignore[attr-defined]
    return answer.status_code, found["code"], found.get("reason")  # type: ignore[attr-defined]


# -- connecting -----------------------------------------------------------------------------------------------


def test_a_stranger_comes_in_by_a_chain_in_one_version_and_is_named_by_its_key(shop: Served, root: PrivateKey) -> None:
    domain, visitor = PrivateKey.generate(), Visitor(shop)
    before = state(shop).version
    found = visitor.connect(
        certificate(domain, visitor.key, network("connect"), types("shop.*", "publish")),
        certificate(root, domain, network("connect", "install"), types("*", "publish", "subscribe"), delegate=True),
    )
    assert found.status_code == 201, found.text
    assert found.json()["principal"] == visitor.did
    assert state(shop).version == before + 1
    assert state(shop).keys[visitor.did] == visitor.did
    assert visitor.publish(SALE, item="tea", amount=1.0).json()["status"] == "accepted"
    assert visitor.ask("GET", "/v1/sessions/current").json()["principal"] == visitor.did


def test_showing_the_same_again_makes_no_version(shop: Served, root: PrivateKey) -> None:
    visitor = Visitor(shop)
    shown = certificate(root, visitor.key, network(), types(SALE, "subscribe"))
    assert visitor.connect(shown).status_code == 201
    version = state(shop).version
    assert visitor.connect(shown).status_code == 201
    assert visitor.show(shown).json() == {
        "version": version,
        "certificates": [CERTIFICATE.verify(shown, audience=None).id],
        "identities": [],
    }
    assert state(shop).version == version


def test_a_large_bag_is_opened_elsewhere_and_means_the_same(
    shop: Served, root: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (authority, runtime):
        monkeypatch.setattr(module, "SMALL_CHARS", 10)
    visitor = Visitor(shop)
    shown = certificate(root, visitor.key, network(), types(SALE, "subscribe"))
    more = certificate(root, visitor.key, types(PRICE, "subscribe", where="amount > 1"))
    assert visitor.connect(shown).status_code == 201
    told = visitor.show(shown, more).json()
    assert told["certificates"] == [CERTIFICATE.verify(one, audience=None).id for one in (shown, more)]
    assert refusal(visitor.show(more[:-8] + "AAAAAAAA")) == (422, "bad-statement", "bad-signature")
    assert shop.gateway.workers._threads


def test_a_chain_without_connect_lets_no_stranger_in_and_leaves_nothing(shop: Served, root: PrivateKey) -> None:
    visitor = Visitor(shop)
    before = state(shop)
    assert refusal(visitor.connect(certificate(root, visitor.key, types("*", "publish")))) == (
        403,
        "connect-denied",
        None,
    )
    assert refusal(visitor.connect()) == (401, "not-authenticated", None)
    after = state(shop)
    assert (after.version, after.principals.keys()) == (before.version, before.principals.keys())


def test_one_bad_statement_refuses_all_with_its_reason_and_place(shop: Served, root: PrivateKey) -> None:
    visitor, other = Visitor(shop), PrivateKey.generate()
    good = certificate(root, visitor.key)
    head, payload, _ = good.split(".")
    forged = ".".join((head, payload, certificate(other, visitor.key).split(".")[2]))
    before, counted = state(shop).version, forged_statements(shop)
    for bad, code, reason in (
        (forged, "bad-statement", "bad-signature"),
        ("nonsense", "bad-statement", "malformed"),
        (certificate(root, visitor.key, audience=["elsewhere"]), "bad-statement", "wrong-audience"),
        (visitor.served.token("anna"), "bad-statement", "wrong-type"),
        (identity(other, visitor.key), "chain-invalid", None),
    ):
        found = visitor.connect(good, bad)
        assert refusal(found)[1:] == (code, reason), found.text
        if code == "bad-statement":
            assert found.json()["place"] == "statement 2"
    assert state(shop).version == before
    assert forged_statements(shop) == counted + 1


def forged_statements(shop: Served) -> float:
    """How many statements with a bad signature the gateway has counted."""
    name = 'headgate_statements_refused_total{reason="bad-signature"} '
    return sum(float(line.removeprefix(name)) for line in shop.metrics().splitlines() if line.startswith(name))


def test_chains_that_ended_were_revoked_or_do_not_meet_are_told_apart(shop: Served, root: PrivateKey) -> None:
    visitor, other = Visitor(shop), PrivateKey.generate()
    over = certificate(root, visitor.key, seconds=10, ago=20)
    assert refusal(visitor.connect(over))[1] == "expired"
    taken = certificate(root, visitor.key, id="taken-back")
    assert refusal(visitor.connect(taken, revocations(root, 1, "taken-back")))[1] == "revoked"
    assert refusal(visitor.connect(certificate(other, visitor.key)))[1] == "chain-invalid"
    through = certificate(root, other, delegate=False)
    assert refusal(visitor.connect(through, certificate(other, visitor.key)))[1] == "chain-invalid"
    assert refusal(visitor.connect(certificate(root, other)))[1] == "chain-invalid"


def test_a_statement_is_worthless_to_whoever_cannot_sign_for_it(shop: Served, root: PrivateKey) -> None:
    holder, thief = Visitor(shop), Visitor(shop)
    stolen = certificate(root, holder.key)
    assert refusal(thief.connect(stolen))[1] == "chain-invalid"
    proof = thief.proof()
    body = {**proof, "principal": holder.did, "present": [stolen]}
    assert refusal(shop.http.post("/v1/sessions", json=body)) == (401, "not-authenticated", None)
    assert holder.did not in state(shop).principals


def test_an_answered_challenge_is_not_answered_again_with_statements(shop: Served, root: PrivateKey) -> None:
    visitor = Visitor(shop)
    body = {**visitor.proof(), "present": [certificate(root, visitor.key)]}
    assert shop.http.post("/v1/sessions", json=body).status_code == 201
    assert refusal(shop.http.post("/v1/sessions", json=body)) == (401, "not-authenticated", None)


def test_a_rule_that_forbids_comes_before_every_chain(shop: Served, root: PrivateKey) -> None:
    visitor = Visitor(shop)
    shown = certificate(root, visitor.key)
    assert visitor.connect(shown).status_code == 201
    shop.commit(AddRule(Rule("keep-out", visitor.did, frozenset({Action.CONNECT}), effect=Effect.FORBID)))
    assert refusal(visitor.ask("GET", "/v1/types"))[1] == "connect-denied"
    assert refusal(visitor.connect(shown))[1] == "connect-denied"


def test_the_gateway_shows_its_own_chain_and_the_client_verifies_it(shop: Served, root: PrivateKey) -> None:
    about = shop.http.get("/v1").json()
    told = shop.http.post("/v1/challenges", json={"nonce": "n" * 40}).json()
    assert about["coordinator"] == root.public.did
    check_broker(told["statements"], broker=told["broker"], coordinator=root.public.did, now=now())


# -- during a session -----------------------------------------------------------------------------------------


def test_a_member_shows_more_during_its_session_and_loses_it_by_the_clock(shop: Served, root: PrivateKey) -> None:
    member = Visitor(shop, shop.keys["bob"])
    assert member.connect().status_code == 201
    assert refusal(member.publish(SALE, amount=1.0))[1] == "publish-denied"
    shown = member.show(certificate(root, member.key, types(SALE, "publish"), seconds=3))
    assert shown.status_code == 200, shown.text
    assert len(shown.json()["certificates"]) == 1
    assert member.publish(SALE, "a", amount=1.0).status_code == 200
    eventually(lambda: state(shop).bags.get("bob") is None)
    assert refusal(member.publish(SALE, "b", amount=1.0))[1] == "publish-denied"


def test_a_list_that_anyone_brings_takes_rights_away_in_one_version(shop: Served, root: PrivateKey) -> None:
    issuer, visitor = PrivateKey.generate(), Visitor(shop)
    link = certificate(root, issuer, network(), types(SALE, "publish"), delegate=True)
    first, second = (
        certificate(issuer, visitor.key, network(), id="first"),
        certificate(issuer, visitor.key, types(SALE, "publish"), id="second"),
    )
    assert visitor.connect(link, first, second).status_code == 201
    assert len(chained(shop, visitor.did)) == 2
    version = state(shop).version
    brought = shop.http.post("/v1/revocations", json={"list": revocations(issuer, 4, "second", "other")})
    assert brought.json() == {"issuer": issuer.public.did, "number": 4, "news": True}
    assert state(shop).version == version + 1
    assert [sorted(a.value for a in rule.actions) for rule in chained(shop, visitor.did)] == [["connect"]]
    again = shop.http.post("/v1/revocations", json={"list": revocations(issuer, 4, "second", "other")})
    assert again.json()["news"] is False
    for stale in (revocations(issuer, 3, "second"), revocations(issuer, 4, "second")):
        assert refusal(shop.http.post("/v1/revocations", json={"list": stale}))[:2] == (409, "stale-list")
    assert refusal(visitor.show(second, revocations(issuer, 3)))[1] == "stale-list"
    assert refusal(visitor.show(second))[1] == "revoked"
    assert state(shop).version == version + 1
    stranger = shop.http.post("/v1/revocations", json={"list": revocations(PrivateKey.generate(), 1)})
    assert refusal(stranger)[:2] == (404, "not-found")
    future = revocations(issuer, 5, ago=-3600)
    assert refusal(shop.http.post("/v1/revocations", json={"list": future}))[1:] == ("bad-statement", "not-yet-valid")
    with connect(f"http://127.0.0.1:{shop.port}", shop.keys["anna"]) as anna:
        assert anna.bring_list(revocations(issuer, 5, "first", "second", "other")).news
    assert chained(shop, visitor.did) == []


def test_freshness_needs_the_issuers_list_and_it_may_come_in_the_bag(shop: Served, root: PrivateKey) -> None:
    visitor = Visitor(shop)
    issuer = PrivateKey.generate()
    link = certificate(root, issuer, network(), delegate=True)
    fresh = certificate(issuer, visitor.key, freshness=3600)
    assert refusal(visitor.connect(link, fresh))[1] == "chain-invalid"
    assert refusal(visitor.connect(link, fresh, revocations(issuer, 1, ago=3700)))[1] == "chain-invalid"
    assert visitor.connect(link, fresh, revocations(issuer, 1)).status_code == 201


def test_the_list_of_a_key_that_issued_nothing_is_not_listened_to(shop: Served, root: PrivateKey) -> None:
    issuer, visitor = PrivateKey.generate(), Visitor(shop)
    link = certificate(root, issuer, network(), delegate=True)
    assert visitor.connect(link, certificate(issuer, visitor.key, id="badge")).status_code == 201
    version = state(shop).version
    for key in (shop.keys["anna"], visitor.key, PrivateKey.generate()):
        text = revocations(key, 1, "x")
        forged = text[:-4] + ("AAAA" if text[-4:] != "AAAA" else "BBBB")
        for sent in (text, forged):  # whoever does not count is not verified either
            assert refusal(shop.http.post("/v1/revocations", json={"list": sent}))[:2] == (404, "not-found")
    assert shop.http.post("/v1/revocations", json={"list": revocations(issuer, 5, "badge")}).json()["news"]
    assert state(shop).version == version + 1
    shop.commit(RemovePrincipal(visitor.did))
    late = shop.http.post("/v1/revocations", json={"list": revocations(issuer, 6)})
    assert refusal(late)[:2] == (404, "not-found"), "nothing rests on it any more"
    assert state(shop).lists[issuer.public.did].number == 5, "and an older list would be refused"


def test_the_lists_of_an_issuer_that_nobody_chose_make_so_many_versions(shop: Served, root: PrivateKey) -> None:
    issuer, visitor = PrivateKey.generate(), Visitor(shop)
    link = certificate(root, issuer, network(), delegate=True)
    shown = certificate(issuer, visitor.key)
    assert visitor.connect(link, shown).status_code == 201
    version = state(shop).version

    def bring(key: PrivateKey, number: int) -> int:
        return shop.http.post("/v1/revocations", json={"list": revocations(key, number, f"x{number}")}).status_code

    assert [bring(issuer, n) for n in range(LISTS_PER_ISSUER + 1)] == [200] * LISTS_PER_ISSUER + [503]
    assert refusal(visitor.show(shown, revocations(issuer, 99)))[:2] == (503, "too-busy")
    assert state(shop).version == version + LISTS_PER_ISSUER
    mine = state(shop).lists.get(root.public.did)
    first = 1 if mine is None else mine.number + 1
    assert {bring(root, first + n) for n in range(LISTS_PER_ISSUER + 1)} == {200}, "the domain's own key is heard"


def test_showing_the_same_again_makes_no_version_while_its_sign_of_life_is_young(tmp_path: Path) -> None:
    # In a domain of its own: what is so brief makes a version every second, for as long as it stands.
    with serving(tmp_path / "domain", authority__heartbeat="1s") as served:
        bob, gateway = Visitor(served, served.keys["bob"]), served.gateway
        bob.connect()
        own = gateway.own_statements.shown[0]
        shown = certificate(gateway.broker, bob.key, types(SALE, "publish"), freshness=3600), own
        assert bob.show(*shown).status_code == 200
        version = state(served).version
        for _ in range(2):
            time.sleep(1.1)  # the list that would be shown was issued later
            assert bob.show(*shown).json()["version"] == version
        brief = certificate(gateway.broker, bob.key, types(SALE, "publish"), freshness=2)
        known = state(served).lists[gateway.broker.public.did].issued
        time.sleep(max(0.0, (known + timedelta(seconds=2.1) - datetime.now(UTC)).total_seconds()))
        assert bob.show(brief, gateway.own_statements.shown[0]).status_code == 200, "here it was needed"
        assert state(served).lists[gateway.broker.public.did].issued > known


def test_a_principal_goes_on_under_a_new_key(shop: Served, root: PrivateKey) -> None:
    visitor = Visitor(shop)
    shown = certificate(root, visitor.key)
    assert visitor.connect(shown).status_code == 201
    later = Visitor(shop, PrivateKey.generate())
    word = issue_succession(visitor.key, new=later.did, consent=consent_to(visitor.key.public, later.key), now=now())
    assert refusal(later.connect(shown))[1] == "chain-invalid"
    came = later.connect(shown, word)
    assert came.status_code == 201, came.text
    assert came.json()["principal"] == visitor.did
    assert refusal(visitor.ask("GET", "/v1/types"))[1] == "not-authenticated"
    assert refusal(visitor.connect(shown))[1] == "connect-denied"
    assert refusal(visitor.connect())[1] == "not-authenticated"


def test_successions_of_keys_that_mean_nothing_here_are_left_alone(shop: Served, root: PrivateKey) -> None:
    visitor, a, b = Visitor(shop), PrivateKey.generate(), PrivateKey.generate()
    word = issue_succession(a, new=b.public.did, consent=consent_to(a.public, b), now=now())
    assert visitor.connect(certificate(root, visitor.key), word).status_code == 201
    assert a.public.did not in state(shop).successions


# -- the service ----------------------------------------------------------------------------------------------


def test_the_domain_issues_by_its_own_policy_and_takes_back(shop: Served) -> None:
    shop.commit(
        DeclareGroup("staff"),
        AddMember("staff", "anna"),
        AddIssuing(Issuing("sales", "staff", (types(SALE, "publish"),), 600)),
        AddIssuing(Issuing("others", "bob", (types(SALE, "publish"),), 600)),
    )
    anna = Visitor(shop, shop.keys["anna"])
    anna.connect()
    assert refusal(anna.publish(SALE, "0", amount=1.0))[1] == "publish-denied"
    asked = anna.ask("POST", "/v1/certificates", {"seconds": 60})
    assert asked.status_code == 201, asked.text
    (made,) = asked.json()["certificates"]
    assert made["rule"] == "sales"
    said = CERTIFICATE.verify(made["statement"], audience=None)
    assert (said.subject, said.id, said.delegate) == (anna.did, made["id"], False)
    assert said.validity.until is not None
    assert said.validity.until - now() <= timedelta(seconds=60)
    assert refusal(anna.ask("POST", "/v1/certificates", {"rule": "others"}))[:2] == (404, "not-found")
    shown = anna.show(made["statement"], *asked.json()["statements"])
    assert shown.status_code == 200, shown.text
    assert anna.publish(SALE, "1", amount=1.0).status_code == 200

    id, version = made["id"], state(shop).version
    assert shop.http.get(f"/v1/status/{id}").json()["status"] == "good"
    bob = Visitor(shop, shop.keys["bob"])
    bob.connect()
    assert refusal(bob.ask("POST", f"/v1/certificates/{id}/revoke"))[:2] == (404, "not-found")
    assert bob.ask("GET", "/v1/certificates").json() == {"issued": []}
    assert [one["id"] for one in anna.ask("GET", "/v1/certificates").json()["issued"]] == [id]
    given_up = anna.ask("POST", f"/v1/certificates/{id}/revoke").json()
    assert given_up == {"id": id, "number": 1, "version": version + 1}
    assert chained(shop, "anna") == []
    assert refusal(anna.publish(SALE, "2", amount=1.0))[1] == "publish-denied"
    assert shop.http.get(f"/v1/status/{id}").json() | {"time": ""} == {
        "id": id,
        "status": "revoked",
        "number": 1,
        "time": "",
    }
    assert shop.http.get("/v1/status/nobody-issued-this").json()["status"] == "unknown"
    told = shop.http.get("/v1/revocations").json()
    found = REVOCATIONS.verify(told["list"], issuer=shop.gateway.broker.public.did, now=now())
    assert (found.number, found.revoked) == (1, {id})
    assert refusal(anna.show(made["statement"], *asked.json()["statements"]))[1] == "revoked"
    assert anna.ask("POST", f"/v1/certificates/{id}/revoke").json()["number"] == 1, "once is enough"


def test_the_administrator_revokes_and_sees_all_and_members_have_a_limit(shop: Served) -> None:
    shop.commit(AddIssuing(Issuing("tills", "till", (types(SALE, "publish"),), 600)))
    till = Visitor(shop, shop.keys["till"])
    till.connect()
    made = [till.ask("POST", "/v1/certificates", {}).json()["certificates"][0]["id"] for _ in range(5)]
    assert refusal(till.ask("POST", "/v1/certificates", {}))[:2] == (429, "too-many")
    admin = Visitor(shop, PrivateKey.load(shop.gateway.files.admin_key))
    assert admin.connect().status_code == 201
    listed = {one["id"]: one["principal"] for one in admin.ask("GET", "/v1/certificates").json()["issued"]}
    assert {listed[id] for id in made} == {"till"}
    number = admin.ask("POST", f"/v1/certificates/{made[0]}/revoke").json()["number"]
    assert admin.ask("POST", "/v1/certificates/made-elsewhere/revoke").json()["number"] == number + 1
    assert refusal(admin.ask("POST", "/v1/certificates/not%20one/revoke"))[:2] == (400, "bad-request")


def test_the_list_is_pushed_to_those_who_follow(shop: Served) -> None:
    admin = Visitor(shop, PrivateKey.load(shop.gateway.files.admin_key))
    admin.connect()
    assert refusal(shop.http.get("/v1/revocations/stream"))[:2] == (406, "not-acceptable")
    headers = {"accept": "text/event-stream"}
    with shop.http.stream("GET", "/v1/revocations/stream", headers=headers) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        first = REVOCATIONS.verify(next(lines)[6:], issuer=shop.gateway.broker.public.did)
        alive = REVOCATIONS.verify(next(lines)[6:])
        assert (alive.number, alive.revoked) == (first.number, first.revoked)
        admin.ask("POST", "/v1/certificates/pushed/revoke").raise_for_status()
        end = time.monotonic() + 20
        while (newer := REVOCATIONS.verify(next(lines)[6:])).number == first.number:
            assert time.monotonic() < end
    assert newer.number == first.number + 1
    assert newer.revoked == first.revoked | {"pushed"}
    assert newer.issued >= alive.issued


# -- identities -----------------------------------------------------------------------------------------------


def test_a_member_gets_an_identity_statement_with_what_the_domain_says_of_it(shop: Served) -> None:
    rule = parse_condition("$nation = 'NO'")
    shop.commit(SetAttribute("anna", "clearance", "secret"), SetPolicyRule("anna", rule))
    anna = Visitor(shop, shop.keys["anna"])
    anna.connect()
    made = anna.ask("POST", "/v1/identity", {}).json()
    said = IDENTITY.verify(made["statement"], audience=None, now=now())
    assert (dict(said.attributes), said.policy_rule, said.subject) == ({"clearance": "secret"}, rule, anna.did)
    assert said.issuer == shop.gateway.broker.public.did
    shown = anna.show(made["statement"])
    assert shown.json()["identities"] == [made["id"]]
    again = IDENTITY.verify(anna.ask("POST", "/v1/identity", {}).json()["statement"], audience=None)
    assert dict(again.attributes) == {"clearance": "secret"}, "the domain's own word, not what the statement brought"
    shop.commit(SetPolicyRule("anna", None), SetAttribute("anna", "clearance", None))


def test_a_guest_brings_a_statement_from_home_and_gets_one_by_the_mapping(shop: Served) -> None:
    home = PrivateKey.generate()
    mapping = (AttributeMap("grad", "rank", (("Hauptmann", "captain"),)),)
    shop.commit(SetProvider(Provider(home.public.did, "home", mapping)))
    guest = Visitor(shop)
    ours = identity(home, guest.key, grad="Hauptmann", secret="not yours", nation="NO")

    def asked(visitor: Visitor, statement: str) -> object:
        return shop.http.post("/v1/identity/guest", json={**visitor.proof(), "statement": statement})

    made = asked(guest, ours)
    assert made.status_code == 201, made.text  # type: ignore[attr-defined]
    text = made.json()["statement"]  # type: ignore[attr-defined]
    said = IDENTITY.verify(text, audience=None, now=now())
    assert (dict(said.attributes), said.guest_of) == ({"rank": "captain"}, home.public.did)
    assert refusal(asked(Visitor(shop), ours))[1] == "chain-invalid"
    assert refusal(asked(guest, identity(PrivateKey.generate(), guest.key)))[1] == "chain-invalid"
    assert refusal(asked(guest, text))[1] == "chain-invalid"
    assert refusal(guest.connect(ours))[1] == "chain-invalid", "a statement from home does not count as it is"
    assert refusal(guest.connect(text))[1] == "connect-denied", "the domain is not open"
    shop.commit(SetConnect(True))
    try:
        assert guest.connect(text).status_code == 201
        assert state(shop).principals[guest.did] == {"rank": "captain"}
    finally:
        shop.commit(SetConnect(False))
    assert refusal(guest.ask("GET", "/v1/types"))[1] == "connect-denied"


def test_what_was_issued_is_in_the_log_without_what_it_says(shop: Served, caplog: pytest.LogCaptureFixture) -> None:
    shop.commit(SetAttribute("bob", "clearance", "cosmic"))
    bob = Visitor(shop, shop.keys["bob"])
    bob.connect()
    with caplog.at_level("INFO", logger="headgate"):
        made = bob.ask("POST", "/v1/identity", {}).json()
    said = [record.fields for record in caplog.records if record.msg == "issued"]  # type: ignore[attr-defined]
    assert [(one["kind"], one["statement"]) for one in said] == [("identity", made["id"])]
    assert "cosmic" not in str(said)


def test_of_two_statements_of_one_provider_the_last_counts_whichever_is_shown_when(shop: Served) -> None:
    provider = PrivateKey.generate()
    shop.commit(SetProvider(Provider(provider.public.did, "twice")))
    bob = Visitor(shop, shop.keys["bob"])
    bob.connect()
    older, newer = (
        issue_identity(
            provider,
            subject=bob.did,
            attributes={"badge": badge},
            validity=Validity(now() - timedelta(seconds=ago), now() + timedelta(seconds=600)),
            now=now(),
        )
        for badge, ago in (("old", 60), ("new", 30))
    )
    for shown in ((older,), (newer, older), (older,), (newer,)):
        assert bob.show(*shown).status_code == 200
    assert state(shop).principals["bob"]["badge"] == "new"


def test_a_statement_about_another_is_refused_also_when_that_one_has_shown_it(shop: Served) -> None:
    provider, bob, anna = PrivateKey.generate(), *(Visitor(shop, shop.keys[name]) for name in ("bob", "anna"))
    shop.commit(SetProvider(Provider(provider.public.did, "of bob alone")))
    about_bob = issue_identity(
        provider,
        subject=bob.did,
        attributes={"desk": "3"},
        validity=Validity(now(), now() + timedelta(seconds=600)),
        now=now(),
    )
    for visitor in (bob, anna):
        visitor.connect()
    assert refusal(anna.show(about_bob)) == (403, "chain-invalid", None)
    assert bob.show(about_bob).status_code == 200
    assert refusal(anna.show(about_bob)) == (403, "chain-invalid", None)
    assert "desk" not in state(shop).principals["anna"]


def test_an_identity_falls_at_its_end_and_its_rule_stays(shop: Served) -> None:
    provider = PrivateKey.generate()
    shop.commit(SetProvider(Provider(provider.public.did, "short")))
    bob = Visitor(shop, shop.keys["bob"])
    bob.connect()
    rule = parse_condition("$nation = 'NO'")
    text = issue_identity(
        provider,
        subject=bob.did,
        attributes={"nation": "NO"},
        validity=Validity(now(), now() + timedelta(seconds=3)),
        policy_rule=rule,
        now=now(),
    )
    assert bob.show(text).status_code == 200
    assert state(shop).principals["bob"]["nation"] == "NO"
    eventually(lambda: "nation" not in state(shop).principals["bob"])
    assert state(shop).policy_rules["bob"] == rule
    shop.commit(SetPolicyRule("bob", None))


def test_a_tick_that_takes_nothing_is_never_committed(tmp_path: Path) -> None:
    with serving(tmp_path / "domain") as served:  # where no list that others need is heard meanwhile
        version = state(served).version
        time.sleep(0.3)
        assert state(served).version == version
        assert served.commit(Tick(datetime.now(tz=now().tzinfo))) == version + 1
        assert state(served).administrator == ADMINISTRATOR


# -- the domain's own ------------------------------------------------------------------------------------------


def test_what_was_revoked_and_not_yet_in_force_when_it_died_is_put_in_force_at_the_start(tmp_path: Path) -> None:
    with serving(tmp_path / "domain", authority__heartbeat="1h") as served:  # which puts nothing in force by itself
        bob, gateway = Visitor(served, served.keys["bob"]), served.gateway
        bob.connect()
        given = certificate(gateway.broker, bob.key, types(SALE, "publish"), id="half-revoked")
        (own,) = [text for text in gateway.own_statements.shown if "." in text][:1]
        assert bob.show(given, own).status_code == 200
        version = state(served).version
        gateway.register.revoke("half-revoked", now())  # and then it died
        gateway.service.start(state(served))
        assert state(served).version == version + 1
        assert "half-revoked" in state(served).lists[gateway.broker.public.did].revoked
        assert "half-revoked" not in str(state(served).bags.get("bob"))
        gateway.service.start(state(served))
        assert state(served).version == version + 1


def test_there_are_no_more_who_came_by_themselves_than_the_settings_say(tmp_path: Path) -> None:
    with serving(tmp_path / "domain", authority__guests="2") as served:
        key = PrivateKey.load(served.gateway.files.admin_key)
        came = [Visitor(served) for _ in range(3)]
        found = [one.connect(certificate(key, one.key)).status_code for one in came]
        assert found == [201, 201, 429]
        assert came[0].connect().status_code == 201


def test_the_administrator_sets_what_authority_rests_on_by_batches(shop: Served, root: PrivateKey) -> None:
    admin, other = Visitor(shop, root), PrivateKey.generate().public.did
    admin.connect()

    def change(*ops: object) -> tuple[int, dict[str, object]]:
        found = admin.ask("POST", "/v1/batches", {"changes": list(ops)})
        return found.status_code, found.json()

    mapping = {"rank": {"to": "level", "values": [["OR-5", 3]]}, "nation": {"to": "nation"}}
    authority = [
        {"network": "*", "actions": "*"},
        {"type": SALE, "owner": other, "actions": ["publish"], "where": "amount > 3", "attributes": {"amount": "any"}},
    ]
    status, told = change(
        {"op": "set-policy-rule", "principal": "till", "rule": "$nation = 'NO'"},
        {"op": "set-provider", "key": other, "name": "partner", "mapping": mapping},
        {"op": "add-issuing", "id": "tills", "who": "till", "authority": authority, "seconds": 60, "delegate": True},
    )
    assert status == 200, told
    found = state(shop)
    assert found.policy_rules["till"] == parse_condition("$nation = 'NO'")
    assert found.providers[other].mapping == (
        AttributeMap("rank", "level", (("OR-5", 3),)),
        AttributeMap("nation", "nation"),
    )
    assert found.issuing["tills"] == Issuing(
        "tills",
        "till",
        (
            network("connect", "install"),
            types(SALE, "publish", owner=other, where="amount > 3", attributes=("amount",)),
        ),
        60,
        True,
    )
    for bad in (
        {"op": "set-coordinator", "key": "met"},
        {"op": "set-provider", "key": "met", "name": "met"},
        {"op": "set-provider", "key": other, "name": "met", "mapping": {"a": {"to": "b", "values": [["x", None]]}}},
        {"op": "set-policy-rule", "principal": "till", "rule": "amount > 3"},
        {"op": "add-issuing", "id": "x", "who": "nobody", "authority": authority, "seconds": 60},
        {"op": "add-issuing", "id": "x", "who": "till", "authority": [{"actions": "*"}], "seconds": 60},
        {
            "op": "add-issuing",
            "id": "x",
            "who": "till",
            "authority": [{"actions": ["govern"], "type": SALE}],
            "seconds": 60,
        },
        {"op": "remove-issuing", "id": "not-there"},
        {"op": "remove-provider", "key": "not-there"},
    ):
        status, told = change(bad)
        assert 400 <= status < 500, told
    after = state(shop)  # the clock may have made a version meanwhile
    assert (after.coordinator, after.providers, after.issuing) == (found.coordinator, found.providers, found.issuing)
    assert after.policy_rules == found.policy_rules
    ended = {"op": "set-policy-rule", "principal": "till", "rule": None}
    assert change(ended, {"op": "remove-issuing", "id": "tills"}, {"op": "remove-provider", "key": other})[0] == 200
    assert change({"op": "set-coordinator", "key": other})[0] == 200
    assert shop.http.get("/v1").json()["coordinator"] == other
    stranger = Visitor(shop)
    assert refusal(stranger.connect(certificate(root, stranger.key)))[1] == "chain-invalid"
    assert change({"op": "set-coordinator", "key": None})[0] == 200
    anna = Visitor(shop, shop.keys["anna"])
    anna.connect()
    refused = anna.ask("POST", "/v1/batches", {"changes": [{"op": "set-coordinator", "key": other}]})
    assert refused.json()["code"] == "govern-denied"
