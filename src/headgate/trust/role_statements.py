"""Certificates about roles as signed statements: membership, appointment, delegation and revocation (OASIS 4.2-4.4).

Guarantees: for each kind there is one `verify_` function, and it is the only way from text to a value of that kind. A
domain signs them with its rolling keys; a key counts only if the domain's own key vouches for it (`role_keys`), only
for statements of its table, and only for those issued while it signed. Arguments keep their kinds and can be read by
every service. What is written reads back as what it was made of.
Leaves out: whether roles are still held (`roles.certificates.validation` asks the records); required roles are text and
no more.

    {"alg": "EdDSA", "typ": "hg-role+jwt", "kid": "did:key:z6Mk..."}
    {"iss": "did:key:...", "sub": "did:key:...", "jti": "m1", "iat": 1767268800, "exp": 1767272400, "service": "Conf",
     "instance": "", "roles": [{"role": "Member", "args": ["dm", {"set": "rw"}], "ref": "17.4"}]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from headgate.model.arguments import dump_argument
from headgate.model.limits import MAX_CERTIFICATE_ROLES, MAX_EXPRESSION_CHARS, MAX_SHOWN
from headgate.model.role_statements import (
    AppointmentCertificate,
    DelegationCertificate,
    HeldRole,
    RevocationCertificate,
    RoleCertificate,
    RoleName,
    RoleStatement,
)
from headgate.model.roles import reference_text
from headgate.model.values import brief
from headgate.trust import claims as claim
from headgate.trust import role_claims as role_claim
from headgate.trust.role_claims import OpenedClaims, Trusted, open_rolling
from headgate.trust.role_keys import RoleKeys, Use
from headgate.trust.role_table import Signer
from headgate.trust.statements import Form, Read, audience_of, bad, check, key_name, seconds_of, sign

T = TypeVar("T", bound=RoleStatement)

_ALL: Final = frozenset({"iss", "jti", "iat", "exp", "service", "instance"})
_AUD: Final = frozenset({"aud"})
ROLE: Final = Form("hg-role+jwt", _ALL | {"sub", "roles"}, _AUD, rolling=True)
APPOINTMENT: Final = Form("hg-appointment+jwt", _ALL | {"sub", "roles"}, _AUD, rolling=True)
DELEGATION: Final = Form(
    "hg-delegation+jwt",
    _ALL | {"election", "role", "args", "elector", "required", "revoke_on_exit", "ref"},
    _AUD | {"until"},
    rolling=True,
)
REVOCATION: Final = Form(
    "hg-role-revocation+jwt", _ALL | {"sub", "election", "elector", "membership", "target"}, _AUD, rolling=True
)
USE: Final[Mapping[str, Use]] = {
    ROLE.typ: "short",
    APPOINTMENT.typ: "long",
    DELEGATION.typ: "long",
    REVOCATION.typ: "long",
}
"""Which table of keys signs what."""
_OF_ROLE: Final = frozenset({"role", "args", "ref"})
_OF_ELECTOR: Final = frozenset({"iss", "service", "instance", "role", "args"})


# -- role membership and appointment --------------------------------------------------------------------------


def issue_role(signer: Signer, certificate: RoleCertificate, audience: Sequence[str] = ()) -> str:
    """The text of a role membership certificate."""
    return _issued(signer, ROLE, certificate, _held_to_json(certificate), audience, read_role)


def verify_role(
    text: str, *, keys: RoleKeys, audience: str | None = None, now: datetime | None = None
) -> RoleCertificate:
    """The role membership certificate of a text, by the domain of these keys."""
    # 1. to 9. are those of `open_rolling`; the claims are read in `read_role`; audience and time are those of `check`.
    return check(read_role(text, {keys.domain: keys}), audience=audience, now=now)


def read_role(text: str, trusted: Trusted) -> Read[RoleCertificate]:
    """What a role membership certificate says, whoever it is for and whenever it is good."""
    opened = _opened(text, ROLE, trusted)
    return opened.read(RoleCertificate(opened.id, opened.place, *_held(opened), opened.issued, opened.until))


def issue_appointment(signer: Signer, certificate: AppointmentCertificate, audience: Sequence[str] = ()) -> str:
    """The text of an appointment certificate."""
    return _issued(signer, APPOINTMENT, certificate, _held_to_json(certificate), audience, read_appointment)


def verify_appointment(
    text: str, *, keys: RoleKeys, audience: str | None = None, now: datetime | None = None
) -> AppointmentCertificate:
    """The appointment certificate of a text, by the domain of these keys."""
    return check(read_appointment(text, {keys.domain: keys}), audience=audience, now=now)


def read_appointment(text: str, trusted: Trusted) -> Read[AppointmentCertificate]:
    """What an appointment certificate says, whoever it is for and whenever it is good."""
    opened = _opened(text, APPOINTMENT, trusted)
    return opened.read(AppointmentCertificate(opened.id, opened.place, *_held(opened), opened.issued, opened.until))


def _held(opened: OpenedClaims) -> tuple[str, tuple[HeldRole, ...]]:
    """Who holds which roles."""
    claims = opened.said
    roles = tuple(_held_role(one) for one in claim.listed(claims["roles"], "roles", 1, MAX_CERTIFICATE_ROLES))
    if len({repr((one["role"], one["args"])) for one in claims["roles"]}) != len(roles):
        raise bad("bad-claim", "`roles` names one twice")
    return key_name(claims["sub"], "sub"), roles


def _held_role(given: object) -> HeldRole:
    said = role_claim.exactly(given, "roles", _OF_ROLE)
    return HeldRole(
        claim.plain_name(said["role"], "role"), role_claim.arguments(said["args"]), role_claim.ref(said["ref"], "ref")
    )


def _held_to_json(certificate: RoleCertificate | AppointmentCertificate) -> dict[str, Any]:
    roles = [
        {"role": one.role, "args": role_claim.arguments_to_json(one.args), "ref": reference_text(one.ref)}
        for one in certificate.roles
    ]
    return {"sub": certificate.subject, "roles": roles}


# -- delegation -----------------------------------------------------------------------------------------------


def issue_delegation(signer: Signer, certificate: DelegationCertificate, audience: Sequence[str] = ()) -> str:
    """The text of a delegation certificate."""
    claims = {
        "election": certificate.election,
        "role": certificate.role,
        "args": [None if one is None else dump_argument(one) for one in certificate.args],
        "elector": certificate.elector,
        "required": list(certificate.required),
        "revoke_on_exit": certificate.revoke_on_exit,
        "ref": reference_text(certificate.ref),
        **({} if certificate.ends is None else {"until": seconds_of(certificate.ends)}),
    }
    return _issued(signer, DELEGATION, certificate, claims, audience, read_delegation)


def verify_delegation(
    text: str, *, keys: RoleKeys, audience: str | None = None, now: datetime | None = None
) -> DelegationCertificate:
    """The delegation certificate of a text, by the domain of these keys."""
    return check(read_delegation(text, {keys.domain: keys}), audience=audience, now=now)


def read_delegation(text: str, trusted: Trusted) -> Read[DelegationCertificate]:
    """What a delegation certificate says, whoever it is for and whenever it is good."""
    opened = _opened(text, DELEGATION, trusted)
    claims = opened.said
    ends = claim.time(claims["until"], "until") if "until" in claims else None
    if ends is not None and opened.until > ends:
        raise bad("bad-claim", "the certificate is good for longer than its election", "let `exp` be no later")
    return opened.read(
        DelegationCertificate(
            id=opened.id,
            place=opened.place,
            election=claim.plain_name(claims["election"], "election"),
            role=claim.plain_name(claims["role"], "role"),
            args=role_claim.open_arguments(claims["args"]),
            elector=key_name(claims["elector"], "elector"),
            ref=role_claim.ref(claims["ref"], "ref"),
            issued=opened.issued,
            until=opened.until,
            ends=ends,
            required=tuple(_required(one) for one in claim.listed(claims["required"], "required", 0, MAX_SHOWN)),
            revoke_on_exit=claim.flag(claims["revoke_on_exit"], "revoke_on_exit"),
        )
    )


def _required(given: object) -> str:
    text = claim.text(given, "required")
    if not 1 <= len(text) <= MAX_EXPRESSION_CHARS or not text.isprintable():
        raise bad("bad-claim", f"`required` has no role in `{brief(text)}`", "such as `Login.LoggedOn('jim', _)`")
    return text


# -- revocation -----------------------------------------------------------------------------------------------


def issue_revocation(signer: Signer, certificate: RevocationCertificate, audience: Sequence[str] = ()) -> str:
    """The text of a revocation certificate."""
    elector = certificate.elector
    claims = {
        "sub": certificate.subject,
        "election": certificate.election,
        "elector": {
            "iss": elector.place.issuer,
            "service": elector.place.service,
            "instance": elector.place.instance,
            "role": elector.role,
            "args": role_claim.arguments_to_json(elector.args),
        },
        "membership": reference_text(certificate.membership),
        "target": reference_text(certificate.target),
    }
    return _issued(signer, REVOCATION, certificate, claims, audience, read_revocation)


def verify_revocation(
    text: str, *, keys: RoleKeys, audience: str | None = None, now: datetime | None = None
) -> RevocationCertificate:
    """The revocation certificate of a text, by the domain of these keys."""
    return check(read_revocation(text, {keys.domain: keys}), audience=audience, now=now)


def read_revocation(text: str, trusted: Trusted) -> Read[RevocationCertificate]:
    """What a revocation certificate says, whoever it is for and whenever it is good."""
    opened = _opened(text, REVOCATION, trusted)
    claims = opened.said
    return opened.read(
        RevocationCertificate(
            id=opened.id,
            place=opened.place,
            subject=key_name(claims["sub"], "sub"),
            election=claim.plain_name(claims["election"], "election"),
            elector=_elector(claims["elector"]),
            membership=role_claim.ref(claims["membership"], "membership"),
            target=role_claim.ref(claims["target"], "target"),
            issued=opened.issued,
            until=opened.until,
        )
    )


def _elector(given: object) -> RoleName:
    said = role_claim.exactly(given, "elector", _OF_ELECTOR)
    place = role_claim.place(key_name(said["iss"], "iss"), said)
    return RoleName(place, claim.plain_name(said["role"], "role"), role_claim.arguments(said["args"]))


# -- what all of them say -------------------------------------------------------------------------------------


def _issued(
    signer: Signer,
    form: Form,
    certificate: T,
    fields: Mapping[str, Any],
    audience: Sequence[str],
    read: Callable[[str, Trusted], Read[T]],
) -> str:
    """The text, if it reads back as the certificate that it was made of."""
    if certificate.place.issuer != signer.issuer:
        raise bad("wrong-issuer", f"`{signer.issuer}` does not sign for `{brief(certificate.place.issuer)}`")
    if certificate.until > signer.rolling.end:
        raise bad("too-long", f"the certificate `{brief(certificate.id)}` is good for longer than its key counts")
    claims = {
        "jti": certificate.id,
        "iat": seconds_of(certificate.issued),
        "exp": seconds_of(certificate.until),
        "service": certificate.place.service,
        "instance": certificate.place.instance,
        **fields,
        **audience_of(audience),
    }
    text = sign(signer.key, form, claims, signer.issuer)
    rolling = signer.rolling
    alone = RoleKeys(signer.issuer, 0, rolling.start, rolling.end, {rolling.kid: rolling})
    if read(text, {signer.issuer: alone}).value != certificate:
        raise bad("bad-claim", f"the certificate `{brief(certificate.id)}` does not read back as it was given")
    return text


def _opened(text: str, form: Form, trusted: Trusted) -> OpenedClaims:
    return open_rolling(text, form, USE[form.typ], trusted)
