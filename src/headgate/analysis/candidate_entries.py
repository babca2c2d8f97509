"""The entries that may bear on events of a type, for principals of which only a profile is known.

Guarantees: subject attributes are open. Roles are those that are held; or any may be held or not, with open arguments,
and then an entry that rests on a role may count, and may be gone. Order and coverage are those of decisions (D4, D5).
Leaves out: the questions that are put to them (`proofs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from headgate.analysis.conflicts import given_to, with_arguments, without_others
from headgate.analysis.entry_conditions import assumed, open_name
from headgate.analysis.profiles import EVERYONE, Profile, Profiles
from headgate.decide.bind import bind
from headgate.decide.event_policy import rule_of
from headgate.decide.truth import clock_part
from headgate.decide.views import condition_for, covered, forced_value, named_type
from headgate.model.conditions import (
    FALSE,
    Attribute,
    ClockPart,
    Condition,
    Constant,
    Operand,
    RoleRef,
    Subject,
    Variable,
    rewrite_operands,
)
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import State
from headgate.model.values import Kind, Value
from headgate.solver.terms import Every, Goal, Some, Want

Holding: TypeAlias = Literal["held", "open", "shared"]
"""Which roles count: those that are held, any with any arguments, or any with one membership of each role."""

_Listed: TypeAlias = tuple[Rule, str, Mapping[str, Operand], tuple[RoleRef, ...], bool]
"""An entry, the type it names, its arguments, the roles it needs, and whether it may be gone for want of them."""


@dataclass(frozen=True, slots=True)
class Possible:
    """An entry on a type, for one profile: when it counts, what it covers, and what comes of an event if it counts."""

    rule: Rule
    condition: Condition
    covers: frozenset[str]
    outcome: object
    refs: tuple[RoleRef, ...] = ()
    """The roles without which it does not count; their arguments are open."""
    maybe: bool = False
    """May it be gone, because nobody need hold those roles, or have an identity statement in force?"""

    @property
    def counts(self) -> Goal:
        """A grant counts where it is true, a forbid unless it is false."""
        grant = self.rule.effect is Effect.GRANT
        return Want(self.condition, truth=grant, met=grant)

    @property
    def misses(self) -> Goal:
        """It does not count."""
        if self.maybe:
            return Every()
        grant = self.rule.effect is Effect.GRANT
        return Want(self.condition, truth=grant, met=not grant)


def possible_entries(
    profiles: Profiles, profile: Profile, action: Action, name: str, holding: Holding
) -> list[Possible]:
    """The entries of a profile on events of a type, in order, with the attributes of subjects open.

    Unless they are those that are `held`, roles may be held or not, with arguments that are open too.
    """
    state = profiles.state
    mine = profiles.entries(profile, action, name)
    may_pass = action is Action.PUBLISH
    listed: list[_Listed] = [(rule, named, given_to(rule), (), may_pass and rule.attested) for rule, named in mine]
    if holding != "held":
        listed = _with_roles(state, listed, action, name, shared=holding == "shared")
    found = (possible_entry(state, rule, named, given, action, name) for rule, named, given, _, _ in listed)
    pairs = zip(found, listed, strict=True)
    return [replace(one, refs=refs, maybe=maybe) for one, (_, _, _, refs, maybe) in pairs]


def _with_roles(state: State, plain: list[_Listed], action: Action, name: str, *, shared: bool) -> list[_Listed]:
    """The entries of someone who holds no role, and between them those that roles may bring."""
    by_role = [(place, rule) for place, rule in enumerate(state.rules) if rule.role is not None]
    policy = state.roles.policy.entries if action is Action.SUBSCRIBE else ()
    if not by_role and not any(one.credentials for one in policy):
        return plain
    places = {rule.id: place for place, rule in enumerate(state.rules)}
    ranked: list[tuple[tuple[bool, int], _Listed]] = []
    events: list[_Listed] = []
    chains: list[_Listed] = []
    for listed in plain:
        match listed[0].source:
            case Source.RULE:
                ranked.append(((False, places[listed[0].id]), listed))
            case Source.CHAIN:
                chains.append(listed)
            case Source.POLICY:
                pass  # all of them follow, with their credentials open
    for position, rule in by_role:
        named = named_type(state, rule, action, name) if action in rule.actions else None
        if named is not None:
            ranked.append(((False, position), open_role(rule, named, shared=shared)))
    line = state.types.lineage(name)
    for number, entry in enumerate(policy):
        if entry.event.type in line:
            where, refs = assumed(state, number, entry, shared=shared)
            as_rule = replace(rule_of(state, entry, number, EVERYONE), where=where)
            events.append((as_rule, entry.event.type, {}, refs, bool(refs)))
    return [*(one for _, one in sorted(ranked, key=lambda pair: pair[0])), *events, *chains]


def open_role(rule: Rule, named: str, *, shared: bool) -> _Listed:
    """An entry for a role, whatever the arguments."""
    role = rule.role
    assert role is not None
    whose = f"{role.service}.{role.role}.0" if shared else f"rule.{rule.id}"
    given: dict[str, Operand] = {}
    args: list[Variable | Constant] = []
    for position, term in enumerate(role.args):
        if isinstance(term, Constant):
            args.append(term)
            continue
        earlier = given.get(term.name) if isinstance(term, Variable) else None
        open_ = earlier if isinstance(earlier, Subject) else Subject(open_name(whose, position))
        args.append(Variable(open_.name))
        if isinstance(term, Variable) and term.name != "_":
            given[term.name] = open_
    return rule, named, given, (replace(role, args=tuple(args)),), True


def possible_entry(
    state: State, rule: Rule, named: str, given: Mapping[str, Operand], action: Action, name: str
) -> Possible:
    """An entry on events of a type, with these arguments of a role in its condition."""
    kinds, through = state.types.attributes(name), state.types.attributes(named)
    outcome: object = rule.effect is Effect.GRANT
    if action is Action.PUBLISH:
        condition = bind(with_arguments(rule.where, given), None, kinds)
        if rule.effect is Effect.GRANT:
            forced = _forced(rule, kinds)
            condition = FALSE if None in forced.values() else _cut(condition, covered(rule, kinds), forced)
            outcome = covered(rule, kinds), repr(sorted(forced.items()))
        return Possible(rule, condition, frozenset(), outcome)
    condition = with_arguments(condition_for(rule, through), given)
    whole = rule.effect is Effect.FORBID and rule.attributes is None
    covers = frozenset(kinds) if whole else covered(rule, through)
    return Possible(rule, without_others(bind(condition, None, through), through), covers, outcome)


def _forced(rule: Rule, kinds: Mapping[str, Kind]) -> dict[str, Value]:
    """The values that a publish grant forces on a type; null where one does not fit, and the grant is never used."""
    found = {name: forced_value(raw, kinds[name]) for name, raw in rule.forced.items() if name in kinds}
    return {name: v for name, v in found.items() if v is None or name in covered(rule, kinds)}


def _cut(condition: Condition, covers: frozenset[str], forced: Mapping[str, Value]) -> Condition:
    """A condition on what a publish grant makes of an event, as one on the event as sent (D6)."""

    def put(operand: Operand) -> Operand:
        match operand:
            case Attribute(name) if name in forced:
                return Constant(forced[name])
            case Attribute(name) if name not in covers:
                return Constant(None)
            case ClockPart(part, of, zone) if (whole := put(of)) != of:
                at = whole.value if isinstance(whole, Constant) else None
                return Constant(None if at is None else clock_part(part, at, zone))  # type: ignore[arg-type]
            case _:
                return operand

    return rewrite_operands(condition, put)


def granted(entries: Sequence[Possible]) -> Goal:
    """The first entry that counts is a grant (D5)."""
    goal: Goal = Some()
    for one in reversed(entries):
        grant = one.rule.effect is Effect.GRANT
        goal = Some((one.counts, goal)) if grant else Every((one.misses, goal))
    return goal


def otherwise(entries: Sequence[Possible], outcome: object, nothing: object) -> Goal:
    """The first entry that counts, or `nothing` if none does, leads to another outcome."""
    goal: Goal = Every() if nothing != outcome else Some()
    for one in reversed(entries):
        here = (one.counts,) if one.outcome != outcome else ()
        goal = Some((*here, Every((one.misses, goal))))
    return goal
