"""The writer of one gateway: a queue and a thread around the writer of the gateway's own stream.

Guarantees: what `commands.publishing.stream_writer` says of each submission. Requests that wait together are written in
one transaction. What a policy rule says of requirements is found out before a request waits for the writer, and never
in this process (`policy_rule_answers`): one request of a publisher is looked into at a time, within ASK_SECONDS; what
was not found out by then counts as no, for that request alone. What is small is decided when it comes, and again when
it is its turn if policy has changed in between. Memory is bounded: past `MAX_WAITING_EVENTS` requests are refused as
`too-busy`. While there are detections, the stream promises its clock even if nothing is written.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from headgate.commands.publishing.stream_writer import Attempt, Outcome, StreamWriter, too_late
from headgate.commands.publishing.submissions import Answers, Submission, SubmissionOutcome, Unasked
from headgate.gateway.http.worker_pool import Workers
from headgate.gateway.publishing.policy_rule_answers import TooLate, find
from headgate.model.errors import HeadgateError, TooBusy
from headgate.model.state import State
from headgate.pipeline.log.appends import hash_keys
from headgate.pipeline.tracing import span, tell

MAX_WAITING_EVENTS: Final = 200_000  # events that wait for the writer
MAX_GROUP: Final = 256  # requests written in one transaction
PROMISE_SECONDS: Final = 1.0  # how often the clock is promised, where no settings say so
_ASKS: Final = 5  # how often its publisher's policy rule is asked while that keeps changing

Waiting: TypeAlias = tuple[Attempt, asyncio.AbstractEventLoop, "asyncio.Future[SubmissionOutcome]"]


class Writer:
    """Writes one stream for everyone who publishes at a gateway."""

    def __init__(self, core: StreamWriter, workers: Workers, promise_every: float = PROMISE_SECONDS) -> None:
        self.core = core
        self._promise_every = promise_every
        self._waited_for: tuple[object, bool] = (None, False)
        self._asking = PolicyRuleCheck(workers)
        self._queue: queue.Queue[Waiting | None] = queue.Queue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"writer of {core.stream}", daemon=True)
        self._stopping = False

    def start(self) -> None:
        """Take the stream and begin to write."""
        hash_keys("", "", [""])  # what that loads, the first publisher would wait for
        self.core.take()
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, give the stream up and end."""
        with self._lock:  # nothing comes after it
            self._stopping = True
            self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self.core.release()
        self.core.log.close()

    async def publish(self, submission: Submission) -> SubmissionOutcome:
        """Store a submission; returns when it is durable."""
        if submission.size == 0:
            return SubmissionOutcome(0, frozenset(), {})
        with span("publish", stream=self.core.stream, events=submission.size) as made:
            outcome = await self._published(submission)
            refused, repeated = len(outcome.refusals), len(outcome.duplicates)
            tell(made, accepted=outcome.accepted, refused=refused, duplicates=repeated)
            return outcome

    async def _published(self, submission: Submission) -> SubmissionOutcome:
        for _ in range(_ASKS):
            with self._lock:
                if self._stopping or (self._waiting and self._waiting + submission.size > MAX_WAITING_EVENTS):
                    raise _too_busy()
                self._waiting += submission.size
            try:
                submission = await self._answered(submission)
            except BaseException:  # whatever it is, it no longer waits
                with self._lock:
                    self._waiting -= submission.size
                raise
            with suppress(Unasked):
                return await self._stored(Attempt(submission))
        raise too_late()

    async def _answered(self, submission: Submission) -> Submission:
        """With what the publisher's policy rule says of it, if there is one."""
        state, publisher, answers = self.core.known.state, submission.publisher, submission.answers
        if publisher not in state.policy_rules or answers is None or answers.is_for(state, publisher):
            return submission
        return replace(submission, answers=await self._asking.ask(state, publisher, submission.requirements()))

    async def _stored(self, attempt: Attempt) -> SubmissionOutcome:
        # Two threads of Python at the same columns take turns at every call into Arrow, which costs more than the work:
        # what takes little time is decided here, so that the writer's thread is left with writing.
        self.core.prepare(attempt)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[SubmissionOutcome] = loop.create_future()
        # After the other requests that are there already, so that they are written together.
        loop.call_soon(self._hand_over, (attempt, loop, future))
        return await future

    def _hand_over(self, waiting: Waiting) -> None:
        with self._lock:
            if not self._stopping:
                self._queue.put(waiting)
                return
            self._waiting -= waiting[0].submission.size
        _settle(waiting[2], _too_busy())

    # -- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                first = self._queue.get(timeout=min(self.core.lease / 3, self._promise_every))
            except queue.Empty:
                self.core.renew()
                self._promise()
                continue
            if first is None:
                break
            group = [first]
            ended = False
            while len(group) < MAX_GROUP and not ended:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    ended = True
                else:
                    group.append(more)
            self._write(group)
            if ended:
                break
            self.core.renew()
            self._promise()

    def _promise(self) -> None:
        """Promise the clock, while anybody waits for what did not happen."""
        subscriptions = self.core.known.state.subscriptions
        if self._waited_for[0] is not subscriptions:
            self._waited_for = subscriptions, any(one.detection is not None for one in subscriptions.values())
        if self._waited_for[1]:
            with suppress(HeadgateError):  # busy or full, or another has the stream: the next time will do
                self.core.promise_clock(self._promise_every)

    def _write(self, group: Sequence[Waiting]) -> None:
        attempts = [attempt for attempt, _, _ in group]
        outcomes = self.core.write(attempts)
        with self._lock:
            self._waiting -= sum(attempt.submission.size for attempt in attempts)
        for (_, loop, future), outcome in zip(group, outcomes, strict=True):
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, outcome)


def _too_busy() -> TooBusy:
    return TooBusy("too many events wait to be written", remedy="send them again a little later")


def _settle(future: asyncio.Future[SubmissionOutcome], outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


MAX_KNOWN: Final = 4_096  # answers that are remembered


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
