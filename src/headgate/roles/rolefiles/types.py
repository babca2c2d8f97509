"""The types of roles' arguments as others see them, and values and literals of these types (OASIS 3.2.1, 4.3).

Guarantees: `types_of` gives each role of a rolefile a type for each argument, None where nothing tells, or refuses what
does not unify with both places; a rolefile is inferred once, for all who ask. `conform_argument` is the only way in
from untrusted data: what it returns is of the type it was asked for, or it refuses with `type-mismatch`.
`read_literals` puts in place of each literal of an object type what the function of the type's name makes of it, and
reads text where a time is meant (decision 0033).
Leaves out: how types are found (`inference`), and what is stored (`model.roles`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Final, Literal, TypeAlias, cast

from headgate.decide.constraints import RoleFunction
from headgate.decide.reading import kept_by_identity
from headgate.decide.truth import NotRun
from headgate.lang.literals import read_text
from headgate.lang.rolefile import parse_argument
from headgate.model import expressions as tree
from headgate.model import rolefiles as syntax
from headgate.model.changes import ReinstateRole, RevokeRole
from headgate.model.errors import BadDefinition, BadExpression, HeadgateError, RoleDenied, TypeMismatch
from headgate.model.expressions import Argument, Atom, Condition, Constant, Operand, RoleRef, Variable, plain, rewrite
from headgate.model.limits import MAX_ROLE_ARGUMENTS
from headgate.model.rolefiles import Rolefile, Statement
from headgate.model.roles import letters_of
from headgate.model.values import Kind, brief, conform, kind_of
from headgate.roles.rolefiles.inference import Imported, Inference, Known, Signature, Signatures

Parsers: TypeAlias = Mapping[str, Callable[..., object]]
"""How a literal of an object type is read: by the service's function of that name. Without one it is read as it is."""

NO_PARSERS: Final[Parsers] = {}
_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


def own_types(known: Callable[[str], Rolefile | None]) -> Imported:
    """The types of other services' roles, as far as their own rolefiles tell."""

    @cache
    def types(service: str) -> Signatures:
        other = known(service)
        return Inference(other, service=service).signatures if other is not None else {}

    return lambda service, role: types(service).get(role)


@kept_by_identity
def inferred(rolefile: Rolefile | None) -> Inference:
    """What a rolefile tells of types by itself; kept for those looked at last."""
    return Inference(rolefile or Rolefile())


def types_of(rolefile: Rolefile) -> Signatures:
    """The argument types of each role of a rolefile, as far as it tells itself; refused if it contradicts itself."""
    inferred(rolefile).refuse_clashes()
    return inferred(rolefile).signatures


def describe(rolefile: Rolefile) -> dict[str, list[dict[str, str]]]:
    """The roles of a rolefile with the names and types of their arguments, as JSON can carry them (`gettypes`)."""
    inference, named = inferred(rolefile), _names(rolefile)
    return {
        role: [
            {"name": named.get((role, place), f"argument{place + 1}"), "type": type}
            for place, type in enumerate(inference.described(role))
        ]
        for role in inference.signatures
    }


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
    type: syntax.ArgumentType | None, raw: object, *, written: bool = False, parsers: Parsers = NO_PARSERS
) -> Argument:
    """A raw value as an argument of a type; `written` if all it can be is text, as on the command line."""
    match type:
        case None:
            return _any(raw)
        case syntax.IntegerType():
            return _integer(raw, written)
        case syntax.StringType():
            return conform(Kind.STRING, _text(raw, "a String"))
        case syntax.SetType(alphabet):
            return _set(raw, alphabet)
        case syntax.TimestampType():
            return _timestamp(raw)
        case syntax.ClockType(part):
            return _clock(raw, part, written)
        case syntax.ObjectType(name):
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
    inference = Inference(rolefile, lambda service, role: _told(rolefiles.get(service), role))
    if inference.clashes:  # the checker says what is wrong with it
        return rolefile
    pairs = zip(rolefile.statements, inference.scopes, strict=True)
    return replace(rolefile, statements=tuple(_read(one, scope, inference, functions) for one, scope in pairs))


def _told(rolefile: Rolefile | None, role: str) -> Signature | None:
    """The types of a role that a rolefile tells, if it does not contradict itself."""
    if rolefile is None or inferred(rolefile).clashes:
        return None
    return inferred(rolefile).signatures.get(role)


def _read(
    statement: Statement,
    scope: Mapping[str, Known | None],
    inference: Inference,
    functions: Mapping[str, RoleFunction],
) -> Statement:
    """One statement, of whose variables types are known."""

    def literal(known: Known | None, value: Argument) -> Argument:
        if isinstance(known, syntax.TimestampType | syntax.ClockType) or (
            isinstance(known, syntax.ObjectType) and functions
        ):
            return conform_argument(known, value, parsers=functions)
        return value

    def in_role(ref: RoleRef) -> RoleRef:
        args = list(ref.args)
        for place, (term, known) in enumerate(zip(args, inference.known_of_role(ref.service, ref.role), strict=False)):
            if isinstance(term, Constant):
                args[place] = Constant(literal(known, term.value))
        return replace(ref, args=tuple(args))

    def beside(one: Operand, other: Operand) -> Operand:
        if isinstance(one, Constant) and isinstance(other, Variable):
            return Constant(literal(scope.get(other.name), one.value))
        return one

    def in_atom(atom: Atom) -> Condition:
        match atom:
            case tree.Compare(op, left, right):
                return tree.Compare(op, beside(left, right), beside(right, left))
            case tree.InSet(Variable(name), values):
                return replace(atom, values=tuple(plain(literal(scope.get(name), one)) for one in values))
            case tree.InRange(of, low, high):
                return tree.InRange(beside(beside(of, low), high), beside(low, of), beside(high, of))
            case _:
                return atom

    try:
        read = statement.with_refs(in_role, statement.constraint)
        return replace(read, constraint=rewrite(statement.constraint, in_atom))
    except HeadgateError as error:
        raise BadDefinition(error.message, place=f"line {statement.line}", remedy=error.remedy) from None


# -- arguments of roles ----------------------------------------------------------------------------------------


def conform_arguments(
    rolefile: Rolefile | None, role: str, args: tuple[Argument, ...], functions: Mapping[str, RoleFunction]
) -> tuple[Argument, ...]:
    """Arguments of the types that the role has; None stays open. A role that is not in the rolefile takes any."""
    if len(args) > MAX_ROLE_ARGUMENTS:
        raise RoleDenied(f"a role has at most MAX_ROLE_ARGUMENTS ({MAX_ROLE_ARGUMENTS}) arguments", failure="misuse")
    types = None if rolefile is None else types_of(rolefile).get(role)
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
    types = types_of(rolefile).get(ref.role, ())
    args = list(ref.args)
    for place, (term, type) in enumerate(zip(ref.args, types, strict=False)):
        if isinstance(term, Constant) and isinstance(type, syntax.TimestampType | syntax.ClockType):
            args[place] = Constant(conform_argument(type, term.value))
    return replace(ref, args=tuple(args))


def pattern_of(
    rolefile: Rolefile, request: RevokeRole | ReinstateRole, functions: Mapping[str, RoleFunction]
) -> tuple[Argument | None, ...]:
    """The arguments of a role that are revoked or reinstated; those that are left out at the end are open."""
    size = max((len(one.head.args) for one in rolefile.statements if one.head.role == request.role), default=0)
    given = (*request.args, *(None,) * (size - len(request.args)))
    return conform_arguments(rolefile, request.role, given, functions)
