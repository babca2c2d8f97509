"""The policy and the subscriptions as numbers: clauses as rows, rows of one shape as columns, and all of it together.

Guarantees: the rows of a clause hold on exactly the events on which the clause holds. What a slot can hold is compared
there, exactly (an int bound on a float slot becomes the nearest double on the right side); everything else goes to
the rest, which `pipeline.truth` evaluates. A clause that no event can meet has no rows.
A hash only finds candidates; `verify` compares every equality, bound and mask again. Rows of the same shape (the same
slots compared for equality and for range) are one set of numpy arrays, whatever their types and number. Shapes with
equalities are found by a hash of type and values; range-only ones by dyadic intervals; the rest by type alone.
A `PolicyIndex` is read-only data, the same for every worker. A holder is a principal at one origin that counts some of
its memberships; those with the same ordered rights share a profile, and those for whom the event policy says the same
share a class. Entries stay ordered (D5); a forbid holds the rows where its condition is false, so that an unknown one
forbids.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.decide.normal import EVERYTHING, Bounds, Clause, Span, Term, clauses
from headgate.decide.truth import PredicateFunction, World
from headgate.model.changes import RegisterPredicate, Row
from headgate.model.errors import BadExpression
from headgate.model.expressions import Attribute, ClockPart, Compare, Condition, Constant, InSet, Meta, Not, looked_at
from headgate.model.state import State
from headgate.model.values import INT_MAX, INT_MIN, Kind, Value, micros
from headgate.pipeline.agreement import Attributes
from headgate.pipeline.event_policy.compiled import Policy, PolicyFacts
from headgate.pipeline.log.codec import (
    PUBLISHER,
    RATE,
    TIME,
    AttributeSlot,
    EventBatch,
    Flags,
    Ints,
    Numbered,
    Slot,
    Words,
    mask_of,
)
from headgate.pipeline.truth import ConditionFacts, asks_predicate, predicates_last

MAX_EXPANSION = 16
"""A clause with `in {...}` becomes at most this many rows; larger sets are looked up in the rest."""

Held: TypeAlias = int | float | str | bytes
Where: TypeAlias = tuple[tuple[str, AttributeSlot], ...]

_STAMPED: Mapping[Meta, tuple[Slot, Kind]] = {
    Meta("time"): (TIME, Kind.TIMESTAMP),
    Meta("publisher"): (PUBLISHER, Kind.STRING),
    Meta("rate"): (RATE, Kind.INT),
}


@dataclass(frozen=True, slots=True)
class Rest:
    """What no slot comparison expresses: a condition that must be true, or false, and where what it names is held.

    Text ranges, exclusions, large sets, parts of the clock, literals, and a whole condition whose normal form is too
    large, as a chain may add up to. Python takes some conditions for equal that are not; `exact` tells them apart.
    """

    condition: Condition = field(compare=False)
    want: bool
    where: Where
    exact: str

    @classmethod
    def of(cls, condition: Condition, want: bool, layout: Mapping[str, AttributeSlot]) -> Rest:
        """A condition over a type with this layout."""
        names = {o.name: None for o in looked_at(condition) if isinstance(o, Attribute) and o.name in layout}
        where = tuple((name, layout[name]) for name in names)
        return cls(predicates_last(condition), want, where, repr(condition))


@dataclass(frozen=True, slots=True)
class ClauseRow:
    """One row: all of these must hold."""

    equal: tuple[tuple[Slot, Held], ...]
    ranges: tuple[tuple[Slot, int | float, int | float], ...]
    need: tuple[int, ...]
    null: tuple[int, ...]
    rest: tuple[Rest, ...]


def rows_of(condition: Condition, want: bool, layout: Mapping[str, AttributeSlot], words: int) -> list[ClauseRow]:
    """The rows that hold where a condition's truth is `want`, over a type with this layout."""
    try:
        normal = clauses(condition, {name: place.kind for name, place in layout.items()}, want=want)
    except BadExpression:
        none = (0,) * words
        return [ClauseRow((), (), none, none, (Rest.of(condition, want, layout),))]
    return [row for clause in normal for row in lower(clause, layout, words)]


