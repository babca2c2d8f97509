"""What a detection has signalled when so much has arrived, and what aggregation blocks make of it (OASIS 6.8 to 6.10).

Guarantees: `detect` is a pure function of the arrivals: records of the log in order, each one moment, with the horizons
that were promised by then. A signal is given at the first moment at which it is certain and never taken back. Without
blocks and delays the signals at the end are those of `decide.composite` among the times that are certain; what blocks
do with `new`, `once` and `var`, and what a `Delay` assumes, depends on arrival by design, and replays the same.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, assert_never, cast

from headgate.decide import composite as meaning
from headgate.decide.composite import FOREVER, Complete, Environment, Occurrence, Signal, environment, later
from headgate.decide.truth import combined, compared, evaluate, every, opposite, some
from headgate.model import composite as model
from headgate.model import expressions as tree
from headgate.model.composite import Composite, Statement
from headgate.model.errors import LimitReached
from headgate.model.expressions import Condition, Constant, Operand, Variable
from headgate.model.limits import MAX_BLOCK_STEPS
from headgate.model.values import EPOCH, Value


@dataclass(frozen=True, slots=True)
class Moment:
    """One record of the log as it arrives: what it brings, what every stream has promised by then, and the clock."""

    occurrences: tuple[Occurrence, ...]
    horizons: Mapping[str, datetime]
    clock: datetime = EPOCH


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a stream declares: the types it carries, if it says so, and by how much its clock may be wrong."""

    types: frozenset[str] | None = None
    error: float = 0.0


def detect(
    c: Composite, start: datetime, env: Environment, moments: Iterable[Moment], streams: Mapping[str, SourceFacts]
) -> list[frozenset[Signal]]:
    """The signals that are certain at each moment."""
    arrivals = Arrivals(streams)
    return [arrivals.arrive(c, start, env, moment) for moment in moments]


class Arrivals(Complete):
    """What is known at a moment, and what blocks and delays remember of those before."""

    def __init__(self, streams: Mapping[str, SourceFacts]) -> None:
        super().__init__(())
        self._streams = streams
        self._moment = Moment((), {})
        self._number = 0
        self._runs: dict[tuple[int, datetime, Environment], _Run] = {}
        self._received: dict[object, datetime] = {}
        self._assumed: set[object] = set()

    @property
    def reports(self) -> list[str]:
        """What went wrong in blocks, in words."""
        return [report for run in self._runs.values() for report in run.reports]

    def arrive(self, c: Composite, start: datetime, env: Environment, moment: Moment) -> frozenset[Signal]:
        """The signals that are certain now."""
        self._moment = replace(moment, clock=max(moment.clock, self._moment.clock))
        self._number += 1
        self.learn(moment.occurrences)
        return meaning.signals(c, start, env, self)

    def horizon(self, types: Iterable[str] | None) -> datetime:
        """The least of the promises of the streams that may carry these types."""
        wanted = None if types is None else frozenset(types)
        promised = (
            self._moment.horizons.get(name, EPOCH)
            for name, facts in self._streams.items()
            if wanted is None or facts.types is None or facts.types & wanted
        )
        return min(promised, default=FOREVER)

    def shift(self, left: Composite, right: Composite, probability: float | None) -> timedelta:
        """The times that a probability of the order asks for between the two, clocks being wrong uniformly."""
        if probability is None:
            return timedelta(0)
        return timedelta(seconds=quantile(self._error(left), self._error(right), probability))

    def _error(self, c: Composite) -> float:
        types = {template.type for template in model.templates(c)}
        return max((f.error for f in self._streams.values() if f.types is None or f.types & types), default=0.0)

    def assumed(
        self, without: model.Without, start: datetime, env: Environment, signal: Signal, *, killed: bool
    ) -> bool:
        """At the first moment at which the delay is over, what has not been seen is taken for absent, for good."""
        if without.delay is None:
            return False
        key = (id(without), start, env, signal)  # where it stands: the same absence elsewhere waits by itself
        received = self._received.setdefault(key, self._moment.clock)
        if not killed and self._moment.clock >= later(received, timedelta(seconds=without.delay)):
            self._assumed.add(key)
        return key in self._assumed

    # -- blocks -----------------------------------------------------------------------------------------------

    def run(self, block: model.Block | model.Aggregate, start: datetime, env: Environment) -> Iterable[Signal]:
        """What a block has accepted by now."""
        return self._advanced(block, start, env).accepted

    def block_settled(self, block: model.Block | model.Aggregate, start: datetime, env: Environment) -> datetime:
        """Nothing with an earlier time is in a queue or may still come into one."""
        return self._advanced(block, start, env).settled()

    def block_over(self, block: model.Block | model.Aggregate, start: datetime, env: Environment) -> datetime | None:
        """When it ended, if it has."""
        run = self._advanced(block, start, env)
        return run.end if run.is_over() else None

    def _advanced(self, block: model.Block | model.Aggregate, start: datetime, env: Environment) -> _Run:
        """The block's run, once at each moment given what is new."""
        key = (id(block), start, env)  # likewise: it is another one elsewhere
        if key not in self._runs:
            self._runs[key] = _Run(_in_place(block), start, env)
        run = self._runs[key]
        if run.number < self._number:
            run.number = self._number
            run.advance(self)
        return run


