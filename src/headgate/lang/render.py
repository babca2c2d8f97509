"""From a condition to the text of an expression.

Guarantees: for every condition that `parse_condition` makes, `parse_condition(render_condition(c)) == c`, and
the text nests no deeper than the one it came from. For any other tree of valid values the text means the
same: a conjunction directly in a conjunction is put in parentheses, which the parser then flattens.
Leaves out: layout. The text has no needless parentheses, and no line break outside quotes. Null has no
literal; where a subject attribute was absent, its constant is shown as `null`, which does not parse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime
from enum import IntEnum
from typing import Final, assert_never

from headgate.lang.clock import clock_text
from headgate.lang.reading import RESERVED
from headgate.model.conditions import (
    AllOf,
    AnyOf,
    Apply,
    Attribute,
    ClockPart,
    Combine,
    Compare,
    Condition,
    Constant,
    Count,
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
    Variable,
    foreign,
    plain,
)
from headgate.model.values import Value, render_timestamp

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_GROUP: Final = re.compile(r"\w+(?:[\-.]\w+)*")
_CLOCKS: Final = frozenset({"timeofday", "weekday"})


class _Binding(IntEnum):
    """How tightly a connective binds; a part that binds less than its place asks gets parentheses."""

    OR = 0
    AND = 1
    NOT = 2


def render_condition(c: Condition) -> str:
    """The expression that says this condition."""
    return _render(c, _Binding.OR)


def _render(c: Condition, binding: _Binding) -> str:
    match c:
        case AllOf(()):
            return "true"
        case AnyOf(()):
            return "false"
        case AllOf(args):
            joined = " and ".join(_render(arg, _Binding.NOT) for arg in args)
            return joined if binding <= _Binding.AND else f"({joined})"
        case AnyOf(args):
            joined = " or ".join(_render(arg, _Binding.AND) for arg in args)
            return joined if binding <= _Binding.OR else f"({joined})"
        case Not(IsNull(operand)):
            return f"{render_operand(operand)} is not null"
        case Starred():
            raise foreign(c)
        case Not(arg):
            return f"not {_render(arg, _Binding.NOT)}"
        case Compare(op, left, right) | TextMatch(op, left, right):
            return f"{_beside(left, right)} {op} {_beside(right, left)}"
        case InRange(operand, low, high):
            return f"{_beside(operand, low, high)} in {_beside(low, operand)}..{_beside(high, operand)}"
        case InSet(operand, values):
            return f"{render_operand(operand)} in {{{', '.join(_beside(Constant(v), operand) for v in values)}}}"
        case IsNull(operand):
            return f"{render_operand(operand)} is null"
        case InGroup(operand, group):
            return f"{render_operand(operand)} in group {_group(group)}"
        case Related(relation, args):
            # A clock's word before a parenthesis is the clock, so such a relation is quoted.
            name = _quoted("`", relation) if relation in _CLOCKS else _name(relation)
            return f"{name}({_list(args)})"
        case Predicate(name, args):
            return f"predicate {_name(name)}({_list(args)})"
        case _:
            assert_never(c)


def render_operand(operand: Operand) -> str:
    """The text of one operand."""
    match operand:
        case Attribute(name):
            return _name(name)
        case Meta(name):
            return f"@{name}"
        case Subject(name):
            return f"${name if _PLAIN_NAME.fullmatch(name) else _quoted('`', name)}"
        case Constant(value):
            return _literal(plain(value))
        case ClockPart(part, of, zone):
            return f"{part}({render_operand(of)}, {_quoted(chr(39), zone)})"
        case Variable() | Apply() | Count() | Combine():
            raise foreign(operand)
        case _:
            assert_never(operand)


def _beside(operand: Operand, *others: Operand) -> str:
    """The text of an operand beside others: a number beside a part of the clock is written as people say it."""
    for other in others:
        if isinstance(other, ClockPart) and isinstance(operand, Constant):
            text = clock_text(other.part, plain(operand.value))
            return render_operand(operand) if text is None else _quoted("'", text)
    return render_operand(operand)


def _list(args: Iterable[Operand]) -> str:
    return ", ".join(map(render_operand, args))


def _literal(value: Value) -> str:
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


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) and name not in RESERVED else _quoted("`", name)


def _group(name: str) -> str:
    return name if _PLAIN_GROUP.fullmatch(name) and name not in RESERVED else _quoted("'", name)


def _quoted(quote: str, text: str) -> str:
    return f"{quote}{text.replace(quote, quote * 2)}{quote}"
