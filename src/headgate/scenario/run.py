"""Running scenarios on the engines, and judging them.

Guarantees: an engine that fails gives a result that says so, never an exception and never a difference; so one scenario
cannot keep the others from running, and a policy is not blamed for Spark. What an engine on Spark did not finish is
tried once more when the others are done, alone and on a new JVM, for the old one may be damaged. What an engine and the
reference disagree on counts against the engine. Some scenarios may run at once, each in a domain of its own; results
come in the order of the scenarios.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from headgate.model.errors import BadScenario
from headgate.pipeline.spark.session import describe
from headgate.scenario.engines.decide_engine import run_decide
from headgate.scenario.engines.play import ScenarioOutcome
from headgate.scenario.format.story import Scenario
from headgate.scenario.report import EngineResult, disagreements, judge

DECIDE: Final = "decide"
SPARK: Final = "spark"
NODE: Final = "node"
BOTH: Final = (DECIDE, SPARK)
ENGINES: Final = (DECIDE, SPARK, NODE)
ON_SPARK: Final = frozenset({SPARK, NODE})
"""The engines that need a session, which may fail."""
MOST_AT_ONCE: Final = 4
"""Starting a streaming query is mostly waiting for its source's process, so a few at once take little longer."""


def run_all(
    scenarios: Sequence[Scenario],
    engines: Sequence[str],
    *,
    session: Any = None,
    seed: int = 0,
    renew: Callable[[], Any] | None = None,
) -> Iterator[list[EngineResult]]:
    """Every scenario in turn; on Spark as many at once as there are processors. `renew`: a session on a new JVM."""
    at_once = min(MOST_AT_ONCE, os.cpu_count() or 1) if ON_SPARK.intersection(engines) else 1
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="scenario")
    held: list[list[EngineResult]] = []
    try:
        for future in [pool.submit(run, one, engines, session=session, seed=seed) for one in scenarios]:
            results = future.result()
            if held or any(_again(result) for result in results):
                held.append(results)
            else:
                yield results
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    if held and renew is not None:
        try:
            session = renew()
        except Exception:  # noqa: BLE001 - without a new JVM there is no second try, and the first is told
            yield from held
            return
    for results in held:
        yield run(results[0].scenario, engines, session=session, seed=seed, before=results)


def run(
    scenario: Scenario,
    engines: Sequence[str],
    *,
    session: Any = None,
    seed: int = 0,
    before: Sequence[EngineResult] = (),
) -> list[EngineResult]:
    """A scenario on some engines, in this order; those on Spark need a session.

    Of what was run `before` only those on Spark are repeated, and only if they failed.
    """
    results: list[EngineResult] = []
    for engine in engines:
        earlier = next((one for one in before if one.engine == engine), None)
        if earlier is not None and not _again(earlier):
            results.append(earlier)
            continue
        result = _run(scenario, engine, session, seed, earlier)
        reference = next((one for one in results if one.engine == DECIDE and one.finished), None)
        if engine in ON_SPARK and result.finished and reference is not None:
            told = disagreements(reference.outcome, result.outcome, engine)
            result = replace(result, differences=[*result.differences, *told])
        results.append(result)
    return results


def _run(scenario: Scenario, engine: str, session: Any, seed: int, earlier: EngineResult | None) -> EngineResult:
    """A scenario on one engine, perhaps after an earlier try."""
    failures = () if earlier is None else earlier.failures
    started = time.perf_counter()
    finished, outcome, differences = True, ScenarioOutcome(), list[str]()
    try:
        outcome = _played(scenario, engine, session, seed)
        differences = judge(scenario, outcome)
    except BadScenario as error:
        differences = [str(error)]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this scenario's result
        finished, failures = False, (*failures, describe(error))
    return EngineResult(scenario, engine, outcome, differences, time.perf_counter() - started, failures, finished)


def _again(result: EngineResult) -> bool:
    """Is it worth another try? The reference would fail in the same way."""
    return not result.finished and result.engine in ON_SPARK


def _played(scenario: Scenario, engine: str, session: Any, seed: int) -> ScenarioOutcome:
    """What comes of a scenario on an engine; those with all that a node has are loaded when they are asked for."""
    match engine:
        case "spark":
            from headgate.scenario.engines.spark_engine import run_spark

            return run_spark(scenario, session, seed)
        case "node":
            from headgate.scenario.engines.node_engine import run_node

            return run_node(scenario, session, seed)
        case _:
            return run_decide(scenario)
