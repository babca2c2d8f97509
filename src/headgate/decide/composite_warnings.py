"""What should be said of a composite event that is accepted: what can never signal, and what may grow without bound.

Guarantees: whatever is called never signalling has no signal, from any start at or after the one given, whatever events
come: tests compare it with `decide.composite` and `decide.blocks`. The converse is not promised: only what is cheap to
see is said. Of the times on a way through an expression it keeps how long after one another they are at least, and of
the values what the tests passed have asked of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias, assert_never

from headgate.decide.composite import moment_of
from headgate.decide.normal import clauses
from headgate.lang.render import render_free
from headgate.model import composite as model
from headgate.model import expressions as tree
from headgate.model.composite import Composite, Statement
from headgate.model.errors import BadExpression
from headgate.model.expressions import Condition, Constant, Operand, Variable
from headgate.model.types import Catalog
from headgate.model.values import EPOCH, NUMERIC, Kind, Value, compare

_ZERO: Final = timedelta(0)
_CLOCK: Final = 0
"""The moment that plain times are counted from."""
_AT: Final = "@"


class TimeTerm(NamedTuple):
    """A time: so long after a moment on the way."""

    moment: int
    after: timedelta


class Lag(NamedTuple):
    """How long it is at least since a moment; with `open`, longer than that."""

    least: timedelta
    open: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """What is so wherever an evaluation comes by here: which variables may have values, and what is known of them."""

    bound: frozenset[str] = frozenset()
    facts: tuple[Condition, ...] = ()
    times: Mapping[str, TimeTerm] = field(default_factory=dict)
    since: Mapping[int, Lag] = field(default_factory=dict)


MaybeWay: TypeAlias = Way | None
"""None: no evaluation gets here."""


def warnings(
    c: Composite,
    types: Catalog,
    kinds: Mapping[str, Kind],
    bound: Mapping[str, Value] | None = None,
    start: datetime = EPOCH,
) -> tuple[bool, tuple[str, ...]]:
    """Can a resolved expression never signal, from this start or a later one? And what is to be said, with places."""
    walk = _Walk(types, kinds)
    facts = tuple(tree.Compare("=", Variable(name), Constant(value)) for name, value in (bound or {}).items())
    way = Way(frozenset(bound or ()), facts, {}, {_CLOCK: Lag(start - EPOCH)})
    never = walk.after(c, way) is None
    return never, tuple(dict.fromkeys(walk.said))


@dataclass(slots=True)
class _Walk:
    """One walk over an expression, in the order of evaluation."""

    types: Catalog
    kinds: Mapping[str, Kind]
    said: list[str] = field(default_factory=list)
    moments: int = _CLOCK

    def after(self, c: Composite, way: Way) -> MaybeWay:
        """What is so when it signals, started where `way` is; None if it cannot."""
        match c:
            case model.Template():
                return self._match(c, way)
            case model.Timer():
                return self._fire(c, way)
            case model.NullEvent():
                return way
            case model.Sequence(left, right, probability):
                if _is_endless(left) and _is_endless(right):
                    self._say(right, "it may grow without bound: each start stays open for ever; end it with `-`")
                first = self.after(left, way)
                if first is None:
                    return None
                # With a probability, what comes second may start before or after what came first.
                return self.after(right, first if probability is None else replace(first, since={}))
            case model.Either(left, right):
                return _either(self.after(left, way), self.after(right, way))
            case model.Without():
                return self._without(c, way)
            case model.Whenever(of):
                return self.after(of, way)
            case model.Aggregate(function, of):
                return self._aggregate(c, function, self.after(of, way))
            case model.Block():
                return self._block(c, way)
            case _:
                assert_never(c)

    def _say(self, c: Composite, words: str) -> None:
        place = _place(c)
        self.said.append(words if place is None else f"{place}: {words}")

    # -- templates and timers -------------------------------------------------------------------------------------

    def _match(self, c: model.Template, way: Way) -> MaybeWay:
        self.moments += 1
        row = self._is_table(c)
        since = {moment: Lag(lag.least, lag.open or not row) for moment, lag in way.since.items()}
        names = [p.name for p in c.parameters if isinstance(p, Variable)]
        here = replace(way, bound=way.bound.union(names), since={**since, self.moments: Lag(_ZERO)})
        whole = {
            p.name: kind
            for p, kind in zip(c.parameters, self.types.attributes(c.type).values(), strict=True)
            if isinstance(p, Variable)
        }
        return self._pass(c, c.side, here, TimeTerm(self.moments, _ZERO), whole)

    def _fire(self, c: model.Timer, way: Way) -> MaybeWay:
        at = _time(c.when, way.times, None)
        if at is None:
            self.moments += 1
            return self._pass(c, c.side, _later(way, TimeTerm(self.moments, _ZERO)), TimeTerm(self.moments, _ZERO), {})
        lag = way.since.get(at.moment)
        if lag is not None and at.after <= lag.least:
            when = f"AbsTime({render_free(c.when)})"
            self._say(
                c, f"it can never signal: `{when}` is never after its start, and a timer in the past does not fire"
            )
            return None
        return self._pass(c, c.side, _later(way, at), at, {})

    def _pass(
        self,
        c: model.Template | model.Timer,
        side: Iterable[model.SideExpression],
        way: Way,
        at: TimeTerm,
        whole: Mapping[str, Kind],
    ) -> MaybeWay:
        """What is so when all tests were true; None if they cannot be."""
        times, facts, asked = dict(way.times), list(way.facts), list(way.facts)
        bound = way.bound
        for one in side:
            if isinstance(one, model.SideAssignment):
                bound = bound | {one.name}
                time = _time(one.value, times, at)
                if time is not None:
                    times[one.name] = time
                if isinstance(one.value, Constant):
                    facts.append(tree.Compare("=", Variable(one.name), one.value))
                    asked.append(facts[-1])
                continue
            for test in tree.conjuncts(one.condition):
                if _is_past(test, times, at, way.since):
                    self._say_at(one.place, c, "its tests ask for an order of times in which they do not come")
                    return None
                asked.append(test)
                if _is_lasting(test):
                    facts.append(test)
        if not self._is_possible(asked, whole):
            place = next((one.place for one in side if isinstance(one, model.SideTest)), None)
            self._say_at(place, c, "what its tests ask for contradicts itself")
            return None
        return replace(way, bound=bound, facts=tuple(dict.fromkeys(facts)), times=times)

    def _say_at(self, place: str | None, c: Composite, why: str) -> None:
        words = f"it can never signal: {why}"
        self.said.append(f"{place}: {words}") if place is not None else self._say(c, words)

    def _is_possible(self, asked: Iterable[Condition], whole: Mapping[str, Kind]) -> bool:
        """May all of these be true of some values? Only comparisons with literals are looked at."""
        kinds = {name: Kind.FLOAT if kind in NUMERIC else kind for name, kind in self.kinds.items()}
        kinds |= {**whole, _AT: Kind.TIMESTAMP}
        usable = [one for one in asked if all(map(_is_simple, tree.looked_at(one)))]
        try:
            return bool(clauses(tree.rewrite_operands(tree.all_of(*usable), _as_attribute), kinds))
        except BadExpression:  # too many clauses: nothing is said
            return True

    # -- without ------------------------------------------------------------------------------------------------

    def _without(self, c: model.Without, way: Way) -> MaybeWay:
        left = self.after(c.left, way)
        right = self.after(c.right, way)
        if left is None:
            return None
        if right is not None and (_is_at_start(c.right) or _is_at_start(c.left)):
            self._say(c.right, "it changes nothing: what occurs at its own start comes before and after nothing")
        if isinstance(c.right, model.Template) and self._is_table(c.right):
            self._say(
                c.right, "a row that is there at the start is the first, and kills nothing; write `$` for later ones"
            )
        ordered = c.probability is None or c.probability >= 0.5
        if ordered and not self._may_be_at_start(c.left) and self._kills(c.left, c.right, way.bound):
            words = "what stands on the right of `-` kills every signal of its left, for a tie kills"
            self._say(c.right, f"it can never signal: {words}")
            return None
        return left

    def _kills(self, left: Composite, right: Composite, bound: frozenset[str]) -> bool:
        """Does with each signal of the left after the start come one of the right, after the start and not later?"""
        if left == right:
            return True
        match right:
            case model.Either(one, other):
                return self._kills(left, one, bound) or self._kills(left, other, bound)
            case model.Whenever(of):
                return self._kills(left, of, bound)
        match left:
            case model.Either(one, other):
                return self._kills(one, right, bound) and self._kills(other, right, bound)
            case model.Whenever(of) | model.Without(of):
                return self._kills(of, right, bound)
            case model.Sequence(first, second, None):
                early = not self._may_be_at_start(first) and self._kills(first, right, bound)
                return early or (_ends_with(second) is not None and self._kills_last(second, right, bound))
            case model.Template():
                return self._kills_last(left, right, bound)
        return False

    def _kills_last(self, left: Composite, right: Composite, bound: frozenset[str]) -> bool:
        """Does a template on the right match every event with which the left may end?"""
        last = _ends_with(left)
        return (
            isinstance(right, model.Template)
            and last is not None
            and all(not self._is_table(one) and self._covers(right, one, bound) for one in last)
        )

    def _covers(self, wide: model.Template, narrow: model.Template, bound: frozenset[str]) -> bool:
        """Does one match every event that the other does, though it may know less? `bound`: what may have a value."""
        if wide == narrow:
            return True
        if wide.side or not self.types.is_a(narrow.type, wide.type):
            return False
        of = dict(zip(narrow.attributes, narrow.parameters, strict=True))
        met: dict[str, model.Parameter] = {}
        for attribute, parameter in zip(wide.attributes, wide.parameters, strict=True):
            mine = of.get(attribute)
            match parameter:
                case Constant() if mine != parameter:
                    return False
                case Variable(name):
                    free = name not in bound and mine is not None  # null matches no variable
                    if not (mine == parameter or free) or met.setdefault(name, mine) != mine:
                        return False
        return True

    def _is_table(self, c: model.Template) -> bool:
        return any(self.types[above].key for above in self.types.lineage(c.type))

    def _may_be_at_start(self, c: Composite) -> bool:
        """May it signal at its own start? Rows of a table do."""
        match c:
            case model.Template():
                return self._is_table(c)
            case model.Timer():
                return False
            case model.NullEvent():
                return True
            case model.Sequence(left, right, probability):
                return probability is not None or (self._may_be_at_start(left) and self._may_be_at_start(right))
            case model.Without(left):
                return self._may_be_at_start(left)
            case _:
                return any(map(self._may_be_at_start, model.inside(c)))

    # -- blocks -------------------------------------------------------------------------------------------------

    def _aggregate(self, c: model.Aggregate, function: str, inner: MaybeWay) -> MaybeWay:
        if inner is None:
            return None
        if function not in ("first", "once") and self._never_ends(c.of):
            self._say(c, f"it can never signal: `{function}` is told at the end, and what it is over has none")
            return None
        return replace(inner, bound=inner.bound | {function})

    def _block(self, c: model.Block, way: Way) -> MaybeWay:
        ways = [self.after(queue.of, way) for queue in c.queues]
        lists: list[Statement] = []
        for queue, inner in zip(c.queues, ways, strict=True):
            running = (*queue.event, *queue.var)
            if _is_endless(queue.of) and not any(isinstance(one, model.Kill | model.Accept) for one in _all(running)):
                self._say(c, "it may grow without bound: nothing is taken off its queue; use `kill` or `accept`")
            lists += running if inner is not None else ()
            lists += () if self._never_ends(queue.of) else queue.end
        if all(inner is None for inner in ways):
            return None
        if not any(isinstance(one, model.Accept) for one in _all(lists)):
            self._say(c, "it can never signal: no `accept` is among the statements of this block that may run")
            return None
        written = {
            name for one in _all(s for q in c.queues for s in (*q.event, *q.var, *q.end)) for name in _field(one)
        }
        inside = frozenset().union(*(inner.bound for inner in ways if inner is not None))
        return Way(
            inside | written,
            tuple(fact for fact in way.facts if not written & tree.variables(fact)),
            {name: time for name, time in way.times.items() if name not in written},
            way.since,
        )

    def _never_ends(self, c: Composite) -> bool:
        """Is it certain of no time that all its signals are in?"""
        match c:
            case model.Whenever(model.Template()):
                return True
            case model.Whenever(of) | model.Sequence(of):
                return self._never_ends(of)
            case model.Either(left, right):
                return self._never_ends(left) or self._never_ends(right)
            case model.Without(left, right):
                return self._never_ends(left) and _is_at_start(right)
            case model.Aggregate(function, of):
                return function not in ("first", "once") and self._never_ends(of)
            case _:
                return False


# -- ways -------------------------------------------------------------------------------------------------------


def _later(way: Way, at: TimeTerm) -> Way:
    """The way once a timer has fired, which is after its start."""
    since = {moment: Lag(lag.least, True) for moment, lag in way.since.items()}
    return replace(way, since={**since, at.moment: Lag(at.after)})


def _either(one: MaybeWay, other: MaybeWay) -> MaybeWay:
    """What is so of both."""
    if one is None or other is None:
        return one or other
    return Way(
        one.bound | other.bound,
        tuple(fact for fact in one.facts if fact in other.facts),
        {name: time for name, time in one.times.items() if other.times.get(name) == time},
        {
            moment: min(lag, other.since[moment], key=lambda lag: (lag.least, lag.open))
            for moment, lag in one.since.items()
            if moment in other.since
        },
    )


def _time(operand: Operand, times: Mapping[str, TimeTerm], at: TimeTerm | None) -> TimeTerm | None:
    """A value as a time on the way, if it is one that is known."""
    match operand:
        case Constant(value):
            moment = moment_of(value)
            return None if moment is None else TimeTerm(_CLOCK, moment - EPOCH)
        case Variable(name):
            return times.get(name)
        case tree.Meta():
            return at
        case tree.Combine("+", Constant(seconds), of) | tree.Combine("+", of, Constant(seconds)):
            return _shifted(_time(of, times, at), seconds, 1) if not isinstance(of, Constant) else None
        case tree.Combine("-", of, Constant(seconds)):
            return _shifted(_time(of, times, at), seconds, -1) if not isinstance(of, Constant) else None
        case _:
            return None


def _shifted(time: TimeTerm | None, seconds: object, sign: int) -> TimeTerm | None:
    if time is None or not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return None
    try:
        return TimeTerm(time.moment, time.after + sign * timedelta(seconds=seconds))
    except OverflowError:
        return None


def _is_past(test: Condition, times: Mapping[str, TimeTerm], at: TimeTerm, since: Mapping[int, Lag]) -> bool:
    """Does a comparison ask that something comes before what it comes after?"""
    if not isinstance(test, tree.Compare | tree.InRange):
        return False
    return any(_is_impossible(one, times, at, since) for one in tree.comparisons(test))


def _is_impossible(one: tree.Compare, times: Mapping[str, TimeTerm], at: TimeTerm, since: Mapping[int, Lag]) -> bool:
    if not any(isinstance(part, tree.Meta) for side in (one.left, one.right) for part in tree.within(side)):
        return False  # numbers are no times by themselves
    left, right, op = _time(one.left, times, at), _time(one.right, times, at), one.op
    if left is None or right is None:
        return False
    if left.moment == right.moment:
        return compare(op, EPOCH + left.after, EPOCH + right.after) is not True
    if right.moment == at.moment:
        left, right, op = right, left, tree.MIRRORED[op]
    lag = since.get(right.moment)
    if left.moment != at.moment or lag is None:
        return False
    least = lag.least + left.after - at.after - right.after  # left is at least so much later than right
    return (op == "<" and least >= _ZERO) or (op in ("<=", "=") and (least > _ZERO or (least == _ZERO and lag.open)))


def _is_lasting(test: Condition) -> bool:
    """Is it true of later events too? Not what is said of this event's time, nor of groups and relations."""
    return all(not isinstance(part, tree.Meta) for part in tree.looked_at(test)) and all(
        isinstance(atom, tree.Compare | tree.InRange | tree.InSet | tree.TextMatch) for atom in tree.atoms(test)
    )


