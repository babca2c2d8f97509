"""How the processes of a node are, by the word of their supervisor, for whoever wants to know.

Guarantees: the word is replaced whole, and counts only while the supervisor that left it holds the node's lock: of a
node that is not up nothing is known. `reason` and `failing` name no path, principal or event, so anyone may be told.
Leaves out: keeping them running (`supervisor`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from headgate.node.processes import held_by

PID: Final = "up.pid"
PROCESSES: Final = "processes.json"
MAX_PROCESSES_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process: is it ready, and if not, or if something in it fails, why."""

    ready: bool = False
    restarts: int = 0  # how often it was started again, since the node was started
    reason: str = ""  # how it ended the last time, as a code or in a few words
    detail: str = ""  # what it said itself when it ended; for the operator
    pause: float = 0.0  # seconds between its last end and the next start
    failing: Mapping[str, str] = field(default_factory=dict)
    """What of it fails though it runs, and by which code or kind of error."""

    @property
    def is_away(self) -> bool:
        """Has it ended, and is not ready again?"""
        return not self.ready and bool(self.reason)


@dataclass(frozen=True, slots=True)
class _Word:
    pid: int
    processes: dict[str, ProcessStatus]


def write_processes(data: Path, processes: Mapping[str, ProcessStatus]) -> None:
    """Leave word of them, as the process that holds the node's lock."""
    fresh = data / f"{PROCESSES}.new"
    fresh.write_bytes(msgspec.json.encode(_Word(os.getpid(), dict(processes))))
    fresh.replace(data / PROCESSES)


def read_processes(data: Path) -> dict[str, ProcessStatus]:
    """Each process of the node that is up, by name; none if no node is."""
    try:
        with (data / PROCESSES).open("rb") as file:
            word = msgspec.json.decode(file.read(MAX_PROCESSES_BYTES), type=_Word)
    except (OSError, msgspec.DecodeError):
        return {}
    return word.processes if held_by(data / PID) == word.pid else {}
