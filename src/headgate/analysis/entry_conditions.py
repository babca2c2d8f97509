"""Entries as conditions, for whoever looks at a policy without an event: what they say, and whether they can hold.

Guarantees: `may_hold` says no only where the normal form shows that the condition is never true; a condition that is
too large to normalise may hold. Groups, relations, texts and predicates count as unrelated to each other.
A condition made of an entry of the event policy (OASIS 7.3) has the truth of its entry on every event
(`event_policy.entry_truth`), except for the parts that conditions cannot say, such as `Badge(b) = u`: each of those is
an opaque predicate, which may be true, false or unknown, and is the same one only where the entry, what it names and
the credentials are the same.
Leaves out: deciding, which is done by the entries themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from headgate.decide.constraints import Scene, truth, value
from headgate.decide.event_policy import means, parameters, policy_readings, rule_of
from headgate.decide.normal import Bounds, Clause, bind, clauses
from headgate.decide.rolebook import alike
from headgate.decide.views import condition_for, covered_through
from headgate.model import expressions as tree
from headgate.model.errors import BadExpression
from headgate.model.expressions import FALSE, TRUE, Compare, Condition, Constant, Meta, Not, Operand, RoleRef, Variable
from headgate.model.rights import Effect, Rule
from headgate.model.rolefiles import EventEntry
from headgate.model.roles import Membership
from headgate.model.state import State
from headgate.model.values import Kind, Value

_MOST_FORBIDS: Final = 100
"""With more forbids than this the conditions are not combined: the whole would nest too deep to look at."""


def may_hold(condition: Condition | None, kinds: Mapping[str, Kind]) -> bool:
    """Is there no proof that the condition is never true?"""
    try:
        return condition is None or bool(clauses(condition, kinds))
    except BadExpression:  # too large to normalise, so nothing is proven
        return True


def opaque(rule: str) -> Condition:
    """Stands for a condition that may not be told: nothing is known of it. No predicate can have such a name."""
    return tree.Predicate(f"\0{rule}")


def is_opaque(condition: Condition) -> bool:
    """Does a condition have a part of which nothing is known?"""
    return any(isinstance(atom, tree.Predicate) and atom.name.startswith("\0") for atom in tree.atoms(condition))


def in_order(listed: list[tuple[Effect, Condition]]) -> Condition | None:
    """True where the first entry that matches is a grant; None if it would be too deep to look at."""
    if sum(effect is Effect.FORBID for effect, _ in listed) > _MOST_FORBIDS:
        return None
    permitted: Condition = FALSE
    for effect, condition in reversed(listed):
        if effect is Effect.GRANT:
            permitted = TRUE if TRUE in (condition, permitted) else tree.any_of(condition, permitted)
        elif condition == TRUE:
            permitted = FALSE
        elif FALSE not in (condition, permitted):
            permitted = tree.all_of(Not(condition), permitted)
    return permitted


def without_others(condition: Condition, kinds: Mapping[str, Kind]) -> Condition:
    """The condition where every attribute that a type lacks is null (D3), so that it means the same on subtypes."""

    def put(operand: Operand) -> Operand:
        lacks = any(isinstance(part, tree.Attribute) and part.name not in kinds for part in tree.within(operand))
        return Constant(None) if lacks else operand

    return tree.rewrite_operands(condition, put)


def with_arguments(condition: Condition, given: Mapping[str, Operand]) -> Condition:
    """The condition of an entry for a role, with the role's arguments in the place of their `$names`."""
    if not given:
        return condition
    return tree.rewrite_operands(
        condition, lambda operand: given.get(operand.name, operand) if isinstance(operand, tree.Subject) else operand
    )


def given_to(rule: Rule) -> dict[str, Operand]:
    """The arguments of a role in an entry as it counts for one membership."""
    return {name: Constant(value) for name, value in rule.given.items()}


@dataclass(frozen=True, slots=True)
class SubscribeEntry:
    """An entry on events of a type: the attributes it covers, and its condition, as written and for one subject.

    What is written has the arguments of a role in it; what is bound means the same on subtypes of the type it names.
    """

    rule: Rule
    covers: frozenset[str]
    written: Condition
    bound: Condition


