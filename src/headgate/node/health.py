"""Is the node well? Facts read from its files, what they mean, and figures for Prometheus.

Guarantees: `health` is a pure function of the facts. Failing means that events cannot be accepted; degraded, that they
are kept but come late, that a process is away or in trouble while the others serve, or that this will not last.
Nothing here names a principal, a subscription, an event or a path: labels are refusal codes, route templates, statuses,
methods, streams, event types, processes, the issuers of the settings and the peers of the ledger, and there are never
more than MAX_LABELS of one kind, the rest being counted as `other`. Only the operator's own `doctor` is told which
publisher holds back a type (`horizon_lags`).
Counters are of one process and begin at zero with it, or with what the files say has come about until then (`reach`);
gauges are what the files say when they are asked for.
Leaves out: whether the answer reaches anybody. A process that hangs answers nothing; another gateway says so of it.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final, Self, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from headgate.decide.derived import DERIVED
from headgate.model.errors import NotFound, RoleFailure
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import micros
from headgate.node.derived_progress import refused_signals
from headgate.node.peers import PeerStatus
from headgate.node.process_status import ProcessStatus, read_processes
from headgate.pipeline import SIGNALS
from headgate.pipeline.deliveries import DeliveryStore, Remark
from headgate.pipeline.detect.signals import STOPS
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.log.promises import ALL_TYPES, Promised
from headgate.pipeline.paths import Paths
from headgate.pipeline.spark.ledger_tail import LedgerTail

STALL_SECONDS: Final = 30.0
"""How long an event may wait for its decision, with no micro-batch finished meanwhile, before that is said."""

HUNG_SECONDS: Final = 15.0  # how long ago a gateway's lease of its stream may have ended before that is said
SILENT_SECONDS: Final = 60.0  # how long an issuer that is followed may be silent before that is said
LOW_BYTES: Final = 1 << 30  # room on the disk below which it is nearly full
NO_BYTES: Final = 64 << 20  # room on the disk below which nothing more should be accepted
CHORES: Final = "housekeeping.json"  # what the last round of housekeeping did, for every process to read
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
    waiting: float = 0.0  # how long the oldest undecided event has waited
    since_batch: float | None = None  # how long ago the last micro-batch was finished; None if none ever was
    batch_milliseconds: int = 0
    batch_events: int = 0
    log_bytes: int = 0
    deliveries_bytes: int = 0
    signals_bytes: int = 0
    detections: int = 0
    signals: int = 0  # how many there ever were
    stopped: int = 0  # detections that came to a limit, or failed
    underived: int = 0  # how many of these should have made an event or a row, and were refused that
    undetected: Mapping[str, int] = field(default_factory=dict)  # events that detections have not been put to yet
    undetected_for: float = 0.0  # how long the oldest of these has waited
    free_bytes: int = 1 << 62
    writable: bool = True
    holds_stream: bool = True
    chores: Chores = field(default_factory=Chores)
    silent: Mapping[str, float | None] = field(default_factory=dict)
    """How long each issuer that is followed has not been heard, by the name that the settings give it."""
    certificates: int = 0
    processes: Mapping[str, ProcessStatus] = field(default_factory=dict)  # those of the node, if it is known
    lapsed: Mapping[str, float] = field(default_factory=dict)
    """How long ago the lease of each stream ended whose writer has not given it up."""


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
    for name, process in facts.processes.items():
        if process.is_away:
            degraded.append(f"{name} is away and will be started again: {process.reason}")
        elif process.ready and facts.lapsed.get(name, 0.0) > HUNG_SECONDS:
            degraded.append(f"{name} hangs: it should have renewed its lease {facts.lapsed[name]:.0f} s ago")
        degraded += (f"{what} fail and are tried again: {why}" for what, why in process.failing.items())
    idle = facts.since_batch is None or facts.since_batch > STALL_SECONDS
    if facts.waiting > STALL_SECONDS and idle:
        behind = sum(facts.lag.values())
        degraded.append(f"the pipeline does not move: {behind} events wait, the oldest for {facts.waiting:.0f} s")
    if facts.undetected_for > STALL_SECONDS:
        behind = sum(facts.undetected.values())
        degraded.append(f"detections come late: {behind} events wait, the oldest for {facts.undetected_for:.0f} s")
    for name, seconds in facts.silent.items():
        if seconds is None:
            degraded.append(f"the issuer {name} has not been heard")
        elif seconds > SILENT_SECONDS:
            degraded.append(f"the issuer {name} has been silent for {seconds:.0f} s")
    status = Status.FAILING if failing else Status.DEGRADED if degraded else Status.OK
    return Health(status, (*failing, *degraded))


class HealthWatch:
    """Looks at the files of a domain, with connections of its own. May be used from any thread, one at a time."""

    def __init__(
        self, paths: Paths, log: EventLog, store: DeliveryStore, signals: DeliveryStore | None, ledger: LedgerTail
    ) -> None:
        self._paths = paths
        self._log = log
        self._store = store
        self._signals = signals
        self._ledger = ledger
        self._lock = threading.Lock()

    @classmethod
    def open(cls, data: Path) -> Self:
        """Look at a domain's data directory, which must hold all its files."""
        paths = Paths(data.absolute())
        if not paths.has_ledger:
            raise NotFound(f"`{data}` is not a domain's data directory", remedy="`headgate init DIR` makes a domain")
        log = EventLog.open(paths.log, read_only=True)
        with ExitStack() as undo:
            undo.callback(log.close)
            store = DeliveryStore.open(paths.deliveries, read_only=True)
            undo.callback(store.close)
            # Made when a domain is opened that has none from before there were any.
            signals = DeliveryStore.open(paths.signals, read_only=True) if paths.signals.exists() else None
            undo.pop_all()
        return cls(paths, log, store, signals, LedgerTail(paths.ledger))

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            self._ledger.close()
            self._log.close()
            self._store.close()
            if self._signals is not None:
                self._signals.close()

    def look(self, now: datetime, *, holds_stream: bool = True) -> NodeFacts:
        """The facts at this moment."""
        with self._lock:
            return self._look(micros(now), holds_stream)

    def promised(self) -> Promised:
        """What streams and publishers have promised."""
        with self._lock:
            return self._log.horizons()

    def remarks(self) -> list[Remark]:
        """What is to be said of detections: why they stopped, and what they could not do."""
        with self._lock:
            return [] if self._signals is None else self._signals.remarks()

    def _look(self, now: int, holds_stream: bool) -> NodeFacts:
        reached = self._store.reached()
        tails = self._log.tails()
        stats = self._store.stats(1)
        last = stats[-1] if stats else None
        detections = self._ledger.detections()
        signalled = {} if self._signals is None else self._signals.reached().streams
        looked_at = signalled if detections else {stream: tail.last for stream, tail in tails.items()}
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
            signals_bytes=_size(self._paths.signals),
            detections=detections,
            signals=signalled.get(SIGNALS, 0),
            stopped=0 if self._signals is None else sum(one.code in STOPS for one in self._signals.remarks()),
            underived=sum(one.count for one in refused_signals(self._paths)),
            undetected={stream: max(0, tail.last - looked_at.get(stream, 0)) for stream, tail in tails.items()},
            undetected_for=self._waiting(now, looked_at),
            free_bytes=shutil.disk_usage(self._paths.directory).free,
            writable=os.access(self._paths.log, os.W_OK) and os.access(self._paths.directory, os.W_OK),
            holds_stream=holds_stream,
            chores=read_chores(self._paths.directory),
            processes=read_processes(self._paths.directory),
            lapsed={stream: (now - end) / 1e6 for stream, end in self._log.leases().items() if end < now},
        )

    def _waiting(self, now: int, decided: Mapping[str, int]) -> float:
        oldest = now
        for stream, tail in self._log.tails().items():
            wanted = max(decided.get(stream, 0), tail.trimmed) + 1
            if wanted <= tail.last:
                oldest = min(oldest, self._log.append_holding(stream, wanted).time)
        return (now - oldest) / 1e6


