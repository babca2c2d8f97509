"""Playing a scenario: the steps in order, on whichever world carries them out.

Guarantees: both engines are put through the same steps by the same code; what an engine does is in its `ScenarioWorld`.
A step that is refused makes no version and the story goes on. Every refusal is noted; one that the file did not ask for
becomes a complaint that names its file and line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol, assert_never

from headgate.decide.views import may_connect
from headgate.model.changes import Batch, EnterRole, Tick
from headgate.model.errors import BadScenario, ConnectDenied, GovernDenied, HeadgateError, RoleDenied
from headgate.model.events import Draft, Event
from headgate.model.state import State
from headgate.model.values import Value
from headgate.roles.records.clock import next_moment
from headgate.roles.requests import audit
from headgate.roles.requests.transition import next_state
from headgate.scenario.authority import OURSELVES
from headgate.scenario.claims import wrong
from headgate.scenario.story import (
    AdvanceStep,
    ChangeStep,
    ClaimStep,
    CommitStep,
    ConnectStep,
    CrashStep,
    DeniedStep,
    OtherStep,
    PublishStep,
    RoleStep,
    Scenario,
    Step,
    SubscribeStep,
    UnsubscribeStep,
    batch_of,
    named,
    who_connects,
)

AUDIT_STREAM: Final = "main"
"""The stream that events about audited roles go to."""
MAX_MOMENTS: Final = 20_000
"""Moments at which one `advance` looks whether the clock takes something."""


@dataclass(frozen=True, slots=True)
class Got:
    """An event that a subscription received, as it saw it."""

    event: str
    stream: str
    seq: int
    view: Mapping[str, Value]


@dataclass(slots=True)
class ScenarioOutcome:
    """What came of a scenario on one engine.

    `deliveries` are by subscription id; an id used again holds what each of its subscriptions received, one after the
    other. `complaints` are differences already: steps that went otherwise than the file says. `notes` are worth saying.
    """

    deliveries: dict[str, list[Got]] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ScenarioWorld(Protocol):
    """What carries out the steps."""

    now: datetime
    """What the clock says."""

    def why(self, id: str) -> str:
        """Why a membership ended."""

    def state(self) -> State:
        """What is in force now."""

    def tell(self, at: datetime) -> None:
        """The clock has come to a time."""

    def commit(self, batch: Batch) -> None:
        """Apply a batch as one version, or refuse it."""

    def publish(self, draft: Draft, stream: str, at: datetime) -> Event:
        """Accept an event, or refuse it."""

    def crash(self) -> None:
        """Let the pipeline fail, and start again."""

    def deliveries(self) -> dict[str, list[Got]]:
        """Everything that was delivered, by subscription id; every subscription there was is listed."""


def play(scenario: Scenario, world: ScenarioWorld) -> ScenarioOutcome:
    """What comes of a scenario in a world."""
    outcome = ScenarioOutcome(notes=list(scenario.notes))
    world.commit(scenario.policy)
    for step in scenario.steps:
        take_step(step, world, scenario, outcome)
    outcome.deliveries = world.deliveries()
    return outcome


def take_step(step: Step, world: ScenarioWorld, scenario: Scenario, outcome: ScenarioOutcome) -> HeadgateError | None:
    """Take a step, and note in the outcome what came of it; the refusal, if it was refused."""
    refusal: HeadgateError | None = None
    match step:
        case PublishStep():
            refusal = _try(step, world, outcome, scenario)
            if refusal is not None:
                outcome.rejected[step.draft.id] = refusal.code
        case AdvanceStep():
            _advance(step, world, scenario)
        case SubscribeStep() | UnsubscribeStep() | ChangeStep() | OtherStep() | ConnectStep() | RoleStep():
            refusal = _try(step, world, outcome, scenario)
            if refusal is not None:
                _refused(step, refusal, scenario, outcome)
        case CrashStep():
            world.crash()
        case DeniedStep(place, inner, reason):
            refusal = _try(inner, world, outcome, scenario)
            if refusal is None:
                outcome.complaints.append(f"{place}: {named(inner)} was accepted, not denied with `{reason}`")
            elif refusal.code != reason:
                said = f"{place}: {named(inner)} was denied with `{refusal.code}`, not `{reason}`: {refusal.message}"
                outcome.complaints.append(said)
        case ClaimStep(_, claims, at, denied):
            for claim in claims:
                found = wrong(claim, world.state(), at)
                if found is not None:
                    outcome.complaints.append(f"{claim.place}: {found}")
            if denied is not None:
                refusal = take_step(denied, world, scenario, outcome)
        case _:
            assert_never(step)
    return refusal


def _advance(step: AdvanceStep, world: ScenarioWorld, scenario: Scenario) -> None:
    """Move the clock: a version at each time at which something declared ends, or the clock takes a role."""
    at = step.since
    for _ in range(MAX_MOMENTS):
        ends = next((one for one in step.passed if one > at), None)
        moments = [one for one in (ends, next_moment(world.state(), at)) if one is not None and one <= step.to]
        if not moments:
            world.tell(step.to)
            return
        at = min(moments)
        world.tell(at)
        batch = Batch(scenario.policy.author, (Tick(at),))
        if at == ends or _turns(world.state(), batch, scenario):
            _commit(world, batch)
    raise BadScenario(
        f"the clock passes more than MAX_MOMENTS ({MAX_MOMENTS}) moments", place=str(step.place), remedy="advance less"
    )


def _turns(state: State, batch: Batch, scenario: Scenario) -> bool:
    """Does a batch change who holds what?"""
    if not state.roles.memberships and not state.roles.elections:
        return False
    after = next_state(state, batch, scenario.functions).roles
    return (after.memberships, after.elections) != (state.roles.memberships, state.roles.elections)


def _try(
    step: CommitStep | PublishStep, world: ScenarioWorld, outcome: ScenarioOutcome, scenario: Scenario
) -> HeadgateError | None:
    """Take a step; the refusal, if it is refused."""
    try:
        _check_connected(step, world.state())
        if isinstance(step, PublishStep):
            event = world.publish(step.sent(), step.stream, step.at)
            outcome.versions[event.id] = event.version
        else:
            batch = batch_of(step, world.state())
            if isinstance(step, ConnectStep):
                _check_may_connect(next_state(world.state(), batch, scenario.functions), step.principal)
            _commit(world, batch)
    except HeadgateError as refusal:
        if isinstance(refusal, RoleDenied) and isinstance(step, RoleStep) and isinstance(step.request, EnterRole):
            _audit(world, [draft for draft in [audit.refusal(world.state(), step.request, refusal.failure)] if draft])
        return refusal
    return None


def _commit(world: ScenarioWorld, batch: Batch) -> None:
    """Commit a batch; what it makes of audited roles is published."""
    before = world.state()
    world.commit(batch)
    after = world.state()
    gone = before.roles.memberships.keys()
    found = audit.turned(before, after, [(id, world.why(id)) for id in gone if id not in after.roles.memberships])
    _audit(world, [one.draft(after.administrator) for one in found])


def _audit(world: ScenarioWorld, drafts: list[Draft]) -> None:
    for draft in drafts:
        world.publish(draft, AUDIT_STREAM, world.now)


def _check_connected(step: CommitStep | PublishStep, state: State) -> None:
    """Refuse a step by someone whom the gateway would not let in."""
    for principal in who_connects(step, state):
        _check_may_connect(state, principal)


def _check_may_connect(state: State, principal: str) -> None:
    if principal != OURSELVES and not may_connect(state, principal):
        raise ConnectDenied(
            f"`{principal}` may not connect", remedy="a rule or a certificate with `connect` on the network lets it in"
        )


def _refused(step: CommitStep, refusal: HeadgateError, scenario: Scenario, outcome: ScenarioOutcome) -> None:
    """A change that was refused is a difference, unless `expect.rejected` says so of what it has the id of.

    A batch `by` someone who may not make it is part of the story, as an event that is refused is; `change` has no id
    to list it under, so it is noted, and what it does not change shows in the deliveries and versions.
    """
    if isinstance(refusal, RoleDenied) and refusal.for_authors is not None:
        refusal.message = refusal.for_authors
    said = f"{step.place}: {named(step)} was refused: {refusal}"
    by_another = isinstance(step, ChangeStep) and step.by != scenario.policy.author
    if by_another and isinstance(refusal, ConnectDenied | GovernDenied):
        outcome.notes.append(said)
        return
    ids = [s.id for s in step.subscriptions] if isinstance(step, SubscribeStep) else []
    if isinstance(step, UnsubscribeStep):
        ids = [step.id]
    if isinstance(step, ConnectStep):
        ids = list(step.shown)
    if isinstance(step, RoleStep) and step.id is not None:
        ids = [step.id]
    for id in ids:
        outcome.rejected.setdefault(id, refusal.code)
    if not any(scenario.expect.rejected.get(id) == refusal.code for id in ids):
        outcome.complaints.append(said)
