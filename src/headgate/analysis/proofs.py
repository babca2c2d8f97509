"""What can be proven of a whole policy: rules that never count, rules that nobody would miss, and who can see what.

Guarantees: a rule is reported only where it is proven, for every principal there is with whatever attributes it has or
comes to have, every type and every event; all reported rules could be removed together, and every view and every
admission would stay as it is. "No" to whether anyone can see an attribute is a proof; "yes" comes with a principal,
attributes and an event whose view (`views`) has it. Chains count as they stand now, but no rule is reported because a
chain gives the same: it will end. Roles come and go: whatever is proven holds whoever holds which role with whatever
arguments, and whichever credentials a subscription counts; a "yes" may be that of someone who comes to hold roles. What
event policy asks that no condition can say may be true, false or unknown.
Leaves out: principals that are yet to come, certificates that nobody has shown, rules about anything but publishing and
subscribing, which events their publishers may send, and what predicates answer, who may answer anything; whether anyone
can enter a role, which its rolefile says; and whether a rule for a role is shadowed or redundant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Literal, TypeAlias

from headgate.analysis.entry_conditions import assumed, given_to, open_name, subscribe_entry, with_arguments
from headgate.analysis.profiles import EVERYONE, Profile, Profiles, without_memberships
from headgate.decide.event_policy import rule_of
from headgate.decide.normal import bind
from headgate.decide.truth import PredicateFunction, clock_part
from headgate.decide.views import covered, forced_value, named_type, view
from headgate.model import expressions as tree
from headgate.model.errors import UnknownName
from headgate.model.events import Event
from headgate.model.expressions import Attribute, ClockPart, Condition, Constant, Operand, RoleRef, Subject, Variable
from headgate.model.limits import WIDER_SECONDS
from headgate.model.rights import ANNOUNCES, Action, Effect, Rule, Source
from headgate.model.roles import Membership
from headgate.model.state import State
from headgate.model.values import Kind, Value, brief
from headgate.solver.exact import Solution, find
from headgate.solver.terms import MOST_NAMED, ConditionFrame, Every, Goal, Some, Term, Want, event_of

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
class RuleFinding:
    """A rule that is not needed, and the rules because of which it is not."""

    rule: str
    fault: Fault
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyProofs:
    """What was found in a policy; of the undecided rules nothing was proven, and nothing to the contrary found."""

    findings: tuple[RuleFinding, ...]
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """Whether an attribute can be seen, with an example if it can: who sees it of which event, by which rule.

    The principal sees it with these attributes, which need not be those that it has, and once it holds these `roles`
    beside, or if there are any instead of, those that it holds: an argument that is `_` may be anything.
    """

    verdict: Literal["yes", "no", "cannot tell"]
    principal: str | None = None
    event: Event | None = None
    rule: Rule | None = None
    attributes: Mapping[str, Value] = field(default_factory=dict)
    roles: tuple[RoleRef, ...] = ()


def check_policy(state: State, *, limit: float = WIDER_SECONDS) -> PolicyProofs:
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
    looking = _Looking(state, type_name, attribute, inside, predicates or {}, limit)
    return looking.held() or looking.open()


def _profiles(state: State) -> Profiles:
    """The profiles of a state, whatever attributes its principals have: identity statements bring others."""
    return Profiles(replace(state, principals={name: {} for name in state.principals}))


@dataclass(frozen=True, slots=True)
class _Looking:
    """Who can see an attribute?"""

    state: State
    type: str
    attribute: str
    inside: frozenset[str]
    predicates: Mapping[str, PredicateFunction]
    limit: float

    def held(self) -> Sight | None:
        """Someone who sees it by what it holds now."""
        for who, name, listed, frame in self._each(self.state, "held") if self.state.roles.memberships else ():
            found = self._find(granted(listed), frame, len(listed))
            seen = None if found.values is None else self._sight(who, name, found.values, frame)
            if seen is not None:
                return seen
        return None

    def open(self) -> Sight:
        """Whether anyone can who may come to hold any role, or to leave it.

        Nobody needs more roles than the entry asks for by which it sees: further ones may bring forbids, and a grant
        counts without them. So where nothing is found with forbids for roles left out, nobody can.
        """
        unsure = False
        for who, name, listed, frame in self._each(without_memberships(self.state), "open"):
            solution = self._find(granted(listed), frame, len(listed))
            if solution.exists is False:
                continue
            unsure = True
            seen = None if solution.values is None else self._sight(who, name, solution.values, frame)
            seen = seen or (self._assuming(who, name, frame) if any(one.refs for one in listed) else None)
            if seen is not None:
                return seen
        return Sight("cannot tell" if unsure else "no")

    def _assuming(self, who: Sequence[str], name: str, frame: ConditionFrame) -> Sight | None:
        """The example of someone who holds just the roles that one entry asks for."""
        profiles = _profiles(without_memberships(self.state))
        profile = profiles.of(who[0])
        assert profile is not None
        listed = self._covering(possible_entries(profiles, profile, Action.SUBSCRIBE, name, "shared"))
        for at, entry in enumerate(listed):
            if entry.rule.effect is Effect.FORBID or not entry.refs:
                continue
            stopping = (e for e in listed[:at] if e.rule.effect is Effect.FORBID)
            goal = Every((entry.counts, *(replace(e, maybe=False).misses for e in stopping)))
            found = self._find(goal, frame, len(listed))
            seen = None if found.values is None else self._sight(who, name, found.values, frame, entry.refs)
            if seen is not None:
                return seen
        return None

    def _each(self, state: State, holding: Holding) -> Iterator[tuple[list[str], str, list[Possible], ConditionFrame]]:
        """The principals of each profile, with the entries on each type that cover the attribute."""
        profiles = _profiles(state)
        for profile, members in profiles.members.items():
            who = [name for name in members if name not in self.inside]
            for name in state.types.subtypes(self.type) if who else ():
                listed = self._covering(possible_entries(profiles, profile, Action.SUBSCRIBE, name, holding))
                yield who, name, listed, ConditionFrame(state.types.attributes(name), state, self.predicates)

    def _covering(self, listed: list[Possible]) -> list[Possible]:
        return [one for one in listed if self.attribute in one.covers]

    def _find(self, goal: Goal, frame: ConditionFrame, entries: int) -> Solution:
        there = Want(tree.Not(tree.IsNull(Attribute(self.attribute))))
        return find(Every((there, goal)), frame, self.limit) if entries <= _MOST_ENTRIES else Solution()

    def _sight(
        self,
        who: Sequence[str],
        name: str,
        values: Mapping[Term, Value],
        frame: ConditionFrame,
        refs: tuple[RoleRef, ...] | None = None,
    ) -> Sight | None:
        """The example, if its view has the attribute: someone who sees it now, or else someone who may come to."""
        every: dict[Term, Value] = {Attribute(one): values.get(Attribute(one)) for one in frame.kinds}
        event = event_of({**values, **every}, name)
        for one in who[:_MOST_TRIED] if refs is None else ():
            if (rule := self._shown(Sight("yes", one, event, None, self.state.principals[one]))) is not None:
                return Sight("yes", one, event, rule, self.state.principals[one])
        needed = {t.name: v for t, v in values.items() if isinstance(t, Subject) and not t.name.startswith("\0")}
        roles = () if refs is None else tuple(_settled(ref, values) for ref in refs)
        mine = self.state.principals[who[0]]
        tried = Sight("yes", who[0], event, None, {**mine, **needed}, roles)
        for changed in needed:
            kept = replace(tried, attributes={**tried.attributes, changed: mine.get(changed)})
            if self._shown(kept) is not None:
                tried = kept
        rule = self._shown(tried)
        there = {one: value for one, value in tried.attributes.items() if value is not None}
        return None if rule is None else replace(tried, rule=rule, attributes=there)

    def _shown(self, sight: Sight) -> Rule | None:
        """The rule by which the attribute is seen in an example, if it is."""
        assert sight.principal is not None
        assert sight.event is not None
        state = example_state(self.state, sight)
        found = view(state, sight.principal, sight.event, self.predicates, sight.event.origin)
        seen = found is not None and self.attribute in found.attributes
        return found.decided_by[self.attribute] if found is not None and seen else None


def _settled(ref: RoleRef, values: Mapping[Term, Value]) -> RoleRef:
    """A role with the arguments that an example needs; the others may be anything."""
    args = (arg if isinstance(arg, Constant) else _argument(arg, values) for arg in ref.args)
    return replace(ref, args=tuple(args))


def _argument(arg: object, values: Mapping[Term, Value]) -> Constant | Variable:
    needed = values.get(Subject(arg.name)) if isinstance(arg, Variable) else None
    return Variable("_") if needed is None else Constant(needed)


def example_state(state: State, sight: Sight) -> State:
    """The state in which an example holds: its principal has its attributes, and the roles it must come to hold."""
    assert sight.principal is not None
    changed = with_attributes(state, sight.principal, sight.attributes)
    if not sight.roles:
        return changed
    made = {f"\0{at}": _membership(f"\0{at}", ref, sight.principal) for at, ref in enumerate(sight.roles)}
    kept = {id: one for id, one in state.roles.memberships.items() if one.holder != sight.principal}
    held = {**state.roles.held, sight.principal: tuple(made)}
    return replace(changed, roles=replace(state.roles, memberships={**kept, **made}, held=held))


def _membership(id: str, ref: RoleRef, holder: str) -> Membership:
    args = tuple(arg.value if isinstance(arg, Constant) else "" for arg in ref.args)
    instance = ref.instance.value if isinstance(ref.instance, Constant) else ""
    return Membership(id, ref.service or "", ref.role, args, holder, 0, str(instance))


def with_attributes(state: State, who: str, attributes: Mapping[str, Value]) -> State:
    """The state in which a principal has these attributes and no others; a null one is absent."""
    there = {name: value for name, value in attributes.items() if value is not None}
    return replace(state, principals={**state.principals, who: there})


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an entry has its say, with the entries before and after it that have theirs there too."""

    type: str
    mine: Possible
    before: Sequence[Possible]
    after: Sequence[Possible]
    given: tuple[Goal, ...] = ()


