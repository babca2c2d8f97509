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

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, assert_never

from headgate.decide import composite as meaning
from headgate.decide.blocks import Moment, SourceFacts, expanded, quantile
from headgate.decide.composite import FOREVER, Environment, Occurrence, Signal
from headgate.model import composite as model
from headgate.model.composite import Composite
from headgate.model.errors import LimitReached
from headgate.model.limits import MAX_BEADS, MAX_KEPT
from headgate.model.values import EPOCH, Value
from headgate.pipeline.detect import beads
from headgate.pipeline.detect.beads import Bead, BlockBead, TemplateWaits, WithoutBead, parts_of, types_in

_NONE: Final[tuple[Any, ...]] = ()


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
        self.under_way: list[tuple[Bead, Signal]] = []
        self.endings: list[tuple[Bead, datetime]] = []
        self.clock = EPOCH
        self.beads = 0
        self.has_blocks = any(isinstance(part, model.Block | model.Aggregate) for part in parts_of(composite))
        self.reaches_back = _reaches_back(composite)
        self._tables = tables or {}
        self._rows: dict[str, dict[tuple[Value, ...], list[Occurrence]]] = {}
        self._numbers = count()
        self._waits: dict[int, TemplateWaits] = {}
        beads.compiled(composite, frozenset(name for name, _ in env), self._waits)
        self._by_type: dict[str, list[TemplateWaits]] = {}
        for waits in self._waits.values():
            self._by_type.setdefault(waits.template.type, []).append(waits)
        self._horizons: dict[str, datetime] = {}
        self._promised: dict[str | None, datetime] = {}
        self._gates: dict[str | None, list[tuple[datetime, int, Bead]]] = {}
        self._clocks: list[tuple[datetime, int, Bead]] = []
        self._judged: dict[int, WithoutBead] = {}
        self._late: dict[int, BlockBead | WithoutBead] = {}
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

    def start(self, c: Composite, parent: Bead | None, start: datetime, env: Environment, *, foreseen: bool) -> Bead:
        """Start an evaluation; what it begins with is done when nothing else is under way."""
        bead: Bead
        match c:
            case model.Template():
                bead = beads.TemplateBead(self, parent, start, env, self._waits[id(c)], always=False)
            case model.Whenever(model.Template() as template):
                bead = beads.TemplateBead(self, parent, start, env, self._waits[id(template)], always=True)
            case model.Timer():
                bead = beads.TimerBead(self, parent, start, env, c, foreseen=foreseen)
            case model.NullEvent():
                bead = beads.NullBead(self, parent, start, env)
            case model.Sequence():
                bead = beads.SequenceBead(self, parent, start, env, part=c, foreseen=foreseen)
            case model.Either():
                bead = beads.EitherBead(self, parent, start, env, part=c, foreseen=foreseen)
            case model.Without():
                bead = WithoutBead(self, parent, start, env, c, foreseen=foreseen)
            case model.Whenever():
                bead = beads.WheneverBead(self, parent, start, env, part=c, foreseen=foreseen)
            case model.Block():
                bead = BlockBead(self, parent, start, env, c)
            case model.Aggregate():
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
            max((f.error for f in self.streams.values() if f.types is None or f.types & types_in(side)), default=0.0)
            for side in (left, right)
        ]
        return timedelta(seconds=quantile(errors[0], errors[1], probability))

    def wait(self, types: Iterable[str | None], time: datetime, bead: Bead) -> None:
        """Tell a bead when a time becomes certain, for each of these types (None: for all streams)."""
        for type in types:
            if self.horizon_of(type) <= time:
                heappush(self._gates.setdefault(type, []), (time, bead.number, bead))

    def wait_clock(self, time: datetime, bead: Bead) -> None:
        """Tell a bead when the clock comes to a time."""
        if time > self.clock:
            heappush(self._clocks, (time, bead.number, bead))

    def look_again(self, bead: Bead | None) -> None:
        """More may be settled than was: whatever judges by that, above this bead, looks again."""
        while bead is not None:
            if isinstance(bead, WithoutBead | BlockBead):
                bead.gate()
            bead = bead.parent

    def judge_later(self, bead: WithoutBead) -> None:
        """When nothing is under way any more."""
        self._judged[bead.number] = bead

    def run_later(self, bead: BlockBead | WithoutBead) -> None:
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


def _without_aggregates(c: Composite) -> Composite:
    """The expression with the blocks that its ready-made aggregates stand for, each template a node of its own."""
    match c:
        case model.Template():
            return replace(c)  # what is surely bound differs from place to place
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
        case model.Sequence(left) if any(isinstance(part, model.Block | model.Aggregate) for part in parts_of(left)):
            return True
        case model.Whenever(of) if any(isinstance(part, model.Block | model.Aggregate) for part in parts_of(of)):
            return True
        case _:
            return any(map(_reaches_back, model.inside(c)))
