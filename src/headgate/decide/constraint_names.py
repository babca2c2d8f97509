"""What a constraint names: variables, groups, relations, functions and roles.

Guarantees: syntax alone; nothing is looked up but whether a name is a group or a relation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from headgate.model.rolefiles import (
    Among,
    Apply,
    Asked,
    Between,
    Both,
    ClockOf,
    Combine,
    Compares,
    Constraint,
    Count,
    Either,
    Expression,
    Given,
    Holds,
    Negated,
    OneOf,
    Starred,
    Tests,
    Variable,
)
from headgate.model.state import State


def in_relations(state: State, constraint: Constraint) -> Constraint:
    """A constraint in which `x in R` means the relation of one column, where no group is called so."""
    match constraint:
        case Starred(arg) | Negated(arg):
            return replace(constraint, arg=in_relations(state, arg))
        case Both(args) | Either(args):
            return replace(constraint, args=tuple(in_relations(state, arg) for arg in args))
        case Among(of, name) if name not in state.groups and name in state.relations:
            return Holds(name, (of,))
        case _:
            return constraint


def named(constraint: Constraint) -> frozenset[str]:
    """The groups, relations, functions and roles that a constraint names."""
    match constraint:
        case Starred(arg) | Negated(arg):
            return named(arg)
        case Both(args) | Either(args):
            return frozenset().union(*map(named, args))
        case Compares(_, left, right) | Tests(_, left, right):
            return _named(left) | _named(right)
        case Among(of, group):
            return _named(of) | {group}
        case OneOf(of, _):
            return _named(of)
        case Between(of, low, high):
            return _named(of) | _named(low) | _named(high)
        case Holds(name, args):
            return frozenset({name}).union(*map(_named, args))
        case _:
            assert_never(constraint)


def _named(expression: Expression) -> frozenset[str]:
    match expression:
        case Apply(function, args):
            return frozenset({function}).union(*map(_named, args))
        case Combine(_, left, right):
            return _named(left) | _named(right)
        case ClockOf(_, of):
            return _named(of)
        case Count(of):
            return frozenset({of.role})
        case _:
            return frozenset()


def variables(constraint: Constraint) -> frozenset[str]:
    """The variables of a constraint; `_` is none."""
    match constraint:
        case Starred(arg) | Negated(arg):
            return variables(arg)
        case Both(args) | Either(args):
            return frozenset().union(*map(variables, args))
        case Compares(_, left, right) | Tests(_, left, right):
            return variables_of(left) | variables_of(right)
        case Among(of, _) | OneOf(of, _):
            return variables_of(of)
        case Between(of, low, high):
            return variables_of(of) | variables_of(low) | variables_of(high)
        case Holds(_, args):
            return frozenset().union(*map(variables_of, args))
        case _:
            assert_never(constraint)


def counted_variables(constraint: Constraint) -> frozenset[str]:
    """The variables of the roles that a constraint counts; `_` is none."""
    match constraint:
        case Starred(arg) | Negated(arg):
            return counted_variables(arg)
        case Both(args) | Either(args):
            return frozenset().union(*map(counted_variables, args))
        case Compares(_, left, right) | Tests(_, left, right):
            return _counted(left) | _counted(right)
        case Among(of, _) | OneOf(of, _):
            return _counted(of)
        case Between(of, low, high):
            return _counted(of) | _counted(low) | _counted(high)
        case Holds(_, args):
            return frozenset().union(*map(_counted, args))
        case _:
            assert_never(constraint)


def _counted(expression: Expression) -> frozenset[str]:
    match expression:
        case Count(of):
            return frozenset(arg.name for arg in of.args if isinstance(arg, Variable)) - {"_"}
        case Apply(_, args):
            return frozenset().union(*map(_counted, args))
        case Combine(_, left, right):
            return _counted(left) | _counted(right)
        case ClockOf(_, of):
            return _counted(of)
        case _:
            return frozenset()


def variables_of(expression: Expression) -> frozenset[str]:
    """The variables of an expression; `_` is none. Those that a count leaves open are not its own."""
    match expression:
        case Variable(name):
            return frozenset() if name == "_" else frozenset((name,))
        case Given() | Asked() | Count():
            return frozenset()
        case Apply(_, args):
            return frozenset().union(*map(variables_of, args))
        case Combine(_, left, right):
            return variables_of(left) | variables_of(right)
        case ClockOf(_, of):
            return variables_of(of)
        case _:
            assert_never(expression)
