"""What can be proven of conditions without an event: can they hold together?

Guarantees: `may_hold` says no only where the normal form shows that the condition is never true; a condition that is
too large to normalise may hold.
Leaves out: groups, relations, texts and predicates, which count as unrelated to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headgate.decide.normal import Bounds, Clause, clauses
from headgate.model.conditions import (
    FALSE,
    TRUE,
    Attribute,
    Compare,
    Condition,
    Constant,
    InSet,
    IsNull,
    Not,
    Operand,
    Predicate,
    Subject,
    all_of,
    any_of,
    atoms,
    rewrite_operands,
    within,
)
from headgate.model.errors import BadExpression
from headgate.model.rights import Effect, Rule
from headgate.model.values import Kind

_MOST_FORBIDS: Final = 100
"""With more forbids than this the conditions are not combined: the whole would nest too deep to look at."""


def may_hold(condition: Condition | None, kinds: Mapping[str, Kind]) -> bool:
    """Is there no proof that the condition is never true?"""
    try:
        return condition is None or bool(clauses(condition, kinds))
    except BadExpression:  # too large to normalise, so nothing is proven
        return True


def opaque(rule: str) -> Condition:
    """Stands for a condition that may not be told: nothing is known of it. No predicate can have such a name."""
    return Predicate(f"\0{rule}")


def is_opaque(condition: Condition) -> bool:
    """Does a condition have a part of which nothing is known?"""
    return any(isinstance(atom, Predicate) and atom.name.startswith("\0") for atom in atoms(condition))


def in_order(listed: list[tuple[Effect, Condition]]) -> Condition | None:
    """True where the first entry that matches is a grant; None if it would be too deep to look at."""
    if sum(effect is Effect.FORBID for effect, _ in listed) > _MOST_FORBIDS:
        return None
    permitted: Condition = FALSE
    for effect, condition in reversed(listed):
        if effect is Effect.GRANT:
            permitted = TRUE if TRUE in (condition, permitted) else any_of(condition, permitted)
        elif condition == TRUE:
            permitted = FALSE
        elif FALSE not in (condition, permitted):
            permitted = all_of(Not(condition), permitted)
    return permitted


def without_others(condition: Condition, kinds: Mapping[str, Kind]) -> Condition:
    """The condition where every attribute that a type lacks is null (D3), so that it means the same on subtypes."""

    def put(operand: Operand) -> Operand:
        lacks = any(isinstance(part, Attribute) and part.name not in kinds for part in within(operand))
        return Constant(None) if lacks else operand

    return rewrite_operands(condition, put)


def with_arguments(condition: Condition, given: Mapping[str, Operand]) -> Condition:
    """The condition of an entry for a role, with the role's arguments in the place of their `$names`."""
    if not given:
        return condition
    return rewrite_operands(
        condition, lambda operand: given.get(operand.name, operand) if isinstance(operand, Subject) else operand
    )


def given_to(rule: Rule) -> dict[str, Operand]:
    """The arguments of a role in an entry as it counts for one membership."""
    return {name: Constant(value) for name, value in rule.given.items()}


def over_event(clause: Clause) -> Condition:
    """What a clause over a view says about the event itself.

    What is null in a view need not be null in the event, and a predicate is given the view; neither says anything.
    """
    conditions: list[Condition] = []
    for term, bounds in clause.bounds.items():
        if not bounds.null:
            conditions.extend(_bounded(term, bounds))
    rest = (one for one in clause.rest if not isinstance(one.atom, Predicate))
    return all_of(*conditions, *(one.atom if one.want else Not(one.atom) for one in rest))


def _bounded(term: Operand, bounds: Bounds) -> list[Condition]:
    conditions: list[Condition] = [Not(IsNull(term))]
    span = bounds.span
    if bounds.only is not None:
        conditions.append(InSet(term, tuple(bounds.only)))
    if bounds.without:
        conditions.append(Not(InSet(term, tuple(bounds.without))))
    if span.low is not None:
        conditions.append(Compare(">" if span.low_open else ">=", term, Constant(span.low)))
    if span.high is not None:
        conditions.append(Compare("<" if span.high_open else "<=", term, Constant(span.high)))
    return conditions
