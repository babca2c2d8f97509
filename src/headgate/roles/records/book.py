"""The role book in memory: the credential graph, and what rests on each record (OASIS 4.6).

Guarantees: made from a state, it is as the one that was kept up to date step by step. It belongs to one version; what
was done since can be undone, so that a batch that is not committed leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from headgate.decide.rolebook import same
from headgate.model.conditions import Argument
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Election, Membership, Reference, Service
from headgate.model.state import State
from headgate.roles.records.facts import Interest
from headgate.roles.records.records import Records
from headgate.roles.records.strata import Role, strata

K = TypeVar("K")
Office: TypeAlias = tuple[str, str, str]
"""A service, an instance and a role."""
Found: TypeAlias = dict[tuple[bool, Argument], dict[str, None]]
"""Memberships by an argument."""


class Book:
    """The working form of the role book at a version."""

    def __init__(self, state: State) -> None:
        book = state.roles
        self.version = state.version
        uses = [one.record for one in book.memberships.values()] + [one.record for one in book.elections.values()]
        uses += [one.record for one in book.watches]
        self.records = Records(book.records.values(), state.version, uses)
        self.users: dict[Reference, dict[str, None]] = {}
        self.members: dict[Office, dict[str, None]] = {}
        self.standing: dict[Office, dict[str, None]] = {}
        """The elections to a role."""
        self.electing: dict[str, dict[str, None]] = {}
        """The elections by a principal."""
        self._found: dict[Office, dict[int, Found]] = {}
        """Of a role that was looked at by an argument in a place, the memberships by that argument."""
        self.interest = Interest()
        self._strata: tuple[dict[str, Rolefile], dict[Role, int]] = {}, {}
        for membership in book.memberships.values():
            self.add(membership)
        for election in book.elections.values():
            self.elect(election)
        for record in book.records.values():
            if record.fact:
                self.interest.add(record.fact)

    def add(self, one: Membership) -> None:
        """A membership begins."""
        self.users.setdefault(one.record, {})[one.id] = None
        office = (one.service, one.instance, one.role)
        self.members.setdefault(office, {})[one.id] = None
        for place, found in self._found.get(office, {}).items():
            if place < len(one.args):
                found.setdefault(same(one.args[place]), {})[one.id] = None

    def elect(self, one: Election) -> None:
        """An election begins."""
        self.users.setdefault(one.record, {})[one.id] = None
        self.standing.setdefault((one.service, one.instance, one.role), {})[one.id] = None
        self.electing.setdefault(one.elector, {})[one.id] = None

    def remove(self, one: Membership | Election) -> None:
        """A membership or an election ends."""
        _discard(self.users, one.record, one.id)
        office = (one.service, one.instance, one.role)
        if isinstance(one, Election):
            _discard(self.standing, office, one.id)
            _discard(self.electing, one.elector, one.id)
        else:
            _discard(self.members, office, one.id)
            for place, found in self._found.get(office, {}).items():
                if place < len(one.args):
                    _discard(found, same(one.args[place]), one.id)

    def holding(self, place: Service, role: str) -> Iterator[str]:
        """The memberships of a role, in the order in which they began."""
        yield from self.members.get((*place, role), ())

    def holding_with(
        self, place: Service, role: str, at: int, argument: Argument, known: Callable[[str], Membership | None]
    ) -> Iterator[str]:
        """Those with an argument in a place; `known` says what each membership is."""
        office = (*place, role)
        places = self._found.setdefault(office, {})
        if at not in places:
            found: Found = {}
            for id in self.members.get(office, ()):
                one = known(id)
                if one is not None and at < len(one.args):
                    found.setdefault(same(one.args[at]), {})[id] = None
            places[at] = found
        yield from places[at].get(same(argument), ())

    def strata(self, rolefiles: Mapping[str, Rolefile]) -> dict[Role, int]:
        """The order in which the roles of these rolefiles are settled; worked out when they are others."""
        if self._strata[0] != rolefiles:
            self._strata = dict(rolefiles), strata(rolefiles)
        return self._strata[1]


def _discard(index: dict[K, dict[str, None]], key: K, id: str) -> None:
    found = index.get(key)
    if found is not None:
        found.pop(id, None)
        if not found:
            del index[key]


def role_names(rolefile: Rolefile | None) -> frozenset[str]:
    """The roles that a rolefile defines."""
    if rolefile is None:
        return frozenset()
    return frozenset(one.head.role for one in rolefile.statements) | {one.role for one in rolefile.declarations}
