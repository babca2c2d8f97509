"""The machine of beads: it agrees with the reference at every moment, whatever arrives when; its state is bounded."""

from __future__ import annotations

import gc
import random
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.strategies import composites
from tests.strategies.composites import TABLES, event, resolved, seconds

from headgate.decide.blocks import Arrivals, Moment, SourceFacts, detect
from headgate.decide.composite import FOREVER, Complete, Signal, signals
from headgate.decide.derived import may_hold, may_promise, promise
from headgate.model.composite import Aggregate, Composite, Sequence, SideAssignment, Whenever, Without, templates
from headgate.model.errors import LimitReached
from headgate.model.values import EPOCH
from headgate.pipeline.detect import beads, machine
from headgate.pipeline.detect.machine import Horizons, Machine

ONE = {"main": SourceFacts()}


def agree(c: Composite, world: tuple[dict[str, SourceFacts], list[Moment]]) -> frozenset[Signal]:
    """What the machine has signalled, which at each moment is what the reference says."""
    streams, moments = world
    running = Machine(c, EPOCH, (), Horizons(streams), TABLES)
    given: set[Signal] = set()
    for moment, certain in zip(moments, detect(c, EPOCH, (), moments, streams), strict=True):
        new = running.arrive(moment)
        running.saved()  # which forgets what cannot matter any more
        assert len(set(new)) == len(new)
        assert not given & set(new), "signalled twice"
        given |= set(new)
        assert given == certain
    return frozenset(given)


@settings(max_examples=700, deadline=None)
@given(composites.accepted(blocks=False), composites.arrivals())
def test_the_machine_signals_what_is_certain_when_it_is_and_in_the_end_what_is_meant(
    c: Composite, world: tuple[dict[str, SourceFacts], list[Moment]]
) -> None:
    known = Complete(one for moment in world[1] for one in moment.occurrences)
    meant = signals(c, EPOCH, (), known)
    given = agree(c, world)
    assert given == frozenset(signal for signal in meant if signal.time < seconds(1_000))
    what_a_signal_binds_was_in_the_events_that_led_to_it(c, world[1], given)


@settings(max_examples=700, deadline=None)
@given(composites.accepted(blocks=True), composites.arrivals())
def test_blocks_and_delays_go_by_arrival_as_the_reference_does(
    c: Composite, world: tuple[dict[str, SourceFacts], list[Moment]]
) -> None:
    agree(c, world)


@pytest.mark.parametrize(
    "text", ["null - {Delay = 3} B(1)", "$A(x) - {Delay = 2} B(x)", "(null | $A(*)) - {Delay = 1} C(*, *)"]
)
@pytest.mark.parametrize("whole", ["(D); (D)", "(D); (D); (D)", "(D) | (D); (D)", "$B(y) - (D); (D)", "(D) - (D; (D))"])
@settings(max_examples=20, deadline=None)
@given(world=composites.arrivals())
def test_the_same_absence_with_a_delay_waits_wherever_it_stands(
    whole: str, text: str, world: tuple[dict[str, SourceFacts], list[Moment]]
) -> None:
    agree(resolved(whole.replace("D", text)), world)


def test_each_of_two_absences_waits_from_when_it_begins() -> None:
    one = "(null - {Delay = 3} B(1))"
    moments = [Moment((), {}, seconds(clock)) for clock in (1, 4, 6, 7)]
    once = f"once {one}"
    for text, when in (
        (one, [0, 1, 1, 1]),
        (f"{one}; {one}", [0, 0, 0, 1]),
        (f"({once}); {one}", [0, 0, 0, 1]),
        (f"({once}); ({once})", [0, 0, 0, 1]),
    ):
        c = resolved(text)
        assert [len(certain) for certain in detect(c, EPOCH, (), moments, ONE)] == when
        agree(c, (ONE, moments))


@settings(max_examples=200, deadline=None)
@given(composites.accepted(blocks=False), composites.arrivals(), st.randoms(use_true_random=False))
def test_any_arrival_that_keeps_its_promises_gives_the_same_signals(
    c: Composite, world: tuple[dict[str, SourceFacts], list[Moment]], chance: random.Random
) -> None:
    streams, moments = world
    shuffled = [one for moment in moments for one in moment.occurrences]
    chance.shuffle(shuffled)
    late = [Moment((one,), {}) for one in shuffled]
    rows = [one.seq for one in shuffled if one.tables]
    if rows == sorted(rows):  # of two rows of one time the later number counts, so they stay in order
        assert agree(c, (streams, [*late, moments[-1]])) == agree(c, world)


