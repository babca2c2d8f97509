"""The checker finds what is wrong, says what happens instead, and leaves good policy alone."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import cleandoc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.decide.constraints import Scene, truth
from headgate.lang.rolefile import parse_event_policy, parse_rolefile
from headgate.model.expressions import AllOf, AnyOf, Compare, Condition, Constant, InRange, InSet, Not, Variable
from headgate.model.limits import MAX_STATEMENTS
from headgate.model.rolefiles import EventPolicy, Rolefile
from headgate.model.state import State
from headgate.roles.rolefiles.checking import check_event_policy, check_rolefile
from headgate.roles.rolefiles.names import MAX_FINDINGS, Finding
from headgate.roles.rolefiles.reach import contradiction
from strategies.rolefiles import event_policies, rolefiles
from strategies.running import examples

LOGIN = parse_rolefile("def LoggedOn(u, h) u : userid h : String")
PASSWORD = parse_rolefile("def Passwd(u, s)")
LOADER = parse_rolefile("def Running(p)")
SERVICES: Mapping[str, Rolefile] = {"Login": LOGIN, "Pw": PASSWORD, "Loader": LOADER}
WORLD: Mapping[str, Any] = {
    "known": SERVICES.get,
    "groups": ("staff", "hosts", "secure"),
    "relations": {"Supervisor": 2, "Home": 2, "Empty": None},
    "functions": ("creator", "finalised"),
    "entry_only": ("creator",),
}


def check(text: str) -> list[Finding]:
    return check_rolefile(parse_rolefile(cleandoc(text)), service="S", **WORLD)


def told(findings: list[Finding]) -> list[tuple[str, int]]:
    return [(one.code, one.line) for one in findings]


GOOD = [
    # OASIS 3.4.1
    """def UseFile(r) r = {rwx}
         UseFile({r})  <- Login.LoggedOn(u, _)
         UseFile({rw}) <- Loader.Running("Space Invaders")*""",
    # 3.4.2, with what its ejection needs
    """
       Chair        <- Login.LoggedOn('rmn', h)
       Candidate(u) <- Login.LoggedOn(u, _) |>* Chair
       Member       <- Candidate(u)* : u in staff
       Member       <- Candidate(u)* <|* Member""",
    # 3.4.3, both versions: precedence by constraint, and by what is needed, is no ambiguity
    """
       def Host(h)
       Login(u)     <- Pw.Passwd(u, 'Login') & Host(h) : h in hosts
       Secure(u)    <- Pw.Passwd(u, 'Login') & Host(h) : h in secure
       Untrusted(u) <- Pw.Passwd(u, 'Login')
       Visitor(?u)  <-""",
    """
       def Login(l, u) l : integer
       def Host(h)
       Login(3, u) <- Pw.Passwd(u, 'Login') & Host(h) : h in secure
       Login(2, u) <- Pw.Passwd(u, 'Login') & Host(h) : h in hosts
       Login(1, u) <- Pw.Passwd(u, 'Login')
       Login(0, ?u) <-""",
    # 3.4.4
    """
       Author <- Login.LoggedOn(u, _) : u <- creator(@instance)
       Editor <- Login.LoggedOn('MrEd', _)
       def Rights(r) r : {eaf}
       Rights({ae}) <- Author : not finalised()*
       Rights({a})  <- Author
       Rights({af}) <- Editor""",
    # used before the statements that define it are reached
    "A <- B\nB <- Login.LoggedOn(u, h)",
    # a relation gives values, and so does `=`
    "A(s) <- Login.LoggedOn(u, h) : Supervisor(u, s) and s in staff",
    "A <- Login.LoggedOn(u, h) : x = Home(u) and not Supervisor(x, u) and not Supervisor(u, _)",
    "A <- Login.LoggedOn(u, h) : (Supervisor(u, x) or x = u) and x in staff and Supervisor() and Empty(1, 2, 3)",
    "A(r) <- Login.LoggedOn(u, h) : r = unixacl('a=rwx', u) and count(A(_)) < 5",
]


@pytest.mark.parametrize("text", GOOD, ids=[str(n) for n in range(len(GOOD))])
def test_good_policy_is_left_alone(text: str) -> None:
    assert check(text) == []


ERRORS: list[tuple[str, str, int, str]] = [
    # text, code, line, in the message
    ("def A(u)\nA <-", "arity", 2, "`A` has 0 arguments here, but 1 by line 1"),
    ("A <- Login.LoggedOn(u, v, w)", "arity", 1, "`Login.LoggedOn` has 3 arguments here, but 2 by its own service"),
    ("A <- : Supervisor('a')", "arity", 1, "`Supervisor` is given 1 arguments, but has 2"),
    ("A(x) <- : x = Home('a', 'b')", "arity", 1, "`Home` is given 2 arguments, but takes 1 to give a value"),
    ("def A(n) n : integer\nA(u) <- Login.LoggedOn(u, h)", "types", 2, "`Login.userid`"),
    ("A(u) <- : u in staf", "unknown-group", 1, "there is no group `staf`"),
    ("A(u) <- : Superviser(u, u)", "unknown-name", 1, "`Superviser` is no role, relation or function here"),
    ("A(u) <- : u = creater(1)", "unknown-name", 1, "`creater` is no role, relation or function here"),
    ("A(u) <- : u = A(1)", "unknown-name", 1, "`A` is a role, which has no value"),
    ("A(u) <- : x < 3", "unbound", 1, "nothing gives `x` a value in `x < 3`"),
    ("A(u) <- : x in staff", "unbound", 1, "nothing gives `x` a value"),
    ("A(u) <- : not Supervisor(u, x)", "unbound", 1, "nothing gives `x` a value in `not Supervisor(u, x)`"),
    ("A(u) <- : Supervisor(u, x) or x in staff", "unbound", 1, "in `x in staff`"),
    ("A(u) <- : (Supervisor(u, x) or u in staff) and x in staff", "unbound", 1, "in `x in staff`"),
    ("A(u) <- : finalised(x)", "unbound", 1, "in `finalised(x)`"),
    ("A(u) <- : x = y", "unbound", 1, "nothing gives `x` a value"),
    ("A(u) <- : u = _", "unbound", 1, "nothing gives `_` a value"),
    ("A(u) <- : (u = creator())*", "star-on-entry", 1, "`creator` is looked at on entry only"),
]


@pytest.mark.parametrize(("text", "code", "line", "message"), ERRORS, ids=[row[0] for row in ERRORS])
def test_an_error_says_what_and_where(text: str, code: str, line: int, message: str) -> None:
    found = [one for one in check(text) if one.severity == "error"]
    assert (code, line) in told(found)
    assert any(message in one.message for one in found)
    assert all(one.remedy for one in found)


def test_what_is_not_known_is_not_checked() -> None:
    text = "A(u) <- Other.B(u) : u in nowhere and Nothing(u, x) and x in nowhere and f(u) = 1"
    assert check_rolefile(parse_rolefile(text), service="S") == []


WARNINGS: list[tuple[str, str, int, str]] = [
    ("A <- B", "undefined-role", 1, "`B` has no statement and no `def`: only `S` itself can give it"),
    ("A <- Login.Off(u)", "undefined-role", 1, "`Login.Off` has no statement and no `def`: only `Login` itself"),
    ("A <- : count(B(_)) < 2", "undefined-role", 1, "`B` has no statement"),
    ("A <- |>* B", "undefined-role", 1, "`B` has no statement"),
    ("A(x) <- : x = 1 and x = 2", "never-applies", 1, "`x = 1` and `x = 2` exclude each other"),
    ("A(x) <- : x = 1 and not x = 1", "never-applies", 1, "`x = 1` must be true and false"),
    ("A(x) <- : x < 3 and (x > 5 or x = 4)", "never-applies", 1, "exclude each other"),
    ("A(x) <- : x in 1..3 and x > 3", "never-applies", 1, "exclude each other"),
    ("A(x) <- : x in 3..1", "never-applies", 1, "`x in 3..1` is never true"),
    ("A(x) <- : x in {'a', 'b'} and x = 'c'", "never-applies", 1, "exclude each other"),
    ("A(x) <- : x in {1, 2} and x != 1 and x != 2", "never-applies", 1, "nothing in `x in {1, 2}` meets the rest"),
    ("A(x) <- : x in {'a'} and x in {'b'}", "never-applies", 1, "exclude each other"),
    ("A(x) <- : x subset {}", "never-applies", 1, "`x subset {}` is never true"),
    ("A(x) <- : {} superset x", "never-applies", 1, "is never true"),
    ("A(x) <- : x = {r} and {w} subseteq x", "never-applies", 1, "exclude each other"),
    ("A(x) <- : x != x", "never-applies", 1, "`x != x` is never true"),
    ("A(x) <- : 1 > 2", "never-applies", 1, "`1 > 2` is never true"),
    ("A <- : false", "never-applies", 1, "it is `false`"),
    ("B(1) <-\nA <- B(2)", "never-applies", 2, "no statement gives `B(2)`"),
    ("B(x, x) <-\nA <- B(1, 2)", "never-applies", 2, "no statement gives `B(1, 2)`"),
    ("A <- B\nB <- A", "never-applies", 1, "every statement that gives `B` needs this one or never applies"),
    ("A <- <|* A", "never-applies", 1, "every statement that gives `A`"),
    ("B <- : 1 = 2\nA <- B", "never-applies", 2, "every statement that gives `B`"),
    ("A(u) <- Login.LoggedOn(u, h)\nA(v) <- Login.LoggedOn(v, x)", "shadowed", 2, "line 1 says the same"),
    ("A(u) <- ; A(v) <-", "shadowed", 1, "line 1 says the same"),
    ("def C\nA <- |> C", "idle-revoker", 2, "`|> C` has no star: revoking `A` bars who is not in it"),
    ("def C\nA <- <| C", "idle-election", 2, "`<| C` has no star: whoever has entered `A` stays"),
    ("def C\nB(u) <- |>* C\nA <- B(u)", "not-followed", 3, "`B(u)` is not starred: revoking it removes nobody"),
]


@pytest.mark.parametrize(("text", "code", "line", "message"), WARNINGS, ids=[row[0] for row in WARNINGS])
def test_a_warning_says_what_happens(text: str, code: str, line: int, message: str) -> None:
    found = check(text)
    assert (code, line) in told(found)
    assert any(message in one.message for one in found if one.code == code)
    assert all(one.severity == "warning" and one.remedy for one in found)


SATISFIABLE = [
    "x = 1 or x = 2", "x != 1 and x != 2", "x < 3 and x > 1", "x <= 3 and x >= 3", "x in 1..3 and x in 3..5",
    "x in {1, 2} and x = 2", "x subseteq {}", "not x subset {}", "x = {r} and {r} subseteq x", "x = x", "1 < 2",
    "x = 1 and y = 2", "not (x = 1 and x = 2)", "x = 1 and (x = 2 or x = 1)", "not x = x or true",
]  # fmt: skip


@pytest.mark.parametrize("text", SATISFIABLE)
def test_what_can_be_true_is_not_called_a_contradiction(text: str) -> None:
    assert "never-applies" not in {one.code for one in check(f"A(x, y) <- : {text}")}


X = Variable("x")
COMPARISONS = st.one_of(
    st.builds(Compare, st.sampled_from(("=", "!=", "<", "<=", ">", ">=")), st.just(X), st.integers(0, 3).map(Constant)),
    st.builds(Compare, st.sampled_from(("=", "!=", "<", "<=", ">", ">=")), st.integers(0, 3).map(Constant), st.just(X)),
    st.builds(InRange, st.just(X), st.integers(0, 3).map(Constant), st.integers(0, 3).map(Constant)),
    st.builds(InSet, st.just(X), st.lists(st.integers(0, 3), min_size=1, max_size=2).map(tuple)),
)
FORMULAS: st.SearchStrategy[Condition] = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda args: AllOf(tuple(args))),
        st.lists(inner, min_size=2, max_size=3).map(lambda args: AnyOf(tuple(args))),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(FORMULAS)
def test_a_contradiction_is_true_for_no_value(formula: Condition) -> None:
    if contradiction(formula) is not None:
        scene = Scene(State())
        assert not [n for n in (-1, 0, 0.5, 1, 1.5, 2, 2.5, 3, 4) if truth(formula, {"x": n}, scene)]


def test_figure_3_2_says_which_wins_and_why() -> None:
    found = check("def Foo\nBas(1) <- Foo\nBas(2) <- Foo\nBar(1) <- Bas(2)\nBar(2) <- Foo")
    assert told(found) == [("ambiguous", 3), ("ambiguous", 5)]
    assert "could have `Bar(2)` by this line gets `Bar(1)` by line 4 through line 3" in found[1].message
    assert "it stands first" in found[1].message


def test_a_statement_that_needs_another_pass_loses() -> None:
    (found,) = check("def Foo\nBar(1) <- Bas(2)\nBar(2) <- Foo\nBas(2) <- Foo")
    assert (found.code, found.line) == ("ambiguous", 2)
    assert "could have `Bar(1)` by this line gets `Bar(2)` by line 3, because it is reached first" in found.message


@pytest.mark.parametrize(
    "text",
    [
        "A(x) <- Foo(x, y)\nA(y) <- Foo(x, y)",
        "A(1) <- Foo(x, _)\nA(2) <- Foo(x, y) & Login.LoggedOn(u, h)",
        "A(1) <- Foo(x, y) : x in staff\nA(2) <- Foo(x, y) : x in staff and y in staff",
        "A(1) <- <|* Foo(x, y)\nA(2) <- <|* Foo('a', y)",
    ],
)
def test_other_arguments_to_the_same_credentials_are_ambiguous(text: str) -> None:
    assert ("ambiguous", 3) in told(check("def Foo(a, b)\n" + text))


@pytest.mark.parametrize(
    "text",
    [
        "A(x) <- Foo(x, y)\nA(u) <- Foo(u, 'b')",
        "A(1) <- Foo('a', y)\nA(2) <- Foo(x, y)",
        "A(1) <- Foo(x, y) : x in staff\nA(2) <- Foo(x, y) : y in staff",
        "A(1) <- Foo(x, y) <|* Foo(_, _)\nA(2) <- Foo(x, y)",
        "A(z) <- Foo(x, y)\nA(w) <- Foo(x, y) : x in staff",
    ],
)
def test_what_can_be_told_apart_is_not_ambiguous(text: str) -> None:
    assert "ambiguous" not in {one.code for one in check("def Foo(a, b)\n" + text)}


def test_the_golf_club_needs_its_first_members() -> None:
    text = """
              def Candidate(p)
              Recommended(p, x) <- Candidate(p) <|* Member(x)
              Member(p) <- Recommended(p, x)* & Recommended(p, y)* : x != y"""
    found = check(text)
    assert told(found) == [("never-applies", 2), ("never-applies", 3)]
    assert "let the service give it to the first" in (found[0].remedy or "")


def test_errors_come_first_and_are_bounded() -> None:
    many = "A(u) <- B(u) : u in nowhere;" * (MAX_STATEMENTS - 2)
    found = check("C <- D\n" + many + "\nA(u) <- : u in nowhere")
    assert found[0].severity == "error"
    assert len(found) <= MAX_FINDINGS


@examples(30, soak=75)
@given(rolefiles())
def test_any_rolefile_is_checked(rolefile: Rolefile) -> None:
    for one in check_rolefile(rolefile, service="S", **WORLD):
        assert str(one.message).isprintable()


# -- event policy ---------------------------------------------------------------------------------------------

EVENTS: Mapping[str, Any] = {
    "types": {"badge.Seen": ("user", "room"), "a.Moved": (), "b.Moved": (), "Plain": ("x",)},
    "services": {"Login": LOGIN, "Far": None, "Other": parse_rolefile("Two(1) <- ; LoggedOn <-")},
    "groups": ("staff", "student"),
    "relations": {"Supervisor": 2, "Home": 2},
}


def check_events(text: str) -> list[Finding]:
    return check_event_policy(parse_event_policy(text), **EVENTS)


GOOD_EVENTS = [
    "Seen(u, r) <= Login.LoggedOn(s, h) : Supervisor(u, s)",
    "badge.Seen(u) <= : u in student\nSeen('rmn', r) <= Login.LoggedOn('akl', h)",
    "Seen(u, r) <= Far.Anything(u) : Home(u) = 'CL'",
    "Seen(u, r) <= : x = Home(u) and not x in staff",
    "-Seen(u, r) <= : u in staff\nSeen(u, r) <=",
    "Plain(x) <=\nSeen(u, r) <= Login.LoggedOn(u, h)",
    "Seen('a', r) <=\nSeen('b', r) <=\nSeen(u, u) <=\nSeen(u, r) <= : u in staff",
]


@pytest.mark.parametrize("text", GOOD_EVENTS)
def test_good_event_policy_is_left_alone(text: str) -> None:
    assert check_events(text) == []


EVENT_FINDINGS: list[tuple[str, str, str, int, str]] = [
    ("Sean(u) <=", "error", "unknown-event", 1, "there is no event type `Sean`"),
    ("Moved <=", "error", "ambiguous-event", 1, "`a.Moved` or `b.Moved`"),
    ("Seen(u, r, x) <=", "error", "arity", 1, "`Seen` has 2 parameters, not 3"),
    ("Seen(u, r) <= : u in staf", "error", "unknown-group", 1, "no group `staf`"),
    ("Seen(u, r) <= : Superviser(u, r)", "error", "unknown-name", 1, "`Superviser`"),
    ("Seen(u, r) <= : Supervisor(u)", "error", "arity", 1, "`Supervisor`"),
    ("Seen(u, r) <= : not Supervisor(u, x)", "error", "unbound", 1, "nothing gives `x` a value"),
    ("Seen(u, r) <= : Supervisor(u, x)", "error", "unbound", 1, "nothing gives `x` a value"),
    ("Seen(u, r) <= LoggedOn", "error", "ambiguous-role", 1, "a role of `Login` and of `Other`"),
    ("Seen(u, r) <= Login.Off", "warning", "undefined-role", 1, "`Off` is no role of `Login`"),
    ("Seen(u, r) <= Nowhere.X", "warning", "undefined-role", 1, "`X` is no role of `Nowhere`"),
    ("Seen(u, r) <= Other.Two(2)", "warning", "never-applies", 1, "no statement of `Other` gives `Other.Two(2)`"),
    ("Seen(u, r) <= : u = 'a' and u = 'b'", "warning", "never-applies", 1, "exclude each other"),
    ("Seen(u, r) <=\nSeen('a', r) <= : r in staff", "warning", "hidden", 2, "line 1 gives everyone"),
    ("-Seen <=\nSeen(u, r) <= Login.LoggedOn(u, h)", "warning", "hidden", 2, "line 1 forbids everyone"),
    ("Seen(u, r) <= : u in staff\nSeen(a, b) <= : a in staff", "warning", "hidden", 2, "line 1 says the same"),
    ("-Seen(u, r) <= Login.LoggedOn(s, h) : s in student\nSeen(u, r) <= : u in staff",
     "warning", "not-shown", 1, "line 2 does not ask for that"),
    ("-Seen(u, r) <= Login.LoggedOn(s, h) : s in student\nSeen(u, r) <= Login.LoggedOn(s, h) : s in staff",
     "warning", "not-shown", 1, "can show only the one"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "severity", "code", "line", "message"), EVENT_FINDINGS, ids=[row[0] for row in EVENT_FINDINGS]
)
def test_what_is_found_in_event_policy(text: str, severity: str, code: str, line: int, message: str) -> None:
    found = [one for one in check_events(text) if one.code == code]
    assert [(one.severity, one.line) for one in found] == [(severity, line)]
    assert message in found[0].message
    assert found[0].remedy


def test_a_negative_entry_with_nothing_allowed_after_it_holds_nobody_back() -> None:
    assert check_events("-Seen(u, r) <= Login.LoggedOn(s, h)") == []


def test_how_to_write_it_positively() -> None:
    (found,) = check_events("-Seen(u, r) <= Login.LoggedOn(s, h) : s in student\nSeen(u, r) <= : u in staff")
    assert "add `not (...)` with its condition to entries below" in (found.remedy or "")


@examples(40, soak=100)
@given(event_policies())
def test_any_event_policy_is_checked(policy: EventPolicy) -> None:
    for one in check_event_policy(policy, **EVENTS):
        assert str(one.message).isprintable()
