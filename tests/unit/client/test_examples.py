"""The examples, run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from strategies.standin import SALE, StandIn, World

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(name: str, *args: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / name), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_publish_and_subscribe(gateway: StandIn, world: World, directory: Path) -> None:
    assert run("publish.py", str(directory))[0].startswith("accepted ")
    assert run("publish.py", str(directory))[0].startswith("accepted ")
    shown = run("subscribe.py", str(directory), "2")
    assert [line.split()[1:] for line in shown] == [["tea", "4.5"]] * 2
    assert world.subscriptions["sales"].cursor == 2
    assert len(run("async_subscribe.py", str(directory), "2")) == 2
    assert world.subscriptions["async-sales"].cursor == 2


def test_bulk(gateway: StandIn, world: World, directory: Path) -> None:
    assert run("bulk.py", str(directory)) == ["1000 rows", "1000 events"]
    assert len(world.events) == 2000


def test_lookup(gateway: StandIn, world: World, directory: Path) -> None:
    run("publish.py", str(directory))
    assert run("lookup.py", str(directory), SALE) == ["now {'item': 'tea', 'amount': 4.5}"]
