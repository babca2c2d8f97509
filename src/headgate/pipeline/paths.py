"""Where a domain keeps the files of its pipeline, among them the fault to strike with."""

from __future__ import annotations

from pathlib import Path
from typing import Final


class Paths:
    """Where a domain keeps its files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ledger = directory / "ledger.db"
        self.log = directory / "log.db"
        self.deliveries = directory / "deliveries.db"
        self.signals = directory / "signals.db"  # what detections signalled, in the form of deliveries
        self.checkpoint = directory / "checkpoint"  # what Spark remembers between runs
        self.detections = directory / "detections"  # what Spark remembers of the detections between runs
        self.predicates = directory / "predicates"  # copies of the registered predicates' modules
        self.fault = directory / "fault"  # the fault to strike with, if any


POINTS: Final = ("read", "decide", "write", "commit")
DETECTION_POINTS: Final = ("detect-read", "detect-decide", "detect-run", "detect-write", "detect-commit")


class Struck(RuntimeError):
    """The fault that was asked for."""


def strike(fault_file: str, point: str) -> None:
    """Fail here if that is what the file says: once, since the file is removed first."""
    path = Path(fault_file)
    if not fault_file:
        return
    try:
        if path.read_text() != point:
            return
        path.unlink()
    except FileNotFoundError:
        return
    raise Struck(f"struck at `{point}`, as asked")
