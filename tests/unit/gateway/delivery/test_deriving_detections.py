"""Detections over HTTP of whose signals something comes: events of a type (`publishes`), rows (`adds`), for others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.commands.subscriptions import ledger_id
from headgate.decide.derived import DERIVED
from headgate.model.changes import AddRule, DeclareRelation, DeclareType, SetKey
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType, Times
from headgate.model.values import Kind
from headgate.trust.keys import PrivateKey
from strategies.serving import SALE, Served, eventually, serving

STATED = Times(stated=True)
LARGE, SUM = "shop.Large", "shop.Sum"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node") / "shop") as made:
        key = PrivateKey.generate()
        made.keys = {**made.keys, "root": key}
        made.commit(
            SetKey(ADMINISTRATOR, key.public.did),
            DeclareRelation("buyers"),
            DeclareType(EventType(LARGE, "anna", {"item": Kind.STRING}, times=STATED)),
            DeclareType(EventType(SUM, "anna", {"total": Kind.FLOAT}, times=STATED)),
            AddRule(Rule("large", "anna", frozenset({Action.PUBLISH}), LARGE)),
            AddRule(Rule("sums", "anna", frozenset({Action.PUBLISH}), SUM)),
        )
        yield made


def put(shop: Served, who: str, id: str, **body: Any) -> tuple[int, dict[str, Any]]:
    found = shop.ask(who, "PUT", f"/v1/detections/{id}", body)
    told: dict[str, Any] = found.json()
    return found.status_code, told


def later() -> float:
    """A time past what was promised when detections began, in seconds."""
    return time.time() + 5


def test_what_is_signalled_comes_as_an_event_and_what_is_refused_is_a_figure(shop: Served) -> None:
    status, made = put(shop, "anna", "large", expression="$Sale(item, a) {a > 100}", publishes=LARGE)
    assert (status, made["publishes"]) == (201, LARGE)
    assert shop.ask("anna", "GET", "/v1/detections/large").json()["publishes"] == LARGE
    shop.subscribe("bob", "large", LARGE)
    shop.signal("anna", "large", (later(), {"item": "tea", "a": 200.0}))

    def got() -> list[Any]:
        shop.decide()
        return [one["data"] for one in shop.ask("bob", "GET", "/v1/subscriptions/large/events").json()["events"]]

    eventually(lambda: got() == [{"item": "tea"}])
    assert "headgate_signals_refused_total 0.0" in shop.metrics()
    shop.commit(AddRule(Rule("large", "anna", frozenset({Action.AUDIT}), LARGE)))
    shop.signal("anna", "large", (later(), {"item": "salt", "a": 200.0}))
    eventually(lambda: "headgate_signals_refused_total 1.0" in shop.metrics())
    shop.commit(AddRule(Rule("large", "anna", frozenset({Action.PUBLISH}), LARGE)))
    assert got() == [{"item": "tea"}]


def test_the_administrator_lets_a_detection_of_anothers_views_add_rows(shop: Served) -> None:
    status, made = put(shop, "root", "buys", expression="$Sale(item, a)", adds="buyers(item)", **{"for": "anna"})
    assert (status, made["adds"]) == (201, "buyers(item)")
    assert shop.ask("anna", "GET", "/v1/detections/buys").json()["adds"] == "buyers(item)"
    assert shop.ask("root", "GET", "/v1/detections/buys").status_code == 404  # it is anna's
    shop.signal("anna", "buys", (later(), {"item": "tea", "a": 1.0}))
    eventually(lambda: shop.domain.ledger.state().relations["buyers"] == {("tea",)})
    assert shop.ask("anna", "DELETE", "/v1/detections/buys").status_code == 204
    assert ledger_id("anna", "buys") not in shop.domain.ledger.state().subscriptions


@pytest.mark.parametrize(
    ("who", "body", "code", "place"),
    [
        ("anna", {"publishes": "shop.Gone"}, "unknown-type", None),
        ("anna", {"publishes": SALE}, "publish-denied", None),
        ("bob", {"publishes": LARGE}, "publish-denied", None),
        ("anna", {"publishes": LARGE, "expression": "$Sale(*, a)"}, "bad-definition", f"attribute `item` of `{LARGE}`"),
        ("anna", {"publishes": LARGE, "adds": "buyers(item)"}, "bad-definition", "adds"),
        ("anna", {"publishes": SUM}, "bad-definition", f"attribute `total` of `{SUM}`"),
        ("anna", {"adds": "buyers(item)"}, "govern-denied", None),
        ("root", {"adds": "sellers(item)", "for": "anna"}, "unknown-name", "adds"),
        ("root", {"adds": "buyers(other)", "for": "anna"}, "bad-definition", "value 1 of `buyers`"),
        ("root", {"adds": "buyers(item"}, "bad-expression", "adds, line 1, column 12"),
        ("anna", {"for": "bob"}, "govern-denied", None),
        ("root", {"for": "nobody"}, "unknown-name", None),
        ("anna", {"publishes": LARGE, "expression": "$Large(item)"}, "feeds-itself", "publishes"),
        ("anna", {"from": {"reserved": "none"}}, "not-found", None),
        ("anna", {"from": {"version": 10**6}}, "bad-definition", None),
    ],
)
def test_what_cannot_be_derived_is_refused_with_a_code_and_a_place(
    shop: Served, who: str, body: dict[str, Any], code: str, place: str | None
) -> None:
    before = dict(shop.domain.ledger.state().subscriptions)
    _, told = put(shop, who, "bad", **{"expression": "$Sale(item, a)", **body})
    assert (told["code"], told.get("place")) == (code, place), told
    assert shop.domain.ledger.state().subscriptions == before
    assert (DERIVED, SUM) not in shop.domain.log.horizons().joined, "nobody joins who is refused"


def test_a_detection_begins_at_a_reservation_or_a_version(shop: Served) -> None:
    kept = shop.ask("anna", "PUT", "/v1/reservations/kept", {"seconds": 60, "expression": "$Sale(item, a)"}).json()
    shop.publish(5)
    version = shop.domain.ledger.version
    status, made = put(shop, "anna", "back", expression="$Sale(item, a)", **{"from": {"reserved": "kept"}})
    assert (status, made["start"]) == (201, kept["since"])
    status, other = put(shop, "anna", "since", expression="$Sale(item, a)", **{"from": {"version": version}})
    assert (status, other["from"]) == (201, {"version": version})
    state = shop.domain.ledger.state().subscriptions[ledger_id("anna", "since")]
    assert (state.history, state.since_version) == (True, version)
