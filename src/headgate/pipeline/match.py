"""Decide a batch of events against an index: who receives what, and what they see. All in columns.

Guarantees: the same deliveries as `decide`, for every event of the batch, in the order of the batch. The work is:
candidates by access key, exact verification, version, requirements (a look-up for each pair, and nothing at all where
there are none), view (ordered entries, by bit operations: rules, event policy, chains; without an event policy rules
and chains are one walk), and the filter again over the view. Pairs are made in bounded portions, so memory does not
grow with the number of candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.decide.truth import PredicateFunction
from headgate.model.events import Event
from headgate.model.expressions import Attribute, Meta
from headgate.model.values import Kind, moment
from headgate.pipeline.agreement import Agreed
from headgate.pipeline.event_policy.stages import CompiledStages, PairStanding, PolicyStages
from headgate.pipeline.index.index import ALWAYS, PolicyIndex, Rest, Shape, Types, expand
from headgate.pipeline.log.codec import (
    PUBLISHER,
    RATE,
    TIME,
    AttributeSlot,
    EventBatch,
    Flags,
    Ints,
    Slot,
    Words,
    restored,
)
from headgate.pipeline.truth import Column, ConditionFacts, Numbers, Same, Texts, asks_predicate, truth

PAIRS_AT_ONCE = 1 << 20
"""How many pairs of event and candidate row are held at a time."""


@dataclass
class DecisionWindow:
    """Which subscriptions a batch is decided for.

    Live events go to the subscriptions in force, and to those that ask for history up to `through`; a `backfill` only
    to those that asked for history in `(after, through]`.
    """

    after: int
    through: int
    backfill: bool = False


@dataclass
class Matches:
    """Deliveries: event row, subscription, what is visible of it, and the history they belong to (0: none)."""

    events: Ints
    subscriptions: npt.NDArray[np.int32]
    visible: Words
    parts: Ints


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of event and filter row: the event's row, the subscription, and the history it belongs to (0: none)."""

    events: Ints
    rows: npt.NDArray[np.int32]
    owners: npt.NDArray[np.int32]
    parts: Ints

    def where(self, keep: Flags) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.events[keep], self.rows[keep], self.owners[keep], self.parts[keep])


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Rows of a batch as a clause sees them: attributes where they are held, null what is not visible to a filter."""

    batch: EventBatch
    rows: Ints
    facts: ConditionFacts
    types: Types
    where: Mapping[str, AttributeSlot]
    visible: Words | None = None

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The attributes that the clause names, of those its type has (D3)."""
        return {name: place.kind for name, place in self.where.items()}

    def column(self, leaf: Attribute | Meta) -> Column:
        """An attribute, or what was stamped; the origin is bound before lowering."""
        match leaf:
            case Attribute(name) if name not in self.where:
                return Same(None)
            case Attribute(name):
                return self._slot(self.where[name].slot, self._there(self.where[name].bit))
            case Meta("time"):
                return self._slot(TIME, None)
            case Meta("rate"):
                return self._slot(RATE, self.batch.numbers(RATE)[self.rows] > 0)
            case Meta("publisher"):
                return self._slot(PUBLISHER, None)
            case _:
                raise TypeError(f"`{leaf}` is bound before lowering")

    def _slot(self, slot: Slot, there: Flags | None) -> Column:
        here = np.ones(len(self.rows), np.bool_) if there is None else there
        if slot.store not in "sy":
            return Numbers(self.batch.numbers(slot)[self.rows], here)
        indices = pa.array(self.rows, mask=None if self.visible is None else ~here)
        return Texts(self.batch.texts(slot).take(indices), here)

    def _there(self, bit: int) -> Flags:
        """The rows on which an attribute is neither null nor hidden."""
        there = ~_has_bit(self.batch.nulls[self.rows, bit >> 6], bit)
        return there if self.visible is None else there & _has_bit(self.visible[:, bit >> 6], bit)

    def events(self, rows: Ints) -> list[Event]:
        """Some of the rows as events, with what is visible of each."""
        chosen = self.rows[rows]
        taken = self.batch.table.take(pa.array(chosen)).to_pylist()
        return [self._event(at, row, held) for at, row, held in zip(rows.tolist(), chosen.tolist(), taken, strict=True)]

    def _event(self, at: int, row: int, held: Mapping[str, Any]) -> Event:
        number, values = int(self.batch.type[row]), {}
        for name, place in self.types.layouts[number].items():
            shown = self.visible is None or int(self.visible[at, place.bit >> 6]) >> (place.bit & 63) & 1
            values[name] = restored(held.get(place.slot.column), place.kind) if shown else None
        time = moment(int(self.batch.time[row]))
        return Event("", held["publisher"], self.types.names[number], values, time, rate=held.get("rate"))


