"""Is a condition true? Three-valued (Kleene) logic, rule D1.

Guarantees: `truth` is total: it never raises, and returns `None` for unknown. A comparison with null is unknown.
An exception in a registered predicate is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias, assert_never
from zoneinfo import ZoneInfo

from headgate.model.changes import Row
from headgate.model.conditions import (
    AllOf,
    AnyOf,
    Apply,
    Argument,
    Attribute,
    ClockPart,
    Combine,
    Compare,
    Condition,
    Constant,
    Count,
    InGroup,
    InRange,
    InSet,
    IsNull,
    Meta,
    Not,
    Operand,
    Predicate,
    Related,
    Starred,
    Subject,
    TextMatch,
    TextOp,
    Variable,
    foreign,
    plain,
)
from headgate.model.events import Event, size_of
from headgate.model.state import State
from headgate.model.values import Kind, Value, compare, same

PredicateFunction: TypeAlias = Callable[..., object]


class NotRun:
    """A function that is known by name alone, because its Python was not allowed to run: what it says is unknown."""

    monitored: Final = True  # whether a star may stand on what it says is not known either, and is not complained of

    def __call__(self, *args: object) -> object:
        """Unknown, as with any function that fails."""
        raise NotImplementedError("it was not run")


_WEEK: Final = timedelta(days=7)
_BLANKS: Final = re.compile("[\t\n\x0b\x0c\r ]+")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a generic predicate is given as `event`: the attributes by name, and the envelope."""

    type: str
    publisher: str
    time: datetime
    attributes: Mapping[str, Value]

    def __getitem__(self, name: str) -> Value:
        return self.attributes[name]

    def get(self, name: str, default: Value = None) -> Value:
        """The attribute, or a default where the type lacks it."""
        return self.attributes.get(name, default)


@dataclass(frozen=True, slots=True)
class World:
    """What a condition may look at besides the event: the state, the subject's attributes, the predicates.

    `attributes` are those of the type that an entry names: any other is null in its condition (D3), although the
    event, which may be of a subtype, has it. `origin` is where the holder of the right was when it published or
    subscribed.
    """

    state: State
    subject: Mapping[str, Value] = field(default_factory=dict)
    predicates: Mapping[str, PredicateFunction] = field(default_factory=dict)
    attributes: Mapping[str, Kind] | None = None
    origin: str | None = None

    def given(self, arguments: Mapping[str, Value]) -> World:
        """The world of an entry for a role, whose arguments stand before the subject's attributes."""
        return replace(self, subject={**self.subject, **arguments}) if arguments else self


def truth(condition: Condition, event: Event, world: World) -> bool | None:
    """The truth of a condition over the values of an event, nulls included."""
    match condition:
        case Compare(op, left, right):
            return compare(op, value(left, event, world), value(right, event, world))
        case InRange(operand, low, high):
            x = value(operand, event, world)
            return every((compare(">=", x, value(low, event, world)), compare("<=", x, value(high, event, world))))
        case InSet(operand, values):
            x = value(operand, event, world)
            return some(compare("=", x, one) for one in values)
        case TextMatch(op, left, right):
            return text_matches(op, value(left, event, world), value(right, event, world))
        case IsNull(operand):
            return value(operand, event, world) is None
        case InGroup(operand, group):
            x = value(operand, event, world)
            return x in world.state.members_of(group) if isinstance(x, str) else None
        case Related(relation, args):
            return related(world.state.relations.get(relation, frozenset()), _values(args, event, world))
        case Predicate(name, args):
            return call(world.predicates.get(name), event, _values(args, event, world))
        case Starred(arg):
            return truth(arg, event, world)
        case Not(arg):
            return opposite(truth(arg, event, world))
        case AllOf(args):
            return every(truth(arg, event, world) for arg in args)
        case AnyOf(args):
            return some(truth(arg, event, world) for arg in args)
        case _:
            assert_never(condition)


def value(operand: Operand, event: Event, world: World) -> Value:
    """The value of an operand; null where the event's type or the subject lacks it."""
    match operand:
        case Attribute(name):
            return event.values.get(name) if world.attributes is None or name in world.attributes else None
        case Meta("time"):
            return event.time
        case Meta("rate"):
            return event.rate
        case Meta("origin"):
            return world.origin
        case Meta():
            return event.publisher
        case Subject(name):
            return world.subject.get(name)
        case Constant(constant):
            return plain(constant)
        case ClockPart(part, of, zone):
            at = value(of, event, world)
            return clock_part(part, at, zone) if isinstance(at, datetime) else None
        case Variable() | Apply() | Count() | Combine():
            raise foreign(operand)
        case _:
            assert_never(operand)


def clock_part(part: str, at: datetime, zone: str) -> int:
    """Whole seconds since local midnight, or the ISO day of the week, on the wall clock of a zone."""
    try:
        local = at.astimezone(ZoneInfo(zone))
    except OverflowError:  # local time would leave the years 1 to 9999; a week further in, clocks show the same
        local = (at + _WEEK if at.year == 1 else at - _WEEK).astimezone(ZoneInfo(zone))
    return local.hour * 3600 + local.minute * 60 + local.second if part == "timeofday" else local.isoweekday()


def has_token(text: str, token: str) -> bool:
    """Is the token one of the words of the text? Words are split on U+0009-000D and space."""
    return token != "" and token in _BLANKS.split(text)


def related(rows: frozenset[Row], args: Row) -> bool | None:
    """Is the tuple in the relation? Unknown if any argument is null."""
    if any(arg is None for arg in args):
        return None
    return any(len(row) == len(args) and all(map(same, row, args)) for row in rows)


def call(predicate: PredicateFunction | None, event: Event, args: Row) -> bool | None:
    """Ask a generic predicate; anything but a plain yes or no is unknown."""
    if predicate is None:
        return None
    try:
        seen = Seen(event.type, event.publisher, event.time, event.values)
        answer = predicate(seen, size_of(event.values), *args)
    except Exception:  # noqa: BLE001 - the operator's code may fail in any way, and that is unknown (design 3)
        return None
    return answer if isinstance(answer, bool) else None


def _values(args: tuple[Operand, ...], event: Event, world: World) -> Row:
    return tuple(value(arg, event, world) for arg in args)


def text_matches(op: TextOp, text: Argument, part: Argument) -> bool | None:
    """A test of two texts; unknown unless both are."""
    if not isinstance(text, str) or not isinstance(part, str):
        return None
    match op:
        case "starts with":
            return text.startswith(part)
        case "contains":
            return part in text
        case "has token":
            return has_token(text, part)
        case _:
            assert_never(op)


def every(truths: Iterable[bool | None]) -> bool | None:
    """Kleene's conjunction. Every part is looked at."""
    answers = list(truths)
    return False if False in answers else None if None in answers else True


def some(truths: Iterable[bool | None]) -> bool | None:
    """Kleene's disjunction. Every part is looked at."""
    answers = list(truths)
    return True if True in answers else None if None in answers else False


def opposite(truth: bool | None) -> bool | None:
    """Kleene's negation."""
    return None if truth is None else not truth
