"""Facts have one text each, and are found by what can change them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.constraints import Scene
from headgate.lang.rolefile import parse_constraint
from headgate.model.expressions import Argument, Atom, Starred
from headgate.model.roles import Membership
from headgate.model.state import State
from headgate.roles.records.facts import (
    CLOCK,
    GROUPS,
    Fact,
    Interest,
    Mirrored,
    NotRevoked,
    When,
    depends_on,
    fact_of,
    ground,
    holder_keys,
    name_key,
    role_key,
    row_keys,
    text_of,
)
from strategies.running import examples

texts = st.text(max_size=6)
arguments = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.binary(max_size=4)
    | st.frozensets(st.sampled_from("rwx"), max_size=3)
    | st.integers(0, 10**9).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
)


@given(texts, texts, st.lists(arguments, max_size=3), st.integers(0, 2**63 - 1))
@examples(60, soak=150)
def test_a_text_is_of_one_fact(service: str, instance: str, args: list[Argument], remote: int) -> None:
    facts: list[Fact] = [NotRevoked(service, instance, "A", tuple(args), "B"), Mirrored(service, remote)]
    for one in facts:
        found = fact_of(text_of(one))
        assert found == one
        assert text_of(found) == text_of(one)


@given(arguments, arguments, st.sampled_from(["=", "!=", "<"]))
@examples(60, soak=150)
def test_an_atom_with_values_is_read_as_it_was(a: Argument, b: Argument, op: str) -> None:
    bound = {"x": a, "y": b}
    for text in (f"x {op} y", "P(x, y, _)", "x in staff", "f(x) = y", "count(Member(x, _)) < 3"):
        leaf = parse_constraint(text)
        assert isinstance(leaf, Atom)
        known = ground(leaf, bound, Scene(State(), "S", "i"))
        assert known is not None
        when = When("S", "i", known)
        assert fact_of(text_of(when)) == when


def when(text: str, **bound: Argument) -> When:
    parsed = parse_constraint(text)
    leaf = parsed.arg if isinstance(parsed, Starred) else parsed
    found = ground(leaf, bound, Scene(State(), "S", ""))  # type: ignore[arg-type]
    assert found is not None
    return When("S", "", found)


def test_an_atom_without_all_its_values_is_no_fact() -> None:
    scene = Scene(State(), "S", "", origin=None)
    for text in ("x = 1", "P(x)", "x + 1 < 3", "f(x) = 2", "@origin = 'ely'", "x in staff", "x in 1..2"):
        assert ground(parse_constraint(text), {}, scene) is None  # type: ignore[arg-type]
    assert ground(parse_constraint("P(_)"), {}, scene) is not None  # type: ignore[arg-type]
    assert ground(parse_constraint("@time < timestamp '2026-01-01T00:00:00Z'"), {}, scene) is not None  # type: ignore[arg-type]


IN = Membership("m", "S", "In", ("a", 1), "ann", 0)


@pytest.mark.parametrize(
    ("text", "keys", "turns"),
    [
        ("x in staff", set(), False),
        ("f(x) in staff", {GROUPS}, True),
        ("unixacl('a=r', x) = {r}", {GROUPS}, True),
        ("@time < timestamp '2026-01-01T00:00:00Z'", {CLOCK}, True),
        ("weekday(@time, 'UTC') = 1", {CLOCK}, True),
        ("P(x, _)", row_keys("P", frozenset(), frozenset({("a", 1)})), True),
        ("P(x, _)", row_keys("P", frozenset(), frozenset({("b", 1)})), False),
        ("P(_, x)", row_keys("P", frozenset(), frozenset({("a", 1)})), False),
        ("P()", row_keys("P", frozenset(), frozenset({("a", 1)})), True),
        ("P(_)", row_keys("P", frozenset({("b",)}), frozenset()), True),
        ("P(x) = 2", row_keys("P", frozenset(), frozenset({("a", 1)})), True),
        ("P(Q(x)) = 2", row_keys("P", frozenset(), frozenset({("z", 1)})), True),
        ("Q(x, _)", row_keys("P", frozenset(), frozenset({("a", 1)})), False),
        ("P(x, _)", row_keys("P", None, frozenset()), True),
        ("f(x)", {name_key("f")}, True),
        ("In(x)", holder_keys(IN), True),
        ("In('b')", holder_keys(IN), False),
        ("In(_)", holder_keys(IN), True),
        ("count(In(x, _)) > 1", holder_keys(IN), True),
        ("count(In('b')) > 1", holder_keys(IN), False),
        ("count(In) > 1", holder_keys(IN), True),
        ("count(T.In(_)) > 1", holder_keys(IN), False),
        ("count(Out(_)) > 1", holder_keys(IN), False),
        ("1 + count(In(_)) > 1", holder_keys(IN), True),
        ("count(In(_)) in 1..2", holder_keys(IN), True),
    ],
)
def test_facts_are_found_by_what_may_change_them(text: str, keys: set[Any], turns: bool) -> None:
    interest = Interest()
    fact = text_of(when(text, x="a"))
    interest.add(fact)
    interest.add(fact)
    assert (fact in interest.of(keys)) is turns
    assert interest.texts() == {fact}
    interest.remove(fact)
    assert not interest.of(keys)
    assert not interest.texts()
    interest.remove(fact)


def test_only_roles_that_are_looked_at_matter() -> None:
    interest = Interest()
    key = role_key(("S", ""), "In")
    one, two = text_of(when("In('a')")), text_of(when("count(In(_)) < 2"))
    assert key not in interest
    interest.add(one)
    interest.add(two)
    interest.remove(one)
    assert key in interest
    interest.remove(two)
    assert key not in interest


def test_of_group_memberships_only_those_of_who_joined_or_left() -> None:
    interest = Interest()
    facts = {who: text_of(when("x in staff", x=who)) for who in ("ann", "bob", "cat")}
    for text in facts.values():
        interest.add(text)
    before = State(groups={"staff": frozenset({"ann", "inner"}), "inner": frozenset({"bob"}), "far": frozenset()})
    after = State(groups={"staff": frozenset({"ann", "inner"}), "inner": frozenset({"cat"}), "far": frozenset({"ann"})})
    assert set(interest.of_members(before, after)) == {facts["bob"], facts["cat"]}
    assert not interest.of_members(before, before)
    gone = State(groups={"inner": frozenset({"bob"}), "far": frozenset()})
    assert set(interest.of_members(before, gone)) == set(facts.values())
    assert depends_on(fact_of(facts["ann"])) == frozenset()


@pytest.mark.parametrize("text", ['["when","S","","a() and b()"]', '["peer","x"]', "3", '["what"]'])
def test_what_is_no_fact_is_refused(text: str) -> None:
    with pytest.raises(Exception, match=r"no (fact|atom)"):
        fact_of(text)
