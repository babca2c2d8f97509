"""Can a constraint be true at all? Found by its literals alone.

Guarantees: what is called a contradiction is true for no values whatever. Bounded: a constraint with more than
`MAX_CLAUSES` alternatives, or `MAX_LITERALS` atoms in one, is not looked at.
Leaves out: what only groups, relations and functions tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Final, TypeAlias

from headgate.decide.constraints import compared
from headgate.model.conditions import (
    AllOf,
    AnyOf,
    Argument,
    Atom,
    Compare,
    CompareOp,
    Condition,
    Constant,
    InRange,
    InSet,
    Not,
    Operand,
    Starred,
)
from headgate.roles.rolefiles.inference import said

MAX_CLAUSES: Final = 64
"""Alternatives of a constraint that are looked at."""

MAX_LITERALS: Final = 200
"""Atoms of one alternative that are compared with one another."""

Literal: TypeAlias = tuple[Atom, bool]
"""An atom, and whether it must be true."""

_OPPOSITE: Final[Mapping[str, str]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_TURNED: Final[Mapping[CompareOp, CompareOp]] = {
    "=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<=",
    "subset": "superset", "superset": "subset", "subseteq": "superseteq", "superseteq": "subseteq",
}  # fmt: skip


def contradiction(constraint: Condition) -> str | None:
    """Why a constraint is never true, if that can be seen."""
    clauses = _clauses(constraint, True)
    if clauses is None:
        return None
    reasons = [_reason(clause) for clause in clauses]
    if any(reason is None for reason in reasons):
        return None
    return reasons[0] if reasons else "it is `false`"


def _clauses(c: Condition, positive: bool) -> list[tuple[Literal, ...]] | None:
    """The alternatives of a constraint; None if they are too many."""
    match c:
        case Starred(arg):
            return _clauses(arg, positive)
        case Not(arg):
            return _clauses(arg, not positive)
        case AllOf(args) | AnyOf(args):
            parts = [_clauses(arg, positive) for arg in args]
            known = [part for part in parts if part is not None]
            if len(known) != len(parts):
                return None
            return _all_of(known) if isinstance(c, AllOf) is positive else _any_of(known)
        case leaf:
            return [((leaf, positive),)]


def _any_of(parts: Iterable[list[tuple[Literal, ...]]]) -> list[tuple[Literal, ...]] | None:
    found = [clause for part in parts for clause in part]
    return found if len(found) <= MAX_CLAUSES else None


def _all_of(parts: list[list[tuple[Literal, ...]]]) -> list[tuple[Literal, ...]] | None:
    count = 1
    for part in parts:
        count *= len(part)
        if count > MAX_CLAUSES:
            return None
    return [tuple(literal for clause in chosen for literal in clause) for chosen in product(*parts)]


@dataclass(slots=True)
class _Asked:
    """What a clause asks of one expression."""

    tests: list[tuple[str, Argument, str]] = field(default_factory=list)
    choices: list[tuple[tuple[Argument, ...], str]] = field(default_factory=list)


def _reason(clause: tuple[Literal, ...]) -> str | None:
    if len(clause) > MAX_LITERALS:
        return None
    seen: dict[Atom, bool] = {}
    asked: dict[Operand, _Asked] = {}
    for leaf, positive in clause:
        text = said(leaf) if positive else f"not {said(leaf)}"
        if seen.setdefault(leaf, positive) is not positive:
            return f"`{said(leaf)}` must be true and false"
        if _never(leaf, positive):
            return f"`{text}` is never true"
        for of, op, value in _tests(leaf, positive):
            asked.setdefault(of, _Asked()).tests.append((op, value, text))
        if isinstance(leaf, InSet) and positive:
            asked.setdefault(leaf.operand, _Asked()).choices.append((leaf.values, text))
    return next(filter(None, map(_unmet, asked.values())), None)


def _never(leaf: Atom, positive: bool) -> bool:
    """Is an atom never true on its own?"""
    match leaf:
        case Compare(op, Constant(a), Constant(b)):
            return compared(op, a, b) is not positive
        case Compare(op, left, right) if left == right:
            return (op in ("!=", "<", ">", "subset", "superset")) is positive
        case Compare("subset", _, Constant(value)) | Compare("superset", Constant(value), _):
            return positive and value == frozenset()
        case InRange(_, Constant(low), Constant(high)):
            return positive and compared("<=", low, high) is not True
        case InSet(Constant(value), values):
            return positive is not any(compared("=", value, one) is True for one in values)
        case _:
            return False


def _tests(leaf: Atom, positive: bool) -> Iterator[tuple[Operand, str, Argument]]:
    """What an atom asks of an expression beside a literal."""
    match leaf:
        case Compare(op, Constant(value), of) if not isinstance(of, Constant):
            yield from _tests(Compare(_turned(op), of, Constant(value)), positive)
        case Compare(op, of, Constant(value)):
            if positive:
                yield of, op, value
            elif op in _OPPOSITE:
                yield of, _OPPOSITE[op], value
        case InRange(of, low, high) if positive:
            for op, end in ((">=", low), ("<=", high)):
                if isinstance(end, Constant):
                    yield of, op, end.value


def _turned(op: CompareOp) -> CompareOp:
    return _TURNED[op]


def _unmet(asked: _Asked) -> str | None:
    """Which two of the tests no value meets."""
    for values, text in asked.choices:
        for op, against, other in asked.tests:
            if not any(compared(op, one, against) is True for one in values):
                return f"`{text}` and `{other}` exclude each other"
        if not any(all(compared(op, one, against) is True for op, against, _ in asked.tests) for one in values):
            return f"nothing in `{text}` meets the rest"
        for others, other in asked.choices:
            if not any(compared("=", one, two) is True for one in values for two in others):
                return f"`{text}` and `{other}` exclude each other"
    for place, (op, value, text) in enumerate(asked.tests):
        for other_op, other_value, other in asked.tests[:place]:
            if _exclude(op, value, other_op, other_value):
                return f"`{other}` and `{text}` exclude each other"
    return None


def _exclude(op: str, a: Argument, other: str, b: Argument) -> bool:
    """Is there no `x` with `x op a` and `x other b`?"""
    if op == "=":
        return compared(other, a, b) is not True
    if other == "=":
        return compared(op, b, a) is not True
    if op in ("<", "<=") and other in (">", ">="):
        return compared("<=" if op == "<=" and other == ">=" else "<", b, a) is not True
    if op in (">", ">=") and other in ("<", "<="):
        return _exclude(other, b, op, a)
    return False
