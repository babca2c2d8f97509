"""What the asking commands share: who asks, and the domain as answers are drawn from it."""

from __future__ import annotations

from typing import Annotated

import typer

from headgate.decide.ask import Books
from headgate.gateway import Domain
from headgate.model.state import State

AskerOption = Annotated[
    str | None,
    typer.Option("--as", metavar="ASKER", help="Who asks, and so what may be told.", show_default="the administrator"),
]


def books_of(domain: Domain, now: State) -> Books:
    """The ledger of a domain, each state read once."""
    known = {now.version: now}

    def at(version: int) -> State:
        if version not in known:
            known[version] = domain.ledger.state(version)
        return known[version]

    return Books(now, at, domain.predicates)