def quantile(a: float, b: float, probability: float) -> float:
    """By how much a difference of two times must exceed 0 to be positive with a probability: errors up to a and b."""
    wide, narrow = max(a, b), min(a, b)
    if wide == 0:
        return 0.0
    high = max(probability, 1 - probability)
    if high <= 1 - narrow / (2 * wide):
        distance = 2 * wide * (high - 0.5)
    else:
        distance = wide + narrow - math.sqrt(8 * wide * narrow * (1 - high))
    return distance if probability >= 0.5 else -distance


# -- runs -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Record:
    """A signal on a queue."""

    time: datetime
    values: dict[str, Value]
    said: str
    """What it said when it was put there: so the order of equal times does not depend on arrival."""
    queue: int
    removed: bool = False

    def order(self) -> tuple[datetime, str]:
        """Its place: by time, and among equal times by what it said."""
        return self.time, self.said


@dataclass(slots=True)
class _Queue:
    """A queue: its records in order, and how far it is fixed."""

    of: model.BlockQueue
    records: list[_Record] = field(default_factory=list)
    frontier: datetime = EPOCH
    fixed: int = 0

    def put(self, record: _Record) -> None:
        insort(self.records, record, key=_Record.order)

    def take(self, record: _Record) -> None:
        del self.records[self.place(record)]

    def place(self, record: _Record) -> int:
        """Where one of its records stands."""
        return self.records.index(record, bisect_left(self.records, record.order(), key=_Record.order))

    def first_variable(self) -> _Record | None:
        return next(iter(self.records[(at := self.before_frontier()) : at + 1]), None)

    def before_frontier(self) -> int:
        """How many of its records nothing can come before any more."""
        return bisect_left(self.records, self.frontier, key=_time)


def _time(record: _Record) -> datetime:
    return record.time


class _NullDereferenceError(Exception):
    """A field of null was asked for."""


class _KilledError(Exception):
    """The block was ended by `kill`."""


class _Run:
    """One evaluation of a block, or one for each group of it."""

    def __init__(self, block: model.Block, start: datetime, env: Environment) -> None:
        self.block = block
        self.start = start
        self.env = env
        self.number = 0
        self.end = start
        self._seen: list[set[Signal]] = [set() for _ in block.queues]
        self._ended: list[bool] = [False] * len(block.queues)
        self._frontiers = [start] * len(block.queues)
        self.groups: dict[tuple[Value, ...], Group] = {}
        if not block.by:
            self.groups[()] = Group(block, env, start)

    @property
    def accepted(self) -> list[Signal]:
        return [signal for group in self.groups.values() for signal in group.accepted]

    @property
    def reports(self) -> list[str]:
        return [report for group in self.groups.values() for report in group.reports]

    def is_over(self) -> bool:
        return all(self._ended) or (not self.block.by and self.groups[()].killed)

    def settled(self) -> datetime:
        if self.is_over():
            return FOREVER
        waiting = list(self._frontiers)
        waiting += [group.earliest() for group in self.groups.values()]
        return min(waiting, default=EPOCH)

    def advance(self, arrivals: Arrivals) -> None:
        """What has become certain enters by time, then what has become fixed is told, then what has ended."""
        if self.is_over():
            return
        new: list[tuple[Signal, int]] = []
        frontiers = []
        for at, queue in enumerate(self.block.queues):
            now = meaning.signals(queue.of, self.start, self.env, arrivals)
            new += [(signal, at) for signal in now - self._seen[at]]
            self._seen[at] |= now
            frontiers.append(meaning.settled(queue.of, self.start, self.env, arrivals))
        self._frontiers = frontiers
        for signal, at in sorted(new, key=lambda one: (one[0].time, one[1], repr(one[0].environment))):
            bound = dict(signal.environment)
            name = tuple(bound.get(by) for by in self.block.by)
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = Group(self.block, self.env, self.start)
            group.promise(frontiers)
            group.insert(at, signal)
        for group in self.groups.values():
            group.promise(frontiers)
            group.grow()
        for at, queue in enumerate(self.block.queues):
            ended = None if self._ended[at] else meaning.over(queue.of, self.start, self.env, arrivals)
            if ended is None:
                continue
            self._ended[at] = True
            self.end = max(self.end, ended)
            for group in self.groups.values():
                group.finish(at, ended)


