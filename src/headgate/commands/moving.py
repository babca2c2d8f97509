"""Moving a domain's ledger and shared state between files and a database.

Guarantees: nothing of the domain runs meanwhile. All is copied and compared before the domain goes by the new place, in
one step; until then, and if anything fails, it goes by the old one, which stays as it was. What the new ledger says of
every version is what the old one said.
Leaves out: log and deliveries, which stay where they are; `headgate verify` compares them with the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from headgate.ledger import Ledger
from headgate.ledger.copying import copy as copy_ledger
from headgate.model.errors import BadDefinition
from headgate.node.auditor import Auditor
from headgate.node.config import Files, set_in_file
from headgate.node.cursors import Cursors
from headgate.node.derived_progress import DerivedProgress
from headgate.node.peers import Peers, Watchers
from headgate.node.process_status import PID
from headgate.node.processes import Lock
from headgate.node.statement_register import StatementRegister
from headgate.pipeline.paths import Paths
from headgate.storage.shared import SharedState, Where, copy

SHARED: Final[tuple[type[SharedState], ...]] = (Cursors, StatementRegister, Peers, Watchers, DerivedProgress, Auditor)


@dataclass(frozen=True, slots=True)
class Moved:
    """Where ledger and shared state are now, up to which version, and how many rows that is."""

    place: str
    version: int
    rows: int


def move(files: Files, database: str | None, progress: Callable[[str], None] = lambda _: None) -> Moved:
    """Move ledger and shared state to an empty database, or back to files."""
    paths = Paths(files.data)
    if database == paths.database:
        raise BadDefinition(f"ledger and shared state are in `{database or files.data}` already")
    with Lock(files.data / PID, "the node"), closing(Ledger.open(paths.ledger)) as old:
        paths.check_ledger(old.id)
        old.check()
        place: Where = database or paths.in_files("ledger.db")
        with closing(Ledger.create(place, administrator=old.administrator)) as new:
            progress("the ledger")
            rows = copy_ledger(old, new)
            for kind in SHARED:
                progress(kind.FILE.removesuffix(".db"))
                rows += copy(kind, paths.shared(kind.FILE), database or paths.in_files(kind.FILE))
            new.check()
            if new.state() != old.state():
                raise BadDefinition(f"`{new.place}` does not hold the state that was copied")
            paths.keep_in(database, new.id)
            set_in_file(files, "storage.database", database or "")
            return Moved(new.place, new.version, rows)