def _is_simple(operand: Operand) -> bool:
    return isinstance(operand, Variable | Constant | tree.Meta | tree.ClockPart)


def _as_attribute(operand: Operand) -> Operand:
    match operand:
        case Variable(name):
            return tree.Attribute(name)
        case tree.Meta():
            return tree.Attribute(_AT)
        case _:
            return operand


# -- shapes -----------------------------------------------------------------------------------------------------


def _place(c: Composite) -> str | None:
    """Where it stands in the text: where its first part does."""
    if isinstance(c, model.Template | model.Timer | model.Block | model.Aggregate):
        return c.place
    return next((place for part in model.inside(c) if (place := _place(part)) is not None), None)


def _is_at_start(c: Composite) -> bool:
    """Does it signal at its own start, and only there?"""
    match c:
        case model.NullEvent():
            return True
        case model.Sequence(left, right, None) | model.Either(left, right):
            return _is_at_start(left) and _is_at_start(right)
        case model.Without(of) | model.Whenever(of):
            return _is_at_start(of)
        case _:
            return False


def _is_endless(c: Composite) -> bool:
    match c:
        case model.Whenever(of):
            return not _is_at_start(of)
        case model.Sequence(left, right) | model.Either(left, right):
            return _is_endless(left) or _is_endless(right)
        case _:
            return False


def _ends_with(c: Composite) -> tuple[model.Template, ...] | None:
    """The templates whose events its signals have the times of, if there are only such."""
    match c:
        case model.Template():
            return (c,)
        case model.Sequence(_, of, None) | model.Without(of) | model.Whenever(of):
            return _ends_with(of)
        case model.Either(left, right):
            one, other = _ends_with(left), _ends_with(right)
            return None if one is None or other is None else (*one, *other)
        case _:
            return None


def _all(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Statements, and those inside them."""
    for one in statements:
        yield one
        match one:
            case model.Choose(branches):
                for _, body in branches:
                    yield from _all(body)
            case model.Loop(_, _, body):
                yield from _all(body)


def _field(statement: Statement) -> Iterator[str]:
    match statement:
        case model.Assign(tree.Apply(field), _):
            yield field[1:]
