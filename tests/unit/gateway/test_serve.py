"""One gateway process for real: it serves, stops when asked, gives its stream up, and says why it cannot start."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headgate.cli.node.init import make_domain
from headgate.node.config import Files
from headgate.node.domain import utc_now
from headgate.node.processes import kill_session
from headgate.pipeline.log.event_log import EventLog
from headgate.pipeline.paths import Paths
from headgate.trust.tls import client_context
from strategies.stored import lease

Process = subprocess.Popen[str]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return make_domain(tmp_path / "shop", None, (), utc_now()).files


@pytest.fixture
def running() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        kill_session(process.pid)
        process.wait(30)


def start(running: list[Process], directory: Path, port: int, *more: str) -> Process:
    command = [sys.executable, "-m", "headgate.gateway.serve", str(directory), "--name", "gateway-1"]
    process = subprocess.Popen(
        [*command, "--port", str(port), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    running.append(process)
    return process


def said(process: Process) -> dict[str, object]:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 90)
    assert ready, "it said nothing"
    line = process.stdout.readline()
    assert line, process.communicate(timeout=10)
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_it_serves_and_stops_when_asked(files: Files, running: list[Process]) -> None:
    port = free_port()
    process = start(running, files.directory, port)
    assert said(process) == {"event": "ready", "pid": process.pid}
    log = EventLog.open(Paths(files.data).log, read_only=True)
    assert lease(log, "gateway-1")[1] > 0
    trusting = client_context(files.tls_certificate.read_bytes())
    with httpx.Client(verify=trusting, base_url=f"https://127.0.0.1:{port}") as client:
        assert client.get("/health").json()["status"] == "ok"
        answer = client.get("/v1/types?secret=the-secret", headers={"authorization": "Bearer the-secret"})
        assert answer.status_code == 401
        assert "server" not in answer.headers
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert client.get("/metrics").status_code == 401
        token = files.metrics_token.read_text().strip()
        told = client.get("/metrics", headers={"authorization": f"Bearer {token}"})
        assert "headgate_ledger_version" in told.text
        process.send_signal(signal.SIGTERM)
        _, written = process.communicate(timeout=20)
    assert process.returncode == 0
    assert lease(log, "gateway-1")[1] == 0, "the stream was given up"
    log.close()
    lines = [json.loads(line) for line in written.splitlines()]
    assert lines[0]["event"] == "starting"
    assert lines[-1]["event"] == "stopped"
    assert [(one["route"], one["status"]) for one in lines if one["event"] == "request"] == [
        ("/health", 200),
        ("/v1/types", 401),
        ("/metrics", 401),
        ("/metrics", 200),
    ]
    assert "the-secret" not in written


def test_a_port_that_is_taken_is_said(files: Files, running: list[Process]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start(running, files.directory, port)
        told = said(process)
        assert told["code"] == "bad-environment"
        assert f"port `{port}`" in str(told["message"])
        assert process.wait(20) == 2


def test_wrong_settings_and_unusable_data_are_said(files: Files, running: list[Process]) -> None:
    process = start(running, files.directory, free_port(), "--set", "gateway.lease=soon")
    assert said(process)["code"] == "bad-config"
    assert process.wait(20) == 2
    Paths(files.data).log.write_bytes(b"this is no database at all, and long enough to be looked at" * 100)
    process = start(running, files.directory, free_port())
    told = said(process)
    assert told["code"] == "damaged"
    assert "log.db" in str(told["message"])
    assert process.wait(20) == 3


def test_it_does_not_outlive_its_parent(files: Files, running: list[Process]) -> None:
    process = start(running, files.directory, free_port(), "--parent", "1")  # which is not its parent
    assert process.wait(60) == 1
