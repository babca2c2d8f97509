"""`headgate subscribe`: for people and for programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from strategies.standin import SALE, World, make_directory, stage


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("domains") / "shop")


@pytest.fixture
def world(shop: Path) -> Iterator[World]:
    with stage(shop) as start:
        yield start().world


@pytest.fixture
def subscribe(world: World, shop: Path):
    def run(*args: str) -> Result:
        return CliRunner().invoke(app, ["subscribe", SALE, *args, "--as", "ann", "--domain", str(shop)])

    return run


def fill(world: World, *items: Any) -> None:
    for n, item in enumerate(items, len(world.events)):
        data = {"item": item, "amount": 4.5, "card": None}
        world.store("till", {"specversion": "1.0", "id": str(n), "source": "s", "type": SALE, "data": data})


def test_for_people(subscribe, world: World) -> None:
    fill(world, "tea", "evil \x1b[31m\nline")
    result = subscribe("--from", "start", "--count", "2")
    assert result.exit_code == 0, result.output
    first, second = result.output.splitlines()
    assert first == "2026-01-01 12:00:00 shop.Sale  item tea  amount 4.5  card -  by till"
    assert "\\x1b[31m\\nline" in second
    assert world.subscriptions == {}  # it was temporary


def test_for_programs_with_a_name(subscribe, world: World) -> None:
    fill(world, "tea", "rum", "gin")
    result = subscribe("--from", "start", "--count", "2", "--json", "--name", "mine", "--where", "amount > 1")
    events = [json.loads(line) for line in result.output.splitlines()]
    assert [e["data"]["item"] for e in events] == ["tea", "rum"]
    assert events[0].keys() >= {"specversion", "id", "source", "type", "time", "hgpublisher", "hgposition"}
    assert world.subscriptions["mine"].body["where"] == "amount > 1"
    assert world.subscriptions["mine"].cursor == 2
    again = subscribe("--from", "start", "--count", "1", "--json", "--name", "mine", "--where", "amount > 1")
    assert json.loads(again.output)["data"]["item"] == "gin"


def test_a_gap_is_told_beside(subscribe, world: World) -> None:
    fill(world, "tea", "rum")
    world.gap_at = 1
    result = subscribe("--from", "start", "--count", "2", "--json")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["0", "1"]
    assert "gap: retention took some" in result.stderr


@pytest.mark.parametrize("place", ["yesterday", "version:x", "version:-1", "time:noon", "time:2026-01-01", "now:1"])
def test_bad_places(subscribe, place: str) -> None:
    result = subscribe("--from", place)
    assert result.exit_code == 2
    assert "--from" in result.output


def test_places(subscribe, world: World) -> None:
    fill(world, "tea")
    subscribe("--from", "version:3", "--count", "1", "--name", "v")
    subscribe("--from", "time:2026-01-01T09:00:00+01:00", "--count", "1", "--name", "t")
    assert world.subscriptions["v"].body["from"] == {"version": 3}
    assert world.subscriptions["t"].body["from"] == {"time": "2026-01-01T08:00:00Z"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_end_it_cleanly(world: World, shop: Path, number: int) -> None:
    fill(world, "tea")
    command = [sys.executable, "-m", "headgate.cli.main", "subscribe", SALE, "--from", "start"]
    environ = {**os.environ, "HEADGATE_DOMAIN": str(shop)}
    command += ["--as", "ann", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["data"]["item"] == "tea"
        assert len(world.subscriptions) == 1
        process.send_signal(number)
        _, complaint = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, complaint) == (0, b"")
    assert world.subscriptions == {}
    assert world.requests[-1] == "DELETE /v1/sessions/current"


def test_a_closed_pipe_ends_it(world: World, shop: Path) -> None:
    fill(world, "tea")
    command = [sys.executable, "-m", "headgate.cli.main", "subscribe", SALE, "--from", "start", "--domain", str(shop)]
    process = subprocess.Popen([*command, "--as", "ann", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        for _ in range(300):
            if process.poll() is not None:
                break
            fill(world, "more")
            time.sleep(0.05)
        complaint = process.stderr.read()
    finally:
        process.kill()
        process.stderr.close()
        process.wait()
    assert (process.returncode, complaint) == (0, b"")
    assert world.subscriptions == {}
