"""`headgate type`: sign event types, verify signed ones, and declare them at a node.

Guarantees: a definition carries all that allows it, so that it verifies anywhere without a look-up; what would be
refused elsewhere is not signed. Verifying leaves with 0 if the owner was allowed to make the type, and with 1 if not or
no longer; whether revocation could be checked is said.
"""

from __future__ import annotations

from operator import eq
from pathlib import Path
from typing import Annotated, Final

import typer

from headgate.cli.shared import options as opt
from headgate.cli.shared.common import group, utc_now
from headgate.cli.shared.connection import PresentingConnection
from headgate.cli.shared.options import argument, moment_of, option
from headgate.cli.shared.rendering import count_of, remark, say
from headgate.cli.statements import offline_verify as offline
from headgate.cli.statements.statement_files import KeyNames, Signing, hand_out, pieces, read_all, read_one
from headgate.cli.statements.statement_rendering import say_legend, steps, validity_words
from headgate.model.errors import BadStatement, Expired, Revoked
from headgate.model.types import Times
from headgate.model.values import Kind, brief
from headgate.trust.certificates import REVOCATIONS
from headgate.trust.typedefs import TYPE_DEFINITION, SignedType, issue_type, verify_type

_REFUSALS: Final = (BadStatement, Expired, Revoked)

FileArgument = Annotated[Path, argument("FILE", "A file with a signed type.")]
AttributesArgument = Annotated[
    list[str] | None,
    argument("NAME:KIND...", f"Its attributes; kinds: {', '.join(kind.value for kind in Kind)}.", unset=False),
]
WithOption = Annotated[
    list[Path] | None,
    option("--with FILE", "Certificates that allow it: `install`, or `extend` of the parent; repeatable."),
]
ExtendsOption = Annotated[Path | None, option("--extends FILE", "The signed type whose attributes it inherits.")]
KeyAttributes = Annotated[str | None, option("--key-attributes NAMES", "One current event for each value of these.")]
TimesOption = Annotated[str | None, option("--times WHO", "Who says when its events occurred: publisher or gateway.")]
LatenessOption = Annotated[float | None, option("--lateness SECONDS", "By how much its events may be late.")]
AheadOption = Annotated[float | None, option("--ahead SECONDS", "How far past the gateway's clock a time may lie.")]
ClockErrorOption = Annotated[float | None, option("--clock-error SECONDS", "By how much clocks may be wrong.")]
DerivedOption = Annotated[
    str | None, option("--derived HOW", "Detections make its events: contributors or declassified.")
]
DeclassifiedOption = Annotated[
    list[str] | None, option("--declassified-for WHO/TYPE", "It is declassified for this derived type; repeatable.")
]
TypeArgument = Annotated[str, argument("TYPE", "A type of one's own.")]
ForOption = Annotated[str, option("--for TYPE", "The type of the derived events.")]
RootOption = Annotated[str, option("--coordinator WHO", "The domain that coordinates the network.")]
ListsOption = Annotated[list[Path] | None, option("--list FILE", "Revocation lists of who allows it; repeatable.")]


def sign(
    name: Annotated[str, argument("NAME", "Its dotted name, such as `uk.gov.pito.Numberplate`.")],
    who: opt.Signer,
    attributes: AttributesArgument = None,
    with_: WithOption = None,
    extends: ExtendsOption = None,
    key_attributes: KeyAttributes = None,
    times: TimesOption = None,
    lateness: LatenessOption = None,
    ahead: AheadOption = None,
    clock_error: ClockErrorOption = None,
    derived: DerivedOption = None,
    declassified_for: DeclassifiedOption = None,
    *,
    signing: Signing,
) -> None:
    """Sign an event type as its owner, together with the certificates that allow it.

    For example:

    `headgate type sign uk.gov.pito.Numberplate location:string numberplate:string seen:timestamp
    --as pito --with install.jwt -o numberplate.jwt`

    `headgate type sign met.Chase officer:string --as met --extends numberplate.jwt --with extend.jwt`
    """
    names = signing.names
    kinds = _kinds(attributes or [])
    parent = None if extends is None else read_one(extends)
    written = read_all(with_ or [])
    carried = offline.certificates_of(written)
    chain = offline.in_order(carried) if carried else ()
    texts = {one.key: each.text for one, each in zip(carried, written, strict=True)}
    by = signing.key(who)
    text = issue_type(
        by,
        name=name,
        attributes=kinds,
        now=utc_now(),
        credentials=[texts[one.key] for one in chain],
        parent=None if parent is None else parent.text,
        key=pieces(key_attributes or ""),
        times=Times.said(times, lateness, ahead, clock_error),
        derived=derived,
        declassified_for=[_whose(given, names) for given in declassified_for or ()],
    )
    by_whom = names(by.public.did)
    count = count_of(len(chain), "certificate") if chain else "no certificate"
    hand_out(text, signing.out, f"{by_whom} signs {name}, with {count}")
    if not chain:
        above = by.public.did if parent is None else TYPE_DEFINITION.read(parent.text).value.owner
        remark(
            f"nobody can use it: give with `--with` the certificates by which {names(above)} lets {by_whom} extend"
            if above != by.public.did
            else f"only where {by_whom} coordinates the network can it be used: elsewhere it needs `install` (`--with`)"
        )