def _lasting(place: _Place) -> Sequence[Possible]:
    """The entries after one that may stand for it: beside a grant, none of a chain, which will end."""
    if place.mine.rule.effect is Effect.FORBID:
        return place.after
    return [one for one in place.after if one.rule.source is Source.RULE]


class _Check:
    """The check of one policy."""

    def __init__(self, state: State, limit: float) -> None:
        self.state, self.limit = state, limit
        self.profiles = _profiles(without_memberships(state))
        self.left = MOST_QUESTIONS
        self.gone: set[str] = set()
        """Rules that are reported: they count as removed from then on."""
        self._meant: dict[str, list[Profile]] = {}
        for profile in self.profiles.members:
            for who in profile.whom:
                self._meant.setdefault(who, []).append(profile)
        self._lists: dict[tuple[Profile, Action, str], list[Possible]] = {}
        self._answers: dict[tuple[str, str], bool | None] = {}

    def run(self) -> PolicyProofs:
        """Look for rules that never count, from the first; then for those that nobody would miss, from the last."""
        own = (rule for rule in self.state.rules if rule.source is Source.RULE)  # nobody can remove a chain's
        rules = [rule for rule in own if rule.actions <= set(_ACTIONS) and rule.id != ANNOUNCES]
        findings: dict[str, RuleFinding] = {}
        undecided: dict[str, None] = {}
        for look, ordered in ((self._unreachable, rules), (self._redundant, list(reversed(rules)))):
            for rule in ordered:
                if rule.id in findings:
                    continue
                answer = look(rule)
                if isinstance(answer, RuleFinding):
                    findings[rule.id] = answer
                    self.gone.add(rule.id)
                elif answer is None:
                    undecided[rule.id] = None
        places = {rule.id: place for place, rule in enumerate(self.state.rules)}
        ordered_findings = sorted(findings.values(), key=lambda one: places[one.rule])
        return PolicyProofs(tuple(ordered_findings), tuple(id for id in undecided if id not in findings))

    def _unreachable(self, rule: Rule) -> RuleFinding | bool | None:
        """The finding that a rule never counts; or False if it may, None if that could not be told."""
        if rule.role is not None:
            return self._never_true(rule)
        if rule.who not in self._meant:
            return RuleFinding(rule.id, Fault.NOBODY)
        places = list(self._places(rule))
        if not places:
            return RuleFinding(rule.id, Fault.NO_TYPE)
        shadowed = self._none(self._decides(place, place.before) for place in places)
        if shadowed is not True:
            return shadowed
        if self._none(self._decides(place, ()) for place in places) is True:
            return RuleFinding(rule.id, Fault.NEVER_TRUE)
        earlier = tuple(dict.fromkeys(one.rule.id for place in places for one in place.before if not one.maybe))
        for id in earlier:
            alone = ((place, [one for one in place.before if one.rule.id == id]) for place in places)
            if self._none(self._decides(place, only) for place, only in alone) is True:
                return RuleFinding(rule.id, Fault.SHADOWED, (id,))
        return RuleFinding(rule.id, Fault.SHADOWED, earlier)

    def _never_true(self, rule: Rule) -> RuleFinding | bool | None:
        """The finding that a rule for a role never counts, whoever holds the role, looking at nothing else."""
        places: list[_Place] = []
        for action in (one for one in _ACTIONS if one in rule.actions):
            for name in self.state.types:
                named = named_type(self.state, rule, action, name)
                if named is not None:
                    _, _, given, _, _ = open_role(rule, named, shared=False)
                    mine = possible_entry(self.state, rule, named, given, action, name)
                    places.extend(_said([mine], mine, name, ()))
        if not places:
            return RuleFinding(rule.id, Fault.NO_TYPE)
        never = self._none(self._decides(place, ()) for place in places)
        return RuleFinding(rule.id, Fault.NEVER_TRUE) if never is True else never

    def _redundant(self, rule: Rule) -> RuleFinding | bool | None:
        """The finding that nothing would change without a rule; or False if something would, None if not known."""
        if rule.role is not None:
            return False
        places = list(self._places(rule))
        needless = self._none(self._matters(place) for place in places)
        if needless is not True:
            return needless
        others = dict.fromkeys(
            one.rule.id
            for place in places
            for one in _lasting(place)
            if one.outcome == place.mine.outcome and not one.maybe
        )
        return RuleFinding(rule.id, Fault.REDUNDANT, tuple(others) if rule.effect is Effect.GRANT else ())

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
            self._answers[key] = find(
                goal, ConditionFrame(self.state.types.attributes(name), self.state), self.limit
            ).exists
        return self._answers[key]

    def _decides(self, place: _Place, before: Sequence[Possible]) -> tuple[Goal, str] | None:
        """The entry counts, and none of those before it; None if they are too many."""
        if len(place.before) + len(place.after) > _MOST_ENTRIES:
            return None
        return Every((*place.given, *(one.misses for one in before), place.mine.counts)), place.type

    def _matters(self, place: _Place) -> tuple[Goal, str] | None:
        """The entry decides, and without it something else would come of the event; None if others are too many."""
        decides = self._decides(place, place.before)
        if decides is None:
            return None
        return Every((decides[0], otherwise(_lasting(place), place.mine.outcome, nothing=False))), place.type

    def _places(self, rule: Rule) -> Iterator[_Place]:
        """Where a rule has its say: for each profile, action and type, on the event and on each attribute."""
        for profile in self._meant.get(rule.who, ()):
            for action in _ACTIONS:
                for name in self.state.types if action in rule.actions else ():
                    listed = self._list(profile, action, name)
                    mine = next(
                        (one for one in listed if one.rule.id == rule.id and one.rule.source is rule.source), None
                    )
                    given = self._publishing(profile) if action is Action.PUBLISH else ()
                    if mine is not None:
                        yield from _said(listed, mine, name, given)

    def _publishing(self, profile: Profile) -> tuple[Goal, ...]:
        """Whoever publishes is the publisher."""
        members = self.profiles.members[profile]
        return (Want(tree.InSet(tree.Meta("publisher"), tuple(members))),) if len(members) <= MOST_NAMED else ()

    def _list(self, profile: Profile, action: Action, name: str) -> list[Possible]:
        key = profile, action, name
        if key not in self._lists:
            self._lists[key] = possible_entries(self.profiles, profile, action, name, "open")
        return [o for o in self._lists[key] if o.rule.id not in self.gone or o.rule.source is not Source.RULE]


