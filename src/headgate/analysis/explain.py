"""Why does a principal see what it sees of an event? Facts only; the words are the command line's.

Guarantees: what is said to be visible is exactly what `decide` makes visible. Rule D14 holds: whoever owns, governs or
audits the event's type is told everything. A principal asking about itself is told types and attributes, conditions
only of rules marked `disclose`, and no positions; and only of events that its subscriptions brought it, or that a
subscription to history made now would bring it (D10), so that a right once lost cannot be used to look at the past.
Any other event answers as one that does not exist; so does one whose requirement the principal does not meet (D11).
Event policy is the domain's: what its entries ask is told only to those who are told everything. Of an entry of it, it
is said what its parameters were, which credentials counted for the best choice, which it lacked, and whether its
constraint was true of them. What may not be told is None or left out, and the field says which.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import islice, product
from typing import Final

from headgate.analysis.entry_conditions import number_of
from headgate.decide.constraints import truth as constraint_truth
from headgate.decide.constraints import value as constraint_value
from headgate.decide.deliver import (
    Books,
    admits,
    check_known,
    is_told_all,
    is_told_everything,
    looked_for,
    seen_by,
    tells_condition,
    view_for,
    wants,
)
from headgate.decide.event_policy import credentials, entry_truth, means, parameters, policy_scene
from headgate.decide.rolebook import fit
from headgate.decide.truth import World, truth, value
from headgate.decide.views import Verdict, condition_for, named_type, verdicts, view
from headgate.model import expressions as tree
from headgate.model.errors import GovernDenied, NotFound, UnknownType
from headgate.model.events import Event
from headgate.model.expressions import (
    TRUE,
    Argument,
    Condition,
    Constant,
    Operand,
    RoleRef,
    Subject,
    Variable,
    atoms,
    looked_at,
    operands,
)
from headgate.model.rights import Action, Effect, Rule, Source, Subscription
from headgate.model.rolefiles import EventEntry
from headgate.model.roles import Membership
from headgate.model.state import State
from headgate.model.values import Kind, Value, brief

_MOST_JUDGED: Final = 256
"""Choices of credentials that are looked at to say which counted."""


# -- what an explanation says: no wording and no logic --------------------------------------------------------


class Why(Enum):
    """Why is an attribute visible or hidden?"""

    GRANTED = "granted"
    FORBIDDEN = "forbidden"
    UNCOVERED = "uncovered"


class Standing(Enum):
    """How does a subscription stand to an event?"""

    LIVE = "in force"
    HISTORY = "history"
    NOT_YET = "not yet"
    ENDED = "ended"
    OTHER_TYPE = "other type"


class Demand(Enum):
    """Whose requirement is it?"""

    EVENT = "the event's"
    POLICY_RULE = "the publisher's policy rule"
    SUBSCRIPTION = "the subscription's"
    READERS = "that of readers of what the event rests on"


@dataclass(frozen=True, slots=True)
class Question:
    """Who asks about whom, and which event, version and subscription, as they were named."""

    asker: str
    principal: str
    event: str
    version: int | None = None
    subscription: str | None = None


@dataclass(frozen=True, slots=True)
class RoleHolding:
    """A membership, and how it was gained: by which statement, and with which memberships and elections."""

    id: str
    service: str
    instance: str
    role: str
    args: tuple[Argument, ...]
    statement: str = ""
    supports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """An entry of the event policy, put to an event and to what a principal counts.

    `credentials` is the choice that comes nearest to making it true; `missing` are those of which it counts none.
    `constraint` is the truth of the constraint for that choice, and None as well where there is no choice.
    """

    entry: EventEntry
    parameters: tuple[tuple[str, Argument], ...]
    credentials: tuple[RoleHolding, ...] = ()
    missing: tuple[RoleRef, ...] = ()
    constraint: bool | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """One entry put to the event, in order.

    `condition` is None where it may not be told. Where `told` is false its truth and parts are kept back, and
    `matched` is None unless the view itself shows that it did. An entry for a `role` counts through a `membership`; one
    of the event policy has no condition but what was `judged`.
    """

    rule: str
    effect: Effect
    who: str | None
    type: str
    condition: Condition | None
    told: bool
    truth: bool | None
    matched: bool | None
    covers: tuple[str, ...]
    decided: tuple[str, ...]
    parts: tuple[TruthPart, ...]
    source: Source = Source.RULE
    role: RoleRef | None = None
    membership: RoleHolding | None = None
    judged: Judged | None = None


@dataclass(frozen=True, slots=True)
class AttributeExplanation:
    """One attribute: is it visible, by which entry, at which version; and the grants that would have shown it."""

    name: str
    kind: Kind
    visible: bool
    value: Value
    why: Why
    rule: str | None
    version: int
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewAt:
    """The view under the rights of one version. A `stopped_by` entry forbade the whole event before any grant."""

    version: int
    exists: bool
    stopped_by: str | None
    attributes: tuple[AttributeExplanation, ...]
    tried: tuple[Tried, ...]


@dataclass(frozen=True, slots=True)
class Unmet:
    """A requirement that is not true of the other side, and so stops the event (D11).

    Its truth and parts, which tell what the other side is like, are None and empty where that may not be told.
    """

    demand: Demand
    condition: Condition
    truth: bool | None = None
    parts: tuple[TruthPart, ...] = ()


@dataclass(frozen=True, slots=True)
class Declassified:
    """A type that an event is made of, and by which type, it or one above it, and whose, it is declassified for it."""

    type: str
    by: str
    owner: str


@dataclass(frozen=True, slots=True)
class SubscriptionExplanation:
    """What became of a subscription: its standing, and its filter over the view. `hidden`: what it cannot see.

    `unmet` is its own requirement, where the publisher does not meet it.
    """

    id: str
    type: str
    where: Condition | None
    first: int
    standing: Standing
    truth: bool | None
    parts: tuple[TruthPart, ...]
    hidden: tuple[str, ...]
    delivered: bool
    unmet: tuple[Unmet, ...] = ()


@dataclass(frozen=True, slots=True)
class Needed:
    """A right that would have been enough: a subscribe grant on the type, before a forbid if one is named.

    A grant in `failed` would have done as well, had its condition been true.
    """

    version: int
    type: str
    attributes: tuple[str, ...]
    before: str | None
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that the asker may know. With two `views` an attribute is visible only if both show it.

    What is visible is what rights show. `unmet` are the requirements of the publisher that stop the event all the same.
    """

    principal: str
    event: str
    type: str
    publisher: str
    time: datetime
    place: tuple[str, int] | None
    version: int
    event_version: int
    full: bool
    visible: bool
    attributes: tuple[AttributeExplanation, ...]
    views: tuple[ViewAt, ...]
    subscription: SubscriptionExplanation | None
    needed: tuple[Needed, ...]
    unmet: tuple[Unmet, ...] = ()
    counted: tuple[str, ...] | None = None
    """The memberships that the subscription counts for event policy; None: all that its principal holds."""
    declassified: tuple[Declassified, ...] = ()
    """What the event is made of and may be by the word of its owners, as it was at the event's version (D17)."""


