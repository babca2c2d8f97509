"""Roles over HTTP at a real gateway: every operation, and every way in which one is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.commands.commit import STEPS_PACED, Paces, cost_of
from headgate.model.changes import AddMember, AddRule, DeclarePrincipal, RemoveMember
from headgate.model.errors import TooBusy
from headgate.model.expressions import RoleRef
from headgate.model.limits import MAX_ENTERED, MAX_SHOWN
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.trust.role_keys import ROLE_KEYS
from headgate.trust.role_statements import APPOINTMENT, DELEGATION, ROLE
from strategies.role_serving import Office, office
from strategies.role_statements import verified
from strategies.serving import SALE, eventually


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with office(tmp_path_factory.mktemp("conf") / "domain", roles__requests="100000") as made:
        yield made


@pytest.fixture(autouse=True)
def nobody_holds_anything(conf: Office) -> None:
    """Each test begins with no credentials."""
    for id in [*conf.state.roles.memberships, *conf.state.roles.elections]:
        conf.post(ADMINISTRATOR, "/revocations", id=id)
    assert not conf.state.roles.memberships
    assert not conf.state.roles.elections


def now() -> datetime:
    return datetime.now(UTC)


def chair(conf: Office, who: str = "anna") -> dict[str, Any]:
    conf.log_on(who)
    return conf.enter(who, "Chair")


def elected(conf: Office, by: str = "anna", **more: Any) -> dict[str, Any]:
    given = {"to": ["Login.LoggedOn('carl', _)"]} if "to" not in more and "anyone" not in more else {}
    return conf.made(by, "/Conf/elect", role="Member", **given, **more)


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# -- entering ---------------------------------------------------------------------------------------------------


def test_a_role_is_entered_in_one_version_with_a_certificate_that_others_can_verify(conf: Office) -> None:
    conf.log_on("anna")
    before = conf.state.version
    told = conf.made("anna", "/Conf/enter", role="Chair")
    (one,) = told["memberships"]
    assert told["version"] == conf.state.version == before + 1
    assert (one["service"], one["role"], one["args"]) == ("Conf", "Chair", ["anna"])
    assert one["id"].startswith("Chair-")
    assert len(one["id"]) == len("Chair-") + 16
    note = conf.served.ask(ADMINISTRATOR, "GET", f"/v1/versions?after={before}").json()["versions"][-1]["note"]
    assert note == "anna enters Chair at Conf"

    document = conf.served.http.get("/v1/roles/keys").json()
    keys = ROLE_KEYS.verify(document["keys"], issuer=document["issuer"], now=now())
    found = verified(ROLE, told["certificate"], keys=keys, now=now())
    assert found.subject == conf.served.keys["anna"].public.did
    assert [(held.role, held.args) for held in found.roles] == [("Chair", ("anna",))]
    assert conf.state.roles.records[found.roles[0].ref].state is True


def test_several_roles_are_entered_together_with_one_certificate_or_not_at_all(conf: Office) -> None:
    conf.log_on("anna")
    before = conf.state.version
    told = conf.made("anna", "/Conf/enter", roles=[{"role": "Chair"}, {"role": "Note", "args": [{"set": "wr"}]}])
    assert [one["role"] for one in told["memberships"]] == ["Chair", "Note"]
    assert told["memberships"][1]["args"] == [{"set": "rw"}]
    assert conf.state.version == before + 1
    document = conf.served.http.get("/v1/roles/keys").json()["keys"]
    roles = verified(ROLE, told["certificate"], keys=ROLE_KEYS.verify(document, now=now()), now=now()).roles
    assert [one.role for one in roles] == ["Chair", "Note"]
    assert conf.denied("anna", "/Conf/enter", roles=[{"role": "Note"}, {"role": "Speaker"}])[0] == "credentials"
    assert conf.state.version == before + 1


def test_what_is_shown_is_exactly_what_counts(conf: Office) -> None:
    logged = conf.log_on("anna")
    other = conf.log_on("bob")
    assert conf.denied("anna", "/Conf/enter", role="Chair", **{"with": []})[0] == "credentials"
    for shown in ([logged["id"]], [logged["certificate"]], ["*"], ["*", logged["certificate"], logged["id"]]):
        conf.enter("anna", "Chair", **{"with": shown})
    assert conf.denied("anna", "/Conf/enter", role="Chair", **{"with": [other["id"]]})[0] == "fraud"
    assert conf.denied("anna", "/Conf/enter", role="Chair", **{"with": ["nothing"]})[0] == "revocation"
    assert code(conf.post("anna", "/Conf/enter", role="Chair", **{"with": ["x"] * (MAX_SHOWN + 1)})) == (
        400,
        "bad-request",
    )


def test_stolen_forged_and_misused_certificates_are_told_apart(conf: Office) -> None:
    mine, theirs = conf.log_on("anna"), conf.log_on("bob")
    conf.enter("anna", "Chair")
    election = elected(conf)
    head, payload, signature = mine["certificate"].split(".")
    forged = f"{head}.{payload}.{theirs['certificate'].split('.')[2]}"
    altered = f"{head}.{theirs['certificate'].split('.')[1]}.{signature}"
    before = conf.state.version
    for shown, failure, reason in (
        (theirs["certificate"], "fraud", "stolen"),
        (forged, "fraud", "bad-signature"),
        (altered, "fraud", "bad-signature"),
        (election["revocation"], "misuse", "wrong-type"),
        (conf.served.token("anna"), "misuse", "wrong-type"),
        ("eyJhbGciOiJub25lIn0.e30.x", "fraud", "malformed"),
        ("eyJ.eyJ.x", "fraud", "malformed"),
    ):
        found = conf.post("anna", "/Conf/enter", role="Chair", **{"with": [mine["id"], shown]})
        told = found.json()
        assert (told["code"], told["failure"], told["place"]) == ("role-denied", failure, "credential 2"), found.text
        assert told["reason"] == reason
    assert conf.state.version == before


def test_a_certificate_whose_membership_was_lost_is_revoked_and_stays_so(conf: Office) -> None:
    logged = conf.log_on("anna")
    held = conf.enter("anna", "Chair")
    assert conf.leave("anna", logged["id"]).status_code == 204
    for shown in (logged["certificate"], held["certificate"]):
        assert conf.denied("anna", "/Conf/enter", role="Chair", **{"with": [shown]}) == ("revocation", "revoked")
    conf.log_on("anna")
    assert conf.denied("anna", "/Conf/renew", certificate=held["certificate"]) == ("revocation", "revoked")
    assert not conf.holds("anna", "Chair")


def test_roles_and_services_that_are_not_there(conf: Office) -> None:
    conf.log_on("anna")
    assert conf.denied("anna", "/Nowhere/enter", role="Chair")[0] == "misuse"
    assert conf.denied("anna", "/Conf/enter", role="Emperor")[0] == "misuse"
    assert conf.denied("anna", "/Conf/enter", role="Chair", args=["anna", 2])[0] == "misuse"
    assert conf.denied("anna", "/Conf/enter", role="Chair", args=["bob"])[0] == "credentials"
    assert code(conf.post("anna", "/Conf/enter", role="Chair", args=[1])) == (422, "type-mismatch")
    assert code(conf.post("anna", "/Conf/enter", role="Chair", args=[{"set": "rr"}])) == (422, "type-mismatch")
    assert code(conf.post("anna", "/Conf/enter", role="Chair", instance="a\nb")) == (422, "bad-definition")
    assert code(conf.post("anna", "/a%20b/enter", role="Chair")) == (422, "bad-definition")
    for body in ({}, {"role": "Chair", "roles": [{"role": "Chair"}]}, {"roles": [{"role": "Chair"}], "args": []}):
        assert code(conf.post("anna", "/Conf/enter", **body)) == (400, "bad-request")


def test_instances_are_apart(conf: Office) -> None:
    conf.log_on("anna")
    conf.log_on("carl")
    there = conf.enter("anna", "Chair", instance="spring")
    assert there["instance"] == "spring"
    told = conf.made("anna", "/Conf/elect", role="Member", anyone=True, instance="spring")
    delegated = {"with": ["*", told["delegation"]]}
    assert conf.denied("carl", "/Conf/enter", role="Member", **delegated) == ("misuse", "wrong-place")
    assert conf.denied("carl", "/Conf/enter", role="Guest", instance="spring", **delegated) == (
        "misuse",
        "insufficient",
    )
    assert conf.denied("anna", "/Conf/elect", role="Member", anyone=True)[0] == "credentials"
    assert conf.enter("carl", "Member", instance="spring", **delegated)["instance"] == "spring"


# -- once, however often ----------------------------------------------------------------------------------------


def test_a_request_that_is_sent_again_is_done_once(conf: Office) -> None:
    conf.log_on("anna")
    name = "k" * 22
    first = conf.made("anna", "/Conf/enter", role="Chair", request=name)
    again = conf.made("anna", "/Conf/enter", role="Chair", request=name)
    assert [one["id"] for one in again["memberships"]] == [one["id"] for one in first["memberships"]]
    assert again["version"] == first["version"] == conf.state.version
    conf.log_on("bob")
    assert conf.enter("bob", "Chair", request=name)["id"] != first["memberships"][0]["id"]
    assert code(conf.post("anna", "/Conf/enter", role="Chair", instance="x", request=name)) == (409, "already-exists")
    conf.leave("anna", first["memberships"][0]["id"])
    assert conf.denied("anna", "/Conf/enter", role="Chair", request=name)[0] == "revocation"
    assert not conf.holds("anna", "Chair")

    conf.enter("anna", "Chair")
    ids = {elected(conf, request="e" * 22)["election"]["id"] for _ in range(2)}
    granted = {conf.log_on("dora", request="g" * 22)["id"] for _ in range(2)}
    assert (len(ids), len(granted)) == (1, 1)


# -- leaving and granting -----------------------------------------------------------------------------------------


def test_whoever_leaves_takes_down_what_rests_on_it_in_one_version(conf: Office) -> None:
    logged = conf.log_on("anna")
    conf.enter("anna", "Chair")
    before = conf.state.version
    assert code(conf.leave("bob", logged["id"])) == (404, "not-found")
    assert code(conf.leave("anna", "nothing")) == (404, "not-found")
    assert conf.leave("anna", logged["id"]).status_code == 204
    assert conf.state.version == before + 1
    assert conf.ask("anna", "GET", "").json()["held"] == []
    assert code(conf.leave("anna", logged["id"])) == (404, "not-found")


def test_leaving_a_group_takes_the_role(conf: Office) -> None:
    chair(conf)
    conf.served.commit(RemoveMember("chairs", "anna"))
    try:
        assert not conf.holds("anna", "Chair")
        assert conf.holds("anna", "LoggedOn")
    finally:
        conf.served.commit(AddMember("chairs", "anna"))
    assert not conf.holds("anna", "Chair")


def test_granting_is_for_the_administrator(conf: Office) -> None:
    before = conf.state.version
    refused = conf.post("anna", "/Login/grant", role="LoggedOn", args=["anna", "ely"], to="anna")
    assert code(refused) == (403, "govern-denied")
    for body, wanted in (
        ({"to": "nobody"}, (404, "unknown-name")),
        ({"to": "anna", "args": [None]}, (400, "bad-request")),
        ({"to": "anna", "role": "a b"}, (422, "bad-definition")),
        ({"to": "anna", "until": (now() - timedelta(1)).isoformat()}, (422, "bad-definition")),
        ({"to": "anna", "until": (now() + timedelta(4_000)).isoformat()}, (422, "bad-definition")),
        ({"to": "anna", "until": "9999-12-31T23:59:59-12:00"}, (400, "bad-request")),
        ({"to": "anna", "args": ["x"] * 17}, (400, "bad-request")),
    ):
        assert code(conf.post(ADMINISTRATOR, "/Login/grant", **{"role": "LoggedOn", **body})) == wanted, body
    assert conf.state.version == before


def test_an_appointment_is_a_certificate_of_its_own_kind_and_a_credential(conf: Office) -> None:
    until = (now() + timedelta(days=100)).replace(microsecond=0)
    granted = conf.log_on("anna", appointment=True, until=until.isoformat())
    keys = ROLE_KEYS.verify(conf.served.http.get("/v1/roles/keys").json()["keys"], now=now())
    found = verified(APPOINTMENT, granted["certificate"], keys=keys, now=now())
    assert (found.subject, found.until) == (conf.served.keys["anna"].public.did, until)
    assert conf.enter("anna", "Chair", **{"with": [granted["certificate"]]})["args"] == ["anna"]
    assert conf.denied("bob", "/Conf/enter", role="Guest", **{"with": [granted["certificate"]]}) == ("fraud", "stolen")


def test_who_has_no_key_and_what_is_too_long_gets_the_role_without_a_certificate(conf: Office) -> None:
    if "keyless" not in conf.state.principals:
        conf.served.commit(DeclarePrincipal("keyless"))
    assert conf.log_on("keyless")["certificate"] is None
    told = conf.made(ADMINISTRATOR, "/Login/grant", role="Long", args=["x" * 20_000], to="anna")
    assert "certificate" not in told
    assert conf.holds("anna", "Long")


def test_renewing(conf: Office) -> None:
    logged = conf.log_on("anna")
    held = conf.enter("anna", "Chair")
    for given in ({"certificate": held["certificate"]}, {"id": held["id"]}):
        told = conf.made("anna", "/Conf/renew", **given)
        assert [one["id"] for one in told["memberships"]] == [held["id"]]
        assert conf.enter("anna", "Guest", **{"with": [logged["id"], told["certificate"]]})
    assert conf.denied("anna", "/Login/renew", id=held["id"]) == ("misuse", "wrong-place")
    assert conf.denied("bob", "/Conf/renew", id=held["id"])[0] == "revocation"
    assert conf.denied("bob", "/Conf/renew", certificate=held["certificate"]) == ("fraud", "stolen")
    for body in ({}, {"id": "a", "certificate": "b"}):
        assert code(conf.post("anna", "/Conf/renew", **body)) == (400, "bad-request")


def test_a_fresh_certificate_leaves_out_what_was_lost(conf: Office) -> None:
    conf.log_on("anna")
    both = conf.made("anna", "/Conf/enter", roles=[{"role": "Chair"}, {"role": "Note"}])
    conf.leave("anna", both["memberships"][0]["id"])
    told = conf.made("anna", "/Conf/renew", certificate=both["certificate"])
    assert [one["role"] for one in told["memberships"]] == ["Note"]


# -- electing -----------------------------------------------------------------------------------------------------


def test_an_election_is_closed_unless_it_is_said_to_be_open(conf: Office) -> None:
    chair(conf)
    conf.log_on("carl")
    conf.log_on("dora")
    for body in ({}, {"to": []}, {"to": ["Login.LoggedOn('carl', _)"], "anyone": True}):
        assert code(conf.post("anna", "/Conf/elect", role="Member", **body)) == (400, "bad-request")
    told = elected(conf)
    assert told["election"]["required"] == ["Login[''].LoggedOn('carl', _)"]
    keys = ROLE_KEYS.verify(conf.served.http.get("/v1/roles/keys").json()["keys"], now=now())
    assert verified(DELEGATION, told["delegation"], keys=keys, now=now()).election == told["election"]["id"]
    shown = {"with": ["*", told["delegation"]]}
    assert conf.denied("dora", "/Conf/enter", role="Member", **shown)[0] == "credentials"
    assert conf.enter("carl", "Member", **shown)["args"] == ["carl"]
    openly = elected(conf, anyone=True)
    assert conf.enter("dora", "Member", **{"with": ["*", openly["election"]["id"]]})["args"] == ["dora"]


def test_only_electors_elect(conf: Office) -> None:
    conf.log_on("carl")
    assert conf.denied("carl", "/Conf/elect", role="Member", anyone=True)[0] == "credentials"
    chair(conf)
    told = conf.post("anna", "/Conf/elect", role="Member", to=["Login.("])
    assert code(told) == (422, "bad-expression")
    assert told.json()["place"].startswith("required role 1")
    past = (now() - timedelta(hours=1)).isoformat()
    assert code(conf.post("anna", "/Conf/elect", role="Member", anyone=True, until=past)) == (422, "bad-definition")


def test_the_elector_takes_an_election_back_by_certificate_or_id(conf: Office) -> None:
    chair(conf)
    conf.log_on("carl")
    for way in ("certificate", "id"):
        told = elected(conf)
        conf.enter("carl", "Member", **{"with": ["*", told["delegation"]]})
        given = {"certificate": told["revocation"]} if way == "certificate" else {"id": told["election"]["id"]}
        before = conf.state.version
        if way == "certificate":
            assert conf.denied("carl", "/revocations", **given) == ("fraud", "stolen")
        else:
            assert code(conf.post("carl", "/revocations", **given)) == (404, "not-found")
        assert conf.made("anna", "/revocations", **given)["version"] == before + 1
        assert not conf.holds("carl", "Member")
        assert conf.denied("carl", "/Conf/enter", role="Member", **{"with": ["*", told["delegation"]]}) == (
            "revocation",
            "revoked",
        )
        assert code(conf.post("anna", "/revocations", **given)) == (404, "not-found")


def test_the_right_to_revoke_goes_only_to_another_in_the_electors_role(conf: Office) -> None:
    chair(conf)
    bobs = chair(conf, "bob")
    conf.log_on("carl")
    told = elected(conf)
    id = told["election"]["id"]
    conf.enter("carl", "Member", **{"with": ["*", told["delegation"]]})
    assert conf.denied("anna", f"/elections/{id}/pass", to="carl")[0] == "misuse"
    assert conf.denied("anna", f"/elections/{id}/pass", to="nobody")[0] == "misuse"
    assert code(conf.post("carl", f"/elections/{id}/pass", to="bob")) == (404, "not-found")
    assert code(conf.post("bob", "/revocations", id=id)) == (404, "not-found")
    passed = conf.made("anna", f"/elections/{id}/pass", to="bob")
    assert conf.ask("bob", "GET", "").json()["elections"][0]["elector"] == "anna"
    conf.leave("bob", bobs["id"])
    assert conf.denied("bob", "/revocations", certificate=passed["revocation"]) == ("revocation", "revoked")
    assert conf.denied("bob", "/revocations", id=id)[0] == "misuse"
    conf.enter("bob", "Chair")
    conf.made("bob", "/revocations", id=id)
    assert not conf.holds("carl", "Member")


def test_an_election_ends_with_its_time_and_with_its_electors_exit_if_it_was_said_so(conf: Office) -> None:
    anna = chair(conf)
    conf.log_on("carl")
    conf.log_on("dora")
    until = now() + timedelta(seconds=3)
    short = elected(conf, until=until.isoformat())
    conf.enter("carl", "Member", **{"with": ["*", short["delegation"]]})
    tied = elected(conf, anyone=True, revoke_on_exit=True)
    conf.enter("dora", "Member", **{"with": ["*", tied["delegation"]]})
    eventually(lambda: not conf.holds("carl", "Member"))
    assert now() >= until
    assert conf.holds("dora", "Member")
    conf.leave("anna", anna["id"])
    assert not conf.holds("dora", "Member")


# -- revocation by role ---------------------------------------------------------------------------------------------


def test_hire_fire_and_rehire_by_role(conf: Office) -> None:
    chair(conf)
    conf.log_on("carl")
    conf.enter("carl", "Guest")
    who = {"role": "Guest", "args": ["carl"]}
    assert conf.denied("carl", "/Conf/revoke", **who)[0] == "credentials"
    assert conf.denied("anna", "/Conf/revoke", **who, **{"with": []})[0] == "credentials"
    conf.made("anna", "/Conf/revoke", **who)
    assert not conf.holds("carl", "Guest")
    assert conf.denied("carl", "/Conf/enter", role="Guest")[0] == "revocation"
    assert conf.denied("carl", "/Conf/reinstate", **who)[0] == "credentials"
    conf.made("anna", "/Conf/reinstate", **who)
    assert not conf.holds("carl", "Guest")
    conf.enter("carl", "Guest")
    conf.made("anna", "/Conf/revoke", role="Guest", args=[None])  # whoever it is
    assert not conf.holds("carl", "Guest")
    revoked = conf.ask("anna", "GET", "").json()["revoked"]
    assert [(one["role"], one["args"], one["revoker"], one["pending"]) for one in revoked] == [
        ("Guest", [None], "Chair", False)
    ]
    conf.made("anna", "/Conf/reinstate", **who)  # that was not what was revoked
    assert conf.denied("carl", "/Conf/enter", role="Guest")[0] == "revocation"
    conf.made("anna", "/Conf/reinstate", role="Guest")
    conf.enter("carl", "Guest")


def test_the_administrator_ends_any_credential(conf: Office) -> None:
    anna = chair(conf)
    told = elected(conf)
    assert code(conf.post("bob", "/revocations", id=anna["id"])) == (404, "not-found")
    conf.made(ADMINISTRATOR, "/revocations", id=told["election"]["id"])
    conf.made(ADMINISTRATOR, "/revocations", id=anna["id"])
    assert not conf.holds("anna", "Chair")
    for body in ({}, {"id": "a", "certificate": "b"}):
        assert code(conf.post("anna", "/revocations", **body)) == (400, "bad-request")


# -- looking ------------------------------------------------------------------------------------------------------


def test_types_are_told_to_all_and_statements_to_those_who_may(conf: Office) -> None:
    told = conf.ask("carl", "GET", "/Conf/rolefile").json()
    assert told["roles"]["Member"] == [{"name": "u", "type": "String"}]
    assert "statements" not in told
    assert "Speaker(u) <- Member(u)*" in conf.ask(ADMINISTRATOR, "GET", "/Conf/rolefile").json()["statements"]
    assert code(conf.ask("carl", "GET", "/Login/rolefile")) == (404, "not-found")
    services = conf.ask("carl", "GET", "").json()["services"]
    assert [one["service"] for one in services] == ["Conf"]
    chair(conf)
    assert "statement" not in conf.ask("anna", "GET", "").json()["held"][1]


def test_a_service_says_what_a_text_means(conf: Office) -> None:
    assert conf.made("carl", "/Conf/parse", text="Member('dm')") == {"role": "Member", "args": ["dm"]}
    assert conf.made("carl", "/Conf/parse", text="Conf.Member(x)") == {"role": "Member", "args": [None]}
    assert conf.made("carl", "/Conf/parse", text="7", type="Integer") == {"role": None, "args": [7]}
    assert conf.made("carl", "/Conf/parse", text="{wr}", type="{rwx}")["args"] == [{"set": "rw"}]
    assert conf.made("carl", "/Conf/parse", text="dm", type="Login.userid")["args"] == ["dm"]
    assert code(conf.post("carl", "/Conf/parse", text="x", type="Integer")) == (422, "type-mismatch")
    assert code(conf.post("carl", "/Conf/parse", text="Member(")) == (422, "bad-expression")
    assert code(conf.post("carl", "/Conf/parse", text="Emperor")) == (404, "not-found")
    assert code(conf.post("carl", "/Conf/parse", text="x", type="String\nA <- B")) == (400, "bad-request")
    assert conf.denied("carl", "/Conf/parse", text="Login.LoggedOn(u)")[0] == "misuse"


def test_the_graph_tells_of_conditions_and_of_others_only_that_there_are_some(conf: Office) -> None:
    others = [conf.log_on("anna"), conf.enter("anna", "Chair")]
    told = elected(conf, revoke_on_exit=True)
    mine = [conf.log_on("carl"), conf.enter("carl", "Member", **{"with": ["*", told["delegation"]]})]
    found = conf.ask("carl", "GET", "/graph").json()
    own = {f"record {one['record']}" for one in mine}
    assert {one["id"] for one in found["nodes"] if one["kind"] == "record"} == own | {"something else"}
    assert (f"record {mine[0]['record']}", f"record {mine[1]['record']}") in {
        (one["from"], one["to"]) for one in found["edges"]
    }
    (other,) = (one for one in found["nodes"] if one["id"] == "something else")
    assert (other["state"], other.get("record")) == ("unknown", None)
    text = json.dumps(found)
    assert not any(one["id"] in text or f"record {one['record']}" in text for one in [*others, told["election"]])

    conf.enter("carl", "Guest")  # which may be revoked by role
    again = conf.ask("carl", "GET", "/graph").json()
    assert [one["state"] for one in again["nodes"] if one["id"] == "conditions"] == ["unknown"]
    anna = conf.ask("anna", "GET", "/graph").json()
    assert {one["id"] for one in anna["nodes"] if one["kind"] == "record"} == {
        "conditions",
        *(f"record {one['record']}" for one in [*others, told["election"]]),
    }
    assert all("chairs" not in one["says"] for one in anna["nodes"])


def test_the_graph_shows_one_s_own_and_what_would_fall(conf: Office) -> None:
    logged = conf.log_on("anna")
    anna = conf.enter("anna", "Chair")
    conf.log_on("carl")
    told = elected(conf, revoke_on_exit=True)
    carl = conf.enter("carl", "Member", **{"with": ["*", told["delegation"]]})
    before = conf.state.version

    def falls(who: str, root: str) -> set[str]:
        return {one["id"] for one in conf.ask(who, "GET", f"/graph?root={root}").json()["falls"]}

    assert falls("anna", logged["id"]) == {anna["id"], told["election"]["id"]}
    assert falls(ADMINISTRATOR, logged["id"]) == {anna["id"], told["election"]["id"], carl["id"]}
    mine = conf.ask("anna", "GET", "/graph").json()
    assert {one["id"] for one in mine["nodes"] if one["kind"] != "record"} == {
        logged["id"],
        anna["id"],
        told["election"]["id"],
    }
    assert all("holder" not in one for one in mine["nodes"])
    assert "chairs" not in json.dumps(mine)
    every = conf.ask(ADMINISTRATOR, "GET", "/graph").json()
    assert carl["id"] in {one["id"] for one in every["nodes"]}
    assert "'anna' in chairs" in {one["says"] for one in every["nodes"]}
    assert every["whole"] is True
    edges = {(one["from"], one["to"]) for one in every["edges"]}
    assert (f"record {logged['record']}", f"record {anna['record']}") in edges
    assert code(conf.ask("anna", "GET", f"/graph?root={carl['id']}")) == (404, "not-found")
    assert code(conf.ask("anna", "GET", "/graph?format=svg")) == (400, "bad-request")
    assert conf.state.version == before


# -- counting -------------------------------------------------------------------------------------------------------


def test_failures_are_counted_by_class(conf: Office) -> None:
    def counted(failure: str) -> float:
        text = conf.served.metrics()
        (line,) = [one for one in text.splitlines() if f'role_failures_total{{failure="{failure}"}}' in one]
        return float(line.rpartition(" ")[2])

    theirs = conf.log_on("bob")
    classes = ("fraud", "misuse", "revocation", "credentials")
    before = {one: counted(one) for one in classes}
    conf.denied("anna", "/Conf/enter", role="Chair", **{"with": [theirs["certificate"]]})
    conf.denied("anna", "/Nowhere/enter", role="Chair")
    conf.denied("anna", "/Conf/enter", role="Chair", **{"with": ["gone"]})
    conf.denied("anna", "/Conf/enter", role="Chair")
    assert {one: counted(one) - before[one] for one in classes} == dict.fromkeys(classes, 1.0)


def test_what_is_searched_for_long_costs_more() -> None:
    paces, begin = Paces(10), now()
    assert [cost_of(steps) for steps in (0, STEPS_PACED - 1, STEPS_PACED, 5 * STEPS_PACED)] == [0, 0, 1, 5]
    paces.count("anna", begin)
    paces.count("anna", begin)
    paces.charge("anna", begin, 50)
    with pytest.raises(TooBusy):  # it began before that was spent, and is stopped now
        paces.charge("anna", begin, 1)
    with pytest.raises(TooBusy) as busy:
        paces.count("anna", begin + timedelta(seconds=59))
    assert busy.value.retry == pytest.approx(((53 - 59 / 6) + 1 - 10) * 6)  # when one more has room
    paces.charge("anna", begin, 0)
    paces.count("bob", begin, 50)  # who has spent nothing is served once
    with pytest.raises(TooBusy):
        paces.count("bob", begin)
    paces.count("anna", begin + timedelta(seconds=53 * 6 + 60), 10)
    with pytest.raises(TooBusy):
        paces.count("anna", begin + timedelta(seconds=53 * 6 + 61))


def test_a_principal_asks_only_so_often() -> None:
    paces, begin = Paces(3), now()
    for _ in range(3):
        paces.count("anna", begin)
    with pytest.raises(TooBusy):
        paces.count("anna", begin + timedelta(seconds=19))
    paces.count("bob", begin + timedelta(seconds=19))
    paces.count("anna", begin + timedelta(seconds=20))  # a third of a minute brings one of three back
    with pytest.raises(TooBusy):
        paces.count("anna", begin + timedelta(seconds=20.5))
    with pytest.raises(TooBusy):
        paces.count("anna", begin - timedelta(days=1))  # a clock that is set back pays nothing
    paces.count("anna", begin - timedelta(days=1) + timedelta(seconds=40))  # and goes on from there
    paces.count("carl", begin + timedelta(hours=1))
    assert list(paces._accounts) == ["carl"]


def test_the_pace_holds_for_every_role_request_but_the_administrators(tmp_path: Path) -> None:
    with office(tmp_path / "domain", roles__requests="3") as slow:
        for _ in range(5):
            slow.log_on("anna")
        for _ in range(3):
            slow.enter("anna", "Chair")
        assert code(slow.post("anna", "/Conf/enter", role="Chair")) == (503, "too-busy")
        assert code(slow.ask("anna", "GET", "/graph")) == (503, "too-busy")
        assert code(slow.ask("anna", "GET", "")) == (503, "too-busy")
        assert code(slow.ask("anna", "GET", "/Conf/rolefile")) == (503, "too-busy")
        assert code(slow.post("anna", "/Conf/parse", text="Member('dm')")) == (503, "too-busy")
        assert slow.ask(ADMINISTRATOR, "GET", "").status_code == 200
        slow.log_on("bob")
        slow.enter("bob", "Chair")


def test_every_role_of_a_request_counts_and_there_are_only_so_many(tmp_path: Path) -> None:
    with office(tmp_path / "domain", roles__requests="10") as slow:
        slow.log_on("anna")
        note = {"role": "Note", "args": [{"set": "rw"}]}
        assert code(slow.post("anna", "/Conf/enter", roles=[note] * (MAX_ENTERED + 1))) == (400, "bad-request")
        assert len(slow.made("anna", "/Conf/enter", roles=[note] * MAX_ENTERED)["memberships"]) == MAX_ENTERED
        assert code(slow.post("anna", "/Conf/enter", roles=[note] * 3)) == (503, "too-busy")
        slow.made("anna", "/Conf/enter", roles=[note] * 2)
        assert code(slow.post("anna", "/Conf/enter", role="Chair")) == (503, "too-busy")


def test_a_certificate_ends_and_the_membership_does_not(tmp_path: Path) -> None:
    with office(tmp_path / "domain", roles__certificate="2s") as short:
        logged = short.log_on("anna")
        shown = {"with": [logged["certificate"]]}

        def is_over() -> bool:
            found = short.post("anna", "/Conf/enter", role="Chair", **shown).json()
            return (found.get("failure"), found.get("reason")) == ("revocation", "expired")

        eventually(is_over)
        told = short.made("anna", "/Login/renew", id=logged["id"])
        assert short.enter("anna", "Chair", **{"with": [told["certificate"]]})


# -- subscriptions and rights -----------------------------------------------------------------------------------------


def test_a_subscription_counts_only_memberships_of_its_own_principal_in_force(conf: Office) -> None:
    mine, theirs = conf.log_on("anna"), conf.log_on("bob")

    def subscribe(id: str, *counted: str) -> Any:
        return conf.served.ask("anna", "PUT", f"/v1/subscriptions/{id}", {"type": SALE, "with": list(counted)})

    made = subscribe("counted", mine["id"])
    assert (made.status_code, made.json()["with"]) == (201, [mine["id"]])
    assert subscribe("counted", mine["id"]).status_code == 200
    assert code(subscribe("counted")) == (409, "already-exists")
    assert subscribe("none").json()["with"] == []
    assert subscribe("theirs", theirs["id"]).json()["failure"] == "fraud"
    assert subscribe("gone", "gone").json()["failure"] == "revocation"
    assert conf.served.ask("anna", "GET", "/v1/subscriptions/theirs").status_code == 404


def test_a_role_lets_publish_and_losing_it_stops_that_at_once(conf: Office) -> None:
    rule = Rule("members-sell", "", frozenset({Action.PUBLISH}), SALE, role=RoleRef("Chair", (), "Conf"))
    conf.served.commit(AddRule(rule))
    event = {"specversion": "1.0", "source": "s", "type": SALE, "data": {"item": "tea", "amount": 1.0}}

    def publish(id: str) -> int:
        headers = {"content-type": "application/cloudevents+json"}
        return conf.served.ask("anna", "POST", "/v1/events", {**event, "id": id}, headers=headers).status_code

    assert publish("before") == 403
    logged = conf.log_on("anna")
    conf.enter("anna", "Chair")
    assert publish("during") == 200
    conf.leave("anna", logged["id"])
    assert publish("after") == 403
