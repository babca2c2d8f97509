"""Reading: nobody sees more than its rights let it, for longer, of others, or so slowly that others pay for it."""

from __future__ import annotations

import json
import socket as sockets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from harness.alone import Alone, Socket, head, rule, wait
from harness.attack import SALE, event, fresh, person, publish, publish_all, read, refused
from headgate.commands.subscriptions import ledger_id
from headgate.model.changes import (
    AddMember,
    AddRule,
    DeclareGroup,
    RemoveMember,
    RemoveRule,
    Subscribe,
    Unsubscribe,
)
from headgate.model.rights import Action, Rule, Subscription
from headgate.node.config import LimitSettings
from headgate.protocol import messages as wire

STREAM = {"accept": wire.EVENT_STREAM}
MAX_GROWTH = 128 * 2**20
"""Bytes by which a gateway may grow for clients that do not read."""


def teller(made: Alone) -> str:
    """Someone who publishes whatever it likes."""
    return person(made, "teller", ("publish", SALE))


def sent(made: Alone, who: str, *data: dict[str, Any], gateway: int = 0) -> list[str]:
    """Publish events; their ids."""
    events = [event(data=one) for one in data]
    with made.http(made.token(who, gateway), gateway) as http:
        assert set(publish_all(http, events)) == {"accepted"}
    return [str(one["id"]) for one in events]


def test_no_more_subscriptions_than_one_may_have_however_they_are_made(north: Alone) -> None:
    """Nearly a thousand there are; then many at once, at both gateways, by three ways of making one."""
    most = LimitSettings().subscriptions_per_principal
    name, room = person(north, "many", ("subscribe", SALE)), 5
    ids = [ledger_id(name, f"s{n}") for n in range(most - room)]
    north.commit(*(Subscribe(Subscription(id, name, SALE)) for id in ids))
    clients = [north.http(north.token(name, n % 2), n % 2) for n in range(4)]

    def make(n: int) -> httpx.Response:
        http = clients[n % 4]
        if n % 3 == 0:
            return http.post("/v1/subscriptions", json={"type": SALE})
        path = "lookups" if n % 3 == 1 else "subscriptions"
        return http.put(f"/v1/{path}/more{n}", json={"type": SALE, **({"temporary": True} if n % 3 == 2 else {})})

    try:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(make, range(24)))
        made = [one for one in answers if one.status_code == 201]
        for one in answers:
            if one.status_code != 201:
                refused(one, "too-many", "too-busy", "version-conflict")
        assert 0 < len(made) <= room
        held = [len(one.get("/v1/subscriptions").json()["subscriptions"]) for one in clients]
        assert max(held) <= most
        marker = sent(north, teller(north), {"item": "for all"}, gateway=1)
        assert [one["id"] for one in read(clients[0], "s0", 1)][-1:] == marker
        assert [one["id"] for one in read(clients[1], f"s{most - room - 1}", 1)][-1:] == marker
    finally:
        left = clients[0].get("/v1/subscriptions").json()["subscriptions"]
        north.commit(*(Unsubscribe(ledger_id(name, one["id"])) for one in left))
        for one in clients:
            one.close()


def test_a_position_is_of_one_subscription_of_one_principal_of_one_domain(north: Alone, south: Alone) -> None:
    positions: dict[str, str] = {}
    clients: dict[str, httpx.Client] = {}
    with ExitStack() as stack:
        for made in (north, south):
            for _ in range(2):
                name = person(made, "place", ("subscribe", SALE))
                key = f"{made.name} {name}"
                clients[key] = stack.enter_context(made.http(made.token(name)))
                assert clients[key].put("/v1/subscriptions/same", json={"type": SALE}).status_code == 201
            sent(made, teller(made), {"item": "one"}, {"item": "two"})
        for key, http in clients.items():
            positions[key] = read(http, "same", 2)[1]["hgposition"]
        for key, http in clients.items():
            for other, position in positions.items():
                if other == key:
                    continue
                refused(http.post("/v1/subscriptions/same/ack", json={"positions": [position]}), "bad-position")
                refused(http.get("/v1/subscriptions/same/events", params={"after": position}), "bad-position")
                headers = {**STREAM, "last-event-id": position}
                refused(http.get("/v1/subscriptions/same/events", headers=headers), "bad-position")
            assert len(read(http, "same", 2)) == 2, "nothing was acknowledged"


FILTERS = [
    "amount > 100",
    "not (amount <= 100)",
    "amount is not null",
    "amount is null and amount > 100",
    "count = 7",
]


