"""Every operator, literal and refusal, with its place and remedy; any other text is refused too."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.lang import parse_condition, render_condition
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
    Predicate,
    Related,
    Subject,
    TextMatch,
)
from headgate.model.limits import MAX_EXPRESSION_CHARS, MAX_EXPRESSION_DEPTH
from headgate.model.values import INT_MAX, INT_MIN, Kind, Value
from strategies.conditions import conditions

A, B, C = (Compare("=", Attribute(name), Constant(True)) for name in "abc")
X, Y = Attribute("x"), Attribute("y")
LONDON = ClockPart("timeofday", Meta("time"), "Europe/London")
NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)

MEANINGS: list[tuple[str, Condition]] = [
    ("x = 1", Compare("=", X, Constant(1))),
    ("x != 1", Compare("!=", X, Constant(1))),
    ("x < 1", Compare("<", X, Constant(1))),
    ("x <= 1", Compare("<=", X, Constant(1))),
    ("x > 1", Compare(">", X, Constant(1))),
    ("x >= 1", Compare(">=", X, Constant(1))),
    ("x<-3", Compare("<", X, Constant(-3))),
    ("1 < x", Compare("<", Constant(1), X)),
    ("x = y", Compare("=", X, Y)),
    ("1 = 1", Compare("=", Constant(1), Constant(1))),
    ("true = x", Compare("=", Constant(True), X)),
    ("x = false", Compare("=", X, Constant(False))),
    ("x in 4..10", InRange(X, Constant(4), Constant(10))),
    ("x in -4..-1", InRange(X, Constant(-4), Constant(-1))),
    ("x in 4 .. 10", InRange(X, Constant(4), Constant(10))),
    ("x in 1.5..1e3", InRange(X, Constant(1.5), Constant(1000.0))),
    ("x = 4..10", InRange(X, Constant(4), Constant(10))),
    ("x in y..$z", InRange(X, Y, Subject("z"))),
    ("x in 'a'..'b'", InRange(X, Constant("a"), Constant("b"))),
    ("x in {'a','b'}", InSet(X, ("a", "b"))),
    ("x in {1, 2.5, true}", InSet(X, (1, 2.5, True))),
    ("x in {timestamp '2026-01-01T09:00:00Z', bytes '00'}", InSet(X, (NINE, b"\x00"))),
    ("'a' in {'a'}", InSet(Constant("a"), ("a",))),
    ("x starts with 'a'", TextMatch("starts with", X, Constant("a"))),
    ("x starts \n with y", TextMatch("starts with", X, Y)),
    ("x contains 'a'", TextMatch("contains", X, Constant("a"))),
    ("x has token 'a'", TextMatch("has token", X, Constant("a"))),
    ("'abc' contains x", TextMatch("contains", Constant("abc"), X)),
    ("x is null", IsNull(X)),
    ("x is not null", Not(IsNull(X))),
    ("not x is null", Not(IsNull(X))),
    ("$x is null", IsNull(Subject("x"))),
    ("x in group staff", InGroup(X, "staff")),
    ("x in group sales-uk.2", InGroup(X, "sales-uk.2")),
    ("x in group in-house", InGroup(X, "in-house")),
    ("x in group 7", InGroup(X, "7")),
    ("x in group équipe", InGroup(X, "équipe")),
    ("x in group 'odd one'", InGroup(X, "odd one")),
    ('x in group"and"', InGroup(X, "and")),
    ("x in group group", InGroup(X, "group")),
    ("(x in group a.b)", InGroup(X, "a.b")),
    ("Treats(x, $id, 'a', -3)", Related("Treats", (X, Subject("id"), Constant("a"), Constant(-3)))),
    ("predicate small()", Predicate("small")),
    ("predicate near(x, 3)", Predicate("near", (X, Constant(3)))),
    ("predicate `odd name`(x)", Predicate("odd name", (X,))),
    ("predicate weekday(x)", Predicate("weekday", (X,))),
    ("@publisher = 'anna'", Compare("=", Meta("publisher"), Constant("anna"))),
    ("@time < timestamp '2026-01-01T10:00:00+01:00'", Compare("<", Meta("time"), Constant(NINE))),
    ("timeofday(@time, 'Europe/London') < 9", Compare("<", LONDON, Constant(9))),
    ("weekday(sent) in 1..5", InRange(ClockPart("weekday", Attribute("sent")), Constant(1), Constant(5))),
    ("3 = weekday ( @time , \"UTC\" )", Compare("=", Constant(3), ClockPart("weekday", Meta("time")))),
    ("true", TRUE),
    ("false", FALSE),
    ("a", A),
    ("not a", Not(A)),
    ("not not a", Not(Not(A))),
    ("a and b and c", AllOf((A, B, C))),
    ("a and (b and c)", AllOf((A, B, C))),
    ("a or b or c", AnyOf((A, B, C))),
    ("(a or b) or c", AnyOf((A, B, C))),
    ("a or b and c", AnyOf((A, AllOf((B, C))))),
    ("(a or b) and c", AllOf((AnyOf((A, B)), C))),
    ("not a and b", AllOf((Not(A), B))),
    ("not (a and b)", Not(AllOf((A, B)))),
    ("not x = 1 or b", AnyOf((Not(Compare("=", X, Constant(1))), B))),
    ("true and a", A),
    ("true or a", AnyOf((TRUE, A))),
    ("((a))", A),
    ("\n\ta\u00a0and\r\nb ", AllOf((A, B))),
]  # fmt: skip

LITERALS: list[tuple[str, Value]] = [
    ("0", 0),
    ("-0", 0),
    ("+3", 3),
    ("007", 7),
    ("0" * 4400 + "1", 1),
    ("9223372036854775807", INT_MAX),
    ("-9223372036854775808", INT_MIN),
    ("1.0", 1.0),
    ("-1.5", -1.5),
    ("1e3", 1000.0),
    ("1E-3", 0.001),
    ("+2.5e+3", 2500.0),
    ("00.5", 0.5),
    ("1.7976931348623157e308", 1.7976931348623157e308),
    ("''", ""),
    ('""', ""),
    ("''''", "'"),
    ("'it''s'", "it's"),
    ("'a\"b'", 'a"b'),
    ('"it\'s ""so"""', 'it\'s "so"'),
    ("'été \U0001f600'", "été \U0001f600"),
    ("'a\nb'", "a\nb"),
    ("'\\'", "\\"),
    ("true", True),
    ("false", False),
    ("timestamp '2026-01-01T09:00:00Z'", NINE),
    ('timestamp"2026-01-01T09:00:00Z"', NINE),
    ("timestamp '2026-01-01T09:00:00.000001Z'", NINE.replace(microsecond=1)),
    ("bytes '00ff'", b"\x00\xff"),
    ("bytes ''", b""),
]