BLOCK = (
    "{ int n = 0; expr: $A(x) event: n = n + 1; if (hd.tl.tl != null) { accept hd.tl; } "
    "var: if (n > 3) { kill hd; } end: accept hd }"
)
TWO_QUEUES = (
    "{ expr: $A(x) - C(*, *) event: if (hd1) { accept hd0; } "
    "expr: $B(x) event: if (hd0) { hd1.@ = hd1.@ + 1; accept hd1; } end: kill }"
)
"""What people write: it accepts what it held for a while."""

_PLAIN = composites.accepted(blocks=False)
_AGGREGATES = st.builds(Aggregate, st.sampled_from(["count", "first", "once", "last"]), _PLAIN)
_BLOCKS = st.sampled_from([
    resolved(text.replace("BLOCK", block)) for block in (BLOCK, TWO_QUEUES)
    for text in ("BLOCK", "$B(y); BLOCK", "(BLOCK); B(y)", "$(BLOCK)", "$A(y) - BLOCK", "BLOCK | B(*) - (BLOCK; A(*))")
])  # fmt: skip
_HOLDING = (
    composites.accepted(blocks=True)
    | _AGGREGATES
    | _BLOCKS
    | st.builds(Sequence, _PLAIN, _AGGREGATES)
    | st.builds(Sequence, _AGGREGATES, _PLAIN)
    | st.builds(Without, _AGGREGATES, _PLAIN)
    | st.builds(Whenever, _AGGREGATES)
)


def unsure(world: tuple[dict[str, SourceFacts], list[Moment]]) -> dict[str, SourceFacts]:
    """The same streams, whose clocks may be wrong."""
    return {name: replace(facts, error=1.0) for name, facts in world[0].items()}


@settings(max_examples=300, deadline=None)
@given(_HOLDING, composites.arrivals(), st.data())
def test_nothing_is_signalled_before_what_was_promised_of_it(
    c: Composite, world: tuple[dict[str, SourceFacts], list[Moment]], data: st.DataObject
) -> None:
    streams = world[0]
    if data.draw(st.booleans()):
        c, streams = composites.doubted(c, data), unsure(world)
        assume(composites.is_accepted(c))
    running, promised = Machine(c, EPOCH, (), Horizons(streams), TABLES), EPOCH
    for moment in world[1]:
        new = running.arrive(moment)
        assert all(signal.time >= promised or signal.time <= EPOCH for signal in new)
        horizon = min(moment.horizons.get(one, EPOCH) for one in streams)
        held = running.held() if may_hold(c) else None
        promised = max(promised, promise(c, EPOCH, horizon, held, running.shift))


@pytest.mark.parametrize(
    "text",
    [
        "$A(x) - B(x)", "$A(x) - {Probability = 0.9} B(x)", "A(x); {Probability = 0.1} B(x)",
        "$A(x); {Probability = 0.9} B(x)", "count ($A(x) - B(*))", "sum x ($A(x) - B(*))", "average x ($A(x) - B(*))",
        "min x ($A(x) - B(*))", "max x ($A(x) - B(*))", "first ($A(x))", "last ($A(x) - B(*))", "once ($A(x))",
        "$A(x); max x ($A(x) - B(*))", "(last ($A(x) - B(*))); C(x, *)", "$A(x) - count ($A(y) - B(*))",
        "first (count ($A(x) - B(*)))", "max x ($A(x) - B(*)) by x",
        "max x ($A(x) - {Probability = 0.9} B(*))",
        "{ expr: $A(x) - B(*) event: kill hd.tl end: if (hd) { hd.@ = @; accept hd; } }",
    ],
)  # fmt: skip
def test_every_construct_comes_to_promise_what_it_will_signal_no_more(text: str) -> None:
    c, sources = resolved(text), {"main": SourceFacts(error=1.0)}
    running = Machine(c, EPOCH, (), Horizons(sources))
    assert may_promise(c)
    for moment in ((event("A", 5, 1),), (event("A", 6, 2),), (event("B", 9, 1),), (event("C", 12, 1, 1),)):
        running.arrive(Moment(moment, {}))
    promised = []
    for horizon in (4, 20, 40):
        running.arrive(Moment((), {"main": seconds(horizon)}))
        promised.append(promise(c, EPOCH, seconds(horizon), running.held(), running.shift))
    assert seconds(2) <= promised[0] <= seconds(4)
    assert seconds(38) <= promised[-1] <= seconds(40)


