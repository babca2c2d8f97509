"""Signed statements of every kind, in words and as JSON.

Guarantees: only what was signed is shown: each statement's signature is verified first. Nothing of it is judged,
except that what has ended is said to have. Certificates about roles are signed with keys that only their own domain
vouches for: they are shown as they are, and it is said that nobody has verified them.
"""

from __future__ import annotations

import json as json_
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headgate.cli.roles.source import role_words
from headgate.cli.shared.common import out
from headgate.cli.shared.rendering import cells, print_json, say, show_value, table
from headgate.cli.statements.certificate_rendering import authority_words, freshness_words, say_legend, state_words
from headgate.cli.statements.statement_files import KeyNames, WrittenStatement, joined
from headgate.lang.render import render_condition
from headgate.model.arguments import load_argument
from headgate.model.authority import Certificate, Identity, RevocationList, Succession, Validity
from headgate.model.errors import BadStatement, HeadgateError
from headgate.model.values import brief, render_timestamp
from headgate.trust import certificates, claims, identities, role_statements, typedefs
from headgate.trust.certificates import CERTIFICATE, REVOCATIONS, SUCCESSION
from headgate.trust.identities import CROSSING, IDENTITY, Crossing, made_by
from headgate.trust.presented import said_kind
from headgate.trust.statements import Form, Read, digest_of, said_payload
from headgate.trust.typedefs import TYPE_DEFINITION, Definition

SHOWN_IDS: Final = 20
"""Entries of a revocation list that are shown; all are in the JSON."""

_ABOUT_ROLES: Final[Mapping[str, tuple[str, Form]]] = {
    role_statements.ROLE.typ: ("role certificate", role_statements.ROLE),
    role_statements.APPOINTMENT.typ: ("appointment certificate", role_statements.APPOINTMENT),
    role_statements.DELEGATION.typ: ("delegation certificate", role_statements.DELEGATION),
    role_statements.REVOCATION.typ: ("revocation certificate", role_statements.REVOCATION),
}


@dataclass(frozen=True, slots=True)
class AboutRoles:
    """What a certificate about roles says; nobody has verified it."""

    said: Mapping[str, Any]
    verified: bool = False


@dataclass(frozen=True, slots=True)
class ShownStatement:
    """A statement as JSON has it."""

    kind: str
    place: str
    issued: datetime
    audience: tuple[str, ...] | None
    digest: str
    says: object


def show_all(written: Sequence[WrittenStatement], names: KeyNames, now: datetime, *, json: bool) -> None:
    """Show every statement: one table each, or one JSON list."""
    statements = [(one, *_read(one)) for one in written]
    if json:
        print_json([_as_shown(kind, one.place, read) for one, kind, read in statements])
        return
    for number, (statement, kind, read) in enumerate(statements):
        if number:
            say()
        say((kind, "bold"), (f"  {statement.place}", "dim"))
        shown = table("", "")
        shown.show_header = False
        for name, value in _rows(statement.text, read, names, now):
            shown.add_row(*cells(f"  {name}", value))
        out.print(shown)
    say_legend(names)


def _read(statement: WrittenStatement) -> tuple[str, Read[Any]]:
    """What a statement is called, and what it says."""
    try:
        match said_kind(statement.text):
            case certificates.CERTIFICATE.typ:
                return "certificate", CERTIFICATE.read(statement.text)
            case certificates.SUCCESSION.typ:
                return "succession", SUCCESSION.read(statement.text)
            case certificates.REVOCATIONS.typ:
                return "revocation list", REVOCATIONS.read(statement.text)
            case typedefs.TYPE_DEFINITION.typ:
                return "event type", TYPE_DEFINITION.read(statement.text)
            case identities.IDENTITY.typ:
                return _identity(statement.text)
            case kind if kind in _ABOUT_ROLES:
                name, form = _ABOUT_ROLES[kind]
                return name, _about_roles(statement.text, form)
            case other:
                raise BadStatement(
                    f"a statement `{brief(other)}` is not known here",
                    reason="wrong-type",
                    remedy="show certificates, identity statements, successions, revocation lists or event types",
                )
    except HeadgateError as error:
        error.place = statement.place
        raise


def _identity(text: str) -> tuple[str, Read[Any]]:
    try:
        return "cross-domain statement", CROSSING.read(text)
    except BadStatement:
        read = IDENTITY.read(text)
        return "identity statement" if read.value.guest_of is None else "guest statement", read


def _about_roles(text: str, form: Form) -> Read[AboutRoles]:
    """What a certificate about roles says, in its own words."""
    try:
        payload = json_.loads(said_payload(text, form))
        if not isinstance(payload, dict) or not form.required <= payload.keys():
            raise ValueError("claims are missing")  # noqa: TRY301 - as with all else that is no certificate
        list(_of_roles(payload, str))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BadStatement("it does not say what such a certificate says", reason="bad-claim") from None
    issued, until = claims.time(payload["iat"], "iat"), claims.time(payload["exp"], "exp")
    return Read(AboutRoles(payload), digest_of(text), issued, Validity(None, until), claims.audience(payload))