WORDS = (
    "timestamp", "group", "token", "contains", "starts", "has", "with", "bytes", "predicate", "timeofday",
    "weekday", "key", "type", "inner", "island", "order", "android", "nothing", "nullable", "e5", "AND", "_",
)  # fmt: skip

REFUSALS: list[tuple[str, int, str, str | None]] = [
    # text, column, in the message, in the remedy
    ("", 1, "empty", "write a condition"),
    (" \n ", 1, "empty", "write a condition"),
    ("x =", 4, "unexpected end, expected an attribute or a literal", None),
    ("x = 1 and ", 10, "unexpected end, expected a condition", None),
    ("x y", 3, "unexpected `y`, expected a comparison such as `=` or `in`, `and`, `or` or the end", None),
    ("x == 1", 3, "unexpected `==`", "write `=`"),
    ("x === 1", 3, "unexpected `===`", "write `=`"),
    ("x <> 1", 3, "unexpected `<>`", "write `!=`"),
    ("x =< 1", 3, "unexpected `=<`", "write `<=`"),
    ("x => 1", 3, "unexpected `=>`", "write `>=`"),
    ("a && b", 3, "unexpected `&&`", "write `and`"),
    ("a || b", 3, "unexpected `||`", "write `or`"),
    ("!a", 1, "unexpected `!`", "write `not`"),
    ("a AND b", 3, "unexpected `AND`", "write `and`, in lower case"),
    ("a = 1 Or b", 7, "unexpected `Or`", "write `or`, in lower case"),
    ("NOT a", 5, "unexpected `a`", "write `not`, in lower case"),
    ("NOT (a = 1)", 8, "unexpected `=`, expected `,` or `)`", "write `not`, in lower case"),
    ("x IS null", 3, "unexpected `IS`", "write `is`, in lower case"),
    ("x is NULL", 6, "unexpected `NULL`, expected `null` or `not null`", "write `null`, in lower case"),
    ("x IN {1}", 3, "unexpected `IN`", "write `in`, in lower case"),
    ("x = null", 5, "unexpected `null`", "write `x is null`"),
    ("x != null", 6, "unexpected `null`", "write `x is not null`"),
    ("$x = null", 6, "unexpected `null`", "write `$x is null`"),
    ("null = x", 1, "unexpected `null`", "is null`"),
    ("x in {null}", 7, "unexpected `null`, expected a literal", "is null`"),
    ("x is true", 6, "unexpected `true`", "write `= true`"),
    ("x not in {1}", 3, "unexpected `not`", "`not x in {1, 2}`"),
    ("x in (1, 2)", 6, "unexpected `(`", "`x in {1, 2}`"),
    ("x in {}", 7, "unexpected `}`, expected a literal", None),
    ("x in {1,}", 9, "unexpected `}`, expected a literal", None),
    ("x in {y}", 7, "unexpected `y`, expected a literal", None),
    ("x in {1 2}", 9, "unexpected `2`, expected `,` or `}`", None),
    ("x in 4", 7, "unexpected end, expected `..`", None),
    ("x in 4..", 9, "unexpected end, expected an attribute or a literal", None),
    ("x != 4..10", 7, "unexpected `..`", "x in 4..10"),
    ("x in group", 11, "unexpected end, expected a group name", None),
    ("x in group and y", 12, "unexpected `and`, expected a group name", None),
    ("x in group ''", 12, "`''` is an empty name", None),
    ("x is", 5, "unexpected end, expected `null` or `not null`", None),
    ("x starts 'a'", 3, "unexpected `starts`", None),
    ("x like 'a%'", 3, "unexpected `like`", "write `contains`"),
    ("x between 1 and 2", 3, "unexpected `between`", "in low..high"),
    ("R()", 3, "unexpected `)`, expected an attribute or a literal", None),
    ("R(x", 4, "unexpected end, expected `,` or `)`", None),
    ("(x = 1", 7, "unexpected end, expected `..`, `)`, `and` or `or`", None),
    ("x = 1)", 6, "unexpected `)`, expected `..`, `and`, `or` or the end of the expression", None),
    ("$flag", 6, "unexpected end, expected a comparison", None),
    ("'a'", 4, "unexpected end, expected a comparison", None),
    ("$ = 1", 1, "unexpected `$`, expected a condition", None),
    ("@tyme = 1", 1, "there is no `@tyme`", "`@rate` or `@origin`"),
    ("@ = 1", 1, "there is no `@`", "`@rate` or `@origin`"),
    ("`` = 1", 1, "is an empty name", None),
    ("$`` = 1", 1, "is an empty name", None),
    ("x = `a", 5, "unexpected ```", "close the quotes"),
    ("x = 'abc", 5, "unexpected `'`", "close the quotes"),
    ("x = 'a''", 5, "unexpected `'`", "close the quotes"),
    ("x = 'it's'", 9, "unexpected `s`", "twice"),
    ("x = \u201ca\u201d", 5, "unexpected `\u201c`", "straight quotes"),
    ("x = .5", 5, "unexpected `.`", "`0.5`"),
    ("x = 5.", 6, "unexpected `.`", None),
    ("x = 12abc", 5, "unexpected `12abc`", None),
    ("x = - 3", 5, "unexpected `-`", None),
    ("x = é", 5, "unexpected `é`", None),
    ("x = \u0663", 5, "unexpected `\u0663`", None),
    ("x = 1 \x00", 7, "unexpected `\\x00`", None),
    ("x = 9223372036854775808", 5, "the integer `9223372036854775808` does not fit in 64 bits", None),
    ("x = -9223372036854775809", 5, "does not fit in 64 bits", None),
    ("x = " + "9" * 9000, 5, "does not fit in 64 bits", None),
    ("x in 1..1e999", 9, "the number `1e999` is outside the range of a double", None),
    ("x = timestamp 'now'", 15, "`now` is not an ISO 8601 time", "2026-01-01T09:00:00Z"),
    ("x = timestamp '2026-01-01T09:00:00'", 15, "has no zone", "add `Z`"),
    ("x = timestamp '0001-01-01T00:00:00+01:00'", 15, "outside the years", None),
    ("x = timestamp 'a\nb'", 15, "`a\\nb` is not", "2026-01-01T09:00:00Z"),
    ("x = bytes '0'", 11, "`0` is not hexadecimal", "`00ff`"),
    ("x = bytes 'é'", 11, "`é` is not hexadecimal", "`00ff`"),
    ("timeofday(@time, 'Mars/Base') = 1", 18, "there is no time zone `Mars/Base`", "Europe/London"),
    ("timeofday(@time, 'Europe') = 1", 18, "there is no time zone `Europe`", "Europe/London"),
    ("timeofday(@time, '../UTC') = 1", 18, "there is no time zone `../UTC`", "Europe/London"),
    ("timeofday(@time, 'localtime') = 1", 18, "there is no time zone `localtime`", "Europe/London"),
    ("timeofday(@time, '" + "a" * 5000 + "') = 1", 18, "there is no time zone", "Europe/London"),
    ("weekday(@publisher) = 1", 1, "`weekday` takes a time, not `@publisher`", "write `@time`"),
    ("weekday($x) = 1", 9, "unexpected `$x`, expected a name or `@time`", None),
    ("weekday(@time)", 15, "unexpected end, expected a comparison", None),
    ("predicate p(x", 14, "unexpected end, expected `,` or `)`", None),
    ("x = '\ud800'", 6, "lone surrogate", None),
    ("a" * (MAX_EXPRESSION_CHARS + 1), MAX_EXPRESSION_CHARS + 1, "past MAX_EXPRESSION_CHARS (10000)", None),
]  # fmt: skip


