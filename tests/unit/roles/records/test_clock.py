"""The next moment of the clock: nothing turns before it, found by looking at every minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.constraints import Scene, truth
from headgate.lang.rolefile import parse_constraint
from headgate.model.expressions import Atom, RoleRef
from headgate.model.roles import Election, Membership, Peer, Record, RoleBook
from headgate.model.state import State
from headgate.roles.records.clock import next_moment
from headgate.roles.records.facts import When, text_of
from strategies.running import examples

ZONES = ["UTC", "Europe/London", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Australia/Lord_Howe"]
RELATIONS = {"Hours": frozenset({("desk", 32400), ("night", 79200)}), "Open": frozenset({(1,), (6,)})}
MINUTE = timedelta(minutes=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def state_of(*constraints: str) -> State:
    records = {}
    for n, text in enumerate(constraints):
        leaf = parse_constraint(text)
        assert isinstance(leaf, Atom)
        records[n] = Record(n, fact=text_of(When("S", "", leaf)))
    return State(relations=RELATIONS, roles=RoleBook(records=records))


parsed = cache(parse_constraint)
"""What is looked at minute by minute is read once."""


def seen(state: State, text: str, now: datetime) -> bool | None:
    return truth(parsed(text), {}, Scene(state, "S", now=now))


@st.composite
def clock_texts(draw: st.DrawFn) -> str:
    zone = draw(st.sampled_from(ZONES))
    hour, minute, second = draw(st.integers(0, 23)), draw(st.integers(0, 59)), draw(st.sampled_from([0, 0, 1, 59]))
    time = f"'{hour:02}:{minute:02}:{second:02}'"
    other = f"'{draw(st.integers(0, 24)):02}:00'"
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    day = draw(st.sampled_from(["'Mon'", "'Saturday'"]))
    of = f"timeofday(@time, '{zone}')"
    return draw(
        st.sampled_from(
            [
                f"{of} {op} {time}",
                f"{time} {op} {of}",
                f"{of} in {time}..{other}",
                f"{of} in {{{time}, {other}}}",
                f"{of} + 5400 {op} 36000",
                f"{of} - 5400 {op} 36000",
                f"86400 - {of} {op} 36000",
                f"{of} {op} Hours('desk')",
                f"weekday(@time, '{zone}') {op} {day}",
                f"Open(weekday(@time, '{zone}'))",
                f"Hours('desk', {of})",
                f"@time {op} timestamp '2026-03-29T01:30:00Z'",
                f"@time {op} timestamp '2026-03-29T00:30:00Z' + 3600",
                f"@time {op} 3600 + timestamp '2026-03-29T00:30:00Z'",
                f"@time - 3600 {op} timestamp '2026-03-29T00:30:00Z' - 60",
                f"{of} {op} Hours('desk') - 5400",
                f"{of} {op} timeofday(timestamp '2026-03-29T00:30:00Z', '{zone}') + 60",
            ]
        )
    )


# Around the days on which clocks are put forward and back, and on which Samoa went without a Friday.
beginnings = st.builds(
    lambda day, seconds: at(day) + timedelta(seconds=seconds),
    st.sampled_from(["2026-03-28", "2026-10-24", "2026-03-07", "2026-11-01", "2011-12-29", "2026-04-04", "2026-06-15"]),
    st.integers(0, 2 * 86_400),
)


@examples(20, soak=50)
@given(clock_texts(), beginnings)
def test_nothing_turns_before_the_next_moment(text: str, after: datetime) -> None:
    state = state_of(text)
    moment = next_moment(state, after)
    before, end = seen(state, text, after), after + timedelta(days=3)
    last = end if moment is None else min(moment, end)
    now = after
    while now < last:
        assert seen(state, text, now) is before, f"{text} turned by {now}, not at {moment}"
        now += MINUTE
    assert seen(state, text, last - timedelta(microseconds=1)) is before
    assert moment is None or moment > after


@pytest.mark.parametrize(
    ("text", "after", "moment"),
    [
        ("timeofday(@time) in '09:00'..'17:30'", "2026-01-05T10:00", "2026-01-05T17:30"),
        ("timeofday(@time) in '09:00'..'17:30'", "2026-01-05T17:30", "2026-01-05T17:30:01"),
        ("timeofday(@time) in '09:00'..'17:30'", "2026-01-05T17:30:01", "2026-01-06T00:00"),
        ("timeofday(@time, 'Europe/London') < '09:00'", "2026-07-06T06:00", "2026-07-06T08:00"),
        ("timeofday(@time, 'Europe/London') < '01:30'", "2026-03-29T00:30", "2026-03-29T01:00"),
        ("weekday(@time, 'Asia/Tokyo') = 'Sat'", "2026-01-09T12:00", "2026-01-09T15:00"),
        ("@time < timestamp '2026-03-29T01:30:00Z'", "2026-01-01T00:00", "2026-03-29T01:30"),
        ("@time < timestamp '2026-03-29T01:30:00Z' + 86400", "2026-01-01T00:00", "2026-03-30T01:30"),
        ("timeofday(@time) < timeofday(timestamp '2026-03-29T01:30:00Z')", "2026-01-01T00:00", "2026-01-01T01:30"),
    ],
)
def test_it_is_the_moment_one_would_name(text: str, after: str, moment: str) -> None:
    assert next_moment(state_of(text), at(after)) == at(moment)


def test_a_time_that_has_passed_never_comes_again() -> None:
    assert next_moment(state_of("@time < timestamp '2026-03-29T01:30:00Z'"), at("2026-03-30T00:00")) is None


def test_constraints_without_a_clock_have_no_moment() -> None:
    assert next_moment(state_of("Open(1)", "'x' = 'y'"), at("2026-01-01T00:00")) is None


def test_a_function_that_is_given_the_clock_is_looked_at_every_second() -> None:
    after = at("2026-01-01T00:00:00.5")
    for text in ("busy(timeofday(@time))", "busy(@time)", "timeofday(@time) > load('x')"):
        assert next_moment(state_of(text), after) == at("2026-01-01T00:00:01")
    assert next_moment(state_of("busy(weekday(@time))"), after) == at("2026-01-02T00:00")


def test_it_begins_at_the_beginning_of_time_and_ends_at_its_end() -> None:
    state = state_of("timeofday(@time, 'America/New_York') < '09:00'")
    assert next_moment(state, datetime.min.replace(tzinfo=UTC)) is not None
    assert next_moment(state, datetime.max.replace(tzinfo=UTC)) is None


def test_memberships_elections_and_peers_end() -> None:
    until, later = at("2026-01-01T10:00"), at("2026-01-01T11:00")
    held = Membership("m", "S", "R", (), "p", 1, until=later)
    elected = Election("e", "S", "R", (), "p", "m", RoleRef("R"), 1, 2, until=until)
    book = RoleBook(memberships={"m": held}, elections={"e": elected})
    assert next_moment(State(roles=book), at("2026-01-01T00:00")) == until
    assert next_moment(State(roles=book), until) == later
    assert next_moment(State(roles=book), later) is None


@pytest.mark.parametrize(("state", "moment"), [(True, "2026-01-01T00:01"), (None, None)])
def test_a_peer_falls_silent_once(state: bool | None, moment: str | None) -> None:
    peer = Peer("Hr", "key", "Hr", 60, heard=at("2026-01-01T00:00"))
    book = RoleBook(memberships={"m": Membership("m", "Hr", "R", (), "p", 1, state=state)}, peers={"Hr": peer})
    found = next_moment(State(roles=book), at("2026-01-01T00:00"))
    assert found == (None if moment is None else at(moment))
