"""What the ledger recorded of audited roles, published as events (decision 0034).

Guarantees: an outbox that follows from the ledger. Whoever announces for the node publishes what versions made of
audited roles, in their order, and writes down how far it has come only after that is in the log; killed in between, the
next one publishes the same events under the same ids, which the log takes once. So nobody enters a role without its
event. A refusal makes no version: it is in the log before it is answered.
Leaves out: which events there are (`roles.requests.audit`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headgate.ledger import Ledger
from headgate.model.changes import EnterRole
from headgate.model.events import Draft
from headgate.model.state import State
from headgate.pipeline.log.sqlite_files import connect, failures, transaction
from headgate.roles.requests.audit import refusal

FILE: Final = "audited.db"
FORMAT: Final = 1
MOST_VERSIONS: Final = 1_000
"""Versions that are looked at together."""
_SCHEMA: Final = "CREATE TABLE audited (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL)"


class Auditor:
    """How far events about roles have been published. One process of a node uses it at a time."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.path = path
        self._ledger = ledger
        self._db = connect(path, _SCHEMA, FORMAT, create=True)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def pending(self, author: str, version: int) -> tuple[list[Draft], int]:
        """The events of the versions after those that are done, and up to which; more may follow."""
        since = self._done()
        upto = min(version, since + MOST_VERSIONS)
        if upto <= since:
            return [], since
        return [one.draft(author) for one in self._ledger.role_turns(since, upto)], upto

    def done(self, version: int) -> None:
        """Everything up to a version is in the log."""
        if version > self._done():
            with transaction(self._db, self.path) as db:
                db.execute("INSERT OR REPLACE INTO audited VALUES (1, ?)", (version,))

    def _done(self) -> int:
        with failures(self.path):
            found = self._db.execute("SELECT version FROM audited").fetchone()
        return 0 if found is None else int(found[0])


def refusals(state: State, asked: Sequence[EnterRole], failure: str) -> list[Draft]:
    """The events of a request that was refused, each with an id of its own."""
    nonce = f".{secrets.token_hex(8)}"
    found = (refusal(state, one, failure, nonce) for one in asked)
    return [one for one in found if one is not None]
