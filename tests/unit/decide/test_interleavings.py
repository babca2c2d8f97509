"""Random interleavings of issue, delegate, revoke, expire and publish on three domains.

After every step the rights in the ledger of the domain are those that the definition gives, derived from scratch, and
what is published and delivered is what those rights say.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest

from headgate.decide.apply import apply
from headgate.ledger import Ledger
from headgate.model.changes import Batch, SetCoordinator
from headgate.model.state import ADMINISTRATOR, State
from strategies.interleavings import DOMAINS, WORLD, Story
from strategies.running import many

PARTS = 10
EACH = many(1_000)
STEPS = 14
ON_DISK = 12
COORDINATORS = {"pito": ADMINISTRATOR, "met": "pito", "ccs": "pito"}
"""One domain coordinates for itself; the others follow."""


def founding(domain: str) -> Batch:
    """The first version of a domain."""
    key = COORDINATORS[domain]
    return Batch(ADMINISTRATOR, (*WORLD.changes, SetCoordinator(None if key == ADMINISTRATOR else key)))


FOUNDED = {name: apply(State(), founding(name)) for name in DOMAINS}


class InMemory:
    """A ledger of the newest state alone."""

    def __init__(self, state: State) -> None:
        self.now = state

    def state(self, version: int | None = None) -> State:
        assert version in (None, self.now.version)
        return self.now

    def commit(self, batch: Batch) -> int:
        self.now = apply(self.now, batch)
        return self.now.version


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_rights_are_always_those_derived_from_scratch(part: int) -> None:
    for number in range(part * EACH, (part + 1) * EACH):
        books = {name: InMemory(FOUNDED[name]) for name in DOMAINS}
        Story(Random(number), books, COORDINATORS).play(STEPS)


def test_so_they_are_in_ledgers_on_disk() -> None:
    for number in range(ON_DISK):
        with tempfile.TemporaryDirectory() as folder:
            books = {name: Ledger.create(Path(folder) / f"{name}.db") for name in DOMAINS}
            for name, book in books.items():
                book.commit(founding(name))
            story = Story(Random(number), books, COORDINATORS)
            story.play(STEPS)
            for domain in story.domains:
                books[domain.name].close()
                with Ledger.open(Path(folder) / f"{domain.name}.db") as again:
                    domain.book = again
                    domain.check()  # and so it is for whoever opens the ledger afterwards
