"""`headgate cert`: issue, show, verify, reduce and revoke authorisation certificates.

Guarantees: nothing is issued that would be refused elsewhere; a signed text goes to standard output or a new file and
nothing else does. Verifying leaves with 0 if the holder gets something from an owner or a coordinator that was named,
with 1 if not or if nobody was named, and with 2 if it could not be found out; whose revocation lists were not there is
said. A revocation list never falls behind one that the same key has signed on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from headgate.authority.reduction import Reduced
from headgate.cli.shared.common import fail, shows_errors, utc_now
from headgate.cli.shared.connection import NodeConnection, connects
from headgate.cli.shared.rendering import check_text, print_json, say
from headgate.cli.shared.times import moment_of, seconds_of
from headgate.cli.statements.authority_syntax import actions_of, attributes_of, given_right
from headgate.cli.statements.certificate_rendering import (
    authority_words,
    draw_chain,
    say_legend,
    say_reduced,
    steps,
    validity_words,
)
from headgate.cli.statements.keys import Json, KeysOption, PassphraseFile
from headgate.cli.statements.list_check import ListCheck, check_lists, lists_beside, say_checked
from headgate.cli.statements.offline_verify import (
    NOBODY,
    VerifyGround,
    WantedType,
    certificates_of,
    holder_of,
    in_order,
    opened,
)
from headgate.cli.statements.revocation_lists import ids_of, revoke_at_service, revoke_in_file
from headgate.cli.statements.statement_files import (
    AtOption,
    AudienceOption,
    FilesArgument,
    ForOption,
    FromOption,
    HeardOption,
    KeyNames,
    OutOption,
    SignerOption,
    SubjectOption,
    UntilOption,
    condition_of,
    hand_out,
    joined,
    read_all,
    remark,
    signer,
    validity_of,
)
from headgate.cli.statements.statement_rendering import show_all
from headgate.model.authority import NETWORK_ACTIONS, TYPE_ACTIONS, Authority, NetworkAuthority, TypeAuthority
from headgate.model.conditions import TRUE
from headgate.model.errors import BadStatement, ChainInvalid, Expired, Revoked
from headgate.model.limits import MAX_AUTHORITIES
from headgate.trust.certificates import CERTIFICATE, issue_certificate

app = typer.Typer(
    help="Issue certificates, look at them, and find out what they give.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_REFUSALS: Final = (ChainInvalid, Expired, Revoked, BadStatement)
"""What is an answer of `verify`, and no failure of it."""
_NOBODY: Final = "nobody was named to believe"
_NAME_ONE: Final = "name the owner of the types with `--owner`, or the coordinating domain with `--coordinator`"

TypeOption = Annotated[
    str | None,
    typer.Option("--type", metavar="PATTERN", help="The types: `a.b.Name`, `a.b.*` or `OWNER/a.b.*`."),
]
NetworkOption = Annotated[str | None, typer.Option("--network", metavar="NAME", help="The network; `*` for any.")]
MayOption = Annotated[
    str | None,
    typer.Option(
        "--may", "--actions", metavar="ACTIONS", help="publish, subscribe, extend; or connect, install; `*` for all."
    ),
]
GiveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--give",
        metavar="RIGHT",
        help="A right in one piece: `ACTIONS TYPE (NAMES) where CONDITION`, or `ACTIONS network NAME`; repeatable.",
    ),
]
AttributesOption = Annotated[
    str | None,
    typer.Option(
        "--attributes",
        metavar="NAMES",
        help="Only these attributes; `name=value` forces a value.",
        show_default="all",
    ),
]
WhereOption = Annotated[
    str | None, typer.Option("--where", metavar="CONDITION", help="Only events for which it holds.")
]
DelegateOption = Annotated[bool, typer.Option("--delegate", help="Let the holder pass it on.")]
FreshnessOption = Annotated[
    str | None,
    typer.Option("--freshness", metavar="TIME", help="How long it counts without a word from you, such as `5m`."),
]
CoordinatorOption = Annotated[
    str | None, typer.Option("--coordinator", metavar="WHO", help="The domain that coordinates the network.")
]
OwnerOption = Annotated[
    str | None,
    typer.Option(
        "--owner",
        metavar="WHO",
        help="The owner of the types, at whom chains begin: a DID, a name of your keys, or a file with its key "
        "(`.did`) or with a type that it signed.",
        show_default="nobody",
    ),
]
HolderOption = Annotated[
    str | None,
    typer.Option("--holder", metavar="WHO", help="Who shows them.", show_default="the last of the chain"),
]
WantedOption = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Ask about this type alone: `a.b.Name` or `OWNER/a.b.Name`."),
]
IdsArgument = Annotated[
    list[str],
    typer.Argument(metavar="FILE|ID...", help="Certificates and identity statements: their files, or their ids."),
]
ListOption = Annotated[
    Path | None, typer.Option("--list", metavar="FILE", help="Your revocation list; made if it is not there.")
]


# -- issuing --------------------------------------------------------------------------------------------------


def issue(
    who: SignerOption,
    to: SubjectOption,
    may: MayOption = None,
    type: TypeOption = None,
    network: NetworkOption = None,
    attributes: AttributesOption = None,
    where: WhereOption = None,
    give: GiveOption = None,
    for_: ForOption = None,
    until: UntilOption = None,
    from_: FromOption = None,
    delegate: DelegateOption = False,
    freshness: FreshnessOption = None,
    audience: AudienceOption = None,
    out: OutOption = None,
    keys: KeysOption = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Issue a certificate: give someone rights on your event types, or pass on rights that you were given.

    You may write more than you have; what is beyond it is cut wherever the certificate is shown.

    For example:

    `headgate cert issue --as pito --to met --type 'uk.gov.pito.*' --may publish,subscribe --delegate -o met.jwt`

    `headgate cert issue --as met --to smith --type pito/uk.gov.pito.Numberplate --may subscribe
    --attributes location,numberplate --where "numberplate = 'AE05 XYZ'" --for 8h -o smith.jwt`

    `headgate cert issue --as met --to cctv --type pito/uk.gov.pito.Numberplate --may publish
    --attributes "location='Victoria',numberplate" --for 30d`

    `headgate cert issue --as police --to met --network police --may connect,install --delegate --freshness 5m`

    Several rights in one certificate, each in one piece:

    `headgate cert issue --as pito --to met --give "connect,install network police" --give "* uk.gov.pito.*"
    --give "subscribe uk.gov.dvla.Keeper (name, plate) where plate starts with 'AE'" --for 30d`
    """
    check_text(to, may, type, network, attributes, where, *(give or ()), *(audience or ()))
    names = KeyNames(keys)
    now = utc_now()
    authority = _authorities(names, type, network, may, attributes, where, give or [])
    validity = validity_of(now, for_, until, from_)
    silence = None if freshness is None else seconds_of(freshness, "--freshness")
    subject = names.did(to, "--to")
    by = signer(who, names.keyring, passphrase_file).key
    text = issue_certificate(
        by,
        subject=subject,
        authority=authority,
        now=now,
        delegate=delegate,
        validity=validity,
        freshness=silence,
        audience=audience or (),
    )
    made = CERTIFICATE.read(text).value
    passing = ", may pass it on" if delegate else ""
    hand_out(
        text,
        out,
        f"{names(by.public.did)} gives {names(subject)}: {joined(authority_words(one, names) for one in authority)}",
        f"certificate {made.id}, {validity_words(made.validity)}{passing}",
    )
    if made.validity.until is None:
        remark("it never ends, unless you revoke it; `--for 30d` or `--until TIME` gives it an end")


