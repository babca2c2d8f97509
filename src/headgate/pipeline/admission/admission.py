"""Which of many events are accepted, and as what? Rules D6 and D11 over columns.

Guarantees: `Admission.admit` accepts, forces, nulls and refuses each event exactly as `decide.publish.admit` does, one
after another, with the same errors. An `Admission` is for one version of the ledger; the entries of a publisher on a
type are looked up and prepared once. A grant of everything under no condition costs nothing for each event, and a
policy rule is put to each distinct requirement once; that may take a while, so whoever has no time for it says what is
asked instead (`asking`). May be used from any thread.
Where conditions name `@rate`, each event is put to the rate that it has if those before it were accepted as found here.
What a grant nulls is gone from the stored bytes, not only marked as null.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide.publish import (
    check_declassified,
    forbidden,
    latest,
    made_by_hand,
    no_right,
    publish_entries,
    too_far_ahead,
)
from headgate.decide.rates import asks_rate
from headgate.decide.truth import PredicateFunction, World
from headgate.decide.views import forced_value
from headgate.model import expressions as tree
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft
from headgate.model.expressions import TRUE, Condition
from headgate.model.rights import Effect, Rule
from headgate.model.state import State
from headgate.model.types import Catalog, Times
from headgate.model.values import Kind, Value, micros
from headgate.pipeline.admission.columns import Columns, from_drafts, grouped
from headgate.pipeline.index import requirements
from headgate.pipeline.index.requirements import NONE
from headgate.pipeline.log.codec import ARROW, Flags, Ints, layouts, packed, stored, to_blob
from headgate.pipeline.log.promises import MICROS_MIN
from headgate.pipeline.truth import ColumnRows, ConditionFacts, Numbers, Same, Texts, asks_predicate, prepared, truth
from headgate.solver import check_policy_rule

RATED_AT_ONCE: Final = 2_000
"""Rows that are decided together where the rate counts, so that the work does not grow with their square."""


@dataclass(frozen=True, slots=True)
class PreparedEntry:
    """A publish entry on one type: its condition for one publisher, and the attributes it forces or nulls."""

    effect: Effect
    where: Condition
    fixed: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decided:
    """Rows that a forbid keeps out, rows that nothing lets in, and the rows that each grant lets in."""

    denied: Flags
    open: Flags
    used: list[tuple[PreparedEntry, Flags]]

    @classmethod
    def none(cls, rows: int, grants: Sequence[PreparedEntry]) -> Decided:
        """Nothing of so many rows."""
        nowhere = np.zeros(rows, np.bool_)
        return cls(nowhere, nowhere.copy(), [(entry, nowhere.copy()) for entry in grants])

    def accepted(self, asked: Flags) -> Flags:
        """Those of the rows that were asked about that are let in."""
        return asked & ~(self.denied | self.open)


def by_rate(
    sent: ColumnRows,
    entries: Sequence[PreparedEntry],
    asked: Flags,
    narrow: Flags,
    before: int,
    decide: Callable[[ColumnRows, Sequence[PreparedEntry], Flags], Decided],
) -> Decided:
    """Decide the rows that are asked about; those that are not `narrow` are refused all the same, and do not count.

    What each row is decided by hangs on how many before it are accepted. So that is supposed, and what was decided
    counts up to the first row that is decided otherwise: first that all are accepted, then those that would be if the
    rate stayed as it is.
    """
    outcome = Decided.none(len(asked), [entry for entry in entries if entry.effect is Effect.GRANT])
    hits = {id(entry): hit for entry, hit in outcome.used}
    row, rate = 0, before + 1
    while row < len(asked):
        part, here, counts = sent.rows(row, RATED_AT_ONCE), asked[row:][:RATED_AT_ONCE], narrow[row:][:RATED_AT_ONCE]
        supposed = here & counts
        if row:
            supposed &= decide(replace(part, rate=Same(rate)), entries, here).accepted(here)
        rates = Numbers(rate + np.cumsum(supposed) - supposed, np.ones(len(here), np.bool_))
        decided = decide(replace(part, rate=rates), entries, here)
        accepted = decided.accepted(here) & counts
        otherwise = np.flatnonzero(accepted != supposed)
        count = int(otherwise[0]) + 1 if len(otherwise) else len(here)
        settled = slice(row, row + count)
        outcome.denied[settled], outcome.open[settled] = decided.denied[:count], decided.open[:count]
        for entry, hit in decided.used:
            hits[id(entry)][settled] = hit[:count]
        rate += int(np.count_nonzero(accepted[:count]))
        row += count
    return outcome


MAX_PREPARED: Final = 10_000
"""Publishers and types whose entries are kept ready; past it they are prepared anew."""
_OWN: Final = ("id", "type", "publisher", "source")


BeforeOf: TypeAlias = Callable[[str, str], int]
"""How many events of a type a publisher has had accepted of late: `decide.rates.Rates.before` at one time."""


Held: TypeAlias = Callable[[State, str, Condition | None], None]
"""Refuses a requirement that a publisher's policy rule is not wider than: as `solver.policy_rule.check_policy_rule`."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What became of some columns: the rows accepted, the others with their refusal, and what is to be stored.

    `table` has a row for each accepted one, in order, with the columns of the log.
    """

    accepted: Flags
    refusals: Mapping[int, HeadgateError]
    table: pa.Table

    @property
    def rows(self) -> Ints:
        """The accepted rows."""
        return np.flatnonzero(self.accepted)


@dataclass(frozen=True, slots=True)
class Encoded:
    """One append: how many events, their bytes, and for each the number of its part and its row in the part."""

    count: int
    blob: bytes
    part: Ints
    row: Ints


class Admission:
    """The publish rights of one version, ready to be put to many events."""

    def __init__(self, state: State, predicates: Mapping[str, PredicateFunction]) -> None:
        self.state = state
        self._facts = ConditionFacts(World(state, predicates=predicates))
        self._layouts = layouts(state.types)
        self._prepared: dict[tuple[str, str], tuple[PreparedEntry, ...]] = {}
        self._order: dict[str, tuple[str, ...]] = {}
        self._check: Held = check_policy_rule
        self.asks_rate = asks_rate(state)
        """Does any rule name `@rate`, so that events must be counted?"""

    def asking(self, check: Held) -> Self:
        """The same, where `check` knows what policy rules say of requirements."""
        other = copy.copy(self)
        other._check = check
        return other

    def attributes(self, type_name: str) -> Mapping[str, Kind]:
        """The attributes of a type, or `unknown-type`."""
        return self.state.types.attributes(type_name)

    def times(self, type_name: str) -> Times:
        """Whose word is taken on when events of a type occurred."""
        return self.state.types.times(type_name)

    def admit(self, columns: Columns, now: datetime, before: int | None = None) -> Admitted:
        """Put the entries of the publisher to every event, in order.

        `before` is how many events of the type the publisher has had accepted of late. Where a rule names `@rate`
        each event that is accepted is stamped with its own, and counts for those after it.
        """
        size = len(columns)
        sent = ColumnRows(
            columns.attributes,
            columns.arrays,
            self._facts,
            columns.type,
            columns.publisher,
            now,
            origin=_origin(columns),
        )
        refusals = dict(columns.refusals)
        narrow, too_wide = self._requirements(columns, refusals)
        if self.state.types.is_for_readers(columns.type):
            for row in range(size) if columns.readers is None else np.flatnonzero(columns.readers.is_null()).tolist():
                refusals.setdefault(row, made_by_hand(columns.type))
        if self.state.types.is_of_declassified(columns.type):
            self._check_declassified(columns, refusals)
        near = self._near(columns, now)
        asked = np.ones(size, np.bool_)
        asked[list(refusals)] = False
        entries = self.entries(columns.publisher, columns.type)
        counted = before if self.asks_rate else None
        if counted is not None and any(tree.names_meta(entry.where, "rate") for entry in entries):
            decided = by_rate(sent, entries, asked, narrow & near, counted, self._decide)
        else:
            decided = self._decide(sent, entries, asked)
        settled = decided.denied | decided.open
        for row in np.flatnonzero(settled).tolist():
            refused = forbidden if decided.denied[row] else self._no_right
            refusals[row] = refused(columns.publisher, columns.type)
        for row in np.flatnonzero(asked & ~settled & ~narrow).tolist():
            refusals[row] = too_wide[NONE if columns.required is None else int(columns.required.codes[row])]
        for row in np.flatnonzero(asked & ~settled & narrow & ~near).tolist():
            refusals[row] = too_far_ahead(columns.type, self.times(columns.type))
        accepted = asked & ~settled & narrow & near
        table = self._table(columns, accepted, decided.used)
        if counted is not None:
            table = table.append_column("rate", pa.array(counted + 1 + np.arange(table.num_rows), pa.int64()))
        return Admitted(accepted, refusals, table)

    def _decide(self, sent: ColumnRows, entries: Sequence[PreparedEntry], asked: Flags) -> Decided:
        """What becomes of the rows that are asked about, each at the rate that `sent` says."""
        open_, denied = asked, np.zeros(len(asked), np.bool_)
        used: list[tuple[PreparedEntry, Flags]] = []
        for entry in entries:
            if not open_.any():
                break
            hit = self._hit(entry, sent, open_)
            if entry.effect is Effect.FORBID:
                denied |= hit
            else:
                used.append((entry, hit))
            open_ = open_ & ~hit
        return Decided(denied, open_, used)

    def _near(self, columns: Columns, now: datetime) -> Flags:
        """The rows whose stated time is no further past the clock than their type allows."""
        if columns.stated is None:
            return np.ones(len(columns), np.bool_)
        last = latest(self.times(columns.type), now)
        near: Flags = pc.fill_null(columns.stated, MICROS_MIN).to_numpy(zero_copy_only=False) <= micros(last)
        return near

    def _no_right(self, publisher: str, type_name: str) -> HeadgateError:
        return no_right(self.state, publisher, type_name)

    def _check_declassified(self, columns: Columns, refusals: dict[int, HeadgateError]) -> None:
        """Refuse what is made of types that are not all declassified for its own (D17)."""
        stamped = [None] * len(columns) if columns.made_of is None else columns.made_of.to_pylist()
        found: dict[str | None, HeadgateError | None] = {}
        for row, text in enumerate(stamped):
            if text not in found:
                found[text] = _not_declassified(self.state.types, text, columns.type)
            if (error := found[text]) is not None:
                refusals.setdefault(row, error)

    def _requirements(
        self, columns: Columns, refusals: dict[int, HeadgateError]
    ) -> tuple[Flags, Mapping[int, HeadgateError]]:
        """The rows whose requirement the publisher's policy rule is wider than; for others what is wrong, by number.

        What is no requirement is refused at once.
        """
        narrow, required = np.ones(len(columns), np.bool_), columns.required
        wrong: dict[int, HeadgateError] = {}
        private = self.state.private_to(columns.publisher)
        for code, rule in enumerate(() if required is None else required.rules):
            try:
                requirements.check(rule, private)
            except HeadgateError as error:
                for row in np.flatnonzero(_codes(columns) == code).tolist():
                    refusals.setdefault(row, error)
        if columns.publisher not in self.state.policy_rules:
            return narrow, wrong
        codes, left = _codes(columns), np.ones(len(columns), np.bool_)
        left[list(refusals)] = False
        for code in np.unique(codes[left]).tolist():
            asks = None if required is None or code == NONE else required.rules[code]
            try:
                self._check(self.state, columns.publisher, asks)
            except HeadgateError as error:
                wrong[code] = error
                narrow &= codes != code
        return narrow, wrong

    def admit_drafts(
        self, drafts: Sequence[Draft], now: datetime, before: BeforeOf | None = None
    ) -> tuple[list[Admitted], list[Ints]]:
        """A mixed batch, cut by publisher and type: what became of each part, and the rows of each in the batch."""
        parts, rows = [], []
        for (publisher, type_name), mine in grouped(drafts).items():
            chosen = [drafts[at] for at in mine.tolist()] if len(mine) < len(drafts) else drafts
            if type_name in self.state.types:
                counted = None if before is None or not self.asks_rate else before(publisher, type_name)
                columns = from_drafts(chosen, self.attributes(type_name), self.times(type_name))
                parts.append(self.admit(columns, now, counted))
            else:
                parts.append(self._unknown(type_name, len(mine)))
            rows.append(mine)
        return parts, rows

    def entries(self, publisher: str, type_name: str) -> tuple[PreparedEntry, ...]:
        """The publish entries of a principal on a type, in order, up to one that lets everything in."""
        key = publisher, type_name
        entries = self._prepared.get(key)
        if entries is None:
            if len(self._prepared) >= MAX_PREPARED:
                self._prepared.clear()
            entries = self._prepared[key] = self._prepare(publisher, type_name)
        return entries

    def asks_no_predicate(self, publisher: str, type_name: str) -> bool:
        """Is everything put to whole columns, whenever it is? A predicate is asked event by event, a rate is counted in
        order, and what a policy rule says of a requirement may take a while to find out.
        """
        if self.asks_rate or publisher in self.state.policy_rules or type_name not in self.state.types:
            return False
        return not any(asks_predicate(entry.where) for entry in self.entries(publisher, type_name))

    def _prepare(self, publisher: str, type_name: str) -> tuple[PreparedEntry, ...]:
        attributes = self.attributes(type_name)
        subject = self.state.principals.get(publisher, {})
        entries = []
        for rule in publish_entries(self.state, publisher, type_name):
            fixed = _fixed(rule, attributes)
            if fixed is None:
                continue  # a forced value that does not fit the type
            entries.append(
                PreparedEntry(rule.effect, prepared(rule.where, {**subject, **rule.given}, attributes), fixed)
            )
            if rule.where == TRUE:
                break
        return tuple(entries)

    def _hit(self, entry: PreparedEntry, sent: ColumnRows, asked: Flags) -> Flags:
        """The rows an entry settles: those a grant lets in, or a forbid keeps out."""
        if entry.where == TRUE:
            return asked
        found = truth(entry.where, replace(sent, fixed=entry.fixed), asked)
        return asked & (found.true if entry.effect is Effect.GRANT else ~found.false)

    def _table(self, columns: Columns, accepted: Flags, used: list[tuple[PreparedEntry, Flags]]) -> pa.Table:
        """The accepted events as the log stores them."""
        rows = np.flatnonzero(accepted)
        chosen = None if len(rows) == len(columns) else pa.array(rows)
        arrays = {
            "id": _taken(columns.ids, chosen),
            "type": pa.repeat(columns.type, len(rows)),
            "publisher": pa.repeat(columns.publisher, len(rows)),
            "source": _taken(columns.sources, chosen),
        }
        hits = [(entry, hit[rows]) for entry, hit in used if entry.fixed]
        places = self._layouts[columns.type]
        for name in self._in_order(columns.type):
            attribute = places[name]
            kind = ARROW[attribute.slot.store]
            if not hits and name in columns.arrays:
                arrays[attribute.slot.column] = _taken(columns.arrays[name], chosen)
                continue
            changed = [(stored(e.fixed[name], attribute.kind), hit) for e, hit in hits if name in e.fixed]
            hidden = np.logical_or.reduce([hit for _, hit in changed]) if changed else np.zeros(1, np.bool_)
            if name not in columns.arrays or hidden.all():
                array = pa.nulls(len(rows), kind)
            elif hidden.any():
                array = columns.arrays[name].take(pa.array(rows, mask=hidden))  # with zeros behind the nulls
            else:
                array = _taken(columns.arrays[name], chosen)
            for value, hit in changed:
                if value is not None:
                    array = pc.if_else(pa.array(hit), pa.scalar(value, kind), array)
            arrays[attribute.slot.column] = array
        if columns.required is not None and (columns.required.codes[rows] != NONE).any():
            arrays["requires"] = columns.required.column(rows)
        if columns.stated is not None:
            stated = _taken(columns.stated, chosen)
            if stated.null_count < len(rows):
                arrays["occurred"] = stated
        if columns.contributors is not None:
            arrays["contributors"] = _taken(columns.contributors, chosen)
        if columns.readers is not None and self.state.types.is_for_readers(columns.type):
            arrays["readers"] = _taken(columns.readers, chosen)
        if columns.made_of is not None and self.state.types.is_of_declassified(columns.type):
            arrays["made_of"] = _taken(columns.made_of, chosen)
        origin = columns.origin
        if origin is not None:
            origins = pa.repeat(origin, len(rows)) if isinstance(origin, str) else _taken(origin, chosen)
            if origins.null_count < len(rows):
                arrays["origin"] = origins
        return pa.table(arrays)

    def _in_order(self, type_name: str) -> tuple[str, ...]:
        """The attributes of a type in the order of their columns."""
        if type_name not in self._order:
            places = self._layouts[type_name]
            self._order[type_name] = tuple(sorted(self.attributes(type_name), key=lambda name: places[name].slot))
        return self._order[type_name]

    def _unknown(self, type_name: str, size: int) -> Admitted:
        refusals: dict[int, HeadgateError] = {}
        for row in range(size):
            try:
                self.attributes(type_name)
            except HeadgateError as error:
                refusals[row] = error
        return Admitted(
            np.zeros(size, np.bool_), refusals, pa.table({name: pa.array([], pa.string()) for name in _OWN})
        )


def encode_many(parts: Sequence[Admitted], places: Sequence[Ints] | None = None) -> Encoded:
    """The accepted events of some parts as one append.

    They are stored part after part, or, where `places` gives each row of each part a number, in the order of those.
    """
    part = np.repeat(np.arange(len(parts)), [p.table.num_rows for p in parts])
    row = np.concatenate([p.rows for p in parts]) if parts else np.zeros(0, np.int64)
    tables = [p.table for p in parts if p.table.num_rows]
    if not tables:
        return Encoded(0, b"", part, row)
    table = tables[0]
    if len(tables) > 1:
        table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    if places is not None and len(tables) > 1:
        order = np.argsort(np.concatenate([n[p.rows] for p, n in zip(parts, places, strict=True)]), kind="stable")
        table, part, row = table.take(pa.array(order)), part[order], row[order]
    return Encoded(len(row), to_blob(packed(table)), part, row)


def _fixed(rule: Rule, attributes: Mapping[str, Kind]) -> dict[str, Value] | None:
    """What a grant makes of the attributes it does not let through as sent; None if a forced value cannot be."""
    named = attributes.keys() if rule.attributes is None else rule.attributes
    fixed: dict[str, Value] = {name: None for name in attributes if name not in named}
    for name, raw in rule.forced.items():
        if name in attributes:
            value = forced_value(raw, attributes[name])
            if value is None:
                return None
            if name in named:  # a value may be forced that another link of a chain does not let through
                fixed[name] = value
    return fixed


def _not_declassified(types: Catalog, text: str | None, derived: str) -> HeadgateError | None:
    """Why an event that is made of these types, as JSON, is refused, if it is."""
    try:
        check_declassified(types, None if text is None else json.loads(text), derived)
    except HeadgateError as error:
        return error
    return None


def _codes(columns: Columns) -> Ints:
    """For each event the number of its requirement."""
    return np.full(len(columns), NONE, np.int64) if columns.required is None else columns.required.codes


def _origin(columns: Columns) -> Same | Texts:
    """Where the events came from, as conditions look at it."""
    if columns.origin is None or isinstance(columns.origin, str):
        return Same(columns.origin)
    return Texts(columns.origin, pc.is_valid(columns.origin).to_numpy(zero_copy_only=False))


def _taken(array: pa.Array, chosen: pa.Array | None) -> pa.Array:
    """The chosen rows of a column; all of them if None."""
    return array if chosen is None else array.take(chosen)
