"""What can be proven of a whole policy: rules that never count, rules that nobody would miss, and who can see what.

Guarantees: a rule is reported only where it is proven, for every principal there is with whatever attributes it has or
comes to have, every type and every event; all reported rules could be removed together, and every view and every
admission would stay as it is. "No" to whether anyone can see an attribute is a proof; "yes" comes with a principal,
attributes and an event whose view (`views`) has it. Chains count as they stand now, but no rule is reported because a
chain gives the same: it will end.
Leaves out: principals that are yet to come, certificates that nobody has shown, rules about anything but publishing and
subscribing, which events their publishers may send, and what predicates answer, who may answer anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Literal

from headgate.decide.bind import bind
from headgate.decide.profiles import Profile, Profiles
from headgate.decide.prove import without_others
from headgate.decide.truth import PredicateFunction, clock_part
from headgate.decide.views import condition_for, covered, forced_value, view
from headgate.decide.wider.exact import Found, find
from headgate.decide.wider.goals import Every, Goal, Some, Want, event_of
from headgate.decide.wider.terms import MOST_NAMED, Frame, Term, with_operands
from headgate.model.conditions import (
    FALSE,
    AllOf,
    AnyOf,
    Attribute,
    ClockPart,
    Condition,
    Constant,
    InSet,
    IsNull,
    Meta,
    Not,
    Operand,
    Subject,
)
from headgate.model.errors import UnknownName
from headgate.model.events import Event
from headgate.model.limits import WIDER_SECONDS
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import State
from headgate.model.values import Kind, Value, brief

MOST_QUESTIONS: Final = 5_000
"""Questions that are put for one policy; rules that are not looked at by then are said to be undecided."""

_MOST_ENTRIES: Final = 100
"""Entries that one question takes into account; with more, nothing is proven."""

_MOST_TRIED: Final = 100
"""Principals that an example is tried on as they are, before one is given other attributes."""

_ACTIONS: Final = (Action.SUBSCRIBE, Action.PUBLISH)


class Fault(Enum):
    """Why a rule is not needed."""

    NOBODY = "nobody"
    NO_TYPE = "no-type"
    NEVER_TRUE = "never-true"
    SHADOWED = "shadowed"
    REDUNDANT = "redundant"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that is not needed, and the rules because of which it is not."""

    rule: str
    fault: Fault
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in a policy; of the undecided rules nothing was proven, and nothing to the contrary found."""

    findings: tuple[Finding, ...]
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """Whether an attribute can be seen, with an example if it can: who sees it of which event, by which rule.

    The principal sees it with these attributes, which need not be those that it has.
    """

    verdict: Literal["yes", "no", "cannot tell"]
    principal: str | None = None
    event: Event | None = None
    rule: Rule | None = None
    attributes: Mapping[str, Value] = field(default_factory=dict)


def check_policy(state: State, *, limit: float = WIDER_SECONDS) -> Checked:
    """The rules of a policy that are not needed; `limit` is the time for one question."""
    return _Check(state, limit).run()


def can_see(
    state: State,
    type_name: str,
    attribute: str,
    outside: Collection[str] = (),
    *,
    predicates: Mapping[str, PredicateFunction] | None = None,
    limit: float = WIDER_SECONDS,
) -> Sight:
    """Can any principal but those in some groups ever see an attribute of a type, of an event that has it?"""
    if attribute not in state.types.attributes(type_name):
        raise UnknownName(f"`{brief(type_name)}` has no attribute `{brief(attribute)}`")
    for group in outside:
        if group not in state.groups:
            raise UnknownName(f"no group `{brief(group)}`", remedy="name one of the policy's groups")
    inside = frozenset(name for group in outside for name in state.members_of(group))
    profiles, unsure = _profiles(state), False
    for profile, members in profiles.members.items():
        who = [name for name in members if name not in inside]
        for name in state.types.subtypes(type_name) if who else ():
            frame = Frame(state.types.attributes(name), state, predicates or {})
            entries = [e for e in _entries(profiles, profile, Action.SUBSCRIBE, name) if attribute in e.covers]
            there = Want(Not(IsNull(Attribute(attribute))))
            few = len(entries) <= _MOST_ENTRIES
            found = find(Every((there, _granted(entries))), frame, limit) if few else Found()
            seen = None if found.values is None else _sight(state, who, name, attribute, found.values, frame)
            if seen is not None:
                return seen
            unsure |= found.exists is not False
    return Sight("cannot tell" if unsure else "no")


def _profiles(state: State) -> Profiles:
    """The profiles of a state, whatever attributes its principals have: identity statements bring others."""
    return Profiles(replace(state, principals={name: {} for name in state.principals}))


def _sight(
    state: State, who: Sequence[str], name: str, attribute: str, values: Mapping[Term, Value], frame: Frame
) -> Sight | None:
    """The example, if its view has the attribute: someone who sees it now, or else someone who may come to."""
    every: dict[Term, Value] = {Attribute(one): values.get(Attribute(one)) for one in frame.kinds}
    event = event_of({**values, **every}, name)
    for one in who[:_MOST_TRIED]:
        if (rule := _shown(state, one, state.principals[one], event, attribute, frame)) is not None:
            return Sight("yes", one, event, rule, state.principals[one])
    needed = {term.name: value for term, value in values.items() if isinstance(term, Subject)}
    attributes = {**state.principals[who[0]], **needed}
    for changed in needed:
        kept = {**attributes, changed: state.principals[who[0]].get(changed)}
        if _shown(state, who[0], kept, event, attribute, frame) is not None:
            attributes = kept
    rule = _shown(state, who[0], attributes, event, attribute, frame)
    there = {one: value for one, value in attributes.items() if value is not None}
    return None if rule is None else Sight("yes", who[0], event, rule, there)


def _shown(
    state: State, who: str, attributes: Mapping[str, Value], event: Event, attribute: str, frame: Frame
) -> Rule | None:
    """The rule by which someone with these attributes sees an attribute of an event, if it does."""
    found = view(with_attributes(state, who, attributes), who, event, frame.predicates, event.origin)
    return found.decided_by[attribute] if found is not None and attribute in found.attributes else None


def with_attributes(state: State, who: str, attributes: Mapping[str, Value]) -> State:
    """The state in which a principal has these attributes and no others; a null one is absent."""
    there = {name: value for name, value in attributes.items() if value is not None}
    return replace(state, principals={**state.principals, who: there})


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry on a type, for one profile: when it counts, what it covers, and what comes of an event if it counts."""

    rule: Rule
    condition: Condition
    covers: frozenset[str]
    outcome: object

    @property
    def counts(self) -> Goal:
        """A grant counts where it is true, a forbid unless it is false."""
        grant = self.rule.effect is Effect.GRANT
        return Want(self.condition, truth=grant, met=grant)

    @property
    def misses(self) -> Goal:
        """It does not count."""
        grant = self.rule.effect is Effect.GRANT
        return Want(self.condition, truth=grant, met=not grant)


