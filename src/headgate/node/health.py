"""Is the node well? Facts read from its files, what they mean, and figures for Prometheus.

Guarantees: `health` is a pure function of the facts. Failing means that events cannot be accepted; degraded, that they
are kept but come late, or that this will not last. Nothing here names a principal, a subscription, an event or a path:
labels are refusal codes, route templates, statuses, methods, streams, the issuers of the settings and the peers of the
ledger, and there are never more than MAX_LABELS of one kind, the rest being counted as `other`.
Counters are of one process and begin at zero with it, or with what the files say has come about until then (`Total`);
gauges are what the files say when they are asked for.
Leaves out: whether the answer reaches anybody; a process that hangs answers nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Final, Self, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from headgate.model.errors import HeadgateError, NotFound, RoleFailure
from headgate.model.values import micros
from headgate.node.peers import PeerStatus
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


CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
MAX_LABELS: Final = 200
"""Different values of one label."""

OTHER: Final = "other"
disable_created_metrics()  # type: ignore[no-untyped-call]  # when each counter began is when the process did
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Labels:
    """The values seen of one label, as many as are told apart."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def of(self, value: str) -> str:
        """The value, or `other` when there are too many."""
        if value not in self._seen:
            if len(self._seen) >= MAX_LABELS:
                return OTHER
            self._seen.add(value)
        return value


