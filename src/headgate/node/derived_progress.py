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
from typing import TypeVar

from headgate.model.errors import HeadgateError
from headgate.model.values import micros, moment
from headgate.pipeline.paths import Paths
from headgate.storage.shared import SharedState

T = TypeVar("T")


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


class DerivedProgress(SharedState):
    """The memory of one domain."""

    FILE = "derived.db"
    FORMAT = 1
    SCHEMA = """
        CREATE TABLE progress (one INTEGER PRIMARY KEY CHECK (one = 1), signal INTEGER NOT NULL, tail INTEGER NOT NULL,
            version INTEGER NOT NULL);
        CREATE TABLE refused (subscription TEXT NOT NULL, first INTEGER NOT NULL, code TEXT NOT NULL,
            message TEXT NOT NULL, count INTEGER NOT NULL, last INTEGER NOT NULL,
            PRIMARY KEY (subscription, first, code)) WITHOUT ROWID
    """

    def through(self) -> DerivedThrough:
        """How far it has come."""
        rows = self._rows("SELECT signal, tail, version FROM progress")
        return DerivedThrough(*rows[0]) if rows else DerivedThrough()

    def done(self, through: DerivedThrough) -> None:
        """All up to here is dealt with."""
        with self._writing() as db:
            db.execute("DELETE FROM progress")
            db.execute("INSERT INTO progress VALUES (1, ?, ?, ?)", (through.signal, through.tail, through.version))

    def refuse(self, subscription: str, first: int, why: HeadgateError, now: datetime) -> None:
        """Nothing came of a signal."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO refused VALUES (?, ?, ?, ?, 1, ?) ON CONFLICT (subscription, first, code) DO UPDATE SET "
                "message = excluded.message, count = refused.count + 1, last = excluded.last",
                (subscription, first, why.code, why.message.replace("\0", " "), micros(now)),
            )

    def refused(self) -> list[RefusedSignals]:
        """What was refused, the last first."""
        rows = self._rows(
            "SELECT subscription, code, message, count, last FROM refused ORDER BY last DESC, subscription"
        )
        return [RefusedSignals(one, code, words, count, moment(last)) for one, code, words, count, last in rows]


def derived_through(paths: Paths) -> int:
    """The last signal that was dealt with in a domain, for other processes; 0 where none was."""
    return _read(paths, DerivedThrough(), DerivedProgress.through).signal


def refused_signals(paths: Paths) -> list[RefusedSignals]:
    """What was refused in a domain, for other processes."""
    return _read(paths, [], DerivedProgress.refused)


def _read(paths: Paths, nothing: T, ask: Callable[[DerivedProgress], T]) -> T:
    where = paths.shared(DerivedProgress.FILE)
    if isinstance(where, Path) and not where.exists():
        return nothing
    with closing(DerivedProgress(where)) as progress:
        return ask(progress)
