"""Disagreements that were found once, each as the smallest story that shows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headgate.decide.deliver import decide
from headgate.decide.normal import clauses
from headgate.lang import parse_condition
from headgate.model.authority import Certificate, TypeAuthority
from headgate.model.changes import (
    AddMember,
    AddRow,
    Change,
    DeclareGroup,
    DeclareRelation,
    DeclareType,
    Present,
    RemoveMember,
    SetAttribute,
    SetOpen,
    SetPolicyRule,
    Subscribe,
    Unsubscribe,
)
from headgate.model.errors import BadExpression, ChainInvalid
from headgate.model.events import Event
from headgate.model.expressions import (
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
from headgate.model.rights import Action, Subscription
from headgate.model.types import EventType
from headgate.model.values import Kind, micros
from headgate.pipeline.deliveries import DeliveryBlob
from headgate.pipeline.index.build import IndexBuilder
from headgate.pipeline.log.codec import LogBatch, layouts
from headgate.pipeline.match import DecisionWindow, Matcher
from headgate.pipeline.spark.decider import decide_appends
from strategies.memory import MemoryLedger, MemoryLog, exact
from strategies.predicates import registration
from strategies.small import (
    CHASE,
    LANE,
    NOON,
    PLATE,
    SEEN,
    SPEED,
    UNIT,
    chase,
    commit,
    forbid,
    grant,
    is_,
    seen,
    wish,
    world,
)
from strategies.stored import read

EDGES = (datetime(1, 1, 1, 0, 30, tzinfo=UTC), datetime(9999, 12, 31, 23, 30, tzinfo=UTC))


def appended(ledger: MemoryLedger, *appends: list[Event]) -> MemoryLog:
    log = MemoryLog()
    for events in appends:
        log.append("main", ledger.now, micros(events[0].time), events)
    return log


def blobs_of(ledger: MemoryLedger, batches: list[LogBatch]) -> list[DeliveryBlob]:
    index = IndexBuilder(ledger).index(0, ledger.version)
    return list(decide_appends(Matcher(index, ledger.functions), batches, DecisionWindow(0, ledger.version)))


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
    (blob,) = decide_appends(Matcher(index, {}), log.batches, DecisionWindow(0, 2))
    assert [d.subscription for d in read(blob, layouts(ledger.now.types))] == [0]
    (late,) = decide_appends(Matcher(index, {}), log.batches, DecisionWindow(2, 3, backfill=True))
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


# -- requirements, chains, and what the gateway stamped -----------------------------------------------------------


def of_owner(**more: object) -> Present:
    """What anna shows: a certificate by the owner of `Seen`."""
    authority = TypeAuthority(frozenset({Action.SUBSCRIBE}), **more)  # type: ignore[arg-type]
    return Present("anna", (Certificate("c", "owner", "anna", (authority,)),), NOON)


def want(id: str, **more: object) -> Subscribe:
    return Subscribe(Subscription(id, "anna", SEEN, **more))  # type: ignore[arg-type]


def test_requirements_of_equal_looks_are_told_apart() -> None:
    ledger = world(
        *(SetAttribute(who, "n", value) for who, value in (("anna", 1), ("bob", True), ("owner", 1.0))),
        *(grant(f"r{who}", who) for who in ("anna", "bob", "owner")),
        *(wish(f"s{who}", who) for who in ("anna", "bob", "owner")),
    )
    texts = ("$n in {1, 2}", "$n in {true}", "$n = 1", "$n = true", "$n != 1.0", "$n is null", "$m = 1 or $n > 0")
    events = [replace(seen(speed=n), requires=parse_condition(text)) for n, text in enumerate(texts)]
    assert agree(ledger, [*events, seen()], events[:2]) == 2 + 1 + 2 + 1 + 0 + 0 + 2 + 3 + 2 + 1


def test_requirements_are_put_to_the_attributes_of_the_version() -> None:
    asks, secret = parse_condition("$n = 1"), parse_condition("$c = 'secret'")
    ledger = world(grant("r", "anna"), SetAttribute("anna", "c", "secret"), want("s"), want("h", history=True))
    event = replace(seen(speed=1), requires=secret)
    log = appended(ledger, [event, seen()])
    commit(ledger, SetAttribute("anna", "c", None), SetAttribute("cam", "n", 1))
    log.append("main", ledger.now, 0, [event, seen()])
    commit(ledger, want("q", requires=asks), want("qh", requires=asks, history=True), SetPolicyRule("cam", secret))
    log.append("main", ledger.now, 0, [event, seen()])
    commit(ledger, SetAttribute("anna", "c", "secret"), SetAttribute("cam", "n", 2))
    log.append("main", ledger.now, 0, [event, seen()])
    assert agree_on(ledger, log) == 4 + 2 + 1 + 0 + 4


def test_a_chain_gives_a_view_and_asks_for_what_it_does_not_show() -> None:
    ledger = world(of_owner(attributes=("plate",), forced={"lane": 2}), want("s"))
    assert agree(ledger, [seen(plate="a", lane=2), seen(plate="b", lane=3), seen(plate="c")]) == 1


def test_what_a_chain_names_need_not_fit_or_be_there() -> None:
    conditions = [
        "speed = 'fast' or lane = 1",
        "plate > 3 and lane = 1",
        "not (speed starts with 'a')",
        "predicate nothing(plate) or lane = 1",
        "missing = 1 or lane = 1",
        "speed in {1, 'x'} or weekday(plate, 'UTC') = 2",
    ]
    for text in conditions:
        ledger = world(of_owner(where=parse_condition(text)), want("s"))
        agree(ledger, [seen(plate=p, speed=s, lane=n) for p in ("a", None) for s in (1, None) for n in (1, 2, None)])
    for text in ("None(plate) or lane = 1", "plate in group nobody or lane = 1"):  # whether they are there is not told
        with pytest.raises(ChainInvalid, match="not open here"):
            world(of_owner(where=parse_condition(text)), want("s"))
    ledger = world(of_owner(forced={"speed": "x"}), want("s"))
    assert agree(ledger, [seen(speed=1)]) == 0


def test_a_chain_may_add_up_to_more_clauses_than_rows_have_room_for() -> None:
    parts = [parse_condition(f"plate contains '{one}' or not (plate has token '{one}')") for one in "abcdefghij"]
    whole = all_of(*parts, parse_condition("speed = 70 or plate in group staff or @rate < 3"))
    ledger = world(SetOpen("staff", open=True), of_owner(where=whole), want("s"))
    with pytest.raises(BadExpression):
        clauses(whole, {"plate": Kind.STRING, "speed": Kind.INT, "lane": Kind.INT})
    plates = [seen(speed=s, plate=p) for s in (70, 1, None) for p in ("anna", "abc", "", None)]
    assert agree(ledger, plates, [replace(event, rate=2) for event in plates]) == 5 + 9
    commit(ledger, forbid("f", "anna", where=is_(SPEED, 70), first=True))
    assert agree(ledger, plates) == 1


def test_principals_are_told_apart_by_where_they_subscribed() -> None:
    near = parse_condition("@origin = '10.0.0.1' and speed = 1")
    ledger = world(grant("r", "anna", where=near, attributes=("speed",)), grant("q", "anna", where=is_(LANE, 1)))
    commit(ledger, want("a", origin="10.0.0.1"), want("b", origin="10.0.0.2"), want("c"))
    assert agree(ledger, [seen(speed=1), seen(speed=1, lane=1), seen(lane=2)]) == 1 + 3
    commit(ledger, forbid("f", "anna", where=parse_condition("@origin is null"), first=True))
    assert agree(ledger, [seen(speed=1, lane=1)]) == 2


def test_the_rate_is_looked_at_as_it_was_stamped() -> None:
    texts = [
        "@rate < 3", "@rate != 2", "@rate is null", "not (@rate is null)", "@rate in {0, 1}", "@rate = speed",
        "@rate in 2..4", "not (@rate in {1, 2})", "@rate < 2.5", "@rate >= -5", "@rate = 0",
        "predicate kinds(@rate, 1)", "@rate in {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}",
    ]  # fmt: skip
    for text in texts:
        asks = [registration("kinds")] if "kinds" in text else []
        for made in (grant, forbid):
            ledger = world(*asks, made("r", "anna", where=parse_condition(text)), grant("q", "anna"), want("s"))
            events = [replace(seen(speed=s), rate=n) for s in (1, 3, None) for n in (1, 2, 3, 18, None)]
            agree(ledger, events, [seen(speed=1)])
