"""Facts of the role book as columns, and back.

Guarantees: what is decoded is what was encoded, kinds of arguments included. A rolefile or event policy that would
not read back the same is refused when it is written. What cannot be decoded is `damaged`.
Leaves out: which facts begin and end (`delta`), and in what order they stand (`role_book`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from headgate.lang.render_roles import render_event_policy, render_expression, render_rolefile
from headgate.lang.rolefile import parse_event_policy, parse_expression, parse_rolefile
from headgate.ledger.codec import Columns, Stored, decoding, digest_of, dump
from headgate.model.arguments import dump_argument, load_argument
from headgate.model.conditions import Argument, Constant, Meta, RoleRef, Term, Variable
from headgate.model.errors import BadDefinition
from headgate.model.rolefiles import EventPolicy, Representative, Rolefile
from headgate.model.roles import Ban, Election, Link, Membership, Op, Peer, Record, RecordWatch
from headgate.model.values import brief, micros, moment

EVENTS: Final = "events"
"""The name of the one row of event policy."""

READ: Final = 1_024
"""Distinct rolefiles and event policies whose parsed form is kept."""

PERMANENT, DIRECT, AUTO_REVOKE, LATCHED = 1, 2, 4, 8
"""The flags of a record."""


def dump_arguments(args: Iterable[Argument]) -> str:
    """Arguments of a role as text."""
    return dump([dump_argument(arg) for arg in args])


def load_arguments(text: str) -> tuple[Argument, ...]:
    """The inverse of `dump_arguments`."""
    return tuple(map(load_argument, json.loads(text)))


# -- memberships and elections ----------------------------------------------------------------------------------


def membership_columns(one: Membership) -> Columns:
    """A membership without its rank."""
    return {
        "id": one.id,
        "holder": one.holder,
        "service": one.service,
        "instance": dump(one.instance),
        "role": dump(one.role),
        "args": dump_arguments(one.args),
        "record": one.record,
        "state": one.state,
        "statement": dump(one.statement),
        "supports": dump(one.supports),
        "appointment": one.appointment,
        "until": None if one.until is None else micros(one.until),
        "foreign": one.foreign,
    }


def membership_of(row: Stored) -> Membership:
    """The inverse of `membership_columns`."""
    with decoding("membership", row["id"]):
        return Membership(
            id=row["id"],
            service=row["service"],
            role=json.loads(row["role"]),
            args=load_arguments(row["args"]),
            holder=row["holder"],
            record=row["record"],
            instance=json.loads(row["instance"]),
            state=row["state"],
            statement=json.loads(row["statement"]),
            supports=tuple(json.loads(row["supports"])),
            appointment=row["appointment"],
            until=None if row["until"] is None else moment(row["until"]),
            foreign=row["foreign"],
        )


def election_columns(one: Election) -> Columns:
    """An election without its rank."""
    content = {
        "service": one.service,
        "instance": one.instance,
        "role": one.role,
        "args": [dump_argument(arg) for arg in one.args],
        "membership": one.membership,
        "office": _role_json(one.office),
        "office_record": one.office_record,
        "record": one.record,
        "required": [_role_json(ref) for ref in one.required],
        "until": None if one.until is None else micros(one.until),
        "revoke_on_exit": one.revoke_on_exit,
        "revokers": one.revokers,
    }
    return {"id": one.id, "elector": one.elector, "content": dump(content)}


def election_of(row: Stored) -> Election:
    """The inverse of `election_columns`."""
    with decoding("election", row["id"]):
        found = json.loads(row["content"])
        return Election(
            id=row["id"],
            service=found["service"],
            role=found["role"],
            args=tuple(map(load_argument, found["args"])),
            elector=row["elector"],
            membership=found["membership"],
            office=_json_role(found["office"]),
            office_record=found["office_record"],
            record=found["record"],
            instance=found["instance"],
            required=tuple(map(_json_role, found["required"])),
            until=None if found["until"] is None else moment(found["until"]),
            revoke_on_exit=found["revoke_on_exit"],
            revokers=tuple(found["revokers"]),
        )


def _role_json(ref: RoleRef) -> dict[str, object]:
    instance = None if ref.instance is None else _term_json(ref.instance)
    return {"role": ref.role, "args": list(map(_term_json, ref.args)), "service": ref.service, "instance": instance}


def _json_role(found: dict[str, Any]) -> RoleRef:
    instance = None if found["instance"] is None else _json_term(found["instance"])
    return RoleRef(found["role"], tuple(map(_json_term, found["args"])), found["service"], instance)


def _term_json(term: Term) -> list[object]:
    match term:
        case Constant(value):
            return ["given", dump_argument(value)]
        case Variable(name):
            return ["variable", name]
        case Meta(name):
            return ["asked", name]


def _json_term(found: object) -> Term:
    match found:
        case ["given", value]:
            return Constant(load_argument(value))
        case ["variable", str(name)]:
            return Variable(name)
        case ["asked", "instance" | "time" | "origin" | "client" as name]:
            return Meta(name)
        case _:
            raise ValueError(f"`{brief(found)}` is no term")


# -- records ----------------------------------------------------------------------------------------------------


def record_columns(one: Record) -> Columns:
    """A credential record."""
    return {
        "ref": one.ref,
        "op": one.op.value,
        "parents": dump([-link.parent if link.negated else link.parent for link in one.parents]),
        "state": one.state,
        "fact": one.fact,
        "flags": one.permanent * PERMANENT
        | one.direct * DIRECT
        | one.auto_revoke * AUTO_REVOKE
        | one.latched * LATCHED,
    }


def record_of(row: Stored) -> Record:
    """The inverse of `record_columns`."""
    with decoding("record", row["ref"]):
        flags = row["flags"]
        return Record(
            ref=row["ref"],
            op=Op(row["op"]),
            parents=tuple(Link(abs(parent), parent < 0) for parent in json.loads(row["parents"])),
            state=row["state"],
            fact=row["fact"],
            permanent=bool(flags & PERMANENT),
            direct=bool(flags & DIRECT),
            auto_revoke=bool(flags & AUTO_REVOKE),
            latched=bool(flags & LATCHED),
        )


# -- bans, peers, watches ---------------------------------------------------------------------------------------


def ban_columns(one: Ban) -> Columns:
    """A role instance that was revoked by role."""
    said: list[object] = [one.service, one.instance, one.role, [dump_argument(arg) for arg in one.args], one.revoker]
    if one.by or one.office is not None:  # ledgers of formats before 5 do not say
        said += [one.by, None if one.office is None else _role_json(one.office)]
    text = dump(said)
    return {"digest": digest_of(text), "content": text}


def ban_of(row: Stored) -> Ban:
    """The inverse of `ban_columns`."""
    with decoding("ban", row["digest"]):
        service, instance, role, args, revoker, *given = json.loads(row["content"])
        by, office = given or ("", None)
        known = None if office is None else _json_role(office)
        return Ban(service, instance, role, tuple(map(load_argument, args)), revoker, by, known)


def peer_columns(one: Peer) -> Columns:
    """A service of another domain."""
    content = {
        "key": one.key,
        "service": one.service,
        "bound": one.bound,
        "url": one.url,
        "heard": None if one.heard is None else micros(one.heard),
        "number": one.number,
    }
    return {"name": one.name, "content": dump(content)}


def peer_of(row: Stored) -> Peer:
    """The inverse of `peer_columns`."""
    with decoding("peer", row["name"]):
        found = json.loads(row["content"])
        heard = None if found["heard"] is None else moment(found["heard"])
        return Peer(row["name"], found["key"], found["service"], found["bound"], found["url"], heard, found["number"])


def watch_columns(one: RecordWatch) -> Columns:
    """A record that another domain follows."""
    return {"watcher": one.watcher, "record": one.record}


# -- rolefiles and event policy ---------------------------------------------------------------------------------


def rolefile_columns(service: str, one: Rolefile) -> Columns:
    """The rolefile of a service, as text."""
    text = render_rolefile(one)
    if parse_rolefile(text) != one:
        raise BadDefinition(f"the rolefile of `{service}` does not read back as it was given")
    return {"service": service, "text": dump(text)}


def rolefile_of(row: Stored) -> Rolefile:
    """The inverse of `rolefile_columns`."""
    with decoding("rolefile", row["service"]):
        return _rolefile(row["text"])


def policy_columns(policy: EventPolicy) -> Columns:
    """The event policy, as text."""
    text = render_event_policy(policy)
    if parse_event_policy(text) != policy:
        raise BadDefinition("the event policy does not read back as it was given")
    return {"name": EVENTS, "text": dump(text)}


def policy_of(row: Stored) -> EventPolicy:
    """The inverse of `policy_columns`."""
    with decoding("event policy", row["name"]):
        return _policy(row["text"])


def representative_columns(one: Representative) -> Columns:
    """How event policy sees a type."""
    said = [[name, render_expression(made_of)] for name, made_of in one.parameters]
    if any(parse_expression(text) != made_of for (_, text), (_, made_of) in zip(said, one.parameters, strict=True)):
        raise BadDefinition(f"the representative of `{one.type}` does not read back as it was given")
    return {"type": one.type, "parameters": dump(said)}


def representative_of(row: Stored) -> Representative:
    """The inverse of `representative_columns`."""
    with decoding("representative", row["type"]):
        said = json.loads(row["parameters"])
        return Representative(row["type"], tuple((name, parse_expression(text)) for name, text in said))


@lru_cache(maxsize=READ)
def _rolefile(text: str) -> Rolefile:
    return parse_rolefile(json.loads(text))


@lru_cache(maxsize=READ)
def _policy(text: str) -> EventPolicy:
    return parse_event_policy(json.loads(text))
