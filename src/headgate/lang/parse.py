"""Reading the languages of the one tree: what their parsers share, and the parser of conditions.

Guarantees: `parse_condition` ends in a `Condition` or a `BadExpression` on any text whatever, in time linear in its
length and without recursion. A condition made here is flat (no conjunction directly in a conjunction, nor a disjunction
in a disjunction), nests no deeper than `MAX_EXPRESSION_DEPTH`, and holds only D2's values. A refusal is one printable
line of bounded length with its place, what was expected and, where it can be guessed, what was meant.
Leaves out: whether the names exist and the kinds agree (`decide`). Words are case-sensitive.

A grammar is put together of files: `common`, then what a language adds. Each of its rules and aliases has a method of
that name in the builder, called bottom-up as it is recognised.
"""

# ruff: noqa: D102 - the methods of a builder are the rules of its grammar

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple, cast, get_args

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken, v_args

from headgate.lang.literals import RESERVED, Reading, is_zone, read_text
from headgate.model import expressions as tree
from headgate.model.errors import BadExpression, TypeMismatch
from headgate.model.expressions import Condition, Constant, Operand
from headgate.model.limits import MAX_EXPRESSION_CHARS, MAX_EXPRESSION_DEPTH, MAX_NAME_CHARS
from headgate.model.values import INT_MAX, INT_MIN, Kind, Value, brief, conform

_CURLY: Final = "\u2018\u2019\u201c\u201d"
"""Quotes of a word processor, which quote nothing here."""

_SHOWN: Final = re.compile(r"\w+|\S")
"""What to show of text that is no token."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def check_text(text: str, limit: int, named: str) -> None:
    """Refuse text that is too long, or that is not Unicode."""
    if len(text) > limit:
        raise BadExpression(f"{len(text)} characters are past {named} ({limit})", place=Passage(text).place(limit))
    if lone := _SURROGATE.search(text):
        message = f"`{brief(lone.group())}` is not a character (a lone surrogate)"
        raise BadExpression(message, place=Passage(text).place(lone.start()))


def refusal(at: Token | None, message: str, remedy: str | None = None) -> BadExpression:
    """A refusal at a token."""
    place = f"line {at.line}, column {at.column}" if at is not None else None
    return BadExpression(one_line(message), place=place, remedy=remedy)


def one_line(message: str) -> str:
    """A message as one printable line."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in message)
    return escaped if len(escaped) <= 200 else escaped[:197] + "..."


def unquoted(token: str) -> str:
    """What stands between quotes; a doubled quote is itself."""
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


def named(token: Token, name: str) -> str:
    """A name that is not empty."""
    if not name:
        raise refusal(token, f"`{token}` is an empty name")
    return name


def number_in(token: Token, written: str) -> int | float:
    """The number that is written, its sign included."""
    digits = written.lstrip("+-").lstrip("0") or "0"
    if digits.isdigit():
        # Nineteen digits hold any 64-bit integer, so text of any length is never converted.
        value = int(digits[:20]) * (-1 if written[0] == "-" else 1)
        if len(digits) > 19 or not INT_MIN <= value <= INT_MAX:
            raise refusal(token, f"the integer `{brief(written)}` does not fit in 64 bits")
        return value
    double = float(written)
    if not math.isfinite(double):
        raise refusal(token, f"the number `{brief(written)}` is outside the range of a double")
    return double


def converted(token: Token, kind: Kind) -> Value:
    """Quoted text as a value of a kind."""
    try:
        return conform(kind, unquoted(token))
    except TypeMismatch as error:
        raise refusal(token, error.message, error.remedy) from None


def zone_named(token: Token) -> str:
    """The time zone that quoted text names."""
    zone = unquoted(token)
    if is_zone(zone):
        return zone
    raise refusal(token, f"there is no time zone `{brief(zone)}`", "name one such as `Europe/London`")


# -- syntax to tree -------------------------------------------------------------------------------------------

_COMPARATORS: Final[Mapping[str, str]] = {
    "==": "=", "≠": "!=", "≤": "<=", "≥": ">=", "⊂": "subset", "⊆": "subseteq", "⊃": "superset", "⊇": "superseteq",
}  # fmt: skip
_TOO_DEEP: Final = f"the expression nests deeper than MAX_EXPRESSION_DEPTH ({MAX_EXPRESSION_DEPTH})"
OPERANDS: Final = get_args(Operand)


