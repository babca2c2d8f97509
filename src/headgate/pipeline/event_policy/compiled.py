"""The event policy, cut into what hangs on the event, on the client, and on both (OASIS 7.4).

Guarantees: an entry counts for an event and a client exactly if its event terms count for the event, and one of the
client's choices of credentials counts, with which the mixed terms do. A positive entry counts where it is true, a
negative one unless it is false; so all but the inside of a mixed term is a bit. Terms speak of columns of the log
(`event ...`) and of arguments of credentials (`client ...`), so that the same term of two entries is one term.
`Evaluator` gives what `decide.constraints` gives for the same values, with every relation looked up by key and every
group flattened once, so that its work does not grow with their size.
Leaves out: clients (`clients`), events (`events`), pairs of event and client (`stages`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.decide.constraints import Scene
from headgate.decide.constraints import truth as reference_truth
from headgate.decide.constraints import value as reference_value
from headgate.decide.event_policy import parameters, policy_readings
from headgate.decide.reading import rows_read
from headgate.decide.truth import evaluate, evaluate_operand
from headgate.lang.acl import FUNCTIONS
from headgate.model import expressions as tree
from headgate.model.changes import Row
from headgate.model.expressions import Argument, Atom, Condition, Operand, RoleRef, Variable
from headgate.model.rolefiles import EventEntry
from headgate.model.state import State
from headgate.model.values import Kind
from headgate.pipeline.log.codec import TIME, AttributeSlot, Ints, Numbered, Words, mask_of, places

FALSE, UNKNOWN, TRUE = 0, 1, 2
"""Truth as numbers: `and` is the least, `or` the greatest (D1)."""

EVENT: Final = "event "
CLIENT: Final = "client "
BLANK: Final = Variable("_")
NEVER_KNOWN: Final = tree.Compare("=", tree.Constant(None), tree.Constant(None))
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
            case tree.Meta("time"):
                return meaning.get("@time", operand)
            case _:
                return operand

    return tree.rewrite_operand(expression, meant)


def settled(constraint: Condition) -> Condition:
    """A constraint with the same truth, in which no expression has `_` inside and no range ties events to clients."""
    match constraint:
        case tree.Starred(arg):
            return settled(arg)
        case tree.Not(arg):
            return tree.Not(settled(arg))
        case tree.AllOf(args) | tree.AnyOf(args):
            return replace(constraint, args=tuple(map(settled, args)))
        case tree.Related(_, args):
            return NEVER_KNOWN if any(_blank(arg) for arg in args if arg != BLANK) else constraint
        case leaf if any(map(_blank, tree.operands(leaf))):
            return NEVER_KNOWN
        case tree.InRange(of, low, high) if len(sides(constraint)) == 2:
            return tree.AllOf((tree.Compare(">=", of, low), tree.Compare("<=", of, high)))
        case leaf:
            return leaf


def _blank(expression: Operand) -> bool:
    return BLANK in tree.within(expression)


def sides(constraint: Condition) -> frozenset[str]:
    """What a constraint looks at: the event, the client, both or nothing."""
    return frozenset(EVENT if name.startswith(EVENT) else CLIENT for name in tree.variables(constraint))


def looks_at(expression: Operand) -> frozenset[str]:
    """What an expression looks at."""
    return sides(tree.Compare("=", expression, expression))


def conjuncts(constraint: Condition) -> Iterator[Condition]:
    """The parts that must all hold."""
    match constraint:
        case tree.AllOf(args):
            for arg in args:
                yield from conjuncts(arg)
        case tree.Not(tree.Not(arg)):
            yield from conjuncts(arg)
        case tree.Not(tree.AnyOf(args)):
            for arg in args:
                yield from conjuncts(tree.Not(arg))
        case _:
            yield constraint


def alternatives(constraint: Condition) -> tuple[Condition, ...]:
    """The parts of which one must hold."""
    match constraint:
        case tree.AnyOf(args):
            return args
        case tree.Not(tree.AllOf(args)):
            return tuple(tree.Not(arg) for arg in args)
        case _:
            return (constraint,)


def is_mixed(constraint: Condition) -> bool:
    """Does some leaf look at event and client together?"""
    return any(len(sides(atom)) == 2 for atom in tree.atoms(constraint))


# -- facts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The groups and relations that some terms look at, at one version."""

    groups: Mapping[str, frozenset[str]]
    relations: Mapping[str, frozenset[Row]]


