"""One detection run again over the log, by itself and without Spark: where it stands, and what it waits for.

Guarantees: the same views, records and machines as in the detection query, so the same state after the same records,
with what is in the log now; of what retention has taken nothing can be told (`is_whole`). Changes nothing. With `most`
it is refused with `limit-reached` where more records would have to be gone through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from headgate.decide.composite import Occurrence
from headgate.ledger import Ledger
from headgate.model.errors import LimitReached
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.values import moment
from headgate.pipeline.alone import LoneMatcher
from headgate.pipeline.detect.bucket import Bucket, CertainSignal, ShardKey
from headgate.pipeline.detect.machine import Machine, StateAt
from headgate.pipeline.detect.plans import DetectionPlan, planned
from headgate.pipeline.detect.signals import STOPS
from headgate.pipeline.detect.sources import SourcePromises, of_append, of_promise, times_of
from headgate.pipeline.detect.views import arrived, routed
from headgate.pipeline.detect.waiting import BeadWait, SourceHorizon, horizons, waiting
from headgate.pipeline.log.codec import PUBLISHER, LogBatch
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.paths import Paths
from headgate.pipeline.spark.decider import EVENTS_AT_ONCE

_NUMBER: Final = 0
"""Of the one detection in an index of its own."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A detection after all records of the log."""

    clock: datetime
    """The newest clock of the log."""
    signals: list[CertainSignal]
    waits: list[BeadWait]
    horizons: list[SourceHorizon]
    publishers: frozenset[tuple[str, str]]
    """Whose events of which types it has seen."""
    is_whole: bool
    """Does the log still hold all that it looked at?"""
    stopped: str = ""
    """Why it detects no more, if it stopped."""


def replay(paths: Paths, log: EventLog, ledger: Ledger, detection: Subscription, most: int | None = None) -> Replayed:
    """Run a detection over all that it may look at."""
    run = _Run(paths, log, ledger, detection)
    number, promise = log.newest()
    short = list(log.appends_in_short(0, number))
    told = log.promises_after(0, promise, 2**62)
    looked_at = [one for one in short if detection.history or one.version >= detection.first]
    size = len(told) + sum(one.last - one.first + 1 for one in looked_at)
    if most is not None and size > most:
        raise LimitReached(
            f"more than MAX_REPLAYED ({most}) events and promises would have to be gone through",
            remedy="ask where the domain's files are: `headgate detect explain PRINCIPAL ID --domain DIR` has no limit",
        )
    arrivals = sorted([*map(of_append, short), *map(of_promise, told)])
    events = run.routed(looked_at[0].number - 1, number) if looked_at else {}
    found = list(
        run.bucket.run(arrivals, events, [_NUMBER], {}, log.tails(), times_of(run.types), at_once=detection.history)
    )
    stopped = next((one.report for one in found if one.code in STOPS), "")
    machines = [] if stopped else run.machines()
    waits = list(dict.fromkeys(wait for machine in machines for wait in waiting(machine)))
    clock = max((one.clock for one in arrivals), default=0)
    return Replayed(
        clock=moment(clock),
        signals=[one for one in found if not one.code],
        waits=waits,
        horizons=horizons(run.bucket.sources, run.plan.types, waits),
        publishers=frozenset(run.publishers),
        is_whole=_is_whole(log, detection, short),
        stopped=stopped,
    )


def _is_whole(log: EventLog, detection: Subscription, appends: Iterable[LogBatch]) -> bool:
    """Is everything there that it looked at? Of a stream that was trimmed, something from before it must be left."""
    oldest: dict[str, int] = {}
    for one in appends:
        oldest.setdefault(one.stream, one.version)
    cut = [stream for stream, through in log.trimmed().items() if through]
    return not cut or (not detection.history and all(oldest.get(one, detection.first) < detection.first for one in cut))


class _Run:
    """What is needed to decide for one detection, and to run it."""

    def __init__(self, paths: Paths, log: EventLog, ledger: Ledger, detection: Subscription) -> None:
        self._log = log
        self._ledger = ledger
        self._matcher = LoneMatcher(paths, ledger, detection)
        self._states: dict[int, State] = {}
        self.publishers: set[tuple[str, str]] = set()
        self.types = ledger.state(self._matcher.version, subscriptions=False).types
        self.plan = planned(_NUMBER, detection, self.types)
        self.bucket = Bucket(SourcePromises(), _Memory(), self._plan_of, self._state_at)

    def machines(self) -> list[Machine]:
        """All that runs; if nothing has arrived yet, what something would arrive at."""
        there = list(self.bucket.machines())
        if not there:
            of_sources = self.bucket.sources.view(self.plan.types)
            there = [Machine(self.plan.program, self.plan.start, self.plan.env, of_sources, self.plan.tables)]
            there[0].offer(())
        return there

    def routed(self, after: int, through: int) -> dict[int, list[tuple[ShardKey, Occurrence]]]:
        """What it sees of appends, by their numbers."""
        seen: dict[int, list[tuple[ShardKey, Occurrence]]] = {}
        while appends := list(self._log.appends_by_number(after, through, EVENTS_AT_ONCE)):
            after = appends[-1].number
            for blob in self._views(appends):
                for number, some in arrived(blob, self._state_at):
                    seen.setdefault(number, []).extend(some)
        return seen

    def _views(self, appends: list[LogBatch]) -> list[bytes]:
        index, events, matches = self._matcher.match(appends)
        publishers = events.texts(PUBLISHER).take(pa.array(matches.events)).to_pylist()
        names = (index.types.names[type] for type in events.type[matches.events].tolist())
        self.publishers |= set(zip(publishers, names, strict=True))
        return [blob for _, blob in routed(appends, events, matches, index.types, self.types, self._plan_of)]

    def _plan_of(self, _: int) -> DetectionPlan:
        return self.plan

    def _state_at(self, version: int) -> Any:
        return StateAt(version, self._state)

    def _state(self, version: int) -> State:
        if version not in self._states:
            self._states[version] = self._ledger.state(version, subscriptions=False)
        return self._states[version]


@dataclass(slots=True)
class _Memory:
    """Shards in memory, where a run that is never cut short needs none."""

    kept: dict[ShardKey, bytes] = field(default_factory=dict)

    def get(self, key: ShardKey) -> bytes | None:
        return self.kept.get(key)

    def put(self, key: ShardKey, saved: bytes) -> None:
        self.kept[key] = saved

    def remove(self, key: ShardKey) -> None:
        self.kept.pop(key, None)
