"""The one writer of a stream: admits what publishers sent and appends it, and returns when it is durable.

Guarantees (D6, D7): what is answered as accepted is durable and was admitted at the version it is stamped with; where
the version moves on meanwhile it is admitted again. An event that a publisher sends again within the window, into
whichever stream of the domain, is stored once. Submissions that are handed over together are written in one
transaction. `@rate` counts what all writers of the domain have stored, and what is about to be stored in the same
write; what another stores meanwhile is seen when it is written, and then it is decided again (`pipeline.log.appends`).
The times of a stream go forward as the clock does, and never back: by each append the stream promises its time
(`pipeline.log.promises`), unless nothing is promised but by heartbeats, or the caller says the time. No event is given
a time at which something that its version still holds has ended, unless the caller says it. The stream is held by a
lease, if it is to last; the fencing token, not the lease, is what keeps another writer out.
Leaves out: who waits for whom (`gateway.publishing.writer`). Used by one thread at a time, but for `prepare`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headgate.commands.commit import KnownState
from headgate.commands.expiry import StandingClock
from headgate.commands.publishing.submissions import StoredAt, Submission, SubmissionOutcome, Unasked
from headgate.decide.rates import Rates
from headgate.model import errors
from headgate.model.changes import Advertise, Batch
from headgate.model.state import State
from headgate.model.values import brief, micros, moment, render_timestamp
from headgate.node.domain import Domain, utc_now
from headgate.pipeline.admission.admission import Admission, Admitted, BeforeOf, Encoded, encode_many
from headgate.pipeline.log.appends import Append, Counted, Repeat, Repeats, Texts, hash_keys, repeats_within
from headgate.pipeline.log.codec import Ints, from_blob
from headgate.pipeline.log.event_log import EventLog, holder_of_this_process, is_dead
from headgate.pipeline.log.promises import Early, Occurrences
from headgate.pipeline.tracing import here, span

WINDOW_SECONDS: Final = 600.0
"""How long an event sent again under the same id is known as the same, where no settings say so."""
CLOCK: Final = "clock"
HEARTBEATS: Final = "heartbeats"
_TRIES: Final = 100  # how often a submission is decided anew while policy keeps changing under it

Outcome: TypeAlias = SubmissionOutcome | BaseException
"""What became of a submission, or why nothing did."""


@dataclass(eq=False)
class StreamWriter:
    """Writes one stream of a domain. What `known` brings has its starting point in every stream."""

    domain: Domain
    known: KnownState
    log: EventLog
    stream: str
    _: KW_ONLY
    window: float = WINDOW_SECONDS  # how many seconds an event sent again is known as the same
    lease: float = 0.0
    """How many seconds nobody else takes the stream after it was taken or renewed; 0 lets anyone take it at once."""
    advertise: bool = True
    """Is an advertisement that a publisher left out made for it, as a version of its own? Else none is needed."""
    clock: Callable[[], datetime] = utc_now
    standing: StandingClock | None = None
    promise: str = CLOCK
    """What the stream promises by: its clock, with publishers who state times joining it; or only by heartbeats."""
    paced: Callable[[str], None] = lambda _: None  # refuses a principal that has made as many versions as it may

    def __post_init__(self) -> None:
        self._window = int(self.window * 1_000_000)
        self._token: int | None = None
        self._held_until = 0.0
        self._written = 0  # the newest time of an append, and what else the stream has promised
        self._late: frozenset[str] = frozenset()  # types whose lateness counts here
        self._admission: Admission | None = None
        self._admitted: Admission | None = None

    # -- the lease --------------------------------------------------------------------------------------------

    def take(self) -> int:
        """Become the writer of the stream; `stream-held` while another's lease runs."""
        self.known.refresh()
        now, lease = self.clock(), self.lease
        self._token = self.log.take(
            self.stream,
            self.known.state.version,
            holder=holder_of_this_process(self.stream) if lease else "",
            now=micros(now),
            ttl=int(lease * 1_000_000),
            dead=is_dead,
        )
        self._held_until = now.timestamp() + lease
        self._written, self._late = self.log.promised(self.stream), frozenset()
        self.domain.acknowledge(self.known.state.version)
        return self._token

    def renew(self) -> None:
        """Hold the stream for longer, once a third of the lease is over."""
        now, lease = self.clock(), self.lease
        if self._token is None or now.timestamp() < self._held_until - lease * 2 / 3:
            return
        try:
            self.log.renew(self.stream, self._token, micros(now), int(lease * 1_000_000))
            self._held_until = now.timestamp() + lease
        except (errors.Fenced, errors.StreamHeld):
            self._token = None  # taken again with the next write
        except errors.HeadgateError:
            pass  # busy or full: the next try, or the fencing token, will tell

    def release(self) -> None:
        """Give the stream up."""
        if self._token is not None:
            self.log.release(self.stream, self._token)
            self._token = None

    @property
    def holds_stream(self) -> bool:
        """Does this process believe that it may write?"""
        return self._token is not None

    # -- promises ---------------------------------------------------------------------------------------------

    @property
    def promises_clock(self) -> bool:
        """Does the stream promise its clock by itself?"""
        return self.promise == CLOCK

    def promise_clock(self, every: float) -> bool:
        """Promise the clock while nothing is appended, if that was not done for so many seconds; did it move?"""
        if self._token is None or not self.promises_clock:
            return False
        self._begin_lateness(self.known.state, self._token)
        now = micros(self.clock())
        moved = self.log.promise_clock(self.stream, self._token, now, now - round(every * 1_000_000))
        self._written = max(self._written, self.log.promised(self.stream))
        return moved

    def _begin_lateness(self, state: State, token: int) -> None:
        """From its first version on, the lateness of a type counts."""
        types = state.types
        late = frozenset(name for name in types if types.times(name).lateness is not None)
        if self.promises_clock and late != self._late:
            self.log.begin_lateness(self.stream, token, sorted(late - self._late), micros(self.clock()))
            self._late = late

    def _now(self) -> datetime:
        """The clock, or what the stream has promised if that is later: a clock may be put back."""
        now = self.clock()
        return max(now, moment(self._written)) if self.promises_clock else now

    # -- writing ----------------------------------------------------------------------------------------------

    def prepare(self, attempt: Attempt) -> None:
        """Decide and encode what takes little time before it is its turn. May be called from another thread."""
        admission = self._admission
        if admission is None or admission.state is not self.known.state:
            return
        now = self._now()
        if not attempt.submission.is_quick(admission) or self._is_due(admission.state):
            return
        with suppress(Exception):  # whatever it is, `write` meets it again and answers
            attempt.prepare(admission, now, self._window, promises=self.promises_clock)

    def write(self, attempts: Sequence[Attempt], at: datetime | None = None) -> list[Outcome]:
        """Store each submission, or say why not. Their events get the time of the clock, or the one that is said."""
        outcomes: dict[int, Outcome] = {}
        left = dict(enumerate(attempts))
        for _ in range(_TRIES):
            try:
                self._write_once(left, outcomes, at)
            except errors.Fenced:
                self._token = None
            except Exception as error:  # noqa: BLE001 - whatever it is, the publishers must hear of it
                outcomes.update(dict.fromkeys(left, error))
            left = {number: attempt for number, attempt in left.items() if number not in outcomes}
            if not left:
                break
        return [outcomes.get(number) or too_late() for number in range(len(attempts))]

    def _write_once(self, left: Mapping[int, Attempt], outcomes: dict[int, Outcome], at: datetime | None) -> None:
        """Decide and append what is left, as one write; what has to be done again stays without an outcome."""
        token = self._token if self._token is not None else self.take()
        admission = self._newest()
        if self._admitted is not admission:
            self._begin_lateness(admission.state, token)
            self._admitted = admission
        now = at or self._now()
        if at is None and self._is_due(admission.state) and self.standing is not None:
            self.standing.settle()  # nothing is decided by what has ended, not for a moment
            return
        version, causes = admission.state.version, [one.cause for one in left.values()]
        with span("admit", causes, stream=self.stream, version=version, requests=len(left)):
            self._decide(admission, now, left, outcomes, is_told=at is not None)
        if self.advertise and self._advertise(admission.state, left, outcomes):
            return
        appends: dict[int, Append] = {}
        for number, attempt in left.items():
            if number in outcomes:
                continue
            append = attempt.take_ready() or attempt.encode(
                admission.state, micros(now), self._window, promises=at is None and self.promises_clock
            )
            if append is None:
                outcomes[number] = attempt.outcome(self.stream)
            else:
                appends[number] = replace(append, counts=attempt.counts()) if admission.asks_rate else append
        if not appends:
            return
        appends = dict(sorted(appends.items(), key=lambda one: one[1].time))  # each promises its time for those after
        events = sum(append.count for append in appends.values())
        with span("append", causes, stream=self.stream, version=version, events=events):
            answers = self.log.append_many(self.stream, token, list(appends.values()))
        self._written = max(self._written, *(append.time for append in appends.values()))
        for number, answer in zip(appends, answers, strict=True):
            if isinstance(answer, int):
                outcomes[number] = left[number].outcome(self.stream, answer)
            elif isinstance(answer, Repeats):
                left[number].compare(answer.candidates, self.log)
            elif isinstance(answer, Early):
                left[number].too_early(answer.places)
            elif isinstance(answer, errors.StaleVersion):
                self.known.refresh()
                self._written = max(self._written, self.log.promised(self.stream))
            else:
                outcomes[number] = answer

    def _decide(
        self,
        admission: Admission,
        now: datetime,
        left: Mapping[int, Attempt],
        outcomes: dict[int, Outcome],
        *,
        is_told: bool,
    ) -> None:
        """Put what is not ready to the rights of a version, one after another."""
        rates = self.log.counted(now) if admission.asks_rate else Rates()
        # Clocks of gateways differ, and so what has a later time counts as well; one who says the time has one clock.
        stored = rates.before if is_told else rates.lately
        ahead: Counter[tuple[str, str]] = Counter()  # what is about to be stored in the same write

        def before(publisher: str, type_name: str) -> int:
            return stored(publisher, type_name, now) + ahead[publisher, type_name]

        for number, attempt in left.items():
            if attempt.is_ready(admission.state, self._written):
                continue
            try:
                attempt.decide(admission, now, before)
            except (errors.HeadgateError, Unasked) as error:
                outcomes[number] = error
                continue
            self._look_back(attempt, micros(now))
            if admission.asks_rate:
                for publisher, name, count in attempt.counts():
                    ahead[publisher, name] += count

    def _look_back(self, attempt: Attempt, now: int) -> None:
        """Find what is denied now and was stored before, when the publisher had the right and got no answer."""
        denied = attempt.denied(now, self._window)
        if denied is not None:
            places, append = denied
            repeats = self.log.repeats(append)
            if repeats is not None:
                attempt.recall(places, repeats.candidates, self.log)

    def _newest(self) -> Admission:
        self.known.refresh()
        state = self.known.state
        if self._admission is None or self._admission.state is not state:
            self._admission = Admission(state, self.domain.predicates(state))
        return self._admission

    def _is_due(self, state: State) -> bool:
        """Has something ended? It is asked after the time of an event was taken, so that nothing had ended by then."""
        return self.standing is not None and self.standing.overdue(state)

    def _advertise(self, state: State, left: Mapping[int, Attempt], outcomes: dict[int, Outcome]) -> bool:
        """Make the advertisements that publishers left out; true if there were any, and so a new version.

        Whoever has made as many versions as it may is refused, and nobody else with it.
        """
        missing: dict[str, dict[str, None]] = {}
        waiting: dict[str, list[int]] = {}
        for number, attempt in left.items():
            publisher = attempt.submission.publisher
            for name in attempt.types() if number not in outcomes else ():
                line = state.types.lineage(name)
                if not any((publisher, ancestor) in state.advertisements for ancestor in line):
                    missing.setdefault(publisher, {})[name] = None
                    waiting.setdefault(publisher, []).append(number)
        made = False
        for publisher, names in missing.items():
            changes = tuple(Advertise(publisher, name) for name in names)
            try:
                self.paced(publisher)
                self.domain.commit(Batch(publisher, changes, "published without an advertisement"))
            except errors.TooBusy as error:
                outcomes.update(dict.fromkeys(waiting[publisher], error))
                continue
            except (errors.PublishDenied, errors.UnknownType, errors.UnknownName):
                pass  # the right, the type or the principal went meanwhile: it is decided anew
            made = True
        return made