class Group:
    """The locals and queues of a block, and the interpreter of its statements."""

    def __init__(self, block: model.Block, env: Environment, start: datetime) -> None:
        self.queues = [_Queue(queue) for queue in block.queues]
        self.accepted: list[Signal] = []
        self.reports: list[str] = []
        self.killed = False
        self._locals: dict[str, Any] = {name: constant.value for name, constant in block.local}
        self._env = dict(env)
        self._own = 0
        self._new: _Record | None = None
        self._at = start
        self._steps = 0

    def promise(self, frontiers: Sequence[datetime]) -> None:
        """Before these times, everything has entered the queues."""
        for queue, frontier in zip(self.queues, frontiers, strict=True):
            queue.frontier = frontier

    def insert(self, at: int, signal: Signal) -> None:
        """A signal enters a queue."""
        queue = self.queues[at]
        self._new = _Record(signal.time, dict(signal.environment), repr(signal.environment), at)
        queue.put(self._new)
        self._run(at, queue.of.event, signal.time)

    def grow(self) -> None:
        """Tell of the records that have become fixed."""
        for at, queue in enumerate(self.queues):
            before, queue.fixed = queue.fixed, queue.before_frontier()
            if queue.fixed > before:
                self._run(at, queue.of.var, queue.frontier)
                queue.fixed = queue.before_frontier()

    def finish(self, at: int, time: datetime) -> None:
        """A queue has ended."""
        self._run(at, self.queues[at].of.end, time)

    def take(self) -> list[Signal]:
        """What was accepted since it was last asked."""
        taken, self.accepted = self.accepted, []
        return taken

    def take_reports(self) -> list[str]:
        """What was reported since it was last asked."""
        taken, self.reports = self.reports, []
        return taken

    def size(self) -> int:
        """How many records are on its queues."""
        return sum(len(queue.records) for queue in self.queues)

    def earliest(self) -> datetime:
        """The time of the first record on its queues."""
        return min((queue.records[0].time for queue in self.queues if queue.records), default=FOREVER)

    def grows_after(self) -> list[datetime]:
        """The time of the first variable record of each queue: past it, more is fixed than now."""
        return [FOREVER if one is None else one.time for one in map(_Queue.first_variable, self.queues)]

    def _run(self, at: int, statements: tuple[Statement, ...], time: datetime) -> None:
        if self.killed:
            return
        self._own, self._at, self._steps = at, time, 0
        try:
            self._all(statements)
        except _NullDereferenceError as error:
            self.reports.append(str(error))
        except _KilledError:
            self.killed = True
            for queue in self.queues:
                queue.records.clear()

    def _all(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            self._step()
            self._one(statement)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_BLOCK_STEPS:
            raise LimitReached(
                f"a block takes more than MAX_BLOCK_STEPS ({MAX_BLOCK_STEPS}) steps at once",
                remedy="nest fewer loops, or kill records that are no longer needed",
            )

    def _one(self, statement: Statement) -> None:
        match statement:
            case model.Assign(Variable(name), value):
                self._locals[name] = self._known(value)
            case model.Assign(target, value):
                self._set(cast(tree.Apply, target), self._known(value))
            case model.Choose(branches):
                for condition, body in branches:
                    if condition is None or self._truth(condition) is True:
                        self._all(body)
                        break
            case model.Loop(name, first, body):
                began = self._pointer(first)
                queue = self.queues[0 if began is None else began.queue]
                for record in [] if began is None else queue.records[queue.place(began) :]:
                    self._step()
                    if not record.removed:
                        self._locals[name] = record
                        self._all(body)
            case model.Accept(operand):
                record = self._dereferenced(operand)
                self._remove(record)
                self.accepted.append(Signal(record.time, environment(record.values)))
            case model.Kill(killed):
                if killed is None:
                    raise _KilledError
                doomed = self._pointer(killed)
                if doomed is not None:
                    self._remove(doomed)
            case _:
                assert_never(statement)

    def _set(self, target: tree.Apply, value: Any) -> None:
        record = self._dereferenced(target.args[0])
        time = meaning.moment_of(value) if target.function == ".@" else None
        if target.function != ".@":
            record.values[target.function[1:]] = value
        elif time is not None and time >= record.time:
            queue = self.queues[record.queue]
            queue.take(record)
            record.time = time
            queue.put(record)
        else:
            self.reports.append(f"the time of a record is set to `{value}`, which is not later than its own")

    def _remove(self, record: _Record) -> None:
        record.removed = True
        queue = self.queues[record.queue]
        queue.fixed -= record.time < queue.frontier and queue.fixed > 0
        queue.take(record)

    # -- values and truth ---------------------------------------------------------------------------------------

    def _known(self, operand: Operand) -> Any:
        """A value that is assigned: a number too large for one, or a field that is not there, is none."""
        value = self._value(operand)
        if value is None and operand != Constant(None) and not _is_pointer(operand):
            raise _NullDereferenceError("a value that is assigned is null")
        return value

    def _value(self, operand: Operand) -> Any:
        match operand:
            case Constant(value):
                return value
            case tree.Meta():
                return self._at
            case Variable(name):
                value = self._named(name)
                return None if isinstance(value, _Record) and value.removed else value
            case tree.Combine(op, left, right):
                return combined(op, self._value(left), self._value(right))
            case tree.Apply("/", (left, right)):
                return self._value(left) / self._value(right)
            case tree.Apply(".tl", (of,)):
                record = self._dereferenced(of)
                queue = self.queues[record.queue]
                after = queue.place(record) + 1
                return next(iter(queue.records[after : after + 1]), None)
            case tree.Apply(".@", (of,)):
                return self._dereferenced(of).time
            case tree.Apply(name, (of,)):
                return self._dereferenced(of).values.get(name[1:])
            case _:
                raise tree.foreign(operand)

    def _named(self, name: str) -> Any:
        word = name.rstrip("0123456789")
        digits = name[len(word) :]
        if word in ("hd", "var", "new") and name not in self._locals:
            queue = self.queues[int(digits) if digits and int(digits) < len(self.queues) else self._own]
            if word == "new":
                return self._new
            return queue.first_variable() if word == "var" else next(iter(queue.records), None)
        return self._locals[name] if name in self._locals else self._env.get(name)

    def _pointer(self, operand: Operand) -> _Record | None:
        record = self._value(operand)
        return record if isinstance(record, _Record) and not record.removed else None

    def _dereferenced(self, operand: Operand) -> _Record:
        record = self._pointer(operand)
        if record is None:
            raise _NullDereferenceError("a field of null, or null itself, was asked for")
        return record

    def _truth(self, condition: Condition) -> bool | None:
        match condition:
            case tree.Not(arg):
                return opposite(self._truth(arg))
            case tree.AllOf(args):
                return every(map(self._truth, args))
            case tree.AnyOf(args):
                return some(map(self._truth, args))
            case tree.Compare(op, left, right):
                return self._compared(op, self._value(left), self._value(right))
            case _:
                return evaluate(condition, cast(Any, _BlockLeaves(self)))

    def _compared(self, op: str, a: Any, b: Any) -> bool | None:
        """A comparison; nearer the head is less, and everything is less than null."""
        if not isinstance(a, _Record) and not isinstance(b, _Record) and a is not None and b is not None:
            return compared(op, a, b)
        if op == "!=" and b is None and isinstance(a, bool | int | float):
            return bool(a)  # `if (n)`
        if op in ("=", "!="):
            return (a is b) is (op == "=")
        places = [self._order(a), self._order(b)]
        return None if None in places else compared(op, cast(Any, places[0]), cast(Any, places[1]))

    def _order(self, pointer: Any) -> int | None:
        if pointer is None:
            return 2**62
        is_there = isinstance(pointer, _Record) and not pointer.removed
        return self.queues[pointer.queue].place(pointer) if is_there else None


def _is_pointer(operand: Operand) -> bool:
    """May this be a record, or null?"""
    return isinstance(operand, Variable) or (isinstance(operand, tree.Apply) and operand.function == ".tl")


class _BlockLeaves:
    """What the leaves of a condition in a block say, besides comparisons."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def leaf(self, operand: Operand) -> Any:
        return self._group._value(operand)

    def is_member(self, who: str, group: str) -> None:
        """A block sees no groups."""

    def holds(self, atom: object) -> None:
        """Nor relations."""


# -- ready-made aggregates --------------------------------------------------------------------------------------

_HD, _NEW, _VAR, _Q = (Variable(name) for name in ("hd", "new", "var", "q"))
_NOT_NULL: Final = tree.Compare("!=", _HD, Constant(None))
_ACCEPT_HEAD: Final = (model.Choose(((_NOT_NULL, (model.Accept(_HD),)),)),)


def _field(record: Operand, name: str) -> Operand:
    return tree.Apply(f".{name}", (record,))


def _in_place(block: model.Block | model.Aggregate) -> model.Block:
    """A block over what stands where it stands, though it be equal to another."""
    if isinstance(block, model.Block):
        return block
    (queue,) = expanded(block).queues
    return replace(expanded(block), queues=(replace(queue, of=block.of),))


@cache
def expanded(block: model.Block | model.Aggregate) -> model.Block:
    """The block that a ready-made aggregate stands for (OASIS 6.11)."""
    if isinstance(block, model.Block):
        return block
    function, value = block.function, block.value or ""
    local: tuple[tuple[str, Constant], ...] = ()
    event: tuple[Statement, ...] = ()
    var: tuple[Statement, ...] = ()
    end: tuple[Statement, ...] = ()
    match function:
        case "count" | "sum" | "average":
            n, total = Variable(" n"), Variable(" total")  # no text can say these names
            local = ((n.name, Constant(0)), (total.name, Constant(0)))
            keep = model.Choose(
                ((tree.Compare("!=", _field(_HD, "tl"), Constant(None)), (model.Kill(_field(_HD, "tl")),)),)
            )
            more = model.Assign(total, tree.Combine("+", total, _field(_NEW, value))) if value else None
            event = (model.Assign(n, tree.Combine("+", n, Constant(1))), *((more,) if more else ()), keep)
            result: Operand = {"count": n, "sum": total}.get(function, tree.Apply("/", (total, n)))
            told = (model.Assign(_field(_HD, function), result), model.Assign(_field(_HD, "@"), model.AT))
            end = (model.Choose(((_NOT_NULL, (*told, model.Accept(_HD))),)),)
        case "min" | "max":
            op: Any = "<" if function == "min" else ">"
            new, kept = _field(_NEW, value), _field(_Q, value)
            tie = tree.AllOf((tree.Compare("=", new, kept), tree.Compare("<", _NEW, _Q)))
            better = tree.AnyOf((tree.Compare(op, new, kept), tie))
            local = (("q", Constant(None)),)
            event = (
                model.Choose((
                    (tree.Compare("=", _Q, Constant(None)), (model.Assign(_Q, _NEW),)),
                    (better, (model.Kill(_Q), model.Assign(_Q, _NEW))),
                    (None, (model.Kill(_NEW),)),
                )),
            )  # fmt: skip
            end = _ACCEPT_HEAD
        case "first":
            fixed = tree.AllOf((_NOT_NULL, tree.Compare(">", _VAR, _HD)))
            event = var = (model.Choose(((fixed, (model.Accept(_HD), model.Kill())),)),)
            end = _ACCEPT_HEAD
        case "last":
            event = (model.Choose(((tree.Compare("!=", _field(_HD, "tl"), Constant(None)), (model.Kill(_HD),)),)),)
            end = _ACCEPT_HEAD
        case "once":
            event = (model.Accept(_HD), model.Kill())
        case _:
            assert_never(function)
    return model.Block(local, (model.BlockQueue(block.of, event, var, end),), block.by)
