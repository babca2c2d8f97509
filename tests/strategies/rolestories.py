"""Stories of roles by hand, and plain readings of what the role engine should make of any story.

`truth` and `value` read a constraint directly. `Model` keeps for each membership what it must rest on as a tree over
the facts themselves, and works out each version from where all stood before it, as docs/decisions/0029 says.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any, Final

from headgate.decide.constraints import Scene
from headgate.lang.render import render_role, render_statement
from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import (
    Batch,
    Change,
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    HearPeer,
    MirrorRole,
    ReinstateRole,
    RemovePeer,
    RemovePrincipal,
    RevokeRole,
    SetPeer,
    SetRolefile,
    Settle,
    Tick,
)
from headgate.model.expressions import (
    AllOf,
    AnyOf,
    Apply,
    Combine,
    Compare,
    Condition,
    Constant,
    Count,
    InGroup,
    InRange,
    InSet,
    Meta,
    Not,
    Operand,
    Related,
    RoleRef,
    Starred,
    TextMatch,
    Variable,
)
from headgate.model.limits import MAX_FACT_TURNS
from headgate.model.rolefiles import Rolefile, Statement
from headgate.model.roles import Election, Membership, Peer
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.records.book import Book
from headgate.roles.requests import entry
from headgate.roles.requests.entry import Derived, EntryRequest, derive
from headgate.roles.requests.transition import transition

NOW: Final = datetime(2026, 1, 1, 9, tzinfo=UTC)
Truth = bool | None


def later(seconds: float) -> datetime:
    """A while after the stories begin."""
    return NOW + timedelta(seconds=seconds)


class Story:
    """A domain to which one thing after another happens; each step is a version, with the book kept beside it."""

    def __init__(self, *changes: Change, functions: Mapping[str, Callable[..., object]] | None = None) -> None:
        self.functions = functions or {}
        self.state = State()
        self.book: Book | None = None
        self.reasons: dict[str, str] = {}
        self.do(*changes)

    def do(self, *changes: Change, now: datetime = NOW) -> Story:
        """One more version."""
        made = transition(self.state, Batch(ADMINISTRATOR, changes), book=self.book, functions=self.functions, now=now)
        self.state, self.book = made.after, made.book
        for change in made.batch.changes:
            if isinstance(change, Settle):
                self.reasons.update({one.id: one.reason for one in change.facts.ended})
        return self

    def rolefile(self, *lines: str, service: str = "S") -> Story:
        """A rolefile of these lines."""
        return self.do(SetRolefile(service, parse_rolefile("".join(f"{line}\n" for line in lines))))

    def grant(self, id: str, to: str, role: str, *args: Any, service: str = "L", **more: Any) -> Story:
        """A service gives a role for its own reasons."""
        return self.do(GrantRole(id, service, role, args, to, **more))

    def enter(
        self, id: str, who: str, role: str, *args: Any, using: tuple[str, ...] | None = None, **more: Any
    ) -> Story:
        """A principal enters a role; without arguments, all are left open."""
        asked = {"service": "S", "at": NOW, **more}
        return self.do(EnterRole(id=id, role=role, args=args or None, principal=who, using=using, **asked))

    def elect(
        self, id: str, who: str, role: str, *args: Any, using: tuple[str, ...] | None = None, **more: Any
    ) -> Story:
        """A principal elects to a role."""
        asked = {"service": "S", "at": NOW, **more}
        return self.do(ElectRole(id=id, role=role, args=args or None, principal=who, using=using, **asked))

    def end(self, id: str, by: str | None = None) -> Story:
        """A membership or an election ends."""
        return self.do(EndCredential(id, by))

    def revoke(self, who: str, role: str, *args: Any, **more: Any) -> Story:
        """A role instance is revoked by role."""
        asked = {"service": "S", "at": NOW, "using": None, **more}
        return self.do(RevokeRole(role=role, args=args, principal=who, **asked))

    def reinstate(self, who: str, role: str, *args: Any, **more: Any) -> Story:
        """A role instance may be entered again."""
        asked = {"service": "S", "at": NOW, "using": None, **more}
        return self.do(ReinstateRole(role=role, args=args, principal=who, **asked))

    def __contains__(self, id: str) -> bool:
        return self.state_of(id) is True

    def state_of(self, id: str) -> Truth:
        """What a membership is; false if it is no more."""
        found = self.state.roles.memberships.get(id)
        return False if found is None else found.state

    def args(self, id: str) -> tuple[Any, ...]:
        """The arguments of a membership."""
        return self.state.roles.memberships[id].args


# -- a direct reading of constraints ------------------------------------------------------------------------------

_OPS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "subset": operator.lt,
    "subseteq": operator.le,
    "superset": operator.gt,
    "superseteq": operator.ge,
}
_COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "union": operator.or_,
    "intersect": operator.and_,
    "minus": operator.sub,
}
_TEXT: Final[dict[str, Callable[[str, str], bool]]] = {
    "starts with": str.startswith,
    "contains": str.__contains__,
    "has token": lambda text, part: part in text.split() and bool(part),
}


@dataclass
class World:
    """What a constraint looks at, told plainly. `held` lists who holds which role: place, role, arguments."""

    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    relations: Mapping[str, frozenset[tuple[Any, ...]]] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    held: list[tuple[tuple[str, str], str, tuple[Any, ...]]] = field(default_factory=list)
    roles: frozenset[str] = frozenset()
    place: tuple[str, str] = ("S", "")
    asked: Mapping[str, Any] = field(default_factory=dict)


def equal(a: Any, b: Any) -> bool:
    """Are two arguments the same?"""
    return (
        isinstance(a, bool) == isinstance(b, bool) and isinstance(a, frozenset) == isinstance(b, frozenset) and a == b
    )


def value(e: Operand, env: Mapping[str, Any], world: World) -> Any:
    """The value of an expression, or None."""
    match e:
        case Constant(known):
            return known
        case Variable(name):
            return env.get(name)
        case Meta(name):
            return world.asked.get(name)
        case Apply(function, args):
            given = [value(arg, env, world) for arg in args]
            if function in world.relations:
                found = [row[-1] for row in world.relations[function] if all(map(equal, row[:-1], given))]
                return found[0] if len(found) == 1 else None
            known = world.functions.get(function)
            return None if known is None or None in given else known(*given)
        case Count(RoleRef(role, args, service, instance)):
            place = (service or world.place[0], world.place[1] if instance is None else value(instance, env, world))
            held = [one for at, name, one in world.held if (at, name) == (place, role) and len(one) >= len(args)]
            wanted = [value(arg, env, world) for arg in args]
            return sum(
                all(want is None or equal(want, got) for want, got in zip(wanted, one, strict=False)) for one in held
            )
        case Combine(op, left, right):
            a, b = value(left, env, world), value(right, env, world)
            sets = op in ("union", "intersect", "minus")
            return _COMBINE[op](a, b) if all(isinstance(one, frozenset if sets else int) for one in (a, b)) else None
    raise NotImplementedError(e)


def compared(op: str, a: Any, b: Any) -> Truth:
    """A comparison; unknown where one is null or they are of two kinds."""
    if (
        a is None
        or b is None
        or type(a) is not type(b)
        or (op.startswith("su") != isinstance(a, frozenset) and op not in ("=", "!="))
    ):
        return None
    return _OPS[op](a, b)


def inside(who: Any, group: str, groups: Mapping[str, frozenset[str]]) -> bool:
    """Is someone in a group, at any depth?"""
    return who in groups[group] or any(inside(who, one, groups) for one in groups[group] if one in groups)


def conjunction(parts: list[Truth]) -> Truth:
    """False if any is, else unknown if any is."""
    return False if False in parts else None if None in parts else True


def inverse(one: Truth) -> Truth:
    """Not."""
    return None if one is None else not one


def truth(c: Condition, env: Mapping[str, Any], world: World) -> Truth:
    """Is a constraint true? `_` stands for anything."""
    match c:
        case Starred(arg):
            return truth(arg, env, world)
        case Not(arg):
            return inverse(truth(arg, env, world))
        case AllOf(args):
            return conjunction([truth(arg, env, world) for arg in args])
        case AnyOf(args):
            return inverse(conjunction([inverse(truth(arg, env, world)) for arg in args]))
        case Compare(op, left, right):
            return compared(op, value(left, env, world), value(right, env, world))
        case InGroup(of, group):
            who = value(of, env, world)
            return inside(who, group, world.groups) if isinstance(who, str) and group in world.groups else None
        case InRange(of, low, high):
            x = value(of, env, world)
            return conjunction([compared(">=", x, value(low, env, world)), compared("<=", x, value(high, env, world))])
        case InSet(of, values):
            x = value(of, env, world)
            return inverse(conjunction([inverse(compared("=", x, one)) for one in values]))
        case TextMatch(op, left, right):
            text, part = value(left, env, world), value(right, env, world)
            return _TEXT[op](text, part) if isinstance(text, str) and isinstance(part, str) else None
        case Related(name, args):
            wanted = [value(arg, env, world) for arg in args]
            if any(want is None and arg != Variable("_") for want, arg in zip(wanted, args, strict=True)):
                return None
            if name in world.roles:
                rows = [one for at, role, one in world.held if (at, role) == (world.place, name)]
                fitting = [one for one in rows if len(one) >= len(wanted)]
            elif name in world.relations:
                fitting = [one for one in world.relations[name] if len(one) == len(wanted) or not wanted]
            else:
                return world.functions[name](*wanted) if name in world.functions else None
            return any(
                all(want is None or equal(want, got) for want, got in zip(wanted, one, strict=False)) for one in fitting
            )
    raise NotImplementedError(c)


# -- what memberships rest on, looked at again and again ----------------------------------------------------------

Rule = Callable[[], Truth]


@dataclass(eq=False)
class Node:
    """Something that lasts while its rule does not say false; one that does when a version ends is over for good."""

    rule: Rule
    state: Truth = True
    over: bool = False
    before: Truth = True
    dips: int = 0

    def look(self) -> bool:
        """Look at the rule; did anything change?"""
        found = False if self.over else self.rule()
        changed = found is not self.state
        self.dips += changed and found is False
        self.state = found
        return changed

    def end(self) -> None:
        """It is over."""
        self.over, self.state = True, False


@dataclass(eq=False)
class Leaf:
    """A starred atom with its values, or what another domain said."""

    look: Callable[[], Truth]
    state: Truth
    roles: frozenset[tuple[str, str]] = frozenset()
    turns: int = 0
    lost: bool = False


@dataclass(eq=False)
class Kept:
    """A membership of the model."""

    node: Node
    one: Membership
    statements: frozenset[str]
    until: datetime | None
    remote: tuple[str, int] | None = None


@dataclass(eq=False)
class Chosen:
    """An election of the model."""

    node: Node
    one: Election
    office: Node


class Model:
    """All memberships and elections, each with its rule as a tree; everything is looked at after each change."""

    def __init__(self) -> None:
        self.members: dict[str, Kept] = {}
        self.elections: dict[str, Chosen] = {}
        self.nodes: list[Node] = []
        self.leaves: list[Leaf] = []
        self.remotes: dict[tuple[str, int], Leaf] = {}
        self.state = State()
        self.now = NOW
        self.contested = False

    # -- what happens -----------------------------------------------------------------------------------------

    def step(
        self, changes: Sequence[Change], after: State, derived: list[tuple[EntryRequest, Scene, Derived | None]]
    ) -> None:
        """Take up one version: what the world says, and at most one request, which comes last.

        `after` is read for groups, relations, rolefiles and what began.
        """
        before, self.state = self.state, after
        for node in self.nodes:
            node.before = node.state
        gone = {one.name for one in changes if isinstance(one, RemovePrincipal)}
        for name in (before.principals.keys() - after.principals.keys()) | gone:
            self._leave(name)
        ticked = False
        peers = dict(before.roles.peers)
        for change in changes:
            match change:
                case Tick(at):
                    self._tick(at)
                    ticked = True
                case EnterRole() | ElectRole() | RevokeRole() | ReinstateRole():
                    self.now = change.at
                case HearPeer(peer, number, states, heard):
                    known = peers[peer]
                    if number >= known.number:
                        peers[peer] = replace(known, number=number, heard=max(heard, known.heard or heard))
                        self._hear(peer, states)
        if ticked:
            self._miss(self.now, peers)
        self.settle()
        for change in changes:
            self._ask(change, before, derived)
        self.settle()
        if any(node.state is False and not node.over for node in self.nodes) or self.contested:
            for node in self.nodes:
                node.state = False if node.over else node.before
            for leaf, found in [(leaf, leaf.look()) for leaf in self.leaves]:
                leaf.state = found
            self.settle(final=True)
        self.contested = False
        for node in self.nodes:
            node.over = node.state is False
        self.members = {id: one for id, one in self.members.items() if not one.node.over}
        self.elections = {id: one for id, one in self.elections.items() if not one.node.over}

    def _ask(self, change: Change, before: State, derived: list[tuple[EntryRequest, Scene, Derived | None]]) -> None:
        after = self.state
        match change:
            case GrantRole(id):
                self._begin(after.roles.memberships[id], self._node(lambda: True), frozenset())
            case EnterRole(id):
                made = derived[0][2]
                assert made is not None
                node = self._rests_on(made, derived[0][1].now, {})
                self._begin(after.roles.memberships[id], node, _followed(made))
            case ElectRole(id):
                self._elect(after.roles.elections[id])
            case EndCredential(id):
                (self.members.get(id) or self.elections[id]).node.end()  # type: ignore[union-attr]
            case MirrorRole(id):
                self._mirror(change, after.roles.memberships.get(id))
            case RemovePeer(name):
                self._forget_peer(name)
            case SetPeer(peer):
                old = before.roles.peers.get(peer.name)
                if old is not None and (old.key, old.service) != (peer.key, peer.service):
                    self._forget_peer(peer.name)
            case SetRolefile(service, rolefile):
                self._another(service, rolefile or Rolefile(), derived)

    def _begin(self, one: Membership, node: Node, statements: frozenset[str]) -> None:
        self.members[one.id] = Kept(node, one, statements, one.until)

    def _leave(self, name: str) -> None:
        for kept in self.members.values():
            if kept.one.holder == name:
                kept.node.end()
        for chosen in self.elections.values():
            if chosen.one.elector == name:
                chosen.node.end()

    def _elect(self, one: Election) -> None:
        office = self.members[one.membership].node
        node = self._node(lambda: office.state) if one.revoke_on_exit else self._node(lambda: True)
        self.elections[one.id] = Chosen(node, one, office)

    def _mirror(self, change: MirrorRole, made: Membership | None) -> None:
        key = change.peer, change.remote
        leaf = self.remotes.get(key)
        if leaf is None or leaf.state is False:
            leaf = self.remotes[key] = Leaf(lambda: None, change.state)
        leaf.state = change.state
        if made is not None and made.id not in self.members:
            known = leaf
            self._begin(made, self._node(lambda: known.state), frozenset())
            self.members[made.id].remote = key

    def _hear(self, peer: str, states: Mapping[int, Truth]) -> None:
        for remote, state in states.items():
            leaf = self.remotes.get((peer, remote))
            if leaf is not None and leaf.state is not False:
                leaf.state = state

    def _forget_peer(self, name: str) -> None:
        for kept in self.members.values():
            if kept.one.service == name:
                kept.node.end()
        self.remotes = {key: leaf for key, leaf in self.remotes.items() if key[0] != name}

    def _tick(self, at: datetime) -> None:
        self.now = at
        for one in (*self.members.values(), *self.elections.values()):
            until = one.until if isinstance(one, Kept) else one.one.until
            if until is not None and until <= at:
                one.node.end()

    def _miss(self, at: datetime, peers: Mapping[str, Peer]) -> None:
        for (peer, _), leaf in self.remotes.items():
            known = peers[peer]
            if leaf.state is True and (known.heard is None or known.heard + timedelta(seconds=known.bound) <= at):
                leaf.state = None

    def _another(
        self, service: str, rolefile: Rolefile, derived: list[tuple[EntryRequest, Scene, Derived | None]]
    ) -> None:
        kept = {render_statement(one) for one in rolefile.statements}
        told = deque(derived)
        for one in list(self.members.values()):
            if one.one.service != service or not one.statements or one.statements <= kept or one.node.over:
                continue
            who = one.one.role, one.one.args, one.one.holder
            asked = bool(told) and (told[0][0].role, told[0][0].args, told[0][1].client) == who
            if kept and not asked:
                assert one.node.state is False, f"{who} is not looked at, and rests on nothing that has ended"
            _, scene, made = told.popleft() if asked else (None, None, None)
            if made is None or scene is None:
                one.node.end()
            else:
                rests = self._rests_on(made, scene.now, {})
                open_ = [node for id in made.supports() if (node := self._node_of(id)).state is None]
                one.node.rule = _all_of([rests.rule, *(_stands(node) for node in open_)])
                one.statements = _followed(made)
            self.settle()

    def _node_of(self, id: str) -> Node:
        return self.members[id].node if id in self.members else self.elections[id].node

    # -- what follows -----------------------------------------------------------------------------------------

    def settle(self, *, final: bool = False) -> None:
        """Look at the facts, and let all follow that rests on them, until nothing turns any more.

        Facts that look at few roles, through however many others, go first; roles that look at each other see as many.
        """
        sees = self._sees()
        for leaf in self.leaves:
            leaf.turns, leaf.lost = 0, False
        self._follow()
        for _ in range(1_000):
            turning = [leaf for leaf in self.leaves if not leaf.lost and leaf.look() is not leaf.state]
            if not turning:
                return
            levels = {
                id(leaf): max((len(sees[role]) for role in leaf.roles if role in sees), default=0) for leaf in turning
            }
            level = min(levels.values())
            ready = [leaf for leaf in turning if levels[id(leaf)] == level]
            for leaf, found in [(leaf, leaf.look()) for leaf in ready]:
                leaf.state, leaf.turns = found, leaf.turns + 1
            most = max(leaf.turns for leaf in ready)
            if most == MAX_FACT_TURNS + 1:
                for node in self.nodes:
                    node.dips = 0
            if most > 2 * MAX_FACT_TURNS:
                self._break(final, ready, {role for role, seen in sees.items() if len(seen) == level})
            self._follow()
        raise AssertionError("never at rest")

    def _follow(self) -> None:
        while sum(node.look() for node in self.nodes):
            pass

    def _break(self, final: bool, ready: list[Leaf], circle: set[tuple[str, str]]) -> None:
        """A circle that never comes to rest: who fell in it ends; if nobody did, or more is to come, it is unknown."""
        fell = [
            one.node for one in self.members.values() if one.node.dips and (one.one.service, one.one.role) in circle
        ]
        self.contested = self.contested or bool(fell)
        for node in fell if final else ():
            node.end()
        for leaf in self.leaves:
            leaf.turns = 0
        for leaf in ready if not fell or not final else ():
            leaf.state, leaf.lost = None, True

    def _sees(self) -> dict[tuple[str, str], set[tuple[str, str]]]:
        """Which roles each role looks at, directly or through others; itself is one of them."""
        found: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for service, rolefile in self.state.roles.rolefiles.items():
            for one in rolefile.statements:
                seen = found.setdefault((service, one.head.role), {(service, one.head.role)})
                refs = [part.ref for part in (*one.credentials, *one.electors)]
                seen |= {(ref.service or service, ref.role) for ref in refs} | _named_roles(one.constraint, service)
        found = {role: {other for other in seen if other in found} for role, seen in found.items()}
        while any(not seen >= found[role] for seen in found.values() for role in seen):
            for seen in found.values():
                seen |= {other for role in seen for other in found[role]}
        return found

    def world(self, place: tuple[str, str]) -> World:
        """What there is now."""
        rolefile = self.state.roles.rolefiles.get(place[0], Rolefile())
        held = [(one.one.place, one.one.role, one.one.args) for one in self.members.values() if one.node.state is True]
        roles = {one.head.role for one in rolefile.statements} | {one.role for one in rolefile.declarations}
        groups, relations = self.state.groups, self.state.relations
        return World(groups, relations, {}, held, frozenset(roles), place, {"time": self.now})

    def _node(self, rule: Rule) -> Node:
        node = Node(rule)
        self.nodes.append(node)
        return node

    def _rests_on(self, made: Derived, at: datetime | None, done: dict[int, Node]) -> Node:
        """What must stay as it is for a membership to last; an intermediate one that is lost is lost for good."""
        rules: list[Rule] = []
        for said, one in zip(made.statement.credentials, made.credentials, strict=True):
            if said.starred:
                node = self.members[one.id].node if isinstance(one, Membership) else self._rests_on(one, at, done)
                rules.append(lambda node=node: node.state)  # type: ignore[misc]
        for elector, one_election in zip(made.statement.electors, made.elections, strict=True):
            chosen = self.elections[one_election.id]
            if elector.wish:
                rules.append(lambda chosen=chosen: chosen.node.state)  # type: ignore[misc]
            if elector.starred:
                rules.append(lambda chosen=chosen: chosen.office.state)  # type: ignore[misc]
        if any(one.starred for one in made.statement.revokers):
            rules.append(lambda: not self._is_barred(made))
        self.now, was = at or self.now, self.now
        rules.append(self._stays(_on_entry(made.statement), made, False, True))
        self.now = was
        return self._node(lambda: conjunction([rule() for rule in rules]))

    def _is_barred(self, made: Derived) -> bool:
        """Is there a revocation for each clause, by as many principals, whose offices are as is asked of them?"""
        wanted = (made.service, made.instance, made.role)
        bans = [
            ban
            for ban in self.state.roles.bans
            if (ban.service, ban.instance, ban.role) == wanted
            and all(want is None or equal(want, arg) for want, arg in zip(ban.args, made.args, strict=True))
        ]
        refs = [one.ref for one in made.statement.revokers]
        names = [render_role(RoleRef(ref.role, (), ref.service, ref.instance)) for ref in refs]
        for some in permutations(bans, len(refs)):
            if [ban.revoker for ban in some] != names or len({ban.by for ban in some}) < len(some):
                continue
            if len(refs) == 1:
                return True
            head = zip(made.statement.head.args, made.args, strict=True)
            offices = [ban.office.args for ban in some if ban.office is not None]
            said = [pair for ref, of in zip(refs, offices, strict=True) for pair in zip(ref.args, of, strict=False)]
            env: dict[str, Any] = {}
            pairs = [*head, *((term, known.value) for term, known in said)]
            if all(equal(env.setdefault(term.name, value), value) for term, value in pairs) and all(
                truth(part, env, World()) is True for part in _conjuncts(made.statement) if _of_revokers(part)
            ):
                return True
        return False

    def _stays(self, c: Condition, made: Derived, starred: bool, positive: bool) -> Rule:
        """A starred atom is looked at again; any other stays what it was, against the membership if not known."""
        place = (made.service, made.instance)
        match c:
            case Starred(arg):
                return self._stays(arg, made, True, positive)
            case Not(arg):
                inner = self._stays(arg, made, starred, not positive)
                return lambda: inverse(inner())
            case AllOf(args):
                parts = [self._stays(arg, made, starred, positive) for arg in args]
                return lambda: conjunction([part() for part in parts])
            case AnyOf(args):
                some = [self._stays(arg, made, starred, positive) for arg in args]
                return lambda: inverse(conjunction([inverse(part()) for part in some]))
            case atom:
                found = truth(atom, made.bound, self.world(place))
                if not starred:
                    kept = (not positive) if found is None else found
                    return lambda: kept
                roles = _named_roles(atom, made.service)
                leaf = Leaf(lambda: truth(atom, made.bound, self.world(place)), found, roles)
                self.leaves.append(leaf)
                return lambda: leaf.state


def _named_roles(c: Condition, service: str) -> frozenset[tuple[str, str]]:
    """The roles that a constraint names or counts."""
    return frozenset(
        (one.service or service, one.role) if isinstance(one, RoleRef) else (service, one.name)
        for one in _parts(c)
        if isinstance(one, RoleRef | Related)
    )


def _parts(one: object) -> Iterator[object]:
    yield one
    for part in one if isinstance(one, tuple) else [getattr(one, name) for name in getattr(one, "__match_args__", ())]:
        yield from _parts(part)


def _conjuncts(statement: Statement) -> tuple[Condition, ...]:
    return statement.constraint.args if isinstance(statement.constraint, AllOf) else (statement.constraint,)


def _of_revokers(part: Condition) -> bool:
    return "Variable(name='x')" in repr(part)


def _on_entry(statement: Statement) -> Condition:
    """In these stories `x` and `y` of a statement with a quorum stand for those who revoke."""
    if len(statement.revokers) < 2:
        return statement.constraint
    kept = [one for one in _conjuncts(statement) if not _of_revokers(one)]
    return kept[0] if len(kept) == 1 else AllOf(tuple(kept))


def _stands(node: Node) -> Rule:
    return lambda: node.state


def _all_of(rules: list[Rule]) -> Rule:
    return lambda: conjunction([rule() for rule in rules])


def _followed(made: Derived) -> frozenset[str]:
    """The statement of a membership and of every intermediate one that it must keep."""
    found = {render_statement(made.statement)}
    for said, one in zip(made.statement.credentials, made.credentials, strict=True):
        if said.starred and isinstance(one, Derived):
            found |= _followed(one)
    return frozenset(found)


@contextmanager
def listening() -> Iterator[list[tuple[EntryRequest, Scene, Derived | None]]]:
    """Hear what every entry leads to while it is worked out."""
    heard: list[tuple[EntryRequest, Scene, Derived | None]] = []

    def told(rolefile: Rolefile, request: EntryRequest, scene: Scene) -> Derived | None:
        found = None
        try:
            found = derive(rolefile, request, scene)
        finally:
            heard.append((request, scene, found))
        return found

    entry.derive = told  # type: ignore[attr-defined]
    try:
        yield heard
    finally:
        entry.derive = derive  # type: ignore[attr-defined]
