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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from headgate.ledger import Ledger
from headgate.model.values import micros, moment
from headgate.pipeline import DETECTION_SOURCE, PROMISES, SIGNALS
from headgate.pipeline.deliveries import BatchStats, DeliveryBlob, DeliveryStore, Remark
from headgate.pipeline.detect.signal_limits import SignalCounts
from headgate.pipeline.detect.signals import HELD, REACHED, STOPS, SignalRow, WrittenSignal, written_blob
from headgate.pipeline.paths import Paths, strike
from headgate.pipeline.tracing import span

SIGNALS_A_BLOB: Final = 1_000


class DetectionQuery:
    """Runs the detections of one domain on a Spark session."""

    def __init__(
        self,
        session: Any,
        paths: Paths,
        store: DeliveryStore,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        checkpoint: str = "",
        token: int | None = None,
    ) -> None:
        self.session = session
        self.paths = paths
        self.store = store
        self.clock = clock
        self.checkpoint = checkpoint or str(paths.detections)
        self.token = token
        self._principals: dict[int, str] = {}

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
        writer = writer.option("checkpointLocation", self.checkpoint)
        return writer.trigger(availableNow=True).start() if until_empty else writer.start()

    def catch_up(self) -> None:
        """Detect everything there is, and stop."""
        self.start(until_empty=True).awaitTermination()

    def _principal_of(self, number: int) -> str:
        """Whose detection it is."""
        if number not in self._principals:
            with Ledger.open(self.paths.ledger) as ledger:
                opened = ledger.detections(0, ledger.version).opened
            self._principals = {one: subscription.principal for one, subscription in opened}
        return self._principals[number]

    def _batch(self, rows: Any, batch: int) -> None:
        begun = time.monotonic()
        fault = str(self.paths.fault)
        with span("detect", batch=batch):
            signalled = rows.toArrow().to_pylist()
        marker = next((row for row in signalled if row["subscription"] == REACHED), None)
        if marker is None:
            return
        through, reached, promise = pickle.loads(bytes.fromhex(marker["data"]))  # noqa: S301 - out of `BeadProcessor`
        before = self.store.counts(before=batch)
        counts = SignalCounts(before, self._principal_of)
        remarks, signals = told(
            (row for row in signalled if row["subscription"] != REACHED and row["code"] != HELD), counts
        )
        counted = {number: now for number, now in counts.counted.items() if before.get(number) != now}
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
        with span("write", batch=batch, version=through, signals=len(signals)):
            self.store.write(
                *(batch, through, blobs, lambda: strike(fault, "detect-write")), stats=stats, remarks=remarks,
                held=held, counts=counted, token=self.token,
            )  # fmt: skip
        strike(fault, "detect-commit")


def told(rows: Iterable[dict[str, Any]], counts: SignalCounts) -> tuple[list[Remark], list[dict[str, Any]]]:
    """What is remarked of detections, and their signals, in order; what they signalled is counted.

    The first stop of a detection, in whichever bucket it was, or because it signals too much, ends it there: what
    other buckets told at that record or after it does not count, and its last signal says why it stopped.
    """
    ordered = sorted(rows, key=_order)
    stops: dict[int, dict[str, Any]] = {}
    for row in ordered:
        if row["code"] in STOPS:
            stops.setdefault(row["subscription"], row)
    for row in _passed(ordered, stops, counts):
        stops[row["subscription"]] = row
        ordered.append(row)
    ordered.sort(key=_order)

    def is_counted(row: dict[str, Any]) -> bool:
        stop = stops.get(row["subscription"])
        return stop is None or row is stop or _place(row) < _place(stop)

    counted = [row for row in ordered if is_counted(row)]
    remarks = [Remark(row["subscription"], row["code"], *_place(row), row["report"]) for row in counted if row["code"]]
    return remarks, [row for row in counted if not row["code"] or row["code"] in STOPS]


def _passed(
    ordered: Sequence[dict[str, Any]], stops: Mapping[int, dict[str, Any]], counts: SignalCounts
) -> list[dict[str, Any]]:
    """The stops of detections that signal too much, each with the record at which it does, before it stopped anyway."""
    found: dict[int, dict[str, Any]] = {}
    for place, rows in groupby(ordered, _place):
        here: dict[tuple[int, int], dict[str, Any]] = {}
        signalled: Counter[tuple[int, int]] = Counter()
        for row in rows:
            number, stop = row["subscription"], stops.get(row["subscription"])
            if not row["code"] and number not in found and (stop is None or place < _place(stop)):
                here.setdefault((number, row["hour"]), row)
                signalled[number, row["hour"]] += 1
        for number, why in counts.take(signalled).items():
            first = next(row for (one, _), row in here.items() if one == number)
            found[number] = {**first, "data": "", "contributors": "[]", "code": why.code, "report": str(why)}
    return list(found.values())


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