# -- explaining -----------------------------------------------------------------------------------------------


def no_event(question: Question) -> NotFound:
    """The one answer for an event that does not exist and for one that the asker has no view of."""
    return NotFound(
        f"no event `{brief(question.event)}` that `{brief(question.asker)}` may know of", remedy="check its id"
    )


def explain(
    question: Question, event: Event | None, books: Books, subscriptions: Sequence[Subscription] = ()
) -> Explanation:
    """Explain an event to an asker; `subscriptions` are those that ever had the id in the question."""
    check_known(books.now, question.asker)
    full = event is not None and is_told_all(books.now, question.asker, event.type)
    if not full and question.asker != question.principal:
        _refuse_other(question, event, books.now)
    mine = [s for s in subscriptions if s.principal == question.principal and s.id == question.subscription]
    if not mine and (event is None or not full or question.principal not in books.states(event.version).principals):
        check_known(books.now, question.principal)  # who has left since is asked about as before
    if event is None:
        raise no_event(question)
    version = event.version if question.version is None else question.version
    if full:
        at = _typed(event, version, books)
        chosen = _chosen(question, at, mine, books)
        asked_later = chosen is not None and _standing(at, chosen, books) is Standing.HISTORY
        versions = (version, chosen.first) if chosen is not None and asked_later else (version,)
        grounds = _Grounds(versions) if chosen is None else _Grounds(versions, chosen.origin, chosen.counted)
        return _answer(question, event, at, grounds, chosen, books, full=True)
    known = _grounds(event, question.principal, mine, books)
    if known is None:
        raise no_event(question)
    if version != event.version:
        raise GovernDenied(
            f"`{question.asker}` may ask about itself at the event's own version, {event.version}, only",
            remedy="asking about another version needs `govern` or `audit` on the type",
        )
    return _answer(question, event, event, known, _chosen(question, event, mine, books), books, full=False)


