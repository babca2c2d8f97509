"""Conditions for one subject and one type (`bind`), and their normal form: clauses, each a conjunction (`clauses`).

Guarantees: `bind` gives the same truth for that subject on every event of the type. An absent subject attribute is
null. What is compared with a value of another kind is unknown (D2), and becomes null in that comparison; it arises
with subject attributes, which have no declared kind, and with a pattern whose author came to govern a type later.

`clauses(c, want=True)` holds on exactly the inputs where `c` is true, and `clauses(c, want=False)` on exactly those
where it is false; where neither holds it is unknown. So Kleene truth is preserved on every input, nulls included,
although intervals are merged and contradictory and duplicate clauses dropped on each side.
More than `MAX_CLAUSES` clauses are refused as `bad-expression`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from headgate.model import expressions as tree
from headgate.model.errors import BadExpression
from headgate.model.expressions import Atom, Condition, Constant, Operand, declared_kind
from headgate.model.limits import MAX_CLAUSE_ATOMS, MAX_CLAUSES
from headgate.model.state import State
from headgate.model.values import Kind, Value, comparable, compare

Term: TypeAlias = tree.Attribute | tree.Meta | tree.ClockPart


@dataclass(frozen=True, slots=True)
class Span:
    """Values between two ends; an end of None is unbounded."""

    low: Value = None
    high: Value = None
    low_open: bool = False
    high_open: bool = False

    @property
    def empty(self) -> bool:
        """Is no value inside?"""
        if self.low is None or self.high is None:
            return False
        if self.low_open or self.high_open:
            return compare("<", self.low, self.high) is not True
        return compare("<=", self.low, self.high) is not True

    def __contains__(self, value: Value) -> bool:
        above = self.low is None or compare(">" if self.low_open else ">=", value, self.low) is True
        return above and (self.high is None or compare("<" if self.high_open else "<=", value, self.high) is True)

    def meet(self, other: Span) -> Span:
        """The values inside both."""
        low, low_open, high, high_open = self.low, self.low_open, self.high, self.high_open
        if low is None or (other.low is not None and compare(">", other.low, low) is True):
            low, low_open = other.low, other.low_open
        elif other.low is not None and compare("=", other.low, low) is True:
            low_open = low_open or other.low_open
        if high is None or (other.high is not None and compare("<", other.high, high) is True):
            high, high_open = other.high, other.high_open
        elif other.high is not None and compare("=", other.high, high) is True:
            high_open = high_open or other.high_open
        return Span(low, high, low_open, high_open)


EVERYTHING = Span()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a clause asks of one term: null or not, a span, one of a set, none of a set."""

    null: bool = False
    span: Span = EVERYTHING
    only: frozenset[Value] | None = None
    without: frozenset[Value] = frozenset()


@dataclass(frozen=True, slots=True)
class Literal:
    """An atom that must be true, or must be false."""

    atom: Atom
    want: bool


@dataclass(frozen=True, slots=True)
class Clause:
    """A conjunction: bounds on terms, and the rest as literals."""

    bounds: Mapping[Term, Bounds]
    rest: tuple[Literal, ...] = ()


def clauses(condition: Condition, kinds: Mapping[str, Kind], *, want: bool = True) -> tuple[Clause, ...]:
    """The clauses that hold exactly where the condition's truth is `want`."""
    found = [Clause(dict(bounds), rest) for bounds, rest in _expand(condition, want, kinds)]
    return tuple(found)


_Raw: TypeAlias = tuple[tuple[tuple[Term, Bounds], ...], tuple[Literal, ...]]
_NOTHING: _Raw = ((), ())


def _expand(condition: Condition, want: bool, kinds: Mapping[str, Kind]) -> list[_Raw]:
    match condition:
        case tree.Not(arg):
            return _expand(arg, not want, kinds)
        case tree.Starred(arg):
            return _expand(arg, want, kinds)
        case tree.AllOf(args) | tree.AnyOf(args):
            if isinstance(condition, tree.AllOf) == want:
                product = [_NOTHING]
                for arg in args:
                    side = _expand(arg, want, kinds)
                    product = _distinct(_merge(a, b, kinds) for a in product for b in side)
                return product
            return _distinct(one for arg in args for one in _expand(arg, want, kinds))
        case atom:
            return _distinct(_literal(atom, want, kinds))


