"""May anything be published here and now? No is certain; yes leaves it to the event."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headgate.analysis.restrictions import holds_now
from headgate.decide.apply import apply
from headgate.lang import parse_condition
from headgate.model.changes import AddRule, Batch, DeclarePrincipal, DeclareType
from headgate.model.rights import Action, Effect, Rule
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)  # a Monday


def world(*rules: tuple[str, str]) -> State:
    added = [
        AddRule(
            Rule(f"r{n}", "till", frozenset({Action.PUBLISH}), "t.T", parse_condition(where), effect=Effect(effect))
        )
        for n, (effect, where) in enumerate(rules)
    ]
    kinds = {"x": Kind.INT, "at": Kind.TIMESTAMP}
    changes = (DeclarePrincipal("till", {"level": 3}), DeclareType(EventType("t.T", ADMINISTRATOR, kinds)), *added)
    return apply(State(), Batch(ADMINISTRATOR, changes))


def asked(*rules: tuple[str, str], origin: str | None = "10.0.0.7", rate: int | None = 1) -> bool | None:
    return holds_now(world(*rules), "till", "t.T", now=NOON, origin=origin, rate=rate)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("true", None),
        ("x > 3 and $level = 3", None),
        ("timeofday(at, 'UTC') < 0", None),
        ("@publisher = 'till'", None),
        ("timeofday(@time, 'UTC') in 32400..61200", True),
        ("timeofday(@time, 'UTC') > 61200", False),
        ("weekday(@time, 'UTC') in 6..7", False),
        ("weekday(@time, 'UTC') in 1..5 and x > 3", True),
        ("weekday(@time, 'UTC') in 6..7 and x > 3", False),
        ("weekday(@time, 'UTC') in 6..7 or x > 3", True),
        ("not (weekday(@time, 'UTC') in 1..5 and x > 3)", True),
        ("not (weekday(@time, 'UTC') in 1..5 or x > 3)", False),
        ("@rate <= 1", True),
        ("@rate <= 1 and $level > 3", False),
        ("@rate > 1 or x is null", True),
        ("@origin starts with '10.'", True),
        ("@origin != '10.0.0.7'", False),
        ("@time > timestamp '2027-01-01T00:00:00Z'", False),
    ],
)
def test_one_grant(where: str, expected: bool | None) -> None:
    assert asked(("grant", where)) is expected


def test_what_is_not_known_never_holds() -> None:
    assert asked(("grant", "@origin = '10.0.0.7'"), origin=None) is False
    assert asked(("grant", "@rate < 5"), rate=None) is False


def test_forbids_come_before_grants_and_count_unless_they_may_be_false() -> None:
    assert asked(("forbid", "@rate >= 1"), ("grant", "true")) is False
    assert asked(("forbid", "@rate >= 1 and x > 3"), ("grant", "true")) is True
    assert asked(("forbid", "@rate > 1"), ("grant", "true")) is True
    assert asked(("forbid", "@origin = 'x'"), ("grant", "true"), origin=None) is False
    assert asked(("grant", "x > 3"), ("forbid", "@rate >= 1")) is True
    assert asked(("forbid", "@rate > 1")) is False
