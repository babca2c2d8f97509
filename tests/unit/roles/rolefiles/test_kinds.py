"""Kinds that never compare are refused when event policy, a rule for a role or what they rest on is accepted (D2)."""

from __future__ import annotations

import pytest

from headgate.decide.apply import apply
from headgate.lang.parse import parse_condition
from headgate.lang.rolefile import parse_event_policy, parse_rolefile
from headgate.model.changes import (
    AddRow,
    AddRule,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    RemoveRepresentative,
    SetEventPolicy,
    SetRepresentative,
    SetRolefile,
)
from headgate.model.errors import BadDefinition
from headgate.model.expressions import Apply, ClockPart, RoleRef, Variable
from headgate.model.rights import Action, Rule
from headgate.model.rolefiles import Representative
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.roles.requests.transition import next_state
from headgate.roles.rolefiles.checking import check_event_policy
from headgate.roles.rolefiles.kinds import parameter_kinds, role_kinds

ROLES = "def R(u, n, s) u : String n : Integer s : {rw}\ndef Open(a)\ndef Who(i) i : userid"
ATTRIBUTES = {"x": Kind.INT, "f": Kind.FLOAT, "t": Kind.STRING, "at": Kind.TIMESTAMP, "b": Kind.BOOL}


def made(state: State, *changes: Change, author: str = ADMINISTRATOR) -> State:
    return next_state(state, Batch(author, changes))


def world() -> State:
    return made(
        State(),
        DeclarePrincipal("o", {}),
        DeclareGroup("staff"),
        DeclareRelation("Badge"),
        AddRow("Badge", (1, "ann")),
        DeclareType(EventType("t.E", "o", ATTRIBUTES)),
        SetRolefile("S", parse_rolefile(ROLES)),
    )


def policy(text: str) -> SetEventPolicy:
    return SetEventPolicy(parse_event_policy(text))


