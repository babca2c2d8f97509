"""The publish path and the acknowledged change, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType, RemoveRule
from headgate.model.errors import BadExpression, NotFound, PublishDenied, TypeMismatch, UnknownType
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.domain import Domain

PUBLISH = frozenset({Action.PUBLISH})
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    domain = Domain.create(tmp_path / "domain")
    domain.commit(
        Batch(
            ADMINISTRATOR,
            (
                DeclarePrincipal("camera"),
                DeclareType(EventType("road.Sighting", "camera", {"plate": Kind.STRING, "speed": Kind.INT})),
                AddRule(Rule("r", "camera", PUBLISH, "road.Sighting", parse_condition("speed < 100"))),
            ),
        )
    )
    return domain


def test_events_of_late_are_counted_even_by_a_domain_that_is_opened_again(domain: Domain) -> None:
    domain.publish(draft("e0", speed=1), now=NOON)
    rated = AddRule(Rule("r", "camera", PUBLISH, "road.Sighting", parse_condition("speed < 100 and @rate <= 3")))
    domain.commit(Batch(ADMINISTRATOR, (rated,)))
    sent = [draft("e1", speed=1), draft("e2", speed=200), draft("e3", speed=1), draft("e4", speed=1)]
    answers = domain.publish_all(sent, now=NOON)
    assert [None if one.event is None else one.event.rate for one in answers] == [2, None, 3, None]
    directory = domain.paths.ledger.parent
    domain.close()
    with Domain.open(directory) as again:
        with pytest.raises(PublishDenied):
            again.publish(draft("e5", speed=1), now=NOON + timedelta(seconds=59))
        with pytest.raises(PublishDenied):
            again.publish(draft("e6", speed=1), stream="other", now=NOON + timedelta(seconds=59))
        assert again.publish(draft("e7", speed=1), stream="other", now=NOON + timedelta(seconds=60)).rate == 1
        assert again.publish(draft("e8", speed=1), now=NOON + timedelta(seconds=61)).rate == 2


def draft(id: str = "e1", type: str = "road.Sighting", **values: object) -> Draft:
    return Draft(id, "camera", type, values)


def test_an_event_is_stored_with_its_place_and_comes_back_the_same(domain: Domain) -> None:
    event = domain.publish(draft(plate="AE05 XYZ", speed=30), now=NOON)
    assert (event.stream, event.seq, event.version, event.time) == ("main", 1, 1, NOON)
    assert domain.event("main", 1) == event
    assert domain.events() == [event]
    with pytest.raises(NotFound):
        domain.event("main", 2)
    with pytest.raises(NotFound):
        domain.event("other", 1)


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
def test_a_refused_event_leaves_nothing(domain: Domain, sent: Draft, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        domain.publish(sent)
    assert domain.events() == []


def test_a_batch_is_answered_event_by_event(domain: Domain) -> None:
    answers = domain.publish_all([draft("a", speed=1), draft("b", speed=500), draft("c", speed=2)])
    assert [a.event.seq if a.event else a.refusal.code for a in answers] == [1, "publish-denied", 2]
    assert [e.id for e in domain.events()] == ["a", "c"]


def test_a_change_has_its_starting_point_in_every_stream(domain: Domain) -> None:
    domain.publish(draft(speed=1), stream="north")
    domain.publish(draft(speed=1), stream="south")
    domain.publish(draft(speed=1), stream="north")
    version = domain.commit(Batch(ADMINISTRATOR, (RemoveRule("r"),)))
    found = {p.stream: p.seq for p in domain.ledger.starting_points(version=version)}
    assert found == {"north": 3, "south": 2}
    with pytest.raises(PublishDenied):
        domain.publish(draft(speed=1), stream="north")


def test_another_gateways_change_is_seen_before_the_next_append(domain: Domain) -> None:
    domain.publish(draft(speed=1))
    with Domain.open(domain.paths.directory) as other:
        other.commit(Batch(ADMINISTRATOR, (RemoveRule("r"),)))
    with pytest.raises(PublishDenied):
        domain.publish(draft(speed=1))


def test_a_change_that_was_cut_short_is_completed_when_opened(domain: Domain) -> None:
    domain.publish(draft(speed=1))
    version = domain.ledger.commit(Batch(ADMINISTRATOR))  # and no starting points: as after a crash
    assert domain.ledger.starting_points(version=version) == []
    with Domain.open(domain.paths.directory) as again:
        assert [(p.stream, p.seq) for p in again.ledger.starting_points(version=version)] == [("main", 2)]
        assert again.publish(draft("e2", speed=1)).version == version


def test_a_batch_with_one_bad_rule_applies_nothing(domain: Domain) -> None:
    good = AddRule(Rule("good", "camera", PUBLISH, "road.*"))
    bad = AddRule(Rule("bad", "camera", PUBLISH, "road.Sighting", parse_condition("colour = 'red'")))
    with pytest.raises(BadExpression, match="colour"):
        domain.commit(Batch(ADMINISTRATOR, (good, bad)))
    assert domain.ledger.version == 1
    assert [r.id for r in domain.ledger.state().rules] == ["r"]


def test_what_is_not_a_domain_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not a domain"):
        Domain.open(tmp_path)