# -- what may be asked ------------------------------------------------------------------------------------------


def _refuse_other(question: Question, event: Event | None, now: State) -> None:
    if event is None and is_told_everything(now, question.asker):
        return
    raise GovernDenied(
        f"`{question.asker}` may ask about itself, or about events of types that it governs or audits; "
        f"`{brief(question.event)}` for `{brief(question.principal)}` is neither",
        remedy="ask for `govern` or `audit` on the type, or check the names",
    )


def _typed(event: Event, version: int, books: Books) -> Event:
    """The event as if it had been stamped with another version."""
    if event.type not in books.states(version).types:
        raise UnknownType(f"version {version} did not know the type `{event.type}`", remedy="ask about a later version")
    return replace(event, version=version)


@dataclass(frozen=True, slots=True)
class _Grounds:
    """By the rights of which versions an event is known, where the principal was when it asked, and what it counts."""

    versions: tuple[int, ...]
    origin: str | None = None
    counted: tuple[str, ...] | None = None


def _grounds(event: Event, principal: str, mine: Iterable[Subscription], books: Books) -> _Grounds | None:
    """How a principal knows the event; None if it knows nothing of it."""
    then = books.states(event.version)
    if not admits(event, principal, then):
        return None
    held = (*then.subscriptions.values(), *(s for s in books.now.subscriptions.values() if s.history))
    for subscription in (*mine, *(s for s in held if s.principal == principal)):
        if seen_by(event, subscription, books.states, books.predicates(then)) is not None:
            versions = (event.version,) if subscription.first <= event.version else (event.version, subscription.first)
            return _Grounds(versions, subscription.origin, subscription.counted)
    seen = view(then, principal, event, books.predicates(then))
    still = view(books.now, principal, event, books.predicates(books.now))
    if seen is None or still is None:
        return None
    return _Grounds((event.version,) if seen.attributes <= still.attributes else (event.version, books.now.version))


def _chosen(question: Question, event: Event, mine: list[Subscription], books: Books) -> Subscription | None:
    """Of the subscriptions that had the id, the one that comes nearest to receiving the event."""
    if question.subscription is None:
        return None
    if not mine:
        raise NotFound(f"`{question.principal}` has no subscription `{brief(question.subscription)}`")
    order = list(Standing)
    return min(mine, key=lambda s: (order.index(_standing(event, s, books)), -s.first))


def _standing(event: Event, subscription: Subscription, books: Books) -> Standing:
    if not _is_of(event, subscription, books):
        return Standing.OTHER_TYPE
    if event.version < subscription.first:
        back = subscription.reaches_back_to(event.version, event.time)
        return Standing.HISTORY if back else Standing.NOT_YET
    return Standing.LIVE if wants(event, subscription, books.states) else Standing.ENDED


def _is_of(event: Event, subscription: Subscription, books: Books) -> bool:
    """Is the event of a type that the subscription looks at?"""
    return not set(subscription.types).isdisjoint(books.now.types.lineage(event.type))


