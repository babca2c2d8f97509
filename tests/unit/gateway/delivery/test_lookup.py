"""Looking up with registering, and reservations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.commands.delivery import lookup, reservations
from headgate.model.changes import AddRule, DeclareType
from headgate.model.rights import Action, Effect, Rule
from headgate.model.types import EventType
from headgate.model.values import Kind, micros
from headgate.pipeline.log.retention import Limit, Limits, apply, look, plan
from strategies.serving import PATIENCE, PRICE, SALE, Served, eventually, serving


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "shop", subscribe__max_reservation="100s") as made:
        yield made


def look_up(shop: Served, id: str, who: str = "anna", **body: Any) -> tuple[int, dict[str, Any]]:
    """Look up while the pipeline runs beside it."""
    found: list[Any] = []
    asking = threading.Thread(
        target=lambda: found.append(shop.ask(who, "PUT", f"/v1/lookups/{id}", {"type": PRICE, **body}))
    )
    asking.start()
    while asking.is_alive():
        shop.decide()
        asking.join(0.1)
    return found[0].status_code, found[0].json()


def prices(answer: dict[str, Any]) -> list[tuple[str | None, float]]:
    return sorted((one["data"]["item"] or "", one["data"]["amount"]) for one in answer["entries"])


def price(shop: Served, item: str, *amounts: float) -> None:
    shop.publish(*amounts, type=PRICE, item=item)


def test_the_newest_of_each_key_and_then_every_change(shop: Served) -> None:
    price(shop, "tea", 1, 2)
    price(shop, "milk", 3)
    shop.decide()
    price(shop, "tea", 4)
    status, answer = look_up(shop, "prices")
    assert (status, prices(answer), answer["complete"]) == (201, [("milk", 3), ("tea", 4)], True)
    price(shop, "tea", 5)
    price(shop, "salt", 6)
    shop.decide()
    found = shop.ask("anna", "GET", "/v1/subscriptions/prices/events", params={"wait": PATIENCE}).json()
    assert [one["data"]["amount"] for one in found["events"]] == [5, 6]
    status, answer = look_up(shop, "prices")
    assert (status, prices(answer)) == (200, [("milk", 3), ("salt", 6), ("tea", 5)])
    assert len([s for s in shop.domain.ledger.state().subscriptions if "prices" in s]) == 1
    status, answer = look_up(shop, "some", where="amount > 4")
    assert prices(answer) == [("salt", 6), ("tea", 5)]


def test_entries_whose_key_is_hidden_are_all_kept(shop: Served) -> None:
    hidden = Rule("hide", "bob", frozenset({Action.SUBSCRIBE}), PRICE, attributes=("item",), effect=Effect.FORBID)
    shop.commit(AddRule(hidden, True))
    price(shop, "tea", 1, 2)
    _, answer = look_up(shop, "prices", "bob")
    assert prices(answer) == [("", 1), ("", 2)]


def test_a_type_without_a_key_and_another_content_are_refused(shop: Served) -> None:
    for body, code in (({"type": SALE}, "bad-definition"), ({"type": "no.Such"}, "unknown-type")):
        assert shop.ask("anna", "PUT", "/v1/lookups/x", body).json()["code"] == code
    look_up(shop, "prices")
    status, answer = look_up(shop, "prices", where="amount > 4")
    assert (status, answer["code"]) == (409, "already-exists")


def test_a_look_up_that_is_too_large_leaves_nothing_behind(shop: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MAX_LOOKUP_ENTRIES", 2)
    for item in ("tea", "milk", "salt"):
        price(shop, item, 1)
    status, answer = look_up(shop, "prices")
    assert (status, answer["code"]) == (413, "lookup-too-large")
    assert shop.domain.ledger.state().subscriptions == {}
    assert prices(look_up(shop, "prices", where="item != 'tea'")[1]) == [("milk", 1), ("salt", 1)]


def test_what_retention_took_is_not_complete(shop: Served) -> None:
    price(shop, "tea", 1)
    price(shop, "milk", 2)
    shop.decide()
    shop.domain.log.trim("main", 1)
    _, answer = look_up(shop, "prices")
    assert (prices(answer), answer["complete"]) == ([("milk", 2)], False)


def test_a_look_up_in_the_history_of_a_subtype(shop: Served) -> None:
    shop.commit(DeclareType(EventType("shop.Offer", "administrator", {"until": Kind.INT}, PRICE)))
    shop.publish(7, type="shop.Offer", item="tea")
    status, answer = look_up(shop, "offers", type="shop.Offer")
    assert (status, prices(answer)) == (201, [("tea", 7)])


# -- reservations -----------------------------------------------------------------------------------------------


def test_a_reservation_keeps_what_comes_and_can_be_changed(shop: Served) -> None:
    shop.publish(1)
    made = shop.ask("anna", "PUT", "/v1/reservations/r", {"type": SALE, "seconds": 60})
    assert made.status_code == 201
    shop.publish(2)
    kept = shop.gateway.cursors.floors([], shop.gateway.follower.starts, shop.gateway.clock())
    assert [floor.seq for floor in kept["main"]] == [2]
    again = shop.ask("anna", "PUT", "/v1/reservations/r", {"type": SALE, "seconds": 30, "where": "amount > 1"})
    assert again.status_code == 200
    assert again.json()["since"] == made.json()["since"]
    assert again.json()["where"] == "amount > 1"
    kept = shop.gateway.cursors.floors([], shop.gateway.follower.starts, shop.gateway.clock())
    assert [floor.seq for floor in kept["main"]] == [2]
    other = shop.ask("anna", "PUT", "/v1/reservations/r", {"type": PRICE, "seconds": 30}).json()
    assert datetime.fromisoformat(other["since"]) > datetime.fromisoformat(made.json()["since"])
    until = datetime.fromisoformat(other["expires"]) - datetime.fromisoformat(other["since"])
    assert until <= timedelta(seconds=30)
    assert shop.ask("anna", "GET", "/v1/reservations/r").json() == other
    assert shop.ask("anna", "GET", "/v1/reservations").json() == {"reservations": [other]}
    assert shop.ask("bob", "GET", "/v1/reservations/r").status_code == 404
    assert shop.ask("bob", "DELETE", "/v1/reservations/r").status_code == 404
    assert shop.ask("anna", "DELETE", "/v1/reservations/r").status_code == 204
    assert shop.ask("anna", "DELETE", "/v1/reservations/r").status_code == 404


def test_a_subscription_from_the_reservations_time_gets_what_came_since(shop: Served) -> None:
    shop.publish(1)
    since = shop.ask("anna", "PUT", "/v1/reservations/r", {"type": SALE, "seconds": 60}).json()["since"]
    shop.publish(2)
    shop.decide()
    shop.subscribe("anna", "later", **{"from": {"time": since}})
    shop.publish(3)
    shop.decide()
    eventually(lambda: len(_amounts(shop)) == 2)
    assert _amounts(shop) == [2, 3]


def _amounts(shop: Served) -> list[float]:
    found = shop.ask("anna", "GET", "/v1/subscriptions/later/events", params={"wait": 1}).json()
    return [one["data"]["amount"] for one in found["events"]]


def reserve(shop: Served, **body: Any) -> dict[str, Any]:
    found = shop.ask("anna", "PUT", "/v1/reservations/r", {"seconds": 60, **body})
    assert found.status_code in (200, 201), found.text
    told: dict[str, Any] = found.json()
    return told


def kept_from(shop: Served) -> int:
    kept = shop.gateway.cursors.floors([], shop.gateway.follower.starts, shop.gateway.clock())
    return kept["main"][0].seq


def test_narrowing_frees_what_comes_before_the_first_that_fits(shop: Served) -> None:
    made = reserve(shop, type=SALE)
    for amount in (1, 2, 30, 4):
        shop.publish(amount)
    assert kept_from(shop) == 1
    narrowed = reserve(shop, type=SALE, where="amount > 10")
    assert kept_from(shop) == 3
    assert narrowed["since"] > made["since"]
    assert reserve(shop, type=SALE, where="amount > 10") == narrowed | {"expires": reserve_expiry(shop)}
    widened = reserve(shop, type=SALE)  # what was freed does not come back
    assert (kept_from(shop), widened["since"]) == (3, narrowed["since"])
    gone = reserve(shop, type=SALE, where="amount > 100")
    assert kept_from(shop) == 5
    assert gone["since"] > narrowed["since"]


def test_one_reservation_is_narrowed_at_a_time(shop: Served) -> None:
    reserve(shop, type=SALE)
    with reservations._NARROWING:
        busy = shop.ask("anna", "PUT", "/v1/reservations/r", {"seconds": 9, "type": SALE, "where": "amount > 10"})
        assert busy.json()["code"] == "too-busy"
        reserve(shop, type=SALE)  # for longer, which goes through nothing
    assert reserve(shop, type=SALE, where="amount > 10")["where"] == "amount > 10"


def reserve_expiry(shop: Served) -> str:
    told: str = shop.ask("anna", "GET", "/v1/reservations/r").json()["expires"]
    return told


def test_what_begins_at_a_reservation_gets_what_came_since(shop: Served) -> None:
    shop.publish(1)
    reserve(shop, type=SALE)
    shop.publish(2)
    shop.publish(30)
    shop.decide()
    narrowed = reserve(shop, type=SALE, where="amount > 10")
    shop.subscribe("anna", "later", **{"from": {"reserved": "r"}})
    shop.publish(3)
    shop.decide()
    eventually(lambda: len(_amounts(shop)) == 2)
    assert _amounts(shop) == [30, 3]
    made = shop.detect("anna", "late", "$Sale(i, a)", **{"from": {"reserved": "r"}})
    assert made["start"] == narrowed["since"]
    state = shop.ask("anna", "GET", "/v1/detections/late/state").json()
    assert state["signals"] == 2
    assert shop.ask("bob", "PUT", "/v1/subscriptions/x", {"type": SALE, "from": {"reserved": "r"}}).status_code == 404


def test_what_a_detection_looks_at_can_be_reserved(shop: Served) -> None:
    told = reserve(shop, expression="$Sale(i, a); Price(i, b)")
    assert (told["expression"], told.get("type"), told.get("whole", True)) == ("$Sale(i, a); Price(i, b)", None, True)
    shop.publish(1, item="gin")
    shop.publish(2)
    narrowed = reserve(shop, expression="$Sale('tea', a); Price('tea', b)")
    assert narrowed["since"] > told["since"]
    assert kept_from(shop) == 2
    assert reserve(shop, type=PRICE)["type"] == PRICE
    assert kept_from(shop) == 3
    wrong = shop.ask("anna", "PUT", "/v1/reservations/r", {"seconds": 9, "expression": "Gone(x)"}).json()
    assert wrong["code"] == "bad-expression"


def test_a_full_reservation_is_not_waited_for_and_says_so(shop: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve(shop, type=SALE)
    shop.publish(1)
    shop.publish(2)
    monkeypatch.setattr("headgate.node.cursors.MAX_RESERVED_EVENTS", 1)
    starts, now = shop.gateway.follower.starts, shop.gateway.clock()
    (floor,) = shop.gateway.cursors.floors([], starts, now, {"main": 2})["main"]
    assert floor.is_full
    assert not shop.gateway.cursors.floors([], starts, now, {"main": 1})["main"][0].is_full
    later = micros(now) + 10**9
    shop.decide()
    facts = look(shop.domain.log, shop.domain.store, shop.domain.signals, detecting=False)
    made = plan(later, facts[0], {}, {"main": [floor]}, Limits(log=Limit(age=1), hold=10**15))
    assert [(one.holder, one.first, one.last) for one in made.losses] == [("anna:r", 1, 2)]
    assert plan(later, facts[0], {}, {"main": [replace(floor, is_full=False)]}, Limits(log=Limit(age=1))).trims == ()
    apply(made, shop.domain.log, shop.domain.store, shop.domain.signals)
    assert shop.ask("anna", "GET", "/v1/reservations/r").json()["whole"] is False
    refused = shop.ask("anna", "PUT", "/v1/subscriptions/x", {"type": SALE, "from": {"reserved": "r"}}).json()
    assert (refused["code"], "MAX_RESERVED_EVENTS" in refused["detail"]) == ("limit-reached", True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"seconds": 1}, 400),
        ({"type": SALE, "expression": "null", "seconds": 1}, 400),
        ({"where": "amount > 1", "expression": "null", "seconds": 1}, 400),
        ({"type": SALE, "seconds": 101}, 400),
        ({"type": SALE, "seconds": 0}, 400),
        ({"type": "no.Such", "seconds": 1}, 404),
        ({"type": SALE, "seconds": 1, "where": "colour = 'red'"}, 422),
        ({"type": SALE, "seconds": 1, "where": "amount >"}, 422),
    ],
)
def test_bad_reservations_are_refused(shop: Served, body: dict[str, Any], status: int) -> None:
    assert shop.ask("anna", "PUT", "/v1/reservations/r", body).status_code == status
