"""The role book while one batch is worked out: what is in force, what follows, what ends and why (OASIS 4.7, 4.8).

Guarantees: a membership ends if, once all that the batch changes has been taken together, what it rests on is false; it
does not end because that was false on the way. What ends, why, and in which order it is told, follows from the book and
the batch, and from no order in which facts, groups or rows are kept (docs/decisions/0029). What has ended has ended for
good; what is unknown grants nothing until it heals. What comes of it all is `facts`, and nothing else is changed but
the book.
Leaves out: what is asked of a service (`roles.requests.transition`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from headgate.decide.constraints import RoleFunction, is_monitored, truth
from headgate.lang.render import render_constraint, render_membership
from headgate.model import roles as model
from headgate.model.errors import BadDefinition, RoleDenied, UnknownName
from headgate.model.limits import MAX_FACT_TURNS, MAX_HELD
from headgate.model.roles import Credential, Link, Membership, Peer, Record, RecordWatch, Reference
from headgate.model.state import State
from headgate.model.types import check_name
from headgate.model.values import brief
from headgate.roles.records import facts
from headgate.roles.records.book import Book, RoleView
from headgate.roles.records.records import Changes
from headgate.roles.requests.revocation import in_words, is_revoked_by

_FIRST = frozenset({"it was revoked", "its holder left", "its holder is no more", "its time is over"})
"""Reasons to end that are worth passing on."""


class Settling(RoleView):
    """The role book while one batch is worked out; `state` is the state with all else that the batch does."""

    def __init__(self, book: Book, before: State, state: State, functions: Mapping[str, RoleFunction]) -> None:
        super().__init__(state, book.index, functions)
        self.book = book
        self.records = book.records
        self.records.at(state.version)
        self.records.defer()
        self.before = before
        self.moved = False
        """Has the batch changed what a search for a role may look at, but by what it entered?"""
        self.removed: frozenset[str] = frozenset()
        """Principals that the batch removes, though it may declare others of their names."""
        self.fallen: dict[Reference, str] = {}
        self.falling: dict[str, None] = {}
        """Memberships and elections whose record is false for now: if it is so in the end, they end."""
        self.contested: dict[str, None] = {}
        """Memberships that fell again and again in a circle that did not come to rest."""
        self.peers: dict[str, Peer] = dict(state.roles.peers)
        self.watches: set[RecordWatch] = set(state.roles.watches)
        self.made: dict[Reference, Record] = {}
        self.rested: dict[Reference, tuple[Link, ...]] = {}
        self.dropped: dict[Reference, None] = {}
        self.stirred: set[facts.Key] = set()
        """What has changed that facts may depend on."""
        self.pending: dict[str, None] = {}
        """Facts that are to be looked at again."""
        self.ticked = False
        """Has the clock moved since silence was last looked at?"""
        self._about_roles: dict[str, None] = {}
        """The facts about who holds roles that the batch has looked at again."""
        self._as_begun: dict[str, bool | None] = {}
        """What the memberships that the batch begins were at first."""

    # -- looking things up ------------------------------------------------------------------------------------

    def believed(self, ref: Reference) -> bool | None:
        """The state of a record."""
        return self.records.state(ref)

    def holder(self, principal: str) -> None:
        """Refuse a principal that is not there."""
        if principal not in self.state.principals:
            raise UnknownName(f"no principal `{brief(principal)}`", remedy="declare it first")

    def fresh(self, id: str) -> None:
        """Refuse an id that is in use."""
        check_name("membership", id)
        if self.credential(id) is not None or id in self.ended:
            raise BadDefinition(f"`{id}` already names a membership or election", remedy="choose another id")

    # -- facts ------------------------------------------------------------------------------------------------

    def fact(self, fact: facts.Fact) -> Link:
        """The record of a fact, found or made."""
        text = facts.text_of(fact)
        ref = self.records.of_fact(text)
        if ref is None:
            ref = self.records.leaf(self.holds(fact), fact=text)
            self.book.look_at(text)
        return Link(ref)

    def holds(self, fact: facts.Fact) -> bool | None:
        """Is a fact true now?"""
        match fact:
            case facts.When(service, instance, leaf):
                return truth(leaf, {}, self.view((service, instance)))
            case facts.NotRevoked():
                bans = [ban for ban in self.bans if (ban.service, ban.instance, ban.role) == fact.office]
                return not is_revoked_by(fact.revoker, fact.office[:2], fact.args, bans)
            case facts.Mirrored():
                return None

    # -- time and what else changed ---------------------------------------------------------------------------

    def at(self, now: datetime | None) -> None:
        """It is this time now: all facts about the clock are looked at as of one moment.

        One of them may have turned since they were last, if nothing ended by it.
        """
        if now is not None and now != self.now:
            self.now = now
            self.stirred.add(facts.CLOCK)

    def tick(self, at: datetime) -> None:
        """The clock has come to a time."""
        self.at(at)
        for one in [*self.state.roles.credentials(), *self.begun.values(), *self.elected.values()]:
            if one.until is not None and one.until <= at and one.id not in self.ended:
                self.end(one, "its time is over")
        self.ticked = True

    def _look_for_silence(self) -> None:
        """Whoever was heard in this batch is not silent in it."""
        self.ticked = False
        for peer in self.peers.values():
            if self.now and (peer.heard is None or peer.heard + timedelta(seconds=peer.bound) <= self.now):
                self._lose(peer.name)

    def _lose(self, name: str) -> None:
        """A peer has been silent for too long: nothing is known of its records."""
        for place in [place for place in self.index.members if place[0] == name]:
            for id in list(self.index.members[place]):
                one = self.membership(id)
                for link in () if one is None else self.records.record(one.record).parents:
                    if self.records.state(link.parent) is True:
                        self.records.set(link.parent, None)

    def look_around(self) -> None:
        """What the rest of the batch changed: groups, relations, functions, principals."""
        before, after = self.before, self.state
        if before.groups != after.groups:
            self.stirred.add(facts.GROUPS)
        for name in before.relations.keys() | after.relations.keys():
            old, new = before.relations.get(name), after.relations.get(name)
            if old is not new:
                self.stirred |= facts.row_keys(name, old, new)
        if before.groups != after.groups or before.relations != after.relations:
            self.stirred |= {facts.name_key(name) for name, one in self.functions.items() if is_monitored(one)}
        for name in before.predicates.keys() | after.predicates.keys():
            if before.predicates.get(name) != after.predicates.get(name):
                self.stirred.add(facts.name_key(name))
        gone = (before.principals.keys() - after.principals.keys()) | self.removed
        for holder in sorted(after.roles.held.keys() & gone):
            for one in list(self.kept_by(holder)):
                self.end(one, "its holder is no more")
        for elector in sorted(self.index.electing.keys() & gone):
            for election in map(self.election, list(self.index.electing[elector])):
                if election is not None:
                    self.end(election, "its elector is no more")
        for watch in [one for one in self.watches if one.watcher in gone] if gone else ():
            self.watches.discard(watch)
            self.records.release(watch.record)
        self.pending.update(self.book.interest.of_members(before, after))

    # -- settling ---------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything that follows happen, as far as the batch has come; nothing is false for good by it yet."""
        if self.ticked:
            self._look_for_silence()
        self._work_out()

    def conclude(self) -> None:
        """The batch is through: what is false now has ended.

        If anything is, all is worked out once more from where it stood before the batch, so that it does not matter
        what was false on the way.
        """
        self.settle()
        if self.falling or self.contested:
            self._start_again()
        self._end_all(one for id in self.falling if (one := self.credential(id)) is not None)
        self.records.latch()
        self._work_out()

    def _start_again(self) -> None:
        """Take every membership that has not ended by itself as it was, look at all facts about roles, and go on."""
        known = self.state.roles.memberships
        for id, membership in self.begun.items():
            was = self._as_begun[id] if id in self._as_begun else known[id].state
            if id not in self.ended and membership.state is not was:
                self.begun[id] = replace(membership, state=was)
        self._look_again(self._about_roles)
        self._follow(self.records.take())
        for id in [*self.begun, *self.falling]:
            one_now = self.credential(id)
            if one_now is not None:
                self._turned(one_now, self.records.state(one_now.record))
        self._work_out(final=True)

    def _work_out(self, *, final: bool = False) -> None:
        """Look at facts again, and let what follows follow, until all is at rest.

        Facts about who holds a role wait until all that the role looks at is at rest. Roles that look at each other in
        a circle go in rounds. Where a circle never comes to rest, those that fall in it again and again end together,
        once the batch is through; until then, and if nobody falls, the facts that keep turning are unknown.
        """
        waiting: dict[int, dict[str, None]] = {}
        turns: Counter[str] = Counter()
        unknown: set[str] = set()
        dips: dict[str, str] | None = None
        order = self.book.strata(self.rolefiles)
        while True:
            changes = self.records.take()  # before facts are looked at, so that what was just made is known as it was
            self._follow(changes, dips)
            dropped = self.records.sweep()
            self._forget(dropped)
            for text in (*self.pending, *self.book.interest.of(self.stirred)):
                if text not in unknown:
                    waiting.setdefault(self.book.interest.stratum(text, order), {})[text] = None
            self.pending, self.stirred = {}, set()
            if not waiting:
                if changes.changed or dropped:
                    continue
                return
            lowest = min(waiting)
            looked = waiting.pop(lowest)
            if lowest >= 0:
                self._about_roles.update(looked)
            turned = self._look_again(looked)
            turns.update(turned)
            most = max((turns[text] for text in turned), default=0)
            if most > MAX_FACT_TURNS and dips is None:
                dips = {}  # what has fallen so far may have come to rest
            elif most > 2 * MAX_FACT_TURNS:
                fell = [membership for id in dips or () if (membership := self.membership(id)) is not None]
                circle = [one for one in fell if order.get((one.service, one.role)) == lowest]
                self.contested.update({one.id: None for one in circle})
                for membership in sorted(circle, key=_began) if final else ():
                    self.end(membership, (dips or {})[membership.id])
                if not circle or not final:
                    unknown.update(turned)
                    self.records.set_all({ref: None for text in turned if (ref := self.records.of_fact(text))})
                turns.clear()
                dips = None

    def _look_again(self, texts: Iterable[str]) -> list[str]:
        """Let the records of facts say what holds, all of them at once; those that turned."""
        states: dict[Reference, bool | None] = {}
        turned = []
        for text in sorted(texts):
            ref = self.records.of_fact(text)
            if ref is None:
                continue
            holds = self.holds(facts.fact_of(text))
            if holds is not self.records.state(ref):
                states[ref] = holds
                turned.append(text)
        if states:
            self.records.set_all(states)
        return turned

    def _follow(self, changes: Changes, dips: dict[str, str] | None = None) -> None:
        """Records have other states: so have those who rest on them. `dips` is told who falls, and why."""
        self._record_made(changes.made, changes.altered)
        over: list[Credential] = []
        turned = [(ref, state) for ref, _, state in changes.changed]
        turned += [(made.ref, made.state) for made in changes.made]  # a later request of the batch may have turned it
        for ref, state in turned:
            for id in list(self.book.index.users.get(ref, ())):
                credential = self.credential(id)
                if credential is None:
                    continue
                if state is False and self.records.is_final(ref):
                    over.append(credential)
                    continue
                if state is False and dips is not None and id not in dips:
                    dips[id] = self._reason(ref)
                self._turned(credential, state)
        self._end_all(over)

    def _turned(self, credential: Credential, state: bool | None) -> None:
        """The record of a membership or an election has another state for now."""
        if state is False:
            self.falling[credential.id] = None
        else:
            self.falling.pop(credential.id, None)
        self.moved = self.moved or state is not (credential.state if isinstance(credential, Membership) else True)
        if isinstance(credential, Membership) and credential.state is not state:
            self.begun[credential.id] = replace(credential, state=state)
            self._stir(credential)

    def _reason(self, ref: Reference) -> str:
        """Why a record is false: the first of what it rested on that is, before all what is so for good."""
        known = self.state.roles.records.get(ref)
        rested = self.rested.get(ref, () if known is None else known.parents)
        against = [link for link in rested if self.records.state(link.parent) is link.negated]
        if self.records.is_final(ref):
            against.sort(key=lambda link: not self.records.is_final(link.parent))
        for link in against:
            if link.parent in self.fallen:
                id = self.fallen[link.parent]
                why = self.ended.get(id, "")
                return f"it rested on `{id}`: {why}" if why in _FIRST else f"it rested on `{id}`"
            below = self.made.get(link.parent) or self.state.roles.records.get(link.parent)
            if below is not None and below.fact:
                return _said(facts.fact_of(below.fact), link.negated)
            return "what it rested on is no more"
        return "it was revoked"

    def end(self, one: Credential, reason: str) -> None:
        """Something ends by itself: its record is false for good."""
        self._ended(one, reason)
        self.records.revoke(one.record)

    def _end_all(self, over: Iterable[Credential]) -> None:
        """What rested on something that is false has ended, all of it at once."""
        ending = sorted(over, key=_began)
        self.fallen.update({one.record: one.id for one in ending})
        for one, reason in [(one, self._reason(one.record)) for one in ending]:
            self._ended(one, reason)

    def _ended(self, credential: Credential, reason: str) -> None:
        self.moved = True
        self.ended[credential.id] = reason
        self.fallen[credential.record] = credential.id
        self.falling.pop(credential.id, None)
        self.book.remove(credential)
        self.records.release(credential.record)
        if isinstance(credential, Membership) and credential.state is not False:
            self._stir(credential)

    def _stir(self, one: Membership) -> None:
        """Whatever looks at who holds a role is looked at again."""
        if facts.role_key(one.place, one.role) in self.book.interest:
            self.stirred |= facts.holder_keys(one)

    def begin(self, membership: Membership) -> None:
        """A membership begins."""
        known = len(self.state.roles.held.get(membership.holder, ())) + len(self.fresh_of.get(membership.holder, ()))
        if known >= MAX_HELD and sum(1 for _ in self.kept_by(membership.holder)) >= MAX_HELD:
            raise RoleDenied(
                f"`{membership.holder}` holds MAX_HELD ({MAX_HELD}) roles", failure="misuse", remedy="leave some"
            )
        self.records.hold(membership.record)
        self.book.add(membership)
        self.begun[membership.id] = membership
        self._as_begun[membership.id] = membership.state
        self.fresh_of.setdefault(membership.holder, {})[membership.id] = None
        self._stir(membership)

    def _record_made(self, made: Iterable[Record], altered: Iterable[Reference]) -> None:
        for record in made:
            self.made[record.ref] = record
            self.rested[record.ref] = record.parents
        for ref in altered:
            if ref in self.records:
                self.made[ref] = record = self.records.record(ref)
                if not record.permanent:  # what is false for good no longer says what it rested on
                    self.rested[ref] = record.parents
                elif record.fact:
                    self._look_away(record.fact)

    def _forget(self, dropped: Iterable[Reference]) -> None:
        for ref in dropped:
            old = self.made.pop(ref, None) or self.state.roles.records.get(ref)
            if old is not None and old.fact:
                self._look_away(old.fact)
            if ref in self.state.roles.records:
                self.dropped[ref] = None

    def _look_away(self, fact: str) -> None:
        """A record of a fact is gone, or false for good; another may stand for the fact since."""
        if self.records.of_fact(fact) is None:
            self.book.look_away(fact)

    def facts(self) -> model.RoleFacts:
        """What the batch makes of the role book, in an order that follows from what it is."""
        book = self.state.roles
        known = [one for id, one in self.begun.items() if id not in self.ended and id in book.memberships]
        fresh = [one for id, one in self.begun.items() if id not in self.ended and id not in book.memberships]
        over = [id for _, id in sorted((_age(ref), id) for ref, id in self.fallen.items())]
        return model.RoleFacts(
            memberships=(*(one for one in sorted(known, key=_began) if one != book.memberships[one.id]), *fresh),
            elections=tuple(one for id, one in self.elected.items() if id not in self.ended),
            records=tuple(self.made[ref] for ref in sorted(self.made)),
            ended=tuple(
                model.Ending(id, self.ended[id]) for id in over if id in book.memberships or id in book.elections
            ),
            dropped=tuple(sorted(self.dropped)),
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


def _age(ref: Reference) -> tuple[int, int]:
    """A key by which records come as they were made: by version, and in it by place."""
    return model.magic_of(ref), model.place_of(ref)


def _began(one: Credential) -> tuple[int, int]:
    return _age(one.record)


def _said(fact: facts.Fact, negated: bool) -> str:
    match fact:
        case facts.When(_, _, leaf):
            return f"`{render_constraint(leaf)}` {'holds now' if negated else 'no longer holds'}"
        case facts.NotRevoked(service, instance, role, args, revoker):
            return f"`{render_membership(service, instance, role, args)}` was revoked by {in_words(revoker)}"
        case facts.Mirrored(peer):
            return f"`{peer}` revoked it"
