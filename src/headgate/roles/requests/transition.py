"""The next state, with what a batch makes of roles: `decide.apply`, and what follows for memberships (D13, OASIS 3, 4).

Guarantees: pure but for the book, which a refusal leaves as it was. Requests of roles are worked out into `Settle`, so
that the batch that is recorded says what became of them: they are taken in order, and what follows from one has
happened before the next is looked at; only what is false when all have been taken ends by that (`settling`). A change
of groups, relations, principals or the clock ends in the same batch whatever rested on it; all that a batch changes is
looked at together, so that nothing ends that held before and holds after. Why a request is refused is told apart:
fraud, misuse, revocation, or credentials that are not enough (OASIS 4.2). A record of another domain is what its
service last said, and unknown once that has been silent for longer than is borne; what it revoked stays revoked.
Leaves out: who may ask (`commands`), and certificates (`trust`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias, get_args

from headgate.decide.apply import apply
from headgate.decide.constraints import RoleFunction, Scene
from headgate.decide.rolebook import merged
from headgate.lang.render import render_role, render_statement
from headgate.model import changes
from headgate.model.errors import BadDefinition, GovernDenied, NotFound, RoleDenied, UnknownName
from headgate.model.expressions import Constant
from headgate.model.limits import MAX_PEER_BOUND_SECONDS, MAX_WATCHED
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Election, Link, Membership, Op, RecordWatch, Reference
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.model.values import brief
from headgate.roles.records.book import Book
from headgate.roles.records.facts import Mirrored, NotRevoked, fact_of, membership_rule, revocation_key, text_of
from headgate.roles.requests import entry, revocation
from headgate.roles.requests.audit import with_types
from headgate.roles.requests.settling import Settling
from headgate.roles.rolefiles.checking import refuse_errors, settle_rolefile
from headgate.roles.rolefiles.kinds import check_kinds, touches_kinds
from headgate.roles.rolefiles.names import check_role_names
from headgate.roles.rolefiles.types import conform_arguments, pattern_of, with_times

Functions: TypeAlias = Mapping[str, RoleFunction] | Callable[[State], Mapping[str, RoleFunction]]
"""The functions of services; or how to find those of the state after a batch, which may bring new ones."""

_REQUESTS = get_args(changes.RoleRequest)
_STIRRING = (
    *(changes.DeclareGroup, changes.RemoveGroup, changes.AddMember, changes.RemoveMember),
    *(changes.DeclareRelation, changes.RemoveRelation, changes.AddRow, changes.RemoveRow),
    *(changes.RegisterPredicate, changes.RemovePredicate, changes.RemovePrincipal, changes.Tick),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The batch as it is recorded, the state after it, and the book of that state, if there is one."""

    batch: changes.Batch
    after: State
    book: Book | None


def transition(
    state: State,
    batch: changes.Batch,
    *,
    book: Book | None = None,
    functions: Functions | None = None,
    now: datetime | None = None,
) -> Outcome:
    """What a batch makes of a state; `book` is that of the state, if the caller has it.

    `now` is when this happens; without it, what must be looked at again and rests on the clock is unknown.
    """
    asked = [change for change in batch.changes if isinstance(change, _REQUESTS)]
    stirring = [change for change in batch.changes if isinstance(change, _STIRRING)]
    if asked and batch.author != state.administrator:
        raise GovernDenied(f"`{batch.author}` does not govern the roles of the domain")
    if any(isinstance(change, changes.Settle) for change in batch.changes):
        if asked or stirring:
            raise TypeError("what becomes of roles is settled here, and was settled already")
        return Outcome(batch, apply(state, batch), None)
    batch = with_types(state, batch)
    plain = tuple(change for change in batch.changes if not isinstance(change, _REQUESTS))
    after = apply(_with_rolefiles(state, asked), replace(batch, changes=plain))
    if touches_kinds(batch):
        check_kinds(state, _settled(after, asked), batch)
    check_role_names(state, after, asked)
    known = state.roles
    if after.roles.rolefiles is not known.rolefiles:
        after = replace(after, roles=replace(after.roles, rolefiles=known.rolefiles))
    if not asked and not (stirring and (known.memberships or known.elections or known.records or known.peers)):
        if book is None or book.version != state.version:
            return Outcome(batch, after, None)
        book.version = after.version
        return Outcome(batch, after, book)
    known_functions = functions(after) if callable(functions) else functions or {}
    book = book if book is not None and book.version == state.version else Book(state)
    book.mark()
    try:
        settling = Settling(book, state, after, known_functions)
        settling.at(now)
        settling.moved = len(asked) < len(batch.changes)
        settling.removed = frozenset(one.name for one in stirring if isinstance(one, changes.RemovePrincipal))
        if stirring:
            settling.look_around()
        for change in batch.changes:
            if isinstance(change, changes.Tick):
                settling.tick(change.at)
            elif isinstance(change, _REQUESTS):
                carry_out(settling, change)
        settling.conclude()
        facts = settling.facts()
    except BaseException:
        book.rollback(state)
        raise
    book.keep(after.version)
    recorded = replace(batch, changes=(*plain, changes.Settle(facts)))
    return Outcome(recorded, replace(after, roles=merged(after.roles, facts)), book)


