"""Publishing what detections signal, and adding it to relations (D15).

Guarantees: each signal of a detection that publishes becomes one event, by the one way there is to publish, and each
signal of one that adds one version; exactly once, whatever is killed: what was done after the last word of progress is
found in the stream of derived events, and in the notes of versions, before anything is done again. They are dealt with
in the order of signals. What is refused is counted with its reason and passed over. For each publisher and type the
stream promises what can no longer be signalled: the least horizon of the detections that publish it, as far as they
have seen the log; nothing past that is promised, so no signal comes too late for its own event.
Leaves out: which process does this, and when (`gateway.publishing.deriving`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Final

from headgate.commands.commit import KnownState
from headgate.commands.publishing.stream_writer import Attempt, StreamWriter
from headgate.commands.publishing.submissions import of_drafts
from headgate.decide.derived import DERIVED, derived_event, derived_id, derived_row, promise, readers_of
from headgate.decide.publish import may_publish, no_right
from headgate.model.changes import Batch
from headgate.model.errors import (
    HeadgateError,
    LimitReached,
    NotFound,
    StorageBusy,
    StorageFull,
    StreamHeld,
    VersionConflict,
)
from headgate.model.events import Draft
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.values import micros, moment
from headgate.node.derived_progress import DerivedProgress, DerivedThrough
from headgate.node.domain import Domain
from headgate.pipeline import PROMISES, SIGNALS
from headgate.pipeline.deliveries import DeliveryStore, Reached
from headgate.pipeline.detect.signals import STOPS, StoredSignal, stored_signals
from headgate.pipeline.detect.sources import SourcePromises, times_of
from headgate.pipeline.log.codec import from_blob
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.log.promises import Promised

_SLICE_BYTES: Final = 4_000_000  # of signals that are read at a time
_NOTE: Final = "signal "
"""How the note of a version that adds a row begins; the id of what was signalled follows."""


def is_of_signal(note: str) -> bool:
    """Does a version with this note, of the administrator, add the row of a signal?"""
    return note.startswith(_NOTE)


def begin_publishing(
    domain: Domain, log: EventLog, state: State, principal: str, type: str, start: datetime, *, by_clock: bool
) -> datetime:
    """Let a principal join the stream of derived events for a type, before its detection is made; when that may begin.

    From then on nothing is promised there that it might still publish. Refused without the right to publish the type.
    """
    if not may_publish(state, principal, type):
        raise no_right(state, principal, type)
    times, now = state.types.times(type), micros(start)
    if not times.stated:
        return start  # which is refused when it is made
    if DERIVED not in log.tails():
        with suppress(StreamHeld):  # another has just made it
            log.take(DERIVED, state.version, now=now)
            domain.acknowledge(state.version)
        if by_clock:
            log.promise_stream(DERIVED, now, now)
    promised, _ = log.promise(DERIVED, principal, {type: times}, 0, now, everywhere=False)
    return max(start, moment(promised[type]))


@dataclass(frozen=True, slots=True)
class _LogPlace:
    """What was promised by some place of the log, and that place: detections that have read it know of the promises."""

    promised: Promised
    tails: dict[str, int]
    promise: int

    def is_passed(self, reached: Reached) -> bool:
        """Have detections read that far?"""
        told = reached.streams
        return told.get(PROMISES, 0) >= self.promise and all(told.get(one, 0) >= at for one, at in self.tails.items())


class Deriver:
    """Publishes and adds for one domain. Used by one thread at a time, in one process of a node at a time."""

    def __init__(
        self,
        domain: Domain,
        known: KnownState,
        writer: StreamWriter,
        progress: DerivedProgress,
        *,
        promise_every: float,
    ) -> None:
        self._domain, self._known, self._writer, self._progress = domain, known, writer, progress
        self._promise_every = promise_every
        self._log = writer.log
        self._signals = DeliveryStore.open(domain.paths.signals, read_only=True)
        self._made: dict[int, Subscription] = {}
        self._ended: dict[int, int] = {}
        self._version = 0
        self._done: DerivedThrough | None = None
        self._seen: _LogPlace | None = None
        self.refused: Callable[[Subscription, str, HeadgateError], None] = lambda _one, _id, _why: None
        """Is told of each refusal, with the id that the event or row would have."""

    def close(self) -> None:
        """Let go of what is its own."""
        self._signals.close()
        self._progress.close()

    def round(self) -> bool:
        """Deal with what was signalled, and promise what will be no more; is there more to do at once?"""
        self._follow()
        if not self._made and DERIVED not in self._log.tails():
            return False
        seen = self._seen if self._seen is not None else self._look()
        reached = self._signals.reached()
        try:
            more = self._derive(reached.streams.get(SIGNALS, 0))
        except BaseException:
            self._done = None  # what was done of it is looked up
            raise
        self._promise_stream()
        if more:
            return True
        self._seen = seen
        if seen is not None and seen.is_passed(reached):
            self._promise(seen, reached)
            self._seen = None
        return False

    def _follow(self) -> None:
        """The detections that publish or add, whether or not they have ended."""
        self._known.refresh()
        through = self._known.state.version
        if through > self._version:
            changes = self._domain.ledger.detections(self._version, through)
            for number, one in changes.opened:
                if one.detection is not None and one.detection.derives:
                    self._made[number] = one
            self._ended |= {number: version for number, version in changes.closed if number in self._made}
            self._version = through

    # -- what was signalled -----------------------------------------------------------------------------------

    def _derive(self, newest: int) -> bool:
        through, done, versions = self._resumed()
        tail = self._signals.after({**self._signals.reached().streams, SIGNALS: through.signal}, _SLICE_BYTES)
        signals = [
            signal
            for blob in tail.blobs
            if blob.stream == SIGNALS and blob.blob is not None
            for signal in stored_signals(blob.blob)
            if through.signal < signal.seq <= newest and signal.row.subscription in self._made
        ]
        for publishes, some in groupby(signals, self._publishes):
            if publishes:
                self._publish([one for one in some if self._id(one) not in done])
            else:
                for one in some:
                    if f"{_NOTE}{self._id(one)}" not in versions:
                        self._add(one)
                    self._note(one.seq)
        come = min(tail.positions.get(SIGNALS, newest), newest)
        if come > through.signal:
            self._note(come)
        return come < newest

    def _resumed(self) -> tuple[DerivedThrough, frozenset[str], frozenset[str]]:
        """How far it has come, and what was done past that before a crash: ids of events, and notes of versions."""
        if self._done is not None:
            return self._done, frozenset(), frozenset()
        through = self._done = self._progress.through()
        end = self._log.tails().get(DERIVED)
        ids: set[str] = set()
        if end is not None:
            for append in self._log.batches(DERIVED, max(through.tail, end.trimmed), end.last):
                ids.update(from_blob(append.blob).column("id").to_pylist())
        own = self._known.state.administrator  # anybody may write such a note
        notes = (one.note for one in self._domain.ledger.versions(through.version) if one.author == own)
        return through, frozenset(ids), frozenset(filter(is_of_signal, notes))

    def _note(self, signal: int) -> None:
        tail = self._log.tails().get(DERIVED)
        self._done = DerivedThrough(signal, 0 if tail is None else tail.last, self._domain.ledger.version)
        self._progress.done(self._done)

    def _publishes(self, signal: StoredSignal) -> bool:
        detection = self._made[signal.row.subscription].detection
        return detection is not None and detection.publishes is not None

    def _id(self, signal: StoredSignal) -> str:
        return derived_id(self._made[signal.row.subscription], signal.id)

    def _publish(self, signals: Sequence[StoredSignal]) -> None:
        meant = [(self._made[one.row.subscription], one) for one in signals if not _is_report(one)]
        for principal, group in groupby(meant, lambda one: one[0].principal):
            some: list[tuple[Subscription, Draft]] = []
            for one, signal in group:
                try:
                    some.append((one, self._draft(one, signal)))
                except LimitReached as error:
                    self._refuse(one, self._id(signal), error)
            if not some:
                continue
            drafts = [draft for _, draft in some]
            (outcome,) = self._writer.write([Attempt(of_drafts(principal, drafts, answers=None))])
            if isinstance(outcome, BaseException):
                raise outcome
            for at, why in sorted(outcome.refusals.items()):
                self._refuse(some[at][0], drafts[at].id, why)

    def _draft(self, one: Subscription, signal: StoredSignal) -> Draft:
        """The event that a signal makes, with who may read it, if it is for those who could read what it rests on."""
        types, row = self._known.state.types, signal.row
        draft = derived_event(one, signal.id, row.time, dict(row.environment), row.contributors, types)
        if draft.type not in types or not types.is_for_readers(draft.type):
            return draft
        state = self._known.state
        books = self._domain.books(state)
        try:
            events = [self._domain.event(stream, seq) for stream, seq, _ in row.contributors]
        except NotFound:  # there were too many to name them all, or retention has taken one: then nobody may
            return replace(draft, readers=())
        return replace(draft, readers=readers_of(one, events, state.principals, books.states, books.predicates))

    def _add(self, signal: StoredSignal) -> None:
        one = self._made[signal.row.subscription]
        assert one.detection is not None
        if _is_report(signal) or one.detection.adds is None:
            return
        row = derived_row(one.detection.adds, dict(signal.row.environment))
        self._known.refresh()
        if row.row in self._known.state.relations.get(row.relation, ()):
            return  # it is there: nothing would change
        batch = Batch(self._known.state.administrator, (row,), f"{_NOTE}{self._id(signal)}")
        try:
            self._domain.commit(batch)
        except (StorageBusy, StorageFull, VersionConflict):
            raise  # it is tried again
        except HeadgateError as why:
            self._refuse(one, self._id(signal), why)

    def _refuse(self, one: Subscription, id: str, why: HeadgateError) -> None:
        self._progress.refuse(one.id, one.first, why, self._writer.clock())
        self.refused(one, id, why)

    # -- what will be signalled no more -----------------------------------------------------------------------

    def _look(self) -> _LogPlace | None:
        """What is promised now. The place is read after it: whoever has read that far knows all of it."""
        promised = self._log.horizons()
        tails = {stream: tail.last for stream, tail in self._log.tails().items()}
        return _LogPlace(promised, tails, self._log.newest()[1])

    def _promise_stream(self) -> None:
        """Of all that nobody has joined for, nothing comes by this stream."""
        if DERIVED not in self._log.tails():
            return
        if not self._writer.holds_stream:
            self._writer.take()
        self._writer.renew()
        if self._writer.promises_clock:
            self._writer.promise_clock(self._promise_every)
        else:
            now = micros(self._writer.clock())
            self._log.promise_alone(DERIVED, _least_of_others(self._log.horizons()), now)

    def _promise(self, seen: _LogPlace, reached: Reached) -> None:
        """For each publisher and type the least that may still be signalled."""
        state, now = self._known.state, micros(self._writer.clock())
        sources = SourcePromises(seen.promised)
        sources.declare(seen.promised.streams, times_of(state.types))
        least: dict[tuple[str, str], int] = {}
        stopped = {one.subscription for one in self._signals.remarks() if one.code in STOPS}
        for number, one in self._made.items():
            assert one.detection is not None
            if one.detection.publishes is None or self._ended.get(number, reached.version + 1) <= reached.version:
                continue
            if number in stopped:
                continue
            key = one.principal, one.detection.publishes
            horizon = _horizon(one, sources, reached, number)
            least[key] = min(least.get(key, horizon), horizon)
        idle = now if self._writer.promises_clock else _least_of_others(seen.promised)
        for (stream, type), publishers in seen.promised.joined.items():
            if stream == DERIVED and type in state.types:
                for publisher in filter(None, publishers):
                    horizon = least.get((publisher, type), idle)
                    times = {type: state.types.times(type)}
                    if horizon > publishers[publisher]:
                        self._log.promise(DERIVED, publisher, times, horizon, now, everywhere=False)


def _least_of_others(promised: Promised) -> int:
    """What all other streams have promised themselves."""
    return min((at for stream, at in promised.streams.items() if stream != DERIVED), default=0)


def _is_report(signal: StoredSignal) -> bool:
    """Does it say why a detection stopped?"""
    return any(name in STOPS for name, _ in signal.row.environment)


def _horizon(one: Subscription, sources: SourcePromises, reached: Reached, number: int) -> int:
    """Before which time a detection signals no more, when it has seen what the sources have promised."""
    assert one.detection is not None
    start = one.detection.start
    if one.first > reached.version:
        return micros(start)
    held, seen = reached.held.get(number), sources.view(frozenset(one.types))
    least = promise(one.detection.composite, start, seen.of(None), None if held is None else moment(held), seen.shift)
    return micros(least)
