"""A ledger and a log in memory, and the deliveries that `decide` says they must give.

Guarantees: `MemoryLedger` answers as the stored ledger does; `MemoryLog` encodes each append as the stored log holds
it. `play` runs a story and leaves out what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate.decide.deliver import decide
from headgate.decide.publish import admit
from headgate.decide.rates import Rates, asks_rate
from headgate.model.changes import Batch, Subscribe, Unsubscribe
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft, Event
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.values import Value, micros, moment
from headgate.pipeline.log.codec import LogBatch, layouts
from headgate.roles.requests.transition import transition
from headgate.solver import check_policy_rule
from strategies.predicates import function_of
from strategies.stored import encode
from strategies.worlds import Commit, Publish, Story, allowed

Delivered = tuple[str, int, str, int, tuple[tuple[str, str, str], ...]]
"""Subscription id and first version, stream, seq, and the view as `exact` gives it."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The subscriptions that began, and those that ended as (id, first, the version that closed it)."""

    opened: list[Subscription]
    closed: list[tuple[str, int, int]]


class MemoryLedger:
    """Every state since the beginning."""

    def __init__(self, administrator: str = State().administrator) -> None:
        self.states = [State(administrator=administrator)]
        self.batches: list[Batch] = []

    @property
    def version(self) -> int:
        return self.states[-1].version

    @property
    def now(self) -> State:
        return self.states[-1]

    def state(self, version: int, *, subscriptions: bool = True) -> State:
        return self.states[version]

    def commit(self, batch: Batch) -> int:
        """The next version, or an error and nothing."""
        made = transition(self.now, batch)
        self.states.append(made.after)
        self.batches.append(made.batch)
        return self.version

    def commit_allowed(self, batch: Batch) -> bool:
        """Commit what can be of a batch, dropping each change that is refused. Is anything left of it?"""
        kept = allowed(self.now, batch)
        if kept.changes:
            self.commit(kept)
        return bool(kept.changes)

    def policy_versions(self, after: int, through: int) -> list[int]:
        """The versions at which anything but subscriptions changed."""
        return [
            version
            for version in range(after + 1, through + 1)
            if any(not isinstance(c, Subscribe | Unsubscribe) for c in self.batches[version - 1].changes)
        ]

    def subscriptions(self, after: int, through: int) -> Changes:
        """What began and ended in `(after, through]`; what did both is in both lists."""
        opened: list[Subscription] = []
        closed: list[tuple[str, int, int]] = []
        for version in range(after + 1, through + 1):
            before, now = self.states[version - 1].subscriptions, self.states[version].subscriptions
            opened += [s for s in now.values() if s.first == version]
            closed += [(s.id, s.first, version) for s in before.values() if now.get(s.id) is not s]
        return Changes(opened, closed)

    def every_subscription(self) -> list[Subscription]:
        """All that ever began, in order of opening; their numbers are their places here."""
        return self.subscriptions(0, self.version).opened

    @property
    def predicates(self) -> dict[str, Callable[..., object]]:
        """The registered predicates by name, as `decide` takes them."""
        return {name: function_of(registered) for name, registered in self.now.predicates.items()}

    @property
    def functions(self) -> dict[str, Callable[..., object]]:
        """The registered predicates by digest and target, as the matcher takes them."""
        return {p.digest + p.target: function_of(p) for s in self.states for p in s.predicates.values()}


@dataclass
class MemoryLog:
    """Appends in the order they were made."""

    batches: list[LogBatch] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    tails: dict[str, int] = field(default_factory=dict)

    def append(self, stream: str, state: State, time: int, events: Sequence[Event]) -> LogBatch:
        """Stamp accepted events with their places and store them."""
        first = self.tails.get(stream, 0) + 1
        stamped = [
            replace(event, stream=stream, seq=first + n, version=state.version, time=moment(time))
            for n, event in enumerate(events)
        ]
        batch = LogBatch(
            stream, first, first + len(events) - 1, state.version, time, encode(stamped, layouts(state.types))
        )
        self.tails[stream] = batch.last
        self.batches.append(batch)
        self.events += stamped
        return batch


@dataclass
class Played:
    """What became of a story: the ledger, the log, and each draft that was accepted with its event."""

    ledger: MemoryLedger
    log: MemoryLog
    accepted: list[tuple[Draft, Event]] = field(default_factory=list)
    refused: list[tuple[Draft, int, HeadgateError]] = field(default_factory=list)
    rates: Rates = field(default_factory=Rates)


def play(story: Story) -> Played:
    """Run a story. What is refused leaves no trace."""
    played = Played(MemoryLedger(story.administrator), MemoryLog())
    for step in (*story.setup, *story.steps):
        match step:
            case Commit(batch):
                played.ledger.commit_allowed(batch)
            case Publish():
                _publish(played, step)
    return played


def _publish(played: Played, step: Publish) -> None:
    ledger = played.ledger
    accepted: list[Event] = []
    counts = asks_rate(ledger.now)
    for draft in step.drafts:
        rate = played.rates.before(draft.publisher, draft.type, step.time) + 1 if counts else None
        try:
            event = admit(
                ledger.now, draft, now=step.time, predicates=ledger.predicates, rate=rate, policy_rule=check_policy_rule
            )
        except HeadgateError as error:
            played.refused.append((draft, ledger.version, error))
            continue
        played.rates.add(draft.publisher, draft.type, step.time)
        played.accepted.append((draft, event))
        accepted.append(event)
    for append in [accepted] if step.together else [[event] for event in accepted]:
        if append:
            played.log.append(step.stream, ledger.now, micros(step.time), append)


def exact(view: Mapping[str, Value]) -> tuple[tuple[str, str, str], ...]:
    """A view in a form that tells 1 from 1.0 and true, and 0.0 from -0.0."""
    return tuple(sorted((name, type(value).__name__, repr(value)) for name, value in view.items()))


def reference_deliveries(
    ledger: MemoryLedger,
    events: Iterable[Event],
    predicates: Mapping[str, Callable[..., object]] | None = None,
) -> list[Delivered]:
    """What every subscription ever opened receives of these events, sorted."""
    functions = ledger.predicates if predicates is None else predicates
    subscriptions = ledger.every_subscription()
    found = []
    for event in events:
        for subscription in subscriptions:
            delivery = decide(event, subscription, ledger.state, functions)
            if delivery is not None:
                place = (subscription.id, subscription.first, event.stream, event.seq)
                found.append((*place, exact(delivery.view)))
    return sorted(found)
