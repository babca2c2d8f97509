"""May a batch that was made for a version be committed at a later one? (docs/decisions/0041)

Guarantees: only if no version in between changed the policy as its authors wrote it: what subscribers, publishers,
holders of roles and those who show statements do never stands in its way. What is in between never changes, so what a
batch was committed over can be told at any time.
Leaves out: making the batch fit the later version, which is for whoever made it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from headgate.analysis.plan import same_rules
from headgate.ledger import queries, schema
from headgate.ledger.load import touched
from headgate.model.errors import VersionConflict
from headgate.model.state import State


@dataclass(frozen=True, slots=True)
class Rebased:
    """What a batch was committed over: how many versions, and what they changed."""

    versions: int
    kinds: tuple[str, ...]


def passed_over(connection: Connection, after: int, through: int) -> Rebased:
    """What the versions in `(after, through]` changed, in words."""
    kinds = {one.table: one.comes_by for one in schema.COLLECTIONS}
    changed = (kind for table, kind in kinds.items() if touched(connection, [table], after, through))
    return Rebased(max(0, through - after), tuple(dict.fromkeys(changed)))


def check_same_policy(connection: Connection, expect: int, now: State, at: Callable[[int], State]) -> None:
    """Refuse if policy is another than at the expected version; `at` tells the state at a version."""
    if expect > now.version:
        raise _conflict(f"the ledger is at version {now.version}, not {expect} as expected")
    if not touched(connection, schema.tables(lambda one: one.authored), expect, now.version):
        return
    before = at(expect)
    if same_rules(before, now):
        return
    same, other = expect, now.version
    while other - same > 1:  # one after `same` changed it, and `other` has it changed
        middle = (same + other) // 2
        same, other = (middle, other) if same_rules(before, at(middle)) else (same, middle)
    (found,) = queries.versions(connection, other - 1, other)
    error = _conflict(f"version {other} changed the policy since version {expect}")
    error.version, error.author = other, found.author
    raise error


def _conflict(message: str) -> VersionConflict:
    return VersionConflict(message, remedy="look at what changed and submit the batch again")
