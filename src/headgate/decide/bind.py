"""Put a subject's attributes in place of `$names`.

Guarantees: the result has the same truth for that subject on every event. An absent attribute is null, and a value of
another kind than what it is compared with is unknown (D2), so it becomes null in that comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headgate.model.conditions import (
    AllOf,
    AnyOf,
    Attribute,
    ClockPart,
    Compare,
    Condition,
    Constant,
    InGroup,
    InRange,
    InSet,
    IsNull,
    Meta,
    Not,
    Operand,
    Predicate,
    Related,
    Subject,
    TextMatch,
    atoms,
    operands,
)
from headgate.model.values import Kind, Value, comparable, kind_of


def subjects(condition: Condition) -> frozenset[str]:
    """The subject attributes a condition names."""
    return frozenset(o.name for atom in atoms(condition) for o in operands(atom) if isinstance(o, Subject))


def bind(condition: Condition, subject: Mapping[str, Value], kinds: Mapping[str, Kind]) -> Condition:
    """The condition for one subject, over a type with these attributes."""

    def put(operand: Operand) -> Operand:
        return Constant(subject.get(operand.name)) if isinstance(operand, Subject) else operand

    def fit(operand: Operand, other: Operand) -> Operand:
        """A bound value as it counts beside another operand: null if the kinds do not compare."""
        bound = put(operand)
        if not isinstance(operand, Subject) or not isinstance(bound, Constant):
            return bound
        mine, theirs = kind_of(bound.value), _kind(put(other), kinds)
        return bound if mine is None or theirs is None or comparable(mine, theirs) else Constant(None)

    match condition:
        case Not(arg):
            return Not(bind(arg, subject, kinds))
        case AllOf(args):
            return AllOf(tuple(bind(arg, subject, kinds) for arg in args))
        case AnyOf(args):
            return AnyOf(tuple(bind(arg, subject, kinds) for arg in args))
        case Compare(op, left, right):
            return Compare(op, fit(left, right), fit(right, left))
        case InRange(operand, low, high):
            # Each end is a comparison of its own, so a value may fit one and not the other.
            return AllOf(
                (
                    Compare(">=", fit(operand, low), fit(low, operand)),
                    Compare("<=", fit(operand, high), fit(high, operand)),
                )
            )
        case TextMatch(op, left, right):
            return TextMatch(op, _text(put(left)), _text(put(right)))
        case InGroup(operand, _):
            return replace(condition, operand=_text(put(operand)))
        case InSet(operand, _) | IsNull(operand):
            return replace(condition, operand=put(operand))
        case Related(_, args) | Predicate(_, args):
            return replace(condition, args=tuple(put(arg) for arg in args))


def _text(operand: Operand) -> Operand:
    if isinstance(operand, Constant) and not isinstance(operand.value, str):
        return Constant(None)
    return operand


def _kind(operand: Operand, kinds: Mapping[str, Kind]) -> Kind | None:
    match operand:
        case Attribute(name):
            return kinds.get(name)
        case Meta("time"):
            return Kind.TIMESTAMP
        case Meta():
            return Kind.STRING
        case ClockPart():
            return Kind.INT
        case Constant(value):
            return kind_of(value)
        case _:
            return None
