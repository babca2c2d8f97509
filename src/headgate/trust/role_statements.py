"""Certificates about roles as signed statements: membership, appointment, delegation and revocation (OASIS 4.2-4.4).

Guarantees: the `read` of each kind is the only way from text to a value of that kind. A
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

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

from headgate.model.authority import Validity
from headgate.model.errors import HeadgateError
from headgate.model.expressions import Argument
from headgate.model.limits import MAX_CERTIFICATE_ROLES, MAX_EXPRESSION_CHARS, MAX_ROLE_ARGUMENTS, MAX_SHOWN
from headgate.model.role_statements import (
    AppointmentCertificate,
    DelegationCertificate,
    HeldRole,
    RevocationCertificate,
    RoleCertificate,
    RoleName,
    RoleStatement,
    ServiceInstance,
)
from headgate.model.roles import Reference, dump_argument, load_argument, reference, reference_text
from headgate.model.values import brief, render_timestamp
from headgate.trust import claims as claim
from headgate.trust.claims import bad, key_name
from headgate.trust.keys import PublicKey
from headgate.trust.role_keys import LONGEST, RoleKeys, RollingKey, Signer, Use
from headgate.trust.statements import Form, Read, audience_of, open_statement, said_payload, seconds_of, sign

T = TypeVar("T", bound=RoleStatement)
Trusted: TypeAlias = Mapping[str, RoleKeys]
"""The rolling keys of each domain whose certificates may be read, by the domain's own key."""

_ALL: Final = frozenset({"iss", "jti", "iat", "exp", "service", "instance"})
_OF_ROLE: Final = frozenset({"role", "args", "ref"})
_OF_ELECTOR: Final = frozenset({"iss", "service", "instance", "role", "args"})
_REFERENCE: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})\Z")
_PLACE_BITS: Final = 31
_MAGIC_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class OpenedClaims:
    """The claims of a statement by a rolling key; those that every kind has are read."""

    id: str
    place: ServiceInstance
    issued: datetime
    until: datetime
    counts: Validity
    """Until when it counts: its own end, or an earlier one of its key or of the word for that key."""
    said: Mapping[str, Any]
    digest: str


def open_rolling(text: str, form: Form, use: Use, trusted: Trusted) -> OpenedClaims:
    """The claims of a statement of this form, signed by a rolling key of a trusted domain."""
    # 1. to 6. Form, and the signature of a key that a trusted domain vouches for.
    signed = open_statement(text, form, lambda issuer, kid: _signing(trusted, issuer, kid, use))
    claims, keys = signed.claims, trusted[signed.issuer]
    rolling = keys.find(signed.kid, use)
    # 7. Issued while the key signed.
    issued, until = claim.time(claims["iat"], "iat"), claim.time(claims["exp"], "exp")
    _check_issued(issued, rolling)
    # 8. Good for some time, and no longer than its kind may be.
    if until <= issued:
        raise bad("bad-claim", "the certificate ends before it is issued", "let `exp` be later than `iat`")
    if until - issued > LONGEST[use]:
        raise bad("too-long", f"the certificate is good for longer than `{LONGEST[use]}`")
    # 9. It counts until it is over, its key is, or nobody vouches for that key any longer, whichever comes first.
    return OpenedClaims(
        id=claim.identifier(claims["jti"], "jti"),
        place=place(signed.issuer, claims),
        issued=issued,
        until=until,
        counts=Validity(None, min(until, rolling.end, keys.until)),
        said=claims,
        digest=signed.digest,
    )


def says_it_is_over(text: str, form: Form, now: datetime) -> bool:
    """Is a well-formed statement past its end by its own word? Nobody has vouched for that, and it gives nothing."""
    said = json.loads(said_payload(text, form))
    until = said.get("exp") if isinstance(said, dict) else None
    return type(until) is int and until <= seconds_of(now)


def _signing(trusted: Trusted, issuer: str, kid: str, use: Use) -> PublicKey:
    keys = trusted.get(issuer)
    if keys is None:
        raise bad("wrong-issuer", f"`{issuer}` is no domain whose roles count here", "ask the service for its own")
    return keys.find(kid, use).key


def _check_issued(issued: datetime, rolling: RollingKey) -> None:
    if issued < rolling.start:
        raise bad("early-key", f"the key `{rolling.kid}` signs only from `{render_timestamp(rolling.start)}`")
    if issued >= rolling.until:
        since = render_timestamp(rolling.until)
        raise bad("key-ended", f"the key `{rolling.kid}` signs no more since `{since}`", "ask for a new certificate")


