"""Why does a principal see what it sees of an event? Facts only; the words are the command line's.

Guarantees: what is said to be visible is exactly what `decide` makes visible. Rule D14 holds: whoever owns, governs or
audits the event's type is told everything. A principal asking about itself is told types and attributes, conditions
only of rules marked `disclose`, and no positions; and only of events that its subscriptions brought it, or that a
subscription to history made now would bring it (D10), so that a right once lost cannot be used to look at the past.
Any other event answers as one that does not exist; so does one whose requirement the principal does not meet (D11).
Event policy is the domain's: what its entries ask is told only to those who are told everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.analysis.entry_conditions import number_of
from headgate.analysis.explain_roles import Judged, RoleHolding, by_membership, held, judged
from headgate.analysis.explanation import (
    AttributeExplanation,
    Demand,
    Explanation,
    Needed,
    Question,
    Standing,
    SubscriptionExplanation,
    Tried,
    Unmet,
    ViewAt,
    Why,
)
from headgate.analysis.truth_trace import TruthPart, attributes_of, can_be_told, deciding
from headgate.decide.ask import Books, check_known, is_told_all, is_told_everything, tells_condition
from headgate.decide.deliver import admits, decide, view_for, wants
from headgate.decide.event_policy import credentials
from headgate.decide.truth import World, truth
from headgate.decide.views import Verdict, condition_for, named_type, verdicts, view
from headgate.model.conditions import Condition, Subject
from headgate.model.errors import GovernDenied, NotFound, UnknownType
from headgate.model.events import Event
from headgate.model.rights import Action, Effect, Source, Subscription
from headgate.model.state import State
from headgate.model.values import Kind, Value, brief

__all__ = [
    "AttributeExplanation",
    "Demand",
    "Explanation",
    "Needed",
    "Question",
    "Standing",
    "SubscriptionExplanation",
    "Tried",
    "Unmet",
    "ViewAt",
    "Why",
    "explain",
    "no_event",
]


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
    check_known(books.now, question.principal)
    if event is None:
        raise no_event(question)
    version = event.version if question.version is None else question.version
    mine = [s for s in subscriptions if s.principal == question.principal and s.id == question.subscription]
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
        if decide(event, subscription, books.states, books.predicates(then)) is not None:
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
    if not books.now.types.is_a(event.type, subscription.type):
        return Standing.OTHER_TYPE
    if event.version < subscription.first:
        back = subscription.reaches_back_to(event.version, event.time)
        return Standing.HISTORY if back else Standing.NOT_YET
    return Standing.LIVE if wants(event, subscription, books.states) else Standing.ENDED


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
    """What the publisher requires of receivers, and the principal does not meet (D11)."""
    attributes = state.principals.get(principal, {})
    yield from _unmet(Demand.EVENT, event.requires, attributes, event, full=True)
    yield from _unmet(Demand.POLICY_RULE, state.policy_rules.get(event.publisher), attributes, event, full=True)


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
        if verdict.rule.source is Source.POLICY:
            entry = state.roles.policy.entries[number_of(verdict.rule)]
            saw = judged(state, entry, event, credentials(state, principal, grounds.counted))
            tried.append(_judged(state, verdict, new, event, saw))
        else:
            by = None if membership is None else held(membership)
            tried.append(_tried(state, verdict, new, event, world.given(verdict.rule.given), by))
        if stopped is not None:
            break
    shown = tuple(_shown(n, k, event, deciders.get(n), granted, tried, state.version) for n, k in kinds.items())
    return ViewAt(state.version, granted, stopped, shown, tuple(tried))


def _tried(
    state: State, verdict: Verdict, new: frozenset[str], event: Event, world: World, by: RoleHolding | None
) -> Tried:
    rule = verdict.rule
    named = named_type(state, rule, Action.SUBSCRIBE, event.type) or event.type
    attributes = state.types.attributes(named)
    condition = condition_for(rule, attributes)
    order = state.types.attributes(event.type)
    return Tried(
        rule.id,
        rule.effect,
        rule.who,
        rule.type,
        condition,
        True,
        verdict.truth,
        verdict.matches,
        tuple(a for a in order if a in verdict.covers),
        tuple(a for a in order if a in new),
        deciding(condition, event, replace(world, attributes=attributes)),
        rule.source,
        rule.role,
        by,
    )


def _judged(state: State, verdict: Verdict, new: frozenset[str], event: Event, saw: Judged) -> Tried:
    """An entry of the event policy, which speaks to everyone who can show its credentials."""
    rule, order = verdict.rule, state.types.attributes(event.type)
    covers, decided = (tuple(a for a in order if a in some) for some in (verdict.covers, new))
    return Tried(
        rule.id,
        rule.effect,
        None,
        rule.type,
        None,
        True,
        verdict.truth,
        verdict.matches,
        covers,
        decided,
        (),
        rule.source,
        judged=saw,
    )


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
    where = subscription.where if own or books.now.types.is_a(event.type, subscription.type) else None
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
    outcome = truth(subscription.where, over, world)
    parts = deciding(subscription.where, over, world)
    masked = over.values.keys() - seen.attributes
    is_disclosed = full or all(can_be_told(part, known | masked, state) for part in parts)
    hidden = tuple(n for n in over.values if n in attributes_of(subscription.where) and n not in seen.attributes)
    delivered = outcome is True and not unmet and admits(event, question.principal, state)
    if not is_disclosed:
        return replace(made, truth=outcome or None, hidden=hidden, delivered=delivered)
    return replace(made, truth=outcome, parts=parts, hidden=hidden, delivered=delivered)
