"""The detections of a story in a domain: made as any user's are, with what comes of the signals that a query stored.

Guarantees: signals are read from where the detection query has stored them. What a detection publishes and adds is
published and added by the code that a node does it by (`commands.deriving`), and has in the story the name that it has
in scenario files: that of the detection and a number.
Leaves out: running the query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from headgate.commands import subscriptions as subscribing
from headgate.commands.commit import LedgerAccess
from headgate.commands.delivery.local import read_signals
from headgate.commands.deriving import Deriver, begin_publishing
from headgate.commands.publishing.stream_writer import HEARTBEATS, StreamWriter
from headgate.commands.subscriptions import local_id
from headgate.decide.composite import Signal
from headgate.decide.derived import DERIVED, derived_id
from headgate.model.errors import HeadgateError
from headgate.model.events import Event
from headgate.model.rights import Subscription
from headgate.node.derived_progress import DerivedProgress, derived_through
from headgate.node.domain import Domain
from headgate.pipeline import PROMISES
from headgate.pipeline.log.codec import decode, layouts
from headgate.scenario.engines.play import DerivedOutcome


class DerivedNames:
    """What came of the signals of a domain, by the names of the story; each is told once."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._counts: Counter[str] = Counter()
        self._told = 0
        self.refused: dict[str, HeadgateError] = {}
        """What was refused, by the id that it would have."""
        self.names: dict[str, str] = {}
        """What events are called in the story, by their ids."""

    def new(self) -> list[DerivedOutcome]:
        """What came of the signals that were dealt with since this was asked last, in the order of signals."""
        through, told = derived_through(self._domain.paths), self._told
        new = [(one, signal) for one, signal in read_signals(self._domain) if told < signal.seq <= through]
        self._told = max(told, through)
        made, derived = self._published(), []
        for one, signal in new:
            if one.detection is not None and one.detection.derives:
                local = local_id(one.principal, one.id) or one.id
                self._counts[local] += 1
                id, name = derived_id(one, signal.id), f"{local}:{self._counts[local]}"
                self.names[id] = name
                event = replace(made[id], id=name) if id in made else None
                derived.append(DerivedOutcome(name, event, self.refused.get(id)))
        return derived

    def _published(self) -> Mapping[str, Event]:
        tail = self._domain.log.tails().get(DERIVED)
        if tail is None:
            return {}
        places = layouts(self._domain.ledger.state().types)
        batches = self._domain.log.batches(DERIVED, 0, tail.last)
        return {event.id: event for batch in batches for event in decode(batch, places)}


def is_detected(domain: Domain) -> bool:
    """Have detections seen all that there is in the log?"""
    reached, tails = domain.signals.reached().streams, domain.log.tails()
    read = all(reached.get(stream, 0) >= tail.last for stream, tail in tails.items())
    return read and reached.get(PROMISES, 0) >= domain.log.newest()[1]


class DomainDetections:
    """The detections of a domain without a gateway, and what comes of their signals."""

    def __init__(self, domain: Domain, ledger: LedgerAccess, clock: Callable[[], datetime]) -> None:
        self._domain, self._ledger, self._clock = domain, ledger, clock
        writer = StreamWriter(
            domain, ledger.follower, domain.log, DERIVED, advertise=False, clock=clock, promise=HEARTBEATS
        )
        progress = DerivedProgress(domain.paths.shared(DerivedProgress.FILE))
        self._deriver = Deriver(domain, ledger.follower, writer, progress, promise_every=1.0)
        self._derived = DerivedNames(domain)
        self._deriver.refused = self._refused

    def close(self) -> None:
        """Let go of the files."""
        self._deriver.close()

    def begin(self, wanted: Subscription, author: str, most: int) -> None:
        """A detection begins."""
        assert wanted.detection is not None
        if wanted.detection.publishes is not None:
            begin_publishing(
                self._domain, self._domain.log, self._ledger.state, wanted.principal, wanted.detection.publishes,
                self._clock(), by_clock=False,
            )  # fmt: skip
        subscribing.detect(self._ledger, wanted, most=most, most_detections=most, author=author)

    def derive(self) -> list[DerivedOutcome]:
        """Publish and add what was signalled, and promise what will not be; what came of each new signal."""
        while self._deriver.round():
            pass
        return self._derived.new()

    @property
    def names(self) -> Mapping[str, str]:
        """What derived events are called in the story, by their ids."""
        return self._derived.names

    def signals(self) -> dict[str, list[Signal]]:
        """What was signalled by now, detection by detection, in the order in which it became certain."""
        every = self._domain.ledger.all_subscriptions(self._domain.ledger.version)
        signals: dict[str, list[Signal]] = {one.id: [] for one, _ in every if one.detection is not None}
        for one, signal in read_signals(self._domain):
            signals[one.id].append(Signal(signal.row.time, signal.row.environment))
        return signals

    def is_settled(self) -> bool:
        """Has everything come of the log that can, with all that was published and promised of it?"""
        newest = self._domain.log.newest()
        if not is_detected(self._domain):
            return False
        self._deriver.round()  # what was seen before counts as seen
        self._deriver.round()
        return self._domain.log.newest() == newest

    def _refused(self, _one: Subscription, id: str, why: HeadgateError) -> None:
        self._derived.refused[id] = why
