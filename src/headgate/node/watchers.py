"""What has been announced to those who follow our records: a file that all gateways of a node share.

Guarantees: numbers and the states that they stand for are one durable write, before anything is published; so whoever
reads states gets those of a number, whichever gateway is asked. An epoch begins whenever another process begins to
announce, also where the file was restored from a copy: what the last one had not published does not matter then, since
in a new epoch everything is read again. What someone has followed is remembered while it may come to follow it again.
Leaves out: who follows what, which is the ledger's (`Watch`): the file can be lost. Publishing (`announcing`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from headgate.model.errors import TooBusy, TooMany
from headgate.model.limits import MAX_WATCHED
from headgate.model.roles import RecordWatch, Reference
from headgate.model.values import micros, moment
from headgate.pipeline.log.sqlite_files import LockedConnection, changes, connect, failures, transaction
from headgate.roles.certificates.remote_records import Modified, Snapshot

FILE: Final = "watchers.db"
FORMAT: Final = 2
_SCHEMA: Final = """
CREATE TABLE epoch (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE watchers (watcher TEXT NOT NULL, service TEXT NOT NULL, number INTEGER NOT NULL, seen INTEGER NOT NULL,
    PRIMARY KEY (watcher, service)) WITHOUT ROWID;
CREATE TABLE announced (watcher TEXT NOT NULL, service TEXT NOT NULL, record INTEGER NOT NULL, state INTEGER,
    PRIMARY KEY (watcher, service, record)) WITHOUT ROWID;
CREATE TABLE confirmed (watcher TEXT NOT NULL, service TEXT NOT NULL, record INTEGER NOT NULL, seen INTEGER NOT NULL,
    PRIMARY KEY (watcher, service, record)) WITHOUT ROWID
"""

Pair: TypeAlias = tuple[str, str]
"""Who follows, and the service that is followed."""

States: TypeAlias = Mapping[Reference, bool | None]


@dataclass(frozen=True, slots=True)
class Row:
    """A record that is followed, with the state that was last announced."""

    pair: Pair
    record: Reference
    state: bool | None


class Watchers:
    """The memory of what was announced. May be used from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect(path, _SCHEMA, FORMAT, create=True)
        self._lock = threading.Lock()
        self._writes = 0

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def changed(self) -> tuple[int, int]:
        """Something that changes when anyone has written."""
        with self._lock:
            return changes(self._db, self.path), self._writes

    @contextmanager
    def _writing(self) -> Iterator[LockedConnection]:
        with self._lock, transaction(self._db, self.path) as db:
            self._writes += 1
            yield db

    # -- announcing -------------------------------------------------------------------------------------------

    def begin(self, epoch: str, rows: Callable[[], Iterable[Row]], now: datetime) -> None:
        """Begin an epoch with the records that the ledger says are followed, as they are.

        `rows` is asked while nobody else writes here, so that it sees all that was followed before.
        """
        with self._writing() as db:
            known = list(rows())
            db.execute("DELETE FROM announced")
            db.execute("DELETE FROM epoch")
            db.execute("INSERT INTO epoch VALUES (1, ?, ?)", (epoch, micros(now)))
            db.execute("UPDATE watchers SET number = 0")
            for pair in dict.fromkeys(row.pair for row in known):
                db.execute("INSERT OR IGNORE INTO watchers VALUES (?, ?, 0, ?)", (*pair, micros(now)))
            _put(db, known)

    def rows(self) -> list[Row]:
        """Everything that is followed."""
        with self._lock, failures(self.path):
            return _announced(self._db)

    def pairs(self) -> dict[Pair, tuple[int, datetime]]:
        """Who follows which service, the number of the last message, and when they were last seen."""
        with self._lock, failures(self.path):
            found = self._db.execute("SELECT watcher, service, number, seen FROM watchers").fetchall()
        return {(watcher, service): (number, moment(seen)) for watcher, service, number, seen in found}

    def announce(self, news: Sequence[Row], at: datetime) -> list[tuple[Pair, Modified]]:
        """Give changes their numbers; `at` is when the ledger was looked at for them. They may then be published."""
        with self._writing() as db:
            epoch, _ = _epoch(db)
            numbers: Counter[Pair] = Counter()
            made: list[tuple[Pair, Modified]] = []
            for row in news:
                if row.pair not in numbers:
                    known = db.execute("SELECT number FROM watchers WHERE watcher = ? AND service = ?", row.pair)
                    numbers[row.pair] = (known.fetchone() or (0,))[0]
                numbers[row.pair] += 1
                made.append((row.pair, Modified(epoch, numbers[row.pair], row.record, row.state)))
            for (watcher, service), number in numbers.items():
                db.execute(
                    "UPDATE watchers SET number = ? WHERE watcher = ? AND service = ?", (number, watcher, service)
                )
            _put(db, news)
            db.execute("UPDATE epoch SET at = ?", (micros(at),))
        return made

    def forget(self, rows: Iterable[Row]) -> None:
        """Some records are followed no longer; whoever did may come to follow them again."""
        with self._writing() as db:
            _delete(db, "announced", rows)

    def unwatch(self, pair: Pair, records: Iterable[Reference]) -> None:
        """One follows some records no longer."""
        self.forget(Row(pair, record, None) for record in records)

    def forget_watcher(self, pair: Pair) -> None:
        """One follows a service no longer; it may come to follow again what it followed."""
        self._forget_watcher(pair, ("announced", "watchers"))

    def remove_watcher(self, pair: Pair) -> None:
        """Someone who followed a service is no more."""
        self._forget_watcher(pair, ("announced", "watchers", "confirmed"))

    def _forget_watcher(self, pair: Pair, tables: Iterable[str]) -> None:
        with self._writing() as db:
            for table in tables:
                db.execute(f"DELETE FROM {table} WHERE watcher = ? AND service = ?", pair)  # noqa: S608 - our own names

    def keep(self, followed: Callable[[], Collection[RecordWatch]]) -> None:
        """Forget for good what the ledger says nobody follows.

        `followed` is asked while nobody else writes here, so that it sees all that was followed before.
        """
        with self._writing() as db:
            known = followed()
            rows = [row for row in _announced(db) if RecordWatch(row.pair[0], row.record) not in known]
            _delete(db, "announced", rows)
            _delete(db, "confirmed", rows)

    def confirmed(self) -> list[Row]:
        """What anyone follows, or has followed and may come to follow again."""
        with self._lock, failures(self.path):
            found = self._db.execute("SELECT watcher, service, record FROM confirmed").fetchall()
        return [Row((watcher, service), record, None) for watcher, service, record in found]

    def forget_confirmed(self, rows: Iterable[Row]) -> None:
        """Nobody will come to follow these again."""
        with self._writing() as db:
            _delete(db, "confirmed", rows)

    # -- being followed ---------------------------------------------------------------------------------------

    def watch(self, pair: Pair, states: States, now: datetime) -> Snapshot:
        """Some records are followed from now on, as the ledger has them; tells what is announced of these."""
        with self._writing() as db:
            epoch, at = _epoch(db)
            db.execute("INSERT OR IGNORE INTO watchers VALUES (?, ?, 0, ?)", (*pair, micros(now)))
            db.execute("UPDATE watchers SET seen = ? WHERE watcher = ? AND service = ?", (micros(now), *pair))
            db.executemany(
                "INSERT OR IGNORE INTO announced VALUES (?, ?, ?, ?)",
                [(*pair, record, _column(state)) for record, state in states.items() if state is not False],
            )
            (held,) = db.execute("SELECT count(*) FROM announced WHERE watcher = ?", pair[:1]).fetchone()
            if held > MAX_WATCHED:
                raise TooMany(f"`{pair[0]}` follows more than MAX_WATCHED ({MAX_WATCHED}) records")
            _confirm(db, pair, [record for record, state in states.items() if state is not False], now)
            told = {record: self._told(db, pair, record) for record in states}
            return Snapshot(epoch, _number(db, pair), at, told)

    def has_followed(self, pair: Pair, records: Iterable[Reference]) -> set[Reference]:
        """Those of some records that one follows, or has followed."""
        ask = "SELECT 1 FROM confirmed WHERE watcher = ? AND service = ? AND record = ?"
        with self._lock, failures(self.path):
            return {one for one in records if self._db.execute(ask, (*pair, one)).fetchone() is not None}

    def _told(self, db: LockedConnection, pair: Pair, record: Reference) -> bool | None:
        """What is announced of a record; of one that nobody announces it is that it is no more."""
        row = db.execute(
            "SELECT state FROM announced WHERE watcher = ? AND service = ? AND record = ?", (*pair, record)
        ).fetchone()
        return False if row is None else _truth(row[0])

    def read(self, pair: Pair, now: datetime) -> Snapshot:
        """All that is announced to one of a service."""
        with self._writing() as db:
            epoch, at = _epoch(db)
            db.execute("UPDATE watchers SET seen = ? WHERE watcher = ? AND service = ?", (micros(now), *pair))
            rows = db.execute("SELECT record, state FROM announced WHERE watcher = ? AND service = ?", pair).fetchall()
            return Snapshot(epoch, _number(db, pair), at, {record: _truth(state) for record, state in rows})


def _announced(db: LockedConnection) -> list[Row]:
    found = db.execute("SELECT watcher, service, record, state FROM announced").fetchall()
    return [Row((watcher, service), record, _truth(state)) for watcher, service, record, state in found]


def _confirm(db: LockedConnection, pair: Pair, records: Iterable[Reference], now: datetime) -> None:
    """Remember what one follows; past MAX_WATCHED the oldest goes."""
    db.executemany(
        "INSERT OR REPLACE INTO confirmed VALUES (?, ?, ?, ?)", [(*pair, record, micros(now)) for record in records]
    )
    (held,) = db.execute("SELECT count(*) FROM confirmed WHERE watcher = ?", pair[:1]).fetchone()
    if held > MAX_WATCHED:
        oldest = "SELECT service, record FROM confirmed WHERE watcher = ? ORDER BY seen LIMIT ?"
        rows = db.execute(oldest, (pair[0], held - MAX_WATCHED)).fetchall()
        _delete(db, "confirmed", [Row((pair[0], service), record, None) for service, record in rows])


def _delete(db: LockedConnection, table: str, rows: Iterable[Row]) -> None:
    db.executemany(
        f"DELETE FROM {table} WHERE watcher = ? AND service = ? AND record = ?",  # noqa: S608 - our own names
        [(*row.pair, row.record) for row in rows],
    )


def _epoch(db: LockedConnection) -> tuple[str, datetime]:
    row = db.execute("SELECT id, at FROM epoch").fetchone()
    if row is None:
        raise TooBusy("no gateway announces anything yet", remedy="ask again in a moment")
    return str(row[0]), moment(row[1])


def _number(db: LockedConnection, pair: Pair) -> int:
    found = db.execute("SELECT number FROM watchers WHERE watcher = ? AND service = ?", pair).fetchone()
    return 0 if found is None else int(found[0])


def _put(db: LockedConnection, rows: Iterable[Row]) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO announced VALUES (?, ?, ?, ?)",
        [(*row.pair, row.record, _column(row.state)) for row in rows],
    )


def _column(state: bool | None) -> int | None:
    return None if state is None else int(state)


def _truth(column: Any) -> bool | None:
    return None if column is None else bool(column)
