"""Facts of the role book as columns, and back.

Guarantees: what is decoded is what was encoded, kinds of arguments included. A rolefile or event policy that would
not read back the same is refused when it is written. What cannot be decoded is `damaged`.
Leaves out: which facts begin and end (`delta`), and in what order they stand (`collections`).
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

from headgate.lang.render import render_event_policy, render_expression, render_rolefile
from headgate.lang.rolefile import parse_event_policy, parse_expression, parse_rolefile
from headgate.ledger.codec import (
    PLAIN,
    TIME,
    Columns,
    Encoding,
    RowForm,
    Stored,
    decoding,
    digest_of,
    dump,
    each,
    maybe,
    record,
    text,
)
from headgate.model.arguments import dump_argument, load_argument
from headgate.model.conditions import Constant, Meta, RoleRef, Term, Variable
from headgate.model.errors import BadDefinition
from headgate.model.rolefiles import EventPolicy, Representative, Rolefile
from headgate.model.roles import Ban, Election, Link, Membership, Op, Peer, Record, RecordWatch
from headgate.model.values import brief

EVENTS: Final = "events"
"""The name of the one row of event policy."""

READ: Final = 1_024
"""Distinct rolefiles and event policies whose parsed form is kept."""

PERMANENT, DIRECT, AUTO_REVOKE, LATCHED = 1, 2, 4, 8
"""The flags of a record."""


ARGUMENTS: Final = each(RowForm(dump_argument, load_argument))
"""Arguments of a role."""


# -- memberships and elections ----------------------------------------------------------------------------------

MEMBERSHIP: Final = Encoding(
    "membership",
    "id",
    record(
        Membership,
        id=PLAIN,
        holder=PLAIN,
        service=PLAIN,
        instance=text(PLAIN),
        role=text(PLAIN),
        args=text(ARGUMENTS),
        record=PLAIN,
        state=PLAIN,
        statement=text(PLAIN),
        supports=text(each(PLAIN)),
        appointment=PLAIN,
        until=maybe(TIME),
        foreign=PLAIN,
    ),
)
"""A membership without its rank."""


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


def _json_term(raw: object) -> Term:
    match raw:
        case ["given", value]:
            return Constant(load_argument(value))
        case ["variable", str(name)]:
            return Variable(name)
        case ["asked", "instance" | "time" | "origin" | "client" as name]:
            return Meta(name)
        case _:
            raise ValueError(f"`{brief(raw)}` is no term")


_ROLE: Final = RowForm(_role_json, _json_role)
_ELECTION: Final[RowForm[Any]] = record(
    dict,
    service=PLAIN,
    instance=PLAIN,
    role=PLAIN,
    args=ARGUMENTS,
    membership=PLAIN,
    office=_ROLE,
    office_record=PLAIN,
    record=PLAIN,
    required=each(_ROLE),
    until=maybe(TIME),
    revoke_on_exit=PLAIN,
    revokers=each(PLAIN),
)
ELECTION: Final = Encoding(
    "election",
    "id",
    RowForm(
        lambda one: {"id": one.id, "elector": one.elector, "content": dump(_ELECTION.dump(one))},
        lambda row: Election(id=row["id"], elector=row["elector"], **_ELECTION.load(json.loads(row["content"]))),
    ),
)
"""An election without its rank."""


# -- records ----------------------------------------------------------------------------------------------------

_LINK: Final = RowForm(
    lambda link: -link.parent if link.negated else link.parent, lambda parent: Link(abs(parent), parent < 0)
)
_FLAGS: Final = {"permanent": PERMANENT, "direct": DIRECT, "auto_revoke": AUTO_REVOKE, "latched": LATCHED}
_RECORD: Final[RowForm[Any]] = record(
    dict, ref=PLAIN, op=RowForm(lambda op: op.value, Op), parents=text(each(_LINK)), state=PLAIN, fact=PLAIN
)


def _flags(flags: int) -> dict[str, Any]:
    return {name: bool(flags & flag) for name, flag in _FLAGS.items()}


RECORD: Final = Encoding(
    "record",
    "ref",
    RowForm(
        lambda one: _RECORD.dump(one) | {"flags": sum(flag for name, flag in _FLAGS.items() if getattr(one, name))},
        lambda row: Record(**_RECORD.load(row), **_flags(row["flags"])),
    ),
)
"""A credential record."""


# -- bans, peers, watches ---------------------------------------------------------------------------------------


def ban_columns(ban: Ban) -> Columns:
    """A role instance that was revoked by role."""
    fields: list[object] = [ban.service, ban.instance, ban.role, [dump_argument(arg) for arg in ban.args], ban.revoker]
    if ban.by or ban.office is not None:  # ledgers of formats before 5 do not say
        fields += [ban.by, None if ban.office is None else _role_json(ban.office)]
    text = dump(fields)
    return {"digest": digest_of(text), "content": text}


def ban_of(row: Stored) -> Ban:
    """The inverse of `ban_columns`."""
    with decoding("ban", row["digest"]):
        service, instance, role, args, revoker, *given = json.loads(row["content"])
        by, office = given or ("", None)
        known = None if office is None else _json_role(office)
        return Ban(service, instance, role, tuple(map(load_argument, args)), revoker, by, known)


_PEER: Final[RowForm[Any]] = record(
    dict, key=PLAIN, service=PLAIN, bound=PLAIN, url=PLAIN, heard=maybe(TIME), number=PLAIN
)
PEER: Final = Encoding(
    "peer",
    "name",
    RowForm(
        lambda one: {"name": one.name, "content": dump(_PEER.dump(one))},
        lambda row: Peer(name=row["name"], **_PEER.load(json.loads(row["content"]))),
    ),
)
"""A service of another domain."""
WATCH: Final = Encoding("watch", "watcher", record(RecordWatch, watcher=PLAIN, record=PLAIN))
"""A record that another domain follows."""


# -- rolefiles and event policy ---------------------------------------------------------------------------------


def rolefile_columns(service: str, rolefile: Rolefile) -> Columns:
    """The rolefile of a service, as text."""
    text = render_rolefile(rolefile)
    if parse_rolefile(text) != rolefile:
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


def representative_columns(representative: Representative) -> Columns:
    """How event policy sees a type."""
    parameters = [[name, render_expression(made_of)] for name, made_of in representative.parameters]
    if any(
        parse_expression(text) != made_of
        for (_, text), (_, made_of) in zip(parameters, representative.parameters, strict=True)
    ):
        raise BadDefinition(f"the representative of `{representative.type}` does not read back as it was given")
    return {"type": representative.type, "parameters": dump(parameters)}


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
