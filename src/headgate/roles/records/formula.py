"""The membership rule of a constraint, as credential records (OASIS 3.2.4, 4.7).

Guarantees: of a constraint under its solution, a record that is true for as long as the starred atoms make it true,
with the value of every other part as it was at entry; or plainly true or false, where no star is in it. What was
unknown at entry counts against the membership.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headgate.decide.constraints import Bindings, Scene, truth
from headgate.model.conditions import (
    AllOf,
    AnyOf,
    Atom,
    Condition,
    Not,
    Starred,
)
from headgate.model.roles import Link, Op
from headgate.roles.records.facts import When, ground
from headgate.roles.records.records import Records

Rule: TypeAlias = Link | bool
FactRecord: TypeAlias = Callable[[When], Link]


def membership_rule(constraint: Condition, bound: Bindings, scene: Scene, table: Records, fact: FactRecord) -> Rule:
    """What must stay true of a constraint; `fact` finds or makes the record of a fact."""

    def follow(part: Condition, starred: bool, positive: bool) -> Rule:
        match part:
            case Starred(arg):
                return follow(arg, True, positive)
            case Not(arg):
                inner = follow(arg, starred, not positive)
                return not inner if isinstance(inner, bool) else Link(inner.parent, not inner.negated)
            case AllOf(args):
                return _joined(table, Op.AND, [follow(arg, starred, positive) for arg in args])
            case AnyOf(args):
                return _joined(table, Op.OR, [follow(arg, starred, positive) for arg in args])
            case atom:
                return settle(atom, starred, positive)

    def settle(leaf: Atom, starred: bool, positive: bool) -> Rule:
        known = ground(leaf, bound, scene)
        if starred and known is not None:
            return fact(When(scene.service, scene.instance, known))
        answer = truth(leaf, bound, scene)
        return (not positive) if answer is None else answer

    return follow(constraint, False, True)


def _joined(table: Records, op: Op, parts: list[Rule]) -> Rule:
    deciding = op is Op.OR  # a part that settles the whole: false among all, true among any
    if any(part is deciding for part in parts):
        return deciding
    links = [part for part in parts if isinstance(part, Link)]
    if not links:
        return not deciding
    return links[0] if len(links) == 1 else Link(table.combine(op, links))
