"""Explanations: what was tried, what decided, what would have been needed, and who is told what (D14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headgate.analysis.explain import Demand, Explanation, Question, Standing, Tried, ViewAt, Why, explain
from headgate.decide.apply import apply
from headgate.decide.deliver import Books
from headgate.lang import parse_condition, render_condition
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Batch,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    RemovePrincipal,
    RemoveRule,
    SetPolicyRule,
    Subscribe,
    Unsubscribe,
)
from headgate.model.errors import GovernDenied, NotFound, UnknownName, UnknownType
from headgate.model.events import Event
from headgate.model.rights import Action, Effect, Rule, Subscription
from headgate.model.state import State
from headgate.model.types import EventType
from headgate.model.values import Kind, Value

ADMIN = State().administrator
SEES = frozenset({Action.SUBSCRIBE})
T = "shop.Sale"
SALE = EventType(T, "shop", {"item": Kind.STRING, "price": Kind.INT, "buyer": Kind.STRING})
WHO = ("shop", "ann", "bob", "eve", "audrey", "gus")


def rule(id: str, where: str = "true", attributes: str | None = None, **rest: object) -> Rule:
    """A subscribe entry of ann's, unless the rest says otherwise."""
    listed = None if attributes is None else tuple(attributes.split())
    said: dict[str, object] = {"who": "ann", "actions": SEES, "type": T, **rest}
    return Rule(id, where=parse_condition(where), attributes=listed, **said)  # type: ignore[arg-type]


class World:
    """A ledger of states, one batch each."""

    def __init__(self, *changes: Change) -> None:
        self.states = [State()]
        self.commit(*(DeclarePrincipal(name, {"level": 3} if name == "ann" else {}) for name in WHO))
        self.commit(
            DeclareType(SALE),
            DeclareGroup("vip"),
            AddMember("vip", "ann"),
            DeclareRelation("Knows"),
            AddRow("Knows", ("ann", "bob")),
            AddRule(rule("audits", who="audrey", actions=frozenset({Action.AUDIT}))),
            AddRule(rule("governs", who="gus", actions=frozenset({Action.GOVERN}))),
            *changes,
        )

    def commit(self, *changes: Change, by: str = ADMIN) -> int:
        self.states.append(apply(self.states[-1], Batch(by, changes)))
        return len(self.states) - 1

    @property
    def books(self) -> Books:
        return Books(self.states[-1], self.states.__getitem__, lambda _: {})

    def event(self, version: int | None = None, **values: Value) -> Event:
        every = {**dict.fromkeys(SALE.attributes), **values}
        at = len(self.states) - 1 if version is None else version
        return Event("e1", "shop", T, every, datetime(2026, 1, 1, tzinfo=UTC), "main", 7, at)

    def ask(self, event: Event | None, asker: str = ADMIN, principal: str = "ann", **rest: object) -> Explanation:
        named = [s for state in self.states for s in state.subscriptions.values() if s.id == rest.get("subscription")]
        question = Question(asker, principal, "e1", **rest)  # type: ignore[arg-type]
        return explain(question, event, self.books, list(dict.fromkeys(named)))


def whys(answer: Explanation) -> dict[str, tuple[bool, Why, str | None]]:
    return {s.name: (s.visible, s.why, s.rule) for s in answer.attributes}


def only(seen: ViewAt, rule: str) -> Tried:
    return next(t for t in seen.tried if t.rule == rule)


def parts(tried: Tried) -> list[tuple[str, bool | None, dict[str, Value]]]:
    return [
        (render_condition(p.condition), p.truth, {getattr(o, "name", "?"): v for o, v in p.values}) for p in tried.parts
    ]


# -- facts ------------------------------------------------------------------------------------------------------


