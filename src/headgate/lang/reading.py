"""What the parsers of all languages share: places, refusals, names and literals.

Guarantees: a refusal is one printable line of bounded length with its place; a literal is one of D2's values.
Leaves out: the grammars and what they mean (`parse`, `rolefile`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from typing import Final

from lark import Token

from headgate.lang.literals import is_zone
from headgate.model.errors import BadExpression, TypeMismatch
from headgate.model.values import INT_MAX, INT_MIN, Kind, Value, brief, conform

CURLY: Final = "\u2018\u2019\u201c\u201d"
"""Quotes of a word processor, which quote nothing here."""

SHOWN: Final = re.compile(r"\w+|\S")
"""What to show of text that is no token."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def check_text(text: str, limit: int, named: str) -> None:
    """Refuse text that is too long, or that is not Unicode."""
    if len(text) > limit:
        raise BadExpression(f"{len(text)} characters are past {named} ({limit})", place=place_of(text, limit))
    if lone := _SURROGATE.search(text):
        message = f"`{brief(lone.group())}` is not a character (a lone surrogate)"
        raise BadExpression(message, place=place_of(text, lone.start()))


def place_of(text: str, at: int) -> str:
    """`line 3, column 7`."""
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


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


def number(token: Token, written: str) -> int | float:
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


def expected(
    accepts: Set[str], classes: Sequence[tuple[str, frozenset[str]]], words: Mapping[str, str], opens: Set[str]
) -> str:
    """What could stand somewhere, in words; a class of terminals also speaks for those that open one of it."""
    left = set(accepts)
    phrases = []
    for name, terminals in classes:
        if terminals <= left:
            phrases.append(name)
            left -= terminals | opens
    phrases += [word for terminal, word in words.items() if terminal in left]
    return " or ".join(filter(None, (", ".join(phrases[:-1]), phrases[-1] if phrases else "nothing more")))
