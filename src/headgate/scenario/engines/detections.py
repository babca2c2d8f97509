"""Composite events in a story by the reference: what detections signal, and what comes of that.

Guarantees: a detection sees what its principal may see of each event, at the event's version, history by D10. What
arrives when is the order of the steps; each accepted event, heartbeat and move of the clock is one moment. Every stream
that the file names counts from the start with horizon 0; an event below what its stream has promised is refused.
Leaves out: what other engines signal, which detect by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from headgate.decide.blocks import Moment, SourceFacts
from headgate.decide.blocks import detect as reference
from headgate.decide.composite import Occurrence, Signal, environment
from headgate.decide.derived import DERIVED, derived_event, derived_row, may_hold, promise
from headgate.model.changes import AddRow
from headgate.model.errors import BelowHorizon
from headgate.model.events import Draft, Event
from headgate.model.rights import Detection, Subscription
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import EPOCH, Value
from headgate.pipeline.detect.beads import Traced, contributors
from headgate.pipeline.detect.machine import Horizons, Machine

Views = Mapping[str, Mapping[str, Value]]
"""What a detection sees of events, by their ids."""


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Something that arrived, and where the promises, the clock and the ledger were then."""

    horizons: Mapping[str, datetime]
    clock: datetime
    state: State
    event: Event | None = None


