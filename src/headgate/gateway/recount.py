"""What was published of late, read back from the log: a rate is not forgotten because a gateway was started anew.

Guarantees: the count is that of the events of one stream in the RATE_SECONDS before now, as the log has them. What is
read is bounded: past MAX_APPENDS the rest is left out, and that is said in the log.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from headgate.decide.rates import Rates
from headgate.gateway.logs import Log
from headgate.model.limits import RATE_SECONDS
from headgate.model.values import micros, moment
from headgate.pipeline.codec import from_blob
from headgate.pipeline.logfile import LogFile

MAX_APPENDS: Final = 100_000
"""Appends that are read back."""

log = Log("recount")


def recount(events: LogFile, stream: str, now: datetime) -> Rates:
    """The events of late of a stream, by publisher and type."""
    tail = events.tails().get(stream)
    found: list[tuple[datetime, list[tuple[str, str, int]]]] = []
    at = 0 if tail is None else tail.last
    while tail is not None and at > tail.trimmed:
        batch = events.append_holding(stream, at)
        if batch.time <= micros(now) - RATE_SECONDS * 1_000_000:
            break
        if len(found) >= MAX_APPENDS:
            log.warning("recount-cut", stream=stream, count=len(found))
            break
        found.append((moment(batch.time), _counts(batch.blob)))
        at = batch.first - 1
    rates = Rates()
    for time, counts in reversed(found):
        for publisher, name, count in counts:
            rates.add(publisher, name, time, count)
    return rates


def _counts(blob: bytes) -> list[tuple[str, str, int]]:
    table = from_blob(blob).select(["publisher", "type"])
    rows = table.group_by(["publisher", "type"]).aggregate([([], "count_all")]).to_pylist()
    return [(row["publisher"], row["type"], row["count_all"]) for row in rows]
