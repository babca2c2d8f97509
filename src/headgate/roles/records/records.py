"""Credential records: what is believed, what follows from it, and what falls when it changes (OASIS 4.6-4.8).

Guarantees: the state of a record always follows from its parents, and a change is through before the call returns: it
works out each record that it reaches once, after all that the record rests on, from the numbers of its true, false and
unknown inputs; nothing flickers, and nothing recurses. False is final for what was revoked, for a latched record, and
for what cannot be true without such a one; true and unknown are not. Leaves that change together are set together
(`set_all`); between `defer` and `latch` nothing latches, so that only what is false in the end is false for good,
whatever came in between. A sweep drops only what nobody uses and nothing rests on, and costs what changed, not what
there is. A place is used at most once in a version, and the version is part of the reference, so that a reference
stands for one record for ever; one that is not there is false. `take` tells the net effect of all that was done since
it was last called; `rollback` leaves all as it was at the mark, `take` undone as well, at the cost of what was done.
Leaves out: what a fact means (`roles.records.facts`), and storage: `take` says what to write, `Records` reads it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from operator import setitem
from typing import Any, Final, TypeAlias, TypeVar

from headgate.model.errors import AlreadyExists, BadDefinition, Damaged, NotFound, TooMany
from headgate.model.limits import MAX_RECORD_PARENTS, MAX_RECORDS
from headgate.model.roles import Link, Op, Record, Reference, magic_of, place_of, reference, reference_text

T = TypeVar("T")

MAX_VERSION: Final = 0xFFFF_FFFF
"""The last version that fits a reference."""

FALSE: Final = 0
TRUE: Final = 1
UNKNOWN: Final = 2
DEAD: Final = 3
"""False for good. True is never for good: whatever is true can still be revoked."""
NEW: Final = 4
"""In the column of what was last reported: nothing was."""

VALUES: Final[tuple[bool | None, ...]] = (False, True, None, False)
"""What a state means, by its number."""

_CODES: Final = {False: FALSE, True: TRUE, None: UNKNOWN}

# A kind is an operator with flags; the lowest bit is left free for the negation of an edge.
LATCH: Final = 1 << 3
AUTO: Final = 1 << 4
_OPS: Final = 0b110
OPS: Final = {Op.LEAF: 0, Op.AND: 2, Op.OR: 4}
_OP_OF: Final = {number: op for op, number in OPS.items()}
_NO_FLAGS: Final = LATCH - 1
_AND, _OR = OPS[Op.AND], OPS[Op.OR]

# The numbers of true, false and unknown inputs lie side by side in one integer: MAX_RECORD_PARENTS is 512.
_WIDTH: Final = 10
_ONE_TRUE: Final = 1
_ONE_FALSE: Final = 1 << _WIDTH
_ONE_UNKNOWN: Final = 1 << 2 * _WIDTH
_TRUES: Final = _ONE_FALSE - 1
_FALSES: Final = _ONE_UNKNOWN - _ONE_FALSE
UNITS: Final = ((_ONE_FALSE, _ONE_TRUE, _ONE_UNKNOWN, _ONE_FALSE), (_ONE_TRUE, _ONE_FALSE, _ONE_UNKNOWN, _ONE_TRUE))
"""What an input adds to the numbers, by the negation of its edge and the state of the parent."""
_DELTAS: Final = tuple(
    tuple(tuple(units[new] - units[old] for units in UNITS) for new in range(len(VALUES))) for old in range(len(VALUES))
)
"""What a change of the parent adds, by its old and new state and the negation."""

COUNTS: Final = 0
DIES: Final = 1
LAST: Final = 2


def _fate(kind: int, negated: int) -> int:
    if negated:
        return COUNTS
    return DIES if kind & _OPS == _AND or kind & AUTO else LAST if kind & _OPS == _OR else COUNTS


FATES: Final = tuple(_fate(kind, kind & 1) for kind in range(AUTO << 1))
"""What becomes of a record when a parent is false for good, by kind and negation.

