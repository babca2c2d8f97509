"""Promises of one writer: clocks that go back, heartbeats for others, streams that promise by heartbeats alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from headgate.commands.publishing.local import LocalPublisher
from headgate.commands.publishing.promises import heartbeat
from headgate.commands.publishing.stream_writer import HEARTBEATS, Attempt, Outcome, StreamWriter
from headgate.commands.publishing.submissions import SubmissionOutcome, of_drafts
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType
from headgate.model.errors import (
    AheadOfClock,
    BadDefinition,
    BadRequest,
    BelowHorizon,
    GovernDenied,
    NotFound,
    PublishDenied,
)
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType, Times
from headgate.model.values import EPOCH, Kind, micros, moment
from headgate.node.domain import Domain, Follower
from headgate.node.health import Metrics, horizon_lags
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.log.promises import ALL_TYPES
from strategies.clocks import NOON, Hands

SEEN, PLAIN = "door.Seen", "door.Plain"
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
Make = Callable[..., StreamWriter]


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[Domain]:
    with Domain.create(tmp_path / "d") as made:
        rights = (("bob", "door.*"), ("ann", "door.*"))
        made.commit(
            Batch(
                ADMINISTRATOR,
                (
                    *map(DeclarePrincipal, ("bob", "ann", "eve")),
                    DeclareType(EventType(SEEN, ADMINISTRATOR, {"n": Kind.INT}, times=Times(stated=True, ahead=60))),
                    DeclareType(EventType(PLAIN, ADMINISTRATOR, {"n": Kind.INT})),
                    *(AddRule(Rule(who, who, frozenset({Action.PUBLISH}), on)) for who, on in rights),
                ),
            )
        )
        yield made


@pytest.fixture
def writer(domain: Domain, clock: Hands) -> Iterator[Make]:
    opened: list[EventLog | Follower] = []

    def make(stream: str = "gateway-1", promise: str = "clock") -> StreamWriter:
        known, log = Follower(domain), EventLog.open(domain.paths.log)
        opened.extend((known, log))
        made = StreamWriter(domain, known, log, stream, advertise=False, clock=clock, promise=promise)
        made.take()
        return made

    yield make
    for one in opened:
        one.close()


def write(writer: StreamWriter, id: str, time: datetime | None = None, type: str = SEEN, by: str = "bob") -> str:
    """What becomes of an event, in a word."""
    (outcome,) = writer.write([Attempt(of_drafts(by, [Draft(id, by, type, {"n": 1}, time=time)], answers=None))])
    return word(outcome)


def word(outcome: Outcome) -> str:
    assert isinstance(outcome, SubmissionOutcome), outcome
    if outcome.refusals:
        return outcome.refusals[0].code
    return "duplicate" if outcome.duplicates else "accepted"


def test_a_clock_that_goes_back_stamps_nothing_below_what_was_promised(
    domain: Domain, writer: Make, clock: Hands
) -> None:
    one = writer()
    assert write(one, "a", type=PLAIN) == "accepted"
    clock.now = NOON - HOUR
    assert write(one, "b", type=PLAIN) == "accepted"
    again = writer()  # after a restart as well
    assert write(again, "c", type=PLAIN) == "accepted"
    assert [event.time for event in domain.events()] == [NOON] * 3
    assert not again.promise_clock(1.0)
    clock.now = NOON + HOUR
    assert again.promise_clock(1.0)
    assert moment(domain.log.promised("gateway-1")) == clock.now


def test_a_gateway_that_lags_behind_what_was_promised_for_its_stream_decides_again(
    domain: Domain, writer: Make, clock: Hands
) -> None:
    one = writer()
    domain.log.promise_stream("gateway-1", micros(NOON + SECOND), micros(NOON))
    assert write(one, "a", type=PLAIN) == "accepted"
    assert [event.time for event in domain.events()] == [NOON + SECOND]


def test_only_what_is_early_is_refused_and_what_was_sent_before_is_known_first(writer: Make, clock: Hands) -> None:
    one = writer()
    assert write(one, "a", NOON) == "accepted"
    heartbeat(one, "bob", NOON + SECOND, [SEEN])
    drafts = [
        Draft(id, "bob", SEEN, {"n": 1}, time=NOON + n * SECOND) for id, n in (("a", 0), ("b", 0), ("c", 1), ("b", 0))
    ]
    (outcome,) = one.write([Attempt(of_drafts("bob", drafts, answers=None))])
    assert isinstance(outcome, SubmissionOutcome)
    assert (outcome.accepted, outcome.duplicates, set(outcome.refusals)) == (1, {0}, {1, 3})
    assert all(isinstance(error, BelowHorizon) for error in outcome.refusals.values())


def test_the_administrator_lets_go_what_one_that_is_gone_holds_back(domain: Domain, writer: Make) -> None:
    one = writer()
    write(one, "a", NOON)
    write(one, "b", NOON, by="ann")
    heartbeat(one, "bob", NOON + SECOND)
    times = Times(stated=True, ahead=60)
    assert domain.log.horizons().of("gateway-1", SEEN, times) == 0
    assert [who for who, horizon in domain.log.horizons().sources("gateway-1", SEEN, times) if horizon == 0] == ["ann"]
    with pytest.raises(GovernDenied):
        heartbeat(one, "bob", NOON + SECOND, publisher="ann")
    told = heartbeat(one, ADMINISTRATOR, NOON + SECOND, publisher="ann")
    assert told.horizons == {SEEN: NOON + SECOND}
    assert moment(domain.log.horizons().of("gateway-1", SEEN, times)) == NOON + SECOND
    whole = heartbeat(one, ADMINISTRATOR, NOON, stream="gateway-1")
    assert (whole.horizons, whole.moved) == ({ALL_TYPES: NOON}, False)
    with pytest.raises(AheadOfClock):
        heartbeat(one, ADMINISTRATOR, NOON + HOUR, stream="gateway-1")
    with pytest.raises(NotFound):
        heartbeat(one, ADMINISTRATOR, NOON, stream="elsewhere")


def test_who_holds_back_what_is_told(domain: Domain, writer: Make) -> None:
    one = writer()
    write(one, "a", NOON)
    write(one, "b", NOON, by="ann")
    heartbeat(one, "bob", NOON + SECOND)
    heartbeat(one, "ann", NOON - SECOND)
    lags = horizon_lags(domain.log.horizons(), domain.ledger.state().types, NOON + HOUR)
    assert [(lag.stream, lag.type, lag.seconds, lag.publisher) for lag in lags] == [
        ("gateway-1", ALL_TYPES, 3_600, ""), ("gateway-1", SEEN, 3_601, "ann")
    ]  # fmt: skip
    metrics = Metrics()
    metrics.observe_horizons(lags)
    assert b'headgate_horizon_lag_seconds{stream="gateway-1",type="door.Seen"} 3601.0' in metrics.render()


def test_a_heartbeat_takes_the_right_to_publish(writer: Make) -> None:
    one = writer()
    for types in (None, [SEEN]):
        with pytest.raises(PublishDenied):
            heartbeat(one, "eve", NOON, types)
    with pytest.raises(BadRequest, match="name the types"):
        heartbeat(one, "bob", NOON)
    with pytest.raises(BadRequest, match="gateway's clock"):
        heartbeat(one, "bob", NOON, [PLAIN])
    with pytest.raises(AheadOfClock):
        heartbeat(one, "bob", NOON + HOUR, [SEEN])


def test_streams_that_promise_by_heartbeats_alone(domain: Domain, writer: Make, clock: Hands) -> None:
    one = writer(promise=HEARTBEATS)
    assert write(one, "a", EPOCH) == "accepted"
    assert write(one, "b", type=PLAIN) == "accepted"
    assert not one.promise_clock(0.0)
    assert domain.log.horizons().streams["gateway-1"] == 0
    assert domain.log.horizons().joined == {}, "nobody joins"
    far = NOON + 30 * SECOND
    assert heartbeat(one, "bob", far).horizons == {ALL_TYPES: far}
    assert write(one, "c", far) == "accepted"
    assert write(one, "d", far - SECOND, by="ann") == "below-horizon"
    assert write(one, "e", type=PLAIN) == "below-horizon", "its stamp is earlier than the stream has promised"
    assert write(one, "a", EPOCH) == "duplicate"
    with pytest.raises(BadRequest):
        heartbeat(one, "bob", far, [SEEN])
    with pytest.raises(PublishDenied):
        heartbeat(one, "eve", far)


def test_a_program_that_holds_the_domain_promises_too(domain: Domain) -> None:
    publisher = LocalPublisher(domain, advertise=False)
    publisher.heartbeat("bob", NOON)
    with pytest.raises(BelowHorizon):
        publisher.publish(Draft("a", "bob", SEEN, {}, time=NOON - SECOND), now=NOON)
    assert publisher.publish(Draft("a", "bob", SEEN, {}, time=NOON), now=NOON + HOUR).occurred == NOON


def test_types_take_nothing_back_that_was_promised_of_them(domain: Domain) -> None:
    late = EventType("door.Late", ADMINISTRATOR, {}, times=Times(stated=True, lateness=5))
    below = EventType("door.Later", ADMINISTRATOR, {}, "door.Late")
    domain.commit(Batch(ADMINISTRATOR, (DeclareType(late), DeclareType(below))))
    types = domain.ledger.state().types
    assert types.times("door.Later") == late.times, "it is as its parent has it"

    def change(name: str, times: Times | None, parent: str | None = None) -> None:
        domain.commit(Batch(ADMINISTRATOR, (DeclareType(EventType(name, ADMINISTRATOR, {}, parent, times=times)),)))

    for times in (None, Times(), Times(stated=True), Times(stated=True, lateness=6)):
        with pytest.raises(BadDefinition, match=r"door\.Late"):
            change("door.Late", times)
    with pytest.raises(BadDefinition):
        change("door.Later", Times(stated=True, lateness=6), "door.Late")
    change("door.Late", Times(stated=True, lateness=4, ahead=3, clock_error=0.5))
    assert domain.ledger.state().types.times("door.Later").lateness == 4


@pytest.mark.parametrize(
    "said",
    [
        {"times": "nobody"}, {"times": "publisher", "lateness": -1}, {"lateness": 5}, {"times": "gateway", "ahead": 1},
        {"times": "publisher", "ahead": float("nan")}, {"clock_error": True}, {"clock_error": "much"},
        {"times": "publisher", "lateness": 10**9},
    ],
)  # fmt: skip
def test_what_a_type_cannot_say_of_times(said: dict[str, object]) -> None:
    with pytest.raises(BadDefinition):
        Times.said(**said)


def test_what_is_said_of_times_reads_back() -> None:
    assert Times.said() is None
    for times in (Times(), Times(stated=True), Times(stated=True, lateness=0.5, ahead=0, clock_error=2)):
        assert Times.said(**times.as_said()) == times