# -- the answer -------------------------------------------------------------------------------------------------


def _answer(
    question: Question,
    event: Event,
    at: Event,
    grounds: _Grounds,
    chosen: Subscription | None,
    books: Books,
    *,
    full: bool,
) -> Explanation:
    everything = [_view_at(books.states(v), question.principal, at, books, grounds) for v in grounds.versions]
    attributes = tuple(
        next((s for s in column if not s.visible), column[0])
        for column in zip(*(v.attributes for v in everything), strict=True)
    )
    known = frozenset(s.name for s in attributes if s.visible)
    views = tuple(everything) if full else tuple(_told(v, known, books) for v in everything)
    shown = attributes if full else tuple(_kept_back(s, views) for s in attributes)
    answer = Explanation(
        question.principal,
        event.id,
        event.type,
        event.publisher,
        event.time,
        (event.stream, event.seq) if full else None,
        at.version,
        event.version,
        full,
        all(v.exists for v in views),
        shown,
        views,
        None if chosen is None else _asked(question, at, chosen, known, books, full=full),
        tuple(need for v in views for need in _needed(v, at.type)),
        tuple(_unmet_by(question.principal, at, books.states(at.version))) if full else (),
        grounds.counted,
        tuple(_declassified(event, books.states(event.version))),
    )
    return _without_private(answer, books.now.private_to(question.asker))


def _without_private(answer: Explanation, private: frozenset[str]) -> Explanation:
    """An answer that does not say which values private attributes had; what came of them it says (D14)."""
    if not private:
        return answer

    def kept(parts: tuple[TruthPart, ...]) -> tuple[TruthPart, ...]:
        return tuple(
            replace(
                part,
                values=tuple((o, v) for o, v in part.values if not (isinstance(o, Subject) and o.name in private)),
            )
            for part in parts
        )

    def unmet(found: tuple[Unmet, ...]) -> tuple[Unmet, ...]:
        return tuple(replace(one, parts=kept(one.parts)) for one in found)

    views = (
        replace(one, tried=tuple(replace(tried, parts=kept(tried.parts)) for tried in one.tried))
        for one in answer.views
    )
    asked = answer.subscription
    asked = None if asked is None else replace(asked, unmet=unmet(asked.unmet))
    return replace(answer, views=tuple(views), subscription=asked, unmet=unmet(answer.unmet))


def _unmet_by(principal: str, event: Event, state: State) -> Iterator[Unmet]:
    """What the publisher requires of receivers, and the principal does not meet (D11, D16)."""
    attributes = state.principals.get(principal, {})
    if event.readers is not None and principal not in event.readers:  # D16
        yield Unmet(Demand.READERS, TRUE)
    yield from _unmet(Demand.EVENT, event.requires, attributes, event, full=True)
    yield from _unmet(Demand.POLICY_RULE, state.policy_rules.get(event.publisher), attributes, event, full=True)


def _declassified(event: Event, state: State) -> Iterator[Declassified]:
    for name in event.made_of or ():
        by = state.types.declassified(name, event.type)
        if by is not None:
            yield Declassified(name, by.name, by.owner)


def _unmet(
    demand: Demand, rule: Condition | None, attributes: Mapping[str, Value], event: Event, *, full: bool
) -> Iterator[Unmet]:
    world = World(State(), attributes)
    if rule is None or truth(rule, event, world) is True:
        return
    yield Unmet(demand, rule, truth(rule, event, world), deciding(rule, event, world)) if full else Unmet(demand, rule)


