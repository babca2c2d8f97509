"""How much detections may signal: each of them, and all of one principal's, in an hour of the log's clock.

Guarantees: what is counted is a function of the log and of the versions, however it is cut into micro-batches: a
detection that would pass a limit stops at the record at which it would, and nothing of that record counts. Of a
principal's detections the one stops that passes the principal's limit, in the order of their numbers. What history
shows counts for its detection alone, as of one hour, since it is all signalled when that begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from headgate.model.errors import LimitReached
from headgate.model.limits import MAX_PRINCIPAL_SIGNALS, MAX_SIGNALS

HISTORY: Final = -1
"""In place of an hour, for what was signalled of the time before a detection."""

_HOUR: Final = 3_600_000_000

Counted: TypeAlias = tuple[int, int]
"""An hour, and how many signals there were in it."""


def hour_of(clock: int) -> int:
    """The hour of a clock in microseconds."""
    return clock // _HOUR


def too_many_signals() -> LimitReached:
    """A detection signals more than it may."""
    return LimitReached(
        f"the detection gives more than MAX_SIGNALS ({MAX_SIGNALS}) signals in an hour",
        remedy="end it, and let it signal less: `$A; $B` gives one for each pair",
    )


def too_many_of_principal() -> LimitReached:
    """A principal's detections signal more than they may."""
    return LimitReached(
        f"the detections of its principal give more than MAX_PRINCIPAL_SIGNALS ({MAX_PRINCIPAL_SIGNALS}) signals in an "
        "hour",
        remedy="end some of them, and let them signal less",
    )


class SignalCounts:
    """What detections have signalled in the newest hour of each, as records follow each other."""

    def __init__(self, before: Mapping[int, Counted], principal_of: Callable[[int], str]) -> None:
        self.counted = dict(before)
        self._principal_of = principal_of
        self._totals: dict[tuple[str, int], int] = {}
        for number, (hour, count) in before.items():
            self._add(number, hour, count)

    def take(self, signals: Mapping[tuple[int, int], int]) -> dict[int, LimitReached]:
        """What one record brings, by detection and hour: those that stop with it, and why; they count no more."""
        stopped: dict[int, LimitReached] = {}
        for (number, hour), count in sorted(signals.items()):
            last, there = self.counted.get(number, (hour, 0))
            own = count + (there if last == hour else 0)
            if own > MAX_SIGNALS:
                stopped[number] = too_many_signals()
            elif hour != HISTORY and self._total(number, hour) + count > MAX_PRINCIPAL_SIGNALS:
                stopped[number] = too_many_of_principal()
            else:
                self.counted[number] = hour, own
                self._add(number, hour, count)
        return stopped

    def _total(self, number: int, hour: int) -> int:
        return self._totals.get((self._principal_of(number), hour), 0)

    def _add(self, number: int, hour: int, count: int) -> None:
        key = self._principal_of(number), hour
        self._totals[key] = self._totals.get(key, 0) + count
