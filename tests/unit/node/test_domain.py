"""A domain's directory: the acknowledged change, and what its log holds."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headgate.commands.publishing.local import LocalPublisher
from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType
from headgate.model.errors import BadExpression, NotFound
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


def draft(id: str = "e1", type: str = "road.Sighting", **values: object) -> Draft:
    return Draft(id, "camera", type, values)


def test_an_event_is_found_by_its_place(domain: Domain) -> None:
    event = LocalPublisher(domain).publish(draft(plate="AE05 XYZ", speed=30))
    assert domain.event("main", 1) == event
    for stream, seq in (("main", 2), ("other", 1)):
        with pytest.raises(NotFound):
            domain.event(stream, seq)


def test_a_change_that_was_cut_short_is_completed_when_opened(domain: Domain) -> None:
    LocalPublisher(domain).publish(draft(speed=1))
    version = domain.ledger.commit(Batch(ADMINISTRATOR))  # and no starting points: as after a crash
    assert domain.ledger.starting_points(version=version) == []
    with Domain.open(domain.paths.directory) as again:
        assert [(p.stream, p.seq) for p in again.ledger.starting_points(version=version)] == [("main", 2)]
        assert LocalPublisher(again).publish(draft("e2", speed=1)).version == version


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
