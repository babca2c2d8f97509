"""Is what was delivered what should have been? Recompute it all from log and ledger, and compare.

Guarantees: every difference is found and named by stream, event and subscription. What is compared is what was
delivered, not its bytes: an append decided in other company may be encoded otherwise and say the same. Events that the
pipeline has not come to yet, and those that were trimmed from the log or the deliveries, are counted, and are no
differences. A damaged file is an error that names it.
Leaves out: the floats 0.0 and -0.0 are the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from headgate.model.errors import BadDefinition, Damaged, HeadgateError
from headgate.model.values import Value
from headgate.pipeline.deliveries import DeliveryBlob, DeliveryStore, Reached
from headgate.pipeline.log.codec import AttributeSlot, from_blob, layouts, values_of
from headgate.pipeline.spark.jobs import Pipeline

Key: TypeAlias = tuple[str, int, int]
"""Stream, first event of the append, and part: what a blob is kept under."""

Layouts: TypeAlias = Mapping[str, Mapping[str, AttributeSlot]]
_OWN = ("id", "publisher", "seq", "source", "subscriptions", "time", "type")


class DifferenceKind(Enum):
    """How a delivery differs from what it should be."""

    MISSING = "missing"
    EXTRA = "extra"
    ALTERED = "altered"
    VERSION = "wrong version"
    LABEL = "wrong label"


@dataclass(frozen=True, slots=True)
class Copy:
    """One event as one subscription has it."""

    version: int
    event: str
    type: str
    publisher: str
    time: int
    view: Mapping[str, Value]
    source: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryDifference:
    """One delivery that is not as it should be. `should` or `is_` is None where there is none.

    A wrong label is about the deliveries of a whole append, which begins with `seq`.
    """

    kind: DifferenceKind
    stream: str
    seq: int
    subscription: str
    should: Copy | None = None
    is_: Copy | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What was recomputed, and how it compares."""

    events: int
    deliveries: int
    held: int
    version: int
    differences: tuple[DeliveryDifference, ...] = ()
    undecided: Mapping[str, int] = field(default_factory=dict)
    trimmed: Mapping[str, int] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """Is everything as delivered?"""
        return not self.differences

    def count(self, kind: DifferenceKind) -> int:
        """How many differences there are of a kind."""
        return sum(one.kind is kind for one in self.differences)


