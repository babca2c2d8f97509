"""Playing a scenario: the steps in order, on whichever stage carries them out.

Guarantees: all engines are put through the same steps by the same code. An engine is a `StoryStage`; one without a
gateway is a `LocalStage`, which does what a gateway does around what is asked. A step that is refused makes no version
and the story goes on. Every refusal is noted; one that the file did not ask for is a complaint that names its file and
line. The reference decision (`DecideStage`) starts no JVM and writes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol, assert_never

from headgate.authority.statement_state import StatementState
from headgate.decide.apply import apply
from headgate.decide.composite import Signal
from headgate.decide.deliver import decide, seen_by
from headgate.decide.derived import DERIVED, readers_of
from headgate.decide.publish import admit
from headgate.decide.rates import Rates, asks_rate
from headgate.decide.rolebook import fit
from headgate.decide.views import holds, may_connect
from headgate.lang.render import render_membership, render_role
from headgate.model.changes import AddRow, Batch, EnterRole, Settle, Tick
from headgate.model.errors import (
    BadScenario,
    ConnectDenied,
    GovernDenied,
    HeadgateError,
    NotFound,
    PublishDenied,
    RoleDenied,
)
from headgate.model.events import Draft, Event
from headgate.model.rights import Action, Subscription
from headgate.model.state import State
from headgate.model.values import EPOCH, Value
from headgate.roles.records.book import Book
from headgate.roles.records.clock import next_moment
from headgate.roles.requests import audit
from headgate.roles.requests.transition import next_state, transition
from headgate.scenario.engines.detections import Detections, Views, in_order
from headgate.scenario.format import story
from headgate.scenario.format.authority import OURSELVES
from headgate.solver import check_policy_rule

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


@dataclass(frozen=True, slots=True)
class DerivedOutcome:
    """What came of a signal, called by the detection and a number: an event, a row that was added, or a refusal."""

    id: str
    event: Event | None = None
    refusal: HeadgateError | None = None


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
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Every step that was refused, by its place and the reason, whether the file asked for that or not."""
    signals: dict[str, list[Signal]] = field(default_factory=dict)
    """What detections have signalled, by their id."""
    derived: list[DerivedOutcome] = field(default_factory=list)
    """What came of their signals."""

    def note_derived(self, derived: Iterable[DerivedOutcome]) -> None:
        """Note what came of signals; what is refused is rejected as an event of the file would be."""
        for one in derived:
            self.derived.append(one)
            if one.event is not None:
                self.versions[one.id] = one.event.version
            if one.refusal is not None:
                self.rejected[one.id] = one.refusal.code


class StoryStage(Protocol):
    """Where a story is played: it carries out steps as principals take them."""

    def state(self) -> State:
        """What is in force now."""

    def begin(self, policy: Batch) -> None:
        """Put the first batch in force."""

    def take(self, step: story.CommitStep) -> None:
        """Take a step, or refuse it; whoever takes it must be one that may connect."""

    def publish(self, step: story.PublishStep) -> int:
        """Have an event accepted, at this version, or refuse it; likewise."""

    def heartbeat(self, step: story.HeartbeatStep) -> None:
        """Have a stream promise."""

    def reserve(self, step: story.ReserveStep) -> None:
        """Keep what may be wanted later, or refuse it."""

    def tick(self, at: datetime, *, ends: bool) -> None:
        """The clock comes to a time at which something that is declared `ends`, or the clock may take a role."""

    def tell(self, at: datetime) -> None:
        """The clock comes to a time at which nothing happens."""

    def wrong(self, claim: story.Claim, at: datetime) -> str | None:
        """What is wrong about a claim, in words; None if it is so."""

    def crash(self) -> None:
        """Let the pipeline fail, and start again."""

    def derive(self, enough: int | None = None) -> list[DerivedOutcome]:
        """Publish and add what comes of signals: what is new, which is enough, or all that there is by now."""

    def deliveries(self) -> dict[str, list[Got]]:
        """Everything that was delivered, by subscription id; every subscription there was is listed."""

    def signals(self) -> dict[str, list[Signal]]:
        """Everything that was signalled, by the id of the detection, by time; every detection there was is listed."""


