"""Identity statements: what an identity provider says of a subject, for a short time (Guard IV).

Guarantees: `IDENTITY.verify` is the only way from text to an `Identity`. A statement is good for MAX_IDENTITY_HOURS at
most, so that it need not be revoked; its attributes keep their kinds, and its policy rule speaks of subjects alone. A
statement about another provider is of another form, so that no member can speak for a community.
What a foreign provider says is never copied blindly (Guard IV.C): a guest has exactly the attributes that the mapping
gives, and the statement records the digests of the mapping and of the statement from home, so that both can be
audited. A guest's statement ends no later than the one from home, and a rule that binds it there is never dropped in
silence.
Leaves out: which providers are believed, and with which mapping (`ledger`).
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from headgate.model.authority import AttributeMap, Identity, Provider, Validity
from headgate.model.expressions import Condition, Constant
from headgate.model.limits import MAX_ATTRIBUTES, MAX_IDENTITY_HOURS, MAX_MAPPED
from headgate.model.values import Value, brief
from headgate.trust import claims as claim
from headgate.trust.certificates import new_id
from headgate.trust.claims import bad, key_name
from headgate.trust.keys import PrivateKey, Random
from headgate.trust.statements import Signed, StatementKind, Verifier, about, digest_of, open_statement

_TYPE: Final = "hg-identity+jwt"
GUEST: Final = frozenset({"guest_of", "origin", "mapping"})
"""What a statement about a guest says besides: the provider at home, its statement, and how it was understood."""
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
    claims = about(subject, new_id(random) if id is None else id, now, validity, audience)
    return sign_identity(provider, claims, attributes, policy_rule)


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
    if missing := IDENTITY.required - claims.keys() - {"iss"}:
        raise bad("missing-claim", f"the statement does not say `{min(missing)}`", "let it begin and end")
    return IDENTITY.issue(provider, claims)


def _identity(signed: Signed) -> Identity:
    claims = signed.claims
    guest_of, origin = _guest(claims, signed.issuer)
    return Identity(
        id=claim.identifier(claims["jti"], "jti"),
        issuer=signed.issuer,
        subject=key_name(claims["sub"], "sub"),
        attributes=_attributes(claims["attributes"]),
        validity=_short(claims),
        policy_rule=claim.policy_rule(claims["policy_rule"]) if "policy_rule" in claims else None,
        guest_of=guest_of,
        origin=origin,
    )


IDENTITY: Final = StatementKind(
    _TYPE,
    frozenset({"iss", "sub", "jti", "iat", "nbf", "exp", "attributes"}),
    frozenset({"policy_rule", "aud"}) | GUEST,
    made_of=_identity,
)


def _short(claims: Mapping[str, Any]) -> Validity:
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


@dataclass(frozen=True, slots=True)
class Crossing:
    """A provider's word that another key is a provider too."""

    id: str
    issuer: str
    provider: str
    validity: Validity


# -- guests ---------------------------------------------------------------------------------------------------


def guest(
    text: str,
    *,
    home: Provider,
    host: PrivateKey,
    now: datetime,
    policy_rule: Condition | None = None,
    heard_by: str | None = None,
    audience: Sequence[str] = (),
    random: Random = secrets.token_bytes,
    verifier: Verifier | None = None,
) -> str:
    """A statement of the host about a member of another community, who shows its statement from home.

    `heard_by` is the name under which statements from home are addressed to the host; `policy_rule` is the rule by
    which the guest publishes here.
    """
    # 1. The statement from home is good, now and for us, and its provider is the trusted one.
    identity = IDENTITY.verify(text, audience=heard_by, now=now, verifier=verifier)
    if identity.issuer != home.key:
        raise bad("wrong-issuer", f"the statement is of `{identity.issuer}`, not of `{brief(home.name)}`")
    # 2. It is about a member, not about a guest: trust does not pass from hand to hand.
    if identity.guest_of is not None:
        raise bad(
            "guest-of-guest",
            f"`{identity.subject}` is a guest of `{brief(home.name)}` itself",
            "ask its provider at home",
        )
    # 3. Nobody loses a rule by travelling.
    if identity.policy_rule is not None and policy_rule is None:
        raise bad(
            "policy-rule",
            f"`{identity.subject}` publishes under a rule at home",
            "give the rule that holds for it here",
        )
    # 4. The attributes, as the mapping gives them.
    if home.mapping is None:
        raise bad(
            "no-mapping", f"members of `{brief(home.name)}` are no guests here", "agree on a mapping of attributes"
        )
    attributes = translated(identity.attributes, home.mapping)
    # 5. No longer than at home.
    assert identity.validity.until is not None
    validity = Validity(now, min(identity.validity.until, now + LONGEST))
    claims = {
        **about(identity.subject, new_id(random), now, validity, audience),
        "guest_of": home.key,
        "origin": digest_of(text),
        "mapping": mapping_digest(home.mapping),
    }
    return sign_identity(host, claims, attributes, policy_rule)


