"""A node whose parts are away for a while: the others serve, everybody is told why, and it recovers by itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.node import Node, run
from headgate.client import Delivery
from headgate.model.errors import BadEnvironment
from headgate.node.processes import listen
from node.world import WAIT, got, settled

pytestmark = pytest.mark.spark
KILLS = 10


def health(node: Node, gateway: int) -> dict[str, Any]:
    """What a gateway says of the node, as anybody is told it."""
    reply = httpx.get(f"{node.urls[gateway]}/health", verify=False, timeout=WAIT)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def figures(node: Node, gateway: int) -> dict[str, float]:
    """The figures of a gateway, by name and labels."""
    bearer = {"Authorization": f"Bearer {node.files.metrics_token.read_text().strip()}"}
    text = httpx.get(f"{node.urls[gateway]}/metrics", headers=bearer, verify=False, timeout=WAIT).text
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def doctor(node: Node) -> dict[str, dict[str, str]]:
    """The checks of `headgate doctor`, by name."""
    return {one["name"]: one for one in json.loads(run("doctor", node.directory, "--json", check=False).stdout)}


def is_well(node: Node) -> bool:
    return all(health(node, n) == {"status": "ok", "reasons": []} for n in range(node.gateways))


def degraded(node: Node, part: str, since: int) -> list[str]:
    """Why a part was away, by the node's own log."""
    lines = [json.loads(line) for line in (node.directory / "logs" / "node.log").read_bytes()[since:].splitlines()]
    return [line["reason"] for line in lines if line["event"] == "degraded" and line["part"] == part]


def logged(node: Node) -> int:
    return (node.directory / "logs" / "node.log").stat().st_size


class Work:
    """A publisher at each gateway, which never stops, and a reader that is connected all the time."""

    def __init__(self, node: Node, tag: str) -> None:
        self.node = node
        self.tag = tag
        self.sent: list[str] = []
        self.deliveries: list[Delivery] = []
        self._stop = threading.Event()
        self._read = threading.Event()
        self._threads = ThreadPoolExecutor(node.gateways + 1)
        self._working: list[Future[None]] = []

    def publish(self, gateway: int) -> None:
        with self.node.client("till", [gateway]) as till:
            while not self._stop.wait(0.02):
                item = f"{self.tag} {gateway} {len(self.sent)}"
                id = f"{self.tag}-{gateway}-{len(self.sent)}"
                assert till.publish("shop.Sale", {"item": item, "amount": 1.0}, id=id).status == "accepted"
                self.sent.append(id)

    def read(self) -> None:
        with self.node.client("ann", [0]) as ann, ann.resume(self.tag) as subscription:
            while not self._read.is_set():
                if (one := subscription.next(timeout=0.2)) is not None:
                    self.deliveries.append(one)

    def more(self) -> list[str]:
        """Some more that is published from now on, at each gateway."""
        before = len(self.sent)

        def each() -> bool:
            self.check()
            new = self.sent[before:]
            return all(sum(f"{self.tag}-{n}-" in id for id in new) >= 3 for n in range(self.node.gateways))

        self.node.wait(each, "events to be accepted at each gateway", WAIT)
        return self.sent[before:]

    def check(self) -> None:
        """Nobody has failed so far."""
        for one in self._working:
            if one.done():
                one.result()

    def __enter__(self) -> Work:
        with self.node.client("ann") as ann:
            ann.subscribe(self.tag, "shop.Sale", f"item starts with '{self.tag}'").close()
        self._working = [self._threads.submit(self.publish, n) for n in range(self.node.gateways)]
        self._working.append(self._threads.submit(self.read))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._read.set()
        self._threads.shutdown()

    def finish(self) -> None:
        """Publish no more, and wait until everything has come: each once, in order, as `decide` says."""
        self._stop.set()
        for one in self._working[:-1]:
            one.result(WAIT)
        self.node.wait(lambda: self.check() or len(self.deliveries) >= len(self.sent), "every delivery", WAIT)
        record = settled(self.node)
        assert record.check("ann", self.tag, [got(one) for one in self.deliveries]) == len(self.sent)
        assert {one.id for one in self.deliveries} == set(self.sent)


def port_of_another(node: Node, port: int) -> socket.socket:
    """A socket that another program listens with, as soon as nobody else does."""
    taken: list[socket.socket] = []

    def is_taken() -> bool:
        with suppress(BadEnvironment):
            taken.append(listen("127.0.0.1", port))
        return bool(taken)

    node.wait(is_taken, f"port {port}", WAIT)
    taken[0].listen()
    return taken[0]


