"""Events of one type as columns, the way conditions look at them.

Guarantees: an attribute is one value for all rows (a constant, or what an entry forces), or numbers in their stored
form, or text; with the rows that have a value. What is under a null is zero or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.decide.truth import World
from headgate.model.changes import Row
from headgate.model.events import Event
from headgate.model.values import Kind, Value, kind_of
from headgate.pipeline.index.layout import restored
from headgate.pipeline.log.codec import Flags, Ints


@dataclass(frozen=True, slots=True)
class Same:
    """An operand with one value on every row."""

    value: Value


@dataclass(frozen=True, slots=True)
class Numbers:
    """An operand as booleans, integers, timestamps or doubles in their stored form, and which rows have one."""

    values: npt.NDArray[Any]
    there: Flags


@dataclass(frozen=True, slots=True)
class Texts:
    """An operand as strings or bytes, and which rows have one."""

    array: pa.Array
    there: Flags


Column: TypeAlias = Same | Numbers | Texts


@dataclass(slots=True)
class ConditionFacts:
    """What conditions may look at besides the events, indexed once for all of them."""

    world: World
    _members: dict[str, frozenset[str]] = field(default_factory=dict)
    _rows: dict[str, frozenset[Row]] = field(default_factory=dict)

    def members(self, group: str) -> frozenset[str]:
        """Who is in a group."""
        if group not in self._members:
            self._members[group] = self.world.state.members_of(group)
        return self._members[group]

    def rows(self, relation: str) -> frozenset[Row]:
        """The rows of a relation, so that two are equal if their values are the same."""
        if relation not in self._rows:
            known = self.world.state.relations.get(relation, frozenset())
            self._rows[relation] = frozenset(tuple(map(family, row)) for row in known)
        return self._rows[relation]


@dataclass(slots=True)
class Sent:
    """Events of one type and publisher as columns in the stored form. An attribute without a column is null.

    `rate` and `origin` are what `@rate` and `@origin` are for each of them.
    """

    type: str
    publisher: str
    time: datetime
    size: int
    kinds: Mapping[str, Kind]
    arrays: Mapping[str, pa.Array]
    rate: Same = Same(None)
    origin: Same | Texts = Same(None)
    _made: dict[str, Numbers | Texts] = field(default_factory=dict)

    def column(self, name: str) -> Column:
        """An attribute as conditions use it, made once."""
        if name not in self.arrays:
            return Same(None)
        if name not in self._made:
            array = self.arrays[name]
            if array.null_count:
                there = pc.is_valid(array).to_numpy(zero_copy_only=False)
            else:
                there = np.ones(self.size, np.bool_)
            if self.kinds[name] in (Kind.STRING, Kind.BYTES):
                self._made[name] = Texts(array, there)
            else:
                filled = pc.fill_null(array, 0) if array.null_count else array
                self._made[name] = Numbers(filled.to_numpy(), there)
        return self._made[name]


@dataclass(frozen=True, slots=True)
class Frame:
    """Events as one entry sees them: some attributes may be `fixed` to one value, or to null, on every row."""

    sent: Sent
    facts: ConditionFacts
    fixed: Mapping[str, Value] = field(default_factory=dict)

    def column(self, name: str) -> Column:
        """An attribute as the entry sees it."""
        return Same(self.fixed[name]) if name in self.fixed else self.sent.column(name)

    def events(self, rows: Ints) -> list[Event]:
        """Some of the events one by one, with every attribute of their type, and what was stamped on them."""
        sent, asked, columns = self.sent, pa.array(rows), []
        for name, kind in sent.kinds.items():
            if name in self.fixed or name not in sent.arrays:
                columns.append([self.fixed.get(name)] * len(rows))
            else:
                columns.append([restored(held, kind) for held in sent.arrays[name].take(asked).to_pylist()])
        rowwise = zip(*columns, strict=True) if columns else ((),) * len(rows)
        rate, origins = sent.rate.value, self._origins(asked)
        assert rate is None or isinstance(rate, int)
        return [
            Event(
                "",
                sent.publisher,
                sent.type,
                dict(zip(sent.kinds, values, strict=True)),
                sent.time,
                rate=rate,
                origin=origin,
            )
            for values, origin in zip(rowwise, origins, strict=True)
        ]

    def _origins(self, asked: pa.Array) -> list[Any]:
        origin = self.sent.origin
        return [origin.value] * len(asked) if isinstance(origin, Same) else list(origin.array.take(asked).to_pylist())


def family(value: Value) -> Any:
    """A value with what it may be the same as: numbers with numbers, all else with its own kind."""
    kind = kind_of(value)
    return (Kind.FLOAT if kind is Kind.INT else kind), value