def lower(clause: Clause, layout: Mapping[str, AttributeSlot], words: int) -> list[ClauseRow]:
    """The rows of a clause over a type with this layout."""
    need: list[int] = []
    null: list[int] = []
    choices: list[tuple[Term, Slot, list[Held]]] = []
    ranges: list[tuple[Slot, int | float, int | float]] = []
    rest: list[Condition] = []
    for term, asked in clause.bounds.items():
        bounds = _rated(asked) if term == Meta("rate") else asked
        if isinstance(term, Attribute):
            (null if bounds.null else need).append(layout[term.name].bit)
            if bounds.null:
                continue
        if isinstance(term, ClockPart):
            rest += _conditions(term, bounds)
            continue
        slot, kind = _slot(term, layout)
        if bounds.only is not None:
            held = [h for h in (_held(v, kind) for v in sorted(bounds.only, key=repr)) if h is not None]
            if not held:
                return []
            choices.append((term, slot, held))
            continue
        rest += _conditions(term, Bounds(without=bounds.without))
        if bounds.span == EVERYTHING:
            continue
        if slot.store in "sy":
            rest += _conditions(term, Bounds(span=bounds.span))
            continue
        low, high = _ends(bounds.span, kind)
        if low > high:
            return []
        ranges.append((slot, low, high))
    few: list[tuple[Slot, list[Held]]] = []
    rows = 1
    for term, slot, held in sorted(choices, key=lambda choice: len(choice[2])):
        if rows * len(held) <= MAX_EXPANSION:  # one row for each combination of the small sets
            few.append((slot, held))
            rows *= len(held)
        else:
            rest += _conditions(term, clause.bounds[term])
    few.sort()
    parts = [Rest.of(condition, True, layout) for condition in rest]
    parts += [Rest.of(literal.atom, literal.want, layout) for literal in clause.rest]
    parts.sort(key=lambda part: asks_predicate(part.condition))  # what is cheap comes first
    masks = tuple(mask_of(need, words)), tuple(mask_of(null, words))
    return [
        ClauseRow(
            tuple(zip((slot for slot, _ in few), values, strict=True)), tuple(sorted(ranges)), *masks, tuple(parts)
        )
        for values in itertools.product(*(held for _, held in few))
    ]


def _conditions(term: Term, bounds: Bounds) -> Iterator[Condition]:
    """What bounds ask of a term that is not null."""
    if bounds.only is not None:
        yield InSet(term, tuple(sorted(bounds.only, key=repr)))
    if bounds.without:
        yield Not(InSet(term, tuple(sorted(bounds.without, key=repr))))
    if bounds.span.low is not None:
        yield Compare(">" if bounds.span.low_open else ">=", term, Constant(bounds.span.low))
    if bounds.span.high is not None:
        yield Compare("<" if bounds.span.high_open else "<=", term, Constant(bounds.span.high))


def _rated(bounds: Bounds) -> Bounds:
    """Bounds on `@rate` where null is 0: whatever is compared with it is 1 or more."""
    if bounds.null:
        return Bounds(only=frozenset({0}))
    if bounds.only is not None:
        return Bounds(only=frozenset(v for v in bounds.only if isinstance(v, int) and v >= 1))
    return Bounds(span=bounds.span.meet(Span(low=1)), without=bounds.without)


def _slot(term: Attribute | Meta, layout: Mapping[str, AttributeSlot]) -> tuple[Slot, Kind]:
    if isinstance(term, Attribute):
        return layout[term.name].slot, layout[term.name].kind
    return _STAMPED[term]


def _held(value: Value, kind: Kind) -> Held | None:
    """A value to be equal to, as the slot holds it; None if the slot can never hold it."""
    match kind:
        case Kind.TIMESTAMP:
            return micros(value) if isinstance(value, datetime) else None
        case Kind.BOOL:
            return int(value) if isinstance(value, bool) else None
        case Kind.INT:
            return value if isinstance(value, int) and INT_MIN <= value <= INT_MAX else None
        case Kind.FLOAT:
            assert isinstance(value, (int, float))
            near = _float(value)
            return near + 0.0 if near == value else None  # + 0.0 makes -0.0 the same as 0.0
        case _:
            return value if isinstance(value, (str, bytes)) else None


def _ends(span: Span, kind: Kind) -> tuple[int | float, int | float]:
    """A span as closed ends of the slot's own numbers."""
    if kind is Kind.FLOAT:
        return _float_end(span.low, span.low_open, up=True), _float_end(span.high, span.high_open, up=False)
    low = INT_MIN if span.low is None else _whole(span.low) + span.low_open
    high = INT_MAX if span.high is None else _whole(span.high) - span.high_open
    if low > INT_MAX or high < INT_MIN:
        return 1, 0
    return max(low, INT_MIN), min(high, INT_MAX)


def _whole(value: Value) -> int:
    if isinstance(value, datetime):
        return micros(value)
    assert isinstance(value, int)
    return int(value)


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _float_end(value: Value, is_open: bool, *, up: bool) -> float:
    """The outermost double inside an end."""
    if value is None:
        return -math.inf if up else math.inf
    assert isinstance(value, (int, float))
    near, away = _float(value), math.inf if up else -math.inf
    outside = near < value if up else near > value
    return math.nextafter(near, away) if outside or (is_open and near == value) else near


