"""The ledger at one version, as a value.

Guarantees: frozen; everything a decision needs at that version and nothing else. Rules are in the order of D5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.model.changes import RegisterPredicate, Row
from headgate.model.rights import Rule, Subscription
from headgate.model.types import Catalog
from headgate.model.values import Value

ADMINISTRATOR: Final = "administrator"
"""The domain's own principal, which governs the domain (D14)."""


@dataclass(frozen=True, slots=True)
class State:
    """What was in force at a version."""

    version: int = 0
    administrator: str = ADMINISTRATOR
    types: Catalog = field(default_factory=Catalog)
    rules: tuple[Rule, ...] = ()
    principals: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    relations: Mapping[str, frozenset[Row]] = field(default_factory=dict)
    open_names: frozenset[str] = frozenset()
    predicates: Mapping[str, RegisterPredicate] = field(default_factory=dict)
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    """The public key of each principal that has one."""
    connect_open: bool = False
    advertisements: frozenset[tuple[str, str]] = frozenset()
    """Who has said that it will publish what: principal and type."""
    withdrawals: Mapping[str, int] = field(default_factory=dict)
    """The last version at which a principal's unfetched deliveries were withdrawn."""

    def groups_of(self, principal: str) -> frozenset[str]:
        """Every group the principal is in, directly or through other groups."""
        found: set[str] = set()
        frontier = {principal}
        while frontier:
            frontier = {g for g, members in self.groups.items() if members & frontier} - found
            found |= frontier
        return frozenset(found)

    def members_of(self, group: str) -> frozenset[str]:
        """Every principal in the group, directly or through other groups."""
        found: set[str] = set()
        seen: set[str] = set()
        frontier = [group]
        while frontier:
            at = frontier.pop()
            if at in seen:
                continue
            seen.add(at)
            for member in self.groups.get(at, ()):
                if member in self.groups:
                    frontier.append(member)
                else:
                    found.add(member)
        return frozenset(found)