def subscribe_entry(
    state: State,
    rule: Rule,
    named: str,
    type_name: str,
    subject: Mapping[str, Value] | None,
    given: Mapping[str, Operand] | None = None,
) -> SubscribeEntry:
    """An entry on events of a type, which it takes in through the type that it names; without a subject, for anyone.

    The arguments of a role are those that the entry is given, unless others are put in their place.
    """
    through = state.types.attributes(named)
    written = with_arguments(condition_for(rule, through), given_to(rule) if given is None else given)
    bound = without_others(bind(written, subject, through), through)
    return SubscribeEntry(rule, covered_through(state, rule, named, type_name), written, bound)


def over_event(clause: Clause) -> Condition:
    """What a clause over a view says about the event itself.

    What is null in a view need not be null in the event, and a predicate is given the view; neither says anything.
    """
    conditions: list[Condition] = []
    for term, bounds in clause.bounds.items():
        if not bounds.null:
            conditions.extend(_bounded(term, bounds))
    rest = (one for one in clause.rest if not isinstance(one.atom, tree.Predicate))
    return tree.all_of(*conditions, *(one.atom if one.want else Not(one.atom) for one in rest))


def _bounded(term: Operand, bounds: Bounds) -> list[Condition]:
    conditions: list[Condition] = [Not(tree.IsNull(term))]
    span = bounds.span
    if bounds.only is not None:
        conditions.append(tree.InSet(term, tuple(bounds.only)))
    if bounds.without:
        conditions.append(Not(tree.InSet(term, tuple(bounds.without))))
    if span.low is not None:
        conditions.append(Compare(">" if span.low_open else ">=", term, Constant(span.low)))
    if span.high is not None:
        conditions.append(Compare("<" if span.high_open else "<=", term, Constant(span.high)))
    return conditions


# -- event policy ----------------------------------------------------------------------------------------------

MOST_CHOICES: Final = 64
"""Choices of credentials that one condition tells apart; with more, it is opaque."""

UNKNOWN: Final = Compare("=", Constant(None), Constant(None))


@dataclass(frozen=True, slots=True)
class _Made:
    """A parameter that no operand can say."""

    expression: Operand


_Meaning: TypeAlias = Operand | Constant | _Made
"""What a variable stands for: something of the event or of whoever it may be, a known argument, or neither."""


def policy_rules(
    state: State, principal: str, shown: tuple[Membership, ...], type_name: str
) -> tuple[tuple[Rule, str], ...]:
    """The event policy on events of a type, as rules for a principal that counts these memberships, in order.

    An entry for which no credential counts is there too, with a condition that is never true.
    """
    line = state.types.lineage(type_name)
    listed = ((n, entry) for n, entry in enumerate(state.roles.policy.entries) if entry.event.type in line)
    return tuple((_rule(state, principal, n, entry, shown), entry.event.type) for n, entry in listed)


def _rule(state: State, principal: str, number: int, entry: EventEntry, shown: tuple[Membership, ...]) -> Rule:
    return replace(rule_of(state, entry, number, principal), where=condition_of(state, number, entry, shown))


def number_of(rule: Rule) -> int:
    """The place of an entry of the event policy, from a rule that stands for it."""
    return int(rule.id.rpartition(".")[2]) - 1


def is_shown(entry: EventEntry, shown: tuple[Membership, ...]) -> bool:
    """Are there credentials for each that the entry asks for?"""
    return all(any(means(ref, one) for one in shown) for ref in entry.credentials)


def condition_of(state: State, number: int, entry: EventEntry, shown: tuple[Membership, ...]) -> Condition:
    """When an entry is true of an event, for someone who counts these memberships."""
    saying = _Saying(state, number, entry)
    agreed, known = saying.event()
    alternatives: list[Condition] = []
    for at, (joined, bound) in enumerate(_choices(entry.credentials, shown, known)):
        if at >= MOST_CHOICES:
            return saying.unsaid(tuple((one.service, one.instance, one.role, one.args) for one in shown))
        alternatives.append(_conjoined(agreed, joined, saying.constraint(entry.constraint, bound)))
    return _disjoined(*alternatives)


