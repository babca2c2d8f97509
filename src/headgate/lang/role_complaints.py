"""The words for text that is no rolefile and no event policy: where, what, what could stand there, what was meant.

Guarantees: one line with the place, in no words but a person's.
Leaves out: refusals of what is well formed but means nothing (`role_builder`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Final, cast

from lark import Token, UnexpectedInput, UnexpectedToken

from headgate.lang.layout import Passage
from headgate.lang.literals import RESERVED
from headgate.lang.reading import CURLY, SHOWN, expected, one_line
from headgate.model.errors import BadExpression
from headgate.model.values import brief

_LITERALS: Final = frozenset({"TEXT", "NUMBER", "_TIMESTAMP", "_BYTES", "TRUE", "FALSE"})
_TERMS: Final = _LITERALS | {"LBRACE", "NAME", "ASKED"}
_VALUES: Final = _TERMS | {"COUNT", "CLOCK", "LPAR"}
_CLASSES: Final[Sequence[tuple[str, frozenset[str]]]] = (
    ("a condition", _VALUES | {"NOT"}),
    ("a value", _VALUES),
    ("a variable or a constant", _TERMS),
    ("a constant", _LITERALS | {"LBRACE"}),
    ("a constant", _LITERALS),
    ("a comparison such as `=` or `in`", frozenset({"EQUAL", "COMPARE", "IN", "TEXT_OP"})),
    ("`+` or `-`", frozenset({"PLUS", "MINUS", "SET_OP"})),
    ("a group name", frozenset({"GROUP_NAME", "TEXT"})),
    ("`<|`, `|>`", frozenset({"ELECT", "REVOKE"})),
    ("a type", frozenset({"NAME", "LBRACE"})),
)
"""Terminals that come together, with the words for them; a wider class before a narrower."""

_WORDS: Final[Mapping[str, str]] = {
    "_IMPORT": "`import`", "_DEF": "`def`", "EVENT": "an event", "NAME": "a name", "_ARROW": "`<-`",
    "_IMPLIES": "`<=`", "LBRACE": "a set such as `{'a', 'b'}`", "LETTERS": "letters", "TEXT": "quoted text",
    "NUMBER": "a number", "_DOTS": "`..`", "_DOT": "`.`", "LPAR": "`(`", "LBRACKET": "`[`", "_RBRACKET": "`]`",
    "_COMMA": "`,`", "_RPAR": "`)`", "_RBRACE": "`}`", "STAR": "`*`", "AND": "`&`", "_OR": "`or`", "_COLON": "`:`",
    "$END": "the end of the statement",
}  # fmt: skip
"""The words for each other terminal, in the order in which to name them."""

_OPENS: Final = frozenset({"PLUS", "MINUS", "LPAR", "BARE_GROUP", "_GROUP", "BIND"})
"""Terminals that open what a class speaks for, or that need no mention beside it."""

_INSTEAD: Final[Mapping[str, str]] = {
    "==": "=", "===": "=", "<>": "!=", "!==": "!=", "=!": "!=", "=<": "<=", "=>": ">=", "&&": "and", "||": "or",
    "like": "contains", "between": "in low..high", ":-": "<-", ":=": "=", "->": "<-", "<--": "<-",
}  # fmt: skip
"""Operators of other languages, and what is meant."""

_SIGNS: Final = re.compile(r"[=<>!&|:\-]+")


def complaint(passage: Passage, error: UnexpectedInput, seen: Sequence[Token], accepts: Set[str]) -> BadExpression:
    """Say which token stands where it cannot, what could stand there, and what was probably meant."""
    text = passage.text
    token = error.token if isinstance(error, UnexpectedToken) else None
    could = expected(accepts - {"QUOTED"}, _CLASSES, _WORDS, _OPENS)
    if token is not None and token.type == "$END":
        place = _place(passage, len(text.rstrip()))
        return BadExpression(
            f"unexpected end, expected {could}", place=place, remedy=_of_letters(seen, accepts) or _at_end(seen)
        )
    at = cast(int, error.pos_in_stream if token is None else token.start_pos)
    shown = SHOWN.match(text, at)
    unexpected = str(token) if token is not None else shown.group() if shown else text[at : at + 1]
    signs = next((m for m in _SIGNS.finditer(text) if m.start() <= at < m.end()), None)
    if signs is not None and signs.group() in _INSTEAD:
        unexpected, at = signs.group(), signs.start()
    message = f"unexpected `{one_line(brief(unexpected))}`, expected {could}"
    return BadExpression(message, place=_place(passage, at), remedy=_remedy(text, at, unexpected, seen, accepts))


def _remedy(text: str, at: int, found: str, seen: Sequence[Token], accepts: Set[str]) -> str | None:
    before = seen[-1] if seen else Token("", "")
    if found in _INSTEAD:
        return f"write `{_INSTEAD[found]}`"
    return _of_quotes(text, at, found, before) or _of_parts(found, seen, accepts) or _of_lines(text, at, found, accepts)


def _of_quotes(text: str, at: int, unexpected: str, before: Token) -> str | None:
    if unexpected[0] in CURLY:
        return "write straight quotes"
    if before.type in ("TEXT", "QUOTED") and at == before.end_pos:
        return "write a quote inside quotes twice"
    if unexpected[0] in "'\"`":
        return "close the quotes" if unexpected in "'\"`" else None
    if unexpected == "." and text[at + 1 : at + 2].isdigit():
        return f"write a digit before the point, as in `0.{text[at + 1]}`"
    return None


def _of_parts(unexpected: str, seen: Sequence[Token], accepts: Set[str]) -> str | None:
    before = seen[-1] if seen else Token("", "")
    if unexpected == "<" and accepts & {"_ARROW", "_IMPLIES"}:
        return "write `<-` or `<=`; `--` begins a comment"
    if "_ARROW" in accepts and unexpected[0] in "<=⇐":
        return "write `<-`: a role is entered by it, `<=` is of event policy"
    if "_IMPLIES" in accepts and unexpected[0] in "<←":
        return "write `<=`: event policy has it where a rolefile has `<-`"
    if unexpected == "*" and any(token.type == "REVOKE" for token in seen):
        return "put the star directly after `|>`"
    if "AND" in accepts and "ELECT" in accepts and unexpected in (",", "and"):
        return "write `&` between credentials"
    if unexpected in (".", "[") and "COMPARE" in accepts:
        return "a role of another service is a credential; put it before the `:`"
    if unexpected == "not" and "IN" in accepts:
        return "write `not` before the whole comparison, as in `not x in {1, 2}`"
    if unexpected[0] == "$":
        return "leave the `$` out: a plain name is a variable"
    if unexpected in ("null", "is"):
        return "an argument is never null"
    if unexpected.lower() in RESERVED - {unexpected}:
        return f"write `{unexpected.lower()}`, in lower case"
    if unexpected == "(" and before.type == "IN":
        return "write a set in braces, as in `x in {1, 2}`"
    return _of_letters(seen, accepts)


def _of_letters(seen: Sequence[Token], accepts: Set[str]) -> str | None:
    if seen and seen[-1].type == "_RBRACE" and "_DOTS" in accepts and any(token.type == "IN" for token in seen):
        return "quote what is in the braces, as in `x in {'a', 'b'}`; sets of letters compare by `subseteq`"
    return None


def _of_lines(text: str, at: int, unexpected: str, accepts: Set[str]) -> str | None:
    arrow = unexpected in ("<-", "←", "<=", "⇐")
    if not (arrow or unexpected[0].isalpha() or unexpected[0] in "_`-") or "$END" not in accepts:
        return None
    if "\n" in text[:at] and (arrow or not text[:at].rpartition("\n")[2].strip()):
        return "a line that is indented more deeply continues the statement before it; end that with `;` or indent less"
    return "end a statement with `;` or a new line"


def _at_end(seen: Sequence[Token]) -> str | None:
    wrong = next((token for token in seen if token.type == "NAME" and token.lower() in RESERVED), None)
    return f"write `{wrong.lower()}`, in lower case" if wrong is not None else None


def _place(passage: Passage, at: int) -> str:
    lines = passage.text.count("\n", 0, at)
    column = at - passage.text.rfind("\n", 0, at) if lines else passage.column + at
    return f"line {passage.line + lines}, column {column}"
