"""What stands of signed statements, as rows, and back.

Guarantees: what is decoded is what was encoded, kinds and conditions included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from headgate.ledger.codec import Columns, Stored, decoding, dump, dump_condition, from_json, load_condition, to_json
from headgate.model.authority import (
    Attested,
    AttestedRule,
    AttributeMap,
    Authority,
    Certificate,
    Identity,
    Issuing,
    NetworkAuthority,
    Provider,
    RevocationList,
    Succession,
    TypeAuthority,
    Validity,
)
from headgate.model.rights import Action
from headgate.model.state import State
from headgate.model.values import micros, moment

Statement: TypeAlias = Certificate | RevocationList | Succession | Provider | Attested | AttestedRule | Issuing

CERTIFICATE: Final = "certificate"
LIST: Final = "list"
SUCCESSION: Final = "succession"
PROVIDER: Final = "provider"
IDENTITY: Final = "identity"
POLICY_RULE: Final = "policy rule"
ISSUING: Final = "issuing"


def held(state: State) -> dict[tuple[str, str], Statement]:
    """Every statement of a state, by kind and id."""
    return {
        **{(CERTIFICATE, key): one for key, one in state.certificates.items()},
        **{(LIST, key): one for key, one in state.lists.items()},
        **{(SUCCESSION, key): one for key, one in state.successions.items()},
        **{(PROVIDER, key): one for key, one in state.providers.items()},
        **{(IDENTITY, key): one for key, one in state.identities.items()},
        **{(POLICY_RULE, one.key): one for every in state.attested_rules.values() for one in every},
        **{(ISSUING, key): one for key, one in state.issuing.items()},
    }


def statement_columns(kind: str, id: str, one: Statement) -> Columns:
    """A statement as a row."""
    return {"kind": kind, "id": id, "content": dump(_content(one))}


def statement_of(row: Stored) -> Statement:
    """The inverse of `statement_columns`."""
    with decoding(row["kind"], row["id"]):
        found = json.loads(row["content"])
        match row["kind"]:
            case "certificate":
                return _certificate(found)
            case "list":
                revoked = frozenset(found["revoked"])
                return RevocationList(found["issuer"], found["number"], moment(found["issued"]), revoked)
            case "succession":
                return Succession(found["old"], found["new"], found["number"], _time(found["until"]))
            case "provider":
                return _provider(found)
            case "identity":
                return Attested(found["principal"], _identity(found), frozenset(found["applied"]))
            case "policy rule":
                rule = load_condition(found["rule"])
                return AttestedRule(found["principal"], found["provider"], moment(found["began"]), rule)
            case "issuing":
                authority = tuple(map(_authority, found["authority"]))
                return Issuing(found["id"], found["who"], authority, found["seconds"], found["delegate"])
            case other:
                raise ValueError(f"there are no statements of kind `{other}`")


def _content(one: Statement) -> Mapping[str, object]:
    match one:
        case Certificate():
            return {
                "id": one.id,
                "issuer": one.issuer,
                "subject": one.subject,
                "delegate": one.delegate,
                "authority": [_authority_content(a) for a in one.authority],
                "freshness": one.freshness,
                **_validity_content(one.validity),
            }
        case RevocationList():
            return {
                "issuer": one.issuer,
                "number": one.number,
                "issued": micros(one.issued),
                "revoked": sorted(one.revoked),
            }
        case Succession():
            return {"old": one.old, "new": one.new, "number": one.number, "until": _micros(one.until)}
        case Provider(key, name, mapping, own):
            mapped = None if mapping is None else [_map_content(each) for each in mapping]
            return {"key": key, "name": name, "mapping": mapped, "own": own}
        case Attested(principal, identity, applied):
            rule = identity.policy_rule
            return {
                "principal": principal,
                "applied": sorted(applied),
                "id": identity.id,
                "issuer": identity.issuer,
                "subject": identity.subject,
                "attributes": [[name, to_json(value)] for name, value in identity.attributes.items()],
                "policy_rule": None if rule is None else dump_condition(rule),
                "guest_of": identity.guest_of,
                "origin": identity.origin,
                **_validity_content(identity.validity),
            }
        case AttestedRule(principal, provider, began, limit):
            return {
                "principal": principal,
                "provider": provider,
                "began": micros(began),
                "rule": dump_condition(limit),
            }
        case Issuing():
            return {
                "id": one.id,
                "who": one.who,
                "seconds": one.seconds,
                "delegate": one.delegate,
                "authority": [_authority_content(a) for a in one.authority],
            }


def _certificate(found: Mapping[str, Any]) -> Certificate:
    authority = tuple(map(_authority, found["authority"]))
    return Certificate(
        found["id"],
        found["issuer"],
        found["subject"],
        authority,
        found["delegate"],
        _validity(found),
        found["freshness"],
    )


def _identity(found: Mapping[str, Any]) -> Identity:
    rule = found["policy_rule"]
    return Identity(
        found["id"],
        found["issuer"],
        found["subject"],
        {name: from_json(value) for name, value in found["attributes"]},
        _validity(found),
        None if rule is None else load_condition(rule),
        found["guest_of"],
        found["origin"],
    )


def _provider(found: Mapping[str, Any]) -> Provider:
    mapping = found["mapping"]
    return Provider(found["key"], found["name"], None if mapping is None else tuple(map(_map, mapping)), found["own"])


def _map_content(one: AttributeMap) -> list[object]:
    values = None if one.values is None else [[to_json(theirs), to_json(ours)] for theirs, ours in one.values]
    return [one.name, one.to, values]


def _map(found: list[Any]) -> AttributeMap:
    name, to, values = found
    pairs = None if values is None else tuple((from_json(theirs), from_json(ours)) for theirs, ours in values)
    return AttributeMap(name, to, pairs)


def _authority_content(one: Authority) -> Mapping[str, object]:
    actions = sorted(action.value for action in one.actions)
    match one:
        case NetworkAuthority(_, network):
            return {"network": network, "actions": actions}
        case TypeAuthority():
            return {
                "type": one.type,
                "owner": one.owner,
                "actions": actions,
                "attributes": None if one.attributes is None else list(one.attributes),
                "forced": [[name, to_json(value)] for name, value in one.forced.items()],
                "where": dump_condition(one.where),
            }


def _authority(found: Mapping[str, Any]) -> Authority:
    actions = frozenset(map(Action, found["actions"]))
    if "network" in found:
        return NetworkAuthority(actions, found["network"])
    attributes = found["attributes"]
    return TypeAuthority(
        actions,
        found["type"],
        found["owner"],
        None if attributes is None else tuple(attributes),
        {name: from_json(value) for name, value in found["forced"]},
        load_condition(found["where"]),
    )


def _validity_content(validity: Validity) -> Mapping[str, object]:
    return {"start": _micros(validity.start), "until": _micros(validity.until)}


def _validity(found: Mapping[str, Any]) -> Validity:
    return Validity(_time(found["start"]), _time(found["until"]))


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def _time(at: int | None) -> datetime | None:
    return None if at is None else moment(at)
