"""Event policy as conditions says what its entries decide, and no more where it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from headgate.analysis.entry_conditions import MOST_CHOICES, condition_of, is_opaque, is_shown, policy_rules
from headgate.analysis.profiles import Profiles
from headgate.decide.event_policy import credentials, entry_truth
from headgate.decide.normal import bind
from headgate.decide.truth import World, truth
from headgate.decide.views import condition_for, covered, view
from headgate.lang import render_condition
from headgate.lang.rolefile import parse_event_policy
from headgate.model.changes import AddRow, Batch, DeclareRelation, GrantRole, SetEventPolicy
from headgate.model.events import Event
from headgate.model.rights import Action, Effect
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.requests.transition import next_state
from strategies.memory import play
from strategies.running import examples
from strategies.small import SEEN, WORLD
from strategies.worlds import Story, worlds


def made(policy: str, *memberships: GrantRole) -> State:
    boss = (DeclareRelation("Boss"), AddRow("Boss", ("ann", "x")))
    state = next_state(State(), Batch(ADMINISTRATOR, (*WORLD, *boss, *memberships)))
    return next_state(state, Batch(ADMINISTRATOR, (SetEventPolicy(parse_event_policy(policy)),)))


def on(id: str, *args: str, to: str = "anna") -> GrantRole:
    return GrantRole(id, "Login", "On", args, to)


def said(policy: str, *memberships: GrantRole) -> str:
    state = made(policy, *memberships)
    (rule, _), *_ = policy_rules(state, "anna", credentials(state, "anna", None), SEEN)
    return render_condition(rule.where)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("Seen(p, s, l) <=", "true"),
        ("Seen('x', s, l) <=", "plate = 'x'"),
        ("Seen(p, s, s) <=", "lane = speed"),
        ("Seen(p, s) <= : s > 3 and p in staff", "speed > 3 and plate in group staff"),
        ("Seen(p, s) <= Login.On(p, h)", "plate = 'x'"),
        ("Seen(p, s) <= Login.On(u, h) : u != p or h = 'ely'", "'x' != plate or true"),
        ("Seen(p, s) <= Login.On(u, h) : Boss(u, p)", "Boss('x', plate)"),
        ("Seen(p, s) <= Login.On(u, h) : u = 'y'", "false"),
        ("Seen(p, s) <= Login.On('y', h)", "false"),
        ("Seen(p, s) <= Login.Off(p)", "false"),
    ],
)
def test_what_an_entry_asks(policy: str, words: str) -> None:
    assert said(policy, on("m", "x", "ely")) == words


def test_any_choice_of_credentials_will_do() -> None:
    assert said("Seen(p) <= Login.On(p)", on("m", "x"), on("n", "y")) == "plate = 'x' or plate = 'y'"
    both = said("Seen(p, s) <= Login.On(p) & Login.On(q) : q != p", on("m", "x"), on("n", "y"))
    assert both.count(" or ") == 3


def test_what_conditions_cannot_say_is_opaque_and_told_apart() -> None:
    policy = "Seen(p) <= Login.On(u) : Boss(p) = u"
    first = condition_of((state := made(policy, on("m", "x"))), 0, state.roles.policy.entries[0], _held(state))
    assert is_opaque(first)
    again = made(policy, on("m", "x"))
    assert condition_of(again, 0, again.roles.policy.entries[0], _held(again)) == first
    fact = next_state(state, Batch(ADMINISTRATOR, (AddRow("Boss", ("bob", "y")),)))
    other = made(policy, on("m", "z"))
    for one in (fact, other):
        assert condition_of(one, 0, one.roles.policy.entries[0], _held(one)) != first


def _held(state: State):
    return credentials(state, "anna", None)


def test_too_many_choices_are_not_looked_at() -> None:
    many = [on(f"m{n}", f"x{n}") for n in range(MOST_CHOICES + 1)]
    state = made("Seen(p) <= Login.On(p)", *many)
    entry = state.roles.policy.entries[0]
    assert is_opaque(condition_of(state, 0, entry, _held(state)))
    assert not is_opaque(condition_of(state, 0, entry, _held(state)[:-1]))
    assert is_shown(entry, _held(state))
    assert not is_shown(entry, ())


@examples(40)
@given(worlds(steps=5, roles=True))
def test_a_condition_is_true_where_its_entry_is(story: Story) -> None:
    played = play(story)
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


@examples(50)
@given(worlds(steps=5, roles=True))
def test_the_entries_of_a_profile_give_the_views_of_its_principals(story: Story) -> None:
    played = play(story)
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


def test_profiles_stay_few() -> None:
    policy = "Seen(p) <= Login.On(u, h) : h = 'ely'"
    many = [on(f"m{name}", name, "ely", to=name) for name in ("anna", "bob", "cam")]
    state = made(policy, *many, GrantRole("b", "Login", "Busy", ("x",), "owner"))
    together = {frozenset(names) for names in Profiles(state).members.values()}
    assert frozenset({"anna", "bob", "cam"}) in together  # who they are does not matter, only where
    assert Profiles(state).of("police") == replace(Profiles(state).of("owner"), owns=frozenset({"police.Chase"}))
