"""Detections over HTTP and WebSocket, with signals written as the detection query writes them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.commands import detections as explaining
from headgate.commands.subscriptions import ledger_id
from headgate.decide.deliver import is_told_all
from headgate.gateway.http.detections import _WORKING_OUT
from headgate.model.changes import AddRule, Unsubscribe, Withdraw
from headgate.model.errors import GovernDenied, NotFound
from headgate.model.rights import Action, Rule
from headgate.pipeline.deliveries import Remark
from strategies.running import examples
from strategies.serving import PATIENCE, SALE, Served, eventually, serving

BOTH = "$Sale(item, a); Sale(item, b)"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node") / "shop", limits__detections_per_principal="50") as made:
        yield made


def poll(shop: Served, id: str, who: str = "anna", **query: Any) -> dict[str, Any]:
    found = shop.ask(who, "GET", f"/v1/subscriptions/{id}/events", params=query)
    assert found.status_code == 200, found.text
    answer: dict[str, Any] = found.json()
    return answer


def bound(answer: dict[str, Any]) -> list[Any]:
    return [one["data"] for one in answer["events"]]


# -- making, listing and ending -------------------------------------------------------------------------------


def test_a_detection_is_made_shown_listed_and_ended(shop: Served) -> None:
    before = datetime.now(UTC)
    made = shop.detect("anna", "pairs", BOTH, bind={"item": "tea"})
    assert made["expression"] == BOTH
    assert made["bind"] == {"item": "tea"}
    assert before <= datetime.fromisoformat(made["start"]) <= datetime.now(UTC)
    again = shop.ask("anna", "PUT", "/v1/detections/pairs", {"expression": BOTH, "bind": {"item": "tea"}})
    assert (again.status_code, again.json()) == (200, made)
    assert shop.ask("anna", "GET", "/v1/detections/pairs").json() == made
    assert made in shop.ask("anna", "GET", "/v1/detections").json()["detections"]
    assert shop.ask("bob", "GET", "/v1/detections").json() == {"detections": []}
    listed = shop.ask("anna", "GET", "/v1/subscriptions/pairs").json()
    assert (listed["type"], listed["detects"]) == ("headgate.signal", BOTH)
    for body, differs in (
        ({"expression": BOTH}, "choice of what is bound"),
        ({"expression": BOTH, "bind": {"item": 1}}, "choice of what is bound"),
        ({"expression": "$Sale(item, *)", "bind": {"item": "tea"}}, "expression"),
        ({"expression": BOTH, "bind": {"item": "tea"}, "from": "start"}, "beginning (`from`)"),
    ):
        refused = shop.ask("anna", "PUT", "/v1/detections/pairs", body).json()
        assert refused["code"] == "already-exists"
        assert refused["detail"] == f"your subscription `pairs` is another one: it has another {differs}"
    other = shop.ask("anna", "PUT", "/v1/subscriptions/pairs", {"type": SALE}).json()
    assert (other["code"], other["detail"].rpartition(": ")[2]) == ("already-exists", "it has another type")
    shop.domain.signals.write(0, 1, [], remarks=[Remark(0, "limit-reached", 9, 0, "too many are open")])
    (said,) = shop.ask("anna", "GET", "/v1/detections/pairs").json()["warnings"]
    assert said == "it has stopped: too many are open (`limit-reached`, at append 9 of the log)"
    assert shop.ask("bob", "DELETE", "/v1/detections/pairs").status_code == 404
    assert shop.ask("anna", "DELETE", "/v1/detections/pairs").status_code == 204
    assert shop.ask("anna", "GET", "/v1/detections/pairs").status_code == 404


def test_a_detection_gets_an_id_if_it_has_none(shop: Served) -> None:
    made = shop.ask("anna", "POST", "/v1/detections", {"expression": "AbsTime(5)", "from": "start"})
    assert made.status_code == 201
    where = made.headers["location"]
    told = shop.ask("anna", "GET", where).json()
    assert (told["from"], told["start"]) == ("start", "1970-01-01T00:00:00Z")
    assert shop.ask("anna", "DELETE", where).status_code == 204


def test_history_begins_where_it_is_asked_for(shop: Served) -> None:
    since = {"time": "2026-01-01T09:00:00Z"}
    made = shop.detect("anna", "since", BOTH, **{"from": since})
    assert (made["from"], made["start"]) == (since, since["time"])
    other = {"expression": BOTH, "from": {"time": "2026-01-01T10:00:00Z"}}
    assert shop.ask("anna", "PUT", "/v1/detections/since", other).status_code == 409
    shop.ask("anna", "DELETE", "/v1/detections/since")


def test_what_is_no_detection_is_not_found_among_them(shop: Served) -> None:
    shop.subscribe("anna", "plain")
    for method in ("GET", "DELETE"):
        assert shop.ask("anna", method, "/v1/detections/plain").json()["code"] == "not-found"


def test_warnings_come_with_it(shop: Served) -> None:
    made = shop.detect("anna", "never", "Sale(i, a) - Sale(i, a)")
    assert any("never signal" in one for one in made["warnings"])
    shop.ask("anna", "DELETE", "/v1/detections/never")


def test_a_timer_before_the_start_is_warned_of(shop: Served) -> None:
    begin = {"from": {"time": "2026-01-01T09:00:00Z"}}
    for hour, warned in ((8, True), (9, True), (10, False)):
        made = shop.detect("anna", "timer", f"AbsTime(timestamp '2026-01-01T{hour:02}:00:00Z')", **begin)
        assert any("never after its start" in one for one in made.get("warnings", ())) is warned
        shop.ask("anna", "DELETE", "/v1/detections/timer")


@pytest.mark.parametrize(
    ("body", "code", "place"),
    [
        ({"expression": "$Sale(i, a);\n  Gone(i)"}, "bad-expression", "line 2, column 3"),
        ({"expression": "$Sale(i, a) ;;"}, "bad-expression", "line 1, column 14"),
        ({"expression": ""}, "bad-expression", "line 1, column 1"),
        ({"expression": "Sale(i)"}, "bad-expression", "line 1, column 1"),
        ({"expression": "Sale(i, a)", "bind": {"i": None}}, "bad-expression", None),
        ({"expression": "Sale(i, a)", "bind": {"i": 7}}, "bad-expression", "line 1, column 1"),
        ({"expression": "Sale(i, a)", "bind": {"a": 2**70}}, "type-mismatch", None),
        ({"expression": "Sale(i, a)", "from": {}}, "bad-request", None),
        ({"expression": "Sale(i, a)", "unknown": 1}, "bad-request", None),
        ({"expression": "x" * 20_001}, "bad-request", None),
        ({}, "bad-request", None),
    ],
)
def test_bad_requests_are_refused_with_a_code_and_a_place(
    shop: Served, body: dict[str, Any], code: str, place: str | None
) -> None:
    told = shop.ask("anna", "PUT", "/v1/detections/bad", body).json()
    assert (told["code"], told.get("place")) == (code, place), told


@examples(40)
@given(text=st.text("$;-|(){}<>=@*&., \n'\"Saleixab0123456789AbsTimenullcount", max_size=60))
def test_fuzzed_expressions_get_coded_answers(shop: Served, text: str) -> None:
    told = shop.ask("anna", "PUT", "/v1/detections/fuzzed", {"expression": text})
    if told.status_code == 201:
        assert shop.ask("anna", "DELETE", "/v1/detections/fuzzed").status_code == 204
    else:
        assert (told.status_code, told.json()["code"]) == (422, "bad-expression"), told.text


def test_both_limits_hold(tmp_path: Any) -> None:
    settings = {"limits__detections_per_principal": "1", "limits__subscriptions_per_principal": "2"}
    with serving(tmp_path / "shop", **settings) as shop:
        shop.detect("anna", "one", BOTH)
        told = shop.ask("anna", "PUT", "/v1/detections/two", {"expression": BOTH}).json()
        assert (told["code"], "detections_per_principal" in told["remedy"]) == ("too-many", True)
        shop.subscribe("anna", "s")
        told = shop.ask("anna", "PUT", "/v1/subscriptions/t", {"type": SALE}).json()
        assert (told["code"], "subscriptions_per_principal" in told["remedy"]) == ("too-many", True)


# -- reading ----------------------------------------------------------------------------------------------------


def test_signals_are_polled_and_acknowledged_as_deliveries_are(shop: Served) -> None:
    shop.detect("anna", "read", BOTH)
    shop.publish(1, 2)
    shop.decide()  # nothing of the events themselves comes
    assert poll(shop, "read") == {"events": []}
    shop.signal("anna", "read", (3, {"item": "tea", "a": 1.0, "b": 2.0}), (4.5, {"item": "tea"}))
    first = poll(shop, "read", wait=PATIENCE)
    assert bound(first) == [{"a": 1.0, "b": 2.0, "item": "tea"}, {"item": "tea"}]
    one = first["events"][0]
    assert (one["type"], one["source"], one["time"]) == ("headgate.signal", "read", "1970-01-01T00:00:03.000000Z")
    assert set(one) == {"specversion", "id", "source", "type", "time", "data", "hgposition", "hgcontributors"}
    assert bound(poll(shop, "read", limit=1)) == bound(first)[:1]
    assert bound(poll(shop, "read", after=one["hgposition"])) == bound(first)[1:]
    acked = shop.ask("anna", "POST", "/v1/subscriptions/read/ack", {"positions": [one["hgposition"]]})
    assert acked.json() == {"acknowledged": 1}
    assert bound(poll(shop, "read")) == bound(first)[1:]


def test_signals_of_others_are_not_seen_and_do_not_show(shop: Served) -> None:
    shop.detect("anna", "mine", BOTH)
    shop.detect("bob", "his", BOTH)
    for n in range(3):
        shop.signal("bob", "his", (n, {"n": n}))
        shop.signal("anna", "mine", (n, {"n": 10 + n}))
    eventually(lambda: bound(poll(shop, "mine")) == [{"n": 10}, {"n": 11}, {"n": 12}])
    eventually(lambda: bound(poll(shop, "his", "bob")) == [{"n": 0}, {"n": 1}, {"n": 2}])
    position = poll(shop, "his", "bob")["events"][0]["hgposition"]
    assert shop.ask("anna", "POST", "/v1/subscriptions/mine/ack", {"positions": [position]}).status_code == 400


def test_values_are_as_events_have_them(shop: Served) -> None:
    shop.detect("anna", "kinds", "AbsTime(t)", bind={"t": 5})
    values = {"t": datetime(2026, 1, 1, 9, tzinfo=UTC), "b": b"\x00\xff", "i": 2**60, "f": 0.1, "x": True, "s": "é"}
    shop.signal("anna", "kinds", (0, values))
    told = {"t": "2026-01-01T09:00:00Z", "b": "00ff", "i": 2**60, "f": 0.1, "x": True, "s": "é"}
    assert bound(poll(shop, "kinds", wait=PATIENCE)) == [told]


def test_signals_are_pushed_as_far_as_credit_goes(shop: Served) -> None:
    shop.detect("anna", "pushed", BOTH)
    shop.signal("anna", "pushed", *((n, {"n": n}) for n in range(5)))
    socket = shop.socket("anna")
    socket.open("pushed", credit=2)
    got = socket.hear("events")["events"]
    assert [one["data"]["n"] for one in got] == [0, 1]
    socket.say("ack", subscription="pushed", positions=[got[-1]["hgposition"]])
    socket.hear("acked")
    socket.say("credit", subscription="pushed", credit=10)
    assert [one["data"]["n"] for one in socket.hear("events")["events"]] == [2, 3, 4]
    shop.signal("anna", "pushed", (9, {"n": 9}))
    assert [one["data"]["n"] for one in socket.hear("events")["events"]] == [9]
    shop.commit(Unsubscribe("anna/pushed"))
    shop.look()  # the query has come past the end of the detection
    assert socket.hear("closed")["code"] == "subscription-ended"
    socket.close()
    eventually(lambda: not shop.gateway.readers.signals.listeners())


def test_what_was_signalled_before_its_end_still_comes(shop: Served) -> None:
    shop.detect("anna", "ended", BOTH)
    socket = shop.socket("anna")
    socket.open("ended")
    shop.publish(7)
    shop.commit(Unsubscribe("anna/ended"))
    shop.signal("anna", "ended", (1, {"n": 1}))
    assert [one["data"]["n"] for one in socket.hear("events")["events"]] == [1]
    assert socket.hear("closed")["code"] == "subscription-ended"
    socket.close()


def test_one_made_again_under_its_name_begins_anew(shop: Served) -> None:
    shop.detect("anna", "again", BOTH)
    shop.signal("anna", "again", (1, {"n": 1}))
    assert bound(poll(shop, "again", wait=PATIENCE)) == [{"n": 1}]
    shop.ask("anna", "DELETE", "/v1/detections/again")
    shop.detect("anna", "again", BOTH)
    shop.signal("anna", "again", (2, {"n": 2}))
    assert bound(poll(shop, "again", wait=PATIENCE)) == [{"n": 2}]


def test_signals_that_were_made_before_anyone_read_are_there(shop: Served) -> None:
    """Also if the gateway was killed before it could note where the detection begins."""
    shop.detect("anna", "unread", BOTH)
    shop.signal("anna", "unread", (1, {"n": 1}))
    first = shop.gateway.follower.state.subscriptions["anna/unread"].first
    with shop.gateway.cursors._writing() as db:
        db.execute("DELETE FROM cursors WHERE subscription = 'anna/unread' AND first = ?", (first,))
    assert bound(poll(shop, "unread", wait=PATIENCE)) == [{"n": 1}]


def test_what_retention_took_is_told_as_a_gap(shop: Served) -> None:
    shop.detect("anna", "late", BOTH)
    shop.signal("anna", "late", (1, {"n": 1}))
    tail, last = shop.gateway.readers.signals, shop.domain.signals.reached().streams["signals"]
    eventually(lambda: tail.reached.streams["signals"] == last)
    shop.domain.signals.trim("signals", last)
    tail._kept.clear()  # as if a gateway had just begun
    shop.signal("anna", "late", (2, {"n": 2}))
    told = poll(shop, "late", wait=PATIENCE)
    assert "retention" in told["gap"]
    eventually(lambda: bound(poll(shop, "late")) == [{"n": 2}])


def test_what_was_withdrawn_does_not_come(shop: Served) -> None:
    shop.detect("bob", "withdrawn", BOTH)
    shop.signal("bob", "withdrawn", (1, {"n": 1}))
    shop.commit(Withdraw("bob"))
    shop.signal("bob", "withdrawn", (2, {"n": 2}))
    eventually(lambda: bound(poll(shop, "withdrawn", "bob")) == [{"n": 2}])


# -- contributors -----------------------------------------------------------------------------------------------


def test_a_signal_is_explained_by_its_events_as_far_as_one_may_know(shop: Served) -> None:
    shop.detect("anna", "why", BOTH)
    shop.publish(41, 42)
    ((stream, tail),) = [(name, tail) for name, tail in shop.domain.log.tails().items() if tail.last]
    version = shop.domain.ledger.version
    shop.signal("anna", "why", (1, {"a": 41.0}), on=((stream, tail.last - 1, version), (stream, tail.last, version)))
    (one,) = poll(shop, "why", wait=PATIENCE)["events"]
    positions = one["hgcontributors"].split()
    assert len(set(positions)) == 2
    told = shop.ask("anna", "GET", f"/v1/detections/why/signals/{one['hgposition']}").json()
    assert (told["detection"], told["expression"], told["bindings"], told["untold"]) == ("why", BOTH, {"a": 41.0}, 0)
    assert [c["attributes"][1]["value"] for c in told["contributors"]] == [41.0, 42.0]
    assert [c["place"] for c in told["contributors"]] == [None, None]  # which count what is hidden
    assert all(c["visible"] and c["subscription"]["id"] == "why" for c in told["contributors"])
    shop.commit(AddRule(Rule("audits", "anna", frozenset({Action.AUDIT}), SALE)))
    eventually(lambda: shop.gateway.follower.state.version == shop.domain.ledger.version)
    told = shop.ask("anna", "GET", f"/v1/detections/why/signals/{one['hgposition']}").json()
    assert [c["place"] for c in told["contributors"]] == [[stream, tail.last - 1], [stream, tail.last]]
    for wrong in (positions[0], "A" * 22, "short"):
        refused = shop.ask("anna", "GET", f"/v1/detections/why/signals/{wrong}").json()
        assert refused["code"] == "bad-position", refused
        if len(wrong) == 22:
            acked = shop.ask("anna", "POST", "/v1/subscriptions/why/ack", {"positions": [wrong]}).json()
            assert acked["code"] == "bad-position"
    assert shop.ask("bob", "GET", f"/v1/detections/why/signals/{one['hgposition']}").status_code == 404


def test_where_a_detection_stands_is_told_to_its_principal(shop: Served) -> None:
    expression = "$Sale(item, a) {t <- @ + 3600}; Sale(item, b) - AbsTime(t) | AbsTime(t)"
    shop.detect("anna", "stands", expression, bind={"item": "gin"})
    shop.publish(5, item="gin")
    told = shop.ask("anna", "GET", "/v1/detections/stands/state").json()
    assert (told["detection"], told["principal"], told["is_whole"], told["stopped"]) == ("stands", "anna", True, "")
    held = [one for one in told["waits"] if one["bindings"].get("a") == 5.0]
    assert sorted((one["for"], one["types"]) for one in held) == [("event", []), ("horizon", None)]
    assert all(one["holds"] for one in told["horizons"])
    assert {one["publisher"] for one in told["horizons"]} == {""}
    shop.publish(6, item="gin")
    eventually(lambda: shop.ask("anna", "GET", "/v1/detections/stands/state").json()["signals"] == 1)
    assert shop.ask("bob", "GET", "/v1/detections/stands/state").status_code == 404
    shop.subscribe("anna", "events")
    assert shop.ask("anna", "GET", "/v1/detections/events/state").status_code == 404


def test_what_would_take_too_long_to_work_out_is_refused(shop: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.detect("anna", "long", "$Sale(item, a)")
    shop.publish(5, item="gin")
    monkeypatch.setattr("headgate.gateway.http.detections.MAX_REPLAYED", 0)
    refused = shop.ask("anna", "GET", "/v1/detections/long/state")
    assert (refused.status_code, refused.json()["code"]) == (422, "limit-reached")
    with _WORKING_OUT:
        busy = shop.ask("anna", "GET", "/v1/detections/long/state")
    assert (busy.status_code, busy.json()["code"]) == (503, "too-busy")


def test_a_signal_is_explained_to_auditors(shop: Served) -> None:
    made = shop.detect("anna", "audited", BOTH)
    shop.publish(43)
    ((stream, tail),) = [(name, tail) for name, tail in shop.domain.log.tails().items() if tail.last]
    shop.signal("anna", "audited", (1, {"a": 43.0}), on=((stream, tail.last, shop.domain.ledger.version),))
    (one,) = poll(shop, "audited", wait=PATIENCE)["events"]
    domain, name = shop.domain, ledger_id("anna", "audited")
    for id in ("audited", name):
        with pytest.raises(GovernDenied):
            explaining.find_detections(domain, "bob", "anna", id)
    with pytest.raises(NotFound):
        explaining.find_detections(domain, "anna", "anna", "none")
    shop.commit(AddRule(Rule("bob-audits", "bob", frozenset({Action.AUDIT}), SALE)))
    for asker in ("bob", "anna", domain.ledger.administrator):
        found = explaining.find_detections(domain, asker, "anna", "audited")
        assert [(detection.id, detection.first) for _, detection in found] == [(name, made["version"])]
        number, detection, seq = explaining.find_signal(domain, found, one["id"])
        told = explaining.explain_signal(domain, asker, detection, number, seq)
        assert (told.bindings, told.untold) == ({"a": 43.0}, 0)
        assert [c.place for c in told.contributors] == [
            None if asker == "anna" and not audits(shop) else (stream, tail.last)
        ]
        state = explaining.detection_state(domain, asker, detection)
        assert state.detection == "audited"
    with pytest.raises(NotFound):
        explaining.find_signal(domain, found, "other")
    with pytest.raises(GovernDenied):
        explaining.find_detections(domain, "till", "anna", "audited")


def audits(shop: Served) -> bool:
    """May anna know places by now?"""
    return is_told_all(shop.domain.ledger.state(), "anna", SALE)


def test_figures_tell_of_detections(shop: Served) -> None:
    shop.detect("anna", "figures", BOTH)
    shop.publish(1)
    text = shop.metrics()
    assert 'headgate_detection_lag_events{stream="' in text
    shop.signal("anna", "figures", (1, {}))
    written = shop.domain.signals.reached().streams["signals"]
    eventually(lambda: f"headgate_signals_total {written}.0" in shop.metrics())