def _view_at(state: State, principal: str, event: Event, books: Books, grounds: _Grounds) -> ViewAt:
    """Every entry tried in order, and what it decided (D5, D8)."""
    predicates = books.predicates(state)
    world = World(state, state.principals.get(principal, {}), predicates, origin=grounds.origin)
    rulings = verdicts(state, principal, event, predicates, grounds.origin, grounds.counted)
    through = by_membership(state, principal, [verdict.rule for verdict in rulings])
    # A type may have gained attributes since the event, and may have been retired (D10).
    kinds = {n: k for n, k in state.types.ever_attributes(event.type).items() if n in event.values}
    deciders: dict[str, Verdict] = {}
    tried: list[Tried] = []
    granted = False
    stopped: str | None = None
    for verdict, (_, membership) in zip(rulings, through, strict=True):
        new: frozenset[str] = frozenset()
        if verdict.matches:
            new = verdict.covers - deciders.keys()
            deciders.update(dict.fromkeys(new, verdict))
            if verdict.rule.effect is Effect.GRANT:
                granted = True
            elif verdict.rule.whole_event and not granted:
                stopped = verdict.rule.id
        entry = _tried(state, verdict, new, event, world)
        if verdict.rule.source is Source.POLICY:
            policy = state.roles.policy.entries[number_of(verdict.rule)]
            saw = judged(state, policy, event, credentials(state, principal, grounds.counted))
            entry = replace(entry, judged=saw)
        elif membership is not None:
            entry = replace(entry, membership=held(membership))
        tried.append(entry)
        if stopped is not None:
            break
    shown = tuple(_shown(n, k, event, deciders.get(n), granted, tried, state.version) for n, k in kinds.items())
    return ViewAt(state.version, granted, stopped, shown, tuple(tried))


def _tried(state: State, verdict: Verdict, new: frozenset[str], event: Event, world: World) -> Tried:
    """An entry and what it decided; one of the event policy speaks to everyone who can show its credentials."""
    rule, order = verdict.rule, state.types.attributes(event.type)
    tried = Tried(
        rule=rule.id,
        effect=rule.effect,
        who=None,
        type=rule.type,
        condition=None,
        told=True,
        truth=verdict.truth,
        matched=verdict.matches,
        covers=tuple(a for a in order if a in verdict.covers),
        decided=tuple(a for a in order if a in new),
        parts=(),
        source=rule.source,
        role=rule.role,
    )
    if rule.source is Source.POLICY:
        return tried
    attributes = state.types.attributes(named_type(state, rule, Action.SUBSCRIBE, event.type) or event.type)
    condition = condition_for(rule, attributes)
    asked = replace(world.given(rule.given), attributes=attributes)
    return replace(tried, who=rule.who, condition=condition, parts=deciding(condition, event, asked))


def _shown(
    name: str, kind: Kind, event: Event, decider: Verdict | None, granted: bool, tried: Iterable[Tried], version: int
) -> AttributeExplanation:
    if decider is not None and decider.rule.effect is Effect.GRANT:
        return AttributeExplanation(name, kind, granted, event.values.get(name), Why.GRANTED, decider.rule.id, version)
    forbid = None if decider is None else decider.rule.id
    grants = (t.rule for t in _until(tried, forbid) if t.effect is Effect.GRANT and name in t.covers)
    failed = tuple(dict.fromkeys(grants))
    why = Why.UNCOVERED if forbid is None else Why.FORBIDDEN
    return AttributeExplanation(name, kind, False, None, why, forbid, version, failed)


def _until(tried: Iterable[Tried], rule: str | None) -> Iterator[Tried]:
    """The entries before a forbid, or all of them."""
    for entry in tried:
        if entry.rule == rule:
            return
        yield entry


def _needed(seen: ViewAt, type_name: str) -> Iterator[Needed]:
    """What would have shown the hidden attributes, those with the same remedy together."""
    remedies: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}
    if not seen.exists and not seen.attributes:
        remedies[seen.stopped_by, ()] = []
    for one in seen.attributes:
        if not one.visible:
            remedies.setdefault((one.rule, one.failed), []).append(one.name)
    for (before, failed), names in remedies.items():
        yield Needed(seen.version, type_name, tuple(names), before, failed)


# -- what a principal is told about itself ------------------------------------------------------------------------