def translated(attributes: Mapping[str, Value], mapping: Sequence[AttributeMap]) -> dict[str, Value]:
    """The attributes as they are understood here; what the mapping does not name is left out."""
    translation: dict[str, Value] = {}
    for line in mapping:
        if line.name not in attributes:
            continue
        given = attributes[line.name]
        # As constants, because Python takes `1`, `1.0` and `true` for equal.
        ours = [given] if line.values is None else [b for a, b in line.values if Constant(a) == Constant(given)]
        if ours and line.to in translation and Constant(translation[line.to]) != Constant(ours[0]):
            raise bad(
                "ambiguous-mapping", f"the mapping gives `{brief(line.to)}` two values", "map one attribute to it"
            )
        if ours:
            translation[line.to] = ours[0]
    return translation


def mapping_text(mapping: Sequence[AttributeMap]) -> str:
    """A mapping in the one way to write it, for its digest and for auditors."""
    if sum(len(one.values or ()) + 1 for one in mapping) > MAX_MAPPED:
        raise bad("too-large", f"the mapping has more pairs than MAX_MAPPED ({MAX_MAPPED})")
    lines = [
        {
            "name": one.name,
            "to": one.to,
            "values": None
            if one.values is None
            else [[claim.value_to_json(a), claim.value_to_json(b)] for a, b in one.values],
        }
        for one in mapping
    ]
    return json.dumps(lines, ensure_ascii=True, separators=(",", ":"), sort_keys=True)


def mapping_digest(mapping: Sequence[AttributeMap]) -> str:
    """What stands for a mapping in the statements made by it."""
    return hashlib.sha256(mapping_text(mapping).encode("ascii")).hexdigest()


def made_by(text: str) -> str | None:
    """The digest of the mapping that a statement about a guest was made by."""
    IDENTITY.read(text)
    found: str | None = open_statement(text, IDENTITY).claims.get("mapping")
    return found


# -- other providers ------------------------------------------------------------------------------------------


def cross_domain(
    provider: PrivateKey,
    *,
    other: str,
    validity: Validity,
    now: datetime,
    audience: Sequence[str] = (),
    random: Random = secrets.token_bytes,
) -> str:
    """A provider's word to its members that another key is the provider of another community."""
    if validity.start is None or validity.until is None:
        raise bad("missing-claim", "the statement does not say `exp` or `nbf`", "let it begin and end")
    return CROSSING.issue(provider, {**about(other, new_id(random), now, validity, audience), "provider": True})


def _crossing(signed: Signed) -> Crossing:
    claims = signed.claims
    if claims["provider"] is not True:
        raise bad("bad-claim", "`provider` is not true")
    return Crossing(
        claim.identifier(claims["jti"], "jti"), signed.issuer, key_name(claims["sub"], "sub"), _short(claims)
    )


CROSSING: Final = StatementKind(
    _TYPE,
    frozenset({"iss", "sub", "jti", "iat", "nbf", "exp", "provider"}),
    frozenset({"aud"}),
    made_of=_crossing,
)
"""A statement that a key is that of another provider."""


def verify_server(
    text: str,
    crossing: str | None,
    *,
    anchor: str,
    audience: str | None,
    now: datetime,
    verifier: Verifier | None = None,
) -> Identity:
    """The identity of a server, which the client's own provider vouches for, itself or through the server's.

    `anchor` is the key of the client's provider.
    """
    # 1. The server's own statement.
    server = IDENTITY.verify(text, audience=audience, now=now, verifier=verifier)
    if server.issuer == anchor:
        return server
    # 2. Otherwise the anchor's word on the server's provider.
    if crossing is None:
        raise bad(
            "wrong-issuer", f"the server's provider is `{server.issuer}`, not ours", "ask for a cross-domain statement"
        )
    vouched = CROSSING.verify(crossing, audience=audience, now=now, verifier=verifier)
    if vouched.issuer != anchor:
        raise bad("wrong-issuer", f"`{vouched.issuer}` vouches for the server's provider, and is not ours")
    if vouched.provider != server.issuer:
        raise bad("wrong-subject", f"the cross-domain statement is about `{vouched.provider}`, not `{server.issuer}`")
    # 3. And the server is a member there, not a guest.
    if server.guest_of is not None:
        raise bad("guest-of-guest", "the server is a guest of the provider that is vouched for")
    return server