def _as_shown(kind: str, place: str, read: Read[Any]) -> ShownStatement:
    content = read.value
    if isinstance(content, Definition):
        content = {
            "name": f"{content.owner}/{content.name}",
            "attributes": content.attributes,
            "inherited": content.inherited,
            "key": content.key,
            "parent": None if content.parent is None else f"{content.parent.value.owner}/{content.parent.value.name}",
            "credentials": [one.value for one in content.credentials],
        }
    return ShownStatement(kind, place, read.issued, read.audience, read.digest, content)


# -- rows -----------------------------------------------------------------------------------------------------


def _rows(text: str, read: Read[Any], names: KeyNames, now: datetime) -> Iterator[tuple[str, str]]:
    match read.value:
        case Certificate() as statement:
            yield from _certificate(statement, names, now)
        case Identity() as statement:
            yield from _attested(statement, text, names, now)
        case Crossing() as statement:
            yield "id", statement.id
            yield "from", names(statement.issuer)
            yield "says", f"{names(statement.provider)} is an identity provider"
            yield "good", state_words(statement.validity, now)
        case Succession() as statement:
            yield "from", names(statement.old)
            yield "says", f"{names(statement.new)} is my key from now on"
            yield "number", str(statement.number)
            yield (
                "old key",
                "counts on" if statement.until is None else f"counts until {render_timestamp(statement.until)}",
            )
        case RevocationList() as statement:
            yield from _list(statement, names)
        case Definition() as statement:
            yield from _definition(statement, names)
        case AboutRoles() as statement:
            yield from _of_roles(statement.said, names)
            yield "good", state_words(read.validity, now)
    if read.audience is not None:
        yield "only for", joined(read.audience)
    yield "issued", render_timestamp(read.issued)
    vouched = not isinstance(read.value, AboutRoles)
    yield "signature", "good" if vouched else "not verified: show it to a gateway of its domain"


def _of_roles(payload: Mapping[str, Any], names: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    service = str(payload["service"]), str(payload["instance"])
    yield "id", str(payload["jti"])
    yield "from", names(str(payload["iss"]))
    if "sub" in payload:
        yield "to", names(str(payload["sub"]))
    for one in payload.get("roles", ()):
        yield "holds", f"{_role(*service, one)}, record {one['ref']}"
    if "role" in payload:
        yield "elects to", _role(*service, payload)
        yield "whoever holds", joined(map(str, payload["required"])) or "anything"
        yield "elector", names(str(payload["elector"]))
        if payload["revoke_on_exit"]:
            yield "ends", "with the elector's own role"
    if "target" in payload:
        office = payload["elector"]
        yield "may revoke", f"while it is {_role(str(office['service']), str(office['instance']), office)}"
    if "election" in payload:
        yield "election", str(payload["election"])


def _role(service: str, instance: str, said: Mapping[str, Any]) -> str:
    args = [None if one is None else load_argument(one) for one in said["args"]]
    return role_words(service, instance, str(said["role"]), args)


def _certificate(certificate: Certificate, names: KeyNames, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", certificate.id
    yield "from", names(certificate.issuer)
    yield "to", names(certificate.subject)
    for one in certificate.authority:
        yield "may", authority_words(one, names)
    yield "pass it on", "yes" if certificate.delegate else "no"
    yield "good", state_words(certificate.validity, now)
    yield "fresh", freshness_words(certificate.freshness)


def _attested(identity: Identity, text: str, names: KeyNames, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", identity.id
    yield "from", names(identity.issuer)
    yield "about", names(identity.subject)
    yield "attributes", _values(identity.attributes)
    if identity.policy_rule is not None:
        yield "policy rule", render_condition(identity.policy_rule)
    if identity.guest_of is not None:
        yield "guest of", names(identity.guest_of)
        yield "made from", str(identity.origin)
        yield "mapping", str(made_by(text))
    yield "good", state_words(identity.validity, now)


def _values(attributes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {show_value(value)}" for name, value in attributes.items()) or "none"


def _list(listing: RevocationList, names: KeyNames) -> Iterator[tuple[str, str]]:
    yield "from", names(listing.issuer)
    yield "number", str(listing.number)
    some = sorted(listing.revoked)[:SHOWN_IDS]
    more = len(listing.revoked) - len(some)
    yield "revoked", (", ".join(some) or "nothing") + (f" and {more} more" if more else "")


def _definition(definition: Definition, names: KeyNames) -> Iterator[tuple[str, str]]:
    yield "name", definition.name
    yield "owner", names(definition.owner)
    if definition.parent is not None:
        yield "extends", f"{definition.parent.value.name} of {names(definition.parent.value.owner)}"
    yield "attributes", ", ".join(f"{name}: {kind.value}" for name, kind in definition.attributes.items()) or "none"
    if definition.inherited:
        yield "inherited", ", ".join(f"{name}: {kind.value}" for name, kind in definition.inherited.items())
    if definition.key:
        yield "key", ", ".join(definition.key)
    yield "carries", f"{len(definition.credentials)} certificate{'' if len(definition.credentials) == 1 else 's'}"
