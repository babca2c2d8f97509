"""Literals of object types are as the function of that name reads them, wherever a statement writes one."""

from __future__ import annotations

import pytest

from headgate.lang.render import render_statement
from headgate.lang.rolefile import parse_rolefile
from headgate.model.errors import BadDefinition
from headgate.roles.rolefiles.types import read_literals

LOGIN = parse_rolefile("def LoggedOn(u, h)  u : userid  h : String")


def userid(text: str) -> str:
    if not text.isalpha():
        raise ValueError("letters only")
    return text.lower()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Chair <- Login.LoggedOn('JMB', 'ELY')", "Chair <- Login.LoggedOn('jmb', 'ELY')"),
        ("A(u) <- Login.LoggedOn(u, h) : u != 'JMB'", "A(u) <- Login.LoggedOn(u, h) : u != 'jmb'"),
        ("A <- Login.LoggedOn(u, h) : (u in {'A', 'B'})*", "A <- Login.LoggedOn(u, h) : (u in {'a', 'b'})*"),
        ("A <- Login.LoggedOn(u, h) : not 'JMB' = u", "A <- Login.LoggedOn(u, h) : not 'jmb' = u"),
        ("A <- Login.LoggedOn(u, h) : h = 'ELY'", "A <- Login.LoggedOn(u, h) : h = 'ELY'"),
        ("A <- <| Login.LoggedOn('JMB')", "A <- <| Login.LoggedOn('jmb')"),
        ("A <- B |>* Login.LoggedOn('JMB')", "A <- B |>* Login.LoggedOn('jmb')"),
        ("A <- Other.LoggedOn('JMB')", "A <- Other.LoggedOn('JMB')"),
    ],
)
def test_a_literal_is_read_by_its_service(text: str, read: str) -> None:
    (found,) = read_literals(parse_rolefile(text), {"Login": LOGIN}, {"userid": userid}).statements
    assert render_statement(found) == render_statement(parse_rolefile(read).statements[0])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("A(t) <- : @time < t\nB <- A('2026-01-01T10:00:00+01:00')", "B <- A(timestamp '2026-01-01T09:00:00Z')"),
        ("A(s) <- : timeofday(@time) < s\nB <- A('08:00')", "B <- A(28800)"),
        ("A <- B\nC(d) <- : weekday(@time) = d and d in {'Mon', 2}",
         "C(d) <- : weekday(@time, 'UTC') = d and d in {1, 2}"),
        ("A <- B\nC(t) <- : t in '2026-01-01T09:00:00Z'..@time",
         "C(t) <- : t in timestamp '2026-01-01T09:00:00Z'..@time"),
    ],
)  # fmt: skip
def test_text_where_a_time_is_expected_is_that_time(text: str, read: str) -> None:
    _, found = read_literals(parse_rolefile(text), {}, {}).statements
    assert render_statement(found) == read


def test_an_imported_type_is_read_for_a_role_of_ones_own() -> None:
    text = "import Login.userid\ndef Member(u)  u : userid\nMember('DM') <- Login.LoggedOn('DM')"
    (found,) = read_literals(parse_rolefile(text), {"Login": LOGIN}, {"userid": userid}).statements
    assert render_statement(found) == "Member('dm') <- Login.LoggedOn('dm')"


def test_what_the_service_does_not_take_is_refused_with_its_line() -> None:
    text = "A <- Login.LoggedOn('dm')\nB <- Login.LoggedOn('d m')"
    with pytest.raises(BadDefinition, match="letters only") as refused:
        read_literals(parse_rolefile(text), {"Login": LOGIN}, {"userid": userid})
    assert refused.value.place == "line 2"
