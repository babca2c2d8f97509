"""Events whose acceptance hangs on how many were accepted before them: conditions that name `@rate`.

Guarantees: each event is put to the rate that it has if those before it were accepted as found here, as one by one.
Between two numbers that a condition compares `@rate` with, it does not matter which it is; so rows are decided at once
for each such stretch, and the rate, which only grows, passes through the stretches in order. Only where `@rate` is
compared with something that differs from event to event are events decided one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from headgate.decide import truth as reference
from headgate.model.conditions import Compare, Condition, Constant, InSet, IsNull, Meta, atoms, operands, plain
from headgate.model.rights import Effect
from headgate.model.values import Value
from headgate.pipeline.admission.frame import ConditionFacts, Frame, Same, Sent
from headgate.pipeline.log.codec import Flags, Ints

_RATE: Final = Meta("rate")


class RatedEntry(Protocol):
    """A publish entry, prepared."""

    @property
    def effect(self) -> Effect:
        """Does it grant or forbid?"""

    @property
    def where(self) -> Condition:
        """Its condition."""

    @property
    def fixed(self) -> Mapping[str, Value]:
        """What it makes of attributes."""


E = TypeVar("E", bound=RatedEntry)


@dataclass(frozen=True, slots=True)
class Decided(Generic[E]):
    """Rows that a forbid keeps out, rows that nothing lets in, and the rows that each grant lets in."""

    denied: Flags
    open: Flags
    used: list[tuple[E, Flags]]


def by_rate(
    sent: Sent,
    entries: Sequence[E],
    asked: Flags,
    narrow: Flags,
    before: int,
    decide: Callable[[Sent, Sequence[E], Flags], Decided[E]],
    facts: ConditionFacts,
) -> Decided[E]:
    """Decide the rows that are asked about; those that are not `narrow` are refused all the same, and do not count."""
    points = _points(entries)
    if points is None:
        return _one_by_one(sent, entries, asked, narrow, before, facts)
    denied, open_ = np.zeros(len(asked), np.bool_), np.zeros(len(asked), np.bool_)
    used: list[tuple[E, Flags]] = []
    row, rate = 0, before + 1
    while row < len(asked):
        last = _last(points, rate)
        here = asked.copy()
        here[:row] = False
        decided = decide(replace(sent, rate=Same(rate)), entries, here)
        accepted = here & ~(decided.denied | decided.open) & narrow
        rates = rate + np.cumsum(accepted[row:]) - accepted[row:]  # of each row from here on
        end = len(asked) if last is None else row + int(np.searchsorted(rates, last, "right"))
        here[end:] = False
        denied |= decided.denied & here
        open_ |= decided.open & here
        used += [(entry, hit & here) for entry, hit in decided.used]
        rate += int(np.count_nonzero(accepted[row:end]))
        row = end
    return Decided(denied, open_, used)


def _points(entries: Sequence[E]) -> list[int] | None:
    """The rates at which a condition may change its truth; None if they differ from event to event."""
    points: set[int] = set()
    for entry in entries:
        for atom in atoms(entry.where):
            if _RATE not in operands(atom):
                continue
            match atom:
                case Compare(_, Meta(), Constant(value)) | Compare(_, Constant(value), Meta()):
                    points.update(_around(plain(value)))
                case InSet(_, values):
                    points.update(point for value in values for point in _around(value))
                case IsNull():
                    pass
                case _:
                    return None
    return sorted(points)


def _around(value: Value) -> Iterator[int]:
    """The whole numbers at a value, or beside it."""
    if isinstance(value, (int, float)):
        yield from (math.floor(value), math.ceil(value))


def _last(points: Sequence[int], rate: int) -> int | None:
    """The last rate that means the same as this one to every condition; None if there is no last."""
    if rate in points:
        return rate
    return next((point - 1 for point in points if point > rate), None)


def _one_by_one(
    sent: Sent, entries: Sequence[E], asked: Flags, narrow: Flags, before: int, facts: ConditionFacts
) -> Decided[E]:
    rows: Ints = np.flatnonzero(asked)
    made = [Frame(sent, facts, entry.fixed).events(rows) for entry in entries]
    denied, open_ = np.zeros(len(asked), np.bool_), asked.copy()
    used = [(entry, np.zeros(len(asked), np.bool_)) for entry in entries]
    rate = before + 1
    for at, row in enumerate(rows.tolist()):
        for number, entry in enumerate(entries):
            event = replace(made[number][at], rate=rate)
            found = reference.truth(entry.where, event, replace(facts.world, origin=event.origin))
            if found is not True if entry.effect is Effect.GRANT else found is False:
                continue
            open_[row] = False
            if entry.effect is Effect.FORBID:
                denied[row] = True
            else:
                used[number][1][row] = True
                rate += bool(narrow[row])
            break
    return Decided(denied, open_, [one for one in used if one[0].effect is Effect.GRANT])