def _with_rolefiles(state: State, asked: list[changes.RoleRequest]) -> State:
    """A state with the rolefiles that are asked for: what else is in the batch is judged beside those."""
    new = {one.service: one.rolefile for one in asked if isinstance(one, changes.SetRolefile)}
    if not new:
        return state
    rolefiles = {**state.roles.rolefiles, **new}
    kept = {service: one for service, one in rolefiles.items() if one is not None}
    return replace(state, roles=replace(state.roles, rolefiles=kept))


def _settled(after: State, asked: list[changes.RoleRequest]) -> State:
    """A state with the rolefiles that are asked for, as they will be kept."""
    new = {one.service for one in asked if isinstance(one, changes.SetRolefile)} & after.roles.rolefiles.keys()
    if not new:
        return after
    known = after.roles.rolefiles
    kept = {one: settle_rolefile(known[one], after, known, {}) for one in new}  # literals do not matter for kinds
    return replace(after, roles=replace(after.roles, rolefiles={**known, **kept}))


def next_state(state: State, batch: changes.Batch, functions: Functions | None = None) -> State:
    """The state after a batch, for whoever keeps no book."""
    return transition(state, batch, functions=functions).after


# -- requests -------------------------------------------------------------------------------------------------


def carry_out(roles: Settling, request: changes.RoleRequest) -> None:
    """Carry out one request, once all that follows from those before it has happened.

    What peers say is not a request but a fact: what follows from it, follows from all of it at once.
    """
    if isinstance(request, changes.EnterRole | changes.ElectRole | changes.RevokeRole | changes.ReinstateRole):
        roles.at(request.at)
    if not isinstance(request, changes.HearPeer):
        roles.settle()
    kind = changes.EnterRole if isinstance(request, changes.EnterRole) else type(request)
    _CARRIED_OUT_BY[kind](roles, request)
    roles.moved = roles.moved or kind is not changes.EnterRole


def _grant(roles: Settling, request: changes.GrantRole) -> None:
    roles.fresh(request.id)
    roles.holder(request.to)
    check_name("service", request.service)
    check_name("role", request.role)
    if request.service in roles.peers:
        raise RoleDenied(f"`{request.service}` is a service of another domain", failure="misuse")
    args = conform_arguments(roles.rolefiles.get(request.service), request.role, request.args, roles.functions)
    roles.begin(
        Membership(
            *(request.id, request.service, request.role, args, request.to, roles.records.leaf(True)),
            instance=request.instance,
            appointment=request.appointment,
            until=request.until,
        )
    )


