"""An incremental machine for composite events, after the bead machine of OASIS 6.7.

Guarantees: at each moment it gives the signals that `decide.blocks.detect` gives there for the first time, and never
takes one back. A bead is one evaluation of one part of the expression; it is linked to the bead it was started by and
to those it started, so that destroying one needs no search, and an event is offered only to beads that wait for its
type and for its values. What arrives out of order is kept as long as an evaluation may still start before it. There are
at most `MAX_BEADS` beads and `MAX_KEPT` kept events: one more is refused with `limit-reached`, and nothing is lost
silently.

At a moment the signals that follow from what arrived are passed on first, without recursion. Then absence is judged
(`-`), when nothing is under way that could contradict it; then blocks, the inner ones first, get what became certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, assert_never

from headgate.decide import composite as meaning
from headgate.decide.blocks import Group as BlockGroup
from headgate.decide.blocks import Moment, SourceFacts, expanded, quantile
from headgate.decide.composite import FOREVER, Environment, Occurrence, Signal
from headgate.model import composite as model
from headgate.model.composite import Composite
from headgate.model.errors import LimitReached
from headgate.model.expressions import Constant, Variable
from headgate.model.limits import MAX_BEADS, MAX_KEPT
from headgate.model.values import EPOCH, Value, compare

_NONE: Final[tuple[Any, ...]] = ()


# -- the program ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Waits:
    """A template as the machine has it: what waits for its events, and which of them are kept."""

    template: model.Template
    keyed: tuple[str, ...]
    """Attributes whose variables are surely bound when the template is started, and so are looked up."""
    names: tuple[str, ...]
    """Those variables, in the same order."""
    literals: tuple[tuple[str, Value], ...]
    free: tuple[tuple[str, str], ...]
    """The other variables, with their attributes."""
    beads: dict[tuple[Value, ...], dict[int, _TemplateBead]] = field(default_factory=dict)
    kept: dict[tuple[Value, ...], list[Occurrence]] = field(default_factory=dict)

    def bind(self, one: Occurrence, env: Environment) -> Environment | None:
        """What an event that was found by its values binds; None if it does not match. For templates without tests."""
        if not self.free:
            return env
        bound = dict(env)
        for attribute, name in self.free:
            value = one.values.get(attribute)
            if value is None or compare("=", bound.setdefault(name, value), value) is not True:
                return None
        return meaning.environment(bound)

    def key(self, one: Occurrence) -> tuple[Value, ...] | None:
        """Under which values an event is looked up; None if it cannot match."""
        values = one.values
        for attribute, literal in self.literals:
            if compare("=", literal, values.get(attribute)) is not True:
                return None
        if not self.keyed:
            return _NONE
        found = tuple([values.get(attribute) for attribute in self.keyed])
        return None if None in found else found


def _compiled(c: Composite, sure: frozenset[str], waits: dict[int, _Waits]) -> frozenset[str]:
    """Note each template with what is surely bound when it is started; what is surely bound after."""
    match c:
        case model.Template():
            names = [(a, p.name) for a, p in zip(c.attributes, c.parameters, strict=True) if isinstance(p, Variable)]
            there = [(attribute, name) for attribute, name in names if name in sure]
            literals = tuple(
                (a, p.value) for a, p in zip(c.attributes, c.parameters, strict=True) if isinstance(p, Constant)
            )
            free = tuple(pair for pair in names if pair not in there)
            waits[id(c)] = _Waits(c, tuple(a for a, _ in there), tuple(n for _, n in there), literals, free)  # type: ignore[arg-type]
            assigned = (one.name for one in c.side if isinstance(one, model.SideAssignment))
            return sure.union((name for _, name in names), assigned)
        case model.Timer():
            return sure.union(one.name for one in c.side if isinstance(one, model.SideAssignment))
        case model.NullEvent():
            return sure
        case model.Sequence(left, right):
            return _compiled(right, _compiled(left, sure, waits), waits)
        case model.Either(left, right):
            return _compiled(left, sure, waits) & _compiled(right, sure, waits)
        case model.Without(left, right):
            _compiled(right, sure, waits)
            return _compiled(left, sure, waits)
        case model.Whenever(of) | model.Aggregate(_, of):
            return _compiled(of, sure, waits)
        case model.Block(_, queues):
            after = [_compiled(queue.of, sure, waits) for queue in queues]
            return after[0].intersection(*after[1:])
        case _:
            assert_never(c)


@cache
def _sources(c: Composite) -> tuple[str | None, ...]:
    """On the horizons of which types a composite event depends; None, that of all streams, if it has timers."""
    timed = any(isinstance(part, model.Timer) for part in _parts(c))
    return (*sorted(_types(c)), *((None,) if timed else ()))


def _types(c: Composite) -> frozenset[str]:
    return frozenset(template.type for template in model.templates(c))


# -- beads ------------------------------------------------------------------------------------------------------


class _Bead:
    """One evaluation: of a part of the expression, from a start, with an environment."""

    __slots__ = ("alive", "env", "machine", "number", "parent", "start")

    def __init__(self, machine: Machine, parent: _Bead | None, start: datetime, env: Environment) -> None:
        self.machine = machine
        self.parent = parent
        self.start = start
        self.env = env
        self.alive = True
        self.number = machine.counted()

    def begin(self) -> None:
        """Look for what is there already, start other beads."""

    def receive(self, child: _Bead, signal: Signal) -> None:
        """A bead that this one started has signalled."""

    def finished(self, child: _Bead, at: datetime) -> None:
        """A bead that this one started will signal no more, because of what happened at a time."""

    def settled(self) -> datetime:
        """All signals before this time have been given."""
        raise NotImplementedError

    def children(self) -> Iterable[_Bead]:
        """The beads that it started and that are there still."""
        return _NONE

    def gate(self) -> None:
        """A time that it waits for has become certain."""

    def emit(self, signal: Signal) -> None:
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
        doomed: list[_Bead] = [self]
        while doomed:
            bead = doomed.pop()
            if bead.alive:
                doomed += bead.children()
                bead.alive = False
                bead.leave()
                self.machine.beads -= 1

    def leave(self) -> None:
        """Wait for nothing any more."""

    def depth(self) -> int:
        """How many beads it stands below."""
        above = 0
        bead = self.parent
        while bead is not None:
            above += 1
            bead = bead.parent
        return above


class _TemplateBead(_Bead):
    """Waits for the first match, or with `always` for every one."""

    __slots__ = ("always", "best", "found", "key", "rows_due", "seen", "waits")

    def __init__(
        self, machine: Machine, parent: _Bead | None, start: datetime, env: Environment, waits: _Waits, *, always: bool
    ) -> None:
        super().__init__(machine, parent, start, env)
        self.waits = waits
        self.always = always
        self.best = FOREVER
        self.found: list[Signal] = []
        self.seen: set[Signal] = set()
        self.rows_due = False
        if waits.names:
            bound = dict(env)
            self.key = tuple([bound[name] for name in waits.names])
        else:
            self.key = _NONE

    def begin(self) -> None:
        self.waits.beads.setdefault(self.key, {})[self.number] = self
        if self.machine.is_table(self.waits.template.type):
            self.rows_due = True
            self.machine.wait((self.waits.template.type,), self.start, self)
        for one in self.waits.kept.get(self.key, _NONE):
            self.offer(one)
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
            self._matched(Signal(one.time, env))

    def _match(self, one: Occurrence, at: datetime) -> None:
        for signal in meaning.matched(self.waits.template, one, at, self.env):
            self._matched(signal)

    def _matched(self, signal: Signal) -> None:
        if self.always:
            if signal not in self.seen:
                self.seen.add(signal)
                self.machine.prune_later(self)
                self.emit(signal)
        elif signal.time < self.best:
            self.best = signal.time
            self.found = [signal]
            self.machine.wait((self.waits.template.type,), signal.time, self)
        else:
            self.found.append(signal)

    def gate(self) -> None:
        horizon = self.machine.horizon_of(self.waits.template.type)
        if self.rows_due and self.start < horizon:
            self.rows_due = False
            for row in self._rows():
                self._match(row, self.start)
        if not self.always and self.best < horizon and not self.rows_due:
            for signal in dict.fromkeys(self.found):
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
        due = self.start if self.rows_due else FOREVER
        return min(self.best, due, self.machine.horizon_of(self.waits.template.type))

    def prune(self, horizon: datetime) -> None:
        """Forget signals that cannot come again."""
        self.seen = {signal for signal in self.seen if signal.time >= horizon}

    def leave(self) -> None:
        there = self.waits.beads.get(self.key)
        if there is not None:
            there.pop(self.number, None)
            if not there:
                del self.waits.beads[self.key]


class _TimerBead(_Bead):
    """Waits for a time; on the right side of a `-` it is known beforehand."""

    __slots__ = ("foreseen", "signal", "timer")

    def __init__(
        self,
        machine: Machine,
        parent: _Bead | None,
        start: datetime,
        env: Environment,
        timer: model.Timer,
        *,
        foreseen: bool,
    ) -> None:
        super().__init__(machine, parent, start, env)
        self.timer = timer
        self.foreseen = foreseen
        self.signal: Signal | None = None

    def begin(self) -> None:
        self.signal = next(meaning.fired(self.timer, self.start, self.env), None)
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

    def settled(self) -> datetime:
        assert self.signal is not None
        return min(self.signal.time, self.machine.horizon_of(None))


class _NullBead(_Bead):
    """Signals at its own start."""

    __slots__ = ()

    def begin(self) -> None:
        self.emit(Signal(self.start, self.env))
        self.end(self.start)


class _SequenceBead(_Bead):
    """Starts an evaluation of its right side at each signal of its left side."""

    __slots__ = ("after", "first", "foreseen", "given", "last", "part", "shift")

    def __init__(
        self,
        machine: Machine,
        parent: _Bead | None,
        start: datetime,
        env: Environment,
        part: model.Sequence,
        *,
        foreseen: bool,
    ) -> None:
        super().__init__(machine, parent, start, env)
        self.part = part
        self.foreseen = foreseen
        self.after: dict[int, _Bead] = {}
        self.given: set[Signal] = set()
        self.first: _Bead | None = None
        self.last = start
        self.shift = machine.shift(part.left, part.right, part.probability)

    def begin(self) -> None:
        self.first = self.machine.start(self.part.left, self, self.start, self.env, foreseen=self.foreseen)

    def receive(self, child: _Bead, signal: Signal) -> None:
        if child is not self.first:
            if signal not in self.given:
                self.given.add(signal)
                self.machine.prune_later(self)
                self.emit(signal)
            return
        at = signal.time + self.shift
        bead = self.machine.start(self.part.right, self, at, signal.environment, foreseen=self.foreseen)
        self.after[bead.number] = bead

    def finished(self, child: _Bead, at: datetime) -> None:
        self.last = max(self.last, at)
        if child is self.first:
            self.first = None
        else:
            self.after.pop(child.number, None)
        if self.first is None and not self.after:
            self.end(self.last)

    def settled(self) -> datetime:
        return min((bead.settled() for bead in self.children()), default=FOREVER)

    def received(self) -> set[Signal]:
        seen = {signal for bead in self.after.values() for signal in bead.received()}
        for one in set() if self.first is None else self.first.received():
            seen |= self.machine.would_signal(self.part.right, one.time + self.shift, one.environment)
        return seen

    def children(self) -> Iterable[_Bead]:
        return (*(() if self.first is None else (self.first,)), *self.after.values())

    def prune(self, horizon: datetime) -> None:
        """Forget signals that cannot come again."""
        if not self.machine.has_blocks:
            self.given = {signal for signal in self.given if signal.time >= horizon}


class _EitherBead(_Bead):
    """Both sides, each signal once."""

    __slots__ = ("foreseen", "given", "last", "part", "sides")

    def __init__(
        self,
        machine: Machine,
        parent: _Bead | None,
        start: datetime,
        env: Environment,
        part: model.Either,
        *,
        foreseen: bool,
    ) -> None:
        super().__init__(machine, parent, start, env)
        self.part = part
        self.foreseen = foreseen
        self.sides: dict[int, _Bead] = {}
        self.given: set[Signal] = set()
        self.last = start

    def begin(self) -> None:
        for side in (self.part.left, self.part.right):
            bead = self.machine.start(side, self, self.start, self.env, foreseen=self.foreseen)
            self.sides[bead.number] = bead

    def receive(self, child: _Bead, signal: Signal) -> None:  # noqa: ARG002
        if signal not in self.given:
            self.given.add(signal)
            self.machine.prune_later(self)
            self.emit(signal)

    def finished(self, child: _Bead, at: datetime) -> None:
        self.last = max(self.last, at)
        self.sides.pop(child.number, None)
        if not self.sides:
            self.end(self.last)

    def settled(self) -> datetime:
        return min((bead.settled() for bead in self.sides.values()), default=FOREVER)

    def children(self) -> Iterable[_Bead]:
        return self.sides.values()

    def prune(self, horizon: datetime) -> None:
        """Forget signals that cannot come again."""
        if not self.machine.has_blocks:
            self.given = {signal for signal in self.given if signal.time >= horizon}


class _WheneverBead(_Bead):
    """Starts again at each time at which it signalled, with the old environment."""

    __slots__ = ("foreseen", "given", "last", "of", "open", "starts")

    def __init__(
        self,
        machine: Machine,
        parent: _Bead | None,
        start: datetime,
        env: Environment,
        of: Composite,
        *,
        foreseen: bool,
    ) -> None:
        super().__init__(machine, parent, start, env)
        self.of = of
        self.foreseen = foreseen
        self.starts: set[datetime] = set()
        self.open: dict[int, _Bead] = {}
        self.given: set[Signal] = set()
        self.last = start

    def begin(self) -> None:
        self._again(self.start)

    def _again(self, at: datetime) -> None:
        self.starts.add(at)
        bead = self.machine.start(self.of, self, at, self.env, foreseen=self.foreseen)
        self.open[bead.number] = bead

    def receive(self, child: _Bead, signal: Signal) -> None:  # noqa: ARG002
        if signal in self.given:
            return
        self.given.add(signal)
        self.machine.prune_later(self)
        self.emit(signal)
        if signal.time not in self.starts:
            self._again(signal.time)

    def finished(self, child: _Bead, at: datetime) -> None:
        self.last = max(self.last, at)
        self.open.pop(child.number, None)
        if not self.open:
            self.end(self.last)

    def settled(self) -> datetime:
        return min((bead.settled() for bead in self.open.values()), default=FOREVER)

    def received(self) -> set[Signal]:
        seen = super().received()
        for at in {signal.time for signal in seen} - self.starts:
            seen |= self.machine.would_signal(model.Whenever(self.of), at, self.env)
        return seen

    def children(self) -> Iterable[_Bead]:
        return self.open.values()

    def prune(self, horizon: datetime) -> None:
        """Forget signals and starts that cannot come again."""
        if not self.machine.has_blocks:
            self.given = {signal for signal in self.given if signal.time >= horizon}
            self.starts = {at for at in self.starts if at >= horizon}


class _WithoutBead(_Bead):
    """Passes on what its left side signals once it is certain that its right side did not come first."""

    __slots__ = ("foreseen", "kill", "left", "left_over", "part", "right", "shift", "waiting")

    def __init__(
        self,
        machine: Machine,
        parent: _Bead | None,
        start: datetime,
        env: Environment,
        part: model.Without,
        *,
        foreseen: bool,
    ) -> None:
        super().__init__(machine, parent, start, env)
        self.part = part
        self.foreseen = foreseen
        self.kill = FOREVER
        self.left: _Bead | None = None
        self.right: _Bead | None = None
        self.left_over: datetime | None = None
        self.waiting: dict[Signal, datetime] = {}
        """Signals of the left side, with the clock when they were received."""
        self.shift = machine.shift(part.left, part.right, part.probability)

    def begin(self) -> None:
        self.right = self.machine.start(self.part.right, self, self.start, self.env, foreseen=True)
        self.left = self.machine.start(self.part.left, self, self.start, self.env, foreseen=self.foreseen)

    def receive(self, child: _Bead, signal: Signal) -> None:
        if child is self.left:
            if signal not in self.waiting:
                self.waiting[signal] = self.machine.clock
        elif self.start < signal.time < self.kill:
            self.kill = signal.time
        else:
            return
        self.machine.judge_later(self)

    def finished(self, child: _Bead, at: datetime) -> None:
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
        for signal, received in list(self.waiting.items()):
            until = signal.time + self.shift
            if self.kill <= until and self.part.delay is None:
                del self.waiting[signal]
                self.machine.look_again(self.parent)
            elif until < absent and self.kill > until:
                del self.waiting[signal]
                self.emit(signal)
            else:
                self.machine.wait(_sources(self.part.right), until, self)
                if self.part.delay is not None:
                    self.machine.wait_clock(received + timedelta(seconds=self.part.delay), self)
        if self.part.delay is not None and self.waiting:
            self.machine.run_later(self)
        self._end(absent)

    def _end(self, absent: datetime) -> None:
        """End, if nothing more can be passed on."""
        if self.waiting:
            return
        ended = self.left_over
        if ended is not None and ended <= self.kill and ended < absent:
            self.end(ended)
        elif self.kill < min(FOREVER if self.left is None else self.left.settled(), absent):
            self.end(self.kill)
        elif ended is not None or self.kill < FOREVER:
            self.machine.wait(_sources(self.part), min(self.kill, ended or self.kill), self)

    def run(self) -> None:
        """All else of the moment that it depends on is done: what waited long enough is passed on, or is killed."""
        absent = FOREVER if self.right is None else self.right.settled()
        seen = set() if self.right is None else {one.time for one in self.right.received() if one.time > self.start}
        kill = min(self.kill, *seen, FOREVER)
        delay = timedelta(seconds=self.part.delay or 0)
        for signal, received in list(self.waiting.items()):
            until = signal.time + self.shift
            if kill > until and self.machine.clock >= received + delay:
                del self.waiting[signal]
                self.emit(signal)
            elif self.kill <= until:
                del self.waiting[signal]
                self.machine.look_again(self.parent)
        self._end(absent)

    def received(self) -> set[Signal]:
        left = set() if self.left is None else self.left.received()
        right = set() if self.right is None else self.right.received()
        kill = min(self.kill, *(one.time for one in right if one.time > self.start), FOREVER)
        return {one for one in left | set(self.waiting) if one.time + self.shift < kill}

    def settled(self) -> datetime:
        parts = [bead.settled() for bead in self.children()]
        return min((*parts, *(signal.time for signal in self.waiting)), default=FOREVER)

    def children(self) -> Iterable[_Bead]:
        return [bead for bead in (self.left, self.right) if bead is not None]


class _BlockBead(_Bead):
    """A block: what its expressions signal enters its queues at the end of the moment."""

    __slots__ = ("arrived", "block", "groups", "last", "open", "over")

    def __init__(
        self, machine: Machine, parent: _Bead | None, start: datetime, env: Environment, block: model.Block
    ) -> None:
        super().__init__(machine, parent, start, env)
        self.block = block
        self.groups: dict[tuple[Value, ...], BlockGroup] = {}
        if not block.by:
            self.groups[()] = BlockGroup(block, env, start)
        self.open: dict[int, tuple[int, _Bead]] = {}
        self.arrived: list[tuple[Signal, int]] = []
        self.over: dict[int, datetime] = {}
        """The queues that have ended and not been told so, with when."""
        self.last = start

    def begin(self) -> None:
        for at, queue in enumerate(self.block.queues):
            bead = self.machine.start(queue.of, self, self.start, self.env, foreseen=False)
            self.open[bead.number] = at, bead
        self.machine.run_later(self)

    def receive(self, child: _Bead, signal: Signal) -> None:
        self.arrived.append((signal, self.open[child.number][0]))
        self.machine.run_later(self)

    def finished(self, child: _Bead, at: datetime) -> None:
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
        arrived, self.arrived = self.arrived, []
        for signal, at in sorted(
            dict.fromkeys(arrived), key=lambda one: (one[0].time, one[1], repr(one[0].environment))
        ):
            bound = dict(signal.environment)
            name = tuple(bound.get(by) for by in self.block.by)
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = BlockGroup(self.block, self.env, self.start)
            group.promise(frontiers)
            group.insert(at, signal)
            self.machine.wait(_sources(self.block.queues[at].of), signal.time, self)
        for group in self.groups.values():
            group.promise(frontiers)
            group.grow()
        for at, ended in sorted(self.over.items()):
            self.last = max(self.last, ended)
            for group in self.groups.values():
                group.finish(at, ended)
        self.over.clear()
        for group in self.groups.values():
            for signal in group.take():
                self.emit(signal)
                self.machine.look_again(self.parent)
            self.machine.reports += group.take_reports()
        if not self.open or (not self.block.by and self.groups[()].killed):
            self.end(self.last)

    def received(self) -> set[Signal]:
        return set()  # what a block has not accepted, it has not

    def settled(self) -> datetime:
        waiting = [bead.settled() for _, bead in self.open.values()]
        waiting += [time for group in self.groups.values() for time in group.times()]
        waiting += [signal.time for signal, _ in self.arrived]
        return min(waiting, default=FOREVER)

    def children(self) -> Iterable[_Bead]:
        return [bead for _, bead in self.open.values()]


# -- the machine --------------------------------------------------------------------------------------------------


class _Kept(meaning.Complete):
    """The events that a machine keeps, taken for all there are; blocks accept nothing of them yet."""

    def __init__(self, machine: Machine, events: Iterable[Occurrence]) -> None:
        super().__init__(events)
        self.shift = machine.shift  # type: ignore[method-assign]

    def run(self, *_: object) -> Iterable[Signal]:
        return ()

    def block_settled(self, *_: object) -> datetime:
        return FOREVER

    def block_over(self, *_: object) -> datetime | None:
        return None


class Machine:
    """One detection: what arrives goes in, new signals come out."""

    def __init__(
        self, composite: Composite, start: datetime, env: Environment, streams: Mapping[str, SourceFacts],
        tables: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:  # fmt: skip
        composite = self.composite = _without_aggregates(composite)
        self.streams = streams
        self.reports: list[str] = []
        self.under_way: list[tuple[_Bead, Signal]] = []
        self.endings: list[tuple[_Bead, datetime]] = []
        self.clock = EPOCH
        self.beads = 0
        self.has_blocks = any(isinstance(part, model.Block | model.Aggregate) for part in _parts(composite))
        self.reaches_back = _reaches_back(composite)
        self._tables = tables or {}
        self._rows: dict[str, dict[tuple[Value, ...], list[Occurrence]]] = {}
        self._numbers = count()
        self._waits: dict[int, _Waits] = {}
        _compiled(composite, frozenset(name for name, _ in env), self._waits)
        self._by_type: dict[str, list[_Waits]] = {}
        for waits in self._waits.values():
            self._by_type.setdefault(waits.template.type, []).append(waits)
        self._horizons: dict[str, datetime] = {}
        self._promised: dict[str | None, datetime] = {}
        self._gates: dict[str | None, list[tuple[datetime, int, _Bead]]] = {}
        self._clocks: list[tuple[datetime, int, _Bead]] = []
        self._judged: dict[int, _WithoutBead] = {}
        self._late: dict[int, _BlockBead | _WithoutBead] = {}
        self._prunable: dict[int, Any] = {}
        self._kept = 0
        self._prune_at = 1024
        self._given: set[Signal] = set()
        self._new: list[Signal] = []
        self._started = False
        self._start = start, env

    def arrive(self, moment: Moment) -> list[Signal]:
        """What has become certain by what arrives."""
        self._new = []
        self.clock = max(self.clock, moment.clock)
        if not self._started:
            self._started = True
            self.start(self.composite, None, *self._start, foreseen=False)
        for one in moment.occurrences:
            self._offer(one)
        self._promise(moment.horizons)  # they promise nothing about what the moment itself brings
        self._pass_gates()
        self._settle()
        if self._kept > self._prune_at:
            self._prune()
        return self._new

    # -- what beads ask for -------------------------------------------------------------------------------------

    def counted(self) -> int:
        """The number of a new bead."""
        self.beads += 1
        if self.beads > MAX_BEADS:
            raise LimitReached(
                f"the detection has more than MAX_BEADS ({MAX_BEADS}) evaluations open",
                remedy="end it, and bound its evaluations with `-` and a timer",
            )
        return next(self._numbers)

    def start(self, c: Composite, parent: _Bead | None, start: datetime, env: Environment, *, foreseen: bool) -> _Bead:
        """Start an evaluation; what it begins with is done when nothing else is under way."""
        bead: _Bead
        match c:
            case model.Template():
                bead = _TemplateBead(self, parent, start, env, self._waits[id(c)], always=False)
            case model.Whenever(model.Template() as template):
                bead = _TemplateBead(self, parent, start, env, self._waits[id(template)], always=True)
            case model.Timer():
                bead = _TimerBead(self, parent, start, env, c, foreseen=foreseen)
            case model.NullEvent():
                bead = _NullBead(self, parent, start, env)
            case model.Sequence():
                bead = _SequenceBead(self, parent, start, env, c, foreseen=foreseen)
            case model.Either():
                bead = _EitherBead(self, parent, start, env, c, foreseen=foreseen)
            case model.Without():
                bead = _WithoutBead(self, parent, start, env, c, foreseen=foreseen)
            case model.Whenever(of):
                bead = _WheneverBead(self, parent, start, env, of, foreseen=foreseen)
            case model.Block():
                bead = _BlockBead(self, parent, start, env, c)
            case model.Aggregate():
                raise AssertionError(c)
            case _:
                assert_never(c)
        bead.begin()
        return bead

    def is_table(self, type: str) -> bool:
        """Is it a keyed type?"""
        return type in self._tables

    def rows_for(self, waits: _Waits, key: tuple[Value, ...]) -> Iterable[list[Occurrence]]:
        """The versions of each row that may match: one row where the template knows its whole key."""
        rows = self._rows.get(waits.template.type, {})
        own = self._tables[waits.template.type]
        if not set(own) <= set(waits.keyed):
            return list(rows.values())
        known = dict(zip(waits.keyed, key, strict=True))
        there = rows.get(tuple(known[attribute] for attribute in own))
        return [] if there is None else [there]

    def horizon_of(self, type: str | None) -> datetime:
        """All events of the type (None: of any) before this have arrived."""
        promised = self._promised.get(type)
        if promised is None:
            promised = min(
                (
                    self._horizons.get(name, EPOCH)
                    for name, facts in self.streams.items()
                    if type is None or facts.types is None or type in facts.types
                ),
                default=FOREVER,
            )
            self._promised[type] = promised
        return promised

    def shift(self, left: Composite, right: Composite, probability: float | None) -> timedelta:
        """How much later right must be for the order to hold with a probability."""
        if probability is None:
            return timedelta(0)
        errors = [
            max((f.error for f in self.streams.values() if f.types is None or f.types & _types(side)), default=0.0)
            for side in (left, right)
        ]
        return timedelta(seconds=quantile(errors[0], errors[1], probability))

    def wait(self, types: Iterable[str | None], time: datetime, bead: _Bead) -> None:
        """Tell a bead when a time becomes certain, for each of these types (None: for all streams)."""
        for type in types:
            if self.horizon_of(type) <= time:
                heappush(self._gates.setdefault(type, []), (time, bead.number, bead))

    def wait_clock(self, time: datetime, bead: _Bead) -> None:
        """Tell a bead when the clock comes to a time."""
        if time > self.clock:
            heappush(self._clocks, (time, bead.number, bead))

    def look_again(self, bead: _Bead | None) -> None:
        """More may be settled than was: whatever judges by that, above this bead, looks again."""
        while bead is not None:
            if isinstance(bead, _WithoutBead | _BlockBead):
                bead.gate()
            bead = bead.parent

    def judge_later(self, bead: _WithoutBead) -> None:
        """When nothing is under way any more."""
        self._judged[bead.number] = bead

    def run_later(self, bead: _BlockBead | _WithoutBead) -> None:
        """At the end of the moment."""
        self._late[bead.number] = bead

    def would_signal(self, c: Composite, start: datetime, env: Environment) -> frozenset[Signal]:
        """What an evaluation would signal from a start on that is not certain yet, if nothing more came."""
        kept = {id(one): one for waits in self._waits.values() for some in waits.kept.values() for one in some}
        rows = {id(one): one for some in self._rows.values() for versions in some.values() for one in versions}
        return meaning.signals(c, start, env, _Kept(self, (kept | rows).values()))

    def prune_later(self, bead: Any) -> None:
        """When what is kept is looked through."""
        self._prunable[bead.number] = bead

    # -- a moment -----------------------------------------------------------------------------------------------

    def _promise(self, horizons: Mapping[str, datetime]) -> None:
        for stream, horizon in horizons.items():
            if horizon > self._horizons.get(stream, EPOCH):
                self._horizons[stream] = horizon
                self._promised.clear()

    def _offer(self, one: Occurrence) -> None:
        for type in one.types:
            if type in one.tables and type in self._tables:
                self._rows.setdefault(type, {}).setdefault(one.key, []).append(one)
            for waits in self._by_type.get(type, _NONE):
                key = waits.key(one)
                if key is None:
                    continue
                if self._kept >= MAX_KEPT:
                    self._prune()
                    if self._kept >= MAX_KEPT:
                        raise LimitReached(
                            f"more than MAX_KEPT ({MAX_KEPT}) events wait for a horizon",
                            remedy="a source has fallen silent: see which one holds the horizon back",
                        )
                self._kept += 1
                waits.kept.setdefault(key, []).append(one)
                there = waits.beads.get(key)
                if there:
                    for bead in list(there.values()):
                        if bead.alive:
                            bead.offer(one)

    def _pass_gates(self) -> None:
        for type, gates in list(self._gates.items()):
            horizon = self.horizon_of(type)
            while gates and gates[0][0] < horizon:
                bead = heappop(gates)[2]
                if bead.alive:
                    bead.gate()
        while self._clocks and self._clocks[0][0] <= self.clock:
            bead = heappop(self._clocks)[2]
            if bead.alive:
                bead.gate()

    def _settle(self) -> None:
        """Pass signals on, judge absence, run blocks, until nothing is left to do."""
        while True:
            self._drain()
            self._pass_gates()
            if self.under_way or self.endings:
                continue
            if self._judged:
                bead = self._judged.popitem()[1]  # one at a time: what it passes on may contradict the next
                if bead.alive:
                    bead.judge()
            elif self._late:
                number = max(self._late, key=lambda n: (self._late[n].depth(), -n))  # what others depend on first
                late = self._late.pop(number)
                if late.alive:
                    late.run()
            else:
                return

    def _drain(self) -> None:
        while self.under_way or self.endings:
            under_way, self.under_way = self.under_way, []
            endings, self.endings = self.endings, []
            for bead, signal in under_way:
                if bead.parent is None:
                    if signal not in self._given:
                        self._given.add(signal)
                        self._new.append(signal)
                elif bead.parent.alive:
                    bead.parent.receive(bead, signal)
            for bead, at in endings:
                if bead.parent is not None and bead.parent.alive:
                    bead.parent.finished(bead, at)
                    self.look_again(bead.parent.parent)

    def _prune(self) -> None:
        """Forget events before which nothing can start any more, and signals that cannot come again."""
        horizon = self.horizon_of(None)
        if not self.reaches_back:
            kept = 0
            for waits in self._waits.values():
                for key, events in list(waits.kept.items()):
                    left = [one for one in events if one.time >= horizon]
                    if left:
                        waits.kept[key] = left
                    else:
                        del waits.kept[key]
                    kept += len(left)
            for rows in self._rows.values():
                for name, versions in rows.items():
                    past = [one for one in versions if one.time < horizon]
                    newest = [max(past, key=lambda one: (one.time, one.seq))] if past else []
                    rows[name] = newest + [one for one in versions if one.time >= horizon]
            self._kept = kept
        if not self.has_blocks:
            self._given = {signal for signal in self._given if signal.time >= horizon}
        for bead in self._prunable.values():
            if bead.alive:
                bead.prune(horizon)
        self._prunable = {number: bead for number, bead in self._prunable.items() if bead.alive}
        self._prune_at = max(1024, 2 * self._kept)


def _parts(c: Composite) -> Iterator[Composite]:
    yield c
    for part in model.inside(c):
        yield from _parts(part)


def _without_aggregates(c: Composite) -> Composite:
    """The expression with the blocks that its ready-made aggregates stand for."""
    match c:
        case model.Sequence(left, right) | model.Without(left, right) | model.Either(left, right):
            return replace(c, left=_without_aggregates(left), right=_without_aggregates(right))
        case model.Whenever(of):
            return model.Whenever(_without_aggregates(of))
        case model.Block() | model.Aggregate():
            block = expanded(c)
            queues = tuple(replace(queue, of=_without_aggregates(queue.of)) for queue in block.queues)
            return replace(block, queues=queues)
        case _:
            return c


def _reaches_back(c: Composite) -> bool:
    """May an evaluation start at the time of what a block accepted, which may be long past?"""
    match c:
        case model.Sequence(left) if any(isinstance(part, model.Block | model.Aggregate) for part in _parts(left)):
            return True
        case model.Whenever(of) if any(isinstance(part, model.Block | model.Aggregate) for part in _parts(of)):
            return True
        case _:
            return any(map(_reaches_back, model.inside(c)))
