"""What does a subscription or a publisher lose to its rights? Restriction queries (Hermes 8).

Guarantees: "it cannot be satisfied" is said only where it is proven: by the normal forms of filter and conditions,
never by trying events. So are the attributes: those named are visible at most. Rule D14 holds: whoever governs or
audits a type is told everything about it; a principal asking about itself is told types and attributes, and
conditions only of rules marked `disclose`; every other condition counts as one that may or may not hold, so that no
proof tells of it.
Rules for roles count as they do for the memberships that the principal holds at that version, event policy for those
that the subscription counts; what event policy asks that no condition can say counts as one that may or may not hold.
Leaves out: what publishers send, the members of groups and relations, what predicates answer, for subscriptions to
history the rights of earlier versions, and roles that the principal may yet enter or leave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from headgate.analysis.entry_conditions import (
    SubscribeEntry,
    in_order,
    is_opaque,
    is_shown,
    may_hold,
    number_of,
    opaque,
    over_event,
    policy_rules,
    subscribe_entry,
)
from headgate.analysis.explain import RoleHolding, attributes_of, by_membership, held
from headgate.decide.deliver import Books, check_known, is_told_all, is_told_everything, tells_condition
from headgate.decide.event_policy import credentials
from headgate.decide.normal import Clause, bind, clauses
from headgate.decide.publish import condition_on_sent, passes_over, publish_entries, written_entries
from headgate.decide.truth import World, truth
from headgate.decide.views import covered, entries, forced_value, named_type
from headgate.model import expressions as tree
from headgate.model.composite import templates
from headgate.model.errors import BadExpression, GovernDenied, NotFound, UnknownType
from headgate.model.events import Event
from headgate.model.expressions import FALSE, TRUE, AllOf, AnyOf, Atom, Attribute, Condition, Meta, Not, looked_at
from headgate.model.rights import Action, Effect, Rule, Source, Subscription
from headgate.model.rolefiles import EventEntry
from headgate.model.roles import Membership
from headgate.model.state import State
from headgate.model.values import Kind, Value, brief


class Reason(Enum):
    """Why can nothing of a type be delivered, or published?"""

    NO_GRANT = "no-grant"
    CREDENTIALS = "credentials"
    FORBIDDEN = "forbidden"
    NEVER_TRUE = "never-true"
    FILTER = "filter"
    HIDDEN = "hidden"
    CONTRADICTS = "contradicts"
    NO_IDENTITY = "no-identity"


@dataclass(frozen=True, slots=True)
class RestrictionEntry:
    """One entry as it bears on a type. `condition` is None where it may not be told, or cannot be said.

    An entry for a role counts through a membership; one of the event policy is told as it is written.
    """

    rule: str
    effect: Effect
    type: str
    attributes: tuple[str, ...]
    condition: Condition | None
    source: Source = Source.RULE
    membership: RoleHolding | None = None
    policy: EventEntry | None = None


@dataclass(frozen=True, slots=True)
class TypeReach:
    """What a subscription gets of one type: attributes at most, under the condition, or nothing for a reason.

    `condition` holds exactly where there is a view; it is None where some part of it may not be told, or where event
    policy asks what no condition can say. Where `told` is false the asker may know no more than the name.
    """

    name: str
    told: bool
    reason: Reason | None = None
    attributes: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    condition: Condition | None = None
    entries: tuple[RestrictionEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Restriction:
    """What was asked, beside what it comes to. `satisfiable` is None where what the asker may know leaves it open."""

    subscription: str
    principal: str
    version: int
    type: str
    where: Condition
    history: bool
    full: bool
    satisfiable: bool | None
    types: tuple[TypeReach, ...]
    never: tuple[str, ...]
    """The attributes that are asked for and never visible; those of a detection with their types."""
    counted: tuple[RoleHolding, ...] = ()
    """The memberships that count for event policy, where there is any."""
    detects: str | None = None
    """The expression of a detection."""


@dataclass(frozen=True, slots=True)
class PublishEntry:
    """What one entry does to an event: attributes kept as sent, forced and nulled.

    Where `told` is false the condition and the forced values are kept back, and `condition` is None.
    """

    rule: str
    effect: Effect
    told: bool
    condition: Condition | None
    keeps: tuple[str, ...]
    forces: Mapping[str, Value]
    nulls: tuple[str, ...]
    passed_over: bool = False
    """Does it count only for publishers of whom an identity statement is in force, and none is?"""


@dataclass(frozen=True, slots=True)
class PublishRestriction:
    """What publishing a type comes to. No `reason` means that some event may be accepted."""

    principal: str
    type: str
    version: int
    full: bool
    reason: Reason | None
    entries: tuple[PublishEntry, ...]


# -- subscriptions ----------------------------------------------------------------------------------------------


def restrict(asker: str, id: str, subscription: Subscription | None, version: int, books: Books) -> Restriction:
    """What a subscription comes to under the rights of a version; `subscription` is what has the id, if anything."""
    check_known(books.now, asker)
    if subscription is None and is_told_everything(books.now, asker):
        raise NotFound(f"no subscription `{brief(id)}` at version {version}", remedy="`headgate versions` shows them")
    types = () if subscription is None else subscription.types
    told_all = bool(types) and all(is_told_all(books.now, asker, type) for type in types)
    if subscription is None or not (asker == subscription.principal or told_all):
        raise GovernDenied(
            f"`{asker}` may ask about its own subscriptions, or about those to types that it governs or audits; "
            f"`{brief(id)}` is neither at version {version}",
            remedy="ask for `govern` or `audit` on the type, or check the name",
        )
    state = books.states(version)
    own = asker == subscription.principal
    reached = []
    for name in dict.fromkeys(name for type in types for name in state.types.subtypes(type)):
        full = is_told_all(books.now, asker, name)
        reached.append(_Type(state, subscription, name, full).reach() if full or own else TypeReach(name, told=False))
    kept_back = any(not one.told for one in reached)
    able = any(one.told and one.reason is None for one in reached)
    shown = {one.name: set(one.attributes) for one in reached}
    never = [
        (type, attribute)
        for type in types
        for attribute in state.types.attributes(type)
        if attribute in _named(subscription, type)
        and not any(attribute in shown[below] for below in state.types.subtypes(type))
    ]
    detection = subscription.detection
    return Restriction(
        subscription.id,
        subscription.principal,
        version,
        subscription.type,
        subscription.where,
        subscription.history,
        told_all,
        True if able else None if kept_back else False,
        tuple(reached),
        () if kept_back else tuple(a if detection is None else f"{a} of {type}" for type, a in never),
        tuple(map(held, _counted(state, subscription))) if state.roles.policy.entries else (),
        None if detection is None else detection.text,
    )


def _named(subscription: Subscription, type: str) -> Collection[str]:
    """The attributes of a type that a filter, or a template of a detection, asks for."""
    if subscription.detection is None:
        return attributes_of(subscription.where)
    return {
        attribute
        for template in templates(subscription.detection.composite)
        if template.type == type
        for attribute, parameter in zip(template.attributes, template.parameters, strict=True)
        if parameter is not None
    }


def _counted(state: State, subscription: Subscription) -> tuple[Membership, ...]:
    return credentials(state, subscription.principal, subscription.counted)


def restricted_type(state: State, subscription: Subscription, name: str) -> TypeReach:
    """What a subscription gets of one type, all told."""
    return _Type(state, subscription, name, full=True).reach()


class _Type:
    """The entries of a subscription's principal on one type, and what can be proven of them."""

    def __init__(self, state: State, subscription: Subscription, name: str, full: bool) -> None:
        self.name = name
        self.state = state
        self.full = full
        self.where = subscription.where
        self.kinds = state.types.attributes(name)
        self.entries: list[tuple[SubscribeEntry, RestrictionEntry]] = []
        self.unshown = False
        """Did a grant of the event policy ask for credentials that do not count?"""
        subject = state.principals.get(subscription.principal, {})
        for rule, named, membership in self._listed(subscription):
            entry, tells = subscribe_entry(state, rule, named, name, subject), tells_condition(rule, full)
            if not tells and entry.written != TRUE:
                entry = replace(entry, bound=opaque(rule.id))
            self.entries.append((entry, self._told(entry, held(membership) if membership and tells else None, tells)))

    def _told(self, entry: SubscribeEntry, membership: RoleHolding | None, tells: bool) -> RestrictionEntry:
        """An entry as it may be told."""
        rule = entry.rule
        return RestrictionEntry(
            rule.id,
            rule.effect,
            rule.type,
            tuple(a for a in self.kinds if a in entry.covers),
            entry.written if tells and not is_opaque(entry.written) else None,
            rule.source,
            membership,
            self._entry(rule) if self.full and rule.source is Source.POLICY else None,
        )

    def _listed(self, subscription: Subscription) -> Iterator[tuple[Rule, str, Membership | None]]:
        """The entries on the type, in order, each with the type it names and the membership it counts through."""
        mine = entries(self.state, subscription.principal, Action.SUBSCRIBE)
        named = (
            (r, named_type(self.state, r, Action.SUBSCRIBE, self.name), m)
            for r, m in by_membership(self.state, subscription.principal, mine)
        )
        applicable = [(rule, name, one) for rule, name, one in named if name is not None]
        yield from (one for one in applicable if one[0].source is not Source.CHAIN)
        shown = _counted(self.state, subscription)
        for rule, name in policy_rules(self.state, subscription.principal, shown, self.name):
            if is_shown(self._entry(rule), shown):
                yield rule, name, None
            else:
                self.unshown |= rule.effect is Effect.GRANT
        yield from (one for one in applicable if one[0].source is Source.CHAIN)

    def _entry(self, rule: Rule) -> EventEntry:
        return self.state.roles.policy.entries[number_of(rule)]

    def reach(self) -> TypeReach:
        """What comes of this type."""
        seen = {a: k for a, k in self.kinds.items() if may_hold(self._shows(a), self.kinds)}
        told = [(entry.rule, one.condition) for entry, one in self.entries if one.condition is not None]
        return TypeReach(
            self.name,
            True,
            self._reason(seen),
            tuple(seen),
            tuple(a for a in self.kinds if a not in seen),
            _exists(told) if len(told) == len(self.entries) else None,
            tuple(one for _, one in self.entries),
        )

    def _shows(self, attribute: str) -> Condition | None:
        """The attribute is visible: a grant that covers it holds, and no forbid that does came first (D5)."""
        return in_order([(one.rule.effect, one.bound) for one, _ in self.entries if attribute in one.covers])

    def _reason(self, seen: Mapping[str, Kind]) -> Reason | None:
        grants = [one.bound for one, _ in self.entries if one.rule.effect is Effect.GRANT]
        if not grants:
            return Reason.CREDENTIALS if self.unshown and self.full else Reason.NO_GRANT
        if not may_hold(tree.any_of(*grants), self.kinds):
            return Reason.NEVER_TRUE
        exists = _exists([(one.rule, one.bound) for one, _ in self.entries])
        if not may_hold(exists, self.kinds):
            return Reason.FORBIDDEN
        if not may_hold(self.where, self.kinds):
            return Reason.FILTER
        try:
            asked = clauses(self.where, seen)  # attributes that are not in `seen` count as null
        except BadExpression:
            return None
        if not asked:
            return Reason.HIDDEN
        if exists is not None and not any(self._agrees(clause, exists) for clause in asked):
            return Reason.CONTRADICTS
        return None

    def _agrees(self, clause: Clause, exists: Condition) -> bool:
        """Can a clause of the filter be true over a view, which shows what it needs and has the event's values?"""
        needs = {t.name for t, b in clause.bounds.items() if isinstance(t, Attribute) and not b.null}
        shows = dict.fromkeys(self._shows(a) for a in sorted(needs))
        together = tree.all_of(exists, *(c for c in shows if c is not None), over_event(clause))
        return may_hold(together, self.kinds)


