"""Is an expression true, and what is its value? Three-valued (Kleene) logic, rule D1: the reference for every language.

Guarantees: `evaluate` is total: it never raises, and returns `None` for unknown. A comparison with null is unknown, and
so are one of values that do not compare (D2), an atom about a variable without a value, and an exception in a
registered predicate. What a language may look at answers its `Leaves`: an event and its world those of conditions
(`truth`), a request and the values of variables those of constraints (`constraints`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias, TypeGuard, assert_never, cast
from zoneinfo import ZoneInfo

from headgate.model import expressions as tree
from headgate.model.changes import Row
from headgate.model.events import Event, size_of
from headgate.model.expressions import Argument, Condition, Operand
from headgate.model.state import State, subgroups
from headgate.model.values import INT_MAX, INT_MIN, Kind, Value, compare, same

_WEEK: Final = timedelta(days=7)
_SECOND: Final = timedelta(seconds=1)
_BLANKS: Final = re.compile("[\t\n\x0b\x0c\r ]+")
_OF_SETS: Final[Mapping[str, Callable[[frozenset[str], frozenset[str]], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "subset": operator.lt, "subseteq": operator.le, "superset": operator.gt,
    "superseteq": operator.ge,
}  # fmt: skip
_SET_OPERATIONS: Final[Mapping[str, Callable[[frozenset[str], frozenset[str]], frozenset[str]]]] = {
    "union": operator.or_, "intersect": operator.and_, "minus": operator.sub,
}  # fmt: skip


class Unbound(Exception):
    """A variable has no value: whatever its atom says is unknown."""


class Leaves(Protocol):
    """What a language may look at: it answers the leaves of an expression."""

    def leaf(self, operand: Operand) -> Argument:
        """The value of an attribute, a variable, a call or a count; null, or `Unbound`, where there is none."""

    def is_member(self, who: str, group: str) -> bool | None:
        """Is this a member of a group?"""

    def holds(self, atom: tree.Related | tree.Predicate) -> bool | None:
        """Is a tuple in a relation, or what else a call says true?"""


def evaluate(condition: Condition, leaves: Leaves) -> bool | None:
    """The truth of a condition. Every part is looked at."""
    match condition:
        case tree.Starred(arg):
            return evaluate(arg, leaves)
        case tree.Not(arg):
            return opposite(evaluate(arg, leaves))
        case tree.AllOf(args):
            return every(evaluate(arg, leaves) for arg in args)
        case tree.AnyOf(args):
            return some(evaluate(arg, leaves) for arg in args)
        case tree.Related() | tree.Predicate():
            return leaves.holds(condition)
    try:
        return _atom(condition, leaves)
    except Unbound:
        return None


def _atom(
    atom: tree.Compare | tree.InRange | tree.InSet | tree.TextMatch | tree.IsNull | tree.InGroup, leaves: Leaves
) -> bool | None:
    x, *others = (evaluate_operand(operand, leaves) for operand in tree.operands(atom))
    match atom:
        case tree.Compare(op):
            return compared(op, x, others[0])
        case tree.InRange():
            return every((compared(">=", x, others[0]), compared("<=", x, others[1])))
        case tree.InSet(_, values):
            return some(compared("=", x, value) for value in values)
        case tree.TextMatch(op):
            return text_matches(op, x, others[0])
        case tree.IsNull():
            return x is None
        case tree.InGroup(_, group):
            return leaves.is_member(x, group) if isinstance(x, str) else None
        case _:
            assert_never(atom)


def evaluate_operand(operand: Operand, leaves: Leaves) -> Argument:
    """The value of an operand; null where it has none."""
    match operand:
        case tree.Constant(value):
            return value
        case tree.ClockPart(part, of, zone):
            at = evaluate_operand(of, leaves)
            return clock_part(part, at, zone) if isinstance(at, datetime) else None
        case tree.Combine(op, left, right):
            return combined(op, evaluate_operand(left, leaves), evaluate_operand(right, leaves))
        case _:
            return leaves.leaf(operand)


# -- conditions, over an event --------------------------------------------------------------------------------


PredicateFunction: TypeAlias = Callable[..., object]


class NotRun:
    """A function that is known by name alone, because its Python was not allowed to run: what it says is unknown."""

    monitored: Final = True  # whether a star may stand on what it says is not known either, and is not complained of

    def __call__(self, *args: object) -> object:
        """Unknown, as with any function that fails."""
        raise NotImplementedError("it was not run")


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


@dataclass(frozen=True, slots=True)
class _EventLeaves:
    event: Event
    world: World

    def leaf(self, operand: Operand) -> Value:
        event, world = self.event, self.world
        match operand:
            case tree.Attribute(name):
                return event.values.get(name) if world.attributes is None or name in world.attributes else None
            case tree.Subject(name):
                return world.subject.get(name)
            case tree.Meta("time"):
                return event.time
            case tree.Meta("rate"):
                return event.rate
            case tree.Meta("origin"):
                return world.origin
            case tree.Meta():
                return event.publisher
            case _:
                raise tree.foreign(operand)

    def is_member(self, who: str, group: str) -> bool:
        return is_member(self.world.state, who, group)

    def holds(self, atom: tree.Related | tree.Predicate) -> bool | None:
        args = cast(Row, tuple(evaluate_operand(arg, self) for arg in atom.args))
        if isinstance(atom, tree.Predicate):
            return call(self.world.predicates.get(atom.name), self.event, args)
        return related(self.world.state.relations.get(atom.name, frozenset()), args)


def truth(condition: Condition, event: Event, world: World) -> bool | None:
    """The truth of a condition over the values of an event, nulls included."""
    return evaluate(condition, _EventLeaves(event, world))


def value(operand: Operand, event: Event, world: World) -> Value:
    """The value of an operand; null where the event's type or the subject lacks it."""
    return tree.plain(evaluate_operand(operand, _EventLeaves(event, world)))


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


