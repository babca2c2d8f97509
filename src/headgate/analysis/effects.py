"""Who gains and who loses what when one state becomes another?

Guarantees: a gain or loss is named for every principal whose entries, groups or attributes make one, per type, action
and attribute. Where a principal may see something both before and after, it is said to be under another condition
unless the normal forms show that both are true of the same events. Nothing is said to be visible where it is proven
that it never is.
Leaves out: what publishers send, so a gain may bring nothing; whether two conditions that look different mean the same
beyond what their normal forms show; the administrator, who governs everything; whoever comes to hold a role that it
does not hold yet, and what someone sees by event policy who does not count all the credentials that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from headgate.analysis.entry_conditions import (
    SubscribeEntry,
    given_to,
    in_order,
    may_hold,
    subscribe_entry,
    with_arguments,
)
from headgate.analysis.plan import exact, exact_rule
from headgate.analysis.profiles import Profile, Profiles
from headgate.decide.normal import bind, clauses
from headgate.decide.publish import condition_on_sent
from headgate.decide.views import covered, forced_value, governs, holds, may_connect
from headgate.model import expressions as tree
from headgate.model.errors import BadExpression
from headgate.model.expressions import TRUE, Attribute, Compare, Condition, Constant, InGroup, Not, Predicate, Related
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import State
from headgate.model.values import Kind, brief

Show: TypeAlias = Callable[[Condition], str]
"""How a condition is written; the language is not this layer's."""

MANY: Final = "(too many rules to show)"
_HELD: Final = (Action.AUDIT, Action.EXTEND, Action.QUENCH)
"""Actions that are held on a type as a whole."""


class Turn(Enum):
    """What becomes of a right."""

    LOSES = "loses"
    GAINS = "gains"
    OTHERWISE = "otherwise"


@dataclass(frozen=True, slots=True)
class Gain:
    """A right that is gained, lost, or held under another condition; `before` and `after` are conditions in words.

    `attributes` are those that can be seen, or sent; none of them means the event alone. `connect` has no type.
    """

    turn: Turn
    action: Action
    type: str | None = None
    attributes: tuple[str, ...] = ()
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Affected:
    """Principals for whom the same changes."""

    who: tuple[str, ...]
    gains: tuple[Gain, ...]


def effects(now: State, then: State, show: Show) -> list[Affected]:
    """What changes, and for whom; principals for whom nothing does are left out."""
    sides = _Side(now, show), _Side(then, show)
    together: dict[tuple[Profile | None, Profile | None], list[str]] = {}
    for name in dict.fromkeys([*then.principals, *now.principals]):
        together.setdefault((sides[0].profiles.of(name), sides[1].profiles.of(name)), []).append(name)
    affected: dict[tuple[Gain, ...], list[str]] = {}
    for (before, after), names in together.items():
        gains = tuple(_Compared(sides[0], sides[1], before, after).gains())
        if gains:
            affected.setdefault(gains, []).extend(names)
    return [Affected(tuple(names), gains) for gains, names in affected.items()]


@dataclass(frozen=True, slots=True)
class _Sight:
    """When something can be seen or sent: a condition for these principals, and as it is written."""

    bound: Condition | None
    written: Condition | None
    kinds: Mapping[str, Kind]
    names: frozenset[object] = frozenset()


@dataclass(frozen=True, slots=True)
class _Terms:
    """On what terms a type can be published: whether at all, the attributes that can be sent, and in words."""

    able: bool = False
    attributes: tuple[str, ...] = ()
    words: str = ""
    bound: tuple[object, ...] = ()


