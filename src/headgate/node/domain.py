"""A domain's data directory: ledger, log, deliveries and signals; and the ledger as gateways follow it.

Guarantees (D7): a change is acknowledged once every stream has recorded its starting point; a crash in between is
completed when the domain is opened again, or by a `Follower` before the version shows there. A follower's state only
goes forward, its subscriptions have the numbers that the pipeline gives them, and it may be used from any thread.
Leaves out: publishing (`commands.publishing`) and reading what was delivered (`commands.delivery`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from headgate.decide.constraints import RoleFunction
from headgate.decide.deliver import Books
from headgate.decide.truth import PredicateFunction
from headgate.ledger import Ledger
from headgate.model.changes import Batch, RegisterPredicate
from headgate.model.errors import NotFound, NotInForce, StorageBusy, StorageFull
from headgate.model.events import Event
from headgate.model.rights import Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import Catalog
from headgate.node.processes import Use
from headgate.pipeline import SIGNALS
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.index import predicates
from headgate.pipeline.log.codec import AttributeSlot, decode, layouts
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.paths import Paths
from headgate.pipeline.spark.detecting import DetectionQuery
from headgate.pipeline.spark.jobs import Pipeline
from headgate.pipeline.spark.ledger_tail import LedgerTail

_SIGNALS_NUMBER: Final = 0  # the log counts its streams from 1


def utc_now() -> datetime:
    """The gateway's clock."""
    return datetime.now(UTC)


class Domain:
    """One domain on this machine."""

    def __init__(
        self, directory: Path, use: Use, ledger: Ledger, log: EventLog, store: DeliveryStore, signals: DeliveryStore
    ) -> None:
        self.paths = Paths(directory.absolute())  # Spark's workers may run in another directory
        self._use = use
        self.ledger = ledger
        self.log = log
        self.store = store
        self.signals = signals
        self._acknowledging = threading.Lock()
        ledger.functions = self.functions

    @classmethod
    def create(
        cls,
        directory: Path,
        clock: Callable[[], datetime] = utc_now,
        *,
        administrator: str = ADMINISTRATOR,
        database: str | None = None,
    ) -> Self:
        """Make a new, empty domain; with a `database`, that has its ledger and shared state."""
        directory.mkdir(parents=True, exist_ok=True)
        paths = Paths(directory)
        with ExitStack() as undo:
            use = undo.enter_context(closing(Use(directory)))
            place = database or paths.ledger
            ledger = undo.enter_context(closing(Ledger.create(place, administrator=administrator, clock=clock)))
            if database is not None:
                paths.keep_in(database, ledger.id)
            made = cls._with_files(directory, use, ledger)
            undo.pop_all()
        return made

    @classmethod
    def open(cls, directory: Path, clock: Callable[[], datetime] = utc_now) -> Domain:
        """Open a domain, completing what a crash left half acknowledged."""
        if not Paths(directory).has_ledger:
            raise NotFound(f"`{directory}` is not a domain", remedy="`headgate demo --keep DIR` makes one")
        with ExitStack() as undo:
            use = undo.enter_context(closing(Use(directory)))
            paths = Paths(directory)  # where its ledger is can no longer change
            ledger = undo.enter_context(closing(Ledger.open(paths.ledger, clock=clock)))
            paths.check_ledger(ledger.id)
            domain = cls._with_files(directory, use, ledger)
            domain.acknowledge(ledger.version)
            undo.pop_all()
        return domain

    @classmethod
    def _with_files(cls, directory: Path, use: Use, ledger: Ledger) -> Self:
        """With the other files, made where they are missing."""
        paths = Paths(directory)
        stores = DeliveryStore.create(paths.deliveries), DeliveryStore.create(paths.signals)
        return cls(directory, use, ledger, EventLog.create(paths.log), *stores)

    def close(self) -> None:
        """Let go of the files."""
        self.ledger.close()
        self.log.close()
        self.store.close()
        self.signals.close()
        self._use.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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

    def detecting(self, session: Any, *, checkpoint: str = "", token: int | None = None) -> DetectionQuery:
        """The detection query of this domain on a Spark session."""
        return DetectionQuery(session, self.paths, self.signals, checkpoint=checkpoint, token=token)

    def pipeline(self, session: Any, *, checkpoint: str = "", token: int | None = None) -> Pipeline:
        """The pipeline of this domain on a Spark session."""
        files = self.paths, self.ledger, self.log, self.store
        return Pipeline(session, *files, checkpoint=checkpoint, token=token)

    def event(self, stream: str, seq: int) -> Event:
        """One event of the log."""
        batch = self.log.append_holding(stream, seq)
        return decode(batch, layouts(self.ledger.state().types))[seq - batch.first]

    def events(self) -> list[Event]:
        """Every event of the log, stream by stream."""
        places = layouts(self.ledger.state().types)
        tails = self.log.tails()
        return [e for s, t in tails.items() for b in self.log.batches(s, 0, t.last) for e in decode(b, places)]


