"""Keeps the processes of a node running: starts them, restarts what dies, stops them all.

Guarantees: every part runs in a session of its own, and nothing of a session is left when its part is started again or
given up, a JVM and its workers included. A part that fails MAX_FAILURES times within FAILURE_SECONDS, or says that
trying again cannot help, ends the node with the reason and its last lines. What parts write goes to files of bounded
size, KEPT of them each. Parts are asked to stop with SIGTERM and ended by force when they take too long.
Leaves out: what the parts are (`headgate up`), and how it is shown; it tells `tell` of every change worth a line.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO, Final

from headgate.node.logs import kept
from headgate.node.processes import EXIT_FAILED, EXIT_FINAL, EXIT_REFUSED, heard, kill_session

MAX_FAILURES: Final = 5
"""Failures of one part within FAILURE_SECONDS after which the node is given up."""

FAILURE_SECONDS: Final = 60.0
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 10.0
"""Seconds before a part is started again: twice as long after every failure that is not long ago."""

READY_SECONDS: Final = 300.0
"""How long a part may take until it is ready. Spark is the slow one."""

STOP_SECONDS: Final = 10.0
"""How long parts may take to stop before they are ended by force."""

LOG_BYTES: Final = 10 << 20
"""Size at which a log file is put away and a new one begun."""

KEPT: Final = 5
"""Files kept of the log of one part, the one being written included."""

LAST_LINES: Final = 12
"""Lines of a part's log that are shown when it is given up."""

MAX_LINE_BYTES: Final = 16_384
"""Bytes after which a line is broken."""

TICK: Final = 0.2
_DYING_SECONDS: Final = 5.0
_CHUNK: Final = 65_536


class What(Enum):
    """What happened to a part."""

    STARTED = "started"
    READY = "ready"
    DIED = "died"
    GIVEN_UP = "given up"
    STOPPED = "stopped"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Notice:
    """A change of a part, in words if there are any, with the last lines it wrote if it is given up."""

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
        self._file: IO[bytes] = self._open()

    def _open(self) -> IO[bytes]:
        return os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab", 0)

    def write(self, line: bytes) -> None:
        """Add a line. A full disk must not stop the node, so what cannot be written is lost."""
        with suppress(OSError):
            if self._file.tell() + len(line) >= self._most:
                self._rotate()
            self._file.write(line + b"\n")

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._kept - 1, 0, -1):
            older = self._path if number == 1 else self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._file = self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


@dataclass(slots=True)
class Failures:
    """When a part failed lately, and so how long to wait, or whether to give it up."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES))

    def add(self, now: float) -> float | None:
        """Note a failure; how long to wait before the next try, or None to give up."""
        self.times.append(now)
        recent = sum(1 for one in self.times if now - one < FAILURE_SECONDS)
        if recent >= MAX_FAILURES:
            return None
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (recent - 1))


class ProcessRunner:
    """One part: its process when it runs, and what is known of it when it does not."""

    def __init__(self, part: ManagedProcess, log: RotatingFile) -> None:
        self.part = part
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.began = 0.0
        self.again: float | None = 0.0
        """When to start it; None while it runs."""
        self.failures = Failures()
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self.said = ""
        self._rest: dict[int, bytes] = {}

    def start(self, now: float) -> subprocess.Popen[bytes]:
        """Start the process, in a session of its own."""
        self.ready, self.began, self.again, self.said = False, now, None, ""
        self.process = subprocess.Popen(  # noqa: S603 - the command is ours
            self.part.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._rest = {}
        return self.process

    def hear(self, handle: int, data: bytes) -> bool:
        """Take in what the process wrote; true if it has just said that it is ready."""
        *lines, rest = (self._rest.get(handle, b"") + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            lines, rest = [*lines, rest[:MAX_LINE_BYTES]], b""
        self._rest[handle] = rest
        before = self.ready
        for line in lines:
            self._line(line[:MAX_LINE_BYTES])
        return self.ready and not before

    def _line(self, line: bytes) -> None:
        message = heard(line)
        if message is not None:
            if message["event"] == "ready":
                self.ready = True
            elif message["event"] == "failed":
                self.said = str(message.get("message", ""))
            return
        if line:
            text = kept(line.decode("utf-8", "replace"))
            self.log.write(text.encode())
            self.lines.append(text)

    def kill(self) -> None:
        """End the process and everything that it began."""
        if self.process is not None:
            kill_session(self.process.pid)


class Supervisor:
    """Runs parts until it is told to stop, or one of them cannot be kept running."""

    def __init__(
        self,
        parts: Iterable[ManagedProcess],
        logs: Path,
        tell: Callable[[Notice], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        all_ready: Callable[[], None] = lambda: None,
    ) -> None:
        logs.mkdir(mode=0o700, exist_ok=True)
        self._runners = [ProcessRunner(part, RotatingFile(logs / f"{part.name}.log")) for part in parts]
        self._tell = tell
        self._clock = clock
        self._all_ready = all_ready
        self._told_ready = False
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
                runner.kill()  # and at the next step it has died
        if not self._told_ready and all(runner.ready for runner in self._runners):
            self._told_ready = True
            self._all_ready()
        return 0

    def _start(self, runner: ProcessRunner) -> None:
        process = runner.start(self._clock())
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._pipes.register(pipe, selectors.EVENT_READ, runner)
        self._tell(Notice(What.STARTED, runner.part.name, f"process {process.pid}"))

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
            elif runner.hear(key.fd, data):
                took = self._clock() - runner.began
                self._tell(Notice(What.READY, runner.part.name, f"after {took:.1f} s"))

    def _died(self, runner: ProcessRunner, code: int) -> int:
        """Decide what follows the end of a part: 0 to go on, or the status to leave with."""
        self._gather(runner)
        why = runner.said or _ending(code)
        pause = runner.failures.add(self._clock())
        if code in {EXIT_FINAL, EXIT_REFUSED} or pause is None:
            often = "" if pause is not None else f" ({MAX_FAILURES} times within {FAILURE_SECONDS:.0f} s)"
            self._tell(Notice(What.GIVEN_UP, runner.part.name, f"{why}{often}", tuple(runner.lines)))
            return EXIT_FINAL if code == EXIT_FINAL else EXIT_FAILED
        self._tell(Notice(What.DIED, runner.part.name, f"{why}; it is started again in {pause:.1f} s"))
        runner.again = self._clock() + pause
        return 0

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
                    runner.hear(pipe.fileno(), data)
            runner.hear(pipe.fileno(), b"\n")
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
            self._tell(Notice(What.KILLED if late else What.STOPPED, runner.part.name))
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
