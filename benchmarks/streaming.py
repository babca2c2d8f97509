"""Latency from publish to decision, and many types in one streaming query."""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import console, report, report_ratio, side_by_side
from benchmarks.workload import World
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.log.appends import Append
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.paths import Paths
from headgate.pipeline.spark.jobs import Pipeline

RATE = 20_000
APPEND = 500
WARM_UP, MEASURED = 15, 30


class MemoryPipeline(Pipeline):
    """The real pipeline, following a ledger that was made up in memory."""

    def __init__(self, session: Any, directory: Path, world: World) -> None:
        paths = Paths(directory)
        super().__init__(session, paths, world, EventLog.create(paths.log), DeliveryStore.create(paths.deliveries))  # type: ignore[arg-type]


def real_ledger(directory: Path, world: World) -> None:
    """A ledger file at the same version, for the source, which only asks for the version."""
    from headgate.ledger import Ledger
    from headgate.model.changes import Batch
    from headgate.model.state import ADMINISTRATOR

    ledger = Ledger.create(Paths(directory).ledger)
    for _ in range(world.version):
        ledger.commit(Batch(ADMINISTRATOR))
    ledger.close()


def publisher(path: str, seconds: float, sent: Any) -> None:
    """Append at a steady rate; tell when each append was begun."""
    world = World(10_000)
    blobs = list(world.appends(50 * APPEND, APPEND))
    log = EventLog.open(Path(path))
    token = log.take("main", world.version)
    begin = time.time()
    times = []
    for n in range(int(seconds * RATE / APPEND)):
        due = begin + n * APPEND / RATE
        if (wait := due - time.time()) > 0:
            time.sleep(wait)
        started = time.time()
        append = Append(world.version, int(started * 1e6), APPEND, blobs[n % len(blobs)])
        (first,) = log.append_many("main", token, [append])
        times.append((first + APPEND - 1, started))
    sent.put(times)


def stock_empty_batch() -> list[float]:
    """Durations in ms of stock Spark's micro-batches that do nothing, in a session of their own."""
    said = subprocess.run([sys.executable, "-m", "benchmarks.stock"], capture_output=True, text=True, check=True).stdout
    return [float(word) for word in said.split()]


def latency(session: Any) -> None:
    console.print(f"[bold]publish to decision[/]: {RATE:,} events/s, 10,000 subscriptions")
    empty = statistics.median(stock_empty_batch())
    with tempfile.TemporaryDirectory() as name:
        world = World(10_000)
        real_ledger(Path(name), world)
        pipeline = MemoryPipeline(session, Path(name), world)
        decided: list[tuple[int, float]] = []
        write = pipeline.store.write

        def noted(*args: Any, **kwargs: Any) -> None:
            write(*args, **kwargs)
            decided.append((pipeline.store.reached().streams.get("main", 0), time.time()))

        pipeline.store.write = noted  # type: ignore[method-assign]
        query = pipeline.start()
        context = multiprocessing.get_context("spawn")
        sent = context.Queue()
        process = context.Process(
            target=publisher, args=(str(pipeline.paths.log), WARM_UP + MEASURED, sent), daemon=True
        )
        process.start()
        times = sent.get(timeout=WARM_UP + MEASURED + 60)
        process.join(30)
        query.processAllAvailable()
        query.stop()
    waits = []
    for last, started in times:
        if started - times[0][1] >= WARM_UP:
            done = next(t for reached, t in decided if reached >= last)
            waits.append((done - started) * 1000)
    waits.sort()
    median, tail = statistics.median(waits), waits[int(len(waits) * 0.95)]
    report("stock Spark's empty micro-batch, ms", empty, None, "lower")
    report("publish to decision, median, ms", median, None, "lower")
    report("publish to decision, 95th percentile, ms", tail, None, "lower")
    report("publish to decision, median over an empty micro-batch", median / empty, 5, "lower")
    report("publish to decision, 95th percentile over an empty micro-batch", tail / empty, 9, "lower")


class Catching:
    """A streaming query over a full log, from the beginning each time."""

    def __init__(self, session: Any, directory: Path, world: World, events: int) -> None:
        self.session, self.world, self.directory = session, world, directory
        directory.mkdir()
        real_ledger(directory, world)
        log = EventLog.create(Paths(directory).log)
        token = log.take("main", world.version)
        for blob in world.appends(events):
            log.append_many("main", token, [Append(world.version, 0, 1000, blob)])
        log.close()
        self.pipeline = MemoryPipeline(session, directory, world)

    def run(self) -> None:
        import shutil

        shutil.rmtree(self.pipeline.paths.checkpoint, ignore_errors=True)
        self.pipeline.catch_up()


def types(session: Any) -> None:
    console.print("[bold]types[/]: 200,000 events and 10,000 subscriptions in one streaming query")
    with tempfile.TemporaryDirectory() as name:
        works = {str(n): Catching(session, Path(name) / str(n), World(10_000, types=n), 200_000).run for n in (1, 100)}
        times = side_by_side(works, 5)
    report_ratio("time with 100 event types over 1", times["100"], times["1"], 1.2, "lower")
