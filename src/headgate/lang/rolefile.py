"""From the text of a rolefile, or of event policy, to its syntax (OASIS 3 and 7).

Guarantees: each function ends in a tree, `BadExpression` or `BadDefinition` on any text whatever, in time linear in its
length and without recursion. A tree made here keeps the nesting of its parentheses, nests no deeper than
`MAX_EXPRESSION_DEPTH`, and is within every limit on names, arguments, credentials, letters and statements. What stands
as a value is an operand and what stands as a condition is one, or it is refused where it stands; `f(x)` is either.
Leaves out: whether names exist and types agree (`roles.rolefiles.types`, `roles.rolefiles.checking`). Words are
case-sensitive, except the types `integer` and `string`.

A statement ends at `;`, or at the end of a line unless the next line is indented more deeply than the statement's
first, begins with an operator, or a bracket is open. A declaration has no arrow, so an indented line that has one
begins a statement even after a declaration (OASIS writes its rolefiles so). Comments are blanked out, which keeps every
place as it is; inside quotes nothing begins or ends.
"""

# ruff: noqa: D102 - the methods of a builder are the rules of its grammar

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

from lark import Token, v_args

from headgate.lang import parse
from headgate.lang.literals import Reading, read_text, reading_beside
from headgate.lang.parse import (
    LITERALS,
    OPERANDS,
    CommonBuilder,
    Language,
    Name,
    ParsedPart,
    Passage,
    Unexpected,
    as_expression,
    check_text,
    refusal,
)
from headgate.model import expressions as tree
from headgate.model import limits
from headgate.model import rolefiles as syntax
from headgate.model.errors import BadDefinition, BadExpression
from headgate.model.expressions import Argument, Condition, Constant, Operand, RoleRef, Term, Variable
from headgate.model.values import brief

Start: TypeAlias = Literal["statement", "event", "role", "constraint", "expression", "argument"]
_TYPES: Final = {name.lower(): type for name, type in syntax.TYPE_NAMES.items()}
_NAMES: Final = frozenset({"NAME", "QUOTED", "EVENT", "GROUP_NAME", "BARE_GROUP"})


def parse_rolefile(text: str) -> syntax.Rolefile:
    """The rolefile that a text says."""
    items = list(_items(text, "statement"))
    return syntax.Rolefile(
        tuple(item for item in items if isinstance(item, syntax.Import)),
        tuple(item for item in items if isinstance(item, syntax.Declaration)),
        tuple(item for item in items if isinstance(item, syntax.Statement)),
        tuple(item for item in items if isinstance(item, syntax.Audit)),
    )


def parse_event_policy(text: str) -> syntax.EventPolicy:
    """The event policy that a text says."""
    return syntax.EventPolicy(tuple(item for item in _items(text, "event") if isinstance(item, syntax.EventEntry)))


def parse_role(text: str) -> RoleRef:
    """A role with its arguments: `Login.LoggedOn(u, 'ely')`."""
    return cast(RoleRef, _one(text, "role", "write a role such as `Login.LoggedOn('jmb', h)`"))


def parse_argument(text: str) -> Argument:
    """A constant: `'dm'`, `3`, `{rw}`, `true`, `timestamp '...'`, `bytes '...'`."""
    found = _one(text, "argument", "write a constant such as `'dm'`, `3` or `{rw}`")
    return cast(Constant, found.node).value


def parse_constraint(text: str) -> Condition:
    """What stands after the `:` of a statement."""
    return as_condition(_one(text, "constraint", "write a condition"))


def parse_expression(text: str) -> Operand:
    """A value: `Badge(badge)`, `x + 1`."""
    return as_expression(_one(text, "expression", "write a value such as `Badge(badge)`"))


def parse_representative(type: str, parameters: Mapping[str, str]) -> syntax.Representative:
    """How event policy sees a type; in the expressions, identifiers are its attributes."""
    if len(parameters) > limits.MAX_ROLE_ARGUMENTS:
        message = (
            f"`{brief(type)}` has {len(parameters)} parameters, past MAX_ROLE_ARGUMENTS ({limits.MAX_ROLE_ARGUMENTS})"
        )
        raise BadDefinition(message)
    made: list[tuple[str, Operand]] = []
    for name, text in parameters.items():
        if not isinstance(name, str) or not name or len(name) > limits.MAX_NAME_CHARS:
            raise BadDefinition(f"`{brief(name)}` is no name of a parameter of `{brief(type)}`")
        if not isinstance(text, str):
            remedy = "write a value such as `Badge(badge)`, in quotes"
            raise BadDefinition(f"`{brief(text)}` is no expression for `{brief(name)}`", remedy=remedy)
        try:
            made.append((name, parse_expression(text)))
        except BadExpression as error:
            raise error.at(f"`{brief(name)}` of `{brief(type)}`") from None
    return syntax.Representative(type, tuple(made))


