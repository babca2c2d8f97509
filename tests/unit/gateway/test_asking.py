"""Asking about policy rules: within a time for each request, and nobody waits for another's questions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import count

import pytest

from headgate.gateway.asking import MAX_ASKING, Answers, Asking, Unasked, find
from headgate.lang import parse_condition
from headgate.model.conditions import Condition
from headgate.model.errors import PolicyRuleDenied, TooBusy
from headgate.model.state import State

RULE = parse_condition("$nation = 'NO' or $rank > 3")
NARROW, WIDE = parse_condition("$nation = 'NO'"), parse_condition("$rank > 1")


def state(rule: Condition = RULE) -> State:
    return State(principals={"till": {}, "other": {}}, policy_rules={"till": rule, "other": rule})


def refused(answers: Answers, requires: Condition | None) -> str | None:
    try:
        answers.check(state(), "till", requires)
    except PolicyRuleDenied as error:
        return error.message
    return None


def test_an_answer_is_the_refusal_or_none() -> None:
    answers = find(state(), "till", lambda: [NARROW, WIDE, None])
    assert refused(answers, NARROW) is None
    assert "not wider" in str(refused(answers, WIDE))
    assert "no requirement" in str(refused(answers, None))


def test_what_was_not_asked_or_not_of_this_rule_is_no_answer() -> None:
    answers = find(state(), "till", lambda: [NARROW])
    with pytest.raises(Unasked):
        answers.check(state(), "till", WIDE)
    with pytest.raises(Unasked):
        answers.check(state(parse_condition("$nation = 'NO' or $rank > 3.0")), "till", NARROW)
    with pytest.raises(Unasked):
        Answers().check(state(), "till", NARROW)


def test_what_is_not_found_out_in_time_counts_as_no_for_that_request() -> None:
    many = [parse_condition(f"$nation = 'NO' and $rank > {n}") for n in range(10)]
    seconds = count()
    answers = find(state(), "till", lambda: many, seconds=4, timer=lambda: float(next(seconds)))
    told = [refused(answers, one) for one in many]
    assert told[:3] == [None] * 3
    assert all("in time" in str(one) for one in told[3:])
    assert refused(find(state(), "till", lambda: many), many[-1]) is None


def test_nobody_waits_for_anothers_questions_and_one_publishers_are_bounded() -> None:
    let_go = threading.Event()

    def slow() -> Iterator[Condition | None]:
        assert let_go.wait(20)
        yield NARROW

    async def run() -> list[Answers]:
        asking = Asking()
        try:
            waiting = [asyncio.ensure_future(asking.ask(state(), "till", slow)) for _ in range(MAX_ASKING)]
            await asyncio.sleep(0)
            with pytest.raises(TooBusy):
                await asking.ask(state(), "till", slow)
            other = await asking.ask(state(), "other", lambda: [NARROW])
            assert not any(one.done() for one in waiting)
            let_go.set()
            return [other, *await asyncio.gather(*waiting)]
        finally:
            let_go.set()
            asking.stop()

    assert len(asyncio.run(run())) == MAX_ASKING + 1


def test_it_is_refused_once_it_has_stopped() -> None:
    async def run() -> None:
        asking = Asking()
        asking.stop()
        await asking.ask(state(), "till", lambda: [NARROW])

    with pytest.raises(TooBusy):
        asyncio.run(run())
