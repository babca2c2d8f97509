"""What stands of signed statements, as the ledger keeps it and tells it.

Guarantees: what is decoded is what was encoded, kinds and conditions included. Each kind is a collection of its own
(`collection`), and all are rows of one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from headgate.lang.render import render_condition
from headgate.ledger.codec import FORMS, PLAIN, VALUE, RowForm, each, maybe, packed, record, value_in
from headgate.ledger.collection import Collection, Rows, Words, facts, line, mapped, nested
from headgate.model import authority
from headgate.model.authority import AttestedRule
from headgate.model.state import State

_NETWORK: Final[RowForm[Any]] = record(authority.NetworkAuthority, "network actions")
_TYPES: Final[RowForm[Any]] = record(authority.TypeAuthority, "type owner actions attributes forced where")
_PAIRS: Final = maybe(each(each(VALUE)))
FORMS.update(
    {
        authority.Authority: RowForm(
            lambda one: (_NETWORK if isinstance(one, authority.NetworkAuthority) else _TYPES).dump(one),
            lambda data: (_NETWORK if "network" in data else _TYPES).load(data),
        ),
        authority.AttributeMap: RowForm(
            lambda one: [one.name, one.to, _PAIRS.dump(one.values)],
            lambda data: authority.AttributeMap(data[0], data[1], _PAIRS.load(data[2])),  # type: ignore[arg-type]
        ),
        authority.Validity: replace(record(authority.Validity, "start until"), inline=True),
    }
)
FORMS[authority.Identity] = replace(
    record(authority.Identity, "id issuer subject attributes policy_rule guest_of origin validity"), inline=True
)
_FORMS: Final[Mapping[str, RowForm[Any]]] = {
    kind: packed(make, "", "content", names)
    for kind, make, names in (
        ("certificate", authority.Certificate, "id issuer subject delegate authority freshness validity"),
        ("list", authority.RevocationList, "issuer number issued revoked"),
        ("succession", authority.Succession, "old new number until"),
        ("provider", authority.Provider, "key name mapping own"),
        ("identity", authority.Attested, "principal applied identity"),
        ("policy rule", AttestedRule, "principal provider began rule"),
        ("issuing", authority.Issuing, "id who seconds delegate authority"),
    )
}

_STATEMENTS: Final = facts("statements", ("kind", "id"), {"content": PLAIN})


def _text(statement: object) -> str:
    match statement:
        case authority.Certificate() as one:
            ends = "" if one.validity.until is None else f" until {one.validity.until.isoformat()}"
            return f"certificate `{one.id}` from `{one.issuer}` to `{one.subject}`{ends}"
        case authority.RevocationList(issuer, number, _, revoked):
            return f"revocation list {number} of `{issuer}`, {len(revoked)} revoked"
        case authority.Succession(old, new, _, until):
            ends = "" if until is None else f", and the old key counts until {until.isoformat()}"
            return f"`{old}` goes on as `{new}`{ends}"
        case authority.Provider(key, name, mapping):
            trusted = "identity provider" if mapping is None else "provider of guests"
            return f"{trusted} `{name}`, {key}"
        case authority.Attested(principal, identity, _):
            return f"`{identity.issuer}` attests {len(identity.attributes)} attributes of `{principal}`"
        case AttestedRule(principal, provider, _, rule):
            condition = line(render_condition(rule))
            return f"`{provider}` attests that requirements of `{principal}` are narrower than `{condition}`"
        case authority.Issuing(id, who, _, seconds, _):
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