@dataclass(frozen=True, slots=True)
class HorizonLag:
    """How many seconds what a stream promises for a type is behind the clock, and who holds it back.

    The type `*` is what the stream promises itself, for all types that publishers state no times of.
    """

    stream: str
    type: str
    seconds: float
    publisher: str


def horizon_lags(promised: Promised, types: Catalog, now: datetime) -> list[HorizonLag]:
    """What holds back what: the least of the promises for each type, stream by stream."""

    def behind(horizon: int) -> float:
        return (micros(now) - horizon) / 1e6

    lags = [HorizonLag(stream, ALL_TYPES, behind(horizon), "") for stream, horizon in promised.streams.items()]
    for stream, name in sorted(promised.joined):
        if name in types:
            who, horizon = min(promised.sources(stream, name, types.times(name)), key=itemgetter(1, 0))
            lags.append(HorizonLag(stream, name, behind(horizon), who))
    return lags


def waits_for(lag: HorizonLag, lags: Iterable[HorizonLag], state: State) -> HorizonLag | None:
    """The source that holds back what detections publish; None if it is no such event that is held back."""
    if lag.stream != DERIVED or not lag.publisher:
        return None
    others = [one for one in lags if one.stream != DERIVED]
    seen, left = set[str](), [lag.type]
    for type in left:
        for one in state.subscriptions.values():
            if one.detection is not None and one.detection.publishes == type:
                fresh = [name for name in one.types if name not in seen]
                seen.update(fresh)
                left += fresh
    mine = [one for one in others if one.type == ALL_TYPES or any(_is_kin(state.types, one.type, a) for a in seen)]
    return max(mine, key=lambda one: (one.seconds, one.type != ALL_TYPES), default=None)


