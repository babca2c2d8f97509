"""How often has a publisher published of late?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from headgate.decide import rates as module
from headgate.decide.rates import Rates, asks_rate
from headgate.lang import parse_condition
from headgate.model.limits import RATE_SECONDS
from strategies.running import examples
from strategies.small import NOON, grant, world


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_the_window_ends_now_and_leaves_its_beginning_out() -> None:
    rates = Rates()
    rates.add("cam", "t.T", NOON, 2)
    rates.add("cam", "t.T", later(1))
    assert rates.before("cam", "t.T", later(RATE_SECONDS - 0.000001)) == 3
    assert rates.before("cam", "t.T", later(RATE_SECONDS)) == 1
    assert rates.before("cam", "t.T", later(RATE_SECONDS + 1)) == 0
    assert rates.before("cam", "t.T", NOON) == 2


def test_publishers_and_types_are_counted_apart() -> None:
    rates = Rates()
    rates.add("cam", "t.T", NOON)
    assert [rates.before(*who, NOON) for who in (("cam", "t.T"), ("cam", "t.U"), ("bob", "t.T"))] == [1, 0, 0]


def test_the_edges_of_time_are_times_too() -> None:
    rates = Rates()
    for at in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        rates.add("cam", "t.T", at)
        assert rates.before("cam", "t.T", at) == 1


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 3)), max_size=40), st.integers(0, 260))
def test_the_count_is_exact_while_few_times_are_told_apart(sent: list[tuple[int, int]], now: int) -> None:
    rates = Rates()
    ordered = sorted(sent)
    for at, count in ordered:
        rates.add("cam", "t.T", later(at), count)
    newest = max((at for at, _ in ordered), default=0)
    asked = max(now, newest)
    expected = sum(count for at, count in ordered if asked - RATE_SECONDS < at <= asked)
    assert rates.before("cam", "t.T", later(asked)) == expected


def test_with_many_times_the_count_is_never_too_low() -> None:
    rates = Rates()
    for n in range(5 * module.MAX_MARKS):
        rates.add("cam", "t.T", later(n / 100))
        assert rates.before("cam", "t.T", later(n / 100)) >= min(n + 1, 100 * RATE_SECONDS)
    assert len(rates._held["cam", "t.T"]) <= module.MAX_MARKS


def test_memory_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_RATED", 3)
    rates = Rates()
    for n in range(5):
        rates.add(f"p{n}", "t.T", NOON)
        rates.add("p0", "t.T", NOON)
    assert rates.before("p0", "t.T", NOON) == 6
    assert len(rates._held) == 3


def test_a_rule_asks_for_the_rate_wherever_it_names_it() -> None:
    assert not asks_rate(world(grant("r", "anna", where=parse_condition("speed < 3"))).now)
    assert asks_rate(world(grant("r", "anna", where=parse_condition("speed < 3 or not (@rate > 1)"))).now)
