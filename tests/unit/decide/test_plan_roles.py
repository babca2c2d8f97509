"""A plan makes one policy of another with its rolefiles, event policy, representatives and peers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.analysis.plan import Plan, exact_syntax, plan, same_policy
from headgate.decide.apply import apply
from headgate.lang.rolefile import parse_event_policy, parse_representative, parse_role, parse_rolefile
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    EnterRole,
    GrantRole,
    RemovePeer,
    SetConnect,
    SetEventPolicy,
    SetPeer,
    SetRepresentative,
    SetRolefile,
)
from headgate.model.expressions import Constant, InSet, Variable
from headgate.model.rights import Action, Rule, Source
from headgate.model.roles import Peer
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.roles.requests.transition import next_state, transition
from strategies.memory import play
from strategies.running import examples
from strategies.small import NOON, SEEN, WORLD
from strategies.worlds import Story, allowed, worlds

ROLEFILES = (
    "Chair <- Login.On('jmb', h)\nMember(u) <- Login.On(u, h)* <|* Chair",
    "Member(u) <- Login.On(u, h)",
    "Guest(u) <- Login.On(u, h)* : u != 'eve'",
)


def step(state: State, batch: Batch) -> tuple[Batch, State]:
    made = transition(state, batch)
    return made.batch, made.after


def planned(now: State, wanted: State) -> Plan:
    return plan(now, wanted, step)


def anew(state: State) -> State:
    """The policy of a state as a directory would declare it, out of nothing."""
    rules = [replace(rule, author="") for rule in state.rules if rule.source is Source.RULE]
    changes: list[Change] = [DeclarePrincipal(name, values) for name, values in state.principals.items()]
    changes += [DeclareGroup(name, name in state.open_names) for name in state.groups]
    changes += [AddMember(group, member) for group, members in state.groups.items() for member in members]
    changes += [DeclareRelation(name, name in state.open_names) for name in state.relations]
    changes += [AddRow(name, row) for name, rows in state.relations.items() for row in rows]
    changes += [
        DeclareType(EventType(t.name, t.owner, t.attributes, t.parent, t.key, times=t.times, derived=t.derived))
        for t in state.types.values()
    ]
    changes += [SetConnect(state.connect_open), *map(AddRule, rules)]
    changes += [SetRepresentative(one) for one in state.roles.representatives.values()]
    changes += [SetPeer(replace(one, heard=None, number=0)) for one in state.roles.peers.values()]
    changes += [SetRolefile(name, one) for name, one in state.roles.rolefiles.items()]
    bare = next_state(State(), allowed(State(), Batch(ADMINISTRATOR, tuple(changes))))
    policy = (SetEventPolicy(state.roles.policy),) if state.roles.policy.entries else ()
    return next_state(bare, allowed(bare, Batch(ADMINISTRATOR, policy)))


@st.composite
def with_rolefiles(draw: st.DrawFn, state: State) -> State:
    """The state with other rolefiles, perhaps none, and perhaps without its peer."""
    changes: list[Change] = []
    for service in ("Conf", "Club"):
        text = draw(st.sampled_from((None, *ROLEFILES)))
        if text is not None or service in state.roles.rolefiles:
            changes.append(SetRolefile(service, None if text is None else parse_rolefile(text)))
    changes += [RemovePeer(name) for name in state.roles.peers if draw(st.booleans())]
    return next_state(state, allowed(state, Batch(ADMINISTRATOR, tuple(changes))))


@examples(15, soak=30)
@given(worlds(steps=5, roles=True, predicates=False), st.data())
def test_a_plan_leads_from_any_policy_to_any_other(story: Story, data: st.DataObject) -> None:
    ledger = play(story).ledger
    # From earlier to later, because types only grow.
    now = data.draw(with_rolefiles(ledger.states[data.draw(st.integers(0, ledger.version))]))
    wanted = anew(data.draw(with_rolefiles(ledger.now)))
    found = planned(now, wanted)
    assert same_policy(found.after, wanted)
    assert planned(found.after, wanted).empty
    assert same_policy(planned(State(), wanted).after, wanted)
    assert same_policy(planned(found.after, State()).after, State())


def made(*changes: Change) -> State:
    return next_state(State(), Batch(ADMINISTRATOR, (*WORLD, *changes)))


def set_(service: str, text: str) -> SetRolefile:
    return SetRolefile(service, parse_rolefile(text))


def test_only_what_differs_is_set_and_where_it_is_written_does_not_count() -> None:
    now = made(set_("Conf", ROLEFILES[0]), set_("Club", ROLEFILES[1]))
    assert planned(now, made(set_("Club", "\n\n" + ROLEFILES[1]), set_("Conf", ROLEFILES[0]))).empty
    (only,) = planned(now, made(set_("Conf", ROLEFILES[0]), set_("Club", ROLEFILES[2]))).batch.changes
    assert isinstance(only, SetRolefile)
    assert only.service == "Club"


def test_the_memberships_that_end_are_told_with_the_reason() -> None:
    now = made(set_("Club", ROLEFILES[1]), GrantRole("a1", "Login", "On", ("anna", "ely"), "anna"))
    now = next_state(now, Batch(ADMINISTRATOR, (EnterRole("m", "Club", "Member", None, "anna", None, NOON),)))
    assert "m" in now.roles.memberships
    found = planned(now, made(set_("Club", ROLEFILES[2])))
    assert [one.id for one in found.ended] == ["m"]
    assert "rolefile" in found.ended[0].reason
    assert "m" not in found.after.roles.memberships
    assert "a1" in found.after.roles.memberships  # what a service gave for its own reasons is no policy
    assert planned(now, made(set_("Club", ROLEFILES[1]))).ended == ()


def test_event_policy_goes_before_what_it_names_and_comes_after() -> None:
    relation = DeclareRelation("Badge"), AddRow("Badge", ("b1", "rmn"))
    seen = SetRepresentative(parse_representative(SEEN, {"user": "Badge(plate)"}))
    policy = SetEventPolicy(parse_event_policy("Seen(u, s) <= : u in staff"))
    first = made(*relation, seen, policy)
    for other in (made(), made(policy), made(DeclareGroup("Badge"), policy), made(*relation, seen)):
        assert same_policy(planned(first, other).after, other)
        assert same_policy(planned(other, first).after, first)


def test_a_service_that_moves_to_another_domain() -> None:
    here = made(set_("Login", "On(u) <-"))
    there = made(SetPeer(Peer("Login", "key", "Login", 30)))
    assert same_policy(planned(here, there).after, there)
    assert same_policy(planned(there, here).after, here)
    heard = replace(there, roles=replace(there.roles, peers={"Login": Peer("Login", "key", "Login", 30, "", NOON, 7)}))
    assert planned(heard, there).empty
    longer = made(SetPeer(Peer("Login", "key", "Login", 60)))
    assert planned(heard, longer).after.roles.peers["Login"] == Peer("Login", "key", "Login", 60, "", NOON, 7)


def test_a_rolefile_comes_after_those_whose_roles_it_asks_for() -> None:
    asks = "Member(u) <- Login.On(u, h)"
    now = made(set_("Login", "Off(u) <- Conf.Member(u)"), set_("Conf", "Member('a') <-"))
    wanted = made(set_("Login", "On(u, h) <- : u = 'a' and h = 'b'"), set_("Conf", asks))
    assert same_policy(planned(now, wanted).after, wanted)


def test_rules_for_roles_are_told_apart_by_their_roles() -> None:
    def rule(role: str) -> AddRule:
        return AddRule(Rule("r", "", frozenset({Action.SUBSCRIBE}), SEEN, role=parse_role(role)))

    now = made(rule("Login.On(1)"))
    assert planned(now, made(rule("Login.On(1)"))).empty
    for other in ("Login.On(true)", "Login.On(x)", "Login.On", "Other.On(1)"):
        assert not planned(now, made(rule(other))).empty


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (Constant(1), Constant(True), False),
        (Constant(frozenset("rw")), Constant(frozenset("wr")), True),
        (InSet(Variable("x"), (1,)), InSet(Variable("x"), (True,)), False),
        (InSet(Variable("x"), (1,)), InSet(Variable("x"), (1.0,)), False),
    ],
)
def test_syntax_is_told_apart_exactly(a: object, b: object, same: bool) -> None:
    assert (exact_syntax(a) == exact_syntax(b)) == same


def test_what_headgate_makes_for_itself_is_no_part_of_a_directory() -> None:
    told = EventType("headgate.roles.Notice", ADMINISTRATOR, {"number": Kind.INT})
    announces = AddRule(
        Rule("headgate.roles announces", ADMINISTRATOR, frozenset({Action.PUBLISH}), "headgate.roles.*")
    )
    wanted = apply(State(), Batch(ADMINISTRATOR, (DeclarePrincipal("p"),)))
    now = apply(wanted, Batch(ADMINISTRATOR, (DeclareType(told), announces)))
    assert plan(now, wanted).batch.changes == ()
    spoken = apply(wanted, Batch(ADMINISTRATOR, (DeclareType(EventType("headgate.other", "p", {"x": Kind.INT})),)))
    assert [type(one).__name__ for one in plan(now, spoken).batch.changes] == ["DeclareType"]
