"""From recognised text to the syntax of rolefiles: one method for each rule or alias of the grammar.

Guarantees: what stands as a value is an expression and what stands as a condition is a constraint, or it is refused
where it stands; `f(x)` is either. Depth counts nodes, never parentheses.
Leaves out: reading (`rolefile`), and the words for text that is no sentence (`role_complaints`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast, get_args

from lark import Token, Transformer, v_args

from headgate.lang.literals import Reading, read_text, reading_beside
from headgate.lang.reading import converted, named, number, refusal, unquoted, zone_named
from headgate.model import conditions as tree
from headgate.model.conditions import Condition, Constant, Operand, RoleRef, Term, Variable
from headgate.model.errors import BadDefinition, BadExpression
from headgate.model.limits import (
    MAX_CREDENTIALS,
    MAX_EXPRESSION_DEPTH,
    MAX_NAME_CHARS,
    MAX_ROLE_ARGUMENTS,
    MAX_SET_LETTERS,
)
from headgate.model.rolefiles import (
    ArgumentType,
    Audit,
    ClockType,
    Credential,
    Declaration,
    Elector,
    EventEntry,
    EventTemplate,
    Import,
    IntegerType,
    ObjectType,
    Revoker,
    SetType,
    Statement,
    StringType,
    TimestampType,
)
from headgate.model.values import Kind, Value, brief

_COMPARATORS: Final[Mapping[str, str]] = {
    "≠": "!=", "≤": "<=", "≥": ">=", "⊂": "subset", "⊆": "subseteq", "⊃": "superset", "⊇": "superseteq",
}  # fmt: skip
_OPERATORS: Final[Mapping[str, str]] = {"\u2212": "-", "\u222a": "union", "∩": "intersect", "\\": "minus"}
_EXPRESSIONS: Final = get_args(Operand)
_ASKED: Final = ("instance", "time", "origin", "client")
_ORDERINGS: Final = frozenset({"=", "!=", "<", "<=", ">", ">="})


class ParsedPart(NamedTuple):
    """A value or a condition, how deeply it nests, and where it begins."""

    node: Operand | Condition
    at: Token
    depth: int = 0


class Name(NamedTuple):
    """A name, and where it stands."""

    text: str
    at: Token


class _Arguments(NamedTuple):
    terms: tuple[Term, ...]
    at: Token


class _Head(NamedTuple):
    role: RoleRef
    asked: tuple[int, ...]


_Clause: TypeAlias = tuple[Token, Elector | Revoker]
_T = TypeVar("_T")


def as_expression(part: ParsedPart) -> Operand:
    """What stands where a value is expected."""
    if not isinstance(part.node, _EXPRESSIONS):
        raise refusal(part.at, "a condition stands where a value is expected")
    return cast(Operand, part.node)


def as_condition(part: ParsedPart) -> Condition:
    """What stands where a condition is expected."""
    match part.node:
        case tree.Apply(function, args):
            return tree.Related(function, args)
        case Constant(bool() as truth):
            return tree.TRUE if truth else tree.AnyOf()
        case Variable(name):
            remedy = f"compare it, as in `{name} = 'a'`, or write `{name}()` if it is a function or a relation"
            raise refusal(part.at, f"`{brief(name)}` alone is no condition", remedy)
        case node if isinstance(node, _EXPRESSIONS):
            raise refusal(part.at, "a value alone is no condition", "compare it, as in `x = 1`")
        case node:
            return cast(Condition, node)


def _above(node: Operand | Condition, at: Token, parts: Sequence[ParsedPart]) -> ParsedPart:
    """A node above others."""
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > MAX_EXPRESSION_DEPTH:
        message = f"the expression nests deeper than MAX_EXPRESSION_DEPTH ({MAX_EXPRESSION_DEPTH})"
        raise refusal(at, message, "split it into several statements")
    return ParsedPart(node, at, depth)


def _made(at: Token, make: Callable[..., _T], *args: object) -> _T:
    """What the model makes of this, its refusal with a place."""
    try:
        return make(*args)
    except BadDefinition as error:
        raise BadDefinition(error.message, place=f"line {at.line}, column {at.column}", remedy=error.remedy) from None


def builder() -> Transformer[Token, Any]:
    """What makes a tree, called bottom-up as the rules are recognised."""
    return _Builder()


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    # -- rolefiles --

    def imported(self, service: Token, name: Token) -> Import:
        return Import(str(service), str(name))

    def audited(self, *roles: Token) -> Audit:
        return Audit(tuple(dict.fromkeys(map(str, roles))))

    def declaration(self, role: Token, _: Token | None, names: tuple[str, ...] | None, *typed: Any) -> Declaration:
        types: dict[str, ArgumentType] = {}
        for name, type in typed:
            if str(name) in types:
                raise refusal(name, f"`{name}` is given a type twice")
            types[str(name)] = type
        return _made(role, Declaration, str(role), names or (), tuple(types.items()))

    def parameters(self, *names: Token) -> tuple[str, ...]:
        _at_most(names[-1], len(names), MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
        return tuple(map(str, names))

    def typing(self, name: Token, *rest: Any) -> tuple[Token, ArgumentType]:
        return name, next(part for part in rest if isinstance(part, get_args(ArgumentType)))

    def named_type(self, first: Token, second: Token | None) -> ArgumentType:
        if second is not None:
            return ObjectType(str(second), str(first))
        match first.lower():
            case "integer":
                return IntegerType()
            case "string":
                return StringType()
            case "timestamp":
                return TimestampType()
            case "timeofday" | "weekday" as part:
                return ClockType(part)
            case _:
                return ObjectType(str(first))

    def set_type(self, brace: Token, letters: Token | None) -> ArgumentType:
        _at_most(brace, len(letters or ""), MAX_SET_LETTERS, "MAX_SET_LETTERS", "letters")
        return _made(brace, SetType, str(letters or ""))

    def entry(
        self, head: _Head, credentials: tuple[Credential, ...] | None, *rest: _Clause | ParsedPart | None
    ) -> Statement:
        clauses = cast(Sequence[_Clause], rest[:-1])
        electors = tuple(clause for _, clause in clauses if isinstance(clause, Elector))
        revokers = [(at, clause) for at, clause in clauses if isinstance(clause, Revoker)]
        if len(electors) > MAX_CREDENTIALS:
            _at_most(clauses[-1][0], len(electors), MAX_CREDENTIALS, "MAX_CREDENTIALS", "electors")
        if len(revokers) > MAX_CREDENTIALS:
            _at_most(clauses[-1][0], len(revokers), MAX_CREDENTIALS, "MAX_CREDENTIALS", "revokers")
        if len({clause.starred for _, clause in revokers}) > 1:
            at = next(at for at, clause in revokers if clause.starred is not revokers[0][1].starred)
            remedy = "they revoke together: write the star on all of them, or on none"
            raise refusal(at, "one `|>` has a star, and another has none", remedy)
        asked = tuple(clause for _, clause in revokers)
        return Statement(head.role, credentials or (), electors, asked, _constraint(rest[-1]), asked=head.asked)

    def head(self, name: Token, opened: Token | None, *given: tuple[ParsedPart, bool] | None) -> _Head:
        terms = [one for one in given if one is not None]
        if opened is not None:
            _at_most(opened, len(terms), MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
        asked = tuple(place for place, (_, is_asked) in enumerate(terms) if is_asked)
        return _Head(RoleRef(str(name), tuple(cast(Term, part.node) for part, _ in terms)), asked)

    def given(self, asks: Token | None, part: ParsedPart) -> tuple[ParsedPart, bool]:
        if asks is not None and (not isinstance(part.node, Variable) or part.node.name == "_"):
            raise refusal(asks, "only a variable is asked for", "write it like `?p`, or leave the `?` out")
        return part, asks is not None

    def credentials(self, *parts: Credential | Token) -> tuple[Credential, ...]:
        return _joined(parts)

    def credential(self, role: RoleRef, star: Token | None) -> Credential:
        return Credential(role, star is not None)

    def elector(self, at: Token, wish: Token | None, role: RoleRef, star: Token | None) -> _Clause:
        return at, Elector(role, wish is not None, star is not None)

    def revoker(self, at: Token, star: Token | None, role: RoleRef) -> _Clause:
        return at, Revoker(role, star is not None)

    def own_role(self, name: Token, arguments: _Arguments | None) -> RoleRef:
        return RoleRef(str(name), arguments.terms if arguments else ())

    def service_role(
        self, service: Token, _: Token | None, instance: ParsedPart | None, name: Token, arguments: _Arguments | None
    ) -> RoleRef:
        terms = arguments.terms if arguments else ()
        return RoleRef(str(name), terms, str(service), cast(Term, instance.node) if instance else None)

    def arguments(self, opened: Token, terms: tuple[Term, ...] | None) -> _Arguments:
        _at_most(opened, len(terms or ()), MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
        return _Arguments(terms or (), opened)

    def terms(self, *parts: ParsedPart) -> tuple[Term, ...]:
        return tuple(cast(Term, part.node) for part in parts)

    # -- event policy --

    def event(
        self,
        minus: Token | None,
        template: EventTemplate,
        roles: tuple[RoleRef, ...] | None,
        constraint: ParsedPart | None,
    ) -> EventEntry:
        return EventEntry(template, roles or (), _constraint(constraint), minus is not None)

    def template(self, type: Token, arguments: _Arguments | None) -> EventTemplate:
        terms = arguments.terms if arguments else ()
        if arguments and any(isinstance(term, tree.Meta) for term in terms):
            remedy = "compare it after the `:`"
            raise refusal(arguments.at, "an event has only variables and constants as arguments", remedy)
        name = named(type, unquoted(type)) if type.type == "QUOTED" else str(type)
        return EventTemplate(name, cast(tuple[Variable | Constant, ...], terms))

    def required(self, *parts: RoleRef | Token) -> tuple[RoleRef, ...]:
        return _joined(parts)

    # -- constraints --

    def constraint(self, part: ParsedPart) -> ParsedPart:
        return part

    def expression(self, part: ParsedPart) -> ParsedPart:
        return part

    def argument(self, part: ParsedPart) -> ParsedPart:
        return part

    def disjunction(self, *parts: ParsedPart) -> ParsedPart:
        return _above(tree.AnyOf(tuple(map(as_condition, parts))), parts[0].at, parts) if parts[1:] else parts[0]

    def conjunction(self, *parts: ParsedPart | Token) -> ParsedPart:
        units = [part for part in parts if isinstance(part, ParsedPart)]
        return _above(tree.AllOf(tuple(map(as_condition, units))), units[0].at, units) if units[1:] else units[0]

    def negation(self, at: Token, part: ParsedPart) -> ParsedPart:
        return _above(tree.Not(as_condition(part)), at, [part])

    def starred(self, part: ParsedPart, _: Token) -> ParsedPart:
        return _above(tree.Starred(as_condition(part)), part.at, [part])

    def parenthesis(self, at: Token, part: ParsedPart) -> ParsedPart:
        return ParsedPart(part.node, at, part.depth)

    def compares(self, left: ParsedPart, op: Token, right: ParsedPart) -> ParsedPart:
        comparator: Any = _COMPARATORS.get(op, str(op))
        sides = (as_expression(left), as_expression(right))
        if comparator in _ORDERINGS:
            sides = (_beside(op, sides[0], sides[1]), _beside(op, sides[1], sides[0]))
        return _above(tree.Compare(comparator, *sides), left.at, [left, right])

    def binds(self, left: ParsedPart, op: Token, right: ParsedPart) -> ParsedPart:
        if not isinstance(left.node, Variable) or not isinstance(right.node, tree.Apply):
            remedy = "write `=` to compare, or `< -` with a space for a negative number"
            raise refusal(op, f"`{op}` binds a variable to what a function gives, as in `u <- creator(d)`", remedy)
        return _above(tree.Compare("=", left.node, right.node), left.at, [left, right])

    def between(self, of: ParsedPart, op: Token, low: ParsedPart, high: ParsedPart) -> ParsedPart:
        whole, least, most = as_expression(of), as_expression(low), as_expression(high)
        ends = _beside(op, least, whole), _beside(op, most, whole)
        return _above(tree.InRange(_beside(op, whole, least, most), *ends), of.at, [of, low, high])

    def one_of(self, of: ParsedPart, op: Token, _: Token, values: tuple[Value, ...]) -> ParsedPart:
        whole = as_expression(of)
        chosen = (_beside(op, Constant(value), whole) for value in values)
        return _above(tree.InSet(whole, tuple(cast(Value, cast(Constant, one).value) for one in chosen)), of.at, [of])

    def among(self, of: ParsedPart, _: Token, group: Name) -> ParsedPart:
        return _above(tree.InGroup(as_expression(of), group.text), of.at, [of])

    def among_group(self, of: ParsedPart, _: Token, group: Token) -> ParsedPart:
        name = named(group, unquoted(group)) if group.type in ("TEXT", "QUOTED") else str(group)
        if len(name) > MAX_NAME_CHARS:
            message = f"the name `{brief(name)}` is longer than MAX_NAME_CHARS ({MAX_NAME_CHARS})"
            raise refusal(group, message)
        return _above(tree.InGroup(as_expression(of), name), of.at, [of])

    def tests(self, left: ParsedPart, op: Token, right: ParsedPart) -> ParsedPart:
        test: Any = " ".join(op.split())
        return _above(tree.TextMatch(test, as_expression(left), as_expression(right)), left.at, [left, right])

    def combine(self, left: ParsedPart, op: Token, right: ParsedPart) -> ParsedPart:
        operator: Any = _OPERATORS.get(op, str(op))
        sides = [_added(part) if operator in ("+", "-") else as_expression(part) for part in (left, right)]
        return _above(tree.Combine(operator, *sides), left.at, [left, right])

    def apply(self, name: Name, _: Token, args: tuple[ParsedPart, ...] | None) -> ParsedPart:
        return _above(tree.Apply(name.text, tuple(map(as_expression, args or ()))), name.at, args or ())

    def count(self, at: Token, _: Token, role: RoleRef) -> ParsedPart:
        return ParsedPart(tree.Count(role), at)

    def clock(self, part: Token, _: Token, of: ParsedPart, zone: Token | None) -> ParsedPart:
        word: Any = str(part)
        named_zone = zone_named(zone) if zone is not None else "UTC"
        return _above(tree.ClockPart(word, as_expression(of), named_zone), part, [of])

    def values(self, *parts: ParsedPart) -> tuple[ParsedPart, ...]:
        return parts

    def literals(self, *parts: ParsedPart) -> tuple[Value, ...]:
        return tuple(cast(Value, cast(Constant, part.node).value) for part in parts)

    # -- terms and literals --

    def variable(self, name: Name) -> ParsedPart:
        return ParsedPart(Variable(name.text), name.at)

    def asked(self, token: Token) -> ParsedPart:
        word: Any = token[1:]
        if word not in _ASKED:
            remedy = "write `@instance`, `@time`, `@origin` or `@client`"
            raise refusal(token, f"there is no `{brief(str(token))}`", remedy)
        return ParsedPart(tree.Meta(word), token)

    def name(self, token: Token) -> Name:
        return Name(named(token, unquoted(token)) if token.type == "QUOTED" else str(token), token)

    def literal(self, part: ParsedPart) -> ParsedPart:
        return part

    def letters(self, brace: Token, letters: Token | None) -> ParsedPart:
        text = str(letters or "")
        _at_most(brace, len(text), MAX_SET_LETTERS, "MAX_SET_LETTERS", "letters")
        if len(set(text)) != len(text):
            remedy = "a set is written by its letters, as in `{rw}`; quote text"
            raise refusal(brace, f"`{{{text}}}` names a letter twice", remedy)
        return ParsedPart(Constant(frozenset(text)), brace)

    def text(self, token: Token) -> ParsedPart:
        return ParsedPart(Constant(unquoted(token)), token)

    def number(self, sign: Token | None, token: Token) -> ParsedPart:
        minus = sign is not None and sign.type == "MINUS"
        return ParsedPart(Constant(number(token, f"-{token}" if minus else str(token))), sign or token)

    def timestamp(self, token: Token) -> ParsedPart:
        return ParsedPart(Constant(converted(token, Kind.TIMESTAMP)), token)

    def binary(self, token: Token) -> ParsedPart:
        return ParsedPart(Constant(converted(token, Kind.BYTES)), token)

    def boolean(self, word: Token) -> ParsedPart:
        return ParsedPart(Constant(word.type == "TRUE"), word)


def _constraint(part: Any) -> Condition:
    return as_condition(part) if part is not None else tree.TRUE


def _joined(parts: Sequence[Any]) -> tuple[Any, ...]:
    """What stands between the `&`s."""
    for joint in parts[1::2]:
        if joint == "and":
            raise refusal(joint, "`and` stands between credentials", "write `&` there")
    found = tuple(parts[::2])
    _at_most(parts[1] if parts[1:] else None, len(found), MAX_CREDENTIALS, "MAX_CREDENTIALS", "credentials")
    return found


def _at_most(at: Token | None, count: int, limit: int, name: str, what: str) -> None:
    if count > limit:
        raise refusal(at, f"{count} {what} are past {name} ({limit})")


def _added(part: ParsedPart) -> Operand:
    """A side of a sum: text there is a moment or a time of day."""
    side = as_expression(part)
    if not isinstance(side, Constant) or not isinstance(side.value, str):
        return side
    readings: tuple[Reading, ...] = ("timestamp", "timeofday")
    for reading in readings:
        with suppress(BadExpression):
            return Constant(read_text(reading, side.value))
    remedy = "add to a moment like `'2026-01-01T09:00:00Z'`, a time of day like `'08:00'` or a number"
    raise refusal(part.at, f"`{brief(side.value)}` is text, to which nothing is added", remedy)


def _beside(at: Token, of: Operand, *others: Operand) -> Operand:
    """An expression as it counts beside others: its text means a time or a day beside the clock or a part of it."""
    for other in others:
        reading = reading_beside(other)
        if reading is not None and isinstance(of, Constant) and isinstance(of.value, str):
            try:
                return Constant(read_text(reading, of.value))
            except BadExpression as error:
                raise refusal(at, error.message, error.remedy) from None
    return of
