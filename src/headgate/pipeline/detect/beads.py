"""The beads of the machine for composite events: what each kind of evaluation waits for, passes on, and ends by.

Guarantees: a bead is linked to the one that started it and to those it started. It signals when that is certain, to
whatever started it, and ends, with all below it, when it can signal no more; both are passed on by the machine, without
recursion. `settled` is the time before which it has given all its signals; `received` what it would signal besides if
nothing more came, by which a delay is judged.
Leaves out: arrivals, horizons and the order in which things are done, which are the machine's.
"""

# ruff: noqa: D102 - what the methods of a bead are for is said once, by `Bead`

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from headgate.decide import composite as meaning
from headgate.decide.blocks import Group as BlockGroup
from headgate.decide.composite import (
    EARLIEST,
    FOREVER,
    Environment,
    Occurrence,
    Signal,
    earlier,
    later,
    whole_micros,
)
from headgate.model import composite as model
from headgate.model.composite import Composite
from headgate.model.limits import MAX_CONTRIBUTORS
from headgate.model.values import Value
from headgate.pipeline.detect.program import TemplateWaits

if TYPE_CHECKING:
    from headgate.pipeline.detect.machine import Machine

_NONE: Final[tuple[Any, ...]] = ()
_NOTHING: Final[frozenset[Any]] = frozenset()


# -- signals ----------------------------------------------------------------------------------------------------


class EventPlace(NamedTuple):
    """Where an event is, and the version at which it was decided."""

    stream: str
    seq: int
    version: int


EARLIER: Final = EventPlace("", 0, 0)
"""Stands for more events than are told apart."""

Because: TypeAlias = Any
"""Events that led to something: None, an `EventPlace`, or a pair of such."""


class Traced(Signal):
    """A signal, with the events that led to it; by which of several ways it came is no difference."""

    because: Because


def traced(time: datetime, env: Environment, because: Because) -> Traced:
    """A signal with the events that led to it."""
    made = Traced(time, env)
    made.because = because
    return made


def contributors(because: Because) -> list[EventPlace]:
    """The events that led to a signal, each once, in order of place; at most MAX_CONTRIBUTORS, and then `EARLIER`."""
    found: set[EventPlace] = set()
    left = [because]
    while left:
        one = left.pop()
        if isinstance(one, EventPlace):
            if len(found) >= MAX_CONTRIBUTORS:
                return sorted({*found, EARLIER})
            found.add(one)
        elif one is not None:
            left += one
    return sorted(found)


# -- beads ------------------------------------------------------------------------------------------------------


class Begun(NamedTuple):
    """How an evaluation begins: by what, when, with which environment, and what led to it."""

    parent: Bead | None
    start: datetime
    env: Environment
    because: Because = None


class Bead:
    """One evaluation: of a part of the expression, from a start, with an environment."""

    __slots__ = ("alive", "because", "env", "machine", "number", "parent", "start")
    judges = False
    """Does what is settled below it matter to it?"""

    def __init__(self, machine: Machine, begun: Begun) -> None:
        self.machine = machine
        self.parent, self.start, self.env, self.because = begun
        self.alive = True
        self.number = machine.counted()

    def begin(self) -> None:
        """Look for what is there already, start other beads."""

    def receive(self, child: Bead, signal: Traced) -> None:
        """A bead that this one started has signalled."""

    def finished(self, child: Bead, at: datetime) -> None:
        """A bead that this one started will signal no more, because of what happened at a time."""

    def settled(self) -> datetime:
        """All signals before this time have been given."""
        raise NotImplementedError

    def held(self) -> datetime:
        """The earliest time of what it holds back itself; all else that it signals comes with what is yet to arrive."""
        return FOREVER

    def children(self) -> Iterable[Bead]:
        """The beads that it started and that are there still."""
        return _NONE

    def gate(self) -> None:
        """A time that it waits for has become certain."""

    def emit(self, signal: Traced) -> None:
        """Signal, to whatever started this bead."""
        self.machine.under_way.append((self, signal))

    def end(self, at: datetime) -> None:
        """It will signal no more, because of what happened at a time: it goes, with all that it started."""
        if self.alive:
            self.destroy()
            self.machine.endings.append((self, at))

    def received(self) -> set[Signal]:
        """What it would signal besides, if what has been received were all there is."""
        return {signal for child in self.children() for signal in child.received()}

    def destroy(self) -> None:
        """Go, with all that it started."""
        machine = self.machine
        doomed: list[Bead] = [self]
        while doomed:
            bead = doomed.pop()
            if bead.alive:
                doomed += bead.children()
                bead.alive = False
                bead.leave()
                machine.beads -= 1

    def leave(self) -> None:
        """Wait for nothing any more, and let go of what it started: what is in no circle goes at once."""

    def depth(self) -> int:
        """How many beads it stands below."""
        above = 0
        bead = self.parent
        while bead is not None:
            above += 1
            bead = bead.parent
        return above