class StoryPipeline(Protocol):
    """What decides on deliveries and detects, and may be made to fail."""

    def crash(self) -> None:
        """Fail, and start again."""

    def finish(self) -> None:
        """Decide everything there is."""

    def detect(self) -> None:
        """Detect everything there is."""


def detecting_streams(scenario: story.Scenario) -> list[str]:
    """The streams that count from the start for the detections of a scenario; none if it has no detection."""
    if not any(isinstance(step, story.DetectStep) for step in scenario.steps):
        return []
    named = (step.stream for step in scenario.steps if isinstance(step, story.PublishStep | story.HeartbeatStep))
    return sorted(set(named))


def play(scenario: story.Scenario, stage: StoryStage) -> ScenarioOutcome:
    """What comes of a scenario on a stage. Where something comes of signals by the reference, other stages derive."""
    outcome = ScenarioOutcome(notes=list(scenario.notes))
    stage.begin(scenario.policy)
    derives = any(isinstance(step, story.DetectStep) and (step.publishes or step.adds) for step in scenario.steps)
    awaited = derivations(scenario) if derives and not isinstance(stage, DecideStage) else None
    for number, step in enumerate(scenario.steps):
        take_step(step, stage, scenario, outcome)
        if derives and (awaited is None or awaited[number]):
            outcome.note_derived(stage.derive(None if awaited is None else awaited[number]))
    if derives:
        outcome.note_derived(stage.derive())
    outcome.deliveries = stage.deliveries()
    outcome.signals = stage.signals()
    return outcome


def derivations(scenario: story.Scenario) -> list[int]:
    """How much comes of the signals of detections after each step, by the reference."""
    stage, outcome = DecideStage(scenario), ScenarioOutcome()
    stage.begin(scenario.policy)
    made: list[int] = []
    for step in scenario.steps:
        take_step(step, stage, scenario, outcome)
        made.append(len(stage.derive()))
    return made


def take_step(
    step: story.Step, stage: StoryStage, scenario: story.Scenario, outcome: ScenarioOutcome
) -> HeadgateError | None:
    """Take a step, and note in the outcome what came of it; the refusal, if it was refused."""
    refusal: HeadgateError | None = None
    match step:
        case story.AdvanceStep():
            _advance(step, stage)
        case story.CommitStep() | story.HeartbeatStep() | story.ReserveStep():
            refusal = _try(step, stage, outcome)
            if refusal is not None:
                _refused(step, refusal, scenario, outcome)
        case story.TakenStep():
            refusal = _try(step, stage, outcome)
            if refusal is not None:
                outcome.rejected.update(dict.fromkeys(step.ids, refusal.code))
        case story.CrashStep():
            stage.crash()
        case story.DeniedStep(place, inner, reason):
            refusal = _try(inner, stage, outcome)
            if refusal is None:
                outcome.complaints.append(f"{place}: {inner.words} was accepted, not denied with `{reason}`")
            elif refusal.code != reason:
                denied = f"{place}: {inner.words} was denied with `{refusal.code}`, not `{reason}`: {refusal.message}"
                outcome.complaints.append(denied)
        case story.ClaimStep(_, claims, at, denied_step):
            for claim in claims:
                mistake = stage.wrong(claim, at)
                if mistake is not None:
                    outcome.complaints.append(f"{claim.place}: {mistake}")
            if denied_step is not None:
                refusal = take_step(denied_step, stage, scenario, outcome)
        case _:
            assert_never(step)
    return refusal


def _advance(step: story.AdvanceStep, stage: StoryStage) -> None:
    """Move the clock: a version at each time at which something declared ends, or the clock takes a role."""
    at = step.since
    for _ in range(MAX_MOMENTS):
        ends = next((passed for passed in step.passed if passed > at), None)
        moments = [one for one in (ends, next_moment(stage.state(), at)) if one is not None and one <= step.to]
        if not moments:
            stage.tell(step.to)
            return
        at = min(moments)
        stage.tick(at, ends=at == ends)
    raise BadScenario(
        f"the clock passes more than MAX_MOMENTS ({MAX_MOMENTS}) moments", place=str(step.place), remedy="advance less"
    )


