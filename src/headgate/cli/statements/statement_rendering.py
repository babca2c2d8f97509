"""Signed statements of every kind as people read them, and as JSON: in words; and chains of certificates, drawn.

Guarantees: only what was signed is shown: each statement's signature is verified first. Nothing of it is judged, except
that what has ended is said to have; whether anything counts is `cert`'s part. Certificates about roles are signed with
keys that only their own domain vouches for: they are shown as they are, and it is said that nobody has verified them.
What a link of a chain gives beyond what its issuer holds is shown as cut, with what is left of it. On a terminal a
chain is a tree; elsewhere the same lines are plain text with arrows. Keys are called by names, and a legend has them
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import eq
from typing import Any, Final

from rich.text import Text
from rich.tree import Tree

from headgate.authority.chains import Reduced, Same, as_reduced, combine, meet
from headgate.cli.shared import rendering
from headgate.cli.shared.common import out, placed, printable
from headgate.cli.shared.rendering import count_of, joined, print_json, say, show_table
from headgate.cli.statements.statement_files import KeyNames, WrittenStatement
from headgate.lang.render import render_condition
from headgate.model import authority as stated
from headgate.model.authority import ANY, Authority, Certificate, Identity, TypeAuthority, Validity
from headgate.model.errors import BadStatement
from headgate.model.expressions import TRUE
from headgate.model.rights import Action
from headgate.model.roles import load_argument
from headgate.model.values import Value, brief, render_timestamp
from headgate.trust import claims, role_statements
from headgate.trust.certificates import CERTIFICATE, REVOCATIONS, SUCCESSION
from headgate.trust.identities import CROSSING, IDENTITY, Crossing, made_by
from headgate.trust.statements import Form, Read, digest_of, said_claims, said_kind
from headgate.trust.typedefs import TYPE_DEFINITION, Definition

# -- words ----------------------------------------------------------------------------------------------------


def authority_words(authority: Authority, names: KeyNames) -> str:
    """What an authority gives, on one line."""
    match authority:
        case stated.NetworkAuthority(actions, network):
            return f"{_actions(actions)} on {'every network' if network == ANY else f'the network {network}'}"
        case TypeAuthority(actions, pattern, owner, _, _, where):
            whose = "" if owner is None else f" of {names(owner)}"
            to = " to" if Action.SUBSCRIBE in actions else ""  # the last in order
            parts = [f"{_actions(actions)}{to} {'every type' if pattern == ANY else pattern}{whose}"]
            if listed := _attributes(authority):
                parts.append(f"({listed})")
            if where != TRUE:
                parts.append(f"where {render_condition(where)}")
            return " ".join(parts)


def validity_words(validity: Validity) -> str:
    """When something is good, with its ends as they are written."""
    words = []
    if validity.start is not None:
        words.append(f"from {render_timestamp(validity.start)}")
    if validity.until is not None:
        words.append(f"until {render_timestamp(validity.until)}")
    return " ".join(words) or "at any time"


def state_words(validity: Validity, now: datetime) -> str:
    """When something is good, and how that is now."""
    if validity.is_over(now):
        return f"{validity_words(validity)} (has ended)"
    return validity_words(validity) + ("" if validity.holds(now) else " (has not begun)")


def freshness_words(seconds: int | None) -> str:
    """How long an issuer's silence is borne."""
    return "needs no word from its issuer" if seconds is None else f"only if its issuer was heard within {seconds} s"


def _actions(actions: frozenset[Action]) -> str:
    return joined(sorted(action.value for action in actions))


def _attributes(authority: TypeAuthority) -> str:
    """The attributes and the values they must have; nothing if all are meant."""
    if authority.attributes is None and not authority.forced:
        return ""
    named = [
        *(authority.attributes or ()),
        *(name for name in authority.forced if name not in (authority.attributes or ())),
    ]
    found = [f"{name} = {_value(authority.forced[name])}" if name in authority.forced else name for name in named]
    return ", ".join(found) or "no attributes"


def _value(value: object) -> str:
    assert isinstance(value, Value)
    return rendering.show_constant(value)