class ParsedPart(NamedTuple):
    """A value or a condition, where it begins or is opened, and how deeply it nests."""

    node: Operand | Condition
    at: Token | None
    depth: int = 0


class Name(NamedTuple):
    """A name, and where it stands."""

    text: str
    at: Token


def as_expression(part: ParsedPart) -> Operand:
    """What stands where a value is expected."""
    if not isinstance(part.node, OPERANDS):
        raise refusal(part.at, "a condition stands where a value is expected")
    return cast(Operand, part.node)


@v_args(inline=True)
class CommonBuilder(Transformer[Token, Any]):
    """The nodes of what every language has."""

    longest_name = MAX_EXPRESSION_CHARS
    metas: tuple[str, ...] = ()
    meta_remedy = ""

    def _atom(self, node: Operand | Condition, parts: Sequence[ParsedPart]) -> ParsedPart:
        """A node above operands."""
        raise NotImplementedError

    def _reading(self, operand: Operand) -> Reading | None:
        """What text means beside an operand, if it is a time."""
        raise NotImplementedError

    def _beside(self, at: Token, operand: Operand, *others: Operand) -> Operand:
        """An operand as it counts beside others: its text may mean a time or a day there."""
        for other in others:
            reading = self._reading(other)
            if reading is not None and isinstance(operand, Constant) and isinstance(operand.value, str):
                try:
                    return Constant(read_text(reading, operand.value))
                except BadExpression as error:
                    raise refusal(at, error.message, error.remedy) from None
        return operand

    def compare(self, left: ParsedPart, op: Token, right: ParsedPart) -> ParsedPart:
        comparator: Any = _COMPARATORS.get(op, str(op))
        sides = (as_expression(left), as_expression(right))
        if comparator in tree.MIRRORED:
            sides = (self._beside(op, *sides), self._beside(op, sides[1], sides[0]))
        return self._atom(tree.Compare(comparator, *sides), (left, right))

    def in_range(self, of: ParsedPart, op: Token, low: ParsedPart, high: ParsedPart) -> ParsedPart:
        whole, least, most = as_expression(of), as_expression(low), as_expression(high)
        ends = self._beside(op, least, whole), self._beside(op, most, whole)
        return self._atom(tree.InRange(self._beside(op, whole, least, most), *ends), (of, low, high))

    def in_set(self, of: ParsedPart, op: Token, _: Token, values: tuple[Value, ...]) -> ParsedPart:
        whole = as_expression(of)
        chosen = (cast(Constant, self._beside(op, Constant(value), whole)).value for value in values)
        return self._atom(tree.InSet(whole, tuple(map(tree.plain, chosen))), (of,))

    def in_group(self, of: ParsedPart, _: Token, group: Token) -> ParsedPart:
        name = named(group, unquoted(group)) if group.type in ("TEXT", "QUOTED") else str(group)
        if len(name) > self.longest_name:
            raise refusal(group, f"the name `{brief(name)}` is longer than MAX_NAME_CHARS ({MAX_NAME_CHARS})")
        return self._atom(tree.InGroup(as_expression(of), name), (of,))

    def text_match(self, left: ParsedPart, op: Token, right: ParsedPart) -> ParsedPart:
        test: Any = " ".join(op.split())
        return self._atom(tree.TextMatch(test, as_expression(left), as_expression(right)), (left, right))

    def operands(self, *parts: ParsedPart) -> tuple[ParsedPart, ...]:
        return parts

    def literals(self, *parts: ParsedPart) -> tuple[Value, ...]:
        return tuple(tree.plain(cast(Constant, part.node).value) for part in parts)

    def meta(self, token: Token) -> ParsedPart:
        word: Any = token[1:]
        if word not in self.metas:
            raise refusal(token, f"there is no `{brief(str(token))}`", self.meta_remedy)
        return ParsedPart(tree.Meta(word), token)

    def clock(self, part: Token, _: Token, of: ParsedPart, zone: Token | None) -> ParsedPart:
        word: Any = str(part)
        made = tree.ClockPart(word, as_expression(of), zone_named(zone) if zone is not None else "UTC")
        return self._atom(made, (ParsedPart(made, part, of.depth),))

    def name(self, token: Token) -> Name:
        return Name(named(token, unquoted(token)) if token.type == "QUOTED" else str(token), token)

    def text(self, token: Token) -> ParsedPart:
        return ParsedPart(Constant(unquoted(token)), token)

    def timestamp(self, token: Token) -> ParsedPart:
        return ParsedPart(Constant(converted(token, Kind.TIMESTAMP)), token)

    def binary(self, token: Token) -> ParsedPart:
        return ParsedPart(Constant(converted(token, Kind.BYTES)), token)

    def boolean(self, word: Token) -> ParsedPart:
        return ParsedPart(Constant(word.type == "TRUE"), word)


