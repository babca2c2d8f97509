"""From publish to received, through a real node, beside the time that the pipeline takes for its own micro-batches.

A publisher and a subscriber, each a process with the Python client, share this machine's clock. What is measured is the
time from just before `publish` to the delivery in the subscriber's hand. An event arrives while a micro-batch is under
way, waits for its end and takes part in the next; so something near one and a half batches is what is to be expected.

The pipeline's batch time is the time from one micro-batch to the next while there is always something to do: reading
offsets, planning, deciding, writing deliveries and committing. The delivery store records a part of it, reading the
log, deciding and masking; what the latencies are over that is stated too.

Then the same for the signals of a detection, `$T(...)`, which are certain as soon as their event is stored, over the
batch time of the detection query; that of the deliveries, which runs beside it, is stated too.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.measure import console, report
from benchmarks.node import PUBLISHER, TYPE, Node, made, policy, subscribing, table
from benchmarks.workload import ATTRIBUTES, World
from headgate.client import aio
from headgate.client.subscription import Delivery
from headgate.model.changes import AddRule, DeclarePrincipal, SetKey
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.values import EPOCH
from headgate.pipeline.deliveries import BatchStats, DeliveryStore
from headgate.trust.keys import PrivateKey

SUBSCRIPTIONS = 10_000
PRINCIPALS = 1_000
RATES = {1_000: 20, 10: 10}
"""Events a second, and in how many requests; one event in a request goes by `publish`, more by `publish_arrow`."""
WARM_UP, MEASURED = 20.0, 40.0
ROUNDS = 3
"""The measured time is cut in so many parts, for the spread."""
SIGNALLED = 10
"""Events a second, each in a request, of which each makes a signal."""
SUBSCRIBER = "subscriber"
WAIT_SECONDS = 120.0


@dataclass(frozen=True)
class Where:
    """What a client needs to know."""

    url: str
    certificate: Path
    key: Path
    broker: str
    rate: int
    requests: int
    first: int
    values: int
    detects: bool = False

    def client(self) -> aio.Client:
        return aio.connect(self.url, self.key, broker=self.broker, certificate=self.certificate)


def publisher(where: Where, go: Any, told: Any) -> None:
    """Publish at a steady rate; tells when each event was about to be published."""
    told.put(uvloop.run(_publish(where, go, told)))


async def _publish(where: Where, go: Any, told: Any) -> dict[str, float]:
    size = where.rate // where.requests
    count = int((WARM_UP + MEASURED) * where.requests)
    rng = np.random.default_rng(where.rate)
    tables = [table(where.first + n * size, size, where.values, rng) for n in range(count)]
    rows = [one.drop_columns(["id", "source"]).to_pylist() for one in tables] if size == 1 else []
    sent: dict[str, float] = {}
    waiting: set[asyncio.Task[Any]] = set()
    async with where.client() as client:
        told.put("ready")
        await asyncio.to_thread(go.wait, WAIT_SECONDS)
        begin = time.time()
        for number, events in enumerate(tables):
            await asyncio.sleep(max(0.0, begin + number / where.requests - time.time()))
            now = time.time()
            sent.update(dict.fromkeys(events.column("id").to_pylist(), now))
            if size == 1:
                work: Any = client.publish(TYPE, rows[number][0], id=events.column("id")[0].as_py())
            else:
                work = client.publish_arrow(TYPE, events)
            task = asyncio.create_task(work)
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)
    return sent


def subscriber(where: Where, count: int, told: Any) -> None:
    """Read as many deliveries as there will be; tells when each was in hand."""
    told.put(uvloop.run(_receive(where, count, told)))


async def _receive(where: Where, count: int, told: Any) -> dict[str, float]:
    got: dict[str, float] = {}
    id = f"{'signals' if where.detects else 'all'}-{where.rate}"
    async with (
        where.client() as client,
        await (client.detect(EACH, id=id) if where.detects else client.subscribe(id, TYPE)) as subscription,
    ):
        told.put("ready")
        while len(got) < count:
            found = await subscription.take(1_000, WAIT_SECONDS)
            now = time.time()
            if not found:
                raise RuntimeError(f"{len(got)} of {count} deliveries came")
            got.update((_event(one) if where.detects else one.id, now) for one in found)
    return got


EACH = f"${TYPE}({', '.join('when' if name == 'at' else '*' for name in ATTRIBUTES)})"


def _event(signal: Delivery) -> str:
    """The id of the event that a signal rests on: its number, which is the millisecond that it speaks of."""
    at = datetime.fromisoformat(signal.data["when"])
    return str((at - EPOCH) // timedelta(milliseconds=1))


def run() -> None:
    """Both rates on one node."""
    world, key = World(SUBSCRIPTIONS), PrivateKey.generate()
    with (
        tempfile.TemporaryDirectory() as place,
        made(Path(place) / "node", policy(world, PRINCIPALS, key), 1, key) as node,
    ):
        node.commit(subscribing(world, PRINCIPALS))
        node.commit(
            [
                DeclarePrincipal(SUBSCRIBER),
                SetKey(SUBSCRIBER, node.key(SUBSCRIBER).public.did),
                AddRule(Rule("all", SUBSCRIBER, frozenset({Action.SUBSCRIBE}), TYPE, author=ADMINISTRATOR)),
            ]
        )
        for name in (PUBLISHER, SUBSCRIBER):
            node.key(name).save(node.files.keys / f"{name}.pem")
        node.start()
        first, shortest = 0, float("inf")
        for rate, requests in RATES.items():
            console.print(f"[bold]publish to received[/]: {rate:,} events/s in {requests} requests a second")
            shortest = _measure(node, rate, requests, first, world.values, shortest)
            first += int(rate * (WARM_UP + MEASURED)) + 1
        console.print(f"[bold]certain to received[/]: {SIGNALLED} signals/s")
        _measure(node, SIGNALLED, SIGNALLED, first, world.values, detects=True)


def _measure(
    node: Node, rate: int, requests: int, first: int, values: int, shortest: float = math.inf, *, detects: bool = False
) -> float:
    """Publish and receive at a rate; returns the time from batch to batch, or that of a busier run if shorter."""
    context = multiprocessing.get_context("spawn")
    sending, getting, go = context.Queue(), context.Queue(), context.Event()
    broker = PrivateKey.load(node.files.broker_key).public.did

    def where(name: str) -> Where:
        url, key = f"https://127.0.0.1:{node.port}", node.files.keys / f"{name}.pem"
        return Where(url, node.files.tls_certificate, key, broker, rate, requests, first, values, detects)

    count = int((WARM_UP + MEASURED) * requests) * (rate // requests)
    processes = [
        context.Process(target=publisher, args=(where(PUBLISHER), go, sending), daemon=True),
        context.Process(target=subscriber, args=(where(SUBSCRIBER), count, getting), daemon=True),
    ]
    for process in processes:
        process.start()
    for queue in (sending, getting):
        assert queue.get(timeout=WAIT_SECONDS) == "ready"
    begin = time.time() + WARM_UP
    go.set()
    sent = sending.get(timeout=WARM_UP + MEASURED + WAIT_SECONDS)
    got = getting.get(timeout=WAIT_SECONDS)
    for process in processes:
        process.join(WAIT_SECONDS)
    found = {id: (at, got[id] - at) for id, at in sent.items() if at >= begin}
    if not detects:
        return _report(f"publish to received at {rate:,} events/s", begin, found, _stats(node, begin), shortest)
    beside = _between(_stats(node, begin))
    what = f"certain to received at {rate:,} signals/s"
    batch = _report(what, begin, found, _stats(node, begin, "signals.db"), shortest)
    report(f"{what}: a batch of deliveries beside it, ms", beside, None, "lower")
    return batch


def _stats(node: Node, begin: float, file: str = "deliveries.db") -> list[BatchStats]:
    """The micro-batches since then in which something came."""
    store = DeliveryStore.open(node.files.data / file, read_only=True)
    stats = [one for one in store.stats() if one.at >= begin * 1e6 and (one.events or one.deliveries)]
    store.close()
    return stats


def _between(stats: list[BatchStats]) -> float:
    """Milliseconds from one micro-batch to the next."""
    return float(np.median(np.diff([one.at for one in stats]))) / 1000


def _report(
    what: str, begin: float, found: dict[str, tuple[float, float]], stats: list[BatchStats], shortest: float
) -> float:
    """The latencies over the batch time, with the spread over the parts of the measured time."""
    deciding = statistics.median(one.milliseconds for one in stats)
    # Where few events come there may be pauses, which are no part of a batch.
    batch = min(shortest, _between(stats))
    parts: list[list[float]] = [[] for _ in range(ROUNDS)]
    for at, waited in found.values():
        parts[min(int((at - begin) / MEASURED * ROUNDS), ROUNDS - 1)].append(waited * 1000)
    every = np.array([one for part in parts for one in part])
    report(f"{what}: the pipeline's batch time, ms", batch, None, "lower")
    report(f"{what}: the part of it that is recorded, ms", deciding, None, "lower")
    for share, label, mark in ((50, "median", 2.0), (95, "95th percentile", 3.0)):
        value = float(np.percentile(every, share))
        each = [float(np.percentile(part, share)) for part in parts if part]
        spread = (max(each) - min(each)) / 2
        report(f"{what}, {label}, ms", value, None, "lower", spread)
        report(f"{what}, {label}, over the pipeline's batch time", value / batch, mark, "lower", spread / batch)
        report(f"{what}, {label}, over the part that is recorded", value / deciding, None, "lower", spread / deciding)
    return batch
