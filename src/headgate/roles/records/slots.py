"""The places of the table: references that are never used again, what is to be written, and the way back (OASIS 4.8).

Guarantees: a place is used at most once in a version, and the version is part of the reference, so that a reference
stands for one record for ever; one that is not in the table is false. `take` tells the net effect of all that was done
since it was last called, no more and no less. `rollback` leaves all as it was at the mark, `take` undone as well.
Leaves out: how a change spreads (`roles.records.graph`), and what changes (`roles.records.records`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

from headgate.model.errors import BadDefinition, NotFound, TooMany
from headgate.model.limits import MAX_RECORDS
from headgate.model.roles import Link, Op, Record, Reference, magic_of, place_of, reference, reference_text
from headgate.roles.records.graph import AUTO, DEAD, LATCH, NEW, OPS, TRUE, VALUES, RecordGraph, restore

MAX_VERSION: Final = 0xFFFF_FFFF
"""The last version that fits a reference."""

_OP_OF: Final = {number: op for op, number in OPS.items()}
_NO_FLAGS: Final = LATCH - 1

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


@dataclass(frozen=True, slots=True)
class _Mark:
    version: int
    count: int
    log: list[int]
    work: list[int]
    made: list[int]
    rows: dict[int, None]
    gone: set[int]
    dropped: list[Reference]
    deferred: dict[int, None] | None


class Places(RecordGraph):
    """Where records stand, as of a version; new ones are of the next, or of the one that `at` names."""

    def __init__(self, version: int) -> None:
        super().__init__()
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
        self._mark: _Mark | None = None
        self._version = version
        self.at(version + 1)

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
        self._note(partial(heappush, self._free, slot))
        self._put_row(self._columns, slot, (self._version, 0, (), fact, NEW, TRUE, kind, 0, 0, 0, None))
        if fact:
            self._facts[fact] = slot
            self._note(partial(self._facts.pop, fact))
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
            self._note(partial(self._facts.__setitem__, fact, slot))

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
        self._note(partial(restore, shown, places, olds))
        return changed, altered

    # -- the way back -----------------------------------------------------------------------------------------

    def mark(self) -> None:
        """From here on all can be undone; an earlier mark is forgotten."""
        self._journal = []
        self._mark = _Mark(
            self._version,
            self._count,
            list(self._log),
            list(self._work),
            list(self._made),
            dict(self._rows),
            set(self._gone),
            list(self._dropped),
            None if self._deferred is None else dict(self._deferred),
        )

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
        self._version, self._count = mark.version, mark.count
        self._log, self._work, self._made = mark.log, mark.work, mark.made
        self._rows, self._gone, self._dropped = mark.rows, mark.gone, mark.dropped
        self._deferred = mark.deferred


BLANK: Final[tuple[object, ...]] = (0, 0, (), "", NEW, TRUE, OPS[Op.LEAF], 0, 0, 0, None)
"""The row of a place that was never used."""