def _is_kin(types: Catalog, name: str, other: str) -> bool:
    return name in types and other in types and types.is_a(name, other)


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


CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
MAX_LABELS: Final = 200  # different values of one label
OTHER: Final = "other"
disable_created_metrics()  # type: ignore[no-untyped-call]  # when each counter began is when the process did
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SILENCE: Final = "has not been heard; -1 if it never was."

_OF_NODE: Final = (
    (Gauge, "ledger_version", "The newest version of the ledger.", "ledger_version"),
    (Gauge, "decided_version", "The version through which the pipeline has decided.", "decided_version"),
    (Gauge, "lag_seconds", "How long the oldest undecided event has waited.", "waiting"),
    (Gauge, "batch_milliseconds", "How long the last micro-batch of the pipeline took.", "batch_milliseconds"),
    (Gauge, "batch_events", "Events of the last micro-batch.", "batch_events"),
    (Gauge, "detections", "Detections in force.", "detections"),
    (Gauge, "detections_stopped", "How many detections have come to a limit, or failed.", "stopped"),
    (Gauge, "detection_lag_seconds", "How long the oldest event that no detection saw yet waits.", "undetected_for"),
    (Counter, "signals", "Signals of detections.", "signals"),
    (Counter, "signals_refused", "Signals that were to make an event or a row, which was refused.", "underived"),
    (Gauge, "disk_free_bytes", "Room that is left on the disk.", "free_bytes"),
    (Gauge, "certificates", "Certificates that stand.", "certificates"),
    (Gauge, "retention_holders", "Subscriptions that keep data past its limit.", "chores.holders"),
    (Counter, "retention_lost_events", "Events removed before an absent subscriber saw them.", "chores.lost_events"),
    (Counter, "retention_trimmed_bytes", "Bytes removed by retention.", "chores.trimmed_bytes"),
)
"""Figures with the fact of `NodeFacts` that each tells."""

