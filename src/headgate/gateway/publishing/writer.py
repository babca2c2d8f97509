"""The writer of one gateway: admits what publishers send and appends it to the gateway's own stream.

Guarantees (D6, D7): what is answered as accepted is durable and was admitted at the version it is stamped with. An
event that a publisher sends again within the window, to whichever gateway, is stored once. Requests that wait together
are written in one transaction. `@rate` counts what all gateways of the domain have stored, this one's own requests of
the same write included; what another stores meanwhile is seen when it is written, and then it is decided again
(`pipeline.log.counts`). What a policy rule says of requirements is found out before a request waits for the
writer (`policy_rule_check`). What is small is decided when it comes, and again when it is its turn if policy has
changed in between; the times of a stream go forward as the clock does, and no event is given a time at which
something that its version still holds has ended. The stream is held by a lease; the fencing
token, not the lease, is what keeps another writer out. Memory is bounded: past `MAX_WAITING_EVENTS` requests are
refused as `too-busy`.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from headgate.decide.rates import Rates
from headgate.gateway.authority.expiry import StandingClock
from headgate.gateway.http.worker_pool import Workers
from headgate.gateway.publishing.policy_rule_check import PolicyRuleCheck, Unasked
from headgate.gateway.publishing.submissions import Submission, SubmissionOutcome
from headgate.model.changes import Advertise, Batch
from headgate.model.errors import (
    Fenced,
    HeadgateError,
    PublishDenied,
    StaleVersion,
    StreamHeld,
    TooBusy,
    UnknownName,
    UnknownType,
)
from headgate.model.state import State
from headgate.model.values import micros
from headgate.node.domain import Domain
from headgate.node.ledger_follower import Follower
from headgate.pipeline.admission.admission import Admission
from headgate.pipeline.log.appends import Append, Counted, Repeats
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.log.holders import holder_of_this_process, is_dead
from headgate.pipeline.log.recent import hash_keys

MAX_WAITING_EVENTS: Final = 200_000
"""Events that wait for the writer."""
MAX_GROUP: Final = 256
"""Requests written in one transaction."""
_TRIES: Final = 100
"""How often a request is decided anew while policy keeps changing under it."""
_ASKS: Final = 5
"""How often its publisher's policy rule is asked while that keeps changing."""

Waiting: TypeAlias = tuple[Submission, asyncio.AbstractEventLoop, "asyncio.Future[SubmissionOutcome]"]


