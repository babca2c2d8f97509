"""What a step changes, as the operations of a batch over HTTP.

Guarantees: expressions go as the file writes them, so that the gateway reads them; the order is that of the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from headgate.gateway.http.change_requests import ANY
from headgate.lang import render_condition
from headgate.model.changes import (
    AddMember,
    AddRow,
    Change,
    DeclareType,
    RemoveMember,
    RemoveRow,
    RetireType,
    SetAttribute,
    SetPolicyRule,
)
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.protocol import messages as wire
from headgate.scenario.format.story import ChangeStep, RuleText


def operations_of(step: ChangeStep, state: State) -> list[dict[str, Any]]:
    """A change of policy: rules that are in force removed, then facts, then rolefiles, then rules added."""
    in_force = {rule.id for rule in state.rules}
    ops: list[wire.ChangeOp] = [wire.RemoveRuleOp(id) for id in dict.fromkeys(step.remove) if id in in_force]
    ops += facts(step.changes)
    ops += [wire.SetRolefileOp(rolefile.service, rolefile.text) for rolefile in step.roles]
    ops += [wire.AddRuleOp(_rule(rule)) for rule in step.add]
    return encoded(ops)


def encoded(ops: Iterable[wire.ChangeOp]) -> list[dict[str, Any]]:
    """Operations as a client sends them."""
    return [msgspec.to_builtins(op) for op in ops]


def facts(changes: Iterable[Change]) -> Iterator[wire.ChangeOp]:
    """Changes of members, rows, attributes, policy rules and types."""
    for change in changes:
        match change:
            case AddMember(group, member, value):
                yield wire.AddMemberOp(group, member, value)
            case RemoveMember(group, member, value):
                yield wire.RemoveMemberOp(group, member, value)
            case AddRow(relation, row):
                yield wire.AddRowOp(relation, _scalars(row))
            case RemoveRow(relation, row):
                yield wire.RemoveRowOp(relation, _scalars(row))
            case SetAttribute(principal, name, value):
                yield wire.SetAttributeOp(principal, name, _scalar(value))
            case SetPolicyRule(principal, rule):
                yield wire.SetPolicyRuleOp(principal, None if rule is None else render_condition(rule))
            case DeclareType(declared):
                yield wire.DeclareTypeOp(declared.name, _type(declared))
            case RetireType(name):
                yield wire.RetireTypeOp(name)
            case _:
                raise AssertionError(f"no step makes a change of the kind {type(change).__name__}")


def _rule(rule: RuleText) -> wire.RuleBody:
    attributes: list[str] | dict[str, wire.Scalar] | None = None
    if rule.attributes is not None:
        attributes = list(rule.attributes)
        if rule.forced:
            attributes = {name: _scalar(rule.forced.get(name, ANY)) for name in rule.attributes}
    return wire.RuleBody(
        id=rule.id,
        may=sorted(action.value for action in rule.actions),
        type=rule.type,
        where=rule.where,
        attributes=attributes,
        effect=rule.effect.value,
        disclose=rule.disclose,
        first=rule.first,
        who=None if rule.role is not None else rule.who,
        role=rule.role,
        attested=rule.attested,
    )


def _type(declared: EventType) -> wire.TypeRequest:
    kinds: Any = {name: kind.value for name, kind in declared.attributes.items()}
    return wire.TypeRequest(attributes=kinds, extends=declared.parent, key=list(declared.key), owner=declared.owner)


def _scalars(row: Iterable[object]) -> list[wire.Scalar]:
    return [_scalar(value) for value in row]


def _scalar(value: object) -> wire.Scalar:
    """A value as JSON has it; the file has no others."""
    assert value is None or isinstance(value, bool | int | float | str), "what a file writes is plain"
    return value
