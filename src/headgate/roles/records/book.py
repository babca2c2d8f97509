"""The role book in memory: the credential graph, what rests on each record, and what is in force (OASIS 4.6).

Guarantees: made from a state, a `Book` is as the one that was kept up to date step by step. It belongs to one version;
what was done since a mark is undone by `rollback`, so that a batch that is refused leaves no trace. Whoever works out a
batch, and whoever only searches, sees the same by the same rules (`RoleView`). Roles are settled in the order of
`strata`, each after those that its statements look at (OASIS 3.2.2, 4.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from headgate.decide.constraints import Budget, RoleFunction, Scene
from headgate.decide.rolebook import same
from headgate.model.expressions import Argument, Related, counted
from headgate.model.limits import MAX_ENTRY_STEPS
from headgate.model.rolefiles import Rolefile, Statement
from headgate.model.roles import Ban, Credential, Election, Membership, Reference, RoleBook, Service
from headgate.model.state import State
from headgate.roles.records.facts import Interest, enter, strike
from headgate.roles.records.records import Records
from headgate.roles.rolefiles.names import leaves
from headgate.roles.rolefiles.types import inferred

Office: TypeAlias = tuple[str, str, str]
"""A service, an instance and a role."""
Ids: TypeAlias = dict[str, None]
"""Memberships and elections, in the order in which they began."""
Having: TypeAlias = tuple[int, Argument] | None
"""An argument in a place, if one is asked for."""


class RoleIndex:
    """Who holds each role of a book, who is elected to it and by whom, and who rests on which record."""

    def __init__(self, book: RoleBook) -> None:
        self.members: dict[Office, Ids] = {}
        self.standing: dict[Office, Ids] = {}
        """The elections to a role."""
        self.electing: dict[str, Ids] = {}
        """The elections by a principal."""
        self.users: dict[Reference, Ids] = {}
        """The memberships and elections that rest on a record."""
        self._by_argument: dict[Office, dict[int, dict[tuple[bool, Argument], Ids]]] = {}
        """Of a role that was looked at by an argument in a place, the memberships by that argument."""
        for credential in book.credentials():
            self.add(credential)

    def add(self, credential: Credential) -> None:
        """A membership or an election begins."""
        for index, key in self._entries(credential):
            enter(index, key, credential.id)

    def remove(self, credential: Credential) -> None:
        """A membership or an election ends."""
        for index, key in self._entries(credential):
            strike(index, key, credential.id)

    def _entries(self, credential: Credential) -> Iterator[tuple[dict[Any, Ids], object]]:
        """Where a credential is found: an index, and its key there."""
        office = (*credential.place, credential.role)
        yield self.users, credential.record
        if isinstance(credential, Election):
            yield self.standing, office
            yield self.electing, credential.elector
            return
        yield self.members, office
        for place, by_argument in self._by_argument.get(office, {}).items():
            if place < len(credential.args):
                yield by_argument, same(credential.args[place])

    def holding(
        self, service: Service, role: str, having: Having, known: Callable[[str], Membership | None]
    ) -> Iterable[str]:
        """The memberships of a role; only those that have an argument in a place, if that is said.

        `known` says what each membership is.
        """
        office = (*service, role)
        if having is None:
            return self.members.get(office, ())
        at, argument = having
        places = self._by_argument.setdefault(office, {})
        if at not in places:
            by_argument: dict[tuple[bool, Argument], Ids] = {}
            for id in self.members.get(office, ()):
                membership = known(id)
                if membership is not None and at < len(membership.args):
                    enter(by_argument, same(membership.args[at]), id)
            places[at] = by_argument  # as a whole: another thread may look at the same time
        return places[at].get(same(argument), ())


class Book:
    """The working form of the role book at a version."""

    def __init__(self, state: State) -> None:
        book = state.roles
        self.version = state.version
        uses = [one.record for one in (*book.credentials(), *book.watches)]
        self.records = Records(book.records.values(), state.version, uses)
        self.index = RoleIndex(book)
        self.interest = Interest()
        self._strata: tuple[dict[str, Rolefile], dict[Role, int]] = {}, {}
        self._is_as_marked = True
        for record in book.records.values():
            if record.fact and not record.permanent:  # what is final nothing can change
                self.interest.add(record.fact)

    # -- the way back -----------------------------------------------------------------------------------------

    def mark(self) -> None:
        """From here on all can be undone, until it is kept."""
        self.records.mark()
        self._is_as_marked = True

    def keep(self, version: int) -> None:
        """What was done since the mark stays, and makes the book that of a version."""
        self.records.keep()
        self.version = version

    def rollback(self, state: State) -> None:
        """Undo all that was done since the mark, when the book was that of this state."""
        self.records.rollback()
        if not self._is_as_marked:  # anew, as the order in which memberships began has a meaning
            self.index, self._is_as_marked = RoleIndex(state.roles), True

    # -- keeping up -------------------------------------------------------------------------------------------

    def look_at(self, fact: str) -> None:
        """A fact has a record from now on."""
        if self.interest.add(fact):
            self.records.note(partial(self.interest.remove, fact))

    def look_away(self, fact: str) -> None:
        """A fact has a record no more."""
        if self.interest.remove(fact):
            self.records.note(partial(self.interest.add, fact))

    def add(self, credential: Credential) -> None:
        """A membership or an election begins."""
        self._is_as_marked = False
        self.index.add(credential)

    def remove(self, credential: Credential) -> None:
        """A membership or an election ends."""
        self._is_as_marked = False
        self.index.remove(credential)

    def strata(self, rolefiles: Mapping[str, Rolefile]) -> dict[Role, int]:
        """The order in which the roles of these rolefiles are settled; worked out when they are others."""
        if self._strata[0] != rolefiles:
            self._strata = dict(rolefiles), strata(rolefiles)
        return self._strata[1]


class RoleView:
    """The memberships and elections in force."""

    def __init__(self, state: State, index: RoleIndex, functions: Mapping[str, RoleFunction]) -> None:
        self.state = state
        self.index = index
        self.functions = functions
        self.now: datetime | None = None
        self.begun: dict[str, Membership] = {}
        self.elected: dict[str, Election] = {}
        self.ended: dict[str, str] = {}
        """What has ended, and why."""
        self.fresh_of: dict[str, dict[str, None]] = {}
        """The memberships that were begun, by holder."""
        self.bans: set[Ban] = set(state.roles.bans)
        self.rolefiles: dict[str, Rolefile] = dict(state.roles.rolefiles)
        self.budgets: dict[str | None, Budget] = {}
        """What each client may still have looked at: all that it asks for in one batch shares it."""

    def credential(self, id: str) -> Credential | None:
        """A membership or an election in force."""
        return self.membership(id) or self.election(id)

    def membership(self, id: str) -> Membership | None:
        """A membership in force."""
        if id in self.ended:
            return None
        return self.begun.get(id) or self.state.roles.memberships.get(id)

    def election(self, id: str) -> Election | None:
        """An election in force."""
        if id in self.ended:
            return None
        return self.elected.get(id) or self.state.roles.elections.get(id)

    def believed(self, ref: Reference) -> bool | None:
        """The state of a record."""
        record = self.state.roles.records.get(ref)
        return False if record is None else record.state

    def held_by(self, principal: str) -> Iterator[Membership]:
        """The memberships of a principal that are true, in the order in which they began."""
        return (one for one in self.kept_by(principal) if one.state is True)

    def kept_by(self, principal: str) -> Iterator[Membership]:
        """The memberships of a principal that have not ended, whatever they are now, in the order they began in."""
        for id in (*self.state.roles.held.get(principal, ()), *self.fresh_of.get(principal, ())):
            one = self.membership(id)
            if one is not None:
                yield one

    def members(self, place: Service, role: str, having: Having = None) -> Iterator[Membership]:
        """The memberships of a role that are true; only those that have an argument in a place, if that is said."""
        for id in list(self.index.holding(place, role, having, self.membership)):
            one = self.membership(id)
            if one is not None and one.state is True:
                yield one

    def elections_to(self, place: Service, role: str) -> Iterator[Election]:
        """The elections in force to a role."""
        standing = map(self.election, self.index.standing.get((*place, role), ()))
        return (one for one in standing if one is not None)

    def scene(self, place: Service, client: str | None = None, origin: str | None = None) -> Scene:
        """What the constraints of a service may look at now for a request, whose work is counted."""
        budget = self.budgets.setdefault(client, Budget(MAX_ENTRY_STEPS))
        return replace(self.view(place), client=client, origin=origin, budget=budget, answers={})

    def view(self, service: Service) -> Scene:
        """What the constraints of a service may look at now, whoever asks."""
        types = inferred(self.rolefiles.get(service[0]))
        return Scene(
            self.state,
            *service,
            now=self.now,
            functions=self.functions,
            members=self.members,
            roles=types.own_roles,
            readings=types.readings,
        )


Role: TypeAlias = tuple[str, str]
"""A service and a role of it, in whatever instance."""


def strata(rolefiles: Mapping[str, Rolefile]) -> dict[Role, int]:
    """A number for each role that has a statement: higher than that of every role that it looks at.

    Roles that look at each other in a circle, directly or through others, have one number. The numbers follow from the
    rolefiles, in whatever order they come.
    """
    looks: dict[Role, dict[Role, None]] = {}
    for service in sorted(rolefiles):
        for statement in rolefiles[service].statements:
            looks.setdefault((service, statement.head.role), {}).update(dict.fromkeys(_looked_at(statement, service)))
    graph = {role: sorted(other for other in looks[role] if other in looks) for role in sorted(looks)}
    return {role: number for number, circle in enumerate(_circles(graph)) for role in circle}


def _looked_at(statement: Statement, service: str) -> Iterator[Role]:
    for ref in (*statement.needed, *counted(statement.constraint)):
        yield ref.service or service, ref.role
    for leaf, _ in leaves(statement.constraint):
        if isinstance(leaf, Related):
            yield service, leaf.name


def _circles(graph: Mapping[Role, list[Role]]) -> Iterator[list[Role]]:
    """The strongly connected parts of a graph, each after those that it leads to (Tarjan), without recursion."""
    circles: dict[Role, int] = {}
    low: dict[Role, int] = {}
    open_: list[Role] = []
    closed: set[Role] = set()
    for start in graph:
        walk = [] if start in circles else [(start, iter(graph[start]))]
        while walk:
            at, ahead = walk[-1]
            if at not in circles:
                circles[at] = low[at] = len(circles)
                open_.append(at)
            for other in ahead:
                if other not in circles:
                    walk.append((other, iter(graph[other])))
                    break
                if other not in closed:
                    low[at] = min(low[at], circles[other])
            else:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[at])
                if low[at] == circles[at]:
                    circle = open_[open_.index(at) :]
                    del open_[-len(circle) :]
                    closed.update(circle)
                    yield circle
