"""A writer of the log is killed with SIGKILL at random moments and sends again: every event is there exactly once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.pipeline.log.event_log import EventLog

pytestmark = pytest.mark.soak

SEEDS = int(os.environ.get("HEADGATE_SEEDS", "6"))
EVENTS = 20_000


def write(path: Path, begin: int) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("run_writer.py")
    return subprocess.Popen(
        [sys.executable, str(script), str(path), str(begin), str(EVENTS)], stdout=subprocess.PIPE, text=True
    )


def test_killed_writers_send_again_and_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    EventLog.create(path).close()
    rng = random.Random(SEEDS)
    acknowledged = 0
    for _ in range(SEEDS):
        # Each takes over at once from the dead one before it, though that one's lease has an hour to run.
        process = write(path, max(0, acknowledged - 200))
        assert process.stdout is not None
        for _ in range(rng.randint(1, 40)):
            acknowledged = max(acknowledged, int(process.stdout.readline() or acknowledged))
        process.kill()
        rest = process.stdout.read().splitlines()
        process.wait(30)
        acknowledged = max([acknowledged, *map(int, rest[:1])])  # an acknowledgement may get lost, too
    process = write(path, max(0, acknowledged - 200))
    assert process.communicate(timeout=120)[0].split()[-1] == str(EVENTS)
    assert process.returncode == 0
    log = EventLog.open(path, read_only=True)
    found = [id for b in log.batches("main", 0, log.tails()["main"].last) for id in b.blob.decode().split()]
    log.close()
    assert found == [f"e{n}" for n in range(EVENTS)]
