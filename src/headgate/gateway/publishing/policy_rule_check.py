"""Is a publisher's policy rule wider than what its events ask of receivers? Found out before it is the writer's turn.

Guarantees: no such question is ever put in this process, so that nobody waits for another's; one request of a publisher
is looked into at a time, within the bounds of `gateway.http.worker_pool`. A request has ASK_SECONDS, and the answer
that is being sought then; what was not found out by then counts as no, for that request alone. An answer is for one
rule: where that has changed meanwhile, it is asked anew (`commands.publishing.policy_rules`).
Leaves out: how it is found out (`policy_rule_answers`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headgate.commands.publishing.policy_rules import Answers
from headgate.gateway.http.worker_pool import Workers
from headgate.gateway.publishing.policy_rule_answers import TooLate, find
from headgate.model.errors import HeadgateError
from headgate.model.state import State

MAX_KNOWN: Final = 4_096
"""Answers that are remembered."""


class PolicyRuleCheck:
    """Finds answers for requests, and remembers some. Used from one event loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._known: dict[tuple[str, str, str | None], HeadgateError | None] = {}

    async def ask(self, state: State, publisher: str, requirements: Iterable[str | None]) -> Answers:
        """What the publisher's policy rule says of the requirements of a request, as texts."""
        rule = state.policy_rules.get(publisher)
        exact = repr(rule)
        texts = list(dict.fromkeys(requirements))
        answers = {text: self._known[key] for text in texts if (key := (exact, publisher, text)) in self._known}
        new = [text for text in texts if text not in answers]
        if new:
            found = await self._workers.run(publisher, find, rule, publisher, new)
            answers.update(found)
            for text, answer in found.items():
                if not isinstance(answer, TooLate):
                    self._known[exact, publisher, text] = answer
            while len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
        return Answers(exact, answers)