_SERVICE: Final = "a service of another domain"
_OF_PEERS: Final = (
    (Gauge, "peer_silence_seconds", f"How long {_SERVICE} {_SILENCE}", "seconds"),
    (Gauge, "peer_bound_seconds", f"For how long the silence of {_SERVICE} is borne.", "bound"),
    (Gauge, "peer_records", f"Records of {_SERVICE} that something here rests on.", "records"),
    (Gauge, "peer_records_unknown", "Those of them of which nothing is known now.", "unknown"),
    (Counter, "peer_messages_lost", f"Messages of {_SERVICE} that were lost, and made up for.", "counts.lost"),
    (Counter, "peer_messages_duplicated", f"Messages of {_SERVICE} that came again.", "counts.duplicated"),
    (Counter, "peer_messages_late", f"Messages of {_SERVICE} from before it began anew.", "counts.late"),
)
"""Figures with the part of `PeerStatus` that each tells."""


class Figure:
    """A counter or gauge; of each of its labels MAX_LABELS values are told apart. To call it is to count one."""

    def __init__(self, metric: Counter | Gauge, seen: Sequence[set[str]]) -> None:
        self._metric = metric
        self._seen = seen
        self._totals: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()

    def __call__(self, *labels: str) -> None:
        """One more."""
        self.add(1, *labels)

    def add(self, count: float, *labels: str) -> None:
        """So many more."""
        self._of(labels).inc(count)

    def reach(self, value: float | None, *labels: str) -> None:
        """It is so much by now, or unknown; of what is counted elsewhere, less than before means that it began anew."""
        value = -1 if value is None else value
        if isinstance(self._metric, Gauge):
            self._of(labels).set(value)
            return
        with self._lock:
            last = self._totals.get(labels, 0)
            self._totals[labels] = value
        self._of(labels).inc(value - last if value >= last else value)

    def _of(self, labels: Sequence[str]) -> Any:
        told = [label if self._is_told(label, seen) else OTHER for label, seen in zip(labels, self._seen, strict=True)]
        return self._metric.labels(*told) if told else self._metric

    @staticmethod
    def _is_told(label: str, seen: set[str]) -> bool:
        if label not in seen and len(seen) < MAX_LABELS:
            seen.add(label)
        return label in seen


