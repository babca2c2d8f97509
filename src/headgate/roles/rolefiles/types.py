"""The types of roles' arguments as others see them, and values and literals of these types (OASIS 3.2.1, 4.3).

Guarantees: `infer` gives each role of a rolefile a type for each argument, None where nothing tells, or refuses what
does not unify with both places. `conform_argument` is the only way in from untrusted data: what it returns is of the
type it was asked for, or it refuses with `type-mismatch`. `read_literals` puts in place of each literal of an object
type what the function of the type's name makes of it, and reads text where a time is meant (decision 0033).
Leaves out: how types are found (`inference`), and what is stored (`model.arguments`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Final, Literal, TypeAlias, cast

from headgate.decide.constraints import RoleFunction
from headgate.decide.reading import Readings, kept_by_identity
from headgate.decide.truth import NotRun
from headgate.lang.literals import read_text
from headgate.lang.render import render_type
from headgate.lang.rolefile import parse_argument
from headgate.model import expressions as tree
from headgate.model.changes import ReinstateRole, RevokeRole
from headgate.model.errors import BadDefinition, BadExpression, HeadgateError, RoleDenied, TypeMismatch
from headgate.model.expressions import Argument, Atom, Condition, Constant, Operand, RoleRef, Variable, rewrite
from headgate.model.limits import MAX_ROLE_ARGUMENTS
from headgate.model.rolefiles import (
    ArgumentType,
    ClockType,
    IntegerType,
    ObjectType,
    Rolefile,
    SetType,
    Statement,
    StringType,
    TimestampType,
)
from headgate.model.roles import letters_of
from headgate.model.values import Kind, Value, brief, conform, kind_of
from headgate.roles.rolefiles.inference import (
    CredentialReadings,
    Imported,
    Inference,
    Known,
    LetterSet,
    Textual,
    time_type,
    words,
)

Signature: TypeAlias = tuple[ArgumentType | None, ...]
Signatures: TypeAlias = Mapping[str, Signature]
"""The argument types of each role; None is open."""

Parsers: TypeAlias = Mapping[str, Callable[..., object]]
"""How a literal of an object type is read: by the service's function of that name. Without one it is read as it is."""

NO_PARSERS: Final[Parsers] = {}
_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


def _unknown(_service: str, _role: str) -> None:
    return None


def infer(rolefile: Rolefile, imported: Imported, service: str | None = None) -> Signatures:
    """The argument types of each role of a rolefile; `imported` knows those of other services."""
    inference = Inference(rolefile, imported, service)
    for clash in inference.clashes:
        raise BadDefinition(clash.message, place=f"line {clash.line}", remedy=REMEDIES[clash.code])
    return signatures(rolefile, inference)


def own_types(known: Callable[[str], Rolefile | None]) -> Imported:
    """The types of other services' roles, as far as their own rolefiles tell."""

    @cache
    def types(service: str) -> Mapping[str, Signature]:
        other = known(service)
        return signatures(other, Inference(other, _unknown, service)) if other is not None else {}

    return lambda service, role: types(service).get(role)


def readings(rolefile: Rolefile | None) -> Readings:
    """How the columns of relations are read that a rolefile compares with times; kept for those looked at last."""
    return {} if rolefile is None else _read(rolefile)[0]


def credential_readings(rolefile: Rolefile) -> CredentialReadings:
    """How a rolefile reads the arguments of other services' roles that it compares with times."""
    return _read(rolefile)[1]


@kept_by_identity
def _read(rolefile: Rolefile) -> tuple[Readings, CredentialReadings]:
    inferred = Inference(rolefile, _unknown)
    return inferred.readings(), inferred.credential_readings()


REMEDIES: Final[Mapping[str, str]] = {
    "types": "use another variable, or declare the argument with `def`",
    "sums": "add whole numbers; to a timestamp, seconds",
    "times": "write a moment like `'2026-01-01T09:00:00Z'`, a time of day like `'08:00'` and a day like `'Mon'`",
    "arity": "give a role the arguments that it is defined with; a reference may leave out the last ones",
}
"""What to do about a clash."""


def signatures(rolefile: Rolefile, inference: Inference) -> Signatures:
    """The types that an inference found."""
    closed = _closed_sets(rolefile)
    return {
        role: tuple(_shown(inference.known(cell), (role, place) in closed) for place, cell in enumerate(cells))
        for (service, role), (cells, _) in inference.roles.items()
        if service is None
    }


def _closed_sets(rolefile: Rolefile) -> set[tuple[str, int]]:
    """The arguments for which every statement gives a set that is written out: only there are all letters known."""
    given: dict[tuple[str, int], bool] = {}
    for statement in rolefile.statements:
        for place, term in enumerate(statement.head.args):
            written = isinstance(term, Constant) and isinstance(term.value, frozenset)
            given[statement.head.role, place] = given.get((statement.head.role, place), True) and written
    return {key for key, written in given.items() if written}


