"""May a client enter a role, and by which statement and credentials? (OASIS 3.2.2)

Guarantees: the memberships that a request leads through are a list that begins with what the client shows. Statements
are applied in order, each to every choice of what is in the list, in its order; what comes of them is added at the end,
until nothing new comes. The first in the list that fits the request is given. So earlier statements win, intermediate
roles are entered without being asked for, and what a client gets is what the rules prove (`c owns Role`).
Leaves out: records and certificates (`roles.requests.transition`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TypeAlias

from headgate.decide.constraints import Bindings, Scene, solutions
from headgate.decide.reading import read
from headgate.decide.rolebook import alike, fit, same, unify
from headgate.lang.literals import Reading
from headgate.model.conditions import Argument, Constant, RoleRef, Variable, counted_variables, variables
from headgate.model.errors import RoleDenied
from headgate.model.limits import MAX_ENTRY_MEMBERSHIPS
from headgate.model.rolefiles import Elector, Rolefile, Statement
from headgate.model.roles import Ban, Election, Membership
from headgate.roles.requests.revocation import RevokedInstances, office_of, on_entry, variables_in
from headgate.roles.rolefiles.types import credential_readings


@dataclass(frozen=True, slots=True)
class Derived:
    """A membership that a statement gives: with which values, credentials and elections."""

    service: str
    instance: str
    role: str
    args: tuple[Argument, ...]
    statement: Statement
    bound: Bindings
    credentials: tuple[Candidate, ...]
    elections: tuple[Election, ...]

    def supports(self) -> Iterator[str]:
        """The memberships and elections that it was derived from, intermediate ones seen through, each once."""
        seen: set[int] = set()
        walk: list[Candidate | Election] = [self]
        while walk:
            support = walk.pop()
            if id(support) in seen:
                continue
            seen.add(id(support))
            if isinstance(support, Derived):
                walk += [*reversed(support.elections), *reversed(support.credentials)]
            else:
                yield support.id

    def followed(self) -> list[Derived]:
        """Itself and the intermediate memberships that must last, each after those that it rests on."""
        order: list[Derived] = []
        seen: set[int] = set()
        walk: list[tuple[Derived, bool]] = [(self, False)]
        while walk:
            derived, done = walk.pop()
            if done:
                order.append(derived)
            elif id(derived) not in seen:
                seen.add(id(derived))
                walk.append((derived, True))
                pairs = zip(derived.statement.credentials, derived.credentials, strict=True)
                walk += [(c, False) for said, c in pairs if said.starred and isinstance(c, Derived)]
        return order


Candidate: TypeAlias = Membership | Derived
"""What may serve as a credential."""


@dataclass(frozen=True, slots=True)
class EntryRequest:
    """What a client asks for, and what it shows; an argument of None is left open."""

    role: str
    args: tuple[Argument, ...] | None
    shown: tuple[Membership, ...]
    elections: tuple[Election, ...] = ()
    bans: frozenset[Ban] = frozenset()
    in_office: frozenset[str] | None = None
    """The elections whose elector holds the office still; None for all of them."""


def derive(rolefile: Rolefile, request: EntryRequest, scene: Scene) -> Derived | None:
    """The first membership that fits the request, if the statements lead to one."""
    return Derivation(rolefile, request, scene).run()


class Derivation:
    """The list of memberships that one request leads through.

    A statement is applied again only to choices with something in them that it has not seen: all others gave what they
    give before. So what is added, and in which order, is as if it were applied to all of them each time.
    """

    def __init__(self, rolefile: Rolefile, request: EntryRequest, scene: Scene) -> None:
        self.request = request
        self.scene = scene
        self.statements = rolefile.statements
        self.listed: dict[tuple[str, str], list[tuple[int, Candidate]]] = {}
        """What is in the list, with its place there, by service and role."""
        self.length = 0
        self.seen = [-1] * len(self.statements)
        """How long the list was when a statement was last applied."""
        self.users: dict[tuple[str, str], list[int]] = {}
        """The statements that take a role as a credential."""
        self.stirred: set[int] = set()
        """The statements that may give more, for what the last one added."""
        self.known: set[tuple[object, ...]] = set()
        self.elections: dict[str, list[Election]] = {}
        """The elections that count here, by the role that they are to."""
        for election in request.elections:
            if (election.service, election.instance) == (scene.service, scene.instance):
                self.elections.setdefault(election.role, []).append(election)
        self.revoked = RevokedInstances(rolefile, (scene.service, scene.instance), request.bans)
        for number, statement in enumerate(self.statements):
            for name in {self._kind(one.ref) for one in statement.credentials}:
                self.users.setdefault(name, []).append(number)
        times = credential_readings(rolefile)
        for one in request.shown:
            self._append(_as_read(one, times.get((one.service, one.role))))

    def run(self) -> Derived | None:
        """The first membership that fits, if any does; then all that follows from what was shown is listed."""
        waiting = list(range(len(self.statements)))
        while waiting:
            heapify(waiting)
            later: set[int] = set()
            last = -1
            while waiting:
                number = heappop(waiting)
                if number == last:
                    continue
                last = number
                found = self._apply(number)
                if found is not None:
                    return found
                for dependent in self.stirred:
                    if dependent > number:
                        heappush(waiting, dependent)
                    else:
                        later.add(dependent)
            waiting = list(later)
        return None

    def _apply(self, number: int) -> Derived | None:
        """Apply a statement to what it has not seen: what was asked for, if it gives that; else it is added."""
        statement = self.statements[number]
        self.stirred = set()
        seen, self.seen[number] = self.seen[number], self.length
        asked = self.asked(statement)
        derived = None if asked is None else next(self._derived(statement, asked, seen), None)
        if derived is None:
            self._extend(statement, seen)
        return derived

    def _extend(self, statement: Statement, seen: int) -> None:
        """Add what a statement gives, whoever asked."""
        for derived in list(self._derived(statement, {}, seen)):
            key = (derived.role, *map(same, derived.args))
            if key in self.known:
                continue
            if len(self.known) >= MAX_ENTRY_MEMBERSHIPS:
                raise RoleDenied(
                    f"the request leads through more than MAX_ENTRY_MEMBERSHIPS ({MAX_ENTRY_MEMBERSHIPS}) roles",
                    failure="credentials",
                    remedy="name the arguments you want, or show fewer credentials",
                )
            self.known.add(key)
            self._append(derived)
            self.stirred.update(self.users.get((derived.service, derived.role), ()))

    def _append(self, one: Candidate) -> None:
        self.listed.setdefault((one.service, one.role), []).append((self.length, one))
        self.length += 1

    def _kind(self, ref: RoleRef) -> tuple[str, str]:
        return (self.scene.service if ref.service is None else ref.service, ref.role)

    def asked(self, statement: Statement) -> Bindings | None:
        """What the request says of the variables of a statement, if it is about that role."""
        head, wanted = statement.head, self.request.args
        if head.role != self.request.role:
            return None
        if wanted is None:
            return {}
        if len(wanted) != len(head.args):
            return None
        pairs = [(self.scene.settled(term), arg) for term, arg in zip(head.args, wanted, strict=True)]
        return unify([(term, arg) for term, arg in pairs if arg is not None], {})

    def _derived(self, statement: Statement, bound: Bindings, seen: int) -> Iterator[Derived]:
        """Everything that a statement gives, of choices with something past a place in the list."""
        if seen >= 0 and not statement.credentials:
            return
        refs = [self.scene.own(one.ref) for one in statement.credentials]
        listed = [tuple(self.listed.get(self._kind(ref), ())) for ref in refs]
        for credentials, after in self._credentials(refs, listed, bound, seen):
            for elections, then in self._elections(statement, (), after):
                for made in solutions(on_entry(statement), then, self.scene):
                    args = self._head(statement, made)
                    if args is None or not self._elected(elections, args) or self._is_banned(statement, args):
                        continue
                    yield Derived(
                        self.scene.service,
                        self.scene.instance,
                        statement.head.role,
                        args,
                        statement,
                        made,
                        credentials,
                        elections,
                    )

    def furthest(self, statement: Statement, bound: Bindings, most: int) -> tuple[int, list[Bindings]]:
        """How many credentials of a statement there are together, in its order, and what variables mean then."""
        refs = [self.scene.own(one.ref) for one in statement.credentials]
        listed = [tuple(self.listed.get(self._kind(ref), ())) for ref in refs]
        bindings: list[Bindings] = [bound]
        for depth in range(len(refs)):
            further = islice(self._credentials(refs[: depth + 1], listed, bound, -1), most)
            made = [after for _, after in further]
            if not made:
                return depth, bindings
            bindings = made
        return len(refs), bindings

    def elected(self, statement: Statement, bound: Bindings, most: int) -> tuple[int, list[Bindings]]:
        """How many electors of a statement have elected, in its order, and what variables mean then."""
        for count in range(len(statement.electors), -1, -1):
            fewer = replace(statement, electors=statement.electors[:count])
            made = [after for _, after in islice(self._elections(fewer, (), bound), most)]
            if made:
                return count, made
        return 0, [bound]

    def _credentials(
        self,
        refs: Sequence[RoleRef],
        listed: Sequence[Sequence[tuple[int, Candidate]]],
        bound: Bindings,
        seen: int,
        at: int = 0,
    ) -> Iterator[tuple[tuple[Candidate, ...], Bindings]]:
        """Every choice of credentials in the order of the list, of which one at least is past a place in it."""
        if at == len(refs):
            yield (), bound
            return
        for position, candidate in listed[at]:
            is_last = at == len(refs) - 1
            if is_last and position < seen:
                continue
            self.scene.budget.spend()
            made = _meant(refs[at], candidate, bound)
            if made is None:
                continue
            rest = -1 if position >= seen else seen
            for others, after in self._credentials(refs, listed, made, rest, at + 1):
                yield (candidate, *others), after

    def _elections(
        self, statement: Statement, chosen: tuple[Election, ...], bound: Bindings
    ) -> Iterator[tuple[tuple[Election, ...], Bindings]]:
        """Every choice of an election for each elector: a quorum is of so many principals, not of so many votes."""
        if len(chosen) == len(statement.electors):
            yield chosen, bound
            return
        elector = statement.electors[len(chosen)]
        ref = self.scene.own(elector.ref)
        for election in self.elections.get(statement.head.role, ()):
            self.scene.budget.spend()
            if any(election.elector == other.elector for other in chosen):
                continue
            made = in_office(ref, election.office, bound)
            if made is None or not self._meets(election) or (elector.starred and self._has_left(election)):
                continue
            yield from self._elections(statement, (*chosen, election), made)

    def _has_left(self, election: Election) -> bool:
        """Has the elector left the office by which it elected? What needs it to stay cannot begin without it."""
        return self.request.in_office is not None and election.id not in self.request.in_office

    def _meets(self, election: Election) -> bool:
        """Does the client hold every role that the elector requires of it?"""
        return self._has(election.required, {})

    def _has(self, required: tuple[RoleRef, ...], bound: Bindings) -> bool:
        """Are there memberships for all of these, in which a variable means the same throughout?"""
        if not required:
            return True
        for one in self.request.shown:
            self.scene.budget.spend()
            made = fit(required[0], one, bound)
            if made is not None and self._has(required[1:], made):
                return True
        return False

    def _elected(self, elections: tuple[Election, ...], args: tuple[Argument, ...]) -> bool:
        """Is this what the client was elected to?"""
        return all(
            len(one.args) in (0, len(args))
            and all(want is None or alike(want, arg) for want, arg in zip(one.args, args, strict=False))
            for one in elections
        )

    def _head(self, statement: Statement, bound: Bindings) -> tuple[Argument, ...] | None:
        args: list[Argument] = []
        for term in statement.head.args:
            settled = self.scene.settled(term)
            if isinstance(settled, Variable):
                value = bound.get(settled.name)
            else:
                value = settled.value if isinstance(settled, Constant) else None
            if value is None:
                return None
            args.append(value)
        return tuple(args)

    def _is_banned(self, statement: Statement, args: tuple[Argument, ...]) -> bool:
        return bool(statement.revokers) and (statement.head.role, args) in self.revoked


def _as_read(membership: Membership, times: Mapping[int, Reading] | None) -> Membership:
    """A credential of another service, whose arguments are times where the rolefile compares them with times.

    That service need not know that they are (decision 0033).
    """
    if times is None:
        return membership
    args = list(membership.args)
    for place, arg in enumerate(membership.args):
        if place in times and not isinstance(arg, frozenset):
            args[place] = read(times[place], arg)
    return replace(membership, args=tuple(args))


def _meant(ref: RoleRef, one: Candidate, bound: Bindings) -> Bindings | None:
    if isinstance(one, Membership):
        return fit(ref, one, bound)
    shape = Membership("", one.service, one.role, one.args, "", 0, one.instance)
    return fit(ref, shape, bound)


def elected_roles(rolefile: Rolefile, service: str, role: str) -> Iterator[str]:
    """The roles on the way to a role that ask for an election: itself first, then those that it may rest on."""
    by_head: dict[str, list[Statement]] = {}
    for statement in rolefile.statements:
        by_head.setdefault(statement.head.role, []).append(statement)
    roles = {role: None}
    waiting = [role]
    while waiting:
        for statement in by_head.get(waiting.pop(0), ()):
            for credential in statement.credentials:
                if credential.ref.service in (None, service) and credential.ref.role not in roles:
                    roles[credential.ref.role] = None
                    waiting.append(credential.ref.role)
    return (name for name in roles if any(one.electors for one in by_head.get(name, ())))


def in_office(ref: RoleRef, office: RoleRef, bound: Bindings) -> Bindings | None:
    """What variables mean if the holder of an office is meant by a reference to a role."""
    if (ref.role, ref.service) != (office.role, office.service) or len(ref.args) > len(office.args):
        return None
    held = [(term, arg.value) for term, arg in zip(ref.args, office.args, strict=False) if isinstance(arg, Constant)]
    instance = office.instance.value if isinstance(office.instance, Constant) else ""
    return unify([(Constant("") if ref.instance is None else ref.instance, instance), *held], bound)


def _only_in(elector: Elector, statement: Statement) -> frozenset[str]:
    """The variables of an elector's clause that stand nowhere else in its statement, and so ask for nothing."""
    others = [one.ref for one in statement.electors if one is not elector]
    elsewhere = variables_in([statement.head, *(one.ref for one in statement.credentials), *others])
    told = variables(statement.constraint) | counted_variables(statement.constraint)
    return variables_in([elector.ref]) - elsewhere - told


def shares_office(membership: Membership, election: Election, rolefile: Rolefile | None, scene: Scene) -> bool:
    """Is a membership one in which the same election could have been made: of the elector's role, and of its arguments?

    Those are what the elector's clause binds: what it leaves out, or calls by a name that the statement uses for
    nothing else, may differ. Where no statement asks for that office any more, all of them are the same.
    """
    asked = False
    for statement in () if rolefile is None else rolefile.statements:
        head = tuple(map(scene.settled, statement.head.args))
        if statement.head.role != election.role or len(election.args) not in (0, len(head)):
            continue
        settled = [(term, arg) for term, arg in zip(head, election.args, strict=False) if arg is not None]
        bound = unify(settled, {})
        for elector in statement.electors if bound is not None else ():
            ref = scene.own(elector.ref)
            made = in_office(ref, election.office, bound or {})
            if made is not None:
                asked = True
                alone = _only_in(elector, statement)
                if fit(ref, membership, {name: value for name, value in made.items() if name not in alone}) is not None:
                    return True
    return not asked and office_of(membership) == election.office