def too_late() -> errors.StaleVersion:
    """The refusal of a request under which the ledger does not come to rest."""
    return errors.StaleVersion("the policy, or the rate, keeps changing under this request", remedy="send it again")


class Attempt:
    """One submission, what was decided about it so far, and what was learned of its events from the log."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.cause = here()
        self.refusals: dict[int, errors.HeadgateError] = {}
        self._parts: list[Admitted] = []
        self._places: list[Ints] = []
        self._ready: tuple[State, Append] | None = None
        self._sent_before: dict[int, StoredAt] = {}
        self._sent_twice: dict[int, int] = {}
        self._looked_for: set[int] = set()
        self._accept: frozenset[Repeat] = frozenset()
        self._encoded: Encoded | None = None
        self._appended: Ints = np.zeros(0, np.int64)
        self._early: dict[int, errors.HeadgateError] = {}

    # -- before its turn --------------------------------------------------------------------------------------

    def prepare(self, admission: Admission, now: datetime, window: int, *, promises: bool) -> None:
        """Decide and encode it before it is its turn, in case that no version comes in between."""
        self.decide(admission, now)
        if not self.refusals:  # else the log may have to be asked first
            append = self.encode(admission.state, micros(now), window, promises=promises)
            self._ready = None if append is None else (admission.state, append)

    def is_ready(self, state: State, written: int) -> bool:
        """Was it prepared at this state, and not before what is written already? If not, it has to be done again."""
        if self._ready is not None and (self._ready[0] is not state or self._ready[1].time < written):
            self._ready = None
        return self._ready is not None

    def take_ready(self) -> Append | None:
        """What was prepared, once."""
        ready, self._ready = self._ready, None
        return None if ready is None else ready[1]

    # -- deciding ---------------------------------------------------------------------------------------------

    def decide(self, admission: Admission, now: datetime, before: BeforeOf | None = None) -> None:
        """Put every event to the rights of one version; `before` tells how much was published of late.

        `Unasked` where the publisher has a policy rule other than the one that the submission has answers of.
        """
        sent = self.submission
        asked = admission if sent.answers is None else admission.asking(sent.answers.check)
        self._parts, self._places = sent.cut(asked, now, before)
        self.refusals = {
            int(places[row]): error
            for part, places in zip(self._parts, self._places, strict=True)
            for row, error in part.refusals.items()
            if int(places[row]) not in self._sent_before
        }
        more = {**sent.barred, **self._early}
        self.refusals |= {at: error for at, error in more.items() if at not in self._sent_before}

    def types(self) -> list[str]:
        """The types of which something was accepted."""
        return [_type_of(part) for part in self._parts if part.table.num_rows]

    def counts(self) -> tuple[Counted, ...]:
        """How many events of each type were accepted, without what was sent before."""
        publisher = self.submission.publisher
        return tuple((publisher, _type_of(part), part.table.num_rows) for part in self._new() if part.table.num_rows)

    def _new(self) -> list[Admitted]:
        """What was accepted, without what was sent before."""
        gone = self._sent_before.keys() | self._sent_twice.keys() | self._early.keys()
        if not gone:
            return self._parts
        return [_without(part, places, gone) for part, places in zip(self._parts, self._places, strict=True)]

    # -- what is in the log already ---------------------------------------------------------------------------

    def denied(self, time: int, window: int) -> tuple[list[int], Append] | None:
        """The events that the publisher may not publish now, and were not looked for in the log yet, if any.

        Whoever got no answer sends again, and may have lost the right since, or be held to a narrower policy rule.
        """
        kinds = errors.PublishDenied | errors.PolicyRuleDenied | errors.AheadOfClock
        places = [at for at, why in self.refusals.items() if isinstance(why, kinds)]
        places = [at for at in places if at not in self._looked_for]
        if not places:
            return None
        self._looked_for.update(places)
        sources, ids = zip(*map(self.submission.named, places), strict=True)
        keys = hash_keys(self.submission.publisher, sources, ids)
        return places, Append(0, time, len(places), b"", keys, window)

    def recall(self, places: Sequence[int], candidates: Sequence[Repeat], log: EventLog) -> None:
        """Tell which of the denied events were stored before: those are no refusals."""
        stored = _StoredEvents(log)
        for candidate in candidates:
            index = places[candidate.index]
            seq = stored.find(candidate, self.submission.publisher, *self.submission.named(index))
            if seq is not None:
                self._sent_before[index] = candidate.stream, seq
        self.refusals = {at: why for at, why in self.refusals.items() if at not in self._sent_before}

    def compare(self, candidates: Sequence[Repeat], log: EventLog) -> None:
        """Tell events sent before from others that only look alike, by what the log holds."""
        assert self._encoded is not None
        mine = from_blob(self._encoded.blob)
        stored = _StoredEvents(log)
        for candidate in candidates:
            source, id = (mine.column(name)[candidate.index].as_py() for name in ("source", "id"))
            seq = stored.find(candidate, self.submission.publisher, source, id)
            if seq is not None:
                self._sent_before[int(self._appended[candidate.index])] = candidate.stream, seq
            else:
                self._accept |= {candidate}

    def too_early(self, places: Mapping[int, int]) -> None:
        """The log has told which events occurred before a time that was promised: those are refused."""
        for index, horizon in places.items():
            place = int(self._appended[index])
            self._early[place] = errors.BelowHorizon(
                f"`{brief(self.submission.named(place)[1])}` occurred before {render_timestamp(moment(horizon))}, "
                "the horizon that was promised",
                remedy="send events before the heartbeat that promises their absence; if they are late by their "
                "nature, begin with a heartbeat, or let their type declare `lateness`",
            )

    # -- encoding ---------------------------------------------------------------------------------------------

    def encode(self, state: State, time: int, window: int, *, promises: bool) -> Append | None:
        """What is left to store, if anything, decided at a state; its stream `promises` its time by it, or not."""
        self._sent_twice = {}
        return self._encode(state, time, window, promises=promises)

    def _encode(self, state: State, time: int, window: int, *, promises: bool) -> Append | None:
        left = self._new()
        encoded = encode_many(left, self._places)
        if encoded.count == 0:
            self._encoded, self._appended = None, np.zeros(0, np.int64)
            return None
        self._encoded = encoded
        self._appended = _places_of(encoded, self._places)
        ids, sources = _identities(encoded, left)
        keys = hash_keys(self.submission.publisher, sources, ids)
        within = repeats_within(keys, ids if isinstance(sources, str) else zip(sources, ids, strict=True))
        if within:
            self._sent_twice = {int(self._appended[at]): int(self._appended[first]) for at, first in within.items()}
            return self._encode(state, time, window, promises=promises)
        return Append(
            *(state.version, time, encoded.count, encoded.blob, keys, window, self._accept),
            promises=promises,
            publisher=self.submission.publisher,
            occurred=tuple(_occurrences(encoded, left, state, time, promises=promises)),
        )

    def outcome(self, stream: str, first: int = 0) -> SubmissionOutcome:
        """What became of it, once what was left of it is stored from a sequence number on."""
        appended, before, twice = self._appended, self._sent_before, self._sent_twice

        def stored() -> dict[int, StoredAt]:
            at = {int(place): (stream, first + number) for number, place in enumerate(appended)}
            return {**at, **{place: at[same] for place, same in twice.items()}, **before}

        duplicates = (before.keys() | twice.keys()) - self.refusals.keys()
        return SubmissionOutcome(self.submission.size, frozenset(duplicates), self.refusals, stored)


class _StoredEvents:
    """Who the events of some appends are, each append read once."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._known: dict[tuple[str, int], Mapping[tuple[str, str, str], int]] = {}

    def find(self, append: Repeat, publisher: str, source: str, id: str) -> int | None:
        """The number of an event in an append, if that holds it."""
        key = append.stream, append.first
        if key not in self._known:
            table = from_blob(self._log.append_holding(*key).blob)
            columns = (table.column(name).to_pylist() for name in ("publisher", "source", "id"))
            self._known[key] = {who: append.first + at for at, who in enumerate(zip(*columns, strict=True))}
        return self._known[key].get((publisher, source, id))


