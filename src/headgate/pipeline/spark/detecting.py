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
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from headgate.model.values import micros, moment
from headgate.pipeline import DETECTION_SOURCE, SIGNALS
from headgate.pipeline.deliveries import BatchStats, DeliveryBlob, DeliveryStore
from headgate.pipeline.detect.signals import REACHED, SignalRow, bindings, contributors_of, signal_blob
from headgate.pipeline.paths import Paths, strike

SIGNALS_A_BLOB: Final = 1_000
LIMIT: Final = "limit-reached"
"""What stands for a variable in the signal of a detection that stopped, with the reason; no variable is called so."""


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
        self.reports: list[tuple[int, str]] = []
        """Detections that stopped, with the reason, since the query started."""

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
        through, reached = pickle.loads(bytes.fromhex(marker["data"]))  # noqa: S301 - out of `BeadProcessor`
        self.reports += [(row["subscription"], row["report"]) for row in signalled if row["report"]]
        signals = sorted((row for row in signalled if row["subscription"] != REACHED), key=_order)
        first = self.store.reached(before=batch).streams.get(SIGNALS, 0) + 1
        blobs = [DeliveryBlob(stream, last, last, through, 0, 0, None) for stream, last in reached.items()]
        for at in range(0, len(signals), SIGNALS_A_BLOB):
            some = [_signal(row) for row in signals[at : at + SIGNALS_A_BLOB]]
            blobs.append(signal_blob(first + at, through, some))
        elapsed = round(1000 * (time.monotonic() - begun))
        stats = BatchStats(batch, micros(self.clock()), 0, len(signals), elapsed, through)
        self.store.write(batch, through, blobs, lambda: strike(fault, "detect-write"), stats=stats)
        strike(fault, "detect-commit")


def _signal(row: dict[str, Any]) -> SignalRow:
    """A signal as the store has it; a detection that stopped says why, under a name that no variable has."""
    environment = ((LIMIT, row["report"]),) if row["report"] else bindings(row["data"])
    places = contributors_of(row["contributors"])
    return SignalRow(row["subscription"], moment(row["time"]), environment, places)


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    """By the record that made a signal certain, then by time, bindings and detection."""
    return row["number"], row["promise"], row["time"], row["data"], row["subscription"]
