"""The pipeline process: `python -m headgate.node.pipeline_process DIR`.

Guarantees: one for each domain. It says `ready` on standard output once events are being decided. A query that fails is
started again after a pause, from where it was; one that fails MOST_IN_A_ROW times for reasons of Spark's own ends the
process, which is started again on a new JVM; damaged data ends it with EXIT_FINAL and the reason, since trying again
cannot help. On SIGTERM the micro-batch under way is finished if it takes no longer than FINISH_SECONDS;
one that is cut off changes nothing and is done again. The JVM reads from a pipe that this process holds, and ends with
it, however that ends. What events contain is never said.
Leaves out: deciding (`pipeline`), and watching over this process (`supervisor`).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.model.errors import AlreadyRunning, BadConfig, BadEnvironment, Damaged, HeadgateError, TooNew, TooOld
from headgate.node.config import Config, Files
from headgate.node.cursors import FILE as CURSORS
from headgate.node.cursors import Cursors
from headgate.node.domain import Domain, utc_now
from headgate.node.housekeeping import Housekeeper, limits_of
from headgate.node.logs import Log, fault, start_logging
from headgate.node.processes import (
    EXIT_FAILED,
    EXIT_FINAL,
    EXIT_REFUSED,
    Lock,
    announce,
    die_with,
    leave_within,
    on_stop,
    settings_from,
)
from headgate.pipeline.spark.session import spark

LOCK: Final = "pipeline.lock"
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds before a failed query is started again: twice as long every time, until it has run for STEADY_SECONDS."""

STEADY_SECONDS: Final = 60.0
MOST_IN_A_ROW: Final = 4
"""Failures that are none of ours, each soon after the other, after which the JVM is taken to be damaged."""

FINISH_SECONDS: Final = 4.0
"""How long a micro-batch under way may take to finish when the process stops."""

STOP_SECONDS: Final = 9.0
"""How long stopping may take before the process is ended by force."""

LOOK_SECONDS: Final = 0.25

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
    return QueryFailure(kind if found is None else found[3])


class Keeper:
    """Keeps the streaming query of a domain running on a Spark session."""

    def __init__(self, domain: Domain, session: Any, stop: threading.Event) -> None:
        self._domain = domain
        self._session = session
        self._stop = stop
        self._pause = FIRST_PAUSE
        self._announced = False
        self._in_a_row = 0

    def run(self) -> int:
        """Until told to stop, or until it cannot go on; returns the status to leave with."""
        while not self._stop.is_set():
            began = time.monotonic()
            query = self._domain.pipeline(self._session).start()
            if not self._announced:
                announce("ready", pid=os.getpid())
                self._announced = True
            log.info("query-started")
            while query.isActive and not self._stop.wait(LOOK_SECONDS):
                pass
            if self._stop.is_set():
                return _finish(query)
            status = self._failed(query, time.monotonic() - began)
            if status:
                return status
        return 0

    def _failed(self, query: Any, lasted: float) -> int:
        error = query.exception()
        kind = type(error).__name__
        cause = failure(str(error), kind)
        if cause.final:
            log.error("data-unusable", code=cause.reason, detail=cause.words)
            announce("failed", code=cause.reason, message=cause.words)
            return EXIT_FINAL
        if not _lives(self._session):
            log.error("jvm-gone")
            return EXIT_FAILED
        steady = lasted > STEADY_SECONDS
        self._in_a_row = 0 if cause.reason != kind else 1 if steady else self._in_a_row + 1
        if self._in_a_row >= MOST_IN_A_ROW:
            log.error("jvm-damaged", reason=cause.reason)
            return EXIT_FAILED
        pause = FIRST_PAUSE if steady else self._pause
        log.warning("query-failed", reason=cause.reason, seconds=pause)
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
    """Start the Python workers, so that the first event does not wait for them."""
    session.range(cores, numPartitions=cores).mapInArrow(_same, "id long").count()


def work(directory: Path, override: dict[str, str], stop: threading.Event) -> int:
    """Run the pipeline of a domain until told to stop."""
    settings = Config.load(directory, os.environ, override)
    start_logging(settings.log.level, settings.log.format)
    data = Files(directory).data
    if not data.is_dir():
        raise BadConfig(f"`{directory}` has no `{data.name}`", remedy="`headgate init DIR` makes a domain")
    with Lock(data / LOCK, "the pipeline"):
        log.info("starting", pid=os.getpid())
        domain = Domain.open(data)
        session = spark(master=f"local[{settings.pipeline.cores}]", memory=settings.pipeline.memory)
        warm_up(session, settings.pipeline.cores)
        tidy = Housekeeper(Domain.open(data), Cursors(data / CURSORS), limits_of(settings), utc_now)
        thread = threading.Thread(target=tidy.run, args=(stop,), name="housekeeping", daemon=True)
        thread.start()
        try:
            return Keeper(domain, session, stop).run()
        finally:
            stop.set()
            thread.join(FINISH_SECONDS)
            domain.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """The process: its status says whether it is worth starting again."""
    parser = argparse.ArgumentParser(prog="headgate.node.pipeline_process", description="Run a domain's pipeline.")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="settings")
    parser.add_argument("--parent", type=int, help="end when this process does")
    given = parser.parse_args(arguments)
    if given.parent is not None:
        die_with(given.parent)
    stop = threading.Event()
    on_stop(stop)
    try:
        return work(given.directory, settings_from(given.settings), stop)
    except (Damaged, TooNew, TooOld) as error:
        return _refused(error, EXIT_FINAL)
    except (AlreadyRunning, BadConfig, BadEnvironment) as error:
        return _refused(error, EXIT_REFUSED)
    except HeadgateError as error:
        return _refused(error, EXIT_FAILED)


def _refused(error: HeadgateError, status: int) -> int:
    told = fault(error)
    told["exit_code"] = status
    log.error("failed", **told)
    announce("failed", code=error.code, message=str(error))
    return status


if __name__ == "__main__":
    sys.exit(main())