def _items(
    text: str, start: Start
) -> Iterator[syntax.Import | syntax.Audit | syntax.Declaration | syntax.Statement | syntax.EventEntry]:
    check_text(text, limits.MAX_ROLEFILE_CHARS, "MAX_ROLEFILE_CHARS")
    for number, passage in enumerate(statements(text), start=1):
        if number > limits.MAX_STATEMENTS:
            message = f"there are more than MAX_STATEMENTS ({limits.MAX_STATEMENTS}) statements"
            raise BadExpression(message, place=f"line {passage.line}, column {passage.column}")
        yield replace(_LANGUAGE.read(passage, start), line=passage.line)


def _one(text: str, start: Start, remedy: str) -> Any:
    check_text(text, limits.MAX_EXPRESSION_CHARS, "MAX_EXPRESSION_CHARS")
    blanked = blank_comments(text)
    if not blanked.strip():
        raise BadExpression("the text is empty", place="line 1, column 1", remedy=remedy)
    return _LANGUAGE.read(Passage(blanked), start)


# -- lines, continuations and comments ------------------------------------------------------------------------

_PIECE: Final = re.compile(
    r"""(?P<quoted>'[^']*(?:''[^']*)*'(?!')|"[^"]*(?:""[^"]*)*"(?!")|`[^`]*(?:``[^`]*)*`(?!`))
      | (?P<unclosed>['"`])
      | (?P<comment>(?:\#|--)[^\n]*)
      | (?P<open>[(\[{]) | (?P<close>[)\]}])
      | (?P<end>[;\n])
      | (?:[^'"`\#\-()\[\]{};\n]+|-)""",
    re.VERBOSE,
)
_CONTINUES: Final = re.compile(r"\s*(?::|&|∧|\u2228|<\||◁|⊲|\|>|▷|⊳|\||(?:and|or)\b|<-|←|<=|⇐)")
_DECLARES: Final = re.compile(r"\s*(?:def|import)\s+[A-Za-z_]")
_WORD: Final = re.compile(r"\S")
_MARGIN: Final = re.compile(r"[^\S\n]*")
_ARROW: Final = re.compile(r"(?:[^:=#'\"\n]|'[^'\n]*'|\"[^\"\n]*\")*?(?:<-|←)")


@dataclass(slots=True)
class _Open:
    """The statement that is being gathered."""

    start: int
    end: int
    indent: int
    declares: bool


def statements(text: str) -> Iterator[Passage]:
    """The statements of a text, in order, without comments around or in them."""
    blanked, ends = _scan(text)
    line, counted = 1, 0
    for start, end in _gather(blanked, ends):
        at = end - len(blanked[start:end].lstrip())
        line += blanked.count("\n", counted, at)
        counted = at
        yield Passage(blanked[at:end].rstrip(), at, line, at - blanked.rfind("\n", 0, at))


def blank_comments(text: str) -> str:
    """The text with spaces in place of its comments."""
    return _scan(text)[0]


def _scan(text: str) -> tuple[str, list[int]]:
    """The text without comments, and where a line or a statement ends outside quotes and brackets."""
    parts: list[str] = []
    ends: list[int] = []
    at = depth = 0
    while at < len(text) and (piece := _PIECE.match(text, at)):
        fragment, kind = piece.group(), piece.lastgroup
        if kind == "unclosed":
            break  # whatever follows is inside quotes, and the parser says so
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif kind == "end" and depth == 0:
            ends.append(at)
        parts.append(" " * len(fragment) if kind == "comment" else fragment)
        at = piece.end()
    return "".join(parts) + text[at:], [*ends, len(text)]


