"""What the event policy makes of events, once for each, and its mixed terms for pairs of event and choice (OASIS 7.4).

Guarantees: every expression has the value, and every leaf the truth, that `decide.event_policy` gives it. A comparison
of a column with constants is made on the distinct values of the column; all else is worked out once for each distinct
value (or combination of values) and remembered from batch to batch, up to `MAX_REMEMBERED`. A mixed comparison is one
of numbers, by rank among what clients say; a relation is a look-up in a table. Any other mixed term is worked out once
for each distinct pair of values.
Leaves out: clients (`compiled`), pairs (`stages`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import expressions as tree
from headgate.model.changes import Row
from headgate.model.expressions import Argument, Atom, Compare, Condition, Constant, Operand, Related, Variable
from headgate.pipeline.event_policy import compiled as terms
from headgate.pipeline.event_policy.compiled import Evaluator, OfBoth
from headgate.pipeline.log.codec import TIME, AttributeSlot, EventBatch, Flags, Ints, Numbered, restored
from headgate.pipeline.truth import ColumnRows, Truth, constant, kleene, prepared, truth, where_known

MAX_TABLE: Final = 1 << 20
"""Cells of one table of a relation; past it, keys are searched for."""
NONE, NULL = -1, -2
"""The numbers of what no row has, and of a part in which something is null."""

Codes = npt.NDArray[np.int32]


class Relation:
    """The rows of a relation that have some given values, cut into parts of some columns each."""

    def __init__(self, rows: Iterable[Row], given: Mapping[int, Argument], parts: Sequence[Sequence[int]]) -> None:
        self._parts = parts
        self._unknown = any(value is None for value in given.values())
        wanted = {at: terms.same_key(value) for at, value in given.items()}
        fitting = [row for row in rows if all(terms.same_key(row[at]) == key for at, key in wanted.items())]
        self._numbers: list[dict[Any, int]] = [{} for _ in parts]
        coded: list[list[int]] = []
        for numbers, places in zip(self._numbers, parts, strict=True):
            keys = [tuple(terms.same_key(row[at]) for at in places) for row in fitting]
            coded.append([numbers.setdefault(key, len(numbers)) for key in keys])
        self._texts: list[dict[str, int]] = [
            {key[0][1]: number for key, number in numbers.items() if len(key) == 1 and type(key[0][1]) is str}
            for numbers in self._numbers
        ]
        self._levels: list[tuple[int, bool, npt.NDArray[Any]]] = []
        at = np.array(coded[0], np.int64)
        for more, numbers in zip(coded[1:], self._numbers[1:], strict=True):
            at = self._level(at, np.array(more, np.int64), max(1, len(numbers)))

    def _level(self, at: Ints, more: Ints, wide: int) -> Ints:
        """One more part: what the parts so far and it are together, numbered."""
        numbers: Ints
        keys, numbers = np.unique(at * wide + more, return_inverse=True)
        cells = (int(at.max(initial=0)) + 1) * wide
        if cells <= MAX_TABLE:
            table = np.full(cells, NONE, np.int32)
            table[keys] = np.arange(len(keys))
            self._levels.append((wide, True, table))
        else:
            self._levels.append((wide, False, keys))
        return numbers

    def codes(self, part: int, rows: Sequence[Sequence[Argument]], places: Sequence[int]) -> list[int]:
        """The numbers of what rows of values have as a part, where the part's columns stand at these places in them."""
        texts = self._texts[part]
        if len(places) == 1:
            values = [row[places[0]] for row in rows]
            return [texts.get(one, NONE) if type(one) is str else self._code(part, (one,)) for one in values]
        return [self._code(part, [row[at] for at in places]) for row in rows]

    def _code(self, part: int, values: Sequence[Argument]) -> int:
        if any(value is None for value in values):
            return NULL
        return self._numbers[part].get(tuple(map(terms.same_key, values)), NONE)

    def truth(self, codes: Sequence[Codes]) -> Truth:
        """Which of the tuples are in the relation? Unknown where something is null."""
        known = np.logical_and.reduce([one != NULL for one in codes]) & (not self._unknown)
        return where_known(self._found(codes), known)

    def _found(self, codes: Sequence[Codes]) -> Flags:
        at = codes[0].astype(np.int64)
        for (wide, is_table, held), more in zip(self._levels, codes[1:], strict=True):
            there = np.flatnonzero((at >= 0) & (more >= 0))
            keys = at[there] * wide + more[there]
            at = np.full(len(at), NONE, np.int64)
            if is_table:
                at[there] = held[keys]
            elif len(held):
                place = np.minimum(np.searchsorted(held, keys), len(held) - 1)
                at[there] = np.where(held[place] == keys, place, NONE)
        is_in: Flags = at >= 0
        return is_in


