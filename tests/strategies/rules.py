"""Rules over subject attributes, and small worlds of values to try them on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import product

import hypothesis.strategies as st

from headgate.model.expressions import (
    FALSE,
    TRUE,
    Compare,
    Condition,
    Constant,
    InRange,
    InSet,
    IsNull,
    Not,
    Operand,
    TextMatch,
    all_of,
    any_of,
)
from headgate.model.values import INT_MAX, Value
from headgate.solver.order import after, before

NUMBERS: tuple[Value, ...] = (0, -0.0, 1, 1.5, 2.0, 3, 2**53, float(2**53), 2**53 + 1, INT_MAX, 1e300)
TEXTS: tuple[Value, ...] = ("", "a", "ab", "b", "a b", "b\ta", "a\0", "\ud7ff\U0010ffff")
OTHERS: tuple[Value, ...] = (
    *(False, True, b"", b"\0", b"\1"),
    *(datetime(2026, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
)
CONSTANTS = (*NUMBERS, *TEXTS, *OTHERS)


def world(constants: tuple[Value, ...] = CONSTANTS) -> list[Value]:
    """Null, the constants, what lies right beside them, and some texts made of them."""
    near = [one for value in constants for one in (before(value), value, after(value)) if one is not None]
    texts = [one for one in constants if isinstance(one, str)]
    made = [a + b for a in texts for b in texts] + [f"{a} {b}" for a in texts[1:4] for b in texts[1:4]]
    kept = {(type(one), one): one for one in (*near, *made[:40])}
    return [None, *kept.values()]


def subjects(names: tuple[str, ...], values: list[Value]) -> Iterator[Mapping[str, Value]]:
    """Every attribute set out of a world."""
    for row in product(values, repeat=len(names)):
        yield {name: value for name, value in zip(names, row, strict=True) if value is not None}


def atoms(terms: st.SearchStrategy[Operand], constants: st.SearchStrategy[Value]) -> st.SearchStrategy[Condition]:
    """Atoms of every kind that a rule may have."""
    sides = st.one_of(terms, constants.map(Constant))
    compared = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    texts = st.sampled_from(["starts with", "contains", "has token"])
    return st.one_of(
        st.builds(Compare, compared, terms, constants.map(Constant)),
        st.builds(Compare, compared, sides, sides),
        st.builds(InRange, terms, sides, sides),
        st.builds(InSet, terms, st.lists(constants, min_size=1, max_size=3).map(tuple)),
        st.builds(TextMatch, texts, terms, constants.map(Constant)),
        st.builds(TextMatch, texts, constants.map(Constant), terms),
        st.builds(IsNull, terms),
    )


def rules(
    terms: st.SearchStrategy[Operand], constants: st.SearchStrategy[Value], leaves: int = 5
) -> st.SearchStrategy[Condition]:
    """Rules of these terms and constants, with `not`, `and` and `or`."""
    return st.recursive(
        st.one_of(atoms(terms, constants), st.sampled_from([TRUE, FALSE])),
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, max_size=3).map(lambda args: all_of(*args)),
            st.lists(inner, max_size=3).map(lambda args: any_of(*args)),
        ),
        max_leaves=leaves,
    )