@v_args(inline=True)
class _ConditionBuilder(CommonBuilder):
    """Depth counts connectives and parentheses; operands and atoms have none."""

    metas = ("time", "publisher", "rate", "origin")
    meta_remedy = "write `@time`, `@publisher`, `@rate` or `@origin`"

    def _atom(self, node: Operand | Condition, parts: Sequence[ParsedPart]) -> ParsedPart:  # noqa: ARG002
        return ParsedPart(node, None)

    def _reading(self, operand: Operand) -> Reading | None:
        return operand.part if isinstance(operand, tree.ClockPart) else None

    def _nest(
        self, make: Callable[..., Condition], parts: Sequence[ParsedPart], opened: Token | None = None
    ) -> ParsedPart:
        deepest = max(parts, key=lambda part: part.depth)
        at = opened or deepest.at
        if deepest.depth >= MAX_EXPRESSION_DEPTH:
            raise refusal(at, _TOO_DEEP, "take out needless parentheses, or split it")
        return ParsedPart(make(*(part.node for part in parts)), at, deepest.depth + 1)

    def start(self, part: ParsedPart) -> Condition:
        return cast(Condition, part.node)

    def disjunction(self, *parts: ParsedPart) -> ParsedPart:
        return self._nest(tree.any_of, parts) if parts[1:] else parts[0]

    def conjunction(self, *parts: ParsedPart | Token) -> ParsedPart:
        units = [part for part in parts if isinstance(part, ParsedPart)]
        return self._nest(tree.all_of, units) if units[1:] else units[0]

    def negation(self, opened: Token, part: ParsedPart) -> ParsedPart:
        return self._nest(tree.Not, (part,), opened)

    def parenthesis(self, opened: Token, part: ParsedPart) -> ParsedPart:
        return self._nest(tree.all_of, (part,), opened)

    def truth(self, word: Token) -> ParsedPart:
        return ParsedPart(tree.TRUE if word.type == "TRUE" else tree.FALSE, None)

    def flag(self, attribute: ParsedPart) -> ParsedPart:
        return ParsedPart(tree.Compare("=", as_expression(attribute), Constant(True)), None)

    def is_null(self, operand: ParsedPart) -> ParsedPart:
        return ParsedPart(tree.IsNull(as_expression(operand)), None)

    def is_not_null(self, operand: ParsedPart, _: Token) -> ParsedPart:
        return ParsedPart(tree.Not(tree.IsNull(as_expression(operand))), None)

    def related(self, name: Name, _: Token, args: tuple[ParsedPart, ...]) -> ParsedPart:
        return ParsedPart(tree.Related(name.text, tuple(map(as_expression, args))), None)

    def predicate(self, name: Name, _: Token, args: tuple[ParsedPart, ...] | None) -> ParsedPart:
        return ParsedPart(tree.Predicate(name.text, tuple(map(as_expression, args or ()))), None)

    def attribute(self, name: Name) -> ParsedPart:
        return ParsedPart(tree.Attribute(name.text), name.at)

    def subject(self, token: Token) -> ParsedPart:
        name = token[1:]
        return ParsedPart(tree.Subject(named(token, unquoted(name) if name.startswith("`") else name)), token)

    def clock(self, part: Token, opened: Token, of: ParsedPart, zone: Token | None) -> ParsedPart:
        if isinstance(of.node, tree.Meta) and of.node.name != "time":
            raise refusal(part, f"`{part}` takes a time, not `@{of.node.name}`", "write `@time`")
        return super().clock(part, opened, of, zone)

    def number(self, token: Token) -> ParsedPart:
        return ParsedPart(Constant(number_in(token, str(token))), token)


# -- text to syntax -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text, with the place of its first character (lines and columns from 1)."""

    text: str
    start: int = 0
    line: int = 1
    column: int = 1

    def place(self, at: int) -> str:
        """The place in the whole text of a character of this part."""
        lines = self.text.count("\n", 0, at)
        column = at - self.text.rfind("\n", 0, at) if lines else self.column + at
        return f"line {self.line + lines}, column {column}"