def _said(listed: Sequence[Possible], mine: Possible, name: str, given: tuple[Goal, ...]) -> Iterator[_Place]:
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


Holding: TypeAlias = Literal["held", "open", "shared"]
"""Which roles count: those that are held, any with any arguments, or any with one membership of each role."""

_Listed: TypeAlias = tuple[Rule, str, Mapping[str, Operand], tuple[RoleRef, ...], bool]
"""An entry, the type it names, its arguments, the roles it needs, and whether it may be gone for want of them."""


@dataclass(frozen=True, slots=True)
class Possible:
    """An entry on a type, for one profile: when it counts, what it covers, and what comes of an event if it counts."""

    rule: Rule
    condition: Condition
    covers: frozenset[str]
    outcome: object
    refs: tuple[RoleRef, ...] = ()
    """The roles without which it does not count; their arguments are open."""
    maybe: bool = False
    """May it be gone, because nobody need hold those roles, or have an identity statement in force?"""

    @property
    def counts(self) -> Goal:
        """A grant counts where it is true, a forbid unless it is false."""
        grant = self.rule.effect is Effect.GRANT
        return Want(self.condition, truth=grant, met=grant)

    @property
    def misses(self) -> Goal:
        """It does not count."""
        if self.maybe:
            return Every()
        grant = self.rule.effect is Effect.GRANT
        return Want(self.condition, truth=grant, met=not grant)