def _try(step: story.TakenStep, stage: StoryStage, outcome: ScenarioOutcome) -> HeadgateError | None:
    """Take a step; the refusal, if it is refused."""
    try:
        _take(step, stage, outcome)
    except HeadgateError as refusal:
        outcome.refused.append((str(step.place), refusal.code))
        return refusal
    return None


def _take(step: story.TakenStep, stage: StoryStage, outcome: ScenarioOutcome) -> None:
    match step:
        case story.PublishStep():
            outcome.versions[step.draft.id] = stage.publish(step)
        case story.HeartbeatStep():
            state = stage.state()
            for who in step.callers:
                if not any(holds(state, who, Action.PUBLISH, type) for type in state.types):
                    raise PublishDenied(f"`{who}` may publish nothing, and so promise nothing")
            stage.heartbeat(step)
        case story.ReserveStep():
            stage.reserve(step)
        case story.CommitStep():
            stage.take(step)


class LocalStage(StoryStage, ABC):
    """A stage without a gateway, with what one does around what is asked: who may connect, the clock, and audits."""

    def __init__(self, scenario: story.Scenario, now: datetime = EPOCH) -> None:
        self._scenario = scenario
        self.now = now
        """What the clock says."""

    @abstractmethod
    def why(self, id: str) -> str:
        """Why a membership ended."""

    @abstractmethod
    def commit(self, batch: Batch) -> None:
        """Make a version of a batch, or refuse it."""

    @abstractmethod
    def carry_out(self, step: story.CommitStep) -> None:
        """Make a version of a step by someone who may connect, or refuse it."""

    @abstractmethod
    def expire(self, at: datetime) -> None:
        """Make a version without what has ended by now."""

    @abstractmethod
    def send(self, draft: Draft, stream: str, at: datetime) -> Event:
        """Accept an event, or refuse it."""

    def crash(self) -> None:
        """Let the pipeline fail, and start again."""

    def begin(self, policy: Batch) -> None:
        """Put the first batch in force."""
        self.commit(policy)

    def take(self, step: story.CommitStep) -> None:
        """Carry out a step, if whoever takes it may connect; a refused entry is audited."""
        self._check_connected(step)
        before = self.state()
        try:
            self.carry_out(step)
        except RoleDenied as refusal:
            if isinstance(step, story.RoleStep) and isinstance(step.request, EnterRole):
                draft = audit.refusal(before, step.request, refusal.failure)
                self._audit([] if draft is None else [draft])
            raise
        self._audit_turns(before)

    def publish(self, step: story.PublishStep) -> int:
        """Have an event accepted."""
        self._check_connected(step)
        return self.send(step.sent(), step.stream, step.at).version

    def heartbeat(self, step: story.HeartbeatStep) -> None:
        """Whoever promises must be one that may connect."""
        self._check_connected(step)

    def reserve(self, step: story.ReserveStep) -> None:
        """Whoever reserves must be one that may connect, and could have what it reserves; the log keeps all of it."""
        self._check_connected(step)
        apply(self.state(), Batch(step.principal, (step.wanted(),)))

    def tell(self, at: datetime) -> None:
        """The clock comes to a time."""
        self.now = at

    def tick(self, at: datetime, *, ends: bool) -> None:
        """A version, if something declared ends or the clock takes a role."""
        self.now = at
        before = self.state()
        if ends or self._turns(before, Batch(before.administrator, (Tick(at),))):
            self.expire(at)
            self._audit_turns(before)

    def wrong(self, claim: story.Claim, at: datetime) -> str | None:
        """What is wrong about a claim."""
        return wrong(claim, self.state(), at)

    def _turns(self, before: State, batch: Batch) -> bool:
        """Does a batch change who holds what?"""
        if not before.roles.memberships and not before.roles.elections:
            return False
        return turned_roles(before, next_state(before, batch, self._scenario.functions))

    def _audit_turns(self, before: State, after: State | None = None) -> None:
        """Publish what a version made of audited roles."""
        after = self.state() if after is None else after
        gone = [id for id in before.roles.memberships if id not in after.roles.memberships]
        turns = audit.turned(before, after, [(id, self.why(id)) for id in gone])
        self._audit([turn.draft(after.administrator) for turn in turns])

    def _audit(self, drafts: list[Draft]) -> None:
        for draft in drafts:
            self.send(draft, AUDIT_STREAM, self.now)

    def _check_connected(self, step: story.TakenStep) -> None:
        """Refuse a step by someone whom a gateway would not let in."""
        state, callers = self.state(), step.callers
        if isinstance(step, story.UnsubscribeStep) and step.id in state.subscriptions:
            callers = (state.subscriptions[step.id].principal,)
        for principal in callers:
            check_may_connect(state, principal)


