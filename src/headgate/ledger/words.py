"""Rows of the ledger in words, for people.

Guarantees: pure; one line each; names in backticks; conditions and values as the expression language has
them. Of roles, see `role_words`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Table

from headgate.lang.render import render_condition, render_operand
from headgate.ledger import codec, schema, statements
from headgate.ledger.codec import Stored, decoding
from headgate.ledger.role_words import (
    ROLE_KINDS,
    role_added,
    role_again,
    role_changed,
    role_name,
    role_of_rule,
    role_removed,
    role_text,
)
from headgate.model.authority import (
    Attested,
    AttestedRule,
    Certificate,
    Issuing,
    Provider,
    RevocationList,
    Succession,
)
from headgate.model.conditions import Condition, Constant
from headgate.model.rights import Effect
from headgate.model.values import brief, moment


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that was added (no `before`), removed (no `after`) or changed, and that in words."""

    kind: str
    name: str
    before: str | None
    after: str | None
    words: str


KINDS = {
    schema.types: "type",
    schema.principals: "principal",
    schema.subject_attributes: "attribute",
    schema.groups: "group",
    schema.members: "member",
    schema.relations: "relation",
    schema.relation_rows: "row",
    schema.rules: "rule",
    schema.subscriptions: "subscription",
    schema.predicates: "predicate",
    schema.keys: "key",
    schema.settings: "setting",
    schema.advertisements: "advertisement",
    schema.withdrawals: "withdrawal",
    schema.admitted: "right",
    schema.policy_rules: "policy rule",
    schema.statements: "statement",
    schema.bags: "presented",
    schema.memberships: "membership",
    schema.elections: "election",
    schema.bans: "ban",
    schema.peers: "peer",
    schema.rolefiles: "rolefile",
    schema.event_policy: "event policy",
    schema.representatives: "representative",
}
"""The tables whose facts have words."""


def compare(table: Table, before: Stored | None, after: Stored | None) -> Difference | None:
    """What became of one fact; nothing, if it came back as it was."""
    row = after if after is not None else before
    if row is None:
        return None
    kind = KINDS[table]
    with decoding(kind, row[schema.KEYS[table][0]]):
        old = None if before is None else _text(kind, before)
        new = None if after is None else _text(kind, after)
        if before is not None and after is not None and old == new:
            again = _again(kind, before, after)
            return None if again is None else Difference(kind, _name(kind, row), old, new, again)
        if new is None:
            words = _removed(kind, row, old or "")
        elif old is None:
            words = _added(kind, row, new)
        else:
            words = _changed(kind, before or row, row, old, new)
        return Difference(kind, _name(kind, row), old, new, words)


def _name(kind: str, row: Stored) -> str:
    match kind:
        case _ if kind in ROLE_KINDS:
            return role_name(kind, row)
        case "attribute":
            return f"{row['principal']}.${row['name']}"
        case "member":
            return f"{row['group']}: {row['member']}"
        case "row":
            return f"{row['relation']}{_tuple(row)}"
        case "rule" | "subscription" | "right":
            return str(row["id"])
        case "key" | "withdrawal" | "policy rule":
            return str(row["principal"])
        case "statement":
            return f"{row['kind']} {row['id']}"
        case "presented":
            return f"{row['principal']}: {row['certificate']}"
        case "advertisement":
            return f"{row['principal']}: {row['type']}"
        case _:
            return str(row["name"])


def _text(kind: str, row: Stored) -> str:
    """What a fact says, without its name."""
    match kind:
        case _ if kind in ROLE_KINDS:
            return role_text(kind, row)
        case "type":
            return _type(row)
        case "attribute":
            return _value(codec.load_value(row["value"]))
        case "group" | "relation":
            return "open" if row["open"] else "not open"
        case "member":
            return str(row["member"])
        case "row":
            return _tuple(row)
        case "rule" | "right":
            return _rule(row)
        case "policy rule":
            return f"`{json.loads(row['where'])!s}`".replace("\n", "\\n")
        case "statement":
            return _statement(row)
        case "presented":
            return str(row["certificate"])
        case "subscription":
            return _subscription(row)
        case "predicate":
            return f"`{row['target']}` with digest {row['digest']}"
        case "key":
            return str(row["key"])
        case "setting":
            return str(row["value"])
        case "advertisement":
            return str(row["type"])
        case "withdrawal":
            return str(row["from_version"])
        case _:
            return str(row["name"])