@dataclass(slots=True)
class _Side:
    """A state, and what is worked out of it once."""

    state: State
    show: Show
    profiles: Profiles = field(init=False)
    exact: dict[str, tuple[object, ...]] = field(init=False)
    _members: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.profiles = Profiles(self.state)
        self.exact = {rule.id: exact_rule(rule) for rule in self.state.rules}

    def basis(self, profile: Profile | None, action: Action, type_name: str) -> object:
        """All that a right hangs on: where this is the same, so is the right."""
        if profile is None or type_name not in self.state.types:
            return None
        entries = self.profiles.entries(profile, action, type_name)
        kinds = [list(self.state.types.attributes(named).items()) for _, named in entries]
        own = list(self.state.types.attributes(type_name).items())
        rules = [self._exact(rule) for rule, _ in entries]
        named = [self.meaning(rule.where) for rule, _ in entries]
        limit = (profile.limit, profile.attested) if action is Action.PUBLISH else None
        return rules, kinds, own, profile.sees, named, limit

    def _exact(self, rule: Rule) -> tuple[object, ...]:
        known = exact_rule(rule) if rule.source is Source.POLICY else self.exact[rule.id]
        return known, tuple((name, exact(value)) for name, value in rule.given.items())

    def meaning(self, where: Condition) -> tuple[object, ...]:
        """The contents of what a condition names."""
        contents: list[object] = []
        for atom in tree.atoms(where):
            match atom:
                case InGroup(_, group):
                    if group not in self._members:
                        self._members[group] = self.state.members_of(group)
                    contents.append(self._members[group])
                case Related(relation, _):
                    contents.append(self.state.relations.get(relation))
                case Predicate(name, _):
                    contents.append(self.state.predicates.get(name))
        return tuple(contents)

    def seen(self, profile: Profile | None, type_name: str) -> dict[str | None, _Sight]:
        """When each attribute of a type can be seen, and under None the event itself."""
        if profile is None or type_name not in self.state.types:
            return {}
        kinds = self.state.types.attributes(type_name)
        subject = self.profiles.subject(profile)
        listed = [
            subscribe_entry(self.state, rule, named, type_name, subject)
            for rule, named in self.profiles.entries(profile, Action.SUBSCRIBE, type_name)
        ]
        made: dict[tuple[int, ...], _Sight] = {}
        sights: dict[str | None, _Sight] = {}
        for attribute in (None, *kinds):
            which = tuple(
                at
                for at, one in enumerate(listed)
                if (one.rule.whole_event if attribute is None else attribute in one.covers)
            )
            if which not in made:
                made[which] = self._sight([listed[at] for at in which], kinds)
            if may_hold(made[which].bound, kinds):
                sights[attribute] = made[which]
        return sights

    def _sight(self, listed: Sequence[SubscribeEntry], kinds: Mapping[str, Kind]) -> _Sight:
        bound = in_order([(one.rule.effect, one.bound) for one in listed])
        written = in_order([(one.rule.effect, one.written) for one in listed])
        return _Sight(bound, written, kinds, frozenset(self.meaning(one.written) for one in listed))

    def sent(self, profile: Profile | None, type_name: str) -> _Terms:
        """On what terms a type can be published (D6)."""
        if profile is None or type_name not in self.state.types:
            return _Terms()
        kinds = self.state.types.attributes(type_name)
        subject = self.profiles.subject(profile)
        able = forbidden = False
        kept: dict[str, None] = {}
        words: list[str] = []
        bound: list[object] = []
        for rule, _ in self.profiles.entries(profile, Action.PUBLISH, type_name):
            if rule.attested and not profile.attested:
                continue  # it passes them over
            condition = bind(condition_on_sent(rule, kinds), {**subject, **rule.given}, kinds)
            bound.append((repr(condition), rule.effect, rule.attributes, self.meaning(rule.where), rule.attested))
            words.append(self._published(rule, kinds))
            if rule.effect is Effect.FORBID:
                forbidden = forbidden or not may_hold(Not(condition), kinds)
            elif not forbidden and may_hold(condition, {a: k for a, k in kinds.items() if a in covered(rule, kinds)}):
                able = True
                kept.update(dict.fromkeys(a for a in kinds if a in covered(rule, kinds)))
        limit = self.state.policy_rules.get(self.profiles.members[profile][0])
        within = "" if limit is None else f", with a requirement no wider than {self.show(limit)}"
        return _Terms(able, tuple(kept), "; then ".join(words) + within, (*bound, profile.limit))

    def _published(self, rule: Rule, kinds: Mapping[str, Kind]) -> str:
        """One entry for publishing in words."""
        where = "" if rule.where == TRUE else f" where {self.show(with_arguments(rule.where, given_to(rule)))}"
        where += " while an identity statement is in force" if rule.attested else ""
        if rule.effect is Effect.FORBID:
            return f"nothing{where}"
        if rule.attributes is None and not rule.forced:
            return f"everything{where}"
        named = [self._kept(rule, a, kinds[a]) for a in kinds if a in covered(rule, kinds)]
        return f"{', '.join(named) or 'no attribute'}{where}"

    def _kept(self, rule: Rule, attribute: str, kind: Kind) -> str:
        if attribute not in rule.forced:
            return f"`{attribute}`"
        value = forced_value(rule.forced[attribute], kind)
        forced = None if value is None else Compare("=", Attribute(attribute), Constant(value))
        return f"`{attribute}` = {brief(rule.forced[attribute])}" if forced is None else f"`{self.show(forced)}`"

    def connects(self, profile: Profile | None) -> bool:
        """May they connect?"""
        return profile is not None and may_connect(self.state, self.profiles.members[profile][0])

    def holds(self, profile: Profile | None, action: Action, name: str) -> bool:
        """Do they hold an action on a type as a whole?"""
        if profile is None or name not in self.state.types:
            return False
        owns = action is Action.GOVERN and name in profile.owns
        if not owns and not self.profiles.rules(profile, action):
            return False
        who = self.profiles.members[profile][0]
        return governs(self.state, who, name) if action is Action.GOVERN else holds(self.state, who, action, name)

    def installs(self, profile: Profile | None) -> dict[str, None]:
        """The names and patterns of types that may be installed."""
        rules = () if profile is None else self.profiles.rules(profile, Action.INSTALL)
        return {rule.type: None for rule in rules if rule.effect is Effect.GRANT and rule.where == TRUE}


