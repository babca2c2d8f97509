"""Ten thousand detections at once beside one, one more that is made under load, and how soon signals come.

The events are those of `composite`, with 1,000 values of x. There are 20 shapes of detections, each with 500 values in
place of its variable, so that an event concerns about ten of the 10,000. Beside them, in turn, is one detection that
every event concerns, `$A(x); B(x) - C(x)`, over the same events. Both queries do everything: read the log, decide what
principals see, run the machines on Spark's state, and store the signals. They read it in micro-batches of 10,000
events. The first of them, in which detections are read and begin, is left out. In the last round one more detection is
made halfway: the longest micro-batch from there on, over the median of the round.

Then events come one at a time to a running query with `$A(x)`, each of which is certain to signal as soon
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
from benchmarks.measure import console, report
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
EVENTS = 60_000
BATCH = 10_000
"""Events in a micro-batch."""
ROUNDS = 2
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
        soon(session, Path(name))
    session.stop()


def beside_one(session: Any, directory: Path) -> None:
    """Many detections and one, in turn over the same events; at last one more is made halfway."""
    workload = composite.Workload(events=EVENTS, values=VALUES)
    console.print(f"[bold]{DETECTIONS:,} detections[/] of {len(SHAPES)} shapes over {EVENTS:,} events, beside one")
    domains = {
        "one": composite.stored(workload, directory / "one"),
        "many": composite.stored(workload, directory / "many", expressions()),
    }
    found: dict[str, list[float]] = {what: [] for what in domains}
    took: list[float] = []
    for number in range(ROUNDS):
        for what, domain in domains.items():
            is_last = what == "many" and number == ROUNDS - 1
            took = batches(session, domain, one_more=is_last)
            found[what] += [1000 * BATCH / one for one in (took[: len(took) // 2] if is_last else took)]
    for what, rates in found.items():
        spread = (max(rates) - min(rates)) / 2
        report(
            f"composite events, {what} detections at once, events/s", statistics.median(rates), None, "higher", spread
        )
    ratio = statistics.median(found["many"]) / statistics.median(found["one"])
    report("composite events, 10,000 detections at once over one, events/s", ratio, 0.3, "higher")
    median, before, after = statistics.median(took), took[: len(took) // 2], took[len(took) // 2 :]
    name = "composite events, a detection added under load"
    report(f"{name}, longest batch before it over median", max(before) / median, None, "lower")
    report(f"{name}, longest batch from there on over median", max(after) / median, 2.0, "lower")


def batches(session: Any, domain: Domain, *, one_more: bool = False) -> list[float]:
    """The milliseconds of each micro-batch of a log that is read from its beginning, without the first.

    That one reads all detections and begins them. Nothing is left of what was detected.
    """
    most = EVENTS // BATCH
    with tempfile.TemporaryDirectory() as name:
        store = DeliveryStore.create(Path(name) / "signals.db")
        query = DetectionQuery(session, domain.paths, store).start(limit=BATCH)
        while query.exception() is None:
            done = [one.durationMs["triggerExecution"] for one in query.recentProgress if one.numInputRows]
            if one_more and len(done) > most // 2:
                domain.commit(Batch(ADMINISTRATOR, (composite.subscribe("late", composite.EXPRESSION),)))
                one_more = False
            if len(done) >= most:
                break
            time.sleep(0.05)
        else:
            raise RuntimeError("the detection query has stopped") from query.exception()
        query.stop()
        store.close()
    shutil.rmtree(domain.paths.detections)
    return done[1:most]


def soon(session: Any, directory: Path) -> None:
    """From when a signal is certain until it is there for readers, beside the batches of deliveries."""
    workload = composite.Workload(events=composite.APPEND, values=VALUES)
    domain = composite.stored(workload, directory / "soon", ["$A(x)"], EPOCH + timedelta(days=1))
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
