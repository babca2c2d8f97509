"""What may be deleted from the log, the deliveries and the signals, and when.

Guarantees: `plan` is a pure function of what it is given. Limits of age and size trim the oldest first, up to what
somebody still needs and not past it. Past it they go only when its holder has been absent for longer than `hold`, and
then the plan names the holder and how many events it loses. Nothing goes that the pipeline has not decided, nor, while
there are detections, what they have not been put to.
Leaves out: the caller, who looks, plans, tells those who lose something, and applies, again and again; one round looks
at the oldest `MAX_CHUNKS` of each stream.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.log.event_log import Chunk, EventLog

MAX_CHUNKS = 10_000
"""Appends of one stream that one round looks at."""


class Where(Enum):
    """Which of the files something is about."""

    LOG = "log"
    DELIVERIES = "deliveries"
    SIGNALS = "signals"


EVERYWHERE = frozenset(Where)


@dataclass(frozen=True, slots=True)
class Floor:
    """The lowest event of a stream that somebody still needs: a cursor, a reservation.

    `absent` is since when its holder has been away, in microseconds; None while it is there. One that keeps more
    than it may (`is_full`) is not waited for either.
    """

    seq: int
    holder: str
    absent: int | None = None
    needs: frozenset[Where] = EVERYWHERE
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """How old, in microseconds, and how large all streams together may grow; None is no limit."""

    age: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the files, and for how long, in microseconds, an absent holder is waited for.

    Those of deliveries are also those of signals.
    """

    log: Limit = field(default_factory=Limit)
    deliveries: Limit = field(default_factory=Limit)
    hold: int = 0


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What a file holds of a stream: how far it was trimmed and decided, its bytes, and its oldest chunks in order."""

    trimmed: int
    decided: int
    bytes: int
    chunks: Sequence[Chunk] = ()


@dataclass(frozen=True, slots=True)
class Trim:
    """Delete the chunks of a stream that end at or before an event."""

    where: Where
    stream: str
    through: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Loss:
    """A holder who was away for too long, or keeps more than it may, and the events that it loses."""

    where: Where
    stream: str
    holder: str
    absent: int | None
    first: int
    last: int

    @property
    def events(self) -> int:
        """How many events it loses."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A limit that is passed because somebody still needs an event. The pipeline holds what it has not decided."""

    where: Where
    stream: str
    holder: str
    seq: int


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What to delete, who loses by it, and who keeps a limit from being met."""

    trims: tuple[Trim, ...] = ()
    losses: tuple[Loss, ...] = ()
    held: tuple[HeldBack, ...] = ()


PIPELINE = "pipeline"
"""The holder of what is not decided yet."""


def plan(
    now: int,
    log: Mapping[str, StreamFacts],
    deliveries: Mapping[str, StreamFacts],
    floors: Mapping[str, Sequence[Floor]],
    limits: Limits,
    signals: Mapping[str, StreamFacts] = MappingProxyType({}),
) -> RetentionPlan:
    """What may go at a time, given what there is and who needs it."""
    made = [
        _plan(Where.LOG, now, log, floors, limits.log, limits.hold),
        _plan(Where.DELIVERIES, now, deliveries, floors, limits.deliveries, limits.hold),
        _plan(Where.SIGNALS, now, signals, floors, limits.deliveries, limits.hold),
    ]
    return RetentionPlan(*(tuple(itertools.chain.from_iterable(parts)) for parts in zip(*made, strict=True)))


def _plan(
    where: Where,
    now: int,
    facts: Mapping[str, StreamFacts],
    floors: Mapping[str, Sequence[Floor]],
    limit: Limit,
    hold: int,
) -> tuple[list[Trim], list[Loss], list[HeldBack]]:
    mine = {stream: [floor for floor in floors.get(stream, ()) if where in floor.needs] for stream in facts}
    stops = {stream: _stop(found, mine[stream], now, hold) for stream, found in facts.items()}
    wanted = _wanted(now, facts, {stream: stop.seq for stream, stop in stops.items()}, limit)
    trims, losses, held = [], [], []
    for stream, (cut, blocked) in wanted.items():
        gone = facts[stream].chunks[:cut]
        if gone:
            trims.append(Trim(where, stream, gone[-1].last, sum(chunk.bytes for chunk in gone)))
            losses += _losses(where, stream, gone[-1].last, facts[stream].trimmed, mine[stream])
        if blocked:
            held.append(HeldBack(where, stream, stops[stream].holder, stops[stream].seq))
    return trims, losses, held


def _stop(facts: StreamFacts, floors: Iterable[Floor], now: int, hold: int) -> Floor:
    """The first event that must stay, and for whom."""
    firm = [f for f in floors if not f.is_full and (f.absent is None or now - f.absent <= hold)]
    return min([Floor(facts.decided + 1, PIPELINE), *firm], key=lambda floor: floor.seq)


def _wanted(
    now: int, facts: Mapping[str, StreamFacts], stops: Mapping[str, int], limit: Limit
) -> dict[str, tuple[int, bool]]:
    """How many chunks of each stream go, and whether a limit still asks for the next, which must stay."""
    cuts = dict.fromkeys(facts, 0)
    blocked: dict[str, bool] = {}  # whether the chunk that must stay is too old
    excess = sum(one.bytes for one in facts.values()) - limit.bytes if limit.bytes is not None else 0
    # The oldest chunk of all streams comes first, each stream in its own order.
    queue = [(one.chunks[0].time, stream) for stream, one in facts.items() if one.chunks]
    heapq.heapify(queue)
    while queue:
        time, stream = heapq.heappop(queue)
        chunks = facts[stream].chunks
        old = limit.age is not None and time < now - limit.age
        if not old and excess <= 0:
            continue
        chunk = chunks[cuts[stream]]
        if chunk.last >= stops[stream]:
            blocked[stream] = old
            continue
        excess -= chunk.bytes
        cuts[stream] += 1
        if cuts[stream] < len(chunks):
            heapq.heappush(queue, (chunks[cuts[stream]].time, stream))
    # Where size alone asked for it, younger chunks of other streams may have been enough.
    return {stream: (cuts[stream], stream in blocked and (blocked[stream] or excess > 0)) for stream in facts}


def _losses(where: Where, stream: str, through: int, trimmed: int, floors: Iterable[Floor]) -> list[Loss]:
    """The holders whose floor is passed. Only those that are not waited for can be: the others stopped the cut."""
    losses = []
    for floor in floors:
        first = max(floor.seq, trimmed + 1)  # what went before was told before
        if first <= through:
            assert floor.is_full or floor.absent is not None
            losses.append(Loss(where, stream, floor.holder, floor.absent, first, through))
    return losses


def look(
    log: EventLog, store: DeliveryStore, signals: DeliveryStore, *, detecting: bool
) -> tuple[dict[str, StreamFacts], dict[str, StreamFacts], dict[str, StreamFacts]]:
    """What there is, for `plan`: of the log, of the deliveries and of the signals.

    While there are detections (`detecting`), what has been decided of the log is what both have decided.
    """
    decided, looked_at = store.reached().streams, signals.reached().streams

    def facts(of: EventLog | DeliveryStore, through: Mapping[str, int]) -> dict[str, StreamFacts]:
        return {
            stream: StreamFacts(
                trimmed, through.get(stream, 0), of.size(stream).bytes, tuple(of.chunks(stream, MAX_CHUNKS))
            )
            for stream, trimmed in of.trimmed().items()
        }

    both = {stream: min(last, looked_at.get(stream, 0)) for stream, last in decided.items()}
    return facts(log, both if detecting else decided), facts(store, decided), facts(signals, looked_at)


def apply(plan: RetentionPlan, log: EventLog, store: DeliveryStore, signals: DeliveryStore) -> None:
    """Do what a plan says. What it says of losses is the caller's to pass on, before this."""
    files = {Where.LOG: log, Where.DELIVERIES: store, Where.SIGNALS: signals}
    for trim in plan.trims:
        files[trim.where].trim(trim.stream, trim.through)
    if any(trim.where is Where.LOG for trim in plan.trims):
        log.trim_promises(log.passed_promise())  # those that whoever has read what is gone has read too