def _gather(text: str, ends: list[int]) -> Iterator[tuple[int, int]]:
    """Where each statement starts and ends."""
    now: _Open | None = None
    start = 0
    for end in ends:
        segment = text[start:end]
        if segment.strip():
            indent = _indent(text, start, end)
            if now is not None and _goes_on(now, segment, indent):
                now.end = end
            else:
                if now is not None:
                    yield now.start, now.end
                now = _Open(start, end, indent, bool(_DECLARES.match(segment)))
        if now is not None and text[end : end + 1] == ";":
            yield now.start, now.end
            now = None
        start = end + 1
    if now is not None:
        yield now.start, now.end


def _goes_on(now: _Open, segment: str, indent: int) -> bool:
    if _CONTINUES.match(segment):
        return True
    if now.declares and (_DECLARES.match(segment) or _ARROW.match(segment)):
        return False
    return indent > now.indent


def _indent(text: str, start: int, end: int) -> int:
    """How deeply the line is indented on which the first word between two places stands."""
    word = _WORD.search(text, start, end)
    margin = _MARGIN.match(text, text.rfind("\n", 0, word.start() if word else start) + 1)
    return len(margin.group().expandtabs()) if margin else 0


# -- syntax to tree -------------------------------------------------------------------------------------------

_OPERATORS: Final[Mapping[str, str]] = {"\u2212": "-", "\u222a": "union", "∩": "intersect", "\\": "minus"}


class _Arguments(NamedTuple):
    terms: tuple[Term, ...]
    at: Token


class _Head(NamedTuple):
    role: RoleRef
    asked: tuple[int, ...]


_Clause: TypeAlias = tuple[Token, syntax.Elector | syntax.Revoker]
_T = TypeVar("_T")


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
        case node if isinstance(node, OPERANDS):
            raise refusal(part.at, "a value alone is no condition", "compare it, as in `x = 1`")
        case node:
            return cast(Condition, node)


