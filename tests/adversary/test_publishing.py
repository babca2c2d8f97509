"""Publishing: nobody gets an event in that its rules keep out, under another's name, twice, or at others' cost."""

from __future__ import annotations

import json
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pyarrow as pa
import pytest

from harness.alone import Alone, rule
from harness.attack import MANY, SALE, event, fresh, person, publish, publish_all, read, refused
from headgate.lang import parse_condition
from headgate.model.authority import Provider, Validity
from headgate.model.changes import AddRule, DeclareType, RemoveProvider, SetPolicyRule, SetPrivate, SetProvider
from headgate.model.events import Event
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.protocol import messages as wire
from headgate.trust.identities import issue_identity
from headgate.trust.keys import PrivateKey
from headgate.trust.tls import client_context
from strategies.presenting import identity, now

ARROW = {"content-type": wire.ARROW}


def kept(made: Alone, publisher: str) -> list[Event]:
    """What the log has of someone."""
    return [one for one in made.domain.events() if one.publisher == publisher]


def as_arrow(columns: dict[str, Any]) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


# -- identity and policy rules ------------------------------------------------------------------------------------


def test_a_bound_publisher_does_not_escape_by_hiding_who_it_is(north: Alone) -> None:
    """Its identity statement brings the rule that binds it; without the statement nothing of it goes out at all."""
    provider, name = PrivateKey.generate(), person(north, "bound")
    rule_ = Rule(f"{name}-0", name, frozenset({Action.PUBLISH}), SALE, attested=True)
    north.commit(SetProvider(Provider(provider.public.did, fresh("provider"))), AddRule(rule_))
    try:
        with north.http(north.token(name)) as http, north.http(north.token(name), 1) as other:
            wide = {"id": ["a", "b"], "item": ["lamp"] * 2}
            for one in (http, other):
                refused(publish(one, event()), "publish-denied")
                assert publish_all(one, [event(requires="$nation = 'NO'"), event()]) == ["publish-denied"] * 2
                sent = one.post("/v1/events", params={"type": SALE}, content=as_arrow(wide), headers=ARROW)
                assert sent.json()["accepted"] == 0
            refused(http.put(f"/v1/advertisements/{SALE}"), "publish-denied")
            bound = issue_identity(
                provider,
                subject=north.key(name).public.did,
                attributes={"rank": 1},
                policy_rule=parse_condition("$nation = 'NO'"),
                validity=Validity(now(), now() + timedelta(minutes=10)),
                now=now(),
            )
            assert http.post("/v1/statements", json={"statements": [bound]}).status_code == 200
            for one in (http, other):
                refused(publish(one, event()), "policy-rule")
                assert publish(one, event(requires="$nation = 'NO'")).json()["status"] == "accepted"
                sent = one.post("/v1/events", params={"type": SALE}, content=as_arrow(wide), headers=ARROW)
                assert sent.json()["accepted"] == 0
        assert {str(one.requires) for one in kept(north, name)} == {str(parse_condition("$nation = 'NO'"))}
    finally:
        north.commit(RemoveProvider(provider.public.did))


def test_another_publishers_identity_attests_nobody_else(north: Alone) -> None:
    provider, name, other = PrivateKey.generate(), person(north, "bare"), person(north, "vouched")
    north.commit(
        SetProvider(Provider(provider.public.did, fresh("provider"))),
        *(AddRule(Rule(f"{n}-0", n, frozenset({Action.PUBLISH}), SALE, attested=True)) for n in (name, other)),
    )
    try:
        theirs = identity(provider, north.key(other), rank=1)
        with north.http(north.token(name)) as http, north.http(north.token(other), 1) as vouched:
            assert vouched.post("/v1/statements", json={"statements": [theirs]}).status_code == 200
            assert publish(vouched, event()).json()["status"] == "accepted"
            shown = http.post("/v1/statements", json={"statements": [theirs]})
            assert shown.status_code != 200 or shown.json()["identities"] == []
            refused(publish(http, event()), "publish-denied")
            north.commit(RemoveProvider(provider.public.did))  # and who is trusted no more attests nothing
            refused(publish(vouched, event()), "publish-denied")
        assert kept(north, name) == []
    finally:
        if provider.public.did in north.domain.ledger.state().providers:
            north.commit(RemoveProvider(provider.public.did))


