"""Is the node well? Facts read from its files, and what they mean.

Guarantees: `health` is a pure function of the facts. Failing means that events cannot be accepted; degraded, that they
are kept but come late, or that this will not last. Nothing here names a principal, a subscription or an event.
Leaves out: whether the answer reaches anybody; a process that hangs answers nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Final, Self

from headgate.model.errors import HeadgateError, NotFound
from headgate.model.values import micros
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.paths import Paths
from headgate.pipeline.spark.ledger_tail import LedgerTail, open_tail

STALL_SECONDS: Final = 30.0
"""How long an event may wait for its decision, with no micro-batch finished meanwhile, before that is said."""

SILENT_SECONDS: Final = 60.0
"""How long an issuer that is followed may be silent before that is said."""

LOW_BYTES: Final = 1 << 30
"""Room on the disk below which it is nearly full."""

NO_BYTES: Final = 64 << 20
"""Room on the disk below which nothing more should be accepted."""

CHORES: Final = "housekeeping.json"
"""What the last round of housekeeping did, for every process to read."""

MAX_CHORES_BYTES: Final = 65_536


class Status(Enum):
    """How a node is."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class Chores:
    """What housekeeping has done since its process began, and what keeps data from being removed."""

    at: int = 0
    rounds: int = 0
    trimmed_bytes: int = 0
    lost_events: int = 0
    holders: int = 0
    temporary_closed: int = 0
    sessions_forgotten: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What can be seen of a node at a moment. Times are seconds."""

    ledger_version: int = 0
    decided_version: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    waiting: float = 0.0
    """How long the oldest undecided event has waited."""
    since_batch: float | None = None
    """How long ago the last micro-batch was finished; None if none ever was."""
    batch_milliseconds: int = 0
    batch_events: int = 0
    log_bytes: int = 0
    deliveries_bytes: int = 0
    free_bytes: int = 1 << 62
    writable: bool = True
    holds_stream: bool = True
    chores: Chores = field(default_factory=Chores)
    silent: Mapping[str, float | None] = field(default_factory=dict)
    """How long each issuer that is followed has not been heard, by the name that the settings give it."""
    certificates: int = 0


@dataclass(frozen=True, slots=True)
class Health:
    """How a node is, and why if it is not well."""

    status: Status
    reasons: tuple[str, ...] = ()


def health(facts: NodeFacts) -> Health:
    """What the facts mean."""
    failing, degraded = [], []
    if not facts.writable:
        failing.append("the log cannot be written")
    if facts.free_bytes < NO_BYTES:
        failing.append("the disk is full")
    elif facts.free_bytes < LOW_BYTES:
        degraded.append(f"the disk is nearly full: {facts.free_bytes >> 20} MB are left")
    if not facts.holds_stream:
        failing.append("another writer has taken this gateway's stream")
    idle = facts.since_batch is None or facts.since_batch > STALL_SECONDS
    if facts.waiting > STALL_SECONDS and idle:
        behind = sum(facts.lag.values())
        degraded.append(f"the pipeline does not move: {behind} events wait, the oldest for {facts.waiting:.0f} s")
    for name, seconds in facts.silent.items():
        if seconds is None:
            degraded.append(f"the issuer {name} has not been heard")
        elif seconds > SILENT_SECONDS:
            degraded.append(f"the issuer {name} has been silent for {seconds:.0f} s")
    status = Status.FAILING if failing else Status.DEGRADED if degraded else Status.OK
    return Health(status, (*failing, *degraded))


class HealthWatch:
    """Looks at the files of a domain, with connections of its own. May be used from any thread, one at a time."""

    def __init__(self, paths: Paths, log: EventLog, store: DeliveryStore, ledger: LedgerTail) -> None:
        self._paths = paths
        self._log = log
        self._store = store
        self._ledger = ledger
        self._lock = threading.Lock()

    @classmethod
    def open(cls, data: Path) -> Self:
        """Look at a domain's data directory, which must hold all its files."""
        paths = Paths(data.absolute())
        if not paths.ledger.exists():
            raise NotFound(f"`{data}` is not a domain's data directory", remedy="`headgate init DIR` makes a domain")
        log = EventLog.open(paths.log, read_only=True)
        try:
            store = DeliveryStore.open(paths.deliveries, read_only=True)
        except HeadgateError:
            log.close()
            raise
        return cls(paths, log, store, open_tail(str(paths.ledger)))

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            self._ledger.close()
            self._log.close()
            self._store.close()

    def look(self, now: datetime, *, holds_stream: bool = True) -> NodeFacts:
        """The facts at this moment."""
        with self._lock:
            return self._look(micros(now), holds_stream)

    def _look(self, now: int, holds_stream: bool) -> NodeFacts:
        reached = self._store.reached()
        tails = self._log.tails()
        stats = self._store.stats(1)
        last = stats[-1] if stats else None
        return NodeFacts(
            ledger_version=self._ledger.version,
            decided_version=reached.version,
            lag={stream: max(0, tail.last - reached.streams.get(stream, 0)) for stream, tail in tails.items()},
            waiting=self._waiting(now, reached.streams),
            since_batch=None if last is None else max(0.0, (now - last.at) / 1e6),
            batch_milliseconds=0 if last is None else last.milliseconds,
            batch_events=0 if last is None else last.events,
            log_bytes=_size(self._paths.log),
            deliveries_bytes=_size(self._paths.deliveries),
            free_bytes=shutil.disk_usage(self._paths.directory).free,
            writable=os.access(self._paths.log, os.W_OK) and os.access(self._paths.directory, os.W_OK),
            holds_stream=holds_stream,
            chores=read_chores(self._paths.directory),
        )

    def _waiting(self, now: int, decided: Mapping[str, int]) -> float:
        oldest = now
        for stream, tail in self._log.tails().items():
            wanted = max(decided.get(stream, 0), tail.trimmed) + 1
            if wanted <= tail.last:
                oldest = min(oldest, self._log.append_holding(stream, wanted).time)
        return (now - oldest) / 1e6


def _size(path: Path) -> int:
    """Bytes of a file with what SQLite keeps beside it."""
    return sum(one.stat().st_size for one in (path, path.with_name(f"{path.name}-wal")) if one.exists())


# -- what housekeeping did ------------------------------------------------------------------------------------


def read_chores(data: Path) -> Chores:
    """What the last round of housekeeping left word of; nothing if there was none yet."""
    try:
        with (data / CHORES).open("rb") as file:
            said = json.loads(file.read(MAX_CHORES_BYTES))
        return Chores(**{name: int(said[name]) for name in Chores.__dataclass_fields__})
    except (OSError, ValueError, KeyError, TypeError):
        return Chores()


def write_chores(data: Path, chores: Chores) -> None:
    """Leave word for the other processes, all of it or nothing."""
    text = json.dumps({name: getattr(chores, name) for name in Chores.__dataclass_fields__})
    fresh = data / f"{CHORES}.new"
    fresh.write_text(text)
    fresh.replace(data / CHORES)
