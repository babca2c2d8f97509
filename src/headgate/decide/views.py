"""Which attributes of an event may a principal see? Rules D4, D5 and D8.

Guarantees: for each attribute the first entry that matches the event and covers the attribute decides; the event
itself is decided the same way, by the first grant or whole-event forbid that matches. Unknown never grants, and an
unknown forbidding condition forbids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headgate.decide import event_policy
from headgate.decide.rolebook import counting
from headgate.decide.truth import PredicateFunction, World, truth
from headgate.model.errors import TypeMismatch
from headgate.model.events import Event
from headgate.model.expressions import TRUE, Atom, Attribute, Compare, Condition, Constant, IsNull, all_of, rewrite
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import State
from headgate.model.types import is_pattern, matches
from headgate.model.values import Kind, Value, conform


@dataclass(frozen=True, slots=True)
class Verdict:
    """One entry put to one event: its truth, and the attributes it covers."""

    rule: Rule
    truth: bool | None
    covers: frozenset[str]

    @property
    def matches(self) -> bool:
        """Does the entry count? A grant must be true; a forbid must not be false."""
        return self.truth is True if self.rule.effect is Effect.GRANT else self.truth is not False


@dataclass(frozen=True, slots=True)
class View:
    """The attributes a principal may see of an event, and the entries that made it so."""

    attributes: frozenset[str]
    because: tuple[Rule, ...]
    decided_by: Mapping[str, Rule] = field(default_factory=dict)

    def of(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The event as seen: every other attribute is null."""
        return {name: v if name in self.attributes else None for name, v in values.items()}


def entries(state: State, principal: str, action: Action) -> tuple[Rule, ...]:
    """The entries of a principal for an action, its own, its groups' and its roles', in order (D5)."""
    whom = state.groups_of(principal) | {principal}
    rules: list[Rule] = []
    for rule in state.rules:
        if action not in rule.actions:
            continue
        if rule.role is not None:
            rules.extend(counting(state, principal, rule))
        elif rule.who in whom:
            rules.append(rule)
    return tuple(rules)


def governs(state: State, principal: str, type_name: str, asked: frozenset[str] = frozenset()) -> bool:
    """Does the principal own the type, or hold `govern` on it (D14)?

    `asked` are the principals whose authority is being traced already: two who give `govern` to each other by
    pattern, and have it from nobody else, have nothing.
    """
    if type_name not in state.types.every:
        state.types[type_name]
    # Of a retired type there is nothing new to govern, but its past can be asked about.
    if principal == state.administrator or state.types.every[type_name].owner == principal:
        return True
    return principal not in asked and holds(state, principal, Action.GOVERN, type_name, asked | {principal})


def holds(state: State, principal: str, action: Action, type_name: str, asked: frozenset[str] = frozenset()) -> bool:
    """Does the principal hold a right that is not about events, such as `govern` or `audit`, on a type?

    There is no event, so a condition other than `true` is unknown: it never grants, and always forbids.
    """
    for rule in entries(state, principal, action):
        if named_type(state, rule, action, type_name, asked) is None:
            continue
        if rule.effect is Effect.FORBID:
            return False
        if rule.where == TRUE and not rule.forced:
            return True
    return False


def may_connect(state: State, principal: str) -> bool:
    """May the principal connect to the domain? The first entry decides; without one, whether the domain is open."""
    if principal == state.administrator:
        return True
    if principal not in state.principals:
        return False
    for rule in entries(state, principal, Action.CONNECT):
        if rule.effect is Effect.FORBID:
            return False
        if rule.where == TRUE:
            return True
    return state.connect_open


def named_type(
    state: State, rule: Rule, action: Action, type_name: str, asked: frozenset[str] = frozenset()
) -> str | None:
    """The type through which an entry takes in events of a type, if it does (D3, D4).

    Subscribe entries mean subtypes too, all others exactly the named or matched types. A pattern takes in only the
    types that its author governs.
    """
    line = state.types.lineage(type_name) if action is Action.SUBSCRIBE else (type_name,)
    for name in line:
        if matches(rule.type, name) and _reaches(state, rule, name, asked):
            return name
    return None


def _reaches(state: State, rule: Rule, name: str, asked: frozenset[str]) -> bool:
    """May the author of an entry speak of this type? The owner at the root of a chain only of its own."""
    if rule.source is Source.CHAIN:
        return state.types.every[name].owner == rule.author
    return not is_pattern(rule.type) or governs(state, rule.author, name, asked)


