"""Jobs in processes: refusals come back as they are, principals take turns, and whatever hangs or dies is replaced."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from headgate.gateway.http import worker_pool as module
from headgate.gateway.http.worker_pool import Workers
from headgate.lang import Wanted, parse_condition, read_all
from headgate.model.errors import BadExpression, BadStatement, HeadgateError, RoleDenied, TooBusy, TooLarge
from strategies.serving import eventually

PATIENCE = 60.0


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(processes=1)
    yield made
    made.stop()


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_what_is_read_elsewhere_is_what_is_read_here(workers: Workers) -> None:
    rolefile = "def A(x) x : {rw}\nA(x) <- Login.On(u)* : (x = {r})*"
    wanted: list[Wanted] = [("condition", "a = 1 and $b in {'x', 'y'}"), ("condition", "a ="), ("requirement", "$n=1")]
    wanted += [("role", "Login.On(u)"), ("rolefile", rolefile)]
    here, there = read_all(wanted), workers.submit("anna", read_all, wanted).result(PATIENCE)
    assert repr(here) == repr(there)
    assert isinstance(there[1], BadExpression)
    assert str(there[1]) == str(here[1])


def test_a_refusal_comes_back_as_it_is(workers: Workers) -> None:
    with pytest.raises(BadExpression, match="expected") as refused:
        workers.submit("anna", parse_condition, "a = 1 and").result(PATIENCE)
    assert refused.value.place == "line 1, column 10"
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        workers.submit("anna", divmod, 1, 0).result(PATIENCE)


def test_every_refusal_survives_the_way() -> None:
    for error in (
        RoleDenied("no", failure="fraud", details={"reason": "x"}, remedy="r"),
        BadStatement("no", reason="wrong"),
        TooBusy("no", retry=2.0),
    ):
        again: HeadgateError = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


def test_principals_take_turns(workers: Workers) -> None:
    order: list[str] = []

    def told(name: str) -> Future[None]:
        answer = workers.submit(name[0], time.sleep, 0.01)
        answer.add_done_callback(lambda _: order.append(name))
        return answer

    first = workers.submit("z", time.sleep, 0.3)  # while all the others come
    every = [told(name) for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2")]
    for one in (first, *every):
        one.result(PATIENCE)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_only_so_many_jobs_of_a_principal_wait(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    running = workers.submit("a", time.sleep, 0.5)
    eventually(running.running)
    waiting = [workers.submit("a", abs, -n) for n in (1, 2)]
    with pytest.raises(TooBusy) as refused:
        workers.submit("a", abs, -3)
    assert refused.value.retry
    other = workers.submit("b", abs, -4)
    assert [one.result(PATIENCE) for one in (*waiting, other)] == [1, 2, 4]


def test_what_takes_too_long_is_ended_and_the_next_goes_on() -> None:
    workers = Workers(processes=1, seconds=1.0)
    try:
        first = workers.submit("a", os.getpid).result(PATIENCE)
        with pytest.raises(TooLarge, match="not worked out in 1 seconds"):
            workers.submit("a", time.sleep, 600).result(PATIENCE)
        assert not is_there(first)
        assert workers.submit("a", os.getpid).result(PATIENCE) != first
    finally:
        workers.stop()


STOPPED = "import os, signal; os.write(0, {part!r}); os.kill(os.getpid(), signal.SIGSTOP)"
PARTS = (b"", b"\0", (1_000).to_bytes(8) + b"some of it")
"""What a process has sent of its answer when it is stopped: nothing, less than its size, and less than all of it."""


@pytest.mark.parametrize("part", PARTS)
def test_a_process_that_is_stopped_while_it_answers_is_ended_in_time(part: bytes) -> None:
    workers = Workers(processes=1, seconds=1.0)
    try:
        first = workers.submit("a", os.getpid).result(PATIENCE)
        with pytest.raises(TooLarge, match="not worked out in 1 seconds"):
            workers.submit("a", exec, STOPPED.format(part=part)).result(PATIENCE)
        assert not is_there(first)
        assert workers.submit("a", os.getpid).result(PATIENCE) != first
    finally:
        workers.stop()


def test_a_process_that_is_stopped_before_it_takes_a_large_job_is_ended_in_time() -> None:
    workers = Workers(processes=1, seconds=1.0)
    try:
        first = workers.submit("a", os.getpid).result(PATIENCE)
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(TooLarge, match="not worked out in 1 seconds"):
            workers.submit("a", len, bytes(10_000_000)).result(PATIENCE)
        assert not is_there(first)
        assert workers.submit("a", os.getpid).result(PATIENCE) != first
    finally:
        workers.stop()


@pytest.mark.parametrize("part", PARTS)
def test_a_gateway_that_stops_does_not_wait_for_a_process_that_is_stopped(part: bytes) -> None:
    workers = Workers(processes=1, seconds=10 * PATIENCE)
    process = workers.submit("a", os.getpid).result(PATIENCE)
    answer = workers.submit("a", exec, STOPPED.format(part=part))
    eventually(lambda: Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
    begun = time.monotonic()
    workers.stop()
    assert time.monotonic() - begun < PATIENCE
    with pytest.raises(TooBusy, match="stopping"):
        answer.result(PATIENCE)
    assert not is_there(process)


def test_what_is_large_comes_whole_in_both_directions(workers: Workers) -> None:
    sent = os.urandom(5_000_000)
    assert workers.submit("a", bytes.upper, sent).result(PATIENCE) == sent.upper()


def test_a_process_that_was_killed_is_replaced_and_its_job_done_again(workers: Workers) -> None:
    first = workers.submit("a", os.getpid).result(PATIENCE)
    running = workers.submit("a", time.sleep, 0.5)
    eventually(running.running)
    os.kill(first, signal.SIGKILL)
    running.result(PATIENCE)
    assert workers.submit("a", os.getpid).result(PATIENCE) != first


def test_who_waits_no_longer_costs_nothing(workers: Workers) -> None:
    async def run() -> int:
        held = workers.submit("b", time.sleep, 0.3)
        task = asyncio.ensure_future(workers.run("a", time.sleep, 600))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        found = await workers.run("a", abs, -1)
        await asyncio.wrap_future(held)
        return found

    assert asyncio.run(run()) == 1


def test_stopping_leaves_nothing() -> None:
    workers = Workers()
    process = workers.submit("a", os.getpid).result(PATIENCE)
    long = workers.submit("a", time.sleep, 600)
    waiting = workers.submit("a", abs, -1)
    eventually(long.running)
    workers.stop()
    for one in (long, waiting):
        with pytest.raises(TooBusy):
            one.result(PATIENCE)
    assert not is_there(process)
    with pytest.raises(TooBusy, match="stopping"):
        workers.submit("a", abs, 1)


OWNER = """
import os, sys, time
from headgate.gateway.http.worker_pool import Workers
workers = Workers(processes=1)
process = workers.submit("a", os.getpid).result()
busy = workers.submit("a", sum, range(10**12))  # which lets no other thread of its process run
while not busy.running():
    time.sleep(0.01)
time.sleep(0.3)
print(process, flush=True)
time.sleep(600)
"""


def test_processes_die_with_the_gateway_however_it_ends() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        worker = int(owner.stdout.readline())
    assert is_there(worker)
    owner.kill()
    owner.wait()
    eventually(lambda: not is_there(worker))
