"""A domain's data directory: ledger, log and deliveries, and what may be done to them.

Guarantees (D7): a change is acknowledged once every stream has recorded its starting point; a crash in between is
completed when the domain is opened again.
Leaves out: publishing (`commands.publishing`) and reading what was delivered (`commands.delivery`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headgate.decide.ask import Books
from headgate.decide.constraints import RoleFunction
from headgate.decide.truth import PredicateFunction
from headgate.ledger import Ledger
from headgate.model.changes import Batch, RegisterPredicate
from headgate.model.errors import (
    NotFound,
    NotInForce,
    StorageBusy,
    StorageFull,
)
from headgate.model.events import Event
from headgate.model.state import State
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.index import predicates
from headgate.pipeline.log.codec import decode, layouts
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.paths import Paths
from headgate.pipeline.spark.jobs import Pipeline


def utc_now() -> datetime:
    """The gateway's clock."""
    return datetime.now(UTC)


class Domain:
    """One domain on this machine."""

    def __init__(self, directory: Path, ledger: Ledger, log: EventLog, store: DeliveryStore) -> None:
        self.paths = Paths(directory.absolute())  # Spark's workers may run in another directory
        self.ledger = ledger
        self.log = log
        self.store = store
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

    # -- looking ----------------------------------------------------------------------------------------------

    def pipeline(self, session: Any) -> Pipeline:
        """The pipeline of this domain on a Spark session."""
        return Pipeline(session, self.paths, self.ledger, self.log, self.store)

    def event(self, stream: str, seq: int) -> Event:
        """One event of the log."""
        batch = self.log.append_holding(stream, seq)
        return decode(batch, layouts(self.ledger.state().types))[seq - batch.first]

    def events(self) -> list[Event]:
        """Every event of the log, stream by stream."""
        places = layouts(self.ledger.state().types)
        tails = self.log.tails()
        return [e for s, t in tails.items() for b in self.log.batches(s, 0, t.last) for e in decode(b, places)]
