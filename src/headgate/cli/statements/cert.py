"""`headgate cert`: issue, show, verify, reduce and revoke authorisation certificates.

Guarantees: nothing is issued that would be refused elsewhere; a signed text goes to standard output or a new file and
nothing else does. A right in one piece, `ACTIONS TYPE (NAMES) where CONDITION` or `ACTIONS network NAME`, is read whole
or refused. Verifying leaves with 0 if the holder gets something from an owner or a coordinator that was named, with 1
if not or if nobody was named, and with 2 if it could not be found out; whose revocation lists were not there is said.

Only what looks like the id of a statement is revoked, or what a statement itself says is its id, if the signer has
issued it. The last list of each key is remembered beside the key, durably and before it is handed out, so that a file
that is older, or was lost, never becomes the next list: numbers only grow. Two commands at once make two lists.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from headgate.authority.chains import Reduced
from headgate.cli.shared import options as opt
from headgate.cli.shared.common import group, placed, printable, utc_now, writing
from headgate.cli.shared.connection import NodeConnection
from headgate.cli.shared.options import argument, moment_of, option, seconds_of
from headgate.cli.shared.rendering import joined, print_json, remark, say
from headgate.cli.statements import offline_verify as offline
from headgate.cli.statements import statement_files as given
from headgate.cli.statements import statement_rendering as shown
from headgate.cli.statements.statement_files import KeyNames, Lifetime, Signing, WrittenStatement, read_all
from headgate.model import authority as rights
from headgate.model import errors
from headgate.model.authority import Authority, RevocationList
from headgate.model.expressions import TRUE
from headgate.model.limits import MAX_AUTHORITIES, MAX_LIST_BYTES
from headgate.model.rights import Action
from headgate.model.values import brief
from headgate.trust import certificates as signed
from headgate.trust.identities import IDENTITY
from headgate.trust.keys import replace_file
from headgate.trust.statements import said_kind

_REFUSALS: Final = (errors.ChainInvalid, errors.Expired, errors.Revoked, errors.BadStatement)
"""What is an answer of `verify`, and no failure of it."""
_NAME_ONE: Final = "name the owner of the types with `--owner`, or the coordinating domain with `--coordinator`"

_RIGHT: Final = re.compile(
    r"""\s*(?P<may>[a-z*]+(?:\s*[,|]\s*[a-z*]+)*)
    \s+(?:network(?:\s+(?P<network>[^\s(].*?))? | (?P<type>[^\s(]+)
        (?:\s*\((?P<attributes>(?:[^()']|'(?:[^']|'')*')*)\))?
        (?:\s+where\s+(?P<where>.+?))?
    )\s*\Z""",
    re.VERBOSE | re.DOTALL,
)
_ID: Final = re.compile(r"s[A-Za-z0-9_-]{22}\Z")
"""An id as statements are given them (`trust.certificates.new_id`); one that was chosen otherwise is in their files."""

TypeOption = Annotated[str | None, option("--type PATTERN", "The types: `a.b.Name`, `a.b.*` or `OWNER/a.b.*`.")]
NetworkOption = Annotated[str | None, option("--network NAME", "The network; `*` for any.")]
MayOption = Annotated[
    str | None, option("--may --actions ACTIONS", "publish, subscribe, extend; or connect, install; `*` for all.")
]
GiveOption = Annotated[
    list[str] | None,
    option(
        "--give RIGHT",
        "A right in one piece: `ACTIONS TYPE (NAMES) where CONDITION`, or `ACTIONS network NAME`; repeatable.",
    ),
]
AttributesOption = Annotated[
    str | None, option("--attributes NAMES", "Only these attributes; `name=value` forces a value.", unset="all")
]
WhereOption = Annotated[str | None, option("--where CONDITION", "Only events for which it holds.")]
DelegateOption = Annotated[bool, option("--delegate", "Let the holder pass it on.")]
FreshnessOption = Annotated[
    str | None, option("--freshness TIME", "How long it counts without a word from you, such as `5m`.")
]
CoordinatorOption = Annotated[str | None, option("--coordinator WHO", "The domain that coordinates the network.")]
OwnerOption = Annotated[
    str | None,
    option(
        "--owner WHO",
        "The owner of the types, at whom chains begin: a DID, a name of your keys, or a file with its key "
        "(`.did`) or with a type that it signed.",
        unset="nobody",
    ),
]
HolderOption = Annotated[str | None, option("--holder WHO", "Who shows them.", unset="the last of the chain")]
WantedOption = Annotated[
    str | None, option("--type TYPE", "Ask about this type alone: `a.b.Name` or `OWNER/a.b.Name`.")
]
IdsArgument = Annotated[
    list[str], argument("FILE|ID...", "Certificates and identity statements: their files, or their ids.")
]
ListOption = Annotated[Path | None, option("--list FILE", "Your revocation list; made if it is not there.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RightWords:
    """A right in words, as options of `issue` describe it together or one `--give` does in one piece."""

    may: MayOption = None
    type: TypeOption = None
    network: NetworkOption = None
    attributes: AttributesOption = None
    where: WhereOption = None

    def check(self) -> None:
        """Refuse words that are no right on either a type or a network."""
        if (self.type is None) == (self.network is None):
            both = "; several rights are given with --give" if self.type is not None else ""
            raise typer.BadParameter(f"say what it is about, with either --type PATTERN or --network NAME{both}")
        if self.may is None:
            raise typer.BadParameter("say with --may what the holder may do")
        if self.type is None and (self.attributes is not None or self.where is not None):
            raise typer.BadParameter("--attributes and --where go with --type")

    def right(self, names: KeyNames, within: str | None = None) -> Authority:
        """The right that these words give; `within` is the one option that all of them stand in."""
        may, option = self.may or "", within or "--may"
        if self.type is None:
            return rights.NetworkAuthority(actions_of(may, rights.NETWORK_ACTIONS, option), self.network or rights.ANY)
        owner, pattern = names.owned(self.type)
        named, forced = (None, {}) if self.attributes is None else attributes_of(self.attributes, within)
        where = TRUE if self.where is None else given.condition_of(self.where, within or "--where")
        actions = actions_of(may, rights.TYPE_ACTIONS, option)
        return rights.TypeAuthority(actions, pattern, owner, named, forced, where)


# -- issuing --------------------------------------------------------------------------------------------------


def issue(
    who: opt.Signer,
    to: opt.Subject,
    *,
    right: RightWords,
    give: GiveOption = None,
    lifetime: Lifetime,
    from_: opt.From = None,
    delegate: DelegateOption = False,
    freshness: FreshnessOption = None,
    audience: opt.Audience = None,
    signing: Signing,
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
    names, now = signing.names, utc_now()
    authority = _authorities(right, give or (), names)
    validity = lifetime.validity(now, from_)
    silence = None if freshness is None else seconds_of(freshness, "--freshness")
    subject = names.did(to, "--to")
    by = signing.key(who)
    text = signed.issue_certificate(
        by,
        subject=subject,
        authority=authority,
        now=now,
        delegate=delegate,
        validity=validity,
        freshness=silence,
        audience=audience or (),
    )
    made = signed.CERTIFICATE.read(text).value
    passing = ", may pass it on" if delegate else ""
    words = joined(shown.authority_words(one, names) for one in authority)
    given.hand_out(
        text,
        signing.out,
        f"{names(by.public.did)} gives {names(subject)}: {words}",
        f"certificate {made.id}, {shown.validity_words(made.validity)}{passing}",
    )
    if made.validity.until is None:
        remark("it never ends, unless you revoke it; `--for 30d` or `--until TIME` gives it an end")


def _authorities(described: RightWords, give: Sequence[str], names: KeyNames) -> list[Authority]:
    """What the options give: the right that they describe together, and those in one piece."""
    authorities = [given_right(one, names) for one in give]
    if not give or described != RightWords():
        described.check()
        authorities.insert(0, described.right(names))
    if len(authorities) > MAX_AUTHORITIES:
        raise typer.BadParameter(f"--give: a certificate gives at most MAX_AUTHORITIES ({MAX_AUTHORITIES}) rights")
    return authorities


def given_right(text: str, names: KeyNames) -> Authority:
    """A right that is given in one piece."""
    parts = _RIGHT.match(text)
    if parts is None:
        raise typer.BadParameter(
            f"--give: `{printable(brief(text))}` is neither `ACTIONS TYPE (NAMES) where CONDITION` "
            "nor `ACTIONS network NAME`"
        )
    try:
        return RightWords(**parts.groupdict()).right(names, "--give")
    except errors.HeadgateError as error:
        raise error if error.place is not None else error.at("--give") from None


def actions_of(text: str, possible: frozenset[Action], option: str) -> frozenset[Action]:
    """Actions with commas between them, or `*` for all there are."""
    by_name = {one.value: one for one in possible}
    words = given.pieces(text.replace("|", ","))
    if words == ["*"]:
        return possible
    if unknown := [one for one in words if one not in by_name]:
        raise typer.BadParameter(f"{option}: `{unknown[0]}` is none of {', '.join(sorted(by_name))}, or `*` for all")
    if not words:
        raise typer.BadParameter(f"{option} names one or more of {', '.join(sorted(by_name))}, or `*` for all")
    return frozenset(by_name[one] for one in words)


def attributes_of(text: str, within: str | None) -> tuple[tuple[str, ...], dict[str, object]]:
    """Names of attributes, some with the value that is forced."""
    named: list[str] = []
    forced: dict[str, object] = {}
    for one in given.pieces(text):
        name, equals, value = one.partition("=")
        if name.strip() in named:
            raise typer.BadParameter(f"{within or '--attributes'} names `{name.strip()}` twice")
        named.append(name.strip())
        if equals:
            forced[named[-1]] = given.value_of(value.strip())
    return tuple(named), forced


# -- looking --------------------------------------------------------------------------------------------------


def show(files: opt.Files, keys: opt.Keys = None, json: opt.Json = False) -> None:
    """Say in words what certificates and other signed statements say.

    Their signatures are verified; whether they give anything is another question, for `verify`.

    For example:

    `headgate cert show met.jwt smith.jwt`
    """
    shown.show_all(read_all(files), KeyNames(keys), utc_now(), json=json)


def verify(
    files: opt.Files,
    owner: OwnerOption = None,
    holder: HolderOption = None,
    coordinator: CoordinatorOption = None,
    type: WantedOption = None,
    network: NetworkOption = None,
    audience: opt.Heard = None,
    at: opt.At = None,
    keys: opt.Keys = None,
    json: opt.Json = False,
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
    names = KeyNames(keys)
    now = utc_now() if at is None else moment_of(at, "--at")
    root = offline.NOBODY if coordinator is None else names.did(coordinator, "--coordinator")
    bearer = None if holder is None else names.did(holder, "--holder")
    anchor, wanted = _wanted(names, owner, type)
    written = read_all(files)
    try:
        bag = offline.opened(written, audience, now)
        bag = replace(bag, lists=(*bag.lists, *offline.lists_beside(files, now)))
        ground = offline.VerifyGround(bag, now, root, network or "*", anchor)
        bearer = bearer or offline.holder_of(ground.bag.certificates)
        chains = ground.chains(bearer, wanted)
    except _REFUSALS as error:
        verdict: dict[str, object] = {"holder": bearer or "", "holds": False, "chains": (), "revocation": ()}
        offline.refuse(error, names, verdict if json else None)
    checked = offline.check_lists((link.issuer for one in chains for link in one.chain), bag.lists, ground.same)
    if json:
        why: dict[str, str | None] = {"code": None, "why": None, "remedy": None}
        if not ground.anchored:
            chains, why = (), {"code": errors.ChainInvalid.code, "why": offline.NOBODY_NAMED, "remedy": _NAME_ONE}
        print_json({"holder": bearer, "holds": ground.anchored, "chains": chains, "revocation": checked, **why})
    else:
        _say_chains(chains, ground, checked, names)
    if not ground.anchored:
        raise typer.Exit(1)


def _wanted(names: KeyNames, owner: str | None, type: str | None) -> tuple[str | None, str | None]:
    """The owner that is named, in whichever option, and the type that is asked about."""
    anchor = None if owner is None else names.owner(owner, "--owner")
    if type is None:
        return anchor, None
    named, name = names.owned(type)
    if anchor is not None and named not in (None, anchor):
        raise typer.BadParameter("--owner and --type name different owners")
    return anchor or named, name


def _say_chains(
    chains: tuple[Reduced, ...], ground: offline.VerifyGround, checked: tuple[offline.ListCheck, ...], names: KeyNames
) -> None:
    for number, chain in enumerate(chains):
        if number:
            say()
        shown.draw_chain(chain.chain, names, ground.same)
        if ground.anchored:
            shown.say_reduced(chain, names)
    say()
    if ground.anchored:
        for what in ground.unasked(chains):
            whom = "their owner (`--owner`)" if what == "types" else "the coordinating domain (`--coordinator`)"
            say(f"rights on {what} are left out: nobody was named as {whom}")
    else:
        say((f"{offline.NOBODY_NAMED}: ", "bold red"), f"the signatures are good, and that is all; {_NAME_ONE}")
    offline.say_checked(checked, names)
    shown.say_legend(names)


def reduce(files: opt.Files, keys: opt.Keys = None, json: opt.Json = False) -> None:
    """Reduce a chain to the one certificate that it comes to, step by step, with what each step cuts.

    The order of the files does not matter. Whether the result counts is another question: whether the first issuer
    owns the types or coordinates the network, whether the chain is in force now, and whether any of it was revoked is
    for `verify`.

    For example:

    `headgate cert reduce pito-met.jwt met-smith.jwt`
    """
    names = KeyNames(keys)
    chain = offline.in_order(offline.certificates_of(read_all(files)))
    chain_steps = shown.steps(chain, names)
    if len(chain_steps) < len(chain):
        _stopped(chain_steps[-1].reduced, chain[len(chain_steps)].id, names)
    if json:
        cuts = [{"certificate": one.certificate, "cut": one.cut, "left": one.reduced.authority} for one in chain_steps]
        print_json({"steps": cuts, "reduced": chain_steps[-1].reduced})
        return
    shown.draw_chain(chain, names)
    say()
    say((names(chain[0].issuer), "bold"), " gives ", (names(chain[-1].subject), "bold"), ", all in all:")
    shown.say_reduced(chain_steps[-1].reduced, names)
    say()
    say(("whether it counts was not checked", "bold yellow"), ": `headgate cert verify --owner WHO` does that")
    shown.say_legend(names)


def _stopped(reduced: Reduced, after: str, names: KeyNames) -> None:
    if not reduced.delegate:
        raise errors.ChainInvalid(
            f"`{reduced.chain[-1].id}` does not let {names(reduced.subject)} pass it on, who issued `{after}`",
            remedy="issue it anew with `--delegate`",
        )
    raise errors.ChainInvalid(
        f"nothing of `{after}` is left after `{reduced.chain[-1].id}`", remedy="look at both with `headgate cert show`"
    )


# -- revoking -------------------------------------------------------------------------------------------------


def revoke(
    ids: IdsArgument,
    list_: ListOption = None,
    keys: opt.Keys = None,
    passphrase_file: opt.PassphraseFile = None,
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
    if list_ is not None:
        who = connection.who
        if who is None or connection.node or connection.key or connection.broker or connection.certificate:
            raise typer.BadParameter("--list goes with --as NAME, and with no option of a node")
        names = KeyNames(keys)
        by = given.signer(who, names.keyring, passphrase_file)
        revoke_in_file(by, ids_of(ids, names, names.own(who, by.key.public.did)), list_, utc_now())
        return
    revoked = ids_of(ids, KeyNames(keys))
    with connection.client() as client:
        for id in revoked:
            number = client.revoke(id)
            say((id, "bold"), f" is revoked: list {number}")


def ids_of(texts: Sequence[str], names: KeyNames, issuers: frozenset[str] | None = None) -> list[str]:
    """The ids that are given, and those of the statements in the files that are; issued by these keys, if it is known.

    What is there as a file is one, and so is what could not be an id.
    """
    ids: dict[str, None] = {}
    for text in texts:
        if Path(text).is_file() or "/" in text or Path(text).suffix == ".jwt":
            ids |= dict.fromkeys(_issued(each, names, issuers) for each in read_all([Path(text)]))
        elif _ID.match(text):
            ids[text] = None
        else:
            raise errors.BadStatement(
                f"`{brief(text)}` is neither a file nor the id of a statement",
                reason="bad-claim",
                remedy="give the file of the certificate, or its id as `headgate cert show` has it",
            )
    return list(ids)


def _issued(written: WrittenStatement, names: KeyNames, issuers: frozenset[str] | None) -> str:
    """The id of a certificate or identity statement, which one of these keys must have issued."""
    with placed(written.place, exactly=True):
        is_identity = said_kind(written.text) == IDENTITY.typ
        statement = IDENTITY.read(written.text).value if is_identity else signed.CERTIFICATE.read(written.text).value
        if issuers is not None and statement.issuer not in issuers:
            raise errors.BadStatement(
                f"`{statement.id}` was issued by {names(statement.issuer)}",
                reason="wrong-issuer",
                remedy="only whoever issued it can take it back",
            )
    return statement.id


def revoke_in_file(by: given.FileSigner, ids: Sequence[str], path: Path, now: datetime) -> None:
    """Replace the list in a file by the next one, which has these ids too."""
    issuer = by.key.public.did
    memory = by.directory / f"{issuer.removeprefix('did:key:')}.list"
    with _alone(memory):
        known, brought = _list_in(memory, issuer), _list_in(path, issuer)
        if known is not None and brought is not None:
            try:
                signed.check_newer(brought, known)
            except errors.StaleList as error:
                remedy = f"your last list is number {known.number}: bring that file"
                raise errors.StaleList(error.message, place=str(path), remedy=remedy) from None
        before = brought or known
        last = before or RevocationList(issuer, 0, now)
        at, revoked = max(now, last.issued), last.revoked | set(ids)
        if before is not None and revoked == before.revoked:
            say("Nothing new: all of them are on list ", (str(last.number), "bold"))
            replace_file(path, signed.issue_revocations(by.key, number=last.number, revoked=revoked, now=at) + "\n")
            return
        number = last.number + 1
        text = signed.issue_revocations(by.key, number=number, revoked=revoked, now=at)
        replace_file(memory, text + "\n")
        replace_file(path, text + "\n")
    say("List ", (str(number), "bold"), f" in {path}: {len(revoked)} revoked")


@contextmanager
def _alone(memory: Path) -> Iterator[None]:
    """One command at a time for each key."""
    lock = memory.with_suffix(".lock")
    with writing(lock, "make the directory yours"):
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _list_in(path: Path, issuer: str) -> RevocationList | None:
    """The list of a file, which must be this issuer's; none if there is no file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LIST_BYTES + 2)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.StorageFull(f"`{path}` cannot be read ({error.strerror})", remedy="name another file") from None
    if len(data) > MAX_LIST_BYTES + 1:
        raise errors.TooLarge(f"`{path}` is longer than MAX_LIST_BYTES ({MAX_LIST_BYTES})")
    with placed(str(path), exactly=True):
        return signed.REVOCATIONS.verify(data.decode("utf-8", "replace").strip(), issuer=issuer)


app = group(issue, show, verify, reduce, revoke)