class Unexpected(NamedTuple):
    """What stands where it cannot."""

    shown: str
    text: str
    at: int
    seen: Sequence[Token]
    accepts: Set[str]

    @property
    def before(self) -> Token:
        """The token before it."""
        return self.seen[-1] if self.seen else Token("", "")


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """A grammar, its builder, and the words for text that is no sentence of it."""

    files: tuple[str, ...]
    builder: Callable[[], CommonBuilder]
    starts: tuple[str, ...]
    classes: Sequence[tuple[str, frozenset[str]]]
    """Terminals that come together, with the words for them; a wider class before a narrower."""
    words: Mapping[str, str]
    """The words for each other terminal, in the order in which to name them."""
    opens: frozenset[str]
    """Terminals that open what a class speaks for, or that need no mention beside it."""
    instead: Mapping[str, str]
    """Operators of other languages, and what is meant."""
    signs: re.Pattern[str]
    remedy: Callable[[Unexpected], str | None]
    """What was probably meant."""
    check: Callable[[Token, str], None] = lambda _token, _start: None
    """Refuse a token that the lexer lets through."""

    def read(self, passage: Passage, start: str) -> Any:
        """What a text says: token by token, so that a refusal knows what could have stood there."""
        parser: Any = _parser(self).parse_interactive(passage.text, start=start)  # half of its methods carry no types
        seen: list[Token] = []
        try:
            for token in parser.lexer_thread.lex(parser.parser_state):
                if token.line == 1:
                    token.column += passage.column - 1
                token.line += passage.line - 1
                self.check(token, start)
                parser.feed_token(token)
                seen.append(token)
            return parser.feed_eof(seen[-1])
        except UnexpectedInput as error:
            # The parser may have reduced on its way to the error, and would then accept less than it did before.
            parser = _parser(self).parse_interactive("", start=start)
            for token in seen:
                parser.feed_token(token)
            raise self._complaint(passage, error, seen, frozenset(parser.accepts())) from None

    def _complaint(
        self, passage: Passage, error: UnexpectedInput, seen: Sequence[Token], accepts: Set[str]
    ) -> BadExpression:
        """Say which token stands where it cannot, what could stand there, and what was probably meant."""
        text = passage.text
        token = error.token if isinstance(error, UnexpectedToken) else None
        could = self._expected(accepts - {"QUOTED"})
        if token is not None and token.type == "$END":
            place = passage.place(len(text.rstrip()))
            remedy = of_letters(seen, accepts) or miscased(seen)
            return BadExpression(f"unexpected end, expected {could}", place=place, remedy=remedy)
        at = cast(int, error.pos_in_stream if token is None else token.start_pos)
        match = _SHOWN.match(text, at)
        shown = str(token) if token is not None else match.group() if match else text[at : at + 1]
        signs = next((m for m in self.signs.finditer(text) if m.start() <= at < m.end()), None)
        if signs is not None and signs.group() in self.instead:
            shown, at = signs.group(), signs.start()
        meant = f"write `{self.instead[shown]}`" if shown in self.instead else None
        remedy = meant or self.remedy(Unexpected(shown, text, at, seen, accepts))
        message = f"unexpected `{one_line(brief(shown))}`, expected {could}"
        return BadExpression(message, place=passage.place(at), remedy=remedy)

    def _expected(self, accepts: Set[str]) -> str:
        """What could stand somewhere, in words; a class of terminals also speaks for those that open one of it."""
        left = set(accepts)
        phrases = []
        for name, terminals in self.classes:
            if terminals <= left:
                phrases.append(name)
                left -= terminals | self.opens
        phrases += [word for terminal, word in self.words.items() if terminal in left]
        return " or ".join(filter(None, (", ".join(phrases[:-1]), phrases[-1] if phrases else "nothing more")))


@cache
def _parser(language: Language) -> Lark:
    folder = resources.files("headgate.lang")
    grammar = "\n".join(folder.joinpath(f"{name}.lark").read_text("utf-8") for name in language.files)
    build: Callable[..., Lark] = Lark  # its types know of one start only
    return build(
        grammar, parser="lalr", lexer="contextual", start=list(language.starts), transformer=language.builder()
    )


def of_quotes(wrong: Unexpected) -> str | None:
    """What was meant by quotes, or by a point without a digit before it."""
    shown, before = wrong.shown, wrong.before
    if shown[0] in _CURLY:
        return "write straight quotes"
    if before.type in ("TEXT", "QUOTED") and wrong.at == before.end_pos:
        return "write a quote inside quotes twice"
    if shown in "'\"`":
        return "close the quotes"
    digit = wrong.text[wrong.at + 1 : wrong.at + 2]
    return f"write a digit before the point, as in `0.{digit}`" if shown == "." and digit.isdigit() else None