class Writer:
    """Writes one stream."""

    def __init__(
        self,
        domain: Domain,
        follower: Follower,
        stream: str,
        *,
        window: float,
        lease: float,
        clock: Callable[[], datetime],
        standing: StandingClock | None = None,
        paced: Callable[[str], None] = lambda _: None,
        workers: Workers | None = None,
    ) -> None:
        self.stream = stream
        self.domain = domain
        self._follower = follower
        self._window = int(window * 1_000_000)
        self._lease = lease
        self._clock = clock
        self._paced = paced
        self._standing = standing or StandingClock(domain, follower, clock)
        self._log = EventLog.open(domain.paths.log)
        self._token: int | None = None
        self._held_until = 0.0
        self._written = 0  # the newest time of an append
        self._admission: Admission | None = None
        self._own_workers = Workers() if workers is None else None
        self._asking = PolicyRuleCheck(workers or self._own_workers or Workers())
        self._queue: queue.Queue[Waiting | None] = queue.Queue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"writer of {stream}", daemon=True)
        self._stopping = False

    def start(self) -> None:
        """Take the stream and begin to write."""
        hash_keys("", "", [""])  # what that loads, the first publisher would wait for
        self._take()
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, give the stream up and end."""
        with self._lock:  # nothing comes after it
            self._stopping = True
            self._queue.put(None)
        if self._own_workers is not None:
            self._own_workers.stop()
        if self._thread.is_alive():
            self._thread.join()
        if self._token is not None:
            self._log.release(self.stream, self._token)
        self._log.close()

    async def publish(self, submission: Submission) -> SubmissionOutcome:
        """Store a submission; returns when it is durable."""
        if submission.size == 0:
            return SubmissionOutcome(0, frozenset(), {})
        for _ in range(_ASKS):
            with self._lock:
                if self._stopping or (self._waiting and self._waiting + submission.size > MAX_WAITING_EVENTS):
                    raise _too_busy()
                self._waiting += submission.size
            try:
                await self._ask(submission)
            except BaseException:  # whatever it is, it no longer waits
                with self._lock:
                    self._waiting -= submission.size
                raise
            with suppress(Unasked):
                return await self._stored(submission)
        raise _late()

    async def _ask(self, submission: Submission) -> None:
        """Find out what the publisher's policy rule says, if it has one."""
        state, publisher = self._follower.state, submission.publisher
        if publisher in state.policy_rules and not submission.answers.is_for(state, publisher):
            submission.answers = await self._asking.ask(state, publisher, submission.requirements())

    async def _stored(self, submission: Submission) -> SubmissionOutcome:
        self._prepare(submission)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[SubmissionOutcome] = loop.create_future()
        # After the other requests that are there already, so that they are written together.
        loop.call_soon(self._hand_over, (submission, loop, future))
        return await future

    def _hand_over(self, waiting: Waiting) -> None:
        with self._lock:
            if not self._stopping:
                self._queue.put(waiting)
                return
            self._waiting -= waiting[0].size
        _settle(waiting[2], _too_busy())

    def _prepare(self, submission: Submission) -> None:
        """Decide and encode what takes little time at once, so that the writer's thread is left with writing.

        Two threads of Python at the same columns take turns at every call into Arrow, which costs more than the work.
        """
        admission = self._admission
        if admission is None or admission.state is not self._follower.state or not submission.is_quick(admission):
            return
        now = self._clock()
        if self._standing.overdue(admission.state):  # looked at after the event's time was taken
            return
        with suppress(Exception):  # whatever it is, the writer meets it again and answers
            submission.prepare(admission, now, self._window)

    # -- the writer's thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                first = self._queue.get(timeout=self._lease / 3)
            except queue.Empty:
                self._renew()
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
            self._answer(group)
            if ended:
                break
            self._renew()

    def _answer(self, group: Sequence[Waiting]) -> None:
        found = self._write([submission for submission, _, _ in group])
        with self._lock:
            self._waiting -= sum(submission.size for submission, _, _ in group)
        for (_, loop, future), one in zip(group, found, strict=True):
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, one)

    def _write(self, submissions: Sequence[Submission]) -> list[SubmissionOutcome | BaseException]:
        """Store each submission, or say why not."""
        answers: dict[int, SubmissionOutcome | BaseException] = {}
        left = dict(enumerate(submissions))
        for _ in range(_TRIES):
            try:
                self._once(left, answers)
            except Fenced:
                self._token = None
            except Exception as error:  # noqa: BLE001 - whatever it is, the publishers must hear of it
                answers.update(dict.fromkeys(left, error))
            left = {at: one for at, one in left.items() if at not in answers}
            if not left:
                break
        return [answers.get(at) or _late() for at in range(len(submissions))]

    def _once(self, left: dict[int, Submission], answers: dict[int, SubmissionOutcome | BaseException]) -> None:
        """Decide and append what is left, as one write; what has to be done again stays without an answer."""
        token = self._token if self._token is not None else self._take()
        admission = self._newest()
        now = self._clock()
        if self._standing.overdue(admission.state):  # nothing is decided by what has ended, not for a moment
            self._standing.settle()
            return
        counting = _Counting(self._log.counted(now) if admission.asks_rate else Rates(), now)
        for at, one in left.items():
            if one.is_ready(admission.state, self._written):
                continue
            try:
                one.decide(admission, now, counting.before)
            except (HeadgateError, Unasked) as error:
                answers[at] = error
            else:
                self._look_back(one, micros(now))
                counting.add(one, admission)
        if self._advertise(admission.state, left, answers):
            return
        appends: dict[int, Append] = {}
        for at, one in left.items():
            if at in answers:
                continue
            append = one.taken() or one.encode(admission.state.version, micros(now), self._window)
            if append is None:
                answers[at] = one.outcome()
            else:
                appends[at] = replace(append, counts=_counts(one)) if admission.asks_rate else append
        if not appends:
            return
        stored = self._log.append_many(self.stream, token, list(appends.values()))
        self._written = max(self._written, *(append.time for append in appends.values()))
        for at, answer in zip(appends, stored, strict=True):
            if isinstance(answer, int):
                answers[at] = left[at].outcome()
            elif isinstance(answer, Repeats):
                left[at].compare(answer.candidates, self._log)
            elif isinstance(answer, StaleVersion):
                self._follower.refresh()
            else:
                answers[at] = answer

    def _look_back(self, one: Submission, now: int) -> None:
        """Find what is denied now and was stored before, when the publisher had the right and got no answer."""
        asked = one.denied(now, self._window)
        if asked is not None:
            places, append = asked
            found = self._log.repeats(append)
            if found is not None:
                one.recall(places, found.candidates, self._log)

    def _newest(self) -> Admission:
        self._follower.refresh()
        state = self._follower.state
        if self._admission is None or self._admission.state is not state:
            self._admission = Admission(state, self.domain.predicates(state))
        return self._admission

    def _advertise(
        self, state: State, left: Mapping[int, Submission], answers: dict[int, SubmissionOutcome | BaseException]
    ) -> bool:
        """Make the advertisements that publishers left out; true if there were any, and so a new version.

        Whoever has made as many versions as it may is refused, and nobody else with it.
        """
        missing: dict[str, dict[str, None]] = {}
        places: dict[str, list[int]] = {}
        for at, one in left.items():
            for name in one.types() if at not in answers else ():
                line = state.types.lineage(name)
                if not any((one.publisher, ancestor) in state.advertisements for ancestor in line):
                    missing.setdefault(one.publisher, {})[name] = None
                    places.setdefault(one.publisher, []).append(at)
        made = False
        for publisher, names in missing.items():
            changes = tuple(Advertise(publisher, name) for name in names)
            try:
                self._paced(publisher)
                self.domain.commit(Batch(publisher, changes, "published without an advertisement"))
            except TooBusy as error:
                answers.update(dict.fromkeys(places[publisher], error))
                continue
            except (PublishDenied, UnknownType, UnknownName):
                pass  # the right, the type or the principal went meanwhile: it is decided anew
            made = True
        return made

    # -- what others ask --------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The newest state known here."""
        return self._follower.state

    def now(self) -> datetime:
        """The time that an event would be given."""
        return self._clock()

    def rate(self, publisher: str, type_name: str, now: datetime) -> int:
        """How many events of a type a publisher has had accepted of late in the domain."""
        return self._log.rate(publisher, type_name, now)

    # -- the lease --------------------------------------------------------------------------------------------

    def _take(self) -> int:
        now = self._clock()
        self._token = self._log.take(
            self.stream,
            self._follower.state.version,
            holder=holder_of_this_process(self.stream),
            now=micros(now),
            ttl=int(self._lease * 1_000_000),
            dead=is_dead,
        )
        self._held_until = now.timestamp() + self._lease
        self.domain.acknowledge(self._follower.state.version)
        return self._token

    def _renew(self) -> None:
        now = self._clock()
        if self._token is None or now.timestamp() < self._held_until - self._lease * 2 / 3:
            return
        try:
            self._log.renew(self.stream, self._token, micros(now), int(self._lease * 1_000_000))
            self._held_until = now.timestamp() + self._lease
        except (Fenced, StreamHeld):
            self._token = None  # taken again with the next request
        except HeadgateError:
            pass  # busy or full: the next try, or the fencing token, will tell

    @property
    def holds_stream(self) -> bool:
        """Does this gateway believe that it may write?"""
        return self._token is not None