class Metrics:
    """The figures of one process. Counting may be done from any thread."""

    def __init__(self) -> None:
        self.registry = made = CollectorRegistry(auto_describe=True)
        seen: defaultdict[str, set[str]] = defaultdict(set)

        def figure(kind: type[Counter | Gauge], name: str, words: str, *labels: str) -> Figure:
            return Figure(kind(f"headgate_{name}", words, labels, registry=made), [seen[label] for label in labels])

        self.published = Histogram(
            "headgate_publish_seconds", "From a request to publish to its answer.", registry=made, buckets=_BUCKETS
        )
        self.sockets = Gauge("headgate_sockets", "WebSockets that are open.", registry=made)
        self.sessions = Gauge("headgate_sessions", "Sessions that this gateway knows of.", registry=made)
        self._events = figure(Counter, "events", "Events that publishers sent, by outcome.", "outcome")
        self._refusals = figure(Counter, "events_refused", "Events refused, by code.", "code")
        self.delivered = figure(Counter, "deliveries_pushed", "Deliveries sent to subscribers.")
        self.acked = figure(Counter, "acknowledgements", "Positions that subscribers acknowledged.")
        ended = "Requests and WebSockets that have ended, by route."
        self._requests = figure(Counter, "requests", ended, "method", "route", "status")
        self.session_opened = figure(Counter, "sessions_opened", "Sessions begun.")
        self.session_refused = figure(Counter, "sessions_refused", "Sessions refused, by code.", "code")
        self.denied = figure(Counter, "denials", "Requests refused, by code.", "code")
        turned = "Connections closed at the door, by reason."
        self.turned_away = figure(Counter, "connections_turned_away", turned, "reason")
        refused = "Signed statements refused, by reason."
        self.statement_refused = figure(Counter, "statements_refused", refused, "reason")
        self.role_denied = figure(Counter, "role_failures", "Roles denied, by class.", "failure")
        self.list_heard = figure(Counter, "revocations_heard", "Revocation lists that were news.")
        silence = f"How long an issuer that is followed {_SILENCE}"
        self._silent = figure(Gauge, "issuer_silence_seconds", silence, "issuer")
        self._lag = figure(Gauge, "lag_events", "Events not decided yet, by stream.", "stream")
        unseen = "Events that detections have not been put to yet, by stream."
        self._undetected = figure(Gauge, "detection_lag_events", unseen, "stream")
        horizon = "How far what a stream promises for a type is behind the clock; `*` is what it promises itself."
        self._horizons = figure(Gauge, "horizon_lag_seconds", horizon, "stream", "type")
        ready = "1 for a process of the node that is ready, 0 for one that is away or starting."
        self._ready = figure(Gauge, "process_ready", ready, "process")
        self._restarts = figure(Counter, "process_restarts", "How often a process was started again.", "process")
        self._failing = figure(Gauge, "process_failing", "What fails of a process that runs.", "process")
        self._bytes = figure(Gauge, "file_bytes", "Bytes of a file on disk.", "file")
        self._status = figure(Gauge, "health", "1 for the state that the node is in.", "status")
        self._of_node = [(figure(kind, name, words), attrgetter(fact)) for kind, name, words, fact in _OF_NODE]
        self._of_peers = [
            (figure(kind, name, words, "peer"), attrgetter(part)) for kind, name, words, part in _OF_PEERS
        ]
        for outcome in ("accepted", "duplicate", "refused"):
            self._events.add(0, outcome)
        for failure in get_args(RoleFailure):
            self.role_denied.add(0, failure)

    def count_events(self, accepted: int, duplicates: int, refused: Mapping[str, int]) -> None:
        """Events were stored, had been stored before, or were refused, by code."""
        self._events.add(accepted, "accepted")
        self._events.add(duplicates, "duplicate")
        for code, count in refused.items():
            self._events.add(count, "refused")
            self._refusals.add(count, code)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:  # noqa: ARG002
        """A request was answered, or a WebSocket has ended; an observer for `logs.AccessLog`."""
        self._requests(method, route, str(status))

    def observe(self, facts: NodeFacts) -> None:
        """Take in what the files say."""
        for figure, fact in self._of_node:
            figure.reach(fact(facts))
        for stream, lag in facts.lag.items():
            self._lag.reach(lag, stream)
        self._bytes.reach(facts.log_bytes, "log")
        self._bytes.reach(facts.deliveries_bytes, "deliveries")
        self._bytes.reach(facts.signals_bytes, "signals")
        for stream, lag in facts.undetected.items():
            self._undetected.reach(lag, stream)
        for name, process in facts.processes.items():
            self._ready.reach(process.ready, name)
            self._restarts.reach(process.restarts, name)
            self._failing.reach(len(process.failing), name)
        for name, seconds in facts.silent.items():
            self._silent.reach(seconds, name)
        self.observe_status(health(facts).status)

    def observe_status(self, found: Status) -> None:
        """Take in how the node is, also where the files or the database could not be asked."""
        for status in Status:
            self._status.reach(status is found, status.value)

    def observe_horizons(self, lags: Iterable[HorizonLag]) -> None:
        """Take in what is promised."""
        for lag in lags:
            self._horizons.reach(lag.seconds, lag.stream, lag.type)

    def observe_peers(self, statuses: Iterable[PeerStatus]) -> None:
        """Take in how one stands with services of other domains."""
        for status in statuses:
            for figure, part in self._of_peers:
                figure.reach(part(status), status.name)

    def render(self) -> bytes:
        """Everything, as Prometheus reads it (`CONTENT_TYPE`)."""
        return generate_latest(self.registry)
