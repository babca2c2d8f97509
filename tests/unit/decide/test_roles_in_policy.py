"""Rules for roles and event policy in explanations, restrictions, effects, advice and proofs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.analysis.advice import Advice, Concern, advise
from headgate.analysis.effects import Affected, Turn, effects
from headgate.analysis.explain import Explanation, Question, Tried, explain
from headgate.analysis.proofs import Fault, RuleFinding, can_see, check_policy, example_state
from headgate.analysis.restrictions import Reason, Restriction, restrict, wanted
from headgate.decide.deliver import Books
from headgate.decide.views import view
from headgate.lang import parse_condition, render_condition
from headgate.lang.render import render_entry, render_role
from headgate.lang.rolefile import parse_event_policy, parse_role, parse_rolefile
from headgate.model.changes import (
    AddRow,
    AddRule,
    Batch,
    Change,
    DeclareRelation,
    EndCredential,
    EnterRole,
    GrantRole,
    SetEventPolicy,
    SetRolefile,
    Subscribe,
)
from headgate.model.rights import Action, Effect, Rule, Source, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.requests.transition import next_state
from strategies.memory import play
from strategies.running import examples
from strategies.small import CHASE, NOON, SEEN, WORLD, grant, seen
from strategies.worlds import Story, worlds

MET = "Tracker(u, p) <- Login.On(u)* : p = 'x'"


def to_role(id: str, role: str, where: str = "true", **more: object) -> AddRule:
    may = {"actions": frozenset({Action.SUBSCRIBE}), "type": SEEN, **more}
    return AddRule(Rule(id, "", where=parse_condition(where), role=parse_role(role), **may))  # type: ignore[arg-type]


def events(text: str) -> SetEventPolicy:
    return SetEventPolicy(parse_event_policy(text))


def on(id: str = "a1", to: str = "anna", *args: str, role: str = "On") -> GrantRole:
    return GrantRole(id, "Login", role, args or (to,), to)


def after(state: State, *changes: Change) -> State:
    return next_state(state, Batch(ADMINISTRATOR, changes))


def made(*changes: Change) -> State:
    return after(next_state(State(), Batch(ADMINISTRATOR, WORLD)), *changes)


def tracked(*changes: Change) -> State:
    """Anna has logged on, and entered the role of a tracker of `x`."""
    state = made(SetRolefile("Met", parse_rolefile(MET)), on())
    state = after(state, EnterRole("m7", "Met", "Tracker", None, "anna", None, NOON))
    return after(state, to_role("track", "Met.Tracker(d, np)", "plate = $np", disclose=True), *changes)


def books(state: State) -> Books:
    return Books(state, lambda _: state, lambda _: {})


# -- explanations -------------------------------------------------------------------------------------------------


def explained(
    state: State, asker: str = ADMINISTRATOR, subscription: str | None = None, **values: object
) -> Explanation:
    event = seen(state.version, **values)  # type: ignore[arg-type]
    held = [one for one in state.subscriptions.values() if one.id == subscription]
    return explain(Question(asker, "anna", "e", subscription=subscription), event, books(state), held)


def tried(answer: Explanation) -> tuple[Tried, ...]:
    return answer.views[0].tried


def test_an_entry_for_a_role_says_by_which_membership_it_counts() -> None:
    (one,) = tried(explained(tracked(), plate="x"))
    assert (one.matched, one.role) == (True, parse_role("Met.Tracker(d, np)"))
    assert one.membership is not None
    assert (one.membership.id, one.membership.args, one.membership.supports) == ("m7", ("anna", "x"), ("a1",))
    assert one.membership.statement == MET
    (part,) = one.parts
    assert [value for _, value in part.values] == ["x", "x"]


def test_an_entry_counts_once_for_each_membership_in_their_order() -> None:
    state = made(on("a", "anna", "x"), on("b", "anna", "y"), to_role("r", "Login.On(np)", "plate = $np"))
    found = tried(explained(state, plate="y"))
    assert [(one.membership.id, one.matched) for one in found if one.membership] == [("a", False), ("b", True)]
    answer = explained(state, plate="z")
    assert answer.attributes[0].failed == ("r",)


def test_a_principal_is_told_of_its_membership_where_the_rule_is_disclosed() -> None:
    (one,) = tried(explained(tracked(), "anna", plate="x"))
    assert one.membership is not None
    hidden = tracked(to_role("track", "Met.Tracker(d, np)", "plate = $np"))
    (one,) = tried(explained(hidden, "anna", plate="x"))
    assert (one.membership, one.role, one.condition, one.decided) == (None, None, None, ("plate", "speed", "lane"))


POLICY = """
-Seen(p, s) <= Login.On(u) : s > 9 and u != 'anna'
Seen(p, s) <= Login.On(u) & Login.Busy(k) : u = p
"""


def test_event_policy_is_explained_with_its_text_its_truth_and_what_counted() -> None:
    state = made(on(), events(POLICY))
    first, second = tried(explained(state, plate="anna", speed=3))
    assert (first.rule, first.source, first.truth, first.matched) == ("events.1", Source.POLICY, False, False)
    assert first.judged is not None
    assert second.judged is not None
    assert render_entry(first.judged.entry) == "-Seen(p, s) <= Login.On(u) : s > 9 and u != 'anna'".replace(
        "Seen", SEEN
    )
    assert [one.id for one in first.judged.credentials] == ["a1"]
    assert first.judged.constraint is False
    assert dict(first.judged.parameters) == {"plate": "anna", "speed": 3, "lane": None}
    assert [render_role(ref) for ref in second.judged.missing] == ["Login.Busy(k)"]
    (_, second) = tried(explained(after(state, on("b", "anna", "k", role="Busy")), plate="anna", speed=3))
    assert second.judged is not None
    assert (second.truth, second.judged.constraint, second.decided) == (True, True, ("plate", "speed", "lane"))


def test_only_what_a_subscription_counts_is_looked_at() -> None:
    count = Subscribe(Subscription("s", "anna", SEEN, counted=("b",)))
    state = after(made(on(), on("b", "anna", "k", role="Busy"), events("Seen(p) <= Login.On(u)")), count)
    assert explained(state, plate="x").visible
    answer = explained(state, subscription="s", plate="x")
    assert (answer.visible, answer.counted) == (False, ("b",))


def test_what_event_policy_asks_is_not_told_to_those_it_speaks_of() -> None:
    state = made(on(), events("Seen(p) <= Login.On(u) : u = 'anna'"), Subscribe(Subscription("s", "anna", SEEN)))
    answer = explained(state, "anna", "s", plate="x")
    (one,) = tried(answer)
    assert (one.rule, one.judged, one.told, one.decided) == ("events.1", None, False, ("plate", "speed", "lane"))
    forbidding = made(
        on(), grant("g", "anna"), events("-Seen(p) <= Login.On(u)"), Subscribe(Subscription("s", "anna", SEEN))
    )
    assert [one.rule for one in tried(explained(forbidding, "anna", "s", plate="x"))] == ["g"]


# -- restrictions -------------------------------------------------------------------------------------------------


def restricted(
    state: State, asker: str = ADMINISTRATOR, where: str = "true", counted: tuple[str, ...] | None = None
) -> Restriction:
    one = Subscription("s", "anna", SEEN, parse_condition(where), first=state.version, counted=counted)
    return restrict(asker, "s", one, state.version, books(state))


def test_a_role_restricts_to_its_arguments() -> None:
    answer = restricted(tracked())
    assert answer.satisfiable
    first = answer.types[0]
    assert first.condition is not None
    assert render_condition(first.condition) == "plate = 'x'"
    assert first.entries[0].membership is not None
    assert restricted(tracked(), where="plate = 'y'").types[0].reason is Reason.CONTRADICTS
    ended = after(tracked(), EndCredential("m7"))
    assert restricted(ended).types[0].reason is Reason.NO_GRANT


def test_event_policy_restricts_by_the_credentials_that_count() -> None:
    state = made(on("a", "anna", "x"), on("b", "anna", "y"), events("Seen(p) <= Login.On(p)"))
    answer = restricted(state)
    assert [one.id for one in answer.counted] == ["a", "b"]
    assert answer.types[0].condition == parse_condition("plate = 'x' or plate = 'y'")
    assert restricted(state, counted=("b",)).types[0].condition == parse_condition("plate = 'y'")
    assert restricted(state, counted=("b",), where="plate = 'x'").types[0].reason is Reason.CONTRADICTS
    nothing = restricted(state, counted=())
    assert (nothing.satisfiable, nothing.types[0].reason) == (False, Reason.CREDENTIALS)


def test_what_event_policy_looks_up_may_hold() -> None:
    boss = DeclareRelation("Boss"), AddRow("Boss", ("x", "anna"))
    state = made(*boss, on(), events("Seen(p) <= Login.On(u) : Boss(p) = u"))
    answer = restricted(state)
    assert answer.satisfiable
    (entry,) = answer.types[0].entries
    assert (entry.condition, answer.types[0].condition) == (None, None)
    assert entry.policy == state.roles.policy.entries[0]
    own = restricted(state, "anna").types[0].entries[0]
    assert (own.policy, own.condition, own.source) == (None, None, Source.POLICY)


def test_credentials_that_someone_lacks_tell_it_nothing() -> None:
    state = made(events("Seen(p) <= Login.On(p)"))
    assert restricted(state).types[0].reason is Reason.CREDENTIALS
    assert restricted(state, "anna").types[0].reason is Reason.NO_GRANT


def test_a_type_is_wanted_by_those_whom_roles_let_receive_it() -> None:
    asks = Subscribe(Subscription("s", "anna", SEEN)), Subscribe(Subscription("t", "bob", SEEN, counted=()))
    for rule in (to_role("r", "Login.On(u)"), events("Seen(p) <= Login.On(u)")):
        state = made(*asks, on(), rule)
        assert wanted(state, SEEN)
        assert not wanted(after(state, EndCredential("a1")), SEEN)
    assert not wanted(made(*asks, on("b", "bob"), events("Seen(p) <= Login.On(u)")), SEEN)  # bob counts nothing


# -- effects and advice -------------------------------------------------------------------------------------------


def turned(state: State, *changes: Change) -> list[Affected]:
    return effects(state, after(state, *changes), render_condition)


def test_whoever_loses_a_role_loses_what_it_gave() -> None:
    (found,) = turned(tracked(), EndCredential("a1"))
    assert found.who == ("anna",)
    assert {(one.turn, one.before) for one in found.gains} == {(Turn.LOSES, "plate = 'x'")}


def test_a_new_event_policy_is_told_for_those_it_means() -> None:
    state = made(on("a", "anna", "x"), on("b", "bob", "y"))
    found = turned(state, events("Seen(p) <= Login.On(p)"))
    assert {(one.who, gain.after) for one in found for gain in one.gains} == {
        (("anna",), "plate = 'x'"),
        (("bob",), "plate = 'y'"),
    }
    wider = turned(after(state, events("Seen(p) <= Login.On(p)")), events("Seen(p) <= Login.On(u)"))
    assert {gain.turn for one in wider for gain in one.gains} == {Turn.OTHERWISE}


def test_a_change_of_what_event_policy_looks_up_is_told() -> None:
    boss = DeclareRelation("Boss"), AddRow("Boss", ("x", "anna"))
    state = made(*boss, on(), events("Seen(p) <= Login.On(u) : Boss(p) = u"))
    (found,) = turned(state, AddRow("Boss", ("y", "anna")))
    assert (found.who, {gain.turn for gain in found.gains}) == (("anna",), {Turn.OTHERWISE})


def advice(state: State, concern: Concern) -> list[Advice]:
    return [one for one in advise(state) if one.concern is concern]


def test_rules_are_not_idle_for_want_of_someone_in_a_role() -> None:
    no = AddRule(Rule("no", "anna", frozenset({Action.SUBSCRIBE}), SEEN, effect=Effect.FORBID))
    assert advice(made(no), Concern.IDLE_FORBID)
    assert not advice(made(no, to_role("r", "Login.On(u)")), Concern.IDLE_FORBID)
    assert not advice(made(no, events("Seen(p) <= Login.On(u)")), Concern.IDLE_FORBID)
    assert advice(made(to_role("r", "Login.On(u)"), no), Concern.IDLE_FORBID)  # it comes too late for that rule
    assert not advice(made(on(), to_role("r", "Login.On(u)"), grant("g", "anna")), Concern.IDLE_GRANT)


def test_roles_that_nobody_has_and_forbids_that_can_be_left_out() -> None:
    state = made(SetRolefile("Met", parse_rolefile(MET)), on())
    state = after(state, to_role("a", "Met.Tracker(d, p)"), to_role("b", "Met.Traker"), to_role("c", "Login.On(u)"))
    assert advice(state, Concern.NO_ROLE) == [Advice(Concern.NO_ROLE, ("b",), role=parse_role("Met.Traker"))]
    state = after(state, events("-Seen(p) <= Login.On(u)\n-Seen('x') <=\nSeen(p) <= Hr.Boss(u)"))
    assert [one.names for one in advice(state, Concern.NO_ROLE)] == [("b",), ("events.3",)]
    assert advice(state, Concern.AVOIDABLE) == [
        Advice(Concern.AVOIDABLE, ("events.1",), role=parse_role("Login.On(u)"))
    ]


# -- proofs -------------------------------------------------------------------------------------------------------


def test_someone_who_may_come_to_hold_a_role_can_see() -> None:
    state = made(
        SetRolefile("Met", parse_rolefile(MET)), to_role("r", "Met.Tracker(d, np)", "plate = $np and speed > 3")
    )
    sight = can_see(state, SEEN, "plate")
    assert sight.verdict == "yes"
    assert sight.event is not None
    (role,) = sight.roles
    assert render_role(role) == f"Met.Tracker(_, '{sight.event.values['plate']}')"
    found = view(example_state(state, sight), str(sight.principal), sight.event, {})
    assert found is not None
    assert "plate" in found.attributes
    assert view(state, str(sight.principal), sight.event, {}) is None


def test_someone_who_holds_it_already_is_the_first_example() -> None:
    sight = can_see(tracked(), SEEN, "plate")
    assert (sight.principal, sight.roles) == ("anna", ())


def test_someone_whom_event_policy_may_let_see_can() -> None:
    state = made(events("-Seen(p, s) <= Login.On(u) : u = 'bob'\nSeen(p, s) <= Login.On(u) & Login.Busy(u) : s > 3"))
    sight = can_see(state, SEEN, "plate")
    assert sight.verdict == "yes"
    assert sight.rule is not None
    assert (sight.rule.id, [one.role for one in sight.roles]) == ("events.2", ["On", "Busy"])
    assert can_see(made(events("Seen(p) <=")), SEEN, "plate").verdict == "yes"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ((), "no"),
        ((events("-Seen(p) <=\nSeen(p) <= Login.On(u)"),), "no"),
        ((events("Seen(p) <= Login.On(u) : u != u"),), "no"),
        ((to_role("r", "Login.On(u)", "plate = $u and plate = 'x' and $u = 'y'"),), "no"),
        ((to_role("r", "Login.On(u)", attributes=("speed",)),), "no"),
        ((DeclareRelation("Boss"), events("Seen(p) <= Login.On(u) : Boss(p) = u")), "cannot tell"),
        ((to_role("f", "Login.On(u)", effect=Effect.FORBID), to_role("r", "Login.On(u)")), "cannot tell"),
        ((to_role("f", "Login.On(u)", "speed > 3", effect=Effect.FORBID), to_role("r", "Login.On(u)")), "yes"),
    ],
)
def test_no_is_said_only_where_nobody_can(changes: tuple[Change, ...], verdict: str) -> None:
    assert can_see(made(*changes), SEEN, "plate").verdict == verdict


def test_rules_for_roles_are_reported_only_where_they_can_never_count() -> None:
    state = made(
        to_role("never", "Login.On(u)", "speed > 3 and speed < 2"),
        to_role("none", "Login.On(u)", type="road.*", author="cam"),
        grant("g", "anna"),
        to_role("late", "Login.On(u)"),
    )
    assert check_policy(state).findings == (RuleFinding("never", Fault.NEVER_TRUE),)


def test_a_rule_is_needed_that_a_forbid_for_a_role_may_come_between() -> None:
    twice = grant("one", "anna"), grant("two", "anna")
    assert [one.rule for one in check_policy(made(*twice)).findings] == ["two"]
    between = grant("one", "anna"), to_role("no", "Login.On(u)", effect=Effect.FORBID), grant("two", "anna")
    assert [one.rule for one in check_policy(made(*between)).findings] == ["two"]  # what comes first always counts
    no = AddRule(Rule("no", "anna", frozenset({Action.SUBSCRIBE}), SEEN, effect=Effect.FORBID))
    assert [one.rule for one in check_policy(made(no)).findings] == ["no"]
    assert check_policy(made(no, to_role("r", "Login.On(u)"))).findings == ()
    assert check_policy(made(no, events("Seen(p) <= Login.On(u)"))).findings == ()
    wide = grant("all", "anna"), to_role("no", "Login.On(u)", effect=Effect.FORBID), grant("staff", "staff", SEEN)
    assert "all" not in [one.rule for one in check_policy(made(*wide)).findings]


def holdings(state: State) -> Iterator[State]:
    """The state, and others in which each principal holds nothing, or one of a few roles."""
    yield state
    for role, arg in product(("On", "Tracker"), ("a", "p0", 1)):
        args = (arg, arg) if role == "On" else (arg,)
        bare = replace(state, roles=replace(state.roles, memberships={}, held={}))
        grants = [GrantRole(f"h{n}", "Login", role, args, who) for n, who in enumerate(state.principals)]
        yield next_state(bare, Batch(state.administrator, tuple(grants)))


@examples(10, soak=25)
@given(worlds(steps=3, roles=True, predicates=False), st.data())
def test_proofs_hold_whoever_holds_which_role(story: Story, data: st.DataObject) -> None:
    played = play(story)
    state = played.ledger.now
    state = replace(
        state, roles=replace(state.roles, policy=replace(state.roles.policy, entries=state.roles.policy.entries[:4]))
    )
    found = check_policy(state, limit=0.2)
    gone = {one.rule for one in found.findings}
    name = data.draw(st.sampled_from(sorted(state.types))) if state.types else None
    unseen = list(state.types.attributes(name))[:2] if name else []
    hidden = {
        (t, a)
        for a in unseen
        if can_see(state, str(name), a, limit=0.2).verdict == "no"
        for t in state.types.subtypes(str(name))
    }
    for one in holdings(state):
        without = replace(one, rules=tuple(r for r in one.rules if r.id not in gone))
        for event in [e for e in played.log.events if e.type in state.types][:6]:
            for who in state.principals:
                here, there = (view(s, who, event, {}, event.origin) for s in (one, without))
                assert (None if here is None else here.attributes) == (None if there is None else there.attributes)
                for attribute in here.attributes if here is not None else ():
                    assert (event.type, attribute) not in hidden or event.values.get(attribute) is None


def test_rights_on_a_subtype_are_not_those_on_its_parent() -> None:
    state = made(on(), events("Chase(p) <= Login.On(u)"))
    assert can_see(state, CHASE, "unit").verdict == "yes"
    assert restricted(state).types[0].reason is Reason.NO_GRANT
    assert [one.name for one in restricted(state).types if one.reason is None] == [CHASE]