WIDE = {
    "nothing": None,
    "what is always true": "$nation = 'NO' or not ($nation = 'NO')",
    "what is true of others too": "$nation = 'NO' or $rank = 1",
    "the contrary": "not ($nation = 'NO')",
    "what is true where it is absent": "$nation is null",
    "a number for a text": "$nation != 3",
    "a look-alike": "$nation = 'N\u041e'",
    "what nobody can prove": " and ".join(f"($a{n} > {n} or $b{n} < $a{n - 1})" for n in range(1, 40)),
}


@pytest.mark.parametrize("how", WIDE)
def test_no_requirement_talks_its_way_past_a_policy_rule(north: Alone, how: str) -> None:
    name = person(north, "bound", ("publish", SALE))
    north.commit(SetPolicyRule(name, parse_condition("$nation = 'NO'")))
    more = {} if WIDE[how] is None else {"requires": WIDE[how]}
    for gateway in (0, 1):
        with north.http(north.token(name, gateway), gateway) as http:
            refused(publish(http, event(**more)), "policy-rule", "bad-expression")
            assert publish(http, event(requires="$nation = 'NO' and $rank > 3")).json()["status"] == "accepted"
    assert len(kept(north, name)) == 2


def test_a_private_attribute_is_not_probed_by_requirements(north: Alone) -> None:
    attribute = fresh("salary").replace("-", "")
    name = person(north, "prober", ("publish subscribe", SALE))
    north.commit(SetPrivate(attribute, private=True))
    texts = (f"${attribute} > 5000", f"not (${attribute} <= 5000)", f"$rank = 1 or ${attribute} is null")
    with north.http(north.token(name)) as http, north.http(north.token(name), 1) as other:
        for text in texts:
            refused(publish(http, event(requires=text)), "bad-expression")
            body = {"type": SALE, "requires": text}
            refused(other.put("/v1/subscriptions/probe", json=body), "bad-expression")
            columns = {"id": ["a"], "item": ["lamp"], "requires": [text]}
            sent = http.post("/v1/events", params={"type": SALE}, content=as_arrow(columns), headers=ARROW)
            assert sent.status_code != 200 or sent.json()["accepted"] == 0
        assert other.get("/v1/subscriptions").json()["subscriptions"] == []
    assert kept(north, name) == []


# -- floods -------------------------------------------------------------------------------------------------------


def test_four_megabytes_of_requirements_hold_nobody_up(world: Any, north: Alone) -> None:
    """By one who may publish, and by one who may not; the neighbour is served meanwhile."""
    may, may_not = person(north, "flood", ("publish", SALE)), person(north, "flood")
    many = [
        event(requires=" or ".join(f"$a{n}x{m} = {n} and $b{n} > {m}" for m in range(16)), data={"item": "x"})
        for n in range(6_500)
    ]
    body = json.dumps(many).encode()
    assert len(body) > 4_000_000
    over = threading.Event()
    answers: list[httpx.Response] = []

    def flood(who: str) -> None:
        with north.http(north.token(who)) as http:
            while not over.is_set():
                answers.append(http.post("/v1/events", content=body, headers=MANY))

    threads = [threading.Thread(target=flood, args=(who,)) for who in (may, may_not)]
    for one in threads:
        one.start()
    try:
        for _ in range(3):
            world.neighbours[0].served()
    finally:
        over.set()
        for one in threads:
            one.join()
    for answer in answers:
        if answer.status_code == 200:
            assert {one["status"] for one in answer.json()["results"]} == {"refused"}
        else:
            refused(answer, "bad-expression", "too-large", "too-busy")
    assert kept(north, may) == kept(north, may_not) == []


def test_a_limit_on_the_rate_holds_over_both_gateways_at_once(north: Alone) -> None:
    most = 20
    name = person(north, "rated", ("publish", SALE, f"@rate <= {most}"))
    clients = [north.http(north.token(name, n % 2), n % 2) for n in range(4)]
    ready = threading.Barrier(len(clients))

    def send(http: httpx.Client) -> list[str]:
        ready.wait()
        found = [publish(http, event()).json() for _ in range(8)]
        found += [{"status": one} for one in publish_all(http, [event() for _ in range(8)])]
        return [one.get("code", one.get("status")) for one in found]

    with ThreadPoolExecutor(len(clients)) as pool:
        told = [one for some in pool.map(send, clients) for one in some]
    for one in clients:
        one.close()
    assert sorted(set(told)) == ["accepted", "publish-denied"]
    assert told.count("accepted") == most == len(kept(north, name))
    assert sorted(one.rate for one in kept(north, name) if one.rate is not None) == list(range(1, most + 1))


