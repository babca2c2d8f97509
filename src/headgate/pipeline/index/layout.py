"""Where the attributes of an event type sit: typed slots, and one bit each.

Guarantees: a slot is the attribute's store and bit, and bits come from the catalog, which never changes one; so an
inherited attribute has the same slot and the same bit in the parent and in every subtype, and what was stored stays
readable when types gain attributes or retire.
Booleans, integers and timestamps (microseconds) share the integer slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.model.types import Catalog
from headgate.model.values import Kind, Value, micros, moment

Store: TypeAlias = Literal["i", "f", "s", "y"]
Words: TypeAlias = npt.NDArray[np.uint64]
"""Bitmasks over attributes: one row an item, 64 attributes a word."""

STORE: Final[Mapping[Kind, Store]] = {
    Kind.BOOL: "i",
    Kind.INT: "i",
    Kind.TIMESTAMP: "i",
    Kind.FLOAT: "f",
    Kind.STRING: "s",
    Kind.BYTES: "y",
}
ARROW: Final = {"i": pa.int64(), "f": pa.float64(), "s": pa.string(), "y": pa.binary()}


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One typed column of the log. Below 0 they hold what the gateway stamped: the time, the publisher, the rate."""

    store: Store
    number: int

    @property
    def column(self) -> str:
        """Its name in an Arrow table."""
        return f"{self.store}{self.number}"


TIME: Final = Slot("i", -1)
PUBLISHER: Final = Slot("s", -1)
RATE: Final = Slot("i", -2)
"""`@rate`, which is 1 or more; 0 stands for null."""


@dataclass(frozen=True, slots=True)
class AttributeSlot:
    """Where one attribute sits: its slot, its bit and its kind, and the version that brought it (0: with its type)."""

    slot: Slot
    bit: int
    kind: Kind
    since: int = 0


def places(catalog: Catalog, type_name: str) -> dict[str, AttributeSlot]:
    """The places of a type's attributes."""
    bits, since = catalog.bits(type_name), catalog.since(type_name)
    return {
        name: AttributeSlot(Slot(STORE[kind], bits[name]), bits[name], kind, since.get(name, 0))
        for name, kind in catalog.ever_attributes(type_name).items()
    }


def layouts(catalog: Catalog) -> dict[str, dict[str, AttributeSlot]]:
    """The places of every type in a catalog, retired ones included: their events are still in the log."""
    return {name: places(catalog, name) for name in catalog.every}


def words_for(bits: int) -> int:
    """How many 64-bit words hold so many bits; at least one."""
    return max(1, -(-bits // 64))


def mask_of(bits: list[int], words: int) -> list[int]:
    """A bitmask with these bits set, as words."""
    mask = [0] * words
    for bit in bits:
        mask[bit >> 6] |= 1 << (bit & 63)
    return mask


def stored(value: Value, kind: Kind) -> int | float | str | bytes | None:
    """A value as its slot holds it."""
    match kind:
        case Kind.TIMESTAMP:
            return micros(value) if isinstance(value, datetime) else None
        case Kind.BOOL:
            return None if value is None else int(bool(value))
        case _:
            assert not isinstance(value, datetime)
            return value


def restored(held: int | float | str | bytes | None, kind: Kind) -> Value:
    """The inverse of `stored`."""
    if held is None:
        return None
    if kind is Kind.TIMESTAMP:
        assert isinstance(held, int)
        return moment(held)
    return bool(held) if kind is Kind.BOOL else held
