"""The searches that requests for roles take: by which statement, office or revoker's role one gets what one asks for.

Guarantees: one function for each kind of request, whoever holds the roles that it looks at: a ledger that works out a
batch, or a gateway that tries a request on the state that it knows (`Known`) before the ledger is held for it. So both
refuse the same, in the same words (OASIS 4.2): fraud, misuse, revocation, or credentials that are not enough. What an
entry's search found goes with the request (`SearchedEntry`), and is not looked for again at the same version.
Leaves out: what only the credential graph can tell, such as whether what is entered would end at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

from headgate.decide.constraints import Budget, RoleFunction, Scene
from headgate.decide.rolebook import fit, same, unify
from headgate.lang.render_roles import render_membership
from headgate.model.changes import ElectRole, EnterRole, ReinstateRole, RevokeRole
from headgate.model.conditions import Argument
from headgate.model.errors import BadDefinition, RoleDenied
from headgate.model.limits import MAX_ELECTIONS, MAX_SHOWN
from headgate.model.rolefiles import Rolefile, Statement
from headgate.model.roles import Ban, Election, Membership, RoleBook, Service
from headgate.model.state import State
from headgate.model.values import brief
from headgate.roles.records.book import RoleIndex, RoleView
from headgate.roles.requests.entry import Derived, EntryRequest, derive, elected_roles
from headgate.roles.requests.refusal import not_entered
from headgate.roles.requests.revocation import lifted, revocable, settled_by
from headgate.roles.rolefiles.arguments import conform_arguments, pattern_of

SearchRequest: TypeAlias = EnterRole | ElectRole | RevokeRole | ReinstateRole
"""The requests that take a search."""
Functions: TypeAlias = Mapping[str, RoleFunction]
Shown: TypeAlias = tuple[tuple[Membership, ...], tuple[Election, ...]]
ElectorsOffice: TypeAlias = tuple[Membership, tuple[Argument | None, ...]]
"""The membership by which a client elects, and what is settled of the role's arguments thereby."""


@dataclass(frozen=True, slots=True)
class SearchedEntry(EnterRole):
    """A request to enter a role, with what the search for it has found at a version."""

    version: int = 0
    found: Derived | None = None


# -- searches -------------------------------------------------------------------------------------------------


def find_entry(view: RoleView, request: EnterRole, scene: Scene) -> Derived:
    """How a client comes to a role with what it shows; `scene` is what constraints look at for this request."""
    service, rolefile = (request.service, request.instance), rolefile_of(view, request.service)
    shown, elections = _shown(view, request)
    if request.using is None:  # entering is accepting: whatever stands that may elect the client
        roles = elected_roles(rolefile, request.service, request.role)
        standing = (one for role in roles for one in view.elections_to(service, role))
        elections = tuple(one for one in standing if view.believed(one.record) is True)
    asked = EntryRequest(
        role=request.role,
        args=_wanted(view, rolefile, request),
        shown=shown,
        elections=elections,
        bans=frozenset(view.bans),
        in_office=frozenset(one.id for one in elections if view.believed(one.office_record) is True),
    )
    derived = derive(rolefile, asked, scene)
    if derived is None:
        raise not_entered(request, asked, rolefile, view.scene(service, request.principal, request.origin))
    return derived


def find_office(view: RoleView, request: ElectRole) -> ElectorsOffice:
    """By which membership a client elects to a role, and what is settled of its arguments thereby.

    That is the first that any statement asks of an elector; what all such statements say alike is settled.
    """
    service, rolefile = (request.service, request.instance), rolefile_of(view, request.service)
    shown, _ = _shown(view, request)
    wanted = _wanted(view, rolefile, request)
    if request.until is not None and request.until <= request.at:
        raise BadDefinition(f"the election `{request.id}` would be over at once", remedy="choose a later `until`")
    if len(request.required) > MAX_SHOWN:
        raise BadDefinition(f"an election requires more than MAX_SHOWN ({MAX_SHOWN}) roles")
    if len(view.index.electing.get(request.principal, ())) >= MAX_ELECTIONS:
        raise RoleDenied(
            f"`{request.principal}` has MAX_ELECTIONS ({MAX_ELECTIONS}) elections in force",
            failure="misuse",
            remedy="take some back",
        )
    scene = view.scene(service, request.principal)
    office: Membership | None = None
    settled: list[tuple[Argument | None, ...]] = []
    for statement in rolefile.statements:
        if statement.head.role != request.role or (wanted is not None and len(wanted) != len(statement.head.args)):
            continue
        head = tuple(map(scene.settled, statement.head.args))
        asked = [] if wanted is None else list(zip(head, wanted, strict=True))
        bound = unify([(term, arg) for term, arg in asked if arg is not None], {})
        for elector in () if bound is None else statement.electors:
            for membership in shown if office is None else (office,):
                scene.budget.spend()
                made = fit(scene.own(elector.ref), membership, bound or {})
                if made is not None:
                    office = membership
                    settled.append(tuple(settled_by(term, made) for term in head))
                    break
    if office is None:
        raise RoleDenied(
            f"`{request.principal}` has shown nothing by which it elects to "
            f"`{render_membership(request.service, request.instance, request.role, ())}`",
            failure="credentials",
            remedy="show a membership of the elector's role",
        )
    return office, tuple(one[0] if len(set(map(same, one))) == 1 else None for one in zip(*settled, strict=True))