def _distinct(candidates: Iterable[_Raw | None]) -> list[_Raw]:
    kept: dict[_Raw, None] = {}
    for clause in candidates:
        if clause is None:
            continue
        kept[clause] = None
        if len(kept) > MAX_CLAUSES:
            raise BadExpression(
                f"the expression has more than MAX_CLAUSES ({MAX_CLAUSES}) clauses in normal form",
                remedy="split it into several subscriptions or rules, or use `in {...}`",
            )
        if len(clause[0]) + len(clause[1]) > MAX_CLAUSE_ATOMS:
            raise BadExpression(f"a clause has more than MAX_CLAUSE_ATOMS ({MAX_CLAUSE_ATOMS}) parts")
    return list(kept)


def _merge(a: _Raw, b: _Raw, kinds: Mapping[str, Kind]) -> _Raw | None:
    """The conjunction of two clauses; None if it can never hold."""
    bounds = dict(a[0])
    for term, new in b[0]:
        met = _meet(bounds[term], new, declared_kind(term, kinds)) if term in bounds else new
        if met is None:
            return None
        bounds[term] = met
    rest = dict.fromkeys((*a[1], *b[1]))
    if any(replace(one, want=not one.want) in rest for one in rest):
        return None
    return tuple(bounds.items()), tuple(rest)


def _meet(a: Bounds, b: Bounds, kind: Kind | None) -> Bounds | None:
    if a.null != b.null:
        return None
    only = a.only if b.only is None else b.only if a.only is None else a.only & b.only
    return _tidy(Bounds(a.null, a.span.meet(b.span), only, a.without | b.without), kind)


def _tidy(bounds: Bounds, kind: Kind | None) -> Bounds | None:
    """Canonical bounds, or None where no value is left."""
    span, only, without = _closed(bounds.span) if kind is Kind.INT else bounds.span, bounds.only, bounds.without
    if only is None and span.low is not None and compare("=", span.low, span.high) and not span.empty:
        only = frozenset({span.low})
    if only is not None:
        only = frozenset(v for v in only if v in span) - without
        if kind is Kind.INT:
            only = frozenset(int(v) for v in only if isinstance(v, (int, float)) and v == int(v))
        return Bounds(bounds.null, EVERYTHING, only) if only else None
    if span.empty:
        return None
    return Bounds(bounds.null, span, None, frozenset(v for v in without if v in span))


def _closed(span: Span) -> Span:
    """The same integers between closed whole ends."""
    low, high = span.low, span.high
    if isinstance(low, (int, float)):
        low = math.floor(low) + 1 if span.low_open else math.ceil(low)
    if isinstance(high, (int, float)):
        high = math.ceil(high) - 1 if span.high_open else math.floor(high)
    return Span(low, high)


def _literal(atom: Atom, want: bool, kinds: Mapping[str, Kind]) -> list[_Raw | None]:
    """The clauses of one atom. Every atom but `is null` and predicates needs its terms non-null."""
    match atom:
        case tree.IsNull(operand):
            return [_null(operand, want, kinds)]
        case tree.InRange():
            return list(_expand(tree.AllOf(tree.comparisons(atom)), want, kinds))
        case tree.Compare(op, left, right):
            return [_compare(op if want else tree.NEGATED[op], left, right, kinds)]
        case tree.InSet(operand, values):
            return [_in_set(operand, values, want, kinds)]
        case tree.Predicate():
            return [((), (Literal(atom, want),))]
        case _:
            return [_rest(Literal(atom, want), kinds)]


def _null(operand: Operand, want: bool, kinds: Mapping[str, Kind]) -> _Raw | None:
    match operand:
        case tree.Attribute(name) if name not in kinds:
            return _NOTHING if want else None
        case tree.Attribute():
            return ((operand, Bounds(null=want)),), ()
        case tree.ClockPart(_, of):
            return _null(of, want, kinds)
        case Constant(value):
            return _NOTHING if (value is None) == want else None
        case tree.Meta("rate" | "origin"):  # stamped only where something asks for it
            return ((operand, Bounds(null=want)),), ()
        case tree.Meta():
            return None if want else _NOTHING
        case tree.Subject():
            raise ValueError("subject attributes are bound before normalising")
        case tree.Variable() | tree.Apply() | tree.Count() | tree.Combine():
            raise tree.foreign(operand)
        case _:
            assert_never(operand)


def _compare(op: tree.CompareOp, left: Operand, right: Operand, kinds: Mapping[str, Kind]) -> _Raw | None:
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _NOTHING if compare(op, tree.plain(left.value), tree.plain(right.value)) is True else None
    if isinstance(left, Constant):
        op, left, right = tree.MIRRORED[op], right, left
    if not isinstance(right, Constant):
        return _rest(Literal(tree.Compare(op, left, right), True), kinds)
    value = tree.plain(right.value)
    match op:
        case "=":
            bounds = Bounds(only=frozenset({value}))
        case "!=":
            bounds = Bounds(without=frozenset({value}))
        case "<" | "<=":
            bounds = Bounds(span=Span(high=value, high_open=op == "<"))
        case ">" | ">=":
            bounds = Bounds(span=Span(low=value, low_open=op == ">"))
        case _:
            raise TypeError("sets are compared in constraints alone")
    return None if value is None else _bounded(left, bounds, kinds)


