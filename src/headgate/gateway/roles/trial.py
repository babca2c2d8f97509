"""What would become of a request for roles: worked out on a known state, before the ledger is held for it.

Guarantees: what the search for a statement, an elector's role or a revoker's role would refuse is refused here, for the
same reasons; the work is counted in a budget that the caller gives, and nothing is changed. Whatever passes is judged
once more by the ledger, at the version that it makes.
Leaves out: what only the credential graph can tell: whether what is entered would end at once
(`roles.requests.role_requests`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from headgate.decide.constraints import Budget, RoleFunction, Scene
from headgate.decide.rolebook import fit, same, unify
from headgate.lang.render_roles import render_membership
from headgate.model.changes import ElectRole, EnterRole, ReinstateRole, RevokeRole
from headgate.model.conditions import Argument, RoleRef
from headgate.model.errors import RoleDenied
from headgate.model.limits import MAX_ELECTIONS, MAX_SHOWN
from headgate.model.rolefiles import Rolefile, Statement
from headgate.model.roles import Election, Membership, Reference, RoleBook, Service
from headgate.model.state import State
from headgate.model.values import brief
from headgate.roles.records.book import role_names
from headgate.roles.requests.entry import EntryRequest, derive, elected_roles
from headgate.roles.requests.refusal import not_entered
from headgate.roles.requests.revocation import lifted, revocable
from headgate.roles.rolefiles.arguments import conform_arguments, pattern_of
from headgate.roles.rolefiles.types import readings

Asked: TypeAlias = EnterRole | ElectRole | RevokeRole | ReinstateRole
Functions: TypeAlias = Mapping[str, RoleFunction]
Shown: TypeAlias = tuple[tuple[Membership, ...], tuple[Election, ...]]


class Holders:
    """Who holds each role of a book, and who is elected: found when asked for, and kept while the book is the same."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[RoleBook | None, _Index] = (None, _Index(RoleBook()))

    def of(self, book: RoleBook) -> _Index:
        """Those of a book."""
        with self._lock:
            if self._known[0] is not book:
                self._known = book, _Index(book)
            return self._known[1]


class _Index:
    """Memberships that are true and elections by place and role; memberships by an argument where one was asked for."""

    def __init__(self, book: RoleBook) -> None:
        self._elections: dict[tuple[Service, str], list[Election]] = {}
        self._by_role: dict[tuple[Service, str], list[Membership]] = {}
        self._by_argument: dict[tuple[Service, str, int], dict[object, list[Membership]]] = {}
        for one in book.memberships.values():
            if one.state is True:
                self._by_role.setdefault((one.place, one.role), []).append(one)
        for election in book.elections.values():
            place = election.service, election.instance
            self._elections.setdefault((place, election.role), []).append(election)

    def standing(self, place: Service, role: str) -> Sequence[Election]:
        """The elections to a role."""
        return self._elections.get((place, role), [])

    def find(self, place: Service, role: str, having: tuple[int, Argument] | None) -> Sequence[Membership]:
        """The memberships of a role; only those that have an argument in a place, if that is said."""
        listed = self._by_role.get((place, role), [])
        if having is None:
            return listed
        at, argument = having
        found = self._by_argument.get((place, role, at))
        if found is None:
            found = {}
            for one in listed:
                if at < len(one.args):
                    found.setdefault(same(one.args[at]), []).append(one)
            self._by_argument[place, role, at] = found  # as a whole: another thread may look at the same time
        return found.get(same(argument), [])


