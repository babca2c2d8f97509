"""Gryphon's own load through a real node: 2,000 events/s in, 20,000 deliveries/s out to 10,000 subscriptions.

A WebSocket belongs to one principal, so the load is taken in two ways, each with 500 WebSockets that stay open:

* *10,000 principals* with one subscription each. All 20,000 deliveries a second are decided, masked and stored for
  their durable subscriptions; those of the 500 principals who are connected are pushed to them and acknowledged. After
  the load others connect, and must find exactly what waits for them.
* *All pushed*: 500 principals with 20 subscriptions each, so that every delivery leaves over a WebSocket.

A load holds if the publishers keep pace and neither the events that are not decided yet nor the deliveries that are
decided and not received grow: the slope of a straight line through either, over the whole time, is below `TOLERANCE` of
the rate. Publishers, readers and node are processes of their own and share the machine's cores.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load import Plan, catch_up, publisher, readers
from benchmarks.measure import console, report
from benchmarks.node import PUBLISHER, Node, made, policy, reader, subscribing
from benchmarks.workload import World
from headgate.model.changes import SetKey
from headgate.pipeline.deliveries import DeliveryStore
from headgate.pipeline.log.codec import from_blob
from headgate.pipeline.log.event_log import EventLog
from headgate.trust.keys import PrivateKey

RATE = 2_000
SUBSCRIPTIONS = 10_000
CONNECTIONS = 500
GATEWAYS = 2
WARM_UP, MEASURED = 20.0, 60.0
MULTIPLES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
SAMPLE_SECONDS = 0.5
TOLERANCE = 0.02
DRAIN_SECONDS = 300.0
CATCHING_UP = 200
"""Principals who connect after the load."""


@dataclass
class Samples:
    """What was seen, again and again: when, how far the log and the decisions were, and how much was received."""

    times: list[float] = field(default_factory=list)
    undecided: list[int] = field(default_factory=list)
    reached: list[Mapping[str, int]] = field(default_factory=list)
    received: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """What became of a load. Rates and slopes are a second; lags are the medians."""

    multiple: float
    published: float
    stored: float
    pushed: float
    undecided: float
    undecided_slope: float
    undelivered: float
    undelivered_slope: float

    @property
    def held(self) -> bool:
        wanted = self.multiple * RATE
        return (
            self.published >= wanted * (1 - TOLERANCE)
            and self.undecided_slope <= wanted * TOLERANCE
            and self.undelivered_slope <= self.stored * TOLERANCE
        )


@contextmanager
def served(principals: int) -> Iterator[Node]:
    """A node with the subscriptions dealt out to so many principals."""
    world, key = World(SUBSCRIPTIONS), PrivateKey.generate()
    with (
        tempfile.TemporaryDirectory() as name,
        made(Path(name) / "node", policy(world, principals, key), GATEWAYS, key) as node,
    ):
        node.commit(SetKey(reader(n), node.key(reader(n)).public.did) for n in range(principals))
        node.commit(subscribing(world, principals))
        node.start()
        yield node


def load(node: Node, principals: int, multiple: float, first: int) -> Outcome:
    """Put a multiple of the load on a node; `first` is the id of the first event."""
    context = multiprocessing.get_context("spawn")
    received, published = context.Value("q", 0), context.Value("q", 0)
    go, over = context.Event(), context.Event()
    ready = context.Queue()
    each = SUBSCRIPTIONS // principals
    plan = Plan(
        node.directory,
        node.port,
        GATEWAYS,
        node.token(PUBLISHER),
        [(node.token(reader(n)), each) for n in range(CONNECTIONS)],
        int(RATE * multiple),
        WARM_UP + MEASURED,
        first,
        World(SUBSCRIPTIONS).values,
    )
    processes = [
        context.Process(target=publisher, args=(plan, go, ready, published), daemon=True),
        context.Process(target=readers, args=(plan, over, ready, received), daemon=True),
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.get(timeout=DRAIN_SECONDS)
    begin, already = time.monotonic(), _reached(node)
    go.set()
    time.sleep(WARM_UP)
    before = published.value, time.monotonic()
    samples = _watch(node, received, begin + WARM_UP + MEASURED)
    rate = (published.value - before[0]) / (time.monotonic() - before[1])
    _drain(node)
    over.set()
    for process in processes:
        process.join(DRAIN_SECONDS)
        process.kill()
    return _judge(node, samples, already, multiple, rate, principals)


def _watch(node: Node, received: Any, end: float) -> Samples:
    """Look at the log, the decisions and the readers until the end."""
    seen = Samples()
    log = EventLog.open(node.files.data / "log.db", read_only=True)
    store = DeliveryStore.open(node.files.data / "deliveries.db", read_only=True)
    while time.monotonic() < end:
        tails = sum(tail.last for tail in log.tails().values())
        reached = store.reached().streams
        seen.times.append(time.monotonic())
        seen.undecided.append(tails - sum(reached.values()))
        seen.reached.append(reached)
        seen.received.append(received.value)
        time.sleep(SAMPLE_SECONDS)
    log.close()
    store.close()
    return seen


def _reached(node: Node) -> Mapping[str, int]:
    store = DeliveryStore.open(node.files.data / "deliveries.db", read_only=True)
    try:
        return store.reached().streams
    finally:
        store.close()


def _drain(node: Node) -> None:
    """Wait until everything is decided, not for ever: what does not hold may lag far behind."""
    log = EventLog.open(node.files.data / "log.db", read_only=True)
    store = DeliveryStore.open(node.files.data / "deliveries.db", read_only=True)
    end = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < end:
        reached = store.reached().streams
        if all(reached.get(stream, 0) >= tail.last for stream, tail in log.tails().items()):
            break
        time.sleep(SAMPLE_SECONDS)
    time.sleep(2)  # for what is on its way to readers
    log.close()
    store.close()


def _judge(
    node: Node, samples: Samples, already: Mapping[str, int], multiple: float, published: float, principals: int
) -> Outcome:
    """The lags over time. How many deliveries those who are connected should have got is counted in the store."""
    mine = _expected(node, CONNECTIONS if principals > CONNECTIONS else SUBSCRIPTIONS)
    every = _expected(node, SUBSCRIPTIONS)
    times = np.array(samples.times)
    wanted = np.array([_through(mine, one) for one in samples.reached])
    stored = np.array([_through(every, one) for one in samples.reached])
    got = np.array(samples.received)
    undelivered = wanted - _through(mine, already) - got  # the store holds earlier loads too
    undecided = np.array(samples.undecided)
    lasted = times[-1] - times[0]
    return Outcome(
        multiple,
        published,
        float(stored[-1] - stored[0]) / lasted,
        float(got[-1] - got[0]) / lasted,
        float(np.median(undecided)),
        _slope(times, undecided),
        float(np.median(undelivered)),
        _slope(times, undelivered),
    )


def _expected(node: Node, below: int) -> dict[str, tuple[Any, Any]]:
    """Of each stream the last events of its appends, and how many deliveries the subscriptions below a number had."""
    ends: dict[str, list[int]] = {}
    counts: dict[str, list[int]] = {}
    store = DeliveryStore.open(node.files.data / "deliveries.db", read_only=True)
    for blob in store.blobs():
        found = blob.count
        if below < SUBSCRIPTIONS and blob.blob is not None:
            owners = from_blob(blob.blob).column("subscriptions").combine_chunks().flatten()
            found = int((owners.to_numpy(zero_copy_only=False) < below).sum())
        ends.setdefault(blob.stream, []).append(blob.last)
        counts.setdefault(blob.stream, []).append(found)
    store.close()
    return {stream: (np.array(ends[stream]), np.cumsum(counts[stream])) for stream in ends}


def _waiting(node: Node) -> dict[int, int]:
    """How many deliveries wait for each of some principals who were not connected."""
    found = np.zeros(CATCHING_UP, np.int64)
    store = DeliveryStore.open(node.files.data / "deliveries.db", read_only=True)
    for blob in store.blobs():
        if blob.blob is not None:
            owners = from_blob(blob.blob).column("subscriptions").combine_chunks().flatten()
            mine = owners.to_numpy(zero_copy_only=False) - CONNECTIONS
            found += np.bincount(mine[(mine >= 0) & (mine < CATCHING_UP)], minlength=CATCHING_UP)
    store.close()
    return {CONNECTIONS + number: count for number, count in enumerate(found.tolist())}


def _through(expected: Mapping[str, tuple[Any, Any]], reached: Mapping[str, int]) -> int:
    total = 0
    for stream, (ends, counts) in expected.items():
        at = int(np.searchsorted(ends, reached.get(stream, 0), "right"))
        total += int(counts[at - 1]) if at else 0
    return total


def _slope(times: Any, values: Any) -> float:
    return float(np.polyfit(times - times[0], values, 1)[0])


def run() -> None:
    """Both ways of the load, each up to the highest multiple that holds."""
    for way, principals in (("10,000 principals", SUBSCRIPTIONS), ("all pushed", CONNECTIONS)):
        console.print(
            f"[bold]Gryphon's load, {way}[/]: {RATE:,} events/s to {SUBSCRIPTIONS:,} subscriptions of "
            f"{principals:,} principals, {CONNECTIONS:,} WebSockets, {MEASURED:.0f} s"
        )
        with served(principals) as node:
            best = _climb(node, principals, way)
            if principals > CONNECTIONS:
                rates = catch_up(node, _waiting(node), GATEWAYS)
                middle, spread = statistics.median(rates), (max(rates) - min(rates)) / 2
                report("deliveries that principals who were away catch up on, a second", middle, None, "higher", spread)
        report(f"highest multiple of Gryphon's load that holds, {way}", best, 1.0, "higher")


def _climb(node: Node, principals: int, way: str) -> float:
    best, first = 0.0, 0
    for multiple in MULTIPLES:
        found = load(node, principals, multiple, first)
        first += int(RATE * multiple * (WARM_UP + MEASURED)) + 1
        console.print(f"    {found} held={found.held}", highlight=False)
        if multiple == 1.0:
            report(f"Gryphon's load, {way}: deliveries stored, a second", found.stored, None, "higher")
            report(f"Gryphon's load, {way}: deliveries pushed, a second", found.pushed, None, "higher")
            report(f"Gryphon's load, {way}: undecided events, median", found.undecided, None, "lower")
            report(f"Gryphon's load, {way}: undecided events, growth a second", found.undecided_slope, None, "lower")
            report(f"Gryphon's load, {way}: undelivered, growth a second", found.undelivered_slope, None, "lower")
        if not found.held:
            break
        best = multiple
    return best