def test_each_attribute_names_the_entry_that_decided_it() -> None:
    world = World(
        AddRule(rule("no-buyer", attributes="buyer", effect=Effect.FORBID)),
        AddRule(rule("all", "price > 5")),
    )
    answer = world.ask(world.event(item="hat", price=9, buyer="bob"))
    assert answer.visible
    assert whys(answer) == {
        "item": (True, Why.GRANTED, "all"),
        "price": (True, Why.GRANTED, "all"),
        "buyer": (False, Why.FORBIDDEN, "no-buyer"),
    }
    assert [s.value for s in answer.attributes] == ["hat", 9, None]
    (need,) = answer.needed
    assert (need.type, need.attributes, need.before, need.failed) == (T, ("buyer",), "no-buyer", ())


def test_what_one_got_is_explained_after_it_has_left() -> None:
    world = World(AddRule(rule("all")), Subscribe(Subscription("s", "ann", T)))
    event = world.event(item="hat", price=9)
    world.commit(RemovePrincipal("ann"))
    assert world.ask(event).visible
    answer = world.ask(event, subscription="s")
    assert answer.subscription is not None
    assert answer.subscription.delivered
    with pytest.raises(UnknownName):
        world.ask(event, principal="nobody")
    with pytest.raises(UnknownName):
        world.ask(event, asker="ann")


def test_entries_come_in_order_with_their_deciding_parts() -> None:
    world = World(
        AddRule(rule("cheap", "price < 5 and item = 'hat'")),
        AddRule(rule("known", "not (price >= 5 or buyer = 'bob')", "item")),
        AddRule(rule("level", "$level >= 5", "item price")),
        AddRule(rule("vip", "buyer in group vip or item is null", who="vip")),
    )
    answer = world.ask(world.event(item="hat", price=9))
    assert not answer.visible
    (seen,) = answer.views
    assert [t.rule for t in seen.tried] == ["cheap", "known", "level", "vip"]
    assert [t.truth for t in seen.tried] == [False, False, False, None]
    assert parts(only(seen, "cheap")) == [("price < 5", False, {"price": 9})]
    assert parts(only(seen, "known")) == [("price >= 5", True, {"price": 9})]
    assert parts(only(seen, "level")) == [("$level >= 5", False, {"level": 3})]
    assert parts(only(seen, "vip")) == [("buyer in group vip", None, {"buyer": None})]
    assert only(seen, "vip").who == "vip"
    assert {s.name: s.failed for s in answer.attributes} == {
        "item": ("cheap", "known", "level", "vip"),
        "price": ("cheap", "level", "vip"),
        "buyer": ("cheap", "vip"),
    }


def test_a_whole_event_forbid_stops_the_trying_and_is_named() -> None:
    world = World(
        AddRule(rule("never", "price = 1", effect=Effect.FORBID)),
        AddRule(rule("maybe", "buyer = 'bob'", effect=Effect.FORBID)),
        AddRule(rule("all")),
    )
    answer = world.ask(world.event(price=9))
    (seen,) = answer.views
    assert not answer.visible
    assert seen.stopped_by == "maybe"
    assert [(t.rule, t.truth, t.matched) for t in seen.tried] == [("never", False, False), ("maybe", None, True)]
    (need,) = answer.needed
    assert (need.attributes, need.before) == (("item", "price", "buyer"), "maybe")


def test_no_entry_at_all_needs_a_grant() -> None:
    world = World()
    answer = world.ask(world.event(), principal="bob")
    assert not answer.visible
    assert {s.why for s in answer.attributes} == {Why.UNCOVERED}
    (need,) = answer.needed
    assert (need.attributes, need.before, need.failed) == (("item", "price", "buyer"), None, ())


def test_another_version_decides_as_if_the_event_had_it() -> None:
    world = World(AddRule(rule("all")))
    event = world.event(item="hat")
    later = world.commit(RemoveRule("all"))
    assert world.ask(event).visible
    answer = world.ask(event, version=later)
    assert (answer.visible, answer.version, answer.event_version) == (False, later, 2)
    with pytest.raises(UnknownType, match="version 1 did not know"):
        world.ask(event, version=1)


