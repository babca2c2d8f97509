"""Statements with other variables: the same but for names, and made to fit one another.

Guarantees: pure; `canonical` gives two statements the same form exactly if they differ in the names of variables only.
`_` is a new variable wherever it stands, and never stands for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from headgate.model.conditions import (
    Condition,
    Constant,
    Count,
    Operand,
    RoleRef,
    Term,
    Variable,
    rewrite_operand,
    rewrite_operands,
)
from headgate.model.rolefiles import EventEntry, Statement

Renamed: TypeAlias = Callable[[Variable], Term]


def in_term(term: Term, to: Renamed) -> Term:
    """A term with other variables."""
    return to(term) if isinstance(term, Variable) else term


def in_role(ref: RoleRef, to: Renamed) -> RoleRef:
    """A reference with other variables."""
    instance = in_term(ref.instance, to) if ref.instance is not None else None
    return replace(ref, args=tuple(in_term(arg, to) for arg in ref.args), instance=instance)


def in_constraint(c: Condition, to: Renamed) -> Condition:
    """A constraint with other variables."""

    def renamed(operand: Operand) -> Operand:
        match operand:
            case Variable():
                return to(operand)
            case Count(of):
                return Count(in_role(of, to))
            case _:
                return operand

    return rewrite_operands(c, lambda operand: rewrite_operand(operand, renamed))


def in_statement(statement: Statement, to: Renamed) -> Statement:
    """A statement with other variables."""
    return replace(
        statement,
        head=in_role(statement.head, to),
        credentials=tuple(replace(one, ref=in_role(one.ref, to)) for one in statement.credentials),
        electors=tuple(replace(one, ref=in_role(one.ref, to)) for one in statement.electors),
        revokers=tuple(replace(one, ref=in_role(one.ref, to)) for one in statement.revokers),
        constraint=in_constraint(statement.constraint, to),
    )


def canonical(statement: Statement) -> Statement:
    """The statement with its variables called by the order in which they first stand."""
    return in_statement(replace(statement, asked=()), numbered())


def canonical_entry(entry: EventEntry) -> EventEntry:
    """The entry with its variables called by the order in which they first stand."""
    to = numbered()
    args = tuple(_variable(to(arg)) if isinstance(arg, Variable) else arg for arg in entry.event.args)
    return replace(
        entry,
        event=replace(entry.event, args=args),
        credentials=tuple(in_role(ref, to) for ref in entry.credentials),
        constraint=in_constraint(entry.constraint, to),
    )


def _variable(term: Term) -> Variable:
    assert isinstance(term, Variable)
    return term


def numbered(prefix: str = "") -> Renamed:
    """Calls variables by the order in which it meets them."""
    met: dict[str, Variable] = {}

    def to(variable: Variable) -> Term:
        if variable.name == "_":
            return variable
        return met.setdefault(variable.name, Variable(f"{prefix}{len(met)}"))

    return to


def by(found: Mapping[str, Term]) -> Renamed:
    """Puts what was found in the place of variables, following chains."""

    def to(variable: Variable) -> Term:
        term: Term = variable
        for _ in range(len(found) + 1):
            if not isinstance(term, Variable) or term.name not in found:
                break
            term = found[term.name]
        return term

    return to


def unified(a: tuple[Term, ...], b: tuple[Term, ...], substitution: Mapping[str, Term]) -> dict[str, Term] | None:
    """What variables must mean for two lists of terms to be the same; None if they cannot be."""
    made = dict(substitution)
    if len(a) != len(b):
        return made if not a else None  # a reference without arguments leaves them open
    for left, right in zip(a, b, strict=True):
        term, other = in_term(left, by(made)), in_term(right, by(made))
        if term == other or Variable("_") in (term, other):
            continue
        if isinstance(term, Variable):
            made[term.name] = other
        elif isinstance(other, Variable):
            made[other.name] = term
        elif isinstance(term, Constant) and isinstance(other, Constant):
            return None  # what is asked of the request, on the other hand, may be anything
    return made


def may_give(head: RoleRef, ref: RoleRef) -> bool:
    """Could a membership by this head be what a reference asks for?"""
    if len(head.args) < len(ref.args):
        return False
    given = head.args[: len(ref.args)]  # what a reference leaves out may be anything
    if not all(map(_may_be, given, ref.args)):
        return False
    to = numbered("head ")
    return unified(tuple(in_term(arg, to) for arg in given), ref.args, {}) is not None


def _may_be(a: Term, b: Term) -> bool:
    return a == b or not (isinstance(a, Constant) and isinstance(b, Constant))
