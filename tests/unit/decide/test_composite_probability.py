"""Clocks that may be wrong: what shifts times by itself, again and again, is refused, and everything else ends."""

from __future__ import annotations

import pytest
from tests.strategies.composites import STATE, event, seconds

from headgate.decide.blocks import Moment, SourceFacts, detect
from headgate.decide.composite_check import resolve
from headgate.lang.composite import parse_composite
from headgate.model.errors import BadExpression
from headgate.model.values import EPOCH

ENDLESS = (
    "$(null; {Probability = 0.9} null)",
    "$((null; {Probability = 0.9} null) | A(x))",
    "$((A(x) | null); {Probability = 0.9} null)",
    "$(Row(x, y); {Probability = 0.9} null)",
    "$(null; (null; {Probability = 0.9} null) - A(x))",
    "A(x); $($null; {Probability = 0.1} $null)",
)
ENDING = (
    "null; {Probability = 0.9} null",
    "$(null; {Probability = 0.9} A(x))",
    "$(A(x); {Probability = 0.9} null)",
    "$(A(x); {Probability = 0.1} null)",
    "$(A(x) - {Probability = 0.9} B(x))",
    "$((null; {Probability = 0.9} null); A(x))",
    "$(AbsTime(3); {Probability = 0.9} null)",
    "$(null; null)",
)


@pytest.mark.parametrize("text", ENDLESS)
def test_what_would_never_end_is_refused(text: str) -> None:
    with pytest.raises(BadExpression, match="never ends"):
        resolve(parse_composite(text), STATE)


@pytest.mark.parametrize("text", ENDING)
def test_what_waits_for_events_ends(text: str) -> None:
    composite = resolve(parse_composite(text), STATE).composite
    moments = [Moment((event("A", n, 1),), {"main": seconds(n)}) for n in range(1, 4)]
    moments.append(Moment((), {"main": seconds(99)}))
    assert len(detect(composite, EPOCH, (), moments, {"main": SourceFacts(error=1.0)})) == len(moments)
