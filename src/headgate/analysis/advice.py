"""What in a policy has no effect, or not the one that its author may think?

Guarantees: a rule is said to be idle only where that is proven for every principal that it speaks to, every action and
every type, whatever roles the principals come to hold; where the proof is too long, nothing is said.
Leaves out: what publishers send, the members of groups and relations in conditions, what predicates answer; and whether
rules for roles are idle, which hangs on who enters them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from headgate.analysis.entry_conditions import SubscribeEntry, may_hold, subscribe_entry, without_others
from headgate.analysis.profiles import Profile, Profiles, without_memberships
from headgate.decide.normal import bind
from headgate.decide.publish import condition_on_sent, still_classified
from headgate.decide.views import covered, entries, may_connect, named_type
from headgate.model import expressions as tree
from headgate.model.expressions import TRUE, Condition, Constant, IsNull, Not, Predicate, RoleRef, all_of, any_of, atoms
from headgate.model.rights import ANNOUNCES, Action, Effect, Rule, Source
from headgate.model.state import State
from headgate.model.values import Kind

MOST_PROOFS: Final = 20_000
"""Proofs that are tried for one policy; after that the rules not yet looked at count as useful."""

_MOST_BEFORE: Final = 50
"""Entries before or after another that one proof takes into account; with more, nothing is proven."""


class Concern(Enum):
    """What is odd about a policy."""

    IDLE_FORBID = "idle-forbid"
    IDLE_GRANT = "idle-grant"
    EMPTY_GROUP = "empty-group"
    VALUES = "values"
    NO_KEY = "no-key"
    NOT_LET_IN = "not-let-in"
    NO_ROLE = "no-role"
    AVOIDABLE = "avoidable"
    UNATTESTED = "unattested"
    NOTHING_OF_IT = "nothing-of-it"
    MORE_READERS = "more-readers"
    NOT_DECLASSIFIED = "not-declassified"


@dataclass(frozen=True, slots=True)
class Advice:
    """A concern, and the rules, principals or entries of the event policy it is about."""

    concern: Concern
    names: tuple[str, ...]
    group: str | None = None
    role: RoleRef | None = None
    type: str | None = None


def valued(state: State) -> Iterator[Advice]:
    """The members of groups that count as values, because no principal or group is called so."""
    for group in state.groups:
        members = tuple(sorted(state.values_of(group)))
        if members:
            yield Advice(Concern.VALUES, members, group)


def doubtful_values(state: State) -> Iterator[tuple[str, str]]:
    """The groups and members of which a principal was perhaps meant: beside others, or where a rule speaks to them."""
    spoken = {rule.who for rule in state.rules if rule.role is None}
    for group in state.groups:
        mixed = not state.principals.keys().isdisjoint(state.members_of(group))
        if mixed or group in spoken or state.groups_of(group) & spoken:
            yield from ((group, one) for one in sorted(state.values_of(group)))


def advise(state: State) -> list[Advice]:
    """Everything that is odd about the policy of a state."""
    spoken = dict.fromkeys(rule.who for rule in state.rules if rule.role is None and rule.who in state.groups)
    known = state.principals.keys() | {state.administrator}
    nobody = [group for group in spoken if known.isdisjoint(state.members_of(group))]
    findings = [Advice(Concern.EMPTY_GROUP, tuple(r.id for r in state.rules if r.who == one), one) for one in nobody]
    findings += valued(state)
    idle = _Idle(state)
    for rule in state.rules:
        if rule.who not in nobody and rule.id != ANNOUNCES and idle.proven(rule):
            concern = Concern.IDLE_FORBID if rule.effect is Effect.FORBID else Concern.IDLE_GRANT
            findings.append(Advice(concern, (rule.id,)))
    without = tuple(name for name in state.principals if name not in state.keys)
    if without:
        findings.append(Advice(Concern.NO_KEY, without))
    out = tuple(name for name in state.principals if name in state.keys and not idle.connects(name))
    if out:
        findings.append(Advice(Concern.NOT_LET_IN, out))
    return [*findings, *unattested(state), *nothing_of_it(state), *_about_roles(state)]


def more_readers(state: State) -> Iterator[Advice]:
    """Types that detections publish, and principals that may read them, but not all that they are made of.

    Types that are for those who could read what they rest on are not told of, nor what was declassified for a type.
    """
    sources: dict[str, set[str]] = {}
    for one in state.subscriptions.values():
        made = None if one.detection is None else one.detection.publishes
        if made is not None and not state.types.is_for_readers(made):
            sources.setdefault(made, set()).update(still_classified(state.types, one.types, made))
    for made, looked_at in sources.items():
        names = tuple(
            name
            for name in state.principals
            if _may_read(state, name, made) and not all(_may_read(state, name, type) for type in looked_at)
        )
        if names:
            yield Advice(Concern.MORE_READERS, names, type=made)


def not_declassified(state: State) -> Iterator[Advice]:
    """Types that detections publish, with what they are made of and what is not declassified for them, as they ask."""
    for one in state.subscriptions.values():
        made = None if one.detection is None else one.detection.publishes
        if made is not None and state.types.is_of_declassified(made):
            names = tuple(still_classified(state.types, one.types, made))
            if names:
                yield Advice(Concern.NOT_DECLASSIFIED, names, type=made)


def _may_read(state: State, principal: str, type_name: str) -> bool:
    """Is there an entry by which some event of a type might be seen?"""
    for rule in entries(state, principal, Action.SUBSCRIBE):
        if named_type(state, rule, Action.SUBSCRIBE, type_name) is None:
            continue
        if rule.effect is Effect.GRANT:
            return True
        if rule.where == TRUE and rule.whole_event:
            return False
    return False


def unattested(state: State) -> Iterator[Advice]:
    """The principals that could publish without an identity statement, where the domain has a provider of those.

    What such a statement would bind them to, such as a policy rule, does not bind them before they show it.
    """
    if all(one.mapping is not None for one in state.providers.values()):
        return
    profiles = Profiles(state)
    able = [one for one in profiles.members if any(_publishes(profiles, one, name) for name in state.types)]
    if names := {name for one in able for name in profiles.members[one]}:
        yield Advice(Concern.UNATTESTED, tuple(name for name in state.principals if name in names))
    for rule in state.rules:
        grants = rule.effect is Effect.GRANT and Action.PUBLISH in rule.actions
        if rule.role is not None and grants and not rule.attested:
            yield Advice(Concern.UNATTESTED, (rule.id,), role=rule.role)


def _publishes(profiles: Profiles, profile: Profile, type_name: str) -> bool:
    """May they publish something of a type, if entries that ask for an identity statement pass them over?"""
    kinds, subject = profiles.state.types.attributes(type_name), profiles.subject(profile)
    for rule, _ in profiles.entries(profile, Action.PUBLISH, type_name):
        condition = bind(condition_on_sent(rule, kinds), {**subject, **rule.given}, kinds)
        if rule.effect is Effect.FORBID:
            if not may_hold(Not(condition), kinds):
                return False
        elif not rule.attested and may_hold(condition, {a: k for a, k in kinds.items() if a in covered(rule, kinds)}):
            return True
    return False


def nothing_of_it(state: State) -> Iterator[Advice]:
    """The rules that let someone see that an event happened, and no attribute of it: `attributes: []`."""
    for rule in state.rules:
        if rule.effect is Effect.GRANT and Action.SUBSCRIBE in rule.actions and rule.attributes == ():
            yield Advice(Concern.NOTHING_OF_IT, (rule.id,))


def _about_roles(state: State) -> Iterator[Advice]:
    """Roles that nobody can hold, and entries of the event policy that whoever they stop can get around."""
    entries = [(f"events.{number}", one) for number, one in enumerate(state.roles.policy.entries, start=1)]
    asked = [(rule.id, rule.role) for rule in state.rules if rule.role is not None]
    asked += [(id, ref) for id, one in entries for ref in one.credentials]
    for id, ref in asked:
        if not is_role(state, ref):
            yield Advice(Concern.NO_ROLE, (id,), role=ref)
    for id, one in entries:
        if one.negative and one.credentials:
            yield Advice(Concern.AVOIDABLE, (id,), role=one.credentials[0])


def is_role(state: State, ref: RoleRef) -> bool:
    """Does some service have such a role? What a service of another domain has is not known here."""
    services = state.roles.rolefiles if ref.service is None else {ref.service}
    if any(service in state.roles.peers for service in services) or (ref.service is None and state.roles.peers):
        return True
    if any(one.role == ref.role and ref.service in (None, one.service) for one in state.roles.memberships.values()):
        return True
    for service in services:
        rolefile = state.roles.rolefiles.get(service)
        if rolefile is not None and ref.role in {
            *(one.head.role for one in rolefile.statements),
            *(one.role for one in rolefile.declarations),
        }:
            return True
    return False


class _Idle:
    """Which rules do nothing."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.profiles = Profiles(without_memberships(state))  # what someone holds by a role may end
        self.left = MOST_PROOFS
        self._meant: dict[str, list[Profile]] = {}
        for profile in self.profiles.members:
            for who in profile.whom:
                self._meant.setdefault(who, []).append(profile)
        self._in: dict[Profile, bool] = {}
        self._by_role = [rule for rule in state.rules if rule.role is not None and rule.effect is Effect.GRANT]
        self._places = {rule.id: place for place, rule in enumerate(state.rules)}

    def connects(self, name: str) -> bool:
        """May the principal connect?"""
        profile = self.profiles.of(name)
        assert profile is not None
        if name in self.state.roles.held:
            return may_connect(self.state, name)
        if profile not in self._in:
            self._in[profile] = may_connect(self.state, name)
        return self._in[profile]

    def proven(self, rule: Rule) -> bool:
        """Is it proven that the rule does nothing for anybody?"""
        if rule.role is not None or not rule.actions <= {Action.PUBLISH, Action.SUBSCRIBE}:
            return False
        return all(
            self._idle_for(rule, profile, action, name)
            for profile in self._meant.get(rule.who, ())
            for action in sorted(rule.actions, key=lambda one: one.value)
            for name in self.state.types
        )

    def _idle_for(self, rule: Rule, profile: Profile, action: Action, name: str) -> bool:
        listed = self.profiles.entries(profile, action, name)
        at = next((n for n, (one, _) in enumerate(listed) if one.id == rule.id and one.source is rule.source), None)
        if at is None:
            return True
        if rule.effect is Effect.FORBID and self._may_be_granted(rule, action, name):
            return False
        if self.left <= 0 or len(listed) > _MOST_BEFORE:
            return False
        entries = self._entries(listed, profile, action, name)
        kinds = self.state.types.attributes(name)
        if action is Action.PUBLISH:
            return self._idle_publish(entries[:at], entries[at], entries[at + 1 :], kinds)
        parts: tuple[str | None, ...] = (None, *sorted(entries[at].covers))
        return not any(self._matters(entries, at, part, kinds) for part in parts)

    def _may_be_granted(self, rule: Rule, action: Action, name: str) -> bool:
        """May someone come to hold a role, or credentials, that give what a forbid then limits?"""
        line = self.state.types.lineage(name)
        if action is Action.SUBSCRIBE and rule.source is Source.RULE:
            policy = self.state.roles.policy.entries
            if any(one.credentials and not one.negative and one.event.type in line for one in policy):
                return True
        later = (one for one in self._by_role if action in one.actions and self._places[one.id] > self._places[rule.id])
        return any(named_type(self.state, one, action, name) is not None for one in later)

    def _entries(
        self, listed: Sequence[tuple[Rule, str]], profile: Profile, action: Action, name: str
    ) -> list[SubscribeEntry]:
        subject, kinds = self.profiles.subject(profile), self.state.types.attributes(name)
        entries = [subscribe_entry(self.state, rule, named, name, subject) for rule, named in listed]
        if action is Action.SUBSCRIBE:
            return entries
        return [replace(e, bound=without_others(bind(e.rule.where, subject, kinds), kinds)) for e in entries]

    def _matters(self, entries: Sequence[SubscribeEntry], at: int, part: str | None, kinds: Mapping[str, Kind]) -> bool:
        """May the entry decide an attribute, or the event, otherwise than without it?"""
        mine = entries[at]
        if part is None and not mine.rule.whole_event:
            return False
        speaking = [e for e in entries if (e.rule.whole_event if part is None else part in e.covers)]
        before = [e for e in entries[:at] if e in speaking]
        after = [e for e in entries[at + 1 :] if e in speaking]
        needs = [matches(mine), *(misses(one) for one in before)]
        if mine.rule.effect is Effect.FORBID:
            grants = [one.bound for one in after if one.rule.effect is Effect.GRANT]
            if not grants:
                return False
            needs.append(any_of(*grants))
        return self._may(all_of(*needs), kinds)

    def _idle_publish(
        self,
        before: Sequence[SubscribeEntry],
        mine: SubscribeEntry,
        after: Sequence[SubscribeEntry],
        kinds: Mapping[str, Kind],
    ) -> bool:
        """Is the entry never used? A grant that cuts or forces is put to another event than the one that was sent."""
        as_sent = [e for e in before if e.rule.effect is Effect.FORBID or _lets_all(e.rule)]
        needs = [misses(one) for one in as_sent]
        if mine.rule.effect is Effect.FORBID:
            grants = [e for e in after if e.rule.effect is Effect.GRANT]
            if not grants:
                return True
            needs.append(matches(mine))
            if all(_lets_all(e.rule) for e in grants):
                needs.append(any_of(*(e.bound for e in grants)))
        elif _lets_all(mine.rule):
            needs.append(matches(mine))
        return not self._may(all_of(*needs), kinds) if needs else False

    def _may(self, condition: Condition, kinds: Mapping[str, Kind]) -> bool:
        self.left -= 1
        return may_hold(condition, kinds)


def _lets_all(rule: Rule) -> bool:
    """Does a grant leave every event as it was sent?"""
    return rule.attributes is None and not rule.forced


def matches(entry: SubscribeEntry) -> Condition:
    """True wherever the entry counts, and perhaps elsewhere: a forbid counts unless it is false."""
    if entry.rule.effect is Effect.GRANT or entry.bound == TRUE:
        return entry.bound
    return any_of(entry.bound, *_unknown(entry.bound))


def misses(entry: SubscribeEntry) -> Condition:
    """True wherever the entry does not count, and perhaps elsewhere: a grant does not unless it is true."""
    if entry.rule.attested:  # it passes over whoever has no identity statement in force
        return TRUE
    denied = Not(entry.bound)
    return denied if entry.rule.effect is Effect.FORBID else any_of(denied, *_unknown(entry.bound))


def _unknown(condition: Condition) -> Iterator[Condition]:
    """Conditions of which one is true wherever this one is unknown: something in it is null, or gives no answer."""
    for atom in atoms(condition):
        match atom:
            case Predicate():
                yield TRUE
            case IsNull():
                pass
            case _:
                yield from (IsNull(o) for o in tree.operands(atom) if not isinstance(o, Constant) or o.value is None)