# -- what a link does not get ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One link of a chain: what it gives, what of that is cut, and what there is up to here."""

    certificate: Certificate
    cut: tuple[str, ...]
    reduced: Reduced


def steps(chain: Sequence[Certificate], names: KeyNames, same: Same = eq) -> list[ChainStep]:
    """A chain, link by link, from the first issuer on; as far as something is left."""
    chain_steps: list[ChainStep] = []
    so_far: Reduced | None = None
    for certificate in chain:
        link = as_reduced(certificate)
        after = link if so_far is None else combine(so_far, link, same)
        if after is None:
            break
        cut = () if so_far is None else tuple(_cuts(so_far, link, after, names, same))
        chain_steps.append(ChainStep(certificate, cut, after))
        so_far = after
    return chain_steps


def _cuts(before: Reduced, link: Reduced, after: Reduced, names: KeyNames, same: Same) -> Iterator[str]:
    """What a link gives and its issuer does not have."""
    giver = names(link.issuer)
    for wanted in link.authority:
        left = [found for one in before.authority if (found := meet(one, wanted, same)) is not None]
        if not left:
            yield f"{authority_words(wanted, names)}: {giver} does not have it"
            continue
        if lost := wanted.actions - frozenset[Action]().union(*(one.actions for one in left)):
            yield f"{_actions(lost)}: {giver} may not"
        if isinstance(wanted, TypeAuthority):
            yield from _type_cuts(wanted, [one for one in left if isinstance(one, TypeAuthority)], giver)
    if after.validity.until != link.validity.until and after.validity.until is not None:
        end = "without end" if link.validity.until is None else f"until {render_timestamp(link.validity.until)}"
        yield f"{end}: what {giver} has ends {render_timestamp(after.validity.until)}"
    if after.validity.start != link.validity.start and after.validity.start is not None:
        yield f"what {giver} has begins {render_timestamp(after.validity.start)}"


def _type_cuts(wanted: TypeAuthority, left: Sequence[TypeAuthority], giver: str) -> Iterator[str]:
    if all(one.type != wanted.type for one in left):
        yield f"{wanted.type} beyond {joined(dict.fromkeys(one.type for one in left))}"
    if all(one.attributes is not None for one in left):
        kept = [name for one in left for name in one.attributes or ()]
        if wanted.attributes is None:
            yield f"attributes other than {', '.join(dict.fromkeys(kept)) or 'none'}"
        elif lost := [name for name in wanted.attributes if name not in kept]:
            yield f"the attribute{'s' if len(lost) > 1 else ''} {joined(lost)}: {giver} does not have it"
    for name in dict.fromkeys(name for one in left for name in one.forced if name not in wanted.forced):
        values = dict.fromkeys(_value(one.forced[name]) for one in left if name in one.forced)
        yield f"every {name} but {joined(values)}"
    if all(one.where != wanted.where for one in left):
        yield f"whatever is not so: {joined(dict.fromkeys(render_condition(one.where) for one in left))}"


# -- drawings -------------------------------------------------------------------------------------------------


def draw_chain(chain: Sequence[Certificate], names: KeyNames, same: Same = eq) -> None:
    """A chain from the owner to the holder, with what each link gives and what of it is cut."""
    root = Text(names(chain[0].issuer), "bold")
    lines = [_link(step, names) for step in steps(chain, names, same)]
    if not out.is_terminal:
        out.print(root, highlight=False)
        for depth, line in enumerate(lines, 1):
            first, *rest = line.plain.split("\n")
            print("  " * depth + f"-> {first}")
            for more in rest:
                print("  " * depth + f"   {more}")
        return
    tree = at = Tree(root)
    for line in lines:
        at = at.add(line)
    out.print(tree, highlight=False)


