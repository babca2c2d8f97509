"""What makes one policy index the next: little where little changed, however large both are.

Guarantees: an index that a difference is applied to is equal to the one it leads to, in every array and object. What is
the same object in both is left out, and so are rows of arrays that are equal bit by bit. What a builder only adds to
(texts, rests, attribute sets, demands, holders) is told from where it ended. Two indexes that are not of one builder's
growth have no difference.
Leaves out: how it travels (`pipeline.spark.sharing`).

    before = IndexMark.of(index)          # then the builder goes on
    change = difference(before, newer)
    applied(index, change)                # elsewhere, to a copy of `index`
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Self, TypeAlias

import numpy as np

from headgate.pipeline.index.index import Dyadic, Epoch, HashAccess, Interned, PolicyIndex, Shape, Subscriptions

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True, slots=True)
class Whole:
    """Something else in its place."""

    value: Any


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """An array of another length, with other rows at some places and at the end."""

    length: int
    at: Array
    rows: Array
    tail: Array


@dataclass(frozen=True, slots=True)
class Longer:
    """More of what is only added to, from a place on."""

    begin: int
    tail: list[Any]


@dataclass(frozen=True, slots=True)
class ChangedFields:
    """Some fields of an object."""

    fields: dict[str, Change]


@dataclass(frozen=True, slots=True)
class ChangedEntries:
    """A mapping without some keys, and with other values of some."""

    gone: list[Any]
    entries: dict[Any, Any]


@dataclass(frozen=True, slots=True)
class Elements:
    """A list of what earlier ones have become: the place of each, if it has one, and its change."""

    made: list[tuple[int, Change]]


Change: TypeAlias = Whole | ChangedRows | Longer | ChangedFields | ChangedEntries | Elements | None
"""What makes one thing another; None where it is the same."""

NOWHERE: Final = -1
_GROWN: Final = frozenset({"known", "rests", "sets", "demands", "holders"})


@dataclass(frozen=True, slots=True)
class IndexMark:
    """An index as it was: its builder adds to the texts of it, which are the same object in the next one."""

    index: PolicyIndex
    known: int
    rights_known: int

    @classmethod
    def of(cls, index: PolicyIndex) -> Self:
        """An index as it is now."""
        return cls(index, len(index.known), len(index.rights.known))


def difference(before: IndexMark, now: PolicyIndex) -> Change:
    """What makes an index the next one of the same builder; a whole index where it began anew between."""
    old = before.index
    if now is old:
        return None
    if now.known is not old.known or now.rights.known is not old.rights.known:
        return Whole(now)
    rights = _fields(old.rights, now.rights, {"shapes": _shapes}, {"known": before.rights_known})
    return _fields(
        old,
        now,
        {"filters": _shapes, "epochs": _epochs, "rights": lambda _old, _new: rights, "policies": _entries},
        {"known": before.known},
    )


def _fields(
    old: Any,
    new: Any,
    special: Mapping[str, Callable[[Any, Any], Change]] | None = None,
    lengths: Mapping[str, int] | None = None,
) -> Change:
    """Field by field; of those that only grow, what is past their length."""
    changed: dict[str, Change] = {}
    for field in dataclasses.fields(new):
        was, now = getattr(old, field.name), getattr(new, field.name)
        if special is not None and field.name in special:
            change = special[field.name](was, now)
        elif lengths is not None and field.name in _GROWN:
            change = _longer(lengths.get(field.name, len(was)), now)
        else:
            change = _of(was, now)
        if change is not None:
            changed[field.name] = change
    return ChangedFields(changed) if changed else None


def _of(old: Any, new: Any) -> Change:
    if new is old:
        return None
    if type(new) is not type(old):
        return Whole(new)
    match new:
        case np.ndarray():
            return _rows(old, new)
        case str() | int() | bytes() | frozenset():  # of names: nothing else that is equal means the same
            return None if new == old else Whole(new)
        case HashAccess() | Dyadic() | Subscriptions():
            return _fields(old, new)
        case list() if len(new) == len(old) and all(isinstance(one, np.ndarray) for one in new):
            made = [(at, _rows(was, now)) for at, (was, now) in enumerate(zip(old, new, strict=True))]
            return None if all(change is None for _, change in made) else Elements(made)
        case _:
            return Whole(new)


def _rows(old: Array, new: Array) -> Change:
    if old.dtype != new.dtype or old.shape[1:] != new.shape[1:]:
        return Whole(new)
    same = min(len(old), len(new))
    differs = _bits(old[:same]) != _bits(new[:same])
    at = np.flatnonzero(differs if differs.ndim == 1 else differs.any(axis=1)).astype(np.int32)
    if len(old) == len(new) and not len(at):
        return None
    rows, tail = new[at], new[same:].copy()
    return Whole(new) if at.nbytes + rows.nbytes + tail.nbytes >= new.nbytes else ChangedRows(len(new), at, rows, tail)


def _bits(rows: Array) -> Array:
    """Numbers of which equal ones are the same, also where floats are not."""
    return rows.view(np.int64) if rows.dtype.kind == "f" else rows


def _longer(begin: int, new: Sequence[Any] | Interned) -> Change:
    if len(new) == begin:
        return None
    return Longer(begin, list(islice(new, begin, None)))


def _entries(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Change:
    """Of a mapping what is another object."""
    return _keys(old, new, lambda was, now: was is now)


def _plain(old: Mapping[str, Any], new: Mapping[str, Any]) -> Change:
    """Of a mapping to numbers, or to sets of names, what is not equal."""
    return _keys(old, new, lambda was, now: was is now or was == now)


def _keys(old: Mapping[Any, Any], new: Mapping[Any, Any], same: Callable[[Any, Any], bool]) -> Change:
    if new is old:
        return None
    entries = {key: value for key, value in new.items() if key not in old or not same(old[key], value)}
    gone = [key for key in old if key not in new]
    return ChangedEntries(gone, entries) if entries or gone else None


def _shapes(old: list[Shape], new: list[Shape]) -> Change:
    """Rows of the same slots are likely those of before, and more."""
    return _elements(old, new, lambda one: (one.equal, one.ranges), _fields)


def _epochs(old: list[Epoch], new: list[Epoch]) -> Change:
    """Most have nearly everything in common with the epoch before them."""
    special = {
        **dict.fromkeys(("policy_rules", "relations", "predicates"), _entries),
        **dict.fromkeys(("senders", "groups"), _plain),
    }
    return _elements(old, new, lambda one: one.version, lambda was, now: _fields(was, now, special))


def _elements(
    old: list[Any], new: list[Any], key: Callable[[Any], Any], change: Callable[[Any, Any], Change]
) -> Change:
    same = {id(one): at for at, one in enumerate(old)}
    alike = {key(one): at for at, one in reversed(list(enumerate(old)))}
    made: list[tuple[int, Change]] = []
    for one in new:
        if id(one) in same:
            made.append((same[id(one)], None))
            continue
        at = alike.get(key(one), len(old) - 1)  # none: -1, which is nowhere
        made.append((at, Whole(one) if at == NOWHERE else change(old[at], one)))
    return None if made == [(at, None) for at in range(len(old))] else Elements(made)


# -- elsewhere --------------------------------------------------------------------------------------------------


def applied(old: Any, change: Change) -> Any:
    """What a change makes of something. Only texts are added to what is there; nothing else of it is touched."""
    match change:
        case None:
            return old
        case Whole(value):
            return value
        case ChangedRows(length, at, rows, tail):
            made = np.empty((length, *old.shape[1:]), old.dtype)
            same = length - len(tail)
            made[:same] = old[:same]
            made[at] = rows
            made[same:] = tail
            return made
        case Longer(begin, tail) if isinstance(old, Interned):
            for text in tail:
                old.number(text)  # which it may have already
            return old
        case Longer(begin, tail):
            return [*old[:begin], *tail]
        case ChangedFields(fields):
            return dataclasses.replace(old, **{name: applied(getattr(old, name), one) for name, one in fields.items()})
        case ChangedEntries(gone, entries):
            return {**{key: value for key, value in old.items() if key not in gone}, **entries}
        case Elements(made):
            return [applied(old[at] if at != NOWHERE else None, one) for at, one in made]