def _exists(listed: Sequence[tuple[Rule, Condition]]) -> Condition | None:
    """There is a view: a grant holds, and no whole-event forbid came first (D8)."""
    return in_order([(rule.effect, condition) for rule, condition in listed if rule.whole_event])


# -- publishing -------------------------------------------------------------------------------------------------


def restrict_publish(asker: str, principal: str, type_name: str, version: int, books: Books) -> PublishRestriction:
    """What a principal's rights do to the events of a type that it publishes (D6)."""
    check_known(books.now, asker)
    state = books.states(version)
    if type_name not in books.now.types:
        raise UnknownType(f"no event type `{brief(type_name)}`", remedy="`headgate versions` shows the types")
    full = is_told_all(books.now, asker, type_name)
    if not full and asker != principal:
        raise GovernDenied(
            f"`{asker}` may ask about itself, or about types that it governs or audits; "
            f"`{type_name}` for `{brief(principal)}` is neither",
            remedy="ask for `govern` or `audit` on the type",
        )
    check_known(books.now, principal)
    if type_name not in state.types:
        raise UnknownType(f"version {version} did not know the type `{type_name}`", remedy="ask about a later version")
    kinds = state.types.attributes(type_name)
    subject = state.principals.get(principal, {})
    publish_entries: list[PublishEntry] = []
    reason: Reason | None = Reason.NO_GRANT
    forbidden = False
    for rule in written_entries(state, principal, type_name):
        is_disclosed = tells_condition(rule, full)
        passed_over = passes_over(state, principal, rule)
        publish_entries.append(replace(_publish_entry(rule, kinds, is_disclosed), passed_over=passed_over))
        if passed_over:
            reason = Reason.NO_IDENTITY if reason is Reason.NO_GRANT else reason
            continue
        written = condition_on_sent(rule, kinds)
        mine = {**subject, **rule.given}
        condition = bind(written, mine, kinds) if is_disclosed or rule.where == TRUE else opaque(rule.id)
        if rule.effect is Effect.FORBID:
            forbidden = forbidden or not may_hold(Not(condition), kinds)
        elif reason is not None:
            # What the grant does not name is null when its condition is tested.
            able = may_hold(condition, {a: k for a, k in kinds.items() if a in covered(rule, kinds)})
            reason = Reason.FORBIDDEN if forbidden else None if able else Reason.NEVER_TRUE
    return PublishRestriction(principal, type_name, version, full, reason, tuple(publish_entries))


