"""What a composite event means: which signals there are of it, and when (OASIS 6.5)?

Guarantees: `signals` is a pure function of an expression, a start, an environment and what is known of the events. It
is the specification of composite events. It knows nothing of arrival: with all events known (`Complete`) it is the
meaning itself; `KnownEvents` says which times are certain, and then it is that part of the meaning which no event that
may still come can change (`decide.blocks` plays arrivals). Occurrence times alone count, never the order of arrival.
Leaves out: blocks, which are run by what knows the arrivals; text; names and kinds, which `composite_check` resolved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeAlias, assert_never

from headgate.decide.truth import evaluate, evaluate_operand, is_member, related
from headgate.model import composite as model
from headgate.model import expressions as tree
from headgate.model.composite import Composite
from headgate.model.expressions import Argument, Operand
from headgate.model.state import State
from headgate.model.values import EPOCH, Value, compare

Environment: TypeAlias = tuple[tuple[str, Value], ...]
"""What variables mean, in the order of their names."""

FOREVER = datetime.max.replace(tzinfo=EPOCH.tzinfo)
EARLIEST = datetime.min.replace(tzinfo=EPOCH.tzinfo)


class Signal(NamedTuple):
    """A composite event occurred at a time, with these values of its variables."""

    time: datetime
    environment: Environment


@dataclass(frozen=True, slots=True, eq=False)
class Occurrence:
    """An event as a detection sees it: its principal's view, at the event's version.

    `types` are its type and the ancestors of that. Those of them that are keyed are `tables`, and `key` says which row
    of theirs it is.
    """

    time: datetime
    types: tuple[str, ...]
    values: Mapping[str, Value]
    state: State
    stream: str = "main"
    seq: int = 0
    key: tuple[Value, ...] = ()
    tables: tuple[str, ...] = ()


class KnownEvents(Protocol):
    """What is known of the events."""

    memo: dict[tuple[int, datetime, Environment], frozenset[Signal]]
    """What was worked out of that, so that no part is looked at twice."""

    def other_memo(self, name: str) -> dict[tuple[int, datetime, Environment], frozenset[Signal]]:
        """Likewise, where horizons are seen otherwise."""

    def of(self, type: str) -> Iterable[Occurrence]:
        """The events of a type and its subtypes that are known."""

    def horizon(self, types: Iterable[str] | None) -> datetime:
        """All events of these types (None: of all) with a time below it are known."""

    def run(self, block: model.Block | model.Aggregate, start: datetime, env: Environment) -> Iterable[Signal]:
        """What a block has accepted."""

    def block_settled(self, block: model.Block | model.Aggregate, start: datetime, env: Environment) -> datetime:
        """Before which time a block will accept nothing more."""

    def block_over(self, block: model.Block | model.Aggregate, start: datetime, env: Environment) -> datetime | None:
        """When a block ended, if it has."""

    def shift(self, left: Composite, right: Composite, probability: float | None) -> timedelta:
        """How much later right must be than left for their order to hold with a probability."""

    def assumed(
        self, without: model.Without, start: datetime, env: Environment, signal: Signal, *, killed: bool
    ) -> bool:
        """Was the right side taken for absent when the delay for a signal of the left side was over?"""


def signals(c: Composite, start: datetime, env: Environment, known: KnownEvents) -> frozenset[Signal]:
    """Φ(c, start, env): the signals of a composite event that is started at a time with an environment."""
    key = (id(c), start, env)
    if key not in known.memo:
        known.memo[key] = _signals(c, start, env, known)
    return known.memo[key]


def _signals(c: Composite, start: datetime, env: Environment, known: KnownEvents) -> frozenset[Signal]:
    match c:
        case model.Template():
            every = list(matches(c, start, env, known))
            first = min((signal.time for signal in every), default=FOREVER)
            certain = first < known.horizon((c.type,))
            return frozenset(signal for signal in every if signal.time == first) if certain else frozenset()
        case model.Timer():
            return frozenset(signal for signal in fired(c, start, env) if signal.time < known.horizon(None))
        case model.NullEvent():
            return frozenset({Signal(start, env)})
        case model.Sequence(left, right, probability):
            shift = known.shift(left, right, probability)
            before = signals(left, start, env, known)
            return frozenset().union(
                *(signals(right, later(one.time, shift), one.environment, known) for one in before)
            )
        case model.Either(left, right):
            return signals(left, start, env, known) | signals(right, start, env, known)
        case model.Without(left):
            kills = Kills(c, start, env, known)
            return frozenset(one for one in signals(left, start, env, known) if kills.spare(one))
        case model.Whenever(model.Template() as template):
            return frozenset(matches(template, start, env, known))
        case model.Whenever(model.Whenever() as of):  # which has started again already; a row counts once
            return signals(of, start, env, known)
        case model.Whenever(of):
            least: set[Signal] = set()
            starts = [start]
            for at in starts:  # the least solution: no start is looked at twice
                least |= signals(of, at, env, known)
                starts += sorted({signal.time for signal in least}.difference(starts))
            return frozenset(least)
        case model.Block() | model.Aggregate():
            return frozenset(known.run(c, start, env))
        case _:
            assert_never(c)


class Kills:
    """The signals of the right side of a `-`, and from when on there may be more."""

    def __init__(self, c: model.Without, start: datetime, env: Environment, known: KnownEvents) -> None:
        foreseen = Foreseen(known)
        self._parts = c, start, env
        self._known = known
        self._shift = known.shift(c.left, c.right, c.probability)
        times = [kill.time for kill in signals(c.right, start, env, foreseen) if kill.time > start]
        self.first = min(times, default=FOREVER)
        self.settled = settled(c.right, start, env, foreseen)
        self._received = self.first
        if c.delay is not None:
            received = signals(c.right, start, env, Received(known))
            self._received = min((kill.time for kill in received if kill.time > start), default=self.first)

    def kill(self, signal: Signal) -> bool:
        """Did a signal of the right side come first? A tie kills."""
        return self.first <= later(signal.time, self._shift)

    def spare(self, signal: Signal) -> bool:
        """Is it certain, or was it assumed, that none came first?"""
        seen = min(self.first, self._received) <= later(signal.time, self._shift)
        if self._known.assumed(*self._parts, signal, killed=seen):
            return True
        return not self.kill(signal) and later(signal.time, self._shift) < self.settled


def settled(c: Composite, start: datetime, env: Environment, known: KnownEvents) -> datetime:
    """All signals before this time are in, whatever may still come; there are none before the start."""
    match c:
        case model.Template(type):
            return FOREVER if signals(c, start, env, known) else max(start, known.horizon((type,)))
        case model.Timer():
            return max(start, known.horizon(None)) if any(fired(c, start, env)) else FOREVER
        case model.NullEvent():
            return FOREVER
        case model.Sequence(left, right, probability):
            shift = known.shift(left, right, probability)
            before = signals(left, start, env, known)
            after = (settled(right, later(one.time, shift), one.environment, known) for one in before)
            first = earlier(
                settled(left, start, env, known), max(0, -whole_micros(shift)) + backward(right, known.shift)
            )
            return min(first, *after, FOREVER)
        case model.Either(left, right):
            return min(settled(left, start, env, known), settled(right, start, env, known))
        case model.Without(left, right):
            if over(c, start, env, known) is not None:
                return FOREVER
            return min(settled(left, start, env, known), settled(right, start, env, Foreseen(known)))
        case model.Whenever(model.Template(type)):
            return max(start, known.horizon((type,)))
        case model.Whenever(model.Whenever() as of):
            return settled(of, start, env, known)
        case model.Whenever(of):
            starts = {start, *(signal.time for signal in signals(c, start, env, known))}
            return earlier(min(settled(of, at, env, known) for at in starts), backward(c, known.shift))
        case model.Block() | model.Aggregate():
            return known.block_settled(c, start, env)
        case _:
            assert_never(c)


def over(c: Composite, start: datetime, env: Environment, known: KnownEvents) -> datetime | None:
    """The time of what ended it, if it is certain that no more signals will come and that all are in."""
    match c:
        case model.Template() | model.Timer():
            done = signals(c, start, env, known)
            never = isinstance(c, model.Timer) and not any(fired(c, start, env))
            return next(iter(done)).time if done else start if never else None
        case model.NullEvent():
            return start
        case model.Sequence(left, right, probability):
            shift = known.shift(left, right, probability)
            before = signals(left, start, env, known)
            after = [over(right, later(one.time, shift), one.environment, known) for one in before]
            return _all_over([over(left, start, env, known), *after])
        case model.Either(left, right):
            return _all_over([over(left, start, env, known), over(right, start, env, known)])
        case model.Without(left):
            kills = Kills(c, start, env, known)
            decided = all(kills.kill(one) or kills.spare(one) for one in signals(left, start, env, known))
            ended = over(left, start, env, known) if decided else None
            if ended is not None and ended <= kills.first and ended < kills.settled:
                return ended
            return kills.first if kills.first < min(settled(left, start, env, known), kills.settled) else None
        case model.Whenever(model.Template()):
            return None
        case model.Whenever(model.Whenever() as of):
            return over(of, start, env, known)
        case model.Whenever(of):
            starts = {start, *(signal.time for signal in signals(c, start, env, known))}
            return _all_over([over(of, at, env, known) for at in sorted(starts)])
        case model.Block() | model.Aggregate():
            return known.block_over(c, start, env)
        case _:
            assert_never(c)


Shift: TypeAlias = Callable[[Composite, Composite, float | None], timedelta]
"""How much later the right side must be than the left for their order to hold with a probability."""


def backward(c: Composite, shift: Shift) -> float:
    """By how many microseconds it may signal before its own start, where a probability lets the order be the other."""
    match c:
        case model.Sequence(left, right, probability):
            own = max(0, -whole_micros(shift(left, right, probability)))
            return own + backward(left, shift) + backward(right, shift)
        case model.Without(left):
            return backward(left, shift)
        case model.Whenever(of):  # which starts again there, and so on
            return math.inf if backward(of, shift) else 0
        case _:
            return max((backward(part, shift) for part in model.inside(c)), default=0)


def lag(c: Composite, shift: Shift) -> float:
    """By how many microseconds what it signals may lie behind all that is certain, what blocks hold apart.

    Without probabilities that is nothing: what becomes certain is signalled then.
    """
    match c:
        case model.Sequence(left, right, probability):
            return max(0, -whole_micros(shift(left, right, probability))) + lag(left, shift) + lag(right, shift)
        case model.Without(left, right, _, probability):
            return max(0, whole_micros(shift(left, right, probability))) + lag(left, shift) + lag(right, shift)
        case model.Whenever(of) if backward(of, shift):
            return math.inf
        case _:
            return max((lag(part, shift) for part in model.inside(c)), default=0)


def whole_micros(time: timedelta) -> int:
    """A difference of times in microseconds."""
    return time // timedelta(microseconds=1)


def earlier(time: datetime, micros: float) -> datetime:
    """So many microseconds before a time; with no end of them, before all times."""
    return EARLIEST if micros == math.inf else later(time, timedelta(microseconds=-micros))


def _all_over(parts: Iterable[datetime | None]) -> datetime | None:
    """When the last of them ended."""
    ends = list(parts)
    return max((end for end in ends if end is not None), default=None) if None not in ends else None


class Foreseen:
    """What is known on the right side of a `-`: when a timer will fire is known beforehand."""

    _memo = "foreseen"

    def __init__(self, known: KnownEvents) -> None:
        self._known = known
        self.memo: dict[tuple[int, datetime, Environment], frozenset[Signal]] = known.other_memo(self._memo)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._known, name)

    def other_memo(self, name: str) -> dict[tuple[int, datetime, Environment], frozenset[Signal]]:
        """What is foreseen of what is foreseen is kept apart."""
        return self._known.other_memo(f"{self._memo}, {name}")

    def horizon(self, types: Iterable[str] | None) -> datetime:
        """As before, but timers wait for nothing."""
        return FOREVER if types is None else self._known.horizon(types)


class Received(Foreseen):
    """What has been received is all there is: what a delay goes by when it is over."""

    _memo = "received"

    def horizon(self, types: Iterable[str] | None) -> datetime:  # noqa: ARG002
        """Nothing more is waited for."""
        return FOREVER


# -- matching -------------------------------------------------------------------------------------------------


def matches(template: model.Template, start: datetime, env: Environment, known: KnownEvents) -> Iterator[Signal]:
    """Every match after a start; rows of an active table that are there at the start count at the start."""
    rows: dict[tuple[Value, ...], Occurrence] = {}
    for one in known.of(template.type):
        if one.time > start:
            yield from matched(template, one, one.time, env)
        elif template.type in one.tables:
            there = rows.get(one.key)
            if there is None or (there.time, there.seq) <= (one.time, one.seq):
                rows[one.key] = one
    if start < known.horizon((template.type,)):
        for row in rows.values():
            yield from matched(template, row, start, env)


def matched(template: model.Template, one: Occurrence, at: datetime, env: Environment) -> Iterator[Signal]:
    """The signal of an event that matches a template under an environment and passes its tests, if it does."""
    bound = dict(env)
    for attribute, parameter in zip(template.attributes, template.parameters, strict=True):
        value = one.values.get(attribute)
        match parameter:
            case None:
                continue
            case tree.Constant(literal):
                fits = compare("=", tree.plain(literal), value) is True
            case tree.Variable(name):
                fits = value is not None and compare("=", bound.setdefault(name, value), value) is True
        if not fits:
            return
    if passes(template.side, bound, at, one.state):
        yield Signal(at, environment(bound))


def fired(timer: model.Timer, start: datetime, env: Environment) -> Iterator[Signal]:
    """The signal of a timer, unless its time is at or before the start."""
    bound = dict(env)
    at = moment_of(evaluate_operand(timer.when, _Leaves(bound, start, None)))
    if at is not None and at > start and passes(timer.side, bound, at, None):
        yield Signal(at, environment(bound))


def passes(side: Iterable[model.SideExpression], bound: dict[str, Value], at: datetime, state: State | None) -> bool:
    """Are all tests true, left to right? What is assigned is bound."""
    for one in side:
        leaves = _Leaves(bound, at, state)
        if isinstance(one, model.SideTest):
            if evaluate(one.condition, leaves) is not True:
                return False
        else:
            value = tree.plain(evaluate_operand(one.value, leaves))
            if value is None:
                return False
            bound[one.name] = value
    return True


@dataclass(frozen=True, slots=True)
class _Leaves:
    """What the leaves of a side expression say; groups and relations are as they are at the event's version."""

    bound: Mapping[str, Value]
    at: datetime
    state: State | None

    def leaf(self, operand: Operand) -> Argument:
        match operand:
            case tree.Variable(name):
                return self.bound.get(name)
            case tree.Meta(""):
                return self.at
            case _:
                raise tree.foreign(operand)

    def is_member(self, who: str, group: str) -> bool | None:
        return None if self.state is None or group not in self.state.groups else is_member(self.state, who, group)

    def holds(self, atom: tree.Related | tree.Predicate) -> bool | None:
        if self.state is None or isinstance(atom, tree.Predicate) or atom.name not in self.state.relations:
            return None
        row = tuple(tree.plain(evaluate_operand(arg, self)) for arg in atom.args)
        return related(self.state.relations[atom.name], row)


