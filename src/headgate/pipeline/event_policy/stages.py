"""The event policy put to pairs of event and client, cheapest part first (OASIS 7.4, figure 7.1).

Guarantees: for each pair exactly the entries that `decide.event_policy.answers` finds to match, up to the first that
leaves nothing to decide. Bits of the event and of the client are worked out once for each; a pair costs a bitwise
`and`. Mixed terms are put only to pairs that the bits leave undecided: not behind an entry that decides everything,
and not where a later entry gives everything anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.model.expressions import TRUE, atoms
from headgate.pipeline.event_policy import compiled as terms
from headgate.pipeline.event_policy.compiled import (
    Choices,
    Evaluator,
    Formula,
    OfBoth,
    OfClient,
    Policy,
    PolicyEntry,
    PolicyFacts,
)
from headgate.pipeline.event_policy.events import EventSide, Mixed, Rows, mixed_term
from headgate.pipeline.index.index import PolicyIndex, expand
from headgate.pipeline.log.codec import EventBatch, Flags, Ints, Words
from headgate.pipeline.truth import Truth, constant, kleene

ALL = np.uint64(2**64 - 1)
_ONE = np.uint64(1)


@dataclass
class PairStanding:
    """What the entries so far make of some pairs: attributes seen and decided, events granted and stopped (D5)."""

    views: Words
    decided: Words
    granted: Flags
    stopped: Flags

    @classmethod
    def none(cls, pairs: int, words: int) -> PairStanding:
        """Before any entry."""
        empty = np.zeros((pairs, words), np.uint64)
        return cls(empty, empty.copy(), np.zeros(pairs, np.bool_), np.zeros(pairs, np.bool_))

    def at(self, places: Ints) -> PairStanding:
        """Of some pairs, each as often as it is named."""
        views, decided = np.take(self.views, places, axis=0), np.take(self.decided, places, axis=0)
        return PairStanding(views, decided, self.granted[places], self.stopped[places])

    def add(self, outcome: PolicyOutcome) -> None:
        """Let what the event policy says decide: positive entries what is open, a negative one the rest."""
        self.views |= outcome.views & ~self.decided
        self.decided |= outcome.views
        self.granted |= outcome.granted & ~self.stopped
        self.decided[outcome.negative] = ALL
        self.stopped |= outcome.negative & ~self.granted


@dataclass
class PolicyOutcome:
    """What an event policy alone makes of some pairs: attributes given, whether any entry did, and a negative one."""

    views: Words
    granted: Flags
    negative: Flags

    def alone(self) -> PairStanding:
        """Where no entry comes before."""
        decided = np.where(self.negative[:, None], ALL, self.views)
        return PairStanding(self.views, decided, self.granted, self.negative & ~self.granted)


@dataclass
class _Seen:
    """What a policy makes of the events of a batch, for those that were looked at.

    Events for which the same entries are left, and which have the same type, share a class.
    """

    batch: EventBatch
    done: Flags
    bits: Words
    truths: dict[int, Truth] = field(default_factory=dict)
    terms: dict[int, list[npt.NDArray[Any]]] = field(default_factory=dict)
    classes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    samples: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """For each class an event of it."""


class CompiledStages:
    """One event policy at one version, ready to be put to pairs."""

    def __init__(self, policy: Policy, facts: PolicyFacts, types: int) -> None:
        self.policy = policy
        self.facts = facts
        count = len(policy.entries)
        self._words = policy.classes.shape[1]
        takes = np.zeros((types, count), np.bool_)
        takes[: len(policy.takes)] = policy.takes
        self._takes = takes
        negative = np.array([entry.negative for entry in policy.entries], np.bool_)
        mixed = np.array([entry.mixed != TRUE for entry in policy.entries], np.bool_)
        own = np.array([entry.type for entry in policy.entries])[None, :] == np.arange(types)[:, None]
        self._last = negative[None, :] | own  # nothing is left to decide after it
        self._ends = self._packed(self._last & ~mixed[None, :])
        self._negative = self._packed(negative[None, :])[0]
        self._mixed = self._packed(mixed[None, :])[0]
        grants: dict[tuple[int, ...], list[int]] = {}
        for number, entry in enumerate(policy.entries):
            if not entry.negative:
                grants.setdefault(tuple(policy.attributes[number].tolist()), []).append(number)
        self._grants = [(self._bits_of(numbers), np.array(mask, np.uint64)) for mask, numbers in grants.items()]
        self._kinds, self._kind_of = _grouped(policy.classes)
        self._made: list[_Seen] = []
        self._begin()

    def _begin(self) -> None:
        """All that is remembered of values, empty."""
        self._evaluator = Evaluator(self.facts)
        self._events = EventSide(self.policy.columns, self._evaluator)
        self._terms: dict[int, tuple[OfBoth, Mixed]] = {}

    def _packed(self, flags: Flags) -> Words:
        """Flags of entries as bits: one row an item."""
        wide = np.zeros((flags.shape[0], self._words * 64), np.bool_)
        wide[:, : flags.shape[1]] = flags
        packed = np.packbits(wide, axis=1, bitorder="little")
        return np.asarray(packed.view(np.uint64))

    def _bits_of(self, numbers: list[int]) -> Words:
        flags = np.zeros((1, len(self.policy.entries)), np.bool_)
        flags[0, numbers] = True
        bits: Words = self._packed(flags)[0]
        return bits

    # -- events -----------------------------------------------------------------------------------------------

    def _look(self, batch: EventBatch, events: Ints, live: Flags) -> _Seen:
        """What the policy makes of these events; of those of its own epoch all at once."""
        if not self._made or self._made[0].batch is not batch:
            if self._events.is_full:
                self._begin()
            self._made = [_Seen(batch, np.zeros(len(batch), np.bool_), np.zeros((len(batch), self._words), np.uint64))]
        seen = self._made[0]
        if not seen.done[events].all():
            asked = live.copy()
            asked[events] = True
            self._take_in(seen, np.flatnonzero(asked & ~seen.done))
            seen.samples, seen.classes = _grouped(
                np.concatenate([seen.bits, batch.type[:, None].astype(np.uint64)], axis=1)
            )
        return seen

    def _take_in(self, seen: _Seen, rows: Ints) -> None:
        batch, entries = seen.batch, self.policy.entries
        for number in sorted({entry.type for entry in entries}):
            mine = [at for at, entry in enumerate(entries) if entry.type == number]
            under = rows[self._takes[batch.type[rows], mine[0]]]  # entries of one type take in the same types
            if len(under) == 0:
                continue
            looked = Rows(batch, under)
            flags = np.zeros((self._words * 64, len(under)), np.bool_)
            for at in mine:
                entry = entries[at]
                outcome = self._events.truth(entry.event, looked)
                flags[at] = ~outcome.false if entry.negative else outcome.true
                for atom in atoms(entry.mixed):
                    self._take_term(seen, atom, looked, entry.part)
            packed = np.packbits(flags, axis=0, bitorder="little")
            seen.bits[under] |= np.ascontiguousarray(packed.T).view(np.uint64)
        seen.done[rows] = True

    def _take_term(self, seen: _Seen, atom: Formula, looked: Rows, part: int) -> None:
        """Keep what an atom of the mixed part of an entry looks at in events."""
        match atom:
            case OfBoth():
                arrays = self._term(atom, part).of_events(looked)
                if len(looked.rows) == len(seen.batch):
                    seen.terms[id(atom)] = arrays
                    return
                kept = seen.terms.setdefault(id(atom), [np.zeros(len(seen.batch), one.dtype) for one in arrays])
                for whole, one in zip(kept, arrays, strict=True):
                    whole[looked.rows] = one
            case OfClient():
                pass
            case _:
                held = seen.truths.setdefault(id(atom), constant(None, len(seen.batch)))
                for whole, one in zip(held, self._events.truth(atom, looked), strict=True):
                    whole[looked.rows] = one

    def _term(self, term: OfBoth, part: int) -> Mixed:
        known = self._terms.get(id(term))
        if known is None:
            choices = self.policy.parts[part]
            column, rights = choices.columns[term.column], choices.rights[term.column]
            known = term, mixed_term(term, self._events, self._evaluator, rights, column)
            self._terms[id(term)] = known
        return known[1]

    # -- pairs ------------------------------------------------------------------------------------------------

    def settle(self, batch: EventBatch, live: Flags, events: Ints, classes: Ints) -> PolicyOutcome:
        """Put the policy to pairs of event and class of clients. `live` are the events of its own epoch.

        Bits are compared once for each kind of event and kind of client, where that is less than for each pair.
        """
        seen = self._look(batch, events, live)
        if len(seen.samples) * len(self._kinds) <= len(events):
            cells = seen.classes[events] * len(self._kinds) + self._kind_of[classes]
            hits = seen.bits[seen.samples][:, None, :] & self.policy.classes[self._kinds][None, :, :]
            types = np.repeat(batch.type[seen.samples], len(self._kinds))
            hits = hits.reshape(-1, self._words)
        else:
            cells = np.arange(len(events))
            hits, types = seen.bits[events] & self.policy.classes[classes], batch.type[events]
        ends = hits & self._ends[types]
        _cut_behind(hits, ends)
        waiting = (hits & self._mixed).any(axis=1)
        if waiting.any():
            self._spare(hits, ends)
            waiting = (hits & self._mixed).any(axis=1)
        plain = self._found(hits)
        outcome = PolicyOutcome(np.take(plain.views, cells, axis=0), plain.granted[cells], plain.negative[cells])
        left = np.flatnonzero(waiting[cells]) if waiting.any() else cells[:0]
        if len(left):
            mine = np.take(hits, cells[left], axis=0)
            self._put_mixed(seen, mine, events[left], classes[left], batch.type[events[left]])
            more = self._found(mine)
            outcome.views[left], outcome.granted[left], outcome.negative[left] = more.views, more.granted, more.negative
        return outcome

    def _found(self, hits: Words) -> PolicyOutcome:
        """What entries that match make of a pair: they end with the first that leaves nothing to decide."""
        views = np.zeros((len(hits), self.policy.attributes.shape[1]), np.uint64)
        granted = np.zeros(len(hits), np.bool_)
        for bits, attributes in self._grants:
            here = (hits & bits).any(axis=1)
            views[here] |= attributes
            granted |= here
        return PolicyOutcome(views, granted, (hits & self._negative).any(axis=1))

    def _spare(self, hits: Words, ends: Words) -> None:
        """Leave out mixed positive entries before one that gives everything, unless a negative one comes between."""
        given = (hits & ends & ~self._negative).any(axis=1)
        behind = np.zeros(len(hits), np.bool_)  # is there a negative entry in a later word?
        for word in reversed(range(self._words)):
            negative = hits[:, word] & self._negative[word]
            below = negative.copy()
            for step in (1, 2, 4, 8, 16, 32):
                below |= below >> np.uint64(step)
            below[behind] = ALL
            idle = np.where(given, self._mixed[word] & ~self._negative[word] & ~below, np.uint64(0))
            hits[:, word] &= ~idle
            behind |= negative != 0

    def _put_mixed(self, seen: _Seen, hits: Words, events: Ints, classes: Ints, types: npt.NDArray[np.int32]) -> None:
        """Clear the bits of mixed entries that do not match, in order, and what comes after one that ends it."""
        for number in _numbers(np.bitwise_or.reduce(hits & self._mixed, axis=0)):
            word, bit = number >> 6, _ONE << np.uint64(number & 63)
            rows = np.flatnonzero(hits[:, word] & bit)
            if len(rows) == 0:
                continue
            ok = self._matches(seen, number, events[rows], classes[rows])
            hits[rows[~ok], word] &= ~bit
            ended = rows[ok]
            ended = ended[self._last[types[ended], number]]
            hits[ended, word] &= bit | (bit - _ONE)
            hits[ended, word + 1 :] = 0

    def _matches(self, seen: _Seen, number: int, events: Ints, classes: Ints) -> Flags:
        """For which pairs does some choice of the client's credentials make the mixed part of an entry count?"""
        entry = self.policy.entries[number]
        choices = self.policy.parts[entry.part]
        begin = choices.starts[classes]
        count = choices.starts[classes + 1] - begin
        if (count == 1).all():
            return self._counts(seen, entry, events, begin, choices)
        run, place = expand(begin, count)
        found = np.zeros(len(events), np.bool_)
        found[run[self._counts(seen, entry, events[run], place, choices)]] = True
        return found

    def _counts(self, seen: _Seen, entry: PolicyEntry, events: Ints, places: Ints, choices: Choices) -> Flags:
        """For which pairs of event and choice is the mixed part true, or, if the entry is negative, not false?"""

        def atom(part: Formula, need: Flags) -> Truth:
            at = np.flatnonzero(need)
            if len(at) == len(need):
                return self._atom(seen, part, events, places, choices)
            whole = constant(None, len(need))
            whole.true[at], whole.false[at] = self._atom(seen, part, events[at], places[at], choices)
            return whole

        outcome = kleene(entry.mixed, atom, np.ones(len(events), np.bool_))
        return ~outcome.false if entry.negative else outcome.true

    def _atom(self, seen: _Seen, atom: Formula, events: Ints, places: Ints, choices: Choices) -> Truth:
        match atom:
            case OfClient(column):
                truths = choices.truths[column][places]
                return Truth(truths == terms.TRUE, truths == terms.FALSE)
            case OfBoth():
                return self._terms[id(atom)][1].truth(seen.terms[id(atom)], events, places)
            case _:
                held = seen.truths[id(atom)]
                return Truth(held.true[events], held.false[events])


