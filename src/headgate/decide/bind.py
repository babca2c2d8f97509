"""A condition for one subject and one type: `$names` replaced, and comparisons that cannot be made shown as unknown.

Guarantees: the result has the same truth for that subject on every event of the type. An absent subject attribute is
null. What is compared with a value of another kind is unknown (D2), and becomes null in that comparison; it arises
with subject attributes, which have no declared kind, and with a pattern whose author came to govern a type later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headgate.model import conditions as tree
from headgate.model.conditions import Atom, Condition, Constant, Operand, any_of, declared_kind, rewrite
from headgate.model.state import State
from headgate.model.values import Kind, Value, comparable

_UNKNOWN: Final = tree.Compare("=", Constant(None), Constant(None))


def bind(
    condition: Condition, subject: Mapping[str, Value] | None, kinds: Mapping[str, Kind], origin: Constant | None = None
) -> Condition:
    """The condition for one subject, over a type with these attributes; `@origin` stays open unless it is given.

    Without a subject `$names` stay open too: the condition for whoever it may be.
    """

    def put(operand: Operand) -> Operand:
        match operand:
            case tree.Subject(name) if subject is not None:
                return Constant(subject.get(name))
            case tree.Meta("origin") if origin is not None:
                return origin
            case tree.ClockPart(_, of) if declared_kind(of, kinds) not in (Kind.TIMESTAMP, None):
                return Constant(None)
            case _:
                return operand

    def fit(operand: Operand, other: Operand) -> Operand:
        """An operand as it counts beside another: null if the kinds do not compare."""
        bound = put(operand)
        mine, theirs = declared_kind(bound, kinds), declared_kind(put(other), kinds)
        return bound if mine is None or theirs is None or comparable(mine, theirs) else Constant(None)

    def text(operand: Operand) -> Operand:
        bound = put(operand)
        return bound if declared_kind(bound, kinds) in (Kind.STRING, None) else Constant(None)

    def fitted(atom: Atom) -> Condition:
        match atom:
            case tree.Compare(op, left, right):
                return tree.Compare(op, fit(left, right), fit(right, left))
            case tree.InRange():  # each end is a comparison of its own, so a value may fit one and not the other
                return tree.AllOf(tuple(map(fitted, tree.comparisons(atom))))
            case tree.TextMatch() | tree.InGroup():
                return tree.with_operands(atom, text)
            case tree.InSet(operand, values):
                fitting = tuple(v for v in values if fit(Constant(v), operand) != Constant(None))
                if len(fitting) == len(values):
                    return replace(atom, operand=put(operand))
                return any_of(*((tree.InSet(put(operand), fitting),) if fitting else ()), _UNKNOWN)
            case _:
                return tree.with_operands(atom, put)

    return rewrite(condition, fitted)


def in_relations(state: State, constraint: Condition) -> Condition:
    """A constraint in which `x in R` means the relation of one column, where no group is called so."""

    def meant(atom: Atom) -> Condition:
        match atom:
            case tree.InGroup(of, name) if name not in state.groups and name in state.relations:
                return tree.Related(name, (of,))
            case _:
                return atom

    return rewrite(constraint, meant)
