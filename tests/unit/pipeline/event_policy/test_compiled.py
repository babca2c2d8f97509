"""Rules for roles and event policy in the matcher, each case beside `decide`; and what they cost to keep."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.deliver import decide
from headgate.decide.publish import admit
from headgate.decide.rolebook import alike as reference
from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_event_policy, parse_representative, parse_role
from headgate.model.authority import Certificate, TypeAuthority
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    EndCredential,
    GrantRole,
    Present,
    RemoveMember,
    RemoveRow,
    SetAttribute,
    SetEventPolicy,
    SetRepresentative,
    Subscribe,
)
from headgate.model.errors import HeadgateError
from headgate.model.events import Draft, Event
from headgate.model.expressions import Argument
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.state import State
from headgate.model.values import Value, micros
from headgate.pipeline.admission.admission import Admission
from headgate.pipeline.event_policy import clients as policy_clients
from headgate.pipeline.event_policy import events as policy_events
from headgate.pipeline.event_policy.events import Relation
from headgate.pipeline.index import build as profiles
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.log.codec import layouts
from headgate.pipeline.match import DecisionWindow, Matcher
from headgate.pipeline.spark.decider import decide_appends
from headgate.solver import check_policy_rule
from strategies.memory import MemoryLedger, MemoryLog, exact
from strategies.running import examples
from strategies.small import CHASE, NOON, SEEN, chase, commit, forbid, grant, seen, wish, world
from strategies.stored import read

FIGURE = """
Seen(u, r) <= Login.LoggedOn(u, h)
Seen('rmn', r) <= Login.LoggedOn('akl', h)
Seen('rmn', r) <= Login.LoggedOn(p, h) : p in staff
-Seen('rmn', r) <= Login.LoggedOn(p, h) : p in student
Seen(u, r) <= Login.LoggedOn(p, h) : u in staff and p in student
-Seen(u, r) <= Login.LoggedOn(p, h) : u in student and p in student
Seen(u, r) <= Login.LoggedOn(p, h) : u in staff and p in staff
"""


def policy(text: str) -> Change:
    return SetEventPolicy(parse_event_policy(text))


def on(id: str, to: str, *args: Argument, role: str = "LoggedOn", service: str = "Login") -> Change:
    return GrantRole(id, service, role, args, to)


def told(id: str, role: str, where: str = "true", effect: Effect = Effect.GRANT, **more: object) -> AddRule:
    """A subscribe rule for a role."""
    condition = parse_condition(where)
    rule = Rule(id, "", frozenset({Action.SUBSCRIBE}), SEEN, condition, effect=effect, role=parse_role(role))
    return AddRule(replace(rule, **more))  # type: ignore[arg-type]


def appended(ledger: MemoryLedger, *events: Event) -> MemoryLog:
    log = MemoryLog()
    log.append("main", ledger.now, micros(NOON), events)
    return log


def agree_on(ledger: MemoryLedger, log: MemoryLog) -> list[tuple[int, str]]:
    """Matcher and `decide` agree on a log; the events delivered, each with its subscription."""
    index = pickle.loads(pickle.dumps(IndexBuilder(ledger).index(0, ledger.version)))
    matcher, places = Matcher(index, ledger.functions), layouts(ledger.now.types)
    found, expected, every = [], [], ledger.every_subscription()
    for batch in log.batches:
        for blob in decide_appends(matcher, [batch], DecisionWindow(0, ledger.version)):
            found += [(d.seq, every[d.subscription].id, exact(d.view)) for d in read(blob, places)]
    for event in log.events:
        for subscription in every:
            delivery = decide(event, subscription, ledger.state, ledger.predicates)
            if delivery is not None:
                expected.append((event.seq, subscription.id, exact(delivery.view)))
    assert sorted(found) == sorted(expected)
    return sorted((seq, id) for seq, id, _ in expected)


def agree(ledger: MemoryLedger, *events: Event) -> list[tuple[int, str]]:
    return agree_on(ledger, appended(ledger, *events))


def plates(*values: Value) -> list[Event]:
    return [seen(plate=value, speed=1) for value in values]


# -- rules for roles ----------------------------------------------------------------------------------------------


def test_a_rule_for_a_role_is_an_entry_for_each_membership() -> None:
    ledger = world(
        on("m1", "anna", "d1", "X1", role="Tracker"),
        on("m2", "anna", "d2", "X2", role="Tracker"),
        on("m3", "bob", "d1", "X3", role="Tracker"),
        told("r", "Login.Tracker(d, np)", "plate = $np"),
        told("f", "Login.Tracker('d2', np)", "plate = $np and speed = 2", Effect.FORBID),
        wish("a", "anna"),
        wish("b", "bob"),
        wish("c", "cam"),
    )
    assert agree(ledger, *plates("X1", "X2", "X3", None)) == [(1, "a"), (2, "a"), (3, "b")]
    assert agree(ledger, seen(plate="X2", speed=2)) == [(1, "a")]  # the grant stands before


def test_the_arguments_of_a_role_stand_before_attributes_of_the_same_name() -> None:
    ledger = world(
        on("m1", "anna", "X1", role="Tracker"),
        told("r", "Login.Tracker(np)", "plate = $np"),
        told("q", "Login.Tracker", "plate = $np", attributes=("plate",)),
        wish("a", "anna"),
    )
    commit(ledger, SetAttribute("anna", "np", "X2"))
    assert agree(ledger, *plates("X1", "X2", "X3")) == [(1, "a"), (2, "a")]


def test_memberships_that_a_rule_does_not_tell_apart_share_a_profile() -> None:
    people = [f"p{number}" for number in range(300)]
    ledger = crowd(people, [on(f"m{who}", who, who, f"h{who}") for who in people], told("r", "Login.LoggedOn(u, h)"))
    index = IndexBuilder(ledger).index(0, ledger.version)
    assert len(set(index.epochs[-1].profile.tolist())) == 1


def test_building_for_many_trackers_looks_at_each_membership_once_for_each_rule() -> None:
    people = [f"p{number}" for number in range(300)]
    rules = [told(f"r{n}", "Login.Tracker(np)", "plate = $np") for n in range(3)]
    others = [told(f"o{n}", "Login.Other(np)", "plate = $np") for n in range(50)]
    held = [on(f"m{who}", who, who, role="Tracker") for who in people]
    ledger = crowd(people, held, *rules, *others)
    calls = 0
    real = profiles.fit

    def counted(*args):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        return real(*args)

    with patch.object(profiles, "fit", counted):
        index = IndexBuilder(ledger).index(ledger.version, ledger.version)
    assert calls == len(people) * len(rules)
    assert len(set(index.epochs[-1].profile.tolist())) == len(people)
    assert [id for _, id in agree(ledger, *plates("p7", "p8", "nobody"))] == ["sp7", "sp8"]


def crowd(people: Iterable[str], held: list[Change], *changes: Change) -> MemoryLedger:
    listed = list(people)
    return world(*(DeclarePrincipal(who) for who in listed), *held, *changes, *(wish(f"s{who}", who) for who in listed))


def test_the_name_of_a_group_inside_a_group_is_no_member_of_it() -> None:
    ledger = world(
        DeclareGroup("outer"),
        DeclareGroup("inner"),
        AddMember("outer", "inner"),
        AddMember("inner", "anna"),
        on("m1", "bob", "inner", "h"),
        on("m2", "anna", "anna", "h"),
        policy("Seen(u) <= LoggedOn(p, h) : u in outer and p in outer"),
        wish("a", "anna"),
        wish("b", "bob"),
    )
    assert agree(ledger, *plates("anna", "inner", "outer")) == [(1, "a")]


def test_publishing_by_a_rule_for_a_role() -> None:
    may = frozenset({Action.PUBLISH})
    rules = [
        Rule(
            "f",
            "",
            may,
            SEEN,
            parse_condition("speed > $most"),
            effect=Effect.FORBID,
            role=parse_role("Login.Camera(l, most)"),
        ),
        Rule("r", "", may, SEEN, parse_condition("lane = $l"), role=parse_role("Login.Camera(l, most)")),
        Rule("q", "", may, SEEN, attributes=("plate",), role=parse_role("Login.Guest")),
    ]
    held = [
        on("m1", "cam", 1, 90, role="Camera"),
        on("m2", "cam", 2, 200, role="Camera"),
        on("m3", "bob", role="Guest"),
    ]
    state = world(*map(AddRule, rules), *held).now
    admission = Admission(state, {})
    accepted = []
    for who in ("cam", "bob", "anna"):
        drafts = [Draft("e", who, SEEN, {"lane": n, "speed": s}) for n in (1, 2, 3, None) for s in (50, 100, None)]
        (part,), _ = admission.admit_drafts(drafts, NOON)
        for row, one in enumerate(drafts):
            refusal = part.refusals.get(row)
            assert (None if refusal is None else refusal.message) == refused(state, one)
            if refusal is None:
                accepted.append((who, one.values["lane"], one.values["speed"]))  # type: ignore[index]
    assert ("cam", 1, 50) in accepted
    assert ("cam", 1, 100) not in accepted
    assert ("bob", 3, 100) in accepted
    assert not any(who == "anna" for who, _, _ in accepted)


def refused(state: State, one: Draft) -> str | None:
    """What `decide` says of a draft that is refused."""
    try:
        admit(state, one, now=NOON, predicates={}, policy_rule=check_policy_rule)
    except HeadgateError as error:
        return error.message
    return None


# -- event policy -------------------------------------------------------------------------------------------------


def figure(*more: Change) -> MemoryLedger:
    return world(
        *(DeclarePrincipal(who) for who in ("rmn", "akl", "ann", "ben")),
        DeclareGroup("student"),
        *(AddMember("staff", who) for who in ("rmn", "akl")),
        *(AddMember("student", who) for who in ("ann", "akl")),
        *(on(f"m{who}", who, who, "host") for who in ("rmn", "akl", "ann", "ben")),
        *(wish(f"s{who}", who) for who in ("rmn", "akl", "ann", "ben", "cam")),
        policy(FIGURE),
        *more,
    )


def test_figure_7_1() -> None:
    delivered = agree(figure(), *plates("rmn", "akl", "ann", "ben", None))
    assert [id for seq, id in delivered if seq == 1] == ["sakl", "srmn"]
    assert [id for seq, id in delivered if seq == 2] == ["sakl", "sann", "srmn"]
    assert [id for seq, id in delivered if seq == 3] == ["sann"]
    assert [id for seq, id in delivered if seq == 4] == ["sben"]
    assert [id for seq, id in delivered if seq == 5] == []


def test_rules_stand_before_event_policy_and_chains_after_it() -> None:
    ledger = figure(
        forbid("f", "rmn", where=parse_condition("speed = 9")),
        forbid("h", "rmn", attributes=("lane",)),
        grant("g", "ann", where=parse_condition("speed = 9"), attributes=("speed",)),
        *(
            Present(who, (Certificate(f"c{who}", "owner", who, (TypeAuthority(frozenset({Action.SUBSCRIBE})),)),), NOON)
            for who in ("ann", "ben", "rmn")
        ),
    )
    events = [seen(plate=p, speed=s, lane=1) for p in ("rmn", "ann", "ben", "zoe", None) for s in (1, 9)]
    delivered = agree(ledger, *events)
    assert (1, "sann") not in delivered  # a negative entry keeps out what a chain would give
    assert (2, "sann") in delivered  # a rule stands before it
    assert (2, "srmn") not in delivered
    assert (7, "sben") in delivered


def test_null_is_unknown_which_keeps_out_and_lets_nobody_in() -> None:
    for sign, shown in (("", [1]), ("-", [2])):
        ledger = world(
            on("m", "anna", "X1", role="Tracker"),
            policy(f"{sign}Seen(u) <= Tracker(u)\n" + ("Seen(u) <=" if sign else "")),
            wish("a", "anna"),
        )
        assert [seq for seq, _ in agree(ledger, *plates("X1", "X2", None))] == shown


def test_what_a_subscription_counts_is_about_event_policy_alone() -> None:
    ledger = world(
        on("m1", "anna", "X1", role="Tracker"),
        on("m2", "anna", "X2", role="Tracker"),
        policy("Seen(u) <= Tracker(u)"),
        told("r", "Login.Tracker(np)", "plate = $np and speed = 1", attributes=("plate",)),
    )
    some = [("all", None), ("one", ("m1",)), ("none", ()), ("twice", ("m2", "m2", "m1"))]
    commit(ledger, *(Subscribe(Subscription(id, "anna", SEEN, counted=ids)) for id, ids in some))
    events = [seen(plate=p, speed=s, lane=3) for p in ("X1", "X2") for s in (1, 2)]
    delivered = agree(ledger, *events)
    assert [id for seq, id in delivered if seq == 1] == ["all", "none", "one", "twice"]
    assert [id for seq, id in delivered if seq == 4] == ["all", "twice"]


def test_an_entry_is_as_true_as_the_best_choice_of_credentials() -> None:
    two = "Login.Tracker(np) & Met.Officer(np, rank) : rank >= lane"
    for text in (f"Seen(u, _, lane) <= {two} and u = np", f"-Seen(u, _, lane) <= {two} and u = np\nSeen(_) <="):
        ledger = world(
            *(on(f"t{n}", "anna", f"X{n}", role="Tracker") for n in range(3)),
            *(on(f"o{n}{r}", "anna", f"X{n}", r, role="Officer", service="Met") for n in range(2) for r in (1, 5)),
            on("bob", "bob", "X1", role="Tracker"),
            policy(text),
            wish("a", "anna"),
            wish("b", "bob"),
        )
        agree(ledger, *(seen(plate=f"X{n}", lane=lane) for n in range(4) for lane in (0, 3, 7, None)))


def test_values_compare_as_numbers_and_not_as_other_kinds() -> None:
    held: list[Argument] = [1, 1.0, True, "1", 2**53 + 1, frozenset("r"), 2]
    for op in ("=", "!=", "<", "<=", ">", ">="):
        for sign in ("", "-"):
            ledger = world(
                *(on(f"m{n}", "anna" if n % 2 else "bob", one, role="Level") for n, one in enumerate(held)),
                policy(f"{sign}Seen(_, s) <= Level(x) : s {op} x\n" + ("Seen(_) <=" if sign else "")),
            )
            commit(
                ledger,
                *(
                    Subscribe(Subscription(f"s{n}", "anna" if n % 2 else "bob", SEEN, counted=(f"m{n}",)))
                    for n in range(len(held))
                ),
            )
            agree(ledger, *(seen(speed=s) for s in (0, 1, 2, 2**53, 2**53 + 1, None)))


RELATED = """
Seen(u) <= LoggedOn(s, h) : Supervisor(u, s)
-Seen(u, _, lane) <= LoggedOn(s, h) : Near(u, lane, s) and not Supervisor(u, _)
Seen(u, n) <= LoggedOn(s, h) : Near(u, n, 'bob') or Near(_, n, s)
Seen(u) <= LoggedOn(s, h) : Home(u) = Home(s) and u != s
"""


@pytest.mark.parametrize("cells", [1, 1 << 20])
def test_relations_between_event_and_client(cells: int) -> None:
    ledger = world(
        *(DeclareRelation(name) for name in ("Supervisor", "Near", "Home")),
        *(AddRow("Supervisor", row) for row in (("X1", "anna"), ("X2", "bob"), ("X2", "anna"))),
        *(
            AddRow("Near", row)
            for row in (("X1", 1, "anna"), ("X3", 2, "bob"), ("X4", 1.0, "bob"), ("X5", True, "bob"))
        ),
        *(AddRow("Home", row) for row in (("anna", "cl"), ("X3", "cl"), ("X4", "cl"), ("X4", "eng"), ("bob", "eng"))),
        *(on(f"m{who}", who, who, "h") for who in ("anna", "bob", "cam")),
        policy(RELATED),
        *(wish(who, who) for who in ("anna", "bob", "cam")),
    )
    names = (*(f"X{n}" for n in range(6)), "anna", None)
    with patch.object(policy_events, "MAX_TABLE", cells):
        delivered = agree(ledger, *(seen(plate=p, speed=s, lane=s) for p in names for s in (1, 2, None)))
    assert delivered


def test_a_representative_is_a_look_up_of_one_value_or_none() -> None:
    ledger = figure(
        DeclareRelation("Badge"),
        *(AddRow("Badge", row) for row in (("b1", "rmn"), ("b2", "ann"), ("b3", "ann"), ("b3", "rmn"))),
        SetRepresentative(parse_representative(SEEN, {"user": "Badge(plate)"})),
    )
    log = appended(ledger, *plates("b1", "b2", "b3", "b4", "rmn", None))
    commit(ledger, RemoveRow("Badge", ("b3", "ann")), AddRow("Badge", ("rmn", "rmn")), RemoveMember("student", "ann"))
    log.append("main", ledger.now, micros(NOON), plates("b1", "b2", "b3", "b4", "rmn", None))
    delivered = agree_on(ledger, log)
    assert (2, "sann") in delivered
    assert {seq for seq, _ in delivered} & {3, 4, 5, 6} == set()
    assert (9, "sakl") in delivered


def test_an_entry_on_a_parent_gives_only_what_the_parent_has() -> None:
    texts = [
        "Seen(u) <=",
        "Chase(u, _, _, 'T7') <=\nSeen(u) <= LoggedOn(u)",
        "Seen(u) <= LoggedOn(u)\n-Chase(u, _, _, x) <= : x = 'T7'\nChase(u) <=",
        "Seen(u) <= LoggedOn(u)\nChase(u) <=",
    ]
    for text in texts:
        ledger = world(on("m", "anna", "X1"), policy(text), wish("a", "anna"), wish("b", "bob", CHASE))
        agree(
            ledger, *(chase(plate=p, lane=1, unit=u) for p in ("X1", "X2") for u in ("T7", None)), *plates("X1", "X2")
        )


def test_memberships_come_and_go_in_mid_stream_and_history_asks_both_versions() -> None:
    ledger = figure()
    log = appended(ledger, *plates("rmn", "akl", "ann", "ben"))
    commit(ledger, EndCredential("mrmn"), on("new", "cam", "ben", "host"), wish("late", "rmn", history=True))
    log.append("main", ledger.now, micros(NOON), plates("rmn", "ben"))
    commit(ledger, AddMember("student", "ben"), policy(FIGURE + "Seen(u) <="), wish("later", "ann", history=True))
    log.append("main", ledger.now, micros(NOON), plates("rmn", "akl", "ann", "ben"))
    commit(ledger, policy(""), wish("last", "rmn", history=True))
    log.append("main", ledger.now, micros(NOON), plates("rmn"))
    delivered = agree_on(ledger, log)
    assert (1, "srmn") in delivered
    assert (5, "srmn") not in delivered
    assert (6, "scam") in delivered
    assert not any(id == "last" for _, id in delivered)


def test_more_entries_than_a_word_has_bits() -> None:
    lines = [f"Seen('X{n}') <= LoggedOn('X{n}')" for n in range(100)]
    lines += ["-Seen(u) <= LoggedOn(u)", *(f"-Seen('X{n}') <=" for n in range(100, 130)), "Seen(u) <="]
    ledger = world(on("m1", "anna", "X99"), on("m2", "bob", "X105"), on("m3", "cam", "X200"), policy("\n".join(lines)))
    commit(ledger, *(wish(who, who) for who in ("anna", "bob", "cam")))
    delivered = agree(ledger, *plates("X99", "X105", "X200", "X7", "X129", None))
    everyone = ["anna", "bob", "cam"]
    assert delivered == [*((1, who) for who in everyone), (3, "anna"), (3, "bob"), *((4, who) for who in everyone)]


def test_a_mixed_entry_counts_if_a_negative_one_in_another_word_comes_before_what_gives_everything() -> None:
    between = [f"Seen('Z{n}') <=" for n in range(70)]
    lines = ["Seen(u) <= LoggedOn(u)", *between, "-Seen('X1', s) <= LoggedOn(p) : s != p", "Seen(u) <="]
    ledger = world(on("m1", "anna", "X1"), on("m2", "bob", "X2"), policy("\n".join(lines)))
    commit(ledger, wish("a", "anna"), wish("b", "bob"), wish("c", "cam"))
    delivered = agree(ledger, *(event for _ in range(20) for event in plates("X1", "X2", "X9")))
    assert delivered[:5] == [(1, "a"), (1, "c"), (2, "a"), (2, "b"), (2, "c")]  # a text and a number are unknown


@examples(60)
@given(st.data())
def test_conditions_on_the_event_alone(data: st.DataObject) -> None:
    """Every kind of leaf over one column, over two, and over what is worked out of them."""
    made = [data.draw(st.sampled_from(LEAVES)) for _ in range(3)]
    joined = data.draw(st.sampled_from((" and ", " or ")))
    sign = data.draw(st.sampled_from(("", "-")))
    ledger = world(
        DeclareRelation("Home"),
        *(AddRow("Home", row) for row in (("a", "b"), ("b", "b"), ("a b", 1), ("c", 70), ("c", 71))),
        AddMember("staff", "bob"),
        policy(f"{sign}Seen(p, s, n) <= : {joined.join(made)}\n" + ("Seen(_) <=" if sign else "")),
        wish("a", "anna"),
    )
    texts, numbers = st.sampled_from(("a", "b", "a b", "c", "bob", "", None)), st.sampled_from((0, 1, 2, 70, -3, None))
    events = [
        seen(plate=data.draw(texts), speed=data.draw(numbers), lane=data.draw(numbers))
        for _ in range(data.draw(st.integers(1, 12)))
    ]
    agree(ledger, *events)


LEAVES = (
    "s > 1", "s = n", "s != n", "s < n", "p = 'a'", "p = Home(p)", "Home(p) = n", "Home(p) > n", "p in staff",
    "s in 1..n", "5 in s..3", "s in {1, 70}", "p starts with 'a'", "p has token 'b'",
    "p contains Home(p)", "Home(p, n)", "Home(p, _)", "Home(_, s)", "Home(p, s + n)", "not Home('a', p)",
    "s + n = 71", "Home()", "weekday(@time, 'UTC') = 4", "@time > timestamp '2026-01-01T00:00:00Z'",
    "unixacl('bob=rw other=r', p) = {rw}",
)  # fmt: skip


# -- what is kept -------------------------------------------------------------------------------------------------


def test_without_an_event_policy_there_is_nothing_of_it() -> None:
    ledger = world(grant("r", "anna"), wish("a", "anna"))
    index = IndexBuilder(ledger).index(0, ledger.version)
    assert index.policies == {}
    assert all(epoch.policy_facts is None and len(epoch.clients) == 0 for epoch in index.epochs)


def test_a_change_works_out_only_what_it_brings() -> None:
    people = [f"p{number}" for number in range(50)]
    ledger = crowd(people, [on(f"m{who}", who, who, "h") for who in people], DeclareGroup("other"))
    commit(ledger, policy("Seen(u) <= LoggedOn(u, h)\n-Seen(u) <= LoggedOn(p, h) : p in staff and u in other"))
    builder = IndexBuilder(ledger)
    first = builder.index(ledger.version, ledger.version)
    (number,) = first.policies
    worked_out = len(first.policies[number].classes)
    assert worked_out == len(people)
    commit(ledger, on("more", "p1", "x", "h"), AddMember("other", "p2"), wish("again", "p3"))
    second = builder.index(ledger.version, ledger.version)
    assert list(second.policies) == [number]  # what clients are asked about is as it was
    assert len(second.policies[number].classes) == worked_out + 1
    commit(ledger, AddMember("staff", "p4"))
    third = builder.index(ledger.version, ledger.version)
    assert list(third.policies) != [number]
    agree(ledger, *plates("p1", "p2", "p3", "x"))


def test_classes_of_the_past_do_not_pile_up() -> None:
    ledger = world(policy("Seen(u) <= LoggedOn(u)"), wish("a", "anna"))
    builder = IndexBuilder(ledger)
    with patch.object(policy_clients, "SPARE", 5):
        most = 0
        for number in range(40):
            commit(
                ledger, on(f"m{number}", "anna", f"x{number}"), *([EndCredential(f"m{number - 1}")] if number else [])
            )
            index = builder.index(ledger.version, ledger.version)
            most = max(most, *(len(one.classes) for one in index.policies.values()))
    assert most <= 10
    assert agree(ledger, *plates("x39", "x38")) == [(1, "a")]


def test_more_choices_than_may_be_gone_through_give_nothing_and_keep_out() -> None:
    two = "LoggedOn(a, h) & Tracker(b)"
    texts = f"Seen(u) <= {two} : u != a and u != b\nSeen(_) <= {two}", f"-Seen(u) <= {two} : u = a or u = b\nSeen(_) <="
    for text in texts:
        held = [on(f"m{n}", "anna", f"a{n}", "h") for n in range(4)]
        ledger = world(*held, *(on(f"t{n}", "anna", f"b{n}", role="Tracker") for n in range(4)), policy(text))
        commit(ledger, wish("a", "anna"))
        assert agree(ledger, *plates("zoe")) == [(1, "a")]
        with patch.object(policy_clients, "MAX_CHOICES", 10):
            index = IndexBuilder(ledger).index(0, ledger.version)
        log = appended(ledger, *plates("zoe"))
        blobs = list(decide_appends(Matcher(index, {}), log.batches, DecisionWindow(0, ledger.version)))
        assert [d.seq for blob in blobs for d in read(blob, layouts(ledger.now.types))] == []


def test_what_is_remembered_of_values_is_bounded() -> None:
    ledger = figure()
    log = MemoryLog()
    for start in range(0, 60, 10):
        names = [f"n{start + at}" for at in range(8)]
        log.append("main", ledger.now, micros(NOON), plates("rmn", *names, "akl"))
    with patch.object(policy_events, "MAX_REMEMBERED", 12):
        assert len(agree_on(ledger, log)) == 6 * 5


@examples(150)
@given(st.data())
def test_a_relation_holds_the_tuples_of_its_rows(data: st.DataObject) -> None:
    some = st.sampled_from(("a", "b", 1, 1.0, True, 2, None))
    rows = frozenset(data.draw(st.lists(st.tuples(some, some, some), max_size=8)))
    parts = data.draw(st.sampled_from(([[0], [1], [2]], [[0, 2], [1]], [[1], [0]], [[2]])))
    given_value = data.draw(st.sampled_from((None, "a", 1)))
    given = {2: given_value} if given_value is not None and not any(2 in part for part in parts) else {}
    with patch.object(policy_events, "MAX_TABLE", data.draw(st.sampled_from((1, 100)))):
        relation = Relation(rows, given, parts)
    asked = data.draw(st.lists(st.tuples(some, some, some), min_size=1, max_size=6))
    codes = [np.array(relation.codes(at, asked, part), np.int32) for at, part in enumerate(parts)]
    found = relation.truth(codes)
    places = [place for part in parts for place in part]
    for at, one in enumerate(asked):
        wanted = {place: one[place] for place in places} | given
        expected = any(all(alike(row[place], value) for place, value in wanted.items()) for row in rows)
        unknown = any(one[place] is None for place in places)
        assert (found.true[at], found.false[at]) == ((False, False) if unknown else (expected, not expected))


def alike(a: Value, b: Value) -> bool:
    return a is not None and b is not None and reference(a, b)
