"""Heartbeats: a publisher promises that none of its later events occurred before a time.

Guarantees: a heartbeat takes the right to publish each of the types that it is for, and makes no version. One that goes
back changes nothing, and the answer says so. It binds its sender in every stream that it has joined for the type, and
joins the stream where it is said. Only the administrator promises for others: for a publisher that is gone, so that it
holds nothing back, or for a whole stream. Where streams promise by heartbeats alone, whoever may publish anything
promises for the whole stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headgate.commands.publishing.stream_writer import StreamWriter
from headgate.decide.publish import latest, may_publish, no_right, too_far_ahead
from headgate.model.errors import AheadOfClock, BadRequest, GovernDenied, PublishDenied
from headgate.model.state import State
from headgate.model.types import Times
from headgate.model.values import brief, micros, moment
from headgate.pipeline.log.promises import ALL_TYPES


@dataclass(frozen=True, slots=True)
class PromiseOutcome:
    """What is promised now, by type, and whether that is more than before."""

    horizons: Mapping[str, datetime]
    moved: bool


def heartbeat(
    writer: StreamWriter,
    caller: str,
    until: datetime,
    types: Sequence[str] | None = None,
    publisher: str | None = None,
    stream: str | None = None,
) -> PromiseOutcome:
    """Promise for some types, or for all that one states times of; for another publisher; or for a whole stream."""
    state, now = writer.known.state, writer.clock()
    if (stream is not None or publisher not in (None, caller)) and caller != state.administrator:
        raise GovernDenied(f"`{caller}` promises for itself alone", remedy="leave `for` and `stream` out")
    if stream is not None or not writer.promises_clock:
        if types is not None or publisher is not None:
            raise BadRequest("a promise for a whole stream names no types and no publisher", remedy="leave them out")
        return _of_stream(writer, caller, state, writer.stream if stream is None else stream, until, now)
    who = caller if publisher is None else publisher
    named = _stated(writer, state, who, types)
    for name, times in named.items():
        if until > latest(times, now):
            raise too_far_ahead(name, times)
    promised, moved = writer.log.promise(writer.stream, who, named, micros(until), micros(now))
    return PromiseOutcome({name: moment(horizon) for name, horizon in promised.items()}, moved)


def _of_stream(
    writer: StreamWriter, caller: str, state: State, stream: str, until: datetime, now: datetime
) -> PromiseOutcome:
    if not any(may_publish(state, caller, name) for name in state.types) and caller != state.administrator:
        raise PublishDenied(f"`{caller}` may publish nothing, and so promise nothing", remedy="ask for a right")
    if writer.promises_clock and until > now:
        raise AheadOfClock("a stream promises nothing past the gateway's clock", remedy="promise less")
    moved = writer.log.promise_stream(stream, micros(until), micros(now))
    return PromiseOutcome({ALL_TYPES: moment(writer.log.promised(stream))}, moved)


def _stated(writer: StreamWriter, state: State, publisher: str, types: Sequence[str] | None) -> dict[str, Times]:
    """The types that a promise is for, which take times from publishers; refused without the right to publish them."""
    if types is None:
        advertised = [name for who, name in sorted(state.advertisements) if who == publisher]
        known = [
            name for name in dict.fromkeys([*writer.log.joined_types(publisher), *advertised]) if name in state.types
        ]
        found = {name: state.types.times(name) for name in known if may_publish(state, publisher, name)}
        stated = {name: times for name, times in found.items() if times.stated}
        if stated:
            return stated
        if not any(may_publish(state, publisher, name) for name in state.types):
            raise PublishDenied(f"`{publisher}` may publish nothing, and so promise nothing", remedy="ask for a right")
        raise BadRequest(f"`{publisher}` has published nothing that it stated the time of", remedy="name the types")
    named = {name: state.types.times(state.types[name].name) for name in types}
    for name, times in named.items():
        if not may_publish(state, publisher, name):
            raise no_right(state, publisher, name, "promise anything of")
        if not times.stated:
            raise BadRequest(
                f"the gateway's clock says when a `{brief(name)}` occurred",
                remedy="the type would say `times: publisher`",
            )
    return named
