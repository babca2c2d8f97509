"""The detection query: from log and ledger to signals, as stateful Structured Streaming.

Guarantees: one plan whatever is detected; detections begin and end between and inside micro-batches with no restart,
each at one exact record of the log. State, offsets and signals of a micro-batch are one: what is written to the store
follows from the records and the state before (`detection_workers`), and is written before Spark commits, so that a
crash anywhere repeats the batch and changes nothing.
Leaves out: what a detection means (`pipeline.detect`).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from headgate.model.values import micros, moment
from headgate.pipeline import DETECTION_SOURCE, PROMISES, SIGNALS
from headgate.pipeline.deliveries import BatchStats, DeliveryBlob, DeliveryStore, Remark
from headgate.pipeline.detect.signals import HELD, REACHED, STOPS, SignalRow, WrittenSignal, written_blob
from headgate.pipeline.paths import Paths, strike

SIGNALS_A_BLOB: Final = 1_000


class DetectionQuery:
    """Runs the detections of one domain on a Spark session."""

    def __init__(
        self,
        session: Any,
        paths: Paths,
        store: DeliveryStore,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.session = session
        self.paths = paths
        self.store = store
        self.clock = clock

    def start(self, *, until_empty: bool = False, limit: int | None = None) -> Any:
        """Start the streaming query; with `until_empty` it ends when it has caught up."""
        from headgate.pipeline.spark.detection_workers import ROUTED, SIGNALLED, BeadProcessor, router

        directory = str(self.paths.directory)
        options = {"directory": directory, "parallel": str(self.session.sparkContext.defaultParallelism)}
        if limit is not None:
            options["limit"] = str(limit)
        stream = self.session.readStream.format(DETECTION_SOURCE).options(**options).load()
        views = stream.mapInArrow(router(directory), ROUTED)
        signals = views.groupBy("bucket").transformWithState(BeadProcessor(directory), SIGNALLED, "Update", "None")
        writer = signals.writeStream.outputMode("update").foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", str(self.paths.detections))
        return writer.trigger(availableNow=True).start() if until_empty else writer.start()

    def catch_up(self) -> None:
        """Detect everything there is, and stop."""
        self.start(until_empty=True).awaitTermination()

    def _batch(self, rows: Any, batch: int) -> None:
        begun = time.monotonic()
        fault = str(self.paths.fault)
        signalled = rows.toArrow().to_pylist()
        marker = next((row for row in signalled if row["subscription"] == REACHED), None)
        if marker is None:
            return
        through, reached, promise = pickle.loads(bytes.fromhex(marker["data"]))  # noqa: S301 - out of `BeadProcessor`
        remarks, signals = told(row for row in signalled if row["subscription"] != REACHED and row["code"] != HELD)
        held: dict[int, int] = {}
        for row in signalled:
            if row["code"] == HELD:
                held[row["subscription"]] = min(row["time"], held.get(row["subscription"], row["time"]))
        first = self.store.reached(before=batch).streams.get(SIGNALS, 0) + 1
        blobs = [DeliveryBlob(stream, last, last, through, 0, 0, None) for stream, last in reached.items()]
        blobs.append(DeliveryBlob(PROMISES, promise, promise, through, 0, 0, None))
        for at in range(0, len(signals), SIGNALS_A_BLOB):
            some = [_signal(row) for row in signals[at : at + SIGNALS_A_BLOB]]
            blobs.append(written_blob(first + at, through, some))
        elapsed = round(1000 * (time.monotonic() - begun))
        stats = BatchStats(batch, micros(self.clock()), 0, len(signals), elapsed, through)
        self.store.write(
            *(batch, through, blobs, lambda: strike(fault, "detect-write")), stats=stats, remarks=remarks, held=held
        )
        strike(fault, "detect-commit")


def told(rows: Iterable[dict[str, Any]]) -> tuple[list[Remark], list[dict[str, Any]]]:
    """What is remarked of detections, and their signals, in order.

    The first stop of a detection, in whichever bucket it was, ends it there: what other buckets told at that record or
    after it does not count, and its last signal says why it stopped.
    """
    ordered = sorted(rows, key=_order)
    stops: dict[int, dict[str, Any]] = {}
    for row in ordered:
        if row["code"] in STOPS:
            stops.setdefault(row["subscription"], row)

    def counts(row: dict[str, Any]) -> bool:
        stop = stops.get(row["subscription"])
        return stop is None or row is stop or _place(row) < _place(stop)

    counted = [row for row in ordered if counts(row)]
    remarks = [Remark(row["subscription"], row["code"], *_place(row), row["report"]) for row in counted if row["code"]]
    return remarks, [row for row in counted if not row["code"] or row["code"] in STOPS]


def _signal(row: dict[str, Any]) -> WrittenSignal:
    """A signal as the store has it; a detection that stopped says why, under a name that no variable has."""
    if row["code"]:
        return SignalRow(row["subscription"], moment(row["time"]), ((row["code"], row["report"]),)).written
    return WrittenSignal(row["subscription"], row["time"], row["data"], row["contributors"])


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["number"], row["promise"]


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    """By the record that made a signal certain, then by time, bindings and detection."""
    return row["number"], row["promise"], row["time"], row["data"], row["subscription"], row["code"], row["report"]
