"""From what clients send to changes of the ledger.

Guarantees: only shapes are translated; whether a change is allowed and well-formed is decided in `decide.apply`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from headgate.gateway import wire
from headgate.lang import parse_condition
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    RemoveMember,
    RemovePrincipal,
    RemoveRow,
    RemoveRule,
    RetireType,
    SetAttribute,
    SetKey,
    Withdraw,
)
from headgate.model.conditions import TRUE, Condition
from headgate.model.errors import HeadgateError
from headgate.model.rights import Action, Effect, Rule
from headgate.model.types import EventType
from headgate.model.values import Kind

ANY = "any"


def changes_of(ops: Sequence[wire.ChangeOp], author: str) -> tuple[Change, ...]:
    """The changes of a batch by an author."""
    found: list[Change] = []
    for at, op in enumerate(ops):
        try:
            found.extend(_changes(op, author))
        except HeadgateError as error:
            raise error.at(f"change {at + 1}") from None
    return tuple(found)


def _changes(op: wire.ChangeOp, author: str) -> Iterator[Change]:
    match op:
        case wire.AddRuleOp(rule):
            yield AddRule(rule_of(rule), rule.first)
        case wire.RemoveRuleOp(id):
            yield RemoveRule(id)
        case wire.AddMemberOp(group, member):
            yield AddMember(group, member)
        case wire.RemoveMemberOp(group, member):
            yield RemoveMember(group, member)
        case wire.AddRowOp(relation, row):
            yield AddRow(relation, tuple(row))
        case wire.RemoveRowOp(relation, row):
            yield RemoveRow(relation, tuple(row))
        case wire.SetAttributeOp(principal, name, value):
            yield SetAttribute(principal, name, value)
        case wire.DeclareTypeOp(name, body):
            yield DeclareType(type_of(name, body, author))
        case wire.RetireTypeOp(name):
            yield RetireType(name)
        case wire.DeclarePrincipalOp(name, key, attributes):
            yield DeclarePrincipal(name, attributes)
            if key is not None:
                yield SetKey(name, key)
        case wire.RemovePrincipalOp(name):
            yield RemovePrincipal(name)
        case wire.SetKeyOp(principal, key):
            yield SetKey(principal, key)
        case wire.DeclareGroupOp(name, is_open):
            yield DeclareGroup(name, is_open)
        case wire.WithdrawOp(principal):
            yield Withdraw(principal)
        case _:
            assert_never(op)


def rule_of(body: wire.RuleBody) -> Rule:
    """A rule as sent."""
    actions = body.may if isinstance(body.may, list) else [body.may]
    forced = {}
    if isinstance(body.attributes, dict):
        forced = {name: value for name, value in body.attributes.items() if value != ANY}
    return Rule(
        body.id,
        body.who,
        frozenset(Action(action) for action in actions),
        body.type,
        condition_of(body.where),
        None if body.attributes is None else tuple(body.attributes),
        forced,
        Effect(body.effect),
        body.disclose,
    )


def type_of(name: str, body: wire.TypeRequest, author: str) -> EventType:
    """An event type as sent; without an owner it is its author's."""
    attributes = {attribute: Kind(kind) for attribute, kind in body.attributes.items()}
    return EventType(name, body.owner or author, attributes, body.extends, tuple(body.key))


def condition_of(text: str | None) -> Condition:
    """A condition as sent; absent, it is true."""
    return TRUE if text is None else parse_condition(text)
