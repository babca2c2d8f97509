"""Promises: no event is stored that occurred before a horizon, and horizons never go back."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model.errors import BadDefinition, Fenced, NotFound, StaleVersion
from headgate.model.types import Times
from headgate.pipeline.log.appends import Append, Repeats, hash_keys
from headgate.pipeline.log.codec import LogBatch
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.log.promises import Early, Occurrences, Promise, Promised
from strategies.running import examples

SECOND = 1_000_000
PLAIN, STATED, LATE = Times(), Times(stated=True), Times(stated=True, lateness=5)
TYPES: Mapping[str, Times] = {"a.Plain": PLAIN, "a.Stated": STATED, "a.Late": LATE}


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog.create(tmp_path / "log.db")


def occurred(type: str, *times: int, joins: bool = True, first: int = 0) -> Occurrences:
    places = np.arange(first, first + len(times), dtype=np.int64)
    return Occurrences(type, TYPES[type], places, np.array(times, np.int64), joins)


def sent(time: int, *groups: Occurrences, publisher: str = "bob", ids: Sequence[str] = ()) -> Append:
    count = sum(len(group.places) for group in groups) or 1
    keys = hash_keys(publisher, "", ids) if ids else None
    return Append(1, time, count, b"x", keys, 10**9, promises=True, publisher=publisher, occurred=groups)


def store(log: EventLog, token: int, *appends: Append, stream: str = "main") -> list[object]:
    return list(log.append_many(stream, token, appends))


# -- what is promised ---------------------------------------------------------------------------------------------


def test_time_that_passes_is_told_in_order_and_promises_nothing(log: EventLog) -> None:
    token = log.take("main", 1)
    log.pass_time("main", 5)
    assert store(log, token, sent(10)) == [1]
    log.pass_time("main", 20)
    told = [(one.after, one.horizon, one.clock) for one in log.promises_after(0, log.newest()[1], 10)]
    assert told == [(0, 0, 5), (1, 10, 20)]
    assert log.promised("main") == 10
    with pytest.raises(NotFound):
        log.pass_time("nowhere", 5)


def test_an_append_promises_its_time_and_none_after_it_is_stamped_earlier(log: EventLog) -> None:
    token = log.take("main", 1)
    assert store(log, token, sent(10)) == [1]
    (stale,) = store(log, token, sent(9))
    assert isinstance(stale, StaleVersion)
    assert store(log, token, sent(10)) == [2]
    assert log.promised("main") == 10


def test_the_first_stated_time_joins_where_the_stream_is_and_binds_from_then_on(log: EventLog) -> None:
    token = log.take("main", 1)
    store(log, token, sent(100))
    (early,) = store(log, token, sent(110, occurred("a.Stated", 99, 100)))
    assert early == Early({0: 100})
    assert store(log, token, sent(110, occurred("a.Stated", 100))) == [2]
    assert store(log, token, sent(200, occurred("a.Stated", 101))) == [3]  # late, and nothing was promised beyond 100
    assert log.horizons().of("main", "a.Stated", STATED) == 100
    assert log.horizons().of("main", "a.Plain", PLAIN) == 200
    (early,) = store(log, token, sent(300, occurred("a.Stated", 99), publisher="ann"))  # who joins is bound as well
    assert early == Early({0: 100})


def test_a_heartbeat_binds_its_sender_wherever_it_has_joined_and_moves_the_least(log: EventLog) -> None:
    main, other = log.take("main", 1), log.take("other", 1)
    store(log, main, sent(10, occurred("a.Stated", 20)))
    store(log, other, sent(10, occurred("a.Stated", 20)), stream="other")
    store(log, main, sent(10, occurred("a.Stated", 20), publisher="ann"))
    assert log.promise("main", "bob", {"a.Stated": STATED}, 50, 10) == ({"a.Stated": 50}, True)
    assert log.horizons().of("main", "a.Stated", STATED) == 0, "ann holds it back"
    assert log.horizons().of("other", "a.Stated", STATED) == 50
    assert log.promise("main", "ann", {"a.Stated": STATED}, 40, 10) == ({"a.Stated": 40}, True)
    assert log.horizons().of("main", "a.Stated", STATED) == 40
    assert log.promise("main", "bob", {"a.Stated": STATED}, 30, 10) == ({"a.Stated": 50}, False), "it goes back nowhere"
    assert store(log, main, sent(10, occurred("a.Stated", 45)))[0] == Early({0: 50})
    assert store(log, main, sent(10, occurred("a.Stated", 45), publisher="ann")) == [3]


def test_an_event_that_was_sent_before_is_known_as_the_same_first(log: EventLog) -> None:
    token = log.take("main", 1)
    assert store(log, token, sent(10, occurred("a.Stated", 20), ids=["e"])) == [1]
    log.promise("main", "bob", {"a.Stated": STATED}, 50, 10)
    assert isinstance(store(log, token, sent(11, occurred("a.Stated", 20), ids=["e"]))[0], Repeats)
    assert store(log, token, sent(11, occurred("a.Stated", 20), ids=["f"])) == [Early({0: 50})]


def test_a_lateness_counts_from_where_it_begins(log: EventLog) -> None:
    token = log.take("main", 1)
    store(log, token, sent(100 * SECOND))
    log.begin_lateness("main", token, ["a.Late"], 0)
    assert log.horizons().of("main", "a.Late", LATE) == 100 * SECOND, "what was promised is not taken back"
    store(log, token, sent(110 * SECOND))
    assert log.horizons().of("main", "a.Late", LATE) == 105 * SECOND
    late = occurred("a.Late", 105 * SECOND - 1, 105 * SECOND)
    assert store(log, token, sent(110 * SECOND, late)) == [Early({0: 105 * SECOND})]
    assert store(log, token, sent(110 * SECOND, occurred("a.Late", 105 * SECOND))) == [3]
    store(log, token, sent(120 * SECOND))
    assert log.horizons().of("main", "a.Late", LATE) == 115 * SECOND, "whoever joined promises at least that"


def test_a_stream_that_nobody_holds_is_promised_for_and_one_that_is_held_is_not(log: EventLog) -> None:
    token = log.take("main", 1, holder="here", now=0, ttl=1_000)
    log.take("left", 1)
    log.take("held", 1, holder="there", now=0, ttl=1_000)
    assert log.promise_clock("main", token, 500, 400)
    assert log.horizons().streams == {"main": 500, "left": 500, "held": 0}
    assert not log.promise_clock("main", token, 501, 401), "nothing is due"
    assert log.newest() == (0, 2)
    log.take("main", 1, holder="here", now=600)
    with pytest.raises(Fenced):
        log.promise_clock("main", token, 9_000, 8_000)


def test_a_whole_stream_takes_all_who_have_joined_with_it(log: EventLog) -> None:
    token = log.take("main", 1)
    store(log, token, sent(10, occurred("a.Stated", 20)))
    assert log.promise_stream("main", 60, 10)
    assert not log.promise_stream("main", 60, 10)
    assert log.horizons().of("main", "a.Stated", STATED) == log.promised("main") == 60
    with pytest.raises(NotFound):
        log.promise_stream("nowhere", 60, 10)


# -- the order of all that arrives --------------------------------------------------------------------------------


def test_appends_and_promises_have_one_order(log: EventLog) -> None:
    main, other = log.take("main", 1), log.take("other", 1)
    store(log, main, sent(10))
    log.promise("main", "bob", {"a.Stated": STATED}, 50, 10)
    store(log, other, sent(11), stream="other")
    store(log, main, sent(12))
    number, promise = log.newest()
    assert (number, promise) == (3, 2)
    assert [(a.number, a.stream, a.horizon) for a in log.appends_by_number(0, number, 100)] == [
        (1, "main", 10), (2, "other", 11), (3, "main", 12)
    ]  # fmt: skip
    assert [a.number for a in log.appends_by_number(0, number, 2)] == [1, 2]
    assert [a.number for a in log.appends_by_number(1, 2, 100)] == [2]
    assert [(p.after, p.publisher, p.horizon) for p in log.promises_after(0, promise, 100)] == [
        (1, "bob", 10), (1, "bob", 50)
    ]  # fmt: skip


def test_a_promise_is_passed_once_an_append_after_it_was_trimmed(log: EventLog) -> None:
    token = log.take("main", 1)
    assert log.passed_promise() == 0
    for n in range(1, 4):
        store(log, token, sent(10))
        log.promise("main", "bob", {"a.Stated": STATED}, 10 + n, 10)
    for trimmed in (1, 2, 3):
        log.trim("main", trimmed)
        passed = log.passed_promise()
        assert {p.after for p in log.promises_after(0, passed, 100)} == set(range(1, trimmed))
        assert all(p.after >= trimmed for p in log.promises_after(passed, 100, 100))
    log.trim_promises(log.passed_promise())
    assert [p.horizon for p in log.promises_after(0, 100, 100)][-1:] == [13]


def test_no_stream_of_the_log_is_called_as_that_of_signals_is(log: EventLog) -> None:
    with pytest.raises(BadDefinition, match="signals"):
        log.take("signals", 1)


def test_promises_are_trimmed_with_the_log_but_for_the_newest_of_each_source(log: EventLog) -> None:
    token = log.take("main", 1)
    store(log, token, sent(10))
    for horizon in (20, 30):
        log.promise("main", "bob", {"a.Stated": STATED}, horizon, 10)
        store(log, token, sent(10))
    log.promise("main", "bob", {"a.Stated": STATED}, 40, 10)
    before = log.horizons()
    assert log.trim_promises(log.newest()[1]) == 0, "the oldest append is before them"
    log.trim("main", 2)
    assert log.trim_promises(log.newest()[1]) == 3
    assert [p.horizon for p in log.promises_after(0, 100, 100)] == [40]
    assert log.horizons() == before
    assert log.newest() == (3, 4)


def test_a_log_of_the_format_before_opens_with_what_its_appends_promised(log: EventLog) -> None:
    token = log.take("main", 1)
    store(log, token, sent(10), sent(12))
    log.close()
    with sqlite3.connect(log.path) as db:
        for statement in ("DROP TABLE promises", "DROP TABLE horizons", "ALTER TABLE streams DROP COLUMN promised"):
            db.execute(statement)
        db.execute("PRAGMA user_version = 2")
    again = EventLog.open(log.path, read_only=True)
    assert again.promised("main") == 12
    assert [b.time for b in again.batches("main", 0, 2)] == [10, 12]
    with pytest.raises(sqlite3.OperationalError):
        again._db.execute("DELETE FROM batches")
    again.close()
    writer = EventLog.open(log.path)
    assert store(writer, writer.take("main", 1), sent(12)) == [3]
    writer.close()


# -- against a reference ------------------------------------------------------------------------------------------


@dataclass
class Reference:
    """The rules, as a few dictionaries: what each source has promised, and what each stream has."""

    clocks: dict[str, int] = field(default_factory=dict)
    pairs: dict[tuple[str, str, str], int] = field(default_factory=dict)
    begun: dict[tuple[str, str], int] = field(default_factory=dict)

    def floor(self, stream: str, type: str) -> int:
        begun = self.begun.get((stream, type))
        return -1 if begun is None else max(begun, self.clocks.get(stream, 0) - 5 * SECOND)

    def bound(self, stream: str, publisher: str, type: str) -> int:
        own = self.pairs.get((stream, publisher, type))
        return self.horizon(stream, type) if own is None else max(own, self.floor(stream, type))

    def horizon(self, stream: str, type: str) -> int:
        pairs = [h for (s, _, t), h in self.pairs.items() if (s, t) == (stream, type)]
        if pairs:
            return max(min(pairs), self.floor(stream, type))
        return self.floor(stream, type) if (stream, type) in self.begun else self.clocks.get(stream, 0)


Step = tuple[str, str, str, str, int, int]


def steps() -> st.SearchStrategy[list[Step]]:
    """What is done, in which stream, by whom, of which type, to which second, and how the clock moves."""
    return st.lists(
        st.tuples(
            st.sampled_from(("append", "append", "append", "clock", "heartbeat", "stream", "begin")),
            st.sampled_from(("north", "south")),
            st.sampled_from(("ann", "bob", "cid")),
            st.sampled_from(tuple(TYPES)),
            st.integers(-3, 60),
            st.sampled_from((0, 1, 2, 7, -4)),  # a clock may go back
        ),
        max_size=40,
    )


@examples(120, soak=300)
@given(steps())
def test_nothing_is_stored_below_a_horizon(steps: list[Step]) -> None:
    with TemporaryDirectory() as directory:
        log = EventLog.create(Path(directory) / "log.db")
        tokens = {stream: log.take(stream, 1) for stream in ("north", "south")}
        reference, clock = Reference(), 10
        promised: dict[tuple[str, str], int] = {}
        for what, stream, publisher, type, second, moves in steps:
            clock = max(0, clock + moves)
            take_step(
                log, tokens, reference, (what, stream, publisher, type), second * SECOND, clock * SECOND, promised
            )
            for place in [(s, t) for s in tokens for t in TYPES]:
                now = log.horizons().of(*place, TYPES[place[1]])
                assert now == (
                    reference.horizon(*place) if TYPES[place[1]].stated else reference.clocks.get(place[0], 0)
                )
                assert now >= promised.get(place, 0), "horizons never go back"
                promised[place] = now
        assert followed(log) == log.horizons()
        log.close()


def take_step(
    log: EventLog,
    tokens: Mapping[str, int],
    reference: Reference,
    step: tuple[str, str, str, str],
    time: int,
    clock: int,
    promised: Mapping[tuple[str, str], int],
) -> None:
    what, stream, publisher, type = step
    match what:
        case "append":
            stated = TYPES[type].stated
            stamp = max(clock, reference.clocks.get(stream, 0))
            groups = [occurred(type, time)] if stated else []
            bound = reference.bound(stream, publisher, type)
            (answer,) = store(log, tokens[stream], sent(stamp, *groups, publisher=publisher), stream=stream)
            if stated and time < bound:
                assert answer == Early({0: bound})
                return
            assert isinstance(answer, int)
            assert (time if stated else stamp) >= promised.get((stream, type), 0), "it is below what was promised"
            if stated:
                reference.pairs.setdefault((stream, publisher, type), reference.horizon(stream, type))
            reference.clocks[stream] = stamp
        case "clock":
            known = dict(reference.clocks)
            log.promise_clock(stream, tokens[stream], clock, clock)
            for one in tokens:  # nobody holds them by a lease
                reference.clocks[one] = max(clock, known.get(one, 0))
        case "heartbeat" if TYPES[type].stated:
            reference.pairs.setdefault((stream, publisher, type), reference.horizon(stream, type))
            for pair in reference.pairs:
                if pair[1:] == (publisher, type):
                    reference.pairs[pair] = max(time, reference.pairs[pair])
            told = log.promise(stream, publisher, {type: TYPES[type]}, time, clock)
            assert told[0] == {type: reference.bound(stream, publisher, type)}
        case "stream":
            log.promise_stream(stream, time, clock)
            reference.clocks[stream] = max(time, reference.clocks.get(stream, 0))
            for pair in reference.pairs:
                if pair[0] == stream:
                    reference.pairs[pair] = max(time, reference.pairs[pair])
            for began in reference.begun:
                if began[0] == stream:
                    reference.begun[began] = max(time, reference.begun[began])
        case "begin":
            least = [h for (s, _, t), h in reference.pairs.items() if (s, t) == (stream, "a.Late")]
            reference.begun.setdefault((stream, "a.Late"), min(least, default=reference.clocks.get(stream, 0)))
            log.begin_lateness(stream, tokens[stream], ["a.Late"], clock)


def followed(log: EventLog) -> Promised:
    """What a reader makes of appends and promises, in their order."""
    number, promise = log.newest()
    arrivals: list[LogBatch | Promise] = [
        *log.appends_by_number(0, number, 10**9),
        *log.promises_after(0, promise, 10**9),
    ]
    horizons = Promised(dict.fromkeys(log.tails(), 0))
    for one in sorted(arrivals, key=place):
        horizons.take(one)
    return horizons


def place(one: LogBatch | Promise) -> tuple[int, int, int]:
    """Promises come after the append that was the newest when they were made."""
    return (one.number, 0, 0) if isinstance(one, LogBatch) else (one.after, 1, one.id)
