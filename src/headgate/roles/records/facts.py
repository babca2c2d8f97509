"""What leaves of the credential graph are about: facts that are looked at again when something changes (OASIS 4.8.1).

Guarantees: a fact has one text, and the text one fact. What a fact depends on is known, so that a change looks again at
those facts that it can change: of group memberships, exactly those of whoever joined or left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

from headgate.decide.constraints import Bindings, Scene, truth, value
from headgate.decide.reading import read, spellings
from headgate.decide.rolebook import same
from headgate.lang.acl import FUNCTIONS
from headgate.lang.literals import reading_beside
from headgate.lang.render import render_constraint
from headgate.lang.rolefile import parse_constraint
from headgate.model import expressions as tree
from headgate.model.changes import Row
from headgate.model.roles import Link, Membership, Op, Reference, Service, dump_argument, load_argument
from headgate.model.state import State
from headgate.roles.records.records import Records

K = TypeVar("K")
Key: TypeAlias = tuple[object, ...]
"""Something that a fact depends on: the rows of a relation, the members of a role, the groups, the clock."""

CLOCK: Final[Key] = ("clock",)
GROUPS: Final[Key] = ("groups",)


@dataclass(frozen=True, slots=True)
class When:
    """A constraint's atom, with all its values, at a service."""

    service: str
    instance: str
    leaf: tree.Atom


