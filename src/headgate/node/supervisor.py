"""The supervisor, which keeps the processes of a node running for as long as it takes.

Guarantees: a part that ends is started again, whatever it ended of and however often, and the others run on meanwhile.
The wait before that is short at first and twice as long after every failure, up to `longest`, until the part has been
ready for STEADY_SECONDS; a part of it is random, so that parts which failed together do not come back together. Only a
node that was never up whole is given up, with the reason and the last lines, and that only when a part says by its
status that trying again cannot help: what was right once may be right again.
Every part runs in a session of its own, and nothing of a session is left when its part is started again or given up, a
JVM and its workers included. What parts write goes to files of bounded size, KEPT of them each, and what becomes of
them to LOG. Parts are asked to stop with SIGTERM and ended by force when they take too long; a wait holds up no stop.
Leaves out: what the parts are (`topology`), what is done with how they are (`report`; `process_status`), and how it is
shown: `tell` is told of every change worth a line. Neither of these two can end a node by failing.
"""

from __future__ import annotations

import logging
import os
import random
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any, Final

from headgate.node.logs import ROOT, Lines, Log, kept
from headgate.node.process_status import ProcessStatus
from headgate.node.processes import EXIT_FAILED, EXIT_FINAL, EXIT_REFUSED, heard, kill_session

FIRST_PAUSE: Final = 0.25  # seconds before a part is started again after its first failure
LONGEST_PAUSE: Final = 60.0
STEADY_SECONDS: Final = 60.0  # how long a part has been ready when its failures are forgotten
_MAX_DOUBLINGS: Final = 30

READY_SECONDS: Final = 300.0
"""How long a part may take until it is ready. Spark is the slow one."""

STOP_SECONDS: Final = 10.0  # how long parts may take to stop before they are ended by force
LOG: Final = "node.log"  # what becomes of the parts
LOG_BYTES: Final = 10 << 20  # size at which a log file is put away and a new one begun
KEPT: Final = 5  # files kept of the log of one part, the one being written included
LAST_LINES: Final = 12  # lines of a part's log that are shown when the node does not come up
MAX_LINE_BYTES: Final = 16_384  # bytes after which a line is broken
MAX_FAILING: Final = 16  # things of one part that are told of as failing
TICK: Final = 0.2
_DYING_SECONDS: Final = 5.0
_CHUNK: Final = 65_536

log = Log("supervisor")


class What(Enum):
    """What happened to a part."""

    STARTED = "started"
    READY = "ready"
    DIED = "died"
    FAILING = "degraded"
    RECOVERED = "recovered"
    GIVEN_UP = "given up"
    STOPPED = "stopped"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Notice:
    """A change of a part, in words if there are any, with the last lines it wrote if the node never was up."""

    what: What
    part: str
    words: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ManagedProcess:
    """A process to keep running."""

    name: str
    command: tuple[str, ...]


