"""`$A(x); B(x) - C(x)`: whenever A, the first B of the same x, unless a C of it comes before.

The workload is 1,000,000 events, one each millisecond, of A, B or C with equal chance, each of one of 100,000 values of
x, all equally likely, from a seed: a value gets about ten events, and after an A half of the evaluations end with a
signal and half with a C. They come in order, in appends of 1,000, each of which promises its own last time.

The machine alone is one process that gets the events as a detection sees them, made beforehand. Beside it, in turn in
the same run, is Esper with `every a=A -> (b=B(x=a.x) and not C(x=a.x))`, a process that makes its events on the way.
Esper leaves out: occurrence times and horizons (it goes by arrival, so events that come late are misjudged, and a claim
of absence waits for nobody), views, versions, what a signal came from, limits, and state that survives the process. It
matches once for each A, where one signal of Headgate stands for all that are alike; taken once, both must be the same.

On Spark the same events are in a log, with their times stated by their publisher, and everything is done: the detection
query reads the log, decides what the principal sees, runs the machines on Spark's state and stores the signals. Beside
it, in turn, Spark's own count of those views in windows of 60 s by x: the same source, the same deciding, a native
stateful operator, and a sink that drops what it gets. Both begin with nothing and catch up with the whole log.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions

from benchmarks import detection_state, many_detections
from benchmarks.detection_state import uncollected
from benchmarks.measure import console, report, report_ratio, seconds
from benchmarks.peers import archives
from headgate.commands.publishing.local import LocalPublisher
from headgate.decide.blocks import Moment, SourceFacts
from headgate.decide.composite import FOREVER, Occurrence
from headgate.decide.composite_check import resolve
from headgate.lang.composite import parse_composite
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType, Subscribe
from headgate.model.rights import Action, Detection, Rule, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import SIGNAL, Catalog, EventType, Times
from headgate.model.values import EPOCH, Kind, micros
from headgate.node.domain import Domain
from headgate.pipeline import DETECTION_SOURCE, SIGNALS
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.detect.machine import Horizons, Machine
from headgate.pipeline.detect.signals import stored_signals
from headgate.pipeline.spark.decider import portions
from headgate.pipeline.spark.detecting import DetectionQuery
from headgate.pipeline.spark.detection_workers import know
from headgate.pipeline.spark.session import spark

EXPRESSION = "$A(x); B(x) - C(x)"
EVENTS = 1_000_000
VALUES = 100_000
APPEND = 1_000
"""Events that arrive at one moment."""
ROUNDS = 3
WARM_UP = 2
SPARK_ROUNDS = 2
STREAM = "main"
TYPES = ("A", "B", "C")
MILLISECOND = timedelta(milliseconds=1)

Match = tuple[int, int]
"""A value of x, and which event it was that completed the pattern."""


def run() -> None:
    """All figures of composite events."""
    one_pattern(Workload())
    many_detections.run()
    detection_state.run()


def one_pattern(workload: Workload) -> None:
    """One pattern over many values: the machine beside Esper, the query beside Spark's own count."""
    console.print(
        f"[bold]composite events[/]: {EXPRESSION} over {workload.events:,} events with {workload.values:,} values of x"
    )
    with tempfile.TemporaryDirectory() as name, esper(workload, Path(name)) as peer:
        assert workload.moments  # made once, and before anything is timed
        for _ in range(WARM_UP):
            peer.run()
        rates: dict[str, list[float]] = {"machine": [], "Esper": []}
        signals: set[Match] = set()
        for _ in range(ROUNDS):
            rates["machine"].append(workload.events / seconds(lambda: signals.update(detected(workload))))
            rates["Esper"].append(workload.events / peer.run())
        if signals != peer.matches():
            raise RuntimeError("the machine and Esper do not find the same")
    for what, found in rates.items():
        spread = (max(found) - min(found)) / 2
        report(f"composite events, {what}, events/s", sorted(found)[ROUNDS // 2], None, "higher", spread)
    report_ratio(
        "composite events, machine in one process over Esper", rates["machine"], rates["Esper"], None, "higher"
    )
    on_spark(workload, signals)


# -- on Spark -----------------------------------------------------------------------------------------------------


def on_spark(workload: Workload, expected: set[Match]) -> None:
    """The detection query beside Spark's own count of the same views, warmed up with a tenth of the events."""
    found: dict[str, list[float]] = {"detection": [], "count": []}
    with tempfile.TemporaryDirectory() as name:
        session = spark(memory="4g")
        in_turn(session, stored(replace(workload, events=workload.events // 10), Path(name) / "tenth"), Path(name))
        domain = stored(workload, Path(name) / "domain")
        for _ in range(SPARK_ROUNDS):
            signals, took = in_turn(session, domain, Path(name))
            if signals != expected:
                raise RuntimeError("the query on Spark and the machine do not find the same")
            for what, one in took.items():
                found[what].append(workload.events / one)
    for what, rates in found.items():
        spread = (max(rates) - min(rates)) / 2
        report(f"composite events on Spark, {what}, events/s", sorted(rates)[len(rates) // 2], None, "higher", spread)
    report_ratio(
        "composite events, detection over Spark's own count in windows",
        found["detection"],
        found["count"],
        0.3,
        "higher",
    )


def in_turn(session: Any, domain: Domain, directory: Path) -> tuple[set[Match], dict[str, float]]:
    """What is detected, and the seconds that this takes, and that Spark's own count does; nothing is left of either."""
    with tempfile.TemporaryDirectory(dir=directory) as name:
        signals = DeliveryStore.create(Path(name) / "signals.db")
        query = DetectionQuery(session, domain.paths, signals)
        took = {
            "detection": seconds(query.catch_up),
            "count": seconds(lambda: count(session, domain, Path(name) / "count")),
        }
        found = matched(signals)
        signals.close()
    shutil.rmtree(domain.paths.detections)
    console.print(f"  {took}", highlight=False)
    return found, took


def stored(
    workload: Workload, directory: Path, expressions: Sequence[str] = (EXPRESSION,), until: datetime = FOREVER
) -> Domain:
    """A domain with the events in its log, and detections of ann's, and what is promised at the end."""
    domain = Domain.create(directory)
    types = [replace(type, times=Times(stated=True)) for type in workload.state.types.values()]
    every = frozenset({Action.SUBSCRIBE, Action.PUBLISH})
    domain.commit(
        Batch(
            ADMINISTRATOR,
            (
                *(DeclarePrincipal(who) for who in ("owner", "ann")),
                *map(DeclareType, types),
                AddRule(Rule("all", "ann", every, "bench.*")),
                *(subscribe(f"d{number}", expression) for number, expression in enumerate(expressions)),
            ),
        )
    )
    publisher = LocalPublisher(domain, advertise=False, window=0.0)
    names = np.array([f"bench.{name}" for name in TYPES])
    for at in range(0, workload.events, APPEND):
        rows = slice(at, at + APPEND)
        table = pa.table(
            {
                "id": [f"e{n}" for n in range(at, at + APPEND)],
                "type": names[workload.types[rows]],
                "x": workload.xs[rows].astype(np.int64),
                "time": pa.array((np.arange(at, at + APPEND) + 1) * 1_000, pa.timestamp("us", "UTC")),
            }
        )
        publisher.publish_table("ann", table, stream=STREAM, now=EPOCH)
        domain.log.promise_stream(STREAM, (at + APPEND) * 1_000, 0)
    domain.log.promise_stream(STREAM, micros(until), 0)
    return domain


def subscribe(name: str, expression: str) -> Subscribe:
    """A detection of ann's, from the first event on."""
    detection = Detection(expression, parse_composite(expression), {}, EPOCH)
    return Subscribe(Subscription(name, "ann", SIGNAL, detection=detection))


def matched(signals: DeliveryStore) -> set[Match]:
    """What is in a store of signals."""
    every = (one.row for blob in signals.blobs(SIGNALS) for one in stored_signals(blob.blob or b""))
    return {(dict(row.environment)["x"], (row.time - EPOCH) // MILLISECOND - 1) for row in every}  # type: ignore[misc]


def count(session: Any, domain: Domain, checkpoint: Path) -> None:
    """Spark's own count of what ann sees, by x in windows of 60 s."""
    directory = str(domain.paths.directory)
    stream = session.readStream.format(DETECTION_SOURCE).options(directory=directory, parallel="2").load()
    views = stream.mapInArrow(seen(directory), "time timestamp, x bigint").withWatermark("time", "0 seconds")
    counted = views.groupBy(functions.window("time", "60 seconds"), "x").count()
    writer = counted.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def seen(directory: str) -> Any:
    """The function for `mapInArrow`: what the detection sees, as rows that Spark knows."""

    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = know(directory)
        for appends, window in portions(rows):
            if appends[0].stream == "":
                continue
            matcher, events, matches = known.matched(appends, window)
            slot = matcher.index.types.layouts[0]["x"].slot.column
            taken = events.table.select(["occurred", slot]).take(pa.array(matches.events)).combine_chunks()
            arrays = [
                taken.column(0).combine_chunks().cast(pa.timestamp("us", "UTC")),
                taken.column(1).combine_chunks(),
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=["time", "x"])

    return run


# -- the workload -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """Events: each of a type, with a value of x; its place, counted from one, is its time in milliseconds."""

    seed: int = 0
    events: int = EVENTS
    values: int = VALUES

    @cached_property
    def types(self) -> NDArray[np.int8]:
        """Which of `TYPES` each event is of."""
        return np.random.default_rng([self.seed, 0]).integers(0, len(TYPES), self.events, np.int8)

    @cached_property
    def xs(self) -> NDArray[np.int32]:
        """The value of x of each event."""
        return np.random.default_rng([self.seed, 1]).integers(0, self.values, self.events, np.int32)

    @cached_property
    def moments(self) -> list[Moment]:
        """The events as they arrive at a detection; at the end it is promised that nothing more comes."""
        state = self.state
        every = [
            Occurrence(EPOCH + (time + 1) * MILLISECOND, (f"bench.{TYPES[type]}",), {"x": x}, state, STREAM, time + 1)
            for time, (type, x) in enumerate(zip(self.types.tolist(), self.xs.tolist(), strict=True))
        ]
        arrived = [tuple(every[at : at + APPEND]) for at in range(0, self.events, APPEND)]
        return [
            *(Moment(some, {STREAM: some[-1].time}, some[-1].time) for some in arrived),
            Moment((), {STREAM: FOREVER}),
        ]

    @property
    def state(self) -> State:
        """The types of the events."""
        catalog = Catalog()
        for name in TYPES:
            catalog = catalog.declare(EventType(f"bench.{name}", "owner", {"x": Kind.INT}))
        return State(version=1, administrator="administrator", types=catalog)


# -- the machine alone --------------------------------------------------------------------------------------------


def detected(workload: Workload) -> set[Match]:
    """What the machine signals."""
    composite = resolve(parse_composite(EXPRESSION), workload.state).composite
    machine = Machine(composite, EPOCH, (), Horizons({STREAM: SourceFacts()}))
    with uncollected():
        return {
            (dict(signal.environment)["x"], (signal.time - EPOCH) // MILLISECOND - 1)  # type: ignore[misc]
            for moment in workload.moments
            for signal in machine.arrive(moment)
        }


# -- Esper --------------------------------------------------------------------------------------------------------

ESPER = {"com.espertech:esper-compiler": "8.9.0", "com.espertech:esper-runtime": "8.9.0"}
DIGESTS = {
    "antlr4-runtime-4.9.3.jar": "131a6594969bc4f321d652ea2a33bc0e378ca312685ef87791b2c60b29d01ea5",
    "commons-compiler-3.1.9.jar": "d988a3ebc17188e9a1a3efadd8e958b90eb995c4fcc077292a5dfe5fe1109d25",
    "esper-common-8.9.0.jar": "2259fb4df7f94e5278e63136233b199a61837799684f8c57398f3ac9a6a1c2ca",
    "esper-compiler-8.9.0.jar": "3208cbaf1b4e3f575a65f47d869f2445278b9da4689e650aeadc616455968ea6",
    "esper-runtime-8.9.0.jar": "604d9e227ec5eb0bbb15872ddf57b27b1bad2808adfda23f0a86d89aa0dd5303",
    "janino-3.1.9.jar": "7df88d90aa165ab48bdebea425fa009eeef04918c82e98cdbea5e747e114508d",
    "slf4j-api-1.7.36.jar": "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0",
}
SOURCE = Path(__file__).parent / "EsperPeer.java"


@dataclass(frozen=True)
class EsperProcess:
    """A process that runs the pattern over all events, as often as it is asked to."""

    process: subprocess.Popen[str]
    found: Path

    def run(self) -> float:
        """The seconds that one run takes, from nothing."""
        return float(self._ask("run").split()[0])

    def matches(self) -> set[Match]:
        """What the last run has found, each once."""
        self._ask("matches")
        pairs = np.fromfile(self.found, ">i4").reshape(-1, 2)
        return set(map(tuple, pairs.tolist()))

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the process that runs Esper has ended")
        return answer


@contextmanager
def esper(workload: Workload, directory: Path) -> Iterator[EsperProcess]:
    """Esper, ready to run the pattern over a workload."""
    events = np.zeros(workload.events, [("type", "i1"), ("x", ">i4")])
    events["type"], events["x"] = workload.types, workload.xs
    file, found = directory / "events", directory / "matches"
    events.tofile(file)
    path = ":".join(map(str, archives(ESPER, DIGESTS)))
    command = ["java", "-Xmx4g", "-cp", path, str(SOURCE), str(file), str(found)]
    with (directory / "esper.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"Esper did not start: {(directory / 'esper.log').read_text()[-2000:]}")
        yield EsperProcess(process, found)
        process.stdin.close()
