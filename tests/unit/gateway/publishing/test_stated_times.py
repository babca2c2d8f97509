"""Times that publishers state, and heartbeats, over a real gateway: HTTP, WebSocket, Arrow and the client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.client import connect
from headgate.model.changes import DeclareType, Subscribe, Unsubscribe
from headgate.model.composite import NullEvent
from headgate.model.errors import AheadOfClock, BelowHorizon, GovernDenied
from headgate.model.rights import SIGNAL, Detection, Subscription
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType, Times
from headgate.model.values import Kind, micros, parse_timestamp, render_timestamp
from strategies.serving import SALE, Served, eventually, serving

SEEN, LATE = "door.Seen", "door.Late"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node") / "shop") as made:
        kinds = {"who": Kind.STRING}
        made.commit(
            DeclareType(EventType(SEEN, ADMINISTRATOR, kinds, times=Times(stated=True, ahead=60))),
            DeclareType(EventType(LATE, ADMINISTRATOR, kinds, times=Times(stated=True, lateness=3_600))),
        )
        yield made


def event(id: str, time: datetime | str | None = None, type: str = SEEN, **data: Any) -> dict[str, Any]:
    stated = {} if time is None else {"time": time if isinstance(time, str) else render_timestamp(time)}
    return {"specversion": "1.0", "id": id, "source": "s", "type": type, "data": data or {"who": "ann"}, **stated}


def send(shop: Served, *events: dict[str, Any], who: str = "till") -> list[str]:
    told = shop.ask(
        who, "POST", "/v1/events", list(events), headers={"content-type": "application/cloudevents-batch+json"}
    )
    assert told.status_code == 200, told.text
    return [one.get("code", one["status"]) for one in told.json()["results"]]


def beat(shop: Served, until: datetime | str, who: str = "till", **more: Any) -> Any:
    body = {"until": until if isinstance(until, str) else render_timestamp(until), **more}
    return shop.ask(who, "POST", "/v1/heartbeats", body)


def now() -> datetime:
    return datetime.now(UTC)


def test_a_stated_time_is_what_subscribers_see_and_the_stamp_stays_beside_it(shop: Served) -> None:
    shop.subscribe("anna", "seen", SEEN)
    beat(shop, "1970-01-01T00:00:00Z", types=[SEEN])
    stated = now()
    assert send(shop, event("a", stated), event("b")) == ["accepted", "accepted"]
    shop.decide()
    socket = shop.socket("anna")
    socket.open("seen")
    told = {one["id"]: one for one in socket.hear("events")["events"]}
    assert parse_timestamp(told["a"]["time"]) == stated
    assert parse_timestamp(told["a"]["hgtime"]) >= stated
    assert "hgtime" not in told["b"]
    socket.close()


def test_a_time_is_ignored_by_types_that_go_by_the_gateways_clock(shop: Served) -> None:
    sale = {"item": "tea", "amount": 1.0}
    assert send(shop, event("s1", "2001-01-01T00:00:00Z", SALE, **sale), event("s2", "rubbish", SALE, **sale)) == [
        "accepted", "accepted"
    ]  # fmt: skip
    stored = next(one for one in shop.domain.events() if one.id == "s1")
    assert (stored.stated, stored.occurred) == (None, stored.time)


def test_what_is_no_time_is_before_a_promise_or_far_ahead_is_refused_alone(shop: Served) -> None:
    until = now()
    assert beat(shop, until, types=[SEEN]).status_code == 200
    told = send(
        shop,
        event("t1", until - timedelta(microseconds=1)), event("t2", "yesterday"), event("t3", until),
        event("t4", until + timedelta(hours=1)), event("t5", "2026-01-01T00:00:00"),
        event("t6", "1901-01-01T00:00:00Z"),
    )  # fmt: skip
    assert told == ["below-horizon", "type-mismatch", "accepted", "ahead-of-clock", "type-mismatch", "below-horizon"]
    beat(shop, until + timedelta(microseconds=1), types=[SEEN])
    assert send(shop, event("t3", until)) == ["duplicate"], "what was sent before is known as the same first"


def test_a_type_with_a_lateness_takes_events_as_late_as_that(shop: Served) -> None:
    send(shop, event("l0", type=LATE))  # from here on its lateness counts
    begun = shop.domain.log.horizons().joined["gateway-1", LATE][""]
    assert send(shop, event("l1", now(), LATE), event("l2", "2001-01-01T00:00:00Z", LATE)) == [
        "accepted", "below-horizon"
    ]  # fmt: skip
    times = Times(stated=True, lateness=3_600)
    assert shop.domain.log.horizons().of("gateway-1", LATE, times) >= max(begun, micros(now()) - 3_700 * 10**6)


def test_a_heartbeat_that_goes_back_changes_nothing_and_says_so(shop: Served) -> None:
    first = beat(shop, now(), types=[SEEN]).json()
    assert first["moved"]
    again = beat(shop, "2001-01-01T00:00:00Z", types=[SEEN]).json()
    assert not again["moved"]
    assert again["horizons"] == first["horizons"]
    every = beat(shop, now()).json()
    assert set(every["horizons"]) == {SEEN, LATE}, "all that it states times of"


@pytest.mark.parametrize(
    ("who", "until", "more", "code"),
    [
        ("anna", "2026-01-01T00:00:00Z", {"types": [SEEN]}, "publish-denied"),
        ("anna", "2026-01-01T00:00:00Z", {}, "publish-denied"),
        ("till", "2026-01-01T00:00:00Z", {"types": ["no.Such"]}, "unknown-type"),
        ("till", "2026-01-01T00:00:00Z", {"types": [SALE]}, "bad-request"),
        ("till", "9999-12-31T23:59:59Z", {"types": [SEEN]}, "ahead-of-clock"),
        ("till", "2026-01-01T00:00:00", {"types": [SEEN]}, "bad-request"),
        ("till", "soon", {"types": [SEEN]}, "bad-request"),
        ("till", "0001-01-01T00:00:00+09:00", {"types": [SEEN]}, "bad-request"),
        ("till", "2026-01-01T00:00:00Z", {"types": []}, "bad-request"),
        ("anna", "2026-01-01T00:00:00Z", {"for": "till"}, "govern-denied"),
        ("till", "2026-01-01T00:00:00Z", {"stream": "gateway-1"}, "govern-denied"),
    ],
)
def test_heartbeats_by_those_without_the_right_and_horizons_that_lie_are_refused(
    shop: Served, who: str, until: str, more: dict[str, Any], code: str
) -> None:
    version, promises = shop.domain.ledger.version, shop.domain.log.newest()[1]
    told = beat(shop, until, who, **more)
    assert told.status_code in (400, 403, 404, 422)
    assert told.json()["code"] == code, told.text
    assert (shop.domain.ledger.version, shop.domain.log.newest()[1]) == (version, promises)


def test_a_socket_publishes_with_times_and_promises(shop: Served) -> None:
    socket, until = shop.socket("till"), now()
    socket.say("heartbeat", until=render_timestamp(until), types=[SEEN], ref=7)
    told = socket.hear("promised")
    assert (told["ref"], told["moved"]) == (7, True)
    assert parse_timestamp(told["horizons"][SEEN]) == until
    socket.say("publish", events=[event("w1", until), event("w2", until - timedelta(seconds=1))], ref=8)
    assert [one.get("code") for one in socket.hear("published")["results"]] == [None, "below-horizon"]
    socket.say("heartbeat", until="never", ref=9)
    socket.hear("problem")
    socket.close()


def test_the_client_states_times_and_promises(shop: Served) -> None:
    with connect(f"http://127.0.0.1:{shop.port}", shop.keys["till"], broker=shop.gateway.broker.public.did) as client:
        until = now()
        assert client.heartbeat(until, [SEEN]).moved
        client.publish(SEEN, {"who": "ann"}, time=until)
        with pytest.raises(BelowHorizon):
            client.publish(SEEN, {"who": "ann"}, time=until - timedelta(seconds=1))
        with pytest.raises(AheadOfClock):
            client.publish(SEEN, {"who": "ann"}, time=until + timedelta(days=1))
        times = pa.array([until - timedelta(seconds=1), until, None], pa.timestamp("us", "UTC"))
        told = client.publish_arrow(SEEN, pa.table({"who": ["a", "b", "c"], "time": times}))
        assert (told.accepted, [error.code for error in told.refused.values()]) == (2, ["below-horizon"])
        told_of = client.type(LATE)
        assert (told_of.times, told_of.lateness, told_of.ahead) == ("publisher", 3_600, None)
        with pytest.raises(GovernDenied):
            client.declare_type("door.Own", {"n": "int"}, times="publisher", ahead=5)


def test_a_gateway_promises_its_clock_while_there_are_detections(shop: Served) -> None:
    log = shop.domain.log
    detection = Detection("null", NullEvent())
    shop.commit(Subscribe(Subscription("d", "anna", SIGNAL, detection=detection)), author="anna")
    for _ in range(2):
        begun = log.promised("gateway-1")
        eventually(lambda begun=begun: log.promised("gateway-1") > begun)  # type: ignore[misc]
    shop.commit(Unsubscribe("d"), author="anna")


def test_the_command_line_states_times_and_promises(shop: Served, tmp_path: Path) -> None:
    key, until = tmp_path / "till.pem", now()
    shop.keys["till"].save(key)
    at = ["--node", f"http://127.0.0.1:{shop.port}", "--key", str(key), "--broker", shop.gateway.broker.public.did]

    def run(*words: str, input: bytes | None = None) -> tuple[int, str]:
        told = CliRunner().invoke(app, [*words, *at], input=input)
        return told.exit_code, told.output

    assert run("heartbeat", SEEN, "--until", render_timestamp(until)) == (
        0, f"promised {SEEN} until {render_timestamp(until)}\n"
    )  # fmt: skip
    assert run("heartbeat", SEEN, "--until", "2001-01-01T00:00:00Z")[1].startswith("promised before")
    assert run("publish", SEEN, "who=ann", "--id", "c1", "--time", render_timestamp(until)) == (0, "accepted c1\n")
    code, said = run("publish", SEEN, "who=ann", "--time", "2001-01-01T00:00:00Z")
    assert (code, "below-horizon" in said) == (1, True)
    assert run("publish", SALE, "item=tea", "--time", "2001-01-01T00:00:00Z")[0] != 0
    lines = b'{"who": "a", "time": "%s"}\n{"who": "b"}\n{"who": "c", "time": "2001-01-01T00:00:00Z"}\n{"time": 5}\n'
    code, said = run("publish", SEEN, "--from", "-", input=lines % render_timestamp(until).encode())
    assert (code, "2 accepted" in said, "below-horizon" in said, "is no time" in said) == (1, True, True, True)
    file = tmp_path / "seen.csv"
    file.write_text(f"who,seen\na,{render_timestamp(until)}\nb,\n")
    code, said = run("publish", SEEN, "--from", str(file), "--time-column", "seen")
    assert (code, "2 accepted" in said) == (0, True), said
