"""Deliveries as they go out: CloudEvents in JSON, encoded once for each event and view, with a position for each.

Guarantees: a portion is decoded in columns, whoever reads it. What is the same for all readers of a view is encoded
once, and only if somebody reads it; a reader adds its position. The `data` has every attribute that the type had at
the event's version, nulls included.
Leaves out: who may read what, which the pipeline decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model.state import State
from headgate.model.values import Kind
from headgate.pipeline.deliveries import DeliveryBlob
from headgate.pipeline.log.codec import AttributeSlot, from_blob
from headgate.trust.positions import Positions

Ints = npt.NDArray[np.int64]
Layouts = Mapping[str, Mapping[str, AttributeSlot]]

DELIVERY_BYTES: Final = 200  # what a delivery counts for beside its view: its entries in the index and its position

_OPEN, _SHUT = b',"hgposition":"', b'"}'
_JSON = msgspec.json.Encoder()


class KnownLedger(Protocol):
    """What the gateway knows of the ledger (`follow.Follower`)."""

    @property
    def state(self) -> State:
        """The newest state."""

    @property
    def places(self) -> Layouts:
        """Where attributes sit."""

    def refresh(self) -> bool:
        """Look for a newer version."""

    def starts(self, version: int) -> Mapping[str, int]:
        """The first event of each stream that a version, or a later one, applies to."""

    def stream_number(self, stream: str) -> int:
        """The number of a stream in positions."""


def portion_of(
    blobs: Sequence[DeliveryBlob], known: KnownLedger, positions: Positions, only: int | None = None
) -> Portion:
    """Blobs as a portion, with the newest of their types known; of one subscription if `only` says so."""
    if max((b.version for b in blobs), default=0) > known.state.version:
        known.refresh()
    numbers = {b.stream: known.stream_number(b.stream) for b in blobs}
    return Portion(blobs, known.places, numbers, positions, only)


class OutgoingDelivery(NamedTuple):
    """One event as one reader gets it: the CloudEvent with its position, and its place."""

    event: bytes
    position: str
    stream: str
    seq: int
    version: int


class Portion:
    """Some blobs of deliveries, with an index from subscriptions to their events."""

    def __init__(
        self,
        blobs: Sequence[DeliveryBlob],
        layouts: Layouts,
        numbers: Mapping[str, int],
        positions: Positions,
        only: int | None = None,
    ) -> None:
        self._layouts = layouts
        self._positions = positions
        self.names = sorted({b.stream for b in blobs})
        self._stream_numbers = np.array([numbers[name] for name in self.names], np.int64)
        tables = [from_blob(b.blob) for b in blobs if b.blob is not None]
        self._table = pa.concat_tables(tables, promote_options="default").combine_chunks() if tables else None
        sizes = [t.num_rows for t in tables]
        self.versions = np.repeat(np.array([b.version for b in blobs if b.blob is not None], np.int64), sizes)
        places = {name: at for at, name in enumerate(self.names)}
        streams = np.repeat(np.array([places[b.stream] for b in blobs if b.blob is not None], np.int64), sizes)
        self._fragments: list[bytes | None] = [None] * int(sum(sizes))
        self._index(streams, only)
        self.bytes = (self._table.nbytes if self._table is not None else 0) * 2 + len(self) * DELIVERY_BYTES

    def _index(self, streams: Ints, only: int | None) -> None:
        """Order the deliveries, or those of one subscription, by subscription, stream and sequence number."""
        if self._table is None:
            owners, seqs, rows = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        else:
            lists = _whole(self._table.column("subscriptions"))
            owners = lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
            rows = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy(zero_copy_only=False))
            if only is not None:
                mine = owners == only
                owners, rows = owners[mine], rows[mine]
            seqs = _whole(self._table.column("seq")).to_numpy(zero_copy_only=False)[rows]
        order = np.lexsort((seqs, streams[rows], owners))
        self._owners, self._rows, self._seqs = owners[order], rows[order], seqs[order]
        self._streams = streams[self._rows]
        self.numbers, starts = np.unique(self._owners, return_index=True)
        ends = np.append(starts, len(self._owners))[1:]
        self.slices: dict[int, tuple[int, int]] = dict(
            zip(self.numbers.tolist(), zip(starts.tolist(), ends.tolist(), strict=True), strict=True)
        )
        self._texts: list[str | None] = [None] * len(self._owners)
        # Read one by one, lists are several times faster than arrays.
        self.rows, self.seqs, self.streams = self._rows.tolist(), self._seqs.tolist(), self._streams.tolist()
        self._row_versions = self.versions.tolist()

    def __len__(self) -> int:
        return len(self._owners)

    def prepare(self, wanted: Iterable[int]) -> None:
        """Encode and seal everything for some subscriptions, all at once."""
        found = [self.slices[number] for number in wanted if number in self.slices]
        if found:
            self._make(np.concatenate([np.arange(*one) for one in found]))

    def _make(self, at: Ints) -> None:
        rows = np.unique(self._rows[at])
        missing = rows[[self._fragments[row] is None for row in rows.tolist()]]
        if len(missing) and self._table is not None:
            self._encode(missing)
        streams = self._stream_numbers[self._streams[at]]
        for index, text in zip(
            at.tolist(), self._positions.seal(self._owners[at], streams, self._seqs[at]), strict=True
        ):
            self._texts[index] = text

    def read(
        self, number: int, after: Mapping[str, int], *, not_before: int = 0, limit: int, room: int
    ) -> tuple[list[OutgoingDelivery], bool]:
        """What a subscription has here past some places, at most so many and about so many bytes; is that all?

        Events of versions before `not_before` are passed over.
        """
        if number not in self.slices:
            return [], True
        begin, end = self.slices[number]
        floors = [after.get(name, 0) for name in self.names]
        deliveries: list[OutgoingDelivery] = []
        for at in range(begin, end):
            row, seq, stream = self.rows[at], self.seqs[at], self.streams[at]
            if seq <= floors[stream] or self._row_versions[row] < not_before:
                continue
            if len(deliveries) == limit or room <= 0:
                return deliveries, False
            if self._texts[at] is None:
                self._make(np.arange(at, min(end, at + limit)))
            fragment, text = self._fragments[row], self._texts[at]
            assert fragment is not None
            assert text is not None
            event = b"".join((fragment, _OPEN, text.encode(), _SHUT))
            room -= len(event)
            deliveries.append(OutgoingDelivery(event, text, self.names[stream], seq, self._row_versions[row]))
        return deliveries, True

    # -- encoding ---------------------------------------------------------------------------------------------

    def _encode(self, rows: Ints) -> None:
        """Encode some rows, those of one type and one set of attributes together."""
        assert self._table is not None
        table = self._table.take(pa.array(rows))
        types = np.array(table.column("type").to_pylist(), object)
        versions = self.versions[rows]
        heads = [table.column(name).to_pylist() for name in ("id", "source", "type", "publisher")]
        times = _times(_whole(table.column("time")))
        for type_name in dict.fromkeys(types.tolist()):
            mine = np.flatnonzero(types == type_name)
            for which, layout in _by_version(self._layouts[type_name], versions[mine]):
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
                    self._fragments[int(rows[index])] = _JSON.encode(event)[:-1]


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
    column = _whole(table.column(attribute.slot.column).take(pa.array(at)))
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


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    if isinstance(column, pa.Array):
        return column
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
