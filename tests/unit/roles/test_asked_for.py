"""Head arguments that whoever enters may name as it likes are warned of, unless they are written as asked for."""

from __future__ import annotations

import pytest

from headgate.lang.render import render_rolefile
from headgate.lang.rolefile import parse_rolefile
from headgate.model.errors import BadExpression
from headgate.roles.rolefiles.checking import check_rolefile


def asked(text: str) -> list[str]:
    found = check_rolefile(parse_rolefile(text), service="S", relations={"Assigned": 2}, functions=["f"])
    return [one.message for one in found if one.code == "asked-for"]


@pytest.mark.parametrize(
    "text",
    [
        "Treats(d, p) <- Login.On(d)* : (d in doctors)*",
        "Visitor(p) <-",
        "A(d, p) <- Login.On(d) : p in patients",
        "A(d, p) <- Login.On(d) : Assigned(d, p) or d = 'amy'",
        "A(d, p) <- Login.On(d) : not Assigned(d, p)",
        "A(d, p) <- Login.On(d) : f(p)",
    ],
)
def test_what_nothing_gives_a_value_is_warned_of(text: str) -> None:
    (message,) = asked(text)
    assert message.startswith("nothing gives `p` of")


@pytest.mark.parametrize(
    "text",
    [
        "Treats(d, ?p) <- Login.On(d)* : (d in doctors)*",
        "A(d, p) <- Login.On(d) : Assigned(d, p)*",
        "A(d, p) <- Login.On(d) : p = f(d)",
        "A(d, p) <- Login.On(d, p)",
        "A(u, p) <- Login.On(u) <| Chair",
        "A(d, 'p') <- Login.On(d)",
    ],
)
def test_what_is_given_a_value_or_asked_for_is_not(text: str) -> None:
    assert asked(text) == []


def test_the_mark_is_kept_and_stands_before_variables_only() -> None:
    text = "A(d, ?p) <- Login.On(d)\n"
    assert render_rolefile(parse_rolefile(text)) == text
    for wrong in ("A(?'p') <-", "A(?_) <-", "A(?@time) <-", "A <- B(?p)"):
        with pytest.raises(BadExpression):
            parse_rolefile(wrong)


def test_an_audit_of_no_role_is_an_error() -> None:
    (found,) = [one for one in check_rolefile(parse_rolefile("audit B\nA <-"), service="S") if one.severity == "error"]
    assert (found.code, found.line) == ("unknown-role", 1)