def possible_entries(
    profiles: Profiles, profile: Profile, action: Action, name: str, holding: Holding
) -> list[Possible]:
    """The entries of a profile on events of a type, in order, with the attributes of subjects open.

    Unless they are those that are `held`, roles may be held or not, with arguments that are open too.
    """
    state = profiles.state
    mine = profiles.entries(profile, action, name)
    may_pass = action is Action.PUBLISH
    listed: list[_Listed] = [(rule, named, given_to(rule), (), may_pass and rule.attested) for rule, named in mine]
    if holding != "held":
        listed = _with_roles(state, listed, action, name, shared=holding == "shared")
    found = (possible_entry(state, rule, named, given, action, name) for rule, named, given, _, _ in listed)
    pairs = zip(found, listed, strict=True)
    return [replace(one, refs=refs, maybe=maybe) for one, (_, _, _, refs, maybe) in pairs]


def _with_roles(state: State, plain: list[_Listed], action: Action, name: str, *, shared: bool) -> list[_Listed]:
    """The entries of someone who holds no role, and between them those that roles may bring."""
    by_role = [(place, rule) for place, rule in enumerate(state.rules) if rule.role is not None]
    policy = state.roles.policy.entries if action is Action.SUBSCRIBE else ()
    if not by_role and not any(one.credentials for one in policy):
        return plain
    places = {rule.id: place for place, rule in enumerate(state.rules)}
    ranked: list[tuple[tuple[bool, int], _Listed]] = []
    events: list[_Listed] = []
    chains: list[_Listed] = []
    for listed in plain:
        match listed[0].source:
            case Source.RULE:
                ranked.append(((False, places[listed[0].id]), listed))
            case Source.CHAIN:
                chains.append(listed)
            case Source.POLICY:
                pass  # all of them follow, with their credentials open
    for position, rule in by_role:
        named = named_type(state, rule, action, name) if action in rule.actions else None
        if named is not None:
            ranked.append(((False, position), open_role(rule, named, shared=shared)))
    line = state.types.lineage(name)
    for number, entry in enumerate(policy):
        if entry.event.type in line:
            where, refs = assumed(state, number, entry, shared=shared)
            as_rule = replace(rule_of(state, entry, number, EVERYONE), where=where)
            events.append((as_rule, entry.event.type, {}, refs, bool(refs)))
    return [*(one for _, one in sorted(ranked, key=lambda pair: pair[0])), *events, *chains]


