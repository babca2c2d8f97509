"""What a node shares about other domains: what is heard of their services, and what they were told of ours.

Guarantees: a sign of life is written after everything that was said before it is in the ledger, so that any gateway may
go by it when the ledger's own has run out. What a client shows waits here until the follower has asked its issuer; each
question is answered once, and forgotten soon after it was asked.
The numbers of what is announced, and the states that they stand for, are one durable write before anything is
published; so whoever reads states gets those of a number, whichever gateway is asked. An epoch begins whenever another
process begins to announce, also where the file was restored from a copy: in a new epoch everything is read again. What
someone has followed is remembered while it may come to follow it again. Either can be lost.
Leaves out: following (`gateway.roles.following`), publishing (`announcing`), what silence means
(`roles.records.clock`), and who follows what, which is the ledger's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from headgate.model.errors import TooBusy, TooMany
from headgate.model.limits import MAX_PRESENTED, MAX_WATCHED
from headgate.model.roles import Peer, RecordWatch, Reference, RoleBook
from headgate.model.values import micros, moment
from headgate.roles.certificates.remote_records import FollowCounts, Identity, Modified, Snapshot, identity, mirrored
from headgate.storage.shared import SharedState, Tables

QUESTION_SECONDS: Final = 20.0  # how long a question to an issuer is worth answering


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


def statuses(
    book: RoleBook, now: datetime, heard: Mapping[str, Sequence[Any]] = {}, troubles: Mapping[str, str] = {}
) -> list[PeerStatus]:
    """How one stands with each peer of the ledger; a node that has never run has heard nobody."""
    found = []
    for name, peer in sorted(book.peers.items()):
        row = heard.get(name, ())
        at, *counts = row[3:] if row[:3] == identity(peer) else (None, 0, 0, 0)
        last = max((one for one in (peer.heard, None if at is None else moment(at)) if one), default=None)
        silent = None if last is None else max(0.0, (now - last).total_seconds())
        states = mirrored(book, name)
        unknown = sum(1 for state in states.values() if state is None)
        about = (name, peer.service, peer.key, peer.bound, silent, len(states), unknown)
        found.append(PeerStatus(*about, FollowCounts(*counts), troubles.get(name)))
    return found


class Peers(SharedState):
    """The memory of one node about its peers. May be used from any thread."""

    FILE = "peers.db"
    FORMAT = 1
    SCHEMA = """
        CREATE TABLE heard (peer TEXT PRIMARY KEY, key TEXT NOT NULL, service TEXT NOT NULL, at INTEGER NOT NULL,
            duplicated INTEGER NOT NULL, lost INTEGER NOT NULL, late INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE troubles (peer TEXT PRIMARY KEY, words TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE questions (id TEXT PRIMARY KEY, peer TEXT NOT NULL, principal TEXT NOT NULL, did TEXT NOT NULL,
            certificate TEXT NOT NULL, asked INTEGER NOT NULL, answer TEXT) WITHOUT ROWID
    """

    # -- signs of life ----------------------------------------------------------------------------------------

    def hear(self, peer: Peer, at: datetime, counts: FollowCounts) -> None:
        """A peer was heard; all that it said until then is in the ledger."""
        values = (*identity(peer), micros(at), counts.duplicated, counts.lost, counts.late)
        with self._writing() as db:
            db.execute("DELETE FROM heard WHERE peer = ?", (peer.name,))
            db.execute("INSERT INTO heard VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            db.execute("DELETE FROM troubles WHERE peer = ?", (peer.name,))

    def heard(self) -> dict[Identity, datetime]:
        """When each peer was last heard."""
        rows = self._rows("SELECT peer, key, service, at FROM heard")
        return {(peer, key, service): moment(at) for peer, key, service, at in rows}

    def fail(self, peer: str, words: str) -> None:
        """A peer cannot be followed now, for a reason."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO troubles VALUES (?, ?) ON CONFLICT (peer) DO UPDATE SET words = excluded.words",
                (peer, words.replace("\0", " ")),
            )

    def forget(self, peer: str) -> None:
        """A peer is one no longer: a later one of this name is another."""
        with self._writing() as db:
            for table in ("heard", "troubles", "questions"):
                db.execute(f"DELETE FROM {table} WHERE peer = ?", (peer,))  # noqa: S608 - our own names

    def statuses(self, book: RoleBook, now: datetime) -> list[PeerStatus]:
        """How one stands with each peer of the ledger."""
        if not book.peers:
            return []
        heard = {row[0]: row for row in self._rows("SELECT * FROM heard")}
        return statuses(book, now, heard, dict(self._rows("SELECT peer, words FROM troubles")))

    # -- questions --------------------------------------------------------------------------------------------

    def ask(self, question: PeerQuestion, now: datetime) -> None:
        """Let the follower ask an issuer about a certificate."""
        with self._writing() as db:
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
        with self._writing() as db:
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
        with self._writing() as db:
            db.execute("DELETE FROM questions WHERE id = ?", (id,))


def _worth(now: datetime) -> int:
    return micros(now - timedelta(seconds=QUESTION_SECONDS))


Pair: TypeAlias = tuple[str, str]  # who follows, and the service that is followed

States: TypeAlias = Mapping[Reference, bool | None]


@dataclass(frozen=True, slots=True)
class Row:
    """A record that is followed, with the state that was last announced."""

    pair: Pair
    record: Reference
    state: bool | None


class Watchers(SharedState):
    """The memory of what was announced. May be used from any thread."""

    FILE = "watchers.db"
    FORMAT = 2
    SCHEMA = """
        CREATE TABLE epoch (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, at INTEGER NOT NULL);
        CREATE TABLE watchers (watcher TEXT NOT NULL, service TEXT NOT NULL, number INTEGER NOT NULL,
            seen INTEGER NOT NULL,
            PRIMARY KEY (watcher, service)) WITHOUT ROWID;
        CREATE TABLE announced (watcher TEXT NOT NULL, service TEXT NOT NULL, record INTEGER NOT NULL, state INTEGER,
            PRIMARY KEY (watcher, service, record)) WITHOUT ROWID;
        CREATE TABLE confirmed (watcher TEXT NOT NULL, service TEXT NOT NULL, record INTEGER NOT NULL,
            seen INTEGER NOT NULL,
            PRIMARY KEY (watcher, service, record)) WITHOUT ROWID
    """

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
                db.execute("INSERT INTO watchers VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING", (*pair, micros(now)))
            _put(db, known)

    def rows(self) -> list[Row]:
        """Everything that is followed."""
        return [_row(*row) for row in self._rows(_ANNOUNCED)]

    def pairs(self) -> dict[Pair, tuple[int, datetime]]:
        """Who follows which service, the number of the last message, and when they were last seen."""
        rows = self._rows("SELECT watcher, service, number, seen FROM watchers")
        return {(watcher, service): (number, moment(seen)) for watcher, service, number, seen in rows}

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
            rows = [
                row
                for row in (_row(*each) for each in db.execute(_ANNOUNCED).fetchall())
                if RecordWatch(row.pair[0], row.record) not in known
            ]
            _delete(db, "announced", rows)
            _delete(db, "confirmed", rows)

    def confirmed(self) -> list[Row]:
        """What anyone follows, or has followed and may come to follow again."""
        return [_row(*row) for row in self._rows("SELECT watcher, service, record FROM confirmed")]

    def forget_confirmed(self, rows: Iterable[Row]) -> None:
        """Nobody will come to follow these again."""
        with self._writing() as db:
            _delete(db, "confirmed", rows)

    # -- being followed ---------------------------------------------------------------------------------------

    def watch(self, pair: Pair, states: States, now: datetime) -> Snapshot:
        """Some records are followed from now on, as the ledger has them; tells what is announced of these."""
        with self._writing() as db:
            epoch, at = _epoch(db)
            db.execute("INSERT INTO watchers VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING", (*pair, micros(now)))
            db.execute("UPDATE watchers SET seen = ? WHERE watcher = ? AND service = ?", (micros(now), *pair))
            db.executemany(
                "INSERT INTO announced VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
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
        return {record for record in records if self._rows(ask, *pair, record)}

    def _told(self, db: Tables, pair: Pair, record: Reference) -> bool | None:
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


_ANNOUNCED: Final = "SELECT watcher, service, record, state FROM announced"


def _row(watcher: str, service: str, record: Reference, state: object = None) -> Row:
    return Row((watcher, service), record, _truth(state))


def _confirm(db: Tables, pair: Pair, records: Iterable[Reference], now: datetime) -> None:
    """Remember what one follows; past MAX_WATCHED the oldest goes."""
    db.executemany(
        "INSERT INTO confirmed VALUES (?, ?, ?, ?) "
        "ON CONFLICT (watcher, service, record) DO UPDATE SET seen = excluded.seen",
        [(*pair, record, micros(now)) for record in records],
    )
    (held,) = db.execute("SELECT count(*) FROM confirmed WHERE watcher = ?", pair[:1]).fetchone()
    if held > MAX_WATCHED:
        oldest = "SELECT service, record FROM confirmed WHERE watcher = ? ORDER BY seen LIMIT ?"
        rows = db.execute(oldest, (pair[0], held - MAX_WATCHED)).fetchall()
        _delete(db, "confirmed", [Row((pair[0], service), record, None) for service, record in rows])


def _delete(db: Tables, table: str, rows: Iterable[Row]) -> None:
    db.executemany(
        f"DELETE FROM {table} WHERE watcher = ? AND service = ? AND record = ?",  # noqa: S608 - our own names
        [(*row.pair, row.record) for row in rows],
    )


def _epoch(db: Tables) -> tuple[str, datetime]:
    row = db.execute("SELECT id, at FROM epoch").fetchone()
    if row is None:
        raise TooBusy("no gateway announces anything yet", remedy="ask again in a moment")
    return str(row[0]), moment(row[1])


def _number(db: Tables, pair: Pair) -> int:
    found = db.execute("SELECT number FROM watchers WHERE watcher = ? AND service = ?", pair).fetchone()
    return 0 if found is None else int(found[0])


def _put(db: Tables, rows: Iterable[Row]) -> None:
    db.executemany(
        "INSERT INTO announced VALUES (?, ?, ?, ?) "
        "ON CONFLICT (watcher, service, record) DO UPDATE SET state = excluded.state",
        [(*row.pair, row.record, _column(row.state)) for row in rows],
    )


def _column(state: bool | None) -> int | None:
    return None if state is None else int(state)


def _truth(column: Any) -> bool | None:
    return None if column is None else bool(column)