def rule(where: str, role: RoleRef | None = None, *, type: str = "t.E", id: str = "r1") -> AddRule:
    role = role or RoleRef("R", (Variable("u"), Variable("n"), Variable("s")), "S")
    return AddRule(Rule(id, "", frozenset({Action.SUBSCRIBE}), type, where=parse_condition(where), role=role))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("E(u) <= S.R(u)", "`u` joins int (`x` of `t.E`) with string (argument 1 of `S.R`)"),
        ("E(_, _, u) <= S.R(_, u)", "`u` joins string (`t` of `t.E`) with int (argument 2 of `S.R`)"),
        ("E(u) <= S.Who(u)", "`u` joins int (`x` of `t.E`) with string (argument 1 of `S.Who`)"),
        ("E(u) <= S.R(_, _, u)", "with set (argument 3 of `S.R`)"),
        ("E <= S.R(u, u)", "`u` joins string (argument 1 of `S.R`) with int (argument 2 of `S.R`)"),
        ("E <= S.R(3)", "`3` joins int (`3`) with string (argument 1 of `S.R`)"),
        ("E('one') <=", "`'one'` joins string (`'one'`) with int (`x` of `t.E`)"),
        ("E(u, _, u) <=", "`u` joins int (`x` of `t.E`) with string (`t` of `t.E`)"),
        ("E(u) <= : u = 'one'", "`u = 'one'` compares int (`x` of `t.E`) with string (`'one'`)"),
        ("E(u) <= : not (u < 3 or u != 'one')", "`u != 'one'` compares int"),
        ("E(u) <= : u in staff", "`u in staff` needs text, and `x` of `t.E` is int"),
        ("E(u) <= : u in {'a', 'b'}", "compares int (`x` of `t.E`) with string (`'a'`)"),
        ("E(u) <= : u in 'a'..'b'", "compares int (`x` of `t.E`) with string (`'a'`)"),
        ("E(u) <= : u starts with 'a'", "needs text, and `x` of `t.E` is int"),
        ("E(u) <= : @time = u", "compares timestamp (`@time`) with int (`x` of `t.E`)"),
        ("E(u) <= : weekday(u) = 1", "needs a timestamp, and `x` of `t.E` is int"),
        ("E(_, _, _, a) <= : a - 60 < 3", "compares timestamp (`a - 60`) with int (`3`)"),
        ("E(_, _, _, a) <= : Badge(1) - a < @time", "compares int (`Badge(1) - a`) with timestamp (`@time`)"),
        ("E(_, _, u) <= : u + 1 = 2", "needs integers, and `t` of `t.E` is string"),
        ("E <= S.R(_, _, s) : s = 'rw'", "compares set (argument 3 of `S.R`) with string (`'rw'`)"),
        ("E <= S.R(u) : u subset {r}", "needs sets, and argument 1 of `S.R` is string"),
        ("E(u) <= : y = u and y = 'one'", "compares int (`x` of `t.E`) with string (`'one'`)"),
    ],
)
def test_an_entry_that_mixes_kinds_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(BadDefinition) as refused:
        made(world(), policy(f"E <=\n{text}"))
    assert refused.value.message.startswith("event policy, line 2: ")
    assert said in refused.value.message
    assert refused.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "E(u) <= S.R(_, u)",
        "E(_, u) <= S.R(_, u) : u = 3",
        "E(u) <= S.Open(u) : u < 3",
        "E(u) <= S.Open(u) & S.R(_, u)",
        "E(u) <= S.Nobody(u)",
        "E(u) <= Elsewhere.R(u)",
        "E(_, _, u) <= S.R(u) : u in staff and u has token 'a'",
        "E <= S.R(_, _, s) : s subseteq {rw} and s = {r}",
        "E(u) <= : Badge(u) = 'ann' and Badge(u) != 3",
        "E(_, _, _, a) <= : weekday(a) = 1 and a < @time",
        "E(_, _, _, a) <= : a - Badge(1) < 60 and Badge(1) - a < 60 and a - 60 < Badge(2) + 60",
        "E(u, w) <= : u = w and u in 1..3 and u + 1 = w",
        "E(_, _, _, _, b) <= : b = true",
    ],
)
def test_an_entry_whose_kinds_go_together_or_are_not_known_is_accepted(text: str) -> None:
    assert made(world(), policy(text)).roles.policy.entries


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("x = $u", "`x = $u` compares int (`x` of `t.E`) with string (argument 1 of `S.R`)"),
        ("not x < $u", "compares int"),
        ("t = $n", "compares string (`t` of `t.E`) with int (argument 2 of `S.R`)"),
        ("x = $s", "with string (argument 3 of `S.R`)"),
        ("$u in {1, 2}", "compares string (argument 1 of `S.R`) with int (`1`)"),
        ("x in 1..$u", "compares int (`x` of `t.E`) with string"),
        ("$n in group staff", "needs text, and argument 2 of `S.R` is int"),
        ("t starts with $n", "needs text, and argument 2 of `S.R` is int"),
        ("@time < $n", "compares timestamp (`@time`) with int"),
    ],
)
def test_a_rule_that_mixes_kinds_is_refused_by_its_id(where: str, said: str) -> None:
    with pytest.raises(BadDefinition) as refused:
        made(world(), rule(where))
    assert refused.value.message.startswith("rule `r1` on `t.E`: ")
    assert said in refused.value.message
    assert refused.value.remedy


@pytest.mark.parametrize("where", ["x = $n", "f < $n", "t = $u", "t = $s", "x = $clearance", "$u in group staff"])
def test_a_rule_whose_kinds_go_together_is_accepted(where: str) -> None:
    assert made(world(), rule(where)).rules


def test_a_constant_and_an_instance_in_the_role_of_a_rule_have_their_kinds() -> None:
    with pytest.raises(BadDefinition, match="joins"):
        made(world(), rule("true", RoleRef("R", (Variable("u"), Variable("u")), "S")))
    with pytest.raises(BadDefinition, match="the instance of `S`"):
        made(world(), rule("x = $i", RoleRef("R", (), "S", Variable("i"))))


def test_a_rolefile_that_breaks_a_stored_entry_or_rule_is_refused_and_names_it() -> None:
    changed = SetRolefile("S", parse_rolefile("def R(u, n, s) u : String n : String s : {rw}"))
    with pytest.raises(BadDefinition, match="event policy, line 1: `u` joins int"):
        made(made(world(), policy("E(u) <= S.R(_, u)")), changed)
    with pytest.raises(BadDefinition, match=r"rule `r1` on `t\.E`"):
        made(made(world(), rule("x = $n")), changed)