class TemplateBead(Bead):
    """Waits for the first match, or with `always` for every one."""

    __slots__ = ("always", "best", "found", "key", "rows_due", "seen", "waits")

    def __init__(self, machine: Machine, begun: Begun, waits: TemplateWaits, *, always: bool) -> None:
        super().__init__(machine, begun)
        self.waits = waits
        self.always = always
        self.best = FOREVER
        self.found: list[Traced] = _NONE  # type: ignore[assignment]  # made with the first: most get none
        self.seen: set[Signal] = set() if always else _NOTHING  # type: ignore[assignment]
        self.rows_due = False
        self.key = _key(waits.names, self.env)

    def begin(self) -> None:
        waits, key = self.waits, self.key
        there = waits.beads.get(key)
        if there is None:
            waits.beads[key] = {self.number: self}
        else:
            there[self.number] = self
        if self.machine.is_table(waits.type):
            self.rows_due = True
            self.machine.wait((waits.type,), self.start, self)
        kept = waits.kept.get(key)
        if kept is not None:
            for one in kept:
                self.offer(one)
        if self.rows_due or self.found:
            self.gate()

    def offer(self, one: Occurrence) -> None:
        """An event that may match."""
        if one.time <= self.start or (not self.always and one.time > self.best):
            return
        if self.waits.template.side:
            self._match(one, one.time)
            return
        env = self.waits.bind(one, self.env)
        if env is not None:
            self._matched(traced(one.time, env, (self.because, place_of(one))))

    def _match(self, one: Occurrence, at: datetime) -> None:
        for time, env in meaning.matched(self.waits.template, one, at, self.env):
            self._matched(traced(time, env, (self.because, place_of(one))))

    def _matched(self, signal: Traced) -> None:
        if self.always:
            if signal not in self.seen:
                self.seen.add(signal)
                self.machine.prune_later(self)
                self.emit(signal)
        elif signal.time < self.best:
            self.best = signal.time
            self.found = [signal]
            self.machine.wait((self.waits.type,), signal.time, self)
        else:
            self.found.append(signal)

    def gate(self) -> None:
        horizon = self.machine.horizon_of(self.waits.type)
        if self.rows_due and self.start < horizon:
            self.rows_due = False
            for row in self._rows():
                if self.waits.is_own is None or self.waits.is_own(row):
                    self._match(row, self.start)
        if not self.always and self.best < horizon and not self.rows_due:
            for signal in self.found if len(self.found) == 1 else dict.fromkeys(self.found):
                self.emit(signal)
            self.end(self.best)

    def received(self) -> set[Signal]:
        return set(self.found)

    def _rows(self) -> Iterator[Occurrence]:
        """The rows there are at the start, of each key the newest."""
        for versions in self.machine.rows_for(self.waits, self.key):
            there = [one for one in versions if one.time <= self.start]
            if there:
                yield max(there, key=lambda one: (one.time, one.seq))

    def settled(self) -> datetime:
        if self.rows_due:
            return self.start
        horizon = self.machine.horizon_of(self.waits.type)
        return min(self.best, max(self.start, horizon))

    def held(self) -> datetime:
        return self.start if self.rows_due else self.best

    def prune(self, horizon: datetime) -> bool:
        """Forget signals that cannot come again; are any left?"""
        self.seen = {signal for signal in self.seen if signal.time >= horizon}
        return bool(self.seen)

    def leave(self) -> None:
        there = self.waits.beads.get(self.key)
        if there is not None:
            there.pop(self.number, None)
            if not there:
                del self.waits.beads[self.key]


