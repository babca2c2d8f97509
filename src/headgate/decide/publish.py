"""Is an event accepted, and as what? Rule D6.

Guarantees: an accepted event has every attribute of its type, conforming values, exactly what one grant allows.
A refusal is `unknown-type`, `type-mismatch` or `publish-denied`, in that order of testing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from headgate.decide.truth import PredicateFunction, World, truth
from headgate.decide.views import entries, forced_value, named_type
from headgate.model.errors import PublishDenied, TypeMismatch
from headgate.model.events import Draft, Event
from headgate.model.rights import Action, Effect, Rule
from headgate.model.state import State
from headgate.model.values import Kind, Value, brief, conform


def admit(
    state: State,
    draft: Draft,
    *,
    now: datetime,
    predicates: Mapping[str, PredicateFunction],
    rules: tuple[Rule, ...] | None = None,
) -> Event:
    """The event as accepted at this state, not yet stamped with its place.

    `rules` are the publisher's entries for the type, where the caller has looked them up already.
    """
    attributes = state.types.attributes(draft.type)
    values = type_check(draft, attributes)
    sent = Event(draft.id, draft.publisher, draft.type, values, now, version=state.version, source=draft.source)
    world = World(state, state.principals.get(draft.publisher, {}), predicates)
    for rule in publish_entries(state, draft.publisher, draft.type) if rules is None else rules:
        if rule.effect is Effect.FORBID:
            if truth(rule.where, sent, world) is not False:
                raise forbidden(draft.publisher, draft.type)
            continue
        if any(n in attributes and forced_value(raw, attributes[n]) is None for n, raw in rule.forced.items()):
            continue  # by a pattern whose author came to govern the type later; the value does not fit it
        kept = restricted(rule, values, attributes)
        candidate = replace(sent, values=kept)
        if truth(rule.where, candidate, world) is True:
            return candidate
    raise no_right(state, draft.publisher, draft.type)


def forbidden(publisher: str, type_name: str) -> PublishDenied:
    """The refusal of an event that a forbid keeps out."""
    return PublishDenied(f"`{publisher}` is forbidden to publish this `{type_name}`")


def no_right(state: State, publisher: str, type_name: str) -> PublishDenied:
    """The refusal of an event that no grant lets in."""
    return PublishDenied(
        f"`{publisher}` has no right to publish this `{type_name}`",
        remedy=f"ask its owner, `{state.types[type_name].owner}`",
    )


def publish_entries(state: State, publisher: str, type_name: str) -> tuple[Rule, ...]:
    """The publish entries of a principal that take in exactly this type, in order (D4)."""
    every = entries(state, publisher, Action.PUBLISH)
    return tuple(r for r in every if named_type(state, r, Action.PUBLISH, type_name) is not None)


def type_check(draft: Draft, attributes: Mapping[str, Kind]) -> dict[str, Value]:
    """The values of a draft under every attribute of its type; an undeclared attribute is a mismatch."""
    if not isinstance(draft.values, Mapping):
        raise TypeMismatch(f"the event `{brief(draft.id)}` is not a mapping of attributes")
    for name in draft.values:
        if name not in attributes:
            raise TypeMismatch(
                f"`{draft.type}` has no attribute `{brief(name)}`",
                remedy=f"its attributes are {', '.join(f'`{a}`' for a in attributes) or 'none'}",
            )
    values = {}
    for name, kind in attributes.items():
        try:
            values[name] = conform(kind, draft.values.get(name))
        except TypeMismatch as error:
            raise TypeMismatch(f"attribute `{name}`: {error.message}", remedy=error.remedy) from None
    return values


def restricted(rule: Rule, values: Mapping[str, Value], attributes: Mapping[str, Kind]) -> dict[str, Value]:
    """The event a grant lets through: attributes it does not name are null, forced ones have their value."""
    if rule.attributes is None:
        return dict(values)
    kept = {name: value if name in rule.attributes else None for name, value in values.items()}
    forced = {n: forced_value(raw, attributes[n]) for n, raw in rule.forced.items() if n in attributes}
    return {**kept, **{name: value for name, value in forced.items() if name in rule.attributes}}
