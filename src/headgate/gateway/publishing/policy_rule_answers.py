"""Which requirements is a policy rule wider than? Found out within a time, wherever there is time for it (D11).

Guarantees: pure but for the clock. What was not found out in time counts as no, and says so (`TooLate`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final

from headgate.lang import parse_condition
from headgate.model.errors import HeadgateError, PolicyRuleDenied
from headgate.model.expressions import Condition
from headgate.model.state import State
from headgate.solver import check_policy_rule

ASK_SECONDS: Final = 2.0  # how long the questions of one request may take together, before another is begun


class TooLate(PolicyRuleDenied):
    """Not found out in time: another request may be luckier."""


def find(
    rule: Condition | None,
    publisher: str,
    texts: Iterable[str | None],
    seconds: float = ASK_SECONDS,
    timer: Callable[[], float] = time.monotonic,
) -> dict[str | None, HeadgateError | None]:
    """The refusal of each requirement, or None where the rule is wider; None is what an event without any asks for."""
    import_module("z3")  # the first time it takes long, and that is not what the time is for
    state = State(policy_rules={} if rule is None else {publisher: rule})
    refusals: dict[str | None, HeadgateError | None] = {}
    end = timer() + seconds
    for text in texts:
        if timer() >= end:
            refusals[text] = TooLate(
                f"it was not found out in time whether the policy rule of `{publisher}` is wider than the requirement",
                remedy="send events with fewer different requirements in one request",
            )
            continue
        try:
            check_policy_rule(state, publisher, None if text is None else parse_condition(text))
        except HeadgateError as refusal:
            refusals[text] = refusal
        else:
            refusals[text] = None
    return refusals
