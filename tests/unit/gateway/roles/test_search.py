"""Requests for roles that are searched before the ledger is held: the search says what the ledger would, and costs."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from base64 import b32encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given

from headgate.commands.roles import id_secret
from headgate.decide.constraints import Budget
from headgate.lang.rolefile import parse_rolefile
from headgate.model.changes import (
    Batch,
    DeclarePrincipal,
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    ReinstateRole,
    RevokeRole,
    RoleRequest,
    SetRolefile,
)
from headgate.model.errors import HeadgateError, RoleDenied
from headgate.model.limits import MAX_ELECTIONS, MAX_ENTRY_STEPS
from headgate.model.state import ADMINISTRATOR, State
from headgate.roles.requests import entry
from headgate.roles.requests.entry import Holders, Known, SearchedEntry, SearchRequest
from headgate.roles.requests.transition import transition
from headgate.trust.keys import PrivateKey
from strategies.role_serving import Office, office
from strategies.roles import Walk, walks
from strategies.running import examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = (EnterRole, ElectRole, RevokeRole, ReinstateRole)
VISITS = """
def Visited(a) a : Integer
Visited(a) <-
Never(a) <- Visited(a) & Visited(b) & Visited(c) : a = -1 and b = c
Goal(a) <- Visited(a)
"""


def tried(state: State, *asked: SearchRequest, budget: Budget | None = None) -> HeadgateError | None:
    try:
        Known(state, Holders(), {}, budget or Budget(MAX_ENTRY_STEPS)).run(asked)
    except HeadgateError as error:
        return error
    return None


def carried_out(state: State, *asked: SearchRequest) -> HeadgateError | None:
    try:
        transition(state, Batch(ADMINISTRATOR, asked), now=NOW)
    except HeadgateError as error:
        return error
    return None


def facts(error: HeadgateError | None) -> tuple[object, ...]:
    if error is None:
        return ()
    return error.code, error.message, error.failure if isinstance(error, RoleDenied) else None


# -- what it says -----------------------------------------------------------------------------------------------


@given(walks())
@examples(12, soak=30)
def test_what_the_trial_refuses_the_ledger_refuses_for_the_same_reason(walk: Walk) -> None:
    for step in walk.steps(6, 10):
        state = step.outcome.after
        for _ in range(6):
            asked = walk.request(state)
            if not isinstance(asked, ASKED):
                continue
            found, wanted = tried(state, asked), carried_out(state, asked)
            if found is not None:
                assert wanted is not None, (asked, found)
                known = asked.principal in state.principals and "already names" not in wanted.message
                if known and not by_the_clock(wanted):
                    assert facts(found) == facts(wanted)
            elif isinstance(wanted, RoleDenied):  # only the graph could tell
                assert "rest" in wanted.message or "would end" in wanted.message or by_the_clock(wanted), wanted


@given(walks())
@examples(12, soak=30)
def test_what_was_searched_before_is_entered_as_if_it_were_searched_again(walk: Walk) -> None:
    for step in walk.steps(6, 10):
        state = step.outcome.after
        for _ in range(6):
            asked = walk.request(state)
            if not isinstance(asked, EnterRole) or tried(state, asked) is not None:
                continue
            (searched,) = Known(state, Holders(), {}, Budget(MAX_ENTRY_STEPS)).run([asked])
            assert isinstance(searched, SearchedEntry)
            # Also where the version has moved on, the batch begins with something else, or comes after a long time.
            for later in (asked.at, asked.at + timedelta(days=1)):
                assert entered(state, searched, later) == entered(state, asked, later)
            gone = EndCredential(next(iter(state.roles.memberships), "nobody"))
            assert entered(state, gone, NOW, searched) == entered(state, gone, NOW, asked)
            for moved in (made for one in [gone] if (made := carried(state, one)) is not None):
                assert entered(moved, searched, NOW) == entered(moved, asked, NOW)


def carried(state: State, *asked: RoleRequest) -> State | None:
    try:
        return transition(state, Batch(ADMINISTRATOR, asked), now=NOW).after
    except HeadgateError:
        return None


def entered(state: State, first: RoleRequest, now: datetime, *more: RoleRequest) -> object:
    """All that becomes of a batch, or why it is refused."""
    try:
        return transition(state, Batch(ADMINISTRATOR, (first, *more)), now=now).after
    except HeadgateError as error:
        return facts(error)


def test_what_a_search_found_is_not_searched_again_at_the_same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    state = visits()
    found = Known(state, Holders(), {}, Budget(MAX_ENTRY_STEPS)).run([enter("a", "Goal", 1), enter("b", "Goal", 2)])
    moved = transition(state, Batch(ADMINISTRATOR, (DeclarePrincipal("zoe"),))).after
    searches: list[str] = []
    real = entry.find_entry
    monkeypatch.setattr(
        "headgate.roles.requests.entry.find_entry",
        lambda view, one, scene: searches.append(one.id) or real(view, one, scene),
    )
    assert carried(state, *found) is not None  # type: ignore[arg-type]
    assert searches == []
    assert carried(moved, *found) is not None  # type: ignore[arg-type]
    assert searches == ["a", "b"]


def by_the_clock(error: HeadgateError) -> bool:
    """Has a credential that the trial still finds turned unknown or false, at the moment of the request?"""
    return "may have been revoked" in error.message


def visits(count: int = 3) -> State:
    """Eve has been to a few places."""
    asked = (
        DeclarePrincipal("eve"),
        SetRolefile("V", parse_rolefile(VISITS)),
        *(GrantRole(f"v{n}", "V", "Visited", (n,), "eve") for n in range(count)),
    )
    return transition(State(), Batch(ADMINISTRATOR, asked)).after


def enter(id: str, role: str, *args: int, using: tuple[str, ...] | None = None) -> EnterRole:
    return EnterRole(id, "V", role, args, "eve", using, NOW)


def test_what_is_entered_counts_for_what_is_asked_after_it() -> None:
    state = visits()
    both = enter("a", "Visited", 70), enter("b", "Goal", 70)
    for asked in (both, both[1:], both[::-1]):
        assert facts(tried(state, *asked)) == facts(carried_out(state, *asked))
    assert tried(state, *both) is None
    assert tried(state, *both[1:]) is not None
    shown = both[0], enter("b", "Goal", 70, using=("v1",))
    assert facts(tried(state, *shown)) == facts(carried_out(state, *shown)) != ()


def test_roles_that_conditions_look_at_are_found_by_their_arguments() -> None:
    text = "Seen(a) <- : Visited(a)\nAll(n) <- : n = count(Visited(_))\nVisited(a) <-\n"
    asked = (SetRolefile("V", parse_rolefile(text)),)
    state = transition(visits(), Batch(ADMINISTRATOR, asked)).after
    for n in (0, 2, 3):
        one = enter("x", "Seen", n)
        assert facts(tried(state, one)) == facts(carried_out(state, one))
    assert tried(state, enter("x", "Seen", 2)) is None
    assert tried(state, enter("x", "Seen", 3)) is not None
    assert tried(state, enter("x", "All", 3)) is None
    assert tried(state, enter("w", "Visited", 9), enter("x", "All", 4), enter("y", "Seen", 9)) is None


def test_all_that_one_request_names_shares_one_budget() -> None:
    state, budget = visits(10), Budget(MAX_ENTRY_STEPS)
    assert tried(state, enter("a", "Goal", 1), budget=budget) is None
    assert budget.left is not None
    once = MAX_ENTRY_STEPS - budget.left
    assert once > 0
    assert tried(state, enter("b", "Goal", 1), budget=budget) is None
    assert MAX_ENTRY_STEPS - budget.left == 2 * once
    error = tried(visits(60), enter("c", "Goal", 70))
    assert error is not None
    assert "MAX_ENTRY_STEPS" in error.message


def test_one_principal_has_only_so_many_elections_in_force() -> None:
    text = "Member(u) <- L.On(u) <| Chair\nChair <-\n"
    asked = (
        DeclarePrincipal("eve"),
        DeclarePrincipal("ann"),
        SetRolefile("S", parse_rolefile(text)),
        *(GrantRole(f"chair {who}", "S", "Chair", (), who) for who in ("eve", "ann")),
    )
    state = transition(State(), Batch(ADMINISTRATOR, asked)).after

    def elect(id: str, who: str = "eve") -> ElectRole:
        return ElectRole(id, "S", "Member", None, who, None, NOW)

    for first in range(0, MAX_ELECTIONS, 250):
        some = tuple(elect(f"e{n}") for n in range(first, first + 250))
        assert all(tried(state, one) is None for one in some[:1])
        state = transition(state, Batch(ADMINISTRATOR, some)).after
    error = tried(state, elect("one more"))
    assert error is not None
    assert "MAX_ELECTIONS" in error.message
    assert tried(state, elect("another's", "ann")) is None


# -- at a gateway -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with office(tmp_path_factory.mktemp("trial") / "domain", roles__requests="50") as made:
        grants = (GrantRole(f"v{n}", "V", "Visited", (n,), "dora") for n in range(60))
        made.served.commit(SetRolefile("V", parse_rolefile(VISITS)), *grants)
        yield made


@contextmanager
def ledger_held(conf: Office) -> Iterator[None]:
    """Nobody else can write to the ledger."""
    connection = sqlite3.connect(conf.served.domain.paths.ledger, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def test_a_refusal_never_waits_for_the_ledger(conf: Office) -> None:
    conf.log_on("carl")
    with ledger_held(conf):
        assert conf.denied("carl", "/Conf/enter", role="Chair")[0] == "credentials"
        assert conf.denied("carl", "/Conf/enter", role="Emperor")[0] == "misuse"
        assert conf.denied("carl", "/Nowhere/enter", role="Chair")[0] == "misuse"
        assert conf.denied("carl", "/Conf/enter", role="Chair", **{"with": ["v1"]})[0] == "fraud"
        assert conf.denied("carl", "/Conf/enter", role="Chair", **{"with": ["gone"]})[0] == "revocation"
        assert conf.denied("carl", "/Conf/elect", role="Member", anyone=True)[0] == "credentials"
        assert conf.denied("carl", "/Conf/revoke", role="Guest", args=["carl"])[0] == "credentials"
        assert conf.denied("carl", "/Conf/reinstate", role="Guest", args=["carl"])[0] == "credentials"


def test_a_search_that_goes_too_far_never_waits_for_the_ledger_and_is_paid_for(conf: Office) -> None:
    with ledger_held(conf):
        answer = conf.post("dora", "/V/enter", role="Goal", args=[70]).json()
        assert (answer["failure"], "MAX_ENTRY_STEPS" in answer["detail"]) == ("credentials", True)
    answer = conf.post("dora", "/V/enter", role="Goal", args=[1])
    assert (answer.status_code, answer.json()["code"]) == (503, "too-busy")
    conf.log_on("erik")
    conf.enter("erik", "Guest")


def test_the_id_of_a_request_is_under_a_secret_of_the_domain(conf: Office) -> None:
    conf.log_on("anna")
    name = "k" * 22
    id = conf.enter("anna", "Chair", request=name)["id"]
    said = f"anna\0{name}\0{0}".encode()

    def named(raw: bytes) -> str:
        return f"Chair-{b32encode(raw[:10]).decode().lower()}"

    broker = conf.served.gateway.broker
    assert id == named(hmac.digest(id_secret(broker), said, "sha256"))
    assert id != named(hashlib.sha256(said).digest())
    assert id_secret(broker) != id_secret(PrivateKey.generate())


def test_a_domain_that_follows_asks_more_often_than_a_client(tmp_path: Path) -> None:
    with office(tmp_path / "domain", roles__requests="2") as slow:

        def asked() -> int:
            return slow.ask("carl", "GET", "/records", params={"service": "Login"}).status_code

        assert [asked() for _ in range(11)] == [403] * 10 + [503]