def _key(names: tuple[str, ...], env: Environment) -> tuple[Value, ...]:
    """The values of variables that are bound."""
    if len(names) == 1:
        only = names[0]
        for name, value in env:
            if name == only:
                return (value,)
    bound = dict(env)
    return tuple([bound[name] for name in names])


def place_of(one: Occurrence) -> EventPlace:
    """Where an event is."""
    return EventPlace(one.stream, one.seq, one.state.version)


class TimerBead(Bead):
    """Waits for a time; on the right side of a `-` it is known beforehand."""

    __slots__ = ("foreseen", "signal", "timer")

    def __init__(self, machine: Machine, begun: Begun, timer: model.Timer, *, foreseen: bool) -> None:
        super().__init__(machine, begun)
        self.timer = timer
        self.foreseen = foreseen
        self.signal: Traced | None = None

    def begin(self) -> None:
        for time, env in meaning.fired(self.timer, self.start, self.env):
            self.signal = traced(time, env, self.because)
        if self.signal is None:
            self.end(self.start)
        elif self.foreseen:
            self.emit(self.signal)
            self.end(self.signal.time)
        else:
            self.machine.wait((None,), self.signal.time, self)
            self.gate()

    def gate(self) -> None:
        if self.signal is not None and self.signal.time < self.machine.horizon_of(None):
            self.emit(self.signal)
            self.end(self.signal.time)

    def received(self) -> set[Signal]:
        return set() if self.signal is None else {self.signal}

    def held(self) -> datetime:
        return FOREVER if self.signal is None else self.signal.time

    def settled(self) -> datetime:
        assert self.signal is not None
        return min(self.signal.time, max(self.start, self.machine.horizon_of(None)))


class NullBead(Bead):
    """Signals at its own start."""

    __slots__ = ()

    def begin(self) -> None:
        self.emit(traced(self.start, self.env, self.because))
        self.end(self.start)


class JoiningBead(Bead):
    """Passes on what the beads signal that it starts, each signal once; it ends with the last of them."""

    __slots__ = ("foreseen", "given", "last", "open")

    def __init__(self, machine: Machine, begun: Begun, *, foreseen: bool) -> None:
        super().__init__(machine, begun)
        self.foreseen = foreseen
        self.open: dict[int, Bead] = {}
        self.given: set[Signal] = set()
        self.last = self.start

    def start_below(self, c: Composite, at: datetime, env: Environment, because: Because) -> Bead:
        """Start an evaluation."""
        bead = self.machine.start(c, Begun(self, at, env, because), foreseen=self.foreseen)
        self.open[bead.number] = bead
        return bead

    def pass_on(self, signal: Traced) -> bool:
        """Signal it, unless that was done; was it new?"""
        if signal in self.given:
            return False
        self.given.add(signal)
        self.machine.prune_later(self)
        self.emit(signal)
        return True

    def finished(self, child: Bead, at: datetime) -> None:
        self.last = max(self.last, at)
        self.open.pop(child.number, None)
        if not self.open:
            self.end(self.last)

    def settled(self) -> datetime:
        return min((bead.settled() for bead in self.open.values()), default=FOREVER)

    def children(self) -> Iterable[Bead]:
        return self.open.values()

    def leave(self) -> None:
        self.open = {}

    def prune(self, horizon: datetime) -> bool:
        """Forget what cannot come again; is anything left?"""
        self.given = {signal for signal in self.given if signal.time >= horizon}
        return bool(self.given)