def place(issuer: str, claims: Mapping[str, Any]) -> ServiceInstance:
    """The service and the instance of its rolefile."""
    instance = claims["instance"]
    return ServiceInstance(
        issuer,
        claim.plain_name(claims["service"], "service"),
        "" if instance == "" else claim.plain_name(instance, "instance"),
    )


def exactly(given: object, what: str, names: frozenset[str]) -> dict[str, Any]:
    """An object with these entries and no others."""
    fields = claim.mapped(given, what, len(names))
    if fields.keys() != names:
        raise bad("bad-claim", f"`{what}` does not say `{brief(min(fields.keys() ^ names))}`, or should not")
    return fields


def ref(given: object, what: str) -> Reference:
    """A credential record, `17.4`."""
    found = _REFERENCE.match(claim.text(given, what))
    at, magic = (int(part) for part in found.groups()) if found else (-1, -1)
    if found is None or at >> _PLACE_BITS or magic >> _MAGIC_BITS:
        raise bad("bad-claim", f"`{what}` is no reference of a record: `{brief(given)}`", "such as `17.4`")
    return reference(at, magic)


def arguments(given: object) -> tuple[Argument, ...]:
    """The arguments of a role."""
    return tuple(_argument(one) for one in claim.listed(given, "args", 0, MAX_ROLE_ARGUMENTS))


def open_arguments(given: object) -> tuple[Argument | None, ...]:
    """The arguments of a role; null leaves one open."""
    listed = claim.listed(given, "args", 0, MAX_ROLE_ARGUMENTS)
    return tuple(None if one is None else _argument(one) for one in listed)


def _argument(given: object) -> Argument:
    """An argument in the one way to write it; null is none."""
    try:
        found = load_argument(given)
        if found is not None and repr(dump_argument(found)) == repr(given):
            return found
    except (HeadgateError, RecursionError):
        pass
    raise bad("bad-claim", "`args` has an argument that is none", "such as `1`, `'text'` or `{'set': 'rw'}`")


# -- kinds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoleKind(Form, Generic[T]):
    """A form that a rolling key of one table signs, and its claims besides those that every kind has, in and out."""

    use: Use = field(kw_only=True)
    made_of: Callable[[OpenedClaims], T] = field(kw_only=True)
    claims_of: Callable[[T], dict[str, Any]] = field(kw_only=True)

    def issue(self, signer: Signer, certificate: T, audience: Sequence[str] = ()) -> str:
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
            **self.claims_of(certificate),
            **audience_of(audience),
        }
        text = sign(signer.key, self, claims, signer.issuer)
        rolling = signer.rolling
        alone = RoleKeys(signer.issuer, 0, rolling.start, rolling.end, {rolling.kid: rolling})
        if self.read(text, {signer.issuer: alone}).value != certificate:
            raise bad("bad-claim", f"the certificate `{brief(certificate.id)}` does not read back as it was given")
        return text

    def read(self, text: str, trusted: Trusted) -> Read[T]:
        """What a certificate says, whoever it is for and whenever it is good."""
        # 1. to 9. are those of `open_rolling`; audience and time are those of `check`.
        opened = open_rolling(text, self, self.use, trusted)
        return Read(self.made_of(opened), opened.digest, opened.issued, opened.counts, claim.audience(opened.said))


def _kind(typ: str, claims: Collection[str], optional: Collection[str] = (), **rest: Any) -> RoleKind[Any]:
    return RoleKind(typ, _ALL | frozenset(claims), frozenset({"aud", *optional}), rolling=True, **rest)


# -- role membership and appointment --------------------------------------------------------------------------


def _roles(opened: OpenedClaims) -> tuple[HeldRole, ...]:
    claims = opened.said
    roles = tuple(_held_role(one) for one in claim.listed(claims["roles"], "roles", 1, MAX_CERTIFICATE_ROLES))
    if len({repr((one["role"], one["args"])) for one in claims["roles"]}) != len(roles):
        raise bad("bad-claim", "`roles` names one twice")
    return roles


def _held_role(given: object) -> HeldRole:
    said = exactly(given, "roles", _OF_ROLE)
    return HeldRole(claim.plain_name(said["role"], "role"), arguments(said["args"]), ref(said["ref"], "ref"))


def _held(opened: OpenedClaims) -> dict[str, Any]:
    """What certificates about roles that someone holds are made of."""
    return {
        "id": opened.id,
        "place": opened.place,
        "subject": key_name(opened.said["sub"], "sub"),
        "roles": _roles(opened),
        "issued": opened.issued,
        "until": opened.until,
    }


