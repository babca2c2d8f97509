"""The pipeline process: `python -m headgate.node.pipeline_process DIR`, which also tidies up.

Guarantees: one for each domain decides, by a lease (`pipeline_lease`); any other waits until that is free, and has no
Spark until then. It keeps two queries running: that of deliveries and, once there are detections, theirs. It says
`ready` on standard output once events are being decided, by it or by the one it waits for. A query that fails is
started again after a pause, from where it was, and the supervisor is told until it gets on again. If the query of
deliveries fails MOST_IN_A_ROW times for reasons of Spark's own, that ends the process, which is started again on a new
JVM; data that it finds damaged ends it with EXIT_FINAL and the reason. The query of detections ends neither: it is
tried again, and deliveries go on. On SIGTERM the micro-batch under way is finished if it takes no longer than
FINISH_SECONDS; one that is cut off changes nothing and is done again. The JVM reads from a pipe that this process
holds, and ends with it, however that ends. What events contain is never said.
Housekeeping removes data only as `pipeline.log.retention` plans it, and says in the log, by name and number, what a
subscriber has not seen before it goes. A round that fails is counted and tried again; it stops nothing else.
Leaves out: deciding (`pipeline`), and watching over this process (`supervisor`).
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from headgate.model.changes import Batch, Unsubscribe
from headgate.model.errors import (
    BadConfig,
    BadEnvironment,
    Damaged,
    Fenced,
    HeadgateError,
    TooNew,
    TooOld,
    VersionConflict,
)
from headgate.model.rights import Subscription
from headgate.model.values import micros
from headgate.node.config import Config, Files, PipelineSettings
from headgate.node.cursors import Cursors
from headgate.node.derived_progress import derived_through
from headgate.node.domain import Domain, utc_now
from headgate.node.health import Chores, write_chores
from headgate.node.logs import Log, fault, start_logging
from headgate.node.pipeline_lease import PipelineLease
from headgate.node.processes import EXIT_FAILED, EXIT_FINAL, announce, leave_within, on_stop, run_part
from headgate.node.telemetry import sending
from headgate.pipeline import SIGNALS
from headgate.pipeline.log.retention import PIPELINE, Floor, Limit, Limits, RetentionPlan, Where, apply, look, plan
from headgate.pipeline.spark.cluster import check_checkpoint, check_versions, claim
from headgate.pipeline.spark.ledger_tail import LedgerTail
from headgate.pipeline.spark.session import describe, spark
from headgate.trust.keys import PrivateKey

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds before a failed query is started again: twice as long every time, until it has run for STEADY_SECONDS."""

STEADY_SECONDS: Final = 60.0
MOST_IN_A_ROW: Final = 4
"""Failures that are none of ours, each soon after the other, after which the JVM is taken to be damaged."""

FINISH_SECONDS: Final = 4.0  # how long a micro-batch under way may take to finish when the process stops
STOP_SECONDS: Final = 9.0  # how long stopping may take before the process is ended by force
LOOK_SECONDS: Final = 0.25

_AWAY: Final = "its reader was away for longer than `retention.hold`, and a limit was passed"
_FULL: Final = "it reserves more than MAX_RESERVED_EVENTS, and a limit was passed"
_FINAL: Final = frozenset({Damaged.code, TooNew.code, TooOld.code})
_OURS: Final = re.compile(r"headgate\.model\.errors\.(\w+): (.*\[([a-z-]+)\])")

log = Log("pipeline")


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """Why a query ended: the code or the kind of the error, its words if they may be told, and whether it is final."""

    reason: str
    words: str = ""
    final: bool = False


def failure(text: str, kind: str) -> QueryFailure:
    """What can be said of the failure of a query, from the text that Spark has of it."""
    for _, words, code in _OURS.findall(text):
        if code in _FINAL:
            return QueryFailure(code, words, final=True)
    found = _OURS.search(text)
    return QueryFailure(kind) if found is None else QueryFailure(found[3], found[2] if found[3] == Fenced.code else "")