class SequenceBead(JoiningBead):
    """Starts an evaluation of its right side at each signal of its left side."""

    __slots__ = ("back", "first", "part", "shift")

    def __init__(self, machine: Machine, begun: Begun, part: model.Sequence, *, foreseen: bool) -> None:
        super().__init__(machine, begun, foreseen=foreseen)
        self.part = part
        self.first: Bead | None = None
        self.shift = self.machine.shift(part.left, part.right, part.probability)
        self.back = max(0, -whole_micros(self.shift)) + self.machine.backward(part.right)
        """By how many microseconds it may signal before what its left side has yet to signal."""

    def begin(self) -> None:
        self.first = self.start_below(self.part.left, self.start, self.env, self.because)

    def receive(self, child: Bead, signal: Traced) -> None:
        if child is self.first:
            self.start_below(self.part.right, later(signal.time, self.shift), signal.environment, signal.because)
        else:
            self.pass_on(signal)

    def settled(self) -> datetime:
        if not self.back or self.first is None or not self.first.alive:
            return super().settled()
        return min(super().settled(), earlier(self.first.settled(), self.back))

    def leave(self) -> None:
        super().leave()
        self.first = None

    def received(self) -> set[Signal]:
        seen: set[Signal] = set()
        for bead in self.open.values():
            if bead is not self.first:
                seen |= bead.received()
                continue
            for one in bead.received():
                seen |= self.machine.would_signal(self.part.right, later(one.time, self.shift), one.environment)
        return seen


class EitherBead(JoiningBead):
    """Both sides."""

    __slots__ = ("part",)

    def __init__(self, machine: Machine, begun: Begun, part: model.Either, *, foreseen: bool) -> None:
        super().__init__(machine, begun, foreseen=foreseen)
        self.part = part

    def begin(self) -> None:
        for side in (self.part.left, self.part.right):
            self.start_below(side, self.start, self.env, self.because)

    def receive(self, child: Bead, signal: Traced) -> None:  # noqa: ARG002
        self.pass_on(signal)


class WheneverBead(JoiningBead):
    """Starts again at each time at which it signalled, with the old environment."""

    __slots__ = ("part", "starts")

    def __init__(self, machine: Machine, begun: Begun, part: model.Whenever, *, foreseen: bool) -> None:
        super().__init__(machine, begun, foreseen=foreseen)
        self.part = part
        self.starts: set[datetime] = set()

    def begin(self) -> None:
        self._again(self.start)

    def _again(self, at: datetime) -> None:
        self.starts.add(at)
        self.start_below(self.part.of, at, self.env, self.because)

    def receive(self, child: Bead, signal: Traced) -> None:  # noqa: ARG002
        if self.pass_on(signal) and signal.time not in self.starts:
            self._again(signal.time)

    def settled(self) -> datetime:
        return earlier(super().settled(), self.machine.backward(self.part))

    def received(self) -> set[Signal]:
        seen = super().received()
        for at in {signal.time for signal in seen} - self.starts:
            seen |= self.machine.would_signal(self.part, at, self.env)
        return seen

    def prune(self, horizon: datetime) -> bool:
        """Forget what cannot come again; is anything left?"""
        left = super().prune(horizon)
        self.starts = {at for at in self.starts if at >= horizon}
        return left or bool(self.starts)