def find_revocable(view: RoleView, request: RevokeRole | ReinstateRole) -> dict[Ban, bool]:
    """What a client may revoke, or reinstate, with what it shows; and whether that is enough for a statement."""
    rolefile = rolefile_of(view, request.service)
    shown, _ = _shown(view, request)
    scene = view.scene((request.service, request.instance), request.principal)
    args = pattern_of(rolefile, request, view.functions)
    return revocable(_revoked_by(rolefile, request.role), request, args, shown, scene)


def find_lifted(view: RoleView, request: ReinstateRole) -> set[Ban]:
    """What a client takes back of what was revoked by role."""
    mine = find_revocable(view, request)
    statements = _revoked_by(rolefile_of(view, request.service), request.role)
    return lifted(mine, view.bans, statements, request.principal, view.kept_by)


def rolefile_of(view: RoleView, service: str) -> Rolefile:
    """The rolefile of a service of this domain."""
    rolefile = view.rolefiles.get(service)
    if rolefile is None:
        raise RoleDenied(f"no service `{brief(service)}` has a rolefile here", failure="misuse")
    return rolefile


def _revoked_by(rolefile: Rolefile, role: str) -> list[Statement]:
    """The statements by which a role may be revoked."""
    return [one for one in rolefile.statements if one.revokers and one.head.role == role]


def _wanted(view: RoleView, rolefile: Rolefile, request: EnterRole | ElectRole) -> tuple[Argument, ...] | None:
    return None if request.args is None else conform_arguments(rolefile, request.role, request.args, view.functions)


def _shown(view: RoleView, request: SearchRequest) -> Shown:
    """The credentials that a client shows: its own, and in force; or why one does not count (OASIS 4.2)."""
    principal, using = request.principal, request.using
    if using is None:
        return tuple(view.held_by(principal)), ()
    if len(using) > MAX_SHOWN:
        raise RoleDenied(f"more than MAX_SHOWN ({MAX_SHOWN}) credentials are shown", failure="misuse")
    memberships: list[Membership] = []
    elections: list[Election] = []
    for id in using:
        held, election = view.membership(id), view.election(id)
        if held is not None and held.holder != principal:
            raise RoleDenied(f"`{id}` is not held by `{principal}`", failure="fraud", remedy="show your own")
        if held is not None and held.state is not True:
            raise RoleDenied(f"`{id}` may have been revoked", failure="revocation", remedy="try again later")
        if held is not None:
            memberships.append(held)
        elif election is not None and view.believed(election.record) is True:
            elections.append(election)
        else:
            raise RoleDenied(f"`{brief(id)}` is not in force", failure="revocation", remedy="leave it out")
    return tuple(memberships), tuple(elections)


# -- on a known state -----------------------------------------------------------------------------------------


class Holders:
    """The index of a book, made when it is asked for, and kept while the book is the same."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[RoleBook | None, RoleIndex] = (None, RoleIndex(RoleBook()))

    def of(self, book: RoleBook) -> RoleIndex:
        """That of a book."""
        with self._lock:
            if self._known[0] is not book:
                self._known = book, RoleIndex(book)
            return self._known[1]


class Known(RoleView):
    """A known state, on which requests of one principal are tried in order: what is entered counts for those after it.

    Nothing is changed, and the work is counted in a budget that the caller gives.
    """

    def __init__(self, state: State, holders: Holders, functions: Functions, budget: Budget) -> None:
        super().__init__(state, holders.of(state.roles), functions)
        self._budget = budget

    def run(self, requests: Sequence[SearchRequest]) -> list[SearchRequest]:
        """The requests with what was found for them; or the refusal of the first that the ledger would refuse."""
        return [self._run(one) for one in requests]

    def _run(self, request: SearchRequest) -> SearchRequest:
        self.now = request.at
        self.budgets[request.principal] = self._budget
        match request:
            case EnterRole():
                place = request.service, request.instance
                derived = find_entry(self, request, self.scene(place, request.principal, request.origin))
                self.begun[request.id] = Membership(
                    request.id, request.service, request.role, derived.args, request.principal, 0, request.instance
                )
                self.fresh_of.setdefault(request.principal, {})[request.id] = None
                asked = {one.name: getattr(request, one.name) for one in fields(EnterRole)}
                return SearchedEntry(**asked, version=self.state.version, found=derived)
            case ElectRole():
                find_office(self, request)
            case RevokeRole():
                find_revocable(self, request)
            case ReinstateRole():
                find_lifted(self, request)
        return request

    def members(self, place: Service, role: str, having: tuple[int, Argument] | None = None) -> Iterator[Membership]:
        """The memberships of a role that are true, and those that were entered here, of which the index has none."""
        yield from super().members(place, role, having)
        for one in self.begun.values():
            if (one.place, one.role) == (place, role) and _has(one, having):
                yield one


def _has(one: Membership, having: tuple[int, Argument] | None) -> bool:
    return having is None or (having[0] < len(one.args) and same(one.args[having[0]]) == same(having[1]))
