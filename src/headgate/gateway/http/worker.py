"""A process that does one job after another for a gateway: `python -m headgate.gateway.http.worker` (`worker_pool`).

Guarantees: a job is a function of a module and its arguments; what it returns, or the refusal that it raises, goes
back, and nothing else is kept of it but what the function itself remembers. It inherits nothing of the gateway but its
three standard streams, and ends as soon as the gateway has, however that ended and whatever it is doing.
Leaves out: limits of time, which are the gateway's to keep.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import struct
import sys
import threading
from typing import BinaryIO, Final

from headgate.model.errors import HeadgateError
from headgate.node.processes import die_with

HEAD: Final = struct.Struct(">Q")
"""How a message begins: with the number of its bytes."""
READY: Final = b"ready"
NICE: Final = 5
"""How much the gateway itself, which others wait for, goes before."""


def read_message(file: BinaryIO) -> bytes | None:
    """The next message, or None at the end."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    (size,) = HEAD.unpack(head)
    body = file.read(size)
    return body if len(body) == size else None


def write_message(file: BinaryIO, body: bytes) -> None:
    """Send a message."""
    file.write(HEAD.pack(len(body)))
    file.write(body)
    file.flush()


def done(job: bytes) -> bytes:
    """Do a job: the answer, as it is sent."""
    try:
        work, args = pickle.loads(job)  # noqa: S301 - the gateway's own, by a pipe that nobody else has
        return pickle.dumps((True, work(*args)))
    except HeadgateError as refusal:
        return pickle.dumps((False, refusal))
    except (MemoryError, RecursionError) as error:
        return pickle.dumps((False, type(error).__name__))
    except Exception as error:  # noqa: BLE001 - whatever it is, the gateway must hear of it
        return pickle.dumps((False, f"{type(error).__name__}: {error}"))


def main() -> None:
    """Do jobs until there is no gateway."""
    die_with(int(sys.argv[1]))  # also where a job lets no other thread of this process run
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gateway hears it too, and ends this in its own time
    os.nice(NICE)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def take() -> None:
        while (job := read_message(sys.stdin.buffer)) is not None:
            jobs.put(job)
        os._exit(0)  # also in the middle of a job: nobody is there to hear of it

    threading.Thread(target=take, name="jobs", daemon=True).start()
    write_message(answers, READY)
    while True:
        write_message(answers, done(jobs.get()))


if __name__ == "__main__":
    main()
