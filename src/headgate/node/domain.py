"""A domain's data directory: ledger, log and deliveries, and what may be done to them.

Guarantees (D7): an event is stored with the version it was admitted at, before `publish` returns; if the version moved
on meanwhile it is admitted again. A change is acknowledged once every stream has recorded its starting point; a crash
in between is completed when the domain is opened again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headgate.decide.ask import Books
from headgate.decide.constraints import RoleFunction
from headgate.decide.publish import admit, publish_entries
from headgate.decide.rates import asks_rate
from headgate.decide.truth import PredicateFunction
from headgate.ledger import Ledger
from headgate.model.changes import Batch, RegisterPredicate
from headgate.model.errors import (
    Fenced,
    HeadgateError,
    NotFound,
    NotInForce,
    StaleVersion,
    StorageBusy,
    StorageFull,
)
from headgate.model.events import Draft, Event
from headgate.model.rights import Rule
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.model.values import micros
from headgate.pipeline.deliveries.blobs import Delivered, read
from headgate.pipeline.deliveries.store import DeliveryStore
from headgate.pipeline.index import predicates
from headgate.pipeline.index.layout import layouts
from headgate.pipeline.log.codec import decode, encode
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.log.holders import is_dead
from headgate.pipeline.paths import Paths
from headgate.pipeline.spark.jobs import Pipeline
from headgate.solver.policy_rule import check_policy_rule

_TRIES = 100
"""How often an event is admitted again while administrators keep changing the policy under it."""


def utc_now() -> datetime:
    """The gateway's clock."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event with its place, or the refusal."""

    event: Event | None
    refusal: HeadgateError | None = None


