"""What a domain's files tell of a detection: where it stands and what it waits for, and why it signalled.

Guarantees: a detection's own principal is told, and whoever governs or audits all types that it looks at (D14); to
others it is not there. Where it stands is what the log says, by the machine that the detection query runs. A principal
learns who publishes only of events that it has seen, and no number counts what is hidden from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from headgate.analysis import explain as explanations
from headgate.analysis.explain import Explanation, Question
from headgate.commands.subscriptions import ledger_id, local_id
from headgate.decide.deliver import check_known, is_told_all, is_told_everything
from headgate.model.errors import GovernDenied, NotFound
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.values import brief, plain
from headgate.node.domain import Domain
from headgate.pipeline import SIGNALS
from headgate.pipeline.detect.replay import replay
from headgate.pipeline.detect.signals import StoredSignal, stored_signals
from headgate.pipeline.detect.waiting import BeadWait, SourceHorizon, WaitsFor

MAX_TOLD_WAITS: Final = 100
"""Evaluations of which one answer says what they wait for."""
_PAGE: Final = 100


# -- which one ------------------------------------------------------------------------------------------------


def find_detections(domain: Domain, asker: str, principal: str, id: str) -> list[tuple[int, Subscription]]:
    """The detections that a principal has called so, or the ledger, with their numbers; the newest first.

    There is one at least, of which the asker may know.
    """
    now = domain.ledger.state()
    check_known(now, asker)
    names = {id, ledger_id(principal, id)} if "/" not in id else {id}
    every = enumerate(one for one, _ in domain.ledger.all_subscriptions(now.version))
    mine = [(number, one) for number, one in every if one.principal == principal and one.id in names]
    found = [(number, one) for number, one in mine if one.detection is not None and is_told_of(now, asker, one)]
    if found:
        return found[::-1]
    if asker == principal or is_told_everything(now, asker):
        raise NotFound(f"`{brief(principal)}` has no detection `{brief(id)}`", remedy="`headgate versions` shows them")
    raise GovernDenied(
        f"`{asker}` may ask about its own detections, or about those over types that it governs or audits; "
        f"`{brief(id)}` is neither",
        remedy="ask for `govern` or `audit` on the types, or check the names",
    )


def is_told_of(now: State, asker: str, detection: Subscription) -> bool:
    """May the asker know what a detection does: is it its own, or is nothing that it looks at kept from the asker?"""
    if asker == detection.principal or is_told_everything(now, asker):
        return True
    types = [name for type in detection.types if type in now.types for name in now.types.subtypes(type)]
    return bool(types) and all(is_told_all(now, asker, name) for name in types)


# -- where it stands --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EvaluationWait:
    """What one evaluation waits for: `for_` an event, a horizon, the clock, or the end of what a block is over."""

    part: str
    start: datetime
    bindings: Mapping[str, object]
    for_: str
    until: datetime | None
    types: tuple[str, ...] | None
    """The types whose horizons are not past `until` yet; None: all that the detection looks at, for a timer."""


@dataclass(frozen=True, slots=True)
class DetectionState:
    """Where a detection stands, by the records of the log up to now."""

    detection: str
    principal: str
    expression: str
    clock: datetime
    """The newest clock in the log."""
    signals: int
    """How many signals have become certain, of what is in the log."""
    waits: tuple[EvaluationWait, ...]
    untold: int
    """Evaluations that wait besides."""
    horizons: tuple[SourceHorizon, ...]
    """What the sources that matter have promised, those first that hold back most."""
    is_whole: bool
    """Does the log still hold all that it looked at?"""
    is_behind: bool
    """Are there events that the detection query has not been put to yet?"""
    stopped: str = ""
    """Why it detects no more, if it stopped."""


UNSEEN: Final = "?"
"""Stands for a publisher of which one has seen nothing."""


def detection_state(domain: Domain, asker: str, detection: Subscription, most: int | None = None) -> DetectionState:
    """Where a detection stands; refused with `limit-reached` if more than `most` records must be gone through."""
    assert detection.detection is not None
    found = replay(domain.paths, domain.log, domain.ledger, detection, most)
    now = domain.ledger.state()
    reached = domain.signals.reached().streams
    waits = sorted(found.waits, key=_urgency)
    return DetectionState(
        detection=local_id(detection.principal, detection.id) or detection.id,
        principal=detection.principal,
        expression=detection.detection.text,
        clock=found.clock,
        signals=len(found.signals),
        waits=tuple(map(_told, waits[:MAX_TOLD_WAITS])),
        untold=len(waits[MAX_TOLD_WAITS:]),
        horizons=tuple(_known(now, asker, found.publishers, one) for one in found.horizons),
        is_whole=found.is_whole,
        is_behind=any(tail.last > reached.get(stream, 0) for stream, tail in domain.log.tails().items()),
        stopped=found.stopped,
    )


def _urgency(wait: BeadWait) -> tuple[int, datetime, str, str]:
    """What only waits for certainty comes first."""
    order = (WaitsFor.HORIZON, WaitsFor.CLOCK, WaitsFor.END, WaitsFor.EVENT)
    return order.index(wait.waits_for), wait.until or wait.start, wait.part, repr(wait.environment)


def _told(wait: BeadWait) -> EvaluationWait:
    types = tuple(type for type in wait.types if type is not None)
    bindings = {name: plain(value) for name, value in wait.environment}
    of_all = None in wait.types
    return EvaluationWait(wait.part, wait.start, bindings, wait.waits_for.value, wait.until, None if of_all else types)


def _known(now: State, asker: str, seen: frozenset[tuple[str, str]], one: SourceHorizon) -> SourceHorizon:
    """A source as the asker may know it."""
    if not one.publisher or (one.publisher, one.type) in seen or one.publisher == asker:
        return one
    return one if one.type in now.types and is_told_all(now, asker, one.type) else replace(one, publisher=UNSEEN)


# -- why it signalled -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SignalExplanation:
    """A signal, and what is told of each event that it rests on."""

    detection: str
    expression: str
    id: str
    time: datetime
    bindings: Mapping[str, object]
    contributors: tuple[Explanation, ...]
    untold: int = 0
    """Contributing events of which nothing can be told: the log no longer holds them."""


def explain_signal(domain: Domain, asker: str, detection: Subscription, number: int, seq: int) -> SignalExplanation:
    """Why a detection signalled, by its number and that of the signal: each event as the asker may know it (D14).

    What a detection sees is its principal's views, so its principal may know of every one; places are for auditors.
    """
    assert detection.detection is not None
    found = _signal(domain, number, seq)
    now = domain.ledger.state()
    books = domain.books(now)
    told: list[Explanation] = []
    untold = 0
    for stream, event_seq, _ in found.row.contributors:
        try:
            event = domain.event(stream, event_seq)
            question = Question(asker, detection.principal, event.id, subscription=detection.id)
            told.append(explanations.explain(question, event, books, [detection]))
        except NotFound:
            untold += 1
    return SignalExplanation(
        detection.id,
        detection.detection.text,
        found.id,
        found.row.time,
        {name: plain(value) for name, value in found.row.environment},
        tuple(told),
        untold,
    )


def _signal(domain: Domain, number: int, seq: int) -> StoredSignal:
    for blob in domain.signals.for_subscription(number, SIGNALS, seq - 1, seq, 1).blobs:
        for one in stored_signals(blob.blob or b""):
            if (one.seq, one.row.subscription) == (seq, number):
                return one
    raise NotFound("no such signal", remedy="retention may have removed it")


def find_signal(domain: Domain, detections: list[tuple[int, Subscription]], id: str) -> tuple[int, Subscription, int]:
    """The newest signal with an id of detections with one name: which of them has it, and its number."""
    for number, detection in detections:
        for one in reversed(list(_signals(domain, number))):
            if one.id == id:
                return number, detection, one.seq
    raise NotFound(f"no signal `{brief(id)}`", remedy="check its id; retention may have removed it")


def _signals(domain: Domain, number: int) -> Iterator[StoredSignal]:
    """The signals of a detection that are there."""
    last = domain.signals.reached().streams.get(SIGNALS, 0)
    resume: tuple[int, int] | None = None
    while True:
        page = domain.signals.for_subscription(number, SIGNALS, 0, last, _PAGE, resume=resume)
        for blob in page.blobs:
            yield from (one for one in stored_signals(blob.blob or b"") if one.row.subscription == number)
        if page.resume is None:
            return
        resume = page.resume
