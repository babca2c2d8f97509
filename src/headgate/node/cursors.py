"""What gateways remember of their readers: acknowledged places, reservations, temporary subscriptions, ended sessions.

Guarantees: an acknowledged place is durable when `ack_many` returns, and only moves forward, whichever gateways write
it. A subscription made again under the same name begins anew: its places belong to the version that made it. What a
durable subscription or a reservation still needs is told to retention with who needs it and since when it is away.
Leaves out: what a position means (`trust.positions`), and deleting (`pipeline.log.retention`). May be used from any
thread; several processes share the file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from headgate.model.errors import NotFound, TooMany
from headgate.model.limits import MAX_RESERVED_EVENTS
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.values import micros, moment
from headgate.pipeline import SIGNALS
from headgate.pipeline.log.retention import Floor, Where
from headgate.storage.shared import SharedState, Tables, reader, schema_of
from headgate.storage.shared import Where as Place

MAX_RESERVATIONS: Final = 100  # reservations of one principal
PRESENT_SECONDS: Final = 180
"""For how long a reader counts as there after it was last seen; those that are there are seen every minute."""

Starts = Callable[[int], Mapping[str, int]]  # the first event of each stream that a version, or a later one, applies to


@dataclass(frozen=True, slots=True)
class Ack:
    """A reader has dealt with everything up to these places of a subscription, made by version `first`."""

    subscription: str
    first: int
    places: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Temporary:
    """A subscription that ends with its reader, and when and where that was last seen."""

    subscription: str
    first: int
    gateway: str
    seen: datetime


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is published after `streams` is kept until `expires`, for a subscription or detection to be made by then.

    Of a detection the type is `SIGNAL`, and `where` its expression. Everything of `since` and later is kept.
    """

    principal: str
    id: str
    type: str
    where: str | None
    streams: Mapping[str, int]
    since: datetime
    expires: datetime


