"""The processes of a node: what they have in common, and the supervisor that keeps them running.

Guarantees: a lock is held by one process and let go when that process ends, however it ends. A process that was given
a parent does not outlive it. What is told to the supervisor is one JSON object a line on standard output.
Every part runs in a session of its own, and nothing of a session is left when its part is started again or given up, a
JVM and its workers included. A part that fails MAX_FAILURES times within FAILURE_SECONDS, or says that trying again
cannot help, ends the node with the reason and its last lines. What parts write goes to files of bounded size, KEPT of
them each. Parts are asked to stop with SIGTERM and ended by force when they take too long.
Leaves out: other systems than Linux, where a process cannot ask to die with its parent and so is not asked to; what the
parts are (`topology`), and how it is shown: `tell` is told of every change worth a line.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final, Self

from headgate.model.errors import AlreadyRunning, BadConfig, BadEnvironment, Damaged, HeadgateError, TooNew, TooOld
from headgate.node.logs import Log, fault, kept

EXIT_FAILED: Final = 1  # something broke that may work the next time
EXIT_REFUSED: Final = 2  # the settings, the files or the machine do not allow it
EXIT_FINAL: Final = 3  # data is damaged, or of another format: trying again cannot help
KILL_SECONDS: Final = 5.0  # how long the end of killed processes is waited for
_PR_SET_PDEATHSIG: Final = 1
_KILL_POLL: Final = 0.005
_PROC: Final = Path("/proc")
_ANNOUNCED: Final = b'{"event": '
_TRIES: Final = 5
_PAUSE: Final = 0.05


class Lock:
    """A file that one process holds at a time, with the number of that process in it."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._handle = -1

    def __enter__(self) -> Self:
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not self._locked():
            holder = os.read(self._handle, 32).decode("ascii", "replace").strip() or "?"
            os.close(self._handle)
            raise AlreadyRunning(
                f"{self._what} of `{self._path.parent}` is running already, as process `{holder}`",
                remedy=f"stop it first: `kill {holder}`",
            )
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)
        return self

    def _locked(self) -> bool:
        for _ in range(_TRIES):  # whoever only looks (`held_by`) is in the way for a moment
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PAUSE)
            else:
                return True
        return False

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._handle, 0)  # the file stays: removing it would let two processes hold two files of one name
        os.close(self._handle)

    @asynccontextmanager
    async def when_free(self, pause: float) -> AsyncIterator[None]:
        """Hold it as soon as nobody else does, looking again and again."""
        while True:
            try:
                await asyncio.to_thread(self.__enter__)
                break
            except AlreadyRunning:
                await asyncio.sleep(pause)
        try:
            yield
        finally:
            self.__exit__()


def held_by(path: Path) -> int | None:
    """The process that holds a lock, if any does."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(handle, 32).decode("ascii", "replace").strip()
        return int(text) if text.isdecimal() else 0
    finally:
        os.close(handle)
    return None


def die_with(parent: int) -> None:
    """Be asked to stop (SIGTERM) as soon as the parent process ends; leave at once if it has."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(EXIT_FAILED)


def leave_within(seconds: float) -> None:
    """From now on, end within so many seconds whatever hangs."""
    timer = threading.Timer(seconds, os._exit, (EXIT_FAILED,))
    timer.daemon = True
    timer.start()


def on_stop(stop: threading.Event) -> None:
    """Set the event on SIGTERM or SIGINT."""

    def asked(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        stop.set()

    signal.signal(signal.SIGTERM, asked)
    signal.signal(signal.SIGINT, asked)


def raise_file_limit() -> int:
    """As many open files as this process may have; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address, or a clear refusal."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise BadConfig(
            f"`{host}` is no address of this machine ({error.strerror})", remedy="set `gateway.host`"
        ) from None
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        raise BadEnvironment(
            f"port `{port}` of `{host}` cannot be used ({error.strerror})",
            remedy="stop what uses it, or choose another with `--port`",
        ) from None
    return made


def of_session(session: int) -> list[int]:
    """The processes of a session that are alive: what a process began, whichever group it went into."""
    pids = []
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if int(fields[3]) == session and fields[0] not in "ZXx":
                pids.append(int(entry.name))
    return pids


def kill_session(session: int) -> int:
    """End every process of a session, and those that they begin meanwhile; returns how many there were at first.

    On a busy machine a process lives on for a moment after it was killed: it is waited for, for KILL_SECONDS.
    """
    first = pids = of_session(session)
    until = time.monotonic() + KILL_SECONDS
    while pids:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            break
        time.sleep(_KILL_POLL)
        pids = of_session(session)
    return len(first)


def announce(event: str, **facts: str | int) -> None:
    """Tell the supervisor, or whoever reads standard output."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def heard(line: bytes) -> Mapping[str, Any] | None:
    """What was announced, if the line is an announcement. Most lines are of the log, and seen not to be at once."""
    if not line.startswith(_ANNOUNCED):
        return None
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message.get("event"), str) else None


def settings_from(pairs: list[str]) -> dict[str, str]:
    """The settings of `--set section.key=value`, by name."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadConfig(f"`{pair}` is not a setting", place="the command line", remedy="write `section.key=value`")
        settings[name.strip()] = value.strip()
    return settings


def run_part(
    log: Log,
    prog: str,
    description: str,
    work: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> int:
    """Be a part of a node: `DIR --set SECTION.KEY=VALUE --parent PID`, and what `options` say.

    The status says whether it is worth starting again; why it ended is logged, and told to the supervisor.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("directory", type=Path, metavar="DIR")
    for name, option in (options or {}).items():
        parser.add_argument(name, **option)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="settings")
    parser.add_argument("--parent", type=int, help="end when this process does")
    given = parser.parse_args(arguments)
    if given.parent is not None:
        die_with(given.parent)
    failed: HeadgateError
    try:
        given.settings = settings_from(given.settings)
        return work(given)
    except (Damaged, TooNew, TooOld) as error:
        failed, status = error, EXIT_FINAL
    except (AlreadyRunning, BadConfig, BadEnvironment) as error:
        failed, status = error, EXIT_REFUSED
    except HeadgateError as error:
        failed, status = error, EXIT_FAILED
    told = fault(failed)
    told["exit_code"] = status
    log.error("failed", **told)
    announce("failed", code=failed.code, message=str(failed))
    return status


MAX_FAILURES: Final = 5  # failures of one part within FAILURE_SECONDS after which the node is given up
FAILURE_SECONDS: Final = 60.0
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 10.0
"""Seconds before a part is started again: twice as long after every failure that is not long ago."""

READY_SECONDS: Final = 300.0
"""How long a part may take until it is ready. Spark is the slow one."""

STOP_SECONDS: Final = 10.0  # how long parts may take to stop before they are ended by force
LOG_BYTES: Final = 10 << 20  # size at which a log file is put away and a new one begun
KEPT: Final = 5  # files kept of the log of one part, the one being written included
LAST_LINES: Final = 12  # lines of a part's log that are shown when it is given up
MAX_LINE_BYTES: Final = 16_384  # bytes after which a line is broken
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
        self.again: float | None = 0.0  # when to start it; None while it runs
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