def _enter(roles: Settling, request: changes.EnterRole) -> None:
    roles.fresh(request.id)
    roles.holder(request.principal)
    scene = roles.scene((request.service, request.instance), request.principal, request.origin)
    derived = _searched(roles, request) or entry.find_entry(roles, request, scene)
    record = _own(roles, _links(roles, derived, scene))
    if roles.records.state(record) is not True:
        raise RoleDenied(
            f"what `{request.role}` would rest on does not hold now", failure="revocation", remedy="try again later"
        )
    roles.begin(
        Membership(
            *(request.id, request.service, request.role, derived.args, request.principal, record),
            instance=request.instance,
            statement=_entered_by(derived),
            supports=tuple(derived.supports()),
        )
    )
    roles.settle()
    entered = roles.membership(request.id)
    if entered is None or entered.state is False or entered.id in roles.contested:
        raise RoleDenied(
            f"`{request.role}` would end as soon as it was entered",
            failure="credentials",
            remedy="what has a star must hold with the new member counted",
        )


def _searched(roles: Settling, request: changes.EnterRole) -> entry.Derived | None:
    """What a search has found that was made before, unless another would be found now.

    That is so if it was made at this version, nothing has turned in the batch that it may have looked at, and it
    rests on nothing that the batch itself begins, whose records it did not know.
    """
    if not isinstance(request, entry.SearchedEntry) or request.found is None:
        return None
    if request.version != roles.before.version or roles.moved:
        return None
    is_known = all(roles.before.roles.credential(id) is not None for id in request.found.supports())
    return request.found if is_known else None


def _own(roles: Settling, links: list[Link]) -> Reference:
    """The record of a membership: all that its statement marks with a star (OASIS 4.7)."""
    if not links:
        return roles.records.leaf(True, latch=True)
    return roles.records.combine(Op.AND, links, own=True, latch=True)


def _links(roles: Settling, derived: entry.Derived, scene: Scene) -> list[Link]:
    """What a membership rests on; intermediate ones that must last get records of their own first."""
    made: dict[int, Reference] = {}
    *between, last = derived.followed()
    for one in between:
        made[id(one)] = _own(roles, _rests_on(roles, one, scene, made))
    return _rests_on(roles, last, scene, made)


def _rests_on(roles: Settling, derived: entry.Derived, scene: Scene, made: Mapping[int, Reference]) -> list[Link]:
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
            roles.fact(
                NotRevoked(derived.service, derived.instance, derived.role, derived.args, revocation.rule_of(statement))
            )
        )
    rule = membership_rule(revocation.on_entry(statement), derived.bound, scene, roles.records, roles.fact)
    if rule is False:  # it was true a moment ago: a function that answers otherwise when asked again
        raise RoleDenied(
            f"what `{derived.role}` rests on does not hold any more", failure="revocation", remedy="try again"
        )
    if isinstance(rule, Link):
        links.append(rule)
    return list(dict.fromkeys(links))


def _elect(roles: Settling, request: changes.ElectRole) -> None:
    roles.fresh(request.id)
    roles.holder(request.principal)
    office, args = entry.find_office(roles, request)
    if request.revoke_on_exit:
        record = roles.records.combine(Op.AND, [Link(office.record)], own=True, auto_revoke=True)
    else:
        record = roles.records.leaf(True)
    required = [roles.scene((request.service, request.instance)).own(ref) for ref in request.required]
    new = Election(
        *(request.id, request.service, request.role, args, request.principal),
        *(office.id, revocation.office_of(office), office.record, record),
        instance=request.instance,
        required=tuple(with_times(ref, roles.rolefiles.get(ref.service or "")) for ref in required),
        until=request.until,
        revoke_on_exit=request.revoke_on_exit,
    )
    roles.elected[new.id] = new
    roles.records.hold(record)
    roles.book.add(new)


def _end_credential(roles: Settling, request: changes.EndCredential) -> None:
    membership, election = roles.membership(request.id), roles.election(request.id)
    if membership is not None:
        if request.by is not None and request.by != membership.holder:
            raise RoleDenied(
                f"`{request.by}` does not hold `{brief(request.id)}`", failure="fraud", remedy="only its holder can"
            )
        exits = request.exits or request.by is not None
        roles.end(membership, "its holder left" if exits else "it was revoked")
    elif election is not None:
        if request.by is not None:
            _check_may_revoke(roles, election, request.by)
        roles.end(election, "the elector revoked it" if request.by is not None else "it was revoked")
    else:
        raise NotFound(f"no membership or election `{brief(request.id)}` is in force")


