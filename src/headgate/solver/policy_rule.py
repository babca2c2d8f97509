"""Is a publisher held to its policy rule? (Guard II.D; rule D11)

Guarantees: what cannot be told counts as no; an event without a requirement asks for anyone.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.model.conditions import TRUE, Condition
from headgate.model.errors import PolicyRuleDenied
from headgate.model.state import State
from headgate.model.values import Value, brief, plain
from headgate.solver import wider


def check_policy_rule(state: State, publisher: str, requires: Condition | None) -> None:
    """Refuse a requirement that lets in receivers whom the publisher's policy rule keeps out (D11; Guard II.D).

    What cannot be told counts as no; an event without a requirement asks for anyone.
    """
    rule = state.policy_rules.get(publisher)
    if rule is None:
        return
    answer = wider(rule, TRUE if requires is None else requires)
    if not answer.holds:
        raise PolicyRuleDenied(
            f"the policy rule of `{publisher}` is not wider than the requirement of the event"
            if requires is not None
            else f"`{publisher}` has a policy rule, and the event has no requirement",
            remedy=_narrower(answer.counterexample),
        )


def _narrower(example: Mapping[str, Value] | None) -> str:
    """What to do about a requirement that is too wide."""
    if example is None:
        return "write a requirement that is plainly narrower than the policy rule"
    shown = ", ".join(f"`${name} = {brief(plain(value))}`" for name, value in example.items() if value is not None)
    return f"narrow the requirement: the policy rule keeps out a receiver with {shown or 'no attributes'}"