def _told(seen: ViewAt, known: frozenset[str], books: Books) -> ViewAt:
    """A view as its principal may know it: grants that showed it something, and rules that are disclosed."""
    state = books.states(seen.version)
    disclosed = {rule.id for rule in state.rules if tells_condition(rule, full=False)}
    tried: list[Tried] = []
    for entry in seen.tried:
        showed = tuple(a for a in entry.decided if a in known) if entry.effect is Effect.GRANT else ()
        open_ = entry.rule in disclosed and entry.source is not Source.POLICY
        if open_ and all(can_be_told(part, known, state) for part in entry.parts):
            tried.append(replace(entry, who=None))
        elif open_ or showed:
            blank = replace(entry, who=None, told=False, truth=None, parts=(), decided=showed, judged=None)
            if not open_:
                blank = replace(blank, condition=None, role=None, membership=None)
            tried.append(replace(blank, matched=True if showed else None))
    revealed = {one.rule for one in tried if one.told and one.source is not Source.POLICY}
    attributes = tuple(
        replace(s, value=s.value if s.name in known else None)
        if s.visible or s.rule in revealed
        else replace(s, why=Why.UNCOVERED, rule=None, failed=tuple(r for r in s.failed if r in revealed))
        for s in seen.attributes
    )
    return ViewAt(seen.version, seen.exists, None, attributes, tuple(tried))


def _kept_back(one: AttributeExplanation, views: tuple[ViewAt, ...]) -> AttributeExplanation:
    """The attribute as the views that may be told have it."""
    seen = next(v for v in views if v.version == one.version)
    return next(s for s in seen.attributes if s.name == one.name)


# -- the subscription -------------------------------------------------------------------------------------------


def _asked(
    question: Question, event: Event, subscription: Subscription, known: frozenset[str], books: Books, *, full: bool
) -> SubscriptionExplanation:
    state = books.states(event.version)
    predicates = books.predicates(state)
    standing = _standing(event, subscription, books)
    own = question.asker == question.principal
    filters = [where for type, where in looked_for(subscription, state.types) if state.types.is_a(event.type, type)]
    asked_for = tree.any_of(*filters) if filters else subscription.where
    where = asked_for if own or _is_of(event, subscription, books) else None
    publisher = state.principals.get(event.publisher, {})
    asks = subscription.requires if where is not None else None
    unmet = tuple(_unmet(Demand.SUBSCRIPTION, asks, publisher, event, full=full))
    made = SubscriptionExplanation(
        subscription.id, subscription.type, where, subscription.first, standing, None, (), (), False, unmet
    )
    seen = (
        view_for(event, subscription, books.states, predicates)
        if standing in (Standing.LIVE, Standing.HISTORY)
        else None
    )
    if seen is None:
        return made
    over = replace(event, values=seen.of(event.values))
    world = World(state, {}, predicates)
    outcome = truth(asked_for, over, world)
    parts = deciding(asked_for, over, world)
    masked = over.values.keys() - seen.attributes
    is_disclosed = full or all(can_be_told(part, known | masked, state) for part in parts)
    hidden = tuple(n for n in over.values if n in attributes_of(asked_for) and n not in seen.attributes)
    delivered = outcome is True and not unmet and admits(event, question.principal, state)
    if not is_disclosed:
        return replace(made, truth=outcome or None, hidden=hidden, delivered=delivered)
    return replace(made, truth=outcome, parts=parts, hidden=hidden, delivered=delivered)


# -- roles and event policy -----------------------------------------------------------------------------------


def held(one: Membership) -> RoleHolding:
    """What is told of a membership."""
    return RoleHolding(one.id, one.service, one.instance, one.role, one.args, one.statement, one.supports)


def by_membership(state: State, principal: str, rules: Sequence[Rule]) -> Iterator[tuple[Rule, Membership | None]]:
    """Entries as they count for a principal, each with the membership through which it does, if it is for a role.

    A rule for a role stands in `rules` once for each membership that fits, in the order in which those began.
    """
    waiting: dict[str, Iterator[Membership]] = {}
    for rule in rules:
        if rule.role is None:
            yield rule, None
            continue
        if rule.id not in waiting:
            held_now = state.roles.held_by(principal)
            waiting[rule.id] = iter([one for one in held_now if fit(rule.role, one, {}) is not None])
        yield rule, next(waiting[rule.id], None)