def _check_may_revoke(roles: Settling, election: Election, by: str) -> None:
    """The elector revokes while it is in office; so does another in that office who was given the right."""
    if by == election.elector and roles.records.state(election.office_record) is True:
        return
    if by in election.revokers and _in_office(roles, by, election) is not None:
        return
    raise RoleDenied(
        f"`{by}` may not revoke `{election.id}`", failure="misuse", remedy="only the elector can, while in office"
    )


def _in_office(roles: Settling, principal: str, election: Election) -> Membership | None:
    rolefile, scene = roles.rolefiles.get(election.service), roles.scene(election.place)
    return next((one for one in roles.held_by(principal) if entry.shares_office(one, election, rolefile, scene)), None)


def _pass_revocation(roles: Settling, request: changes.PassRevocation) -> None:
    id, by, to = request.election, request.by, request.to
    election = roles.election(id)
    if election is None:
        raise NotFound(f"no election `{brief(id)}` is in force")
    _check_may_revoke(roles, election, by)
    if _in_office(roles, to, election) is None:
        office = election.office
        if office.instance == Constant(""):  # the instance that needs no name
            office = replace(office, instance=None)
        raise RoleDenied(
            f"`{brief(to)}` does not hold `{render_role(office)}`",
            failure="misuse",
            remedy="the right to revoke goes only to others in the elector's role, with its arguments",
        )
    revokers = tuple(dict.fromkeys((*election.revokers, to)))
    roles.elected[id] = replace(election, revokers=revokers)


# -- revocation by role ---------------------------------------------------------------------------------------


def _revoke_role(roles: Settling, request: changes.RevokeRole) -> None:
    roles.holder(request.principal)
    roles.bans.update(entry.find_revocable(roles, request))
    _look_again_at_bans(roles, request)


def _reinstate(roles: Settling, request: changes.ReinstateRole) -> None:
    roles.holder(request.principal)
    roles.bans -= entry.find_lifted(roles, request)
    _look_again_at_bans(roles, request)


def _look_again_at_bans(roles: Settling, request: changes.RevokeRole | changes.ReinstateRole) -> None:
    place = request.service, request.instance
    args = pattern_of(entry.rolefile_of(roles, request.service), request, roles.functions)
    for text in list(roles.book.interest.of([revocation_key(place, request.role, args)])):
        ref, fact = roles.records.of_fact(text), fact_of(text)
        if ref is not None and isinstance(fact, NotRevoked) and revocation.covers(args, fact.args):
            roles.records.set(ref, roles.holds(fact))


def _drop_incomplete(roles: Settling, service: str, old: Rolefile | None, new: Rolefile | None) -> None:
    """Of a quorum that another rolefile no longer asks for, what was not complete comes to nothing."""
    for ban in [one for one in roles.bans if one.service == service]:
        before = revocation.revoked_by(old or Rolefile(), ban.role)
        named = {
            revocation.office_name(one.ref)
            for statement in (new or Rolefile()).statements
            for one in statement.revokers
        }
        if revocation.counts_alone(ban, before) or ban.revoker in named:
            continue
        bans = [one for one in roles.bans if (one.place, one.role) == (ban.place, ban.role)]
        if not any(revocation.is_complete(one, ban.place, ban.args, bans) for one in before):
            roles.bans.discard(ban)


# -- rolefiles ------------------------------------------------------------------------------------------------