def _in_set(operand: Operand, values: tuple[Value, ...], want: bool, kinds: Mapping[str, Kind]) -> _Raw | None:
    if isinstance(operand, Constant):
        truths = [compare("=", tree.plain(operand.value), v) for v in values]
        found = True if True in truths else None if None in truths else False
        return _NOTHING if found is want else None
    chosen = frozenset(values)
    return _bounded(operand, Bounds(only=chosen) if want else Bounds(without=chosen), kinds)


def _bounded(operand: Operand, bounds: Bounds, kinds: Mapping[str, Kind]) -> _Raw | None:
    """Bounds on a term, which must be there to be compared."""
    match operand:
        case tree.Attribute(name) if name not in kinds:
            return None
        case tree.Attribute() | tree.Meta():
            tidy = _tidy(bounds, declared_kind(operand, kinds))
            return None if tidy is None else (((operand, tidy),), ())
        case tree.ClockPart(_, of):
            tidy = _tidy(bounds, Kind.INT)
            needs = _null(of, False, kinds)
            return None if tidy is None or needs is None else _merge((((operand, tidy),), ()), needs, kinds)
        case _:
            raise ValueError("subject attributes are bound before normalising")


def _rest(literal: Literal, kinds: Mapping[str, Kind]) -> _Raw | None:
    clause: _Raw | None = ((), (literal,))
    for operand in tree.operands(literal.atom):
        if isinstance(operand, Constant) and operand.value is None:
            return None
        needs = _null(operand, False, kinds)
        if needs is None or clause is None:
            return None
        clause = _merge(clause, needs, kinds)
    return clause


_UNKNOWN: Final = tree.Compare("=", Constant(None), Constant(None))


def bind(
    condition: Condition, subject: Mapping[str, Value] | None, kinds: Mapping[str, Kind], origin: Constant | None = None
) -> Condition:
    """The condition for one subject, over a type with these attributes; `@origin` stays open unless it is given.

    Without a subject `$names` stay open too: the condition for whoever it may be.
    """

    def put(operand: Operand) -> Operand:
        match operand:
            case tree.Subject(name) if subject is not None:
                return Constant(subject.get(name))
            case tree.Meta("origin") if origin is not None:
                return origin
            case tree.ClockPart(_, of) if declared_kind(of, kinds) not in (Kind.TIMESTAMP, None):
                return Constant(None)
            case _:
                return operand

    def fit(operand: Operand, other: Operand) -> Operand:
        """An operand as it counts beside another: null if the kinds do not compare."""
        bound = put(operand)
        mine, theirs = declared_kind(bound, kinds), declared_kind(put(other), kinds)
        return bound if mine is None or theirs is None or comparable(mine, theirs) else Constant(None)

    def text(operand: Operand) -> Operand:
        bound = put(operand)
        return bound if declared_kind(bound, kinds) in (Kind.STRING, None) else Constant(None)

    def fitted(atom: Atom) -> Condition:
        match atom:
            case tree.Compare(op, left, right):
                return tree.Compare(op, fit(left, right), fit(right, left))
            case tree.InRange():  # each end is a comparison of its own, so a value may fit one and not the other
                return tree.AllOf(tuple(map(fitted, tree.comparisons(atom))))
            case tree.TextMatch() | tree.InGroup():
                return tree.with_operands(atom, text)
            case tree.InSet(operand, values):
                fitting = tuple(v for v in values if fit(Constant(v), operand) != Constant(None))
                if len(fitting) == len(values):
                    return replace(atom, operand=put(operand))
                return tree.any_of(*((tree.InSet(put(operand), fitting),) if fitting else ()), _UNKNOWN)
            case _:
                return tree.with_operands(atom, put)

    return tree.rewrite(condition, fitted)


def in_relations(state: State, constraint: Condition) -> Condition:
    """A constraint in which `x in R` means the relation of one column, where no group is called so."""

    def meant(atom: Atom) -> Condition:
        match atom:
            case tree.InGroup(of, name) if name not in state.groups and name in state.relations:
                return tree.Related(name, (of,))
            case _:
                return atom

    return tree.rewrite(constraint, meant)
