"""An incremental machine for composite events, after the bead machine of OASIS 6.7.

Guarantees: at each moment it gives the signals that `decide.blocks.detect` gives there for the first time, and never
takes one back. A bead is one evaluation of one part of the expression; it is linked to the bead it was started by and
to those it started, so that destroying one needs no search, and an event is offered only to beads that wait for its
type and for its values. What arrives out of order is kept as long as an evaluation may still start before it, and what
was signalled as long as it may come again (`past`). There are at most `MAX_BEADS` beads, groups and records of blocks
among them, and `MAX_KEPT` kept events and signals: one more is refused with `limit-reached`, and nothing is lost
silently.

At a moment the signals that follow from what arrived are passed on first, without recursion. Then absence is judged
(`-`), when nothing is under way that could contradict it; then blocks, the inner ones first, get what became certain.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from heapq import heapify, heappop, heappush
from io import BytesIO
from operator import attrgetter
from typing import Any, Final, assert_never

from headgate.decide import composite as meaning
from headgate.decide.blocks import Moment, SourceFacts, quantile
from headgate.decide.composite import EARLIEST, FOREVER, Environment, Occurrence, Signal, earlier
from headgate.model import composite as model
from headgate.model.composite import Composite
from headgate.model.errors import Damaged, LimitReached
from headgate.model.limits import MAX_BEADS, MAX_KEPT, MAX_SIGNALS
from headgate.model.state import State
from headgate.model.values import EPOCH, Value
from headgate.pipeline.detect import beads
from headgate.pipeline.detect.beads import (
    Bead,
    Begun,
    BlockBead,
    Traced,
    WithoutBead,
)
from headgate.pipeline.detect.program import LASTING, Program, Reducer, TemplateWaits, referred, types_in
from headgate.pipeline.detect.signal_limits import too_many_signals

_NONE: Final[tuple[Any, ...]] = ()
FORMAT: Final = 6
"""Of machines as bytes."""

PRUNE_AT: Final = 32
"""Kept events that are too few to look through: every evaluation that starts is offered those that it may match."""

MAX_REPORTS: Final = 10
"""Different reports that are kept until they are asked for."""

_REMEMBERED: Final = (
    "beads", "_rows", "_next", "_gates", "_clocks", "_kept", "_prune_at", "_given", "_started", "_root",
    "_first_beads", "_prunable",
)  # fmt: skip
_remembered: Final = attrgetter(*_REMEMBERED)


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


class Horizons:
    """What sources have promised, and the clock: for all machines to which the same sources matter."""

    def __init__(self, sources: Mapping[str, SourceFacts]) -> None:
        self.sources = dict(sources)
        self.clock = EPOCH
        self._promises: dict[str, datetime] = {}
        self._least: dict[str | None, datetime] = {}

    def declare(self, source: str, facts: SourceFacts, horizon: datetime) -> None:
        """A source that begins later, above all that was taken for certain."""
        if source not in self.sources:
            self.sources[source] = facts
            self._promises[source] = horizon
            self._least.clear()

    def renew(self, sources: Mapping[str, SourceFacts]) -> None:
        """These are the sources now; what they have promised still counts."""
        self.sources = dict(sources)
        self._least.clear()

    def promise(self, horizons: Mapping[str, datetime], clock: datetime) -> None:
        """SourcePromises promise that no earlier event will come; neither they nor the clock go back."""
        self.clock = max(self.clock, clock)
        for source, horizon in horizons.items():
            if horizon > self._promises.get(source, EPOCH):
                self._promises[source] = horizon
                self._least.clear()

    def of(self, type: str | None) -> datetime:
        """All events of the type (None: of any) before this have arrived."""
        least = self._least.get(type)
        if least is None:
            carrying = (name for name, facts in self.sources.items() if type is None or carries(facts, type))
            least = min((self._promises.get(name, EPOCH) for name in carrying), default=FOREVER)
            self._least[type] = least
        return least

    def shift(self, left: Composite, right: Composite, probability: float | None) -> timedelta:
        """How much later right must be for the order to hold with a probability."""
        if probability is None:
            return timedelta(0)
        errors = [
            max((f.error for f in self.sources.values() if f.types is None or f.types & types_in(side)), default=0.0)
            for side in (left, right)
        ]
        return timedelta(seconds=quantile(errors[0], errors[1], probability))


def carries(facts: SourceFacts, type: str) -> bool:
    """May a source bring events of a type?"""
    return facts.types is None or type in facts.types


def other_format(found: str) -> Damaged:
    """The state that Spark has kept is not of this format."""
    return Damaged(
        f"the state of detections is of {found}, and this is format {FORMAT}",
        remedy="delete the checkpoint of the detections: they are worked out again from the log",
    )


class Machine:
    """One detection: what arrives goes in, new signals come out."""

    def __init__(
        self, composite: Composite | Program, start: datetime, env: Environment, horizons: Horizons,
        tables: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:  # fmt: skip
        program = composite if isinstance(composite, Program) else Program(composite, (name for name, _ in env))
        self.program = program
        self.composite = program.composite
        self.horizons = horizons
        self.reports: dict[str, None] = {}
        """What is to be told of blocks, each once, and no more than MAX_REPORTS until it is taken."""
        self.under_way: list[tuple[Bead, Traced]] = []
        self.endings: list[tuple[Bead, datetime]] = []
        self.beads = 0
        self.has_blocks = program.has_blocks
        self.reaches_back = program.reaches_back
        self._is_shifted = program.is_shifted
        self._goes_back = program.goes_back
        self._tables = tables or {}
        self._rows: dict[str, dict[tuple[Value, ...], list[Occurrence]]] = {}
        self._next = 0
        self._waits = program.waits()
        self._by_type: dict[str, list[TemplateWaits]] = {}
        for waits in self._waits.values():
            self._by_type.setdefault(waits.template.type, []).append(waits)
        self._gates: dict[str | None, list[tuple[datetime, int, Bead]]] = {}
        self._clocks: list[tuple[datetime, int, Bead]] = []
        self._judged: dict[int, WithoutBead] = {}
        self._late: dict[int, BlockBead | WithoutBead] = {}
        self._by_depth: list[tuple[int, int]] = []
        self._prunable: dict[int, Any] = {}
        self._kept = 0
        self._prune_at = PRUNE_AT
        self._given: set[Signal] = set()
        self._new: list[Traced] = []
        self._started = False
        self._root: Bead | None = None
        self._first_beads = 0
        self._start = start, env

    def arrive(self, moment: Moment) -> list[Traced]:
        """What has become certain by what arrives, when no other machine shares the horizons."""
        self.offer(moment.occurrences)
        self.horizons.promise(moment.horizons, moment.clock)  # nothing about what the moment itself brings
        return self.settle()

    def offer(self, occurrences: Iterable[Occurrence]) -> None:
        """What a moment brings; `settle` follows, when its promises are known."""
        if not self._started:
            self._started = True
            self._root = self.start(self.composite, Begun(None, *self._start), foreseen=False)
            self._first_beads = self.beads
        if self.is_over:
            return
        for one in occurrences:
            self._offer(one)

    def settle(self) -> list[Traced]:
        """What has become certain by what was offered and promised."""
        self._new = []
        self._pass_gates()
        self._settle()
        if self._kept + len(self._given) > self._prune_at:
            self._prune()
            if self._kept + len(self._given) > MAX_KEPT:
                raise self._full()
        return self._new

    def held(self) -> datetime:
        """The earliest time of what it holds back; all else that it signals comes with what is yet to arrive."""
        if not self._started:
            return self._start[0]
        return min((bead.held() for bead in self.every_bead()), default=FOREVER)

    def past(self) -> datetime:
        """Before this it neither signals nor starts anything any more, whatever is yet to arrive."""
        horizon = self.horizon_of(None)
        if self.has_blocks:
            horizon = min(horizon, self.held())
        return earlier(horizon, meaning.lag(self.composite, self.shift)) if self._is_shifted else horizon

    def is_restless(self) -> bool:
        """Has `settle` anything to do?"""
        if self.under_way or self.endings or self._judged or self._late:
            return True
        if self._kept + len(self._given) > self._prune_at:
            return True
        for type, gates in self._gates.items():
            if gates and gates[0][0] < self.horizons.of(type):
                return True
        return bool(self._clocks) and self._clocks[0][0] <= self.horizons.clock

    def take_reports(self) -> list[str]:
        """What was reported since it was last asked."""
        taken, self.reports = list(self.reports), {}
        return taken

    def report(self, text: str) -> None:
        """Something that a block could not do."""
        if len(self.reports) < MAX_REPORTS:
            self.reports[text] = None

    def wakes(self) -> dict[str | None, datetime]:
        """The times that it waits for, and that were not certain yet: the earliest for each type (None: any)."""
        if not self._gates:
            return {}
        return {type: gates[0][0] for type, gates in self._gates.items() if gates}

    def wakes_by_clock(self) -> datetime | None:
        """When the clock must have come to for it to be looked at."""
        return self._clocks[0][0] if self._clocks else None

    @property
    def is_over(self) -> bool:
        """Will it signal no more, whatever comes?"""
        return self._started and (self._root is None or not self._root.alive)

    def is_idle(self) -> bool:
        """Is it as it was before anything arrived, so that it need not be kept?"""
        self._prune()
        waiting = self._kept or self._rows or self._given or self._prunable or self._clocks or any(self.wakes())
        if waiting or not self._started or self.beads != self._first_beads:
            return False
        first = range(1, self._first_beads + 1)  # as many others may have taken their places, and a block remembers
        return all(bead.number in first and not isinstance(bead, BlockBead) for bead in self.every_bead())

    def templates(self) -> Iterable[TemplateWaits]:
        """The templates of its expression."""
        return self._waits.values()

    # -- as bytes ---------------------------------------------------------------------------------------------

    def saved(self) -> bytes:
        """All that it remembers, for `restore`; without what others know: the expression, horizons, states."""
        self._prune()
        self._gates = {type: _living(gates) for type, gates in self._gates.items()}
        self._clocks = _living(self._clocks)
        there = list(self.every_bead())
        heading = [bead.number for bead in there], bytes([_KIND_OF[type(bead)] for bead in there])
        contents = [beads.CONTENTS[type(bead)](bead) for bead in there]
        waits = [(one.beads, one.kept) for one in self._waits.values()]
        written = BytesIO()
        writer = pickle.Pickler(written, protocol=5)
        writer.dispatch_table = self.program.reducing(_REDUCERS)
        writer.dump((FORMAT, *heading))
        writer.dump((contents, waits, _remembered(self)))
        return written.getvalue()

    def restore(self, saved: bytes, state_at: Callable[[int], State]) -> None:
        """Remember what another machine of the same detection did; states are looked up by their versions."""
        there: dict[int, Bead] = {}
        reader = _Reader(BytesIO(saved), self, there, state_at)
        format, *heading = reader.load()
        if format != FORMAT:
            raise other_format(f"format {format}")
        for number, kind in zip(*heading, strict=True):
            there[number] = object.__new__(beads.KINDS[kind])
        contents, waits, rest = reader.load()
        for bead, values in zip(there.values(), contents, strict=True):
            bead.machine = self
            for name, value in zip(beads.FIELDS[type(bead)], values, strict=True):
                setattr(bead, name, value)
        for one, (waiting, kept) in zip(self._waits.values(), waits, strict=True):
            one.beads, one.kept = waiting, kept
        for name, value in zip(_REMEMBERED, rest, strict=True):
            setattr(self, name, value)

    def every_bead(self) -> Iterator[Bead]:
        """Its evaluations, each before those that it started."""
        left = [self._root] if self._root is not None and self._root.alive else []
        while left:
            bead = left.pop()
            yield bead
            left += [child for child in bead.children() if child.alive]

    # -- what beads ask for -------------------------------------------------------------------------------------

    def counted(self) -> int:
        """The number of a new bead."""
        self.hold(1)
        self._next += 1
        return self._next

    def hold(self, more: int) -> None:
        """So many more evaluations are open, or as many groups and records of blocks."""
        self.beads += more
        if self.beads > MAX_BEADS:
            raise LimitReached(
                f"the detection has more than MAX_BEADS ({MAX_BEADS}) evaluations open",
                remedy="end it, and bound its evaluations with `-` and a timer",
            )

    def start(self, c: Composite, begun: Begun, *, foreseen: bool) -> Bead:
        """Start an evaluation; what it begins with is done when nothing else is under way."""
        bead: Bead
        waits = self._waits.get(id(c))
        if waits is not None:
            bead = beads.TemplateBead(self, begun, waits, always=False)
            bead.begin()
            return bead
        match c:
            case model.Whenever(model.Template() as template):
                bead = beads.TemplateBead(self, begun, self._waits[id(template)], always=True)
            case model.Timer():
                bead = beads.TimerBead(self, begun, c, foreseen=foreseen)
            case model.NullEvent():
                bead = beads.NullBead(self, begun)
            case model.Without():
                bead = WithoutBead(self, begun, c, foreseen=foreseen)
            case model.Sequence():
                bead = beads.SequenceBead(self, begun, c, foreseen=foreseen)
            case model.Either():
                bead = beads.EitherBead(self, begun, c, foreseen=foreseen)
            case model.Whenever():
                bead = beads.WheneverBead(self, begun, c, foreseen=foreseen)
            case model.Block():
                bead = BlockBead(self, begun, c)
            case model.Template() | model.Aggregate():
                raise AssertionError(c)
            case _:
                assert_never(c)
        bead.begin()
        return bead

    def is_table(self, type: str) -> bool:
        """Is it a keyed type?"""
        return type in self._tables

    def rows_for(self, waits: TemplateWaits, key: tuple[Value, ...]) -> Iterable[list[Occurrence]]:
        """The versions of each row that may match: one row where the template knows its whole key."""
        rows = self._rows.get(waits.template.type, {})
        own = self._tables[waits.template.type]
        if not set(own) <= set(waits.keyed):
            return list(rows.values())
        known = dict(zip(waits.keyed, key, strict=True))
        there = rows.get(tuple(known[attribute] for attribute in own))
        return [] if there is None else [there]

    @property
    def clock(self) -> datetime:
        """The newest clock that was seen."""
        return self.horizons.clock

    def horizon_of(self, type: str | None) -> datetime:
        """All events of the type (None: of any) before this have arrived."""
        return self.horizons.of(type)

    def shift(self, left: Composite, right: Composite, probability: float | None) -> timedelta:
        """How much later right must be for the order to hold with a probability."""
        return self.horizons.shift(left, right, probability)

    def backward(self, c: Composite) -> float:
        """By how many microseconds a part may signal before its own start."""
        return meaning.backward(c, self.shift) if self._is_shifted else 0

    def wait(self, types: Iterable[str | None], time: datetime, bead: Bead) -> None:
        """Tell a bead when a time becomes certain, for each of these types (None: for all streams)."""
        for type in types:
            horizon = self.horizons.of(type)
            if horizon <= time:
                heappush(self._gates.setdefault(type, []), (time, bead.number, bead))
            elif self._goes_back:  # what is settled lies behind the horizon: whenever that moves
                heappush(self._gates.setdefault(type, []), (horizon, bead.number, bead))

    def wait_once(
        self, types: Iterable[str | None], time: datetime, bead: Bead, last: dict[str | None, datetime]
    ) -> None:
        """Likewise, unless the bead is told as soon by what it last waited for, which is kept by type."""
        for type in types:
            horizon = self.horizons.of(type)
            wanted = time if horizon <= time or not self._goes_back else horizon
            if horizon <= wanted and not horizon <= last.get(type, EARLIEST) <= wanted:
                last[type] = wanted
                self.wait((type,), time, bead)

    def wait_clock(self, time: datetime, bead: Bead) -> None:
        """Tell a bead when the clock comes to a time."""
        if time > self.clock:
            heappush(self._clocks, (time, bead.number, bead))

    def look_again(self, bead: Bead | None) -> None:
        """More may be settled than was: whatever judges by that, above this bead, looks again."""
        while bead is not None:
            if bead.judges:
                bead.gate()
            bead = bead.parent

    def judge_later(self, bead: WithoutBead) -> None:
        """When nothing is under way any more."""
        self._judged[bead.number] = bead

    def run_later(self, bead: BlockBead | WithoutBead) -> None:
        """At the end of the moment."""
        if bead.number not in self._late:
            self._late[bead.number] = bead
            heappush(self._by_depth, (-bead.depth(), bead.number))  # what others depend on first

    def would_signal(self, c: Composite, start: datetime, env: Environment) -> frozenset[Signal]:
        """What an evaluation would signal from a start on that is not certain yet, if nothing more came."""
        kept = {id(one): one for waits in self._waits.values() for some in waits.kept.values() for one in some}
        rows = {id(one): one for some in self._rows.values() for versions in some.values() for one in versions}
        return meaning.signals(c, start, env, _Kept(self, (kept | rows).values()))

    def prune_later(self, bead: Any) -> None:
        """When what is kept is looked through."""
        self._prunable[bead.number] = bead

    # -- a moment -----------------------------------------------------------------------------------------------

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
                        raise self._full()
                self._kept += 1
                waits.kept.setdefault(key, []).append(one)
                there = waits.beads.get(key)
                if there:
                    for bead in list(there.values()):
                        if bead.alive:
                            bead.offer(one)

    def _full(self) -> LimitReached:
        if self.reaches_back:
            told = f"more than MAX_KEPT ({MAX_KEPT}) events are kept for what follows a block, which may begin long ago"
            return LimitReached(
                told, remedy="let the block stand last, or publish what it signals for another detection"
            )
        told = f"more than MAX_KEPT ({MAX_KEPT}) events wait for a horizon"
        return LimitReached(told, remedy="a source has fallen silent: see which one holds the horizon back")

    def _pass_gates(self) -> None:
        for type, gates in list(self._gates.items()) if self._gates else _NONE:
            if not gates:
                continue
            horizon = self.horizons.of(type)
            while gates and gates[0][0] < horizon:
                bead = heappop(gates)[2]
                if bead.alive:
                    bead.gate()
        while self._clocks and self._clocks[0][0] <= self.horizons.clock:
            bead = heappop(self._clocks)[2]
            if bead.alive:
                bead.gate()

    def _settle(self) -> None:
        """Pass signals on, judge absence, run blocks, until nothing is left to do."""
        while True:  # gates are passed already: what is waited for now was not certain when the moment began
            if self.under_way or self.endings:
                self._drain()
            if self._judged:
                bead = self._judged.popitem()[1]  # one at a time: what it passes on may contradict the next
                if bead.alive:
                    bead.judge()
            elif self._late:
                late = self._late.pop(heappop(self._by_depth)[1])
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
                        if len(self._new) > MAX_SIGNALS:
                            raise too_many_signals()
                elif bead.parent.alive:
                    bead.parent.receive(bead, signal)
            for bead, at in endings:
                if bead.parent is not None and bead.parent.alive:
                    bead.parent.finished(bead, at)
                    self.look_again(bead.parent.parent)

    def _prune(self) -> None:
        """Forget events before which nothing can start any more, and signals that cannot come again."""
        past, kept = self.past(), 0
        for waits in self._waits.values():
            for key, events in list(waits.kept.items()):
                left = [one for one in events if one.time >= past]
                if left:
                    waits.kept[key] = left
                else:
                    del waits.kept[key]
                kept += len(left)
        for rows in self._rows.values():
            for name, versions in rows.items():
                before = [one for one in versions if one.time < past]
                newest = [max(before, key=lambda one: (one.time, one.seq))] if before else []
                rows[name] = newest + [one for one in versions if one.time >= past]
        self._kept = kept
        self._given = {signal for signal in self._given if signal.time >= past}
        every = self._prunable.items()
        self._prunable = {number: bead for number, bead in every if bead.alive and bead.prune(past)}
        looked_through = self.beads if self.has_blocks else 0
        self._prune_at = max(PRUNE_AT, 2 * (kept + len(self._given)), looked_through)


def _living(gates: list[tuple[datetime, int, Bead]]) -> list[tuple[datetime, int, Bead]]:
    """A heap without the beads that are gone."""
    left = [entry for entry in gates if entry[2].alive]
    heapify(left)
    return left


class StateAt:
    """The state at a version, which is looked up only if something of it is asked for."""

    def __init__(self, version: int, look_up: Callable[[int], State]) -> None:
        self.version = version
        self._look_up = look_up

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look_up(self.version), name)


_BEAD, _STATE, _TEMPLATE = "bead", "state", "template"


def _bead(bead: Bead) -> Any:
    return referred, (_BEAD, bead.number if bead.alive else 0)


def _state(state: State | StateAt) -> Any:
    return referred, (_STATE, state.version)


def _template(waits: TemplateWaits) -> Any:
    return referred, (_TEMPLATE, waits.place)


_REDUCERS: Final[dict[type, Reducer]] = {
    **dict.fromkeys(beads.KINDS, _bead),
    State: _state,
    StateAt: _state,
    TemplateWaits: _template,
}
"""Beads are written as their numbers, states as their versions, and what lasts by its place.

What is of none of these classes is written without asking: a look at every value would double the work.
"""

_KIND_OF: Final = {kind: place for place, kind in enumerate(beads.KINDS)}


class _Reader(pickle.Unpickler):
    """Reads what `Machine.saved` has written."""

    def __init__(
        self, file: BytesIO, machine: Machine, there: Mapping[int, Bead], state_at: Callable[[int], State]
    ) -> None:
        super().__init__(file)
        ways: dict[str, Callable[[int], Any]] = {
            _BEAD: there.get,
            _STATE: state_at,
            _TEMPLATE: list(machine.templates()).__getitem__,
            LASTING: machine.program.lasting.__getitem__,
        }
        self._found = partial(_found, ways)

    def find_class(self, module: str, name: str) -> Any:
        return self._found if name == referred.__name__ else super().find_class(module, name)


def _found(ways: Mapping[str, Callable[[int], Any]], kind: str, number: int) -> Any:
    return ways[kind](number)
