"""Rows of the ledger in words, for people: of each table, what its facts are called and what is said of them.

Guarantees: pure; one line each; names in backticks; conditions and values as the expression language has them, roles as
rolefiles write them. Whole rolefiles and event policies are counted in words, and compared in full.
Leaves out: credential records and who follows them, of which there may be many for each membership: what they mean for
people, memberships and the reasons of their endings say. When a peer was last heard is no change of the peer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from sqlalchemy import Table

from headgate.lang.render import render_condition, render_membership, render_operand, render_role
from headgate.ledger import codec, role_rows, schema, statements
from headgate.ledger.codec import Stored, decoding
from headgate.model.authority import (
    Attested,
    AttestedRule,
    Certificate,
    Issuing,
    Provider,
    RevocationList,
    Succession,
)
from headgate.model.conditions import Argument, Condition, Constant, RoleRef, Variable
from headgate.model.errors import BadDefinition
from headgate.model.rights import Effect
from headgate.model.roles import Ban
from headgate.model.values import brief, moment


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that was added (no `before`), removed (no `after`) or changed, and that in words."""

    kind: str
    name: str
    before: str | None
    after: str | None
    words: str


Template: TypeAlias = str | Callable[[Stored, str], str]
"""Words with the columns of a row and what the fact says (`{said}`) in their places, or how to find them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How one speaks of the facts of a table."""

    kind: str
    name: Template = "{name}"
    text: Template = "{name}"
    """What a fact says, without its name."""
    added: Template
    removed: Template
    changed: Callable[[Stored, Stored, str, str], str | None] = lambda *_: None
    """What to say of a fact that says something else than before, if there are words of its own for that."""
    again: Callable[[Stored, Stored, str], str | None] = lambda *_: None
    """What to say of a fact that says the same as before; mostly nothing."""


def compare(table: Table, before: Stored | None, after: Stored | None) -> Difference | None:
    """What became of one fact; nothing, if it came back as it was."""
    row = after if after is not None else before
    if row is None:
        return None
    words = WORDS[table]
    with decoding(words.kind, row[schema.KEYS[table][0]]):
        name = _fill(words.name, row)
        old = None if before is None else _fill(words.text, before)
        new = None if after is None else _fill(words.text, after)
        if before is None or old is None:
            sentence: str | None = _fill(words.added, row, new or "")
        elif after is None or new is None:
            sentence = _fill(words.removed, row, old)
        elif old == new:
            sentence = words.again(before, after, new)
        else:
            sentence = words.changed(before, after, old, new) or f"{words.kind} `{name}` changed: {old}; now: {new}"
        return None if sentence is None else Difference(words.kind, name, old, new, sentence)


def _fill(template: Template, row: Stored, said: str = "") -> str:
    return template.format_map({**row, "said": said}) if isinstance(template, str) else template(row, said)


# -- what authors write, subscribe to and publish ---------------------------------------------------------------


def _declared(kind: str) -> Words:
    """A group or relation."""
    return Words(
        kind=kind,
        text=lambda row, _: "open" if row["open"] else "not open",
        added=lambda row, _: f"{kind} `{row['name']}` declared{', open' if row['open'] else ''}",
        removed=f"{kind} `{{name}}` removed",
        changed=lambda _, row, __, new: f"{kind} `{row['name']}` is now {new}",
    )


def _moved(before: Stored, after: Stored, _: str) -> str | None:
    if before["rank"] == after["rank"]:
        return None
    return f"rule `{after['id']}` moved {'up' if after['rank'] < before['rank'] else 'down'}"


def _begun_again(before: Stored, after: Stored, _: str) -> str | None:
    if before["from_version"] == after["from_version"]:
        return None
    return f"subscription `{after['id']}` of `{after['principal']}` ended and began again"


def _line(text: str) -> str:
    return text.replace("\n", "\\n")


def _value(value: object) -> str:
    return _line(render_operand(Constant(value)))  # type: ignore[arg-type]


def _tuple(row: Stored) -> str:
    return f"({', '.join(map(_value, codec.load_row(row['values'])))})"


def _where(text: str) -> str:
    written = str(json.loads(text))
    return "" if written == "true" else f" where {written}".replace("\n", "\\n")