def _entries(profiles: Profiles, profile: Profile, action: Action, name: str) -> list[_Entry]:
    """The entries of a profile on events of a type, in order, with the attributes of subjects open."""
    state = profiles.state
    kinds = state.types.attributes(name)
    found = []
    for rule, named in profiles.entries(profile, action, name):
        through = state.types.attributes(named)
        outcome: object = rule.effect is Effect.GRANT
        if action is Action.PUBLISH:
            condition = bind(rule.where, None, kinds)
            if rule.effect is Effect.GRANT:
                forced = _forced(rule, kinds)
                condition = FALSE if None in forced.values() else _cut(condition, covered(rule, kinds), forced)
                outcome = covered(rule, kinds), repr(sorted(forced.items()))
            found.append(_Entry(rule, condition, frozenset(), outcome))
            continue
        condition = without_others(bind(condition_for(rule, through), None, through), through)
        whole = rule.effect is Effect.FORBID and rule.attributes is None
        found.append(_Entry(rule, condition, frozenset(kinds) if whole else covered(rule, through), outcome))
    return found


def _forced(rule: Rule, kinds: Mapping[str, Kind]) -> dict[str, Value]:
    """The values that a publish grant forces on a type; null where one does not fit, and the grant is never used."""
    found = {name: forced_value(raw, kinds[name]) for name, raw in rule.forced.items() if name in kinds}
    return {name: v for name, v in found.items() if v is None or name in covered(rule, kinds)}