def environment(bound: Mapping[str, Value]) -> Environment:
    """An environment, in the order of its names."""
    return tuple(sorted(bound.items()))


def later(time: datetime, by: timedelta) -> datetime:
    """A time moved; past the years 1 to 9999 there is none."""
    try:
        return time + by
    except OverflowError:
        return FOREVER if by > timedelta(0) else EARLIEST


def moment_of(value: Argument) -> datetime | None:
    """A time; numbers are seconds."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return EPOCH + timedelta(seconds=value)
    except OverflowError:  # past the years 1 to 9999
        return None


class Complete:
    """All events are known, at one moment; every time is certain, and order is as the times say."""

    def __init__(self, occurrences: Iterable[Occurrence]) -> None:
        self._by_type: dict[str, list[Occurrence]] = {}
        self.memo: dict[tuple[int, datetime, Environment], frozenset[Signal]] = {}
        self._others: dict[str, dict[tuple[int, datetime, Environment], frozenset[Signal]]] = {}
        self.learn(occurrences)

    def other_memo(self, name: str) -> dict[tuple[int, datetime, Environment], frozenset[Signal]]:
        """What was worked out otherwise."""
        return self._others.setdefault(name, {})

    def learn(self, occurrences: Iterable[Occurrence]) -> None:
        """More events are known."""
        self.memo.clear()
        for memo in self._others.values():
            memo.clear()
        for one in occurrences:
            for type in one.types:
                self._by_type.setdefault(type, []).append(one)

    def of(self, type: str) -> Iterable[Occurrence]:
        """The events of a type."""
        return self._by_type.get(type, ())

    def horizon(self, types: Iterable[str] | None) -> datetime:  # noqa: ARG002
        """Everything is known."""
        return FOREVER

    def run(self, block: model.Block | model.Aggregate, start: datetime, env: Environment) -> Iterable[Signal]:
        """Blocks go by arrival."""
        raise NotImplementedError

    def block_settled(self, block: model.Block | model.Aggregate, start: datetime, env: Environment) -> datetime:
        """Likewise."""
        raise NotImplementedError

    def block_over(self, block: model.Block | model.Aggregate, start: datetime, env: Environment) -> datetime | None:
        """Likewise."""
        raise NotImplementedError

    def shift(self, left: Composite, right: Composite, probability: float | None) -> timedelta:  # noqa: ARG002
        """Clocks have no errors."""
        return timedelta(0)

    def assumed(
        self, without: model.Without, start: datetime, env: Environment, signal: Signal, *, killed: bool
    ) -> bool:
        """Nothing is assumed."""
        del without, start, env, signal, killed
        return False
