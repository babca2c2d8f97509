"""What the sources of a log have promised: that none of their later events occurred before a time, their horizon.

Guarantees: horizons never go back, and no event is stored that occurred before one. A stream promises for all of its
events, mostly its gateway's clock; a publisher promises for its own events of one type, once it has joined the stream
for that: from its first event with a stated time, or its first heartbeat, on. The horizon of a stream for a type
(`Promised.of`) is the least of those that have joined for it, or, without any, what the stream itself has promised. A
type that says how late its events may be begins at what was promised for it till then, and from there on nobody
promises less than the stream's own promise without that lateness.
A promise has a place among the appends, the one after which it was made; so all that arrives has one order.
Leaves out: who may promise what (`commands.publishing.promises`). Times are microseconds since 1970.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from headgate.model.types import Times
from headgate.model.values import micros
from headgate.pipeline.log.codec import Ints, LogBatch

MICROS: Final = 1_000_000
MICROS_MIN: Final = micros(datetime.min.replace(tzinfo=UTC))
ALL_TYPES: Final = "*"
"""What stands for all types of a stream where types are named."""
OF_STREAM: Final = ""
"""The publisher of what a stream promises itself, and the type of what is promised of all types."""

SCHEMA: Final = """
CREATE TABLE promises (id INTEGER PRIMARY KEY AUTOINCREMENT, after INTEGER NOT NULL, stream TEXT NOT NULL,
    publisher TEXT NOT NULL, type TEXT NOT NULL, horizon INTEGER NOT NULL, clock INTEGER NOT NULL,
    version INTEGER NOT NULL);
CREATE TABLE horizons (stream TEXT NOT NULL, type TEXT NOT NULL, publisher TEXT NOT NULL, horizon INTEGER NOT NULL,
    newest INTEGER NOT NULL, PRIMARY KEY (stream, type, publisher)) WITHOUT ROWID;
CREATE INDEX least ON horizons (stream, type, horizon);
CREATE INDEX joined ON horizons (publisher, type)
"""
"""All promises in order, and the newest of each source; what a stream has promised itself is with the stream."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise as it is kept: after which append it was made, by whom, of which type, and the gateway's clock then."""

    id: int
    after: int
    stream: str
    publisher: str
    type: str
    horizon: int
    clock: int
    version: int = 0
    """The newest version that its stream had recorded then."""


@dataclass(frozen=True, slots=True)
class Occurrences:
    """When the events of one type in an append occurred, by their places in it.

    `joins` if its publisher has stated that of one of them, and so promises from then on.
    """

    type: str
    times: Times
    places: Ints
    occurred: Ints
    joins: bool = False


@dataclass(frozen=True, slots=True)
class Early:
    """Events of an append that occurred before what was promised of them, by their places; nothing of it was kept."""

    places: dict[int, int]
    """What was promised, by place."""


def least_promise(stream: int, begun: int | None, joined: int | None, times: Times) -> int:
    """The horizon of a stream for a type.

    Given what the stream itself has promised, where the lateness of the type began, if it did, and the least promise of
    those who have joined, if any have.
    """
    if begun is None or times.lateness is None:
        return stream if joined is None else joined
    floor = max(begun, stream - lateness_of(times))
    return floor if joined is None else max(floor, joined)


def lateness_of(times: Times) -> int:
    """How late events of a type may be."""
    return round((times.lateness or 0.0) * MICROS)


# -- in the file ------------------------------------------------------------------------------------------------