@pytest.mark.parametrize("where", FILTERS)
def test_a_filter_does_not_see_what_its_reader_does_not(north: Alone, where: str) -> None:
    """Two events that differ in what is hidden alone are the same to a filter."""
    name, publisher = person(north, "curious"), teller(north)
    seen = Rule(f"{name}-sees", name, frozenset({Action.SUBSCRIBE}), SALE, attributes=("item",))
    north.commit(AddRule(seen))
    with north.http(north.token(name)) as http, north.http(north.token(name), 1) as other:
        assert http.put("/v1/subscriptions/probe", json={"type": SALE, "where": where}).status_code == 201
        assert other.put("/v1/subscriptions/all", json={"type": SALE}).status_code == 201
        low, high, last = sent(
            north,
            publisher,
            {"item": "a", "amount": 1, "count": 1},
            {"item": "a", "amount": 900, "count": 7},
            {"item": "last"},
        )
        found = read(http, "all", 3)
        views = [one["data"] for one in found if one["id"] in (low, high)]
        assert views == [{"item": "a", "amount": None, "count": None}] * 2
        assert last in [one["id"] for one in found]
        came = {one["id"] for one in other.get("/v1/subscriptions/probe/events").json()["events"]}
        assert (low in came) == (high in came)
        told = http.put("/v1/lookups/probe2", json={"type": SALE, "where": where})
        assert "900" not in told.text


def test_an_owners_own_rule_does_not_look_into_a_closed_group(north: Alone) -> None:
    """It may name what is open; what is closed and what does not exist get the same answer."""
    token = north.token("dora")
    answers = []
    with north.http(token) as http:
        for where in ("who in group insiders", "who in group nosuch-s", "Ties(who)", "Nosu(who)"):
            body = {"id": "probe", "who": "dora", "may": "subscribe", "type": "dora.Own", "where": where}
            told = http.post("/v1/batches", json={"changes": [{"op": "add-rule", "rule": body}]})
            refused(told, "govern-denied")
            names = ("insiders", "nosuch-s", "Ties", "Nosu")
            text = told.text
            for one in names:
                text = text.replace(one, "?")
            answers.append(text)
            assert "chairs" not in told.text
        assert answers[0] == answers[1]
        assert answers[2] == answers[3]
        body = {"id": "fine", "who": "dora", "may": "subscribe", "type": "dora.Own", "where": "who in group public"}
        assert http.post("/v1/batches", json={"changes": [{"op": "add-rule", "rule": body}]}).status_code == 200


# -- after a right is lost ----------------------------------------------------------------------------------------


def by_poll(made: Alone, token: str, ready: Callable[[], None]) -> list[str]:
    with made.http(token) as http:
        ready()
        found: list[str] = []
        while True:
            told = http.get("/v1/subscriptions/mine/events", params={"wait": 1, "after": []})
            if told.status_code != 200:
                refused(told, "connect-denied", "not-authenticated")
                return found
            found += [one["id"] for one in told.json()["events"] if one["id"] not in found]


def by_stream(made: Alone, token: str, ready: Callable[[], None]) -> list[str]:
    found: list[str] = []
    with made.http(token) as http, http.stream("GET", "/v1/subscriptions/mine/events", headers=STREAM) as answer:
        ready()
        try:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    found += [json.loads(line[6:]).get("id", "")]
        except httpx.TransportError:
            pass
    return found


def by_socket(made: Alone, token: str, ready: Callable[[], None]) -> list[str]:
    found: list[str] = []
    with made.socket(token) as socket:
        socket.send(json.dumps({"op": "open", "subscription": "mine", "credit": 100}))
        assert json.loads(socket.recv())["op"] == "opened"
        ready()
        with pytest.raises(ConnectionClosed) as end:
            take(socket, found)
        assert end.value.rcvd is not None
        assert end.value.rcvd.code in (4401, 4403)
    return found


def take(socket: Socket, found: list[str]) -> None:
    while True:
        found += [one["id"] for one in json.loads(socket.recv()).get("events", [])]


