"""`headgate role`: enter, leave, elect, revoke and give roles at a node, and look at them.

Guarantees: whatever is asked for is decided by the node, and a refusal says of which class it is: fraud, misuse,
revocation or credentials. Certificates go to new files or to standard output, and nothing else does where they go.
Leaves out: what a role gives, which is policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli.policy import role_check
from headgate.cli.roles import graph, listing
from headgate.cli.shared.common import STANDARD, group, judged, utc_now
from headgate.cli.shared.connection import NodeConnection
from headgate.cli.shared.options import argument, option
from headgate.cli.shared.rendering import role_words, say
from headgate.cli.statements.statement_files import Lifetime, hand_out, read_one
from headgate.lang.rolefile import parse_argument, parse_role
from headgate.model.errors import BadExpression, BadStatement, HeadgateError
from headgate.model.expressions import Argument, Constant, Variable
from headgate.model.roles import load_argument
from headgate.model.values import brief, render_timestamp
from headgate.protocol import role_messages as rw
from headgate.trust import role_statements as statements
from headgate.trust.statements import Form, said_claims, said_kind

ServiceArgument = Annotated[str, argument("SERVICE", "The service that the role is of.")]
RoleArgument = Annotated[str, argument("ROLE", "The role.")]
ArgsArgument = Annotated[
    list[str] | None,
    argument("[ARGS]...", "Its arguments: `dm`, `3`, `{rw}`, `_` for one that is left open.", unset="all open"),
]
GivenArgument = Annotated[list[str] | None, argument("[ARGS]...", "Its arguments: `dm`, `3`, `{rw}`.", unset="none")]
IdArgument = Annotated[str, argument("ID", "The membership or election, as `list` has it.")]
WithOption = Annotated[
    list[str] | None,
    option(
        "--with ID|FILE",
        "Show this: a membership, an election or a certificate's file; may be repeated.",
        unset="all memberships that you hold",
    ),
]
InstanceOption = Annotated[str, option("--instance NAME", "The instance of the service.", unset="the only one")]
SaveOption = Annotated[Path | None, option("--save FILE", "A new file for the certificate; - for standard output.")]


@dataclass(frozen=True, slots=True)
class Said:
    """What a certificate says that it is about; nobody has vouched for it."""

    service: str
    instance: str
    election: str | None
    role: str
    args: tuple[Any, ...]


# -- gaining and leaving --------------------------------------------------------------------------------------


def enter(
    service: ServiceArgument,
    role: RoleArgument,
    args: ArgsArgument = None,
    with_: WithOption = None,
    instance: InstanceOption = "",
    save: SaveOption = None,
    *,
    connection: NodeConnection,
) -> None:
    """Enter a role, by what you hold.

    For example:

    `headgate role enter Conf Member --as dm`

    `headgate role enter Met npTracker _ 'AE05 XYZ' --with mk3fd-order --save tracker.jwt --as smith`

    Exit status: 0 entered, 1 if the role is denied, 2 if that could not be found out.
    """
    with judged(), connection.client() as client:
        given = arguments_of(args) if args else None
        told = client.roles.enter(service, role, given, using=_shown(with_), instance=instance)
    _entered("entered", told, save)


def accept(
    file: Annotated[Path, argument("FILE", "A delegation certificate; - for standard input.")],
    args: ArgsArgument = None,
    with_: WithOption = None,
    save: SaveOption = None,
    *,
    connection: NodeConnection,
) -> None:
    """Enter the role to which a delegation certificate elects you.

    For example:

    `headgate role accept invitation.jwt --as jim`

    Exit status: 0 entered, 1 if the role is denied, 2 if that could not be found out.
    """
    text = read_one(file).text
    delegation = _said(text, str(file), statements.DELEGATION)
    given = list(delegation.args) if not args else arguments_of(args)
    with judged(), connection.client() as client:
        using = (rw.ALL,) if with_ is None else tuple(_shown(with_) or ())
        told = client.roles.accept(
            delegation.service, delegation.role, text, given or None, using=using, instance=delegation.instance
        )
    _entered("entered", told, save)


def exit_(id: IdArgument, *, connection: NodeConnection) -> None:
    """Give a membership of your own up; what rests on it falls with it.

    For example:

    `headgate role exit mk3fd-ann --as ann`
    """
    with judged(), connection.client() as client:
        client.roles.exit(id)
    say(("left", "bold green"), f" {id}")


def renew(service: ServiceArgument, id: IdArgument, save: SaveOption = STANDARD, *, connection: NodeConnection) -> None:
    """Get a fresh certificate for a membership that you still hold, to show elsewhere.

    For example:

    `headgate role renew Login mk3fd-ann --save ann.jwt --as ann`
    """
    with judged(), connection.client() as client:
        told = client.roles.renew(service, id=id)
    _entered("renewed", told, save)


def present(
    file: Annotated[Path, argument("FILE", "A role certificate of another domain.")], *, connection: NodeConnection
) -> None:
    """Show a role certificate of another domain, so that the role counts here; that domain must be a peer.

    For example:

    `headgate role present login.jwt --as ann --domain cl`

    Exit status: 0 it counts, 1 if it is denied, 2 if that could not be found out.
    """
    text = read_one(file).text
    with judged(), connection.client() as client:
        told = client.roles.present(text)
    for one in told.memberships:
        words = role_words(one.service, one.instance, one.role, one.args)
        say(("counts", "bold green"), f" {one.id}: {words} ({one.state})")


def grant(
    service: ServiceArgument,
    role: RoleArgument,
    to: Annotated[str, option("--to NAME", "The principal.")],
    args: GivenArgument = None,
    appointment: Annotated[bool, option("--appointment", "Appoint: it outlives sessions.")] = False,
    *,
    lifetime: Lifetime,
    instance: InstanceOption = "",
    save: SaveOption = None,
    connection: NodeConnection,
) -> None:
    """Give someone a role for the service's own reasons, or appoint; that is for the administrator.

    For example:

    `headgate role grant Login LoggedOn ann ely --to ann --as administrator`

    `headgate role grant Court courtOrder case-7 'AE05 XYZ' --to smith --appointment --for 30d --as administrator`
    """
    end = lifetime.validity(utc_now()).until
    with judged(), connection.client() as client:
        answer = client.roles.grant(
            service, role, to, arguments_of(args or ()), appointment=appointment, until=end, instance=instance
        )
    _entered("appointed" if appointment else "given", answer, save)


# -- electing and revoking ------------------------------------------------------------------------------------


def elect(
    service: ServiceArgument,
    role: RoleArgument,
    args: ArgsArgument = None,
    to: Annotated[
        list[str] | None, option("--to ROLE", "What the elected must hold; may be repeated: all of them.")
    ] = None,
    anyone: Annotated[bool, option("--anyone", "Elect whoever has the certificate.")] = False,
    *,
    lifetime: Lifetime,
    revoke_on_exit: Annotated[bool, option("--revoke-on-exit", "It ends with your own role.")] = False,
    with_: WithOption = None,
    instance: InstanceOption = "",
    save: SaveOption = None,
    revocation: Annotated[
        Path | None, option("--revocation FILE", "A new file for the revocation certificate.")
    ] = None,
    connection: NodeConnection,
) -> None:
    """Elect others to a role; prints the delegation certificate to hand on, and the one to take it back with.

    For example:

    `headgate role elect Conf Member --to "Login.LoggedOn('jim', _)" --save invitation.jwt --as jmb`

    `headgate role elect Conf Member --anyone --for 8h --revoke-on-exit --as jmb`

    Exit status: 0 elected, 1 if you may not, 2 if that could not be found out.
    """
    if bool(to) == anyone:
        raise typer.BadParameter("say who is elected: either --to ROLE, what they hold, or --anyone")
    end = lifetime.validity(utc_now()).until
    with judged(), connection.client() as client:
        answer = client.roles.elect(
            service,
            role,
            arguments_of(args) if args else None,
            to=to or (),
            anyone=anyone,
            until=end,
            revoke_on_exit=revoke_on_exit,
            using=_shown(with_),
            instance=instance,
        )
    election = answer.election
    words = role_words(election.service, election.instance, election.role, election.args)
    if save is not None or revocation is not None:
        say(("elected", "bold green"), f" to {words}: election {election.id}")
    for text, path, what in ((answer.delegation, save, "delegation"), (answer.revocation, revocation, "revocation")):
        if text is not None:
            hand_out(text, path, f"{what} certificate of election {election.id}, to {words}")
    if answer.delegation is None:
        say(f"there is no certificate, because you have no key; the election is {election.id}")


def pass_(
    id: IdArgument,
    to: Annotated[str, option("--to NAME", "Another holder of the elector's role.")],
    save: SaveOption = STANDARD,
    *,
    connection: NodeConnection,
) -> None:
    """Let another holder of the elector's role take an election of yours back, too.

    For example:

    `headgate role pass mk3fd-jmb --to rmn --save rmn-revokes.jwt --as jmb`
    """
    with judged(), connection.client() as client:
        answer = client.roles.pass_revocation(id, to)
    if answer.revocation is None:
        say(("passed", "bold green"), f" on to {to}, who has no key and needs no certificate")
        return
    hand_out(answer.revocation, save, f"revocation certificate of election {answer.election}, for {to}")


def revoke(
    what: Annotated[
        list[str],
        argument(
            "ID|FILE|SERVICE.ROLE(ARGS)|SERVICE ROLE [ARGS]...",
            "An election or its certificate; or a role, in which `_` stands for any argument.",
        ),
    ],
    with_: WithOption = None,
    instance: InstanceOption = "",
    *,
    connection: NodeConnection,
) -> None:
    """Take back an election, by its id or certificate; or revoke a role that a rolefile lets yours revoke.

    A role that was revoked by role cannot be entered again until it is reinstated. Where a rolefile asks for several
    who revoke, nothing ends until the others have. The administrator may end any membership or election by its id.

    For example:

    `headgate role revoke mk3fd-jmb --as jmb`

    `headgate role revoke take-back.jwt --as rmn`

    `headgate role revoke Meeting Candidate bob --as rmn`

    `headgate role revoke "Hospital.Override('dan', _)" --as chief`

    Exit status: 0 revoked, 1 if you may not, 2 if that could not be found out.
    """
    named = _role_named(what, instance)
    if named is not None:
        service, named_instance, role, args = named
        with judged(), connection.client() as client:
            version = client.roles.revoke_role(service, role, args, using=_shown(with_), instance=named_instance)
            pending = any(
                one.pending and (one.service, one.instance, one.role) == (service, named_instance, role)
                for one in client.roles.overview().revoked
            )
        then = "once others have as well" if pending else "until it is reinstated"
        words = role_words(service, named_instance, role, args)
        say(("revoked", "bold green"), f" {words} by version {version}, {then}")
        return
    if with_ is not None or instance:
        raise typer.BadParameter("--with and --instance go with SERVICE and ROLE")
    id, text = _election(what[0])
    with judged(), connection.client() as client:
        version = client.roles.revoke(id=id, certificate=text)
    say(("revoked", "bold green"), f" {id or what[0]} by version {version}")


def reinstate(
    what: Annotated[
        list[str],
        argument(
            "SERVICE.ROLE(ARGS)|SERVICE ROLE [ARGS]...",
            "A role with the arguments it was revoked with, of which `_` is open.",
        ),
    ],
    with_: WithOption = None,
    instance: InstanceOption = "",
    *,
    connection: NodeConnection,
) -> None:
    """Let a role that was revoked by role be entered again.

    For example:

    `headgate role reinstate Meeting Candidate bob --as rmn`

    `headgate role reinstate "Hospital.Override('dan', _)" --as chief`
    """
    named = _role_named(what, instance)
    if named is None:
        raise typer.BadParameter("name a service and a role, or write them as `Service.Role('a', _)`")
    service, named_instance, role, given = named
    with judged(), connection.client() as client:
        version = client.roles.reinstate(service, role, given, using=_shown(with_), instance=named_instance)
    say(("reinstated", "bold green"), f" {role_words(service, named_instance, role, given)} by version {version}")


# -- what is shown and what is told ---------------------------------------------------------------------------


def arguments_of(texts: Iterable[str]) -> list[Argument | None]:
    """Arguments of the command line: `_` is open, and what is no constant of rolefiles is text."""
    return [None if text == "_" else _argument(text) for text in texts]


def _argument(text: str) -> Argument:
    try:
        return parse_argument(text)
    except BadExpression:
        return text


def _shown(given: Iterable[str] | None) -> list[str] | None:
    """What is shown, if that is said: ids as they are, and the certificates of files."""
    if given is None:
        return None
    return [read_one(Path(one)).text if Path(one).is_file() else one for one in given]


def _role_named(what: Sequence[str], instance: str) -> tuple[str, str, str, list[Argument | None]] | None:
    """The service, instance, role and arguments that are named, in words or as rolefiles write them."""
    if len(what) > 1:
        return what[0], instance, what[1], arguments_of(what[2:])
    if Path(what[0]).is_file():
        return None
    try:
        ref = parse_role(what[0])
    except BadExpression:
        if "(" in what[0]:
            raise
        return None
    if ref.service is None:
        if ref.args:
            raise typer.BadParameter(f"`{what[0]}` has no service: write it as `Service.{what[0]}`")
        return None
    if any(isinstance(term, Variable) and term.name != "_" for term in ref.args):
        raise typer.BadParameter("text stands in quotes, as in `'dan'`, and what may be anything is `_`")
    place = ref.instance.value if isinstance(ref.instance, Constant) else instance
    return ref.service, str(place), ref.role, [one.value if isinstance(one, Constant) else None for one in ref.args]


def _election(given: str) -> tuple[str | None, str | None]:
    """The id of what is taken back, or the revocation certificate in a file."""
    if not Path(given).is_file():
        return given, None
    text = read_one(Path(given)).text
    if said_kind(text) == statements.DELEGATION.typ:
        return _said(text, given, statements.DELEGATION).election, None
    if said_kind(text) == statements.REVOCATION.typ:
        return None, text
    raise BadStatement(
        "it is neither a delegation nor a revocation certificate",
        reason="wrong-type",
        place=given,
        remedy="a membership of your own is given up by `headgate role exit ID`",
    )


def _said(text: str, place: str, form: Form) -> Said:
    """What a certificate says, so that it can be shown to the right service, which judges it."""
    try:
        if said_kind(text) != form.typ:
            raise BadStatement(f"a statement `{brief(said_kind(text))}` is no `{form.typ}`", reason="wrong-type")
        claims = said_claims(text)
        election = claims.get("election")
        args = tuple(None if one is None else load_argument(one) for one in claims["args"])
        return Said(str(claims["service"]), str(claims["instance"]), election, str(claims["role"]), args)
    except HeadgateError as error:
        raise error.at(place) from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise BadStatement("the certificate does not say what it is for", reason="malformed", place=place) from None


def _entered(does: str, answer: rw.CertificateAnswer, save: Path | None) -> None:
    """Say what is held from now on, and hand the certificate out if that was asked for."""
    lines = []
    for one in answer.memberships:
        until = "" if one.until is None else f", until {render_timestamp(one.until)}"
        lines.append(f"{one.id}: {role_words(one.service, one.instance, one.role, one.args)}{until}")
    if save == STANDARD and answer.certificate is not None:
        hand_out(answer.certificate, save)
        return
    for line in lines:
        say((does, "bold green"), f" {line}")
    if save is not None and answer.certificate is not None:
        good = "" if answer.expires is None else f", good until {render_timestamp(answer.expires)}"
        hand_out(answer.certificate, save, f"certificate{good}")
    elif save is not None:
        say("there is no certificate: the holder has no key")


app = group(
    *(role_check.check, listing.list_, listing.show, graph.graph_, enter, accept, exit_, renew),
    *(present, elect, pass_, revoke, reinstate, grant),
)
