"""What stands of signed statements, as the ledger keeps it and tells it.

Guarantees: what is decoded is what was encoded, kinds and conditions included. Each kind is a collection of its own
(`collection`), and all are rows of one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, TypeVar

from headgate.lang.render import render_condition
from headgate.ledger.codec import (
    ACTIONS,
    CONDITION,
    NAMES,
    PLAIN,
    TIME,
    VALUE,
    VALUES,
    RowForm,
    each,
    maybe,
    packed,
    record,
    value_in,
)
from headgate.ledger.collection import Collection, Rows, Words, facts, line, mapped, nested
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
from headgate.model.state import State

T = TypeVar("T")


def _inline(make: Callable[..., T], **fields: RowForm[Any]) -> RowForm[T]:
    return replace(record(make, **fields), inline=True)


_VALIDITY: Final = _inline(Validity, start=maybe(TIME), until=maybe(TIME))
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


_PAIRS: Final = maybe(each(each(VALUE)))
_MAP: Final[RowForm[AttributeMap]] = RowForm(
    lambda one: [one.name, one.to, _PAIRS.dump(one.values)],
    lambda data: AttributeMap(data[0], data[1], _PAIRS.load(data[2])),  # type: ignore[arg-type]
)
_IDENTITY: Final = _inline(
    Identity,
    id=PLAIN,
    issuer=PLAIN,
    subject=PLAIN,
    attributes=VALUES,
    policy_rule=maybe(CONDITION),
    guest_of=PLAIN,
    origin=PLAIN,
    validity=_VALIDITY,
)


def _content(make: type, **fields: RowForm[Any]) -> RowForm[Any]:
    return packed(make, "content", {}, **fields)


_FORMS: Final[Mapping[str, RowForm[Any]]] = {
    "certificate": _content(
        Certificate,
        id=PLAIN,
        issuer=PLAIN,
        subject=PLAIN,
        delegate=PLAIN,
        authority=each(_AUTHORITY),
        freshness=PLAIN,
        validity=_VALIDITY,
    ),
    "list": _content(RevocationList, issuer=PLAIN, number=PLAIN, issued=TIME, revoked=NAMES),
    "succession": _content(Succession, old=PLAIN, new=PLAIN, number=PLAIN, until=maybe(TIME)),
    "provider": _content(Provider, key=PLAIN, name=PLAIN, mapping=maybe(each(_MAP)), own=PLAIN),
    "identity": _content(Attested, principal=PLAIN, applied=NAMES, identity=_IDENTITY),
    "policy rule": _content(AttestedRule, principal=PLAIN, provider=PLAIN, began=TIME, rule=CONDITION),
    "issuing": _content(Issuing, id=PLAIN, who=PLAIN, seconds=PLAIN, delegate=PLAIN, authority=each(_AUTHORITY)),
}

_STATEMENTS: Final = facts("statements", ("kind", "id"), {"content": PLAIN})


def _text(statement: object) -> str:
    match statement:
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
            condition = line(render_condition(rule))
            return f"`{provider}` attests that requirements of `{principal}` are narrower than `{condition}`"
        case Issuing(id, who, _, seconds, _):
            return f"issuing rule `{id}` for `{who}`, {seconds} s each time"
        case _:
            raise AssertionError("there are no other statements")


_WORDS: Final = Words(kind="statement", name="{kind} {id}", text=_text, added="{said}", removed="gone: {said}")


def _kind(kind: str, field: str, **more: Any) -> Collection:
    options = {"what": kind, "kind": kind, "words": _WORDS, "decides": False, "comes_by": "statements"}
    return mapped(_STATEMENTS, _FORMS[kind], field, **options, **more)


def _read_attested(state: State, rows: Rows) -> State:
    rules: dict[str, tuple[AttestedRule, ...]] = {}
    for rule in sorted(map(_ATTESTED.fact_of, rows), key=attrgetter("provider")):
        rules[rule.principal] = (*rules.get(rule.principal, ()), rule)
    return replace(state, attested_rules=rules)


# Several of one principal, by the key of each.
_ATTESTED: Final = _kind(
    "policy rule",
    "attested_rules",
    row=lambda _, __, rule: {"kind": "policy rule", "id": rule.key, **_FORMS["policy rule"].dump(rule)},
    read=_read_attested,
    follow=None,
    many=True,
)
STATEMENTS: Final = (
    _kind("certificate", "certificates"),
    _kind("list", "lists"),
    _kind("succession", "successions"),
    _kind("provider", "providers"),
    _kind("identity", "identities"),
    _ATTESTED,
    _kind("issuing", "issuing"),
    # Who has presented which certificates, in the order of the rows.
    nested(
        facts("bags", ("principal", "certificate"), {}),
        value_in("certificate"),
        "bags",
        tuple,
        declared=False,
        ordered=True,
        words=Words(
            kind="presented",
            added="`{principal}` presented the certificate `{said}`",
            removed="the certificate `{said}` of `{principal}` counts no more",
        ),
        decides=False,
        authored=False,
        comes_by="statements",
    ),
)