# -- operations on values --------------------------------------------------------------------------------------


def is_member(state: State, who: str, group: str) -> bool:
    """Is this in a group, directly or through other groups? A group inside is no member of its own."""
    within = subgroups(state.groups, group)
    return who not in state.groups and any(who in state.groups.get(at, ()) for at in within)


def compared(op: str, a: Argument, b: Argument) -> bool | None:
    """A comparison of two values; unknown where they do not compare."""
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return _OF_SETS[op](a, b) if op in _OF_SETS else None
    if isinstance(a, frozenset) or isinstance(b, frozenset) or op not in tree.MIRRORED:
        return None
    return compare(op, a, b)


def combined(op: str, a: Argument, b: Argument) -> Argument:
    """The sum or difference of two values; null where they have none."""
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return _SET_OPERATIONS[op](a, b) if op in _SET_OPERATIONS else None
    match op, a, b:
        case "+" | "-", int(), int() if _is_int(a) and _is_int(b):
            made = a + b if op == "+" else a - b
            return made if INT_MIN <= made <= INT_MAX else None
        case "-", datetime(), datetime():
            return (a - b) // _SECOND
        case "+" | "-", datetime(), int() if _is_int(b):
            return _later(a, b if op == "+" else -b)
        case "+", int(), datetime() if _is_int(a):
            return _later(b, a)
        case "+" | "-", int() | float(), int() | float() if not isinstance(a, bool) and not isinstance(b, bool):
            total = a + b if op == "+" else a - b
            return total if math.isfinite(total) else None
        case "+" | "-", datetime(), float():
            return _later(a, b if op == "+" else -b)
        case "+", float(), datetime():
            return _later(b, a)
    return None


def _later(at: datetime, seconds: float) -> datetime | None:
    try:
        return at + timedelta(seconds=seconds)
    except OverflowError:  # past the years 1 to 9999
        return None


def _is_int(argument: Argument) -> TypeGuard[int]:
    return isinstance(argument, int) and not isinstance(argument, bool)


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


def text_matches(op: tree.TextOp, text: Argument, part: Argument) -> bool | None:
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
