"""Work that takes long in Python, in a few processes of its own, and fair between principals (docs/decisions/0040).

Guarantees: nothing here holds up the gateway itself. Of one principal one job is done at a time and MAX_WAITING wait;
principals take turns, so that nobody waits for more than one job of each other. Past that, and past MAX_WAITING_ALL
together, a job is `too-busy`. One that takes longer than `seconds`, also because its process was stopped in the middle
of a message, is ended with its process and refused as `too-large`; one whose process died is done once more in a new
one. Processes are started when they are needed, as `python -m headgate.gateway.http.worker_pool`. They inherit nothing
of the gateway but their three standard streams, keep nothing of a job but what its function itself remembers, and end
as soon as the gateway has, however that ended and whatever they are doing.
Leaves out: what is done (a function of a module, with arguments and a result that can be pickled), and being quick: a
job costs a millisecond or two on its way, so what is small is better done at once.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, TypeVarTuple

from headgate.model.errors import HeadgateError, TooBusy, TooLarge
from headgate.model.values import brief
from headgate.node.logs import Log
from headgate.node.processes import die_with

PROCESSES: Final = 2
JOB_SECONDS: Final = 20.0
"""How long a job may take."""
START_SECONDS: Final = 60.0
"""How long a process may take to begin."""
MAX_WAITING: Final = 16
"""Jobs of one principal that wait."""
MAX_WAITING_ALL: Final = 1_000
"""Jobs of all that wait."""
NICE: Final = 5
"""How much the gateway itself, which others wait for, goes before."""
_READY: Final = b"ready"
_HEAD: Final = struct.Struct(">Q")
_CHUNK: Final = 1 << 20
_LOOK_SECONDS: Final = 0.2  # how often it is looked whether an answer is still waited for
_TRIES: Final = 2

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
log = Log("workers")


@dataclass(frozen=True, slots=True)
class _Job:
    principal: str
    text: bytes
    answer: Future[Any]


class _Late(Exception):
    """A process has not answered in time."""


class Workers:
    """The processes of one gateway. May be used from any thread."""

    def __init__(self, processes: int = PROCESSES, seconds: float = JOB_SECONDS) -> None:
        self._most = processes
        self._seconds = seconds
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[_Job]] = {}
        self._turns: deque[str] = deque()
        """Those who have a job that waits, and none under way."""
        self._busy: set[str] = set()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._stopping = False

    async def run(self, principal: str, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """Have a job done for a principal."""
        answer = self.submit(principal, work, *args)
        found: T = await asyncio.wrap_future(answer)
        return found

    def submit(self, principal: str, work: Callable[[*Ts], T], *args: *Ts) -> Future[T]:
        """Let a job wait for its turn; who gives it up meanwhile cancels it."""
        job = _Job(principal, pickle.dumps((work, args)), Future())
        with self._changed:
            if self._stopping:
                raise _stopping()
            line = self._waiting.setdefault(principal, deque())
            if len(line) >= MAX_WAITING or sum(map(len, self._waiting.values())) >= MAX_WAITING_ALL:
                raise TooBusy(
                    f"{len(line)} requests of `{brief(principal)}` wait to be read, and those of others",
                    remedy="send them one after another",
                    retry=1.0,
                )
            line.append(job)
            if len(line) == 1 and principal not in self._busy:
                self._turns.append(principal)
            if self._idle < len(self._turns) and len(self._threads) < self._most:
                self._threads.append(threading.Thread(target=self._serve, name="worker", daemon=True))
                self._threads[-1].start()
            self._changed.notify()
        return job.answer

    def stop(self) -> None:
        """End all processes; what waits is refused."""
        with self._changed:
            self._stopping = True
            for line in self._waiting.values():
                for job in line:
                    _settle(job, _stopping())
            self._waiting.clear()
            self._turns.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # -- in a thread for each process -------------------------------------------------------------------------

    def _serve(self) -> None:
        process = _Process()
        try:
            while (job := self._next()) is not None:
                if job.answer.set_running_or_notify_cancel():
                    _settle(job, self._done(process, job))
                with self._changed:
                    self._busy.discard(job.principal)
                    if job.principal in self._waiting:
                        self._turns.append(job.principal)
                        self._changed.notify()
        finally:
            process.end()

    def _next(self) -> _Job | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._stopping or self._turns)
            self._idle -= 1
            if self._stopping:
                return None
            principal = self._turns.popleft()
            line = self._waiting[principal]
            job = line.popleft()
            if not line:
                del self._waiting[principal]
            self._busy.add(principal)
            return job

    def _done(self, process: _Process, job: _Job) -> object:
        """What a job leads to: its result in a tuple, or the refusal."""
        for _ in range(_TRIES):
            try:
                ok, result = process.ask(job.text, self._seconds, lambda: self._stopping)
            except _Late:
                process.end()
                log.warning("job-ended", holder=job.principal, seconds=self._seconds)
                return TooLarge(
                    f"it was not worked out in {self._seconds:g} seconds", remedy="send less, or simpler, at a time"
                )
            except (EOFError, OSError):  # it is not there any more
                process.end()
                if self._stopping:
                    return _stopping()
                log.warning("worker-died", holder=job.principal)
                continue
            if ok:
                return (result,)
            if isinstance(result, HeadgateError):
                return result
            log.error("job-failed", holder=job.principal, reason=str(result)[:200])
            return RuntimeError(f"a job failed: {result}")
        return TooBusy("the process that was to work it out died", remedy="send it again", retry=1.0)


def _stopping() -> TooBusy:
    return TooBusy("the gateway is stopping", remedy="ask another")


def _settle(job: _Job, outcome: object) -> None:
    with suppress(InvalidStateError):  # whoever waited has given it up
        if isinstance(outcome, BaseException):
            job.answer.set_exception(outcome)
        else:
            job.answer.set_result(outcome[0])  # type: ignore[index]


class _Process:
    """One process, started when there is something to ask."""

    def __init__(self) -> None:
        self._process: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def ask(self, job: bytes, seconds: float, given_up: Callable[[], bool]) -> tuple[bool, Any]:
        """Have a job done; `_Late` if that takes too long, and `EOFError` or `OSError` if the process is gone."""
        _, pipe = self._process or self._start(given_up)
        patience = _until(time.monotonic() + seconds, given_up)
        _send(pipe, job, patience)
        found: tuple[bool, Any] = pickle.loads(_receive(pipe, patience))  # noqa: S301 - our own process
        return found

    def _start(self, given_up: Callable[[], bool]) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", "headgate.gateway.http.worker_pool", str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=2,  # what a library prints is no answer
                start_new_session=True,  # what is typed at a terminal is for the gateway
            )
        self._process = process, ours
        if _receive(ours, _until(time.monotonic() + START_SECONDS, given_up)) != _READY:
            raise EOFError
        return self._process

    def end(self) -> None:
        """End it, whatever it does."""
        if self._process is not None:
            (process, pipe), self._process = self._process, None
            process.kill()
            process.wait()
            pipe.close()


# -- messages, each after the number of its bytes -------------------------------------------------------------

_Patience: TypeAlias = Callable[[], float | None]
"""For how many seconds the other end may let nothing through; raises if there is nothing to wait for any more."""


def _until(end: float, given_up: Callable[[], bool]) -> _Patience:
    """Patience up to a time, also with who is stopped in the middle of a message."""

    def patience() -> float:
        left = end - time.monotonic()
        if left <= 0:
            raise _Late
        if given_up():
            raise EOFError
        return min(left, _LOOK_SECONDS)

    return patience


def _send(pipe: socket.socket, message: bytes, patience: _Patience) -> None:
    left = memoryview(_HEAD.pack(len(message)) + message)
    while left:
        pipe.settimeout(patience())
        with suppress(TimeoutError):
            left = left[pipe.send(left) :]


def _receive(pipe: socket.socket, patience: _Patience) -> bytes:
    (size,) = _HEAD.unpack(_received(pipe, _HEAD.size, patience))
    return _received(pipe, size, patience)


def _received(pipe: socket.socket, size: int, patience: _Patience) -> bytes:
    found = bytearray()
    while len(found) < size:
        pipe.settimeout(patience())
        with suppress(TimeoutError):
            piece = pipe.recv(min(size - len(found), _CHUNK))
            if not piece:
                raise EOFError
            found += piece
    return bytes(found)


# -- in a process ---------------------------------------------------------------------------------------------


def main() -> None:
    """Do jobs until there is no gateway."""
    die_with(int(sys.argv[1]))  # also where a job lets no other thread of this process run
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gateway hears it too, and ends this in its own time
    os.nice(NICE)
    pipe = socket.socket(fileno=0)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def take() -> None:
        with suppress(EOFError, OSError):
            while True:
                jobs.put(_receive(pipe, _forever))
        os._exit(0)  # also in the middle of a job: nobody is there to hear of it

    threading.Thread(target=take, name="jobs", daemon=True).start()
    _send(pipe, _READY, _forever)
    while True:
        _send(pipe, _outcome(jobs.get()), _forever)


def _forever() -> None:
    """The patience with a gateway: if that has ended, so has the pipe."""


def _outcome(job: bytes) -> bytes:
    """Do a job: what it returns or the refusal that it raises, as it is sent."""
    try:
        work, args = pickle.loads(job)  # noqa: S301 - the gateway's own, by a pipe that nobody else has
        return pickle.dumps((True, work(*args)))
    except HeadgateError as refusal:
        return pickle.dumps((False, refusal))
    except (MemoryError, RecursionError) as error:
        return pickle.dumps((False, type(error).__name__))
    except Exception as error:  # noqa: BLE001 - whatever it is, the gateway must hear of it
        return pickle.dumps((False, f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
