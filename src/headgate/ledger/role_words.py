"""Rows of the role book in words, for people.

Guarantees: pure; one line each; roles as rolefiles write them. Whole rolefiles and event policies are counted in words,
and compared in full.
Leaves out: credential records and who follows them, of which there may be many for each membership: what they mean for
people, memberships and the reasons of their endings say. When a peer was last heard is no change of the peer.
"""

from __future__ import annotations

import json
from typing import Final

from headgate.lang.render_roles import render_membership, render_role
from headgate.ledger import role_rows
from headgate.ledger.codec import Stored
from headgate.model.conditions import Argument, Constant, RoleRef, Variable
from headgate.model.errors import BadDefinition
from headgate.model.roles import Ban
from headgate.model.values import brief

ROLE_KINDS: Final = frozenset({"membership", "election", "ban", "peer", "rolefile", "event policy", "representative"})


def role_name(kind: str, row: Stored) -> str:
    """What a fact is called."""
    match kind:
        case "membership" | "election":
            return str(row["id"])
        case "ban":
            one = role_rows.ban_of(row)
            return f"{_held(one.service, one.instance, one.role, one.args)} by {_revoker(one)}"
        case "rolefile":
            return str(row["service"])
        case "representative":
            return str(row["type"])
        case _:
            return str(row["name"])


def role_text(kind: str, row: Stored) -> str:
    """What a fact says."""
    match kind:
        case "membership":
            one = role_rows.membership_of(row)
            said = f"`{_held(one.service, one.instance, one.role, one.args)}` ({one.id})"
            said += ", by appointment" if one.appointment else ""
            said += "" if one.until is None else f", until {one.until.isoformat()}"
            return said if one.state is True else f"{said}, which is not known for now"
        case "election":
            return _election(row)
        case "ban":
            ban = role_rows.ban_of(row)
            by = f"by `{ban.by}` as `{ban.revoker}`" if ban.by else f"by role `{ban.revoker}`"
            return f"`{_held(ban.service, ban.instance, ban.role, ban.args)}`, {by}"
        case "peer":
            peer = role_rows.peer_of(row)
            where = f" at {_line(peer.url)}" if peer.url else ""
            return f"`{_line(peer.service)}` of {_line(peer.key)}{where}, whose silence is borne for {peer.bound} s"
        case "representative":
            seen = json.loads(row["parameters"])
            return ", ".join(f"`{_line(name)}` is `{_line(made_of)}`" for name, made_of in seen) or "nothing"
        case _:
            return "; ".join(_lines(row))


def role_added(kind: str, row: Stored, text: str) -> str:
    """A fact began."""
    match kind:
        case "membership":
            return f"`{row['holder']}` holds {text}"
        case "election":
            return f"`{row['elector']}` elects to {text}"
        case "ban":
            return f"revoked: {text}"
        case "peer":
            return f"roles of `{row['name']}` count here: {text}"
        case "representative":
            return f"event policy sees `{row['type']}` by its representative: {text}"
        case "rolefile":
            return f"rolefile of `{row['service']}` set, {_count(row, 'line')}"
        case _:
            return f"event policy set, {_count(row, 'entry', 'entries')}"


def role_removed(kind: str, row: Stored, text: str) -> str:
    """A fact ended; of a membership or election, with the reason if the row has one."""
    why = row.get("reason")
    because = "" if why is None else f": {_line(json.loads(why))}"
    match kind:
        case "membership":
            return f"`{row['holder']}` no longer holds {text}, ended{because}"
        case "election":
            return f"`{row['elector']}` no longer elects to {text}, ended{because}"
        case "ban":
            return f"reinstated: {text}"
        case "peer":
            return f"roles of `{row['name']}` count here no more: {text}"
        case "representative":
            return f"event policy sees `{row['type']}` as it is; before, {text}"
        case "rolefile":
            return f"rolefile of `{row['service']}` removed, {_count(row, 'line')}"
        case _:
            return f"event policy removed, {_count(row, 'entry', 'entries')}"


def role_changed(kind: str, before: Stored, after: Stored, old: str, new: str) -> str:
    """A fact is another than it was."""
    match kind:
        case "membership" if before["rank"] != after["rank"]:
            return f"`{before['holder']}` no longer holds {old}; `{after['holder']}` holds {new}"
        case "membership" if before["state"] is not None and after["state"] is None:
            return f"it is not known now whether `{after['holder']}` holds {old}"
        case "membership" if before["state"] is None and after["state"] is not None:
            return f"`{after['holder']}` holds {new} again"
        case "rolefile":
            return f"rolefile of `{after['service']}` changed, {_count(after, 'line')}"
        case "event policy":
            return f"event policy changed, {_count(after, 'entry', 'entries')}"
        case _:
            return f"{kind} `{role_name(kind, after)}` changed: {old}; now: {new}"


def role_again(kind: str, before: Stored, after: Stored) -> str | None:
    """What to say of a fact that says the same as before; mostly nothing."""
    if kind == "membership":
        text = role_text(kind, after)
        if before["holder"] != after["holder"] or before["rank"] != after["rank"]:
            return f"`{before['holder']}` no longer holds {text}; `{after['holder']}` holds it anew"
        if before["statement"] != after["statement"]:
            return f"`{after['holder']}` holds {text} by another statement, `{_line(json.loads(after['statement']))}`"
    if kind == "election" and (before["elector"] != after["elector"] or before["rank"] != after["rank"]):
        return f"`{after['elector']}` elects anew to {role_text(kind, after)}"
    return None


def role_of_rule(text: str) -> str:
    """Whom a rule for a role speaks to."""
    return f"whoever holds `{_line(str(json.loads(text)))}`"


def _election(row: Stored) -> str:
    one = role_rows.election_of(row)
    open_args = tuple(Variable("_") if arg is None else Constant(arg) for arg in one.args)
    office = RoleRef(one.role, open_args, one.service, Constant(one.instance) if one.instance else None)
    said = f"`{_role(office)}` ({one.id})"
    if one.required:
        said += f", of those who hold {', '.join(f'`{_role(ref)}`' for ref in one.required)}"
    if one.until is not None:
        said += f", until {one.until.isoformat()}"
    if one.revoke_on_exit:
        said += ", for as long as it is in office"
    if one.revokers:
        said += f", and lets {', '.join(f'`{who}`' for who in one.revokers)} revoke that"
    return said


def _revoker(one: Ban) -> str:
    return f"{one.revoker} ({one.by})" if one.by else one.revoker


def _held(service: str, instance: str, role: str, args: tuple[Argument | None, ...]) -> str:
    try:
        return _line(render_membership(service, instance, role, args))
    except BadDefinition:  # a name that no rolefile can write
        return brief((service, instance, role, args))


def _role(ref: RoleRef) -> str:
    try:
        return _line(render_role(ref))
    except BadDefinition:
        return brief(ref)


def _lines(row: Stored) -> list[str]:
    return [line for line in str(json.loads(row["text"])).split("\n") if line]


def _count(row: Stored, one: str, many: str | None = None) -> str:
    count = len(_lines(row))
    return f"{count} {one if count == 1 else many or one + 's'}"


def _line(text: str) -> str:
    return text.replace("\n", "\\n")