def _added(kind: str, row: Stored, text: str) -> str:
    match kind:
        case _ if kind in ROLE_KINDS:
            return role_added(kind, row, text)
        case "attribute":
            return f"`${row['name']}` of `{row['principal']}` is {text}"
        case "group" | "relation":
            return f"{kind} `{row['name']}` declared{', open' if row['open'] else ''}"
        case "member":
            return f"`{row['member']}` joined group `{row['group']}`"
        case "row":
            return f"{text} joined relation `{row['relation']}`"
        case "subscription":
            return f"subscription `{row['id']}` began: {text}"
        case "rule":
            return f"rule `{row['id']}` added: {text}"
        case "right":
            return f"by certificates of `{row['author']}`, {text}"
        case "policy rule":
            return f"the requirements of `{row['principal']}` must be narrower than {text}"
        case "statement":
            return text
        case "presented":
            return f"`{row['principal']}` presented the certificate `{text}`"
        case "predicate":
            return f"predicate `{row['name']}` registered: {text}"
        case "type":
            return f"type `{row['name']}` declared: {text}"
        case "key":
            return f"`{row['principal']}` proves itself with {text}"
        case "setting" if row["name"] == "coordinator":
            return f"the network is coordinated by {text}"
        case "setting" if row["name"] == "network":
            return f"the network is called `{text}`"
        case "setting" if row["name"] == "names":
            return "new names may look like others, and mix scripts"
        case "setting" if row["name"].startswith(schema.PRIVATE):
            return f"the attribute `{row['name']}` of principals is private"
        case "setting":
            return "every principal may connect that no rule stops"
        case "advertisement":
            return f"`{row['principal']}` advertises `{row['type']}`"
        case "withdrawal":
            return f"what `{row['principal']}` had not fetched by version {text} was withdrawn"
        case _:
            return f"{kind} `{row['name']}` declared"


def _removed(kind: str, row: Stored, text: str) -> str:
    match kind:
        case _ if kind in ROLE_KINDS:
            return role_removed(kind, row, text)
        case "attribute":
            return f"`${row['name']}` of `{row['principal']}` is gone; it was {text}"
        case "member":
            return f"`{row['member']}` left group `{row['group']}`"
        case "row":
            return f"{text} left relation `{row['relation']}`"
        case "subscription":
            return f"subscription `{row['id']}` ended: {text}"
        case "rule":
            return f"rule `{row['id']}` removed: {text}"
        case "right":
            return f"no longer by certificates of `{row['author']}`: {text}"
        case "policy rule":
            return f"`{row['principal']}` has no policy rule any more; it was {text}"
        case "statement":
            return f"gone: {text}"
        case "presented":
            return f"the certificate `{text}` of `{row['principal']}` counts no more"
        case "key":
            return f"`{row['principal']}` has no key any more; it was {text}"
        case "setting" if row["name"] == "coordinator":
            return "this domain coordinates the network itself"
        case "setting" if row["name"] == "network":
            return f"the network has no name any more; it was `{text}`"
        case "setting" if row["name"] == "names":
            return "new names may no longer look like others, nor mix scripts"
        case "setting" if row["name"].startswith(schema.PRIVATE):
            return f"the attribute `{row['name']}` of principals is no longer private"
        case "setting":
            return "only principals that a rule lets in may connect"
        case "advertisement":
            return f"`{row['principal']}` no longer advertises `{row['type']}`"
        case "withdrawal":
            return f"the withdrawal from `{row['principal']}` is over"
        case _:
            return f"{kind} `{row['name']}` removed"


def _changed(kind: str, before: Stored, row: Stored, old: str, new: str) -> str:
    match kind:
        case _ if kind in ROLE_KINDS:
            return role_changed(kind, before, row, old, new)
        case "attribute":
            return f"`${row['name']}` of `{row['principal']}` went from {old} to {new}"
        case "group" | "relation":
            return f"{kind} `{row['name']}` is now {new}"
        case "key":
            return f"`{row['principal']}` has a new key, {new}; it was {old}"
        case "withdrawal":
            return f"what `{row['principal']}` had not fetched by version {new} was withdrawn"
        case "type" if codec.type_of(row).retired:
            return f"type `{row['name']}` removed"
        case _:
            return f"{kind} `{_name(kind, row)}` changed: {old}; now: {new}"


def _again(kind: str, before: Stored, after: Stored) -> str | None:
    if kind == "rule" and before["rank"] != after["rank"]:
        return f"rule `{after['id']}` moved {'up' if after['rank'] < before['rank'] else 'down'}"
    if kind == "subscription" and before["from_version"] != after["from_version"]:
        return f"subscription `{after['id']}` of `{after['principal']}` ended and began again"
    return role_again(kind, before, after)


def _value(value: object) -> str:
    text = render_operand(Constant(value))  # type: ignore[arg-type]
    return text.replace("\n", "\\n")


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
    who = f"`{rule.who}`" if rule.role is None else role_of_rule(row["role"])
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
    return render_condition(condition).replace("\n", "\\n")


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
