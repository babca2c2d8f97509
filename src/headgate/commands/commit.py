"""The two ways to a new version: what follows from the newest state, and what someone asked for as it is.

Guarantees: `commit` makes changes from the very version before the one that they make, again if another came between;
`submit` commits a given batch over whatever is newest, unless policy has changed since the version that it expects.
Both return when every stream has the version's starting point (D7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from headgate.model.changes import Batch, Change
from headgate.model.errors import HeadgateError, VersionConflict
from headgate.model.state import State
from headgate.node.domain import Domain, Follower

TRIES: Final = 20
"""How often changes are made anew while others keep changing the ledger."""


class ChangeableLedger(Protocol):
    """A ledger that batches are committed to."""

    def commit(self, batch: Batch, *, expect: int | None = None) -> int:
        """Apply a batch, if the ledger is at the expected version."""


class KnownState(Protocol):
    """The ledger as it is known here."""

    @property
    def state(self) -> State:
        """The newest state known."""

    def refresh(self) -> bool:
        """Look for a newer one."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The version that was made, None if there was nothing to change, and the newest state known then."""

    version: int | None
    state: State


def commit(
    ledger: ChangeableLedger, known: KnownState, make: Callable[[State], Sequence[Change]], note: str
) -> Committed:
    """Commit what follows from the newest state, in the domain's own name; no changes make no version."""
    for _ in range(TRIES):
        known.refresh()
        state = known.state
        changes = make(state)
        if not changes:
            return Committed(None, state)
        try:
            version = ledger.commit(Batch(state.administrator, tuple(changes), note), expect=state.version)
        except VersionConflict:
            continue
        known.refresh()
        return Committed(version, known.state)
    raise VersionConflict("the ledger keeps changing", remedy="send it again")


def submit(
    domain: Domain,
    follower: Follower,
    batch: Batch,
    *,
    expect: int | None = None,
    check: Callable[[State], None] | None = None,
) -> int:
    """Commit a batch; its version. What `check` refuses it refuses by the newest state, while nobody else commits."""
    version = domain.commit(batch, expect=expect, rebase=lambda _: batch, check=check)
    with suppress(HeadgateError):  # it is committed, whatever becomes of looking at it
        follower.refresh()
    return version


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """A domain's ledger as its principals change it, each at its own pace."""

    domain: Domain
    follower: Follower
    pace: Callable[[str], None] = lambda _: None
    """Counts a version that a principal is about to make, or refuses it for now."""

    @property
    def state(self) -> State:
        """The newest state known."""
        return self.follower.state

    def change(
        self,
        author: str,
        changes: Iterable[Change],
        note: str = "",
        *,
        expect: int | None = None,
        check: Callable[[State], None] | None = None,
    ) -> int:
        """Commit a batch in a principal's name; its version (`submit`)."""
        self.pace(author)
        return submit(self.domain, self.follower, Batch(author, tuple(changes), note), expect=expect, check=check)
