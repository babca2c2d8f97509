"""Where a domain keeps the files of its pipeline, among them the fault to strike with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Paths:
    """Where a domain keeps its files."""

    directory: Path

    @property
    def ledger(self) -> Path:
        """The ledger."""
        return self.directory / "ledger.db"

    @property
    def log(self) -> Path:
        """The event log."""
        return self.directory / "log.db"

    @property
    def deliveries(self) -> Path:
        """The delivery store."""
        return self.directory / "deliveries.db"

    @property
    def checkpoint(self) -> Path:
        """What Spark remembers between runs."""
        return self.directory / "checkpoint"

    @property
    def predicates(self) -> Path:
        """Copies of the registered predicates' modules."""
        return self.directory / "predicates"

    @property
    def fault(self) -> Path:
        """The fault to strike with, if any."""
        return self.directory / "fault"


POINTS: Final = ("read", "decide", "write", "commit")


class Struck(RuntimeError):
    """The fault that was asked for."""


def strike(fault_file: str, point: str) -> None:
    """Fail here if that is what the file says."""
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