@dataclass(slots=True)
class Detections:
    """What arrived in a story, in order, and what its detections make of it."""

    streams: frozenset[str]
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The types that detections of the file publish, each with its ancestors; each is a source of its own."""
    arrivals: list[_Arrival] = field(default_factory=list)
    horizons: dict[str, datetime] = field(default_factory=dict)
    _given: dict[tuple[str, int], set[Signal]] = field(default_factory=dict)
    """The signals of which something came, by detection."""
    _settled: tuple[int, int] = (0, 0)

    def check(self, event: Event) -> None:
        """Refuse an event that is earlier than its stream has promised."""
        source = event.stream if event.stream != DERIVED else _source(event.type)
        if event.occurred < self.horizons.get(source, EPOCH):
            raise BelowHorizon(
                f"`{event.id}` is earlier than the stream `{event.stream}` has promised",
                remedy="send events before the heartbeat that promises their absence",
            )

    def arrived(self, event: Event, state: State) -> None:
        """An event was accepted."""
        self.arrivals.append(_Arrival(dict(self.horizons), event.time, state, event))

    def promised(self, stream: str, horizon: datetime, clock: datetime, state: State) -> None:
        """A stream promises; horizons never go back."""
        self.horizons[stream] = max(horizon, self.horizons.get(stream, EPOCH))
        self.passed(clock, state)

    def passed(self, clock: datetime, state: State) -> None:
        """The clock has come to a time."""
        self.arrivals.append(_Arrival(dict(self.horizons), clock, state))

    # -- what is signalled --------------------------------------------------------------------------------------

    def signals(self, one: Subscription, seen: Views) -> list[Signal]:
        """What a detection has signalled, in the order of time."""
        detection = detection_of(one)
        bound = environment(detection.bound)
        told = reference(detection.composite, detection.start, bound, self._moments(one, seen), self._sources())
        return in_order(told[-1] if told else ())

    def by_machine(self, one: Subscription, seen: Views) -> list[Signal]:
        """The same by the machine, which says what led to each."""
        machine = self._machine(one)
        return in_order(signal for moment in self._moments(one, seen) for signal in machine.arrive(moment))

    def _machine(self, one: Subscription) -> Machine:
        detection = detection_of(one)
        tables = {name: key for arrival in self.arrivals for name, key in _tables(arrival.state.types)}
        horizons = Horizons(self._sources())
        return Machine(detection.composite, detection.start, environment(detection.bound), horizons, tables)

    def _sources(self) -> dict[str, SourceFacts]:
        """Streams, in each of them types that say how wrong its clocks may be, and types that detections publish."""
        types = self._types()
        streams = {stream: SourceFacts() for stream in self.streams}
        wrong = {
            source: SourceFacts(frozenset(types.lineage(type)), types.times(type).clock_error)
            for source, (_, type) in self._wrong().items()
        }
        derived = {
            _source(type): SourceFacts(frozenset(line), types.times(type).clock_error if type in types else 0.0)
            for type, line in self.published.items()
        }
        return streams | wrong | derived

    def _wrong(self) -> dict[str, tuple[str, str]]:
        """The types that say how wrong clocks may be as sources: the stream and the type of each."""
        types = self._types()
        mine = [type for type in types.every if types.times(type).clock_error]
        return {_source(type, stream): (stream, type) for stream in self.streams for type in mine}

    def _types(self) -> Catalog:
        return self.arrivals[-1].state.types if self.arrivals else Catalog()

    def _moments(self, one: Subscription, seen: Views) -> list[Moment]:
        """What arrived before a detection ended; what a stream has promised, it has promised of each type."""
        streams = {source: stream for source, (stream, _) in self._wrong().items()}
        moments = []
        for number, arrival in enumerate(self.arrivals):
            if arrival.state.version < one.first or arrival.state.subscriptions.get(one.id) == one:
                promised = arrival.horizons
                horizons = {source: promised.get(stream, EPOCH) for source, stream in streams.items()}
                moments.append(replace(_moment(arrival, seen, number), horizons={**promised, **horizons}))
        return moments

    # -- what comes of it ---------------------------------------------------------------------------------------

    def is_unsettled(self, deriving: int) -> bool:
        """May anything new come of signals? Only if something arrived, or a detection began, since this was asked."""
        last, self._settled = self._settled, (len(self.arrivals), deriving)
        return self._settled[1] > 0 and self._settled != last

    def derived(self, one: Subscription, seen: Views, types: Catalog) -> list[tuple[int, Signal, Draft | AddRow]]:
        """What comes of the signals of a detection that are new, counted from 1."""
        detection, known = detection_of(one), self._given.setdefault((one.id, one.first), set())
        made: list[tuple[int, Signal, Draft | AddRow]] = []
        for signal in self.signals(one, seen):
            if signal not in known:
                known.add(signal)
                bindings = dict(signal.environment)
                adds = detection.adds
                what = (
                    derived_event(one, "", signal.time, bindings, (), types)
                    if adds is None
                    else derived_row(adds, bindings)
                )
                made.append((len(known), signal, what))
        return made

    def rests_on(self, one: Subscription, seen: Views, signal: Signal) -> list[Event]:
        """The events that led to a signal."""
        told = next(other for other in self.by_machine(one, seen) if other == signal)
        assert isinstance(told, Traced)
        events = [self.arrivals[place.seq].event for place in contributors(told.because)]
        return [event for event in events if event is not None]

    def promise_derived(self, deriving: Sequence[tuple[Subscription, Views]], clock: datetime, state: State) -> None:
        """Promise of each type that detections publish what they will signal no more, which arrives if it is new."""
        known = dict(self.horizons)  # of what is promised now signals may come, which were not certain before
        everywhere = min((known.get(stream, EPOCH) for stream in self.streams), default=EPOCH)
        for type in self.published:
            mine = [(one, seen) for one, seen in deriving if detection_of(one).publishes == type]
            horizon = min((self._horizon(one, everywhere, known, seen) for one, seen in mine), default=everywhere)
            self.horizons[_source(type)] = max(horizon, known.get(_source(type), EPOCH))
        if any(known.get(source, EPOCH) < horizon for source, horizon in self.horizons.items()):
            self.passed(clock, state)

    def _horizon(self, one: Subscription, everywhere: datetime, known: Mapping[str, datetime], seen: Views) -> datetime:
        """Before which time a detection signals no more, by what is known to be promised."""
        detection = detection_of(one)
        sources = [_source(type) for type, line in self.published.items() if set(one.types).intersection(line)]
        horizon = min([everywhere, *(known.get(source, EPOCH) for source in sources)])
        held = None
        if may_hold(detection.composite):
            machine = self._machine(one)
            for moment in self._moments(one, seen):
                machine.arrive(moment)
            held = machine.held()
        return promise(detection.composite, detection.start, horizon, held, Horizons(self._sources()).shift)


def detection_of(one: Subscription) -> Detection:
    """What a subscription detects, that is a detection."""
    assert one.detection is not None
    return one.detection


def _source(type: str, stream: str = DERIVED) -> str:
    """The source of the events of a type in a stream, by default of those that detections publish."""
    return f"{stream}/{type}"


def _tables(types: Catalog) -> Iterable[tuple[str, tuple[str, ...]]]:
    """The keyed types, and those that extend one; each with its key."""
    for name in types:
        keyed = _keyed(types, name)
        if keyed is not None:
            yield name, types[keyed].key


def _keyed(types: Catalog, name: str) -> str | None:
    """The type whose key is that of a type, if it has one."""
    return next((above for above in types.lineage(name) if types[above].key), None)


def _moment(arrival: _Arrival, seen: Views, number: int) -> Moment:
    """What a detection sees of an arrival."""
    event, types = arrival.event, arrival.state.types
    if event is None or event.id not in seen:
        return Moment((), arrival.horizons, arrival.clock)
    lineage, keyed = types.lineage(event.type), _keyed(types, event.type)
    tables = () if keyed is None else lineage[: lineage.index(keyed) + 1]
    key = tuple(event.values.get(name) for name in (() if keyed is None else types[keyed].key))
    one = Occurrence(event.occurred, lineage, seen[event.id], arrival.state, event.stream, number, key, tables)
    return Moment((one,), arrival.horizons, arrival.clock)


def in_order(signals: Iterable[Signal]) -> list[Signal]:
    """Signals without repetition, by time."""
    return sorted(set(signals), key=_order)


def _order(signal: Signal) -> tuple[datetime, str]:
    return signal.time, repr(signal.environment)


def differences(
    id: str, expected: Sequence[Mapping[str, object]], got: Sequence[Signal], times: Mapping[str, datetime]
) -> Iterable[str]:
    """Where what a detection signalled is not what the file expects, as sets."""
    want = [_wanted(one, times) for one in expected]
    have = [as_plain(signal) for signal in got]
    for one in want:
        if not any(_is_same(one, other) for other in have):
            yield f"detection `{id}`: no signal {_shown(one)}"
    for other in have:
        if not any(_is_same(one, other) for one in want):
            yield f"detection `{id}`: signalled and not expected: {_shown(other)}"


def _is_same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Are two signals the same? `1` and `1.0` are one value, `true` is another."""
    kinds = all(isinstance(one.get(name), bool) is isinstance(other.get(name), bool) for name in one)
    return kinds and one == other


def as_plain(signal: Signal) -> dict[str, object]:
    """A signal as files have it: times in seconds."""
    return {"at": _seconds(signal.time), **{name: _seconds(value) for name, value in signal.environment}}


def _wanted(expected: Mapping[str, object], times: Mapping[str, datetime]) -> dict[str, object]:
    at = expected["at"]
    time = times.get(at) if isinstance(at, str) else at
    return {name: _seconds(time if name == "at" else value) for name, value in expected.items()}


def _seconds(value: object) -> object:
    if not isinstance(value, datetime):
        return value.hex() if isinstance(value, bytes) else value
    seconds = (value - EPOCH).total_seconds()
    return int(seconds) if seconds == int(seconds) else seconds


def _shown(signal: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in signal.items()) + "}"
