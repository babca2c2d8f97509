"""From the ledger to a `PolicyIndex`, kept up to date as versions come.

Guarantees: the index at a version is the same whether it was built at once or step by step. New subscriptions are
built apart and merged in now and then, so a change costs about as much as the change, not the whole.
A holder is a principal where it was when it subscribed. Those whose entries are the same, and who have the same
attributes and origin wherever a condition asks for one, share a profile. A rule for a role is an entry for each
membership that it means; those whose arguments no condition asks for, or that agree in them, count once. Entries of
chains are lowered like all others: what they force outside their attributes is a condition, and what does not fit a
type's kinds is unknown. They stand last, so that event policy can come between.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from headgate.decide.deliver import looked_for
from headgate.decide.normal import bind, clauses
from headgate.decide.rolebook import as_value, fit
from headgate.decide.views import condition_for, covered, named_type
from headgate.model.expressions import TRUE, Condition, Constant, InGroup, Related, atoms, names_meta, subjects
from headgate.model.rights import Action, Effect, Rule, Source, Subscription
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import INT_MIN, Value, micros
from headgate.pipeline.agreement import Sets
from headgate.pipeline.event_policy.clients import EventPolicies
from headgate.pipeline.event_policy.compiled import Holder
from headgate.pipeline.index.index import (
    ALWAYS,
    OPEN,
    Epoch,
    PolicyIndex,
    Rights,
    Shape,
    ShapeTable,
    Subscriptions,
    Types,
    lower,
    merged,
    rows_of,
)
from headgate.pipeline.index.requirements import NONE, text_of
from headgate.pipeline.log.codec import Numbered, layouts, mask_of, places, words_for

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
        memo: dict[Any, int] = {}
        profiles = []
        for principal, origin, _ in holders:
            whom = frozenset(who for who in (*groups(principal), principal) if who in spoken)
            roles = _role_entries(state, by_role, principal)
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
        key = (condition, repr(condition), want, number, len(kinds))  # attributes are only gained
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


def _role_entries(state: State, by_role: Mapping[str, list[_Spoken]], principal: str) -> list[Entry]:
    """The entries that roles give a principal: each rule of a role for each membership that it means, in order.

    Equal ones of one rule count once, since the first of them decides what they cover.
    """
    entries: dict[Any, Entry] = {}
    for membership in state.roles.held_by(principal) if by_role else ():
        for spoken in by_role.get(membership.role, ()):
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
        self.bits = cache(lambda number: state.types.bits(self.names[number]))
        self._counts = {name: len(state.types.attributes(name)) for name in self.names if name in state.types}
        self._memo: dict[str, Mapping[int, str]] = {}
        self._sizes: dict[str, tuple[tuple[int, str, int, int], ...]] = {}

    def of(self, rule: Rule) -> Mapping[int, str]:
        """The types a rule takes in: number to named type."""
        if rule.id not in self._memo:
            known = ((n, name) for n, name in enumerate(self.names) if name in self.state.types)
            reached = {n: named_type(self.state, rule, Action.SUBSCRIBE, name) for n, name in known}
            self._memo[rule.id] = {n: named for n, named in reached.items() if named is not None}
        return self._memo[rule.id]

    def sizes(self, rule: Rule) -> tuple[tuple[int, str, int, int], ...]:
        """The types taken in, each with how many attributes it and the named type have by now."""
        if rule.id not in self._sizes:
            reached, counts = self.of(rule).items(), self._counts
            self._sizes[rule.id] = tuple((n, named, counts[self.names[n]], counts[named]) for n, named in reached)
        return self._sizes[rule.id]


def _identity(rule: Rule) -> Any:
    forced = tuple((n, type(v), repr(v)) for n, v in rule.forced.items())
    chain = rule.source is Source.CHAIN
    return (rule.type, rule.where, repr(rule.where), rule.attributes, forced, rule.effect, chain)


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


_SUBSCRIPTION: Final[Mapping[str, type]] = {
    "holder": np.int32,
    "opened": np.int64,
    "closed": np.int64,
    "history": np.bool_,
    "since_version": np.int64,
    "since_time": np.int64,
    "several": np.bool_,
    "requires": np.int32,
}
"""What is kept of each subscription."""

FAR_SMALLER: Final = 4
"""A segment of filters has at least so many times the rows of the next."""


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
    """Follows a ledger and builds indexes of it: of its subscriptions to events, or of its detections.

    The others keep their numbers, and nothing is found for them.
    """

    def __init__(
        self, ledger: LedgerView, predicate_sources: Mapping[str, str] | None = None, *, detections: bool = False
    ) -> None:
        self.ledger = ledger
        self.detections = detections
        self.predicate_sources = predicate_sources if predicate_sources is not None else {}
        self._reset()

    def _reset(self) -> None:
        self.version = 0
        self.words = 1
        self.holders: dict[Holder, int] = {}
        self.sets = Sets()
        self.demands: Numbered[Condition] = Numbered()
        self.filters = ShapeTable()
        self.segments: list[list[Shape]] = []
        self.columns = {name: array("b" if kind is np.bool_ else "q") for name, kind in _SUBSCRIPTION.items()}
        self.numbers: dict[tuple[str, int], int] = {}
        self.rights = RightsBuilder(self.words)
        self.policies = EventPolicies(self.words)
        self.epochs: dict[int, Epoch] = {}
        self._opened: dict[int, Subscription] = {}
        self._types: tuple[Catalog, Types] | None = None
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
            self._types_of(latest.types),
            self._subscriptions(),
            [shape for segment in self.segments for shape in segment],
            self.filters.known,
            list(self.filters.rests),
            self.rights.build(len(every)),
            epochs,
            self.predicate_sources,
            list(self.sets),
            list(self.demands),
            self.policies.keep((e.policy for e in with_policy), (e.policy_facts for e in with_policy)),
            [principal for principal, _, _ in self.holders],
        )
        return self._made

    def take_opened(self) -> Mapping[int, Subscription]:
        """The detections, by number, that have come into the index since this was asked last, or that came again."""
        opened, self._opened = self._opened, {}
        return opened

    def _types_of(self, catalog: Catalog) -> Types:
        """The types, the same object while they are the same."""
        if self._types is None or self._types[0] is not catalog:
            self._types = catalog, types_of(catalog, self.words)
        return self._types[1]

    def _follow(self, latest: State, through: int) -> None:
        """Take in the subscriptions that opened and closed."""
        changes = self.ledger.subscriptions(self.version, through)
        places = layouts(latest.types)
        numbers = {name: n for n, name in enumerate(latest.types.every)}
        for new in changes.opened:
            if (new.detection is not None) is self.detections:
                if self.detections:
                    self._opened[len(self.columns["opened"])] = new
                self._open(new, latest.types, places, numbers)
            else:
                self._pass_over(new)
        for id, first, closed_at in changes.closed:
            self.columns["closed"][self.numbers[id, first]] = closed_at
        fresh = self.filters.take()
        if fresh:
            self.segments.append([shape.index() for shape in fresh])
        self._merge()
        self.version = through

    def _merge(self) -> None:
        """Put the last segments together until each is far smaller than the one before: few, and seldom made anew."""
        while len(self.segments) > 1:
            *_, before, last = (sum(map(len, segment)) for segment in self.segments)
            if before >= FAR_SMALLER * last:
                break
            small = self.segments.pop()
            self.segments[-1] = [shape.index() for shape in merged([*self.segments[-1], *small])]

    def _open(self, new: Subscription, types: Catalog, places: Mapping[str, Any], numbers: Mapping[str, int]) -> None:
        rows = 0
        for type, where in looked_for(new, types):
            layout = places[type]
            kinds = {name: place.kind for name, place in layout.items()}
            for row in (row for clause in clauses(where, kinds) for row in lower(clause, layout, self.words)):
                self.filters.add(row, len(self.columns["opened"]), numbers[type])
                rows += 1
        counted = None if new.counted is None else tuple(sorted(set(new.counted)))
        values = {
            "holder": self.holders.setdefault((new.principal, new.origin, counted), len(self.holders)),
            "opened": new.first,
            "closed": int(OPEN),
            "history": new.history,
            "since_version": new.since_version,
            "since_time": INT_MIN if new.since_time is None else micros(new.since_time),
            "several": rows > 1,
            "requires": NONE if new.requires is None else self.demands.number(text_of(new.requires), new.requires),
        }
        self._number(new, values)

    def _pass_over(self, new: Subscription) -> None:
        """Keep the number of what is not in this index; with no rows, nothing else of it is ever looked at."""
        self._number(new, {**dict.fromkeys(_SUBSCRIPTION, 0), "opened": new.first, "requires": NONE})

    def _number(self, new: Subscription, values: Mapping[str, int]) -> None:
        self.numbers[new.id, new.first] = len(self.columns["opened"])
        for name, value in values.items():
            self.columns[name].append(value)

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
                state = self.ledger.state(version, subscriptions=False)
                epoch = self._with_holders(epoch or self._epoch(state), state)
            kept[version] = epoch
        self.epochs = kept

    def _epoch(self, state: State) -> Epoch:
        """The policy at a state, for nobody yet."""
        policy, policy_facts = self.policies.of(state) or (0, None)
        rules = [rule for rule in state.rules if Action.SUBSCRIBE in rule.actions]
        looked_at = [atom for rule in rules for atom in atoms(rule.where)]
        groups = {atom.group for atom in looked_at if isinstance(atom, InGroup)}
        relations = {atom.name for atom in looked_at if isinstance(atom, Related)}
        relations |= state.open_names & state.relations.keys()
        nobody = np.zeros(0, np.int32)
        return Epoch(
            version=state.version,
            profile=nobody,
            subject=nobody,
            clients=nobody,
            policy_rules=state.policy_rules,
            senders={},
            has_senders=False,
            groups={name: state.members_of(name) for name in groups | (state.open_names & state.groups.keys())},
            # A certificate may name what is not there.
            relations={name: state.relations.get(name, frozenset()) for name in relations},
            predicates=state.predicates,
            policy=policy,
            policy_facts=policy_facts,
        )

    def _with_holders(self, epoch: Epoch, state: State) -> Epoch:
        """An epoch for all holders; those it knows already keep their profiles, attributes and classes."""
        holders = list(self.holders)[len(epoch.profile) :]
        more = {
            "profile": self.rights.profiles(state, holders),
            "subject": [self.sets.number_of(state.principals.get(principal, {})) for principal, _, _ in holders],
            "clients": () if epoch.policy_facts is None else self.policies.numbers(epoch.policy, state, holders),
        }
        known: dict[str, Any] = {
            name: np.concatenate([getattr(epoch, name), np.array(new, np.int32)]) for name, new in more.items()
        }
        senders = (
            {who: self.sets.number_of(one) for who, one in state.principals.items() if one} if self.demands else {}
        )
        return replace(epoch, **known, senders=senders, has_senders=bool(self.demands))

    def _subscriptions(self) -> Subscriptions:
        return Subscriptions(**{name: np.array(self.columns[name], kind) for name, kind in _SUBSCRIPTION.items()})


def types_of(catalog: Catalog, words: int) -> Types:
    """The types of a catalog, numbered, and where their attributes are."""
    names = list(catalog.every)
    numbers = {name: n for n, name in enumerate(names)}
    placed = layouts(catalog)
    lines = [[numbers[a] for a in catalog.lineage(name)] for name in names]
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
