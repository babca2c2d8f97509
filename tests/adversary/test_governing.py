"""Governing: who governs nothing changes nothing, costs nothing and keeps nobody from governing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.alone import Alone, rule, wait
from harness.attack import (
    SALE,
    applied,
    event,
    fresh,
    person,
    policy_files,
    publish,
    publish_all,
    read,
    refused,
    version,
)
from headgate.model.changes import AddMember, DeclareGroup, RemoveRule
from headgate.model.state import ADMINISTRATOR
from headgate.node.domain import Domain
from headgate.trust.keys import PrivateKey

DID = PrivateKey.generate().public.did
OPERATIONS: dict[str, dict[str, Any]] = {
    "a policy rule": {"op": "set-policy-rule", "principal": "hana", "rule": "$x = 1"},
    "a policy rule of its own taken off": {"op": "set-policy-rule", "principal": "@", "rule": None},
    "the coordinator": {"op": "set-coordinator", "key": DID},
    "the network": {"op": "set-network", "name": "mine"},
    "a provider": {"op": "set-provider", "key": DID, "name": "mine"},
    "a provider less": {"op": "remove-provider", "key": DID},
    "an issuing rule": {
        "op": "add-issuing",
        "id": "mine",
        "who": "@",
        "authority": [{"type": "*", "actions": ["publish"]}],
        "seconds": 60,
    },
    "an issuing rule less": {"op": "remove-issuing", "id": "mine"},
    "a rolefile": {"op": "set-rolefile", "service": "Conf", "text": "Chair(u) <- Login.LoggedOn(u, h)"},
    "no rolefile": {"op": "set-rolefile", "service": "Conf", "text": None},
    "event policy": {"op": "set-event-policy", "text": ""},
    "what a type stands for": {"op": "set-representative", "type": SALE, "parameters": {"x": "item"}},
    "a peer": {"op": "set-peer", "name": "Peer", "key": DID, "service": "Login", "bound": 60},
    "a key of the administrator": {"op": "set-key", "principal": ADMINISTRATOR, "key": DID},
    "a key of its own": {"op": "set-key", "principal": "@", "key": DID},
    "an attribute of its own": {"op": "set-attribute", "principal": "@", "name": "rank", "value": 9},
    "a type that goes": {"op": "retire-type", "name": SALE},
    "a type that grows": {"op": "declare-type", "name": SALE, "type": {"attributes": {"more": "int"}}},
    "a forbid for all": {
        "op": "add-rule",
        "rule": {"id": "no", "who": "hugo", "may": "subscribe", "type": SALE, "effect": "forbid", "first": True},
    },
    "a rule by role": {"op": "add-rule", "rule": {"id": "r", "role": "Conf.Guest", "may": "publish", "type": SALE}},
}


@pytest.mark.parametrize("what", OPERATIONS)
def test_who_governs_nothing_changes_nothing(north: Alone, what: str) -> None:
    """Alone, last of a batch, first of one, and by the owner of another type."""
    name = person(north, "eve")
    for gateway, who in enumerate((name, "dora")):
        change = json.loads(json.dumps(OPERATIONS[what]).replace('"@"', json.dumps(who)))
        harmless = {"op": "add-rule", "rule": {"id": f"{who}-own", "who": who, "may": "publish", "type": "dora.Own"}}
        with north.http(north.token(who, gateway), gateway) as http:
            before = version(http)
            for changes in ([change], [harmless, change], [change, harmless]):
                refused(http.post("/v1/batches", json={"changes": changes}), "govern-denied")
            assert version(http) == before


def test_nothing_that_is_asked_for_registers_a_predicate(north: Alone) -> None:
    """Not even by the administrator: Python comes from the domain's own files alone."""
    ops = ("register-predicate", "set-predicate", "add-predicate", "RegisterPredicate", "exec")
    with north.http(north.token(ADMINISTRATOR)) as http:
        before = version(http)
        for op in ops:
            body = {"op": op, "name": "evil", "target": "os:system", "digest": "0" * 64, "source": "import os"}
            refused(http.post("/v1/batches", json={"changes": [body]}), "bad-request")
        where = {"id": "r", "who": "hugo", "may": "subscribe", "type": SALE, "where": "predicate os.system(item)"}
        told = http.post("/v1/batches", json={"changes": [{"op": "add-rule", "rule": where}]})
        refused(told, "bad-expression", "unknown-name", "bad-definition", "not-found")
        assert version(http) == before


