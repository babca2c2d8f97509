"""One subscription or detection decided for by itself: what it would get of appends, whoever else wants what.

Guarantees: as `Matcher` decides for it among all others. It has the number 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.ledger import Ledger
from headgate.ledger.queries import SubscriptionChanges
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.index.index import PolicyIndex
from headgate.pipeline.index.predicates import Sources
from headgate.pipeline.log.codec import EventBatch, LogBatch, event_batch
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.match import DecisionWindow, Matches
from headgate.pipeline.paths import Paths
from headgate.pipeline.spark.decider import EVENTS_AT_ONCE, make_matcher


class LoneMatcher:
    """Decides for one subscription, as of the newest version."""

    def __init__(self, paths: Paths, ledger: Ledger, subscription: Subscription) -> None:
        self.version = ledger.version
        alone = _Alone(ledger, subscription)
        self._builder = IndexBuilder(alone, Sources(paths.predicates), detections=subscription.detection is not None)

    def match(self, appends: list[LogBatch]) -> tuple[PolicyIndex, EventBatch, Matches]:
        """What it gets of some appends, with the events and the index that they were decided by."""
        index = self._builder.index(min(one.version for one in appends), self.version)
        layouts = dict(zip(index.types.names, index.types.layouts, strict=True))
        events = event_batch(appends, index.types.numbers, layouts, index.types.words)
        return index, events, make_matcher(index).match(events, DecisionWindow(0, self.version))

    def first(self, log: EventLog, stream: str, after: int, through: int) -> LogBatch | None:
        """The first append of a stream after a place of which it gets anything."""
        portion: list[LogBatch] = []
        size = 0
        for one in log.batches(stream, after, through):
            portion.append(one)
            size += one.last - one.first + 1
            if size >= EVENTS_AT_ONCE or one.last >= through:
                rows = self.match(portion)[2].events
                if len(rows):
                    ends = np.cumsum([each.last - each.first + 1 for each in portion])
                    return portion[int(np.searchsorted(ends, rows.min(), "right"))]
                portion, size = [], 0
        return None


@dataclass(frozen=True, slots=True)
class _Alone:
    """A ledger in which nobody else wants anything."""

    ledger: Ledger
    subscription: Subscription

    @property
    def version(self) -> int:
        return self.ledger.version

    def state(self, version: int, *, subscriptions: bool) -> State:
        return self.ledger.state(version, subscriptions=subscriptions)

    def policy_versions(self, after: int, through: int) -> list[int]:
        return self.ledger.policy_versions(after, through)

    def subscriptions(self, after: int, through: int) -> SubscriptionChanges:
        first = max(1, self.subscription.first)  # the index begins with version 1
        return SubscriptionChanges([self.subscription] if after < first <= through else [], [])
