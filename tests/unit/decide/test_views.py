"""Which attributes a principal sees: D3, D4, D5 and D8 by example."""

from __future__ import annotations

import pytest

from headgate.decide.views import governs, holds, view
from headgate.model.changes import AddMember, Change, DeclareGroup, DeclareType, SetAttribute
from headgate.model.events import Event
from headgate.model.expressions import Compare, Constant, IsNull, Not, Predicate, Subject
from headgate.model.rights import Action
from headgate.model.types import EventType
from headgate.model.values import Kind
from strategies.small import CHASE, LANE, PLATE, SEEN, SPEED, UNIT, chase, commit, forbid, grant, is_, seen, world

ALL = {"plate", "speed", "lane"}
CAR = seen(plate="X1", speed=50, lane=1)
RUN = chase(plate="X1", speed=90, lane=1, unit="T7")


def shown(event: Event, *changes: Change, who: str = "anna") -> set[str] | None:
    found = view(world(*changes).now, who, event, {})
    return None if found is None else set(found.attributes)


def test_without_a_grant_there_is_no_view() -> None:
    assert shown(CAR) is None
    assert shown(CAR, grant("r", "bob")) is None
    assert shown(CAR, grant("r", "anna", CHASE)) is None
    assert shown(CAR, grant("r", "anna", may=(Action.PUBLISH,))) is None


def test_a_grant_shows_what_it_names() -> None:
    assert shown(CAR, grant("r", "anna")) == ALL
    assert shown(CAR, grant("r", "anna", attributes=("plate",))) == {"plate"}
    assert shown(CAR, grant("r", "anna", attributes=())) == set()


def test_grants_add_up() -> None:
    parts = grant("a", "anna", attributes=("plate",)), grant("b", "staff", attributes=("lane",))
    assert shown(CAR, *parts) == {"plate", "lane"}


def test_groups_count_through_nested_ones() -> None:
    nested = DeclareGroup("everyone"), AddMember("everyone", "staff"), grant("r", "everyone")
    assert shown(CAR, *nested) == ALL
    assert shown(CAR, *nested, who="bob") is None


# -- D4 -----------------------------------------------------------------------------------------------------------


def test_a_right_covers_subtypes_but_only_attributes_of_the_named_type() -> None:
    assert shown(RUN, grant("r", "anna")) == ALL
    assert shown(RUN, grant("r", "anna", CHASE)) == {*ALL, "unit"}
    assert shown(RUN, grant("r", "anna", CHASE, attributes=("unit",))) == {"unit"}


def test_a_pattern_names_the_nearest_type_it_matches() -> None:
    assert shown(RUN, grant("r", "anna", "*")) == {*ALL, "unit"}
    assert shown(RUN, grant("r", "anna", "police.*")) == {*ALL, "unit"}
    assert shown(RUN, grant("r", "anna", "road.*")) == ALL
    assert shown(CAR, grant("r", "anna", "police.*")) is None


def test_a_pattern_reaches_only_what_its_author_governs() -> None:
    ledger = world()
    commit(ledger, grant("r", "anna", "*"), author="owner")
    found = view(ledger.now, "anna", RUN, {})
    assert found is not None
    assert found.attributes == ALL
    commit(ledger, grant("s", "anna", "*"), author="police")
    found = view(ledger.now, "anna", RUN, {})
    assert found is not None
    assert found.attributes == {*ALL, "unit"}


def test_a_pattern_ignores_attributes_a_type_lacks() -> None:
    assert shown(CAR, grant("r", "anna", "*", attributes=("plate", "unit"))) == {"plate"}


# -- D3: conditions see the full event --------------------------------------------------------------------------------


def test_a_condition_sees_attributes_that_stay_hidden() -> None:
    fast = Compare(">", SPEED, Constant(40))
    assert shown(CAR, grant("r", "anna", SEEN, fast, attributes=("plate",))) == {"plate"}


def test_an_attribute_that_the_named_type_lacks_is_null_in_the_condition() -> None:
    # `unit` is no attribute of `road.Seen`, through which the pattern takes the chase in.
    assert shown(RUN, grant("r", "anna", "road.*", is_(UNIT, "T7"))) is None
    assert shown(RUN, grant("r", "anna", "road.*", IsNull(UNIT))) == ALL
    assert shown(RUN, grant("r", "anna", "police.*", is_(UNIT, "T7"))) == {*ALL, "unit"}


def test_forced_values_are_asked_for() -> None:
    rule = grant("r", "anna", SEEN, attributes=("lane", "plate"), forced={"lane": 1})
    assert shown(CAR, rule) == {"lane", "plate"}
    assert shown(seen(plate="X1", lane=2), rule) is None
    assert shown(seen(plate="X1"), rule) is None


def test_a_forced_value_that_a_matching_type_lacks_is_unknown() -> None:
    assert shown(CAR, grant("r", "anna", "*", attributes=("unit", "plate"), forced={"unit": "T7"})) is None
    hide = forbid("f", "anna", "*", attributes=("unit", "plate"), forced={"unit": "T7"})
    assert shown(CAR, hide, grant("r", "anna")) == {"speed", "lane"}


def test_subject_attributes() -> None:
    cleared = Compare("<=", SPEED, Subject("limit"))
    assert shown(CAR, grant("r", "anna", SEEN, cleared)) is None
    assert shown(CAR, SetAttribute("anna", "limit", 60), grant("r", "anna", SEEN, cleared)) == ALL
    assert shown(CAR, SetAttribute("anna", "limit", "60"), grant("r", "anna", SEEN, cleared)) is None
    assert shown(CAR, SetAttribute("anna", "limit", "60"), grant("r", "anna", SEEN, Not(cleared))) is None


