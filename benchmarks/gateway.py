"""Publishing through a real gateway process, durably, beside the raw log.

The gateway gets batches of 1,000 events over HTTPS, several requests at a time, as one gateway process serves many
publishers. The raw log is one process that encodes the very same events to the log's blob, hashes their keys, appends
and syncs them one batch after another: what every gateway must do in the end, with no HTTP, TLS, session, type check or
rights before it. Both write to the same disk, in turn, in one run.
"""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import console, report, report_ratio, seconds
from benchmarks.node import PUBLISHER, READY_SECONDS, SOURCE, TYPE, Node, as_arrow, as_cloudevents, made, policy, table
from benchmarks.workload import World
from headgate.pipeline.admission.admission import Admission
from headgate.pipeline.admission.columns import from_arrow
from headgate.pipeline.log.appends import Append, hash_keys
from headgate.pipeline.log.codec import to_blob
from headgate.pipeline.log.event_log import EventLog
from headgate.protocol import messages as wire
from headgate.trust.keys import PrivateKey

SIZE = 1_000
"""Events of one request."""
BATCHES = 150
"""Requests of one round."""
ROUNDS = 7
WARM_UP = 2
CONNECTIONS = 8
"""Requests under way at a time."""
FEWER = 4
"""The same with fewer, stated: while all of them wait for one write, the gateway has nothing else to do."""
WINDOW = 600_000_000


class Raw:
    """The log alone."""

    def __init__(self, path: Path, version: int) -> None:
        self._log = EventLog.create(path)
        self._version = version
        self._token = self._log.take("raw", version)

    def append(self, batches: Sequence[pa.Table]) -> None:
        for one in batches:
            blob = to_blob(one)
            keys = hash_keys(PUBLISHER, SOURCE, one.column("id").to_pylist())
            now = int(datetime.now(UTC).timestamp() * 1e6)
            append = Append(self._version, now, len(keys), blob, keys=keys, window=WINDOW)
            self._log.append_many("raw", self._token, [append])


