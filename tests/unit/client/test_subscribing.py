"""Reading a subscription over sockets that break, move and lie."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate.client import Client, ClientClosed, Gap, Refused, SubscriptionEnded, Unreachable, aio, connect
from headgate.client.sync import Subscription
from headgate.model.errors import BadDefinition, ConnectDenied, NotFound, StorageBusy
from strategies.standin import HASTY, QUICK, SALE, StandIn, World

Start = Callable[..., StandIn]


def fill(world: World, count: int, first: int = 0) -> None:
    for n in range(first, first + count):
        event = {"specversion": "1.0", "id": str(n), "source": "s", "type": SALE, "data": {"item": n}}
        world.store("till", event)


def read(sub: Subscription, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        one = sub.next(timeout=10)
        assert one is not None, f"only {found}"
        found.append(one.data["item"])
    return found


@pytest.fixture
def reader(gateway: StandIn, directory: Path) -> Iterator[Client]:
    with connect.from_directory(directory, "ann", requests=QUICK, sockets=QUICK) as made:
        yield made


def test_deliveries(reader: Client, world: World) -> None:
    sub = reader.subscribe("mine", SALE, from_="start")
    fill(world, 3)
    one = sub.next(timeout=10)
    assert one is not None
    assert (one.id, one.type, one.publisher, one.source) == ("0", SALE, "till", "s")
    assert one.time is not None
    assert one.time.year == 2026
    assert len(one.position) == 22
    assert read(sub, 2) == [1, 2]
    assert sub.next(timeout=0.05) is None


def test_it_is_an_iterator_that_ends_when_closed(reader: Client, world: World) -> None:
    fill(world, 5)
    found = []
    sub = reader.subscribe("mine", SALE, from_="start")
    for one in sub:
        found.append(one.data["item"])
        if len(found) == 5:
            sub.close()
    assert found == [0, 1, 2, 3, 4]


def test_auto_acknowledges_when_the_next_is_asked_for(reader: Client, world: World) -> None:
    fill(world, 5)
    with reader.subscribe("mine", SALE, from_="start") as sub:
        assert read(sub, 3) == [0, 1, 2]
    assert world.subscriptions["mine"].cursor == 2
    with reader.subscribe("mine", SALE, from_="start") as sub:
        assert read(sub, 3) == [2, 3, 4]
        sub.ack()
        assert world.subscriptions["mine"].cursor == 5


def test_manual_acknowledges_what_was_said(reader: Client, world: World) -> None:
    fill(world, 5)
    with reader.subscribe("mine", SALE, from_="start", ack="manual") as sub:
        deliveries = [sub.next(timeout=10) for _ in range(4)]
        assert deliveries[1] is not None
        deliveries[1].ack()
    assert world.subscriptions["mine"].cursor == 2
    with reader.resume("mine", ack="manual") as sub:
        assert read(sub, 3) == [2, 3, 4]
    assert world.subscriptions["mine"].cursor == 2


def test_breaks_repeat_nothing_and_lose_nothing(reader: Client, world: World) -> None:
    world.drop_after = [7, 1, 30, 2, 55]
    fill(world, 200)
    sub = reader.subscribe("mine", SALE, from_="start", ack="manual")
    assert read(sub, 200) == list(range(200))
    assert sub.next(timeout=0.05) is None


def test_breaks_in_the_middle_of_acknowledging(reader: Client, world: World) -> None:
    world.drop_after = [3] * 20
    fill(world, 40)
    sub = reader.subscribe("mine", SALE, from_="start", window=4)
    assert read(sub, 40) == list(range(40))
    sub.ack()
    assert world.subscriptions["mine"].cursor == 40


def test_another_gateway_takes_over(start: Start, gateway: StandIn, directory: Path) -> None:
    second = start()
    with connect.from_directory(directory, "ann", requests=QUICK, sockets=QUICK) as reader:
        fill(gateway.world, 10)
        sub = reader.subscribe("mine", SALE, from_="start")
        assert read(sub, 10) == list(range(10))
        assert (gateway.sockets, second.sockets) == (1, 0)
        stopping = threading.Thread(target=gateway.stop)
        stopping.start()
        fill(gateway.world, 10, first=10)
        assert read(sub, 10) == list(range(10, 20))
        stopping.join()
        assert second.sockets >= 1


def test_the_end_of_a_session_is_only_a_new_connection(reader: Client, world: World) -> None:
    world.drop_after, world.close_codes = [2], [4401]
    fill(world, 5)
    before = world.requests.count("POST /v1/sessions")
    assert read(reader.subscribe("mine", SALE, from_="start"), 5) == [0, 1, 2, 3, 4]
    assert world.requests.count("POST /v1/sessions") == before + 1


def test_losing_the_right_to_connect_is_raised(reader: Client, world: World) -> None:
    world.drop_after, world.close_codes = [2], [4403]
    fill(world, 5)
    sub = reader.subscribe("mine", SALE, from_="start")
    assert read(sub, 2) == [0, 1]
    with pytest.raises(ConnectDenied):
        sub.next(timeout=10)


def test_refused_sockets(reader: Client, world: World) -> None:
    fill(world, 1)
    world.refuse_sockets = [503, 503, 401]
    assert read(reader.subscribe("mine", SALE, from_="start"), 1) == [0]
    with connect.from_directory(world.files.directory, "ann", requests=QUICK, sockets=QUICK) as other:
        world.refuse_sockets = [403]
        with pytest.raises(ConnectDenied):
            other.subscribe("other", SALE).next(timeout=10)


def test_what_a_gateway_cannot_do_now_is_asked_again(reader: Client, world: World) -> None:
    world.busy_frames = {"open": 3, "ack": 3}
    fill(world, 40)
    sub = reader.subscribe("mine", SALE, from_="start", window=4)
    assert read(sub, 40) == list(range(40))
    sub.ack()
    assert world.subscriptions["mine"].cursor == 40
    assert world.busy_frames == {"open": 0, "ack": 0}


@pytest.mark.parametrize("frame", ["open", "ack"])
def test_but_not_for_ever(gateway: StandIn, world: World, directory: Path, frame: str) -> None:
    fill(world, 10)
    with connect.from_directory(directory, "ann", requests=HASTY, sockets=HASTY) as reader:
        sub = reader.subscribe("mine", SALE, from_="start")
        world.busy_frames = {frame: 10**9}

        def work() -> None:
            for _ in range(20):
                sub.next(timeout=10)
                sub.ack()

        with pytest.raises(StorageBusy, match="not now"):
            work()
    assert gateway.sockets > 1


def test_no_gateway_in_time(gateway: StandIn, directory: Path) -> None:
    with connect.from_directory(directory, "ann", requests=HASTY, sockets=HASTY) as reader:
        sub = reader.subscribe("mine", SALE)
        fill(gateway.world, 1)
        assert read(sub, 1) == [0]
        gateway.stop()
        with pytest.raises(Unreachable):
            sub.next(timeout=10)


def test_a_gap_is_told_and_reading_goes_on(reader: Client, world: World) -> None:
    world.gap_at = 3
    fill(world, 5)
    sub = reader.subscribe("mine", SALE, from_="start")
    assert read(sub, 3) == [0, 1, 2]
    with pytest.raises(Gap):
        sub.next(timeout=10)
    assert read(sub, 2) == [3, 4]


def test_a_subscription_that_ends(reader: Client, world: World) -> None:
    fill(world, 2)
    sub = reader.subscribe("mine", SALE, from_="start")
    assert read(sub, 2) == [0, 1]
    reader.unsubscribe("mine")
    with pytest.raises(SubscriptionEnded) as caught:
        sub.next(timeout=10)
    assert caught.value.reason == "not-found"


def test_closing_and_opening_again_on_the_same_socket(reader: Client, gateway: StandIn, world: World) -> None:
    fill(world, 300)
    keeps_it_open = reader.subscribe("other", SALE)
    for first in (0, 2, 4):
        with reader.subscribe("mine", SALE, from_="start", window=50) as sub:
            assert read(sub, 3) == [first, first + 1, first + 2]
    assert gateway.sockets == 1
    keeps_it_open.close()


def test_temporary_subscriptions_end_with_their_reader(reader: Client, world: World) -> None:
    with reader.subscribe(None, SALE, temporary=True) as sub:
        assert list(world.subscriptions) == [sub.id]
    assert world.subscriptions == {}


def test_a_temporary_subscription_that_ended_meanwhile_is_made_again(reader: Client, world: World) -> None:
    fill(world, 3)
    world.drop_after = [2]
    world.forget_dropped = True
    sub = reader.subscribe("t", SALE, from_="start", temporary=True)
    assert read(sub, 2) == [0, 1]
    with pytest.raises(Gap, match="made again"):
        sub.next(timeout=10)
    assert read(sub, 3) == [0, 1, 2]  # another subscription, from the start again
    assert world.numbers == 2


def test_a_slow_reader_holds_no_more_than_its_window(reader: Client, world: World) -> None:
    fill(world, 100)
    sub = reader.subscribe("mine", SALE, from_="start", window=10)
    assert read(sub, 100) == list(range(100))
    assert sum(world.credits) <= 100
    assert max(world.credits) <= 10


def test_many_subscriptions_share_a_socket(reader: Client, gateway: StandIn, world: World) -> None:
    world.drop_after = [25]
    subs = [reader.subscribe(f"s{n}", SALE, from_="start") for n in range(8)]
    fill(world, 10)
    for sub in subs:
        assert read(sub, 10) == list(range(10))
    assert gateway.sockets == 2
    with pytest.raises(Refused, match="already"):
        reader.subscribe("s1", SALE, from_="start")


def test_lookups_and_listing(reader: Client, world: World) -> None:
    fill(world, 3)
    entries, sub = reader.lookup("board", SALE)
    assert sorted(one.data["item"] for one in entries) == [0, 1, 2]
    entries[0].ack()  # nothing to acknowledge, and no harm
    fill(world, 1, first=3)
    assert read(sub, 1) == [3]
    assert [one.id for one in reader.subscriptions()] == ["board"]
    assert reader.restriction("board")["satisfiable"] is True
    with pytest.raises(NotFound):
        reader.resume("other")


def test_bad_beginnings(reader: Client) -> None:
    for bad in ("yesterday", True, 1.5):
        with pytest.raises(BadDefinition):
            reader.subscribe("mine", SALE, from_=bad)  # type: ignore[arg-type]
    with pytest.raises(BadDefinition):
        reader.subscribe("mine", SALE, ack="never")  # type: ignore[arg-type]


def test_where_it_begins_is_said(reader: Client, world: World) -> None:
    reader.subscribe("a", SALE, "amount > 1", 3)
    reader.subscribe("b", SALE, from_=datetime(2026, 1, 1, tzinfo=UTC))
    assert world.subscriptions["a"].body == {
        "type": SALE,
        "where": "amount > 1",
        "from": {"version": 3},
        "temporary": False,
    }
    assert world.subscriptions["b"].body["from"] == {"time": "2026-01-01T00:00:00Z"}


def test_watching_what_is_wanted(client: Client, world: World) -> None:
    client.advertise(SALE)
    world.drop_after = []
    with client.watch([SALE]) as watch:
        assert next(watch) == (SALE, True)
        world.wanted[SALE] = False
        assert next(watch) == (SALE, False)
        client.advertise("shop.Other")
        with client.watch(["shop.Other"]) as other:
            assert next(other) == ("shop.Other", True)
            world.wanted[SALE] = True
            assert next(watch) == (SALE, True)


def test_closing_the_client_ends_its_readers(gateway: StandIn, directory: Path) -> None:
    async def story() -> None:
        client = await aio.connect.from_directory(directory, "ann", requests=QUICK)
        sub = await client.subscribe("mine", SALE)
        waiting = asyncio.create_task(sub.next())
        await asyncio.sleep(0.05)
        await client.close()
        with pytest.raises(ClientClosed):
            await waiting

    asyncio.run(story())


def test_asynchronously(gateway: StandIn, world: World, directory: Path) -> None:
    async def story() -> list[int]:
        found = []
        async with (
            aio.connect.from_directory(directory, "ann", requests=QUICK, sockets=QUICK) as client,
            await client.subscribe("mine", SALE, from_="start") as sub,
        ):
            async for one in sub:
                found.append(one.data["item"])
                if len(found) == 30:
                    break
        return found

    world.drop_after = [4, 9]
    fill(world, 30)
    assert asyncio.run(story()) == list(range(30))
    assert world.subscriptions["mine"].cursor == 29