def same(a: Condition, b: Condition) -> bool:
    """Equal, with `1`, `1.0` and `true` kept apart, which `==` does not do."""
    return a == b and repr(a) == repr(b)


@pytest.mark.parametrize(("text", "condition"), MEANINGS, ids=[text for text, _ in MEANINGS])
def test_an_expression_says(text: str, condition: Condition) -> None:
    assert same(parse_condition(text), condition)


@pytest.mark.parametrize(("text", "value"), LITERALS, ids=[text[:30] for text, _ in LITERALS])
def test_a_literal(text: str, value: Value) -> None:
    assert same(parse_condition(f"x = {text}"), Compare("=", X, Constant(value)))
    assert same(parse_condition(f"{text} <= x"), Compare("<=", Constant(value), X))
    assert same(parse_condition(f"x in {{{text}, {text}}}"), InSet(X, (value, value)))


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_is_not_reserved_names_an_attribute(word: str) -> None:
    named = Attribute(word)
    flag = Compare("=", named, Constant(True))
    assert parse_condition(word) == flag
    assert parse_condition(f"not {word} and ({word})") == AllOf((Not(flag), flag))
    assert parse_condition(f"{word} and (x = 1)") == AllOf((flag, Compare("=", X, Constant(1))))
    assert parse_condition(f"{word}={word}") == Compare("=", named, named)
    assert parse_condition(f"{word} in {word}..{word}") == InRange(named, named, named)
    assert parse_condition(f"{word} in group {word}") == InGroup(named, word)
    assert parse_condition(f"{word} is null") == IsNull(named)
    assert parse_condition(f"R({word}, ${word})") == Related("R", (named, Subject(word)))
    assert parse_condition(f"weekday({word}) = 1") == Compare("=", ClockPart("weekday", named), Constant(1))
    assert parse_condition(f"`{word}`({word})") == Related(word, (named,))
    assert parse_condition(f"predicate {word}({word})") == Predicate(word, (named,))
    for op in ("starts with", "contains", "has token"):
        assert parse_condition(f"{word} {op} {word}") == TextMatch(op, named, named)


