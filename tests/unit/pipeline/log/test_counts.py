"""A limit on the rate holds for all writers of a log together, however they interleave, crash and read their clocks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headgate.model.errors import StaleVersion
from headgate.model.events import Event
from headgate.model.limits import RATE_SECONDS
from headgate.model.values import micros
from headgate.pipeline.log.appends import Append
from headgate.pipeline.log.event_log import EventLog
from strategies.running import examples
from strategies.small import NOON
from strategies.stored import encode

CAM, TYPE = "cam", "t.T"
PATH = "log.db"


def blob(count: int, publisher: str = CAM) -> bytes:
    return encode([Event(str(n), publisher, TYPE, {}, NOON) for n in range(count)], {TYPE: {}})


@dataclass
class Writer:
    """One gateway: it decides at one moment, and appends at another, or never."""

    path: Path
    stream: str
    skew: int
    log: EventLog
    token: int
    decided: Append | None = None

    @classmethod
    def start(cls, path: Path, stream: str, skew: int) -> Writer:
        log = EventLog.open(path)
        return cls(path, stream, skew, log, log.take(stream, 1))

    def decide(self, clock: float, wanted: int, limit: int) -> int:
        """Accept as many of some events as the limit allows; returns how many were counted before."""
        now = NOON + timedelta(seconds=clock + self.skew)
        before = self.log.counted(now).lately(CAM, TYPE, now)
        count = max(0, min(wanted, limit - before))
        self.decided = None
        if count:
            self.decided = Append(1, micros(now), count, blob(count), counts=((CAM, TYPE, count),))
        return before

    def store(self) -> tuple[int, int] | None:
        """The time and number of events that are stored now, if any."""
        append, self.decided = self.decided, None
        if append is None:
            return None
        (answer,) = self.log.append_many(self.stream, self.token, [append])
        if isinstance(answer, StaleVersion):
            return None
        assert isinstance(answer, int)
        return append.time, append.count


@contextmanager
def made() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / PATH
        EventLog.create(path).close()
        yield path


STEP = st.one_of(
    st.tuples(st.just("decide"), st.integers(0, 2), st.integers(1, 4)),
    st.tuples(st.just("store"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("store"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("pass"), st.just(0), st.sampled_from([1, 10, 29, 31, 59, 60])),
)


@examples(60)
@given(
    st.lists(STEP, max_size=40),
    st.lists(st.integers(-RATE_SECONDS // 2 + 1, RATE_SECONDS // 2 - 1), min_size=3, max_size=3),
    st.integers(1, 5),
)
def test_no_window_holds_more_than_the_limit(steps: list[tuple[str, int, int]], skews: list[int], limit: int) -> None:
    with made() as path:
        writers = [Writer.start(path, f"g{n}", skew) for n, skew in enumerate(skews)]
        clock, stored = 0.0, list[tuple[int, int]]()
        for what, number, much in steps:
            one = writers[number]
            match what:
                case "decide":
                    before = one.decide(clock, much, limit)
                    begin = micros(NOON + timedelta(seconds=clock + one.skew)) - RATE_SECONDS * 1_000_000
                    assert before == sum(count for at, count in stored if at > begin), "nothing more is held back"
                case "store":
                    stored += [found] if (found := one.store()) else []
                case "crash":
                    one.log.close()
                    writers[number] = Writer.start(path, one.stream, one.skew)
                case _:
                    clock += much
        for end, _ in stored:
            window = [count for at, count in stored if end - RATE_SECONDS * 1_000_000 < at <= end]
            assert sum(window) <= limit
        for one in writers:
            one.log.close()


def test_only_what_others_append_of_the_same_is_news() -> None:
    with made() as path:
        ours, theirs = (Writer.start(path, name, 0) for name in ("g1", "g2"))
        ours.decide(0, 1, 9)
        other = Append(1, micros(NOON), 1, blob(1, "bob"))
        assert theirs.log.append_many("g2", theirs.token, [other]) == [1]
        assert ours.store() is not None, "another publisher's do not matter"
        ours.decide(0, 1, 9)
        assert theirs.log.append_many("g2", theirs.token, [Append(1, micros(NOON), 1, blob(1))]) == [2]
        assert ours.store() is None, "decided by a count that is no longer true"
        assert ours.decide(0, 1, 9) == 2
        assert ours.store() is not None
        for one in (ours, theirs):
            one.log.close()


def test_a_look_in_between_hides_no_news() -> None:
    with made() as path:
        ours, theirs = (Writer.start(path, name, 0) for name in ("g1", "g2"))
        ours.decide(0, 1, 1)
        theirs.decide(0, 1, 1)
        assert theirs.store() is not None
        assert ours.log.rate(CAM, TYPE, NOON) == 1
        assert ours.store() is None
        for one in (ours, theirs):
            one.log.close()