class PromiseTable:
    """The promises of a log file, in a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def newest(self) -> int:
        """The number of the newest append."""
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'batches'").fetchone()
        return 0 if row is None else int(row[0])

    def of_stream(self, stream: str) -> int:
        """What a stream has promised itself."""
        row = self._db.execute("SELECT promised FROM streams WHERE stream = ?", (stream,)).fetchone()
        return 0 if row is None else int(row[0])

    def of(self, stream: str, type: str, publisher: str) -> int | None:
        """What a source has promised, if it has joined."""
        row = self._db.execute(
            "SELECT horizon FROM horizons WHERE stream = ? AND type = ? AND publisher = ?", (stream, type, publisher)
        ).fetchone()
        return None if row is None else int(row[0])

    def horizon(self, stream: str, type: str, times: Times) -> int:
        """The horizon of a stream for a type."""
        least = self._db.execute(
            "SELECT horizon FROM horizons WHERE stream = ? AND type = ? AND publisher != '' ORDER BY horizon LIMIT 1",
            (stream, type),
        ).fetchone()
        begun = None if times.lateness is None else self.of(stream, type, OF_STREAM)
        return least_promise(self.of_stream(stream), begun, None if least is None else int(least[0]), times)

    def bound(self, stream: str, publisher: str, type: str, times: Times) -> int:
        """Before which time nothing of a publisher and a type may come."""
        own = self.of(stream, type, publisher)
        if own is None:
            return self.horizon(stream, type, times)
        begun = None if times.lateness is None else self.of(stream, type, OF_STREAM)
        return least_promise(self.of_stream(stream), begun, own, times)

    def early(self, stream: str, publisher: str, groups: Iterable[Occurrences]) -> Early | None:
        """The events that are before what was promised of them."""
        places: dict[int, int] = {}
        for group in groups:
            if group.times.stated:
                bound = self.bound(stream, publisher, group.type, group.times)
            else:  # a clock may stand before 1970, where streams begin that have promised nothing
                bound = self.of_stream(stream) or MICROS_MIN
            places |= dict.fromkeys(group.places[group.occurred < bound].tolist(), bound)
        return Early(places) if places else None

    def join(self, stream: str, publisher: str, groups: Iterable[Occurrences], clock: int) -> None:
        """Whoever states times from now on promises."""
        for group in groups:
            if group.joins and self.of(stream, group.type, publisher) is None:
                begin = self.horizon(stream, group.type, group.times)
                self.record(stream, publisher, group.type, begin, clock)

    def begin(self, stream: str, type: str, clock: int) -> None:
        """The lateness of a type counts in a stream from now on."""
        if self.of(stream, type, OF_STREAM) is None:
            self.record(stream, OF_STREAM, type, self.horizon(stream, type, Times(stated=True)), clock)

    def record(self, stream: str, publisher: str, type: str, horizon: int, clock: int) -> bool:
        """Keep a promise, unless it moves nothing."""
        known = self.of_stream(stream) if not publisher and not type else self.of(stream, type, publisher)
        if known is not None and known >= horizon:
            return False
        made = self._insert(stream, publisher, type, horizon, clock)
        if not publisher and not type:
            self._db.execute("UPDATE streams SET promised = ? WHERE stream = ?", (horizon, stream))
        else:
            self._db.execute(
                "INSERT OR REPLACE INTO horizons (stream, type, publisher, horizon, newest) VALUES (?, ?, ?, ?, ?)",
                (stream, type, publisher, horizon, made),
            )
        return True

    def repeat(self, stream: str, clock: int) -> None:
        """Keep what a stream has promised itself once more, with the clock of now."""
        self._insert(stream, OF_STREAM, OF_STREAM, self.of_stream(stream), clock)

    def _insert(self, stream: str, publisher: str, type: str, horizon: int, clock: int) -> int | None:
        return self._db.execute(
            "INSERT INTO promises (after, stream, publisher, type, horizon, clock, version) VALUES (?, ?, ?, ?, ?, ?, "
            "(SELECT version FROM streams WHERE stream = ?))",
            (self.newest(), stream, publisher, type, horizon, clock, stream),
        ).lastrowid


# -- for readers ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Promised:
    """What every source has promised, for whoever follows appends and promises in their order."""

    streams: dict[str, int] = field(default_factory=dict)
    """What each stream has promised itself."""
    joined: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """By stream and type, what each publisher has promised; under `OF_STREAM` where the type's lateness began."""

    def take(self, arrived: LogBatch | Promise) -> None:
        """An append or a promise has come."""
        source = ("", "") if isinstance(arrived, LogBatch) else (arrived.publisher, arrived.type)
        self.promise(arrived.stream, *source, arrived.horizon)

    def promise(self, stream: str, publisher: str, type: str, horizon: int) -> None:
        """A source promises; without publisher and type that is the stream itself."""
        if publisher or type:
            sources = self.joined.setdefault((stream, type), {})
            sources[publisher] = max(horizon, sources.get(publisher, horizon))
        else:
            self.streams[stream] = max(horizon, self.streams.get(stream, 0))

    def of(self, stream: str, type: str, times: Times) -> int:
        """The horizon of a stream for a type."""
        sources = self.joined.get((stream, type), {}) if times.stated else {}
        least = min((horizon for who, horizon in sources.items() if who), default=None)
        return least_promise(self.streams.get(stream, 0), sources.get(OF_STREAM), least, times)

    def sources(self, stream: str, type: str, times: Times) -> Iterator[tuple[str, int]]:
        """Whoever promises of a type in a stream, and what; `OF_STREAM` is the stream itself."""
        sources = self.joined.get((stream, type), {}) if times.stated else {}
        own, begun = self.streams.get(stream, 0), sources.get(OF_STREAM)
        publishers = [(who, horizon) for who, horizon in sources.items() if who]
        if not publishers:
            yield OF_STREAM, least_promise(own, begun, None, times)
        for who, horizon in publishers:
            yield who, least_promise(own, begun, horizon, times)
