"""A plan makes one policy of another, whatever the two are, and there is nothing left to plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.analysis.plan import plan, same_policy
from headgate.decide.apply import apply
from headgate.lang import parse_condition
from headgate.model.authority import Certificate, Identity, Issuing, Provider, Succession, TypeAuthority, Validity
from headgate.model.changes import (
    AddIssuing,
    AddMember,
    AddRow,
    AddRule,
    Advertise,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    Identify,
    Present,
    RegisterPredicate,
    RemoveGroup,
    RemovePredicate,
    RemovePrincipal,
    RemoveRelation,
    RemoveRow,
    RemoveRule,
    RetireType,
    SetAttribute,
    SetConnect,
    SetCoordinator,
    SetKey,
    SetOpen,
    SetPolicyRule,
    SetProvider,
    Subscribe,
    Succeed,
    Unsubscribe,
    Withdraw,
)
from headgate.model.errors import BadDefinition
from headgate.model.rights import Action, Rule, Subscription
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from strategies.memory import play
from strategies.running import examples
from strategies.small import NOON
from strategies.worlds import allowed, worlds

SEES = frozenset({Action.SUBSCRIBE})


def key(number: int) -> str:
    return f"did:key:z6Mk{'a' * 43}{'123456789'[number]}"


def made(*changes: Change) -> State:
    return apply(State(), Batch(ADMINISTRATOR, changes))


def anew(state: State) -> State:
    """The policy of a state as a directory would declare it: by the administrator alone, out of nothing."""
    changes: list[Change] = [DeclarePrincipal(name, values) for name, values in state.principals.items()]
    changes += [SetKey(*one) for one in state.keys.items()]
    changes += [DeclareGroup(name, name in state.open_names) for name in state.groups]
    for group, members in state.groups.items():
        values = state.values_of(group)
        changes += [AddMember(group, member, member in values) for member in members]
    changes += [DeclareRelation(name, name in state.open_names) for name in state.relations]
    changes += [AddRow(name, row) for name, rows in state.relations.items() for row in rows]
    changes += state.predicates.values()
    changes += [
        DeclareType(EventType(t.name, t.owner, t.attributes, t.parent, t.key, times=t.times, derived=t.derived))
        for t in state.types.values()
    ]
    changes += [SetConnect(state.connect_open)]
    changes += [AddRule(rule) for rule in state.rules]
    return apply(State(), allowed(State(), Batch(ADMINISTRATOR, tuple(changes))))


@st.composite
def turned(draw: st.DrawFn, state: State) -> State:
    """The policy of a state, much changed."""
    some = st.sampled_from
    changes: list[Change] = []
    for name in list(state.principals):
        match draw(st.integers(0, 9)):
            case 0:
                changes.append(RemovePrincipal(name))
            case 1:
                changes += [RemovePrincipal(name), DeclareGroup(name)]
            case 2:
                changes.append(SetKey(name, key(draw(st.integers(0, 3)))))
            case 3:
                changes.append(SetKey(name, None))
            case 4:
                changes.append(SetAttribute(name, "u", draw(some((1, 1.0, True, None, "x")))))
    for name in list(state.groups):
        match draw(st.integers(0, 9)):
            case 0:
                changes.append(RemoveGroup(name))
            case 1:
                changes += [RemoveGroup(name), DeclarePrincipal(name, {"u": 1})]
            case 2:
                changes += [RemoveGroup(name), DeclareRelation(name, draw(st.booleans()))]
            case 3:
                changes.append(SetOpen(name, draw(st.booleans())))
    for name, rows in list(state.relations.items()):
        match draw(st.integers(0, 5)):
            case 0:
                changes.append(RemoveRelation(name))
            case 1:
                changes += [
                    *(RemoveRow(name, row) for row in rows),
                    AddRow(name, (draw(some((1, True, 1.0, -0.0, 0.0))),)),
                ]
            case 2:
                changes.append(SetOpen(name, draw(st.booleans())))
    for name, old in list(state.predicates.items()):
        match draw(st.integers(0, 5)):
            case 0:
                changes.append(RemovePredicate(name))
            case 1:
                changes += [RemovePredicate(name), RegisterPredicate(name, old.target, "other")]
    changes += [RetireType(name) for name in reversed(list(state.types)) if draw(st.integers(0, 4)) == 0]
    for one in state.types.values():
        if draw(st.integers(0, 3)) == 0:
            changes.append(DeclareType(replace(one, attributes={**one.attributes, f"new_{one.name[-1]}": Kind.INT})))
    if draw(st.booleans()):
        changes.append(
            DeclareType(EventType("z.New", ADMINISTRATOR, {"n": Kind.INT}, draw(some([None, *state.types]))))
        )
    for rule in state.rules:
        match draw(st.integers(0, 5)):
            case 0:
                changes.append(RemoveRule(rule.id))
            case 1:
                changes.append(AddRule(rule, draw(st.booleans())))
            case 2:
                changes.append(AddRule(replace(rule, disclose=not rule.disclose)))
    changes.append(SetConnect(draw(st.booleans())))
    kept = allowed(replace(state, subscriptions={}), Batch(ADMINISTRATOR, tuple(changes)))
    return apply(replace(state, subscriptions={}), kept)


@examples(40, soak=75)
@given(worlds(steps=5), st.data())
def test_a_plan_leads_from_any_policy_to_any_other(story, data) -> None:
    now = play(story).ledger.now
    changed = data.draw(turned(now))
    wanted = anew(changed)
    found = plan(now, wanted)
    assert found.batch.author == ADMINISTRATOR
    assert same_policy(found.after, wanted)
    assert plan(found.after, wanted).empty
    assert found.after.advertisements <= now.advertisements
    for id, kept in found.after.subscriptions.items():
        assert kept is now.subscriptions[id]
    # The way from nothing, and back to nothing.
    first = plan(State(), wanted)
    assert same_policy(first.after, wanted)
    assert same_policy(plan(found.after, State()).after, State())


def test_there_is_nothing_to_change_where_nothing_differs() -> None:
    state = made(DeclarePrincipal("p", {"u": 1}), DeclareGroup("g"), AddMember("g", "p"), SetKey("p", key(1)))
    assert plan(state, state).empty
    assert not plan(state, made(DeclarePrincipal("p", {"u": True}), *_rest())).empty


def _rest() -> tuple[Change, ...]:
    return DeclareGroup("g"), AddMember("g", "p"), SetKey("p", key(1))


def test_a_value_becomes_a_principal_and_a_principal_a_value() -> None:
    groups = DeclareGroup("g"), DeclareGroup("h"), AddMember("h", "g")
    before = made(DeclarePrincipal("p"), *groups, AddMember("g", "p"), AddMember("g", "v", True))
    after = made(DeclarePrincipal("v"), *groups, AddMember("g", "p", True), AddMember("g", "v"))
    for one, other in ((before, after), (after, before)):
        found = plan(one, other)
        assert found.after.groups == other.groups
        assert found.after.principals == other.principals
    kinds = [type(change).__name__ for change in plan(before, after).batch.changes]
    assert kinds == ["RemoveMember", "RemovePrincipal", "DeclarePrincipal", "AddMember", "AddMember"]


def test_two_principals_exchange_their_keys() -> None:
    people = DeclarePrincipal("p"), DeclarePrincipal("q")
    now = made(*people, SetKey("p", key(1)), SetKey("q", key(2)))
    found = plan(now, made(*people, SetKey("p", key(2)), SetKey("q", key(1))))
    assert found.after.keys == {"p": key(2), "q": key(1)}


def test_the_key_of_the_administrator_stays_unless_another_is_wanted() -> None:
    now = made(SetKey(ADMINISTRATOR, key(1)))
    assert plan(now, State()).empty
    assert plan(now, made(SetKey(ADMINISTRATOR, key(2)))).after.keys == {ADMINISTRATOR: key(2)}


def _rules(*ids: str) -> State:
    one = DeclareType(EventType("a.T", ADMINISTRATOR, {"n": Kind.INT}))
    return made(DeclarePrincipal("p"), one, *(AddRule(Rule(id, "p", SEES, "a.T")) for id in ids))


@pytest.mark.parametrize(
    ("before", "after", "removed", "first", "last"),
    [
        ("abc", "abcd", "", "", "d"),
        ("abc", "xabc", "", "x", ""),
        ("abc", "xacy", "b", "x", "y"),
        ("abc", "cab", "c", "c", ""),
        ("abc", "acb", "b", "", "b"),
        ("abcd", "xcdab", "ab", "x", "ab"),
        ("abc", "", "abc", "", ""),
        ("", "ab", "", "", "ab"),
    ],
)
def test_rules_that_stay_in_order_are_left_alone(before: str, after: str, removed: str, first: str, last: str) -> None:
    changes = plan(_rules(*before), _rules(*after)).batch.changes
    assert [c.id for c in changes if isinstance(c, RemoveRule)] == list(removed)
    assert [c.rule.id for c in changes if isinstance(c, AddRule) and c.first] == list(first)
    assert [c.rule.id for c in changes if isinstance(c, AddRule) and not c.first] == list(last)


def test_a_rule_of_another_author_becomes_the_administrators() -> None:
    one = DeclareType(EventType("a.T", "p", {"n": Kind.INT}))
    rule = AddRule(Rule("r", "p", SEES, "a.T"))
    now = apply(made(DeclarePrincipal("p"), one), Batch("p", (rule,)))
    found = plan(now, made(DeclarePrincipal("p"), one, rule))
    assert [r.author for r in found.after.rules] == [ADMINISTRATOR]


def test_a_filter_loses_what_it_may_no_longer_name() -> None:
    base = (
        DeclarePrincipal("p"),
        DeclareType(EventType("a.T", "p", {"n": Kind.STRING})),
        DeclareRelation("R", open=True),
        RegisterPredicate("f", "m:f", "1"),
    )

    def wish(id: str, where: str) -> Subscribe:
        return Subscribe(Subscription(id, "p", "a.T", parse_condition(where)))

    now = made(
        *base, DeclareGroup("g", open=True), wish("g", "n in group g"), wish("r", "R(n)"), wish("p", "predicate f()")
    )
    for group, ends in (
        ((DeclareGroup("g", open=True),), []),
        ((DeclareGroup("g"),), ["g"]),
        ((), ["g"]),
    ):
        found = plan(now, made(*base, *group))
        assert [c.id for c in found.batch.changes if isinstance(c, Unsubscribe)] == ends
        assert set(found.after.subscriptions) == {"g", "r", "p"} - set(ends)
    other = (*base[:3], RegisterPredicate("f", "m:f", "2"), DeclareGroup("g", open=True))
    assert set(plan(now, made(*other)).after.subscriptions) == {"g", "r"}


def test_what_is_not_policy_stays() -> None:
    may = AddRule(Rule("r", "p", frozenset({Action.PUBLISH}), "a.T"))
    base = DeclarePrincipal("p"), DeclareType(EventType("a.T", "p", {})), may
    now = made(*base, Subscribe(Subscription("s", "p", "a.T")), Advertise("p", "a.T"), Withdraw("p"))
    after = plan(now, made(*base, DeclareGroup("g"))).after
    assert (after.subscriptions, after.advertisements, after.withdrawals) == (
        now.subscriptions,
        now.advertisements,
        now.withdrawals,
    )


def test_a_type_that_would_lose_something_is_refused() -> None:
    def typed(**attributes: Kind) -> State:
        return made(DeclareType(EventType("a.T", ADMINISTRATOR, attributes)))

    with pytest.raises(BadDefinition, match="loses or retypes `x`"):
        plan(typed(x=Kind.INT), typed(y=Kind.INT))
    with pytest.raises(BadDefinition, match="loses or retypes `x`"):
        plan(typed(x=Kind.INT), typed(x=Kind.FLOAT))
    gone = plan(typed(x=Kind.INT), State()).after
    with pytest.raises(BadDefinition, match="loses or retypes `x`"):
        plan(gone, typed(y=Kind.INT))
    assert plan(gone, typed(x=Kind.INT, y=Kind.INT)).after.types.bits("a.T") == {"x": 0, "y": 1}


# -- authority --------------------------------------------------------------------------------------------------------

PITO = Provider("pito", "home")
RULE, OTHER = parse_condition("$a = 1"), parse_condition("$a = 1.0")


def issues(seconds: int, who: str = "p", value: object = 1) -> AddIssuing:
    return AddIssuing(Issuing("i", who, (TypeAuthority(SEES, "a.*", forced={"n": value}, attributes=("n",)),), seconds))


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ((), (SetPolicyRule("p", RULE),), ["SetPolicyRule"]),
        ((SetPolicyRule("p", RULE),), (), ["SetPolicyRule"]),
        ((SetPolicyRule("p", RULE),), (SetPolicyRule("p", OTHER),), ["SetPolicyRule"]),
        ((SetPolicyRule("p", RULE),), (SetPolicyRule("p", RULE),), []),
        ((), (SetCoordinator("q"),), ["SetCoordinator"]),
        ((SetCoordinator("q"),), (), ["SetCoordinator"]),
        ((), (SetProvider(PITO),), ["SetProvider"]),
        ((SetProvider(PITO),), (), ["RemoveProvider"]),
        ((SetProvider(PITO),), (SetProvider(replace(PITO, mapping=())),), ["SetProvider"]),
        ((SetProvider(PITO),), (SetProvider(PITO),), []),
        ((), (issues(60),), ["AddIssuing"]),
        ((issues(60),), (), ["RemoveIssuing"]),
        ((issues(60),), (issues(30),), ["RemoveIssuing", "AddIssuing"]),
        ((issues(60),), (issues(60, value=True),), ["RemoveIssuing", "AddIssuing"]),
        ((issues(60),), (issues(60),), []),
    ],
)
def test_authority_is_policy_too(before: tuple[Change, ...], after: tuple[Change, ...], kinds: list[str]) -> None:
    base = DeclarePrincipal("p"), DeclarePrincipal("q")
    now, wanted = made(*base, *before), made(*base, *after)
    found = plan(now, wanted)
    assert [type(change).__name__ for change in found.batch.changes] == kinds
    assert same_policy(now, wanted) is (not kinds)
    assert plan(found.after, wanted).empty


def test_an_issuing_rule_speaks_of_what_its_name_has_become() -> None:
    now = made(DeclarePrincipal("p"), issues(60))
    wanted = made(DeclareGroup("p"), issues(60))
    assert plan(now, wanted).after.issuing == wanted.issuing


def test_what_statements_say_is_left_alone() -> None:
    said = Identity("i", "pito", "p", {"a": 1, "b": 2}, Validity(), RULE)
    base = DeclarePrincipal("p", {"u": 1}), SetProvider(PITO)
    now = made(*base, Identify("p", said, NOON))
    assert plan(now, made(*base)).empty
    # What the files say of the same is the domain's own word, and stays when the statement ends.
    wanted = made(DeclarePrincipal("p", {"u": 1, "a": 1}), SetPolicyRule("p", RULE), SetProvider(PITO))
    after = plan(now, wanted).after
    assert (after.principals["p"], dict(after.attested_rules)) == ({"u": 1, "a": 1, "b": 2}, {})
    assert plan(after, wanted).empty
    assert plan(after, made(DeclarePrincipal("p", {"u": 1, "a": 1}))).after.principals["p"] == {"u": 1, "a": 1}


def test_rights_by_certificates_stay() -> None:
    base = DeclarePrincipal("o"), DeclarePrincipal("p"), DeclareType(EventType("a.T", "o", {"n": Kind.INT}))
    given = Certificate("c", "o", "p", (TypeAuthority(SEES, "a.*"),))
    now = made(*base, Present("p", (given,), NOON))
    assert plan(now, made(*base)).empty
    assert plan(now, made(*base, DeclareGroup("g"))).after.bags == now.bags


def test_a_key_that_follows_another_stays() -> None:
    now = made(DeclarePrincipal("p"), SetKey("p", key(1)), Succeed(Succession(key(1), key(2)), NOON))
    assert now.keys == {"p": key(2)}
    assert plan(now, made(DeclarePrincipal("p"), SetKey("p", key(1)))).empty
    assert plan(now, made(DeclarePrincipal("p"), SetKey("p", key(2)))).empty
    assert plan(now, made(DeclarePrincipal("p"), SetKey("p", key(3)))).after.keys == {"p": key(3)}


def test_whoever_came_by_itself_stays_with_what_is_its_own() -> None:
    guest = key(1)
    came = DeclarePrincipal(guest), SetKey(guest, guest), DeclareType(EventType("g.T", guest, {"n": Kind.INT}))
    now = made(DeclarePrincipal("p", {"u": 1}), *came)
    now = apply(now, Batch(guest, (AddRule(Rule("theirs", "p", SEES, "g.T")),)))
    now = apply(now, Batch(ADMINISTRATOR, (AddRule(Rule("ours", "p", SEES, "g.T")), SetAttribute(guest, "x", 1))))
    found = plan(now, made(DeclareGroup("g")))
    assert set(found.after.principals) == {guest}
    assert set(found.after.types) == {"g.T"}
    assert found.after.rules == ()  # both spoke of `p`, who is gone
    kept = plan(now, made(DeclarePrincipal("p", {"u": 1}))).after
    assert [rule.id for rule in kept.rules] == ["theirs"]
    assert kept.principals[guest] == {"x": 1}
    # One that the files speak of is theirs to say.
    named = plan(now, made(DeclarePrincipal("p", {"u": 1}), *came)).after
    assert (named.principals[guest], named.rules) == ({}, ())


def test_the_domain_is_a_provider_by_its_own_key() -> None:
    ours = SetProvider(Provider(ADMINISTRATOR, "us"))
    now = made(SetKey(ADMINISTRATOR, key(1)))
    after = plan(now, made(ours)).after
    assert after.providers == {key(1): Provider(key(1), "us")}
    assert plan(after, made(ours)).empty


def test_the_own_service_stays_a_provider_whatever_the_files_say() -> None:
    own, other = Provider(key(1), "shop", own=True), Provider(key(2), "fleet")
    now = made(SetProvider(own), SetProvider(other))
    assert plan(now, made(DeclareGroup("g"))).after.providers == {own.key: own}
    assert same_policy(made(SetProvider(own)), made())