def test_a_rolefile_that_breaks_what_another_service_infers_is_refused() -> None:
    start = made(world(), SetRolefile("T", parse_rolefile("Q(v) <- S.R(_, v, _)")), policy("E(u) <= T.Q(u)"))
    with pytest.raises(BadDefinition, match=r"argument 1 of `T\.Q`"):
        made(start, SetRolefile("S", parse_rolefile("def R(u, n, s) n : String")))


def test_what_is_stored_does_not_make_other_batches_fail() -> None:
    start = world()
    for change in (policy("E(u) <= S.R(u)"), rule("x = $u")):
        start = apply(start, Batch(ADMINISTRATOR, (change,)))  # as if accepted before kinds were looked at
    after = made(
        start,
        DeclareType(EventType("t.F", "o", {"y": Kind.INT})),
        DeclareType(EventType("t.E", "o", {**ATTRIBUTES, "more": Kind.INT})),
        SetRolefile("S", parse_rolefile(f"{ROLES}\ndef Another(z)")),
        rule("x = $n", id="r2"),
    )
    assert len(after.rules) == 2
    with pytest.raises(BadDefinition, match="line 1"):
        made(after, policy("E(u) <= S.R(u)"))


def test_a_new_type_that_a_rule_by_pattern_does_not_fit_is_refused() -> None:
    start = made(world(), rule("y = $u", type="t.*"))
    clashing = DeclareType(EventType("t.F", "o", {"y": Kind.INT}))
    with pytest.raises(BadDefinition, match=r"rule `r1` on `t\.F`"):
        made(start, clashing)
    made(start, DeclareType(EventType("t.F", "o", {"y": Kind.STRING})))


def test_a_type_whose_author_may_not_read_the_rule_hears_no_more_than_that_there_is_one() -> None:
    install = AddRule(Rule("i", "o", frozenset({Action.INSTALL}), "t.*"))
    start = made(world(), install, rule("y = $u", type="t.*"))
    with pytest.raises(BadDefinition) as refused:
        made(start, DeclareType(EventType("t.E", "o", {**ATTRIBUTES, "y": Kind.INT})), author="o")
    assert "r1" not in str(refused.value)
    assert "a rule that covers `t.E`" in refused.value.message


def test_a_representative_gives_kinds_or_takes_them_away() -> None:
    looked_up = SetRepresentative(Representative("t.E", (("user", Apply("Badge", (Variable("x"),))),)))
    start = made(world(), looked_up, policy("E(u) <= S.R(u)"))
    assert parameter_kinds(start, "t.E")[0] is None
    with pytest.raises(BadDefinition, match="line 1"):
        made(start, RemoveRepresentative("t.E"))
    with pytest.raises(BadDefinition, match=r"`day` of the representative of `t\.E`: .* needs a timestamp"):
        made(world(), SetRepresentative(Representative("t.E", (("day", ClockPart("weekday", Variable("x"))),))))


def test_the_checker_finds_the_same() -> None:
    state = world()
    kinds = {"t.E": parameter_kinds(state, "t.E")}
    types = {"t.E": tuple(ATTRIBUTES)}
    said = parse_event_policy("E(u) <= R(u)\nE(u) <= : y = u and y = 'one'\nE(u) <= S.R(_, u)")
    found = check_event_policy(said, types=types, services=state.roles.rolefiles, kinds=kinds)
    assert [(one.severity, one.line) for one in found if one.code == "kinds"] == [("error", 1), ("error", 2)]
    assert "argument 1 of `S.R`" in found[0].message
    unknown = check_event_policy(said, types=types, services=state.roles.rolefiles)
    assert not [one for one in unknown if one.code == "kinds"]


def test_a_role_that_nothing_defines_has_no_kinds() -> None:
    kinds = role_kinds(world().roles.rolefiles)
    assert kinds(RoleRef("Nobody", (), "S")) == ()
    assert kinds(RoleRef("R", (), "Elsewhere")) == ()
    assert kinds(RoleRef("Open", (), "S")) == (None,)