def test_one_bad_event_among_many_takes_only_itself(north: Alone) -> None:
    name = person(north, "mixed", ("publish", SALE, "amount > 0"))
    good = [event(fresh("good"), data={"item": "x", "amount": 1}) for _ in range(50)]
    bad = [
        event(fresh("bad"), data={"item": "x", "amount": -1}),
        event(fresh("bad"), data={"item": "x"}),
        event(fresh("bad"), data={"item": "x", "amount": 1, "secret": 1}),
        event(fresh("bad"), type="shop.Nosuch"),
        event(fresh("bad"), type="dora.Own", data={"x": 1}),
        event(fresh("bad"), data={"item": "x", "amount": 1}, requires="$x ="),
    ]
    mixed = [*good[:25], *bad, *good[25:]]
    with north.http(north.token(name)) as http:
        told = publish_all(http, mixed)
    assert [one["id"] for one, status in zip(mixed, told, strict=True) if status == "accepted"] == [
        one["id"] for one in good
    ]
    assert [one.id for one in kept(north, name)] == [one["id"] for one in good]


# -- where one is -------------------------------------------------------------------------------------------------

INSIDE = "@origin starts with '10.'"
CLAIMS: dict[str, dict[str, str]] = {
    "x-forwarded-for": {"x-forwarded-for": "10.0.0.7"},
    "several of them": {"x-forwarded-for": "10.0.0.7, 10.0.0.8, 127.0.0.9"},
    "forwarded": {"forwarded": "for=10.0.0.7"},
    "x-real-ip": {"x-real-ip": "10.0.0.7"},
    "another case": {"X-FORWARDED-FOR": "10.0.0.7"},
    "underscores": {"x_forwarded_for": "10.0.0.7"},
    "true-client-ip": {"true-client-ip": "10.0.0.7", "cf-connecting-ip": "10.0.0.7"},
}


def at(made: Alone, token: str, address: str, gateway: int = 0) -> httpx.Client:
    """A client at one address of this machine."""
    transport = httpx.HTTPTransport(
        verify=client_context(made.files.tls_certificate.read_bytes()),
        local_address=address,
        http1=True,
        http2=False,
        trust_env=False,
    )
    return httpx.Client(
        base_url=made.gateways[gateway].url,
        transport=transport,
        headers={"authorization": f"Bearer {token}"},
        timeout=60,
    )


@pytest.mark.parametrize("how", CLAIMS)
def test_nobody_says_itself_where_it_is(north: Alone, south: Alone, how: str) -> None:
    """Neither where there is no proxy, nor beside one."""
    for made in (north, south):
        name = person(made, "outside", ("publish", SALE, INSIDE))
        token = made.token(name)
        for gateway in (0, 1):
            with made.http(token, gateway) as http:
                refused(publish(http, event(), **CLAIMS[how]), "publish-denied")
        assert kept(made, name) == []


def test_behind_a_proxy_only_what_the_proxy_says_counts(south: Alone) -> None:
    name = person(south, "behind", ("publish", SALE, INSIDE))
    token = south.token(name)
    with at(south, token, "127.0.0.9") as proxy, at(south, token, "127.0.0.8", 1) as stranger:
        for said in (
            "10.0.0.7, 192.0.2.1",  # what the client sent, then what the proxy saw
            "10.0.0.7,10.0.0.8,192.0.2.1, 127.0.0.9",
            "10.0.0.7, unknown",
            "10.0.0.7, 192.0.2.1:80",
            ", ".join(["10.0.0.7"] * 2_000 + ["192.0.2.1"]),
            "10.0.0.7\t,\tnonsense",
        ):
            refused(publish(proxy, event(), **{"x-forwarded-for": said}), "publish-denied")
        twice = [("x-forwarded-for", "10.0.0.7"), ("x-forwarded-for", "192.0.2.1"), ("content-type", wire.EVENT_JSON)]
        refused(proxy.post("/v1/events", content=json.dumps(event()), headers=twice), "publish-denied")
        refused(publish(stranger, event(), **{"x-forwarded-for": "10.0.0.7"}), "publish-denied")
        assert publish(proxy, event(), **{"x-forwarded-for": "192.0.2.1, 10.0.0.7"}).json()["status"] == "accepted"
    assert [one.origin for one in kept(south, name)] == ["10.0.0.7"]