MAX_REMEMBERED: Final = 200_000
"""Values of one expression that are remembered; past it, all of them are worked out anew."""


class EventTerm:
    """An expression over events, or several beside one another, of which a value is a tuple; values are numbered."""

    def __init__(self, name: str, numbered: Callable[[Rows], Ints]) -> None:
        self.name, self._numbered = name, numbered
        self.values: Numbered[Any] = Numbered()

    def number(self, value: Any) -> int:
        """The number of a value, new if need be."""
        return self.values.number(terms.exact_key(value), value)

    def numbers(self, rows: Rows) -> Ints:
        """The number of the value for each row."""
        if self.name not in rows.numbers:
            rows.numbers[self.name] = self._numbered(rows)
        return rows.numbers[self.name]


class ValueTable:
    """Something worked out for each value of a node, when it is first asked for."""

    def __init__(self, node: EventTerm, make: Callable[[list[Any]], list[int]], dtype: type = np.int64) -> None:
        self._node = node
        self._make = make
        self._known: npt.NDArray[Any] = np.zeros(0, dtype)

    def of(self, rows: Rows) -> npt.NDArray[Any]:
        """For the value that each row has; looked up once for some rows."""
        if id(self) not in rows.looked_up:
            numbers = self._node.numbers(rows)
            at = len(self._known)
            if at < len(self._node.values):
                fresh = self._make(self._node.values[at:])
                self._known = np.concatenate([self._known, np.array(fresh, self._known.dtype)])
            rows.looked_up[id(self)] = self, self._known[numbers]  # the table is kept, and so its id
        return rows.looked_up[id(self)][1]


@dataclass(slots=True)
class Rows:
    """Some rows of a batch, all of types that have the columns asked for."""

    batch: EventBatch
    rows: Ints
    numbers: dict[str, Ints] = field(default_factory=dict)
    truths: dict[str, Truth] = field(default_factory=dict)
    looked_up: dict[int, tuple[ValueTable, npt.NDArray[Any]]] = field(default_factory=dict)
    _distinct: dict[AttributeSlot, tuple[pa.Array, Ints]] = field(default_factory=dict)

    def distinct(self, column: AttributeSlot) -> tuple[pa.Array, Ints]:
        """The distinct values of a column in their stored form, null as the last, and which one each row has."""
        if column not in self._distinct:
            encoded = self.array(column).dictionary_encode()
            values = pa.concat_arrays([encoded.dictionary, pa.nulls(1, encoded.dictionary.type)])
            filled = pc.fill_null(encoded.indices, len(values) - 1) if encoded.indices.null_count else encoded.indices
            self._distinct[column] = values, filled.to_numpy().astype(np.int64)
        return self._distinct[column]

    def array(self, column: AttributeSlot) -> pa.Array:
        """A column in its stored form."""
        slot = column.slot
        whole = len(self.rows) == len(self.batch)
        if slot.store in "sy":
            texts = self.batch.texts(slot)
            return texts if whole else texts.take(pa.array(self.rows))
        numbers = self.batch.numbers(slot)[self.rows]
        if slot == TIME:
            return pa.array(numbers)
        word, bit = slot.number >> 6, np.uint64(slot.number & 63)  # a slot is numbered by its attribute's bit
        return pa.array(numbers, mask=(self.batch.nulls[self.rows, word] >> bit & np.uint64(1)).astype(np.bool_))