def assumed(
    state: State, number: int, entry: EventEntry, *, shared: bool = False
) -> tuple[Condition, tuple[RoleRef, ...]]:
    """When an entry is true for someone who holds just what it asks for, and what that is.

    An argument that the entry leaves open is `$name` in the condition; the reference has a variable of that name there.
    With `shared`, other entries and rules that ask for the same role mean the same membership.
    """
    saying = _Saying(state, number, entry)
    agreed, known = saying.event()
    bound = dict(known)
    joined: list[Condition] = []
    refs: list[RoleRef] = []
    for at, ref in enumerate(entry.credentials):
        again = sum(one.role == ref.role and one.service == ref.service for one in refs)
        whose = f"{ref.service}.{ref.role}.{again}" if shared else f"events.{number}.{at}"
        args: list[Variable | Constant] = []
        for position, term in enumerate(ref.args):
            if isinstance(term, Constant):
                args.append(term)
                continue
            name = open_name(whose, position)
            if isinstance(term, Variable) and term.name in bound and term.name not in known:
                earlier = bound[term.name]
                args.append(Variable(earlier.name) if isinstance(earlier, tree.Subject) else Variable(name))
                continue
            args.append(Variable(name))
            if isinstance(term, Variable) and term.name in known:
                joined.append(saying.same(known[term.name], tree.Subject(name)))
            elif isinstance(term, Variable) and term.name != "_":
                bound[term.name] = tree.Subject(name)
        refs.append(replace(ref, args=tuple(args)))
    return _conjoined(agreed, *joined, saying.constraint(entry.constraint, bound)), tuple(refs)


def open_name(whose: str, place: int) -> str:
    """The name of an argument that is open: no subject attribute can have it."""
    return f"\0{whose}.{place}"


def _choices(
    refs: tuple[RoleRef, ...], shown: tuple[Membership, ...], known: Mapping[str, _Meaning]
) -> Iterator[tuple[Condition, Mapping[str, _Meaning]]]:
    """Every choice of memberships for the references: when they agree with the event, and what variables stand for."""
    if not refs:
        yield TRUE, known
        return
    for joined, bound in _choices(refs[:-1], shown, known):
        for one in shown:
            if means(refs[-1], one):
                found = _chosen(refs[-1], one, joined, bound, known)
                if found is not None:
                    yield found


def _chosen(
    ref: RoleRef,
    membership: Membership,
    joined: Condition,
    bound: Mapping[str, _Meaning],
    known: Mapping[str, _Meaning],
) -> tuple[Condition, Mapping[str, _Meaning]] | None:
    made = dict(bound)
    for term, argument in zip(ref.args, membership.args, strict=False):
        match term:
            case Constant(wanted):
                if not alike(wanted, argument):
                    return None
            case Variable("_"):
                pass
            case Variable(name) if name in known:
                joined = _conjoined(joined, _equals(known[name], argument))
            case Variable(name):
                earlier = made.get(name)
                if isinstance(earlier, Constant) and not alike(earlier.value, argument):
                    return None
                made[name] = Constant(argument)
            case Meta():
                return None
    return joined, made


def _equals(meaning: _Meaning, argument: tree.Argument) -> Condition:
    match meaning:
        case _Made(expression):
            return _opaque(("=", expression, argument))
        case Constant():
            raise AssertionError("the event has no known arguments")
        case operand:
            return UNKNOWN if isinstance(argument, frozenset) else Compare("=", operand, Constant(argument))


def _conjoined(*parts: Condition) -> Condition:
    """All of these; nothing that is never true is kept beside what it stops."""
    kept = [part for part in parts if part != TRUE]
    return FALSE if FALSE in kept else tree.all_of(*kept)


def _disjoined(*parts: Condition) -> Condition:
    kept = list(dict.fromkeys(part for part in parts if part != FALSE))
    return TRUE if TRUE in kept else tree.any_of(*kept)


