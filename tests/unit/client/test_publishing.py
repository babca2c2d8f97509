"""Publishing once, in order, however often it has to be sent."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.client import Client, EventsRefused, Unreachable, aio
from headgate.client.publishing import chunks, encode
from headgate.model.errors import BadDefinition, PublishDenied, TypeMismatch, UnknownType
from strategies.standin import HASTY, QUICK, SALE, StandIn, World


def items(world: World) -> list[Any]:
    return [one["data"]["item"] for one in world.events]


def test_one_event(client: Client, world: World) -> None:
    when = datetime(2026, 1, 1, 9, tzinfo=UTC)
    result = client.publish(SALE, {"item": "tea", "at": when, "raw": b"\x00\xff"})
    assert result.status == "accepted"
    assert world.events[0]["data"] == {"item": "tea", "at": "2026-01-01T09:00:00Z", "raw": "00ff"}
    assert world.events[0]["id"] == result.id
    assert world.events[0]["source"].startswith("did:key:")


def test_the_same_id_is_stored_once(client: Client, world: World) -> None:
    assert client.publish(SALE, {"item": "tea"}, id="1", source="/a").status == "accepted"
    assert client.publish(SALE, {"item": "tea"}, id="1", source="/a").status == "duplicate"
    assert client.publish(SALE, {"item": "tea"}, id="1", source="/b").status == "accepted"
    assert len(world.events) == 2


def test_a_lost_answer_does_not_store_twice(client: Client, world: World) -> None:
    world.lose_answers = 2
    assert client.publish(SALE, {"item": "tea"}).status == "duplicate"
    assert items(world) == ["tea"]


def test_refusals_are_raised_as_their_class(client: Client) -> None:
    with pytest.raises(PublishDenied):
        client.publish(SALE, {"item": "forbidden"})
    with pytest.raises(UnknownType):
        client.publish("shop.None", {"item": "x"})


def test_values_that_json_would_garble_are_refused_here(client: Client, world: World) -> None:
    for bad in (float("nan"), float("inf"), datetime(2026, 1, 1), object(), [1]):  # noqa: DTZ001
        with pytest.raises(TypeMismatch):
            client.publish(SALE, {"item": bad})
    not_a_mapping: Any = ["item", "tea"]
    for data in (not_a_mapping, {"item": "\ud83d"}):
        with pytest.raises(TypeMismatch):
            client.publish(SALE, data)
    assert world.events == []


def test_many_events_answer_one_by_one_in_order(client: Client, world: World) -> None:
    world.lose_answers = 1
    events: list[Any] = [(SALE, {"item": str(n)}) for n in range(25)]
    events[7] = {"type": SALE, "data": {"item": "forbidden"}, "id": "seven"}
    results = client.publish_many(events, size=10)
    assert [r.status for r in results[10:]] == ["accepted"] * 15
    assert isinstance(results[7].refusal, PublishDenied)
    assert (results[7].id, results[7].stored, results[8].stored) == ("seven", False, True)
    assert items(world) == [str(n) for n in range(25) if n != 7]
    assert client.publish_many([]) == []


def test_a_batch_that_is_too_large_is_halved(client: Client, world: World) -> None:
    world.too_large = 3
    assert len(client.publish_many([(SALE, {"item": str(n)}) for n in range(10)])) == 10
    assert items(world) == [str(n) for n in range(10)]
    bulk = client.publish_arrow(SALE, pa.table({"item": [str(n) for n in range(9)] + ["forbidden"]}))
    assert (bulk.accepted, list(bulk.refused)) == (9, [9])


def test_malformed_items(client: Client) -> None:
    for bad in ({"type": SALE}, {"type": SALE, "data": {}, "when": 1}):
        with pytest.raises(BadDefinition):
            client.publish_many([bad])


def test_chunks_are_bounded_in_events_and_bytes() -> None:
    small = [encode(SALE, {}, str(n), "s") for n in range(7)]
    assert [len(c) for c in chunks(small, 3)] == [3, 3, 1]
    large = [encode(SALE, {"item": "x" * 3_000_000}, str(n), "s") for n in range(3)]
    assert [len(c) for c in chunks(large, 100)] == [1, 1, 1]


def test_arrow(client: Client, world: World) -> None:
    table = pa.table({"id": ["a", "b", "c", "a"], "item": ["tea", "forbidden", "rum", "tea"], "amount": [1.0, 2, 3, 1]})
    world.lose_answers = 1
    again = client.publish_arrow(SALE, table)
    assert (again.accepted, again.duplicates) == (0, 3)
    assert {row: error.code for row, error in again.refused.items()} == {1: "publish-denied"}
    assert items(world) == ["tea", "rum"]
    made_up = client.publish_arrow(SALE, table.drop_columns(["id"]))
    assert made_up.accepted == 3


def test_a_batch_gathers_in_order(client: Client, world: World) -> None:
    with client.batch(size=10, linger=0.01) as batch:
        for n in range(95):
            batch.add(SALE, {"item": str(n)})
        batch.flush()
        assert batch.accepted == 95
        batch.add(SALE, {"item": "last"})
    assert items(world) == [*map(str, range(95)), "last"]
    assert batch.accepted == 96


def test_a_batch_sends_after_its_linger(client: Client, world: World) -> None:
    with client.batch(size=1000, linger=0.01) as batch:
        batch.add(SALE, {"item": "tea"})
        for _ in range(500):
            if world.events:
                break
            time.sleep(0.01)
        assert items(world) == ["tea"]


def test_a_batch_tells_of_refusals(client: Client) -> None:
    batch = client.batch()
    batch.add(SALE, {"item": "forbidden"})
    batch.add(SALE, {"item": "tea"})
    with pytest.raises(EventsRefused) as caught:
        batch.close()
    assert caught.value.count == 1
    assert isinstance(caught.value.refusals[0], PublishDenied)
    told: list[str] = []
    with client.batch(on_refused=lambda one: told.append(one.id)) as batch:
        batch.add(SALE, {"item": "forbidden"}, id="7")
    assert told == ["7"]
    assert (batch.refused, batch.accepted) == (1, 0)


def test_an_error_in_between_is_not_hidden_by_refusals(client: Client, world: World) -> None:
    def fail() -> None:
        with client.batch() as batch:
            batch.add(SALE, {"item": "forbidden"})
            batch.add(SALE, {"item": "tea"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert items(world) == ["tea"]


def test_a_batch_that_cannot_be_sent_says_so(gateway: StandIn, directory: Path) -> None:
    async def story() -> None:
        client = await aio.connect.from_directory(directory, "till", requests=HASTY)
        batch = client.batch(size=2, linger=0)
        await batch.add(SALE, {"item": "tea"})
        await batch.flush()
        await asyncio.to_thread(gateway.stop)

        async def go_on() -> None:
            for _ in range(10_000):
                await batch.add(SALE, {"item": "tea"})

        with pytest.raises(Unreachable):
            await go_on()
        with pytest.raises(Unreachable):
            await batch.close()
        await client.close()

    asyncio.run(story())


def test_a_change_is_not_repeated_when_its_answer_is_lost(client: Client, world: World) -> None:
    assert client.change([{"op": "remove-rule", "id": "r"}], expect=3, note="why") == 1
    assert world.changes == [{"changes": [{"op": "remove-rule", "id": "r"}], "expect": 3, "note": "why"}]
    world.lose_answers = 1
    with pytest.raises(Unreachable, match="perhaps"):
        client.change([{"op": "remove-rule", "id": "r"}])
    assert len(world.changes) == 2


def test_types_advertisements_and_the_rest(client: Client, world: World) -> None:
    assert [one.name for one in client.types()] == [SALE]
    assert client.declare_type("shop.Return", {"item": "string"}, key=["item"]).key == ["item"]
    client.retire_type("shop.Return")
    with pytest.raises(UnknownType):
        client.type("shop.Return")
    assert client.advertise(SALE).wanted is True
    assert [one.type for one in client.advertisements()] == [SALE]
    client.unadvertise(SALE)
    assert client.restriction_publish(SALE)["reason"] is None
    assert client.restriction_subscribe(SALE)["types"][0]["hidden"] == ["card"]
    assert [one.version for one in client.versions()] == [1, 2, 3]
    assert client.reserve("r", SALE, 60).type == SALE
    assert client.reserve("r", None, 60, expression="$Sale(i, a)").expression == "$Sale(i, a)"
    client.release("r")


def test_asynchronously(gateway: StandIn, directory: Path, world: World) -> None:
    async def story() -> None:
        async with aio.connect.from_directory(directory, "till", requests=QUICK) as client:
            await asyncio.gather(*(client.publish(SALE, {"item": str(n)}) for n in range(20)))
            async with client.batch(size=5) as batch:
                await batch.add(SALE, {"item": "x"})
            assert batch.accepted == 1

    asyncio.run(story())
    assert len(world.events) == 21
    assert world.requests.count("POST /v1/sessions") == 1
