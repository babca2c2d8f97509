"""What a principal may not know of answers exactly like what does not exist, and nothing says more than it must."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from harness.alone import Alone, rule, wait
from headgate.model.changes import RemoveRule
from headgate.protocol import messages as wire

SALE = "shop.Sale"
SECRET = "only bob knows"
PRIVATE = ("bob", "carl", "dora", "secret-staff", "SecretTies", "bob-alone", "bob-sees", SECRET, "bobs-own", "lamp")
"""What anna is never told: names, and what events and conditions hold."""


@pytest.fixture(scope="module")
def bobs(shop: Alone) -> Iterator[dict[str, Any]]:
    """Things of bob: a subscription, a look-up, a reservation, an advertisement, events and a position."""
    token = shop.token("bob")
    event = {"specversion": "1.0", "id": "bob 1", "source": "s", "type": SALE, "data": {"item": SECRET, "amount": 3}}
    with shop.http(token) as http:
        assert http.put("/v1/subscriptions/bobs-own", json={"type": SALE, "from": "start"}).status_code == 201
        assert http.put("/v1/lookups/bobs-key", json={"type": SALE, "where": "amount = 3"}).status_code == 201
        assert http.put("/v1/reservations/bobs-own", json={"type": SALE, "seconds": 60}).status_code == 201
        sent = http.post("/v1/events", content=json.dumps(event), headers={"content-type": wire.EVENT_JSON})
        assert sent.json()["status"] == "accepted"
        found: list[Any] = []

        def delivered() -> bool:
            found[:] = http.get("/v1/subscriptions/bobs-own/events?wait=1").json()["events"]
            return any(one["id"] == "bob 1" for one in found)

        wait(delivered, "bob's delivery")
        yield {"position": found[-1]["hgposition"], "token": token}
        for path in ("subscriptions/bobs-own", "subscriptions/bobs-key", "reservations/bobs-own"):
            assert http.delete(f"/v1/{path}").status_code == 204


def told(answer: httpx.Response, name: str) -> tuple[int, bytes, list[tuple[str, str]]]:
    """All of an answer, with the name that was asked for, and the time, left out."""
    headers = [(key, value) for key, value in answer.headers.multi_items() if key not in ("date", "content-length")]
    return answer.status_code, answer.content.replace(name.encode(), b"?"), headers


# -- things with names --------------------------------------------------------------------------------------------

ASKED: list[tuple[str, str, Any]] = [
    *(
        (method, f"/v1/{path}", None)
        for method, path in (
            ("GET", "subscriptions/@"),
            ("DELETE", "subscriptions/@"),
            ("GET", "subscriptions/@/restriction"),
            ("GET", "subscriptions/@/events"),
            ("GET", "subscriptions/@/events?after=#"),
            ("GET", "reservations/@"),
            ("DELETE", "reservations/@"),
        )
    ),
    ("POST", "/v1/subscriptions/@/ack", {"positions": ["#"]}),
    ("GET", "/v1/subscriptions/bob%2F@", None),
    ("GET", "/v1/subscriptions/bob:@", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ASKED)
def test_anothers_things_answer_as_if_they_were_not_there(
    shop: Alone, anna: str, bobs: dict[str, Any], method: str, path: str, body: Any
) -> None:
    def ask(name: str) -> tuple[int, bytes, list[tuple[str, str]]]:
        whole = json.dumps([path, body]).replace("@", name).replace("#", bobs["position"])
        where, content = json.loads(whole)
        with shop.http(anna) as http:
            return told(http.request(method, where, json=content), name)

    there, nowhere = ask("bobs-own"), ask("noones-1")
    assert there == nowhere
    assert there[0] in (404, 422)
    with shop.http(bobs["token"]) as http:  # and it is there, for bob
        assert http.get("/v1/subscriptions/bobs-own").status_code == 200
        assert http.get("/v1/reservations/bobs-own").status_code == 200


def test_lists_have_ones_own_alone_and_the_same_name_is_free(shop: Alone, anna: str, bobs: dict[str, Any]) -> None:
    with shop.http(anna) as http:
        for path in ("subscriptions", "reservations", "advertisements"):
            listed = http.get(f"/v1/{path}").text
            assert not [name for name in PRIVATE if name in listed]
        assert http.put("/v1/subscriptions/bobs-own", json={"type": SALE}).status_code == 201
        assert http.put("/v1/reservations/bobs-own", json={"type": SALE, "seconds": 9}).status_code == 201
        assert http.get("/v1/subscriptions/bobs-own/events").json()["events"] == []
        assert http.delete("/v1/subscriptions/bobs-own").status_code == 204
        assert http.delete("/v1/reservations/bobs-own").status_code == 204
        only = http.get("/v1/versions").json()["versions"]
        assert {key for one in only for key in one} == {"version", "time"}


# -- policy -------------------------------------------------------------------------------------------------------

RULE = {"id": "new", "who": "anna", "may": "subscribe", "type": SALE}
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "a rule to remove": ({"op": "remove-rule", "id": "@"}, "bob-sees"),
    "a rule to replace": ({"op": "add-rule", "rule": {**RULE, "id": "@"}}, "bob-sees"),
    "a principal to give to": ({"op": "add-rule", "rule": {**RULE, "who": "@"}}, "bob"),
    "a principal to give to by a pattern": ({"op": "add-rule", "rule": {**RULE, "who": "@", "type": "shop.*"}}, "bob"),
    "a group to give to": ({"op": "add-rule", "rule": {**RULE, "who": "@"}}, "secret-staff"),
    "a group to name": ({"op": "add-rule", "rule": {**RULE, "where": "item in group @"}}, "secret-staff"),
    "a group to join": ({"op": "add-member", "group": "@", "member": "anna"}, "secret-staff"),
    "a group to leave": ({"op": "remove-member", "group": "@", "member": "anna"}, "secret-staff"),
    "a member": ({"op": "add-member", "group": "open-staff", "member": "@"}, "bob"),
    "a group to declare": ({"op": "declare-group", "name": "@"}, "secret-staff"),
    "a principal to declare": ({"op": "declare-principal", "name": "@"}, "bob"),
    "a principal to remove": ({"op": "remove-principal", "name": "@"}, "bob"),
    "a principal with attributes": ({"op": "set-attribute", "principal": "@", "name": "rank", "value": 1}, "bob"),
    "a principal with a key": ({"op": "set-key", "principal": "@", "key": None}, "bob"),
    "a principal to withdraw from": ({"op": "withdraw", "principal": "@"}, "bob"),
    "a relation to add to": ({"op": "add-row", "relation": "@", "row": [1]}, "SecretTies"),
    "a relation to take from": ({"op": "remove-row", "relation": "@", "row": [1]}, "SecretTies"),
}


@pytest.mark.parametrize("who", ["anna", "dora"])
@pytest.mark.parametrize("how", CHANGES)
def test_a_change_that_is_not_allowed_tells_nothing_of_what_is_there(shop: Alone, how: str, who: str) -> None:
    change, name = CHANGES[how]

    def ask(name: str) -> tuple[int, bytes, list[tuple[str, str]]]:
        body = json.loads(json.dumps({"changes": [change]}).replace("@", name))
        with shop.http(shop.token(who)) as http:
            return told(http.post("/v1/batches", json=body), name)

    there, nowhere = ask(name), ask("x" * len(name))
    assert there == nowhere
    assert there[0] == 403
    assert b"govern-denied" in there[1]


@pytest.mark.parametrize("where", ["item in group @", "not (item in group @) or item = '1'", "@(item)"])
def test_a_condition_of_an_owner_tells_nothing_of_what_is_closed(shop: Alone, anna: str, where: str) -> None:
    name = "SecretTies" if where.startswith("@") else "secret-staff"

    def ask(name: str) -> tuple[int, bytes, list[tuple[str, str]]]:
        own = {**RULE, "type": "anna.Probe", "where": where.replace("@", name)}
        with shop.http(anna) as http:
            assert http.put("/v1/types/anna.Probe", json={"attributes": {"item": "string"}}).status_code in (200, 201)
            return told(http.post("/v1/batches", json={"changes": [{"op": "add-rule", "rule": own}]}), name)

    there, nowhere = ask(name), ask("X" * len(name))
    assert there == nowhere
    assert there[0] == 403
    assert b"govern-denied" in there[1]
    assert not [one for one in PRIVATE if one.encode() in there[1]]


FILTERS = {"a closed group": ("item in group @", "secret-staff"), "a closed relation": ("@(item)", "SecretTies")}


@pytest.mark.parametrize("how", FILTERS)
@pytest.mark.parametrize("path", ["subscriptions", "lookups", "reservations"])
def test_a_filter_learns_nothing_of_what_is_closed(shop: Alone, anna: str, how: str, path: str) -> None:
    where, name = FILTERS[how]

    def ask(name: str) -> tuple[int, bytes, list[tuple[str, str]]]:
        body: dict[str, Any] = {"type": SALE, "where": where.replace("@", name)}
        if path == "reservations":
            body["seconds"] = 5
        with shop.http(anna) as http:
            return told(http.put(f"/v1/{path}/probe", json=body), name)

    there, nowhere = ask(name), ask("X" * len(name))
    assert there == nowhere
    assert there[0] == 422
    assert not [one for one in PRIVATE if one.encode() in there[1]]
    with shop.http(anna) as http:  # what is open may be named
        body = {"type": SALE, "where": "item in group open-staff"}
        assert http.put("/v1/subscriptions/probe", json=body).status_code == 201
        assert http.delete("/v1/subscriptions/probe").status_code == 204


def test_a_type_that_does_not_fit_anothers_rule_is_refused_without_its_words(shop: Alone, anna: str) -> None:
    shop.commit(rule("hidden-rule", "bob", "subscribe", "anna.*", "salary > 90000"))
    try:
        with shop.http(anna) as http:
            answer = http.put("/v1/types/anna.Pay", json={"attributes": {"salary": "string"}})
            assert answer.status_code == 422
            assert not [one for one in ("hidden-rule", "90000", "bob", "string") if one in answer.text]
    finally:
        shop.commit(RemoveRule("hidden-rule"))


# -- words --------------------------------------------------------------------------------------------------------


def test_restrictions_and_refusals_name_nobody_else(shop: Alone, anna: str, bobs: dict[str, Any]) -> None:
    bad = {"specversion": "1.0", "id": "1", "source": "s", "type": SALE, "data": {"weight": 1}}
    denied = {"specversion": "1.0", "id": "2", "source": "s", "type": SALE, "data": {"item": "mine"}}
    json_event = {"content-type": wire.EVENT_JSON}
    with shop.http(anna) as http, shop.http(shop.token("dora")) as dora:
        http.put("/v1/subscriptions/mine", json={"type": SALE}).raise_for_status()
        answers = [
            http.get("/v1/subscriptions/mine/restriction"),
            http.get(f"/v1/advertisements/{SALE}/restriction"),
            http.get(f"/v1/types/{SALE}/restriction"),
            http.get("/v1/types/dora.Own/restriction"),
            http.post("/v1/events", content=json.dumps(bad), headers=json_event),
            http.post("/v1/events", content=json.dumps({**bad, "type": "dora.Own"}), headers=json_event),
            http.post("/v1/batches", json={"changes": [], "expect": 1}),
            http.post("/v1/subscriptions/mine/ack", json={"positions": [bobs["position"]]}),
            http.get(f"/v1/types/{SALE}"),
        ]
        refused = dora.post("/v1/events", content=json.dumps(denied), headers=json_event)
        http.delete("/v1/subscriptions/mine").raise_for_status()
    for answer in answers:
        text = answer.text.replace("dora.Own", "")
        assert not [name for name in PRIVATE if name in text], text
    assert (refused.status_code, refused.json()["code"]) == (403, "publish-denied")
    assert not [name for name in ("bob", "anna", SECRET, "mine") if name in refused.text], refused.text


def test_what_needs_no_session_names_nobody(shop: Alone, bobs: dict[str, Any]) -> None:
    names = (*PRIVATE, "anna", SALE, "dora.Own", "bob 1", str(shop.directory))
    with shop.http() as http:
        for path in ("/health", "/metrics", "/v1", "/openapi.json", "/nowhere/bob", "/v1/subscriptions/bobs-own"):
            text = http.get(path).text
            assert not [name for name in names if name in text], (path, text)
        assert http.get("/metrics").status_code == 401
        anna, administrator = (shop.token(who) for who in ("anna", "administrator"))
        answers = [http.get("/metrics", headers={"authorization": f"Bearer {one}"}) for one in (anna, administrator)]
        assert [one.status_code for one in answers] == [403, 200]
        assert answers[0].json()["code"] == "govern-denied"
    with shop.http(shop.metrics_token) as http:
        text = http.get("/metrics").text
        assert text.count("\n") > 20
        assert not [name for name in names if name in text], text


def test_the_log_names_nobody(shop: Alone, bobs: dict[str, Any]) -> None:
    said = shop.gateway.log.read_text()
    assert said.count("\n") > 20
    assert not [name for name in (*PRIVATE, "anna", SALE, bobs["token"], bobs["position"]) if name in said]
