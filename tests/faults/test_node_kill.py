"""A whole node whose processes are killed and stopped at random moments: nothing lost, nothing twice, nothing else.

One node lives through all seeds. Three stories run at a time, each with publishers, subscriptions, readers and changes
of policy of its own, while gateways, the pipeline, its JVM and its workers are killed with SIGKILL or stopped with
SIGSTOP. The supervisor brings back what dies. Then everything that anybody was told is held against the log, the ledger
and `decide`. `HEADGATE_SEEDS` sets how many seeds, `HEADGATE_FIRST_SEED` which comes first.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest

from faults.node_story import GATEWAYS, MARK, READERS, SECONDS, Breaker, Story, faults, marked, policy
from harness.node import Node, run, running
from headgate.commands.subscriptions import ledger_id
from headgate.decide.deliver import decide
from headgate.decide.publish import admit
from headgate.ledger import Ledger
from headgate.model.events import Draft, Event
from headgate.model.rights import Subscription
from headgate.model.state import State
from headgate.model.values import plain
from headgate.node.cursors import Cursors
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.log.codec import decode, layouts
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.paths import Paths
from headgate.solver import check_policy_rule

pytestmark = [pytest.mark.spark, pytest.mark.soak]

FIRST: Final = int(os.environ.get("HEADGATE_FIRST_SEED", "0"))
SEEDS: Final = int(os.environ.get("HEADGATE_SEEDS", "3"))
SEEDS_A_NODE: Final = 120
TOGETHER: Final = 3
"""Stories that run at a time."""

Place = tuple[str, int]
Key = tuple[str, str, str]


# -- what the files say -------------------------------------------------------------------------------------------


@dataclass
class Record:
    """The log and the ledger of a node, read and never written: whoever opens a domain completes what is half done."""

    ledger: Ledger
    log: EventLog
    store: DeliveryStore
    after: Mapping[str, int]
    """The last event of each stream that was there before."""

    @cached_property
    def events(self) -> list[Event]:
        places = layouts(self.ledger.state().types)
        return [
            event
            for stream, tail in self.log.tails().items()
            for batch in self.log.batches(stream, self.after.get(stream, 0), tail.last)
            for event in decode(batch, places)
        ]

    @cached_property
    def places(self) -> dict[Key, Place]:
        return {_key(event): (event.stream, event.seq) for event in self.events}

    @cached_property
    def _states(self) -> dict[int, State]:
        return {}

    def state(self, version: int) -> State:
        if version not in self._states:
            self._states[version] = self.ledger.state(version)
        return self._states[version]

    def is_decided(self) -> bool:
        reached = self.store.reached()
        return reached.version >= self.ledger.version and all(
            reached.streams.get(stream, 0) >= tail.last for stream, tail in self.log.tails().items()
        )

    def subscription(self, principal: str, id: str) -> Subscription:
        return self.ledger.state().subscriptions[ledger_id(principal, id)]

    def expected(self, subscription: Subscription) -> dict[str, list[tuple[Key, dict[str, Any]]]]:
        """What a subscription must get, in the order of each stream."""
        found: dict[str, list[tuple[Key, dict[str, Any]]]] = {}
        for event in self.events:
            delivery = decide(event, subscription, self.state, {})
            if delivery is not None:
                view = {name: plain(value) for name, value in delivery.view.items()}
                found.setdefault(event.stream, []).append((_key(event), view))
        return found


def _key(event: Event) -> Key:
    return event.publisher, event.source, event.id


@contextmanager
def record(node: Node, after: Mapping[str, int]) -> Iterator[Record]:
    paths = Paths(node.files.data)
    with Ledger.open(paths.ledger) as ledger, ExitStack() as stack:
        log = EventLog.open(paths.log, read_only=True)
        stack.callback(log.close)
        store = DeliveryStore.open(paths.deliveries, read_only=True)
        stack.callback(store.close)
        yield Record(ledger, log, store, after)


def tails(node: Node) -> dict[str, int]:
    with record(node, {}) as found:
        return {stream: tail.last for stream, tail in found.log.tails().items()}


# -- what must hold -----------------------------------------------------------------------------------------------


def check_published(story: Story, found: Record) -> None:
    """Every event that was acknowledged is in the log once, in order, as it was sent; none that was refused is."""
    mine = [event for event in found.events if event.values["story"] == story.seed]
    times = Counter((event.publisher, event.id) for event in mine)
    wrong = {who: times[who] for who, answer in story.answers.items() if times[who] != (answer == "stored")}
    assert not wrong, f"stored other than once, or though refused: {wrong}"
    assert times.keys() <= story.answers.keys(), "stored, and nobody was told"
    assert story.answers.keys() == story.sent.keys(), "not every event was answered"
    last: dict[tuple[str, str], int] = {}
    for event in mine:
        assert dict(event.values) == story.sent[event.publisher, event.id]
        draft = Draft(event.id, event.publisher, event.type, event.values, event.source)
        admit(
            found.state(event.version), draft, now=event.time, predicates={}, policy_rule=check_policy_rule
        )  # or it is refused
        n = int(event.values["n"])
        assert n > last.get((event.publisher, event.stream), -1), f"{event} came after a later one"
        last[event.publisher, event.stream] = n


def check_versions(stories: Iterable[Story], found: Record) -> None:
    """Each event has the newest version that had begun in its stream; each acknowledged one began in all of them."""
    points = [(one.stream, one.version, one.seq) for one in found.ledger.starting_points()]
    assert points == sorted(found.log.starts()), "the ledger and the log have different starting points"
    streams = found.log.tails().keys()
    begun: dict[str, list[tuple[int, int]]] = {stream: [] for stream in streams}
    for stream, version, seq in points:
        assert not begun[stream] or begun[stream][-1] <= (version, seq), f"a starting point of {stream} goes back"
        begun[stream].append((version, seq))
    for stream in streams:
        starts, newest, at = begun[stream], 0, 0
        for event in (one for one in found.events if one.stream == stream):
            while at < len(starts) and starts[at][1] <= event.seq:
                newest, at = starts[at][0], at + 1
            assert event.version == newest, f"{event} has another version than {newest}"
    notes = {info.version: info.note for info in found.ledger.versions()}
    for story in stories:
        for version, note in story.versions.items():
            assert notes[version] == note, f"version {version} is not what was acknowledged"
            for stream in streams:
                assert begun[stream], f"{stream} has no version"
                assert begun[stream][-1][0] >= version, f"version {version} did not begin in {stream}"


class Reading:
    """What the processes of one reader wrote down, held against what they should have got."""

    def __init__(self, story: Story, reader: str, found: Record, cursors: Cursors) -> None:
        self.name = f"seed {story.seed}, {reader}"
        self._notes = story.notes(reader)
        self._subscription = found.subscription(reader, story.subscription(reader))
        self._expected = found.expected(self._subscription)
        self._seqs = {stream: [found.places[key][1] for key, _ in events] for stream, events in self._expected.items()}
        self._cursors = cursors
        self._index = {
            key: (stream, at) for stream, events in self._expected.items() for at, (key, _) in enumerate(events)
        }
        self.size = len(self._index)
        self.lives = 0
        self.again = 0
        """Deliveries that came more than once, because they had not been acknowledged."""

    def check(self) -> bool:
        """Is it right so far, and is all of it there and acknowledged?"""
        before = self._acknowledged()
        surely = dict.fromkeys(self._expected, 0)  # how many of each stream are acknowledged for certain,
        perhaps = dict.fromkeys(self._expected, 0)  # and how many at the most
        at: dict[str, int] = {}
        taken: list[tuple[int, str, int]] = []
        seen: set[Key] = set()
        self.lives = self.again = 0
        for number, line in enumerate(self._read(), 1):
            where = f"{self.name}, {self._notes.name}:{number}"
            if "begin" in line:
                at, taken = {}, []
                self.lives += 1
            elif "got" in line:
                key: Key = tuple(line["key"])
                assert key in self._index, f"{where}: got {key}, which is not for it"
                stream, place = self._index[key]
                assert line["view"] == self._expected[stream][place][1], f"{where}: {key} shows something else"
                if stream in at:
                    assert place == at[stream] + 1, f"{where}: {place} of {stream} comes after {at[stream]}"
                else:
                    low, high = surely[stream], perhaps[stream]
                    assert low <= place <= high, f"{where}: resumed {stream} at {place}, not at {low} to {high}"
                at[stream] = place
                taken.append((line["got"], stream, place))
                self.again += key in seen
                seen.add(key)
            elif "acking" in line or "acked" in line:
                for got, stream, place in taken:
                    if got <= line.get("acking", line.get("acked")):
                        perhaps[stream] = max(perhaps[stream], place + 1)
                        if "acked" in line:
                            surely[stream] = max(surely[stream], place + 1)
            else:
                assert "crash" in line or "end" in line, f"{where}: {line}"
        after = self._acknowledged()
        for stream in self._expected:
            assert surely[stream] <= after[stream], f"{self.name}: an acknowledgement in {stream} was lost"
            assert before[stream] <= perhaps[stream], f"{self.name}: {stream} is acknowledged further than it was read"
        return all(before[stream] == len(events) for stream, events in self._expected.items())

    def _acknowledged(self) -> dict[str, int]:
        """How many of each stream need not come again, by the word of the gateways."""
        acked = self._cursors.acked(self._subscription.id, self._subscription.first)
        return {stream: bisect_right(seqs, acked.get(stream, 0)) for stream, seqs in self._seqs.items()}

    def _read(self) -> list[dict[str, Any]]:
        if not self._notes.exists():
            return []
        lines = self._notes.read_bytes().split(b"\n")[:-1]  # the last one may not be whole yet
        return [json.loads(line) for line in lines]

    def missing(self) -> str:
        """What nobody got, or acknowledged."""
        got = {tuple(line["key"]) for line in self._read() if "got" in line}
        lost = sorted(self._index.keys() - got)
        return f"{self.name}: of {self.size}, {lost} did not come; acknowledged {self._acknowledged()}"


# -- the stories --------------------------------------------------------------------------------------------------


def play(node: Node, seeds: range, breaker: Breaker) -> list[str]:
    """Some stories at a time, and what must hold of each; returns a line about each."""
    after = tails(node)
    with node.client("administrator") as admin:
        since = admin.change([], note=f"seeds {seeds[0]} to {seeds[-1]}")
    hangs = any(one.what == "stop" and one.parts[0] in GATEWAYS for seed in seeds for one in faults(seed))
    stories = [Story(node, seed, breaker, since, hangs) for seed in seeds]
    for story in stories:
        story.subscribe("ada")
        story.subscribe("cy")
    with ThreadPoolExecutor(TOGETHER * 8) as pool:
        suffering = [pool.submit(story.suffer) for story in stories]
        working: list[Future[None]] = []
        reading: list[Future[None]] = []
        for story in stories:
            working += [pool.submit(story.publish_singly), pool.submit(story.publish_in_batches)]
            working += [pool.submit(story.administer)]
            reading += [pool.submit(story.read, reader) for reader in ("ada", "cy")]
        try:
            for story in stories:
                story.subscribe("ben")
                reading.append(pool.submit(story.read, "ben"))
            finished(suffering, working, reading)
            for story in stories:
                story.enough.set()
            finished(working, reading)
            lines = look(node, stories, after, reading)
        finally:
            for story in stories:
                story.enough.set()
                story.finish.touch()
        finished(reading)
    for story in stories:
        story.unsubscribe()
    return lines


def finished(wanted: list[Future[None]], *beside: list[Future[None]]) -> None:
    """Wait for some, unless any of them or of those beside them fails."""
    end = time.monotonic() + SECONDS
    left = set(wanted)
    while left:
        others = {one for some in beside for one in some}
        done, _ = wait(left | others, timeout=1, return_when=FIRST_EXCEPTION)
        for one in done:
            one.result()
        left -= done
        assert time.monotonic() < end, f"{len(left)} have not finished after {SECONDS:.0f} s"


def look(node: Node, stories: list[Story], after: Mapping[str, int], reading: list[Future[None]]) -> list[str]:
    """Wait until all is decided and read, and check it."""
    with record(node, after) as found, closing(Cursors(node.files.data / Cursors.FILE)) as cursors:
        node.wait(found.is_decided, "everything to be decided", SECONDS)
        for story in stories:
            check_published(story, found)
        check_versions(stories, found)
        readings = {f"{s.seed} {reader}": Reading(s, reader, found, cursors) for s in stories for reader in READERS}
        left = dict(readings)
        end = time.monotonic() + SECONDS
        while left:
            left = {name: one for name, one in left.items() if not one.check()}
            failed = [one for one in reading if one.done() and one.exception() is not None]
            if failed or time.monotonic() > end:
                for one in failed:
                    one.result()
                raise AssertionError("; ".join(one.missing() for one in left.values()))
            time.sleep(0.2)
    return [
        f"seed {story.seed}: {Counter(story.answers.values())}, {len(story.versions)} changes, "
        + ", ".join(
            f"{reader} {one.size} in {one.lives} lives ({one.again} again)"
            for reader in READERS
            for one in [readings[f"{story.seed} {reader}"]]
        )
        for story in stories
    ]


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """What the environment of every process of the node says."""
    made = uuid.uuid4().hex
    monkeypatch.setenv(MARK, made)
    return made


@pytest.mark.parametrize("first_seed", range(FIRST, FIRST + SEEDS, SEEDS_A_NODE))
def test_a_node_that_is_killed_and_stopped_loses_repeats_and_invents_nothing(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch, first_seed: int
) -> None:
    with running(tmp_path / "domain", policy, node__restart_pause="1s") as node:
        monkeypatch.delenv(MARK)
        breaker = Breaker(node)
        assert marked(mark), "the processes of the node can be told by their mark"
        last_seed = min(first_seed + SEEDS_A_NODE, FIRST + SEEDS)
        for seed in range(first_seed, last_seed, TOGETHER):
            seeds = range(seed, min(seed + TOGETHER, last_seed))
            try:
                lines = play(node, seeds, breaker)
            except BaseException:
                print(f"HEADGATE_FIRST_SEED={seed} HEADGATE_SEEDS={len(seeds)}", *breaker.done, node.said(), sep="\n")
                raise
            print(*breaker.done, *lines, sep="\n")
            breaker.done.clear()
        node.wait(lambda: node.pids().keys() == {"gateway-1", "gateway-2", "pipeline"}, "every process")
        doctor = run("doctor", node.directory, check=False)
        assert doctor.returncode == 0, doctor.stdout
        assert node.stop() == 0
        assert marked(mark) == [], "processes of the node are left"
    verified = run("verify", "--domain", node.files.data, check=False, timeout=SECONDS)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "all as delivered" in verified.stdout
