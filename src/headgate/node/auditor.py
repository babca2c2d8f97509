"""How far events about roles have been published: what is left follows from the ledger (docs/decisions/0034).

Guarantees: what is written here is durable before it returns, and is written once the events are in the log; so whoever
goes on after a crash publishes some of them again, under the same ids, and none is left out.
"""

from __future__ import annotations

from typing import Final

from headgate.ledger import Ledger
from headgate.model.events import Draft
from headgate.storage.shared import SharedState, Where

MOST_VERSIONS: Final = 1_000  # versions that are looked at together


class Auditor(SharedState):
    """How far events about roles have been published. One process of a node uses it at a time."""

    FILE = "audited.db"
    FORMAT = 1
    SCHEMA = "CREATE TABLE audited (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL)"

    def __init__(self, where: Where, ledger: Ledger) -> None:
        super().__init__(where)
        self._ledger = ledger

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
            with self._writing() as db:
                db.execute("DELETE FROM audited")
                db.execute("INSERT INTO audited VALUES (1, ?)", (version,))

    def _done(self) -> int:
        rows = self._rows("SELECT version FROM audited")
        return int(rows[0][0]) if rows else 0
