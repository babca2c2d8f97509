"""Some of the shards of all detections, run together over the records of the log, with their state held elsewhere.

Guarantees: what comes out is a function of the records, the events that were routed here and the saved state, in a
stated order: by record, then detection, time and bindings. A shard is looked at only when something arrives for it or
a time that it waits for has become certain; only those are read and written. One in which nothing is under way is not
kept, and one that is over is not looked at again. A detection that asks for history is run over the earlier records
first, as if it had been there from the start.
A detection that comes to a limit, or in which something unforeseen happens, stops here and says so; no other one does.
Leaves out: where state is kept (`ShardStore`), and who decides what a principal sees.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from headgate.decide.composite import FOREVER, Environment, Occurrence
from headgate.model.errors import DetectionFailed, LimitReached
from headgate.model.limits import MAX_SIGNALS
from headgate.model.state import State
from headgate.pipeline.detect.beads import EventPlace, contributors
from headgate.pipeline.detect.machine import FORMAT, Machine, other_format
from headgate.pipeline.detect.plans import DetectionPlan
from headgate.pipeline.detect.routing import keep_to
from headgate.pipeline.detect.signal_limits import HISTORY, hour_of, too_many_signals
from headgate.pipeline.detect.signals import STATEMENT_FAILED
from headgate.pipeline.detect.sources import Arrival, SourcePromises, TypeTimes

ShardKey: TypeAlias = tuple[int, int]
"""The number of a detection, and that of a shard of it."""

Routed: TypeAlias = Mapping[int, Sequence[tuple[ShardKey, Occurrence]]]
"""What arrives with each append, by its number in the log, for the shards it is for."""


class CertainSignal(NamedTuple):
    """What a detection signals, at the record of the log that made it certain."""

    arrival: tuple[int, int]
    detection: int
    time: datetime
    environment: Environment
    contributors: tuple[EventPlace, ...]
    hour: int = 0
    """Of the clock when it became certain (`signal_limits`)."""
    code: str = ""
    """If this is no signal: what is remarked of the detection. It has stopped if the code is among `STOPS`."""
    report: str = ""
    """That in words."""


_UNFORESEEN: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip
"""Faults of a machine. Those of files and memory are not among them: what is tried again then may succeed."""


class ShardStore(Protocol):
    """Keeps shards as bytes."""

    def get(self, key: ShardKey) -> bytes | None:
        """What was put under a key."""

    def put(self, key: ShardKey, saved: bytes) -> None:
        """Keep it."""

    def remove(self, key: ShardKey) -> None:
        """Keep nothing."""


_ALL: Final = -1
"""In place of a shard: what a detection holds back that has none."""

_HEADING: Final = b"headgate detections %d\n" % FORMAT


class _Waiting(NamedTuple):
    """What a shard waits for: the earliest time for each type, and by the clock."""

    times: dict[str | None, datetime]
    clock: datetime | None = None


_NOTHING: Final = _Waiting({})


class Bucket:
    """Shards of detections, and what they know of the sources."""

    def __init__(
        self,
        sources: SourcePromises,
        shards: ShardStore,
        plan_of: Callable[[int], DetectionPlan],
        state_at: Callable[[int], State],
        *,
        is_history: bool = False,
    ) -> None:
        self._is_history = is_history
        self._counts: Counter[tuple[int, int]] = Counter()
        """What detections have signalled in this run, by hour: none need give more to stop."""
        self.sources = sources
        self._shards = shards
        self._plan_of = plan_of
        self._state_at = state_at
        self._waiting: dict[ShardKey, _Waiting] = {}
        self._stopped: set[int] = set()
        self._over: set[ShardKey] = set()
        """Shards that will signal no more, and are not kept."""
        self._machines: dict[ShardKey, Machine] = {}
        self._gates: dict[tuple[frozenset[str], str | None], list[tuple[datetime, ShardKey]]] = {}
        self._clocks: list[tuple[datetime, ShardKey]] = []
        self._touched: set[ShardKey] = set()
        self._begun: set[ShardKey] = set()
        """Shards to be looked at with the next record, whatever it brings."""
        self._held: dict[ShardKey, datetime] = {}
        """The earliest time that shards hold back, of detections for which that is asked."""
        self._place = 0, 0
        self._remarks: list[CertainSignal] = []

    # -- as bytes ---------------------------------------------------------------------------------------------

    def keep(self) -> list[CertainSignal]:
        """Put shards where they are kept; the detections that stopped because that could not be done."""
        for key in sorted(self._touched | self._begun):
            self._try(key, self._keep, key)
        self._touched.clear()
        return self._taken()

    def _keep(self, machine: Machine, key: ShardKey) -> None:
        if self._plan_of(key[0]).routing.is_cut and machine.is_idle():
            del self._machines[key]
            self._waiting.pop(key, None)
            self._held.pop(key, None)
            self._shards.remove(key)
        else:
            self._shards.put(key, machine.saved())
            if self._plan_of(key[0]).tells_held:
                self._held[key] = machine.held()

    def saved(self) -> bytes:
        """What the bucket remembers besides its shards, which were put where they are kept."""
        kept = self.sources, self._waiting, self._stopped, self._over, self._begun, self._place, self._held
        return _HEADING + pickle.dumps(kept, protocol=5)

    def restore(self, saved: bytes) -> None:
        """Remember what another bucket did."""
        if not saved.startswith(_HEADING):
            raise other_format("another format")
        kept = pickle.loads(saved[len(_HEADING) :])  # noqa: S301 - out of Spark's own state
        self.sources, self._waiting, self._stopped, self._over, self._begun, self._place, self._held = kept
        for key, waiting in self._waiting.items():
            self._enqueue(key, waiting, _NOTHING)

    # -- running ----------------------------------------------------------------------------------------------

    def run(
        self, arrivals: Iterable[Arrival], routed: Routed, opened: Sequence[int], closed: Mapping[int, int],
        streams: Iterable[str], times: Mapping[str, TypeTimes], *, at_once: bool = False, stopped: Iterable[int] = (),
    ) -> Iterator[CertainSignal]:  # fmt: skip
        """Records of the log, in order; which detections begin with these, and at which version others end.

        With `at_once` they begin before the first, whatever its version. Others `stopped` before, in any bucket.
        """
        self._counts.clear()
        self.sources.declare(streams, times)
        for number in stopped:
            if number not in self._stopped:
                self._close(number)
                self._stopped.add(number)
        begin = [(0 if at_once else self._plan_of(number).first, number, self._open) for number in opened]
        end = [(version, number, self._close) for number, version in closed.items()]
        turns = sorted([*begin, *end], key=lambda turn: turn[:2], reverse=True)
        for arrival in arrivals:
            self._place = arrival.number, arrival.promise
            while turns and turns[-1][0] <= arrival.version:
                _, number, turn = turns.pop()
                yield from turn(number)
            yield from self._arrive(arrival, routed.get(arrival.number, ()) if not arrival.promise else ())
        for _, number, turn in reversed(turns):
            yield from turn(number)
        yield from self._taken()

    def apart(self) -> Bucket:
        """A bucket that has seen nothing, for detections that are run over earlier records by themselves."""
        return Bucket(SourcePromises(), self._shards, self._plan_of, self._state_at, is_history=True)

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self._waiting)

    def held(self) -> dict[int, datetime]:
        """The earliest time that each detection holds back here, of those that began and are asked for it."""
        least: dict[int, datetime] = {}
        for (number, _), time in self._held.items():
            least[number] = min(time, least.get(number, time))
        return least

    def machines(self) -> Iterable[Machine]:
        """The machines that are held in memory, by the order of their shards."""
        return (self._machines[key] for key in sorted(self._machines))

    def forget(self, most: int) -> bool:
        """Let go of machines that are kept elsewhere, if there are more than so many; were there?"""
        if len(self._machines) <= most:
            return False
        self._machines.clear()
        return True

    def adopt(self, earlier: Bucket) -> None:
        """Go on with the shards of a bucket that was run over earlier records alone."""
        for key, machine in earlier._machines.items():
            machine.horizons = self.sources.view(self._plan_of(key[0]).types)
            self._machines[key] = machine
            self._begun.add(key)
        self._held |= earlier._held
        self._stopped |= earlier._stopped
        self._over |= earlier._over

    def _open(self, number: int) -> Iterator[CertainSignal]:
        """A detection begins; before the first record of all it waits for that, for there is no clock yet.

        What is cut into shards begins when something arrives for them.
        """
        key = (number, 0)
        if self._plan_of(number).tells_held:
            self._held[number, _ALL] = FOREVER
        if self._plan_of(number).routing.is_cut or key in self._waiting or key in self._over:
            return
        if not self.sources.begun:
            self._begun.add(key)
            return
        self._try(key, Machine.offer, ())
        yield from self._settle([key])

    def _close(self, number: int) -> tuple[()]:
        every = {*self._waiting, *self._machines, *self._begun, *self._held}
        for key in [key for key in every if key[0] == number]:
            self._drop(key)
        self._over = {key for key in self._over if key[0] != number}
        self._stopped.discard(number)
        return ()

    def _drop(self, key: ShardKey) -> None:
        self._machines.pop(key, None)
        self._waiting.pop(key, None)
        self._held.pop(key, None)
        self._touched.discard(key)
        self._begun.discard(key)
        self._shards.remove(key)

    def _arrive(self, arrival: Arrival, events: Sequence[tuple[ShardKey, Occurrence]]) -> Iterator[CertainSignal]:
        mine: dict[ShardKey, list[Occurrence]] = {}
        begun, self._begun = self._begun, set()
        for key in begun:
            mine[key] = []
        for key, one in events:
            mine.setdefault(key, []).append(one)
        for key, some in mine.items():
            self._try(key, Machine.offer, some)
        self.sources.take(arrival)
        restless = {key for key in self._due() if key in self._waiting}
        for key in mine:
            machine = self._machines.get(key)
            if machine is not None and key not in restless:
                if machine.is_restless():
                    restless.add(key)
                else:
                    self._touched.add(key)
                    self._note(key, machine)
        yield from self._settle(restless)

    def _settle(self, keys: Iterable[ShardKey]) -> Iterator[CertainSignal]:
        """What has become certain in these shards."""
        told: list[CertainSignal] = []
        hour = HISTORY if self._is_history else hour_of(self.sources.clock)
        for key in sorted(keys):
            signals = self._try(key, Machine.settle) or ()
            for signal in signals:
                because = tuple(contributors(signal.because))
                told.append(CertainSignal(self._place, key[0], signal.time, signal.environment, because, hour))
            if signals:
                self._counts[key[0], hour] += len(signals)
                if self._counts[key[0], hour] > MAX_SIGNALS:
                    self._stop(key[0], LimitReached.code, str(too_many_signals()))
            machine = self._machines.get(key)
            if machine is not None:
                self._touched.add(key)
                self._note(key, machine)
                if machine.reports:
                    for report in machine.take_reports():
                        self._remark(key[0], STATEMENT_FAILED, report)
                if machine.is_over:
                    self._drop(key)
                    self._over.add(key)
        yield from self._taken()
        if told:
            yield from sorted(told, key=lambda one: (one.detection, one.time, repr(one.environment)))

    def _try(self, key: ShardKey, do: Callable[..., Any], *given: Any) -> Any:
        """Have a machine do something; a detection that comes to a limit, or fails, stops and says so."""
        if key[0] in self._stopped or key in self._over:
            return None
        machine = self._machines.get(key) or self._machine(key)
        try:
            return do(machine, *given)
        except LimitReached as error:
            self._stop(key[0], error.code, str(error))
        except _UNFORESEEN as error:
            self._stop(key[0], DetectionFailed.code, f"{type(error).__name__}: {error}")

    def _stop(self, number: int, code: str, why: str) -> None:
        self._close(number)
        self._stopped.add(number)
        self._remark(number, code, why)

    def _remark(self, number: int, code: str, text: str) -> None:
        self._remarks.append(CertainSignal(self._place, number, self._plan_of(number).start, (), (), 0, code, text))

    def _taken(self) -> list[CertainSignal]:
        taken, self._remarks = self._remarks, []
        return taken

    def _machine(self, key: ShardKey) -> Machine:
        plan = self._plan_of(key[0])
        machine = Machine(plan.program, plan.start, plan.env, self.sources.view(plan.types), plan.tables)
        keep_to(machine, plan.routing, key[1])
        saved = self._shards.get(key)
        if saved is not None:
            machine.restore(saved, self._state_at)
        self._machines[key] = machine
        return machine

    # -- waiting ----------------------------------------------------------------------------------------------

    def _note(self, key: ShardKey, machine: Machine) -> None:
        times, clock = machine.wakes(), machine.wakes_by_clock()
        before = self._waiting.get(key, _NOTHING)
        if before is _NOTHING or before.times != times or before.clock != clock:
            waiting = self._waiting[key] = _Waiting(times, clock)
            self._enqueue(key, waiting, before)

    def _enqueue(self, key: ShardKey, waiting: _Waiting, before: _Waiting) -> None:
        """Have a shard be due when it need be; for what it waited for before, it is."""
        types = self._plan_of(key[0]).types
        for type, time in waiting.times.items():
            if before.times.get(type) != time:
                heappush(self._gates.setdefault((types, type), []), (time, key))
        if waiting.clock not in (None, before.clock):
            heappush(self._clocks, (waiting.clock, key))

    def _due(self) -> set[ShardKey]:
        """The shards that wait for a time which is certain now."""
        due: set[ShardKey] = set()
        for (types, type), gates in self._gates.items():
            horizon = self.sources.view(types).of(type)
            while gates and gates[0][0] < horizon:
                due.add(heappop(gates)[1])
        clock = self.sources.view(frozenset()).clock
        while self._clocks and self._clocks[0][0] <= clock:
            due.add(heappop(self._clocks)[1])
        return due
