"""Is a publisher's policy rule wider than what its events ask of receivers? Found out before it is the writer's turn.

Guarantees: no such question is ever put in the writer's thread, so that nobody waits for another's. A request has
ASK_SECONDS, and the answer that is being sought then; what was not found out by then counts as no, for that request
alone. One question of a publisher is looked into at a time, and past MAX_ASKING requests it is refused as `too-busy`.
An answer is for one rule: where that has changed meanwhile, it is asked anew (`Unasked`).
Leaves out: how it is found out (`decide.wider`), which remembers its answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from headgate.decide.publish import check_policy_rule
from headgate.model.conditions import Condition
from headgate.model.errors import HeadgateError, PolicyRuleDenied, TooBusy
from headgate.model.state import State

ASK_SECONDS: Final = 2.0
"""How long the questions of one request may take together, before another is begun."""
ASKING_THREADS: Final = 2
MAX_ASKING: Final = 16
"""Requests of one publisher that wait for answers."""


class Unasked(Exception):
    """The policy rule of a publisher is not the one that was asked about."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a policy rule says of some requirements: the refusal, or None where it is wider."""

    rule: str = ""
    found: Mapping[str, HeadgateError | None] = field(default_factory=dict)

    def is_for(self, state: State, publisher: str) -> bool:
        """Is this still the rule?"""
        return repr(state.policy_rules.get(publisher)) == self.rule

    def check(self, state: State, publisher: str, requires: Condition | None) -> None:
        """Refuse a requirement, as `decide.publish.check_policy_rule` does."""
        if not self.is_for(state, publisher) or repr(requires) not in self.found:
            raise Unasked
        refusal = self.found[repr(requires)]
        if refusal is not None:
            raise PolicyRuleDenied(refusal.message, remedy=refusal.remedy)


NO_ANSWERS: Final = Answers()


def find(
    state: State,
    publisher: str,
    requirements: Callable[[], Iterable[Condition | None]],
    seconds: float = ASK_SECONDS,
    timer: Callable[[], float] = time.monotonic,
) -> Answers:
    """Find out what can be found out in time."""
    found: dict[str, HeadgateError | None] = {}
    end = timer() + seconds
    for one in requirements():
        if timer() >= end:
            found[repr(one)] = _too_late(publisher)
            continue
        try:
            check_policy_rule(state, publisher, one)
        except HeadgateError as refusal:
            found[repr(one)] = refusal
        else:
            found[repr(one)] = None
    return Answers(repr(state.policy_rules.get(publisher)), found)


def _too_late(publisher: str) -> PolicyRuleDenied:
    return PolicyRuleDenied(
        f"it was not found out in time whether the policy rule of `{publisher}` is wider than the requirement",
        remedy="send events with fewer different requirements in one request",
    )


@dataclass
class _Turn:
    """The requests of one publisher, one after another."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Asking:
    """Finds answers for requests, in threads of its own. Used from one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(ASKING_THREADS, thread_name_prefix="policy-rules")
        self._turns: dict[str, _Turn] = {}

    def stop(self) -> None:
        """Answer nothing more."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def ask(
        self, state: State, publisher: str, requirements: Callable[[], Iterable[Condition | None]]
    ) -> Answers:
        """What the publisher's policy rule says of the requirements of a request."""
        turn = self._turns.setdefault(publisher, _Turn())
        if turn.waiting >= MAX_ASKING:
            raise TooBusy(f"requests of `{publisher}` wait for its policy rule", remedy="send them one after another")
        turn.waiting += 1
        try:
            async with turn.lock:
                try:
                    found = self._threads.submit(find, state, publisher, requirements)
                except RuntimeError:  # it has stopped
                    raise TooBusy("the gateway is stopping", remedy="send it to another") from None
                return await asyncio.wrap_future(found)
        finally:
            turn.waiting -= 1
            if turn.waiting == 0:
                self._turns.pop(publisher, None)