def _cut(condition: Condition, covers: frozenset[str], forced: Mapping[str, Value]) -> Condition:
    """A condition on what a publish grant makes of an event, as one on the event as sent (D6)."""

    def put(operand: Operand) -> Operand:
        match operand:
            case Attribute(name) if name in forced:
                return Constant(forced[name])
            case Attribute(name) if name not in covers:
                return Constant(None)
            case ClockPart(part, of, zone) if (whole := put(of)) != of:
                at = whole.value if isinstance(whole, Constant) else None
                return Constant(None if at is None else clock_part(part, at, zone))  # type: ignore[arg-type]
            case _:
                return operand

    return _mapped(condition, put)


def _mapped(condition: Condition, put: Callable[[Operand], Operand]) -> Condition:
    match condition:
        case Not(arg):
            return Not(_mapped(arg, put))
        case AllOf(args):
            return AllOf(tuple(_mapped(arg, put) for arg in args))
        case AnyOf(args):
            return AnyOf(tuple(_mapped(arg, put) for arg in args))
        case atom:
            return with_operands(atom, put)


def _granted(entries: Sequence[_Entry]) -> Goal:
    """The first entry that counts is a grant (D5)."""
    found: Goal = Some()
    for one in reversed(entries):
        grant = one.rule.effect is Effect.GRANT
        found = Some((one.counts, found)) if grant else Every((one.misses, found))
    return found


