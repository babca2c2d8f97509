"""The writer of a stream, run in place: what is decided early, versions that move underneath, who may write."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.commands.publishing.stream_writer import Attempt, StreamWriter
from headgate.commands.publishing.submissions import (
    Answers,
    Submission,
    SubmissionOutcome,
    Unasked,
    of_drafts,
    of_table,
)
from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType, RemoveRule, SetPolicyRule
from headgate.model.errors import PolicyRuleDenied, PublishDenied, StreamHeld, TooBusy
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain, Follower
from headgate.solver import check_policy_rule

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PUBLISH = frozenset({Action.PUBLISH})
ORDER = "shop.Order"


class Clock:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[Domain]:
    with Domain.create(tmp_path / "d") as made:
        made.commit(
            Batch(
                ADMINISTRATOR,
                (
                    DeclarePrincipal("till"),
                    DeclarePrincipal("other"),
                    DeclareType(EventType(ORDER, ADMINISTRATOR, {"item": Kind.STRING, "price": Kind.FLOAT})),
                    AddRule(Rule("till", "till", PUBLISH, ORDER, parse_condition("price > 0"))),
                    AddRule(Rule("other", "other", PUBLISH, ORDER)),
                ),
            )
        )
        yield made


@pytest.fixture
def follower(domain: Domain) -> Iterator[Follower]:
    made = Follower(domain)
    yield made
    made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def writer(domain: Domain, follower: Follower, clock: Clock) -> StreamWriter:
    return StreamWriter(domain, follower, domain.log, "g1", clock=clock)


def columns(*ids: str) -> Submission:
    names = {"id": list(ids), "source": ["s"] * len(ids), "item": ["x"] * len(ids), "price": [1] * len(ids)}
    return of_table("till", pa.table(names), ORDER)


def orders(*ids: str, publisher: str = "till", requires: str | None = None) -> list[Draft]:
    rule = None if requires is None else parse_condition(requires)
    return [Draft(id, publisher, ORDER, {"item": "lamp", "price": 5.0}, "s", rule) for id in ids]


def write(writer: StreamWriter, *attempts: Attempt, at: datetime | None = None) -> list[SubmissionOutcome]:
    outcomes: list[SubmissionOutcome] = []
    for outcome in writer.write(attempts, at):
        assert isinstance(outcome, SubmissionOutcome), outcome
        outcomes.append(outcome)
    return outcomes


def stored(domain: Domain) -> list[str]:
    return [event.id for event in domain.events()]


# -- decided before its turn --------------------------------------------------------------------------------------


def test_what_was_decided_when_it_came_is_written_as_it_is(domain: Domain, writer: StreamWriter, clock: Clock) -> None:
    write(writer, Attempt(columns("a")))
    early = Attempt(columns("b"))
    writer.prepare(early)
    clock.now += timedelta(seconds=5)
    write(writer, early)
    assert [(event.id, event.time) for event in domain.events()] == [("a", NOON), ("b", NOON)]


def test_it_is_decided_again_if_the_policy_has_changed(
    domain: Domain, follower: Follower, writer: StreamWriter
) -> None:
    write(writer, Attempt(columns("a")))
    early = Attempt(columns("b", "c"))
    writer.prepare(early)
    assert early.is_ready(follower.state, 0)
    domain.commit(Batch(ADMINISTRATOR, (RemoveRule("till"),)))
    (outcome,) = write(writer, early)
    assert {at: type(error) for at, error in outcome.refusals.items()} == {0: PublishDenied, 1: PublishDenied}
    assert stored(domain) == ["a"]


def test_it_is_decided_again_if_something_later_was_written(domain: Domain, writer: StreamWriter, clock: Clock) -> None:
    write(writer, Attempt(columns("a")))
    early = Attempt(columns("b"))
    writer.prepare(early)
    clock.now += timedelta(seconds=5)
    write(writer, Attempt(columns("c")))
    write(writer, early)
    times = [event.time for event in domain.events()]
    assert stored(domain) == ["a", "c", "b"]
    assert times == sorted(times)


def test_nothing_is_decided_early_that_names_a_rate(domain: Domain, follower: Follower, writer: StreamWriter) -> None:
    domain.commit(Batch(ADMINISTRATOR, (AddRule(Rule("till", "till", PUBLISH, ORDER, parse_condition("@rate <= 2"))),)))
    write(writer, Attempt(columns("a")))
    early = Attempt(columns("b", "c"))
    writer.prepare(early)
    assert not early.is_ready(follower.state, 0)
    (outcome,) = write(writer, early)
    assert set(outcome.refusals) == {1}


# -- where events are ---------------------------------------------------------------------------------------------


def test_an_outcome_tells_where_every_event_is_that_was_not_refused(
    domain: Domain, follower: Follower, writer: StreamWriter
) -> None:
    elsewhere = StreamWriter(domain, follower, domain.log, "g2")
    write(elsewhere, Attempt(of_drafts("till", orders("x", "y"))), at=NOON)
    bad = Draft("bad", "till", ORDER, {"price": -1.0}, "s")
    sent = of_drafts("till", [*orders("a"), bad, *orders("y", "b", "a")])
    (outcome,) = write(writer, Attempt(sent))
    assert outcome.stored() == {0: ("g1", 1), 2: ("g2", 2), 3: ("g1", 2), 4: ("g1", 1)}
    assert outcome.duplicates == {2, 4}
    assert outcome.refusals.keys() == {1}


# -- advertisements -----------------------------------------------------------------------------------------------


def test_an_advertisement_that_was_left_out_is_a_version_of_its_own(domain: Domain, writer: StreamWriter) -> None:
    write(writer, Attempt(columns("a")), Attempt(of_drafts("other", orders("b", publisher="other"))))
    assert domain.ledger.state().advertisements == {("till", ORDER), ("other", ORDER)}
    assert {event.version for event in domain.events()} == {3}


def test_a_writer_that_does_not_advertise_makes_no_version(domain: Domain, follower: Follower) -> None:
    write(StreamWriter(domain, follower, domain.log, "g1", advertise=False), Attempt(columns("a")))
    assert domain.ledger.state().advertisements == set()
    assert [event.version for event in domain.events()] == [1]


def test_whoever_made_too_many_versions_is_refused_alone(domain: Domain, follower: Follower) -> None:
    def paced(publisher: str) -> None:
        if publisher == "till":
            raise TooBusy("too many versions")

    writer = StreamWriter(domain, follower, domain.log, "g1", paced=paced)
    refused, accepted = writer.write(
        [Attempt(columns("a")), Attempt(of_drafts("other", orders("b", publisher="other")))]
    )
    assert isinstance(refused, TooBusy)
    assert isinstance(accepted, SubmissionOutcome)
    assert stored(domain) == ["b"]


# -- who may write ------------------------------------------------------------------------------------------------


def test_a_stream_that_was_taken_over_is_taken_back_with_the_next_write(
    domain: Domain, follower: Follower, writer: StreamWriter
) -> None:
    write(writer, Attempt(columns("a")))
    with Domain.open(domain.paths.directory) as other:
        write(StreamWriter(other, follower, other.log, "g1"), Attempt(columns("b")))
    write(writer, Attempt(columns("c")))
    assert stored(domain) == ["a", "b", "c"]


def test_a_stream_with_a_lease_is_left_to_its_holder(domain: Domain, follower: Follower, clock: Clock) -> None:
    domain.log.take("g1", 1, holder="elsewhere:1:1:g1", now=int(NOON.timestamp()) * 10**6, ttl=5_000_000)
    writer = StreamWriter(domain, follower, domain.log, "g1", clock=clock)
    (held,) = writer.write([Attempt(columns("a"))])
    assert isinstance(held, StreamHeld)
    clock.now += timedelta(seconds=5)
    write(writer, Attempt(columns("a")))
    assert stored(domain) == ["a"]


# -- policy rules and rates ---------------------------------------------------------------------------------------


def test_a_policy_rule_is_asked_before_or_in_place_as_the_submission_says(domain: Domain, writer: StreamWriter) -> None:
    domain.commit(Batch(ADMINISTRATOR, (SetPolicyRule("till", rule := parse_condition("$nation = 'NO'")),)))
    good, bad = orders("a", requires="$nation = 'NO'"), orders("b", requires="$nation = 'FR'")
    (unasked,) = writer.write([Attempt(of_drafts("till", good))])
    assert isinstance(unasked, Unasked)
    (told,) = write(writer, Attempt(of_drafts("till", good, answers=Answers(repr(rule), {"$nation = 'NO'": None}))))
    assert (told.accepted, told.refusals) == (1, {})
    (in_place,) = write(writer, Attempt(of_drafts("till", [*good, *bad], answers=None)))
    assert in_place.duplicates == {0}
    assert {at: type(error) for at, error in in_place.refusals.items()} == {1: PolicyRuleDenied}
    with pytest.raises(PolicyRuleDenied):
        check_policy_rule(domain.ledger.state(), "till", bad[0].requires)


def test_a_rate_counts_what_came_before_by_the_time_that_is_told_and_all_of_late_by_a_clock(
    domain: Domain, writer: StreamWriter, clock: Clock
) -> None:
    domain.commit(Batch(ADMINISTRATOR, (AddRule(Rule("till", "till", PUBLISH, ORDER, parse_condition("@rate <= 2"))),)))
    later = NOON + timedelta(seconds=30)
    assert write(writer, Attempt(of_drafts("till", orders("a", "b"))), at=later)[0].accepted == 2
    assert write(writer, Attempt(of_drafts("till", orders("c"))), at=NOON)[0].accepted == 1, (
        "what is later is not before"
    )
    assert write(writer, Attempt(of_drafts("till", orders("d"))))[0].accepted == 0, "another's clock may be ahead"
