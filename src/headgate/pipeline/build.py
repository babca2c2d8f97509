"""From the ledger to a `PolicyIndex`, kept up to date as versions come.

Guarantees: the index at a version is the same whether it was built at once or step by step. New subscriptions are
built apart and merged in now and then, so a change costs about as much as the change, not the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from headgate.decide.bind import bind, subjects
from headgate.decide.normal import clauses
from headgate.decide.views import condition_for, covered, named_type
from headgate.model.conditions import TRUE, Condition, InGroup, Related, atoms
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.state import State
from headgate.model.values import INT_MIN, Value, micros
from headgate.pipeline.index import ALWAYS, OPEN, Epoch, PolicyIndex, Rights, Subscriptions, Types
from headgate.pipeline.layout import layouts, mask_of, places, words_for
from headgate.pipeline.rows import lower
from headgate.pipeline.shapes import Shape, Table, merged


class LedgerView(Protocol):
    """What the index needs of a ledger."""

    @property
    def version(self) -> int:
        """The newest version."""

    def state(self, version: int, *, subscriptions: bool) -> State:
        """The state at a version, with or without its subscriptions."""

    def policy_versions(self, after: int, through: int) -> list[int]:
        """The versions in `(after, through]` that changed more than subscriptions."""

    def subscriptions(self, after: int, through: int) -> Any:
        """The subscriptions opened and closed in `(after, through]`, in order."""


class IndexBuilder:
    """Follows a ledger and builds indexes of it."""

    def __init__(self, ledger: LedgerView, predicate_sources: Mapping[str, str] | None = None) -> None:
        self.ledger = ledger
        self.predicate_sources = predicate_sources if predicate_sources is not None else {}
        self._reset()

    def _reset(self) -> None:
        self.version = 0
        self.words = 1
        self.principals: dict[str, int] = {}
        self.filters = Table()
        self.segments: list[list[Shape]] = []
        self.owner_of: list[int] = []
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.history: list[bool] = []
        self.since_version: list[int] = []
        self.since_time: list[int] = []
        self.several: list[bool] = []
        self.names: list[tuple[str, int]] = []
        self.numbers: dict[tuple[str, int], int] = {}
        self.rights = _RightsBuilder(self.words)
        self.epochs: dict[int, Epoch] = {}
        self._made: PolicyIndex | None = None
        self._since = 0

    def index(self, since: int, through: int) -> PolicyIndex:
        """The index for events of versions `since` to `through`, and history asked for by then."""
        if self._made is not None and through == self._made.version and since >= self._since:
            return self._made
        latest = self.ledger.state(through, subscriptions=False)
        every = latest.types.every
        words = words_for(1 + max((bit for t in every.values() for bit in t.bits.values()), default=0))
        if words != self.words or through < self.version:
            self._reset()
            self.words, self.rights = words, _RightsBuilder(words)
        if through > self.version:
            self._follow(latest, through)
        needed = self._epochs_needed(since, through)
        self._make_epochs(needed)
        self._since = since
        self._made = PolicyIndex(
            through,
            _types(latest, words),
            self._subscriptions(),
            [shape for segment in self.segments for shape in segment],
            self.filters.known,
            list(self.filters.rests),
            self.rights.build(len(every)),
            [self.epochs[v] for v in needed],
            self.predicate_sources,
        )
        return self._made

    def _follow(self, latest: State, through: int) -> None:
        """Take in the subscriptions that opened and closed."""
        changes = self.ledger.subscriptions(self.version, through)
        places = layouts(latest.types)
        numbers = {name: n for n, name in enumerate(latest.types.every)}
        for new in changes.opened:
            self._open(new, places, numbers)
        for id, first, closed_at in changes.closed:
            self.closed[self.numbers[id, first]] = closed_at
        fresh = self.filters.take()
        if fresh:
            self.segments.append([shape.index() for shape in fresh])
        if len(self.segments) > 8 or sum(map(_size, self.segments[1:])) > _size(
            self.segments[0] if self.segments else []
        ):
            every = merged([shape for segment in self.segments for shape in segment])
            self.segments = [[shape.index() for shape in every]]
        self.version = through

    def _open(self, new: Subscription, places: Mapping[str, Any], numbers: Mapping[str, int]) -> None:
        number = len(self.names)
        self.names.append((new.id, new.first))
        self.numbers[new.id, new.first] = number
        self.owner_of.append(self.principals.setdefault(new.principal, len(self.principals)))
        self.opened.append(new.first)
        self.closed.append(int(OPEN))
        self.history.append(new.history)
        self.since_version.append(new.since_version)
        self.since_time.append(INT_MIN if new.since_time is None else micros(new.since_time))
        layout = places[new.type]
        kinds = {name: place.kind for name, place in layout.items()}
        rows = [row for clause in clauses(new.where, kinds) for row in lower(clause, layout, self.words)]
        for row in rows:
            self.filters.add(row, number, numbers[new.type])
        self.several.append(len(rows) > 1)

    def _epochs_needed(self, since: int, through: int) -> list[int]:
        """The first versions of the epochs that events may be decided in.

        History is decided at a later version than the event's, so its epochs are among them.
        """
        changed = self.ledger.policy_versions(0, through)
        return [max((v for v in changed if v <= since), default=0), *(v for v in changed if v > since)]

    def _make_epochs(self, needed: list[int]) -> None:
        kept = {}
        for version in needed:
            epoch = self.epochs.get(version)
            if epoch is None or len(epoch.profile) < len(self.principals):
                epoch = self._epoch(self.ledger.state(version, subscriptions=False), epoch)
            kept[version] = epoch
        self.epochs = kept

    def _epoch(self, state: State, known: Epoch | None) -> Epoch:
        """The policy at a state; principals known already keep their profiles."""
        old = np.zeros(0, np.int32) if known is None else known.profile
        new = self.rights.profiles(state, list(self.principals)[len(old) :])
        profile = np.concatenate([old, np.array(new, np.int32)])
        if known is not None:
            return replace(known, profile=profile)
        groups: set[str] = set()
        relations: set[str] = set()
        for condition in self._conditions(state):
            for atom in atoms(condition):
                if isinstance(atom, InGroup):
                    groups.add(atom.group)
                elif isinstance(atom, Related):
                    relations.add(atom.relation)
        named = groups | (state.open_names & state.groups.keys())
        return Epoch(
            state.version,
            profile,
            {g: state.members_of(g) for g in named},
            {r: state.relations[r] for r in relations | (state.open_names & state.relations.keys())},
            state.predicates,
        )

    @staticmethod
    def _conditions(state: State) -> list[Condition]:
        return [r.where for r in state.rules if r.where != TRUE and Action.SUBSCRIBE in r.actions]

    def _subscriptions(self) -> Subscriptions:
        return Subscriptions(
            np.array(self.owner_of, np.int32),
            np.array(self.opened, np.int64),
            np.array(self.closed, np.int64),
            np.array(self.history, np.bool_),
            np.array(self.since_version, np.int64),
            np.array(self.since_time, np.int64),
            np.array(self.several, np.bool_),
        )


class _RightsBuilder:
    """Profiles, entries and conditions, each kept once."""

    def __init__(self, words: int) -> None:
        self.words = words
        self.table = Table()
        self.condition_numbers: dict[Any, int] = {}
        self.condition_rows: list[int] = []
        self.profile_numbers: dict[Any, int] = {}
        self.entries: list[dict[int, list[tuple[bool, bool, list[int], int]]]] = []
        self.shapes: list[Shape] = []

    def profiles(self, state: State, principals: list[str]) -> list[int]:
        """The profile of each principal at a state."""
        rules = [r for r in state.rules if Action.SUBSCRIBE in r.actions]
        named = {r.who for r in rules}
        reach = _Reach(state)
        groups = _closure(state)
        memo: dict[Any, int] = {}
        found = []
        for principal in principals:
            whom = frozenset(groups(principal) & named) | ({principal} & named)
            mine = memo.get(whom)
            if mine is None or mine < 0:
                chosen = [r for r in rules if r.who in whom]
                asks = sorted({s for r in chosen for s in subjects(r.where)})
                subject = state.principals.get(principal, {})
                mine = self._profile(chosen, {s: subject[s] for s in asks if s in subject}, reach)
                memo[whom] = -1 if asks else mine
            found.append(mine)
        return found

    def _profile(self, rules: list[Rule], subject: Mapping[str, Value], reach: _Reach) -> int:
        reached = tuple((id, reach.of(id)) for id in rules)
        key = (
            tuple((_identity(rule), reach.sizes(types)) for rule, types in reached),
            tuple((n, type(v), repr(v)) for n, v in sorted(subject.items())),
        )
        if key not in self.profile_numbers:
            self.profile_numbers[key] = len(self.entries)
            self.entries.append(self._lower(reached, subject, reach.state))
        return self.profile_numbers[key]

    def _lower(
        self, reached: tuple[tuple[Rule, Mapping[int, str]], ...], subject: Mapping[str, Value], state: State
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
                condition = bind(condition_for(rule, kinds), subject, kinds)
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
            layout = places(state.types, named)
            for clause in clauses(condition, kinds, want=want):
                for row in lower(clause, layout, self.words):
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


def _size(segment: list[Shape]) -> int:
    return sum(map(len, segment))


def _types(state: State, words: int) -> Types:
    names = list(state.types.every)
    numbers = {name: n for n, name in enumerate(names)}
    placed = layouts(state.types)
    lines = [[numbers[a] for a in state.types.lineage(name)] for name in names]
    depth = max(map(len, lines), default=1)
    lineage = np.full((len(names), depth), -1, np.int32)
    for number, line in enumerate(lines):
        lineage[number, : len(line)] = line
    slots = sorted({place.slot for layout in placed.values() for place in layout.values()})
    at = {slot: n for n, slot in enumerate(slots)}
    bits = np.full((len(names), len(slots)), -1, np.int32)
    for number, name in enumerate(names):
        for place in placed[name].values():
            bits[number, at[place.slot]] = place.bit
    return Types(names, numbers, [placed[name] for name in names], lineage, words, slots, bits)