def test_what_starts_ever_earlier_promises_nothing() -> None:
    c = resolved("$(A(x); {Probability = 0.1} B(x))")
    assert not may_promise(c)
    running = Machine(c, EPOCH, (), Horizons({"main": SourceFacts(error=1.0)}))
    assert promise(c, EPOCH, seconds(40), None, running.shift) == EPOCH


@settings(max_examples=200, deadline=None)
@given(composites.accepted(blocks=False), composites.arrivals(), st.data())
def test_probabilities_are_as_the_reference_has_them_and_nothing_is_forgotten_too_soon(
    c: Composite, world: tuple[dict[str, SourceFacts], list[Moment]], data: st.DataObject
) -> None:
    c, streams = composites.doubted(c, data), unsure(world)
    assume(composites.is_accepted(c))
    known = Arrivals(streams)
    known.learn(one for moment in world[1] for one in moment.occurrences)
    known.horizon = lambda _types: FOREVER  # type: ignore[method-assign]
    meant = signals(c, EPOCH, (), known)
    assert agree(c, (streams, world[1])) == {signal for signal in meant if signal.time < seconds(900)}


@settings(max_examples=500, deadline=None)
@given(composites.accepted(blocks=True), composites.arrivals())
def test_a_machine_that_is_saved_after_every_moment_goes_on_as_if_it_had_not_been(
    c: Composite, world: tuple[dict[str, SourceFacts], list[Moment]]
) -> None:
    streams, moments = world
    horizons = Horizons(streams)
    lasting, saved = Machine(c, EPOCH, (), Horizons(streams), TABLES), b""
    states = {one.state.version: one.state for moment in moments for one in moment.occurrences}
    for moment in moments:
        again = Machine(c, EPOCH, (), horizons, TABLES)
        if saved:
            again.restore(saved, states.__getitem__)
        told = again.arrive(moment)
        expected = lasting.arrive(moment)
        assert sorted(told, key=repr) == sorted(expected, key=repr)
        because = {signal: beads.contributors(signal.because) for signal in expected}
        assert {signal: beads.contributors(signal.because) for signal in told} == because
        saved = again.saved()


def what_a_signal_binds_was_in_the_events_that_led_to_it(
    c: Composite, moments: list[Moment], given: frozenset[Signal]
) -> None:
    events = {beads.place_of(one): one for moment in moments for one in moment.occurrences}
    assigned = {part.name for template in templates(c) for part in template.side if isinstance(part, SideAssignment)}
    for signal in given:
        places = beads.contributors(signal.because)
        shown = {value for place in places for value in events[place].values.values()}
        assert all(value in shown for name, value in signal.environment if name not in assigned), (c, signal)


def test_a_late_source_holds_back_only_what_depends_on_it() -> None:
    streams = {"a": SourceFacts(frozenset({"lab.A"})), "b": SourceFacts(frozenset({"lab.B", "lab.C"}))}
    running = Machine(resolved("$B(x) - C(x, *) | A(x)"), EPOCH, (), Horizons(streams))
    assert running.arrive(Moment((event("B", 5, 1, stream="b"),), {})) == []
    assert running.arrive(Moment((event("A", 3, 2, stream="a"),), {})) == []
    assert [s.time for s in running.arrive(Moment((), {"b": seconds(6)}))] == [seconds(5)]
    assert [s.time for s in running.arrive(Moment((), {"a": seconds(4)}))] == [seconds(3)]


def test_every_match_of_a_bare_template_waits_for_nothing() -> None:
    running = Machine(resolved("$A(x)"), EPOCH, (), Horizons(ONE))
    assert [s.time for s in running.arrive(Moment((event("A", 9, 1),), {}))] == [seconds(9)]
    assert [s.time for s in running.arrive(Moment((event("A", 2, 1),), {}))] == [seconds(2)]


def test_a_kill_that_is_none_lets_what_waited_for_it_go() -> None:
    rows = "Row(x, x) - A(x) - ($Row(x, x) - A(x))"
    moments = [Moment((event("Row", 0, 1, 1),), {}), Moment((), {"main": seconds(5)})]
    assert agree(resolved(rows), (ONE, moments)) == {Signal(EPOCH, (("x", 1),))}


def test_two_aggregates_that_say_the_same_are_two() -> None:
    moments = [Moment((event("A", at, 1),), {"main": seconds(at)}) for at in (1, 3, 5)]
    assert len(agree(resolved("first (A(x)); first (A(x))"), (ONE, moments))) == 1


def test_what_an_append_brings_may_lie_below_what_it_promises() -> None:
    running = Machine(resolved("A(x) - B(x)"), EPOCH, (), Horizons(ONE))
    moment = Moment((event("A", 4, 1), event("B", 5, 1)), {"main": seconds(6)})
    assert [s.time for s in running.arrive(moment)] == [seconds(4)]