def _occurrences(
    encoded: Encoded, parts: Sequence[Admitted], state: State, stamp: int, *, promises: bool
) -> Iterator[Occurrences]:
    """When the events of an append occurred, as far as that may be before a promise: its own stamp never is."""
    for number, part in enumerate(parts):
        if not part.table.num_rows:
            continue
        name = _type_of(part)
        times = state.types.times(name)
        if promises and not times.stated:
            continue
        places, occurred = np.flatnonzero(encoded.part == number), np.full(part.table.num_rows, stamp)
        joins = False
        if "occurred" in part.table.column_names:
            stated = part.table.column("occurred")
            occurred, joins = stated.fill_null(stamp).to_numpy(), promises
        yield Occurrences(name, times, places, occurred, joins)


def _type_of(part: Admitted) -> str:
    return str(part.table.column("type")[0].as_py())


def _identities(encoded: Encoded, parts: Sequence[Admitted]) -> tuple[Texts, str | list[str]]:
    """The ids and sources of what is to be stored, in its order; one source if all have the same."""
    tables = [part.table for part in parts if part.table.num_rows]
    stored = tables[0] if len(tables) == 1 else from_blob(encoded.blob)
    sources = stored.column("source")
    different = sources.unique()
    ids = stored.column("id").to_numpy()
    return ids, different[0].as_py() if len(different) == 1 else sources.to_pylist()


def _without(part: Admitted, places: Ints, gone: set[int]) -> Admitted:
    """A part without the events at some places of the request."""
    rows = part.rows
    keep = np.array([int(places[row]) not in gone for row in rows.tolist()], np.bool_)
    if keep.all():
        return part
    accepted = part.accepted.copy()
    accepted[rows[~keep]] = False
    return replace(part, accepted=accepted, table=part.table.filter(pa.array(keep)))


def _places_of(encoded: Encoded, places: Sequence[Ints]) -> Ints:
    """For each stored event its place in the request."""
    if len(places) == 1:
        return places[0][encoded.row]
    every = np.zeros(encoded.count, np.int64)
    for number, mine in enumerate(places):
        at = encoded.part == number
        every[at] = mine[encoded.row[at]]
    return every
