"""What has to be done now and then: removing old data, and what nobody uses any more.

Guarantees: data goes only as `pipeline.log.retention` plans it. Before anything goes that a subscriber has not seen, it
is said in the log, by name and number. A round that fails is counted and tried again; it stops nothing else.
Leaves out: what is kept for how long, which is the settings' part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

from headgate.model.changes import Batch, Unsubscribe
from headgate.model.errors import HeadgateError, VersionConflict
from headgate.model.values import micros
from headgate.node.config import Config
from headgate.node.cursors import Cursors
from headgate.node.domain import Domain
from headgate.node.health import Chores, write_chores
from headgate.node.logs import Log, fault
from headgate.pipeline.log.retention import PIPELINE, Limit, Limits, RetentionPlan, apply, look, plan

EVERY_SECONDS: Final = 15.0
"""Time between two rounds."""

MAX_PASSES: Final = 20
"""Plans made and applied in one round, while there is more to remove."""

MAX_CLOSED: Final = 1_000
"""Temporary subscriptions closed in one round."""

log = Log("housekeeping")


def limits_of(settings: Config) -> Limits:
    """The limits of the settings, as retention counts them."""
    kept = settings.retention
    return Limits(
        Limit(round(kept.log_age * 1e6), kept.log_size),
        Limit(round(kept.deliveries_age * 1e6), kept.deliveries_size),
        round(kept.hold * 1e6),
    )


class Housekeeper:
    """Keeps one domain tidy. Domain and cursors are its own: it runs in a thread of its own."""

    def __init__(self, domain: Domain, cursors: Cursors, limits: Limits, clock: Callable[[], datetime]) -> None:
        self._domain = domain
        self._cursors = cursors
        self._limits = limits
        self._clock = clock
        self.chores = Chores()

    def close(self) -> None:
        """Let go of the files."""
        self._domain.close()
        self._cursors.close()

    def run(self, stop: threading.Event, every: float = EVERY_SECONDS) -> None:
        """Tidy up again and again, until told to stop."""
        while not stop.wait(every):
            try:
                self.round()
            except Exception as error:  # noqa: BLE001 - whatever happened, the next round must come
                self.chores = replace(self.chores, failures=self.chores.failures + 1)
                log.warning("round-failed", **fault(error))
        self.close()

    def round(self) -> Chores:
        """One round; returns what has been done since the beginning."""
        now = self._clock()
        self._close_temporary(now)
        forgotten = self._cursors.purge(self._domain.ledger.state(), now)
        self._retain(now)
        self.chores = replace(
            self.chores,
            at=micros(now),
            rounds=self.chores.rounds + 1,
            sessions_forgotten=self.chores.sessions_forgotten + forgotten,
        )
        write_chores(self._domain.paths.directory, self.chores)
        return self.chores

    def _retain(self, now: datetime) -> None:
        """Remove what is past its time or size and needed by nobody who is still waited for."""
        for _ in range(MAX_PASSES):
            made = self._plan(now)
            self._warn(made)
            held = {one.holder for one in made.held if one.holder != PIPELINE}
            self.chores = replace(self.chores, holders=len(held))
            if not made.trims:
                return
            apply(made, self._domain.log, self._domain.store)
            removed = sum(trim.bytes for trim in made.trims)
            self.chores = replace(
                self.chores,
                trimmed_bytes=self.chores.trimmed_bytes + removed,
                lost_events=self.chores.lost_events + sum(loss.events for loss in made.losses),
            )
            log.info("trimmed", bytes=removed, count=len(made.trims))

    def _plan(self, now: datetime) -> RetentionPlan:
        state = self._domain.ledger.state()
        events, deliveries = look(self._domain.log, self._domain.store)
        floors = self._cursors.floors(tuple(state.subscriptions.values()), self._domain.log.starts_at, now)
        return plan(micros(now), events, deliveries, floors, self._limits)

    def _warn(self, made: RetentionPlan) -> None:
        for loss in made.losses:
            log.error(
                "removed-unread",
                holder=loss.holder,
                stream=loss.stream,
                events=loss.events,
                seconds=(micros(self._clock()) - loss.absent) / 1e6,
                part=loss.where.value,
                reason="its reader was away for longer than `retention.hold`, and a limit was passed",
            )
        for held in made.held:
            log.warning("limit-passed", holder=held.holder, stream=held.stream, part=held.where.value)

    def _close_temporary(self, now: datetime) -> None:
        """End the temporary subscriptions whose reader has not been seen for a while."""
        closed = 0
        for stale in self._cursors.stale(now)[:MAX_CLOSED]:
            state = self._domain.ledger.state()
            subscription = state.subscriptions.get(stale.subscription)
            if subscription is None or subscription.first != stale.first:
                continue
            try:
                # Nothing may have changed in between: the name could be another subscription's by then.
                self._domain.commit(
                    Batch(subscription.principal, (Unsubscribe(subscription.id),), note="its reader is gone"),
                    expect=state.version,
                )
                closed += 1
            except VersionConflict:
                continue  # the next round looks again
            except HeadgateError as error:
                log.warning("not-closed", **fault(error))
        if closed:
            self.chores = replace(self.chores, temporary_closed=self.chores.temporary_closed + closed)
            log.info("temporary-closed", subscriptions=closed)
