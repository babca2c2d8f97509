"""How long others wait at a gateway while one principal does its worst, beside how long they wait when it is quiet.

A gateway process serves HTTPS. Others publish single events and ask who they are, at fixed times, so that a gateway
that stands still is seen in every request that it should have served meanwhile; a wait is from when a request was due.
In turn with quiet periods, one attack goes on all the time over several connections of one principal, from a process
of its own: publishes full of different requirements and batches of rolefiles by one who may only connect, and long
filters and conditions by one who may subscribe and write rules.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

from benchmarks.measure import console, report, report_ratio
from benchmarks.node import Node, made
from headgate.model.changes import AddRule, Advertise, Change, DeclarePrincipal, DeclareType, SetConnect, SetKey
from headgate.model.rights import Action, Rule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.protocol import messages as wire
from headgate.trust.keys import PrivateKey

SALE, NOTE = "shop.Sale", "shop.Note"
EVE, TILL, ANN = "eve", "till", "ann"
SECONDS = 6.0
"""How long a quiet period and an attack last."""
ROUNDS = 3
EVERY = 0.05
"""Seconds from one request of the others to the next."""
CONNECTIONS = 4
"""Connections of the attacker."""
MARK = 2.0
ALLOWED = "publish full of requirements"
"""What its sender may do; it is stated beside the attacks, since whoever may publish may load a gateway with that."""


def world(keys: dict[str, PrivateKey]) -> Iterator[Change]:
    """Two who do their work, and one who may connect, subscribe, and rule a type of its own."""
    yield SetConnect(True)
    for name, key in keys.items():
        yield DeclarePrincipal(name)
        yield SetKey(name, key.public.did)
    yield DeclareType(EventType(SALE, ADMINISTRATOR, {"item": Kind.STRING, "amount": Kind.FLOAT}))
    yield DeclareType(EventType(NOTE, EVE, {"item": Kind.STRING, "amount": Kind.FLOAT}))
    yield AddRule(Rule("sells", TILL, frozenset({Action.PUBLISH}), SALE))
    yield AddRule(Rule("notes", EVE, frozenset({Action.PUBLISH}), NOTE))
    yield Advertise(TILL, SALE)
    yield Advertise(EVE, NOTE)


# -- attacks --------------------------------------------------------------------------------------------------


def attacks() -> dict[str, tuple[str, str, str, bytes]]:
    """Each attack as a request: method, path, content type and body."""
    condition = " or ".join(f"item = 'thing {n}'" for n in range(400))[:9_900].rsplit(" or ", 1)[0]

    def events(type_name: str, count: int) -> bytes:
        texts = (f"$a{n} = {n} and ({' or '.join(f'$b = {m}' for m in range(30))})" for n in range(count))
        listed = [
            {"specversion": "1.0", "id": f"e{at}", "source": "e", "type": type_name, "data": {}, "requires": text}
            for at, text in enumerate(texts)
        ]
        return json.dumps(listed).encode()

    line = "R{n}(a) <- Login.On(a)* & Login.In(a)* : (a in staff)*\n"
    rolefile = "".join(line.format(n=n) for n in range(1_800))[:190_000]
    rolefiles = [{"op": "set-rolefile", "service": f"S{n}", "text": rolefile} for n in range(5)]
    rules = [
        {"op": "add-rule", "rule": {"id": f"r{n}", "who": TILL, "may": "subscribe", "type": NOTE, "where": condition}}
        for n in range(20)
    ]
    rules.append({"op": "remove-rule", "id": "there is none"})
    return {
        "publish of what is denied, full of requirements": ("POST", "/v1/events", wire.BATCH_JSON, events(SALE, 8_000)),
        ALLOWED: ("POST", "/v1/events", wire.BATCH_JSON, events(NOTE, 500)),
        "batch of rolefiles": ("POST", "/v1/batches", wire.JSON, json.dumps({"changes": rolefiles}).encode()),
        "batch of long conditions": ("POST", "/v1/batches", wire.JSON, json.dumps({"changes": rules}).encode()),
        "long filters": (
            "PUT",
            "/v1/subscriptions/s",
            wire.JSON,
            json.dumps({"type": NOTE, "where": condition + " or item ="}).encode(),
        ),
    }


def attack(directory: Path, port: int, token: str, request: tuple[str, str, str, bytes], stop: Any) -> None:
    """Send one request again and again over several connections until told to stop, whatever comes back."""
    node = Node(directory, port=port)
    method, path, kind, body = request
    headers = {"authorization": f"Bearer {token}", "content-type": kind}

    def work() -> None:
        while not stop.is_set():
            http = node.http()
            try:
                while not stop.is_set():
                    http.request(method, path, body, headers)
                    http.getresponse().read()
            except (OSError, HTTPException):
                time.sleep(0.01)  # it was turned away
            finally:
                http.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def under(node: Node, request: tuple[str, str, str, bytes] | None) -> Iterator[None]:
    """Attack meanwhile, from another process."""
    if request is None:
        yield
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    args = (node.directory, node.port, node.token(EVE), request, stop)
    process = context.Process(target=attack, args=args, daemon=True)
    process.start()
    time.sleep(1.0)  # it has to start
    try:
        yield
    finally:
        stop.set()
        process.join(60)
        if process.is_alive():
            process.kill()


# -- others ---------------------------------------------------------------------------------------------------


class Others:
    """Those who do their work at fixed times, each request by whoever is free."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tokens = {name: node.token(name) for name in (TILL, ANN)}
        self._sent = 0

    def waits(self) -> list[float]:
        """How long each request took from when it was due, over a period."""
        begun = time.perf_counter()
        due = [begun + at * EVERY for at in range(int(SECONDS / EVERY))]
        found: list[float] = []
        lock = threading.Lock()
        turns = iter(enumerate(due))

        def work() -> None:
            http = self._node.http()
            http.request("GET", "/v1")
            http.getresponse().read()
            while True:
                with lock:
                    at, when = next(turns, (-1, 0.0))
                    self._sent += 1
                    id = self._sent
                if at < 0:
                    http.close()
                    return
                time.sleep(max(0.0, when - time.perf_counter()))
                self._ask(http, at, id)
                with lock:
                    found.append(time.perf_counter() - when)

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def _ask(self, http: Any, at: int, id: int) -> None:
        if at % 2:
            http.request("GET", "/v1/sessions/current", headers={"authorization": f"Bearer {self._tokens[ANN]}"})
        else:
            event = {"specversion": "1.0", "id": f"{id}", "source": "t", "type": SALE, "data": {"item": "tea"}}
            headers = {"authorization": f"Bearer {self._tokens[TILL]}", "content-type": wire.EVENT_JSON}
            http.request("POST", "/v1/events", json.dumps(event), headers)
        answer = http.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"others are refused: {answer.status}")


def run() -> None:
    """Others' median wait under each attack, over the quiet one."""
    console.print(f"[bold]fairness[/]: others' wait under attack over {CONNECTIONS} connections, beside quiet")
    keys = {name: PrivateKey.generate() for name in (EVE, TILL, ANN)}
    with tempfile.TemporaryDirectory() as name, made(Path(name) / "node", world(keys), 1, keys[TILL]) as node:
        node.keys.update(keys)
        node.start_gateways()
        others = Others(node)
        others.waits()
        for what, request in attacks().items():
            quiet: list[float] = []
            busy: list[float] = []
            worst = 0.0
            for _ in range(ROUNDS):
                with under(node, None):
                    quiet.append(statistics.median(others.waits()))
                with under(node, request):
                    waits = others.waits()
                    busy.append(statistics.median(waits))
                    worst = max(worst, *waits)
            mark = None if what == ALLOWED else MARK
            report_ratio(f"others' wait under a {what}, over quiet", busy, quiet, mark, "lower")
            report(f"others' longest wait under a {what}, s", worst, None, "lower")
        report("others' median wait, quiet, ms", statistics.median(quiet) * 1e3, None, "lower")