def _link(step: ChainStep, names: KeyNames) -> Text:
    certificate = step.certificate
    text = Text.assemble((names(certificate.subject), "bold"))
    for authority in certificate.authority:
        text.append(f"\nmay {printable(authority_words(authority, names))}")
    text.append(
        f"\n{'may pass it on, ' if certificate.delegate else ''}{validity_words(certificate.validity)}", style="dim"
    )
    if certificate.freshness is not None:
        text.append(f", {freshness_words(certificate.freshness)}", style="dim")
    text.append(f"\ncertificate {printable(certificate.id)}", style="dim")
    for cut in step.cut:
        text.append("\ncut ", style="bold yellow")
        text.append(printable(cut), style="yellow")
    return text


def say_reduced(reduced: Reduced, names: KeyNames) -> None:
    """The one five-tuple that a chain comes to."""
    for one in reduced.authority:
        say((names(reduced.subject), "bold green"), f" may {authority_words(one, names)}")
    passing = "may pass it on" if reduced.delegate else "may not pass it on"
    say(f"  {passing}, {validity_words(reduced.validity)}")
    for issuer, seconds in reduced.freshness:
        say(f"  only if {names(issuer)} was heard within {seconds} s")


def say_legend(names: KeyNames) -> None:
    """The keys behind the names, whole."""
    if not names.used:
        return
    say()
    show_table(("name", "key"), ((name, did) for did, name in names.used.items()))


SHOWN_IDS: Final = 20
"""Entries of a revocation list that are shown; all are in the JSON."""


@dataclass(frozen=True, slots=True)
class AboutRoles:
    """What a certificate about roles says; nobody has verified it."""

    said: Mapping[str, Any]
    verified: bool = False


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
        rendering.show_facts((f"  {name}", fact) for name, fact in _facts(statement.text, read, names, now))
    say_legend(names)


def _read(statement: WrittenStatement) -> tuple[str, Read[Any]]:
    """What a statement is called, and what it says."""
    with placed(statement.place, exactly=True):
        kind = said_kind(statement.text)
        if kind not in _READERS:
            raise BadStatement(
                f"a statement `{brief(kind)}` is not known here",
                reason="wrong-type",
                remedy="show certificates, identity statements, successions, revocation lists or event types",
            )
        name, read = _READERS[kind]
        content = read(statement.text)
        if isinstance(content.value, Crossing):
            name = "cross-domain statement"
        elif isinstance(content.value, Identity) and content.value.guest_of is not None:
            name = "guest statement"
        return name, content


def _identity(text: str) -> Read[Any]:
    try:
        return CROSSING.read(text)
    except BadStatement:
        return IDENTITY.read(text)


def _about_roles(form: Form, text: str) -> Read[AboutRoles]:
    """What a certificate about roles says, in its own words."""
    try:
        payload = said_claims(text)
        if not form.required <= payload.keys():
            raise ValueError("claims are missing")  # noqa: TRY301 - as with all else that is no certificate
        list(_of_roles(payload, str))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BadStatement("it does not say what such a certificate says", reason="bad-claim") from None
    issued, until = claims.time(payload["iat"], "iat"), claims.time(payload["exp"], "exp")
    return Read(AboutRoles(payload), digest_of(text), issued, Validity(None, until), claims.audience(payload))


_READERS: Final[Mapping[str, tuple[str, Callable[[str], Read[Any]]]]] = {
    CERTIFICATE.typ: ("certificate", CERTIFICATE.read),
    IDENTITY.typ: ("identity statement", _identity),
    SUCCESSION.typ: ("succession", SUCCESSION.read),
    REVOCATIONS.typ: ("revocation list", REVOCATIONS.read),
    TYPE_DEFINITION.typ: ("event type", TYPE_DEFINITION.read),
    **{
        form.typ: (f"{name} certificate", partial(_about_roles, form))
        for name, form in (
            ("role", role_statements.ROLE),
            ("appointment", role_statements.APPOINTMENT),
            ("delegation", role_statements.DELEGATION),
            ("revocation", role_statements.REVOCATION),
        )
    },
}


def _as_shown(kind: str, place: str, read: Read[Any]) -> dict[str, object]:
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
    about = {"kind": kind, "place": place, "issued": read.issued, "audience": read.audience, "digest": read.digest}
    return about | {"says": content}


# -- rows -----------------------------------------------------------------------------------------------------