def _of_column(name: str, column: AttributeSlot) -> EventTerm:
    """A column of the log."""

    def numbered(rows: Rows) -> Ints:
        distinct, places = rows.distinct(column)
        held = [node.number(restored(one, column.kind)) for one in distinct.to_pylist()]
        return np.array(held, np.int64)[places]

    node = EventTerm(name, numbered)
    return node


def _beside(name: str, children: Sequence[EventTerm]) -> EventTerm:
    """Several expressions beside one another."""

    def numbered(rows: Rows) -> Ints:
        key = np.zeros(len(rows.rows), np.int64)
        for child in children:
            numbers = child.numbers(rows)
            _, key = np.unique(key, return_inverse=True)  # at most as many as rows, so that the product fits
            key = key * len(child.values) + numbers
        _, first, places = np.unique(key, return_index=True, return_inverse=True)
        listed = [[child.values[number] for number in child.numbers(rows)[first].tolist()] for child in children]
        return np.array([node.number(one) for one in zip(*listed, strict=True)], np.int64)[places]

    node = EventTerm(name, numbered)
    return node


def _worked_out(name: str, expression: Operand, child: EventTerm, evaluator: Evaluator) -> EventTerm:
    """An expression of others, which are `arg 0`, `arg 1` and so on in it."""

    def made(values: list[Any]) -> list[int]:
        return [node.number(evaluator.value(expression, _numbered("arg", one))) for one in values]

    table = ValueTable(child, made)
    node = EventTerm(name, table.of)
    return node


def _numbered(name: str, value: Any) -> dict[str, Argument]:
    """What `name 0`, `name 1` and so on are for a value of a node, or for several."""
    return {f"{name} {at}": one for at, one in enumerate(_as_row(value))}


def _as_row(value: Any) -> tuple[Argument, ...]:
    return value if type(value) is tuple else (value,)


# -- all of it ----------------------------------------------------------------------------------------------------


