"""How far the signals of detections have been published and added, and what of that was refused.

Guarantees: what is written here is durable before it returns. It is written after what it speaks of is in the log or
the ledger; `tail` and `version` say where those ended when it was written, so that whoever goes on after a crash finds
what was done since by looking past them. One process of a node writes at a time; others may read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from headgate.model.errors import HeadgateError
from headgate.model.values import micros, moment
from headgate.pipeline.log.sqlite_files import connect, failures, transaction

T = TypeVar("T")
_FORMAT: Final = 1
_SCHEMA: Final = """
CREATE TABLE progress (one INTEGER PRIMARY KEY CHECK (one = 1), signal INTEGER NOT NULL, tail INTEGER NOT NULL,
    version INTEGER NOT NULL);
CREATE TABLE refused (subscription TEXT NOT NULL, first INTEGER NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL,
    count INTEGER NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (subscription, first, code)) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class DerivedThrough:
    """The last signal that was dealt with, and where the stream of derived events and the ledger ended by then."""

    signal: int = 0
    tail: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class RefusedSignals:
    """Signals of a detection of which nothing came, for one reason: how often, and when last."""

    subscription: str
    code: str
    message: str
    count: int
    last: datetime


class DerivedProgress:
    """The file of one domain."""

    FILE: Final = "derived.db"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect(path, _SCHEMA, _FORMAT, create=True)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def through(self) -> DerivedThrough:
        """How far it has come."""
        with failures(self.path):
            row = self._db.execute("SELECT signal, tail, version FROM progress").fetchone()
        return DerivedThrough() if row is None else DerivedThrough(*row)

    def done(self, through: DerivedThrough) -> None:
        """All up to here is dealt with."""
        with transaction(self._db, self.path) as db:
            row = through.signal, through.tail, through.version
            db.execute("INSERT OR REPLACE INTO progress VALUES (1, ?, ?, ?)", row)

    def refuse(self, subscription: str, first: int, why: HeadgateError, now: datetime) -> None:
        """Nothing came of a signal."""
        with transaction(self._db, self.path) as db:
            db.execute(
                "INSERT INTO refused VALUES (?, ?, ?, ?, 1, ?) ON CONFLICT DO UPDATE SET "
                "message = excluded.message, count = count + 1, last = excluded.last",
                (subscription, first, why.code, why.message, micros(now)),
            )

    def refused(self) -> list[RefusedSignals]:
        """What was refused, the last first."""
        with failures(self.path):
            rows = self._db.execute(
                "SELECT subscription, code, message, count, last FROM refused ORDER BY last DESC, subscription"
            ).fetchall()
        return [RefusedSignals(one, code, words, count, moment(last)) for one, code, words, count, last in rows]


def derived_through(data: Path) -> int:
    """The last signal that was dealt with in a domain, for other processes; 0 where none was."""
    return _read(data, DerivedThrough(), DerivedProgress.through).signal


def refused_signals(data: Path) -> list[RefusedSignals]:
    """What was refused in a domain, for other processes."""
    return _read(data, [], DerivedProgress.refused)


def _read(data: Path, nothing: T, ask: Callable[[DerivedProgress], T]) -> T:
    path = data / DerivedProgress.FILE
    if not path.exists():
        return nothing
    with closing(DerivedProgress(path)) as progress:
        return ask(progress)
