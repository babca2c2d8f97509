"""From the one tree to text: expressions of every language, rolefiles and event policy.

Guarantees: for every condition that `parse_condition` makes, `parse_condition(render_condition(c)) == c`, and the text
nests no deeper than the one it came from. For any other condition of valid values the text means the same: a
conjunction directly in a conjunction is put in parentheses, which the parser then flattens.
For every tree of rolefiles and event policy, either `parse(render(t)) == t` (lines of statements aside) or it is
refused with `bad-definition`. Refused is what the grammar cannot give: a role, service, parameter or object type that
is no plain name; an instance without a service; an object type called as one of the language's own; null, and numbers
that are not finite; sets of anything but letters; text beside the clock or a part of it; a choice of nothing; an
unknown time zone; stars in event policy; and what is past a limit. ASCII wherever names and texts are.
Leaves out: layout. The text has no needless parentheses, and no line break outside quotes; a statement is one line.
Null has no literal; where a subject attribute was absent, its constant is shown as `null`, which does not parse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from typing import Final, TypeVar, assert_never, cast, get_args

from headgate.lang.literals import RESERVED, clock_text, is_zone, reading_beside
from headgate.model import expressions as tree
from headgate.model import limits
from headgate.model import rolefiles as syntax
from headgate.model.errors import BadDefinition
from headgate.model.expressions import Argument, Condition, Constant, Operand, RoleRef
from headgate.model.values import brief, render_timestamp

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LETTER: Final = re.compile(r"[^\W\d_]")
_EVENT: Final = re.compile(r"[^\W\d][\w\-]*(?:\.[^\W\d][\w\-]*)*")
_GROUP: Final = re.compile(r"\w+(?:[\-.]\w+)*")
_BARE_GROUP: Final = re.compile(r"[A-Za-z_]\w*(?:[\-.]\w+)*", re.ASCII)


class _Binding(IntEnum):
    """How tightly a connective binds; a part that binds less than its place asks gets parentheses."""

    OR = 0
    AND = 1
    NOT = 2


@dataclass(frozen=True, slots=True)
class _Writer:
    """The text of every node of the tree. Languages differ in how a group is said, and in the words of calls."""

    called: frozenset[str]
    """Words that mean themselves before a parenthesis, so that a relation of that name is quoted."""
    bare_groups: bool
    """Is `x in staff` a group? Otherwise it is `x in group staff`."""
    fields: bool = False
    """Is `.x` of a record its field?"""

    def condition(self, c: Condition, binding: _Binding = _Binding.OR) -> str:
        """The text of a condition where something binds its parts."""
        match c:
            case tree.AllOf(()):
                return "true"
            case tree.AnyOf(()):
                return "false"
            case tree.AllOf(args):
                joined = " and ".join(self.condition(arg, _Binding.NOT) for arg in args)
                return joined if binding <= _Binding.AND else f"({joined})"
            case tree.AnyOf(args):
                joined = " or ".join(self.condition(arg, _Binding.AND) for arg in args)
                return joined if binding <= _Binding.OR else f"({joined})"
            case tree.Not(tree.IsNull(operand)):
                return f"{self.operand(operand)} is not null"
            case tree.Not(arg):
                return f"not {self.condition(arg, _Binding.NOT)}"
            case tree.Starred(tree.Related() as arg):
                return f"{self.condition(arg)}*"
            case tree.Starred(arg):
                return f"({self.condition(arg)})*"
            case tree.Compare(op, left, right) if op in tree.MIRRORED:
                return f"{self.beside(left, right)} {op} {self.beside(right, left)}"
            case tree.Compare(op, left, right) | tree.TextMatch(op, left, right):
                return f"{self.operand(left)} {op} {self.operand(right)}"
            case tree.InRange(of, low, high):
                ends = (_ended(end, self.beside(end, of)) for end in (low, high))
                return f"{self.beside(of, low, high)} in {'..'.join(ends)}"
            case tree.InSet(of, values):
                return f"{self.operand(of)} in {{{', '.join(self.beside(Constant(value), of) for value in values)}}}"
            case tree.IsNull(operand):
                return f"{self.operand(operand)} is null"
            case tree.InGroup(operand, group):
                return f"{self.operand(operand)} in {self.group(group)}"
            case tree.Related(name, args):
                return self.call(name, args)
            case tree.Predicate(name, args):
                return f"predicate {_name(name)}({self.list(args)})"
            case _:
                assert_never(c)

    def operand(self, operand: Operand) -> str:
        """The text of a value."""
        match operand:
            case tree.Attribute(name) | tree.Variable(name):
                return _name(name)
            case tree.Meta(name):
                return f"@{name}"
            case tree.Subject(name):
                return f"${name if _PLAIN_NAME.fullmatch(name) else _quoted('`', name)}"
            case Constant(value):
                return _literal(value)
            case tree.ClockPart(part, of, zone):
                return f"{part}({self.operand(of)}, {_quoted(chr(39), zone)})"
            case tree.Apply(field, (record,)) if self.fields and field.startswith("."):
                return f"{self.operand(record)}{field}"
            case tree.Apply(function, args):
                return self.call(function, args)
            case tree.Count(of):
                return f"count({render_role(of)})"
            case tree.Combine(op, left, right):
                return f"{self.operand(left)} {op} {_ended(right, self.operand(right))}"
            case _:
                assert_never(operand)

    def beside(self, operand: Operand, *others: Operand) -> str:
        """The text of an operand beside others: a number beside a part of the clock is written as people say it."""
        first = next((other for other in others if reading_beside(other) is not None), None)  # it says how text is read
        if isinstance(first, tree.ClockPart) and isinstance(operand, Constant):
            text = clock_text(first.part, operand.value)
            return self.operand(operand) if text is None else _quoted("'", text)
        return self.operand(operand)

    def call(self, name: str, args: Iterable[Operand]) -> str:
        """A relation, role or function with its arguments."""
        return f"{_quoted('`', name) if name in self.called else _name(name)}({self.list(args)})"

    def list(self, args: Iterable[Operand]) -> str:
        """Values with commas between them."""
        return ", ".join(map(self.operand, args))

    def group(self, name: str) -> str:
        """A group after `in`."""
        if self.bare_groups:
            bare = _BARE_GROUP.fullmatch(name) and name not in RESERVED and name != "group"
            return name if bare else f"group {_quoted(chr(39), name)}"
        return f"group {name if _GROUP.fullmatch(name) and name not in RESERVED else _quoted(chr(39), name)}"


_CONDITIONS: Final = _Writer(frozenset({"timeofday", "weekday"}), bare_groups=False)
_CONSTRAINTS: Final = _Writer(frozenset({"timeofday", "weekday", "count"}), bare_groups=True)
_PATTERNS: Final = replace(_CONSTRAINTS, fields=True)


def _ended(operand: Operand, text: str) -> str:
    """Text that neither runs into what follows it nor takes in what stands before it."""
    return f"({text})" if isinstance(operand, tree.Combine) else text


def _literal(value: Argument) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            # `inf` and `nan` would read as names of attributes.
            if not math.isfinite(value):
                raise ValueError(f"`{value}` is not a value")
            return repr(value)
        case str():
            return _quoted("'", value)
        case datetime():
            return f"timestamp '{render_timestamp(value)}'"
        case bytes():
            return f"bytes '{value.hex()}'"
        case frozenset():
            return f"{{{''.join(sorted(value))}}}"


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) and name not in RESERVED else _quoted("`", name)


def _quoted(quote: str, text: str) -> str:
    return f"{quote}{text.replace(quote, quote * 2)}{quote}"


def render_free(node: Condition | Operand) -> str:
    """The text of an expression beside a composite event, or in a block."""
    if isinstance(node, get_args(Operand)):
        return _PATTERNS.operand(cast(Operand, node))
    return _PATTERNS.condition(cast(Condition, node))


# -- conditions -----------------------------------------------------------------------------------------------


def render_condition(c: Condition) -> str:
    """The expression that says this condition."""
    return _CONDITIONS.condition(c)


def render_operand(operand: Operand) -> str:
    """The text of one operand."""
    return _CONDITIONS.operand(operand)


def size(part: Condition) -> tuple[int, int]:
    """How long, and at most how deep, a part of a conjunction is as text."""
    return len(_CONDITIONS.condition(part, _Binding.NOT)), _nesting(part)


def fit_together(sizes: Iterable[tuple[int, int]]) -> bool:
    """Do parts of these lengths and depths make one conjunction that can be written, and read again?

    Chains and providers add conditions up, and the ledger must be able to keep what they add up to.
    """
    parts = tuple(sizes)
    long = sum(length + len(" and ") for length, _ in parts) - len(" and ")
    return (
        long <= limits.MAX_EXPRESSION_CHARS
        and max((deep for _, deep in parts), default=0) < limits.MAX_EXPRESSION_DEPTH
    )


def _nesting(part: Condition) -> int:
    """How deep the text of a part is, the parentheses of connectives included."""
    inner = tree.parts(part)
    own = 2 if isinstance(part, tree.AllOf | tree.AnyOf) else 1
    return own + max(map(_nesting, inner)) if inner else 0


# -- constraints ----------------------------------------------------------------------------------------------


def render_constraint(constraint: Condition) -> str:
    """What stands after the `:`."""
    return _CONSTRAINTS.condition(_writable(constraint))


def render_expression(expression: Operand) -> str:
    """`x + 1`, `creator(d)`, `count(Member(_))`."""
    return _CONSTRAINTS.operand(_writable(expression))


def render_argument(value: Argument) -> str:
    """`'dm'`, `3`, `{rw}`."""
    return render_expression(Constant(value))


_Node = TypeVar("_Node", bound=tree.Node)


def _writable(node: _Node, room: int = limits.MAX_EXPRESSION_DEPTH) -> _Node:
    """Refuse what no text of a rolefile says: it would not read back as the same."""
    match node:
        case tree.Attribute() | tree.Subject() | tree.IsNull() | tree.Predicate():
            raise tree.foreign(node)
        case Constant(value):
            _check_constant(value)
        case tree.Variable(name) | tree.Apply(name, _) | tree.Related(name, _) | tree.InGroup(_, name):
            _named(name)
        case tree.Combine("+" | "-", left, right):
            for side in (left, right):
                if isinstance(side, Constant) and isinstance(side.value, str):
                    raise BadDefinition(f"the text `{brief(side.value)}` stands in a sum", remedy="give what it means")
        case tree.ClockPart(_, _, zone) if not is_zone(zone):
            raise BadDefinition(f"there is no time zone `{brief(zone)}`")
        case tree.Compare(op, left, right) if op in tree.MIRRORED:
            _no_text_beside((left, right), (right, left))
        case tree.InRange(of, low, high):
            _no_text_beside((of, low, high), (low, of), (high, of))
        case tree.InSet(of, values):
            if any(isinstance(value, frozenset) for value in values):
                raise BadDefinition("a choice is of plain values, not of sets")
            _no_text_beside(*((Constant(value), of) for value in values))
    if isinstance(node, Constant | tree.Variable | tree.Meta | tree.Count) or node in (tree.TRUE, tree.FALSE):
        return node
    if room < 1:
        raise BadDefinition(f"the expression nests deeper than MAX_EXPRESSION_DEPTH ({limits.MAX_EXPRESSION_DEPTH})")
    for part in (*tree.parts(node), *tree.operands(node)):
        _writable(part, room - 1)
    return node


def _no_text_beside(*groups: tuple[Operand, ...]) -> None:
    """Beside a time, text would be read as one: the first of each group, beside the others."""
    for operand, *others in groups:
        for other in others:
            reading = reading_beside(other)
            if reading is not None and isinstance(operand, Constant) and isinstance(operand.value, str):
                message = f"the text `{brief(operand.value)}` stands beside a {reading}"
                raise BadDefinition(message, remedy="give what it means")


def _check_constant(value: Argument) -> None:
    if isinstance(value, frozenset):
        _letters(sorted(value))
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise BadDefinition(f"`{value}` is no constant")


# -- rolefiles and event policy -------------------------------------------------------------------------------


def render_rolefile(rolefile: syntax.Rolefile) -> str:
    """The text of a rolefile: imports, audits, declarations, statements, one a line."""
    lines = [f"import {_plain('service', one.service)}.{_plain('type', one.name)}" for one in rolefile.imports]
    lines += [f"audit {', '.join(_plain('role', name) for name in one.roles)}" for one in rolefile.audits]
    lines += map(render_declaration, rolefile.declarations)
    lines += map(render_statement, rolefile.statements)
    _at_most(len(lines), limits.MAX_STATEMENTS, "MAX_STATEMENTS", "statements")
    return "".join(f"{line}\n" for line in lines)


def render_declaration(declaration: syntax.Declaration) -> str:
    """`def Member(u) u : userid`."""
    _at_most(len(declaration.parameters), limits.MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
    if len(dict(declaration.types)) != len(declaration.types):
        raise BadDefinition(f"an argument of `{brief(declaration.role)}` is given a type twice")
    names = ", ".join(_plain("parameter", name) for name in declaration.parameters)
    types = "".join(f" {name} : {render_type(type)}" for name, type in declaration.types)
    return f"def {_plain('role', declaration.role)}{f'({names})' if names else ''}{types}"


def render_type(type: syntax.ArgumentType) -> str:
    """`Integer`, `String`, `{rwx}` or `Login.userid`."""
    match type:
        case syntax.SetType(letters):
            return f"{{{_letters(letters)}}}"
        case syntax.ObjectType(name, None) if name.lower() in map(str.lower, syntax.TYPE_NAMES):
            raise BadDefinition(f"`{name}` is no name of an object type")
        case syntax.ObjectType(name, service):
            return f"{'' if service is None else _plain('service', service) + '.'}{_plain('type', name)}"
        case _:
            return next(name for name, known in syntax.TYPE_NAMES.items() if known == type)


def render_statement(statement: syntax.Statement) -> str:
    """`Member(u) <- Login.LoggedOn(u, h)* <|* Chair |>* Chair : (u in staff)*`."""
    for what in ("credentials", "electors", "revokers"):
        _at_most(len(getattr(statement, what)), limits.MAX_CREDENTIALS, "MAX_CREDENTIALS", what)
    asked = tuple("?" if place in statement.asked else "" for place in range(len(statement.head.args)))
    parts = [f"{_plain('role', statement.head.role)}{_arguments(statement.head.args, asked)}", "<-"]
    parts += _joined(render_role(one.ref) + _star(one.starred) for one in statement.credentials)
    parts += [f"<|{_star(one.wish)} {render_role(one.ref)}{_star(one.starred)}" for one in statement.electors]
    parts += [f"|>{_star(one.starred)} {render_role(one.ref)}" for one in statement.revokers]
    return " ".join(parts + _after_colon(statement.constraint))


def render_event_policy(policy: syntax.EventPolicy) -> str:
    """The text of event policy, an entry a line."""
    _at_most(len(policy.entries), limits.MAX_STATEMENTS, "MAX_STATEMENTS", "entries")
    return "".join(f"{render_entry(entry)}\n" for entry in policy.entries)


def render_entry(entry: syntax.EventEntry) -> str:
    """`-Seen(u, r) <= Login.LoggedOn(s, h) : u in staff`."""
    _at_most(len(entry.credentials), limits.MAX_CREDENTIALS, "MAX_CREDENTIALS", "credentials")
    if tree.has_star(entry.constraint):
        raise BadDefinition("event policy has no `*`", remedy="what it gives ends with the credential anyway")
    name = _named(entry.event.type)
    bare = _EVENT.fullmatch(name) and "--" not in name  # two dashes in a row begin a comment
    event = f"{name if bare else _quoted('`', name)}{_arguments(entry.event.args)}"
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
    terms = tuple(tree.Variable("_") if arg is None else Constant(arg) for arg in args)
    return render_role(RoleRef(role, terms, service, Constant(instance) if instance else None))


def _arguments(terms: tuple[tree.Term, ...], marks: tuple[str, ...] = ()) -> str:
    _at_most(len(terms), limits.MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
    shown = [f"{mark}{render_expression(term)}" for mark, term in zip(marks or ("",) * len(terms), terms, strict=True)]
    return f"({', '.join(shown)})" if shown else ""


def _after_colon(constraint: Condition) -> list[str]:
    return [":", render_constraint(constraint)] if constraint != tree.TRUE else []


def _joined(credentials: Iterable[str]) -> list[str]:
    text = " & ".join(credentials)
    return [text] if text else []


def _star(starred: bool) -> str:
    return "*" if starred else ""


def _named(name: str) -> str:
    if not name or len(name) > limits.MAX_NAME_CHARS:
        raise BadDefinition(
            f"the name `{brief(name)}` is empty, or longer than MAX_NAME_CHARS ({limits.MAX_NAME_CHARS})"
        )
    return name


def _plain(what: str, name: str) -> str:
    if not _PLAIN_NAME.fullmatch(_named(name)) or name in RESERVED:
        remedy = "write letters, digits and `_`, not beginning with a digit"
        raise BadDefinition(f"`{brief(name)}` is no name of a {what}", remedy=remedy)
    return name


def _letters(letters: Iterable[str]) -> str:
    every = list(letters)
    _at_most(len(every), limits.MAX_SET_LETTERS, "MAX_SET_LETTERS", "letters")
    for letter in every:
        if not _LETTER.fullmatch(letter):
            raise BadDefinition(f"`{brief(letter)}` is no letter, and a set is of letters")
    return "".join(every)


def _at_most(count: int, limit: int, name: str, what: str) -> None:
    if count > limit:
        raise BadDefinition(f"{count} {what} are past {name} ({limit})")
