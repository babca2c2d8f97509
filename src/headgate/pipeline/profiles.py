"""From rules to ordered entries: the rights of every holder, each distinct profile once.

Guarantees: a holder is a principal where it was when it subscribed. Those whose entries are the same, and who have the
same attributes and origin wherever a condition asks for one, share a profile. Entries of chains are lowered like all
others: what they force outside their attributes is a condition, and what does not fit a type's kinds is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from headgate.decide.bind import bind, names_meta, subjects
from headgate.decide.views import condition_for, covered, named_type
from headgate.model.conditions import TRUE, Condition, Constant
from headgate.model.rights import Action, Effect, Rule
from headgate.model.state import State
from headgate.model.values import Value
from headgate.pipeline.index import ALWAYS, Rights
from headgate.pipeline.layout import mask_of, places
from headgate.pipeline.rows import rows_of
from headgate.pipeline.shapes import Shape, Table, merged

Holder: TypeAlias = tuple[str, str | None]
"""A principal, and where it was when it subscribed."""


class RightsBuilder:
    """Profiles, entries and conditions, each kept once."""

    def __init__(self, words: int) -> None:
        self.words = words
        self.table = Table()
        self.condition_numbers: dict[Any, int] = {}
        self.condition_rows: list[int] = []
        self.profile_numbers: dict[Any, int] = {}
        self.entries: list[dict[int, list[tuple[bool, bool, list[int], int]]]] = []
        self.shapes: list[Shape] = []

    def profiles(self, state: State, holders: list[Holder]) -> list[int]:
        """The profile of each holder at a state."""
        spoken: dict[str, list[tuple[int, Rule]]] = {}
        for place, rule in enumerate(state.rules):
            if Action.SUBSCRIBE in rule.actions:
                spoken.setdefault(rule.who, []).append((place, rule))
        reach = _Reach(state)
        groups = _closure(state)
        memo: dict[Any, int] = {}
        found = []
        for principal, origin in holders:
            whom = frozenset(who for who in (*groups(principal), principal) if who in spoken)
            mine = memo.get(whom)
            if mine is None or mine < 0:
                ordered = sorted((one for who in whom for one in spoken[who]), key=lambda one: one[0])
                chosen = [rule for _, rule in ordered]
                asks = sorted({s for r in chosen for s in subjects(r.where)})
                subject = state.principals.get(principal, {})
                placed = any(names_meta(r.where, "origin") for r in chosen)
                at = Constant(origin if placed else None)
                mine = self._profile(chosen, {s: subject[s] for s in asks if s in subject}, at, reach)
                memo[whom] = -1 if asks or placed else mine
            found.append(mine)
        return found

    def _profile(self, rules: list[Rule], subject: Mapping[str, Value], origin: Constant, reach: _Reach) -> int:
        reached = tuple((id, reach.of(id)) for id in rules)
        key = (
            tuple((_identity(rule), reach.sizes(types)) for rule, types in reached),
            tuple((n, type(v), repr(v)) for n, v in sorted(subject.items())),
            origin.value,
        )
        if key not in self.profile_numbers:
            self.profile_numbers[key] = len(self.entries)
            self.entries.append(self._lower(reached, subject, origin, reach.state))
        return self.profile_numbers[key]

    def _lower(
        self,
        reached: tuple[tuple[Rule, Mapping[int, str]], ...],
        subject: Mapping[str, Value],
        origin: Constant,
        state: State,
    ) -> dict[int, list[tuple[bool, bool, list[int], int]]]:
        entries: dict[int, list[tuple[bool, bool, list[int], int]]] = {}
        names = list(state.types.every)
        for rule, types in reached:
            grant = rule.effect is Effect.GRANT
            for number, named in types.items():
                kinds = state.types.attributes(named)
                everything = state.types.attributes(names[number])
                bits = state.types.bits(names[number])
                covers = covered(rule, kinds) if grant or rule.attributes is not None else everything
                mask = mask_of([bits[name] for name in covers], self.words)
                condition = bind(condition_for(rule, kinds), subject, kinds, origin)
                asked = self._condition(condition, grant, named, names.index(named), state)
                entries.setdefault(number, []).append((grant, rule.whole_event, mask, asked))
        return entries

    def _condition(self, condition: Condition, want: bool, named: str, number: int, state: State) -> int:
        if condition == TRUE:
            return ALWAYS
        kinds = state.types.attributes(named)
        key = (condition, _constant_kinds(condition), want, number, len(kinds))  # attributes are only gained
        if key not in self.condition_numbers:
            mine = len(self.condition_numbers)
            self.condition_numbers[key] = mine
            for row in rows_of(condition, want, places(state.types, named), self.words):
                self.table.add(row, mine, number)
        return self.condition_numbers[key]

    def build(self, types: int) -> Rights:
        """All of it as arrays."""
        fresh = self.table.take()
        if fresh:
            self.shapes = merged([*self.shapes, *fresh])
        flat: list[tuple[int, list[tuple[bool, bool, list[int], int]]]] = sorted(
            (profile * types + number, listed)
            for profile, by_type in enumerate(self.entries)
            for number, listed in by_type.items()
        )
        lengths = [len(listed) for _, listed in flat]
        every = [entry for _, listed in flat for entry in listed]
        owners = [shape.owner for shape in self.shapes]
        owner = np.concatenate(owners) if owners else np.zeros(0, np.int32)
        shape = np.concatenate([np.full(len(o), n, np.int32) for n, o in enumerate(owners)]) if owners else owner
        row = np.concatenate([np.arange(len(o), dtype=np.int32) for o in owners]) if owners else owner
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(len(self.condition_numbers) + 1))
        return Rights(
            np.array([key for key, _ in flat], np.int64),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.array([grant for grant, _, _, _ in every], np.bool_),
            np.array([whole for _, whole, _, _ in every], np.bool_),
            np.array([mask for _, _, mask, _ in every], np.uint64).reshape(len(every), self.words),
            np.array([condition for _, _, _, condition in every], np.int64),
            starts.astype(np.int64),
            shape[order],
            row[order],
            self.shapes,
            self.table.known,
            list(self.table.rests),
        )


class _Reach:
    """Which types each rule takes in at a state, and through which named type (D3, D4)."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._names = list(state.types.every)
        self._memo: dict[str, Mapping[int, str]] = {}

    def of(self, rule: Rule) -> Mapping[int, str]:
        """The types a rule takes in: number to named type."""
        if rule.id not in self._memo:
            found = {}
            for number, name in enumerate(self.state.types.every):
                if name not in self.state.types:
                    continue
                named = named_type(self.state, rule, Action.SUBSCRIBE, name)
                if named is not None:
                    found[number] = named
            self._memo[rule.id] = found
        return self._memo[rule.id]

    def sizes(self, types: Mapping[int, str]) -> tuple[tuple[int, str, int, int], ...]:
        """The types taken in, each with how many attributes it and the named type have by now."""
        catalog = self.state.types
        return tuple(
            (number, named, len(catalog.attributes(self._names[number])), len(catalog.attributes(named)))
            for number, named in types.items()
        )


def _identity(rule: Rule) -> Any:
    forced = tuple((n, type(v), repr(v)) for n, v in rule.forced.items())
    return (rule.type, rule.where, _constant_kinds(rule.where), rule.attributes, forced, rule.effect)


def _constant_kinds(condition: Condition) -> str:
    """Tells 1 from 1.0 and true, which Python takes for equal."""
    return repr(condition)


def _closure(state: State) -> Any:
    """The groups of a principal, with the memberships turned round once."""
    direct: dict[str, set[str]] = {}
    for group, members in state.groups.items():
        for member in members:
            direct.setdefault(member, set()).add(group)
    memo: dict[str, frozenset[str]] = {}

    def groups(member: str) -> frozenset[str]:
        if member not in memo:
            found: set[str] = set()
            for group in direct.get(member, ()):
                found |= {group} | groups(group)
            memo[member] = frozenset(found)
        return memo[member]

    return groups