def test_one_bad_change_among_good_ones_leaves_nothing(north: Alone) -> None:
    good: list[dict[str, Any]] = [
        {"op": "declare-group", "name": fresh("club")},
        {"op": "declare-principal", "name": fresh("new")},
        {"op": "add-rule", "rule": {"id": fresh("rule"), "who": "hugo", "may": "publish", "type": SALE}},
        {"op": "declare-type", "name": fresh("a.Type").replace("-", ""), "type": {"attributes": {"x": "int"}}},
    ]
    bad: list[dict[str, Any]] = [
        {"op": "add-member", "group": "nosuch", "member": "hugo"},
        {"op": "add-rule", "rule": {"id": "x", "who": "hugo", "may": "subscribe", "type": SALE, "where": "weight > 1"}},
        {"op": "set-rolefile", "service": "Bad", "text": "Chair(u <- "},
        {"op": "set-key", "principal": "hugo", "key": north.key("hana").public.did},
    ]
    with north.http(north.token(ADMINISTRATOR)) as http, north.http(north.token("hugo"), 1) as hugo:
        before = version(http)
        for one in bad:
            for changes in ([*good, one], [one, *good], [*good[:2], one, *good[2:]]):
                codes = ("unknown-name", "bad-definition", "bad-expression")
                refused(http.post("/v1/batches", json={"changes": changes}), *codes)
        assert version(http) == before
        refused(publish(hugo, event()), "publish-denied")
        refused(hugo.get(f"/v1/types/{good[3]['name']}"), "not-found", "unknown-type")


LOOKALIKES = {
    "a Cyrillic principal": {"op": "declare-principal", "name": "h\u0430na"},
    "a Greek group": {"op": "declare-group", "name": "insider\u0455"},
    "a full-width type": {"op": "declare-type", "name": "shop.\uff33ale", "type": {"attributes": {"x": "int"}}},
    "a Cyrillic type": {"op": "declare-type", "name": "shop.S\u0430le", "type": {"attributes": {"x": "int"}}},
    "mixed scripts": {"op": "declare-principal", "name": "\u0433\u043e\u0441\u0442x"},
    "not in its normal form": {"op": "declare-principal", "name": "cafe\u0301"},
    "a service": {"op": "set-rolefile", "service": "C\u043enf", "text": "Guest(u) <- Login.LoggedOn(u, h)"},
    "nothing to see": {"op": "declare-principal", "name": "hana\u200b"},
}


@pytest.mark.parametrize("how", LOOKALIKES)
def test_names_that_look_like_others_are_not_given(north: Alone, how: str) -> None:
    with north.http(north.token(ADMINISTRATOR)) as http:
        before = version(http)
        told = http.post("/v1/batches", json={"changes": [LOOKALIKES[how]]})
        refused(told, "bad-definition")
        assert version(http) == before
    key = LOOKALIKES[how].get("name", "")
    installer = person(north, "installer", ("install", "*"))
    if how.endswith("type"):  # nor to who may declare types
        with north.http(north.token(installer), 1) as http:
            refused(http.put(f"/v1/types/{key}", json={"attributes": {"x": "int"}}), "bad-definition", "bad-request")


# -- what takes long to read --------------------------------------------------------------------------------------