def test_a_subscription_is_read_only_from_where_it_may_be(south: Alone) -> None:
    """Made inside and read outside, at the other gateway, by every way of reading."""
    name = person(south, "inside", ("subscribe", SALE, INSIDE))
    token = south.token(name)
    inside = {"x-forwarded-for": "10.0.0.7"}
    with at(south, token, "127.0.0.9") as proxy, south.http(token, 1) as outside:
        assert proxy.put("/v1/subscriptions/in", json={"type": SALE}, headers=inside).status_code == 201
        for headers in ({}, inside):
            refused(outside.get("/v1/subscriptions/in/events", headers=headers), "subscribe-denied")
            stream = {"accept": wire.EVENT_STREAM, **headers}
            refused(outside.get("/v1/subscriptions/in/events", headers=stream), "subscribe-denied")
        with south.socket(token, 1) as socket:
            socket.send(json.dumps({"op": "open", "subscription": "in"}))
            assert json.loads(socket.recv())["code"] == "subscribe-denied"
        assert proxy.get("/v1/subscriptions/in/events", headers=inside).status_code == 200


# -- what an event says of itself ---------------------------------------------------------------------------------


def test_an_event_is_stored_once_however_often_and_wherever_it_is_sent(north: Alone) -> None:
    name = person(north, "twice", ("publish", SALE))
    token = north.token(name)
    clients = [north.http(token, n % 2) for n in range(4)]
    ids = [fresh("same") for _ in range(10)]
    ready = threading.Barrier(len(clients))

    def send(http: httpx.Client) -> list[str]:
        ready.wait()
        return [publish(http, event(id)).json()["status"] for id in ids] + publish_all(http, [event(id) for id in ids])

    with ThreadPoolExecutor(len(clients)) as pool:
        told = [one for some in pool.map(send, clients) for one in some]
    for one in clients:
        one.close()
    assert sorted(set(told)) == ["accepted", "duplicate"]
    assert told.count("accepted") == len(ids)
    assert sorted(one.id for one in kept(north, name)) == sorted(ids)


def test_nobody_takes_anothers_id_so_that_its_event_is_lost(north: Alone) -> None:
    first, second = person(north, "squat", ("publish", SALE)), person(north, "owner", ("publish", SALE))
    id = fresh("wanted")
    with north.http(north.token(first)) as squatter, north.http(north.token(second), 1) as owner:
        for one in (squatter, owner):
            assert publish(one, event(id, data={"item": "lamp"})).json()["status"] == "accepted"
            assert publish(one, event(id, data={"item": "other"})).json()["status"] == "duplicate"
    assert [one.id for one in kept(north, second)] == [id]


def test_forced_values_and_cut_attributes_are_not_overridden(north: Alone) -> None:
    name, reader = fresh("forced"), person(north, "reader", ("subscribe", SALE))
    given = Rule(f"{name}-0", name, frozenset({Action.PUBLISH}), SALE, attributes=("item",), forced={"item": name})
    north.commit(*north.people(name), rule(f"{name}-connects", name, "connect"), AddRule(given))
    with north.http(north.token(reader)) as reading, north.http(north.token(name), 1) as http:
        assert reading.put("/v1/subscriptions/all", json={"type": SALE}).status_code == 201
        assert publish(http, event(data={"item": "mine", "amount": 5, "count": 3})).json()["status"] == "accepted"
        columns = {"id": ["arrow"], "item": ["mine"], "amount": [5.0]}
        sent = http.post("/v1/events", params={"type": SALE}, content=as_arrow(columns), headers=ARROW)
        assert sent.json()["accepted"] == 1
        mine = [one for one in read(reading, "all", 2) if one["hgpublisher"] == name]
    assert [one["data"] for one in mine] == [{"item": name, "amount": None, "count": None}] * 2


def test_an_event_does_not_say_who_published_it_when_or_where(north: Alone) -> None:
    name, reader = person(north, "spoof", ("publish", SALE)), person(north, "reader", ("subscribe", SALE))
    lies = {
        "hgpublisher": "hana",
        "hgposition": "A" * 22,
        "hgversion": 1,
        "time": "1999-01-01T00:00:00Z",
        "stream": "g2",
        "version": 1,
        "origin": "10.0.0.7",
        "rate": 0,
    }
    with north.http(north.token(reader)) as reading, north.http(north.token(name)) as http:
        assert reading.put("/v1/subscriptions/all", json={"type": SALE}).status_code == 201
        assert publish(http, event(**lies)).json()["status"] == "accepted"
        (one,) = [one for one in read(reading, "all", 1) if one["hgpublisher"] != "hana"]
        refused(publish(http, event(data={"item": "x", "hgpublisher": "hana"})), "type-mismatch")
        refused(publish(http, event(data={"item": "x", "@publisher": "hana"})), "type-mismatch")
    assert one["hgpublisher"] == name
    assert not one["time"].startswith("1999")
    (stored,) = kept(north, name)
    assert (stored.stream, stored.origin) == ("g1", "127.0.0.1")