class Cursors(SharedState):
    """The readers of one domain."""

    FILE = "cursors.db"
    FORMAT = 1
    SCHEMA = """
        CREATE TABLE cursors (subscription TEXT NOT NULL, first INTEGER NOT NULL, stream TEXT NOT NULL,
            seq INTEGER NOT NULL,
            PRIMARY KEY (subscription, first, stream)) WITHOUT ROWID;
        CREATE TABLE readers (subscription TEXT NOT NULL, first INTEGER NOT NULL, seen INTEGER NOT NULL,
            temporary INTEGER NOT NULL, gateway TEXT NOT NULL, PRIMARY KEY (subscription, first)) WITHOUT ROWID;
        CREATE TABLE reservations (principal TEXT NOT NULL, id TEXT NOT NULL, type TEXT NOT NULL, filter TEXT,
            streams TEXT NOT NULL, since INTEGER NOT NULL, expires INTEGER NOT NULL,
            PRIMARY KEY (principal, id)) WITHOUT ROWID;
        CREATE TABLE ended (number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, expires INTEGER NOT NULL)
    """

    def __init__(self, where: Place) -> None:
        super().__init__(where)
        self._sessions = reader(where, schema_of(self.FILE))
        self._sessions_lock = threading.Lock()
        self._known: dict[str, int] = {}
        self._seen: tuple[object, int] = (None, 0)

    def close(self) -> None:
        """Let go of the file."""
        super().close()
        with self._sessions_lock:
            self._sessions.close()

    # -- places -----------------------------------------------------------------------------------------------

    def acked(self, subscription: str, first: int) -> dict[str, int]:
        """The last acknowledged event of each stream that has one."""
        ask = "SELECT stream, seq FROM cursors WHERE subscription = ? AND first = ?"
        return dict(self._rows(ask, subscription, first))

    def ack_many(self, acks: Sequence[Ack], now: datetime) -> None:
        """Keep acknowledged places, all of them in one durable write."""
        furthest: dict[tuple[str, int, str], int] = {}
        for ack in acks:
            for stream, seq in ack.places.items():
                key = ack.subscription, ack.first, stream
                furthest[key] = max(seq, furthest.get(key, 0))
        with self._writing() as db:
            db.executemany(
                "INSERT INTO cursors VALUES (?, ?, ?, ?) ON CONFLICT (subscription, first, stream) DO UPDATE "
                "SET seq = excluded.seq WHERE excluded.seq > cursors.seq",
                [(*key, seq) for key, seq in furthest.items()],
            )
            self._touch(db, {(ack.subscription, ack.first) for ack in acks}, now)

    def touch(self, readers: Iterable[tuple[str, int]], now: datetime) -> None:
        """Somebody reads these subscriptions, each with the version that made it."""
        with self._writing() as db:
            self._touch(db, readers, now)

    def _touch(self, db: Tables, readers: Iterable[tuple[str, int]], now: datetime) -> None:
        db.executemany(
            "INSERT INTO readers VALUES (?, ?, ?, 0, '') ON CONFLICT (subscription, first) DO UPDATE "
            "SET seen = excluded.seen WHERE excluded.seen > readers.seen",
            [(*reader, micros(now)) for reader in readers],
        )

    # -- temporary subscriptions ------------------------------------------------------------------------------

    def mark_temporary(self, subscription: str, first: int, gateway: str, now: datetime) -> None:
        """A subscription ends with its reader, for whom this gateway waits from now on."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO readers VALUES (?, ?, ?, 1, ?) ON CONFLICT (subscription, first) DO UPDATE SET "
                "temporary = 1, gateway = excluded.gateway, "
                "seen = CASE WHEN excluded.seen > readers.seen THEN excluded.seen ELSE readers.seen END",
                (subscription, first, micros(now), gateway),
            )

    def temporary(self) -> list[Temporary]:
        """The temporary subscriptions."""
        rows = self._rows("SELECT subscription, first, gateway, seen FROM readers WHERE temporary = 1")
        return [Temporary(name, first, gateway, moment(seen)) for name, first, gateway, seen in rows]

    def temporary_one(self, subscription: str, first: int) -> Temporary | None:
        """This subscription, if it ends with its reader."""
        ask = "SELECT gateway, seen FROM readers WHERE subscription = ? AND first = ? AND temporary = 1"
        rows = self._rows(ask, subscription, first)
        return Temporary(subscription, first, rows[0][0], moment(rows[0][1])) if rows else None

    def stale(self, now: datetime, seconds: float = PRESENT_SECONDS) -> list[Temporary]:
        """The temporary subscriptions whose readers have not been seen for so long."""
        return [one for one in self.temporary() if one.seen < now - timedelta(seconds=seconds)]

    # -- reservations -----------------------------------------------------------------------------------------

    def reserve(self, new: Reservation, now: datetime) -> Reservation:
        """Keep a reservation, in place of one with its name."""
        with self._writing() as db:
            others = db.execute(
                "SELECT count(*) FROM reservations WHERE principal = ? AND id != ? AND expires > ?",
                (new.principal, new.id, micros(now)),
            ).fetchone()[0]
            if others >= MAX_RESERVATIONS:
                raise TooMany(
                    f"`{new.principal}` has MAX_RESERVATIONS ({MAX_RESERVATIONS}) reservations",
                    remedy="end one, or wait until one expires",
                )
            said = (new.principal, new.id, new.type, new.where, json.dumps(dict(new.streams)))
            values = (*said, micros(new.since), micros(new.expires))
            db.execute("DELETE FROM reservations WHERE principal = ? AND id = ?", (new.principal, new.id))
            db.execute("INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        return new

    def reservation(self, principal: str, id: str, now: datetime) -> Reservation:
        """A reservation of a principal that has not expired."""
        for one in self.reservations(principal, now):
            if one.id == id:
                return one
        raise NotFound(f"no reservation `{id}`")

    def reservations(self, principal: str, now: datetime) -> list[Reservation]:
        """The reservations of a principal that have not expired."""
        return [one for one in self._reservations(now) if one.principal == principal]

    def _reservations(self, now: datetime) -> list[Reservation]:
        rows = self._rows("SELECT * FROM reservations WHERE expires > ? ORDER BY principal, id", micros(now))
        return [
            Reservation(principal, id, type, where, json.loads(streams), moment(since), moment(expires))
            for principal, id, type, where, streams, since, expires in rows
        ]

    def release(self, principal: str, id: str) -> bool:
        """End a reservation; false if there was none."""
        with self._writing() as db:
            done = db.execute("DELETE FROM reservations WHERE principal = ? AND id = ?", (principal, id))
            return bool(done.rowcount == 1)

    # -- sessions ---------------------------------------------------------------------------------------------

    def end_session(self, id: str, expires: datetime) -> None:
        """A session is over, at every gateway."""
        if self.ended(id):
            return
        with self._writing() as db:
            db.execute("INSERT INTO ended (session, expires) VALUES (?, ?)", (id, micros(expires)))
        with self._sessions_lock:
            self._known[id] = micros(expires)

    def ended(self, id: str) -> bool:
        """Is a session over? Asking costs next to nothing: of a database, what it said when it was last looked at."""
        if self.is_local:
            self.look()
        return id in self._known

    def look(self) -> None:
        """Take in what other processes have ended since."""
        with self._sessions_lock, self._sessions.failures():
            changed, newest = self._seen
            now = self._sessions.stamp()
            if now == changed:
                return
            rows = self._sessions.execute(
                "SELECT number, session, expires FROM ended WHERE number > ? ORDER BY number", (newest,)
            ).fetchall()
            for number, session, expires in rows:
                self._known[session] = expires
                newest = number
            self._seen = now, newest

    # -- retention --------------------------------------------------------------------------------------------

    def floors(
        self,
        subscriptions: Collection[Subscription],
        starts: Starts,
        now: datetime,
        ends: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[str, list[Floor]]:
        """What is still needed of each stream: by durable subscriptions of the deliveries, by reservations of the log.

        One that never acknowledged anything needs all from its starting point on, or all there is if it asks for
        history. A detection needs signals, and no deliveries. A reader that was never seen is away since this was
        first asked. A reservation of more than MAX_RESERVED_EVENTS, by the `ends` of streams, is full.
        """
        places, seen, temporary = self._readers(subscriptions, now)
        floors: dict[str, list[Floor]] = {}
        begun: dict[int, Mapping[str, int]] = {}
        deliveries, log, signals = (frozenset({one}) for one in (Where.DELIVERIES, Where.LOG, Where.SIGNALS))
        latest = micros(now) - PRESENT_SECONDS * 1_000_000
        for subscription in subscriptions:
            key = subscription.id, subscription.first
            if key in temporary:
                continue
            acked = places.get(key, {})
            absent = seen[key] if seen[key] < latest else None
            if subscription.detection is not None:
                floor = Floor(acked.get(SIGNALS, 0) + 1, subscription.id, absent, signals)
                floors.setdefault(SIGNALS, []).append(floor)
                continue
            if subscription.first not in begun:
                begun[subscription.first] = starts(subscription.first)
            for stream in begun[subscription.first].keys() | acked.keys():
                begins = 1 if subscription.history else begun[subscription.first].get(stream, 1)
                needed = acked[stream] + 1 if stream in acked else begins
                floors.setdefault(stream, []).append(Floor(needed, subscription.id, absent, deliveries))
        for kept in self._reservations(now):
            is_full = sum(last - kept.streams.get(stream, 0) for stream, last in ends.items()) > MAX_RESERVED_EVENTS
            for stream in starts(0):  # every stream; those that are newer than the reservation it keeps whole
                needed = kept.streams.get(stream, 0) + 1
                floor = Floor(needed, f"{kept.principal}:{kept.id}", None, log, is_full)
                floors.setdefault(stream, []).append(floor)
        return floors

    def _readers(
        self, subscriptions: Collection[Subscription], now: datetime
    ) -> tuple[dict[tuple[str, int], dict[str, int]], dict[tuple[str, int], int], set[tuple[str, int]]]:
        """Acknowledged places, when each reader was last seen, and who is temporary."""
        with self._writing() as db:
            db.executemany(
                "INSERT INTO readers VALUES (?, ?, ?, 0, '') ON CONFLICT DO NOTHING",
                [(one.id, one.first, micros(now)) for one in subscriptions],
            )
            rows = db.execute("SELECT subscription, first, seen, temporary FROM readers").fetchall()
            cursors = db.execute("SELECT subscription, first, stream, seq FROM cursors").fetchall()
        places: dict[tuple[str, int], dict[str, int]] = {}
        for subscription, first, stream, seq in cursors:
            places.setdefault((subscription, first), {})[stream] = seq
        seen = {(name, first): at for name, first, at, _ in rows}
        return places, seen, {(name, first) for name, first, _, temporary in rows if temporary}

    def purge(self, state: State, now: datetime) -> int:
        """Forget what belongs to subscriptions that are closed, and what has expired; returns how many readers went."""
        alive = {(one.id, one.first) for one in state.subscriptions.values()}
        with self._writing() as db:
            known = db.execute(
                "SELECT subscription, first FROM readers UNION SELECT subscription, first FROM cursors"
            ).fetchall()
            # Newer ones are not this state's to know.
            gone = [key for key in known if key not in alive and key[1] <= state.version]
            for table in ("cursors", "readers"):
                db.executemany(f"DELETE FROM {table} WHERE subscription = ? AND first = ?", gone)  # noqa: S608
            db.execute("DELETE FROM reservations WHERE expires <= ?", (micros(now),))
            db.execute("DELETE FROM ended WHERE expires <= ?", (micros(now),))
        with self._sessions_lock:
            self._known = {session: until for session, until in self._known.items() if until > micros(now)}
        return len(gone)