DEEP = 5_000
NESTED = "not (" * 1_500 + "amount = 1" + ")" * 1_500
HEAVY: dict[str, Callable[[], dict[str, Any]]] = {
    "a huge rolefile": lambda: {
        "op": "set-rolefile",
        "service": "Big",
        "text": "\n".join(f"R{n}(u) <- Login.LoggedOn(u, h)* : (u in g{n})*" for n in range(18_000)),
    },
    "a deep rolefile": lambda: {
        "op": "set-rolefile",
        "service": "Deep",
        "text": "R(u) <- Login.LoggedOn(u, h)* : " + "(" * DEEP + "u in g" + ")" * DEEP,
    },
    "a deep condition": lambda: {
        "op": "add-rule",
        "rule": {
            "id": "d",
            "who": "@",
            "may": "publish",
            "type": SALE,
            "where": "not (" * 1_500 + "amount = 1" + ")" * 1_500,
        },
    },
    "a condition that multiplies": lambda: {
        "op": "add-rule",
        "rule": {
            "id": "m",
            "who": "@",
            "may": "publish",
            "type": SALE,
            "where": " and ".join(f"(item contains 'a{n}' or item has token 'b{n}')" for n in range(200)),
        },
    },
    "deep event policy": lambda: {"op": "set-event-policy", "text": "(" * 100_000},
}


@pytest.mark.parametrize("how", HEAVY)
def test_what_takes_long_to_read_is_refused_and_holds_nobody_up(world: Any, north: Alone, how: str) -> None:
    """By one who governs nothing, many at once, and by the administrator itself, who is told what is wrong."""
    name = person(north, "heavy")
    body = {"changes": [json.loads(json.dumps(HEAVY[how]()).replace('"@"', json.dumps(name)))]}
    with north.http(north.token(name)) as http, ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(http.post, "/v1/batches", json=body) for _ in range(4)]
        world.neighbours[0].served()
        for one in sent:
            refused(one.result(), "govern-denied", "too-busy", "too-large", "bad-request")
    with north.http(north.token(ADMINISTRATOR), 1) as http:
        before = version(http)
        refused(
            http.post("/v1/batches", json=body),
            "bad-expression",
            "bad-definition",
            "too-large",
            "unknown-name",
            "bad-request",
        )
        assert version(http) == before


# -- others who make versions -------------------------------------------------------------------------------------


@contextmanager
def flooding(made: Alone, *who: str) -> Iterator[list[int]]:
    """Everyone subscribes, advertises and takes it back, at every gateway, as fast as it goes."""
    over, made_of = threading.Event(), [0]

    def flood(name: str, gateway: int) -> None:
        with made.http(made.token(name, gateway), gateway) as http:
            while not over.is_set():
                path = f"/v1/subscriptions/flood{gateway}"
                answers = [http.put(path, json={"type": SALE}), http.delete(path)]
                answers.append(http.put(f"/v1/advertisements/{SALE}"))
                answers.append(http.delete(f"/v1/advertisements/{SALE}"))
                made_of[0] += sum(one.status_code < 300 for one in answers)

    threads = [threading.Thread(target=flood, args=(name, gateway)) for name in who for gateway in (0, 1)]
    for one in threads:
        one.start()
    try:
        yield made_of
    finally:
        over.set()
        for one in threads:
            one.join()


def test_a_flood_of_versions_does_not_keep_policy_from_being_applied(spare: Alone, tmp_path: Path) -> None:
    """By batches that expect a version, and from files, with the command that an administrator uses."""
    names = [person(spare, "flooder", ("publish subscribe", SALE)) for _ in range(2)]
    group = fresh("readers")
    with flooding(spare, *names) as made, spare.http(spare.token("dora")) as http:
        wait(lambda: made[0] > 4, "the flood")
        for n in range(2):
            changes = [{"op": "declare-group", "name": f"{group}{n}"}]
            with spare.http(spare.token(ADMINISTRATOR), n) as root:
                expect, before = version(root), made[0]
                wait(lambda was=before: made[0] > was + 2, "more of the flood")
                batch = {"changes": changes, "expect": expect}
                while (told := root.post("/v1/batches", json=batch)).status_code == 503:
                    refused(told, "storage-busy")  # which is no answer about the version: it is sent again
                assert told.status_code == 200, told.text
        directory = policy_files(spare, tmp_path / "policy", *names, groups=f"{group}0: [hugo]")
        done = applied(spare, directory)
        assert done.exit_code == 0, done.output
        assert http.get("/v1/types").status_code == 200


