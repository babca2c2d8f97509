"""Portions and the tail: events as they go out, woken readers, and bounded memory."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from headgate.commands.delivery.delivery_follower import DeliveryFollower, KeptBatch, Portion
from headgate.commands.delivery.encoding import event_fragments
from headgate.commands.publishing.local import LocalPublisher
from headgate.model.changes import Batch, Change, DeclareType
from headgate.model.events import Event
from headgate.model.rights import Action
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import Catalog, EventType
from headgate.model.values import EPOCH, Kind, Value, micros, plain
from headgate.node.domain import Domain, Follower
from headgate.pipeline.deliveries import DeliveryBlob, blobs
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.index.index import Types
from headgate.pipeline.log.codec import LogBatch, event_batch, layouts
from headgate.pipeline.match import Matches
from headgate.trust.positions import Positions
from strategies.deciding import Decider
from strategies.memory import MemoryLedger
from strategies.running import examples
from strategies.small import SEEN, WORLD, draft, grant, wish
from strategies.stored import encode

POSITIONS = Positions(bytes(range(16)))


class Heard:
    """A listener that counts."""

    def __init__(self) -> None:
        self.kept: list[KeptBatch | None] = []
        self.fell: list[Mapping[str, int]] = []

    def wake(self, kept: KeptBatch | None) -> None:
        self.kept.append(kept)

    def fall_back(self, at: Mapping[str, int]) -> None:
        self.fell.append(at)


class Road:
    """A domain with its pipeline and a tail."""

    def __init__(self, directory: Path) -> None:
        self.domain = Domain.create(directory)
        self.commit(*WORLD, grant("g", "anna"), grant("h", "bob", attributes=("plate",)))
        self.commit(grant("pub", "cam", may=(Action.PUBLISH,)), wish("s0", "anna"), wish("s1", "bob"))
        self.follower = Follower(self.domain)
        self.decider = Decider(self.domain)
        self.publisher = LocalPublisher(self.domain, advertise=False)
        self.ids = itertools.count()

    def commit(self, *changes: Change) -> None:
        self.domain.commit(Batch(ADMINISTRATOR, changes))

    def tail(self, cache: int = 2**26) -> DeliveryFollower:
        made = DeliveryFollower(self.domain.paths.deliveries, self.follower, POSITIONS, cache)
        made.open()
        return made

    def publish(self, *plates: str, **more: Any) -> None:
        drafts = [draft(plate=plate, speed=7, **more) for plate in plates]
        for answer in self.publisher.publish_all([replace(one, id=f"e{next(self.ids)}") for one in drafts]):
            assert answer.refusal is None
        self.decider.step()

    def close(self) -> None:
        self.decider.close()
        self.follower.close()
        self.domain.close()


@pytest.fixture
def road(tmp_path: Path) -> Iterator[Road]:
    made = Road(tmp_path / "d")
    yield made
    made.close()


def poll(tail: DeliveryFollower) -> None:
    for reached, portion in tail.poll():
        tail.take(reached, portion)


def data(portion: Portion, number: int, **after: int) -> list[dict[str, Any]]:
    found, whole = portion.read(number, after, limit=1_000, room=2**30)
    assert whole
    return [json.loads(one.event) for one in found]


def test_exactly_those_who_have_something_are_woken(road: Road) -> None:
    tail = road.tail()
    anna, bob, nobody, restless = (Heard() for _ in range(4))
    tail.listen(0, anna)
    tail.listen(1, bob)
    tail.listen(7, nobody)
    tail.watch(restless, True)
    road.publish("A1", "A2")
    poll(tail)
    assert (len(anna.kept), len(bob.kept), len(nobody.kept), len(restless.kept)) == (1, 1, 0, 1)
    assert anna.kept == bob.kept
    assert restless.kept == [None]
    (kept,) = anna.kept
    assert kept is not None
    assert [one["data"]["speed"] for one in data(kept.portion, 0)] == [7, 7]
    assert [one["data"] for one in data(kept.portion, 1, main=1)] == [{"plate": "A2", "speed": None, "lane": None}]
    tail.forget(0, anna)
    road.publish("A3")
    poll(tail)
    poll(tail)
    assert (len(anna.kept), len(bob.kept)) == (1, 2)
    tail.stop()


def test_an_event_is_encoded_once_for_all_who_share_its_view(road: Road) -> None:
    road.commit(*(wish(f"more{n}", "anna") for n in range(50)))
    road.follower.refresh()
    tail = road.tail()
    listeners = [Heard() for _ in range(52)]
    for number, listener in enumerate(listeners):
        tail.listen(number, listener)
    road.publish("A1")
    poll(tail)
    kept = listeners[0].kept[0]
    assert kept is not None
    assert len(kept.portion) == 52
    assert len([one for one in kept.portion._fragments if one is not None]) == 2
    tail.stop()


def test_memory_is_bounded_and_what_it_covers_is_known(road: Road) -> None:
    tail = road.tail(cache=5_000)
    heard = Heard()
    tail.listen(0, heard)
    before = dict(tail.reached.streams)
    assert tail.covers(before)
    for number in range(30):
        road.publish(f"A{number}")
        poll(tail)
    assert tail._bytes == sum(kept.portion.bytes for kept in tail._kept) <= 5_000
    assert not tail.covers(before)
    oldest = next(iter(tail.since(0)))
    assert tail.covers(oldest.before)
    assert [kept.serial for kept in tail.since(29)] == [29, 30]
    assert len(heard.kept) == 30
    tail.stop()


def test_it_begins_at_the_present_and_learns_types_as_they_come(road: Road) -> None:
    road.publish("A1")
    tail = road.tail()
    heard = Heard()
    tail.listen(0, heard)
    attributes = {"plate": Kind.STRING, "speed": Kind.INT, "lane": Kind.INT, "colour": Kind.STRING}
    road.commit(DeclareType(EventType(SEEN, "owner", attributes)))
    road.publish("A2", colour="red")
    poll(tail)
    (kept,) = heard.kept
    assert kept is not None
    assert [one["data"] for one in data(kept.portion, 0)] == [
        {"plate": "A2", "speed": 7, "lane": None, "colour": "red"}
    ]
    tail.stop()


def test_what_retention_took_first_makes_readers_fall_back(road: Road) -> None:
    tail = road.tail()
    heard = Heard()
    tail.listen(0, heard)
    road.publish("A1")
    poll(tail)
    road.publish("A2")
    road.decider.store.trim("main", 2)
    poll(tail)
    assert heard.fell == [{"main": 1}]
    assert not tail.covers({"main": 1})
    tail.stop()


def test_the_thread_hands_over_to_the_event_loop(road: Road) -> None:
    async def story() -> None:
        tail = DeliveryFollower(road.domain.paths.deliveries, road.follower, POSITIONS)
        loop, come = asyncio.get_running_loop(), asyncio.Event()

        class Waits(Heard):
            def wake(self, kept: KeptBatch | None) -> None:
                assert asyncio.get_running_loop() is loop
                super().wake(kept)
                come.set()

        heard = Waits()
        tail.listen(0, heard)
        tail.start(loop)
        await loop.run_in_executor(None, road.publish, "A1")
        await asyncio.wait_for(come.wait(), 20)
        await loop.run_in_executor(None, tail.stop)
        assert len(heard.kept) == 1

    asyncio.run(story())


# -- events as they go out ----------------------------------------------------------------------------------------

EVERY: dict[str, Kind] = {
    "flag": Kind.BOOL,
    "count": Kind.INT,
    "share": Kind.FLOAT,
    "name": Kind.STRING,
    "at": Kind.TIMESTAMP,
    "raw": Kind.BYTES,
}
_moments = st.integers(-(10**16), 2 * 10**17).map(lambda at: EPOCH + timedelta(microseconds=at))
VALUES: dict[str, st.SearchStrategy[Value]] = {
    "flag": st.none() | st.booleans(),
    "count": st.none() | st.integers(-(2**63), 2**63 - 1),
    "share": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "name": st.none() | st.text(st.characters(exclude_categories=("Cs",))),
    "at": st.none() | _moments | st.just(EPOCH + timedelta(seconds=5)),
    "raw": st.none() | st.binary(),
}
CATALOG = Catalog().declare(EventType("all.Kinds", "owner", EVERY)).declare(
    EventType("all.More", "owner", {"extra": Kind.INT}, "all.Kinds")
)  # fmt: skip
GROWN = CATALOG.grow(EventType("all.Kinds", "owner", {**EVERY, "late": Kind.STRING}), 5)


@st.composite
def _events(draw: st.DrawFn, version: int) -> list[Event]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        type_name = draw(st.sampled_from(("all.Kinds", "all.More")))
        values = {name: draw(VALUES[name]) for name in EVERY}
        values |= {"late": draw(VALUES["name"])} if version >= 5 else {}
        values |= {"extra": draw(VALUES["count"])} if type_name == "all.More" else {}
        found.append(
            Event(f"e{number}", "päm", type_name, values, draw(_moments), source=draw(st.sampled_from(("", "s"))))
        )
    return found


def _blob(events: list[Event], stream: str, version: int, time: datetime) -> DeliveryBlob:
    """What the pipeline would write if subscription 0 saw everything, and 1 the first event alone."""
    places = layouts(GROWN)
    append = LogBatch(stream, 1, len(events), version, micros(time), encode(_padded(events), places))
    types = _types()
    batch = event_batch([append], types.numbers, places, types.words)
    rows = np.append(np.arange(len(events)), 0)
    visible = np.full((len(rows), types.words), 2**64 - 1, np.uint64)
    owners = np.append(np.zeros(len(events)), 1).astype(np.int32)
    (found,) = blobs([append], batch, Matches(rows, owners, visible, np.zeros(len(rows), np.int64)), types)
    return found


def _padded(events: list[Event]) -> list[Event]:
    """Events with a null for what their type gained later, as the log has no column for it."""
    return [Event(e.id, e.publisher, e.type, {"late": None, **e.values}, e.time, source=e.source) for e in events]


@cache
def _types() -> Types:
    ledger = MemoryLedger()
    ledger.states.append(type(ledger.now)(version=1, types=GROWN))
    ledger.batches.append(Batch(ADMINISTRATOR))
    return IndexBuilder(ledger).index(0, 1).types


@examples(60)
@given(_events(4), _events(6), _moments)
def test_an_event_goes_out_as_it_came(old: list[Event], new: list[Event], time: datetime) -> None:
    parts = [_blob(old, "a", 4, time), _blob(new, "b", 6, time)]
    portion = Portion(parts, partial(event_fragments, layouts(GROWN)), {"a": 3, "b": 9}, POSITIONS)
    found, whole = portion.read(0, {}, limit=100, room=2**30)
    assert whole
    assert [(one.stream, one.seq) for one in found] == [
        *(("a", n + 1) for n in range(len(old))),
        *(("b", n + 1) for n in range(len(new))),
    ]
    for one, event in zip(found, [*old, *new], strict=True):
        stamp = (EPOCH + timedelta(microseconds=micros(time))).isoformat(timespec="microseconds")
        assert json.loads(one.event) == {
            "specversion": "1.0",
            "id": event.id,
            "source": event.source or event.publisher,
            "type": event.type,
            "time": stamp.replace("+00:00", "Z"),
            "data": {name: plain(value) for name, value in event.values.items()},
            "hgpublisher": event.publisher,
            "hgposition": one.position,
        }
        assert POSITIONS.open(one.position, 0) == ({"a": 3, "b": 9}[one.stream], one.seq)
    assert [(one.stream, one.seq) for one in portion.read(1, {}, limit=9, room=9**9)[0]] == [("a", 1), ("b", 1)]
    assert portion.read(2, {}, limit=9, room=9**9) == ([], True)
    only = Portion(parts, partial(event_fragments, layouts(GROWN)), {"a": 3, "b": 9}, POSITIONS, only=1)
    assert only.read(1, {}, limit=9, room=9**9) == portion.read(1, {}, limit=9, room=9**9)
    assert only.read(0, {}, limit=9, room=9**9) == ([], True)
    passed, _ = portion.read(0, {"a": 1}, not_before=5, limit=9, room=9**9)
    assert {one.stream for one in passed} == {"b"}