# -- D5: the first that matches and covers decides ----------------------------------------------------------------


def test_a_forbid_limits_what_comes_after_it() -> None:
    hide = forbid("f", "anna", attributes=("plate",))
    assert shown(CAR, hide, grant("r", "anna")) == {"speed", "lane"}
    assert shown(CAR, grant("r", "anna"), hide) == ALL
    assert shown(CAR, grant("a", "anna", attributes=("lane",)), hide, grant("b", "anna")) == {"lane", "speed"}


def test_a_forbid_without_attributes_stops_the_event() -> None:
    stop = forbid("f", "anna")
    assert shown(CAR, stop, grant("r", "anna")) is None
    assert shown(CAR, grant("r", "anna"), stop) == ALL
    # After a grant it still covers every attribute.
    assert shown(CAR, grant("a", "anna", attributes=("lane",)), stop, grant("b", "anna")) == {"lane"}


def test_a_forbid_on_the_parent_covers_every_attribute_of_the_actual_type() -> None:
    parts = grant("a", "anna", CHASE, attributes=("lane",)), forbid("f", "anna", SEEN), grant("b", "anna", CHASE)
    assert shown(RUN, *parts) == {"lane"}


def test_a_forbid_with_attributes_never_stops_the_event() -> None:
    assert shown(CAR, forbid("f", "anna", attributes=("plate", "speed", "lane")), grant("r", "anna")) == set()
    assert shown(CAR, forbid("f", "anna", attributes=()), grant("r", "anna")) == ALL


def test_an_unknown_forbid_forbids_and_an_unknown_grant_does_not_grant() -> None:
    no_speed = seen(plate="X1", lane=1)
    fast = Compare(">", SPEED, Constant(40))
    assert shown(no_speed, grant("r", "anna", SEEN, fast)) is None
    assert shown(no_speed, forbid("f", "anna", SEEN, fast), grant("r", "anna")) is None
    assert shown(seen(plate="X1", speed=30), forbid("f", "anna", SEEN, fast), grant("r", "anna")) == ALL


def test_a_failing_predicate_is_unknown() -> None:
    from strategies.predicates import registration

    register = registration("fails")
    ledger = world(register, forbid("f", "anna", SEEN, Predicate("fails", (PLATE,))), grant("r", "anna"))

    def fails(event, size, plate):  # type: ignore[no-untyped-def]
        raise ValueError(plate)

    assert view(ledger.now, "anna", CAR, {"fails": fails}) is None
    found = view(ledger.now, "anna", CAR, {"fails": lambda event, size, plate: False})
    assert found is not None


def test_rules_come_in_the_order_of_their_versions_and_first_goes_before_all() -> None:
    ledger = world(grant("r", "anna"))
    commit(ledger, forbid("f", "anna"))
    assert view(ledger.now, "anna", CAR, {}) is not None
    commit(ledger, forbid("g", "staff", first=True))
    assert view(ledger.now, "anna", CAR, {}) is None


def test_a_view_says_why() -> None:
    ledger = world(forbid("f", "anna", attributes=("speed",)), grant("r", "anna", attributes=("plate", "speed")))
    found = view(ledger.now, "anna", CAR, {})
    assert found is not None
    assert [rule.id for rule in found.because] == ["r"]
    assert {name: rule.id for name, rule in found.decided_by.items()} == {"speed": "f", "plate": "r"}
    assert found.of(CAR.values) == {"plate": "X1", "speed": None, "lane": None}


# -- rights that are not about events -----------------------------------------------------------------------------


def test_owners_and_the_administrator_govern() -> None:
    state = world().now
    assert governs(state, "owner", SEEN)
    assert governs(state, "administrator", CHASE)
    assert not governs(state, "owner", CHASE)
    assert not governs(state, "anna", SEEN)


def test_govern_is_given_like_any_right_but_not_to_subtypes() -> None:
    state = world(grant("g", "staff", may=(Action.GOVERN,))).now
    assert governs(state, "anna", SEEN)
    assert not governs(state, "anna", CHASE)
    assert not holds(state, "anna", Action.AUDIT, SEEN)


@pytest.mark.parametrize("first", [True, False])
def test_a_forbid_before_a_grant_takes_govern_away(first: bool) -> None:
    state = world(grant("g", "anna", may=(Action.GOVERN,)), forbid("f", "staff", may=(Action.GOVERN,), first=first)).now
    assert governs(state, "anna", SEEN) is not first


def test_a_conditional_govern_is_none() -> None:
    assert not governs(world(grant("g", "anna", SEEN, is_(LANE, 1), may=(Action.GOVERN,))).now, "anna", SEEN)


def test_two_who_give_govern_to_each_other_have_nothing() -> None:
    ledger = world(grant("a", "anna", may=(Action.GOVERN,)), grant("b", "bob", may=(Action.GOVERN,)))
    commit(ledger, grant("a", "bob", "*", may=(Action.GOVERN,)), author="anna")
    commit(ledger, grant("b", "anna", "*", may=(Action.GOVERN,)), author="bob")
    assert not governs(ledger.now, "anna", SEEN)
    assert not governs(ledger.now, "bob", SEEN)


def test_a_new_type_is_taken_in_by_an_old_pattern() -> None:
    ledger = world(grant("r", "anna", "road.*"))
    commit(ledger, DeclareType(EventType("road.Toll", "owner", {"fee": Kind.FLOAT})))
    toll = Event("e", "cam", "road.Toll", {"fee": 1.0}, CAR.time)
    found = view(ledger.now, "anna", toll, {})
    assert found is not None
    assert found.attributes == {"fee"}