def _authorities(
    names: KeyNames,
    type: str | None,
    network: str | None,
    may: str | None,
    attributes: str | None,
    where: str | None,
    give: list[str],
) -> list[Authority]:
    """What the options give: the right that they describe together, and those in one piece."""
    authorities = [given_right(one, names) for one in give]
    if not give or not type is network is may is attributes is where is None:
        authorities = [_authority(names, type, network, may, attributes, where), *authorities]
    if len(authorities) > MAX_AUTHORITIES:
        raise typer.BadParameter(f"--give: a certificate gives at most MAX_AUTHORITIES ({MAX_AUTHORITIES}) rights")
    return authorities


def _authority(
    names: KeyNames, type: str | None, network: str | None, may: str | None, attributes: str | None, where: str | None
) -> Authority:
    if (type is None) == (network is None):
        both = "; several rights are given with --give" if type is not None else ""
        raise typer.BadParameter(f"say what it is about, with either --type PATTERN or --network NAME{both}")
    if may is None:
        raise typer.BadParameter("say with --may what the holder may do")
    if type is None:
        assert network is not None
        if attributes is not None or where is not None:
            raise typer.BadParameter("--attributes and --where go with --type")
        return NetworkAuthority(actions_of(may, NETWORK_ACTIONS, "--may"), network)
    owner, pattern = names.owned(type)
    named, forced = (None, {}) if attributes is None else attributes_of(attributes, "--attributes")
    condition = TRUE if where is None else condition_of(where, "--where")
    return TypeAuthority(actions_of(may, TYPE_ACTIONS, "--may"), pattern, owner, named, forced, condition)


