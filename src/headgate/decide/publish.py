"""Is an event accepted, and as what? Rules D6 and D11.

Guarantees: an accepted event has every attribute of its type, conforming values, exactly what one grant allows, and a
requirement that its publisher's policy rule is wider than. What its conditions were put to, `@rate` and `@origin`, is
stamped on it. A refusal is `unknown-type`, `type-mismatch` (or `bad-expression`, for the requirement),
`publish-denied`, `policy-rule` or `ahead-of-clock`, in that order of testing. When it occurred, as its publisher states
it, counts where its type takes times from publishers, and is not looked at where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

from headgate.decide.check import check_requirement
from headgate.decide.truth import PredicateFunction, World, truth
from headgate.decide.views import condition_for, entries, forced_value, named_type
from headgate.model.errors import AheadOfClock, PolicyRuleDenied, PublishDenied, TypeMismatch
from headgate.model.events import Draft, Event
from headgate.model.expressions import TRUE, Condition
from headgate.model.rights import Action, Effect, Rule
from headgate.model.state import State
from headgate.model.types import OWN_TYPES, Catalog, Times
from headgate.model.values import Kind, Value, brief, conform

PolicyRuleCheck: TypeAlias = Callable[[State, str, Condition | None], None]
"""Refuses a requirement that lets in receivers whom the publisher's policy rule keeps out (D11; Guard II.D)."""


def cannot_tell(state: State, publisher: str, requires: Condition | None) -> None:  # noqa: ARG001
    """Refuse whatever a publisher with a policy rule requires."""
    if publisher in state.policy_rules:
        raise PolicyRuleDenied(f"whether the policy rule of `{publisher}` is wider cannot be told here")


def admit(
    state: State,
    draft: Draft,
    *,
    now: datetime,
    predicates: Mapping[str, PredicateFunction],
    rate: int | None = None,
    policy_rule: PolicyRuleCheck = cannot_tell,
) -> Event:
    """The event as accepted at this state, not yet stamped with its place.

    `rate` is how many events of the type the publisher has had accepted of late, with this one (`decide.rates`).
    `policy_rule` refuses what a publisher's policy rule is not wider than (`solver.policy_rule`); by default anything.
    """
    attributes = state.types.attributes(draft.type)
    values = type_check(draft, attributes)
    times = state.types.times(draft.type)
    stated = stated_time(draft.time) if times.stated else None
    if draft.requires is not None:
        check_requirement(draft.requires, state.private_to(draft.publisher))
    for_readers, of_declassified = state.types.is_for_readers(draft.type), state.types.is_of_declassified(draft.type)
    if for_readers and draft.readers is None:
        raise made_by_hand(draft.type)
    if of_declassified:
        check_declassified(state.types, draft.made_of, draft.type)
    sent = Event(
        draft.id,
        draft.publisher,
        draft.type,
        values,
        now,
        version=state.version,
        source=draft.source,
        requires=draft.requires,
        rate=rate,
        origin=draft.origin,
        stated=stated,
        contributors=draft.contributors,
        readers=draft.readers if for_readers else None,
        made_of=draft.made_of if of_declassified else None,
    )
    subject = state.principals.get(draft.publisher, {})
    world = World(state, subject, predicates, origin=draft.origin)
    accepted = _granted(sent, publish_entries(state, draft.publisher, draft.type), attributes, world)
    if accepted is None:
        raise no_right(state, draft.publisher, draft.type)
    policy_rule(state, draft.publisher, draft.requires)
    if stated is not None and stated > latest(times, now):
        raise too_far_ahead(draft.type, times)
    return accepted


def made_by_hand(type_name: str) -> PublishDenied:
    """The refusal of an event for those who could read what it rests on, of which that is not known (D16)."""
    return PublishDenied(
        f"a `{type_name}` is for those who could read what it rests on, and this rests on nothing known",
        remedy="let a detection publish it, or publish another type",
    )


def check_declassified(types: Catalog, made_of: Sequence[str] | None, derived: str) -> None:
    """Refuse an event unless all types that it is made of are declassified for its own (D17)."""
    if made_of is None:
        raise PublishDenied(
            f"a `{derived}` is made of types that are declassified for it, and this is made of nothing known",
            remedy="let a detection publish it, or publish another type",
        )
    for name in still_classified(types, made_of, derived):
        raise PublishDenied(
            f"it is made of `{name}`, which is not declassified for `{derived}`",
            remedy=f"ask its owner, `{types.every[name].owner}`, to declassify it",
        )


def still_classified(types: Catalog, made_of: Iterable[str], derived: str) -> Iterator[str]:
    """The types of these that are not declassified for a derived one, nor any type above them."""
    return (name for name in made_of if types.declassified(name, derived) is None)


