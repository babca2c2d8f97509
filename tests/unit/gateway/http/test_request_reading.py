"""Rights before reading, bounds on what is read, and reading where nobody waits for it."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headgate.commands import commit
from headgate.gateway.http.request_reading import INLINE_CHARS
from headgate.lang import render_condition
from headgate.model.changes import RemoveRule
from headgate.model.limits import MAX_EXPRESSION_TEXT, MAX_REQUIREMENTS
from headgate.model.rights import Action
from headgate.model.state import ADMINISTRATOR
from headgate.pipeline.index.requirements import is_known
from headgate.protocol.messages import ARROW, BATCH_JSON, EVENT_JSON
from headgate.trust.keys import PrivateKey
from strategies.serving import SALE, Served, serving
from strategies.small import grant

LONG = " or ".join(f"item = 'thing {n}'" for n in range(40))
BAD = LONG + " or"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("reading") / "shop") as made:
        made.keys = {**made.keys, ADMINISTRATOR: PrivateKey.load(made.gateway.files.admin_key)}
        made.commit(grant("rules", "till", SALE, may=(Action.GOVERN,)))
        made.commit(grant("new", "till", "mine.*", may=(Action.INSTALL,)))
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "shop") as made:
        yield made


def unread(shop: Served) -> bool:
    """Has no process been asked to read anything?"""
    return not shop.gateway.workers._threads


def event(id: str, requires: str | None, type: str = SALE) -> dict[str, Any]:
    more = {} if requires is None else {"requires": requires}
    return {"specversion": "1.0", "id": id, "source": "t", "type": type, "data": {"item": "tea", "amount": 1.0}, **more}


def publish(shop: Served, who: str, events: Sequence[dict[str, Any]]) -> httpx.Response:
    return shop.ask(who, "POST", "/v1/events", list(events), headers={"content-type": BATCH_JSON})


def codes(answer: httpx.Response) -> set[str]:
    return {one.get("code") or one["status"] for one in answer.json()["results"]}


def columns(shop: Served, who: str, requires: Sequence[str | None]) -> httpx.Response:
    table = pa.table(
        {
            "id": [f"{who}{at}" for at in range(len(requires))],
            "item": ["tea"] * len(requires),
            "requires": pa.array(requires, pa.string()),
        }
    )
    with io.BytesIO() as body:
        with pa.ipc.new_stream(body, table.schema) as writer:
            writer.write_table(table)
        headers = {"authorization": f"Bearer {shop.token(who)}", "content-type": ARROW}
        return shop.http.post(f"/v1/events?type={SALE}", content=body.getvalue(), headers=headers)


def batch(shop: Served, who: str, *changes: dict[str, Any]) -> httpx.Response:
    return shop.ask(who, "POST", "/v1/batches", {"changes": changes})


def rule(id: str, where: str, type: str = SALE) -> dict[str, Any]:
    return {"op": "add-rule", "rule": {"id": id, "who": "bob", "may": "subscribe", "type": type, "where": where}}


# -- rights first ---------------------------------------------------------------------------------------------


def test_what_an_event_requires_is_not_read_of_who_may_not_publish_it(fresh: Served) -> None:
    texts = [f"$denied{n} = {n} and ({'$x = 1 or ' * 50}$y = 2)" for n in range(1_500)]
    answer = publish(fresh, "bob", [event(f"{at}", text) for at, text in enumerate(texts)])
    assert codes(answer) == {"publish-denied"}
    assert codes(publish(fresh, "till", [event("u", texts[0], "no.Such")])) == {"unknown-type"}
    one = fresh.ask("bob", "POST", "/v1/events", event("1", texts[0]), headers={"content-type": EVENT_JSON})
    assert (one.status_code, one.json()["code"]) == (403, "publish-denied")
    told = columns(fresh, "bob", texts)
    assert (told.json()["accepted"], told.json()["refused"]) == (0, 1_500)
    assert {row["code"] for row in told.json()["results"]} == {"publish-denied"}
    socket = fresh.socket("bob")
    socket.say("publish", ref="1", events=[event("s", texts[1])])
    assert socket.hear("published")["results"][0]["code"] == "publish-denied"
    socket.close()
    assert unread(fresh)
    assert not any(map(is_known, texts))


@pytest.mark.parametrize(
    "change",
    [
        rule("r", BAD),
        rule("r", BAD, "shop.*"),
        {"op": "set-rolefile", "service": "S", "text": "A <- B\n" * 1_000},
        {"op": "set-event-policy", "text": "grant" * 1_000},
        {"op": "set-policy-rule", "principal": "bob", "rule": BAD},
        {"op": "set-representative", "type": SALE, "parameters": {"a": "item" * 100}},
        {
            "op": "add-issuing",
            "id": "i",
            "who": "bob",
            "authority": [{"actions": "*", "type": SALE, "where": BAD}],
            "seconds": 60,
        },
    ],
    ids=lambda change: change["op"],
)
def test_nothing_of_a_batch_is_read_of_who_may_not_make_it(fresh: Served, change: dict[str, Any]) -> None:
    version = fresh.domain.ledger.version
    gone = {"op": "remove-rule", "id": "no such rule"}
    answer = batch(fresh, "bob", gone, change)
    assert (answer.status_code, answer.json()["code"]) == (403, "govern-denied"), answer.text
    assert answer.json()["place"] == "change 2"
    assert unread(fresh)
    assert fresh.domain.ledger.version == version


def test_who_declares_a_type_may_write_its_rules_in_the_same_batch(shop: Served) -> None:
    declared = {"op": "declare-type", "name": "mine.T", "type": {"attributes": {"item": "string"}}}
    assert batch(shop, "till", declared, rule("mine", LONG, "mine.T")).status_code == 200
    assert render_condition(shop.domain.ledger.state().rules[-1].where) == LONG
    declared["name"] = "yours.T"
    assert batch(shop, "till", declared, rule("mine", LONG, "yours.T")).json()["code"] == "govern-denied"


def test_an_event_that_was_stored_is_found_again_when_the_right_is_gone(fresh: Served) -> None:
    sent = [event("a", "$n = 1"), event("b", None)]
    assert codes(publish(fresh, "till", sent)) == {"accepted"}
    fresh.commit(RemoveRule("pub"))
    answer = publish(fresh, "till", [*sent, event("c", "$n = 1")])
    assert [one["status"] for one in answer.json()["results"]] == ["duplicate", "duplicate", "refused"]


# -- bounds ---------------------------------------------------------------------------------------------------


def test_different_requirements_are_bounded_in_every_format(shop: Served) -> None:
    texts = [f"$bound = {n}" for n in range(MAX_REQUIREMENTS + 1)]
    answers = (
        publish(shop, "till", [event(f"{at}", text) for at, text in enumerate(texts)]),
        columns(shop, "till", texts),
    )
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (422, "bad-expression")
        assert "MAX_REQUIREMENTS" in answer.json()["detail"]
    assert not any(map(is_known, texts))
    assert codes(publish(shop, "till", [event(f"k{n}", "$bound = 1") for n in range(MAX_REQUIREMENTS + 1)])) == {
        "accepted"
    }


def test_the_text_of_expressions_is_bounded_in_every_request(shop: Served) -> None:
    many = [f"{LONG} or item = 'x{n}'" for n in range(MAX_EXPRESSION_TEXT // len(LONG) + 1)]
    requirements = [text.replace("item", "$item") for text in many]
    rolefile = {"op": "set-rolefile", "service": "S", "text": "A <- B\n" * 20_000}
    shop.commit(grant("all", "till", SALE, may=(Action.PUBLISH,)))
    for answer in (
        publish(shop, "till", [event(f"{at}", text) for at, text in enumerate(requirements)]),
        columns(shop, "till", requirements),
        batch(shop, "till", *(rule(f"r{at}", text) for at, text in enumerate(many))),
        batch(shop, ADMINISTRATOR, rolefile, {**rolefile, "service": "T"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large"), answer.text
        assert "MAX_EXPRESSION_TEXT" in answer.json()["detail"]


# -- reading --------------------------------------------------------------------------------------------------


def test_what_is_short_is_read_at_once(fresh: Served) -> None:
    fresh.subscribe("bob", "short", where="item = 'tea'", requires="$n = 1")
    assert codes(publish(fresh, "till", [event("1", "$n = 1")])) == {"accepted"}
    assert unread(fresh)
    assert len(LONG) > INLINE_CHARS
    fresh.subscribe("bob", "long", where=LONG)
    assert not unread(fresh)


def test_what_is_long_means_what_it_says(shop: Served) -> None:
    made = shop.subscribe("bob", "long", where=LONG, requires=LONG.replace("item", "$item"))
    assert made["where"] == LONG
    refused = shop.ask("bob", "PUT", "/v1/subscriptions/bad", {"type": SALE, "where": BAD})
    assert (refused.status_code, refused.json()["code"]) == (422, "bad-expression")
    assert refused.json()["place"] == f"line 1, column {len(BAD) + 1}"
    kept = shop.ask("bob", "PUT", "/v1/reservations/r", {"type": SALE, "where": LONG, "seconds": 10})
    assert kept.status_code == 201, kept.text
    assert batch(shop, "till", rule("ok", LONG), rule("bad", BAD)).json()["place"].startswith("change 2, line 1")
    assert batch(shop, "till", rule("ok", LONG)).status_code == 200
    assert next(render_condition(one.where) for one in shop.domain.ledger.state().rules if one.id == "ok") == LONG


def test_requirements_that_are_long_are_kept_as_they_were_sent(shop: Served) -> None:
    good, bad = LONG.replace("item", "$item"), BAD.replace("item", "$item")
    answer = publish(shop, "till", [event("l1", good), event("l2", bad), event("l3", f"{good} and plain = 1")])
    assert [one.get("code") for one in answer.json()["results"]] == [None, "bad-expression", "bad-expression"]
    told = columns(shop, "till", [good, bad, None, good]).json()
    assert (told["accepted"], [(row["row"], row["code"]) for row in told["results"]]) == (3, [(1, "bad-expression")])
    stored = [render_condition(one.requires) for one in shop.domain.events() if one.requires is not None]
    assert stored.count(good) == 3


def test_one_who_keeps_all_processes_busy_keeps_nobody_from_the_gateway(shop: Served) -> None:
    for who in ("x", "y"):
        shop.gateway.workers.submit(who, time.sleep, 1.0)
    assert shop.http.get("/v1").status_code == 200
    assert codes(publish(shop, "till", [event("while", "$n = 1")])) == {"accepted"}
    assert shop.subscribe("bob", "patient", where=LONG + " or amount = 1")  # who needs one waits for its turn


# -- what is refused ------------------------------------------------------------------------------------------


def test_who_sends_much_that_is_refused_waits_before_more_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "MAX_PAUSE", 0.01)
    many = [event(f"{n}", "$x = 1 or " * 90 + "$x = 2") for n in range(200)]
    with serving(tmp_path / "shop", limits__refused_per_minute="100KB") as shop:
        assert codes(publish(shop, "bob", many)) == {"publish-denied"}
        answer = publish(shop, "bob", many)
        assert (answer.status_code, answer.json()["code"]) == (503, "too-busy")
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["connection"] == "close"
        assert "has sent as much that was refused as it may" in answer.json()["detail"]
        assert "limits.refused_per_minute" in answer.json()["remedy"]
        assert codes(publish(shop, "bob", many[:1])) == {"publish-denied"}  # what is small is read
        assert codes(publish(shop, "till", many)) == {"accepted"}  # and what others send
        assert codes(publish(shop, "till", many)) == {"duplicate"}
        socket = shop.socket("bob")
        socket.say("publish", ref="1", events=many)
        assert socket.hear("problem")["code"] == "too-busy"
        socket.close()
