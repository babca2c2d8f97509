"""What the sources of events have promised, as the records of the log tell it one after another.

Guarantees: a stream is a source of whatever it carries. Where events of a type come with times of their publishers,
each publisher of the type in a stream is a source of its own, which promises for itself; with a lateness that the type
declares, it promises as much as the clock does by that. What was promised never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.decide.blocks import SourceFacts
from headgate.model.values import moment
from headgate.pipeline.detect.machine import Horizons


class Arrival(NamedTuple):
    """A record of the log: an append (`publisher` is None), or a promise made by a stream ('') or a publisher."""

    number: int
    promise: int
    """An append's is 0; promises follow the append of their number, in order."""
    version: int
    stream: str
    publisher: str | None
    type: str
    horizon: int
    clock: int


@dataclass(frozen=True, slots=True)
class TimeFacts:
    """What a type whose events come with publishers' times says of them."""

    lineage: tuple[str, ...]
    lateness: float | None = None
    error: float = 0.0


@dataclass
class SourcePromises:
    """The sources of a domain, for all its detections."""

    by_clock: bool = True
    """Do streams promise their clock by themselves?"""
    times: dict[str, TimeFacts] = field(default_factory=dict)
    clock: int = 0
    promised: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """What was promised, by stream, publisher and type; in microseconds."""
    _views: dict[frozenset[str], Horizons] = field(default_factory=dict)

    def __getstate__(self) -> tuple[object, ...]:
        return self.by_clock, self.times, self.clock, self.promised

    def __setstate__(self, saved: tuple[bool, dict[str, TimeFacts], int, dict[tuple[str, str, str], int]]) -> None:
        self.by_clock, self.times, self.clock, self.promised = saved
        self._views = {}

    def declare(self, streams: Iterable[str], times: Mapping[str, TimeFacts]) -> None:
        """The streams there are, and what types say of times."""
        fresh = [stream for stream in streams if (stream, "", "") not in self.promised]
        if not fresh and times == self.times:
            return
        self.times = dict(times)
        for stream in fresh:
            self._promise((stream, "", ""), 0)
        for stream in {stream for stream, publisher, _ in self.promised if not publisher}:
            for type, facts in times.items():
                if facts.lateness is not None and (stream, "", type) not in self.promised:
                    self._promise((stream, "", type), self.promised[stream, "", ""])
        for types, view in self._views.items():
            self._fill(view, types)

    def take(self, arrival: Arrival) -> None:
        """A record has arrived: what it promises, beyond what it brings."""
        self.clock = max(self.clock, arrival.clock)
        stream = arrival.stream
        if arrival.publisher is not None:
            self._promise((stream, arrival.publisher, arrival.type), arrival.horizon)
        elif self.by_clock:
            self._promise((stream, "", ""), arrival.horizon)
        if self.by_clock:
            for source, lateness in self._late(stream):
                self._promise(source, arrival.clock - lateness)
        for view in self._views.values():
            view.promise({}, moment(self.clock))

    def _promise(self, source: tuple[str, str, str], horizon: int) -> None:
        was = self.promised.get(source)
        if was is not None and horizon <= was:
            return
        self.promised[source] = horizon
        for types, view in self._views.items():
            if was is None and self._matters(source, types):
                view.declare("/".join(source), self._facts(source), moment(horizon))
            view.promise({"/".join(source): moment(horizon)}, moment(self.clock))

    def _late(self, stream: str) -> list[tuple[tuple[str, str, str], int]]:
        """The sources of a stream that promise by the clock, and by how many microseconds less."""
        if not any(facts.lateness is not None for facts in self.times.values()):
            return []
        mine = [source for source in self.promised if source[0] == stream and source[2] in self.times]
        bounds = [(source, self.times[source[2]].lateness) for source in mine]
        return [(source, round(1_000_000 * lateness)) for source, lateness in bounds if lateness is not None]

    def view(self, types: frozenset[str]) -> Horizons:
        """What was promised by the sources that matter to a detection of these types."""
        made = self._views.get(types)
        if made is None:
            made = self._views[types] = Horizons({})
            self._fill(made, types)
        return made

    def _fill(self, view: Horizons, types: frozenset[str]) -> None:
        mine = [source for source in self.promised if self._matters(source, types)]
        view.renew({"/".join(source): self._facts(source) for source in mine})
        view.promise({"/".join(source): moment(self.promised[source]) for source in mine}, moment(self.clock))

    def _facts(self, source: tuple[str, str, str]) -> SourceFacts:
        facts = self.times.get(source[2])
        return SourceFacts() if facts is None else SourceFacts(frozenset(facts.lineage), facts.error)

    def _matters(self, source: tuple[str, str, str], types: frozenset[str]) -> bool:
        carried = self._facts(source).types
        return carried is None or bool(carried & types)
