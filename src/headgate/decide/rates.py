"""How often has a publisher published of late? What `@rate` counts (Capabilities V.D).

Guarantees: `before` is the number of events of a type that a publisher had accepted in the domain, on whichever
stream, in the RATE_SECONDS up to a time; with the event itself that is its `@rate`. `lately` counts what has later
times as well, so that clocks which differ hide nothing. The count goes by the times that are given, in whatever order,
so that it can be told again. It is exact up to MAX_MARKS different times, and never too low while memory lasts: past
that, events are counted as if they had come up to GRAIN_SECONDS later, and past `MAX_RATED` publishers and types those
unheard of longest go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from headgate.model.expressions import names_meta
from headgate.model.limits import RATE_SECONDS
from headgate.model.state import State
from headgate.model.values import micros

MAX_RATED: Final = 100_000
"""Pairs of publisher and type that are counted."""
MAX_MARKS: Final = 256
"""Different times that are kept apart for one of them."""
GRAIN_SECONDS: Final = 1
"""How far times may be apart that are taken as one when there are too many."""

MAX_SKEW_SECONDS: Final = RATE_SECONDS
"""How far clocks may differ; what is older than that and the window is forgotten."""

_WINDOW: Final = RATE_SECONDS * 1_000_000
KEPT_MICROS: Final = (RATE_SECONDS + MAX_SKEW_SECONDS) * 1_000_000
"""How far back events may still count, in microseconds."""

Mark = tuple[int, int]
"""A time in microseconds, and how many events had it."""


def asks_rate(state: State) -> bool:
    """Does any rule in force name `@rate`? Only then is it stamped on events."""
    return any(names_meta(rule.where, "rate") for rule in state.rules)


class Rates:
    """The events accepted of late, by publisher and type."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], list[Mark]] = {}

    def before(self, publisher: str, type_name: str, now: datetime) -> int:
        """How many events were accepted in the window that ends now."""
        end = micros(now)
        marks = self._held.get((publisher, type_name), ())
        return sum(count for at, count in marks if end - _WINDOW < at <= end)

    def lately(self, publisher: str, type_name: str, now: datetime) -> int:
        """How many events were accepted since the beginning of the window that ends now."""
        begin = micros(now) - _WINDOW
        return sum(count for at, count in self._held.get((publisher, type_name), ()) if at > begin)

    def add(self, publisher: str, type_name: str, now: datetime, count: int = 1) -> None:
        """Count events that were accepted at a time."""
        if count < 1:
            return
        at, key = micros(now), (publisher, type_name)
        marks = self._held.pop(key, [])
        if marks and marks[-1][0] == at:
            marks[-1] = at, marks[-1][1] + count
        else:
            marks.append((at, count))
        if len(marks) > MAX_MARKS:
            marks = _fewer([one for one in marks if one[0] > at - KEPT_MICROS])
        self._held[key] = marks  # last among them, for it was heard of last
        if len(self._held) > MAX_RATED:
            del self._held[next(iter(self._held))]


def _fewer(marks: Sequence[Mark]) -> list[Mark]:
    """The same events at fewer times, none of them earlier than it was."""
    grains: dict[int, Mark] = {}
    for at, count in sorted(marks):
        _, held = grains.get(grain := at // (GRAIN_SECONDS * 1_000_000), (at, 0))
        grains[grain] = at, held + count
    found = list(grains.values())
    last = found[MAX_MARKS - 1 :]
    return [*found[: MAX_MARKS - 1], (last[-1][0], sum(count for _, count in last))] if len(last) > 1 else found