ODD = {
    "a null": "a\x00b",
    "line ends": "a\r\nb",
    "right to left": "a\u202eb",
    "nothing to see": "\u200b\u200b",
    "a byte order mark": "\ufeffa",
    "past the plane": "\U0010ffff",
    "combining": "e" + "\u0301" * 400,
    "quotes": "'; DROP TABLE appends; --",
}


@pytest.mark.parametrize("how", ODD)
def test_odd_ids_are_refused_or_kept_as_they_are_and_break_nothing(north: Alone, how: str) -> None:
    name, reader = person(north, "odd", ("publish", SALE)), person(north, "reader", ("subscribe", SALE))
    id = ODD[how]
    with north.http(north.token(reader), 1) as reading, north.http(north.token(name)) as http:
        assert reading.put("/v1/subscriptions/all", json={"type": SALE}).status_code == 201
        last = fresh("last")
        told = [
            publish(http, event(id)),
            publish(http, {**event(last + "s"), "source": id}),
            publish(http, event(last)),
        ]
        assert told[2].json()["status"] == "accepted"
        taken = [one for one in told if one.status_code == 200]
        for one in told[:2]:
            if one.status_code != 200:
                refused(one, "bad-request", "type-mismatch")
        found = [one for one in read(reading, "all", len(taken)) if one["hgpublisher"] == name]
    assert [one["id"] for one in found] == [one.json()["id"] for one in taken]
    assert [one.id for one in kept(north, name)] == [one["id"] for one in found]


def test_ids_that_look_the_same_are_not_the_same(north: Alone) -> None:
    name = person(north, "forms", ("publish", SALE))
    forms = ["caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9"), "CAF\u00c9", "caf\u00e9 ", "\uff43af\u00e9"]
    with north.http(north.token(name)) as http, north.http(north.token(name), 1) as other:
        for id in forms:
            assert publish(http, event(id)).json()["status"] == "accepted"
        for id in forms:
            assert publish(other, event(id)).json()["status"] == "duplicate"
    assert [one.id for one in kept(north, name)] == forms


def test_a_right_on_a_type_is_none_on_its_heirs_or_on_another_way_to_write_it(north: Alone) -> None:
    name, heir = person(north, "parent", ("publish", SALE)), fresh("Heir").replace("-", "")
    north.commit(DeclareType(EventType(f"shop.{heir}", ADMINISTRATOR, {"more": Kind.INT}, SALE)))
    with north.http(north.token(name)) as http:
        refused(publish(http, event(type=f"shop.{heir}")), "publish-denied")
        for type in (
            "SHOP.SALE",
            "shop.sale",
            "shop.Sale ",
            " shop.Sale",
            "shop.S\u0430le",
            "shop..Sale",
            "shop.*",
            "*",
        ):
            refused(publish(http, event(type=type)), "unknown-type", "bad-request", "publish-denied")
    assert kept(north, name) == []


def test_who_may_not_publish_advertises_nothing(north: Alone) -> None:
    name = person(north, "mute", ("subscribe", SALE))
    with north.http(north.token(name)) as http, north.http(north.token(name), 1) as other:
        for one in (http, other):
            for type in (SALE, "dora.Own", "shop.Nosuch"):
                refused(one.put(f"/v1/advertisements/{type}"), "publish-denied", "unknown-type", "not-found")
            refused(publish(one, event()), "publish-denied")
        assert http.get("/v1/advertisements").json()["advertisements"] == []


def test_a_socket_publishes_by_the_same_rules(north: Alone) -> None:
    """Many frames at once, more than may wait, with good and bad events in each: each is answered, in order."""
    name = person(north, "socket", ("publish", SALE, "amount > 0"))
    frames = 40
    with north.socket(north.token(name)) as socket:
        for n in range(frames):
            events = [event(f"{name}-{n}", data={"amount": 1}), event(f"{name}-{n}-bad", data={"amount": 0})]
            socket.send(json.dumps({"op": "publish", "ref": n, "events": events}))
        answers = [json.loads(socket.recv()) for _ in range(frames)]
    assert sorted(one["ref"] for one in answers) == list(range(frames))
    assert all([each["status"] for each in one["results"]] == ["accepted", "refused"] for one in answers)
    assert sorted(one.id for one in kept(north, name)) == sorted(f"{name}-{n}" for n in range(frames))
