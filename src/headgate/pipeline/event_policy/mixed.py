"""Mixed terms of the event policy, for many pairs of event and choice of credentials at once (OASIS 7.4).

Guarantees: the truth of a term for a pair is that of `decide.constraints`. A comparison is one of numbers, by rank
among what clients say; a relation is a look-up in a table. Any other term is worked out once for each distinct pair of
values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from headgate.model.conditions import Argument, Atom, Compare, Constant, Operand, Related, Variable
from headgate.pipeline.event_policy.compiled import OfBoth
from headgate.pipeline.event_policy.events import EventSide, Node, Rows, ValueTable, bound
from headgate.pipeline.event_policy.relations import NULL, Codes, Relation
from headgate.pipeline.event_policy.terms import BLANK, FALSE, NO_FAMILY, SET, TRUE, Evaluator, code, family
from headgate.pipeline.log.codec import Flags, Ints

MAX_ASKED: Final = 1 << 20
"""Distinct pairs of values whose truth is remembered."""
_MIRRORED: Final[Mapping[str, str]] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Mixed(Protocol):
    """A mixed term: what it looks at in each event, and its truth for pairs."""

    def of_events(self, rows: Rows) -> list[npt.NDArray[Any]]:
        """What it looks at, for each of some events."""

    def holds(self, seen: list[npt.NDArray[Any]], events: Ints, choices: Ints, *, sure: bool) -> Flags:
        """For which pairs is it true, or, if that need not be sure, not false?"""


def mixed_term(
    term: OfBoth, side: EventSide, evaluator: Evaluator, rights: list[tuple[Argument, ...]], column: Ints
) -> Mixed:
    """A term over choices whose values have these numbers."""
    node = side.node(term.lefts)
    match term.leaf:
        case Compare(op, Variable("left 0"), Variable("right 0")) if op in _MIRRORED:
            return _Compared(op, node, [one for (one,) in rights], column)
        case Compare(op, Variable("right 0"), Variable("left 0")) if op in _MIRRORED:
            return _Compared(_MIRRORED[op], node, [one for (one,) in rights], column)
        case Related(name, args) if name in evaluator.facts.relations and all(map(_is_simple, args)):
            left, right = _places(args, "left"), _places(args, "right")
            known = side.relation(name, args, [list(left), list(right)])
            lefts, others = list(left.values()), list(right.values())
            if len(others) == 1:
                coded = known.codes(1, [values[others[0]] for values in rights])
            else:
                coded = [known.code(1, [values[at] for at in others]) for values in rights]
            codes = side.codes(known, 0, node, lefts, single=len(term.lefts) == 1)
            return _Related(known, node, codes, np.array(coded, np.int32)[column])
        case _:
            return _Asked(term.leaf, len(term.lefts), node, evaluator, rights, column)


def _is_simple(arg: Operand) -> bool:
    return isinstance(arg, Variable | Constant)


class _Compared:
    """`left op right`, by where the left stands among all that stands on the right."""

    def __init__(self, op: str, node: Node, rights: list[Argument], column: Ints) -> None:
        self._op, self._node = op, node
        kinds = list(map(family, rights))
        families: dict[int, set[Any]] = {}
        for kind, right in zip(kinds, rights, strict=True):
            families.setdefault(kind, set()).add(right)
        # Sets have no order, but then only whether they are equal is asked.
        self._orders = {kind: list(ones) if kind == SET else sorted(ones) for kind, ones in families.items() if kind}
        self._places = {kind: {one: at for at, one in enumerate(order)} for kind, order in self._orders.items()}
        self._places[NO_FAMILY] = {None: 0}
        ranks = [self._places[kind][one] for kind, one in zip(kinds, rights, strict=True)]
        self._ranks = np.array(ranks, np.int32)[column]
        self._families = np.array(kinds, np.int8)[column]
        domain = node.domain
        self._low = ValueTable(domain, lambda values: [self._span(one)[0] for one in values], np.int32)
        self._high = ValueTable(domain, lambda values: [self._span(one)[1] for one in values], np.int32)
        self._kinds = ValueTable(domain, lambda values: list(map(family, values)), np.int8)

    def _span(self, value: Argument) -> tuple[int, int]:
        """The ranks that are the same as a value: from here, to before there."""
        kind = family(value)
        at = self._places.get(kind, {}).get(value)
        if at is not None:
            return at, at + 1
        order = self._orders.get(kind, [])
        before = len(order) if kind == SET else bisect_left(order, value)
        return before, before

    def of_events(self, rows: Rows) -> list[npt.NDArray[Any]]:
        numbers = self._node.numbers(rows)
        return [rows.look_up(table, numbers) for table in (self._low, self._high, self._kinds)]

    def holds(self, seen: list[npt.NDArray[Any]], events: Ints, choices: Ints, *, sure: bool) -> Flags:
        low, high, kinds = seen
        ranks, kind = self._ranks[choices], kinds[events]
        matches: Flags
        match self._op:
            case "=":
                matches = (ranks >= low[events]) & (ranks < high[events])
            case "!=":
                matches = (ranks < low[events]) | (ranks >= high[events])
            case "<":
                matches = ranks >= high[events]
            case "<=":
                matches = ranks >= low[events]
            case ">":
                matches = ranks < low[events]
            case _:
                matches = ranks < high[events]
        known: Flags = (kind == self._families[choices]) & (kind != NO_FAMILY)
        if self._op not in ("=", "!="):
            known &= kind != SET
        return matches & known if sure else matches | ~known


class _Related:
    """`Relation(left, right, ...)`: what the event says, and what the client does, looked up together."""

    def __init__(self, known: Relation, node: Node, codes: ValueTable, others: Codes) -> None:
        self._relation, self._node, self._codes, self._others = known, node, codes, others

    def of_events(self, rows: Rows) -> list[npt.NDArray[Any]]:
        numbers = self._node.numbers(rows)
        return [rows.look_up(self._codes, numbers)]

    def holds(self, seen: list[npt.NDArray[Any]], events: Ints, choices: Ints, *, sure: bool) -> Flags:
        left, right = seen[0][events], self._others[choices]
        related = self._relation.found((left, right))
        if self._relation.unknown:
            return np.full(len(events), not sure)
        return related if sure else related | (left == NULL) | (right == NULL)


def _places(args: tuple[Operand, ...], side: str) -> dict[int, int]:
    """Where values of one side stand in a relation, and which of the side's values each is."""
    names = {at: arg.name.split() for at, arg in enumerate(args) if isinstance(arg, Variable) and arg != BLANK}
    return {at: int(name[1]) for at, name in names.items() if name[0] == side}


