"""How often publishers have published of late in all streams of a log, as one of its writers knows it.

Guarantees: what `begin` tells is the count of all that the log held at that moment, by whatever process it was
appended. An append that was decided by it is held back if another process has appended events of the same publisher
and type since (`news`), and so every event that is stored was decided by the count of all that were stored before it.
Therefore no RATE_SECONDS, by the times that gateways stamp, hold more accepted events of a publisher and type than a
limit on `@rate` allows: the one of them that was stored last counted all the others, however their times are ordered.
That holds as long as clocks are less than MAX_SKEW_SECONDS apart. Nothing is promised to a writer that it could take
away with it: what it stored counts, what it did not store does not. After a restart the log is read back.
Leaves out: what retention has removed of the last two minutes, which a restarted writer does not know.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from headgate.decide.rates import KEPT_MICROS, Rates
from headgate.model.values import micros, moment
from headgate.pipeline.log.appends import OLD_IN_A_ROW, Append, Counted
from headgate.pipeline.log.codec import LogBatch, from_blob


class Counts:
    """The events of late of one log file."""

    def __init__(self, check: Callable[[str, Sequence[Any]], LogBatch]) -> None:
        self._check = check
        self._rates = Rates()
        self._seen = 0  # the number of the newest append that is counted
        self._news: set[tuple[str, str]] = set()

    def begin(self, db: sqlite3.Connection, now: datetime) -> Rates:
        """Everything up to now; what is appended from here on by others is news."""
        self.catch_up(db, micros(now))
        self._news.clear()
        return self._rates

    def rate(self, db: sqlite3.Connection, publisher: str, type_name: str, now: datetime) -> int:
        """How many events a publisher has had accepted of late, as far as the log knows now."""
        self.catch_up(db, micros(now))
        return self._rates.lately(publisher, type_name, now)

    def catch_up(self, db: sqlite3.Connection, now: int) -> None:
        """Count what was appended since the last look, as far as it is of late."""
        counted: list[tuple[int, tuple[Counted, ...]]] = []
        newest, old = self._seen, 0
        rows = db.execute(
            "SELECT number, stream, first, last, version, time, crc, blob FROM batches WHERE number > ? "
            "ORDER BY number DESC",
            (self._seen,),
        )
        for number, stream, *row in rows:
            newest = max(newest, number)
            old = old + 1 if row[3] <= now - KEPT_MICROS else 0
            if old > OLD_IN_A_ROW:
                break
            counted.append((row[3], counts_of(self._check(stream, row).blob)))
        rows.close()
        for time, counts in reversed(counted):
            self._add(time, counts)
            self._news.update((publisher, name) for publisher, name, _ in counts)
        self._seen = newest

    def has_news_for(self, append: Append) -> bool:
        """Has anybody else appended what the events of this append would have had to count?"""
        return any((publisher, name) in self._news for publisher, name, _ in append.counts or ())

    def took(self, appended: Iterable[tuple[int, Append]]) -> None:
        """Appends of our own are kept, under these numbers, the first after all that is counted."""
        for number, one in appended:
            self._add(one.time, counts_of(one.blob) if one.counts is None else one.counts)
            self._seen = number

    def _add(self, time: int, counts: Iterable[Counted]) -> None:
        for publisher, name, count in counts:
            self._rates.add(publisher, name, moment(time), count)


def counts_of(blob: bytes) -> tuple[Counted, ...]:
    """How many events of each publisher and type an append holds."""
    table = from_blob(blob).select(["publisher", "type"])
    rows = table.group_by(["publisher", "type"], use_threads=False).aggregate([([], "count_all")]).to_pylist()
    return tuple((row["publisher"], row["type"], row["count_all"]) for row in rows)
