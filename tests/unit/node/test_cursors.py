"""What gateways remember of readers: places only go forward, by whoever writes them, and retention learns of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from headgate.model.composite import NullEvent
from headgate.model.errors import BadDefinition, NotFound, TooMany
from headgate.model.rights import Detection, Subscription
from headgate.model.state import State
from headgate.model.types import SIGNAL
from headgate.model.values import micros
from headgate.node.cursors import MAX_RESERVATIONS, PRESENT_SECONDS, Ack, Cursors, Reservation
from headgate.pipeline import SIGNALS
from headgate.pipeline.log.retention import Floor, Where
from headgate.storage.shared import Where as Place

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DELIVERIES, LOG = frozenset({Where.DELIVERIES}), frozenset({Where.LOG})


@pytest.fixture
def cursors(stored_in: Place) -> Iterator[Cursors]:
    made = Cursors(stored_in)
    yield made
    made.close()


def subscription(id: str, first: int = 1) -> Subscription:
    return Subscription(id, "anna", "road.Seen", first=first)


def starts(version: int) -> dict[str, int]:
    return {"a": 10 * max(version, 1), "b": 1}


def reservation(id: str, seconds: int = 60, **streams: int) -> Reservation:
    return Reservation("anna", id, "road.Seen", None, streams, NOW, NOW + timedelta(seconds=seconds))


def test_places_only_go_forward_and_belong_to_the_version(cursors: Cursors) -> None:
    cursors.ack_many([Ack("s", 1, {"a": 5, "b": 2}), Ack("s", 1, {"a": 3})], NOW)
    cursors.ack_many([Ack("s", 1, {"a": 4})], NOW)
    assert cursors.acked("s", 1) == {"a": 5, "b": 2}
    assert cursors.acked("s", 2) == {}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(1, 50)), max_size=12))
def test_two_processes_agree_on_the_furthest(moves: list[tuple[bool, str, int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        both = [Cursors(Path(directory) / Cursors.FILE) for _ in range(2)]
        furthest: dict[str, int] = {}
        for which, stream, seq in moves:
            both[which].ack_many([Ack("s", 1, {stream: seq})], NOW)
            furthest[stream] = max(seq, furthest.get(stream, 0))
        assert both[0].acked("s", 1) == both[1].acked("s", 1) == furthest
        for one in both:
            one.close()


def test_ended_sessions_are_known_everywhere_and_forgotten_when_expired(stored_in: Place) -> None:
    here, there = Cursors(stored_in), Cursors(stored_in)
    assert not there.ended("x")
    here.end_session("x", NOW + timedelta(seconds=5))
    here.end_session("x", NOW + timedelta(seconds=5))
    assert here.ended("x")
    there.look()
    assert there.ended("x")
    assert not there.ended("y")
    there.end_session("y", NOW + timedelta(seconds=50))
    here.look()
    assert here.ended("y")
    here.purge(State(), NOW + timedelta(seconds=10))
    assert (here.ended("x"), here.ended("y")) == (False, True)
    here.close()
    there.close()


def test_a_durable_subscription_holds_from_its_starting_point_until_it_acknowledges(cursors: Cursors) -> None:
    one = subscription("s", 3)
    assert cursors.floors([one], starts, NOW) == {
        "a": [Floor(30, "s", None, DELIVERIES)],
        "b": [Floor(1, "s", None, DELIVERIES)],
    }
    cursors.ack_many([Ack("s", 3, {"a": 41})], NOW)
    later = NOW + timedelta(seconds=PRESENT_SECONDS + 1)
    assert cursors.floors([one], starts, later) == {
        "a": [Floor(42, "s", micros(NOW), DELIVERIES)],
        "b": [Floor(1, "s", micros(NOW), DELIVERIES)],
    }
    cursors.touch([("s", 3)], later)
    assert cursors.floors([one], starts, later)["a"] == [Floor(42, "s", None, DELIVERIES)]


def test_a_detection_holds_signals_and_no_deliveries(cursors: Cursors) -> None:
    one = Subscription("d", "anna", SIGNAL, first=3, detection=Detection("null", NullEvent()))
    needs = frozenset({Where.SIGNALS})
    assert cursors.floors([one], starts, NOW) == {SIGNALS: [Floor(1, "d", None, needs)]}
    cursors.ack_many([Ack("d", 3, {SIGNALS: 6})], NOW)
    assert cursors.floors([one], starts, NOW) == {SIGNALS: [Floor(7, "d", None, needs)]}
    cursors.mark_temporary("d", 3, "gateway-1", NOW)
    assert cursors.floors([one], starts, NOW) == {}


def test_a_temporary_subscription_holds_nothing_and_is_stale_when_its_reader_is_gone(cursors: Cursors) -> None:
    cursors.mark_temporary("s", 3, "gateway-1", NOW)
    assert cursors.floors([subscription("s", 3)], starts, NOW) == {}
    assert cursors.floors([subscription("s", 4)], starts, NOW) != {}  # the next of that name is not temporary
    assert cursors.stale(NOW + timedelta(seconds=10), 60) == []
    cursors.ack_many([Ack("s", 3, {})], NOW + timedelta(seconds=50))
    assert cursors.stale(NOW + timedelta(seconds=100), 60) == []
    (gone,) = cursors.stale(NOW + timedelta(seconds=111), 60)
    assert (gone.subscription, gone.first, gone.gateway) == ("s", 3, "gateway-1")


def test_reservations_hold_the_log_until_they_expire(cursors: Cursors) -> None:
    cursors.reserve(reservation("r", a=7), NOW)
    held = cursors.floors([], starts, NOW + timedelta(seconds=59))
    assert held == {"a": [Floor(8, "anna:r", None, LOG)], "b": [Floor(1, "anna:r", None, LOG)]}
    assert cursors.floors([], starts, NOW + timedelta(seconds=60)) == {}
    with pytest.raises(NotFound):
        cursors.reservation("anna", "r", NOW + timedelta(seconds=60))
    with pytest.raises(NotFound):
        cursors.reservation("bob", "r", NOW)
    assert cursors.release("anna", "r")
    assert not cursors.release("anna", "r")


def test_a_principal_has_only_so_many_reservations(cursors: Cursors) -> None:
    for number in range(MAX_RESERVATIONS):
        cursors.reserve(reservation(f"r{number}"), NOW)
    with pytest.raises(TooMany, match="MAX_RESERVATIONS"):
        cursors.reserve(reservation("one more"), NOW)
    cursors.reserve(reservation("r0", seconds=5), NOW)  # in place of one that is there
    cursors.reserve(reservation("one more"), NOW + timedelta(seconds=6))


def test_what_belongs_to_closed_subscriptions_goes(cursors: Cursors) -> None:
    cursors.ack_many([Ack("open", 1, {"a": 1}), Ack("closed", 1, {"a": 1}), Ack("newer", 9, {"a": 1})], NOW)
    state = State(version=5, subscriptions={"open": subscription("open")})
    assert cursors.purge(state, NOW) == 1
    assert [cursors.acked(name, first) for name, first in (("open", 1), ("closed", 1), ("newer", 9))] == [
        {"a": 1},
        {},
        {"a": 1},
    ]


def test_one_that_asks_for_history_needs_what_lies_before_it(cursors: Cursors) -> None:
    asks = Subscription("s", "ann", "shop.Order", history=True, first=3)
    assert {stream: held[0].seq for stream, held in cursors.floors([asks], starts, NOW).items()} == {"a": 1, "b": 1}
    cursors.ack_many([Ack("s", 3, {"a": 41})], NOW)
    assert cursors.floors([asks], starts, NOW)["a"][0].seq == 42


def test_text_is_kept_as_it_is_or_refused(stored_in: Place) -> None:
    cursors = Cursors(stored_in)
    for word in ("\U0001f600 100 % of ?", "\u00e9 'x' \\ %s"):
        made = Reservation("ann", word, "a.T", f"item = '{word}'", {word: 1}, NOW, NOW + timedelta(days=1))
        cursors.reserve(made, NOW)
        assert cursors.reservation("ann", word, NOW) == made
    odd = Reservation("ann", "nul", "a.T", "item = 'a\0b'", {}, NOW, NOW + timedelta(days=1))
    if cursors.is_local:
        cursors.reserve(odd, NOW)
        assert cursors.reservation("ann", "nul", NOW) == odd
    else:
        with pytest.raises(BadDefinition, match="NUL"):
            cursors.reserve(odd, NOW)
    cursors.close()
