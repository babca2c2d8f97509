"""`headgate migrate`: ledger and shared state of a domain from files to a PostgreSQL database, and back.

Guarantees: those of `commands.moving`. The node must not be up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.shared.common import err
from headgate.cli.shared.options import argument, option
from headgate.cli.shared.rendering import count_of, say
from headgate.commands.moving import move
from headgate.model.errors import BadDefinition
from headgate.node.config import Files
from headgate.storage.postgres import checked_address


def migrate(
    directory: Annotated[Path | None, argument("DIR", "The domain.", unset="the current directory")] = None,
    database: Annotated[str | None, option("--database URL", "An empty PostgreSQL database to move to.")] = None,
    files: Annotated[bool, typer.Option("--files", help="Move back to files in the domain's `data`.")] = False,
) -> None:
    """Move a domain's ledger and shared state to a database, or back to files; its node must not be up.

    Everything is copied and compared first, then the domain goes by the new place in one step. Log and deliveries stay.
    What was at the old place stays there too. If it is killed, nothing has happened; ask again.

    For example:

    `headgate migrate shop --database postgresql://headgate@db.example/shop`

    `headgate migrate shop --files`
    """
    if (database is None) == (not files):
        raise BadDefinition("where to is not said", remedy="give `--database URL` or `--files`")
    address = None if database is None else checked_address(database)
    with err.status("copying") as status:
        moved = move(Files(directory or Path()), address, lambda what: status.update(f"copying {what}"))
    if not moved.rows:
        say("It is in ", (moved.place, "bold"), f" already, version {moved.version}; now the settings say so")
        return
    say("Moved to ", (moved.place, "bold"), f": version {moved.version}, {count_of(moved.rows, 'row')}, all compared")
    if moved.aside is not None:
        say(f"  The files that were in the way are in {moved.aside}; nothing needs them.")