class WithoutBead(Bead):
    """Passes on what its left side signals once it is certain that its right side did not come first."""

    judges = True

    __slots__ = (
        "clocked", "due", "early", "foreseen", "gated", "kill", "left", "left_over", "order", "part", "right", "shift",
        "waiting",
    )  # fmt: skip

    def __init__(self, machine: Machine, begun: Begun, part: model.Without, *, foreseen: bool) -> None:
        super().__init__(machine, begun)
        self.part = part
        self.foreseen = foreseen
        self.kill = FOREVER
        self.left: Bead | None = None
        self.right: Bead | None = None
        self.left_over: datetime | None = None
        self.waiting: dict[Traced, datetime] = {}
        """Signals of the left side, with the clock when they were received."""
        self.order: list[tuple[datetime, Traced]] = []
        """The same by the time until which the right side must be absent; what waits no more is in none of these."""
        self.early: deque[Traced] = deque()
        """With a delay, those for which it is not over, in the order in which they were received."""
        self.due: list[tuple[datetime, Traced]] = []
        """And those for which it is, by the same times."""
        self.gated: dict[str | None, datetime] = {}
        """By type, the time that was last waited for."""
        self.clocked = EARLIEST
        """Likewise by the clock."""
        self.shift = machine.shift(part.left, part.right, part.probability)

    def begin(self) -> None:
        below = Begun(self, self.start, self.env, self.because)
        self.right = self.machine.start(self.part.right, below, foreseen=True)
        self.left = self.machine.start(self.part.left, below, foreseen=self.foreseen)

    def receive(self, child: Bead, signal: Traced) -> None:
        if child is self.left:
            if signal not in self.waiting:
                self.waiting[signal] = self.machine.clock
                insort(self.order, (later(signal.time, self.shift), signal), key=_until)
                if self.part.delay is not None:
                    self.early.append(signal)
        elif self.start < signal.time < self.kill:
            self.kill = signal.time
        self.machine.judge_later(self)

    def finished(self, child: Bead, at: datetime) -> None:
        if child is self.left:
            self.left = None
            self.left_over = at
        else:
            self.right = None
        self.machine.judge_later(self)

    def gate(self) -> None:
        self.machine.judge_later(self)

    def judge(self) -> None:
        """Nothing is under way: what is certain is passed on, and what can signal no more ends."""
        absent = FOREVER if self.right is None else self.right.settled()
        self._pass_on(self._taken(self.order, min(absent, self.kill)))
        if self.part.delay is None:
            self._drop_killed()
        elif self.order and self._is_due():
            self.machine.run_later(self)
        if self.order:
            self.machine.wait_once(self.machine.program.sources(self.part.right), self.order[0][0], self, self.gated)
        self._end(absent)

    def _taken(self, order: list[tuple[datetime, Traced]], before: datetime) -> list[Traced]:
        """Those that wait for less than a time, which do so no more."""
        at = bisect_left(order, before, key=_until)
        taken = [signal for _, signal in order[:at] if signal in self.waiting]
        del order[:at]
        return taken

    def _pass_on(self, signals: list[Traced]) -> None:
        for signal in signals:
            if self.waiting.pop(signal, None) is not None:
                self.emit(signal)
        if signals:
            self.machine.look_again(self.parent)

    def _drop_killed(self) -> None:
        """Forget what was killed: all that waits for the time of that, or for more."""
        at = bisect_left(self.order, self.kill, key=_until)
        if at < len(self.order):
            for _, signal in self.order[at:]:
                self.waiting.pop(signal, None)
            del self.order[at:]
            self.machine.look_again(self.parent)

    def _is_due(self) -> bool:
        """Is a delay over, or has anything been killed?"""
        delay = timedelta(seconds=self.part.delay or 0)
        while self.early:
            signal = self.early[0]
            over = later(self.waiting.get(signal, EARLIEST), delay)
            if over > self.machine.clock:
                if not self.machine.clock < self.clocked <= over:
                    self.machine.wait_clock(over, self)
                    self.clocked = over
                break
            self.early.popleft()
            if signal in self.waiting:
                insort(self.due, (later(signal.time, self.shift), signal), key=_until)
        return bool(self.due) or self.kill < FOREVER

    def _end(self, absent: datetime) -> None:
        """End, if nothing more can be passed on."""
        if self.waiting:
            return
        ended = self.left_over
        if ended is not None and ended <= self.kill and ended < absent:
            self.end(ended)
        elif ended is None and self.kill == FOREVER:
            return
        elif self.kill < min(FOREVER if self.left is None else self.left.settled(), absent):
            self.end(self.kill)
        else:
            self.machine.wait(self.machine.program.sources(self.part), min(self.kill, ended or self.kill), self)

    def run(self) -> None:
        """All else of the moment that it depends on is done: what waited long enough is passed on, or is killed."""
        absent = FOREVER if self.right is None else self.right.settled()
        seen = set() if self.right is None else {one.time for one in self.right.received() if one.time > self.start}
        passed = self._taken(self.due, min(self.kill, *seen, FOREVER))
        self._pass_on(passed)
        self._drop_killed()
        if len(self.order) > 2 * len(self.waiting):
            self.order = [entry for entry in self.order if entry[1] in self.waiting]
        self._end(absent)

    def received(self) -> set[Signal]:
        left = set() if self.left is None else self.left.received()
        right = set() if self.right is None else self.right.received()
        kill = min(self.kill, *(one.time for one in right if one.time > self.start), FOREVER)
        return {one for one in left | set(self.waiting) if later(one.time, self.shift) < kill}

    def held(self) -> datetime:
        while self.order and self.order[0][1] not in self.waiting:  # it was passed on when its delay was over
            del self.order[0]
        return self.order[0][1].time if self.order else FOREVER

    def settled(self) -> datetime:
        return min((*(bead.settled() for bead in self.children()), self.held()))

    def children(self) -> Iterable[Bead]:
        return [bead for bead in (self.left, self.right) if bead is not None]

    def leave(self) -> None:
        self.left = self.right = None


