"""The streaming job and the replay: from log and ledger to deliveries, on Spark.

Guarantees: one plan whatever the policy; subscriptions and rules may change between and inside micro-batches with no
restart. A batch waits for the ledger version its events need. What a micro-batch delivers is written in one
transaction before Spark commits its offsets, so that a crash anywhere repeats the batch and changes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from headgate.ledger import Ledger
from headgate.model.values import micros
from headgate.pipeline import SOURCE
from headgate.pipeline.deliveries import BatchStats, DeliveryBlob, DeliveryStore, Reached
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.index.predicates import Sources
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.paths import Paths, strike
from headgate.pipeline.spark.decider import SCHEMA, decider, delivery_blobs
from headgate.pipeline.spark.sharing import IndexSharing
from headgate.pipeline.tracing import span


class Pipeline:
    """Runs the pipeline of one domain on a Spark session."""

    def __init__(
        self,
        session: Any,
        paths: Paths,
        ledger: Ledger,
        log: EventLog,
        store: DeliveryStore,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        checkpoint: str = "",
        token: int | None = None,
    ) -> None:
        self.session = session
        self.paths = paths
        self.ledger = ledger
        self.log = log
        self.store = store
        self.clock = clock
        self.checkpoint = checkpoint or str(paths.checkpoint)
        self.token = token
        """Of the lease by which it writes."""
        self.builder = IndexBuilder(ledger, Sources(paths.predicates))
        self.sharing = IndexSharing(session)

    def start(self, *, until_empty: bool = False, limit: int | None = None) -> Any:
        """Start the streaming query; with `until_empty` it ends when it has caught up."""
        options = {**self._options(), "directory": str(self.paths.directory), "fault": str(self.paths.fault)}
        if limit is not None:
            options["limit"] = str(limit)
        stream = self.session.readStream.format(SOURCE).options(**options).load()
        writer = stream.writeStream.foreachBatch(self._batch).option("checkpointLocation", self.checkpoint)
        return writer.trigger(availableNow=True).start() if until_empty else writer.start()

    def catch_up(self) -> None:
        """Decide everything there is, and stop."""
        query = self.start(until_empty=True)
        query.awaitTermination()

    def _batch(self, rows: Any, batch: int) -> None:
        begun = time.monotonic()
        index = self.builder.index(self._since(batch), self.ledger.version)
        fault = str(self.paths.fault)
        with span("decide", batch=batch, version=index.version):
            decided = rows.mapInArrow(decider(self.sharing.share(index), fault), SCHEMA).toArrow()
        through = pc.max(decided.column("through")).as_py() or 0
        blobs = delivery_blobs(decided)
        stats = BatchStats(
            batch,
            micros(self.clock()),
            sum(b.last - b.first + 1 for b in blobs if b.part == 0),
            sum(b.count for b in blobs),
            round(1000 * (time.monotonic() - begun)),
            through,
        )
        with span("write", batch=batch, version=through, events=stats.events, deliveries=stats.deliveries):
            self.store.write(batch, through, blobs, lambda: strike(fault, "write"), stats=stats, token=self.token)
        strike(fault, "commit")

    def _since(self, batch: int) -> int:
        """The oldest version that an event of this micro-batch may have."""
        before, version = self.store.reached(before=batch), self.ledger.version
        opened = self.ledger.subscriptions(before.version, version).opened
        if any(one.history and one.detection is None for one in opened):
            return 0
        return self.log.oldest_version(before.streams, version)

    def recompute(self, reached: Reached) -> list[DeliveryBlob]:
        """All deliveries up to a point, from log and ledger alone, as a Spark batch job."""
        index = IndexBuilder(self.ledger, Sources(self.paths.predicates)).index(0, reached.version)
        end = json.dumps({"version": reached.version, "streams": reached.streams})
        rows = self.session.read.format(SOURCE).options(**self._options(), end=end).load()
        shared = self.session.sparkContext.broadcast(index)
        try:
            return delivery_blobs(rows.mapInArrow(decider(shared), SCHEMA).toArrow())
        finally:
            shared.destroy()

    def _options(self) -> dict[str, str]:
        """Where the log is, and into how many tasks to cut the work."""
        return {"log": str(self.paths.log), "parallel": str(self.session.sparkContext.defaultParallelism)}

    def everything(self) -> Reached:
        """The end of the log, as far as the ledger reaches."""
        tails = self.log.tails()
        version = self.ledger.version
        return Reached(version, {stream: self.log.ends(stream, 0, 2**62, version) for stream in tails})
