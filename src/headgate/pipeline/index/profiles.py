"""From rules to ordered entries: the rights of every holder, each distinct profile once.

Guarantees: a holder is a principal where it was when it subscribed. Those whose entries are the same, and who have the
same attributes and origin wherever a condition asks for one, share a profile. A rule for a role is an entry for each
membership that it means; those whose arguments no condition asks for, or that agree in them, count once. Entries of
chains are lowered like all others: what they force outside their attributes is a condition, and what does not fit a
type's kinds is unknown. They stand last, so that event policy can come between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from headgate.decide.bind import bind
from headgate.decide.rolebook import as_value, fit
from headgate.decide.views import condition_for, covered, named_type
from headgate.model.conditions import TRUE, Condition, Constant, names_meta, subjects
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import State
from headgate.model.values import Value
from headgate.pipeline.event_policy.compiled import Holder
from headgate.pipeline.index.index import ALWAYS, Rights
from headgate.pipeline.index.layout import mask_of, places
from headgate.pipeline.index.rows import rows_of
from headgate.pipeline.index.shapes import Shape, ShapeTable, merged

Lowered: TypeAlias = tuple[bool, bool, list[int], int]
"""An entry on a type: does it grant, does it cover the event itself, its attributes, and its condition."""


@dataclass(frozen=True, slots=True)
class _Spoken:
    """A subscribe rule, in its place among all, with what its condition asks of whom it speaks to."""

    place: int
    rule: Rule
    asks: tuple[str, ...]
    placed: bool
    identity: Any

    def given(self, arguments: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
        """The arguments of a role that the condition asks for."""
        return tuple((name, arguments[name]) for name in self.asks if name in arguments)


Entry: TypeAlias = tuple[_Spoken, tuple[tuple[str, Value], ...]]
"""A rule that speaks to a holder, and what it is given as the arguments of a role."""


class RightsBuilder:
    """Profiles, entries and conditions, each kept once."""

    def __init__(self, words: int) -> None:
        self.words = words
        self.table = ShapeTable()
        self.condition_numbers: dict[Any, int] = {}
        self.condition_rows: list[int] = []
        self.profile_numbers: dict[Any, int] = {}
        self.entries: list[dict[int, tuple[list[Lowered], list[Lowered]]]] = []
        self.shapes: list[Shape] = []

    def profiles(self, state: State, holders: Sequence[Holder]) -> list[int]:
        """The profile of each holder at a state."""
        spoken, by_role = _spoken(state)
        reach = _Reach(state)
        groups = _closure(state)
        entries = _Entries(state, by_role)
        memo: dict[Any, int] = {}
        profiles = []
        for principal, origin, _ in holders:
            whom = frozenset(who for who in (*groups(principal), principal) if who in spoken)
            roles = entries.of_roles(principal)
            key = whom, tuple((one.place, _exact(given)) for one, given in roles)
            mine = memo.get(key)
            if mine is None or mine < 0:
                plain = ((one, ()) for who in whom for one in spoken[who])
                chosen = sorted((*plain, *roles), key=lambda entry: entry[0].place)  # stable: memberships in order
                asks = {s for one, given in chosen for s in one.asks if s not in dict(given)}
                subject = state.principals.get(principal, {})
                placed = any(one.placed for one, _ in chosen)
                at = Constant(origin if placed else None)
                mine = self._profile(chosen, {s: subject[s] for s in sorted(asks) if s in subject}, at, reach)
                memo[key] = -1 if asks or placed else mine
            profiles.append(mine)
        return profiles

    def _profile(self, entries: list[Entry], subject: Mapping[str, Value], origin: Constant, reach: _Reach) -> int:
        key = (
            tuple((one.identity, reach.sizes(one.rule), _exact(given)) for one, given in entries),
            tuple((n, type(v), repr(v)) for n, v in sorted(subject.items())),
            origin.value,
        )
        if key not in self.profile_numbers:
            self.profile_numbers[key] = len(self.entries)
            self.entries.append(self._lower(entries, subject, origin, reach))
        return self.profile_numbers[key]

    def _lower(
        self, entries: list[Entry], subject: Mapping[str, Value], origin: Constant, reach: _Reach
    ) -> dict[int, tuple[list[Lowered], list[Lowered]]]:
        """The entries on each type: those of rules, and those of chains."""
        lowered: dict[int, tuple[list[Lowered], list[Lowered]]] = {}
        state, names, numbers = reach.state, reach.names, reach.numbers
        for one, given in entries:
            rule = one.rule
            grant = rule.effect is Effect.GRANT
            for number, named in reach.of(rule).items():
                kinds = state.types.attributes(named)
                everything = state.types.attributes(names[number])
                bits = reach.bits(number)
                covers = covered(rule, kinds) if grant or rule.attributes is not None else everything
                mask = mask_of([bits[name] for name in covers], self.words)
                condition = bind(condition_for(rule, kinds), {**subject, **dict(given)}, kinds, origin)
                asked = self._condition(condition, grant, named, numbers[named], state)
                listed = lowered.setdefault(number, ([], []))[rule.source is Source.CHAIN]
                listed.append((grant, rule.whole_event, mask, asked))
        return lowered

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
        flat: list[tuple[int, tuple[list[Lowered], list[Lowered]]]] = sorted(
            (profile * types + number, listed)
            for profile, by_type in enumerate(self.entries)
            for number, listed in by_type.items()
        )
        lengths = [len(rules) + len(chains) for _, (rules, chains) in flat]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        every = [entry for _, (rules, chains) in flat for entry in (*rules, *chains)]
        owners = [shape.owner for shape in self.shapes]
        owner = np.concatenate(owners) if owners else np.zeros(0, np.int32)
        shape = np.concatenate([np.full(len(o), n, np.int32) for n, o in enumerate(owners)]) if owners else owner
        row = np.concatenate([np.arange(len(o), dtype=np.int32) for o in owners]) if owners else owner
        order = np.argsort(owner, kind="stable")
        clauses = np.searchsorted(owner[order], np.arange(len(self.condition_numbers) + 1))
        return Rights(
            np.array([key for key, _ in flat], np.int64),
            starts,
            starts[:-1] + np.array([len(rules) for _, (rules, _) in flat], np.int64),
            np.array([grant for grant, _, _, _ in every], np.bool_),
            np.array([whole for _, whole, _, _ in every], np.bool_),
            np.array([mask for _, _, mask, _ in every], np.uint64).reshape(len(every), self.words),
            np.array([condition for _, _, _, condition in every], np.int64),
            clauses.astype(np.int64),
            shape[order],
            row[order],
            self.shapes,
            self.table.known,
            list(self.table.rests),
        )


def _spoken(state: State) -> tuple[dict[str, list[_Spoken]], dict[str, list[_Spoken]]]:
    """The subscribe rules by whom they speak to, and by the role that they speak to."""
    whom: dict[str, list[_Spoken]] = {}
    roles: dict[str, list[_Spoken]] = {}
    for position, rule in enumerate(state.rules):
        if Action.SUBSCRIBE in rule.actions:
            asks, placed = tuple(sorted(subjects(rule.where))), names_meta(rule.where, "origin")
            spoken = _Spoken(position, rule, asks, placed, _identity(rule))
            if rule.role is None:
                whom.setdefault(rule.who, []).append(spoken)
            else:
                roles.setdefault(rule.role.role, []).append(spoken)
    return whom, roles


class _Entries:
    """The entries that roles give: each rule of a role for each membership that it means, in order."""

    def __init__(self, state: State, by_role: Mapping[str, list[_Spoken]]) -> None:
        self._state = state
        self._by_role = by_role

    def of_roles(self, principal: str) -> list[Entry]:
        """Those of one principal; equal ones of one rule once, since the first of them decides what they cover."""
        if not self._by_role:
            return []
        entries: dict[Any, Entry] = {}
        for membership in self._state.roles.held_by(principal):
            for spoken in self._by_role.get(membership.role, ()):
                assert spoken.rule.role is not None
                bound = fit(spoken.rule.role, membership, {})
                if bound is not None:
                    given = spoken.given({name: as_value(value) for name, value in bound.items()})
                    entries.setdefault((spoken.place, _exact(given)), (spoken, given))
        return sorted(entries.values(), key=lambda entry: entry[0].place)


def _exact(given: Iterable[tuple[str, Value]]) -> tuple[tuple[str, type, str], ...]:
    return tuple((name, type(value), repr(value)) for name, value in given)


class _Reach:
    """Which types each rule takes in at a state, and through which named type (D3, D4)."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.names = list(state.types.every)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self._memo: dict[str, Mapping[int, str]] = {}
        self._sizes: dict[str, tuple[tuple[int, str, int, int], ...]] = {}
        self._bits: dict[int, Mapping[str, int]] = {}

    def of(self, rule: Rule) -> Mapping[int, str]:
        """The types a rule takes in: number to named type."""
        if rule.id not in self._memo:
            reached = {}
            for number, name in enumerate(self.names):
                if name not in self.state.types:
                    continue
                named = named_type(self.state, rule, Action.SUBSCRIBE, name)
                if named is not None:
                    reached[number] = named
            self._memo[rule.id] = reached
        return self._memo[rule.id]

    def sizes(self, rule: Rule) -> tuple[tuple[int, str, int, int], ...]:
        """The types taken in, each with how many attributes it and the named type have by now."""
        if rule.id not in self._sizes:
            catalog = self.state.types
            self._sizes[rule.id] = tuple(
                (number, named, len(catalog.attributes(self.names[number])), len(catalog.attributes(named)))
                for number, named in self.of(rule).items()
            )
        return self._sizes[rule.id]

    def bits(self, number: int) -> Mapping[str, int]:
        """The bit of each attribute of a type."""
        if number not in self._bits:
            self._bits[number] = self.state.types.bits(self.names[number])
        return self._bits[number]


def _identity(rule: Rule) -> Any:
    forced = tuple((n, type(v), repr(v)) for n, v in rule.forced.items())
    chain = rule.source is Source.CHAIN
    return (rule.type, rule.where, _constant_kinds(rule.where), rule.attributes, forced, rule.effect, chain)


def _constant_kinds(condition: Condition) -> str:
    """Tells 1 from 1.0 and true, which Python takes for equal."""
    return repr(condition)


def _closure(state: State) -> Callable[[str], frozenset[str]]:
    """The groups of a principal, with the memberships turned round once."""
    direct: dict[str, set[str]] = {}
    for group, members in state.groups.items():
        for member in members:
            direct.setdefault(member, set()).add(group)
    memo: dict[str, frozenset[str]] = {}

    def groups(member: str) -> frozenset[str]:
        if member not in memo:
            reached: set[str] = set()
            for group in direct.get(member, ()):
                reached |= {group} | groups(group)
            memo[member] = frozenset(reached)
        return memo[member]

    return groups
