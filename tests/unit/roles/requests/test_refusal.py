"""A refusal of a role says which statement came nearest, as far as the client may know."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import (
    AddMember,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    EnterRole,
    GrantRole,
    SetRolefile,
)
from headgate.model.errors import RoleDenied
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.requests.transition import next_state

NOW = datetime(2026, 1, 1, 9, tzinfo=UTC)
ROLEFILE = """
Nurse(u)     <- Login.On(u, h)* & Badge.Has(u) : u in staff and h != 'console'
Doctor(u)    <- Login.On(u, h) : u in staff and u in doctors
Doctor(u)    <- Login.On(u, h) & Badge.Has(u) & Badge.Key(u, 'gold')
Member(u)    <- Login.On(u, h) <| Nurse(n)
Reads(u, p)  <- Login.On(u, h) : Treats(u, p)
Seven(u, 7)  <- Login.On(u, h)
Later(u)     <- Login.On(u, h) : @origin = 'ward'
"""


def begun(*more: Change) -> State:
    changes: tuple[Change, ...] = (
        DeclarePrincipal("amy"),
        DeclareGroup("staff", True),
        DeclareGroup("doctors"),
        DeclareRelation("Treats"),
        SetRolefile("Ward", parse_rolefile(ROLEFILE)),
        GrantRole("on", "Login", "On", ("amy", "ely"), "amy"),
    )
    return next_state(State(), Batch(ADMINISTRATOR, (*changes, *more)))


def refused(state: State, role: str, args: tuple[object, ...] | None = None) -> RoleDenied:
    asked = EnterRole("e", "Ward", role, args, "amy", None, NOW)  # type: ignore[arg-type]
    with pytest.raises(RoleDenied) as denied:
        next_state(state, Batch(ADMINISTRATOR, (asked,)))
    assert denied.value.failure == "credentials"
    return denied.value


def test_a_credential_that_was_not_shown() -> None:
    denied = refused(begun(), "Nurse")
    assert denied.details == {"line": "2", "part": "credential", "number": "2", "truth": "false", "what": "Badge.Has"}
    assert "line 2 came nearest, and its credential 2 (`Badge.Has`) is not among what was shown" in denied.message


def test_the_statement_with_the_least_missing_is_named() -> None:
    one = refused(begun(AddMember("staff", "amy")), "Doctor")
    assert (one.details["line"], one.details["part"]) == ("3", "condition")
    badge = GrantRole("b", "Badge", "Has", ("amy",), "amy")
    other = refused(begun(badge), "Doctor")
    assert (other.details["line"], other.details["part"], other.details["number"]) == ("4", "credential", "3")
    assert "gold" not in str(other)
    assert other.for_authors is not None
    assert "'gold'" in other.for_authors


def test_a_condition_is_told_only_where_its_names_are_open() -> None:
    badge = GrantRole("b", "Badge", "Has", ("amy",), "amy")
    told = refused(begun(badge), "Nurse")
    assert told.details["what"] == "u in staff"
    hidden = refused(begun(AddMember("staff", "amy")), "Doctor")
    assert hidden.details["what"] == "a condition that you may not see"
    assert "doctors" not in str(hidden)
    assert hidden.for_authors is not None
    assert "`u in doctors`" in hidden.for_authors
    relation = refused(begun(), "Reads", ("amy", "p"))
    assert (relation.details["truth"], relation.details["what"]) == ("false", "a condition that you may not see")


def test_unknown_is_told_apart_from_false() -> None:
    assert refused(begun(), "Later").details["truth"] == "unknown"


def test_an_elector_who_has_not_elected() -> None:
    denied = refused(begun(), "Member")
    assert (denied.details["part"], denied.details["what"]) == ("elector", "Nurse")


def test_arguments_that_no_statement_gives() -> None:
    assert refused(begun(), "Seven", ("amy", 8)).details["part"] == "arguments"