class RotatingFile:
    """A file that lines are added to; when it is full it is put away, and the oldest is removed."""

    def __init__(self, path: Path, most: int = LOG_BYTES, kept: int = KEPT) -> None:
        self._path = path
        self._most = most
        self._kept = kept
        self._file: IO[bytes] = self._open(path)

    @staticmethod
    def _open(path: Path) -> IO[bytes]:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab", 0)

    def write(self, line: bytes) -> None:
        """Add a line. A full disk must not stop the node, so what cannot be written is lost."""
        with suppress(OSError):
            if self._file.tell() + len(line) >= self._most:
                self._rotate()
            self._file.write(line + b"\n")

    def _rotate(self) -> None:
        fresh = self._open(self._path.with_name(f"{self._path.name}.new"))  # if that fails, the old one is still there
        self._file.close()
        self._file = fresh
        for number in range(self._kept - 1, 0, -1):
            older = self._path if number == 1 else self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._path.with_name(f"{self._path.name}.new").replace(self._path)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class _FileHandler(logging.Handler):
    """Writes what is logged to a file of bounded size."""

    def __init__(self, file: RotatingFile) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of a record."""
        self._file.write(self.format(record).encode("ascii", "backslashreplace"))


@contextmanager
def logging_to(path: Path, level: str, format: str) -> Iterator[None]:
    """Send what the supervisor logs to a file while the block runs."""
    file = RotatingFile(path)
    handler = _FileHandler(file)
    handler.setFormatter(Lines(format))
    logger = logging.getLogger(f"{ROOT}.supervisor")
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        file.close()


class Backoff:
    """How long to wait before a part that has failed is started again."""

    def __init__(
        self,
        longest: float = LONGEST_PAUSE,
        clock: Callable[[], float] = time.monotonic,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._longest = longest
        self._clock = clock
        self._dice = dice
        self._failures = 0
        self._ready: float | None = None

    def ready(self) -> None:
        """It is ready now."""
        self._ready = self._clock()

    def failed(self) -> float:
        """It has failed now; returns how many seconds to wait."""
        steady = self._ready is not None and self._clock() - self._ready >= STEADY_SECONDS
        self._failures = 1 if steady else self._failures + 1
        self._ready = None
        pause = min(self._longest, FIRST_PAUSE * 2.0 ** min(self._failures - 1, _MAX_DOUBLINGS))
        return pause * (0.5 + self._dice() / 2)


class ProcessRunner:
    """One part: its process when it runs, and what is known of it when it does not."""

    def __init__(self, part: ManagedProcess, log: RotatingFile, backoff: Backoff) -> None:
        self.part = part
        self.log = log
        self.backoff = backoff
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.began = 0.0
        self.again: float | None = 0.0  # when to start it; None while it runs
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self.code = ""  # of the failure that it told of
        self.said = ""
        self.failing: dict[str, str] = {}
        self.ended = ProcessStatus()
        """How it was when it last ended."""
        self._starts = 0
        self._rest: dict[int, bytes] = {}

    @property
    def status(self) -> ProcessStatus:
        """How it is now."""
        last, restarts = self.ended, max(0, self._starts - 1)
        return ProcessStatus(self.ready, restarts, last.reason, last.detail, last.pause, dict(self.failing))

    def start(self, now: float) -> subprocess.Popen[bytes]:
        """Start the process, in a session of its own."""
        self.ready, self.began, self.code, self.said = False, now, "", ""
        self._starts += 1
        self.process = subprocess.Popen(  # noqa: S603 - the command is ours
            self.part.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self.again = None
        self._rest = {}
        return self.process

    def hear(self, handle: int, data: bytes, now: float) -> list[Notice]:
        """Take in what the process wrote; returns what of it is to be told."""
        *lines, rest = (self._rest.get(handle, b"") + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            lines, rest = [*lines, rest[:MAX_LINE_BYTES]], b""
        self._rest[handle] = rest
        notices = (self._line(line[:MAX_LINE_BYTES], now) for line in lines)
        return [notice for notice in notices if notice is not None]

    def _line(self, line: bytes, now: float) -> Notice | None:
        message = heard(line)
        if message is not None:
            return self._announced(message, now)
        if line:
            text = kept(line.decode("utf-8", "replace"))
            self.log.write(text.encode())
            self.lines.append(text)
        return None

    def _announced(self, message: Mapping[str, Any], now: float) -> Notice | None:
        what, code = str(message.get("what", "")), str(message.get("code", ""))
        match message["event"]:
            case "ready" if not self.ready:
                self.ready = True
                self.backoff.ready()
                return Notice(What.READY, self.part.name, f"after {now - self.began:.1f} s")
            case "failed":
                self.code, self.said = code, str(message.get("message", ""))
            case "degraded" if what in self.failing or len(self.failing) < MAX_FAILING:
                known, self.failing[what] = self.failing.get(what), code
                if code != known:
                    return Notice(What.FAILING, self.part.name, f"{what} fail: {code}")
            case "recovered" if self.failing.pop(what, None) is not None:
                return Notice(What.RECOVERED, self.part.name, f"{what} go on")
        return None

    def failed(self, ending: str, now: float) -> float:
        """It has ended, in these words if it said nothing itself; returns how long to wait before it is started."""
        pause = self.backoff.failed()
        self.ready, self.again, self.failing = False, now + pause, {}
        self.ended = ProcessStatus(reason=self.code or ending, detail=self.said or ending, pause=pause)
        return pause

    def kill(self) -> None:
        """End the process and everything that it began."""
        if self.process is not None:
            kill_session(self.process.pid)


class Supervisor:
    """Runs parts until it is told to stop."""

    def __init__(
        self,
        parts: Iterable[ManagedProcess],
        logs: Path,
        tell: Callable[[Notice], None],
        *,
        longest: float = LONGEST_PAUSE,
        report: Callable[[Mapping[str, ProcessStatus]], None] = lambda _: None,
        all_ready: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        dice: Callable[[], float] = random.random,
    ) -> None:
        logs.mkdir(mode=0o700, exist_ok=True)
        self._runners = [
            ProcessRunner(part, RotatingFile(logs / f"{part.name}.log"), Backoff(longest, clock, dice))
            for part in parts
        ]
        self._tell = tell
        self._report = report
        self._clock = clock
        self._all_ready = all_ready
        self._was_up = False
        self._asked = 0
        self._pipes = selectors.DefaultSelector()

    def stop(self) -> None:
        """Stop all parts; asked again, at once. May be called by a signal handler."""
        self._asked += 1

    def run(self) -> int:
        """Keep the parts running; returns the status to leave with. The parts are gone when it returns."""
        status = 0
        try:
            while not self._asked and not status:
                status = self._step()
        finally:
            self._stop_all()
        return status

    def _step(self) -> int:
        for runner in self._runners:
            if runner.again is not None and self._clock() >= runner.again:
                self._start(runner)
        self._listen(TICK)
        for runner in self._runners:
            if runner.process is None:
                continue
            if runner.process.poll() is not None:
                if status := self._died(runner, runner.process.returncode):
                    return status
            elif not runner.ready and self._clock() - runner.began > READY_SECONDS:
                runner.code = runner.said = f"it was not ready after {READY_SECONDS:.0f} s"
                runner.kill()  # and at the next step it has died
        if not self._was_up and all(runner.ready for runner in self._runners):
            self._was_up = True
            self._all_ready()
        return 0

    def _start(self, runner: ProcessRunner) -> None:
        try:
            process = runner.start(self._clock())
        except OSError as error:  # no memory, or too many processes: that passes
            self._failed(runner, f"it cannot be started ({error.strerror})")
            return
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._pipes.register(pipe, selectors.EVENT_READ, runner)
        self._say(Notice(What.STARTED, runner.part.name, f"process {process.pid}"))
        log.info("started", part=runner.part.name, pid=process.pid)

    def _listen(self, seconds: float) -> None:
        """Read what parts wrote, for at most so long."""
        for key, _ in self._pipes.select(seconds):
            runner: ProcessRunner = key.data
            try:
                data = os.read(key.fd, _CHUNK)
            except OSError:
                data = b""
            if not data:
                self._pipes.unregister(key.fileobj)
                continue
            for notice in runner.hear(key.fd, data, self._clock()):
                self._say(notice)
                if notice.what is What.FAILING:
                    log.warning("degraded", part=notice.part, reason=notice.words)
                else:
                    log.info(notice.what.value, part=notice.part)

    def _died(self, runner: ProcessRunner, code: int) -> int:
        """Decide what follows the end of a part: 0 to go on, or the status to leave with."""
        self._gather(runner)
        if code in {EXIT_FINAL, EXIT_REFUSED} and not self._was_up:
            why = runner.said or _ending(code)
            self._say(Notice(What.GIVEN_UP, runner.part.name, why, tuple(runner.lines)))
            log.error("given-up", part=runner.part.name, reason=runner.code or _ending(code))
            return EXIT_FINAL if code == EXIT_FINAL else EXIT_FAILED
        self._failed(runner, _ending(code))
        return 0

    def _failed(self, runner: ProcessRunner, ending: str) -> None:
        pause = runner.failed(ending, self._clock())
        ended, name = runner.ended, runner.part.name
        lines = () if self._was_up else tuple(runner.lines)  # somebody waits for it, and wants to know
        self._say(Notice(What.DIED, name, f"{ended.detail}; it is started again in {pause:.1f} s", lines))
        log.warning("degraded", part=name, reason=ended.reason, seconds=pause, count=runner.status.restarts)

    def _say(self, notice: Notice) -> None:
        with suppress(OSError):  # a full disk
            self._report({runner.part.name: runner.status for runner in self._runners})
        with suppress(OSError, SystemExit):  # nor may a terminal that is gone end the node, as it ends other commands
            self._tell(notice)

    def _gather(self, runner: ProcessRunner) -> None:
        """Read what a part wrote last, and leave nothing of it behind."""
        runner.kill()
        process = runner.process
        assert process is not None
        with suppress(subprocess.TimeoutExpired):
            process.wait(_DYING_SECONDS)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            with suppress(OSError):  # it would block: something of it has not quite ended yet
                while data := os.read(pipe.fileno(), _CHUNK):
                    runner.hear(pipe.fileno(), data, self._clock())
            runner.hear(pipe.fileno(), b"\n", self._clock())
            with suppress(KeyError, ValueError):
                self._pipes.unregister(pipe)
            pipe.close()
        runner.process = None
        runner.ready = False

    def _stop_all(self) -> None:
        """Ask every part to stop, the last first, and end what does not in time."""
        running = [runner for runner in reversed(self._runners) if runner.process is not None]
        for runner in running:
            assert runner.process is not None
            with suppress(ProcessLookupError):
                os.kill(runner.process.pid, signal.SIGTERM)
        asked, end = self._asked, self._clock() + STOP_SECONDS
        while self._clock() < end and self._asked <= max(asked, 1) and any(map(_alive, running)):
            self._listen(TICK)
        for runner in running:
            late = _alive(runner)
            self._gather(runner)
            self._say(Notice(What.KILLED if late else What.STOPPED, runner.part.name))
        for runner in self._runners:
            runner.log.close()
        self._pipes.close()


def _alive(runner: ProcessRunner) -> bool:
    return runner.process is not None and runner.process.poll() is None


def _ending(code: int) -> str:
    if code >= 0:
        return f"it left with status {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
