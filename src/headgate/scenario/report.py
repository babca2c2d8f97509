"""Comparing what came of a scenario with what must come of it, and saying so.

Guarantees: a difference is one line of plain words. Deliveries are compared per subscription and stream, in order, each
event once; a view is compared whole, with nulls; `judge` finds nothing exactly when the outcome is as expected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from headgate.model.values import Value, brief, plain, same
from headgate.pipeline.spark.session import EngineFailure
from headgate.scenario.engines.play import AUDIT_STREAM, Got, ScenarioOutcome
from headgate.scenario.format.story import ConnectStep, Expected, PublishStep, RoleStep, Scenario


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
    for id in dict.fromkeys((*expect.deliveries, *outcome.deliveries)):
        differences += _deliveries(id, expect.deliveries.get(id, ()), outcome.deliveries.get(id, []), streams)
    return differences


def _refusals(scenario: Scenario, outcome: ScenarioOutcome) -> Iterable[str]:
    events = {step.draft.id for step in scenario.steps if isinstance(step, PublishStep)}
    shown = {id for step in scenario.steps if isinstance(step, ConnectStep) for id in step.shown}
    asked = {step.id for step in scenario.steps if isinstance(step, RoleStep)}
    for id, code in scenario.expect.rejected.items():
        got = outcome.rejected.get(id)
        what = "event" if id in events else "statement" if id in shown else "subscription"
        what = "credential" if id in asked and id not in events else what
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
    return differences


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
            "signals": {},
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