def _publish_entry(rule: Rule, kinds: Mapping[str, Kind], is_disclosed: bool) -> PublishEntry:
    if rule.effect is Effect.FORBID:
        return PublishEntry(rule.id, rule.effect, is_disclosed, rule.where if is_disclosed else None, (), {}, ())
    named = covered(rule, kinds)
    return PublishEntry(
        rule.id,
        rule.effect,
        is_disclosed,
        rule.where if is_disclosed else None,
        tuple(a for a in kinds if a in named and a not in rule.forced),
        {
            a: forced_value(rule.forced[a], kinds[a]) if is_disclosed else None
            for a in kinds
            if a in rule.forced and a in named
        },
        tuple(a for a in kinds if a not in named),
    )


# -- whether anything comes of a type ---------------------------------------------------------------------------


def wanted(state: State, type_name: str) -> bool:
    """Might somebody receive an event of this type or a subtype? (Hermes 8, Elvin's quenching)

    No is said only where it is proven that none would be delivered to any subscription in force. Filters play no part:
    a publisher learns about types, never about what subscribers ask for.
    """
    by_role = bool(state.roles.policy.entries) or any(rule.role is not None for rule in state.rules)
    for name in state.types.subtypes(type_name):
        line = frozenset(state.types.lineage(name))
        asked: set[frozenset[str]] = set()
        for subscription in state.subscriptions.values():
            if not any(type in line for type in subscription.types):
                continue
            subjects = state.principals.get(subscription.principal, {})
            who = state.groups_of(subscription.principal) | {subscription.principal}
            alike = frozenset(rule.id for rule in state.rules if rule.who in who)
            plain = not subjects and not (by_role and subscription.principal in state.roles.held)
            if plain and alike in asked:  # someone with the same rules was asked about already
                continue
            if plain:
                asked.add(alike)
            if _may_receive(state, subscription, name):
                return True
    return False