def _shown(known: object, closed: bool) -> ArgumentType | None:
    match known:
        case IntegerType() | StringType() | SetType() | ObjectType() | TimestampType() | ClockType():
            return known
        case LetterSet(letters) if closed and letters:
            return SetType("".join(sorted(letters)))
        case _:
            return None


def describe(rolefile: Rolefile, imported: Imported = _unknown) -> dict[str, list[dict[str, str]]]:
    """The roles of a rolefile with the names and types of their arguments, as JSON can carry them (`gettypes`)."""
    inference = Inference(rolefile, imported)
    types = signatures(rolefile, inference)
    named = _names(rolefile)
    described: dict[str, list[dict[str, str]]] = {}
    for role, signature in types.items():
        cells, _ = inference.roles[None, role]
        described[role] = [
            {
                "name": named.get((role, place), f"argument{place + 1}"),
                "type": render_type(type) if type is not None else _open(inference.known(cells[place])),
            }
            for place, type in enumerate(signature)
        ]
    return described


def _open(known: object) -> str:
    return words(known) if isinstance(known, LetterSet | Textual) else "any"


def _names(rolefile: Rolefile) -> dict[tuple[str, int], str]:
    """What arguments are called: as declared, else as the first statement that has a variable there."""
    named: dict[tuple[str, int], str] = {}
    for declaration in rolefile.declarations:
        for position, name in enumerate(declaration.parameters):
            named.setdefault((declaration.role, position), name)
    for statement in rolefile.statements:
        for position, term in enumerate(statement.head.args):
            if isinstance(term, Variable) and term.name != "_":
                named.setdefault((statement.head.role, position), term.name)
    return named


# -- raw values -----------------------------------------------------------------------------------------------


def conform_argument(
    type: ArgumentType | None, raw: object, *, written: bool = False, parsers: Parsers = NO_PARSERS
) -> Argument:
    """A raw value as an argument of a type; `written` if all it can be is text, as on the command line."""
    match type:
        case None:
            return _any(raw)
        case IntegerType():
            return _integer(raw, written)
        case StringType():
            return conform(Kind.STRING, _text(raw, "a String"))
        case SetType(alphabet):
            return _set(raw, alphabet)
        case TimestampType():
            return _timestamp(raw)
        case ClockType(part):
            return _clock(raw, part, written)
        case ObjectType(name):
            return _object(_text(raw, f"of type `{name}`"), name, parsers)


def _timestamp(raw: object) -> Argument:
    if isinstance(raw, bool) or not isinstance(raw, str | int | datetime):  # a whole number is seconds since 1970
        raise TypeMismatch(f"`{brief(raw)}` is not a Timestamp", remedy="write it like `'2026-01-01T09:00:00Z'`")
    try:
        parsed = parse_argument(raw) if isinstance(raw, str) and raw.startswith("timestamp") else raw
    except BadExpression as error:
        raise TypeMismatch(error.message, remedy=error.remedy) from None
    return conform(Kind.TIMESTAMP, parsed)


def _clock(raw: object, part: Literal["timeofday", "weekday"], written: bool) -> Argument:
    if not isinstance(raw, str) or (written and _DIGITS.fullmatch(raw)):
        return _integer(raw, written)
    try:
        return read_text(part, raw)
    except BadExpression as error:
        raise TypeMismatch(error.message, remedy=error.remedy) from None


def _integer(raw: object, written: bool) -> Argument:
    if written and isinstance(raw, str) and _DIGITS.fullmatch(raw):
        raw = int(raw)
    if raw is None or isinstance(raw, bool) or not isinstance(raw, int):
        raise TypeMismatch(f"`{brief(raw)}` is not an Integer")
    return conform(Kind.INT, raw)


def _text(raw: object, what: str) -> str:
    if not isinstance(raw, str):
        raise TypeMismatch(f"`{brief(raw)}` is not {what}", remedy="write it in quotes")
    return raw


def _set(raw: object, alphabet: str) -> frozenset[str]:
    if isinstance(raw, str):
        raw = list(raw[1:-1].strip() if raw.startswith("{") and raw.endswith("}") else raw)
    letters = _letters(raw)
    if letters is None:
        raise TypeMismatch(f"`{brief(raw)}` is not a set of `{alphabet}`", remedy="write it like `{rw}`")
    for letter in sorted(letters - set(alphabet)):
        raise TypeMismatch(f"`{letter}` is not one of `{{{alphabet}}}`")
    return letters


def _letters(raw: object) -> frozenset[str] | None:
    """The letters of a set: one by one, or what YAML makes of `{rw}` and of `{}`."""
    match raw:
        case list() | tuple() | set() | frozenset():
            return letters_of(raw)
        case dict() if len(raw) <= 1 and all(isinstance(key, str) and value is None for key, value in raw.items()):
            return letters_of("".join(raw))
        case _:
            return None