@contextmanager
def hung_while_it_starts(node: Node, last: int) -> Iterator[None]:
    """The pipeline that is started after the last one hangs before it is ready, until the block ends."""
    while True:
        pid = killable(node, last)
        os.kill(pid, signal.SIGSTOP)
        try:
            if figures(node, 0)["headgate_process_ready[pipeline]"] == 0:
                yield
                return
        finally:
            os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGKILL)  # it was quicker
        last = pid


def killable(node: Node, last: int) -> int:
    """The process of the pipeline that follows the last one, as soon as there is one."""
    node.wait(lambda: node.pids().get("pipeline", last) != last, "a new pipeline", WAIT)
    return node.pids()["pipeline"]


def test_a_pipeline_that_is_killed_again_and_again_stops_no_gateway_and_loses_nothing(node: Node) -> None:
    node.wait(lambda: is_well(node), "the node to be well", WAIT)
    since, before = logged(node), figures(node, 0)["headgate_process_restarts_total[pipeline]"]
    gateways = {name: pid for name, pid in node.pids().items() if name != "pipeline"}
    with Work(node, f"never-{uuid.uuid4()}") as work:
        work.more()
        last = 0
        for _ in range(KILLS):
            last = killable(node, last)
            os.kill(last, signal.SIGKILL)
        with hung_while_it_starts(node, last):
            reason = "pipeline is away and will be started again: it was ended by SIGKILL"
            for n in range(node.gateways):
                said = health(node, n)
                assert said["status"] == "degraded"
                assert reason in said["reasons"]
                told = figures(node, n)
                assert told["headgate_health[degraded]"] == 1
                assert told["headgate_process_ready[pipeline]"] == 0
                assert told["headgate_process_ready[gateway-2]"] == 1
                assert told["headgate_process_restarts_total[pipeline]"] >= KILLS + (before if n == 0 else 0)
            check = doctor(node)["process pipeline"]
            assert check["finding"] == "warn"
            assert "the last because it was ended by SIGKILL" in check["found"]
            assert "logs/pipeline.log" in check["remedy"]
            ids = set(work.more())
            assert not ids & {one.id for one in work.deliveries}, "nobody decides"
        node.wait(lambda: is_well(node), "the node to be well again by itself", WAIT)
        work.finish()
    reasons = degraded(node, "pipeline", since)
    assert reasons == ["it was ended by SIGKILL"] * len(reasons)
    assert len(reasons) >= KILLS
    assert figures(node, 0)["headgate_process_ready[pipeline]"] == 1
    assert {name: pid for name, pid in node.pids().items() if name != "pipeline"} == gateways, "they ran on"
    check = doctor(node)["process pipeline"]
    assert check["finding"] == "ok"
    assert "started again" in check["found"]


def test_a_gateway_whose_port_was_taken_comes_back_once_it_is_free_and_another_serves(node: Node) -> None:
    node.wait(lambda: is_well(node), "the node to be well", WAIT)
    assert node.process is not None
    pids = node.pids()
    node.process.send_signal(signal.SIGSTOP)  # so that nothing is started again before the port is taken
    try:
        node.kill("gateway-2")
        taken = port_of_another(node, node.port + 1)
    finally:
        node.process.send_signal(signal.SIGCONT)
    with taken:
        reason = "gateway-2 is away and will be started again: bad-environment"
        node.wait(lambda: reason in health(node, 0)["reasons"], "the other gateway to say so", WAIT)
        told = figures(node, 0)
        assert (told["headgate_process_ready[gateway-2]"], told["headgate_process_ready[gateway-1]"]) == (0, 1)
        tag = f"alone-{uuid.uuid4()}"
        with (
            node.client("till", [0]) as till,
            node.client("ann", [0]) as ann,
            ann.subscribe(tag, "shop.Sale", f"item = '{tag}'") as subscription,
        ):
            assert till.publish("shop.Sale", {"item": tag, "amount": 1.0}).status == "accepted"
            one = subscription.next(timeout=WAIT)
            assert one is not None
            assert one.data["item"] == tag
        check = doctor(node)["process gateway-2"]
        assert check["finding"] == "warn"
        assert f"port `{node.port + 1}`" in check["found"]
        assert "stop what uses it" in check["found"]
    node.wait(lambda: node.answers(1) and is_well(node), "the gateway to come back by itself", WAIT)
    assert node.pids().keys() == pids.keys()
    assert node.pids()["gateway-1"] == pids["gateway-1"], "it ran on"
