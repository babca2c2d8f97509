"""A domain in which events and promises arrive as random stories tell them, for whoever detects by its log."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from headgate.commands.commit import LedgerAccess
from headgate.commands.delivery.reservations import Reservations
from headgate.commands.publishing.local import LocalPublisher
from headgate.decide.blocks import Moment
from headgate.decide.composite import Occurrence
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType, Times
from headgate.model.values import EPOCH, micros
from headgate.node.cursors import Cursors
from headgate.node.domain import Domain, Follower
from strategies.composites import TYPES

MADE = EventType("lab.Made", "owner", {})
"""What detections may publish."""


class Story:
    """A domain in which events and promises arrive, and what the reference is told of them."""

    STREAMS = ("s1", "s2", "s3")

    def __init__(self, directory: Path) -> None:
        self.domain = Domain.create(directory)
        self.signals = self.domain.signals
        self.publisher = LocalPublisher(self.domain, advertise=False)
        self.moments: list[Moment] = []
        self.horizons = dict.fromkeys(self.STREAMS, EPOCH)
        self.clock = EPOCH
        self.versions: list[int] = []
        everyone = frozenset({Action.SUBSCRIBE, Action.PUBLISH})
        self.commit(
            *(DeclarePrincipal(who) for who in ("owner", "ann", "bob")),
            *(DeclareType(replace(type, times=Times(stated=True))) for type in (*TYPES, MADE)),
            AddRule(Rule("ann", "ann", everyone, "lab.*")),
            AddRule(Rule("bob", "bob", everyone, "lab.*")),
        )
        for stream in self.STREAMS:
            self.publisher.hold(stream)

    def commit(self, *changes: Any) -> int:
        return self.domain.commit(Batch(ADMINISTRATOR, changes))

    def reservations(self, clock: datetime) -> Reservations:
        """Those of the domain, at a time."""
        ledger = LedgerAccess(self.domain, Follower(self.domain))
        return Reservations(ledger, Cursors(self.domain.paths.directory / Cursors.FILE), lambda: clock)

    def arrive(self, moment: Moment, after: Any) -> None:
        self.clock = max(self.clock, moment.clock)
        for one in moment.occurrences:
            time = EPOCH + (one.time - EPOCH) + after
            if time < self.horizons[one.stream]:
                continue
            draft = Draft(f"e{len(self.moments)}", "bob", one.types[0], one.values, time=time.isoformat())
            stored = self.publisher.publish(draft, stream=one.stream, now=self.clock)
            seen = replace(one, time=time, seq=stored.seq, state=self.domain.ledger.state(stored.version))
            self.told(seen)
        for stream, promised in sorted(moment.horizons.items()):
            horizon = promised + after
            if horizon > self.horizons[stream]:
                self.domain.log.promise_stream(stream, micros(horizon), micros(self.clock))
                self.horizons[stream] = horizon
                self.told()

    def told(self, *occurrences: Occurrence) -> None:
        self.moments.append(Moment(occurrences, dict(self.horizons), self.clock))
