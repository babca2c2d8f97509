"""The event log as a PySpark data source, for streaming and for batch.

Guarantees: an offset is `{"version": ledger version, "streams": {stream: seq}}`. No event is offered before the ledger
holds its version. When the version passes a subscription that asks for history, the same micro-batch reads the earlier
events again for it, as far back as the log still goes. Rows are whole appends; every micro-batch begins with one marker
row that carries its window.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headgate.pipeline import SOURCE
from headgate.pipeline.log.codec import LogBatch, records
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.paths import Paths, strike
from headgate.pipeline.spark.ledger_tail import LedgerTail

EVENTS_A_BATCH = 200_000
EVENTS_A_PARTITION = 2_000
"""Below this many events a micro-batch is one task: a second one costs more than it saves."""

BYTES_AT_ONCE = 1 << 20
"""How much of the log a task hands over at a time."""

SCHEMA = (
    "stream string, first bigint, last bigint, version bigint, time bigint, blob binary, "
    "after bigint, through bigint, backfill boolean"
)


@dataclass
class Piece(InputPartition):
    """Ranges of streams that one task reads."""

    ranges: list[tuple[str, int, int]]
    after: int
    through: int
    backfill: bool = False
    marker: bool = False

    def __post_init__(self) -> None:
        super().__init__(None)


def read_piece(log_path: str, fault: str, piece: Piece) -> Iterator[pa.RecordBatch]:
    """The appends of a piece as Arrow rows."""
    if piece.marker:
        yield _record([LogBatch("", 0, 0, 0, 0, b"")], piece)
    log = EventLog.open(Path(log_path), read_only=True)
    try:
        strike(fault, "read")
        held: list[LogBatch] = []
        for stream, after, through in piece.ranges:
            for append in log.batches(stream, after, through):
                held.append(append)
                if sum(len(one.blob) for one in held) >= BYTES_AT_ONCE:
                    yield _record(held, piece)
                    held = []
        if held:
            yield _record(held, piece)
    finally:
        log.close()


def _record(appends: list[LogBatch], piece: Piece) -> pa.RecordBatch:
    return records(SCHEMA, appends, after=piece.after, through=piece.through, backfill=piece.backfill)


def pieces(
    log: EventLog, start: dict[str, int], end: dict[str, int], parallel: int
) -> list[list[tuple[str, int, int]]]:
    """The events between two offsets as at most `parallel` lists of ranges of about the same size.

    What was trimmed is not among them.
    """
    trimmed = log.trimmed()
    begins = {stream: max(start.get(stream, 0), trimmed.get(stream, 0)) for stream in end}
    ranges = [(stream, begins[stream], last) for stream, last in sorted(end.items()) if last > begins[stream]]
    total = sum(last - first for _, first, last in ranges)
    if total <= EVENTS_A_PARTITION or parallel == 1:
        return [ranges] if ranges else []
    share = -(-total // parallel)
    cut: list[list[tuple[str, int, int]]] = [[]]
    room = share
    for stream, first, last in ranges:
        at = first
        while at < last:
            middle = last if last - at <= room else min(log.ends(stream, at, room, 2**62), last)
            cut[-1].append((stream, at, middle))
            room -= middle - at
            at = middle
            if room <= 0 and len(cut) < parallel:
                cut.append([])
                room = share
    return [one for one in cut if one]


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log as a stream."""

    def __init__(self, options: dict[str, str]) -> None:
        self.log_path = options["log"]
        self.directory = Path(options["directory"])
        self.fault = options.get("fault", "")
        self.parallel = int(options.get("parallel", "2"))
        self.limit = int(options.get("limit", str(EVENTS_A_BATCH)))
        self._target: dict[str, Any] | None = None
        self._opened: tuple[EventLog, LedgerTail] | None = None

    def _files(self) -> tuple[EventLog, LedgerTail]:
        if self._opened is None:
            self._opened = EventLog.open(Path(self.log_path), read_only=True), LedgerTail(Paths(self.directory).ledger)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before everything."""
        return {"version": 0, "streams": {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A bound on the memory of one micro-batch."""
        return ReadMaxRows(self.limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where to stop."""
        self._target = self._latest({}, 2**62)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """As far as the limit and the ledger's version allow."""
        rows = 2**62 if isinstance(limit, ReadAllAvailable) or not isinstance(limit, ReadMaxRows) else limit.max_rows
        latest = self._latest(start["streams"], rows)
        if self._target is not None:
            goal = self._target["streams"]
            streams = {
                s: min(at, max(goal.get(s, 0), start["streams"].get(s, 0))) for s, at in latest["streams"].items()
            }
            latest = {"version": max(self._target["version"], start["version"]), "streams": streams}
        return start if latest == start else latest

    def _latest(self, start: dict[str, int], limit: int) -> dict[str, Any]:
        log, ledger = self._files()
        tails = log.tails()  # before the version, so that it is at least that of every event seen here
        version = ledger.version
        streams = {}
        for stream, tail in tails.items():
            after = start.get(stream, 0)
            # Appends are taken whole; the usual case needs no look at them.
            whole = tail.last - after <= limit and tail.version <= version
            streams[stream] = tail.last if whole else log.ends(stream, after, limit, version)
        return {"version": version, "streams": streams}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The new events, and earlier ones again for new subscriptions to history."""
        if start == end:
            return []
        log, ledger = self._files()
        after, through = int(start["version"]), int(end["version"])
        partitions = [Piece(r, after, through) for r in pieces(log, start["streams"], end["streams"], self.parallel)]
        if through > after and ledger.asks_history(after, through):
            again = pieces(log, {}, start["streams"], self.parallel)
            partitions += [Piece(r, after, through, backfill=True) for r in again]
        partitions = partitions or [Piece([], after, through)]
        partitions[0].marker = True
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's share."""
        assert isinstance(partition, Piece)
        return read_piece(self.log_path, self.fault, partition)

    def stop(self) -> None:
        """Let go of the files."""
        if self._opened is not None:
            for one in self._opened:
                one.close()
            self._opened = None


class LogReader(DataSourceReader):
    """Reads the log up to given offsets, at once."""

    def __init__(self, options: dict[str, str]) -> None:
        self.log_path = options["log"]
        self.parallel = int(options.get("parallel", "2"))
        self.end = json.loads(options["end"])

    def partitions(self) -> Sequence[InputPartition]:
        """Everything, decided through one version."""
        log = EventLog.open(Path(self.log_path), read_only=True)
        try:
            cut = pieces(log, {}, self.end["streams"], self.parallel)
        finally:
            log.close()
        return [Piece(r, 0, int(self.end["version"])) for r in cut] or [Piece([], 0, int(self.end["version"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's share."""
        assert isinstance(partition, Piece)
        return read_piece(self.log_path, "", partition)


class LogSource(DataSource):
    """Options: `log` (path), `directory` of the domain's data; for batch `end` (offsets as JSON)."""

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return SOURCE

    def schema(self) -> str:
        """One row an append."""
        return SCHEMA

    def streamReader(self, schema: Any) -> LogStream:  # noqa: N802, ARG002
        """For `readStream`."""
        return LogStream(dict(self.options))

    def reader(self, schema: Any) -> LogReader:  # noqa: ARG002
        """For `read`."""
        return LogReader(dict(self.options))
