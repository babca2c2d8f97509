"""Matching, cost of control, plan constancy and memory."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import native
from benchmarks.measure import console, family, report, report_ratio, resident, side_by_side
from benchmarks.workload import World
from headgate.pipeline import SOURCE
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.index.index import PolicyIndex
from headgate.pipeline.log.appends import Append
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.match import Matcher
from headgate.pipeline.spark.decider import SCHEMA, decider, make_matcher

EVENTS = 200_000


class Uncontrolled(Matcher):
    """No access control at all: everyone sees everything."""

    def views(self, batch: Any, events: Any, owners: Any, historical: Any) -> Any:  # noqa: ARG002
        return np.full((len(events), self.index.types.words), np.uint64(2**64 - 1)), np.ones(len(events), np.bool_)


def uncontrolled(index: PolicyIndex) -> Matcher:
    return Uncontrolled(index, {})


class Job:
    """The whole batch job over a log: read, decide, mask and group, into a sink that does nothing."""

    def __init__(self, session: Any, world: World, directory: Path, events: int = EVENTS) -> None:
        self.session = session
        path = directory / f"log-{world.subscriptions_wanted}-{world.types}.db"
        log = EventLog.create(path)
        token = log.take("main", 2)
        for blob in world.appends(events):
            log.append_many("main", token, [Append(2, 0, min(1000, events), blob)])
        log.close()
        self.options = {"log": str(path), "end": json.dumps({"version": 2, "streams": {"main": events}})}
        self.index = IndexBuilder(world).index(1, 2)
        self.shared = session.sparkContext.broadcast(self.index)

    def frame(self, make: Callable[[PolicyIndex], Matcher] = make_matcher) -> Any:
        rows = self.session.read.format(SOURCE).options(**self.options).load()
        return rows.mapInArrow(decider(self.shared, "", make), SCHEMA)

    def run(self) -> None:
        self.frame().write.format("noop").mode("overwrite").save()

    def run_uncontrolled(self) -> None:
        self.frame(uncontrolled).write.format("noop").mode("overwrite").save()

    def deliveries(self) -> int:
        return int(self.frame().groupBy().sum("count").first()[0])

    def plan(self) -> None:
        """Planning and code generation, without running."""
        execution = self.frame()._jdf.queryExecution()
        execution.executedPlan()
        mode = self.session._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("codegen")
        execution.explainString(mode)


def run(session: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        console.print("[bold]matching[/]: building 1,000 / 10,000 / 100,000 subscriptions")
        jobs = {n: Job(session, World(n), directory) for n in (1_000, 10_000, 100_000)}
        times = side_by_side({str(n): job.run for n, job in jobs.items()})
        rates = {n: [EVENTS / t for t in times[str(n)]] for n in jobs}
        for n in jobs:
            report(f"events/s at {n:,} subscriptions", statistics.median(rates[n]), None, "higher", _half(rates[n]))
        report("matches an event", jobs[10_000].deliveries() / EVENTS, None, "higher")
        report_ratio("events/s, 100,000 over 1,000 subscriptions", rates[100_000], rates[1_000], 0.7, "higher")

        console.print("[bold]cost of control[/]")
        job = jobs[10_000]
        both = side_by_side({"with": job.run, "without": job.run_uncontrolled}, 5)
        report_ratio("time with control over without", both["with"], both["without"], 1.3, "lower")

        console.print("[bold]plan constancy[/]")
        plans = side_by_side({"10": Job(session, World(10), directory, 1000).plan, "10000": jobs[10_000].plan}, 41)
        report_ratio("planning, 10,000 over 10 subscriptions", plans["10000"], plans["10"], 1.2, "lower")

        console.print("[bold]native joins[/] beside it at 10,000 subscriptions")
        beside = side_by_side({"matcher": job.run, **native.works(session, World(10_000))}, 5)
        mine = [EVENTS / t for t in beside["matcher"]]
        loop, hashed = ([native.EVENTS / t for t in beside[name]] for name in ("loop", "hash"))
        report("events/s by a nested-loop join", statistics.median(loop), None, "higher", _half(loop))
        report("events/s by a native broadcast hash join", statistics.median(hashed), None, "higher", _half(hashed))
        report_ratio("events/s over a nested-loop join, 10,000 subscriptions", mine, loop, 20, "higher")
        report_ratio("events/s over a native broadcast hash join, 10,000 subscriptions", mine, hashed, None, "higher")
        console.print("[bold]one million subscriptions[/]: building")
        big = Job(session, World(1_000_000), directory)
        beside = side_by_side({"1000": jobs[1_000].run, "1000000": big.run}, 3)
        few, many = ([EVENTS / t for t in beside[name]] for name in ("1000", "1000000"))
        report("events/s at 1,000,000 subscriptions", statistics.median(many), None, "higher", _half(many))
        report_ratio("events/s, 1,000,000 over 1,000 subscriptions", many, few, 0.3, "higher")
        memory()


def _half(values: list[float]) -> float:
    return (max(values) - min(values)) / 2


def memory() -> None:
    """Resident memory of the driver and the workers."""
    for pid, line in family(os.getpid()).items():
        role = "driver (Python)" if pid == os.getpid() else "driver (JVM)" if "java" in line.split(" ")[0] else "worker"
        if role != "worker" or resident(pid) > 100:
            _memory[role] = _memory.get(role, 0) + resident(pid)
    for role, size in _memory.items():
        report(f"memory at 1,000,000 subscriptions, {role}, MB", size, None, "lower")


_memory: dict[str, float] = {}