def _type(row: Stored) -> str:
    new = codec.type_of(row)
    parts = [f"owner `{new.owner}`"]
    if new.parent is not None:
        parts.append(f"extends `{new.parent}`")
    if new.attributes:
        named = (f"`{name}` {kind.value}" for name, kind in new.attributes.items())
        parts.append(f"attributes {', '.join(named)}")
    if new.key:
        parts.append("key " + ", ".join(f"`{name}`" for name in new.key))
    if new.retired:
        parts.append("removed")
    return "; ".join(parts)


def _rule(row: Stored) -> str:
    rule = codec.rule_of(row)
    verb = "may" if rule.effect is Effect.GRANT else "may not"
    who = f"`{rule.who}`" if rule.role is None else f"whoever holds `{_line(str(json.loads(row['role'])))}`"
    text = f"{who} {verb} {', '.join(sorted(a.value for a in rule.actions))} `{rule.type}`"
    if rule.attributes is not None:
        forced = {name: f" = {_forced(value)}" for name, value in rule.forced.items()}
        named = [f"`{name}`{forced.get(name, '')}" for name in rule.attributes]
        text += f" ({', '.join(named) or 'no attributes'})"
    text += _where(row["where"])
    text += ", publishing only with an identity statement in force" if rule.attested else ""
    return f"{text}, disclosed" if rule.disclose else text


def _statement(row: Stored) -> str:
    match statements.statement_of(row):
        case Certificate() as one:
            ends = "" if one.validity.until is None else f" until {one.validity.until.isoformat()}"
            return f"certificate `{one.id}` from `{one.issuer}` to `{one.subject}`{ends}"
        case RevocationList(issuer, number, _, revoked):
            return f"revocation list {number} of `{issuer}`, {len(revoked)} revoked"
        case Succession(old, new, _, until):
            ends = "" if until is None else f", and the old key counts until {until.isoformat()}"
            return f"`{old}` goes on as `{new}`{ends}"
        case Provider(key, name, mapping):
            trusted = "identity provider" if mapping is None else "provider of guests"
            return f"{trusted} `{name}`, {key}"
        case Attested(principal, identity, _):
            return f"`{identity.issuer}` attests {len(identity.attributes)} attributes of `{principal}`"
        case AttestedRule(principal, provider, _, rule):
            return f"`{provider}` attests that requirements of `{principal}` are narrower than `{_written(rule)}`"
        case Issuing(id, who, _, seconds, _):
            return f"issuing rule `{id}` for `{who}`, {seconds} s each time"


def _written(condition: Condition) -> str:
    return _line(render_condition(condition))


def _forced(value: object) -> str:
    try:
        return _value(value)
    except ValueError:
        return brief(value)


def _subscription(row: Stored) -> str:
    history = ""
    if row["history"]:
        back = f" since version {row['since_version']}" if row["since_version"] else ""
        back += "" if row["since_time"] is None else f" since {moment(row['since_time']).isoformat()}"
        history = f", with history{back}"
    counted = "" if row["counted"] is None else ", counting " + (", ".join(json.loads(row["counted"])) or "no role")
    return f"`{row['principal']}` to `{row['type']}`{_where(row['where'])}{history}{counted}"


# -- settings ---------------------------------------------------------------------------------------------------

_SETTINGS: Final = {
    "coordinator": ("the network is coordinated by {said}", "this domain coordinates the network itself"),
    "network": ("the network is called `{said}`", "the network has no name any more; it was `{said}`"),
    "names": (
        "new names may look like others, and mix scripts",
        "new names may no longer look like others, nor mix scripts",
    ),
    "connect": (
        "every principal may connect that no rule stops",
        "only principals that a rule lets in may connect",
    ),
}
_PRIVATE: Final = (
    "the attribute `{name}` of principals is private",
    "the attribute `{name}` of principals is no longer private",
)


def _setting(row: Stored, said: str, *, is_set: bool) -> str:
    of = _PRIVATE if row["name"].startswith(schema.PRIVATE) else _SETTINGS.get(row["name"], _SETTINGS["connect"])
    return _fill(of[0 if is_set else 1], row, said)


# -- roles ------------------------------------------------------------------------------------------------------


def _membership(row: Stored, _: str = "") -> str:
    membership = role_rows.MEMBERSHIP.of(row)
    description = (
        f"`{_held(membership.service, membership.instance, membership.role, membership.args)}` ({membership.id})"
    )
    description += ", by appointment" if membership.appointment else ""
    description += "" if membership.until is None else f", until {membership.until.isoformat()}"
    return description if membership.state is True else f"{description}, which is not known for now"


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
        return f"`{after['holder']}` holds {text} by another statement, `{_line(json.loads(after['statement']))}`"
    return None


