"""Literals of object types, as the service reads them that defines the type (OASIS 3.2.1), and of times as they are.

Guarantees: wherever a statement writes a literal for an argument of an object type, or compares a variable of one with
it, the literal is what the function of the type's name makes of it; one that it does not take is refused with its line.
Likewise text for an argument that is a moment, a time of day or a day of the week is what it says (decision 0033).
Leaves out: values that come with requests (`types.conform_argument`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias, cast

from headgate.decide.constraints import RoleFunction
from headgate.lang.clock import Reading
from headgate.model.conditions import (
    Argument,
    Atom,
    Compare,
    Condition,
    Constant,
    InRange,
    InSet,
    Operand,
    RoleRef,
    Variable,
    rewrite,
)
from headgate.model.errors import BadDefinition, HeadgateError
from headgate.model.rolefiles import ClockType, ObjectType, Rolefile, Statement, TimestampType
from headgate.model.values import Value
from headgate.roles.rolefiles.inference import CredentialReadings, Inference, Known
from headgate.roles.rolefiles.types import Signature, conform_argument, infer, signatures


def read_literals(
    rolefile: Rolefile, rolefiles: Mapping[str, Rolefile], functions: Mapping[str, RoleFunction]
) -> Rolefile:
    """A rolefile whose literals of object types are as their functions read them, and those of times as they say."""
    inference = Inference(rolefile, lambda service, role: _of(rolefiles.get(service), role))
    if inference.clashes:  # the checker says what is wrong with it
        return rolefile
    own = signatures(rolefile, inference)
    times = inference.credential_readings()
    statements = (
        _Reading(own, rolefiles, functions, scope, times).read(one)
        for one, scope in zip(rolefile.statements, inference.scopes, strict=True)
    )
    return replace(rolefile, statements=tuple(statements))


def _of(rolefile: Rolefile | None, role: str) -> Signature | None:
    if rolefile is None:
        return None
    try:
        return infer(rolefile, lambda _service, _role: None).get(role)
    except HeadgateError:
        return None


def _time(reading: Reading) -> TimestampType | ClockType:
    return TimestampType() if reading == "timestamp" else ClockType(reading)


_Read: TypeAlias = ObjectType | TimestampType | ClockType
"""A type whose literals are read."""


class _Reading:
    """One statement, with the object types of its variables."""

    def __init__(
        self,
        own: Mapping[str, Signature],
        rolefiles: Mapping[str, Rolefile],
        functions: Mapping[str, RoleFunction],
        scope: Mapping[str, Known | None],
        times: CredentialReadings,
    ) -> None:
        self._own = own
        self._rolefiles = rolefiles
        self._functions = functions
        self._times = times
        self._of: dict[str, _Read] = {
            name: type for name, type in scope.items() if isinstance(type, TimestampType | ClockType)
        }

    def read(self, statement: Statement) -> Statement:
        try:
            return replace(
                statement,
                head=self._role(statement.head),
                credentials=tuple(replace(one, ref=self._role(one.ref)) for one in statement.credentials),
                electors=tuple(replace(one, ref=self._role(one.ref)) for one in statement.electors),
                revokers=tuple(replace(one, ref=self._role(one.ref)) for one in statement.revokers),
                constraint=rewrite(statement.constraint, self._atom),
            )
        except HeadgateError as error:
            raise BadDefinition(error.message, place=f"line {statement.line}", remedy=error.remedy) from None

    def _role(self, ref: RoleRef) -> RoleRef:
        args = list(ref.args)
        for place, (term, type) in enumerate(zip(ref.args, self._types(ref), strict=False)):
            if isinstance(type, ObjectType | TimestampType | ClockType):
                args[place] = Constant(self._literal(type, term.value)) if isinstance(term, Constant) else term
                if isinstance(term, Variable):
                    self._of.setdefault(term.name, type)
        return replace(ref, args=tuple(args))

    def _types(self, ref: RoleRef) -> Signature:
        """The types of a role's arguments; of another service's that does not tell, those that it is compared with."""
        if ref.service is None:
            return self._own.get(ref.role, ())
        told = _of(self._rolefiles.get(ref.service), ref.role) or (None,) * len(ref.args)
        times = self._times.get((ref.service, ref.role), {})
        return tuple(_time(times[place]) if one is None and place in times else one for place, one in enumerate(told))

    def _literal(self, type: _Read, value: Argument) -> Argument:
        if isinstance(type, ObjectType) and not self._functions:
            return value
        return conform_argument(type, value, parsers=self._functions)

    def _atom(self, atom: Atom) -> Condition:
        match atom:
            case Compare(op, left, right):
                return Compare(op, self._beside(left, right), self._beside(right, left))
            case InSet(Variable(name), values) if name in self._of:
                made = (self._literal(self._of[name], one) for one in values)
                return replace(atom, values=tuple(cast(Value, one) for one in made))
            case InRange(of, low, high):
                whole = self._beside(self._beside(of, low), high)
                return InRange(whole, self._beside(low, of), self._beside(high, of))
            case _:
                return atom

    def _beside(self, one: Operand, other: Operand) -> Operand:
        """A literal that is compared with a variable of an object type, or of a time."""
        if isinstance(one, Constant) and isinstance(other, Variable) and other.name in self._of:
            return Constant(self._literal(self._of[other.name], one.value))
        return one