def _cut_behind(hits: Words, ends: Words) -> None:
    """Clear the bits behind the first that ends it."""
    over = np.zeros(len(hits), np.bool_)
    for word in range(hits.shape[1]):
        if word:
            hits[over, word] = 0
        end = ends[:, word]
        first = end & (~end + _ONE)
        hits[:, word] &= first | (first - _ONE)  # of none: everything
        over |= end != 0


def _grouped(rows: Words) -> tuple[Ints, Ints]:
    """For each distinct row one place where it stands, and for each row which of those it is."""
    first, group = np.zeros(min(1, len(rows)), np.int64), np.zeros(len(rows), np.int64)
    for column in rows.T:
        if len(column) and (column == column[0]).all():
            continue
        values, places, mine = np.unique(column, return_index=True, return_inverse=True)
        if len(first) <= 1:
            first, group = places, mine
        else:
            _, first, group = np.unique(group * len(values) + mine, return_index=True, return_inverse=True)
    return first, group


def _numbers(bits: Words) -> Iterator[int]:
    """The numbers of the bits that are set, in order."""
    for word, held in enumerate(bits.tolist()):
        for at in range(64):
            if held >> at & 1:
                yield word * 64 + at


class PolicyStages:
    """The event policies of an index, each made ready when it is first needed."""

    def __init__(self, index: PolicyIndex) -> None:
        self._index = index
        self._ready: dict[tuple[int, int], CompiledStages] = {}

    def of(self, epoch: int) -> CompiledStages | None:
        """The event policy of an epoch, if it has one."""
        snapshot = self._index.epochs[epoch]
        if snapshot.policy_facts is None:
            return None
        key = snapshot.policy, id(snapshot.policy_facts)
        if key not in self._ready:
            types = len(self._index.types.names)
            self._ready[key] = CompiledStages(self._index.policies[snapshot.policy], snapshot.policy_facts, types)
        return self._ready[key]
