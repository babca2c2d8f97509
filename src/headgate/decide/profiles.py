"""Principals that no rule and no condition tells apart, taken together.

Guarantees: principals of one profile have the same entries for every action, the same values wherever a condition of a
rule asks for one, the same policy rule, and own the same types; so what is found for one of them holds for all.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.decide.bind import subjects
from headgate.decide.plan import Exact, exact
from headgate.decide.views import named_type
from headgate.model.rights import Action, Rule
from headgate.model.state import State
from headgate.model.values import Value


@dataclass(frozen=True, slots=True)
class Profile:
    """Whom rules may mean when they mean these principals, what conditions see of them, what they own, their limit."""

    whom: frozenset[str]
    sees: tuple[tuple[str, Exact], ...] = ()
    owns: frozenset[str] = frozenset()
    limit: str | None = None
    """Their policy rule, exactly."""


class Profiles:
    """The profiles of a state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._spoken: dict[str, list[tuple[int, Rule]]] = {}
        for place, rule in enumerate(state.rules):
            self._spoken.setdefault(rule.who, []).append((place, rule))
        self._asked = sorted({name for rule in state.rules for name in subjects(rule.where)})
        self._inside: dict[str, set[str]] = {}
        for group, members in state.groups.items():
            for member in members:
                self._inside.setdefault(member, set()).add(group)
        self._owned: dict[str, set[str]] = {}
        for one in state.types.values():
            self._owned.setdefault(one.owner, set()).add(one.name)
        self._above: dict[frozenset[str], frozenset[str]] = {}
        self._entries: dict[tuple[frozenset[str], Action, str], tuple[tuple[Rule, str], ...]] = {}
        self._rules: dict[tuple[frozenset[str], Action], tuple[Rule, ...]] = {}
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
        """The entries of a profile for an action, in order (D5)."""
        key = profile.whom, action
        if key not in self._rules:
            found = [one for who in profile.whom for one in self._spoken[who] if action in one[1].actions]
            self._rules[key] = tuple(rule for _, rule in sorted(found, key=lambda one: one[0]))
        return self._rules[key]

    def entries(self, profile: Profile, action: Action, type_name: str) -> tuple[tuple[Rule, str], ...]:
        """The entries that take in events of a type, each with the type through which it does."""
        if type_name not in self.state.types:
            return ()
        key = profile.whom, action, type_name
        if key not in self._entries:
            found = ((rule, named_type(self.state, rule, action, type_name)) for rule in self.rules(profile, action))
            self._entries[key] = tuple((rule, named) for rule, named in found if named is not None)
        return self._entries[key]

    def _profile(self, name: str) -> Profile:
        direct = frozenset(self._inside.get(name, ()))
        if direct not in self._above:
            self._above[direct] = self._closure(direct).intersection(self._spoken)
        whom = self._above[direct] | {name} if name in self._spoken else self._above[direct]
        attributes = self.state.principals[name]
        seen = tuple((asked, exact(attributes[asked])) for asked in self._asked if asked in attributes)
        limit = self.state.policy_rules.get(name)
        return Profile(whom, seen, frozenset(self._owned.get(name, ())), None if limit is None else repr(limit))

    def _closure(self, groups: frozenset[str]) -> frozenset[str]:
        found: set[str] = set()
        frontier = set(groups)
        while frontier:
            found |= frontier
            frontier = {above for group in frontier for above in self._inside.get(group, ())} - found
        return frozenset(found)
