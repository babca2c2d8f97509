"""The detections of a story: made as any user's are, run by the detection query, and what comes of their signals.

Guarantees: signals are read from where the query has stored them. What a detection publishes is published by the code
that a node publishes it by (`commands.deriving`), and has in the story the name that it has in scenario files: that of
the detection and a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headgate.commands import subscriptions as subscribing
from headgate.commands.deriving import Deriver, begin_publishing
from headgate.commands.publishing.stream_writer import HEARTBEATS, StreamWriter
from headgate.decide.composite import Signal
from headgate.decide.derived import DERIVED, derived_id
from headgate.lang.composite import parse_composite
from headgate.model.events import Event
from headgate.model.rights import Detection, Subscription
from headgate.model.types import SIGNAL
from headgate.model.values import EPOCH
from headgate.node.derived_progress import DerivedProgress
from headgate.pipeline import PROMISES, SIGNALS
from headgate.pipeline.detect.signals import stored_signals
from headgate.pipeline.log.codec import decode, layouts
from headgate.scenario.engines.spark_engine import DomainStage
from headgate.scenario.format import story


class StoryDetections:
    """The detections of one domain, and the events that they publish."""

    def __init__(self, world: DomainStage, streams: Sequence[str]) -> None:
        self._world, self._domain = world, world.domain
        for stream in streams:  # every stream of the story counts from the start
            world.publisher.hold(stream)
        writer = StreamWriter(
            self._domain,
            world.follower,
            self._domain.log,
            DERIVED,
            advertise=False,
            clock=world.clock,
            promise=HEARTBEATS,
        )
        progress = DerivedProgress(self._domain.paths.directory / DerivedProgress.FILE)
        self._deriver = Deriver(self._domain, world.follower, writer, progress, promise_every=1.0)
        self._names: dict[str, str] = {}
        self._read = 0

    def close(self) -> None:
        """Let go of the files."""
        self._deriver.close()

    def begin(self, step: story.DetectStep, most: int) -> None:
        """A detection begins; it sees what history shows."""
        detection = Detection(step.expression, parse_composite(step.expression), step.bound, EPOCH, step.publishes)
        wanted = Subscription(step.id, step.principal, SIGNAL, history=True, detection=detection)
        if step.publishes is not None:
            begin_publishing(
                self._domain, self._domain.log, self._world.state(), step.principal, step.publishes,
                self._world.now, by_clock=False,
            )  # fmt: skip
        subscribing.detect(self._world.ledger, wanted, most=most, most_detections=most)

    def derive(self) -> list[Event]:
        """Publish what was signalled, and promise what will not be; the events, by the names that they have here."""
        while self._deriver.round():
            pass
        tail = self._domain.log.tails().get(DERIVED)
        if tail is None or tail.last == self._read:
            return []
        places = layouts(self._world.state().types)
        new = [
            one for batch in self._domain.log.batches(DERIVED, self._read, tail.last) for one in decode(batch, places)
        ]
        self._read, names = tail.last, self._named()
        return [replace(one, id=names[one.id]) for one in new]

    def signals(self) -> dict[str, list[Signal]]:
        """What was signalled by now, detection by detection, in the order in which it became certain."""
        signals: dict[str, list[Signal]] = {}
        for one, _, signal in self._stored():
            signals.setdefault(one.id, []).append(signal)
        return signals

    def is_settled(self) -> bool:
        """Has everything come of the log that can, with all that was published and promised of it?"""
        newest, tails = self._domain.log.newest(), self._domain.log.tails()
        reached = self._domain.signals.reached().streams
        read = all(reached.get(stream, 0) >= tail.last for stream, tail in tails.items())
        if not read or reached.get(PROMISES, 0) < newest[1]:
            return False
        self._deriver.round()  # what was seen before counts as seen
        self._deriver.round()
        return self._domain.log.newest() == newest

    def _named(self) -> Mapping[str, str]:
        counts: Counter[str] = Counter()
        for one, id, _ in self._stored():
            counts[one.id] += 1
            self._names[derived_id(one, id)] = f"{one.id}:{counts[one.id]}"
        return self._names

    def _stored(self) -> list[tuple[Subscription, str, Signal]]:
        every = [one for one, _ in self._domain.ledger.all_subscriptions(self._domain.ledger.version)]
        blobs = (one.blob for one in self._domain.signals.blobs(SIGNALS) if one.blob is not None)
        rows = ((signal.id, signal.row) for blob in blobs for signal in stored_signals(blob))
        return [(every[row.subscription], id, Signal(row.time, row.environment)) for id, row in rows]
