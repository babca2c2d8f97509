"""What all certificates about roles say, claim by claim: who signed them when, for which service, about which records.

Guarantees: `open_rolling` is the only way from text to claims by a rolling key. Each claim has exactly one form; a
reference is text, `17.4`, because it is larger than the numbers that some readers of JSON keep exactly.
Leaves out: which claims a kind has, and what they mean (`role_statements`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias, TypeVar

from headgate.model.arguments import dump_argument, load_argument
from headgate.model.authority import Validity
from headgate.model.conditions import Argument
from headgate.model.errors import HeadgateError
from headgate.model.limits import MAX_ROLE_ARGUMENTS
from headgate.model.role_statements import ServiceInstance
from headgate.model.roles import Reference, reference
from headgate.model.values import brief, render_timestamp
from headgate.trust import claims as claim
from headgate.trust.keys import PublicKey
from headgate.trust.role_keys import LONGEST, RoleKeys, RollingKey, Use
from headgate.trust.statements import Form, Read, bad, open_statement, said_payload, seconds_of

T = TypeVar("T")
Trusted: TypeAlias = Mapping[str, RoleKeys]
"""The rolling keys of each domain whose certificates may be read, by the domain's own key."""

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

    def read(self, value: T) -> Read[T]:
        """What the statement says, with the times and the audience that it is for."""
        return Read(value, self.digest, self.issued, self.counts, claim.audience(self.said))


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


def arguments_to_json(args: Sequence[Argument]) -> list[object]:
    """The inverse of `arguments`."""
    return [dump_argument(one) for one in args]
