"""What is sought: values under which conditions have certain truths.

Guarantees: `met` says whether values reach a goal by the reference semantics, `truth`, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from headgate.decide.truth import World, truth
from headgate.model.conditions import Atom, Attribute, Condition, Meta, Subject, atoms
from headgate.model.events import Event
from headgate.model.state import State
from headgate.model.values import Value
from headgate.solver.terms import ConditionFrame, Term

_SOME_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Want:
    """The condition is to be true, or false; or, with `met=False`, anything else."""

    condition: Condition
    truth: bool = True
    met: bool = True


@dataclass(frozen=True, slots=True)
class Every:
    """All of these."""

    goals: tuple[Goal, ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """At least one of these."""

    goals: tuple[Goal, ...] = ()


Goal: TypeAlias = Want | Every | Some


def atoms_of(goal: Goal) -> Iterator[Atom]:
    """Every atom of a goal's conditions."""
    match goal:
        case Want(condition):
            yield from atoms(condition)
        case Every(goals) | Some(goals):
            for one in goals:
                yield from atoms_of(one)


def event_of(values: Mapping[Term, Value], type_name: str = "") -> Event:
    """The event that has these values."""
    at, by, rate, origin = (values.get(Meta(name)) for name in ("time", "publisher", "rate", "origin"))
    return Event(
        id="",
        publisher=by if isinstance(by, str) else "",
        type=type_name,
        values={term.name: value for term, value in values.items() if isinstance(term, Attribute)},
        time=at if isinstance(at, datetime) else _SOME_TIME,
        rate=rate if isinstance(rate, int) else None,
        origin=origin if isinstance(origin, str) else None,
    )


def met(goal: Goal, values: Mapping[Term, Value], frame: ConditionFrame) -> bool:
    """Do these values reach the goal?"""
    event = event_of(values)
    subject = {term.name: value for term, value in values.items() if isinstance(term, Subject)}
    return _met(goal, event, World(frame.state or State(), subject, frame.predicates, origin=event.origin))


def _met(goal: Goal, event: Event, world: World) -> bool:
    match goal:
        case Want(condition, wanted, is_met):
            return (truth(condition, event, world) is wanted) is is_met
        case Every(goals):
            return all(_met(one, event, world) for one in goals)
        case Some(goals):
            return any(_met(one, event, world) for one in goals)
