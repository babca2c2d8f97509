"""What detections see of the log, decided and on its way to their shards.

Guarantees: a view is what `Matcher` decides for a detection, as for a subscription; what is hidden is not sent on, save
which row of an active table an event is. Every event goes to just those shards that its detection's `Routing` names, by
the bucket that has them, and arrives there as it was decided, with the time at which it occurred.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from headgate.decide.composite import Occurrence
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import Kind, moment
from headgate.pipeline.detect.bucket import ShardKey
from headgate.pipeline.detect.plans import DetectionPlan, key_type
from headgate.pipeline.detect.routing import SHARDS, shards_of
from headgate.pipeline.index.index import Types
from headgate.pipeline.log.codec import EventBatch, Ints, LogBatch, Words, from_blob, to_blob, whole
from headgate.pipeline.match import Matches

BUCKETS = 16
"""Parts into which the shards of all detections are put, so that tasks can run them side by side."""

PlanOf: TypeAlias = Callable[[int], DetectionPlan]

_ARROW = {Kind.BOOL: pa.bool_(), Kind.TIMESTAMP: pa.timestamp("us", "UTC")}


def bucket_of(detection: int, shard: int) -> int:
    """The bucket of a shard."""
    return (detection + shard) % BUCKETS


@dataclass(frozen=True, slots=True)
class _TypeFacts:
    """What is the same for all events of a type."""

    lineage: tuple[str, ...]
    tables: tuple[str, ...]
    key: tuple[str, ...]


def routed(
    appends: Sequence[LogBatch], events: EventBatch, matches: Matches, types: Types, catalog: Catalog, plan_of: PlanOf
) -> Iterator[tuple[int, bytes]]:
    """What each bucket gets of some appends."""
    if not len(matches.events):
        return
    which, shards = _shards(events, matches, types, plan_of)
    buckets = (matches.subscriptions[which].astype(np.int64) + shards) % BUCKETS
    order = np.argsort(buckets, kind="stable")
    edges = np.searchsorted(buckets[order], np.arange(BUCKETS + 1))
    for bucket, (begin, end) in enumerate(pairwise(edges.tolist())):
        if begin < end:
            mine = order[begin:end]
            yield bucket, _encoded(appends, events, matches, types, catalog, which[mine], shards[mine])


def _shards(events: EventBatch, matches: Matches, types: Types, plan_of: PlanOf) -> tuple[Ints, Ints]:
    """Pairs of a match and a shard that it goes to, in the order of matches."""
    numbers, of = np.unique(matches.subscriptions, return_inverse=True)
    plans = [plan_of(number) for number in numbers.tolist()]
    is_cut = np.array([plan.routing.is_cut for plan in plans], np.bool_)
    whole_ones = np.flatnonzero(~is_cut[of])
    found: list[tuple[Ints, Ints]] = [(whole_ones, np.zeros(len(whole_ones), np.int64))]
    order = np.argsort(of, kind="stable")
    edges = np.searchsorted(of[order], np.arange(len(numbers) + 1))
    for at in np.flatnonzero(is_cut).tolist():
        mine, plan = order[edges[at] : edges[at + 1]], plans[at]
        for route in plan.routing.routes:
            type = types.numbers[route.type]
            rows = mine[(types.lineage[events.type[matches.events[mine]]] == type).any(axis=1)]
            if route.attribute is None:
                found.append((np.repeat(rows, plan.routing.shards), np.tile(np.arange(plan.routing.shards), len(rows))))
                continue
            place = types.layouts[type][route.attribute]
            seen = (matches.visible[rows, place.bit >> 6] >> np.uint64(place.bit & 63)) & np.uint64(1)
            rows = rows[seen.astype(np.bool_)]
            if place.slot.column in events.table.column_names:
                column = whole(events.table.column(place.slot.column).take(pa.array(matches.events[rows])))
                shards = shards_of(column, plan.routing.shards)
                found.append((rows[shards >= 0], shards[shards >= 0]))
    which, shards = (np.concatenate([pair[at] for pair in found]) for at in (0, 1))
    return np.divmod(np.unique(which * SHARDS + shards), SHARDS)


def _encoded(
    appends: Sequence[LogBatch], events: EventBatch, matches: Matches, types: Types, catalog: Catalog,
    which: Ints, shards: Ints,
) -> bytes:  # fmt: skip
    """Views of events, each once, and the shards they are for."""
    rows, visible = matches.events[which], matches.visible[which]
    order = np.lexsort((*visible.T, rows))
    new = np.ones(len(order), np.bool_)
    new[1:] = (rows[order][1:] != rows[order][:-1]) | (visible[order][1:] != visible[order][:-1]).any(axis=1)
    view = np.empty(len(order), np.int64)
    view[order] = np.cumsum(new) - 1
    first = order[new]
    rows, visible = rows[first], visible[first]
    ends = np.cumsum([one.last - one.first + 1 for one in appends])
    append = np.searchsorted(ends, rows, "right")
    seq = rows - (ends - [one.last - one.first + 1 for one in appends])[append]
    seq += np.array([one.first for one in appends], np.int64)[append]
    stated = events.stated()
    occurred = events.time[rows]
    if stated is not None:
        said = stated.take(pa.array(rows))
        occurred = np.where(np.asarray(said.is_valid()), said.fill_null(0).to_numpy(), occurred)
    parts = []
    for type in np.unique(events.type[rows]).tolist():
        at = np.flatnonzero(events.type[rows] == type)
        name = types.names[type]
        keyed = key_type(catalog, name)
        lineage = catalog.lineage(name)
        key = () if keyed is None else catalog.every[keyed].key
        facts = _TypeFacts(lineage, () if keyed is None else lineage[: lineage.index(keyed) + 1], key)
        parts.append((facts, at, to_blob(_attributes(events, rows[at], visible[at], types, type, key))))
    told = [(one.number, one.stream, one.version) for one in appends]
    return pickle.dumps((told, append, seq, occurred, parts, matches.subscriptions[which], shards, view), protocol=5)


def _attributes(
    events: EventBatch, rows: Ints, visible: Words, types: Types, type: int, key: tuple[str, ...]
) -> pa.Table:
    """The attributes of events of one type that are seen, under their names, and those of the key whatever is seen."""
    columns: dict[str, pa.Array] = {}
    for name, place in types.layouts[type].items():
        if place.slot.column not in events.table.column_names:
            continue
        column = events.table.column(place.slot.column)
        kind = _ARROW.get(place.kind)
        if name in key:
            columns[f" {name}"] = _cast(column.take(pa.array(rows)), kind)
        seen = (visible[:, place.bit >> 6] >> np.uint64(place.bit & 63)) & np.uint64(1)
        if seen.any():
            columns[name] = _cast(column.take(pa.array(rows, mask=seen == 0)), kind)
    return pa.table(columns) if columns else pa.table({" ": pa.nulls(len(rows))})


def _cast(column: pa.ChunkedArray, kind: pa.DataType | None) -> pa.ChunkedArray:
    return column if kind is None else column.cast(kind)


def arrived(blob: bytes, state_at: Callable[[int], State]) -> Iterator[tuple[int, list[tuple[ShardKey, Occurrence]]]]:
    """The events of a routed blob by the number of their append, each for a shard."""
    appends, append, seqs, occurred, parts, detections, shards, view = pickle.loads(blob)  # noqa: S301 - out of `routed`
    made: list[Any] = [None] * len(seqs)
    states = [state_at(version) for _, _, version in appends]
    times: list[datetime] = [moment(time) for time in occurred.tolist()]
    place = list(zip(append.tolist(), seqs.tolist(), times, strict=True))
    for facts, at, table in parts:
        for where, values, key in zip(at.tolist(), *_rows(from_blob(table), facts.key), strict=True):
            number, seq, time = place[where]
            made[where] = Occurrence(
                time, facts.lineage, values, states[number], appends[number][1], seq, key, facts.tables
            )
    found: dict[int, list[tuple[ShardKey, Occurrence]]] = {}
    for detection, shard, which in zip(detections.tolist(), shards.tolist(), view.tolist(), strict=True):
        found.setdefault(appends[place[which][0]][0], []).append(((detection, shard), made[which]))
    yield from found.items()


def _rows(table: pa.Table, key: Sequence[str]) -> tuple[list[Mapping[str, Any]], list[tuple[Any, ...]]]:
    names = [name for name in table.column_names if not name.startswith(" ")]
    columns = [table.column(name).to_pylist() for name in names]
    values: list[Mapping[str, Any]] = (
        [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        if columns
        else [{} for _ in range(table.num_rows)]
    )
    if not key:
        return values, [()] * table.num_rows
    there = set(table.column_names)
    missing = [None] * table.num_rows
    keys = [table.column(f" {name}").to_pylist() if f" {name}" in there else missing for name in key]
    return values, list(zip(*keys, strict=True))
