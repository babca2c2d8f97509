"""The role book in memory: the credential graph, and what rests on each record (OASIS 4.6).

Guarantees: made from a state, it is as the one that was kept up to date step by step. It belongs to one version; what
was done since a mark is undone by `rollback`, so that a batch that is refused leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias, TypeVar

from headgate.decide.rolebook import same
from headgate.model.conditions import Argument
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Election, Membership, Reference, RoleBook, Service
from headgate.model.state import State
from headgate.roles.records.facts import Interest
from headgate.roles.records.records import Records
from headgate.roles.records.strata import Role, strata

K = TypeVar("K")
Office: TypeAlias = tuple[str, str, str]
"""A service, an instance and a role."""
ByArgument: TypeAlias = dict[tuple[bool, Argument], dict[str, None]]
"""Memberships by an argument."""


class RoleIndex:
    """Who holds each role of a book, and who is elected to it and by whom; each in the order in which it began."""

    def __init__(self, book: RoleBook) -> None:
        self.members: dict[Office, dict[str, None]] = {}
        self.standing: dict[Office, dict[str, None]] = {}
        """The elections to a role."""
        self.electing: dict[str, dict[str, None]] = {}
        """The elections by a principal."""
        self._by_argument: dict[Office, dict[int, ByArgument]] = {}
        """Of a role that was looked at by an argument in a place, the memberships by that argument."""
        for membership in book.memberships.values():
            self.add(membership)
        for election in book.elections.values():
            self.add(election)

    def add(self, credential: Membership | Election) -> None:
        """A membership or an election begins."""
        office = (credential.service, credential.instance, credential.role)
        if isinstance(credential, Election):
            self.standing.setdefault(office, {})[credential.id] = None
            self.electing.setdefault(credential.elector, {})[credential.id] = None
            return
        self.members.setdefault(office, {})[credential.id] = None
        for place, by_argument in self._by_argument.get(office, {}).items():
            if place < len(credential.args):
                by_argument.setdefault(same(credential.args[place]), {})[credential.id] = None

    def remove(self, credential: Membership | Election) -> None:
        """A membership or an election ends."""
        office = (credential.service, credential.instance, credential.role)
        if isinstance(credential, Election):
            _discard(self.standing, office, credential.id)
            _discard(self.electing, credential.elector, credential.id)
            return
        _discard(self.members, office, credential.id)
        for place, by_argument in self._by_argument.get(office, {}).items():
            if place < len(credential.args):
                _discard(by_argument, same(credential.args[place]), credential.id)

    def holding(
        self,
        service: Service,
        role: str,
        having: tuple[int, Argument] | None,
        known: Callable[[str], Membership | None],
    ) -> Iterable[str]:
        """The memberships of a role; only those that have an argument in a place, if that is said.

        `known` says what each membership is.
        """
        office = (*service, role)
        if having is None:
            return self.members.get(office, ())
        at, argument = having
        places = self._by_argument.setdefault(office, {})
        if at not in places:
            by_argument: ByArgument = {}
            for id in self.members.get(office, ()):
                one = known(id)
                if one is not None and at < len(one.args):
                    by_argument.setdefault(same(one.args[at]), {})[id] = None
            places[at] = by_argument  # as a whole: another thread may look at the same time
        return places[at].get(same(argument), ())


class Book:
    """The working form of the role book at a version."""

    def __init__(self, state: State) -> None:
        book = state.roles
        self.version = state.version
        uses = [one.record for one in book.memberships.values()] + [one.record for one in book.elections.values()]
        uses += [one.record for one in book.watches]
        self.records = Records(book.records.values(), state.version, uses)
        self.interest = Interest()
        self._strata: tuple[dict[str, Rolefile], dict[Role, int]] = {}, {}
        self._undo: list[Callable[[], bool]] = []
        """How to undo what was done to `interest` since the mark, last first."""
        self._read(book)
        for record in book.records.values():
            if record.fact:
                self.interest.add(record.fact)

    def _read(self, book: RoleBook) -> None:
        self.index = RoleIndex(book)
        self.users: dict[Reference, dict[str, None]] = {}
        """The memberships and elections that rest on a record."""
        every: list[Membership | Election] = [*book.memberships.values(), *book.elections.values()]
        for one in every:
            self.users.setdefault(one.record, {})[one.id] = None
        self._is_as_marked = True

    # -- the way back -----------------------------------------------------------------------------------------

    def mark(self) -> None:
        """From here on all can be undone, until it is kept."""
        self.records.mark()
        self._undo, self._is_as_marked = [], True

    def keep(self, version: int) -> None:
        """What was done since the mark stays, and makes the book that of a version."""
        self.records.keep()
        self._undo = []
        self.version = version

    def rollback(self, state: State) -> None:
        """Undo all that was done since the mark, when the book was that of this state."""
        self.records.rollback()
        for undo in reversed(self._undo):
            undo()
        if not self._is_as_marked:  # anew, as the order in which memberships began has a meaning
            self._read(state.roles)

    # -- keeping up -------------------------------------------------------------------------------------------

    def look_at(self, fact: str) -> None:
        """A fact has a record from now on."""
        if self.interest.add(fact):
            self._undo.append(partial(self.interest.remove, fact))

    def look_away(self, fact: str) -> None:
        """A fact has a record no more."""
        if self.interest.remove(fact):
            self._undo.append(partial(self.interest.add, fact))

    def add(self, one: Membership | Election) -> None:
        """A membership or an election begins."""
        self._is_as_marked = False
        self.users.setdefault(one.record, {})[one.id] = None
        self.index.add(one)

    def remove(self, one: Membership | Election) -> None:
        """A membership or an election ends."""
        self._is_as_marked = False
        _discard(self.users, one.record, one.id)
        self.index.remove(one)

    def strata(self, rolefiles: Mapping[str, Rolefile]) -> dict[Role, int]:
        """The order in which the roles of these rolefiles are settled; worked out when they are others."""
        if self._strata[0] != rolefiles:
            self._strata = dict(rolefiles), strata(rolefiles)
        return self._strata[1]


def _discard(index: dict[K, dict[str, None]], key: K, id: str) -> None:
    ids = index.get(key)
    if ids is not None:
        ids.pop(id, None)
        if not ids:
            del index[key]


def role_names(rolefile: Rolefile | None) -> frozenset[str]:
    """The roles that a rolefile defines."""
    return frozenset() if rolefile is None else rolefile.roles
