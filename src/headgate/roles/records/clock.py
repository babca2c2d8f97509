"""When the clock may next change what roles rest on (OASIS 3.2.4, 4.4, 4.10).

Guarantees: between a time and the next moment after it the clock changes nothing: no statement, membership or election
ends, no peer falls silent, no constraint that looks at `@time` turns. It may name a moment at which nothing changes.
Leaves out: a function of a service that is given `@time` itself, which is looked at again every second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from headgate.authority import statement_state as standing
from headgate.decide.constraints import Scene
from headgate.decide.truth import clock_part, combined
from headgate.model import expressions as tree
from headgate.model.state import State
from headgate.roles.certificates.remote_records import lapses
from headgate.roles.records.facts import When, fact_of
from headgate.roles.rolefiles.types import inferred

_SECOND: Final = timedelta(seconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_HOUR: Final = timedelta(hours=1)
_DAY_SECONDS: Final = 86_400
_AHEAD: Final = 50
"""Hours that are looked ahead on a wall clock: a midnight lies within them, whatever the clock is put forward by."""

Known: TypeAlias = frozenset[tree.Argument] | None
"""The values that something is compared with; None if they cannot be known."""


@dataclass(frozen=True, slots=True)
class Look:
    """A constraint looks at the clock: at a part of it in a zone, or at the time itself, beside these values."""

    part: str
    zone: str
    beside: Known


def next_moment(state: State, after: datetime) -> datetime | None:
    """When the clock may next change something, if ever."""
    found = [
        standing.next_moment(state, after),
        *(one.until for one in state.roles.credentials()),
        *(after + _MICROSECOND if peer.heard is None else at for peer, at in lapses(state)),
    ]
    found += [_next(look, after) for look in dict.fromkeys(_looks(state))]
    return min((at for at in found if at is not None and at > after), default=None)


# -- which facts look at the clock ----------------------------------------------------------------------------


def _looks(state: State) -> Iterator[Look]:
    for record in state.roles.records.values():
        fact = fact_of(record.fact) if record.fact else None
        if isinstance(fact, When):
            rolefile = state.roles.rolefiles.get(fact.service)
            yield from _leaf(fact.leaf, Scene(state, fact.service, readings=inferred(rolefile).readings))


def _leaf(leaf: tree.Atom, scene: Scene) -> Iterator[Look]:
    compared = tree.comparisons(leaf)
    for one in compared:
        yield from _look(one.left, _known(one.right, scene), scene)
        yield from _look(one.right, _known(one.left, scene), scene)
    if isinstance(leaf, tree.Related):
        yield from _columns(leaf.name, leaf.args, scene)
    elif not compared:
        for operand in tree.operands(leaf):
            yield from _look(operand, None, scene)


def _look(expression: tree.Operand, beside: Known, scene: Scene) -> Iterator[Look]:
    """How an expression looks at the clock, if its value is compared with these."""
    match expression:
        case tree.Meta("time"):
            yield Look("time", "", beside)
        case tree.ClockPart(part, tree.Meta("time"), zone):
            yield Look(part, zone, beside)
        case tree.ClockPart(_, of):
            yield from _look(of, None, scene)
        case tree.Combine(op, left, right):
            yield from _look(left, _undone(op, beside, _known(right, scene), first=True), scene)
            yield from _look(right, _undone(op, beside, _known(left, scene), first=False), scene)
        case tree.Apply(function, args):
            yield from _columns(function, args, scene)


def _columns(name: str, args: tuple[tree.Operand, ...], scene: Scene) -> Iterator[Look]:
    """Arguments are compared with the columns of a relation; what a function or a role makes of them is not known."""
    rows = scene.rows(name)
    for place, arg in enumerate(args):
        column = None if rows is None else frozenset(row[place] for row in rows if place < len(row))
        yield from _look(arg, column, scene)


def _known(expression: tree.Operand, scene: Scene) -> Known:
    """The values that an expression may have, where the clock has no part in it."""
    match expression:
        case tree.Constant(value):
            return frozenset((value,))
        case tree.Apply(function) if function in scene.state.relations:
            return frozenset(row[-1] for row in scene.rows(function) or ())
        case tree.Combine(op, left, right):
            first, second = _known(left, scene), _known(right, scene)
            if first is None or second is None:
                return None
            return frozenset(combined(op, a, b) for a in first for b in second)
        case tree.ClockPart(part, of, zone):
            moments = _known(of, scene)
            if moments is None:
                return None
            return frozenset(clock_part(part, at, zone) for at in moments if isinstance(at, datetime))
        case _:
            return None


def _undone(op: str, beside: Known, other: Known, *, first: bool) -> Known:
    """What the clock itself is compared with, where its sum or difference with other values is beside some."""
    if op not in ("+", "-"):
        return frozenset()  # no part of the clock is a set
    if beside is None or other is None:
        return None
    pairs = [(c, x) for c in beside for x in other]
    if op == "+":
        differences = [combined("-", c, x) for c, x in pairs]
    else:
        differences = [combined("+", c, x) if first else combined("-", x, c) for c, x in pairs]
    known = [one for one in differences if one is not None]
    # Seconds between two moments are whole ones: what is compared with them turns within a second of either side.
    moments = [one for one in known if isinstance(one, datetime)]
    near = [later for one in moments for by in (-_SECOND, _SECOND) if (later := _later(one, by)) is not None]
    return frozenset([*known, *near])


# -- when what they see may turn ------------------------------------------------------------------------------


def _next(look: Look, after: datetime) -> datetime | None:
    if look.part == "time":
        return _instant(look.beside, after)
    if look.part == "timeofday" and look.beside is None:
        return _tick(after)
    wanted = {0}
    if look.part == "timeofday" and look.beside is not None:
        numbers = [one for one in look.beside if isinstance(one, int | float) and not isinstance(one, bool)]
        wanted |= {second for one in numbers for second in (int(one), int(one) + 1) if 0 <= second < _DAY_SECONDS}
    return _on_the_wall(look.zone, wanted, after)


def _instant(beside: Known, after: datetime) -> datetime | None:
    """The next of some times, or just after one."""
    if beside is None:
        return _tick(after)
    times = [one for one in beside if isinstance(one, datetime)]
    found = [one for at in times for one in (at, _later(at, _MICROSECOND)) if one is not None and one > after]
    return min(found, default=None)


def _tick(after: datetime) -> datetime | None:
    """The next whole second."""
    return _later(after.replace(microsecond=0), _SECOND)


def _later(at: datetime, by: timedelta) -> datetime | None:
    try:
        return at + by
    except OverflowError:
        return None


def _on_the_wall(name: str, wanted: set[int], after: datetime) -> datetime | None:
    """When the wall clock of a zone next shows one of these seconds of the day, or is put forward or back.

    Hour by hour: in an hour in which the clock is not put, the time of day it shows grows with the time.
    """
    zone = ZoneInfo(name)
    at = after.astimezone(UTC).replace(microsecond=0)
    for _ in range(_AHEAD):
        end = _later(at, _HOUR)
        if end is None:
            return None
        try:
            begins, was_put = _shown(at, zone), _offset(at, zone) != _offset(end, zone)
        except OverflowError:  # a year that the wall clock does not have
            return end
        if was_put:
            return _put(at, end, zone, wanted, after)
        steps = ((second - begins) % _DAY_SECONDS for second in wanted)
        found = min((step for step in steps if step <= 3600 and at + step * _SECOND > after), default=None)
        if found is not None:
            return at + found * _SECOND
        at = end
    return at


def _put(start: datetime, end: datetime, zone: ZoneInfo, wanted: set[int], after: datetime) -> datetime:
    """The first second in an hour in which a clock is put at which it shows something wanted, or was put."""
    at = start
    while at < end:
        if at > after and (_shown(at, zone) in wanted or _offset(at, zone) != _offset(at - _SECOND, zone)):
            return at
        at += _SECOND
    return end


def _offset(at: datetime, zone: ZoneInfo) -> timedelta | None:
    return at.astimezone(zone).utcoffset()


def _shown(at: datetime, zone: ZoneInfo) -> int:
    local = at.astimezone(zone)
    return local.hour * 3600 + local.minute * 60 + local.second
