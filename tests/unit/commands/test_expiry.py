"""The clock: what ends falls at its moment, before anything is decided at or after it, and once for all gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.commands.expiry import StandingClock
from headgate.commands.publishing.stream_writer import StreamWriter
from headgate.commands.publishing.submissions import SubmissionOutcome, of_drafts, of_table
from headgate.gateway.http.worker_pool import Workers
from headgate.gateway.publishing.writer import Writer
from headgate.model.authority import (
    Certificate,
    Identity,
    Provider,
    RevocationList,
    Succession,
    TypeAuthority,
    Validity,
)
from headgate.model.changes import (
    Advertise,
    Batch,
    Change,
    DeclarePrincipal,
    DeclareType,
    Identify,
    Present,
    Revoke,
    SetProvider,
    Succeed,
)
from headgate.model.events import Draft
from headgate.model.rights import Action
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain, Follower
from headgate.pipeline.log.event_log import EventLog

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = BEGIN + timedelta(seconds=60)
MOMENT = timedelta(microseconds=1)
PUBLISH = TypeAuthority(frozenset({Action.PUBLISH}))


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[Domain]:
    with Domain.create(tmp_path / "d") as made:
        yield made


def commit(domain: Domain, *changes: Change) -> int:
    return domain.commit(Batch(ADMINISTRATOR, changes))


def certified(domain: Domain, until: datetime | None, freshness: int | None = None) -> None:
    commit(
        domain,
        DeclarePrincipal("till"),
        DeclarePrincipal("issuer"),
        DeclareType(EventType("shop.Sale", "issuer", {"amount": Kind.FLOAT})),
        Revoke(RevocationList("issuer", 1, BEGIN), BEGIN),
        Present(
            "till", (Certificate("c", "issuer", "till", (PUBLISH,), False, Validity(BEGIN, until), freshness),), BEGIN
        ),
        Advertise("till", "shop.Sale"),
    )


def rights(domain: Domain) -> int:
    return sum(1 for rule in domain.ledger.state().rules if rule.who == "till")


async def send(
    domain: Domain, clock: Clock, times: list[datetime], *, columns: bool = False
) -> list[SubmissionOutcome]:
    """Publish one event at each time, through a writer of its own."""
    with Domain.open(domain.paths.directory) as mine:
        follower = Follower(mine)
        log, standing = EventLog.open(mine.paths.log), StandingClock(mine, follower, clock)
        core = StreamWriter(mine, follower, log, "g1", window=600, lease=3600, clock=clock, standing=standing)
        writer = Writer(core, Workers())
        writer.start()
        found = []
        try:
            for at in times:
                clock.now = at
                if columns:
                    table = pa.table({"id": [at.isoformat()], "amount": [1.0]})
                    found.append(await writer.publish(of_table("till", table, "shop.Sale")))
                else:
                    found.append(
                        await writer.publish(
                            of_drafts("till", [Draft(at.isoformat(), "till", "shop.Sale", {"amount": 1.0})])
                        )
                    )
        finally:
            await asyncio.to_thread(writer.stop)
            follower.close()
        return found


@pytest.mark.parametrize("columns", [False, True])
def test_up_to_its_very_end_a_certificate_lets_publish_and_from_then_on_it_does_not(
    domain: Domain, columns: bool
) -> None:
    certified(domain, END)
    before = domain.ledger.version
    times = [BEGIN, END - MOMENT, END, END + MOMENT]
    outcomes = asyncio.run(send(domain, Clock(), times, columns=columns))
    assert [outcome.accepted for outcome in outcomes] == [1, 1, 0, 0]
    assert {error.code for outcome in outcomes for error in outcome.refusals.values()} == {"publish-denied"}
    assert {event.version for event in domain.events()} == {before}
    assert domain.ledger.version == before + 1, "one version took the right away"
    assert rights(domain) == 0


def test_what_any_other_publishes_after_an_end_is_decided_without_what_ended(domain: Domain) -> None:
    certified(domain, None)
    commit(
        domain,
        DeclarePrincipal("ann"),
        Present(
            "ann",
            (
                Certificate(
                    "s",
                    "issuer",
                    "ann",
                    (TypeAuthority(frozenset({Action.SUBSCRIBE})),),
                    False,
                    Validity(BEGIN, END),
                ),
            ),
            BEGIN,
        ),
    )
    outcomes = asyncio.run(send(domain, Clock(), [END - MOMENT, END]))
    assert [outcome.accepted for outcome in outcomes] == [1, 1]
    early, late = domain.events()
    assert [rule.who for rule in domain.ledger.state(early.version).rules] == ["till", "ann"]
    assert [rule.who for rule in domain.ledger.state(late.version).rules] == ["till"]


def test_a_silent_issuer_is_unknown_from_the_moment_on_and_heals(domain: Domain) -> None:
    certified(domain, None, freshness=30)
    quiet = BEGIN + timedelta(seconds=30)
    outcomes = asyncio.run(send(domain, Clock(), [quiet - MOMENT, quiet, quiet + timedelta(hours=1)]))
    assert [outcome.accepted for outcome in outcomes] == [1, 0, 0]
    version = domain.ledger.version
    commit(domain, Revoke(RevocationList("issuer", 1, quiet), quiet))
    assert rights(domain) == 1
    outcomes = asyncio.run(send(domain, Clock(), [quiet + timedelta(seconds=29)]))
    assert outcomes[0].accepted == 1
    assert domain.ledger.version == version + 1, "the clock had nothing to do"


def test_nothing_is_due_without_statements(domain: Domain) -> None:
    follower, clock = Follower(domain), Clock()
    standing = StandingClock(domain, follower, clock)
    commit(domain, DeclarePrincipal("till"))
    follower.refresh()
    assert not standing.due(follower.state, clock.now)
    assert not standing.settle()
    assert domain.ledger.version == 1
    follower.close()


def test_two_gateways_make_one_version_of_an_end(domain: Domain) -> None:
    certified(domain, END)
    clock = Clock()
    clock.now = END
    followers = [Follower(domain), Follower(domain)]
    clocks = [StandingClock(domain, follower, clock) for follower in followers]
    assert [one.due(follower.state, clock.now) for one, follower in zip(clocks, followers, strict=True)] == [True, True]
    before = domain.ledger.version
    assert [one.settle() for one in clocks] == [True, False]
    assert domain.ledger.version == before + 1
    assert not any(one.due(follower.state, clock.now) for one, follower in zip(clocks, followers, strict=True))
    for follower in followers:
        follower.close()


def test_the_clock_wakes_for_an_end_that_comes_with_a_later_version(domain: Domain) -> None:
    follower, clock = Follower(domain), Clock()
    standing = StandingClock(domain, follower, clock)
    certified(domain, END)
    standing.settle()
    assert standing.next(follower.state) == END
    commit(domain, SetProvider(Provider("idp", "idp")))
    soon = BEGIN + timedelta(seconds=5)
    said = Identity("i", "idp", "till", {"rank": 3}, Validity(BEGIN, soon))
    commit(domain, Identify("till", said, BEGIN))
    follower.refresh()
    assert standing.next(follower.state) == soon
    clock.now = soon
    assert standing.due(follower.state, clock.now)
    assert standing.settle()
    assert domain.ledger.state().principals["till"] == {}
    assert standing.next(follower.state) == END
    follower.close()


def test_a_moment_at_which_nothing_falls_makes_no_version(domain: Domain) -> None:
    certified(domain, None, freshness=30)
    follower, clock = Follower(domain), Clock()
    standing = StandingClock(domain, follower, clock)
    clock.now = BEGIN + timedelta(seconds=31)
    assert standing.settle()
    again = StandingClock(domain, follower, clock)
    before = domain.ledger.version
    assert not again.settle()
    assert not again.settle()
    assert domain.ledger.version == before
    follower.close()


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def given(id: str, until: float) -> Certificate:
    return Certificate(id, "issuer", "till", (PUBLISH,), False, Validity(BEGIN, at(until)))


@pytest.mark.parametrize("what", ["certificate", "identity"])
def test_what_a_clock_behind_ours_brings_in_after_its_end_falls_at_once(domain: Domain, what: str) -> None:
    certified(domain, at(1000))
    follower, clock = Follower(domain), Clock()
    standing = StandingClock(domain, follower, clock)
    clock.now = at(30)
    standing.settle()
    if what == "certificate":
        commit(domain, Present("till", (given("short", 20),), BEGIN))
    else:
        commit(domain, SetProvider(Provider("idp", "idp")))
        commit(domain, Identify("till", Identity("i", "idp", "till", {"rank": 3}, Validity(BEGIN, at(20))), BEGIN))
    follower.refresh()
    clock.now = at(31)
    assert standing.due(follower.state, clock.now)
    before = domain.ledger.version
    assert standing.settle()
    assert domain.ledger.version == before + 1
    found = domain.ledger.state()
    assert ([one.id for one in found.certificates.values()], found.identities) == (["c"], {})
    assert not standing.due(follower.state, clock.now)
    follower.close()


def test_a_right_that_comes_with_a_silent_issuer_by_a_clock_behind_ours_falls_at_once(domain: Domain) -> None:
    certified(domain, None, freshness=10)
    follower, clock = Follower(domain), Clock()
    standing = StandingClock(domain, follower, clock)
    clock.now = at(30)
    assert standing.settle()
    assert not standing.due(follower.state, clock.now)
    commit(domain, Revoke(RevocationList("issuer", 2, at(5)), at(6)))
    assert rights(domain) == 1
    follower.refresh()
    assert standing.due(follower.state, clock.now)
    assert standing.settle()
    assert rights(domain) == 0
    assert not standing.due(follower.state, clock.now)
    follower.close()


def test_a_clock_behind_ours_does_not_give_back_what_fell(domain: Domain) -> None:
    certified(domain, None, freshness=30)
    commit(domain, Succeed(Succession("old", "new", 0, at(5)), BEGIN))
    followers, clocks = (Follower(domain), Follower(domain)), (Clock(), Clock())
    clocks[0].now, clocks[1].now = at(31), at(10)
    ours, theirs = (StandingClock(domain, follower, clock) for follower, clock in zip(followers, clocks, strict=True))
    assert ours.settle()
    followers[1].refresh()
    before = domain.ledger.version
    assert theirs.due(followers[1].state, clocks[1].now), "a key ended, and nobody here has looked"
    assert not theirs.settle()
    assert (domain.ledger.version, rights(domain)) == (before, 0)
    for follower in followers:
        follower.close()


def test_a_version_about_something_else_needs_no_new_look(domain: Domain) -> None:
    certified(domain, None, freshness=30)
    follower, clock = Follower(domain), Clock()
    standing = StandingClock(domain, follower, clock)
    clock.now = at(31)
    assert standing.settle()
    commit(domain, DeclarePrincipal("somebody"))
    follower.refresh()
    assert not standing.due(follower.state, clock.now)
    assert standing.next(follower.state) is None
    follower.close()
