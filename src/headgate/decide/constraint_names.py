"""What a constraint names: variables, groups, relations, functions and roles.

Guarantees: syntax alone; nothing is looked up but whether a name is a group or a relation.
"""

from __future__ import annotations

from headgate.model.conditions import (
    Apply,
    Atom,
    Condition,
    Count,
    InGroup,
    Operand,
    Related,
    RoleRef,
    Variable,
    atoms,
    looked_at,
    rewrite,
    within,
)
from headgate.model.state import State


def in_relations(state: State, constraint: Condition) -> Condition:
    """A constraint in which `x in R` means the relation of one column, where no group is called so."""

    def meant(atom: Atom) -> Condition:
        match atom:
            case InGroup(of, name) if name not in state.groups and name in state.relations:
                return Related(name, (of,))
            case _:
                return atom

    return rewrite(constraint, meant)


def named(constraint: Condition) -> frozenset[str]:
    """The groups, relations, functions and roles that a constraint names."""
    names: set[str] = set()
    for atom in atoms(constraint):
        match atom:
            case InGroup(_, name) | Related(name):
                names.add(name)
    for operand in looked_at(constraint):
        match operand:
            case Apply(name) | Count(RoleRef(name)):
                names.add(name)
    return frozenset(names)


def variables(constraint: Condition) -> frozenset[str]:
    """The variables of a constraint; `_` is none."""
    return frozenset(one.name for one in looked_at(constraint) if isinstance(one, Variable)) - {"_"}


def variables_of(expression: Operand) -> frozenset[str]:
    """The variables of an expression; `_` is none. Those that a count leaves open are not its own."""
    return frozenset(one.name for one in within(expression) if isinstance(one, Variable)) - {"_"}


def counted_variables(constraint: Condition) -> frozenset[str]:
    """The variables of the roles that a constraint counts; `_` is none."""
    counted = (operand.of for operand in looked_at(constraint) if isinstance(operand, Count))
    return frozenset(term.name for ref in counted for term in ref.args if isinstance(term, Variable)) - {"_"}
