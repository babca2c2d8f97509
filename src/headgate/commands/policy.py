"""Policy: changed as asked, or planned first and then applied.

Guarantees: a batch is one version, all of it or nothing, in the name of whoever asked for it. Of a plan, what was shown
is what is done: one that another version came before is put on that if policy is the same there and the same plan
follows from it (docs/decisions/0041); else nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from headgate.analysis.plan import Plan
from headgate.commands.commit import LedgerAccess
from headgate.model.changes import Batch, Change, Unsubscribe
from headgate.model.errors import VersionConflict
from headgate.model.state import State
from headgate.node.domain import Domain
from headgate.roles.requests.transition import transition


def change_policy(
    ledger: LedgerAccess, author: str, changes: Iterable[Change], note: str = "", *, expect: int | None = None
) -> int:
    """Make changes of policy as one version; refused if policy has changed since the version that is expected."""
    return ledger.change(author, changes, note, expect=expect)


def plan(domain: Domain, make: Callable[[State], Sequence[Change]], note: str) -> Plan:
    """What changes in the administrator's name would make of the newest state."""
    before = domain.ledger.state()
    batch = Batch(before.administrator, tuple(make(before)), note)
    made = transition(before, batch, functions=domain.functions(before))
    return Plan(batch, before, made.after, made.batch)


def apply_plan(domain: Domain, made: Plan, again: Callable[[State], Plan], note: str) -> int:
    """Commit a plan; its version. `again` plans anew, for a later version."""

    def rebase(state: State) -> Batch:
        anew = again(state).batch
        if _lasting(anew) != _lasting(made.batch):
            raise VersionConflict(f"another plan follows from version {state.version}")
        return replace(anew, note=note)

    try:
        return domain.commit(replace(made.batch, note=note), expect=made.expect, rebase=rebase)
    except VersionConflict as error:
        whose = f", which is by `{error.author}`" if error.author is not None else ""
        raise VersionConflict(f"{error.message}{whose}; this plan was not applied", remedy="plan again") from None


def _lasting(batch: Batch) -> list[str]:
    """The changes of a plan, but for the subscriptions that end with it: those come and go."""
    return [repr(one) for one in batch.changes if not isinstance(one, Unsubscribe)]
