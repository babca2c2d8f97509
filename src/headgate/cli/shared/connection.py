"""How commands connect to a node: the options that they share, and what is taken from a domain's directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headgate.cli.shared import options as opt
from headgate.cli.shared.common import open_domain
from headgate.cli.statements.keys import keyring_at
from headgate.cli.statements.statement_files import signer
from headgate.model.errors import NotFound
from headgate.node.config import Files
from headgate.trust.keys import PrivateKey

if TYPE_CHECKING:
    from headgate.client import Client
    from headgate.node.config import DomainLocation
    from headgate.node.domain import Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConnection:
    """How a command reaches a node, as its options say: each field is an option of every command that has one.

    Who says who it is (`--as`, `--key`) asks a node; a command that can do without reads the domain's own files.
    """

    who: opt.Who = None
    node: opt.Node = None
    key: opt.Key = None
    broker: opt.Broker = None
    certificate: opt.TlsCertificate = None
    domain: opt.Directory = None

    @property
    def asks(self) -> bool:
        """Is a node asked?"""
        return self.who is not None or self.key is not None or (bool(self.node) and self.domain is None)

    def opened(self) -> Domain:
        """The domain's own files."""
        return open_domain(self.domain or Path())

    def client(self) -> Client:
        """A client as the options say.

        A domain's directory gives addresses, certificate and broker that are not given, and the keys of `--as`. With
        `--node` and no directory, `--as` is a name of one's own keys. With `--node` and `--key` a directory is looked
        at only if it is named.
        """
        return self._connected((), None)

    def _connected(self, present: Sequence[Path], coordinator: str | None) -> Client:
        from headgate.client import connect

        if (self.who is None) == (self.key is None):
            raise typer.BadParameter("say who you are, with either --as NAME or --key FILE")
        location = _place(self.domain, needed=not self.node, wanted=self.who is not None)
        proof: Path | PrivateKey | None = self.key
        if self.who is not None:
            proof = _own_key(self.who) if location is None else location.key(self.who)
        assert proof is not None, "either of the two is given"
        return connect(
            list(self.node or ()) or (location.urls if location else []),
            proof,
            broker=self.broker or (location.broker if location else None),
            certificate=self.certificate or (location.certificate if location else None),
            present=list(present),
            coordinator=coordinator,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentingConnection(NodeConnection):
    """The same for commands that may show statements, and may ask the broker for some."""

    present: opt.Present = None
    coordinator: opt.Coordinator = None

    def client(self) -> Client:
        """A client as the options say."""
        return self._connected(self.present or (), self.coordinator)


def _own_key(name: str) -> PrivateKey:
    """A key of one's own keys, which belong to no domain."""
    directory = os.environ.get("HEADGATE_KEYS")
    return signer(name, keyring_at(None if directory is None else Path(directory)), None).key


def _place(domain: Path | None, *, needed: bool, wanted: bool) -> DomainLocation | None:
    """The domain's directory: the one that is named, or the current one, where that is needed or would help."""
    from headgate.node.config import place_of

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
