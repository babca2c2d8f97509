"""What the log and the deliveries hold, written and read one by one: a model beside what works on columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.model.events import Event
from headgate.model.values import micros, moment
from headgate.pipeline.deliveries import Delivered, DeliveryBlob
from headgate.pipeline.index.requirements import required
from headgate.pipeline.log.appends import Append
from headgate.pipeline.log.codec import ARROW, AttributeSlot, Slot, from_blob, packed, stored, to_blob, values_of
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.log.promises import Early


def append(log: EventLog, stream: str, token: int, *values: Any, **more: Any) -> int:
    """Store one append, given as the fields of `Append`; its first sequence number, or its refusal raised."""
    (answer,) = log.append_many(stream, token, [Append(*values, **more)])
    assert not isinstance(answer, Early)
    if not isinstance(answer, int):
        raise answer
    return answer


def lease(log: EventLog, stream: str) -> tuple[str, int]:
    """Who holds a stream, and until when."""
    (row,) = log._rows("SELECT holder, expires FROM streams WHERE stream = ?", stream)
    return row


def encode(events: Sequence[Event], layouts: Mapping[str, Mapping[str, AttributeSlot]]) -> bytes:
    """The events of one append."""
    columns: dict[Slot, list[Any]] = {}
    rows: dict[str, list[int]] = {}
    for at, event in enumerate(events):
        rows.setdefault(event.type, []).append(at)
    for type_name, mine in rows.items():
        for name, layout in layouts[type_name].items():
            column = columns.setdefault(layout.slot, [None] * len(events))
            for at in mine:
                column[at] = stored(events[at].values[name], layout.kind)
    arrays: dict[str, pa.Array] = {
        "id": pa.array([e.id for e in events], pa.string()),
        "type": pa.array([e.type for e in events], pa.string()),
        "publisher": pa.array([e.publisher for e in events], pa.string()),
        "source": pa.array([e.source for e in events], pa.string()),
    }
    for slot, column in sorted(columns.items()):
        arrays[slot.column] = pa.array(column, ARROW[slot.store])
    asked = required([e.requires for e in events])
    if asked is not None:
        arrays["requires"] = asked.column(np.arange(len(events)))
    if any(e.rate is not None for e in events):
        arrays["rate"] = pa.array([e.rate for e in events], pa.int64())
    if any(e.stated is not None for e in events):
        arrays["occurred"] = pa.array([None if e.stated is None else micros(e.stated) for e in events], pa.int64())
    if any(e.readers is not None for e in events):
        arrays["readers"] = pa.array([None if e.readers is None else json.dumps(e.readers) for e in events])
    if any(e.made_of is not None for e in events):
        arrays["made_of"] = pa.array([None if e.made_of is None else json.dumps(e.made_of) for e in events])
    if any(e.origin is not None for e in events):
        arrays["origin"] = pa.array([e.origin for e in events], pa.string())
    return to_blob(packed(pa.table(arrays)))


def read(blob: DeliveryBlob, layouts: Mapping[str, Mapping[str, AttributeSlot]]) -> Iterator[Delivered]:
    """The deliveries of a blob, in order of sequence number."""
    if blob.blob is None:
        return
    for row in from_blob(blob.blob).to_pylist():
        view = values_of(row, layouts[row["type"]], blob.version)
        for subscription in row["subscriptions"]:
            yield Delivered(
                blob.stream,
                row["seq"],
                blob.version,
                subscription,
                row["id"],
                row["type"],
                row["publisher"],
                moment(row["time"]),
                view,
                row["source"],
            )