def _facts(text: str, read: Read[Any], names: KeyNames, now: datetime) -> Iterator[tuple[str, str | None]]:
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
        case stated.Succession() as statement:
            yield "from", names(statement.old)
            yield "says", f"{names(statement.new)} is my key from now on"
            yield "number", str(statement.number)
            until = statement.until
            yield "old key", "counts on" if until is None else f"counts until {render_timestamp(until)}"
        case stated.RevocationList() as statement:
            yield "from", names(statement.issuer)
            yield "number", str(statement.number)
            some = sorted(statement.revoked)[:SHOWN_IDS]
            more = len(statement.revoked) - len(some)
            yield "revoked", (", ".join(some) or "nothing") + (f" and {more} more" if more else "")
        case Definition() as statement:
            yield from _definition(statement, names)
        case AboutRoles() as statement:
            yield from _of_roles(statement.said, names)
            yield "good", state_words(read.validity, now)
    yield "only for", None if read.audience is None else joined(read.audience)
    yield "issued", render_timestamp(read.issued)
    vouched = not isinstance(read.value, AboutRoles)
    yield "signature", "good" if vouched else "not verified: show it to a gateway of its domain"


def _of_roles(payload: Mapping[str, Any], names: Callable[[str], str]) -> Iterator[tuple[str, str | None]]:
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
        yield "ends", "with the elector's own role" if payload["revoke_on_exit"] else None
    if "target" in payload:
        office = payload["elector"]
        yield "may revoke", f"while it is {_role(str(office['service']), str(office['instance']), office)}"
    if "election" in payload:
        yield "election", str(payload["election"])


def _role(service: str, instance: str, said: Mapping[str, Any]) -> str:
    args = [None if one is None else load_argument(one) for one in said["args"]]
    return rendering.role_words(service, instance, str(said["role"]), args)


def _certificate(certificate: Certificate, names: KeyNames, now: datetime) -> Iterator[tuple[str, str | None]]:
    yield "id", certificate.id
    yield "from", names(certificate.issuer)
    yield "to", names(certificate.subject)
    for one in certificate.authority:
        yield "may", authority_words(one, names)
    yield "pass it on", "yes" if certificate.delegate else "no"
    yield "good", state_words(certificate.validity, now)
    yield "fresh", freshness_words(certificate.freshness)


def _attested(identity: Identity, text: str, names: KeyNames, now: datetime) -> Iterator[tuple[str, str | None]]:
    yield "id", identity.id
    yield "from", names(identity.issuer)
    yield "about", names(identity.subject)
    yield "attributes", attribute_words(identity.attributes) or "none"
    yield "policy rule", None if identity.policy_rule is None else render_condition(identity.policy_rule)
    if identity.guest_of is not None:
        yield "guest of", names(identity.guest_of)
        yield "made from", str(identity.origin)
        yield "mapping", str(made_by(text))
    yield "good", state_words(identity.validity, now)


def attribute_words(attributes: Mapping[str, Any]) -> str:
    """`nation = NO, clearance = secret`."""
    return ", ".join(f"{name} = {rendering.show_value(value)}" for name, value in attributes.items())


def _definition(definition: Definition, names: KeyNames) -> Iterator[tuple[str, str | None]]:
    yield "name", definition.name
    yield "owner", names(definition.owner)
    if definition.parent is not None:
        yield "extends", f"{definition.parent.value.name} of {names(definition.parent.value.owner)}"
    yield "attributes", ", ".join(f"{name}: {kind.value}" for name, kind in definition.attributes.items()) or "none"
    yield "inherited", ", ".join(f"{name}: {kind.value}" for name, kind in definition.inherited.items())
    yield "key", ", ".join(definition.key)
    said = {} if definition.times is None else definition.times.as_said()
    yield "times", ", ".join(f"{name} {value}" for name, value in said.items())
    yield "derived", definition.derived
    released = (f"{name} of {names(owner)}" for owner, name in sorted(definition.declassified_for))
    yield "declassified for", ", ".join(released)
    yield "carries", count_of(len(definition.credentials), "certificate")