Hashes = npt.NDArray[np.uint64]
_MIX = np.uint64(0x9E3779B97F4A7C15)
_ODD = np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT = np.uint64(29)


class Interned(dict[str | bytes, int]):
    """Texts that rows compare with, numbered."""

    def number(self, text: str | bytes) -> int:
        """The number of a text, new if need be."""
        return self.setdefault(text, len(self))


def mix(seed: Hashes, values: Ints) -> Hashes:
    """One more value into a hash."""
    with np.errstate(over="ignore"):
        mixed = (seed ^ values.view(np.uint64)) * _MIX
        return (mixed ^ (mixed >> _SHIFT)) * _ODD


@dataclass
class HashAccess:
    """Rows found by hash: `rows[starts[b]:starts[b + 1]]` for bucket `b`, the hash's leading bits.

    A row that is under several nodes may be twice in a bucket; `nodes` says which of them each place stands for.
    """

    bits: int
    starts: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    nodes: Ints | None = None

    @classmethod
    def build(cls, hashes: Hashes, rows: npt.NDArray[np.int32], nodes: Ints | None = None) -> HashAccess:
        """Index rows by their hashes."""
        bits = max(1, len(hashes).bit_length())
        buckets = (hashes >> np.uint64(64 - bits)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=1 << bits)
        starts = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=starts[1:])
        return cls(bits, starts, rows[order], None if nodes is None else nodes[order])

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Where the candidates of each hash begin, and how many there are."""
        buckets = (hashes >> np.uint64(64 - self.bits)).astype(np.int64)
        begin = self.starts[buckets].astype(np.int64)
        return begin, self.starts[buckets + 1] - begin


@dataclass
class Dyadic:
    """Ranks of one slot's range ends. Rank 2i+1 is the end `i` itself, rank 2i the gap before it."""

    slot: Slot
    ends: npt.NDArray[Any]
    levels: int

    def rank(self, values: npt.NDArray[Any]) -> Ints:
        """The rank of each value."""
        left = np.searchsorted(self.ends, values, "left")
        on = self.ends[np.minimum(left, len(self.ends) - 1)] == values
        ranks: Ints = 2 * left + (on & (left < len(self.ends)))
        return ranks


@dataclass
class Shape:
    """All rows that compare the same slots."""

    equal: tuple[Slot, ...]
    ranges: tuple[Slot, ...]
    owner: npt.NDArray[np.int32]
    type: npt.NDArray[np.int32]
    values: list[Ints]
    low: list[npt.NDArray[Any]]
    high: list[npt.NDArray[Any]]
    need: Words
    null: Words
    rest: npt.NDArray[np.int32]
    access: HashAccess | None = None
    dyadic: Dyadic | None = None
    types: frozenset[int] = field(default_factory=frozenset)

    def __len__(self) -> int:
        return len(self.owner)

    def index(self) -> Shape:
        """Make the rows findable."""
        self.types = frozenset(np.unique(self.type).tolist())
        rows = np.arange(len(self), dtype=np.int32)
        seed = self._seed(self.type)
        if self.ranges and not self.equal:
            self.dyadic, nodes, rows = _dyadic(self.ranges[0], self.low[0], self.high[0])
            self.access = HashAccess.build(mix(seed[rows], nodes), rows, nodes)
            return self
        for column in self.values:
            seed = mix(seed, column)
        self.access = HashAccess.build(seed, rows)
        return self

    @staticmethod
    def _seed(types: npt.NDArray[np.int32]) -> Hashes:
        return mix(np.zeros(len(types), np.uint64), types.astype(np.int64))

    def probes(
        self, batch: EventBatch, rows: Ints, types: npt.NDArray[np.int32], known: Interned
    ) -> Iterable[tuple[Hashes, Ints | None]]:
        """The hashes, with nodes, under which rows of a batch may find candidates, taken as events of these types."""
        seed = self._seed(types)
        if self.dyadic is not None:
            ranks = self.dyadic.rank(batch.numbers(self.dyadic.slot)[rows])
            for level in range(self.dyadic.levels + 1):
                nodes = _node(level, ranks >> level)
                yield mix(seed, nodes), nodes
            return
        for slot in self.equal:
            seed = mix(seed, keys(batch, slot, known)[rows])
        yield seed, None

    def verify(self, batch: EventBatch, events: Ints, rows: npt.NDArray[np.int32], known: Interned) -> Flags:
        """Which pairs of event and row really meet the equalities, bounds and non-null slots?"""
        ok: Flags = ((self.need[rows] & batch.nulls[events]) == 0).all(axis=1)
        for slot, column in zip(self.equal, self.values, strict=True):
            ok &= keys(batch, slot, known)[events] == column[rows]
        for slot, low, high in zip(self.ranges, self.low, self.high, strict=True):
            value = batch.numbers(slot)[events]
            ok &= (value >= low[rows]) & (value <= high[rows])
        return ok


