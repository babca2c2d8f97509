"""Principals that no rule and no condition tells apart, taken together.

Guarantees: principals of one profile have the same entries for every action, the same values wherever a condition of a
rule asks for one, the same policy rule, and own the same types; they hold the same roles, as far as a rule or the event
policy looks at roles and their arguments; where a rule asks for identity statements, all of them have one in force, or
none has. So what is found for one of them, counting all it holds, holds for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from headgate.analysis.entry_conditions import policy_rules
from headgate.analysis.plan import Exact, exact
from headgate.decide.event_policy import credentials, means
from headgate.decide.rolebook import alike, counting
from headgate.decide.views import named_type
from headgate.model.expressions import Constant, Variable, subjects, variables
from headgate.model.rights import Action, Rule, Source
from headgate.model.rolefiles import EventEntry
from headgate.model.roles import Membership
from headgate.model.state import State
from headgate.model.values import Value

EVERYONE: Final = "everyone"
"""Whom the event policy speaks to."""

_ORDER: Final = (Source.RULE, Source.POLICY, Source.CHAIN)

Holding: TypeAlias = tuple[int, tuple[tuple[str, Exact], ...]]
"""A rule for a role, by its place, and the arguments that its condition looks at."""

Showing: TypeAlias = tuple[int, int, tuple[Exact, ...]]
"""A credential of an entry of the event policy, by its place, and the arguments that the entry looks at."""


def without_memberships(state: State) -> State:
    """The state in which nobody holds a role."""
    if not state.roles.memberships:
        return state
    return replace(state, roles=replace(state.roles, memberships={}, held={}))


@dataclass(frozen=True, slots=True)
class Profile:
    """Whom rules may mean when they mean these principals, what conditions see of them, what they own, their limit."""

    whom: frozenset[str]
    sees: tuple[tuple[str, Exact], ...] = ()
    owns: frozenset[str] = frozenset()
    limit: str | None = None
    """Their policy rule, exactly."""
    holds: frozenset[Holding] = frozenset()
    """How rules for roles count for them."""
    shows: frozenset[Showing] = frozenset()
    """What they can show for the credentials of the event policy."""
    attested: bool = False
    """Is an identity statement about them in force, as far as a rule asks for one?"""


class Profiles:
    """The profiles of a state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._spoken: dict[str, list[tuple[int, Rule]]] = {}
        self._roles: list[tuple[int, Rule]] = []
        for position, rule in enumerate(state.rules):
            if rule.role is not None:
                self._roles.append((position, rule))
            else:
                self._spoken.setdefault(rule.who, []).append((position, rule))
        self._asked = sorted({name for rule in state.rules for name in subjects(rule.where)})
        self._inside: dict[str, set[str]] = {}
        for group, members in state.groups.items():
            for member in members:
                self._inside.setdefault(member, set()).add(group)
        self._owned: dict[str, set[str]] = {}
        for one in state.types.values():
            self._owned.setdefault(one.owner, set()).add(one.name)
        self._above: dict[frozenset[str], frozenset[str]] = {}
        self._looked_at = [tuple(_looked_at(entry)) for entry in state.roles.policy.entries]
        self._entries: dict[tuple[object, ...], tuple[tuple[Rule, str], ...]] = {}
        self._rules: dict[tuple[object, ...], tuple[Rule, ...]] = {}
        asked = any(rule.attested for rule in state.rules)
        self._attested = frozenset(one.principal for one in state.identities.values()) if asked else frozenset()
        self.members: dict[Profile, list[str]] = {}
        self._of: dict[str, Profile] = {}
        for name in state.principals:
            self._of[name] = self._profile(name)
            self.members.setdefault(self._of[name], []).append(name)

    def of(self, principal: str) -> Profile | None:
        """The profile of a principal, if there is such a principal."""
        return self._of.get(principal)

    def subject(self, profile: Profile) -> dict[str, Value]:
        """What conditions see of the principals of a profile."""
        attributes = self.state.principals[self.members[profile][0]]
        return {name: attributes[name] for name, _ in profile.sees}

    def rules(self, profile: Profile, action: Action) -> tuple[Rule, ...]:
        """The rules and chains of a profile for an action, in order (D5); one for a role each way that it counts."""
        key = profile.whom, profile.holds, action
        if key not in self._rules:
            found = [one for who in profile.whom for one in self._spoken[who]]
            found += self._counting(self.members[profile][0]) if profile.holds else ()
            ordered = sorted((one for one in found if action in one[1].actions), key=lambda one: one[0])
            self._rules[key] = tuple(rule for _, rule in ordered)
        return self._rules[key]

    def entries(self, profile: Profile, action: Action, type_name: str) -> tuple[tuple[Rule, str], ...]:
        """The entries that take in events of a type, each with the type through which it does.

        Those of the event policy are among them, as rules with a condition; so are those that pass over whoever has no
        identity statement in force.
        """
        if type_name not in self.state.types:
            return ()
        key = profile.whom, profile.holds, profile.shows, action, type_name
        if key not in self._entries:
            found = ((rule, named_type(self.state, rule, action, type_name)) for rule in self.rules(profile, action))
            listed = [(rule, named) for rule, named in found if named is not None]
            if action is Action.SUBSCRIBE and self._looked_at:
                listed += self._policy(profile, type_name)
                listed.sort(key=lambda one: _ORDER.index(one[0].source))  # stable, so that each source keeps its order
            self._entries[key] = tuple(listed)
        return self._entries[key]

    def _policy(self, profile: Profile, type_name: str) -> tuple[tuple[Rule, str], ...]:
        shown = credentials(self.state, self.members[profile][0], None)
        telling = {showing: one for one in reversed(shown) for showing in self._showing(one)}
        few = {one.id for one in telling.values()}  # of those that look the same, one is enough
        return policy_rules(self.state, EVERYONE, tuple(one for one in shown if one.id in few), type_name)

    def _counting(self, name: str) -> Iterator[tuple[int, Rule]]:
        """The rules for roles as they count for a principal, told apart by what their conditions look at."""
        for position, rule in self._roles:
            asked = subjects(rule.where)
            known: dict[tuple[tuple[str, Exact], ...], Rule] = {}
            for one in counting(self.state, name, rule):
                given = {argument: one.given[argument] for argument in sorted(one.given) if argument in asked}
                known[tuple((argument, exact(v)) for argument, v in given.items())] = replace(one, given=given)
            yield from ((position, known[key]) for key in sorted(known))

    def _showing(self, membership: Membership) -> Iterator[Showing]:
        for number, looked_at in enumerate(self._looked_at):
            for at, (ref, places) in enumerate(
                zip(self.state.roles.policy.entries[number].credentials, looked_at, strict=True)
            ):
                literal = (
                    (term.value, given)
                    for term, given in zip(ref.args, membership.args, strict=False)
                    if isinstance(term, Constant)
                )
                if means(ref, membership) and all(alike(*pair) for pair in literal):
                    yield number, at, tuple(exact(membership.args[place]) for place in places)

    def _profile(self, name: str) -> Profile:
        direct = frozenset(self._inside.get(name, ()))
        if direct not in self._above:
            self._above[direct] = self._closure(direct).intersection(self._spoken)
        whom = self._above[direct] | {name} if name in self._spoken else self._above[direct]
        attributes = self.state.principals[name]
        seen = tuple((asked, exact(attributes[asked])) for asked in self._asked if asked in attributes)
        limit = self.state.policy_rules.get(name)
        holds: frozenset[Holding] = frozenset()
        shows: frozenset[Showing] = frozenset()
        if name in self.state.roles.held:
            counted = self._counting(name)
            holds = frozenset((at, tuple((a, exact(v)) for a, v in rule.given.items())) for at, rule in counted)
            shows = frozenset(one for held in self.state.roles.held_by(name) for one in self._showing(held))
        owns = frozenset(self._owned.get(name, ()))
        exactly = None if limit is None else repr(limit)
        return Profile(whom, seen, owns, exactly, holds, shows, name in self._attested)

    def _closure(self, groups: frozenset[str]) -> frozenset[str]:
        reached: set[str] = set()
        frontier = set(groups)
        while frontier:
            reached |= frontier
            frontier = {above for group in frontier for above in self._inside.get(group, ())} - reached
        return frozenset(reached)


def _looked_at(entry: EventEntry) -> Iterator[tuple[int, ...]]:
    """For each credential of an entry, the places of the arguments that something else in the entry looks at."""
    counts = Counter(
        term.name
        for args in (entry.event.args, *(ref.args for ref in entry.credentials))
        for term in args
        if isinstance(term, Variable)
    )
    counts.update(variables(entry.constraint))
    for ref in entry.credentials:
        yield tuple(
            place
            for place, term in enumerate(ref.args)
            if isinstance(term, Variable) and term.name != "_" and counts[term.name] > 1
        )