def verify(pipeline: Pipeline, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Recompute every delivery as a Spark batch job, and compare with what the store holds."""
    progress("checking the ledger")
    pipeline.ledger.check()
    reached = pipeline.store.reached()
    tails = {stream: tail.last for stream, tail in pipeline.log.tails().items()}
    _check_reach(pipeline, reached, tails)
    trimmed = _trimmed(pipeline, reached)
    events = sum(reached.streams.values()) - sum(trimmed.values())
    progress(f"recomputing the deliveries of {events} events")
    should = _there(_recompute(pipeline, reached).values(), trimmed)
    progress("comparing")
    held = _there(pipeline.store.blobs(), trimmed)
    version = pipeline.ledger.version
    names = [subscription.id for subscription, _ in pipeline.ledger.all_subscriptions(version)]
    comparison = _Comparison(pipeline.store.path, layouts(pipeline.ledger.state(version).types), names)
    return Report(
        events,
        sum(b.count for b in should.values()),
        sum(b.count for b in held.values()),
        reached.version,
        tuple(comparison.differences(should, held)),
        {s: last - reached.streams.get(s, 0) for s, last in tails.items() if last > reached.streams.get(s, 0)},
        {stream: through for stream, through in trimmed.items() if through},
    )


def _trimmed(pipeline: Pipeline, reached: Reached) -> dict[str, int]:
    """Up to which event of each stream there is nothing to compare: the log or the deliveries are gone."""
    gone = [pipeline.log.trimmed(), pipeline.store.trimmed()]
    return {s: min(last, max(one.get(s, 0) for one in gone)) for s, last in reached.streams.items()}


def _there(blobs: Iterable[DeliveryBlob], trimmed: Mapping[str, int]) -> dict[Key, DeliveryBlob]:
    """The blobs that have not been trimmed, by what they are kept under."""
    return {(b.stream, b.first, b.part): b for b in blobs if b.last > trimmed.get(b.stream, 0)}


def replay(pipeline: Pipeline, into: Path) -> int:
    """Write the deliveries, recomputed as far as the pipeline has come, to an empty store; returns how many.

    It is a copy to compare or to look into. To start a pipeline over, remove its store and its checkpoint.
    """
    if into.exists():
        raise BadDefinition(f"`{into}` exists already", remedy="give the name of a new file")
    if not into.parent.is_dir():
        raise BadDefinition(f"there is no folder `{into.parent}`", remedy="make it first")
    pipeline.ledger.check()
    reached = pipeline.store.reached()
    _check_reach(pipeline, reached, {stream: tail.last for stream, tail in pipeline.log.tails().items()})
    recomputed = _recompute(pipeline, reached, keep_empty=True)
    store = DeliveryStore.create(into)
    try:
        store.write(0, reached.version, recomputed.values())
        return store.count()
    finally:
        store.close()


def _check_reach(pipeline: Pipeline, reached: Reached, tails: Mapping[str, int]) -> None:
    """What was decided must still be there to decide again."""
    if reached.version > pipeline.ledger.version:
        raise Damaged(
            f"`{pipeline.ledger.place}` ends at version {pipeline.ledger.version}, and deliveries were decided through "
            f"version {reached.version}",
            remedy="restore it from a newer copy",
        )
    for stream, last in reached.streams.items():
        there = tails.get(stream, 0)
        if last > there:
            raise Damaged(
                f"`{pipeline.log.path}` has {there} events of stream `{stream}`, and {last} were decided",
                remedy="restore it from a newer copy",
            )


def _recompute(pipeline: Pipeline, reached: Reached, *, keep_empty: bool = False) -> dict[Key, DeliveryBlob]:
    try:
        recomputed = pipeline.recompute(reached)
    except HeadgateError:
        raise
    except Exception:
        # A worker that meets a damaged append fails inside Spark; reading the log here gives its own error.
        for stream, last in reached.streams.items():
            for _ in pipeline.log.batches(stream, 0, last):
                pass
        raise
    return {(b.stream, b.first, b.part): b for b in recomputed if keep_empty or b.blob is not None}


class _Comparison:
    """Compares what should be with what is."""

    def __init__(self, place: Path, known: Layouts, names: Sequence[str]) -> None:
        self.place = place
        self.layouts = known
        self.names = names

    def differences(
        self, should: Mapping[Key, DeliveryBlob], held: Mapping[Key, DeliveryBlob]
    ) -> Iterator[DeliveryDifference]:
        """Every difference, in order of stream and event. Only blobs that differ are looked at row by row."""
        differences: list[DeliveryDifference] = []
        wanted: dict[tuple[str, int, int], Copy] = {}
        kept: dict[tuple[str, int, int], list[Copy]] = {}
        for key in should.keys() | held.keys():
            mine, theirs = should.get(key), held.get(key)
            if mine is not None and theirs is not None and self._same(mine, theirs):
                differences.extend(self._label(mine, theirs))
                continue
            if mine is not None:
                wanted.update(self._copies(mine))
            if theirs is not None:
                for position, copy in self._copies(theirs):
                    kept.setdefault(position, []).append(copy)
        for position in wanted.keys() | kept.keys():
            differences.extend(self._compare(position, wanted.get(position), kept.get(position, [])))
        return iter(sorted(differences, key=lambda one: (one.stream, one.seq, one.subscription, one.kind.value)))

    def _same(self, mine: DeliveryBlob, theirs: DeliveryBlob) -> bool:
        if mine.version != theirs.version:
            return False
        if mine.blob == theirs.blob:
            return True
        return bool(_plain(self._table(mine)).equals(_plain(self._table(theirs))))

    def _label(self, mine: DeliveryBlob, theirs: DeliveryBlob) -> Iterator[DeliveryDifference]:
        if (mine.last, mine.count) != (theirs.last, theirs.count):
            words = (
                f"{theirs.count} deliveries of events {theirs.first} to {theirs.last}, where there are {mine.count} "
                f"of events {mine.first} to {mine.last}"
            )
            yield DeliveryDifference(DifferenceKind.LABEL, mine.stream, mine.first, "", words=words)
        if mine.members != theirs.members:
            words = f"the deliveries of events {theirs.first} to {theirs.last} are marked for other subscriptions"
            yield DeliveryDifference(DifferenceKind.LABEL, mine.stream, mine.first, "", words=words)

    def _compare(
        self, position: tuple[str, int, int], should: Copy | None, copies: list[Copy]
    ) -> Iterator[DeliveryDifference]:
        stream, seq, number = position
        name = self.names[number] if 0 <= number < len(self.names) else f"#{number}"
        if should is None:
            yield from (DeliveryDifference(DifferenceKind.EXTRA, stream, seq, name, None, copy) for copy in copies)
            return
        if not copies:
            yield DeliveryDifference(DifferenceKind.MISSING, stream, seq, name, should)
            return
        # Of several copies the right one counts, if there is one; the others are extra.
        best = next((n for n, copy in enumerate(copies) if copy == should), 0)
        if copies[best] != should:
            version = copies[best].version != should.version
            yield DeliveryDifference(
                DifferenceKind.VERSION if version else DifferenceKind.ALTERED, stream, seq, name, should, copies[best]
            )
        others = (copy for n, copy in enumerate(copies) if n != best)
        yield from (DeliveryDifference(DifferenceKind.EXTRA, stream, seq, name, None, copy) for copy in others)

    def _copies(self, blob: DeliveryBlob) -> Iterator[tuple[tuple[str, int, int], Copy]]:
        for row in self._table(blob).to_pylist():
            view = values_of(row, self.layouts.get(row["type"], {}), blob.version)
            copy = Copy(blob.version, row["id"], row["type"], row["publisher"], row["time"], view, row["source"])
            for subscription in row["subscriptions"]:
                yield (blob.stream, row["seq"], subscription), copy

    def _table(self, blob: DeliveryBlob) -> Any:
        try:
            table = from_blob(blob.blob or b"")
            if set(_OWN) <= set(table.column_names):
                return table
        except (pa.ArrowException, OSError, ValueError):
            pass
        raise Damaged(
            f"`{self.place}`: the deliveries of events {blob.first} to {blob.last} of stream `{blob.stream}` cannot be "
            "read",
            remedy="remove the store and its checkpoint, and run the pipeline again",
        )


def _plain(table: Any) -> Any:
    """A table without the slots that nothing uses, its columns in one order."""
    used = [n for n in table.column_names if n in _OWN or table.column(n).null_count < table.num_rows]
    return table.select(sorted(used)).combine_chunks()
