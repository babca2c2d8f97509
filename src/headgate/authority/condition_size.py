"""Can conditions that were given one by one be written down together, as one expression?

Guarantees: what `fit_together` lets through is text that parses: no longer than MAX_EXPRESSION_CHARS, no deeper than
MAX_EXPRESSION_DEPTH. Chains and providers add conditions up, and the ledger must be able to keep what they add up to.
`size` is never less than what the text comes to (`lang.render`); a test holds it to that.
Leaves out: the text itself, and how large the normal form is (`decide.normal`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from headgate.model.conditions import (
    AllOf,
    AnyOf,
    Atom,
    Attribute,
    ClockPart,
    Compare,
    Condition,
    Constant,
    InGroup,
    InRange,
    InSet,
    IsNull,
    Meta,
    Not,
    Operand,
    Predicate,
    Related,
    Starred,
    Subject,
    TextMatch,
    foreign,
    operands,
    plain,
)
from headgate.model.limits import MAX_EXPRESSION_CHARS, MAX_EXPRESSION_DEPTH
from headgate.model.values import Value

_AND: Final = len(" and ")
_PARENTHESES: Final = len("()")
_RESERVED: Final = 5
"""No word that has to be quoted to be a name is longer."""

_CLOCK: Final = len("'Wednesday'")
_TIMESTAMP: Final = len("timestamp '9999-12-31T23:59:59.999999Z'")


def fit_together(sizes: Iterable[tuple[int, int]]) -> bool:
    """Do parts of these lengths and depths make one conjunction that can be written?"""
    parts = tuple(sizes)
    long = sum(length + _AND for length, _ in parts) - _AND
    return long <= MAX_EXPRESSION_CHARS and max((deep for _, deep in parts), default=0) < MAX_EXPRESSION_DEPTH


def size(part: Condition) -> tuple[int, int]:
    """How long and how deep a part of a conjunction is as text, at most."""
    match part:
        case Not(arg):
            length, deep = size(arg)
            return len("not ") + length, 1 + deep
        case Starred(arg):
            length, deep = size(arg)
            return len("()*") + length, 1 + deep
        case AllOf(()) | AnyOf(()):
            return len("false"), 0
        case AllOf(args) | AnyOf(args):
            inner = [size(arg) for arg in args]
            return _PARENTHESES + sum(length + _AND for length, _ in inner), 2 + max(deep for _, deep in inner)
        case atom:
            return _atom(atom), 0


def _atom(atom: Atom) -> int:
    clock = any(isinstance(one, ClockPart) for one in operands(atom))
    sides = sum(_operand(one) + (_CLOCK if clock else 0) for one in operands(atom))
    match atom:
        case Compare(op) | TextMatch(op):
            return sides + len(op) + 2
        case InRange():
            return sides + len(" in ..")
        case InSet(_, values):
            return sides + len(" in {}") + sum(_value(one) + (_CLOCK if clock else 0) + 2 for one in values)
        case IsNull():
            return sides + len(" is not null")
        case InGroup(_, group):
            return sides + len(" in group ") + _name(group, "'")
        case Related(name, args) | Predicate(name, args):
            return sides + len("predicate ()") + _name(name) + 2 * len(args)


def _operand(operand: Operand) -> int:
    match operand:
        case Attribute(name):
            return _name(name)
        case Meta(name):
            return 1 + len(name)
        case Subject(name):
            return 1 + _name(name)
        case Constant(value):
            return _value(plain(value))
        case ClockPart(part, of, zone):
            return len(part) + len("(, '')") + _operand(of) + 2 * len(zone)
        case _:
            raise foreign(operand)


def _name(name: str, quote: str = "`") -> int:
    plain = name.isascii() and name.isidentifier() and len(name) > _RESERVED
    return len(name) if plain else len(name) + name.count(quote) + 2


def _value(value: Value) -> int:
    match value:
        case str():
            return len(value) + value.count("'") + 2
        case bytes():
            return 2 * len(value) + len("bytes ''")
        case datetime():
            return _TIMESTAMP
        case _:
            return len(repr(value))