def stated_time(raw: object) -> datetime | None:
    """When an event occurred, as its publisher states it, if it does."""
    try:
        stated = conform(Kind.TIMESTAMP, raw)
    except TypeMismatch as error:
        raise TypeMismatch(f"the time of the event: {error.message}", remedy=error.remedy) from None
    assert stated is None or isinstance(stated, datetime)
    return stated


def latest(times: Times, now: datetime) -> datetime:
    """The last time that a publisher may state, or promise, by a clock."""
    end = datetime.max.replace(tzinfo=now.tzinfo)
    if times.ahead is None:
        return end
    ahead = timedelta(seconds=times.ahead)
    return now + ahead if end - now >= ahead else end


def too_far_ahead(type_name: str, times: Times) -> AheadOfClock:
    """The refusal of a time that is further past the clock than its type allows."""
    return AheadOfClock(
        f"the time is more than {times.ahead:g} s past the gateway's clock, the most that `{type_name}` allows",
        remedy="set the publisher's clock, or raise `ahead` of the type",
    )


def _granted(sent: Event, rules: tuple[Rule, ...], attributes: Mapping[str, Kind], world: World) -> Event | None:
    """The event as the first grant that is true makes it, unless a forbid comes before."""
    for rule in rules:
        asked = world.given(rule.given)
        if rule.effect is Effect.FORBID:
            if truth(rule.where, sent, asked) is not False:
                raise forbidden(sent.publisher, sent.type)
            continue
        if any(n in attributes and forced_value(raw, attributes[n]) is None for n, raw in rule.forced.items()):
            continue  # by a pattern whose author came to govern the type later; the value does not fit it
        candidate = replace(sent, values=restricted(rule, sent.values, attributes))
        if truth(rule.where, candidate, asked) is True:
            return candidate
    return None


def forbidden(publisher: str, type_name: str) -> PublishDenied:
    """The refusal of an event that a forbid keeps out."""
    return PublishDenied(f"`{publisher}` is forbidden to publish this `{type_name}`")


def no_right(state: State, publisher: str, type_name: str, does: str = "publish this") -> PublishDenied:
    """The refusal of an event that no grant lets in, or of what takes the right to publish."""
    if any(passes_over(state, publisher, rule) for rule in written_entries(state, publisher, type_name)):
        return PublishDenied(
            f"`{publisher}` has no right to {does} `{type_name}` without an identity statement in force",
            remedy="show one of an identity provider of this domain",
        )
    if _is_domains_own(state, type_name) and publisher != state.administrator:
        return PublishDenied(f"`{publisher}` may not {does} `{type_name}`: only the domain itself tells of its roles")
    return PublishDenied(
        f"`{publisher}` has no right to {does} `{type_name}`",
        remedy=f"ask its owner, `{state.types[type_name].owner}`",
    )


def _is_domains_own(state: State, type_name: str) -> bool:
    return any(name.startswith(OWN_TYPES) for name in state.types.lineage(type_name))


def publish_entries(state: State, publisher: str, type_name: str) -> tuple[Rule, ...]:
    """The publish entries of a principal that take in exactly this type, in order (D4), and do not pass it over."""
    every = written_entries(state, publisher, type_name)
    return tuple(rule for rule in every if not passes_over(state, publisher, rule))


def written_entries(state: State, publisher: str, type_name: str) -> tuple[Rule, ...]:
    """The publish entries of a principal that take in exactly this type, whether or not they pass it over.

    What Headgate tells of itself is the domain's word: nobody else's entries take it in, however wide they are.
    """
    if _is_domains_own(state, type_name) and publisher != state.administrator:
        return ()
    every = entries(state, publisher, Action.PUBLISH)
    return tuple(r for r in every if named_type(state, r, Action.PUBLISH, type_name) is not None)


def passes_over(state: State, publisher: str, rule: Rule) -> bool:
    """Does an entry pass a publisher over, because no identity statement about it is in force (Guard IV)?"""
    return rule.attested and not state.is_attested(publisher)


def may_publish(state: State, publisher: str, type_name: str) -> bool:
    """Could any event of the type be let in? Conditions, which look at the event, are left open."""
    for rule in publish_entries(state, publisher, type_name):
        if rule.effect is Effect.GRANT:
            return True
        if rule.where == TRUE:
            return False
    return False


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
    named = attributes.keys() if rule.attributes is None else rule.attributes
    kept = {name: value if name in named else None for name, value in values.items()}
    forced = {n: forced_value(raw, attributes[n]) for n, raw in rule.forced.items() if n in attributes and n in named}
    return {**kept, **forced}


def condition_on_sent(rule: Rule, attributes: Mapping[str, Kind]) -> Condition:
    """The condition of a publish entry as one on what it makes of an event: `where`, and the values that it forces.

    What it does not name is null there, whatever value a link of a chain would force on it.
    """
    if rule.attributes is None:
        return condition_for(rule, attributes)
    named = {name: raw for name, raw in rule.forced.items() if name in rule.attributes}
    return condition_for(replace(rule, forced=named), attributes)
