"""Events, before and after the gateway has accepted them.

Guarantees: an `Event` holds every attribute of its type, nulls included, with values that `conform` let in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from headgate.model.expressions import Condition
from headgate.model.values import Value, plain

Contributors: TypeAlias = tuple[tuple[str, int, int], ...]
"""The events that a signal, or what was made of it, rests on: stream, number and version of each."""


_JSON: Final = json.JSONEncoder(separators=(",", ":"))


def dump_contributors(contributors: Contributors) -> str:
    """Contributing events as JSON."""
    return _JSON.encode(contributors)


def load_contributors(text: str) -> Contributors:
    """The inverse of `dump_contributors`."""
    return tuple((stream, number, version) for stream, number, version in json.loads(text))


@dataclass(frozen=True, slots=True)
class Draft:
    """An event as a publisher sends it: untrusted values under names."""

    id: str
    publisher: str
    type: str
    values: Mapping[str, object]
    source: str = ""
    requires: Condition | None = None
    origin: str | None = None
    time: object = None
    """When it occurred, as its publisher states it; it counts where the type takes times from publishers."""
    contributors: Contributors | None = None
    """What it rests on, where a detection publishes it; nobody else states that."""
    readers: tuple[str, ...] | None = None
    """Who could read all of that, where the type is for those alone; likewise."""
    made_of: tuple[str, ...] | None = None
    """The types that the detection looks at; likewise."""


@dataclass(frozen=True, slots=True)
class Event:
    """An accepted event with the place and version it was stamped with (D7)."""

    id: str
    publisher: str
    type: str
    values: Mapping[str, Value]
    time: datetime
    stream: str = "main"
    seq: int = 0
    version: int = 0
    source: str = ""
    requires: Condition | None = None
    """The subscriber requirement, over the subject attributes of receivers (D11)."""
    rate: int | None = None
    """How many events of the type its publisher had accepted in the last RATE_SECONDS, this one included: `@rate`."""
    origin: str | None = None
    """The network address it came from, as its gateway saw it: `@origin` in the conditions of publish rights."""
    stated: datetime | None = None
    """When it occurred, as its publisher stated it, where its type takes that; `time` is always the gateway's clock."""
    contributors: Contributors | None = None
    """What it rests on, where a detection published it."""
    readers: tuple[str, ...] | None = None
    """Who could read all of that, each at the version of what it rests on, where the type is for those alone (D16)."""
    made_of: tuple[str, ...] | None = None
    """The types that the detection looks at which published it, where they must be declassified for it (D17)."""

    @property
    def occurred(self) -> datetime:
        """When it occurred: as stated, or else as the gateway's clock said."""
        return self.time if self.stated is None else self.stated


def size_of(values: Mapping[str, Value]) -> int:
    """The size of an event: the UTF-8 bytes of its non-null attributes as compact JSON with sorted keys."""
    shown = {name: plain(value) for name, value in values.items() if value is not None}
    return len(json.dumps(shown, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode())