@dataclass(frozen=True, slots=True)
class NotRevoked:
    """A role instance has not been revoked by those who may (OASIS 4.11)."""

    service: str
    instance: str
    role: str
    args: tuple[tree.Argument, ...]
    revoker: str
    """Who may, as `roles.requests.revocation` has it: a role, or the clauses of a quorum."""

    @property
    def office(self) -> tuple[str, str, str]:
        """The service, the instance and the role."""
        return self.service, self.instance, self.role


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A record of a service of another domain (OASIS 4.9.1)."""

    peer: str
    remote: Reference


Fact: TypeAlias = When | NotRevoked | Mirrored


def text_of(fact: Fact) -> str:
    """The text of a fact."""
    match fact:
        case When(service, instance, leaf):
            parts: list[object] = ["when", service, instance, render_constraint(leaf)]
        case NotRevoked(service, instance, role, args, revoker):
            parts = ["not-revoked", service, instance, role, [dump_argument(arg) for arg in args], revoker]
        case Mirrored(peer, remote):
            parts = ["peer", peer, remote]
    return json.dumps(parts, ensure_ascii=True, separators=(",", ":"))


@lru_cache(maxsize=65_536)
def fact_of(text: str) -> Fact:
    """The fact of a text."""
    match json.loads(text):
        case ["when", str(service), str(instance), str(said)]:
            leaf = parse_constraint(said)
            if isinstance(leaf, tree.Starred | tree.Not) or not isinstance(leaf, tree.Atom):
                raise ValueError(f"`{said}` is no atom")  # noqa: TRY004 - text, whatever it parses to
            return When(service, instance, leaf)
        case ["not-revoked", str(service), str(instance), str(role), [*args], str(revoker)]:
            return NotRevoked(service, instance, role, tuple(load_argument(arg) for arg in args), revoker)
        case ["peer", str(peer), int(remote)]:
            return Mirrored(peer, remote)
        case other:
            raise ValueError(f"`{other}` is no fact")


def ground(leaf: tree.Atom, bound: Bindings, scene: Scene) -> tree.Atom | None:
    """An atom with the values of its variables and of the request; None if one has none."""

    def put(expression: tree.Operand) -> tree.Operand:
        match expression:
            case tree.Meta("time") | tree.Variable("_") | tree.Constant():
                return expression
            case tree.Variable() | tree.Meta():
                known = value(expression, bound, scene)
                if known is None:
                    raise _Missing
                return tree.Constant(known)
            case tree.Count(of):
                return tree.Count(_placed(of, bound, scene))
            case tree.Combine(op, left, right):
                sides = put(left), put(right)
                if op in ("+", "-") and any(
                    isinstance(side, tree.Constant) and isinstance(side.value, str) for side in sides
                ):
                    raise _Missing  # text that says no time
                return tree.Combine(op, *sides)
            case _:
                return tree.with_operands(expression, put)

    def beside(expression: tree.Operand, *others: tree.Operand) -> tree.Operand:
        """Text beside the clock is the time it says, and has no value if it says none."""
        for other in others:
            reading = reading_beside(other)
            if reading is not None and isinstance(expression, tree.Constant) and isinstance(expression.value, str):
                expression = tree.Constant(read(reading, expression.value))
                if isinstance(expression.value, str):
                    raise _Missing
        return expression

    try:
        match leaf:
            case tree.Compare(op, left, right):
                a, b = put(left), put(right)
                return tree.Compare(op, beside(a, b), beside(b, a))
            case tree.InRange(of, low, high):
                a, b, c = put(of), put(low), put(high)
                return tree.InRange(beside(a, b, c), beside(b, a), beside(c, a))
            case _:
                return tree.with_operands(leaf, put)
    except _Missing:
        return None


class _Missing(Exception):
    """A variable has no value."""


def _placed(ref: tree.RoleRef, bound: Bindings, scene: Scene) -> tree.RoleRef:
    own = scene.own(ref)
    args = tuple(
        tree.Constant(bound[arg.name]) if isinstance(arg, tree.Variable) and arg.name in bound else arg
        for arg in own.args
    )
    return tree.RoleRef(own.role, args, own.service, own.instance)


# -- what facts depend on -------------------------------------------------------------------------------------


def depends_on(fact: Fact) -> frozenset[Key]:
    """What may change a fact; of a simple group membership nothing, as those are found by member.

    A name may come to mean a role, a relation or a function, so a fact that has one depends on all three.
    """
    if isinstance(fact, NotRevoked):
        place = fact.service, fact.instance
        return frozenset({revocation_key(place, fact.role), revocation_key(place, fact.role, fact.args)})
    if not isinstance(fact, When) or member_of(fact) is not None:
        return frozenset()
    return frozenset(_keys(fact))


def member_of(fact: Fact) -> tuple[str, str] | None:
    """The group and the member, if a fact is that someone is in a group."""
    match fact:
        case When(_, _, tree.InGroup(tree.Constant(str(who)), group)):
            return group, who
        case _:
            return None


def _keys(fact: When) -> Iterator[Key]:
    match fact.leaf:
        case tree.InGroup():
            yield GROUPS
        case tree.Related(name, args):
            yield from _name_keys(name, args)
            yield _narrowed(role_key((fact.service, fact.instance), name), args)
    for operand in tree.looked_at(fact.leaf):
        match operand:
            case tree.Meta("time"):
                yield CLOCK
            case tree.Apply(function, args):
                yield from _name_keys(function, args)
            case tree.Count(of):
                instance = of.instance.value if isinstance(of.instance, tree.Constant) else fact.instance
                yield _narrowed(role_key((of.service or fact.service, str(instance)), of.role), of.args)


def _name_keys(name: str, args: tuple[tree.Operand, ...]) -> Iterator[Key]:
    yield name_key(name)
    yield _narrowed(("rows", name), args)
    if name in FUNCTIONS:
        yield GROUPS


def _narrowed(key: Key, args: tuple[tree.Operand, ...]) -> Key:
    """Of rows or members, only those with the first constant in its place."""
    for place, arg in enumerate(args):
        if isinstance(arg, tree.Constant):
            return (*key, place, same(arg.value))
    return key


def name_key(name: str) -> Key:
    """What a name means depends on this: a relation or function comes, goes or is another."""
    return ("name", name)


def role_key(place: Service, role: str) -> Key:
    """What depends on who holds a role, whoever it is, depends on this."""
    return ("role", *place, role)


def revocation_key(place: Service, role: str, args: tuple[tree.Argument | None, ...] | None = None) -> Key:
    """What depends on revocations of a role depends on this; or on those of one instance, where no argument is open."""
    key = ("revocation", *place, role)
    return key if args is None or None in args else (*key, *map(same, args))


def holder_keys(one: Membership) -> set[Key]:
    """What a change of a membership may change."""
    key = role_key(one.place, one.role)
    return {key, *((*key, place, same(arg)) for place, arg in enumerate(one.args))}


def row_keys(name: str, before: frozenset[Row] | None, after: frozenset[Row] | None) -> set[Key]:
    """What a change of the rows of a relation may change."""
    moved = (before or frozenset()) ^ (after or frozenset())
    keys: set[Key] = {("rows", name)}
    for row in moved:
        for place, stored in enumerate(row):
            keys.update(("rows", name, place, same(one)) for one in spellings(stored))
    return keys if before is not None and after is not None else keys | {name_key(name)}


def enter(index: dict[K, dict[str, None]], key: K, name: str) -> None:
    """Let something be found by a key, after all that is found there already."""
    index.setdefault(key, {})[name] = None


def strike(index: dict[K, dict[str, None]], key: K, name: str) -> None:
    """Let it be found there no more."""
    names = index.get(key, {})
    names.pop(name, None)
    if not names:
        index.pop(key, None)


class Interest:
    """The facts that records stand for, found by what may change them."""

    def __init__(self) -> None:
        self._keys: dict[str, frozenset[Key]] = {}
        self._by_key: dict[Key, dict[str, None]] = {}
        self._by_role: dict[Key, dict[str, None]] = {}
        self._by_member: dict[str, dict[str, dict[str, None]]] = {}
        """By group, and in it by member."""

    def __contains__(self, role: Key) -> bool:
        """Does any fact look at who holds a role?"""
        return role in self._by_role

    def add(self, text: str) -> bool:
        """Remember a fact; was it not there?"""
        if text in self._keys:
            return False
        self._keys[text] = keys = depends_on(fact_of(text))
        for index, key in self._entries(text, keys):
            enter(index, key, text)
        return True

    def remove(self, text: str) -> bool:
        """Forget a fact; was it there?"""
        keys = self._keys.pop(text, None)
        for index, key in () if keys is None else self._entries(text, keys):
            strike(index, key, text)
        return keys is not None

    def _entries(self, text: str, keys: Iterable[Key]) -> Iterator[tuple[dict[Any, dict[str, None]], object]]:
        """Where a fact is found: an index, and its key there."""
        for key in keys:
            yield self._by_key, key
            if key[0] == "role":
                yield self._by_role, key[:4]
        member = member_of(fact_of(text))
        if member is not None:
            yield self._by_member.setdefault(member[0], {}), member[1]

    def texts(self) -> frozenset[str]:
        """The facts."""
        return frozenset(self._keys)

    def of(self, keys: Iterable[Key]) -> dict[str, None]:
        """The facts that depend on any of these."""
        return {text: None for key in keys for text in self._by_key.get(key, ())}

    def stratum(self, text: str, order: Mapping[tuple[str, str], int]) -> int:
        """The highest number of the roles that a fact looks at; -1 if it looks at none that has one."""
        roles = ((str(key[1]), str(key[3])) for key in self._keys.get(text, ()) if key[0] == "role")
        return max((order.get(role, -1) for role in roles), default=-1)

    def of_members(self, before: State, after: State) -> dict[str, None]:
        """The facts about whoever joined or left a group, directly or through others."""
        facts: dict[str, None] = {}
        for group, interesting in self._by_member.items():
            if not interesting or not _may_differ(group, before, after):
                continue
            moved = before.members_of(group) ^ after.members_of(group)
            for who in moved & interesting.keys():
                facts.update(dict.fromkeys(interesting[who]))
            if (group in before.groups) != (group in after.groups):
                facts.update(dict.fromkeys(text for texts in interesting.values() for text in texts))
        return facts


def _may_differ(group: str, before: State, after: State) -> bool:
    """Did the group, or one inside it, change?"""
    seen: set[str] = set()
    frontier = [group]
    while frontier:
        at = frontier.pop()
        if at in seen:
            continue
        seen.add(at)
        if before.groups.get(at) is not after.groups.get(at):
            return True
        frontier += [one for one in after.groups.get(at, ()) if one in after.groups]
    return False


Rule: TypeAlias = Link | bool
FactRecord: TypeAlias = Callable[[When], Link]


def membership_rule(
    constraint: tree.Condition, bound: Bindings, scene: Scene, table: Records, fact: FactRecord
) -> Rule:
    """What must stay true of a constraint; `fact` finds or makes the record of a fact."""

    def follow(part: tree.Condition, starred: bool, positive: bool) -> Rule:
        match part:
            case tree.Starred(arg):
                return follow(arg, True, positive)
            case tree.Not(arg):
                inner = follow(arg, starred, not positive)
                return not inner if isinstance(inner, bool) else Link(inner.parent, not inner.negated)
            case tree.AllOf(args):
                return _joined(table, Op.AND, [follow(arg, starred, positive) for arg in args])
            case tree.AnyOf(args):
                return _joined(table, Op.OR, [follow(arg, starred, positive) for arg in args])
            case atom:
                return settle(atom, starred, positive)

    def settle(leaf: tree.Atom, starred: bool, positive: bool) -> Rule:
        known = ground(leaf, bound, scene)
        if starred and known is not None:
            return fact(When(scene.service, scene.instance, known))
        answer = truth(leaf, bound, scene)
        return (not positive) if answer is None else answer

    return follow(constraint, False, True)


def _joined(table: Records, op: Op, parts: list[Rule]) -> Rule:
    deciding = op is Op.OR  # a part that settles the whole: false among all, true among any
    if any(part is deciding for part in parts):
        return deciding
    links = [part for part in parts if isinstance(part, Link)]
    if not links:
        return not deciding
    return links[0] if len(links) == 1 else Link(table.combine(op, links))
