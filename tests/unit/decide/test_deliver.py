"""Who receives an event: D9 and D10 by example."""

from __future__ import annotations

import pytest

from headgate.decide.deliver import decide
from headgate.model.changes import RemoveRule, Unsubscribe
from headgate.model.events import Event
from headgate.model.expressions import Compare, Constant, IsNull, Predicate
from headgate.model.values import Value
from strategies.memory import MemoryLedger
from strategies.predicates import registration
from strategies.small import CHASE, LANE, PLATE, SEEN, SPEED, chase, commit, forbid, grant, is_, seen, wish, world


def received(ledger: MemoryLedger, event: Event, id: str = "s", predicates=None) -> dict[str, Value] | None:  # type: ignore[no-untyped-def]
    """What the newest subscription of this id receives."""
    subscription = [s for s in ledger.every_subscription() if s.id == id][-1]
    found = decide(event, subscription, ledger.state, predicates or {})
    return None if found is None else dict(found.view)


def test_a_subscription_receives_its_view() -> None:
    ledger = world(grant("r", "anna", attributes=("plate",)), wish("s", "anna"))
    assert received(ledger, seen(2, plate="X1", speed=50)) == {"plate": "X1", "speed": None, "lane": None}


def test_the_filter_must_be_true() -> None:
    ledger = world(grant("r", "anna"), wish("s", "anna", SEEN, Compare(">", SPEED, Constant(40))))
    assert received(ledger, seen(2, speed=50)) is not None
    assert received(ledger, seen(2, speed=40)) is None
    assert received(ledger, seen(2)) is None


def test_a_filter_sees_only_the_view() -> None:
    hidden = forbid("f", "anna", attributes=("speed",)), grant("r", "anna")
    ledger = world(
        *hidden,
        wish("equal", "anna", SEEN, is_(SPEED, 50)),
        wish("other", "anna", SEEN, Compare("!=", SPEED, Constant(50))),
        wish("null", "anna", SEEN, IsNull(SPEED)),
    )
    event = seen(2, speed=50)
    assert received(ledger, event, "equal") is None
    assert received(ledger, event, "other") is None
    assert received(ledger, event, "null") == {"plate": None, "speed": None, "lane": None}


def test_a_predicate_in_a_filter_sees_only_the_view() -> None:
    ledger = world(
        registration("sees"),
        forbid("f", "anna", attributes=("speed",)),
        grant("r", "anna"),
        wish("s", "anna", SEEN, Predicate("sees")),
    )
    predicates = {"sees": lambda event, size: event["speed"] is None and size == len('{"plate":"X1"}')}
    assert received(ledger, seen(2, plate="X1", speed=50), predicates=predicates) is not None


def test_subtypes_come_too_and_supertypes_do_not() -> None:
    ledger = world(grant("r", "anna", "*"), wish("s", "anna", SEEN), wish("c", "anna", CHASE))
    assert received(ledger, chase(2, unit="T7")) == {"plate": None, "speed": None, "lane": None, "unit": "T7"}
    assert received(ledger, seen(2), "c") is None


def test_a_subscription_to_a_supertype_receives_what_there_are_rights_to() -> None:
    ledger = world(grant("r", "anna", CHASE), wish("s", "anna", SEEN))
    assert received(ledger, seen(2)) is None
    assert received(ledger, chase(2, unit="T7")) is not None


def test_a_wider_policy_widens_a_subscription() -> None:
    ledger = world(wish("s", "anna"))
    assert received(ledger, seen(2, plate="X1")) is None
    commit(ledger, grant("r", "anna"))
    assert received(ledger, seen(2, plate="X1")) is None
    assert received(ledger, seen(3, plate="X1")) is not None
    commit(ledger, RemoveRule("r"))
    assert received(ledger, seen(4, plate="X1")) is None
    assert received(ledger, seen(3, plate="X1")) is not None


def test_a_closed_subscription_receives_nothing_more() -> None:
    ledger = world(grant("r", "anna"), wish("s", "anna"))
    commit(ledger, Unsubscribe("s"))
    assert received(ledger, seen(2)) is not None
    assert received(ledger, seen(3)) is None


def test_an_id_used_again_is_another_subscription() -> None:
    ledger = world(grant("r", "anna"), wish("s", "anna", SEEN, is_(LANE, 1)))
    commit(ledger, Unsubscribe("s"))
    commit(ledger, wish("s", "anna", SEEN, is_(LANE, 1)))
    old, new = ledger.every_subscription()
    assert (old.first, new.first) == (2, 4)
    assert decide(seen(2, lane=1), old, ledger.state, {}) is not None
    assert decide(seen(4, lane=1), old, ledger.state, {}) is None
    assert decide(seen(2, lane=1), new, ledger.state, {}) is None
    assert decide(seen(4, lane=1), new, ledger.state, {}) is not None


def test_before_it_began_a_subscription_receives_nothing() -> None:
    ledger = commit(world(grant("r", "anna")), wish("s", "anna"))
    assert received(ledger, seen(2)) is None
    assert received(ledger, seen(3)) is not None


# -- D10: history -------------------------------------------------------------------------------------------------


def test_history_receives_earlier_events() -> None:
    ledger = commit(world(grant("r", "anna")), wish("s", "anna", history=True))
    assert received(ledger, seen(2, plate="X1")) == {"plate": "X1", "speed": None, "lane": None}


def test_history_outlives_its_subscription() -> None:
    ledger = commit(world(grant("r", "anna")), wish("s", "anna", history=True))
    commit(ledger, Unsubscribe("s"))
    assert received(ledger, seen(2)) is not None
    assert received(ledger, seen(4)) is None


def test_a_right_once_lost_does_not_open_the_past() -> None:
    ledger = world(grant("r", "anna"))
    commit(ledger, RemoveRule("r"))
    commit(ledger, wish("s", "anna", history=True))
    assert received(ledger, seen(2, plate="X1")) is None


def test_a_right_won_later_does_not_open_the_past_either() -> None:
    ledger = world()
    commit(ledger, grant("r", "anna"), wish("s", "anna", history=True))
    assert received(ledger, seen(1, plate="X1")) is None
    assert received(ledger, seen(2, plate="X1")) is not None


def test_history_shows_what_both_versions_show() -> None:
    ledger = world(grant("r", "anna", attributes=("plate", "speed")))
    commit(ledger, grant("r", "anna", attributes=("speed", "lane")), wish("s", "anna", history=True))
    assert received(ledger, seen(2, plate="X1", speed=1, lane=2)) == {"plate": None, "speed": 1, "lane": None}


@pytest.mark.parametrize(("where", "expected"), [(is_(PLATE, "X1"), False), (IsNull(PLATE), True)])
def test_a_filter_over_history_sees_what_both_show(where, expected: bool) -> None:  # type: ignore[no-untyped-def]
    ledger = world(grant("r", "anna"))
    commit(ledger, grant("r", "anna", attributes=("speed",)), wish("s", "anna", SEEN, where, history=True))
    assert (received(ledger, seen(2, plate="X1", speed=1)) is not None) is expected


def test_a_delivery_says_why() -> None:
    ledger = world(grant("r", "staff"), wish("s", "anna"))
    found = decide(seen(2), ledger.every_subscription()[0], ledger.state, {})
    assert found is not None
    assert [rule.id for rule in found.because] == ["r"]
