"""From the ledger to a `PolicyIndex`, kept up to date as versions come.

Guarantees: the index at a version is the same whether it was built at once or step by step. New subscriptions are
built apart and merged in now and then, so a change costs about as much as the change, not the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from headgate.decide.normal import clauses
from headgate.model.conditions import TRUE, Condition, InGroup, Related, atoms
from headgate.model.rights import Action, Subscription
from headgate.model.state import State
from headgate.model.values import INT_MIN, micros
from headgate.pipeline.event_policy.clients import EventPolicies
from headgate.pipeline.event_policy.compiled import Holder
from headgate.pipeline.index.index import OPEN, Epoch, PolicyIndex, Subscriptions, Types
from headgate.pipeline.index.layout import layouts, words_for
from headgate.pipeline.index.profiles import RightsBuilder
from headgate.pipeline.index.requirements import NONE, Sets, text_of
from headgate.pipeline.index.rows import lower
from headgate.pipeline.index.shapes import Shape, ShapeTable, merged


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
        self.holders: dict[Holder, int] = {}
        self.sets = Sets()
        self.demand_numbers: dict[str, int] = {}
        self.demands: list[Condition] = []
        self.requires: list[int] = []
        self.filters = ShapeTable()
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
        self.rights = RightsBuilder(self.words)
        self.policies = EventPolicies(self.words)
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
            self.words, self.rights, self.policies = words, RightsBuilder(words), EventPolicies(words)
        if through > self.version:
            self._follow(latest, through)
        needed = self._epochs_needed(since, through)
        self._make_epochs(needed)
        self._since = since
        epochs = [self.epochs[v] for v in needed]
        with_policy = [epoch for epoch in epochs if epoch.policy_facts is not None]
        self._made = PolicyIndex(
            through,
            _types(latest, words),
            self._subscriptions(),
            [shape for segment in self.segments for shape in segment],
            self.filters.known,
            list(self.filters.rests),
            self.rights.build(len(every)),
            epochs,
            self.predicate_sources,
            list(self.sets.held),
            list(self.demands),
            self.policies.keep((e.policy for e in with_policy), (e.policy_facts for e in with_policy)),
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
        counted = None if new.counted is None else tuple(sorted(set(new.counted)))
        self.owner_of.append(self.holders.setdefault((new.principal, new.origin, counted), len(self.holders)))
        self.requires.append(NONE if new.requires is None else self._demand(new.requires))
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

    def _demand(self, requires: Condition) -> int:
        """The number of what a subscription requires of publishers."""
        text = text_of(requires)
        if text not in self.demand_numbers:
            self.demand_numbers[text] = len(self.demands)
            self.demands.append(requires)
        return self.demand_numbers[text]

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
            if epoch is None or len(epoch.profile) < len(self.holders) or (self.demands and not epoch.has_senders):
                epoch = self._epoch(self.ledger.state(version, subscriptions=False), epoch)
            kept[version] = epoch
        self.epochs = kept

    def _epoch(self, state: State, known: Epoch | None) -> Epoch:
        """The policy at a state; holders known already keep their profiles, attributes and classes."""
        old = 0 if known is None else len(known.profile)
        holders = list(self.holders)[old:]
        profile = np.array(self.rights.profiles(state, holders), np.int32)
        numbers = [self.sets.number(state.principals.get(principal, {})) for principal, _, _ in holders]
        subject = np.array(numbers, np.int32)
        senders = {who: self.sets.number(one) for who, one in state.principals.items() if one} if self.demands else {}
        if known is not None:
            clients = known.clients
            if known.policy_facts is not None:
                clients = np.concatenate([clients, self.policies.numbers(known.policy, state, holders)])
            return replace(
                known,
                clients=clients,
                profile=np.concatenate([known.profile, profile]),
                subject=np.concatenate([known.subject, subject]),
                senders=senders,
                has_senders=bool(self.demands),
            )
        policy, policy_facts = self.policies.of(state) or (0, None)
        clients = np.zeros(0, np.int32)
        if policy_facts is not None:
            clients = self.policies.numbers(policy, state, holders)
        groups: set[str] = set()
        relations: set[str] = set()
        for condition in self._conditions(state):
            for atom in atoms(condition):
                if isinstance(atom, InGroup):
                    groups.add(atom.group)
                elif isinstance(atom, Related):
                    relations.add(atom.name)
        named = groups | (state.open_names & state.groups.keys())
        return Epoch(
            state.version,
            profile,
            subject,
            state.policy_rules,
            senders,
            bool(self.demands),
            {g: state.members_of(g) for g in named},
            {
                r: state.relations.get(r, frozenset())  # a certificate may name what is not there
                for r in relations | (state.open_names & state.relations.keys())
            },
            state.predicates,
            policy,
            policy_facts,
            clients,
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
            np.array(self.requires, np.int32),
        )


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
