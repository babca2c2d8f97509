"""Publishing into a domain that this process holds itself: the writer of each stream, run in place.

Guarantees: an event is stored, with the version that it was admitted at, before `publish` returns, by the very writer
that gateways run. The time of an event is the caller's to say: it is the clock that `@time` and `@rate` go by, and it
ends nothing; without one it is the time of this machine. The streams promise nothing but by heartbeats.

    with Domain.open(directory) as domain:
        event = LocalPublisher(domain).publish(Draft("o1", "till", "shop.Order", {"item": "lamp"}))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import pyarrow as pa

from headgate.commands.publishing.promises import PromiseOutcome, heartbeat
from headgate.commands.publishing.stream_writer import HEARTBEATS, WINDOW_SECONDS, Attempt, StreamWriter
from headgate.commands.publishing.submissions import StoredAt, SubmissionOutcome, of_drafts, of_table
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft, Event
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.model.values import micros
from headgate.node.domain import Domain, utc_now
from headgate.pipeline.log.codec import decode, layouts


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """What became of one event: as the log has it, or the refusal. A duplicate was stored by an earlier request."""

    event: Event | None
    refusal: HeadgateError | None = None
    duplicate: bool = False


class LocalPublisher:
    """Publishes into the streams of one domain. It holds nothing that has to be closed."""

    def __init__(
        self,
        domain: Domain,
        *,
        advertise: bool = True,
        window: float = WINDOW_SECONDS,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`advertise`, `window` and `clock` are as `StreamWriter` has them."""
        self._domain = domain
        self._clock = clock
        self._advertise = advertise
        self._window = window
        self._known = _LedgerHead(domain)
        self._writers: dict[str, StreamWriter] = {}

    def hold(self, stream: str) -> None:
        """Be the writer of a stream, which is there from then on, if it was not."""
        self._writer(stream).take()

    def publish(self, draft: Draft, *, stream: str = "main", now: datetime | None = None) -> Event:
        """Admit and store one event, or raise the refusal and store nothing; one sent before is the one stored then."""
        (published,) = self.publish_all([draft], stream=stream, now=now)
        if published.refusal is not None:
            raise published.refusal
        assert published.event is not None
        return published.event

    def publish_all(
        self, drafts: Sequence[Draft], *, stream: str = "main", now: datetime | None = None
    ) -> list[PublishedEvent]:
        """Admit many events and store those accepted in one durable write, answered one by one.

        Raises whatever keeps the whole of it from being stored, such as `storage-full` or `stream-held`.
        """
        groups = [list(group) for _, group in groupby(drafts, lambda draft: draft.publisher)]
        attempts = [Attempt(of_drafts(group[0].publisher, group, answers=None)) for group in groups]
        published: list[PublishedEvent] = []
        for group, outcome in zip(groups, self._writer(stream).write(attempts, now), strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            events = self._read(outcome.stored())
            published += [
                PublishedEvent(events.get(at), outcome.refusals.get(at), at in outcome.duplicates)
                for at in range(len(group))
            ]
        return published

    def heartbeat(
        self, publisher: str, until: datetime, types: Sequence[str] | None = None, *, stream: str = "main"
    ) -> PromiseOutcome:
        """Promise that none of a publisher's later events occurred before a time (`promises.heartbeat`)."""
        self._known.refresh()
        writer = self._writer(stream)
        if not writer.holds_stream:
            writer.take()
        return heartbeat(writer, publisher, until, types)

    def pass_time(self, now: datetime, *, stream: str = "main") -> None:
        """Tell detections the clock where nothing is published; the stream must be held, and promises nothing by it."""
        self._known.refresh()
        self._domain.log.pass_time(stream, micros(now))

    def publish_table(
        self, publisher: str, table: pa.Table, *, stream: str = "main", now: datetime | None = None
    ) -> SubmissionOutcome:
        """Admit events that are the rows of an Arrow table, and store those accepted."""
        (outcome,) = self._writer(stream).write([Attempt(of_table(publisher, table, None))], now)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _writer(self, stream: str) -> StreamWriter:
        if stream not in self._writers:
            self._writers[stream] = StreamWriter(
                self._domain,
                self._known,
                self._domain.log,
                check_name("stream", stream),
                window=self._window,
                advertise=self._advertise,
                clock=self._clock,
                promise=HEARTBEATS,
            )
        return self._writers[stream]

    def _read(self, stored: Mapping[int, StoredAt]) -> dict[int, Event]:
        """Events as the log has them, each append read once."""
        known: dict[StoredAt, Event] = {}
        for stream, seq in stored.values():
            if (stream, seq) not in known:
                append = self._domain.log.append_holding(stream, seq)
                events = decode(append, layouts(self._known.state.types))
                known.update(((event.stream, event.seq), event) for event in events)
        return {place: known[at] for place, at in stored.items()}


class _LedgerHead:
    """The newest state of a domain, with its starting point in every stream."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self.state: State = domain.ledger.state()

    def refresh(self) -> bool:
        """Look for a newer state; true if there was one."""
        newest = self._domain.ledger.state()
        if newest.version == self.state.version:
            return False
        self._domain.acknowledge(newest.version)
        self.state = newest
        return True
