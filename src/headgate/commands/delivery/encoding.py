"""Stored deliveries and signals as the CloudEvents that readers are given.

Guarantees: JSON, but for the position and the brace at the end, which a reader adds. The `data` of an event has every
attribute that its type had at the event's version, nulls included. That of a signal has its bindings, as events have
such values; the events that it rests on are named by positions of its own detection, in `hgcontributors`, so that
nothing counts what is hidden. The detection, its `source`, is added by the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model.events import load_contributors
from headgate.model.types import SIGNAL
from headgate.model.values import Kind, plain
from headgate.node.domain import Follower
from headgate.pipeline.detect.signals import bindings
from headgate.pipeline.log.codec import AttributeSlot
from headgate.trust.positions import Positions

Ints: TypeAlias = npt.NDArray[np.int64]
Layouts: TypeAlias = Mapping[str, Mapping[str, AttributeSlot]]
Encode: TypeAlias = Callable[[pa.Table, Ints], list[bytes]]
"""Encodes stored rows, given their versions."""

MAX_CONTRIBUTORS: Final = 100
"""Contributing events that are named with a signal; its explanation has them all."""

_JSON: Final = msgspec.json.Encoder()


def event_fragments(layouts: Layouts, table: pa.Table, versions: Ints) -> list[bytes]:
    """Events, those of one type and one set of attributes together."""
    fragments = [b""] * table.num_rows
    types = np.array(table.column("type").to_pylist(), object)
    heads = [table.column(name).to_pylist() for name in ("id", "source", "type", "publisher")]
    times = _times(whole(table.column("time")))
    stated = _times(whole(table.column("occurred"))) if "occurred" in table.column_names else None
    for type_name in dict.fromkeys(types.tolist()):
        mine = np.flatnonzero(types == type_name)
        for which, layout in _by_version(layouts[type_name], versions[mine]):
            at = mine[which]
            columns = [_column(table, place, at) for place in layout.values()]
            data: Iterator[tuple[Any, ...]] = zip(*columns, strict=True) if columns else iter([()] * len(at))
            for index, values in zip(at.tolist(), data, strict=True):
                id, source, _, publisher = (head[index] for head in heads)
                event = {
                    "specversion": "1.0",
                    "id": id,
                    "source": source or publisher,
                    "type": type_name,
                    "time": times[index],
                    "data": dict(zip(layout, values, strict=True)),
                    "hgpublisher": publisher,
                }
                if stated is not None and stated[index] is not None:
                    event |= {"time": stated[index], "hgtime": times[index]}
                fragments[index] = _JSON.encode(event)[:-1]
    return fragments


def signal_fragments(known: Follower, positions: Positions, table: pa.Table, _: Ints) -> list[bytes]:
    """Signals; each is of one detection."""
    fragments = []
    times = _times(whole(table.column("time")))
    for time, row in zip(times, table.to_pylist(), strict=True):
        places = load_contributors(row["contributors"])[:MAX_CONTRIBUTORS]
        streams = np.array([known.stream_number(stream) for stream, _, _ in places], np.int64)
        numbers = np.array([number for _, number, _ in places], np.int64)
        event = {
            "specversion": "1.0",
            "id": row["id"],
            "type": SIGNAL,
            "time": time,
            "data": {name: plain(value) for name, value in bindings(row["data"])},
            "hgcontributors": " ".join(positions.seal(np.int64(row["subscriptions"][0]), streams, numbers)),
        }
        fragments.append(_JSON.encode(event)[:-1])
    return fragments


def _by_version(
    layout: Mapping[str, AttributeSlot], versions: Ints
) -> Iterator[tuple[Ints, Mapping[str, AttributeSlot]]]:
    """The rows that have the same attributes, and these."""
    gained = sorted({place.since for place in layout.values()} - {0})
    era = np.searchsorted(np.array(gained, np.int64), versions, "right")
    for number in np.unique(era).tolist():
        since = gained[number - 1] if number else 0
        yield np.flatnonzero(era == number), {name: p for name, p in layout.items() if p.since <= since}


def _column(table: pa.Table, attribute: AttributeSlot, at: Ints) -> list[Any]:
    """One attribute of some rows, as JSON has it."""
    if attribute.slot.column not in table.column_names:
        return [None] * len(at)
    column = whole(table.column(attribute.slot.column).take(pa.array(at)))
    match attribute.kind:
        case Kind.TIMESTAMP:
            return [None if text is None else text.replace(".000000Z", "Z") for text in _times(column)]
        case Kind.BOOL:
            return [None if value is None else bool(value) for value in column.to_pylist()]
        case Kind.BYTES:
            return [None if value is None else value.hex() for value in column.to_pylist()]
        case _:
            return list(column.to_pylist())


def _times(column: pa.Array) -> list[str | None]:
    """Microseconds as RFC 3339, all of the same length, so that their order is that of time."""
    filled = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype("datetime64[us]")
    texts = [f"{text}Z" for text in np.datetime_as_string(filled).tolist()]
    if not column.null_count:
        return list(texts)
    return [text if there else None for text, there in zip(texts, column.is_valid().to_pylist(), strict=True)]


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    if isinstance(column, pa.Array):
        return column
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
