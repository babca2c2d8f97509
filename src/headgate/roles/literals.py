"""Literals of object types, as the service reads them that defines the type (OASIS 3.2.1).

Guarantees: wherever a statement writes a literal for an argument of an object type, or compares a variable of one with
it, the literal is what the function of the type's name makes of it; one that it does not take is refused with its line.
Leaves out: values that come with requests (`types.conform_argument`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headgate.decide.constraints import RoleFunction
from headgate.model.errors import BadDefinition, HeadgateError
from headgate.model.rolefiles import (
    Both,
    Compares,
    Constraint,
    Either,
    Expression,
    Given,
    Negated,
    ObjectType,
    OneOf,
    Rolefile,
    RoleRef,
    Starred,
    Statement,
    Variable,
)
from headgate.roles.types import Signature, conform_argument, infer


def read_literals(
    rolefile: Rolefile, rolefiles: Mapping[str, Rolefile], functions: Mapping[str, RoleFunction]
) -> Rolefile:
    """A rolefile whose literals of object types are as their functions read them."""
    if not functions:
        return rolefile
    try:
        own = infer(rolefile, lambda service, role: _of(rolefiles.get(service), role))
    except HeadgateError:  # the checker says what is wrong with it
        return rolefile
    return replace(rolefile, statements=tuple(_Reading(own, rolefiles, functions).read(s) for s in rolefile.statements))


def _of(rolefile: Rolefile | None, role: str) -> Signature | None:
    if rolefile is None:
        return None
    try:
        return infer(rolefile, lambda _service, _role: None).get(role)
    except HeadgateError:
        return None


class _Reading:
    """One statement, with the object types of its variables."""

    def __init__(
        self, own: Mapping[str, Signature], rolefiles: Mapping[str, Rolefile], functions: Mapping[str, RoleFunction]
    ) -> None:
        self._own = own
        self._rolefiles = rolefiles
        self._functions = functions
        self._of: dict[str, ObjectType] = {}

    def read(self, statement: Statement) -> Statement:
        try:
            return replace(
                statement,
                head=self._role(statement.head),
                credentials=tuple(replace(one, ref=self._role(one.ref)) for one in statement.credentials),
                electors=tuple(replace(one, ref=self._role(one.ref)) for one in statement.electors),
                revokers=tuple(replace(one, ref=self._role(one.ref)) for one in statement.revokers),
                constraint=self._constraint(statement.constraint),
            )
        except HeadgateError as error:
            raise BadDefinition(error.message, place=f"line {statement.line}", remedy=error.remedy) from None

    def _role(self, ref: RoleRef) -> RoleRef:
        found = self._own.get(ref.role) if ref.service is None else _of(self._rolefiles.get(ref.service), ref.role)
        args = list(ref.args)
        for place, (term, type) in enumerate(zip(ref.args, found or (), strict=False)):
            if isinstance(type, ObjectType):
                args[place] = Given(self._literal(type, term.value)) if isinstance(term, Given) else term
                if isinstance(term, Variable):
                    self._of.setdefault(term.name, type)
        return replace(ref, args=tuple(args))

    def _literal(self, type: ObjectType, value: object) -> str:
        return str(conform_argument(type, value, parsers=self._functions))

    def _constraint(self, constraint: Constraint) -> Constraint:
        match constraint:
            case Starred(arg) | Negated(arg):
                return replace(constraint, arg=self._constraint(arg))
            case Both(args) | Either(args):
                return replace(constraint, args=tuple(map(self._constraint, args)))
            case Compares(_, left, right):
                return replace(constraint, left=self._beside(left, right), right=self._beside(right, left))
            case OneOf(Variable(name), values) if name in self._of:
                return replace(constraint, values=tuple(self._literal(self._of[name], one) for one in values))
            case _:
                return constraint

    def _beside(self, one: Expression, other: Expression) -> Expression:
        """A literal that is compared with a variable of an object type."""
        if isinstance(one, Given) and isinstance(other, Variable) and other.name in self._of:
            return Given(self._literal(self._of[other.name], one.value))
        return one
