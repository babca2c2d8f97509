"""The roles of a domain as requests look at them: those of a state, with what was begun and has ended since.

Guarantees: whoever works out a batch, and whoever only searches, sees the same by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from headgate.decide.constraints import Budget, RoleFunction, Scene
from headgate.model.conditions import Argument
from headgate.model.limits import MAX_ENTRY_STEPS
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Ban, Election, Membership, Reference, Service
from headgate.model.state import State
from headgate.roles.records.book import RoleIndex, role_names
from headgate.roles.rolefiles.types import readings


class RoleView:
    """The memberships and elections in force."""

    def __init__(self, state: State, index: RoleIndex, functions: Mapping[str, RoleFunction]) -> None:
        self.state = state
        self.index = index
        self.functions = functions
        self.now: datetime | None = None
        self.begun: dict[str, Membership] = {}
        self.elected: dict[str, Election] = {}
        self.ended: dict[str, str] = {}
        """What has ended, and why."""
        self.fresh_of: dict[str, dict[str, None]] = {}
        """The memberships that were begun, by holder."""
        self.bans: set[Ban] = set(state.roles.bans)
        self.rolefiles: dict[str, Rolefile] = dict(state.roles.rolefiles)
        self.budgets: dict[str | None, Budget] = {}
        """What each client may still have looked at: all that it asks for in one batch shares it."""
        self._names: dict[str, tuple[Rolefile | None, frozenset[str]]] = {}

    def membership(self, id: str) -> Membership | None:
        """A membership in force."""
        if id in self.ended:
            return None
        return self.begun.get(id) or self.state.roles.memberships.get(id)

    def election(self, id: str) -> Election | None:
        """An election in force."""
        if id in self.ended:
            return None
        return self.elected.get(id) or self.state.roles.elections.get(id)

    def believed(self, ref: Reference) -> bool | None:
        """The state of a record."""
        record = self.state.roles.records.get(ref)
        return False if record is None else record.state

    def held_by(self, principal: str) -> Iterator[Membership]:
        """The memberships of a principal that are true, in the order in which they began."""
        return (one for one in self.kept_by(principal) if one.state is True)

    def kept_by(self, principal: str) -> Iterator[Membership]:
        """The memberships of a principal that have not ended, whatever they are now, in the order they began in."""
        for id in (*self.state.roles.held.get(principal, ()), *self.fresh_of.get(principal, ())):
            one = self.membership(id)
            if one is not None:
                yield one

    def members(self, place: Service, role: str, having: tuple[int, Argument] | None = None) -> Iterator[Membership]:
        """The memberships of a role that are true; only those that have an argument in a place, if that is said."""
        for id in list(self.index.holding(place, role, having, self.membership)):
            one = self.membership(id)
            if one is not None and one.state is True:
                yield one

    def elections_to(self, place: Service, role: str) -> Iterator[Election]:
        """The elections in force to a role."""
        standing = map(self.election, self.index.standing.get((*place, role), ()))
        return (one for one in standing if one is not None)

    def scene(self, place: Service, client: str | None = None, origin: str | None = None) -> Scene:
        """What the constraints of a service may look at now for a request, whose work is counted."""
        budget = self.budgets.setdefault(client, Budget(MAX_ENTRY_STEPS))
        return replace(self.view(place), client=client, origin=origin, budget=budget, answers={})

    def view(self, service: Service) -> Scene:
        """What the constraints of a service may look at now, whoever asks."""
        return Scene(
            self.state,
            service[0],
            service[1],
            now=self.now,
            functions=self.functions,
            members=self.members,
            roles=self._roles(service[0]),
            readings=readings(self.rolefiles.get(service[0])),
        )

    def _roles(self, service: str) -> frozenset[str]:
        """The names that are roles of a service."""
        rolefile = self.rolefiles.get(service)
        known = self._names.get(service)
        if known is None or known[0] is not rolefile:
            known = self._names[service] = rolefile, role_names(rolefile)
        return known[1]