# -- subscriptions ----------------------------------------------------------------------------------------------


def test_a_filter_part_that_is_hidden_is_unknown() -> None:
    world = World(AddRule(rule("some", attributes="item")))
    where = parse_condition("item = 'hat' and price > 5")
    world.commit(Subscribe(Subscription("s", "ann", T, where)))
    asked = world.ask(world.event(item="hat", price=9), subscription="s").subscription
    assert asked is not None
    assert (asked.standing, asked.truth, asked.delivered, asked.hidden) == (Standing.LIVE, None, False, ("price",))
    assert [(render_condition(p.condition), p.truth) for p in asked.parts] == [("price > 5", None)]


@pytest.mark.parametrize(
    ("id", "version", "standing", "delivered"),
    [
        ("early", 4, Standing.LIVE, True),
        ("early", 6, Standing.ENDED, False),
        ("late", 4, Standing.NOT_YET, False),
        ("past", 4, Standing.HISTORY, True),
        ("other", 4, Standing.OTHER_TYPE, False),
    ],
)
def test_the_standing_of_a_subscription(id: str, version: int, standing: Standing, delivered: bool) -> None:
    world = World(AddRule(rule("all")))
    world.commit(DeclareType(EventType("shop.Return", "shop", {})))
    world.commit(Subscribe(Subscription("early", "ann", T)), Subscribe(Subscription("other", "ann", "shop.Return")))
    world.commit(Subscribe(Subscription("late", "ann", T)), Subscribe(Subscription("past", "ann", T, history=True)))
    world.commit(Unsubscribe("early"))
    asked = world.ask(world.event(version=version), subscription=id).subscription
    assert asked is not None
    assert (asked.standing, asked.delivered) == (standing, delivered)


def test_history_says_which_version_hid_an_attribute() -> None:
    world = World(AddRule(rule("then", attributes="item price")))
    event = world.event(item="hat", price=9, buyer="bob")
    world.commit(RemoveRule("then"), AddRule(rule("later", attributes="item buyer")))
    first = world.commit(Subscribe(Subscription("past", "ann", T, history=True)))
    answer = world.ask(event, subscription="past")
    assert [v.version for v in answer.views] == [2, first]
    assert {s.name: (s.visible, s.version) for s in answer.attributes} == {
        "item": (True, 2),
        "price": (False, first),
        "buyer": (False, 2),
    }
    assert [(n.version, n.attributes) for n in answer.needed] == [(2, ("buyer",)), (first, ("price",))]
    assert answer.subscription is not None
    assert answer.subscription.delivered


def test_a_subscription_of_somebody_else_is_not_found() -> None:
    world = World(AddRule(rule("all")))
    world.commit(Subscribe(Subscription("theirs", "bob", T)))
    for id in ("theirs", "nobody's"):
        with pytest.raises(NotFound, match="`ann` has no subscription"):
            world.ask(world.event(), subscription=id)


# -- who is told what (D14) -------------------------------------------------------------------------------------


@pytest.mark.parametrize("asker", [ADMIN, "shop", "gus", "audrey"])
def test_administrator_owner_governor_and_auditor_are_told_everything(asker: str) -> None:
    world = World(AddRule(rule("all", "buyer = 'bob'")))
    answer = world.ask(world.event(price=9, buyer="eve"), asker)
    assert answer.full
    assert answer.place == ("main", 7)
    assert parts(answer.views[0].tried[0]) == [("buyer = 'bob'", False, {"buyer": "eve"})]


def test_the_right_to_ask_is_that_of_now() -> None:
    world = World(AddRule(rule("all")))
    event = world.event()
    world.commit(RemoveRule("audits"))
    with pytest.raises(GovernDenied):
        world.ask(event, "audrey")


