"""The role book, as the ledger keeps it and tells it.

Guarantees: what is decoded is what was encoded, kinds of arguments included. A rolefile or event policy that would
not read back the same is refused when it is written. Roles are told as rolefiles write them. Whole rolefiles and event
policies are counted in words, and compared in full.
Leaves out: words for credential records and who follows them, of which there may be many for each membership: what they
mean for people, memberships and the reasons of their endings say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from headgate.decide.rolebook import holders, merged
from headgate.lang.render import render_event_policy, render_expression, render_membership, render_role, render_rolefile
from headgate.lang.rolefile import parse_event_policy, parse_expression, parse_rolefile
from headgate.ledger import codec
from headgate.ledger.codec import Columns, RowForm, Stored
from headgate.ledger.collection import Collection, Rows, Words, elements, facts, line, mapped, put, rank
from headgate.model.errors import BadDefinition
from headgate.model.expressions import Argument, Constant, RoleRef, Variable
from headgate.model.rolefiles import EventPolicy, Representative
from headgate.model.roles import Ban, Election, Ending, Link, Membership, Peer, Record, RecordWatch, RoleFacts
from headgate.model.state import State
from headgate.model.values import brief

READ: Final = 1_024
"""Distinct rolefiles and event policies whose parsed form is kept."""

ARGUMENTS: Final = codec.form_of(tuple[Argument, ...])
_ROLE: Final = codec.maybe(codec.FORMS[RoleRef])


# -- memberships and elections ----------------------------------------------------------------------------------

_TEXT: Final = codec.text(codec.PLAIN)
MEMBERSHIP: Final = codec.row(
    Membership,
    "id holder service instance role args record state statement supports appointment until foreign",
    instance=_TEXT,
    role=_TEXT,
    statement=_TEXT,
)
"""A membership without its rank."""
ELECTION: Final = codec.packed(
    Election,
    "id elector",
    "content",
    "service instance role args membership office office_record record required until revoke_on_exit revokers",
)
"""An election without its rank."""


# -- records ----------------------------------------------------------------------------------------------------

codec.FORMS[Link] = RowForm(
    lambda link: -link.parent if link.negated else link.parent, lambda parent: Link(abs(parent), parent < 0)
)
_FLAGS: Final = {"permanent": 1, "direct": 2, "auto_revoke": 4, "latched": 8}
_UNFLAGGED: Final = codec.row(Record, "ref op parents state fact")


def _record(row: Stored) -> Record:
    record = _UNFLAGGED.load(row)
    set_flags: dict[str, Any] = {name: True for name, flag in _FLAGS.items() if row["flags"] & flag}
    return replace(record, **set_flags) if set_flags else record


RECORD: Final = RowForm(
    lambda one: _UNFLAGGED.dump(one) | {"flags": sum(flag for name, flag in _FLAGS.items() if getattr(one, name))},
    _record,
    columns={**_UNFLAGGED.columns, "flags": codec.SMALL},
)
"""A credential record: parents are references, negative where the link is negated."""


# -- bans, peers, watches ---------------------------------------------------------------------------------------


def _ban_columns(ban: Ban) -> Columns:
    fields: list[object] = [ban.service, ban.instance, ban.role, ARGUMENTS.dump(ban.args), ban.revoker]
    if ban.by or ban.office is not None:  # ledgers of formats before 5 do not say
        fields += [ban.by, _ROLE.dump(ban.office)]
    text = codec.dump(fields)
    return {"digest": codec.digest_of(text), "content": text}


def _ban(row: Stored) -> Ban:
    service, instance, role, args, revoker, *given = json.loads(row["content"])
    by, office = given or ("", None)
    return Ban(service, instance, role, ARGUMENTS.load(args), revoker, by, _ROLE.load(office))


BAN: Final = RowForm(_ban_columns, _ban)
PEER: Final = codec.packed(Peer, "name", "content", "key service bound url heard number")
_WATCH: Final = codec.row(RecordWatch, "watcher record")


# -- rolefiles and event policy ---------------------------------------------------------------------------------

_ROLEFILE: Final = codec.value_in("text", codec.read_back("rolefile", render_rolefile, parse_rolefile, kept=READ))
_EVENT_POLICY: Final = codec.value_in(
    "text", codec.read_back("event policy", render_event_policy, parse_event_policy, kept=READ)
)


def _parameters(representative: Representative) -> list[tuple[str, str]]:
    return [(name, render_expression(made_of)) for name, made_of in representative.parameters]


def _representative(type: str, parameters: str) -> Representative:
    return Representative(type, tuple((name, parse_expression(text)) for name, text in json.loads(parameters)))


def _representative_columns(one: Representative) -> Columns:
    parameters = codec.dump(_parameters(one))
    if _representative(one.type, parameters) != one:
        raise BadDefinition(f"the representative of `{one.type}` does not read back as it was given")
    return {"type": one.type, "parameters": parameters}


REPRESENTATIVE: Final = RowForm(_representative_columns, lambda row: _representative(row["type"], row["parameters"]))


# -- words ------------------------------------------------------------------------------------------------------


def _held(service: str, instance: str, role: str, args: tuple[Argument | None, ...]) -> str:
    try:
        return line(render_membership(service, instance, role, args))
    except BadDefinition:  # a name that no rolefile can write
        return brief((service, instance, role, args))


def _role_text(ref: RoleRef) -> str:
    try:
        return line(render_role(ref))
    except BadDefinition:
        return brief(ref)


def _membership_text(one: Membership) -> str:
    description = f"`{_held(one.service, one.instance, one.role, one.args)}` ({one.id})"
    description += ", by appointment" if one.appointment else ""
    description += "" if one.until is None else f", until {one.until.isoformat()}"
    return description if one.state is True else f"{description}, which is not known for now"


def _membership_changed(before: Stored, after: Stored, old: str, new: str) -> str | None:
    if before["rank"] != after["rank"]:
        return f"`{before['holder']}` no longer holds {old}; `{after['holder']}` holds {new}"
    if before["state"] is not None and after["state"] is None:
        return f"it is not known now whether `{after['holder']}` holds {old}"
    if before["state"] is None and after["state"] is not None:
        return f"`{after['holder']}` holds {new} again"
    return None


def _membership_again(before: Stored, after: Stored, text: str) -> str | None:
    if before["holder"] != after["holder"] or before["rank"] != after["rank"]:
        return f"`{before['holder']}` no longer holds {text}; `{after['holder']}` holds it anew"
    if before["statement"] != after["statement"]:
        return f"`{after['holder']}` holds {text} by another statement, `{line(json.loads(after['statement']))}`"
    return None


def _election_text(one: Election) -> str:
    open_args = tuple(Variable("_") if arg is None else Constant(arg) for arg in one.args)
    office = RoleRef(one.role, open_args, one.service, Constant(one.instance) if one.instance else None)
    description = f"`{_role_text(office)}` ({one.id})"
    if one.required:
        description += f", of those who hold {', '.join(f'`{_role_text(ref)}`' for ref in one.required)}"
    if one.until is not None:
        description += f", until {one.until.isoformat()}"
    if one.revoke_on_exit:
        description += ", for as long as it is in office"
    if one.revokers:
        description += f", and lets {', '.join(f'`{who}`' for who in one.revokers)} revoke that"
    return description


def _election_again(before: Stored, after: Stored, text: str) -> str | None:
    if before["elector"] == after["elector"] and before["rank"] == after["rank"]:
        return None
    return f"`{after['elector']}` elects anew to {text}"


def _ended(row: Stored) -> str:
    why = row.get("reason")
    return "ended" if why is None else f"ended: {line(json.loads(why))}"


def _ban_name(one: Ban) -> str:
    by = f"{one.revoker} ({one.by})" if one.by else one.revoker
    return f"{_held(one.service, one.instance, one.role, one.args)} by {by}"


def _ban_text(one: Ban) -> str:
    by = f"by `{one.by}` as `{one.revoker}`" if one.by else f"by role `{one.revoker}`"
    return f"`{_held(one.service, one.instance, one.role, one.args)}`, {by}"


def _peer_text(one: Peer) -> str:
    where = f" at {line(one.url)}" if one.url else ""
    return f"`{line(one.service)}` of {line(one.key)}{where}, whose silence is borne for {one.bound} s"


def _whole(kind: str, called: str, render: Callable[[Any], str], of: str, several: str) -> Words:
    """A whole text, which is counted in words and compared in full; `of` is what it has `several` of."""

    def lines(text: str) -> list[str]:
        return [one for one in text.split("\n") if one]

    def counted(done: str, row: Stored) -> str:
        count = len(lines(json.loads(row["text"])))
        return f"{called.format_map(row)} {done}, {count} {of if count == 1 else several}"

    return Words(
        kind=kind,
        text=lambda parsed: "; ".join(lines(render(parsed))),
        added=lambda row, _: counted("set", row),
        removed=lambda row, _: counted("removed", row),
        changed=lambda _, row, __, ___: counted("changed", row),
    )


# -- collections ------------------------------------------------------------------------------------------------

_ROLES: Final[dict[str, Any]] = {"decides": False, "authored": False, "comes_by": "roles"}


def _read_memberships(state: State, rows: Rows) -> State:
    memberships = {row["id"]: MEMBERSHIPS.fact_of(row) for row in rows}
    return replace(state, roles=replace(state.roles, memberships=memberships, held=holders(memberships)))


def _follow_memberships(state: State, ended: Rows, begun: Rows) -> State:
    kept = {row["id"] for row in begun if row["rank"] < rank(state.version + 1, 0)}
    news = RoleFacts(
        memberships=tuple(map(MEMBERSHIPS.fact_of, begun)),
        ended=tuple(Ending(row["id"], "") for row in ended if row["id"] not in kept),
    )
    return replace(state, roles=merged(state.roles, news))


# `rank` is the order of beginning: whatever changes of a membership or election, it keeps its place.
MEMBERSHIPS: Final = mapped(
    facts("memberships", ("id",), {"rank": codec.NUMBER, **MEMBERSHIP.columns}, by="holder"),
    MEMBERSHIP,
    "roles.memberships",
    read=_read_memberships,
    follow=_follow_memberships,
    ranked=True,
    words=Words(
        kind="membership",
        text=_membership_text,
        added="`{holder}` holds {said}",
        removed=lambda row, said: f"`{row['holder']}` no longer holds {said}, {_ended(row)}",
        changed=_membership_changed,
        again=_membership_again,
    ),
    authored=False,
    comes_by="roles",
)
ELECTIONS: Final = mapped(
    facts("elections", ("id",), {"rank": codec.NUMBER, **ELECTION.columns}, by="elector"),
    ELECTION,
    "roles.elections",
    ranked=True,
    words=Words(
        kind="election",
        text=_election_text,
        added="`{elector}` elects to {said}",
        removed=lambda row, said: f"`{row['elector']}` no longer elects to {said}, {_ended(row)}",
        again=_election_again,
    ),
    **_ROLES,
)
RECORDS: Final = mapped(facts("records", ("ref",), RECORD.columns), RECORD, "roles.records", what="record", **_ROLES)
BANS: Final = elements(
    facts("bans", ("digest",), {"content": codec.PLAIN}),
    BAN,
    "roles.bans",
    words=Words(kind="ban", name=_ban_name, text=_ban_text, added="revoked: {said}", removed="reinstated: {said}"),
    **_ROLES,
)
# When a peer was last heard is no change of the peer.
PEERS: Final = mapped(
    facts("peers", ("name",), PEER.columns),
    PEER,
    "roles.peers",
    words=Words(
        kind="peer",
        text=_peer_text,
        added="roles of `{name}` count here: {said}",
        removed="roles of `{name}` count here no more: {said}",
    ),
    decides=False,
    comes_by="services of other domains",
)
WATCHES: Final = elements(
    facts("watches", ("watcher", "record"), _WATCH.columns), _WATCH, "roles.watches", what="watch", **_ROLES
)
ROLEFILES: Final = mapped(
    facts("rolefiles", ("service",), _ROLEFILE.columns),
    _ROLEFILE,
    "roles.rolefiles",
    words=_whole("rolefile", "rolefile of `{service}`", render_rolefile, "line", "lines"),
    decides=False,
)


def _read_event_policy(state: State, rows: Rows) -> State:
    return put(state, "roles.policy", EVENT_POLICY.fact_of(rows[-1]) if rows else EventPolicy())


# One row at most, under the name `events`.
EVENT_POLICY: Final = Collection(
    table=facts("event_policy", ("name",), _EVENT_POLICY.columns),
    form=_EVENT_POLICY,
    part=lambda state: {"events": state.roles.policy} if state.roles.policy.entries else {},
    read=_read_event_policy,
    words=_whole("event policy", "event policy", render_event_policy, "entry", "entries"),
)
REPRESENTATIVES: Final = mapped(
    facts("representatives", ("type",), {"parameters": codec.PLAIN}),
    REPRESENTATIVE,
    "roles.representatives",
    words=Words(
        kind="representative",
        text=lambda one: ", ".join(f"`{line(n)}` is `{line(m)}`" for n, m in _parameters(one)) or "nothing",
        added="event policy sees `{type}` by its representative: {said}",
        removed="event policy sees `{type}` as it is; before, {said}",
    ),
)

ROLES: Final = (
    MEMBERSHIPS, ELECTIONS, RECORDS, BANS, PEERS, WATCHES, ROLEFILES, EVENT_POLICY, REPRESENTATIVES,
)  # fmt: skip
"""The role book, which came with format 4."""
