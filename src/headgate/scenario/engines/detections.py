"""Composite events in a story: what detections signal, given what an engine delivered to them.

Guarantees: a detection sees what its principal's subscriptions to the types of its templates deliver, on the engine
that plays the story: views decided at each event's version, history by D10. What arrives when is the order of the
steps; each accepted event, heartbeat and move of the clock is one moment. The reference is evaluated by
`decide.blocks`, what other engines delivered by the machine (`pipeline.detect`), so that the two are compared. Every
stream that the file names counts from the start with horizon 0; an event below what its stream has promised is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from headgate.decide.blocks import Moment, SourceFacts
from headgate.decide.blocks import detect as reference
from headgate.decide.composite import Environment, Occurrence, Signal, environment
from headgate.decide.composite_check import Resolved, resolve
from headgate.decide.derived import check_derived, derived_event, derived_row, may_hold, promise
from headgate.lang.composite import parse_composite, parse_row
from headgate.model.composite import Composite, templates
from headgate.model.errors import BadDefinition, BadExpression, BelowHorizon, HeadgateError
from headgate.model.rights import Detection, Subscription
from headgate.model.state import State
from headgate.model.types import SIGNAL, Catalog
from headgate.model.values import EPOCH, Value, conform
from headgate.pipeline.detect.beads import Traced, contributors
from headgate.pipeline.detect.machine import Horizons, Machine
from headgate.scenario.format import story
from headgate.scenario.format.yamlfile import SourcePlace


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Something that arrived, and where the promises and the clock were then."""

    horizons: Mapping[str, datetime]
    clock: datetime
    step: story.PublishStep | None = None
    state: State | None = None


@dataclass(slots=True)
class _Running:
    """A detection that was accepted: its subscriptions, and until which arrival it counts."""

    composite: Composite
    env: Environment
    subscriptions: tuple[str, ...]
    place: SourcePlace
    start: datetime
    until: int | None = None
    derives: Subscription | None = None
    """The detection as the ledger would have it, if anything comes of its signals."""
    given: set[Signal] = field(default_factory=set)
    """The signals of which something came."""