def keys(batch: EventBatch, slot: Slot, known: Interned) -> Ints:
    """A slot as 64-bit keys that are equal exactly when the values are."""
    if slot.store in "sy":
        return batch.codes(slot, known)
    numbers = batch.numbers(slot)
    if slot.store == "f":
        return np.asarray(numbers + 0.0).view(np.int64)
    return numbers


def _key(slot: Slot, held: Held, known: Interned) -> int:
    if isinstance(held, (str, bytes)):
        return known.number(held)
    if slot.store == "f":
        return int(np.float64(held).view(np.int64))
    return int(held)


def merged(shapes: Sequence[Shape]) -> list[Shape]:
    """Shapes of the same slots put together, not yet indexed."""
    same: dict[tuple[Any, Any], list[Shape]] = {}
    for shape in shapes:
        same.setdefault((shape.equal, shape.ranges), []).append(shape)

    def joined(group: list[Shape], name: str) -> Any:
        columns = [getattr(shape, name) for shape in group]
        if isinstance(columns[0], list):
            return [np.concatenate(parts) for parts in zip(*columns, strict=True)]
        return np.concatenate(columns)

    names = ("owner", "type", "values", "low", "high", "need", "null", "rest")
    return [Shape(*slots, **{name: joined(group, name) for name in names}) for slots, group in same.items()]


class ShapeTable:
    """Rows of any shape: collects them, and gives the shapes built so far."""

    def __init__(self) -> None:
        self.known = Interned()
        self.rests: Numbered[tuple[Rest, ...]] = Numbered()
        self._pending: dict[tuple[Any, Any], list[tuple[int, int, int, ClauseRow]]] = {}

    def add(self, row: ClauseRow, owner: int, type_number: int) -> None:
        """One more row for an owner: a subscription, or a condition."""
        shape = tuple(s for s, _ in row.equal), tuple(s for s, _, _ in row.ranges)
        self._pending.setdefault(shape, []).append(
            (owner, type_number, self.rests.number(row.rest, row.rest) if row.rest else -1, row)
        )

    def take(self) -> list[Shape]:
        """The rows added since the last time."""
        built = [self._built(*slots, added) for slots, added in self._pending.items()]
        self._pending = {}
        return built

    def _built(
        self, equal: tuple[Slot, ...], ranges: tuple[Slot, ...], added: list[tuple[int, int, int, ClauseRow]]
    ) -> Shape:
        """Rows as columns."""
        owners, types, rests, rows = zip(*added, strict=True)
        dtypes = [np.int64 if slot.store == "i" else np.float64 for slot in ranges]
        return Shape(
            equal=equal,
            ranges=ranges,
            owner=np.array(owners, np.int32),
            type=np.array(types, np.int32),
            values=[
                np.array([_key(slot, row.equal[at][1], self.known) for row in rows], np.int64)
                for at, slot in enumerate(equal)
            ],
            low=[np.array([row.ranges[at][1] for row in rows], dtype) for at, dtype in enumerate(dtypes)],
            high=[np.array([row.ranges[at][2] for row in rows], dtype) for at, dtype in enumerate(dtypes)],
            need=np.array([row.need for row in rows], np.uint64),
            null=np.array([row.null for row in rows], np.uint64),
            rest=np.array(rests, np.int32),
        )


def _dyadic(slot: Slot, low: npt.NDArray[Any], high: npt.NDArray[Any]) -> tuple[Dyadic, Ints, npt.NDArray[np.int32]]:
    """Every range as at most two dyadic intervals a level: nodes, and the row of each."""
    ends = np.unique(np.concatenate([low, high]))
    levels = max(1, int(2 * len(ends) + 1).bit_length())
    ranks = Dyadic(slot, ends, levels)
    a, b = ranks.rank(low), ranks.rank(high) + 1  # half-open
    alive = np.arange(len(low), dtype=np.int32)
    tables: list[tuple[int, Ints, npt.NDArray[np.int32]]] = []
    for level in range(levels + 1):
        odd = (a & 1 == 1) & (a < b)
        tables.append((level, a[odd], alive[odd]))
        a = a + odd
        odd = (b & 1 == 1) & (a < b)
        tables.append((level, b[odd] - 1, alive[odd]))
        b = b - odd
        keep = a < b
        a, b, alive = a[keep] >> 1, b[keep] >> 1, alive[keep]
    nodes = np.concatenate([_node(level, at) for level, at, _ in tables])
    rows = np.concatenate([rows for _, _, rows in tables])
    return ranks, nodes, rows


