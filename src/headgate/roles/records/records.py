"""Credential records: what is believed, what follows from it, and what falls when it changes (OASIS 4.6-4.8).

Guarantees: the state of a record always follows from its parents, and a change is through before the call returns.
False is final for what was revoked, for a latched record, and for what cannot be true without such a one; true and
unknown are not. Leaves that change together are set together (`set_all`); between `defer` and `latch` nothing latches,
so that only what is false in the end is false for good, whatever came in between. A sweep drops only what nobody uses
and nothing rests on, and costs what changed, not what there is. Several calls are undone by `mark` and `rollback`.
Leaves out: what a fact means (`roles.records.facts`), and storage: `take` says what to write, and `Records` reads it
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from headgate.model.errors import AlreadyExists, BadDefinition, Damaged, TooMany
from headgate.model.limits import MAX_RECORD_PARENTS, MAX_RECORDS
from headgate.model.roles import Link, Op, Record, Reference, magic_of, place_of, reference_text
from headgate.roles.records.graph import (
    AUTO,
    DEAD,
    DIES,
    FALSE,
    FATES,
    LAST,
    LATCH,
    OPS,
    TRUE,
    UNITS,
    UNKNOWN,
    VALUES,
    truth,
)
from headgate.roles.records.slots import BLANK, Changes, Places, Turn

__all__ = ["Changes", "Records", "Turn"]

_CODES: Final = {False: FALSE, True: TRUE, None: UNKNOWN}
_INNER: Final = {Op.AND: Op.AND, Op.NAND: Op.AND, Op.OR: Op.OR, Op.NOR: Op.OR}
"""How many inputs are put together before the operator is applied to what comes of them."""
_RUN_OUT: Final = frozenset({Op.OR, Op.NAND})
"""Operators that are false for good once every input is settled against them."""
_RESTORE: Final = "restore the ledger from a copy"


class Records(Places):
    """The records as of a version.

    `held` names every use from outside, one by one; without it, each record marked `direct` is used once.
    """

    def __init__(
        self, records: Iterable[Record] = (), version: int = 0, held: Iterable[Reference] | None = None
    ) -> None:
        super().__init__(version)
        self._load(list(records), held, version)

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
        plain = not (own or latch or auto_revoke) and op in {Op.AND, Op.OR}
        if plain and len(fitted) == 1 and not fitted[0].negated:
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
            raise BadDefinition("a leaf follows from nothing", remedy="combine with and, or, nand or nor")
        if len(links) > MAX_RECORD_PARENTS and auto_revoke and op is not Op.AND:
            raise TooMany(f"a record that falls with any of its parents has at most MAX_RECORD_PARENTS "
                          f"({MAX_RECORD_PARENTS})", remedy="combine them with `and`")  # fmt: skip
        while len(links) > MAX_RECORD_PARENTS:
            parts = (links[at : at + MAX_RECORD_PARENTS] for at in range(0, len(links), MAX_RECORD_PARENTS))
            links = tuple(Link(self.combine(_INNER[op], part)) for part in parts)
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
        return DEAD if dies or (left == 0 and op in _RUN_OUT) else self._follows(slot)

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

    def below(self, ref: Reference) -> list[Reference]:
        """What would become false or unknown if a record were revoked, itself left out. Changes nothing."""
        start = self._place(ref)
        if start < 0:
            return []
        now = {start: FALSE}
        counts: dict[int, int] = {}
        walk = [(self._rank[start], start)]
        below = []
        while walk:
            _, at = heappop(walk)
            old = self._state[at]
            if at != start:
                new = _CODES[VALUES[truth(self._kind[at], counts[at])]]
                if at in now or new == old:
                    continue
                now[at] = new
                if new != TRUE:
                    below.append(self._ref(at))
            for edge in self._kids[at] or ():
                child, units = edge >> 1, UNITS[edge & 1]
                if self._state[child] != DEAD:
                    counts[child] = counts.get(child, self._counts[child]) + units[now[at]] - units[old]
                    heappush(walk, (self._rank[child], child))
        return below

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