WAYS = {"poll": by_poll, "stream": by_stream, "socket": by_socket}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_reading_ends_with_the_right_to_connect(north: Alone, way: str) -> None:
    name, publisher = person(north, "reader", ("subscribe", SALE)), teller(north)
    token, ready = north.token(name), threading.Event()
    with north.http(token) as http:
        assert http.put("/v1/subscriptions/mine", json={"type": SALE}).status_code == 201
    before = sent(north, publisher, {"item": "before"})
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(WAYS[way], north, token, ready.set)
        assert ready.wait(60)
        north.commit(RemoveRule(f"{name}-connects"))
        with north.http(token, 1) as http:
            wait(lambda: http.get("/v1/types").status_code == 403, "the loss")
        after = sent(north, publisher, {"item": "after"}, gateway=1)
        found = reading.result(60)
    assert after[0] not in found
    assert set(found) <= set(before) | {one for one in found if one.startswith("news")}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_reading_stops_with_the_right_to_see_and_brings_nothing_later(north: Alone, way: str) -> None:
    name, publisher = person(north, "reader", ("subscribe", SALE, "item = 'x'")), teller(north)
    token, ready = north.token(name), threading.Event()
    with north.http(token) as http:
        assert http.put("/v1/subscriptions/mine", json={"type": SALE}).status_code == 201
    first = sent(north, publisher, {"item": "x"})
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(WAYS[way], north, token, ready.set)
        assert ready.wait(60)
        north.commit(RemoveRule(f"{name}-0"))
        between = sent(north, publisher, {"item": "x"}, gateway=1)

        north.commit(rule(f"{name}-0", name, "subscribe", SALE, "item = 'x'"))
        last = sent(north, publisher, {"item": "x"})
        with north.http(token, 1) as http:
            assert [one["id"] for one in read(http, "mine", 2)] == [*first, *last]
        north.commit(RemoveRule(f"{name}-connects"))
        found = reading.result(60)
    assert between[0] not in found
    assert found[: len(first)] == first


def test_history_is_not_harvested_after_a_right_is_lost(north: Alone) -> None:
    """From the start, from a version, from a time, by look-up and by a reservation made while one had the right."""
    name, publisher = person(north, "harvest", ("subscribe", SALE, "item = 'secret'")), teller(north)
    secret = sent(north, publisher, {"item": "secret"})
    with north.http(north.token(name)) as http, north.http(north.token(name), 1) as other:
        assert http.put("/v1/subscriptions/had", json={"type": SALE, "from": "start"}).status_code == 201
        assert secret[0] in [one["id"] for one in read(http, "had", 1)]
        assert http.delete("/v1/subscriptions/had").status_code == 204
        version = other.get("/v1/versions").json()["versions"][0]["version"]
        assert other.put("/v1/reservations/kept", json={"type": SALE, "seconds": 60}).status_code == 201
        sent(north, publisher, {"item": "secret"})
        north.commit(RemoveRule(f"{name}-0"))
        sent(north, publisher, {"item": "secret"}, gateway=1)
        begins = ("start", {"version": version}, {"time": "2020-01-01T00:00:00Z"})
        for n, begin in enumerate(begins):
            for one in (http, other):
                id = fresh(f"again{n}")
                assert one.put(f"/v1/subscriptions/{id}", json={"type": SALE, "from": begin}).status_code == 201
                assert one.get(f"/v1/subscriptions/{id}/events", params={"wait": 0.5}).json()["events"] == []
        looked = other.put("/v1/lookups/look", json={"type": SALE})
        assert "secret" not in looked.text
        assert other.put("/v1/subscriptions/kept", json={"type": SALE}).status_code in (200, 201)
        assert other.get("/v1/subscriptions/kept/events", params={"wait": 0.5}).json()["events"] == []


def test_who_leaves_a_group_and_comes_back_has_missed_what_was_between(north: Alone) -> None:
    name, publisher, group = person(north, "member"), teller(north), fresh("club")
    north.commit(DeclareGroup(group), AddMember(group, name), rule(fresh("club-sees"), group, "subscribe", SALE))
    with north.http(north.token(name)) as http:
        assert http.put("/v1/subscriptions/mine", json={"type": SALE, "where": "item = 'club'"}).status_code == 201
        first = sent(north, publisher, {"item": "club"})
        north.commit(RemoveMember(group, name))
        sent(north, publisher, {"item": "club"}, gateway=1)
        north.commit(AddMember(group, name))
        last = sent(north, publisher, {"item": "club"})
        assert [one["id"] for one in read(http, "mine", 2)] == [*first, *last]


# -- clients that do not read -------------------------------------------------------------------------------------


@pytest.fixture
def deaf(north: Alone) -> Iterator[Callable[[str, str], None]]:
    """Opens connections that ask for everything and take nothing."""
    with ExitStack() as stack:

        def open_one(path: str, token: str) -> None:
            connection = stack.enter_context(north.connected())
            connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4_096)
            connection.sendall(head(path, token, f"accept: {wire.EVENT_STREAM}", method="GET"))

        yield open_one