class EventSide:
    """The expressions and leaves of a policy that look at events alone."""

    def __init__(self, columns: Mapping[str, AttributeSlot], evaluator: Evaluator) -> None:
        self._columns = columns
        self._evaluator = evaluator
        self._nodes: dict[str, EventTerm] = {}
        self._leaves: dict[str, Callable[[Rows], Truth]] = {}
        self._names: dict[int, tuple[Atom, str]] = {}
        self._relations: dict[str, Relation] = {}
        self._codes: dict[Any, tuple[Relation, ValueTable]] = {}

    @property
    def is_full(self) -> bool:
        """Is more remembered than should be?"""
        return any(len(node.values) > MAX_REMEMBERED for node in self._nodes.values())

    def truth(self, condition: Condition, rows: Rows) -> Truth:
        """The truth of a condition that looks at events alone."""
        return kleene(condition, lambda atom, _: self._leaf(atom, rows), np.ones(len(rows.rows), np.bool_))

    def node(self, expressions: tuple[Operand, ...]) -> EventTerm:
        """The node of an expression, or of several beside one another."""
        if len(expressions) == 1:
            return self._node(expressions[0])
        name = repr(expressions)
        if name not in self._nodes:
            self._nodes[name] = _beside(name, list(map(self._node, expressions)))
        return self._nodes[name]

    def _node(self, expression: Operand) -> EventTerm:
        name = repr(expression)
        if name not in self._nodes:
            if isinstance(expression, Variable):
                self._nodes[name] = _of_column(name, self._columns[expression.name])
            else:
                cut, parts = _opened(expression)
                self._nodes[name] = _worked_out(name, cut, self.node(parts), self._evaluator)
        return self._nodes[name]

    def relation(self, name: str, args: tuple[Operand, ...], parts: list[list[int]]) -> Relation:
        """The rows of a relation that have the constants among some arguments, cut into parts."""
        given = {at: arg.value for at, arg in enumerate(args) if isinstance(arg, Constant)}
        key = repr((name, len(args), given, parts))
        if key not in self._relations:
            rows = (row for row in self._evaluator.facts.relations[name] if len(row) == len(args))
            self._relations[key] = Relation(rows, given, parts)
        return self._relations[key]

    def codes(self, known: Relation, part: int, node: EventTerm, places: list[int]) -> ValueTable:
        """The number that the values of a node have as a part of a relation; `places` says which of its values."""
        key = id(known), part, node.name, tuple(places)
        if key not in self._codes:
            table = ValueTable(node, lambda values: known.codes(part, list(map(_as_row, values)), places), np.int32)
            self._codes[key] = known, table  # the relation is kept, and so its id
        return self._codes[key][1]

    def _truths(self, leaf: Atom, values: list[Any]) -> list[int]:
        """The truth of a leaf for some values of a node."""
        if (
            isinstance(leaf, tree.InGroup)
            and isinstance(leaf.operand, Variable)
            and leaf.group in self._evaluator.facts.groups
        ):
            inside = self._evaluator.inside(leaf.group)
            return [
                (terms.TRUE if one in inside else terms.FALSE) if type(one) is str else terms.UNKNOWN for one in values
            ]
        return [terms.code(self._evaluator.truth(leaf, _numbered("arg", value))) for value in values]

    def _leaf(self, leaf: Atom, rows: Rows) -> Truth:
        known = self._names.get(id(leaf))
        if known is None:
            known = self._names[id(leaf)] = leaf, repr(leaf)  # the leaf is kept, and so its id
        name = known[1]
        if name not in rows.truths:
            if name not in self._leaves:
                self._leaves[name] = self._made(leaf)
            rows.truths[name] = self._leaves[name](rows)
        return rows.truths[name]

    def _made(self, leaf: Atom) -> Callable[[Rows], Truth]:
        cut, parts = _opened(leaf)
        if not parts:
            always = self._evaluator.truth(leaf, {})
            return lambda rows: constant(always, len(rows.rows))
        columns = [self._columns[part.name] for part in parts if isinstance(part, Variable)]
        condition = _condition(cut)
        if condition is not None and len(columns) == len(parts):
            return _compared(condition, columns)
        if len(parts) > 1 and isinstance(cut, Related) and self.is_looked_up(cut):
            return self._related(cut.name, cut.args, parts)
        node = self.node(parts)
        table = ValueTable(node, lambda values: self._truths(cut, values), np.int8)

        def look_up(rows: Rows) -> Truth:
            codes = table.of(rows)
            return Truth(codes == terms.TRUE, codes == terms.FALSE)

        return look_up

    def _related(self, name: str, args: tuple[Operand, ...], parts: tuple[Operand, ...]) -> Callable[[Rows], Truth]:
        """A relation of several expressions: each is looked up on its own, and then what they are together."""
        places: list[list[int]] = [[] for _ in parts]
        for at, arg in enumerate(args):
            if isinstance(arg, Variable) and arg != terms.BLANK:
                places[int(arg.name.split()[1])].append(at)
        known = self.relation(name, args, places)
        tables = [self.codes(known, at, self._node(one), [0] * len(places[at])) for at, one in enumerate(parts)]
        return lambda rows: known.truth([table.of(rows) for table in tables])

    def is_looked_up(self, leaf: Related) -> bool:
        """Does a relation have simple arguments, so that its rows can be found by number?"""
        return leaf.name in self._evaluator.facts.relations and all(map(_is_simple, leaf.args))


