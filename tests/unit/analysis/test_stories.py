"""Whatever is said of a policy is so on every event: random stories, each of which is put to all that can be said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from headgate.analysis.advice import Concern, advise
from headgate.analysis.effects import Gain, Turn, effects
from headgate.analysis.entry_conditions import condition_of, is_opaque
from headgate.analysis.explain import Explanation, Question, explain
from headgate.analysis.profiles import Profiles
from headgate.analysis.restrictions import Reason, restrict, wanted
from headgate.decide.deliver import Books, admits, decide
from headgate.decide.event_policy import credentials, entry_truth
from headgate.decide.normal import bind
from headgate.decide.publish import admit
from headgate.decide.truth import World, truth
from headgate.decide.views import condition_for, covered, entries, governs, holds, may_connect, view
from headgate.lang import render_condition
from headgate.model.errors import HeadgateError, NotFound
from headgate.model.events import Draft, Event
from headgate.model.expressions import TRUE, subjects
from headgate.model.rights import Action, Effect, Rule
from headgate.model.rolefiles import EventEntry, EventPolicy, EventTemplate
from headgate.model.state import State
from headgate.solver import check_policy_rule
from strategies.memory import MemoryLedger, Played, exact, play
from strategies.running import examples
from strategies.worlds import Story, worlds

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEES = frozenset({Action.SUBSCRIBE})


@examples(40, soak=80)
@given(worlds(steps=6) | worlds(steps=6, roles=True), st.data())
def test_what_is_said_of_a_policy_is_so(story: Story, data: st.DataObject) -> None:
    played = play(story)
    earlier = data.draw(st.sampled_from(played.ledger.states))
    what_is_not_said_has_not_changed_and_what_is_said_is_so(earlier, played)
    a_rule_that_is_said_to_be_idle_could_as_well_not_be_there(played)
    principals_of_one_profile_have_the_same_entries(played)
    a_condition_is_true_where_its_entry_is(played)
    the_entries_of_a_profile_give_the_views_of_its_principals(played)
    explanations_agree_with_the_decision(played)
    subscriptions_are_explained_as_decided(played)
    a_restriction_never_promises_less_than_is_delivered(played)
    what_nobody_wants_goes_to_nobody(played)


# -- effects and advice -------------------------------------------------------------------------------------------


def drafts(played: Played) -> list[Draft]:
    """All that was sent."""
    return [*(draft for draft, _ in played.accepted), *(draft for draft, *_ in played.refused)]


def sights(state: State, who: str, event: Event, ledger: MemoryLedger) -> tuple[bool, frozenset[str]]:
    """Is there a view, and what does it show?"""
    if who not in state.principals or event.type not in state.types:
        return False, frozenset()
    found = view(state, who, event, ledger.predicates, event.origin)
    return found is not None, frozenset() if found is None else found.attributes & event.values.keys()


def answer(state: State, draft: Draft, ledger: MemoryLedger) -> object:
    if draft.publisher not in state.principals:
        return None
    state = replace(state, private=frozenset())  # what a requirement may name is no right; the changes tell of it
    try:
        event = admit(
            state,
            draft,
            now=NOON,
            predicates=ledger.predicates,
            rate=ord(draft.id[-1]) % 4 or None,
            policy_rule=check_policy_rule,
        )
    except HeadgateError:
        return None
    return exact(event.values)


def what_is_not_said_has_not_changed_and_what_is_said_is_so(now: State, played: Played) -> None:
    ledger = played.ledger
    then = ledger.now
    said: dict[tuple[str, Action, str | None], list[Gain]] = {}
    for affected in effects(now, then, render_condition):
        for gain in affected.gains:
            for who in affected.who:
                said.setdefault((who, gain.action, gain.type), []).append(gain)
    for who in dict.fromkeys([*now.principals, *then.principals]):
        for event in played.log.events:
            before, after = sights(now, who, event, ledger), sights(then, who, event, ledger)
            gains = said.get((who, Action.SUBSCRIBE, event.type), [])
            if not gains:
                assert before == after
            lost = {a for g in gains if g.turn is Turn.LOSES for a in g.attributes}
            gained = {a for g in gains if g.turn is Turn.GAINS for a in g.attributes}
            other = {a for g in gains if g.turn is Turn.OTHERWISE for a in g.attributes}
            assert not after[1] & lost
            assert not before[1] & gained
            assert before[1] ^ after[1] <= lost | gained | other
        for name in dict.fromkeys([*now.types, *then.types]):
            for action in (Action.GOVERN, Action.AUDIT):
                turns = [g.turn for g in said.get((who, action, name), [])]
                had, has = (_held(state, who, action, name) for state in (now, then))
                assert turns == ([] if had == has else [Turn.GAINS if has else Turn.LOSES])
        turns = [g.turn for g in said.get((who, Action.CONNECT, None), [])]
        had, has = may_connect(now, who), may_connect(then, who)
        assert turns == ([] if had == has else [Turn.GAINS if has else Turn.LOSES])
    for draft in drafts(played):
        if (
            draft.type in now.types
            and draft.type in then.types
            and now.types.attributes(draft.type) == then.types.attributes(draft.type)
        ):
            gains = said.get((draft.publisher, Action.PUBLISH, draft.type), [])
            before, after = answer(now, draft, ledger), answer(then, draft, ledger)
            if not gains:
                assert before == after
            for gain in gains:
                assert gain.turn is not Turn.LOSES or after is None
                assert gain.turn is not Turn.GAINS or before is None


def _held(state: State, who: str, action: Action, name: str) -> bool:
    if who not in state.principals or name not in state.types:
        return False
    return governs(state, who, name) if action is Action.GOVERN else holds(state, who, action, name)


def a_rule_that_is_said_to_be_idle_could_as_well_not_be_there(played: Played) -> None:
    state, ledger = played.ledger.now, played.ledger
    idle = [one for one in advise(state) if one.concern in (Concern.IDLE_FORBID, Concern.IDLE_GRANT)]
    for rule in idle:
        without = replace(state, rules=tuple(r for r in state.rules if r.id not in rule.names))
        for who in state.principals:
            for event in played.log.events:
                assert sights(state, who, event, ledger) == sights(without, who, event, ledger)
        for draft in drafts(played):
            assert answer(state, draft, ledger) == answer(without, draft, ledger)


# -- profiles and the conditions of event policy ------------------------------------------------------------------


def principals_of_one_profile_have_the_same_entries(played: Played) -> None:
    state = played.ledger.now
    profiles = Profiles(state)
    assert sorted(name for names in profiles.members.values() for name in names) == sorted(state.principals)
    for profile, names in profiles.members.items():
        for action in (Action.SUBSCRIBE, Action.PUBLISH, Action.GOVERN):
            mine = [_as_it_counts(rule) for rule in profiles.rules(profile, action)]
            for name in names:
                assert set(mine) == {_as_it_counts(rule) for rule in entries(state, name, action)}
                assert [id for id, _ in mine] == sorted((id for id, _ in mine), key=_places(state))


def _as_it_counts(rule: Rule) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    """A rule, with the arguments of a role that its condition looks at."""
    asked = subjects(rule.where)
    return rule.id, tuple(sorted((n, type(v).__name__, repr(v)) for n, v in rule.given.items() if n in asked))


def _places(state: State):
    places = {rule.id: place for place, rule in enumerate(state.rules)}
    return places.__getitem__


def a_condition_is_true_where_its_entry_is(played: Played) -> None:
    for event in played.log.events:
        state = played.ledger.state(event.version)
        line = state.types.lineage(event.type)
        for principal in state.principals:
            shown = credentials(state, principal, None)
            for number, entry in enumerate(state.roles.policy.entries[:20]):
                if entry.event.type not in line:
                    continue
                condition = condition_of(state, number, entry, shown)
                if not is_opaque(condition):
                    kinds = state.types.attributes(entry.event.type)
                    world = World(state, {}, {}, attributes=kinds)
                    assert truth(bind(condition, {}, kinds), event, world) is entry_truth(state, entry, event, shown)


def the_entries_of_a_profile_give_the_views_of_its_principals(played: Played) -> None:
    predicates = played.ledger.predicates
    for event in played.log.events[:8]:
        state = played.ledger.state(event.version)
        profiles = Profiles(state)
        for profile, names in profiles.members.items():
            listed = profiles.entries(profile, Action.SUBSCRIBE, event.type)
            if any(is_opaque(rule.where) for rule, _ in listed):
                continue
            for name in names:
                found = view(state, name, event, predicates)
                seen = None if found is None else found.attributes
                assert seen == _seen(state, profiles, profile, event, predicates), name


def _seen(state: State, profiles: Profiles, profile, event: Event, predicates) -> frozenset[str] | None:
    """The attributes that the first entries that match show."""
    subject = profiles.subject(profile)
    granted, decided, shown = False, set[str](), set[str]()
    for rule, named in profiles.entries(profile, Action.SUBSCRIBE, event.type):
        kinds = state.types.attributes(named)
        world = World(state, {**subject, **rule.given}, predicates, attributes=kinds)
        found = truth(condition_for(rule, kinds), event, world)
        grant = rule.effect is Effect.GRANT
        if found is True if grant else found is not False:
            whole = not grant and rule.attributes is None
            covers = frozenset(state.types.attributes(event.type)) if whole else covered(rule, kinds)
            if whole and not granted:
                return None
            shown |= covers - decided if grant else set()
            decided |= covers
            granted = granted or grant
    return frozenset(shown) if granted else None


# -- explanations -------------------------------------------------------------------------------------------------


def explanations_agree_with_the_decision(played: Played) -> None:
    ledger = played.ledger
    predicates = ledger.predicates
    books = Books(ledger.now, ledger.state, lambda _: predicates)
    for event in played.log.events[:6]:
        for principal in list(ledger.now.principals)[:4]:
            question = Question(ledger.now.administrator, principal, event.id)
            answer = explain(question, event, books)
            state = ledger.state(event.version)
            seen = view(state, principal, event, predicates)
            assert answer.visible == (seen is not None)
            shown = frozenset(s.name for s in answer.attributes if s.visible)
            assert shown == (frozenset() if seen is None else seen.attributes)
            _check_needed(answer, state, principal, event, predicates)
            held = [(s.origin, s.counted) for s in ledger.every_subscription() if s.principal == principal]
            from_there = (view(state, principal, event, predicates, *one) for one in held)
            ever = shown.union(*(one.attributes for one in from_there if one is not None))
            assert (not answer.unmet) == admits(event, principal, state)
            _check_own(replace(question, asker=principal), event, books, ever)


def _check_needed(
    answer: Explanation, state: State, principal: str, event: Event, predicates: Mapping[str, object]
) -> None:
    """What is said to be needed is enough."""
    for need in answer.needed:
        grant = Rule("new", principal, SEES, need.type, TRUE, need.attributes, author=state.administrator)
        at = next((n for n, r in enumerate(state.rules) if r.id == need.before), len(state.rules))
        ways = [replace(state, rules=(*state.rules[:at], grant, *state.rules[at:]))]
        for id in need.failed:
            true = (replace(r, where=TRUE, forced={}) if r.id == id else r for r in state.rules)
            policy = EventPolicy(
                tuple(
                    EventEntry(EventTemplate(one.event.type)) if id == f"events.{number}" else one
                    for number, one in enumerate(state.roles.policy.entries, start=1)
                )
            )
            ways.append(replace(state, rules=tuple(true), roles=replace(state.roles, policy=policy)))
        for changed in ways:
            seen = view(changed, principal, event, predicates)  # type: ignore[arg-type]
            assert seen is not None
            assert seen.attributes >= set(need.attributes)


def _check_own(question: Question, event: Event, books: Books, shown: frozenset[str]) -> None:
    """A principal is told no more of an event than its view, and no condition that is not disclosed."""
    answers = [_answer(question, one, books) for one in (event, None)]
    if isinstance(answers[0], str):
        assert answers[0] == answers[1]
        return
    answer = answers[0]
    if answer.full:
        return
    assert admits(event, question.principal, books.states(event.version))
    assert frozenset(s.name for s in answer.attributes if s.visible) <= shown
    disclosed = {r.id for state in (books.now, books.states(event.version)) for r in state.rules if r.disclose}
    assert all(t.condition is None or t.rule in disclosed for v in answer.views for t in v.tried)


def _answer(question: Question, event: Event | None, books: Books) -> Explanation | str:
    try:
        return explain(question, event, books)
    except NotFound as refused:
        return str(refused)


def subscriptions_are_explained_as_decided(played: Played) -> None:
    ledger = played.ledger
    predicates = ledger.predicates
    books = Books(ledger.now, ledger.state, lambda _: predicates)
    every = ledger.every_subscription()
    for event in played.log.events[:6]:
        for subscription in every[:6]:
            question = Question(
                ledger.now.administrator, subscription.principal, event.id, subscription=subscription.id
            )
            answer = explain(question, event, books, [subscription])
            delivery = decide(event, subscription, ledger.state, predicates)
            assert answer.subscription is not None
            assert answer.subscription.delivered == (delivery is not None)
            if delivery is not None:
                assert {s.name: s.value for s in answer.attributes} == delivery.view


# -- restrictions -------------------------------------------------------------------------------------------------


def a_restriction_never_promises_less_than_is_delivered(played: Played) -> None:
    ledger = played.ledger
    predicates = ledger.predicates
    known = Books(ledger.now, ledger.state, lambda _: predicates)
    for event in played.log.events[:8]:
        state = ledger.state(event.version)
        for wish in [s for s in state.subscriptions.values() if state.types.is_a(event.type, s.type)][:6]:
            askers = {ledger.now.administrator, wish.principal} & {ledger.now.administrator, *ledger.now.principals}
            for asker in sorted(askers):  # a principal that was removed since may no longer ask
                answer = restrict(asker, wish.id, wish, event.version, known)
                mine = next(one for one in answer.types if one.name == event.type)
                seen = view(state, wish.principal, event, predicates, wish.origin, wish.counted)
                if seen is not None:
                    assert set(mine.attributes) >= seen.attributes
                    assert mine.reason not in (
                        Reason.NO_GRANT,
                        Reason.CREDENTIALS,
                        Reason.FORBIDDEN,
                        Reason.NEVER_TRUE,
                    )
                if decide(event, wish, ledger.state, predicates) is not None:
                    assert mine.reason is None
                    assert answer.satisfiable


def what_nobody_wants_goes_to_nobody(played: Played) -> None:
    for event in played.log.events:
        state = played.ledger.state(event.version)
        if not wanted(state, event.type):
            for subscription in state.subscriptions.values():
                assert decide(event, subscription, played.ledger.state, played.ledger.predicates) is None
