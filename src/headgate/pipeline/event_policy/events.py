"""What the event policy makes of events, once for each: values of its expressions, truths of its event terms.

Guarantees: every expression has the value, and every leaf the truth, that `decide.event_policy` gives it for the event.
A comparison of a column with constants is made on the distinct values of the column; all else is worked out once for
each distinct value (or combination of values) and remembered from batch to batch, up to `MAX_REMEMBERED`.
Leaves out: clients (`compiled`), pairs (`stages`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide.truth import World
from headgate.model.conditions import (
    Argument,
    Atom,
    Attribute,
    Compare,
    Condition,
    Constant,
    InGroup,
    InRange,
    InSet,
    Operand,
    Related,
    TextMatch,
    Variable,
    operands,
    with_operands,
)
from headgate.model.state import State
from headgate.model.values import EPOCH as BEGINNING
from headgate.pipeline.admission.frame import ConditionFacts, Frame, Sent
from headgate.pipeline.admission.vector import prepared, truth
from headgate.pipeline.event_policy.compiled import Column, EveryTerm, Formula, Inverse, OfEvent, SomeTerm
from headgate.pipeline.event_policy.relations import NULL, Relation
from headgate.pipeline.event_policy.terms import (
    BLANK,
    FALSE,
    NO_FAMILY,
    TRUE,
    UNKNOWN,
    Evaluator,
    code,
    exact_key,
    family,
    looks_at,
    same_key,
)
from headgate.pipeline.index.layout import TIME, restored
from headgate.pipeline.log.codec import EventBatch, Ints

Truths = npt.NDArray[np.int8]

MAX_REMEMBERED: Final = 200_000
"""Values of one expression that are remembered; past it, all of them are worked out anew."""
_COLUMN: Final = Attribute("x")
_ORDERED: Final = frozenset({"=", "!=", "<", "<=", ">", ">="})
_NO_FACTS: Final = ConditionFacts(World(State()))


class ValueDomain:
    """The values that an expression has had, numbered; number 0 is null."""

    def __init__(self) -> None:
        self.values: list[Any] = [None]
        self._numbers: dict[Any, int] = {exact_key(None): 0}

    def __len__(self) -> int:
        return len(self.values)

    def number(self, value: Any) -> int:
        """The number of a value, new if need be."""
        key = exact_key(value)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(value)
        return number


class ValueTable:
    """Something worked out for each value of a domain, when it is first asked for."""

    def __init__(self, domain: ValueDomain, make: Callable[[list[Any]], list[int]], dtype: type = np.int64) -> None:
        self._domain = domain
        self._make = make
        self._known: npt.NDArray[Any] = np.zeros(0, dtype)

    def all(self) -> npt.NDArray[Any]:
        """For every value of the domain by number."""
        at = len(self._known)
        if at < len(self._domain):
            fresh = self._make(self._domain.values[at:])
            self._known = np.concatenate([self._known, np.array(fresh, self._known.dtype)])
        return self._known


@dataclass(slots=True)
class Rows:
    """Some rows of a batch, all of types that have the columns asked for."""

    batch: EventBatch
    rows: Ints
    numbers: dict[str, Ints] = field(default_factory=dict)
    truths: dict[str, Truths] = field(default_factory=dict)
    _looked_up: dict[int, tuple[ValueTable, npt.NDArray[Any]]] = field(default_factory=dict)
    _distinct: dict[Column, tuple[pa.Array, Ints]] = field(default_factory=dict)

    def look_up(self, table: ValueTable, numbers: Ints) -> npt.NDArray[Any]:
        """What a table says of the values with these numbers, which are always the same for one table."""
        if id(table) not in self._looked_up:
            self._looked_up[id(table)] = table, table.all()[numbers]  # the table is kept, and so its id
        return self._looked_up[id(table)][1]

    def distinct(self, column: Column) -> tuple[pa.Array, Ints]:
        """The distinct values of a column in their stored form, and which one each row has; a null is one past them."""
        if column not in self._distinct:
            encoded = self._array(column).dictionary_encode()
            last = len(encoded.dictionary)
            filled = pc.fill_null(encoded.indices, last) if encoded.indices.null_count else encoded.indices
            self._distinct[column] = encoded.dictionary, filled.to_numpy().astype(np.int64)
        return self._distinct[column]

    def _array(self, column: Column) -> pa.Array:
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


# -- expressions --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Base:
    """A column of the log."""

    name: str
    column: Column
    domain: ValueDomain = field(default_factory=ValueDomain)

    def numbers(self, rows: Rows) -> Ints:
        if self.name not in rows.numbers:
            distinct, places = rows.distinct(self.column)
            held = [self.domain.number(restored(one, self.column.kind)) for one in distinct.to_pylist()]
            rows.numbers[self.name] = np.array([*held, 0], np.int64)[places]
        return rows.numbers[self.name]


@dataclass(slots=True)
class _Several:
    """Several expressions beside one another; a value is a tuple."""

    name: str
    children: tuple[Node, ...]
    domain: ValueDomain = field(default_factory=ValueDomain)

    def numbers(self, rows: Rows) -> Ints:
        if self.name not in rows.numbers:
            key = np.zeros(len(rows.rows), np.int64)
            for child in self.children:
                numbers = child.numbers(rows)
                _, key = np.unique(key, return_inverse=True)  # at most as many as rows, so that the product fits
                key = key * len(child.domain) + numbers
            _, first, places = np.unique(key, return_index=True, return_inverse=True)
            listed = [
                [child.domain.values[number] for number in child.numbers(rows)[first].tolist()]
                for child in self.children
            ]
            held = [self.domain.number(one) for one in zip(*listed, strict=True)]
            rows.numbers[self.name] = np.array(held, np.int64)[places]
        return rows.numbers[self.name]


class _Derived:
    """An expression of others, which are `arg 0`, `arg 1` and so on in it."""

    def __init__(self, name: str, expression: Operand, child: Node, evaluator: Evaluator) -> None:
        self.name, self.child, self.domain = name, child, ValueDomain()
        number, value = self.domain.number, evaluator.value
        self._table = ValueTable(
            child.domain, lambda values: [number(value(expression, bound(child, v))) for v in values]
        )

    def numbers(self, rows: Rows) -> Ints:
        if self.name not in rows.numbers:
            places = self.child.numbers(rows)
            rows.numbers[self.name] = self._table.all()[places]
        return rows.numbers[self.name]


Node = _Base | _Several | _Derived


def bound(node: Node, value: Any) -> dict[str, Argument]:
    """What `arg 0`, `arg 1` and so on are for a value of a node; all null for null."""
    if isinstance(node, _Several):
        return {} if value is None else {f"arg {at}": one for at, one in enumerate(value)}
    return {"arg 0": value}


# -- all of it ----------------------------------------------------------------------------------------------------


class EventSide:
    """The expressions and leaves of a policy that look at events alone."""

    def __init__(self, columns: Mapping[str, Column], evaluator: Evaluator) -> None:
        self._columns = columns
        self._evaluator = evaluator
        self._nodes: dict[str, Node] = {}
        self._leaves: dict[str, Callable[[Rows], Truths]] = {}
        self._names: dict[int, tuple[Atom, str]] = {}
        self._relations: dict[str, Relation] = {}
        self._codes: dict[Any, tuple[Relation, ValueTable]] = {}

    @property
    def is_full(self) -> bool:
        """Is more remembered than should be?"""
        return any(len(node.domain) > MAX_REMEMBERED for node in self._nodes.values())

    def truth(self, formula: Formula, rows: Rows) -> Truths:
        """The truth of a formula that looks at events alone."""
        match formula:
            case OfEvent(leaf):
                return self._leaf(leaf, rows)
            case Inverse(arg):
                return np.int8(TRUE) - self.truth(arg, rows)
            case EveryTerm(args):
                return self._fold(np.minimum, TRUE, args, rows)
            case SomeTerm(args):
                return self._fold(np.maximum, FALSE, args, rows)
            case _:
                raise TypeError(f"not of the event alone: {formula}")

    def _fold(self, fold: Any, start: int, args: tuple[Formula, ...], rows: Rows) -> Truths:
        truths = np.full(len(rows.rows), start, np.int8)
        for arg in args:
            truths = fold(truths, self.truth(arg, rows))
        return truths

    def node(self, expressions: tuple[Operand, ...]) -> Node:
        """The node of an expression, or of several beside one another."""
        if len(expressions) == 1:
            return self._node(expressions[0])
        name = repr(expressions)
        if name not in self._nodes:
            self._nodes[name] = _Several(name, tuple(map(self._node, expressions)))
        return self._nodes[name]

    def _node(self, expression: Operand) -> Node:
        name = repr(expression)
        if name not in self._nodes:
            if isinstance(expression, Variable):
                self._nodes[name] = _Base(name, self._columns[expression.name])
            else:
                cut, parts = _opened(expression)
                self._nodes[name] = _Derived(name, cut, self.node(parts), self._evaluator)
        return self._nodes[name]

    def relation(self, name: str, args: tuple[Operand, ...], parts: list[list[int]]) -> Relation:
        """The rows of a relation that have the constants among some arguments, cut into parts."""
        given = {at: arg.value for at, arg in enumerate(args) if isinstance(arg, Constant)}
        key = repr((name, len(args), given, parts))
        if key not in self._relations:
            rows = (row for row in self._evaluator.facts.relations[name] if len(row) == len(args))
            self._relations[key] = Relation(rows, given, parts)
        return self._relations[key]

    def codes(self, known: Relation, part: int, node: Node, places: list[int], *, single: bool) -> ValueTable:
        """The number that the values of a node have as a part of a relation; `places` says which of its values."""
        key = id(known), part, node.name, tuple(places)
        if key not in self._codes:

            def coded(values: list[Any]) -> list[int]:
                if single and len(places) == 1:
                    return known.codes(part, values)
                given = [(one,) if single else one for one in values]
                return [NULL if one is None else known.code(part, [one[at] for at in places]) for one in given]

            self._codes[key] = known, ValueTable(node.domain, coded, np.int32)  # the relation is kept, and so its id
        return self._codes[key][1]

    def _truths(self, leaf: Atom, node: Node, values: list[Any]) -> list[int]:
        """The truth of a leaf for some values of a node."""
        if (
            isinstance(leaf, InGroup)
            and isinstance(leaf.operand, Variable)
            and leaf.group in self._evaluator.facts.groups
        ):
            inside = self._evaluator.inside(leaf.group)
            return [(TRUE if one in inside else FALSE) if type(one) is str else UNKNOWN for one in values]
        return [code(self._evaluator.truth(leaf, bound(node, value))) for value in values]

    def _leaf(self, leaf: Atom, rows: Rows) -> Truths:
        known = self._names.get(id(leaf))
        if known is None:
            known = self._names[id(leaf)] = leaf, repr(leaf)  # the leaf is kept, and so its id
        name = known[1]
        if name not in rows.truths:
            if name not in self._leaves:
                self._leaves[name] = self._made(leaf)
            rows.truths[name] = self._leaves[name](rows)
        return rows.truths[name]

    def _made(self, leaf: Atom) -> Callable[[Rows], Truths]:
        cut, parts = _opened(leaf)
        if not parts:
            always = code(self._evaluator.truth(leaf, {}))
            return lambda rows: np.full(len(rows.rows), always, np.int8)
        if len(parts) == 1 and isinstance(parts[0], Variable):
            column, condition = self._columns[parts[0].name], _condition(cut)
            if condition is not None and column.slot != TIME:
                return _compared(condition, column)
        if len(parts) > 1:
            match cut:
                case Related(name, args) if name in self._evaluator.facts.relations and all(map(_is_simple, args)):
                    return self._related(name, args, parts)
                case Compare("=" | "!=" as op, Variable(), Variable()):
                    return self._equal(parts, op == "=")
        node = self.node(parts)
        table = ValueTable(node.domain, lambda values: self._truths(cut, node, values), np.int8)

        def look_up(rows: Rows) -> Truths:
            places = node.numbers(rows)
            found: Truths = table.all()[places]
            return found

        return look_up

    def _related(self, name: str, args: tuple[Operand, ...], parts: tuple[Operand, ...]) -> Callable[[Rows], Truths]:
        """A relation of several expressions: each is looked up on its own, and then what they are together."""
        places: list[list[int]] = [[] for _ in parts]
        for at, arg in enumerate(args):
            if isinstance(arg, Variable) and arg != BLANK:
                places[int(arg.name.split()[1])].append(at)
        known = self.relation(name, args, places)
        nodes = [self._node(one) for one in parts]

        tables = [self.codes(known, at, node, [0] * len(places[at]), single=True) for at, node in enumerate(nodes)]

        def look_up(rows: Rows) -> Truths:
            numbers = [node.numbers(rows) for node in nodes]
            codes = [table.all()[one] for table, one in zip(tables, numbers, strict=True)]
            truths = np.where(known.found(codes), np.int8(TRUE), np.int8(FALSE))
            for one in codes:
                truths[one == NULL] = UNKNOWN
            return np.full_like(truths, UNKNOWN) if known.unknown else truths

        return look_up

    def _equal(self, parts: tuple[Operand, ...], wanted: bool) -> Callable[[Rows], Truths]:
        """Are two expressions the same? Each value has a number that is equal for what is the same."""
        same: dict[Any, int] = {}
        nodes = [self._node(one) for one in parts]

        def numbered(values: list[Any]) -> list[int]:
            return [same.setdefault(same_key(one), len(same)) for one in values]

        classes = [ValueTable(node.domain, numbered) for node in nodes]
        families = [ValueTable(node.domain, lambda values: list(map(family, values)), np.int8) for node in nodes]

        def look_up(rows: Rows) -> Truths:
            a, b = (node.numbers(rows) for node in nodes)
            found = (classes[0].all()[a] == classes[1].all()[b]) == wanted
            kinds = families[0].all()[a]
            truths = np.where(found, np.int8(TRUE), np.int8(FALSE))
            truths[(kinds == NO_FAMILY) | (kinds != families[1].all()[b])] = UNKNOWN
            return truths

        return look_up


def _is_simple(arg: Operand) -> bool:
    return isinstance(arg, Variable | Constant)


def _opened(of: Any) -> tuple[Any, tuple[Operand, ...]]:
    """An expression or leaf with `arg 0`, `arg 1` for what looks at the event in it, and those parts."""
    parts: dict[str, Operand] = {}

    def opened(part: Operand) -> Operand:
        if not looks_at(part):
            return part
        parts.setdefault(repr(part), part)
        return Variable(f"arg {list(parts).index(repr(part))}")

    return with_operands(of, opened), tuple(parts.values())


def _condition(leaf: Atom) -> Condition | None:
    """A leaf over one column and constants as a condition on it, if conditions can say it."""

    def put(operand: Operand) -> Operand | None:
        match operand:
            case Variable():
                return _COLUMN
            case Constant(value) if not isinstance(value, frozenset):
                return Constant(value)
            case _:
                return None

    made = tuple(put(one) for one in operands(leaf))
    match leaf, made:
        case Compare(op, _, _), (Attribute() | Constant() as left, Attribute() | Constant() as right):
            return Compare(op, left, right) if op in _ORDERED else None
        case TextMatch(op, _, _), (Attribute() | Constant() as left, Attribute() | Constant() as right):
            return TextMatch(op, left, right)
        case InRange(), (Attribute() as of, Attribute() | Constant() as low, Attribute() | Constant() as high):
            return InRange(of, low, high)
        case InSet(_, values), (Attribute() as of,) if values:
            return InSet(of, values)
        case _:
            return None


def _compared(condition: Condition, column: Column) -> Callable[[Rows], Truths]:
    """A condition on one column, put to its distinct values; on null it is unknown, whatever it compares."""
    kinds = {_COLUMN.name: column.kind}
    ready = prepared(condition, {}, kinds)

    def look(rows: Rows) -> Truths:
        distinct, places = rows.distinct(column)
        size = len(distinct)
        sent = Sent("", "", BEGINNING, size, kinds, {_COLUMN.name: distinct})
        outcome = truth(ready, Frame(sent, _NO_FACTS), np.ones(size, np.bool_))
        truths = np.full(size + 1, UNKNOWN, np.int8)
        truths[:-1][outcome.true] = TRUE
        truths[:-1][outcome.false] = FALSE
        return truths[places]

    return look