def judged(state: State, entry: EventEntry, event: Event, shown: tuple[Membership, ...]) -> Judged:
    """What an entry of the event policy saw."""
    scene = policy_scene(state, event)
    seen = tuple((n, constraint_value(e, event.values, scene)) for n, e in parameters(state, entry.event.type))
    fitting = [[one for one in shown if means(ref, one)] for ref in entry.credentials]
    missing = tuple(ref for ref, found in zip(entry.credentials, fitting, strict=True) if not found)
    if missing:
        return Judged(entry, seen, missing=missing)
    choice = _best(state, entry, event, islice(product(*fitting), _MOST_JUDGED))
    bound = _bound(entry, [v for _, v in seen], choice)
    return Judged(entry, seen, tuple(map(held, choice)), (), constraint_truth(entry.constraint, bound, scene))


def _best(
    state: State, entry: EventEntry, event: Event, choices: Iterable[tuple[Membership, ...]]
) -> tuple[Membership, ...]:
    """The first choice that makes the entry true, or else unknown, or else the first."""
    by_truth: dict[bool | None, tuple[Membership, ...]] = {}
    for choice in choices:
        by_truth.setdefault(entry_truth(state, entry, event, choice), choice)
        if True in by_truth:
            break
    return next(by_truth[one] for one in (True, None, False) if one in by_truth)


def _bound(entry: EventEntry, seen: Sequence[Argument], choice: Sequence[Membership]) -> Mapping[str, Argument]:
    """What the variables of an entry mean: what the event says stands before what credentials do."""
    bound: dict[str, Argument] = {}
    for term, found in zip(entry.event.args, seen, strict=False):
        if isinstance(term, Variable):
            bound.setdefault(term.name, found)
    for ref, one in zip(entry.credentials, choice, strict=True):
        for place, argument in zip(ref.args, one.args, strict=False):
            if isinstance(place, Variable):
                bound.setdefault(place.name, argument)
    return bound


@dataclass(frozen=True, slots=True)
class TruthPart:
    """A piece of a condition, its truth, and the value that each operand had."""

    condition: Condition
    truth: bool | None
    values: tuple[tuple[Operand, Value], ...] = ()


def deciding(condition: Condition, event: Event, world: World) -> tuple[TruthPart, ...]:
    """The parts of a condition that decided its truth on an event, left to right.

    Of a conjunction or disjunction these are the parts with the truth of the whole: the false ones made it false, the
    unknown ones left it unknown, and where none differs all of them were needed.
    """
    outcome = truth(condition, event, world)
    match condition:
        case tree.AllOf(args) | tree.AnyOf(args) if args:
            same = (arg for arg in args if truth(arg, event, world) is outcome)
            return tuple(part for arg in same for part in deciding(arg, event, world))
        case tree.Not(tree.Not() | tree.AllOf() | tree.AnyOf() as inner):
            return deciding(inner, event, world)
        case piece:
            seen = {o: value(o, event, world) for a in atoms(piece) for o in _looked_at(operands(a))}
            return (TruthPart(piece, outcome, tuple(seen.items())),)


def attributes_of(condition: Condition) -> frozenset[str]:
    """The attributes of the event that a condition looks at by name."""
    return frozenset(o.name for o in looked_at(condition) if isinstance(o, tree.Attribute))


def can_be_told(part: TruthPart, known: Collection[str], state: State) -> bool:
    """May someone who knows only these attributes be told this part?

    Not if it looks at another attribute, a closed group or relation, or a predicate, which sees the whole event.
    """
    for atom in atoms(part.condition):
        match atom:
            case tree.Predicate():
                return False
            case tree.InGroup(_, name) | tree.Related(name, _) if name not in state.open_names:
                return False
            case _:
                pass
    return attributes_of(part.condition) <= frozenset(known)


def _looked_at(found: tuple[Operand, ...]) -> tuple[Operand, ...]:
    return tuple(o for o in found if not isinstance(o, Constant))
