"""Ten thousand connections that are begun and never finished: others are served, and the gateway stays small."""

from __future__ import annotations

import json
import resource
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harness.alone import Alone, Process, alone, rule, wait
from headgate.gateway.serve import SPARE_FILES
from headgate.model.changes import Change, DeclareType
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.config import LimitSettings
from headgate.protocol import messages as wire
from headgate.trust.tls import client_context

FLOOD = Path(__file__).with_name("run_flood.py")
MANY = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 2 * SPARE_FILES)
HEADS = 200
"""How many of them begin a request."""
MAX_GROWTH = 192 * 2**20
"""Bytes by which the gateway may grow meanwhile: less than 20 kB for each of them."""
HELPER = "127.0.0.2"
"""Where the flood comes from; others are at another address."""
SALE = "shop.Sale"
NO_HELLO = (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\0\0", b"\x16\x03\x01\xff\xff", b"\x80\x2e\x01\x03\x01")
"""Another protocol, a record of nothing, one that is too long, and TLS of long ago."""


def policy(made: Alone) -> list[Change]:
    return [
        *made.people("anna"),
        DeclareType(EventType(SALE, ADMINISTRATOR, {"item": Kind.STRING})),
        rule("connects", "anna", "connect"),
        rule("sends", "anna", "publish", SALE),
    ]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with alone(tmp_path_factory.mktemp("flood") / "domain", policy) as made:
        yield made


@contextmanager
def flood(gateway: Process, heads: int, count: int) -> Iterator[subprocess.Popen[str]]:
    """Connections from another process: some begin a request, the others not even that."""
    arguments = [str(FLOOD), str(gateway.port), HELPER, str(heads), str(count)]
    helper = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield helper
    finally:
        helper.kill()
        helper.communicate()


def said(helper: subprocess.Popen[str]) -> list[str]:
    assert helper.stdout is not None
    return helper.stdout.readline().split()


class Watcher(threading.Thread):
    """Keeps the most memory and the most open files that a process had."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._over = threading.Event()
        self.memory = self.files = 0

    def run(self) -> None:
        while not self._over.wait(0.1):
            self.memory = max(self.memory, self._process.resident)
            self.files = max(self.files, self._process.open_files())

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(self, *failed: object) -> None:
        self._over.set()
        self.join()


def serve_others(made: Alone, token: str, name: str, gateway: int = 0) -> None:
    """Somebody else connects, proves who it is, asks and publishes, on a new connection each time."""
    made.token("anna", gateway)
    event = {"specversion": "1.0", "id": name, "source": "s", "type": SALE, "data": {"item": "lamp"}}
    with made.http(token, gateway) as http:
        assert http.get("/v1/types").status_code == 200
        answer = http.post("/v1/events", content=json.dumps(event), headers={"content-type": wire.EVENT_JSON})
        assert answer.json()["status"] == "accepted"


def test_ten_thousand_half_open_connections_are_closed_in_time_and_others_served(node: Alone) -> None:
    assert MANY > 1_000
    gateway = node.start(
        "g1", limits__connections=str(MANY + SPARE_FILES), limits__unauthenticated_per_address=str(MANY)
    )
    token = node.token("anna")
    serve_others(node, token, "before")
    memory, files = gateway.resident, gateway.open_files()
    with Watcher(gateway) as seen, flood(gateway, HEADS, MANY - HEADS) as helper:
        held = threading.Event()

        def ask_on() -> int:
            asked = 0
            while not held.is_set() or asked < 5:
                serve_others(node, token, f"during {asked}")
                asked += 1
            return asked

        waiting = threading.Thread(target=lambda: (begun.append(said(helper)), held.set()))
        begun: list[list[str]] = []
        waiting.start()
        assert ask_on() >= 5
        waiting.join()
        word, count = begun[0]
        assert (word, int(count) > MANY * 0.9) == ("held", True)
        ended = said(helper)
        assert ended[0] == "closed"
        assert ended[3] == "0", "every one of them was closed by the gateway"
    assert seen.files - files > MANY // 10, "they were held at once, and many"
    assert seen.memory - memory < MAX_GROWTH
    wait(lambda: gateway.open_files() < files + SPARE_FILES, "the files of the connections to be closed")
    serve_others(node, token, "after")
    assert gateway.faults() == []
    node.end(gateway)


def turned_away(node: Alone) -> float:
    """How many strangers the gateway says it has turned away, or sent away because they said nothing; at first none."""
    with node.http(node.metrics_token) as http:
        lines = http.get("/metrics").text.splitlines()
    said = [line for line in lines if 'reason="strangers"' in line or 'reason="silent"' in line]
    return sum(float(line.split()[-1]) for line in said)


def test_from_one_address_only_so_many_strangers_are_let_in(node: Alone) -> None:
    most = LimitSettings().unauthenticated_per_address
    gateway = node.start("g2")
    token = node.token("anna")
    memory, files = gateway.resident, gateway.open_files()
    with Watcher(gateway) as seen, flood(gateway, 0, 3 * most) as helper:
        assert said(helper)[0] == "held"
        serve_others(node, token, "beside")
        wait(lambda: turned_away(node) > most / 2, "strangers to be turned away")
    assert seen.files - files < most + SPARE_FILES
    assert seen.memory - memory < MAX_GROWTH
    assert gateway.faults() == []


def test_a_hello_that_comes_in_pieces_is_heard_and_what_is_none_is_closed(node: Alone) -> None:
    gateway = node.gateways[-1]
    context = client_context(node.files.tls_certificate.read_bytes())
    come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
    talk = context.wrap_bio(come, go, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as plain:
        for _ in range(10):
            with suppress(ssl.SSLWantReadError):
                talk.do_handshake()
                break
            for byte in go.read():
                plain.sendall(bytes([byte]))
            come.write(plain.recv(65_536))
        talk.write(b"GET /v1 HTTP/1.1\r\nhost: x\r\n\r\n")
        plain.sendall(go.read())
        assert answered(plain, talk, come).startswith(b"HTTP/1.1 200 ")
    for noise in NO_HELLO:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as plain:
            plain.sendall(noise)
            with suppress(ConnectionResetError):
                assert plain.recv(65_536) == b""


def answered(plain: socket.socket, talk: ssl.SSLObject, come: ssl.MemoryBIO) -> bytes:
    """The next that is said over TLS."""
    while True:
        try:
            return talk.read(65_536)
        except ssl.SSLWantReadError:
            come.write(plain.recv(65_536))
