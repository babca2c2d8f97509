"""A moment at which clocks show what they should.

Guarantees: a moment that is found lies between the two given and shows every part asked for.
Leaves out: a proof that there is none. A few days are looked at, and those around changes of the clock are not sought.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from headgate.decide.truth import clock_part
from headgate.model.conditions import ClockPart

_DAYS: Final = 15
"""Days that are looked at, two weeks and one for the difference between zones."""

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_MIDNIGHT: Final = time()


def moment_showing(wanted: Mapping[ClockPart, int], low: datetime | None, high: datetime | None) -> datetime | None:
    """A moment strictly between two others at which each part of the clock is as wanted, if one is found soon."""
    for at in _tried(wanted, low, high):
        inside = (low is None or low < at) and (high is None or at < high)
        if inside and all(clock_part(part.part, at, part.zone) == shown for part, shown in wanted.items()):
            return at
    return None


def _tried(wanted: Mapping[ClockPart, int], low: datetime | None, high: datetime | None) -> Iterator[datetime]:
    first = low or (high - timedelta(days=_DAYS - 1) if high is not None and high.year > 1 else high) or _START
    times = {(part.zone, shown) for part, shown in wanted.items() if part.part == "timeofday"}
    zones = {part.zone for part in wanted} if not times else set()
    for day in range(_DAYS):
        try:
            at = first + timedelta(days=day)
            for zone, seconds in sorted(times | {(zone, 12 * 3600) for zone in zones}):
                local = datetime.combine(at.astimezone(ZoneInfo(zone)).date(), _MIDNIGHT, ZoneInfo(zone))
                yield (local + timedelta(seconds=seconds)).astimezone(UTC)
        except OverflowError:
            return
        if low is not None and high is not None:
            yield low + (high - low) * (day + 1) / (_DAYS + 1)
