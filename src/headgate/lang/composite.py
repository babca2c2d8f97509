"""Composite events and aggregation blocks as text, and back (OASIS 6.5, 6.10).

Guarantees: `parse_composite` ends in a tree or in `bad-expression` on any text whatever; a refusal is one line with its
place and what was expected. A tree made here nests no deeper than `MAX_EXPRESSION_DEPTH` and has at most
`MAX_COMPOSITE_PARTS` parts. For each such tree `parse_composite(render_composite(c)) == c`.
Leaves out: whether types exist and kinds agree (`decide.composite_check`). Comments are written as in rolefiles.

    >>> render_composite(parse_composite("$Seen(b,r1);Seen(b,r)-Seen(b,r1)"))
    '$Seen(b, r1); Seen(b, r) - Seen(b, r1)'
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, Final, assert_never, cast

from lark import Token, v_args

from headgate.lang import parse
from headgate.lang.parse import Language, Name, ParsedPart, Passage, Unexpected, as_expression, check_text, refusal
from headgate.lang.render import render_free
from headgate.lang.rolefile import ExpressionBuilder, blank_comments
from headgate.model import composite as model
from headgate.model import expressions as tree
from headgate.model.composite import Composite, Statement, check_size
from headgate.model.errors import BadExpression, TypeMismatch
from headgate.model.expressions import Condition, Constant, Variable
from headgate.model.limits import MAX_COMPOSITE_CHARS, MAX_DELAY_SECONDS
from headgate.model.values import Kind, Value, brief, conform

_KINDS: Final = {
    "int": Kind.FLOAT, "float": Kind.FLOAT, "string": Kind.STRING, "bool": Kind.BOOL, "time": Kind.TIMESTAMP,
}  # fmt: skip
_NULL: Final = Constant(None)


def parse_composite(text: str) -> Composite:
    """The composite event that a text says, or `bad-expression` with its place."""
    check_text(text, MAX_COMPOSITE_CHARS, "MAX_COMPOSITE_CHARS")
    blanked = blank_comments(text)
    if not blanked.strip():
        remedy = "write a composite event such as `$Alarm(); Seen(b, r) - AllClear()`"
        raise BadExpression("the expression is empty", place="line 1, column 1", remedy=remedy)
    made = cast(Composite, _LANGUAGE.read(Passage(blanked), "composite"))
    check_size(made)
    return made


def parse_row(text: str) -> tree.Related:
    """A row of a relation, of variables and literals: `failed(user, 'login')`."""
    made = parse_composite(text)
    remedy = "write a relation with variables and literals, such as `failed(user)`"
    if not isinstance(made, model.Template) or made.side or None in made.parameters:
        raise BadExpression(f"`{brief(text)}` is no row of a relation", place="line 1, column 1", remedy=remedy)
    return tree.Related(made.type, tuple(one for one in made.parameters if one is not None))


# -- syntax to tree -------------------------------------------------------------------------------------------


class _Assigned:
    """`t <- e` among the expressions in braces, until it is known where it stands."""

    def __init__(self, name: str, value: tree.Operand) -> None:
        self.name = name
        self.value = value


def _place(token: Token | None) -> str | None:
    return None if token is None else f"line {token.line}, column {token.column}"


@v_args(inline=True)
class _CompositeBuilder(ExpressionBuilder):
    """The operators of composite events, templates, and the statements of blocks."""

    metas = ("",)
    meta_remedy = "write `@` for the time of the matched event; what a gateway knows is not seen by a pattern"

    def as_condition(self, part: ParsedPart) -> Condition:
        match part.node:
            case Variable() | tree.Apply(function=str()) if not (
                isinstance(part.node, tree.Apply) and not part.node.function.startswith(".")
            ):
                return tree.Compare("!=", cast(tree.Operand, part.node), _NULL)
            case _:
                return super().as_condition(part)

    def binds(self, left: ParsedPart, op: Token, right: ParsedPart) -> ParsedPart:
        if not isinstance(left.node, Variable):
            raise refusal(op, f"`{op}` assigns to a variable", "write `t <- @ + 60`, or `< -` with a space")
        return ParsedPart(cast(Any, _Assigned(left.node.name, as_expression(right))), left.at)

    # -- operators --------------------------------------------------------------------------------------------

    def then(self, left: Composite, settings: dict[str, float] | None, right: Composite) -> Composite:
        if settings and "delay" in settings:
            raise BadExpression("`;` has no Delay", remedy="state it after a `-`")
        return model.Sequence(left, right, **(settings or {}))

    def either(self, left: Composite, _: Token, right: Composite) -> Composite:
        return model.Either(left, right)

    def without(self, left: Composite, _: Token, settings: dict[str, float] | None, right: Composite) -> Composite:
        return model.Without(left, right, **(settings or {}))

    def whenever(self, _: Token, of: Composite) -> Composite:
        return model.Whenever(of)

    def nothing(self, _: Token) -> Composite:
        return model.NullEvent()

    def grouped(self, _: Token, of: Composite) -> Composite:
        return of

    def settings(self, brace: Token, *given: tuple[Token, float]) -> dict[str, float]:
        names = [name for name, _ in given]
        if len(set(names)) < len(names):
            raise refusal(brace, f"`{names[-1]}` is stated twice")
        return {str(name).lower(): value for name, value in given}

    def setting(self, name: Token, _: Token, number: Token) -> tuple[Token, float]:
        value = parse.number_in(number, str(number))
        if name == "Delay" and not 0 <= value <= MAX_DELAY_SECONDS:
            raise refusal(number, f"a delay of `{number}` seconds is past MAX_DELAY_SECONDS ({MAX_DELAY_SECONDS})")
        if name == "Probability" and not 0 < value < 1:
            raise refusal(number, f"`{number}` is no probability", "write one between 0 and 1, as in `0.99`")
        return name, value

    # -- templates --------------------------------------------------------------------------------------------

    def template(
        self, type: Token, _: Token, given: tuple[ParsedPart | None, ...] | None, side: Any | None
    ) -> Composite:
        parameters = tuple(None if part is None else cast(Any, part.node) for part in given or ())
        if type != "AbsTime":
            return model.Template(str(type), parameters, side or (), _place(type))
        if len(parameters) != 1 or parameters[0] is None:
            raise refusal(type, "`AbsTime` takes one time", "write `AbsTime(t)` or `AbsTime(7)`")
        return model.Timer(parameters[0], side or (), _place(type))

    def params(self, *parts: ParsedPart | None) -> tuple[ParsedPart | None, ...]:
        return parts

    def anything(self, _: Token) -> None:
        return None

    def side(self, _: Token, *parts: ParsedPart) -> tuple[model.SideExpression, ...]:
        return tuple(self._side(part) for part in parts)

    def _side(self, part: ParsedPart) -> model.SideExpression:
        node: Any = part.node
        if isinstance(node, _Assigned):
            _check_side(node.value, part.at)
            return model.SideAssignment(node.name, node.value, _place(part.at))
        if isinstance(node, Variable):
            remedy = f"compare it, as in `{node.name} = 'a'`"
            raise refusal(part.at, f"`{brief(node.name)}` alone is no condition", remedy)
        condition = self.as_condition(part)
        _check_side(condition, part.at)
        return model.SideTest(condition, _place(part.at))

    # -- aggregation ------------------------------------------------------------------------------------------

    def aggregate(self, function: Token, value: Token | None, _: Token, of: Composite, by: Any | None) -> Composite:
        if (value is not None) is not (str(function) in model.OF_VALUES):
            remedy = f"write `{function} x (...)`" if value is None else f"write `{function} (...)`"
            message = f"`{function}` is {'of the values of a variable' if value is None else 'of no variable'}"
            raise refusal(function, message, remedy)
        name: Any = str(function)
        return model.Aggregate(name, of, None if value is None else str(value), by or (), _place(function))

    def by(self, *names: Token) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(str, names)))

    def block(self, brace: Token, *parts: Any) -> Composite:
        local = [part for part in parts if isinstance(part, tuple)]
        names = [name for name, _ in local]
        if len(set(names)) < len(names):
            raise refusal(brace, f"`{names[-1]}` is declared twice")
        queues = tuple(part for part in parts if isinstance(part, model.BlockQueue))
        return model.Block(tuple(local), queues, (), _place(brace))

    def declaration(self, kind: Token, name: Token, _: Token, given: ParsedPart | Token) -> tuple[str, Constant]:
        if str(kind) == "pt" or isinstance(given, Token):
            if str(kind) != "pt" or not isinstance(given, Token):
                raise refusal(name, f"`{name}` does not begin so", "write `pt q = null` or `int n = 0`")
            return str(name), _NULL
        value = tree.plain(cast(Constant, given.node).value)
        try:
            made = conform(_KINDS[str(kind)], value)
        except TypeMismatch as error:
            raise refusal(name, error.message, error.remedy) from None
        return str(name), Constant(made if kind == "time" else value)

    def queue(self, of: Composite, *lists: tuple[Statement, ...] | None) -> model.BlockQueue:
        event, var, end = (statements or () for statements in lists[-3:])
        return model.BlockQueue(of, event, var, end)

    def statements(self, *parts: Statement | None) -> tuple[Statement, ...]:
        return tuple(part for part in parts if part is not None)

    def empty(self) -> None:
        return None

    def choose(self, _: Token, opened: Token, condition: ParsedPart, *parts: Any) -> Statement:
        body, *branches, otherwise = parts
        every = [(self._if(condition, opened), body), *branches]
        return model.Choose((*every, *(() if otherwise is None else ((None, otherwise),))))

    def branch(self, opened: Token, condition: ParsedPart, body: Any) -> Any:
        return self._if(condition, opened), body

    def _if(self, condition: ParsedPart, opened: Token) -> Condition:
        if isinstance(cast(Any, condition.node), _Assigned):
            raise refusal(opened, "`<-` stands in a condition", "write `=` to compare")
        return self.as_condition(condition)

    def otherwise(self, body: Any) -> Any:
        return body

    def body(self, _: Token, statements: Any) -> Any:
        return statements

    def single(self, statement: Statement) -> Any:
        return (statement,)

    def loop(self, _: Token, __: Token, name: Token, ___: Token, first: ParsedPart, body: Any) -> Statement:
        return model.Loop(str(name), as_expression(first), body)

    def assign(self, target: ParsedPart, op: Token, value: ParsedPart) -> Statement:
        place = as_expression(target)
        if not isinstance(place, Variable) and not (isinstance(place, tree.Apply) and place.function.startswith(".")):
            raise refusal(op, "only a variable or a field is assigned to", "write `n = n + 1` or `hd.t = n`")
        return model.Assign(place, as_expression(value))

    def accept(self, _: Token, record: ParsedPart) -> Statement:
        return model.Accept(as_expression(record))

    def kill(self, _: Token, record: ParsedPart | None) -> Statement:
        return model.Kill(None if record is None else as_expression(record))

    def field(self, of: ParsedPart, field: Token) -> ParsedPart:
        return self._above(tree.Apply("." + field[1:].strip(), (as_expression(of),)), of.at, [of])

    def null_pointer(self, token: Token) -> ParsedPart:
        return ParsedPart(_NULL, token)

    def name(self, token: Token) -> Name:
        if token.type == "QUOTED":
            raise refusal(token, "a variable has a plain name")
        return super().name(token)


def _check_side(node: tree.Node, at: Token | None) -> None:
    """Refuse what only a block or a rolefile may say."""
    match cast(Any, node):
        case _Assigned():
            raise refusal(at, "`<-` stands inside a condition", "put a comma before it")
        case Constant(None):
            raise refusal(at, "a variable is never null", "leave the comparison out")
        case tree.Starred():
            raise refusal(at, "`*` is of rolefiles", "leave it out")
        case tree.Count():
            raise refusal(at, "memberships are not counted in a pattern")
        case tree.Apply(name):
            remedy = "compare attributes and variables; a relation is a condition of its own"
            raise refusal(at, f"`{brief(name)}` is no value of a pattern", remedy)
        case Constant(frozenset()):
            raise refusal(at, "a set of letters is of rolefiles", "quote what is in the braces")
    for part in (*tree.parts(node), *tree.operands(node)):
        _check_side(part, at)


# -- the language ---------------------------------------------------------------------------------------------


def _remedy(wrong: Unexpected) -> str | None:
    if wrong.shown == "," and "_SEMICOLON" in wrong.accepts:
        return "write `;` for `then`"
    if wrong.shown[0].isalpha() and "LPAR" not in wrong.accepts and "WHENEVER" in wrong.accepts:
        return f"a template has parentheses, as in `{brief(wrong.shown)}()`"
    if wrong.shown[0] == "$" and "WHENEVER" not in wrong.accepts:
        return "a pattern sees no attributes of subjects; `$` stands before an event"
    if wrong.shown == "'":
        return "names have no primes: write `r1`"
    return parse.of_quotes(wrong) or parse.of_words(wrong)


_EVENTS: Final = frozenset({"EVENT", "NULL", "LPAR", "LBRACE", "WHENEVER", "AGGREGATE"})
_VALUES: Final = parse.LITERALS | {"NAME", "META", "LBRACE", "COUNT", "CLOCK", "LPAR"}

_LANGUAGE: Final = Language(
    files=("common", "expressions", "composite"),
    builder=_CompositeBuilder,
    starts=("composite",),
    classes=(
        ("an event", _EVENTS),
        ("a condition", _VALUES | {"NOT"}),
        ("a value", _VALUES),
        ("a comparison such as `=` or `in`", frozenset({"EQUAL", "COMPARE", "IN", "TEXT_OP"})),
        ("`+` or `-`", frozenset({"PLUS", "MINUS", "SET_OP"})),
        ("a statement", frozenset({"ACCEPT", "KILL", "IF", "LOOP"})),
    ),
    words={
        "EVENT": "a template such as `Seen(b, r)`", "NAME": "a name", "STAR": "`*`", "_EXPR": "`expr:`",
        "_ON_EVENT": "`event:`", "_ON_VAR": "`var:`", "_ON_END": "`end:`", "WITHOUT": "`-`", "EITHER": "`|`",
        "_SEMICOLON": "`;`", "LBRACE": "`{`", "LPAR": "`(`", "_BY": "`by`", "FIELD": "a field such as `.x`",
        "NUMBER": "a number", "TEXT": "quoted text", "_DOTS": "`..`", "EQUAL": "`=`", "_COMMA": "`,`", "_RPAR": "`)`",
        "_RBRACE": "`}`", "AND": "`and`", "_OR": "`or`", "$END": "the end of the expression",
    },
    opens=frozenset({"PLUS", "MINUS", "LPAR", "BARE_GROUP", "_GROUP", "BIND"}),
    instead={"&&": "and", "||": "or", "->": ";", ":=": "=", "<>": "!=", "=>": ">=", "=<": "<="},
    signs=re.compile(r"[=<>!&|:]+|->"),
    remedy=_remedy,
)  # fmt: skip


# -- tree to text ---------------------------------------------------------------------------------------------


class _Binds(IntEnum):
    """How tightly an operator binds."""

    THEN = 0
    OR = 1
    WITHOUT = 2
    WHENEVER = 3


def render_composite(c: Composite) -> str:
    """The text of a composite event, without needless parentheses."""
    return _render(c, _Binds.THEN)


def _render(c: Composite, place: int) -> str:
    match c:
        case model.Template(type, parameters, side):
            given = ", ".join("*" if one is None else render_free(one) for one in parameters)
            return f"{type}({given}){_render_side(side)}"
        case model.Timer(when, side):
            return f"AbsTime({render_free(when)}){_render_side(side)}"
        case model.NullEvent():
            return "null"
        case model.Whenever(of):
            return f"${_render(of, _Binds.WHENEVER)}"
        case model.Sequence(left, right, probability):
            settings = _render_settings(None, probability)
            text, own = f"{_render(left, _Binds.THEN)};{settings} {_render(right, _Binds.OR)}", _Binds.THEN
        case model.Either(left, right):
            text, own = f"{_render(left, _Binds.OR)} | {_render(right, _Binds.WITHOUT)}", _Binds.OR
        case model.Without(left, right, delay, probability):
            settings = _render_settings(delay, probability)
            text = f"{_render(left, _Binds.WITHOUT)} -{settings} {_render(right, _Binds.WHENEVER)}"
            own = _Binds.WITHOUT
        case model.Aggregate(function, of, value, by):
            named = f"{function} {value} " if value else f"{function} "
            return f"{named}({_render(of, _Binds.THEN)}){' by ' + ', '.join(by) if by else ''}"
        case model.Block(local, queues):
            declared = "".join(f"{_declared(start.value)} {name} = {render_free(start)}; " for name, start in local)
            return f"{{ {declared}{' '.join(map(_render_queue, queues))} }}"
        case _:
            assert_never(c)
    return text if own >= place else f"({text})"


def _declared(start: tree.Argument) -> str:
    match cast(Value, start):
        case None:
            return "pt"
        case bool():
            return "bool"
        case int() | float():
            return "int"
        case str():
            return "string"
        case _:
            return "time"


def _render_settings(delay: float | None, probability: float | None) -> str:
    given = [
        f"{name} = {value!r}" for name, value in (("Delay", delay), ("Probability", probability)) if value is not None
    ]
    return f" {{{', '.join(given)}}}" if given else ""


def _render_side(side: tuple[model.SideExpression, ...]) -> str:
    texts = [
        f"{one.name} <- {render_free(one.value)}"
        if isinstance(one, model.SideAssignment)
        else render_free(one.condition)
        for one in side
    ]
    return f" {{{', '.join(texts)}}}" if texts else ""


def _render_queue(queue: model.BlockQueue) -> str:
    parts = [f"expr: {_render(queue.of, _Binds.THEN)}"]
    for name, statements in (("event", queue.event), ("var", queue.var), ("end", queue.end)):
        if statements:
            parts.append(f"{name}: {_render_statements(statements)}")
    return " ".join(parts)


def _render_statements(statements: tuple[Statement, ...]) -> str:
    return " ".join(map(_render_statement, statements))


def _render_statement(statement: Statement) -> str:
    match statement:
        case model.Assign(target, value):
            return f"{render_free(target)} = {render_free(value)};"
        case model.Accept(record):
            return f"accept {render_free(record)};"
        case model.Kill(record):
            return "kill;" if record is None else f"kill {render_free(record)};"
        case model.Loop(name, first, body):
            return f"loop ({name} = {render_free(first)}) {{{_render_statements(body)}}}"
        case model.Choose(branches):
            words = ["if", *["elseif"] * len(branches)]
            heads = [
                "else" if condition is None else f"{word} ({render_free(condition)})"
                for word, (condition, _) in zip(words, branches, strict=False)
            ]
            bodies = [_render_statements(body) for _, body in branches]
            return " ".join(f"{head} {{{body}}}" for head, body in zip(heads, bodies, strict=True))
        case _:
            assert_never(statement)
