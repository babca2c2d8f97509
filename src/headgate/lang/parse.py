"""From the text of an expression to its condition.

Guarantees: `parse_condition` ends in a `Condition` or a `BadExpression` on any text whatever, in time linear
in its length and without recursion. A condition made here is flat (no conjunction directly in a conjunction,
nor a disjunction in a disjunction), nests no deeper than `MAX_EXPRESSION_DEPTH`, and holds only D2's values.
Leaves out: whether the names exist and the kinds agree (`decide`). Words are case-sensitive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, NamedTuple, cast

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken, v_args

from headgate.lang.literals import RESERVED, beside
from headgate.lang.reading import (
    CURLY,
    SHOWN,
    check_text,
    converted,
    expected,
    named,
    number,
    one_line,
    place_of,
    refusal,
    unquoted,
    zone_named,
)
from headgate.model import conditions as tree
from headgate.model.conditions import CompareOp, Condition, Constant, Operand, all_of, any_of, plain
from headgate.model.errors import BadExpression
from headgate.model.limits import MAX_EXPRESSION_CHARS, MAX_EXPRESSION_DEPTH
from headgate.model.values import Kind, Value, brief


def parse_condition(text: str) -> Condition:
    """The condition that an expression says, or `bad-expression` with its place."""
    check_text(text, MAX_EXPRESSION_CHARS, "MAX_EXPRESSION_CHARS")
    if not text.strip():
        raise BadExpression("the expression is empty", place="line 1, column 1", remedy="write a condition")
    parser: Any = _parser().parse_interactive(text)  # half of its methods carry no types
    seen: list[Token] = []
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):
            parser.feed_token(token)
            seen.append(token)
        return cast(Condition, parser.feed_eof(seen[-1]))
    except UnexpectedInput as error:
        # The parser may have reduced on its way to the error, and would then accept less than it did before.
        parser = _parser().parse_interactive("")
        for token in seen:
            parser.feed_token(token)
        raise _complaint(text, error, seen, parser.accepts()) from None


@cache
def _parser() -> Lark:
    grammar = resources.files("headgate.lang").joinpath("expression.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=_Builder())


# Syntax to model: one method for each rule or alias of the grammar, called bottom-up as it is recognised.


class _Part(NamedTuple):
    """A condition with the nesting of its text, and the token that opens its outermost nesting."""

    condition: Condition
    depth: int = 0
    opened: Token | None = None


def _nest(make: Callable[..., Condition], parts: Sequence[_Part], opened: Token | None = None) -> _Part:
    deepest = max(parts, key=lambda part: part.depth)
    at = opened or deepest.opened
    if deepest.depth >= MAX_EXPRESSION_DEPTH:
        message = f"the expression nests deeper than MAX_EXPRESSION_DEPTH ({MAX_EXPRESSION_DEPTH})"
        raise refusal(at, message, "take out needless parentheses, or split it")
    return _Part(make(*(part.condition for part in parts)), deepest.depth + 1, at)


@v_args(inline=True)
class _Builder(Transformer[Token, Condition]):
    def start(self, part: _Part) -> Condition:
        return part.condition

    def disjunction(self, *parts: _Part) -> _Part:
        return _nest(any_of, parts) if len(parts) > 1 else parts[0]

    def conjunction(self, *parts: _Part) -> _Part:
        return _nest(all_of, parts) if len(parts) > 1 else parts[0]

    def negation(self, opened: Token, part: _Part) -> _Part:
        return _nest(tree.Not, (part,), opened)

    def parenthesis(self, opened: Token, part: _Part) -> _Part:
        return _nest(all_of, (part,), opened)

    def truth(self, word: Token) -> _Part:
        return _Part(tree.TRUE if word.type == "TRUE" else tree.FALSE)

    def flag(self, attribute: tree.Attribute) -> _Part:
        return _Part(tree.Compare("=", attribute, Constant(True)))

    def compare(self, left: Operand, op: Token, right: Operand) -> _Part:
        left, right = _beside(op, left, right), _beside(op, right, left)
        return _Part(tree.Compare(cast(CompareOp, str(op)), left, right))

    def in_range(self, operand: Operand, op: Token, low: Operand, high: Operand) -> _Part:
        ends = _beside(op, low, operand), _beside(op, high, operand)
        return _Part(tree.InRange(_beside(op, operand, low, high), *ends))

    def equals_range(self, operand: Operand, op: Token, low: Operand, high: Operand) -> _Part:
        return self.in_range(operand, op, low, high)

    def in_set(self, operand: Operand, op: Token, values: tuple[Value, ...]) -> _Part:
        chosen = (_beside(op, Constant(value), operand) for value in values)
        return _Part(tree.InSet(operand, tuple(plain(one.value) for one in chosen if isinstance(one, Constant))))

    def in_group(self, operand: Operand, _: Token, group: Token) -> _Part:
        name = unquoted(group) if group.type == "TEXT" else str(group)
        return _Part(tree.InGroup(operand, named(group, name)))

    def text_match(self, left: Operand, op: Token, right: Operand) -> _Part:
        return _Part(tree.TextMatch(cast(tree.TextOp, " ".join(op.split())), left, right))

    def is_null(self, operand: Operand) -> _Part:
        return _Part(tree.IsNull(operand))

    def is_not_null(self, operand: Operand, _: Token) -> _Part:
        return _Part(tree.Not(tree.IsNull(operand)))

    def related(self, name: str, _: Token, args: tuple[Operand, ...]) -> _Part:
        return _Part(tree.Related(name, args))

    def predicate(self, name: str, _: Token, args: tuple[Operand, ...] | None) -> _Part:
        return _Part(tree.Predicate(name, args or ()))

    def items(self, *items: Operand | Value) -> tuple[Operand | Value, ...]:
        return items

    def constant(self, value: Value) -> Constant:
        return Constant(value)

    def attribute(self, name: str) -> tree.Attribute:
        return tree.Attribute(name)

    def meta(self, token: Token) -> tree.Meta:
        name = token[1:]
        if name not in ("time", "publisher", "rate", "origin"):
            remedy = "write `@time`, `@publisher`, `@rate` or `@origin`"
            raise refusal(token, f"there is no `{brief(str(token))}`", remedy)
        return tree.Meta(cast(Literal["time", "publisher", "rate", "origin"], name))

    def subject(self, token: Token) -> tree.Subject:
        name = token[1:]
        return tree.Subject(named(token, unquoted(name) if name.startswith("`") else name))

    def clock(self, part: Token, _: Token, of: tree.Attribute | tree.Meta, zone: Token | None) -> tree.ClockPart:
        if isinstance(of, tree.Meta) and of.name != "time":
            raise refusal(part, f"`{part}` takes a time, not `@{of.name}`", "write `@time`")
        return tree.ClockPart(cast(tree.Clock, str(part)), of, zone_named(zone) if zone is not None else "UTC")

    def name(self, token: Token) -> str:
        return named(token, unquoted(token)) if token.type == "QUOTED" else str(token)

    def text(self, token: Token) -> str:
        return unquoted(token)

    def number(self, token: Token) -> int | float:
        return number(token, str(token))

    def timestamp(self, token: Token) -> Value:
        return converted(token, Kind.TIMESTAMP)

    def binary(self, token: Token) -> Value:
        return converted(token, Kind.BYTES)

    def boolean(self, word: Token) -> bool:
        return word.type == "TRUE"


def _beside(at: Token, operand: Operand, *others: Operand) -> Operand:
    try:
        return beside(operand, *others)
    except BadExpression as error:
        raise refusal(at, error.message, error.remedy) from None


# Complaints.

_LITERALS: Final = frozenset({"TEXT", "NUMBER", "_TIMESTAMP", "_BYTES", "TRUE", "FALSE"})
_REFERENCES: Final = frozenset({"NAME", "META", "SUBJECT"})
_OPERANDS: Final = _LITERALS | _REFERENCES | {"CLOCK"}
_CLASSES: Final[Sequence[tuple[str, frozenset[str]]]] = (
    ("a condition", _OPERANDS | {"NOT", "LPAR", "_PREDICATE"}),
    ("an attribute or a literal", _OPERANDS),
    ("a literal", _LITERALS),
    ("a comparison such as `=` or `in`", frozenset({"EQUAL", "COMPARE", "IN", "_IS", "TEXT_OP"})),
    ("a group name", frozenset({"GROUP_NAME", "TEXT"})),
)
"""Terminals that come together, with the words for them; a wider class before a narrower."""

_WORDS: Final[Mapping[str, str]] = {
    "NAME": "a name", "META": "`@time`", "_LBRACE": "a set such as `{'a', 'b'}`", "_GROUP": "`group`",
    "TEXT": "quoted text", "_DOTS": "`..`", "_NULL": "`null`", "NOT": "`not null`", "LPAR": "`(`",
    "_COMMA": "`,`", "_RPAR": "`)`", "_RBRACE": "`}`", "_AND": "`and`", "_OR": "`or`",
    "$END": "the end of the expression",
}  # fmt: skip
"""The words for each other terminal, in the order in which to name them."""

_INSTEAD: Final[Mapping[str, str]] = {
    "==": "=", "===": "=", "<>": "!=", "!==": "!=", "=!": "!=", "=<": "<=", "=>": ">=", "!": "not",
    "&&": "and", "&": "and", "||": "or", "|": "or", "like": "contains", "between": "in low..high",
}  # fmt: skip
"""Operators of other languages, and what is meant."""

_SIGNS: Final = re.compile(r"[=<>!&|]+")


def _complaint(text: str, error: UnexpectedInput, seen: Sequence[Token], accepts: Set[str]) -> BadExpression:
    """Say which token stands where it cannot, what could stand there, and what was probably meant."""
    token = error.token if isinstance(error, UnexpectedToken) else None
    could = expected(accepts - {"QUOTED"}, _CLASSES, _WORDS, frozenset({"LPAR"}))
    if token is not None and token.type == "$END":
        place = place_of(text, len(text.rstrip()))
        return BadExpression(f"unexpected end, expected {could}", place=place, remedy=_miscased(seen))
    at = cast(int, error.pos_in_stream if token is None else token.start_pos)
    unexpected = str(token) if token is not None else cast(re.Match[str], SHOWN.match(text, at)).group()
    signs = next((m for m in _SIGNS.finditer(text) if m.start() <= at < m.end()), None)
    if signs is not None and signs.group() in _INSTEAD:
        unexpected, at = signs.group(), signs.start()
    message = f"unexpected `{one_line(brief(unexpected))}`, expected {could}"
    return BadExpression(message, place=place_of(text, at), remedy=_remedy(text, at, unexpected, seen, accepts))


def _remedy(text: str, at: int, unexpected: str, seen: Sequence[Token], accepts: Set[str]) -> str | None:
    before = seen[-1] if seen else Token("", "")
    if unexpected in _INSTEAD:
        return f"write `{_INSTEAD[unexpected]}`"
    if unexpected == "null":
        operand = one_line(brief(str(seen[-2]))) if seen[1:] and seen[-2].type in _REFERENCES else "x"
        return f"write `{operand} is not null`" if before == "!=" else f"write `{operand} is null`"
    if unexpected == "not" and "IN" in accepts:
        return "write `not` before the whole comparison, as in `not x in {1, 2}`"
    if unexpected.lower() in RESERVED - {unexpected}:
        return f"write `{unexpected.lower()}`, in lower case"
    if unexpected in ("true", "false") and before == "is":
        return f"write `= {unexpected}`"
    if unexpected == "(" and before == "in":
        return "write a set in braces, as in `x in {1, 2}`"
    if unexpected == ".." and "_DOTS" not in accepts:
        return "write a range as `x in 4..10`, or `not x in 4..10`"
    if unexpected in CURLY:
        return "write straight quotes"
    if before.type in ("TEXT", "QUOTED") and at == before.end_pos:
        return "write a quote inside quotes twice"
    if unexpected in "'\"`":
        return "close the quotes"
    if unexpected == "." and text[at + 1 : at + 2].isdigit():
        return f"write a digit before the point, as in `0.{text[at + 1]}`"
    return _miscased(seen)


def _miscased(seen: Sequence[Token]) -> str | None:
    wrong = next((t for t in seen if t.type == "NAME" and t.lower() in RESERVED), None)
    return f"write `{wrong.lower()}`, in lower case" if wrong is not None else None
