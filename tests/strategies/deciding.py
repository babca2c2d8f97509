"""The pipeline in process: the same source windows, matcher and store as the streaming job, without Spark.

Guarantees: a step decides what a micro-batch would, history for new subscriptions included, and writes it as one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.model.values import micros
from headgate.node.domain import Domain, utc_now
from headgate.pipeline import PROMISES, SIGNALS
from headgate.pipeline.deliveries import BatchStats, DeliveryBlob, DeliveryStore
from headgate.pipeline.detect.bucket import CertainSignal
from headgate.pipeline.detect.replay import replay
from headgate.pipeline.detect.signals import SignalRow, signal_blob
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.log.codec import LogBatch
from headgate.pipeline.match import DecisionWindow
from headgate.pipeline.spark.decider import decide_appends, make_matcher

ALL = 2**62


class Decider:
    """Decides the log of a domain step by step, with a store of its own as the pipeline's process has."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.store = DeliveryStore.open(domain.paths.deliveries)
        self.builder = IndexBuilder(domain.ledger)
        self.batch = 0

    def step(self, limit: int = ALL) -> None:
        """One micro-batch of about so many events of each stream."""
        ledger, log = self.domain.ledger, self.domain.log
        reached, version = self.store.reached(), ledger.version
        # What is read is settled before it is asked how old it may be: an append may come in between.
        ends = {stream: log.ends(stream, reached.streams.get(stream, 0), limit, version) for stream in log.tails()}
        if version == reached.version and all(end == reached.streams.get(stream, 0) for stream, end in ends.items()):
            return  # as no micro-batch is made of nothing
        history = any(s.history for s in ledger.subscriptions(reached.version, version).opened)
        since = 0 if history else log.oldest_version(reached.streams, version)  # as `Pipeline` does
        matcher = make_matcher(self.builder.index(since, version))
        found: list[DeliveryBlob] = []
        if history:
            again: list[LogBatch] = []
            for stream, last in reached.streams.items():
                again += log.batches(stream, 0, last)
            if again:
                found += decide_appends(matcher, again, DecisionWindow(reached.version, version, backfill=True))
        new: list[LogBatch] = []
        for stream, end in ends.items():
            new += log.batches(stream, reached.streams.get(stream, 0), end)
        if new:
            found += decide_appends(matcher, new, DecisionWindow(reached.version, version))
        self.store.write(self.batch, version, found)
        self.batch += 1

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()


class Detector:
    """The machine that Spark's query runs, over all of the log at once, without Spark."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._known: dict[int, list[CertainSignal]] = {}

    def step(self) -> None:
        """Make of the log what can be made of it, and write what is new."""
        domain, rows = self._domain, []
        place = log_place(domain)  # before it is read: what comes meanwhile is seen, or not
        for number, (one, _) in enumerate(domain.ledger.all_subscriptions(domain.ledger.version)):
            if one.detection is not None:
                known = self._known.setdefault(number, [])
                new = replay(domain.paths, domain.log, domain.ledger, one).signals[len(known) :]
                known += new
                rows += [(s.arrival, SignalRow(number, s.time, s.environment, s.contributors)) for s in new]
        write_signals(domain, [row for _, row in sorted(rows, key=lambda one: (one[0], one[1].order))], place)

    def certain(self) -> dict[str, list[CertainSignal]]:
        """What each detection has signalled, by its id, with the record of the log that made it certain."""
        every = [one for one, _ in self._domain.ledger.all_subscriptions(self._domain.ledger.version)]
        return {every[number].id: known for number, known in self._known.items()}


def log_place(domain: Domain) -> tuple[dict[str, int], int]:
    """Where the streams and the promises of a log end."""
    return {stream: tail.last for stream, tail in domain.log.tails().items()}, domain.log.newest()[1]


def write_signals(
    domain: Domain,
    rows: Sequence[SignalRow] = (),
    place: tuple[dict[str, int], int] | None = None,
    held: Mapping[int, int] | None = None,
) -> None:
    """What a micro-batch of the detection query writes: it has come to the end of the log, and has these signals."""
    store, version = domain.signals, domain.ledger.version
    reached = store.reached()
    tails, promise = log_place(domain) if place is None else place
    made = [DeliveryBlob(stream, 1, last, version, 0, 0, None) for stream, last in tails.items()]
    made.append(DeliveryBlob(PROMISES, promise, promise, version, 0, 0, None))
    if rows:
        made.append(signal_blob(reached.streams.get(SIGNALS, 0) + 1, version, rows))
    stats = store.stats(1)
    batch = stats[-1].batch + 1 if stats else 0
    stats_now = BatchStats(batch, micros(utc_now()), 0, len(rows), 1, version)
    store.write(batch, version, made, stats=stats_now, held=held)
