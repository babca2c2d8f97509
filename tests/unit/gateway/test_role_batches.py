"""Changes of roles and event policy, as clients send them in batches."""

from __future__ import annotations

import json

import msgspec
import pytest

from headgate.gateway.http.change_requests import changes_of
from headgate.lang.rolefile import parse_event_policy, parse_representative, parse_role, parse_rolefile
from headgate.model.changes import (
    AddRule,
    Change,
    RemovePeer,
    RemoveRepresentative,
    SetEventPolicy,
    SetPeer,
    SetRepresentative,
    SetRolefile,
)
from headgate.model.errors import BadDefinition, BadExpression, BadRequest, HeadgateError
from headgate.model.roles import Peer
from headgate.protocol import messages as wire

KEY = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"


def sent(*ops: dict[str, object]) -> tuple[Change, ...]:
    body = json.dumps({"changes": ops}).encode()
    return changes_of(msgspec.json.decode(body, type=wire.BatchRequest).changes, "administrator")


def rule(**more: object) -> dict[str, object]:
    return {"op": "add-rule", "rule": {"id": "r", "may": "subscribe", "type": "a.T", **more}}


@pytest.mark.parametrize(
    ("op", "change"),
    [
        (
            {"op": "set-rolefile", "service": "Club", "text": "Member(u) <- Login.On(u)"},
            SetRolefile("Club", parse_rolefile("Member(u) <- Login.On(u)")),
        ),
        ({"op": "set-rolefile", "service": "Club", "text": None}, SetRolefile("Club", None)),
        ({"op": "set-event-policy", "text": "Seen(u) <="}, SetEventPolicy(parse_event_policy("Seen(u) <="))),
        (
            {"op": "set-representative", "type": "b.Seen", "parameters": {"user": "Badge(badge)"}},
            SetRepresentative(parse_representative("b.Seen", {"user": "Badge(badge)"})),
        ),
        ({"op": "remove-representative", "type": "b.Seen"}, RemoveRepresentative("b.Seen")),
        (
            {"op": "set-peer", "name": "CL", "key": KEY, "service": "Login", "bound": 30, "url": "https://cl.example"},
            SetPeer(Peer("CL", KEY, "Login", 30, "https://cl.example")),
        ),
        ({"op": "remove-peer", "name": "CL"}, RemovePeer("CL")),
    ],
)
def test_each_is_the_change_that_it_says(op: dict[str, object], change: Change) -> None:
    assert sent(op) == (change,)


def test_a_rule_is_for_someone_or_for_a_role() -> None:
    (added,) = sent(rule(role="Met.Tracker(d, np)", where="plate = $np"))
    assert isinstance(added, AddRule)
    assert (added.rule.who, added.rule.role) == ("", parse_role("Met.Tracker(d, np)"))
    for both in ({}, {"who": "p", "role": "A.B"}):
        with pytest.raises(BadRequest, match="is for `who`, or for a `role`"):
            sent(rule(**both))


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (rule(role="A.B("), BadExpression),
        (rule(role="A.B(@time)"), BadDefinition),
        ({"op": "set-rolefile", "service": "Club", "text": "Member(u <-"}, BadExpression),
        ({"op": "set-event-policy", "text": "Seen(u)* <="}, BadExpression),
        ({"op": "set-peer", "name": "CL", "key": "nobody", "service": "Login", "bound": 30}, BadDefinition),
    ],
)
def test_what_is_wrong_is_refused_with_its_change(op: dict[str, object], error: type[HeadgateError]) -> None:
    with pytest.raises(error) as caught:
        sent(op)
    assert str(caught.value.place).startswith("change 1")


@pytest.mark.parametrize(
    "op",
    [
        {"op": "set-peer", "name": "CL", "key": KEY, "service": "Login", "bound": 0},
        {"op": "set-peer", "name": "CL", "key": KEY, "service": "Login"},
        {"op": "set-rolefile", "service": "Club"},
        {"op": "set-representative", "type": "b.Seen", "parameters": {"user": 3}},
        {"op": "remove-peer", "name": ""},
    ],
)
def test_what_the_protocol_does_not_have_does_not_decode(op: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        sent(op)
