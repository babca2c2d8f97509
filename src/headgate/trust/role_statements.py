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

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

from headgate.model import role_statements as model
from headgate.model.authority import Validity
from headgate.model.expressions import Argument
from headgate.model.limits import MAX_CERTIFICATE_ROLES, MAX_EXPRESSION_CHARS, MAX_ROLE_ARGUMENTS, MAX_SHOWN
from headgate.model.role_statements import RoleStatement, ServiceInstance
from headgate.model.roles import Reference, dump_argument, reference, reference_text
from headgate.model.values import brief, render_timestamp
from headgate.trust import claims as claim
from headgate.trust.claims import Claim, ClaimTable, bad, key_name
from headgate.trust.keys import PublicKey
from headgate.trust.role_keys import LONGEST, RoleKeys, RollingKey, Signer, Use
from headgate.trust.statements import Form, Read, audience_of, open_statement, said_claims, seconds_of, sign

T = TypeVar("T", bound=RoleStatement)
Trusted: TypeAlias = Mapping[str, RoleKeys]
"""The rolling keys of each domain whose certificates may be read, by the domain's own key."""

_REFERENCE: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})\Z")
_PLACE_BITS: Final = 31
_MAGIC_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class RoleKind(Form, Generic[T]):
    """A form that a rolling key of one table signs, and its claims besides those that every kind has."""

    use: Use = field(kw_only=True)
    table: ClaimTable[T] = field(kw_only=True)

    def issue(self, signer: Signer, certificate: T, audience: Sequence[str] = ()) -> str:
        """The text, if it reads back as the certificate that it was made of."""
        if certificate.place.issuer != signer.issuer:
            raise bad("wrong-issuer", f"`{signer.issuer}` does not sign for `{brief(certificate.place.issuer)}`")
        if certificate.until > signer.rolling.end:
            raise bad("too-long", f"the certificate `{brief(certificate.id)}` is good for longer than its key counts")
        place = {"service": certificate.place.service, "instance": certificate.place.instance}
        claims = {**self.table.dump(certificate), **place, **audience_of(audience)}
        text = sign(signer.key, self, claims, signer.issuer)
        rolling = signer.rolling
        alone = RoleKeys(signer.issuer, 0, rolling.start, rolling.end, {rolling.kid: rolling})
        if self.read(text, {signer.issuer: alone}).value != certificate:
            raise bad("bad-claim", f"the certificate `{brief(certificate.id)}` does not read back as it was given")
        return text

    def read(self, text: str, trusted: Trusted) -> Read[T]:
        """What a certificate of a trusted domain says, whoever it is for and whenever it is good."""
        # 1. to 6. Form, and the signature of a key that a trusted domain vouches for.
        signed = open_statement(text, self, lambda issuer, kid: _signing(trusted, issuer, kid, self.use))
        claims, keys = signed.claims, trusted[signed.issuer]
        rolling = keys.find(signed.kid, self.use)
        # 7. Issued while the key signed.
        issued, until = claim.time(claims["iat"], "iat"), claim.time(claims["exp"], "exp")
        _check_issued(issued, rolling)
        # 8. Good for some time, and no longer than its kind may be.
        if until <= issued:
            raise bad("bad-claim", "the certificate ends before it is issued", "let `exp` be later than `iat`")
        if until - issued > LONGEST[self.use]:
            raise bad("too-long", f"the certificate is good for longer than `{LONGEST[self.use]}`")
        # 9. What it says.
        value = self.table.load(claims, place=place(claims))
        # 10. It counts until it is over, its key is, or nobody vouches for that key any longer, whichever comes first.
        counts = Validity(None, min(until, rolling.end, keys.until))
        # Audience and time are those of `check`.
        return Read(value, signed.digest, issued, counts, claim.audience(claims))


def says_it_is_over(text: str, now: datetime) -> bool:
    """Is a statement past its end by its own word? Nobody has vouched for that, and it gives nothing."""
    until = said_claims(text).get("exp")
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


# -- claims ---------------------------------------------------------------------------------------------------


def place(claims: Mapping[str, Any]) -> ServiceInstance:
    """The service and the instance of its rolefile, by the key of its domain."""
    instance = claims["instance"]
    return ServiceInstance(
        key_name(claims["iss"], "iss"),
        claim.plain_name(claims["service"], "service"),
        "" if instance == "" else claim.plain_name(instance, "instance"),
    )


def ref(given: object, what: str) -> Reference:
    """A credential record, `17.4`."""
    found = _REFERENCE.match(claim.text(given, what))
    at, magic = (int(part) for part in found.groups()) if found else (-1, -1)
    if found is None or at >> _PLACE_BITS or magic >> _MAGIC_BITS:
        raise bad("bad-claim", f"`{what}` is no reference of a record: `{brief(given)}`", "such as `17.4`")
    return reference(at, magic)