def turned_roles(before: State, after: State) -> bool:
    """Does anyone hold, or is anyone elected to, something else than before?"""
    old, new = before.roles, after.roles
    return (new.memberships, new.elections) != (old.memberships, old.elections)


@contextmanager
def not_found_as(kind: type[HeadgateError], **details: str) -> Iterator[None]:
    """A domain does not tell strangers what is there; the format tells that it is not theirs, or not there."""
    try:
        yield
    except NotFound as error:
        raise kind(error.message, remedy=error.remedy, **details) from None


def check_may_connect(state: State, principal: str) -> None:
    """Refuse a principal whom a gateway would not let in."""
    if principal != OURSELVES and not may_connect(state, principal):
        raise ConnectDenied(
            f"`{principal}` may not connect", remedy="a rule or a certificate with `connect` on the network lets it in"
        )


def _refused(step: story.TakenStep, refusal: HeadgateError, scenario: story.Scenario, outcome: ScenarioOutcome) -> None:
    """A change that was refused is a difference, unless `expect.rejected` says so of what it has the id of.

    A batch `by` someone who may not make it is part of the story, as an event that is refused is; `change` has no id
    to list it under, so it is noted, and what it does not change shows in the deliveries and versions.
    """
    if isinstance(refusal, RoleDenied) and refusal.for_authors is not None:
        refusal.message = refusal.for_authors
    message = f"{step.place}: {step.words} was refused: {refusal}"
    by_another = isinstance(step, story.ChangeStep) and step.author != scenario.policy.author
    if by_another and isinstance(refusal, ConnectDenied | GovernDenied):
        outcome.notes.append(message)
        return
    for id in step.ids:
        outcome.rejected.setdefault(id, refusal.code)
    if not any(scenario.expect.rejected.get(id) == refusal.code for id in step.ids):
        outcome.complaints.append(message)


def wrong(claim: story.Claim, state: State, at: datetime) -> str | None:
    """What is wrong about a claim, in words; None if it is so."""
    match claim:
        case story.HoldingClaim(_, principal, role, holds):
            meant = [one for one in state.roles.held_by(principal) if fit(role, one, {}) is not None]
            if bool(meant) is holds:
                return None
            if meant:
                held = ", ".join(render_membership(*one.place, one.role, one.args) for one in meant)
                return f"`{principal}` holds `{held}`"
            return f"`{principal}` does not hold `{render_role(role)}`"
        case story.StateClaim(_, id, wanted):
            found = _state(claim, state, at)
            return None if found is wanted else f"`{id}` is {_word(found)}, not {_word(wanted)}"
        case _:
            assert_never(claim)


def _state(claim: story.StateClaim, state: State, at: datetime) -> bool | None:
    book = state.roles
    if claim.statement is not None:
        certificate = state.certificates.get(claim.statement)
        if certificate is not None:
            return StatementState(state).is_known(certificate, at)
        return claim.statement in state.identities
    if claim.id in book.memberships:
        return book.memberships[claim.id].state
    election = book.elections.get(claim.id)
    return False if election is None else book.records[election.record].state