def holds(part: Rest, frame: BatchRows) -> Flags:
    """Which of the rows meet this part of a clause?"""
    outcome = truth(part.condition, frame, np.ones(len(frame.rows), np.bool_))
    return outcome.true if part.want else outcome.false


def _has_bit(words: Words, bit: int) -> Flags:
    has: Flags = (words >> np.uint64(bit & 63) & np.uint64(1)).astype(np.bool_)
    return has


class Matcher:
    """Decides event batches against one index."""

    def __init__(self, index: PolicyIndex, functions: Mapping[str, PredicateFunction]) -> None:
        self.index = index
        self._agreed = Agreed(index)
        self.facts = [epoch.facts(functions) for epoch in index.epochs]
        self._policies = PolicyStages(index)
        self._epochs: tuple[EventBatch, Ints] | None = None
        self._filter_predicates = np.array(
            [any(asks_predicate(part.condition) for part in rest) for rest in index.rests], np.bool_
        )

    def match(self, batch: EventBatch, window: DecisionWindow) -> Matches:
        """Every delivery of the batch."""
        matched = [self._decide(batch, window, *pairs) for pairs in self._candidates(batch)]
        if not matched:
            empty = np.zeros(0, np.int64)
            return Matches(empty, empty.astype(np.int32), np.zeros((0, self.index.types.words), np.uint64), empty)
        events = np.concatenate([f.events for f in matched])
        owners = np.concatenate([f.subscriptions for f in matched])
        visible = np.concatenate([f.visible for f in matched])
        parts = np.concatenate([f.parts for f in matched])
        several = self.index.subscriptions.several
        key = events * np.int64(len(several)) + owners
        order = np.argsort(key, kind="stable")  # candidates come in long sorted runs, which this sort is made for
        if several[owners].any():
            key = key[order]
            order = order[np.concatenate([[True], key[1:] != key[:-1]])]
        return Matches(events[order], owners[order], visible[order], parts[order])

    # -- candidates -------------------------------------------------------------------------------------------

    def _candidates(self, batch: EventBatch) -> Iterator[tuple[Shape, Ints, npt.NDArray[np.int32]]]:
        """Verified pairs of event and filter row, in portions."""
        lineage = self.index.types.lineage
        for shape in self.index.filters:
            wanted = np.zeros(len(lineage) + 1, np.bool_)
            wanted[list(shape.types)] = True
            for depth in range(lineage.shape[1]):
                taken_as = lineage[batch.type, depth]
                rows = np.flatnonzero(wanted[taken_as])  # -1 (no such ancestor) is the last, never wanted
                if len(rows):
                    yield from self._probe(shape, batch, rows, taken_as[rows])

    def _probe(
        self, shape: Shape, batch: EventBatch, rows: Ints, types: npt.NDArray[np.int32]
    ) -> Iterator[tuple[Shape, Ints, npt.NDArray[np.int32]]]:
        access, known = shape.access, self.index.known
        assert access is not None
        for hashes, nodes in shape.probes(batch, rows, types, known):
            begin, count = access.find(hashes)
            for portion in _portions(count):
                run, position = expand(begin[portion], count[portion])
                at = run + portion.start
                candidates = access.rows[position]
                events = rows[at]
                ok = shape.type[candidates] == types[at]
                if nodes is not None and access.nodes is not None:  # one of a row's intervals holds the event
                    ok &= access.nodes[position] == nodes[at]
                ok &= shape.verify(batch, events, candidates, known)
                if ok.any():
                    yield shape, events[ok], candidates[ok]

    # -- one portion of pairs ---------------------------------------------------------------------------------

    def _decide(
        self, batch: EventBatch, window: DecisionWindow, shape: Shape, events: Ints, rows: npt.NDArray[np.int32]
    ) -> Matches:
        owners = shape.owner[rows]
        keep, parts = self._in_force(batch, window, events, owners)
        met = self._agreed.met(batch, events, owners)
        if met is not None:
            keep &= met
        pairs = Pairs(events, rows, owners, parts).where(keep)
        pairs = pairs.where(self._rest(batch, shape, pairs, None))
        views, exists = self.views(batch, pairs.events, pairs.owners, pairs.parts > 0)
        visible = views & ~batch.nulls[pairs.events]
        need, null = shape.need[pairs.rows], shape.null[pairs.rows]
        keep = exists & ((need & ~visible) == 0).all(axis=1) & ((null & visible) == 0).all(axis=1)
        pairs, visible = pairs.where(keep), visible[keep]
        if self._filter_predicates.any():
            keep = self._rest(batch, shape, pairs, visible)
            pairs, visible = pairs.where(keep), visible[keep]
        return Matches(pairs.events, pairs.owners, visible, pairs.parts)

    def _in_force(
        self, batch: EventBatch, window: DecisionWindow, events: Ints, owners: npt.NDArray[np.int32]
    ) -> tuple[Flags, Ints]:
        """Which subscriptions are in force for their event, or count as so for a history, and which history that is."""
        subscriptions, version = self.index.subscriptions, batch.version[events]
        opened = subscriptions.opened[owners]
        historical = subscriptions.history[owners] & (version < opened) & (opened <= window.through)
        historical &= version >= subscriptions.since_version[owners]
        historical &= batch.time[events] >= subscriptions.since_time[owners]
        if window.backfill:
            historical &= opened > window.after
            in_force = historical
        else:
            in_force = historical | (opened <= version) & (version < subscriptions.closed[owners])
        return in_force, np.where(historical, opened, 0)

    # -- views ------------------------------------------------------------------------------------------------

    def views(
        self, batch: EventBatch, events: Ints, owners: npt.NDArray[np.int32], historical: Flags
    ) -> tuple[Words, Flags]:
        """What each subscription's principal may see of its event (D8), narrowed for history (D10)."""
        epochs = self.index.epoch_of(batch.version[events])
        views, exists = self._views_at(batch, events, owners, epochs)
        if historical.any():
            at = np.flatnonzero(historical)
            asked = self.index.epoch_of(self.index.subscriptions.opened[owners[at]])
            then, there = self._views_at(batch, events[at], owners[at], asked)
            views[at] &= then
            exists[at] &= there
        return views, exists

    def _views_at(
        self, batch: EventBatch, events: Ints, owners: npt.NDArray[np.int32], epochs: Ints
    ) -> tuple[Words, Flags]:
        index = self.index
        holders = index.subscriptions.holder[owners]
        views = np.zeros((len(events), index.types.words), np.uint64)
        exists = np.zeros(len(events), np.bool_)
        used = np.unique(epochs)
        for epoch in used.tolist():
            at: Ints | slice = slice(None) if len(used) == 1 else np.flatnonzero(epochs == epoch)
            profiles = index.epochs[epoch].profile[holders[at]].astype(np.int64)
            policy = self._policies.of(epoch)
            if policy is None:
                standing = self._profile_views(batch, events[at], profiles, self.facts[epoch])
            else:
                clients = index.epochs[epoch].clients[holders[at]].astype(np.int64)
                standing = self._policy_views(batch, events[at], profiles, clients, epoch, policy)
            views[at], exists[at] = standing.views, standing.granted & ~standing.stopped
        return views, exists

    def _profile_views(self, batch: EventBatch, events: Ints, profiles: Ints, facts: ConditionFacts) -> PairStanding:
        """Views by (event, profile), each worked out once."""
        distinct, width, inverse = self._by_profile(batch, events, profiles)
        at, has = self._entries_of(batch, distinct // width, distinct % width)
        rights, so_far = self.index.rights, PairStanding.none(len(distinct), self.index.types.words)
        self._walk(batch, distinct // width, has, rights.starts[at], rights.starts[at + 1], facts, so_far)
        return so_far.at(inverse)

    def _policy_views(
        self, batch: EventBatch, events: Ints, profiles: Ints, clients: Ints, epoch: int, policy: CompiledStages
    ) -> PairStanding:
        """Rules by (event, profile); then event policy by (event, client); then what chains add to a pair."""
        outcome = policy.settle(batch, self._live(batch, epoch), events, clients)
        facts, rights = self.facts[epoch], self.index.rights
        if len(rights.keys) == 0:
            return outcome.alone()
        distinct, width, inverse = self._by_profile(batch, events, profiles)
        at, has = self._entries_of(batch, distinct // width, distinct % width)
        so_far = PairStanding.none(len(distinct), self.index.types.words)
        self._walk(batch, distinct // width, has, rights.starts[at], rights.chains[at], facts, so_far)
        so_far = so_far.at(inverse)
        so_far.add(outcome)
        chained = np.full(len(distinct), -1, np.int64)
        chained[has] = np.where(rights.chains[at] < rights.starts[at + 1], at, -1)
        place = chained[inverse]
        left = np.flatnonzero((place >= 0) & ~so_far.stopped)
        at = place[left]
        self._walk(batch, events, left, rights.chains[at], rights.starts[at + 1], facts, so_far)
        return so_far

    def _live(self, batch: EventBatch, epoch: int) -> Flags:
        """The events of an epoch."""
        if self._epochs is None or self._epochs[0] is not batch:
            self._epochs = batch, self.index.epoch_of(batch.version)
        live: Flags = self._epochs[1] == epoch
        return live

    def _by_profile(self, batch: EventBatch, events: Ints, profiles: Ints) -> tuple[Ints, int, Ints]:
        """The distinct pairs of event and profile as `event * width + profile`, and where each pair is among them."""
        count = len(self.index.rights.keys) and int(self.index.rights.keys[-1]) // len(self.index.types.names) + 1
        width = max(int(profiles.max(initial=0)) + 1, count, 1)
        distinct, inverse = _distinct(events * np.int64(width) + profiles, len(batch) * width)
        return distinct, width, inverse

    def _entries_of(self, batch: EventBatch, events: Ints, profiles: Ints) -> tuple[Ints, Ints]:
        """Which of the pairs have entries, as the place of their key, and which those pairs are."""
        rights = self.index.rights
        key = profiles * len(self.index.types.names) + batch.type[events]
        at = np.searchsorted(rights.keys, key)
        has = at < len(rights.keys)
        has[has] = rights.keys[at[has]] == key[has]
        pairs = np.flatnonzero(has)
        return at[pairs], pairs

    def _walk(
        self,
        batch: EventBatch,
        events: Ints,
        alive: Ints,
        entry: Ints,
        end: Ints,
        facts: ConditionFacts,
        so_far: PairStanding,
    ) -> None:
        """The entries of some pairs in order: the first that matches and covers an attribute decides it (D5)."""
        rights = self.index.rights
        views, decided, granted, stopped = so_far.views, so_far.decided, so_far.granted, so_far.stopped
        going = entry < end
        alive, entry, end = alive[going], entry[going], end[going]
        while len(alive):
            matches = self._entry_matches(batch, events[alive], entry, facts)
            hit, which = alive[matches], entry[matches]
            grants = rights.grants[which]
            new = rights.masks[which] & ~decided[hit]
            views[hit] |= np.where(grants[:, None], new, np.uint64(0))
            decided[hit] |= new
            granted[hit] |= grants
            stopped[hit] |= ~grants & rights.whole[which] & ~granted[hit]
            entry = entry + 1
            going = (entry < end) & ~stopped[alive]
            alive, entry, end = alive[going], entry[going], end[going]

    def _entry_matches(self, batch: EventBatch, events: Ints, entries: Ints, facts: ConditionFacts) -> Flags:
        """A grant matches where its condition is true; a forbid unless its condition is false."""
        rights = self.index.rights
        conditions = rights.conditions[entries]
        matches: Flags = conditions == ALWAYS
        asked = np.flatnonzero(~matches)
        if len(asked):
            holding = self._conditions(batch, events[asked], conditions[asked], facts)
            matches[asked] = holding == rights.grants[entries[asked]]
        return matches

    def _conditions(self, batch: EventBatch, events: Ints, conditions: Ints, facts: ConditionFacts) -> Flags:
        """Does any row of the condition hold on the full event?"""
        rights = self.index.rights
        begin = rights.condition_starts[conditions]
        run, position = expand(begin, rights.condition_starts[conditions + 1] - begin)
        shapes, rows = rights.clause_shape[position], rights.clause_row[position]
        met = np.zeros(len(events), np.bool_)
        for number in np.unique(shapes).tolist():
            shape = rights.shapes[number]
            at = np.flatnonzero(shapes == number)
            e, r = events[run[at]], rows[at]
            ok = shape.verify(batch, e, r, rights.known)
            ok &= ((shape.null[r] & ~batch.nulls[e]) == 0).all(axis=1)
            if ok.any():
                ok[ok] = self._rest_holds(batch, rights.rests, shape.rest[r[ok]], e[ok], facts, None)
            met[run[at[ok]]] = True
        return met

    # -- the rest of a clause ---------------------------------------------------------------------------------

    def _rest(self, batch: EventBatch, shape: Shape, pairs: Pairs, visible: Words | None) -> Flags:
        """The rest of filter rows: with what is visible that of predicates, which must see the view; else all others.

        A filter's terms are looked at in the full event here; the mask later asks that each be visible, and then it
        has the same value in the view.
        """
        numbers = shape.rest[pairs.rows]
        keep = np.ones(len(numbers), np.bool_)
        asked = np.flatnonzero(numbers >= 0)
        if len(asked) == 0:
            return keep
        asked = asked[self._filter_predicates[numbers[asked]] == (visible is not None)]
        epochs = self.index.epoch_of(batch.version[pairs.events[asked]])
        for epoch in np.unique(epochs).tolist():
            at = asked[epochs == epoch]
            shown = None if visible is None else visible[at]
            rests, facts = self.index.rests, self.facts[epoch]
            keep[at] = self._rest_holds(batch, rests, numbers[at], pairs.events[at], facts, shown)
        return keep

    def _rest_holds(
        self,
        batch: EventBatch,
        rests: list[tuple[Rest, ...]],
        numbers: npt.NDArray[np.int32],
        events: Ints,
        facts: ConditionFacts,
        visible: Words | None,
    ) -> Flags:
        """Each distinct rest once, over all the rows that ask for it."""
        keep = np.ones(len(events), np.bool_)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            at = np.flatnonzero(numbers == number)
            for part in rests[number]:
                shown = None if visible is None else visible[at]
                frame = BatchRows(batch, events[at], facts, self.index.types, dict(part.where), shown)
                ok = holds(part, frame)
                keep[at[~ok]] = False
                at = at[ok]
                if len(at) == 0:
                    break
        return keep


def _distinct(keys: Ints, span: int) -> tuple[Ints, Ints]:
    """The distinct keys, and where each key is among them."""
    if span <= 4 * len(keys) + 1024:  # few possible keys: marking them beats sorting
        seen = np.zeros(span, np.bool_)
        seen[keys] = True
        distinct = np.flatnonzero(seen)
        place = np.cumsum(seen) - 1
        return distinct, place[keys]
    return np.unique(keys, return_inverse=True)


def _portions(count: Ints) -> Iterator[slice]:
    """Cut runs into portions of about `PAIRS_AT_ONCE` pairs."""
    if len(count) == 0:
        return
    totals = np.cumsum(count)
    start = 0
    while start < len(count):
        before = totals[start - 1] if start else 0
        stop = int(np.searchsorted(totals, before + PAIRS_AT_ONCE, "right"))
        stop = max(stop, start + 1)
        if totals[stop - 1] > before:
            yield slice(start, stop)
        start = stop