def _until(entry: tuple[datetime, Traced]) -> datetime:
    return entry[0]


class BlockBead(Bead):
    """A block: what its expressions signal enters its queues at the end of the moment."""

    judges = True

    __slots__ = ("arrived", "block", "due", "entered", "groups", "growing", "last", "numbers", "open", "over", "sizes")

    def __init__(self, machine: Machine, begun: Begun, block: model.Block) -> None:
        super().__init__(machine, begun)
        self.block = block
        self.groups: list[BlockGroup] = []
        self.numbers: dict[tuple[Value, ...], int] = {}
        """The numbers of its groups, by the values of what it is `by`."""
        self.entered: list[dict[EventPlace, None]] = []
        """For each group the events that led to what entered its queues, on which all that is accepted may rest."""
        self.sizes: list[int] = []
        """What each group counts for among the evaluations: itself, where there may be many, and its records."""
        self.growing: list[list[tuple[datetime, int]]] = [[] for _ in block.queues]
        """For each queue, past which times more is fixed than now, and in which group."""
        self.due: list[dict[int, datetime]] = [{} for _ in block.queues]
        """For each queue, the newest of those times by group."""
        if not block.by:
            self._group(())
        self.open: dict[int, tuple[int, Bead]] = {}
        self.arrived: list[tuple[Traced, int]] = []
        self.over: dict[int, datetime] = {}
        """The queues that have ended and not been told so, with when."""
        self.last = self.start

    def begin(self) -> None:
        for at, queue in enumerate(self.block.queues):
            bead = self.machine.start(queue.of, Begun(self, self.start, self.env, self.because), foreseen=False)
            self.open[bead.number] = at, bead
        self.machine.run_later(self)

    def receive(self, child: Bead, signal: Traced) -> None:
        self.arrived.append((signal, self.open[child.number][0]))
        self.machine.run_later(self)

    def finished(self, child: Bead, at: datetime) -> None:
        queue, _ = self.open.pop(child.number)
        self.over[queue] = at
        self.machine.run_later(self)

    def gate(self) -> None:
        self.machine.run_later(self)

    def run(self) -> None:
        """What has become certain enters by time, then what has become fixed is told, then what has ended."""
        frontiers = [FOREVER for _ in self.block.queues]
        for at, bead in self.open.values():
            frontiers[at] = bead.settled()
        touched: set[int] = set()
        arrived, self.arrived = self.arrived, []
        for signal, at in sorted(
            dict.fromkeys(arrived), key=lambda one: (one[0].time, one[1], repr(one[0].environment))
        ):
            bound = dict(signal.environment)
            number = self._group(tuple(bound.get(by) for by in self.block.by))
            touched.add(number)
            self.groups[number].promise(frontiers)
            self.groups[number].insert(at, signal)
            if len(self.entered[number]) <= MAX_CONTRIBUTORS:
                self.entered[number] |= dict.fromkeys(contributors(signal.because))
            self.machine.wait(self.machine.program.sources(self.block.queues[at].of), signal.time, self)
        for growing, frontier in zip(self.growing, frontiers, strict=True):
            while growing and growing[0][0] < frontier:
                touched.add(heappop(growing)[1])
        if self.over:
            touched.update(range(len(self.groups)))
        for number in sorted(touched):
            self._advance(number, frontiers)
        self.last = max((self.last, *self.over.values()))
        self.over.clear()
        if not self.open or (not self.block.by and self.groups[0].killed):
            self.end(self.last)

    def _group(self, name: tuple[Value, ...]) -> int:
        """The number of a group, which is made if it is new."""
        if name not in self.numbers:
            self.numbers[name] = len(self.groups)
            self.groups.append(BlockGroup(self.block, self.env, self.start))
            self.entered.append({})
            self.sizes.append(0)
        return self.numbers[name]

    def _advance(self, number: int, frontiers: list[datetime]) -> None:
        """Tell a group what has become fixed and what has ended, and pass on what it accepts."""
        group = self.groups[number]
        group.promise(frontiers)
        group.grow()
        for at, ended in sorted(self.over.items()):
            group.finish(at, ended)
        for growing, due, time in zip(self.growing, self.due, group.grows_after(), strict=True):
            if time not in (FOREVER, due.get(number)):
                due[number] = time
                heappush(growing, (time, number))
        before, self.sizes[number] = self.sizes[number], bool(self.block.by) + group.size()
        self.machine.hold(self.sizes[number] - before)
        for time, env in group.take():
            self.emit(traced(time, env, (self.because, tuple(self.entered[number]))))
            self.machine.look_again(self.parent)
        for report in group.take_reports():
            self.machine.report(report)

    def received(self) -> set[Signal]:
        return set()  # what a block has not accepted, it has not

    def held(self) -> datetime:
        there = [group.earliest() for group in self.groups]
        return min((*there, *(signal.time for signal, _ in self.arrived)), default=FOREVER)

    def settled(self) -> datetime:
        waiting = [bead.settled() for _, bead in self.open.values()]
        return min([*waiting, self.held()])

    def children(self) -> Iterable[Bead]:
        return [bead for _, bead in self.open.values()]

    def leave(self) -> None:
        self.open = {}
        self.machine.hold(-sum(self.sizes))
        self.sizes = []


KINDS: Final = (
    TemplateBead, TimerBead, NullBead, SequenceBead, EitherBead, WheneverBead, WithoutBead, BlockBead,
)  # fmt: skip
"""All kinds of beads."""


def _fields(kind: type[Bead]) -> tuple[str, ...]:
    every = (name for one in kind.__mro__ for name in getattr(one, "__slots__", ()))
    return tuple(sorted(name for name in every if name != "machine"))


FIELDS: Final[dict[type[Bead], tuple[str, ...]]] = {kind: _fields(kind) for kind in KINDS}
"""The names of what a bead of a kind consists of, but for the machine."""

CONTENTS: Final[dict[type[Bead], Callable[[Bead], tuple[Any, ...]]]] = {
    kind: attrgetter(*fields) for kind, fields in FIELDS.items()
}
"""All that a bead of a kind consists of, in that order."""