@pytest.mark.parametrize(("text", "column", "message", "remedy"), REFUSALS, ids=[r[0][:30] for r in REFUSALS])
def test_a_refusal_says_where_and_what(text: str, column: int, message: str, remedy: str | None) -> None:
    with pytest.raises(BadExpression) as caught:
        parse_condition(text)
    assert caught.value.place == f"line 1, column {column}"
    assert message in caught.value.message
    if remedy is None:
        assert caught.value.remedy is None
    else:
        assert remedy in (caught.value.remedy or "")


def test_a_refusal_counts_lines() -> None:
    with pytest.raises(BadExpression) as caught:
        parse_condition("x = 'a\nb'\n  and\n  y == 3")
    assert caught.value.place == "line 4, column 5"


@pytest.mark.parametrize("opening", ["(", "not "])
def test_nesting_up_to_the_limit_and_no_deeper(opening: str) -> None:
    def nested(times: int) -> str:
        return opening * times + "x" + ")" * times * opening.count("(")

    parse_condition(nested(MAX_EXPRESSION_DEPTH))
    with pytest.raises(BadExpression, match="MAX_EXPRESSION_DEPTH") as caught:
        parse_condition(nested(MAX_EXPRESSION_DEPTH + 1))
    assert caught.value.place == "line 1, column 1"


