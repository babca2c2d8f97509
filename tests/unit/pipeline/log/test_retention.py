"""What may be deleted: never what is undecided or needed, and never without naming who loses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model.values import EPOCH
from headgate.pipeline import SIGNALS
from headgate.pipeline.deliveries import BatchStats, DeliveryBlob, DeliveryStore, pack
from headgate.pipeline.detect.signals import SignalRow, signal_blob
from headgate.pipeline.log.event_log import Chunk, EventLog
from headgate.pipeline.log.retention import (
    EVERYWHERE,
    PIPELINE,
    Floor,
    HeldBack,
    Limit,
    Limits,
    Loss,
    RetentionPlan,
    StreamFacts,
    Trim,
    Where,
    apply,
    look,
    plan,
)
from strategies.stored import append

NOW = 1_000
TIMES = st.integers(0, NOW)


@st.composite
def facts(draw: st.DrawFn) -> StreamFacts:
    trimmed = last = draw(st.integers(0, 20))
    chunks = []
    for time in draw(st.lists(TIMES, max_size=8)):
        last += draw(st.integers(1, 5))
        chunks.append(Chunk(last, time, draw(st.integers(0, 50))))
    unseen = draw(st.integers(0, 100))  # more than this round looks at
    return StreamFacts(trimmed, draw(st.integers(trimmed, last)), sum(c.bytes for c in chunks) + unseen, tuple(chunks))


FLOORS = st.builds(
    Floor,
    st.integers(1, 60),
    st.sampled_from(["ann", "bob", "eve"]),
    st.one_of(st.none(), TIMES),
    st.sampled_from([EVERYWHERE, frozenset({Where.LOG}), frozenset({Where.DELIVERIES})]),
)
STREAMS = st.dictionaries(st.sampled_from("ab"), facts())
MAYBE = st.one_of(st.none(), st.integers(0, 300))
LIMITS = st.builds(Limits, st.builds(Limit, MAYBE, MAYBE), st.builds(Limit, MAYBE, MAYBE), st.integers(0, 500))


@settings(max_examples=300, deadline=None)
@given(STREAMS, STREAMS, st.dictionaries(st.sampled_from("ab"), st.lists(FLOORS, max_size=4)), LIMITS)
def test_a_plan_trims_as_far_as_it_may_and_no_further(
    log: dict[str, StreamFacts], deliveries: dict[str, StreamFacts], floors: dict[str, list[Floor]], limits: Limits
) -> None:
    made = plan(NOW, log, deliveries, floors, limits)
    for where, there, limit in ((Where.LOG, log, limits.log), (Where.DELIVERIES, deliveries, limits.deliveries)):
        cut = {t.stream: t.through for t in made.trims if t.where is where}
        left = sum(f.bytes for f in there.values()) - sum(t.bytes for t in made.trims if t.where is where)
        too_large = limit.bytes is not None and left > limit.bytes
        for stream, one in there.items():
            through = cut.get(stream, one.trimmed)
            mine = [f for f in floors.get(stream, []) if where in f.needs]
            firm = [f.seq for f in mine if f.absent is None or NOW - f.absent <= limits.hold]
            stop = min([one.decided + 1, *firm])
            # Nothing that must stay goes, and only whole chunks go.
            assert stream not in cut or (through < stop and through in [c.last for c in one.chunks])
            # Nothing goes without a limit that asks for it.
            if limit == Limit():
                assert stream not in cut
            # Whoever loses something is named, with how much, and nobody else is.
            lost = {(x.holder, x.first, x.last) for x in made.losses if (x.where, x.stream) == (where, stream)}
            assert lost == {
                (f.holder, max(f.seq, one.trimmed + 1), through) for f in mine if max(f.seq, one.trimmed + 1) <= through
            }
            # If a limit still asks for the next chunk, it must stay, and the plan says for whom.
            rest = [c for c in one.chunks if c.last > through]
            old = bool(rest) and limit.age is not None and rest[0].time < NOW - limit.age
            blockers = [h for h in made.held if (h.where, h.stream) == (where, stream)]
            if rest and (old or too_large):
                assert rest[0].last >= stop
                assert [h.seq for h in blockers] == [stop]
            else:
                assert blockers == []


A_CHUNK = [Chunk(10, 100, 5), Chunk(20, 200, 5), Chunk(30, 300, 5)]
SOME = StreamFacts(0, 30, 15, A_CHUNK)
ALL_OLD = Limits(Limit(age=0), Limit(age=0), hold=50)


def test_the_floor_of_someone_present_holds_and_is_named() -> None:
    made = plan(NOW, {"main": SOME}, {}, {"main": [Floor(15, "ann")]}, ALL_OLD)
    assert made == RetentionPlan((Trim(Where.LOG, "main", 10, 5),), (), (HeldBack(Where.LOG, "main", "ann", 15),))


def test_someone_away_for_too_long_loses_and_is_told_how_much() -> None:
    floors = {"main": [Floor(15, "ann", absent=NOW - 51), Floor(25, "bob", absent=NOW - 50)]}
    made = plan(NOW, {"main": SOME}, {}, floors, ALL_OLD)
    assert made.trims == (Trim(Where.LOG, "main", 20, 10),)
    assert made.losses == (Loss(Where.LOG, "main", "ann", NOW - 51, 15, 20),)
    assert made.losses[0].events == 6
    assert made.held == (HeldBack(Where.LOG, "main", "bob", 25),)
    later = replace(SOME, trimmed=20, bytes=5, chunks=A_CHUNK[2:])
    again = plan(NOW + 1, {"main": later}, {}, floors, ALL_OLD)
    assert [(x.holder, x.events) for x in again.losses] == [("ann", 10), ("bob", 6)]  # what is new, once


def test_nothing_undecided_goes_however_large() -> None:
    made = plan(NOW, {"main": replace(SOME, decided=9)}, {}, {}, Limits(Limit(bytes=0)))
    assert made == RetentionPlan((), (), (HeldBack(Where.LOG, "main", PIPELINE, 10),))


def test_size_takes_the_oldest_of_all_streams_first() -> None:
    both = {"a": SOME, "b": replace(SOME, chunks=[Chunk(7, 50, 5), Chunk(9, 250, 5)], bytes=10)}
    made = plan(NOW, both, {}, {}, Limits(Limit(bytes=11)))
    assert made.trims == (Trim(Where.LOG, "a", 20, 10), Trim(Where.LOG, "b", 7, 5))


def test_nobody_is_blamed_for_a_limit_that_others_met() -> None:
    both = {"a": replace(SOME, decided=0), "b": SOME}
    made = plan(NOW, both, {}, {}, Limits(Limit(bytes=20)))
    assert made == RetentionPlan((Trim(Where.LOG, "b", 20, 10),))


def test_a_plan_is_looked_up_made_and_applied(tmp_path: Path) -> None:
    log, store = EventLog.create(tmp_path / "log.db"), DeliveryStore.create(tmp_path / "deliveries.db")
    signals = DeliveryStore.create(tmp_path / "signals.db")
    token = log.take("main", 1)
    members = pack(np.array([1], np.int32))
    for n in range(5):
        append(log, "main", token, 1, n, 10, b"x" * 100)
        if n < 4:
            made = DeliveryBlob("main", 10 * n + 1, 10 * n + 10, 1, 0, 1, b"y" * 100, members)
            store.write(n, 1, [made], stats=BatchStats(n, 100 + n, 10, 1, 5, 1))
    events, deliveries, none = look(log, store, signals, detecting=False)
    assert none == {}
    found = plan(
        200,
        events,
        deliveries,
        {"main": [Floor(15, "ann", needs=frozenset({Where.DELIVERIES}))]},
        Limits(Limit(10), Limit(98)),
    )
    assert [(t.where, t.through) for t in found.trims] == [(Where.LOG, 40), (Where.DELIVERIES, 10)]
    assert [(h.where, h.holder) for h in found.held] == [(Where.LOG, PIPELINE), (Where.DELIVERIES, "ann")]
    apply(found, log, store, signals)
    assert (log.trimmed(), store.trimmed()) == ({"main": 40}, {"main": 10})
    assert [b.first for b in log.batches("main", 0, 50)] == [41]
    assert [b.first for b in store.blobs()] == [11, 21, 31]
    for file in (log, store, signals):
        file.close()


def test_what_detections_were_not_put_to_stays_in_the_log_and_signals_go_like_deliveries(tmp_path: Path) -> None:
    log, store = EventLog.create(tmp_path / "log.db"), DeliveryStore.create(tmp_path / "deliveries.db")
    signals = DeliveryStore.create(tmp_path / "signals.db")
    token = log.take("main", 1)
    for n in range(5):
        append(log, "main", token, 1, n, 10, b"x" * 100)
    store.write(0, 1, [DeliveryBlob("main", 1, 50, 1, 0, 0, None)])
    row = SignalRow(0, EPOCH, (("x", 1),))
    for n in range(3):
        looked_at = DeliveryBlob("main", 10 * n + 1, 10 * n + 10, 1, 0, 0, None)
        stats = BatchStats(n, 100 + n, 10, 1, 5, 1)
        signals.write(n, 1, [looked_at, signal_blob(n + 1, 1, [row])], stats=stats)
    limits = Limits(Limit(10), Limit(98))
    for detecting, through in ((True, 30), (False, 50)):
        files = look(log, store, signals, detecting=detecting)
        assert max(t.through for t in plan(200, *files[:2], {}, limits).trims) == through
    events, deliveries, signalled = look(log, store, signals, detecting=True)
    needs = {SIGNALS: [Floor(2, "ann", needs=frozenset({Where.SIGNALS}))]}
    found = plan(200, events, deliveries, needs, limits, signalled)
    assert Trim(Where.SIGNALS, SIGNALS, 1, found.trims[-1].bytes) == found.trims[-1]
    apply(found, log, store, signals)
    assert signals.trimmed() == {SIGNALS: 1}
    assert [b.first for b in signals.blobs()] == [2, 3]
    for file in (log, store, signals):
        file.close()
