"""`$A(x); B(x) - C(x)`: whenever A, the first B of the same x, unless a C of it comes before.

The workload is 1,000,000 events, one each millisecond, of A, B or C with equal chance, each of one of 100,000 values of
x, all equally likely, from a seed: a value gets about ten events, and after an A half of the evaluations end with a
signal and half with a C. They come in order, in appends of 1,000, each of which promises its own last time.

The machine alone is one process that gets the events as a detection sees them, made beforehand. Beside it, in turn in
the same run, is Esper with `every a=A -> (b=B(x=a.x) and not C(x=a.x))`, a process that makes its events on the way.
Esper leaves out: occurrence times and horizons (it goes by arrival, so events that come late are misjudged, and a claim
of absence waits for nobody), views, versions, what a signal came from, limits, and state that survives the process. It
matches once for each A, where one signal of Headgate stands for all that are alike; taken once, both must be the same.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import console, report, report_ratio, seconds
from benchmarks.peers import archives
from headgate.decide.blocks import Moment, SourceFacts
from headgate.decide.composite import FOREVER, Occurrence
from headgate.decide.composite_check import resolve
from headgate.lang.composite import parse_composite
from headgate.model.state import State
from headgate.model.types import Catalog, EventType
from headgate.model.values import EPOCH, Kind
from headgate.pipeline.detect.machine import Horizons, Machine

EXPRESSION = "$A(x); B(x) - C(x)"
EVENTS = 1_000_000
VALUES = 100_000
APPEND = 1_000
"""Events that arrive at one moment."""
ROUNDS = 3
WARM_UP = 2
STREAM = "main"
TYPES = ("A", "B", "C")
MILLISECOND = timedelta(milliseconds=1)

Match = tuple[int, int]
"""A value of x, and which event it was that completed the pattern."""


def run() -> None:
    console.print(f"[bold]composite events[/]: {EXPRESSION} over {EVENTS:,} events with {VALUES:,} values of x")
    workload = Workload()
    with tempfile.TemporaryDirectory() as name, esper(workload, Path(name)) as peer:
        assert workload.moments  # made once, and before anything is timed
        for _ in range(WARM_UP):
            peer.run()
        rates: dict[str, list[float]] = {"machine": [], "Esper": []}
        signals: set[Match] = set()
        for _ in range(ROUNDS):
            rates["machine"].append(EVENTS / seconds(lambda: signals.update(detected(workload))))
            rates["Esper"].append(EVENTS / peer.run())
        if signals != peer.matches():
            raise RuntimeError("the machine and Esper do not find the same")
    for what, found in rates.items():
        spread = (max(found) - min(found)) / 2
        report(f"composite events, {what}, events/s", sorted(found)[ROUNDS // 2], None, "higher", spread)
    report_ratio(
        "composite events, machine in one process over Esper", rates["machine"], rates["Esper"], None, "higher"
    )


# -- the workload -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """Events: each of a type, with a value of x; its place, counted from one, is its time in milliseconds."""

    seed: int = 0

    @cached_property
    def types(self) -> NDArray[np.int8]:
        """Which of `TYPES` each event is of."""
        return np.random.default_rng([self.seed, 0]).integers(0, len(TYPES), EVENTS, np.int8)

    @cached_property
    def xs(self) -> NDArray[np.int32]:
        """The value of x of each event."""
        return np.random.default_rng([self.seed, 1]).integers(0, VALUES, EVENTS, np.int32)

    @cached_property
    def moments(self) -> list[Moment]:
        """The events as they arrive at a detection; at the end it is promised that nothing more comes."""
        state = self.state
        every = [
            Occurrence(EPOCH + (time + 1) * MILLISECOND, (f"bench.{TYPES[type]}",), {"x": x}, state, STREAM, time + 1)
            for time, (type, x) in enumerate(zip(self.types.tolist(), self.xs.tolist(), strict=True))
        ]
        arrived = [tuple(every[at : at + APPEND]) for at in range(0, EVENTS, APPEND)]
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
    events = np.zeros(EVENTS, [("type", "i1"), ("x", ">i4")])
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
