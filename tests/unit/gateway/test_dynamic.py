"""Requirements, and conditions on time, rate and origin, at a real gateway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from headgate.lang import parse_condition
from headgate.model.changes import AddRule, RemoveRule, SetAttribute, SetPolicyRule
from headgate.model.rights import Action, Rule
from headgate.model.state import State
from headgate.pipeline.log.event_log import EventLog
from strategies.presenting import Visitor, now
from strategies.serving import PRICE, SALE, Served, serving


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("dynamic") / "domain", gateway__proxies="127.0.0.1") as served:
        served.commit(RemoveRule("pub"), RemoveRule("g-bob"))
        yield served


def state(shop: Served) -> State:
    return shop.domain.ledger.state()


def rule(id: str, who: str, may: str, where: str, type: str = SALE) -> AddRule:
    return AddRule(Rule(id, who, frozenset({Action(may)}), type, parse_condition(where)))


def visitor(shop: Served, who: str) -> Visitor:
    made = Visitor(shop, shop.keys[who])
    assert made.connect().status_code == 201
    return made


def at(address: str) -> dict[str, str]:
    """As a client behind the trusted proxy says where it is."""
    return {"x-forwarded-for": address}


def published(who: Visitor, address: str | None = None, **more: object) -> object:
    event = {"specversion": "1.0", "id": f"{id(object())}-{now()}", "source": "s", "type": SALE, "data": {}, **more}
    headers = {"content-type": "application/cloudevents+json", **({} if address is None else at(address))}
    return who.ask("POST", "/v1/events", event, headers=headers)


def test_a_right_to_publish_may_depend_on_the_address_and_the_event_keeps_it(shop: Served) -> None:
    shop.commit(rule("from-inside", "till", "publish", "@origin starts with '10.'"))
    till = visitor(shop, "till")
    assert published(till, "10.0.0.7", id="in").json()["status"] == "accepted"  # type: ignore[attr-defined]
    assert published(till, "192.0.2.1", id="out").json()["code"] == "publish-denied"  # type: ignore[attr-defined]
    assert published(till, id="bare").json()["code"] == "publish-denied"  # type: ignore[attr-defined]
    forged = published(till, "10.0.0.7, 192.0.2.1", id="forged")
    assert forged.json()["code"] == "publish-denied", "the last address that is no proxy counts"  # type: ignore[attr-defined]
    (event,) = [one for one in shop.domain.events() if one.id == "in"]
    assert event.origin == "10.0.0.7"
    told = till.ask("GET", "/v1/advertisements", headers=at("10.0.0.7")).json()["advertisements"]
    assert told == [{"type": SALE, "holds": True}]
    told = till.ask("GET", "/v1/advertisements", headers=at("192.0.2.1")).json()["advertisements"]
    assert told == [{"type": SALE, "holds": False}]
    shop.commit(RemoveRule("from-inside"))


def test_a_right_to_publish_may_depend_on_how_often_and_the_log_remembers(shop: Served) -> None:
    shop.commit(rule("seldom", "till", "publish", "@rate <= 3"))
    till = visitor(shop, "till")
    already = len([one for one in shop.domain.events() if one.type == SALE and one.publisher == "till"])
    batch = [
        {"specversion": "1.0", "id": f"r{n}", "source": "rate", "type": SALE, "data": {"amount": 1.0}} for n in range(4)
    ]
    headers = {"content-type": "application/cloudevents-batch+json"}
    told = till.ask("POST", "/v1/events", batch, headers=headers).json()["results"]
    allowed = 3 - already
    assert [one["status"] for one in told] == ["accepted"] * allowed + ["refused"] * (4 - allowed)
    again = till.ask("POST", "/v1/events", batch[:1], headers=headers).json()["results"]
    assert again[0]["status"] == "duplicate", "what was stored before is no more for it"
    rates = [one.rate for one in shop.domain.events() if one.source == "rate"]
    assert rates == list(range(already + 1, 4))
    assert till.ask("GET", "/v1/advertisements").json()["advertisements"] == [{"type": SALE, "holds": False}]
    with closing(EventLog.open(shop.domain.paths.log)) as again:
        assert again.counted(shop.gateway.clock()).before("till", SALE, shop.gateway.clock()) == 3
    table = pa.table({"id": ["bulk"], "amount": [1.0]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    arrow = {"content-type": "application/vnd.apache.arrow.stream", "authorization": f"Bearer {till.token}"}
    sent = shop.http.post(f"/v1/events?type={SALE}", content=sink.getvalue().to_pybytes(), headers=arrow)
    assert sent.json()["refused"] == 1
    shop.commit(RemoveRule("seldom"))


def test_an_advertisement_says_nothing_of_conditions_that_are_not_dynamic(shop: Served) -> None:
    shop.commit(rule("dear", "till", "publish", "amount > 3", PRICE))
    till = visitor(shop, "till")
    assert till.ask("PUT", f"/v1/advertisements/{PRICE}").json() == {"type": PRICE}
    shop.commit(rule("dear", "till", "publish", "amount > 3 and timeofday(@time, 'UTC') >= 0", PRICE))
    assert till.ask("PUT", f"/v1/advertisements/{PRICE}").json() == {"type": PRICE, "holds": True}
    shop.commit(rule("dear", "till", "publish", "amount > 3 and timeofday(@time, 'UTC') < 0", PRICE))
    assert till.ask("PUT", f"/v1/advertisements/{PRICE}").json() == {"type": PRICE, "holds": False}
    shop.commit(RemoveRule("dear"))


def test_an_event_may_require_something_of_receivers_and_a_policy_rule_binds_it(shop: Served) -> None:
    shop.commit(rule("all", "till", "publish", "true"), SetPolicyRule("till", parse_condition("$nation = 'NO'")))
    till = visitor(shop, "till")
    assert published(till, id="wide").json()["code"] == "policy-rule"  # type: ignore[attr-defined]
    narrow = "$nation = 'NO' and $clearance = 'secret'"
    assert published(till, id="narrow", requires=narrow).status_code == 200  # type: ignore[attr-defined]
    assert published(till, id="other", requires="$nation = 'IT'").json()["code"] == "policy-rule"  # type: ignore[attr-defined]
    for bad in ("amount > 3", "$x in group staff", "$x ="):
        assert published(till, id="bad", requires=bad).json()["code"] == "bad-expression"  # type: ignore[attr-defined]
    (event,) = [one for one in shop.domain.events() if one.id == "narrow"]
    assert event.requires == parse_condition(narrow)
    shop.commit(SetPolicyRule("till", None))

    shop.commit(rule("bob-sees", "bob", "subscribe", "true"), SetAttribute("bob", "nation", "NO"))
    shop.subscribe("bob", "mine")
    shop.subscribe("bob", "choosy", requires="$trusted = true")
    assert published(till, id="for-no", requires="$nation = 'NO'").status_code == 200  # type: ignore[attr-defined]
    assert published(till, id="for-it", requires="$nation = 'IT'").status_code == 200  # type: ignore[attr-defined]
    shop.decide()
    got = shop.ask("bob", "GET", "/v1/subscriptions/mine/events?wait=5").json()["events"]
    assert [one["id"] for one in got] == ["for-no"]
    assert "requires" not in got[0]
    assert shop.ask("bob", "GET", "/v1/subscriptions/choosy/events").json()["events"] == []
    told = shop.ask("bob", "GET", "/v1/subscriptions/choosy").json()
    assert told["requires"] == "$trusted = true"
    refused = shop.ask("bob", "PUT", "/v1/subscriptions/bad", {"type": SALE, "requires": "amount = 1"})
    assert refused.json()["code"] == "bad-expression"
    other = shop.ask("bob", "PUT", "/v1/subscriptions/choosy", {"type": SALE})
    assert other.json()["code"] == "already-exists"
    shop.commit(RemoveRule("bob-sees"), RemoveRule("all"))


def test_a_subscription_whose_rights_depend_on_the_address_is_read_from_there_alone(shop: Served) -> None:
    shop.commit(
        rule("bob-inside", "bob", "subscribe", "@origin starts with '10.'"), rule("all", "till", "publish", "true")
    )
    bob, till = visitor(shop, "bob"), visitor(shop, "till")
    path, body = "/v1/subscriptions/here", {"type": SALE}
    made = bob.ask("PUT", path, body, headers=at("10.0.0.7"))
    assert (made.status_code, made.json()["origin"]) == (201, "10.0.0.7")
    assert bob.ask("PUT", path, body, headers=at("10.0.0.7")).status_code == 200
    published(till, id="seen")
    shop.decide()
    assert [one["id"] for one in bob.ask("GET", f"{path}/events?wait=5", headers=at("10.0.0.7")).json()["events"]] == [
        "seen"
    ]
    away = bob.ask("GET", f"{path}/events", headers=at("192.0.2.9"))
    assert (away.status_code, away.json()["code"]) == (403, "subscribe-denied")
    before = state(shop).version
    again = bob.ask("PUT", path, body, headers=at("192.0.2.9"))
    assert (again.status_code, again.json()["origin"]) == (200, "192.0.2.9")
    assert state(shop).version == before + 1
    assert again.json()["version"] == before + 1
    published(till, id="unseen")
    shop.decide()
    assert bob.ask("GET", f"{path}/events", headers=at("192.0.2.9")).json()["events"] == []
    shop.commit(RemoveRule("bob-inside"), rule("bob-sees", "bob", "subscribe", "true"))
    assert bob.ask("GET", f"{path}/events", headers=at("10.0.0.7")).status_code == 200, "it no longer matters"
    socket = shop.socket("bob")
    socket.open("here")
    socket.close()
    shop.commit(rule("bob-sees", "bob", "subscribe", "@origin = '10.0.0.7'"))
    socket = shop.socket("bob")
    socket.say("open", subscription="here", credit=1)
    assert socket.hear("problem")["code"] == "subscribe-denied"
    socket.close()
