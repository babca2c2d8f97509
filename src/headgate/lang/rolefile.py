"""From the text of a rolefile, or of event policy, to its syntax (OASIS 3 and 7).

Guarantees: each function ends in a tree, `BadExpression` or `BadDefinition` on any text whatever, in time linear in its
length and without recursion. A tree made here keeps the nesting of its parentheses, nests no deeper than
`MAX_EXPRESSION_DEPTH`, and is within every limit on names, arguments, credentials, letters and statements.
Leaves out: whether names exist and types agree (`roles.rolefiles.types`, `roles.rolefiles.checking`). Words are
case-sensitive, except the types `integer` and `string`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, TypeAlias, cast

from lark import Lark, Token, UnexpectedInput

from headgate.lang.layout import Passage, blank_comments, statements
from headgate.lang.reading import check_text, refusal, unquoted
from headgate.lang.role_builder import as_condition, as_expression, builder
from headgate.lang.role_complaints import complaint
from headgate.model.conditions import Argument, Condition, Constant, Operand, RoleRef
from headgate.model.errors import BadDefinition, BadExpression
from headgate.model.limits import (
    MAX_EXPRESSION_CHARS,
    MAX_NAME_CHARS,
    MAX_ROLE_ARGUMENTS,
    MAX_ROLEFILE_CHARS,
    MAX_STATEMENTS,
)
from headgate.model.rolefiles import (
    Audit,
    Declaration,
    EventEntry,
    EventPolicy,
    Import,
    Representative,
    Rolefile,
    Statement,
)
from headgate.model.values import brief

Start: TypeAlias = Literal["statement", "event", "role", "constraint", "expression", "argument"]

_STARTS: Final[tuple[Start, ...]] = ("statement", "event", "role", "constraint", "expression", "argument")
_NAMES: Final = frozenset({"NAME", "QUOTED", "EVENT", "GROUP_NAME", "BARE_GROUP"})


def parse_rolefile(text: str) -> Rolefile:
    """The rolefile that a text says."""
    items = list(_items(text, "statement"))
    return Rolefile(
        tuple(item for item in items if isinstance(item, Import)),
        tuple(item for item in items if isinstance(item, Declaration)),
        tuple(item for item in items if isinstance(item, Statement)),
        tuple(item for item in items if isinstance(item, Audit)),
    )


def parse_event_policy(text: str) -> EventPolicy:
    """The event policy that a text says."""
    return EventPolicy(tuple(item for item in _items(text, "event") if isinstance(item, EventEntry)))


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


def parse_representative(type: str, parameters: Mapping[str, str]) -> Representative:
    """How event policy sees a type; in the expressions, identifiers are its attributes."""
    if len(parameters) > MAX_ROLE_ARGUMENTS:
        message = f"`{brief(type)}` has {len(parameters)} parameters, past MAX_ROLE_ARGUMENTS ({MAX_ROLE_ARGUMENTS})"
        raise BadDefinition(message)
    made: list[tuple[str, Operand]] = []
    for name, text in parameters.items():
        if not isinstance(name, str) or not name or len(name) > MAX_NAME_CHARS:
            raise BadDefinition(f"`{brief(name)}` is no name of a parameter of `{brief(type)}`")
        if not isinstance(text, str):
            remedy = "write a value such as `Badge(badge)`, in quotes"
            raise BadDefinition(f"`{brief(text)}` is no expression for `{brief(name)}`", remedy=remedy)
        try:
            made.append((name, parse_expression(text)))
        except BadExpression as error:
            raise error.at(f"`{brief(name)}` of `{brief(type)}`") from None
    return Representative(type, tuple(made))


# Reading: token by token, so that a refusal knows what could have stood there.


def _items(text: str, start: Start) -> Iterator[Import | Audit | Declaration | Statement | EventEntry]:
    check_text(text, MAX_ROLEFILE_CHARS, "MAX_ROLEFILE_CHARS")
    for number, passage in enumerate(statements(text), start=1):
        if number > MAX_STATEMENTS:
            message = f"there are more than MAX_STATEMENTS ({MAX_STATEMENTS}) statements"
            raise BadExpression(message, place=f"line {passage.line}, column {passage.column}")
        yield replace(_read(passage, start), line=passage.line)


def _one(text: str, start: Start, remedy: str) -> Any:
    check_text(text, MAX_EXPRESSION_CHARS, "MAX_EXPRESSION_CHARS")
    blanked = blank_comments(text)
    if not blanked.strip():
        raise BadExpression("the text is empty", place="line 1, column 1", remedy=remedy)
    return _read(Passage(blanked), start)


def _read(passage: Passage, start: Start) -> Any:
    parser: Any = _parser().parse_interactive(passage.text, start=start)  # half of its methods carry no types
    seen: list[Token] = []
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):
            seen.append(_checked(_placed(token, passage), start))
            parser.feed_token(token)
        return parser.feed_eof(seen[-1])
    except UnexpectedInput as error:
        if seen and getattr(error, "token", None) is seen[-1]:
            seen.pop()
        # The parser may have reduced on its way to the error, and would then accept less than it did before.
        parser = _parser().parse_interactive("", start=start)
        for token in seen:
            parser.feed_token(token)
        raise complaint(passage, error, seen, frozenset(parser.accepts())) from None


def _placed(token: Token, passage: Passage) -> Token:
    """The token with its place in the whole text."""
    line, column = token.line or 1, token.column or 1
    token.column = column + passage.column - 1 if line == 1 else column
    token.line = line + passage.line - 1
    return token


def _checked(token: Token, start: Start) -> Token:
    if token.type in _NAMES and len(unquoted(token) if token.type == "QUOTED" else token) > MAX_NAME_CHARS:
        raise refusal(token, f"the name `{brief(str(token))}` is longer than MAX_NAME_CHARS ({MAX_NAME_CHARS})")
    if token.type == "STAR" and start == "event":
        remedy = "leave it out: what event policy gives ends with the credential anyway"
        raise refusal(token, "event policy has no `*`", remedy)
    return token


@cache
def _parser() -> Lark:
    grammar = resources.files("headgate.lang").joinpath("rolefile.lark").read_text("utf-8")
    build: Callable[..., Lark] = Lark  # its types know of one start only
    return build(grammar, parser="lalr", lexer="contextual", start=list(_STARTS), transformer=builder())
