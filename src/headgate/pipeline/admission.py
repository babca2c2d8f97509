"""Which of many events are accepted, and as what? Rule D6 over columns.

Guarantees: `Admission.admit` accepts, forces, nulls and refuses each event exactly as `decide.publish.admit` does, with
the same errors. An `Admission` is for one version of the ledger; the entries of a publisher on a type are looked up and
prepared once. A grant of everything under no condition costs nothing for each event.
What a grant nulls is gone from the stored bytes, not only marked as null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide.publish import forbidden, no_right, publish_entries
from headgate.decide.truth import PredicateFunction, World
from headgate.decide.views import forced_value
from headgate.model.conditions import TRUE, Condition
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft
from headgate.model.rights import Effect, Rule
from headgate.model.state import State
from headgate.model.values import Kind, Value
from headgate.pipeline.codec import Flags, Ints, to_blob
from headgate.pipeline.columns import Columns, from_drafts, grouped
from headgate.pipeline.frame import Facts, Frame, Sent
from headgate.pipeline.layout import ARROW, layouts, stored
from headgate.pipeline.vector import prepared, truth

MAX_PREPARED: Final = 10_000
"""Publishers and types whose entries are kept ready; past it they are prepared anew."""
_OWN: Final = ("id", "type", "publisher", "source")


@dataclass(frozen=True, slots=True)
class Entry:
    """A publish entry on one type: its condition for one publisher, and the attributes it forces or nulls."""

    effect: Effect
    where: Condition
    fixed: Mapping[str, Value] = field(default_factory=dict)


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
        self._facts = Facts(World(state, predicates=predicates))
        self._layouts = layouts(state.types)
        self._prepared: dict[tuple[str, str], tuple[Entry, ...]] = {}
        self._order: dict[str, tuple[str, ...]] = {}

    def attributes(self, type_name: str) -> Mapping[str, Kind]:
        """The attributes of a type, or `unknown-type`."""
        return self.state.types.attributes(type_name)

    def admit(self, columns: Columns, now: datetime) -> Admitted:
        """Put the entries of the publisher to every event, in order."""
        size = len(columns)
        sent = Sent(columns.type, columns.publisher, now, size, columns.attributes, columns.arrays)
        open_, denied = np.ones(size, np.bool_), np.zeros(size, np.bool_)
        open_[list(columns.refusals)] = False
        used: list[tuple[Entry, Flags]] = []
        for entry in self.entries(columns.publisher, columns.type):
            if not open_.any():
                break
            hit = self._hit(entry, sent, open_)
            if entry.effect is Effect.FORBID:
                denied |= hit
            else:
                used.append((entry, hit))
            open_ = open_ & ~hit
        accepted = ~(denied | open_)
        accepted[list(columns.refusals)] = False
        refusals = dict(columns.refusals)
        for row in np.flatnonzero(denied).tolist():
            refusals[row] = forbidden(columns.publisher, columns.type)
        for row in np.flatnonzero(open_).tolist():
            refusals[row] = no_right(self.state, columns.publisher, columns.type)
        return Admitted(accepted, refusals, self._table(columns, accepted, used))

    def admit_drafts(self, drafts: Sequence[Draft], now: datetime) -> tuple[list[Admitted], list[Ints]]:
        """A mixed batch, cut by publisher and type: what became of each part, and the rows of each in the batch."""
        parts, rows = [], []
        for (_, type_name), mine in grouped(drafts).items():
            chosen = [drafts[at] for at in mine.tolist()] if len(mine) < len(drafts) else drafts
            if type_name in self.state.types:
                parts.append(self.admit(from_drafts(chosen, self.attributes(type_name)), now))
            else:
                parts.append(self._unknown(type_name, len(mine)))
            rows.append(mine)
        return parts, rows

    def entries(self, publisher: str, type_name: str) -> tuple[Entry, ...]:
        """The publish entries of a principal on a type, in order, up to one that lets everything in."""
        key = publisher, type_name
        if key not in self._prepared:
            if len(self._prepared) >= MAX_PREPARED:
                self._prepared.clear()
            self._prepared[key] = self._prepare(publisher, type_name)
        return self._prepared[key]

    def _prepare(self, publisher: str, type_name: str) -> tuple[Entry, ...]:
        attributes = self.attributes(type_name)
        subject = self.state.principals.get(publisher, {})
        found = []
        for rule in publish_entries(self.state, publisher, type_name):
            fixed = _fixed(rule, attributes)
            if fixed is None:
                continue  # a forced value that does not fit the type
            found.append(Entry(rule.effect, prepared(rule.where, subject, attributes), fixed))
            if rule.where == TRUE:
                break
        return tuple(found)

    def _hit(self, entry: Entry, sent: Sent, asked: Flags) -> Flags:
        """The rows an entry settles: those a grant lets in, or a forbid keeps out."""
        if entry.where == TRUE:
            return asked
        found = truth(entry.where, Frame(sent, self._facts, entry.fixed), asked)
        return asked & (found.true if entry.effect is Effect.GRANT else ~found.false)

    def _table(self, columns: Columns, accepted: Flags, used: list[tuple[Entry, Flags]]) -> pa.Table:
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
            place = places[name]
            kind = ARROW[place.slot.store]
            if not hits and name in columns.arrays:
                arrays[place.slot.column] = _taken(columns.arrays[name], chosen)
                continue
            changed = [(stored(e.fixed[name], place.kind), hit) for e, hit in hits if name in e.fixed]
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
            arrays[place.slot.column] = array
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
    return Encoded(len(row), to_blob(table), part, row)


def _fixed(rule: Rule, attributes: Mapping[str, Kind]) -> dict[str, Value] | None:
    """What a grant makes of the attributes it does not let through as sent; None if a forced value cannot be."""
    if rule.attributes is None:
        return {}
    fixed: dict[str, Value] = {name: None for name in attributes if name not in rule.attributes}
    for name, raw in rule.forced.items():
        if name in attributes:
            fixed[name] = forced_value(raw, attributes[name])
            if fixed[name] is None:
                return None
    return fixed


def _taken(array: pa.Array, chosen: pa.Array | None) -> pa.Array:
    """The chosen rows of a column; all of them if None."""
    return array if chosen is None else array.take(chosen)