class Keeper:
    """Keeps a streaming query of a domain running on a Spark session; the process is there for one that is `vital`."""

    def __init__(
        self,
        name: str,
        start: Callable[[], Any],
        session: Any,
        stop: threading.Event,
        *,
        announces: bool = False,
        vital: bool = False,
    ) -> None:
        self._name = name
        self._start = start
        self._session = session
        self._stop = stop
        self._announces = announces
        self._vital = vital
        self._failing = False
        self._pause = FIRST_PAUSE
        self._in_a_row = 0

    def run(self) -> int:
        """Until told to stop, or until it cannot go on; returns the status to leave with."""
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                query = self._start()
            except Exception as error:
                if self._vital:
                    raise
                failed: BaseException = error
            else:
                if self._announces:
                    announce("ready", pid=os.getpid())
                    self._announces = False
                log.info("query-started", query=self._name)
                while query.isActive and not self._stop.wait(LOOK_SECONDS):
                    self._look(query)
                if self._stop.is_set():
                    return _finish(query)
                failed = query.exception()
            status = self._failed(failed, time.monotonic() - began)
            if status:
                return status
        return 0

    def _look(self, query: Any) -> None:
        """Say so when a query that has failed gets on again."""
        if self._failing and query.lastProgress is not None:
            announce("recovered", what=self._name)
            self._failing = False

    def _failed(self, error: BaseException, lasted: float) -> int:
        kind = type(error).__name__
        cause = failure(str(error), kind)
        if cause.reason == Fenced.code:
            log.error("lease-lost")
            announce("failed", code=cause.reason, message=cause.words)
            return EXIT_FAILED
        if cause.final and self._vital:
            log.error("data-unusable", code=cause.reason, detail=cause.words)
            announce("failed", code=cause.reason, message=cause.words)
            return EXIT_FINAL
        if not _lives(self._session):
            log.error("jvm-gone")
            return EXIT_FAILED
        steady = lasted > STEADY_SECONDS
        self._in_a_row = 0 if cause.reason != kind else 1 if steady else self._in_a_row + 1
        if self._in_a_row >= MOST_IN_A_ROW and self._vital:
            log.error("jvm-damaged", reason=cause.reason)
            return EXIT_FAILED
        pause = FIRST_PAUSE if steady else self._pause
        log.warning("query-failed", query=self._name, reason=cause.reason, seconds=pause)
        announce("degraded", what=self._name, code=cause.reason)
        self._failing = True
        self._stop.wait(pause)
        self._pause = min(LONGEST_PAUSE, pause * 2)
        return 0


def _finish(query: Any) -> int:
    """Let the micro-batch under way finish, if it does soon, and stop."""
    leave_within(STOP_SECONDS)
    end = time.monotonic() + FINISH_SECONDS
    batch = _batch(query)
    while time.monotonic() < end and query.isActive and query.status["isTriggerActive"] and _batch(query) == batch:
        time.sleep(LOOK_SECONDS / 5)
    query.stop()
    log.info("stopped")
    return 0


def _batch(query: Any) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _lives(session: Any) -> bool:
    """Is the JVM of this session still there?"""
    process = session.sparkContext._gateway.proc
    return process is None or process.poll() is None


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def warm_up(session: Any, cores: int) -> None:
    """Start the Python workers, so that the first event does not wait for them, and see that they have our Headgate."""
    ours = {name: version(name) for name in ("headgate", "pyspark")}
    asked = session.range(cores, numPartitions=cores).mapInArrow(_versions, "name string, version string")
    try:
        found = {(row["name"], row["version"]) for row in asked.collect()}
    except Exception as error:
        raise BadEnvironment(
            f"executors cannot run Headgate: {describe(error).cause}",
            remedy="give them its Python environment: `pipeline.python`, `spark.archives` or the image",
        ) from error
    check_versions(found, ours)


