"""Where a domain keeps its data, among them the fault to strike with.

Guarantees: ledger and shared state are files of the directory, unless its file `database` says in which database they
are. That file is written when a domain is made or moved there, so that every process that knows the directory finds
them.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Final

from headgate.model.errors import BadConfig
from headgate.storage.postgres import checked_address

LEDGER: Final = "ledger.db"
_MAX_ADDRESS: Final = 2_000


class Paths:
    """Where a domain keeps what."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log.db"
        self.deliveries = directory / "deliveries.db"
        self.signals = directory / "signals.db"  # what detections signalled, in the form of deliveries
        self.checkpoint = directory / "checkpoint"  # what Spark remembers between runs
        self.detections = directory / "detections"  # what Spark remembers of the detections between runs
        self.predicates = directory / "predicates"  # copies of the registered predicates' modules
        self.fault = directory / "fault"  # the fault to strike with, if any
        self._database = directory / "database"

    @cached_property
    def _kept_in(self) -> tuple[str | None, str]:
        try:
            with self._database.open() as file:
                address, _, id = file.read(_MAX_ADDRESS).partition("\n")
                return checked_address(address), id.strip()
        except (FileNotFoundError, NotADirectoryError):
            return None, ""
        except BadConfig as error:
            raise error.at(str(self._database)) from None

    @property
    def database(self) -> str | None:
        """The database that has ledger and shared state; None where they are files."""
        return self._kept_in[0]

    def check_ledger(self, id: str) -> None:
        """Refuse the ledger of another domain, whose streams are not those that are here."""
        address, mine = self._kept_in
        if address is not None and id != mine:
            raise BadConfig(
                f"`{address}` holds the ledger of another domain",
                place=str(self._database),
                remedy="name the database that this domain was made or moved to",
            )

    @property
    def ledger(self) -> Path | str:
        """The ledger's file, or the database that it is in."""
        return self.shared(LEDGER)

    @property
    def has_ledger(self) -> bool:
        """Has this directory, or the database that it names, a ledger?"""
        ledger = self.ledger
        return not isinstance(ledger, Path) or ledger.exists()

    def shared(self, file: str) -> Path | str:
        """Where shared state of a kind is, by the name of its file."""
        return self.database or self.in_files(file)

    def in_files(self, file: str) -> Path:
        """Where shared state of a kind is if it is in files."""
        return self.directory / file

    def keep_in(self, database: str | None, id: str) -> None:
        """Ledger and shared state are in a database from now on, whose ledger has this `id`, or in files."""
        if database is None:
            self._database.unlink(missing_ok=True)
        else:
            fresh = self._database.with_suffix(".new")
            with fresh.open("w") as file:
                file.write(f"{checked_address(database)}\n{id}\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._database)
        self.__dict__.pop("_kept_in", None)


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
