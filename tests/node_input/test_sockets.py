"""WebSockets that are spoken to badly: each frame is answered, the connection ends when it must, and nothing leaks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from harness.alone import Alone, Socket, answer_of, head, wait
from headgate.commands.subscriptions import ledger_id
from headgate.gateway.delivery.push import MAX_BAD_FRAMES, MAX_CREDIT, MAX_OUTBOX, MAX_WATCHED
from headgate.model.changes import Subscribe, Unsubscribe
from headgate.model.rights import Subscription
from headgate.node.config import LimitSettings, PublishSettings
from headgate.protocol import messages as wire

SALE = "shop.Sale"
SECONDS = 30.0
"""How long an answer may take."""
MAX_GROWTH = 96 * 2**20
"""Bytes by which a gateway may grow over all that is done to it here."""


@pytest.fixture(scope="module", autouse=True)
def memory_stays_bounded(shop: Alone) -> Iterator[None]:
    before = shop.gateway.resident
    yield
    assert shop.gateway.resident - before < MAX_GROWTH


@pytest.fixture
def socket(shop: Alone, anna: str) -> Iterator[Socket]:
    with shop.socket(anna) as opened:
        yield opened


def said(socket: Socket) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv())
    return found


def ask(socket: Socket, frame: Any) -> dict[str, Any]:
    """Send a frame and hear the answer."""
    socket.send(frame if isinstance(frame, (str, bytes)) else json.dumps(frame))
    return said(socket)


def closed(socket: Socket) -> int | None:
    """The code with which the gateway closes, whatever it says before."""
    try:
        while True:
            socket.recv()
    except ConnectionClosed as error:
        return error.rcvd.code if error.rcvd is not None else None


MALFORMED = {
    "nothing": "",
    "a word": "open",
    "cut off": '{"op": "open"',
    "no op": "{}",
    "another op": '{"op": "shutdown"}',
    "an op of the gateway": '{"op": "acked", "subscription": "a", "count": 3}',
    "an op of another kind": '{"op": 1}',
    "a list": '[{"op": "open", "subscription": "a"}]',
    "no subscription": '{"op": "open"}',
    "another member": '{"op": "open", "subscription": "a", "principal": "bob"}',
    "a subscription of another kind": '{"op": "open", "subscription": ["a"]}',
    "no credit": '{"op": "open", "subscription": "a", "credit": 0}',
    "negative credit": '{"op": "credit", "subscription": "a", "credit": -5}',
    "too much credit": f'{{"op": "credit", "subscription": "a", "credit": {MAX_CREDIT + 1}}}',
    "endless credit": '{"op": "open", "subscription": "a", "credit": 1e999}',
    "credit past all numbers": '{"op": "open", "subscription": "a", "credit": %s}' % ("9" * 5_000),
    "half a credit": '{"op": "open", "subscription": "a", "credit": 0.5}',
    "no positions": '{"op": "ack", "subscription": "a", "positions": []}',
    "a short position": '{"op": "ack", "subscription": "a", "positions": ["x"]}',
    "too many positions": json.dumps({"op": "ack", "subscription": "a", "positions": ["x" * 22] * 10_001}),
    "too many types": json.dumps({"op": "watch", "types": ["a.T"] * (MAX_WATCHED + 1)}),
    "nested too deep": '{"op": ' + "[" * 100_000,
    "a lone surrogate": '{"op": "open", "subscription": "\\ud800"}',
    "bytes that are no text": b"\xff\xfe\x00",
    "bytes": bytes(range(256)),
}


@pytest.mark.parametrize("how", MALFORMED)
def test_a_malformed_frame_is_answered_and_the_connection_goes_on(socket: Socket, how: str) -> None:
    told = ask(socket, MALFORMED[how])
    assert (told["op"], told["code"], told["status"]) == ("problem", "bad-request", 400)
    assert len(json.dumps(told)) < 1_000
    assert ask(socket, {"op": "open", "subscription": "nobody"})["code"] == "not-found"


def test_after_too_many_malformed_frames_the_connection_ends(socket: Socket) -> None:
    for _ in range(MAX_BAD_FRAMES):
        socket.send("lamp")
    assert closed(socket) == 4400


def test_a_frame_of_bytes_is_read_as_text(socket: Socket) -> None:
    assert ask(socket, b'{"op": "open", "subscription": "nobody"}')["code"] == "not-found"


def test_a_frame_past_the_limit_ends_the_connection(shop: Alone, anna: str) -> None:
    limit = PublishSettings().max_body
    with shop.socket(anna) as whole:
        with suppress(ConnectionClosed):
            whole.send("x" * (limit + 1))
        assert closed(whole) == 1009
    with shop.socket(anna) as pieces:  # in fragments, without an end

        def fragments() -> Iterator[str]:
            for _ in range(limit // 65_536 + 2):
                yield "x" * 65_536

        with suppress(ConnectionClosed):
            pieces.send(fragments())
        assert closed(pieces) == 1009


KEY = "dGhlIHNhbXBsZSBub25jZQ=="
NOISE: dict[str, bytes] = {
    "noise": b"\xff" * 64,
    "a frame without a mask": b"\x81\x05hello",
    "a reserved bit": b"\xf1\x80\x00\x00\x00\x00",
    "an unknown opcode": b"\x8f\x80\x00\x00\x00\x00",
    "a long ping": b"\x89\xfe\x00\x7e" + bytes(4 + 126),
    "a frame that begins with its end": b"\x80\x80\x00\x00\x00\x00",
    "text that is not utf-8": b"\x81\x82\x00\x00\x00\x00\xff\xff",
    "a frame of all the memory there is": b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",
}


@pytest.mark.parametrize("how", NOISE)
def test_what_is_no_websocket_ends_the_connection(shop: Alone, anna: str, how: str) -> None:
    upgrade = ("upgrade: websocket", "connection: upgrade", "sec-websocket-version: 13", f"sec-websocket-key: {KEY}")
    with shop.connected() as connection:
        connection.sendall(head("/v1/socket", anna, *upgrade, method="GET"))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 101 ")
        connection.sendall(NOISE[how])
        answer = answer_of(connection)
    assert answer[:1] == b"\x88", "a frame that closes"
    assert int.from_bytes(answer[2:4]) in (1002, 1007, 1009)


# -- other people's things ----------------------------------------------------------------------------------------


def publish(shop: Alone, token: str, *ids: str) -> None:
    events = [{"specversion": "1.0", "id": id, "source": "s", "type": SALE, "data": {"item": "lamp"}} for id in ids]
    with shop.http(token) as http:
        answer = http.post("/v1/events", content=json.dumps(events), headers={"content-type": wire.BATCH_JSON})
        assert {one["status"] for one in answer.json()["results"]} == {"accepted"}


@pytest.fixture(scope="module")
def positions(shop: Alone, anna: str) -> Iterator[dict[str, list[str]]]:
    """Deliveries of the same events to anna and to bob, under the same name: their positions."""
    tokens = {"anna": anna, "bob": shop.token("bob")}
    names = [("anna", "same"), ("anna", "second"), ("bob", "same")]
    for who, id in names:
        with shop.http(tokens[who]) as http:
            assert http.put(f"/v1/subscriptions/{id}", json={"type": SALE}).status_code == 201
    publish(shop, tokens["bob"], "seen 1", "seen 2")
    found: dict[str, list[str]] = {}
    for who, id in names:
        with shop.http(tokens[who]) as http:

            def read(http: Any = http, who: str = who, id: str = id) -> bool:
                events = http.get(f"/v1/subscriptions/{id}/events?wait=1").json()["events"]
                found[f"{who} {id}"] = [one["hgposition"] for one in events]
                return len(events) == 2

            wait(read, "two deliveries")
    yield found
    for who, id in names:
        with shop.http(tokens[who]) as http:
            assert http.delete(f"/v1/subscriptions/{id}").status_code == 204


def test_positions_are_good_for_their_own_subscription_alone(
    shop: Alone, socket: Socket, anna: str, positions: dict[str, list[str]]
) -> None:
    mine = positions["anna same"][1]
    forged = [mine[:-1] + ("A" if mine[-1] != "A" else "B"), "A" * 22, "_" * 22, "\u00e9" * 22]
    for other in (positions["bob same"][1], positions["anna second"][1], *forged):
        told = ask(socket, {"op": "ack", "subscription": "same", "positions": [other]})
        assert (told["op"], told["code"], told["subscription"]) == ("problem", "bad-position", "same"), told
        assert not {"bob", "lamp"} & set(json.dumps(told).split('"'))
        with shop.http(anna) as http:
            answers = [
                http.post("/v1/subscriptions/same/ack", json={"positions": [other]}),
                http.get("/v1/subscriptions/same/events", params={"after": other}),
            ]
            assert [one.status_code for one in answers] == [400, 400]
            assert http.get("/v1/subscriptions/same/events").json()["events"][0]["id"] == "seen 1"
    told = ask(socket, {"op": "ack", "subscription": "same", "positions": [positions["anna same"][0], "A" * 22]})
    assert told["code"] == "bad-position"
    with shop.http(anna) as http:  # none of a bad acknowledgement counts
        assert len(http.get("/v1/subscriptions/same/events").json()["events"]) == 2


OTHERS = ["bob/same", "bob:same", "../bob/same", "same\x00", "anna/same", "%2e%2e", "bob%2Fsame"]


@pytest.mark.parametrize("name", OTHERS)
def test_nobody_opens_what_is_anothers(socket: Socket, positions: dict[str, list[str]], name: str) -> None:
    for frame in (
        {"op": "open"},
        {"op": "credit", "credit": 5},
        {"op": "ack", "positions": [positions["bob same"][0]]},
        {"op": "close"},
    ):
        told = ask(socket, {**frame, "subscription": name})
        assert told["op"] == "problem"
        assert told["code"] in ("not-found", "bad-definition")


def test_credit_past_the_most_stays_at_the_most(socket: Socket, positions: dict[str, list[str]]) -> None:
    assert ask(socket, {"op": "open", "subscription": "same", "credit": MAX_CREDIT})["op"] == "opened"
    for _ in range(5):
        socket.send(json.dumps({"op": "credit", "subscription": "same", "credit": MAX_CREDIT}))
    told = [said(socket)]
    assert told[0]["op"] == "events"
    assert ask(socket, {"op": "open", "subscription": "same"})["code"] == "already-exists"


def test_watching_what_one_may_not_know_tells_nothing(socket: Socket) -> None:
    socket.send(json.dumps({"op": "watch", "types": [SALE, "dora.Own", "shop.Ghost", "a\x00b", *["x.Y"] * 900]}))
    assert ask(socket, {"op": "open", "subscription": "nobody"})["code"] == "not-found"


# -- many ---------------------------------------------------------------------------------------------------------


def test_a_thousand_subscriptions_are_opened_on_one_connection_and_no_more(shop: Alone) -> None:
    most = LimitSettings().subscriptions_per_principal
    names = [f"s{n}" for n in range(most)]
    ids = [ledger_id("bob", name) for name in names]
    shop.commit(*(Subscribe(Subscription(id, "bob", SALE)) for id in ids))
    token = shop.token("bob")
    try:
        with shop.http(token) as http, shop.socket(token) as socket:
            wait(lambda: http.get("/v1/subscriptions/s0").status_code == 200, "the subscriptions")
            told = http.put("/v1/subscriptions/more", json={"type": SALE})
            assert (told.status_code, told.json()["code"]) == (429, "too-many")
            sender = threading.Thread(
                target=lambda: [socket.send(json.dumps({"op": "open", "subscription": name})) for name in names]
            )
            sender.start()
            answers = [said(socket) for _ in names]
            sender.join()
            assert {one["op"] for one in answers} == {"opened"}
            assert {one["subscription"] for one in answers} == set(names)
            publish(shop, token, "for all of them")
            first = [said(socket) for _ in names]
            assert {one["subscription"] for one in first} == set(names)
    finally:
        shop.commit(*(Unsubscribe(id) for id in ids))


def test_one_who_never_listens_is_not_waited_for_without_end(shop: Alone, anna: str) -> None:
    before = shop.gateway.resident
    frames = MAX_OUTBOX * 40
    with shop.socket(anna) as deaf, shop.socket(anna) as other:

        def talk() -> None:
            for _ in range(frames):
                deaf.send(json.dumps({"op": "open", "subscription": "x" * 90}))

        talker = threading.Thread(target=talk, daemon=True)
        talker.start()
        for _ in range(20):
            assert ask(other, {"op": "open", "subscription": "nobody"})["code"] == "not-found"
        assert shop.gateway.resident - before < MAX_GROWTH
        for _ in range(frames):  # nothing that was asked is lost
            assert said(deaf)["code"] == "not-found"
        talker.join(SECONDS)
        assert not talker.is_alive()


def test_a_principal_has_no_more_connections_than_it_may(shop: Alone, anna: str) -> None:
    most = LimitSettings().connections_per_principal
    with ExitStack() as opened:
        for _ in range(most):
            opened.enter_context(shop.socket(anna))
        with pytest.raises(InvalidStatus) as refusal, shop.socket(anna):
            pass
        assert refusal.value.response.status_code == 429
        assert json.loads(refusal.value.response.body or b"")["code"] == "too-many"
        with shop.http(shop.token("bob")) as http:  # others are not concerned
            assert http.get("/v1/types").status_code == 200
    wait(lambda: admitted(shop, anna), "room for another connection")


def admitted(shop: Alone, token: str) -> bool:
    try:
        with shop.socket(token) as socket:
            return ask(socket, {"op": "open", "subscription": "nobody"})["code"] == "not-found"
    except InvalidStatus:
        return False