class _Asked:
    """A term that nothing faster serves for: asked once for each distinct pair of values."""

    def __init__(
        self,
        leaf: Atom,
        lefts: int,
        node: Node,
        evaluator: Evaluator,
        rights: list[tuple[Argument, ...]],
        column: Ints,
    ) -> None:
        self._node, self._rights, self._column = node, rights, column
        self._known: dict[int, int] = {}

        def ask(left: int, right: int) -> int:
            given = bound(node, node.domain.values[left])
            said = {f"left {at}": given.get(f"arg {at}") for at in range(lefts)}
            said |= {f"right {at}": value for at, value in enumerate(rights[right])}
            return code(evaluator.truth(leaf, said))

        self._ask: Callable[[int, int], int] = ask

    def of_events(self, rows: Rows) -> list[npt.NDArray[Any]]:
        return [self._node.numbers(rows)]

    def holds(self, seen: list[npt.NDArray[Any]], events: Ints, choices: Ints, *, sure: bool) -> Flags:
        wide = len(self._rights)
        distinct, places = np.unique(seen[0][events] * wide + self._column[choices], return_inverse=True)
        if len(self._known) > MAX_ASKED:
            self._known.clear()
        truths = np.zeros(len(distinct), np.int8)
        for at, key in enumerate(distinct.tolist()):
            answer = self._known.get(key)
            if answer is None:
                answer = self._known[key] = self._ask(key // wide, key % wide)
            truths[at] = answer
        counts: Flags = truths == TRUE if sure else truths != FALSE
        return counts[places]
