"""What is heard of services of other domains: a file that the gateways and the follower of a node share.

Guarantees: a sign of life is written after everything that was said before it is in the ledger, so that any gateway may
go by it when the ledger's own has run out. What a client shows waits here until the follower has asked its issuer; each
question is answered once, and forgotten soon after it was asked. The file can be lost: then nobody has been heard of.
Leaves out: following (`gateway.federation.following`), and what silence means (`roles.records.clock`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from headgate.model.errors import TooBusy
from headgate.model.limits import MAX_PRESENTED
from headgate.model.roles import Peer, RoleBook
from headgate.model.values import micros, moment
from headgate.pipeline.log.sqlite_files import changes, connect, failures, transaction
from headgate.roles.certificates.remote_records import FollowCounts, Identity, identity, mirrored

FILE: Final = "peers.db"
FORMAT: Final = 1
QUESTION_SECONDS: Final = 20.0
"""How long a question to an issuer is worth answering."""

_SCHEMA: Final = """
CREATE TABLE heard (peer TEXT PRIMARY KEY, key TEXT NOT NULL, service TEXT NOT NULL, at INTEGER NOT NULL,
    duplicated INTEGER NOT NULL, lost INTEGER NOT NULL, late INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE troubles (peer TEXT PRIMARY KEY, words TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE questions (id TEXT PRIMARY KEY, peer TEXT NOT NULL, principal TEXT NOT NULL, did TEXT NOT NULL,
    certificate TEXT NOT NULL, asked INTEGER NOT NULL, answer TEXT) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class PeerQuestion:
    """A certificate of another domain's service, and who has shown it with which key."""

    id: str
    peer: str
    principal: str
    did: str
    certificate: str


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """How one stands with a service of another domain; `seconds` since it was heard, None if it never was."""

    name: str
    service: str
    key: str
    bound: int
    seconds: float | None
    records: int
    unknown: int
    counts: FollowCounts
    trouble: str | None = None


class Peers:
    """The memory of one node about its peers. May be used from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect(path, _SCHEMA, FORMAT, create=True)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def changed(self) -> int:
        """A number that changes when another process has written."""
        with self._lock:
            return changes(self._db, self.path)

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock, failures(self.path):
            return self._db.execute(query, values).fetchall()

    # -- signs of life ----------------------------------------------------------------------------------------

    def hear(self, peer: Peer, at: datetime, counts: FollowCounts) -> None:
        """A peer was heard; all that it said until then is in the ledger."""
        values = (*identity(peer), micros(at), counts.duplicated, counts.lost, counts.late)
        with self._lock, transaction(self._db, self.path) as db:
            db.execute("INSERT OR REPLACE INTO heard VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            db.execute("DELETE FROM troubles WHERE peer = ?", (peer.name,))

    def heard(self) -> dict[Identity, datetime]:
        """When each peer was last heard."""
        rows = self._rows("SELECT peer, key, service, at FROM heard")
        return {(peer, key, service): moment(at) for peer, key, service, at in rows}

    def fail(self, peer: str, words: str) -> None:
        """A peer cannot be followed now, for a reason."""
        with self._lock, transaction(self._db, self.path) as db:
            db.execute("INSERT OR REPLACE INTO troubles VALUES (?, ?)", (peer, words))

    def forget(self, peer: str) -> None:
        """A peer is one no longer: a later one of this name is another."""
        with self._lock, transaction(self._db, self.path) as db:
            for table in ("heard", "troubles", "questions"):
                db.execute(f"DELETE FROM {table} WHERE peer = ?", (peer,))  # noqa: S608 - our own names

    def statuses(self, book: RoleBook, now: datetime) -> list[PeerStatus]:
        """How one stands with each peer of the ledger."""
        if not book.peers:
            return []
        heard: Mapping[str, Any] = {row[0]: row for row in self._rows("SELECT * FROM heard")}
        troubles = dict(self._rows("SELECT peer, words FROM troubles"))
        statuses = []
        for name, peer in sorted(book.peers.items()):
            row = heard.get(name, ())
            at, *counts = row[3:] if row[:3] == identity(peer) else (None, 0, 0, 0)
            last = max((one for one in (peer.heard, None if at is None else moment(at)) if one), default=None)
            silent = None if last is None else max(0.0, (now - last).total_seconds())
            states = mirrored(book, name)
            unknown = sum(1 for state in states.values() if state is None)
            statuses.append(
                PeerStatus(
                    *(name, peer.service, peer.key, peer.bound, silent, len(states), unknown),
                    FollowCounts(*counts),
                    troubles.get(name),
                )
            )
        return statuses

    # -- questions --------------------------------------------------------------------------------------------

    def ask(self, question: PeerQuestion, now: datetime) -> None:
        """Let the follower ask an issuer about a certificate."""
        with self._lock, transaction(self._db, self.path) as db:
            db.execute("DELETE FROM questions WHERE asked <= ?", (_worth(now),))
            (waiting,) = db.execute("SELECT count(*) FROM questions WHERE answer IS NULL").fetchone()
            if waiting >= MAX_PRESENTED:
                raise TooBusy(f"MAX_PRESENTED ({MAX_PRESENTED}) certificates wait to be confirmed", remedy="try again")
            said = (question.id, question.peer, question.principal, question.did, question.certificate)
            db.execute("INSERT INTO questions VALUES (?, ?, ?, ?, ?, ?, NULL)", (*said, micros(now)))

    def asked(self, peer: str, now: datetime) -> list[PeerQuestion]:
        """The questions to a peer that wait, oldest first."""
        rows = self._rows(
            "SELECT id, peer, principal, did, certificate FROM questions "
            "WHERE peer = ? AND answer IS NULL AND asked > ? ORDER BY asked, id",
            *(peer, _worth(now)),
        )
        return [PeerQuestion(*row) for row in rows]

    def answer(self, id: str, said: str) -> None:
        """Answer a question, if whoever asked may still wait."""
        with self._lock, transaction(self._db, self.path) as db:
            db.execute("UPDATE questions SET answer = ? WHERE id = ? AND answer IS NULL", (said, id))

    def answered(self, id: str) -> str | None:
        """The answer to a question, once it is there; it is then forgotten."""
        rows = self._rows("SELECT answer FROM questions WHERE id = ?", id)
        if not rows or rows[0][0] is None:
            return None
        self.withdraw(id)
        return str(rows[0][0])

    def withdraw(self, id: str) -> None:
        """Nobody waits for an answer any longer."""
        with self._lock, transaction(self._db, self.path) as db:
            db.execute("DELETE FROM questions WHERE id = ?", (id,))


def _worth(now: datetime) -> int:
    return micros(now - timedelta(seconds=QUESTION_SECONDS))
