"""Reading with plain requests: long-poll, server-sent events, acknowledging."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from headgate.pipeline import deliveries as store
from strategies.serving import PATIENCE, Served, eventually, serving


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node") / "shop") as made:
        yield made


def poll(shop: Served, id: str, who: str = "anna", **query: Any) -> dict[str, Any]:
    found = shop.ask(who, "GET", f"/v1/subscriptions/{id}/events", params=query)
    assert found.status_code == 200, found.text
    answer: dict[str, Any] = found.json()
    return answer


def amounts(answer: dict[str, Any]) -> list[float]:
    return [one["data"]["amount"] for one in answer["events"]]


def test_a_poll_gives_the_same_again_until_it_is_acknowledged(shop: Served) -> None:
    shop.subscribe("anna", "polled")
    assert poll(shop, "polled") == {"events": []}
    shop.publish(1, 2, 3)
    shop.decide()
    first = poll(shop, "polled", wait=PATIENCE, limit=2)
    assert amounts(first) == amounts(poll(shop, "polled", limit=2)) == [1, 2]
    position = first["events"][0]["hgposition"]
    assert amounts(poll(shop, "polled", after=position)) == [2, 3]
    assert amounts(poll(shop, "polled")) == [1, 2, 3]
    answer = shop.ask("anna", "POST", "/v1/subscriptions/polled/ack", {"positions": [position]})
    assert answer.json() == {"acknowledged": 1}
    assert amounts(poll(shop, "polled")) == [2, 3]


def test_a_poll_waits_for_the_first_delivery(shop: Served) -> None:
    shop.subscribe("anna", "waiting")
    came: list[Any] = []
    waiting = threading.Thread(target=lambda: came.append(poll(shop, "waiting", wait=PATIENCE)))
    waiting.start()
    eventually(lambda: bool(shop.gateway.readers.tail.listeners()))
    shop.publish(4)
    shop.decide()
    waiting.join(PATIENCE)
    assert [amounts(one) for one in came] == [[4]]
    eventually(lambda: not shop.gateway.readers.tail.listeners())


def test_a_poll_that_does_not_wait_still_looks_through_all_of_history(
    shop: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next poll would begin anew: one that gave up after a slice would never come further."""
    monkeypatch.setattr(store, "MAX_SCAN", 1)
    for amount in (*[5] * 10, 901, *[5] * 10):
        shop.publish(amount)  # each an append of its own
        shop.decide()
    shop.subscribe("anna", "sparse", where="amount = 901", **{"from": "start"})
    shop.decide()
    eventually(lambda: amounts(poll(shop, "sparse")) == [901])


def test_nothing_is_read_for_a_client_that_has_gone(shop: Served) -> None:
    shop.subscribe("anna", "gone")
    with pytest.raises(httpx.ReadTimeout):
        shop.ask("anna", "GET", "/v1/subscriptions/gone/events", params={"wait": 30}, timeout=0.3)
    eventually(lambda: not shop.gateway.readers.tail.listeners())
    eventually(lambda: not shop.gateway.readers._connections)


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": "many"}, {"wait": -1}, {"wait": "nan"}, {"after": "x" * 22}])
def test_bad_queries_are_refused(shop: Served, query: dict[str, Any]) -> None:
    if shop.ask("anna", "GET", "/v1/subscriptions/queried").status_code == 404:
        shop.subscribe("anna", "queried")
    found = shop.ask("anna", "GET", "/v1/subscriptions/queried/events", params=query)
    assert found.status_code == 400
    assert found.json()["code"] in {"bad-request", "bad-position"}


def test_what_is_anothers_is_not_there(shop: Served) -> None:
    shop.subscribe("anna", "hers")
    for path, method, body in (("events", "GET", None), ("ack", "POST", {"positions": ["x" * 22]})):
        answers = [shop.ask("bob", method, f"/v1/subscriptions/{id}/{path}", body) for id in ("hers", "none")]
        assert {one.status_code for one in answers} == {404}
        assert answers[0].text.replace("hers", "none") == answers[1].text


def streamed(shop: Served, id: str, count: int, **headers: str) -> list[dict[str, str]]:
    """The first so many server-sent events, as fields."""
    found: list[dict[str, str]] = []
    asked = {"authorization": f"Bearer {shop.token('anna')}", "accept": "text/event-stream", **headers}
    with shop.http.stream("GET", f"/v1/subscriptions/{id}/events", headers=asked) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        one: dict[str, str] = {}
        for line in response.iter_lines():
            if line.startswith(":"):
                continue
            if not line and one:
                found.append(one)
                one = {}
                if len(found) == count:
                    break
            elif line:
                name, _, value = line.partition(": ")
                one[name] = value
    return found


def test_server_sent_events_resume_after_their_id(shop: Served) -> None:
    shop.subscribe("anna", "streamed")
    shop.publish(1, 2)
    shop.decide()
    first = streamed(shop, "streamed", 2)
    events = [json.loads(one["data"]) for one in first]
    assert [one["data"]["amount"] for one in events] == [1, 2]
    assert [one["hgposition"] for one in events] == [one["id"] for one in first]
    (second,) = streamed(shop, "streamed", 1, **{"last-event-id": first[0]["id"]})
    assert json.loads(second["data"])["data"]["amount"] == 2
    eventually(lambda: not shop.gateway.readers.tail.listeners())


def test_a_stream_of_events_ends_with_its_subscription_and_its_session(shop: Served) -> None:
    shop.subscribe("anna", "short")
    came: list[Any] = []
    reading = threading.Thread(target=lambda: came.extend(streamed(shop, "short", 1)))
    reading.start()
    eventually(lambda: bool(shop.gateway.readers.tail.listeners()))
    shop.ask("anna", "DELETE", "/v1/subscriptions/short")
    shop.decide()
    reading.join(PATIENCE)
    assert came == [{"event": "closed", "data": '{"code":"subscription-ended"}'}]
    shop.subscribe("anna", "session")
    token = shop.token("anna", seconds=2)
    headers = {"authorization": f"Bearer {token}", "accept": "text/event-stream"}
    with shop.http.stream("GET", "/v1/subscriptions/session/events", headers=headers) as response:
        assert [line for line in response.iter_lines() if line] == [": open"]  # and then it is over


def test_a_gap_is_told_and_passed(tmp_path: Path) -> None:
    with serving(tmp_path / "shop") as shop:
        shop.subscribe("anna", "late")
        for amount in (1, 2, 3):
            shop.publish(amount)
        shop.decide()
        eventually(lambda: shop.gateway.readers.tail.reached.streams.get("main") == 3)
        shop.decider.store.trim("main", 2)
        shop.gateway.readers.tail._kept.clear()
        found = poll(shop, "late", wait=1)
        assert amounts(found) == [3]
        assert "retention" in found["gap"]
        assert "gap" not in poll(shop, "late", wait=1)


def test_a_gateway_that_closes_ends_what_is_open_and_takes_no_more(tmp_path: Path) -> None:
    with serving(tmp_path / "shop") as shop:
        shop.subscribe("anna", "s")
        socket = shop.socket("anna")
        headers = {"authorization": f"Bearer {shop.token('anna')}", "accept": "text/event-stream"}
        with shop.http.stream("GET", "/v1/subscriptions/s/events", headers=headers) as response:
            lines = response.iter_lines()
            assert next(lines) == ": open"
            shop.shut()
            assert [line for line in lines if line] == []
        with pytest.raises(ConnectionClosed) as closed:
            socket.ws.recv(PATIENCE)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        assert shop.ask("anna", "GET", "/v1/subscriptions/s/events").status_code == 503
