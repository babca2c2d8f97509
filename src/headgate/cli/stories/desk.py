"""Where signed statements are taken up in a domain: as a gateway does it, without the network in between.

Guarantees: nothing is believed that does not verify. Statements go through the same door as at a gateway: signatures
first, then chains and providers, then one batch of the ledger, or a refusal and nothing.
Leaves out: proving that whoever shows a statement holds its key, which is the handshake's part.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import datetime
from types import TracebackType
from typing import Final, Self, assert_never

from headgate.cli.stories.script import Declaring, Deed, Revoking, Showing, Waiting
from headgate.commands.signed_types import SignedTypes
from headgate.commands.statements import Authority
from headgate.gateway.authority.expiry import StandingClock
from headgate.node.domain import Domain
from headgate.node.ledger_follower import Follower
from headgate.node.statement_register import FILE, StatementRegister
from headgate.trust.revocations import verify_revocations

_NOBODY: Final = ""
"""The key of a service that issues for the domain; here every issuer has its own directory."""

_STRANGERS: Final = 100
"""Principals that may come by themselves."""


class Desk:
    """Takes up what is shown to one domain."""

    def __init__(self, domain: Domain, clock: Callable[[], datetime]) -> None:
        self._files = ExitStack()
        follower = self._files.enter_context(closing(Follower(domain)))
        register = self._files.enter_context(closing(StatementRegister(domain.paths.directory / FILE)))
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
        self._standing = StandingClock(domain, follower, clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def do(self, deed: Deed) -> None:
        """Let it count, or refuse it with the reason."""
        match deed:
            case Showing(key, statements):
                self._authority.take_up(key, self._authority.opened(statements))
            case Declaring(name, definition):
                self._types.declare(name, definition)
            case Revoking(text):
                self._authority.hear(verify_revocations(text, now=self._clock()), followed=False)
            case Waiting():
                self._standing.settle()
            case _:
                assert_never(deed)