def open_role(rule: Rule, named: str, *, shared: bool) -> _Listed:
    """An entry for a role, whatever the arguments."""
    role = rule.role
    assert role is not None
    whose = f"{role.service}.{role.role}.0" if shared else f"rule.{rule.id}"
    given: dict[str, Operand] = {}
    args: list[Variable | Constant] = []
    for position, term in enumerate(role.args):
        if isinstance(term, Constant):
            args.append(term)
            continue
        earlier = given.get(term.name) if isinstance(term, Variable) else None
        open_ = earlier if isinstance(earlier, Subject) else Subject(open_name(whose, position))
        args.append(Variable(open_.name))
        if isinstance(term, Variable) and term.name != "_":
            given[term.name] = open_
    return rule, named, given, (replace(role, args=tuple(args)),), True


def possible_entry(
    state: State, rule: Rule, named: str, given: Mapping[str, Operand], action: Action, name: str
) -> Possible:
    """An entry on events of a type, with these arguments of a role in its condition."""
    kinds = state.types.attributes(name)
    outcome: object = rule.effect is Effect.GRANT
    if action is Action.PUBLISH:
        condition = bind(with_arguments(rule.where, given), None, kinds)
        if rule.effect is Effect.GRANT:
            forced = _forced(rule, kinds)
            condition = tree.FALSE if None in forced.values() else _cut(condition, covered(rule, kinds), forced)
            outcome = covered(rule, kinds), repr(sorted(forced.items()))
        return Possible(rule, condition, frozenset(), outcome)
    entry = subscribe_entry(state, rule, named, name, None, given)
    return Possible(rule, entry.bound, entry.covers, outcome)


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

    return tree.rewrite_operands(condition, put)


def granted(entries: Sequence[Possible]) -> Goal:
    """The first entry that counts is a grant (D5)."""
    goal: Goal = Some()
    for one in reversed(entries):
        grant = one.rule.effect is Effect.GRANT
        goal = Some((one.counts, goal)) if grant else Every((one.misses, goal))
    return goal


def otherwise(entries: Sequence[Possible], outcome: object, nothing: object) -> Goal:
    """The first entry that counts, or `nothing` if none does, leads to another outcome."""
    goal: Goal = Every() if nothing != outcome else Some()
    for one in reversed(entries):
        here = (one.counts,) if one.outcome != outcome else ()
        goal = Some((*here, Every((one.misses, goal))))
    return goal