@dataclass(slots=True)
class Detections:
    """The detections of a story, and what arrived."""

    streams: frozenset[str]
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The types that detections of the file publish, each with its ancestors; each is a source of its own."""
    running: dict[str, list[_Running]] = field(default_factory=dict)
    arrivals: list[_Arrival] = field(default_factory=list)
    horizons: dict[str, datetime] = field(default_factory=dict)
    _settled: tuple[int, int] = (0, 0)

    def begin(self, step: story.DetectStep, state: State) -> story.SubscribeStep:
        """Accept a detection: the subscriptions that it sees by, all of one version; or why it is refused."""
        try:
            resolved = resolve(parse_composite(step.expression), state, step.bound)
        except HeadgateError as error:
            raise error.at(f"detection `{step.id}`") from None
        types = dict.fromkeys(template.type for template in templates(resolved.composite))
        runs = self.running.setdefault(step.id, [])
        if any(run.until is None for run in runs):
            raise BadDefinition(f"the detection `{step.id}` is there already", remedy="end it first")
        if not state.types:
            raise BadExpression("no event type is declared", remedy="declare one first")
        derives = self._derives(step, resolved, state)
        ids = tuple(f"~{step.id}.{len(runs)}.{number}" for number in range(max(len(types), 1)))
        runs.append(_Running(resolved.composite, environment(step.bound), ids, step.place, step.start, derives=derives))
        wanted = zip(ids, types or [next(iter(state.types))], strict=True)
        return story.SubscribeStep(
            place=step.place, words=step.words, callers=step.callers, ids=step.ids, author=step.author,
            subscriptions=tuple(
                story.SubscriptionText(
                    *(step.place, id, step.principal, type), history=step.history, since_version=step.since_version
                )
                for id, type in wanted
            ),
        )  # fmt: skip

    def _derives(self, step: story.DetectStep, resolved: Resolved, state: State) -> Subscription | None:
        """A detection of whose signals something comes; refused as a gateway would."""
        if step.publishes is None and step.adds is None:
            return None
        adds = None if step.adds is None else parse_row(step.adds)
        detection = Detection(step.expression, resolved.composite, step.bound, step.start, step.publishes, adds)
        one = Subscription(step.id, step.principal, SIGNAL, detection=detection)
        others = {run.derives.id: run.derives for run in self._deriving() if run.derives is not None}
        there = replace(state, subscriptions={**state.subscriptions, **others})
        check_derived(one, detection, resolved, there, step.author)
        return one

    def _deriving(self) -> list[_Running]:
        return [run for runs in self.running.values() for run in runs if run.derives is not None and run.until is None]

    def withdraw(self, id: str) -> None:
        """The detection that was begun last was refused after all."""
        self.running[id].pop()

    def end(self, step: story.UnsubscribeStep) -> story.UnsubscribeStep:
        """The step as it ends the subscriptions of a detection, if it speaks of one."""
        runs = [run for run in self.running.get(step.id, ()) if run.until is None]
        if not runs:
            return step
        runs[-1].until = len(self.arrivals)
        first, *others = runs[-1].subscriptions
        return replace(step, id=first, others=tuple(others))

    def check(self, step: story.PublishStep) -> None:
        """Refuse an event that is earlier than its stream has promised."""
        source = step.stream if step.stream != DERIVED_STREAM else _source(step.draft.type)
        if step.occurred < self.horizons.get(source, EPOCH):
            raise BelowHorizon(
                f"`{step.draft.id}` is earlier than the stream `{step.stream}` has promised",
                remedy="send events before the heartbeat that promises their absence",
            )

    def arrived(self, step: story.PublishStep, state: State) -> None:
        """An event was accepted."""
        self.arrivals.append(_Arrival(dict(self.horizons), step.at, step, state))

    def promised(self, step: story.HeartbeatStep) -> None:
        """A stream promises; horizons never go back."""
        self.horizons[step.stream] = max(step.horizon, self.horizons.get(step.stream, EPOCH))
        self.arrivals.append(_Arrival(dict(self.horizons), step.at))

    def passed(self, clock: datetime) -> None:
        """The clock has come to a time."""
        self.arrivals.append(_Arrival(dict(self.horizons), clock))

    def is_unsettled(self) -> bool:
        """May anything new come of signals? Only if something arrived, or a detection began, since this was asked."""
        last, self._settled = self._settled, (len(self.arrivals), len(self._deriving()))
        return self._settled[1] > 0 and self._settled != last

    def derived(
        self,
        views: Mapping[str, Mapping[str, Mapping[str, Value]]],
        types: Catalog,
        clock: datetime,
        readers_of: Callable[[Subscription, Collection[str]], tuple[str, ...]],
    ) -> list[story.TakenStep]:
        """What comes of the signals that are new, by the reference; in order of time, detection by detection.

        `readers_of` says who could read all of some events (D16); which events those are, the machine says.
        """
        steps: list[story.TakenStep] = []
        for run in self._deriving():
            new = sorted(set(self._signals(run, views, by_reference=True)) - run.given, key=_order)
            for signal in new:
                run.given.add(signal)
                assert run.derives is not None
                step = _derivation(run, run.derives, signal, types, clock)
                if isinstance(step, story.PublishStep) and types.is_for_readers(step.draft.type):
                    rests_on = self._rests_on(run, views, signal)
                    step = replace(step, draft=replace(step.draft, readers=readers_of(run.derives, rests_on)))
                steps.append(step)
        return steps

    def _rests_on(
        self, run: _Running, views: Mapping[str, Mapping[str, Mapping[str, Value]]], signal: Signal
    ) -> list[str]:
        """The events that led to a signal."""
        told = next(one for one in self._signals(run, views, by_reference=False) if one == signal)
        assert isinstance(told, Traced)
        steps = [self.arrivals[place.seq].step for place in contributors(told.because)]
        return [step.draft.id for step in steps if step is not None]

    def derived_horizons(self, views: Mapping[str, Mapping[str, Mapping[str, Value]]]) -> dict[str, datetime]:
        """Of each type that detections publish, before which time they will signal no more."""
        everywhere = min((self.horizons.get(stream, EPOCH) for stream in self.streams), default=EPOCH)
        return {
            type: min(
                (
                    self._horizon(run, everywhere, views)
                    for run in self._deriving()
                    if run.derives is not None and _publishes(run.derives) == type
                ),
                default=everywhere,
            )
            for type in self.published
        }

    def promise_derived(self, horizons: Mapping[str, datetime], clock: datetime) -> None:
        """Promise that of each type that detections publish, which arrives if it is new."""
        known = dict(self.horizons)
        for type, horizon in horizons.items():
            self.horizons[_source(type)] = max(horizon, known.get(_source(type), EPOCH))
        if any(known.get(source, EPOCH) < horizon for source, horizon in self.horizons.items()):
            self.passed(clock)

    def _horizon(
        self, run: _Running, everywhere: datetime, views: Mapping[str, Mapping[str, Mapping[str, Value]]]
    ) -> datetime:
        """Before which time a detection signals no more, by what is known to be promised."""
        seen = {template.type for template in templates(run.composite)}
        sources = [_source(type) for type, line in self.published.items() if seen.intersection(line)]
        horizon = min([everywhere, *(self.horizons.get(source, EPOCH) for source in sources)])
        held = None
        if may_hold(run.composite):
            machine = self._machine(run)
            for moment in self._moments(run, views):
                machine.arrive(moment)
            held = machine.held()
        return promise(run.composite, EPOCH, horizon, held, Horizons(self._sources()).shift)

    def is_hidden(self, subscription: str) -> bool:
        """Is this a subscription of a detection, and not of the file?"""
        return any(subscription in run.subscriptions for runs in self.running.values() for run in runs)

    def signals(
        self, views: Mapping[str, Mapping[str, Mapping[str, Value]]], *, by_reference: bool
    ) -> dict[str, list[Signal]]:
        """What each detection has signalled, by its id, in the order of time; given what its subscriptions received."""
        return {
            id: sorted({signal for run in runs for signal in self._signals(run, views, by_reference)}, key=_order)
            for id, runs in self.running.items()
        }

    def _signals(
        self, run: _Running, views: Mapping[str, Mapping[str, Mapping[str, Value]]], by_reference: bool
    ) -> Iterable[Signal]:
        moments = self._moments(run, views)
        if by_reference:
            told = reference(run.composite, run.start, run.env, moments, self._sources())
            return told[-1] if told else ()
        machine = self._machine(run)
        return [signal for moment in moments for signal in machine.arrive(moment)]

    def _moments(self, run: _Running, views: Mapping[str, Mapping[str, Mapping[str, Value]]]) -> list[Moment]:
        """What arrived, as a detection sees it."""
        seen = {event: view for id in run.subscriptions for event, view in views.get(id, {}).items()}
        return [_moment(arrival, seen, number) for number, arrival in enumerate(self.arrivals[: run.until])]

    def _sources(self) -> dict[str, SourceFacts]:
        derived = {_source(type): SourceFacts(frozenset(line)) for type, line in self.published.items()}
        return {stream: SourceFacts() for stream in self.streams} | derived

    def _machine(self, run: _Running) -> Machine:
        tables = {
            key: value for arrival in self.arrivals if arrival.state for key, value in _tables(arrival.state.types)
        }
        return Machine(run.composite, run.start, run.env, Horizons(self._sources()), tables)


DERIVED_STREAM: Final = "derived"
"""The stream of the events that detections of a file publish."""


def _source(type: str) -> str:
    """The source of the events of a type that detections publish."""
    return f"{DERIVED_STREAM}/{type}"


def _publishes(one: Subscription) -> str | None:
    return None if one.detection is None else one.detection.publishes


def _derivation(run: _Running, one: Subscription, signal: Signal, types: Catalog, clock: datetime) -> story.TakenStep:
    """The step that a signal comes to: an event, called by the detection and a number, or a row."""
    assert one.detection is not None
    place, bindings, id = run.place, dict(signal.environment), f"{one.id}:{len(run.given)}"
    if one.detection.adds is not None:
        row = derived_row(one.detection.adds, bindings)
        return story.ChangeStep(place=place, words=f"add `{row.relation}`", callers=(), ids=(id,), changes=(row,))
    draft = replace(derived_event(one, "", signal.time, bindings, (), types), id=id, time=None)
    return story.PublishStep(
        place=place,
        words=f"publish `{id}`",
        callers=(),  # nobody connects for it
        ids=(id,),
        draft=draft,
        stream=DERIVED_STREAM,
        at=clock,
        time=signal.time,
    )


def _tables(types: Catalog) -> Iterable[tuple[str, tuple[str, ...]]]:
    """The keyed types, and those that extend one; each with its key."""
    for name in types:
        keyed = _keyed(types, name)
        if keyed is not None:
            yield name, types[keyed].key


def _keyed(types: Catalog, name: str) -> str | None:
    """The type whose key is that of a type, if it has one."""
    return next((above for above in types.lineage(name) if types[above].key), None)


def _moment(arrival: _Arrival, seen: Mapping[str, Mapping[str, Value]], number: int) -> Moment:
    """What a detection sees of an arrival."""
    step, state = arrival.step, arrival.state
    if step is None or state is None or step.draft.id not in seen:
        return Moment((), arrival.horizons, arrival.clock)
    type, types = step.draft.type, state.types
    view, lineage, keyed = seen[step.draft.id], types.lineage(type), _keyed(types, type)
    tables = () if keyed is None else lineage[: lineage.index(keyed) + 1]
    kinds, sent = types.attributes(type), step.draft.values
    # As it was accepted, where that is seen: a right to publish may force a value.
    key = tuple(
        conform(kinds[name], sent.get(name)) if view.get(name) is None else view[name]
        for name in (() if keyed is None else types[keyed].key)
    )
    occurred = step.occurred if types.times(type).stated else step.at
    one = Occurrence(occurred, lineage, view, state, step.stream, number, key, tables)
    return Moment((one,), arrival.horizons, arrival.clock)


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
