"""What stands in one batch is judged together: rolefiles, the names they use, and event policy."""

from __future__ import annotations

import pytest

from headgate.lang.rolefile import parse_event_policy, parse_rolefile
from headgate.model.changes import (
    AddMember,
    Batch,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    EnterRole,
    GrantRole,
    RemoveGroup,
    SetEventPolicy,
    SetRolefile,
)
from headgate.model.errors import BadDefinition, RoleDenied
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import EPOCH, Kind
from headgate.roles.requests.transition import Outcome, transition

ASKS_GROUP = parse_rolefile("Member(u) <- Login.LoggedOn(u) : (u in g)*")


def after(state: State, *changes: object) -> Outcome:
    return transition(state, Batch(ADMINISTRATOR, changes))  # type: ignore[arg-type]


def test_a_group_goes_with_the_rolefile_that_names_it() -> None:
    state = after(State(), DeclareGroup("g"), SetRolefile("S", ASKS_GROUP)).after
    with pytest.raises(BadDefinition, match="the rolefile of `S` names the group `g`"):
        after(state, RemoveGroup("g"))
    with pytest.raises(BadDefinition, match="names the group `g`"):
        after(state, RemoveGroup("g"), SetRolefile("T", ASKS_GROUP))
    assert "g" not in after(state, RemoveGroup("g"), SetRolefile("S", parse_rolefile("Member(u) <-"))).after.groups
    assert "S" not in after(state, RemoveGroup("g"), SetRolefile("S", None)).after.roles.rolefiles


def test_event_policy_knows_the_rolefiles_that_come_with_it() -> None:
    seen = EventType("badge.Seen", ADMINISTRATOR, {"user": Kind.STRING})
    policy = parse_event_policy("Seen(u) <= LoggedOn(u)")
    made = after(
        State(), DeclareType(seen), SetEventPolicy(policy), SetRolefile("Login", parse_rolefile("def LoggedOn(u)"))
    )
    (entry,) = made.after.roles.policy.entries
    assert entry.credentials[0].service == "Login"


def test_a_request_that_is_refused_at_once_leaves_the_book_as_it_was() -> None:
    people = [DeclarePrincipal("ann"), DeclarePrincipal("bob"), DeclareGroup("g"), AddMember("g", "ann")]
    first = after(State(), *people, SetRolefile("S", ASKS_GROUP), GrantRole("on", "Login", "LoggedOn", ("ann",), "ann"))
    asked = EnterRole("in", "S", "Member", None, "bob", None, EPOCH)
    with pytest.raises(RoleDenied):
        transition(first.after, Batch(ADMINISTRATOR, (asked,)), book=first.book)
    assert first.book is not None
    assert first.book.version == first.after.version
    entered = EnterRole("in", "S", "Member", None, "ann", None, EPOCH)
    kept = transition(first.after, Batch(ADMINISTRATOR, (entered,)), book=first.book)
    assert kept.after == after(first.after, entered).after
