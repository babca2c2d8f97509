"""`headgate up`: what it refuses before it starts anything, and a node of gateways alone, which needs no Spark."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.cli.node.init import make_domain
from headgate.gateway.roles.following import LOCK as FOLLOWER_LOCK
from headgate.node.config import Files
from headgate.node.domain import utc_now
from headgate.node.process_status import PID
from headgate.node.processes import Lock, held_by
from headgate.node.topology import prepare
from headgate.pipeline.paths import Paths


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return make_domain(tmp_path / "shop", None, (), utc_now()).files


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["up", *arguments])
    assert done.exit_code == 2, done.output
    assert "Starting" not in done.output
    return " ".join(done.output.split())


def free_ports() -> int:
    """The first of two ports that are free."""
    for port in range(20_000 + os.getpid() % 10_000, 60_000, 2):
        try:
            for one in (port, port + 1):
                with socket.socket() as found:
                    found.bind(("127.0.0.1", one))
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")


def test_what_is_no_domain_is_refused_with_the_way_to_make_one(tmp_path: Path) -> None:
    assert "headgate init DIR" in refused(str(tmp_path))
    assert "headgate init DIR" in refused(str(tmp_path / "nowhere"))


def test_missing_java_is_said_first(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.broker_key.unlink()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert "Spark needs Java" in refused(str(files.directory))
    assert "broker.pem" in refused(str(files.directory), "--without-pipeline")  # which needs none


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "gateway.prot=1"], "gateway.port"),
        (["--set", "nonsense"], "section.key=value"),
        (["--port", "99999"], "gateway.port"),
        (["--gateways", "0"], "gateway.count"),
        (["--set", "gateway.tls=false", "--set", "gateway.host=0.0.0.0"], "gateway.tls"),
        (["--set", "pipeline.master=mesos://h:1"], "pipeline.master"),
        (["--set", "pipeline.spark=spark.master=yarn"], "set `pipeline.master`"),
        (["--set", "pipeline.checkpoint=/proc/none"], "`pipeline.checkpoint` cannot be `/proc/none`: it cannot be"),
    ],
)
def test_wrong_settings_are_refused(files: Files, arguments: list[str], words: str) -> None:
    assert words in refused(str(files.directory), *arguments)


def test_a_key_that_others_can_read_is_refused(files: Files) -> None:
    files.broker_key.chmod(0o644)
    assert "chmod 600" in refused(str(files.directory))


def test_a_port_that_is_taken_is_refused(files: Files) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port `{port}`" in refused(str(files.directory), "--port", str(port))


def test_a_second_node_is_refused(files: Files) -> None:
    with Lock(files.data / PID, "the node"):
        assert f"running already, as process `{os.getpid()}`" in refused(str(files.directory))


def test_where_it_is_reached_and_of_what_it_consists(files: Files) -> None:
    node = prepare(files.directory, {}, {"gateway.count": "2", "gateway.port": "9000", "gateway.host": "::1"})
    assert node.urls == ["https://[::1]:9000", "https://[::1]:9001"]
    assert [part.name for part in node.parts()] == ["pipeline", "gateway-1", "gateway-2", "follower"]
    for part in node.parts():
        assert "gateway.port=9000" in part.command
        assert part.command[part.command.index("--parent") + 1] == str(os.getpid())
    everywhere = prepare(files.directory, {}, {"gateway.host": "0.0.0.0"})
    assert everywhere.urls == ["https://localhost:8443"]
    plain = prepare(files.directory, {}, {"gateway.tls": "false"})
    assert plain.urls == ["http://127.0.0.1:8443"]


@pytest.mark.parametrize(
    ("locks", "status", "words"), [((), 3, "newer Headgate"), ((FOLLOWER_LOCK,), 1, "running already")]
)
def test_what_no_wait_can_heal_ends_the_first_start_at_once(
    files: Files, locks: tuple[str, ...], status: int, words: str
) -> None:
    """A log newer than the program, and a follower that is running already: the parts say so, before any Spark."""
    with ExitStack() as held:
        for name in locks:
            held.enter_context(Lock(files.data / name, "the follower"))
        if not locks:
            with closing(sqlite3.connect(Paths(files.data).log)) as db:
                db.execute("PRAGMA user_version=99")
        arguments = ["up", str(files.directory), "--port", str(free_ports())]
        program = [str(Path(sys.executable).parent / "headgate"), *arguments]
        done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    said = " ".join(done.stderr.split())
    assert done.returncode == status, done.stdout + done.stderr
    assert "cannot be started" in said
    assert words in said
    assert "it is started again" not in done.stdout
    assert done.stdout.rstrip().endswith("Stopped.")
    assert not (files.data / "processes.json").exists()


def test_a_node_of_gateways_alone_comes_up_and_goes_down(files: Files) -> None:
    port = free_ports()
    output = files.directory / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "headgate.cli.main", "up", str(files.directory), "--port", str(port)),
                *("--gateways", "2", "--without-pipeline"),
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + 90
        while "Ctrl-C stops the node" not in output.read_text():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < end, output.read_text()
            time.sleep(0.1)
        told = json.loads((files.data / "node.json").read_text())
        assert told["urls"] == [f"https://127.0.0.1:{port}", f"https://127.0.0.1:{port + 1}"]
        assert held_by(files.data / PID) == process.pid == told["pid"]
        done = CliRunner().invoke(app, ["doctor", str(files.directory), "--json"])
        found = {one["name"]: one for one in json.loads(done.output)}
        assert [found[url]["finding"] for url in told["urls"]] == ["ok", "ok"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.terminate()
        process.wait(30)
    said = output.read_text()
    assert "\x1b" not in said, "no colours in a file"
    assert told["broker"] in said
    assert f"connect to   https://127.0.0.1:{port}" in said
    assert "gateway-1 stopped" in said
    assert said.rstrip().endswith("Stopped.")
    assert not (files.data / "node.json").exists()
    assert held_by(files.data / PID) is None
    assert (files.directory / "logs" / "gateway-2.log").read_text().count("starting") == 1
