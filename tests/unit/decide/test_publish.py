"""What is accepted, and as what: D6 by example."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from headgate.decide.publish import admit
from headgate.model.changes import Change, SetAttribute
from headgate.model.errors import PublishDenied, TypeMismatch, UnknownType
from headgate.model.events import Draft
from headgate.model.expressions import Compare, Constant, IsNull, Meta, Subject
from headgate.model.limits import MAX_TEXT_BYTES
from headgate.model.rights import Action
from headgate.model.values import Value
from strategies.small import CHASE, LANE, NOON, PLATE, SEEN, SPEED, draft, forbid, grant, is_, world

PUBLISH = (Action.PUBLISH,)
SENT = draft(plate="X1", speed=50, lane=1)


def accepted(sent: Draft, *changes: Change) -> dict[str, Value]:
    return dict(admit(world(*changes).now, sent, now=NOON, predicates={}).values)


def test_an_accepted_event_is_stamped_and_whole() -> None:
    ledger = world(grant("r", "cam", may=PUBLISH))
    event = admit(ledger.now, draft(plate="X1"), now=NOON, predicates={})
    assert (event.id, event.publisher, event.type, event.time) == ("e", "cam", SEEN, NOON)
    assert event.version == ledger.version
    assert event.values == {"plate": "X1", "speed": None, "lane": None}


def test_no_right_no_event() -> None:
    with pytest.raises(PublishDenied, match=r"no right to publish.*road\.Seen") as refusal:
        accepted(SENT)
    assert "owner" in (refusal.value.remedy or "")
    with pytest.raises(PublishDenied):
        accepted(SENT, grant("r", "cam"))


def test_a_right_to_publish_does_not_reach_subtypes() -> None:
    with pytest.raises(PublishDenied):
        accepted(draft(CHASE), grant("r", "cam", SEEN, may=PUBLISH))
    assert accepted(draft(CHASE), grant("r", "cam", "police.*", may=PUBLISH)) is not None
    with pytest.raises(PublishDenied):
        accepted(draft(CHASE), grant("r", "cam", "road.*", may=PUBLISH))


def test_unknown_type_then_mismatch_then_denied() -> None:
    with pytest.raises(UnknownType):
        accepted(draft("no.Such", zz=1))
    with pytest.raises(TypeMismatch):
        accepted(draft(speed="fast"))
    with pytest.raises(PublishDenied):
        accepted(draft(speed=1))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"zz": 1}, "no attribute `zz`"),
        ({"speed": "1"}, "attribute `speed`"),
        ({"speed": 1.0}, "attribute `speed`"),
        ({"speed": True}, "attribute `speed`"),
        ({"speed": 2**63}, "64 bits"),
        ({"plate": 1}, "attribute `plate`"),
        ({"plate": "\ud800"}, "surrogate"),
        ({"plate": "é" * (MAX_TEXT_BYTES // 2 + 1)}, "MAX_TEXT_BYTES"),
        ({"speed": math.nan}, "attribute `speed`"),
    ],
)
def test_what_does_not_conform_is_a_mismatch(values: dict[str, object], message: str) -> None:
    with pytest.raises(TypeMismatch, match=message):
        accepted(Draft("e", "cam", SEEN, values), grant("r", "cam", may=PUBLISH))


def test_a_draft_that_is_no_mapping_is_a_mismatch() -> None:
    with pytest.raises(TypeMismatch):
        accepted(Draft("e", "cam", SEEN, ["plate"]), grant("r", "cam", may=PUBLISH))  # type: ignore[arg-type]


def test_a_grant_nulls_what_it_does_not_name() -> None:
    rule = grant("r", "cam", attributes=("plate",), may=PUBLISH)
    assert accepted(SENT, rule) == {"plate": "X1", "speed": None, "lane": None}


def test_a_grant_forces_its_values() -> None:
    rule = grant("r", "cam", attributes=("plate", "lane"), forced={"lane": 9}, may=PUBLISH)
    assert accepted(SENT, rule) == {"plate": "X1", "speed": None, "lane": 9}
    assert accepted(draft(plate="X1"), rule) == {"plate": "X1", "speed": None, "lane": 9}


def test_a_grant_tests_its_condition_on_the_result() -> None:
    sees_speed = grant("r", "cam", SEEN, Compare(">", SPEED, Constant(1)), attributes=("plate",), may=PUBLISH)
    with pytest.raises(PublishDenied):
        accepted(SENT, sees_speed)
    sees_forced = grant("r", "cam", SEEN, is_(LANE, 9), attributes=("lane",), forced={"lane": 9}, may=PUBLISH)
    assert accepted(SENT, sees_forced) == {"plate": None, "speed": None, "lane": 9}


def test_the_first_true_grant_is_used_alone() -> None:
    rules = (
        grant("a", "cam", SEEN, is_(LANE, 7), may=PUBLISH),
        grant("b", "cam", attributes=("plate",), may=PUBLISH),
        grant("c", "cam", attributes=("speed",), may=PUBLISH),
    )
    assert accepted(SENT, *rules) == {"plate": "X1", "speed": None, "lane": None}


def test_an_unknown_grant_is_passed_over() -> None:
    rules = grant("a", "cam", SEEN, is_(SPEED, 1), may=PUBLISH), grant("b", "cam", attributes=(), may=PUBLISH)
    assert accepted(draft(plate="X1"), *rules) == {"plate": None, "speed": None, "lane": None}


def test_a_forbid_is_tested_on_the_event_as_sent() -> None:
    stop = forbid("f", "cam", SEEN, Compare(">", SPEED, Constant(40)), may=PUBLISH)
    narrow = grant("r", "cam", attributes=("plate",), may=PUBLISH)
    with pytest.raises(PublishDenied, match="forbidden"):
        accepted(SENT, stop, narrow)
    assert accepted(draft(plate="X1", speed=30), stop, narrow)["plate"] == "X1"


def test_an_unknown_forbid_refuses() -> None:
    stop = forbid("f", "cam", SEEN, Compare(">", SPEED, Constant(40)), may=PUBLISH)
    with pytest.raises(PublishDenied, match="forbidden"):
        accepted(draft(plate="X1"), stop, grant("r", "cam", may=PUBLISH))


def test_entries_are_tried_in_order() -> None:
    stop, go = forbid("f", "cam", may=PUBLISH), grant("r", "cam", may=PUBLISH)
    with pytest.raises(PublishDenied):
        accepted(SENT, stop, go)
    assert accepted(SENT, go, stop)["plate"] == "X1"


def test_conditions_may_name_the_clock_the_publisher_and_the_subject() -> None:
    where = Compare("<", Meta("time"), Constant(datetime(2027, 1, 1, tzinfo=UTC)))
    assert accepted(SENT, grant("r", "cam", SEEN, where, may=PUBLISH))["plate"] == "X1"
    own = Compare("=", PLATE, Subject("plate"))
    assert accepted(SENT, SetAttribute("cam", "plate", "X1"), grant("r", "cam", SEEN, own, may=PUBLISH))
    with pytest.raises(PublishDenied):
        accepted(SENT, SetAttribute("cam", "plate", "X2"), grant("r", "cam", SEEN, own, may=PUBLISH))


def test_forced_values_may_be_written_as_text() -> None:
    from headgate.model.changes import DeclareType
    from headgate.model.types import EventType
    from headgate.model.values import Kind

    typed = DeclareType(EventType("x.T", "owner", {"t": Kind.TIMESTAMP, "y": Kind.BYTES}))
    rule = grant(
        "r", "cam", "x.T", attributes=("t", "y"), forced={"t": "2026-01-01T12:00:00Z", "y": "00ff"}, may=PUBLISH
    )
    assert accepted(draft("x.T"), typed, rule) == {"t": NOON, "y": b"\x00\xff"}


def test_is_null_is_tested_after_hiding() -> None:
    rule = grant("r", "cam", SEEN, IsNull(SPEED), attributes=("plate",), may=PUBLISH)
    assert accepted(SENT, rule)["plate"] == "X1"
