"""Ten thousand detections at once beside one, one more that is made under load, and how soon signals come.

The events are those of `composite`, with 1,000 values of x. There are 20 shapes of detections, each with 500 values in
place of its variable, so that an event concerns about ten of the 10,000. Beside them, in turn, is one detection that
every event concerns, `$A(x); B(x) - C(x)`, over the same events. Both queries do everything: read the log, decide what
principals see, run the machines on Spark's state, and store the signals.

Then a log is read in 40 micro-batches with 20 detections, and one more is made halfway: the longest micro-batch over
the median. Last, events come one at a time to a running query with `$A(x)`, each of which is certain to signal as soon
as it is stored: the time from then until readers find the signal, over a micro-batch of the pipeline of deliveries,
which runs beside it in the same session.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import composite
from benchmarks.measure import console, report, report_ratio, seconds
from headgate.commands.publishing.local import LocalPublisher
from headgate.model.changes import Batch
from headgate.model.events import Draft
from headgate.model.state import ADMINISTRATOR
from headgate.model.values import EPOCH
from headgate.node.domain import Domain
from headgate.pipeline import SIGNALS
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.spark.detecting import DetectionQuery
from headgate.pipeline.spark.session import spark

SHAPES = (
    "$A(k); B(k)", "$B(k); C(k)", "$C(k); A(k)", "$A(k) - B(k)", "$A(k); B(k) - C(k)",
    "$B(k); A(k) - C(k)", "A(k); B(k); C(k)", "$(A(k); B(k))", "$(A(k) | B(k)); C(k)", "$A(k); (B(k) | C(k))",
    "$C(k); B(k) - A(k)", "$B(k); first (C(k))", "$C(k); count ($A(k) - B(k))", "$(A(k); B(k); C(k))",
    "$B(k); C(k); A(k)", "$A(k); A(k)", "$B(k); B(k) - A(k)", "$C(k); C(k) - B(k)", "first (A(k)); B(k)",
    "$(A(k); B(k) | C(k))",
)  # fmt: skip
DETECTIONS = 10_000
VALUES = 1_000
EVENTS = 100_000
ROUNDS = 2
BATCHES = 40
"""Micro-batches while one more is made."""
SIGNALS_TIMED = 40


def expressions() -> list[str]:
    """The detections: each value of x has half of the shapes."""
    found = []
    for number in range(DETECTIONS):
        value, shape = divmod(number, DETECTIONS // VALUES)
        found.append(SHAPES[(2 * shape + value % 2) % len(SHAPES)].replace("k", str(value)))
    return found


def run() -> None:
    """Beside one, one more under load, and how soon signals come."""
    session = spark(memory="4g")
    with tempfile.TemporaryDirectory() as name:
        beside_one(session, Path(name))
        under_load(session, Path(name))
        soon(session, Path(name))
    session.stop()


def beside_one(session: Any, directory: Path) -> None:
    """Many detections and one, in turn over the same events."""
    workload = composite.Workload(events=EVENTS, values=VALUES)
    console.print(f"[bold]{DETECTIONS:,} detections[/] of {len(SHAPES)} shapes over {EVENTS:,} events, beside one")
    domains = {
        "one": composite.stored(workload, directory / "one"),
        "many": composite.stored(workload, directory / "many", expressions()),
    }
    found: dict[str, list[float]] = {what: [] for what in domains}
    for number in range(ROUNDS + 1):
        for what, domain in domains.items():
            took = seconds(lambda domain=domain: caught_up(session, domain))  # type: ignore[misc]
            if number:  # the first warms up
                found[what].append(EVENTS / took)
    for what, rates in found.items():
        spread = (max(rates) - min(rates)) / 2
        report(
            f"composite events, {what} detections at once, events/s", statistics.median(rates), None, "higher", spread
        )
    name = "composite events, 10,000 detections at once over one, events/s"
    report_ratio(name, found["many"], found["one"], 0.3, "higher")


def caught_up(session: Any, domain: Domain) -> None:
    """Everything detected from nothing, and forgotten."""
    with tempfile.TemporaryDirectory() as name:
        store = DeliveryStore.create(Path(name) / "signals.db")
        DetectionQuery(session, domain.paths, store).catch_up()
        store.close()
    shutil.rmtree(domain.paths.detections)


def under_load(session: Any, directory: Path) -> None:
    """One more detection while the log is read in small micro-batches."""
    workload = composite.Workload(events=EVENTS, values=VALUES)
    domain = composite.stored(workload, directory / "load", expressions()[:20])
    query = domain.detecting(session).start(limit=EVENTS // BATCHES)
    made = False
    while len(progress := query.recentProgress) < BATCHES:
        if not made and len(progress) >= BATCHES // 2:
            domain.commit(Batch(ADMINISTRATOR, (composite.subscribe("late", composite.EXPRESSION),)))
            made = True
        time.sleep(0.1)
    query.stop()
    took = [one.durationMs["triggerExecution"] for one in progress if one.numInputRows][3:]
    longest = max(took) / statistics.median(took)
    report("composite events, a detection added under load, longest batch over median", longest, 2.0, "lower")


def soon(session: Any, directory: Path) -> None:
    """From when a signal is certain until it is there for readers, beside the batches of deliveries."""
    domain = composite.stored(composite.Workload(events=composite.APPEND, values=VALUES), directory / "soon", ["$A(x)"])
    queries = domain.detecting(session).start(), domain.pipeline(session).start()
    signals = DeliveryStore.open(domain.paths.signals, read_only=True)
    publisher = LocalPublisher(domain, advertise=False)
    took: list[float] = []
    while not signals.reached().streams.get(SIGNALS):
        time.sleep(0.01)
    for number in range(SIGNALS_TIMED):
        before = signals.reached().streams[SIGNALS]
        at = EPOCH + timedelta(days=10, seconds=number)
        publisher.publish(Draft(f"s{number}", "ann", "bench.A", {"x": 1}, time=at.isoformat()), stream=composite.STREAM)
        begun = time.perf_counter()
        while signals.reached().streams[SIGNALS] == before:
            time.sleep(0.001)
        took.append(1000 * (time.perf_counter() - begun))
    batches = [one.durationMs["triggerExecution"] for one in queries[1].recentProgress if one.numInputRows]
    for query in queries:
        query.stop()
    signals.close()
    report("composite events, from certain to there, ms", statistics.median(took), None, "lower")
    report("composite events, batch of deliveries beside it, ms", statistics.median(batches), None, "lower")
    ratio = statistics.median(took) / statistics.median(batches)
    report("composite events, from certain to there over a batch of deliveries", ratio, 2.0, "lower")
