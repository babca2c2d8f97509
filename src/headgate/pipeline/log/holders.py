"""Who holds a stream: a process of a machine, named so that others on the machine can tell whether it still lives.

Guarantees: a holder is called dead only if it ran on this machine and its process is gone, or its number belongs to
another process by now. Of other machines nothing is known, and their holders count as alive until their lease lapses.
Leaves out: safety. A wrong guess costs a takeover, not an event: an append needs the newest fencing token.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_PROC = Path("/proc")
_GONE = ("Z", "X", "x")
"""States of a process that will never run again."""


def holder_of_this_process(name: str) -> str:
    """`host:pid:start:name` of the process that asks."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_started(pid) or 0}:{name}"


def is_dead(holder: str) -> bool:
    """Is this holder known to have ended?"""
    host, pid, start = (*holder.split(":", 3), "", "", "")[:3]
    if host != socket.gethostname() or not pid.isdecimal() or not start.isdecimal() or int(start) == 0:
        return False
    if _started(os.getpid()) is None:  # no process can be looked up here
        return False
    return _started(int(pid)) != int(start)


def never(holder: str) -> bool:  # noqa: ARG001
    """Nobody is known to be dead."""
    return False


def _started(pid: int) -> int | None:
    """When a living process began, in the kernel's ticks."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] in _GONE else int(fields[19])
