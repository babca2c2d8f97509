"""Where signed statements are taken up in a domain: as a gateway does it, without the network in between.

Guarantees: nothing is believed that does not verify. Statements go through the same door as at a gateway: signatures
first, then chains and providers, then one batch of the ledger, or a refusal and nothing.
Leaves out: proving that whoever shows a statement holds its key, which is the handshake's part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from typing import Final

from headgate.commands.event_types import SignedTypes
from headgate.commands.statements import Authority
from headgate.node.domain import Domain, Follower
from headgate.node.statement_register import StatementRegister
from headgate.trust.certificates import verify_revocations

_NOBODY: Final = ""
"""The key of a service that issues for the domain; here every issuer has its own directory."""

_STRANGERS: Final = 100
"""Principals that may come by themselves."""


class Desk:
    """Takes up what is shown to one domain; its files are closed with `files`."""

    def __init__(self, domain: Domain, clock: Callable[[], datetime], files: ExitStack) -> None:
        follower = files.enter_context(closing(Follower(domain)))
        register = files.enter_context(closing(StatementRegister(domain.paths.directory / StatementRegister.FILE)))
        self._clock = clock
        self._authority = Authority(
            domain,
            follower,
            register,
            own=_NOBODY,
            audience=domain.paths.directory.name,
            guests=_STRANGERS,
            clock=clock,
        )
        self._types = SignedTypes(self._authority, register)

    def show(self, key: str, statements: Sequence[str]) -> None:
        """The holder of a key shows statements, and is let in with them."""
        self._authority.take_up(key, self._authority.opened(statements))

    def declare(self, name: str, definition: str) -> None:
        """Somebody brings the signed definition of a type."""
        self._types.declare(name, definition)

    def revoke(self, text: str) -> None:
        """Somebody brings the signed revocation list of an issuer."""
        self._authority.hear(verify_revocations(text, now=self._clock()), followed=False)