class Trial:
    """Requests of one principal, tried one after another: a role that is entered counts for those after it."""

    def __init__(self, state: State, holders: Holders, functions: Functions, budget: Budget) -> None:
        self._state = state
        self._book = state.roles
        self._holders = holders
        self._functions = functions
        self._budget = budget
        self._entered: list[Membership] = []

    def run(self, asked: Sequence[Asked]) -> None:
        """Refuse what the ledger would refuse."""
        for one in asked:
            rolefile = self._book.rolefiles.get(one.service)
            if rolefile is None:
                raise RoleDenied(f"no service `{brief(one.service)}` has a rolefile here", failure="misuse")
            match one:
                case EnterRole():
                    self._enter(one, rolefile)
                case ElectRole():
                    self._elect(one, rolefile)
                case RevokeRole() | ReinstateRole():
                    self._by_role(one, rolefile)

    # -- entering ---------------------------------------------------------------------------------------------

    def _enter(self, one: EnterRole, rolefile: Rolefile) -> None:
        shown, elections = self._shown(one)
        if one.using is None:  # entering is accepting: whatever stands that may elect the client
            index, place = self._holders.of(self._book), (one.service, one.instance)
            standing = [
                each for role in elected_roles(rolefile, one.service, one.role) for each in index.standing(place, role)
            ]
            elections = tuple(each for each in standing if self._believed(each.record) is True)
        args = None if one.args is None else conform_arguments(rolefile, one.role, one.args, self._functions)
        office = frozenset(each.id for each in elections if self._believed(each.office_record) is True)
        request = EntryRequest(one.role, args, shown, elections, self._book.bans, office)
        scene = self._scene(one, rolefile, one.origin)
        found = derive(rolefile, request, scene)
        if found is None:
            raise not_entered(one, request, rolefile, scene)
        self._entered.append(Membership(one.id, one.service, one.role, found.args, one.principal, 0, one.instance))

    # -- electing and revoking by role ------------------------------------------------------------------------

    def _elect(self, one: ElectRole, rolefile: Rolefile) -> None:
        if sum(1 for each in self._book.elections.values() if each.elector == one.principal) >= MAX_ELECTIONS:
            raise RoleDenied(
                f"`{one.principal}` has MAX_ELECTIONS ({MAX_ELECTIONS}) elections in force",
                failure="misuse",
                remedy="take some back",
            )
        shown, _ = self._shown(one)
        args = None if one.args is None else conform_arguments(rolefile, one.role, one.args, self._functions)
        scene = self._scene(one, rolefile)
        for statement, bound in self._about(rolefile, one.role, args, scene):
            for elector in statement.electors:
                if self._fits_any(scene.own(elector.ref), shown, bound):
                    return
        raise RoleDenied(
            f"`{one.principal}` has shown nothing by which it elects to "
            f"`{render_membership(one.service, one.instance, one.role, ())}`",
            failure="credentials",
            remedy="show a membership of the elector's role",
        )

    def _by_role(self, one: RevokeRole | ReinstateRole, rolefile: Rolefile) -> None:
        shown, _ = self._shown(one)
        args = pattern_of(rolefile, one, self._functions)
        statements = [each for each in rolefile.statements if each.revokers and each.head.role == one.role]
        mine = revocable(statements, one, args, shown, self._scene(one, rolefile))
        if isinstance(one, ReinstateRole):
            lifted(mine, self._book.bans, statements, one.principal, self._kept_by)

    def _kept_by(self, principal: str) -> Iterator[Membership]:
        yield from (self._book.memberships[id] for id in self._book.held.get(principal, ()))

    def _about(
        self, rolefile: Rolefile, role: str, args: tuple[Argument, ...] | None, scene: Scene
    ) -> Iterator[tuple[Statement, Mapping[str, Argument]]]:
        """The statements about a role, with what its arguments say of their variables."""
        for statement in rolefile.statements:
            head = statement.head
            if head.role != role or (args is not None and len(args) != len(head.args)):
                continue
            pairs = zip(map(scene.settled, head.args), args or (), strict=False)
            bound = unify([(term, arg) for term, arg in pairs if arg is not None], {})
            if bound is not None:
                yield statement, bound

    def _fits_any(self, ref: RoleRef, shown: Iterable[Membership], bound: Mapping[str, Argument]) -> bool:
        for one in shown:
            self._budget.spend()
            if fit(ref, one, bound) is not None:
                return True
        return False

    # -- looking ----------------------------------------------------------------------------------------------

    def _shown(self, one: Asked) -> Shown:
        """The credentials that a client shows: its own, and in force; or why one does not count (OASIS 4.2)."""
        if one.using is None:
            return (*self._book.held_by(one.principal), *self._entered), ()
        if len(one.using) > MAX_SHOWN:
            raise RoleDenied(f"more than MAX_SHOWN ({MAX_SHOWN}) credentials are shown", failure="misuse")
        memberships: list[Membership] = []
        elections: list[Election] = []
        for id in one.using:
            held, election = self._book.memberships.get(id), self._book.elections.get(id)
            if held is not None and held.holder != one.principal:
                raise RoleDenied(f"`{id}` is not held by `{one.principal}`", failure="fraud", remedy="show your own")
            if held is not None and held.state is not True:
                raise RoleDenied(f"`{id}` may have been revoked", failure="revocation", remedy="try again later")
            if held is not None:
                memberships.append(held)
            elif election is not None and self._believed(election.record) is True:
                elections.append(election)
            else:
                raise RoleDenied(f"`{brief(id)}` is not in force", failure="revocation", remedy="leave it out")
        return tuple(memberships), tuple(elections)

    def _believed(self, ref: Reference) -> bool | None:
        found = self._book.records.get(ref)
        return False if found is None else found.state

    def _scene(self, one: Asked, rolefile: Rolefile, origin: str | None = None) -> Scene:
        return Scene(
            self._state,
            one.service,
            one.instance,
            one.principal,
            one.at,
            origin,
            self._functions,
            self._members,
            role_names(rolefile),
            self._budget,
            readings=readings(rolefile),
        )

    def _members(
        self, place: Service, role: str, having: tuple[int, Argument] | None = None, /
    ) -> Iterator[Membership]:
        yield from self._holders.of(self._book).find(place, role, having)
        for one in self._entered:
            if (one.place, one.role) == (place, role) and _has(one, having):
                yield one


def _has(one: Membership, having: tuple[int, Argument] | None) -> bool:
    return having is None or (having[0] < len(one.args) and same(one.args[having[0]]) == same(having[1]))