def _node(level: int, at: Ints) -> Ints:
    """A dyadic interval as one number; there are far fewer than 64 levels."""
    return at * 64 + level


def expand(begin: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Every position of many runs: which run, and where in the underlying array."""
    total = int(count.sum())
    run = np.repeat(np.arange(len(count), dtype=np.int64), count)
    offset = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    return run, begin[run] + offset


ALWAYS = -1
"""The condition number of an entry whose condition is `true`."""

OPEN = np.iinfo(np.int64).max
"""The closing version of what is still in force."""


@dataclass
class Types:
    """The event types, numbered in order of declaration."""

    names: list[str]
    numbers: dict[str, int]
    layouts: list[Mapping[str, AttributeSlot]]
    lineage: npt.NDArray[np.int32]
    words: int
    slots: list[Slot]
    bits: npt.NDArray[np.int32]
    """For each type and slot the attribute's bit, or -1."""


@dataclass
class Subscriptions:
    """Every subscription, numbered in order of opening."""

    holder: npt.NDArray[np.int32]
    opened: Ints
    closed: Ints
    history: Flags
    since_version: Ints
    since_time: Ints
    """For those that ask for history: the earliest version and time (microseconds) they ask for."""
    several: Flags
    """Does the filter have several rows, so that an event may match it twice?"""
    requires: npt.NDArray[np.int32]
    """The number of what each requires of publishers, or -1."""


@dataclass
class Epoch:
    """The policy from one version until the next that changed it."""

    version: int
    profile: npt.NDArray[np.int32]
    """For each holder its profile."""
    subject: npt.NDArray[np.int32]
    """For each holder the number of its attribute set."""
    policy_rules: Mapping[str, Condition]
    """What each publisher's policy rule asks of receivers."""
    senders: Mapping[str, int]
    """The attribute set of each publisher that has one, where any subscription asks for it."""
    has_senders: bool
    groups: Mapping[str, frozenset[str]]
    relations: Mapping[str, frozenset[Row]]
    predicates: Mapping[str, RegisterPredicate]
    policy: int
    """The number of its event policy."""
    policy_facts: PolicyFacts | None
    """What the event policy looks at; None if there is no event policy."""
    clients: npt.NDArray[np.int32]
    """For each holder its class in the event policy, if there is one."""

    def facts(self, functions: Mapping[str, PredicateFunction]) -> ConditionFacts:
        """What conditions may look at."""
        predicates = {name: functions[p.digest + p.target] for name, p in self.predicates.items()}
        return ConditionFacts(World(State(groups=self.groups, relations=self.relations), predicates=predicates))


@dataclass
class Rights:
    """The ordered entries of every profile on every type, and their conditions as rows."""

    keys: Ints
    """`profile * types + type`, sorted, of those that have entries."""
    starts: Ints
    chains: Ints
    """For each key where entries of chains begin; event policy stands before them."""
    grants: Flags
    whole: Flags
    masks: Words
    conditions: Ints
    condition_starts: Ints
    clause_shape: npt.NDArray[np.int32]
    clause_row: npt.NDArray[np.int32]
    shapes: list[Shape]
    known: Interned
    rests: list[tuple[Any, ...]]


@dataclass
class PolicyIndex:
    """Everything a worker needs to decide."""

    version: int
    types: Types
    subscriptions: Subscriptions
    filters: list[Shape]
    known: Interned
    rests: list[tuple[Any, ...]]
    rights: Rights
    epochs: list[Epoch]
    predicate_sources: Mapping[str, str]
    """Where the workers find the predicates' modules: digest to path."""
    sets: Sequence[Attributes]
    """The distinct attribute sets of principals."""
    demands: Sequence[Condition]
    """What subscriptions require of publishers, each once."""
    policies: Mapping[int, Policy]
    """The event policies of the epochs, by number."""
    holders: Sequence[str]
    """The principal of each holder."""

    def epoch_of(self, versions: Ints) -> Ints:
        """The number of the epoch in force at each version."""
        starts = np.array([epoch.version for epoch in self.epochs], np.int64)
        epochs = np.searchsorted(starts, versions, "right") - 1
        if len(epochs) and epochs.min() < 0:
            raise ValueError("the index does not reach back to a version that an event needs")
        return epochs
