"""What is stored reads back as what it was, kind by kind."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.ledger import codec
from headgate.ledger.policy_rows import ADMITTED, RULES, SUBSCRIPTIONS
from headgate.model.errors import BadDefinition, BadExpression, Damaged
from headgate.model.expressions import AllOf, Attribute, Compare, Condition, Constant, IsNull
from headgate.model.rights import Action, Effect, Rule, Source, Subscription
from headgate.model.values import Kind, Value
from strategies.conditions import conditions, values

ANY_VALUE = st.none() | st.one_of(*(values(kind) for kind in Kind))
VALUE, ROW = codec.text(codec.VALUE), codec.text(codec.each(codec.VALUE))
KINDS = {kind.value: kind for kind in Kind}


def exactly(value: object) -> tuple[str, str]:
    return type(value).__name__, repr(value)


@given(ANY_VALUE)
def test_every_value_reads_back_with_its_kind(value: Value) -> None:
    assert exactly(VALUE.load(VALUE.dump(value))) == exactly(value)


@given(st.lists(ANY_VALUE, max_size=4).map(tuple))
def test_every_row_reads_back(row: tuple[Value, ...]) -> None:
    text = ROW.dump(row)
    assert list(map(exactly, ROW.load(text))) == list(map(exactly, row))
    assert text.isascii()


def test_values_that_python_takes_for_equal_are_stored_apart() -> None:
    alike: list[Value] = [1, 1.0, True, "1", "true", b"1", 0, 0.0, -0.0, False, ""]
    assert len({VALUE.dump(value) for value in alike}) == len(alike)


def test_a_timestamp_of_another_zone_is_stored_as_the_same_moment() -> None:
    there = datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=5)))
    assert VALUE.load(VALUE.dump(there)) == there
    assert exactly(VALUE.load(VALUE.dump(there))) == exactly(there.astimezone(UTC))


@pytest.mark.parametrize("value", [datetime(2026, 1, 1), [1], {"float": "1"}, object()])  # noqa: DTZ001
def test_what_is_no_value_is_not_stored(value: object) -> None:
    with pytest.raises(BadDefinition):
        codec.to_json(value)


@pytest.mark.parametrize("text", ['{"float":1}', '{"what":"1"}', "[1]", '{"bytes":"zz"}', "1.5", "{"])
def test_what_was_not_stored_by_us_is_damage(text: str) -> None:
    with pytest.raises(Damaged), codec.decoding("value", text):
        VALUE.load(text)


@given(conditions(KINDS, groups=["g"], relations={"R": 2}, subjects=["s"], predicates={"p": 1}))
def test_every_condition_reads_back(condition: Condition) -> None:
    text = codec.CONDITION.dump(condition)
    assert repr(codec.CONDITION.load(text)) == repr(condition)
    assert text.isascii()


def test_a_condition_that_does_not_read_back_is_refused() -> None:
    pair = AllOf((IsNull(Attribute("a")), IsNull(Attribute("b"))))
    with pytest.raises(BadExpression, match="does not read back"):
        codec.CONDITION.dump(AllOf((pair, IsNull(Attribute("c")))))
    with pytest.raises(BadExpression):
        codec.CONDITION.dump(Compare("=", Attribute("a"), Constant(None)))


def test_conditions_that_python_takes_for_equal_are_stored_apart() -> None:
    texts = [codec.CONDITION.dump(Compare("=", Attribute("a"), Constant(value))) for value in (1, True, 1.0)]
    assert list(map(json.loads, texts)) == ["a = 1", "a = true", "a = 1.0"]


def test_a_rule_and_a_subscription_read_back_whole() -> None:
    rule = Rule(
        id="r",
        who="staff",
        actions=frozenset({Action.PUBLISH, Action.SUBSCRIBE}),
        type="news.*",
        where=Compare(">", Attribute("x"), Constant(1.5)),
        attributes=("b", "a", "c"),
        forced={"c": datetime(2026, 1, 1, tzinfo=UTC), "a": True, "b": None},
        effect=Effect.GRANT,
        disclose=True,
        author="ann",
    )
    again = RULES.fact_of(RULES.form.dump(rule))
    assert again == rule
    assert list(again.forced.items()) == list(rule.forced.items())
    subscription = Subscription("s", "bob", "news.Story", rule.where, history=True, first=7)
    assert SUBSCRIPTIONS.fact_of(SUBSCRIPTIONS.form.dump(subscription)) == subscription


def test_a_right_of_a_chain_may_force_what_another_link_does_not_let_out() -> None:
    rule = Rule(
        "chain:1", "ann", frozenset({Action.PUBLISH}), "t", attributes=("a",), forced={"b": 1}, source=Source.CHAIN
    )
    assert ADMITTED.fact_of(ADMITTED.form.dump(rule)) == rule
    with pytest.raises(Damaged):
        RULES.fact_of(RULES.form.dump(rule))
