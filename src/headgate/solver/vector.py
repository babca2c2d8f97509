"""Wider-Than for rules that are vectors: a conjunction with one element for each attribute (Guard VI).

Guarantees: `wider` takes time linear in the number of elements. Whenever it says yes, every attribute set that makes
the narrower rule true makes the wider one true; it says no to some that are wider only where the narrower rule asks for
a value in an empty range, and so can never be true. Ranges include their ends: `$x > a` is not wider than `$x = a..b`.
Leaves out: every rule that is not such a vector; `vector` has None for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.model.expressions import (
    MIRRORED,
    Compare,
    CompareOp,
    Condition,
    Constant,
    InRange,
    Subject,
    conjuncts,
    plain,
)
from headgate.model.values import Value, compare
from headgate.solver.order import GREATEST, LEAST, Family, after, before, between, family

_ORDERED: Final = frozenset({"=", "<", "<=", ">", ">="})


@dataclass(frozen=True, slots=True)
class Element:
    """What a rule asks of one attribute: a value of a family from `low` to `high`, both included.

    Most texts have no text just before them, so `$x < 'b'` keeps its end open; without `high` there is no end. An
    element that nothing fits has no `low`.
    """

    family: Family
    low: Value
    high: Value
    high_open: bool = False


Vector: TypeAlias = Mapping[str, Element]


def vector(rule: Condition) -> Vector | None:
    """The rule as a vector, by the name of the attribute; None if it is not one."""
    elements: dict[str, Element] = {}
    for atom in conjuncts(rule):
        placed = _placed(atom)
        if placed is None or placed[0] in elements:
            return None
        elements[placed[0]] = placed[1]
    return elements


def wider(wide: Vector, narrow: Vector) -> bool:
    """Is the first rule wider than the second? Element by element; one that is absent asks for nothing."""
    for name, element in wide.items():
        other = narrow.get(name)
        if other is None or not _includes(element, other):
            return False
    return True


def example(wide: Vector, narrow: Vector) -> dict[str, Value] | None:
    """An attribute set for which the second rule is true and the first is not, if there is one."""
    attributes = {name: _inside(element) for name, element in narrow.items()}
    if None in attributes.values():
        return None
    for name, element in wide.items():
        if name not in narrow:
            return attributes
        outside = _outside(element, narrow[name])
        if outside is not None:
            return attributes | {name: outside}
    return None


def _placed(atom: Condition) -> tuple[str, Element] | None:
    """An atom as the element of an attribute, if it can be one."""
    match atom:
        case Compare(op, Subject(name), Constant(value)) if op in _ORDERED:
            return _named(name, _element(op, plain(value)))
        case Compare(op, Constant(value), Subject(name)) if op in _ORDERED:
            return _named(name, _element(MIRRORED[op], plain(value)))
        case InRange(Subject(name), Constant(low), Constant(high)):
            of = family(plain(low))
            return None if of is None or of is not family(plain(high)) else (name, Element(of, plain(low), plain(high)))
        case _:
            return None


def _named(name: str, element: Element | None) -> tuple[str, Element] | None:
    return None if element is None else (name, element)


def _element(op: CompareOp, value: Value) -> Element | None:
    """One comparison as a range; ends that are not included move to the next value that is, if there is one."""
    of = family(value)
    if of is None:
        return None
    match op:
        case ">":
            return Element(of, after(value), GREATEST.get(of))
        case ">=":
            return Element(of, value, GREATEST.get(of))
        case "<" if (last := before(value)) is not None:
            return Element(of, LEAST[of], last)
        case "<":
            return Element(of, LEAST[of], value, high_open=True)
        case "<=":
            return Element(of, LEAST[of], value)
        case _:
            return Element(of, value, value)


def _includes(wide: Element, narrow: Element) -> bool:
    if wide.family is not narrow.family:
        return False
    if wide.low is None or narrow.low is None:
        return narrow.low is None
    return compare("<=", wide.low, narrow.low) is True and _reaches(wide, narrow)


def _reaches(wide: Element, narrow: Element) -> bool:
    """Does the first end no earlier than the second?"""
    if wide.high is None:
        return True
    if narrow.high is None:
        return False
    strictly = wide.high_open and not narrow.high_open
    return compare(">" if strictly else ">=", wide.high, narrow.high) is True


def _fits(value: Value, element: Element) -> bool:
    if element.low is None or compare(">=", value, element.low) is not True:
        return False
    return element.high is None or compare("<" if element.high_open else "<=", value, element.high) is True


def _inside(element: Element) -> Value:
    """A value that fits, a plain one if there is one; None if none does."""
    low, high = _written(element)
    tried = [*between(element.family, low, high, 1), element.low, element.high]
    return next((one for one in tried if one is not None and _fits(one, element)), None)


def _outside(wide: Element, narrow: Element) -> Value:
    """A value that fits the second and not the first, a plain one if there is one."""
    if wide.family is not narrow.family or wide.low is None:
        return _inside(narrow)
    low, high = _written(narrow)
    beside = [*between(wide.family, low, wide.low, 1), *between(wide.family, wide.high, high, 1)]
    tried = [*beside, narrow.low, narrow.high, wide.high]
    return next((one for one in tried if one is not None and _fits(one, narrow) and not _fits(one, wide)), None)


def _written(element: Element) -> tuple[Value, Value]:
    """The ends of an element, without those that are the ends of the family."""
    low = None if element.low == LEAST[element.family] else element.low
    return low, None if element.high == GREATEST.get(element.family) else element.high