def _held_to_json(certificate: RoleCertificate | AppointmentCertificate) -> dict[str, Any]:
    roles = [
        {"role": one.role, "args": [dump_argument(arg) for arg in one.args], "ref": reference_text(one.ref)}
        for one in certificate.roles
    ]
    return {"sub": certificate.subject, "roles": roles}


ROLE: Final[RoleKind[RoleCertificate]] = _kind(
    "hg-role+jwt",
    {"sub", "roles"},
    use="short",
    made_of=lambda opened: RoleCertificate(**_held(opened)),
    claims_of=_held_to_json,
)
APPOINTMENT: Final[RoleKind[AppointmentCertificate]] = _kind(
    "hg-appointment+jwt",
    {"sub", "roles"},
    use="long",
    made_of=lambda opened: AppointmentCertificate(**_held(opened)),
    claims_of=_held_to_json,
)


# -- delegation -----------------------------------------------------------------------------------------------


def _delegation(opened: OpenedClaims) -> DelegationCertificate:
    claims = opened.said
    ends = claim.time(claims["until"], "until") if "until" in claims else None
    if ends is not None and opened.until > ends:
        raise bad("bad-claim", "the certificate is good for longer than its election", "let `exp` be no later")
    return DelegationCertificate(
        id=opened.id,
        place=opened.place,
        election=claim.plain_name(claims["election"], "election"),
        role=claim.plain_name(claims["role"], "role"),
        args=open_arguments(claims["args"]),
        elector=key_name(claims["elector"], "elector"),
        ref=ref(claims["ref"], "ref"),
        issued=opened.issued,
        until=opened.until,
        ends=ends,
        required=tuple(_required(one) for one in claim.listed(claims["required"], "required", 0, MAX_SHOWN)),
        revoke_on_exit=claim.flag(claims["revoke_on_exit"], "revoke_on_exit"),
    )


def _delegation_to_json(certificate: DelegationCertificate) -> dict[str, Any]:
    return {
        "election": certificate.election,
        "role": certificate.role,
        "args": [None if one is None else dump_argument(one) for one in certificate.args],
        "elector": certificate.elector,
        "required": list(certificate.required),
        "revoke_on_exit": certificate.revoke_on_exit,
        "ref": reference_text(certificate.ref),
        **({} if certificate.ends is None else {"until": seconds_of(certificate.ends)}),
    }


def _required(given: object) -> str:
    text = claim.text(given, "required")
    if not 1 <= len(text) <= MAX_EXPRESSION_CHARS or not text.isprintable():
        raise bad("bad-claim", f"`required` has no role in `{brief(text)}`", "such as `Login.LoggedOn('jim', _)`")
    return text


DELEGATION: Final[RoleKind[DelegationCertificate]] = _kind(
    "hg-delegation+jwt",
    {"election", "role", "args", "elector", "required", "revoke_on_exit", "ref"},
    {"until"},
    use="long",
    made_of=_delegation,
    claims_of=_delegation_to_json,
)


# -- revocation -----------------------------------------------------------------------------------------------


def _revocation(opened: OpenedClaims) -> RevocationCertificate:
    claims = opened.said
    office = exactly(claims["elector"], "elector", _OF_ELECTOR)
    where = place(key_name(office["iss"], "iss"), office)
    return RevocationCertificate(
        id=opened.id,
        place=opened.place,
        subject=key_name(claims["sub"], "sub"),
        election=claim.plain_name(claims["election"], "election"),
        elector=RoleName(where, claim.plain_name(office["role"], "role"), arguments(office["args"])),
        membership=ref(claims["membership"], "membership"),
        target=ref(claims["target"], "target"),
        issued=opened.issued,
        until=opened.until,
    )


def _revocation_to_json(certificate: RevocationCertificate) -> dict[str, Any]:
    elector = certificate.elector
    return {
        "sub": certificate.subject,
        "election": certificate.election,
        "elector": {
            "iss": elector.place.issuer,
            "service": elector.place.service,
            "instance": elector.place.instance,
            "role": elector.role,
            "args": [dump_argument(arg) for arg in elector.args],
        },
        "membership": reference_text(certificate.membership),
        "target": reference_text(certificate.target),
    }


REVOCATION: Final[RoleKind[RevocationCertificate]] = _kind(
    "hg-role-revocation+jwt",
    {"sub", "election", "elector", "membership", "target"},
    use="long",
    made_of=_revocation,
    claims_of=_revocation_to_json,
)