def _object(text: str, name: str, parsers: Parsers) -> str:
    parsed: object = text
    if name in parsers and not isinstance(parsers[name], NotRun):
        try:
            parsed = parsers[name](text)
        except Exception as error:  # noqa: BLE001 - a service's own code may fail in any way: then it is no literal
            raise TypeMismatch(f"`{brief(text)}` is not of type `{name}`: {brief(str(error))}") from None
    if not isinstance(parsed, str):
        raise TypeMismatch(f"`{name}` made `{brief(parsed)}` of `{brief(text)}`, which is not text")
    conform(Kind.STRING, parsed)
    return parsed


def _any(raw: object) -> Argument:
    """A value of whatever kind it is; letters one by one are a set."""
    match raw:
        case bool():
            return raw
        case int() | float() | str() | datetime() | bytes():
            return conform(cast(Kind, kind_of(raw)), raw)
    letters = _letters(raw)
    if letters is None:
        raise TypeMismatch(f"`{brief(raw)}` is no argument of a role", remedy="write a value such as `'dm'` or `3`")
    return letters


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
        return infer(rolefile, _unknown).get(role)
    except HeadgateError:
        return None


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
            read = statement.with_refs(self._role, statement.constraint)  # which tells the types of variables
            return replace(read, constraint=rewrite(statement.constraint, self._atom))
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
        return tuple(
            time_type(times[place]) if one is None and place in times else one for place, one in enumerate(told)
        )

    def _literal(self, type: _Read, value: Argument) -> Argument:
        if isinstance(type, ObjectType) and not self._functions:
            return value
        return conform_argument(type, value, parsers=self._functions)

    def _atom(self, atom: Atom) -> Condition:
        match atom:
            case tree.Compare(op, left, right):
                return tree.Compare(op, self._beside(left, right), self._beside(right, left))
            case tree.InSet(Variable(name), values) if name in self._of:
                made = (self._literal(self._of[name], one) for one in values)
                return replace(atom, values=tuple(cast(Value, one) for one in made))
            case tree.InRange(of, low, high):
                whole = self._beside(self._beside(of, low), high)
                return tree.InRange(whole, self._beside(low, of), self._beside(high, of))
            case _:
                return atom

    def _beside(self, one: Operand, other: Operand) -> Operand:
        """A literal that is compared with a variable of an object type, or of a time."""
        if isinstance(one, Constant) and isinstance(other, Variable) and other.name in self._of:
            return Constant(self._literal(self._of[other.name], one.value))
        return one


# -- arguments of roles ----------------------------------------------------------------------------------------


def conform_arguments(
    rolefile: Rolefile | None, role: str, args: tuple[Argument, ...], functions: Mapping[str, RoleFunction]
) -> tuple[Argument, ...]:
    """Arguments of the types that the role has; None stays open. A role that is not in the rolefile takes any."""
    if len(args) > MAX_ROLE_ARGUMENTS:
        raise RoleDenied(f"a role has at most MAX_ROLE_ARGUMENTS ({MAX_ROLE_ARGUMENTS}) arguments", failure="misuse")
    types = None if rolefile is None else infer(rolefile, _unknown).get(role)
    if types is None:
        return tuple(None if arg is None else conform_argument(None, arg) for arg in args)
    if len(types) != len(args):
        raise RoleDenied(f"`{brief(role)}` has {len(types)} arguments, not {len(args)}", failure="misuse")
    pairs = zip(types, args, strict=True)
    return tuple(None if arg is None else conform_argument(type, arg, parsers=functions) for type, arg in pairs)


def with_times(ref: RoleRef, rolefile: Rolefile | None) -> RoleRef:
    """A role that someone names, whose arguments in text are times where its rolefile says so."""
    if rolefile is None or not any(isinstance(term, Constant) for term in ref.args):
        return ref
    types = infer(rolefile, _unknown).get(ref.role, ())
    args = list(ref.args)
    for place, (term, type) in enumerate(zip(ref.args, types, strict=False)):
        if isinstance(term, Constant) and isinstance(type, TimestampType | ClockType):
            args[place] = Constant(conform_argument(type, term.value))
    return replace(ref, args=tuple(args))


def pattern_of(
    rolefile: Rolefile, request: RevokeRole | ReinstateRole, functions: Mapping[str, RoleFunction]
) -> tuple[Argument | None, ...]:
    """The arguments of a role that are revoked or reinstated; those that are left out at the end are open."""
    size = max((len(one.head.args) for one in rolefile.statements if one.head.role == request.role), default=0)
    given = (*request.args, *(None,) * (size - len(request.args)))
    return conform_arguments(rolefile, request.role, given, functions)
