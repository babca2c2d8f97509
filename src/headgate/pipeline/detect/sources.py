"""What the sources of events have promised, as the records of the log tell it one after another.

Guarantees: a stream is a source of all events that go by the gateway's clock, and for each type whose events come with
times of their publishers, or that says how wrong its clocks may be, another one, whose horizon is that of the type in
the stream (`pipeline.log.promises`). What was promised never goes back, also when a stream or a type is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from headgate.decide.blocks import SourceFacts
from headgate.model.types import Catalog, Times
from headgate.model.values import moment
from headgate.pipeline.detect.machine import Horizons
from headgate.pipeline.log.codec import LogBatch
from headgate.pipeline.log.promises import Promise, Promised


class Arrival(NamedTuple):
    """A record of the log: an append, which brings events, or a promise, which brings none."""

    number: int
    promise: int
    """An append's is 0; promises follow the append of their number, in order."""
    version: int
    stream: str
    publisher: str
    type: str
    horizon: int
    clock: int


def of_append(one: LogBatch) -> Arrival:
    """An append as a record of the log; its stream promises its horizon."""
    return Arrival(one.number, 0, one.version, one.stream, "", "", one.horizon, one.time)


def of_promise(one: Promise) -> Arrival:
    """A promise as a record of the log."""
    return Arrival(one.after, one.id, one.version, one.stream, one.publisher, one.type, one.horizon, one.clock)


@dataclass(frozen=True, slots=True)
class TypeTimes:
    """A type with its ancestors, and whose word is taken on when its events occurred."""

    lineage: tuple[str, ...]
    times: Times


def times_of(catalog: Catalog) -> dict[str, TypeTimes]:
    """What all types say of times."""
    return {name: TypeTimes(catalog.lineage(name), catalog.times(name)) for name in catalog.every}


class _View(NamedTuple):
    """What matters to detections of some types: what was promised, and the types that are sources by themselves."""

    horizons: Horizons
    apart: dict[str, TypeTimes]


@dataclass
class SourcePromises:
    """The sources of a domain, for all its detections."""

    promised: Promised = field(default_factory=Promised)
    times: dict[str, TypeTimes] = field(default_factory=dict)
    clock: int = 0
    begun: bool = False
    """Has any record arrived?"""
    _views: dict[frozenset[str], _View] = field(default_factory=dict)

    def __getstate__(self) -> tuple[Promised, dict[str, TypeTimes], int, bool]:
        return self.promised, self.times, self.clock, self.begun

    def __setstate__(self, saved: tuple[Promised, dict[str, TypeTimes], int, bool]) -> None:
        self.promised, self.times, self.clock, self.begun = saved
        self._views = {}

    def declare(self, streams: Iterable[str], times: Mapping[str, TypeTimes]) -> None:
        """The streams there are, and what types say of times."""
        own = self.promised.streams
        fresh = [stream for stream in streams if stream not in own]
        if fresh or times != self.times:
            own |= dict.fromkeys(fresh, min(own.values(), default=0))
            self.times = dict(times)
            self._views = {types: self._renewed(types, view.horizons) for types, view in self._views.items()}

    def take(self, arrival: Arrival) -> None:
        """A record has arrived: what it promises, beyond what it brings."""
        self.begun = True
        self.clock = max(self.clock, arrival.clock)
        self.promised.promise(arrival.stream, arrival.publisher, arrival.type, arrival.horizon)
        for view in self._views.values():
            view.horizons.promise(self._promises(arrival.stream, view), moment(self.clock))

    def view(self, types: frozenset[str]) -> Horizons:
        """What was promised by the sources that matter to a detection of these types."""
        made = self._views.get(types)
        if made is None:
            made = self._views[types] = self._renewed(types, Horizons({}))
        return made.horizons

    def _renewed(self, types: frozenset[str], horizons: Horizons) -> _View:
        """What matters to these types, by what types say of times now, with what has been promised."""
        mine = {name: facts for name, facts in self.times.items() if types.intersection(facts.lineage)}
        apart = {name: facts for name, facts in mine.items() if facts.times.stated or facts.times.clock_error}
        carried = frozenset(above for name, facts in mine.items() if name not in apart for above in facts.lineage)
        view = _View(horizons, apart)
        sources = {}
        for stream in self.promised.streams:
            sources[stream] = SourceFacts(carried)
            for name, facts in apart.items():
                sources[f"{stream}/{name}"] = SourceFacts(frozenset(facts.lineage), facts.times.clock_error)
        horizons.renew(sources)
        for stream in self.promised.streams:
            horizons.promise(self._promises(stream, view), moment(self.clock))
        return view

    def _promises(self, stream: str, view: _View) -> dict[str, datetime]:
        """What the sources of a stream that matter have promised."""
        found = {stream: moment(self.promised.streams.get(stream, 0))}
        for name, facts in view.apart.items():
            found[f"{stream}/{name}"] = moment(self.promised.of(stream, name, facts.times))
        return found
