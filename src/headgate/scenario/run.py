"""Running scenarios on the engines, and comparing what came of them with what must.

Guarantees: an engine that fails gives a result that says so, never an exception and never a difference; so one scenario
cannot keep the others from running, and a policy is not blamed for Spark. What an engine on Spark did not finish is
tried once more when the others are done, alone and on a new JVM, for the old one may be damaged. What an engine and the
reference disagree on counts against the engine. Some scenarios may run at once, each in a domain of its own; results
come in the order of the scenarios. Deliveries are compared per subscription and stream, in order, each event once; a
view is compared whole, with nulls; `judge` finds nothing exactly when the outcome is as expected.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from headgate.model.errors import BadScenario
from headgate.model.values import Value, brief, plain, same
from headgate.pipeline.spark.session import EngineFailure, describe
from headgate.scenario.engines import detections
from headgate.scenario.engines.play import AUDIT_STREAM, Got, ScenarioOutcome, run_decide
from headgate.scenario.format.story import ConnectStep, Expected, PublishStep, RoleStep, Scenario

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
    database: Callable[[], str] | None = None,
) -> Iterator[list[EngineResult]]:
    """Every scenario in turn; on Spark as many at once as there are processors. `renew`: a session on a new JVM.

    Nodes keep ledger and shared state in a new, empty `database` each, if that gives them.
    """
    at_once = min(MOST_AT_ONCE, os.cpu_count() or 1) if ON_SPARK.intersection(engines) else 1
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="scenario")
    held: list[list[EngineResult]] = []
    try:
        given = {"session": session, "seed": seed, "database": database}
        for future in [pool.submit(run, one, engines, **given) for one in scenarios]:
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
        yield run(results[0].scenario, engines, session=session, seed=seed, before=results, database=database)


def run(
    scenario: Scenario,
    engines: Sequence[str],
    *,
    session: Any = None,
    seed: int = 0,
    before: Sequence[EngineResult] = (),
    database: Callable[[], str] | None = None,
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
        result = _run(scenario, engine, session, seed, earlier, database)
        reference = next((one for one in results if one.engine == DECIDE and one.finished), None)
        if engine in ON_SPARK and result.finished and reference is not None:
            told = disagreements(reference.outcome, result.outcome, engine)
            result = replace(result, differences=[*result.differences, *told])
        results.append(result)
    return results


def _run(
    scenario: Scenario,
    engine: str,
    session: Any,
    seed: int,
    earlier: EngineResult | None,
    database: Callable[[], str] | None,
) -> EngineResult:
    """A scenario on one engine, perhaps after an earlier try."""
    failures = () if earlier is None else earlier.failures
    started = time.perf_counter()
    finished, outcome, differences = True, ScenarioOutcome(), list[str]()
    try:
        outcome = _played(scenario, engine, session, seed, database)
        differences = judge(scenario, outcome)
    except BadScenario as error:
        differences = [str(error)]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this scenario's result
        finished, failures = False, (*failures, describe(error))
    return EngineResult(scenario, engine, outcome, differences, time.perf_counter() - started, failures, finished)


def _again(result: EngineResult) -> bool:
    """Is it worth another try? The reference would fail in the same way."""
    return not result.finished and result.engine in ON_SPARK


def _played(
    scenario: Scenario, engine: str, session: Any, seed: int, database: Callable[[], str] | None
) -> ScenarioOutcome:
    """What comes of a scenario on an engine; those with all that a node has are loaded when they are asked for."""
    match engine:
        case "spark":
            from headgate.scenario.engines.spark_engine import run_spark

            return run_spark(scenario, session, seed)
        case "node":
            from headgate.scenario.engines.node_engine import run_node

            return run_node(scenario, session, seed, None if database is None else database())
        case _:
            return run_decide(scenario)


@dataclass(frozen=True, slots=True)
class EngineResult:
    """A scenario on one engine: what came of it, and where that is not what must come of it.

    `failures` are those of the engine, one for each try that it did not finish. If it finished none, nothing is known
    of the scenario, and `error` is the last of them.
    """

    scenario: Scenario
    engine: str
    outcome: ScenarioOutcome
    differences: Sequence[str] = ()
    seconds: float = 0.0
    failures: Sequence[EngineFailure] = ()
    finished: bool = True

    @property
    def passed(self) -> bool:
        """Is everything as it must be?"""
        return self.finished and not self.differences

    @property
    def error(self) -> EngineFailure | None:
        """Why the engine did not finish, if it did not."""
        return None if self.finished else self.failures[-1]


def judge(scenario: Scenario, outcome: ScenarioOutcome) -> list[str]:
    """Every difference between an outcome and what the file expects."""
    differences = list(outcome.complaints)
    expect = scenario.expect
    differences += _refusals(scenario, outcome)
    for id, version in expect.versions.items():
        got = outcome.versions.get(id)
        if got is None:
            differences.append(f"event `{id}` has no version, as it was not accepted; expected version {version}")
        elif got != version:
            differences.append(f"event `{id}` got version {got}, expected {version}")
    streams = {step.draft.id: step.stream for step in scenario.steps if isinstance(step, PublishStep)}
    streams |= {one.id: one.event.stream for one in outcome.derived if one.event is not None}
    for id in dict.fromkeys((*expect.deliveries, *outcome.deliveries)):
        differences += _deliveries(id, expect.deliveries.get(id, ()), outcome.deliveries.get(id, []), streams)
    times = {step.draft.id: step.occurred for step in scenario.steps if isinstance(step, PublishStep)}
    for id in dict.fromkeys((*expect.signals, *outcome.signals)):
        differences += detections.differences(id, expect.signals.get(id, ()), outcome.signals.get(id, ()), times)
    return differences


def _refusals(scenario: Scenario, outcome: ScenarioOutcome) -> Iterable[str]:
    events, asked, shown = (
        {id for step in scenario.steps if isinstance(step, kind) for id in step.ids}
        for kind in (PublishStep, RoleStep, ConnectStep)
    )
    events |= {one.id for one in outcome.derived}
    named = {"event": events, "credential": asked, "statement": shown}
    for id, code in scenario.expect.rejected.items():
        got = outcome.rejected.get(id)
        what = next((what for what, ids in named.items() if id in ids), "subscription")
        if got is None:
            yield f"{what} `{id}` was accepted, expected refusal with `{code}`"
        elif got != code:
            yield f"{what} `{id}` was refused with `{got}`, expected `{code}`"
    for id, code in outcome.rejected.items():
        if id in events and id not in scenario.expect.rejected:
            yield f"event `{id}` was refused with `{code}`, which `expect.rejected` does not list"


def _deliveries(id: str, expected: Sequence[Expected], got: Sequence[Got], streams: Mapping[str, str]) -> Iterable[str]:
    """Differences in what one subscription received, stream by stream."""
    names = dict.fromkeys([*(streams.get(e.event, AUDIT_STREAM) for e in expected), *(g.stream for g in got)])
    for stream in names:
        want = [e for e in expected if streams.get(e.event, AUDIT_STREAM) == stream]
        have = [g for g in got if g.stream == stream]
        wanted, had = [e.event for e in want], [g.event for g in have]
        where = f"subscription `{id}`" + (f", stream `{stream}`" if len(names) > 1 else "")
        if wanted == had:
            for one, other in zip(want, have, strict=True):
                if one.view is not None:
                    yield from _views(f"{where}, event `{one.event}`", one.view, other.view)
            continue
        missing, extra = Counter(wanted) - Counter(had), Counter(had) - Counter(wanted)
        for event in missing.elements():
            yield f"{where}: event `{event}` was not delivered"
        for event in extra.elements():
            shown = next(g.view for g in have if g.event == event)
            yield f"{where}: event `{event}` was delivered and not expected: {show(shown)}"
        if not missing and not extra:
            yield f"{where}: received in the order {', '.join(had)}; expected {', '.join(wanted)}"


def _views(where: str, expected: Mapping[str, object], got: Mapping[str, Value]) -> Iterable[str]:
    for name in dict.fromkeys((*expected, *got)):
        if name not in got:
            yield f"{where}: the view has no attribute `{name}`"
        elif not same(cast(Value, expected.get(name)), got[name]):
            yield f"{where}: `{name}` is {_value(got[name])}, expected {_value(expected.get(name))}"


def disagreements(reference: ScenarioOutcome, other: ScenarioOutcome, engine: str = "spark") -> list[str]:
    """Every difference between what the reference and another engine made of a scenario."""
    differences = []
    if reference.rejected != other.rejected:
        shown = f"decide {_json(reference.rejected)}, {engine} {_json(other.rejected)}"
        differences.append(f"the engines disagree on refusals: {shown}")
    if reference.versions != other.versions:
        shown = f"decide {_json(reference.versions)}, {engine} {_json(other.versions)}"
        differences.append(f"the engines disagree on versions: {shown}")
    if (reference.refused, len(reference.complaints)) != (other.refused, len(other.complaints)):
        differences.append("the engines disagree on which steps are refused")
    for id in dict.fromkeys((*reference.deliveries, *other.deliveries)):
        a, b = reference.deliveries.get(id, []), other.deliveries.get(id, [])
        if [_exact(g) for g in a] != [_exact(g) for g in b]:
            one, two = (", ".join(f"{g.event} {show(g.view)}" for g in some) or "nothing" for some in (a, b))
            differences.append(f"the engines disagree on what `{id}` receives: decide {one}; {engine} {two}")
    if reference.signals != other.signals:
        one, two = (_json(_signals(outcome)) for outcome in (reference, other))
        differences.append(f"the engines disagree on signals: decide {one}, {engine} {two}")
    return differences


def _signals(outcome: ScenarioOutcome) -> dict[str, list[dict[str, object]]]:
    return {id: list(map(detections.as_plain, signals)) for id, signals in outcome.signals.items()}


def as_json(result: EngineResult, trace: str | None = None) -> str:
    """One line of JSON for a scenario on an engine; `trace` names the file that holds what the engine said, if any."""
    outcome = result.outcome
    failed = {
        "finished": result.finished,
        "tries": len(result.failures) + result.finished,
        "cause": result.failures[-1].cause if result.failures else "",
        "trace": trace,
    }
    return _json(
        {
            "title": result.scenario.title,
            "engine": result.engine,
            "passed": result.passed,
            "deliveries": {id: [{g.event: _plain(g.view)} for g in got] for id, got in outcome.deliveries.items()},
            "rejected": outcome.rejected,
            "versions": outcome.versions,
            "signals": _signals(outcome),
            "differences": list(result.differences),
            **({"error": failed} if result.failures else {}),
        }
    )


def show(view: Mapping[str, Value]) -> str:
    """A view in one line."""
    return "{" + ", ".join(f"{name}: {_value(value)}" for name, value in view.items()) + "}"


def _value(value: object) -> str:
    shown = plain(cast(Value, value))
    return (
        "null" if shown is None else f"`{brief(shown if isinstance(shown, str) else json.dumps(shown, default=str))}`"
    )


def _plain(view: Mapping[str, Value]) -> dict[str, object]:
    return {name: plain(value) for name, value in view.items()}


def _exact(got: Got) -> tuple[Any, ...]:
    """A delivery in a form that tells 1 from 1.0 and true, whatever the order of attributes."""
    return got.event, got.stream, got.seq, sorted((n, type(v).__name__, repr(v)) for n, v in got.view.items())


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)