def _is_simple(arg: Operand) -> bool:
    return isinstance(arg, Variable | Constant)


def _opened(of: Any) -> tuple[Any, tuple[Operand, ...]]:
    """An expression or leaf with `arg 0`, `arg 1` for what looks at the event in it, and those parts."""
    parts: dict[str, Operand] = {}

    def opened(part: Operand) -> Operand:
        if not terms.looks_at(part):
            return part
        parts.setdefault(repr(part), part)
        return Variable(f"arg {list(parts).index(repr(part))}")

    return tree.with_operands(of, opened), tuple(parts.values())


def _condition(leaf: Atom) -> Condition | None:
    """A leaf over columns and constants as a condition on attributes, if conditions can say it."""
    match leaf:
        case Compare(op) if op not in tree.NEGATED:
            return None
        case Compare() | tree.TextMatch() | tree.InRange() | tree.InSet() | tree.IsNull():
            letters = [isinstance(one, Constant) and isinstance(one.value, frozenset) for one in tree.operands(leaf)]
            if all(map(_is_simple, tree.operands(leaf))) and not any(letters):
                return tree.with_operands(leaf, lambda of: tree.Attribute(of.name) if isinstance(of, Variable) else of)
    return None


def _compared(condition: Condition, columns: Sequence[AttributeSlot]) -> Callable[[Rows], Truth]:
    """A condition on columns, put to the distinct values of one, or to several row by row."""
    kinds = {f"arg {at}": column.kind for at, column in enumerate(columns)}
    ready = prepared(condition, {}, kinds)

    def look(rows: Rows) -> Truth:
        if len(columns) > 1:
            arrays = dict(zip(kinds, map(rows.array, columns), strict=True))
            return truth(ready, ColumnRows(kinds, arrays), np.ones(len(rows.rows), np.bool_))
        distinct, places = rows.distinct(columns[0])
        outcome = truth(ready, ColumnRows(kinds, {"arg 0": distinct}), np.ones(len(distinct), np.bool_))
        return Truth(outcome.true[places], outcome.false[places])

    return look


