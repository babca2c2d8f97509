"""Terms of the event policy: what they look at, and their truth for given values.

Guarantees: `Evaluator` gives what `decide.constraints` gives for the same values, with every relation looked up by key
and every group flattened once, so that its work does not grow with their size. Terms speak of columns of the log
(`event ...`) and of arguments of credentials (`client ...`), so that the same term of two entries is one term.
Leaves out: `_` inside an expression, which makes a term unknown whatever else it says (`settled` takes it out).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from headgate.decide.constraints import Scene
from headgate.decide.constraints import truth as reference_truth
from headgate.decide.constraints import value as reference_value
from headgate.decide.event_policy import policy_readings
from headgate.decide.reading import rows_read
from headgate.decide.truth import compared, every, opposite, some
from headgate.lang.acl import FUNCTIONS
from headgate.model.changes import Row
from headgate.model.conditions import (
    AllOf,
    AnyOf,
    Apply,
    Argument,
    Compare,
    Condition,
    Constant,
    InGroup,
    InRange,
    Meta,
    Not,
    Operand,
    Related,
    Starred,
    Variable,
    atoms,
    named,
    operands,
    rewrite_operand,
    variables,
    with_operands,
    within,
)
from headgate.model.state import State

FALSE, UNKNOWN, TRUE = 0, 1, 2
"""Truth as numbers: `and` is the least, `or` the greatest (D1)."""

EVENT: Final = "event "
CLIENT: Final = "client "
BLANK: Final = Variable("_")
NEVER_KNOWN: Final = Compare("=", Constant(None), Constant(None))
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


def put(expression: Operand, meaning: Mapping[str, Operand]) -> Operand:
    """An expression with what its variables stand for; `@time` is the time of the event."""

    def meant(operand: Operand) -> Operand:
        match operand:
            case Variable(name):
                return meaning.get(name, operand)
            case Meta("time"):
                return meaning.get("@time", operand)
            case _:
                return operand

    return rewrite_operand(expression, meant)


def settled(constraint: Condition) -> Condition:
    """A constraint with the same truth, in which no expression has `_` inside and no range ties events to clients."""
    match constraint:
        case Starred(arg):
            return settled(arg)
        case Not(arg):
            return Not(settled(arg))
        case AllOf(args) | AnyOf(args):
            return replace(constraint, args=tuple(map(settled, args)))
        case Related(_, args):
            return NEVER_KNOWN if any(_blank(arg) for arg in args if arg != BLANK) else constraint
        case leaf if any(map(_blank, operands(leaf))):
            return NEVER_KNOWN
        case InRange(of, low, high) if len(sides(constraint)) == 2:
            return AllOf((Compare(">=", of, low), Compare("<=", of, high)))
        case leaf:
            return leaf


def _blank(expression: Operand) -> bool:
    return BLANK in within(expression)


def sides(constraint: Condition) -> frozenset[str]:
    """What a constraint looks at: the event, the client, both or nothing."""
    return frozenset(EVENT if name.startswith(EVENT) else CLIENT for name in variables(constraint))


def looks_at(expression: Operand) -> frozenset[str]:
    """What an expression looks at."""
    return sides(Compare("=", expression, expression))


def conjuncts(constraint: Condition) -> Iterator[Condition]:
    """The parts that must all hold."""
    match constraint:
        case AllOf(args):
            for arg in args:
                yield from conjuncts(arg)
        case Not(Not(arg)):
            yield from conjuncts(arg)
        case Not(AnyOf(args)):
            for arg in args:
                yield from conjuncts(Not(arg))
        case _:
            yield constraint


def alternatives(constraint: Condition) -> tuple[Condition, ...]:
    """The parts of which one must hold."""
    match constraint:
        case AnyOf(args):
            return args
        case Not(AllOf(args)):
            return tuple(Not(arg) for arg in args)
        case _:
            return (constraint,)


def is_mixed(constraint: Condition) -> bool:
    """Does some leaf look at event and client together?"""
    return any(len(sides(atom)) == 2 for atom in atoms(constraint))


# -- facts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The groups and relations that some terms look at, at one version."""

    groups: Mapping[str, frozenset[str]]
    relations: Mapping[str, frozenset[Row]]


def facts_for(state: State, constraints: Iterable[Condition]) -> PolicyFacts:
    """What these constraints look at: of groups, with those inside them; a function may ask for any group."""
    names = frozenset().union(*map(named, constraints))
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

    def value(self, expression: Operand, bound: Bound) -> Argument:
        """The value of an expression; null where it has none."""
        match expression:
            case Constant(known):
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
                known_parts = with_operands(expression, lambda part: Constant(self.value(part, bound)))
                return reference_value(known_parts, {}, self._fresh())

    def truth(self, constraint: Condition, bound: Bound) -> bool | None:
        """Is a constraint true?"""
        match constraint:
            case Not(arg):
                return opposite(self.truth(arg, bound))
            case AllOf(args):
                return every(self.truth(arg, bound) for arg in args)
            case AnyOf(args):
                return some(self.truth(arg, bound) for arg in args)
            case Compare(op, left, right):
                return compared(op, self.value(left, bound), self.value(right, bound))
            case InGroup(of, group):
                who = self.value(of, bound)
                return who in self.inside(group) if isinstance(who, str) and group in self.facts.groups else None
            case Related(name, args) if name in self.facts.relations:
                return self._holds(name, args, bound)
            case Starred(arg):
                return self.truth(arg, bound)
            case leaf:
                known = with_operands(leaf, lambda operand: Constant(self.value(operand, bound)))
                return reference_truth(known, {}, self._fresh())

    def inside(self, group: str) -> frozenset[str]:
        """Every name in a group, directly or through other groups, whose names are in it too."""
        if group not in self._inside:
            names: set[str] = set()
            waiting = [group]
            while waiting:
                fresh = self.facts.groups.get(waiting.pop(), frozenset()) - names
                names |= fresh
                waiting += [one for one in fresh if one in self.facts.groups]
            self._inside[group] = frozenset(names)
        return self._inside[group]

    def projected(self, relation: str, arity: int, places: tuple[int, ...]) -> frozenset[Any]:
        """What stands at some places of the rows of a relation."""
        key = relation, arity, places
        if key not in self._projected:
            rows = (row for row in self.facts.relations[relation] if len(row) == arity)
            self._projected[key] = frozenset(tuple(same_key(row[at]) for at in places) for row in rows)
        return self._projected[key]

    def _holds(self, relation: str, args: tuple[Operand, ...], bound: Bound) -> bool | None:
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
            results: dict[Any, list[Argument]] = {}
            for row in self.facts.relations[relation]:
                if len(row) == arguments + 1:
                    results.setdefault(tuple(map(same_key, row[:-1])), []).append(row[-1])
            self._functions[key] = results
        return self._functions[key]

    def _fresh(self) -> Scene:
        """A scene whose work is counted anew."""
        return Scene(self._scene.state)
