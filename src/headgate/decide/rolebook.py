"""The role book after what a batch made of it, and who holds what in it.

Guarantees: pure; what a batch does not name stays the same object. A role reference means memberships that are true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from headgate.model.expressions import Argument, Constant, Meta, RoleRef, Term, Variable
from headgate.model.layered import branch
from headgate.model.rights import Rule
from headgate.model.roles import Membership, RoleBook, RoleFacts
from headgate.model.state import State
from headgate.model.values import Value

K = TypeVar("K")
V = TypeVar("V")


def merged(book: RoleBook, facts: RoleFacts) -> RoleBook:
    """The book with what a batch made of it."""
    gone = {one.id for one in facts.ended}
    memberships, held = book.memberships, book.held
    if facts.memberships or gone & memberships.keys():
        memberships = branch(memberships)
        touched = dict.fromkeys(memberships[one.id].holder for one in facts.ended if one.id in memberships)
        touched |= dict.fromkeys(one.holder for one in facts.memberships)
        for id in gone:
            memberships.pop(id, None)
        fresh: dict[str, list[str]] = {}
        for membership in facts.memberships:
            if membership.id not in memberships:
                fresh.setdefault(membership.holder, []).append(membership.id)
            memberships[membership.id] = membership
        held = branch(held)
        for holder in touched:
            kept = (*(id for id in held.get(holder, ()) if id not in gone), *fresh.get(holder, ()))
            if kept:
                held[holder] = kept
            else:
                held.pop(holder, None)
    return replace(
        book,
        memberships=memberships,
        held=held,
        elections=_merge(book.elections, {one.id: one for one in facts.elections}, gone),
        records=_merge(book.records, {one.ref: one for one in facts.records}, facts.dropped),
        bans=_with(book.bans, facts.banned, facts.lifted),
        peers=_merge(book.peers, {one.name: one for one in facts.peers}, facts.peers_gone),
        rolefiles=_merge(
            book.rolefiles,
            {name: one for name, one in facts.rolefiles if one is not None},
            [name for name, one in facts.rolefiles if one is None],
        ),
        watches=_with(book.watches, facts.watched, facts.unwatched),
    )


def _merge(old: Mapping[K, V], new: Mapping[K, V], gone: Iterable[K]) -> Mapping[K, V]:
    ended = [key for key in gone if key in old]
    if not new and not ended:
        return old
    made = branch(old)
    for key in ended:
        made.pop(key, None)
    made.update(new)
    return made


def _with(old: frozenset[K], new: Iterable[K], gone: Iterable[K]) -> frozenset[K]:
    return (old - frozenset(gone)) | frozenset(new) if new or gone else old


def holders(memberships: Mapping[str, Membership]) -> dict[str, tuple[str, ...]]:
    """The memberships of each holder, in order."""
    held: dict[str, list[str]] = {}
    for one in memberships.values():
        held.setdefault(one.holder, []).append(one.id)
    return {holder: tuple(ids) for holder, ids in held.items()}


def fit(ref: RoleRef, membership: Membership, bound: Mapping[str, Argument]) -> dict[str, Argument] | None:
    """What variables mean if a membership is meant by a reference, besides what they mean already; None if it is not.

    A reference without a service means whichever has such a role. Arguments that it leaves out may be anything.
    """
    if ref.role != membership.role or not is_of(ref, membership):
        return None
    instance = Constant("") if ref.instance is None else ref.instance
    if len(ref.args) > len(membership.args):
        return None
    pairs: list[tuple[Term, Argument]] = [
        (instance, membership.instance),
        *zip(ref.args, membership.args, strict=False),
    ]
    return unify(pairs, bound)


def is_of(ref: RoleRef, one: Membership) -> bool:
    """Is a membership of the service that is meant? Where none is named, of any of this domain."""
    return not one.foreign if ref.service is None else ref.service == one.service


def unify(pairs: Iterable[tuple[Term, Argument]], bound: Mapping[str, Argument]) -> dict[str, Argument] | None:
    """What variables mean so that each term is its value; None if that cannot be. `_` is never bound."""
    made = dict(bound)
    for term, value in pairs:
        match term:
            case Constant(wanted):
                if not alike(wanted, value):
                    return None
            case Variable("_"):
                pass
            case Variable(name):
                if name in made and not alike(made[name], value):
                    return None
                made[name] = value
            case Meta():
                return None
    return made


def alike(a: Argument, b: Argument) -> bool:
    """Are two arguments the same, `1` and `true` told apart?"""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    return type(a) is type(b) and a == b


def same(argument: Argument) -> tuple[bool, Argument]:
    """A key that two arguments share exactly if they are alike."""
    return isinstance(argument, bool), argument


def as_value(argument: Argument) -> Value:
    """An argument as conditions see it: a set is the text of its letters, in order."""
    return "".join(sorted(argument)) if isinstance(argument, frozenset) else argument


def counting(state: State, principal: str, rule: Rule) -> Iterator[Rule]:
    """A rule for a role, as it counts for each membership of a principal that is true."""
    assert rule.role is not None
    for one in state.roles.held_by(principal):
        bound = fit(rule.role, one, {})
        if bound is not None:
            yield replace(rule, given={name: as_value(value) for name, value in bound.items()})