class Line:
    """One connection of a publisher: just enough of HTTP/1.1 to send a body and read the answer.

    Publishers share the cores with the gateway that is measured, so they should cost little themselves.
    """

    def __init__(self, node: Node, gateway: int) -> None:
        plain = socket.create_connection(("127.0.0.1", node.port + gateway), READY_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = node.tls().wrap_socket(plain, server_hostname="127.0.0.1")

    def post(self, request: bytes) -> dict[str, Any]:
        """Send a whole request; returns the answer."""
        self._tls.sendall(request)
        held, end = b"", -1
        while (end := held.find(b"\r\n\r\n")) < 0:
            held += self._more()
        head, body = held[:end].lower(), held[end + 4 :]
        length = int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._more()
        if not head.startswith(b"http/1.1 200 "):
            raise RuntimeError(f"publishing was refused: {body!r}")
        told: dict[str, Any] = json.loads(body)
        return told

    def _more(self) -> bytes:
        some = self._tls.recv(65_536)
        if not some:
            raise RuntimeError("the gateway closed the connection")
        return some


@dataclass
class Publishers:
    """Publishers on connections of their own, which stay open."""

    node: Node
    gateways: int = 1
    count: int = CONNECTIONS

    def __post_init__(self) -> None:
        self.token = self.node.token(PUBLISHER)
        self.lines = [Line(self.node, number % self.gateways) for number in range(self.count)]

    def request(self, body: bytes, content_type: str) -> bytes:
        """A body as the request that publishes it."""
        head = (
            f"POST /v1/events?type={TYPE} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {self.token}\r\n"
            f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def send(self, requests: Sequence[bytes]) -> None:
        """Send every request, each by whoever is free; raises unless every event was accepted."""
        waiting = iter(requests)
        lock = threading.Lock()
        failed: list[BaseException] = []

        def work(line: Line) -> None:
            try:
                while True:
                    with lock:
                        request = next(waiting, None)
                    if request is None:
                        return
                    _all_accepted(line.post(request))
            except BaseException as error:  # noqa: BLE001 - it is raised below
                failed.append(error)

        threads = [threading.Thread(target=work, args=(line,)) for line in self.lines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]


class Supply:
    """Events that were never sent before, in each form."""

    def __init__(self, world: World, admission: Admission) -> None:
        self._values = world.values
        self._admission = admission
        self._next = 0
        self._rng = np.random.default_rng(3)

    def tables(self, count: int) -> Iterator[pa.Table]:
        for _ in range(count):
            yield table(self._next, SIZE, self._values, self._rng)
            self._next += SIZE

    def stored(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """The same events with the columns that the log has."""
        kinds = self._admission.attributes(TYPE)
        now = datetime.now(UTC)
        return [self._admission.admit(from_arrow(one, TYPE, PUBLISHER, kinds), now).table for one in tables]


def run() -> None:
    """Publish through one gateway and through two, in Arrow and in JSON."""
    console.print(f"[bold]gateway publish[/]: batches of {SIZE:,} over {CONNECTIONS} connections, beside the raw log")
    world, key = World(0), PrivateKey.generate()
    with (
        tempfile.TemporaryDirectory() as name,
        made(Path(name) / "node", policy(world, 0, key), 2, key) as node,
    ):
        with_domain = _admission(node)
        supply = Supply(world, with_domain)
        node.start_gateways()
        raw = Raw(Path(name) / "raw.db", with_domain.state.version)
        one, two, fewer = Publishers(node), Publishers(node, 2), Publishers(node, count=FEWER)
        rates: dict[str, list[float]] = {}
        for turn in range(WARM_UP + ROUNDS):
            for what, rate in _round(supply, raw, one, two, fewer).items():
                if turn >= WARM_UP:
                    rates.setdefault(what, []).append(rate)
    for what in ("raw log", "Arrow", "JSON", "Arrow, four connections", "Arrow, two gateways"):
        report(
            f"durable publish, {what}, events/s", sorted(rates[what])[ROUNDS // 2], None, "higher", _half(rates[what])
        )
    report_ratio("gateway publish, Arrow, over raw log append", rates["Arrow"], rates["raw log"], 0.5, "higher")
    report_ratio("gateway publish, JSON, over raw log append", rates["JSON"], rates["raw log"], None, "higher")
    report_ratio(
        "gateway publish, Arrow over four connections, over raw log append",
        rates["Arrow, four connections"],
        rates["raw log"],
        None,
        "higher",
    )
    report_ratio(
        "gateway publish, Arrow by two gateways, over raw log append",
        rates["Arrow, two gateways"],
        rates["raw log"],
        None,
        "higher",
    )


def _round(supply: Supply, raw: Raw, one: Publishers, two: Publishers, fewer: Publishers) -> dict[str, float]:
    """Events a second by each way, one after the other."""
    events = BATCHES * SIZE
    few = max(1, BATCHES // 5)
    plain = supply.stored(list(supply.tables(BATCHES)))
    arrow = [one.request(as_arrow(t), wire.ARROW) for t in supply.tables(BATCHES)]
    other = [two.request(as_arrow(t), wire.ARROW) for t in supply.tables(BATCHES)]
    third = [fewer.request(as_arrow(t), wire.ARROW) for t in supply.tables(BATCHES)]
    texts = [one.request(json.dumps(as_cloudevents(t)).encode(), wire.BATCH_JSON) for t in supply.tables(few)]
    return {
        "raw log": events / seconds(lambda: raw.append(plain)),
        "Arrow": events / seconds(lambda: one.send(arrow)),
        "JSON": few * SIZE / seconds(lambda: one.send(texts)),
        "Arrow, four connections": events / seconds(lambda: fewer.send(third)),
        "Arrow, two gateways": events / seconds(lambda: two.send(other)),
    }


def _admission(node: Node) -> Admission:
    from headgate.node.domain import Domain

    with Domain.open(node.files.data) as domain:
        return Admission(domain.ledger.state(), {})


def _all_accepted(told: dict[str, Any]) -> None:
    if told.get("accepted", SIZE) != SIZE or any(one["status"] != "accepted" for one in told["results"]):
        raise RuntimeError(f"not every event was accepted: {told}")


def _half(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / 2