def test_many_who_do_not_read_cost_little_and_keep_nobody_waiting(
    world: Any, north: Alone, deaf: Callable[[str, str], None]
) -> None:
    name, publisher = person(north, "deaf", ("subscribe", SALE)), teller(north)
    token = north.token(name)
    with north.http(token) as http:
        assert http.put("/v1/subscriptions/mine", json={"type": SALE}).status_code == 201
    before = [one.resident for one in north.gateways]
    for _ in range(30):
        deaf("/v1/subscriptions/mine/events", token)
    for n in range(4):
        sent(north, publisher, *({"item": "x" * 20_000} for _ in range(50)), gateway=n % 2)
        world.neighbours[0].served()
    assert all(one.resident - was < MAX_GROWTH for one, was in zip(north.gateways, before, strict=True))
    with north.http(token, 1) as http:
        assert len(read(http, "mine", 200)) >= 200
        assert http.delete("/v1/sessions/current").status_code == 204


def test_a_socket_that_takes_nothing_ends_with_its_session_and_is_let_go_of(north: Alone) -> None:
    name, publisher = person(north, "deaf", ("subscribe", SALE)), teller(north)
    token = north.token(name)
    with north.http(token) as http:
        assert http.put("/v1/subscriptions/mine", json={"type": SALE}).status_code == 201
    before = north.gateway.sockets()
    upgrade = (
        "upgrade: websocket",
        "connection: upgrade",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    frame = json.dumps({"op": "open", "subscription": "mine", "credit": 1_000}).encode()
    with ExitStack() as stack:
        for _ in range(10):
            connection = stack.enter_context(north.connected())
            connection.sendall(head("/v1/socket", token, *upgrade, method="GET"))
            assert connection.recv(1_024).startswith(b"HTTP/1.1 101 ")
            connection.sendall(bytes([0x81, 0x80 | len(frame)]) + bytes(4) + frame)
        deaf = north.gateway.sockets() - before
        assert len(deaf) >= 10
        for n in range(4):
            sent(north, publisher, *({"item": "x" * 20_000} for _ in range(50)), gateway=n % 2)
        with north.http(token, 1) as http:
            assert http.delete("/v1/sessions/current").status_code == 204
        wait(lambda: not deaf & north.gateway.sockets(), "the end of what is not read")


def test_a_subscription_of_another_is_neither_read_ended_nor_filled(north: Alone) -> None:
    """By its name in the ledger, in a path, in a header, in a frame; and a reservation of the same name is not it."""
    owner, thief = person(north, "owner", ("subscribe", SALE)), person(north, "thief", ("subscribe", SALE))
    with north.http(north.token(owner)) as http, north.http(north.token(thief), 1) as other:
        assert http.put("/v1/subscriptions/mine", json={"type": SALE}).status_code == 201
        inner = ledger_id(owner, "mine")
        names = {inner, f"{owner}/mine", f"{owner}:mine", f"..%2F{owner}%2Fmine", f"{owner}%2Fmine"}
        for name in sorted(names):
            for method in ("GET", "DELETE"):
                told = other.request(method, f"/v1/subscriptions/{name}")
                refused(told, "not-found", "bad-definition", "bad-request")
        for headers in ({"x-principal": owner}, {"x-http-method-override": "DELETE"}, {"x-original-url": "/v1/x"}):
            assert other.get("/v1/subscriptions", headers=headers).json()["subscriptions"] == []
        marker = sent(north, teller(north), {"item": "mine"})
        assert marker[0] in [one["id"] for one in read(http, "mine", 1)]
        assert http.get("/v1/subscriptions/mine").status_code == 200


def test_publish_is_not_used_to_learn_whether_anyone_listens(north: Alone) -> None:
    """Without `quench`, what is said of an advertisement is the same with and without subscribers."""
    name, reader = person(north, "asker", ("publish", SALE)), person(north, "reader", ("subscribe", SALE))
    with north.http(north.token(name)) as http, north.http(north.token(reader), 1) as reading:
        first = http.put(f"/v1/advertisements/{SALE}").json()
        assert reading.put("/v1/subscriptions/mine", json={"type": SALE}).status_code == 201
        second = http.put(f"/v1/advertisements/{SALE}").json()
        assert first == second == {"type": SALE}
        answers = [publish(http, event(requires=f"$nobody{n} = 1")).json() for n in range(2)]
        assert all(set(one) == {"id", "status"} for one in answers)
