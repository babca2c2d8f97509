"""The ledger at one version, as a value.

Guarantees: frozen; everything a decision needs at that version and nothing else. Rules are in the order of D5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.model.authority import Attested, AttestedRule, Certificate, Issuing, Provider, RevocationList, Succession
from headgate.model.changes import RegisterPredicate, Row
from headgate.model.expressions import Condition
from headgate.model.rights import Rule, Subscription
from headgate.model.roles import RoleBook
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
    private: frozenset[str] = frozenset()
    """The subject attributes that only the administrator names in requirements and conditions (D11, D14)."""
    predicates: Mapping[str, RegisterPredicate] = field(default_factory=dict)
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    """The public key of each principal that has one."""
    connect_open: bool = False
    any_names: bool = False
    """May new names look like others, and mix scripts?"""
    advertisements: frozenset[tuple[str, str]] = frozenset()
    """Who has said that it will publish what: principal and type."""
    withdrawals: Mapping[str, int] = field(default_factory=dict)
    """The last version at which a principal's unfetched deliveries were withdrawn."""
    policy_rules: Mapping[str, Condition] = field(default_factory=dict)
    """What must be wider than every requirement that a principal puts on its events (D11)."""
    attested_rules: Mapping[str, tuple[AttestedRule, ...]] = field(default_factory=dict)
    """Where identity statements brought a principal's policy rule, those of each provider, which hold together.

    The domain's own word stands before them: a principal of which it has spoken is not here.
    """
    coordinator: str | None = None
    """The key of the domain that coordinates the network; without one, this domain's administrator does."""
    network: str | None = None
    """The name of the network; without one, a certificate counts whichever network it names."""
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    """The presented certificates that are neither revoked nor expired, by key."""
    bags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Which certificates each principal presented, in order."""
    lists: Mapping[str, RevocationList] = field(default_factory=dict)
    """The newest revocation list of each issuer, as of when its freshness last mattered."""
    successions: Mapping[str, Succession] = field(default_factory=dict)
    """Which key follows which, by the old one."""
    providers: Mapping[str, Provider] = field(default_factory=dict)
    identities: Mapping[str, Attested] = field(default_factory=dict)
    """The identity statements in force, by key."""
    issuing: Mapping[str, Issuing] = field(default_factory=dict)
    roles: RoleBook = field(default_factory=RoleBook)

    def private_to(self, principal: str) -> frozenset[str]:
        """The subject attributes that a principal may not name."""
        return frozenset() if principal == self.administrator else self.private

    def key_of(self, principal: str) -> str:
        """The key of a principal; one that has none goes by its name."""
        return self.keys.get(principal, principal)

    def is_attested(self, principal: str) -> bool:
        """Is an identity statement about the principal in force, of one of the domain's providers?"""
        return any(one.principal == principal for one in self.identities.values())

    def groups_of(self, principal: str) -> frozenset[str]:
        """Every group the principal is in, directly or through other groups."""
        groups: set[str] = set()
        frontier = {principal}
        while frontier:
            frontier = {g for g, members in self.groups.items() if members & frontier} - groups
            groups |= frontier
        return frozenset(groups)

    def values_of(self, group: str) -> frozenset[str]:
        """The members of the group itself that are values: no principal and no group is called so."""
        return frozenset(
            one
            for one in self.groups.get(group, ())
            if one not in self.principals and one not in self.groups and one != self.administrator
        )

    def members_of(self, group: str) -> frozenset[str]:
        """Every principal and every value in the group, directly or through other groups."""
        within = subgroups(self.groups, group)
        return frozenset(one for at in within for one in self.groups.get(at, ()) if one not in self.groups)


def subgroups(groups: Mapping[str, frozenset[str]], group: str) -> Iterator[str]:
    """A group and every group inside it, directly or through others, as they are found."""
    reached = [group]
    for at in reached:
        yield at
        reached += [one for one in groups.get(at, ()) if one in groups and one not in reached]
