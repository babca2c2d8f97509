"""Feeds: each reader sees exactly its list, whatever is acknowledged, restarted, trimmed or evicted meanwhile."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headgate.commands.delivery.delivery_follower import DeliveryFollower, OutgoingDelivery
from headgate.commands.delivery.delivery_reader import Archive, Closed, DeliveryGap, Feed
from headgate.commands.publishing.local import LocalPublisher
from headgate.decide.deliver import decide
from headgate.model.changes import Batch, Change, Unsubscribe, Withdraw
from headgate.model.events import Event
from headgate.model.rights import Action, Subscription
from headgate.model.state import ADMINISTRATOR
from headgate.node.cursors import Ack, Cursors
from headgate.node.domain import Domain, Follower
from headgate.trust.positions import Positions
from strategies.deciding import ALL, Decider
from strategies.running import examples
from strategies.small import LANE, NOON, WORLD, draft, grant, is_, wish

LIVE, PAST, SOME = "live", "past", "some"
"""A subscription from now on, one with history, and one with a filter."""


@dataclass
class Reader:
    """A reader with what it should and did see since it connected."""

    id: str
    feed: Feed
    begun: dict[str, int]
    seen: list[OutgoingDelivery] = field(default_factory=list)
    gaps: dict[str, int] = field(default_factory=dict)
    closed: bool = False


class Node:
    """A domain, a pipeline in process, and the parts of a gateway that deliver."""

    def __init__(self, directory: Path, cache: int) -> None:
        self.domain = Domain.create(directory)
        self.events: list[Event] = []
        self.commit(*WORLD, *(grant(f"g-{who}", who) for who in ("anna", "bob")))
        self.commit(grant("pub", "cam", may=(Action.PUBLISH,)))
        self.decider = Decider(self.domain)
        self.publisher = LocalPublisher(self.domain, advertise=False)
        self.follower = Follower(self.domain)
        self.positions = Positions(bytes(16))
        self.cursors = Cursors(directory / Cursors.FILE)
        store = self.domain.paths.deliveries
        self.tail = DeliveryFollower(store, self.follower, self.positions, cache)
        self.tail.open()
        self.archive = Archive(store, self.follower, self.positions)

    def close(self) -> None:
        self.tail.stop()
        for part in (self.archive, self.cursors, self.follower, self.decider, self.domain):
            part.close()

    def commit(self, *changes: Change, author: str = ADMINISTRATOR) -> int:
        return self.domain.commit(Batch(author, changes))

    def subscribe(self, id: str) -> Subscription:
        where = {"where": is_(LANE, 1)} if id == SOME else {}
        self.commit(wish(id, "anna", history=id == PAST, **where))
        self.follower.refresh()
        found = self.follower.subscription(id)
        assert found is not None
        return found

    def publish(self, stream: str, lanes: list[int]) -> None:
        drafts = [draft(plate=f"P{at}", lane=lane) for at, lane in enumerate(lanes)]
        drafts = [replace(one, id=f"e{len(self.events) + at}") for at, one in enumerate(drafts)]
        for answer in self.publisher.publish_all(drafts, stream=stream, now=NOON):
            assert answer.event is not None
            self.events.append(answer.event)

    def poll(self) -> None:
        for reached, portion in self.tail.poll():
            self.tail.take(reached, portion)

    def open(self, subscription: Subscription, after: dict[str, int] | None = None) -> Reader:
        acked = self.cursors.acked(subscription.id, subscription.first)
        feed = Feed(
            subscription,
            self.follower.number(subscription.id),
            acked,
            tail=self.tail,
            archive=self.archive,
            known=self.follower,
            run=_run,
            after=after or {},
        )
        begun = {s: max(acked.get(s, 0), (after or {}).get(s, 0)) for s in {*acked, *(after or {})}}
        return Reader(subscription.id, feed, begun)

    def read(self, reader: Reader, limit: int = 1_000, room: int = 2**20) -> None:
        """Read once, without waiting."""
        step = asyncio.run(reader.feed.next(limit, 0.0, room))
        match step:
            case DeliveryGap(places):
                reader.gaps.update(places)
                self.cursors.ack_many([Ack(reader.id, reader.feed.subscription.first, places)], NOON)
            case Closed():
                reader.closed = True
            case _:
                assert len(step) <= limit
                reader.seen += step

    def read_all(self, reader: Reader) -> None:
        for _ in range(200):
            before = len(reader.seen), len(reader.gaps)
            self.read(reader)
            if reader.closed or ((len(reader.seen), len(reader.gaps)) == before and reader.feed.current):
                return

    def ack(self, reader: Reader, upto: int) -> None:
        """Acknowledge the first so many deliveries of a reader."""
        subscription = reader.feed.subscription
        places: dict[str, int] = {}
        for one in reader.seen[:upto]:
            number, seq = self.positions.open(one.position, reader.feed.number)
            assert (self.follower.stream_name(number), seq) == (one.stream, one.seq)
            places[one.stream] = seq
        self.cursors.ack_many([Ack(subscription.id, subscription.first, places)], NOON)
        reader.feed.acknowledged(places)

    def expected(self, subscription: Subscription) -> dict[str, list[int]]:
        """What `decide` gives the subscription, by stream, as far as the tail has come."""
        found: dict[str, list[int]] = {}
        state = lru_cache(self.domain.ledger.state)
        for event in self.events:
            if event.seq <= self.tail.reached.streams.get(event.stream, 0) and decide(event, subscription, state, {}):
                found.setdefault(event.stream, []).append(event.seq)
        return found


async def _run(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


@contextmanager
def node(cache: int = 2**26) -> Iterator[Node]:
    with tempfile.TemporaryDirectory() as directory:
        made = Node(Path(directory) / "data", cache)
        try:
            yield made
        finally:
            made.close()


def seen(reader: Reader) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in reader.seen:
        found.setdefault(one.stream, []).append(one.seq)
    return found


def check(node: Node, reader: Reader, *, whole: bool) -> None:
    """Did the reader see its list, from where it began, but for what a gap told it of?"""
    got, trimmed = seen(reader), node.decider.store.trimmed()
    subscription = reader.feed.subscription
    starts = node.follower.starts(subscription.first)
    for stream, list_ in node.expected(subscription).items():
        mine, begun = got.get(stream, []), reader.begun.get(stream)
        assert mine == sorted(set(mine))
        wanted = [seq for seq in list_ if seq > (begun or 0)]
        lost = [seq for seq in wanted if seq not in mine and (whole or seq < max(mine, default=0))]
        assert set(mine) <= set(wanted)
        for seq in lost:
            assert seq <= trimmed.get(stream, 0)
            history_cut = begun is None and seq < starts.get(stream, 2**62)
            assert seq <= reader.gaps.get(stream, 0) or history_cut, "lost without a word"


Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ("publish", "publish", "publish", "decide", "poll", "read", "read", "ack", "again", "trim", "second")
        ),
        st.integers(0, 5),
        st.integers(0, 9),
    ),
    min_size=5,
    max_size=30,
)


@examples(15)
@given(steps, st.sampled_from((0, 3_000, 2**26)))
def test_every_reader_sees_exactly_its_list(story: list[Step], cache: int) -> None:
    with node(cache) as it:
        it.publish("a", [1, 2])
        subscriptions = [it.subscribe(id) for id in (LIVE, PAST, SOME)]
        readers = [it.open(one) for one in subscriptions]
        old: list[Reader] = []
        for what, which, size in story:
            reader = readers[which % len(readers)]
            match what:
                case "publish":
                    it.publish("ab"[which % 2], [n % 3 for n in range(size + 1)])
                case "decide":
                    it.decider.step(size or ALL)
                case "poll":
                    it.poll()
                case "read":
                    it.read(reader, size + 1, 200 if which % 2 else 2**20)
                case "ack":
                    it.ack(reader, len(reader.seen) - size // 3)
                case "again":
                    old.append(reader)
                    reader.feed.close()
                    readers[which % len(readers)] = it.open(reader.feed.subscription)
                case "trim":
                    stream = "ab"[which % 2]
                    it.decider.store.trim(stream, it.decider.store.reached().streams.get(stream, 0) - size)
                case "second" if len(readers) < 6:
                    readers.append(it.open(reader.feed.subscription))
        it.decider.step()
        it.poll()
        for reader in readers:
            it.read_all(reader)
            check(it, reader, whole=True)
        for reader in old:
            check(it, reader, whole=False)


def test_nothing_is_read_before_history_is_whole() -> None:
    with node() as it:
        it.publish("a", [1, 1])
        it.decider.step()
        it.poll()
        reader = it.open(it.subscribe(PAST))
        it.publish("a", [1])
        it.poll()
        it.read(reader)
        assert reader.seen == []
        it.decider.step()
        it.poll()
        it.read_all(reader)
        assert seen(reader) == {"a": [1, 2, 3]}


def test_a_backlog_that_is_decided_later_is_history_too() -> None:
    with node() as it:
        for _ in range(5):
            it.publish("a", [1])
        reader = it.open(it.subscribe(PAST))
        for _ in range(5):
            it.publish("a", [1])
        for _ in range(12):
            it.decider.step(1)
            it.poll()
            it.read(reader)
            it.read(reader)
        assert seen(reader) == {"a": list(range(1, 11))}


def test_a_closed_subscription_still_gives_what_came_before() -> None:
    with node() as it:
        reader = it.open(it.subscribe(LIVE))
        it.publish("a", [1, 1])
        it.commit(Unsubscribe(LIVE))
        it.publish("a", [1])
        it.follower.refresh()
        it.read(reader)
        assert not reader.closed
        it.decider.step()
        it.poll()
        it.read_all(reader)
        assert seen(reader) == {"a": [1, 2]}
        assert reader.closed


def test_what_was_withdrawn_is_passed_over() -> None:
    with node() as it:
        subscription = it.subscribe(LIVE)
        reader, late = it.open(subscription), it.open(subscription)
        it.publish("a", [1, 1])
        it.decider.step()
        it.poll()
        it.read(reader, 1)
        it.commit(Withdraw("anna"))
        it.follower.refresh()
        it.publish("a", [1])
        it.decider.step()
        it.poll()
        it.read_all(reader)
        it.read_all(late)
        assert seen(reader) == {"a": [1, 3]}
        assert seen(late) == {"a": [3]}


def test_the_places_of_one_who_gets_little_still_move() -> None:
    with node() as it:
        subscription = it.subscribe(SOME)
        reader = it.open(subscription)
        it.publish("a", [1, 2, 2, 2])
        it.decider.step()
        it.poll()
        it.read_all(reader)
        assert seen(reader) == {"a": [1]}
        assert reader.feed.done_with() == {}  # the first is not acknowledged yet
        it.ack(reader, 1)
        assert reader.feed.done_with() == {"a": 4}
        skipping = it.open(subscription, after={"a": 3})
        it.read_all(skipping)
        assert skipping.feed.done_with() == {}


def test_a_place_that_another_gateway_is_ahead_with_is_not_read_again() -> None:
    with node() as it:
        subscription = it.subscribe(LIVE)
        it.publish("a", [1, 1])
        it.decider.step()  # the other gateway has seen this, and this one has not
        reader = it.open(subscription, after={"a": 2})
        it.read(reader)
        it.poll()
        it.publish("a", [1])
        it.decider.step()
        it.poll()
        it.read_all(reader)
        assert seen(reader) == {"a": [3]}


def test_a_gap_is_told_once() -> None:
    with node(0) as it:
        subscription = it.subscribe(LIVE)
        for _ in range(4):
            it.publish("a", [1])
        it.decider.step()
        it.poll()
        it.decider.store.trim("a", 2)
        reader = it.open(subscription)
        it.read_all(reader)
        assert (reader.gaps, seen(reader)) == ({"a": 2}, {"a": [3, 4]})
        again = it.open(subscription)
        it.read_all(again)
        assert (again.gaps, seen(again)) == ({}, {"a": [3, 4]})


def test_next_waits_for_what_comes() -> None:
    with node() as it:
        reader = it.open(it.subscribe(LIVE))

        async def story() -> list[OutgoingDelivery]:
            waiting = asyncio.create_task(reader.feed.next(10, 30.0))
            await asyncio.sleep(0)
            it.publish("a", [1])
            it.decider.step()
            it.poll()
            found = await waiting
            assert isinstance(found, list)
            return found

        (found,) = asyncio.run(story())
        event = json.loads(found.event)
        assert event["hgposition"] == found.position
        assert event["data"] == {"plate": "P0", "speed": None, "lane": 1}


@pytest.mark.parametrize("cache", [0, 2**26])
def test_a_limit_in_bytes_lets_one_through(cache: int) -> None:
    with node(cache) as it:
        reader = it.open(it.subscribe(LIVE))
        it.publish("a", [1, 1, 1])
        it.decider.step()
        it.poll()
        for count in (1, 2, 3):
            it.read(reader, 10, 1)
            assert len(reader.seen) == count
