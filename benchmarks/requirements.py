"""Requirements on receivers: what they cost beside the same run without them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.matching import Job
from benchmarks.measure import console, report, report_ratio, side_by_side
from benchmarks.workload import World
from headgate.model.rights import Subscription
from headgate.pipeline.log.codec import from_blob, packed, to_blob

EVENTS = 100_000
SUBSCRIBERS = 10_000
LEVELS, NATIONS = 10, 50
"""500 distinct attribute sets."""
REQUIREMENTS = 100

ALL = [f"$level >= {-n} and $nation != 'none{n}'" for n in range(REQUIREMENTS)]
"""Everyone meets them, so that the deliveries are the same as without."""
SOME = [f"$level >= {n % LEVELS} and $nation in {{'n{n % NATIONS}', 'n7'}} or $level < {n % 5}" for n in range(100)]
"""Different people meet each of them."""


@dataclass
class Requiring(World):
    """Every subscription is another principal's, who has attributes; every event has one of the requirements."""

    requirements: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        people = range(self.subscriptions_wanted)
        attributes = {f"p{p}": {"level": p % LEVELS, "nation": f"n{p // LEVELS % NATIONS}"} for p in people}
        members = {f"role{r}": frozenset(f"p{p}" for p in people[r :: self.roles]) for r in range(self.roles)}
        self._state = replace(self._state, principals={"owner": {}, **attributes}, groups=members)

    def _subscriptions(self) -> Iterator[Subscription]:
        for number, one in enumerate(super()._subscriptions()):
            yield replace(one, principal=f"p{number}")

    def appends(self, events: int, size: int = 1000, *, seed: int = 11) -> Iterator[bytes]:
        """Events as appends of `size`, requirements by chance."""
        rng = np.random.default_rng(seed + 1)
        for blob in super().appends(events, size, seed=seed):
            table = from_blob(blob)
            if self.requirements:
                chosen = pa.array(rng.integers(0, len(self.requirements), table.num_rows))
                table = table.append_column("requires", pa.array(self.requirements).take(chosen))
            yield to_blob(packed(table))


def run(session: Any) -> None:
    console.print(f"[bold]requirements[/]: {EVENTS:,} events, {SUBSCRIBERS:,} subscribers, {REQUIREMENTS} requirements")
    wanted = {"without": (), "all": tuple(ALL), "some": tuple(SOME)}
    with tempfile.TemporaryDirectory() as name:
        jobs = {}
        for which, requirements in wanted.items():
            directory = Path(name) / which
            directory.mkdir()
            jobs[which] = Job(session, Requiring(SUBSCRIBERS, requirements=requirements), directory, EVENTS)
        times = side_by_side({which: job.run for which, job in jobs.items()}, 9)
        met = jobs["some"].deliveries() / jobs["without"].deliveries()
        report_ratio("time with requirements that all meet over without", times["all"], times["without"], 1.5, "lower")
        report_ratio(
            "time with requirements that some meet over without", times["some"], times["without"], 1.5, "lower"
        )
        report("deliveries left by requirements that some meet, share", met, None, "lower")
        if jobs["all"].deliveries() != jobs["without"].deliveries():
            raise AssertionError("a requirement that everyone meets stopped something")