MAX_ASKED: Final = 1 << 20
"""Distinct pairs of values whose truth is remembered."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """A mixed term: what it looks at in events, and its truth for pairs of event and choice, given that for each."""

    looks_at: Sequence[Callable[[Rows], npt.NDArray[Any]]]
    truth: Callable[[list[npt.NDArray[Any]], Ints, Ints], Truth]

    def of_events(self, rows: Rows) -> list[npt.NDArray[Any]]:
        """What it looks at, for each of some events."""
        return [look(rows) for look in self.looks_at]


def mixed_term(
    term: OfBoth, side: EventSide, evaluator: Evaluator, rights: list[tuple[Argument, ...]], column: Ints
) -> Mixed:
    """A term over choices whose values have these numbers."""
    node = side.node(term.lefts)
    match term.leaf:
        case Compare(op, Variable("left 0"), Variable("right 0")) if op in tree.MIRRORED:
            return _ranked(op, node, [one for (one,) in rights], column)
        case Compare(op, Variable("right 0"), Variable("left 0")) if op in tree.MIRRORED:
            return _ranked(tree.MIRRORED[op], node, [one for (one,) in rights], column)
        case Related() as leaf if side.is_looked_up(leaf):
            return _related(leaf, node, side, rights, column)
        case _:
            return _asked(term.leaf, node, evaluator, rights, column)


def _ranked(op: str, node: EventTerm, rights: list[Argument], column: Ints) -> Mixed:
    """`left op right`, by where the left stands among all that stands on the right."""
    kinds = list(map(terms.family, rights))
    values: dict[int, set[Any]] = {}
    for kind, right in zip(kinds, rights, strict=True):
        values.setdefault(kind, set()).add(right)
    # Sets have no order, but then only whether they are equal is asked.
    orders = {kind: list(ones) if kind == terms.SET else sorted(ones) for kind, ones in values.items() if kind}
    places = {kind: {one: at for at, one in enumerate(order)} for kind, order in orders.items()}
    places[terms.NO_FAMILY] = {None: 0}
    ranks_of = np.array([places[kind][one] for kind, one in zip(kinds, rights, strict=True)], np.int32)[column]
    families = np.array(kinds, np.int8)[column]

    def span(value: Argument) -> tuple[int, int]:
        """The ranks that are the same as a value: from here, to before there."""
        kind = terms.family(value)
        at = places.get(kind, {}).get(value)
        if at is not None:
            return at, at + 1
        order = orders.get(kind, [])
        before = len(order) if kind == terms.SET else bisect_left(order, value)
        return before, before

    def truth(seen: list[npt.NDArray[Any]], events: Ints, choices: Ints) -> Truth:
        low, high, kind = (one[events] for one in seen)
        ranks = ranks_of[choices]
        matches: Flags
        match op:
            case "=":
                matches = (ranks >= low) & (ranks < high)
            case "!=":
                matches = (ranks < low) | (ranks >= high)
            case "<":
                matches = ranks >= high
            case "<=":
                matches = ranks >= low
            case ">":
                matches = ranks < low
            case _:
                matches = ranks < high
        known: Flags = (kind == families[choices]) & (kind != terms.NO_FAMILY)
        if op not in ("=", "!="):
            known &= kind != terms.SET
        return where_known(matches, known)

    tables = (
        ValueTable(node, lambda values: [span(one)[0] for one in values], np.int32),
        ValueTable(node, lambda values: [span(one)[1] for one in values], np.int32),
        ValueTable(node, lambda values: list(map(terms.family, values)), np.int8),
    )
    return Mixed([table.of for table in tables], truth)


def _related(
    leaf: Related, node: EventTerm, side: EventSide, rights: list[tuple[Argument, ...]], column: Ints
) -> Mixed:
    """`Relation(left, right, ...)`: what the event says, and what the client does, looked up together."""
    left, right = _places(leaf.args, "left"), _places(leaf.args, "right")
    relation = side.relation(leaf.name, leaf.args, [list(left), list(right)])
    of_choices = np.array(relation.codes(1, rights, list(right.values())), np.int32)[column]

    def truth(seen: list[npt.NDArray[Any]], events: Ints, choices: Ints) -> Truth:
        return relation.truth((seen[0][events], of_choices[choices]))

    return Mixed([side.codes(relation, 0, node, list(left.values())).of], truth)


def _places(args: tuple[Operand, ...], side: str) -> dict[int, int]:
    """Where values of one side stand in a relation, and which of the side's values each is."""
    names = {at: arg.name.split() for at, arg in enumerate(args) if isinstance(arg, Variable) and arg != terms.BLANK}
    return {at: int(name[1]) for at, name in names.items() if name[0] == side}


def _asked(
    leaf: Atom, node: EventTerm, evaluator: Evaluator, rights: list[tuple[Argument, ...]], column: Ints
) -> Mixed:
    """A term that nothing faster serves for: asked once for each distinct pair of values."""
    answers: dict[int, int] = {}
    wide = len(rights)

    def ask(key: int) -> int:
        if key not in answers:
            bound = {**_numbered("left", node.values[key // wide]), **_numbered("right", rights[key % wide])}
            answers[key] = terms.code(evaluator.truth(leaf, bound))
        return answers[key]

    def truth(seen: list[npt.NDArray[Any]], events: Ints, choices: Ints) -> Truth:
        distinct, places = np.unique(seen[0][events] * wide + column[choices], return_inverse=True)
        if len(answers) > MAX_ASKED:
            answers.clear()
        truths = np.array([ask(key) for key in distinct.tolist()], np.int8)
        return Truth((truths == terms.TRUE)[places], (truths == terms.FALSE)[places])

    return Mixed([node.numbers], truth)
