"""How often has a publisher published of late? What `@rate` counts (Capabilities V.D).

Guarantees: `before` is the number of events of a type that a publisher had accepted here in the RATE_SECONDS up to a
time; with the event itself that is its `@rate`. The count goes by the times that are given, in whatever order, so that
it can be told again. It is never too low while memory lasts: past `MAX_MARKS` different times in the window events are
counted as if they had come a little later, and past `MAX_RATED` publishers and types those unheard of longest go.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from headgate.decide.bind import names_meta
from headgate.model.limits import RATE_SECONDS
from headgate.model.state import State
from headgate.model.values import micros

MAX_RATED: Final = 100_000
"""Pairs of publisher and type that are counted."""
MAX_MARKS: Final = 256
"""Different times that are kept apart for one of them."""

_WINDOW: Final = RATE_SECONDS * 1_000_000


def asks_rate(state: State) -> bool:
    """Does any rule in force name `@rate`? Only then is it stamped on events."""
    return any(names_meta(rule.where, "rate") for rule in state.rules)


class Rates:
    """The events accepted of late at one gateway, by publisher and type."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], list[tuple[int, int]]] = {}

    def before(self, publisher: str, type_name: str, now: datetime) -> int:
        """How many events were accepted in the window that ends now."""
        end = micros(now)
        marks = self._held.get((publisher, type_name), ())
        return sum(count for at, count in marks if end - _WINDOW < at <= end)

    def add(self, publisher: str, type_name: str, now: datetime, count: int = 1) -> None:
        """Count events that were accepted at a time."""
        if count < 1:
            return
        at, key = micros(now), (publisher, type_name)
        marks = [one for one in self._held.pop(key, ()) if one[0] > at - _WINDOW]
        if marks and (marks[-1][0] == at or len(marks) >= MAX_MARKS):
            last, held = marks.pop()
            marks.append((max(last, at), held + count))
        else:
            marks.append((at, count))
        self._held[key] = marks  # last among them, for it was heard of last
        if len(self._held) > MAX_RATED:
            del self._held[next(iter(self._held))]