def test_of_two_batches_for_the_same_version_one_wins_whole(north: Alone) -> None:
    """Ten at once, at both gateways, each expecting the same version and each with a change of policy."""
    groups = [fresh("race") for _ in range(10)]
    token = north.token(ADMINISTRATOR)
    with north.http(token) as http, north.http(token, 1) as other:
        expect = version(http)

        def send(n: int) -> httpx.Response:
            changes = [
                {"op": "declare-group", "name": groups[n]},
                {"op": "add-member", "group": groups[n], "member": "hugo"},
                {"op": "add-rule", "rule": {"id": "race", "who": groups[n], "may": "publish", "type": "dora.Own"}},
            ]
            return (http, other)[n % 2].post("/v1/batches", json={"changes": changes, "expect": expect})

        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(send, range(10)))
        won = [n for n, one in enumerate(answers) if one.status_code == 200]
        assert len(won) == 1
        for n, one in enumerate(answers):
            if n not in won:
                refused(one, "version-conflict")
        with north.http(north.token("hugo"), 1) as hugo:
            assert publish(hugo, event(type="dora.Own", data={"x": 1})).json()["status"] == "accepted"
        north.commit(RemoveRule("race"))


def test_an_owners_pattern_reaches_nobody_elses_types(north: Alone) -> None:
    """Grants and forbids over every name, by who owns one type: they speak of that type alone."""
    thief = person(north, "thief", ("subscribe", SALE, "item = 'mine'"))
    rules = [
        {"id": "o1", "who": thief, "may": ["publish", "subscribe"], "type": "*"},
        {"id": "o2", "who": "hugo", "may": "subscribe", "type": "*", "effect": "forbid", "first": True},
        {"id": "o3", "who": "hana", "may": "publish", "type": "*", "effect": "forbid", "first": True},
        {"id": "o4", "who": "hugo", "may": "subscribe", "type": "shop.*", "effect": "forbid", "first": True},
    ]
    with north.http(north.token("dora")) as http, north.http(north.token(thief), 1) as other:
        for one in rules:
            told = http.post("/v1/batches", json={"changes": [{"op": "add-rule", "rule": one}]})
            assert told.status_code in (200, 403), told.text
        refused(publish(other, event()), "publish-denied")
        assert other.put("/v1/subscriptions/mine", json={"type": SALE}).status_code == 201
        publisher = person(north, "teller", ("publish", SALE))
        with north.http(north.token(publisher)) as teller:
            assert (
                publish_all(teller, [event(data={"item": "theirs"}), event(data={"item": "mine"})]) == ["accepted"] * 2
            )
        assert [one["data"]["item"] for one in read(other, "mine", 1)] == ["mine"]
    with Domain.open(north.files.data) as domain:
        there = {one.id for one in domain.ledger.state().rules}
    north.commit(*(RemoveRule(str(one["id"])) for one in rules if one["id"] in there))


def test_explanations_and_restrictions_tell_others_nothing(north: Alone) -> None:
    """Of a rule that is not disclosed, of others' rights, and of an event that one cannot see."""
    secret = fresh("secret")
    name = person(north, "asker", ("subscribe", SALE, f"item = '{secret}'"))
    north.commit(DeclareGroup(f"{secret}-group"), AddMember(f"{secret}-group", "hugo"))
    north.commit(rule(f"{secret}-rule", f"{secret}-group", "subscribe", SALE, f"item = '{secret}x'"))
    with north.http(north.token(name)) as http:
        assert http.put("/v1/subscriptions/mine", json={"type": SALE}).status_code == 201
        for path in (
            "/v1/subscriptions/mine/restriction",
            f"/v1/types/{SALE}/restriction",
            f"/v1/advertisements/{SALE}/restriction",
            "/v1/versions",
        ):
            text = http.get(path).text
            assert f"{secret}x" not in text
            assert f"{secret}-group" not in text
            assert f"{secret}-rule" not in text
            assert "hugo" not in text
