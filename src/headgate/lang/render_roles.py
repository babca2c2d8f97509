"""From the syntax of rolefiles and event policy to their text.

Guarantees: for every tree, either `parse(render(t)) == t` (lines of statements aside) or it is refused with
`bad-definition`. Refused is what the grammar cannot give: a role, service, parameter or object type that is no plain
name; an instance without a service; an object type called as one of the language's own; null, and numbers that are
not finite; sets of anything but letters; text beside the clock or a part of it; a choice of nothing; an unknown time
zone; stars in event policy; and what is past a limit. ASCII wherever names and texts are.
Leaves out: layout. A statement is one line, but for line breaks inside quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, assert_never

from headgate.lang.clock import clock_text, reading_beside
from headgate.lang.reading import RESERVED, is_zone
from headgate.lang.render import render_operand
from headgate.model.conditions import (
    TRUE,
    AllOf,
    AnyOf,
    Apply,
    Argument,
    Attribute,
    ClockPart,
    Combine,
    Compare,
    Condition,
    Constant,
    Count,
    InGroup,
    InRange,
    InSet,
    IsNull,
    Meta,
    Not,
    Operand,
    Predicate,
    Related,
    RoleRef,
    Starred,
    Subject,
    Term,
    TextMatch,
    Variable,
    foreign,
    has_star,
)
from headgate.model.errors import BadDefinition
from headgate.model.limits import (
    MAX_CREDENTIALS,
    MAX_EXPRESSION_DEPTH,
    MAX_NAME_CHARS,
    MAX_ROLE_ARGUMENTS,
    MAX_SET_LETTERS,
    MAX_STATEMENTS,
)
from headgate.model.rolefiles import (
    ArgumentType,
    ClockType,
    Declaration,
    EventEntry,
    EventPolicy,
    IntegerType,
    ObjectType,
    Rolefile,
    SetType,
    Statement,
    StringType,
    TimestampType,
)
from headgate.model.values import brief

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LETTER: Final = re.compile(r"[^\W\d_]")
_EVENT: Final = re.compile(r"[^\W\d][\w\-]*(?:\.[^\W\d][\w\-]*)*")
_BARE_GROUP: Final = re.compile(r"[A-Za-z_]\w*(?:[\-.]\w+)*", re.ASCII)
_CALLED: Final = frozenset({"count", "timeofday", "weekday"})
"""Words that mean themselves before a parenthesis."""
_TYPES: Final = frozenset({"integer", "string", "timestamp", "timeofday", "weekday"})
"""Words that name a type of the language, in any case."""
_ORDERINGS: Final = frozenset({"=", "!=", "<", "<=", ">", ">="})


class _Binding(IntEnum):
    """How tightly a connective binds; a part that binds less than its place asks gets parentheses."""

    OR = 0
    AND = 1
    NOT = 2


# -- rolefiles and event policy -------------------------------------------------------------------------------


def render_rolefile(rolefile: Rolefile) -> str:
    """The text of a rolefile: imports, audits, declarations, statements, one a line."""
    lines = [f"import {_plain('service', one.service)}.{_plain('type', one.name)}" for one in rolefile.imports]
    lines += [f"audit {', '.join(_plain('role', name) for name in one.roles)}" for one in rolefile.audits]
    lines += [render_declaration(declaration) for declaration in rolefile.declarations]
    lines += [render_statement(statement) for statement in rolefile.statements]
    _at_most(len(lines), MAX_STATEMENTS, "MAX_STATEMENTS", "statements")
    return "".join(f"{line}\n" for line in lines)


def render_declaration(declaration: Declaration) -> str:
    """`def Member(u) u : userid`."""
    _at_most(len(declaration.parameters), MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
    if len(dict(declaration.types)) != len(declaration.types):
        raise BadDefinition(f"an argument of `{brief(declaration.role)}` is given a type twice")
    names = ", ".join(_plain("parameter", name) for name in declaration.parameters)
    types = "".join(f" {name} : {render_type(type)}" for name, type in declaration.types)
    return f"def {_plain('role', declaration.role)}{f'({names})' if names else ''}{types}"


def render_type(type: ArgumentType) -> str:
    """`Integer`, `String`, `{rwx}` or `Login.userid`."""
    match type:
        case IntegerType():
            return "Integer"
        case StringType():
            return "String"
        case TimestampType():
            return "Timestamp"
        case ClockType(part):
            return "TimeOfDay" if part == "timeofday" else "Weekday"
        case SetType(letters):
            return f"{{{_letters(letters)}}}"
        case ObjectType(name, None) if name.lower() in _TYPES:
            raise BadDefinition(f"`{name}` is no name of an object type")
        case ObjectType(name, service):
            return f"{_service(service)}{_plain('type', name)}"


def render_statement(statement: Statement) -> str:
    """`Member(u) <- Login.LoggedOn(u, h)* <|* Chair |>* Chair : (u in staff)*`."""
    _at_most(len(statement.credentials), MAX_CREDENTIALS, "MAX_CREDENTIALS", "credentials")
    _at_most(len(statement.electors), MAX_CREDENTIALS, "MAX_CREDENTIALS", "electors")
    _at_most(len(statement.revokers), MAX_CREDENTIALS, "MAX_CREDENTIALS", "revokers")
    parts = [_head(statement), "<-"]
    parts += _joined(render_role(one.ref) + _star(one.starred) for one in statement.credentials)
    for one in statement.electors:
        parts.append(f"<|{_star(one.wish)} {render_role(one.ref)}{_star(one.starred)}")
    parts += [f"|>{_star(one.starred)} {render_role(one.ref)}" for one in statement.revokers]
    return " ".join(parts + _after_colon(statement.constraint))


def _head(statement: Statement) -> str:
    args = statement.head.args
    _at_most(len(args), MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
    shown = [f"{'?' if place in statement.asked else ''}{render_expression(arg)}" for place, arg in enumerate(args)]
    return f"{_plain('role', statement.head.role)}{'(' + ', '.join(shown) + ')' if shown else ''}"


def render_event_policy(policy: EventPolicy) -> str:
    """The text of event policy, an entry a line."""
    _at_most(len(policy.entries), MAX_STATEMENTS, "MAX_STATEMENTS", "entries")
    return "".join(f"{render_entry(entry)}\n" for entry in policy.entries)


def render_entry(entry: EventEntry) -> str:
    """`-Seen(u, r) <= Login.LoggedOn(s, h) : u in staff`."""
    _at_most(len(entry.credentials), MAX_CREDENTIALS, "MAX_CREDENTIALS", "credentials")
    if has_star(entry.constraint):
        raise BadDefinition("event policy has no `*`", remedy="what it gives ends with the credential anyway")
    # Two dashes in a row begin a comment.
    name = entry.event.type
    plain = _EVENT.fullmatch(name) and "--" not in name
    event = f"{_named(name) if plain else _quoted('`', _named(name))}{_arguments(entry.event.args)}"
    parts = [f"{'-' if entry.negative else ''}{event}", "<=", *_joined(map(render_role, entry.credentials))]
    return " ".join(parts + _after_colon(entry.constraint))


def render_role(ref: RoleRef) -> str:
    """`Member(u)`, `Login.LoggedOn(u, h)`, `Doc['thesis'].Author`."""
    if ref.instance is not None and ref.service is None:
        raise BadDefinition(f"`{brief(ref.role)}` has an instance but no service", remedy="name the service")
    instance = f"[{render_expression(ref.instance)}]" if ref.instance is not None else ""
    service = f"{_plain('service', ref.service)}{instance}." if ref.service is not None else ""
    return f"{service}{_plain('role', ref.role)}{_arguments(ref.args)}"


def render_membership(service: str, instance: str, role: str, args: Iterable[Argument | None]) -> str:
    """`Conf.Member('dm')`, `Doc['thesis'].Author`; the instance `''` is left out, and an open argument is `_`."""
    place = Constant(instance) if instance else None
    terms = tuple(Variable("_") if arg is None else Constant(arg) for arg in args)
    return render_role(RoleRef(role, terms, service, place))


def render_argument(value: Argument) -> str:
    """`'dm'`, `3`, `{rw}`."""
    if isinstance(value, frozenset):
        return f"{{{_letters(''.join(sorted(map(_letter, value))))}}}"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise BadDefinition(f"`{value}` is no constant")
    return render_operand(Constant(value))


# -- constraints ----------------------------------------------------------------------------------------------


def render_constraint(constraint: Condition) -> str:
    """What stands after the `:`."""
    return _constraint(constraint, _Binding.OR, MAX_EXPRESSION_DEPTH)


def render_expression(expression: Operand) -> str:
    """`x + 1`, `creator(d)`, `count(Member(_))`."""
    return _expression(expression, MAX_EXPRESSION_DEPTH)


def _constraint(c: Condition, binding: _Binding, room: int) -> str:
    match c:
        case AllOf(()):
            return "true"
        case AnyOf(()):
            return "false"
        case AllOf(args):
            joined = " and ".join(_constraint(arg, _Binding.NOT, _less(room)) for arg in args)
            return joined if binding <= _Binding.AND else f"({joined})"
        case AnyOf(args):
            joined = " or ".join(_constraint(arg, _Binding.AND, _less(room)) for arg in args)
            return joined if binding <= _Binding.OR else f"({joined})"
        case Not(arg):
            return f"not {_constraint(arg, _Binding.NOT, _less(room))}"
        case Starred(Related() as atom):
            return f"{_constraint(atom, _Binding.NOT, _less(room))}*"
        case Starred(arg):
            return f"({_constraint(arg, _Binding.OR, _less(room))})*"
        case Related(name, args):
            return _call(name, args, _less(room))
        case IsNull() | Predicate():
            raise foreign(c)
        case _:
            return _comparison(c, _less(room))


def _comparison(c: Compare | InGroup | InRange | InSet | TextMatch, room: int) -> str:
    match c:
        case Compare(op, left, right) if op in _ORDERINGS:
            return f"{_beside(left, room, right)} {op} {_beside(right, room, left)}"
        case Compare(op, left, right) | TextMatch(op, left, right):
            return f"{_expression(left, room)} {op} {_expression(right, room)}"
        case InGroup(of, group):
            return f"{_expression(of, room)} in {_group(group)}"
        case InRange(of, low, high):
            ends = (_ended(end, _beside(end, room, of)) for end in (low, high))
            return f"{_beside(of, room, low, high)} in {'..'.join(ends)}"
        case InSet(of, values):
            if any(isinstance(value, frozenset) for value in values):
                raise BadDefinition("a choice is of plain values, not of sets")
            return f"{_expression(of, room)} in {{{', '.join(_beside(Constant(v), room, of) for v in values)}}}"


def _expression(e: Operand, room: int) -> str:
    match e:
        case Variable(name):
            return render_operand(Attribute(_named(name)))
        case Constant(value):
            return render_argument(value)
        case Meta(name):
            return f"@{name}"
        case Apply(function, args):
            return _call(function, args, _less(room))
        case Count(of):
            return f"count({render_role(of)})"
        case Combine(op, left, right):
            for side in (left, right):
                if op in ("+", "-") and isinstance(side, Constant) and isinstance(side.value, str):
                    raise BadDefinition(f"the text `{brief(side.value)}` stands in a sum", remedy="give what it means")
            second = _expression(right, _less(room))
            return f"{_expression(left, _less(room))} {op} {_ended(right, second)}"
        case ClockPart(part, of, zone):
            if not is_zone(zone):
                raise BadDefinition(f"there is no time zone `{brief(zone)}`")
            return f"{part}({_expression(of, _less(room))}, {_quoted(chr(39), zone)})"
        case Attribute() | Subject():
            raise foreign(e)
        case _:
            assert_never(e)


def _call(name: str, args: Iterable[Operand], room: int) -> str:
    shown = _quoted("`", name) if name in _CALLED else render_operand(Attribute(_named(name)))
    return f"{shown}({', '.join(_expression(arg, room) for arg in args)})"


def _ended(e: Operand, text: str) -> str:
    """Text that neither runs into what follows it nor takes in what stands before it."""
    return f"({text})" if isinstance(e, Combine) else text


def _beside(e: Operand, room: int, *others: Operand) -> str:
    """The text of an expression beside others: a number beside a part of the clock is written as people say it."""
    for other in others:
        reading = reading_beside(other)
        if reading is not None and isinstance(e, Constant) and isinstance(e.value, str):
            raise BadDefinition(f"the text `{brief(e.value)}` stands beside a {reading}", remedy="give what it means")
        if isinstance(other, ClockPart) and isinstance(e, Constant):
            text = None if isinstance(e.value, frozenset) else clock_text(other.part, e.value)
            return render_argument(e.value) if text is None else _quoted("'", text)
    return _expression(e, room)


# -- names ----------------------------------------------------------------------------------------------------


def _arguments(terms: tuple[Term, ...]) -> str:
    _at_most(len(terms), MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
    return f"({', '.join(map(render_expression, terms))})" if terms else ""


def _after_colon(constraint: Condition) -> list[str]:
    return [":", render_constraint(constraint)] if constraint != TRUE else []


def _joined(credentials: Iterable[str]) -> list[str]:
    text = " & ".join(credentials)
    return [text] if text else []


def _star(starred: bool) -> str:
    return "*" if starred else ""


def _service(service: str | None) -> str:
    return f"{_plain('service', service)}." if service is not None else ""


def _named(name: str) -> str:
    if not name or len(name) > MAX_NAME_CHARS:
        raise BadDefinition(f"the name `{brief(name)}` is empty, or longer than MAX_NAME_CHARS ({MAX_NAME_CHARS})")
    return name


def _plain(what: str, name: str) -> str:
    if not _PLAIN.fullmatch(_named(name)) or name in RESERVED:
        remedy = "write letters, digits and `_`, not beginning with a digit"
        raise BadDefinition(f"`{brief(name)}` is no name of a {what}", remedy=remedy)
    return name


def _group(name: str) -> str:
    bare = _BARE_GROUP.fullmatch(_named(name)) and name not in RESERVED and name != "group"
    return name if bare else f"group {_quoted(chr(39), name)}"


def _letter(letter: str) -> str:
    if not _LETTER.fullmatch(letter):
        raise BadDefinition(f"`{brief(letter)}` is no letter, and a set is of letters")
    return letter


def _letters(letters: str) -> str:
    _at_most(len(letters), MAX_SET_LETTERS, "MAX_SET_LETTERS", "letters")
    return "".join(map(_letter, letters))


def _quoted(quote: str, text: str) -> str:
    return f"{quote}{text.replace(quote, quote * 2)}{quote}"


def _at_most(count: int, limit: int, name: str, what: str) -> None:
    if count > limit:
        raise BadDefinition(f"{count} {what} are past {name} ({limit})")


def _less(room: int) -> int:
    if room < 1:
        raise BadDefinition(f"the expression nests deeper than MAX_EXPRESSION_DEPTH ({MAX_EXPRESSION_DEPTH})")
    return room - 1