It DIES with it, or once this was the LAST input to be settled so, or the input only COUNTS.
"""


_RESTORE: Final = "restore the ledger from a copy"

_MARKED: Final = ("_version", "_count", "_log", "_work", "_made", "_rows", "_gone", "_dropped", "_deferred")
"""What is put back as it was at the mark; all else is undone step by step."""
BLANK: Final[tuple[object, ...]] = (0, 0, (), "", NEW, TRUE, OPS[Op.LEAF], 0, 0, 0, None)
"""The row of a place that was never used."""

Turn: TypeAlias = tuple[Reference, bool | None, bool | None]
"""A record, what it was and what it is."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The net effect of what was done since it was last asked for."""

    changed: list[Turn]
    """Older records whose state is another, in the order of the cascade; also those that fell and were dropped."""
    made: list[Record]
    altered: list[Reference]
    """Older records that are to be written again: their state, finality, use or parents changed."""
    dropped: list[Reference]
    """Older records that are no more."""


def truth(kind: int, counts: int) -> int:
    """The state that follows from the inputs, three-valued (D1)."""
    if kind & AUTO and counts & _FALSES:
        return DEAD
    if kind & _OPS == _AND:
        held = FALSE if counts & _FALSES else UNKNOWN if counts >= _ONE_UNKNOWN else TRUE
    else:
        held = TRUE if counts & _TRUES else UNKNOWN if counts >= _ONE_UNKNOWN else FALSE
    return DEAD if held == FALSE and kind & LATCH else held


