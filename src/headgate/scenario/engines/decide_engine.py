"""The reference decision as the stage a scenario is played on.

Guarantees: it starts no JVM and writes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from headgate.decide.deliver import decide
from headgate.decide.publish import admit
from headgate.decide.rates import Rates, asks_rate
from headgate.model.changes import Batch, Settle
from headgate.model.events import Draft, Event
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.roles.records.book import Book
from headgate.roles.requests.transition import transition
from headgate.scenario.engines.play import Got, LocalStage, ScenarioOutcome, play
from headgate.scenario.format.story import ADMINISTRATOR, Scenario
from headgate.solver import check_policy_rule


class DecideStage(LocalStage):
    """Everything in memory, decided by `decide` event by event."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.functions = scenario.functions
        self.states = [State(administrator=ADMINISTRATOR)]
        self.events: list[Event] = []
        self.subscriptions: list[Subscription] = []
        self.tails: dict[str, int] = {}
        self.rates = Rates()
        self.book: Book | None = None
        self.reasons: dict[str, str] = {}

    def why(self, id: str) -> str:
        """Why a membership ended."""
        return self.reasons.get(id, "")

    def state(self) -> State:
        """The newest state."""
        return self.states[-1]

    def apply(self, batch: Batch) -> None:
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
        event = admit(state, draft, now=at, predicates=self.functions, rate=rate, policy_rule=check_policy_rule)
        self.rates.add(draft.publisher, draft.type, at)
        self.tails[stream] = self.tails.get(stream, 0) + 1
        self.events.append(replace(event, stream=stream, seq=self.tails[stream]))
        return self.events[-1]

    def deliveries(self) -> dict[str, list[Got]]:
        """Every delivery, subscription by subscription in the order they began."""
        deliveries: dict[str, list[Got]] = {s.id: [] for s in self.subscriptions}
        for subscription in self.subscriptions:
            for event in self.events:
                delivery = decide(event, subscription, self.states.__getitem__, self.functions)
                if delivery is not None:
                    deliveries[subscription.id].append(Got(event.id, event.stream, event.seq, delivery.view))
        return deliveries


def run_decide(scenario: Scenario) -> ScenarioOutcome:
    """A scenario on the reference decision."""
    return play(scenario, DecideStage(scenario))
