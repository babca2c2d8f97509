"""How commands connect to a node: the options that they share, and what is taken from a domain's directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.shared.rendering import check_text
from headgate.cli.statements.keys import keyring_at
from headgate.cli.statements.statement_files import signer
from headgate.model.errors import NotFound
from headgate.node.config import Files
from headgate.trust.keys import PrivateKey

if TYPE_CHECKING:
    from headgate.client import Client
    from headgate.node.location import DomainLocation

NodeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        metavar="URL",
        envvar="HEADGATE_NODE",
        help="A gateway, such as `https://gate.example.org:8443`; may be repeated.",
        show_default="as the domain's settings say",
    ),
]
WhoOption = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Act as this principal: `keys/NAME.pem` of the domain.")
]
KeyOption = Annotated[Path | None, typer.Option("--key", metavar="FILE", help="The principal's private key instead.")]
BrokerOption = Annotated[
    str | None,
    typer.Option("--broker", metavar="DID", help="The broker to trust.", show_default="the domain's"),
]
CertificateOption = Annotated[
    Path | None,
    typer.Option("--certificate", metavar="FILE", help="The certificate to trust.", show_default="the domain's"),
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--domain",
        metavar="DIR",
        envvar="HEADGATE_DOMAIN",
        help="The domain's directory.",
        show_default="the current one, if it is a domain",
    ),
]


PresentOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--present", metavar="FILE", help="Certificates and other statements to show, one a line; may be repeated."
    ),
]
CoordinatorOption = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        metavar="DID",
        envvar="HEADGATE_COORDINATOR",
        help="Trust only a broker that shows a chain from this domain, which coordinates the network.",
    ),
]


def connected(
    node: Sequence[str] | None,
    who: str | None,
    key: Path | None,
    broker: str | None,
    certificate: Path | None,
    domain: Path | None,
    *,
    present: Sequence[Path] | None = None,
    coordinator: str | None = None,
) -> Client:
    """A client as the options say.

    A domain's directory gives addresses, certificate and broker that are not given, and the keys of `--as`. With
    `--node` and no directory, `--as` is a name of one's own keys. With `--node` and `--key` a directory is looked at
    only if it is named.
    """
    from headgate.client import connect

    check_text(who, broker, coordinator, *(node or ()))
    if (who is None) == (key is None):
        raise typer.BadParameter("say who you are, with either --as NAME or --key FILE")
    place = _place(domain, needed=not node, wanted=who is not None)
    urls = list(node or ()) or (place.urls if place else [])
    if place is not None:
        broker = broker or place.broker
        certificate = certificate or place.certificate
    proof: Path | PrivateKey | None = key
    if who is not None:
        proof = _own_key(who) if place is None else place.key(who)
    assert proof is not None, "either of the two is given"
    return connect(
        urls, proof, broker=broker, certificate=certificate, present=list(present or ()), coordinator=coordinator
    )


def _own_key(name: str) -> PrivateKey:
    """A key of one's own keys, which belong to no domain."""
    directory = os.environ.get("HEADGATE_KEYS")
    return signer(name, keyring_at(None if directory is None else Path(directory)), None).key


def _place(domain: Path | None, *, needed: bool, wanted: bool) -> DomainLocation | None:
    """The domain's directory: the one that is named, or the current one, where that is needed or would help."""
    from headgate.node.location import place_of

    if domain is None and not needed and not (wanted and Files(Path()).config.is_file()):
        return None
    directory = domain or Path()
    if not Files(directory).config.is_file() and Files(directory.parent).config.is_file() and domain is not None:
        directory = directory.parent  # its data directory was named
    if domain is None and not Files(directory).config.is_file():
        raise NotFound(
            "the current directory is not a domain", remedy="give `--domain DIR`, or `--node URL` and `--key FILE`"
        )
    return place_of(directory, os.environ)
