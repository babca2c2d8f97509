"""What the sources of events have promised, as the records of the log tell it one after another.

Guarantees: a stream is a source of all events that go by the gateway's clock, and for each type whose events come with
times of their publishers another one, whose horizon is that of the type in the stream (`pipeline.log.promises`). What
was promised never goes back, also when a stream or a type is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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


@dataclass
class SourcePromises:
    """The sources of a domain, for all its detections."""

    promised: Promised = field(default_factory=Promised)
    times: dict[str, TypeTimes] = field(default_factory=dict)
    clock: int = 0
    _views: dict[frozenset[str], Horizons] = field(default_factory=dict)

    def __getstate__(self) -> tuple[Promised, dict[str, TypeTimes], int]:
        return self.promised, self.times, self.clock

    def __setstate__(self, saved: tuple[Promised, dict[str, TypeTimes], int]) -> None:
        self.promised, self.times, self.clock = saved
        self._views = {}

    def declare(self, streams: Iterable[str], times: Mapping[str, TypeTimes]) -> None:
        """The streams there are, and what types say of times."""
        own = self.promised.streams
        fresh = [stream for stream in streams if stream not in own]
        if fresh or times != self.times:
            own |= dict.fromkeys(fresh, min(own.values(), default=0))
            self.times = dict(times)
            for types, view in self._views.items():
                self._fill(view, types)

    def take(self, arrival: Arrival) -> None:
        """A record has arrived: what it promises, beyond what it brings."""
        self.clock = max(self.clock, arrival.clock)
        self.promised.promise(arrival.stream, arrival.publisher, arrival.type, arrival.horizon)
        for types, view in self._views.items():
            view.promise({name: moment(at) for name, _, at in self._sources(arrival.stream, types)}, moment(self.clock))

    def view(self, types: frozenset[str]) -> Horizons:
        """What was promised by the sources that matter to a detection of these types."""
        made = self._views.get(types)
        if made is None:
            made = self._views[types] = Horizons({})
            self._fill(made, types)
        return made

    def _fill(self, view: Horizons, types: frozenset[str]) -> None:
        sources = [source for stream in self.promised.streams for source in self._sources(stream, types)]
        view.renew({name: facts for name, facts, _ in sources})
        view.promise({name: moment(at) for name, _, at in sources}, moment(self.clock))

    def _sources(self, stream: str, types: frozenset[str]) -> list[tuple[str, SourceFacts, int]]:
        """The sources of a stream that matter to these types, what they may bring, and what they have promised."""
        mine = {name: facts for name, facts in self.times.items() if types.intersection(facts.lineage)}
        stamped = [facts for facts in mine.values() if not facts.times.stated]
        carried = frozenset(name for facts in stamped for name in facts.lineage)
        error = max((facts.times.clock_error for facts in stamped), default=0.0)
        found = [(stream, SourceFacts(carried, error), self.promised.streams.get(stream, 0))]
        for name, facts in mine.items():
            if facts.times.stated:
                source = SourceFacts(frozenset(facts.lineage), facts.times.clock_error)
                found.append((f"{stream}/{name}", source, self.promised.of(stream, name, facts.times)))
        return found