def condition_for(rule: Rule, attributes: Mapping[str, Kind]) -> Condition:
    """The condition of an entry on a type: `where`, and for each forced value `attribute = value`.

    In an entry of a chain, whether an attribute that the type lacks is null is unknown: another link may have meant a
    subtype that has it, and a chain never gives more than each link (Capabilities II.D).
    """
    forced = (
        Compare("=", Attribute(name), Constant(forced_value(raw, attributes.get(name))))
        for name, raw in rule.forced.items()
    )
    where = _within(rule.where, attributes) if rule.source is Source.CHAIN else rule.where
    return all_of(where, *forced)


def _within(condition: Condition, attributes: Mapping[str, Kind]) -> Condition:
    def known(atom: Atom) -> Condition:
        match atom:
            case IsNull(Attribute(name)) if name not in attributes:
                return Compare("=", Constant(None), Constant(None))
            case _:
                return atom

    return rewrite(condition, known)


def forced_value(raw: object, kind: Kind | None) -> Value:
    """A forced value as an attribute of this kind has it; null, which nothing equals, if it cannot."""
    try:
        return None if kind is None else conform(kind, raw)
    except TypeMismatch:
        return None


def covered(rule: Rule, attributes: Mapping[str, Kind]) -> frozenset[str]:
    """The attributes an entry covers on a type that has these attributes."""
    return frozenset(attributes) if rule.attributes is None else frozenset(rule.attributes) & frozenset(attributes)


def covered_through(state: State, rule: Rule, named: str, type_name: str) -> frozenset[str]:
    """The attributes of events of a type that an entry covers, which it takes in through the type that it names."""
    whole_forbid = rule.effect is Effect.FORBID and rule.attributes is None
    attributes = state.types.attributes(type_name if whole_forbid else named)
    return covered(rule, attributes)


def verdicts(
    state: State,
    principal: str,
    event: Event,
    predicates: Mapping[str, PredicateFunction],
    origin: str | None = None,
    counted: tuple[str, ...] | None = None,
) -> tuple[Verdict, ...]:
    """Every subscribe entry of the principal that takes in the event's type, put to the event, in order.

    `origin` is where the principal was when it subscribed, if that is known; `counted` are the memberships that count
    for event policy, whose entries stand after the rules and before the chains.
    """
    if event.type not in state.types:  # retired since, when history is asked for (D10)
        return ()
    world = World(state, state.principals.get(principal, {}), predicates, origin=origin)
    rule_verdicts: list[Verdict] = []
    chains: list[Verdict] = []
    for rule in entries(state, principal, Action.SUBSCRIBE):
        named = named_type(state, rule, Action.SUBSCRIBE, event.type)
        if named is None:
            continue
        attributes = state.types.attributes(named)
        covers = covered_through(state, rule, named, event.type)
        asked = replace(world, attributes=attributes).given(rule.given)
        verdict = Verdict(rule, truth(condition_for(rule, attributes), event, asked), covers)
        (chains if rule.source is Source.CHAIN else rule_verdicts).append(verdict)
    policy: list[Verdict] = []
    for rule, is_true in event_policy.answers(state, principal, event, counted):
        kinds = state.types.attributes(event.type if rule.effect is Effect.FORBID else rule.type)
        policy.append(Verdict(rule, is_true, frozenset(kinds)))
    return (*rule_verdicts, *policy, *chains)


def view(
    state: State,
    principal: str,
    event: Event,
    predicates: Mapping[str, PredicateFunction],
    origin: str | None = None,
    counted: tuple[str, ...] | None = None,
) -> View | None:
    """What the principal may see of the event, or None if there is no view (D8)."""
    seen: set[str] = set()
    decided: dict[str, Rule] = {}
    because: list[Rule] = []
    for verdict in verdicts(state, principal, event, predicates, origin, counted):
        if not verdict.matches:
            continue
        new = verdict.covers - decided.keys()
        if verdict.rule.effect is Effect.GRANT:
            because.append(verdict.rule)
            seen |= new
        elif verdict.rule.whole_event and not because:
            return None
        decided.update(dict.fromkeys(new, verdict.rule))
    return View(frozenset(seen), tuple(because), decided) if because else None
