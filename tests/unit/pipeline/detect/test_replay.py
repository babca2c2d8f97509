"""A detection that is run again over the log signals what it should, and says truly what it waits for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.blocks import Moment, SourceFacts
from headgate.decide.blocks import detect as reference
from headgate.decide.composite import FOREVER, Signal
from headgate.model.changes import Subscribe
from headgate.model.composite import Composite
from headgate.model.errors import LimitReached
from headgate.model.rights import Detection, Subscription
from headgate.model.types import SIGNAL, Times
from headgate.model.values import EPOCH, micros
from headgate.pipeline.detect.machine import Horizons, Machine
from headgate.pipeline.detect.replay import Replayed, replay
from headgate.pipeline.detect.waiting import WaitsFor, waiting
from strategies.composites import TABLES, accepted, arrivals, event, resolved, seconds
from strategies.detecting import Story
from strategies.running import examples

FACTS = {stream: SourceFacts() for stream in Story.STREAMS}
NO_TIME = timedelta(0)


def make(story: Story, c: Composite, **asked: Any) -> Subscription:
    wanted = Subscription("d", "ann", SIGNAL, detection=Detection("...", c, {}, EPOCH), **asked)
    version = story.commit(Subscribe(wanted))
    return story.domain.ledger.state(version).subscriptions["d"]


def run(story: Story, detection: Subscription, most: int | None = None) -> Replayed:
    return replay(story.domain.paths, story.domain.log, story.domain.ledger, detection, most)


def promise(story: Story, at: datetime) -> None:
    for stream in story.STREAMS:
        story.domain.log.promise_stream(stream, micros(at), micros(story.clock))
        story.horizons[stream] = max(at, story.horizons[stream])
        story.told()


@examples(15)
@given(accepted(blocks=True), arrivals(), st.integers(0, 12), st.sampled_from(["now", "start", "version"]))
def test_it_signals_what_the_reference_does_and_waits_for_what_is_not_certain(
    c: Composite, world: tuple[dict[str, SourceFacts], list[Moment]], middle: int, begin: str
) -> None:
    with TemporaryDirectory() as directory:
        story = Story(Path(directory) / "domain")
        for moment in world[1][:middle]:
            story.arrive(moment, NO_TIME)
        since = story.domain.ledger.version
        asked: dict[str, Any] = {"now": {}, "start": {"history": True}}.get(begin, {"history": True})
        if begin == "version":  # what is there is of a version before
            story.commit()
            asked["since_version"] = since + 1
        seen_from = 0 if begin == "start" else len(story.moments)
        detection = make(story, c, **asked)
        for moment in world[1][middle:]:
            story.arrive(moment, NO_TIME)
        found = run(story, detection)
        unseen = [replace(moment, occurrences=()) for moment in story.moments[:seen_from]]
        expected = reference(c, EPOCH, (), [*unseen, *story.moments[seen_from:]], FACTS)
        assert {Signal(one.time, one.environment) for one in found.signals} == (expected[-1] if expected else set())
        assert len(found.signals) == len({(one.time, one.environment) for one in found.signals})
        assert found.is_whole
        held = [one for one in found.waits if one.waits_for is WaitsFor.HORIZON]
        for one in held:
            assert one.until is not None
            assert min(story.horizons.values()) <= one.until or not one.types
        holding = [one for one in found.horizons if one.holds]
        assert bool(holding) is any(one.types for one in held)
        assert {one.publisher for one in found.horizons} <= {"", "bob"}
        assert found.publishers <= {("bob", name) for name in story.domain.ledger.state().types}
        if held:
            latest = max(one.until for one in held if one.until is not None)
            promise(story, latest + timedelta(seconds=1))
            again = run(story, detection)
            left = [one.until for one in again.waits if one.waits_for is WaitsFor.HORIZON and one.types]
            assert all(until is not None and until > latest for until in left), (held, left)


def test_what_waits_for_which_source_is_told(tmp_path: Path) -> None:
    story = Story(tmp_path / "domain")
    detection = make(story, resolved("$A(x); B(x) - C(x, w)"))
    assert [(one.part, one.waits_for) for one in run(story, detection).waits] == [("$lab.A(x)", WaitsFor.EVENT)]
    story.arrive(Moment((event("A", 1, 7, stream="s1"),), {}, seconds(1)), NO_TIME)
    story.arrive(Moment((event("B", 2, 7, stream="s1"),), {}, seconds(1)), NO_TIME)
    story.domain.log.promise("s2", "bob", {"lab.C": Times(stated=True)}, micros(seconds(9)), micros(seconds(1)))
    found = run(story, detection)
    held = {(one.part, one.until, one.types) for one in found.waits if one.waits_for is WaitsFor.HORIZON}
    assert held == {("lab.B(x)", seconds(2), ("lab.B",))}
    assert {dict(one.environment)["x"] for one in found.waits if one.until} == {7}
    by_source = {(one.stream, one.publisher, one.type): one.holds for one in found.horizons}
    assert by_source["s1", "", "lab.B"] == by_source["s2", "", "lab.B"] == 1
    assert by_source["s2", "bob", "lab.C"] == 0
    promise(story, seconds(3))
    assert [dict(one.environment) for one in run(story, detection).signals] == [{"x": 7}]


def test_more_than_a_limit_is_refused(tmp_path: Path) -> None:
    story = Story(tmp_path / "domain")
    detection = make(story, resolved("$A(x)"))
    promise(story, seconds(3))
    assert run(story, detection, most=3).clock == EPOCH
    with pytest.raises(LimitReached, match="MAX_REPLAYED"):
        run(story, detection, most=2)


def test_what_waits_at_the_end_of_all_times_can_be_told() -> None:
    late = datetime.max.replace(tzinfo=UTC) - timedelta(seconds=1)
    machine = Machine(resolved("$A(x) - {Delay = 3} B(x)"), EPOCH, (), Horizons({"s1": SourceFacts()}), TABLES)
    machine.arrive(Moment((event("A", 1, 1),), {"s1": EPOCH}, late))
    assert [(one.waits_for, one.until) for one in waiting(machine) if one.waits_for is WaitsFor.CLOCK] == [
        (WaitsFor.CLOCK, FOREVER)
    ]
