"""Ctrl-C asks the work to stop, and waits for it only so long. Each case is a process, as Ctrl-C is for processes."""

import subprocess
import sys

PROGRAM = """
import os, signal, sys, threading, time
from headgate.cli.shared.common import Stopped, interruptible, unless

def interrupt():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)

def work(stop):
    {work}

threading.Thread(target=interrupt, daemon=True).start()
try:
    print("done", interruptible(work, patience=0.5))
except KeyboardInterrupt:
    print("interrupted")
print("noise", file=sys.stderr)
"""


def run(work: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work=work)], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_work_that_ends_first_gives_its_result() -> None:
    assert run("return 7")[0] == "done 7\n"


def test_work_that_fails_raises_here() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work="raise ValueError('no')")],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert "ValueError: no" in done.stderr


def test_work_is_asked_to_stop_and_cleans_up() -> None:
    out, err = run(
        """
    try:
        unless(stop, lambda: time.sleep(60))
    except Stopped:
        print("cleaning up")
        raise
"""
    )
    assert out == "cleaning up\ninterrupted\n"
    assert err == ""


def test_work_that_does_not_stop_is_left_behind() -> None:
    assert run("time.sleep(60)")[0] == "interrupted\n"
