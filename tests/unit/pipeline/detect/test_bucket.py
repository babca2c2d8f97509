"""Detections cut into shards, spread over buckets and saved between any two batches, signal what one machine does."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import composites
from tests.strategies.composites import STATE, TABLES, event, resolved, seconds

from headgate.decide.blocks import Moment, SourceFacts
from headgate.decide.composite import Occurrence, Signal
from headgate.model.composite import Composite
from headgate.model.errors import Damaged
from headgate.model.state import State
from headgate.model.values import EPOCH, Value, micros
from headgate.pipeline.deliveries import Remark
from headgate.pipeline.detect import beads, machine
from headgate.pipeline.detect.bucket import Bucket, CertainSignal, ShardKey
from headgate.pipeline.detect.machine import Horizons, Machine
from headgate.pipeline.detect.plans import DetectionPlan
from headgate.pipeline.detect.program import Program, types_in
from headgate.pipeline.detect.routing import SHARDS, Route, Routing, routing, shard_of, shards_for
from headgate.pipeline.detect.signal_limits import SignalCounts
from headgate.pipeline.detect.sources import Arrival, SourcePromises, times_of
from headgate.pipeline.detect.views import routed
from headgate.pipeline.match import Matches
from headgate.pipeline.spark.detecting import told
from strategies.running import examples

BUCKETS = 3
NUMBER = 7
TIMES = times_of(STATE.types)


@dataclass
class Kept(dict[ShardKey, bytes]):
    """Shards in memory."""

    header: bytes = b""
    events: list[Any] = field(default_factory=list)

    def put(self, key: ShardKey, saved: bytes) -> None:
        self[key] = saved

    def remove(self, key: ShardKey) -> None:
        self.pop(key, None)


def planned(c: Composite, **facts: Any) -> DetectionPlan:
    program = Program(c)
    return DetectionPlan(
        number=NUMBER, first=0, program=program, start=EPOCH, env=(), types=types_in(c),
        routing=routing(program, TABLES), tables=TABLES, **facts,
    )  # fmt: skip


def told_apart(moments: list[Moment]) -> list[Moment]:
    """The same, so that each brings one event, or one promise."""
    apart = []
    promised: dict[str, Any] = {}
    for moment in moments:
        apart += [Moment((one,), dict(promised), moment.clock) for one in moment.occurrences]
        for stream, horizon in sorted(moment.horizons.items()):
            if horizon > promised.get(stream, EPOCH) or not moment.occurrences:
                promised[stream] = max(horizon, promised.get(stream, EPOCH))
                apart.append(Moment((), dict(promised), moment.clock))
    return apart


def as_log(moments: list[Moment], streams: list[str]) -> tuple[list[Arrival], dict[int, list[Occurrence]]]:
    """Moments as records of a log."""
    arrivals, events, number, promise = [], {}, 0, 0
    before: dict[str, Any] = {}
    for moment in moments:
        clock = micros(moment.clock)
        if moment.occurrences:
            number += 1
            promise = 0
            events[number] = list(moment.occurrences)
            arrivals.append(Arrival(number, 0, 0, moment.occurrences[0].stream, "", "", 0, clock))
        else:
            promise += 1
            stream = next((s for s, h in moment.horizons.items() if h != before.get(s, EPOCH)), streams[0])
            at = micros(moment.horizons.get(stream, EPOCH))
            arrivals.append(Arrival(number, promise, 0, stream, "", "", at, clock))
        before = dict(moment.horizons)
    return arrivals, events


def run(plan: DetectionPlan, moments: list[Moment], streams: list[str], cuts: set[int]) -> list[list[CertainSignal]]:
    """What the buckets signal at each record; between some of them everything is saved and begun anew."""
    arrivals, events = as_log(moments, streams)
    states: dict[int, State] = {one.state.version: one.state for some in events.values() for one in some}
    kept = [Kept() for _ in range(BUCKETS)]

    def bucket(at: int) -> Bucket:
        made = Bucket(SourcePromises(), kept[at], lambda _: plan, states.__getitem__)
        if kept[at].header:
            made.restore(kept[at].header)
        return made

    running = [bucket(at) for at in range(BUCKETS)]
    told = []
    for number, arrival in enumerate(arrivals):
        here: list[CertainSignal] = []
        for at in range(BUCKETS):
            routed: dict[int, list[tuple[ShardKey, Occurrence]]] = {}
            for one in events.get(arrival.number, ()) if not arrival.promise else ():
                for shard in shards_for(plan.routing, one.types, one.values):
                    if (NUMBER + shard) % BUCKETS == at:
                        routed.setdefault(arrival.number, []).append(((NUMBER, shard), one))
            first = number == 0 and (plan.routing.is_cut or at == NUMBER % BUCKETS)
            here += running[at].run([arrival], routed, [NUMBER] if first else [], {}, streams, TIMES)
            if number in cuts:
                running[at].keep()
                kept[at].header = running[at].saved()
                running[at] = bucket(at)
        told.append(here)
    return told


def test_a_row_that_all_shards_are_shown_is_matched_by_its_own() -> None:
    moments = [Moment((composites.event("Row", 0, 1, 1),), {}), Moment((), {"main": composites.seconds(5)})]
    told = run(planned(composites.resolved("$Row(x, x) - Row(x, x)")), moments, ["main"], set())
    assert [len(some) for some in told] == [0, 1]


@examples(250, soak=400)
@given(composites.accepted(blocks=True), composites.arrivals(), st.sets(st.integers(0, 40)))
def test_shards_signal_what_one_machine_does_at_every_record(
    c: Composite, world: tuple[dict[str, SourceFacts], list[Moment]], cuts: set[int]
) -> None:
    streams = sorted(world[0])
    moments = told_apart(world[1])
    plan = planned(c)
    alone = Machine(c, EPOCH, (), Horizons({stream: SourceFacts() for stream in streams}), TABLES)
    for moment, signals in zip(moments, run(plan, moments, streams, cuts), strict=True):
        expected = {Signal(*signal): tuple(beads.contributors(signal.because)) for signal in alone.arrive(moment)}
        told = [Signal(one.time, one.environment) for one in signals]
        assert len(told) == len(expected), (c, plan.routing)
        assert {Signal(one.time, one.environment): one.contributors for one in signals} == expected, (c, plan.routing)


@pytest.mark.parametrize(
    "text", ["$C(x, y); C(y, z)", "$A(x); A(y) {y > x}", "$C(x, *) | $C(*, x)", "$C(x, *); C(*, x)"]
)
def test_what_goes_to_several_shards_begins_in_one(text: str) -> None:
    plan = planned(resolved(text))
    name = "A" if "A" in text else "C"
    events = [event(name, n, *((n % 4, n % 3) if name == "C" else (n,)), seq=n) for n in range(1, 9)]
    moments = [Moment((one,), {}) for one in events] + [Moment((), {"main": seconds(99)})]
    alone = Machine(plan.program, EPOCH, (), Horizons({"main": SourceFacts()}), TABLES)
    expected = sorted(Signal(*signal) for moment in moments for signal in alone.arrive(moment))
    told = [one for here in run(plan, moments, ["main"], {3}) for one in here]
    assert plan.routing.is_cut
    assert expected
    assert sorted(Signal(one.time, one.environment) for one in told) == expected


@pytest.mark.parametrize(
    "text",
    [
        "$A(x) - (B(*); B(*); B(*))",
        "$A(x) - (B(*); (B(*) | B(1)); B(*))",
        "$A(x) - $(B(*); B(*))",
        "$A(x) - {int n = 0; expr: $B(y) event: n = n + 1; if (n = 3) { accept new; kill; } kill new }",
        "$A(x) - {int n = 0; expr: $B(y) event: n = n + 1; if (n = 3) { accept new; kill; } }",
    ],
)
def test_a_shard_that_has_come_half_way_is_kept_though_it_waits_for_no_time(text: str) -> None:
    plan = planned(resolved(text))
    events = [one for n in range(1, 6) for one in (event("A", 10 * n + 5, n, seq=n), event("B", 10 * n + 9, n, seq=-n))]
    moments = []
    for one in events:
        moments += [Moment((one,), {"main": one.time}), Moment((), {"main": one.time + timedelta(seconds=1)})]
    alone = Machine(plan.program, EPOCH, (), Horizons({"main": SourceFacts()}), TABLES)
    expected = sorted(Signal(*signal) for moment in moments for signal in alone.arrive(moment))
    told = [one for here in run(plan, told_apart(moments), ["main"], set(range(99))) for one in here]
    assert plan.routing.is_cut
    assert 0 < len(expected) < 5
    assert sorted(Signal(one.time, one.environment) for one in told) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$A(x); B(x) - C(x, *)", [("A", "x"), ("B", "x"), ("C", "x")]),
        ("$A(x); B(y)", [("A", "x"), ("B", None)]),
        ("$A(x) - B(x)", [("A", "x"), ("B", None)]),  # what A binds is free in B
        ("A(x); B(x)", None),  # the first of all
        ("$(A(x); B(x))", None),
        ("$A(x) | B(x)", None),
        ("$A(x) | $B(x)", [("A", "x"), ("B", "x")]),
        ("$A(*); B(x)", None),
        ("AbsTime(5)", None),
    ],
)
def test_what_can_be_cut(text: str, expected: list[tuple[str, str | None]] | None) -> None:
    found = routing(Program(resolved(text)), {})
    names = [(route.type.rpartition(".")[2], route.attribute) for route in found.routes]
    assert (sorted(names) if found.is_cut else None) == expected


def test_equal_values_have_one_shard() -> None:
    same: list[tuple[Value, Value]] = [(2, 2.0), (2**60, float(2**60)), (0, -0.0), (-5, -5.0)]
    assert all(shard_of(a, SHARDS) == shard_of(b, SHARDS) for a, b in same)
    assert shard_of(True, 10**9) != shard_of(1, 10**9)


def test_a_value_that_is_not_seen_goes_nowhere() -> None:
    assert shards_for(Routing(8, (Route("t", "x"),)), ("t",), {"x": None}) == []
    assert shards_for(Routing(8, (Route("t", "x"), Route("t"))), ("t",), {"x": None}) == list(range(8))


def test_rows_that_are_there_at_the_start_are_signalled_by_their_own_shard_alone() -> None:
    plan = planned(resolved("($Row(x, x); null) - Row(x, x)"))
    assert plan.routing.shards > 1
    rows = [event("Row", 0, n, n, seq=n) for n in range(1, 4)]
    moments = told_apart([Moment(tuple(rows), {"main": seconds(5)}), Moment((), {"main": seconds(9)})])
    told = [dict(one.environment)["x"] for some in run(plan, moments, ["main"], set()) for one in some]
    assert sorted(told) == [1, 2, 3]


def test_a_shard_in_which_nothing_is_under_way_is_not_kept() -> None:
    plan, kept = planned(resolved("$A(x); B(x)")), Kept()
    bucket = Bucket(SourcePromises(), kept, lambda _: plan, lambda _: event("A", 0, 1).state)
    first, second = event("A", 1, 5, seq=1), event("B", 2, 5, seq=2)
    (shard,) = shards_for(plan.routing, first.types, first.values)
    record = [
        Arrival(n, 0, 0, "main", "", "", micros(seconds(t)), micros(seconds(t))) for n, t in ((1, 1), (2, 2), (3, 9))
    ]
    told = list(bucket.run(record[:1], {1: [((NUMBER, shard), first)]}, [NUMBER], {}, ["main"], TIMES))
    bucket.keep()
    assert (told, list(kept)) == ([], [(NUMBER, shard)])
    told = list(bucket.run(record[1:], {2: [((NUMBER, shard), second)]}, [], {}, ["main"], TIMES))
    bucket.keep()
    assert [(one.time, one.arrival) for one in told] == [(seconds(2), (3, 0))]
    assert [place.seq for place in told[0].contributors] == [1, 2]
    assert not kept


@dataclass
class Two:
    """Two detections of a domain in one bucket, each one shard, to which the same events come."""

    plans: dict[int, DetectionPlan]
    kept: Kept = field(default_factory=Kept)

    def __post_init__(self) -> None:
        self.bucket = Bucket(SourcePromises(), self.kept, self.plans.__getitem__, lambda _: STATE)
        self.number = 0

    def arrive(self, *events: Occurrence, stopped: tuple[int, ...] = ()) -> list[CertainSignal]:
        opened = list(self.plans) if not self.number else []
        self.number += 1
        at = micros(seconds(10 * self.number))
        routed = {self.number: [((number, 0), one) for number in self.plans for one in events]}
        arrivals = [Arrival(self.number, 0, 0, "main", "", "", at, at)]
        return [
            *self.bucket.run(arrivals, routed, opened, {}, ["main"], TIMES, stopped=stopped),
            *self.bucket.keep(),
        ]


def two(first: str, second: str) -> Two:
    return Two({n: replace(planned(resolved(c)), number=n) for n, c in enumerate((first, second))})


def test_a_limit_ends_the_detection_that_came_to_it_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    running = two("A(x); (A(y); A(z) | B(x)) | $(A(x); B(y))", "A(x)")
    monkeypatch.setattr(machine, "MAX_BEADS", 6)
    stop, signal = running.arrive(*(event("A", n, n) for n in range(1, 9)))
    assert (stop.detection, stop.code, stop.arrival) == (0, "limit-reached", (1, 0))
    assert (signal.detection, signal.code) == (1, "")
    assert running.arrive(event("A", 11, 1)) == []
    assert not running.kept, "one has stopped, and the other is over"


@pytest.mark.parametrize("where", ["offer", "settle", "saved"])
def test_what_nobody_foresaw_ends_one_detection(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    running = two("A(x); B(x)", "A(x)")
    real = getattr(Machine, where)

    def fails(self: Machine, *given: Any) -> Any:
        if len(list(self.templates())) == 2 and running.number == 2:
            raise OverflowError("date value out of range")
        return real(self, *given)

    monkeypatch.setattr(Machine, where, fails)
    assert running.arrive() == []
    told = running.arrive(event("A", 15, 1))
    assert [(one.detection, one.code) for one in told if one.code] == [(0, "detection-failed")]
    assert [one.detection for one in told if not one.code] == [1]
    assert "OverflowError: date value" in next(one.report for one in told if one.code)


def test_files_that_cannot_be_read_end_no_detection(monkeypatch: pytest.MonkeyPatch) -> None:
    running = two("A(x); B(x)", "A(x)")

    def fails(self: Machine, *_: Any) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(Machine, "offer", fails)
    with pytest.raises(OSError, match="input/output"):
        running.arrive(event("A", 1, 1))


def test_a_detection_that_stopped_elsewhere_stops_here() -> None:
    running = two("$A(x); B(x)", "A(x); B(x)")
    assert running.arrive(event("A", 1, 1)) == []
    assert [one.detection for one in running.arrive(event("B", 15, 1), stopped=(0,))] == [1]
    assert not running.kept, "one has stopped, and the other is over"


def row(number: int, subscription: int, data: str = "{}", **facts: Any) -> dict[str, Any]:
    return {"promise": 0, "time": 0, "contributors": "[]", "hour": 0, "code": "", "report": "", "number": number,
            "data": data, "subscription": subscription, **facts}  # fmt: skip


def test_a_stop_in_one_bucket_is_the_end_of_the_whole_detection() -> None:
    stop = row(5, 1, code="limit-reached", report="too many")
    rows = [row(7, 1), stop, row(3, 1), row(6, 1, code="limit-reached", report="too many too"), row(5, 1, '{"x":1}'),
            row(7, 2), row(8, 2, code="statement-failed", report="null")]  # fmt: skip
    remarks, signals = told(rows, SignalCounts({}, str))
    assert remarks == [Remark(1, "limit-reached", 5, 0, "too many"), Remark(2, "statement-failed", 8, 0, "null")]
    assert signals == [row(3, 1), stop, row(7, 2)]


def test_a_detection_that_is_kept_before_anything_arrives_has_lost_nothing() -> None:
    plan, kept = planned(resolved("$(null | AbsTime(3)); A(x)")), Kept()
    running = Bucket(SourcePromises(), kept, lambda _: plan, lambda _: STATE)
    assert list(running.run([], {}, [NUMBER], {}, ["main"], TIMES)) == []
    assert running.keep() == []
    again = Bucket(SourcePromises(), kept, lambda _: plan, lambda _: STATE)
    again.restore(running.saved())
    records = [Arrival(n, 0, 0, "main", "", "", micros(seconds(9 * n)), 0) for n in (1, 2)]
    told = again.run(records, {1: [((NUMBER, 0), event("A", 2, 1))]}, [], {}, ["main"], TIMES)
    assert [one.time for one in told] == [seconds(2)]
    with pytest.raises(Damaged, match="delete the checkpoint"):
        again.restore(pickle.dumps(({}, {}, set(), set(), (0, 0))))  # as it was kept before this had a format


@pytest.mark.parametrize("later", [[], [Arrival(2, 0, 9, "main", "", "", micros(seconds(9)), 0)]])
def test_a_detection_that_is_over_before_the_next_record_has_begun(later: list[Arrival]) -> None:
    plan, kept = planned(resolved("null | A(x)")), Kept()
    running = Bucket(SourcePromises(), kept, lambda _: plan, lambda _: STATE)
    first = Arrival(1, 0, 0, "main", "", "", micros(seconds(5)), 0)
    assert list(running.run([first], {}, [], {}, ["main"], TIMES)) == []
    told = list(running.run(later, {}, [NUMBER], {NUMBER: 5}, ["main"], TIMES))
    assert [one.time for one in told if not one.code] == [EPOCH]
    running.keep()
    assert list(running.machines()) == []


def test_what_no_detection_sees_goes_nowhere() -> None:
    nothing = np.zeros(0, np.int64)
    none: Any = Matches(nothing, nothing.astype(np.int32), np.zeros((0, 1), np.uint64), nothing)
    missing: Any = None
    assert list(routed([], missing, none, missing, missing, missing)) == []
