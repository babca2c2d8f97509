"""Rendering is the inverse of parsing, and says no more than it must."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.lang import parse_condition, render_condition
from headgate.lang.render import render_operand
from headgate.model.errors import BadExpression
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
from headgate.model.limits import MAX_EXPRESSION_DEPTH
from headgate.model.values import Kind
from strategies.conditions import conditions

X, Y, Z = (Compare("=", Attribute(name), Constant(1)) for name in "xyz")

ODD_NAMES = (
    "timestamp", "group", "token", "contains", "starts", "has", "with", "bytes", "predicate", "timeofday",
    "weekday", "key", "type", "and", "or", "not", "in", "is", "true", "false", "null", "AND", "odd name",
    "ti`ck", "`", "été", "1st", "a-b", "a.b", "e5", "_", "'", "$x", "@time", "x\ny",
)  # fmt: skip

OPERANDS: list[tuple[Operand, str]] = [
    (Attribute("price"), "price"),
    (Attribute("timestamp"), "timestamp"),
    (Attribute("in"), "`in`"),
    (Attribute("odd name"), "`odd name`"),
    (Attribute("ti`ck"), "`ti``ck`"),
    (Attribute("été"), "`été`"),
    (Attribute("x\n"), "`x\n`"),
    (Meta("time"), "@time"),
    (Meta("publisher"), "@publisher"),
    (Subject("clearance"), "$clearance"),
    (Subject("in"), "$in"),
    (Subject("odd name"), "$`odd name`"),
    (Constant(True), "true"),
    (Constant(False), "false"),
    (Constant(-3), "-3"),
    (Constant(1.0), "1.0"),
    (Constant(1e300), "1e+300"),
    (Constant("it's"), "'it''s'"),
    (Constant('"'), "'\"'"),
    (Constant(b"\x00\xff"), "bytes '00ff'"),
    (Constant(datetime(2026, 1, 1, 9, tzinfo=UTC)), "timestamp '2026-01-01T09:00:00Z'"),
    (
        Constant(datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-1)))),
        "timestamp '2026-01-01T01:00:00Z'",
    ),
    (Constant(None), "null"),
    (ClockPart("weekday", Attribute("sent")), "weekday(sent, 'UTC')"),
    (ClockPart("timeofday", Meta("time"), "Europe/London"), "timeofday(@time, 'Europe/London')"),
]

CONDITIONS: list[tuple[Condition, str]] = [
    (TRUE, "true"),
    (FALSE, "false"),
    (Not(TRUE), "not true"),
    (X, "x = 1"),
    (InRange(Attribute("x"), Constant(-4), Constant(1.5)), "x in -4..1.5"),
    (InRange(Attribute("x"), Attribute("group"), Attribute("high")), "x in group..high"),
    (InSet(Attribute("x"), ("a", 1, True)), "x in {'a', 1, true}"),
    (TextMatch("has token", Attribute("x"), Attribute("y")), "x has token y"),
    (IsNull(Attribute("x")), "x is null"),
    (Not(IsNull(Attribute("x"))), "x is not null"),
    (Not(Not(IsNull(Attribute("x")))), "not x is not null"),
    (InGroup(Meta("publisher"), "staff-1.a"), "@publisher in group staff-1.a"),
    (InGroup(Meta("publisher"), "odd one"), "@publisher in group 'odd one'"),
    (InGroup(Meta("publisher"), "in"), "@publisher in group 'in'"),
    (Related("Treats", (Subject("id"), Constant(1))), "Treats($id, 1)"),
    (Related("weekday", (Attribute("x"),)), "`weekday`(x)"),
    (Predicate("weekday"), "predicate weekday()"),
    (Predicate("odd name", (Attribute("x"),)), "predicate `odd name`(x)"),
    (Not(X), "not x = 1"),
    (Not(Not(X)), "not not x = 1"),
    (Not(AllOf((X, Y))), "not (x = 1 and y = 1)"),
    (Not(AnyOf((X, Y))), "not (x = 1 or y = 1)"),
    (AnyOf((AllOf((X, Y)), Z)), "x = 1 and y = 1 or z = 1"),
    (AllOf((AnyOf((X, Y)), Z)), "(x = 1 or y = 1) and z = 1"),
    (AllOf((Not(X), Y)), "not x = 1 and y = 1"),
    (AnyOf((TRUE, X)), "true or x = 1"),
]


@pytest.mark.parametrize(("operand", "text"), OPERANDS, ids=[text for _, text in OPERANDS])
def test_an_operand(operand: Operand, text: str) -> None:
    assert render_operand(operand) == text


@pytest.mark.parametrize(("condition", "text"), CONDITIONS, ids=[text for _, text in CONDITIONS])
def test_a_condition_and_back(condition: Condition, text: str) -> None:
    assert render_condition(condition) == text
    assert same(parse_condition(text), condition)


@pytest.mark.parametrize(
    ("condition", "text", "flat"),
    [
        (AllOf((AllOf((X, Y)), Z)), "(x = 1 and y = 1) and z = 1", AllOf((X, Y, Z))),
        (AnyOf((X, AnyOf((Y, Z)))), "x = 1 or (y = 1 or z = 1)", AnyOf((X, Y, Z))),
        (AllOf((TRUE, X)), "true and x = 1", X),
        (AllOf((TRUE, TRUE)), "true and true", TRUE),
    ],
)
def test_a_tree_that_is_not_flat_means_the_same(condition: Condition, text: str, flat: Condition) -> None:
    assert render_condition(condition) == text
    assert parse_condition(text) == flat


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_value_is_not_rendered_as_a_name(value: float) -> None:
    with pytest.raises(ValueError, match="is not a value"):
        render_operand(Constant(value))


@given(
    conditions(
        {f"{name}{suffix}": kind for kind in Kind for name, suffix in ((kind.value, ""), (kind.value, " 2"))}
        | dict.fromkeys(ODD_NAMES, Kind.STRING),
        groups=(*ODD_NAMES, "staff", "sales-uk.2"),
        relations={"Treats": 2} | dict.fromkeys(ODD_NAMES, 1),
        subjects=("clearance", *ODD_NAMES),
        predicates={"small": 0, "near": 3} | dict.fromkeys(ODD_NAMES, 1),
    )
)
def test_parsing_what_was_rendered_gives_it_back(condition: Condition) -> None:
    assert same(parse_condition(render_condition(condition)), condition)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_name_and_any_text_come_back(text: str) -> None:
    condition = AllOf(
        (
            Compare("=", Attribute(text), Constant(text)),
            InSet(Subject(text), (text,)),
            InGroup(Meta("publisher"), text),
            Related(text, (Attribute(text),)),
            Predicate(text),
        )
    )
    assert parse_condition(render_condition(condition)) == condition


@pytest.mark.parametrize("opening", ["not ", "(", "not (y and ", "(y or ", "y and (z or "])
def test_rendering_nests_no_deeper_than_what_was_parsed(opening: str) -> None:
    def nested(times: int) -> str:
        return opening * times + "x" + ")" * (times * opening.count("("))

    deepest = next(n for n in range(MAX_EXPRESSION_DEPTH, 0, -1) if parses(nested(n)))
    condition = parse_condition(nested(deepest))
    assert parse_condition(render_condition(condition)) == condition


def parses(text: str) -> bool:
    try:
        parse_condition(text)
    except Exception:  # noqa: BLE001 - which one is another test's business
        return False
    return True


def same(a: Condition, b: Condition) -> bool:
    """Equal, with `1`, `1.0` and `true` kept apart, which `==` does not do."""
    return a == b and repr(a) == repr(b)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("timeofday(@time, 'Europe/London') in '09:00'..'17:30:15'", None),
        ("'24:00' > timeofday(@time, 'UTC')", None),
        ("weekday(@time, 'UTC') in {'sat', 7}", "weekday(@time, 'UTC') in {'Saturday', 'Sunday'}"),
        ("timeofday(@time) >= 32400", "timeofday(@time, 'UTC') >= '09:00'"),
        ("weekday(@time, 'UTC') = 9", None),
    ],
)
def test_times_and_days_are_written_as_people_say_them(text: str, rendered: str | None) -> None:
    assert render_condition(parse_condition(text)) == (rendered or text)


@pytest.mark.parametrize("literal", ["'9:00'", "'24:01'", "'12:60'", "'noon'", "''"])
def test_what_is_no_time_of_day_is_refused(literal: str) -> None:
    with pytest.raises(BadExpression, match="not a time of day"):
        parse_condition(f"timeofday(@time) < {literal}")


def test_what_is_no_day_is_refused() -> None:
    with pytest.raises(BadExpression, match="not a day of the week"):
        parse_condition("weekday(@time) = 'Caturday'")
