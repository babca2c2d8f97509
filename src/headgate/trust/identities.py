"""Identity statements: what an identity provider says of a subject, for a short time (Guard IV).

Guarantees: `verify_identity` is the only way from text to an `Identity`. A statement is good for MAX_IDENTITY_HOURS at
most, so that it need not be revoked; its attributes keep their kinds, and its policy rule speaks of subjects alone. A
statement about another provider is of another form, so that no member can speak for a community.
Leaves out: which providers are believed (`ledger`); guests and statements between providers (`guests`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from headgate.model.authority import Identity, Validity
from headgate.model.conditions import Condition
from headgate.model.limits import MAX_ATTRIBUTES, MAX_IDENTITY_HOURS
from headgate.model.values import Value
from headgate.trust import claims as claim
from headgate.trust.certificates import new_id
from headgate.trust.keys import PrivateKey, Random
from headgate.trust.statements import (
    Form,
    Read,
    Verifier,
    audience_of,
    bad,
    check,
    key_name,
    open_statement,
    read_through,
    sign,
    times_of,
)

TYPE: Final = "hg-identity+jwt"
GUEST: Final = frozenset({"guest_of", "origin", "mapping"})
"""What a statement about a guest says besides: the provider at home, its statement, and how it was understood."""
FORM: Final = Form(
    TYPE,
    frozenset({"iss", "sub", "jti", "iat", "nbf", "exp", "attributes"}),
    frozenset({"policy_rule", "aud"}) | GUEST,
)
LONGEST: Final = timedelta(hours=MAX_IDENTITY_HOURS)


def issue_identity(
    provider: PrivateKey,
    *,
    subject: str,
    attributes: Mapping[str, Value],
    validity: Validity,
    now: datetime,
    policy_rule: Condition | None = None,
    audience: Sequence[str] = (),
    id: str | None = None,
    random: Random = secrets.token_bytes,
) -> str:
    """A statement about a member of the provider's community."""
    return sign_identity(
        provider,
        {
            "sub": subject,
            "jti": new_id(random) if id is None else id,
            **times_of(now, validity),
            **audience_of(audience),
        },
        attributes,
        policy_rule,
    )


def sign_identity(
    provider: PrivateKey,
    fields: Mapping[str, object],
    attributes: Mapping[str, Value],
    policy_rule: Condition | None,
) -> str:
    """A statement with these attributes and this rule, besides what else it says."""
    claims = {**fields, "attributes": {name: claim.value_to_json(value) for name, value in attributes.items()}}
    if policy_rule is not None:
        claims["policy_rule"] = claim.condition_text(policy_rule, "policy_rule")
    if missing := FORM.required - claims.keys() - {"iss"}:
        raise bad("missing-claim", f"the statement does not say `{min(missing)}`", "let it begin and end")
    text = sign(provider, FORM, claims)
    read_identity(text)  # nothing leaves here that would be refused elsewhere
    return text


def verify_identity(
    text: str, *, audience: str | None, now: datetime | None = None, verifier: Verifier | None = None
) -> Identity:
    """The identity of a text, whoever its provider is."""
    return check(read_through(verifier, text, read_identity), audience=audience, now=now)


def read_identity(text: str) -> Read[Identity]:
    """What a statement says, whoever it is for and whenever it is good."""
    signed = open_statement(text, FORM)
    claims = signed.claims
    validity = short(claims)
    guest_of, origin = _guest(claims, signed.issuer)
    identity = Identity(
        id=claim.identifier(claims["jti"], "jti"),
        issuer=signed.issuer,
        subject=key_name(claims["sub"], "sub"),
        attributes=_attributes(claims["attributes"]),
        validity=validity,
        policy_rule=claim.policy_rule(claims["policy_rule"]) if "policy_rule" in claims else None,
        guest_of=guest_of,
        origin=origin,
    )
    return Read(identity, signed.digest, claim.time(claims["iat"], "iat"), validity, claim.audience(claims))


def short(claims: Mapping[str, Any]) -> Validity:
    """The validity of a statement that need not be revoked."""
    validity = claim.validity(claims)
    assert validity.start is not None
    assert validity.until is not None
    if validity.until - validity.start > LONGEST:
        raise bad("too-long", f"the statement is good for longer than MAX_IDENTITY_HOURS ({MAX_IDENTITY_HOURS})")
    return validity


def _attributes(given: object) -> dict[str, Value]:
    each = claim.mapped(given, "attributes", MAX_ATTRIBUTES)
    return {claim.plain_name(name, "subject attribute"): claim.value_of(value, name) for name, value in each.items()}


def _guest(claims: Mapping[str, Any], issuer: str) -> tuple[str | None, str | None]:
    """Where a guest is at home, and by which statement; all is said of it or nothing."""
    present = GUEST & claims.keys()
    if not present:
        return None, None
    if present != GUEST:
        raise bad("missing-claim", f"a statement about a guest does not say `{min(GUEST - present)}`")
    home = key_name(claims["guest_of"], "guest_of")
    if home == issuer:
        raise bad("bad-claim", "a provider's own member is no guest")
    claim.digest(claims["mapping"], "mapping")
    return home, claim.digest(claims["origin"], "origin")
