"""Who is dead: only a process of this machine that has ended, or whose number another one has now."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headgate.pipeline.log.event_log import holder_of_this_process, is_dead


def started(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def test_a_process_is_dead_once_it_has_ended() -> None:
    process = started(
        "from headgate.pipeline.log.event_log import holder_of_this_process as h; print(h('a:b'), flush=True); input()"
    )
    assert process.stdout is not None
    holder = process.stdout.readline().strip()
    assert holder.split(":")[1] == str(process.pid)
    assert holder.endswith(":a:b")
    assert not is_dead(holder)
    process.kill()
    process.wait(30)
    assert is_dead(holder)


def test_a_number_that_belongs_to_another_process_now_is_dead() -> None:
    host, pid, start, name = holder_of_this_process("x").split(":", 3)
    assert not is_dead(f"{host}:{pid}:{start}:{name}")
    assert is_dead(f"{host}:{pid}:{int(start) - 1}:{name}")


@pytest.mark.parametrize("holder", ["", "elsewhere:1:2:x", "nonsense", ":::", "a:b:c:d"])
def test_of_others_nothing_is_known(holder: str) -> None:
    assert not is_dead(holder)


def test_a_process_nobody_has_waited_for_is_dead() -> None:
    process = started("from headgate.pipeline.log.event_log import holder_of_this_process as me; print(me(''))")
    assert process.stdout is not None
    holder = process.stdout.read().strip()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and still has its entry
    assert is_dead(holder)
    process.wait(30)