class Total:
    """A counter of what is counted elsewhere, and told as a sum."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._last: dict[str, float] = {}
        self._lock = threading.Lock()

    def reach(self, total: float, of: str = "", label: str | None = None) -> None:
        """It is so much by now of something; less than before means that it began anew."""
        with self._lock:
            last = self._last.get(of, 0)
            self._last[of] = total
        counter = self._counter if label is None else self._counter.labels(label)
        counter.inc(total - last if total >= last else total)


class Metrics:
    """The figures of one process. Counting may be done from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        made = self.registry
        self._events = Counter(
            "headgate_events", "Events that publishers sent, by outcome.", ["outcome"], registry=made
        )
        self._refusals = Counter("headgate_events_refused", "Events refused, by code.", ["code"], registry=made)
        self._publish = Histogram(
            "headgate_publish_seconds",
            "From a request to publish to its answer.",
            registry=made,
            buckets=_BUCKETS,
        )
        self._delivered = Counter("headgate_deliveries_pushed", "Deliveries sent to subscribers.", registry=made)
        self._acked = Counter("headgate_acknowledgements", "Positions that subscribers acknowledged.", registry=made)
        self._requests = Counter(
            "headgate_requests",
            "Requests and WebSockets that have ended, by route.",
            ["method", "route", "status"],
            registry=made,
        )
        self._opened = Counter("headgate_sessions_opened", "Sessions begun.", registry=made)
        self._refused = Counter("headgate_sessions_refused", "Sessions refused, by code.", ["code"], registry=made)
        self._denials = Counter("headgate_denials", "Requests refused, by code.", ["code"], registry=made)
        self._turned = Total(
            Counter(
                "headgate_connections_turned_away",
                "Connections closed at the door, by reason.",
                ["reason"],
                registry=made,
            )
        )
        self._statements = Counter(
            "headgate_statements_refused", "Signed statements refused, by reason.", ["reason"], registry=made
        )
        self._roles = Counter("headgate_role_failures", "Roles denied, by class.", ["failure"], registry=made)
        self._lists = Counter("headgate_revocations_heard", "Revocation lists that were news.", registry=made)
        self._standing = Gauge("headgate_certificates", "Certificates that stand.", registry=made)
        self._silent = Gauge(
            "headgate_issuer_silence_seconds",
            "How long an issuer that is followed has not been heard; -1 if it never was.",
            ["issuer"],
            registry=made,
        )
        self._peers = {
            name: Gauge(f"headgate_peer_{name}", words, ["peer"], registry=made)
            for name, words in (
                ("silence_seconds", "How long a service of another domain has not been heard; -1 if it never was."),
                ("bound_seconds", "For how long the silence of a service of another domain is borne."),
                ("records", "Records of a service of another domain that something here rests on."),
                ("records_unknown", "Those of them of which nothing is known now."),
            )
        }
        self._peer_messages = {
            name: Total(Counter(f"headgate_peer_messages_{name}", words, ["peer"], registry=made))
            for name, words in (
                ("lost", "Messages of a service of another domain that were lost, and made up for."),
                ("duplicated", "Messages of a service of another domain that came again."),
                ("late", "Messages of a service of another domain from before it began anew."),
            )
        }
        self.sockets = Gauge("headgate_sockets", "WebSockets that are open.", registry=made)
        self.sessions = Gauge("headgate_sessions", "Sessions that this gateway knows of.", registry=made)
        self._version = Gauge("headgate_ledger_version", "The newest version of the ledger.", registry=made)
        self._decided = Gauge(
            "headgate_decided_version", "The version through which the pipeline has decided.", registry=made
        )
        self._lag = Gauge("headgate_lag_events", "Events not decided yet, by stream.", ["stream"], registry=made)
        self._waiting = Gauge("headgate_lag_seconds", "How long the oldest undecided event has waited.", registry=made)
        self._batch = Gauge(
            "headgate_batch_milliseconds", "How long the last micro-batch of the pipeline took.", registry=made
        )
        self._batch_events = Gauge("headgate_batch_events", "Events of the last micro-batch.", registry=made)
        self._bytes = Gauge("headgate_file_bytes", "Bytes of a file on disk.", ["file"], registry=made)
        self._free = Gauge("headgate_disk_free_bytes", "Room that is left on the disk.", registry=made)
        self._holders = Gauge(
            "headgate_retention_holders", "Subscriptions that keep data past its limit.", registry=made
        )
        self._lost = Total(
            Counter(
                "headgate_retention_lost_events", "Events removed before an absent subscriber saw them.", registry=made
            )
        )
        self._trimmed = Total(Counter("headgate_retention_trimmed_bytes", "Bytes removed by retention.", registry=made))
        self._status = Gauge("headgate_health", "1 for the state that the node is in.", ["status"], registry=made)
        self._codes, self._routes, self._streams = Labels(), Labels(), Labels()
        self._reasons, self._issuers, self._peer_names = Labels(), Labels(), Labels()
        for outcome in ("accepted", "duplicate", "refused"):
            self._events.labels(outcome)
        for failure in get_args(RoleFailure):
            self._roles.labels(failure)

    # -- counting ---------------------------------------------------------------------------------------------

    def count_events(self, accepted: int, duplicates: int, refused: Mapping[str, int]) -> None:
        """Events were stored, had been stored before, or were refused, by code."""
        if accepted:
            self._events.labels("accepted").inc(accepted)
        if duplicates:
            self._events.labels("duplicate").inc(duplicates)
        for code, count in refused.items():
            self._events.labels("refused").inc(count)
            self._refusals.labels(self._codes.of(code)).inc(count)

    def published(self, seconds: float) -> None:
        """A request to publish was answered."""
        self._publish.observe(seconds)

    def delivered(self, count: int = 1) -> None:
        """Deliveries were sent."""
        self._delivered.inc(count)

    def acked(self, count: int = 1) -> None:
        """Positions were acknowledged."""
        self._acked.inc(count)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:  # noqa: ARG002
        """A request was answered, or a WebSocket has ended; an observer for `logs.Access`."""
        self._requests.labels(method, self._routes.of(route), str(status)).inc()

    def session_opened(self) -> None:
        """A session began."""
        self._opened.inc()

    def session_refused(self, code: str) -> None:
        """Nobody may connect like that."""
        self._refused.labels(self._codes.of(code)).inc()

    def denied(self, code: str) -> None:
        """A request was refused."""
        self._denials.labels(self._codes.of(code)).inc()

    def statement_refused(self, reason: str) -> None:
        """A signed statement, or a bag of them, was refused."""
        self._statements.labels(self._reasons.of(reason)).inc()

    def role_denied(self, failure: RoleFailure) -> None:
        """A role was not given, or a certificate about one did not count."""
        self._roles.labels(failure).inc()

    def list_heard(self) -> None:
        """A revocation list was news."""
        self._lists.inc()

    def turned_away(self, reason: str, total: int) -> None:
        """So many connections have been closed at the door until now."""
        self._turned.reach(total, reason, reason)

    # -- telling ----------------------------------------------------------------------------------------------

    def observe(self, facts: NodeFacts) -> None:
        """Take in what the files say."""
        self._version.set(facts.ledger_version)
        self._decided.set(facts.decided_version)
        for stream, lag in facts.lag.items():
            self._lag.labels(self._streams.of(stream)).set(lag)
        self._waiting.set(facts.waiting)
        self._batch.set(facts.batch_milliseconds)
        self._batch_events.set(facts.batch_events)
        self._bytes.labels("log").set(facts.log_bytes)
        self._bytes.labels("deliveries").set(facts.deliveries_bytes)
        self._free.set(facts.free_bytes)
        self._holders.set(facts.chores.holders)
        self._lost.reach(facts.chores.lost_events)
        self._trimmed.reach(facts.chores.trimmed_bytes)
        self._standing.set(facts.certificates)
        for name, seconds in facts.silent.items():
            self._silent.labels(self._issuers.of(name)).set(-1 if seconds is None else seconds)
        found = health(facts).status
        for status in Status:
            self._status.labels(status.value).set(status is found)

    def observe_peers(self, statuses: Iterable[PeerStatus]) -> None:
        """Take in how one stands with services of other domains."""
        for status in statuses:
            figures = {
                "silence_seconds": -1 if status.seconds is None else status.seconds,
                "bound_seconds": status.bound,
                "records": status.records,
                "records_unknown": status.unknown,
            }
            peer = self._peer_names.of(status.name)
            for name, figure in figures.items():
                self._peers[name].labels(peer).set(figure)
            counts = {"lost": status.counts.lost, "duplicated": status.counts.duplicated, "late": status.counts.late}
            for name, total in counts.items():
                self._peer_messages[name].reach(total, status.name, peer)

    def render(self) -> bytes:
        """Everything, as Prometheus reads it (`CONTENT_TYPE`)."""
        return generate_latest(self.registry)
