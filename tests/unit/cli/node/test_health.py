"""`headgate health` of a real gateway: while it is away, serves and hangs; and of one that fails."""

from __future__ import annotations

import http.server
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.cli.node.init import make_domain
from headgate.node.config import Files
from headgate.node.domain import utc_now
from headgate.node.processes import kill_session

HOST = "127.0.0.2"
"""No name of the certificate's."""


@pytest.fixture
def port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> Files:
    monkeypatch.setenv("HEADGATE_GATEWAY_HOST", HOST)
    monkeypatch.setenv("HEADGATE_GATEWAY_PORT", str(port))
    return make_domain(tmp_path / "shop", None, (), utc_now()).files


def health(files: Files, *more: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["health", str(files.directory), *more])
    return done.exit_code, done.output.strip()


def test_a_gateway_that_is_away_serves_and_hangs(files: Files, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"https://{HOST}:{port}"
    away = f"{url} does not answer (ConnectionRefusedError)"
    assert health(files) == (1, away)
    assert health(files, "--hung") == (0, away), "it is started again anyway"
    command = [sys.executable, "-m", "headgate.gateway.serve", str(files.directory), "--name", "gateway-1"]
    gateway = subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert gateway.stdout is not None
        assert '"ready"' in gateway.stdout.readline()
        for more in ((), ("--hung",)):
            status, said = health(files, *more)
            assert status == 0
            assert said.startswith((f"{url} ok", f"{url} degraded")), said  # the disk may be nearly full
        gateway.send_signal(signal.SIGSTOP)
        monkeypatch.setattr("headgate.cli.node.health.ANSWER_SECONDS", 0.5)
        for more in ((), ("--hung",)):
            status, said = health(files, *more)
            assert (status, "no answer within" in said) == (1, True), said
    finally:
        kill_session(gateway.pid)
        gateway.communicate(timeout=30)


class Failing(http.server.BaseHTTPRequestHandler):
    """A gateway that cannot accept events."""

    def do_GET(self) -> None:
        assert self.path == "/health"
        self.send_response(503)
        self.end_headers()
        self.wfile.write(b'{"status": "failing", "reasons": ["the disk is full"]}')

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_one_of_two_gateways_is_enough_unless_it_fails(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_GATEWAY_TLS", "false")
    monkeypatch.setenv("HEADGATE_GATEWAY_COUNT", "2")
    with http.server.ThreadingHTTPServer((HOST, 0), Failing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HEADGATE_GATEWAY_PORT", str(server.server_port))
        status, said = health(files)
        assert (status, "failing; the disk is full" in said) == (1, True), said
        assert health(files, "--hung")[0] == 0, "a restart makes no room"
        monkeypatch.setattr(Failing, "send_response", lambda self, _: self.send_response_only(200))
        assert health(files)[0] == 0
        server.shutdown()


def test_what_is_no_domain_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["health", str(tmp_path)])
    assert done.exit_code == 2
    assert "headgate init DIR" in done.output