def _opaque(what: object) -> Condition:
    digest = hashlib.sha256(repr(what).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return opaque(f"event policy {digest}")


@dataclass(slots=True)
class _Saying:
    """One entry, put into conditions."""

    state: State
    number: int
    entry: EventEntry
    scene: Scene = field(init=False)

    def __post_init__(self) -> None:
        self.scene = Scene(self.state, readings=policy_readings(self.state))

    def event(self) -> tuple[Condition, dict[str, _Meaning]]:
        """When the event fits the template, and what the variables of the template stand for."""
        known: dict[str, _Meaning] = {}
        agreed: list[Condition] = []
        for term, (_, expression) in zip(
            self.entry.event.args, parameters(self.state, self.entry.event.type), strict=False
        ):
            meaning = self._parameter(expression)
            if isinstance(term, Constant):
                agreed.append(self.same(meaning, term))
            elif term.name in known:
                agreed.append(self.same(meaning, known[term.name]))
            elif term.name != "_":
                known[term.name] = meaning
        return _conjoined(*agreed), known

    def _parameter(self, expression: Operand) -> _Meaning:
        if not tree.variables_of(expression) and not _looks_at_clock(expression):
            return _Made(expression)
        meaning = self.operand(
            expression, {name: tree.Attribute(name) for name in self.state.types.attributes(self.entry.event.type)}
        )
        return _Made(expression) if meaning is None else meaning

    def same(self, a: _Meaning, b: _Meaning) -> Condition:
        """Both have the same value."""
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Constant) and isinstance(one.value, frozenset) and not isinstance(other, _Made):
                return UNKNOWN
        left, right = _plain(a), _plain(b)
        return self.unsaid((a, b)) if left is None or right is None else Compare("=", left, right)

    def constraint(self, constraint: Condition, bound: Mapping[str, _Meaning]) -> Condition:
        """A constraint, with what its variables stand for."""
        match constraint:
            case tree.Starred(arg):
                return self.constraint(arg, bound)
            case Not(arg):
                return Not(self.constraint(arg, bound))
            case tree.AllOf(args):
                return tree.all_of(*(self.constraint(arg, bound) for arg in args))
            case tree.AnyOf(args):
                return tree.any_of(*(self.constraint(arg, bound) for arg in args))
            case leaf:
                return self._leaf(leaf, bound)

    def _leaf(self, leaf: tree.Atom, bound: Mapping[str, _Meaning]) -> Condition:
        parts = tree.operands(leaf)
        used = frozenset[str]().union(*map(tree.variables_of, parts))
        known = {name: one.value for name in used if isinstance(one := bound.get(name), Constant)}
        if len(known) == len(used) and not any(map(_looks_at_clock, parts)):
            found = truth(leaf, known, self.scene)
            return UNKNOWN if found is None else TRUE if found else FALSE
        found_operands = [self.operand(part, bound) for part in parts]
        known_operands = [operand for operand in found_operands if operand is not None]
        made = self._atom(leaf, known_operands) if len(known_operands) == len(parts) else None
        if made is not None:
            return made
        return self.unsaid((leaf, sorted((name, repr(bound.get(name))) for name in used)))

    def _atom(self, leaf: tree.Atom, operands: list[Operand]) -> Condition | None:
        match leaf:
            case Compare(op) if op not in tree.MIRRORED:
                return None
            case tree.Related(name, args) if not args or name not in self.state.relations or self._is_read(name):
                return None
            case _:
                placed = iter(operands)
                return tree.with_operands(leaf, lambda _: next(placed))

    def _is_read(self, relation: str) -> bool:
        return any(name == relation for name, _ in self.scene.readings)

    def operand(self, expression: Operand, bound: Mapping[str, _Meaning]) -> Operand | None:
        """An expression as an operand; None if no operand says it."""
        match expression:
            case Constant():
                return _plain(expression)
            case Variable(name):
                return _plain(bound[name]) if name in bound else None
            case Meta("time"):
                return Meta("time")
            case tree.ClockPart(part, of, zone):
                at = self.operand(of, bound)
                if isinstance(at, tree.Attribute | Meta):
                    return tree.ClockPart(part, at, zone)
        used = tree.variables_of(expression)
        known = {name: one.value for name in used if isinstance(one := bound.get(name), Constant)}
        if len(known) < len(used) or _looks_at_clock(expression):
            return None
        return _plain(Constant(value(expression, known, self.scene)))

    def unsaid(self, what: object) -> Condition:
        """Something that conditions cannot say, with all that it hangs on."""
        entry, roles = self.entry, self.state.roles
        every = tree.named(entry.constraint) | tree.named(
            tree.Related("", tuple(e for _, e in parameters(self.state, entry.event.type)))
        )
        facts = [
            (name, sorted(map(repr, self.state.relations.get(name, ()))), sorted(self.state.members_of(name)))
            for name in sorted(every)
        ]
        return _opaque((what, entry, roles.representatives.get(entry.event.type), facts))


def _plain(meaning: _Meaning) -> Operand | None:
    match meaning:
        case _Made():
            return None
        case Constant(known):
            return None if isinstance(known, frozenset) else Constant(known)
        case operand:
            return operand


def _looks_at_clock(expression: Operand) -> bool:
    """Does an expression look at the time of the event?"""
    return any(isinstance(operand, Meta) for operand in tree.within(expression))