@pytest.mark.parametrize(
    "text",
    [
        "$Open(x); sum a ($Deposit(x, a) - Close(x))",
        "$Open(x); max a ($Deposit(x, a) - Close(x)); Open(y)",
        "$(Open(x); last ($Deposit(x, a) - Close(x)))",
        "{ expr: $Deposit(x, a) - Alarm() event: accept hd }",
    ],
)
def test_with_blocks_too_nothing_is_kept_behind_what_they_hold(text: str) -> None:
    running, sizes = Machine(resolved(text), EPOCH, (), Horizons(ONE)), []
    signalled = 0
    for at in range(0, 4_000, 100):
        events = [event(*one) for n in range(20) for one in (("Open", at + n, n), ("Deposit", at + 20 + n, n, at))]
        events += [event("Close", at + 60 + n, n) for n in range(20)]
        signalled += len(running.arrive(Moment(tuple(events), {"main": seconds(at + 99)})))
        sizes.append(len(running.saved()))
    assert signalled >= 40
    assert max(sizes[10:]) <= max(sizes[:10]) + 100


def test_evaluations_that_are_over_go_and_nothing_is_kept_behind_the_horizon() -> None:
    running = Machine(resolved("$A(x); B(x) - C(x, *)"), EPOCH, (), Horizons(ONE))
    sizes = []
    for batch in range(60):
        at = batch * 100
        events = [event("A", at + n, n) for n in range(100)]
        events += [event("B" if n % 2 else "C", at + 100 + n, *((n,) if n % 2 else (n, 1))) for n in range(100)]
        running.arrive(Moment(tuple(events), {"main": seconds(at + 300)}))
        sizes.append(running.beads)
    assert max(sizes[10:]) <= max(sizes[:10])


@pytest.mark.parametrize(
    "text", ["$A(x); B(x) - C(x, *)", "$A(x); ((B(x) | C(x, *)) - (A(x); B(x)))", "$A(x); $(B(x); C(x, *)) - B(x)"]
)
def test_evaluations_that_are_over_are_in_no_circle(text: str) -> None:
    running = Machine(resolved(text), EPOCH, (), Horizons(ONE))
    gc.collect()
    gc.disable()
    try:
        for at in range(0, 4_000, 400):
            events = [event("A", at + n, n) for n in range(100)]
            events += [event("B", at + 100 + n, n) for n in range(100)]
            events += [event("C", at + 200 + n, n, 1) for n in range(100)]
            running.arrive(Moment(tuple(events), {"main": seconds(at + 400)}))
            running.saved()
        running.settle()
        assert gc.collect() < 100
    finally:
        gc.enable()


def test_a_limit_that_is_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_BEADS", 50)
    running = Machine(resolved("$A(x); B(x)"), EPOCH, (), Horizons(ONE))
    with pytest.raises(LimitReached, match="MAX_BEADS"):
        running.arrive(Moment(tuple(event("A", n, n) for n in range(1, 100)), {}))


@pytest.mark.parametrize(
    "text", ["$A(x) - B(*)", "$A(x) - {Delay = 100000} B(*)", "$A(x) - (B(*); (B(*) - {Delay = 9} A(*)))"]
)
def test_what_waits_for_the_same_waits_once(text: str) -> None:
    running = Machine(resolved(text), EPOCH, (), Horizons(ONE))
    for n in range(1, 1_001):
        assert not running.arrive(Moment((event("A", n, n),), {}, seconds(n)))
    assert sum(map(len, running._gates.values())) + len(running._clocks) < 20
    told = [len(running.arrive(Moment((), {"main": seconds(n)}))) for n in (101, 501, 2_000)]
    assert told == [100, 400, 500]


def test_events_that_wait_for_a_silent_source_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_KEPT", 50)
    running = Machine(resolved("$A(x); B(x)"), EPOCH, (), Horizons(ONE))
    with pytest.raises(LimitReached, match="holds the horizon back"):
        running.arrive(Moment(tuple(event("B", n, n) for n in range(1, 100)), {}))


def test_events_that_are_kept_for_what_follows_a_block_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_KEPT", 50)
    running = Machine(resolved("last ($A(x)); B(y)"), EPOCH, (), Horizons(ONE))
    running.arrive(Moment((event("A", 0.5, 1),), {}))
    moments = [Moment((event("B", n, n),), {"main": seconds(n)}) for n in range(1, 51)]
    for moment in moments[:-1]:
        running.arrive(moment)
    with pytest.raises(LimitReached, match="what follows a block"):
        running.arrive(moments[-1])


