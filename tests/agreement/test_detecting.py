"""The detection query and the reference agree: random detections over one log, on Spark, in a few runs.

Many detections share a domain that has events already. Some are there from the start, some are made in the middle of
the story: with history, from a version on, from a time on, as a reservation gives it, or without. Some are ended there;
the query runs in the middle and at the end, in micro-batches of a few events, and is struck at every point at which it
can be. `HEADGATE_EXAMPLES` chooses how many.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pyspark.errors import StreamingQueryException

from headgate.decide.blocks import Moment, SourceFacts
from headgate.decide.blocks import detect as reference
from headgate.decide.composite import Signal
from headgate.decide.derived import may_hold
from headgate.model.changes import Subscribe, Unsubscribe
from headgate.model.composite import Composite
from headgate.model.rights import Detection, Subscription
from headgate.model.types import SIGNAL
from headgate.model.values import EPOCH, micros
from headgate.pipeline import SIGNALS
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.detect.machine import Horizons, Machine
from headgate.pipeline.detect.signals import stored_signals
from headgate.pipeline.paths import DETECTION_POINTS
from strategies.composites import TABLES, accepted, arrivals, seconds
from strategies.detecting import Story
from strategies.running import examples

pytestmark = pytest.mark.spark

DETECTIONS = 100
STORIES = 6
"""Random arrivals that are told one after another."""


def draw() -> tuple[list[Composite], list[list[Moment]]]:
    found: list[Composite] = []
    stories: list[list[Moment]] = []

    @examples(DETECTIONS)
    @given(accepted(blocks=True), arrivals())
    def look(c: Composite, world: tuple[dict[str, SourceFacts], list[Moment]]) -> None:
        found.append(c)
        stories.append(world[1])

    look()
    longest = sorted(stories, key=len, reverse=True)
    return found, longest[:STORIES]


def signals_of(store: DeliveryStore) -> dict[int, list[Signal]]:
    found: dict[int, list[Signal]] = {}
    for blob in store.blobs(SIGNALS):
        assert blob.blob is not None
        for one in stored_signals(blob.blob):
            found.setdefault(one.row.subscription, []).append(Signal(one.row.time, one.row.environment))
    return found


def test_spark_signals_exactly_what_the_reference_does(spark: Any, tmp_path: Path) -> None:
    composites, stories = draw()
    story = Story(tmp_path / "domain")
    facts = {stream: SourceFacts() for stream in story.STREAMS}
    spans: list[list[int | None]] = []  # from which moment on a detection sees events, and until which it counts
    starts: list[datetime] = []
    query = story.domain.detecting(spark)

    def make(c: Composite, number: int, begin: int, *, start: datetime = EPOCH, since: int = 0) -> None:
        history = begin < len(story.moments)
        detection = Detection("...", c, {}, start, "lab.Made" if may_hold(c) else None)
        one = Subscription(f"d{number}", "ann", SIGNAL, history=history, since_version=since, detection=detection)
        story.commit(Subscribe(one))
        spans.append([begin, None])
        starts.append(start)

    for moment in stories[-1]:  # before anybody detects anything
        promised = {stream: min(horizon, seconds(30)) for stream, horizon in moment.horizons.items()}
        story.arrive(replace(moment, horizons=promised), EPOCH - EPOCH)
    third = len(composites) // 3
    for number, c in enumerate(composites[:third]):
        make(c, number, 0 if number % 2 else len(story.moments))
    known = story.domain.ledger.version, len(story.moments)
    reservations = story.reservations(seconds(60))
    reservations.reserve("may-want", Subscription("may-want", "ann", "lab.A"), None, 3_600)
    for number, moments in enumerate(stories):
        after = 40 * (number + 1) * (EPOCH.resolution * 1_000_000)
        if number == len(stories) // 2:
            query.start(until_empty=True, limit=20).awaitTermination()
            for late, c in enumerate(composites[third:], third):
                match late % 4:
                    case 0:
                        make(c, late, len(story.moments))
                    case 1:
                        make(c, late, known[1], since=known[0])
                    case 2:
                        make(c, late, 0, start=reservations.taken_up("ann", "may-want"))
                    case _:
                        make(c, late, 0)
            for ended in range(0, third, 3):
                story.commit(Unsubscribe(f"d{ended}"))
                spans[ended][1] = len(story.moments)
        for moment in moments:
            story.arrive(moment, after)
    for point in DETECTION_POINTS:  # each strikes once, and what was under way is done again
        story.domain.paths.fault.write_text(point)
        with pytest.raises(StreamingQueryException):
            query.start(until_empty=True, limit=30).awaitTermination()
        assert not story.domain.paths.fault.exists()
    query.start(until_empty=True, limit=30).awaitTermination()
    told, held = signals_of(story.signals), story.signals.reached().held
    for number, (c, (begin, end)) in enumerate(zip(composites, spans, strict=True)):
        assert begin is not None
        unseen = [replace(moment, occurrences=()) for moment in story.moments[:begin]]
        moments = [*unseen, *story.moments[begin:end]]
        expected = reference(c, starts[number], (), moments, facts)
        mine = told.get(number, [])
        assert len(set(mine)) == len(mine), c
        assert set(mine) == (expected[-1] if expected else set()), (number, c, begin, end)
        if may_hold(c) and end is None:
            alone = Machine(c, starts[number], (), Horizons(facts), TABLES)
            for moment in moments:
                alone.arrive(moment)
            assert held[number] == micros(alone.held()), (number, c)
    assert any(told.values())
