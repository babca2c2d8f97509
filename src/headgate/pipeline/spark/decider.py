"""What each Spark task does: decide the appends it is given, against a broadcast index.

Guarantees: one function of (appends, index), for streaming and for batch alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from headgate.model.changes import RegisterPredicate
from headgate.pipeline.deliveries import DeliveryBlob, blobs
from headgate.pipeline.index.index import PolicyIndex
from headgate.pipeline.index.predicates import load
from headgate.pipeline.log.codec import LogBatch, event_batch, records
from headgate.pipeline.match import DecisionWindow, Matcher
from headgate.pipeline.paths import strike

EVENTS_AT_ONCE = 25_000
"""How many events a task decides together."""

SCHEMA = (
    "stream string, first bigint, last bigint, version bigint, part bigint, count bigint, blob binary, members binary, "
    "through bigint"
)
_kept: list[Matcher] = []


def decider(
    broadcast: Any, fault: str = "", make: Callable[[PolicyIndex], Matcher] | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`."""

    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher = _matcher(broadcast, make or make_matcher)
        for portion, window in portions(rows):
            strike(fault, "decide")
            marker = [DeliveryBlob("", 0, 0, 0, 0, 0, None)]
            decided = marker if portion[0].stream == "" else list(decide_appends(matcher, portion, window))
            yield records(SCHEMA, decided, through=window.through)

    return run


def decide_appends(matcher: Matcher, appends: list[LogBatch], window: DecisionWindow) -> Iterator[DeliveryBlob]:
    """The deliveries of some appends."""
    index = matcher.index
    if window.through > index.version:
        raise ValueError(f"the index is at version {index.version}, and the batch needs {window.through}")
    layouts = dict(zip(index.types.names, index.types.layouts, strict=True))
    events = event_batch(appends, index.types.numbers, layouts, index.types.words)
    found = blobs(appends, events, matcher.match(events, window), index.types)
    return (b for b in found if b.blob is not None) if window.backfill else found


def make_matcher(index: PolicyIndex) -> Matcher:
    """A matcher with the predicates that the index names."""
    registered: set[RegisterPredicate] = {p for epoch in index.epochs for p in epoch.predicates.values()}
    sources = index.predicate_sources
    return Matcher(index, {p.digest + p.target: load(sources[p.digest], p.digest, p.target) for p in registered})


def _matcher(broadcast: Any, make: Callable[[PolicyIndex], Matcher]) -> Matcher:
    """The matcher of this worker for a broadcast index, made once."""
    index: PolicyIndex = broadcast.value
    if not _kept or _kept[0].index is not index:
        _kept[:] = [make(index)]
    return _kept[0]


def portions(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[list[LogBatch], DecisionWindow]]:
    """Appends with the same window, some at a time; a marker, which has no stream, by itself."""
    held: list[LogBatch] = []
    window: DecisionWindow | None = None
    size = 0
    for batch in rows:
        for row in batch.to_pylist():
            mine = DecisionWindow(row.pop("after"), row.pop("through"), row.pop("backfill"))
            append = LogBatch(**row)
            if append.stream == "":
                yield [append], mine
                continue
            if held and (mine != window or size >= EVENTS_AT_ONCE):
                assert window is not None
                yield held, window
                held, size = [], 0
            window = mine
            held.append(append)
            size += append.last - append.first + 1
    if held and window is not None:
        yield held, window


def delivery_blobs(table: pa.Table) -> list[DeliveryBlob]:
    """The rows a job gave back, without markers."""
    rows = table.drop_columns(["through"]).to_pylist()
    return [DeliveryBlob(**row) for row in rows if row["stream"] != ""]