class Records:
    """The records as of a version, as columns by place; new ones are of the next version, or of the one `at` names.

    An edge is the place of the child, shifted, with the negation in the lowest bit. `held` names every use from
    outside, one by one; without it, each record marked `direct` is used once.
    """

    def __init__(
        self, records: Iterable[Record] = (), version: int = 0, held: Iterable[Reference] | None = None
    ) -> None:
        self._state: list[int] = []
        self._kind: list[int] = []
        self._counts: list[int] = []
        self._left: list[int] = []
        """Inputs of an OR that are not yet settled for good against it."""
        self._rank: list[int] = []
        """Above that of every parent: the order in which a change is worked out."""
        self._kids: list[dict[int, None] | None] = []
        """Edges to children; a dictionary, so that one of many is taken out at once."""
        self._log: list[int] = []
        """Places whose state changed, in order."""
        self._work: list[int] = []
        """Places that may be of no more use."""
        self._levels: dict[int, list[int]] = {}
        self._ranks: list[int] = []
        self._deferred: dict[int, None] | None = None
        """While latching is put off, the places that were to latch; they are false as long as their inputs say so."""
        self._journal: list[Callable[[], object]] | None = None
        """How to undo what was done since the mark, last first."""
        self._magic: list[int] = []
        """Of the record at a place; of a free place, the last one, negative."""
        self._held: list[int] = []
        """How often a record is used from outside."""
        self._parents: list[tuple[Link, ...]] = []
        """To write and to unlink; no change is worked out from it."""
        self._fact: list[str] = []
        self._shown: list[int] = []
        """The state as it was last reported."""
        self._columns: tuple[list[Any], ...] = (
            *(self._magic, self._held, self._parents, self._fact, self._shown),
            *(self._state, self._kind, self._counts, self._left, self._rank, self._kids),
        )
        self._facts: dict[str, int] = {}
        self._free: list[int] = []
        """A heap of free places; one that is in use again is passed over."""
        self._early: list[int] = []
        """Places that are free from the next version on."""
        self._made: list[int] = []
        self._rows: dict[int, None] = {}
        self._gone: set[int] = set()
        """Dropped, and not yet told: not to be used before that."""
        self._dropped: list[Reference] = []
        self._count = 0
        self._mark: dict[str, Any] | None = None
        self._version = version
        self.at(version + 1)
        self._load(list(records), held, version)

    def at(self, version: int) -> None:
        """Make records of this version from now on; places of earlier ones that are free may be used again."""
        if not 0 < version <= MAX_VERSION:
            raise TooMany(f"version `{version}` is not from 1 to `{MAX_VERSION}`, and fits no reference")
        if version < self._version:
            raise BadDefinition(f"version `{version}` comes before `{self._version}`, whose records there are")
        if version > self._version:
            for place in self._early:
                heappush(self._free, place)
            self._early.clear()
        self._version = version

    # -- reading ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def __contains__(self, ref: Reference) -> bool:
        return self._place(ref) >= 0

    def state(self, ref: Reference) -> bool | None:
        """True, false or unknown; false if there is no such record, or no more."""
        place = ref >> 32
        if 0 <= place < len(self._magic) and self._magic[place] == ref & 0xFFFF_FFFF:
            return VALUES[self._state[place]]
        return False

    def is_final(self, ref: Reference) -> bool:
        """Is a record false for good, or no more?"""
        place = self._place(ref)
        return place < 0 or self._state[place] == DEAD

    def of_fact(self, fact: str) -> Reference | None:
        """The record of an interesting fact (OASIS 4.8.1); none if it is false for good."""
        place = self._facts.get(fact)
        return None if place is None else self._ref(place)

    def record(self, ref: Reference) -> Record:
        """A record as it is to be written. What is false for good rests on nothing any more."""
        return self._frozen(self._known(ref))

    def records(self) -> Iterator[Record]:
        """Every record, by place."""
        return (self._frozen(place) for place, magic in enumerate(self._magic) if magic > 0)

    def _ref(self, place: int) -> Reference:
        return reference(place, self._magic[place])

    def _place(self, ref: Reference) -> int:
        """Where a record is, or -1."""
        place = place_of(ref)
        return place if 0 <= place < len(self._magic) and self._magic[place] == magic_of(ref) > 0 else -1

    def _known(self, ref: Reference) -> int:
        slot = self._place(ref)
        if slot < 0:
            raise NotFound(f"there is no record `{reference_text(ref)}`", remedy="it was revoked, or never was")
        return slot

    def _frozen(self, slot: int) -> Record:
        state, kind = self._state[slot], self._kind[slot]
        return Record(
            ref=self._ref(slot),
            op=_OP_OF[kind & _NO_FLAGS],
            parents=() if state == DEAD else self._parents[slot],
            state=VALUES[state],
            fact=self._fact[slot],
            permanent=state == DEAD,
            direct=self._held[slot] > 0,
            auto_revoke=bool(kind & AUTO),
            latched=bool(kind & LATCH),
        )

    # -- making and dropping ----------------------------------------------------------------------------------

    def _make(self, kind: int, fact: str = "") -> int:
        """A new record, true until it is told or linked."""
        slot = self._claim()
        self.note(partial(heappush, self._free, slot))
        self._put_row(self._columns, slot, (self._version, 0, (), fact, NEW, TRUE, kind, 0, 0, 0, None))
        if fact:
            self._facts[fact] = slot
            self.note(partial(self._facts.pop, fact))
        self._made.append(slot)
        self._work.append(slot)
        self._count += 1
        return slot

    def _claim(self) -> int:
        while self._free:
            slot = heappop(self._free)
            if slot in self._gone:
                continue
            if 0 <= -self._magic[slot] < self._version:
                return slot
            if self._magic[slot] < 0:
                self._early.append(slot)
        if len(self._magic) >= MAX_RECORDS:
            raise TooMany(f"there are more records than MAX_RECORDS ({MAX_RECORDS})", remedy="revoke some")
        for column, blank in zip(self._columns, BLANK, strict=True):
            column.append(blank)
        return len(self._magic) - 1

    def _drop(self, slot: int) -> Reference:
        ref = self._ref(slot)
        self._forget(slot)
        self._put(self._magic, slot, -self._magic[slot])
        self._gone.add(slot)
        if self._shown[slot] != NEW:
            self._dropped.append(ref)
        self._count -= 1
        return ref

    def _forget(self, slot: int) -> None:
        """The fact may have another record from now on."""
        fact = self._fact[slot]
        if fact and self._facts.get(fact) == slot:
            del self._facts[fact]
            self.note(partial(self._facts.__setitem__, fact, slot))

    # -- what to write ----------------------------------------------------------------------------------------

    def take(self) -> Changes:
        """What has changed since the last time, or since the table was built."""
        changed, altered = self._turns()
        told = set(altered)
        for slot in self._rows:
            if self._magic[slot] > 0 and self._shown[slot] != NEW and (ref := self._ref(slot)) not in told:
                altered.append(ref)
        fresh = [place for place in self._made if self._magic[place] > 0 and self._shown[place] == NEW]
        for slot in fresh:
            self._put(self._shown, slot, self._state[slot])
        changes = Changes(changed, [self._frozen(place) for place in fresh], altered, self._dropped)
        for slot in self._gone:
            heappush(self._free, slot)
        self._log, self._made, self._rows, self._gone, self._dropped = [], [], {}, set(), []
        return changes

    def _turns(self) -> tuple[list[Turn], list[Reference]]:
        changed: list[Turn] = []
        altered: list[Reference] = []
        places: list[int] = []
        olds: list[int] = []
        shown, state, magic, values = self._shown, self._state, self._magic, VALUES
        for slot in self._log:
            old, new = shown[slot], state[slot]
            if old in (new, NEW):
                continue
            shown[slot] = new
            places.append(slot)
            olds.append(old)
            there = magic[slot] > 0
            ref = slot << 32 | abs(magic[slot])
            if values[old] is not values[new] and (there or new == DEAD):
                changed.append((ref, values[old], values[new]))
            if there:
                altered.append(ref)
        self.note(partial(restore, shown, places, olds))
        return changed, altered

    # -- making -----------------------------------------------------------------------------------------------

    def leaf(self, state: bool | None = True, fact: str = "", *, latch: bool = False) -> Reference:
        """A belief that follows from nothing here; a fact has one record at a time."""
        if fact and fact in self._facts:
            raise AlreadyExists(f"the fact `{fact}` has a record", remedy="find it with `of_fact`")
        slot = self._make(OPS[Op.LEAF] | (LATCH if latch else 0), fact)
        code = _CODES[state]
        self._put(self._state, slot, DEAD if latch and code == FALSE else code)
        if latch and code == FALSE:
            self._forget(slot)
        return self._ref(slot)

    def combine(
        self, op: Op, links: Sequence[Link], *, latch: bool = False, auto_revoke: bool = False, own: bool = False
    ) -> Reference:
        """A record that follows from others: the only one itself, unless it is to be a record of its own.

        Latched, it is false for good once it is false; with `auto_revoke`, once any of its inputs is.
        """
        fitted = self._fitted(op, tuple(dict.fromkeys(links)), auto_revoke)
        if len(fitted) == 1 and not (own or latch or auto_revoke or fitted[0].negated):
            return fitted[0].parent
        place = self._make(OPS[op] | (LATCH if latch else 0) | (AUTO if auto_revoke else 0))
        self._put(self._state, place, self._attach(place, op, fitted))
        return self._ref(place)

    def relink(self, ref: Reference, op: Op, links: Sequence[Link]) -> None:
        """Let a record follow from others than before; it keeps its reference, and what rests on it stays."""
        slot = self._known(ref)
        if self._state[slot] == DEAD:
            raise BadDefinition(f"the record `{reference_text(ref)}` is false for good", remedy="make another")
        if self._fact[slot]:
            raise BadDefinition(f"the record `{reference_text(ref)}` is of a fact, and follows from nothing here")
        distinct = tuple(dict.fromkeys(links))
        self._refuse_cycle(slot, distinct)
        flags = self._kind[slot] & (LATCH | AUTO)
        fitted = self._fitted(op, distinct, bool(flags & AUTO))
        self._unlink(slot)
        self._put(self._kind, slot, OPS[op] | flags)
        state = self._attach(slot, op, fitted)
        self._rows[slot] = None
        if state != self._state[slot]:
            self._change(slot, state)

    def _fitted(self, op: Op, links: tuple[Link, ...], auto_revoke: bool) -> tuple[Link, ...]:
        """At most MAX_RECORD_PARENTS links, by records in between."""
        if op is Op.LEAF:
            raise BadDefinition("a leaf follows from nothing", remedy="combine with `and` or `or`")
        if len(links) > MAX_RECORD_PARENTS and auto_revoke and op is not Op.AND:
            raise TooMany(f"a record that falls with any of its parents has at most MAX_RECORD_PARENTS "
                          f"({MAX_RECORD_PARENTS})", remedy="combine them with `and`")  # fmt: skip
        while len(links) > MAX_RECORD_PARENTS:
            parts = (links[at : at + MAX_RECORD_PARENTS] for at in range(0, len(links), MAX_RECORD_PARENTS))
            links = tuple(Link(self.combine(op, part)) for part in parts)
        return links

    def _attach(self, slot: int, op: Op, links: tuple[Link, ...]) -> int:
        """Link a record to its parents; the state that follows."""
        kind, counts, rank, left, dies = self._kind[slot], 0, 0, len(links), False
        for link in links:
            parent, negated = self._place(link.parent), int(link.negated)
            state = DEAD if parent < 0 else self._state[parent]
            counts += UNITS[negated][state]
            if state == DEAD:
                fate = FATES[kind | negated]
                dies |= fate == DIES
                left -= fate == LAST
            else:
                rank = max(rank, self._rank[parent] + 1)
                self._join(parent, slot << 1 | negated)
        self._put(self._counts, slot, counts)
        self._put(self._left, slot, left)
        self._put(self._parents, slot, links)
        self._raise(slot, rank)
        return DEAD if dies or (left == 0 and op is Op.OR) else self._follows(slot)

    def _unlink(self, slot: int) -> None:
        for link in self._parents[slot]:
            parent = self._place(link.parent)
            if parent >= 0 and self._state[parent] != DEAD:
                self._part(parent, slot << 1 | link.negated)
        if self._parents[slot]:
            self._put(self._parents, slot, ())

    def _refuse_cycle(self, slot: int, links: tuple[Link, ...]) -> None:
        parents = {self._place(link.parent) for link in links} - {-1}
        if any(self._rank[parent] >= self._rank[slot] for parent in parents):
            loop = parents.intersection(self._descendants(slot))
            if loop:
                raise BadDefinition(
                    f"the record `{reference_text(self._ref(min(loop)))}` follows from"
                    f" `{reference_text(self._ref(slot))}`, which cannot follow from it"
                )

    # -- changing ---------------------------------------------------------------------------------------------

    def set(self, ref: Reference, state: bool | None) -> None:
        """What is known of a leaf has changed. One that is false for good, or no more, stays so."""
        self.set_all({ref: state})

    def set_all(self, states: Mapping[Reference, bool | None]) -> None:
        """What is known of leaves has changed, of all of them at once; then it spreads."""
        places = {slot: _CODES[state] for ref, state in states.items() if (slot := self._place(ref)) >= 0}
        alive = {place: code for place, code in places.items() if self._state[place] != DEAD}
        for slot in alive:
            if self._kind[slot] & ~LATCH != OPS[Op.LEAF]:
                raise BadDefinition(
                    f"the record `{reference_text(self._ref(slot))}` follows from others", remedy="set those"
                )
        for slot, code in alive.items():
            if code == FALSE and self._kind[slot] & LATCH:
                self._forget(slot)
                self._turn(slot, DEAD)
            elif code != self._state[slot]:
                self._turn(slot, code)
        self._settle()

    def revoke(self, ref: Reference) -> None:
        """Make a record false for good, whatever it follows from."""
        slot = self._place(ref)
        if slot >= 0 and self._state[slot] != DEAD:
            self._forget(slot)
            self._change(slot, DEAD)

    def defer(self) -> None:
        """Put off latching: from here on what is false may be true again, unless it is revoked."""
        if self._deferred is None:
            self._deferred = {}

    def latch(self) -> None:
        """Make what is false, and was to latch, false for good; from here on records latch at once."""
        waiting, self._deferred = self._deferred or {}, None
        fallen = [
            at for at in waiting if self._state[at] == FALSE and self._magic[at] > 0 and self._follows(at) == DEAD
        ]
        for place in fallen:
            self._state[place] = DEAD
        self._spread(fallen, [FALSE] * len(fallen))
        self._settle()

    # -- use and collection -----------------------------------------------------------------------------------

    def hold(self, ref: Reference) -> None:
        """Something outside rests on a record: a membership, an election, a service that follows it."""
        self._use(self._known(ref), 1)

    def release(self, ref: Reference) -> None:
        """One use from outside has ended."""
        slot = self._known(ref)
        if not self._held[slot]:
            raise BadDefinition(f"the record `{reference_text(ref)}` is not in use")
        self._use(slot, -1)
        if not self._held[slot]:
            self._work.append(slot)

    def _use(self, place: int, more: int) -> None:
        before = self._held[place]
        self._put(self._held, place, before + more)
        if not before or not before + more:
            self._rows[place] = None

    def sweep(self) -> list[Reference]:
        """Drop what nobody uses and nothing rests on; hold beforehand what is still wanted."""
        dropped = []
        while self._work:
            slot = self._work.pop()
            if self._magic[slot] <= 0:
                continue
            if self._state[slot] == DEAD:
                if self._kids[slot]:
                    self._put(self._kids, slot, None)
                self._unlink(slot)
            if not self._held[slot] and not self._kids[slot]:
                self._unlink(slot)
                dropped.append(self._drop(slot))
        return dropped

    # -- edges ------------------------------------------------------------------------------------------------

    def _join(self, parent: int, edge: int) -> None:
        kids = self._kids[parent]
        if kids is None:
            kids = {}
            self._put(self._kids, parent, kids)
        kids[edge] = None
        self.note(partial(kids.pop, edge))

    def _part(self, parent: int, edge: int) -> None:
        kids = self._kids[parent]
        if kids is not None and edge in kids:
            del kids[edge]
            self.note(partial(setitem, kids, edge, None))
            if not kids:
                self._work.append(parent)

    # -- spreading --------------------------------------------------------------------------------------------

    def _change(self, place: int, new: int) -> None:
        """Give a record another state, and work out all that rests on it."""
        self._turn(place, new)
        self._settle()

    def _turn(self, slot: int, new: int) -> None:
        """Give a record another state; those that rest on it wait to be worked out."""
        old = self._state[slot]
        self._state[slot] = new
        if new == DEAD:
            self._spread([slot], [old])
        else:
            self.note(partial(restore, self._state, [slot], [old]))
            self._log.append(slot)
            self._count_again(slot, old)

    def _follows(self, slot: int) -> int:
        """The state that follows from a record's inputs; while latching is put off, nothing is false for good by it."""
        state = truth(self._kind[slot], self._counts[slot])
        if state == DEAD and self._deferred is not None:
            self._deferred[slot] = None
            return FALSE
        return state

    def _settle(self) -> None:
        """Work out the records that wait, those of the lowest rank first: all their inputs are settled."""
        levels, ranks, state = self._levels, self._ranks, self._state
        turned: list[int] = []
        befores: list[int] = []
        while ranks:
            fallen: list[int] = []
            olds: list[int] = []
            for slot in levels.pop(heappop(ranks)):
                old = state[slot]
                if old == DEAD:
                    continue
                new = self._follows(slot)
                if new == old:
                    continue
                state[slot] = new
                if new == DEAD:
                    fallen.append(slot)
                    olds.append(old)
                else:
                    turned.append(slot)
                    befores.append(old)
                    self._log.append(slot)
                    self._count_again(slot, old)
            if fallen:
                self._spread(fallen, olds)
        self.note(partial(restore, state, turned, befores))

    def _count_again(self, slot: int, old: int) -> None:
        """A record has another state: its children count it anew, and wait to be worked out."""
        kids = self._kids[slot]
        if not kids:
            return
        state, counts, ranks, levels = self._state, self._counts, self._rank, self._levels
        deltas = _DELTAS[old][state[slot]]
        children: list[int] = []
        befores: list[int] = []
        for edge in kids:
            child = edge >> 1
            if state[child] != DEAD:
                before = counts[child]
                children.append(child)
                befores.append(before)
                counts[child] = before + deltas[edge & 1]
                rank = ranks[child]
                if rank in levels:
                    levels[rank].append(child)
                else:
                    self._wait(child)
        self.note(partial(restore, counts, children, befores))

    def _spread(self, fallen: list[int], olds: list[int]) -> None:
        """Records are false for good: so is what cannot be true without them, whatever else is still to come.

        No order is needed for that, since nothing of it is ever taken back. Both lists grow while they are walked.
        """
        state, kinds, kids, fates, dead = self._state, self._kind, self._kids, FATES, DEAD
        falls, remembers = fallen.append, olds.append
        for place, old in zip(fallen, olds, strict=True):
            for edge in kids[place] or ():
                child = edge >> 1
                was = state[child]
                if was == dead:
                    continue
                fate = fates[kinds[child] | edge & 1]
                if fate == 1 or (fate and self._settled(child)):
                    state[child] = dead
                    falls(child)
                    remembers(was)
                elif old != FALSE:
                    units = UNITS[edge & 1]
                    self._put(self._counts, child, self._counts[child] + units[FALSE] - units[old])
                    self._wait(child)
        self.note(partial(restore, state, fallen, olds))
        self._log.extend(fallen)
        self._work.extend(fallen)

    def _settled(self, place: int) -> bool:
        """One more input is settled against a record for good; was it the last?"""
        left = self._left[place] - 1
        self._put(self._left, place, left)
        return left == 0

    def _wait(self, slot: int) -> None:
        rank = self._rank[slot]
        level = self._levels.get(rank)
        if level is None:
            self._levels[rank] = [slot]
            heappush(self._ranks, rank)
        else:
            level.append(slot)

    # -- order ------------------------------------------------------------------------------------------------

    def _descendants(self, slot: int) -> list[int]:
        """All that rests on a record, itself first; what is false for good rests on nothing."""
        descendants = {slot: None}
        walk = [slot]
        for at in walk:
            for edge in self._kids[at] or ():
                child = edge >> 1
                if child not in descendants and self._state[child] != DEAD:
                    descendants[child] = None
                    walk.append(child)
        return walk

    def _raise(self, slot: int, rank: int) -> None:
        """Move a record up in the order, and what rests on it where need be."""
        if rank <= self._rank[slot]:
            return
        below = sorted(self._descendants(slot), key=self._rank.__getitem__)
        self._put(self._rank, slot, rank)
        for at in below:
            above = self._rank[at] + 1
            for edge in self._kids[at] or ():
                if self._rank[edge >> 1] < above and self._state[edge >> 1] != DEAD:
                    self._put(self._rank, edge >> 1, above)

    # -- the way back -----------------------------------------------------------------------------------------

    def mark(self) -> None:
        """From here on all can be undone; an earlier mark is forgotten."""
        self._journal, self._mark = [], {name: copy(vars(self)[name]) for name in _MARKED}

    def keep(self) -> None:
        """What was done since the mark stays."""
        self._journal, self._mark = None, None

    def rollback(self) -> None:
        """Undo all that was done since the mark. References that were made since will be made again."""
        journal, mark = self._journal, self._mark
        if journal is None or mark is None:
            raise ValueError("there is no mark to go back to")
        self.keep()
        for undo in reversed(journal):
            undo()
        self._levels.clear()
        self._ranks.clear()
        vars(self).update(mark)

    def _put(self, column: list[T], place: int, value: T) -> None:
        if self._journal is not None:
            self._journal.append(partial(setitem, column, place, column[place]))
        column[place] = value

    def _put_row(self, columns: tuple[list[Any], ...], place: int, row: tuple[object, ...]) -> None:
        if self._journal is not None:
            self._journal.append(partial(_set_row, columns, place, tuple(column[place] for column in columns)))
        _set_row(columns, place, row)

    def note(self, undo: Callable[[], object]) -> None:
        """Let something that was done beside this be undone with it."""
        if self._journal is not None:
            self._journal.append(undo)

    # -- reading what was written -----------------------------------------------------------------------------

    def _load(self, records: list[Record], held: Iterable[Reference] | None, version: int) -> None:
        size = max((place_of(one.ref) for one in records), default=-1) + 1
        if size > MAX_RECORDS:
            raise TooMany(f"there are more records than MAX_RECORDS ({MAX_RECORDS})", remedy=_RESTORE)
        for column, blank in zip(self._columns, BLANK, strict=True):
            column.extend([blank] * size)
        for record in records:
            self._seat(record, version)
        for record in _parents_first(records):
            self._follow(record)
        self._count = len(records)
        self._free = [place for place, magic in enumerate(self._magic) if magic <= 0]
        heapify(self._free)
        self._work = [place_of(one.ref) for one in records]
        uses = Counter((one.ref for one in records if one.direct) if held is None else held)
        for ref, times in uses.items():
            self._held[self._known(ref)] = times
        for record in records:
            if record.direct != (record.ref in uses):
                self._rows[place_of(record.ref)] = None

    def _seat(self, record: Record, version: int) -> None:
        slot, text = place_of(record.ref), reference_text(record.ref)
        if slot < 0 or not 0 < magic_of(record.ref) <= version:
            raise Damaged(f"the record `{text}` is not of a version up to `{version}`", remedy=_RESTORE)
        if self._magic[slot]:
            raise Damaged(f"the place of the record `{text}` is taken", remedy=_RESTORE)
        if record.permanent and (record.state is not False or record.parents):
            raise Damaged(f"the record `{text}` is final and not false, or has parents", remedy=_RESTORE)
        if record.parents if record.op is Op.LEAF else record.fact:
            raise Damaged(f"the record `{text}` is a leaf with parents, or a fact that follows", remedy=_RESTORE)
        if len(record.parents) > MAX_RECORD_PARENTS:
            raise Damaged(f"the record `{text}` has over MAX_RECORD_PARENTS ({MAX_RECORD_PARENTS})", remedy=_RESTORE)
        self._magic[slot] = magic_of(record.ref)
        self._kind[slot] = OPS[record.op] | (LATCH if record.latched else 0) | (AUTO if record.auto_revoke else 0)
        self._fact[slot] = record.fact
        self._state[slot] = self._shown[slot] = DEAD if record.permanent else _CODES[record.state]
        if record.fact and not record.permanent:
            if record.fact in self._facts:
                raise Damaged(f"the fact `{record.fact}` has two records", remedy=_RESTORE)
            self._facts[record.fact] = slot

    def _follow(self, record: Record) -> None:
        """Work out again what a record follows from; it must be what was written."""
        slot = place_of(record.ref)
        if record.permanent:
            return
        state = self._attach(slot, record.op, record.parents) if record.op is not Op.LEAF else self._state[slot]
        if state != self._state[slot] or (state == FALSE and record.latched):
            raise Damaged(f"the record `{reference_text(record.ref)}` is not what its parents say", remedy=_RESTORE)


def restore(column: list[int], places: list[int], olds: list[int]) -> None:
    """Put old values back, the last first."""
    for place, old in zip(reversed(places), reversed(olds), strict=True):
        column[place] = old


def _set_row(columns: tuple[list[Any], ...], place: int, row: tuple[object, ...]) -> None:
    for column, value in zip(columns, row, strict=True):
        column[place] = value


def _parents_first(records: list[Record]) -> list[Record]:
    """Every record after those it follows from."""
    known = {one.ref: one for one in records}
    waits = {one.ref: sum(link.parent in known for link in one.parents) for one in records}
    kids: dict[Reference, list[Reference]] = {}
    for record in records:
        for link in record.parents:
            kids.setdefault(link.parent, []).append(record.ref)
    walk = [one for one in records if not waits[one.ref]]
    for record in walk:
        for child in kids.get(record.ref, ()):
            waits[child] -= 1
            if not waits[child]:
                walk.append(known[child])
    if len(walk) < len(records):
        stuck = min(ref for ref, left in waits.items() if left)
        raise Damaged(f"the record `{reference_text(stuck)}` follows from itself", remedy=_RESTORE)
    return walk