def arguments(given: object, what: str = "args") -> tuple[Argument, ...]:
    """The arguments of a role."""
    return tuple(claim.argument(one) for one in claim.listed(given, what, 0, MAX_ROLE_ARGUMENTS))


def _open_arguments(given: object, what: str) -> tuple[Argument | None, ...]:
    """The arguments of a role; null leaves one open."""
    listed = claim.listed(given, what, 0, MAX_ROLE_ARGUMENTS)
    return tuple(None if one is None else claim.argument(one) for one in listed)


def _dump_all(args: Sequence[Argument | None]) -> list[object]:
    return [dump_argument(one) for one in args]


def _held_roles(given: object, what: str) -> tuple[model.HeldRole, ...]:
    listed = claim.listed(given, what, 1, MAX_CERTIFICATE_ROLES)
    roles = tuple(_HELD.load_object(one, what) for one in listed)
    if len({repr((one["role"], one["args"])) for one in listed}) != len(roles):
        raise bad("bad-claim", "`roles` names one twice")
    return roles


def _elector(given: object, what: str) -> model.RoleName:
    fields = claim.exactly(given, what, {"iss", "service", "instance", *_OFFICE.required})
    return _OFFICE.load(fields, place=place(fields))


def _elector_to_json(elector: model.RoleName) -> dict[str, Any]:
    where = {"iss": elector.place.issuer, "service": elector.place.service, "instance": elector.place.instance}
    return {**where, **_OFFICE.dump(elector)}


def _required(given: object, what: str) -> tuple[str, ...]:
    roles = tuple(claim.text(one, what) for one in claim.listed(given, what, 0, MAX_SHOWN))
    for role in roles:
        if not 1 <= len(role) <= MAX_EXPRESSION_CHARS or not role.isprintable():
            raise bad("bad-claim", f"`required` has no role in `{brief(role)}`", "such as `Login.LoggedOn('jim', _)`")
    return roles


def _named(what: str) -> Callable[[object, str], str]:
    return lambda given, _: claim.plain_name(given, what)


_OFFICE: Final = ClaimTable(
    model.RoleName, {"role": Claim("role", _named("role")), "args": Claim("args", arguments, _dump_all)}
)
_HELD: Final = ClaimTable(model.HeldRole, {**_OFFICE.required, "ref": Claim("ref", ref, reference_text)})


# -- kinds ----------------------------------------------------------------------------------------------------

_ALL: Final = {
    "jti": Claim("id", claim.identifier),
    "iat": Claim("issued", claim.time, seconds_of),
    "exp": Claim("until", claim.time, seconds_of),
}
_SUBJECT: Final = Claim("subject", key_name)
_HOLDS: Final = {
    "sub": _SUBJECT,
    "roles": Claim("roles", _held_roles, lambda roles: [_HELD.dump(one) for one in roles]),
}


def _kind(
    typ: str, use: Use, made: Callable[..., T], required: Mapping[str, Claim], optional: Mapping[str, Claim] = {}
) -> RoleKind[T]:
    table = ClaimTable(made, {**_ALL, **required}, optional)
    names = frozenset({"iss", "service", "instance", *table.required})
    return RoleKind(typ, names, frozenset({"aud", *optional}), rolling=True, use=use, table=table)


ROLE: Final = _kind("hg-role+jwt", "short", model.RoleCertificate, _HOLDS)
APPOINTMENT: Final = _kind("hg-appointment+jwt", "long", model.AppointmentCertificate, _HOLDS)
DELEGATION: Final = _kind(
    "hg-delegation+jwt",
    "long",
    model.DelegationCertificate,
    {
        "election": Claim("election", _named("election")),
        "role": Claim("role", _named("role")),
        "args": Claim("args", _open_arguments, _dump_all),
        "elector": Claim("elector", key_name),
        "required": Claim("required", _required, list),
        "revoke_on_exit": Claim("revoke_on_exit", claim.flag),
        "ref": Claim("ref", ref, reference_text),
    },
    {"until": Claim("ends", claim.time, seconds_of)},
)
REVOCATION: Final = _kind(
    "hg-role-revocation+jwt",
    "long",
    model.RevocationCertificate,
    {
        "sub": _SUBJECT,
        "election": Claim("election", _named("election")),
        "elector": Claim("elector", _elector, _elector_to_json),
        "membership": Claim("membership", ref, reference_text),
        "target": Claim("target", ref, reference_text),
    },
)