class Domain:
    """One domain on this machine."""

    def __init__(self, directory: Path, ledger: Ledger, log: EventLog, store: DeliveryStore) -> None:
        self.paths = Paths(directory.absolute())  # Spark's workers may run in another directory
        self.ledger = ledger
        self.log = log
        self.store = store
        self._tokens: dict[str, int] = {}
        self._acknowledging = threading.Lock()
        ledger.functions = self.functions

    @classmethod
    def create(cls, directory: Path, clock: Callable[[], datetime] = utc_now) -> Domain:
        """Make a new, empty domain."""
        directory.mkdir(parents=True, exist_ok=True)
        paths = Paths(directory)
        ledger = Ledger.create(paths.ledger, clock=clock)
        return cls(directory, ledger, EventLog.create(paths.log), DeliveryStore.create(paths.deliveries))

    @classmethod
    def open(cls, directory: Path, clock: Callable[[], datetime] = utc_now) -> Domain:
        """Open a domain, completing what a crash left half acknowledged."""
        paths = Paths(directory)
        if not paths.ledger.exists():
            raise NotFound(f"`{directory}` is not a domain", remedy="`headgate demo --keep DIR` makes one")
        ledger = Ledger.open(paths.ledger, clock=clock)
        domain = cls(directory, ledger, EventLog.create(paths.log), DeliveryStore.create(paths.deliveries))
        domain.acknowledge(ledger.version)
        return domain

    def close(self) -> None:
        """Let go of the files."""
        self.ledger.close()
        self.log.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- changing ---------------------------------------------------------------------------------------------

    def commit(
        self,
        batch: Batch,
        *,
        expect: int | None = None,
        rebase: Callable[[State], Batch] | None = None,
        check: Callable[[State], None] | None = None,
    ) -> int:
        """Apply a batch (`Ledger.commit`); returns its version once every stream has its starting point."""
        version = self.ledger.commit(batch, expect=expect, rebase=rebase, check=check)
        try:
            self.acknowledge(version)
        except (StorageFull, StorageBusy) as error:
            raise NotInForce(
                f"version {version} is kept, but the log could not be written ({error.code})",
                remedy="do not send it again: it takes effect as soon as the log can be written",
            ) from error
        return version

    def acknowledge(self, version: int) -> None:
        """Give a version its starting point in every stream, and record it; whoever sees a version may complete it."""
        if version == 0:
            return
        with self._acknowledging:
            self.log.start(version)
            known = self.ledger.newest_starting_points()
            missing = self.log.starts(known)
            if missing:
                self.ledger.record_starting_points(missing)

    def register_predicate(self, name: str, target: str, beside: Path, within: Path | None = None) -> RegisterPredicate:
        """Keep a copy of a predicate's module, and run it; the change still has to be committed.

        This is the operator's alone: nothing that comes over the network names a module.
        """
        return predicates.register(name, target, beside, self.paths.predicates, within)

    def predicates(self, state: State) -> Mapping[str, PredicateFunction]:
        """The generic predicates of a state."""
        return predicates.load_all(state.predicates.values(), self.paths.predicates)

    def functions(self, state: State) -> Mapping[str, RoleFunction]:
        """The functions of role services: the predicates of a state, given the arguments alone."""
        return self.predicates(state)

    def books(self, now: State) -> Books:
        """What answers about decisions are drawn from, each state read once."""
        known = {now.version: now}

        def at(version: int) -> State:
            if version not in known:
                known[version] = self.ledger.state(version)
            return known[version]

        return Books(now, at, self.predicates)

    # -- publishing -------------------------------------------------------------------------------------------

    def publish(self, draft: Draft, *, stream: str = "main", now: datetime | None = None) -> Event:
        """Admit and store one event, or refuse it and store nothing."""
        (answer,) = self.publish_all([draft], stream=stream, now=now)
        if answer.refusal is not None:
            raise answer.refusal
        assert answer.event is not None
        return answer.event

    def publish_all(
        self, drafts: Sequence[Draft], *, stream: str = "main", now: datetime | None = None
    ) -> list[Accepted]:
        """Admit many events and store those accepted in one durable append, answered one by one."""
        for _ in range(_TRIES):
            try:
                return self._publish(drafts, stream, now or utc_now())
            except StaleVersion:
                continue
            except Fenced:
                self._tokens.pop(stream, None)
        raise StaleVersion(f"the policy keeps changing under `{stream}`", remedy="send the events again")

    def _publish(self, drafts: Sequence[Draft], stream: str, now: datetime) -> list[Accepted]:
        state = self.ledger.state()
        known = self.predicates(state)
        rules: dict[tuple[str, str], tuple[Rule, ...]] = {}
        answers: list[Event | HeadgateError] = []
        rates = self.log.counted(now) if asks_rate(state) else None
        counted: Counter[tuple[str, str]] = Counter()
        for draft in drafts:
            who = draft.publisher, draft.type
            if who not in rules:
                rules[who] = publish_entries(state, *who) if draft.type in state.types else ()
            rate = None if rates is None else rates.before(*who, now) + counted[who] + 1
            try:
                answers.append(
                    admit(
                        state,
                        draft,
                        now=now,
                        predicates=known,
                        rules=rules[who],
                        rate=rate,
                        policy_rule=check_policy_rule,
                    )
                )
                counted[who] += 1
            except HeadgateError as refusal:
                answers.append(refusal)
        accepted = [answer for answer in answers if isinstance(answer, Event)]
        if accepted:
            self._own(stream, state.version)
            blob = encode(accepted, layouts(state.types))
            counts = None if rates is None else tuple((*who, number) for who, number in counted.items())
            token = self._tokens[stream]
            first = self.log.append(stream, token, state.version, micros(now), len(accepted), blob, counts=counts)
            places = count(first)
        return [
            Accepted(None, answer)
            if isinstance(answer, HeadgateError)
            else Accepted(replace(answer, stream=stream, seq=next(places)))
            for answer in answers
        ]

    def _own(self, stream: str, version: int) -> None:
        """Be the writer of a stream."""
        if stream not in self._tokens:
            now = micros(utc_now())  # leases are about this machine's time, whatever time the events are given
            self._tokens[stream] = self.log.take(check_name("stream", stream), version, now=now, dead=is_dead)
            self.acknowledge(version)

    # -- looking ----------------------------------------------------------------------------------------------

    def pipeline(self, session: Any) -> Pipeline:
        """The pipeline of this domain on a Spark session."""
        return Pipeline(session, self.paths, self.ledger, self.log, self.store)

    def deliveries(self) -> list[tuple[str, Delivered]]:
        """Everything delivered, with the id of the subscription, in order of stream and sequence number."""
        names = [subscription.id for subscription, _ in self.ledger.all_subscriptions(self.ledger.version)]
        places = layouts(self.ledger.state().types)
        found = [(names[d.subscription], d) for blob in self.store.blobs() for d in read(blob, places)]
        return sorted(found, key=lambda one: (one[1].stream, one[1].seq))

    def event(self, stream: str, seq: int) -> Event:
        """One event of the log."""
        batch = self.log.append_holding(stream, seq)
        return decode(batch, layouts(self.ledger.state().types))[seq - batch.first]

    def events(self) -> list[Event]:
        """Every event of the log, stream by stream."""
        places = layouts(self.ledger.state().types)
        tails = self.log.tails()
        return [e for s, t in tails.items() for b in self.log.batches(s, 0, t.last) for e in decode(b, places)]
