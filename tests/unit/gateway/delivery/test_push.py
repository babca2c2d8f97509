"""Pushing, over a real gateway: credit, acknowledgements, refusals, and how connections end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from headgate.model.changes import AddRule, RemovePrincipal, Unsubscribe
from headgate.model.rights import Action, Effect, Rule
from strategies.serving import SALE, Served, Socket, eventually, serving


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node") / "shop") as made:
        yield made


def closed_with(socket: Socket) -> int:
    """The code that the gateway closes with, whatever it says before."""
    while True:
        try:
            socket.ws.recv(20)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 0


def test_credit_bounds_what_is_pushed_and_what_is_not_acknowledged_comes_again(shop: Served) -> None:
    shop.subscribe("anna", "credit")
    socket = shop.socket("anna")
    assert socket.ws.subprotocol == "headgate.v1"
    socket.open("credit", credit=2)
    shop.publish(1, 2, 3, 4, 5)
    shop.decide()
    assert socket.amounts(2) == [1, 2]
    assert socket.quiet()
    socket.say("ack", subscription="credit", positions=[socket.last[-1]])
    assert socket.hear("acked") == {"op": "acked", "subscription": "credit", "count": 1}
    socket.say("credit", subscription="credit", credit=2)
    assert socket.amounts(2) == [3, 4]
    socket.close()
    again = shop.socket("anna")
    again.open("credit")
    assert again.amounts(3) == [3, 4, 5]
    second = shop.socket("anna")
    second.open("credit")
    assert second.amounts(3) == [3, 4, 5]
    shop.publish(6)
    shop.decide()
    assert again.amounts(1) == second.amounts(1) == [6]
    again.close()
    second.close()


def test_one_without_credit_does_not_hold_up_another(shop: Served) -> None:
    shop.subscribe("anna", "slow")
    shop.subscribe("anna", "quick")
    socket = shop.socket("anna")
    socket.open("slow", credit=1)
    socket.open("quick")
    for amount in (1, 2, 3):
        shop.publish(amount)
        shop.decide()
    came: dict[str, int] = {}
    while sum(came.values()) < 4:
        frame = socket.hear("events")
        came[frame["subscription"]] = came.get(frame["subscription"], 0) + len(frame["events"])
    assert came == {"slow": 1, "quick": 3}
    assert socket.quiet()
    socket.say("close", subscription="quick")
    shop.publish(4)
    shop.decide()
    socket.say("credit", subscription="slow", credit=10)
    assert socket.amounts(3) == [2, 3, 4]
    socket.close()


def test_history_comes_before_what_is_new(shop: Served) -> None:
    shop.publish(71, 72)
    shop.decide()
    shop.subscribe("bob", "all", **{"from": "start"})
    socket = shop.socket("bob")
    socket.open("all", credit=1_000)
    shop.publish(73)
    shop.decide()
    amounts: list[float] = []
    while 73 not in amounts:
        amounts += socket.amounts(1)
    assert amounts[-3:] == [71, 72, 73]
    socket.close()


def test_what_is_not_ones_own_is_not_there(shop: Served) -> None:
    shop.subscribe("anna", "mine")
    socket = shop.socket("bob")
    told = []
    for name in ("mine", "nobody's"):
        for op, more in (("open", {}), ("ack", {"positions": ["x" * 22]}), ("close", {}), ("credit", {"credit": 1})):
            socket.say(op, subscription=name, **more)
            frame = socket.hear("problem")
            assert frame.pop("subscription") == name
            told.append((frame["code"], frame["detail"].replace(name, "")))
    assert told[:4] == told[4:]
    assert {code for code, _ in told} == {"not-found"}
    socket.close()


def test_a_position_of_another_subscription_is_refused(shop: Served) -> None:
    for name in ("one", "other"):
        shop.subscribe("anna", name)
    socket = shop.socket("anna")
    socket.open("one")
    shop.publish(1)
    shop.decide()
    socket.amounts(1)
    socket.say("ack", subscription="other", positions=socket.last)
    assert socket.hear("problem")["code"] == "bad-position"
    socket.close()


def test_malformed_frames_are_refused_and_then_end_the_connection(shop: Served) -> None:
    socket = shop.socket("anna")
    bad = ["", "{", "[]", '{"op": "dance"}', '{"op": "open"}', '{"op": "open", "subscription": "a", "more": 1}']
    bad += [
        '{"op": "credit", "subscription": "a", "credit": -1}',
        '{"op": "ack", "subscription": "a", "positions": []}',
    ]
    for frame in bad:
        socket.ws.send(frame)
        assert socket.hear("problem")["code"] == "bad-request"
    socket.ws.send(b"\xff\xfe")
    socket.ws.send("[" * 100_000)
    assert closed_with(socket) == 4400


def test_publishing_and_watching(shop: Served) -> None:
    shop.subscribe("anna", "watched")
    socket = shop.socket("till")
    event = {"specversion": "1.0", "id": "e1", "source": "here", "type": SALE, "data": {"item": "tea", "amount": 9}}
    socket.say("publish", ref="r1", events=[event, {**event, "id": "e2", "data": {"colour": "red"}}])
    answer = socket.hear("published")
    assert answer["ref"] == "r1"
    assert [one["status"] for one in answer["results"]] == ["accepted", "refused"]
    socket.say("publish", ref=2, events=[event])
    assert socket.hear("published")["results"] == [{"id": "e1", "status": "duplicate"}]
    socket.say("publish", ref=3, events=[{"id": "x"}])
    refused = socket.hear("problem")
    assert (refused["ref"], refused["code"]) == (3, "bad-request")
    socket.say("watch", types=[SALE])
    assert socket.hear("quench") == {"op": "quench", "type": SALE, "wanted": True}
    socket.close()


def test_a_subscription_that_ends_says_so_after_the_last_of_it(shop: Served) -> None:
    shop.subscribe("anna", "ending")
    socket = shop.socket("anna")
    socket.open("ending")
    shop.publish(1)
    shop.decide()
    assert socket.amounts(1) == [1]
    assert shop.ask("anna", "DELETE", "/v1/subscriptions/ending").status_code == 204
    shop.decide()
    assert socket.hear("closed") == {"op": "closed", "subscription": "ending", "code": "subscription-ended"}
    socket.close()


def test_it_says_so_too_when_the_last_of_it_is_decided_after_its_end(shop: Served) -> None:
    shop.subscribe("anna", "lingering")
    shop.decide()
    socket = shop.socket("anna")
    socket.open("lingering")
    shop.publish(1)
    assert shop.ask("anna", "DELETE", "/v1/subscriptions/lingering").status_code == 204
    eventually(lambda: any(feed.ending for held in shop.gateway.readers._feeds.copy().values() for feed in held))
    shop.decide()
    assert socket.amounts(1) == [1]
    assert socket.hear("closed")["subscription"] == "lingering"
    socket.close()


def test_a_gap_is_told(tmp_path: Path) -> None:
    with serving(tmp_path / "shop") as shop:
        shop.subscribe("anna", "late")
        for amount in (1, 2, 3):
            shop.publish(amount)
        shop.decide()
        shop.decider.store.trim("main", 2)
        eventually(lambda: shop.gateway.readers.tail.reached.streams.get("main") == 3)
        shop.gateway.readers.tail._kept.clear()
        socket = shop.socket("anna")
        socket.open("late")
        assert "retention" in socket.hear("gap")["detail"]
        assert socket.amounts(1) == [3]
        socket.close()


def test_a_session_that_ends_closes_the_connection(shop: Served) -> None:
    token = shop.token("anna")
    socket, other = shop.socket("anna", token), shop.socket("anna")
    headers = {"authorization": f"Bearer {token}"}
    assert shop.http.delete("/v1/sessions/current", headers=headers).status_code == 204
    assert closed_with(socket) == 4401
    other.say("credit", subscription="x", credit=1)
    other.hear("problem")  # it lives on
    other.close()
    short = shop.socket("anna", shop.token("anna", seconds=1))
    assert closed_with(short) == 4401


def test_losing_the_right_to_connect_closes_the_connection(tmp_path: Path) -> None:
    with serving(tmp_path / "shop") as shop:
        denied, gone = shop.socket("anna"), shop.socket("bob")
        no = Rule("no", "anna", frozenset({Action.CONNECT}), effect=Effect.FORBID)
        shop.commit(AddRule(no, True), RemovePrincipal("bob"))
        assert closed_with(denied) == 4403
        assert closed_with(gone) == 4401
        for who, status in (("anna", 403), ("bob", 401)):
            with pytest.raises(InvalidStatus) as refused:
                shop.socket(who)
            assert refused.value.response.status_code == status
            assert json.loads(refused.value.response.body)["code"]


def test_no_token_and_too_many_connections_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "shop", limits__connections_per_principal="2") as shop:
        with pytest.raises(InvalidStatus) as refused:
            shop.socket("anna", "nonsense")
        assert refused.value.response.status_code == 401
        first, second = shop.socket("anna"), shop.socket("anna")
        with pytest.raises(InvalidStatus) as refused:
            shop.socket("anna")
        assert refused.value.response.status_code == 429
        shop.socket("bob").close()
        first.close()

        def room() -> bool:
            try:
                shop.socket("anna").close()
            except InvalidStatus:
                return False
            return True

        eventually(room)
        second.close()


def test_a_temporary_subscription_ends_with_its_reader(shop: Served) -> None:
    shop.subscribe("anna", "brief", temporary=True)
    for _ in range(2):
        socket = shop.socket("anna")
        socket.open("brief")
        socket.close()  # it may come back at once
    eventually(lambda: shop.ask("anna", "GET", "/v1/subscriptions/brief").status_code == 404)
    state = shop.domain.ledger.state()
    assert not any("brief" in id for id in state.subscriptions)


def test_a_subscription_made_again_begins_anew(shop: Served) -> None:
    made = shop.subscribe("anna", "phoenix")
    socket = shop.socket("anna")
    socket.open("phoenix")
    shop.publish(1)
    shop.decide()
    socket.amounts(1)
    old = socket.last
    shop.commit(Unsubscribe("anna/phoenix"))
    shop.decide()
    socket.hear("closed")
    eventually(lambda: shop.ask("anna", "GET", "/v1/subscriptions/phoenix").status_code == 404)
    assert shop.subscribe("anna", "phoenix")["version"] > made["version"]
    socket.open("phoenix")
    shop.publish(2)
    shop.decide()
    assert socket.amounts(1) == [2]
    socket.say("ack", subscription="phoenix", positions=old)
    assert socket.hear("problem")["code"] == "bad-position"
    socket.close()
