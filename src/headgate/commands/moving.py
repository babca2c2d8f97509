"""Moving a domain's ledger and shared state between files and a database.

Guarantees: nobody has the domain open meanwhile. All is copied and compared before the domain goes by the new place, in
one step; until then, and if anything fails, it goes by the old one, which stays as it was. Whoever is killed at it
leaves a domain that works, and does it all again when asked again: what was half made is made anew. What the new
ledger says of every version is what the old one said. No file is deleted: those that are in the way, from before an
earlier move, are put aside.
Leaves out: log and deliveries, which stay where they are; `headgate verify` compares them with the ledger.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from headgate.ledger import Ledger
from headgate.ledger.copying import copy as copy_ledger
from headgate.model.errors import BadDefinition
from headgate.node.auditor import Auditor
from headgate.node.config import Config, Files, set_in_file
from headgate.node.cursors import Cursors
from headgate.node.derived_progress import DerivedProgress
from headgate.node.peers import Peers, Watchers
from headgate.node.process_status import PID
from headgate.node.processes import Lock, alone
from headgate.node.statement_register import StatementRegister
from headgate.pipeline.paths import LEDGER, Paths
from headgate.storage.shared import SharedState, Where, copy
from headgate.trust.keys import sync_directory

SHARED: Final[tuple[type[SharedState], ...]] = (Cursors, StatementRegister, Peers, Watchers, DerivedProgress, Auditor)


@dataclass(frozen=True, slots=True)
class Moved:
    """Where ledger and shared state are now, up to which version, and how many rows that is; none if they were there.

    `aside` is where files went that were in the way.
    """

    place: str
    version: int
    rows: int
    aside: Path | None = None


def move(files: Files, database: str | None, progress: Callable[[str], None] = lambda _: None) -> Moved:
    """Move ledger and shared state to an empty database, or back to files."""
    paths, aside = Paths(files.data), None
    with Lock(files.data / PID, "the node"), alone(files.data), closing(Ledger.open(paths.ledger)) as old:
        paths.check_ledger(old.id)
        building = paths.in_files("moving")
        if database == paths.database:
            _check_unsaid(files, database)
            moved = Moved(old.place, old.version, 0)  # whoever did it was killed before the last step
        else:
            old.check()
            id = secrets.token_hex(16)
            if database:
                _forget_unfinished(building, database)
                building.write_text(f"{database}\n{id}\n")
                moved = _copied(old, id, database, lambda _: database, paths, progress)
            else:
                _forget_unfinished(building, None)
                building.mkdir()
                moved = _copied(old, id, building / LEDGER, lambda kind: building / kind, paths, progress)
                aside = _put_in_place(building, files.data)
            paths.keep_in(database, id)
        _forget(building)
        set_in_file(files, "storage.database", database or "")
        return replace(moved, place=database or str(paths.in_files(LEDGER)), aside=aside)


def _check_unsaid(files: Files, database: str | None) -> None:
    if Config.load(files.directory).storage.database == (database or ""):
        raise BadDefinition(f"ledger and shared state are in `{database or files.data}` already")


def _copied(
    old: Ledger,
    id: str,
    place: Where,
    where: Callable[[str], Where],
    paths: Paths,
    progress: Callable[[str], None],
) -> Moved:
    """Copy everything to a place where nothing is, and compare."""
    with closing(Ledger.create(place, administrator=old.administrator, id=id)) as new:
        progress("the ledger")
        rows = copy_ledger(old, new)
        for kind in SHARED:
            progress(kind.FILE.removesuffix(".db"))
            rows += copy(kind, paths.shared(kind.FILE), where(kind.FILE))
        new.check()
        if new.state() != old.state():
            raise BadDefinition(f"`{new.place}` does not hold the state that was copied")
        return Moved(new.place, new.version, rows)


def _forget_unfinished(building: Path, database: str | None) -> None:
    """Make away with what a move that was killed has left: its files, or a ledger in this database that has its id."""
    if building.is_file():
        address, _, id = building.read_text().partition("\n")
        if address == database:
            Ledger.discard(address, id.strip())
    _forget(building)


def _forget(building: Path) -> None:
    if building.is_dir():
        shutil.rmtree(building)
    building.unlink(missing_ok=True)


def _put_in_place(building: Path, data: Path) -> Path | None:
    """Move files from where they were made to where they belong; where those went that were there, if any were."""
    names = [LEDGER, *(kind.FILE for kind in SHARED)]
    there = [one for name in names for end in ("", "-wal", "-shm") if (one := data / f"{name}{end}").exists()]
    aside = next(one for n in count(1) if not (one := data / f"before-move-{n}").exists())
    if there:
        aside.mkdir()
    for old in there:
        old.rename(aside / old.name)
    for new in sorted(building.iterdir()):
        new.rename(data / new.name)
    sync_directory(data)
    return aside if there else None
