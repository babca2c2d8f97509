"""What the processes of a node have in common.

Guarantees: a lock is held by one process and let go when that process ends, however it ends. A process that was given
a parent does not outlive it. What is told to the supervisor is one JSON object a line on standard output.
Leaves out: other systems than Linux, where a process cannot ask to die with its parent and so is not asked to; and
keeping them running (`supervisor`).
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

from headgate.model.errors import (
    AlreadyRunning,
    BadConfig,
    BadEnvironment,
    Damaged,
    HeadgateError,
    StorageBusy,
    TooNew,
    TooOld,
)
from headgate.node.logs import Log, fault

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


class Use:
    """Held on a domain's data by every process that has it open, for as long as it has."""

    def __init__(self, directory: Path) -> None:
        self._handle = _flocked(directory, fcntl.LOCK_SH)
        if self._handle < 0:
            raise StorageBusy(f"`{directory}` is being moved", remedy="try again when `headgate migrate` has ended")

    def close(self) -> None:
        """Let go, if that was not done."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Nobody else has a domain's data open (`Use`), nor can open it."""
    handle = _flocked(directory, fcntl.LOCK_EX)
    if handle < 0:
        raise AlreadyRunning(f"another command or process has `{directory}` open", remedy="end it, then try again")
    try:
        yield
    finally:
        os.close(handle)


def _flocked(directory: Path, how: int) -> int:
    """A handle of a directory that holds a lock; less than nothing if somebody else is in the way."""
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return -1
    return handle


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
