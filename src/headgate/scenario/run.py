"""Running scenarios on the engines, and judging them.

Guarantees: an engine that fails gives a result that did not pass, never an exception; so one scenario cannot keep the
others from running. With both engines, what they disagree on counts against Spark. Some scenarios may run at once, each
in a domain of its own; results come in the order of the scenarios.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from headgate.model.values import brief
from headgate.scenario.engines import run_decide, run_spark
from headgate.scenario.play import Outcome
from headgate.scenario.report import Result, disagreements, judge
from headgate.scenario.story import Scenario

ENGINES: Final = ("decide", "spark")
MOST_AT_ONCE: Final = 4
"""Starting a streaming query is mostly waiting for its source's process, so a few at once take little longer."""


def run_all(
    scenarios: Sequence[Scenario], engines: Sequence[str], *, session: Any = None, seed: int = 0
) -> Iterator[list[Result]]:
    """Every scenario in turn; on Spark as many at once as there are processors."""
    at_once = min(MOST_AT_ONCE, os.cpu_count() or 1) if "spark" in engines else 1
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="scenario")
    try:
        for future in [pool.submit(run, one, engines, session=session, seed=seed) for one in scenarios]:
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run(scenario: Scenario, engines: Sequence[str], *, session: Any = None, seed: int = 0) -> list[Result]:
    """A scenario on some engines, in this order; Spark needs a session."""
    results: list[Result] = []
    outcomes: dict[str, Outcome] = {}
    for engine in engines:
        started = time.perf_counter()
        play: Callable[[], Outcome] = lambda: run_decide(scenario)  # noqa: E731
        if engine == "spark":
            play = lambda: run_spark(scenario, session, seed)  # noqa: E731
        try:
            outcome = outcomes[engine] = play()
            differences = judge(scenario, outcome)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this scenario's result
            outcome = Outcome()
            differences = [f"the engine failed: {type(error).__name__}: {_first_words(error)}"]
        if engine == "spark" and len(outcomes) == len(ENGINES):
            differences += disagreements(outcomes["decide"], outcome)
        results.append(Result(scenario, engine, outcome, differences, time.perf_counter() - started))
    return results


def _first_words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " / ".join(brief(line) for line in lines[:3])