class _Counting:
    """What was published of late, with what is about to be stored in the same write."""

    def __init__(self, rates: Rates, now: datetime) -> None:
        self._rates = rates
        self._now = now
        self._more: Counter[tuple[str, str]] = Counter()

    def before(self, publisher: str, type_name: str) -> int:
        """How many events there were before the next one."""
        return self._rates.lately(publisher, type_name, self._now) + self._more[publisher, type_name]

    def add(self, one: Submission, admission: Admission) -> None:
        """What a request had accepted counts for those after it."""
        for publisher, name, count in _counts(one) if admission.asks_rate else ():
            self._more[publisher, name] += count


def _counts(one: Submission) -> tuple[Counted, ...]:
    """How many events of each type a request had accepted."""
    return tuple((one.publisher, name, count) for name, count in one.counts())


def _late() -> StaleVersion:
    return StaleVersion("the policy, or the rate, keeps changing under this request", remedy="send it again")


def _too_busy() -> TooBusy:
    return TooBusy("too many events wait to be written", remedy="send them again a little later")


def _settle(future: asyncio.Future[SubmissionOutcome], found: SubmissionOutcome | BaseException) -> None:
    if future.done():
        return
    if isinstance(found, BaseException):
        future.set_exception(found)
    else:
        future.set_result(found)
