"""A full disk and locked files: what cannot be kept is refused as such, nothing is half done, and then it goes on."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.alone import Alone, alone, rule, wait
from headgate.model.changes import Change, DeclareType, RemoveRule
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.node.cursors import Cursors
from headgate.node.domain import Domain
from headgate.pipeline.paths import Paths
from headgate.protocol import messages as wire

SALE = "shop.Sale"
DISK = 80 * 2**20
"""Bytes of the small disk: it is nearly full from the beginning, but not full."""
IMPATIENT = """
import headgate.storage.files as files
from headgate.ledger import Ledger
files.BUSY_SECONDS = Ledger.open.__func__.__kwdefaults__["patience"] = 0.5
from headgate.gateway.serve import main
raise SystemExit(main())
"""
"""A gateway that waits for a locked file only a moment."""


def policy(made: Alone) -> list[Change]:
    return [
        *made.people("anna", "bob"),
        DeclareType(EventType(SALE, ADMINISTRATOR, {"item": Kind.STRING}, None, ("item",))),
        *(rule(f"{who}-connects", who, "connect") for who in ("anna", "bob")),
        rule("anna-sends", "anna", "publish subscribe", SALE),
        rule("anna-installs", "anna", "install", "anna.*"),
    ]


def event(id: str, item: str = "lamp") -> dict[str, Any]:
    return {"specversion": "1.0", "id": id, "source": "s", "type": SALE, "data": {"item": item}}


def send(http: httpx.Client, id: str, item: str = "lamp") -> httpx.Response:
    return http.post("/v1/events", content=json.dumps(event(id, item)), headers={"content-type": wire.EVENT_JSON})


WRITES: dict[str, Callable[[httpx.Client], httpx.Response]] = {
    "publish": lambda http: send(http, "during"),
    "subscribe": lambda http: http.put("/v1/subscriptions/during", json={"type": SALE}),
    "look up": lambda http: http.put("/v1/lookups/look", json={"type": SALE}),
    "reserve": lambda http: http.put("/v1/reservations/during", json={"type": SALE, "seconds": 60}),
    "declare": lambda http: http.put("/v1/types/anna.During", json={"attributes": {"x": "int"}}),
    "change": lambda http: http.post("/v1/batches", json={"changes": []}),
}
"""Requests that have to write something."""


def refused(answer: httpx.Response, status: int, made: Alone) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == wire.PROBLEM
    assert str(made.directory) not in answer.text
    assert ".db" not in answer.text
    code: str = answer.json()["code"]
    return code


def prepare(made: Alone) -> str:
    """A session with something to write about."""
    token = made.token("anna")
    with made.http(token) as http:
        assert send(http, "before").json()["status"] == "accepted"
        assert http.put("/v1/subscriptions/before", json={"type": SALE}).status_code == 201
    return token


def version(http: httpx.Client) -> int:
    newest: int = http.get("/v1/versions").json()["versions"][-1]["version"]
    return newest


def test_past_a_limit_on_files_everything_is_refused_and_then_goes_on(tmp_path: Path) -> None:
    with alone(tmp_path / "domain", policy) as made:
        gateway = made.start()
        limits = resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE)
        token = prepare(made)
        with made.http(token) as http, made.socket(token) as socket:
            before = version(http)
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
            for what, write in WRITES.items():
                assert refused(write(http), 507, made) == "storage-full", what
            socket.send(json.dumps({"op": "publish", "ref": 7, "events": [event("during")]}))
            told = json.loads(socket.recv())
            assert (told["op"], told["code"], told["ref"]) == ("problem", "storage-full", 7)
            assert refused(http.delete("/v1/sessions/current"), 507, made) == "storage-full"
            # What needs no room goes on.
            assert [one["id"] for one in http.get("/v1/subscriptions").json()["subscriptions"]] == ["before"]
            assert http.get("/v1/subscriptions/before/events").status_code == 200
            assert http.get("/v1/reservations").json()["reservations"] == []
            assert version(http) == before
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, limits)
            assert send(http, "during").json()["status"] == "accepted", "it was not kept before"
            assert send(http, "before").json()["status"] == "duplicate", "it was"
            with made.deciding():
                for what, write in WRITES.items():
                    assert write(http).status_code == (200 if what in ("publish", "change") else 201), what
            assert http.delete("/v1/sessions/current").status_code == 204
        with Domain.open(made.files.data) as domain:
            assert sorted(one.id for one in domain.events()) == ["before", "during"]
        assert gateway.faults() == []


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of `DISK` bytes, where the tests may make one."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system can be mounted by root alone")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(file: Path) -> None:
    """Take all the room there is."""
    for size in (2**20, 4_096, 1):
        with file.open("ab", buffering=0) as taken:
            try:
                while taken.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


LARGE = "x" * 200_000
MAX_EVENTS = 100
"""Events, each of that much text, that a full disk never takes."""


def test_a_full_disk_refuses_what_it_cannot_keep_and_then_goes_on(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, alone(disk / "domain", policy) as made:
        gateway = made.start()
        token = prepare(made)
        with made.http(token) as http:
            fill(disk / "filler")
            # A little may still fit into what the files had before. What is answered is what is so, from then on.
            sent = {f"large {n}": send(http, f"large {n}", LARGE) for n in range(MAX_EVENTS)}
            full = [id for id, answer in sent.items() if answer.status_code != 200]
            assert full
            assert {refused(sent[id], 507, made) for id in full} == {"storage-full"}
            made_of = {n: http.put(f"/v1/subscriptions/s{n}", json={"type": SALE}) for n in range(20)}
            assert {one.status_code for one in made_of.values()} <= {201, 503, 507}
            health = http.get("/health")
            assert (health.status_code, health.json()["status"]) == (503, "failing")
            (disk / "filler").unlink()
            wait(lambda: send(http, "after").status_code == 200, "room to publish")
            for id, answer in sent.items():
                expected = "duplicate" if answer.status_code == 200 else "accepted"
                assert send(http, id, LARGE).json()["status"] == expected
            for n, answer in made_of.items():
                kept = answer.status_code == 201 or answer.json()["code"] == "not-in-force"
                assert http.get(f"/v1/subscriptions/s{n}").status_code == (200 if kept else 404)
        with Domain.open(made.files.data) as domain:
            assert sorted(one.id for one in domain.events()) == sorted([*sent, "after", "before"])
        assert gateway.faults() == []


# -- locked files -------------------------------------------------------------------------------------------------


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A file that somebody else is writing to, and does not finish."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with alone(tmp_path_factory.mktemp("locked") / "domain", policy) as made:
        made.start(program=("-c", IMPATIENT))
        yield made


def test_a_locked_log_refuses_events_and_everything_else_goes_on(node: Alone) -> None:
    token = prepare(node)
    with node.http(token) as http, held(Paths(node.files.data).log):
        assert refused(send(http, "locked"), 503, node) == "storage-busy"
        assert http.get("/v1/types").status_code == 200
        assert http.put("/v1/reservations/locked", json={"type": SALE, "seconds": 5}).status_code == 201
        # The ledger took this change, and the log cannot say where it starts: it is kept, and told so.
        kept = http.put("/v1/subscriptions/locked", json={"type": SALE})
        assert refused(kept, 507, node) == "not-in-force"
        # Until it does, nobody is answered by the rights of before, and the node says how it is.
        assert refused(http.get("/v1/subscriptions/locked"), 503, node) == "storage-busy"
        assert http.get("/health").status_code == 200
        assert http.get("/v1").status_code == 200
    with node.http(token) as http:
        wait(lambda: http.get("/v1/subscriptions/locked").status_code == 200, "the change to take effect")
        assert send(http, "locked").json()["status"] == "accepted"
        assert http.put("/v1/subscriptions/locked", json={"type": SALE}).status_code == 200


def test_a_locked_ledger_refuses_changes_and_a_locked_file_of_readers_what_they_do(node: Alone) -> None:
    token = node.token("anna")
    paths = Paths(node.files.data)
    with node.http(token) as http, ThreadPoolExecutor(4) as pool:
        assert send(http, "one").json()["status"] in ("accepted", "duplicate")
        with held(paths.ledger), held(node.files.data / Cursors.FILE):
            changes = [
                pool.submit(http.put, "/v1/subscriptions/never", json={"type": SALE}),
                pool.submit(http.put, "/v1/types/anna.Never", json={"attributes": {"x": "int"}}),
            ]
            assert send(http, "beside").json()["status"] == "accepted"
            assert refused(http.put("/v1/reservations/r", json={"type": SALE, "seconds": 5}), 503, node)
            assert refused(http.delete("/v1/sessions/current"), 503, node) == "storage-busy"
            for one in changes:
                assert refused(one.result(), 503, node) == "storage-busy"
        assert http.get("/v1/subscriptions/never").status_code == 404
        assert http.get("/v1/types/anna.Never").status_code == 404
        assert http.delete("/v1/sessions/current").status_code == 204


def test_who_loses_the_right_to_connect_is_out_even_if_that_cannot_be_written(node: Alone) -> None:
    token = node.token("bob")
    with node.http(token) as http, node.http() as other:
        assert http.get("/v1/types").status_code == 200
        with held(node.files.data / Cursors.FILE):
            node.commit(RemoveRule("bob-connects"))
            wait(lambda: http.get("/v1/types").status_code == 403, "the end of the session")
            assert other.get("/v1").status_code == 200
            node.commit(rule("bob-connects", "bob", "connect"))
            wait(lambda: http.get("/v1/types").status_code == 401, "the newest version")
    assert node.gateway.faults() == []
