"""Disagreements that were found once, each as the smallest story that shows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headgate.decide.deliver import decide
from headgate.model.changes import (
    AddMember,
    AddRow,
    Change,
    DeclareGroup,
    DeclareRelation,
    DeclareType,
    RemoveMember,
    SetAttribute,
    Unsubscribe,
)
from headgate.model.conditions import (
    Attribute,
    ClockPart,
    Compare,
    Condition,
    Constant,
    InGroup,
    InRange,
    InSet,
    IsNull,
    Meta,
    Not,
    Predicate,
    Related,
    Subject,
    all_of,
    any_of,
)
from headgate.model.events import Event
from headgate.model.types import EventType
from headgate.model.values import Kind, micros
from headgate.pipeline.build import IndexBuilder
from headgate.pipeline.codec import LogBatch
from headgate.pipeline.decider import decide_appends
from headgate.pipeline.deliveries import DeliveryBlob, read
from headgate.pipeline.layout import layouts
from headgate.pipeline.match import Matcher, Window
from strategies.memory import MemoryLedger, MemoryLog, exact
from strategies.predicates import registration
from strategies.small import CHASE, LANE, PLATE, SEEN, SPEED, UNIT, chase, commit, forbid, grant, is_, seen, wish, world

EDGES = (datetime(1, 1, 1, 0, 30, tzinfo=UTC), datetime(9999, 12, 31, 23, 30, tzinfo=UTC))


def appended(ledger: MemoryLedger, *appends: list[Event]) -> MemoryLog:
    log = MemoryLog()
    for events in appends:
        log.append("main", ledger.now, micros(events[0].time), events)
    return log


def blobs_of(ledger: MemoryLedger, batches: list[LogBatch]) -> list[DeliveryBlob]:
    index = IndexBuilder(ledger).index(0, ledger.version)
    return list(decide_appends(Matcher(index, ledger.functions), batches, Window(0, ledger.version)))


def agree(ledger: MemoryLedger, *appends: list[Event]) -> int:
    """Matcher and `decide` agree on these events; how many deliveries there are."""
    return agree_on(ledger, appended(ledger, *appends))


def agree_on(ledger: MemoryLedger, log: MemoryLog) -> int:
    """Matcher and `decide` agree on a log; how many deliveries there are."""
    places = layouts(ledger.now.types)
    found = [d for blob in blobs_of(ledger, log.batches) for d in read(blob, places)]
    expected = []
    for event in log.events:
        for number, subscription in enumerate(ledger.every_subscription()):
            delivery = decide(event, subscription, ledger.state, ledger.predicates)
            if delivery is not None:
                expected.append((event.seq, number, exact(delivery.view)))
    assert sorted((d.seq, d.subscription, exact(d.view)) for d in found) == sorted(expected)
    return len(expected)


def test_a_range_is_found_once_although_it_is_under_many_nodes() -> None:
    ranges = [
        wish(f"s{low}-{high}", "anna", SEEN, InRange(SPEED, Constant(low), Constant(high)))
        for low in range(0, 40, 3)
        for high in range(low, 60, 7)
    ]
    assert agree(world(grant("r", "anna"), *ranges), [seen(speed=n) for n in range(-1, 62)]) > 1000


def test_texts_of_rules_and_of_filters_are_numbered_apart() -> None:
    changes: list[Change] = [grant(f"r{text}", "anna", SEEN, is_(PLATE, text)) for text in ("c", "b", "a")]
    changes += [wish(f"s{text}", "anna", SEEN, is_(PLATE, text)) for text in ("a", "b", "x", "c")]
    assert agree(world(*changes), [seen(plate=p) for p in ("a", "b", "c", "x", None)]) == 3


def test_a_blob_depends_on_its_own_append_alone() -> None:
    ledger = world(grant("r", "anna", "*"), wish("s", "anna"))
    appends = [seen(plate="X1")], [chase(unit="T7", speed=1)], [seen(lane=1), seen()]
    log = appended(ledger, *appends)
    together = blobs_of(ledger, log.batches)
    apart = [blob for batch in log.batches for blob in blobs_of(ledger, [batch])]
    assert together == apart


def test_no_hidden_value_is_left_under_a_null() -> None:
    typed = DeclareType(
        EventType("x.T", "owner", {"s": Kind.STRING, "y": Kind.BYTES, "i": Kind.INT, "f": Kind.FLOAT, "open": Kind.INT})
    )
    ledger = world(
        typed,
        grant("r", "anna", "x.T", is_(Attribute("open"), 1)),
        grant("q", "anna", "x.T", attributes=("open",)),
        wish("s", "anna", "x.T"),
    )
    secret = {"s": "SECRETTEXT", "y": b"SECRETBYTES", "i": 0x1122334455667788, "f": 1.2345678}
    shown = {"s": "shown", "y": b"", "i": 1, "f": 1.0}
    hidden = [
        Event(f"e{n}", "cam", "x.T", {**(secret if n % 2 else shown), "open": 1 - n % 2}, EDGES[0]) for n in range(20)
    ]
    (blob,) = blobs_of(ledger, appended(ledger, hidden).batches)
    assert blob.count == 20
    assert blob.blob is not None
    for needle in (b"SECRET", (0x1122334455667788).to_bytes(8, "little"), b"\x1b\xde\x83B\xca\xc0\xf3?"):
        assert needle not in blob.blob


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/New_York", "UTC"])
@pytest.mark.parametrize("part", ["timeofday", "weekday"])
def test_clocks_at_the_ends_of_the_calendar(zone: str, part: str) -> None:
    it = ClockPart(part, Meta("time"), zone)  # type: ignore[arg-type]
    filters: list[Condition] = [
        IsNull(it),
        Not(IsNull(it)),
        Compare("<", it, Constant(5)),
        Compare("!=", it, Constant(5)),
        Compare(">=", it, Constant(0)),
        Compare("=", it, Constant(1e308)),
        Compare("!=", it, Constant(2**70)),
        InSet(it, (2**70, 1, 7)),
        Compare("<", it, LANE),
    ]
    wishes = [wish(f"s{n}", "anna", SEEN, where) for n, where in enumerate(filters)]
    events = [[replace(seen(lane=3), time=time)] for time in EDGES]
    assert agree(world(grant("r", "anna"), *wishes), *events) > 0


def test_an_attribute_that_the_named_type_lacks_is_null_for_its_subtypes_too() -> None:
    cases = [is_(UNIT, "T7"), IsNull(UNIT), Not(is_(UNIT, "T7")), Predicate("kinds", (UNIT, Constant(1)))]
    for where in cases:
        for rule in (grant("r", "anna", "road.*", where), forbid("r", "anna", "road.*", where)):
            ledger = world(
                registration("kinds"), rule, grant("z", "anna", CHASE, attributes=("unit",)), wish("s", "anna")
            )
            agree(ledger, [chase(plate="X1", unit="T7"), chase(), seen(plate="X1")])


def alike(make) -> list[Condition]:  # type: ignore[no-untyped-def]
    ones = [make(Constant(v)) for v in (1, True, 1.0, 0.0, -0.0, False)]
    return [*ones, *(Not(one) for one in ones), any_of(*ones), all_of(ones[0], Not(ones[1]))]


@pytest.mark.parametrize("in_rules", [True, False])
def test_constants_that_python_takes_for_equal(in_rules: bool) -> None:
    predicates = alike(lambda c: Predicate("kinds", (c, Constant("a"))))
    relations = alike(lambda c: Related("R", (PLATE, c)))
    changes: list[Change] = [
        registration("kinds"),
        DeclareRelation("R", open=True),
        AddRow("R", ("a", 1)),
        AddRow("R", ("b", True)),
    ]
    for number, where in enumerate([*predicates, *relations]):
        if in_rules:
            changes.append(grant(f"r{number}", "anna", SEEN, where, attributes=("plate",)))
            changes.append(grant(f"q{number}", "bob", SEEN, where, attributes=("lane",) if number % 2 else ("speed",)))
        else:
            changes.append(wish(f"s{number}", "cam", SEEN, where))
    changes += [grant("z", "cam"), wish("sa", "anna"), wish("sb", "bob")]
    assert agree(world(*changes), [seen(plate=p, lane=1, speed=1) for p in ("a", "b", None)]) > 0


def test_subjects_that_python_takes_for_equal() -> None:
    looks = Predicate("kinds", (Subject("u"), Constant("a")))
    changes: list[Change] = [
        registration("kinds"),
        grant("r", "staff", SEEN, looks),
        wish("s", "anna"),
        wish("t", "bob"),
        wish("u", "cam"),
    ]
    changes += [AddMember("staff", who) for who in ("bob", "cam")]
    changes += [SetAttribute("anna", "u", 1), SetAttribute("bob", "u", True), SetAttribute("cam", "u", 1.0)]
    assert agree(world(*changes), [seen(plate="a")]) == 1


def test_large_sets_of_each_kind() -> None:
    attributes = {kind.value: kind for kind in Kind}
    typed = DeclareType(EventType("x.T", "owner", attributes))
    pools = {
        Kind.BOOL: [True, False],
        Kind.INT: list(range(40)),
        Kind.FLOAT: [n / 2 for n in range(40)],
        Kind.STRING: [f"t{n}" for n in range(40)],
        Kind.TIMESTAMP: [datetime(2026, 1, 1 + n % 28, n, tzinfo=UTC) for n in range(20)],
        Kind.BYTES: [bytes([n]) for n in range(40)],
    }
    changes: list[Change] = [typed, grant("r", "anna", "x.T")]
    for kind, pool in pools.items():
        it = Attribute(kind.value)
        changes += [
            wish(f"{kind.value}-in", "anna", "x.T", InSet(it, tuple(pool[::2]))),
            wish(f"{kind.value}-out", "anna", "x.T", Not(InSet(it, tuple(pool[::2])))),
        ]
    changes.append(
        wish(
            "several",
            "anna",
            "x.T",
            all_of(*(InSet(Attribute(k.value), tuple(pools[k][:8])) for k in (Kind.INT, Kind.FLOAT, Kind.STRING))),
        )
    )
    changes.append(wish("time", "anna", "x.T", InSet(Meta("time"), tuple(pools[Kind.TIMESTAMP]))))
    changes.append(wish("publisher", "anna", "x.T", InSet(Meta("publisher"), ("cam", *pools[Kind.STRING]))))
    events = [
        [
            Event(
                "e",
                "cam",
                "x.T",
                {k.value: p[n % len(p)] if n % 7 else None for k, p in pools.items()},
                pools[Kind.TIMESTAMP][n % 20],
            )
        ]
        for n in range(60)
    ]
    assert agree(world(*changes), *events) > 300


@pytest.mark.parametrize(
    "rule",
    [
        forbid("f", "anna", attributes=("plate",), first=True),
        forbid("f", "anna", SEEN, is_(LANE, 1), first=True),
        grant("r", "anna", attributes=("plate", "lane")),
        grant("r", "anna", SEEN, is_(LANE, 2)),
    ],
)
def test_history_shows_what_both_versions_show(rule: Change) -> None:
    ledger = world(grant("r", "anna", attributes=("plate", "speed")))
    log = appended(ledger, [seen(plate="X1", speed=1, lane=1), seen(plate="X2", lane=2), seen(speed=2)])
    wishes = [
        wish("all", "anna", history=True),
        wish("plate", "anna", SEEN, is_(PLATE, "X1"), history=True),
        wish("null", "anna", SEEN, IsNull(PLATE), history=True),
        wish("live", "anna"),
    ]
    commit(ledger, rule, *wishes)
    log.append("main", ledger.now, micros(EDGES[0]), [seen(plate="X1", speed=1, lane=1)])
    commit(ledger, Unsubscribe("all"), grant("z", "anna"))
    log.append("main", ledger.now, micros(EDGES[0]), [seen(plate="X1", speed=1, lane=1)])
    assert agree_on(ledger, log) > 0


def test_a_filter_sees_only_the_view() -> None:
    filters = [
        is_(SPEED, 1),
        Not(is_(SPEED, 1)),
        IsNull(SPEED),
        Not(IsNull(SPEED)),
        Predicate("sees"),
        Not(Predicate("sees")),
    ]
    ledger = world(
        registration("sees"),
        forbid("f", "anna", SEEN, is_(LANE, 1), attributes=("speed",)),
        grant("r", "anna"),
        *(wish(f"s{number}", "anna", SEEN, where) for number, where in enumerate(filters)),
    )
    assert (
        agree(ledger, [seen(speed=s, lane=n, plate=p) for s in (1, 2, None) for n in (1, 2) for p in ("a", None)]) > 0
    )


def test_entries_on_a_parent_and_its_subtype() -> None:
    rules: list[list[Change]] = [
        [grant("a", "anna")],
        [grant("a", "anna", "road.*")],
        [grant("a", "anna", CHASE, attributes=("lane",)), forbid("f", "anna"), grant("b", "anna", CHASE)],
        [forbid("f", "anna", attributes=("plate",)), grant("b", "anna", CHASE)],
        [grant("a", "anna", SEEN, is_(LANE, 1), attributes=("lane",)), grant("b", "anna", "*", IsNull(UNIT))],
    ]
    for changes in rules:
        ledger = world(*changes, wish("s", "anna"), wish("t", "anna", CHASE), wish("u", "anna", CHASE, is_(UNIT, "T7")))
        assert (
            agree(ledger, [chase(plate="X1", lane=1, unit="T7"), chase(lane=1), seen(plate="X1", lane=2), seen()]) > 0
        )


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
def test_integer_and_float_attributes_compare_exactly(op: str) -> None:
    typed = DeclareType(EventType("x.T", "owner", {"i": Kind.INT, "f": Kind.FLOAT}))
    ints = [0, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**53) - 1]
    floats = [0.0, -0.0, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 1.7e308, 5e-324]
    where = Compare(op, Attribute("i"), Attribute("f"))  # type: ignore[arg-type]
    back = Compare(op, Attribute("f"), Attribute("i"))  # type: ignore[arg-type]
    ledger = world(typed, grant("r", "anna", "x.T"), wish("s", "anna", "x.T", where), wish("t", "anna", "x.T", back))
    events = [Event("e", "cam", "x.T", {"i": i, "f": f}, EDGES[0]) for i in ints for f in floats]
    assert agree(ledger, events) > 0


def test_an_index_that_is_ahead_of_its_window() -> None:
    ledger = world(grant("r", "anna"), wish("s", "anna", history=True))
    log = appended(ledger, [seen(plate="X1")])
    commit(ledger, wish("t", "anna", history=True), Unsubscribe("s"))
    index = IndexBuilder(ledger).index(0, ledger.version)
    (blob,) = decide_appends(Matcher(index, {}), log.batches, Window(0, 2))
    assert [d.subscription for d in read(blob, layouts(ledger.now.types))] == [0]
    (late,) = decide_appends(Matcher(index, {}), log.batches, Window(2, 3, backfill=True))
    assert [d.subscription for d in read(late, layouts(ledger.now.types))] == [1]
    assert late.part == 3


def test_groups_and_relations_in_rules_and_filters() -> None:
    changes: list[Change] = [
        DeclareGroup("open", open=True),
        AddMember("open", "staff"),
        DeclareRelation("Knows", open=True),
        DeclareRelation("Shut"),
        AddRow("Knows", ("anna", 1)),
        AddRow("Shut", ("anna",)),
        grant("r", "bob", SEEN, InGroup(PLATE, "staff")),
        grant("q", "bob", SEEN, Related("Shut", (PLATE,)), attributes=("plate",)),
        grant("p", "anna"),
    ]
    filters = [
        InGroup(PLATE, "open"),
        Not(InGroup(PLATE, "open")),
        Related("Knows", (PLATE, LANE)),
        InGroup(Meta("publisher"), "open"),
    ]
    changes += [wish(f"{who}{n}", who, SEEN, where) for who in ("anna", "bob") for n, where in enumerate(filters)]
    ledger = world(*changes)
    log = appended(ledger, [seen(plate=p, lane=n) for p in ("anna", "bob", None) for n in (1, 2, None)])
    commit(ledger, AddMember("staff", "bob"), RemoveMember("staff", "anna"), AddRow("Knows", ("bob", 2)))
    log.append("main", ledger.now, 0, [seen(plate=p, lane=n) for p in ("anna", "bob", None) for n in (1, 2, None)])
    assert agree_on(ledger, log) > 0
