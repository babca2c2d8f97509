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
from headgate.trust import certificates, claims, identities, revocations, role_statements, successions, typedefs
from headgate.trust.bags import said_kind
from headgate.trust.certificates import read_certificate
from headgate.trust.guests import Crossing, made_by, read_crossing
from headgate.trust.identities import read_identity
from headgate.trust.revocations import read_revocations
from headgate.trust.statements import Form, Read, digest_of, said_payload
from headgate.trust.successions import read_succession
from headgate.trust.typedefs import Definition, read_type

SHOWN_IDS: Final = 20
"""Entries of a revocation list that are shown; all are in the JSON."""

_ABOUT_ROLES: Final = {
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
    found = [(one, *_read(one)) for one in written]
    if json:
        print_json([_as_shown(kind, one.place, read) for one, kind, read in found])
        return
    for number, (one, kind, read) in enumerate(found):
        if number:
            say()
        say((kind, "bold"), (f"  {one.place}", "dim"))
        shown = table("", "")
        shown.show_header = False
        for name, value in _rows(one.text, read, names, now):
            shown.add_row(*cells(f"  {name}", value))
        out.print(shown)
    say_legend(names)


def _read(one: WrittenStatement) -> tuple[str, Read[Any]]:
    """What a statement is called, and what it says."""
    try:
        match said_kind(one.text):
            case certificates.FORM.typ:
                return "certificate", read_certificate(one.text)
            case successions.FORM.typ:
                return "succession", read_succession(one.text)
            case revocations.FORM.typ:
                return "revocation list", read_revocations(one.text)
            case typedefs.FORM.typ:
                return "event type", read_type(one.text)
            case identities.TYPE:
                return _identity(one.text)
            case kind if kind in _ABOUT_ROLES:
                name, form = _ABOUT_ROLES[kind]
                return name, _about_roles(one.text, form)
            case other:
                raise BadStatement(
                    f"a statement `{brief(other)}` is not known here",
                    reason="wrong-type",
                    remedy="show certificates, identity statements, successions, revocation lists or event types",
                )
    except HeadgateError as error:
        error.place = one.place
        raise


def _identity(text: str) -> tuple[str, Read[Any]]:
    try:
        return "cross-domain statement", read_crossing(text)
    except BadStatement:
        read = read_identity(text)
        return "identity statement" if read.value.guest_of is None else "guest statement", read


def _about_roles(text: str, form: Form) -> Read[AboutRoles]:
    """What a certificate about roles says, in its own words."""
    try:
        said = json_.loads(said_payload(text, form))
        if not isinstance(said, dict) or not form.required <= said.keys():
            raise ValueError("claims are missing")  # noqa: TRY301 - as with all else that is no certificate
        list(_of_roles(said, str))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BadStatement("it does not say what such a certificate says", reason="bad-claim") from None
    issued, until = claims.time(said["iat"], "iat"), claims.time(said["exp"], "exp")
    return Read(AboutRoles(said), digest_of(text), issued, Validity(None, until), claims.audience(said))


def _as_shown(kind: str, place: str, read: Read[Any]) -> ShownStatement:
    said = read.value
    if isinstance(said, Definition):
        said = {
            "name": f"{said.owner}/{said.name}",
            "attributes": said.attributes,
            "inherited": said.inherited,
            "key": said.key,
            "parent": None if said.parent is None else f"{said.parent.value.owner}/{said.parent.value.name}",
            "credentials": [one.value for one in said.credentials],
        }
    return ShownStatement(kind, place, read.issued, read.audience, read.digest, said)


# -- rows -----------------------------------------------------------------------------------------------------


def _rows(text: str, read: Read[Any], names: KeyNames, now: datetime) -> Iterator[tuple[str, str]]:
    match read.value:
        case Certificate() as found:
            yield from _certificate(found, names, now)
        case Identity() as found:
            yield from _attested(found, text, names, now)
        case Crossing() as found:
            yield "id", found.id
            yield "from", names(found.issuer)
            yield "says", f"{names(found.provider)} is an identity provider"
            yield "good", state_words(found.validity, now)
        case Succession() as found:
            yield "from", names(found.old)
            yield "says", f"{names(found.new)} is my key from now on"
            yield "number", str(found.number)
            yield "old key", "counts on" if found.until is None else f"counts until {render_timestamp(found.until)}"
        case RevocationList() as found:
            yield from _list(found, names)
        case Definition() as found:
            yield from _definition(found, names)
        case AboutRoles() as found:
            yield from _of_roles(found.said, names)
            yield "good", state_words(read.validity, now)
    if read.audience is not None:
        yield "only for", joined(read.audience)
    yield "issued", render_timestamp(read.issued)
    vouched = not isinstance(read.value, AboutRoles)
    yield "signature", "good" if vouched else "not verified: show it to a gateway of its domain"


def _of_roles(said: Mapping[str, Any], names: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    place = str(said["service"]), str(said["instance"])
    yield "id", str(said["jti"])
    yield "from", names(str(said["iss"]))
    if "sub" in said:
        yield "to", names(str(said["sub"]))
    for one in said.get("roles", ()):
        yield "holds", f"{_role(*place, one)}, record {one['ref']}"
    if "role" in said:
        yield "elects to", _role(*place, said)
        yield "whoever holds", joined(map(str, said["required"])) or "anything"
        yield "elector", names(str(said["elector"]))
        if said["revoke_on_exit"]:
            yield "ends", "with the elector's own role"
    if "target" in said:
        office = said["elector"]
        yield "may revoke", f"while it is {_role(str(office['service']), str(office['instance']), office)}"
    if "election" in said:
        yield "election", str(said["election"])


def _role(service: str, instance: str, said: Mapping[str, Any]) -> str:
    args = [None if one is None else load_argument(one) for one in said["args"]]
    return role_words(service, instance, str(said["role"]), args)


def _certificate(found: Certificate, names: KeyNames, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", found.id
    yield "from", names(found.issuer)
    yield "to", names(found.subject)
    for one in found.authority:
        yield "may", authority_words(one, names)
    yield "pass it on", "yes" if found.delegate else "no"
    yield "good", state_words(found.validity, now)
    yield "fresh", freshness_words(found.freshness)


def _attested(found: Identity, text: str, names: KeyNames, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", found.id
    yield "from", names(found.issuer)
    yield "about", names(found.subject)
    yield "attributes", _values(found.attributes)
    if found.policy_rule is not None:
        yield "policy rule", render_condition(found.policy_rule)
    if found.guest_of is not None:
        yield "guest of", names(found.guest_of)
        yield "made from", str(found.origin)
        yield "mapping", str(made_by(text))
    yield "good", state_words(found.validity, now)


def _values(attributes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {show_value(value)}" for name, value in attributes.items()) or "none"


def _list(found: RevocationList, names: KeyNames) -> Iterator[tuple[str, str]]:
    yield "from", names(found.issuer)
    yield "number", str(found.number)
    some = sorted(found.revoked)[:SHOWN_IDS]
    more = len(found.revoked) - len(some)
    yield "revoked", (", ".join(some) or "nothing") + (f" and {more} more" if more else "")


def _definition(found: Definition, names: KeyNames) -> Iterator[tuple[str, str]]:
    yield "name", found.name
    yield "owner", names(found.owner)
    if found.parent is not None:
        yield "extends", f"{found.parent.value.name} of {names(found.parent.value.owner)}"
    yield "attributes", ", ".join(f"{name}: {kind.value}" for name, kind in found.attributes.items()) or "none"
    if found.inherited:
        yield "inherited", ", ".join(f"{name}: {kind.value}" for name, kind in found.inherited.items())
    if found.key:
        yield "key", ", ".join(found.key)
    yield "carries", f"{len(found.credentials)} certificate{'' if len(found.credentials) == 1 else 's'}"
