"""The stages in which an event policy is worked through, for one event type (OASIS 7.4, figure 7.1).

Guarantees: `stages` gives the entries, the acceptance function with negative entries distributed over the
positive ones that follow, and the same in disjunctive normal form, each clause with one client expression, event
expressions and mixed terms, equal ones shared. Where every term is true or false, and the client shows at most one
membership of each role, the clauses accept what `decide.event_policy` does. Clauses that contradict themselves are left
out, and so are repeated ones; those that imply another are kept and marked, as in the figure, where two of eight do. A
form of more than `MAX_POLICY_CLAUSES` clauses, or `MAX_CLAUSE_ATOMS` atoms in one, is not given, only that before it.
`render_stages` shows all of it as text, laid out as in the figure.
Leaves out: deciding: the pipeline keeps entries in order, has three values, and lets a client show several memberships.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from headgate.decide.event_policy import parameters, put
from headgate.lang.render import render_constraint, render_entry, render_role
from headgate.model import expressions as tree
from headgate.model.expressions import AllOf, AnyOf, Compare, Condition, Constant, Operand, RoleRef, Term, Variable
from headgate.model.limits import MAX_CLAUSE_ATOMS, MAX_POLICY_CLAUSES
from headgate.model.rolefiles import EventEntry
from headgate.model.state import State


@dataclass(frozen=True, slots=True)
class Shows:
    """The client shows a membership of a role."""

    ref: RoleRef


Said: TypeAlias = Condition | Shows
"""A term of an entry; without `and`, `or` and `not` it is an atom."""


@dataclass(frozen=True, slots=True)
class StageLiteral:
    """An atom that must be true, or false. Two are equal if they say the same; `1` and `true` are two."""

    exact: str
    atom: Said = field(compare=False)
    wanted: bool = True

    @property
    def opposite(self) -> StageLiteral:
        """The same atom, the other way."""
        return replace(self, wanted=not self.wanted)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A positive entry, by number, and the negative ones before it, of which none may fit."""

    entry: int
    terms: tuple[Said, ...]
    unless: tuple[tuple[int, tuple[Said, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class StageClause:
    """`C4 and not E0 and E1 and p = u`: whoever it holds for is told of the event."""

    client: int
    events: tuple[tuple[int, bool], ...] = ()
    mixed: tuple[StageLiteral, ...] = ()
    implies: int | None = None
    """The number of another clause that holds wherever this one does."""


@dataclass(frozen=True, slots=True)
class Stages:
    """What becomes of an event policy for one event type. Without `clauses`, there would be too many of them."""

    type: str
    parameters: tuple[str | None, ...]
    """The variables of the event in order, None where no entry looks, up to the last that one does."""
    shown: tuple[RoleRef, ...]
    """The credentials, with the variables of the client for their arguments."""
    entries: tuple[EventEntry, ...]
    acceptance: tuple[Acceptance, ...]
    clients: tuple[tuple[StageLiteral, ...], ...] = ()
    events: tuple[StageLiteral, ...] = ()
    clauses: tuple[StageClause, ...] | None = None
    meaning: Mapping[str, Operand] = field(default_factory=dict)
    """What each variable of the event is worked out of."""
    presumed: Shows | None = None
    """What every entry asks to be shown, which the terms then leave out, as the figure does."""


def stages(state: State, type_name: str) -> Stages:
    """The stages of the event policy of a state for a type."""
    line = state.types.lineage(type_name)
    entries = tuple(one for one in state.roles.policy.entries if one.event.type in line)
    names = _Names(state)
    for entry in entries:
        names.meet(entry)
    requirements = [names.terms(entry) for entry in entries]
    presumed = _presumed(requirements)
    if presumed is not None:
        requirements = [tuple(term for term in terms if not isinstance(term, Shows)) for terms in requirements]
    acceptance: list[Acceptance] = []
    before: list[tuple[int, tuple[Said, ...]]] = []
    for number, (entry, terms) in enumerate(zip(entries, requirements, strict=True)):
        if entry.negative:
            before.append((number, terms))
        else:
            acceptance.append(Acceptance(number, terms, tuple(before)))
    made = Stages(
        type_name,
        names.parameters(type_name),
        names.shown,
        entries,
        tuple(acceptance),
        meaning=names.meaning,
        presumed=presumed,
    )
    try:
        return _cut(made)
    except _TooLargeError:
        return made


# -- names --------------------------------------------------------------------------------------------------------


class _Names:
    """One name for each parameter of the event and each argument of a credential, whatever entries call them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._taken: set[str] = {"_"}
        self._events: dict[str, str] = {}
        self._clients: dict[tuple[str, int], str] = {}
        self._roles: dict[str, RoleRef] = {}
        self.meaning: dict[str, Operand] = {}

    @property
    def shown(self) -> tuple[RoleRef, ...]:
        """Every credential that is asked for, with names for its arguments."""
        return tuple(replace(ref, args=self._args(key, len(ref.args))) for key, ref in self._roles.items())

    def parameters(self, type_name: str) -> tuple[str | None, ...]:
        """The names of a type's parameters, up to the last that an entry looks at."""
        seen = [self._events.get(repr(one)) for one in parameters(self._state, type_name)]
        while seen and seen[-1] is None:
            seen.pop()
        return tuple(seen)

    def meet(self, entry: EventEntry) -> None:
        """Let things have the names that an entry gives them, if nothing else has."""
        mine = set()
        for seen, parameter in zip(entry.event.args, parameters(self._state, entry.event.type), strict=False):
            if isinstance(seen, Variable) and seen.name != "_":
                mine.add(seen.name)
                self._event(parameter, seen.name)
        for key, ref in _numbered(entry):
            longer = len(ref.args) > len(self._roles[key].args) if key in self._roles else True
            if longer:
                self._roles[key] = ref
            for at, term in enumerate(ref.args):
                if isinstance(term, Variable) and term.name not in mine | {"_"}:
                    self._client(key, at, term.name)

    def terms(self, entry: EventEntry) -> tuple[Said, ...]:
        """What must hold for an entry to fit, in these names."""
        requirements: list[Said] = []
        mine: dict[str, Variable] = {}

        def meet(term: Term, here: Variable) -> None:
            if isinstance(term, Constant):
                requirements.append(Compare("=", here, term))
            elif isinstance(term, Variable) and term.name in mine:
                requirements.append(Compare("=", here, mine[term.name]))
            elif isinstance(term, Variable):
                mine[term.name] = here

        for event_term, parameter in zip(entry.event.args, parameters(self._state, entry.event.type), strict=False):
            if event_term != Variable("_"):
                meet(event_term, self._event(parameter, parameter[0]))
        for key, ref in _numbered(entry):
            requirements.append(Shows(replace(ref, args=self._args(key, len(ref.args)))))
            for at, term in enumerate(ref.args):
                if term != Variable("_"):
                    meet(term, self._client(key, at, "x"))
        said = {repr(one): one for one in (*requirements, *_conjuncts(_renamed(entry.constraint, mine)))}
        return tuple(said.values())

    def _event(self, parameter: tuple[str, Operand], wanted: str) -> Variable:
        key = repr(parameter)
        if key not in self._events:
            self._events[key] = self._fresh(wanted)
            self.meaning[self._events[key]] = parameter[1]
        return Variable(self._events[key])

    def _client(self, key: str, at: int, wanted: str) -> Variable:
        if (key, at) not in self._clients:
            self._clients[key, at] = self._fresh(wanted)
        return Variable(self._clients[key, at])

    def _args(self, key: str, size: int) -> tuple[Term, ...]:
        return tuple(Variable(self._clients.get((key, at), "_")) for at in range(size))

    def _fresh(self, wanted: str) -> str:
        """A name that nothing has yet."""
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{wanted}{number}"
        self._taken.add(name)
        return name


def _numbered(entry: EventEntry) -> Iterator[tuple[str, RoleRef]]:
    """The credentials of an entry: the same role twice is two credentials, in whichever entries."""
    seen: dict[str, int] = {}
    for ref in entry.credentials:
        role = repr((ref.service, ref.instance, ref.role))
        seen[role] = seen.get(role, 0) + 1
        yield f"{role} {seen[role]}", ref


def _renamed(constraint: Condition, names: Mapping[str, Variable]) -> Condition:
    """A constraint in other names; none of them is taken for another on the way."""
    for name in names:
        constraint = put(constraint, name, Variable(f"{name} "))  # no name ends like this
    for name, new in names.items():
        constraint = put(constraint, f"{name} ", new)
    return constraint


def _presumed(requirements: list[tuple[Said, ...]]) -> Shows | None:
    """What every entry asks to be shown, if they all ask for that alone."""
    asked = [[term for term in terms if isinstance(term, Shows)] for terms in requirements]
    alike = {
        repr([replace(one.ref, args=()) for one in each]) + str([len(one.ref.args) for one in each]) for each in asked
    }
    return asked[0][0] if len(alike) == 1 and len(asked[0]) == 1 else None


# -- clauses ------------------------------------------------------------------------------------------------------


class _TooLargeError(Exception):
    """There are more clauses than are given."""


Product: TypeAlias = tuple[StageLiteral, ...]


def _cut(made: Stages) -> Stages:
    """The acceptance function as clauses, and what is shared by them."""
    products: dict[frozenset[StageLiteral], Product] = {}
    for acceptance in made.acceptance:
        disjuncts: list[Product] = [()]
        for term in acceptance.terms:
            disjuncts = _times(disjuncts, _form(term, True))
        for _, terms in acceptance.unless:
            disjuncts = _times(disjuncts, [each for term in terms for each in _form(term, False)])
        for product in disjuncts:
            products.setdefault(frozenset(product), product)
        if len(products) > MAX_POLICY_CLAUSES:
            raise _TooLargeError
    outer = frozenset(made.meaning)
    clients: dict[frozenset[StageLiteral], int] = {}
    events: dict[StageLiteral, int] = {}
    clauses: list[StageClause] = []
    for product in products.values():
        kinds = [_kind(one.atom, outer) for one in product]
        of_client = [one for one, kind in zip(product, kinds, strict=True) if kind == "client"]
        of_event = [one for one, kind in zip(product, kinds, strict=True) if kind == "event"]
        client = clients.setdefault(frozenset(of_client), len(clients))
        asked = [(events.setdefault(replace(one, wanted=True), len(events)), one.wanted) for one in of_event]
        mixed = tuple(one for one, kind in zip(product, kinds, strict=True) if kind == "mixed")
        clauses.append(StageClause(client, tuple(sorted(asked)), mixed))
    # For each product one that is shorter and inside it, if there is any.
    wider = [next((at for at, other in enumerate(products) if other < mine), None) for mine in products]
    return replace(
        made,
        clients=tuple(tuple(sorted(one, key=lambda each: (each.wanted, each.exact))) for one in clients),
        events=tuple(events),
        clauses=tuple(replace(one, implies=wider[at]) for at, one in enumerate(clauses)),
    )


def _form(term: Said, wanted: bool) -> list[Product]:
    """A term, or its opposite, in disjunctive normal form."""
    match term:
        case tree.Not(arg):
            return _form(arg, not wanted)
        case tree.Starred(arg):
            return _form(arg, wanted)
        case AllOf(args) | AnyOf(args):
            if isinstance(term, AllOf) is wanted:
                products: list[Product] = [()]
                for arg in args:
                    products = _times(products, _form(arg, wanted))
                return products
            return [product for arg in args for product in _form(arg, wanted)]
        case Compare("!=", left, right):
            return [(_literal(Compare("=", left, right), not wanted),)]
        case atom:
            return [(_literal(atom, wanted),)]


def _literal(atom: Said, wanted: bool) -> StageLiteral:
    return StageLiteral(repr(atom), atom, wanted)


def _times(left: list[Product], right: list[Product]) -> list[Product]:
    """Every product of one with one of the other that does not contradict itself, each once."""
    products: dict[frozenset[StageLiteral], Product] = {}
    for a in left:
        for b in right:
            made = dict.fromkeys((*a, *b))
            if not any(one.opposite in made for one in b):
                products.setdefault(frozenset(made), tuple(made))
            if len(products) > MAX_POLICY_CLAUSES or len(made) > MAX_CLAUSE_ATOMS:
                raise _TooLargeError
    return list(products.values())


def _kind(atom: Said, outer: frozenset[str]) -> str:
    """What an atom looks at; what looks at nothing is asked once an event."""
    if isinstance(atom, Shows):
        return "client"
    names = tree.variables(atom)
    timed = tree.Meta("time") in tree.looked_at(atom)
    if names <= outer:
        return "event"
    return "mixed" if names & outer or timed else "client"


def _conjuncts(constraint: Condition) -> Iterator[Condition]:
    if isinstance(constraint, AllOf):
        for arg in constraint.args:
            yield from _conjuncts(arg)
    else:
        yield constraint


def render_stages(found: Stages) -> str:
    """All stages, one under another."""
    return "\n".join(_lines(found))


def render_head(found: Stages) -> str:
    """`psi(Seen(u, r), LoggedOn(p, h))`."""
    event = f"{found.type.rpartition('.')[2]}({', '.join(name or '_' for name in found.parameters)})"
    return f"psi({', '.join([event, *map(render_role, found.shown)])})"


def render_acceptance(one: Acceptance) -> str:
    """`u in staff and p in student and not (u = 'rmn' and p in student)`."""
    return " and ".join([_joined(one.terms), *(f"not ({_joined(terms)})" for _, terms in one.unless)])


def render_client(literals: Iterable[StageLiteral]) -> str:
    """`not p in student and p in staff`; of nothing, `true`."""
    return " and ".join(map(render_literal, literals)) or "true"


def render_clause(one: StageClause) -> str:
    """`C4 and not E0 and E1`."""
    events = (f"E{number}" if wanted else f"not E{number}" for number, wanted in one.events)
    return " and ".join([f"C{one.client}", *events, *map(render_literal, one.mixed)])


def render_literal(one: StageLiteral) -> str:
    """`not p in student`."""
    return _text(one.atom) if one.wanted else f"not {_text(one.atom)}"


def _lines(stages: Stages) -> Iterator[str]:
    yield "Entries:"
    yield from (f"  {number}. {render_entry(entry)}" for number, entry in enumerate(stages.entries, 1))
    yield "Acceptance function:"
    yield f"  {render_head(stages)} ="
    yield from _ored([render_acceptance(one) for one in stages.acceptance])
    if stages.clauses is None:
        yield f"In normal form it has more than MAX_POLICY_CLAUSES ({MAX_POLICY_CLAUSES}) clauses, or too long ones."
        return
    yield "Client expressions:"
    yield from (f"  C{number} <= ({render_client(one)})" for number, one in enumerate(stages.clients))
    yield "Event expressions:"
    yield from (f"  E{number} <= ({render_literal(one)})" for number, one in enumerate(stages.events))
    yield "Clauses:"
    yield f"  {render_head(stages)} ="
    others = [None if one.implies is None else stages.clauses[one.implies] for one in stages.clauses]
    notes = ["" if other is None else f"   # implies {render_clause(other)}" for other in others]
    yield from _ored([render_clause(one) for one in stages.clauses], notes)


def _ored(parts: list[str], notes: list[str] | None = None) -> Iterator[str]:
    for number, part in enumerate(parts or ["false"]):
        yield f"    {'or ' if number else ''}({part}){notes[number] if notes else ''}"


def _joined(terms: Iterable[Said]) -> str:
    return " and ".join(f"({_text(one)})" if isinstance(one, AnyOf) else _text(one) for one in terms) or "true"


def _text(said: Said) -> str:
    return f"shows {render_role(said.ref)}" if isinstance(said, Shows) else render_constraint(said)
