"""Event policy as conditions says what its entries decide, and no more where it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.analysis.entry_conditions import MOST_CHOICES, condition_of, is_opaque, is_shown, policy_rules
from headgate.analysis.profiles import Profiles
from headgate.decide.event_policy import credentials
from headgate.lang import render_condition
from headgate.lang.rolefile import parse_event_policy
from headgate.model.changes import AddRow, Batch, DeclareRelation, GrantRole, SetEventPolicy
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.requests.transition import next_state
from strategies.small import SEEN, WORLD


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


def test_profiles_stay_few() -> None:
    policy = "Seen(p) <= Login.On(u, h) : h = 'ely'"
    many = [on(f"m{name}", name, "ely", to=name) for name in ("anna", "bob", "cam")]
    state = made(policy, *many, GrantRole("b", "Login", "Busy", ("x",), "owner"))
    together = {frozenset(names) for names in Profiles(state).members.values()}
    assert frozenset({"anna", "bob", "cam"}) in together  # who they are does not matter, only where
    assert Profiles(state).of("police") == replace(Profiles(state).of("owner"), owns=frozenset({"police.Chase"}))
