"""Terms of the event policy: what they look at, and their truth for given values.

Guarantees: `Evaluator` gives what `decide.constraints` gives for the same values, with every relation looked up by key
and every group flattened once, so that its work does not grow with their size. Terms speak of columns of the log
(`event ...`) and of arguments of credentials (`client ...`), so that the same term of two entries is one term.
Leaves out: `_` inside an expression, which makes a term unknown whatever else it says (`settled` takes it out).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, assert_never

from headgate.decide.acl import FUNCTIONS
from headgate.decide.constraint_names import named, variables
from headgate.decide.constraints import Scene, compared
from headgate.decide.constraints import truth as reference_truth
from headgate.decide.constraints import value as reference_value
from headgate.decide.event_policy import policy_readings
from headgate.decide.reading import rows_read
from headgate.model.changes import Row
from headgate.model.rolefiles import (
    Among,
    Apply,
    Argument,
    Asked,
    Between,
    Both,
    ClockOf,
    Combine,
    Compares,
    Constraint,
    Count,
    Either,
    Expression,
    Given,
    Holds,
    Leaf,
    Negated,
    OneOf,
    Starred,
    Tests,
    Variable,
)
from headgate.model.state import State

FALSE, UNKNOWN, TRUE = 0, 1, 2
"""Truth as numbers: `and` is the least, `or` the greatest (D1)."""

EVENT: Final = "event "
CLIENT: Final = "client "
BLANK: Final = Variable("_")
NEVER_KNOWN: Final = Compares("=", Given(None), Given(None))
NO_FAMILY, SET = 0, 6
_FAMILIES: Final[Mapping[type, int]] = {bool: 1, int: 2, float: 2, str: 3, bytes: 5, frozenset: SET}

Bound: TypeAlias = Mapping[str, Argument]


def code(truth: bool | None) -> int:
    """A truth as a number."""
    return UNKNOWN if truth is None else TRUE if truth else FALSE


def family(value: Argument) -> int:
    """What a value may be compared with: numbers with numbers, all else with its own kind; 0 for null."""
    return NO_FAMILY if value is None else _FAMILIES.get(type(value), 4)


def same_key(value: Argument) -> tuple[int, Argument]:
    """Equal exactly for values that `alike` takes for the same."""
    return family(value), value


def exact_key(value: Any) -> Any:
    """Equal exactly for values that nothing tells apart."""
    return tuple(map(exact_key, value)) if type(value) is tuple else (type(value), value)


# -- shape --------------------------------------------------------------------------------------------------------


def operands(of: Expression | Leaf) -> tuple[Expression, ...]:
    """What an expression or a leaf is made of."""
    match of:
        case Variable() | Given() | Asked() | Count():
            return ()
        case Apply(_, args) | Holds(_, args):
            return args
        case Combine(_, left, right) | Compares(_, left, right) | Tests(_, left, right):
            return left, right
        case ClockOf(_, inner) | Among(inner, _) | OneOf(inner, _):
            return (inner,)
        case Between(inner, low, high):
            return inner, low, high
        case _:
            assert_never(of)


def with_operands(of: Any, new: tuple[Expression, ...]) -> Any:
    """The same expression or leaf, made of something else."""
    match of:
        case Apply() | Holds():
            return replace(of, args=new)
        case Combine() | Compares() | Tests():
            return replace(of, left=new[0], right=new[1])
        case ClockOf() | Among() | OneOf():
            return replace(of, of=new[0])
        case Between():
            return replace(of, of=new[0], low=new[1], high=new[2])
        case _:
            return of


def rewritten(constraint: Constraint, change: Callable[[Expression], Expression]) -> Constraint:
    """A constraint in which every expression that stands in a leaf is changed."""
    match constraint:
        case Starred(arg) | Negated(arg):
            return replace(constraint, arg=rewritten(arg, change))
        case Both(args) | Either(args):
            return replace(constraint, args=tuple(rewritten(arg, change) for arg in args))
        case leaf:
            made: Leaf = with_operands(leaf, tuple(map(change, operands(leaf))))
            return made


def put(expression: Expression, meaning: Mapping[str, Expression]) -> Expression:
    """An expression with what its variables stand for; `@time` is the time of the event."""
    match expression:
        case Variable(name):
            return meaning.get(name, expression)
        case Asked("time"):
            return meaning.get("@time", expression)
        case _:
            made: Expression = with_operands(expression, tuple(put(one, meaning) for one in operands(expression)))
            return made


def settled(constraint: Constraint) -> Constraint:
    """A constraint with the same truth, in which no expression has `_` inside and no range ties events to clients."""
    match constraint:
        case Starred(arg):
            return settled(arg)
        case Negated(arg):
            return Negated(settled(arg))
        case Both(args) | Either(args):
            return replace(constraint, args=tuple(map(settled, args)))
        case Holds(_, args):
            return NEVER_KNOWN if any(_blank(arg) for arg in args if arg != BLANK) else constraint
        case leaf if any(map(_blank, operands(leaf))):
            return NEVER_KNOWN
        case Between(of, low, high) if len(sides(constraint)) == 2:
            return Both((Compares(">=", of, low), Compares("<=", of, high)))
        case leaf:
            return leaf


def _blank(expression: Expression) -> bool:
    return expression == BLANK or any(map(_blank, operands(expression)))


def sides(constraint: Constraint) -> frozenset[str]:
    """What a constraint looks at: the event, the client, both or nothing."""
    return frozenset(EVENT if name.startswith(EVENT) else CLIENT for name in variables(constraint))


def looks_at(expression: Expression) -> frozenset[str]:
    """What an expression looks at."""
    return sides(Compares("=", expression, expression))


def conjuncts(constraint: Constraint) -> Iterator[Constraint]:
    """The parts that must all hold."""
    match constraint:
        case Both(args):
            for arg in args:
                yield from conjuncts(arg)
        case Negated(Negated(arg)):
            yield from conjuncts(arg)
        case Negated(Either(args)):
            for arg in args:
                yield from conjuncts(Negated(arg))
        case _:
            yield constraint


def alternatives(constraint: Constraint) -> tuple[Constraint, ...]:
    """The parts of which one must hold."""
    match constraint:
        case Either(args):
            return args
        case Negated(Both(args)):
            return tuple(Negated(arg) for arg in args)
        case _:
            return (constraint,)


def is_mixed(constraint: Constraint) -> bool:
    """Does some leaf look at event and client together?"""
    match constraint:
        case Starred(arg) | Negated(arg):
            return is_mixed(arg)
        case Both(args) | Either(args):
            return any(map(is_mixed, args))
        case leaf:
            return len(sides(leaf)) == 2


# -- facts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The groups and relations that some terms look at, at one version."""

    groups: Mapping[str, frozenset[str]]
    relations: Mapping[str, frozenset[Row]]


