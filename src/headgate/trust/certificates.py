"""Authorisation certificates: the five-tuple of SPKI as a signed statement (Capabilities II.D, III).

Guarantees: `verify_certificate` is the only way from text to a `Certificate`. Delegation is false unless it is said. An
authority says neither more nor less than it is read as: an entry that is not understood refuses the whole.
Leaves out: whether the issuer had what it gives (`authority.chains`), and whether it took it back (`revocations`).

    {"network": "UK Police Network", "actions": ["connect", "install"]}
    {"type": "did:key:z6Mk.../uk.gov.pito.*", "actions": "*"}
    {"type": "uk.gov.pito.Numberplate", "actions": ["publish"], "where": "@rate < 100",
     "attributes": {"location": {"value": "Victoria"}, "numberplate": {"any": true}}}
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from headgate.model.authority import (
    ANY,
    NETWORK_ACTIONS,
    TYPE_ACTIONS,
    Authority,
    Certificate,
    NetworkAuthority,
    TypeAuthority,
    Validity,
)
from headgate.model.conditions import TRUE
from headgate.model.limits import MAX_ATTRIBUTES, MAX_AUTHORITIES, MAX_FRESHNESS_SECONDS
from headgate.model.rights import Action
from headgate.model.values import brief
from headgate.trust import claims as claim
from headgate.trust.keys import PrivateKey, Random
from headgate.trust.statements import (
    Form,
    Read,
    Verifier,
    audience_of,
    bad,
    check,
    check_issued,
    key_name,
    open_statement,
    read_through,
    sign,
    times_of,
)

FORM: Final = Form(
    "hg-cert+jwt",
    frozenset({"iss", "sub", "jti", "iat", "authority"}),
    frozenset({"nbf", "exp", "delegate", "freshness", "aud"}),
)
_OF_NETWORK: Final = frozenset({"network", "actions"})
_OF_TYPE: Final = frozenset({"type", "actions"})
_ACTIONS: Final = {action.value: action for action in NETWORK_ACTIONS | TYPE_ACTIONS}


def issue_certificate(
    issuer: PrivateKey,
    *,
    subject: str,
    authority: Sequence[Authority],
    now: datetime,
    delegate: bool = False,
    validity: Validity = Validity(),  # noqa: B008 - frozen
    freshness: int | None = None,
    audience: Sequence[str] = (),
    id: str | None = None,
    random: Random = secrets.token_bytes,
) -> str:
    """A certificate by this issuer. Times are written in whole seconds, rounded down."""
    claims = {
        "sub": subject,
        "jti": new_id(random) if id is None else id,
        **times_of(now, validity),
        **({"delegate": True} if delegate else {}),
        **({} if freshness is None else {"freshness": freshness}),
        **audience_of(audience),
        "authority": [_authority_to_json(one) for one in authority],
    }
    text = sign(issuer, FORM, claims)
    read_certificate(text)  # nothing leaves here that would be refused elsewhere
    return text


def verify_certificate(
    text: str,
    *,
    audience: str | None,
    now: datetime | None = None,
    shown: datetime | None = None,
    verifier: Verifier | None = None,
) -> Certificate:
    """The certificate of a text, issued by the time at which it is `shown`.

    Without `now` it may be over, or yet to begin: chains decide on that.
    """
    # 1. to 6. are those of `open_statement`; the claims are read in `read_certificate`; 7. and 8. those of `check`.
    read = read_through(verifier, text, read_certificate)
    if shown is not None:
        check_issued(read, shown)
    return check(read, audience=audience, now=now)


def read_certificate(text: str) -> Read[Certificate]:
    """What a certificate says, whoever it is for and whenever it is good."""
    signed = open_statement(text, FORM)
    claims = signed.claims
    validity = claim.validity(claims)
    certificate = Certificate(
        id=claim.identifier(claims["jti"], "jti"),
        issuer=signed.issuer,
        subject=key_name(claims["sub"], "sub"),
        authority=_authorities(claims["authority"]),
        delegate="delegate" in claims and claim.flag(claims["delegate"], "delegate"),
        validity=validity,
        freshness=_freshness(claims),
    )
    return Read(certificate, signed.digest, claim.time(claims["iat"], "iat"), validity, claim.audience(claims))


def new_id(random: Random = secrets.token_bytes) -> str:
    """An identifier that nobody guesses: 128 random bits, after a letter so that no command takes it for an option."""
    return "s" + urlsafe_b64encode(random(16)).rstrip(b"=").decode()


def _freshness(said: Mapping[str, Any]) -> int | None:
    return claim.whole(said["freshness"], "freshness", 1, MAX_FRESHNESS_SECONDS) if "freshness" in said else None


# -- authority ------------------------------------------------------------------------------------------------


def _authorities(given: object) -> tuple[Authority, ...]:
    return tuple(_authority(one) for one in claim.listed(given, "authority", 1, MAX_AUTHORITIES))


def _authority(given: object) -> Authority:
    fields = claim.mapped(given, "authority", MAX_AUTHORITIES)
    if "network" in fields:
        _check_entries(fields, _OF_NETWORK, frozenset())
        return NetworkAuthority(
            _actions(fields["actions"], NETWORK_ACTIONS), claim.plain_name(fields["network"], "network")
        )
    _check_entries(fields, _OF_TYPE, frozenset({"attributes", "where"}))
    owner, rest = claim.owned(fields["type"], "type")
    attributes, forced = _attributes(fields["attributes"]) if "attributes" in fields else (None, {})
    where = claim.condition(fields["where"], "where") if "where" in fields else TRUE
    return TypeAuthority(
        _actions(fields["actions"], TYPE_ACTIONS), claim.pattern(rest), owner, attributes, forced, where
    )


def _check_entries(said: Mapping[str, Any], required: Collection[str], optional: Collection[str]) -> None:
    if unknown := sorted(said.keys() - {*required, *optional}):
        raise bad("unknown-claim", f"an authority does not say `{brief(unknown[0])}`")
    if missing := sorted(set(required) - said.keys()):
        raise bad("missing-claim", f"an authority does not say its `{missing[0]}`")


def _actions(given: object, possible: frozenset[Action]) -> frozenset[Action]:
    if given == ANY:
        return possible
    actions = [claim.text(one, "actions") for one in claim.listed(given, "actions", 1, len(possible))]
    for one in actions:
        if _ACTIONS.get(one) not in possible:
            raise bad("bad-claim", f"`{brief(one)}` is no action here", ", ".join(sorted(a.value for a in possible)))
    if len(set(actions)) != len(actions):
        raise bad("bad-claim", "`actions` names one twice")
    return frozenset(_ACTIONS[one] for one in actions)


def _attributes(given: object) -> tuple[tuple[str, ...], dict[str, object]]:
    """Some attributes: a list of them, or an object that says of each whether its value is forced."""
    if type(given) is list:
        names = tuple(claim.attribute_name(one) for one in claim.listed(given, "attributes", 0, MAX_ATTRIBUTES))
        if len(set(names)) != len(names):
            raise bad("bad-claim", "`attributes` names one twice")
        return names, {}
    forced: dict[str, object] = {}
    each = claim.mapped(given, "attributes", MAX_ATTRIBUTES)
    for name, what in each.items():
        claim.attribute_name(name)
        if type(what) is dict and what.keys() == {"value"}:
            forced[name] = claim.value_of(what["value"], name)
        elif not (type(what) is dict and what.keys() == {"any"} and what["any"] is True):
            raise bad("bad-claim", f"`{brief(name)}` is neither of `any` value nor of one", "write `{'any': true}`")
    return tuple(each), forced


def _authority_to_json(authority: Authority) -> dict[str, object]:
    match authority:
        case NetworkAuthority(actions, network):
            return {"network": network, "actions": _actions_to_json(actions, NETWORK_ACTIONS)}
        case TypeAuthority(actions, pattern, owner, attributes, forced, where):
            fields: dict[str, object] = {
                "type": pattern if owner is None else f"{owner}/{pattern}",
                "actions": _actions_to_json(actions, TYPE_ACTIONS),
            }
            if forced and not forced.keys() <= set(attributes or ()):
                raise bad(
                    "bad-claim", "an authority forces an attribute that it does not name", "name it in `attributes`"
                )
            if attributes is not None:
                fields["attributes"] = _attributes_to_json(attributes, forced)
            if where != TRUE:
                fields["where"] = claim.condition_text(where, "where")
            return fields


def _actions_to_json(actions: frozenset[Action], possible: frozenset[Action]) -> object:
    return ANY if actions == possible else sorted(action.value for action in actions)


def _attributes_to_json(attributes: tuple[str, ...], forced: Mapping[str, object]) -> object:
    if not forced:
        return list(attributes)
    return {
        name: {"value": claim.value_to_json(forced[name])} if name in forced else {"any": True} for name in attributes
    }
