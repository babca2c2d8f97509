"""Deliveries as Arrow: one row for each event and distinct view, with the subscriptions that receive it.

Guarantees: the masked payload is written once per (event, view), and nothing of a hidden value is in it, not even
under a null. A blob depends only on the append it came from, the ledger and the history it belongs to, so a batch
that runs again writes the same blobs under the same keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.model.values import Value, moment
from headgate.pipeline.deliveries.members import pack
from headgate.pipeline.index.index import Types
from headgate.pipeline.index.layout import AttributeSlot, Words
from headgate.pipeline.log.codec import EventBatch, LogBatch, from_blob, to_blob, values_of
from headgate.pipeline.match.match import Matches


@dataclass(frozen=True, slots=True)
class Delivered:
    """One event as one subscription received it. `subscription` is its number in order of opening."""

    stream: str
    seq: int
    version: int
    subscription: int
    event: str
    type: str
    publisher: str
    time: datetime
    view: Mapping[str, Value]
    source: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryBlob:
    """What the pipeline writes for one append: deliveries to live subscriptions (`part` 0) or to history.

    `members` says which subscriptions are in it (`members.pack`).
    """

    stream: str
    first: int
    last: int
    version: int
    part: int
    count: int
    blob: bytes | None
    members: bytes = b""


def blobs(batches: Sequence[LogBatch], events: EventBatch, matches: Matches, types: Types) -> Iterator[DeliveryBlob]:
    """The deliveries of many appends, each apart."""
    ends = np.cumsum([b.last - b.first + 1 for b in batches])
    append = np.searchsorted(ends, matches.events, "right")
    for part in np.unique(np.append(matches.parts, 0)).tolist():
        mine = np.flatnonzero(matches.parts == part)
        rows, starts, subscriptions = _grouped(matches, mine)
        visible = matches.visible[mine[starts[:-1]]]
        first_row = np.searchsorted(append[mine[starts[:-1]]] if len(rows) else rows, np.arange(len(batches) + 1))
        for number, batch in enumerate(batches):
            begin, end = int(first_row[number]), int(first_row[number + 1])
            if begin == end:
                if part == 0:
                    yield DeliveryBlob(batch.stream, batch.first, batch.last, batch.version, 0, 0, None)
                continue
            offset = int(ends[number]) - (batch.last - batch.first + 1)
            seq = rows[begin:end] - offset + batch.first
            receivers = subscriptions[starts[begin] : starts[end]]
            lists = pa.ListArray.from_arrays(
                pa.array((starts[begin : end + 1] - starts[begin]).astype(np.int32)),
                pa.array(receivers),
            )
            piece = _payload(events, rows[begin:end], visible[begin:end], types)
            piece = piece.append_column("seq", pa.array(seq)).append_column("subscriptions", lists)
            yield DeliveryBlob(
                batch.stream,
                batch.first,
                batch.last,
                batch.version,
                part,
                len(receivers),
                to_blob(piece),
                pack(np.unique(receivers)),
            )


def _grouped(
    matches: Matches, mine: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Matches grouped by event and view: the event rows, where each group starts, and the subscriptions."""
    if len(mine) == 0:
        return mine, np.zeros(1, np.int64), matches.subscriptions[:0]
    visible, events = matches.visible[mine], matches.events[mine]
    order = np.lexsort((*visible.T, events))
    mine[:] = mine[order]
    visible, events = visible[order], events[order]
    new = np.ones(len(events), np.bool_)
    new[1:] = (events[1:] != events[:-1]) | (visible[1:] != visible[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    return events[first], np.append(first, len(events)), matches.subscriptions[mine]


def _payload(events: EventBatch, rows: npt.NDArray[np.int64], visible: Words, types: Types) -> pa.Table:
    """The events with everything that is not visible made null. A slot with nothing to show has no column."""
    take = pa.array(rows)
    kinds = events.type[rows]
    arrays = {name: events.table.column(name).take(take) for name in ("id", "type", "publisher", "source")}
    arrays["time"] = pa.array(events.time[rows])
    for number in np.flatnonzero((types.bits[np.unique(kinds)] >= 0).any(axis=0)).tolist():
        slot, bit = types.slots[number], types.bits[kinds, number]
        there = bit >= 0
        safe = np.where(there, bit, 0)
        word = visible[np.arange(len(rows)), safe >> 6]
        shown = there & ((word >> (safe & 63).astype(np.uint64)) & np.uint64(1)).astype(np.bool_)
        if shown.any():
            # A null index leaves zeros behind it; a mask over the column would leave the hidden value.
            arrays[slot.column] = events.table.column(slot.column).take(pa.array(rows, mask=~shown))
    return pa.table(arrays)


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