def of_words(wrong: Unexpected) -> str | None:
    """What was meant by words in the wrong case or order, or by a set in parentheses."""
    shown = wrong.shown
    if shown == "not" and "IN" in wrong.accepts:
        return "write `not` before the whole comparison, as in `not x in {1, 2}`"
    if shown.lower() in RESERVED - {shown}:
        return f"write `{shown.lower()}`, in lower case"
    if shown == "(" and wrong.before.type == "IN":
        return "write a set in braces, as in `x in {1, 2}`"
    return None


def of_letters(seen: Sequence[Token], accepts: Set[str]) -> str | None:
    """What was meant by letters in braces after `in`."""
    if seen and seen[-1].type == "_RBRACE" and "_DOTS" in accepts and any(token.type == "IN" for token in seen):
        return "quote what is in the braces, as in `x in {'a', 'b'}`; sets of letters compare by `subseteq`"
    return None


def miscased(seen: Sequence[Token]) -> str | None:
    """The first name that is a reserved word but for its case."""
    wrong = next((token for token in seen if token.type == "NAME" and token.lower() in RESERVED), None)
    return f"write `{wrong.lower()}`, in lower case" if wrong is not None else None


# -- conditions -----------------------------------------------------------------------------------------------


def parse_condition(text: str) -> Condition:
    """The condition that an expression says, or `bad-expression` with its place."""
    check_text(text, MAX_EXPRESSION_CHARS, "MAX_EXPRESSION_CHARS")
    if not text.strip():
        raise BadExpression("the expression is empty", place="line 1, column 1", remedy="write a condition")
    return cast(Condition, _CONDITIONS.read(Passage(text), "start"))


def _remedy(wrong: Unexpected) -> str | None:
    shown, seen, before = wrong.shown, wrong.seen, wrong.before
    if shown == "null":
        operand = one_line(brief(str(seen[-2]))) if seen[1:] and seen[-2].type in _REFERENCES else "x"
        return f"write `{operand} is not null`" if before == "!=" else f"write `{operand} is null`"
    if shown in ("true", "false") and before == "is":
        return f"write `= {shown}`"
    if shown == ".." and "_DOTS" not in wrong.accepts:
        return "write a range as `x in 4..10`, or `not x in 4..10`"
    return of_words(wrong) or of_quotes(wrong) or miscased(seen)


LITERALS: Final = frozenset({"TEXT", "NUMBER", "_TIMESTAMP", "_BYTES", "TRUE", "FALSE"})
_REFERENCES: Final = frozenset({"NAME", "META", "SUBJECT"})
_OPERANDS: Final = LITERALS | _REFERENCES | {"CLOCK"}

_CONDITIONS: Final = Language(
    files=("common", "conditions"),
    builder=_ConditionBuilder,
    starts=("start",),
    classes=(
        ("a condition", _OPERANDS | {"NOT", "LPAR", "_PREDICATE"}),
        ("an attribute or a literal", _OPERANDS),
        ("a literal", LITERALS),
        ("a comparison such as `=` or `in`", frozenset({"EQUAL", "COMPARE", "IN", "_IS", "TEXT_OP"})),
        ("a group name", frozenset({"GROUP_NAME", "TEXT"})),
    ),
    words={
        "NAME": "a name", "META": "`@time`", "LBRACE": "a set such as `{'a', 'b'}`", "_GROUP": "`group`",
        "TEXT": "quoted text", "_DOTS": "`..`", "_NULL": "`null`", "NOT": "`not null`", "LPAR": "`(`",
        "_COMMA": "`,`", "_RPAR": "`)`", "_RBRACE": "`}`", "AND": "`and`", "_OR": "`or`",
        "$END": "the end of the expression",
    },
    opens=frozenset({"LPAR"}),
    instead={
        "==": "=", "===": "=", "<>": "!=", "!==": "!=", "=!": "!=", "=<": "<=", "=>": ">=", "!": "not",
        "&&": "and", "&": "and", "||": "or", "|": "or", "like": "contains", "between": "in low..high",
    },
    signs=re.compile(r"[=<>!&|]+"),
    remedy=_remedy,
)  # fmt: skip
