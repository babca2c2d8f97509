"""From what clients send to changes of the ledger.

Guarantees: only shapes are translated; whether a change is allowed and well-formed is decided in `decide.apply`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headgate.decide.apply import check_may_rule, may_install
from headgate.decide.check import check_role
from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_event_policy, parse_representative, parse_role, parse_rolefile
from headgate.model import authority as statements
from headgate.model import changes as ledger
from headgate.model.changes import Change
from headgate.model.errors import BadDefinition, BadKey, BadRequest, GovernDenied, HeadgateError
from headgate.model.expressions import TRUE, Condition
from headgate.model.limits import MAX_MAPPED
from headgate.model.rights import Action, Effect, Rule
from headgate.model.roles import Peer
from headgate.model.state import State
from headgate.model.types import EventType, Times, matches
from headgate.model.values import Kind, brief
from headgate.protocol import messages as wire
from headgate.trust.keys import PublicKey

ANY = "any"
_ADMINISTRATORS: Final = (
    *(wire.SetPolicyRuleOp, wire.SetRolefileOp, wire.SetEventPolicyOp, wire.SetRepresentativeOp, wire.AddIssuingOp),
)
"""The changes with expressions that only the administrator makes."""


def check_may_change(state: State, author: str, ops: Sequence[wire.ChangeOp]) -> None:
    """Refuse whoever may not make one of these changes, before any expression in them is read.

    Who owns a type that the same batch declares may write rules on it. Whatever passes is judged by `decide.apply`.
    """
    if author == state.administrator:
        return
    own = {op.name for op in ops if isinstance(op, wire.DeclareTypeOp) and may_install(state, author, op.name)}
    for at, op in enumerate(ops):
        if isinstance(op, _ADMINISTRATORS):
            raise GovernDenied(f"`{author}` does not govern the domain").at(f"change {at + 1}")
        if isinstance(op, wire.DeclareTypeOp) and op.name not in own:
            raise GovernDenied(f"`{author}` may not install the type `{brief(op.name)}`").at(f"change {at + 1}")
        if isinstance(op, wire.AddRuleOp) and not any(matches(op.rule.type, name) for name in own):
            try:
                check_may_rule(state, author, op.rule.type, frozenset(map(Action, _said(op.rule.may))))
            except GovernDenied as error:
                raise error.at(f"change {at + 1}") from None


def expression_chars(ops: Sequence[wire.ChangeOp]) -> int:
    """How many characters of expressions there are to read."""
    return sum(len(text) for op in ops for text in _texts(op) if text is not None)


def _texts(op: wire.ChangeOp) -> Iterator[str | None]:
    match op:
        case wire.AddRuleOp(rule):
            yield from (rule.where, rule.role)
        case wire.SetPolicyRuleOp(_, text) | wire.SetRolefileOp(_, text) | wire.SetEventPolicyOp(text):
            yield text
        case wire.SetRepresentativeOp(_, parameters):
            yield from parameters.values()
        case wire.AddIssuingOp():
            yield from (one.where for one in op.authority)


def changes_of(ops: Sequence[wire.ChangeOp], author: str) -> tuple[Change, ...]:
    """The changes of a batch by an author."""
    changes: list[Change] = []
    for at, op in enumerate(ops):
        try:
            changes.extend(_changes(op, author))
        except HeadgateError as error:
            raise error.at(f"change {at + 1}") from None
    return tuple(changes)


def _changes(op: wire.ChangeOp, author: str) -> Iterator[Change]:
    match op:
        case wire.AddRuleOp(rule):
            yield ledger.AddRule(rule_of(rule), rule.first)
        case wire.DeclareTypeOp(name, body):
            yield ledger.DeclareType(type_of(name, body, author))
        case wire.DeclarePrincipalOp(name, key, attributes):
            yield ledger.DeclarePrincipal(name, attributes)
            if key is not None:
                yield ledger.SetKey(name, key)
        case wire.SetPolicyRuleOp(principal, rule_text):
            yield ledger.SetPolicyRule(principal, None if rule_text is None else parse_condition(rule_text))
        case wire.SetCoordinatorOp(key):
            yield ledger.SetCoordinator(None if key is None else key_of(key))
        case wire.SetProviderOp(key, name, mapping):
            yield ledger.SetProvider(
                statements.Provider(key_of(key), name, None if mapping is None else mapping_of(mapping))
            )
        case wire.AddIssuingOp():
            authority = tuple(authority_of(one) for one in op.authority)
            yield ledger.AddIssuing(statements.Issuing(op.id, op.who, authority, op.seconds, op.delegate))
        case wire.SetRolefileOp(service, text):
            yield ledger.SetRolefile(service, None if text is None else parse_rolefile(text))
        case wire.SetPeerOp():
            yield ledger.SetPeer(Peer(op.name, key_of(op.key), op.service, op.bound, op.url))
        case wire.SetEventPolicyOp(text):
            yield ledger.SetEventPolicy(parse_event_policy(text))
        case wire.SetRepresentativeOp(type_name, parameters):
            yield ledger.SetRepresentative(parse_representative(type_name, parameters))
        case _:  # every other operation has the name and the members of its change
            kind = getattr(ledger, type(op).__name__.removesuffix("Op"))
            yield kind(*(tuple(one) if isinstance(one, list) else one for one in msgspec.structs.astuple(op)))


def rule_of(body: wire.RuleBody) -> Rule:
    """A rule as sent."""
    actions = _said(body.may)
    forced = _forced(body.attributes)
    if (body.who is None) == (body.role is None):
        raise BadRequest(f"the rule `{body.id}` is for `who`, or for a `role`", remedy="name one of the two")
    return Rule(
        body.id,
        body.who or "",
        frozenset(Action(action) for action in actions),
        body.type,
        condition_of(body.where),
        None if body.attributes is None else tuple(body.attributes),
        forced,
        Effect(body.effect),
        body.disclose,
        role=None if body.role is None else check_role(parse_role(body.role)),
        attested=body.attested,
    )


def _said(may: wire.ActionName | list[wire.ActionName]) -> list[wire.ActionName]:
    return may if isinstance(may, list) else [may]


def _forced(attributes: list[str] | dict[str, wire.Scalar] | None) -> dict[str, object]:
    """The attributes that must have a value."""
    if not isinstance(attributes, dict):
        return {}
    return {name: value for name, value in attributes.items() if value != ANY}


def authority_of(body: wire.AuthorityBody) -> statements.Authority:
    """What a certificate gives, as sent."""
    if (body.network is None) == (body.type is None):
        raise BadRequest("an authority is over a `network` or over a `type`", remedy="name one of the two")
    if body.network is not None:
        if body.owner is not None or body.where is not None or body.attributes is not None:
            raise BadRequest("authority over a network has no owner, condition or attributes", remedy="leave them out")
        return statements.NetworkAuthority(_actions(body, statements.NETWORK_ACTIONS), body.network)
    assert body.type is not None
    return statements.TypeAuthority(
        _actions(body, statements.TYPE_ACTIONS),
        body.type,
        None if body.owner is None else key_of(body.owner),
        None if body.attributes is None else tuple(body.attributes),
        _forced(body.attributes),
        condition_of(body.where),
    )


def _actions(body: wire.AuthorityBody, every: frozenset[Action]) -> frozenset[Action]:
    return every if body.actions == "*" else frozenset(Action(action) for action in body.actions)


def mapping_of(body: Mapping[str, wire.MapBody]) -> tuple[statements.AttributeMap, ...]:
    """How the attributes of guests are understood, as sent."""
    if sum(len(one.values or ()) + 1 for one in body.values()) > MAX_MAPPED:
        raise BadDefinition(f"the mapping has more pairs than MAX_MAPPED ({MAX_MAPPED})")
    if any(None in pair for one in body.values() for pair in one.values or ()):
        raise BadDefinition("null is no value of an attribute", remedy="leave the pair out")
    return tuple(
        statements.AttributeMap(name, one.to, None if one.values is None else tuple(one.values))
        for name, one in body.items()
    )


def key_of(did: str) -> str:
    """The name of a key, as sent."""
    try:
        return PublicKey.from_did(did).did
    except BadKey as error:
        raise BadDefinition(error.message, remedy=error.remedy) from None


def type_of(name: str, body: wire.TypeRequest, author: str) -> EventType:
    """An event type as sent; without an owner it is its author's."""
    attributes = {attribute: Kind(kind) for attribute, kind in body.attributes.items()}
    times = Times.said(body.times, body.lateness, body.ahead, body.clock_error)
    return EventType(
        name,
        body.owner or author,
        attributes,
        body.extends,
        tuple(body.key),
        times=times,
        derived=body.derived,
        declassified_for=frozenset(body.declassified_for),
    )


def condition_of(text: str | None) -> Condition:
    """A condition as sent; absent, it is true."""
    return TRUE if text is None else parse_condition(text)