def test_anyone_else_is_refused_whether_or_not_the_event_exists() -> None:
    world = World(AddRule(rule("all")))
    with pytest.raises(GovernDenied) as there:
        world.ask(world.event(), "eve")
    with pytest.raises(GovernDenied) as nowhere:
        world.ask(None, "eve")
    assert str(there.value) == str(nowhere.value)
    with pytest.raises(NotFound):
        world.ask(None, ADMIN)


def test_unknown_askers_and_principals_are_named() -> None:
    world = World()
    with pytest.raises(UnknownName, match="`nobody`"):
        world.ask(world.event(), "nobody")
    with pytest.raises(UnknownName, match="`nobody`"):
        world.ask(world.event(), ADMIN, "nobody")


def test_a_principal_learns_attributes_but_no_conditions_positions_or_other_entries() -> None:
    world = World(
        AddRule(rule("secret-forbid", "buyer = 'bob'", "price", effect=Effect.FORBID)),
        AddRule(rule("failing", "buyer = 'eve'")),
        AddRule(rule("vip", "buyer = 'bob'", "item price", who="vip")),
    )
    answer = world.ask(world.event(item="hat", price=9, buyer="bob"), "ann")
    assert not answer.full
    assert answer.place is None
    assert whys(answer) == {
        "item": (True, Why.GRANTED, "vip"),
        "price": (False, Why.UNCOVERED, None),
        "buyer": (False, Why.UNCOVERED, None),
    }
    assert all(s.failed == () for s in answer.attributes)
    (tried,) = answer.views[0].tried
    assert (tried.rule, tried.who, tried.condition, tried.told, tried.parts) == ("vip", None, None, False, ())
    assert [(n.attributes, n.before, n.failed) for n in answer.needed] == [(("price", "buyer"), None, ())]


def test_a_disclosed_condition_is_told_but_not_its_truth_over_what_is_hidden() -> None:
    world = World(
        AddRule(rule("item", attributes="item")),
        AddRule(rule("on-item", "item = 'cap'", "price", disclose=True)),
        AddRule(rule("on-buyer", "buyer = 'eve'", "price", disclose=True)),
        AddRule(rule("on-group", "item in group vip", "price", disclose=True)),
        AddRule(rule("on-relation", "Knows(item, item)", "price", disclose=True)),
    )
    (seen,) = world.ask(world.event(item="hat", price=9, buyer="bob"), "ann").views
    told = only(seen, "on-item")
    assert (told.truth, told.matched) == (False, False)
    assert parts(told) == [("item = 'cap'", False, {"item": "hat"})]
    for id in ("on-buyer", "on-group", "on-relation"):
        kept = only(seen, id)
        assert kept.condition is not None
        assert (kept.told, kept.truth, kept.matched, kept.parts, kept.decided) == (False, None, None, (), ())


def test_an_event_without_a_view_answers_as_one_that_does_not_exist() -> None:
    world = World(AddRule(rule("some", "price > 5")))
    answers = set()
    for event in (None, world.event(price=1), world.event(price=None)):
        for version in (None, 0, 1, 2, 99):
            with pytest.raises(NotFound) as refused:
                world.ask(event, "ann", version=version, subscription="x")
            answers.add((str(refused.value), refused.value.remedy, refused.value.place))
    assert len(answers) == 1


def test_a_principal_may_not_ask_about_another_version() -> None:
    world = World(AddRule(rule("all")))
    event = world.event()
    world.commit()
    with pytest.raises(GovernDenied, match="event's own version, 2"):
        world.ask(event, "ann", version=3)


def test_a_right_once_lost_does_not_show_the_past() -> None:
    world = World(AddRule(rule("all")))
    event = world.event(item="hat", price=9)
    assert world.ask(event, "ann").attributes[1].value == 9
    world.commit(RemoveRule("all"), AddRule(rule("less", attributes="item")))
    answer = world.ask(event, "ann")
    assert {s.name: (s.visible, s.value) for s in answer.attributes} == {
        "item": (True, "hat"),
        "price": (False, None),
        "buyer": (False, None),
    }
    assert all(s.value is None for v in answer.views for s in v.attributes if s.name != "item")
    world.commit(RemoveRule("less"))
    with pytest.raises(NotFound):
        world.ask(event, "ann")