def _election_again(before: Stored, after: Stored, text: str) -> str | None:
    if before["elector"] == after["elector"] and before["rank"] == after["rank"]:
        return None
    return f"`{after['elector']}` elects anew to {text}"


def _ended(row: Stored) -> str:
    why = row.get("reason")
    return "ended" if why is None else f"ended: {_line(json.loads(why))}"


def _ban_name(row: Stored, _: str) -> str:
    one = role_rows.ban_of(row)
    return f"{_held(one.service, one.instance, one.role, one.args)} by {_revoker(one)}"


def _ban(row: Stored, _: str) -> str:
    ban = role_rows.ban_of(row)
    by = f"by `{ban.by}` as `{ban.revoker}`" if ban.by else f"by role `{ban.revoker}`"
    return f"`{_held(ban.service, ban.instance, ban.role, ban.args)}`, {by}"


def _peer(row: Stored, _: str) -> str:
    peer = role_rows.PEER.of(row)
    where = f" at {_line(peer.url)}" if peer.url else ""
    return f"`{_line(peer.service)}` of {_line(peer.key)}{where}, whose silence is borne for {peer.bound} s"


def _representative(row: Stored, _: str) -> str:
    seen = json.loads(row["parameters"])
    return ", ".join(f"`{_line(name)}` is `{_line(made_of)}`" for name, made_of in seen) or "nothing"


def _election(row: Stored) -> str:
    election = role_rows.ELECTION.of(row)
    open_args = tuple(Variable("_") if arg is None else Constant(arg) for arg in election.args)
    office = RoleRef(
        election.role, open_args, election.service, Constant(election.instance) if election.instance else None
    )
    description = f"`{_role(office)}` ({election.id})"
    if election.required:
        description += f", of those who hold {', '.join(f'`{_role(ref)}`' for ref in election.required)}"
    if election.until is not None:
        description += f", until {election.until.isoformat()}"
    if election.revoke_on_exit:
        description += ", for as long as it is in office"
    if election.revokers:
        description += f", and lets {', '.join(f'`{who}`' for who in election.revokers)} revoke that"
    return description


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


# -- all of them ------------------------------------------------------------------------------------------------

