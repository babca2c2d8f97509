"""The line of values of each family: neighbours, and what lies between."""

from __future__ import annotations

import math
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headgate.model.values import INT_MAX, INT_MIN, Kind, Value, compare
from headgate.solver.order import GREATEST, LEAST, Family, after, before, between, candidates, family, fits
from strategies.rules import CONSTANTS
from strategies.running import examples

NUMBERS = st.one_of(
    st.integers(INT_MIN, INT_MAX),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([2**53, 2**53 + 1, 2.0**63, INT_MAX, INT_MIN, 0.0, -0.0, 5e-324]),
)
VALUES = st.one_of(NUMBERS, st.sampled_from(CONSTANTS), st.text(max_size=2), st.binary(max_size=2))


@given(VALUES)
@examples(300)
def test_neighbours(value: Value) -> None:
    following = after(value)
    if following is not None:
        assert compare("<", value, following) is True
        assert between(family(value) or Family.BOOL, value, following, 3) == []
        assert compare("=", before(following), value) is True
    else:
        assert compare("=", value, GREATEST.get(family(value) or Family.BOOL)) is True


@given(st.lists(NUMBERS, min_size=1, max_size=3), st.integers(1, 4))
@examples(300)
def test_between_numbers(constants: list[Value], count: int) -> None:
    found = candidates(Family.NUMBER, constants, count)
    assert all(compare("<", a, b) is True for a, b in pairwise(found))
    assert all(fits(one, Kind.INT) or fits(one, Kind.FLOAT) for one in found)
    named = sorted({one for one in constants if isinstance(one, (int, float))})
    for low, high in pairwise([None, *named, None]):
        inside = between(Family.NUMBER, low, high, count)
        both = [one for one in inside if fits(one, Kind.INT) and fits(one, Kind.FLOAT)]
        if len(both) >= count:
            continue
        # Fewer that are both: then all of these are there, and of the others as many as there are or were asked for.
        line = [-math.inf if low is None else low, *both, math.inf if high is None else high]
        for a, b in pairwise(line):
            doubles = [one for one in inside if a < one < b and fits(one, Kind.FLOAT)]
            whole = [one for one in inside if a < one < b and fits(one, Kind.INT)]
            assert len(doubles) >= min(count, steps(a, b, count, double=True))
            assert len(whole) >= min(count, steps(a, b, count, double=False))


def steps(low: float, high: float, count: int, *, double: bool) -> int:
    """How many doubles, or integers, lie strictly between; counted no further than asked."""
    found = 0
    at = low
    while found < count:
        if double:
            near = float(at) if at != -math.inf else -math.inf
            at = near if near > at else math.nextafter(near, math.inf)
        else:
            at = INT_MIN if at < INT_MIN else math.floor(at) + 1
        if at >= high or at == math.inf or (not double and at > INT_MAX):
            return found
        found += 1
    return found


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("a", "a\0", []),
        ("a", "a\0\0", ["a\0"]),
        ("a", "b", ["aa", "ab"]),
        (None, "", []),
        (None, "\0", [""]),
        (b"a", b"a\0", []),
        (b"a", None, [b"a\0", b"a\0\0"]),
    ],
)
def test_between_texts(low: Value, high: Value, expected: list[Value]) -> None:
    of = Family.BYTES if isinstance(low, bytes) else Family.STRING
    assert between(of, low, high, 2) == expected


def test_ends() -> None:
    for of in Family:
        assert before(LEAST[of]) is None
        assert GREATEST.get(of) is None or after(GREATEST.get(of)) is None
