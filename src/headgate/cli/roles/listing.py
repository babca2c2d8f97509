"""`headgate role list` and `headgate role show`: who holds what, how it was gained, on what it rests, why it ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headgate.cli.roles.graph import pictured, tree
from headgate.cli.shared.common import out
from headgate.cli.shared.connection import NodeConnection
from headgate.cli.shared.options import Json, argument, option
from headgate.cli.shared.rendering import count_of, print_json, role_words, say, show_facts, show_table, show_truth
from headgate.lang.render import render_role, render_rolefile
from headgate.model.errors import NotFound
from headgate.model.roles import Ban, Election, Membership, RoleBook, reference_text
from headgate.model.state import State
from headgate.model.values import brief, render_timestamp
from headgate.protocol import role_messages as rw
from headgate.roles.requests.revocation import covers, pending_in
from headgate.roles.rolefiles.types import describe

if TYPE_CHECKING:
    from headgate.ledger import Ledger
    from headgate.node.domain import Domain

_PENDING: Final = "; not in effect until others have as well"


@dataclass(frozen=True, slots=True)
class ListedMembership:
    """A membership as it is shown."""

    id: str
    role: str
    holder: str | None
    state: str
    record: str
    statement: str | None = None
    """What it was entered by; empty if the service gave it, None if that is not told."""
    supports: tuple[str, ...] = ()
    appointment: bool = False
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ListedElection:
    """An election as it is shown."""

    id: str
    role: str
    elector: str | None
    record: str
    required: tuple[str, ...] = ()
    until: datetime | None = None
    revoke_on_exit: bool = False
    revokers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RolesSeen:
    """What is known of roles; `roles` are the arguments of each role of each service, `revoked` what is by role."""

    held: tuple[ListedMembership, ...] = ()
    elections: tuple[ListedElection, ...] = ()
    roles: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    revoked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """When something ended, and why."""

    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class CredentialHistory:
    """A credential, and its ends; one that is no more as it was at last. `revoked` is what was revoked by role."""

    credential: ListedMembership | ListedElection
    ended: tuple[End, ...] = ()
    in_force: bool = True
    revoked: tuple[str, ...] = ()


def list_(
    every: Annotated[bool, option("--all", "Also the roles that there are, and what is revoked by role.")] = False,
    holder: Annotated[str | None, option("--holder NAME", "Only of this principal; of a directory alone.")] = None,
    json: Json = False,
    *,
    connection: NodeConnection,
) -> None:
    """List memberships and elections: your own with `--as`, or all of a domain's directory.

    For example:

    `headgate role list --as ann`

    `headgate role list --all --domain DIR`

    `headgate role list --holder ann --domain DIR`
    """
    if connection.asks:
        if holder is not None:
            raise typer.BadParameter("--holder goes with a directory; a node tells you of your own")
        with connection.client() as client:
            overview = _told(client.roles.overview())
    else:
        with connection.opened() as opened:
            overview = _kept(opened.ledger.state(), holder)
    if json:
        print_json(overview)
        return
    _show_held(overview.held)
    _show_elections(overview.elections)
    if every:
        _show_roles(overview)


def show(
    name: Annotated[str, argument("ID|SERVICE", "A membership, an election, or a service.")],
    json: Json = False,
    *,
    connection: NodeConnection,
) -> None:
    """Show a credential: how it was gained, on what it rests, and why it ended; or a service with its roles.

    For example:

    `headgate role show mk3fd-ann --as ann`

    `headgate role show Conf --domain DIR`
    """
    if connection.asks:
        _show_asked(connection, name, json=json)
    else:
        with connection.opened() as opened:
            _show_read(connection, opened, name, json=json)


# -- what there is --------------------------------------------------------------------------------------------


def _told(answer: rw.RolesAnswer) -> RolesSeen:
    """As a node tells it."""
    held = tuple(_listed(one, one.state, one.record) for one in answer.held)
    elections = tuple(_elected(one, one.record, one.required) for one in answer.elections)
    roles = {one.service: _arguments(one.roles) for one in answer.services}
    return RolesSeen(held, elections, roles, tuple(map(_revoked_told, answer.revoked)))


def _kept(state: State, holder: str | None) -> RolesSeen:
    """As the ledger has it."""
    book = state.roles
    held = tuple(_held_kept(one) for one in book.memberships.values() if holder in (None, one.holder))
    elections = tuple(_elected_kept(one) for one in book.elections.values() if holder in (None, one.elector))
    roles = {service: _roles_of(book, service) for service in book.rolefiles}
    return RolesSeen(held, elections, roles, _revoked(book, book.bans))


def _held_kept(one: Membership) -> ListedMembership:
    return _listed(one, show_truth(one.state), reference_text(one.record))


def _elected_kept(one: Election) -> ListedElection:
    listed = _elected(one, reference_text(one.record), map(render_role, one.required))
    return replace(listed, revokers=one.revokers)


def _words(one: Membership | Election | Ban | rw.MembershipAnswer | rw.ElectionAnswer) -> str:
    return role_words(one.service, one.instance, one.role, one.args)


def _listed(one: Membership | rw.MembershipAnswer, state: str, record: str) -> ListedMembership:
    how = (one.statement, tuple(one.supports), one.appointment, one.until)
    return ListedMembership(one.id, _words(one), one.holder, state, record, *how)


def _elected(one: Election | rw.ElectionAnswer, record: str, required: Iterable[str]) -> ListedElection:
    how = (tuple(required), one.until, one.revoke_on_exit)
    return ListedElection(one.id, _words(one), one.elector, record, *how)


def _revoked(book: RoleBook, bans: Iterable[Ban]) -> tuple[str, ...]:
    """What was revoked by role, by whom, and whether that is in effect."""
    is_pending = pending_in(book)
    lines = []
    for ban in bans:
        by = f"{ban.by} as {ban.revoker}" if ban.by else ban.revoker
        lines.append(f"{_words(ban)}, by {by}{_PENDING if is_pending(ban) else ''}")
    return tuple(sorted(lines))


def _revoked_told(one: rw.RoleRevokedAnswer) -> str:
    words = role_words(one.service, one.instance, one.role, rw.arguments_of(one.args))
    return f"{words}, by you as {one.revoker}{_PENDING if one.pending else ''}"


def _arguments(roles: Mapping[str, Sequence[rw.ArgumentAnswer]]) -> dict[str, list[str]]:
    return {role: [f"{one.name}: {one.type}" for one in args] for role, args in roles.items()}


def _roles_of(book: RoleBook, service: str) -> dict[str, list[str]]:
    described = describe(book.rolefiles[service])
    return {role: [f"{one['name']}: {one['type']}" for one in args] for role, args in described.items()}


# -- lists ----------------------------------------------------------------------------------------------------


def _show_held(held: Sequence[ListedMembership]) -> None:
    if not held:
        say("no memberships")
        return
    rows = (
        (one.id, one.role, one.holder or "", one.state + (", appointment" if one.appointment else ""), _time(one.until))
        for one in held
    )
    show_table(("id", "role", "holder", "", "until"), rows)


def _show_elections(elections: Sequence[ListedElection]) -> None:
    if not elections:
        return
    say()
    rows = (
        (one.id, one.role, one.elector or "", " and ".join(one.required) or "anything", _time(one.until))
        for one in elections
    )
    show_table(("id", "elects to", "elector", "whoever holds", "until"), rows)


def _show_roles(overview: RolesSeen) -> None:
    for service, roles in overview.roles.items():
        say()
        say((service, "bold"))
        for line in _role_lines(roles):
            say(f"  {line}")
    if overview.revoked:
        say()
        say(("revoked by role, until reinstated", "bold"))
        for line in overview.revoked:
            say(f"  {line}")


def _role_lines(roles: dict[str, list[str]]) -> Iterator[str]:
    for role, args in roles.items():
        yield f"{role}({', '.join(args)})" if args else role


def _time(moment: datetime | None) -> str:
    return "" if moment is None else render_timestamp(moment)


# -- one ------------------------------------------------------------------------------------------------------


def _show_asked(connection: NodeConnection, name: str, *, json: bool) -> None:
    with connection.client() as client:
        answer = client.roles.overview()
        seen = _told(answer)
        every: tuple[ListedMembership | ListedElection, ...] = (*seen.held, *seen.elections)
        credentials = [one for one in every if one.id == name]
        service = client.roles.rolefile(name) if not credentials and name in seen.roles else None
    if service is not None:
        revoked = tuple(_revoked_told(one) for one in answer.revoked if one.service == name)
        _show_service(name, _arguments(service.roles), service.statements, None, revoked, json=json)
        return
    if not credentials:
        raise NotFound(f"you have no credential `{brief(name)}`, and there is no such service", remedy="list them")
    _show_story(connection, CredentialHistory(credentials[0]), json=json)


def _show_read(connection: NodeConnection, opened: Domain, name: str, *, json: bool) -> None:
    state = opened.ledger.state()
    found = _story(opened.ledger, state, name)
    if found is not None:
        _show_story(connection, found, json=json)
        return
    book = state.roles
    held = [one for one in book.memberships.values() if one.service == name]
    if name not in book.rolefiles and not held and name not in book.peers:
        remedy = "`headgate role list --all` has what there is"
        raise NotFound(f"no membership, election or service `{brief(name)}`", remedy=remedy)
    roles = _roles_of(book, name) if name in book.rolefiles else {}
    text = render_rolefile(book.rolefiles[name]) if name in book.rolefiles else None
    revoked = _revoked(book, [one for one in book.bans if one.service == name])
    _show_service(name, roles, text, len(held), revoked, json=json)


def _story(ledger: Ledger, state: State, id: str) -> CredentialHistory | None:
    """A credential of the ledger, as it is or as it was at last."""
    ends = tuple(End(version, reason) for version, reason in ledger.endings(id))
    now = _credential(state, id)
    if now is not None:
        return CredentialHistory(now, ends, revoked=_revocations_of(state, state, id))
    if not ends:
        return None
    before = ledger.state(ends[-1].version - 1)
    if (last := _credential(before, id)) is None:
        return None
    return CredentialHistory(last, ends, in_force=False, revoked=_revocations_of(before, state, id))


def _revocations_of(before: State, now: State, id: str) -> tuple[str, ...]:
    """The revocations by role that now stand against what a membership is, or was."""
    membership = before.roles.memberships.get(id)
    if membership is None:
        return ()
    office = membership.service, membership.instance, membership.role
    about = [ban for ban in now.roles.bans if (ban.service, ban.instance, ban.role) == office]
    return _revoked(now.roles, [ban for ban in about if covers(ban.args, membership.args)])


def _credential(state: State, id: str) -> ListedMembership | ListedElection | None:
    if id in state.roles.memberships:
        return _held_kept(state.roles.memberships[id])
    return _elected_kept(state.roles.elections[id]) if id in state.roles.elections else None


def _show_service(
    name: str,
    roles: dict[str, list[str]],
    statements: str | None,
    held: int | None,
    revoked: Sequence[str],
    *,
    json: bool,
) -> None:
    if json:
        print_json({"service": name, "roles": roles, "statements": statements, "held": held, "revoked": revoked})
        return
    say(("service     ", ""), (name, "bold"))
    if held is not None:
        say(f"held        {count_of(held, 'membership')}")
    for number, line in enumerate(_role_lines(roles)):
        say(f"{'' if number else 'roles':12}{line}")
    for number, line in enumerate(revoked):
        say(f"{'' if number else 'revoked':12}{line}")
    if statements is not None:
        say()
        say(statements.rstrip("\n"))
    elif held is not None:
        say("it has no rolefile here: its roles are given by `headgate role grant`, or are another domain's")


def _show_story(connection: NodeConnection, story: CredentialHistory, *, json: bool) -> None:
    if json:
        print_json(story)
        return
    show_facts(_facts(story))
    if not story.in_force:
        return
    say()
    say(("what it rests on", "bold"))
    for line in tree(pictured(connection, story.credential.id), story.credential.id):
        out.print(line, highlight=False, soft_wrap=True)


def _facts(story: CredentialHistory) -> Iterator[tuple[str, str | None]]:
    credential = story.credential
    yield "id", credential.id
    if isinstance(credential, ListedMembership):
        yield "role", credential.role
        yield "holder", credential.holder
        yield "state", credential.state if story.in_force else "ended"
        yield "gained", _gained(credential)
        yield "with", ", ".join(credential.supports)
    else:
        yield "elects to", credential.role
        yield "elector", credential.elector
        yield "state", "in force" if story.in_force else "ended"
        yield "whoever holds", " and ".join(credential.required) or "anything"
        yield "also revoked by", ", ".join(credential.revokers)
        yield "ends", "with the elector's own role" if credential.revoke_on_exit else None
    yield "until", _time(credential.until)
    yield "record", credential.record
    yield from (("revoked", line) for line in story.revoked)
    yield from (("ended", f"by version {end.version}: {end.reason}") for end in story.ended)


def _gained(membership: ListedMembership) -> str:
    if membership.appointment:
        return "by appointment"
    if membership.statement is None:
        return "by a statement that is not told" if membership.supports else "given by the service, or how is not told"
    return f"by {membership.statement}" if membership.statement else "given by the service itself"
