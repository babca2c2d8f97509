"""Facts of the model as columns, and back.

Guarantees: what is decoded is what was encoded, kinds included: `1`, `1.0`, `True` and `'1'` stay apart,
floats keep every bit, timestamps every microsecond. A condition or role that would not read back the same is
refused when it is written. What cannot be decoded is `damaged`.
Leaves out: the role book (`role_rows`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias

from headgate.lang import parse_condition, render_condition
from headgate.lang.render_roles import render_role
from headgate.lang.rolefile import parse_role
from headgate.model.changes import RegisterPredicate, Row
from headgate.model.conditions import Condition, RoleRef
from headgate.model.errors import BadDefinition, BadExpression, Damaged, HeadgateError
from headgate.model.rights import Action, Effect, Rule, Source, Subscription
from headgate.model.types import EventType
from headgate.model.values import Kind, Value, brief, micros, moment

Columns: TypeAlias = dict[str, Any]
Stored: TypeAlias = Mapping[Any, Any]
"""A row as the database gives it."""

PARSED: Final = 65_536
"""Distinct conditions, and distinct roles of rules, whose parsed form is kept."""


def dump(data: object) -> str:
    """JSON in ASCII, which every database stores whatever characters the text in it has."""
    return json.dumps(data, ensure_ascii=True, separators=(",", ":"))


@contextmanager
def decoding(what: str, name: object) -> Iterator[None]:
    """Whatever goes wrong while decoding a row means that the row is not what was written."""
    try:
        yield
    except Damaged:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, HeadgateError) as error:
        raise Damaged(f"the stored {what} `{brief(name)}` cannot be read: {error}") from error


# Values


def to_json(value: object) -> object:
    """A value with its kind: bool, int, text and null as JSON has them, the others tagged."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": value.hex()}
        case datetime() if value.tzinfo is not None:
            return {"timestamp": micros(value)}
        case bytes():
            return {"bytes": value.hex()}
        case _:
            raise BadDefinition(f"`{brief(value)}` is not a value that can be stored")


def from_json(data: object) -> Value:
    """The inverse of `to_json`."""
    match data:
        case None | bool() | int() | str():
            return data
        case {"float": str(text)}:
            return float.fromhex(text)
        case {"timestamp": int(microseconds)}:
            return moment(microseconds)
        case {"bytes": str(text)}:
            return bytes.fromhex(text)
        case _:
            raise ValueError(f"`{brief(data)}` is not a stored value")


def dump_value(value: Value) -> str:
    """One value as text."""
    return dump(to_json(value))


def load_value(text: str) -> Value:
    """The inverse of `dump_value`."""
    return from_json(json.loads(text))


def dump_row(row: Row) -> str:
    """A row of a relation as text."""
    return dump([to_json(value) for value in row])


def load_row(text: str) -> Row:
    """The inverse of `dump_row`."""
    return tuple(from_json(value) for value in json.loads(text))


