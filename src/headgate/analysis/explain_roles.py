"""Why an entry for a role, or one of the event policy, counts for a principal: facts for explanations.

Guarantees: a membership is told with how it was gained. Of an entry of the event policy it is said what its parameters
were, which credentials counted for the best choice, which it lacked, and whether its constraint was true of them.
Leaves out: words, and who may be told (`explain`, `restrictions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Final

from headgate.decide.constraints import truth, value
from headgate.decide.event_policy import entry_truth, means, parameters, policy_scene
from headgate.decide.rolebook import fit
from headgate.model.conditions import Argument, RoleRef, Variable
from headgate.model.events import Event
from headgate.model.rights import Rule
from headgate.model.rolefiles import EventEntry
from headgate.model.roles import Membership
from headgate.model.state import State

MOST_CHOICES: Final = 256
"""Choices of credentials that are looked at to say which counted."""


@dataclass(frozen=True, slots=True)
class RoleHolding:
    """A membership, and how it was gained: by which statement, and with which memberships and elections."""

    id: str
    service: str
    instance: str
    role: str
    args: tuple[Argument, ...]
    statement: str = ""
    supports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """An entry of the event policy, put to an event and to what a principal counts.

    `credentials` is the choice that comes nearest to making it true; `missing` are those of which it counts none.
    `constraint` is the truth of the constraint for that choice, and None as well where there is no choice.
    """

    entry: EventEntry
    parameters: tuple[tuple[str, Argument], ...]
    credentials: tuple[RoleHolding, ...] = ()
    missing: tuple[RoleRef, ...] = ()
    constraint: bool | None = None


def held(one: Membership) -> RoleHolding:
    """What is told of a membership."""
    return RoleHolding(one.id, one.service, one.instance, one.role, one.args, one.statement, one.supports)


def by_membership(state: State, principal: str, rules: Sequence[Rule]) -> Iterator[tuple[Rule, Membership | None]]:
    """Entries as they count for a principal, each with the membership through which it does, if it is for a role.

    A rule for a role stands in `rules` once for each membership that fits, in the order in which those began.
    """
    waiting: dict[str, Iterator[Membership]] = {}
    for rule in rules:
        if rule.role is None:
            yield rule, None
            continue
        if rule.id not in waiting:
            waiting[rule.id] = _fitting(state, principal, rule.role)
        yield rule, next(waiting[rule.id], None)


def _fitting(state: State, principal: str, role: RoleRef) -> Iterator[Membership]:
    return (one for one in state.roles.held_by(principal) if fit(role, one, {}) is not None)


def judged(state: State, entry: EventEntry, event: Event, shown: tuple[Membership, ...]) -> Judged:
    """What an entry of the event policy saw."""
    scene = policy_scene(state, event)
    seen = tuple((n, value(e, event.values, scene)) for n, e in parameters(state, entry.event.type))
    fitting = [[one for one in shown if means(ref, one)] for ref in entry.credentials]
    missing = tuple(ref for ref, found in zip(entry.credentials, fitting, strict=True) if not found)
    if missing:
        return Judged(entry, seen, missing=missing)
    choice = _best(state, entry, event, islice(product(*fitting), MOST_CHOICES))
    bound = _bound(entry, [v for _, v in seen], choice)
    return Judged(entry, seen, tuple(map(held, choice)), (), truth(entry.constraint, bound, scene))


def _best(
    state: State, entry: EventEntry, event: Event, choices: Iterable[tuple[Membership, ...]]
) -> tuple[Membership, ...]:
    """The first choice that makes the entry true, or else unknown, or else the first."""
    by_truth: dict[bool | None, tuple[Membership, ...]] = {}
    for choice in choices:
        by_truth.setdefault(entry_truth(state, entry, event, choice), choice)
        if True in by_truth:
            break
    return next(by_truth[one] for one in (True, None, False) if one in by_truth)


def _bound(entry: EventEntry, seen: Sequence[Argument], choice: Sequence[Membership]) -> Mapping[str, Argument]:
    """What the variables of an entry mean: what the event says stands before what credentials do."""
    bound: dict[str, Argument] = {}
    for term, found in zip(entry.event.args, seen, strict=False):
        if isinstance(term, Variable):
            bound.setdefault(term.name, found)
    for ref, one in zip(entry.credentials, choice, strict=True):
        for place, argument in zip(ref.args, one.args, strict=False):
            if isinstance(place, Variable):
                bound.setdefault(place.name, argument)
    return bound
