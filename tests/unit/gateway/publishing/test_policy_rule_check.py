"""Asking about policy rules: within a time for each request, elsewhere, and each question once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pytest

from headgate.commands.publishing.submissions import Answers, Unasked
from headgate.gateway.http.worker_pool import Workers
from headgate.gateway.publishing.policy_rule_answers import find
from headgate.gateway.publishing.writer import PolicyRuleCheck
from headgate.lang import parse_condition
from headgate.model.errors import PolicyRuleDenied
from headgate.model.expressions import Condition
from headgate.model.state import State
from headgate.pipeline.index.requirements import text_of

RULE = parse_condition("$nation = 'NO' or $rank > 3")
NARROW, WIDE = parse_condition("$nation = 'NO'"), parse_condition("$rank > 1")


def state(rule: Condition = RULE) -> State:
    return State(principals={"till": {}, "other": {}}, policy_rules={"till": rule, "other": rule})


def answers_to(requirements: Iterable[Condition | None], **more: Any) -> Answers:
    return Answers(
        repr(RULE), find(RULE, "till", [None if one is None else text_of(one) for one in requirements], **more)
    )


def refused(answers: Answers, requires: Condition | None) -> str | None:
    try:
        answers.check(state(), "till", requires)
    except PolicyRuleDenied as error:
        return error.message
    return None


def test_an_answer_is_the_refusal_or_none() -> None:
    answers = answers_to([NARROW, WIDE, None])
    assert refused(answers, NARROW) is None
    assert "not wider" in str(refused(answers, WIDE))
    assert "no requirement" in str(refused(answers, None))


def test_what_was_not_asked_or_not_of_this_rule_is_no_answer() -> None:
    answers = answers_to([NARROW])
    with pytest.raises(Unasked):
        answers.check(state(), "till", WIDE)
    with pytest.raises(Unasked):
        answers.check(state(parse_condition("$nation = 'NO' or $rank > 3.0")), "till", NARROW)
    with pytest.raises(Unasked):
        Answers().check(state(), "till", NARROW)


def test_what_is_not_found_out_in_time_counts_as_no_for_that_request() -> None:
    many = [parse_condition(f"$nation = 'NO' and $rank > {n}") for n in range(10)]
    seconds = count()
    answers = answers_to(many, seconds=4, timer=lambda: float(next(seconds)))
    told = [refused(answers, one) for one in many]
    assert told[:3] == [None] * 3
    assert all("in time" in str(one) for one in told[3:])
    assert refused(answers_to(many), many[-1]) is None


class Here(Workers):
    """Does jobs at once, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[object, ...]] = []

    async def run(self, principal: str, work: Callable[..., Any], *args: Any) -> Any:
        self.asked.append((principal, *args))
        return work(*args)


def test_what_is_known_is_not_asked_again_and_what_was_late_is() -> None:
    async def run() -> None:
        workers = Here()
        asking = PolicyRuleCheck(workers)
        text = text_of(NARROW)
        for _ in range(2):
            assert refused(await asking.ask(state(), "till", [text, text]), NARROW) is None
        assert workers.asked == [("till", RULE, "till", [text])]
        found = await asking.ask(state(), "till", [text, None])
        assert refused(found, NARROW) is None
        assert "no requirement" in str(refused(found, None))
        assert workers.asked[1:] == [("till", RULE, "till", [None])]
        await asking.ask(state(WIDE), "till", [text])  # another rule is another question
        await asking.ask(state(), "other", [text])  # and so is another publisher, who is told of itself
        assert len(workers.asked) == 4

    asyncio.run(run())