def _set_rolefile(roles: Settling, request: changes.SetRolefile) -> None:
    """Another rolefile: what was entered by a statement that is no more must follow from another, or ends."""
    service, rolefile = request.service, request.rolefile
    check_name("service", service)
    if service in roles.peers:
        raise BadDefinition(f"`{service}` is a service of another domain", remedy="choose another name")
    old = roles.rolefiles.get(service)
    if rolefile is None:
        if service not in roles.rolefiles:
            raise UnknownName(f"no service `{brief(service)}`")
        del roles.rolefiles[service]
    else:
        rolefile = settle_rolefile(rolefile, roles.state, roles.rolefiles, roles.functions)
        refuse_errors(rolefile, service, roles.state, roles.rolefiles, roles.functions)
        roles.rolefiles[service] = rolefile
    _drop_incomplete(roles, service, old, rolefile)
    kept = {render_statement(one) for one in (rolefile or Rolefile()).statements}
    entered = [one for one in roles.state.roles.memberships.values() if one.service == service and one.statement]
    entered += [one for one in roles.begun.values() if one.service == service and one.statement]
    for one in list(dict.fromkeys(entered)):
        now = roles.membership(one.id)
        if now is not None and not _is_kept(now, kept):
            _rederive(roles, now, rolefile)
            roles.settle()


def _rederive(roles: Settling, membership: Membership, rolefile: Rolefile | None) -> None:
    # What is only unknown, or false for now, does not end the membership; but it counts for nothing while it is.
    shown = tuple(m for id in membership.supports if (m := roles.membership(id)) is not None)
    elections = tuple(e for id in membership.supports if (e := roles.election(id)) is not None)
    office = frozenset(e.id for e in elections if not roles.records.is_final(e.office_record))
    scene = roles.scene(membership.place, membership.holder)
    asked = entry.EntryRequest(membership.role, membership.args, shown, elections, frozenset(roles.bans), office)
    try:
        derived = None if rolefile is None else entry.derive(rolefile, asked, scene)
        links = [] if derived is None else _links(roles, derived, scene)
    except RoleDenied:  # past a limit, or on what holds no more: it does not follow
        derived, links = None, []
    if derived is None:
        roles.end(membership, "it no longer follows from the rolefile")
        return
    # Unknown never grants: what is not known now must come to be known, star or no star.
    supports = tuple(derived.supports())
    unknown = [m.record for m in shown if m.id in supports and m.state is not True]
    unknown += [e.record for e in elections if e.id in supports and roles.records.state(e.record) is not True]
    links += [link for link in map(Link, unknown) if link not in links]
    roles.records.relink(membership.record, Op.AND, links)
    roles.begun[membership.id] = replace(membership, statement=_entered_by(derived), supports=supports)


# -- other domains --------------------------------------------------------------------------------------------


def _set_peer(roles: Settling, request: changes.SetPeer) -> None:
    """Let roles of another domain's service count here."""
    peer = request.peer
    check_name("service", peer.name)
    ours = peer.name in roles.rolefiles or any(place[0] == peer.name for place in roles.index.members)
    if ours and peer.name not in roles.peers:
        raise BadDefinition(f"`{peer.name}` is a service of this domain", remedy="choose another name")
    if not 1 <= peer.bound <= MAX_PEER_BOUND_SECONDS:
        raise BadDefinition(
            f"the silence of `{peer.name}` is borne for `{peer.bound}` seconds",
            remedy=f"write 1 to MAX_PEER_BOUND_SECONDS ({MAX_PEER_BOUND_SECONDS})",
        )
    old = roles.peers.get(peer.name)
    if old is not None and (old.key, old.service) != (peer.key, peer.service):
        _remove_peer(roles, changes.RemovePeer(peer.name))
        old = None
    if old is not None:
        peer = replace(peer, heard=old.heard if peer.heard is None else peer.heard, number=old.number)
    roles.peers[peer.name] = peer


def _remove_peer(roles: Settling, request: changes.RemovePeer) -> None:
    """End all that rests on another domain's service."""
    name = request.name
    if name not in roles.peers:
        raise UnknownName(f"no service of another domain `{brief(name)}`")
    del roles.peers[name]
    for one in [*roles.state.roles.memberships.values(), *roles.begun.values()]:
        now = roles.membership(one.id)
        if now is not None and now.service == name:
            roles.end(now, f"`{name}` counts no more")


