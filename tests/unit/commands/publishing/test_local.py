"""Publishing into a domain of this process: the same writer as in gateways, run in place."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.commands.publishing.local import LocalPublisher, PublishedEvent
from headgate.decide.publish import admit
from headgate.decide.rates import Rates, asks_rate
from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType, RemoveRule, SetPolicyRule
from headgate.model.errors import (
    BadDefinition,
    BelowHorizon,
    HeadgateError,
    PolicyRuleDenied,
    PublishDenied,
    StreamHeld,
    TypeMismatch,
    UnknownType,
)
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import EPOCH, Kind
from headgate.node.domain import Domain, utc_now
from headgate.solver import check_policy_rule
from strategies import predicates
from strategies.memory import exact
from strategies.running import examples
from strategies.worlds import Commit, Publish, Story, worlds

PUBLISH = frozenset({Action.PUBLISH})
SIGHTING = "road.Sighting"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[Domain]:
    with Domain.create(tmp_path / "domain") as made:
        made.commit(
            Batch(
                ADMINISTRATOR,
                (
                    *map(DeclarePrincipal, ("camera", "warden")),
                    DeclareType(EventType(SIGHTING, "camera", {"plate": Kind.STRING, "speed": Kind.INT})),
                    AddRule(Rule("r", "camera", PUBLISH, SIGHTING, parse_condition("speed < 100"))),
                    AddRule(Rule("w", "warden", PUBLISH, SIGHTING)),
                ),
            )
        )
        yield made


@pytest.fixture
def publisher(domain: Domain) -> LocalPublisher:
    return LocalPublisher(domain, advertise=False)


def draft(id: str = "e1", type: str = SIGHTING, *, publisher: str = "camera", **values: object) -> Draft:
    return Draft(id, publisher, type, values)


def change_rule(domain: Domain, where: str) -> None:
    domain.commit(Batch(ADMINISTRATOR, (AddRule(Rule("r", "camera", PUBLISH, SIGHTING, parse_condition(where))),)))


def test_an_event_is_stored_with_its_place_and_comes_back_the_same(domain: Domain, publisher: LocalPublisher) -> None:
    event = publisher.publish(draft(plate="AE05 XYZ", speed=30), now=NOON)
    assert (event.stream, event.seq, event.version, event.time) == ("main", 1, 1, NOON)
    assert domain.event("main", 1) == event
    assert domain.events() == [event]


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        (draft(type="road.Unknown"), UnknownType),
        (draft(colour="red"), TypeMismatch),
        (draft(speed="fast"), TypeMismatch),
        (draft(speed=2**63), TypeMismatch),
        (draft(plate="\ud800"), TypeMismatch),
        (draft(speed=100), PublishDenied),
        (draft(), PublishDenied),
    ],
)
def test_a_refused_event_leaves_nothing(
    domain: Domain, publisher: LocalPublisher, sent: Draft, refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        publisher.publish(sent)
    assert domain.events() == []
    assert domain.ledger.version == 1


def test_many_events_are_answered_one_by_one_and_keep_their_order(domain: Domain, publisher: LocalPublisher) -> None:
    sent = [
        draft("a", speed=1),
        draft("b", speed=500),
        draft("c", publisher="warden", speed=500),
        draft("d", speed=2),
        draft("a", speed=3),
    ]
    answers = publisher.publish_all(sent)
    assert [one.event.seq if one.event else one.refusal.code for one in answers] == [1, "publish-denied", 2, 3, 1]
    assert [one.duplicate for one in answers] == [False, False, False, False, True]
    assert [(event.id, event.values["speed"]) for event in domain.events()] == [("a", 1), ("c", 500), ("d", 2)]
    assert publisher.publish_all([]) == []


def test_an_event_sent_again_is_the_one_that_was_stored(domain: Domain, publisher: LocalPublisher) -> None:
    first = publisher.publish(draft(speed=1), stream="north", now=NOON)
    change_rule(domain, "speed > 10")
    again = LocalPublisher(domain).publish_all([draft(speed=1)], stream="south", now=NOON + timedelta(minutes=9))
    assert again == [PublishedEvent(first, duplicate=True)]
    late = publisher.publish(draft(speed=11), stream="south", now=NOON + timedelta(minutes=11))
    assert (late.stream, late.seq) == ("south", 1)


def test_an_advertisement_is_made_unless_it_is_told_not_to(domain: Domain, publisher: LocalPublisher) -> None:
    assert publisher.publish(draft("a", speed=1)).version == 1
    assert domain.ledger.state().advertisements == set()
    assert LocalPublisher(domain).publish(draft("b", speed=1)).version == 2
    assert domain.ledger.state().advertisements == {("camera", SIGHTING)}


def test_a_policy_rule_is_put_to_the_requirement(domain: Domain, publisher: LocalPublisher) -> None:
    domain.commit(Batch(ADMINISTRATOR, (SetPolicyRule("warden", parse_condition("$nation = 'NO'")),)))
    asks = parse_condition("$nation = 'NO' and $rank > 3")
    publisher.publish(replace(draft("a", publisher="warden"), requires=asks))
    with pytest.raises(PolicyRuleDenied):
        publisher.publish(draft("b", publisher="warden"))
    assert [event.id for event in domain.events()] == ["a"]


def test_events_of_late_are_counted_even_by_a_domain_that_is_opened_again(
    domain: Domain, publisher: LocalPublisher
) -> None:
    publisher.publish(draft("e0", speed=1), now=NOON)
    change_rule(domain, "speed < 100 and @rate <= 3")
    sent = [draft("e1", speed=1), draft("e2", speed=200), draft("e3", speed=1), draft("e4", speed=1)]
    answers = publisher.publish_all(sent, now=NOON)
    assert [None if one.event is None else one.event.rate for one in answers] == [2, None, 3, None]
    with Domain.open(domain.paths.directory) as again:
        publisher = LocalPublisher(again)
        for number, stream in enumerate(("main", "other")):
            with pytest.raises(PublishDenied):
                publisher.publish(draft(f"f{number}", speed=1), stream=stream, now=NOON + timedelta(seconds=59))
        assert publisher.publish(draft("e7", speed=1), stream="other", now=NOON + timedelta(seconds=60)).rate == 1
        assert publisher.publish(draft("e8", speed=1), now=NOON + timedelta(seconds=61)).rate == 2


def test_a_change_has_its_starting_point_in_every_stream(domain: Domain, publisher: LocalPublisher) -> None:
    for id, stream in (("a", "north"), ("b", "south"), ("c", "north")):
        publisher.publish(draft(id, speed=1), stream=stream)
    version = domain.commit(Batch(ADMINISTRATOR, (RemoveRule("r"),)))
    points = {point.stream: point.seq for point in domain.ledger.starting_points(version=version)}
    assert points == {"north": 3, "south": 2}
    with pytest.raises(PublishDenied):
        publisher.publish(draft("d", speed=1), stream="north")


def test_a_change_of_another_process_is_seen_before_the_next_append(domain: Domain, publisher: LocalPublisher) -> None:
    publisher.publish(draft("a", speed=1))
    with Domain.open(domain.paths.directory) as other:
        other.commit(Batch(ADMINISTRATOR, (RemoveRule("r"),)))
    with pytest.raises(PublishDenied):
        publisher.publish(draft("b", speed=1))


def test_a_change_that_another_process_did_not_complete_is_completed(domain: Domain, publisher: LocalPublisher) -> None:
    publisher.publish(draft("a", speed=1))
    with Domain.open(domain.paths.directory) as other:
        version = other.ledger.commit(Batch(ADMINISTRATOR))  # and no starting points: as after a crash
    assert publisher.publish(draft("b", speed=1)).version == version
    assert [(point.stream, point.seq) for point in domain.ledger.starting_points(version=version)] == [("main", 2)]


def test_a_stream_that_a_gateway_holds_is_left_to_it(domain: Domain, publisher: LocalPublisher) -> None:
    domain.log.take("gateway-1", 1, holder="there:1:1:g", now=int(utc_now().timestamp() * 1e6), ttl=60_000_000)
    with pytest.raises(StreamHeld):
        publisher.publish(draft(speed=1), stream="gateway-1")
    with pytest.raises(BadDefinition):
        publisher.publish(draft(speed=1), stream="no such\nname")


# -- against the specification ------------------------------------------------------------------------------------


@examples(10, soak=25)
@given(st.data())
def test_what_is_stored_is_what_decide_admits(data: st.DataObject) -> None:
    story = data.draw(worlds(roles=data.draw(st.integers(0, 2)) == 0))
    with tempfile.TemporaryDirectory() as name, Domain.create(Path(name) / "d") as domain:
        domain.paths.predicates.mkdir()
        shutil.copy(str(predicates.__file__), domain.paths.predicates / f"{predicates.DIGEST}.py")
        Comparison(domain, LocalPublisher(domain, advertise=data.draw(st.booleans()))).play(story)


class Comparison:
    """Plays a story, and puts each event to `decide.publish.admit` as well, one after another."""

    def __init__(self, domain: Domain, publisher: LocalPublisher) -> None:
        self.domain = domain
        self.publisher = publisher
        self.rates = Rates()

    def play(self, story: Story) -> None:
        for step in (*story.setup, *story.steps):
            match step:
                case Commit(batch):
                    with suppress(HeadgateError):  # some changes are refused; what is refused leaves no trace
                        self.domain.commit(batch)
                case Publish(stream, time, drafts, together):
                    for portion in [drafts] if together else [(one,) for one in drafts]:
                        for sent, answer in zip(
                            portion, self.publisher.publish_all(portion, stream=stream, now=time), strict=True
                        ):
                            self.compare(sent, answer, time)

    def compare(self, sent: Draft, answer: PublishedEvent, time: datetime) -> None:
        state = self.domain.ledger.state()
        functions = self.domain.predicates(state)
        rate = self.rates.before(sent.publisher, sent.type, time) + 1 if asks_rate(state) else None
        if isinstance(answer.refusal, BelowHorizon):  # where streams begin, which is not a matter of rights
            stated = admit(state, sent, now=time, predicates=functions, rate=rate, policy_rule=check_policy_rule)
            assert stated.occurred < EPOCH
            return
        if answer.refusal is not None:
            with pytest.raises(type(answer.refusal)) as refused:
                admit(state, sent, now=time, predicates=functions, rate=rate, policy_rule=check_policy_rule)
            assert refused.value.message == answer.refusal.message
            return
        assert answer.event is not None
        expected = admit(state, sent, now=time, predicates=functions, rate=rate, policy_rule=check_policy_rule)
        stored = replace(answer.event, values={}, stream="", seq=0)
        assert stored == replace(expected, values={}, stream="", seq=0)
        assert exact(answer.event.values) == exact(expected.values)
        self.rates.add(sent.publisher, sent.type, time)
