"""What stands of signed statements, as rows, and back.

Guarantees: what is decoded is what was encoded, kinds and conditions included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from headgate.ledger.codec import (
    ACTIONS,
    CONDITION,
    NAMES,
    PLAIN,
    TIME,
    VALUES,
    Columns,
    RowForm,
    Stored,
    decoding,
    dump,
    each,
    from_json,
    maybe,
    record,
    to_json,
)
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

Statement: TypeAlias = Certificate | RevocationList | Succession | Provider | Attested | AttestedRule | Issuing

CERTIFICATE: Final = "certificate"
LIST: Final = "list"
SUCCESSION: Final = "succession"
PROVIDER: Final = "provider"
IDENTITY: Final = "identity"
POLICY_RULE: Final = "policy rule"
ISSUING: Final = "issuing"

_VALIDITY: Final = record(Validity, inline=True, start=maybe(TIME), until=maybe(TIME))
_NETWORK: Final = record(NetworkAuthority, network=PLAIN, actions=ACTIONS)
_TYPES: Final = record(
    TypeAuthority,
    type=PLAIN,
    owner=PLAIN,
    actions=ACTIONS,
    attributes=maybe(each(PLAIN)),
    forced=VALUES,
    where=CONDITION,
)
_AUTHORITY: Final[RowForm[Authority]] = RowForm(
    lambda one: _NETWORK.dump(one) if isinstance(one, NetworkAuthority) else _TYPES.dump(one),
    lambda data: _NETWORK.load(data) if "network" in data else _TYPES.load(data),
)


def _map_content(one: AttributeMap) -> list[object]:
    values = None if one.values is None else [[to_json(theirs), to_json(ours)] for theirs, ours in one.values]
    return [one.name, one.to, values]


def _map(found: list[Any]) -> AttributeMap:
    name, to, values = found
    pairs = None if values is None else tuple((from_json(theirs), from_json(ours)) for theirs, ours in values)
    return AttributeMap(name, to, pairs)


_IDENTITY: Final = record(
    Identity,
    inline=True,
    id=PLAIN,
    issuer=PLAIN,
    subject=PLAIN,
    attributes=VALUES,
    policy_rule=maybe(CONDITION),
    guest_of=PLAIN,
    origin=PLAIN,
    validity=_VALIDITY,
)

_FORMS: Final[Mapping[str, RowForm[Any]]] = {
    CERTIFICATE: record(
        Certificate,
        id=PLAIN,
        issuer=PLAIN,
        subject=PLAIN,
        delegate=PLAIN,
        authority=each(_AUTHORITY),
        freshness=PLAIN,
        validity=_VALIDITY,
    ),
    LIST: record(RevocationList, issuer=PLAIN, number=PLAIN, issued=TIME, revoked=NAMES),
    SUCCESSION: record(Succession, old=PLAIN, new=PLAIN, number=PLAIN, until=maybe(TIME)),
    PROVIDER: record(Provider, key=PLAIN, name=PLAIN, mapping=maybe(each(RowForm(_map_content, _map))), own=PLAIN),
    IDENTITY: record(Attested, principal=PLAIN, applied=NAMES, identity=_IDENTITY),
    POLICY_RULE: record(AttestedRule, principal=PLAIN, provider=PLAIN, began=TIME, rule=CONDITION),
    ISSUING: record(Issuing, id=PLAIN, who=PLAIN, seconds=PLAIN, delegate=PLAIN, authority=each(_AUTHORITY)),
}


def statement_columns(kind: str, id: str, one: Statement) -> Columns:
    """A statement as a row."""
    return {"kind": kind, "id": id, "content": dump(_FORMS[kind].dump(one))}


def statement_of(row: Stored) -> Statement:
    """The inverse of `statement_columns`."""
    with decoding(row["kind"], row["id"]):
        statement: Statement = _FORMS[row["kind"]].load(json.loads(row["content"]))
        return statement
