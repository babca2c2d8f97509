"""The table under the credential records: columns by place, and how a change spreads through them (OASIS 4.7, 4.8).

Guarantees: one change works out each record that it reaches once, after all that the record rests on, from the numbers
of its true, false and unknown inputs; nothing flickers, and nothing recurses. What is false for good never changes
again. While latching is put off, the state of a record is a function of the leaves and of what was revoked, whatever
order these were changed in. All that was done since a mark can be undone, at the cost of what was done.
Leaves out: references, facts, what is reported and what is collected (`roles.records.records`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from operator import setitem
from typing import Any, Final, TypeVar

from headgate.model.roles import Op

T = TypeVar("T")

FALSE: Final = 0
TRUE: Final = 1
UNKNOWN: Final = 2
DEAD: Final = 3
"""False for good. True is never for good: whatever is true can still be revoked."""
NEW: Final = 4
"""In the column of what was last reported: nothing was."""

VALUES: Final[tuple[bool | None, ...]] = (False, True, None, False)
"""What a state means, by its number."""

# A kind is an operator with flags; the lowest bit is left free for the negation of an edge.
LATCH: Final = 1 << 4
AUTO: Final = 1 << 5
_OPS: Final = 0b1110
OPS: Final = {Op.LEAF: 0, Op.AND: 2, Op.OR: 4, Op.NAND: 6, Op.NOR: 8}
_LEAF, _AND, _OR, _NAND, _NOR = OPS.values()
_OF_ALL: Final = frozenset({_AND, _NAND})
_INVERTED: Final = frozenset({_NAND, _NOR})

# The numbers of true, false and unknown inputs lie side by side in one integer: MAX_RECORD_PARENTS is 512.
_WIDTH: Final = 10
_ONE_TRUE: Final = 1
_ONE_FALSE: Final = 1 << _WIDTH
_ONE_UNKNOWN: Final = 1 << 2 * _WIDTH
_TRUES: Final = _ONE_FALSE - 1
_FALSES: Final = _ONE_UNKNOWN - _ONE_FALSE
UNITS: Final = (
    (_ONE_FALSE, _ONE_TRUE, _ONE_UNKNOWN, _ONE_FALSE),
    (_ONE_TRUE, _ONE_FALSE, _ONE_UNKNOWN, _ONE_TRUE),
)
"""What an input adds to the numbers, by the negation of its edge and the state of the parent."""
_DELTAS: Final = tuple(
    tuple(tuple(units[new] - units[old] for units in UNITS) for new in range(len(VALUES))) for old in range(len(VALUES))
)
"""What a change of the parent adds, by its old and new state and the negation."""

COUNTS: Final = 0
DIES: Final = 1
LAST: Final = 2


def _fate(kind: int, negated: bool) -> int:
    op = kind & _OPS
    if negated:
        return DIES if op == _NOR else LAST if op == _NAND else COUNTS
    return DIES if op == _AND or kind & AUTO else LAST if op == _OR else COUNTS


FATES: Final = tuple(_fate(kind & ~1, bool(kind & 1)) for kind in range(AUTO << 1))
"""What becomes of a record when a parent is false for good, by kind and negation.

It DIES with it, or once this was the LAST input to be settled so, or the input only COUNTS.
"""


def truth(kind: int, counts: int) -> int:
    """The state that follows from the inputs, three-valued (D1)."""
    if kind & AUTO and counts & _FALSES:
        return DEAD
    op = kind & _OPS
    if op in _OF_ALL:
        held = FALSE if counts & _FALSES else UNKNOWN if counts >= _ONE_UNKNOWN else TRUE
    else:
        held = TRUE if counts & _TRUES else UNKNOWN if counts >= _ONE_UNKNOWN else FALSE
    if op in _INVERTED and held != UNKNOWN:
        held = TRUE - held
    return DEAD if held == FALSE and kind & LATCH else held


def inputs(counts: int) -> tuple[int, int, int]:
    """The numbers of true, false and unknown inputs."""
    return counts & _TRUES, (counts & _FALSES) >> _WIDTH, counts >> 2 * _WIDTH


class RecordGraph:
    """Columns by place. An edge is the place of the child, shifted, with the negation in the lowest bit."""

    def __init__(self) -> None:
        self._state: list[int] = []
        self._kind: list[int] = []
        self._counts: list[int] = []
        self._left: list[int] = []
        """Inputs of an OR or NAND that are not yet settled for good against it."""
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

    # -- undoing ----------------------------------------------------------------------------------------------

    def _put(self, column: list[T], place: int, value: T) -> None:
        if self._journal is not None:
            self._journal.append(partial(setitem, column, place, column[place]))
        column[place] = value

    def _put_row(self, columns: tuple[list[Any], ...], place: int, row: tuple[object, ...]) -> None:
        if self._journal is not None:
            self._journal.append(partial(_set_row, columns, place, tuple(column[place] for column in columns)))
        _set_row(columns, place, row)

    def _note(self, undo: Callable[[], object]) -> None:
        if self._journal is not None:
            self._journal.append(undo)

    # -- edges ------------------------------------------------------------------------------------------------

    def _join(self, parent: int, edge: int) -> None:
        kids = self._kids[parent]
        if kids is None:
            kids = {}
            self._put(self._kids, parent, kids)
        kids[edge] = None
        self._note(partial(kids.pop, edge))

    def _part(self, parent: int, edge: int) -> None:
        kids = self._kids[parent]
        if kids is not None and edge in kids:
            del kids[edge]
            self._note(partial(setitem, kids, edge, None))
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
            self._note(partial(restore, self._state, [slot], [old]))
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
        self._note(partial(restore, state, turned, befores))
        self._trim()

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
        self._note(partial(restore, counts, children, befores))

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
        self._note(partial(restore, state, fallen, olds))
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

    def _trim(self) -> None:
        """Keep the lists of what happened within a few times the table, however long nobody asks."""
        for noted in (self._log, self._work):
            if len(noted) > 4 * len(self._state) + 1_000:
                noted[:] = dict.fromkeys(noted)

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


def restore(column: list[int], places: list[int], olds: list[int]) -> None:
    """Put old values back, the last first."""
    for place, old in zip(reversed(places), reversed(olds), strict=True):
        column[place] = old


def _set_row(columns: tuple[list[Any], ...], place: int, row: tuple[object, ...]) -> None:
    for column, value in zip(columns, row, strict=True):
        column[place] = value