def digest_of(text: str) -> str:
    """What stands for a long text in a key."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# Conditions


@lru_cache(maxsize=PARSED)
def load_condition(text: str) -> Condition:
    """The condition that `dump_condition` wrote."""
    return parse_condition(json.loads(text))


def dump_condition(condition: Condition) -> str:
    """A condition as text that reads back as the same condition."""
    # No cache here: Python takes `x = 1` and `x = true` for the same key.
    written = render_condition(condition)
    text = dump(written)
    if repr(load_condition(text)) != repr(condition):
        raise BadExpression(f"the condition `{brief(written)}` does not read back as it was given")
    return text


# Roles of rules


@lru_cache(maxsize=PARSED)
def load_role(text: str) -> RoleRef:
    """The role that `dump_role` wrote."""
    return parse_role(json.loads(text))


def dump_role(role: RoleRef) -> str:
    """The role of a rule as text that reads back as the same role."""
    written = render_role(role)
    text = dump(written)
    if load_role(text) != role:
        raise BadExpression(f"the role `{brief(written)}` does not read back as it was given")
    return text


# Facts


def type_columns(new: EventType) -> Columns:
    """An event type without its position."""
    attributes = [[name, kind.value] for name, kind in new.attributes.items()]
    definition = {
        "owner": new.owner,
        "parent": new.parent,
        "key": list(new.key),
        "attributes": attributes,
        "bits": dict(new.bits),
        "since": dict(new.since),
        "retired": new.retired,
    }
    return {"name": new.name, "definition": dump(definition)}


def type_of(row: Stored) -> EventType:
    """The inverse of `type_columns`."""
    with decoding("type", row["name"]):
        found = json.loads(row["definition"])
        attributes = {name: Kind(kind) for name, kind in found["attributes"]}
        return EventType(
            row["name"],
            found["owner"],
            attributes,
            found["parent"],
            tuple(found["key"]),
            found["bits"],
            found["since"],
            found["retired"],
        )


def rule_columns(rule: Rule) -> Columns:
    """A rule without its rank."""
    return {
        "id": rule.id,
        "who": rule.who,
        "actions": dump(sorted(action.value for action in rule.actions)),
        "type": rule.type,
        "where": dump_condition(rule.where),
        "attributes": None if rule.attributes is None else dump(list(rule.attributes)),
        "forced": dump([[name, to_json(value)] for name, value in rule.forced.items()]),
        "effect": rule.effect.value,
        "disclose": rule.disclose,
        "author": rule.author,
        "role": None if rule.role is None else dump_role(rule.role),
        "attested": rule.attested,
    }


def rule_of(row: Stored, source: Source = Source.RULE) -> Rule:
    """The inverse of `rule_columns`."""
    with decoding("rule", row["id"]):
        attributes = row["attributes"]
        return Rule(
            id=row["id"],
            who=row["who"],
            actions=frozenset(Action(action) for action in json.loads(row["actions"])),
            type=row["type"],
            where=load_condition(row["where"]),
            attributes=None if attributes is None else tuple(json.loads(attributes)),
            forced={name: from_json(value) for name, value in json.loads(row["forced"])},
            effect=Effect(row["effect"]),
            disclose=row["disclose"],
            author=row["author"],
            source=source,
            role=None if row["role"] is None else load_role(row["role"]),
            attested=bool(row["attested"]),
        )


def subscription_columns(subscription: Subscription) -> Columns:
    """A subscription; its `first` is the version that its row begins at."""
    return {
        "id": subscription.id,
        "principal": subscription.principal,
        "type": subscription.type,
        "where": dump_condition(subscription.where),
        "history": subscription.history,
        "since_version": subscription.since_version,
        "since_time": None if subscription.since_time is None else micros(subscription.since_time),
        "requires": None if subscription.requires is None else dump_condition(subscription.requires),
        "origin": subscription.origin,
        "counted": None if subscription.counted is None else dump(subscription.counted),
    }


def subscription_of(row: Stored) -> Subscription:
    """The inverse of `subscription_columns`."""
    with decoding("subscription", row["id"]):
        return Subscription(
            id=row["id"],
            principal=row["principal"],
            type=row["type"],
            where=load_condition(row["where"]),
            history=row["history"],
            first=row["from_version"],
            since_version=row["since_version"],
            since_time=None if row["since_time"] is None else moment(row["since_time"]),
            requires=None if row["requires"] is None else load_condition(row["requires"]),
            origin=row["origin"],
            counted=None if row["counted"] is None else tuple(json.loads(row["counted"])),
        )


def predicate_columns(predicate: RegisterPredicate) -> Columns:
    """A registered predicate."""
    return {"name": predicate.name, "target": predicate.target, "digest": predicate.digest}


def predicate_of(row: Stored) -> RegisterPredicate:
    """The inverse of `predicate_columns`."""
    return RegisterPredicate(row["name"], row["target"], row["digest"])
