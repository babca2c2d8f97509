"""Is a constraint of a rolefile or an event policy true, and for which values of its variables? (OASIS 3.2.4, 7.3)

Guarantees: `truth` is total: three-valued as everywhere (D1), a variable without a value is unknown, and so is what
cannot be compared or worked out. `solutions` are exactly the bindings under which a constraint is true, each found by
binding variables from left to right: by `x = e`, by a row of a relation, by a membership. Work is counted.
Leaves out: the stars, which mean nothing here (`roles.records.formula`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol, TypeAlias

from headgate.decide.reading import Readings, kept_by_identity, rows_read
from headgate.decide.rolebook import alike, fit, unify
from headgate.decide.truth import Unbound, evaluate, evaluate_operand, is_member
from headgate.lang.acl import FUNCTIONS
from headgate.model import expressions as tree
from headgate.model.changes import Row
from headgate.model.errors import RoleDenied
from headgate.model.expressions import (
    Argument,
    Condition,
    Constant,
    Operand,
    RoleRef,
    Term,
    Variable,
    variables,
    variables_of,
)
from headgate.model.limits import MAX_ENTRY_STEPS
from headgate.model.roles import Membership, Service
from headgate.model.state import State
from headgate.model.values import INT_MAX, INT_MIN

Bindings: TypeAlias = Mapping[str, Argument]
"""What variables mean. One that means null is unknown in every comparison."""

RoleFunction: TypeAlias = Callable[..., object]
"""A function of a service, given its arguments; a monitored one is given what is known before them."""


@dataclass(frozen=True, slots=True)
class MonitorView:
    """What a monitored function may look at: groups and relations, and nothing else."""

    _state: State

    def members(self, group: str) -> frozenset[str]:
        """Everyone in a group, directly or through other groups."""
        return self._state.members_of(group)

    def rows(self, relation: str) -> frozenset[tuple[object, ...]]:
        """The tuples of a relation."""
        return self._state.relations.get(relation, frozenset())


def is_monitored(function: RoleFunction) -> bool:
    """May a star stand on what a function says? Then it is asked again whenever a group or relation changes.

    Such a function says so by an attribute `monitored`, and is given what is known before its arguments.
    """
    return getattr(function, "monitored", False) is True


class Budget:
    """How many more things may be looked at; None for as many as there are."""

    __slots__ = ("left",)

    def __init__(self, left: int | None = None) -> None:
        self.left = left

    def spend(self, count: int = 1) -> None:
        """Look at so many more things."""
        if self.left is None:
            return
        self.left -= count
        if self.left < 0:
            raise RoleDenied(
                f"the request takes more than MAX_ENTRY_STEPS ({MAX_ENTRY_STEPS}) steps",
                failure="credentials",
                remedy="show fewer credentials, or name the arguments you want",
            )


class Members(Protocol):
    """Who holds a role of a service: all, or those who have an argument in a place."""

    def __call__(
        self, place: Service, role: str, having: tuple[int, Argument] | None = None, /
    ) -> Iterable[Membership]:
        """The memberships that are true."""


def _nobody(_place: Service, _role: str, _having: tuple[int, Argument] | None = None, /) -> Iterable[Membership]:
    return ()


@dataclass(frozen=True, slots=True)
class Scene:
    """What a constraint may look at: the state, the request, and who holds the roles of the service."""

    state: State
    service: str = ""
    instance: str = ""
    client: str | None = None
    now: datetime | None = None
    origin: str | None = None
    functions: Mapping[str, RoleFunction] = field(default_factory=dict)
    members: Members = _nobody
    """The memberships of a role that are true, in the order in which they began."""
    roles: frozenset[str] = frozenset()
    """The names that are roles of the service."""
    budget: Budget = field(default_factory=Budget)
    answers: dict[tuple[object, ...], object] = field(default_factory=dict)
    """What functions have said within one request."""
    readings: Readings = field(default_factory=dict)
    """How columns of relations are read that constraints compare with times."""

    def rows(self, relation: str) -> frozenset[Row] | None:
        """The rows of a relation, times read as what they are compared with; None if there is none of that name."""
        stored = self.state.relations.get(relation)
        return stored if stored is None or not self.readings else rows_read(relation, stored, self.readings)

    def asked(self, name: str) -> Argument:
        """What holds of the request."""
        return {"instance": self.instance, "time": self.now, "origin": self.origin}.get(name, self.client)

    def own(self, ref: RoleRef) -> RoleRef:
        """A reference as it is meant at this service: with its service and instance."""
        service = ref.service if ref.service is not None else self.service
        instance = ref.instance
        if instance is None:
            instance = Constant(self.instance if service == self.service else "")
        args = tuple(self.settled(arg) for arg in ref.args)
        return replace(ref, service=service, instance=self.settled(instance), args=args)

    def settled(self, term: Term) -> Term:
        """A term with `@names` replaced by what they are."""
        return Constant(self.asked(term.name)) if isinstance(term, tree.Meta) else term


_UNBOUND: Final = Unbound()


# -- values and truth -----------------------------------------------------------------------------------------


def value(expression: Operand, bound: Bindings, scene: Scene) -> Argument:
    """The value of an expression; null where it has none."""
    try:
        return evaluate_operand(expression, _Bound(bound, scene))
    except Unbound:
        return None


def truth(constraint: Condition, bound: Bindings, scene: Scene) -> bool | None:
    """Is a constraint true of these values?"""
    scene.budget.spend(sum(1 for _ in tree.atoms(constraint)))
    return evaluate(constraint, _Bound(bound, scene))


@dataclass(frozen=True, slots=True)
class _Bound:
    """What the leaves of a constraint say, given what variables mean."""

    bound: Bindings
    scene: Scene

    def leaf(self, operand: Operand) -> Argument:
        match operand:
            case Variable(name):
                if name not in self.bound:
                    raise _UNBOUND
                return self.bound[name]
            case tree.Meta(name):
                return self.scene.asked(name)
            case tree.Apply(function, args):
                answers = _applied(function, tuple(evaluate_operand(arg, self) for arg in args), self.scene)
                return answers[0] if len(answers) == 1 else None  # of several values none is the value
            case tree.Count(of):
                return sum(1 for _ in _memberships(self.scene.own(of), self.bound, self.scene))
            case _:
                raise tree.foreign(operand)

    def is_member(self, who: str, group: str) -> bool | None:
        state = self.scene.state
        return is_member(state, who, group) if group in state.groups else None

    def holds(self, atom: tree.Related | tree.Predicate) -> bool | None:
        if isinstance(atom, tree.Predicate):
            raise tree.foreign(atom)
        return _holds(atom.name, atom.args, self.bound, self.scene)


def _applied(function: str, args: tuple[Argument, ...], scene: Scene) -> list[Argument]:
    """The values of a function: those of the rows of a relation that begin with the arguments, or what it returns."""
    if any(arg is None for arg in args):
        return []
    scene.budget.spend()
    rows = scene.rows(function)
    if rows is not None:
        fitting = [row[-1] for row in _by_beginning(rows).get(args, ()) if all(map(alike, row[:-1], args))]
        scene.budget.spend(len(fitting))
        return sorted(fitting, key=repr)
    called = _called(function, args, scene)
    return [] if called is None else [called]


@kept_by_identity
def _by_beginning(rows: frozenset[Row]) -> Mapping[tuple[Argument, ...], list[Row]]:
    """The rows of a relation by all but their last column."""
    index: dict[tuple[Argument, ...], list[Row]] = {}
    for row in rows:
        index.setdefault(row[:-1], []).append(row)
    return index


@kept_by_identity
def _in_order(rows: frozenset[Row]) -> tuple[Row, ...]:
    """The rows of a relation in an order that is always the same."""
    return tuple(sorted(rows, key=repr))


def _called(function: str, args: tuple[Argument, ...], scene: Scene) -> Argument:
    """What a function returns; null if there is none, it fails, or it returns what is no argument."""
    made = FUNCTIONS.get(function)
    try:
        if made is not None:
            return made(scene.state, *args)
        registered = scene.functions.get(function)
        if registered is None:
            return None
        asked = (function, *((type(arg), arg) for arg in args))
        if asked not in scene.answers:  # within one request a function is asked once: it may not say twice what it said
            scene.answers[asked] = (
                registered(MonitorView(scene.state), *args) if is_monitored(registered) else registered(*args)
            )
        answer = scene.answers[asked]
    except Exception:  # noqa: BLE001 - a service's own code may fail in any way, and that is unknown
        return None
    if isinstance(answer, set | frozenset) and all(isinstance(one, str) for one in answer):
        return frozenset(answer)
    if isinstance(answer, float) and not math.isfinite(answer):
        return None
    if isinstance(answer, int) and not INT_MIN <= answer <= INT_MAX:
        return None
    return answer if isinstance(answer, bool | int | float | str | bytes | datetime) else None


def _holds(name: str, args: tuple[Operand, ...], bound: Bindings, scene: Scene) -> bool | None:
    """Is a tuple in a relation, a role held, or a function true? `_` stands for any value."""
    if name not in scene.roles and name not in scene.state.relations:
        given = [value(arg, bound, scene) for arg in args]
        answer = None if None in given else _called(name, tuple(given), scene)
        return answer if isinstance(answer, bool) else None
    wanted: list[Term] = []
    for arg in args:
        if arg == Variable("_"):
            wanted.append(Variable("_"))
            continue
        known = value(arg, bound, scene)
        if known is None:
            return None
        wanted.append(Constant(known))
    return any(True for _ in _tuples(name, tuple(wanted), {}, scene))


def _is_in(terms: tuple[Term, ...], rows: frozenset[Row], scene: Scene) -> bool:
    """Does any row fit?"""
    if not terms:
        return bool(rows)
    exact = tuple(term.value for term in terms if isinstance(term, Constant))
    if len(exact) == len(terms):
        if exact not in rows:
            return False
        if not any(isinstance(one, int) for one in exact):  # what is equal is alike, but `1` and `true`
            return True
    for row in rows:
        scene.budget.spend()
        if len(row) == len(terms) and unify(zip(terms, row, strict=True), {}) is not None:
            return True
    return False


def _tuples(name: str, terms: tuple[Term, ...], bound: Bindings, scene: Scene) -> Iterator[Bindings]:
    """What variables mean if a tuple is in a relation or a role is held, for each that fits."""
    if name in scene.roles:
        yield from _memberships(scene.own(RoleRef(name, terms)), bound, scene)
        return
    rows = scene.rows(name) or frozenset()
    if not any(isinstance(term, Variable) and term.name != "_" for term in terms):
        if _is_in(terms, rows, scene):
            yield bound
        return
    for row in _in_order(rows):
        scene.budget.spend()
        made = unify(zip(terms, row, strict=True), bound) if len(row) == len(terms) else None
        if made is not None:
            yield made


def _memberships(ref: RoleRef, bound: Bindings, scene: Scene) -> Iterator[Bindings]:
    instance = ref.instance.value if isinstance(ref.instance, Constant) else scene.instance
    for one in scene.members((str(ref.service), str(instance)), ref.role, _having(ref, bound)):
        scene.budget.spend()
        made = fit(ref, one, bound)
        if made is not None:
            yield made


def _having(ref: RoleRef, bound: Bindings) -> tuple[int, Argument] | None:
    """The first argument of a reference that is known, with its place."""
    for position, term in enumerate(ref.args):
        if isinstance(term, Constant):
            return position, term.value
        if isinstance(term, Variable) and term.name in bound:
            return position, bound[term.name]
    return None


# -- solutions ------------------------------------------------------------------------------------------------


def solutions(constraint: Condition, bound: Bindings, scene: Scene) -> Iterator[Bindings]:
    """Every way to give the variables values so that the constraint is true."""
    match constraint:
        case tree.Starred(arg):
            yield from solutions(arg, bound, scene)
        case tree.AllOf(args):
            yield from _all(args, bound, scene)
        case tree.AnyOf(args):
            for arg in args:
                yield from solutions(arg, bound, scene)
        case tree.Compare("=", Variable(name), right) if name not in bound and name != "_":
            yield from _bind(name, right, bound, scene)
        case tree.Compare("=", left, Variable(name)) if name not in bound and name != "_":
            yield from _bind(name, left, bound, scene)
        case tree.Related(name, args) if name in scene.roles or name in scene.state.relations:
            terms = tuple(_term(arg, bound, scene) for arg in args)
            if Constant(None) not in terms:
                yield from _tuples(name, terms, bound, scene)
        case _:
            if truth(constraint, bound, scene) is True:
                yield bound


def _all(args: tuple[Condition, ...], bound: Bindings, scene: Scene) -> Iterator[Bindings]:
    """Solve what has all its values first, then what can give some, from left to right; what counts, last.

    The variables of a count that nothing gives a value stand for anything, so it waits for those that get one.
    """
    if not args:
        yield bound
        return
    scene.budget.spend()
    names = bound.keys()
    at_once = [n for n, arg in enumerate(args) if tree.counted_variables(arg) <= names]
    chosen = next((n for n in at_once if variables(args[n]) <= names), None)
    if chosen is None:
        order = (*at_once, *range(len(args)))
        chosen = next((n for n in order if _after(args[n], frozenset(names), scene) is not None), None)
    if chosen is None:
        return  # some variable has no value, so this is not known to be true
    rest = args[:chosen] + args[chosen + 1 :]
    for made in solutions(args[chosen], bound, scene):
        yield from _all(rest, made, scene)


def _after(constraint: Condition, bound: frozenset[str], scene: Scene) -> frozenset[str] | None:
    """The variables that have values once a constraint is solved; None if it cannot be solved yet."""
    scene.budget.spend()
    if variables(constraint) <= bound:
        return bound
    match constraint:
        case tree.Starred(arg):
            return _after(arg, bound, scene)
        case tree.AllOf(args):
            return _after_all(args, bound, scene)
        case tree.AnyOf(args):
            found = [_after(arg, bound, scene) for arg in args]
            known = [one for one in found if one is not None]
            return frozenset.intersection(*known) if len(known) == len(found) else None
        case tree.Compare("=", left, right):
            for side, other in ((left, right), (right, left)):
                if isinstance(side, Variable) and side.name not in bound and side.name != "_":
                    return bound | {side.name} if variables_of(other) <= bound else None
            return None
        case tree.Related(name, args) if name in scene.roles or name in scene.state.relations:
            plain = all(isinstance(arg, Variable) or variables_of(arg) <= bound for arg in args)
            return bound | variables(constraint) if plain else None
        case _:
            return None


def _after_all(args: tuple[Condition, ...], bound: frozenset[str], scene: Scene) -> frozenset[str] | None:
    """Those after all of several, solved in whichever order can be."""
    while args:
        stuck = []
        for arg in args:
            made = _after(arg, bound, scene)
            if made is None:
                stuck.append(arg)
            else:
                bound = made
        if len(stuck) == len(args):
            return None
        args = tuple(stuck)
    return bound


def _bind(name: str, expression: Operand, bound: Bindings, scene: Scene) -> Iterator[Bindings]:
    if variables_of(expression) <= bound.keys():
        found = value(expression, bound, scene)
        if found is not None:
            yield {**bound, name: found}


def _term(arg: Operand, bound: Bindings, scene: Scene) -> Term:
    if isinstance(arg, Variable) and arg.name not in bound:
        return arg
    return Constant(value(arg, bound, scene))