def _whose(given: str, names: KeyNames) -> tuple[str, str]:
    whose, slash, name = given.partition("/")
    if not slash:
        raise typer.BadParameter(f"`{given}` is not WHO/TYPE")
    return names.did(whose, "--declassified-for"), name


def _kinds(given: list[str]) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    known = {kind.value: kind for kind in Kind}
    for pair in given:
        name, colon, kind = pair.partition(":")
        if not colon or kind not in known:
            raise typer.BadParameter(f"`{pair}` is not NAME:KIND with a kind of {', '.join(known)}")
        if name in kinds:
            raise typer.BadParameter(f"`{name}` is given twice")
        kinds[name] = known[kind]
    return kinds


def verify(
    file: FileArgument,
    coordinator: RootOption,
    list_: ListsOption = None,
    audience: opt.Heard = None,
    at: opt.At = None,
    keys: opt.Keys = None,
) -> None:
    """Verify a signed type by itself: that its owner signed it, and was allowed to make it.

    Revocation lists that lie beside the file count, and so do those that `--list` names; of whom there is none is said.

    For example:

    `headgate type verify numberplate.jwt --coordinator police`

    `headgate type verify numberplate.jwt --coordinator police --list police-revoked.jwt`
    """
    names = KeyNames(keys)
    now = utc_now() if at is None else moment_of(at, "--at")
    root = names.did(coordinator, "--coordinator")
    written, given = read_one(file), read_all(list_ or [])
    try:
        signed_type = verify_type(written.text, coordinator=root, now=now, audience=audience)
        lists = (*(REVOCATIONS.verify(one.text, now=now) for one in given), *offline.lists_beside([file], now))
        for one in signed_type.certificates:
            if any(each.issuer == one.issuer and one.id in each.revoked for each in lists):
                raise Revoked(
                    f"the certificate `{brief(one.id)}` was revoked, which allows `{brief(signed_type.name)}`"
                )
    except _REFUSALS as error:
        offline.refuse(error, names)
    _say_type(signed_type, names)
    offline.say_checked(offline.check_lists((one.issuer for one in signed_type.certificates), lists, eq), names)
    say_legend(names)


def _say_type(signed_type: SignedType, names: KeyNames) -> None:
    parent, owner = signed_type.parent, names(signed_type.owner)
    above = "" if parent is None else f", extends {parent.name} of {names(parent.owner)}"
    say((signed_type.name, "bold green"), f" of {owner}{above}")
    for name, kind in signed_type.attributes.items():
        say(f"  {name}: {kind.value}")
    if signed_type.times is not None:
        say("  " + ", ".join(f"{name} {value}" for name, value in signed_type.times.as_said().items()))
    if signed_type.derived is not None:
        say(f"  derived: {signed_type.derived}")
    for whose, derived in sorted(signed_type.declassified_for):
        say(f"  declassified for {derived} of {names(whose)}")
    if signed_type.chain:
        last = steps(signed_type.chain, names)[-1].reduced
        say(f"  allowed by {names(signed_type.chain[0].issuer)}, {validity_words(last.validity)}")
    else:
        say("  allowed by nobody: its owner coordinates the network")


def declare(file: FileArgument, *, connection: PresentingConnection) -> None:
    """Declare a signed type at a node, which verifies it by itself and keeps it as it was signed.

    For example:

    `headgate type declare numberplate.jwt --as pito`
    """
    written = read_one(file)
    read = TYPE_DEFINITION.read(written.text).value
    with connection.client() as client:
        told = client.declare_signed_type(written.text)
        say(("declared ", "bold green"), f"{told.name} of {told.owner}", "" if told.name == read.name else " (renamed)")


def declassify(name: TypeArgument, for_: ForOption, *, connection: PresentingConnection) -> None:
    """Declassify a type that one governs for events of a derived type.

    Where the derived type says `derived: declassified`, detections publish its events only while all types that they
    look at are declassified for it. Whoever may read those may then learn what they tell of one's own events.

    For example:

    `headgate type declassify uk.gov.pito.Numberplate --for uk.gov.met.Convoy --as pito`
    """
    with connection.client() as client:
        client.declassify(name, for_)
        say(("declassified ", "bold green"), f"{name} for {for_}")


def reclassify(name: TypeArgument, for_: ForOption, *, connection: PresentingConnection) -> None:
    """Take a declassification back: events of the derived type are refused from then on, and earlier ones stay.

    For example:

    `headgate type reclassify uk.gov.pito.Numberplate --for uk.gov.met.Convoy --as pito`
    """
    with connection.client() as client:
        client.reclassify(name, for_)
        say(("classified ", "bold green"), f"{name} for {for_} again")


app = group(sign, verify, declare, declassify, reclassify)