def test_what_a_subscription_brought_may_be_asked_about_for_ever() -> None:
    world = World(AddRule(rule("all")))
    world.commit(Subscribe(Subscription("s", "ann", T, parse_condition("price > 5"))))
    delivered, passed_by = world.event(price=9), world.event(price=1)
    world.commit(RemoveRule("all"), Unsubscribe("s"))
    assert world.ask(delivered, "ann").attributes[1].value == 9
    with pytest.raises(NotFound):
        world.ask(passed_by, "ann")


# -- requirements -----------------------------------------------------------------------------------------------


LEVEL_4 = parse_condition("$level >= 4")


def test_a_requirement_that_is_not_met_is_told_to_those_who_are_told_all() -> None:
    world = World(AddRule(rule("all")), Subscribe(Subscription("s", "ann", T)))
    event = replace(world.event(item="tea"), requires=LEVEL_4)
    for asker in (ADMIN, "shop", "gus", "audrey"):
        answer = world.ask(event, asker, subscription="s")
        (unmet,) = answer.unmet
        assert (unmet.demand, unmet.condition, unmet.truth) == (Demand.EVENT, LEVEL_4, False)
        assert [v for part in unmet.parts for _, v in part.values] == [3]
        assert answer.visible
        assert answer.subscription is not None
        assert not answer.subscription.delivered
        assert answer.subscription.truth is True
    assert world.ask(replace(event, requires=parse_condition("$level = 3"))).unmet == ()


def test_the_policy_rule_of_the_publisher_stops_an_event_too() -> None:
    world = World(AddRule(rule("all")), SetPolicyRule("shop", parse_condition("$absent = 1")))
    (unmet,) = world.ask(world.event()).unmet
    assert (unmet.demand, unmet.truth) == (Demand.POLICY_RULE, None)


def test_an_event_whose_requirement_one_does_not_meet_does_not_exist_to_one() -> None:
    world = World(AddRule(rule("all")), Subscribe(Subscription("s", "ann", T)))
    event = replace(world.event(item="tea"), requires=LEVEL_4)
    with pytest.raises(NotFound) as there:
        world.ask(event, "ann", subscription="s")
    with pytest.raises(NotFound) as not_there:
        world.ask(None, "ann", subscription="s")
    assert str(there.value) == str(not_there.value)
    assert world.ask(replace(event, requires=None), "ann", subscription="s").unmet == ()


def test_ones_own_requirement_is_told_without_what_the_publisher_is_like() -> None:
    asks = parse_condition("$nation = 'NO'")
    world = World(AddRule(rule("all")), Subscribe(Subscription("s", "ann", T, requires=asks)))
    own = world.ask(world.event(item="tea"), "ann", subscription="s").subscription
    full = world.ask(world.event(item="tea"), "gus", subscription="s").subscription
    assert own is not None
    assert full is not None
    assert not own.delivered
    assert [(u.demand, u.condition, u.parts) for u in own.unmet] == [(Demand.SUBSCRIPTION, asks, ())]
    assert [len(u.parts) for u in full.unmet] == [1]


def test_entries_are_tried_where_the_subscription_was_made() -> None:
    near = AddRule(rule("near", "@origin starts with '10.'", "item"))
    world = World(
        near, Subscribe(Subscription("s", "ann", T, origin="10.0.0.1")), Subscribe(Subscription("t", "ann", T))
    )
    event = world.event(item="tea")
    assert [world.ask(event, subscription=name).visible for name in ("s", "t")] == [True, False]
    told = world.ask(event, "ann", subscription="s")
    assert {s.name for s in told.attributes if s.visible} == {"item"}
    assert not world.ask(event).visible