WORDS: Final[Mapping[Table, Words]] = {
    schema.types: Words(
        kind="type",
        text=lambda row, _: _type(row),
        added="type `{name}` declared: {said}",
        removed="type `{name}` removed",
        changed=lambda _, row, __, ___: f"type `{row['name']}` removed" if codec.type_of(row).retired else None,
    ),
    schema.principals: Words(
        kind="principal", added="principal `{name}` declared", removed="principal `{name}` removed"
    ),
    schema.subject_attributes: Words(
        kind="attribute",
        name="{principal}.${name}",
        text=lambda row, _: _value(codec.load_value(row["value"])),
        added="`${name}` of `{principal}` is {said}",
        removed="`${name}` of `{principal}` is gone; it was {said}",
        changed=lambda _, row, old, new: f"`${row['name']}` of `{row['principal']}` went from {old} to {new}",
    ),
    schema.groups: _declared("group"),
    schema.members: Words(
        kind="member",
        name="{group}: {member}",
        text="{member}",
        added="`{member}` joined group `{group}`",
        removed="`{member}` left group `{group}`",
    ),
    schema.relations: _declared("relation"),
    schema.relation_rows: Words(
        kind="row",
        name=lambda row, _: f"{row['relation']}{_tuple(row)}",
        text=lambda row, _: _tuple(row),
        added="{said} joined relation `{relation}`",
        removed="{said} left relation `{relation}`",
    ),
    schema.rules: Words(
        kind="rule",
        name="{id}",
        text=lambda row, _: _rule(row),
        added="rule `{id}` added: {said}",
        removed="rule `{id}` removed: {said}",
        again=_moved,
    ),
    schema.admitted: Words(
        kind="right",
        name="{id}",
        text=lambda row, _: _rule(row),
        added="by certificates of `{author}`, {said}",
        removed="no longer by certificates of `{author}`: {said}",
    ),
    schema.policy_rules: Words(
        kind="policy rule",
        name="{principal}",
        text=lambda row, _: _line(f"`{json.loads(row['where'])!s}`"),
        added="the requirements of `{principal}` must be narrower than {said}",
        removed="`{principal}` has no policy rule any more; it was {said}",
    ),
    schema.subscriptions: Words(
        kind="subscription",
        name="{id}",
        text=lambda row, _: _subscription(row),
        added="subscription `{id}` began: {said}",
        removed="subscription `{id}` ended: {said}",
        again=_begun_again,
    ),
    schema.predicates: Words(
        kind="predicate",
        text="`{target}` with digest {digest}",
        added="predicate `{name}` registered: {said}",
        removed="predicate `{name}` removed",
    ),
    schema.keys: Words(
        kind="key",
        name="{principal}",
        text="{key}",
        added="`{principal}` proves itself with {said}",
        removed="`{principal}` has no key any more; it was {said}",
        changed=lambda _, row, old, new: f"`{row['principal']}` has a new key, {new}; it was {old}",
    ),
    schema.settings: Words(
        kind="setting",
        text="{value}",
        added=lambda row, said: _setting(row, said, is_set=True),
        removed=lambda row, said: _setting(row, said, is_set=False),
    ),
    schema.advertisements: Words(
        kind="advertisement",
        name="{principal}: {type}",
        text="{type}",
        added="`{principal}` advertises `{type}`",
        removed="`{principal}` no longer advertises `{type}`",
    ),
    schema.withdrawals: Words(
        kind="withdrawal",
        name="{principal}",
        text="{from_version}",
        added="what `{principal}` had not fetched by version {said} was withdrawn",
        removed="the withdrawal from `{principal}` is over",
        changed=lambda _, row, __, new: f"what `{row['principal']}` had not fetched by version {new} was withdrawn",
    ),
    schema.statements: Words(
        kind="statement",
        name="{kind} {id}",
        text=lambda row, _: _statement(row),
        added="{said}",
        removed="gone: {said}",
    ),
    schema.bags: Words(
        kind="presented",
        name="{principal}: {certificate}",
        text="{certificate}",
        added="`{principal}` presented the certificate `{said}`",
        removed="the certificate `{said}` of `{principal}` counts no more",
    ),
    schema.memberships: Words(
        kind="membership",
        name="{id}",
        text=_membership,
        added="`{holder}` holds {said}",
        removed=lambda row, said: f"`{row['holder']}` no longer holds {said}, {_ended(row)}",
        changed=_membership_changed,
        again=_membership_again,
    ),
    schema.elections: Words(
        kind="election",
        name="{id}",
        text=lambda row, _: _election(row),
        added="`{elector}` elects to {said}",
        removed=lambda row, said: f"`{row['elector']}` no longer elects to {said}, {_ended(row)}",
        again=_election_again,
    ),
    schema.bans: Words(kind="ban", name=_ban_name, text=_ban, added="revoked: {said}", removed="reinstated: {said}"),
    schema.peers: Words(
        kind="peer",
        text=_peer,
        added="roles of `{name}` count here: {said}",
        removed="roles of `{name}` count here no more: {said}",
    ),
    schema.rolefiles: Words(
        kind="rolefile",
        name="{service}",
        text=lambda row, _: "; ".join(_lines(row)),
        added=lambda row, _: f"rolefile of `{row['service']}` set, {_count(row, 'line')}",
        removed=lambda row, _: f"rolefile of `{row['service']}` removed, {_count(row, 'line')}",
        changed=lambda _, row, __, ___: f"rolefile of `{row['service']}` changed, {_count(row, 'line')}",
    ),
    schema.event_policy: Words(
        kind="event policy",
        text=lambda row, _: "; ".join(_lines(row)),
        added=lambda row, _: f"event policy set, {_count(row, 'entry', 'entries')}",
        removed=lambda row, _: f"event policy removed, {_count(row, 'entry', 'entries')}",
        changed=lambda _, row, __, ___: f"event policy changed, {_count(row, 'entry', 'entries')}",
    ),
    schema.representatives: Words(
        kind="representative",
        name="{type}",
        text=_representative,
        added="event policy sees `{type}` by its representative: {said}",
        removed="event policy sees `{type}` as it is; before, {said}",
    ),
}
"""The tables whose facts have words, in the order in which differences are told."""
