"""What is asked of a role service: grant, enter, elect, revoke, reinstate, another rolefile (OASIS 3 and 4).

Guarantees: requests are taken in order, and what follows from one has happened before the next is looked at; only what
is false when all have been taken ends by that (`roles.requests.settling`). What a
client shows must be its own and in force; why something is refused is told apart: fraud, misuse, revocation, or
credentials that are not enough (OASIS 4.2).
Leaves out: who may ask (`gateway`), and certificates (`trust`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import assert_never

from headgate.decide.constraints import Scene
from headgate.lang.render_roles import render_role, render_statement
from headgate.model.changes import (
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    HearPeer,
    MirrorRole,
    PassRevocation,
    ReinstateRole,
    RemovePeer,
    RevokeRole,
    RoleRequest,
    SetPeer,
    SetRolefile,
    WatchRecords,
)
from headgate.model.conditions import Constant, RoleRef
from headgate.model.errors import BadDefinition, NotFound, RoleDenied, UnknownName
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Ban, Election, Link, Membership, Op, Reference, Service
from headgate.model.types import check_name
from headgate.model.values import brief
from headgate.roles.records.facts import NotRevoked, fact_of, membership_rule, revocation_key
from headgate.roles.requests import search
from headgate.roles.requests.entry import Derived, EntryRequest, derive, shares_office
from headgate.roles.requests.mirroring import Mirroring
from headgate.roles.requests.revocation import (
    counts_alone,
    covers,
    is_complete,
    office_name,
    office_of,
    on_entry,
    rule_of,
)
from headgate.roles.requests.search import SearchedEntry
from headgate.roles.rolefiles.arguments import conform_arguments, pattern_of, refuse_errors, settle_rolefile, with_times


class RoleRequests(Mirroring):
    """What is asked of the services of this domain."""

    # -- requests ---------------------------------------------------------------------------------------------

    def do(self, request: RoleRequest) -> None:
        """Carry out one request, once all that follows from those before it has happened.

        What peers say is not a request but a fact: what follows from it, follows from all of it at once.
        """
        if isinstance(request, EnterRole | ElectRole | RevokeRole | ReinstateRole):
            self.at(request.at)
        if not isinstance(request, HearPeer):
            self.settle()
        match request:
            case SetRolefile(service, rolefile):
                self._set_rolefile(service, rolefile)
            case GrantRole():
                self._grant(request)
            case EnterRole():
                self._enter(request)
            case ElectRole():
                self._elect(request)
            case EndCredential():
                self._end_credential(request)
            case PassRevocation(id, by, to):
                self._pass_revocation(id, by, to)
            case RevokeRole():
                self._revoke_role(request)
            case ReinstateRole():
                self._reinstate(request)
            case SetPeer(peer):
                self.set_peer(peer)
            case RemovePeer(name):
                self.remove_peer(name)
            case MirrorRole():
                self.mirror(request)
            case HearPeer():
                self.hear(request)
            case WatchRecords():
                self.watch(request)
            case _:
                assert_never(request)
        self.moved = self.moved or not isinstance(request, EnterRole)

    def _grant(self, request: GrantRole) -> None:
        self.fresh(request.id)
        self.holder(request.to)
        check_name("service", request.service)
        check_name("role", request.role)
        if request.service in self.peers:
            raise RoleDenied(f"`{request.service}` is a service of another domain", failure="misuse")
        args = conform_arguments(self.rolefiles.get(request.service), request.role, request.args, self.functions)
        record = self.records.leaf(True)
        self.begin(
            Membership(
                request.id,
                request.service,
                request.role,
                args,
                request.to,
                record,
                request.instance,
                appointment=request.appointment,
                until=request.until,
            )
        )

    def _enter(self, request: EnterRole) -> None:
        self.fresh(request.id)
        self.holder(request.principal)
        scene = self.scene((request.service, request.instance), request.principal, request.origin)
        derived = self._searched(request) or search.find_entry(self, request, scene)
        record = self._record(derived, scene)
        if self.records.state(record) is not True:
            raise RoleDenied(
                f"what `{request.role}` would rest on does not hold now", failure="revocation", remedy="try again later"
            )
        self.begin(
            Membership(
                request.id,
                request.service,
                request.role,
                derived.args,
                request.principal,
                record,
                request.instance,
                statement=_entered_by(derived),
                supports=tuple(derived.supports()),
            )
        )
        self.settle()
        entered = self.membership(request.id)
        if entered is None or entered.state is False or entered.id in self.contested:
            raise RoleDenied(
                f"`{request.role}` would end as soon as it was entered",
                failure="credentials",
                remedy="what has a star must hold with the new member counted",
            )

    def _searched(self, request: EnterRole) -> Derived | None:
        """What a search has found that was made before, unless another would be found now.

        That is so if it was made at this version, nothing has turned in the batch that it may have looked at, and it
        rests on nothing that the batch itself begins, whose records it did not know.
        """
        if not isinstance(request, SearchedEntry) or request.found is None:
            return None
        known = self.before.roles
        if request.version != self.before.version or self.moved:
            return None
        is_known = all(id in known.memberships or id in known.elections for id in request.found.supports())
        return request.found if is_known else None

    def _record(self, found: Derived, scene: Scene) -> Reference:
        """The record of a membership: all that its statement marks with a star (OASIS 4.7)."""
        return self._own(self._links(found, scene))

    def _own(self, links: list[Link]) -> Reference:
        if not links:
            return self.records.leaf(True, latch=True)
        return self.records.combine(Op.AND, links, own=True, latch=True)

    def _links(self, derived: Derived, scene: Scene) -> list[Link]:
        """What a membership rests on; intermediate ones that must last get records of their own first."""
        made: dict[int, Reference] = {}
        *between, last = derived.followed()
        for one in between:
            made[id(one)] = self._own(self._rests_on(one, scene, made))
        return self._rests_on(last, scene, made)

    def _rests_on(self, derived: Derived, scene: Scene, made: Mapping[int, Reference]) -> list[Link]:
        links: list[Link] = []
        statement = derived.statement
        for credential, one in zip(statement.credentials, derived.credentials, strict=True):
            if credential.starred:
                links.append(Link(one.record if isinstance(one, Membership) else made[id(one)]))
        for elector, election in zip(statement.electors, derived.elections, strict=True):
            if elector.wish:
                links.append(Link(election.record))
            if elector.starred:
                links.append(Link(election.office_record))
        if any(one.starred for one in statement.revokers):
            links.append(
                self.fact(NotRevoked(derived.service, derived.instance, derived.role, derived.args, rule_of(statement)))
            )
        rule = membership_rule(on_entry(statement), derived.bound, scene, self.records, self.fact)
        if rule is False:  # it was true a moment ago: a function that answers otherwise when asked again
            raise RoleDenied(
                f"what `{derived.role}` rests on does not hold any more", failure="revocation", remedy="try again"
            )
        if isinstance(rule, Link):
            links.append(rule)
        return list(dict.fromkeys(links))

    def _elect(self, request: ElectRole) -> None:
        self.fresh(request.id)
        self.holder(request.principal)
        office, args = search.find_office(self, request)
        if request.revoke_on_exit:
            record = self.records.combine(Op.AND, [Link(office.record)], own=True, auto_revoke=True)
        else:
            record = self.records.leaf(True)
        place = request.service, request.instance
        required = tuple(self._required(ref, place) for ref in request.required)
        new = Election(
            request.id,
            request.service,
            request.role,
            args,
            request.principal,
            office.id,
            office_of(office),
            office.record,
            record,
            request.instance,
            required,
            request.until,
            request.revoke_on_exit,
        )
        self.elected[new.id] = new
        self.records.hold(record)
        self.book.add(new)

    def _required(self, ref: RoleRef, place: Service) -> RoleRef:
        own = self.scene(place).own(ref)
        return with_times(own, self.rolefiles.get(place[0] if own.service is None else own.service))

    def _end_credential(self, request: EndCredential) -> None:
        membership, election = self.membership(request.id), self.election(request.id)
        if membership is not None:
            if request.by is not None and request.by != membership.holder:
                raise RoleDenied(
                    f"`{request.by}` does not hold `{brief(request.id)}`", failure="fraud", remedy="only its holder can"
                )
            exits = request.exits or request.by is not None
            self.end(membership, "its holder left" if exits else "it was revoked")
        elif election is not None:
            if request.by is not None:
                self._check_may_revoke(election, request.by)
            self.end(election, "the elector revoked it" if request.by is not None else "it was revoked")
        else:
            raise NotFound(f"no membership or election `{brief(request.id)}` is in force")

    def _check_may_revoke(self, election: Election, by: str) -> None:
        """The elector revokes while it is in office; so does another in that office who was given the right."""
        if by == election.elector and self.records.state(election.office_record) is True:
            return
        if by in election.revokers and self._in_office(by, election) is not None:
            return
        raise RoleDenied(
            f"`{by}` may not revoke `{election.id}`", failure="misuse", remedy="only the elector can, while in office"
        )

    def _in_office(self, principal: str, election: Election) -> Membership | None:
        rolefile, scene = self.rolefiles.get(election.service), self.scene((election.service, election.instance))
        return next((one for one in self.held_by(principal) if shares_office(one, election, rolefile, scene)), None)

    def _pass_revocation(self, id: str, by: str, to: str) -> None:
        election = self.election(id)
        if election is None:
            raise NotFound(f"no election `{brief(id)}` is in force")
        self._check_may_revoke(election, by)
        if self._in_office(to, election) is None:
            office = replace(election.office, instance=None) if _is_main(election.office) else election.office
            raise RoleDenied(
                f"`{brief(to)}` does not hold `{render_role(office)}`",
                failure="misuse",
                remedy="the right to revoke goes only to others in the elector's role, with its arguments",
            )
        revokers = tuple(dict.fromkeys((*election.revokers, to)))
        self.elected[id] = replace(election, revokers=revokers)

    # -- revocation by role -----------------------------------------------------------------------------------

    def _revoke_role(self, request: RevokeRole) -> None:
        self.holder(request.principal)
        self.bans.update(search.find_revocable(self, request))
        self._look_again_at_bans(request)

    def _reinstate(self, request: ReinstateRole) -> None:
        self.holder(request.principal)
        self.bans -= search.find_lifted(self, request)
        self._look_again_at_bans(request)

    def _look_again_at_bans(self, request: RevokeRole | ReinstateRole) -> None:
        place = request.service, request.instance
        args = pattern_of(search.rolefile_of(self, request.service), request, self.functions)
        for text in list(self.book.interest.of([revocation_key(place, request.role, args)])):
            ref, fact = self.records.of_fact(text), fact_of(text)
            if ref is not None and isinstance(fact, NotRevoked) and covers(args, fact.args):
                self.records.set(ref, self.holds(fact))

    def _drop_incomplete(self, service: str, old: Rolefile | None, new: Rolefile | None) -> None:
        """Of a quorum that another rolefile no longer asks for, what was not complete comes to nothing."""
        for ban in [one for one in self.bans if one.service == service]:
            before = [one for one in (old or Rolefile()).statements if one.revokers and one.head.role == ban.role]
            named = {office_name(one.ref) for statement in (new or Rolefile()).statements for one in statement.revokers}
            if counts_alone(ban, before) or ban.revoker in named:
                continue
            bans = [one for one in self.bans if (one.service, one.instance, one.role) == (*_place(ban), ban.role)]
            if not any(is_complete(one, _place(ban), ban.args, bans) for one in before):
                self.bans.discard(ban)

    # -- rolefiles --------------------------------------------------------------------------------------------

    def _set_rolefile(self, service: str, rolefile: Rolefile | None) -> None:
        """Another rolefile: what was entered by a statement that is no more must follow from another, or ends."""
        check_name("service", service)
        if service in self.peers:
            raise BadDefinition(f"`{service}` is a service of another domain", remedy="choose another name")
        old = self.rolefiles.get(service)
        if rolefile is None:
            if service not in self.rolefiles:
                raise UnknownName(f"no service `{brief(service)}`")
            del self.rolefiles[service]
        else:
            rolefile = settle_rolefile(rolefile, self.state, self.rolefiles, self.functions)
            refuse_errors(rolefile, service, self.state, self.rolefiles, self.functions)
            self.rolefiles[service] = rolefile
        self._drop_incomplete(service, old, rolefile)
        kept = {render_statement(one) for one in (rolefile or Rolefile()).statements}
        entered = [one for one in self.state.roles.memberships.values() if one.service == service and one.statement]
        entered += [one for one in self.begun.values() if one.service == service and one.statement]
        for one in list(dict.fromkeys(entered)):
            now = self.membership(one.id)
            if now is not None and not _is_kept(now, kept):
                self._rederive(now, rolefile)
                self.settle()

    def _rederive(self, membership: Membership, rolefile: Rolefile | None) -> None:
        # What is only unknown, or false for now, does not end the membership; but it counts for nothing while it is.
        shown = tuple(m for id in membership.supports if (m := self.membership(id)) is not None)
        elections = tuple(e for id in membership.supports if (e := self.election(id)) is not None)
        office = frozenset(e.id for e in elections if not self.records.is_final(e.office_record))
        scene = self.scene(membership.place, membership.holder)
        asked = EntryRequest(membership.role, membership.args, shown, elections, frozenset(self.bans), office)
        try:
            derived = None if rolefile is None else derive(rolefile, asked, scene)
            links = [] if derived is None else self._links(derived, scene)
        except RoleDenied:  # past a limit, or on what holds no more: it does not follow
            derived, links = None, []
        if derived is None:
            self.end(membership, "it no longer follows from the rolefile")
            return
        # Unknown never grants: what is not known now must come to be known, star or no star.
        used = set(derived.supports())
        unknown = [m.record for m in shown if m.id in used and m.state is not True]
        unknown += [e.record for e in elections if e.id in used and self.records.state(e.record) is not True]
        links += [link for link in map(Link, unknown) if link not in links]
        self.records.relink(membership.record, Op.AND, links)
        self.note(replace(membership, statement=_entered_by(derived), supports=tuple(derived.supports())))


def _entered_by(found: Derived) -> str:
    """The statement of a membership, and under it those of the intermediate roles that it rests on."""
    return "\n".join(dict.fromkeys(render_statement(one.statement) for one in reversed(found.followed())))


def _is_kept(one: Membership, statements: Collection[str]) -> bool:
    """Are the statements that a membership was entered by, and rests on, still there?"""
    return one.statement in statements or all(line in statements for line in one.statement.split("\n"))


def _is_main(ref: RoleRef) -> bool:
    """Is it of the instance that needs no name?"""
    return ref.instance in (None, Constant(""))


def _place(ban: Ban) -> Service:
    return ban.service, ban.instance
