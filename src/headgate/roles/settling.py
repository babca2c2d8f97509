"""The role book while one batch is worked out: what is in force, what follows, what ends and why (OASIS 4.7, 4.8).

Guarantees: whatever no longer holds has ended, with a reason, through however many steps, before anything else is
looked at. A membership whose record is false has ended for good; one whose record is unknown grants nothing until it
heals. What comes of it all is `facts`, and nothing else is changed but the book.
Leaves out: what is asked of a service (`roles.asking`), and of other domains (`roles.mirroring`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from headgate.decide.constraints import Budget, RoleFunction, Scene, is_monitored, truth
from headgate.lang.render_roles import render_constraint, render_membership
from headgate.model.errors import BadDefinition, RoleDenied, UnknownName
from headgate.model.limits import MAX_ENTRY_STEPS, MAX_FACT_TURNS, MAX_HELD
from headgate.model.rolefiles import Argument, Rolefile
from headgate.model.roles import (
    Ban,
    Election,
    Ending,
    Link,
    Membership,
    Peer,
    Record,
    Reference,
    RoleFacts,
    Service,
    Watch,
)
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.model.values import brief
from headgate.roles.book import Book, role_names
from headgate.roles.facts import (
    CLOCK,
    GROUPS,
    Fact,
    Key,
    Mirrored,
    NotRevoked,
    When,
    fact_of,
    holder_keys,
    name_key,
    role_key,
    row_keys,
    text_of,
)
from headgate.roles.revocation import in_words, is_revoked_by

_FIRST = frozenset({"it was revoked", "its holder left", "its holder is no more", "its time is over"})
"""Reasons to end that are worth passing on."""


class Settling:
    """The role book while one batch is worked out; `state` is the state with all else that the batch does."""

    def __init__(self, book: Book, before: State, state: State, functions: Mapping[str, RoleFunction]) -> None:
        self.book = book
        self.records = book.records
        self.records.at(state.version)
        self.before = before
        self.state = state
        self.functions = functions
        self.now: datetime | None = None
        self.settled = False
        """Has anything been carried out?"""
        self.removed: frozenset[str] = frozenset()
        """Principals that the batch removes, though it may declare others of their names."""
        self.begun: dict[str, Membership] = {}
        self.elected: dict[str, Election] = {}
        self.ended: dict[str, str] = {}
        self.fallen: dict[Reference, str] = {}
        self.budgets: dict[str | None, Budget] = {}
        """What each client may still have looked at: all that it asks for in one batch shares it."""
        self.bans: set[Ban] = set(state.roles.bans)
        self.peers: dict[str, Peer] = dict(state.roles.peers)
        self.rolefiles: dict[str, Rolefile] = dict(state.roles.rolefiles)
        self.watches: set[Watch] = set(state.roles.watches)
        self.made: dict[Reference, Record | None] = {}
        self.rested: dict[Reference, tuple[Link, ...]] = {}
        self.dropped: dict[Reference, None] = {}
        self.stirred: set[Key] = set()
        self.turns: dict[str, int] = {}
        self._fresh: dict[str, dict[str, None]] = {}
        self._names: dict[str, tuple[Rolefile | None, frozenset[str]]] = {}

    # -- looking things up ------------------------------------------------------------------------------------

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

    def held_by(self, principal: str) -> Iterator[Membership]:
        """The memberships of a principal that are true, in the order in which they began."""
        for one in self.kept_by(principal):
            if one.state is True:
                yield one

    def kept_by(self, principal: str) -> Iterator[Membership]:
        """The memberships of a principal that have not ended, true or unknown, in the order in which they began."""
        for id in (*self.state.roles.held.get(principal, ()), *self._fresh.get(principal, ())):
            one = self.membership(id)
            if one is not None:
                yield one

    def members(self, place: Service, role: str, having: tuple[int, Argument] | None = None) -> Iterator[Membership]:
        """The memberships of a role that are true; only those that have an argument in a place, if that is said."""
        if having is None:
            found = self.book.holding(place, role)
        else:
            found = self.book.holding_with(place, role, *having, self.membership)
        for id in list(found):
            one = self.membership(id)
            if one is not None and one.state is True:
                yield one

    def scene(self, place: Service, client: str | None = None, origin: str | None = None) -> Scene:
        """What the constraints of a service may look at now for a request, whose work is counted."""
        budget = self.budgets.setdefault(client, Budget(MAX_ENTRY_STEPS))
        return replace(self._view(place), client=client, origin=origin, budget=budget, answers={})

    def _view(self, place: Service) -> Scene:
        return Scene(
            self.state,
            place[0],
            place[1],
            now=self.now,
            functions=self.functions,
            members=self.members,
            roles=self._roles(place[0]),
        )

    def _roles(self, service: str) -> frozenset[str]:
        """The names that are roles of a service."""
        rolefile = self.rolefiles.get(service)
        known = self._names.get(service)
        if known is None or known[0] is not rolefile:
            known = self._names[service] = rolefile, role_names(rolefile)
        return known[1]

    def holder(self, principal: str) -> None:
        """Refuse a principal that is not there."""
        if principal not in self.state.principals:
            raise UnknownName(f"no principal `{brief(principal)}`", remedy="declare it first")

    def fresh(self, id: str) -> None:
        """Refuse an id that is in use."""
        check_name("membership", id)
        if self.membership(id) is not None or self.election(id) is not None or id in self.ended:
            raise BadDefinition(f"`{id}` already names a membership or election", remedy="choose another id")

    # -- facts ------------------------------------------------------------------------------------------------

    def fact(self, fact: Fact) -> Link:
        """The record of a fact, found or made."""
        text = text_of(fact)
        ref = self.records.of_fact(text)
        if ref is None:
            ref = self.records.leaf(self.holds(fact), fact=text)
            self.book.interest.add(text)
        return Link(ref)

    def holds(self, fact: Fact) -> bool | None:
        """Is a fact true now?"""
        match fact:
            case When(service, instance, leaf):
                return truth(leaf, {}, self._view((service, instance)))
            case NotRevoked():
                bans = [ban for ban in self.bans if (ban.service, ban.instance, ban.role) == fact.office]
                return not is_revoked_by(fact.revoker, fact.office[:2], fact.args, bans)
            case Mirrored():
                return None

    # -- time and what else changed ---------------------------------------------------------------------------

    def tick(self, at: datetime) -> None:
        """The clock has come to a time."""
        self.now = at
        known = self.state.roles
        over: list[Membership | Election] = [*known.memberships.values(), *known.elections.values()]
        for one in [*over, *self.begun.values(), *self.elected.values()]:
            if one.until is not None and one.until <= at and one.id not in self.ended:
                self.end(one, "its time is over")
        for peer in self.peers.values():
            if peer.heard is None or peer.heard + timedelta(seconds=peer.bound) <= at:
                self._lose(peer.name)
        self.stirred.add(CLOCK)
        self.settle()

    def _lose(self, name: str) -> None:
        """A peer has been silent for too long: nothing is known of its records."""
        for place in [place for place in self.book.members if place[0] == name]:
            for id in list(self.book.members[place]):
                one = self.membership(id)
                for link in () if one is None else self.records.record(one.record).parents:
                    if self.records.state(link.parent) is True:
                        self.records.set(link.parent, None)

    def look_around(self) -> None:
        """What the rest of the batch changed: groups, relations, functions, principals."""
        before, after = self.before, self.state
        if before.groups != after.groups:
            self.stirred.add(GROUPS)
        for name in before.relations.keys() | after.relations.keys():
            old, new = before.relations.get(name), after.relations.get(name)
            if old is not new:
                self.stirred |= row_keys(name, old, new)
        if before.groups != after.groups or before.relations != after.relations:
            self.stirred |= {name_key(name) for name, one in self.functions.items() if is_monitored(one)}
        for name in before.predicates.keys() | after.predicates.keys():
            if before.predicates.get(name) != after.predicates.get(name):
                self.stirred.add(name_key(name))
        gone = (before.principals.keys() - after.principals.keys()) | self.removed
        for holder in after.roles.held.keys() & gone:
            for one in list(self.kept_by(holder)):
                self.end(one, "its holder is no more")
        for elector in self.book.electing.keys() & gone:
            for election in map(self.election, list(self.book.electing[elector])):
                if election is not None:
                    self.end(election, "its elector is no more")
        for watch in [one for one in self.watches if one.watcher in gone] if gone else ():
            self.watches.discard(watch)
            self.records.release(watch.record)
        for text in self.book.interest.of_members(before, after):
            self._look_again(text)
        self.settle()

    def _look_again(self, text: str) -> None:
        """Let the record of a fact say what holds; one that never comes to rest is unknown."""
        ref = self.records.of_fact(text)
        if ref is None:
            return
        found = self.holds(fact_of(text))
        if found is not self.records.state(ref):
            self.turns[text] = turns = self.turns.get(text, 0) + 1
            self.records.set(ref, found if turns <= MAX_FACT_TURNS else None)

    @property
    def untouched(self) -> bool:
        """Is the book as it was when this began: was nothing carried out, and nothing begun?"""
        return not self.settled and self.records.quiet

    # -- settling ---------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything that follows happen."""
        self.settled = True
        while True:
            changes = self.records.take()  # before facts are looked at, so that what was just made is known as it was
            self._record_made(changes.made, changes.altered)
            for ref, _, state in changes.changed:
                self._turned(ref, state)
            self._forget(self.records.sweep())
            stirred, self.stirred = self.stirred, set()
            if not stirred and not changes.changed:
                return
            for text in self.book.interest.of(stirred):
                self._look_again(text)

    def _turned(self, ref: Reference, state: bool | None) -> None:
        """A record has another state: so have those who rest on it."""
        for id in list(self.book.users.get(ref, ())):
            one: Membership | Election | None = self.membership(id) or self.election(id)
            if one is None:
                continue
            if state is False:
                self._ended(one, self._reason(ref))
            elif isinstance(one, Membership) and one.state is not state:
                self.note(replace(one, state=state))
                self._stir(one)

    def _reason(self, ref: Reference) -> str:
        """Why a record is false: the first of what it rested on that is."""
        known = self.state.roles.records.get(ref)
        for link in self.rested.get(ref, () if known is None else known.parents):
            if self.records.state(link.parent) is not link.negated:
                continue
            if link.parent in self.fallen:
                id = self.fallen[link.parent]
                return f"it rested on `{id}`: {self.ended[id]}" if self.ended[id] in _FIRST else f"it rested on `{id}`"
            below = self.made.get(link.parent) or self.state.roles.records.get(link.parent)
            if below is not None and below.fact:
                return _said(fact_of(below.fact), link.negated)
            return "what it rested on is no more"
        return "it was revoked"

    def end(self, one: Membership | Election, reason: str) -> None:
        """Something ends by itself: its record is false for good."""
        self._ended(one, reason)
        self.records.revoke(one.record)

    def _ended(self, one: Membership | Election, reason: str) -> None:
        self.ended[one.id] = reason
        self.fallen[one.record] = one.id
        self.book.remove(one)
        self.records.release(one.record)
        if isinstance(one, Membership):
            self._stir(one)

    def _stir(self, one: Membership) -> None:
        """Whatever looks at who holds a role is looked at again."""
        if role_key(one.place, one.role) in self.book.interest:
            self.stirred |= holder_keys(one)

    def begin(self, one: Membership) -> None:
        """A membership begins."""
        known = len(self.state.roles.held.get(one.holder, ())) + len(self._fresh.get(one.holder, ()))
        if known >= MAX_HELD and sum(1 for _ in self.kept_by(one.holder)) >= MAX_HELD:
            raise RoleDenied(f"`{one.holder}` holds MAX_HELD ({MAX_HELD}) roles", failure="misuse", remedy="leave some")
        self.records.hold(one.record)
        self.book.add(one)
        self.note(one)
        self._fresh.setdefault(one.holder, {})[one.id] = None
        self._stir(one)

    def note(self, one: Membership) -> None:
        """A membership is as it is now."""
        self.begun[one.id] = one

    def _record_made(self, made: Iterable[Record], altered: Iterable[Reference]) -> None:
        for record in made:
            self.made[record.ref] = record
            self.rested[record.ref] = record.parents
        for ref in altered:
            if ref in self.records:
                self.made[ref] = record = self.records.record(ref)
                if not record.permanent:  # what is false for good no longer says what it rested on
                    self.rested[ref] = record.parents

    def _forget(self, dropped: Iterable[Reference]) -> None:
        for ref in dropped:
            old = self.made.pop(ref, None) or self.state.roles.records.get(ref)
            if old is not None and old.fact:
                self.book.interest.remove(old.fact)
            if ref in self.state.roles.records:
                self.dropped[ref] = None

    def facts(self) -> RoleFacts:
        """What the batch makes of the role book."""
        book = self.state.roles
        ended = [Ending(id, why) for id, why in self.ended.items() if id in book.memberships or id in book.elections]
        return RoleFacts(
            memberships=tuple(one for id, one in self.begun.items() if id not in self.ended),
            elections=tuple(one for id, one in self.elected.items() if id not in self.ended),
            records=tuple(one for one in self.made.values() if one is not None),
            ended=tuple(ended),
            dropped=tuple(self.dropped),
            banned=tuple(sorted(self.bans - book.bans, key=repr)),
            lifted=tuple(sorted(book.bans - self.bans, key=repr)),
            peers=tuple(one for name, one in self.peers.items() if book.peers.get(name) != one),
            rolefiles=(
                *((name, one) for name, one in self.rolefiles.items() if book.rolefiles.get(name) is not one),
                *((name, None) for name in book.rolefiles if name not in self.rolefiles),
            ),
            watched=tuple(sorted(self.watches - book.watches, key=repr)),
            unwatched=tuple(sorted(book.watches - self.watches, key=repr)),
            peers_gone=tuple(name for name in book.peers if name not in self.peers),
        )


def _said(fact: Fact, negated: bool) -> str:
    match fact:
        case When(_, _, leaf):
            return f"`{render_constraint(leaf)}` {'holds now' if negated else 'no longer holds'}"
        case NotRevoked(service, instance, role, args, revoker):
            return f"`{render_membership(service, instance, role, args)}` was revoked by {in_words(revoker)}"
        case Mirrored(peer):
            return f"`{peer}` revoked it"
