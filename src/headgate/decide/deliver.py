"""Who receives an event, and what do they see? Rules D8 to D11. And who may ask about that? Rule D14.

Guarantees: `decide` is a pure function of the event, the subscription and the ledger: not of time, batch, route or
retries. A delivery carries the rules that made it. Whether someone may ask is decided by the state now, whatever
version they ask about, so that `govern` or `audit` once lost opens no past. A refusal does not tell what is not there
from what is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from headgate.decide.check import match
from headgate.decide.truth import PredicateFunction, World, truth
from headgate.decide.views import View, governs, holds, view
from headgate.model.composite import Template, templates
from headgate.model.errors import UnknownName
from headgate.model.events import Event
from headgate.model.expressions import TRUE, Attribute, Compare, Condition, Constant, all_of
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import Value, brief

States: TypeAlias = Callable[[int], State]
"""The ledger as decisions see it: the state at a version."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event as one subscription receives it."""

    view: Mapping[str, Value]
    because: tuple[Rule, ...]


def decide(
    event: Event, subscription: Subscription, states: States, predicates: Mapping[str, PredicateFunction]
) -> Delivery | None:
    """What the subscription receives of the event, if anything. A detection receives signals, and no event."""
    return None if subscription.detection is not None else seen_by(event, subscription, states, predicates)


def seen_by(
    event: Event, subscription: Subscription, states: States, predicates: Mapping[str, PredicateFunction]
) -> Delivery | None:
    """What comes of the event for a subscription: what it receives, or what the templates of a detection are put to."""
    state = states(event.version)
    if not wants(event, subscription, states):
        return None
    if not admits(event, subscription.principal, state) or not accepts(event, subscription, state):
        return None
    allowed = view_for(event, subscription, states, predicates)
    if allowed is None:
        return None
    shown = allowed.of(event.values)
    over, world = replace(event, values=shown), World(state, {}, predicates)
    for type, where in looked_for(subscription, state.types):
        if state.types.is_a(event.type, type) and truth(where, over, world) is True:
            return Delivery(shown, allowed.because)
    return None


def looked_for(subscription: Subscription, types: Catalog) -> tuple[tuple[str, Condition], ...]:
    """The types that a subscription looks at, each with what the view must make true (D9).

    Of a detection these are its templates with their literals; null equals none. Every row of an active table counts,
    since one that no longer fits takes the place of one that did (docs/composite-events.md).
    """
    if subscription.detection is None:
        return ((subscription.type, subscription.where),)
    return tuple((one.type, _literals(one, types)) for one in templates(subscription.detection.composite))


def _literals(template: Template, types: Catalog) -> Condition:
    if any(types.every[name].key for name in types.lineage(template.type)):
        return TRUE
    given = zip(template.attributes, template.parameters, strict=True)
    return all_of(*(Compare("=", Attribute(name), one) for name, one in given if isinstance(one, Constant)))


def wants(event: Event, subscription: Subscription, states: States) -> bool:
    """Is the subscription in force for the event, by version and by type?"""
    if event.version < subscription.first:
        if not subscription.reaches_back_to(event.version, event.time):
            return False
    elif states(event.version).subscriptions.get(subscription.id) != subscription:
        return False
    line = states(event.version).types.lineage(event.type)
    return any(type in line for type in subscription.types)


def admits(event: Event, principal: str, state: State) -> bool:
    """May the principal receive the event, by its requirement and its publisher's policy rule (D11)?

    Both are put to what the principal's attributes were at the event's version; one unknown then had none. Where the
    event is for those who could read what it rests on, it must be one of them (D16).
    """
    if event.readers is not None and principal not in event.readers:
        return False
    attributes = state.principals.get(principal, {})
    required = event.requires, state.policy_rules.get(event.publisher)
    return all(match(rule, attributes) is True for rule in required)


def accepts(event: Event, subscription: Subscription, state: State) -> bool:
    """Does the publisher meet the requirement of the subscription (D11)?"""
    return match(subscription.requires, state.principals.get(event.publisher, {})) is True


def view_for(
    event: Event, subscription: Subscription, states: States, predicates: Mapping[str, PredicateFunction]
) -> View | None:
    """The view of the subscription's principal; for history, no more than it could see when it asked (D10)."""
    who, origin, counted = subscription.principal, subscription.origin, subscription.counted
    then = view(states(event.version), who, event, predicates, origin, counted)
    if then is None or event.version >= subscription.first:
        return then
    asked = view(states(subscription.first), who, event, predicates, origin, counted)
    if asked is None:
        return None
    return replace(then, attributes=then.attributes & asked.attributes)


PredicatesOf: TypeAlias = Callable[[State], Mapping[str, PredicateFunction]]
"""The generic predicates registered at a state."""


@dataclass(frozen=True, slots=True)
class Books:
    """What answers are drawn from: the state now, the state at any version, and the predicates of a state."""

    now: State
    states: States
    predicates: PredicatesOf


def check_known(now: State, name: str) -> None:
    """Refuse a name that is no principal."""
    if name != now.administrator and name not in now.principals:
        raise UnknownName(f"no principal `{brief(name)}`", remedy="`headgate versions` shows who was declared")


def is_told_all(now: State, asker: str, type_name: str) -> bool:
    """Does the asker own, govern or audit the type, and so learn everything about its decisions?"""
    return governs(now, asker, type_name) or holds(now, asker, Action.AUDIT, type_name)


def is_told_everything(now: State, asker: str) -> bool:
    """Is there no type whose decisions are kept from the asker?"""
    return asker == now.administrator or (
        len(now.types) > 0 and all(is_told_all(now, asker, name) for name in now.types)
    )


def tells_condition(rule: Rule, full: bool) -> bool:
    """May the condition of an entry be told to those it speaks of?"""
    return full or rule.disclose