def test_connectives_count_as_nesting() -> None:
    pairs = MAX_EXPRESSION_DEPTH // 2
    parse_condition("a and (" * (pairs - 1) + "a and b" + ")" * (pairs - 1))
    with pytest.raises(BadExpression, match="MAX_EXPRESSION_DEPTH"):
        parse_condition("a and (" * pairs + "a and b" + ")" * pairs)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "(" * 4999 + "x" + ")" * 4999,
        "not " * 2400,
        "not " * 2400 + "x",
        "R(" * 3000,
        "'" * 9999,
        "`" * 9999,
        "predicate " * 900,
        "x = " + "-" * 5000,
        "{" * 9000,
        "a and (" * 1000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        parse_condition(text)


def test_width_is_not_nesting() -> None:
    condition = parse_condition(" and ".join(["x=1"] * 1200))
    assert isinstance(condition, AllOf)
    assert len(condition.args) == 1200


def test_threads_share_the_parser() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(parse_condition, ["x in 4..10 and not a"] * 64))
    assert set(found) == {AllOf((InRange(X, Constant(4), Constant(10)), Not(A)))}


PIECES = st.sampled_from(
    [
        *"()={}<>!,.$@'\"`-+&|~;\n\x00\u2028é", "..", "!=", "<=", "and", "or", "not", "in", "is", "null",
        "true", "group", "has", "token", "starts", "with", "contains", "predicate", "timestamp", "bytes",
        "weekday", "x", "R(", "'a'", "4", "1e5", "@time", "@x", "$x", "`a b`", "'UTC'", "'00'", "\ud800", " ",
        "'2026-01-01T09:00:00Z'",
    ]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(PIECES).map(" ".join), st.lists(PIECES).map("".join)))
@example("x = timestamp '2026-01-01T09:00:00+23:59:59.999999'")
@example("x = timestamp ''")
@example("weekday(@time, '') = 1")
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    settled(text)


ATTRIBUTES = {kind.value: kind for kind in Kind}


@given(
    conditions(ATTRIBUTES, groups=("staff",), relations={"R": 2}, subjects=("s",), predicates={"p": 1}),
    st.data(),
)
def test_a_mutated_expression_is_a_condition_or_refused(condition: Condition, data: st.DataObject) -> None:
    text = render_condition(condition)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 5)))
        text = text[:start] + data.draw(st.one_of(st.just(""), PIECES, st.text(max_size=3))) + text[end:]
    settled(text)


def settled(text: str) -> None:
    """Either it round-trips, or it is refused in one line, with its place and in no words but ours."""
    try:
        condition = parse_condition(text)
    except BadExpression as error:
        refused = error
    else:
        assert same(parse_condition(render_condition(condition)), condition)
        return
    assert re.fullmatch(r"line \d+, column \d+", refused.place or "")
    assert str(refused).isprintable()
    _, said, expected = refused.message.rpartition(", expected ")
    assert not said or not re.search(r"[A-Z]{2}", expected)
