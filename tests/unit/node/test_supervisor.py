"""Real processes kept running, given up and stopped; locks, limits and files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.model.errors import AlreadyRunning, BadConfig, BadEnvironment
from headgate.node import processes
from headgate.node.processes import (
    FAILURE_SECONDS,
    LONGEST_PAUSE,
    MAX_FAILURES,
    Failures,
    Lock,
    ManagedProcess,
    Notice,
    RotatingFile,
    Supervisor,
    What,
    heard,
    held_by,
    kill_session,
    listen,
    of_session,
    settings_from,
)

READY = """print('{"event": "ready", "pid": 1}', flush=True)"""
WAIT = f"import time\n{READY}\ntime.sleep(60)"


def part(name: str, program: str) -> ManagedProcess:
    return ManagedProcess(name, (sys.executable, "-c", textwrap.dedent(program)))


class Run:
    """A supervisor in a thread, with what it told."""

    def __init__(self, parts: list[ManagedProcess], logs: Path) -> None:
        self.told: list[Notice] = []
        self.ready = threading.Event()
        self.supervisor = Supervisor(parts, logs, self.told.append, all_ready=self.ready.set)
        self.status: int | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.status = self.supervisor.run()

    def stop(self, times: int = 1) -> int:
        for _ in range(times):
            self.supervisor.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert self.status is not None
        return self.status

    def what(self, name: str) -> list[What]:
        return [one.what for one in self.told if one.part == name]

    def pids(self, name: str) -> list[int]:
        return [int(one.words.split()[1]) for one in self.told if one.part == name and one.what is What.STARTED]


def until(what: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def test_parts_are_started_and_stopped(tmp_path: Path) -> None:
    run = Run([part("a", WAIT), part("b", WAIT)], tmp_path / "logs")
    assert run.ready.wait(30)
    assert run.stop() == 0
    for name in "ab":
        assert run.what(name) == [What.STARTED, What.READY, What.STOPPED]
        assert of_session(run.pids(name)[0]) == []


def test_what_dies_is_started_again(tmp_path: Path) -> None:
    run = Run([part("a", WAIT), part("b", WAIT)], tmp_path / "logs")
    assert run.ready.wait(30)
    os.kill(run.pids("a")[0], signal.SIGKILL)
    until(lambda: run.what("a").count(What.READY) == 2)
    assert run.stop() == 0
    assert run.what("a") == [What.STARTED, What.READY, What.DIED, What.STARTED, What.READY, What.STOPPED]
    assert run.what("b") == [What.STARTED, What.READY, What.STOPPED]
    (died,) = [one for one in run.told if one.what is What.DIED]
    assert "SIGKILL" in died.words


def test_nothing_that_a_part_began_outlives_it(tmp_path: Path) -> None:
    program = f"""
        import os, subprocess, sys, time
        child = "import os, time; os.setpgid(0, 0); time.sleep(60)"
        subprocess.Popen([sys.executable, "-c", child])
        {READY}
        time.sleep(60)
    """
    run = Run([part("a", program)], tmp_path / "logs")
    assert run.ready.wait(30)
    (first,) = run.pids("a")
    until(lambda: len(of_session(first)) == 2)
    os.kill(first, signal.SIGKILL)
    until(lambda: run.what("a").count(What.READY) == 2)
    assert of_session(first) == []
    second = run.pids("a")[1]
    assert run.stop() == 0
    assert of_session(second) == []


def test_a_part_that_keeps_failing_ends_the_node_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "FIRST_PAUSE", 0.01)
    program = """
        import sys
        print("2026-11-15T23:02:15.691Z ERROR headgate.x no-java", file=sys.stderr)
        print("the secret", file=sys.stderr)
        sys.exit(1)
    """
    run = Run([part("good", WAIT), part("bad", program)], tmp_path / "logs")
    run.thread.join(60)
    assert run.status == 1
    assert run.what("bad").count(What.STARTED) == MAX_FAILURES
    (given_up,) = [one for one in run.told if one.what is What.GIVEN_UP]
    assert "status 1" in given_up.words
    assert "5 times" in given_up.words
    assert given_up.lines[-2].endswith("no-java")
    assert run.what("good")[-1] is What.STOPPED
    assert of_session(run.pids("good")[0]) == []
    written = (tmp_path / "logs" / "bad.log").read_text()
    assert written.count("no-java") == MAX_FAILURES
    assert "secret" not in written


@pytest.mark.parametrize(("code", "status"), [(3, 3), (2, 1)])
def test_what_cannot_be_helped_is_not_tried_again(tmp_path: Path, code: int, status: int) -> None:
    program = f"""
        import sys
        print('{{"event": "failed", "code": "damaged", "message": "`log.db` is damaged"}}', flush=True)
        sys.exit({code})
    """
    run = Run([part("bad", program)], tmp_path / "logs")
    run.thread.join(60)
    assert run.status == status
    assert run.what("bad") == [What.STARTED, What.GIVEN_UP]
    assert run.told[-1].words == "`log.db` is damaged"


def test_what_does_not_stop_is_ended_by_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.5)
    deaf = f"import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}\ntime.sleep(60)"
    run = Run([part("deaf", deaf)], tmp_path / "logs")
    assert run.ready.wait(30)
    assert run.stop() == 0
    assert run.what("deaf") == [What.STARTED, What.READY, What.KILLED]
    assert of_session(run.pids("deaf")[0]) == []


def test_asked_twice_it_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", 600.0)
    deaf = f"import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}\ntime.sleep(60)"
    run = Run([part("deaf", deaf)], tmp_path / "logs")
    assert run.ready.wait(30)
    run.supervisor.stop()
    time.sleep(0.5)
    assert run.thread.is_alive()
    assert run.stop() == 0
    assert run.what("deaf")[-1] is What.KILLED


def test_what_is_never_ready_counts_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "READY_SECONDS", 0.3)
    monkeypatch.setattr(processes, "FIRST_PAUSE", 0.01)
    run = Run([part("slow", "import time; time.sleep(60)")], tmp_path / "logs")
    run.thread.join(60)
    assert run.status == 1
    assert run.what("slow")[-1] is What.GIVEN_UP


def test_a_part_ends_with_its_supervisor(tmp_path: Path) -> None:
    """A supervisor that is killed takes its parts with it, for it can no longer stop them."""
    program = f"""
        import os, sys
        from pathlib import Path
        from headgate.node.processes import ManagedProcess, Supervisor
        child = '''
        import os, sys, time
        from headgate.node.processes import announce, die_with
        die_with(int(sys.argv[1]))
        announce("ready", pid=os.getpid())
        time.sleep(60)
        '''
        import textwrap
        parts = [ManagedProcess("a", (sys.executable, "-c", textwrap.dedent(child), str(os.getpid())))]
        tell = lambda one: print(one.what.value, one.words, flush=True)
        Supervisor(parts, Path({str(tmp_path / "logs")!r}), tell).run()
    """
    code = textwrap.dedent(program).replace("        import os, sys, time", "import os, sys, time")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        started, ready = process.stdout.readline(), process.stdout.readline()
        assert ready.startswith("ready")
        child = int(started.split()[2])
        assert of_session(child) == [child]
        process.kill()
        process.wait(10)
        until(lambda: of_session(child) == [])
    finally:
        process.kill()
        process.wait(10)


# -- how often, how large -------------------------------------------------------------------------------------


def test_pauses_grow_and_failures_long_ago_are_forgotten() -> None:
    failures = Failures()
    pauses = [failures.add(float(n)) for n in range(MAX_FAILURES)]
    assert pauses[:-1] == [0.25, 0.5, 1.0, 2.0]
    assert pauses[-1] is None
    patient = Failures()
    for n in range(100):
        pause = patient.add(n * FAILURE_SECONDS)
        assert pause is not None
        assert pause <= LONGEST_PAUSE


def test_log_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = RotatingFile(path, most=1000, kept=5)
    for number in range(1_000):
        log.write(b"%04d and some more words" % number)
    log.close()
    files = sorted(one.name for one in tmp_path.iterdir())
    assert files == ["a.log", "a.log.1", "a.log.2", "a.log.3", "a.log.4"]
    assert all(one.stat().st_size <= 1000 for one in tmp_path.iterdir())
    kept = b"".join((tmp_path / name).read_bytes() for name in reversed(files)).splitlines()
    assert kept == [b"%04d and some more words" % n for n in range(1_000 - len(kept), 1_000)]
    assert path.stat().st_mode & 0o077 == 0
    RotatingFile(path).write(b"more")
    assert path.read_bytes().endswith(b"more\n"), "what is there already is kept"


def test_long_lines_and_lines_in_pieces(tmp_path: Path) -> None:
    program = f"""
        import sys, time
        sys.stderr.write("# " + "x" * 100000)
        sys.stderr.flush()
        sys.stderr.write("\\n# in ")
        sys.stderr.flush()
        time.sleep(0.3)
        sys.stderr.write("pieces\\n# and no end")
        sys.stderr.flush()
        {READY}
    """
    run = Run([part("a", program)], tmp_path / "logs")
    until(lambda: What.DIED in run.what("a"))
    run.stop()
    lines = (tmp_path / "logs" / "a.log").read_text().splitlines()
    assert max(map(len, lines)) <= processes.MAX_LINE_BYTES
    assert "# in pieces" in lines
    assert "# and no end" in lines


# -- what processes share -------------------------------------------------------------------------------------


def test_a_lock_is_held_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "up.pid"
    assert held_by(path) is None
    with Lock(path, "the node"):
        assert held_by(path) == os.getpid()
        with (
            pytest.raises(AlreadyRunning, match=f"running already, as process `{os.getpid()}`"),
            Lock(path, "the node"),
        ):
            pass
    assert held_by(path) is None
    with Lock(path, "the node"):
        pass


def test_a_lock_is_let_go_by_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "up.pid"
    program = f"""
        import time
        from pathlib import Path
        from headgate.node.processes import Lock
        with Lock(Path({str(path)!r}), "x"):
            print("held", flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    assert held_by(path) == process.pid
    assert kill_session(process.pid) == 1
    process.wait(10)
    with Lock(path, "x"):
        assert held_by(path) == os.getpid()


def test_announcements_are_told_from_other_lines() -> None:
    assert heard(b'{"event": "ready", "pid": 3}') == {"event": "ready", "pid": 3}
    for line in (b"", b"ready", b'{"event": ', b'{"event": 3}', b'{"time": "x", "event": "ready"}', b"\xff\xfe"):
        assert heard(line) is None


def test_settings_of_the_command_line() -> None:
    assert settings_from(["a.b=c", "d.e = f=g"]) == {"a.b": "c", "d.e": "f=g"}
    for wrong in ("a.b", "=x", ""):
        with pytest.raises(BadConfig, match="is not a setting"):
            settings_from([wrong])


def test_a_port_that_is_taken_is_named() -> None:
    taken = listen("127.0.0.1", 0)
    taken.listen()
    port = taken.getsockname()[1]
    with pytest.raises(BadEnvironment, match=f"port `{port}`"):
        listen("127.0.0.1", port)
    taken.close()
    listen("127.0.0.1", port).close()
    with pytest.raises(BadConfig, match="no address of this machine"):
        listen("no.such.host.invalid", port)
