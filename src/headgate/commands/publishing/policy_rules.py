"""What a policy rule says of the requirements of events, as far as it was asked before they are decided.

Guarantees: an answer is for one rule. Where that has changed meanwhile, or a requirement was not asked about, deciding
ends with `Unasked`, and never with a guess (D11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.model.errors import HeadgateError, PolicyRuleDenied
from headgate.model.expressions import Condition
from headgate.model.state import State
from headgate.pipeline.index.requirements import text_of


class Unasked(Exception):
    """The policy rule of a publisher is not the one that was asked about."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a policy rule says of some requirements: the refusal, or None where it is wider."""

    rule: str = ""
    found: Mapping[str | None, HeadgateError | None] = field(default_factory=dict)
    """By the text that the log has for a requirement."""

    def is_for(self, state: State, publisher: str) -> bool:
        """Is this still the rule?"""
        return repr(state.policy_rules.get(publisher)) == self.rule

    def check(self, state: State, publisher: str, requires: Condition | None) -> None:
        """Refuse a requirement, as `solver.policy_rule.check_policy_rule` does."""
        text = None if requires is None else text_of(requires)
        if not self.is_for(state, publisher) or text not in self.found:
            raise Unasked
        refusal = self.found[text]
        if refusal is not None:
            raise PolicyRuleDenied(refusal.message, remedy=refusal.remedy)


NO_ANSWERS: Final = Answers()