def _versions(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    importlib.import_module("headgate.pipeline.spark.decider")  # with all that deciding needs
    for _ in batches:
        names = ["headgate", "pyspark"]
        yield pa.RecordBatch.from_pydict({"name": names, "version": [version(name) for name in names]})


def work(directory: Path, override: dict[str, str], stop: threading.Event) -> int:
    """Run the pipeline of a domain until told to stop, once no other process does."""
    settings = Config.load(directory, os.environ, override)
    start_logging(settings.log.level, settings.log.format)
    files = Files(directory)
    if not files.data.is_dir():
        raise BadConfig(f"`{directory}` has no `{files.data.name}`", remedy="`headgate init DIR` makes a domain")
    check_checkpoint(settings.pipeline.checkpoint)
    log.info("starting", pid=os.getpid())
    with closing(Domain.open(files.data)) as domain, sending(settings.telemetry, settings.domain.name, "pipeline"):
        lease = PipelineLease(domain.store, domain.signals, settings.pipeline.lease, utc_now, log)
        waited = threading.Event()

        def standing_by(holder: str) -> None:
            log.info("standing-by", holder=holder)
            announce("ready", pid=os.getpid(), waiting_for=holder)  # events are being decided, by that one
            waited.set()

        if not lease.wait(stop, standing_by):
            return 0
        log.info("lease-taken")
        lease.keep(stop)
        try:
            status = decide(domain, settings.pipeline, files, limits_of(settings), stop, lease.token, waited)
            return EXIT_FAILED if lease.lost else status
        finally:
            stop.set()
            lease.release()


def decide(
    domain: Domain,
    settings: PipelineSettings,
    files: Files,
    limits: Limits,
    stop: threading.Event,
    token: int,
    announced: threading.Event,
) -> int:
    """Run the queries and tidy up, with a token of the lease, until told to stop; the status to leave with."""
    session = spark(
        master=settings.master if "PYSPARK_GATEWAY_PORT" in os.environ else settings.spark_master,
        memory=settings.memory,
        python=settings.python,
        checkpoint=settings.checkpoint,
        settings=dict(settings.spark),
    )
    claim(session, settings.checkpoint, PrivateKey.load(files.broker_key).public.did)
    warm_up(session, session.sparkContext.defaultParallelism)
    cursors = Cursors(domain.paths.shared(Cursors.FILE))
    tidy = Housekeeper(Domain.open(files.data), cursors, limits, utc_now)
    thread = threading.Thread(target=tidy.run, args=(stop,), name="housekeeping", daemon=True)
    thread.start()
    try:
        return keep_queries(
            domain, session, stop, checkpoint=settings.checkpoint, token=token, announces=not announced.is_set()
        )
    finally:
        stop.set()
        thread.join(FINISH_SECONDS)


def keep_queries(
    domain: Domain, session: Any, stop: threading.Event, *, checkpoint: str, token: int, announces: bool
) -> int:
    """Keep deliveries going, and detections once there are any; returns when deliveries cannot go on."""
    places = [f"{checkpoint.rstrip('/')}/{name}" if checkpoint else "" for name in ("deliveries", "detections")]

    def deliver() -> Any:
        return domain.pipeline(session, checkpoint=places[0], token=token).start()

    def find() -> Any:
        return domain.detecting(session, checkpoint=places[1], token=token).start()

    def detect() -> None:
        while not stop.wait(LOOK_SECONDS):
            with suppress(HeadgateError), closing(LedgerTail(domain.paths.ledger)) as ledger:  # it may be busy
                seen, newest = 0, ledger.version
                while not ledger.has_detection(seen, newest) and not stop.wait(LOOK_SECONDS):
                    seen, newest = newest, ledger.version
                break
        if not stop.is_set():
            Keeper("detections", find, session, stop).run()

    detecting = threading.Thread(target=detect, name="detections", daemon=True)
    detecting.start()
    status = Keeper("deliveries", deliver, session, stop, announces=announces, vital=True).run()
    stop.set()
    detecting.join(STOP_SECONDS)
    return status


EVERY_SECONDS: Final = 15.0  # time between two rounds
MAX_PASSES: Final = 20  # plans made and applied in one round, while there is more to remove
DERIVING: Final = "deriving"
"""The holder of signals of which no event or row was made yet."""
MAX_CLOSED: Final = 1_000  # temporary subscriptions closed in one round

chores_log = Log("housekeeping")


def limits_of(settings: Config) -> Limits:
    """The limits of the settings, as retention counts them."""
    kept = settings.retention
    return Limits(
        Limit(round(kept.log_age * 1e6), kept.log_size),
        Limit(round(kept.deliveries_age * 1e6), kept.deliveries_size),
        round(kept.hold * 1e6),
    )


class Housekeeper:
    """Keeps one domain tidy. Domain and cursors are its own: it runs in a thread of its own."""

    def __init__(self, domain: Domain, cursors: Cursors, limits: Limits, clock: Callable[[], datetime]) -> None:
        self._domain = domain
        self._cursors = cursors
        self._limits = limits
        self._clock = clock
        self.chores = Chores()

    def close(self) -> None:
        """Let go of the files."""
        self._domain.close()
        self._cursors.close()

    def run(self, stop: threading.Event, every: float = EVERY_SECONDS) -> None:
        """Tidy up again and again, until told to stop."""
        while not stop.wait(every):
            try:
                self.round()
            except Exception as error:  # noqa: BLE001 - whatever happened, the next round must come
                self.chores = replace(self.chores, failures=self.chores.failures + 1)
                chores_log.warning("round-failed", **fault(error))
        self.close()

    def round(self) -> Chores:
        """One round; returns what has been done since the beginning."""
        now = self._clock()
        self._close_temporary(now)
        forgotten = self._cursors.purge(self._domain.ledger.state(), now)
        self._retain(now)
        self.chores = replace(
            self.chores,
            at=micros(now),
            rounds=self.chores.rounds + 1,
            sessions_forgotten=self.chores.sessions_forgotten + forgotten,
        )
        write_chores(self._domain.paths.directory, self.chores)
        return self.chores

    def _retain(self, now: datetime) -> None:
        """Remove what is past its time or size and needed by nobody who is still waited for."""
        for _ in range(MAX_PASSES):
            made = self._plan(now)
            self._warn(made)
            held = {one.holder for one in made.held if one.holder != PIPELINE}
            self.chores = replace(self.chores, holders=len(held))
            if not made.trims:
                return
            apply(made, self._domain.log, self._domain.store, self._domain.signals)
            removed = sum(trim.bytes for trim in made.trims)
            self.chores = replace(
                self.chores,
                trimmed_bytes=self.chores.trimmed_bytes + removed,
                lost_events=self.chores.lost_events + sum(loss.events for loss in made.losses),
            )
            chores_log.info("trimmed", bytes=removed, count=len(made.trims))

    def _plan(self, now: datetime) -> RetentionPlan:
        every = tuple(self._domain.ledger.state().subscriptions.values())
        detecting = any(one.detection is not None for one in every)
        files = self._domain.log, self._domain.store, self._domain.signals
        events, deliveries, signals = look(*files, detecting=detecting)
        ends = {stream: tail.last for stream, tail in self._domain.log.tails().items()}
        floors = self._cursors.floors(every, self._domain.log.starts_at, now, ends)
        for stream, some in self._unread(every).items():
            floors.setdefault(stream, []).extend(some)
        if any(one.detection is not None and one.detection.derives for one in every):
            floor = Floor(derived_through(self._domain.paths) + 1, DERIVING, None, frozenset({Where.SIGNALS}))
            floors.setdefault(SIGNALS, []).append(floor)
        return plan(micros(now), events, deliveries, floors, self._limits, signals)

    def _unread(self, every: Sequence[Subscription]) -> dict[str, list[Floor]]:
        """What of the log is needed by those that ask for history and have not been given it: all there is.

        Of a reservation that they took up this goes on when that has expired.
        """
        reached = self._domain.store.reached().version, self._domain.signals.reached().version
        new = [one for one in every if one.history and one.first > reached[one.detection is not None]]
        log = frozenset({Where.LOG})
        floors = [Floor(1, one.id, None, log) for one in new]
        return {stream: list(floors) for stream in self._domain.log.tails()} if floors else {}

    def _warn(self, made: RetentionPlan) -> None:
        for loss in made.losses:
            chores_log.error(
                "removed-unread",
                holder=loss.holder,
                stream=loss.stream,
                events=loss.events,
                seconds=0.0 if loss.absent is None else (micros(self._clock()) - loss.absent) / 1e6,
                part=loss.where.value,
                reason=_FULL if loss.absent is None else _AWAY,
            )
        for held in made.held:
            chores_log.warning("limit-passed", holder=held.holder, stream=held.stream, part=held.where.value)

    def _close_temporary(self, now: datetime) -> None:
        """End the temporary subscriptions whose reader has not been seen for a while."""
        closed = 0
        for stale in self._cursors.stale(now)[:MAX_CLOSED]:
            state = self._domain.ledger.state()
            subscription = state.subscriptions.get(stale.subscription)
            if subscription is None or subscription.first != stale.first:
                continue
            try:
                # Nothing may have changed in between: the name could be another subscription's by then.
                self._domain.commit(
                    Batch(subscription.principal, (Unsubscribe(subscription.id),), note="its reader is gone"),
                    expect=state.version,
                )
                closed += 1
            except VersionConflict:
                continue  # the next round looks again
            except HeadgateError as error:
                chores_log.warning("not-closed", **fault(error))
        if closed:
            self.chores = replace(self.chores, temporary_closed=self.chores.temporary_closed + closed)
            chores_log.info("temporary-closed", subscriptions=closed)


def main(arguments: Sequence[str] | None = None) -> int:
    """The process."""
    stop = threading.Event()

    def run(given: argparse.Namespace) -> int:
        on_stop(stop)
        try:
            return work(given.directory, given.settings, stop)
        finally:
            leave_within(STOP_SECONDS)  # whoever stops a service may have ended the JVM, too, and PySpark waits for it

    return run_part(log, "headgate.node.pipeline_process", "Run a domain's pipeline.", run, arguments)


if __name__ == "__main__":
    sys.exit(main())