@v_args(inline=True)
class ExpressionBuilder(CommonBuilder):
    """The nodes of expressions with variables. Depth counts nodes, never parentheses."""

    longest_name = limits.MAX_NAME_CHARS
    metas: tuple[str, ...] = ("instance", "time", "origin", "client")
    meta_remedy = "write `@instance`, `@time`, `@origin` or `@client`"

    def as_condition(self, part: ParsedPart) -> Condition:
        """What stands where a condition is expected."""
        return as_condition(part)

    def _above(self, node: Operand | Condition, at: Token | None, parts: Sequence[ParsedPart]) -> ParsedPart:
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > limits.MAX_EXPRESSION_DEPTH:
            message = f"the expression nests deeper than MAX_EXPRESSION_DEPTH ({limits.MAX_EXPRESSION_DEPTH})"
            raise refusal(at, message, "split it into several statements")
        return ParsedPart(node, at, depth)

    def _atom(self, node: Operand | Condition, parts: Sequence[ParsedPart]) -> ParsedPart:
        return self._above(node, parts[0].at, parts)

    def _reading(self, operand: Operand) -> Reading | None:
        return reading_beside(operand)

    def disjunction(self, *parts: ParsedPart) -> ParsedPart:
        return self._atom(tree.AnyOf(tuple(map(self.as_condition, parts))), parts) if parts[1:] else parts[0]

    def conjunction(self, *parts: ParsedPart | Token) -> ParsedPart:
        units = [part for part in parts if isinstance(part, ParsedPart)]
        return self._atom(tree.AllOf(tuple(map(self.as_condition, units))), units) if units[1:] else units[0]

    def negation(self, at: Token, part: ParsedPart) -> ParsedPart:
        return self._above(tree.Not(self.as_condition(part)), at, [part])

    def starred(self, part: ParsedPart, _: Token) -> ParsedPart:
        return self._atom(tree.Starred(self.as_condition(part)), [part])

    def parenthesis(self, at: Token, part: ParsedPart) -> ParsedPart:
        return ParsedPart(part.node, at, part.depth)

    def binds(self, left: ParsedPart, op: Token, right: ParsedPart) -> ParsedPart:
        if not isinstance(left.node, Variable) or not isinstance(right.node, tree.Apply):
            remedy = "write `=` to compare, or `< -` with a space for a negative number"
            raise refusal(op, f"`{op}` binds a variable to what a function gives, as in `u <- creator(d)`", remedy)
        return self._atom(tree.Compare("=", left.node, right.node), [left, right])

    def among(self, of: ParsedPart, _: Token, group: Name) -> ParsedPart:
        return self._atom(tree.InGroup(as_expression(of), group.text), [of])

    def combine(self, left: ParsedPart, op: Token, right: ParsedPart) -> ParsedPart:
        operator: Any = _OPERATORS.get(op, str(op))
        sides = [_added(part) if operator in ("+", "-") else as_expression(part) for part in (left, right)]
        return self._atom(tree.Combine(operator, *sides), [left, right])

    def apply(self, name: Name, _: Token, args: tuple[ParsedPart, ...] | None) -> ParsedPart:
        return self._above(tree.Apply(name.text, tuple(map(as_expression, args or ()))), name.at, args or ())

    def count(self, at: Token, _: Token, role: RoleRef) -> ParsedPart:
        return ParsedPart(tree.Count(role), at)

    def variable(self, name: Name) -> ParsedPart:
        return ParsedPart(Variable(name.text), name.at)

    def letters(self, brace: Token, letters: Token | None) -> ParsedPart:
        text = str(letters or "")
        _at_most(brace, len(text), limits.MAX_SET_LETTERS, "MAX_SET_LETTERS", "letters")
        if len(set(text)) != len(text):
            remedy = "a set is written by its letters, as in `{rw}`; quote text"
            raise refusal(brace, f"`{{{text}}}` names a letter twice", remedy)
        return ParsedPart(Constant(frozenset(text)), brace)

    def number(self, sign: Token | None, token: Token) -> ParsedPart:
        minus = sign is not None and sign.type == "MINUS"
        return ParsedPart(Constant(parse.number_in(token, f"-{token}" if minus else str(token))), sign or token)

    def own_role(self, name: Token, arguments: _Arguments | None) -> RoleRef:
        return RoleRef(str(name), arguments.terms if arguments else ())

    def service_role(
        self, service: Token, _: Token | None, instance: ParsedPart | None, name: Token, arguments: _Arguments | None
    ) -> RoleRef:
        terms = arguments.terms if arguments else ()
        return RoleRef(str(name), terms, str(service), cast(Term, instance.node) if instance else None)

    def arguments(self, opened: Token, terms: tuple[Term, ...] | None) -> _Arguments:
        _at_most(opened, len(terms or ()), limits.MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
        return _Arguments(terms or (), opened)

    def terms(self, *parts: ParsedPart) -> tuple[Term, ...]:
        return tuple(cast(Term, part.node) for part in parts)


@v_args(inline=True)
class _RolefileBuilder(ExpressionBuilder):
    """The statements of rolefiles and the entries of event policy."""

    def imported(self, service: Token, name: Token) -> syntax.Import:
        return syntax.Import(str(service), str(name))

    def audited(self, *roles: Token) -> syntax.Audit:
        return syntax.Audit(tuple(dict.fromkeys(map(str, roles))))

    def declaration(
        self, role: Token, _: Token | None, names: tuple[str, ...] | None, *typed: Any
    ) -> syntax.Declaration:
        types: dict[str, syntax.ArgumentType] = {}
        for name, type in typed:
            if str(name) in types:
                raise refusal(name, f"`{name}` is given a type twice")
            types[str(name)] = type
        return _made(role, syntax.Declaration, str(role), names or (), tuple(types.items()))

    def parameters(self, *names: Token) -> tuple[str, ...]:
        _at_most(names[-1], len(names), limits.MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
        return tuple(map(str, names))

    def typing(self, name: Token, *rest: Any) -> tuple[Token, syntax.ArgumentType]:
        return name, next(part for part in rest if isinstance(part, get_args(syntax.ArgumentType)))

    def named_type(self, first: Token, second: Token | None) -> syntax.ArgumentType:
        if second is not None:
            return syntax.ObjectType(str(second), str(first))
        return _TYPES.get(first.lower()) or syntax.ObjectType(str(first))

    def set_type(self, brace: Token, letters: Token | None) -> syntax.ArgumentType:
        _at_most(brace, len(letters or ""), limits.MAX_SET_LETTERS, "MAX_SET_LETTERS", "letters")
        return _made(brace, syntax.SetType, str(letters or ""))

    def entry(
        self, head: _Head, credentials: tuple[syntax.Credential, ...] | None, *rest: _Clause | ParsedPart | None
    ) -> syntax.Statement:
        clauses = cast(Sequence[_Clause], rest[:-1])
        electors = tuple(clause for _, clause in clauses if isinstance(clause, syntax.Elector))
        revokers = [(at, clause) for at, clause in clauses if isinstance(clause, syntax.Revoker)]
        last = clauses[-1][0] if clauses else None
        _at_most(last, len(electors), limits.MAX_CREDENTIALS, "MAX_CREDENTIALS", "electors")
        _at_most(last, len(revokers), limits.MAX_CREDENTIALS, "MAX_CREDENTIALS", "revokers")
        if len({clause.starred for _, clause in revokers}) > 1:
            at = next(at for at, clause in revokers if clause.starred is not revokers[0][1].starred)
            remedy = "they revoke together: write the star on all of them, or on none"
            raise refusal(at, "one `|>` has a star, and another has none", remedy)
        asked = tuple(clause for _, clause in revokers)
        return syntax.Statement(head.role, credentials or (), electors, asked, _constraint(rest[-1]), asked=head.asked)

    def head(self, name: Token, opened: Token | None, *given: tuple[ParsedPart, bool] | None) -> _Head:
        terms = [one for one in given if one is not None]
        if opened is not None:
            _at_most(opened, len(terms), limits.MAX_ROLE_ARGUMENTS, "MAX_ROLE_ARGUMENTS", "arguments")
        asked = tuple(place for place, (_, is_asked) in enumerate(terms) if is_asked)
        return _Head(RoleRef(str(name), tuple(cast(Term, part.node) for part, _ in terms)), asked)

    def given(self, asks: Token | None, part: ParsedPart) -> tuple[ParsedPart, bool]:
        if asks is not None and (not isinstance(part.node, Variable) or part.node.name == "_"):
            raise refusal(asks, "only a variable is asked for", "write it like `?p`, or leave the `?` out")
        return part, asks is not None

    def credentials(self, *parts: syntax.Credential | Token) -> tuple[syntax.Credential, ...]:
        return _joined(parts)

    def credential(self, role: RoleRef, star: Token | None) -> syntax.Credential:
        return syntax.Credential(role, star is not None)

    def elector(self, at: Token, wish: Token | None, role: RoleRef, star: Token | None) -> _Clause:
        return at, syntax.Elector(role, wish is not None, star is not None)

    def revoker(self, at: Token, star: Token | None, role: RoleRef) -> _Clause:
        return at, syntax.Revoker(role, star is not None)

    def event(
        self,
        minus: Token | None,
        template: syntax.EventTemplate,
        roles: tuple[RoleRef, ...] | None,
        constraint: ParsedPart | None,
    ) -> syntax.EventEntry:
        return syntax.EventEntry(template, roles or (), _constraint(constraint), minus is not None)

    def template(self, type: Token, arguments: _Arguments | None) -> syntax.EventTemplate:
        terms = arguments.terms if arguments else ()
        if arguments and any(isinstance(term, tree.Meta) for term in terms):
            remedy = "compare it after the `:`"
            raise refusal(arguments.at, "an event has only variables and constants as arguments", remedy)
        name = parse.named(type, parse.unquoted(type)) if type.type == "QUOTED" else str(type)
        return syntax.EventTemplate(name, cast(tuple[Variable | Constant, ...], terms))

    def required(self, *parts: RoleRef | Token) -> tuple[RoleRef, ...]:
        return _joined(parts)


def _made(at: Token, make: Callable[..., _T], *args: object) -> _T:
    """What the model makes of this, its refusal with a place."""
    try:
        return make(*args)
    except BadDefinition as error:
        raise BadDefinition(error.message, place=f"line {at.line}, column {at.column}", remedy=error.remedy) from None


def _constraint(part: Any) -> Condition:
    return as_condition(part) if part is not None else tree.TRUE


def _joined(parts: Sequence[Any]) -> tuple[Any, ...]:
    """What stands between the `&`s."""
    for joint in parts[1::2]:
        if joint == "and":
            raise refusal(joint, "`and` stands between credentials", "write `&` there")
    found = tuple(parts[::2])
    _at_most(parts[1] if parts[1:] else None, len(found), limits.MAX_CREDENTIALS, "MAX_CREDENTIALS", "credentials")
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


# -- the language ---------------------------------------------------------------------------------------------


def _check(token: Token, start: str) -> None:
    if token.type in _NAMES and len(parse.unquoted(token) if token.type == "QUOTED" else token) > limits.MAX_NAME_CHARS:
        raise refusal(token, f"the name `{brief(str(token))}` is longer than MAX_NAME_CHARS ({limits.MAX_NAME_CHARS})")
    if token.type == "STAR" and start == "event":
        remedy = "leave it out: what event policy gives ends with the credential anyway"
        raise refusal(token, "event policy has no `*`", remedy)


def _remedy(wrong: Unexpected) -> str | None:
    return (
        parse.of_quotes(wrong)
        or _of_parts(wrong)
        or parse.of_words(wrong)
        or parse.of_letters(wrong.seen, wrong.accepts)
        or _of_lines(wrong)
    )


def _of_parts(wrong: Unexpected) -> str | None:
    shown, accepts = wrong.shown, wrong.accepts
    if shown == "<" and accepts & {"_ARROW", "_IMPLIES"}:
        return "write `<-` or `<=`; `--` begins a comment"
    if "_ARROW" in accepts and shown[0] in "<=⇐":
        return "write `<-`: a role is entered by it, `<=` is of event policy"
    if "_IMPLIES" in accepts and shown[0] in "<←":
        return "write `<=`: event policy has it where a rolefile has `<-`"
    if shown == "*" and any(token.type == "REVOKE" for token in wrong.seen):
        return "put the star directly after `|>`"
    if "AND" in accepts and "ELECT" in accepts and shown in (",", "and"):
        return "write `&` between credentials"
    if shown in (".", "[") and "COMPARE" in accepts:
        return "a role of another service is a credential; put it before the `:`"
    if shown[0] == "$":
        return "leave the `$` out: a plain name is a variable"
    return "an argument is never null" if shown in ("null", "is") else None


def _of_lines(wrong: Unexpected) -> str | None:
    before, arrow = wrong.text[: wrong.at], wrong.shown in ("<-", "←", "<=", "⇐")
    if not (arrow or wrong.shown[0].isalpha() or wrong.shown[0] in "_`-") or "$END" not in wrong.accepts:
        return None
    if "\n" in before and (arrow or not before.rpartition("\n")[2].strip()):
        return "a line that is indented more deeply continues the statement before it; end that with `;` or indent less"
    return "end a statement with `;` or a new line"


_TERMS: Final = LITERALS | {"LBRACE", "NAME", "META"}
_VALUES: Final = _TERMS | {"COUNT", "CLOCK", "LPAR"}

_LANGUAGE: Final = Language(
    files=("common", "expressions", "rolefiles"),
    builder=_RolefileBuilder,
    starts=get_args(Start),
    classes=(
        ("a condition", _VALUES | {"NOT"}),
        ("a value", _VALUES),
        ("a variable or a constant", _TERMS),
        ("a constant", LITERALS | {"LBRACE"}),
        ("a constant", LITERALS),
        ("a comparison such as `=` or `in`", frozenset({"EQUAL", "COMPARE", "IN", "TEXT_OP"})),
        ("`+` or `-`", frozenset({"PLUS", "MINUS", "SET_OP"})),
        ("a group name", frozenset({"GROUP_NAME", "TEXT"})),
        ("`<|`, `|>`", frozenset({"ELECT", "REVOKE"})),
        ("a type", frozenset({"NAME", "LBRACE"})),
    ),
    words={
        "_IMPORT": "`import`", "_DEF": "`def`", "EVENT": "an event", "NAME": "a name", "_ARROW": "`<-`",
        "_IMPLIES": "`<=`", "LBRACE": "a set such as `{'a', 'b'}`", "LETTERS": "letters", "TEXT": "quoted text",
        "NUMBER": "a number", "_DOTS": "`..`", "_DOT": "`.`", "LPAR": "`(`", "LBRACKET": "`[`", "_RBRACKET": "`]`",
        "_COMMA": "`,`", "_RPAR": "`)`", "_RBRACE": "`}`", "STAR": "`*`", "AND": "`&`", "_OR": "`or`", "_COLON": "`:`",
        "$END": "the end of the statement",
    },
    opens=frozenset({"PLUS", "MINUS", "LPAR", "BARE_GROUP", "_GROUP", "BIND"}),
    instead={
        "==": "=", "===": "=", "<>": "!=", "!==": "!=", "=!": "!=", "=<": "<=", "=>": ">=", "&&": "and", "||": "or",
        "like": "contains", "between": "in low..high", ":-": "<-", ":=": "=", "->": "<-", "<--": "<-",
    },
    signs=re.compile(r"[=<>!&|:\-]+"),
    remedy=_remedy,
    check=_check,
)  # fmt: skip