def _otherwise(entries: Sequence[_Entry], outcome: object, nothing: object) -> Goal:
    """The first entry that counts, or `nothing` if none does, leads to another outcome."""
    found: Goal = Every() if nothing != outcome else Some()
    for one in reversed(entries):
        here = (one.counts,) if one.outcome != outcome else ()
        found = Some((*here, Every((one.misses, found))))
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an entry has its say, with the entries before and after it that have theirs there too."""

    type: str
    mine: _Entry
    before: Sequence[_Entry]
    after: Sequence[_Entry]
    given: tuple[Goal, ...] = ()


def _lasting(place: _Place) -> Sequence[_Entry]:
    """The entries after one that may stand for it: beside a grant, none of a chain, which will end."""
    if place.mine.rule.effect is Effect.FORBID:
        return place.after
    return [one for one in place.after if one.rule.source is Source.RULE]


class _Check:
    """The check of one policy."""

    def __init__(self, state: State, limit: float) -> None:
        self.state, self.limit = state, limit
        self.profiles = _profiles(state)
        self.left = MOST_QUESTIONS
        self.gone: set[str] = set()
        """Rules that are reported: they count as removed from then on."""
        self._meant: dict[str, list[Profile]] = {}
        for profile in self.profiles.members:
            for who in profile.whom:
                self._meant.setdefault(who, []).append(profile)
        self._lists: dict[tuple[Profile, Action, str], list[_Entry]] = {}
        self._answers: dict[tuple[str, str], bool | None] = {}

    def run(self) -> Checked:
        """Look for rules that never count, from the first; then for those that nobody would miss, from the last."""
        own = (rule for rule in self.state.rules if rule.source is Source.RULE)  # nobody can remove a chain's
        rules = [rule for rule in own if rule.actions <= set(_ACTIONS)]
        found: dict[str, Finding] = {}
        undecided: dict[str, None] = {}
        for look, ordered in ((self._unreachable, rules), (self._redundant, list(reversed(rules)))):
            for rule in ordered:
                if rule.id in found:
                    continue
                answer = look(rule)
                if isinstance(answer, Finding):
                    found[rule.id] = answer
                    self.gone.add(rule.id)
                elif answer is None:
                    undecided[rule.id] = None
        places = {rule.id: place for place, rule in enumerate(self.state.rules)}
        ordered_findings = sorted(found.values(), key=lambda one: places[one.rule])
        return Checked(tuple(ordered_findings), tuple(id for id in undecided if id not in found))

    def _unreachable(self, rule: Rule) -> Finding | bool | None:
        """The finding that a rule never counts; or False if it may, None if that could not be told."""
        if rule.who not in self._meant:
            return Finding(rule.id, Fault.NOBODY)
        places = list(self._places(rule))
        if not places:
            return Finding(rule.id, Fault.NO_TYPE)
        shadowed = self._none(self._decides(place, place.before) for place in places)
        if shadowed is not True:
            return shadowed
        if self._none(self._decides(place, ()) for place in places) is True:
            return Finding(rule.id, Fault.NEVER_TRUE)
        earlier = tuple(dict.fromkeys(one.rule.id for place in places for one in place.before))
        for id in earlier:
            alone = ((place, [one for one in place.before if one.rule.id == id]) for place in places)
            if self._none(self._decides(place, only) for place, only in alone) is True:
                return Finding(rule.id, Fault.SHADOWED, (id,))
        return Finding(rule.id, Fault.SHADOWED, earlier)

    def _redundant(self, rule: Rule) -> Finding | bool | None:
        """The finding that nothing would change without a rule; or False if something would, None if not known."""
        places = list(self._places(rule))
        needless = self._none(self._matters(place) for place in places)
        if needless is not True:
            return needless
        others = dict.fromkeys(
            one.rule.id for place in places for one in _lasting(place) if one.outcome == place.mine.outcome
        )
        return Finding(rule.id, Fault.REDUNDANT, tuple(others) if rule.effect is Effect.GRANT else ())

    def _none(self, goals: Iterator[tuple[Goal, str] | None]) -> bool | None:
        """Is it proven that none of these can be reached? None if that could not be told."""
        sure = True
        for goal in goals:
            answer = None if goal is None else self._exists(*goal)
            if answer is True:
                return False
            sure = sure and answer is False
        return True if sure else None

    def _exists(self, goal: Goal, name: str) -> bool | None:
        """Can a goal be reached by an event of a type?"""
        key = repr(goal), name
        if key not in self._answers:
            if self.left <= 0:
                return None
            self.left -= 1
            self._answers[key] = find(goal, Frame(self.state.types.attributes(name), self.state), self.limit).exists
        return self._answers[key]

    def _decides(self, place: _Place, before: Sequence[_Entry]) -> tuple[Goal, str] | None:
        """The entry counts, and none of those before it; None if they are too many."""
        if len(place.before) + len(place.after) > _MOST_ENTRIES:
            return None
        return Every((*place.given, *(one.misses for one in before), place.mine.counts)), place.type

    def _matters(self, place: _Place) -> tuple[Goal, str] | None:
        """The entry decides, and without it something else would come of the event; None if others are too many."""
        decides = self._decides(place, place.before)
        if decides is None:
            return None
        return Every((decides[0], _otherwise(_lasting(place), place.mine.outcome, nothing=False))), place.type

    def _places(self, rule: Rule) -> Iterator[_Place]:
        """Where a rule has its say: for each profile, action and type, on the event and on each attribute."""
        for profile in self._meant.get(rule.who, ()):
            for action in _ACTIONS:
                for name in self.state.types if action in rule.actions else ():
                    listed = self._list(profile, action, name)
                    mine = next((one for one in listed if one.rule.id == rule.id), None)
                    given = self._publishing(profile) if action is Action.PUBLISH else ()
                    if mine is not None:
                        yield from _said(listed, mine, name, given)

    def _publishing(self, profile: Profile) -> tuple[Goal, ...]:
        """Whoever publishes is the publisher."""
        members = self.profiles.members[profile]
        return (Want(InSet(Meta("publisher"), tuple(members))),) if len(members) <= MOST_NAMED else ()

    def _list(self, profile: Profile, action: Action, name: str) -> list[_Entry]:
        key = profile, action, name
        if key not in self._lists:
            self._lists[key] = _entries(self.profiles, profile, action, name)
        return [one for one in self._lists[key] if one.rule.id not in self.gone]


def _said(listed: Sequence[_Entry], mine: _Entry, name: str, given: tuple[Goal, ...]) -> Iterator[_Place]:
    """What an entry has its say on, with the others that do, those that say the same of several attributes once."""
    known: set[tuple[str, ...]] = set()
    for part in (None, *sorted(mine.covers)):
        if part is None and not mine.rule.whole_event:
            continue
        speaking = [one for one in listed if (one.rule.whole_event if part is None else part in one.covers)]
        if (names := tuple(one.rule.id for one in speaking)) not in known:
            known.add(names)
            at = speaking.index(mine)
            yield _Place(name, mine, speaking[:at], speaking[at + 1 :], given)