@dataclass(frozen=True, slots=True)
class _Compared:
    """Principals of one profile before and one after."""

    now: _Side
    then: _Side
    before: Profile | None
    after: Profile | None

    def gains(self) -> Iterator[Gain]:
        """Everything that changes for them."""
        yield from _turned(self.now.connects(self.before), self.then.connects(self.after), Action.CONNECT)
        for name in dict.fromkeys([*self.then.state.types, *self.now.state.types]):
            if self._moves(Action.SUBSCRIBE, name):
                yield from self._sees(name)
            if self._moves(Action.PUBLISH, name):
                yield from self._sends(name)
            for action in (Action.GOVERN, *_HELD):
                had, has = self.now.holds(self.before, action, name), self.then.holds(self.after, action, name)
                yield from _turned(had, has, action, name)
        had_types, has_types = self.now.installs(self.before), self.then.installs(self.after)
        for name in dict.fromkeys([*has_types, *had_types]):
            yield from _turned(name in had_types, name in has_types, Action.INSTALL, name)

    def _moves(self, action: Action, name: str) -> bool:
        return self.now.basis(self.before, action, name) != self.then.basis(self.after, action, name)

    def _sees(self, name: str) -> Iterator[Gain]:
        had, has = self.now.seen(self.before, name), self.then.seen(self.after, name)
        grouped: dict[tuple[Turn, str | None, str | None], list[str]] = {}
        event: tuple[Turn, str | None, str | None] | None = None
        for attribute in dict.fromkeys([*has, *had]):
            turn = _turn(had.get(attribute), has.get(attribute))
            if turn is None:
                continue
            key = turn, *self._words(had.get(attribute), has.get(attribute))
            if attribute is None:
                event = key
            else:
                grouped.setdefault(key, []).append(attribute)
        if event is not None and not any(turn is event[0] for turn, _, _ in grouped):
            yield Gain(event[0], Action.SUBSCRIBE, name, (), event[1], event[2])
        for turn in Turn:
            for key, attributes in grouped.items():
                if key[0] is turn:
                    yield Gain(turn, Action.SUBSCRIBE, name, tuple(attributes), key[1], key[2])

    def _words(self, had: _Sight | None, has: _Sight | None) -> tuple[str | None, str | None]:
        """The conditions as they are written; where that does not tell them apart, as they are for the principal."""
        written = tuple(None if one is None else self._shown(one.written) for one in (had, has))
        if written[0] == written[1] and had is not None and has is not None:
            return self._shown(had.bound), self._shown(has.bound)
        return written[0], written[1]

    def _shown(self, condition: Condition | None) -> str:
        return MANY if condition is None else self.now.show(condition)

    def _sends(self, name: str) -> Iterator[Gain]:
        had, has = self.now.sent(self.before, name), self.then.sent(self.after, name)
        if had.able and has.able and had.bound != has.bound:
            yield Gain(Turn.OTHERWISE, Action.PUBLISH, name, has.attributes, had.words, has.words)
        for gain in _turned(had.able, has.able, Action.PUBLISH, name):
            terms = has if gain.turn is Turn.GAINS else had
            words = (None, terms.words) if gain.turn is Turn.GAINS else (terms.words, None)
            yield Gain(gain.turn, Action.PUBLISH, name, terms.attributes, *words)


def _turned(had: bool, has: bool, action: Action, name: str | None = None) -> Iterable[Gain]:
    return () if had == has else (Gain(Turn.GAINS if has else Turn.LOSES, action, name),)


def _turn(had: _Sight | None, has: _Sight | None) -> Turn | None:
    if had is None or has is None:
        return None if had is has else Turn.LOSES if has is None else Turn.GAINS
    return None if had.names == has.names and _same(had, has) else Turn.OTHERWISE


def _same(a: _Sight, b: _Sight) -> bool:
    """Do the normal forms show that both are true of the same events?"""
    if a.bound is None or b.bound is None:
        return False
    if a.bound == b.bound and a.kinds == b.kinds:
        return True
    try:
        one, two = clauses(a.bound, a.kinds), clauses(b.bound, b.kinds)
    except BadExpression:
        return False
    return all(clause in two for clause in one) and all(clause in one for clause in two)