def facts_for(state: State, constraints: Iterable[Condition]) -> PolicyFacts:
    """What these constraints look at: of groups, with those inside them; a function may ask for any group."""
    names = frozenset().union(*map(tree.named, constraints))
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
    _state: State = field(init=False)
    _inside: dict[str, frozenset[str]] = field(default_factory=dict)
    _functions: dict[tuple[str, int], dict[Any, list[Argument]]] = field(default_factory=dict)
    _projected: dict[tuple[str, int, tuple[int, ...]], frozenset[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._state = State(groups=self.facts.groups, relations=self.facts.relations)

    def value(self, expression: Operand, bound: Bound) -> Argument:
        """The value of an expression; null where it has none."""
        return evaluate_operand(expression, _TermLeaves(self, bound))

    def truth(self, constraint: Condition, bound: Bound) -> bool | None:
        """Is a constraint true?"""
        return evaluate(constraint, _TermLeaves(self, bound))

    def inside(self, group: str) -> frozenset[str]:
        """Everyone in a group, directly or through other groups."""
        if group not in self._inside:
            self._inside[group] = self._state.members_of(group)
        return self._inside[group]

    def projected(self, relation: str, arity: int, places: tuple[int, ...]) -> frozenset[Any]:
        """What stands at some places of the rows of a relation."""
        key = relation, arity, places
        if key not in self._projected:
            rows = (row for row in self.facts.relations[relation] if len(row) == arity)
            self._projected[key] = frozenset(tuple(same_key(row[at]) for at in places) for row in rows)
        return self._projected[key]

    def function(self, relation: str, arguments: int) -> Mapping[Any, list[Argument]]:
        """The rows of a relation as a function: its last column by the others."""
        key = relation, arguments
        if key not in self._functions:
            results: dict[Any, list[Argument]] = {}
            for row in self.facts.relations[relation]:
                if len(row) == arguments + 1:
                    results.setdefault(tuple(map(same_key, row[:-1])), []).append(row[-1])
            self._functions[key] = results
        return self._functions[key]

    def scene(self) -> Scene:
        """What the functions that every domain has may look at; their work is counted anew."""
        return Scene(self._state)


@dataclass(frozen=True, slots=True)
class _TermLeaves:
    """What the leaves of a term say: an index answers in place of the rows of a relation."""

    known: Evaluator
    bound: Bound

    def leaf(self, operand: Operand) -> Argument:
        match operand:
            case Variable(name):
                return self.bound.get(name)
            case tree.Apply(function, args) if function in self.known.facts.relations:
                given = tuple(evaluate_operand(arg, self) for arg in args)
                if any(one is None for one in given):
                    return None
                found = self.known.function(function, len(args)).get(tuple(map(same_key, given)), ())
                return found[0] if len(found) == 1 else None  # of several values none is the value
            case _:
                return reference_value(tree.with_operands(operand, self._constant), {}, self.known.scene())

    def is_member(self, who: str, group: str) -> bool | None:
        return who in self.known.inside(group) if group in self.known.facts.groups else None

    def holds(self, atom: tree.Related | tree.Predicate) -> bool | None:
        if atom.name not in self.known.facts.relations:
            return reference_truth(tree.with_operands(atom, self._constant), {}, self.known.scene())
        if not atom.args:
            return bool(self.known.facts.relations[atom.name])
        places = tuple(at for at, arg in enumerate(atom.args) if arg != BLANK)
        wanted = tuple(evaluate_operand(atom.args[at], self) for at in places)
        if any(one is None for one in wanted):
            return None
        return tuple(map(same_key, wanted)) in self.known.projected(atom.name, len(atom.args), places)

    def _constant(self, operand: Operand) -> tree.Constant:
        return tree.Constant(evaluate_operand(operand, self))


Holder: TypeAlias = tuple[str, str | None, tuple[str, ...] | None]
"""A principal, where it was when it subscribed, and the memberships that it counts for event policy."""

_NOW = Variable(f"{EVENT}@time")


# -- formulas -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OfClient:
    """A part that looks at the client alone: a column of truths over the choices."""

    column: int


@dataclass(frozen=True, slots=True)
class OfBoth:
    """A mixed term: values of the event (`left n`) beside those of a choice (`right n`, a column of numbers)."""

    leaf: Atom
    lefts: tuple[Operand, ...]
    column: int


Formula: TypeAlias = Condition | OfClient | OfBoth
"""A condition; beside atoms that look at the event alone, these two stand as atoms in it."""


# -- what a worker gets -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of credentials of every client class for entries that ask for the same ones.

    `rights[c][columns[c][n]]` are the values that mixed terms with column `c` look at, for choice `n`.
    """

    starts: Ints
    columns: list[Ints]
    truths: list[npt.NDArray[np.int8]]
    rights: list[list[tuple[Argument, ...]]]


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """An entry: for which type, what must hold of the event, and beside which choices the mixed part is put."""

    type: int
    negative: bool
    event: Condition
    part: int
    mixed: Any
    """A condition that may have `OfClient` and `OfBoth` as atoms."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An event policy as rows: entries in order, one bit each, and the classes of clients."""

    entries: tuple[PolicyEntry, ...]
    columns: Mapping[str, AttributeSlot]
    takes: npt.NDArray[np.bool_]
    """For each type and entry: is an event of the type taken in?"""
    attributes: Words
    """For each entry the attributes of its type."""
    classes: Words
    """For each class of clients the entries for which some choice of its credentials counts."""
    parts: list[Choices]


# -- compiling ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CredentialPart:
    """Entries that ask for the same credentials in the same way share their choices."""

    refs: tuple[RoleRef, ...]
    conditions: tuple[Condition, ...]
    negative: bool
    columns: Numbered[tuple[Operand, ...]] = field(default_factory=Numbered)
    truths: Numbered[Condition] = field(default_factory=Numbered)

    @property
    def used(self) -> frozenset[str]:
        """The variables on which anything hangs, but for those that only tie credentials together."""
        said = (*self.conditions, *self.truths, *(tree.Related("", one) for one in self.columns))
        names = [arg.name for ref in self.refs for arg in ref.args if isinstance(arg, Variable)]
        found = frozenset().union(*(tree.variables(one) for one in said))
        return found | {name for name in names if names.count(name) > 1}


class Compiled:
    """The entries of a policy at a state, without its clients."""

    def __init__(self, state: State, words: int) -> None:
        self.columns = {_NOW.name: AttributeSlot(TIME, TIME.number, Kind.TIMESTAMP)}
        self.parts: Numbered[CredentialPart] = Numbered()
        names = list(state.types.every)
        numbers = {name: at for at, name in enumerate(names)}
        self.entries = tuple(
            one for entry in state.roles.policy.entries for one in self._variants(state, entry, numbers)
        )
        lines = [state.types.lineage(name) if name in state.types else () for name in names]
        takes = [[names[one.type] in line for one in self.entries] for line in lines]
        self.takes = np.array(takes, np.bool_).reshape(len(names), len(self.entries))
        masks = []
        for variant in self.entries:
            bits = state.types.bits(names[variant.type])
            masks.append(mask_of([bits[name] for name in state.types.attributes(names[variant.type])], words))
        self.attributes = np.array(masks, np.uint64).reshape(len(self.entries), words)

    def _variants(self, state: State, entry: EventEntry, numbers: Mapping[str, int]) -> Iterator[PolicyEntry]:
        """An entry, or entries one after another that say the same, of which more can be told by bits alone."""
        known, conditions = self._template(state, entry)
        refs, meaning = _credentials(entry.credentials, known, conditions)
        constraint = tree.rewrite_operands(entry.constraint, lambda one: put(one, {**known, **meaning, "@time": _NOW}))
        parts = [one for each in (*conditions, constraint) for one in conjuncts(settled(each))]
        for mine in _spread(parts):
            yield self._entry(refs, mine, entry.negative, numbers[entry.event.type])

    def _entry(self, refs: tuple[RoleRef, ...], parts: list[Condition], negative: bool, number: int) -> PolicyEntry:
        apart = {which: [one for one in parts if sides(one) == which] for which in map(frozenset, _SIDES)}
        clients = tuple(sorted(apart[frozenset({CLIENT})], key=repr))
        # Keys are exact: Python takes `1` and `true` for equal.
        position = self.parts.number(repr((refs, clients, negative)), CredentialPart(refs, clients, negative))
        part = self.parts[position]
        events = tree.all_of(*apart[frozenset()], *apart[frozenset({EVENT})])
        mixed = self._formula(tree.all_of(*apart[frozenset({EVENT, CLIENT})]), part)
        return PolicyEntry(number, negative, events, position, mixed)

    def _template(self, state: State, entry: EventEntry) -> tuple[dict[str, Operand], list[Condition]]:
        """What the variables of a template are worked out of, and what it says besides."""
        layout = places(state.types, entry.event.type)
        attributes: dict[str, Operand] = {"@time": _NOW}
        for name, place in layout.items():
            variable = Variable(f"{EVENT}{place.slot.column} {place.kind.value}")
            self.columns[variable.name] = place
            attributes[name] = variable
        known: dict[str, Operand] = {}
        conditions: list[Condition] = []
        for term, (_, expression) in zip(entry.event.args, parameters(state, entry.event.type), strict=False):
            seen = put(expression, attributes)
            if isinstance(term, tree.Constant):
                conditions.append(tree.Compare("=", seen, term))
            elif term.name in known:
                conditions.append(tree.Compare("=", seen, known[term.name]))
            elif term.name != "_":
                known[term.name] = seen
        return known, conditions

    def _formula(self, constraint: Condition, part: CredentialPart) -> Any:
        if sides(constraint) == {CLIENT}:
            return OfClient(part.truths.number(repr(constraint), constraint))
        match constraint:
            case tree.Not(arg):
                return tree.Not(self._formula(arg, part))
            case tree.AllOf(args) | tree.AnyOf(args):
                return replace(constraint, args=tuple(self._formula(arg, part) for arg in args))
            case leaf if len(sides(leaf)) < 2:
                return leaf
            case leaf:
                sought = _Cut()
                cut = tree.rewrite_operands(leaf, sought.of)
                rights = tuple(sought.rights)
                return OfBoth(cut, tuple(sought.lefts), part.columns.number(repr(rights), rights))  # type: ignore[arg-type]  # stars are settled


_SIDES = ((), (EVENT,), (CLIENT,), (EVENT, CLIENT))

MAX_VARIANTS = 8
"""Entries that one with alternatives becomes, where each alternative looks at the event or at the client."""


def _spread(parts: list[Condition]) -> Iterator[list[Condition]]:
    """`x and (a or b)` as `x and a`, and then `x and b`, where `a` and `b` are not mixed themselves.

    Two entries of one sign, one after another, count where one of them does, and so does a disjunction (D1).
    """
    waiting, done = [parts], 0
    while waiting:
        mine = waiting.pop(0)
        at = next((n for n, one in enumerate(mine) if len(sides(one)) == 2 and not is_mixed(one)), None)
        disjuncts = () if at is None else alternatives(mine[at])
        if at is None or done + len(waiting) + len(disjuncts) > MAX_VARIANTS:
            done += 1
            yield mine
            continue
        waiting += [[*mine[:at], *conjuncts(one), *mine[at + 1 :]] for one in disjuncts]


@dataclass(slots=True)
class _Cut:
    """Expressions in which what looks at one side alone is a variable, and what those variables are."""

    lefts: Numbered[Operand] = field(default_factory=Numbered)
    rights: Numbered[Operand] = field(default_factory=Numbered)

    def of(self, expression: Operand) -> Operand:
        """An expression, cut."""
        which = looks_at(expression)
        if which == {EVENT}:
            return Variable(f"left {self.lefts.number(repr(expression), expression)}")
        if which == {CLIENT}:
            return Variable(f"right {self.rights.number(repr(expression), expression)}")
        return tree.with_operands(expression, self.of)


def _credentials(
    refs: tuple[RoleRef, ...], known: Mapping[str, Operand], conditions: list[Condition]
) -> tuple[tuple[RoleRef, ...], dict[str, Operand]]:
    """Credentials with variables named by their places, and what the client's variables are.

    An argument that is a variable of the event is compared with it, which may be unknown.
    """
    meaning: dict[str, Operand] = {}
    credentials = []
    for at, ref in enumerate(refs):
        args: list[Any] = []
        for place, term in enumerate(ref.args):
            here = Variable(f"{CLIENT}{at}.{place}")
            if not isinstance(term, Variable) or term.name == "_":
                args.append(term)
            elif term.name in known:
                conditions.append(tree.Compare("=", known[term.name], here))
                args.append(here)
            else:
                args.append(meaning.setdefault(term.name, here))
        credentials.append(replace(ref, args=tuple(args)))
    return tuple(credentials), meaning
