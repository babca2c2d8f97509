"""What the domain's access control service has to remember: what it issued and revoked, and what other issuers said.

Guarantees: the number of the revocation list only grows, and what was revoked once stays revoked until the statement
would have ended by itself, also after `kill -9`: an entry and the number it makes are one durable write. Nothing here
is secret, and nothing here grants anything: that is the ledger's part.
Leaves out: signing (`issuing`). May be used from any thread; several processes share the file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from headgate.model.authority import RevocationList
from headgate.model.errors import TooMany
from headgate.model.limits import MAX_REVOKED
from headgate.model.values import micros, moment
from headgate.pipeline.log.sqlite_files import changes, connect, failures, transaction

FILE: Final = "authority.db"
FORMAT: Final = 1
_SCHEMA: Final = """
CREATE TABLE issued (id TEXT PRIMARY KEY, kind TEXT NOT NULL, principal TEXT NOT NULL, subject TEXT NOT NULL,
    rule TEXT NOT NULL, at INTEGER NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX issued_principal ON issued (principal, id);
CREATE TABLE revoked (id TEXT PRIMARY KEY, until INTEGER) WITHOUT ROWID;
CREATE TABLE list (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL);
CREATE TABLE heard (issuer TEXT PRIMARY KEY, number INTEGER NOT NULL, issued INTEGER NOT NULL, at INTEGER NOT NULL,
    revoked TEXT NOT NULL, statement TEXT) WITHOUT ROWID;
CREATE TABLE types (name TEXT PRIMARY KEY, statement TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO list VALUES (1, 0)
"""
MAX_KEPT_LIST: Final = 16_384
"""Characters of another issuer's list that is kept as it was signed, to be shown to clients."""

_LATE: Final = 120_000_000
"""Microseconds for which what has ended is still remembered: other clocks may be behind."""


@dataclass(frozen=True, slots=True)
class IssuedStatement:
    """A statement of the service that has not ended."""

    id: str
    kind: str
    principal: str
    subject: str
    rule: str
    at: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Heard:
    """The last list of an issuer, when it was received, and its text if that is short."""

    list: RevocationList
    at: datetime
    statement: str | None = None


class StatementRegister:
    """The memory of one domain's service."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect(path, _SCHEMA, FORMAT, create=True)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def changed(self) -> int:
        """A number that changes when another process has written; asking costs next to nothing."""
        with self._lock:
            return changes(self._db, self.path)

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock, failures(self.path):
            return self._db.execute(query, values).fetchall()

    # -- what was issued --------------------------------------------------------------------------------------

    def issue(self, new: Collection[IssuedStatement], most: int, now: datetime) -> None:
        """Record statements before they are handed out; refused past so many for one principal."""
        with self._lock, transaction(self._db, self.path) as db:
            db.execute("DELETE FROM issued WHERE until <= ?", (micros(now) - _LATE,))
            for statement in new:
                (held,) = db.execute(
                    "SELECT count(*) FROM issued WHERE principal = ?", (statement.principal,)
                ).fetchone()
                if held >= most:
                    raise TooMany(
                        f"`{statement.principal}` has {held} statements that have not ended",
                        remedy="use those, give some up, or raise `authority.issued_per_principal`",
                    )
                values = (
                    statement.id,
                    statement.kind,
                    statement.principal,
                    statement.subject,
                    statement.rule,
                    micros(statement.at),
                    micros(statement.until),
                )
                db.execute("INSERT INTO issued VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def issued(self, principal: str | None, after: str, most: int) -> list[IssuedStatement]:
        """Statements by id, after one: of a principal, or of all."""
        mine = "" if principal is None else "principal = ? AND "
        given = () if principal is None else (principal,)
        rows = self._rows(f"SELECT * FROM issued WHERE {mine}id > ? ORDER BY id LIMIT ?", *given, after, most)  # noqa: S608
        return [_issued(row) for row in rows]

    def one(self, id: str) -> IssuedStatement | None:
        """A statement that was issued here and is remembered."""
        rows = self._rows("SELECT * FROM issued WHERE id = ?", id)
        return _issued(rows[0]) if rows else None

    # -- what was revoked -------------------------------------------------------------------------------------

    def number(self) -> int:
        """The number of the list."""
        return int(self._rows("SELECT number FROM list")[0][0])

    def revocations(self) -> tuple[int, frozenset[str]]:
        """The list: its number and all that is on it."""
        with self._lock, failures(self.path):
            rows = self._db.execute("SELECT number, id FROM list LEFT JOIN revoked").fetchall()
        return int(rows[0][0]), frozenset(id for _, id in rows if id is not None)

    def is_revoked(self, id: str) -> bool:
        """Is it on the list?"""
        return bool(self._rows("SELECT 1 FROM revoked WHERE id = ?", id))

    def revoke(self, id: str, now: datetime) -> bool:
        """Put a statement on the list, which gets the next number; false if it is there already."""
        with self._lock, transaction(self._db, self.path) as db:
            if db.execute("SELECT 1 FROM revoked WHERE id = ?", (id,)).fetchone():
                return False
            db.execute("DELETE FROM revoked WHERE until <= ?", (micros(now) - _LATE,))
            if db.execute("SELECT count(*) FROM revoked").fetchone()[0] >= MAX_REVOKED:
                raise TooMany(f"the list has MAX_REVOKED ({MAX_REVOKED}) entries", remedy="issue for shorter times")
            found = db.execute("SELECT until FROM issued WHERE id = ?", (id,)).fetchone()
            db.execute("INSERT INTO revoked VALUES (?, ?)", (id, None if found is None else found[0]))
            db.execute("UPDATE list SET number = number + 1")
        return True

    def catch_up(self, known: RevocationList) -> None:
        """Never fall behind what the ledger knows of our own list, as a file restored from a copy would."""
        with self._lock, transaction(self._db, self.path) as db:
            (number,) = db.execute("SELECT number FROM list").fetchone()
            if number < known.number:
                db.executemany("INSERT OR IGNORE INTO revoked VALUES (?, NULL)", [(id,) for id in known.revoked])
                db.execute("UPDATE list SET number = ?", (known.number + 1,))

    # -- what others said -------------------------------------------------------------------------------------

    def hear(self, listed: RevocationList, statement: str, now: datetime) -> None:
        """Remember the last list of an issuer; its entries are written only when they are others."""
        text = statement if len(statement) <= MAX_KEPT_LIST else None
        with self._lock, transaction(self._db, self.path) as db:
            done = db.execute(
                "UPDATE heard SET issued = max(issued, ?), at = ?, statement = ? WHERE issuer = ? AND number = ?",
                (micros(listed.issued), micros(now), text, listed.issuer, listed.number),
            )
            if done.rowcount == 0:
                entries = json.dumps(sorted(listed.revoked))
                values = (listed.issuer, listed.number, micros(listed.issued), micros(now), entries, text)
                db.execute("INSERT OR REPLACE INTO heard VALUES (?, ?, ?, ?, ?, ?)", values)

    def heard(self, issuer: str) -> Heard | None:
        """The last list of an issuer."""
        rows = self._rows("SELECT * FROM heard WHERE issuer = ?", issuer)
        if not rows:
            return None
        _, number, issued, at, revoked, statement = rows[0]
        found = RevocationList(issuer, number, moment(issued), frozenset(json.loads(revoked)))
        return Heard(found, moment(at), statement)

    def heard_at(self) -> dict[str, datetime]:
        """When each issuer was last heard."""
        return {issuer: moment(at) for issuer, at in self._rows("SELECT issuer, at FROM heard")}

    # -- signed types -----------------------------------------------------------------------------------------

    def keep_type(self, name: str, statement: str) -> None:
        """Keep the signed definition of a type, in place of an earlier one."""
        with self._lock, transaction(self._db, self.path) as db:
            db.execute("INSERT OR REPLACE INTO types VALUES (?, ?)", (name, statement))

    def type(self, name: str) -> str | None:
        """The signed definition of a type."""
        rows = self._rows("SELECT statement FROM types WHERE name = ?", name)
        return str(rows[0][0]) if rows else None


def _issued(row: tuple[Any, ...]) -> IssuedStatement:
    id, kind, principal, subject, rule, at, until = row
    return IssuedStatement(id, kind, principal, subject, rule, moment(at), moment(until))