def _mirror(roles: Settling, request: changes.MirrorRole) -> None:
    """Take up a role of another domain's service, as its issuer has just confirmed it."""
    if request.peer not in roles.peers:
        raise UnknownName(f"no service of another domain `{brief(request.peer)}`", remedy="name it as a peer first")
    roles.holder(request.holder)
    if request.state is False:
        raise RoleDenied(f"the issuer has revoked `{brief(request.role)}`", failure="revocation")
    fact = Mirrored(request.peer, request.remote)
    leaf = roles.records.of_fact(text_of(fact))
    if leaf is not None and _was_shown(roles, request, leaf):
        roles.records.set(leaf, request.state)
        return
    roles.fresh(request.id)
    link = roles.fact(fact)
    roles.records.set(link.parent, request.state)
    record = roles.records.combine(Op.AND, [link], own=True, latch=True)
    roles.begin(
        Membership(
            *(request.id, request.peer, request.role, request.args, request.holder, record),
            instance=request.instance,
            state=roles.records.state(record),
            foreign=True,
        )
    )


def _was_shown(roles: Settling, request: changes.MirrorRole, leaf: Reference) -> bool:
    """Does the same holder have the same role by the same record already?"""
    wanted = request.peer, request.role, request.instance
    return any(
        link.parent == leaf
        for one in roles.kept_by(request.holder)
        if (one.service, one.role, one.instance) == wanted
        for link in roles.records.record(one.record).parents
    )


def _hear(roles: Settling, request: changes.HearPeer) -> None:
    """Take up what a peer said; what is older than what is known changes nothing."""
    peer = roles.peers.get(request.peer)
    if peer is None:
        raise UnknownName(f"no service of another domain `{brief(request.peer)}`")
    if request.number < peer.number:
        return
    heard = request.at if peer.heard is None else max(peer.heard, request.at)
    roles.peers[peer.name] = replace(peer, number=request.number, heard=heard)
    for remote, state in request.states.items():
        ref = roles.records.of_fact(text_of(Mirrored(peer.name, remote)))
        if ref is None:
            continue
        if state is False:
            roles.records.revoke(ref)  # what another domain revoked stays so, whatever is said later
        else:
            roles.records.set(ref, state)


def _watch(roles: Settling, request: changes.WatchRecords) -> None:
    """Note which of our records another domain follows."""
    mine = {one for one in roles.watches if one.watcher == request.watcher}
    asked = {RecordWatch(request.watcher, ref) for ref in request.records}
    if not request.watching:
        for watch in asked & mine:
            roles.watches.discard(watch)
            roles.records.release(watch.record)
        return
    if len(mine | asked) > MAX_WATCHED:
        raise BadDefinition(f"`{request.watcher}` follows more than MAX_WATCHED ({MAX_WATCHED}) records")
    for watch in asked - mine:
        if watch.record in roles.records:
            roles.watches.add(watch)
            roles.records.hold(watch.record)


def _entered_by(found: entry.Derived) -> str:
    """The statement of a membership, and under it those of the intermediate roles that it rests on."""
    return "\n".join(dict.fromkeys(render_statement(one.statement) for one in reversed(found.followed())))


def _is_kept(one: Membership, statements: Collection[str]) -> bool:
    """Are the statements that a membership was entered by, and rests on, still there?"""
    return one.statement in statements or all(line in statements for line in one.statement.split("\n"))


_CARRIED_OUT_BY: Final[Mapping[type[changes.RoleRequest], Callable[[Settling, Any], None]]] = {
    changes.SetRolefile: _set_rolefile,
    changes.GrantRole: _grant,
    changes.EnterRole: _enter,
    changes.ElectRole: _elect,
    changes.EndCredential: _end_credential,
    changes.PassRevocation: _pass_revocation,
    changes.RevokeRole: _revoke_role,
    changes.ReinstateRole: _reinstate,
    changes.SetPeer: _set_peer,
    changes.RemovePeer: _remove_peer,
    changes.MirrorRole: _mirror,
    changes.HearPeer: _hear,
    changes.WatchRecords: _watch,
}
assert set(_CARRIED_OUT_BY) == set(_REQUESTS), "each kind of request is carried out"