@pytest.mark.parametrize("text", ["A(x); {Probability = 0.9} B(x)", "A(x) - {Probability = 0.9} B(x)"])
def test_the_last_of_all_times_has_nothing_after_it(text: str) -> None:
    last = (FOREVER - EPOCH).total_seconds() - 1
    streams = {"main": SourceFacts(error=1_000.0)}
    moments = [Moment((event("A", last, 1),), {}), Moment((), {"main": FOREVER})]
    assert agree(resolved(text), (streams, moments)) == set()


def test_what_a_block_could_not_do_is_told_once_and_does_not_pile_up() -> None:
    running = Machine(
        resolved("{ int t = 0; expr: $A(x) event: kill hd; t = hd.x; end: accept hd }"), EPOCH, (), Horizons(ONE)
    )
    for batch in range(3):
        running.arrive(Moment(tuple(event("A", 10 * batch + n, n) for n in range(1, 9)), {"main": seconds(10 * batch)}))
        assert len(running.take_reports()) == 1
    size = len(running.saved())
    running.arrive(Moment(tuple(event("A", 30 + n, n) for n in range(1, 9)), {"main": seconds(40)}))
    assert len(running.saved()) <= size


def test_a_block_comes_to_a_limit_however_deep_its_loops_are() -> None:
    loops = "".join(f"loop (p{n} = hd) {{ " for n in range(12)) + "kill null" + " }" * 12
    running = Machine(resolved(f"{{ expr: $A(x) event: {loops} }}"), EPOCH, (), Horizons(ONE))
    running.arrive(Moment((event("A", 1, 1),), {}))
    with pytest.raises(LimitReached, match="MAX_BLOCK_STEPS"):
        running.arrive(Moment(tuple(event("A", n, n) for n in range(2, 9)), {}))


@pytest.mark.parametrize(
    ("text", "each"), [("{ expr: $A(x) - B(*) event: kill null }", 1), ("count ($A(x) - B(*)) by x", 2)]
)
def test_records_and_groups_of_a_block_are_counted_and_given_back(
    text: str, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Machine(resolved(text), EPOCH, (), Horizons(ONE))
    running.arrive(Moment((), {}))
    at_first = running.beads
    for n in range(1, 8):
        running.arrive(Moment((event("A", n, n),), {"main": seconds(n + 0.5)}))
    assert running.beads == at_first + 7 * each
    monkeypatch.setattr(machine, "MAX_BEADS", running.beads)
    with pytest.raises(LimitReached, match="MAX_BEADS"):
        running.arrive(Moment((event("A", 8, 8),), {"main": seconds(8.5)}))
    monkeypatch.undo()
    running.arrive(Moment((event("B", 9, 1),), {}))
    running.arrive(Moment((), {"main": seconds(20)}))
    assert running.beads == 0


@pytest.mark.parametrize("behind", [0, 1_000])
def test_an_event_concerns_its_own_group_of_a_block_alone(behind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    grown = []
    grow = beads.BlockGroup.grow
    monkeypatch.setattr(beads.BlockGroup, "grow", lambda group: (grown.append(group), grow(group)))
    running = Machine(resolved("count ($A(x) - B(*)) by x"), EPOCH, (), Horizons(ONE))
    for n in range(1, 101):
        running.arrive(Moment((event("A", n, n),), {"main": seconds(max(0, n - behind))}))
    assert len(grown) <= 300
    told = running.arrive(Moment((event("B", 200, 1),), {"main": seconds(300)}))
    assert len(told) == 100


def test_whenever_of_whenever_is_whenever() -> None:
    world = (ONE, [Moment((event("A", n, n),), {"main": seconds(n - 0.5)}) for n in range(1, 6)])
    for text in ("$$$A(x)", "$$$(A(x) | B(x))", "$$(A(x); A(y))"):
        assert agree(resolved(text), world) == agree(resolved("$" + text.lstrip("$")), world)
    rows = [event("Row", 0, 1, 1), event("Row", 4, 2, 1), event("A", 5, 1)]
    world = (ONE, [*(Moment((one,), {}) for one in rows), Moment((), {"main": seconds(9)})])
    assert agree(resolved("$$Row(x, y)"), world) == agree(resolved("$Row(x, y)"), world)
    running = Machine(resolved("$" * 40 + "A(x)"), EPOCH, (), Horizons(ONE))
    for moment in world[1]:
        running.arrive(moment)
    assert running.beads == 1