def facts_for(state: State, said: Iterable[Constraint]) -> PolicyFacts:
    """What these constraints look at: of groups, with those inside them; a function may ask for any group."""
    names = frozenset().union(*map(named, said))
    if names & FUNCTIONS.keys():
        groups = dict(state.groups)
    else:
        groups = {}
        waiting = [name for name in names if name in state.groups]
        while waiting:
            group = waiting.pop()
            if group not in groups:
                groups[group] = state.groups[group]
                waiting += [one for one in groups[group] if one in state.groups]
    readings = policy_readings(state)
    rows = {name: rows_read(name, state.relations[name], readings) for name in names if name in state.relations}
    return PolicyFacts(groups, rows)


# -- truth --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Evaluator:
    """Values and truth of terms, where variables have these values."""

    facts: PolicyFacts
    _scene: Scene = field(init=False)
    _inside: dict[str, frozenset[str]] = field(default_factory=dict)
    _functions: dict[tuple[str, int], dict[Any, list[Argument]]] = field(default_factory=dict)
    _projected: dict[tuple[str, int, tuple[int, ...]], frozenset[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._scene = Scene(State(groups=self.facts.groups, relations=self.facts.relations))

    def value(self, expression: Expression, bound: Bound) -> Argument:
        """The value of an expression; null where it has none."""
        match expression:
            case Given(known):
                return known
            case Variable(name):
                return bound.get(name)
            case Apply(function, args) if function in self.facts.relations:
                given = tuple(self.value(arg, bound) for arg in args)
                if any(one is None for one in given):
                    return None
                found = self._function(function, len(args)).get(tuple(map(same_key, given)), ())
                return found[0] if len(found) == 1 else None  # of several values none is the value
            case _:
                known_parts = tuple(Given(self.value(one, bound)) for one in operands(expression))
                return reference_value(with_operands(expression, known_parts), {}, self._fresh())

    def truth(self, constraint: Constraint, bound: Bound) -> bool | None:
        """Is a constraint true?"""
        match constraint:
            case Negated(arg):
                inner = self.truth(arg, bound)
                return None if inner is None else not inner
            case Both(args):
                answers = [self.truth(arg, bound) for arg in args]
                return False if False in answers else None if None in answers else True
            case Either(args):
                answers = [self.truth(arg, bound) for arg in args]
                return True if True in answers else None if None in answers else False
            case Compares(op, left, right):
                return compared(op, self.value(left, bound), self.value(right, bound))
            case Among(of, group):
                who = self.value(of, bound)
                return who in self.inside(group) if isinstance(who, str) and group in self.facts.groups else None
            case Holds(name, args) if name in self.facts.relations:
                return self._holds(name, args, bound)
            case Starred(arg):
                return self.truth(arg, bound)
            case leaf:
                known = tuple(Given(self.value(one, bound)) for one in operands(leaf))
                return reference_truth(with_operands(leaf, known), {}, self._fresh())

    def inside(self, group: str) -> frozenset[str]:
        """Every name in a group, directly or through other groups, whose names are in it too."""
        if group not in self._inside:
            found: set[str] = set()
            waiting = [group]
            while waiting:
                fresh = self.facts.groups.get(waiting.pop(), frozenset()) - found
                found |= fresh
                waiting += [one for one in fresh if one in self.facts.groups]
            self._inside[group] = frozenset(found)
        return self._inside[group]

    def projected(self, relation: str, arity: int, places: tuple[int, ...]) -> frozenset[Any]:
        """What stands at some places of the rows of a relation."""
        key = relation, arity, places
        if key not in self._projected:
            rows = (row for row in self.facts.relations[relation] if len(row) == arity)
            self._projected[key] = frozenset(tuple(same_key(row[at]) for at in places) for row in rows)
        return self._projected[key]

    def _holds(self, relation: str, args: tuple[Expression, ...], bound: Bound) -> bool | None:
        if not args:
            return bool(self.facts.relations[relation])
        places = tuple(at for at, arg in enumerate(args) if arg != BLANK)
        wanted = tuple(self.value(args[at], bound) for at in places)
        if any(one is None for one in wanted):
            return None
        return tuple(map(same_key, wanted)) in self.projected(relation, len(args), places)

    def _function(self, relation: str, arguments: int) -> Mapping[Any, list[Argument]]:
        """The rows of a relation as a function: its last column by the others."""
        key = relation, arguments
        if key not in self._functions:
            found: dict[Any, list[Argument]] = {}
            for row in self.facts.relations[relation]:
                if len(row) == arguments + 1:
                    found.setdefault(tuple(map(same_key, row[:-1])), []).append(row[-1])
            self._functions[key] = found
        return self._functions[key]

    def _fresh(self) -> Scene:
        """A scene whose work is counted anew."""
        return Scene(self._scene.state)