# -- looking --------------------------------------------------------------------------------------------------


def show(files: FilesArgument, keys: KeysOption = None, json: Json = False) -> None:
    """Say in words what certificates and other signed statements say.

    Their signatures are verified; whether they give anything is another question, for `verify`.

    For example:

    `headgate cert show met.jwt smith.jwt`
    """
    show_all(read_all(files), KeyNames(keys), utc_now(), json=json)


@dataclass(frozen=True, slots=True)
class CertificateVerdict:
    """What verifying came to, as JSON has it."""

    holder: str
    holds: bool
    chains: tuple[Reduced, ...] = ()
    revocation: tuple[ListCheck, ...] = ()
    code: str | None = None
    why: str | None = None
    remedy: str | None = None


def verify(
    files: FilesArgument,
    owner: OwnerOption = None,
    holder: HolderOption = None,
    coordinator: CoordinatorOption = None,
    type: WantedOption = None,
    network: NetworkOption = None,
    audience: HeardOption = None,
    at: AtOption = None,
    keys: KeysOption = None,
    json: Json = False,
) -> None:
    """Find the chains in a bag of certificates, and say what the holder gets, or why not.

    Anyone can issue certificates for any type: name its owner, by key or by file, and the coordinating domain if rights
    on a network matter. If nobody is named to believe, nothing is proven. Revocation lists and successions among the
    files count, and so do lists that lie beside them; of whom there is none is said. Leaves with 0 if the holder gets
    something, with 1 if not.

    For example:

    `headgate cert verify pito-met.jwt met-smith.jwt --owner pito --type uk.gov.pito.Numberplate`

    `headgate cert verify pito-met.jwt met-smith.jwt met-revoked.jwt --owner numberplate.jwt`

    `headgate cert verify bag.jwt --holder smith --owner pito.did --coordinator police --json`
    """
    check_text(owner, holder, coordinator, type, network, audience)
    names = KeyNames(keys)
    now = utc_now() if at is None else moment_of(at, "--at")
    root = NOBODY if coordinator is None else names.did(coordinator, "--coordinator")
    given = None if holder is None else names.did(holder, "--holder")
    anchor, wanted = _wanted(names, owner, type)
    written = read_all(files)
    try:
        bag = opened(written, audience, now)
        bag = replace(bag, lists=(*bag.lists, *lists_beside(files, now)))
        ground = VerifyGround(bag, now, root, network or "*", anchor)
        given = holder_of(ground.bag.certificates) if given is None else given
        chains = ground.chains(given, wanted)
    except _REFUSALS as error:
        if json:
            print_json(
                CertificateVerdict(given or "", holds=False, code=error.code, why=error.message, remedy=error.remedy)
            )
            raise typer.Exit(1) from None
        fail(names.told(error), status=1)
    checked = check_lists((link.issuer for one in chains for link in one.chain), bag.lists, ground.same)
    if json:
        print_json(
            CertificateVerdict(given, holds=True, chains=chains, revocation=checked)
            if ground.anchored
            else CertificateVerdict(given, False, (), checked, ChainInvalid.code, _NOBODY, _NAME_ONE)
        )
    else:
        _say_chains(chains, ground, checked, names)
    if not ground.anchored:
        raise typer.Exit(1)


def _wanted(names: KeyNames, owner: str | None, type: str | None) -> tuple[str | None, WantedType | None]:
    """The owner that is named, in whichever option, and the type that is asked about."""
    anchor = None if owner is None else names.owner(owner, "--owner")
    if type is None:
        return anchor, None
    named, name = names.owned(type)
    if anchor is not None and named not in (None, anchor):
        raise typer.BadParameter("--owner and --type name different owners")
    return anchor or named, WantedType(name)


