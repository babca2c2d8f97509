"""`headgate peer`: services of other domains whose roles count here, and other domains that may follow ours.

Guarantees: peers are policy. What would change, and which roles would end, is shown before it is committed as one
version; `--print` changes nothing and writes the same for a policy directory, which is where it lasts.
Leaves out: following them, which the node does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from headgate.cli.policy.policy import confirm, describe
from headgate.cli.shared.common import data_directory, group, read_bytes, utc_now, writing
from headgate.cli.shared.options import DomainOption, Json, argument, option
from headgate.cli.shared.rendering import count_of, print_json, say, say_section, show_table
from headgate.commands.peer_roles import allowing
from headgate.commands.policy import plan
from headgate.lang.render import render_condition
from headgate.model.changes import AddRule, Change, DeclarePrincipal, RemovePeer, SetKey, SetPeer
from headgate.model.errors import AlreadyExists, NotFound, UnknownName
from headgate.model.expressions import TRUE
from headgate.model.limits import MAX_CERTIFICATE_FILE_BYTES
from headgate.model.rights import Action, Rule
from headgate.model.roles import Peer, RoleBook
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.model.values import brief
from headgate.node.config import Files
from headgate.node.domain import Domain
from headgate.node.peers import Peers, PeerStatus
from headgate.node.peers import statuses as statuses_of
from headgate.trust.keys import PublicKey

BOUND: Final = 30
"""Seconds for which the silence of a peer is borne, unless another number is given."""

NameArgument = Annotated[str, argument("NAME", "What the service is called here.")]
PrintOption = Annotated[bool, option("--print", "Change nothing: print it for a policy directory.")]
YesOption = Annotated[bool, option("--yes -y", "Do not ask.")]


def add(
    name: NameArgument,
    key: Annotated[str, option("--key DID", "The key of the other domain, its broker's.")],
    domain: DomainOption,
    url: Annotated[str, option("--url URL", "A gateway of the other domain.")] = "",
    service: Annotated[str | None, option("--service NAME", "The service there.", unset="the same name")] = None,
    bound: Annotated[int, option("--bound SECONDS", "For how long its silence is borne.", min=1)] = BOUND,
    certificate: Annotated[
        Path | None, option("--certificate FILE", "The TLS certificate of its gateways, if it is their own.")
    ] = None,
    printed: PrintOption = False,
    yes: YesOption = False,
) -> None:
    """Let the roles of another domain's service count here, under a name.

    If nothing is heard of it for longer than the bound, what rests on its roles grants nothing until it is heard again.
    The other domain must let ours follow (`headgate peer allow` there).

    For example:

    `headgate peer add CL --key did:key:z6Mk... --url https://cl.example:8443 --service Login --bound 30 --domain DIR`

    Exit status: 0 applied or nothing to do, 1 not confirmed, 2 refused; then nothing has changed.
    """
    check_name("service", name)
    peer = Peer(name, PublicKey.from_did(key).did, service or name, bound, url)
    if printed:
        said = {"key": peer.key, "service": peer.service, "bound": peer.bound} | ({"url": url} if url else {})
        _print({"peers": {name: said}})
        return
    copied = None if certificate is None else _certificate(certificate, domain, name)
    if _commit(domain, lambda _: (SetPeer(peer),), f"roles of {name} count here", yes=yes) and copied is not None:
        path, data = copied
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        say(f"its TLS certificate is kept in {path}")


def remove(name: NameArgument, domain: DomainOption, yes: YesOption = False) -> None:
    """Let the roles of a service of another domain count no more; what rests on them falls.

    For example:

    `headgate peer remove CL --domain DIR`

    Exit status: 0 applied, 1 not confirmed, 2 refused; then nothing has changed.
    """

    def changes(state: State) -> tuple[Change, ...]:
        if name not in state.roles.peers:
            raise NotFound(f"no peer `{brief(name)}`", remedy="`headgate peer list` has them")
        return (RemovePeer(name),)

    _commit(domain, changes, f"roles of {name} count no more", yes=yes)


def allow(
    name: Annotated[str, argument("NAME", "The other domain: a principal here.")],
    service: Annotated[str, option("--service NAME", "The service of ours that it follows.")],
    domain: DomainOption,
    key: Annotated[str | None, option("--key DID", "Its key, if it is not a principal here yet.")] = None,
    printed: PrintOption = False,
    yes: YesOption = False,
) -> None:
    """Let another domain follow the roles of one of our services, so that they can count there.

    It is told of the records of roles that it was shown, and of no others: a rule lets it subscribe to what concerns
    it. With `--key` it is made a principal that may connect.

    For example:

    `headgate peer allow orl --service Login --key did:key:z6Mk... --domain DIR`

    Exit status: 0 applied or nothing to do, 1 not confirmed, 2 refused; then nothing has changed.
    """
    check_name("principal", name)
    check_name("service", service)
    did = None if key is None else PublicKey.from_did(key).did
    if printed:
        _print(_as_policy((*_known(name, did), *allowing(State(), name, service)), name))
        return

    def changes(state: State) -> tuple[Change, ...]:
        if name in state.principals:
            if did is not None and state.key_of(name) != did:
                raise AlreadyExists(f"`{brief(name)}` is a principal here with another key", remedy="leave --key out")
            return allowing(state, name, service)
        if did is None:
            raise UnknownName(f"no principal `{brief(name)}`", remedy="give its key with `--key did:key:...`")
        return (*_known(name, did), *allowing(state, name, service))

    _commit(domain, changes, f"{name} follows {service}", yes=yes)


def _known(name: str, did: str | None) -> tuple[Change, ...]:
    """A principal that may connect, if its key is given."""
    if did is None:
        return ()
    rule = Rule(f"{name} connects", name, frozenset({Action.CONNECT}), "*")
    return DeclarePrincipal(name), SetKey(name, did), AddRule(rule)


# -- committing -----------------------------------------------------------------------------------------------


def _commit(domain: Path, changes: Any, note: str, *, yes: bool) -> bool:
    """Show what would change, ask, and make it so; is it so now?"""
    with Domain.open(data_directory(domain)) as opened:
        made = plan(opened, changes, note)
        shown = describe(made)
        if not shown.changes:
            say(f"nothing to change at version {made.expect}")
            return True
        say_section("Changes", (one.words for one in shown.changes), more="")
        say_section("Roles that end", (one.words for one in shown.ended), more="")
        confirm(made.expect + 1, yes=yes)
        version = opened.commit(made.batch, expect=made.expect)
    say(("applied", "bold green"), f" as version {version}; a policy directory that is to be applied must say it too")
    return True


def _certificate(certificate: Path, domain: Path, name: str) -> tuple[Path, bytes]:
    """Where the node looks for a peer's TLS certificate, and what is to stand there."""
    if "/" in name or name.startswith("."):
        raise typer.BadParameter(f"--certificate: `{name}` cannot name a file")
    data = read_bytes(certificate, MAX_CERTIFICATE_FILE_BYTES)
    if len(data) > MAX_CERTIFICATE_FILE_BYTES or b"BEGIN CERTIFICATE" not in data:
        raise typer.BadParameter(f"--certificate: `{certificate}` is no certificate in PEM")
    directory = domain if Files(domain).config.is_file() else domain.parent
    return Files(directory).peers / f"{name}.crt", data


