"""Roles and the clock: what ends, and what turns, does so at its moment, before anything is decided at or after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from headgate.commands.expiry import StandingClock
from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import (
    AddMember,
    AddRule,
    Advertise,
    DeclareGroup,
    DeclarePrincipal,
    DeclareType,
    EnterRole,
    GrantRole,
    RemoveMember,
    SetRolefile,
)
from headgate.model.expressions import RoleRef
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain, Follower
from unit.commands.test_expiry import BEGIN, END, MOMENT, Clock, commit, send


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[Domain]:
    with Domain.create(tmp_path / "d") as made:
        yield made


def office(domain: Domain, statement: str, until: datetime | None = None) -> None:
    """Till may sell while it holds a role, which it entered at the beginning."""
    sells = Rule("sells", "", frozenset({Action.PUBLISH}), "shop.Sale", role=RoleRef("Seller", (), "Shop"))
    commit(
        domain,
        DeclarePrincipal("till"),
        DeclareType(EventType("shop.Sale", ADMINISTRATOR, {"amount": Kind.FLOAT})),
        DeclareGroup("staff"),
        AddMember("staff", "till"),
        AddRule(sells),
        SetRolefile("Shop", parse_rolefile(statement)),
        GrantRole("on", "Login", "On", (), "till", until=until),
        EnterRole("seller", "Shop", "Seller", None, "till", None, BEGIN),
    )
    commit(domain, Advertise("till", "shop.Sale"))


def holds(domain: Domain) -> set[str]:
    return {one.role for one in domain.ledger.state().roles.held_by("till")}


@pytest.mark.parametrize("columns", [False, True])
def test_up_to_its_very_end_a_role_lets_publish_and_from_then_on_it_does_not(domain: Domain, columns: bool) -> None:
    office(domain, "Seller <- Login.On*", END)
    before = domain.ledger.version
    found = asyncio.run(send(domain, Clock(), [BEGIN, END - MOMENT, END, END + MOMENT], columns=columns))
    assert [one.accepted for one in found] == [1, 1, 0, 0]
    assert domain.ledger.version == before + 1
    assert holds(domain) == set()


def test_a_condition_on_the_clock_ends_a_role_at_its_moment(domain: Domain) -> None:
    office(domain, "Seller <- Login.On : (timeofday(@time, 'UTC') < 60)*")
    found = asyncio.run(send(domain, Clock(), [BEGIN, END - MOMENT, END]))
    assert [one.accepted for one in found] == [1, 1, 0]
    assert holds(domain) == {"On"}


def test_what_the_clock_turned_without_taking_anything_is_known_when_something_else_falls(domain: Domain) -> None:
    office(domain, "Seller <- Login.On : (timeofday(@time, 'UTC') < 60 or @client in staff)*")
    clock = Clock()
    follower = Follower(domain)
    standing = StandingClock(domain, follower, clock)
    standing.settle()
    clock.now = END
    assert standing.due(follower.state, clock.now)
    assert standing.settle()
    assert holds(domain) == {"On", "Seller"}
    commit(domain, RemoveMember("staff", "till"))
    assert holds(domain) == {"On"}
    follower.close()


def test_the_clock_looks_once_at_what_it_cannot_change(domain: Domain) -> None:
    office(domain, "Seller <- Login.On*")
    clock = Clock()
    follower = Follower(domain)
    standing = StandingClock(domain, follower, clock)
    assert standing.due(follower.state, clock.now)  # nobody knows what turned before this gateway began
    before = domain.ledger.version
    assert not standing.settle()
    clock.now = END
    assert not standing.due(follower.state, clock.now)
    assert domain.ledger.version == before
    follower.close()


def test_of_two_gateways_one_ends_a_role_and_the_other_finds_nothing_left(domain: Domain) -> None:
    office(domain, "Seller <- Login.On : (timeofday(@time, 'UTC') < 60)*")
    clocks = [Clock(), Clock()]
    followers = [Follower(domain), Follower(domain)]
    ours, theirs = (StandingClock(domain, *each) for each in zip(followers, clocks, strict=True))
    for one in (ours, theirs):
        one.settle()
    before = domain.ledger.version
    clocks[0].now = END
    assert ours.settle()
    assert not theirs.settle()  # its clock is behind: what has ended is not brought back
    clocks[1].now = END
    assert not theirs.settle()
    assert domain.ledger.version == before + 1
    for one in followers:
        one.close()
