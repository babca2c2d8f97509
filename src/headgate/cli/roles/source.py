"""What the commands that look at roles share: whether a node is asked or a directory is read, and roles as words.

Guarantees: who says who it is (`--as`, `--key`) asks a node, and is told what it may know; who does not reads the
domain's own files, which only its operator can, and sees everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.cli.shared.common import fail, open_domain
from headgate.cli.shared.connection import connected
from headgate.lang.render_roles import render_argument, render_membership
from headgate.lang.rolefile import parse_argument
from headgate.model.conditions import Argument
from headgate.model.errors import BadDefinition, BadExpression, RoleDenied

if TYPE_CHECKING:
    from headgate.client import Client
    from headgate.node.domain import Domain


@dataclass(frozen=True, slots=True)
class Way:
    """How a command reaches roles, as its options say."""

    node: Sequence[str] | None = None
    who: str | None = None
    key: Path | None = None
    broker: str | None = None
    certificate: Path | None = None
    domain: Path | None = None

    @property
    def asks(self) -> bool:
        """Is a node asked?"""
        return self.who is not None or self.key is not None or (bool(self.node) and self.domain is None)

    def client(self) -> Client:
        """A connection to the node."""
        return connected(self.node, self.who, self.key, self.broker, self.certificate, self.domain)

    def opened(self) -> Domain:
        """The domain's own files."""
        return open_domain(self.domain or Path())


@contextmanager
def judged() -> Iterator[None]:
    """A role that is denied is an answer: it is shown with its class, and the status is 1."""
    try:
        yield
    except RoleDenied as error:
        reason = error.details.get("reason")
        error.message = f"{error.message} ({error.failure}{f', {reason}' if reason else ''})"
        fail(error, status=1)


# -- roles as words -------------------------------------------------------------------------------------------


def arguments_of(texts: Iterable[str]) -> list[Argument | None]:
    """Arguments of the command line: `_` is open, and what is no constant of rolefiles is text."""
    return [None if text == "_" else _argument(text) for text in texts]


def _argument(text: str) -> Argument:
    try:
        return parse_argument(text)
    except BadExpression:
        return text


def role_words(service: str, instance: str, role: str, args: Sequence[Any]) -> str:
    """`Conf.Member('dm', _)`; a service without a rolefile may have any name."""
    try:
        if None not in args:
            return render_membership(service, instance, role, args)
        return f"{render_membership(service, instance, role, ())}({', '.join(map(_open, args))})"
    except BadDefinition:
        return f"{service}.{role}({', '.join(map(_open, args))})" if args else f"{service}.{role}"


def _open(one: Any) -> str:
    return "_" if one is None else render_argument(one)