# -- for a policy directory -----------------------------------------------------------------------------------


def _as_policy(changes: Sequence[Change], who: str) -> dict[str, Any]:
    """What changes say of someone, as the keys of a policy directory; the types are Headgate's own, and not policy."""
    policy: dict[str, Any] = {}
    for change in changes:
        match change:
            case SetKey(name, key):
                policy.setdefault("principals", {})[name] = {"key": key}
            case AddRule(rule) if rule.who == who:
                policy.setdefault("policy", []).append(_rule(rule))
            case _:
                pass
    return policy


def _rule(rule: Rule) -> dict[str, Any]:
    may = sorted(action.value for action in rule.actions)
    fields: dict[str, Any] = {"id": rule.id, "who": rule.who, "may": may[0] if len(may) == 1 else may}
    if rule.actions != {Action.CONNECT}:
        fields["type"] = rule.type
    if rule.where != TRUE:
        fields["where"] = render_condition(rule.where)
    return fields


def _print(said: dict[str, Any]) -> None:
    print(yaml.safe_dump({"headgate": 1, **said}, sort_keys=False, allow_unicode=True, width=120), end="")


# -- how they stand -------------------------------------------------------------------------------------------


def list_(domain: DomainOption, json: Json = False) -> None:
    """List services of other domains, when each was heard, and what is unknown for its silence.

    For example:

    `headgate peer list --domain DIR`
    """
    data = data_directory(domain)
    with Domain.open(data) as opened:
        book = opened.ledger.state().roles
    watchers = Counter(watch.watcher for watch in book.watches)
    if (data / Peers.FILE).is_file():
        with closing(Peers(opened.paths.shared(Peers.FILE))) as peers:
            statuses = peers.statuses(book, utc_now())
    else:
        statuses = statuses_of(book, utc_now())
    if json:
        print_json({"peers": statuses, "watchers": dict(sorted(watchers.items()))})
        return
    if not statuses:
        say("no peers; `headgate peer add` names one")
    else:
        _show(statuses, book)
    for name, count in sorted(watchers.items()):
        say(f"{name} follows {count_of(count, 'record')} of ours")


def _show(statuses: Sequence[PeerStatus], book: RoleBook) -> None:
    rows = []
    for peer in statuses:
        heard = "never" if peer.seconds is None else f"{peer.seconds:.0f} s ago"
        silent = ", silent" if peer.seconds is None or peer.seconds > peer.bound else ""
        at = (peer.name, peer.service, book.peers[peer.name].url, f"{heard}{silent}", f"{peer.bound} s")
        rows.append((*at, str(peer.records), str(peer.unknown), peer.trouble or ""))
    show_table(("name", "service there", "at", "heard", "borne", "roles", "unknown", "trouble"), rows)


app = group(add, list_, remove, allow)
