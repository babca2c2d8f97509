"""Reservations: what a client may want later is kept for a stated time, and taken up retrospectively (OASIS 6.8.1).

Guarantees: a reservation keeps the log from its making on until it expires, whoever made what is kept; those with
similar wishes share it. A subscription or detection that begins at one gets all that came since, or is refused where
that is not there any more. Narrowed, it frees what comes before the first event that still fits, and says since when it
keeps everything. Past `MAX_RESERVED_EVENTS` retention does not wait for it: that is logged, and whoever takes it up is
told. One reservation of a process is narrowed at a time: another is `too-busy` meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from headgate.commands.commit import LedgerAccess
from headgate.decide.apply import apply
from headgate.decide.composite_check import resolve
from headgate.lang.composite import parse_composite
from headgate.model.changes import Batch, Subscribe
from headgate.model.composite import templates
from headgate.model.errors import HeadgateError, LimitReached, TooBusy
from headgate.model.limits import MAX_RESERVED_EVENTS
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.types import SIGNAL
from headgate.model.values import micros, moment
from headgate.node.cursors import Cursors, Reservation
from headgate.pipeline.alone import LoneMatcher
from headgate.pipeline.log.event_log import EventLog

_NARROWING: Final = Lock()
"""A process goes through the log for one reservation at a time, and has its time for others meanwhile."""


@dataclass(frozen=True, slots=True)
class Reservations:
    """Keeps what is published from now on, for subscriptions and detections made later."""

    ledger: LedgerAccess
    cursors: Cursors
    clock: Callable[[], datetime]

    def reserve(self, id: str, wanted: Subscription, text: str | None, seconds: float) -> tuple[Reservation, bool]:
        """Keep what a subscription or detection would get that would be accepted, and whether that is new.

        `text` is its filter, or its expression. What is kept already under this name is kept on, if its types are the
        same or kin, as far as it may still fit.
        """
        principal, state, now = wanted.principal, self.ledger.state, self.clock()
        accepted = apply(state, Batch(principal, (Subscribe(wanted),))).subscriptions[wanted.id]
        old = {one.id: one for one in self.cursors.reservations(principal, now)}.get(id)
        log = EventLog.open(self.ledger.domain.paths.log, read_only=True)
        try:
            if old is None or not _is_kin(state, old, accepted):
                streams: Mapping[str, int] = {stream: tail.last for stream, tail in log.tails().items()}
                since = self.clock()  # after the look at the log, so that all events of later times are kept
            elif (old.type, old.where) == (wanted.type, text):
                streams, since = old.streams, old.since
            elif not _NARROWING.acquire(blocking=False):
                raise TooBusy("another reservation is being narrowed", remedy="ask again")
            else:
                try:
                    streams, since = self._fitting(log, old, accepted)
                finally:
                    _NARROWING.release()
        finally:
            log.close()
        until = now + timedelta(seconds=seconds)
        made = Reservation(principal, id, wanted.type, text, streams, since, until)
        self.cursors.reserve(made, now)
        return made, old is None

    def taken_up(self, principal: str, id: str) -> datetime:
        """Since when a reservation keeps everything, for what begins there; refused if some of it is gone."""
        kept = self.cursors.reservation(principal, id, self.clock())
        if not self.is_whole(kept):
            raise LimitReached(
                f"not all that `{id}` reserved is there any more, past MAX_RESERVED_EVENTS ({MAX_RESERVED_EVENTS})",
                remedy="begin at a later time, and reserve again; narrow a reservation as soon as more is known",
            )
        return kept.since

    def is_whole(self, kept: Reservation) -> bool:
        """Is all there that came since?"""
        trimmed = self.ledger.follower.trimmed()
        return all(through <= kept.streams.get(stream, 0) for stream, through in trimmed.items())

    def _fitting(self, log: EventLog, old: Reservation, wanted: Subscription) -> tuple[Mapping[str, int], datetime]:
        """What must be kept of a reservation from the first event on that fits; everything after that is kept."""
        domain = self.ledger.domain
        matcher = LoneMatcher(domain.paths, domain.ledger, replace(wanted, first=0))
        ends = {stream: tail.last for stream, tail in log.tails().items()}
        places = {stream: max(old.streams.get(stream, 0), trimmed) for stream, trimmed in log.trimmed().items()}
        if sum(last - places[stream] for stream, last in ends.items()) > MAX_RESERVED_EVENTS:
            return old.streams, old.since  # it is full: retention does not wait for it
        fits = [matcher.first(log, stream, places[stream], last) for stream, last in ends.items()]
        first = min((one.time for one in fits if one is not None), default=micros(self.clock()))
        streams = {}
        for stream, last in ends.items():
            streams[stream] = old.streams.get(stream, 0)
            for one in log.batches(stream, places[stream], last):
                if one.time >= first:
                    break
                streams[stream] = one.last
        is_freed = any(place > old.streams.get(stream, 0) for stream, place in streams.items())
        return streams, max(old.since, moment(first - 1)) if is_freed else old.since


def _is_kin(state: State, old: Reservation, wanted: Subscription) -> bool:
    """Is every type that is wanted one that was kept, or kin to one?"""
    try:
        before = _types(state, old)
    except HeadgateError:  # what it named is not there any more
        return False
    return all(any(state.types.is_a(a, b) or state.types.is_a(b, a) for a in before) for b in wanted.types)


def _types(state: State, kept: Reservation) -> tuple[str, ...]:
    if kept.type != SIGNAL:
        return (kept.type,) if kept.type in state.types else ()
    resolved = resolve(parse_composite(kept.where or ""), state)
    return tuple(template.type for template in templates(resolved.composite))