def _say_chains(
    chains: tuple[Reduced, ...], ground: VerifyGround, checked: tuple[ListCheck, ...], names: KeyNames
) -> None:
    for number, chain in enumerate(chains):
        if number:
            say()
        draw_chain(chain.chain, names, ground.same)
        if ground.anchored:
            say_reduced(chain, names)
    say()
    if ground.anchored:
        for what in ground.unasked(chains):
            option, whom = (
                ("--owner", "their owner") if what == "types" else ("--coordinator", "the coordinating domain")
            )
            say(f"rights on {what} are left out: nobody was named as {whom} (`{option}`)")
    else:
        say((f"{_NOBODY}: ", "bold red"), f"the signatures are good, and that is all; {_NAME_ONE}")
    say_checked(checked, names)
    say_legend(names)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction step by step, as JSON has it."""

    steps: tuple[dict[str, object], ...]
    reduced: Reduced


def reduce(files: FilesArgument, keys: KeysOption = None, json: Json = False) -> None:
    """Reduce a chain to the one certificate that it comes to, step by step, with what each step cuts.

    The order of the files does not matter. Whether the result counts is another question: whether the first issuer
    owns the types or coordinates the network, whether the chain is in force now, and whether any of it was revoked is
    for `verify`.

    For example:

    `headgate cert reduce pito-met.jwt met-smith.jwt`
    """
    names = KeyNames(keys)
    chain = in_order(certificates_of(read_all(files)))
    chain_steps = steps(chain, names)
    if len(chain_steps) < len(chain):
        _stopped(chain_steps[-1].reduced, chain[len(chain_steps)].id, names)
    if json:
        shown = tuple(
            {"certificate": one.certificate, "cut": one.cut, "left": one.reduced.authority} for one in chain_steps
        )
        print_json(Reduction(shown, chain_steps[-1].reduced))
        return
    draw_chain(chain, names)
    say()
    say((names(chain[0].issuer), "bold"), " gives ", (names(chain[-1].subject), "bold"), ", all in all:")
    say_reduced(chain_steps[-1].reduced, names)
    say()
    say(("whether it counts was not checked", "bold yellow"), ": `headgate cert verify --owner WHO` does that")
    say_legend(names)


def _stopped(reduced: Reduced, after: str, names: KeyNames) -> None:
    if not reduced.delegate:
        raise ChainInvalid(
            f"`{reduced.chain[-1].id}` does not let {names(reduced.subject)} pass it on, who issued `{after}`",
            remedy="issue it anew with `--delegate`",
        )
    raise ChainInvalid(
        f"nothing of `{after}` is left after `{reduced.chain[-1].id}`",
        remedy="look at both with `headgate cert show`",
    )


# -- revoking -------------------------------------------------------------------------------------------------


@connects
def revoke(
    ids: IdsArgument,
    list_: ListOption = None,
    keys: KeysOption = None,
    passphrase_file: PassphraseFile = None,
    *,
    connection: NodeConnection,
) -> None:
    """Take certificates back: sign the next revocation list, or ask the domain's service to do so.

    With `--list`, the file is replaced by a list with the next number that has these too, signed by `--as`, a key of
    your own. Send it to those who rely on your certificates. Without it, the certificates are those that a domain's
    service has issued.

    For example:

    `headgate cert revoke smith.jwt --as met --list met-revoked.jwt`

    `headgate cert revoke s8kXcVn0Jm3rT5yQbZ2LhGw --as administrator --domain met`
    """
    check_text(connection.who, *ids)
    if list_ is not None:
        who = connection.who
        if who is None or connection.node or connection.key or connection.broker or connection.certificate:
            raise typer.BadParameter("--list goes with --as NAME, and with no option of a node")
        names = KeyNames(keys)
        by = signer(who, names.keyring, passphrase_file)
        revoke_in_file(by, ids_of(ids, names, names.own(who, by.key.public.did)), list_, utc_now())
        return
    revoke_at_service(ids_of(ids, KeyNames(keys)), connection)


for word, command in (("issue", issue), ("show", show), ("verify", verify), ("reduce", reduce), ("revoke", revoke)):
    app.command(word)(shows_errors(command))