T = TypeVar("T")


class Follower:
    """Follows the ledger of a domain."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._tail = LedgerTail(domain.paths.ledger)
        self._log = EventLog.open(domain.paths.log, read_only=True)
        self._lock = threading.Lock()
        self._state = State(administrator=domain.ledger.administrator)
        self._numbers: dict[str, int] = {}
        self._opened = 0
        self._streams: dict[str, int] = {}
        self._places: tuple[Catalog, Mapping[str, Mapping[str, AttributeSlot]]] = (Catalog(), {})
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.refresh()

    def close(self) -> None:
        """Let go of the files."""
        self._tail.close()
        self._log.close()

    @property
    def state(self) -> State:
        """The newest state known here."""
        return self._state

    def behind(self) -> bool:
        """Is there a newer version? Cheap enough to ask often."""
        return self._tail.version != self._state.version

    def trimmed(self) -> dict[str, int]:
        """How far retention has taken each stream of the log."""
        with self._lock:
            return self._log.trimmed()

    def refresh(self) -> bool:
        """Look for a newer version; true if there was one."""
        with self._lock:
            if self._tail.version == self._state.version:
                return False
            state = self._domain.ledger.state()
            self._domain.acknowledge(state.version)
            changes = self._domain.ledger.subscriptions(self._state.version, state.version)
            numbers = dict(self._numbers)
            begun: dict[tuple[str, int], int] = {}
            for new in changes.opened:
                begun[new.id, new.first] = self._opened
                self._opened += 1
            for id, first, _ in changes.closed:
                if begun.pop((id, first), None) is None:
                    numbers.pop(id, None)
            numbers.update({id: number for (id, _), number in begun.items()})
            self._numbers, self._state = numbers, state
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            loop.call_soon_threadsafe(_wake, future)
        return True

    async def wait_for_change(self, timeout: float | None, after: int | None = None) -> bool:
        """Wait until there is a newer version than `after`, or than now; false after the time is up."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        entry = (loop, future)
        with self._lock:
            if after is not None and self._state.version > after:
                return True
            self._waiting.append(entry)
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return False
        finally:
            with self._lock:
                if entry in self._waiting:
                    self._waiting.remove(entry)
        return True

    # -- subscriptions and streams ----------------------------------------------------------------------------

    def subscription(self, id: str) -> Subscription | None:
        """The subscription in force by this name."""
        return self._state.subscriptions.get(id)

    def number(self, id: str) -> int:
        """The number of the subscription in force by this name, in order of opening."""
        return self._numbers[id]

    @property
    def places(self) -> Mapping[str, Mapping[str, AttributeSlot]]:
        """Where the attributes of every type sit."""
        types = self._state.types
        if self._places[0] is not types:
            self._places = types, layouts(types)
        return self._places[1]

    def starts(self, version: int) -> dict[str, int]:
        """The first event of each stream that a version, or a later one, applies to."""
        with self._lock:
            return self._log.starts_at(version)

    def stream_number(self, stream: str) -> int:
        """The number that positions have for a stream; it never changes. That of signals is none of the log's."""
        return _SIGNALS_NUMBER if stream == SIGNALS else self._stream(lambda known: known.get(stream))

    def stream_name(self, number: int) -> str | None:
        """The stream of a number, if there is one."""
        if number == _SIGNALS_NUMBER:
            return SIGNALS
        try:
            return self._stream(lambda known: next((s for s, n in known.items() if n == number), None))
        except KeyError:
            return None

    def _stream(self, find: Callable[[Mapping[str, int]], T | None]) -> T:
        streams = find(self._streams)
        if streams is None:
            with self._lock:
                self._streams = self._log.numbers()
            streams = find(self._streams)
        if streams is None:
            raise KeyError("no such stream")
        return streams


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
