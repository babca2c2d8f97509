"""Three-valued truth of every operator, nulls included (D1, D2)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from headgate.decide.truth import World, clock_part, has_token, truth
from headgate.model.events import Event
from headgate.model.expressions import (
    FALSE,
    TRUE,
    AllOf,
    AnyOf,
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
    Operand,
    Predicate,
    Related,
    Subject,
    TextMatch,
)
from headgate.model.state import State
from headgate.model.values import Value

NINE = datetime(2026, 7, 1, 9, 30, 15, 999999, tzinfo=UTC)
A, B, C = Attribute("a"), Attribute("b"), Attribute("c")
STATE = State(
    groups={"staff": frozenset({"anna", "desk"}), "desk": frozenset({"bob"})},
    relations={
        "Knows": frozenset({("anna", "bob"), ("anna", 1)}),
        "Single": frozenset({(1,)}),
        "Yes": frozenset({(True,)}),
    },
)


def ask(
    condition: Condition,
    values: Mapping[str, Value] | None = None,
    *,
    subject: Mapping[str, Value] | None = None,
    predicates: Mapping[str, object] | None = None,
    time: datetime = NINE,
) -> bool | None:
    event = Event("e", "anna", "t", values or {}, time)
    return truth(condition, event, World(STATE, subject or {}, predicates or {}))  # type: ignore[arg-type]


def compared(op: str, a: Value, b: Value) -> bool | None:
    return ask(Compare(op, A, B), {"a": a, "b": b})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("a", "b", "order"),
    [
        (1, 2, -1),
        (2, 2, 0),
        (1, 1.0, 0),
        (1, 1.5, -1),
        (2**53 + 1, float(2**53), 1),
        (2**63 - 1, 2.0**63, -1),
        (0.0, -0.0, 0),
        (5e-324, 0, 1),
        (False, True, -1),
        ("a", "b", -1),
        ("a", "a\x00", -1),
        ("\uffff", "\U0001f600", -1),
        ("e\u0301", "\u00e9", -1),
        (b"\x00", b"\x00\x00", -1),
        (b"", b"", 0),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), -1),
    ],
)
def test_values_of_a_family_compare_exactly(a: Value, b: Value, order: int) -> None:
    for left, right, sign in ((a, b, order), (b, a, -order)):
        assert compared("=", left, right) is (sign == 0)
        assert compared("!=", left, right) is (sign != 0)
        assert compared("<", left, right) is (sign < 0)
        assert compared("<=", left, right) is (sign <= 0)
        assert compared(">", left, right) is (sign > 0)
        assert compared(">=", left, right) is (sign >= 0)


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("a", "b"), [(None, 1), (1, None), (None, None), (True, 1), ("1", 1), (b"a", "a"), (NINE, 0), ("a", NINE)]
)
def test_null_and_other_families_are_unknown(op: str, a: Value, b: Value) -> None:
    assert compared(op, a, b) is None


@pytest.mark.parametrize(
    ("x", "low", "high", "expected"),
    [
        (4, 4, 10, True),
        (10, 4, 10, True),
        (3, 4, 10, False),
        (11, 4, 10, False),
        (5, 10, 4, False),
        (None, 4, 10, None),
        (5, None, 10, None),
        (11, None, 10, False),
        (5, 4, None, None),
        (3, 4, None, False),
        (4.5, 4, 5, True),
    ],
)
def test_a_range_includes_its_ends(x: Value, low: Value, high: Value, expected: bool | None) -> None:
    assert ask(InRange(A, B, C), {"a": x, "b": low, "c": high}) is expected


@pytest.mark.parametrize(("x", "expected"), [(1, True), (2.0, True), (3, False), (None, None), ("1", None)])
def test_a_set(x: Value, expected: bool | None) -> None:
    assert ask(InSet(A, (1, 2)), {"a": x}) is expected


@pytest.mark.parametrize(
    ("op", "text", "part", "expected"),
    [
        ("starts with", "anna", "an", True),
        ("starts with", "anna", "na", False),
        ("starts with", "anna", "", True),
        ("contains", "anna", "nn", True),
        ("contains", "a\x00b", "\x00", True),
        ("contains", "\u00e9", "e", False),
        ("contains", "anna", "", True),
        ("has token", "a b", "b", True),
        ("has token", "a\tb\x0bc", "c", True),
        ("has token", "ab", "a", False),
        ("has token", "a\u00a0b", "a", False),
        ("has token", "a  b", "", False),
        ("has token", "", "", False),
        ("starts with", None, "a", None),
        ("contains", "a", None, None),
        ("has token", None, None, None),
    ],
)
def test_text(op: str, text: Value, part: Value, expected: bool | None) -> None:
    assert ask(TextMatch(op, A, B), {"a": text, "b": part}) is expected  # type: ignore[arg-type]


def test_is_null_is_never_unknown() -> None:
    assert ask(IsNull(A), {"a": None}) is True
    assert ask(IsNull(A), {}) is True
    assert ask(IsNull(A), {"a": ""}) is False
    assert ask(IsNull(Subject("u"))) is True
    assert ask(IsNull(Meta("time"))) is False
    assert ask(IsNull(ClockPart("weekday", A)), {"a": None}) is True


@pytest.mark.parametrize(
    ("member", "expected"), [("anna", True), ("bob", True), ("carol", False), ("desk", False), (None, None), (1, None)]
)
def test_groups_count_through_nested_ones(member: Value, expected: bool | None) -> None:
    assert ask(InGroup(A, "staff"), {"a": member}) is expected


def test_an_unheard_of_group_or_relation_is_empty() -> None:
    assert ask(InGroup(A, "nobody"), {"a": "anna"}) is False
    assert ask(Related("Nothing", (A,)), {"a": "anna"}) is False


@pytest.mark.parametrize(
    ("relation", "args", "expected"),
    [
        ("Knows", ("anna", "bob"), True),
        ("Knows", ("anna", 1), True),
        ("Knows", ("anna", 1.0), True),
        ("Knows", ("anna", True), False),
        ("Knows", ("bob", "anna"), False),
        ("Knows", ("anna", None), None),
        ("Single", (1,), True),
        ("Single", (True,), False),
        ("Yes", (True,), True),
        ("Yes", (1,), False),
    ],
)
def test_relations(relation: str, args: tuple[Value, ...], expected: bool | None) -> None:
    operands: tuple[Operand, ...] = tuple(Attribute(f"x{n}") for n in range(len(args)))
    assert ask(Related(relation, operands), {f"x{n}": v for n, v in enumerate(args)}) is expected


def test_a_predicate_that_does_not_say_yes_or_no_is_unknown() -> None:
    answers = {"yes": True, "no": False, "none": None, "one": 1, "text": "yes"}
    predicates = {name: lambda event, size, answer=answer: answer for name, answer in answers.items()}
    found = {name: ask(Predicate(name), predicates=predicates) for name in answers}
    assert found == {"yes": True, "no": False, "none": None, "one": None, "text": None}
    assert ask(Predicate("missing")) is None


def test_a_predicate_that_raises_is_unknown() -> None:
    assert ask(Predicate("broken"), predicates={"broken": lambda event, size: event["absent"]}) is None


def test_a_predicate_sees_the_event_its_size_and_its_arguments() -> None:
    seen: list[object] = []

    def note(event, size, *args):  # type: ignore[no-untyped-def]
        seen.extend((event.type, event.publisher, event.time, event.get("a"), event.get("zz", 7), size, args))
        return True

    asked = Predicate("note", (A, Subject("u"), Constant("k"), Meta("publisher")))
    assert ask(asked, {"a": "é", "b": None}, subject={"u": 3}, predicates={"note": note}) is True
    assert seen == ["t", "anna", NINE, "é", 7, len('{"a":"é"}'.encode()), ("é", 3, "k", "anna")]


@pytest.mark.parametrize(
    ("part", "zone", "expected"),
    [
        ("timeofday", "UTC", 9 * 3600 + 30 * 60 + 15),
        ("timeofday", "Europe/London", 10 * 3600 + 30 * 60 + 15),
        ("timeofday", "Asia/Kathmandu", 15 * 3600 + 15 * 60 + 15),
        ("weekday", "UTC", 3),
        ("weekday", "Pacific/Apia", 3),
        ("weekday", "America/New_York", 3),
    ],
)
def test_parts_of_the_clock(part: str, zone: str, expected: int) -> None:
    assert ask(Compare("=", ClockPart(part, Meta("time"), zone), Constant(expected))) is True  # type: ignore[arg-type]


def test_the_clock_follows_summer_time() -> None:
    before = datetime(2026, 3, 29, 0, 59, 59, tzinfo=UTC)
    after = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    assert clock_part("timeofday", before, "Europe/London") == 3599
    assert clock_part("timeofday", after, "Europe/London") == 7200


@pytest.mark.parametrize(
    ("at", "zone", "seconds", "weekday"),
    [
        (datetime(9999, 12, 31, 23, 30, tzinfo=UTC), "Asia/Kathmandu", 5 * 3600 + 15 * 60, 6),
        (datetime(9999, 12, 31, 23, 30, tzinfo=UTC), "UTC", 23 * 3600 + 30 * 60, 5),
        (datetime(1, 1, 1, 0, 30, tzinfo=UTC), "Etc/GMT+5", 19 * 3600 + 30 * 60, 7),
        (datetime(1, 1, 1, 0, 30, tzinfo=UTC), "UTC", 1800, 1),
    ],
)
def test_the_clock_goes_on_at_the_ends_of_the_calendar(at: datetime, zone: str, seconds: int, weekday: int) -> None:
    assert clock_part("timeofday", at, zone) == seconds
    assert clock_part("weekday", at, zone) == weekday


@pytest.mark.parametrize(
    ("a", "b", "both", "either"),
    [
        (True, True, True, True),
        (True, False, False, True),
        (True, None, None, True),
        (False, False, False, False),
        (False, None, False, None),
        (None, None, None, None),
    ],
)
def test_connectives(a: bool | None, b: bool | None, both: bool | None, either: bool | None) -> None:
    def of(wanted: bool | None) -> Condition:
        return {True: TRUE, False: FALSE, None: Compare("=", A, Constant(1))}[wanted]

    for left, right in ((a, b), (b, a)):
        assert ask(AllOf((of(left), of(right)))) is both
        assert ask(AnyOf((of(left), of(right)))) is either
    assert ask(Not(of(a))) is (None if a is None else not a)


def test_of_nothing() -> None:
    assert ask(TRUE) is True
    assert ask(FALSE) is False


def test_subject_attributes() -> None:
    same = Compare("=", A, Subject("u"))
    assert ask(same, {"a": 1}, subject={"u": 1}) is True
    assert ask(same, {"a": 1}, subject={"u": "1"}) is None
    assert ask(same, {"a": 1}) is None


def test_an_attribute_that_the_named_type_lacks_is_null() -> None:
    event = Event("e", "anna", "t", {"a": 1}, NINE)
    assert truth(Compare("=", A, Constant(1)), event, World(STATE, attributes={})) is None
    assert truth(IsNull(A), event, World(STATE, attributes={})) is True


def test_tokens_split_on_blanks_only() -> None:
    assert has_token("\u2003a", "a") is False
    assert has_token(" a ", "a") is True