def _word(state: bool | None) -> str:
    return "unknown" if state is None else str(state).lower()


class DecideStage(LocalStage):
    """Everything in memory, decided by `decide` event by event."""

    def __init__(self, scenario: story.Scenario) -> None:
        super().__init__(scenario)
        self.functions = scenario.functions
        self.states = [State(administrator=story.ADMINISTRATOR)]
        self.events: list[Event] = []
        self.subscriptions: list[Subscription] = []
        self._decided: list[tuple[int, list[Got]]] = []
        """How far events were decided for each subscription, and what it gets of those."""
        self.tails: dict[str, int] = {}
        steps = [step for step in scenario.steps if isinstance(step, story.DetectStep)]
        lines = {
            name: scenario.types.lineage(name)
            for name in dict.fromkeys(step.publishes for step in steps)
            if name is not None and name in scenario.types.every
        }
        self.detections = Detections(frozenset(detecting_streams(scenario)), lines)
        self._seen: dict[int, tuple[int, dict[str, Mapping[str, Value]]]] = {}
        """How far events were looked at for each detection, by its number, and what it sees of those."""
        self.rates = Rates()
        self.book: Book | None = None
        self.reasons: dict[str, str] = {}

    def why(self, id: str) -> str:
        """Why a membership ended."""
        return self.reasons.get(id, "")

    def state(self) -> State:
        """The newest state."""
        return self.states[-1]

    def carry_out(self, step: story.CommitStep) -> None:
        """The batch of the step, if whoever connects by it may then."""
        batch = step.batch(self.state())
        if isinstance(step, story.ConnectStep):
            check_may_connect(next_state(self.state(), batch, self.functions), step.principal)
        self.commit(batch)

    def expire(self, at: datetime) -> None:
        """The clock takes what it takes."""
        self.commit(Batch(self.state().administrator, (Tick(at),)))

    def commit(self, batch: Batch) -> None:
        """The next version."""
        made = transition(self.states[-1], batch, book=self.book, functions=self.functions, now=self.now)
        now, self.book = made.after, made.book
        self.states.append(now)
        for change in made.batch.changes:
            if isinstance(change, Settle):
                self.reasons.update((one.id, one.reason) for one in change.facts.ended)
        self.subscriptions += [s for s in now.subscriptions.values() if s.first == now.version]

    def send(self, draft: Draft, stream: str, at: datetime) -> Event:
        """Admit an event at the newest version, and place it."""
        state = self.states[-1]
        rate = self.rates.before(draft.publisher, draft.type, at) + 1 if asks_rate(state) else None
        admitted = admit(state, draft, now=at, predicates=self.functions, rate=rate, policy_rule=check_policy_rule)
        event = replace(admitted, stream=stream, seq=self.tails.get(stream, 0) + 1)
        self.detections.check(event)
        self.rates.add(draft.publisher, draft.type, at)
        self.tails[stream] = event.seq
        self.events.append(event)
        self.detections.arrived(event, state)
        return event

    def heartbeat(self, step: story.HeartbeatStep) -> None:
        """A stream promises."""
        super().heartbeat(step)
        self.detections.promised(step.stream, step.horizon, step.at, self.state())

    def tell(self, at: datetime) -> None:
        """The clock comes to a time, which detections learn."""
        super().tell(at)
        self.detections.passed(at, self.state())

    # -- detections ---------------------------------------------------------------------------------------------

    def derive(self, enough: int | None = None) -> list[DerivedOutcome]:  # noqa: ARG002 - it is all worked out at once
        """Publish and add what detections have signalled, and promise what they will not, until nothing comes of it."""
        derived: list[DerivedOutcome] = []
        while self.detections.is_unsettled(len(self._deriving())):
            while new := [made for number, one in self._deriving() for made in self._derived(number, one)]:
                derived += new
            deriving = [(one, self._views(number, one)) for number, one in self._deriving()]
            self.detections.promise_derived(deriving, self.now, self.state())
        return derived

    def _deriving(self) -> list[tuple[int, Subscription]]:
        """The detections of whose signals something comes, with their numbers."""
        there = self.state().subscriptions
        return [
            (number, one)
            for number, one in enumerate(self.subscriptions)
            if one.detection is not None and one.detection.derives and there.get(one.id) == one
        ]

    def _derived(self, number: int, one: Subscription) -> list[DerivedOutcome]:
        """What comes of the new signals of a detection."""
        seen, derived = self._views(number, one), []
        for count, signal, what in self.detections.derived(one, seen, self.state().types):
            id = f"{one.id}:{count}"
            try:
                if isinstance(what, AddRow):
                    before = self.state()
                    if what.row not in before.relations.get(what.relation, ()):
                        self.commit(Batch(before.administrator, (what,)))
                        self._audit_turns(before)
                    derived.append(DerivedOutcome(id))
                    continue
                draft = replace(what, id=id)
                if self.state().types.is_for_readers(draft.type):
                    draft = replace(draft, readers=self._readers(one, self.detections.rests_on(one, seen, signal)))
                derived.append(DerivedOutcome(id, self.send(draft, DERIVED, self.now)))
            except HeadgateError as refusal:
                derived.append(DerivedOutcome(id, refusal=refusal))
        return derived

    def _readers(self, one: Subscription, events: list[Event]) -> tuple[str, ...]:
        """Who could read all of some events, on which what a detection publishes rests (D16)."""
        return readers_of(one, events, self.state().principals, self.states.__getitem__, lambda _: self.functions)

    def _views(self, number: int, one: Subscription) -> Views:
        """What a detection sees of all events; each is looked at once, for that never changes."""
        through, seen = self._seen.get(number, (0, {}))
        for event in self.events[through:]:
            delivery = seen_by(event, one, self.states.__getitem__, self.functions)
            if delivery is not None:
                seen[event.id] = delivery.view
        self._seen[number] = len(self.events), seen
        return seen

    def signals(self) -> dict[str, list[Signal]]:
        """Every signal."""
        return self._signalled(self.detections.signals)

    def signals_by_machine(self) -> dict[str, list[Signal]]:
        """The same by the machine that the pipeline runs."""
        return self._signalled(self.detections.by_machine)

    def _signalled(self, evaluate: Callable[[Subscription, Views], list[Signal]]) -> dict[str, list[Signal]]:
        signals: dict[str, list[Signal]] = {}
        for number, one in enumerate(self.subscriptions):
            if one.detection is not None:
                told = evaluate(one, self._views(number, one))
                signals[one.id] = in_order([*signals.get(one.id, ()), *told])
        return signals

    # -- deliveries ---------------------------------------------------------------------------------------------

    def deliveries(self) -> dict[str, list[Got]]:
        """Every delivery, subscription by subscription in the order they began."""
        deliveries: dict[str, list[Got]] = {s.id: [] for s in self.subscriptions if s.detection is None}
        for subscription, received in zip(self.subscriptions, self._received(), strict=True):
            if subscription.detection is None:
                deliveries[subscription.id] += received
        return deliveries

    def _received(self) -> list[list[Got]]:
        """What each subscription gets of all events; each event is decided for it once, for that never changes."""
        self._decided += [(0, []) for _ in self.subscriptions[len(self._decided) :]]
        for number, subscription in enumerate(self.subscriptions):
            through, received = self._decided[number]
            for event in self.events[through:]:
                delivery = decide(event, subscription, self.states.__getitem__, self.functions)
                if delivery is not None:
                    received.append(Got(event.id, event.stream, event.seq, delivery.view))
            self._decided[number] = len(self.events), received
        return [received for _, received in self._decided]


def run_decide(scenario: story.Scenario) -> ScenarioOutcome:
    """A scenario on the reference decision."""
    return play(scenario, DecideStage(scenario))