def _may_receive(state: State, subscription: Subscription, type_name: str) -> bool:
    anything = Subscription("quench", subscription.principal, type_name, counted=subscription.counted)
    reason = restricted_type(state, anything, type_name).reason
    return reason not in (Reason.NO_GRANT, Reason.CREDENTIALS, Reason.NEVER_TRUE, Reason.FORBIDDEN)


def holds_now(
    state: State, publisher: str, type_name: str, *, now: datetime, origin: str | None, rate: int | None
) -> bool | None:
    """May the publisher publish of the type, by time, rate and origin? None if no entry of it asks for those.

    Where a condition asks about the event itself, the best is assumed. So no is certain, and yes means that it is up to
    the event (Capabilities V.D).
    """
    rules = publish_entries(state, publisher, type_name)
    if not any(_is_dynamic(rule.where) for rule in rules):
        return None
    event = Event("", publisher, type_name, {}, now, rate=rate, origin=origin)
    world = World(state, state.principals.get(publisher, {}), {}, origin=origin)
    for rule in rules:
        asked = world.given(rule.given)
        if rule.effect is Effect.FORBID:
            if truth(_assumed(rule.where, best=False), event, asked) is not False:
                return False
        elif truth(_assumed(rule.where, best=True), event, asked) is True:
            return True
    return False


def _is_dynamic(condition: Condition) -> bool:
    """Does a condition look at time, rate or origin?"""
    return any(isinstance(operand, Meta) and operand.name != "publisher" for operand in looked_at(condition))


def _assumed(condition: Condition, *, best: bool) -> Condition:
    """The condition, with whatever it asks about the event answered so that it comes out true, or false."""
    match condition:
        case tree.Starred(arg):
            return _assumed(arg, best=best)
        case Not(arg):
            return Not(_assumed(arg, best=not best))
        case AllOf(args):
            return AllOf(tuple(_assumed(arg, best=best) for arg in args))
        case AnyOf(args):
            return AnyOf(tuple(_assumed(arg, best=best) for arg in args))
        case atom:
            if not _asks_event(atom):
                return atom
            return TRUE if best else FALSE


def _asks_event(atom: Atom) -> bool:
    return isinstance(atom, tree.Predicate) or any(isinstance(operand, Attribute) for operand in looked_at(atom))
